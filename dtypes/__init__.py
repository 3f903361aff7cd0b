"""Element formats of NVIDIA's matrix instructions: facts, codes, packing.

``FORMATS`` is the table. ``decode``/``encode`` go between codes and numbers, ``pack``/``unpack``
between codes and register words, ``codes_from_array``/``array_from_codes`` between codes and
NumPy or ml_dtypes arrays.
"""

from dtypes.arrays import (
    Numbers,
    array_from_codes,
    array_type,
    codes_from_array,
    convert,
    decode,
    decode_integers,
    decode_values,
    encode,
    round_to_codes,
)
from dtypes.codec import Number, NumberClass, Overflow, Rounding
from dtypes.formats import FORMATS, Format, add_format
from dtypes.packing import Array, Place, code_type, pack, padding_is_zero, place, unpack

__all__ = [
    "FORMATS", "Array", "Format", "Number", "NumberClass", "Numbers", "Overflow", "Place",
    "Rounding", "add_format", "array_from_codes", "array_type", "code_type", "codes_from_array",
    "convert", "decode", "decode_integers", "decode_values", "encode", "pack",
    "padding_is_zero", "place", "round_to_codes", "unpack",
]  # fmt: skip
