"""Knowledge that threads gain through barriers, mbarriers, and barriers of clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dtypes import Array
from emulator.machine.checks.clocks import Aspect, Events, wider
from emulator.machine.checks.finding import Party
from emulator.machine.checks.reporter import Reporter
from emulator.machine.shared.phases import SIZE
from emulator.machine.shared.place import shown
from emulator.machine.vector.strand import WARP, Lanes, Strand

#: an event that is before all others of a thread: who knows of it knows that the thread runs
STARTED = 1


@dataclass
class Arrival:
    """Lanes of one block that have arrived at a barrier."""

    lanes: Lanes
    waits: bool
    pc: int
    #: what they told, where they do not wait
    told: Events | None = None


@dataclass
class Phase:
    """Knowledge released to an mbarrier: in the current phase, and in the last one."""

    told: Events
    over: Events | None = None


@dataclass
class SharedFlag:
    """Knowledge released to a place in shared memory, and the threads that acquired it."""

    told: Events
    event: int
    heard: Events


@dataclass
class Synchronisation:
    """The objects of a wave that threads synchronise through."""

    watch: Reporter
    arrivals: dict[tuple[int, int], list[Arrival]] = field(default_factory=dict)
    phases: dict[int, Phase] = field(default_factory=dict)
    #: lanes that have ever arrived at an mbarrier; pc and lane of the last arrival
    arrived: dict[int, set[int]] = field(default_factory=dict)
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: by place in shared memory: what was released to it
    flags: dict[int, SharedFlag] = field(default_factory=dict)
    #: of warps: what lanes have learnt from flags since all lanes last exchanged registers
    heard: dict[int, Events] = field(default_factory=dict)
    #: of clusters: what was told in the phase under way, and in the last one
    told: dict[int, Events] = field(default_factory=dict)
    over: dict[int, Events] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clocks = self.watch.clocks

    # --- barriers of a block ---

    def arrive(self, lanes: Lanes, barrier: int, *, waits: bool, pc: int) -> None:
        for row, mine in _by_block(lanes, self.clocks.per_block):
            told = None if waits else self.clocks.released(mine, self.watch.now)
            self.arrivals.setdefault((row, barrier), []).append(Arrival(mine, waits, pc, told))

    def complete(self, rows: Lanes, barrier: int) -> None:
        """The barrier of blocks is complete: who waited goes on."""
        regular = []
        for row in rows.tolist():
            arrivals = self.arrivals.pop((row, barrier), [])
            self._check_aligned(arrivals)
            if self._is_everyone(row, arrivals):
                regular.append(row)
            elif arrivals:
                self._meet(row, arrivals)
        if regular:
            self.clocks.block_barrier(np.array(regular), self.watch.tick())
            for row in regular:
                self.watch.gather(row)

    def _is_everyone(self, row: int, arrivals: list[Arrival]) -> bool:
        if not all(arrival.waits for arrival in arrivals):
            return False
        per_block = self.clocks.per_block
        alive = int(self.clocks.wave.alive[row * per_block : (row + 1) * per_block].sum())
        return sum(len(arrival.lanes) for arrival in arrivals) >= alive

    def _meet(self, row: int, arrivals: list[Arrival]) -> None:
        now = self.watch.tick()
        known: Events | None = None
        for arrival in arrivals:
            told = arrival.told
            if told is None:
                told = self.clocks.released(arrival.lanes, now)
            known = told if known is None else wider(known, told)
        assert known is not None
        for arrival in arrivals:
            if arrival.waits:
                self.clocks.acquire(arrival.lanes, known)
        self.watch.gather(row)

    def _check_aligned(self, arrivals: list[Arrival]) -> None:
        """Lanes of one warp must have come to an aligned barrier by one statement."""
        if len({arrival.pc for arrival in arrivals}) < 2:
            return
        seen: dict[int, Arrival] = {}
        for arrival in arrivals:
            for warp in np.unique(arrival.lanes // WARP).tolist():
                first = seen.setdefault(warp, arrival)
                if first.pc == arrival.pc or not self._is_aligned(arrival.pc):
                    continue
                # The same lanes may arrive and, later, wait: others came another way.
                if not np.intersect1d(first.lanes, arrival.lanes).size:
                    self._divergent(first, arrival, warp)

    def _is_aligned(self, pc: int) -> bool:
        return "aligned" in self.watch.all.grid.program.statements[pc].effects

    def _divergent(self, first: Arrival, second: Arrival, warp: int) -> None:
        lanes = second.lanes[second.lanes // WARP == warp]
        others = first.lanes[first.lanes // WARP == warp]
        earlier = Party(self.watch.place(first.pc), *self.watch.who(others), "came to the barrier")
        self.watch.report(
            "divergent barrier",
            lanes,
            "lanes of one warp come to an aligned barrier by different statements",
            earlier,
            first.pc,
            pc=second.pc,
        )

    # --- mbarriers ---

    def tell_mbarrier(self, lanes: Lanes, places: Lanes) -> None:
        """Lanes arrive at mbarriers, by the numbers of their words."""
        clocks = self.clocks
        for place in np.unique(places).tolist():
            mine = lanes[places == place]
            self._tell(place, clocks.released(mine, self.watch.now))
            self._arrived(place, mine)

    def tell_copies(self, lanes: Lanes, places: Lanes) -> None:
        """Lanes arrive at mbarriers, by the numbers of their words, once their cp.async so far are
        complete; of their other accesses that says nothing."""
        clocks = self.clocks
        for place in np.unique(places).tolist():
            mine = lanes[places == place]
            told = clocks.nothing()
            told[Aspect.COPIES, mine % clocks.per_cluster] = self.watch.now
            self._tell(place, told)
            self._arrived(place, mine)

    def _arrived(self, place: int, lanes: Lanes) -> None:
        self.arrived.setdefault(place, set()).update(lanes.tolist())
        self.last[place] = self.watch.statement.pc, int(lanes[-1])

    def last_arrival(self, place: int) -> str:
        """The last arrival at an mbarrier, in words; empty where there is none."""
        if place not in self.last:
            return "; nobody has ever arrived"
        pc, lane = self.last[place]
        wave = self.watch.wave
        block, thread = wave.coordinates(lane)
        is_own = SIZE * place // wave.shared_bytes == lane // wave.lanes_per_cta
        who = f"{'' if is_own else f'block {shown(block)}, '}thread {shown(thread)}"
        return f"; the last arrival was that of {who} at line {self.watch.place(pc).line}"

    def tell_copy(self, place: int) -> int:
        """A copy that signals an mbarrier is issued; the column that it is known by."""
        clocks, cluster = self.clocks, place // self.watch.words_per_cluster
        column = clocks.column(cluster, place)
        told = clocks.nothing()
        told[Aspect.PLAIN, clocks.per_cluster + column] = self.watch.now
        self._tell(place, told)
        return column

    def _tell(self, place: int, told: Events) -> None:
        phase = self.phases.get(place)
        if phase is None:
            self.phases[place] = Phase(told)
        else:
            phase.told = wider(phase.told, told)

    def phases_over(self, places: Lanes) -> None:
        for place in places.tolist():
            phase = self.phases.get(place)
            if phase is not None:
                phase.over = phase.told

    def waited(self, lanes: Lanes, places: Lanes) -> None:
        """Lanes have seen phases of mbarriers end."""
        places = np.broadcast_to(places, lanes.shape)
        for place in np.unique(places).tolist():
            phase = self.phases.get(place)
            if phase is None or phase.over is None:
                continue
            mine = lanes[places == place]
            for cluster in np.unique(mine // self.clocks.per_cluster).tolist():
                some = mine[mine // self.clocks.per_cluster == cluster]
                self.clocks.acquire(some, phase.over)

    # --- shared memory as a flag ---

    def flag(self, lanes: Lanes, places: Lanes, use: str, *, whole: bool) -> None:
        """Lanes read, write or update places strongly; `whole`: with release semantics.

        As of global memory, no fence is demanded of a reader (see `GridKnowledge`).
        """
        fenced = whole or bool(self.watch.fences[lanes].any())
        if not self.flags and (use == "read" or not fenced):
            return
        for place in np.unique(places).tolist():
            mine = lanes[places == place]
            # Of lanes of one statement the order is open: each may have come after all others.
            if use != "read" and (whole or self.watch.fences[mine].any()):
                self._raise(place, self._fenced(mine, whole=whole))
            if use != "write" and place in self.flags:
                self._hear(mine, self.flags[place])

    def _raise(self, place: int, told: Events) -> None:
        have = self.flags.get(place)
        if have is None:
            heard = np.zeros(self.watch.wave.lanes, np.int32)
            self.flags[place] = SharedFlag(told, self.watch.now, heard)
        else:
            have.told, have.event = wider(have.told, told), self.watch.now

    def _hear(self, lanes: Lanes, flag: SharedFlag) -> None:
        lanes = lanes[flag.heard[lanes] < flag.event]
        if not lanes.size:
            return
        flag.heard[lanes] = flag.event
        self.clocks.acquire(lanes, flag.told)
        for warp in np.unique(lanes // WARP).tolist():
            have = self.heard.get(warp)
            self.heard[warp] = flag.told if have is None else wider(have, flag.told)

    def exchanged(self, lanes: Lanes) -> None:
        """Lanes of warps exchange registers: what follows in one is not before what another has
        learnt. PTX promises no such thing of shfl; cooperative groups build on it."""
        if not self.heard:
            return
        alive = self.watch.wave.alive.reshape(-1, WARP).sum(1)
        for warp in np.unique(lanes // WARP).tolist():
            if warp in self.heard:
                mine = lanes[lanes // WARP == warp]
                self.clocks.acquire(mine, self.heard[warp])
                if len(mine) == alive[warp]:
                    del self.heard[warp]

    def _fenced(self, lanes: Lanes, *, whole: bool) -> Events:
        """The knowledge that lanes release; unless `whole`, that of their last fence."""
        told = self.clocks.released(lanes, self.watch.now)
        if not whole:
            known = [Aspect.PLAIN, Aspect.READS]
            fenced = max(int(self.watch.fences[lanes].max()), STARTED)
            told[known] = np.minimum(told[known], fenced)
        return told

    # --- clusters ---

    def arrive_at_cluster(self, lanes: Lanes, *, relaxed: bool) -> None:
        """Lanes arrive; `relaxed`: what they tell is what they knew at their last fence."""
        for cluster in np.unique(lanes // self.clocks.per_cluster).tolist():
            mine = lanes[lanes // self.clocks.per_cluster == cluster]
            told = self._fenced(mine, whole=not relaxed)
            have = self.told.get(cluster)
            self.told[cluster] = told if have is None else wider(have, told)

    def cluster_phase_over(self, clusters: Lanes) -> None:
        for cluster in clusters.tolist():
            if cluster in self.told:
                self.over[cluster] = self.told.pop(cluster)

    def wait_at_cluster(self, lanes: Lanes) -> None:
        for cluster in np.unique(lanes // self.clocks.per_cluster).tolist():
            if cluster in self.over:
                mine = lanes[lanes // self.clocks.per_cluster == cluster]
                self.clocks.acquire(mine, self.over[cluster])


def _by_block(lanes: Lanes, per_block: int) -> Iterator[tuple[int, Lanes]]:
    """The rows of blocks of ascending lanes, and the lanes of each."""
    if lanes.size:
        first = np.arange(lanes[0] // per_block, lanes[-1] // per_block + 1)
        ends = np.searchsorted(lanes, (first + 1) * per_block).tolist()
        for row, start, end in zip(first.tolist(), [0, *ends], ends, strict=False):
            if start < end:
                yield row, lanes[start:end]


def warps_complete(s: Strand, masks: Array) -> Array:
    """For each lane whether the membermask names all lanes of its warp that have not ended."""
    wave = s.wave
    warps = wave.warps_of(s)
    alive = wave.alive_bits(warps.numbers)
    wanted = np.bitwise_or.reduceat(s.spread(masks), warps.starts)
    whole = (alive & ~wanted) == 0
    out: Array = np.repeat(whole, np.diff(warps.starts, append=len(s)))
    return out
