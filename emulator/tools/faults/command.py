"""``fault``: the fault finder on the arrays of an .npz file."""

from __future__ import annotations

from typing import Any

from emulator.errors import OperandError, hint, listing
from emulator.isa.instruction import Instruction
from emulator.tools.answer import Answer
from emulator.tools.arrays import read_npz, unnamed
from emulator.tools.faults.finder import find_faults

#: arrays of a file -> argument of `find_faults`: capitals are matrices, small letters registers
NAMES = {
    "A": "a", "B": "b", "C": "c", "D": "d", "expected": "expected",
    "scale_a": "scale_a", "scale_b": "scale_b",
    "a": "registers_a", "b": "registers_b", "c": "registers_c", "d": "d", "e": "e",
    "registers_scale_a": "registers_scale_a", "registers_scale_b": "registers_scale_b",
    "shared": "shared", "descriptor_a": "descriptor_a", "descriptor_b": "descriptor_b",
    **{x: x for x in (
        "selector", "byte_id_a", "byte_id_b", "thread_id_a", "thread_id_b", "scale_d",
        "imm_scale_a", "imm_scale_b", "imm_trans_a", "imm_trans_b", "swizzle_bytes",
    )},
}  # fmt: skip


def fault(opcode: str, target: str, input: str, pairs: bool = False, limit: int = 5) -> Answer:
    """The faults that the arrays of a file tell of.

    Exit code 0: nothing is wrong, or a mistake is named that explains every bit; 1: none is.
    Raises an EmulatorError for a file or arrays that cannot be used.
    """
    ins = Instruction.parse(opcode)
    arguments: dict[str, Any] = {}
    for name, array in read_npz(input).items():
        if name not in NAMES:
            raise OperandError(
                f"{input!r} has an array {name!r:.80}; arrays are {listing(NAMES, 40)}"
                f"{unnamed(name) or hint(name, NAMES)}"
            )
        argument = NAMES[name]
        # A file of words has the scales of the lanes under the operand's own name.
        if argument.startswith("scale_") and array.shape[-1:] == (ins.lanes,) and name != "scale_d":
            argument = f"registers_{argument}"
        if argument in arguments:
            raise OperandError(f"{input!r} has {argument!r} twice: as registers and as a matrix")
        arguments[argument] = array
    report = find_faults(ins, target=target, pairs=pairs, limit=limit, **arguments)
    named = report.verdict in ("right", "found")
    return Answer(report.lines(), report.data, 0 if named else 1)
