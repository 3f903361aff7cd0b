"""Replays recordings of real hardware and compares every bit; the command ``selftest``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from emulator.arith import Engine
from emulator.arith.engines import check_engine
from emulator.errors import EmulatorError
from emulator.isa.instruction import Instruction
from emulator.matrices.mma import mma
from emulator.tools import recordings
from emulator.tools.recordings import Array, Recording
from emulator.tools.report import Answer
from emulator.warp.execute import execute


class Outcome(NamedTuple):
    """How many of the replayed `cases` differ in any bit."""

    differing: int
    cases: int


@dataclass(frozen=True)
class Summary:
    """Outcome of the replay of one group."""

    group: str
    #: the GPUs that it was recorded on
    hardware: tuple[str, ...]
    variants: int
    cases: int
    differing: int
    #: a line for each variant that differs or that the emulator refuses to run
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.differing and not self.problems

    def __str__(self) -> str:
        return (
            f"{self.group}: {self.cases - self.differing} of {self.cases} cases bit-identical to "
            f"{', '.join(self.hardware)} ({self.variants} variants)"
        )


#: arguments of `selftest` and what they mean
SELFTEST_HELP = {
    "file": "golden files that the script of `record` has written; without one, the recordings "
    "of this package",
    "--engine": "auto, reference, vector or compiled",
}


def selftest_command(engine: str = "auto", file: Sequence[str] = ()) -> Answer:
    """Replays every group with `engine`, or golden files of the caller's own GPU; exit code 1 where
    a bit differs from the hardware's.

    Raises OperandError for an unknown engine, EmulatorError where no recordings are installed.
    """
    check_engine(engine)
    if file:
        return _of_files(file)
    try:
        summaries = replay_all(cast(Engine, engine))
    except FileNotFoundError as error:
        raise EmulatorError(str(error)) from None
    if not summaries:
        raise EmulatorError(f"there are no recordings in {recordings.golden_folder()}")
    code = 0 if all(summary.ok for summary in summaries) else 1
    data = [{**asdict(summary), "ok": summary.ok} for summary in summaries]
    return Answer(_lines(summaries), data, code)


def _of_files(files: Sequence[str]) -> Answer:
    from emulator.tools.recording.golden import read_golden

    lines, data = [], []
    for file in files:
        golden = read_golden(file)
        found = list(golden.problems())
        arrays = len(golden.outputs)
        same = f"{arrays - len(found)} of {arrays} arrays bit-identical to {golden.chip}"
        lines += [f"{file}: {same} ({golden.target})", *found]
        counts = {"arrays": arrays, "differing": len(found)}
        data.append({"file": file, "provenance": golden.provenance} | counts)
    return Answer(lines, data, code=1 if any(x["differing"] for x in data) else 0)


def _lines(summaries: tuple[Summary, ...]) -> Iterator[str]:
    for summary in summaries:
        yield str(summary)
        yield from (f"  {problem}" for problem in summary.problems)


def replay_all(engine: Engine = "auto", folder: Path | None = None) -> tuple[Summary, ...]:
    """Replays every recording with `engine`: one summary for each group."""
    return tuple(_summary(group, engine, folder) for group in recordings.groups(folder))


def _summary(group: str, engine: Engine, folder: Path | None) -> Summary:
    variants = cases = differing = 0
    problems = []
    hardware: list[str] = []
    for variant in recordings.recordings(group, folder):
        variants += 1
        if (gpu := variant.provenance.get("gpu", "unknown GPU")) not in hardware:
            hardware.append(gpu)
        try:
            outcome = replay(variant, engine)
            problem = f"{outcome.differing} of {outcome.cases} cases differ"
        except EmulatorError as error:
            # What the hardware ran and the emulator refuses counts as different.
            outcome = Outcome(variant.cases, variant.cases)
            problem = f"{type(error).__name__}: {error}"
        cases, differing = cases + outcome.cases, differing + outcome.differing
        if outcome.differing:
            problems.append(f"{variant.name}: {problem}")
    return Summary(group, tuple(hardware), variants, cases, differing, tuple(problems))


def replay(variant: Recording, engine: Engine = "auto") -> Outcome:
    """Runs the recorded cases and counts those in which any bit differs from the hardware's.

    Raises EmulatorError where the emulator does not take what the hardware ran.
    """
    run = {"registers": _registers, "memory": _memory, "wmma": _wmma, "dot": _dots}[variant.kind]
    got = run(variant, engine)
    want = variant.expected
    if got.size != want.size:
        return Outcome(variant.cases, variant.cases)
    unlike = got.astype(np.uint64).reshape(want.shape) != want.astype(np.uint64)
    return Outcome(int(unlike.reshape(variant.cases, -1).any(-1).sum()), variant.cases)


def _registers(variant: Recording, engine: Engine) -> Array:
    ins = Instruction.parse(variant.opcode)
    return np.asarray(
        execute(ins, *variant.operands, target=variant.target, engine=engine, **variant.options)
    )


def _memory(variant: Recording, engine: Engine) -> Array:
    memory = variant.options["shared"].copy()
    _registers(replace(variant, options=variant.options | {"shared": memory}), engine)
    return np.asarray(memory)


def _wmma(variant: Recording, engine: Engine) -> Array:
    """The memory of D after three loads, the multiplication and the store."""
    *sources, d = variant.operands
    target, after = variant.target, d.copy()
    loads = (variant.options[x] for x in "abc")
    registers = [
        execute(load, 0, shared=memory, target=target)
        for load, memory in zip(loads, sources, strict=True)
    ]
    result = execute(variant.opcode, *registers, target=target, engine=engine)
    execute(variant.options["d"], 0, result, shared=after, target=target)
    return np.asarray(after)


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
