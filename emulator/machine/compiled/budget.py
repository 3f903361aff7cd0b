"""When it pays to compile statements: once their steps have taken as long as compiling them takes.

Steps are timed by the wall clock, whose calls cost next to nothing. On a loaded machine it counts
the time of other processes too; so whenever a budget seems spent, the share of the processor that
this process had since the launch began is asked for, and the rest is given back.
"""

from __future__ import annotations

from math import inf
from time import perf_counter, process_time

#: seconds that are not worth another look at the clocks
_LITTLE = 0.001


class Clock:
    """The share of the processor that this process has."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Measures from now on: a launch begins."""
        self._wall, self._processor = perf_counter(), process_time()

    def share(self) -> float:
        """The processor time of this process by the wall time since the start, at most 1."""
        wall = perf_counter() - self._wall
        return min(1.0, (process_time() - self._processor) / wall) if wall > 0 else 1.0


#: the one of this process: launches in several threads share its processor time
CLOCK = Clock()


class Budget:
    """Seconds that statements may still run as steps before they are compiled."""

    def __init__(self, seconds: float) -> None:
        #: 0 or less: compile them; infinite: never
        self.left = seconds
        self._charged = 0.0

    def charge(self, seconds: float) -> None:
        """Steps took so long by the wall clock."""
        self.left -= seconds
        self._charged += seconds
        if self.left <= 0:
            self.left += self._charged * (1 - CLOCK.share())
            self._charged = 0.0
            if self.left < _LITTLE:
                self.left = 0.0

    def never(self) -> None:
        """Steps do without a function: it cannot be made, or does not help."""
        self.left = inf
