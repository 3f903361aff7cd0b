"""All engines: states of threads, and the table of a deadlock, threads that wait, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from emulator.machine.shared.place import Index, Place, shown, spans

#: backward branches after which threads let others go first; fewer where they look at memory that
#: others may change
TURNS, POLLS = 4096, 16
#: rows of the table
_ROWS = 12
#: blocks of one row that are named
_BLOCKS = 4
_WARP = 32


class State(Enum):
    """State of a thread, or of lanes that run together."""

    READY = "ready"
    #: parts of the lanes go on in their place
    SPLIT = "split"
    WARP = "waits for lanes of its warp"
    WARPGROUP = "waits for warps of its warpgroup"
    BARRIER = "waits at a barrier"
    CLUSTER = "waits at the barrier of its cluster"
    MBARRIER = "waits for a phase of an mbarrier"
    TENSOR = "waits for columns of tensor memory"
    PAIR = "waits for a warp of the other block of its pair to execute it, too"
    ENDED = "ended"


#: states of threads that have executed the statement that they wait at
BEHIND = (State.BARRIER, State.CLUSTER, State.MBARRIER)
#: states of threads that wait for others to execute a statement with them
FOR_OTHERS = (State.WARP, State.WARPGROUP)


class Waiter(NamedTuple):
    """Threads of one block that wait for the same."""

    block: Index
    #: their numbers in the block, ascending
    threads: Sequence[int]
    place: Place
    #: the condition that they wait for
    what: str


def table(waiters: Iterable[Waiter]) -> list[str]:
    """A row for each place and condition; warps and blocks that wait alike share one."""
    alike: dict[tuple[str, Index], list[int]] = {}
    for block, threads, place, what in waiters:
        source = f", {', inlined at '.join(place.source)}" if place.source else ""
        text = f"at line {place.line}{source}: {what}"
        alike.setdefault((text, block), []).extend(threads)
    rows: dict[tuple[str, str], list[Index]] = {}
    for (text, block), inside in alike.items():
        rows.setdefault((threads_text(sorted(inside)), text), []).append(block)
    shown_rows = [f"  {_blocks(blocks)}, {who} {text}" for (who, text), blocks in rows.items()]
    left = len(shown_rows) - _ROWS
    return [*shown_rows[:_ROWS], *([f"  and {left} more like these"] if left > 0 else [])]


def threads_text(threads: Sequence[int]) -> str:
    """Threads of one block, ascending, in words."""
    warps = np.unique(np.array(threads) // _WARP)
    if len(warps) > 1:
        return f"warps {spans(warps)} ({len(threads)} threads)"
    low, high = threads[0], threads[-1]
    inside = f"{len(threads)} threads, {low} to {high}" if high > low else f"thread {low}"
    return f"warp {warps[0]} ({inside})"


def _blocks(blocks: Sequence[Index]) -> str:
    names = ", ".join(shown(block) for block in blocks[:_BLOCKS])
    more = f" and {len(blocks) - _BLOCKS} more" if len(blocks) > _BLOCKS else ""
    return f"block{'s' * (len(blocks) > 1)} {names}{more}"


def ended_text(warps: Sequence[int]) -> str:
    """The end of a row, for warps of the block that have ended; "" for none."""
    if not len(warps):
        return ""
    verb = "have" if len(warps) > 1 else "has"
    return f"; warp{'s' * (len(warps) > 1)} {spans(np.array(warps))} {verb} ended"
