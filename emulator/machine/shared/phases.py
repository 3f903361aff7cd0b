"""All engines: phases of mbarriers that threads wait for, and what they lack, in words (PTX ISA
9.7.13.15)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtypes import Array
from emulator.memory import mbarrier
from emulator.ptx.program import Statement

#: bytes of a barrier
SIZE = 8


class PhaseTest:
    """test_wait and try_wait: the phase of a parity, or the one in which a token was given."""

    def __init__(self, statement: Statement) -> None:
        self.by_parity = "parity" in statement.signature
        #: the operand that says which phase, and its type
        self.operand = "parity" if self.by_parity else "state"
        self.type = "u32" if self.by_parity else "b64"

    def is_over(self, word: int | Array, given: int | Array) -> int | Array:
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


@dataclass(frozen=True, eq=False)
class PhaseWait:
    """The phases that threads wait for: at each barrier that of a parity, or of a token."""

    #: numbers of the barriers among the 8-byte words of shared memory of all blocks
    barriers: int | Array
    #: parities or tokens
    given: int | Array
    test: PhaseTest

    def is_over(self, words: int | Array) -> int | Array:
        """Whether each phase is over, for barriers that hold words."""
        return self.test.is_over(words, self.given)

    def part(self, mask: Array) -> PhaseWait:
        """The same of the threads of a mask; one barrier may stand for all."""
        barriers, given = (
            x[mask] if isinstance(x, np.ndarray) and len(x) > 1 else x
            for x in (self.barriers, self.given)
        )
        return PhaseWait(barriers, given, self.test)


def missing(held: mbarrier.Barrier) -> str:
    """The arrivals and bytes that the phase of a barrier still waits for, for messages."""
    text = f"{held.pending} of {held.expected} arrivals"
    if held.transactions >= 0:
        text += f" and {held.transactions:,} bytes"
    return f"{text} are outstanding"
