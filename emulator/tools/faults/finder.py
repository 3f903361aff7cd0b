"""The fault finder: from what went into an instruction and what came out, which mistake it was.

Every usual mistake is a row of MISTAKES: a name, an explanation and a generator of the ways to make
it. They are made with a right kernel until one does what was observed.
"""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from dtypes import Array
from emulator.arrays import accepts_tensors, as_array
from emulator.errors import OperandError, whole
from emulator.isa.instruction import Instruction, as_instruction
from emulator.isa.kinds import is_tensor_product
from emulator.isa.tensor_matrix import TensorMatrixInstruction, settle
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.machine.module import Kernel
from emulator.targets import Target, find_target
from emulator.tools.faults import (
    copies,
    loops,
    matrices,
    registers,
    rows,
    sparse,
    stores,
    swaps,
    wgmma,
)
from emulator.tools.faults.inputs import Given
from emulator.tools.faults.kernel import Mistake
from emulator.tools.faults.launches import LaunchFaults, find_launch_faults
from emulator.tools.faults.report import FaultReport
from emulator.tools.faults.search import search
from emulator.tools.faults.tensor import tensor_faults
from emulator.tools.operands import as_codes

#: the likelier of two mistakes that do the same stands first
MISTAKES: tuple[Mistake, ...] = (
    Mistake("registers exchanged", "Two registers of one operand stand in each other's place: "
            "compare the operand list with `table OPCODE OPERAND`.",
            registers.exchanged_registers),
    Mistake("register used twice", "One register is written twice and another one never: a slip "
            "of copying in the operand list.", registers.repeated_register),
    Mistake("register of the other operand", "A register of B stands among those of A, or the "
            "reverse: check the names in the operand list.", registers.foreign_register),
    Mistake("A and B exchanged", "The operands (descriptors, scales) are passed in the wrong "
            "order; PTX order is d, a, b, c.", registers.exchanged_operands),
    Mistake("accumulator", "The accumulator is an operand of its own: zero it before the first "
            "step along k (wgmma: scale-d = 0 there), and carry it to the next.",
            loops.accumulator),
    Mistake("loop over k", "Each step along k needs its own part of A, of B and of the metadata, "
            "scales and descriptors.", loops.steps_along_k),
    *rows.MISTAKES,
    Mistake("wrong selector", "The sparsity selector says which lanes of a group of four hold the "
            "metadata.", sparse.wrong_selector),
    Mistake("metadata order", "A nibble holds two 2-bit indices, the lower index in its lower "
            "bits; nibbles ascend along k.", sparse.metadata_bits),
    Mistake("default metadata", "Every chunk has the same metadata: a default or nothing was "
            "passed instead of what belongs to A.", sparse.default_metadata),
    Mistake("metadata in other lanes", "Rows g and g + 8 and the chunks of a row are dealt out "
            "to lanes as `table OPCODE e` shows.", sparse.misplaced_metadata),
    Mistake("A not as the metadata says", "The stored elements are those that the metadata picks, "
            "in ascending order.", sparse.uncompressed),
    Mistake("wrong byte-id or thread-id", "byte-id picks the byte of the scale word, thread-id "
            "the lanes of a group of four that provide it.", sparse.wrong_scale_id),
    Mistake("scales misplaced", "Row i of A and column j of B have their own scales for each "
            "block along k; `table OPCODE scale_a` shows who holds them.",
            sparse.misplaced_scales),
    Mistake("scale words in other lanes", "Scale words belong to the lanes of a group of four "
            "that thread-id names, not to lanes in order of the rows.", sparse.scale_lane_orders),
    Mistake("LBO and SBO exchanged", "K-major: SBO leads to the next 8 rows, LBO to the next "
            "block of k. MN-major: see Descriptor.", wgmma.exchanged_offsets),
    Mistake("wrong swizzle", "The swizzle field must be the mode that the tile was stored with "
            "(TMA's swizzle mode); its codes are 1 = 128, 2 = 64, 3 = 32 bytes.",
            wgmma.wrong_swizzle),
    Mistake("wrong base offset", "A tile that does not start where its swizzle pattern repeats "
            "needs (start >> 7) & 7 as base offset.", wgmma.wrong_base_offset),
    Mistake("descriptor not in units of 16 bytes", "Start address, LBO and SBO are stored divided "
            "by 16: (x & 0x3FFFF) >> 4.", wgmma.wrong_units),
    Mistake("wrong step along k", "Within a line of a K-major tile steps are k · bytes of an "
            "element apart; from one block to the next, and in an MN-major tile, they are whole "
            "blocks apart: `descriptor --build` lists them.", wgmma.wrong_step),
    Mistake("wrong start address", "The start address is that of the first element of a step: look "
            "at the offsets of the stage and of the tile.", wgmma.wrong_start),
    Mistake("wrong major", "imm-trans is 1 for an MN-major tile of 16-bit elements, else 0.",
            wgmma.wrong_major),
    Mistake("wrong sign", "imm-scale-a and imm-scale-b are 1, or -1 to negate an operand.",
            wgmma.wrong_sign),
    Mistake("wrong LBO or SBO", "The offset of the descriptor is not that of the tile in memory.",
            wgmma.wrong_offset),
    *copies.MISTAKES,
    Mistake("tile stored in another layout", "The writer of shared memory (TMA, cp.async, st) and "
            "the descriptor must agree on the layout.", wgmma.wrong_tile),
    Mistake("operand transposed", "The lanes hold C and D as `table OPCODE OPERAND` shows: look at "
            "where they are loaded from, or stored to.", matrices.transposed_operand, {
                "a": "A is read by rows (.row.col): an A in column-major memory needs "
                "ldmatrix.trans, or other indices (wgmma: imm-trans-a).",
                "b": "B is read by columns (.row.col): a B in row-major memory needs "
                "ldmatrix.trans, or other indices (wgmma: imm-trans-b)."}),
    Mistake("rows or columns exchanged", "Two rows of A (columns of B) or of D stand in each "
            "other's place: look at the addresses of just these two.", swaps.exchanged_lines),
    Mistake("ldmatrix .trans", "ldmatrix gives A from row-major and B from column-major memory; "
            "with .trans it turns each 8 × 8 tile of 16-bit elements.",
            registers.transposed_registers),
    Mistake("register order", "The registers of an operand stand in another order than that of "
            "`table OPCODE OPERAND`.", registers.register_order),
    Mistake("wrong type or modifier", "The opcode names another type or modifier than meant: "
            "compare it word by word.", matrices.other_instruction),
    Mistake("elements of another type", "The bits in memory are those of another type of the same "
            "size.", matrices.converted_elements),
    Mistake("order within a register", "The first element stands in the lowest bits of a "
            "register.", registers.order_within_register),
    Mistake("lanes permuted", "groupID = lane / 4 is the row (column of B), threadID_in_group = "
            "lane % 4 the position in it.", registers.permuted_lanes),
    Mistake("two lanes exchanged", "Two lanes hold each other's part of an operand: look for a "
            "shuffle, or what sets these two lanes apart.", swaps.exchanged_lanes),
    Mistake("wrong index formula", "One term of the row or column of an element is wrong: compare "
            "with `table OPCODE OPERAND --by element`.", matrices.wrong_index),
    Mistake("store of D", "One term of the row or column to which an element of D is stored is "
            "wrong, such as a lost + 8 or * 2: compare with `table OPCODE d --by element`.",
            stores.wrong_store),
    Mistake("fragment of another type or shape", "Each type and shape has a fragment of its own; "
            "`view` and `table` show it.", matrices.other_lane_map),
    Mistake("what is done to D", "What comes out of the instruction is right, and is changed "
            "before it is stored: look at the epilogue.", stores.changed_result),
    Mistake("register never loaded", "A register of the operand stays zero: is it loaded, is it "
            "in the operand list?", registers.missing_register),
    rows.OF_LANES,
    Mistake("another target", "Generations differ in alignment and order of sums: the result is "
            "that of another GPU.", matrices.other_target),
)  # fmt: skip


