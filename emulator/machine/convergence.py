"""Which lanes of a warp run together, where functions call themselves and activemask shows it.

A warp runs one group of lanes at a time. An H200 goes on like this:

- Where a group parts, the smaller side runs first; of equal sides the one that falls through, and
  where all jump (ret, brx, a call through a pointer) the one of the lowest lane. Of more than two
  sides, that of the lowest lane parts from all others, which part when it is their turn.
- The side that was left runs next, once the group in front of it stops; but only of the last
  parting. Sides left at earlier ones lose their bonds: of what is ready the smallest group at one
  place in equally many calls is taken, with all lanes that are at that statement, also such that
  wait there, and however deep in calls they are. (Two lanes in different calls of a function meet
  like that.)
- A barrier is one for the warp. Lanes that come to a region are added to it; lanes save it for
  themselves when a function starts, which clears it, and when lanes return together it becomes what
  the lowest of them saved.
- At the end of a region lanes wait until none of the region's barrier could still come: those
  that wait, at whatever statement, are there. Lanes that are not in the barrier do not wait for it,
  and go on with the group in which they came.
- Who waits elsewhere for the same barrier is released, and tries again once nobody else is ready.
  Until then the others wait for it.

So lanes that met in a function may part for good when it returns to different places, which no rule
of PTX forbids (PTX ISA 9.7.13.6: activemask promises no convergence).

Measured on recordings of warps with lanes in different depths of a recursion. Every step of 1,600
warps in four functions, and what 13,500 warps of eight saw behind theirs: all as here. Of kernels
that part and meet again by barriers of their own behind or around the recursion, 3,798 of 3,800
warps, in two of which those of a barrier were released that an H200 lets wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from emulator.ptx.regions import Regions


def lanes_of(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class Convergence:
    """The groups of one warp; sets of lanes are masks."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        #: the lanes of the group that runs
        self.running = 0
        #: where it was when it was let run
        self._from = -1
        #: the other side of the last parting, if it has not run since
        self._left = 0
        #: who waits at the end of a region, and who was released there from elsewhere
        self._waiting = self._released = 0
        self._barriers: dict[int, int] = {}
        #: what a lane has saved in a call, by the lane and the number of calls that it is in
        self._saved: dict[tuple[int, int], dict[int, int]] = {}
        #: who was ready when the group was let run; pcs of those, and in how many calls they are
        self._ready = 0
        self._at: Mapping[int, int] = {}
        self._calls: Mapping[int, int] = {}

    def choose(self, at: Mapping[int, int], calls: Mapping[int, int], later: int) -> int:
        """The lanes that run next, until the end of a block of statements.

        `at` has the pcs of the lanes that are ready, `calls` in how many calls they are; `later`
        are those that let others go first.
        """
        self._at, self._calls = at, calls
        before, self._ready = self._ready, sum(1 << lane for lane in at)
        self._waiting &= self._ready
        self._released &= self._ready
        self._left &= self._free & ~later
        group = self.running & self._ready
        if self.running:
            self._return(group)
        group &= ~later
        if group:
            group |= self._joining(group, self._ready & ~before & ~later)
            group = self._part(group, self._regions.last(self._from).pc + 1)
        while not (group and (group := self._arrive(group))):
            group = self._next(later)
        self.running = group
        self._from = self._pc(group)
        return group

    @property
    def _free(self) -> int:
        return self._ready & ~self._waiting & ~self._released

    def _pc(self, group: int) -> int:
        return self._at[next(lanes_of(group))]

    # --- who is next ---

    def _next(self, later: int) -> int:
        """The group that goes on where the one that ran has stopped."""
        group, self._left = self._left, 0
        if group:
            return self._part(group)
        for lanes in (self._free & ~later, self._released & ~later):
            if lanes:
                return self._taken(lanes, apart=lanes & self._free != 0)
        if stuck := self._waiting & ~later:
            # They wait for lanes that wait for something else: nobody may stop the warp for good.
            group = self._taken(stuck, apart=False)
            barrier = self._regions.meets[self._pc(group)]
            self._barriers[barrier] = self._barriers.get(barrier, 0) & ~group
            return group
        return self._taken(self._free, apart=True)

    def _taken(self, lanes: int, apart: bool) -> int:
        """All lanes at the statement of the smallest group; `apart`: those in different numbers of
        calls are groups of their own."""
        groups: dict[tuple[int, int], int] = {}
        for lane in lanes_of(lanes):
            place = self._at[lane], self._calls[lane] if apart else 0
            groups[place] = groups.get(place, 0) | 1 << lane
        pc, _ = min(groups, key=lambda place: (groups[place].bit_count(), place[0]))
        here = lanes | self._waiting | self._released
        group = sum(1 << lane for lane in lanes_of(here) if self._at[lane] == pc)
        self._waiting &= ~group
        self._released &= ~group
        return group

    def _joining(self, group: int, new: int) -> int:
        """Lanes that waited for the group at a statement that they execute together."""
        pcs = {self._at[lane] for lane in lanes_of(group)}
        return sum(1 << lane for lane in lanes_of(new) if self._at[lane] in pcs)

    def _part(self, group: int, falls: int = -1) -> int:
        """Of a group that goes to different places the lanes that go first.

        `falls` is the pc behind the statement in which they have parted.
        """
        sides: dict[int, int] = {}
        for lane in lanes_of(group):
            sides[self._at[lane]] = sides.get(self._at[lane], 0) | 1 << lane
        if len(sides) == 1:
            return group
        first = sides.pop(falls) if falls in sides else sides.pop(self._pc(group))
        rest = group & ~first
        if first.bit_count() <= rest.bit_count():
            self._left = rest
            return first
        # Of what goes to several places the lowest lane goes first, be they many or few.
        second = next(iter(sides.values()))
        self._left = rest & ~second or first
        return second

    # --- barriers ---

    def _arrive(self, group: int) -> int:
        """A group is about to execute the statement at its pc: those who can; 0 if it waits."""
        regions, pc = self._regions, self._pc(group)
        if pc in regions.saves:
            self._enter(group, regions.saves[pc])
        if pc in regions.meets:
            group = self._meet(group, pc)
        if group:
            for begun in regions.begins.get(pc, ()):
                self._barriers[begun] = self._barriers.get(begun, 0) | group
        return group

    def _meet(self, group: int, pc: int) -> int:
        """Those of a group at the end of a region who go on, with those who waited for it."""
        barrier = self._regions.meets[pc]
        members = self._barriers.get(barrier, 0)
        if not group & members:
            return group
        if members & (self._free | self._released) & ~group:
            self._waiting |= group & members
            return group & ~members
        released = members & sum(
            1 << lane
            for lane in lanes_of(self._waiting)
            if self._regions.meets[self._at[lane]] == barrier
        )
        here = sum(1 << lane for lane in lanes_of(released) if self._at[lane] == pc)
        self._waiting &= ~released
        self._released |= released & ~here
        self._barriers[barrier] = members & ~(group | released)
        return group | here

    def _enter(self, group: int, barriers: list[int]) -> None:
        """Lanes at the start of a function save barriers, unless they have come back to it."""
        places = [(lane, self._calls[lane]) for lane in lanes_of(group)]
        if new := [place for place in places if place not in self._saved]:
            held = {barrier: self._barriers.get(barrier, 0) for barrier in barriers}
            self._saved.update(dict.fromkeys(new, held))
            self._barriers.update(dict.fromkeys(barriers, 0))

    def _return(self, group: int) -> None:
        """Lanes that have just returned give back what they saved."""
        statement = self._regions.last(self._from)
        if not self._regions.returns(statement):
            return
        # Lanes between the two have not come to it yet, a guard leaves those behind it here.
        here = range(self._from + 1, statement.pc + 2)
        returned = [lane for lane in lanes_of(group) if self._at[lane] not in here]
        held = [self._saved.pop((lane, self._calls[lane] + 1)) for lane in returned]
        if held:
            self._barriers.update(held[0])
