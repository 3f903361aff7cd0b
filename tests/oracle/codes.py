"""Formats, their limits and NaNs as PTX writes them, and codes; for the tests of `dtypes`."""

import numpy as np

from dtypes import FORMATS, code_type

SMALL = ("bf16", "f16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1", "ue8m0", "ue4m3")
FLOATS = ("f64", "f32", "tf32", *SMALL)
INTEGERS = ("s8", "u8", "s4", "u4", "b1")
#: formats for which NumPy or ml_dtypes has a type
TYPED = tuple(name for name in SMALL if name != "ue4m3")
ROUNDINGS = ("rn", "rna", "rz", "rm", "rp")
OVERFLOWS = ("ieee", "infinity", "saturate")
#: largest finite code, and what a number too large becomes where rounding goes away from zero
LIMITS = {
    "bf16": (0x7F7F, 0x7F80), "f16": (0x7BFF, 0x7C00), "e5m2": (0x7B, 0x7C),
    "e4m3": (0x7E, 0x7F), "e3m2": (0x1F, 0x1F), "e2m3": (0x1F, 0x1F), "e2m1": (7, 7),
    "ue8m0": (0xFE, 0xFF), "ue4m3": (0x7E, 0x7F),
}  # fmt: skip
NANS = {
    "f64": 0xFFF8 << 48, "f32": 0x7FFFFFFF, "tf32": 0x7FFFE000, "bf16": 0x7FFF, "f16": 0x7FFF,
    "e5m2": 0x7F, "e4m3": 0x7F, "e3m2": 0x1F, "e2m3": 0x1F, "e2m1": 7, "ue8m0": 0xFF,
    "ue4m3": 0x7F,
}  # fmt: skip


def every_code(name):
    return np.arange(1 << FORMATS[name].bits, dtype=code_type(FORMATS[name].bits))


def f32_codes(*values):
    return np.array(values, np.float32).view(np.uint32)


def cast(values, dtype):
    """The other library's conversion; what it warns of is no concern here."""
    with np.errstate(all="ignore"):
        return values.astype(dtype)
