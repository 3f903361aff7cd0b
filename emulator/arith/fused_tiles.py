"""Chains of fused dot-adds through `fused_code`: operands laid out, tiles in threads, specials.

Infinities and NaNs among the operands are told apart from the numbers: the code computes with zeros
in their place, and what they do to each result is counted by matrix products of 0 and ±1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format
from emulator.arith.compiled import run_in_threads
from emulator.arith.factors import Bool, Float32, Plan, Side, is_special, values
from emulator.arith.fused_code import COLUMNS, RUN, Kind, tiles_function

#: rows of a tile of accumulators, which fits the first cache with a pass of B
_ROWS = 64
#: products of a batch that lie beside each other, and columns that are too few to do so
TOGETHER, _FEW_COLUMNS = COLUMNS, 32
#: what stands for the exponent of a zero, by the bits of a lane
_NOWHERE = {8: -64, 16: -1024}
#: Exponents of ordinary elements: their products are normal float32 numbers.
_ORDINARY = 63
#: a conversion from int32 to float32 toward zero is right below
_SAFE = (1 << 31) - 128


class _Operand(NamedTuple):
    """One side, in the order in which the code reads it."""

    value: Float32
    exponent: Array
    #: ``(t, rows)``: rows with an element that is not ordinary; None: none
    odd: Bool | None
    #: there are infinities or NaNs
    special: bool


def chain(
    made: Plan, left: Side, right: Side, scale: Format | None, c: Float32
) -> tuple[Float32, Bool]:
    """Accumulators ``(t, m, n)`` after all instructions, NaNs with any payload, and a mask of those
    that are to be computed otherwise; operands with one batch axis, of length 1 where it is shared.

    Columns lie beside each other.
    """
    kind = _kind(made, left[0], right[0], scale)
    m, n = c.shape[-2:]
    batch = max(len(x) for x in (*left[1:], *right[1:], c) if x is not None)
    tiles, blocks = -(-m // _ROWS), -(-n // COLUMNS)
    rows = -(-m // tiles)
    a = _operand(made, kind, left, scale, tiles, rows, (0, 1, 3, 2, 4))
    b = _operand(made, kind, right, scale, blocks, COLUMNS, (0, 1, 3, 4, 2))
    # The lanes of one 32-bit word have the same exponent.
    repeated = 0x01010101 if kind.exponent_bits == 8 else 0x00010001
    a_exponent = _aligned(a.exponent.shape, np.uint32)
    np.multiply(a.exponent.view(f"u{a.exponent.itemsize}"), np.uint32(repeated), out=a_exponent)
    x = _aligned((batch, tiles, blocks, rows, COLUMNS), np.float32)
    full = np.zeros((len(c), tiles * rows, blocks * COLUMNS), np.float32)
    full[:, :m, :n] = c
    x[...] = full.reshape(-1, tiles, rows, blocks, COLUMNS).swapaxes(2, 3)
    d, bad = (
        y.swapaxes(2, 3).reshape(batch, tiles * rows, blocks * COLUMNS)[:, :m, :n]
        for y in _computed(made, kind, a._replace(exponent=a_exponent), b, x, n)
    )
    return _settled(left, right, a, b, c, d, bad != 0)


def suits_lanes(batch: int, m: int, n: int) -> bool:
    """Whether the products of a batch are to lie beside each other instead of their columns."""
    return batch >= COLUMNS // 2 and min(m, n) < _FEW_COLUMNS


def chain_of_batch(
    made: Plan, left: Side, right: Side, scale: Format | None, c: Float32
) -> tuple[Float32, Bool]:
    """`chain` of a batch of small products, which lie beside each other."""
    kind = _kind(made, left[0], right[0], scale)._replace(a_in_lanes=True)
    m, n = c.shape[-2:]
    batch = max(len(x) for x in (*left[1:], *right[1:], c) if x is not None)
    groups = -(-batch // COLUMNS)
    # What are rows elsewhere is the batch here.
    sides = [
        (fmt, *(None if y is None else np.broadcast_to(y, (batch, *y.shape[1:])).swapaxes(0, 1)
                for y in given))
        for fmt, *given in (left, right)
    ]  # fmt: skip
    a = _operand(made, kind, sides[0], scale, groups, COLUMNS, (1, 3, 0, 4, 2))  # type: ignore[arg-type]
    b = _operand(made, kind, sides[1], scale, groups, COLUMNS, (1, 0, 3, 4, 2))  # type: ignore[arg-type]
    a, b = (y._replace(odd=None if y.odd is None else y.odd.T) for y in (a, b))
    x = _aligned((groups, 1, n, m, COLUMNS), np.float32)
    full = np.zeros((groups * COLUMNS, m, n), np.float32)
    full[:batch] = c
    x[:, 0] = full.reshape(groups, COLUMNS, m, n).transpose(0, 3, 2, 1)
    whole = a._replace(value=a.value[:, None], exponent=a.exponent[:, None])
    d, bad = (
        y[:, 0].transpose(0, 3, 2, 1).reshape(-1, m, n)[:batch]
        for y in _computed(made, kind, whole, b, x, n * COLUMNS)
    )
    return _settled(left, right, a, b, c, d, bad != 0)


def _computed(
    made: Plan, kind: Kind, a: _Operand, b: _Operand, x: Float32, n: int
) -> tuple[Float32, Array]:
    """The accumulators x ``(t, tiles, blocks, rows, COLUMNS)`` after all passes, in place, and
    marks; `n` columns are used."""
    batch, tiles, blocks, rows, _ = x.shape
    passes, k = b.value.shape[2:4]
    partial = _aligned(x.shape, np.float32) if made.adds_c else x[:0]
    bad = np.zeros(x.shape, np.uint8)
    run_in_threads(
        tiles_function(kind), batch * tiles * blocks, x.size * passes * k,
        a.value, a.exponent, b.value, b.exponent, x, partial, bad,
        tiles, blocks, passes, k, len(made.order), rows, n,
        int(len(a.value) > 1), int(len(b.value) > 1),
    )  # fmt: skip
    return x, bad


def _settled(
    left: Side, right: Side, a: _Operand, b: _Operand, c: Float32, d: Float32, wrong: Bool
) -> tuple[Float32, Bool]:
    """The accumulators and marks, with those that rows and columns are to blame for."""
    if a.odd is not None:
        wrong |= a.odd[:, :, None]
    if b.odd is not None:
        wrong |= b.odd[:, None]
    if a.special or b.special:
        _with_specials(left, right, c, d, wrong)
    return d, wrong


def _aligned(shape: tuple[int, ...], dtype: type) -> Array:
    """Memory that begins with a line of the cache, as vectors of 64 bytes like it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def _kind(made: Plan, a: Format, b: Format, scale: Format | None) -> Kind:
    step, formats = made.step, [made.widen or a, made.widen or b]
    largest = max(_largest_exponent(fmt) for fmt in formats)
    # A zero beside the largest exponent must stay below the least sum of two.
    short = scale is None and _NOWHERE[8] + largest < sum(fmt.emin for fmt in formats)
    bits = 8 if short else 16
    result = FORMATS[step.result]
    formats += [] if scale is None else [scale, scale]
    products = np.prod([2 - 2.0**-fmt.mantissa_bits for fmt in formats])
    bound = (made.order.shape[1] * products + 2) * 2.0**step.fraction_bits
    return Kind(
        step.fraction_bits,
        -127 if step.floor is None else max(step.floor, -127),
        result.emin,
        step.precision or result.precision,
        step.result == "f16",
        made.adds_c,
        bits,
        _NOWHERE[bits] + (largest if short else _ORDINARY),
        guarded=bool(bound >= _SAFE),
        exact=bool(bound < 1 << 24),
        a_in_lanes=False,
    )


