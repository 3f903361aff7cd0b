"""The undo journal of a launch: bytes of allocations as they were before the first write to them.

Of an allocation one interval is kept, which grows. A trial is a part of a launch that is taken back
by itself, or stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dtypes import Array
from emulator.arith.fast.scratch import Scratch
from emulator.arith.fast.threads import copy_bytes
from emulator.memory.allocation import Allocation

#: the journal keeps at least so many bytes at a time, and at most so many because they are expected
_PIECE, _EXPECTED = 1 << 16, 1 << 26
#: memory of journals: that of launches that are over serves the next
_before = Scratch(arrays=8, most=1 << 26)
#: the interval of what nobody has written
_NOTHING = 0, 0
#: hears of the interval of an allocation before anybody finds it here
Tell = Callable[[Allocation, int, int], None]


class Trial(NamedTuple):
    """What there was when a trial began: how long the journal, and the intervals."""

    length: int
    kept: dict[Allocation, tuple[int, int]]


class Journal:
    """Bytes before they were written, in the order in which they were kept."""

    def __init__(self) -> None:
        self._entries: list[tuple[Array, Array]] = []
        #: of an allocation the bytes that are kept, or need not be
        self._kept: dict[Allocation, tuple[int, int]] = {}
        #: the addresses between which native code is about to write
        self._expected = 0, 0
        self._trial: Trial | None = None
        #: whether bytes are kept outside of trials
        self.undoes = True
        #: native code keeps bytes from several threads; other launches, as of the handler of a
        #: signal or of a forked child, do not wait
        self._keeping = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_entries": [], "_keeping": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _keeping=threading.Lock())

    def interval(self, made: Allocation) -> tuple[int, int]:
        """The bytes of an allocation that are kept; none: from its end to its start."""
        return self._kept.get(made, (made.size, 0))

    def needs_none_of(self, made: Allocation) -> None:
        """An allocation is new: nobody wants what it held."""
        self._kept[made] = 0, made.size

    def drop(self, made: Allocation) -> None:
        """An allocation is no more."""
        self._kept.pop(made, None)

    def keep(self, made: Allocation, first: int, last: int, tell: Tell) -> None:
        """Somebody is about to write bytes `first` … `last` of an allocation."""
        low, high = self._kept.get(made, _NOTHING)
        if low <= first and last <= high:
            return
        with self._keeping:
            low, high = self._kept.get(made, _NOTHING)
            if low == high:
                low = high = first // _PIECE * _PIECE
            first, last = self._with_expected(made, first, last)
            # Twice as much each time, so that few pieces are kept of what is written step by step.
            more = max(high - low, _PIECE)
            start = low if low <= first else max(0, min(first, low - more))
            end = high if last <= high else min(made.size, max(last, high + more))
            for piece in (made.held[start:low], made.held[high:end]):
                self.note(piece)
            tell(made, start, end)
            self._kept[made] = start, end

    def expect(self, made: Allocation, first: int, last: int, tell: Tell) -> None:
        """Bytes of an allocation are about to be written: they are kept at once."""
        if last - first <= _EXPECTED:
            self.keep(made, first, min(last, made.size), tell)

    @contextmanager
    def expecting(self, low: int, high: int) -> Iterator[None]:
        """Of an allocation that is written meanwhile, all between two addresses is kept at once."""
        self._expected = low, high
        try:
            yield
        finally:
            self._expected = 0, 0

    def _with_expected(self, made: Allocation, first: int, last: int) -> tuple[int, int]:
        """Bytes of an allocation that are about to be written, with those that are expected."""
        low, high = (min(max(x - made.address, 0), made.size) for x in self._expected)
        return (min(first, low), max(last, high)) if 0 < high - low <= _EXPECTED else (first, last)

    def note(self, held: Array) -> None:
        """Keeps the bytes of an array, which are about to change."""
        if held.size and (self.undoes or self._trial is not None):
            self._entries.append((held, copy_bytes(_before.take(held.size), held)))

    def forget(self, length: int = 0) -> None:
        """Lets go of the journal, but for its start: what was written stays."""
        while len(self._entries) > length:
            _before.give_back(self._entries.pop()[1])

    def undo(self, length: int = 0) -> None:
        """Gives back all bytes as they were when the journal was so long."""
        while len(self._entries) > length:
            copy_bytes(*self._entries[-1])
            self._entries.pop()

    # --- trials ---

    def begin_trial(self) -> None:
        """What is written from here on can be taken back."""
        self._trial, self._kept = Trial(len(self._entries), self._kept), {}

    def end_trial(self, tell: Tell) -> None:
        """What was written since it began stays."""
        before, now = self._before_trial()
        is_new = False
        for made, (low, high) in now.items():
            first, last = self._kept.get(made, _NOTHING)
            if first <= low and high <= last:
                continue
            is_new = True
            if first < last and low <= last and first <= high:
                first, last = min(low, first), max(high, last)
            elif high - low > last - first:
                first, last = low, high
            else:
                continue
            tell(made, first, last)
            self._kept[made] = first, last
        if not is_new or not self.undoes:
            self.forget(before.length)

    def take_back(self) -> None:
        """All is as it was when the trial began."""
        self.undo(self._before_trial()[0].length)

    def _before_trial(self) -> tuple[Trial, dict[Allocation, tuple[int, int]]]:
        """The trial is over: what there was before, and the intervals of the trial."""
        assert self._trial is not None
        before, now = self._trial, self._kept
        self._kept, self._trial = before.kept, None
        return before, now
