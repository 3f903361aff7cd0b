"""Public names of `emulator`: type checkers read them here, and `__init__.py` their modules."""

from dtypes import FORMATS as FORMATS
from emulator.errors import EmulatorError as EmulatorError
from emulator.errors import OperandError as OperandError
from emulator.errors import ParseError as ParseError
from emulator.errors import UndefinedError as UndefinedError
from emulator.errors import UnsupportedError as UnsupportedError
from emulator.isa.instruction import Instruction as Instruction
from emulator.isa.recipe import Recipe as Recipe
from emulator.layout.descriptor import Descriptor as Descriptor
from emulator.layout.instruction_descriptor import InstructionDescriptor as InstructionDescriptor
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

__version__: str
