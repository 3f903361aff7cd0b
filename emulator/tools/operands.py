"""The operands of a multiplication: their matrices of codes, and the words that hold them.

The fault finder, the explanations and the inputs of tests share this. Matrices are named a, b, c,
d, scale_a, scale_b and e (or nibbles), the metadata of a sparse A.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dtypes import (
    FORMATS,
    Array,
    Format,
    Place,
    array_type,
    code_type,
    codes_from_array,
    decode_values,
    encode,
)
from emulator.arrays import as_array
from emulator.errors import OperandError, one_of, quoted
from emulator.isa.instruction import as_instruction
from emulator.isa.kinds import is_tensor_product
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.tensor_matrix import TensorMatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.layout.tile import TileShape
from emulator.matrices.operands import as_matrix_instruction
from emulator.memory.descriptors import load_tile
from emulator.warp.scales import gather_scales
from emulator.warp.sparse import gather_metadata

Multiplication = MatrixInstruction | WmmaMultiply
#: operands that have one word in every lane
ONE_WORD = ("e", "scale_a", "scale_b")


def as_multiplication(
    ins: object, idesc: InstructionDescriptor | int | None = None
) -> Multiplication:
    """`ins`, or what an opcode names, with `idesc` of a tcgen05.mma; OperandError where it does not
    multiply matrices."""
    if idesc is not None or is_tensor_product(ins):
        return as_matrix_instruction(ins, idesc)
    ins = as_instruction(ins, "an instruction that multiplies")
    if not isinstance(ins, MatrixInstruction | WmmaMultiply):
        raise OperandError(
            "an instruction that multiplies is needed, mma, mma.sp, wgmma or wmma.mma; got "
            f"{quoted(str(ins))}"
        )
    return ins


class Traits(NamedTuple):
    """Traits of a multiplication."""

    wgmma: bool = False
    sparse: bool = False
    scaled: bool = False


def traits(ins: Multiplication) -> Traits:
    if isinstance(ins, WmmaMultiply):
        return Traits()
    return Traits(ins.is_wgmma, ins.is_sparse, ins.is_block_scaled)


def operand_shapes(ins: Multiplication) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrices: a ``(m, k)``, of a sparse instruction the stored half, b, c, nibbles
    ``(m, chunks)``, scale_a ``(m, v)``, scale_b ``(v, n)``; of m8n8k4.f16 four of each."""
    wgmma, sparse, scaled = traits(ins)
    out: dict[str, tuple[int, ...]] = {}
    if isinstance(ins, TensorMatrixInstruction):
        out = {"a": (ins.m, ins.stored_k), "b": (ins.k, ins.n), "c": (ins.m, ins.n)}
        more = {"scale_a": (ins.m, ins.scale_chunks), "scale_b": (ins.scale_chunks, ins.n)}
        chunks = {"nibbles": (ins.m, ins.k // ins.chunk)}
        return out | (chunks if sparse else {}) | (more if scaled else {})
    for name in "abc":
        if wgmma and name == "b":
            out[name] = (ins.k, ins.n)
        else:
            fragment = ins.fragment(name)
            out[name] = fragment.lane_map.shape if fragment.groups > 1 else fragment.shape
    if sparse and isinstance(ins, MatrixInstruction):
        out["nibbles"] = (ins.m, ins.k // ins.chunk)
    for name in ("scale_a", "scale_b") if scaled else ():
        out[name] = ins.fragment(name).shape
    return out


def format_of(ins: Multiplication, operand: str) -> Format:
    """The format of an operand's elements; raises OperandError for one that `ins` lacks."""
    one_of(f"an operand of {ins}", operand, operand_shapes(ins))
    if operand == "nibbles":
        return FORMATS["u4"]
    if isinstance(ins, TensorMatrixInstruction):
        types = {"a": ins.a_type, "b": ins.b_type, "c": ins.c_type}
        return FORMATS[types.get(operand, ins.scale_type)]
    return FORMATS[ins.b_type] if operand == "b" else ins.fragment(operand).fmt


def as_codes(name: str, fmt: Format, values: object) -> Array:
    """Codes of `fmt`, from an array of its own type, of codes (unsigned integers), or of numbers.

    Numbers must be exact in the format. Raises OperandError for all else, naming the place.
    """
    array, own = as_array(values, name), array_type(fmt)
    if array.dtype.kind == "V" and own is not None and array.dtype.itemsize == own.itemsize:
        array = array.view(own)  # NumPy's files lose the types of ml_dtypes
    if own is not None and array.dtype == own:
        return codes_from_array(fmt, array)
    if array.dtype.kind not in "ufi":
        raise OperandError(
            f"{name} holds {array.dtype} {array.shape}; numbers of {own or fmt.name} or codes of "
            f"{fmt.name} (unsigned integers) are needed"
        )
    if array.dtype.kind == "u":
        if array.size and int(array.max()) > fmt.code_mask:
            raise OperandError(f"{name}: {int(array.max()):#x} is no code of {fmt.name}")
        return array.astype(code_type(fmt.bits), copy=False)
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
            "array first (.astype of ml_dtypes), or give unsigned element codes"
        )
    return codes


# --- matrices and words ---------------------------------------------------------------------------


def group_of(ins: Multiplication, operand: str, options: Mapping[str, Any]) -> int:
    """The number of the matrix that the instruction reads, of those that the lanes hold; the
    selector or the scale ids say it."""
    if operand == "e":
        return int(options.get("selector", 0))
    if operand not in ONE_WORD or not isinstance(ins, MatrixInstruction):
        return 0
    byte, thread = (int(options.get(f"{x}_id_{operand[-1]}", 0)) for x in ("byte", "thread"))
    return byte // ins.scale_chunks * len(ins.legal_ids(operand)[1]) + thread


def gather(ins: Multiplication, operand: str, words: Array, options: Mapping[str, Any]) -> Array:
    """The matrix of codes that the instruction takes from registers ``(…, lanes, registers)``, or
    from words ``(…, lanes)``; raises what `execute` raises."""
    if operand not in ONE_WORD or not isinstance(ins, MatrixInstruction):
        return ins.fragment(operand).gather(words)
    if operand == "e":
        return gather_metadata(ins, np.asarray(words), options.get("selector", 0))
    ids = (options.get(f"{x}_id_{operand[-1]}", 0) for x in ("byte", "thread"))
    return gather_scales(ins, operand, words, *ids)


def scatter(
    ins: Multiplication,
    operand: str,
    codes: Array,
    options: Mapping[str, Any],
    into: Array | None = None,
) -> Array:
    """The inverse of `gather`; what the instruction does not read stays as in `into`, or is 0."""
    fragment = ins.fragment(operand)
    if operand not in ONE_WORD:
        return fragment.scatter(codes)
    if fragment.groups > 1:
        batch = codes.shape[:-2]
        blank = np.zeros((*batch, ins.lanes), np.uint32) if into is None else into
        groups = fragment.gather(blank[..., None]).copy()
        groups[..., group_of(ins, operand, options), :, :] = codes
        codes = groups
    words: Array = fragment.scatter(codes)[..., 0]
    return words


class TileInMemory(NamedTuple):
    """The tile that a wgmma reads through the descriptor of an operand."""

    rows: int
    k: int
    place: Place
    major: str

    def shape(self, steps: int = 1) -> TileShape:
        """As bytes lie: `steps` tiles side by side along k."""
        width = self.place.width
        columns = self.k * min(8, width) // 8 * steps
        return TileShape(self.rows, columns, max(1, width // 8), self.major)


def tile_in_memory(
    ins: MatrixInstruction, operand: str, options: Mapping[str, Any]
) -> TileInMemory:
    major = "mn" if options.get(f"imm_trans_{operand}", 0) else "k"
    if operand == "a":
        return TileInMemory(ins.m, ins.stored_k, ins.a_place, major)
    return TileInMemory(ins.n, ins.k, ins.b_place, major)


def load_matrix(
    ins: MatrixInstruction, operand: str, shared: Array, words: Any, options: Mapping[str, Any]
) -> Array:
    """A ``(…, m, k)`` or B ``(…, k, n)`` that descriptors lead to; raises what `execute` raises."""
    rows, k, place, major = tile_in_memory(ins, operand, options)
    codes = load_tile(shared, words, rows, k, place, major, operand)
    return codes if operand == "a" else np.swapaxes(codes, -1, -2)
