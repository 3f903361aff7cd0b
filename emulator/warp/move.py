"""Executes ldmatrix, stmatrix and movmatrix: rows of shared memory to lane registers and back."""

from __future__ import annotations

import numpy as np

from dtypes import Array, Place, unpack
from emulator.arrays import as_array
from emulator.errors import OperandError, UndefinedError
from emulator.isa.movement import PACKED, ROW_BYTES, Movement
from emulator.layout.fragment import Fragment
from emulator.memory.space import AccessError, Fault, Space
from emulator.warp.call import Call


def run(call: Call) -> Array:
    """ldmatrix, movmatrix, or stmatrix, which gives no registers."""
    ins, operands = call.instruction, call.operands
    if "lanes" in ins.effects:
        return transpose(ins, operands["a"])
    memory = call.memory
    if "reads" in ins.effects:
        return load(ins, operands["p"], memory)
    store(ins, operands["p"], operands["r"], memory)
    return np.zeros((*memory.batch, ins.lanes, 0), np.uint32)


def load(ins: Movement, addresses: Array, shared: Space) -> Array:
    """ldmatrix: row addresses ``(…, 32)`` to registers ``(…, 32, n)``.

    Lane i addresses row i of the tiles; the addresses of other lanes are not used. Raises
    OperandError for addresses of another shape, UndefinedError for a misaligned row or one outside
    of `shared`.
    """
    places = _row_addresses(ins, addresses)
    try:
        rows = shared.load(places, ROW_BYTES, ROW_BYTES)
    except AccessError as error:
        raise _wrong_row(ins, shared, error.fault) from None
    return registers_of(ins, rows)


def registers_of(ins: Movement, rows: Array) -> Array:
    """The registers ``(…, 32, n)`` of the bytes ``(…, rows, 16)`` that ldmatrix loads."""
    if ins.source:
        # The elements start at the row's first byte.
        width, signed = PACKED[ins.source]
        used = rows[..., : 16 * width // 8]
        bits = unpack(used, Place(1, 0, 1), 8).reshape(*used.shape[:-1], 16, width)
        weights = (1 << np.arange(width)).astype(np.uint8)
        rows = (bits * weights).sum(-1, dtype=np.uint8)
        if signed:
            sign = np.uint8(1 << width - 1)
            rows = (rows ^ sign) - sign
    fragment: Fragment = ins.fragment("d")
    elements = np.ascontiguousarray(rows).view(f"<u{fragment.place.width // 8}")
    per_row = elements.shape[-1]
    tiles = elements.reshape(*rows.shape[:-2], ins.count, ins.form.rows, per_row)
    return fragment.scatter(tiles if fragment.groups > 1 else tiles[..., 0, :, :])


def store(
    ins: Movement, addresses: Array, registers: Array, shared: Space, *, warps: int = 1
) -> None:
    """stmatrix: registers ``(…, 32, n)`` to the rows that ``(…, 32)`` addresses, in place.

    With several `warps` that share a memory these are ``(…, warps, 32, n)`` and ``(…, warps, 32)``.
    Raises as `load`, and UndefinedError where two rows overlap with different contents; nothing is
    written then.
    """
    shared.check_writable()
    fragment = ins.fragment("r")
    places = _row_addresses(ins, addresses)
    tiles = fragment.gather(registers)
    if fragment.groups == 1:
        tiles = tiles[..., None, :, :]
    rows = np.ascontiguousarray(tiles).view(np.uint8)
    rows = rows.reshape(*tiles.shape[:-3], ins.rows, ROW_BYTES)
    each = (warps, ins.rows) if warps > 1 else (ins.rows,)
    try:
        places = np.broadcast_to(places, (*shared.batch, *each))
        rows = np.broadcast_to(rows, (*places.shape, ROW_BYTES))
    except ValueError:
        raise OperandError(
            f"stmatrix writes one shared memory for each warp: addresses {places.shape} and "
            f"registers {np.shape(registers)} do not fit shared memory {shared.data.shape}"
        ) from None
    places = places.reshape(*shared.batch, warps * ins.rows)
    rows = rows.reshape(*places.shape, ROW_BYTES)
    _check_races(places, rows)
    try:
        shared.store(places, rows, ROW_BYTES)
    except AccessError as error:
        raise _wrong_row(ins, shared, error.fault) from None


def transpose(ins: Movement, registers: Array) -> Array:
    """movmatrix: registers ``(…, 32, 1)`` to registers of the transposed tile."""
    return ins.fragment("d").scatter(ins.fragment("a").gather(registers))


def _row_addresses(ins: Movement, addresses: Array) -> Array:
    places = as_array(addresses, "operand p")
    if places.dtype.kind not in "ui" or places.shape[-1:] != (ins.lanes,):
        raise OperandError(
            f"{ins.family} takes one address per lane, integers (…, 32); "
            f"got {places.dtype} {places.shape}"
        )
    return places[..., : ins.rows]


def _wrong_row(ins: Movement, shared: Space, fault: Fault) -> UndefinedError:
    if fault.reason == "misaligned":
        what = f"is no multiple of {ROW_BYTES}"
    else:
        what = f"leaves {shared.name}, which has {shared.bytes} bytes"
    return UndefinedError(
        f"{ins.family}: the address of lane {fault.index[-1] % ins.rows}, {fault.address}, {what}"
    )


def _check_races(places: Array, rows: Array) -> None:
    order = np.argsort(places, axis=-1, kind="stable")
    sorted_places = np.take_along_axis(places, order, -1)
    same = sorted_places[..., 1:] == sorted_places[..., :-1]
    if not same.any():
        return
    sorted_rows = np.take_along_axis(rows, order[..., None], -2)
    differ = (sorted_rows[..., 1:, :] != sorted_rows[..., :-1, :]).any(-1)
    if (same & differ).any():
        at = tuple(int(i) for i in np.argwhere(same & differ)[0])
        raise UndefinedError(
            f"stmatrix: two rows with different contents are stored at address "
            f"{int(sorted_places[at])}; which one stays is undefined"
        )
