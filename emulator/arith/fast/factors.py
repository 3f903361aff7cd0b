"""Operands of a fused dot-add as float32 numbers, and the plan of a recipe for a value of k.

Products of formats with up to 12 significand bits are exact in float32, and so is the exponent that
aligns them: the product of two powers of two. Elements for which that fails (infinities, NaNs, and
numbers so large or small that a product could leave the range of float32) are marked, and the dot
products that meet one are computed by `vector` instead.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, decode_values
from emulator.arith.arrangement import arrangement
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FusedDotAdd

Float32 = NDArray[np.float32]
Bool = NDArray[np.bool_]

EXPONENT = np.int32(0x7F800000)
#: Powers of ordinary elements lie within 2**-63 … 2**63: their products are normal float32 numbers.
LEAST, LARGEST = np.float32(2.0**-63), np.float32(2.0**63)
#: bits of a product that float32 holds exactly, and bits that int32 has for eight aligned ones
_MAX_PRECISION, _MAX_FRACTION_BITS = 12, 25
#: a floor that leaves room above it for the unit of the sum
_MAX_FLOOR = 90


#: format, codes and scales of one operand
Side = tuple[Format, Array, Array | None]


class Factor(NamedTuple):
    """One side of the products, pass by pass: arrays ``(…, rows, passes, k)``."""

    value: Float32
    #: 2**exponent of each element, as decoded (a subnormal has the least exponent); 0 for a zero
    power: Float32
    #: ``(…, rows)``: a row has an element that is not ordinary; None: no row has
    special: Bool | None = None


class Constants(NamedTuple):
    """Parameters of a step, as constants for the bits of float32 and float64."""

    #: minus the exponent word of the largest term: the float32 word of what scales terms by
    to_scale: np.int32
    #: plus the exponent field, in place for a float64: the word of the unit of the sum
    to_unit: np.int64
    #: least exponent word of the largest term; 0: below all that is ordinary
    floor: np.int32
    #: exponent word that a subnormal accumulator counts with
    least: np.int32
    #: bits of a float64 that a result truncated to the output precision keeps
    mask: np.int64
    #: the result is f16, rounded to nearest even
    half: bool


def constants(step: FusedDotAdd) -> Constants:
    fmt = FORMATS[step.result]
    precision = step.precision or fmt.precision
    half = step.result == "f16"
    floor = -127 if step.floor is None else max(step.floor, -127)
    return Constants(
        np.uint32((127 + 127 + step.fraction_bits) << 23).view(np.int32),
        np.int64(1023 - 127 - step.fraction_bits) << np.int64(52),
        np.int32((floor + 127) << 23),
        np.int32((fmt.emin + 127) << 23 if half else 0),
        np.int64(-1 << (53 - precision)),
        half,
    )


class FusedPlan(NamedTuple):
    """A recipe of fused dot-adds, settled for an instruction's k."""

    numbers: Constants
    #: the format of the accumulator between steps
    result: Format
    #: positions of k that each pass takes, ``(passes, positions)``
    order: NDArray[np.intp]
    #: the passes take k as it comes
    in_order: bool
    widen: Format | None
    #: the passes of an instruction start from +0, and the accumulator is added to their result
    adds_c: bool
    #: formats that the accumulator is converted to before, and the result after
    before: Format | None
    after: Format | None
    step: FusedDotAdd


@lru_cache(maxsize=1024)
def plan(arithmetic: Arithmetic, k: int) -> FusedPlan | None:
    """Plans the float arithmetic of a recipe; None for recipes that it cannot compute."""
    found = arrangement(arithmetic.steps)
    if found is None or not isinstance(found.core, FusedDotAdd):
        return None
    step, result = found.core, FORMATS[found.core.result]
    accumulator = found.before or arithmetic.c
    exact = (
        max((found.widen or x).precision for x in (arithmetic.a, arithmetic.b)) <= _MAX_PRECISION
        and all(map(_is_readable, (arithmetic.a, arithmetic.b)))
        and step.fraction_bits <= _MAX_FRACTION_BITS
        and (step.floor is None or step.floor <= _MAX_FLOOR)
        and step.group == 1
        and accumulator is result
        and not arithmetic.c_shift
        and found.adds_c in (None, result)
        and (found.after or result) is arithmetic.d
        and (step.result, step.rounding) in (("f32", "rz"), ("f16", "rn"))
        and (step.precision is None or step.result == "f32")
    )
    blocks = step.blocks(k)
    if not exact or len({len(block) for block in blocks}) > 1:
        return None
    if arithmetic.scale is not None and (
        len(blocks) > 1
        or max(x.precision for x in (arithmetic.a, arithmetic.b)) + arithmetic.scale.precision
        > _MAX_PRECISION
    ):
        return None
    if not _fits_int32(arithmetic, step, found.widen):
        return None
    order = np.array(blocks, np.intp)
    in_order = bool((order.ravel() == np.arange(k)).all())
    return FusedPlan(
        constants(step),
        result,
        order,
        in_order,
        found.widen,
        adds_c=found.adds_c is not None,
        before=found.before,
        after=found.after,
        step=step,
    )


