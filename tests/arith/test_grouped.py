"""fp4 with block scales, whose products are added in groups: `fused` gives the codes of `vector`.

What it is compared with is `vector.dot`, element by element, and a sample with the reference;
test_grouped_by_hand states some dots. Operands aim at the cut 35 bits below the largest
exponent, which for these recipes is the scales' and the accumulator's to decide.
"""

import importlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from bits import assert_same_codes
from dots import each_fast
from edges import chain, for_each_instruction, masks_of_recomputed
from fp4 import (
    EXTREMES,
    F32,
    FOUR,
    HALF,
    MINUS_ONE,
    NANS,
    REGIMES,
    SIX,
    THREE_HALVES,
    TWO,
    check,
    drawn,
    each_case,
    f32,
)

from dtypes import FORMATS, encode
from emulator import Instruction, execute
from emulator.arith import dot, matmul, reference, vector
from emulator.arith.fast import fused
from emulator.arith.recipes import RECIPES, arithmetic_for_row
from emulator.warp.sparse import matmul_selected

pytestmark = pytest.mark.sampled(3)

#: the module; `emulator.arith.matmul` is the function
quick = importlib.import_module("emulator.arith.matmul")


@pytest.fixture
def whatever_its_share(monkeypatch):
    """Elements are recomputed one by one, however many: the others come from the quick way."""
    monkeypatch.setattr(quick, "_MOSTLY_ORDINARY", 0)
    monkeypatch.setattr(quick, "_RARE", 1)


@each_fast
@each_case
def test_designed_matrices(case, engine, whatever_its_share):
    check(case, engine, drawn(case, 300, (4, 9, 7)))


@each_case
def test_the_reference_says_the_same(case, whatever_its_share):
    operands = drawn(case, 301, (1, 3, 4))
    want = chain(case, 64, *operands, dot=reference.dot)
    check(case, "vector", operands, want)


@pytest.mark.slow
@each_case
def test_designed_matrices_at_length(case, whatever_its_share):
    """Over half a million dots: chains of three instructions, both orientations."""
    for seed, (m, n) in enumerate(((8, 37), (35, 8), (16, 8), (1, 64), (64, 1))):
        check(case, "vector", drawn(case, 310 + seed, (60, m, n), 3))


@each_case
def test_every_pair_of_boundary_scales_and_accumulators(case, whatever_its_share):
    """One product beside another of ordinary size, every two scales, every accumulator."""
    fmt = case.arithmetic.scale
    codes = EXTREMES[fmt.name]
    pairs = np.array(list(product(codes, codes)), np.uint8)
    a, b = (np.zeros((1, len(pairs), 64), np.uint8) for _ in "ab")
    a[..., 0], b[..., 0], a[..., 32], b[..., 32] = HALF, THREE_HALVES, MINUS_ONE, SIX
    one = encode(fmt, np.ones((1, len(pairs), case.v)))
    scale_a, scale_b = one.copy(), one.copy()
    scale_a[..., 0], scale_b[..., 0] = pairs.T
    # One row for each pair, one column: every accumulator is a batch of its own.
    c = np.broadcast_to(F32[:, None, None], (len(F32), len(pairs), 1))
    spread = [x[:, :, None] for x in (a, b, scale_a, scale_b)]
    got = matmul(case.arithmetic, spread[0], spread[1], c[..., None], *spread[2:], k=64)
    want = vector.dot(case.arithmetic, a, b, c[..., 0], scale_a, scale_b)
    assert_same_codes(got[..., 0, 0], want)


# --- shapes ---------------------------------------------------------------------------------------


@each_case
@pytest.mark.parametrize("terms", (1, 100, 1 << 10))
def test_pieces(case, terms, monkeypatch):
    """Batches and rows are cut; what is left over is computed, too."""
    monkeypatch.setattr(fused, "_TERMS", terms)
    for m, n in ((1, 1), (1, 9), (9, 1), (5, 3)):
        check(case, "vector", drawn(case, 320, (2, m, n), regimes=("near", "zeros", "cut")))


@each_case
def test_a_wide_batch(case):
    check(case, "vector", drawn(case, 321, (500, 8, 4), 1, ("near",)))


