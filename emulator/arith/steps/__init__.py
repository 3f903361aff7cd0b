"""The steps that recipes are made of: what the hardware does to one dot product.

One class a step: its constants, its meaning in plain integers and over arrays, and its wording.
"""

from emulator.arith.steps.chains import FmaChain, PairSums
from emulator.arith.steps.counting import IntegerDot, PopcountDot
from emulator.arith.steps.formats import AddC, Clear, Convert, Widen
from emulator.arith.steps.fused_dot_add import FusedDotAdd
from emulator.arith.steps.step import ROUNDED, Arithmetic, Step, brief, check_steps

__all__ = [
    "ROUNDED", "AddC", "Arithmetic", "Clear", "Convert", "FmaChain", "FusedDotAdd", "IntegerDot",
    "PairSums", "PopcountDot", "Step", "Widen", "brief", "check_steps",
]  # fmt: skip
