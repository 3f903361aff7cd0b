"""Vector engine: barriers, and statements that warps execute together for their order (PTX ISA
9.7.13)."""

from __future__ import annotations

import numpy as np

from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.operands import ordinary
from emulator.machine.vector.barriers import check_barrier
from emulator.machine.vector.compute import Step
from emulator.machine.vector.lanes import check_members, together, whole_or_split
from emulator.machine.vector.operands import first_position, reader, writer
from emulator.machine.vector.strand import Parked, Strand
from emulator.ptx.program import Constant, Function, Statement

#: the number of threads of a barrier that is for all
_NO_COUNT = np.zeros(1, np.uint32)

# --- bar, barrier ---------------------------------------------------------------------------------


def barrier(statement: Statement, function: Function) -> Step:
    """bar.sync, .arrive and .red, aligned or not."""
    ins = ordinary(statement)
    words = str(ins).split(".")
    number = reader(statement.operands["a"], "u32", function)
    given = statement.operands.get("b")
    threads = reader(given, "u32", function) if given is not None else None
    pc, waits = statement.pc + 1, "arrive" not in words
    vote = reader(statement.operands["c"], "pred", function) if "c" in statement.operands else None
    result = _reduction(statement, function, ins) if vote is not None else None

    def one(s: Strand) -> None:
        count = 0 if threads is None else int(threads(s)[0])
        votes = None if vote is None else s.spread(vote(s))
        s.wave.barriers.arrive(
            s, int(number(s)[0]), count, pc, waits=waits, vote=votes, finish=result
        )

    def arrive(s: Strand) -> None:
        numbers, counts = number(s), _NO_COUNT if threads is None else threads(s)
        check_barrier(numbers, counts)
        keys = numbers + (counts << np.uint32(8))
        if (keys == keys[0]).all():
            one(s)
            return
        for key in np.unique(keys).tolist():
            part = s.part(keys == key, pc)
            try:
                one(part)
            except Parked:
                continue
            except Failure as error:
                raise Failure(error.kind, error.reason, first_position(keys == key, None)) from None
            s.wave.ready.append(part)
        raise Parked

    return whole_or_split(statement, arrive)


def _reduction(statement: Statement, function: Function, ins: OrdinaryInstruction):  # type: ignore[no-untyped-def]
    """Writes the result of bar.red in each thread: `votes` are (how many voted, how many voted
    true)."""
    operation = ins.modifiers["operation"]
    if operation == "popc":
        count = writer(statement.operands["d"], "u32", function)
        return lambda s, votes: count(s, votes[:, 1].astype(np.uint32), None)
    write = writer(statement.operands["p"], "pred", function)
    if operation == "and":
        return lambda s, votes: write(s, votes[:, 1] == votes[:, 0], None)
    return lambda s, votes: write(s, votes[:, 1] > 0, None)


def warp_barrier(statement: Statement, function: Function) -> Step:
    """bar.warp.sync: lanes of the membermask wait for each other."""
    mask = reader(statement.operands["membermask"], "u32", function)

    def step(s: Strand) -> None:
        masks = mask(s)
        check_members(s, masks)
        together(s, statement.pc, masks)

    return whole_or_split(statement, step)


# --- clusters -------------------------------------------------------------------------------------


def cluster_arrive(statement: Statement, function: Function) -> Step:
    return whole_or_split(statement, lambda s: s.wave.clusters.arrive(s))


def cluster_wait(statement: Statement, function: Function) -> Step:
    pc = statement.pc + 1
    return whole_or_split(statement, lambda s: s.wave.clusters.wait(s, pc))


# --- registers of a warp --------------------------------------------------------------------------


def registers_of_warp(statement: Statement, function: Function) -> Step:
    """setmaxnreg: the number of registers is legal, and has no effect on values."""
    count = statement.operands["count"]
    assert isinstance(count, Constant)
    return whole_or_split(statement, lambda s: together(s, statement.pc))


STEPS = {
    "bar": barrier,
    "barrier": barrier,
    "bar.warp.sync": warp_barrier,
    "barrier.cluster.arrive": cluster_arrive,
    "barrier.cluster.wait": cluster_wait,
    "setmaxnreg": registers_of_warp,
}
