"""A few seeded cases of each fuzzer; the slow tests run more."""

from functools import partial

import pytest
from fuzz import calls, commands, ptx
from fuzz.guard import attempt, run, unchanged

from emulator import OperandError


@pytest.mark.parametrize(
    "case, count",
    [
        pytest.param(calls.case, 9, id="calls"),
        pytest.param(commands.case, 40, id="commands"),
        pytest.param(partial(ptx.case, pool=lambda: (calls.KERNEL, commands.KERNEL)), 8, id="ptx"),
        pytest.param(calls.case, 2000, id="many calls", marks=pytest.mark.slow),
        pytest.param(commands.case, 200, id="many commands", marks=pytest.mark.slow),
        pytest.param(ptx.case, 1000, id="many of ptx", marks=pytest.mark.slow),
    ],
)
def test_damage(case, count):
    """Answers and refusals are both among them, and nothing else."""
    counts = run(case, range(count))
    assert counts.total() == count and len(counts) > 1


def test_what_is_not_legal_shows():
    def fail(error):
        raise error

    with pytest.raises(ZeroDivisionError):
        attempt(lambda: 1 / 0)
    with pytest.raises(AssertionError):
        attempt(lambda: fail(OperandError("x" * 5000)))
    assert isinstance(attempt(lambda: fail(OperandError("short"))), OperandError)
    with pytest.raises(AssertionError, match="has changed"), unchanged(array := calls.A.copy()):
        array[0, 0] = 2
