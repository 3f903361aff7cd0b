"""Instructions that only compute and have machine code: those whose rule's text emits it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import numpy as np

from emulator.arith.fast.words import Word
from emulator.arith.scalar import rule
from emulator.arith.scalar.arrays import ArrayWords
from emulator.arith.scalar.types import TYPES
from emulator.arith.scalar.words import Words
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.compiled.warp_emitter import WarpEmitter
from emulator.machine.compiled.words import NativeWords, NoMachineCode
from emulator.machine.shared.operands import word_type

#: words to the destination's word, or to several; immediate operands are integers
Emit = Callable[..., Any]

#: effects of instructions whose rule is about words in memory
_OF_MEMORY = {"reads", "writes", "reduces"}
_known: dict[tuple[str, ...], Emit | None] = {}


def find(instruction: OrdinaryInstruction, given: Mapping[str, str]) -> Emit | None:
    """The instruction as a function of an emitter and source words; None where there is none."""
    if not instruction.rule or instruction.effects & _OF_MEMORY:
        return None
    key = (str(instruction), *(f"{name}={word}" for name, word in sorted(given.items())))
    if key not in _known:
        emit = partial(_emit, instruction, dict(given), ".".join(key))
        _known[key] = emit if _emits(instruction, given) else None
    return _known[key]


def of_words(instruction: OrdinaryInstruction, space: str) -> Emit:
    """An atomic operation of addresses in a state space as a function of an emitter and words."""
    return partial(_emit, instruction, {"space": space}, "")


def _emits(instruction: OrdinaryInstruction, given: Mapping[str, str]) -> bool:
    """True if there is machine code, which is found by trying the text on arrays of one word."""
    operands = [x for x in instruction.signature().operands if x.use == "read"]
    types = [TYPES[word_type(x)] for x in operands]
    if any(t.size > 64 for t in (*types, *(TYPES[name] for name in instruction.types))):
        return False
    words: list[Any] = [
        0 if x.kind == "immediate" else np.zeros(1, t.dtype)
        for x, t in zip(operands, types, strict=True)
    ]
    words += [np.zeros(1, np.bool_)] * getattr(instruction, "reads_carry", False)
    try:
        with np.errstate(all="ignore"):
            rule.bind_words(instruction, _TRIAL, **given)(*words)
    except NoMachineCode:
        return False
    return True


class _Trial(ArrayWords):
    """Arrays that lack what values of LLVM lack, and for which nothing is rare."""

    @staticmethod
    def put(condition: Any, value: Any, out: Any) -> Any:
        return np.where(condition, value() if callable(value) else value, out)

    @staticmethod
    def mend(condition: Any, out: Any, make: Callable[..., Any], *operands: Any) -> Any:
        return np.where(condition, make(*operands), out)

    @staticmethod
    def by_arrays(function: Callable[..., Any], *words: Any) -> Any:
        raise NoMachineCode


_TRIAL = cast("Words", _Trial())


def _emit(
    instruction: OrdinaryInstruction,
    given: Mapping[str, str],
    name: str,
    e: WarpEmitter,
    *values: Any,
) -> Any:
    w, words = NativeWords(e), [x if isinstance(x, int) else Word(e, x) for x in values]

    def text(w: NativeWords, *words: Any) -> Any:
        return rule.bind_words(instruction, cast("Words", w), **given)(*words)

    long = rule.find_rule(instruction.rule).long
    results: Any = w.outlined(name, text, *words) if long else text(w, *words)
    return tuple(x.value for x in results) if isinstance(results, tuple) else results.value
