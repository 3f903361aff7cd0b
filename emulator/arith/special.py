"""The special function unit: MUFU.RCP, RSQ, SQRT, EX2, LG2, SIN, COS, TANH and RCP64H, RSQ64H.

Measured on an H200, bit by bit over every input; other targets are assumed to have the same unit.
A row of a table is chosen by the leading bits of the argument and interpolated by a quadratic in
fixed point, of which only the final sum is cut (after Oberman and Siu, ARITH-17, 2005). All units
read subnormal operands as zeros and flush subnormal results. The instructions that ptxas puts
around them are in `emulator.arith.scalar.approximate`.

Operands and results are f32 codes, of RCP64H and RSQ64H the upper words of f64 codes. Each unit is
stated twice: here as a function of one code, and in `special_words` over words.
"""

from __future__ import annotations

from emulator.arith.special_tables import EX2, LG2, RCP, RSQRT, SIN, SQRT, TANH, TANH_BITS, Table

NAN, INFINITY, SIGN, ONE = 0x7FFFFFFF, 0x7F800000, 0x80000000, 0x3F800000
FRACTION = 0x7FFFFF
INFINITY64H = 0x7FF00000
#: first row of tanh for each exponent from -8 on
TANH_FIRST = tuple(sum(1 << bits for bits in TANH_BITS[:i]) for i in range(len(TANH_BITS)))

# --- the interpolator -----------------------------------------------------------------------------


def square(x: int) -> int:
    """The unit's squarer: x·x without the partial products of weight below 2**19.

    The partial products are bit i of x at 2**2i, and bits i < j together at 2**(i + j + 1).
    """
    places = [i for i in range(x.bit_length()) if x >> i & 1]
    total = 0
    for n, i in enumerate(places):
        for j in places[n:]:
            place = 2 * i if i == j else i + j + 1
            if place >= 19:
                total += 1 << place
    return total


def _interpolate(table: Table, row: int, x: int) -> int:
    """The sum of a row, in units of ``2**-table.weight``."""
    c0, c1, c2 = table.rows[row]
    squared = square(2 * x) >> 2 if table is RCP else square(x)
    first = table.c1_sign * (c1 * x << table.c1_shift)
    return (c0 << table.c0_shift) + table.bias + first + table.c2_sign * c2 * squared


# --- codes ----------------------------------------------------------------------------------------


def _fields(x: int) -> tuple[int, int, int]:
    """Sign, exponent field and fraction."""
    return x >> 31, x >> 23 & 255, x & FRACTION


def _code(sign: int, exponent: int, fraction: int) -> int:
    """A result; below the normal range a zero, above it infinity."""
    if exponent > 127:
        return sign << 31 | INFINITY
    return sign << 31 | (exponent + 127 << 23 | fraction & FRACTION if exponent >= -126 else 0)


def _cut(sign: int, number: int, weight: int) -> int:
    """``number * 2**-weight``, cut to 24 significant bits."""
    if number == 0:
        return sign << 31
    top = number.bit_length() - 1
    return _code(sign, top - weight, number << 23 >> top)


def _fixed(exponent: int, fraction: int, point: int) -> int:
    """The magnitude of a code cut to units of ``2**-point``; of a subnormal one 0."""
    if exponent == 0:
        return 0
    shift = point - 23 + exponent - 127
    significand = fraction | 1 << 23
    return significand << shift if shift >= 0 else significand >> -shift


def half(exponent: int) -> tuple[int, int]:
    """Half of an exponent, and the bit that is left."""
    odd = exponent & 1
    return (exponent - odd) >> 1, odd


def _unless_positive(
    sign: int, field: int, f: int, zero: int, infinity: int, most: int = 255
) -> int | None:
    """The result of zero (which keeps its sign), infinity, or what has none; else None."""
    if field == most and f:
        return NAN
    if field == 0:
        return sign << 31 | zero
    if sign:
        return NAN
    return infinity if field == most else None


# --- one code -------------------------------------------------------------------------------------


def rcp(x: int) -> int:
    """MUFU.RCP."""
    sign, field, f = _fields(x)
    if field == 255:
        return NAN if f else sign << 31
    if field == 0:
        return sign << 31 | INFINITY
    total, exponent = _interpolate(RCP, f >> 16, f & 0xFFFF), 127 - field
    if total < 1 << RCP.weight:
        total, exponent = total << 1, exponent - 1
    return _code(sign, exponent, total >> RCP.weight - 23)


