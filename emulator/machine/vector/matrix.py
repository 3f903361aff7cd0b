"""Statements of matrix instructions: registers of whole warps and warpgroups to matrices and back.

What they compute is `emulator.warp`'s; all warps of a strand go there as one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import ROW_BYTES, Movement
from emulator.isa.signature import Operand
from emulator.isa.wmma import WmmaMultiply, WmmaTransfer
from emulator.machine.failure import Failure
from emulator.machine.vector import memory
from emulator.machine.vector.lanes import together, together_in_groups
from emulator.machine.vector.operands import addresses, reader, word_type, writer
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.arena import AccessError, Fault
from emulator.memory.space import Space
from emulator.ptx.program import Address, Bound, Constant, Function, Statement, Vector
from emulator.warp import move, multiply, wmma
from emulator.warp.call import Call

WARP, WARPGROUP = 32, 128
Step = Callable[[Strand], None]


def _whole(s: Strand, lanes: int, ins: Instruction) -> None:
    """All lanes must be there: an instruction on a matrix has no lanes to spare."""
    if len(s) % lanes or (len(s) // lanes) * lanes != len(s) or not _aligned(s, lanes):
        raise Failure("lanes missing", f"{ins} needs all {lanes} lanes; some have ended")


def _aligned(s: Strand, lanes: int) -> bool:
    first = s.lanes[::lanes]
    last = s.lanes[lanes - 1 :: lanes]
    return bool((first % lanes == 0).all() and (last - first == lanes - 1).all())


# --- registers ------------------------------------------------------------------------------------


class Registers:
    """A vector operand: words ``(warps, lanes, registers)`` of a strand."""

    def __init__(self, operand: Operand, bound: Bound, function: Function, lanes: int) -> None:
        items = bound.items if isinstance(bound, Vector) else (bound,)
        type_ = word_type(operand)
        self.lanes = lanes
        self.count = len(items)
        self.reads = [None if x is None else reader(x, type_, function) for x in items]
        self.writes = [writer(x, type_, function) for x in items] if operand.use != "read" else []

    def read(self, s: Strand) -> Array:
        first = next(read for read in self.reads if read is not None)(s)
        out = np.empty((len(s), self.count), first.dtype)
        for i, read in enumerate(self.reads):
            out[:, i] = 0 if read is None else read(s)
        return out.reshape(-1, self.lanes, self.count)

    def write(self, s: Strand, words: Array) -> None:
        columns = np.ascontiguousarray(words.reshape(len(s), self.count).T)
        for write, column in zip(self.writes, columns, strict=True):
            write(s, column, None)


def _one_for_all(words: Array, s: Strand, lanes: int, what: str) -> Array:
    """The word that all lanes of each warp or warpgroup hold: ``(warps,)``, or ``(1,)``."""
    if len(words) == 1:
        return words
    each = words.reshape(-1, lanes)
    if (each != each[:, :1]).any():
        raise Failure("operand", f"operand {what} must hold the same in all lanes")
    return each[:, 0]


# --- mma, wgmma, wmma.mma -------------------------------------------------------------------------


def multiplication(statement: Statement, function: Function) -> Step:
    ins = statement.instruction
    assert isinstance(ins, (MatrixInstruction, WmmaMultiply))
    lanes = ins.lanes
    fetch = _Fetch(statement, function, lanes)
    run = wmma.run if isinstance(ins, WmmaMultiply) else multiply.run

    def step(s: Strand) -> None:
        if lanes == WARP:
            together(s, statement.pc)
        else:
            together_in_groups(s, statement.pc)
        _whole(s, lanes, ins)
        operands, options = fetch(s)
        grid = s.wave.grid
        if not fetch.in_memory:
            call = Call(ins, operands, options, grid.target, grid.arithmetic, grid.undefined)
            fetch.result.write(s, _by_ids(run, call, fetch.ids))
            return
        fetch.result.write(s, _on_shared(s, ins, operands, options))

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


def _on_shared(
    s: Strand, ins: Instruction, operands: dict[str, Any], options: dict[str, Any]
) -> Array:
    """A wgmma of several warpgroups, each on the shared memory of its block."""
    grid, wave = s.wave.grid, s.wave
    shared = wave.shared[:, : wave.shared_limit]
    rows = wave.row(s)[::WARPGROUP]
    blocks, starts, counts = np.unique(rows, return_index=True, return_counts=True)
    if (counts == counts[0]).all() and blocks[-1] - blocks[0] + 1 == len(blocks):
        parts = [(slice(None), (len(blocks), int(counts[0])))]
        spaces = [shared[blocks[0] : blocks[-1] + 1, None]]
    else:
        parts = [
            (slice(int(a), int(a + n)), (1, int(n))) for a, n in zip(starts, counts, strict=True)
        ]
        spaces = [shared[block : block + 1, None] for block in blocks]
    out = []
    for (part, shape), memory_ in zip(parts, spaces, strict=True):
        mine = {name: _part(x, part, shape) for name, x in operands.items()}
        chosen = {name: _part(x, part, shape) for name, x in options.items()}
        chosen["shared"] = Space("shared memory", memory_)
        call = Call(ins, mine, chosen, grid.target, grid.arithmetic, grid.undefined)
        d = multiply.run(call)
        out.append(d.reshape(-1, *d.shape[-2:]))
    return out[0] if len(out) == 1 else np.concatenate(out)


def _part(x: Any, part: slice, shape: tuple[int, int]) -> Any:
    """The warpgroups of some blocks as ``(blocks, warpgroups, …)``."""
    if not isinstance(x, np.ndarray) or x.ndim == 0 or len(x) == 1:
        return x[0] if isinstance(x, np.ndarray) and x.ndim == 1 else x
    held = x[part]
    return held.reshape(*shape, *held.shape[1:])


class _Fetch:
    """The operands of a multiplication by name, as `warp` takes them."""

    def __init__(self, statement: Statement, function: Function, lanes: int) -> None:
        self.lanes = lanes
        self.vectors: dict[str, Registers] = {}
        self.singles: dict[str, Any] = {}
        self.constants: dict[str, int] = {}
        self.in_memory = False
        #: byte-ids and thread-ids, which a statement names for each scale
        self.ids: tuple[str, ...] = ()
        for operand in statement.signature.operands:
            bound = statement.operands.get(operand.name)
            if bound is None:
                continue
            if operand.kind == "vector":
                self.vectors[operand.name] = Registers(operand, bound, function, lanes)
            elif operand.kind == "immediate":
                assert isinstance(bound, Constant)
                self.constants[operand.name] = _signed(bound.word)
            elif operand.kind == "ids":
                assert isinstance(bound, Vector)
                for part, item in zip(operand.parts, bound.items, strict=True):
                    self.ids += (part.name,)
                    self.singles[part.name] = reader(item, "b16", function)
            else:
                self.in_memory |= operand.kind == "descriptor"
                self.singles[operand.name] = reader(bound, word_type(operand), function)
        result = next(o.name for o in statement.signature.operands if o.use != "read")
        self.result = self.vectors[result]
        self.updates = statement.signature[result].use == "updated"
        self.result_name = result

    def __call__(self, s: Strand) -> tuple[dict[str, Any], dict[str, Any]]:
        operands: dict[str, Any] = {}
        options: dict[str, Any] = dict(self.constants)
        for name, vector in self.vectors.items():
            if name != self.result_name or self.updates:
                operands[name] = vector.read(s)
        for name, read in self.singles.items():
            words = read(s)
            if name == "e":
                operands[name] = s.spread(words).reshape(-1, self.lanes)
            elif name in ("scale_a", "scale_b"):
                options[name] = s.spread(words).reshape(-1, self.lanes)
            elif name in ("a", "b"):
                operands[name] = _one_for_all(words, s, self.lanes, name)
            else:
                options[name] = _one_for_all(words, s, self.lanes, name)
        return operands, options


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


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
    if ins.family == "movmatrix":

        def transpose(s: Strand) -> None:
            together(s, statement.pc)
            _whole(s, WARP, ins)
            vectors["d"].write(s, move.transpose(ins, vectors["a"].read(s)))

        return transpose
    find = _shared_addresses(statement.operands["p"], function)

    def load(s: Strand) -> None:
        together(s, statement.pc)
        _whole(s, WARP, ins)
        places = _rows_of(s, ins, find(s))
        vectors["d"].write(s, move.load(ins, places, _flat_shared(s)))

    def store(s: Strand) -> None:
        together(s, statement.pc)
        _whole(s, WARP, ins)
        places = _rows_of(s, ins, find(s))
        s.wave.grid.progress += 1
        words, warps = vectors["r"].read(s), len(places)
        if warps == 1:
            places, words = places[0], words[0]
        move.store(ins, places, words, _flat_shared(s), warps=warps)

    return load if ins.family == "ldmatrix" else store


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
    _check_rows(s, ins, used)
    return inside + (s.wave.row(s).reshape(-1, WARP) * s.wave.shared_bytes)


def _check_rows(s: Strand, ins: Movement, places: Array) -> None:
    """AccessError, with the lane, for a row outside of shared memory or misaligned."""
    wrong = (places > s.wave.shared_limit - ROW_BYTES) | (places % ROW_BYTES != 0)
    if not wrong.any():
        return
    warp, row = (int(i) for i in np.argwhere(wrong)[0])
    address = int(places[warp, row])
    what, kind = f"is no multiple of {ROW_BYTES}", "misaligned"
    if address > s.wave.shared_limit - ROW_BYTES:
        what, kind = f"leaves shared memory, which has {s.wave.shared_limit} bytes", "out of bounds"
    reason = f"{ins.family}: the address of lane {row}, {address:#x}, {what}"
    raise AccessError(Fault(warp * WARP + row, address, kind, reason))


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
        _whole(s, WARP, ins)
        base = _one_for_all(find(s), s, WARP, "p")
        step_ = None if stride is None else _one_for_all(stride(s), s, WARP, "stride")
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
