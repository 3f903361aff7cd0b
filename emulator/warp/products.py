"""One warp's mma in few NumPy calls, from registers to registers.

An index array for each operand leads from the elements in lanes to where they meet: one product
that broadcasts, whose sums `arith.fast.fused` rounds, or a product of matrices where all sums, or
those of groups, are exact in any order. What that cannot compute, illegal metadata above all, is
left to the path of batches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, Format, Place, code_type, unpack
from emulator.arith.fast import error_free, fused
from emulator.arith.fast.factors import Float32, values
from emulator.arith.fast.fused import Float64, FloatPlan, WeightedNumbers
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import (
    AddC,
    Clear,
    Convert,
    FmaChain,
    IntegerDot,
    PairSums,
    PopcountDot,
    Widen,
)
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.lanemap import Index
from emulator.targets import Target
from emulator.warp.scales import chosen_scales
from emulator.warp.sparse import check_selector, legal_nibbles, stored_columns

#: bound of sums of integers that float32 holds
_EXACT = 1 << 24

#: the row, which no B has, that undefined metadata picks
_ILLEGAL = 1 << 30
#: accumulators by their format
_NUMBERS = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}

#: byte-id and thread-id of scale_a and of scale_b; empty where there are none
Ids = tuple[int, ...]


class _Side(NamedTuple):
    """A or B, or C."""

    fmt: Format
    where: Place
    #: the elements in the order in which they are multiplied, counted lane by lane; of a matrix in
    #: shared memory, counted there, or the bytes of smaller ones
    elements: Index
    #: the scales of the rows or columns, counted so among those of all lanes
    scales: Index | None = None
    in_memory: bool = False
    #: its sign is flipped
    negative: bool = False
    #: ``(2, …)``: the numbers of all that its place can hold, where these are few
    numbers: Float64 | None = None


class _Metadata(NamedTuple):
    """The map from metadata to the rows of B that the stored elements of A meet."""

    #: ``(passes, chunks, m)``: the bytes that hold the nibbles, counted lane by lane, and what the
    #: place in a byte adds to it
    bytes_: Index
    place: NDArray[np.uint16]
    #: ``(stored elements of a chunk, 512)``: the rows in a chunk that a nibble in a place picks
    picked: Index
    #: ``(passes, 1, chunks, 1)``: the first row of a chunk
    chunks: Index
    #: ``(passes, 1, 1, m)``: the first element of each row of the full A
    full: Index


class Products(NamedTuple):
    """The plan of the products of one instruction on one target.

    By broadcasting: elements of A are ``(passes, terms, groups, 1, m)`` and of B
    ``(passes, terms, groups, n, 1)``.
    By matrices: ``(m, k)`` and ``(k, n)``. Those of a sparse A are always
    ``(passes, stored elements of a chunk, chunks, m)``, and its B is ``(k, n)``.
    """

    arithmetic: Arithmetic
    a: _Side
    b: _Side
    #: the accumulators in the order of the products
    c: _Side
    #: from there to the lanes, and what the registers are
    to_lanes: Index
    registers: tuple[np.dtype[Any], tuple[int, int]]
    metadata: _Metadata | None
    #: None: of integers, or a chain
    made: FloatPlan | None


class Tile(NamedTuple):
    """A or B in shared memory."""

    #: ``(rows, k)`` of A or of the transposed B: elements, or bytes of smaller ones, counted from
    #: the first of the memory
    elements: Index
    where: Place


def plan(
    ins: MatrixInstruction,
    target: Target,
    selector: int,
    ids: Ids = (),
    tiles: Mapping[str, Tile] = MappingProxyType({}),
    negative: Sequence[str] = "",
) -> Products | None:
    """None where a recipe keeps an instruction from here.

    `tiles` are those of A and B that lie in memory, `negative` those whose signs are flipped.
    Raises OperandError for a selector and ids that the instruction has not.
    """
    arithmetic, stored = ins.arithmetic(target), ins.stored_k
    made = fused.plan(arithmetic, stored)
    counts = isinstance(arithmetic.steps[0], (IntegerDot, PopcountDot))
    if not (made or counts or _chain(arithmetic)) or sys.byteorder != "little":
        return None  # registers are read as bytes, the lowest first
    assert not counts or stored << (arithmetic.a.bits + arithmetic.b.bits) <= _EXACT
    a, in_a = _side(ins, "a", arithmetic.a, tiles, negative)
    b, in_b = _side(ins, "b", arithmetic.b, tiles, negative)
    by_matrices = counts or (made is not None and made.group > 1)
    assert by_matrices or min(a.where.width, b.where.width) >= 8
    c, d = ins.fragment("d" if ins.is_wgmma else "c"), ins.fragment("d")
    in_c, in_d = c.lane_map.inverse, d.lane_map.inverse
    order = np.arange(stored)[None] if made is None else made.order
    metadata = None
    if by_matrices or ins.is_sparse:
        in_a, in_b, in_c, in_d = in_a[0], in_b[0], in_c[0], in_d[0]
    else:
        in_a = in_a.transpose(2, 0, 1)[order, :, None]
        in_b = in_b.transpose(1, 0, 2)[order, ..., None]
        in_c, in_d = in_c.swapaxes(1, 2), in_d.swapaxes(1, 2)
    if ins.is_sparse:
        metadata, in_a = _metadata(ins, check_selector(ins, selector), order, in_a)
    if made is not None and not by_matrices:
        a, b = (x._replace(numbers=_table(x, made)) for x in (a, b))
    scales: list[Index | None] = [None, None]
    if ids:
        assert made is not None
        scales = [_scales(ins, "a", ids[:2], made), _scales(ins, "b", ids[2:], made)]
    return Products(
        arithmetic,
        a._replace(elements=in_a, scales=scales[0]),
        b._replace(elements=in_b, scales=scales[1]),
        _Side(c.fmt, c.place, in_c),
        in_d.argsort(None),
        (code_type(d.word_bits), (d.lanes, d.registers)),
        metadata,
        made,
    )


def _side(
    ins: MatrixInstruction,
    name: str,
    fmt: Format,
    tiles: Mapping[str, Tile],
    negative: Sequence[str],
) -> tuple[_Side, Index]:
    """A side, and its elements ``(groups, m, k)`` or ``(groups, k, n)``."""
    if name in tiles:
        elements, where = tiles[name]
        elements = (elements if name == "a" else elements.T)[None]
    else:
        elements, where = ins.fragment(name).lane_map.inverse, ins.fragment(name).place
    return _Side(fmt, where, elements, None, name in tiles, name in negative), elements


def _metadata(
    ins: MatrixInstruction, selector: int, order: Index, elements: Index
) -> tuple[_Metadata, Index]:
    """Also the elements ``(m, stored k)`` of A as `Products` has them."""
    e, each = ins.fragment("e"), ins.stored_k * ins.chunk // ins.k
    assert e.place.width == 4 and (order[:, ::each] % each == 0).all(), "chunks stay together"
    chunks = order[:, ::each] // each
    nibbles = e.lane_map.inverse[selector].T[chunks]
    picked = stored_columns(ins, np.arange(16)[:, None])
    picked[~np.isin(np.arange(16), legal_nibbles(ins))] = _ILLEGAL
    bytes_ = np.arange(256)
    picked = np.concatenate([picked[bytes_ & 15], picked[bytes_ >> 4]]).T
    full = np.arange(len(order) * ins.m).reshape(-1, 1, 1, ins.m) * ins.k
    place = (nibbles % 2 * 256).astype(np.uint16)
    elements = elements.reshape(ins.m, -1, each)[:, chunks].transpose(1, 3, 2, 0)
    first = chunks[:, None, :, None] * ins.chunk
    return _Metadata(nibbles // 2, place, picked, first, full), elements


def _scales(ins: MatrixInstruction, operand: str, ids: Ids, made: FloatPlan) -> Index:
    """Scales of rows or columns, and of groups ``(groups, m, 1)`` and ``(groups, 1, n)``."""
    name = f"scale_{operand}"
    inverse: Index = ins.fragment(name).lane_map.inverse[chosen_scales(ins, name, *ids)]
    if made.group == 1:
        assert ins.scale_chunks == 1
        return inverse if ins.is_sparse else inverse.T
    along = 1 if operand == "a" else 0
    each = np.repeat(inverse, ins.stored_k // made.group // ins.scale_chunks, along)
    return each.T[..., None] if operand == "a" else each[:, None]


def _chain(arithmetic: Arithmetic) -> Callable[..., Array | None] | None:
    """The function that computes a recipe of IEEE 754 operations in the order of k."""
    match arithmetic.steps:
        case (FmaChain("f64"),):
            return partial(error_free.fused_chain, rounding=arithmetic.rounding)
        case (Widen("f32"), Clear(), FmaChain("f32"), AddC("f32")):
            return error_free.fma_chain
        case (Widen("f32"), PairSums("f32"), Convert("f16")):
            return error_free.pair_sums
    return None


def multiply(plan: Products, given: Sequence[Array]) -> Array | None:
    """The registers of D from those of a, b, c, e, scale_a and scale_b, as far as there are any, or
    the memory that A or B lies in; None where they are not legal, or not ordinary numbers."""
    made, picked = plan.made, None
    if plan.metadata is not None:
        picked = _picked(plan.metadata, given[3])
        if np.maximum.reduce(picked, None) >= _ILLEGAL:
            return None
    c = _units(plan.c, given[2]).view(_NUMBERS[plan.c.fmt.name])
    d: Array | None
    if made is None and not plan.arithmetic.d.is_float:
        d = _sums_of_integers(plan, given, picked, c)
    else:
        with fused.unwarned():
            if made is None:
                d = _of_chain(plan, given, c)
            else:
                d = (_of_groups if made.group > 1 else _of_products)(plan, made, given, picked, c)
    if d is None:
        return None
    type_, shape = plan.registers
    return d.take(plan.to_lanes).view(type_).reshape(shape)


def _picked(metadata: _Metadata, e: Array) -> Index:
    """``(passes, stored elements of a chunk, chunks, m)``: the row of B that each stored element of
    A meets; `_ILLEGAL` or more for metadata that PTX leaves undefined."""
    nibbles = _flat(e, 8).take(metadata.bytes_) + metadata.place
    picked = metadata.picked.take(nibbles, 1).swapaxes(0, 1)
    rows: Index = np.add(picked, metadata.chunks, order="C")
    return rows


# --- elements -------------------------------------------------------------------------------------


def _units(side: _Side, words: Array) -> Array:
    """The codes of a side, or the bytes that hold one each."""
    return _flat(words, side.where.width).take(side.elements)


def _flat(words: Array, bits: int) -> Array:
    """Unpacks words into fields of so many bits each, lane by lane."""
    type_ = code_type(bits)
    flat = words.ravel()
    if flat.dtype.itemsize < type_.itemsize:
        flat = flat[: flat.size - flat.size % type_.itemsize]  # a memory of any size
    return flat.view(type_)


def _numbers(plan: Products, made: FloatPlan, i: int, given: Sequence[Array]) -> WeightedNumbers:
    """The numbers of side `i`."""
    side = plan[1 + i]
    assert isinstance(side, _Side)
    found = fused.numbers(made, side.fmt, side.numbers, _units(side, given[i]))
    if side.negative:
        np.negative(found.value, out=found.value)
    return found


def _scale(plan: Products, side: _Side, words: Array) -> WeightedNumbers:
    """Scales and their powers of two."""
    assert plan.arithmetic.scale is not None and side.scales is not None
    table = fused.table(plan.arithmetic.scale)
    assert table is not None
    return WeightedNumbers(*table.take(_flat(words, 8).take(side.scales), 1))


def _table(side: _Side, made: FloatPlan) -> Float64 | None:
    """`_Side.numbers`; NaNs where bits are set that no element uses."""
    table = fused.table(side.fmt, made.widen, made.digit)
    if table is None or side.where.width > 8:
        return table
    places = np.arange(256, dtype=np.uint8)
    found = table.take(unpack(places[:, None], side.where, 8)[:, 0], 1)
    found[:, (places & side.where.padding) != 0] = np.nan
    return found


def _matrix(plan: Products, i: int, given: Sequence[Array]) -> Float32:
    """The values of side `i`."""
    side = plan[1 + i]
    assert isinstance(side, _Side)
    table = _values_of_bytes(side.fmt, side.where, plan.arithmetic.bit_operation)
    if side.in_memory:
        found = table.take(_units(side, given[i]), 0)
        *rows, columns, per = found.shape
        if i == 0:
            return found.reshape(*rows, columns * per)
        return found.swapaxes(1, 2).reshape(-1, columns)
    return table.take(_flat(given[i], 8), 0).take(side.elements)


@lru_cache(maxsize=64)
def _values_of_bytes(fmt: Format, where: Place, bit_operation: str | None) -> Float32:
    """``(256, elements of a byte)``; 0 and 1 are 1 and -1 where .xor of them is counted."""
    codes = unpack(np.arange(256, dtype=np.uint8)[:, None], where, 8)
    found = values(fmt, codes)
    return 1 - 2 * found if bit_operation == "xor" else found


def _matrices(
    plan: Products, given: Sequence[Array], picked: Index | None
) -> tuple[Float32, Float32]:
    """The values of A ``(m, k)``, a sparse one written out, and of B ``(k, n)``."""
    a, b = _matrix(plan, 0, given), _matrix(plan, 1, given)
    return (a if picked is None else _full(plan, picked, a, len(b))[0]), b


def _full(plan: Products, picked: Index, stored: Array, k: int) -> Array:
    """A sparse A written out ``(passes, m, k)``."""
    assert plan.metadata is not None
    full = np.zeros((len(picked), picked.shape[-1], k), stored.dtype)
    full.reshape(-1)[picked + plan.metadata.full] = stored
    return full


# --- sums -----------------------------------------------------------------------------------------


def _of_products(
    plan: Products, made: FloatPlan, given: Sequence[Array], picked: Index | None, c: Array
) -> Array | None:
    a, b = _numbers(plan, made, 0, given), _numbers(plan, made, 1, given)
    if picked is None:
        terms, tops = fused.products(made, b, a)
    else:
        tops = fused.largest(made, _full(plan, picked, a.weight, len(b.weight)), b.weight)
        rows = b.value.take(picked.reshape(len(picked), -1, picked.shape[-1]), 0)
        terms = fused.multiplied(tops, a.value.reshape(*rows.shape[:3], 1), rows)
    if plan.a.scales is not None:
        scales = _scale(plan, plan.a, given[-2]).value * _scale(plan, plan.b, given[-1]).value
        terms[:, :-1] *= scales
        tops *= scales
        np.maximum(tops, made.floor, out=tops)
    d, odd = fused.chain(made, zip(terms, tops, strict=True), c)
    return d if odd is None else None


def _of_chain(plan: Products, given: Sequence[Array], c: Array) -> Array | None:
    a, b = (
        _units(side, x)[0].view(_NUMBERS[side.fmt.name])
        for side, x in zip(plan[1:3], given, strict=False)
    )
    compute = _chain(plan.arithmetic)
    assert compute is not None
    return compute(a, b, c)


def _of_groups(
    plan: Products, made: FloatPlan, given: Sequence[Array], picked: Index | None, c: Array
) -> Array | None:
    a, b = _matrices(plan, given, picked)
    groups, (m, k) = made.order.size // made.group, a.shape
    a, b = a.reshape(m, groups, -1).swapaxes(0, 1), b.reshape(groups, k // groups, -1)
    p, q = _scale(plan, plan.a, given[-2]), _scale(plan, plan.b, given[-1])
    sums, live = np.matmul(a, b)[None], np.matmul(np.abs(a), np.abs(b))[None] != 0
    found = fused.in_groups(made, sums, live, p.value * q.value, p.weight * q.weight, c.shape)
    d, odd = fused.chain(made, zip(*found, strict=True), c)
    return d if odd is None else None


def _sums_of_integers(
    plan: Products, given: Sequence[Array], picked: Index | None, c: Array
) -> Array:
    a, b = _matrices(plan, given, picked)
    total = a @ b
    if plan.arithmetic.bit_operation == "xor":
        total = (len(b) - total) / 2  # as many of the products are -1
    if not plan.arithmetic.saturate:
        return total.astype(np.int32) + c
    d = plan.arithmetic.d
    return (total.astype(np.int64) + c).clip(-d.sign_mask, d.max_finite).astype(np.int32)
