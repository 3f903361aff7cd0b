"""Knowledge that operations of tcgen05 are complete (PTX ISA 9.7.16.6)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from dtypes import Array
from emulator.machine.checks.clocks import Aspect, Bools
from emulator.machine.shared.tensor_order import COMMITTED, TensorOperation, ordered
from emulator.machine.vector.strand import WARP, Lanes

if TYPE_CHECKING:
    from emulator.machine.checks.async_watch import AsyncWatch


class Completion:
    """Commits, waits and fences that tell threads that operations of tcgen05 are complete.

    A fence is demanded where the kernel has fences of its sort: the code of Triton and of CUTLASS
    has none, and leaves it to its barriers.
    """

    def __init__(self, watch: AsyncWatch) -> None:
        self._watch, self._clocks = watch, watch.clocks
        self._sorts = {"before", "after"} & watch.all.grid.program.effects
        #: by lane and .cta_group, for each column of an mbarrier the events of commits
        self._commits: defaultdict[tuple[int, int], dict[int, list[int]]] = defaultdict(dict)
        #: by "ld" or "st" and the first lane of a warp, events of waits
        self._waits: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        #: by lane, events of fence::before_thread_sync
        self._before: defaultdict[int, list[int]] = defaultdict(list)
        #: by lane, what it knew at its last fence::after_thread_sync of the lanes of its cluster,
        #: and of mbarriers
        self._after: dict[int, Array] = {}

    def commit(self, lane: int, cta_group: int, barrier: int) -> None:
        column = self._watch.sync.tell_copy(barrier)
        self._commits[lane, cta_group].setdefault(column, []).append(self._watch.now)

    def wait(self, name: str, lanes: Lanes) -> None:
        for lane in np.unique(lanes - lanes % WARP).tolist():
            self._waits[name, lane].append(self._watch.now)

    def fence(self, sort: str, lanes: Lanes) -> None:
        if sort == "before":
            for lane in lanes.tolist():
                self._before[lane].append(self._watch.now)
            return
        for cluster in np.unique(lanes // self._clocks.per_cluster).tolist():
            mine = lanes[lanes // self._clocks.per_cluster == cluster]
            self._after.update(zip(mine.tolist(), self._clocks.seen(mine), strict=True))

    def problem(
        self, first: TensorOperation, event: int, second: TensorOperation
    ) -> tuple[str, str]:
        """The mistake where one operation needs another of that event to be complete: the kind of
        finding, and how the sentence ends; empty where nothing is."""
        if first.lane == second.lane and ordered(first, second):
            return "", ""
        return self.unknown(first, event, lanes_of(second), fences=True)

    def unknown(
        self, first: TensorOperation, event: int, lanes: Lanes, *, fences: bool
    ) -> tuple[str, str]:
        """The same where lanes, of which one must know, do what is no operation (`fences`)."""
        if first.name in COMMITTED:
            return self._of_commit(first, event, lanes, fences)
        return self._of_wait(first, event, lanes, fences)

    def _later(self, first: TensorOperation, event: int) -> list[tuple[int, int]]:
        """Columns of mbarriers with the commits to them that cover an operation."""
        commits = self._commits[first.lane, first.cta_group]
        return [(x, found) for x, events in commits.items() if (found := _next(events, event))]

    def commit_seen(self, first: TensorOperation, event: int, lanes: Lanes) -> Bools:
        """Mask of the lanes that know that a commit covering an operation is over."""
        out = np.zeros(len(lanes), np.bool_)
        for column, found in self._later(first, event):
            known = np.full(len(lanes), column), np.full(len(lanes), found)
            out |= self._clocks.ordered_by_barrier(lanes, *known)
        return out

    def _of_commit(
        self, first: TensorOperation, event: int, lanes: Lanes, fences: bool
    ) -> tuple[str, str]:
        later = self._later(first, event)
        if not later:
            return "tcgen05 in flight", "its thread has executed no tcgen05.commit since"
        if not self.commit_seen(first, event, lanes).any():
            return "tcgen05 in flight", "its tcgen05.commit has not been waited for"
        width = self._clocks.per_cluster
        if fences and not self._fenced(lanes, [(width + x, found) for x, found in later]):
            return self._missing("after")
        return "", ""

    def _of_wait(
        self, first: TensorOperation, event: int, lanes: Lanes, fences: bool
    ) -> tuple[str, str]:
        done = event if first.complete else _next(self._waits[first.name, first.lane], event)
        if not done:
            return "tcgen05 in flight", f"its warp has executed no tcgen05.wait::{first.name} since"
        if lanes[0] // WARP == first.lane // WARP:
            return "", ""
        warp = (first.lane + np.arange(WARP)).tolist()
        if not self._known(lanes, [(x, done) for x in warp]):
            return "race", "nothing orders them"
        told = [(x, found) for x in warp if (found := _next(self._before[x], event))]
        if fences and "before" in self._sorts and not self._known(lanes, told):
            return self._missing("before")
        width = self._clocks.per_cluster
        if fences and not self._fenced(lanes, [(x % width, done) for x in warp]):
            return self._missing("after")
        return "", ""

    def _known(self, lanes: Lanes, events: list[tuple[int, int]]) -> bool:
        """True if one of the lanes knows of one of the events, each with its lane."""
        others = np.tile([x for x, _ in events], len(lanes)).astype(np.int64)
        when = np.tile([x for _, x in events], len(lanes)).astype(np.int32)
        mine = np.repeat(lanes, len(events))
        return bool(self._clocks.ordered(Aspect.PLAIN, mine, others, when).any())

    def _fenced(self, lanes: Lanes, events: list[tuple[int, int]]) -> bool:
        """True if one of the lanes knew of one of the events at its last fence::after_thread_sync;
        each event has the number of its lane or mbarrier in the cluster."""
        if "after" not in self._sorts:
            return True
        known = [self._after[lane] for lane in lanes.tolist() if lane in self._after]
        return any(x < len(row) and row[x] >= when for row in known for x, when in events)

    def _missing(self, sort: str) -> tuple[str, str]:
        place = "before the arrival of" if sort == "before" else "behind the wait for"
        return (
            "missing tcgen05 fence",
            f"no tcgen05.fence::{sort}_thread_sync stands {place} what orders them",
        )


def lanes_of(operation: TensorOperation) -> Lanes:
    """The lanes that have issued an operation."""
    return operation.lane + np.arange(1 if operation.cta_group else WARP)


def _next(events: list[int], event: int) -> int:
    """The first of ascending events that is not before another; 0: there is none."""
    at = bisect_left(events, event)
    return events[at] if at < len(events) else 0
