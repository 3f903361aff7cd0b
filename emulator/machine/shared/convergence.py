"""All engines: convergence, the lanes of a warp that run together where functions call themselves
and activemask shows it.

A warp runs one group of lanes at a time. An H200 goes on like this:

- Where a group parts, the smaller side runs first; of equal sides the one that falls through, and
  where all jump (ret, brx, a call through a pointer) the one of the lowest lane. Of more than two
  sides, that of the lowest lane parts from all others, which part when it is their turn.
- The side that was left runs next, once the group in front of it stops; but only of the last
  parting. Sides left at earlier ones lose their bonds: of what is ready the smallest group at one
  place in equally many calls is taken (of equal ones that in the most calls), with all lanes that
  are at that statement, also such that wait there, and however deep in calls they are. (Two lanes
  in different calls of a function meet like that.)
- A barrier is one for the warp. Lanes that come to a region are added to it; lanes save it for
  themselves when a function starts, which clears it, and when lanes return together it becomes what
  the lowest of them saved.
- At the end of a region lanes wait until none of the region's barrier could still come: those
  that wait, at whatever statement, are there. Lanes that are not in the barrier do not wait for it,
  and go on with the group in which they came.
- Who waits elsewhere for the same barrier is released, and tries again once nobody else is ready.
  Until then the others wait for it.
- Once nobody is ready, one lane that waits or was released, and all such lanes at its statement,
  are let through without the others. It is the first one from a pointer on, upwards and round.
- The pointer is a lane of the warp, at first lane 0. When a side that was left starts to run, or a
  group that was taken or let through, or lanes leave a region that have met, and the pointer is one
  of them, it moves on to the next lane that does not run, be that ready or not. When lanes begin to
  wait and the pointer waits for another barrier, it moves on to the next of those lanes.

So lanes that met in a function may part for good when it returns to different places, which no rule
of PTX forbids (PTX ISA 9.7.13.6: activemask promises no convergence).

Measured on recordings of warps with lanes in different depths of a recursion, by a simulation of
the machine code that ptxas made. Every step of 1,600 warps in four functions, and what 13,237 warps
saw behind eight: all as here. Of warps that part and meet again by barriers of their own around the
recursion or behind it: all 6,000 of one kernel, 794 of 800 of two others, and of a fourth one 7,815
of the 7,992 that came back from the recursion in parts. There were 4,772 of 500,000 warps for which
it matters where the pointer is when the recursion starts; of 600 of these 585 are as here wherever
it is. Something else, too, moves it; what that is, is not known.
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


def _first_from(start: int, mask: int) -> int:
    """The first lane of a mask from one lane on, upwards and round."""
    return next(lanes_of(mask >> start << start or mask))


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
        #: the lane from which those who wait are searched when nobody is ready
        self._pointer = 0
        #: whether nobody was ready, so that the group that runs was found from there
        self._polled = False
        #: lanes that wait at the end of a region, and lanes released there from elsewhere
        self._waiting = self._released = 0
        self._barriers: dict[int, int] = {}
        #: values that a lane has saved in a call, by the lane and the number of calls that it is in
        self._saved: dict[tuple[int, int], dict[int, int]] = {}
        #: lanes that were ready when the group was chosen; their pcs, and their numbers of calls
        self._ready = 0
        self._at: Mapping[int, int] = {}
        self._calls: Mapping[int, int] = {}
        #: lanes that have not left the kernel
        self._living = 0

    def choose(
        self, at: Mapping[int, int], calls: Mapping[int, int], later: int, living: int
    ) -> int:
        """The lanes that run next, until the end of a block of statements.

        `at` has the pcs of the lanes that are ready, `calls` in how many calls they are; `later`
        are those that let others go first, `living` those that have not left the kernel.
        """
        self._at, self._calls, self._living = at, calls, living
        before, self._ready = self._ready, sum(1 << lane for lane in at)
        self._waiting &= self._ready
        self._released &= self._ready
        self._left &= self._free & ~later
        self._polled = False
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
            group = self._part(group)
        elif lanes := self._free & ~later:
            group = self._taken(lanes)
        else:
            lanes = (self._released | self._waiting) & ~later
            self._pointer, self._polled = _first_from(self._pointer, lanes), True
            group = self._together(self._at[self._pointer], lanes)
        self._pass_pointer(group)
        return group

    def _taken(self, lanes: int) -> int:
        """All lanes at the statement of the smallest group at one place in equally many calls."""
        groups: dict[tuple[int, int], int] = {}
        for lane in lanes_of(lanes):
            place = self._at[lane], self._calls[lane]
            groups[place] = groups.get(place, 0) | 1 << lane
        pc, _ = min(groups, key=lambda at: (groups[at].bit_count(), -at[1], at[0]))
        return self._together(pc, lanes | self._waiting | self._released)

    def _together(self, pc: int, lanes: int) -> int:
        """Those of some lanes that are at a pc; they wait no longer."""
        group = sum(1 << lane for lane in lanes_of(lanes) if self._at[lane] == pc)
        self._waiting &= ~group
        self._released &= ~group
        return group

    def _pass_pointer(self, group: int) -> None:
        """The pointer leaves a group that runs while others do not."""
        if group >> self._pointer & 1 and (others := self._living & ~group):
            self._pointer = _first_from(self._pointer, others)

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
        if not self._polled and members & (self._free | self._released) & ~group:
            if self._waits_elsewhere(self._pointer, barrier):
                self._pointer = _first_from(self._pointer, group & members)
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
        self._pass_pointer(group | here)
        return group | here

    def _waits_elsewhere(self, lane: int, barrier: int) -> bool:
        waits = self._waiting >> lane & 1 != 0
        return waits and self._regions.meets[self._at[lane]] != barrier

    def _enter(self, group: int, barriers: list[int]) -> None:
        """Lanes at the start of a function save barriers, unless they have come back to it."""
        places = [(lane, self._calls[lane]) for lane in lanes_of(group)]
        if new := [place for place in places if place not in self._saved]:
            held = {barrier: self._barriers.get(barrier, 0) for barrier in barriers}
            self._saved.update(dict.fromkeys(new, held))
            self._barriers.update(dict.fromkeys(barriers, 0))

    def _return(self, group: int) -> None:
        """Lanes that have just returned give back what they saved."""
        places = [(lane, self._calls[lane] + 1) for lane in lanes_of(group)]
        held = [self._saved.pop(place) for place in places if place in self._saved]
        if held:
            self._barriers.update(held[0])
