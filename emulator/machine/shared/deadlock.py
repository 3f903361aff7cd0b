"""All engines: the words of a deadlock, a table of who waits where, and for what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from emulator.layout.lanemap import WARP
from emulator.machine.shared.arrivals import BlockBarriers, ClusterBarriers, Lanes, Residents
from emulator.machine.shared.launching import RunningLaunch
from emulator.machine.shared.phases import SIZE, PhaseTest
from emulator.machine.shared.place import Index, shown, spans
from emulator.machine.shared.waiting import FOR_OTHERS, BarrierWait, State
from emulator.ptx.program import Statement

#: rows of the table, and those among which a circle is looked for
_ROWS, _MOST_ROWS = 12, 64
#: blocks of one row that are named
_BLOCKS = 4


class Stuck(Residents, Protocol):
    """Thread blocks that run together, whose threads wait."""

    barriers: BlockBarriers
    clusters: ClusterBarriers

    @property
    def launch(self) -> RunningLaunch: ...
    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""

    def coordinates(self, lane: int) -> tuple[Index, Index]:
        """Block and thread of a lane."""


class PhaseLack(NamedTuple):
    """A phase of an mbarrier that threads wait for."""

    #: the barrier's number among the 8-byte words of shared memory of all blocks
    barrier: int
    test: PhaseTest
    #: the parity or token, the word of the barrier, and its history (`memory.mbarrier`)
    given: int
    word: int
    history: int


class Row(NamedTuple):
    """Threads of one block that wait for the same."""

    here: Stuck
    #: the block's number among those
    block: int
    lanes: Lanes
    #: where they wait
    statement: Statement
    state: State
    #: a BarrierWait, a PhaseLack, or nothing more than the state says
    wait: object

    @property
    def threads(self) -> Lanes:
        """Their numbers in the block."""
        return self.lanes % self.here.lanes_per_cta

    @property
    def block_index(self) -> Index:
        return self.here.coordinates(int(self.lanes[0]))[0]

    @property
    def barrier(self) -> int | None:
        """The barrier of the block that they wait at; None: at none."""
        return self.wait.number if isinstance(self.wait, BarrierWait) else None

    def is_beside(self, other: Row) -> bool:
        """True for threads of the same block."""
        return self.here is other.here and self.block == other.block

    def lanes_of(self, block: int) -> Lanes:
        """All lanes of a block."""
        return block * self.here.lanes_per_cta + np.arange(self.here.lanes_per_cta)


def reason(rows: Sequence[Row]) -> str:
    """The reason of a deadlock of all these threads."""
    lines = [*table(rows)]
    if circle := _circle(rows[:_MOST_ROWS]):
        names = (f"block {shown(row.block_index)}, {_threads(row.threads)}" for row in circle)
        lines.append("  " + ", which waits for ".join(names))
    return "\n".join(["no thread can ever go on:", *lines])


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each place and condition; warps and blocks that wait alike share one."""
    beside: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        beside.setdefault((id(row.here), row.block), []).append(row)
    alike: dict[tuple[str, Index], list[int]] = {}
    for row in rows:
        place = row.here.launch.place_of(row.statement)
        source = f", {', inlined at '.join(place.source)}" if place.source else ""
        what = what_for(row, beside[id(row.here), row.block])
        text = f"at line {place.line}{source}: {what}"
        alike.setdefault((text, row.block_index), []).extend(row.threads.tolist())
    lines: dict[tuple[str, str], list[Index]] = {}
    for (text, block), inside in alike.items():
        lines.setdefault((_threads(np.sort(inside)), text), []).append(block)
    for (who, text), blocks in list(lines.items())[:_ROWS]:
        yield f"  {_blocks(blocks)}, {who} {text}"
    if len(lines) > _ROWS:
        yield f"  and {len(lines) - _ROWS} more like these"


