"""The words that a launch may be told, and what each means."""

from __future__ import annotations

from typing import Any, Literal, get_args

from emulator.errors import OperandError, hint, quoted

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
