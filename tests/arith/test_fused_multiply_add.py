"""The parts of engines: fused multiply-add and conversion, array twin against scalar twin."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from bits import assert_same_codes
from designed import boundary, fma_operands
from dots import ROUNDINGS

from dtypes import FORMATS, code_type, convert
from emulator.arith import ieee
from emulator.arith.fast import error_free
from emulator.arith.fast.wide import fused_multiply_add
from emulator.arith.rounding_modes import rounded

pytestmark = pytest.mark.sampled(5)


def check_fma(fmt, a, b, c, rounding="rn", nan_order=()):
    got = fused_multiply_add(fmt, a, b, c, rounding, nan_order)
    rows = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    expected = [ieee.fma(fmt, *row, rounding, nan_order) for row in rows]
    assert_same_codes(got, np.array(expected, got.dtype), a=a, b=b, c=c)


@pytest.mark.parametrize("name", ("f64", "f32"))
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_fma_at_boundary_codes(name, rounding):
    fmt = FORMATS[name]
    codes = boundary(fmt)
    chosen = codes[np.random.default_rng(107).permutation(len(codes))[:22]]
    a, b, c = (x.ravel() for x in np.meshgrid(chosen, chosen, codes))
    check_fma(fmt, a, b, c, rounding, ("b", "x", "a") if name == "f64" else ())


@pytest.mark.parametrize("order", [(), *permutations(("a", "b", "x"))], ids=str)
def test_fma_chooses_between_nans(order):
    fmt = FORMATS["f64"]
    nans = np.array([0x7FF0_0000_0000_0001, 0xFFF0_0000_0000_0002, 0x7FF8_0000_0000_0004])
    codes = np.append(nans, [0, 0x3FF0 << 48, 0x7FF0 << 48]).astype(np.uint64)
    check_fma(fmt, *(x.ravel() for x in np.meshgrid(codes, codes, codes)), nan_order=order)


def check_random_fma(name, rounding, count, seed):
    rng = np.random.default_rng(seed)
    check_fma(FORMATS[name], *fma_operands(FORMATS[name], rng, count), rounding)


@pytest.mark.parametrize("name", ("f64", "f32"))
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_random_fma(name, rounding):
    check_random_fma(name, rounding, 3000, 108)


@pytest.mark.slow
@pytest.mark.parametrize("name", ("f64", "f32"))
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_random_fma_at_length(name, rounding):
    check_random_fma(name, rounding, 60_000, 109)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(
    "change",
    [
        {"two_product": lambda a, b: (a * b, a * b * 0)},
        {"two_sum": lambda a, b: (a + b, (a + b) * 0)},
        {"_SMALL": 0.0},
        {"_LARGE": np.inf},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_wrong_part_of_a_multiply_add_is_noticed(monkeypatch, change, rounding):
    ((name, value),) = change.items()
    monkeypatch.setattr(error_free, name, value)
    with pytest.raises(AssertionError):
        check_random_fma("f64", rounding, 3000, 108)


def test_sums_that_are_not_rounded_to_odd_are_noticed(monkeypatch):
    """Those of other roundings than to nearest need only the sign of what is lost."""
    monkeypatch.setattr(error_free, "odd_sum", np.add)
    with pytest.raises(AssertionError):
        check_random_fma("f64", "rn", 3000, 108)


def test_f64_fma_as_python_fractions_round_it():
    """An opinion from outside: Fraction to float is rounded to nearest even by Python."""
    fmt, rng = FORMATS["f64"], np.random.default_rng(110)
    operands_ = fma_operands(fmt, rng, 3000)
    got = fused_multiply_add(fmt, *operands_).view(np.float64)
    for a, b, c, d in zip(*(x.view(np.float64).tolist() for x in operands_), got, strict=True):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        try:
            assert float(exact) == d
        except OverflowError:
            assert d == (np.inf if exact > 0 else -np.inf)


@pytest.mark.parametrize("sign", (0, 1))
def test_fma_that_rounds_up_to_twice_the_overflow_bound(sign):
    """(2 - 2^-52)·2^512 · 2^512 + 2^971 rounds to 2^1025."""
    a, b, c = np.array([(2 - 2.0**-52) * 2.0**512, 2.0**512, 2.0**971])[:, None] * [[1], [1], [1]]
    a, c = (a, c) if not sign else (-a, -c)
    check_fma(FORMATS["f64"], a.view(np.uint64), b.view(np.uint64), c.view(np.uint64))


@pytest.mark.parametrize("source", ("bf16", "f16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1", "ue4m3"))
@pytest.mark.parametrize("target", ("f64", "f32", "tf32", "bf16", "f16", "e5m2"))
def test_conversion_twins(source, target):
    fmt, other = FORMATS[source], FORMATS[target]
    codes = np.arange(0, 1 << fmt.bits, 1 if fmt.bits < 16 else 13, code_type(fmt.bits))
    expected = [ieee.convert(fmt, other, code) for code in codes.tolist()]
    assert_same_codes(convert(fmt, other, codes), np.array(expected, code_type(other.bits)))


# --- chains of f64 in few calls -------------------------------------------------------------------


def chain_operands(regime, count, k=3):
    """Codes a, b ``(k, count)`` and c ``(count)``."""
    fmt, rng = FORMATS["f64"], np.random.default_rng(len(regime))
    if regime == "far":
        a, b, c = fma_operands(fmt, rng, k * count)
        return a.reshape(k, -1), b.reshape(k, -1), c[:count]
    if regime == "boundary":
        a, b, c = (rng.choice(boundary(fmt), size) for size in (k * count, k * count, count))
        return a.reshape(k, -1), b.reshape(k, -1), c
    numbers = rng.standard_normal((2 * k + 1, count))
    if regime == "integers":
        numbers = rng.integers(-3, 4, numbers.shape) * rng.choice([1.0, -0.0], numbers.shape)
    elif regime == "ties":  # of 26 and 29 bits, so that sums have a few bits too many
        numbers = numbers.astype(np.float32) * np.ldexp(1.0, rng.integers(-30, 30, numbers.shape))
        numbers[-1] *= 1 + 2.0**-52
    elif regime == "half":  # products that lack half a last bit, and addends of nearly as much
        numbers = (rng.integers(3 << 25, 1 << 27, numbers.shape) | 1) * np.sign(numbers)
        numbers[-1] = np.sign(numbers[-1]) * (1 - 2.0**-53)
    elif regime == "cancel":
        numbers[-1] = -numbers[0] * numbers[k]
    codes = numbers.view(np.uint64)
    return codes[:k], codes[k : 2 * k], codes[2 * k]


def computed_chains(a, b, c, rounding="rn"):
    """The share of chains that were computed, each by itself, after a comparison of those."""
    count = 0
    for p, q, start in zip(a.T, b.T, c, strict=True):
        x = int(start)
        for y, z in zip(p.tolist(), q.tolist(), strict=True):
            x = ieee.fma(FORMATS["f64"], y, z, x, rounding, ("b", "x", "a"))
        operands = (w.view(np.float64) for w in (p[:, None], q[:, None], start[None]))
        with np.errstate(all="ignore"):
            d = error_free.fused_chain(*operands, rounding)
        if d is not None:
            assert d.view(np.uint64) == x
            count += 1
    return count / len(c)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(
    ("regime", "share"),
    [
        ("normal", 1),
        ("integers", 1),
        ("ties", 0.6),
        ("half", 0.05),
        ("cancel", 0),
        ("far", 0.05),
        ("boundary", 0),
    ],
)
def test_chains_of_f64(regime, share, rounding):
    assert computed_chains(*chain_operands(regime, 300), rounding) >= share


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_chains_of_zeros_have_the_sign_of_their_rounding(rounding):
    zeros = np.array([0.0, -0.0, 1.0, -1.0]).view(np.uint64)
    a, b, c = (x.ravel() for x in np.meshgrid(zeros, zeros, zeros))
    assert computed_chains(a[None], b[None], c, rounding) == 1


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(
    "change",
    [
        {"_AROUND": np.ones(2)},
        {"_SMALL": 0.0},
        {"two_product": lambda a, b: (a * b, a * b * 0)},
        {"rounded": lambda *_: lambda total, excess, out: np.copyto(out, total)},
        {"rounded": lambda compute, how: rounded(compute, "rp" if how == "rz" else "rz")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_wrong_part_of_a_chain_is_noticed(monkeypatch, change, rounding):
    ((name, value),) = change.items()
    monkeypatch.setattr(error_free, name, value)
    with pytest.raises(AssertionError):
        for regime in ("normal", "ties", "half", "far", "boundary"):
            computed_chains(*chain_operands(regime, 300), rounding)


def test_a_machine_that_cannot_be_told_to_round_leaves_chains_to_others(monkeypatch):
    monkeypatch.setattr(error_free, "rounded", lambda compute, how: None)
    assert computed_chains(*chain_operands("normal", 9), "rz") == 0
