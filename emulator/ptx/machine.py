"""``Warp`` and ``Warpgroup``: typed registers, shared memory, and statements that run on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dtypes import FORMATS, Array, code_type, encode
from emulator.arith import Engine
from emulator.errors import EmulatorError, OperandError, UnsupportedError, listing
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.operands import REGISTER_BITS
from emulator.ptx.binding import Binder, bind
from emulator.ptx.ordering import WgmmaOrder
from emulator.ptx.registers import RegisterFile
from emulator.ptx.syntax import Call, Declaration, Float, Integer, Name, Operand, Vector, parse
from emulator.targets import find_target
from emulator.warp.execute import execute
from emulator.warp.multiply import Undefined

#: mov types; a .b type takes every register of its size, a typed one its own kind and .b
_MOV_TYPES = {
    "b16": ("b16", "u16", "s16", "f16"),
    "b32": ("b32", "u32", "s32", "f32", "f16x2"),
    "b64": ("b64", "u64", "s64", "f64"),
    "u16": ("b16", "u16", "s16"), "s16": ("b16", "u16", "s16"),
    "u32": ("b32", "u32", "s32", "f16x2"), "s32": ("b32", "u32", "s32", "f16x2"),
    "u64": ("b64", "u64", "s64"), "s64": ("b64", "u64", "s64"),
    "f32": ("b32", "f32"), "f64": ("b64", "f64"), "pred": ("pred",),
}  # fmt: skip
#: registers that PTX predefines and a lane can read here
_SPECIAL = ("%laneid", "%tid.x", "%warpid")


class Warp:
    """A warp of 32 lanes that execute PTX statements together.

    ``warp["%r0"]`` reads and sets the raw words of one register, ``(*batch, lanes)``;
    ``warp.registers["%r0"].values`` reads them as their declared type. ``warp.shared`` is shared
    memory, ``uint8 (*batch, bytes)``.
    """

    lanes = 32

    def __init__(
        self,
        target: str,
        *,
        shared_bytes: int = 48 * 1024,
        batch: tuple[int, ...] = (),
        engine: Engine = "auto",
        undefined: Undefined = "raise",
    ) -> None:
        self.target = find_target(target)
        self.engine: Engine = engine
        self.undefined: Undefined = undefined
        self.registers = RegisterFile(self.lanes, batch)
        self.shared: Array = np.zeros((*batch, shared_bytes), np.uint8)
        self._order = WgmmaOrder()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.lanes} lanes, {self.target}, "
            f"{len(self.registers)} registers, {self.shared.shape[-1]} bytes shared>"
        )

    # --- registers ---

    def declare(self, type_: str, *names: str) -> None:
        """Declares registers as ``.reg`` does: ``warp.declare("b32", "%r0", "%r1")``."""
        self.registers.declare(type_.removeprefix("."), names)

    def __getitem__(self, name: str) -> Array:
        if self.undefined == "raise":
            self._order.check_read([name], "")
        return self.registers[name].words.copy()

    def __setitem__(self, name: str, values: Any) -> None:
        words = self.registers.checked(name, values)
        if self.undefined == "raise":
            self._order.write([name], "")
        self.registers[name].words = words

    def read(self, prefix: str, count: int) -> Array:
        """Words of registers ``prefix0 … prefix{count-1}``: ``(*batch, lanes, count)``."""
        return np.stack([self[f"{prefix}{i}"] for i in range(count)], axis=-1)

    def write(self, prefix: str, words: Array) -> None:
        """Sets registers ``prefix0 …`` from ``(…, lanes, count)``: all of them, or none."""
        words = np.asarray(words)
        names = [f"{prefix}{i}" for i in range(words.shape[-1])]
        checked = [self.registers.checked(n, words[..., i]) for i, n in enumerate(names)]
        for name, value in zip(names, checked, strict=True):
            self[name] = value

    # --- statements ---

    def run(self, text: str) -> None:
        """Runs PTX statements: ``.reg`` declarations, ``mov``, matrix instructions.

        All of `text` takes effect or, when it raises, none of it. Raises ParseError,
        UnsupportedError, OperandError or UndefinedError, with line and column.
        """
        statements = parse(text)
        registers, order = self.registers, self._order
        self.registers, self._order = self._copy_registers(), order.copy()
        try:
            for statement in statements:
                if isinstance(statement, Declaration):
                    where = f"{statement.position}: "
                    self.registers.declare(statement.type, statement.names, where)
                else:
                    self._call(statement)
        except BaseException:
            self.registers, self._order = registers, order
            raise

    def _copy_registers(self) -> RegisterFile:
        copy = RegisterFile(self.lanes, self.registers.shape[:-1])
        for name, register in self.registers.items():
            copy.declare(register.type, (name,))
            copy[name].words = register.words
        return copy

    def _call(self, call: Call) -> None:
        head = call.opcode.split(".")[0]
        try:
            if head == "mov":
                self._mov(call)
            elif call.opcode.startswith(tuple(_SYNCHRONISATION)):
                self._synchronise(call)
            elif head in ("mma", "wgmma"):
                ins = Instruction.parse(call.opcode)
                assert isinstance(ins, MatrixInstruction)
                self._matrix(call, ins)
            else:
                raise UnsupportedError(f"{call.opcode!r} does not run here; mma, wgmma and mov do")
        except EmulatorError as error:
            if str(error).startswith("line "):
                raise
            raise type(error)(f"{call.position}: {error}") from None

    def _matrix(self, call: Call, ins: MatrixInstruction) -> None:
        if ins.lanes != self.lanes:
            raise UnsupportedError(
                f"{ins} runs on {ins.lanes} lanes, a {'warpgroup' if ins.is_wgmma else 'warp'}; "
                f"this is a {type(self).__name__} of {self.lanes}"
            )
        bound = bind(ins, call, self.registers)
        where = f"{call.position}: "
        if ins.is_wgmma:
            bound.options["shared"] = self.shared
            if self.undefined == "raise":
                self._order.issue(ins.shape, bound.destination, bound.reads, where)
        result = execute(
            ins,
            *bound.operands,
            target=self.target,
            engine=self.engine,
            undefined=self.undefined,
            **bound.options,
        )
        if not ins.is_wgmma and self.undefined == "raise":
            self._order.read(bound.reads, where)
            self._order.write([n for n in bound.destination if n != "_"], where)
        for i, name in enumerate(bound.destination):
            if name != "_":
                words = np.broadcast_to(result[..., i], self.registers.shape)
                self.registers[name].words = words.copy()

    def _synchronise(self, call: Call) -> None:
        name = next(x for x in _SYNCHRONISATION if call.opcode.startswith(x))
        modifiers = set(call.opcode.removeprefix(name).split(".")[1:])
        needed = {"sync", "aligned"} if name.startswith("wgmma") else set()
        extra = {"shared::cta"} if name.startswith("fence") else set()
        if not needed <= modifiers or modifiers - needed - extra:
            raise UnsupportedError(f"write {'.'.join([name, *sorted(needed, reverse=True)])}")
        if name.startswith("wgmma") and self.lanes != Warpgroup.lanes:
            raise UnsupportedError(f"{name} runs on a Warpgroup; this is a {type(self).__name__}")
        binder = Binder(call, self.registers, name)
        count = 0
        if name == "wgmma.wait_group":
            count = binder.immediate("number of pending groups")
            if count < 0:
                raise OperandError(f"wgmma.wait_group takes a number of groups, 0 or more: {count}")
        binder.end()
        _SYNCHRONISATION[name](self._order, count)

    # --- mov ---

    def _mov(self, call: Call) -> None:
        type_ = call.opcode.removeprefix("mov.")
        if type_ not in _MOV_TYPES:
            raise UnsupportedError(
                f"no {call.opcode!r}; mov takes {listing('.' + t for t in _MOV_TYPES)}"
            )
        if len(call.operands) != 2:
            raise OperandError(f"mov takes 2 operands; {len(call.operands)} are given")
        target, source = call.operands
        bits = REGISTER_BITS[type_]
        where = f"{call.position}: "
        if isinstance(target, Vector) and isinstance(source, Vector):
            raise OperandError(f"{source.position}: mov packs or unpacks one vector, not two")
        words = self._mov_source(source, type_, bits, where)
        if isinstance(target, Name):
            self._mov_check(target, _MOV_TYPES[type_], call.opcode)
            self._store(target.text, words, where)
        elif isinstance(target, Vector):
            part = self._part_bits(target, bits, call.opcode)
            shifts = range(0, bits, part)
            for item, shift in zip(target.items, shifts, strict=True):
                assert isinstance(item, Name)
                piece = words >> words.dtype.type(shift) & words.dtype.type((1 << part) - 1)
                if item.text != "_":
                    self._store(item.text, piece, where)
        else:
            raise OperandError(f"{target.position}: mov writes a register")

    def _mov_source(self, source: Operand, type_: str, bits: int, where: str) -> Array:
        word = code_type(bits)
        if isinstance(source, Name) and source.text in _SPECIAL:
            lane = np.arange(self.lanes)
            value = {"%laneid": lane % 32, "%tid.x": lane, "%warpid": lane // 32}[source.text]
            if bits != 32:
                raise OperandError(f"{source.position}: {source.text} has 32 bits")
            return np.broadcast_to(value.astype(word), self.registers.shape).copy()
        if isinstance(source, Name):
            self._mov_check(source, _MOV_TYPES[type_], f"mov.{type_}")
            if self.undefined == "raise":
                self._order.read([source.text], where)
            return self.registers[source.text].words
        if isinstance(source, Vector):
            part = self._part_bits(source, bits, f"mov.{type_}")
            out = np.zeros(self.registers.shape, word)
            for i, item in enumerate(source.items):
                assert isinstance(item, Name)
                if self.undefined == "raise":
                    self._order.read([item.text], where)
                out |= self.registers[item.text].words.astype(word) << word.type(i * part)
            return out
        return np.full(self.registers.shape, self._mov_constant(source, type_, bits), word)

    def _mov_constant(self, source: Operand, type_: str, bits: int) -> int:
        if isinstance(source, Integer) and type_[0] != "f":
            return int(source.value != 0) if type_ == "pred" else source.value & (1 << bits) - 1
        if isinstance(source, Float):
            if source.width == bits and type_[0] in "fb":
                return source.bits
            if not source.width and type_ in ("f32", "f64"):
                return int(encode(FORMATS[type_], source.value))
        raise OperandError(f"{source.position}: mov.{type_} does not take this operand")

    def _part_bits(self, vector: Vector, bits: int, opcode: str) -> int:
        part, left = divmod(bits, len(vector.items))
        if left or part < 16 or not opcode.endswith((".b32", ".b64")):
            raise OperandError(f"{vector.position}: {opcode} splits into halves or quarters")
        for item in vector.items:
            if not isinstance(item, Name):
                raise OperandError(f"{item.position}: a vector of mov holds registers")
            if item.text != "_":
                self._mov_check(item, _MOV_TYPES[f"b{part}"], opcode)
        return part

    def _mov_check(self, item: Name, types: tuple[str, ...], opcode: str) -> None:
        name = self.registers.known(item.text, f"{item.position}: ")
        type_ = self.registers[name].type
        if type_ not in types:
            raise OperandError(
                f"{item.position}: {opcode} takes registers of type "
                f"{', '.join('.' + t for t in types)}; {item.text!r} is .{type_}"
            )

    def _store(self, name: str, words: Array, where: str) -> None:
        if self.undefined == "raise":
            self._order.write([name], where)
        self.registers[name].words = words.astype(self.registers[name].words.dtype)


class Warpgroup(Warp):
    """Four consecutive warps, 128 lanes, that execute wgmma together.

    A wgmma computes at its place in the program. Its ordering rules are checked all the same:
    touching its registers before the covering wait raises UndefinedError, unless
    ``undefined="hardware"``.
    """

    lanes = 128


def _nothing(order: WgmmaOrder, count: int) -> None:
    """Shared memory is written at once here, so that a proxy fence has nothing to wait for."""


_SYNCHRONISATION: dict[str, Callable[[WgmmaOrder, int], None]] = {
    "wgmma.fence": lambda order, _: order.fence(),
    "wgmma.commit_group": lambda order, _: order.commit(),
    "wgmma.wait_group": lambda order, count: order.wait(count),
    "fence.proxy.async": _nothing,
}
