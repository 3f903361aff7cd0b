"""NVIDIA's PTX matrix instructions on simulated warps, register for register and bit for bit.

``Instruction.parse`` names an instruction, ``execute`` runs it on lane registers, ``mma`` and
``gemm`` on matrices, ``Warp`` and ``Warpgroup`` run PTX statements. Letters: m n k are sizes, A is
m × k, B is k × n, C and D are m × n; a *code* is the integer of one element, a *word* a register.
"""

from emulator.errors import (
    EmulatorError,
    OperandError,
    ParseError,
    UndefinedError,
    UnsupportedError,
)
from emulator.isa.instruction import Instruction
from emulator.ptx.machine import Warp, Warpgroup
from emulator.targets import TARGETS
from emulator.warp.execute import execute
from emulator.warp.gemm import gemm
from emulator.warp.matrix import mma
from emulator.warp.sparse import compress, decompress

__all__ = [
    "TARGETS",
    "EmulatorError",
    "Instruction",
    "OperandError",
    "ParseError",
    "UndefinedError",
    "UnsupportedError",
    "Warp",
    "Warpgroup",
    "compress",
    "decompress",
    "execute",
    "gemm",
    "mma",
]
