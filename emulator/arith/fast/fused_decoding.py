"""Codes of operands to what `fused_code` reads: float32 numbers, and exponents in short lanes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from llvmlite import ir

from dtypes import Format
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.kernels.elements import NOWHERE, decoded, power_of_two
from emulator.arith.fast.kernels.emitter import I8, I16, I32, I64, POINTER, Emitter

#: elements that are decoded together, and words of 32 bits in the longest vectors
LANES, _WORDS = 8, 16


class Layout(NamedTuple):
    """What code is generated for."""

    fmt: Format
    #: the format whose exponents count
    widened: Format
    #: of the scales that are multiplied in, one for each element
    scale: Format | None
    #: bits of a lane for exponents; the least number stands for a zero
    exponent_bits: int
    #: exponents fill 32 bits, as often as there is room; else a word of 32 bits has those of
    #: elements that are a vector of such words apart
    repeated: bool
    #: this many neighbours are followed by as many zeros, and what is negative lies in the place of
    #: these; 0: all lie in their own places
    split: int


@lru_cache(maxsize=64)
def decoding_function(layout: Layout) -> Callable[..., None]:
    """``f(first, last, codes, scales, value, exponent, largest)``: groups of 8 elements, `first` …
    `last`, whole words of exponents; these count from `largest`, infinities and NaNs become
    zeros."""
    module = ir.Module("decoding")
    kinds = [I64, I64, POINTER, POINTER, POINTER, POINTER, I64]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "decode")
    e = Emitter(function, LANES)
    first, last, *arrays, largest = function.args
    start, end = (e.b.shl(x, ir.Constant(I64, 3)) for x in (first, last))
    with e.loop(end, start, LANES) as i:
        _write(e, layout, i, arrays, e.splat(e.b.trunc(largest, I32)))
    e.b.ret_void()
    arguments = *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 4, ctypes.c_int64
    compute = machine_code.function(str(module), "decode", None, *arguments)

    def decode(first: int, last: int, *given: Any) -> None:
        compute(first, last, *(x.ctypes.data for x in given[:-1]), given[-1])

    return decode


def _write(e: Emitter, layout: Layout, i: Any, arrays: list[Any], largest: Any) -> None:
    """The elements from `i` on."""
    b, (codes, scales, values, exponents) = e.b, arrays
    x = decoded(e, layout.fmt, _codes(e, layout.fmt, codes, i), layout.widened)
    value, exponent, fraction = x.value, x.exponent, x.fraction_bits
    if layout.scale is not None:
        by = decoded(e, layout.scale, _codes(e, layout.scale, scales, i))
        value, exponent = b.fmul(value, by.value), b.add(exponent, by.exponent)
        fraction += by.fraction_bits
    number = b.fmul(value, power_of_two(e, b.sub(exponent, e.like(exponent, fraction))))
    is_zero = b.icmp_signed("<", exponent, e.like(exponent, NOWHERE // 2))
    least = e.like(exponent, -(1 << (layout.exponent_bits - 1)))
    exponent = e.select(is_zero, least, b.sub(exponent, largest))
    ones, mask = (0x01010101, 0xFF) if layout.exponent_bits == 8 else (0x00010001, 0xFFFF)
    exponent = b.and_(exponent, e.like(exponent, mask))
    if layout.repeated:
        e.store_lanes(b.mul(exponent, e.like(exponent, ones)), exponents, i)
    else:
        _store_in_words(e, exponent, layout.exponent_bits, exponents, i)
    if not layout.split:
        e.store_lanes(number, values, i)
        return
    zero = e.like(number, 0.0)
    is_negative = b.fcmp_ordered("<", number, zero)
    place = b.add(i, b.and_(i, ir.Constant(I64, -layout.split)))
    e.store_lanes(e.select(is_negative, zero, number), values, place)
    place = b.add(place, ir.Constant(I64, layout.split))
    e.store_lanes(e.select(is_negative, number, zero), values, place)


def _store_in_words(e: Emitter, exponent: Any, bits: int, exponents: Any, i: Any) -> None:
    """Into a part of words, whose lowest is written first."""
    b, parts = e.b, 32 // bits
    part = b.and_(b.udiv(i, ir.Constant(I64, _WORDS)), ir.Constant(I64, parts - 1))
    first = b.mul(b.udiv(i, ir.Constant(I64, _WORDS * parts)), ir.Constant(I64, _WORDS))
    place = b.add(first, b.and_(i, ir.Constant(I64, _WORDS - 1)))
    shift = e.splat(b.mul(b.trunc(part, I32), ir.Constant(I32, bits)))
    held = e.lanes(exponents, place, I32)
    held = e.select(b.icmp_unsigned("==", shift, e.like(shift, 0)), e.like(held, 0), held)
    e.store_lanes(b.or_(held, b.shl(exponent, shift)), exponents, place)


def _codes(e: Emitter, fmt: Format, codes: Any, i: Any) -> Any:
    """Codes of memory in int32."""
    type_ = {8: I8, 16: I16, 32: I32}[max(fmt.bits, 8)]
    held = e.lanes(codes, i, type_)
    return held if type_ is I32 else e.converted(I32, held, "zext")
