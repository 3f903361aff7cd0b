"""One warp's mma in few NumPy calls, from registers to registers.

An index array for each operand leads from the elements in lanes to where they meet: one product
that broadcasts, whose sums `arith.small` rounds, or a product of matrices where all sums, or those
of groups, are exact in any order. What that cannot compute, illegal metadata above all, is left to
the path of batches.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, Format, Place, code_type, unpack
from emulator.arith import error_free, small
from emulator.arith.factors import Float32, values
from emulator.arith.recipes import Arithmetic
from emulator.arith.small import Float64
from emulator.arith.steps import FmaChain, IntegerDot, PopcountDot
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import Index
from emulator.targets import Target
from emulator.warp.scales import chosen_scales
from emulator.warp.sparse import check_selector, legal_nibbles, stored_columns

#: what sums of integers stay below, so that float32 holds them
_EXACT = 1 << 24

#: byte-id and thread-id of scale_a and of scale_b; empty where there are none
Ids = tuple[int, ...]


class _Side(NamedTuple):
    """A or B, or C."""

    fmt: Format
    where: Place
    #: the elements in the order in which they are multiplied, counted lane by lane; of a matrix in
    #: shared memory, counted there, or the bytes of smaller ones
    elements: Index
    #: the scale of each of these, or of each group, counted so among those of all lanes
    scales: Index | None = None
    in_memory: bool = False
    #: its sign is flipped
    negative: bool = False


class _Metadata(NamedTuple):
    """What leads from metadata to the rows of B that the stored elements of A meet."""

    fragment: Fragment
    #: ``(m, chunks)``: the nibbles, counted lane by lane
    nibbles: Index
    #: of each nibble
    legal: NDArray[np.bool_]
    #: ``(16, stored elements of a chunk)``: the rows in a chunk that a nibble picks
    picked: Index
    #: ``(chunks, 1)``: the first row of a chunk
    chunks: Index
    #: ``(terms, m)``: the stored element of each product, counted row by row
    stored: Index
    #: ``(m, 1, 1)``: the first element of a row of the full A
    full: Index


class Products(NamedTuple):
    """How one instruction on one target is multiplied.

    By broadcasting: elements of A are ``(terms, groups, 1, m)``, of B ``(terms, groups, n, 1)``, of
    a sparse A ``(terms, m, 1)`` and of its B ``(k, n)``. By matrices: ``(m, k)`` and ``(k, n)``.
    """

    arithmetic: Arithmetic
    a: _Side
    b: _Side
    #: the accumulators in the order of the products
    c: _Side
    #: from there back to the lanes
    to_lanes: Index
    metadata: _Metadata | None
    #: None: of integers, or a chain of f64
    made: small.Plan | None


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
    made, step = small.plan(arithmetic, stored), arithmetic.steps[0]
    counts = isinstance(step, (IntegerDot, PopcountDot))
    chain = isinstance(step, FmaChain) and step.fmt == "f64"
    if not (made or counts or chain) or sys.byteorder != "little":
        return None  # registers are read as bytes, the lowest first
    assert not counts or stored << (arithmetic.a.bits + arithmetic.b.bits) <= _EXACT
    a, in_a = _side(ins, "a", arithmetic.a, tiles, negative)
    b, in_b = _side(ins, "b", arithmetic.b, tiles, negative)
    by_matrices = counts or (made is not None and made.group > 1)
    assert by_matrices or min(a.where.width, b.where.width) >= 8
    c, d = ins.fragment("d" if ins.is_wgmma else "c"), ins.fragment("d")
    assert c.lane_map == d.lane_map and c.fmt is d.fmt, "the accumulator stays where it is"
    in_c = c.lane_map.inverse
    order = np.arange(stored) if made is None else made.order.reshape(-1)
    if by_matrices:
        in_a, in_b, in_c = in_a[0], in_b[0], in_c[0]
    elif ins.is_sparse:
        in_a, in_b, in_c = in_a[0].T[order, :, None], in_b[0], in_c[0]
    else:
        in_a = in_a.transpose(2, 0, 1)[order, :, None]
        in_b = in_b.transpose(1, 0, 2)[order, ..., None]
        in_c = in_c.swapaxes(1, 2)
    a, b = a._replace(elements=in_a), b._replace(elements=in_b)
    if ids:
        assert made is not None
        a = a._replace(scales=_scales(ins, "a", ids[:2], in_a, made))
        b = b._replace(scales=_scales(ins, "b", ids[2:], in_b, made))
    metadata = None
    if ins.is_sparse:
        metadata = _metadata(ins, check_selector(ins, selector), order)
    return Products(
        arithmetic, a, b, _Side(c.fmt, c.place, in_c), in_c.argsort(None), metadata, made
    )


def _side(
    ins: MatrixInstruction, name: str, fmt: Format, tiles: Mapping[str, Tile],
    negative: Sequence[str],
) -> tuple[_Side, Index]:  # fmt: skip
    """A side, and its elements ``(groups, m, k)`` or ``(groups, k, n)``."""
    if name in tiles:
        elements, where = tiles[name]
        elements = (elements if name == "a" else elements.T)[None]
    else:
        elements, where = ins.fragment(name).lane_map.inverse, ins.fragment(name).place
    return _Side(fmt, where, elements, None, name in tiles, name in negative), elements


def _metadata(ins: MatrixInstruction, selector: int, order: Index) -> _Metadata:
    e, rows = ins.fragment("e"), np.arange(ins.m)
    picked = stored_columns(ins, np.arange(16)[:, None])
    legal = np.isin(np.arange(16), legal_nibbles(ins))
    chunks = np.arange(0, ins.k, ins.chunk)[:, None]
    stored, full = rows * ins.stored_k + order[:, None], (rows * ins.k)[:, None, None]
    return _Metadata(e, e.lane_map.inverse[selector], legal, picked, chunks, stored, full)


def _scales(
    ins: MatrixInstruction, operand: str, ids: Ids, elements: Index, made: small.Plan
) -> Index:
    """Those of `elements`; of groups ``(groups, m, 1)`` and ``(groups, 1, n)``."""
    name, k = f"scale_{operand}", ins.stored_k if operand == "a" else ins.k
    inverse = ins.fragment(name).lane_map.inverse[chosen_scales(ins, name, *ids)]
    along = 1 if operand == "a" else 0
    if made.group > 1:
        each = np.repeat(inverse, ins.stored_k // made.group // ins.scale_chunks, along)
        return each.T[..., None] if operand == "a" else each[:, None]
    each = np.repeat(inverse, k // ins.scale_chunks, along)
    row, col = ins.fragment(operand).coords.reshape(-1, 2).T
    found: Index = each[row, col]
    return found.take(elements)


def multiply(plan: Products, given: Sequence[Array]) -> Array | None:
    """The registers of D from those of a, b, c, e, scale_a and scale_b, as far as there are any, or
    the memory that A or B lies in; None where they are not legal, or not ordinary numbers."""
    made, picked = plan.made, None
    if plan.metadata is not None:
        picked = _picked(plan.metadata, given[3])
        if picked is None:
            return None
    c = _units(plan.c, given[2])
    d: Array | None
    if made is None and plan.arithmetic.d.is_float:
        d = _of_chain(plan, given, c.view(np.float64))
    elif made is None:
        d = _sums_of_integers(plan, given, picked, c.view(np.int32))
    else:
        c = c.view(np.float16 if made.half else np.float32)
        d = (_of_groups if made.group > 1 else _of_products)(plan, made, given, picked, c)
    if d is None:
        return None
    return d.take(plan.to_lanes).view(given[2].dtype).reshape(given[2].shape)


def _picked(metadata: _Metadata, e: Array) -> Index | None:
    """``(m, chunks, stored elements of a chunk)``: the row of B that each stored element of A
    meets; None for metadata that PTX leaves undefined."""
    lanes = e.reshape(-1, 1)
    codes = unpack(lanes, metadata.fragment.place, metadata.fragment.word_bits)
    nibbles = codes.take(metadata.nibbles)
    if not metadata.legal.take(nibbles).all():
        return None
    rows: Index = metadata.picked.take(nibbles, 0) + metadata.chunks
    return rows


# --- elements -------------------------------------------------------------------------------------


def _units(side: _Side, words: Array) -> Array:
    """The codes of a side, or the bytes that hold one each."""
    return _flat(words, side.where.width).take(side.elements)


def _flat(words: Array, bits: int) -> Array:
    """What the words hold of so many bits each, lane by lane."""
    type_ = code_type(bits)
    flat = np.ascontiguousarray(words).reshape(-1)
    if flat.dtype.itemsize < type_.itemsize:
        flat = flat[: flat.size - flat.size % type_.itemsize]  # a memory of any size
    return flat.view(type_)


def _numbers(plan: Products, made: small.Plan, i: int, given: Sequence[Array]) -> Float64:
    """Side `i` as `small.numbers`, with the scales of single elements."""
    side = plan[1 + i]
    assert isinstance(side, _Side)
    units = _units(side, given[i])
    if side.where.width > 8:
        found = small.numbers(side.fmt, made.widen, units)
    else:
        found = _numbers_of_bytes(side.fmt, made.widen, side.where).take(units, 1)
    if side.negative:
        found[0] *= -1
    if side.scales is not None:
        with np.errstate(invalid="ignore"):  # of NaNs
            found *= _scale(plan, side, given[i - 2])
    return found


def _scale(plan: Products, side: _Side, words: Array) -> Float64:
    assert plan.arithmetic.scale is not None and side.scales is not None
    return small.numbers(plan.arithmetic.scale, None, _flat(words, 8).take(side.scales))


@lru_cache(maxsize=64)
def _numbers_of_bytes(fmt: Format, widen: Format | None, where: Place) -> Float64:
    """``(2, 256)``: of places of a byte; NaNs where bits are set that no element uses."""
    places = np.arange(256, dtype=np.uint8)
    found = small.numbers(fmt, widen, unpack(places[:, None], where, 8)[:, 0])
    found[:, (places & where.padding) != 0] = np.nan
    return found


def _matrix(plan: Products, i: int, given: Sequence[Array]) -> Float32:
    """The values of side `i`."""
    side = plan[1 + i]
    assert isinstance(side, _Side)
    table = _values_of_bytes(side.fmt, side.where, plan.arithmetic.bit_operation)
    if side.in_memory:
        found = table.take(_units(side, given[i]), 0)
        rows, columns, per = found.shape
        if i == 0:
            return found.reshape(rows, columns * per)
        return found.swapaxes(1, 2).reshape(rows * per, columns)
    lanes = table.take(_flat(given[i], 8), 0)
    return lanes.reshape(-1).take(side.elements)


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
    if picked is None or plan.metadata is None:
        return a, b
    full = np.zeros((len(a), len(b)), np.float32)
    full.reshape(-1)[(picked + plan.metadata.full).reshape(a.shape)] = a
    return full, b


# --- sums -----------------------------------------------------------------------------------------


def _of_products(
    plan: Products, made: small.Plan, given: Sequence[Array], picked: Index | None, c: Array
) -> Array | None:
    a, b = _numbers(plan, made, 0, given), _numbers(plan, made, 1, given)
    if picked is not None and plan.metadata is not None:
        b = b.take(picked.take(plan.metadata.stored), 1)
    return small.dot_adds(made, a, b, c)


def _of_chain(plan: Products, given: Sequence[Array], c: Float64) -> Float64 | None:
    a, b = (_units(side, x).view(np.float64) for side, x in zip(plan[1:3], given, strict=False))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return error_free.fused_chain(a, b, c, plan.arithmetic.rounding)


def _of_groups(
    plan: Products, made: small.Plan, given: Sequence[Array], picked: Index | None, c: Array
) -> Array | None:
    a, b = _matrices(plan, given, picked)
    groups, (m, k) = made.order.size // made.group, a.shape
    a, b = a.reshape(m, groups, -1).swapaxes(0, 1), b.reshape(groups, k // groups, -1)
    sums = np.matmul(np.stack((a, np.abs(a))), np.stack((b, np.abs(b))))
    scales = _scale(plan, plan.a, given[-2]), _scale(plan, plan.b, given[-1])
    return small.dot_adds(made, *scales, c, sums)


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
