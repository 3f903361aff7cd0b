"""Reference engine: statements of matrix instructions, registers of one warp or warpgroup to
matrices and back.

What they compute is `emulator.warp`'s, here with the reference engine of its arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dtypes import Array
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.isa.wmma import WmmaMultiply, WmmaTransfer
from emulator.layout.lanemap import WARP
from emulator.machine.reference import memory, wgmma
from emulator.machine.reference.fragments import Fetch, Registers, Threads, same
from emulator.machine.reference.operands import Read, addresses, guard_of, reader
from emulator.machine.reference.thread import Together
from emulator.machine.shared.fragments import check_rows
from emulator.machine.shared.operands import to_shared
from emulator.memory.space import Space
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Address, Bound, Function, Statement
from emulator.warp import move, multiply, wmma
from emulator.warp.call import Call

# --- mma, wmma.mma --------------------------------------------------------------------------------


def multiplication(statement: Statement, function: Function) -> Together:
    ins = statement.instruction
    assert isinstance(ins, (MatrixInstruction, WmmaMultiply))
    if isinstance(ins, MatrixInstruction) and ins.is_wgmma:
        return wgmma.multiplication(statement, function)
    fetch = Fetch(statement, function)
    compute = wmma.run if isinstance(ins, WmmaMultiply) else multiply.run

    def run(threads: Threads) -> None:
        operands, options = fetch(threads)
        engine, target = threads[0].run.arithmetic, threads[0].run.target
        call = Call(ins, operands, options, target, engine, "hardware")
        fetch.result.write(threads, compute(call))

    return Together(ins.lanes, run, guard=guard_of(statement.guard), whole=str(ins))


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
        threads[0].run.changes += 1
        rows = places(threads)
        move.store(ins, rows, vectors["r"].read(threads), _shared(threads))

    run = load if "reads" in ins.effects else store if "writes" in ins.effects else transpose
    if run is not transpose:
        find = shared_address(statement.operands["p"])

        def places(threads: Threads) -> Array:
            rows = np.array([find(thread) for thread in threads], np.int64)
            check_rows(ins, rows[None, : ins.rows], threads[0].run.shared_bytes)
            return rows

    return Together(WARP, run, guard=guard_of(statement.guard), whole=str(ins))


def _shared(threads: Threads) -> Space:
    return Space("shared memory", threads[0].block.shared)


def shared_address(bound: Bound) -> Read:
    """An address in shared memory, also of a generic one that leads there."""
    find, own = addresses(bound), (1 << RANK_BITS) - 1
    if isinstance(bound, Address) and bound.space == "":
        return lambda thread: to_shared(find(thread)) & own
    return lambda thread: find(thread) & own


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
        base = same(threads, address, "p")
        step = None if stride is None else same(threads, stride, "stride")
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
