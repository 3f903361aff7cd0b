"""Statements of matrix instructions, matrix moves and conversions: bound, then run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtypes import FORMATS, Array, code_type, encode
from emulator.errors import OperandError, UndefinedError, UnsupportedError, listing
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.isa.operands import REGISTER_BITS
from emulator.isa.wmma import Wmma, WmmaMultiply
from emulator.ptx.binder import Binder, Scope, signed
from emulator.ptx.slots import (
    Descriptor,
    Ids,
    Immediate,
    Memory,
    Predicate,
    Registers,
    Slot,
    slots,
)
from emulator.ptx.syntax import (
    Address,
    Call,
    Float,
    Integer,
    Name,
    Negated,
    Operand,
    Position,
    Vector,
)
from emulator.targets import Target
from emulator.warp.execute import execute

if TYPE_CHECKING:
    from emulator.ptx.machine import Warp

#: no shared memory reaches as far
_FAR = 1 << 40


@dataclass(frozen=True)
class InstructionStep:
    """One instruction with operands that fit it."""

    instruction: Instruction
    operands: tuple[tuple[Slot, Operand], ...]
    position: Position

    def run(self, machine: Warp) -> None:
        """Executes the instruction: every warp of a warpgroup its own, wgmma all together."""
        _Execution(self, machine).run()


def bind(ins: Instruction, call: Call, scope: Scope, target: Target) -> InstructionStep:
    """The statement, checked.

    Raises UnsupportedError where the target lacks the instruction, and OperandError, with line and
    column, for a wrong count, kind, type or range of operands.
    """
    if target.name not in ins.targets:
        raise UnsupportedError(
            f"{ins} is not available on {target}; its targets are {listing(ins.targets, 30)}"
        )
    a_in_registers = len(call.operands) > 1 and isinstance(call.operands[1], Vector)
    binder = Binder(call, scope, str(ins))
    chosen = slots(ins, target, a_in_registers=a_in_registers, has_stride=len(call.operands) > 2)
    operands = [(slot, binder.check(slot)) for slot in chosen]
    binder.end()
    return InstructionStep(ins, tuple(operands), call.position)


class _Execution:
    """One run of one statement: fetches the operands, executes, stores the result."""

    def __init__(self, step: InstructionStep, machine: Warp) -> None:
        self.step, self.machine = step, machine
        self.where = f"{step.position}: "
        #: registers that each operand reads, by the name of its slot
        self.reads: dict[str, list[str]] = {}
        # A warp's instruction runs on each warp of a warpgroup: lanes (…, 128) become (…, 4, 32).
        warps, lanes = machine.lanes // step.instruction.lanes, step.instruction.lanes
        self.per_warp = (warps, lanes) if warps > 1 else (lanes,)

    def run(self) -> None:
        ins = self.step.instruction
        values = {slot.name: self._value(slot, operand) for slot, operand in self.step.operands}
        self._check_order()
        if isinstance(ins, MatrixInstruction):
            result = self._multiply(ins, values)
        elif isinstance(ins, Movement):
            result = self._move(ins, values)
        elif isinstance(ins, Wmma):
            result = self._wmma(ins, values)
        else:
            result = self._convert(values)
        self._store(result)

    def _execute(self, *operands: Any, **options: Any) -> Array:
        machine = self.machine
        return execute(
            self.step.instruction, *operands, target=machine.target, engine=machine.engine,
            undefined=machine.undefined, **options,
        )  # fmt: skip

    # --- the kinds of instruction ---

    def _multiply(self, ins: MatrixInstruction, values: dict[str, Any]) -> Array:
        names = ["a", "b", "d" if ins.is_wgmma else "c", *(["e"] if ins.is_sparse else [])]
        operands = [values.pop(name) for name in names]
        values.pop("d", None)
        for x in "ab" if ins.is_block_scaled else "":
            values[f"byte_id_{x}"], values[f"thread_id_{x}"] = values.pop(f"ids_{x}")
        if ins.is_wgmma:
            values["shared"] = self.machine.shared
        return self._execute(*operands, **values)

    def _move(self, ins: Movement, values: dict[str, Any]) -> Array:
        if ins.family == "movmatrix":
            return self._execute(values["a"][..., None])
        shared = self.machine.shared
        if ins.family == "ldmatrix":
            one_for_all = shared[..., None, :] if len(self.per_warp) > 1 else shared
            return self._execute(values["p"], shared=one_for_all)
        self.machine.keep_shared()
        self._store_tiles(values["p"], values["r"], shared)
        return np.zeros((*values["p"].shape, 0), np.uint32)

    def _wmma(self, ins: Wmma, values: dict[str, Any]) -> Array:
        if isinstance(ins, WmmaMultiply):
            return self._execute(values["a"], values["b"], values["c"])
        address = self._same(values["p"], "p")
        stride = self._same(values["stride"], "stride") if "stride" in values else None
        shared = self.machine.shared
        if len(self.per_warp) > 1:
            shared = shared[..., None, :]
        if ins.family == "wmma.load":
            return self._execute(address, shared=shared, stride=stride)
        if len(self.per_warp) > 1:
            raise UnsupportedError(f"{self.where}{ins.family} runs on a Warp here")
        self.machine.keep_shared()
        self._execute(address, values["r"], shared=self.machine.shared, stride=stride)
        return np.zeros((*address.shape, 0), np.uint32)

    def _same(self, words: Array, name: str) -> Array:
        """The value that all lanes of a warp hold."""
        if (words != words[..., :1]).any():
            raise OperandError(f"{self.where}operand {name} must hold the same in all lanes")
        return words[..., 0]

    def _store_tiles(self, addresses: Array, registers: Array, shared: Array) -> None:
        if len(self.per_warp) == 1:
            self._execute(addresses, registers, shared=shared)
            return
        warps = [(addresses[..., w, :], registers[..., w, :, :]) for w in range(self.per_warp[0])]
        for places, words in warps:
            self._execute(places, words, shared=shared)
        # Nothing orders the warps: what one has stored must still be there after all have.
        after = shared.copy()
        for w, (places, words) in enumerate(warps):
            self._execute(places, words, shared=after)
            if not np.array_equal(after, shared):
                at = int(np.argwhere(after != shared)[0][-1])
                raise UndefinedError(
                    f"stmatrix: warp {w} and another warp store different bytes at address {at}; "
                    "which one stays is undefined"
                )

    def _convert(self, values: dict[str, Any]) -> Array:
        sources: list[Array] = []
        for slot, _ in self.step.operands[1:]:
            assert isinstance(slot, Registers)
            value = values[slot.name]
            sources += list(np.moveaxis(value, -1, 0)) if slot.count else [value]
        # A register wider than its operand is cut.
        return self._execute(
            *(x.astype(np.uint32) if x.itemsize > 4 else x for x in sources)
        )[..., None]  # fmt: skip

    # --- operands ---

    def _value(self, slot: Slot, operand: Operand) -> Any:
        if isinstance(slot, Registers):
            return None if slot.use == "written" else self._registers(slot, operand)
        if isinstance(slot, Immediate):
            assert isinstance(operand, Integer)
            return signed(operand.value)
        if isinstance(slot, Memory):
            assert isinstance(operand, Address)
            return self._addresses(slot, operand)
        if isinstance(slot, Ids):
            assert isinstance(operand, Vector)
            return [self._id(slot, item) for item in operand.items]
        assert isinstance(slot, Predicate | Descriptor)
        return self._uniform(slot, operand)

    def _registers(self, slot: Registers, operand: Operand) -> Array:
        if isinstance(operand, Vector) and slot.count:
            return np.stack([self._word(slot, item) for item in operand.items], axis=-1)
        item = operand.items[0] if isinstance(operand, Vector) else operand
        assert isinstance(item, Name | Integer | Float)
        return self._word(slot, item)

    def _word(self, slot: Registers, item: Name | Integer | Float) -> Array:
        if isinstance(item, Name):
            return self._read(slot.name, item.text)
        bits = REGISTER_BITS[slot.types[0]]
        if isinstance(item, Integer):
            word = item.value & (1 << bits) - 1
        elif item.width == bits:
            word = item.bits
        else:
            word = int(encode(FORMATS[f"f{bits}"], item.value))
        shape = (*self.machine.registers.shape[:-1], *self.per_warp)
        return np.full(shape, word, code_type(bits))

    def _read(self, slot: str, name: str) -> Array:
        self.reads.setdefault(slot, []).append(name)
        words = self.machine.registers[name].words
        return words.reshape(*words.shape[:-1], *self.per_warp)

    def _uniform(self, slot: Predicate | Descriptor, operand: Operand) -> Any:
        if isinstance(operand, Integer):
            if isinstance(slot, Predicate):
                return bool(operand.value)
            return np.uint64(operand.value & (1 << 64) - 1)
        assert isinstance(operand, Name | Negated)
        words = self._read(slot.name, operand.text)
        if (words != words[..., :1]).any():
            raise OperandError(
                f"{operand.position}: operand {slot.name} must hold the same in all lanes"
            )
        if isinstance(slot, Descriptor):
            return words[..., 0]
        return (words[..., 0] != 0) ^ isinstance(operand, Negated)

    def _id(self, slot: Ids, item: Name | Integer | Float) -> int:
        if isinstance(item, Integer):
            return item.value
        assert isinstance(item, Name)
        words = self._read(slot.name, item.text)
        if (words != words.flat[0]).any():
            raise OperandError(
                f"{item.position}: operand {slot.name} must hold the same in all lanes, and here "
                "over the batch too"
            )
        return int(words.flat[0])

    def _addresses(self, slot: Memory, operand: Address) -> Array:
        """Byte offsets in shared memory, of every lane."""
        offset = max(-_FAR, min(operand.offset, _FAR))
        if operand.base in self.machine.variables:
            place = self.machine.variables[operand.base].address + offset
            return np.full((*self.machine.registers.shape[:-1], *self.per_warp), place, np.int64)
        words = self._read(slot.name, operand.base).astype(np.uint64)
        ins = self.step.instruction
        if isinstance(ins, Movement) and ins.space:
            words = words & np.uint64(0xFFFFFFFF)
        return words.astype(np.int64) + offset

    # --- ordering and results ---

    def _check_order(self) -> None:
        """The rules of wgmma: of its own registers, and of those that others touch meanwhile."""
        machine, ins = self.machine, self.step.instruction
        if machine.undefined != "raise":
            return
        if isinstance(ins, MatrixInstruction) and ins.is_wgmma:
            inputs = self.reads.pop("a", []) if len(self._vector("a")) else []
            accumulator = tuple(self.reads.pop("d"))
            machine.order.issue(ins.shape, accumulator, tuple(inputs), self.where)
            machine.order.check_read(
                [x for names in self.reads.values() for x in names], self.where
            )
        else:
            machine.order.read([x for names in self.reads.values() for x in names], self.where)
            machine.order.write(self._results(), self.where)

    def _vector(self, name: str) -> tuple[Name | Integer | Float, ...]:
        """The items of an operand in braces, none of any other."""
        operand = next(x for slot, x in self.step.operands if slot.name == name)
        return operand.items if isinstance(operand, Vector) else ()

    def _results(self) -> list[str]:
        slot, operand = self.step.operands[0]
        if not isinstance(slot, Registers):
            return []
        items = operand.items if isinstance(operand, Vector) else (operand,)
        return [item.text for item in items if isinstance(item, Name) and item.text != "_"]

    def _store(self, result: Array) -> None:
        slot, operand = self.step.operands[0]
        if not isinstance(slot, Registers):
            return
        items = operand.items if isinstance(operand, Vector) else (operand,)
        registers = self.machine.registers
        for i, item in enumerate(items):
            assert isinstance(item, Name)
            if item.text != "_":
                words = np.broadcast_to(
                    result[..., i], (*registers.shape[:-1], *self.per_warp)
                ).reshape(registers.shape)
                register = registers[item.text]
                register.words = words.astype(register.words.dtype)
