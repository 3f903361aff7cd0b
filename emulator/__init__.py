"""NVIDIA's PTX matrix instructions on simulated warps, register for register and bit for bit.

``Instruction.parse`` names an instruction, ``execute`` runs it on lane registers, ``mma`` and
``gemm`` on matrices, ``Warp`` and ``Warpgroup`` run PTX statements. ``explain`` and ``compare`` say
why a result came out as it did, ``find_faults`` what a kernel did wrong. Letters: m n k are sizes,
A is m × k, B is k × n, C and D are m × n; a *code* is the integer of one element, a *word* a
register.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from emulator.errors import (
    EmulatorError,
    OperandError,
    ParseError,
    UndefinedError,
    UnsupportedError,
)
from emulator.isa.instruction import Instruction
from emulator.matrices.gemm import gemm
from emulator.matrices.mma import mma
from emulator.targets import TARGETS
from emulator.warp.execute import execute
from emulator.warp.sparse import compress, decompress

if TYPE_CHECKING:
    from emulator.memory.tensor_map import TensorMap
    from emulator.ptx.machine import Warp, Warpgroup
    from emulator.tools.explanations.comparison import compare
    from emulator.tools.explanations.explanation import explain, explain_registers
    from emulator.tools.faults.finder import find_faults

__all__ = [
    "TARGETS",
    "EmulatorError",
    "Instruction",
    "KernelError",
    "Memory",
    "Module",
    "OperandError",
    "ParseError",
    "TensorMap",
    "UndefinedError",
    "UnsupportedError",
    "Warp",
    "Warpgroup",
    "compare",
    "compress",
    "decompress",
    "execute",
    "explain",
    "explain_registers",
    "find_faults",
    "gemm",
    "mma",
]

#: imported when they are first asked for: `import emulator` must not wait for them
_LATER = {
    "KernelError": "emulator.machine.report",
    "Memory": "emulator.machine.arguments",
    "Module": "emulator.machine.launch",
    "Warp": "emulator.ptx.machine",
    "TensorMap": "emulator.memory.tensor_map",
    "Warpgroup": "emulator.ptx.machine",
    "compare": "emulator.tools.explanations.comparison",
    "explain": "emulator.tools.explanations.explanation",
    "explain_registers": "emulator.tools.explanations.explanation",
    "find_faults": "emulator.tools.faults.finder",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'emulator' has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
