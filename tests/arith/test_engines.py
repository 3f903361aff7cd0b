"""Engines: each equals the reference bit for bit on every recipe, in any shape and in pieces.

Results stated by hand are in test_recipes_by_hand.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from bits import assert_same_codes
from designed import REGIMES, Case, any_bits, boundary, operands, scales_of
from dots import FAST, by_hand, each_engine, each_fast
from recipe_cases import CASES

from dtypes import code_type
from emulator.arith import dot, engines, reference, vector
from emulator.arith.recipes import arithmetic_for_row, find_recipe
from emulator.errors import OperandError

pytestmark = pytest.mark.sampled(36)

each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def check(case, a, b, c, scales=()):
    """Every fast engine says what the reference says."""
    expected = reference.dot(case.arithmetic, a, b, c, *scales)
    for engine in FAST:
        got = dot(case.arithmetic, a, b, c, *scales, engine=engine)
        assert_same_codes(got, expected, a=a, b=b, c=c)


def check_regimes(case, n, seed):
    rng = np.random.default_rng(seed)
    regimes = REGIMES if case.arithmetic.a.is_float else ("any", "any", "boundary")
    drawn = [(*operands(rng, case, r, n), *scales_of(rng, case, r, n)) for r in regimes]
    a, b, c, *scales = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    check(case, a, b, c, scales)


@each_case
def test_boundary_codes(case):
    """Every pair of boundary codes in the first product; boundary codes or zeros in the others."""
    rng = np.random.default_rng(100)
    fmt_a, fmt_b, fmt_c = case.arithmetic.a, case.arithmetic.b, case.arithmetic.c
    pairs = np.array(list(product(boundary(fmt_a), boundary(fmt_b))))
    k = case.k if case.v > 1 else 4
    a, b = (
        np.where(rng.integers(0, 4, (len(pairs), k)), 0, rng.choice(boundary(f), (len(pairs), k)))
        for f in (fmt_a, fmt_b)
    )
    a[:, 0], b[:, 0] = pairs.T
    c = rng.choice(boundary(fmt_c), len(pairs))
    scales = scales_of(rng, case, "boundary", len(pairs))
    check(case, a.astype(code_type(fmt_a.bits)), b.astype(code_type(fmt_b.bits)), c, scales)


@pytest.mark.sampled(36, covered_by="test_designed_and_random_operands_at_length")
@each_case
def test_designed_and_random_operands(case):
    check_regimes(case, 16, seed=101)


@pytest.mark.slow
@each_case
def test_designed_and_random_operands_at_length(case):
    check_regimes(case, 320, seed=102)


@pytest.mark.parametrize(
    ("where", "fields"),
    [
        # Products of f16 never come near the floor of f32, nor those of e4m3 near any.
        ("mma hopper f16 f32", {"fraction_bits": (24, 26), "rounding": ("rn",)}),
        ("mma hopper bf16 f32", {"fraction_bits": (24, 26), "floor": (-134, -132)}),
        ("mma hopper tf32 f32", {"fraction_bits": (24, 26), "floor": (-134, -132, None)}),
        ("mma hopper f16 f16", {"fraction_bits": (24, 26), "floor": (-22, -20), "run": (8,)}),
        ("mma hopper f16 f16", {"rounding": ("rz",), "precision": (10,)}),
        ("wgmma hopper e4m3 f32", {"fraction_bits": (12, 14), "precision": (13, 15, None)}),
    ],
)
def test_the_operands_would_show_a_wrong_recipe(where, fields):
    """The planted error: a recipe that is a bit off must not pass for the right one."""
    arithmetic = by_hand(where)
    case, rng = Case("", arithmetic, 16, 0), np.random.default_rng(103)
    drawn = [operands(rng, case, regime, 300) for regime in REGIMES]
    given = [np.concatenate(parts) for parts in zip(*drawn, strict=True)]
    right = dot(arithmetic, *given)
    (step,) = arithmetic.steps
    for field, values in fields.items():
        for value in values:
            planted = replace(arithmetic, steps=(replace(step, **{field: value}),))
            with pytest.raises(AssertionError, match="codes differ"):
                assert_same_codes(dot(planted, *given), right)


# --- shapes: broadcasting, pieces, engines --------------------------------------------------------

SHAPES = [
    # leading axes of a, b and c
    ((6,), (6,), (6,)),
    ((6, 1), (1, 4), (6, 4)),
    ((6, 1), (4,), (1, 1)),
    ((1, 3), (5, 1), (3,)),
    ((3,), (5, 1), ()),
    ((1,), (7, 2, 1), (2, 3)),
    ((0,), (1,), ()),
    ((), (), ()),
]
WHERE = ("mma hopper f16 f32", "mma hopper e4m3 f16", "quad hopper f16 f16", "mma hopper f64 f64",
         "mma hopper s8 s32", "mma hopper b1 s32")  # fmt: skip


@each_fast
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_leading_axes_broadcast(where, shapes, engine):
    arithmetic = replace(by_hand(where), bit_operation="xor" if " b1 " in where else None)
    rng, (a, b, c) = np.random.default_rng(105), shapes
    a, b = any_bits(rng, arithmetic.a, (*a, 4)), any_bits(rng, arithmetic.b, (*b, 4))
    c = any_bits(rng, arithmetic.c, c)
    got = np.asarray(dot(arithmetic, a, b, c, engine=engine))
    assert got.shape == np.broadcast_shapes(*shapes)
    assert_same_codes(got, reference.dot(arithmetic, a, b, c))


@pytest.mark.parametrize("limit", (1, 7, 40, 1000))
@pytest.mark.parametrize("shapes", [s for s in SHAPES if s != ((), (), ())], ids=str)
def test_pieces_change_nothing(shapes, limit, monkeypatch):
    """Nor does a piece hold more products than the limit and one row over."""
    row = find_recipe("mma", "rtx_blackwell", "e4m3", "f32", "mxf8f6f4")
    arithmetic = arithmetic_for_row(row, "e4m3", "e5m2", "f32", "ue8m0")
    rng, (a, b, c) = np.random.default_rng(106), shapes
    scales = [(np.uint8(120) + rng.integers(0, 9, (*x, 2), np.uint8)) for x in (a, b)]
    a, b = any_bits(rng, arithmetic.a, (*a, 8)), any_bits(rng, arithmetic.b, (*b, 8))
    c = any_bits(rng, arithmetic.c, c)
    whole = reference.dot(arithmetic, a, b, c, *scales)
    sizes = []

    def spy(*given):
        d = vector.dot(*given)
        sizes.append((d.size * 8, d.size * 8 // max(len(d), 1)))
        return d

    monkeypatch.setattr(engines, "_PRODUCTS_AT_ONCE", limit)
    assert_same_codes(engines.in_pieces(spy, arithmetic, a, b, c, *scales), whole)
    assert all(size <= limit + row for size, row in sizes)


@each_engine
@pytest.mark.parametrize("limit", (1 << 22, 64))
def test_scales_may_have_a_batch_of_their_own(engine, limit, monkeypatch):
    row = find_recipe("mma", "rtx_blackwell", "e2m1", "f32", "mxf4")
    arithmetic = arithmetic_for_row(row, "e2m1", "e2m1", "f32", "ue8m0")
    a, c = np.full((1, 64), 2, np.uint8), np.zeros(2, np.uint32)
    scale_a = np.array([[127, 127], [128, 128], [127, 255]], np.uint8)[:, None]
    scale_b = np.full((1, 2), 127, np.uint8)
    monkeypatch.setattr(engines, "_PRODUCTS_AT_ONCE", limit)
    d = dot(arithmetic, a, a, c, scale_a, scale_b, engine=engine)
    assert_same_codes(d, np.repeat(np.uint32([[0x42800000], [0x43000000], [0x7FFFFFFF]]), 2, 1))


def test_an_unknown_engine_is_refused():
    zero = np.zeros((1, 4), np.uint16)
    with pytest.raises(OperandError, match=r"no engine 'vektor'.*nearest is 'vector'"):
        dot(by_hand("quad hopper f16 f16"), zero, zero, zero[:, 0], engine="vektor")
