"""Chains of conversions that ptxas folds into one where that changes results.

Read off ptxas 13.0 and 13.5: the machine code of all 19,938 pairs of conversions (each rounding to
nearest, down or to zero) for sm_90a, and of samples for sm_80, sm_100a and sm_120a. They fold from
-O1 on, with -fmad=false too, across basic blocks, whatever else takes the first result and whether
or not the second statement has a guard; a guard of the first one prevents it. Pairs that fold and
give the same bits are not listed. An H200 gave the bits of these rules in 26 kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dtypes import FORMATS
from dtypes.codec import NumberClass, decode, round_to_code
from emulator.ptx.dataflow import Value

__all__ = ["Conversion", "converted", "find_conversions", "may_fold"]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion that becomes another one, `opcode`, of the source of the statement `inner`."""

    opcode: str
    inner: int


#: integer of the first conversion, types of the second one (.sat) -> sources of the first
_NARROWED: dict[tuple[str, ...], tuple[str, ...]] = {
    **dict.fromkeys((("s64", "s32", "s64"), ("u64", "u32", "u64")), ("f16", "bf16", "f32")),
    **{(old, new, old): ("f32",) for old in ("s32", "u32") for new in ("s16", "u16")},
}
_HALVES = ("f16", "bf16")
_INTEGERS = frozenset(f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64))
#: conversions that ptxas computes of constants, by types -> their modifiers: not those of two
#: elements, of f16 and bf16 to each other, of 64 bits, with other modifiers (ptxas 13.0 and 13.5)
_OF_CONSTANTS: dict[tuple[str, str], list[str]] = {
    **{("f32", half): [] for half in _HALVES},
    **{(half, "f32"): ["rn"] for half in _HALVES},
    **{("f32", f"{sign}{bits}"): ["rn"] for sign in "su" for bits in (8, 16, 32)},
}


def converted(opcode: str, code: int) -> int | None:
    """The code that ptxas has for a conversion of a constant, by which it may multiply at once.

    None for conversions that it leaves alone, and of what is not finite, which was not looked at.
    """
    _, *words, to, source = opcode.split(".")
    if _OF_CONSTANTS.get((to, source)) != words:
        return None
    fmt = FORMATS[to]
    if source in _INTEGERS:
        bits = int(source[1:])
        number = code & (1 << bits) - 1
        number -= (source[0] == "s" and number >> bits - 1) << bits
        return round_to_code(fmt, int(number < 0), abs(number), 0)
    given = decode(FORMATS[source], code)
    if given.number_class not in (NumberClass.FINITE, NumberClass.ZERO):
        return None
    exponent = given.exponent - FORMATS[source].mantissa_bits
    return round_to_code(fmt, given.sign, given.significand, exponent)


@lru_cache(maxsize=4096)
def may_fold(opcode: str) -> bool:
    """True if a statement with this opcode may be folded with the one that makes its source."""
    if not opcode.startswith("cvt."):
        return False
    *words, to, source = opcode.split(".")[1:]
    if source in _HALVES:
        return to in _INTEGERS
    return "sat" in words and any((to, source) == types[1:] for types in _NARROWED)


def find_conversions(values: Sequence[Value]) -> dict[int, Conversion]:
    """Folds conversions, by the index of the second one, and makes their values the folded ones."""
    found: dict[int, Conversion] = {}
    for value in values:
        if value.index < 0 or not may_fold(value.opcode):
            continue
        for fold in (_narrowed, _rounded):
            first = value.arguments[0].root
            if first.head not in ("cvt", "set"):
                break
            if opcode := fold(first.opcode, value.opcode):
                known = found.get(first.index)
                inner = known.inner if known else first.index
                if first.head == "set":
                    inner = value.index
                else:
                    value.arguments[0] = first.arguments[0]
                found[value.index] = Conversion(opcode, inner)
                value.opcode = opcode
    return found


def _narrowed(first: str, second: str) -> str:
    """A float made a wide integer and then saturated to a narrow one is converted at once.

    So a NaN gives 0 instead of a limit, and a negative number made .u32 and then .s16 stays
    negative; of conversions to 32 bits .ftz is lost, before those to 64 bits an instruction of its
    own flushes. "" if these two are not folded.
    """
    name, *words, made, number = first.split(".")
    to, source = second.split(".")[-2:]
    sources = _NARROWED.get((made, to, source), ()) if ".sat." in second else ()
    if name != "cvt" or number not in sources:
        return ""
    flush = ".ftz" if "ftz" in words and made.endswith("64") else ""
    return f"cvt.{words[0]}{flush}.{to}.{number}"


def _rounded(first: str, second: str) -> str:
    """Folds the truncation of a converted half: ptxas rounds once, as the first conversion rounds.

    It forgets the type: bits of f16 that became bf16 are read as if they were bf16, and conversions
    without a rounding count as to nearest. What ``set`` makes is 1 or 0 whatever type it is read
    as, unless it has a predicate as a source. "" if these two are not folded.
    """
    *words, to, number = second.split(".")[1:]
    name, *others, made, source = first.split(".")
    if number not in _HALVES or to not in _INTEGERS or made not in _HALVES:
        return ""
    if name == "set" and not {"and", "or", "xor"} & set(others):
        return f"cvt.{words[0]}.{to}.{made}"
    if name != "cvt" or source not in _HALVES or "sat" in others or words[0] != "rzi":
        return ""
    rounding = next((word for word in others if word.startswith("r")), "rn")[:2]
    return f"cvt.{rounding}i.{to}.{number}"
