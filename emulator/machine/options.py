"""What a launch may be told by name, and what each word means."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from emulator.errors import OperandError, hint, quoted
from emulator.machine.arguments import Memory

#: "ptxas": multiplications and additions are fused as the assembler fuses them; "none": none is
Contract = Literal["ptxas", "none"]
#: when asynchronous operations take effect: at their issue, when a wait needs them, or in between
Order = Literal["early", "late", "random"]
#: who runs the grid, with the same bits; "auto" takes the fastest
EngineName = Literal["auto", "compiled", "vector", "reference"]
#: what a launch stops at: a NaN of operands that are none, an infinity of finite ones, either
Special = Literal["nan", "inf", "any"]
#: %nwarpid, the warps that a processor has room for: measured on an H200
WARPS_OF_PROCESSOR = 64


def check_word(name: str, given: Any, words: Any) -> None:
    """Raises OperandError unless `given` is one of the words of a Literal type."""
    legal = get_args(words)
    if not isinstance(given, str) or given not in legal:
        near = hint(given, legal) if isinstance(given, str) else ""
        raise OperandError(f"{name} is one of {', '.join(legal)}; got {quoted(str(given))}{near}")


def check_options(check: Any, step_limit: Any, seed: Any, memory: Any, progress: Any) -> None:
    """Raises OperandError for options of wrong kinds, UnsupportedError for what is not there."""
    if not isinstance(check, (bool, np.bool_)):
        raise OperandError(f"check is True or False; got {check!r:.80}")
    for name, value in (("step_limit", step_limit), ("seed", seed)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0
        ):
            raise OperandError(f"{name} is a number from 0 on, or None; got {value!r:.80}")
    if memory is not None and not isinstance(memory, Memory):
        raise OperandError(f"memory is a Memory; got {type(memory).__name__}")
    if progress is not None and not callable(progress):
        raise OperandError(f"progress is called with two numbers; got {type(progress).__name__}")
