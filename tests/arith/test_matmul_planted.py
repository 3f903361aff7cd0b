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
from emulator.arith.fast import factors, fused
from emulator.arith.fast.factors import plan

pytestmark = pytest.mark.sampled(5)


@pytest.fixture(autouse=True)
def whatever_its_share(monkeypatch):
    """Elements are recomputed one by one, however many: the others come from the quick way."""
    monkeypatch.setattr(quick, "_MOSTLY_ORDINARY", 0)
    if importlib.util.find_spec("llvmlite"):
        # What lies in lanes has plants of its own, in test_lanes.
        monkeypatch.setattr("emulator.arith.fast.fused_tiles.suits_lanes", lambda *_: False)


def plant(monkeypatch, **off):
    """Constants of a step changed as given, for the vector engine."""

    def wrong(arithmetic, k):
        made = plan(arithmetic, k)
        changed = {x: change(getattr(made.numbers, x)) for x, change in off.items()}
        return made._replace(numbers=made.numbers._replace(**changed))

    monkeypatch.setattr(quick, "plan", wrong)


BIT = np.int32(1 << 23)
PLANTED = {
    "to_scale up": ("mma hopper f16 f32", {"to_scale": lambda x: np.int32(x + BIT)}),
    "to_scale down": ("mma hopper f16 f32", {"to_scale": lambda x: np.int32(x - BIT)}),
    "one bit more kept": ("mma hopper f16 f32", {
        "to_scale": lambda x: np.int32(x + BIT), "to_unit": lambda x: x - (np.int64(1) << 52)}),
    "one bit less kept": ("mma hopper f16 f32", {
        "to_scale": lambda x: np.int32(x - BIT), "to_unit": lambda x: x + (np.int64(1) << 52)}),
    "to_unit": ("mma hopper f16 f16", {"to_unit": lambda x: x + (np.int64(1) << 52)}),
    "mask up": ("wgmma hopper e4m3 f32", {"mask": lambda x: x << 1}),
    "mask down": ("wgmma hopper e4m3 f32", {"mask": lambda x: x >> 1}),
    "mask of f32": ("mma hopper f16 f32", {"mask": lambda x: x << 1}),
    "floor up": ("mma hopper f16 f16", {"floor": lambda x: np.int32(x + BIT)}),
    "floor down": ("mma hopper f16 f16", {"floor": lambda x: np.int32(x - BIT)}),
    "least": ("mma ampere f16 f16", {"least": lambda x: np.int32(x - BIT)}),
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
    [*((x, "vector") for x in ("mma hopper f16 f32", "mma hopper f16 f16", "mma hopper tf32 f32")),
     ("mma hopper tf32 f32", "compiled")],
)  # fmt: skip
def test_the_matrices_would_show_missing_marks(where, engine, monkeypatch):
    """What the compiled engine marks are numbers too large or small, which f16 does not have."""
    module = fused
    if engine == "compiled":
        pytest.importorskip("llvmlite")
        module = importlib.import_module("emulator.arith.fast.fused_tiles")
    right = module.chain

    def unmarked(*given):
        x, bad = right(*given)
        return x, np.zeros_like(bad)

    monkeypatch.setattr(module, "chain", unmarked)
    planted_is_caught(shape_case(where, 16), engine)


@pytest.mark.parametrize("limit", ("LOW", "HIGH"))
def test_the_matrices_would_show_a_wrong_limit(limit, monkeypatch):
    """Of the vector engine; those of compiled code are constants in it."""
    monkeypatch.setattr(fused, limit, np.int32({"LOW": 0, "HIGH": 0x7FFFFFFF}[limit]))
    planted_is_caught(shape_case("mma hopper tf32 f32", 8), "vector")


def test_the_matrices_would_show_wrong_powers(monkeypatch):
    """Subnormals that count with their own exponent, as if they were normalised."""
    monkeypatch.setattr(
        factors, "powers", lambda fmt, x: (x.view(np.int32) & factors.EXPONENT).view(np.float32)
    )
    planted_is_caught(shape_case("wgmma hopper e5m2 f32", 16), "vector")


def test_the_matrices_would_show_wrong_exponents_in_compiled_code(monkeypatch):
    pytest.importorskip("llvmlite")
    made = plan(shape_case("wgmma hopper e5m2 f32", 16).arithmetic, 16)
    monkeypatch.setattr(quick, "plan", lambda *_: made._replace(widen=FORMATS["f32"]))
    planted_is_caught(shape_case("wgmma hopper e5m2 f32", 16), "compiled")


def test_the_matrices_would_show_missing_special_marks(monkeypatch):
    right = quick.factor
    monkeypatch.setattr(quick, "factor", lambda *given: right(*given)._replace(special=None))
    planted_is_caught(shape_case("mma hopper tf32 f32", 8), "vector")


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
    made = plan(case.arithmetic, 32)._replace(adds_c=False)
    monkeypatch.setattr(quick, "plan", lambda *_: made)
    planted_is_caught(case, engine)


# --- groups of fp4 products -----------------------------------------------------------------------


@pytest.mark.parametrize("case", GROUPED, ids=[case.name for case in GROUPED])
@pytest.mark.parametrize("change", (-1, 1))
def test_the_matrices_would_show_a_wrong_cut_of_groups(case, change, monkeypatch):
    (step,) = case.arithmetic.steps
    wrong = replace(step, fraction_bits=step.fraction_bits + change)
    monkeypatch.setattr(quick.grouped, "exact_step", lambda *_: wrong)
    planted_is_caught(case, "vector")


@pytest.mark.parametrize("case", GROUPED, ids=[case.name for case in GROUPED])
def test_the_matrices_would_show_missing_marks_of_groups(case, monkeypatch):
    right = quick.grouped.chain

    def unmarked(*operands):
        codes, bad = right(*operands)
        return codes, np.zeros_like(bad)

    monkeypatch.setattr(quick.grouped, "chain", unmarked)
    planted_is_caught(case, "vector")


def test_the_matrices_would_show_groups_that_count_though_they_are_zero(monkeypatch):
    """A sum of zero has no exponent, however large its scales."""
    right = quick.grouped._tile

    def wrong(step, a, b, c):
        return right(step, a._replace(value=a.value + np.float32(2.0**-60)), b, c)

    monkeypatch.setattr(quick.grouped, "_tile", wrong)
    for case in GROUPED:
        planted_is_caught(case, "vector")