def _fits_int32(arithmetic: Arithmetic, step: FusedDotAdd, widen: Format | None) -> bool:
    """True if int32 holds the sum of eight aligned products of two or four significands each."""
    formats = [widen or arithmetic.a, widen or arithmetic.b]
    formats += [arithmetic.scale] * 2 if arithmetic.scale is not None else []
    largest = float(np.prod([2 - 2.0**-fmt.mantissa_bits for fmt in formats]))
    return 8 * largest * 2.0**step.fraction_bits < 2**31


def _is_readable(fmt: Format) -> bool:
    """True if `values` reads codes of the format."""
    like_f32 = fmt.signed and fmt.exponent_bits == 8 and fmt.specials == "ieee"
    return fmt.bits <= 8 or fmt.name == "f16" or (like_f32 and fmt.bits in (16, 32))


def factor(
    plan: FusedPlan, fmt: Format, codes: Array, scale: Format | None, scales: Array | None
) -> Factor:
    """Codes ``(…, rows, n * k)`` of n instructions.

    `scales` ``(…, rows, n * v)`` are multiplied in, each with the k / v elements it belongs to.
    """
    passes, width = plan.order.shape
    rows = codes.shape[:-1]
    if not plan.in_order:
        codes = codes.reshape(*rows, codes.shape[-1] // plan.order.size, plan.order.size)
        codes = codes.take(plan.order, -1)
    value = values(fmt, codes.reshape(*rows, -1, width))
    # A conversion is exact: only the exponents of subnormals change.
    power = powers(plan.widen or fmt, value)
    if scales is not None:
        assert scale is not None and passes == 1
        each = np.repeat(scales, codes.shape[-1] // scales.shape[-1], -1)
        by = values(scale, each).reshape(*each.shape[:-1], -1, width)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            value, power = value * by, power * powers(scale, by)
    special = ~((power >= LEAST) & (power <= LARGEST) | (value == 0))
    return Factor(value, power, special.any((-2, -1)) if special.any() else None)


def is_special(fmt: Format, codes: Array) -> Bool:
    """Mask of the codes of a float format that are infinities or NaNs."""
    magnitude = (fmt.code_mask & ~fmt.sign_mask) >> fmt.ignored_bits << fmt.ignored_bits
    found: Bool = (codes & codes.dtype.type(magnitude)) > fmt.max_finite
    return found


def least_power(fmt: Format) -> np.int32:
    """The exponent word of the subnormals of a format."""
    return np.int32(max(fmt.emin + 127, 1) << 23)


def powers(fmt: Format, value: Float32) -> Float32:
    """2**exponent of the numbers of a format: that of subnormals is the least of the format."""
    word = np.maximum(value.view(np.int32) & EXPONENT, least_power(fmt))
    word *= value != 0
    return word.view(np.float32)


def values(fmt: Format, codes: Array) -> Float32:
    """Codes as float32, which holds every number of these formats."""
    if fmt.bits <= 8:
        return _table(fmt).take(codes)
    if fmt.name == "f16":
        with np.errstate(invalid="ignore"):  # of signalling NaNs, where the processor converts
            return codes.view(np.float16).astype(np.float32)
    # What is left has the fields of float32, or the upper half of them.
    word = codes.astype(np.uint32, copy=False)
    if fmt.bits < 32:
        return (word << np.uint32(32 - fmt.bits)).view(np.float32)
    return (word & np.uint32((1 << 32) - (1 << fmt.ignored_bits))).view(np.float32)


@lru_cache(maxsize=16)
def _table(fmt: Format) -> Float32:
    return decode_values(fmt, np.arange(1 << fmt.bits, dtype=np.uint8)).astype(np.float32)
