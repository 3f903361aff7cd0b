"""A recipe's steps in words, and targets in short."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from emulator.arith.steps import (
    AddC,
    Clear,
    FmaChain,
    FusedDotAdd,
    IntegerDot,
    Narrow,
    PairSums,
    PopcountDot,
    Step,
    Widen,
)
from emulator.isa.instruction import Instruction
from emulator.targets import TARGETS, find_target, select
from emulator.tools.answer import runs

_ROUNDED = {"rz": "toward zero", "rn": "to nearest even"}
_MODIFIER = _ROUNDED | {"rm": "toward minus infinity", "rp": "toward plus infinity"}


def short_targets(names: Sequence[str]) -> str:
    """Targets in few characters.

    ``sm_80+`` is sm_80 and all later ones, ``sm_100a/f+`` all later ones with a suffix, and
    ``sm_80 to sm_89`` these two and all between them.
    """
    since = min(find_target(name).number for name in names)
    if set(names) == set(select(since=since)):
        return f"sm_{since}+"
    if set(names) == set(select(since=since, specific=True)):
        return f"sm_{since}a/f+"
    places = [place for place, name in enumerate(TARGETS) if name in names]
    # Places less their rank are the same along a stretch without gaps.
    stretches = groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])
    return ", ".join(_stretch([place for _, place in same]) for _, same in stretches)


def _stretch(places: list[int]) -> str:
    names = [list(TARGETS)[place] for place in places]
    return ", ".join(names) if len(names) < 4 else f"{names[0]} to {names[-1]}"


def in_words(step: Step, ins: Instruction) -> str:
    """What one step of the recipe of `ins` does to a dot product, in one line."""
    match step:
        case Widen(to):
            return f"convert a and b to {to}, exactly"
        case Clear(to):
            return f"x = +0 in {to}; c is added later"
        case FusedDotAdd():
            return _fused(step, ins)
        case FmaChain(fmt, nan_order):
            nan = f"; of several NaNs that of {' before '.join(nan_order)}" if nan_order else ""
            return (
                f"x = fma(a[k], b[k], x) for ascending k, each rounded {_MODIFIER[ins.rounding]} "
                f"to {fmt}{nan}"
            )
        case PairSums(fmt):
            return (
                "x = x + fma(a[k+1], b[k+1], a[k]*b[k]) for k = 0, 2, ..., each operation rounded "
                f"to nearest even in {fmt}"
            )
        case AddC(fmt):
            return f"x = x + c, rounded to nearest even in {fmt}"
        case Narrow(to):
            return f"round x to nearest even in {to}"
        case IntegerDot():
            end = "clamped once to s32" if ins.satfinite else "wrapped to 32 bits"
            return f"x = c + sum of a*b, exact, then {end}"
        case PopcountDot():
            operation = ins.form.bit_operation
            return f"x = c + number of k where (a[k] {operation} b[k]) is 1, wrapped to 32 bits"


def _fused(step: FusedDotAdd, ins: Instruction) -> str:
    passes = step.blocks(ins.stored_k)
    which = [runs(block) for block in passes]
    if len(passes) == 1:
        over = "over all k at once"
    elif max(map(len, which)) > 24:
        start = ", ".join(which[0].split(", ")[:3])
        over = f"in {len(passes)} passes, the first over k = {start}, ..."
    else:
        over = f"in {len(passes)} passes, k = {'; '.join(which)}"
    scaled = " times their scales" if ins.is_block_scaled else ""
    grouped = f", {step.group} neighbours first added exactly" if step.group > 1 else ""
    floor = "" if step.floor is None else f" (taken as at least {step.floor})"
    kept = f", {step.precision} significand bits kept" if step.precision else ""
    return (
        f"x = sum of a*b{scaled} and x{grouped}, {over}: every term is cut {step.fraction_bits} "
        f"bits below the largest exponent{floor}; the sum is rounded once "
        f"{_ROUNDED[step.rounding]} to {step.result}{kept}"
    )
