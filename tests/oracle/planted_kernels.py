"""The kernels of golden/planted: one mistake each, and the right twin of each."""

import hashlib
import json
import lzma
import re
from dataclasses import dataclass
from functools import cache

import numpy as np
from paths import GOLDEN

from emulator import Memory, Module, TensorMap

PLANTED = GOLDEN / "planted"
#: grids of more than one block
GRIDS = {
    "flag": 2, "fence_scope": 2, "last_block": 4, "lock": 4, "peer_gone": 2, "remote_write": 2,
    "reset": 4, "sum_of_blocks": 4,
}  # fmt: skip
#: rows and columns of the matrices, rows of the operands A and B
_ROWS, _COLUMNS, _A, _B = 96, 256, 64, 32
_OPERAND = {"dtype": "float16", "strides": [2 * _COLUMNS], "swizzle": "128B"}
#: tensor maps of A, B and D
_MAPS = (
    {"at": (0, 0), "dims": [_COLUMNS, _A], "box": [64, _A], **_OPERAND},
    {"at": (0, 2 * _COLUMNS * _A), "dims": [_COLUMNS, _B], "box": [64, _B], **_OPERAND},
    {"at": (1, 0), "dtype": "float32", "dims": [_B, _A], "strides": [4 * _B], "box": [16, _A]},
)
_ENUM = re.compile(r"    ([A-Z_]+), +// (.+) \[(.+)\]")


@dataclass
class Run:
    """A launch, as the emulator and a GPU can do it."""

    ptx: str
    entry: str
    grid: tuple
    block: tuple
    #: arrays that the kernel reaches
    memory: list
    #: for each parameter an index into `memory`, whose address it is, bytes, or the arguments of
    #: TensorMap.tiled, with an index and an offset for the address
    arguments: list
    dynamic_shared: int = 0
    cluster: tuple = None
    #: where the arrays lie, if that is fixed: then a GPU cannot run it
    addresses: list = None
    #: how many of the arrays, from the first, hold the same bytes wherever they lie
    compared: int = None

    def parameters(self, addresses):
        """The bytes of each parameter."""
        out = []
        for given in self.arguments:
            if isinstance(given, dict):
                options = dict(given)
                index, offset = options.pop("at")
                out.append(bytes(TensorMap.tiled(addresses[index] + offset, **options).encode()))
            else:
                known = isinstance(given, bytes)
                out.append(given if known else addresses[given].to_bytes(8, "little"))
        return out

    def launch(self, module=None, **options):
        """What the emulator makes of it: the report, and the digest of the arrays."""
        arrays = [array.copy() for array in self.memory]
        addresses = self.addresses or [(i + 1) << 24 for i in range(len(arrays))]
        held = Memory()
        for address, array in zip(addresses, arrays, strict=True):
            held.map(address, array)
        kernel = (module or Module(self.ptx, target="sm_90a"))[self.entry]
        report = kernel.launch(
            self.grid, self.block, self.parameters(addresses), memory=held,
            dynamic_shared=self.dynamic_shared, cluster=self.cluster, **options,
        )  # fmt: skip
        return report, digest(arrays[: self.compared])


