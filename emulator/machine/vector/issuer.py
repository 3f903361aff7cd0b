"""Vector engine: single lanes and warps, as the statements of `machine.shared` ask for them, an
`Issuer` for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_vector
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Make, OperandList, Operands, Span, W, Wanted
from emulator.machine.shared.launching import RunningLaunch
from emulator.machine.shared.place import Index
from emulator.machine.shared.waiting import State
from emulator.machine.vector import memory
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.fragments import one_for_all
from emulator.machine.vector.lanes import together, whole_or_split
from emulator.machine.vector.mbarriers import barriers_at, by_position, change
from emulator.machine.vector.operands import addresses, reader
from emulator.machine.vector.strand import WARP, Lanes, Strand
from emulator.memory.arena import AccessError
from emulator.memory.mbarrier import Change
from emulator.memory.multicast import OfDevices
from emulator.memory.tensor_memory import TensorMemory
from emulator.ptx.program import Function, Statement

#: the words of an operand, for the lanes of a mask at least
Read = Callable[[Strand, Array | None], Array]


class Issuer:
    """One lane of a strand, with the words of the operands that its statement asks for."""

    def __init__(
        self,
        strand: Strand,
        position: int,
        words: Sequence[Array],
        index: int | None = None,
        alike: Lanes | None = None,
    ) -> None:
        wave, grid = strand.wave, strand.wave.grid
        self.strand, self.wave, self.lane = strand, wave, int(strand.lanes[position])
        self.lanes = strand.lanes[position : position + 1] if alike is None else alike
        #: words of its operands, each one for all, or at an index: its position in the strand
        self.words, self.index = words, position if index is None else index
        self.row, thread = divmod(self.lane, wave.lanes_per_cta)
        first = self.row // wave.cluster_size * wave.cluster_size
        self.cluster, self.warp = range(first, first + wave.cluster_size), thread // WARP
        self.pending, self.pairs, self.watch = wave.pending, wave.pairs, wave.watch
        self.shared_bytes, self.program, self.target = wave.shared_bytes, grid.program, grid.target
        self.arithmetic, self.undefined = grid.arithmetic, grid.undefined

    def word(self, place: int) -> int:
        return word_at(self.words[place], self.index)

    @property
    def launch(self) -> RunningLaunch:
        return self.wave.launch

    @property
    def coordinates(self) -> tuple[Index, Index]:
        return self.wave.coordinates(self.lane)

    def find(
        self, space: str, address: int, size: int, alignment: int, *, write: bool = False
    ) -> Span:
        who = memory.Who(self.wave, self.lanes, np.array([self.row]))
        given = np.array([address], np.uint64)
        held, start = memory.bytes_at(who, space, given, size, alignment=alignment, write=write)
        return Span(lambda: held, int(start[0]), size)

    def of_devices(self, addresses: Array, size: int) -> Iterator[OfDevices]:
        return self.wave.grid.arena.of_devices(addresses, size)

    def change(self, barrier: int, by: Change) -> None:
        change(self.wave, np.array([barrier]), by)

    def shared(self, row: int) -> Array:
        return self.wave.shared[row, : self.wave.shared_limit]

    def tensor(self, row: int) -> TensorMemory:
        tensor = self.wave.tensor
        if row not in tensor:
            tensor[row] = TensorMemory(self.target.tensor_columns)
        return tensor[row]

    def advance(self) -> None:
        self.wave.grid.progress += 1

    def take_cluster(self) -> tuple[int, int, int] | None:
        return self.wave.grid.cancel()

    def wake_allocators(self) -> None:
        for strand in list(self.wave.waiting):
            if strand.state is State.TENSOR:
                self.wave.wake(strand)

    def located(self, error: Exception, statement: Statement) -> Exception:
        return self.wave.grid.placed(error, self.strand, statement)


def word_at(words: Array, i: int) -> int:
    """The word of the lane at a position; one word may stand for all. Those
    of 128 bits are in pairs."""
    word = words[i if len(words) > 1 else 0]
    return int(word) if words.ndim == 1 else int.from_bytes(word.tobytes(), "little")


@contextmanager
def of_lane(i: int) -> Iterator[None]:
    """Attributes errors inside to the lane at a position in the strand."""
    try:
        yield
    except AccessError as error:
        raise AccessError(replace(error.fault, index=i)) from None
    except Failure as failure:
        raise Failure(failure.kind, failure.reason, i, concerns=failure.concerns) from None


# --- statements -----------------------------------------------------------------------------------


def readers(operands: OperandList[W], function: Function) -> list[Read]:
    """The readers of the operands that a statement asks for."""
    return [_reader(wanted, function) for wanted in operands.wanted]


def _reader(wanted: Wanted, function: Function) -> Read:
    if wanted.kind == "word":
        word = reader(wanted.bound, wanted.detail, function)
        return lambda s, mask: word(s)
    if wanted.kind == "number":
        number = reader(wanted.bound, wanted.detail, function)
        return lambda s, mask: number(s).astype(np.int64)
    find = addresses(wanted.bound, function)
    if wanted.kind == "address":
        return lambda s, mask: find(s)
    return partial(by_position, barriers_at(find, wanted.detail))


def by_lane(
    make: Make,
    statement: Statement,
    function: Function,
    before: Callable[[Strand, Array | None], None] | None = None,
) -> Step:
    """The step of single lanes, from a statement that all engines share; `before` runs first."""
    operands = Operands(statement, bind_vector)
    run = make(operands)
    reads = readers(operands, function)

    def under(s: Strand, mask: Array | None) -> None:
        if before is not None:
            before(s, mask)
        words = [read(s, mask) for read in reads]
        for i in range(len(s)) if mask is None else np.flatnonzero(mask).tolist():
            with of_lane(i):
                run(Issuer(s, i, words))

    return guarded(statement, under)


def each(makes: Mapping[str, Make]) -> dict[str, Callable[[Statement, Function], Step]]:
    """`by_lane` of a table of statements."""
    return {name: partial(by_lane, make) for name, make in makes.items()}


def warps_of(operands: Operands, function: Function) -> Callable[[Strand], list[Issuer]]:
    """The warps of a strand, with the operands that they ask for."""
    reads = list(zip(operands.wanted, readers(operands, function), strict=True))

    def warps(s: Strand) -> list[Issuer]:
        starts = s.wave.warps_of(s).starts
        words = []
        for wanted, read in reads:
            held = read(s, None)
            if wanted.same:
                held = one_for_all(held, WARP, wanted.name)
            elif len(held) > 1:
                held = held[starts]
            words.append(held)
        return [Issuer(s, start, words, i) for i, start in enumerate(starts.tolist())]

    return warps


def _by_warp(make: Make, statement: Statement, function: Function) -> Step:
    """The step of warps, each issued by its first lane."""
    operands = Operands(statement, bind_vector)
    run = make(operands)
    warps = warps_of(operands, function)

    def step(s: Strand) -> None:
        together(s, statement.pc)
        for who in warps(s):
            with of_lane(int(np.searchsorted(s.lanes, who.lane))):
                run(who)

    return whole_or_split(statement, step)


def by_warps(makes: Mapping[str, Make]) -> dict[str, Callable[[Statement, Function], Step]]:
    """The steps of warps for a table of statements."""
    return {name: partial(_by_warp, make) for name, make in makes.items()}
