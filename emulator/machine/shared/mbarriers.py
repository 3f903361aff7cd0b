"""All engines: statements on mbarriers (PTX ISA 9.7.13.15). An engine finds the barriers, and lets
threads wait for their phases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emulator.machine.shared.issuing import Executor, LaneOperands, MakeAtOnce, RunAtOnce, require
from emulator.machine.shared.operands import Words, ordinary
from emulator.machine.shared.phases import PhaseTest, PhaseWait
from emulator.memory import mbarrier
from emulator.memory.mbarrier import MOST_EXPECTED, Change
from emulator.ptx.program import Bound, Statement

#: the word of an opcode -> the layout of a barrier
_LAYOUTS = {"": 0, "layout::v0": 0, "layout::v1": 1}


class Arrival:
    """arrive, arrive_drop, expect_tx, complete_tx, and arrivals that expect bytes."""

    def __init__(self, statement: Statement) -> None:
        words, self._operands = ordinary(statement).modifiers, statement.operands
        self.drops, self.may_complete = "arrive_drop" in words, "noComplete" not in words
        self.arrives = self.drops or "arrive" in words
        self._sign = -1 if "complete_tx" in words else 1
        #: whether bytes are expected, or complete
        self.moves = "bytes" in self._operands

    @property
    def count(self) -> Bound | None:
        """The operand that counts arrivals; None: there is one, or none."""
        return self._operands.get("count") if self.arrives else None

    def change(self, count: Words, moved: Words) -> Change:
        """The change that a count of arrivals and a number of bytes make to the barrier."""
        arrivals = count if self.arrives else 0
        drops = arrivals if self.drops else 0
        return Change(arrivals, drops, self._sign * moved, self.may_complete)

    def token(self, word: Words) -> Words:
        """The result of an arrival at a barrier that held a word."""
        return mbarrier.token(word, self.moves)


def initialise(operands: LaneOperands) -> RunAtOnce:
    """init: a barrier that expects a count of arrivals."""
    barrier, count = operands.barrier(), operands.word("count", "u32")
    layout = _LAYOUTS[operands.modifier("layout")]
    most = MOST_EXPECTED[layout]

    def run(who: Executor) -> None:
        at, counts = barrier(who), count(who)
        legal = (counts >= 1) & (counts <= most)
        require(legal, "mbarrier", lambda x: f"a count is 1 … {most}; got {x}", counts)
        if who.watch is not None:
            who.watch.mbarrier_init(who.lanes, np.atleast_1d(at))
        who.put_barriers(at, counts, layout)

    return run


def arrive(operands: LaneOperands) -> RunAtOnce:
    """arrive, arrive_drop, expect_tx, complete_tx, and arrivals that expect bytes."""
    arrival = Arrival(operands.statement)
    barrier, moved = operands.barrier(), operands.number("bytes", 0)
    count = operands.number("count", 1) if arrival.arrives else None
    write = None
    if "d" in operands:
        write = operands.result(operands.statement.operands["d"], "b64")

    def run(who: Executor) -> None:
        at, counts = barrier(who), 1 if count is None else count(who)
        if who.watch is not None:
            who.watch.mbarrier_used(who.lanes, np.atleast_1d(at))
        require(counts != 0, "mbarrier", lambda _: "a count of arrivals is not 0", counts)
        words = who.change_barriers(at, arrival.change(counts, moved(who)))
        if write is not None:
            write(who, arrival.token(words))

    return run


def pending_count(operands: LaneOperands) -> RunAtOnce:
    """The arrivals that were pending when a token was given."""
    read = operands.word("state", "b64")
    write = operands.result(operands.statement.operands["d"], "u32")
    return lambda who: write(who, mbarrier.pending_count(read(who)))


def invalidate(operands: LaneOperands) -> RunAtOnce:
    """inval: the barrier must be there; its word stays."""
    barrier = operands.barrier()

    def run(who: Executor) -> None:
        at = barrier(who)
        if who.watch is not None:
            who.watch.mbarrier_inval(who.lanes, np.atleast_1d(at))

    return run


def check_layout(operands: LaneOperands) -> RunAtOnce:
    """check_layout: whether the barrier has a layout."""
    barrier, layout = operands.barrier(), _LAYOUTS[operands.modifier("layout")]
    write = operands.result(operands.statement.operands["p"], "pred")

    def run(who: Executor) -> None:
        at = barrier(who)
        if who.watch is not None:
            who.watch.mbarrier_used(who.lanes, np.atleast_1d(at), arrives=False)
        write(who, mbarrier.layout_of(who.barrier_words(at)) == layout)

    return run


# --- waiting --------------------------------------------------------------------------------------


def _reports_of(operands: LaneOperands) -> Callable[[Executor], None]:
    """Says that no operation has reported: those that could are none that run here."""
    given = operands.statement.operands
    bounds = (("q", "pred"), ("report", "b8"))
    writes = [operands.result(given[name], type_) for name, type_ in bounds if name in given]

    def report(who: Executor) -> None:
        for write in writes:
            write(who, 0)

    return report


def _wait_of(operands: LaneOperands) -> Callable[[Executor], PhaseWait]:
    test = PhaseTest(operands.statement)
    barrier, given = operands.barrier(), operands.word(test.operand, test.type)
    return lambda who: PhaseWait(barrier(who), given(who), test)


def _seen(who: Executor, wait: PhaseWait) -> Words:
    """Whether the phases are over; the checks are told of those that are."""
    done = wait.is_over(who.barrier_words(wait.barriers))
    if who.watch is not None:
        who.watch.mbarrier_used(who.lanes, np.atleast_1d(wait.barriers), arrives=False)
        seen = np.broadcast_to(done, who.lanes.shape)
        who.watch.sync.waited(who.lanes[seen], np.broadcast_to(wait.barriers, seen.shape)[seen])
    return done


def test_wait(operands: LaneOperands) -> RunAtOnce:
    """test_wait: whether the phase is over now."""
    find, write = _wait_of(operands), operands.result(operands.statement.operands["p"], "pred")
    report = _reports_of(operands)

    def run(who: Executor) -> None:
        write(who, _seen(who, find(who)))
        report(who)

    return run


def try_wait(operands: LaneOperands) -> RunAtOnce:
    """try_wait: goes on once the phase is over, or when nothing else can happen."""
    find, write = _wait_of(operands), operands.result(operands.statement.operands["p"], "pred")
    report = _reports_of(operands)

    def run(who: Executor) -> None:
        wait = find(who)
        report(who)
        who.pending.before_wait(np.atleast_1d(wait.barriers))
        who.wait_for(wait, _seen(who, wait), write)

    return run


AT_ONCE: dict[str, MakeAtOnce] = {
    "mbarrier.init": initialise,
    "mbarrier.inval": invalidate,
    "mbarrier.arrive": arrive,
    "mbarrier.arrive_drop": arrive,
    "mbarrier.expect_tx": arrive,
    "mbarrier.complete_tx": arrive,
    "mbarrier.pending_count": pending_count,
    "mbarrier.check_layout": check_layout,
    "mbarrier.test_wait": test_wait,
}
#: threads that execute it may wait behind it
WAITING: dict[str, MakeAtOnce] = {"mbarrier.try_wait": try_wait}
