"""The codes and exponents at which arithmetic goes wrong: ends of a format, cuts of a recipe."""

from __future__ import annotations

from dtypes import FORMATS, Format
from dtypes.codec import round_to_code
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FusedDotAdd


def edge_codes(fmt: Format) -> list[int]:
    """Zeros, one, the ends of the subnormals and normals, infinities, NaNs; simple ones first.

    Of integers the ends of the range and what is next to them.
    """
    top = fmt.code_mask & ~fmt.sign_mask
    if fmt.kind == "bits":
        return [0, top]
    if not fmt.is_float:
        codes = [0, 1, top, top - 1, fmt.sign_mask, fmt.sign_mask + 1, fmt.code_mask, 2]
        return list(dict.fromkeys(code & fmt.code_mask for code in codes))
    unit = 1 << fmt.ignored_bits
    one, normal = fmt.bias << fmt.mantissa_bits, 1 << fmt.mantissa_bits
    near = [0, one, 1, normal - 1, normal, one + 1, one - 1, normal + 1]
    codes = [code * unit for code in near]
    codes += [fmt.max_finite // unit * unit, fmt.max_finite // unit * unit - unit]
    if fmt.infinity is not None:
        # The least NaN is a signalling one.
        codes += [fmt.infinity, fmt.infinity + unit]
    codes += [] if fmt.nan is None else [fmt.nan, top]
    codes += [fmt.max_finite, one * unit + unit - 1] if unit > 1 else []
    codes = list(dict.fromkeys(code for code in codes if 0 <= code <= fmt.code_mask))
    return list(dict.fromkeys([*codes, *(code | fmt.sign_mask for code in codes)]))


def exponent_range(fmt: Format) -> tuple[int, int]:
    """Exponents of the least and of the largest finite number."""
    least = fmt.emin - fmt.mantissa_bits if fmt.has_zero else fmt.emin
    largest = fmt.max_finite >> fmt.ignored_bits >> fmt.mantissa_bits
    return least, largest - fmt.bias


def code_of(fmt: Format, negative: bool, exponent: int, significand: int, bits: int) -> int:
    """The code of ``significand * 2**(exponent - bits + 1)``, cut to what the format holds.

    `significand` has `bits` bits, so that `exponent` is that of the number.
    """
    low, high = exponent_range(fmt)
    exponent = min(max(exponent, low), high)
    sign = int(negative and fmt.signed)
    scale = exponent - bits + 1
    return round_to_code(fmt, sign, significand, scale, "rz", overflow="saturate")


def scales_of_sums(arithmetic: Arithmetic) -> list[tuple[int, list[int]]]:
    """Exponents for the largest product of a sum, each with distances below it for the others.

    The largest is one, near the overflow, the least normal, at the floor of the recipe or at the
    least number of D; the others lie about the bits at which sums are cut and rounded.
    """
    d = arithmetic.d if arithmetic.d.is_float else FORMATS["f32"]
    least = d.emin - d.mantissa_bits
    usual, out = {0, d.precision}, []
    for step in arithmetic.steps:
        if isinstance(step, FusedDotAdd):
            usual |= {step.fraction_bits, step.precision or 0}
            if step.floor is not None:
                # What the floor cuts shows beside the least number, or beside half of it.
                cut = step.floor - step.fraction_bits
                out += [(x, _about({0, x - cut})) for x in (least, least - 1)]
                out += [(step.floor + off, _about(usual)) for off in (-1, 0, 1)]
    return [(base, _about(usual)) for base in (0, d.bias, d.emin)] + out


def _about(points: set[int]) -> list[int]:
    near = {point + off for point in points for off in (-1, 0, 1, 2)}
    return sorted(x for x in near if x >= 0)