def _threads(threads: Lanes) -> str:
    """Threads of one block, ascending, in words."""
    warps = np.unique(threads // WARP)
    if len(warps) > 1:
        return f"warps {spans(warps)} ({len(threads)} threads)"
    low, high = threads[0], threads[-1]
    inside = f"{len(threads)} threads, {low} to {high}" if high > low else f"thread {low}"
    return f"warp {warps[0]} ({inside})"


def _blocks(blocks: Sequence[Index]) -> str:
    names = ", ".join(shown(block) for block in blocks[:_BLOCKS])
    more = f" and {len(blocks) - _BLOCKS} more" if len(blocks) > _BLOCKS else ""
    return f"block{'s' * (len(blocks) > 1)} {names}{more}"


# --- who waits for whom ---------------------------------------------------------------------------


def _circle(rows: Sequence[Row]) -> list[Row]:
    """Rows each of which waits for threads of the next, the last for those of the first, which
    stands at both ends; empty where none is seen."""
    needs = [_needed(row, rows) for row in rows]
    following = [
        [j for j, other in enumerate(rows) if j != i and _meets(row, other, needs[i])]
        for i, row in enumerate(rows)
    ]
    for start in range(len(rows)):
        path, seen = [start], {start}
        while True:
            later = following[path[-1]]
            if start in later:
                return [rows[i] for i in (*path, start)]
            fresh = [j for j in later if j not in seen]
            if not fresh:
                break
            path.append(fresh[0])
            seen.add(fresh[0])
    return []


def _meets(row: Row, other: Row, needed: Lanes) -> bool:
    return row.here is other.here and bool(np.isin(other.lanes, needed).any())


def _needed(row: Row, rows: Sequence[Row]) -> Lanes:
    """The threads that a row waits for, as far as that is known."""
    here, alive = row.here, row.here.alive
    if row.state is State.BARRIER:
        every = row.lanes_of(row.block)
        at = [x.lanes for x in rows if row.is_beside(x) and x.barrier == row.barrier]
        return every[alive[every] & ~np.isin(every, np.concatenate(at))]
    if row.state in FOR_OTHERS:
        size = WARP if row.state is State.WARP else 4 * WARP
        every = np.flatnonzero(np.isin(np.arange(len(alive)) // size, row.lanes // size))
        return every[alive[every] & ~np.isin(every, row.lanes)]
    if row.state is State.PAIR:
        every = row.lanes_of(row.block ^ 1)
        return every[alive[every]]
    if isinstance(row.wait, PhaseLack) and here.watch is not None:
        return np.array(sorted(here.watch.sync.arrived.get(row.wait.barrier, ())), np.int64)
    return np.zeros(0, np.int64)


# --- conditions -----------------------------------------------------------------------------------


def what_for(row: Row, beside: Sequence[Row]) -> str:
    """The condition that threads wait for; `beside` are the rows of their block."""
    if row.barrier is not None:
        return _barrier(row, row.barrier, beside)
    if isinstance(row.wait, PhaseLack):
        return _mbarrier(row, row.wait)
    if row.state is State.CLUSTER:
        return _cluster(row)
    if row.state in FOR_OTHERS:
        warps = np.isin(np.arange(len(row.here.alive)) // WARP, row.lanes // WARP)
        absent = np.setdiff1d(np.flatnonzero(warps & row.here.alive), row.lanes)
        others = spans(absent % row.here.lanes_per_cta) if len(absent) else "none"
        return f"{row.state.value}; threads elsewhere: {others}"
    if row.state is State.PAIR:
        peer = row.lanes_of(row.block ^ 1)
        name = shown(row.here.coordinates(int(peer[0]))[0])
        ended = "" if row.here.alive[peer].any() else ", which has ended"
        return f"{row.state.value}: block {name}{ended}"
    if row.state is State.READY:
        return "looks at memory that no thread changes"
    return row.state.value


def _barrier(row: Row, number: int, beside: Sequence[Row]) -> str:
    counts, per_block = row.here.barriers, row.here.lanes_per_cta // WARP
    wanted = int(counts.expected[row.block, number])
    whole = wanted or int(counts.alive(np.array([row.block]))[0])
    text = f"barrier {number}: {counts.arrived[row.block, number]} of {whole} threads arrived"
    warps = row.block * per_block + np.arange(per_block)
    alive = row.here.alive_bits(warps) != 0
    there = np.concatenate([x.lanes // WARP for x in beside if x.barrier == number])
    missing = np.flatnonzero(alive & ~np.isin(warps, there))
    if len(missing) and not wanted:
        text += f"; missing warps {spans(missing)}"
    ended = np.count_nonzero(~alive)
    if ended and wanted:
        text += f"; {ended} warps of the block have ended"
    partly = np.count_nonzero(counts.partly[warps, number])
    return text + (f"; of {partly} warps only some lanes" if partly else "")


def _mbarrier(row: Row, lack: PhaseLack) -> str:
    here = row.here
    block, offset = divmod(SIZE * lack.barrier, here.shared_bytes)
    name = here.launch.shared_name(offset, SIZE)
    if block != row.block:
        name += f" of block {shown(here.coordinates(block * here.lanes_per_cta)[0])}"
    text = f"mbarrier {name}, {lack.test.lacking(lack.word, lack.history, lack.given)}"
    ended = np.flatnonzero(~here.alive[row.lanes_of(row.block)].reshape(-1, WARP).any(-1))
    if len(ended):
        verb = "have" if len(ended) > 1 else "has"
        text += f"; warp{'s' * (len(ended) > 1)} {spans(ended)} {verb} ended"
    return text + ("" if here.watch is None else here.watch.sync.last_arrival(lack.barrier))


def _cluster(row: Row) -> str:
    here, clusters = row.here, row.here.clusters
    every = clusters.of_lanes(np.arange(len(here.alive)))
    mine = every == clusters.of_lanes(row.lanes[:1])
    missing = np.flatnonzero(mine & here.alive & (clusters.arrived < 0))
    starts = np.unique(missing // here.lanes_per_cta) * here.lanes_per_cta
    blocks = _blocks([here.coordinates(lane)[0] for lane in starts.tolist()])
    return f"barrier of the cluster: {len(missing)} threads of {blocks} have not arrived"
