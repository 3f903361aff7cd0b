"""Instructions that only compute and have machine code: those whose rule's text emits it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from llvmlite import ir

from emulator.arith.fast.words import LONG, Value, Word
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
#: instructions of LLVM that are not worth a function of their own; what `_results_and_size` found
_SHORT = 3
_sizes: dict[str, tuple[Any, int]] = {}


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
    operation = rule.find_rule(instruction.rule)

    def text(e: WarpEmitter, *words: Value) -> Any:
        left = iter(words)
        given_words = [x if isinstance(x, int) else Word(e, next(left)) for x in values]
        words_of = cast("Words", NativeWords(e))
        results: Any = rule.bind_words(instruction, words_of, **given)(*given_words)
        return tuple(x.value for x in results) if isinstance(results, tuple) else results.value

    words = [x for x in values if not isinstance(x, int)]
    if not name or not words:
        return text(e, *words)
    name = ".".join([name, *(str(x) for x in values if isinstance(x, int))])
    types, size = _results_and_size(name, text, [x.type for x in words])
    if operation.long:
        return e.outlined(name, types, text, *words)
    return text(e, *words) if size <= _SHORT else e.fragment(name, types, text, *words)


def _results_and_size(name: str, text: Callable[..., Any], types: Sequence[Any]) -> tuple[Any, int]:
    """The types of the results of a text, and how many instructions it has."""
    if name not in _sizes:
        module = ir.Module()
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), types), "text")
        e = WarpEmitter(
            module, ir.IRBuilder(function.append_basic_block()), lambda builder, table: LONG(0)
        )
        made = text(e, *function.args)
        kinds = tuple(x.type for x in made) if isinstance(made, tuple) else made.type
        _sizes[name] = kinds, sum(len(block.instructions) for block in function.blocks)
    return _sizes[name]
