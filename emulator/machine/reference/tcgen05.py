"""Reference engine: statements of tcgen05 that warps execute, one warp after the other (PTX ISA
9.7.16)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from emulator.machine.reference.compute import ThreadStep
from emulator.machine.reference.fragments import Registers, Threads
from emulator.machine.reference.issuer import Issuer, by_warp, combination, each
from emulator.machine.reference.thread import State, Together
from emulator.machine.shared import tcgen05, tensor_order
from emulator.machine.shared.issuing import Operands
from emulator.machine.shared.tensor_order import Load
from emulator.ptx.program import Function, Statement


def _warps(
    statement: Statement, operands: Operands, run: Callable[[Issuer, Threads], None]
) -> Together:
    """Steps of whole warps."""

    def advance(who: Issuer, threads: Threads) -> None:
        who.advance()
        run(who, threads)

    return by_warp(statement, operands, advance, str(statement.instruction))


def _allocation(
    make: Callable[[Operands], tcgen05.Attempt], statement: Statement, function: Function
) -> Together:
    """A warp waits for one of the other block of its pair, then for columns."""
    operands = Operands(statement, combination)
    attempt = make(operands)

    def run(who: Issuer, threads: Threads) -> None:
        state = State.PAIR
        tcgen05.arrives(who, statement)
        if tcgen05.is_met(who, statement):
            if tcgen05.instruction(statement).cta_group > 1:
                _wake_peers(who)
            if attempt(who):
                who.pairs.leave(who.lane)
                return
            state = State.TENSOR
        for thread in threads:
            # It comes to the statement again.
            thread.stops(state, statement.pc)

    return _warps(statement, operands, run)


def _wake_peers(who: Issuer) -> None:
    """Warps of the other block look again whether one of this block has come."""
    for thread in who.thread.cluster.blocks[who.row ^ 1].threads:
        if thread.state is State.PAIR:
            thread.goes_on()


def load(statement: Statement, function: Function) -> Together:
    """ld: the registers of a warp."""
    operands = Operands(statement, combination)
    issue = tcgen05.TensorLoad(operands).issue
    written = tcgen05.written(statement)
    results = [Registers(x, statement.operands[x.name], function) for x in written]
    return _warps(statement, operands, lambda who, threads: _put(threads, issue([who], results)))


def _put(threads: Threads, loads: Iterable[Load]) -> None:
    """Loads give a warp its registers."""
    for load in loads:
        for result, words in zip(load.results, load.found, strict=True):
            result.write(threads, words)


def store(statement: Statement, function: Function) -> Together:
    """st: the registers of a warp to tensor memory."""
    operands = Operands(statement, combination)
    run = tcgen05.store(operands)
    source = Registers(statement.signature["src"], statement.operands["src"], function)
    return _warps(
        statement, operands, lambda who, threads: run(who, source.read(threads).astype(np.uint32))
    )


def wait_for_loads(statement: Statement, function: Function) -> Together:
    """wait::ld: registers that a warp has loaded."""
    return _warps(
        statement,
        Operands(statement, combination),
        lambda who, threads: _put(threads, tensor_order.arrived(who.pending, {who.lane})),
    )


def wait_for_stores(statement: Statement, function: Function) -> Together:
    """wait::st: what a warp has stored is in tensor memory."""
    return _warps(
        statement,
        Operands(statement, combination),
        lambda who, threads: tensor_order.stored(who.pending, {who.lane}),
    )


def fence(statement: Statement, function: Function) -> ThreadStep:
    """Nothing to do: operations keep their order."""
    return lambda thread: None


EACH: dict[str, Callable[[Statement, Function], ThreadStep]] = {
    **each(tcgen05.EACH),
    **dict.fromkeys(tcgen05.FENCES, fence),
}
TOGETHER: dict[str, Callable[[Statement, Function], Together]] = {
    **{name: partial(_allocation, make) for name, make in tcgen05.ALLOCATIONS.items()},
    "tcgen05.ld": load,
    "tcgen05.st": store,
    "tcgen05.wait::ld": wait_for_loads,
    "tcgen05.wait::st": wait_for_stores,
}
