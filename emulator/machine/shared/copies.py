"""All engines: cp.async, copies of a few bytes by each thread, groups of copies, and arrivals
behind them (PTX ISA 9.7.9.25.3, 9.7.9.25.4, 9.7.13.15.15). An engine moves the bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emulator.machine.shared.issuing import (
    Executor,
    LaneOperands,
    MakeAtOnce,
    Places,
    RunAtOnce,
    require,
)
from emulator.machine.shared.pending import Pending, Transfer
from emulator.memory.mbarrier import Change


def copy(operands: LaneOperands) -> RunAtOnce:
    """cp.async of 4, 8 or 16 bytes; what lies behind the size of the source becomes zeros."""
    target, source = operands.address("dst"), operands.address("src")
    size = operands.constant("size")
    used = operands.number("source_size", size)
    ignored = operands.word("ignore", "pred") if "ignore" in operands else None

    def run(who: Executor) -> None:
        sizes = used(who)
        if ignored is not None:
            sizes = sizes * (1 - ignored(who))
        text = f"{size} are copied"
        require(sizes <= size, "cp.async", lambda n: f"the source has {n} bytes; {text}", sizes)
        who.copy(target(who), source(who), sizes, size)

    return run


def arrive_after_copies(operands: LaneOperands) -> RunAtOnce:
    """cp.async.mbarrier.arrive: an arrival once the thread's copies are done; without .noinc it is
    one that was not counted before."""
    barrier, noinc = operands.barrier(), operands.modifier("noinc")

    def run(who: Executor) -> None:
        at, pending = barrier(who), who.pending
        places = np.broadcast_to(at, who.lanes.shape)
        if who.watch is not None:
            who.watch.copies_arrive(who.lanes, places)
        if not noinc:
            who.change_barriers(at, Change(arrivals=-1))
        if pending.at_once:
            who.change_barriers(at, Change(arrivals=1))
            return
        for lane, place in zip(who.lanes.tolist(), places.tolist(), strict=True):
            pending.transfer(Transfer(lane, _arrival(who, lane, place), place))

    return run


def _arrival(who: Executor, lane: int, barrier: int) -> Callable[[], None]:
    def perform() -> None:
        who.pending.wait_copies(np.array([lane]), None)
        who.change_barriers(barrier, Change(arrivals=1))

    return perform


# --- groups ---------------------------------------------------------------------------------------


def _commit(commit: Callable[[Pending, Places], None]) -> MakeAtOnce:
    """Closes the group of copies that each thread is filling."""
    return lambda operands: lambda who: commit(who.pending, who.lanes)


def _wait(wait: Callable[[Pending, Places, int], None]) -> MakeAtOnce:
    """Waits for all but the newest committed groups, as many as the statement says."""

    def make(operands: LaneOperands) -> RunAtOnce:
        newest = operands.constant("n")
        return lambda who: wait(who.pending, who.lanes, newest)

    return make


AT_ONCE: dict[str, MakeAtOnce] = {
    "cp.async": copy,
    "cp.async.mbarrier.arrive": arrive_after_copies,
    "cp.async.commit_group": _commit(Pending.commit_copies),
    "cp.async.wait_group": _wait(Pending.wait_copies),
    "cp.async.wait_all": lambda _: lambda who: who.pending.wait_copies(who.lanes, None),
    "cp.async.bulk.commit_group": _commit(Pending.commit_bulk),
    "cp.async.bulk.wait_group": _wait(Pending.wait_bulk),
}
