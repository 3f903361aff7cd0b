"""NVIDIA's PTX matrix instructions on simulated warps, register for register and bit for bit."""
from emulator.errors import EmulatorError
from emulator.isa.instruction import Instruction
from emulator.warp.execute import execute
