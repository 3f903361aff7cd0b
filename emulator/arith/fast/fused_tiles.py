"""Runs `fused_code`: lays out operands, shares tiles among threads, applies infinities and NaNs.

Infinities and NaNs among the operands are told apart from the numbers: the code computes with zeros
in their place, and what they do to each result is counted by matrix products of 0 and ±1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format
from emulator.arith.arrangement import largest_product
from emulator.arith.fast.factors import Bool, Float32, FusedPlan, Side, is_special, values
from emulator.arith.fast.fused_code import COLUMNS, ROWS, RUN, Kind, Shape, tiles_function
from emulator.arith.fast.fused_decoding import Layout, decoding_function
from emulator.arith.fast.kernels.alignment import SAFE
from emulator.arith.fast.kernels.machine_code import directed
from emulator.arith.fast.scratch import Scratch
from emulator.arith.fast.threads import in_threads, run_in_threads

#: products of a batch that lie beside each other, and columns that are too few to do so
TOGETHER, _FEW_COLUMNS = COLUMNS, 32
#: Exponents of ordinary elements: their products are normal float32 numbers.
_ORDINARY, _BIAS = 63, 127
#: exponents of elements that float32 holds with room below for their significands
_FARTHEST = 100
#: the biased exponent of infinities and NaNs in 8 bits
_SPECIAL = 255
#: elements that are worth a thread to decode, and parts that they come in
_WORTH_A_THREAD, _PARTS = 1 << 17, 16
#: the largest span of a side's exponents for lanes of 8 bits
_SHORT = 63


#: memory of the sides of A and B: new pages would take as long as their decoding
_VALUES, _EXPONENTS = (Scratch(), Scratch()), (Scratch(), Scratch())


class _PackedSide(NamedTuple):
    """One side, in the order in which the code reads it."""

    value: Float32
    exponent: Array


class _Reach(NamedTuple):
    """Properties of the elements of a side."""

    #: exponents of those that are not zero: an interval that has all that are ordinary
    least: int
    largest: int
    #: ``(t, rows)``: rows with an element that is not ordinary; None: none
    odd: Bool | None
    #: there are infinities or NaNs
    special: bool


def chain(
    plan: FusedPlan, left: Side, right: Side, scale: Format | None, c: Array
) -> tuple[Array, Bool]:
    """Codes ``(t, m, n)`` of accumulators after all instructions, and a mask of those that are to
    be computed otherwise; operands with one batch axis, of length 1 where it is shared.

    Columns lie beside each other.
    """
    made = _Chain(plan, (left, right), scale, in_lanes=False)
    m, n = c.shape[-2:]
    batch = max(len(x) for x in (*left[1:], *right[1:], c) if x is not None)
    tiles, blocks = -(-m // ROWS), -(-n // COLUMNS)
    rows = -(-m // tiles)
    a = made.packed(0, left, tiles, rows, (0, 1, 3, 2, 4))
    b = made.packed(1, right, blocks, COLUMNS, (0, 1, 3, 4, 2))
    c, d = np.ascontiguousarray(c), np.empty((batch, m, n), c.dtype)
    bad = made.compute(a, b, c, d, (tiles, blocks, rows, m, n, COLUMNS, n))
    return d, made.settled(c, d, bad)


def suits_lanes(batch: int, m: int, n: int) -> bool:
    """True if vectors should run over the products of a batch instead of over columns."""
    return batch >= COLUMNS // 2 and min(m, n) < _FEW_COLUMNS


def chain_of_batch(
    plan: FusedPlan, left: Side, right: Side, scale: Format | None, c: Array
) -> tuple[Array, Bool]:
    """`chain` of a batch of small products, which lie beside each other."""
    made = _Chain(plan, (left, right), scale, in_lanes=True)
    m, n = c.shape[-2:]
    batch = max(len(x) for x in (*left[1:], *right[1:], c) if x is not None)
    groups = -(-batch // COLUMNS)

    def of_batch(side: Side) -> Side:
        """The same with the batch in the place of the rows."""
        fmt, codes, scales = side

        def swapped(y: Array) -> Array:
            return np.broadcast_to(y, (batch, *y.shape[1:])).swapaxes(0, 1)

        return fmt, swapped(codes), None if scales is None else swapped(scales)

    a = made.packed(0, of_batch(left), groups, COLUMNS, (1, 3, 0, 4, 2))
    b = made.packed(1, of_batch(right), groups, COLUMNS, (1, 0, 3, 4, 2))
    x = np.zeros((groups * COLUMNS, m, n), c.dtype)
    x[:batch] = c
    x = np.ascontiguousarray(x.reshape(groups, COLUMNS, m, n).transpose(0, 3, 2, 1))
    bad = made.compute(a, b, x, x, (1, n, m, m, n * COLUMNS, m * COLUMNS, COLUMNS))
    d, bad = (y.transpose(0, 3, 2, 1).reshape(-1, m, n)[:batch] for y in (x, bad))
    return d, made.settled(c, d, bad)


class _Chain:
    """A chain that is being computed, and the kind of code that suits its operands."""

    def __init__(
        self, plan: FusedPlan, sides: tuple[Side, Side], scale: Format | None, in_lanes: bool
    ) -> None:
        self.plan, self.sides, self.scale = plan, sides, scale
        self.reaches = _reaches(plan, *sides, scale)
        self.kind = _kind(plan, sides[0][0], sides[1][0], scale, self.reaches)
        if in_lanes:
            self.kind = self.kind._replace(a_in_lanes=True, floats=False)

    def packed(
        self, which: int, side: Side, pieces: int, rows: int, order: tuple[int, ...]
    ) -> _PackedSide:
        """One side: rows in `pieces` of `rows`, axes (t, piece, row, pass, k) in another order."""
        (fmt, codes, scales), plan, kind = side, self.plan, self.kind
        if scales is not None and len(scales) > len(codes):
            codes = np.broadcast_to(codes, (len(scales), *codes.shape[1:]))
        count, _, total = codes.shape
        factors = None
        if scales is not None:
            each = np.repeat(scales, total // scales.shape[-1], -1)
            factors = np.broadcast_to(each, (count, *each.shape[1:]))
        sizes = (count, pieces, rows, total // plan.order.shape[1], kind.k)
        shape = [sizes[axis] for axis in order]
        are_columns = which == 1 or kind.a_in_lanes
        layout = Layout(
            fmt,
            plan.widen or fmt,
            None if factors is None else self.scale,
            kind.exponent_bits,
            repeated=not are_columns,
            split=COLUMNS if kind.floats and are_columns else 0,
        )
        values = (*shape[:-1], 2, shape[-1]) if layout.split else tuple(shape)
        value = _taken(_VALUES[which], values, "f4")
        bits = f"i{kind.exponent_bits // 8}" if are_columns else "u4"
        exponent = _taken(_EXPONENTS[which], tuple(shape), bits)
        decode, axis, largest = decoding_function(layout), order.index(1), self.reaches[which]

        def piece(start: int) -> None:
            given, end = slice(start * rows, (start + some) * rows), min(start + some, pieces)
            part = (slice(None),) * axis + (slice(start, end),)
            packed, by = (
                None if x is None else self.laid_out(x[:, given], end - start, rows, order)
                for x in (codes, factors)
            )
            assert packed is not None
            by = packed if by is None else by
            decode(0, packed.size // RUN, packed, by, value[part], exponent[part], largest.largest)

        threads = 1 + codes.size // _WORTH_A_THREAD
        # Pieces of a batch do not lie one after the other.
        some = -(-pieces // _PARTS) if count == 1 and threads > 1 else pieces
        in_threads(piece, range(0, pieces, some), threads)
        return _PackedSide(value, exponent)

    def laid_out(self, x: Array, pieces: int, rows: int, order: tuple[int, ...]) -> Array:
        """``(t, rows, k)`` in the order of the code, filled up with zeros."""
        (count, given, _), plan = x.shape, self.plan
        width = plan.order.shape[1]
        if not plan.in_order:
            x = x.reshape(count, given, -1, plan.order.size).take(plan.order, -1)
        x = x.reshape(count, given, -1, width)
        missing = pieces * rows - given, self.kind.k - width
        if any(missing):
            x = np.pad(x, ((0, 0), (0, missing[0]), (0, 0), (0, missing[1])))
        return np.ascontiguousarray(x.reshape(count, pieces, rows, *x.shape[2:]).transpose(order))

    def compute(
        self, a: _PackedSide, b: _PackedSide, c: Array, d: Array, sizes: tuple[int, ...]
    ) -> Bool:
        """Writes the codes of D after all passes, and gives marks; A and B are over then. `sizes`:
        tiles, blocks, rows of a tile, rows, columns, and elements from block to block and from row
        to row."""
        tiles, blocks, rows, m, n, block_step, row_step = sizes
        bad, size, passes = np.zeros(d.shape, np.bool_), d[0].size, b.exponent.shape[-3]
        shape = Shape(
            tiles=tiles,
            blocks=blocks,
            passes=passes,
            period=len(self.plan.order),
            rows=rows,
            m=m,
            n=n,
            bias=_BIAS + sum(reach.largest for reach in self.reaches),
            a_step=int(len(a.value) > 1),
            b_step=int(len(b.value) > 1),
            c_step=size if len(c) > 1 else 0,
            d_step=size,
            block_step=block_step,
            row_step=row_step,
        )
        tasks, count = tiles_function(self.kind), len(d) * tiles * blocks
        work = d.size * passes * self.kind.k
        run_in_threads(tasks, count, work, *a, *b, c, d, bad, *shape)
        for which, side in enumerate((a, b)):
            _VALUES[which].give_back(side.value)
            _EXPONENTS[which].give_back(side.exponent)
        return bad

    def settled(self, c: Array, d: Array, bad: Bool) -> Bool:
        """Marks, with those that rows and columns are to blame for; infinities and NaNs of the
        operands are in `d` then."""
        a, b = self.reaches
        if a.odd is not None:
            bad |= a.odd[:, :, None]
        if b.odd is not None:
            bad |= b.odd[:, None]
        if a.special or b.special:
            _with_specials(self.plan.result, *self.sides, c, d, bad)
        return bad


def _taken(scratch: Scratch, shape: tuple[int, ...], dtype: str) -> Array:
    """An array in memory that is kept, of any contents."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return scratch.take(size).view(dtype).reshape(shape)


