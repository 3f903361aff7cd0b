"""The comparison of test_matmul can fail: what is planted in the quick engines shows."""

import importlib
import importlib.util
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from designed import Case
from dots import by_hand, each_fast
from edges import chain
from test_matmul import GROUPED, check, drawn, quick, shape_case

from dtypes import FORMATS
from emulator.arith.fast import fused
from emulator.arith.fast.factors import plan

pytestmark = pytest.mark.sampled(5)


@pytest.fixture(autouse=True)
def whatever_its_share(monkeypatch):
    """Elements are recomputed one by one, however many: the others come from the quick way."""
    monkeypatch.setattr(quick, "_MOSTLY_ORDINARY", 0)
    monkeypatch.setattr(quick, "_RARE", 1)
    if importlib.util.find_spec("llvmlite"):
        # What lies in lanes has plants of its own, in test_lanes.
        monkeypatch.setattr("emulator.arith.fast.fused_tiles.suits_lanes", lambda *_: False)


def plant(monkeypatch, **off):
    """Constants of a plan changed as given, for the vector engine."""
    right = fused.plan

    def wrong(arithmetic, k):
        made = right(arithmetic, k)
        return made._replace(**{x: change(getattr(made, x)) for x, change in off.items()})

    monkeypatch.setattr(fused, "plan", wrong)


BIT = np.uint64(1 << 52)
PLANTED = {
    "one bit more kept": ("mma hopper f16 f32", {"to_scale": lambda x: x + BIT}),
    "one bit less kept": ("mma hopper f16 f32", {"to_scale": lambda x: x - BIT}),
    "one bit less kept of f16": ("mma hopper f16 f16", {"to_scale": lambda x: x - BIT}),
    "mask up": ("wgmma hopper e4m3 f32", {"mask": lambda x: x << np.uint32(1)}),
    "mask down": ("wgmma hopper e4m3 f32", {"mask": lambda x: x | x >> np.uint32(1)}),
    "mask of f32": ("mma hopper f16 f32", {"mask": lambda x: x << np.uint64(1)}),
    "floor up": ("mma hopper f16 f16", {"powers": lambda x: np.maximum(x, 2 * x[0])}),
    "floor down": ("mma hopper f16 f16", {"powers": lambda x: np.where(x == x[0], x / 2, x)}),
    "no limit": ("wgmma hopper e4m3 f32", {"low": lambda x: 0.0}),
    "least exponent": ("mma hopper tf32 f32", {"least": lambda x: x / 2}),
    "unit of subnormals": ("mma hopper tf32 f32", {"unit": lambda x: x / 2}),
}  # fmt: skip


@cache
def given(case):
    """The operands, and the right codes: computed before anything is planted."""
    operands = drawn(case, 270, (16, 7, 8))
    return operands, chain(case, case.k, *operands)


def planted_is_caught(case, engine):
    operands, want = given(case)
    with pytest.raises(AssertionError, match="codes differ"):
        check(case, engine, operands, want)


@pytest.mark.parametrize("name", PLANTED)
def test_the_matrices_would_show_a_wrong_constant(name, monkeypatch):
    where, off = PLANTED[name]
    case = shape_case(where, 16)
    plant(monkeypatch, **off)
    planted_is_caught(case, "vector")


