"""When "auto" compiles: by processor time, also on a machine where others compute."""

from math import inf

import pytest

from emulator.machine.compiled import budget
from emulator.machine.compiled.budget import Budget, Clock


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_the_time_of_others_does_not_count(share, monkeypatch):
    monkeypatch.setattr(budget.CLOCK, "share", lambda: share)
    given, steps = Budget(1.0), 0
    while given.left > 0:
        given.charge(0.01)
        steps += 1
    assert steps * 0.01 * share == pytest.approx(1.0, abs=0.02)


def test_what_cannot_be_compiled_never_is():
    given = Budget(1.0)
    given.never()
    given.charge(1e9)
    assert given.left == inf


def test_shares(monkeypatch):
    wall, processor = iter([10.0, 14.0, 20.0]), iter([3.0, 4.0, 30.0])
    monkeypatch.setattr(budget, "perf_counter", lambda: next(wall))
    monkeypatch.setattr(budget, "process_time", lambda: next(processor))
    clock = Clock()
    assert clock.share() == 0.25
    # Several threads have more time than one.
    assert clock.share() == 1.0