def digest(arrays):
    """Of all bytes of some arrays."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


@dataclass(frozen=True)
class Planted:
    """A mistake in a CUDA C++ file: its two kernels, and where findings may stand."""

    name: str
    #: planted.cu or pipeline.cu
    file: str
    mistake: str
    bad: str
    #: the right twin
    ok: str
    #: lines of the source file that a finding about the mistake may name
    lines: frozenset[int]

    @property
    def title(self):
        """The mistake, and where it stands."""
        return f"{_sentence(self.mistake)} (`{self.name}`)"

    def run(self, kernel):
        """The launch of `bad` or `ok`."""
        text = ptx(self.file)
        if self.file == "planted.cu":
            x = (np.arange(1024) * 37 % 1009).astype("i4")
            grid = (GRIDS.get(self.name, 1),)
            return Run(text, kernel, grid, (128,), [x, np.zeros(1024, "i4")], [0, 1])
        x = (np.arange(_ROWS * _COLUMNS) * 37 % 1009 - 504).astype("f4") / 256
        arrays = [x.astype("f2"), np.zeros((_A, _B), "f4"), np.zeros(128, "u1")]
        block = (384 if self.ok == "pipeline_ok" else 128,)
        return Run(text, kernel, (1,), block, arrays, [0, 1, 2, *_MAPS], compared=2)

    def module(self):
        return module(self.file)


@cache
def ptx(file):
    """PTX of planted.cu or pipeline.cu, as nvcc wrote it."""
    return lzma.open(PLANTED / file.replace(".cu", ".ptx.xz"), "rt").read()


@cache
def module(file):
    return Module(ptx(file), target="sm_90a")


def planted():
    """All mistakes, in the order of the files: both are written in the same way throughout."""
    found = []
    for file in ("planted.cu", "pipeline.cu"):
        lines = (PLANTED / file).read_text().splitlines()
        arrows, said, function = {}, {}, ""
        for number, line in enumerate(lines, 1):
            if match := _ENUM.fullmatch(line):
                said[match[1]] = match[2], match[3].split(", ")
            elif match := re.match(r"(MISTAKE|ONE_WARPGROUP)\((\w+)\)", line):
                function = match[2]
                said[function] = _comment_above(lines, number - 1), [function]
            if "// <-" in line:
                word = line.partition("// <-")[2].strip() or function
                arrows.setdefault(word, set()).add(number)
        for name, (mistake, words) in said.items():
            twin = "pipeline" if name.isupper() else name
            bad = f"pipeline_{name.lower()}" if name.isupper() else name
            marked = frozenset().union(*(arrows[word] for word in words))
            found.append(Planted(bad, file, mistake, f"{bad}_bad", f"{twin}_ok", marked))
    return found


def _sentence(mistake):
    return mistake[0].upper() + mistake[1:].rstrip(".")


def _comment_above(lines, index):
    """The comment that ends above a line, as one sentence."""
    words = []
    while lines[index - 1].startswith("// "):
        index -= 1
        words.insert(0, lines[index][3:])
    return " ".join(words)


@dataclass(frozen=True)
class Edited:
    """A mistake in a recorded kernel of other people: a statement is taken out of it."""

    name: str
    #: a file below golden
    recording: str
    #: of the PTX, and the statement there
    line: int
    removed: str
    mistake: str
    #: lines that a finding about the mistake may name
    lines: tuple

    @property
    def title(self):
        """The mistake, and where it stands."""
        source = self.recording.rpartition("/")[2]
        opcode = re.sub(r"^@\S+ ", "", self.removed).split()[0].strip(";")
        return f"{_sentence(self.mistake)} (`{source}`, without `{opcode}`)"

    def run(self, kernel):
        """The launch of "bad", with the statement taken out, or "ok", as it was recorded."""
        with np.load(GOLDEN / f"{self.recording}.npz") as file:
            held = dict(file)
        meta, lines = json.loads(bytes(held["meta"])), bytes(held["ptx"]).decode().splitlines()
        if kernel == "bad":
            assert " ".join(lines[self.line - 1].split()) == self.removed
            lines[self.line - 1] = ""
        make = _fixed if "allocations" in meta else _movable
        return make("\n".join(lines) + "\n", meta, held)


def edited():
    """All mistakes in recorded kernels."""
    return [Edited(**row) for row in json.loads((PLANTED / "edits.json").read_text())]


def _fixed(text, meta, held):
    arrays = [held[f"before{i}"] for i in range(len(meta["allocations"]))]
    arguments, start = [], 0
    for parameter in meta["params"]:
        arguments.append(bytes(held["params"])[start : start + parameter["size"]])
        start += parameter["size"]
    return Run(
        text, meta["entry"], meta["grid"], meta["block"], arrays, arguments, meta["shared"],
        meta["cluster"], [allocation["address"] for allocation in meta["allocations"]],
    )  # fmt: skip


def _movable(text, meta, held):
    arrays = [held[f"in{i}"] for i in range(sum(x.startswith("in") for x in held))]
    arguments = []
    parameters = Module(text, target="sm_90a")[meta["entry"]].parameters
    # Triton has folded integers that are 1 away.
    given = [x for x in meta["args"] if x[0] != "scalar" or x[1] != 1 or isinstance(x[1], float)]
    for (kind, value), parameter in zip(given, parameters, strict=False):
        type_ = _NUMPY[parameter.type] if kind == "scalar" else kind
        arguments.append(value if kind == "buf" else np.dtype(type_).type(value).tobytes())
    if "triton" in meta:  # global scratch and profile scratch come last
        size = int(np.prod(meta["grid"])) * meta["num_ctas"] * max(1, meta["global_scratch"])
        arrays.append(np.zeros(size + 128, np.uint8))
        arguments += [len(arrays) - 1, bytes(8)][: len(parameters) - len(arguments)]
    return Run(text, meta["entry"], meta["grid"], meta["block"], arrays, arguments, meta["shared"])


_NUMPY = {"u32": "u4", "s32": "i4", "b32": "u4", "u64": "u8", "b64": "u8", "f32": "f4", "f64": "f8"}


def runs():
    """Every kernel that a GPU can run, by a name for each."""
    out = {}
    for case in planted():
        out.update({kernel: case.run(kernel) for kernel in (case.ok, case.bad)})
    for case in edited():
        for kernel in ("ok", "bad"):
            run = case.run(kernel)
            if run.addresses is None:
                out[f"{case.name}_{kernel}"] = run
    return out


# --- what is found ---


def expected():
    """Mistake -> kind of the finding about it, or of the error that ends the kernel."""
    return json.loads((PLANTED / "found.json").read_text())


def recorded():
    """Kernel -> what compute-sanitizer said on an H200, and the digest of what it wrote."""
    return json.loads((PLANTED / "sanitizer.json").read_text())["kernels"]


_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def table():
    """The guide's table: each mistake, what is said here, and what compute-sanitizer says."""
    kinds, said = expected(), recorded()
    yield f"| mistake | here | {' | '.join(_TOOLS)} |"
    yield "|---" * 6 + "|"
    for case in [*planted(), *edited()]:
        name = case.bad if isinstance(case, Planted) else f"{case.name}_bad"
        verdicts = said.get(name)
        cells = [_verdict(verdicts[tool]) for tool in _TOOLS] if verdicts else ["not run"] * 4
        yield f"| {case.title} | {kinds.get(case.name, '–')} | {' | '.join(cells)} |"


def _verdict(found):
    if found.get("hangs"):
        return "hangs"
    if found["said"].startswith(("Unknown Error", "Program hit")):
        return "fails"
    return "found" if found["count"] else "–"


def tally():
    """Two lines of the guide: how many mistakes are found by whom."""
    kinds, said = expected(), recorded()
    cases = [*planted(), *edited()]
    names = [c.bad if isinstance(c, Planted) else f"{c.name}_bad" for c in cases]
    run = [name for name in names if name in said]
    cells = {name: [_verdict(said[name][tool]) for tool in _TOOLS] for name in run}
    theirs = sum("found" in cell for cell in cells.values())
    hang = sum("found" not in cell and "hangs" in cell for cell in cells.values())
    return (
        f"{sum(case.name in kinds for case in cases)} of {len(cases)} mistakes are found here.\n"
        f"compute-sanitizer finds {theirs} of the {len(run)} that it ran on; {hang} others hang it."
    )
