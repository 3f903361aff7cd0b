"""Reference engine: threads of a warp that come to a barrier at once, as the statements of
`machine.shared` ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from dtypes import Array
from emulator.layout.lanemap import WARP
from emulator.machine.reference.issuer import combination, readers
from emulator.machine.reference.operands import Read, Write, guard_of, writer
from emulator.machine.reference.thread import Thread, Together
from emulator.machine.shared.arrivals import Warps
from emulator.machine.shared.issuing import Arrival, LaneOperands, MakeMeeting
from emulator.machine.shared.operands import Words
from emulator.machine.shared.waiting import BarrierWait, State
from emulator.ptx.program import Function, Statement


class Meeting:
    """Threads at a barrier: a `Meeting` of `machine.shared.issuing`."""

    def __init__(
        self, threads: Sequence[Thread], reads: list[Read], writes: list[Write], following: int
    ) -> None:
        self.threads, self.reads, self.writes, self.following = threads, reads, writes, following
        self.cluster = threads[0].cluster
        start = threads[0].number - threads[0].lane
        self.lanes = np.array([start + thread.lane for thread in threads])

    def word(self, place: int) -> Array:
        return np.array([self.reads[place](thread) for thread in self.threads])

    def write(self, place: int, words: Words) -> None:
        for thread, word in self._each(words):
            self.writes[place](thread, int(word))

    def _each(self, words: Words) -> Iterator[tuple[Thread, int]]:
        """The threads, each with its word."""
        return zip(self.threads, np.broadcast_to(words, len(self.threads)).tolist(), strict=True)

    def arrive(self, arrival: Arrival) -> None:
        finish = arrival.finish

        def goes_on(thread: Thread, voted: int, true: int) -> None:
            assert finish is not None
            finish(Meeting([thread], [], self.writes, self.following), voted, true)

        def stop(mask: Array | None, number: int) -> None:
            wait = BarrierWait(number, goes_on if finish else None)
            self._wait(State.BARRIER, arrival.waits if mask is None else mask & arrival.waits, wait)

        bits = np.array([sum(1 << thread.lane for thread in self.threads)], np.uint32)
        warp = Warps(self.lanes[:1] // WARP, np.zeros(1, np.int64), bits)
        self.cluster.barriers.arrive(self.lanes, warp, arrival, self.following - 1, stop)

    def arrive_in_cluster(self) -> None:
        self.cluster.clusters.arrive(self.lanes)

    def wait_in_cluster(self) -> None:
        lacking = self.cluster.clusters.lacking(self.lanes)
        self._wait(State.CLUSTER, lacking)
        self.cluster.clusters.passed(self.lanes[~lacking])

    def _wait(self, state: State, mask: Array | bool, wait: object = None) -> None:
        """The threads of a mask wait, to go on behind the statement."""
        for thread, stops in self._each(mask):
            if stops:
                thread.stops(state, self.following, wait)


def _step(make: MakeMeeting, statement: Statement, function: Function) -> Together:
    """The step of threads that are at a barrier; they wait for no others before it."""
    operands = LaneOperands(statement, combination)
    run = make(operands)
    reads = readers(operands)
    writes = [writer(bound, type_, function) for bound, type_ in operands.results]

    def together(threads: Sequence[Thread]) -> None:
        run(Meeting(threads, reads, writes, statement.pc + 1))

    return Together(0, together, guard=guard_of(statement.guard))


def meeting(
    makes: Mapping[str, MakeMeeting],
) -> dict[str, Callable[[Statement, Function], Together]]:
    """The steps of a table of statements."""
    return {name: partial(_step, make) for name, make in makes.items()}
