"""Fused dot-adds of one small matrix: as dot products computed element by element.

The operands aim at what float arithmetic can get wrong (see `edges`), and what they are compared
with is `vector.dot`, which test_engines compares with the reference.
"""

from dataclasses import replace

import numpy as np
import pytest
from bits import assert_same_codes
from designed import Case
from edges import ORDINARY, REGIMES, chain, matrices
from recipe_cases import CASES

from dtypes import FORMATS, code_type
from emulator.arith import matmul, vector
from emulator.arith.fast import factors, fused
from emulator.arith.fast.fused import plan
from emulator.arith.recipes import Arithmetic, arithmetic_for_row, find_recipe

pytestmark = pytest.mark.sampled(3)

#: every arithmetic without scales, and of mixed types some
FUSED = tuple(
    case
    for i, case in enumerate(CASES)
    if case.v == 0
    and case.arithmetic.a.is_float
    and plan(case.arithmetic, case.k) is not None
    and (case.arithmetic.a is case.arithmetic.b or i % 2 == 0)
)


def hopper(name, k):
    """mma of sm_90a with sums in f32."""
    row = find_recipe("mma", "hopper", name, "f32", None)
    return Case(name, arithmetic_for_row(row, name, name, "f32"), k, 0)


HOPPER = hopper("f16", 16)


def accumulators(case, codes):
    """Numbers of C or D as `fused` takes them."""
    made = plan(case.arithmetic, case.k)
    return codes.view("f2" if made.half else "f4")


def multiplied(made, a_type, a, b_type, b, c):
    """One matrix ``(m, n)`` of `fused.matmul`; None where something is marked."""
    d, bad = fused.matmul(made, (a_type, a[None], None), (b_type, b[None], None), None, c[None])
    return None if bad.any() else d[0]


def assert_same(case, regime, count=2, seed=0):
    """Whether it was computed, after a comparison of what was."""
    made = plan(case.arithmetic, case.k)
    rng = np.random.default_rng(seed)
    a, b, c = matrices(rng, case, regime, (1, 6, 5, count * case.k), case.k)[:3]
    fmt_a, fmt_b = case.arithmetic.a, case.arithmetic.b
    d = multiplied(made, fmt_a, a[0], fmt_b, b[0], accumulators(case, c[0]))
    if d is None:
        return False
    assert_same_codes(d.view(c.dtype)[None], chain(case, case.k, a, b, c))
    return True


def is_plain(case):
    made = factors.plan(case.arithmetic, case.k)
    return made is not None and made.before is None and made.after is None


PLAIN = tuple(case for case in FUSED if is_plain(case))


@pytest.mark.parametrize("case", PLAIN, ids=[case.name for case in PLAIN])
def test_small_matrices_have_the_same_codes(case):
    computed = [assert_same(case, regime, seed=len(case.name)) for regime in REGIMES]
    assert any(computed)


@pytest.mark.parametrize("regime", ORDINARY)
def test_ordinary_operands_are_computed(regime):
    assert assert_same(HOPPER, regime)


def test_zeros_are_computed():
    made = plan(HOPPER.arithmetic, HOPPER.k)
    a, b, c = np.zeros((4, 16), "u2"), np.zeros((3, 16), "u2"), np.full((4, 3), -0.0, "f4")
    d = multiplied(made, HOPPER.arithmetic.a, a, HOPPER.arithmetic.b, b, c)
    assert d is not None and not d.view(np.uint32).any()


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "e5m2"])
def test_what_is_not_ordinary_is_not_computed(name):
    fmt = FORMATS[name]
    special = fmt.infinity if fmt.infinity is not None else fmt.code_mask >> 1
    k = 4 if name == "tf32" else 16
    made = plan(hopper(name, k).arithmetic, k)
    for other in (0, 1 << fmt.ignored_bits, fmt.bias << fmt.mantissa_bits):
        a, b = (np.full((2, k), other, code_type(fmt.bits)) for _ in range(2))
        a[1, 3] = special
        assert multiplied(made, fmt, a, fmt, b, np.zeros((2, 2), "f4")) is None


@pytest.mark.parametrize("c", [np.inf, np.nan])
def test_accumulators_that_cannot_be_aligned_are_not_computed(c):
    made = plan(HOPPER.arithmetic, HOPPER.k)
    a, b = np.zeros((2, 16), "u2"), np.zeros((2, 16), "u2")
    fmt = HOPPER.arithmetic.a
    assert multiplied(made, fmt, a, fmt, b, np.array([[0, 1], [c, 1]], "f4")) is None
    within = np.array([[1e-45, 1e-40], [2.0**-102, np.finfo("f4").max]], "f4")
    assert np.array_equal(multiplied(made, fmt, a, fmt, b, within), within)


@pytest.mark.parametrize(
    "change",
    [
        {"mask": lambda x: x << np.uint64(1)},
        {"to_scale": lambda x: x - np.uint64(1 << 52)},
        {"powers": lambda x: np.maximum(x, 2.0**73)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_wrong_constant_is_noticed(monkeypatch, change):
    made = plan(HOPPER.arithmetic, HOPPER.k)
    ((name, how),) = change.items()
    wrong = made._replace(**{name: how(getattr(made, name))})
    monkeypatch.setitem(globals(), "plan", lambda *_: wrong)
    with pytest.raises(AssertionError):
        assert_same(HOPPER, "near")


@pytest.mark.parametrize(("name", "result"), [("bf16", "f32"), ("tf32", "f32"), ("bf16", "f16")])
def test_products_beyond_all_weights_are_not_computed(name, result):
    """Weights overflow long before float64 products do, and say nothing of the largest of them."""
    k, fmt = 16, FORMATS[name]
    (step,) = HOPPER.arithmetic.steps
    step = replace(step, result=result, rounding="rz" if result == "f32" else "rn")
    arithmetic = Arithmetic(fmt, fmt, FORMATS[result], FORMATS[result], (step,))
    made = plan(arithmetic, k)
    for exponent in (60, 103, 110, 127):
        code = exponent + fmt.bias << fmt.mantissa_bits + fmt.ignored_bits
        a = np.zeros((1, 2, k), code_type(fmt.bits))
        a[:, :, 0] = code
        c = np.zeros((1, 2, 2), code_type(FORMATS[result].bits))
        d = multiplied(made, fmt, a[0], fmt, a[0], accumulators(Case("", arithmetic, k, 0), c[0]))
        want = vector.dot(arithmetic, a[:, :, None], a[:, None], c)
        assert d is None or np.array_equal(d.view(c.dtype), want[0])
        assert np.array_equal(matmul(arithmetic, a, a, c, engine="vector"), want)
