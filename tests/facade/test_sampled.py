"""Which cases `sampled` and `swept` leave in the fast suite, and what they say."""

import random
from types import SimpleNamespace

import pytest
from conftest import pytest_collection_modifyitems
from sweeps import swept


class Item:
    def __init__(self, nodeid, mark):
        self.nodeid, self.mark, self.is_slow = nodeid, mark, False

    def get_closest_marker(self, name):
        return self.mark if name == "sampled" else None

    def add_marker(self, mark):
        assert mark.name == "slow"
        self.is_slow = True


def left_in(mark, order, count=100):
    """Ids of the cases that are collected, and of those that are fast."""
    items = [Item(f"test_file.py::test_one[{i}]", mark) for i in range(count)]
    random.Random(order).shuffle(items)
    items += [Item("test_file.py::test_alone", mark), Item("test_file.py::test_other", None)]
    dropped = []
    hook = SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items))
    pytest_collection_modifyitems(SimpleNamespace(hook=hook), items)
    assert len(items) + len(dropped) == count + 2
    return {x.nodeid for x in items}, {x.nodeid for x in items if not x.is_slow}


def test_one_case_of_n_is_fast_in_any_order():
    mark = pytest.mark.sampled(12).mark
    every, fast = left_in(mark, 0)
    assert len(every) == 102 and len(fast) == 9 + 2
    assert left_in(mark, 1) == (every, fast)
    assert len(left_in(mark, 0, 101)[1] & fast) >= len(fast) - 1
    assert left_in(pytest.mark.sampled(1).mark, 0)[1] == every


def test_what_another_test_covers_is_dropped():
    mark = pytest.mark.sampled(12, covered_by="test_another").mark
    every, fast = left_in(mark, 0)
    assert every == fast == left_in(pytest.mark.sampled(12).mark, 0)[1]


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
