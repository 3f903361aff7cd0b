"""Codes decoded by machine code for compiled dot-adds: every code of the small formats."""

import numpy as np
import pytest

from dtypes import FORMATS, code_type, decode_values
from emulator.arith.fast.factors import is_special, values

pytest.importorskip("llvmlite")
from emulator.arith.fast.fused_decoding import LANES, Layout, decoding_function

FORMATS_OF_A = ("f16", "bf16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1")
F16 = FORMATS["f16"]


def decoded(layout, codes, scales=None, largest=0):
    """Values, and exponents where they are not those of zeros, which are None."""
    value = np.full(len(codes) * (2 if layout.split else 1), np.nan, np.float32)
    lane = np.dtype(f"i{layout.exponent_bits // 8}")
    exponent = np.zeros(len(codes), np.uint32 if layout.repeated else lane)
    scales = codes if scales is None else scales
    decoding_function(layout)(0, len(codes) // LANES, codes, scales, value, exponent, largest)
    if not layout.repeated:
        # A word has elements that are 16 apart.
        parts = 32 // layout.exponent_bits
        exponent = exponent.reshape(-1, 16, parts).swapaxes(1, 2).ravel()
    return value, exponent


def all_codes(name):
    fmt = FORMATS[name]
    return fmt, np.resize(np.arange(1 << fmt.bits), max(1 << fmt.bits, 64)).astype(
        code_type(fmt.bits)
    )


@pytest.mark.parametrize("widened", (False, True))
@pytest.mark.parametrize("name", FORMATS_OF_A)
def test_all_codes(name, widened):
    fmt, codes = all_codes(name)
    wide = F16 if widened and fmt.bits <= 8 else fmt
    value, exponent = decoded(Layout(fmt, wide, None, 16, False, 0), codes)
    want = np.where(is_special(fmt, codes), 0, values(fmt, codes)) if fmt.specials != "none" else (
        values(fmt, codes)
    )  # fmt: skip
    normal = (np.abs(want) >= 2.0**-100) | (want == 0)
    assert np.array_equal(value[normal], want[normal])
    power = np.maximum(np.frexp(want)[1] - 1, wide.emin)
    assert np.array_equal(exponent, np.where(want == 0, -(1 << 15), power))


@pytest.mark.parametrize("bits", (8, 16))
def test_exponents_fill_words(bits):
    fmt, codes = all_codes("e4m3")
    one = decoded(Layout(fmt, fmt, None, bits, False, 0), codes, largest=3)[1]
    words = decoded(Layout(fmt, fmt, None, bits, True, 0), codes, largest=3)[1]
    assert np.array_equal(words.view(one.dtype), np.repeat(one, 32 // bits))
    assert one[fmt.bias << fmt.mantissa_bits] == -3 and one[0] == -(1 << (bits - 1))


def test_signs_are_split():
    fmt, codes = all_codes("e5m2")
    want = decoded(Layout(fmt, fmt, None, 8, False, 0), codes)[0].reshape(-1, 64)
    got = decoded(Layout(fmt, fmt, None, 8, False, 64), codes)[0].reshape(-1, 2, 64)
    assert np.array_equal(got[:, 0], np.maximum(want, 0))
    assert np.array_equal(got[:, 1], np.minimum(want, 0))


@pytest.mark.parametrize("scale", ("ue8m0", "ue4m3"))
def test_scales(scale):
    fmt, codes = all_codes("e2m1")
    by, factors = all_codes(scale)
    factors = factors[(factors != by.nan) & (np.abs(decode_values(by, factors)) < 2.0**100)]
    factors = factors[decode_values(by, factors) > 2.0**-100]
    codes, factors = np.repeat(codes, len(factors)), np.tile(factors, len(codes))
    value, exponent = decoded(Layout(fmt, fmt, by, 16, False, 0), codes, factors)
    element, factor = decode_values(fmt, codes), decode_values(by, factors)
    assert np.array_equal(value, element * factor)
    power = np.maximum(np.frexp(element)[1] - 1, fmt.emin)
    power += np.maximum(np.frexp(factor)[1] - 1, by.emin)
    assert np.array_equal(exponent[element != 0], power[element != 0])
    assert (exponent[element == 0] == -(1 << 15)).all()
