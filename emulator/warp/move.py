"""Executes ldmatrix, stmatrix and movmatrix: rows of shared memory to lane registers and back."""

from __future__ import annotations

import numpy as np

from dtypes import Array, Place, unpack
from emulator.errors import OperandError, UndefinedError
from emulator.isa.movement import ROW_BYTES, Movement
from emulator.layout.fragment import Fragment

#: bits of an element in memory; the elements start at the row's first byte, the rest is padding
_PACKED = {"b6x16_p32": 6, "b4x16_p64": 4}


def load(ins: Movement, addresses: Array, shared: Array) -> Array:
    """ldmatrix: row addresses ``(…, 32)`` to registers ``(…, 32, n)``.

    Lane i addresses row i of the tiles; the addresses of other lanes are not used. Raises
    OperandError for addresses of another shape, UndefinedError for a misaligned row or one outside
    of `shared`.
    """
    places = _row_addresses(ins, addresses, shared)
    rows = _bytes(places, shared)
    if ins.source:
        # Little-endian order of the packed elements: only drawn in the manual, UNVERIFIED.
        width = _PACKED[ins.source]
        used = rows[..., : 16 * width // 8]
        bits = unpack(used, Place(1, 0, 1), 8).reshape(*used.shape[:-1], 16, width)
        weights = (1 << np.arange(width)).astype(np.uint8)
        rows = (bits * weights).sum(-1, dtype=np.uint8)
    return _scatter(ins, rows)


def store(ins: Movement, addresses: Array, registers: Array, shared: Array) -> None:
    """stmatrix: registers ``(…, 32, n)`` to the rows that ``(…, 32)`` addresses, in place.

    Raises as `load`, and UndefinedError where two rows overlap with different contents; nothing is
    written then.
    """
    if not shared.flags.writeable:
        raise OperandError("stmatrix writes shared=, and this array is read-only")
    fragment = ins.fragment("r")
    places = _row_addresses(ins, addresses, shared)
    tiles = fragment.gather(registers)
    if fragment.groups == 1:
        tiles = tiles[..., None, :, :]
    rows = np.ascontiguousarray(tiles).view(np.uint8)
    rows = rows.reshape(*tiles.shape[:-3], ins.rows, ROW_BYTES)
    batch = shared.shape[:-1]
    try:
        places = np.broadcast_to(places, (*batch, ins.rows))
        rows = np.broadcast_to(rows, (*batch, ins.rows, ROW_BYTES))
    except ValueError:
        raise OperandError(
            f"stmatrix writes one shared memory for each warp: addresses {addresses.shape} and "
            f"registers {registers.shape} do not fit shared memory {shared.shape}"
        ) from None
    _check_races(places, rows)
    index = places[..., None] + np.arange(ROW_BYTES)
    flat = (*batch, ins.rows * ROW_BYTES)
    np.put_along_axis(shared, index.reshape(flat), rows.reshape(flat), axis=-1)


def transpose(ins: Movement, registers: Array) -> Array:
    """movmatrix: registers ``(…, 32, 1)`` to registers of the transposed tile."""
    return ins.fragment("d").scatter(ins.fragment("a").gather(registers))


def _row_addresses(ins: Movement, addresses: Array, shared: Array) -> Array:
    places = np.asarray(addresses)
    if places.dtype.kind not in "ui" or places.shape[-1:] != (ins.lanes,):
        raise OperandError(
            f"{ins.family} takes one address per lane, integers (…, 32); "
            f"got {places.dtype} {places.shape}"
        )
    places = places[..., : ins.rows].astype(np.int64)
    for fault, what in (
        (places % ROW_BYTES != 0, f"is no multiple of {ROW_BYTES}"),
        (
            (places < 0) | (places > shared.shape[-1] - ROW_BYTES),
            f"leaves shared memory, which has {shared.shape[-1]} bytes",
        ),
    ):
        if fault.any():
            at = tuple(int(i) for i in np.argwhere(fault)[0])
            raise UndefinedError(
                f"{ins.family}: the address of lane {at[-1]}, {int(places[at])}, {what}"
            )
    return places


def _bytes(places: Array, shared: Array) -> Array:
    """The 16 bytes at each place: ``(…, rows, 16)``."""
    index = places[..., None] + np.arange(ROW_BYTES)
    try:
        batch = np.broadcast_shapes(shared.shape[:-1], places.shape[:-1])
    except ValueError:
        raise OperandError(
            f"the batch axes do not broadcast: addresses {places.shape[:-1]}, "
            f"shared memory {shared.shape[:-1]}"
        ) from None
    flat = np.broadcast_to(index, (*batch, *index.shape[-2:]))
    flat = flat.reshape(*batch, index.shape[-2] * ROW_BYTES)
    spread = np.broadcast_to(shared, (*batch, shared.shape[-1]))
    return np.take_along_axis(spread, flat, -1).reshape(*batch, *index.shape[-2:])


def _scatter(ins: Movement, rows: Array) -> Array:
    fragment: Fragment = ins.fragment("d")
    elements = np.ascontiguousarray(rows).view(f"<u{fragment.place.width // 8}")
    per_row = elements.shape[-1]
    tiles = elements.reshape(*rows.shape[:-2], ins.count, ins.form.rows, per_row)
    return fragment.scatter(tiles if fragment.groups > 1 else tiles[..., 0, :, :])


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
