"""All engines: statements that change mbarriers, and what waits ask of them (PTX ISA 9.7.13.15).

An engine finds the barriers and lets threads wait for their phases.
"""

from __future__ import annotations

import numpy as np

from emulator.machine.shared.issuing import (
    Executor,
    LaneOperands,
    MakeAtOnce,
    RunAtOnce,
    Words,
    require,
)
from emulator.machine.shared.operands import ordinary
from emulator.memory import mbarrier
from emulator.memory.mbarrier import MAX_COUNT, Change
from emulator.ptx.program import Bound, Statement

#: bytes of a barrier
SIZE = 8


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

    def run(who: Executor) -> None:
        at, counts = barrier(who), count(who)
        legal = (counts >= 1) & (counts <= MAX_COUNT)
        require(legal, "mbarrier", lambda x: f"a count is 1 … {MAX_COUNT}; got {x}", counts)
        if who.watch is not None:
            who.watch.mbarrier_init(who.lanes, np.atleast_1d(at))
        who.put_barriers(at, counts)

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


AT_ONCE: dict[str, MakeAtOnce] = {
    "mbarrier.init": initialise,
    "mbarrier.inval": invalidate,
    "mbarrier.arrive": arrive,
    "mbarrier.arrive_drop": arrive,
    "mbarrier.expect_tx": arrive,
    "mbarrier.complete_tx": arrive,
    "mbarrier.pending_count": pending_count,
}


# --- waiting --------------------------------------------------------------------------------------


class PhaseTest:
    """test_wait and try_wait: the phase of a parity, or the one in which a token was given."""

    def __init__(self, statement: Statement) -> None:
        self.by_parity = "parity" in statement.signature
        #: the operand, and its type
        self.given = statement.operands["parity" if self.by_parity else "state"]
        self.type = "u32" if self.by_parity else "b64"

    def is_over(self, word: Words, given: Words) -> Words:
        """True if the phase of a barrier that holds a word is over."""
        if self.by_parity:
            return mbarrier.parity_over(word, given)
        return mbarrier.phase_over(word, given)

    def text(self, given: int) -> str:
        """The phase, for messages."""
        return f"parity {given & 1}" if self.by_parity else "its token's phase"

    def lacking(self, word: int, entry: int, given: int) -> str:
        """What a wait lacks of a barrier with a word and a ledger entry, for messages."""
        held, (over, expects) = mbarrier.Barrier.decode(word), mbarrier.history(entry)
        text = f"{self.text(given)}: {missing(held)}"
        if held.transactions:
            verb = "bring" if held.transactions < 0 else "have brought"
            brought = expects - held.transactions
            text += f"; the phase expects {expects:,} bytes, its copies {verb} {brought:,}"
        if not over:
            return text
        text += f"; the barrier is in phase {over}, counted from 0"
        if self.by_parity:
            text += f", and parity {given & 1} asks for the end of this phase"
            if held.pending == held.expected and not expects and not held.transactions:
                text += (
                    f"; phase {over - 1} is over, and a wait for it asks for parity {~given & 1}"
                )
        return text


def missing(held: mbarrier.Barrier) -> str:
    """The arrivals and bytes that the phase of a barrier still waits for, for messages."""
    text = f"{held.pending} of {held.expected} arrivals"
    if held.transactions >= 0:
        text += f" and {held.transactions:,} bytes"
    return f"{text} are outstanding"
