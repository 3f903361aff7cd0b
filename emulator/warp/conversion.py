"""Executes the cvts that pack matrix operands, on raw words."""

from __future__ import annotations

import numpy as np

from dtypes import Array, code_type
from emulator.arith.scalar import bind_vector
from emulator.arrays import as_array
from emulator.errors import OperandError
from emulator.isa.conversion import Conversion
from emulator.warp.call import Call


def run(call: Call) -> Array:
    """The packed result: words of one shape, uint32 (uint16, uint8 where it has fewer bits).

    Operands are unsigned words that broadcast, in PTX order: f32 words, of which the first comes to
    the highest place, or one packed word; for .rs a word of random bits last. Bits above a packed
    source are ignored. Raises OperandError for operands of another kind.
    """
    ins = call.instruction
    words = [_check(ins, name, x) for name, x in call.operands.items()]
    try:
        words = list(np.broadcast_arrays(*words))
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in words)
        raise OperandError(f"the operands of {ins} do not broadcast: {shapes}") from None
    return bind_vector(ins)(*words)


def _check(ins: Conversion, name: str, operand: Array) -> Array:
    words = as_array(operand, f"operand {name}")
    if words.dtype.kind != "u" or words.dtype.itemsize > 4:
        raise OperandError(
            f"operands of {ins} are raw words, unsigned integers of at most 32 bits; "
            f"got {words.dtype} (use .view to keep the bits of a float)"
        )
    return words.astype(code_type(32))
