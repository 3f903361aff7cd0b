"""mbarrier objects: the 64-bit word in shared memory, and what each operation makes of it.

Every operation that changes a barrier is arrivals, drops and transactions at once; `Barrier.after`
is the specification, in plain integers, `advance` the same for arrays of words. Waiting is left to
the caller: `phase_over` says whether it ends. PTX ISA 9.7.13.15; the word was measured on an H200,
and the bit of the layout is the one that code of ptxas 13.5 sets and tests. A barrier of layout 1
keeps what operations on the fabric report, and none runs here: in all else the layouts are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtypes import Array

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]
#: of `Undefined`
Flags = NDArray[np.uint8]

#: largest count of arrivals, and of bytes that are outstanding either way
MAX_COUNT = (1 << 20) - 1
#: largest count of arrivals that a barrier of each layout can expect
MOST_EXPECTED = (MAX_COUNT, (1 << 9) - 1)
#: lowest bit of each field; counts are kept negated
PARITY, PENDING, TRANSACTIONS, EXPECTED, LAYOUT = 63, 43, 21, 1, 0
#: fields that are no counts
FLAGS = 1 << PARITY | 1 << LAYOUT
COUNT_MASK, TRANSACTIONS_MASK = (1 << 20) - 1, (1 << 21) - 1
#: lanes that are faster one by one than as arrays
_FEW = 16


class Undefined(IntFlag):
    """Undefined operations on a barrier, as far as its word shows them."""

    #: a count outside of 1 … 2**20 - 1
    COUNT = 1
    #: more arrivals than are pending, or more drops than are expected
    TOO_MANY = 2
    #: transactions outstanding beyond ±(2**20 - 1)
    TRANSACTIONS = 4
    #: ``.noComplete`` completed the phase
    COMPLETED = 8


#: a word of a barrier, or an array of them
Number = TypeVar("Number", int, Array, int | Array)


class Change(NamedTuple):
    """Effect of an operation: integers, or arrays with an entry for each lane.

    ``arrive``: arrivals; ``arrive_drop``: as many drops; ``expect_tx``: transactions;
    ``complete_tx``: negative ones; ``arrive.expect_tx``: one arrival and transactions.
    ``cp.async.mbarrier.arrive`` is an arrival once the copies are done, without ``.noinc`` one of
    -1 at once. An arrival with a count of 0, which is undefined, cannot be told from none here.
    """

    arrivals: int | Array = 0
    drops: int | Array = 0
    #: bytes
    transactions: int | Array = 0
    #: False for ``.noComplete``
    may_complete: bool = True

    @property
    def integers(self) -> tuple[int, int, int]:
        """Arrivals, drops and transactions of one lane."""
        return int(self.arrivals), int(self.drops), int(self.transactions)


class Barrier(NamedTuple):
    """The content of a barrier."""

    #: of the current phase
    parity: int
    #: arrivals that the current phase waits for
    pending: int
    #: bytes that it waits for; negative where they came before they were expected
    transactions: int
    #: arrivals that the next phase will wait for
    expected: int
    #: 0 or 1
    layout: int = 0

    @classmethod
    def init(cls, count: int, layout: int = 0) -> Barrier:
        """The barrier after ``mbarrier.init``."""
        return cls(0, count, 0, count, layout)

    @classmethod
    def decode(cls, word: int) -> Barrier:
        """The barrier that a word of shared memory holds."""
        transactions = -(word >> TRANSACTIONS) & TRANSACTIONS_MASK
        return cls(
            word >> PARITY & 1,
            -(word >> PENDING) & COUNT_MASK,
            transactions - (1 << 21) if transactions >> 20 else transactions,
            -(word >> EXPECTED) & COUNT_MASK,
            word >> LAYOUT & 1,
        )

    def encode(self) -> int:
        """The word; counts that no field holds wrap around."""
        return (
            self.parity << PARITY
            | (-self.pending & COUNT_MASK) << PENDING
            | (-self.transactions & TRANSACTIONS_MASK) << TRANSACTIONS
            | (-self.expected & COUNT_MASK) << EXPECTED
            | self.layout << LAYOUT
        )

    def after(self, operation: Change) -> Barrier:
        """The barrier after an operation, which may be the one that completes the phase."""
        arrivals, drops, added = operation.integers
        pending, expected = self.pending - arrivals, self.expected - drops
        transactions = self.transactions + added
        if pending == 0 and transactions == 0:
            return Barrier(1 - self.parity, expected, 0, expected, self.layout)
        # What is undefined wraps around as the fields do.
        after = Barrier(self.parity, pending, transactions, expected, self.layout)
        return Barrier.decode(after.encode())

    def undefined(self, operation: Change) -> Undefined:
        """Flags for what PTX leaves undefined in an operation on this barrier; 0 where nothing."""
        arrivals, drops, transactions = operation.integers
        out = Undefined(0)
        if (arrivals or drops) and arrivals != -1 and not 1 <= arrivals <= MAX_COUNT:
            out |= Undefined.COUNT
        if arrivals > self.pending or drops > self.expected or self.pending - arrivals > MAX_COUNT:
            out |= Undefined.TOO_MANY
        if abs(transactions) > MAX_COUNT or abs(self.transactions + transactions) > MAX_COUNT:
            out |= Undefined.TRANSACTIONS
        if not operation.may_complete and self.after(operation).parity != self.parity:
            out |= Undefined.COMPLETED
        return out


_MEANING = {
    Undefined.COUNT: f"the count of arrivals is not 1 … {MAX_COUNT}",
    Undefined.TOO_MANY: "more threads arrive than the phase still expects",
    Undefined.TRANSACTIONS: f"more than {MAX_COUNT} bytes are outstanding",
    Undefined.COMPLETED: "an arrival with .noComplete completes the phase",
}


def undefined_text(flags: int, word: int) -> str:
    """Describes the undefined behaviour of an operation on a barrier; `word` is the one before
    it."""
    held = Barrier.decode(word)
    reasons = [text for flag, text in _MEANING.items() if flags & flag]
    return (
        f"{'; '.join(reasons)} (pending {held.pending} of {held.expected} arrivals, "
        f"{held.transactions} bytes)"
    )


# --- tokens and waits: of an integer or an array of words ---


def phase_over(word: int | Array, token: int | Array) -> int | Array:
    """``test_wait``: the phase in which the token was given is over.

    The token of an arrival is the barrier's word before it; hardware gives the lower half of it
    only with ``.expect_tx``, so nothing but the upper half may be used.
    """
    return (word ^ token) >> PARITY != 0


def parity_over(word: int | Array, parity: int | Array) -> int | Array:
    """``test_wait.parity``: the phase of that parity is over; on a fresh barrier that of 1 is."""
    return word >> PARITY != (parity & 1)


def token(word: Number, expects_bytes: bool) -> Number:
    """Token that an arrival returns, from the word before it (measured on an H200).

    ``arrive.expect_tx`` gives all of it; the others define the upper half alone, and leave the
    lower one to chance: here it is 0.
    """
    return word if expects_bytes else word & 0xFFFF_FFFF_0000_0000


def layout_of(word: Number) -> Number:
    """The layout of a barrier that holds a word: 0 or 1."""
    return word >> LAYOUT & 1


def pending_count(token: Number) -> Number:
    """``mbarrier.pending_count``: the arrivals that were pending when the token was given."""
    return -(token >> PENDING) & COUNT_MASK


# --- the ledger of a barrier: what its word does not keep ---

#: low bits of an entry: the bytes that the current phase expects in all; above them the phases
#: that are over
LEDGER_BYTES = 40
_LEDGER_MASK = (1 << LEDGER_BYTES) - 1


def noted(entry: int, over: bool, added: int) -> int:
    """The ledger entry after an operation that ends the phase, or adds transactions to it."""
    if over:
        return ((entry >> LEDGER_BYTES) + 1) << LEDGER_BYTES
    return entry & ~_LEDGER_MASK | (entry & _LEDGER_MASK) + max(added, 0) & _LEDGER_MASK


def history(entry: int) -> tuple[int, int]:
    """The number of phases that are over, and the bytes that the current one expects in all."""
    return entry >> LEDGER_BYTES, entry & _LEDGER_MASK


def _note(ledger: Words, barriers: Array, over: Array, added: Array) -> None:
    """Notes operations of lanes, in order, in the ledger of their barriers."""
    for i in np.flatnonzero((over != 0) | (added > 0)).tolist():
        at = barriers[i]
        ledger[at] = noted(int(ledger[at]), bool(over[i]), int(added[i]))


# --- arrays of words ---

_PARITY_BIT = np.uint64(1 << PARITY)
_FLAG_BITS = np.uint64(FLAGS)


def init_words(counts: Array, layout: int = 0) -> Words:
    """The words of barriers after ``mbarrier.init`` with these counts."""
    both = counts.astype(np.int64)
    flags = np.full(counts.shape, layout << LAYOUT, np.uint64)
    return _encoded(flags, both, np.zeros_like(both), both)


def advance(words: Words, operation: Change) -> tuple[Words, Flags]:
    """The words of different barriers after an operation on each, and the `Undefined` of each."""
    arrivals, drops, added, may_complete = operation
    pending, transactions, expected = _fields(words)
    out = np.zeros(words.shape, np.uint8)
    bad = ((arrivals != 0) | (drops != 0)) & (arrivals != -1)
    bad &= (arrivals < 1) | (arrivals > MAX_COUNT)
    out |= bad * np.uint8(Undefined.COUNT)
    bad = (arrivals > pending) | (drops > expected) | (pending - arrivals > MAX_COUNT)
    out |= bad * np.uint8(Undefined.TOO_MANY)
    bad = (np.abs(added) > MAX_COUNT) | (np.abs(transactions + added) > MAX_COUNT)
    out |= bad * np.uint8(Undefined.TRANSACTIONS)

    pending, transactions, expected = pending - arrivals, transactions + added, expected - drops
    done = (pending == 0) & (transactions == 0)
    if not may_complete:
        out |= done * np.uint8(Undefined.COMPLETED)
    after = _encoded(words, np.where(done, expected, pending), transactions, expected)
    return after ^ done * _PARITY_BIT, out


def advance_lanes(
    words: Words, barriers: NDArray[np.intp], operation: Change, ledger: Words | None = None
) -> tuple[Words, Words, Flags]:
    """The words after one instruction whose lane i works on barrier ``barriers[i]``.

    Lanes that share a barrier act in ascending order. Returns the new words, and for each lane its
    token and its `Undefined`. `ledger` has the entries of the same barriers and is brought up to
    date.
    """
    lanes = len(barriers)
    if not lanes:
        return words.copy(), np.zeros(0, np.uint64), np.zeros(0, np.uint8)
    parts = np.broadcast_arrays(barriers, *operation[:3])[1:]
    if lanes <= _FEW:
        return _one_by_one(words, barriers, parts, operation.may_complete, ledger)
    order = np.argsort(barriers, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(barriers[order]) != 0])
    lengths = np.diff(np.r_[starts, lanes])

    # What each lane finds if none before it completes a phase: the word less all before it.
    def before(part: Counts) -> Counts:
        total = np.cumsum(part) - part
        return total - np.repeat(total[starts], lengths)

    at = barriers[order]
    arrivals, drops, added = (part[order].astype(np.int64) for part in parts)
    pending, transactions, expected = _fields(words[at])
    tokens = _encoded(
        words[at],
        pending - before(arrivals),
        transactions + before(added),
        expected - before(drops),
    )
    after, flags = advance(tokens, Change(arrivals, drops, added, operation.may_complete))
    over = (after ^ tokens) >> PARITY
    last = starts + lengths - 1
    words = words.copy()
    early = np.flatnonzero(over)
    if np.isin(early, last).all():
        words[barriers[order[last]]] = after[last]
    else:
        for turn in range(lengths.max()):
            here = starts[lengths > turn] + turn
            tokens[here] = words[at[here]]
            each = Change(arrivals[here], drops[here], added[here], operation.may_complete)
            words[at[here]], flags[here] = advance(tokens[here], each)
            over[here] = (words[at[here]] ^ tokens[here]) >> PARITY
    if ledger is not None:
        _note(ledger, at, over, added)
    back = np.argsort(order)
    return words, tokens[back], flags[back]


def _one_by_one(
    words: Words,
    barriers: NDArray[np.intp],
    parts: Sequence[Counts],
    may_complete: bool,
    ledger: Words | None,
) -> tuple[Words, Words, Flags]:
    """`advance_lanes` through `Barrier`."""
    held, tokens, flags = words.tolist(), [], []
    every = zip(barriers.tolist(), *(part.tolist() for part in parts), strict=True)
    for at, arrivals, drops, added in every:
        operation = Change(arrivals, drops, added, may_complete)
        before = Barrier.decode(held[at])
        tokens.append(held[at])
        flags.append(before.undefined(operation))
        after = before.after(operation)
        held[at] = after.encode()
        if ledger is not None and (after.parity != before.parity or added > 0):
            ledger[at] = noted(int(ledger[at]), after.parity != before.parity, added)
    return np.array(held, np.uint64), np.array(tokens, np.uint64), np.array(flags, np.uint8)


def _fields(words: Words) -> tuple[Counts, Counts, Counts]:
    """Pending arrivals, transactions and expected arrivals."""
    pending = (-(words >> PENDING) & COUNT_MASK).astype(np.int64)
    transactions = (-(words >> TRANSACTIONS) & TRANSACTIONS_MASK).astype(np.int64)
    expected = (-(words >> EXPECTED) & COUNT_MASK).astype(np.int64)
    return pending, transactions - (transactions >> 20 << 21), expected


def _encoded(words: Words, pending: Counts, transactions: Counts, expected: Counts) -> Words:
    """Words with the parity and layout of others; counts wrap around as `Barrier.encode` says."""
    counts = (-pending & COUNT_MASK) << PENDING | (
        -transactions & TRANSACTIONS_MASK
    ) << TRANSACTIONS
    counts |= (-expected & COUNT_MASK) << EXPECTED
    return words & _FLAG_BITS | counts.astype(np.uint64)
