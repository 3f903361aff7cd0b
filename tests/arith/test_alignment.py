"""What all machine code of fused dot-adds shares: integers as floats, rounding to f16, codes."""

import numpy as np
import pytest

from dtypes import FORMATS, decode_values

pytest.importorskip("llvmlite")
from emulator.arith.fast.emitter import native_function
from emulator.arith.fast.kernels import elements, machine_code
from emulator.arith.fast.kernels.alignment import SAFE, added, truncated
from emulator.arith.fast.words import POINTER

F16 = FORMATS["f16"]
LANES = 16
RNG = np.random.default_rng(5)
#: integers of every length around what float32 holds, and the ends of int32
INTEGERS = np.concatenate(
    [
        (RNG.integers(1 << 30, 1 << 31, 64) >> RNG.integers(0, 31, 64)) * RNG.choice([-1, 1], 64),
        [0, 1, -1, SAFE - 1, 1 - SAFE, 1 << 24, (1 << 24) + 1, (1 << 25) + 3, -(1 << 25) - 3],
        *([(1 << n) - 1, 1 << n, (1 << n) + 1] for n in range(2, 30)),
    ]
).astype(np.int32)


def mapped(text, x, dtype):
    """``text(word)`` of all elements, 16 at a time."""
    x = np.resize(x, len(x) + -len(x) % LANES)
    out = np.zeros(len(x), dtype)

    def write(e, place, to):
        with e.loop(len(x), step=LANES) as i:
            e.store(text(e.lanes(place, i, x.dtype)).view(dtype), to, i)

    native_function("mapped", [POINTER] * 2, write, LANES)(x, out)
    return x, out


def ways():
    """Whether instructions that round by themselves are used, as far as this processor has them."""
    return [False, True] if machine_code.directed() else [False]


@pytest.mark.parametrize("directed", ways())
def test_an_integer_as_a_float_toward_zero(directed):
    x, found = mapped(lambda word: truncated(word, False, False, directed), INTEGERS, np.float32)
    for number, near in zip(x.tolist(), found.tolist(), strict=True):
        cut = max(abs(number).bit_length() - 24, 0)
        assert near == (abs(number) >> cut << cut) * (-1 if number < 0 else 1)
    x, sticky = mapped(lambda word: truncated(word, False, True, directed), INTEGERS, np.uint32)
    inexact = (found.astype(np.float64) != x).astype(np.uint32)
    assert np.array_equal(sticky, found.view(np.uint32) | inexact) and inexact.any()


def test_an_integer_that_float32_has():
    small = INTEGERS[np.abs(INTEGERS) < 1 << 24]
    x, found = mapped(lambda word: truncated(word, True, False), small, np.float32)
    assert np.array_equal(found, x)


def halves():
    """Numbers of f16, and those between them: in the middle and beside it."""
    codes = np.arange(F16.infinity + 1, dtype=np.uint16)
    x = decode_values(F16, codes[:-1]).astype(np.float32)
    middle = (x[1:] + x[:-1]) / 2
    beside = [np.nextafter(middle, np.float32(limit)) for limit in (0, np.inf)]
    ends = np.array([2.0**-25, 2.0**-26, 1e-30, 65519.996, 65520, 7e4, 3e38], np.float32)
    x = np.concatenate([x, middle, *beside, ends])
    return np.concatenate([x, -x])


@pytest.mark.parametrize("directed", ways())
def test_rounding_to_half(directed):
    x, found = mapped(lambda word: elements.to_half(word, directed), halves(), np.float32)
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
    want += np.float16(0)  # a zero is +0
    assert np.array_equal(found.view(np.uint32), want.astype(np.float32).view(np.uint32))
    _, codes = mapped(lambda word: elements.half_code(word, directed), x, np.uint32)
    assert np.array_equal(codes, want.view(np.uint16))


def test_codes_and_numbers_of_half():
    codes = np.arange(1 << 16, dtype=np.uint32)
    _, found = mapped(lambda word: elements.number(F16, word), codes, np.float32)
    want = codes.astype(np.uint16).view(np.float16).astype(np.float32)
    assert np.array_equal(np.isnan(found), np.isnan(want))
    real = ~np.isnan(want)
    assert np.array_equal(found[real].view(np.uint32), want[real].view(np.uint32))
    _, back = mapped(lambda word: elements.code(F16, word), found, np.uint32)
    assert np.array_equal(back, np.where(real, codes, F16.nan))


def test_sums_that_int32_does_not_hold():
    first = RNG.integers(-(1 << 31), 1 << 31, 480).astype(np.int32)
    last = np.iinfo(np.int32)

    def lost(word):
        return added([word, word.maximum(0), word.minimum(9) + 5])[1]

    ends = np.array([0, last.max, last.min], np.int32)
    x, found = mapped(lost, np.concatenate([first, ends]), np.int32)
    sums = x.astype(np.int64) + np.maximum(x, 0)
    outside = (sums > last.max) | (sums < last.min)
    wrapped = sums.astype(np.int32).astype(np.int64) + np.minimum(x, 9) + 5
    outside |= (wrapped > last.max) | (wrapped < last.min)
    assert np.array_equal(found < 0, outside) and outside.any() and not outside.all()
