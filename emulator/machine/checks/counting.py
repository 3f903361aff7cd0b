"""Counts what warps do: a function around each step of the vector engine.

What is counted is what the program asks of a GPU, not how long that would take: accesses of tensor
copies, of wgmma to its descriptors and of wmma to its lines are not cut into passes and sectors,
as nobody says how the hardware takes them. Lanes of one atomic operation at one word are no bank
conflict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import ROW_BYTES, Movement
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import TileShape
from emulator.machine.checks.banks import BANK, BANKS, Banks, Rows, rows_of
from emulator.machine.checks.counters import Count, Counts, Numbers
from emulator.machine.shared.operands import constant, space_of
from emulator.machine.shared.place import Place
from emulator.machine.shared.waiting import State
from emulator.machine.vector.operands import active, addresses, reader, selected
from emulator.machine.vector.strand import WARP, Parked, Strand
from emulator.machine.vector.watching import StepOrEnd
from emulator.memory.arena import ADDRESS_BITS
from emulator.memory.windows import LOCAL, SHARED, WINDOW_BITS
from emulator.ptx.program import Constant, Function, ParameterPlace, Statement, items_of

if TYPE_CHECKING:
    from emulator.ptx.program import Bound

#: bytes of a sector
SECTOR = 32
_INSIDE = np.uint64((1 << WINDOW_BITS) - 1)
#: effects of statements whose lanes go on behind them when they have waited; others execute the
#: statement again
_WAIT_AND_PASS = {"barrier", "mbarrier"}
_WAITS = (State.BARRIER, State.MBARRIER, State.CLUSTER)

Int64 = NDArray[np.int64]
#: adds what one execution of a statement in the lanes of a mask takes
Measure = Callable[[Strand, Array | None, Numbers], None]
Step = StepOrEnd


class Counting:
    """The counts of one launch; `watch` is what the engine puts around its steps."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Statement, Numbers]] = {}

    def watch(self, step: Step, statement: Statement, function: Function) -> Step:
        _, numbers = self._found.setdefault(statement.pc, (statement, Numbers()))
        guard, measure = active(statement.guard), measure_of(statement, function)
        passes = not _WAIT_AND_PASS.isdisjoint(statement.effects)
        # A guard that differs in a strand sends its lanes back, and they come again by themselves.
        again = "jumps" in statement.effects and not statement.targets
        again &= "leaves" not in statement.effects or not function.is_kernel

        def run(s: Strand) -> int | None:
            mask, warps, lanes = guard(s), len(s.wave.warps_of(s).numbers), len(s)
            divides = False
            if isinstance(mask, bool):
                mask, executed = None, 0
            elif mask is None:
                executed = lanes
            else:
                divides, executed = True, int(np.count_nonzero(mask))
            # Before the step, which may write the registers that hold addresses.
            taken = Numbers()
            if measure is not None and executed:
                measure(s, mask, taken)
            try:
                result = step(s)
            except Parked:
                if divides or not passes:
                    raise
                taken.waits = _waiting(s)
                _count(numbers, taken, warps, lanes, executed)
                raise
            if again and divides:
                return result
            if result is None and statement.targets:
                taken.divided = _divided(s)
            _count(numbers, taken, warps, lanes, executed)
            return result

        return run

    def counts(self, place_of: Callable[[Statement], Place]) -> Counts:
        """Returns the counts; `place_of` gives the place of a statement."""
        return Counts(
            tuple(
                Count(place_of(statement), str(statement.instruction), numbers)
                for _, (statement, numbers) in sorted(self._found.items())
                if numbers.warps
            )
        )


def _count(numbers: Numbers, taken: Numbers, warps: int, lanes: int, executed: int) -> None:
    taken.warps, taken.lanes, taken.executed = warps, lanes, executed
    numbers.add(taken)


def _waiting(s: Strand) -> int:
    """Warps of a strand that wait now; those that a barrier let go at once do not."""
    if s.state in _WAITS:
        return len(s.wave.warps_of(s).numbers)
    return sum(_waiting(child) for child in s.children) if s.state is State.SPLIT else 0


