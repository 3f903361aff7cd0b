"""Statements that compute on registers, by the machine code of their rules."""

from __future__ import annotations

from typing import Any

from emulator.isa.signature import Operand
from emulator.machine.compiled import rules
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.shared.operands import word_type
from emulator.ptx.program import Bound, Constant, Statement, items_of


def compute(t: NativeFunction, statement: Statement) -> None:
    ins, carry = statement.instruction, t.function.carry
    emit = rules.find(ins, statement.selectors)  # type: ignore[arg-type]
    assert emit is not None
    words: list[Any] = []
    for operand in statement.signature.operands:
        bound = statement.operands.get(operand.name)
        if operand.use == "written" or bound is None:
            continue
        if operand.kind == "immediate":
            assert isinstance(bound, Constant)
            words.append(bound.word)
            continue
        words += [t.read(item, word_type(operand)) for item in _items(operand, bound)]
    if getattr(ins, "reads_carry", False):
        assert carry is not None
        words.append(t.register(carry))
    results = emit(t.e, *words)
    if not isinstance(results, tuple):
        results = (results,)
    guard, given = t.guard(statement), iter(results)
    for operand in statement.signature.operands:
        bound = statement.operands.get(operand.name)
        if operand.use == "read" or (bound is None and operand.paired):
            continue
        for item in _items(operand, bound):
            t.write(item, word_type(operand), next(given), guard)
    if getattr(ins, "writes_carry", False):
        assert carry is not None
        t.put(carry, next(given), guard)


def _items(operand: Operand, bound: Bound | None) -> tuple[Bound | None, ...]:
    return items_of(bound) if operand.kind == "vector" else (bound,)
