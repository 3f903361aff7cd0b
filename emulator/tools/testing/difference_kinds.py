"""Kinds of difference between two codes: of zero's sign, of a NaN, of some ulps …"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format, NumberClass, decode
from emulator.errors import one_of

#: "payload": NaNs are equal where their bits are; "any": every NaN equals every other
Nan = Literal["payload", "any"]
#: "differ": +0 is not −0; "equal": it is
SignedZero = Literal["differ", "equal"]

#: the kinds, a number in the arrays below; 0 is no difference
KINDS = (
    "equal", "zero sign", "NaN payload", "NaN vs number", "infinity vs finite", "infinity sign",
    "number sign", "1 ulp", "2 to 16 ulps", "value", "off by 1", "ignored bits", "padding bits",
)  # fmt: skip
_KIND = {name: number for number, name in enumerate(KINDS)}

Kinds = NDArray[np.int8]


def kinds(fmt: Format | None, actual: Array, expected: Array) -> Kinds:
    """The kind of difference of every pair of codes, an index into KINDS.

    `fmt` None: the arrays are words without a meaning, which are equal or not.
    """
    differ = actual != expected
    out = np.where(differ, _KIND["value"], 0).astype(np.int8)
    if fmt is None or not differ.any() or fmt.kind == "bits":
        return out
    distance = ulps(fmt, actual, expected)
    if not fmt.is_float:
        out[differ & (distance == 1)] = _KIND["off by 1"]
        return out
    a, e = decode(fmt, actual), decode(fmt, expected)
    opposite = a.sign != e.sign

    def both(kind: NumberClass) -> NDArray[np.bool_]:
        return (a.number_class == kind) & (e.number_class == kind)

    def either(kind: NumberClass) -> NDArray[np.bool_]:
        return (a.number_class == kind) ^ (e.number_class == kind)

    # Later lines overrule earlier ones.
    for name, where in (
        ("2 to 16 ulps", distance <= np.uint64(16)),
        ("1 ulp", distance <= np.uint64(1)),
        ("number sign", _magnitudes(fmt, actual) == _magnitudes(fmt, expected)),
        ("zero sign", both(NumberClass.ZERO)),
        ("infinity vs finite", either(NumberClass.INFINITE)),
        ("infinity sign", both(NumberClass.INFINITE)),
        ("NaN vs number", either(NumberClass.NAN)),
        ("NaN payload", both(NumberClass.NAN)),
        ("ignored bits", (_magnitudes(fmt, actual) == _magnitudes(fmt, expected)) & ~opposite),
    ):
        out[differ & where] = _KIND[name]
    return out


def forgive(found: Kinds, nan: Nan, signed_zero: SignedZero) -> Kinds:
    """`found` without the differences that the caller's policy does not count."""
    forgiven = [_KIND["NaN payload"]] if nan == "any" else []
    forgiven += [_KIND["zero sign"]] if signed_zero == "equal" else []
    return np.where(np.isin(found, forgiven), np.int8(0), found)


def ulps(fmt: Format, actual: Array, expected: Array) -> NDArray[np.uint64]:
    """Codes between two numbers of a format, +0 and −0 counted once; of integers, the difference.

    Infinity counts as the number after the largest. Of a NaN it says nothing.
    """
    a, e = _magnitudes(fmt, actual), _magnitudes(fmt, expected)
    same = ((actual ^ expected) & actual.dtype.type(fmt.sign_mask)) == 0
    if not fmt.is_float:  # two's complement: a step of the code is a step of the number
        sign = np.uint64(fmt.sign_mask)
        a, e = (x.astype(np.uint64) ^ sign for x in (actual, expected))
        same = np.ones(a.shape, np.bool_)
    return np.where(same, np.maximum(a, e) - np.minimum(a, e), a + e)


def find_format(fmt: Format | str) -> Format:
    """The format of that name; raises OperandError for any other."""
    if isinstance(fmt, Format):
        return fmt
    return FORMATS[one_of("a format", fmt, FORMATS)]


def _magnitudes(fmt: Format, codes: Array) -> NDArray[np.uint64]:
    """Codes without sign and ignored bits: they count the numbers of a format from 0 up."""
    magnitude = codes.astype(np.uint64) & np.uint64(fmt.code_mask & ~fmt.sign_mask)
    return magnitude >> np.uint64(fmt.ignored_bits)
