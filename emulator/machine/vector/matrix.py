"""Vector engine: statements of matrix instructions, registers of whole warps and warpgroups to
matrices and back.

What they compute is `emulator.warp`'s; all warps of a strand go there as one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import ROW_BYTES, Movement
from emulator.isa.wmma import WmmaMultiply, WmmaTransfer
from emulator.machine.shared.fragments import check_rows
from emulator.machine.vector import kernels, memory, wgmma
from emulator.machine.vector.fragments import Fetch, Registers, one_for_all, whole
from emulator.machine.vector.lanes import together
from emulator.machine.vector.operands import addresses, reader
from emulator.machine.vector.strand import WARP, Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.arena import AccessError
from emulator.memory.space import Space
from emulator.ptx.program import Address, Bound, Function, Statement
from emulator.warp import move, multiply, wmma
from emulator.warp.call import Call

Step = Callable[[Strand], None]


# --- mma, wmma.mma -------------------------------------------------------------------------


def multiplication(statement: Statement, function: Function) -> Step:
    ins = statement.instruction
    assert isinstance(ins, (MatrixInstruction, WmmaMultiply))
    if isinstance(ins, MatrixInstruction) and ins.is_wgmma:
        return wgmma.multiplication(statement, function)
    fetch = Fetch(statement, function, WARP)
    run = wmma.run if isinstance(ins, WmmaMultiply) else multiply.run
    by_kernel = kernels.multiplication(ins, fetch)

    def step(s: Strand) -> None:
        together(s, statement.pc)
        whole(s, WARP, ins)
        if by_kernel(s):
            return
        operands, options = fetch(s)
        grid = s.wave.grid
        call = Call(ins, operands, options, grid.target, grid.arithmetic, grid.undefined)
        fetch.result.write(s, _by_ids(run, call, fetch.ids))

    return step


def _by_ids(run: Callable[[Call], Array], call: Call, ids: tuple[str, ...]) -> Array:
    """The result where registers may hold byte-ids and thread-ids: warps of the same together."""
    if not ids:
        return run(call)
    held = np.stack(np.broadcast_arrays(*(call.options[name] for name in ids)), axis=-1)
    kinds, which = np.unique(held, axis=0, return_inverse=True)
    parts = []
    for i, values in enumerate(kinds.tolist()):
        chosen = dict(zip(ids, values, strict=True))
        if len(kinds) == 1:
            return run(call._replace(options=call.options | chosen))
        mine = np.flatnonzero(which.reshape(-1) == i)
        operands = {name: x[mine] for name, x in call.operands.items()}
        scales = {name: call.options[name][mine] for name in ("scale_a", "scale_b")}
        options = call.options | scales | chosen
        parts.append((mine, run(call._replace(operands=operands, options=options))))
    out = np.empty((len(held), *parts[0][1].shape[1:]), parts[0][1].dtype)
    for mine, result in parts:
        out[mine] = result
    return out


# --- ldmatrix, stmatrix, movmatrix ----------------------------------------------------------------


def movement(statement: Statement, function: Function) -> Step:
    ins = statement.instruction
    assert isinstance(ins, Movement)
    signature = statement.signature
    vectors = {
        operand.name: Registers(operand, statement.operands[operand.name], function, WARP)
        for operand in signature.operands
        if operand.kind in ("vector", "register") and operand.name in statement.operands
    }
    if "lanes" in ins.effects:

        def transpose(s: Strand) -> None:
            together(s, statement.pc)
            whole(s, WARP, ins)
            vectors["d"].write(s, move.transpose(ins, vectors["a"].read(s)))

        return transpose
    find = _shared_addresses(statement.operands["p"], function)

    def load(s: Strand) -> None:
        together(s, statement.pc)
        whole(s, WARP, ins)
        places = _rows_of(s, ins, find(s))[:, : ins.rows]
        _tell_rows(s, places, write=False)
        rows = memory.words_of(s.wave.shared, ROW_BYTES).take(places // ROW_BYTES, 0)
        vectors["d"].write(s, move.registers_of(ins, rows.view(np.uint8)))

    def store(s: Strand) -> None:
        together(s, statement.pc)
        whole(s, WARP, ins)
        places = _rows_of(s, ins, find(s))
        _tell_rows(s, places[:, : ins.rows], write=True)
        s.wave.grid.progress += 1
        words, warps = vectors["r"].read(s), len(places)
        if warps == 1:
            places, words = places[0], words[0]
        move.store(ins, places, words, _flat_shared(s), warps=warps)

    return load if "reads" in ins.effects else store


def _shared_addresses(bound: Bound, function: Function) -> Callable[[Strand], Array]:
    """Addresses in shared memory, also of generic ones that lead there."""
    find = addresses(bound, function)
    generic = isinstance(bound, Address) and bound.space == ""
    if generic:
        return lambda s: _generic_offsets(s.wave, find(s))
    return lambda s: find(s) & s.wave.offset_bits


def _generic_offsets(wave: Wave, given: Array) -> Array:
    """Generic addresses as offsets in shared memory; without global memory they may be that."""
    inside = memory.to_shared(wave, given)
    return inside if wave.grid.only_shared else inside & wave.offset_bits


def _rows_of(s: Strand, ins: Movement, given: Array) -> Array:
    """Addresses ``(warps, 32)`` in the shared memory of all blocks of the wave."""
    inside = s.spread(given).astype(np.int64).reshape(-1, WARP)
    used = inside[:, : ins.rows]
    check_rows(ins, used, s.wave.shared_limit)
    starts = s.marks.get("shared of warps")
    if starts is None:
        starts = s.marks["shared of warps"] = s.wave.row(s)[::WARP, None] * s.wave.shared_bytes
    return inside + starts


def _tell_rows(s: Strand, places: Array, *, write: bool) -> None:
    """The checks are told of the rows that lanes give the addresses of."""
    if s.wave.watch is not None:
        lanes = s.lanes.reshape(-1, WARP)[:, : places.shape[1]].reshape(-1)
        s.wave.watch.rows(lanes, places.reshape(-1), ROW_BYTES, write=write)


def _flat_shared(s: Strand) -> Space:
    space = Space("shared memory", s.wave.shared.reshape(-1))
    if s.wave.journal is not None:
        space.replaced = s.wave.journal.replaced
    return space


# --- wmma.load, wmma.store ------------------------------------------------------------------------


def transfer(statement: Statement, function: Function) -> Step:
    """wmma.load and wmma.store: lines of a matrix in any memory."""
    ins = statement.instruction
    assert isinstance(ins, WmmaTransfer)
    operand = statement.signature["r"]
    registers = Registers(operand, statement.operands["r"], function, WARP)
    place = statement.operands["p"]
    find = addresses(place, function)
    space = ins.space.partition("::")[0] or (place.space if isinstance(place, Address) else "")
    stride = (
        reader(statement.operands["stride"], "b32", function)
        if "stride" in statement.operands
        else None
    )

    def step(s: Strand) -> None:
        together(s, statement.pc)
        whole(s, WARP, ins)
        base = one_for_all(find(s), WARP, "p")
        step_ = None if stride is None else one_for_all(stride(s), WARP, "stride")
        starts = wmma.line_addresses(ins, base.astype(np.int64), step_)
        starts = np.broadcast_to(starts, (len(s) // WARP, starts.shape[-1]))
        size = wmma.line_bytes(ins)
        held, places = _lines(s, space, starts, size, ins.verb == "store")
        if ins.verb == "load":
            registers.write(s, wmma.registers_of(ins, memory.gather(held, places, size)))
        else:
            s.wave.grid.progress += 1
            lines = wmma.lines_of(ins, registers.read(s))
            held[places[..., None] + np.arange(size)] = lines

    return step


def _lines(
    s: Strand, space: str, starts: Array, size: int, write: bool
) -> tuple[Array, NDArray[np.int64]]:
    """Memory as bytes, and the places of lines that warps ``(warps, lines)`` address."""
    lanes = memory.who(s, np.repeat(np.arange(0, len(s), WARP), starts.shape[1]))
    flat = starts.reshape(-1).astype(np.uint64)
    try:
        held, places = memory.bytes_at(lanes, space, flat, size, write=write)
    except AccessError as error:
        index = error.fault.index // starts.shape[1] * WARP
        raise AccessError(replace(error.fault, index=index)) from None
    return held, places.reshape(starts.shape)


STEPS: dict[type[Instruction], Callable[[Statement, Function], Step]] = {
    MatrixInstruction: multiplication,
    WmmaMultiply: multiplication,
    Movement: movement,
    WmmaTransfer: transfer,
}
