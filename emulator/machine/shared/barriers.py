"""All engines: statements at barriers of a thread block and of a cluster, and their errors (PTX ISA
9.7.13.1, 9.7.13.4). An engine counts who arrives, and lets threads wait."""

from __future__ import annotations

from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import (
    Arrival,
    Executor,
    Finish,
    LaneOperands,
    MakeAtOnce,
    RunAtOnce,
    Words,
)

#: barriers of a block
BARRIERS = 16
_WARP = 32


def is_wrong(number: Words, threads: Words) -> Words:
    """True where no barrier has the number, or none can count so many threads; also for arrays."""
    return (number >= BARRIERS) | (threads % _WARP != 0)


def wrong_barrier(number: int, threads: int, index: int | None = None) -> Failure:
    """There is no such barrier."""
    reason = f"a barrier counts threads in whole warps; got {threads}"
    if number >= BARRIERS:
        reason = f"there are barriers 0 to {BARRIERS - 1}; got {number}"
    return Failure("barrier", reason, index)


def other_count(number: int, threads: int, others: int, index: int | None = None) -> Failure:
    """Threads come to a barrier with another count than those that have arrived; 0: all."""
    return Failure(
        "barrier",
        f"barrier {number} is for {threads or 'all'} threads here, and for {others or 'all'} where "
        "others have arrived",
        index,
    )


def too_many(number: int, arrived: int, wanted: int) -> Failure:
    """More threads arrive at a barrier than it is for."""
    return Failure(
        "barrier", f"{arrived} threads arrived at barrier {number}, which is for {wanted}"
    )


def arrival_text(number: int, arrived: int, wanted: int) -> str:
    """Progress of a barrier, for messages."""
    return f"barrier {number}: {arrived} of {wanted} threads arrived"


def arrives_twice(index: int | None = None) -> Failure:
    """A thread arrives again at the barrier of its cluster."""
    reason = "barrier.cluster.arrive twice without a wait between them"
    return Failure("cluster barrier", reason, index)


def waits_early(index: int | None = None) -> Failure:
    """A thread waits at the barrier of its cluster and has not arrived."""
    return Failure("cluster barrier", "barrier.cluster.wait without an arrive before it", index)


# --- statements -----------------------------------------------------------------------------------


def barrier(operands: LaneOperands) -> RunAtOnce:
    """bar.sync, .arrive and .red, aligned or not."""
    number, count = operands.word("a", "u32"), operands.number("b", 0)
    vote = operands.word("c", "pred") if "c" in operands else None
    finish = None if vote is None else _reduction(operands)
    waits = "arrive" not in str(operands.ins).split(".")

    def run(who: Executor) -> None:
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
WAITING: dict[str, MakeAtOnce] = {
    "bar": barrier,
    "barrier": barrier,
    "barrier.cluster.arrive": lambda _: lambda who: who.arrive_in_cluster(),
    "barrier.cluster.wait": lambda _: lambda who: who.wait_in_cluster(),
}