@pytest.mark.parametrize("alone", range(5))
def test_batch_axes_broadcast(alone):
    """Each operand in turn is shared by the batch, and each in turn is all that the batch has."""
    operands = drawn(FOUR, 322, (3, 5, 4), regimes=("near",))
    check(FOUR, "vector", [x[:1] if i == alone else x for i, x in enumerate(operands)])
    check(FOUR, "vector", [x if i == alone else x[0] for i, x in enumerate(operands)])
    spread = [x[:, None] if i == alone else x for i, x in enumerate(operands)]
    check(FOUR, "vector", spread)


def test_operands_are_left_alone_and_numpy_may_be_set_to_raise(whatever_its_share):
    operands = [np.asfortranarray(x) for x in drawn(TWO, 323, (1, 6, 5))]
    before = [x.copy() for x in operands]
    want = chain(TWO, 64, *operands)
    for x in operands:
        x.flags.writeable = False
    with np.errstate(all="raise"):
        check(TWO, "vector", operands, want)
    assert all(np.array_equal(x, y) for x, y in zip(operands, before, strict=True))


@each_fast
@each_case
def test_sparse_rows_with_columns_of_their_own(case, engine, whatever_its_share):
    """`matmul_selected` makes a batch of one-row matrices of them."""
    a, b, c, scale_a, scale_b = drawn(case, 324, (2, 6, 5), 1)
    rng = np.random.default_rng(325)
    selected = rng.permuted(np.repeat(b[:, None], 6, 1), axis=-1)
    got = matmul_selected(case.arithmetic, a, selected, c, scale_a, scale_b, engine=engine)
    want = vector.dot(case.arithmetic, a[:, :, None], selected, c,
                      scale_a[:, :, None], scale_b[:, None])  # fmt: skip
    assert_same_codes(got, want, c=c)


@pytest.mark.parametrize(
    "what",
    ("kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
     "kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
     "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"),
)  # fmt: skip
@pytest.mark.parametrize(
    ("family", "registers"),
    (("mma.sync.aligned.m16n8k64", 2), ("mma.sp::ordered_metadata.sync.aligned.m16n8k128", 4)),
)
def test_instructions(family, registers, what):
    """Registers in, registers out: every fp4 form with block scales, dense and sparse."""
    ins = Instruction.parse(f"{family}.row.col.{what}")
    rng = np.random.default_rng(326)
    words = [rng.integers(0, 1 << 32, (2, 32, r), np.uint32) for r in (4, registers)]
    words.append(f32(rng, rng.integers(-9, 30, (2, 32, 4))))
    if registers == 4:
        words.append(rng.choice(np.array([0x44444444, 0x9E84D9C4], np.uint32), (2, 32)))
    low, high = (107, 147) if "ue8m0" in what else (0, 127)
    scales = {
        f"scale_{x}": rng.integers(low, high, (2, 32, 4), np.uint8).view(np.uint32)[..., 0]
        for x in "ab"
    }
    d = [
        execute(ins, *words, target="sm_120a", engine=e, **scales) for e in ("vector", "reference")
    ]
    assert_same_codes(*d)


# --- which recipes, and up to which k -------------------------------------------------------------


def test_every_recipe_with_groups_is_exact_here_and_no_other():
    for row in RECIPES:
        a, scale = row.a.split()[0], "ue8m0" if row.kinds else None
        arithmetic = arithmetic_for_row(row, a, a, row.c or row.d, scale)
        grouping = any(getattr(step, "group", 1) > 1 for step in row.steps)
        assert (fused.exact_in_groups(arithmetic, 64) is not None) == grouping, row


@pytest.mark.parametrize(
    "more",
    ({"group": 8}, {"group": 32}, {"floor": 60}, {"floor": -100}, {"precision": 14},
     {"fraction_bits": 25}),
    ids=str,
)  # fmt: skip
def test_recipes_that_no_target_has(more, whatever_its_share):
    """All that a step can say is heeded."""
    (step,) = TWO.arithmetic.steps
    case = TWO._replace(arithmetic=replace(TWO.arithmetic, steps=(replace(step, **more),)))
    assert fused.exact_in_groups(case.arithmetic, 64)
    regimes = tuple(x for x in REGIMES if x != "cancel c")
    check(case, "vector", drawn(case, 340, (4, 7, 8), regimes=regimes))


