"""Operands from the command line: .npz files, numbers in text, and generated ones."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

import numpy as np

from dtypes import FORMATS, Array, Format, array_type, code_type, codes_from_array, encode
from dtypes.arrays import decode_values
from dtypes.codec import decode_integer
from emulator.errors import OperandError, hint, quoted
from emulator.isa.matrix import MatrixInstruction
from emulator.tools.arrays import read_npz, unnamed
from emulator.tools.explanations.exact import exact_value, value_text
from emulator.tools.explanations.feeds import Multiply
from emulator.tools.explanations.generated import generate

#: names of matrices in a file, and of what `mma` takes besides
_MATRICES = ("A", "B", "C")
_MORE = ("scale_a", "scale_b", "nibbles")


def matrices_from_file(ins: Multiply, file: str) -> dict[str, Array]:
    """A, B and, where they are given, C, scale_a, scale_b and nibbles, as codes.

    In the file an array of unsigned integers holds element codes, and so does one whose type NumPy
    lost (ml_dtypes arrays come back as raw bytes); any other holds values, which must be exact in
    the element type. Raises OperandError for a file or an array that cannot be used.
    """
    legal = (*_MATRICES, *_MORE)
    arrays = {}
    for key, array in read_npz(file).items():
        name = key.upper() if key.upper() in _MATRICES else key
        if name not in legal:
            raise OperandError(
                f"{file!r} has an array {quoted(key)}; matrices are {', '.join(legal)} (lane "
                f"registers go with --registers){unnamed(key) or hint(key, legal)}"
            )
        arrays[name] = array
    if missing := [name for name in "AB" if name not in arrays]:
        raise OperandError(f"{file!r} has no {' and no '.join(missing)}; it has {list(arrays)}")
    types = {"A": ins.a_type, "B": ins.b_type, "C": ins.c_type}
    if isinstance(ins, MatrixInstruction) and ins.is_block_scaled:
        types |= {"scale_a": ins.scale_type, "scale_b": ins.scale_type}
    return {
        name: codes_of(FORMATS[types[name]], array, name) if name in types else array
        for name, array in arrays.items()
    }


def registers_from_file(ins: Multiply, file: str) -> tuple[list[Array], dict[str, Any]]:
    """The operands and options of `execute`, by the names that its documentation gives them."""
    arrays = read_npz(file)
    # Version 0.2 called it so.
    if "b_descriptor" in arrays:
        arrays["descriptor_b"] = arrays.pop("b_descriptor")
    if "descriptor_a" in arrays:
        arrays["a"] = arrays.pop("descriptor_a")
    names = [operand.argument for operand in ins.signatures()[-1].arguments]
    if missing := [name for name in names if name not in arrays]:
        raise OperandError(
            f"{file!r} has no {', '.join(missing)}; {ins} takes {', '.join(names)}, and options of "
            f"execute by their names; the file has {', '.join(arrays) or 'nothing'}"
        )
    options = {
        name: array.item() if array.ndim == 0 else array
        for name, array in arrays.items()
        if name not in names
    }
    return [arrays[name] for name in names], options


def matrices_from_text(
    ins: Multiply, a: str, b: str, c: str | None, row: int, col: int
) -> dict[str, Array]:
    """One dot product: a row of A and a column of B, the rest zero; and C[row][col].

    Numbers stand between commas: ``1.5``, ``inf``, ``nan``, or an element's code such as
    ``0x3c00``. Values are rounded to nearest in the element type; what is missing at the end is 0.
    """
    for name, index, size in (("row", row, ins.m), ("col", col, ins.n)):
        if not 0 <= index < size:
            raise OperandError(f"{name} is 0 … {size - 1}; got {index}")
    if isinstance(ins, MatrixInstruction) and ins.is_block_scaled:
        raise OperandError(f"{ins} has block scales: give it matrices in a file, with --input")
    out = {}
    for name, type_, text, shape, place in (
        ("A", ins.a_type, a, (ins.m, ins.k), np.s_[row, :]),
        ("B", ins.b_type, b, (ins.k, ins.n), np.s_[:, col]),
        ("C", ins.c_type, c or "0", (ins.m, ins.n), np.s_[row, col : col + 1]),
    ):
        fmt = FORMATS[type_]
        matrix = np.zeros(shape, code_type(fmt.bits))
        line = matrix[place]
        codes = [number_code(fmt, word, name) for word in text.split(",")]
        if len(codes) > len(line):
            raise OperandError(f"{name} has {len(codes)} numbers, more than the {len(line)} of k")
        line[: len(codes)] = codes
        out[name] = matrix
    return out


def number_code(fmt: Format, word: str, name: str) -> int:
    """The code that ``1.5`` or ``0x3c00`` means."""
    text = word.strip()
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", text):
        code = int(text, 16)
        if code <= fmt.code_mask:
            return code
        raise OperandError(f"{name}: code {text} does not fit the {fmt.bits} bits of {fmt.name}")
    try:
        value = float(text) if fmt.is_float else int(text)
        code = int(encode(fmt, [value])[0])
    except ValueError as error:
        legal = "1.5, inf or nan"
        why = f": {error}" if fmt.name in str(error) else ""
        if not fmt.is_float:
            ends = [decode_integer(fmt, code) for code in (fmt.sign_mask, fmt.max_finite)]
            legal, why = f"an integer from {ends[0]} to {ends[1]}", ""
        raise OperandError(
            f"{name}: {quoted(text)} is no number of {fmt.name}{why}; write {legal}, or a code "
            f"such as {fmt.max_finite >> 1:#x}"
        ) from None
    if math.isfinite(value) and exact_value(fmt, code) is None:
        raise OperandError(
            f"{name}: {text} is too large for {fmt.name}, whose largest number is "
            f"{value_text(fmt, fmt.max_finite)}; write inf where infinity is meant"
        )
    return code


def operands(
    ins: Multiply,
    input: str | None,
    a: str | None,
    b: str | None,
    c: str | None,
    seed: int | None,
    inputs: str | None,
    place: tuple[int, int],
) -> dict[str, Array]:
    """The matrices that a command line asks for: of a file, in text, or generated."""
    ways = {"--input": input is not None, "--a and --b": a is not None or b is not None,
            "--seed or --inputs": seed is not None or inputs is not None}  # fmt: skip
    if sum(ways.values()) > 1:
        given = ", ".join(way for way, used in ways.items() if used)
        raise OperandError(f"operands come from one place; got {given}")
    if input is not None:
        return matrices_from_file(ins, input)
    if a is not None or b is not None or c is not None:
        if a is None or b is None:
            raise OperandError("--a and --b go together: a row of A and a column of B")
        return matrices_from_text(ins, a, b, c, *place)
    return generate(ins, 0 if seed is None else seed, inputs or "wide")


def codes_of(fmt: Format, array: Array, name: str) -> Array:
    """An array of a file as codes; see `matrices_from_file`."""
    own = array_type(fmt)
    if array.dtype.kind == "V" and own is not None and array.dtype.itemsize == own.itemsize:
        array = array.view(own)
    if own is not None and array.dtype == own:
        return codes_from_array(fmt, array)
    if array.dtype.kind == "u":
        return array
    if array.dtype.kind not in "fi":
        raise OperandError(f"{name} holds {array.dtype}; numbers or codes of {fmt.name} are needed")
    codes: Array | None = None
    with contextlib.suppress(ValueError):
        codes = encode(fmt, array)
    wrong = np.ones(array.shape, bool)
    if codes is not None:
        back = decode_values(fmt, codes)
        wrong = (back != array) & ~(np.isnan(array) & np.isnan(back))
    if codes is None or wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise OperandError(
            f"{name}{list(at)} is {array[at]}, which {fmt.name} does not hold exactly; round the "
            f"array first (.astype of ml_dtypes), or store unsigned element codes"
        )
    return codes
