"""Integer and bit matrices: exact at the extremes, wrapped or clamped as the instruction says.

Expected values are sums of plain Python integers.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from bits import assert_same_codes
from dots import by_hand, each_fast

from emulator.arith import matmul
from emulator.arith.fast import integers

RANGES = {"s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15)}
PAIRS = [*product(("s8", "u8"), repeat=2), *product(("s4", "u4"), repeat=2)]
LOW, HIGH = -(2**31), 2**31 - 1


def arithmetic(a, b, saturate=False):
    return replace(by_hand(f"mma hopper {a} s32", b), saturate=saturate)


def codes(name, values):
    bits = int(name[1:])
    return (np.asarray(values) & (1 << bits) - 1).astype(np.uint8)


def expected(a, b, c, k, saturate):
    """Python integers, element by element, instruction by instruction."""
    out = np.empty(np.shape(c), object)
    for i, j in np.ndindex(out.shape):
        x = int(c[i][j])
        for start in range(0, len(a[i]), k):
            p, q = (np.asarray(z, np.int64)[start : start + k] for z in (a[i], b[j]))
            x += sum((p * q).tolist())
            x = min(max(x, LOW), HIGH) if saturate else (x - LOW) % 2**32 + LOW
        out[i, j] = x
    return out


def check(pair, a, b, c, k, engine, saturate=False):
    """Integer matrices a ``(m, K)``, b ``(n, K)``, c ``(m, n)``."""
    got = matmul(
        arithmetic(*pair, saturate), codes(pair[0], a), codes(pair[1], b),
        np.asarray(c, np.int64).astype(np.uint32), k=k, engine=engine,
    )  # fmt: skip
    assert_same_codes(got.view(np.int32), expected(a, b, c, k, saturate).astype(np.int32))


@pytest.mark.sampled(3)
@each_fast
@pytest.mark.parametrize("pair", PAIRS, ids=".".join)
def test_extremes_of_both_signs(pair, engine):
    """k passes the length at which float32 sums are cut: 1024 for s8, 258 for u8, 74565 for u4."""
    (a_low, a_high), (b_low, b_high) = (RANGES[x] for x in pair)
    k = 3136 if "8" in pair[0] else 64 * 1200
    rows = [np.full(k, a_low), np.full(k, a_high), np.resize([a_low, a_high], k)]
    columns = [np.full(k, b_low), np.full(k, b_high)]
    check(pair, rows, columns, [[0, -1], [1, 7], [LOW, HIGH]], 32 if k == 3136 else 64, engine)


@each_fast
@pytest.mark.parametrize("saturate", (False, True))
def test_random_matrices(saturate, engine):
    for pair in PAIRS:
        random_matrices(pair, saturate, engine)


def random_matrices(pair, saturate, engine):
    rng = np.random.default_rng(300)
    a, b = (
        rng.integers(*RANGES[x], (n, 96), endpoint=True) for x, n in zip(pair, (7, 9), strict=True)
    )
    c = rng.integers(LOW, HIGH, (7, 9), endpoint=True)
    c[:2] = rng.choice([LOW, LOW + 5000, HIGH - 5000, HIGH], (2, 9))
    check(pair, a, b, c, 32, engine, saturate)


@each_fast
def test_sums_stay_exact_one_by_one_around_two_to_the_24(engine):
    """1024 times 16384 is 2**24, the last integer before float32 begins to skip."""
    for k in (1023, 1024, 1025, 2047, 2048, 2049):
        a = np.full((1, k), -128)
        a[0, -1] = -127  # the last term makes the sum odd in units of 128
        check(("s8", "s8"), a, np.full((1, k), -128), [[1]], k, engine)
    for k in (257, 258, 259, 516, 517):
        check(("u8", "u8"), np.full((2, k), 255), np.full((1, k), 255), [[0], [1]], k, engine)


@each_fast
def test_sums_wrap_around(engine):
    one = np.ones((1, 32), int)
    for start, step in ((HIGH, one), (LOW, -one), (HIGH - 31, one), (LOW + 32, -one)):
        check(("s8", "s8"), step, one, [[start]], 32, engine)
    long = np.full((1, 1 << 18), 127)  # more than 2**32 on the way
    check(("s8", "s8"), long, long, [[5]], 32, engine)
    check(("u8", "u8"), long + 128, long + 128, [[-5]], 32, engine)


@each_fast
def test_satfinite_clamps_after_every_instruction(engine):
    """Up to the limit, and back from there: a clamp at the end of the chain would differ."""
    up, down = np.full(32, 127), np.full(32, -128)
    a = np.concatenate([up, up, down, up])[None]
    b = np.concatenate([up, up, up, down])[None]
    for c in (HIGH, HIGH - 32 * 127 * 127, HIGH - 1, LOW, LOW + 1, 0):
        check(("s8", "s8"), a, b, [[c]], 32, engine, saturate=True)
        check(("s8", "s8"), -a.clip(-127), b, [[c]], 32, engine, saturate=True)
    there_and_back = matmul(
        arithmetic("s8", "s8", True), codes("s8", a[:, 32:96]), codes("s8", b[:, 32:96]),
        np.array([[HIGH]], np.uint32), k=32, engine=engine,
    )  # fmt: skip
    assert int(there_and_back[0, 0]) == HIGH - 32 * 128 * 127


@each_fast
def test_satfinite_takes_one_clamp_for_an_instruction(engine):
    """Not one for every product: the exact sum decides."""
    a = np.resize([127, -127], (1, 32))
    check(("s8", "s8"), a, np.full((1, 32), 127), [[HIGH]], 32, engine, saturate=True)


@each_fast
def test_batches_of_integers(engine):
    rng = np.random.default_rng(301)
    a, b = rng.integers(-128, 128, (3, 5, 64)), rng.integers(-128, 128, (4, 64))
    got = matmul(
        arithmetic("s8", "s8"), codes("s8", a), codes("s8", b), np.zeros((1, 1), np.uint32)
        .repeat(5, 0).repeat(4, 1), k=32, engine=engine,
    )  # fmt: skip
    assert np.array_equal(got.view(np.int32), a @ b.T)


# --- bits -----------------------------------------------------------------------------------------


def ones(a, b, c, operation):
    counted = [
        [sum((p ^ q) if operation == "xor" else (p & q) for p, q in zip(r, s, strict=True))
         for s in b.tolist()] for r in a.tolist()
    ]  # fmt: skip
    return ((np.array(counted, object).reshape(len(a), len(b)) + c) % 2**32).astype(np.uint32)


@each_fast
@pytest.mark.parametrize("operation", ("xor", "and"))
def test_bits_are_counted(operation, engine):
    """Words of 64 bits, of which the last may be filled up: with bits that count for nothing."""
    for k in (1, 7, 8, 9, 63, 64, 65, 127, 128, 200, 256):
        count(k, operation, engine)


def count(k, operation, engine):
    rng = np.random.default_rng(k)
    a, b = rng.integers(0, 2, (5, k), np.uint8), rng.integers(0, 2, (6, k), np.uint8)
    a[0], a[1], b[0], b[1] = 0, 1, 0, 1
    c = rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1], (5, 6))
    bits = replace(by_hand("mma hopper b1 s32"), bit_operation=operation)
    got = matmul(bits, a, b, c.astype(np.uint32), k=k, engine=engine)
    assert_same_codes(got, ones(a, b, c, operation))


@each_fast
@pytest.mark.parametrize("operation", ("xor", "and"))
def test_bits_in_batches_and_pieces(operation, engine, monkeypatch):
    monkeypatch.setattr(integers, "_COUNTS", 7)
    rng = np.random.default_rng(302)
    bits = replace(by_hand("mma hopper b1 s32"), bit_operation=operation)
    a, b = rng.integers(0, 2, (3, 5, 256), np.uint8), rng.integers(0, 2, (3, 4, 256), np.uint8)
    c = np.full((5, 4), 9, np.uint32)
    for p, q, x in ((a, b, c), (a, b[:1], c), (a[0], b, c), (a[:1], b[0], np.stack([c] * 3))):
        got = matmul(bits, p, q, x, k=128, engine=engine)
        rows, columns = np.broadcast_to(p, a.shape), np.broadcast_to(q, b.shape)
        want = [ones(*pair, 9, operation) for pair in zip(rows, columns, strict=True)]
        assert_same_codes(got, np.stack(want))
    assert (c == 9).all()


# --- planted errors -------------------------------------------------------------------------------


def test_a_float_sum_that_is_too_long_would_show(monkeypatch):
    monkeypatch.setattr(integers, "_EXACT", 1 << 26)
    with pytest.raises(AssertionError, match="codes differ"):
        test_sums_stay_exact_one_by_one_around_two_to_the_24("vector")


def test_a_single_clamp_would_show(monkeypatch):
    right = integers.dot
    monkeypatch.setattr(integers, "dot", lambda ar, a, b, c, k: right(ar, a, b, c, a.shape[-1]))
    with pytest.raises(AssertionError, match="codes differ"):
        test_satfinite_clamps_after_every_instruction("vector")


def test_miscounted_bits_would_show(monkeypatch):
    right = integers.packed_bits
    monkeypatch.setattr(integers, "packed_bits", lambda bits: right(np.maximum(bits, 1)))
    with pytest.raises(AssertionError, match="codes differ"):
        count(64, "xor", "vector")
