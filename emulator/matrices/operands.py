"""Matrices as callers give them, as codes: shapes, types and ranges checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dtypes import FORMATS, Array, Format, array_type, code_type, codes_from_array
from emulator.arrays import as_array
from emulator.errors import EmulatorError, OperandError
from emulator.isa.instruction import Instruction, as_instruction
from emulator.isa.kinds import is_tensor_product
from emulator.isa.matrix import MatrixInstruction

if TYPE_CHECKING:
    from emulator.layout.instruction_descriptor import InstructionDescriptor

_R = TypeVar("_R")

#: names of the axes, for messages where a size may be any
_AXES = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n")}


# --- the order of a call --------------------------------------------------------------------------


def instruction_first_or_named(function: Callable[..., _R]) -> Callable[..., _R]:
    """Lets ``f(a, b, c, instruction=…)`` be called as ``f(instruction, a, b, c)``, too.

    Raises OperandError where the instruction stands elsewhere, is missing or is given twice, and
    for matrices that are too many or too few.
    """
    name = function.__name__

    @wraps(function)
    def call(
        *operands: object,
        instruction: Instruction | str | None = None,
        ins: Instruction | str | None = None,  # as version 0.2 called that of mma
        a: object = None,
        b: object = None,
        c: object = None,
        **options: object,
    ) -> _R:
        named = [x for x in (instruction, ins) if x is not None]
        found, matrices = _apart(name, operands, named)
        given = {letter: x for letter, x in zip("abc", (a, b, c), strict=True) if x is not None}
        for letter, matrix in zip("abc", matrices, strict=False):
            if letter in given:
                raise OperandError(
                    f"{name}: {letter} is given twice, by its place and as {letter}="
                )
            given[letter] = matrix
        if len(matrices) > 3:
            raise OperandError(f"{name} takes matrices A, B and C; got {len(matrices)}")
        if not {"a", "b"} <= given.keys():
            raise OperandError(f"{name} needs A and B; {_ORDERS.format(name)}")
        return function(instruction=found, **given, **options)

    return call


_ORDERS = "call {0}(instruction, a, b, c) or {0}(a, b, c, instruction=…)"


def _apart(name: str, operands: Sequence[Any], named: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """The instruction, and the matrices."""
    places = [i for i, x in enumerate(operands) if isinstance(x, (str, Instruction))]
    if len(named) + len(places) > 1:
        raise OperandError(f"{name} takes one instruction; got {len(named) + len(places)}")
    if named:
        return named[0], operands
    if places == [0]:
        return operands[0], operands[1:]
    if places:
        where = ("", "second", "third", "fourth")[places[0]] if places[0] < 4 else "last"
        raise OperandError(f"the instruction stands {where}; {_ORDERS.format(name)}")
    kinds = ", ".join(type(x).__name__ for x in operands[:4])
    raise OperandError(
        f"{name} needs an instruction, or its opcode as text; got {kinds or 'none'}; "
        f"{_ORDERS.format(name)}"
    )


# --- matrices -------------------------------------------------------------------------------------


@contextmanager
def batches_named(**operands: Any) -> Iterator[None]:
    """Says which shapes they are when batch axes do not broadcast."""
    try:
        yield
    except EmulatorError:
        raise
    except ValueError as error:
        # All else was checked before: only the batch axes are left that can fail.
        shapes = ", ".join(f"{n} {np.shape(x)}" for n, x in operands.items() if x is not None)
        raise OperandError(f"the batch axes do not broadcast: {shapes}") from error


def as_matrix_instruction(
    ins: object, idesc: InstructionDescriptor | int | None = None
) -> MatrixInstruction:
    """An instruction that multiplies, or its opcode, with `idesc` of a tcgen05.mma; raises
    OperandError for anything else."""
    if idesc is not None or is_tensor_product(ins):
        from emulator.isa.tensor_matrix import settle

        return settle(ins, idesc)
    ins = as_instruction(ins, "an Instruction that multiplies")
    if not isinstance(ins, MatrixInstruction):
        needs = " needs idesc=, an InstructionDescriptor" if is_tensor_product(str(ins)) else ""
        raise OperandError(
            f"an instruction that multiplies is needed: mma or wgmma; got {ins}"
            f"{f', which{needs}' if needs else ''}"
        )
    return ins


def signed(ins: MatrixInstruction, a: Array, b: Array) -> tuple[Array, Array]:
    """Codes of A and B, with their signs flipped where a descriptor asks for it."""
    if not any(ins.negated):
        return a, b
    masks = FORMATS[ins.a_type].sign_mask, FORMATS[ins.b_type].sign_mask
    a, b = (
        x ^ x.dtype.type(mask) if negated else x
        for x, mask, negated in zip((a, b), masks, ins.negated, strict=True)
    )
    return a, b


def operand_codes(
    name: str, values: object, fmt: Format, shape: tuple[int | None, ...], codes: bool
) -> Array:
    """Codes of an operand: `values` are codes, or of the format's type.

    A size of the shape that is None may be any. Raises OperandError for arrays of another shape or
    type, and for codes that have too many bits.
    """
    array = as_array(values, name)
    check_shape(name, array, shape)
    if not codes:
        try:
            return codes_from_array(fmt, array)
        except TypeError as error:
            raise OperandError(f"{name}: {error}; {_advice(name, values, fmt)}") from None
    if array.dtype.kind != "u":
        raise OperandError(f"{name}: element codes are unsigned integers; got {array.dtype}")
    if array.size and int(array.max()) > fmt.code_mask:
        raise OperandError(
            f"{name}: code {int(array.max()):#x} does not fit the {fmt.bits} bits of {fmt.name}"
        )
    return array.astype(code_type(fmt.bits), copy=False)


def _advice(name: str, values: object, fmt: Format) -> str:
    """Advice on how to convert an operand to the type that it must have."""
    codes = "element codes as unsigned integers with codes=True"
    type_ = array_type(fmt)
    if type_ is None:
        return f"pass {codes}"
    if fmt.bits == 1:
        return "pass 0 and 1 as uint8 with codes=True"
    wanted = f"{'np' if type_.type.__module__ == 'numpy' else 'ml_dtypes'}.{type_.name}"
    if not isinstance(values, np.ndarray):
        return f"np.array({name}, {wanted}) makes one"
    return f"cast it with .astype({wanted}), or pass {codes}"


def check_shape(name: str, array: Array, shape: tuple[int | None, ...]) -> None:
    got = array.shape[-len(shape) :]
    fits = len(got) == len(shape) and all(
        w is None or g == w for g, w in zip(got, shape, strict=True)
    )
    if not fits:
        names = _AXES.get(name, ("any",) * len(shape))
        want = ", ".join(n if w is None else str(w) for n, w in zip(names, shape, strict=True))
        raise OperandError(f"{name} must be (…, {want}); got {array.shape}")
