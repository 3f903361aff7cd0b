"""``fault``: the fault finder on the arrays of an .npz file."""

from __future__ import annotations

from dtypes import Array
from emulator.errors import OperandError, hint, listing, quoted
from emulator.isa.instruction import Instruction
from emulator.isa.kinds import is_tensor_product
from emulator.matrices.operands import as_matrix_instruction
from emulator.tools.faults.finder import find_faults
from emulator.tools.faults.inputs import PASSED
from emulator.tools.faults.report import FaultReport
from emulator.tools.files import read_npz, unnamed
from emulator.tools.words import IDESC, instruction_word

#: arrays of a file -> argument of `find_faults`: capitals are matrices, small letters registers
NAMES = {
    "A": "a", "B": "b", "C": "c", "D": "d", "expected": "expected",
    "scale_a": "scale_a", "scale_b": "scale_b",
    "a": "registers_a", "b": "registers_b", "c": "registers_c", "d": "d",
    **{x: x for x in PASSED if x not in ("registers_a", "registers_b", "registers_c")},
}  # fmt: skip


#: arguments of `fault` and what they mean
FAULT_HELP = {
    "opcode": "",
    "--target": "sm_80, H100, ...",
    "--input IN.npz": "A, B, C: the matrices that are meant (C may be left out: zeros; bf16, "
    "fp8, fp4 as codes); D: what came out, a matrix or registers (lanes, registers); and what "
    "the kernel passed, as far as it is known: a, b, c (registers), e, selector, scale_a, "
    "scale_b, byte_id_a, ..., shared, descriptor_a, descriptor_b, addresses_a, addresses_b (of "
    "ldmatrix), trans_a, scale_d, ...; or, instead of D, `expected`: the D that a, b, c should "
    "give",
    "--idesc WORD": f"{IDESC}; A, B, C, D and scales are matrices then",
    "--pairs": "try two mistakes at once, too",
    "--limit": "most faults to list (default 5)",
}


def fault_command(
    opcode: str,
    target: str,
    input: str,
    pairs: bool = False,
    limit: int = 5,
    idesc: str | None = None,
) -> FaultReport:
    """The faults that the arrays of a file tell of.

    Exit code 0: nothing is wrong, or a mistake is named that explains every bit; 1: none is.
    Raises an EmulatorError for a file or arrays that cannot be used.
    """
    of_matrices = is_tensor_product(opcode)
    ins: Instruction = (
        as_matrix_instruction(opcode, instruction_word(idesc))
        if of_matrices or idesc is not None
        else Instruction.parse(opcode)
    )
    arguments: dict[str, Array] = {}

    def check_name(name: str) -> None:
        if name not in NAMES:
            raise OperandError(
                f"{quoted(input)} has an array {quoted(name)}; arrays are {listing(NAMES, 40)}"
                f"{unnamed(name) or hint(name, NAMES)}"
            )

    for name, array in read_npz(input, check_name=check_name).items():
        argument = NAMES[name]
        # A file of words has the scales of the lanes under the operand's own name.
        by_lanes = not of_matrices and array.shape[-1:] == (ins.lanes,)
        if argument in ("scale_a", "scale_b") and by_lanes:
            argument = f"registers_{argument}"
        if argument in arguments:
            raise OperandError(
                f"{quoted(input)} has {argument!r} twice: as registers and as a matrix"
            )
        arguments[argument] = array
    return find_faults(ins, target=target, pairs=pairs, limit=limit, **arguments)
