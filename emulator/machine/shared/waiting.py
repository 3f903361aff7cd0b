"""All engines: states of threads, and what they wait for at a barrier."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

#: backward branches after which threads let others go first; fewer where they look at memory that
#: others may change
TURNS, POLLS = 4096, 16


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


class BarrierWait(NamedTuple):
    """The barrier of their block that threads wait at."""

    number: int
    #: is told the threads that go on, and how many have voted at it, and how many of them true
    finish: Callable[..., None] | None
