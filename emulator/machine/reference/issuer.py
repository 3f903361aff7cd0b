"""Reference engine: one thread or warp, as the statements of `machine.shared` ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_reference
from emulator.arith.scalar.types import TYPES
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.layout.lanemap import WARP
from emulator.machine.reference import mbarriers, memory
from emulator.machine.reference.compute import ThreadStep, guarded
from emulator.machine.reference.fragments import Threads, same
from emulator.machine.reference.mbarriers import barrier_at, change, initialise, words_of
from emulator.machine.reference.operands import Read, Write, addresses, guard_of, reader, writer
from emulator.machine.reference.schedule import placed
from emulator.machine.reference.thread import Next, Thread, Together
from emulator.machine.shared.control import FlowContext
from emulator.machine.shared.issuing import (
    Combine,
    LaneOperands,
    Make,
    MakeAtOnce,
    OperandList,
    Operands,
    Places,
    Span,
    W,
    Wanted,
    Watch,
)
from emulator.machine.shared.issuing import Write as SharedWrite
from emulator.machine.shared.launching import RunningLaunch
from emulator.machine.shared.operands import Words
from emulator.machine.shared.pending import POISON
from emulator.machine.shared.phases import PhaseWait
from emulator.machine.shared.place import Index
from emulator.machine.shared.waiting import State
from emulator.memory.mbarrier import Barrier, Change
from emulator.memory.multicast import OfDevices
from emulator.memory.tensor_memory import TensorMemory
from emulator.ptx.program import Function, Statement
from emulator.warp.call import Undefined


class Issuer:
    """One thread that executes a statement, with readers and writers of the operands that it asks
    for: an `Issuer` and an `Executor` of `machine.shared.issuing`."""

    undefined: Undefined = "hardware"
    watch: Watch | None = None

    def __init__(self, thread: Thread, reads: list[Read], writes: Sequence[Write] = ()) -> None:
        warp = thread.warp
        block = warp.block
        run, cluster = block.run, block.cluster
        self.thread, self.reads, self.writes = thread, reads, writes
        self.pending, self.arena, self.pairs = cluster.pending, run.arena, cluster.pairs
        self.cluster_size = run.blocks_of_cluster
        self.lane, self.row = block.rank * run.lanes_of_block + thread.index, block.rank
        self.warp, self.program = warp.number, run.program
        self.cluster, self.shared_bytes = range(run.blocks_of_cluster), run.shared_bytes
        self.target, self.arithmetic = run.target, run.arithmetic

    def word(self, place: int) -> int:
        return self.reads[place](self.thread)

    def write(self, place: int, words: Words) -> None:
        word = words.item() if isinstance(words, np.ndarray) else words
        self.writes[place](self.thread, int(word))

    def spread(self, words: Words, dtype: type[np.unsignedinteger]) -> Array:
        return np.array([words], dtype)

    @property
    def lanes(self) -> Places:
        return np.array([self.lane])

    @property
    def launch(self) -> RunningLaunch:
        return self.thread.run.launch

    @property
    def coordinates(self) -> tuple[Index, Index]:
        return self.thread.block.index, self.thread.coordinates

    @property
    def ranks(self) -> int:
        return self.row

    def find(
        self, space: str, address: int, size: int, alignment: int, *, write: bool = False
    ) -> Span:
        held, start = memory.locate(self.thread, space, address, size, alignment, write=write)
        return Span(held, start, size)

    def load(self, space: str, addresses: Array, size: int, which: Places) -> Array:
        held = memory.find(self.thread, space, int(addresses[0]), size, size)
        return np.frombuffer(held, np.uint8)[None]

    def store(self, space: str, addresses: Array, raw: Array, which: Places, size: int) -> None:
        data, at = raw.tobytes(), int(addresses[0])
        held = memory.find(self.thread, space, at, len(data), len(data), write=True)
        memory.put(self.thread, held, data)

    def update(self, addresses: Array, ins: OrdinaryInstruction, raw: Array, which: Places) -> None:
        type_, rule = TYPES[ins.types[-1]], bind_reference(ins, space="global")
        change = memory.by_elements(rule, type_.size, raw.view(type_.dtype).tolist())
        memory.update(self.thread, "global", int(addresses[0]), raw.shape[1], change)

    def copy(self, to: Words, source: Words, sizes: Words, size: int) -> None:
        thread, at, count = self.thread, int(source), int(sizes)
        place = memory.find(thread, "shared", int(to), size, size, write=True)
        if count:
            memory.find(thread, "global", at, count, size if count == size else 1)

        def perform(which: object) -> None:
            data = memory.find(thread, "global", at, count, 1) if count else b""
            memory.put(thread, place, bytes(data) + bytes(size - count))

        if not self.pending.at_once:
            place[:] = bytes([POISON]) * size
        self.pending.copy(self.lanes, perform)

    def of_devices(self, addresses: Array, size: int) -> Iterator[OfDevices]:
        return self.arena.of_devices(addresses, size)

    @property
    def stack_top(self) -> int:
        return self.thread.frames[-1].top

    def set_stack(self, end: int) -> None:
        self.thread.frames[-1].stack = end

    def need_local(self, size: int) -> None:
        self.thread.need_local(size)

    def change(self, barrier: int, by: Change) -> None:
        change(self.thread, barrier, by)

    def change_barriers(self, barriers: Words, by: Change) -> int:
        return change(self.thread, int(barriers), by)

    def barrier_words(self, barriers: Words) -> int:
        words, place = words_of(self.thread, int(barriers))
        return int(words[place])

    # --- waiting ---

    def wait_for(self, wait: PhaseWait, over: Words, write: SharedWrite) -> None:
        writes = self.writes
        if over:
            write(self, 1)
        else:
            mbarriers.wait(
                self.thread, wait, lambda thread, done: write(Issuer(thread, [], writes), done)
            )

    def put_barriers(self, barriers: Words, counts: Words, layout: int) -> None:
        initialise(self.thread, int(barriers), Barrier.init(int(counts), layout))

    def shared(self, row: int) -> Array:
        return self.thread.cluster.blocks[row].shared

    def tensor(self, row: int) -> TensorMemory:
        block = self.thread.cluster.blocks[row]
        if block.tensor is None:
            block.tensor = TensorMemory(self.target.tensor_columns)
        return block.tensor

    def advance(self) -> None:
        self.thread.run.progress += 1
        self.thread.run.changes += 1

    def take_cluster(self) -> tuple[int, int, int] | None:
        run = self.thread.run
        found = next(run.coming, None)
        if found is not None:
            run.launch.blocks_done(run.blocks_of_cluster)
        return found

    def wake_allocators(self) -> None:
        for thread in self.thread.block.threads:
            if thread.state is State.TENSOR:
                thread.goes_on()

    def located(self, error: Exception, statement: Statement) -> Exception:
        return placed(error, [self.thread], statement)


def readers(operands: OperandList[W]) -> list[Read]:
    """The readers of the operands that a statement asks for."""
    return [_reader(wanted) for wanted in operands.wanted]


def _reader(wanted: Wanted) -> Read:
    if wanted.kind in ("word", "number"):
        return reader(wanted.bound, wanted.detail)
    find = addresses(wanted.bound)
    return find if wanted.kind == "address" else barrier_at(find, wanted.detail)


def combination(operation: Any, **given: str) -> Combine:
    """A reduction of arrays of words, which applies the rule on integers to one after the other."""
    rule = bind_reference(operation, **given)

    def combine(*words: Array) -> Array:
        each = zip(*(x.tolist() for x in words), strict=True)
        return np.array([rule(*given) for given in each], words[0].dtype)

    return combine


#: a statement that all engines share, of an `Issuer` or an `Executor`
_Make = Callable[[OperandList[W]], Callable[[Issuer], None]]


def _by_thread(make: _Make[W], statement: Statement, function: Function) -> ThreadStep:
    """The step of single threads, from a statement that all engines share."""
    operands = OperandList[W](statement, combination)
    run = make(operands)
    reads = readers(operands)
    writes = [writer(bound, type_, function) for bound, type_ in operands.results]
    return guarded(statement, lambda thread: run(Issuer(thread, reads, writes)))


def _may_wait(make: MakeAtOnce, place: FlowContext) -> Next:
    """The step of a thread that waits behind a statement, or goes on."""
    operands = LaneOperands(place.statement, combination)
    run = make(operands)
    reads = readers(operands)
    writes = [writer(bound, type_, place.function) for bound, type_ in operands.results]

    def step(thread: Thread) -> int | None:
        thread.pc = place.statement.pc
        run(Issuer(thread, reads, writes))
        return place.following if thread.state is State.READY else None

    return step


def waiting(makes: Mapping[str, MakeAtOnce]) -> dict[str, Callable[[FlowContext], Next]]:
    """`_may_wait` of a table of statements."""
    return {name: partial(_may_wait, make) for name, make in makes.items()}


def each(makes: Mapping[str, _Make[W]]) -> dict[str, Callable[[Statement, Function], ThreadStep]]:
    """`_by_thread` of a table of statements."""
    return {name: partial(_by_thread, make) for name, make in makes.items()}


def by_warp(
    statement: Statement, operands: Operands, run: Callable[[Issuer, Threads], None], whole: str
) -> Together:
    """The step of warps, each issued by its first thread; `whole` as in `Together`."""
    reads = list(zip(operands.wanted, readers(operands), strict=True))

    def together(threads: Threads) -> None:
        words = [
            same(threads, read, wanted.name) if wanted.same else read(threads[0])
            for wanted, read in reads
        ]
        run(Issuer(threads[0], [partial(_given, word) for word in words]), threads)

    return Together(WARP, together, guard=guard_of(statement.guard), whole=whole)


def _given(word: int, thread: Thread) -> int:
    return word


def together(makes: Mapping[str, Make]) -> dict[str, Callable[[Statement, Function], Together]]:
    """The steps of warps for a table of statements."""

    def made(make: Make, statement: Statement, function: Function) -> Together:
        operands = Operands(statement, combination)
        run = make(operands)
        return by_warp(statement, operands, lambda who, threads: run(who), "")

    return {name: partial(made, make) for name, make in makes.items()}
