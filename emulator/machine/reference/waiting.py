"""Reference engine: threads that wait, as the table of a deadlock wants to know them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emulator.machine.reference import mbarriers
from emulator.machine.reference.schedule import placed
from emulator.machine.reference.thread import Cluster, Thread
from emulator.machine.shared import deadlock as shared
from emulator.machine.shared.deadlock import PhaseLack, Row
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.waiting import BEHIND, State
from emulator.ptx.program import Statement


def deadlock(clusters: Sequence[Cluster]) -> Exception:
    """The error that says who waits where, and for what."""
    groups = [threads for cluster in clusters for threads in _groups(cluster)]
    first = groups[0]
    failure = Failure("deadlock", shared.reason([_row(threads) for threads in groups]))
    return placed(failure, first, _statement(first[0]))


def pc_of(thread: Thread) -> int:
    """The number of the statement that a thread waits at."""
    return thread.pc - (thread.state in BEHIND)


def _statement(thread: Thread) -> Statement:
    return thread.run.program.statements[pc_of(thread)]


def what_for(threads: Sequence[Thread]) -> str:
    """A text for the condition that threads of one warp wait for."""
    row = _row(threads)
    rows = [_row(group) for group in _groups(threads[0].cluster)]
    return shared.what_for(row, [other for other in rows if row.is_beside(other)])


def _groups(cluster: Cluster) -> list[list[Thread]]:
    """Threads of one warp that wait alike."""
    groups: dict[tuple[object, ...], list[Thread]] = {}
    for thread in cluster.threads:
        if thread.state is not State.ENDED:
            groups.setdefault((thread.warp, thread.pc, thread.state), []).append(thread)
    return list(groups.values())


def _row(threads: Sequence[Thread]) -> Row:
    first, lanes = threads[0], np.array([thread.number for thread in threads])
    wait = first.wait
    if isinstance(wait, mbarriers.Waiting):
        words, place = mbarriers.words_of(first, wait.barrier)
        ledger, _ = mbarriers.ledger_of(first, wait.barrier)
        phase = wait.phase
        word, history = int(words[place]), ledger[place]
        wait = PhaseLack(wait.barrier, phase.test, int(phase.given), word, history)
    return Row(first.cluster, first.block.rank, lanes, _statement(first), first.state, wait)
