"""Vector engine: statements that compute on registers, by the rules of `emulator.arith.scalar`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, cast

from dtypes import Array
from emulator.arith.scalar.rule import Bound, Operation, bind_arrays, bind_words
from emulator.arith.scalar.traced import Untraceable, traced
from emulator.machine.shared.operands import bound_to
from emulator.machine.vector.operands import Read, Write, active, reader, writer
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Function, Statement

Step = Callable[[Strand], None]
#: calls of a rule after which it is traced, which takes as long as some hundred of them
_OFTEN = 400


def step(statement: Statement, function: Function) -> Step:
    """Computes the destinations of a statement from its sources, in all lanes or those of its
    guard."""
    reads, writes = operands_of(statement, function)
    rule = _Rule(statement.instruction, statement.selectors, len(writes))
    if statement.guard is None and len(writes) == 1:
        return _in_all(rule, reads, *writes)
    return guarded(statement, _in_some(rule, reads, writes))


def rule_of_step(statement: Statement) -> Bound:
    """What a statement with one result computes, by its rule's text."""
    text = bind_arrays(cast(Operation, statement.instruction), **statement.selectors)
    return lambda *words: first_of(text(*words))


class _Rule:
    """What a statement computes: `result` gives it, or a tuple of several, by its rule's text and
    after many calls by the function that the text comes to."""

    __slots__ = ("_left", "_made_of", "_text", "result")

    def __init__(self, ins: Any, selectors: dict[str, str], results: int) -> None:
        text, self._left = bind_arrays(ins, **selectors), _OFTEN
        self._text: Bound = text if results > 1 else lambda *words: first_of(text(*words))
        self._made_of = ins, tuple(selectors.items()), results
        self.result: Bound = self._counted

    def _counted(self, *words: Array | int) -> Any:
        self._left -= 1
        if self._left <= 0:
            self.result = self._text
            if all(isinstance(x, int) or x.ndim == 1 for x in words):
                kinds = tuple(x if isinstance(x, int) else x.dtype for x in words)
                self.result = _traced(*self._made_of, kinds) or self._text
        return self._text(*words)


@lru_cache(maxsize=1 << 10)
def _traced(
    ins: Any, selectors: tuple[tuple[str, str], ...], results: int, kinds: tuple[Any, ...]
) -> Bound | None:
    """The function of a rule; None where there is none."""
    try:
        return cast(Bound, traced(lambda w: bind_words(ins, w, **dict(selectors)), kinds, results))
    except Untraceable:
        return None


def operands_of(statement: Statement, function: Function) -> tuple[list[Read], list[Write]]:
    """Readers and writers of the operands, in order; the items of a vector one by one."""
    read, write = partial(reader, function=function), partial(writer, function=function)
    return bound_to(statement, function.carry, read, write, _number)


def _number(word: int) -> Read:
    """Rules take an immediate operand as an integer."""
    return lambda s: word  # type: ignore[return-value]


Masked = Callable[[Strand, Array | None], None]


def _in_all(rule: _Rule, reads: list[Read], write: Write) -> Step:
    """Writes the one result in all lanes: most statements, so that each call counts."""
    if len(reads) == 1:
        (one,) = reads
        return lambda s: write(s, rule.result(one(s)), None)
    if len(reads) == 2:
        one, two = reads
        return lambda s: write(s, rule.result(one(s), two(s)), None)
    if len(reads) == 3:
        one, two, three = reads
        return lambda s: write(s, rule.result(one(s), two(s), three(s)), None)
    return lambda s: write(s, rule.result(*[read(s) for read in reads]), None)


def _in_some(rule: _Rule, reads: list[Read], writes: list[Write]) -> Masked:
    def run(s: Strand, mask: Array | None) -> None:
        results = rule.result(*[read(s) for read in reads])
        if len(writes) == 1:
            writes[0](s, results, mask)
            return
        for write, words in zip(writes, results, strict=True):
            write(s, words, mask)

    return run


def first_of(result: Array | tuple[Array, ...]) -> Array:
    """The first of several results: the others were left out."""
    return result[0] if isinstance(result, tuple) else result


def guarded(statement: Statement, run: Masked) -> Step:
    """`run` in the lanes where the statement's guard holds."""
    if statement.guard is None:
        return lambda s: run(s, None)
    find = active(statement.guard)

    def guarded(s: Strand) -> None:
        mask = find(s)
        if mask is not False:
            run(s, mask)

    return guarded
