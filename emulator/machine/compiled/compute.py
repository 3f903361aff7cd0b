"""Statements that compute on registers, by the machine code of their rules."""

from __future__ import annotations

from typing import Any

from emulator.machine.compiled import rules
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.shared import operands
from emulator.ptx.program import Constant, Statement


def compute(t: NativeFunction, statement: Statement) -> None:
    ins, carry = statement.instruction, t.function.carry
    emit = rules.find(ins, statement.selectors)  # type: ignore[arg-type]
    assert emit is not None
    words: list[Any] = []
    for bound, type_ in operands.sources(statement):
        if type_:
            words.append(t.read(bound, type_))
        else:
            assert isinstance(bound, Constant)
            words.append(bound.word)
    if getattr(ins, "reads_carry", False):
        assert carry is not None
        words.append(t.register(carry))
    results = emit(t.e, *words)
    if not isinstance(results, tuple):
        results = (results,)
    guard, given = t.guard(statement), iter(results)
    for bound, type_ in operands.destinations(statement):
        t.write(bound, type_, next(given), guard)
    if getattr(ins, "writes_carry", False):
        assert carry is not None
        t.put(carry, next(given), guard)
