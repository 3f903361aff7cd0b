"""Reference engine: the table of a deadlock, who waits where, and for what."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.machine.reference.barriers import Waiting
from emulator.machine.reference.mbarriers import ledger_of, waiting_of, words_of
from emulator.machine.reference.schedule import placed
from emulator.machine.reference.thread import WARP, Cluster, Thread
from emulator.machine.shared.barriers import arrival_text
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.phases import SIZE
from emulator.machine.shared.waiting import BEHIND, FOR_OTHERS, State, Waiter, ended_text, table


def deadlock(clusters: Sequence[Cluster]) -> Exception:
    """The error that says who waits where, and for what."""
    groups: dict[tuple[object, ...], list[Thread]] = {}
    for cluster in clusters:
        for thread in cluster.threads:
            if thread.state is not State.ENDED:
                key = thread.block.index, thread.warp.number, thread.pc, thread.state
                groups.setdefault(key, []).append(thread)
    rows = table(_waiter(threads) for threads in groups.values())
    reason = "\n".join(["no thread can ever go on:", *rows])
    first = next(iter(groups.values()))
    statement = first[0].run.program.statements[pc_of(first[0])]
    return placed(Failure("deadlock", reason), first, statement)


def pc_of(thread: Thread) -> int:
    """The number of the statement that a thread waits at."""
    return thread.pc - (thread.state in BEHIND)


def _waiter(threads: Sequence[Thread]) -> Waiter:
    """Threads of one warp that wait for the same."""
    first = threads[0]
    place = first.run.launch.place_of(first.run.program.statements[pc_of(first)])
    return Waiter(first.block.index, [t.index for t in threads], place, what_for(threads))


def what_for(threads: Sequence[Thread]) -> str:
    """A text for the condition that threads of one warp wait for."""
    first = threads[0]
    if first.state is State.BARRIER:
        return _barrier(first)
    if first.state is State.MBARRIER:
        return _mbarrier(first)
    if first.state is State.CLUSTER:
        missing = [
            t
            for t in first.cluster.threads
            if t.state is not State.ENDED and t not in first.cluster.arrived
        ]
        return f"barrier of the cluster: {len(missing)} threads have not arrived"
    if first.state in FOR_OTHERS:
        absent = [t.index for t in first.warp.alive if t not in threads]
        return f"{first.state.value}; threads of its warp elsewhere: {absent or 'none'}"
    if first.state is State.TENSOR:
        return first.state.value
    if first.state is State.PAIR:
        peer = first.cluster.blocks[first.block.rank ^ 1]
        ended = all(thread.state is State.ENDED for thread in peer.threads)
        return f"{first.state.value}: block {peer.index}{', which has ended' if ended else ''}"
    return "looks at memory that no thread changes"


def _barrier(thread: Thread) -> str:
    assert isinstance(thread.wait, Waiting)
    number = thread.wait.number
    barrier = thread.block.barriers[number]
    whole = barrier.expected or WARP * sum(bool(warp.alive) for warp in thread.block.warps)
    text = arrival_text(number, barrier.arrived, whole)
    partly = len(barrier.partly)
    return text + (f"; of {partly} warps only some lanes" if partly else "")


def _mbarrier(thread: Thread) -> str:
    wait = waiting_of(thread)
    words, place = words_of(thread, wait.barrier)
    name = thread.run.launch.shared_name(place * SIZE, SIZE)
    ledger, _ = ledger_of(thread, wait.barrier)
    lacking = wait.phase.test.lacking(int(words[place]), ledger[place], int(wait.phase.given))
    text = f"mbarrier {name}, {lacking}"
    return text + ended_text([warp.number for warp in thread.block.warps if not warp.alive])
