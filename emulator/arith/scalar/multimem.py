"""Words that multimem.ld_reduce combines from the memory of several devices (PTX ISA 9.7.9).

The rounding of its sums has not been measured. Modelled: devices are added in the order in which
they were given, each sum is rounded to nearest even and keeps subnormal numbers, and with
``.acc::f32`` the result is rounded once, to its own type.
"""

from __future__ import annotations

from functools import reduce as fold
from typing import Any

from emulator.arith.scalar import comparison, conversion, floating, integer
from emulator.arith.scalar.rule import Rule, rule
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.scalar.words import Word, Words

_F32 = TYPES["f32"]


def _step(t: ScalarType, operation: str) -> Rule:
    """The rule that combines two words of a type; and, or and xor have none."""
    of_floats = {"add": floating.add, "min": comparison.minimum, "max": comparison.maximum}
    of_integers = {"add": integer.add, "min": integer.minimum, "max": integer.maximum}
    return (of_floats if t.is_float else of_integers)[operation]


@rule
def reduce(t: ScalarType, *words: int, operation: str = "", accumulator: str = "") -> int:
    """The words of all devices, combined by the operation in the order of the devices."""
    if operation in ("and", "or", "xor"):
        bits = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[operation]
        return fold(bits, words)
    if accumulator:
        wide = (conversion.floats.reference(_F32, t, word) for word in words)
        total = fold(lambda x, y: floating.add.reference(_F32, x, y), wide)
        return conversion.floats.reference(t, _F32, total)
    step = _step(t, operation).reference
    return fold(lambda x, y: step(t, x, y), words)


@reduce.words
def _(w: Words, t: ScalarType, *words: Word, operation: str = "", accumulator: str = "") -> Any:
    bits = {"and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}
    if operation in bits:
        return fold(bits[operation], words)
    if accumulator:
        wide = [conversion.floats.text(w, _F32, t, word) for word in words]
        total = fold(lambda x, y: floating.add.text(w, _F32, x, y), wide)
        return conversion.floats.text(w, t, _F32, total)
    step = _step(t, operation).text
    return fold(lambda x, y: step(w, t, x, y), words)
