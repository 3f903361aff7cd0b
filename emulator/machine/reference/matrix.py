"""Statements of matrix instructions: registers of one warp or warpgroup to matrices and back.

What they compute is `emulator.warp`'s, here with the reference engine of its arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import ROW_BYTES, Movement
from emulator.isa.signature import Operand
from emulator.isa.wmma import WmmaMultiply, WmmaTransfer
from emulator.machine.failure import Failure
from emulator.machine.reference import memory
from emulator.machine.reference.operands import (
    Read,
    addresses,
    guard_of,
    reader,
    word_type,
    writer,
)
from emulator.machine.reference.thread import WARP, Thread, Together
from emulator.memory.arena import AccessError, Fault
from emulator.memory.space import Space
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Address, Bound, Constant, Function, Statement, Vector, items_of
from emulator.warp import move, multiply, wmma
from emulator.warp.call import Call

Threads = Sequence[Thread]


# --- registers ------------------------------------------------------------------------------------


class Registers:
    """A vector operand: words ``(lanes, registers)`` of threads."""

    def __init__(self, operand: Operand, bound: Bound, function: Function) -> None:
        items = items_of(bound)
        type_ = word_type(operand)
        self.dtype = TYPES[type_].dtype
        self.reads = [None if x is None else reader(x, type_) for x in items]
        self.writes = [writer(x, type_, function) for x in items] if operand.use != "read" else []

    def read(self, threads: Threads) -> Array:
        words = [[0 if read is None else read(thread) for read in self.reads] for thread in threads]
        return np.array(words, self.dtype).reshape(len(threads), len(self.reads))

    def write(self, threads: Threads, words: Array) -> None:
        rows = words.reshape(len(threads), len(self.writes)).tolist()
        for thread, row in zip(threads, rows, strict=True):
            for write, word in zip(self.writes, row, strict=True):
                write(thread, word)


def _same(threads: Threads, read: Read, what: str) -> int:
    """The word that all lanes hold."""
    words = {read(thread) for thread in threads}
    if len(words) > 1:
        raise Failure("operand", f"operand {what} must hold the same in all lanes")
    return words.pop()


# --- mma, wgmma, wmma.mma -------------------------------------------------------------------------


def multiplication(statement: Statement, function: Function) -> Together:
    ins = statement.instruction
    assert isinstance(ins, (MatrixInstruction, WmmaMultiply))
    fetch = _Fetch(statement, function)
    compute = wmma.run if isinstance(ins, WmmaMultiply) else multiply.run

    def run(threads: Threads) -> None:
        operands, options = fetch(threads)
        block = threads[0].block
        if fetch.in_memory:
            options["shared"] = Space("shared memory", block.shared)
        engine, target = block.run.arithmetic, block.run.target
        call = Call(ins, operands, options, target, engine, "hardware")
        fetch.result.write(threads, compute(call))

    return Together(ins.lanes, run, guard=guard_of(statement.guard), whole=str(ins))


class _Fetch:
    """The operands of a multiplication by name, as `warp` takes them."""

    def __init__(self, statement: Statement, function: Function) -> None:
        self.vectors: dict[str, Registers] = {}
        #: of words, one in each lane; and of values that all lanes share
        self.lanes: dict[str, Read] = {}
        self.shared: dict[str, Read] = {}
        self.constants: dict[str, int] = {}
        self.in_memory = False
        for operand in statement.signature.operands:
            bound = statement.operands.get(operand.name)
            if bound is None:
                continue
            if operand.kind == "vector":
                self.vectors[operand.name] = Registers(operand, bound, function)
            elif operand.kind == "immediate":
                assert isinstance(bound, Constant)
                self.constants[operand.name] = _signed(bound.word)
            elif operand.kind == "ids":
                assert isinstance(bound, Vector)
                for part, item in zip(operand.parts, bound.items, strict=True):
                    self.shared[part.name] = reader(item, "b16")
            else:
                self.in_memory |= operand.kind == "descriptor"
                by_lane = operand.name in ("e", "scale_a", "scale_b")
                held = self.lanes if by_lane else self.shared
                held[operand.name] = reader(bound, word_type(operand))
        self.name = next(o.name for o in statement.signature.operands if o.use != "read")
        self.result = self.vectors[self.name]
        self.updates = statement.signature[self.name].use == "updated"

    def __call__(self, threads: Threads) -> tuple[dict[str, Any], dict[str, Any]]:
        """Operands and options."""
        operands: dict[str, Any] = {
            name: vector.read(threads)
            for name, vector in self.vectors.items()
            if name != self.name or self.updates
        }
        options: dict[str, Any] = dict(self.constants)
        for name, read in self.lanes.items():
            words = np.array([read(thread) for thread in threads], np.uint32)
            (operands if name == "e" else options)[name] = words
        for name, read in self.shared.items():
            word = _same(threads, read, name)
            if name in ("a", "b"):
                operands[name] = np.uint64(word)
            else:
                options[name] = bool(word) if name == "scale_d" else word
        return operands, options


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


# --- ldmatrix, stmatrix, movmatrix ----------------------------------------------------------------


def movement(statement: Statement, function: Function) -> Together:
    ins = statement.instruction
    assert isinstance(ins, Movement)
    vectors = {
        operand.name: Registers(operand, statement.operands[operand.name], function)
        for operand in statement.signature.operands
        if operand.kind in ("vector", "register") and operand.name in statement.operands
    }

    def transpose(threads: Threads) -> None:
        vectors["d"].write(threads, move.transpose(ins, vectors["a"].read(threads)))

    def load(threads: Threads) -> None:
        vectors["d"].write(threads, move.load(ins, places(threads), _shared(threads)))

    def store(threads: Threads) -> None:
        threads[0].run.progress += 1
        rows = places(threads)
        move.store(ins, rows, vectors["r"].read(threads), _shared(threads))

    run = {"ldmatrix": load, "stmatrix": store, "movmatrix": transpose}[ins.family]
    if ins.family != "movmatrix":
        find = _shared_address(statement.operands["p"])

        def places(threads: Threads) -> Array:
            rows = np.array([find(thread) for thread in threads], np.int64)
            _check_rows(threads[0], ins, rows[: ins.rows].tolist())
            return rows

    return Together(WARP, run, guard=guard_of(statement.guard), whole=str(ins))


def _shared(threads: Threads) -> Space:
    return Space("shared memory", threads[0].block.shared)


def _shared_address(bound: Bound) -> Read:
    """An address in shared memory, also of a generic one that leads there."""
    find, own = addresses(bound), (1 << RANK_BITS) - 1
    if isinstance(bound, Address) and bound.space == "":
        return lambda thread: memory.to_shared(find(thread)) & own
    return lambda thread: find(thread) & own


def _check_rows(thread: Thread, ins: Movement, rows: list[int]) -> None:
    """AccessError, with the lane, for a row outside of shared memory or misaligned."""
    size = thread.run.shared_bytes
    for lane, address in enumerate(rows):
        what, kind = "", ""
        if address > size - ROW_BYTES:
            what, kind = f"leaves shared memory, which has {size} bytes", "out of bounds"
        elif address % ROW_BYTES:
            what, kind = f"is no multiple of {ROW_BYTES}", "misaligned"
        if what:
            reason = f"{ins.family}: the address of lane {lane}, {address:#x}, {what}"
            raise AccessError(Fault(lane, address, kind, reason))


# --- wmma.load, wmma.store ------------------------------------------------------------------------


def transfer(statement: Statement, function: Function) -> Together:
    """wmma.load and wmma.store: lines of a matrix in any memory."""
    ins, operands = statement.instruction, statement.operands
    assert isinstance(ins, WmmaTransfer)
    registers = Registers(statement.signature["r"], operands["r"], function)
    place = operands["p"]
    assert isinstance(place, Address)
    address, space = addresses(place), ins.space.partition("::")[0] or place.space
    stride = reader(operands["stride"], "b32") if "stride" in operands else None

    def run(threads: Threads) -> None:
        base = _same(threads, address, "p")
        step = None if stride is None else _same(threads, stride, "stride")
        starts = wmma.line_addresses(ins, np.int64(base), step).reshape(-1).tolist()
        size, stores = wmma.line_bytes(ins), ins.verb == "store"
        first = threads[0]
        lines = [memory.find(first, space, at, size, 1, write=stores) for at in starts]
        if not stores:
            held = np.array([list(bytes(line)) for line in lines], np.uint8)
            registers.write(threads, wmma.registers_of(ins, held))
            return
        rows = wmma.lines_of(ins, registers.read(threads))
        for line, row in zip(lines, rows.reshape(len(lines), size), strict=True):
            memory.put(first, line, row.tobytes())

    return Together(WARP, run, guard=guard_of(statement.guard), whole=str(ins))


TOGETHER: dict[type[Instruction], Callable[[Statement, Function], Together]] = {
    MatrixInstruction: multiplication,
    WmmaMultiply: multiplication,
    Movement: movement,
    WmmaTransfer: transfer,
}
