"""The options of a launch: the words that some of them take, and what each means."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from emulator.errors import OperandError, as_integer, hint, shown
from emulator.machine.memory import Memory

#: contraction by ptxas: "ptxas", with its default options; "none", with -fmad=false, so
#: that no product is fused; "O0", with -O0, where each statement is computed as it stands
Contract = Literal["ptxas", "none", "O0"]
#: when asynchronous operations take effect: at their issue, when a wait needs them, or in between
Order = Literal["early", "late", "random"]
#: engines, all with the same bits; "auto" takes the fastest
EngineName = Literal["auto", "compiled", "vector", "reference"]
#: values that stop a launch: a NaN of operands that are none, an infinity of finite ones, either
Special = Literal["nan", "inf", "any"]
#: %nwarpid, the warps that a processor has room for: measured on an H200
WARPS_OF_PROCESSOR = 64


def check_word(name: str, given: object, words: object) -> None:
    """Raises OperandError unless `given` is one of the words of a Literal type."""
    legal = get_args(words)
    if not isinstance(given, str) or given not in legal:
        near = hint(given, legal) if isinstance(given, str) else ""
        raise OperandError(f"{name} is one of {', '.join(legal)}; got {shown(given)}{near}")


def switch(name: str, given: object) -> bool:
    """`given` as a bool; OperandError for anything else, 0 and 1 included."""
    if not isinstance(given, (bool, np.bool_)):
        raise OperandError(f"{name} is True or False; got {shown(given)}")
    return bool(given)


def number_or_none(name: str, given: object) -> int | None:
    """`given` as an int, if it is None or 0 or more; OperandError for anything else."""
    number = as_integer(given)
    if given is None or (number is not None and number >= 0):
        return number
    raise OperandError(f"{name} is a number from 0 on, or None; got {shown(given)}")


def check_options(memory: object, progress: object) -> None:
    """Raises OperandError for options of wrong kinds."""
    if memory is not None and not isinstance(memory, Memory):
        raise OperandError(f"memory is a Memory; got {type(memory).__name__}")
    if progress is not None and not callable(progress):
        raise OperandError(f"progress is called with two numbers; got {type(progress).__name__}")
