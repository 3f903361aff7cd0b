"""Statements of wgmma: products of one warpgroup on shared memory, and the waits for them.

They take effect at their issue, or later, as `emulator.machine.shared.products` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from emulator.isa.matrix import MatrixInstruction
from emulator.machine.reference.fragments import Fetch, Registers, Threads
from emulator.machine.reference.operands import guard_of
from emulator.machine.reference.thread import WARPGROUP, Frame, Together
from emulator.machine.shared.products import ORDER, Due, OnProducts, PendingProduct, poison
from emulator.memory.space import Space
from emulator.ptx.program import Function, Statement
from emulator.warp import multiply
from emulator.warp.call import Call

# --- wgmma.mma_async ------------------------------------------------------------------------------


@dataclass(eq=False)
class _Issued(PendingProduct):
    """A product of threads, in a call of theirs."""

    instruction: MatrixInstruction
    threads: Threads
    frames: list[Frame]
    #: A, where it lies in registers
    a: Registers | None
    result: Registers


def multiplication(statement: Statement, function: Function) -> Together:
    ins = statement.instruction
    assert isinstance(ins, MatrixInstruction)
    fetch = Fetch(statement, function)
    pattern = poison(ins)

    def run(threads: Threads) -> None:
        operands, options = fetch(threads)
        call, cluster = _call(threads, ins, operands, options), threads[0].cluster
        if cluster.pending.at_once:
            fetch.result.write(threads, multiply.run(call))
            return
        multiply.check(call)
        a = fetch.vectors.get("a")
        if a is not None:
            del operands["a"]
        cluster.products.issue(
            _Issued(
                [threads[0].warpgroup_in_grid],
                len(threads[0].frames),
                fetch.result.indexes,
                operands.pop("d")[None],
                operands,
                options,
                ins,
                threads,
                [thread.frames[-1] for thread in threads],
                a,
                fetch.result,
            )
        )
        words = np.full((len(threads), len(fetch.result.writes)), pattern, np.uint32)
        fetch.result.write(threads, words)
        _by_chance(threads)

    return Together(WARPGROUP, run, guard=guard_of(statement.guard), whole=str(ins))


def _call(
    threads: Threads, ins: MatrixInstruction, operands: dict[str, Any], options: dict[str, Any]
) -> Call:
    block = threads[0].block
    options = options | {"shared": Space("shared memory", block.shared)}
    engine, target = block.run.arithmetic, block.run.target
    return Call(ins, operands, options, target, engine, "hardware")


def _finish(threads: Threads, due: Iterable[Due]) -> None:
    """Computes what takes effect now."""
    products = threads[0].cluster.products
    for product, which in due:
        with _in_frames(product.threads, product.frames):
            operands = product.operands | {"d": product.accumulator[0]}
            if product.a is not None:
                operands["a"] = product.a.read(product.threads)
            sums = multiply.run(
                _call(product.threads, product.instruction, operands, product.options)
            )
            if products.hand_on(Due(product, which), sums[None]).all():
                product.result.write(product.threads, sums)


@contextmanager
def _in_frames(threads: Threads, frames: list[Frame]) -> Iterator[None]:
    """The registers of threads are those of a call that they are in, maybe not of the innermost."""
    held = [thread.registers for thread in threads]
    for thread, frame in zip(threads, frames, strict=True):
        thread.registers = frame.registers
    try:
        yield
    finally:
        for thread, registers in zip(threads, held, strict=True):
            thread.registers = registers


def _by_chance(threads: Threads) -> None:
    _finish(threads, threads[0].cluster.products.by_chance([threads[0].warpgroup_in_grid]))


# --- fence, commit, wait --------------------------------------------------------------------------


def _in_order(
    make: Callable[[Statement], OnProducts], statement: Statement, function: Function
) -> Together:
    """The step of a warpgroup that commits its products, or waits for them."""
    act = make(statement)

    def step(threads: Threads) -> None:
        first = threads[0]
        if not first.cluster.pending.at_once:
            _finish(threads, act(first.cluster.products, [first.warpgroup_in_grid]))
            _by_chance(threads)

    return Together(WARPGROUP, step, guard=guard_of(statement.guard))


TOGETHER = {name: partial(_in_order, make) for name, make in ORDER.items()}
