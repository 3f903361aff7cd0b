"""Executes mma, mma.sp and wgmma by kernels of machine code, from registers to registers.

No operand is unpacked here: its registers, or the bytes of shared memory, go to the kernel with a
table of where each element lies. See `emulator.arith.kernels`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, Place
from emulator.arith.kernels import batch as kernels
from emulator.arith.kernels.batch import Operand
from emulator.arith.kernels.product import Product, Sparsity, Units, arranged
from emulator.arith.steps import PopcountDot
from emulator.isa.matrix import MatrixInstruction
from emulator.memory.descriptors import tile_places
from emulator.memory.space import Space
from emulator.targets import Target
from emulator.warp.sparse import legal_nibbles

Int64 = NDArray[np.int64]

#: bits that a kernel loads at once where neighbours along k lie beside each other
_WORD = 32


class Setting(NamedTuple):
    """What is settled before a batch is looked at."""

    #: bits to flip in every element: the sign, where imm_scale is -1
    flip_a: bool = False
    flip_b: bool = False
    #: "mn" where imm_trans transposes a matrix in shared memory
    major_a: str = "k"
    major_b: str = "k"
    a_in_memory: bool = False


# --- products -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def product_of(ins: MatrixInstruction, target: Target, setting: Setting) -> Product | None:
    """The product that `ins` is on `target`; None where no kernel computes its recipe."""
    arithmetic = ins.arithmetic(target)
    if arranged(arithmetic) is None:
        return None
    a = _in_memory(ins.a_place, setting.major_a) if setting.a_in_memory else _held(ins, "a")
    b = _in_memory(ins.b_place, setting.major_b) if ins.is_wgmma else _held(ins, "b")
    k = ins.stored_k
    if isinstance(arithmetic.steps[0], PopcountDot):
        # Bits are counted by words.
        a, b, k = (Units(_WORD, 1, _WORD, 0, _WORD),) * 2 + (k // _WORD,)
    sparsity = None
    if ins.is_sparse:
        legal = sum(1 << nibble for nibble in legal_nibbles(ins))
        sparsity = Sparsity(ins.chunk, max(1, ins.chunk // 4), legal)
    groups = ins.fragment("d").groups
    return Product(arithmetic, ins.m, ins.n, k, a, b, groups, sparsity, ins.scale_chunks)


def _in_memory(where: Place, major: str) -> Units:
    if major != "k":
        return Units(where.width, 1, *where)
    return Units(_WORD, _WORD // where.width, *where)


def _held(ins: MatrixInstruction, name: str) -> Units:
    """Whole registers where these hold neighbours along k, else single elements."""
    fragment = ins.fragment(name)
    per = fragment.word_bits // fragment.place.width
    along_k = 1 if name == "a" else 0
    words = fragment.coords.reshape(fragment.lanes, fragment.registers, per, 2)
    step = words - words[:, :, :1]
    expected = np.zeros((per, 2), np.intp)
    expected[:, along_k] = np.arange(per)
    if (step == expected).all():
        return Units(fragment.word_bits, per, *fragment.place)
    return Units(fragment.place.width, 1, *fragment.place)


# --- tables ---------------------------------------------------------------------------------------


class Places(NamedTuple):
    """Where the units of an operand lie in registers, in the order of a kernel's tables."""

    lane: Int64
    register: Int64
    #: the lowest bit
    bit: Int64

    def table(self, lane_bytes: int, register_bytes: int) -> Int64:
        return self.lane * lane_bytes + self.register * register_bytes + self.bit // 8