@overload
def find_faults(
    ins: Instruction | str,
    a: object = ...,
    b: object = ...,
    c: object = ...,
    *,
    target: str | Target,
    **given: Any,
) -> FaultReport: ...
@overload
def find_faults(
    ins: Kernel,
    a: object = ...,
    b: object = ...,
    *,
    expected: object,
    limit: int = ...,
    **launch: Any,
) -> LaunchFaults: ...
@accepts_tensors()
def find_faults(
    ins: Instruction | str | Kernel,
    a: object = None,
    b: object = None,
    c: object = None,
    *,
    target: str | Target | None = None,
    idesc: InstructionDescriptor | int | None = None,
    d: object = None,
    expected: object = None,
    scale_a: object = None,
    scale_b: object = None,
    boxes: object = (),
    pairs: bool = False,
    limit: int = 5,
    **passed: object,
) -> FaultReport | LaunchFaults:
    """The usual mistakes that explain what a kernel did with `ins`.

    `a`, `b`, `c` are the matrices that are meant, A ``(m, K)``, B ``(K, n)``, C ``(m, n)`` (None:
    zeros), as arrays of the operand's type or as codes; K is the instruction's k or a multiple, for
    a loop that accumulates. A of mma.sp is the full matrix. `scale_a` ``(m, v)`` and `scale_b`
    ``(v, n)`` are codes. What the kernel passed, as far as it is known, is named as `execute` has
    it: ``registers_a=``, ``registers_b=``, ``registers_c=``, ``registers_scale_a=``, ``e=``,
    ``selector=``, ``descriptor_b=``, ``shared=``, …; with a leading axis of K / k steps. wgmma
    without ``shared=`` takes tiles in the canonical layout of ``swizzle_bytes=``.

    * Matrices and registers: which registers are wrong, and which mistake makes them so.
    * Matrices and `d`, the matrix or registers that came out: which mistake gives these bits.
    * Registers and `expected`, the D that is right: which change of them gives it.
    * Matrices and memory: ``shared=`` ``uint8 (bytes,)`` with the ``descriptor_a=``,
      ``descriptor_b=`` of every step, or with ``addresses_a=``, ``addresses_b=`` ``(steps, lanes)``
      of ldmatrix (``trans_a=``, ``trans_b=``: .trans), which term of an address is wrong. `boxes`
      are the tensor copies that fill shared memory, each ``(TensorMap of an array, coordinates,
      shared address)``; ``shared=`` is what it held before them.

    `pairs` also tries two mistakes in different operands: 40,000 pairs at most, of a long K as many
    as take 5 * 10**8 multiply-adds; the report says so where some are left. `limit` bounds
    the list of faults. `ins` may be an opcode, and every array a CPU tensor of PyTorch.

    Of a whole kernel, in place of `ins`: ``find_faults(kernel, grid=, block=, args=, expected=C)``
    launches it as `Kernel.launch` does, on the reference engine, and looks at every dense mma and
    wgmma, with the tensor copies that brought its operands. A and B are the arguments whose product
    is `expected` ``(M, N)``, but for rounding and a factor; `a` ``(M, K)`` and `b` ``(K, N)`` name
    others. The answer is a `LaunchFaults`; a kernel with another product raises KernelError.

    Of a tcgen05.mma, with its instruction descriptor `idesc`, the matrices and `d` are taken, one
    tile of D; scales for all steps along k, `scale_b` ``(v, n)``.

    Not decidable, and named together as one: from D, whether the lanes, the addresses or the bytes
    in memory were wrong (a note says what to give); of memory, whether the writer or the reader of
    a tile is, where changing either repairs it; of rows that hold equal bytes, which is read. What
    a kernel stores outside of D does not show.

    Raises OperandError for arrays that do not fit the instruction, or where nothing is given that
    could be compared; UnsupportedError where the target lacks the instruction.
    """
    if isinstance(ins, Kernel):
        if expected is None:
            raise OperandError("of a kernel the finder takes expected=, the C that is right")
        limit = whole("limit=", limit, 1)
        return find_launch_faults(ins, find_faults, expected, a, b, limit, passed)
    if target is None:
        raise OperandError("target= is missing: sm_90a, H100, ...")
    settled = isinstance(ins, TensorMatrixInstruction)
    if settled or is_tensor_product(ins) or idesc is not None:
        if d is None or expected is not None or passed:
            raise OperandError("of a tcgen05.mma the finder takes the matrices and d=")
        named = {"a": a, "b": b, "c": c, "scale_a": scale_a, "scale_b": scale_b}
        return tensor_faults(
            settle(ins, idesc), find_target(target), named, d, whole("limit=", limit, 1)
        )
    ins = as_instruction(ins)
    given = Given(
        ins,
        find_target(target),
        {"a": a, "b": b, "c": c, "scale_a": scale_a, "scale_b": scale_b},
        passed,
        boxes,
    )
    limit = whole("limit=", limit, 1)
    if d is not None and expected is not None:
        raise OperandError(
            "d= is what came out of the kernel, expected= what should have: give one of them"
        )
    wanted = None if d is None and expected is None else _result(given, d, expected)
    return search(given, wanted, expected is not None, MISTAKES, pairs, limit)


def _result(given: Given, d: object, expected: object) -> Array:
    """D as codes: from a matrix, or from registers."""
    name, array = ("expected", expected) if d is None else ("d", d)
    array, fragment = as_array(array, name), given.ins.fragment("d")
    size = fragment.word_bits // 8
    if array.shape == (fragment.lanes, fragment.registers) and array.dtype.itemsize == size:
        return fragment.gather(np.ascontiguousarray(array).view(f"u{size}"))
    matrix = fragment.lane_map.shape if fragment.groups > 1 else fragment.shape
    if len(matrix) == 3 and array.shape == matrix[1:]:
        array = np.broadcast_to(array, matrix)
    if array.shape != matrix:
        raise OperandError(
            f"{name}= is D {matrix} or its registers {(fragment.lanes, fragment.registers)}; "
            f"got {array.dtype} {array.shape}"
        )
    return as_codes(name, fragment.fmt, array)
