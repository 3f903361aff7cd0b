"""Asynchronous statements of one thread, as `emulator.machine.shared.issuing` asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_reference
from emulator.machine.reference import memory
from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.fragments import Threads, same
from emulator.machine.reference.mbarriers import barrier_at, change
from emulator.machine.reference.operands import Read, addresses, guard_of, reader
from emulator.machine.reference.schedule import placed
from emulator.machine.reference.thread import WARP, State, Thread, Together
from emulator.machine.shared.issuing import Combine, Make, Operands, Place, Wanted, Watch
from emulator.memory.mbarrier import Change
from emulator.memory.tensor_memory import TensorMemory
from emulator.ptx.program import Function, Statement
from emulator.warp.call import Undefined


class Issuer:
    """One thread that executes a statement, with the readers of the operands that it asks for."""

    undefined: Undefined = "hardware"
    watch: Watch | None = None

    def __init__(self, thread: Thread, reads: list[Read]) -> None:
        self.thread, self.reads = thread, reads
        self.pending = thread.cluster.pending
        self.lane, self.row = thread.number, thread.block.rank
        self.lanes = np.array([self.lane])
        self.warp = thread.warp.number
        self.pairs, self.program = thread.cluster.pairs, thread.run.program
        self.cluster = range(thread.run.blocks_of_cluster)
        self.shared_bytes = thread.run.shared_bytes
        self.target, self.arithmetic = thread.run.target, thread.run.arithmetic

    def word(self, place: int) -> int:
        return self.reads[place](self.thread)

    def find(
        self, space: str, address: int, size: int, alignment: int, *, write: bool = False
    ) -> Place:
        held, start = memory.locate(self.thread, space, address, size, alignment, write=write)
        return Place(held, start, size)

    def change(self, barrier: int, by: Change) -> None:
        change(self.thread, barrier, by)

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


def readers(operands: Operands) -> list[Read]:
    """The readers of the operands that a statement asks for."""
    return [_reader(wanted) for wanted in operands.wanted]


def _reader(wanted: Wanted) -> Read:
    if wanted.kind == "word":
        return reader(wanted.bound, wanted.detail)
    find = addresses(wanted.bound)
    return find if wanted.kind == "address" else barrier_at(find, wanted.detail)


def combination(operation: Any, **given: str) -> Combine:
    """A reduction of arrays of words, which applies the rule on integers to one after the other."""
    rule = bind_reference(operation, **given)

    def combine(held: Array, words: Array) -> Array:
        pairs = zip(held.tolist(), words.tolist(), strict=True)
        return np.array([rule(old, new) for old, new in pairs], held.dtype)

    return combine


def by_thread(make: Make) -> Callable[[Statement, Function], Run]:
    """Makes the steps of single threads from a statement that all engines share."""

    def made(statement: Statement, function: Function) -> Run:
        operands = Operands(statement, combination)
        run = make(operands)
        reads = readers(operands)
        return guarded(statement, lambda thread: run(Issuer(thread, reads)))

    return made


def each(makes: Mapping[str, Make]) -> dict[str, Callable[[Statement, Function], Run]]:
    """`by_thread` of a table of statements."""
    return {name: by_thread(make) for name, make in makes.items()}


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
