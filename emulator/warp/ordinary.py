"""Executes ordinary instructions on arrays of register words."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith.scalar import TYPES, bind_vector
from emulator.errors import OperandError, UnsupportedError, as_integer, listing, quoted, shown
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.signature import Operand
from emulator.warp.call import Call, Names


def arguments(ins: OrdinaryInstruction, count: int, options: tuple[str, ...]) -> Names:
    """The sources have their places for names; raises OperandError for an option that `ins` has
    not."""
    legal = ["active"] * (ins.lanes > 1) + ["parts"] * (ins.is_move)
    for name in options:
        if name not in legal:
            raise OperandError(
                f"{ins} takes no {quoted(name, 80)}; its options are {', '.join(legal) or 'none'}"
            )
    return Names(tuple(map(str, range(count))))


def run(call: Call) -> Any:
    """The destinations, in PTX order: an array, or a tuple of arrays where there are several.

    Operands are the sources in PTX order, words that broadcast: unsigned integers of any width, of
    which the low bits count, or bools for predicates; the carry flag comes last. Instructions over
    a warp take ``(…, 32)`` and ``active=``, the lanes that execute them; mov takes ``parts=``, the
    number of registers that it writes. Raises OperandError for operands of another kind or number,
    UnsupportedError for instructions with effects, which need the machine.
    """
    ins, operands, options = call.instruction, tuple(call.operands.values()), call.options
    if not ins.rule:
        raise UnsupportedError(f"{ins} does more than compute on registers: run it in a kernel")
    read = (x for x in ins.signature(call.target).operands if x.use == "read")
    sources = [x for x in read for _ in range(x.count if x.kind == "vector" else 1)]
    _check_count(ins, sources, len(operands))
    words = [
        _words(ins, sources[min(i, len(sources) - 1)], given)
        for i, given in enumerate(operands[: len(operands) - ins.reads_carry])
    ]
    if ins.reads_carry:
        words.append(np.asarray(operands[-1], bool))
    arrays = [word for word in words if isinstance(word, np.ndarray)]
    try:
        np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = listing(array.shape for array in arrays)
        raise OperandError(f"the operands of {ins} do not broadcast: {shapes}") from None
    if ins.lanes > 1:
        _check_lanes(ins, arrays, options)
    given = {"parts": str(options["parts"])} if "parts" in options else {}
    active = {"active": np.asarray(options["active"], bool)} if "active" in options else {}
    return bind_vector(ins, **given)(*words, **active)


def _check_count(ins: OrdinaryInstruction, sources: list[Operand], count: int) -> None:
    names = [x.name for x in sources] + ["carry"] * ins.reads_carry
    least, most = sum(not x.optional for x in sources) + ins.reads_carry, len(names)
    if ins.is_move:
        most = 4
    if not least <= count <= most:
        raise OperandError(
            f"{ins} takes {least}{f' to {most}' if most > least else ''} operands "
            f"({', '.join(names) or 'none'}); got {count}"
        )


def _words(ins: OrdinaryInstruction, operand: Operand, given: object) -> Array | int:
    """An operand as an array of words of its type; an immediate as an integer."""
    if operand.kind == "immediate":
        number = as_integer(given)
        if number is None:
            raise OperandError(f"{operand.name} of {ins} is an integer; got {shown(given)}")
        return number
    try:
        words = np.asarray(given)
    except ValueError:
        words = np.asarray(None)
    type_ = TYPES[operand.type]
    if type_.kind == "predicate":
        if words.dtype.kind not in "b":
            raise OperandError(f"{operand.name} of {ins} is a predicate, bools; got {words.dtype}")
        return words
    if words.dtype.kind not in "ui":
        raise OperandError(
            f"{operand.name} of {ins} is raw words, unsigned integers; got {words.dtype} "
            "(use .view to keep the bits of a float)"
        )
    if ins.is_move:
        return words.astype(f"uint{8 * words.itemsize}", copy=False)
    return words.astype(type_.dtype, copy=False)


def _check_lanes(ins: OrdinaryInstruction, arrays: list[Array], options: dict[str, object]) -> None:
    active = [np.asarray(options["active"])] if "active" in options else []
    for array in [*arrays, *active]:
        if array.shape[-1:] not in ((ins.lanes,), ()):
            raise OperandError(
                f"{ins} is executed by {ins.lanes} lanes: operands are (…, {ins.lanes}); "
                f"got {array.shape}"
            )
