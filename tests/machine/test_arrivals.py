"""Counts of arrivals at barriers, which all engines share: a comparison of engines cannot judge
them."""

import numpy as np
import pytest

from emulator.machine.shared.arrivals import BlockBarriers, ClusterBarriers, Warps, bits_of
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Arrival


class Blocks:
    """Two blocks of two warps each, in one cluster; the last warp has 8 threads."""

    lanes_per_cta, cluster_size, watch = 64, 2, None

    def __init__(self):
        self.alive = np.arange(128) < 104
        self.barriers, self.clusters = BlockBarriers(self), ClusterBarriers(self)
        self.passed, self.phases = [], 0

    def alive_bits(self, warps):
        return bits_of(self.alive)[warps]

    def pass_barrier(self, rows, number, votes):
        self.passed.append((rows.tolist(), number, votes[rows].tolist()))

    def pass_cluster(self):
        self.phases += 1

    def arrive(self, lanes, number=0, threads=0, vote=None):
        """The masks and numbers of those that may wait."""
        stops, lanes = [], np.array(lanes)
        given = Arrival(np.array(number), np.array(threads), True, vote, None)
        self.barriers.arrive(lanes, Warps.of(lanes), given, 0, lambda *x: stops.append(x))
        return stops

    def end(self, lanes):
        self.alive[lanes] = False
        self.barriers.lanes_ended(np.array(lanes))
        self.clusters.lanes_ended(np.array(lanes))


FIRST, SECOND, LAST = range(32), range(32, 64), range(96, 104)


def test_a_warp_counts_once_all_its_lanes_are_there():
    here = Blocks()
    here.arrive(range(16))
    here.arrive(SECOND)
    assert here.barriers.arrived[0, 0] == 32 and not here.barriers.is_idle
    here.arrive(range(16, 32))
    assert here.passed == [([0], 0, [[0, 0]])] and here.barriers.arrived[0, 0] == 0
    here.arrive(range(64, 96))
    here.arrive(LAST)
    assert here.passed[1:] == [([1], 0, [[0, 0]])]


def test_blocks_that_come_together_pass_together_and_votes_are_counted():
    here = Blocks()
    here.arrive(np.flatnonzero(here.alive), 3, vote=np.arange(104) % 4 == 0)
    assert here.passed == [([0, 1], 3, [[64, 16], [40, 10]])]


def test_lanes_come_to_barriers_of_their_own():
    here = Blocks()
    numbers = np.where(np.arange(32) < 16, 1, 2)
    stops = here.arrive(FIRST, numbers, np.full(32, 32))
    assert [(mask.tolist(), number) for mask, number in stops] == [
        ((numbers == x).tolist(), x) for x in (1, 2)
    ]
    assert not here.passed and np.count_nonzero(here.barriers.partly[0]) == 2
    assert here.arrive(SECOND, 1, 32) == [(None, 1)]
    assert here.passed == [([0], 1, [[0, 0]])]


def test_nobody_waits_for_lanes_that_have_ended():
    here = Blocks()
    here.arrive(range(16))
    here.arrive(SECOND, 1, 64)
    here.end(range(16, 32))
    assert here.barriers.arrived[0, :2].tolist() == [32, 32] and not here.passed
    here.end(SECOND)
    assert here.passed == [([0], 0, [[0, 0]])]


@pytest.mark.parametrize(
    ("lanes", "number", "threads", "said", "index"),
    [
        (FIRST, 16, 0, "there are barriers 0 to 15; got 16", 0),
        (FIRST, np.arange(32) // 31 * 16, 0, "got 16", 31),
        (FIRST, 0, 33, "in whole warps; got 33", 0),
        (FIRST, 5, 96, "barrier 5 is for 96 threads here, and for 64 where others", 0),
        (FIRST, np.arange(32) // 16 + 4, 96, "barrier 5 is for 96 threads here", 16),
    ],
)
def test_failures_name_the_lane(lanes, number, threads, said, index):
    here = Blocks()
    here.arrive(SECOND, 5, 64)
    with pytest.raises(Failure, match=said) as caught:
        here.arrive(lanes, number, threads)
    assert caught.value.index == index


def test_warps_that_come_when_a_barrier_is_complete_arrive_at_its_next_phase():
    here = Blocks()
    stops = here.arrive(range(64), 7, 32)
    assert [np.flatnonzero(mask).tolist() for mask, _ in stops] == [[*FIRST], [*SECOND]]
    assert here.passed == [([0], 7, [[0, 0]])] * 2


def test_more_threads_than_a_barrier_is_for():
    here = Blocks()
    for first in (0, 32):
        here.arrive(range(first, first + 16), 7, 32)
    with pytest.raises(Failure, match="64 threads arrived at barrier 7, which is for 32"):
        here.end([*range(16, 32), *range(48, 64)])


def test_the_phase_of_a_cluster_ends_when_all_have_arrived():
    here = Blocks()
    every = np.flatnonzero(here.alive)
    here.clusters.arrive(every[:50])
    assert here.clusters.lacking(every[:50]).all() and not here.phases
    with pytest.raises(Failure, match=r"wait without an arrive") as caught:
        here.clusters.lacking(every[40:60])
    assert caught.value.index == 10
    with pytest.raises(Failure, match="arrive twice") as caught:
        here.clusters.arrive(every[[60, 3]])
    assert caught.value.index == 1
    here.clusters.arrive(every[50:100])
    here.end(every[100:])
    assert here.phases == 1 and not here.clusters.lacking(every[:100]).any()
    here.clusters.passed(every[:30])
    here.clusters.arrive(every[:30])
    assert here.clusters.lacking(every[:40]).tolist() == [True] * 30 + [False] * 10
