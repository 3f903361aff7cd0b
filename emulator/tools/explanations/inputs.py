"""Operands from the command line: .npz files, numbers in text, and generated ones."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from dtypes import FORMATS, Array, Format, code_type, encode
from dtypes.codec import decode_integer
from emulator.errors import OperandError, hint, listing, one_of, quoted, whole
from emulator.isa.matrix import MatrixInstruction
from emulator.tools.explanations.numbers import ShownCode
from emulator.tools.files import read_npz, unnamed
from emulator.tools.operands import Multiplication, as_codes, operand_shapes, traits
from emulator.warp.sparse import legal_nibbles

#: names of matrices in a file, and of what `mma` takes besides
_MATRICES = ("A", "B", "C")
_MORE = ("scale_a", "scale_b", "nibbles")
KINDS = {
    "wide": "exponents far apart, so that low bits of products are cut off",
    "normal": "standard normal numbers",
    "edges": "as wide, with zeros, subnormals, largest numbers, infinities and NaNs among them",
    "any": "random bits",
}


def _types(ins: Multiplication) -> dict[str, Format]:
    types = {"A": ins.a_type, "B": ins.b_type, "C": ins.c_type}
    if isinstance(ins, MatrixInstruction) and ins.is_block_scaled:
        types |= {"scale_a": ins.scale_type, "scale_b": ins.scale_type}
    return {name: FORMATS[type_] for name, type_ in types.items()}


def operands(
    ins: Multiplication,
    place: tuple[int, int],
    input: str | None = None,
    a: str | None = None,
    b: str | None = None,
    c: str | None = None,
    seed: int | None = None,
    inputs: str | None = None,
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
    return generate(ins, 0 if seed is None else seed, "wide" if inputs is None else inputs)


# --- files ----------------------------------------------------------------------------------------


def matrices_from_file(ins: Multiplication, file: str) -> dict[str, Array]:
    """A, B and, where they are given, C, scale_a, scale_b and nibbles, as codes.

    In the file an array of unsigned integers holds element codes, and so does one whose type NumPy
    lost (ml_dtypes arrays come back as raw bytes); any other holds values, which must be exact in
    the element type. Raises OperandError for a file or an array that cannot be used.
    """
    legal = (*_MATRICES, *_MORE)

    def legal_name(key: str) -> str:
        name = key.upper() if key.upper() in _MATRICES else key
        if name not in legal:
            raise OperandError(
                f"{quoted(file)} has an array {quoted(key)}; matrices are {', '.join(legal)} (lane "
                f"registers go with --registers){unnamed(key) or hint(key, legal)}"
            )
        return name

    given = read_npz(file, check_name=legal_name)
    arrays = {legal_name(key): array for key, array in given.items()}
    if missing := [name for name in "AB" if name not in arrays]:
        raise OperandError(
            f"{quoted(file)} has no {' and no '.join(missing)}; it has {listing(arrays) or 'none'}"
        )
    types = _types(ins)
    return {
        name: as_codes(name, types[name], array) if name in types else array
        for name, array in arrays.items()
    }


def registers_from_file(ins: Multiplication, file: str) -> tuple[list[Array], dict[str, Any]]:
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
            f"{quoted(file)} has no {', '.join(missing)}; {ins} takes {', '.join(names)}, and "
            f"options of execute by their names; the file has {listing(arrays) or 'nothing'}"
        )
    options = {
        name: array.item() if array.ndim == 0 else array
        for name, array in arrays.items()
        if name not in names
    }
    return [arrays[name] for name in names], options


# --- text -----------------------------------------------------------------------------------------


def matrices_from_text(
    ins: Multiplication, a: str, b: str, c: str | None, row: int, col: int
) -> dict[str, Array]:
    """One dot product: a row of A and a column of B, the rest zero; and C[row][col].

    Numbers stand between commas: ``1.5``, ``inf``, ``nan``, or an element's code such as
    ``0x3c00``. Values are rounded to nearest in the element type; what is missing at the end is 0.
    """
    whole("row", row, 0, ins.m - 1)
    whole("col", col, 0, ins.n - 1)
    if traits(ins).scaled:
        raise OperandError(f"{ins} has block scales: give it matrices in a file, with --input")
    out, types = {}, _types(ins)
    for name, text, shape, place in (
        ("A", a, (ins.m, ins.k), np.s_[row, :]),
        ("B", b, (ins.k, ins.n), np.s_[:, col]),
        ("C", c or "0", (ins.m, ins.n), np.s_[row, col : col + 1]),
    ):
        out[name] = np.zeros(shape, code_type(types[name].bits))
        line = out[name][place]
        codes = [number_code(types[name], word, name) for word in text.split(",")]
        if len(codes) > len(line):
            raise OperandError(f"{name} has {len(codes)} numbers, more than the {len(line)} of k")
        line[: len(codes)] = codes
    return out


def number_code(fmt: Format, word: str, name: str) -> int:
    """The code that ``1.5`` or ``0x3c00`` means."""
    text = word.strip()
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", text):
        code = int(text, 16)
        if code <= fmt.code_mask:
            return code
        raise OperandError(
            f"{name}: code {quoted(text)[1:-1]} does not fit the {fmt.bits} bits of {fmt.name}"
        )
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
            f"{name}: {quoted(text)} is no number of {fmt.name}{why:.200}; write {legal}, or a "
            f"code such as {fmt.max_finite >> 1:#x}"
        ) from None
    if math.isfinite(value) and ShownCode(fmt, code).value is None:
        raise OperandError(
            f"{name}: {quoted(text)[1:-1]} is too large for {fmt.name}, whose largest number is "
            f"{ShownCode(fmt, fmt.max_finite).text()}; write inf where infinity is meant"
        )
    return code


# --- generated ------------------------------------------------------------------------------------


def generate(ins: Multiplication, seed: int = 0, kind: str = "wide") -> dict[str, Array]:
    """Codes of A, B and C, and where `ins` takes them scale_a, scale_b and nibbles.

    A of a sparse instruction is compressed. Integers are random bits in every kind; "edges" has C
    near the ends of s32. Raises OperandError for another kind or seed.
    """
    one_of("a kind of inputs", kind, KINDS)
    seed = whole("a seed", seed)
    rng, shapes = np.random.default_rng(seed), operand_shapes(ins)
    # Of m8n8k4.f16 one matrix stands for all four.
    shape = {name.upper(): shapes[name][-2:] for name in "abc"}
    out = {name: _matrix(rng, _types(ins)[name], shape[name], kind) for name in _MATRICES}
    if kind == "edges" and not FORMATS[ins.c_type].is_float:
        near = rng.integers(-2000, 2000, shape["C"]) + (1 << 31) * rng.integers(0, 2, shape["C"])
        out["C"] = (near & 0xFFFFFFFF).astype(np.uint32)
    if "nibbles" in shapes and isinstance(ins, MatrixInstruction):
        out["nibbles"] = rng.choice(legal_nibbles(ins), shapes["nibbles"]).astype(np.uint8)
    for name in ("scale_a", "scale_b"):
        if name in shapes:
            fmt = _types(ins)[name]
            one = fmt.bias << fmt.mantissa_bits
            scales = one + rng.integers(-6, 7, shapes[name])
            out[name] = scales.astype(code_type(fmt.bits))
    return out


def _matrix(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...], kind: str) -> Array:
    random = rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True)
    codes = random.astype(code_type(fmt.bits))
    if not fmt.is_float or kind == "any":
        return codes
    values = rng.standard_normal(shape)
    if kind != "normal":
        values = (1 + rng.random(shape)) * np.where(random & np.uint64(1), 1.0, -1.0)
        values = np.ldexp(values, rng.integers(-6, 7, shape))
    codes = encode(fmt, values, overflow="saturate")
    if kind == "edges":
        # Zero, the least numbers, the largest, infinity and NaN, of both signs.
        unit = 1 << fmt.ignored_bits
        some = [0, unit, unit << fmt.mantissa_bits, fmt.max_finite, fmt.infinity, fmt.nan]
        held = [x for x in some if x is not None]
        both = np.array([*held, *(x | fmt.sign_mask for x in held)], np.uint64)
        special = rng.choice(both.astype(codes.dtype), shape)
        codes = np.where(rng.integers(0, 12, shape), codes, special).astype(codes.dtype)
    return codes