def _operand(
    made: Plan,
    kind: Kind,
    side: Side,
    scale: Format | None,
    pieces: int,
    rows: int,
    order: tuple[int, ...],
) -> _Operand:
    """One side: rows in `pieces` of `rows`, axes (t, piece, row, pass, k) in another order."""
    fmt, codes, scales = side
    if scales is not None and len(scales) > len(codes):
        codes = np.broadcast_to(codes, (len(scales), *codes.shape[1:]))
    (count, given, total), width = codes.shape, made.order.shape[1]
    special, nonfinite = False, np.zeros(1, np.bool_)
    if fmt.specials != "none":
        nonfinite = is_special(fmt, codes)
        special = bool(nonfinite.any())
        codes = np.where(nonfinite, codes.dtype.type(0), codes) if special else codes
    if not made.in_order:
        codes = codes.reshape(count, given, -1, made.order.size).take(made.order, -1)

    def laid_out(x: Array) -> Array:
        """``(t, rows, k)`` in the order of the code, filled up with zeros."""
        out = np.zeros((count, pieces * rows, total // width, width + -width % RUN), x.dtype)
        out[:, :given, :, :width] = x.reshape(count, given, -1, width)
        return np.ascontiguousarray(
            out.reshape(count, pieces, rows, *out.shape[2:]).transpose(order)
        )

    packed = laid_out(codes)
    value = _aligned(packed.shape, np.float32)
    value[...] = values(fmt, packed)
    zero = value == 0
    lane = np.int8 if kind.exponent_bits == 8 else np.int16
    exponent = _aligned(packed.shape, lane)
    field = np.maximum(_exponents(value), (made.widen or fmt).emin)
    if scales is not None:
        assert scale is not None
        each = np.repeat(scales, total // scales.shape[-1], -1)
        factor = values(scale, laid_out(np.broadcast_to(each, (count, *each.shape[1:]))))
        with np.errstate(all="ignore"):
            value *= np.where(zero, np.float32(0), factor)
        field += _exponents(factor)
    np.copyto(field, _NOWHERE[kind.exponent_bits], where=zero)
    exponent[...] = field
    odd = None
    if kind.exponent_bits == 16 and (np.abs(field, where=~zero, out=field) > _ORDINARY).any():
        outside = (field > _ORDINARY).any((order.index(3), order.index(4)))
        rest = [axis for axis in order if axis < 3]
        in_order = np.transpose(outside, [rest.index(axis) for axis in range(3)])
        odd = in_order.reshape(count, -1)[:, :given]
    if scales is not None:
        assert scale is not None
        lost = (scales == scale.nan).any(-1)
        if special:
            lost, special = lost | nonfinite.any(-1), False
        odd = lost if odd is None else odd | lost
    return _Operand(value, exponent, odd, special)


def _exponents(value: Float32) -> Array:
    """The exponents of normal numbers."""
    fields = (value.view(np.uint32) >> np.uint32(23)).astype(np.uint8)
    return fields.astype(np.int16) - np.int16(127)


def _largest_exponent(fmt: Format) -> int:
    return (fmt.max_finite >> (fmt.mantissa_bits + fmt.ignored_bits)) - fmt.bias


# --- infinities and NaNs --------------------------------------------------------------------------


class _Signs(NamedTuple):
    """What a side's elements are to a product: +1, -1 or 0, ``(t, rows, k)``."""

    finite: Float32
    infinite: Float32
    #: ``(t, rows)``: a row has a NaN
    nan: Bool

    def rows(self, which: Array) -> _Signs:
        return _Signs(self.finite[:, which], self.infinite[:, which], self.nan[:, which])


def _with_specials(left: Side, right: Side, c: Float32, d: Float32, wrong: Bool) -> None:
    """Writes into `d` what infinities and NaNs of the operands make of accumulators that were
    computed without them. Where an accumulator had overflowed to the other infinity, or to both, it
    matters which came first: those are `wrong`."""
    a, b = _signs(left), _signs(right)
    rows: Bool = np.asarray(a.nan.any(0) | a.infinite.any((0, 2)))
    columns: Bool = np.asarray(b.nan.any(0) | b.infinite.any((0, 2)))
    c = np.broadcast_to(c, d.shape)
    for i, j in ((rows, np.ones_like(columns)), (~rows, columns)):
        if not i.any() or not j.any():
            continue
        nan, positive, negative = _outcome(a.rows(i), b.rows(j))
        place: Any = (slice(None), *np.ix_(i, j))
        start, x = c[place], d[place]
        nan = nan | (positive & negative)
        nan |= (positive & (start == -np.inf)) | (negative & (start == np.inf))
        late = (positive & (x == -np.inf)) | (negative & (x == np.inf))
        # Sums of several passes may have overflowed to both infinities.
        late |= (positive | negative) & np.isnan(x) & ~np.isnan(start)
        x = np.where(positive, np.float32(np.inf), np.where(negative, np.float32(-np.inf), x))
        d[place] = np.where(nan | np.isnan(start), np.float32(np.nan), x)
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
