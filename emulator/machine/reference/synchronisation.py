"""Reference engine: statements that wait for threads of other warps, bar, barrier,
barrier.cluster."""

from __future__ import annotations

from emulator.machine.reference import barriers
from emulator.machine.reference.barriers import Finish
from emulator.machine.reference.control import Next, StatementContext
from emulator.machine.reference.operands import reader, writer
from emulator.machine.reference.thread import Thread, Votes
from emulator.machine.shared.operands import ordinary
from emulator.machine.shared.waiting import State


def barrier(place: StatementContext) -> Next:
    """bar.sync, .arrive and .red, aligned or not."""
    operands, following = place.statement.operands, place.following
    number = reader(operands["a"], "u32")
    count = reader(operands["b"], "u32") if "b" in operands else None
    vote = reader(operands["c"], "pred") if "c" in operands else None
    finish = _reduction(place) if vote is not None else None
    waits = "arrive" not in str(place.statement.instruction).split(".")

    def run(thread: Thread) -> int | None:
        chosen = number(thread)
        if waits:
            thread.stops(State.BARRIER, following, (chosen, finish))
        barriers.arrive(
            thread,
            chosen,
            0 if count is None else count(thread),
            None if vote is None else vote(thread),
        )
        return None if waits else following

    return run


def _reduction(place: StatementContext) -> Finish:
    """Writes the result of bar.red in each thread."""
    operands, function = place.statement.operands, place.function
    operation = ordinary(place.statement).modifiers["operation"]
    if operation == "popc":
        count = writer(operands["d"], "u32", function)
        return lambda thread, votes: count(thread, votes.true)
    write = writer(operands["p"], "pred", function)

    def finish(thread: Thread, votes: Votes) -> None:
        wanted = votes.given if operation == "and" else 1
        write(thread, int(votes.true >= wanted))

    return finish


def cluster_arrive(place: StatementContext) -> Next:
    def run(thread: Thread) -> int:
        barriers.arrive_in_cluster(thread)
        return place.following

    return run


def cluster_wait(place: StatementContext) -> Next:
    return lambda thread: barriers.wait_in_cluster(thread, place.following)


FLOWS = {
    "bar": barrier,
    "barrier": barrier,
    "barrier.cluster.arrive": cluster_arrive,
    "barrier.cluster.wait": cluster_wait,
}
