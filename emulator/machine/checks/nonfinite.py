"""Stops a launch at the first NaN or infinity that a statement makes of operands without any."""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.machine.checks.values import (
    Value,
    is_float,
    read_all,
    shown,
    specials,
    specials_of_words,
    values_of,
)
from emulator.machine.options import Special
from emulator.machine.shared.failure import Failure
from emulator.machine.vector.fragments import Registers
from emulator.machine.vector.operands import active
from emulator.machine.vector.statements import rule_of
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.watching import StepOrEnd, Watcher
from emulator.ptx.program import Function, Statement

Step = StepOrEnd


def watcher(kind: Special) -> Watcher:
    """Watcher around an engine's steps that raises Failure where `kind` is made.

    Loads, copies and selections pass on what is there and make nothing.
    """

    def watch(step: Step, statement: Statement, function: Function) -> Step:
        ins = statement.instruction
        if isinstance(ins, (MatrixInstruction, WmmaMultiply)):
            return _matrix(step, statement, function, kind)
        if not rule_of(ins):
            return step
        written = values_of(statement, function, written=True)
        if not any(is_float(value.type) for value in written):
            return step
        return _scalar(step, statement, function, kind, written)

    return watch


def _scalar(
    step: Step, statement: Statement, function: Function, kind: Special, written: list[Value]
) -> Step:
    read, guard = values_of(statement, function, written=False), active(statement.guard)

    def run(s: Strand) -> int | None:
        mask = guard(s)
        if mask is False:
            return step(s)
        before = read_all(s, read)
        result = step(s)
        nan, infinite = _any_special(read, before)
        for value, words in zip(written, read_all(s, written), strict=True):
            if not is_float(value.type):
                continue
            new_nan, new_infinite = specials_of_words(words, value.type)
            made = _made(kind, (nan, infinite), (new_nan, new_infinite))
            if mask is not None:
                made = made & mask
            if made.any():
                lane = int(np.argmax(made))
                what = "NaN" if (new_nan[lane if len(new_nan) > 1 else 0]) else "infinity"
                operands = ", ".join(
                    f"{x.name} = {shown(w, x.type, lane)}"
                    for x, w in zip(read, before, strict=True)
                )
                reason = f"{value.name} is {shown(words, value.type, lane)}, made of {operands}"
                raise Failure(what, reason, lane)
        return result

    return run


def _any_special(values: list[Value], words: list[Array]) -> tuple[Array, Array]:
    """For each lane, or for all, whether any of the values is NaN, or infinite."""
    nan = infinite = np.zeros(1, np.bool_)
    for value, held in zip(values, words, strict=True):
        if is_float(value.type):
            more = specials_of_words(held, value.type)
            nan, infinite = nan | more[0], infinite | more[1]
    return nan, infinite


def _made(kind: Special, before: tuple[Array, Array], after: tuple[Array, Array]) -> Array:
    """Mask of results that are special where no operand was."""
    (nan, infinite), (new_nan, new_infinite) = before, after
    made = np.zeros(1, np.bool_)
    if kind != "inf":
        made = made | (new_nan & ~nan)
    if kind != "nan":
        made = made | (new_infinite & ~nan & ~infinite)
    return made


# --- matrices -------------------------------------------------------------------------------------


def _matrix(step: Step, statement: Statement, function: Function, kind: Special) -> Step:
    """Multiplications: D has what none of the operands in registers has, of its warp or
    warpgroup."""
    ins = statement.instruction
    assert isinstance(ins, (MatrixInstruction, WmmaMultiply))
    vectors = {
        operand.name: Registers(operand, statement.operands[operand.name], function, ins.lanes)
        for operand in statement.signature.operands
        if operand.kind == "vector"
        and operand.name in ins.fragments
        and operand.name in statement.operands
    }
    in_memory = any(operand.kind == "descriptor" for operand in statement.signature.operands)

    def found(s: Strand, names: list[str]) -> tuple[Array, Array]:
        """For each warp whether any element of operands is NaN, or infinite."""
        nan = infinite = np.zeros(len(s) // ins.lanes, np.bool_)
        for name in names:
            fragment = ins.fragments[name]
            codes = fragment.gather(vectors[name].read(s))
            more = specials(fragment.fmt, codes.reshape(len(codes), -1))
            nan, infinite = nan | more[0].any(-1), infinite | more[1].any(-1)
        return nan, infinite

    used = [operand for operand in statement.signature.operands if operand.name in vectors]
    reads = [operand.name for operand in used if operand.use != "written"]
    (result,) = [operand.name for operand in used if operand.use != "read"]

    def run(s: Strand) -> int | None:
        before = found(s, reads) if len(s) % ins.lanes == 0 else None
        answer = step(s)
        assert before is not None, "a matrix instruction has run on part of a warp"
        after = found(s, [result])
        made = _made(kind, before, after)
        if made.any():
            warp = int(np.argmax(made))
            what = "NaN" if after[0][warp] else "infinity"
            where = "; what lies in shared memory is not looked at" if in_memory else ""
            reason = f"{result} has it, and no operand in registers has{where}"
            raise Failure(what, reason, warp * ins.lanes)
        return answer

    return run
