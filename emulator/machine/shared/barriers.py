"""All engines: statements at barriers of a thread block and of a cluster (PTX ISA 9.7.13.1,
9.7.13.4). `arrivals` counts who arrives; an engine lets threads wait."""

from __future__ import annotations

from emulator.machine.shared.issuing import (
    Arrival,
    Finish,
    LaneOperands,
    MakeMeeting,
    Meeting,
    RunMeeting,
)


def barrier(operands: LaneOperands) -> RunMeeting:
    """bar.sync, .arrive and .red, aligned or not."""
    number, count = operands.word("a", "u32"), operands.number("b", 0)
    vote = operands.word("c", "pred") if "c" in operands else None
    finish = None if vote is None else _reduction(operands)
    waits = "arrive" not in str(operands.ins).split(".")

    def run(who: Meeting) -> None:
        votes = None if vote is None else vote(who)
        who.arrive(Arrival(number(who), count(who), waits, votes, finish))

    return run


def _reduction(operands: LaneOperands) -> Finish:
    """Writes the result of bar.red."""
    operation, given = operands.modifier("operation"), operands.statement.operands
    if operation == "popc":
        count = operands.result(given["d"], "u32")
        return lambda who, voted, true: count(who, true)
    write = operands.result(given["p"], "pred")
    if operation == "and":
        return lambda who, voted, true: write(who, true == voted)
    return lambda who, voted, true: write(who, true > 0)


#: threads that execute it may wait behind it
MEETING: dict[str, MakeMeeting] = {
    "bar": barrier,
    "barrier": barrier,
    "barrier.cluster.arrive": lambda _: lambda who: who.arrive_in_cluster(),
    "barrier.cluster.wait": lambda _: lambda who: who.wait_in_cluster(),
}
