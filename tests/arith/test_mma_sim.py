"""Recipes against MMA-Sim, an independent model, on recorded dot products of its own making."""

import json
from dataclasses import replace

import numpy as np
import pytest
from mma_sim import FILE, FORMS, REGIMES

from emulator.arith import matmul
from emulator.arith.recipes import arithmetic_for_row, find_recipe

pytestmark = pytest.mark.sampled(24)

NAMES = [f"{form.generation}.{form.pipe}.{form.name}" for form in FORMS]


@pytest.fixture(scope="module")
def recorded():
    with np.load(FILE) as file:
        arrays = dict(file)
    assert json.loads(str(arrays.pop("about")))["names"] == [form.name for form in FORMS]
    return arrays


def arithmetic_of(form):
    row = find_recipe(form.pipe, form.generation, form.a, form.d, form.kind or None)
    return arithmetic_for_row(row, form.a, form.b, form.d, form.scale or None)


def differences(recorded, number, arithmetic, engine):
    """Codes that differ, by regime. Any NaN is as good as another: MMA-Sim's are PyTorch's."""
    a, b, c, d = (recorded[f"{number}.{x}"] for x in "abcd")
    scales = [recorded[f"{number}.{x}"] for x in "uv" if f"{number}.{x}" in recorded]
    got = matmul(arithmetic, a, b, c, *scales, engine=engine)
    number_type = np.dtype(f"f{d.itemsize}")
    nan = np.isnan(got.view(number_type)) & np.isnan(d.view(number_type))
    return ((got != d) & ~nan).sum((1, 2))


@pytest.mark.parametrize("engine", ("reference", "vector", "compiled"))
@pytest.mark.parametrize("number", range(len(FORMS)), ids=NAMES)
def test_results_are_those_of_mma_sim(recorded, number, engine):
    found = differences(recorded, number, arithmetic_of(FORMS[number]), engine)
    assert not found.any(), dict(zip(REGIMES, found, strict=True))


def planted(arithmetic, **changes):
    (step,) = arithmetic.steps
    return replace(arithmetic, steps=(replace(step, **changes),))


F32 = [i for i, form in enumerate(FORMS) if form.d == "f32"]


@pytest.mark.parametrize("more", (-1, 1))
@pytest.mark.parametrize("number", F32, ids=[NAMES[i] for i in F32])
def test_one_fraction_bit_more_or_less_is_noticed(recorded, number, more):
    arithmetic = arithmetic_of(FORMS[number])
    wrong = planted(arithmetic, fraction_bits=arithmetic.steps[0].fraction_bits + more)
    assert differences(recorded, number, wrong, "vector").any()


#: in which the least sum is far enough below the floor
GROUPED = [i for i, form in enumerate(FORMS) if form.k == 64 and form.scale == "ue8m0"]


@pytest.mark.parametrize("number", GROUPED, ids=[NAMES[i] for i in GROUPED])
def test_another_floor_of_groups_is_noticed(recorded, number):
    arithmetic = arithmetic_of(FORMS[number])
    assert arithmetic.steps[0].floor == -139
    for floor in (-138, -140):
        wrong = planted(arithmetic, floor=floor)
        assert differences(recorded, number, wrong, "vector").any()
