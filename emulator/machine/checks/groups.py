"""Groups of asynchronous operations: when each was committed, and which a wait covers."""

from __future__ import annotations

import numpy as np

from emulator.machine.checks.clocks import Events
from emulator.machine.vector.strand import Lanes

#: groups that may be pending at once and are told apart
_DEPTH = 64


class Groups:
    """Groups of each lane, by the event of their commit."""

    def __init__(self, lanes: int) -> None:
        self.count = np.zeros(lanes, np.int64)
        self._events = np.zeros((lanes, 0), np.int32)  # (lanes, _DEPTH) once there are any
        #: the event of the last operation that was issued, and of the last commit
        self.issued, self.committed = np.zeros(lanes, np.int32), np.zeros(lanes, np.int32)
        #: the event of the last wait
        self.waited = np.zeros(lanes, np.int32)

    def issue(self, lanes: Lanes, now: int) -> None:
        self.issued[lanes] = now

    def commit(self, lanes: Lanes, now: int) -> None:
        if not self._events.size:
            self._events = np.zeros((len(self.count), _DEPTH), np.int32)
        self._events[lanes, self.count[lanes] % _DEPTH] = now
        self.count[lanes] += 1
        self.committed[lanes] = now

    def wait(self, lanes: Lanes, newest: int, now: int) -> Events:
        """Up to which event operations are complete when all but the `newest` groups are."""
        self.waited[lanes] = now
        done = self.count[lanes] - newest
        if not self._events.size:
            return np.zeros(len(lanes), np.int32)
        held = self._events[lanes, (done - 1) % _DEPTH]
        out: Events = np.where((done > 0) & (newest < _DEPTH), held, 0).astype(np.int32)
        return out
