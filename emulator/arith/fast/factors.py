"""Elements as float32 numbers, and the plan of a recipe of fused dot-adds for a value of k.

Products of formats with up to 12 significand bits are exact in float32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, decode_values
from emulator.arith.arrangement import arrangement, largest_product
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FusedDotAdd

Float32 = NDArray[np.float32]
Bool = NDArray[np.bool_]

#: bits of a product that float32 holds exactly, and bits that int32 has for eight aligned ones
_MAX_PRECISION, _MAX_FRACTION_BITS = 12, 25
#: a floor that leaves room above it for the unit of the sum
_MAX_FLOOR = 90


#: format, codes and scales of one operand
Side = tuple[Format, Array, Array | None]


class FusedPlan(NamedTuple):
    """A recipe of fused dot-adds, settled for an instruction's k."""

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
    return 8 * largest_product(formats) * 2.0**step.fraction_bits < 2**31


def _is_readable(fmt: Format) -> bool:
    """True if `values` reads codes of the format."""
    like_f32 = fmt.signed and fmt.exponent_bits == 8 and fmt.specials == "ieee"
    return fmt.bits <= 8 or fmt.name == "f16" or (like_f32 and fmt.bits in (16, 32))


def is_special(fmt: Format, codes: Array) -> Bool:
    """Mask of the codes of a float format that are infinities or NaNs."""
    magnitude = (fmt.code_mask & ~fmt.sign_mask) >> fmt.ignored_bits << fmt.ignored_bits
    found: Bool = (codes & codes.dtype.type(magnitude)) > fmt.max_finite
    return found


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
