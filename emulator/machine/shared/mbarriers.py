"""Words of opcodes of mbarriers (PTX ISA 9.7.13.15): changes of a barrier, and waits.

Counts, bytes and words are integers, or arrays with an entry for each lane.
"""

from __future__ import annotations

from typing import Any

from emulator.machine.shared.operands import ordinary
from emulator.memory import mbarrier
from emulator.memory.mbarrier import MAX_COUNT, Change
from emulator.ptx.program import Bound, Statement

#: bytes of a barrier
SIZE = 8
NO_ARRIVALS = "a count of arrivals is not 0"


def may_expect(count: Any) -> Any:
    """True if a barrier can be initialised with a count of arrivals."""
    return (count >= 1) & (count <= MAX_COUNT)


def count_problem(count: int) -> str:
    """The reason why a barrier cannot be initialised with a count."""
    return f"a count is 1 … {MAX_COUNT}; got {count}"


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

    def change(self, count: Any, moved: Any) -> Change:
        """The change that a count of arrivals and a number of bytes make to the barrier."""
        arrivals = count if self.arrives else 0
        drops = arrivals if self.drops else 0
        return Change(arrivals, drops, self._sign * moved, self.may_complete)

    def token(self, word: Any) -> Any:
        """The result of an arrival at a barrier that held a word."""
        return mbarrier.token(word, self.moves)


class PhaseTest:
    """test_wait and try_wait: the phase of a parity, or the one in which a token was given."""

    def __init__(self, statement: Statement) -> None:
        self.by_parity = "parity" in statement.signature
        #: the operand, and its type
        self.given = statement.operands["parity" if self.by_parity else "state"]
        self.type = "u32" if self.by_parity else "b64"

    def is_over(self, word: Any, given: Any) -> Any:
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
