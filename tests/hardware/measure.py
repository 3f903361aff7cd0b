"""One instruction on the GPU: random cases through all its variants, compared or recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

import numpy as np

from dtypes import Array
from emulator import EmulatorError, Instruction, execute
from emulator.tools.recordings import Recording
from hardware.cases import Batch, draw, with_probes
from hardware.driver import CudaError
from hardware.kernels import ENTRY, Variant, for_probes, inputs, module, variants
from hardware.operands import Rng

#: what the result holds before the kernel writes it, so that a lane that writes nothing shows
UNWRITTEN = 0xDEAD_BEEF
#: a case of wgmma computes so much more than one of mma that it counts for this many
WGMMA_COSTS = 8


class Device(Protocol):
    """What `driver.Gpu` offers."""

    def run(
        self, ptx: str, entry: str, cases: int, lanes: int, inputs: Sequence[Array], result: Array
    ) -> Array: ...


@dataclass(frozen=True)
class Settings:
    """How to measure; the same for all instructions of a run."""

    target: str
    ptx_version: str
    cases: int
    seed: int
    #: return recordings instead of comparing with the emulator
    record: bool = False
    #: operands that show each constant of a recipe, instead of random ones
    probes: bool = False


@dataclass
class Outcome:
    """Cases of one variant, as run and compared; `error` where that failed."""

    name: str
    cases: int = 0
    words: int = 0
    differing_cases: int = 0
    differing_words: int = 0
    #: where the first difference is
    first: str = ""
    error: str = ""


@dataclass
class Report:
    """All that was found out about one instruction."""

    opcode: str
    family: str
    outcomes: list[Outcome] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    #: the GPU cannot be used by this process any more
    is_fatal: bool = False


def measure(gpu: Device, ins: Instruction, settings: Settings) -> Report:
    """Runs every variant of `ins`; what goes wrong stands in the outcome of that variant.

    The cases depend on the seed and the instruction alone.
    """
    rng = np.random.default_rng([settings.seed, crc32(str(ins).encode())])
    report = Report(str(ins), ins.family)
    for variant in (for_probes if settings.probes else variants)(ins, rng):
        batches = _batches(variant, rng, settings)
        if not batches:
            continue
        try:
            results = run(gpu, variant, batches, settings)
        except CudaError as error:
            report.outcomes.append(Outcome(variant.name, error=str(error)))
            report.is_fatal = error.is_fatal
            if error.is_fatal:
                break
            continue
        for batch, result in zip(batches, results, strict=True):
            if settings.record:
                report.recordings.append(recording(batch, result, settings.target))
                report.outcomes.append(Outcome(variant.name, batch.cases, result.size))
            else:
                report.outcomes.append(compare(batch, result, settings.target))
    return report


def _batches(variant: Variant, rng: Rng, settings: Settings) -> list[Batch]:
    ins = variant.ins
    if settings.probes:
        found = with_probes(variant, rng, settings.target)
        return [found] if found else []
    count = max(1, settings.cases // (WGMMA_COSTS if ins.is_wgmma else 1))
    batches = [draw(variant, rng, count)]
    if ins.is_sparse:
        batches.append(draw(variant, rng, max(1, count // 3), wild=True))
    return batches


def run(gpu: Device, variant: Variant, batches: list[Batch], settings: Settings) -> Iterator[Array]:
    """Results of the batches, all computed by one launch."""
    names = inputs(variant)
    arrays = [np.concatenate([batch.arrays[name] for batch in batches]) for name in names]
    cases = sum(batch.cases for batch in batches)
    before = variant.ins.fragment("d").zeros(cases)
    before += before.dtype.type(UNWRITTEN)
    text = module(variant, settings.target, settings.ptx_version)
    after = gpu.run(text, ENTRY, cases, variant.ins.lanes, arrays, before)
    return iter(np.split(after, np.cumsum([batch.cases for batch in batches])[:-1]))


def compare(batch: Batch, got: Array, target: str) -> Outcome:
    """What the GPU returned against what the emulator computes from the same operands."""
    name = batch.variant.name + (" any metadata" if batch.wild else "")
    outcome = Outcome(name, batch.cases, got.size)
    try:
        want = execute(batch.variant.ins, *batch.operands(), target=target, **batch.options())
    except EmulatorError as error:
        outcome.error = f"emulator: {type(error).__name__}: {error}"
        return outcome
    unlike = got != want
    outcome.differing_words = int(unlike.sum())
    outcome.differing_cases = int(unlike.any((-2, -1)).sum())
    if outcome.differing_words:
        case, lane, register = (int(i) for i in np.argwhere(unlike)[0])
        digits = got.dtype.itemsize * 2
        outcome.first = (
            f"case {case} ({batch.regimes[case]}), lane {lane}, register {register}: GPU "
            f"0x{int(got[case, lane, register]):0{digits}x}, emulator "
            f"0x{int(want[case, lane, register]):0{digits}x}"
        )
    return outcome


def recording(batch: Batch, result: Array, target: str) -> Recording:
    return Recording(
        "capture", str(batch.variant.ins), target, batch.operands(), batch.options(), result
    )