#: of the compiled engine: what its code is generated for
KINDS = {
    "one bit more kept": ("mma hopper f16 f32", {"fraction_bits": 26}),
    "one bit less kept": ("mma hopper f16 f32", {"fraction_bits": 24}),
    "precision up": ("wgmma hopper e4m3 f32", {"precision": 15}),
    "precision down": ("wgmma hopper e4m3 f32", {"precision": 13}),
    "precision of f32": ("mma hopper f16 f32", {"precision": 23}),
    "a fraction bit more": ("wgmma hopper e4m3 f32", {"fraction_bits": 14}),
    "a fraction bit less": ("wgmma hopper e4m3 f32", {"fraction_bits": 12}),
    "sums that floats do not hold": ("mma hopper f16 f32", {"floats": True}),
    "exponents that lanes do not hold": ("mma hopper tf32 f32", {"exponent_bits": 8}),
    "floor up": ("mma hopper f16 f16", {"floor": -20}),
    "floor down": ("mma hopper f16 f16", {"floor": -22}),
    "least exponent": ("mma ampere f16 f16", {"emin": -15}),
    "f16 as f32": ("mma hopper f16 f16", {"half": False}),
    "inexact conversions": ("mma hopper f16 f32", {"exact": True}),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_matrices_would_show_code_of_another_kind(name, monkeypatch):
    pytest.importorskip("llvmlite")
    tiles = importlib.import_module("emulator.arith.fast.fused_tiles")
    where, off = KINDS[name]
    if "floats" in off and not tiles.directed():
        pytest.skip("this processor has no such sums")
    case, right = shape_case(where, 16), tiles._kind
    check(case, "compiled", *given(case))
    monkeypatch.setattr(tiles, "_kind", lambda *x: right(*x)._replace(**off))
    planted_is_caught(case, "compiled")


def test_a_sum_that_leaves_int32_is_computed_otherwise(monkeypatch):
    """16 products of almost 4 beside a c of almost 2: without the guard, the sum wraps."""
    pytest.importorskip("llvmlite")
    tiles = importlib.import_module("emulator.arith.fast.fused_tiles")
    case, right = shape_case("mma hopper f16 f32", 16), tiles._kind
    a = np.full((1, 33, 16), 0x3FFF, np.uint16)
    a[0, 1::2] |= 0x8000
    c = np.where(a[0, :, :1] & 0x8000, np.uint32(0xBFFFFFFF), np.uint32(0x3FFFFFFF))[None]
    operands = a, a[:, :1], c
    want = chain(case, 16, *operands)
    check(case, "compiled", operands, want)
    monkeypatch.setattr(tiles, "_kind", lambda *x: right(*x)._replace(safe=1 << 20))
    with pytest.raises(AssertionError, match="codes differ"):
        check(case, "compiled", operands, want)


@pytest.mark.parametrize(
    ("where", "engine"),
    [("mma hopper tf32 f32", "vector"), ("mma hopper tf32 f32", "compiled")],
)  # fmt: skip
def test_the_matrices_would_show_missing_marks(where, engine, monkeypatch):
    """Marks are for numbers too large or small, which f16 does not have."""
    module, name = fused, "matmul"
    if engine == "compiled":
        pytest.importorskip("llvmlite")
        module, name = importlib.import_module("emulator.arith.fast.fused_tiles"), "chain"
    right = getattr(module, name)

    def unmarked(*given):
        x, bad = right(*given)
        return x, np.zeros_like(bad)

    monkeypatch.setattr(module, name, unmarked)
    planted_is_caught(shape_case(where, 16), engine)


def test_the_matrices_would_show_wrong_powers(monkeypatch):
    """Subnormals that count with their own exponent, as if they were normalised."""
    right = fused.table
    monkeypatch.setattr(fused, "table", lambda fmt, widen, digit: right(fmt, FORMATS["f32"], digit))
    planted_is_caught(shape_case("wgmma hopper e5m2 f32", 16), "vector")


def test_the_matrices_would_show_wrong_exponents_in_compiled_code(monkeypatch):
    pytest.importorskip("llvmlite")
    made = plan(shape_case("wgmma hopper e5m2 f32", 16).arithmetic, 16)
    monkeypatch.setattr(quick, "plan", lambda *_: made._replace(widen=FORMATS["f32"]))
    planted_is_caught(shape_case("wgmma hopper e5m2 f32", 16), "compiled")


def test_the_matrices_would_show_accumulators_of_f16_with_other_powers(monkeypatch):
    """Subnormal accumulators that count with their own exponent."""
    right = fused._powers_of_f16()
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    own = np.exp2(np.frexp(codes)[1] - 1.0) * (codes != 0)
    monkeypatch.setattr(fused, "_powers_of_f16", lambda: np.where(np.isnan(right), right, own))
    planted_is_caught(shape_case("mma ampere f16 f16", 16), "vector")


@pytest.mark.parametrize("where", ("mma hopper f16 f16", "mma hopper tf32 f32"))
def test_the_matrices_would_show_specials_that_are_passed_over(where, monkeypatch):
    pytest.importorskip("llvmlite")
    monkeypatch.setattr("emulator.arith.fast.fused_tiles._with_specials", lambda *_: None)
    planted_is_caught(shape_case(where, 8), "compiled")


@each_fast
@pytest.mark.parametrize("where", ("mma hopper e4m3 f32", "mma hopper e4m3 f16"))
def test_the_matrices_would_show_a_wrong_addition(where, engine, monkeypatch):
    """The accumulator in the alignment of the products, instead of added to their sum."""
    case = Case(where, by_hand(where), 32, 0)
    for module in (quick, fused):
        made = module.plan(case.arithmetic, 32)._replace(adds_c=False)
        monkeypatch.setattr(module, "plan", lambda *_, made=made: made)
    planted_is_caught(case, engine)


# --- groups of fp4 products -----------------------------------------------------------------------


@pytest.mark.parametrize("case", GROUPED, ids=[case.name for case in GROUPED])
@pytest.mark.parametrize("change", (-1, 1))
def test_the_matrices_would_show_a_wrong_cut_of_groups(case, change, monkeypatch):
    (step,) = case.arithmetic.steps
    wrong = replace(step, fraction_bits=step.fraction_bits + change)
    right = fused.plan
    monkeypatch.setattr(fused, "plan", lambda x, k: right(replace(x, steps=(wrong,)), k))
    planted_is_caught(case, "vector")


def test_the_matrices_would_show_groups_that_count_though_they_are_zero(monkeypatch):
    """A sum of zero has no exponent, however large its scales."""
    right = fused.in_groups

    def wrong(plan, sums, live, *rest):
        return right(plan, sums, np.ones_like(live), *rest)

    monkeypatch.setattr(fused, "in_groups", wrong)
    for case in GROUPED:
        planted_is_caught(case, "vector")