def _kind(
    plan: FusedPlan, a: Format, b: Format, scale: Format | None, reaches: tuple[_Reach, _Reach]
) -> Kind:
    step, formats = plan.step, [plan.widen or a, plan.widen or b]
    result, width = FORMATS[step.result], plan.order.shape[1]
    formats += [] if scale is None else [scale, scale]
    products = largest_product(formats)
    bound = (width * products + 2) * 2.0**step.fraction_bits
    k, safe = width + -width % RUN, int((SAFE / 2.0**step.fraction_bits - 2) / products)
    is_directed = directed()
    return Kind(
        step.fraction_bits,
        -127 if step.floor is None else max(step.floor, -127),
        result.emin,
        step.precision or result.precision,
        step.result == "f16",
        result.bits,
        plan.adds_c,
        k,
        8 if all(reach.largest - reach.least <= _SHORT for reach in reaches) else 16,
        safe=k if width <= safe else safe,
        exact=bool(bound < 1 << 24),
        a_in_lanes=False,
        directed=is_directed,
        floats=bool(is_directed and bound < 1 << 22),
    )


def _reaches(
    plan: FusedPlan, left: Side, right: Side, scale: Format | None
) -> tuple[_Reach, _Reach]:
    """Properties of the elements of both sides."""
    sides = left, right
    ordinary = _ALL_ORDINARY, _ALL_ORDINARY
    found: dict[int, _Reach] = {}

    def look(side: int) -> None:
        found[side] = _reach(plan, sides[side], scale, ordinary[side])

    in_threads(look, range(2), 1 + (left[1].size + right[1].size) // _WORTH_A_THREAD)
    wide = scale is None and all(_largest(fmt) > _ORDINARY for fmt, *_ in sides)
    if wide and any(reach.odd is not None for reach in found.values()):
        ordinary = _shared(_span(left), _span(right))
        for side in range(2):
            look(side)
    return found[0], found[1]


class _Span(NamedTuple):
    """An interval of exponents."""

    least: int
    largest: int


_ALL_ORDINARY = _Span(-_ORDINARY, _ORDINARY)


def _largest(fmt: Format) -> int:
    """The largest exponent of a format."""
    return (fmt.max_finite >> (fmt.mantissa_bits + fmt.ignored_bits)) - fmt.bias


def _fields(fmt: Format, codes: Array) -> Array:
    """The biased exponents, of 8 bits, of codes."""
    return (codes >> codes.dtype.type(fmt.mantissa_bits + fmt.ignored_bits)).astype(np.uint8)


def _span(side: Side) -> _Span:
    """The exponents of a side's normal numbers."""
    fmt, codes, _ = side
    fields = _fields(fmt, codes)
    least, largest = int(fields.min()), int(fields.max())
    if least == 0 or largest == _SPECIAL:
        some = fields[(fields != 0) & (fields != _SPECIAL)]
        least, largest = (int(some.min()), int(some.max())) if some.size else (fmt.bias,) * 2
    return _Span(least - fmt.bias, largest - fmt.bias)


def _shared(a: _Span, b: _Span) -> tuple[_Span, _Span]:
    """The exponents that are ordinary on either side: what one side does not need of them, the
    other may have."""

    def limits(a: int, b: int) -> tuple[int, int]:
        of_a = min(a, 2 * _ORDINARY - min(b, _ORDINARY), _FARTHEST)
        return of_a, min(b, 2 * _ORDINARY - of_a, _FARTHEST)

    least, largest = limits(-a.least, -b.least), limits(a.largest, b.largest)
    return _Span(-least[0], largest[0]), _Span(-least[1], largest[1])


def _reach(plan: FusedPlan, side: Side, scale: Format | None, ordinary: _Span) -> _Reach:
    """Range of the elements of a side, by its format, or where that says too little, by all of
    them."""
    fmt, codes, scales = side
    # A conversion is exact: only the exponents of subnormals change.
    least = max(fmt.emin - fmt.mantissa_bits, (plan.widen or fmt).emin)
    largest = _largest(fmt)
    is_wide = scales is None and largest > _ORDINARY
    if is_wide:
        fields = _fields(fmt, codes)
        least, largest = int(fields.min()) - fmt.bias, int(fields.max()) - fmt.bias
        if least >= ordinary.least and largest <= ordinary.largest:
            return _Reach(least, largest, None, False)
    odd = nonfinite = None
    if fmt.specials != "none":
        found = is_special(fmt, codes)
        nonfinite = found if found.any() else None
    size_mask = codes.dtype.type(
        (fmt.code_mask & ~fmt.sign_mask) >> fmt.ignored_bits << fmt.ignored_bits
    )
    if scales is not None:
        assert scale is not None
        odd = (scales == scale.nan).any(-1)
        if nonfinite is not None:
            odd, nonfinite = odd | nonfinite.any(-1), None
        # A scale that is far from 1 matters where it has an element that is not zero.
        size = codes & size_mask
        some = size.reshape(*size.shape[:-1], scales.shape[-1], -1).any(-1)
        power = _exponents(values(scale, scales))
        odd = odd | (some & ((power + largest > _ORDINARY) | (power + least < -_ORDINARY))).any(-1)
        least, largest = -2 * _ORDINARY, _ORDINARY
    elif is_wide:
        first, last = ordinary.least + fmt.bias, ordinary.largest + fmt.bias
        outside = (fields < first) | (fields > last)
        fields[outside] = fmt.bias
        least, largest = int(fields.min()) - fmt.bias, int(fields.max()) - fmt.bias
        outside &= (codes & size_mask) != 0
        odd = (outside if nonfinite is None else outside & ~nonfinite).any(-1)
    return _Reach(
        least, largest, odd if odd is not None and odd.any() else None, nonfinite is not None
    )


def _exponents(value: Float32) -> Array:
    """The exponents of normal numbers."""
    fields = (value.view(np.uint32) >> np.uint32(23)).astype(np.uint8)
    return fields.astype(np.int16) - np.int16(127)


# --- infinities and NaNs --------------------------------------------------------------------------


class _Signs(NamedTuple):
    """Signs of the elements of a side: +1, -1 or 0, ``(t, rows, k)``."""

    finite: Float32
    infinite: Float32
    #: ``(t, rows)``: a row has a NaN
    nan: Bool

    def rows(self, which: Array) -> _Signs:
        return _Signs(self.finite[:, which], self.infinite[:, which], self.nan[:, which])


def _with_specials(fmt: Format, left: Side, right: Side, c: Array, d: Array, wrong: Bool) -> None:
    """Writes into `d`, codes of `fmt`, what infinities and NaNs of the operands make of
    accumulators that were computed without them. Where an accumulator had overflowed to the other
    infinity, or to both, it matters which came first: those are `wrong`."""
    a, b = _signs(left), _signs(right)
    rows: Bool = np.asarray(a.nan.any(0) | a.infinite.any((0, 2)))
    columns: Bool = np.asarray(b.nan.any(0) | b.infinite.any((0, 2)))
    assert fmt.infinity is not None
    infinite, below = (d.dtype.type(x) for x in (fmt.infinity, fmt.infinity | fmt.sign_mask))
    c = np.broadcast_to(c, d.shape)
    for i, j in ((rows, np.ones_like(columns)), (~rows, columns)):
        if not i.any() or not j.any():
            continue
        nan, positive, negative = _outcome(a.rows(i), b.rows(j))
        place: Any = (slice(None), *np.ix_(i, j))
        start, x = c[place], d[place]
        started = (start & ~d.dtype.type(fmt.sign_mask)) > infinite
        nan = nan | (positive & negative)
        nan |= (positive & (start == below)) | (negative & (start == infinite))
        late = (positive & (x == below)) | (negative & (x == infinite))
        # Sums of several passes may have overflowed to both infinities.
        late |= (positive | negative) & (x == fmt.nan) & ~started
        x = np.where(positive, infinite, np.where(negative, below, x))
        d[place] = np.where(nan | started, d.dtype.type(fmt.nan), x)
        wrong[place] = (wrong[place] | late) & ~nan


def _signs(side: Side) -> _Signs:
    fmt, codes, _ = side
    value = values(fmt, codes)
    sign = np.sign(value, out=np.zeros(value.shape, np.float32), where=~np.isnan(value))
    infinite = np.where(np.isinf(value), sign, np.float32(0))
    finite = sign - infinite
    return _Signs(finite, infinite, np.asarray(np.isnan(value).any(-1)))


def _outcome(a: _Signs, b: _Signs) -> tuple[Bool, Bool, Bool]:
    """Of every row with every column: a product is a NaN, +infinity, -infinity."""
    nan = a.nan[:, :, None] | b.nan[:, None]
    none = np.zeros(nan.shape, np.bool_)
    if not a.infinite.any() and not b.infinite.any():
        return nan, none, none

    def products(p: Float32, q: Float32, u: Float32, v: Float32) -> Float32:
        """Sums over k of ``p q + u v``, exact."""
        return np.concatenate([p, u], -1) @ np.concatenate([q, v], -1).swapaxes(-1, -2)

    a_some, b_some = np.abs(a.finite + a.infinite), np.abs(b.finite + b.infinite)
    a_all, b_all = np.abs(a.infinite), np.abs(b.infinite)
    # A NaN counts as a zero here: its row or column is lost in any case.
    nan = nan | (products(a_all, 1 - b_some, 1 - a_some, b_all) > 0)
    count = products(a_all, b_some, np.abs(a.finite), b_all)
    signed = products(a.infinite, b.finite + b.infinite, a.finite, b.infinite)
    return nan, count + signed > 0, count - signed > 0
