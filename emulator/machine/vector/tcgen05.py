"""Vector engine: statements of tcgen05 that warps execute, all warps of a strand at once (PTX ISA
9.7.16)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_vector
from emulator.machine.shared import tcgen05, tensor_order
from emulator.machine.shared.issuing import Make, Operands
from emulator.machine.shared.tensor_order import Load
from emulator.machine.vector.compute import Step
from emulator.machine.vector.fragments import Registers, whole
from emulator.machine.vector.issuer import Issuer, by_lane, warps_of
from emulator.machine.vector.lanes import together, whole_or_split
from emulator.machine.vector.strand import WARP, Parked, State, Strand
from emulator.ptx.program import Function, Statement


def _by_thread(make: Make, statement: Statement, function: Function) -> Step:
    """A step that each thread issues by itself."""
    return by_lane(make, statement, function, _tell)


def _tell(s: Strand, mask: Array | None) -> None:
    """The checks are told which threads issue an operation."""
    if s.wave.watch is not None:
        s.wave.watch.tensor_cores.issued(s.lanes if mask is None else s.lanes[mask])


def _by_warps(statement: Statement, run: Callable[[Strand], None]) -> Step:
    """`run` for whole warps."""

    def step(s: Strand) -> None:
        together(s, statement.pc)
        whole(s, WARP, statement.instruction)
        s.wave.grid.progress += 1
        run(s)

    return whole_or_split(statement, step)


# --- allocation -----------------------------------------------------------------------------------


def _allocation(
    make: Callable[[Operands], tcgen05.Attempt], statement: Statement, function: Function
) -> Step:
    """Warps wait for one of the other block of their pair each, then for columns."""
    operands = Operands(statement, bind_vector)
    attempt = make(operands)
    warps = warps_of(operands, function)

    def run(s: Strand) -> None:
        every = warps(s)
        for who in every:
            tcgen05.arrives(who, statement)
        met = [tcgen05.is_met(who, statement) for who in every]
        _wake_pairs(s)
        if not all(met):
            _wait(s, met, State.PAIR, statement.pc, statement.pc)
        done = []
        for who in every:
            done.append(attempt(who))
            if done[-1]:
                who.pairs.leave(who.lane)
        if not all(done):
            _wait(s, done, State.TENSOR, statement.pc, statement.pc + 1)

    return _by_warps(statement, run)


def _wake_pairs(s: Strand) -> None:
    """Strands that wait for their pairs look again, if any of these has come."""
    statements = s.wave.grid.program.statements
    for other in [x for x in s.wave.waiting if x.state is State.PAIR]:
        warps = [Issuer(other, i, ()) for i in range(0, len(other), WARP)]
        if any(tcgen05.is_met(who, statements[other.pc]) for who in warps):
            s.wave.wake(other)


def _wait(s: Strand, goes_on: list[bool], state: State, pc: int, following: int) -> None:
    """Warps that cannot go on come to the statement again."""
    s.wave.hold(s, np.repeat(~np.array(goes_on), WARP), state, None, pc, following)
    raise Parked


# --- ld, st, wait ---------------------------------------------------------------------------------


def load(statement: Statement, function: Function) -> Step:
    """ld: the registers of warps."""
    operands = Operands(statement, bind_vector)
    issue = tcgen05.TensorLoad(operands).issue
    written = tcgen05.written(statement)
    results = [Registers(x, statement.operands[x.name], function, WARP) for x in written]
    warps = warps_of(operands, function)

    def run(s: Strand) -> None:
        if loads := issue(warps(s), results):
            parts = zip(*(load.found for load in loads), strict=True)
            for result, words in zip(results, parts, strict=True):
                result.write(s, np.stack(words))

    return _by_warps(statement, run)


def store(statement: Statement, function: Function) -> Step:
    """st: the registers of warps to tensor memory."""
    operands = Operands(statement, bind_vector)
    run_one = tcgen05.store(operands)
    source = Registers(statement.signature["src"], statement.operands["src"], function, WARP)
    warps = warps_of(operands, function)

    def run(s: Strand) -> None:
        for who, words in zip(warps(s), source.read(s), strict=True):
            run_one(who, words)

    return _by_warps(statement, run)


def wait_for_loads(statement: Statement, function: Function) -> Step:
    """wait::ld: registers that warps have loaded."""
    return _by_warps(
        statement, lambda s: _put(s, tensor_order.arrived(s.wave.pending, s.lanes[::WARP].tolist()))
    )


def _put(s: Strand, loads: Iterable[Load]) -> None:
    """Loads give their warps the registers."""
    for load in loads:
        lanes = load.lane + np.arange(WARP)
        for result, words in zip(load.results, load.found, strict=True):
            result.write_lanes(s, lanes[None], words[None])


def wait_for_stores(statement: Statement, function: Function) -> Step:
    """wait::st: what warps have stored is in tensor memory."""
    return _by_warps(
        statement, lambda s: tensor_order.stored(s.wave.pending, s.lanes[::WARP].tolist())
    )


def fence(statement: Statement, function: Function) -> Step:
    """Nothing to do: operations keep their order."""
    return lambda s: None


STEPS: dict[str, Callable[[Statement, Function], Step]] = {
    **{name: partial(_by_thread, make) for name, make in tcgen05.EACH.items()},
    **{name: partial(_allocation, make) for name, make in tcgen05.ALLOCATIONS.items()},
    "tcgen05.ld": load,
    "tcgen05.st": store,
    "tcgen05.wait::ld": wait_for_loads,
    "tcgen05.wait::st": wait_for_stores,
    **dict.fromkeys(tcgen05.FENCES, fence),
}
