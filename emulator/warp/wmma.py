"""Executes wmma.load, wmma.mma and wmma.store: whole matrices between memory and a warp.

The emulator has shared memory only. A form with .global or without a state space reads and writes
the bytes given as ``shared=`` too; its address is then an offset into them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import Array, place, unpack
from emulator.arith import Engine, matmul
from emulator.errors import OperandError, UndefinedError
from emulator.isa.wmma import WmmaMultiply, WmmaTransfer
from emulator.targets import Target


def load(ins: WmmaTransfer, address: Any, shared: Array, stride: Any = None) -> Array:
    """Registers ``(…, 32, n)`` of the matrix at `address`, an integer or integers ``(…)``.

    `stride` is in elements, from one row (column, if .col) to the next; None: they are dense.
    Raises OperandError for operands of another kind or batch, UndefinedError for a matrix that is
    misaligned, leaves `shared`, or has a stride shorter than its rows.
    """
    starts = _line_addresses(ins, address, shared, stride)
    index = starts[..., None] + np.arange(_line_bytes(ins))
    batch = _broadcast(ins, shared.shape[:-1], index.shape[:-2])
    flat = np.broadcast_to(index, (*batch, *index.shape[-2:])).reshape(*batch, -1)
    spread = np.broadcast_to(shared, (*batch, shared.shape[-1]))
    lines = np.take_along_axis(spread, flat, -1).reshape(*batch, *index.shape[-2:])
    fmt = ins.fragment("r").fmt
    if fmt.bits < 8:
        codes = unpack(lines, place(fmt), 8)
    else:
        codes = lines.view(f"<u{fmt.bits // 8}")
    return ins.fragment("r").scatter(codes if ins.layout == "row" else np.swapaxes(codes, -1, -2))


def store(
    ins: WmmaTransfer, address: Any, registers: Array, shared: Array, stride: Any = None
) -> None:
    """Writes the matrix in `registers` ``(…, 32, n)`` to `shared`, in place; see `load`.

    There is one shared memory for each warp. Nothing is written where it raises.
    """
    fragment = ins.fragment("r")
    starts = _line_addresses(ins, address, shared, stride)
    codes = fragment.gather(registers)
    codes = codes if ins.layout == "row" else np.swapaxes(codes, -1, -2)
    # Elements of D have whole bytes.
    lines = np.ascontiguousarray(codes, f"<u{fragment.fmt.bits // 8}").view(np.uint8)
    batch = shared.shape[:-1]
    if _broadcast(ins, batch, starts.shape[:-1], lines.shape[:-2]) != batch:
        raise OperandError(
            f"wmma.store writes one shared memory for each warp: addresses {starts.shape[:-1]} and "
            f"registers {np.shape(registers)} do not fit shared memory {shared.shape}"
        )
    index = starts[..., None] + np.arange(lines.shape[-1])
    index = np.broadcast_to(index, (*batch, *index.shape[-2:])).reshape(*batch, -1)
    lines = np.broadcast_to(lines, (*batch, *lines.shape[-2:])).reshape(*batch, -1)
    np.put_along_axis(shared, index, lines, axis=-1)


def multiply(
    ins: WmmaMultiply, a: Array, b: Array, c: Array, target: Target, engine: Engine
) -> Array:
    """The registers of D; a, b, c ``(…, 32, registers)`` broadcast.

    Raises OperandError for registers of another shape or type.
    """
    arithmetic = ins.arithmetic(target)
    a_codes, b_codes, c_codes = (
        ins.fragment(name).gather(words) for name, words in zip("abc", (a, b, c), strict=True)
    )
    _broadcast(ins, *(codes.shape[:-2] for codes in (a_codes, b_codes, c_codes)))
    d = matmul(arithmetic, a_codes, np.swapaxes(b_codes, -1, -2), c_codes, engine=engine)
    return ins.fragment("d").scatter(d)


def _broadcast(ins: WmmaMultiply | WmmaTransfer, *batches: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*batches)
    except ValueError:
        shapes = ", ".join(map(str, batches))
        raise OperandError(f"{ins.family}: the batch axes do not broadcast: {shapes}") from None


def _line_bytes(ins: WmmaTransfer) -> int:
    return ins.default_stride * ins.fragment("r").fmt.bits // 8


def _line_addresses(ins: WmmaTransfer, address: Any, shared: Array, stride: Any) -> Array:
    """Where each row (or column) starts, ``(…, lines)``; checked."""
    base = _integers(ins, "an address", address, 62)
    step = _integers(ins, "a stride", ins.default_stride if stride is None else stride, 32)
    line = "row" if ins.layout == "row" else "column"
    bits = ins.fragment("r").fmt.bits
    if (step < ins.default_stride).any():
        raise UndefinedError(
            f"{ins.family}: a stride of {int(step.min())} elements is less than a {line} of "
            f"{ins.shape}, which has {ins.default_stride}"
        )
    wrong = base % ins.alignment != 0
    if wrong.any():
        raise UndefinedError(
            f"{ins.family}: address {int(base[wrong][0])} is no multiple of {ins.alignment}, the "
            f"bytes of a lane's fragment or of a {line}"
        )
    wrong = step * bits % (8 * ins.alignment) != 0
    if wrong.any():
        raise UndefinedError(
            f"{ins.family}: a stride of {int(step[wrong][0])} elements does not keep every {line} "
            f"at multiples of {ins.alignment} bytes; it must be a multiple of "
            f"{8 * ins.alignment // bits}"
        )
    _broadcast(ins, base.shape, step.shape)
    starts: Array = base[..., None] + step[..., None] * bits // 8 * np.arange(ins.lines)
    last = shared.shape[-1] - _line_bytes(ins)
    wrong = (starts < 0) | (starts > last)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise UndefinedError(
            f"{ins.family}: {line} {at[-1]}, bytes {int(starts[at])} … "
            f"{int(starts[at]) + _line_bytes(ins) - 1}, leaves shared memory, which has "
            f"{shared.shape[-1]} bytes"
        )
    return starts


def _integers(ins: WmmaTransfer, what: str, given: Any, bits: int) -> Array:
    """`given` as int64; it must be an integer, or an array of them, of no more than `bits`."""
    values = np.asarray(given)
    if values.dtype.kind not in "ui" or (values >= 1 << bits).any() or (values < -1 << bits).any():
        raise OperandError(
            f"{ins.family} takes {what} for each warp, an integer below 2**{bits} or an array of "
            f"them (…); got {given!r:.80}"
        )
    return values.astype(np.int64)
