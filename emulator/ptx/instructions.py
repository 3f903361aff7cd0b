"""Statements of instructions: bound once, run as often as asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dtypes import FORMATS, Array, code_type, encode
from emulator.errors import OperandError, UnsupportedError
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.isa.register_types import REGISTER_BITS
from emulator.isa.signature import Operand
from emulator.memory.space import Space
from emulator.ptx.binder import Binder, Scope, signed
from emulator.ptx.state import State
from emulator.ptx.syntax import Address, Call, Float, Integer, Name, Negated, Position, Vector
from emulator.ptx.syntax import Operand as Written
from emulator.targets import Target
from emulator.warp import call, move
from emulator.warp.execute import run

#: no shared memory reaches as far
_FAR = 1 << 40


@dataclass(frozen=True)
class InstructionStep:
    """One instruction with operands that fit it."""

    instruction: Instruction
    operands: tuple[tuple[Operand, Written], ...]
    position: Position

    def run(self, state: State) -> None:
        """Executes the instruction: every warp of a warpgroup its own, wgmma all together."""
        _Execution(self, state).run()


def bind(ins: Instruction, statement: Call, scope: Scope, target: Target) -> InstructionStep:
    """The statement, checked.

    Raises UnsupportedError where the target lacks the instruction, and OperandError, with line and
    column, for a wrong count, kind, type or range of operands.
    """
    signatures = ins.signatures(target)
    return InstructionStep(
        ins, Binder(statement, scope, str(ins)).bind(signatures), statement.position
    )


class _Execution:
    """One run of one statement: fetches the operands, executes, stores the result."""

    def __init__(self, step: InstructionStep, state: State) -> None:
        self.step, self.state, self.ins = step, state, step.instruction
        self.where = f"{step.position}: "
        #: registers that each operand reads, by its name
        self.reads: dict[str, list[str]] = {}
        # A warp's instruction runs on each warp of a warpgroup: lanes (…, 128) become (…, 4, 32).
        warps = state.lanes // self.ins.lanes if self.ins.scope != "thread" else 1
        self.warps = warps
        self.lanes = (warps, state.lanes // warps) if warps > 1 else (state.lanes,)

    def run(self) -> None:
        operands: dict[str, Any] = {}
        options: dict[str, Any] = {}
        for operand, written in self.step.operands:
            if operand.use != "written":
                held = options if operand.is_option else operands
                held.update(self._values(operand, written))
            if operand.memory:
                options[operand.memory] = self._memory(operand.memory)
        self._check_order(options)
        if self._stores and self.warps > 1:
            self._store_from_all_warps(self.ins, operands)
            return
        state = self.state
        given = call.Call(self.ins, operands, options, state.target, state.engine, state.undefined)
        result = run(given)
        self._write(result[..., None] if self.ins.scope == "thread" else result)

    def _memory(self, keyword: str) -> Space:
        memory = self.state.memory(keyword, self.where)
        if self.warps == 1 or self._stores:
            return memory
        return Space(memory.name, memory.data[..., None, :])  # the same for every warp

    @property
    def _stores(self) -> bool:
        """Memory is the destination, which stands first."""
        return self.step.operands[0][0].kind == "address"

    def _store_from_all_warps(self, ins: Instruction, operands: dict[str, Any]) -> None:
        """Nothing orders the warps: they store together."""
        if not isinstance(ins, Movement):
            raise UnsupportedError(f"{self.where}{ins.family} runs on a Warp here")
        shared = self.state.shared
        move.store(ins, operands["p"], operands["r"], shared, warps=self.warps)

    # --- operands ---

    def _values(self, operand: Operand, written: Written) -> dict[str, Any]:
        """What an operand holds, by the names that `execute` has for it."""
        name = operand.name
        if operand.kind == "immediate":
            assert isinstance(written, Integer)
            return {name: signed(written.value)}
        if operand.kind == "address":
            assert isinstance(written, Address)
            places = self._addresses(operand, written)
            return {name: self._same(places, name) if operand.uniform else places}
        if operand.kind == "ids":
            assert isinstance(written, Vector)
            pairs = zip(operand.parts, written.items, strict=True)
            return {part.name: self._id(operand.name, item) for part, item in pairs}
        if operand.kind in ("predicate", "descriptor"):
            return {name: self._uniform(operand, written)}
        if operand.kind == "vector":
            assert isinstance(written, Vector)
            each = [self._word(operand, item) for item in written.items]
            if operand.parts:
                return {x.name: y for x, y in zip(operand.parts, each, strict=True)}
            return {name: np.stack(each, axis=-1)}
        item = written.items[0] if isinstance(written, Vector) else written
        assert isinstance(item, Name | Integer | Float)
        words = self._word(operand, item)
        if operand.uniform:
            return {name: self._same(words, name)}
        return {name: words[..., None] if name in self.ins.fragments else words}

    def _same(self, words: Array, name: str) -> Array:
        """The value that all lanes of a warp hold."""
        if (words != words[..., :1]).any():
            raise OperandError(f"{self.where}operand {name} must hold the same in all lanes")
        return words[..., 0]

    def _word(self, operand: Operand, item: Name | Integer | Float) -> Array:
        if isinstance(item, Name):
            words = self._read(operand.name, item.text)
            # A register of a thread's instruction may be wider than its operand: it is cut.
            return words.astype(np.uint32) if self._cuts(words) else words
        bits = REGISTER_BITS[operand.types[0]]
        if isinstance(item, Integer):
            word = item.value & (1 << bits) - 1
        elif item.width == bits:
            word = item.bits
        else:
            word = int(encode(FORMATS[f"f{bits}"], item.value))
        return np.full((*self.state.batch, *self.lanes), word, code_type(bits))

    def _cuts(self, words: Array) -> bool:
        return self.ins.scope == "thread" and words.itemsize > 4

    def _read(self, operand: str, name: str) -> Array:
        self.reads.setdefault(operand, []).append(name)
        words = self.state.registers[name].words
        return words.reshape(*self.state.batch, *self.lanes)

    def _uniform(self, operand: Operand, written: Written) -> Any:
        if isinstance(written, Integer):
            if operand.kind == "predicate":
                return bool(written.value)
            return np.uint64(written.value & (1 << 64) - 1)
        assert isinstance(written, Name | Negated)
        words = self._same(self._read(operand.name, written.text), operand.name)
        if operand.kind == "descriptor":
            return words
        return (words != 0) ^ isinstance(written, Negated)

    def _id(self, name: str, item: Name | Integer | Float) -> int:
        if isinstance(item, Integer):
            return item.value
        assert isinstance(item, Name)
        words = self._read(name, item.text)
        if words.size and (words != words.flat[0]).any():
            raise OperandError(
                f"{item.position}: operand {name} must hold the same in all lanes, and here over "
                "the batch too"
            )
        return int(words.flat[0]) if words.size else 0

    def _addresses(self, operand: Operand, written: Address) -> Array:
        """Byte offsets in shared memory, of every lane."""
        offset = max(-_FAR, min(written.offset, _FAR))
        if written.base in self.state.variables:
            place = self.state.variables[written.base].address + offset
            return np.full((*self.state.batch, *self.lanes), place, np.int64)
        words = self._read(operand.name, written.base).astype(np.uint64)
        if operand.space == "shared":  # a window of 32 bits
            words = words & np.uint64(0xFFFFFFFF)
        return words.astype(np.int64) + offset

    # --- ordering and results ---

    def _check_order(self, options: dict[str, Any]) -> None:
        """Registers that hold nothing, and the rules of wgmma: of its own registers, and of those
        that others touch meanwhile."""
        state, ins = self.state, self.ins
        if state.undefined != "raise":
            return
        reads, order = dict(self.reads), state.order
        if isinstance(ins, MatrixInstruction) and ins.is_wgmma:
            accumulator = reads.pop("d")
            if np.any(options["scale_d"]):
                state.check_written(accumulator, self.where)
            inputs = reads.pop("a", []) if self._written("a", Vector) else []
            state.check_written(inputs, self.where)
            order.issue(ins.shape, tuple(accumulator), tuple(inputs), self.where)
            state.check_read([x for names in reads.values() for x in names], self.where)
            return
        names = [x for names in reads.values() for x in names]
        state.check_read(names, self.where)
        order.check_write(self._results(), self.where)
        order.touch([*names, *self._results()])

    def _written(self, name: str, kind: type) -> bool:
        return any(x.name == name and isinstance(y, kind) for x, y in self.step.operands)

    def _results(self) -> list[str]:
        """The registers that the instruction writes."""
        return [name for name in self._targets() if name != "_"]

    def _targets(self) -> list[str]:
        operand, written = self.step.operands[0]
        if operand.use == "read":
            return []
        items = written.items if isinstance(written, Vector) else (written,)
        return [item.text for item in items if isinstance(item, Name)]

    def _write(self, result: Array) -> None:
        registers, names = self.state.registers, self._targets()
        words = np.broadcast_to(result, (*self.state.batch, *self.lanes, result.shape[-1]))
        words = words.reshape(*registers.shape, result.shape[-1])
        for i, name in enumerate(names):
            if name != "_":
                registers.write(name, words[..., i])