@lru_cache(maxsize=1024)
def places(ins: MatrixInstruction, name: str, unit_bits: int, group: int = -1) -> Places:
    """Of one operand; `group`: of one of the matrices that its registers hold."""
    fragment = ins.fragment(name)
    per = max(1, unit_bits // fragment.place.width)
    inverse = fragment.lane_map.inverse
    inverse = inverse if group < 0 else inverse[group : group + 1]
    if name == "a":
        inverse = inverse[..., ::per]
    elif name == "b":
        inverse = inverse[:, ::per]
    lane, element = np.divmod(inverse.reshape(-1), fragment.elements)
    register, bit = np.divmod(element * fragment.place.width, fragment.word_bits)
    return Places(lane, register, bit)


@lru_cache(maxsize=1024)
def _table(
    ins: MatrixInstruction, name: str, unit_bits: int, strides: tuple[int, int], group: int = -1
) -> Int64:
    return places(ins, name, unit_bits, group).table(*strides)


@lru_cache(maxsize=1024)
def _nibbles(ins: MatrixInstruction, selector: int, stride: int) -> Int64:
    """The bit of each nibble, from words `stride` bytes apart."""
    found = places(ins, "e", 4, selector)
    return found.lane * (8 * stride) + found.bit


# --- operands -------------------------------------------------------------------------------------


def run(
    ins: MatrixInstruction,
    target: Target,
    setting: Setting,
    operands: dict[str, Array],
    batch: tuple[int, ...],
    *,
    shared: Space | None = None,
    keep: Array | None = None,
    selector: int = 0,
    scales: dict[str, int] | None = None,
) -> tuple[Array, int] | None:
    """The registers of D, and what flags a kernel has for any of the batch; None where no kernel
    computes that.

    `operands` by name: checked registers ``(…, lanes, registers)``, words of metadata and of
    scales ``(…, lanes)``, and descriptors ``(…)`` of what lies in `shared`; `scales`: which of the
    matrices of scales are meant.
    """
    product = product_of(ins, target, setting)
    if product is None:
        return None
    count = math.prod(batch)
    fragment = ins.fragment("d")
    d = np.empty((*batch, fragment.lanes, fragment.registers), f"u{fragment.word_bits // 8}")
    given: dict[str, Operand] = {}
    sizes = {"a": product.a.bits, "b": product.b.bits}
    for name, x in (operands | {"d": d}).items():
        if name in ("a", "b") and x.dtype == np.uint64 and (name == "b" or setting.a_in_memory) \
                and ins.is_wgmma:  # fmt: skip
            found = _in_shared(ins, name, setting, sizes[name], x, shared, batch)
            if found is None:
                return None
            given[name] = found
            continue
        if name == "e":
            table = _nibbles(ins, selector, x.strides[-1])
        elif name.startswith("scale"):
            table = _table(ins, name, 8, (x.strides[-1], 0), (scales or {})[name])
        else:
            bits = sizes.get(name, ins.fragment(name).place.width)
            table = _table(ins, name, bits, x.strides[-2:])
        axes = 1 if name == "e" or name.startswith("scale") else 2
        bases = _bases(x, x.shape[x.ndim - axes :], batch)
        given[name] = Operand(x.ctypes.data, bases, table, _zeros(count))
    flip_a = _signs(ins, product.a) if setting.flip_a else 0
    flip_b = _signs(ins, product.b) if setting.flip_b else 0
    kept = None
    if keep is not None and not keep.all():
        kept = np.ascontiguousarray(np.broadcast_to(keep, batch), np.int64).reshape(-1)
    flags = kernels.run(product, given, count, (flip_a, flip_b), kept)
    return d, flags


def _signs(ins: MatrixInstruction, units: Units) -> int:
    sign = ins.fragment("a").fmt.sign_mask << units.shift
    return sum(sign << (i * units.width) for i in range(units.per))


@lru_cache(maxsize=64)
def _zeros(count: int) -> Int64:
    out = np.zeros(count, np.int64)
    out.flags.writeable = False
    return out


def _bases(x: Array, inner: tuple[int, ...], batch: tuple[int, ...]) -> Int64:
    """Bytes from the first of an array's batch to each of `batch`, which it broadcasts to."""
    strides = np.broadcast_to(x, (*batch, *inner)).strides[: len(batch)]
    out = np.zeros(1, np.int64)
    for size, stride in zip(batch, strides, strict=True):
        out = (out[:, None] + np.arange(size) * stride).reshape(-1)
    return out


def _in_shared(
    ins: MatrixInstruction, name: str, setting: Setting, bits: int,
    descriptors: Array, shared: Space | None, batch: tuple[int, ...],
) -> Operand | None:  # fmt: skip
    """A matrix in shared memory; None where an element lies outside of that."""
    assert shared is not None
    if shared.data.strides[-1] != 1:
        return None
    words, which = np.unique(np.broadcast_to(descriptors, batch), return_inverse=True)
    rows, k, where = (
        (ins.n, ins.k, ins.b_place) if name == "b" else (ins.m, ins.stored_k, ins.a_place)
    )
    major = setting.major_b if name == "b" else setting.major_a
    tables = _tile(words.tobytes(), rows, k, where, major, bits, name)
    if tables.min() < shared.start or tables.max() + bits // 8 > shared.start + shared.bytes:
        return None
    bases = _bases(shared.data, shared.data.shape[-1:], batch) - shared.start
    starts = which.reshape(-1).astype(np.int64) * tables.shape[1]
    return Operand(shared.data.ctypes.data, bases, tables, starts)


@lru_cache(maxsize=256)
def _tile(words: bytes, rows: int, k: int, where: Place, major: str, bits: int, name: str) -> Int64:
    """Places ``(descriptors, units)`` of the matrices that descriptors point to."""
    found, size = tile_places(np.frombuffer(words, np.uint64), rows, k, where, major)
    found = found[..., :: bits // (8 * size)]
    if name == "b":
        found = np.swapaxes(found, -1, -2)
    return np.ascontiguousarray(found, np.int64).reshape(len(found), -1)
