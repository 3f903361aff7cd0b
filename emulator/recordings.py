"""Recordings of real hardware, and their replay: the same bits in, are the same bits out?

A group is two files beside each other: ``NAME.npz`` holds the arrays, ``NAME.json`` the provenance
and a list of variants, each naming its opcode, its options and its arrays. The first axis of every
array counts cases. The groups are in ``tests/golden``, which an installed package carries as
``emulator/golden``; the project's capture tool writes files of the same format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.arith import Engine
from emulator.errors import EmulatorError
from emulator.isa.instruction import Instruction
from emulator.matrices.mma import mma
from emulator.warp.execute import execute

Array = NDArray[np.generic]
Provenance = dict[str, str]
#: What was recorded: the registers that an instruction returned, the memory that stmatrix left,
#: or single dot products, each fed to one element of a matrix multiplication.
Kind = Literal["registers", "memory", "dot"]


@dataclass(frozen=True)
class Recording:
    """One instruction with fixed immediates, run on hardware for a number of cases."""

    group: str
    opcode: str
    target: str
    #: operands of `execute` in order; of a "dot" the codes a ``(cases, k)``, b ``(cases, k)``, c
    operands: tuple[Array, ...]
    #: options of `execute`; those that are arrays have one entry for each case
    options: dict[str, Any]
    #: what the hardware returned, ``(cases, …)``
    expected: Array
    kind: Kind = "registers"
    #: from where, as the .json file tells it: gpu, driver, date, source, licence …
    provenance: Provenance = field(default_factory=dict, repr=False)

    @property
    def cases(self) -> int:
        return len(self.expected)

    @property
    def name(self) -> str:
        """Opcode and options: unlike every other of the group."""
        words = [self.opcode]
        for option, value in self.options.items():
            if not isinstance(value, np.ndarray):
                words.append(f"{option}={value}")
        if "wgmma" in self.opcode and self.kind == "registers":
            words.append("A from shared" if self.operands[0].dtype == np.uint64 else "A from lanes")
        if self.kind == "dot":
            words.append(f"on {self.provenance.get('gpu', self.target)}")
        return " ".join(words)

    def head(self, count: int) -> Recording:
        """The first `count` cases of it."""
        cut = {k: v[:count] if isinstance(v, np.ndarray) else v for k, v in self.options.items()}
        operands = tuple(x[:count] for x in self.operands)
        return replace(self, operands=operands, options=cut, expected=self.expected[:count])


class Outcome(NamedTuple):
    """Of `cases` replayed, `differing` gave another bit somewhere."""

    differing: int
    cases: int


@dataclass(frozen=True)
class Summary:
    """How the replay of one group went."""

    group: str
    #: the GPUs that it was recorded on
    hardware: tuple[str, ...]
    variants: int
    cases: int
    differing: int
    #: a line for each variant that differs or that the emulator refuses to run
    problems: tuple[str, ...]
    #: opcodes that are not supported yet; their cases are not counted
    unsupported: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.differing and not self.problems

    def __str__(self) -> str:
        if len(self.unsupported) == self.variants:
            return f"{self.group}: not supported yet ({self.variants} variants)"
        text = f"{self.group}: {self.cases - self.differing} of {self.cases} cases bit-identical"
        text += f" to {', '.join(self.hardware)} ({self.variants} variants)"
        if self.unsupported:
            text += f"; {len(self.unsupported)} variants not supported yet"
        return text


# --- files ---


def golden_folder() -> Path:
    """The folder of recordings, of an installed package or of a checkout.

    Raises FileNotFoundError where neither is there.
    """
    package = Path(__file__).parent
    places = (package / "golden", package.parent / "tests" / "golden")
    for folder in places:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"no recordings: neither {places[0]} nor {places[1]} exists")


def groups(folder: Path | None = None) -> tuple[str, ...]:
    """Names of the groups in `folder`, in alphabetical order."""
    return tuple(sorted(path.stem for path in (folder or golden_folder()).glob("*.json")))


def recordings(group: str = "", folder: Path | None = None) -> Iterator[Recording]:
    """The recorded variants of one group, or of all; raises EmulatorError for an unknown group."""
    folder = folder or golden_folder()
    known = groups(folder)
    if group and group not in known:
        raise EmulatorError(f"no recordings {group!r} in {folder}; groups are {', '.join(known)}")
    for name in [group] if group else known:
        yield from _load(folder / name)


def _load(path: Path) -> Iterator[Recording]:
    about = json.loads(path.with_suffix(".json").read_text())
    with np.load(path.with_suffix(".npz")) as file:
        arrays = {key: file[key] for key in file.files}
    for row in about["variants"]:
        options = row.get("options", {}) | {k: arrays[v] for k, v in row.get("arrays", {}).items()}
        yield Recording(
            path.stem,
            row["opcode"],
            row["target"],
            tuple(arrays[key] for key in row["operands"]),
            options,
            arrays[row["expected"]],
            row.get("kind", "registers"),
            about["provenance"] | row.get("provenance", {}),
        )


def save(path: Path, provenance: Provenance, variants: Iterable[Recording]) -> None:
    """Writes one group, as ``path.npz`` and ``path.json``; an array that recurs is written once.

    `provenance` is that of the group; what a variant has besides goes with the variant.
    """
    arrays: dict[str, Array] = {}
    keys: dict[tuple[bytes, str, tuple[int, ...]], str] = {}

    def key(name: str, array: Array) -> str:
        content = (array.tobytes(), array.dtype.str, array.shape)
        if content not in keys:
            keys[content] = name
            arrays[name] = array
        return keys[content]

    rows = []
    for i, variant in enumerate(variants):
        names = [key(f"{i}.{j}", x) for j, x in enumerate(variant.operands)]
        row: dict[str, object] = {"opcode": variant.opcode, "target": variant.target}
        row |= {"operands": names, "expected": key(f"{i}.expected", variant.expected)}
        if variant.kind != "registers":
            row["kind"] = variant.kind
        if own := {k: v for k, v in variant.provenance.items() if provenance.get(k) != v}:
            row["provenance"] = own
        is_array = {k: isinstance(v, np.ndarray) for k, v in variant.options.items()}
        if plain := {k: v for k, v in variant.options.items() if not is_array[k]}:
            row["options"] = plain
        if held := {k: key(f"{i}.{k}", v) for k, v in variant.options.items() if is_array[k]}:
            row["arrays"] = held
        rows.append(json.dumps(row))
    listed = ",\n  ".join(rows)
    head = json.dumps(provenance, indent=1)
    path.with_suffix(".json").write_text(
        f'{{"provenance": {head},\n "variants": [\n  {listed}\n]}}\n'
    )
    np.savez_compressed(path.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]


# --- replay ---


def is_supported(variant: Recording) -> bool:
    """Whether the package knows the instruction."""
    try:
        Instruction.parse(variant.opcode)
    except EmulatorError:
        return False
    return True


def replay(variant: Recording, engine: Engine = "auto") -> Outcome:
    """Runs the recorded cases and counts those in which any bit differs from the hardware's.

    Raises EmulatorError where the emulator does not take what the hardware ran.
    """
    run = {"registers": _registers, "memory": _memory, "dot": _dots}[variant.kind]
    got = run(variant, engine)
    want = variant.expected
    if got.size != want.size:
        return Outcome(variant.cases, variant.cases)
    unlike = got.astype(np.uint64).reshape(want.shape) != want.astype(np.uint64)
    return Outcome(int(unlike.reshape(variant.cases, -1).any(-1).sum()), variant.cases)


def selftest(engine: Engine = "auto", folder: Path | None = None) -> tuple[Summary, ...]:
    """Replays every recording with `engine`: one summary for each group."""
    return tuple(_summary(group, engine, folder) for group in groups(folder))


def _summary(group: str, engine: Engine, folder: Path | None) -> Summary:
    cases = differing = 0
    problems, unsupported = [], []
    variants = 0
    hardware: list[str] = []
    for variant in recordings(group, folder):
        variants += 1
        if (gpu := variant.provenance.get("gpu", "unknown GPU")) not in hardware:
            hardware.append(gpu)
        if not is_supported(variant):
            unsupported.append(variant.opcode)
            continue
        try:
            outcome = replay(variant, engine)
            problem = f"{outcome.differing} of {outcome.cases} cases differ"
        except EmulatorError as error:
            outcome = Outcome(variant.cases, variant.cases)
            problem = f"{type(error).__name__}: {error}"
        cases, differing = cases + outcome.cases, differing + outcome.differing
        if outcome.differing:
            problems.append(f"{variant.name}: {problem}")
    return Summary(
        group, tuple(hardware), variants, cases, differing, tuple(problems), tuple(unsupported)
    )


def _registers(variant: Recording, engine: Engine) -> Array:
    ins = Instruction.parse(variant.opcode)
    return np.asarray(
        execute(ins, *variant.operands, target=variant.target, engine=engine, **variant.options)
    )


def _memory(variant: Recording, engine: Engine) -> Array:
    memory = variant.options["shared"].copy()
    _registers(replace(variant, options=variant.options | {"shared": memory}), engine)
    return np.asarray(memory)


def _dots(variant: Recording, engine: Engine) -> Array:
    """One dot product in each element of the diagonal of a product of matrices."""
    ins = Instruction.parse(variant.opcode)
    a, b, c = variant.operands
    size = min(ins.m, ins.n)
    count, used = a.shape
    matrices = -(-count // size)
    on = np.arange(size)
    case = np.arange(matrices * size).reshape(matrices, size) % count
    full_a = np.zeros((matrices, ins.m, ins.k), a.dtype)
    full_b = np.zeros((matrices, ins.k, ins.n), b.dtype)
    full_c = np.zeros((matrices, ins.m, ins.n), c.dtype)
    full_a[:, on, :used] = a[case]
    full_b[:, :used, on] = np.moveaxis(b[case], -1, 1)
    full_c[:, on, on] = c[case]
    d = mma(ins, full_a, full_b, full_c, target=variant.target, codes=True, engine=engine)
    return np.asarray(d)[:, on, on].reshape(-1)[:count]
