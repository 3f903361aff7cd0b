"""Steps of a recipe in a few words; `wording` has the sentences."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.arith.steps import AddC, Clear, FusedDotAdd, Narrow, Step, Widen

ROUNDED = {
    "rz": "toward zero", "rn": "to nearest even",
    "rm": "toward minus infinity", "rp": "toward plus infinity",
}  # fmt: skip
_OTHER = {
    "FmaChain": "fused multiply-adds one by one",
    "PairSums": "sums of pairs of products",
    "IntegerDot": "an exact integer sum",
    "PopcountDot": "a count of ones",
}


def brief(steps: Sequence[Step]) -> str:
    """Steps as one line: ``a and b to f16, then x = 0 in f32, then …``."""
    return ", then ".join(map(_brief, steps))


def _brief(step: Step) -> str:
    match step:
        case Widen(to):
            return f"a and b to {to}"
        case Clear(to):
            return f"x = 0 in {to}"
        case FusedDotAdd():
            bits = f" of {step.precision} bits" if step.precision else ""
            return f"a fused sum, {ROUNDED[step.rounding]} to {step.result}{bits}"
        case AddC(fmt):
            return f"+ c in {fmt}"
        case Narrow(to):
            return f"x to {to}"
        case _:
            return _OTHER[type(step).__name__]