def _divided(s: Strand) -> int:
    """Warps whose lanes a branch has sent to different places."""
    if s.state is not State.SPLIT:
        return 0
    warps = np.concatenate([np.unique(child.lanes // WARP) for child in s.children])
    return len(warps) - len(np.unique(warps))


# --- what a statement takes -----------------------------------------------------------------------


def measure_of(statement: Statement, function: Function) -> Measure | None:
    """The measure of a statement, None where there is nothing but the statement itself."""
    ins = statement.instruction
    if isinstance(ins, (MatrixInstruction, WmmaMultiply)):
        return _products(ins, _tile_of(ins, statement, function))
    if isinstance(ins, Movement):
        return _rows(ins, statement, function) if "p" in statement.operands else None
    if not isinstance(ins, OrdinaryInstruction):
        return None
    effects = statement.effects
    if "copies" in effects:
        own = "bulk" not in effects and "size" in statement.operands
        return _copies(statement, function) if own else None
    if effects.isdisjoint({"reads", "writes"}) or "asynchronous" in effects:
        return None
    place = statement.operands["a"]
    if isinstance(place, ParameterPlace) or "size" in statement.operands:
        return None
    held = statement.operands.get("b", statement.operands.get("d"))
    size = TYPES[ins.types[-1]].size // 8 * len(items_of(held))
    return _in_space(space_of(statement, place), place, size, function)


def _products(ins: Instruction, tile: Callable[[Strand], Rows | None]) -> Measure:
    found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", ins.shape)  # type: ignore[attr-defined]
    assert found is not None, str(ins)
    m, n, k = map(int, found.groups())

    def measure(s: Strand, mask: Array | None, numbers: Numbers) -> None:
        numbers.matrices = len(s) // ins.lanes
        numbers.multiply_adds = numbers.matrices * m * n * k
        numbers.picture = tile(s)

    return measure


def _tile_of(
    ins: Instruction, statement: Statement, function: Function
) -> Callable[[Strand], Rows | None]:
    """The tile of B that a wgmma reads through its descriptor, and how it lies in memory; the same
    for every execution in which it lies alike."""
    if not isinstance(ins, MatrixInstruction) or not ins.is_wgmma:
        return lambda s: None
    find, trans = reader(statement.operands["b"], "b64", function), statement.operands.get(
        "imm_trans_b")  # fmt: skip
    major = "mn" if isinstance(trans, Constant) and trans.word else "k"
    width = ins.b_place.width
    tile = TileShape(ins.n, ins.k * min(8, width) // 8, max(1, width // 8), major)

    @lru_cache(maxsize=1)
    def lies(word: int) -> Rows:
        return rows_of("B of wgmma", Descriptor.decode(word), tile)

    return lambda s: lies(int(find(s)[0]))


def _rows(ins: Movement, statement: Statement, function: Function) -> Measure:
    """ldmatrix and stmatrix: eight rows of 16 bytes go together, which lanes in turn address."""
    find = addresses(statement.operands["p"], function)

    def measure(s: Strand, mask: Array | None, numbers: Numbers) -> None:
        used = s.lanes % WARP < ins.rows
        given = np.broadcast_to(find(s), s.lanes.shape) & _INSIDE
        _add_banks(numbers, s.lanes[used], given[used], ROW_BYTES)

    return measure


def _in_space(space: str, place: Bound, size: int, function: Function) -> Measure | None:
    if space not in ("global", "shared", "cluster", ""):
        return None
    find = addresses(place, function)

    def measure(s: Strand, mask: Array | None, numbers: Numbers) -> None:
        lanes, given = _of_lanes(s, mask, find(s))
        if space == "global":
            _add_sectors(numbers, lanes, given, size)
        elif space:
            _add_banks(numbers, lanes, given, size)
        else:
            window = given >> np.uint64(WINDOW_BITS)
            shared, local = (window == x >> WINDOW_BITS for x in (SHARED, LOCAL))
            _add_banks(numbers, lanes[shared], given[shared] & _INSIDE, size)
            elsewhere = ~(shared | local)
            _add_sectors(numbers, lanes[elsewhere], given[elsewhere], size)

    return measure


def _copies(statement: Statement, function: Function) -> Measure:
    """cp.async: reads sectors of global memory and writes shared memory as a store does."""
    to = addresses(statement.operands["dst"], function)
    from_ = addresses(statement.operands["src"], function)
    size, given = constant(statement, "size"), statement.operands.get("source_size")
    used = reader(given, "u32", function) if given is not None else None
    left_out = statement.operands.get("ignore")
    ignored = reader(left_out, "pred", function) if left_out is not None else None

    def measure(s: Strand, mask: Array | None, numbers: Numbers) -> None:
        lanes, places = _of_lanes(s, mask, to(s))
        _add_banks(numbers, lanes, places & _INSIDE, size)
        _, sources = _of_lanes(s, mask, from_(s))
        if used is not None:
            read = _of_lanes(s, mask, used(s))[1] > 0
            lanes, sources = lanes[read], sources[read]
        if ignored is not None:
            read = ~_of_lanes(s, mask, ignored(s))[1]
            lanes, sources = lanes[read], sources[read]
        _add_sectors(numbers, lanes, sources, size)

    return measure


def _of_lanes(s: Strand, mask: Array | None, words: Array) -> tuple[Int64, Array]:
    lanes = s.lanes if mask is None else s.lanes[mask]
    return lanes, np.broadcast_to(selected(words, mask), lanes.shape)


# --- banks and sectors ----------------------------------------------------------------------------


def _add_banks(numbers: Numbers, lanes: Int64, given: Array, size: int) -> None:
    if lanes.size:
        part, passes = passes_of_parts(lanes, given, size)
        numbers.passes += int(passes.sum())
        numbers.least_passes += len(passes)
        warp = lanes[part == passes.argmax()][0] // WARP
        mine = lanes // WARP == warp
        addresses = given[mine].astype(np.int64).tolist()
        numbers.picture = Banks(tuple((lanes[mine] % WARP).tolist()), tuple(addresses), size)


def passes_of_parts(lanes: Int64, given: Array, size: int) -> tuple[Int64, Int64]:
    """The part of a warp that each lane goes with, and the passes over shared memory of each part,
    for accesses of ascending `lanes`; the least is one each.

    A warp goes as a whole, with accesses of 8 bytes in halves and of 16 in quarters. A pass takes
    one word of 4 bytes from each bank; lanes that want the same word get it together.
    """
    words = max(1, size // BANK)
    part = lanes // (WARP // words)
    number = np.cumsum(np.diff(part, prepend=part[0]) != 0)
    held = (given.astype(np.int64) // BANK)[:, None] + np.arange(words)
    keys = np.unique((number[:, None] << 32) + held)
    parts = int(number[-1]) + 1
    in_bank = np.bincount((keys >> 32) * BANKS + keys % BANKS, minlength=parts * BANKS)
    return number, in_bank.reshape(parts, BANKS).max(1)


def _add_sectors(numbers: Numbers, lanes: Int64, given: Array, size: int) -> None:
    if lanes.size:
        sectors, least = sectors_of(lanes, given, size)
        numbers.sectors += sectors
        numbers.least_sectors += least


def sectors_of(lanes: Int64, given: Array, size: int) -> tuple[int, int]:
    """Sectors of global memory that the accesses of each warp touch, and the least number that
    would hold as many bytes; lanes that want the same bytes get them together."""
    # Beyond the bits of an address nothing lies: the access itself is refused.
    warps, at = lanes // WARP << 44, given.astype(np.int64) & (1 << ADDRESS_BITS) - 1
    sectors = np.unique(warps + at // SECTOR)
    accesses = np.unique((lanes // WARP << ADDRESS_BITS) + at)
    bytes_ = np.bincount(accesses >> ADDRESS_BITS) * size
    return len(sectors), int((-(-bytes_ // SECTOR)).sum())
