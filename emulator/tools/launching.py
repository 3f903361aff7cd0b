"""``launch`` and ``check``: a kernel of a PTX or CUDA C++ file, run on arrays from and to .npy
files; `check` looks for mistakes on the way."""

from __future__ import annotations

import contextlib
import math
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, hint, listing, quoted, whole
from emulator.isa.matrix import MatrixInstruction
from emulator.machine.checks.finding import Finding, Party
from emulator.machine.compiling import SUFFIXES
from emulator.machine.module import Kernel, Module
from emulator.machine.options import Contract, Order, Special
from emulator.machine.report import KernelError
from emulator.machine.report import Report as MachineReport
from emulator.memory.tensor_map import TensorMap
from emulator.tools.expectation import differences, expectation
from emulator.tools.files import check_outputs, read_array, read_text, replacing_all
from emulator.tools.orders import OrderReport, check_order, other_elements
from emulator.tools.report import Answer, render
from emulator.tools.words import sizes

if TYPE_CHECKING:
    from emulator.machine.debugger.debugger import Debugger
    from emulator.tools.faults.launches import LaunchFaults

#: bytes that one array made by ``zeros:…`` may have
_LARGEST = 1 << 33
#: axes that an array may have in every version of NumPy
_MOST_AXES = 32
_FILLS = ("zeros", "ones", "random", "arange")
#: options of a tensor map
_OF_MAPS = ("box", "element_strides", "swizzle", "interleave", "l2_promotion", "fill", "dtype")
#: changed elements that are shown from either end of a long list
_ENDS = 3
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)")
#: numbers of the machine's own byte order
_TYPE = re.compile(r"[<=|]?[A-Za-z]\w*" if sys.byteorder == "little" else r"[>=|]?[A-Za-z]\w*")


#: help of what is launched: the kernel, its sizes and its arguments
LAUNCH = {
    "file": "PTX, or CUDA C++ (.cu), which nvcc or NVRTC compiles; - reads PTX from standard input",
    "kernel": "its name, or a part of it; may be left out where there is one",
    "--grid X,Y,Z": "thread blocks (default 1)",
    "--block X,Y,Z": "threads of a block (default 1)",
    "--arg VALUE": "one for each parameter: a number; IN.npy; IN.npy:OUT.npy; "
    "zeros:f4:1024x1024, zeros:f4:1024x1024:OUT.npy; ones, arange and random in place of zeros; "
    "tensormap:A.npy:box=64x64:swizzle=128B or tensormap:zeros:float16:128x64:box=64x64, shape and "
    "box with the rows first",
    "--dynamic-shared BYTES": "dynamic shared memory",
    "--target": "sm_90a, H100, ... (default: the file's own .target; .cu: sm_90a)",
    "-D NAME[=TEXT]": "macro of CUDA C++",
    "-I FOLDER": "folder of headers of CUDA C++",
    "-std --std c++17": "version of CUDA C++",
    "--compiler-option WORD": "one more word for nvcc or NVRTC, as --compiler-option=-G",
    "--seed": "of random arrays, and of --async-order random",
}
#: help of what every command takes that launches a kernel here
KERNEL = LAUNCH | {
    "--cluster X,Y,Z": "thread blocks of a cluster",
    "--contract": "what the assembler made of the arithmetic: by default it fuses multiplications "
    "and additions; none: with -fmad=false; O0: with -O0",
    "--async-order": "when asynchronous copies take effect",
    "--schedule-seed SEED": "run blocks, warps and atomics in another legal order",
    "--step-limit N": "statements that may be executed",
    "--source FOLDER": "where the source files are that the PTX names",
}
_BOTH = KERNEL | {
    "--stop-at": "end at the first NaN or infinity that finite operands give",
    "--expect REF.npy": "what an argument shall hold afterwards, bit for bit: REF.npy, N:REF.npy "
    "for argument N (from 0), or REF.npy:ulps=K; exit code 1 where it does not",
    "--counters": "show what was counted, by source line",
    "--html OUT.html": "write a page with the source beside what was found and counted",
    "--trace OUT.html": "write a page with every statement of every warp over time, and what "
    "registers and tiles held; for small launches",
}


#: arguments of `launch` and what they mean
LAUNCH_HELP = _BOTH | {
    "--problems": "list what cannot run, and launch nothing",
    "--faults": "where a matrix product differs from --expect, name the mistake (find_faults)",
}

