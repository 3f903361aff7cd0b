"""Executes wmma.load, wmma.mma and wmma.store: whole matrices between memory and a warp.

A form without a state space takes a generic address; here it reads and writes shared memory.
"""

from __future__ import annotations

import math

import numpy as np

from dtypes import Array, place, unpack
from emulator.arith import matmul
from emulator.arith.engines import by_kernels, kernels_wanted, may_use_kernels
from emulator.arrays import as_array
from emulator.errors import OperandError, UndefinedError, shown
from emulator.isa.wmma import WmmaMultiply, WmmaTransfer
from emulator.memory.space import AccessError, Fault, Space
from emulator.warp.call import Call
from emulator.warp.operands import Checked


def run(call: Call) -> Array:
    """wmma.mma, wmma.load, or wmma.store, which gives no registers."""
    ins = call.instruction
    if isinstance(ins, WmmaMultiply):
        return multiply(ins, call)
    memory = call.memory
    p, stride = call.operands["p"], call.options.get("stride")
    if ins.verb == "load":
        return load(ins, p, memory, stride)
    store(ins, p, call.operands["r"], memory, stride)
    return np.zeros((*memory.batch, ins.lanes, 0), np.uint32)


def load(ins: WmmaTransfer, address: object, space: Space, stride: object = None) -> Array:
    """Registers ``(…, 32, n)`` of the matrix at `address`, an integer or integers ``(…)``.

    `stride` is in elements, from one row (column, if .col) to the next; None: they are dense.
    Raises OperandError for operands of another kind or batch, UndefinedError for a matrix that is
    misaligned, leaves `space`, or has a stride shorter than its rows.
    """
    starts = line_addresses(ins, address, stride)
    _broadcast(ins, space.batch, starts.shape[:-1])
    try:
        lines = space.load(starts, line_bytes(ins), ins.alignment)
    except AccessError as error:
        raise _outside(ins, space, error.fault) from None
    return registers_of(ins, lines)


def registers_of(ins: WmmaTransfer, lines: Array) -> Array:
    """Registers ``(…, 32, n)`` of the rows, or columns, of a matrix: ``(…, lines, bytes)``."""
    fmt = ins.fragment("r").fmt
    if fmt.bits < 8:
        codes = unpack(lines, place(fmt), 8)
    else:
        codes = lines.view(f"<u{fmt.bits // 8}")
    return ins.fragment("r").scatter(codes if ins.layout == "row" else np.swapaxes(codes, -1, -2))


def store(
    ins: WmmaTransfer, address: object, registers: Array, space: Space, stride: object = None
) -> None:
    """Writes the matrix in `registers` ``(…, 32, n)`` to `space`, in place; see `load`.

    There is one memory for each warp. Nothing is written where it raises.
    """
    space.check_writable()
    starts = line_addresses(ins, address, stride)
    lines = lines_of(ins, registers)
    if _broadcast(ins, space.batch, starts.shape[:-1], lines.shape[:-2]) != space.batch:
        raise OperandError(
            f"wmma.store writes one {space.name} for each warp: addresses {starts.shape[:-1]} and "
            f"registers {np.shape(registers)} do not fit {space.name} {space.data.shape}"
        )
    try:
        space.store(starts, lines, ins.alignment)
    except AccessError as error:
        raise _outside(ins, space, error.fault) from None


def lines_of(ins: WmmaTransfer, registers: Array) -> Array:
    """The rows, or columns, of a matrix as bytes ``(…, lines, bytes)``."""
    fragment = ins.fragment("r")
    codes = fragment.gather(registers)
    codes = codes if ins.layout == "row" else np.swapaxes(codes, -1, -2)
    # Elements of D have whole bytes.
    return np.ascontiguousarray(codes, f"<u{fragment.fmt.bits // 8}").view(np.uint8)


def multiply(ins: WmmaMultiply, call: Call) -> Array:
    """The registers of D; a, b, c ``(…, 32, registers)`` broadcast.

    Raises OperandError for registers of another shape or type.
    """
    arithmetic = ins.arithmetic(call.target)
    words = {name: ins.fragment(name).check_registers(call.operands[name]) for name in "abc"}
    batch = _broadcast(ins, *(x.shape[:-2] for x in words.values()))
    work = math.prod((*batch, ins.m, ins.n, ins.k))
    if (
        work
        and may_use_kernels(call.engine)
        and kernels_wanted(call.engine, (ins, call.target), work, ins.d_type)
    ):
        found = by_kernels(call.engine, lambda: _by_kernel(ins, call, words, batch))
        if found is not None:
            return found
    a, b, c = (ins.fragment(name).gather(x) for name, x in words.items())
    d = matmul(arithmetic, a, np.swapaxes(b, -1, -2), c, engine=call.engine)
    return ins.fragment("d").scatter(d)


def _by_kernel(
    ins: WmmaMultiply, call: Call, words: dict[str, Array], batch: tuple[int, ...]
) -> Array | None:
    from emulator.warp import native

    found = native.run(ins, call.target, Checked(words), batch)
    return None if found is None else found[0]


def _broadcast(ins: WmmaMultiply | WmmaTransfer, *batches: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*batches)
    except ValueError:
        shapes = ", ".join(map(str, batches))
        raise OperandError(f"{ins.family}: the batch axes do not broadcast: {shapes}") from None


def line_bytes(ins: WmmaTransfer) -> int:
    return ins.default_stride * ins.fragment("r").fmt.bits // 8


def line_addresses(ins: WmmaTransfer, address: object, stride: object) -> Array:
    """Address of each row (or column), ``(…, lines)``: all of them aligned."""
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
            f"{ins.family}: address {int(base[wrong][0])} is no multiple of {ins.alignment}, as "
            f"every {line} must be"
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
    return starts


def _outside(ins: WmmaTransfer, space: Space, fault: Fault) -> UndefinedError:
    line = "row" if ins.layout == "row" else "column"
    return UndefinedError(
        f"{ins.family}: {line} {fault.index[-1]}, bytes {fault.address} … "
        f"{fault.address + line_bytes(ins) - 1}, leaves {space.name}, which has {space.bytes} "
        "bytes"
    )


def _integers(ins: WmmaTransfer, what: str, given: object, bits: int) -> Array:
    """`given` as int64; it must be an integer, or an array of them, of no more than `bits`."""
    values = as_array(given, what)
    if values.dtype.kind not in "ui" or (values >= 1 << bits).any() or (values < -1 << bits).any():
        raise OperandError(
            f"{ins.family} takes {what} for each warp, an integer below 2**{bits} or an array of "
            f"them (…); got {shown(given)}"
        )
    return values.astype(np.int64)
