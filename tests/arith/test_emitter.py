"""Loops, branches and words of machine code, run on arrays."""

import numpy as np
import pytest

pytest.importorskip("llvmlite")
from emulator.arith.fast.emitter import native_function
from emulator.arith.fast.words import LONG, POINTER, in_pairs, select


def results(write, count, dtype=np.int64, given=(), numbers=()):
    """What a function writes to the first array that it takes."""
    out = np.zeros(count, dtype)
    types = [POINTER] * (1 + len(given)) + [LONG] * len(numbers)
    native_function("tried", types, write, 8)(out, *given, *numbers)
    return out


@pytest.mark.parametrize(
    "start, stop, step", [(0, 5, 1), (2, 9, 3), (4, 4, 1), (5, 4, 1), (0, 1, 64)]
)
def test_a_loop_is_that_of_range(start, stop, step):
    def write(e, out, first, last):
        found = [e.number(0), e.number(-1)]
        with e.loop(last, first, step, found) as i:
            found[:] = found[0] + 1, i
        for place, word in enumerate(found):
            e.store(word, out, place)

    numbers = range(start, stop, step)
    want = [len(numbers), numbers[-1] if numbers else -1]
    assert results(write, 2, numbers=(start, stop)).tolist() == want


def test_a_loop_with_limits_that_are_known():
    def write(e, out):
        total = [e.number(0)]
        with e.loop(10, 1, 4, total) as i:
            total[0] = total[0] * 100 + i
        e.store(total[0], out, 0)
        for i in e.unrolled(16):
            e.store(i * i, out, i + 1)
        for i in e.unrolled(3):
            e.store(i + 7, out, i + 17)

    want = [10509, *(i * i for i in range(16)), 7, 8, 9]
    assert results(write, 20).tolist() == want


def test_a_known_loop_is_not_empty():
    def write(e, out):
        with e.loop(3, 3):
            pass

    with pytest.raises(AssertionError, match="empty"):
        results(write, 1)


@pytest.mark.parametrize("number", [3, 8])
def test_branches(number):
    def write(e, out, x):
        with e.when(x > 5):
            e.store(x, out, 0)
        with e.either(x < 5) as (small, large):
            with small:
                e.store(x + 1, out, 1)
            with large:
                e.store(x - 1, out, 1)
        words = [x, x + 1]
        with e.rarely(x == 8, words):
            words[:] = [word * 10 for word in words]
        e.store(words[0], out, 2)
        e.store(words[1], out, 3)

    want = {3: [0, 4, 3, 4], 8: [8, 7, 80, 90]}
    assert results(write, 4, numbers=(number,)).tolist() == want[number]


def test_words_are_as_arrays():
    """Every operator and conversion that kernels use."""
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.integers(-(1 << 31), 1 << 31, 6), [0, -(1 << 31)]]).astype(np.int32)
    y = rng.standard_normal(8).astype(np.float32)
    amounts = np.array([0, 1, 5, 31, 32, 40, 7, 31], np.int32)
    texts = [
        lambda x, y, n: (x >> 3) + (x.view(np.uint32) >> 3).view(np.int32),
        lambda x, y, n: (x << n) ^ (x >> n),
        lambda x, y, n: (x.view(np.uint32) >> n.view(np.uint32)).view(np.int32),
        lambda x, y, n: (x.view(np.uint32) // 7 + x.view(np.uint32) % 7).view(np.int32),
        lambda x, y, n: (y * 3.0 - 1.0).view(np.int32),
        lambda x, y, n: (1.5 / abs(y)).astype(np.int32),
        lambda x, y, n: x.astype(np.float32).view(np.int32),
        lambda x, y, n: (y.astype(np.float64) * 2.0**20).astype(np.int64).astype(np.int32),
        lambda x, y, n: x.astype(np.int8).astype(np.int32) | x.astype(np.uint16).astype(np.int32),
        lambda x, y, n: ((x < 5) & (y >= 0.0)).astype(np.int32) - (~(x == n)).astype(np.int32),
        lambda x, y, n: (x.view(np.uint16) + 1).view(np.int32),
        lambda x, y, n: 7 - x,
    ]
    given = x, y, amounts

    def write(e, out, *places):
        words = [e.lanes(place, 0, a.dtype) for place, a in zip(places, given, strict=True)]
        for i, text in enumerate(texts):
            e.store(text(*words), out, 8 * i)

    got = results(write, 8 * len(texts), np.int32, given).reshape(-1, 8)
    with np.errstate(over="ignore"):
        for i, text in enumerate(texts):
            want = text(*given)
            if i == 1:  # to NumPy, shifting by the width and more is undefined
                want = np.where(amounts > 31, 0, x << (amounts & 31)) ^ (
                    x >> np.minimum(amounts, 31)
                )
            elif i == 2:
                want = np.where(amounts > 31, 0, x.view(np.uint32) >> (amounts & 31).view("u4"))
            assert np.array_equal(got[i], want.astype(np.uint32).view(np.int32)), i


def test_lanes():
    x = np.arange(8, dtype=np.int32)

    def write(e, out, place):
        word = e.lanes(place, 0, np.int32)
        e.store(word.shuffled(word + 10, [0, 8, 3, 15, 7, 7, 1, 9]), out, 0)
        e.store(select(word > 3, 1, word.maximum(2).minimum(3)), out, 8)
        e.store((word > 5).any().astype(np.int32).splat(8), out, 16)
        e.store((word > 8).any().astype(np.int32).splat(8), out, 24)
        e.store((word > 5).mask().astype(np.int32).splat(8), out, 32)
        e.store(in_pairs(lambda p, q: p * 2 + q, [word + i for i in range(3)]), out, 40)
        e.store(word.ones(), out, 48)

    got = results(write, 56, np.int32, (x,)).reshape(-1, 8)
    assert got[0].tolist() == [0, 10, 3, 17, 7, 7, 1, 11]
    assert got[1].tolist() == [2, 2, 2, 3, 1, 1, 1, 1]
    assert got[2:5, 0].tolist() == [1, 0, 0xC0]
    assert got[5].tolist() == [(2 * i + i + 1) * 2 + i + 2 for i in range(8)]
    assert got[6].tolist() == [0, 1, 1, 2, 1, 2, 2, 3]
