"""Which cases `sampled` and `swept` leave in the fast suite, and what they say."""

import random
from types import SimpleNamespace

import pytest
from conftest import pytest_generate_tests
from sweeps import swept


def left_in(mark, order=0, count=100, markexpr="slow", args=()):
    """Ids of the cases that are collected, and of those that are fast."""
    cases = [SimpleNamespace(id=str(i), marks=[]) for i in range(count)]
    random.Random(order).shuffle(cases)
    test = SimpleNamespace(nodeid="test_file.py::test_one", get_closest_marker=lambda name: mark)
    config = SimpleNamespace(option=SimpleNamespace(markexpr=markexpr), args=args)
    pytest_generate_tests(SimpleNamespace(definition=test, _calls=cases, config=config))
    return {x.id for x in cases}, {x.id for x in cases if not x.marks}


def test_one_case_of_n_is_fast_in_any_order():
    mark = pytest.mark.sampled(12).mark
    every, fast = left_in(mark)
    assert len(every) == 100 and len(fast) == 9
    assert left_in(mark, order=1) == (every, fast)
    assert len(left_in(mark, count=101)[1] & fast) >= len(fast) - 1
    assert left_in(pytest.mark.sampled(1).mark)[1] == every
    assert left_in(None)[1] == every and left_in(mark, count=0) == (set(), set())
    assert [len(x) for x in left_in(mark, count=5)] == [5, 1]


def test_the_fast_suite_makes_no_cases_that_are_slow():
    mark = pytest.mark.sampled(12).mark
    every, fast = left_in(mark)
    assert left_in(mark, markexpr="not slow", args=["tests"]) == (fast, fast)
    assert left_in(mark, markexpr="not slow", args=["tests/test_file.py::test_one"])[0] == every
    assert left_in(mark, markexpr="slow or not slow")[0] == every


def test_what_another_test_covers_is_dropped():
    fast = left_in(pytest.mark.sampled(12).mark)[1]
    assert left_in(pytest.mark.sampled(12, covered_by="test_another").mark) == (fast, fast)


def test_a_sweep_goes_over_all_cases_and_names_the_wrong_one():
    seen = []

    @swept(range(7), 3)
    def check(case):
        """What it checks."""
        seen.append(case)
        assert case != 5

    (mark,) = check.pytestmark
    assert (check.__name__, check.__doc__) == ("check", "What it checks.")
    assert (mark.args[1], mark.kwargs["ids"]) == ([[0, 1, 2], [3, 4, 5], [6]], ["0", "3", "6"])
    check([0, 1, 2])
    with pytest.raises(AssertionError, match=r"^5: "):
        check([3, 4, 5])
    assert seen == [0, 1, 2, 3, 4, 5]
