"""All engines: errors at barriers of a thread block and of a cluster (PTX ISA 9.7.13.1,
9.7.13.4)."""

from __future__ import annotations

from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Words

#: barriers of a block
BARRIERS = 16
_WARP = 32


def is_wrong(number: Words, threads: Words) -> Words:
    """True where no barrier has the number, or none can count so many threads; also for arrays."""
    return (number >= BARRIERS) | (threads % _WARP != 0)


def wrong_barrier(number: int, threads: int, index: int | None = None) -> Failure:
    """There is no such barrier."""
    reason = f"a barrier counts threads in whole warps; got {threads}"
    if number >= BARRIERS:
        reason = f"there are barriers 0 to {BARRIERS - 1}; got {number}"
    return Failure("barrier", reason, index)


def other_count(number: int, threads: int, others: int, index: int | None = None) -> Failure:
    """Threads come to a barrier with another count than those that have arrived; 0: all."""
    return Failure(
        "barrier",
        f"barrier {number} is for {threads or 'all'} threads here, and for {others or 'all'} where "
        "others have arrived",
        index,
    )


def too_many(number: int, arrived: int, wanted: int) -> Failure:
    """More threads arrive at a barrier than it is for."""
    return Failure(
        "barrier", f"{arrived} threads arrived at barrier {number}, which is for {wanted}"
    )


def arrival_text(number: int, arrived: int, wanted: int) -> str:
    """Progress of a barrier, for messages."""
    return f"barrier {number}: {arrived} of {wanted} threads arrived"


def arrives_twice(index: int | None = None) -> Failure:
    """A thread arrives again at the barrier of its cluster."""
    reason = "barrier.cluster.arrive twice without a wait between them"
    return Failure("cluster barrier", reason, index)


def waits_early(index: int | None = None) -> Failure:
    """A thread waits at the barrier of its cluster and has not arrived."""
    return Failure("cluster barrier", "barrier.cluster.wait without an arrive before it", index)
