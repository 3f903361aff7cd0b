"""Reductions of tcgen05.ld over the registers that it loads: .red and .spcompress, 9.7.16.8.

Both are pure functions of registers uint32 ``(…, lanes, n)``, each lane by itself.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Literal, NamedTuple

import numpy as np

from dtypes import FORMATS, Array
from emulator.arith.scalar.arrays import ARRAYS
from emulator.arith.scalar.comparison import maximum, minimum
from emulator.arith.scalar.types import TYPES
from emulator.errors import OperandError, one_of, shown

Extreme = Literal["min", "max"]

_RULES = {"min": minimum, "max": maximum}
#: neighbouring columns of which .spcompress keeps as many as it says
_OF, _KEPT = 4, 2


class Compressed(NamedTuple):
    """Registers of .spcompress: positions of 2 bits, lowest first, and what is kept."""

    metadata: Array
    data: Array


def reduced(
    registers: Array, extreme: Extreme, type_: str, *, absolute: bool = False, nan: bool = False
) -> Array:
    """redval ``(…, lanes)``: the smallest or largest of each lane's registers.

    `type_` is "f32", "u32" or "s32". `absolute` (``.abs``) compares magnitudes; with `nan`
    (``.NaN``) a NaN makes the result the canonical NaN, else numbers win against it, as in min and
    max of PTX (modelled). Raises OperandError for a type or modifiers that PTX lacks, and for
    fewer than two registers.
    """
    one_of("the operation of tcgen05.ld.red", extreme, _RULES)
    one_of("the type of tcgen05.ld.red", type_, ("f32", "u32", "s32"))
    if type_ != "f32" and (absolute or nan):
        raise OperandError(f"tcgen05.ld.red of {type_} takes neither .abs nor .NaN")
    if registers.shape[-1] < 2:
        raise OperandError(f"tcgen05.ld.red takes .x2 or more; got {registers.shape[-1]} registers")
    if type_ != "f32":
        found = getattr(registers.view(TYPES[type_].values), extreme)(-1)
        return np.asarray(found).view(np.uint32)
    rule = _RULES[extreme]
    take = partial(rule.text, ARRAYS, TYPES["f32"], **rule.options(nan=nan, abs=absolute))
    out: Array = reduce(take, np.moveaxis(registers, -1, 0))
    return out


def compressed(registers: Array, extreme: Extreme, *, absolute: bool = False) -> Compressed:
    """.spcompress of f32 words: of every 4 neighbouring registers the two largest or smallest, in
    their order (modelled: -0 is less than +0, a NaN is kept first, of equal ones the first).

    Raises OperandError for a number of registers that is no multiple of 4.
    """
    one_of("the operation of tcgen05.ld.spcompress", extreme, _RULES)
    *batch, count = registers.shape
    if count % _OF:
        raise OperandError(f"spcompress takes a multiple of {_OF} registers; got {shown(count)}")
    groups = registers.reshape(*batch, count // _OF, _OF)
    order = np.argsort(-_rank(groups, extreme, absolute), -1, kind="stable")
    kept = np.sort(order[..., :_KEPT], -1)
    data = np.take_along_axis(groups, kept, -1).reshape(*batch, count // _OF * _KEPT)
    positions = kept.reshape(*batch, -1)
    words = -(-positions.shape[-1] // 16)
    padded = np.zeros((*batch, 16 * words), np.uint32)
    padded[..., : positions.shape[-1]] = positions
    shifts = np.arange(0, 32, 2, dtype=np.uint32)
    metadata = np.bitwise_or.reduce(padded.reshape(*batch, words, 16) << shifts, axis=-1)
    return Compressed(metadata, data)


def _rank(words: Array, extreme: Extreme, absolute: bool) -> Array:
    """Integers that are larger for what is rather kept."""
    f32 = FORMATS["f32"]
    magnitude = (words & np.uint32(f32.code_mask ^ f32.sign_mask)).astype(np.int64)
    negative = words >> np.uint32(31) != 0
    order = magnitude if absolute else np.where(negative, ~magnitude, magnitude)
    rank = order if extreme == "max" else -order
    assert f32.infinity is not None
    return np.where(magnitude > f32.infinity, np.int64(1) << 40, rank)
