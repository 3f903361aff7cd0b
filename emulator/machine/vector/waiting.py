"""Vector engine: who can go on where all threads wait, and the error where nobody can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emulator.machine.shared.barriers import arrival_text
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.phases import SIZE
from emulator.machine.shared.place import shown, spans
from emulator.machine.shared.waiting import (
    BEHIND,
    FOR_OTHERS,
    State,
    Waiter,
    ended_text,
    table,
    threads_text,
)
from emulator.machine.vector import mbarriers
from emulator.machine.vector.barriers import waits_at
from emulator.machine.vector.strand import WARP, Lanes, Strand

if TYPE_CHECKING:
    from emulator.machine.vector.wave import Wave

#: rows among which a circle is looked for
_MOST_ROWS = 64


def resume(wave: Wave) -> bool:
    """Lets strands of a wave go on that wait for what time alone brings; False if there are none.

    First what was issued and is under way takes effect; then every try_wait gives up, as it may.
    """
    return wave.pending.finish() or mbarriers.time_out(wave)


def deadlock(waves: list[Wave]) -> Exception:
    """The error that says who waits where, and for what."""
    rows = [row for wave in waves for row in _rows(wave)]
    lines = table(map(_waiter, rows))
    if circle := _circle(rows[:_MOST_ROWS]):
        lines.append("  " + ", which waits for ".join(f"{_who(row)}" for row in circle))
    reason = "\n".join(["no thread can ever go on:", *lines])
    first = min((*waves[0].waiting, *waves[0].ready), key=lambda s: int(s.lanes[0]))
    statement = first.wave.grid.program.statements[_place(first)]
    placed: Exception = first.wave.grid.placed(Failure("deadlock", reason), first, statement)
    return placed


def _place(strand: Strand) -> int:
    """The number of the statement that a strand waits at."""
    return strand.pc - (strand.state in BEHIND)


class _Row(NamedTuple):
    """Threads of one block that wait for the same."""

    wave: Wave
    strand: Strand
    #: the block's number in the wave
    block: int
    lanes: Lanes


def _rows(wave: Wave) -> Iterator[_Row]:
    """A row for each strand that waits and each block that it has threads in."""
    for strand in wave.waiting:
        rows = wave.row(strand)
        for block in np.unique(rows).tolist():
            yield _Row(wave, strand, block, strand.lanes[rows == block])


def _waiter(row: _Row) -> Waiter:
    grid = row.wave.grid
    place = grid.launch.place_of(grid.program.statements[_place(row.strand)])
    block, _ = row.wave.coordinates(int(row.lanes[0]))
    threads = (row.lanes % row.wave.lanes_per_cta).tolist()
    return Waiter(block, threads, place, _WHAT[row.strand.state](*row))


def _who(row: _Row) -> str:
    block, threads, *_ = _waiter(row)
    return f"block {shown(block)}, {threads_text(threads)}"


# --- who waits for whom ---------------------------------------------------------------------------


def _circle(rows: list[_Row]) -> list[_Row]:
    """Rows each of which waits for threads of the next, the last for those of the first, which
    stands at both ends; empty where none is seen."""
    needs = [_needed(row) for row in rows]
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


def _meets(row: _Row, other: _Row, needed: Lanes) -> bool:
    return row.wave is other.wave and bool(np.isin(other.lanes, needed).any())


def _needed(row: _Row) -> Lanes:
    """The threads that a row waits for, as far as that is known."""
    wave, strand, block, lanes = row
    if strand.state is State.BARRIER:
        first = block * wave.lanes_per_cta
        every = np.arange(first, first + wave.lanes_per_cta)
        at = [other.lanes for other in wave.waiting if waits_at(other) == waits_at(strand)]
        return every[wave.alive[every] & ~np.isin(every, np.concatenate(at))]
    if strand.state in FOR_OTHERS:
        size = WARP if strand.state is State.WARP else 4 * WARP
        every = np.flatnonzero(np.isin(np.arange(len(wave.alive)) // size, lanes // size))
        return every[wave.alive[every] & ~np.isin(every, lanes)]
    if strand.state is State.PAIR:
        every = (block ^ 1) * wave.lanes_per_cta + np.arange(wave.lanes_per_cta)
        return every[wave.alive[every]]
    if strand.state is State.MBARRIER and wave.watch is not None:
        places = np.broadcast_to(mbarriers.waiting_of(strand).places, (len(strand),))
        arrived = [wave.watch.sync.arrived.get(int(place)) for place in np.unique(places)]
        return np.array(sorted(set().union(*(x for x in arrived if x))), np.int64)
    return np.zeros(0, np.int64)


def _barrier(wave: Wave, strand: Strand, block: int, lanes: Lanes) -> str:
    number, barriers = waits_at(strand), wave.barriers
    assert number is not None
    arrived, wanted = barriers.arrived[block, number], barriers.expected[block, number]
    warps = np.arange(block * wave.warps_per_cta, (block + 1) * wave.warps_per_cta)
    alive = wave.alive_bits(warps) != 0
    whole = int(wanted) or int(alive.sum()) * WARP
    at = {
        int(warp)
        for other in wave.waiting
        if waits_at(other) == number
        for warp in np.unique(other.lanes // WARP)
    }
    missing = [i for i, warp in enumerate(warps.tolist()) if alive[i] and warp not in at]
    partly = int(np.count_nonzero(barriers.partly[warps, number]))
    text = arrival_text(number, int(arrived), whole)
    if missing and not wanted:
        text += f"; missing warps {spans(np.array(missing))}"
    ended = int((~wave.alive.reshape(-1, WARP)[warps]).all(-1).sum())
    if ended and wanted:
        text += f"; {ended} warps of the block have ended"
    return text + (f"; of {partly} warps only some lanes" if partly else "")


def _mbarrier(wave: Wave, strand: Strand, block: int, lanes: Lanes) -> str:
    wait = mbarriers.waiting_of(strand)
    given = np.atleast_1d(wait.phases.given)
    index = int(np.searchsorted(strand.lanes, lanes[0]))
    place = int(wait.places[index if len(wait.places) > 1 else 0])
    phase = int(given[index if len(given) > 1 else 0])
    row, offset = divmod(SIZE * place, wave.shared_bytes)
    name = wave.grid.launch.shared_name(offset, SIZE)
    where = name if row == block else f"{name} of block {wave.ctas[row]}"
    word, history = int(mbarriers.words_of(wave)[place]), int(wave.ledger[place])
    text = f"mbarrier {where}, {wait.phases.test.lacking(word, history, phase)}"
    here = wave.alive[block * wave.lanes_per_cta :][: wave.lanes_per_cta]
    text += ended_text(np.flatnonzero(~here.reshape(-1, WARP).any(-1)).tolist())
    return text + ("" if wave.watch is None else wave.watch.sync.last_arrival(place))


def _cluster(wave: Wave, strand: Strand, block: int, lanes: Lanes) -> str:
    clusters = wave.clusters
    mine = clusters.of_lanes(np.arange(len(wave.thread))) == clusters.of_lanes(lanes[:1])[0]
    missing = np.flatnonzero(mine & wave.alive & (clusters.arrived < 0))
    blocks = np.unique(missing // wave.lanes_per_cta)
    names = ", ".join(str(wave.coordinates(int(b) * wave.lanes_per_cta)[0]) for b in blocks[:4])
    return f"barrier of the cluster: {len(missing)} threads of blocks {names} have not arrived"


def _warp(wave: Wave, strand: Strand, block: int, lanes: Lanes) -> str:
    absent = []
    for warp in np.unique(lanes // WARP).tolist():
        every = np.arange(warp * WARP, (warp + 1) * WARP)
        absent += every[wave.alive[every] & ~np.isin(every, lanes)].tolist()
    others = spans(np.array(absent) % wave.lanes_per_cta) if absent else "none"
    return f"{strand.state.value}; threads elsewhere: {others}"


def _pair(wave: Wave, strand: Strand, block: int, lanes: Lanes) -> str:
    peer = wave.lanes_per_cta * (block ^ 1)
    name, _ = wave.coordinates(peer)
    ended = not wave.alive[peer : peer + wave.lanes_per_cta].any()
    return f"{strand.state.value}: block {name}{', which has ended' if ended else ''}"


_WHAT: dict[State, Callable[[Wave, Strand, int, Lanes], str]] = {
    State.BARRIER: _barrier,
    State.MBARRIER: _mbarrier,
    State.CLUSTER: _cluster,
    State.WARP: _warp,
    State.WARPGROUP: _warp,
    State.TENSOR: lambda wave, strand, block, lanes: strand.state.value,
    State.PAIR: _pair,
}
