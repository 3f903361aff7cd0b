"""Reference engine: wgmma of one warpgroup, as `machine.shared.wgmma` asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.lanemap import WARPGROUP
from emulator.machine.reference.fragments import Fetch, Registers, Threads
from emulator.machine.reference.operands import guard_of
from emulator.machine.reference.thread import Frame, Together
from emulator.machine.shared import wgmma
from emulator.machine.shared.products import Indexes, Terms
from emulator.memory.space import Space
from emulator.ptx.program import Function, Statement
from emulator.warp import multiply
from emulator.warp.call import Call


class _Home(NamedTuple):
    """The threads of a warpgroup, and the call that each is in."""

    threads: Threads
    frames: list[Frame]


class _Warpgroup:
    """The threads of one warpgroup: `Warpgroups` of `machine.shared.wgmma`."""

    def __init__(self, threads: Threads) -> None:
        first = threads[0]
        self.threads, self.pending = threads, first.cluster.pending
        self.products, self.depth = first.cluster.products, len(first.frames)
        self.numbers = [first.warpgroup_in_grid]
        self.home = _Home(threads, [thread.frames[-1] for thread in threads])

    def _call(self, terms: Terms) -> Call:
        block = self.threads[0].block
        options = terms.options | {"shared": Space("shared memory", block.shared)}
        engine, target = block.run.arithmetic, block.run.target
        return Call(terms.instruction, terms.operands, options, target, engine, "hardware")

    def check(self, terms: Terms) -> None:
        multiply.check(self._call(terms))

    def multiply(self, terms: Terms, home: _Home, *, heard: bool = False) -> Array:
        return multiply.run(self._call(terms))

    def write(self, registers: Registers, words: Array) -> None:
        registers.write(self.threads, words)

    def fill(self, registers: Registers, word: int) -> None:
        words = np.full((len(self.threads), len(registers.writes)), word, np.uint32)
        registers.write(self.threads, words)

    def some_of(self, home: _Home, which: Indexes) -> _Home:
        return home

    def read_of(self, registers: Registers, home: _Home, depth: int) -> Array:
        with _in_frames(home):
            return registers.read(home.threads)[None]

    def write_of(self, registers: Registers, home: _Home, depth: int, words: Array) -> None:
        with _in_frames(home):
            registers.write(home.threads, words)


@contextmanager
def _in_frames(home: _Home) -> Iterator[None]:
    """The registers of threads are those of a call that they are in, maybe not of the innermost."""
    held = [thread.registers for thread in home.threads]
    for thread, frame in zip(*home, strict=True):
        thread.registers = frame.registers
    try:
        yield
    finally:
        for thread, registers in zip(home.threads, held, strict=True):
            thread.registers = registers


def multiplication(statement: Statement, function: Function) -> Together:
    """wgmma.mma_async."""
    ins = statement.instruction
    assert isinstance(ins, MatrixInstruction)
    fetch = Fetch(statement, function)
    vectors = fetch.vectors.get("a"), fetch.result

    def run(threads: Threads) -> None:
        operands, options = (
            {name: x[None] if np.ndim(x) else x for name, x in given.items()}
            for given in fetch(threads)
        )
        wgmma.multiplication(_Warpgroup(threads), Terms(ins, operands, options), *vectors)

    return Together(WARPGROUP, run, guard=guard_of(statement.guard), whole=str(ins))


def _in_order(
    make: Callable[[Statement], wgmma.OnProducts], statement: Statement, function: Function
) -> Together:
    """The step of a warpgroup that commits its products, or waits for them."""
    act = make(statement)
    return Together(
        WARPGROUP,
        lambda threads: wgmma.in_order(_Warpgroup(threads), act),
        guard=guard_of(statement.guard),
    )


TOGETHER = {name: partial(_in_order, make) for name, make in wgmma.ORDER.items()}