def rsqrt(x: int) -> int:
    """MUFU.RSQ."""
    sign, field, f = _fields(x)
    known = _unless_positive(sign, field, f, INFINITY, 0)
    if known is not None:
        return known
    exponent, odd = half(field - 127)
    if f == 0 and not odd:
        return _code(0, -exponent, 0)
    total = _interpolate(RSQRT, (f >> 17) + 64 * odd, f & 0x1FFFF)
    return _code(0, -1 - exponent, total >> RSQRT.weight - 24)


def sqrt(x: int) -> int:
    """MUFU.SQRT."""
    sign, field, f = _fields(x)
    known = _unless_positive(sign, field, f, 0, INFINITY)
    if known is not None:
        return known
    exponent, odd = half(field - 127)
    total = _interpolate(SQRT, (f >> 17) + 64 * odd, f & 0x1FFFF)
    return _code(0, exponent, total >> SQRT.weight - 23)


def ex2(x: int) -> int:
    """MUFU.EX2. A negative argument is complemented, not negated."""
    sign, field, f = _fields(x)
    if field == 255 and f:
        return NAN
    if field >= 127 + 7:  # from 128 on
        return 0 if sign else INFINITY
    magnitude = _fixed(field, f, 23)
    whole, rest = magnitude >> 23, magnitude & FRACTION
    if sign:
        whole = -whole - (rest > 0)
        rest = rest and ~rest & FRACTION
    total = _interpolate(EX2, rest >> 17, rest & 0x1FFFF)
    return _code(0, whole, total >> EX2.weight - 23)


def lg2(x: int) -> int:
    """MUFU.LG2. The sum loses its low 20 bits, so that results near 0 are coarse."""
    sign, field, f = _fields(x)
    known = _unless_positive(sign, field, f, SIGN | INFINITY, INFINITY)
    if known is not None:
        return known
    if x == ONE:
        return 0
    total = _interpolate(LG2, f >> 17, f & 0x1FFFF) + (field - 127 << LG2.weight)
    return _cut(int(field < 127), abs(total) >> 20 << 20, LG2.weight)


def sin(x: int) -> int:
    """MUFU.SIN of an argument in revolutions."""
    return _wave(x, cosine=False)


def cos(x: int) -> int:
    """MUFU.COS of an argument in revolutions."""
    return _wave(x, cosine=True)


def _wave(x: int, cosine: bool) -> int:
    sign, field, f = _fields(x)
    if field == 255:
        return NAN
    magnitude = _fixed(field, f, 25)
    quarter, rest = magnitude >> 23 & 3, magnitude & FRACTION
    if (quarter & 1) != cosine:
        rest = ~rest & FRACTION
    negative = int(quarter in (1, 2)) if cosine else sign ^ quarter >> 1
    return _cut(negative, _interpolate(SIN, rest >> 17, rest & 0x1FFFF), SIN.weight)


def tanh(x: int) -> int:
    """MUFU.TANH; arguments below 2**-8 are their own results, subnormal ones too."""
    sign, field, f = _fields(x)
    if field == 255 and f:
        return NAN
    exponent = field - 127
    if exponent < -8:
        return x
    if exponent > 2:
        return sign << 31 | ONE
    bits = TANH_BITS[exponent + 8]
    row = TANH_FIRST[exponent + 8] + (f >> 23 - bits)
    return _cut(sign, _interpolate(TANH, row, f >> 6 - bits & 0x1FFFF), TANH.weight)


def rcp64h(x: int) -> int:
    """MUFU.RCP64H: RCP of the upper 20 fraction bits, with the exponents of f64."""
    sign, field, f = x >> 31, x >> 20 & 2047, x & 0xFFFFF
    if field == 2047:
        return NAN if f else sign << 31
    if field == 0:
        return sign << 31 | INFINITY64H
    near = rcp(ONE | f << 3)
    exponent = (near >> 23) - 127 - (field - 1023) + 1023
    return sign << 31 | (exponent << 20 | (near & FRACTION) >> 3 if exponent > 0 else 0)


def rsq64h(x: int) -> int:
    """MUFU.RSQ64H: RSQ of the upper 20 fraction bits, with the exponents of f64."""
    sign, field, f = x >> 31, x >> 20 & 2047, x & 0xFFFFF
    known = _unless_positive(sign, field, f, INFINITY64H, 0, 2047)
    if known is not None:
        return known
    exponent, odd = half(field - 1023)
    near = rsqrt(ONE + (odd << 23) | f << 3)
    return (near >> 23) - 127 - exponent + 1023 << 20 | (near & FRACTION) >> 3
