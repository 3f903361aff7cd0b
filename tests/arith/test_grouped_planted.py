"""The comparisons of test_grouped can fail: what is planted in `fused` shows."""

import importlib
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from edges import chain
from fp4 import FOUR, TWO, check, drawn, each_case

from emulator.arith.fast import fused

quick = importlib.import_module("emulator.arith.matmul")


@pytest.fixture(autouse=True)
def whatever_its_share(monkeypatch):
    """Elements are recomputed one by one, however many: the others come from the quick way."""
    monkeypatch.setattr(quick, "_MOSTLY_ORDINARY", 0)
    monkeypatch.setattr(quick, "_RARE", 1)


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
    "floor": {"floor": -10},
}


@each_case
@pytest.mark.parametrize("name", STEPS)
def test_the_matrices_would_show_a_wrong_step(case, name, monkeypatch):
    check(case, "vector", *given(case))
    right = fused.plan

    def wrong(arithmetic, k):
        steps = tuple(replace(step, **STEPS[name]) for step in arithmetic.steps)
        return right(replace(arithmetic, steps=steps), k)

    monkeypatch.setattr(fused, "plan", wrong)
    planted_is_caught(case)


@pytest.mark.parametrize("off", (0.5, 2.0))
@each_case
def test_the_matrices_would_show_wrong_powers(case, off, monkeypatch):
    right = fused.table
    monkeypatch.setattr(fused, "table", lambda *fmt: right(*fmt) * np.array([[1], [off]]))
    planted_is_caught(case)


def test_the_matrices_would_show_normalised_subnormals(monkeypatch):
    right = fused.table

    def wrong(*fmt):
        value, power = right(*fmt)
        own = 2.0 ** np.floor(np.log2(np.abs(value) + 1e-30))
        return np.stack([value, np.where(power == np.nanmin(power[value != 0]), own, power)])

    with np.errstate(all="ignore"):
        monkeypatch.setattr(fused, "table", wrong)
        planted_is_caught(FOUR)


@each_case
def test_the_matrices_would_show_zeros_that_take_part(case, monkeypatch):
    """The largest power of all scales instead of those of groups that are not all zeros."""
    right = fused._matrix

    def wrong(*given):
        side = right(*given)
        return side._replace(weight=np.ones_like(side.weight))

    monkeypatch.setattr(fused, "_matrix", wrong)
    planted_is_caught(case)


@each_case
def test_the_matrices_would_show_scales_of_another_chunk(case, monkeypatch):
    right = fused._matrix
    monkeypatch.setattr(fused, "_matrix", lambda *x: right(*x[:-2], np.roll(x[-2], 1, -1), x[-1]))
    planted_is_caught(case)


def test_the_matrices_would_show_small_sums_with_a_bit_too_many(monkeypatch):
    """Of scales that are so small that accumulators decide."""
    right = fused.plan

    def wrong(*given):
        made = right(*given)
        return made._replace(unit=made.unit / 2)

    monkeypatch.setattr(fused, "plan", wrong)
    planted_is_caught(TWO)
