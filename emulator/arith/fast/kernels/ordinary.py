"""The fused dot-add in machine code where products are normal float32 numbers.

An element is ordinary if it is finite and its exponent so near 0 that every product, and every
scale that aligns one, is a normal float32 number. Where anything else is met, `sums` has to compute
all of it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Format
from emulator.arith.arrangement import Arrangement, largest_product
from emulator.arith.fast.kernels import elements, machine_code
from emulator.arith.fast.kernels.alignment import (
    DIRECTED_LANES,
    SAFE,
    Alignment,
    LazyProduct,
    added,
    aligned,
    magnitude,
    truncated,
)
from emulator.arith.fast.kernels.elements import BIAS, EXPONENT, MANTISSA, SIGN
from emulator.arith.fast.kernels.product import Product
from emulator.arith.fast.words import Word, in_pairs, select
from emulator.arith.steps import FusedDotAdd

#: exponents of ordinary elements, and of accumulators
ELEMENTS, ACCUMULATORS = (-50, 62), (-126, 127)
#: Exponents of ordinary scales, with a margin: the units of zeros, times two scales, would overflow
#: from 19 on (see `dot_add`), powers of two of products from 49 on.
SCALES = (-15, 15)


class FactorWords(NamedTuple):
    """Codes as float32 numbers, 2 to the power of their exponents (0 of a zero), and a mask of
    those that are not ordinary, which mean nothing; None: the format has none."""

    number: Word
    power: Word
    odd: Word | None


def suits(product: Product, found: Arrangement) -> bool:
    """True if this is how a recipe computes ordinary numbers."""
    core = found.core
    if not isinstance(core, FusedDotAdd) or core.group > 1:
        return False
    one_scale = product.scales == 1 and product.arithmetic.scale is FORMATS["ue8m0"]
    if product.scales and (not one_scale or found.widen is not None):
        return False
    return 2 * ELEMENTS[0] + BIAS > core.fraction_bits


def factor(
    fmt: Format, codes: Word, widened: Format | None, exponents: tuple[int, int]
) -> FactorWords:
    """Codes in uint32; bits above them are ignored. `widened`: with the exponents that the numbers
    have in that format."""
    if fmt.emin == 1 - BIAS:
        return _wide_factor(fmt, codes, exponents)
    bits, size = elements.finite_number(fmt, codes), codes & (1 << (fmt.bits - 1)) - 1
    odd = None
    if fmt.specials != "none":
        odd = size >= (fmt.code_mask >> 1 if fmt.infinity is None else fmt.infinity)
    power = (bits & EXPONENT).view(np.int32)
    power = select(size == 0, 0, power.maximum(((widened or fmt).emin + BIAS) << MANTISSA))
    return FactorWords(bits.view(np.float32), power.view(np.float32), odd)


def exponents_of(fmt: Format, widened: Format | None) -> tuple[int, int]:
    """The least and the largest exponent of `factor`'s powers."""
    if fmt.emin == 1 - BIAS:
        return ELEMENTS
    largest = (fmt.max_finite >> (fmt.mantissa_bits + fmt.ignored_bits)) - fmt.bias
    return max((widened or fmt).emin, fmt.emin - fmt.mantissa_bits), largest


def _wide_factor(fmt: Format, codes: Word, exponents: tuple[int, int]) -> FactorWords:
    """`factor` of formats that have the exponents of float32: codes are the upper bits of one."""
    first, last = exponents
    word = codes << (32 - fmt.bits)
    if fmt.ignored_bits:
        word = word & -1 << fmt.ignored_bits
    power = word & EXPONENT
    odd = (power - ((first + BIAS) << MANTISSA)) >= (last - first + 1) << MANTISSA
    odd = odd & ((word & SIGN - 1) != 0)
    return FactorWords(word.view(np.float32), power.view(np.float32), odd)


def scale(codes: Word) -> tuple[Word, Word]:
    """Codes of ue8m0 as float32 numbers, and a mask of those that are not ordinary."""
    first, last = SCALES
    above = codes - (first + BIAS)
    return (codes << MANTISSA).view(np.float32), above > last - first


def dot_add(
    step: FusedDotAdd,
    formats: Sequence[Format],
    fmt: Format,
    terms: Sequence[LazyProduct],
    scaled: Word | None,
    x: Word,
    top: Word | None = None,
) -> tuple[Word, Word]:
    """One fused dot-add: codes of the accumulator in `fmt` to those of the result, and a mask of
    those that mean nothing. `formats` are those of A and B, `scaled` is a power of two that all
    products have to be multiplied by, `top` the bits of the power of two of the largest product,
    where that is known."""
    align, result = Alignment.of(step.fraction_bits, step.floor), FORMATS[step.result]
    own = factor(fmt, x, None, ACCUMULATORS)
    assert own.odd is not None
    odd = own.odd
    if top is None:
        top = in_pairs(Word.maximum, [term.exponent().view(np.int32) for term in terms])
    if scaled is not None:
        top = (top.view(np.float32) * scaled).view(np.int32)
    top = top.maximum(own.power.view(np.int32))
    if align.least:
        # No term at all, which is 0, is not too small.
        odd = odd | ((top - 1).view(np.uint32) < (align.least << MANTISSA) - 1)
        top = top.maximum(align.least << MANTISSA)
    top = align.raised(top)
    to_units = align.scale(top)
    units = of_products = to_units.view(np.float32)
    if scaled is not None:
        # Zeros are below the least product that is none: their units must not overflow, for what
        # the NaN would be as an integer is undefined.
        lowest = BIAS + 2 * SCALES[0] + sum(fmt.emin for fmt in formats)
        highest = (2 * BIAS + step.fraction_bits - lowest) << MANTISSA
        of_products = to_units.minimum(highest).view(np.float32) * scaled
    largest = largest_product(formats) * 2.0**step.fraction_bits
    bound = len(terms) * largest + 2.0 ** (step.fraction_bits + 1)
    addends = [aligned(term.value(), of_products) for term in terms]
    together = int(SAFE // largest)
    parts = [
        in_pairs(Word.__add__, addends[i : i + together]) for i in range(0, len(addends), together)
    ]
    total, lost = added([*parts, aligned(own.number, units)])
    is_half = result is FORMATS["f16"]
    directed = machine_code.directed() and x.lanes == DIRECTED_LANES
    number = truncated(total, bound < 1 << (MANTISSA + 1), is_half, directed)
    if bound >= SAFE:
        odd = odd | ((lost | (magnitude(total) + 128)) < 0)
    if step.precision is not None:
        number = number & -1 << (MANTISSA + 1 - step.precision)
    value = number.view(np.float32) * align.unit(top)
    if is_half:
        return elements.half_code(value, directed), odd
    return value.view(np.uint32), odd
