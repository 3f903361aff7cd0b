"""The table of element formats: one row of facts each; everything else is derived.

Layer: the lowest of the package, imports nothing of it. Sources: PTX ISA 9.x, sections 5.2.3
(alternate floating-point formats) and 9.7.14.5.14 (containers of 4- and 6-bit elements), OCP MX.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Kind = Literal["float", "integer", "bits"]
Specials = Literal["ieee", "nan", "none"]


@dataclass(frozen=True)
class Format:
    """One element format. ``FORMATS`` holds the only instances that the package uses.

    A *code* is the unsigned integer that represents one element. The code of a tf32 element is the
    whole 32-bit word, as in a register; its low bits are ignored.
    """

    #: PTX spelling
    name: str
    kind: Kind
    #: bits of a code
    bits: int
    exponent_bits: int = 0
    #: stored fraction bits, without the implicit one
    mantissa_bits: int = 0
    signed: bool = True
    #: what the topmost codes mean: "ieee" exponent all ones is infinity or NaN, "nan" only the code
    #: with all ones is NaN, "none" every code is finite
    specials: Specials = "none"
    #: low bits that a register holds and an instruction ignores (tf32)
    ignored_bits: int = 0
    #: False: exponent field 0 is an ordinary power of two (ue8m0)
    has_zero: bool = True
    #: lowest bit of the element inside an 8-bit container of kind::f8f6f4
    container_shift: int = 0
    #: the NumPy or ml_dtypes type that means the same; None where none does
    array_type: str | None = None
    #: a canonical NaN that is not "sign 0, all other bits 1"
    nan_override: int | None = None
    #: bits below the point of a fixed-point format, an integer format whose values are fractions
    fraction_bits: int = 0
    #: low bits that hold the magnitude of an integer with a sign of its own; the bits between must
    #: be 0. None: two's complement, or without a sign
    magnitude_bits: int | None = None

    def __post_init__(self) -> None:
        if self.kind == "float":
            used = self.signed + self.exponent_bits + self.mantissa_bits + self.ignored_bits
            if used != self.bits:
                raise ValueError(
                    f"{self.name}: {used} bits are described, the code has {self.bits}"
                )

    def __repr__(self) -> str:
        return f"FORMATS[{self.name!r}]"

    def __hash__(self) -> int:
        """Of the name alone: formats are parts of many keys of caches."""
        return hash(self.name)

    def __reduce__(self) -> tuple[Callable[..., Format], tuple[object, ...]]:
        """Copies, and pickles that another process reads, are the one instance of the table; a
        format that was added is added there."""
        if self.name in _BUILT_IN:
            return format_named, (self.name,)
        facts = self.exponent_bits, self.mantissa_bits, self.signed, self.specials
        return add_format, (self.name, *facts)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @cached_property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @cached_property
    def emin(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias if self.has_zero else -self.bias

    @cached_property
    def precision(self) -> int:
        """Bits of a significand, the implicit one included."""
        return self.mantissa_bits + 1

    @cached_property
    def code_mask(self) -> int:
        return (1 << self.bits) - 1

    @cached_property
    def sign_mask(self) -> int:
        return 1 << (self.bits - 1) if self.signed else 0

    @cached_property
    def unused_mask(self) -> int:
        """Bits of a code that must be 0."""
        if self.magnitude_bits is None:
            return 0
        return self.code_mask ^ self.sign_mask ^ self.max_finite

    @cached_property
    def lowest(self) -> int:
        """The lowest value of an integer format."""
        return -self.sign_mask if self.magnitude_bits is None else -self.max_finite

    @cached_property
    def infinity(self) -> int | None:
        """Code of +infinity, None where the format has none."""
        if self.specials != "ieee":
            return None
        return ((1 << self.exponent_bits) - 1) << (self.mantissa_bits + self.ignored_bits)

    @cached_property
    def nan(self) -> int | None:
        """The code that PTX writes for a NaN, None where the format has none."""
        if self.specials == "none":
            return None
        if self.nan_override is not None:
            return self.nan_override
        return (self.code_mask ^ self.sign_mask) >> self.ignored_bits << self.ignored_bits

    @cached_property
    def max_finite(self) -> int:
        """Code of the largest finite number; of an integer format, the largest code."""
        if self.magnitude_bits is not None:
            return (1 << self.magnitude_bits) - 1
        if self.kind != "float":
            return self.code_mask ^ self.sign_mask
        if self.infinity is not None:
            return self.infinity - (1 << self.ignored_bits)
        top = self.code_mask ^ self.sign_mask
        return top - 1 if self.specials == "nan" else top


def _float(name: str, bits: int, exponent: int, mantissa: int, **facts: object) -> Format:
    return Format(name, "float", bits, exponent, mantissa, **facts)  # type: ignore[arg-type]


def _integer(name: str, bits: int, array_type: str) -> Format:
    return Format(name, "integer", bits, signed=name[0] == "s", array_type=array_type)


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        # NaN 0xFFF8… is what the f64 pipe makes of inf·0 and inf−inf (measured, H200).
        _float("f64", 64, 11, 52, specials="ieee", array_type="float64", nan_override=0xFFF8 << 48),
        _float("f32", 32, 8, 23, specials="ieee", array_type="float32"),
        _float("tf32", 32, 8, 10, specials="ieee", ignored_bits=13),
        _float("bf16", 16, 8, 7, specials="ieee", array_type="ml_dtypes.bfloat16"),
        _float("f16", 16, 5, 10, specials="ieee", array_type="float16"),
        _float("e5m2", 8, 5, 2, specials="ieee", array_type="ml_dtypes.float8_e5m2"),
        _float("e4m3", 8, 4, 3, specials="nan", array_type="ml_dtypes.float8_e4m3fn"),
        _float("e3m2", 6, 3, 2, array_type="ml_dtypes.float6_e3m2fn"),
        _float("e2m3", 6, 2, 3, array_type="ml_dtypes.float6_e2m3fn"),
        _float("e2m1", 4, 2, 1, container_shift=2, array_type="ml_dtypes.float4_e2m1fn"),
        _float(
            "ue8m0",
            8,
            8,
            0,
            signed=False,
            specials="nan",
            has_zero=False,
            array_type="ml_dtypes.float8_e8m0fnu",
        ),
        # Seven bits in a byte whose top bit must be 0.
        _float("ue4m3", 7, 4, 3, signed=False, specials="nan"),
        # Scales of sm_107: bias and range as public software has them.
        _float("ue5m3", 8, 5, 3, signed=False, specials="nan"),
        Format("s2f6", "integer", 8, fraction_bits=6),
        # PTX ISA 9.4, kind::ti16 of tcgen05.mma: a sign, four zeros, a magnitude.
        Format("s1z4m11", "integer", 16, magnitude_bits=11),
        _integer("s32", 32, "int32"),
        _integer("s8", 8, "int8"),
        _integer("u8", 8, "uint8"),
        _integer("s4", 4, "ml_dtypes.int4"),
        _integer("u4", 4, "ml_dtypes.uint4"),
        # Raw elements that ldmatrix and stmatrix move.
        Format("b8", "bits", 8, signed=False, array_type="uint8"),
        Format("b16", "bits", 16, signed=False, array_type="uint16"),
        Format("b1", "bits", 1, signed=False, array_type="ml_dtypes.uint1"),
    )
}


_BUILT_IN = frozenset(FORMATS)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,23}")


def format_named(name: str) -> Format:
    return FORMATS[name]


def add_format(
    name: str,
    exponent_bits: int,
    mantissa_bits: int,
    signed: bool = True,
    specials: Specials = "ieee",
) -> Format:
    """Adds a floating-point format of your own to ``FORMATS``, where recipes find it by its name.

    `specials` are those of `Format`: "ieee", "nan" or "none"; exponents have the usual bias. The
    same format may be added again. Raises ValueError for a name that another format has, and for
    numbers of bits that make no format.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"a format's name is a letter, then letters and digits; got {name!r:.80}")
    bits = {"exponent_bits": (exponent_bits, 2, 11), "mantissa_bits": (mantissa_bits, 0, 52)}
    for what, (given, least, most) in bits.items():
        if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
            raise ValueError(f"{what} of a format is {least} … {most}; got {given!r:.80}")
    if not isinstance(specials, str) or specials not in ("ieee", "nan", "none"):
        raise ValueError(f"specials is 'ieee', 'nan' or 'none'; got {specials!r:.80}")
    if specials == "ieee" and not mantissa_bits:
        raise ValueError("without mantissa bits no code is left for NaN beside infinity")
    width = bool(signed) + exponent_bits + mantissa_bits
    made = _float(name, width, exponent_bits, mantissa_bits, signed=bool(signed), specials=specials)
    if name in FORMATS and FORMATS[name] != made:
        raise ValueError(f"{name!r} is another format of FORMATS; give yours a name of its own")
    return FORMATS.setdefault(name, made)
