"""The comparisons of test_grouped can fail: what is planted in `grouped` shows."""

import importlib
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from edges import chain
from fp4 import FOUR, check, drawn, each_case

from emulator.arith.fast import grouped

quick = importlib.import_module("emulator.arith.matmul")


@pytest.fixture(autouse=True)
def whatever_its_share(monkeypatch):
    """Elements are recomputed one by one, however many: the others come from the quick way."""
    monkeypatch.setattr(quick, "_MOSTLY_ORDINARY", 0)


@cache
def given(case):
    """The operands, and the right codes: computed before anything is planted."""
    operands = drawn(case, 330, (6, 8, 9))
    return operands, chain(case, 64, *operands)


def planted_is_caught(case):
    with pytest.raises(AssertionError, match="codes differ"):
        check(case, "vector", *given(case))


STEPS = {
    "one bit less": {"fraction_bits": 34},
    "one bit more": {"fraction_bits": 36},
    "precision 23": {"precision": 23},
    "precision 25": {"precision": 25},
    "floor": {"floor": -100},
}


@each_case
@pytest.mark.parametrize("name", STEPS)
def test_the_matrices_would_show_a_wrong_step(case, name, monkeypatch):
    check(case, "vector", *given(case))
    right = grouped.exact_step

    def wrong(arithmetic, k):
        step = right(arithmetic, k)
        return step and replace(step, **STEPS[name])

    monkeypatch.setattr(grouped, "exact_step", wrong)
    planted_is_caught(case)


@pytest.mark.parametrize("off", (0.5, 2.0))
@each_case
def test_the_matrices_would_show_wrong_powers(case, off, monkeypatch):
    right = grouped._tables
    monkeypatch.setattr(grouped, "_tables", lambda fmt: (right(fmt)[0], right(fmt)[1] * off))
    planted_is_caught(case)


def test_the_matrices_would_show_normalised_subnormals(monkeypatch):
    right = grouped._tables

    def wrong(fmt):
        value, power = right(fmt)
        return value, np.where(power == power.min(), 2.0 ** np.floor(np.log2(value + 1e-30)), power)

    with np.errstate(all="ignore"):
        monkeypatch.setattr(grouped, "_tables", wrong)
        planted_is_caught(FOUR)


@each_case
def test_the_matrices_would_show_zeros_that_take_part(case, monkeypatch):
    """The largest power of all scales instead of those of groups that are not all zeros."""
    right = grouped._side

    def wrong(step, k, fmt, codes, *scales):
        side = right(step, k, fmt, codes, *scales)
        return side._replace(nonzero=np.ones_like(side.nonzero))

    monkeypatch.setattr(grouped, "_side", wrong)
    planted_is_caught(case)


@each_case
def test_the_matrices_would_show_scales_of_another_chunk(case, monkeypatch):
    right = grouped._side
    monkeypatch.setattr(grouped, "_side", lambda *x: right(*x[:-1], np.roll(x[-1], 1, -1)))
    planted_is_caught(case)


@each_case
def test_the_matrices_would_show_missing_marks(case, monkeypatch):
    right = grouped.chain

    def unmarked(*operands):
        codes, bad = right(*operands)
        return codes, np.zeros_like(bad)

    monkeypatch.setattr(grouped, "chain", unmarked)
    planted_is_caught(case)
