"""One warp's mma in few NumPy calls, from registers to registers.

An index array for each operand leads from the elements in lanes to the factors of all products at
once, in the order of the lanes of D, so that no matrix is ever put together; `arith.small` sums
them. What that cannot compute, illegal metadata above all, is left to the path of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array, padding_is_zero, unpack
from emulator.arith import factors, small
from emulator.arith.factors import Float32
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import IntegerDot
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
    """A or B."""

    fragment: Fragment
    #: ``(passes, k, elements of D)``: the element of each product, counted lane by lane; of a B
    #: that metadata picks from ``(elements of D)``, its column
    elements: Index
    #: of each element, counted lane by lane: its scale, counted so among those of all lanes
    scales: Index | None


class _Metadata(NamedTuple):
    """What leads from metadata to the elements of B that the stored ones of A meet."""

    fragment: Fragment
    #: ``(m, chunks)``: the nibbles, counted lane by lane
    nibbles: Index
    #: of each nibble
    legal: NDArray[np.bool_]
    #: ``(16, stored elements of a chunk)``: element of column 0 in the rows that a nibble picks
    picked: Index
    #: ``(chunks, 1)``: the element in the first row of a chunk
    chunks: Index
    #: ``(passes, k, elements of D)``: the stored element of A, counted row by row
    stored: Index
    #: ``(k * n)``: the elements of B row by row, counted lane by lane
    b: Index


class Products(NamedTuple):
    """How one instruction on one target is multiplied."""

    arithmetic: Arithmetic
    a: _Side
    b: _Side
    c: Fragment
    metadata: _Metadata | None
    #: None: of integers
    made: factors.Plan | None


def plan(ins: MatrixInstruction, target: Target, selector: int, ids: Ids) -> Products | None:
    """None where a recipe keeps an instruction from here.

    Raises OperandError for a selector and ids that the instruction has not.
    """
    arithmetic, stored = ins.arithmetic(target), ins.stored_k
    made = factors.plan(arithmetic, stored)
    a, b, c, d = (ins.fragment(x) for x in "abcd")
    if made is not None and not (made.before or made.after):
        order = made.order
    elif isinstance(arithmetic.steps[0], IntegerDot):
        made, order = None, np.arange(stored)[None]
        assert stored << (a.fmt.bits + b.fmt.bits) <= _EXACT
    else:
        return None
    assert c.lane_map == d.lane_map and c.fmt is d.fmt, "the accumulator stays where it is"
    group, row, col = d.lane_map.coordinates.reshape(-1, 3).T
    k = order[..., None]
    in_a, metadata = a.lane_map.inverse[group, row, k], None
    if ins.is_sparse:
        metadata = _metadata(ins, check_selector(ins, selector), row * stored + k)
        in_b = col
    else:
        in_b = b.lane_map.inverse[group, k, col]
    scales = [_scales(ins, "a", ids[:2]), _scales(ins, "b", ids[2:])] if ids else [None, None]
    sides = _Side(a, in_a, scales[0]), _Side(b, in_b, scales[1])
    return Products(arithmetic, *sides, c, metadata, made)


def _metadata(ins: MatrixInstruction, selector: int, stored: Index) -> _Metadata:
    e, b = ins.fragment("e"), ins.fragment("b")
    picked = stored_columns(ins, np.arange(16)[:, None])
    legal = np.isin(np.arange(16), legal_nibbles(ins))
    chunks = np.arange(0, ins.k, ins.chunk)[:, None] * ins.n
    nibbles, in_b = e.lane_map.inverse[selector], b.lane_map.inverse.reshape(-1)
    return _Metadata(e, nibbles, legal, picked * ins.n, chunks, stored, in_b)


def _scales(ins: MatrixInstruction, operand: str, ids: Ids) -> Index:
    name, k = f"scale_{operand}", ins.stored_k if operand == "a" else ins.k
    inverse = ins.fragment(name).lane_map.inverse[chosen_scales(ins, name, *ids)]
    row, col = ins.fragment(operand).coords.reshape(-1, 2).T
    chunk = k // ins.scale_chunks
    found: Index = inverse[row, col // chunk] if operand == "a" else inverse[row // chunk, col]
    return found


def multiply(plan: Products, given: Sequence[Array]) -> Array | None:
    """The registers of D from those of a, b, c, e, scale_a and scale_b, as far as there are any;
    None where they are not legal, or not ordinary numbers."""
    words_c, in_b = given[2], plan.b.elements
    for side, words in zip((plan.a, plan.b), given, strict=False):
        if not padding_is_zero(words, side.fragment.place):
            return None
    if plan.metadata is not None:
        picked = _picked(plan.metadata, given[3])
        if picked is None:
            return None
        in_b = plan.metadata.b.take(picked + in_b)
    scales = given[-2:] if plan.a.scales is not None else (None, None)
    a = _numbers(plan, plan.a, given[0], scales[0])
    b = _numbers(plan, plan.b, given[1], scales[1])
    if a is None or b is None:
        return None
    total = _of_integers if plan.made is None else _of_floats
    d = total(plan, a, b, in_b, _codes(plan.c, words_c))
    return None if d is None else d.view(words_c.dtype).reshape(words_c.shape)


def _picked(metadata: _Metadata, e: Array) -> Index | None:
    """``(passes, k, elements of D)``: the element in column 0 of the row of B that each stored
    element of A meets, counted row by row; None for metadata that PTX leaves undefined."""
    nibbles = _codes(metadata.fragment, e).take(metadata.nibbles)
    if not metadata.legal.take(nibbles).all():
        return None
    rows: Index = metadata.picked.take(nibbles, 0) + metadata.chunks
    return rows.take(metadata.stored)


def _codes(fragment: Fragment, words: Array) -> Array:
    """The elements, lane by lane."""
    lanes = words.reshape(fragment.lanes, -1)
    return unpack(lanes, fragment.place, fragment.word_bits).reshape(-1)


def _numbers(
    plan: Products, side: _Side, words: Array, scales: Array | None
) -> small.Numbers | None:
    """The elements with their scales, lane by lane; None where a scaled one is not ordinary."""
    codes, fmt = _codes(side.fragment, words), side.fragment.fmt
    if plan.made is None:
        value = factors.values(fmt, codes)
        return small.Numbers(value, value)  # integers need no power
    value, power = small.numbers(fmt, plan.made.widen, codes)
    if side.scales is not None:
        assert scales is not None and plan.arithmetic.scale is not None
        by = scales.reshape(-1).view(np.uint8).take(side.scales)
        more = small.numbers(plan.arithmetic.scale, None, by)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            value *= more.value
            power *= more.power
        if not ((power >= factors.LEAST) & (power <= factors.LARGEST) | (power == 0)).all():
            return None
    return small.Numbers(value, power)


def _of_floats(
    plan: Products, a: small.Numbers, b: small.Numbers, in_b: Index, c: Array
) -> Array | None:
    made, in_a = plan.made, plan.a.elements
    assert made is not None

    def products(i: int) -> small.Numbers:
        value, power = a.value.take(in_a[i]), a.power.take(in_a[i])
        value *= b.value.take(in_b[i])
        power *= b.power.take(in_b[i])
        return small.Numbers(value, power)

    half = made.numbers.half
    x: Float32 = c.view(np.float16).astype(np.float32) if half else c.view(np.float32)
    d = small.dot_adds(made, len(made.order), products, x)
    return d.astype(np.float16) if d is not None and half else d


def _of_integers(
    plan: Products, a: small.Numbers, b: small.Numbers, in_b: Index, c: Array
) -> Array:
    products = a.value.take(plan.a.elements[0])
    products *= b.value.take(in_b[0])
    total = np.add.reduce(products, 0).astype(np.int32)
    if not plan.arithmetic.saturate:
        return total + c.view(np.int32)
    exact, d = total.astype(np.int64) + c.view(np.int32), plan.arithmetic.d
    return exact.clip(-d.sign_mask, d.max_finite).astype(np.int32)