#: arguments of `check` and what they mean
CHECK_HELP = _BOTH | {
    "--schedule-seeds N": "run N other orders, too, and list which results depend on the order"
}


@dataclass
class LaunchWords:
    """The command line of `launch`, `check`, `debug` and `record`, and what it names.

    Raises OperandError for files and words that cannot be used.
    """

    file: str
    kernel: str | None = None
    grid: str = "1"
    block: str = "1"
    cluster: str | None = None
    arg: Sequence[str] = ()
    dynamic_shared: int = 0
    target: str | None = None
    contract: Contract | None = None
    async_order: Order = "early"
    seed: int | None = None
    schedule_seed: int | None = None
    step_limit: int | None = None
    stop_at: Special | None = None
    counters: bool = False
    html: str | None = None
    trace: str | None = None
    source: str | None = None
    D: Sequence[str] = ()
    I: Sequence[str] = ()  # noqa: E741 - as compilers call it
    std: str | None = None
    compiler_option: Sequence[str] = ()
    expect: Sequence[str] = ()

    def __post_init__(self) -> None:
        options = [f"-D{x}" for x in self.D] + [f"-I{x}" for x in self.I]
        options += [f"-std={self.std}"] if self.std else []
        self.module = _module(self.file, self.target, [*options, *self.compiler_option])
        self.expectations = [expectation(text) for text in self.expect]

    def prepare(self) -> None:
        """Finds the kernel, and reads or makes the arguments."""
        self.chosen = self.module[self.kernel] if self.kernel else _only(self.module)
        try:
            self.values = [_argument(text, self.seed) for text in self.arg]
            self.before = [None if x.array is None else x.array.copy() for x in self.values]
        except MemoryError:
            raise OperandError("there is not enough memory for the arrays of --arg") from None
        # IN.npy:OUT.npy may say that an array is changed in place.
        in_place = {x.output for x in self.values if x.input == x.output}
        inputs = [self.file, *(x.input for x in self.values if x.input not in in_place)]
        check_outputs([*(x.output for x in self.values), self.html, self.trace], inputs)
        seed = self.schedule_seed
        if seed is None and self.async_order == "random":
            seed = self.seed
        self.sizes: tuple[Any, ...] = (
            sizes("--grid", self.grid), sizes("--block", self.block),
            [x.value for x in self.values],
        )  # fmt: skip
        self.options: dict[str, Any] = {
            "counters": self.counters,
            "dynamic_shared": self.dynamic_shared,
            "cluster": None if self.cluster is None else sizes("--cluster", self.cluster),
            "contract": self.contract, "async_order": self.async_order, "seed": seed,
            "step_limit": self.step_limit, "stop_at": self.stop_at,
            "progress": _show_progress if sys.stderr is not None and sys.stderr.isatty() else None,
        }  # fmt: skip

    @property
    def folder(self) -> str | Path | None:
        """Where source files are looked for."""
        return self.source or (None if self.file == "-" else Path(self.file).parent)

    def launch(self, check: bool = False) -> MachineReport:
        start = time.perf_counter()
        try:
            report = self.chosen.launch(*self.sizes, **{"check": check} | self.options)
        except KernelError as error:
            self.write_trace(MachineReport(self.chosen.name, error.findings))
            raise
        self.seconds = time.perf_counter() - start
        self.write(report, [x for x in self.values if x.output])
        self.write_trace(report)
        return report

    def debug(self) -> Debugger:
        """The launch under the debugger, before its first statement."""
        return self.chosen.debug(*self.sizes, **self.plain(), source=self.folder)

    def write_trace(self, report: MachineReport) -> None:
        """Writes the page that --trace asks for: launches once more, with the arrays as before."""
        if self.trace is None:
            return
        self.restore()
        from emulator.tools.tracing.page import trace

        page = trace(self.chosen, *self.sizes, check=report, source=self.folder, **self.plain())
        with replacing_all([self.trace]) as (file,):
            file.write(page.html().encode())

    def restore(self) -> None:
        """Gives the arrays the contents that they had before the launch."""
        for value, before in zip(self.values, self.before, strict=True):
            if before is not None:
                value.held[...] = before

    def plain(self, *others: str) -> dict[str, Any]:
        """The options but for those that only look, and `others`."""
        left_out = {"counters", "stop_at", "progress", *others}
        return {name: x for name, x in self.options.items() if name not in left_out}

    def faults(self) -> LaunchFaults:
        """The mistakes of a matrix product; launches once more, with the arrays as before."""
        from emulator.tools.faults.finder import find_faults
        from emulator.tools.faults.launches import LaunchFaults

        self.restore()
        grid, block, args = self.sizes
        given = {"grid": grid, "block": block, "args": args, **self.plain()}
        found = find_faults(self.chosen, expected=self.expectations[0].expected, **given)
        assert isinstance(found, LaunchFaults)
        return found

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Changes that the launch made, argument by argument."""
        pairs = zip(self.values, self.before, strict=True)
        return [_row(i, x, old) for i, (x, old) in enumerate(pairs)]

    @property
    def changes(self) -> list[dict[str, str]]:
        return [dict(zip(_HEADER, row, strict=True)) for row in self.rows]

    def write(self, report: MachineReport, arrays: Sequence[_Argument] = ()) -> None:
        """The arrays that have a file to go to, and the page that --html asks for."""
        pages = [self.html] if self.html else []
        with replacing_all([*(x.output for x in arrays), *pages]) as files:
            for array, file in zip(arrays, files, strict=False):
                np.save(file, array.held, allow_pickle=False)
            for file in files[len(arrays) :]:
                file.write(report.html(self.folder).encode())

    def compared(self) -> tuple[list[str], list[dict[str, Any]], int]:
        """Compares arrays with what is expected: lines, data, and the exit code."""
        lines: list[str] = []
        data: list[dict[str, Any]] = []
        arrays, changed = [x.array for x in self.values], [bool(row[-1]) for row in self.rows]
        for wanted in self.expectations:
            found = differences(wanted, arrays, changed)
            lines += [f"as expected: {wanted.text}"] if found is None else list(found.lines())
            data.append({"expected": wanted.text, "differences": found and found.data})
        return lines, data, int(any(x["differences"] for x in data))

    def counted(self, report: MachineReport) -> list[str]:
        if not self.counters:
            return []
        totals = [f"{name}: {count:,}" for name, count in report.counters.items()]
        return [*totals, *report.count_lines()]


LAUNCH_WORDS = CHECK_WORDS = LaunchWords
_HEADER = ("index", "value", "changed", "file", "changed to")


def launch_command(file: str, problems: bool = False, faults: bool = False, **words: Any) -> Answer:
    """Launches a kernel and answers with what it printed and wrote.

    The arguments are those of the command line. Raises OperandError for files and words that cannot
    be used, and whatever `Module` and `Kernel.launch` raise.
    """
    command = LaunchWords(file, **words)
    if problems:
        return _problems(command.module)
    if faults and len(command.expectations) != 1:
        raise OperandError("--faults takes one --expect=REF.npy: the C that is right")
    command.prepare()
    report, rows = command.launch(), command.rows
    target = str(command.module.target)
    lines = [f"{command.chosen.name} on {target}: {command.seconds:.2f} s"]
    lines += "".join(report.printed).splitlines()
    lines += render(("argument", *_HEADER[1:]), rows) if rows else []
    lines += command.counted(report)
    data = report.data | {
        "target": target,
        "seconds": command.seconds,
        "arguments": command.changes,
    }
    compared, data["expected"], code = command.compared()
    if faults and code:
        found = command.faults()
        compared += ["", *found.lines()]
        data["faults"] = found.data
    elif code and _multiplies(command.chosen):
        compared.append("--faults names the mistake of a matrix product")
    return Answer([*lines, *compared], data, code)


def check_command(file: str, schedule_seeds: int = 0, **words: Any) -> Answer:
    """Launches a kernel with checks and answers with what they found; exit code 1 if anything.

    The arguments are those of the command line. A kernel that cannot go on is a finding, too.
    Raises OperandError for files and words that cannot be used.
    """
    command = LaunchWords(file, **words)
    command.prepare()
    whole("--schedule-seeds", schedule_seeds)
    target, failed = str(command.module.target), False
    try:
        report = command.launch(check=True)
    except KernelError as error:
        report, failed = _failed(command.chosen.name, error), True
        command.write(report)
    lines = [f"{command.chosen.name} on {target}: {_sum(report)}", *report.finding_lines()]
    lines += "".join(report.printed).splitlines()
    lines += command.counted(report)
    data = report.data | {"target": target, "arguments": command.changes}
    code = report.code
    if command.expectations and not failed:
        compared, data["expected"], wrong = command.compared()
        lines += compared
        code |= wrong
    if schedule_seeds and not failed:
        orders = _orders(command, schedule_seeds)
        lines += orders.lines()
        data["orders"] = orders.data
        code |= orders.code
    return Answer(lines, data, code)


def _multiplies(kernel: Kernel) -> bool:
    statements = kernel.bound.program.statements
    return any(isinstance(x.instruction, MatrixInstruction) for x in statements)


def _sum(report: MachineReport) -> str:
    count = len(report.findings) + report.left_out
    return f"{count:,} finding{'s' * (count > 1)}" if count else "no findings"


def _failed(kernel: str, error: KernelError) -> MachineReport:
    """The report of a kernel that cannot go on: the error as a finding."""
    if error.place is None:
        raise error
    party = Party(error.place, error.block or (0, 0, 0), error.threads)
    finding = Finding(error.kind, error.reason, party, count=max(1, len(error.threads)))
    return MachineReport(kernel, [finding])


def _orders(command: LaunchWords, seeds: int) -> OrderReport:
    """Checks what depends on the order; an earlier launch has left its results in the arrays."""
    command.restore()
    # "early" is the default here; check_order has another.
    others = ("seed", "async_order")[: 1 + (command.async_order == "early")]
    return check_order(command.chosen, *command.sizes, seeds=seeds, **command.plain(*others))


# --- the module -----------------------------------------------------------------------------------


def _module(file: str, target: str | None, options: Sequence[str] = ()) -> Module:
    if file != "-" and Path(file).suffix in SUFFIXES:
        return Module.from_cuda(file, target or "sm_90a", options)
    if options:
        raise OperandError(
            f"{' '.join(options)} is for the compiler of CUDA C++ (.cu); {quoted(file)} is PTX"
        )
    if file == "-":
        return Module(read_text(file), target)
    return Module(Path(file), target)


def _only(module: Module) -> Kernel:
    if len(module.kernels) != 1:
        names = listing([_signature(module[name]) for name in module.kernels]) or "none"
        raise OperandError(f"name a kernel; the file has {names}")
    return module[module.kernels[0]]


def _signature(kernel: Kernel) -> str:
    return f"{kernel.name}({', '.join(f'.{p.type}' for p in kernel.parameters)})"


def _problems(module: Module) -> Answer:
    found = module.problems
    lines = [f"{len(module.kernels)} kernels, {len(found)} statements cannot run"]
    lines += [str(problem) for problem in found]
    data = {"kernels": list(module.kernels), "problems": [x._asdict() for x in found]}
    return Answer(lines, data, code=1 if found else 0)


def _show_progress(done: int, total: int) -> None:
    end = "\r\033[K" if done == total else ""
    print(f"\r{done:,} of {total:,} blocks{end}", end="", file=sys.stderr, flush=True)


# --- arguments ------------------------------------------------------------------------------------


class _Argument(NamedTuple):
    value: Any
    #: the file that it is written to after the launch, "" for none
    output: str = ""
    #: the file that it was read from, "" for none
    input: str = ""

    @property
    def held(self) -> Any:
        """The value, or the array that a tensor map is of."""
        return self.value.array if isinstance(self.value, TensorMap) else self.value

    @property
    def array(self) -> Array | None:
        """The array that a launch may change."""
        return self.held if isinstance(self.held, np.ndarray) else None


def _argument(text: str, seed: int | None) -> _Argument:
    """The value that a word of the command line stands for."""
    if (number := _number(text)) is not None:
        return _Argument(number)
    first, *rest = text.split(":")
    if first == "tensormap":
        return _tensor_map(text, rest, seed)
    if first in _FILLS:
        return _filled(text, first, rest, seed)
    if first.endswith(".npy") and len(rest) <= 1:
        return _Argument(np.ascontiguousarray(read_array(first)), "".join(rest), first)
    near = hint(first, _FILLS)
    raise OperandError(
        f"--arg is a number, IN.npy, IN.npy:OUT.npy, or {listing(_FILLS)} with a type and a shape "
        f"such as zeros:f4:1024x1024; got {quoted(text)}{near}"
    )


def _number(text: str) -> int | float | None:
    """The number that a word is; OperandError for one beyond every type, None for no number."""
    with contextlib.suppress(ValueError):  # of 4,300 digits and more; they are a float's infinity
        if _INTEGER.fullmatch(text):
            return int(text, 0) if "x" in text.lower() else int(text)
    try:
        number = float(text)
    except ValueError:
        return None
    if math.isinf(number) and "inf" not in text.lower():
        raise OperandError(f"--arg {quoted(text)} is larger than every number of a kernel")
    return number


def _filled(text: str, fill: str, rest: list[str], seed: int | None) -> _Argument:
    if not 2 <= len(rest) <= 3:
        forms = f"{fill}:TYPE:SHAPE, or {fill}:TYPE:SHAPE:OUT.npy"
        raise OperandError(f"--arg is {forms}; got {quoted(text)}")
    dtype, parts = _dtype(rest[0]), rest[1].split("x")
    if not all(re.fullmatch("[0-9]{1,40}", x) for x in parts):
        raise OperandError(f"a shape is numbers such as 1024x1024; got {quoted(rest[1])}")
    shape = tuple(map(int, parts))
    if len(shape) > _MOST_AXES:
        raise OperandError(f"a shape has at most {_MOST_AXES} sizes; {quoted(rest[1])} has more")
    # NumPy multiplies sizes beside a 0, too.
    if math.prod(size or 1 for size in shape) * dtype.itemsize > _LARGEST:
        raise OperandError(f"{quoted(text)} has more than {_LARGEST:,} bytes")
    return _Argument(_contents(fill, shape, dtype, seed), "".join(rest[2:]))


def _tensor_map(text: str, rest: list[str], seed: int | None) -> _Argument:
    """A tensor map of an array: that of another form of --arg, and words such as box=64x64."""
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    array = [word for word in rest if "=" not in word]
    wrong = [name for name in options if name not in _OF_MAPS]
    if wrong or "box" not in options or not array or len(array) + len(options) != len(rest):
        near = hint(wrong[0], _OF_MAPS) if wrong else ""
        raise OperandError(
            "--arg is tensormap:A.npy:box=64x64 or tensormap:zeros:float16:128x64:box=64x64, with "
            f"{listing(_OF_MAPS)} as NAME=VALUE; got {quoted(text)}{near}"
        )
    made = _argument(":".join(array), seed)
    if not isinstance(made.value, np.ndarray):
        raise OperandError(f"a tensor map is of an array; got {quoted(text)}")
    words: dict[str, Any] = dict(options)
    for name in {"box", "element_strides"} & words.keys():
        words[name] = tuple(reversed(sizes(name, options[name], 5)))
    return made._replace(value=TensorMap.tiled(made.value, **words))


def _contents(fill: str, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int | None) -> Array:
    if fill == "zeros":
        return np.zeros(shape, dtype)
    if fill == "ones":
        return np.ones(shape).astype(dtype)
    if fill == "arange":
        return np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    rng = np.random.default_rng(0 if seed is None else whole("--seed", seed))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def _dtype(name: str) -> np.dtype[Any]:
    """NumPy's and ml_dtypes' types by name: f4, float32, u1, bfloat16, float8_e4m3fn, …"""
    import ml_dtypes

    try:
        if _TYPE.fullmatch(name) is None:  # NumPy evaluates words such as "f4,(2,)i4"
            raise TypeError
        found = getattr(ml_dtypes, name, None)
        dtype = np.dtype(found if found is not None else name)
    except TypeError:
        raise OperandError(
            f"no element type {quoted(name)}; types are NumPy's, such as f4, f2, u4, i8, and "
            "ml_dtypes', such as bfloat16"
        ) from None
    if dtype.hasobject or dtype.itemsize == 0 or (dtype.kind in "USVmM" and found is None):
        raise OperandError(f"no element type {quoted(name)}: elements are numbers")
    return dtype


def _row(index: int, argument: _Argument, before: Array | None) -> tuple[str, ...]:
    array = argument.array
    if before is None or array is None:
        return str(index), str(argument.value), "", argument.output, ""
    flat, changed = array.reshape(-1), other_elements(array, before)
    shape = " × ".join(map(str, array.shape))
    what = "tensor map of " if isinstance(argument.value, TensorMap) else ""
    return (
        str(index), f"{what}{array.dtype} {shape}", f"{int(changed.sum()):,} of {array.size:,}",
        argument.output, _in_short(flat[changed]),
    )  # fmt: skip


def _in_short(values: Array) -> str:
    """Numbers in one line: the first and the last ones of many."""
    few = len(values) <= 2 * _ENDS
    ends = values if few else np.concatenate([values[:_ENDS], values[-_ENDS:]])
    shown = [str(x) if values.dtype.kind in "iubc" else f"{float(x):.6g}" for x in ends]
    return " ".join(shown if few else [*shown[:_ENDS], "…", *shown[_ENDS:]])