@pytest.mark.parametrize(("group", "taken"), ((64, True), (128, False)))
def test_group_sums_are_exact_in_float32(group, taken):
    """Of e3m2, whose products have 448² units, 2**24 is reached with 84 of them."""
    (step,) = TWO.arithmetic.steps
    fmt, steps = FORMATS["e3m2"], (replace(step, group=group, fraction_bits=25),)
    arithmetic = replace(TWO.arithmetic, a=fmt, b=fmt, steps=steps)
    assert (fused.exact_in_groups(arithmetic, 128) is not None) == taken
    rng = np.random.default_rng(341)
    a, b = (rng.integers(28, 32, (20, 128), np.uint8) for _ in "ab")
    c, one = np.full(20, 0xC7C00000, np.uint32), np.full((20, 1), 127, np.uint8)
    got = dot(arithmetic, a, b, c, one, one, engine="vector")
    assert_same_codes(got, reference.dot(arithmetic, a, b, c, one, one))


@pytest.mark.parametrize(("k", "taken"), ((16, True), (48, True), (1808, True), (1824, False)))
def test_the_largest_sums_are_exact(k, taken):
    """Up to the k where 2**53 is reached: all products 36, scales almost 2, the least c."""
    assert (fused.exact_in_groups(FOUR.arithmetic, k) is not None) == taken
    a, b = (np.full((2, k), 7, np.uint8) for _ in "ab")
    a[1, ::3] |= 8
    c = np.array([0x3F800001, 0xBF800001], np.uint32)
    scales = [np.full((2, 1), 0x3F, np.uint8)] * 2
    got = dot(FOUR.arithmetic, a, b, c, *scales, engine="vector")
    assert_same_codes(got, reference.dot(FOUR.arithmetic, a, b, c, *scales))


def test_k_of_no_whole_groups_is_left_to_vector():
    assert fused.exact_in_groups(TWO.arithmetic, 24) is None


# --- the quick way is taken, and left where it must be --------------------------------------------


@pytest.fixture
def recomputed(monkeypatch):
    return masks_of_recomputed(monkeypatch)


def gaussian(case, m, n):
    rng, arithmetic = np.random.default_rng(327), case.arithmetic
    values = (encode(arithmetic.a, rng.standard_normal((rows, 128))) for rows in (m, n))
    c = rng.standard_normal((m, n)).astype(np.float32).view(np.uint32)
    scales = (encode(arithmetic.scale, 2 ** rng.normal(size=(rows, case.v))) for rows in (m, n))
    return [*values, c, *scales]


@each_fast
@each_case
def test_ordinary_numbers_take_the_quick_way(case, engine, recomputed):
    check(case, engine, gaussian(case, 30, 40), chain(case, 64, *gaussian(case, 30, 40)))
    assert not recomputed


@each_case
def test_edges_take_the_quick_way(case, recomputed):
    """No scale needs single dots but a NaN, no accumulator but infinities and NaNs."""
    operands = drawn(case, 328, (4, 8, 9), regimes=("near", "cut", "cut c", "zeros", "cancel"))
    matmul(case.arithmetic, *for_each_instruction(operands, 64), k=64, engine="vector")
    assert not recomputed


@each_case
def test_a_nan_scale_marks_its_row_or_column(case, recomputed):
    for side, where in ((3, (0, 17)), (4, (0, slice(None), 17))):
        recomputed.clear()
        operands = gaussian(case, 40, 50)
        operands[side][17, -1] = NANS[case.arithmetic.scale.name]
        check(case, "vector", operands, chain(case, 64, *operands))
        want = np.zeros((1, 40, 50), bool)
        want[where] = True
        assert np.array_equal(recomputed, [want])


@pytest.mark.parametrize("code", (0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF))
def test_special_accumulators_mark_themselves(code, recomputed):
    operands = gaussian(TWO, 40, 50)
    operands[2][3, 44] = code
    check(TWO, "vector", operands, chain(TWO, 64, *operands))
    assert np.argwhere(recomputed[0]).tolist() == [[0, 3, 44]]
