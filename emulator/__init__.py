"""NVIDIA's PTX on simulated warps, register for register and bit for bit.

``Instruction.parse`` names an instruction, ``execute`` runs it on lane registers, ``mma`` and
``gemm`` on matrices. ``Warp`` and ``Warpgroup`` run PTX statements, ``Module`` whole kernels.
``explain`` and ``compare`` say why a result came out as it did, ``find_faults`` what a kernel did
wrong. Letters: m n k are sizes, A is m × k, B is k × n, C and D are m × n; a *code* is the integer
of one element, a *word* a register. ``python -m emulator guide`` lists the pages of the guide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from emulator.errors import EmulatorError as EmulatorError
from emulator.errors import OperandError as OperandError
from emulator.errors import ParseError as ParseError
from emulator.errors import UndefinedError as UndefinedError
from emulator.errors import UnsupportedError as UnsupportedError

# A type checker follows these imports; at run time each waits until it is asked for, see `_LATER`.
if TYPE_CHECKING:
    from dtypes import FORMATS as FORMATS
    from emulator.isa.instruction import Instruction as Instruction
    from emulator.isa.recipe import Recipe as Recipe
    from emulator.layout.descriptor import Descriptor as Descriptor
    from emulator.layout.instruction_descriptor import (
        InstructionDescriptor as InstructionDescriptor,
    )
    from emulator.layout.shared_descriptor import SharedMemoryDescriptor as SharedMemoryDescriptor
    from emulator.machine.memory import Memory as Memory
    from emulator.machine.module import Kernel as Kernel
    from emulator.machine.module import Module as Module
    from emulator.machine.report import KernelError as KernelError
    from emulator.machine.warp import Warp as Warp
    from emulator.machine.warp import Warpgroup as Warpgroup
    from emulator.matrices.gemm import gemm as gemm
    from emulator.matrices.mma import mma as mma
    from emulator.memory.descriptors import load_tile as load_tile
    from emulator.memory.descriptors import store_tile as store_tile
    from emulator.memory.surface import Surface as Surface
    from emulator.memory.tensor_map import TensorMap as TensorMap
    from emulator.memory.texture import Texture as Texture
    from emulator.targets import TARGETS as TARGETS
    from emulator.tools.descriptors.description import describe_descriptor as describe_descriptor
    from emulator.tools.descriptors.difference import diff_descriptors as diff_descriptors
    from emulator.tools.descriptors.tiles import StoredTile as StoredTile
    from emulator.tools.descriptors.tiles import needed_descriptor as needed_descriptor
    from emulator.tools.explanations.comparison import compare as compare
    from emulator.tools.explanations.explanation import explain as explain
    from emulator.tools.explanations.explanation import explain_registers as explain_registers
    from emulator.tools.explanations.launches import compare_launches as compare_launches
    from emulator.tools.faults.finder import find_faults as find_faults
    from emulator.tools.orders import check_order as check_order
    from emulator.tools.pictures.page import Page as Page
    from emulator.tools.studies.error import ErrorStudy as ErrorStudy
    from emulator.tools.studies.error import error_study as error_study
    from emulator.tools.studies.probe import Probe as Probe
    from emulator.tools.studies.probe import probe as probe
    from emulator.tools.tracing.page import trace as trace
    from emulator.warp.execute import execute as execute
    from emulator.warp.sparse import compress as compress
    from emulator.warp.sparse import decompress as decompress

#: the version of the distribution ptx-mma-emulator, which pyproject.toml reads here
__version__ = "0.3.0"

#: module -> what of it is imported when it is first asked for: `import emulator` does not wait
_LATER = {
    "dtypes": "FORMATS",
    "emulator.isa.instruction": "Instruction",
    "emulator.isa.recipe": "Recipe",
    "emulator.layout.descriptor": "Descriptor",
    "emulator.layout.instruction_descriptor": "InstructionDescriptor",
    "emulator.layout.shared_descriptor": "SharedMemoryDescriptor",
    "emulator.machine.memory": "Memory",
    "emulator.machine.module": "Kernel Module",
    "emulator.machine.report": "KernelError",
    "emulator.machine.warp": "Warp Warpgroup",
    "emulator.matrices.gemm": "gemm",
    "emulator.matrices.mma": "mma",
    "emulator.memory.descriptors": "load_tile store_tile",
    "emulator.memory.tensor_map": "TensorMap",
    "emulator.memory.surface": "Surface",
    "emulator.memory.texture": "Texture",
    "emulator.targets": "TARGETS",
    "emulator.tools.descriptors.description": "describe_descriptor",
    "emulator.tools.descriptors.difference": "diff_descriptors",
    "emulator.tools.descriptors.tiles": "StoredTile needed_descriptor",
    "emulator.tools.explanations.comparison": "compare",
    "emulator.tools.explanations.explanation": "explain explain_registers",
    "emulator.tools.explanations.launches": "compare_launches",
    "emulator.tools.faults.finder": "find_faults",
    "emulator.tools.orders": "check_order",
    "emulator.tools.pictures.page": "Page",
    "emulator.tools.studies.error": "ErrorStudy error_study",
    "emulator.tools.studies.probe": "Probe probe",
    "emulator.tools.tracing.page": "trace",
    "emulator.warp.execute": "execute",
    "emulator.warp.sparse": "compress decompress",
}
_MODULES = {name: module for module, names in _LATER.items() for name in names.split()}
__all__ = sorted({*_MODULES, *(name for name in globals() if name.endswith("Error"))})


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'emulator' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
