"""``matmul``: matrices of codes, accumulated over k as a chain of instructions does it.

Most recipes have a fast path: integers through exact float sums or bit counts, fused dot-adds
through float arithmetic on ordinary numbers (`fused`, `fused_tiles`), fused multiply-add chains
through the machine's own. What is left, and every element whose operands or result are not
ordinary, is computed by `vector`, one instruction after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dtypes import Array, Format, code_type, convert
from emulator.arith import reference, vector
from emulator.arith.engines import Compute, Engine, choose, give_up, in_pieces
from emulator.arith.fast import fused, integers
from emulator.arith.fast.factors import Bool, FusedPlan, Side, is_special, plan
from emulator.arith.fast.fused import FloatPlan
from emulator.arith.fast.threads import in_threads
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import IntegerDot, PopcountDot

_R = TypeVar("_R")

#: share of elements that are not ordinary, above which all are computed by `vector`
_MOSTLY_ORDINARY = 0.9
#: share of elements out of reach of compiled code, above which NumPy computes all faster
_RARE = 0.02
#: products of one piece of a batch: what fits a cache, and what keeps threads busy
_PIECE, _COMPILED_PIECE = 1 << 18, 1 << 20
#: elements of A and B that are decoded at a time without compiled code
_ELEMENTS = 1 << 22
#: products up to which NumPy is faster than compiled code
_FEW_PRODUCTS = 1 << 13
#: factors to fused dot-adds: single dots are so much slower, and bits so much faster
_SINGLE_DOTS, _BITS = 64, 64
#: of results that are all right
_NOWHERE = np.zeros((1, 1, 1), np.bool_)
#: columns that fill the vectors of a machine reasonably
_COLUMNS = 32


class Operands(NamedTuple):
    """Codes with one batch axis, of length 1 where it is shared; as `matmul` names them."""

    a: Array
    b: Array
    c: Array
    scale_a: Array | None
    scale_b: Array | None


def matmul(
    arithmetic: Arithmetic,
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    *,
    k: int | None = None,
    engine: Engine = "auto",
) -> Array:
    """D = A·B + C of codes: `a` ``(…, m, K)``, `b` ``(…, n, K)`` (B by columns), `c` ``(…, m, n)``.

    K is a multiple of the instruction's `k` (None: one instruction): the result of each is the
    accumulator of the next. Scales ``(…, m, V)`` and ``(…, n, V)`` are those of K / V neighbouring
    positions each, V a multiple of the number of instructions.
    Leading axes broadcast. Raises OperandError for an unknown engine, ValueError for shapes that
    do not broadcast and for a chain of instructions whose C and D differ in type.
    """
    batch = _batch_of(a, b, c, scale_a, scale_b)
    m, n, k = a.shape[-2], b.shape[-2], a.shape[-1] if k is None else k
    if a.shape[-1] > k and arithmetic.c != arithmetic.d:
        raise ValueError(f"a chain needs C and D of one type; got {arithmetic.c}, {arithmetic.d}")
    work = math.prod((*batch, m, n, a.shape[-1]))
    if not work:
        choose(engine, work)  # may raise
        d = np.broadcast_to(c, (*batch, m, n))
        return d.astype(code_type(arithmetic.d.bits)) if not d.size else np.array(d)
    operands = _operands(batch, a, b, c, scale_a, scale_b)
    d = _by_engine(engine, work, arithmetic, k, lambda x: _matmul(arithmetic, operands, k, x))
    return _shaped(d, batch)


def ordinary(
    arithmetic: Arithmetic,
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    *,
    engine: Engine = "auto",
) -> tuple[Array, Bool] | None:
    """The result of a fast path of `matmul` for one instruction, and where it is meaningless
    because an operand or a result is not ordinary; None where the recipe has no fast path.

    For callers who compute such elements by themselves.
    """
    batch, k = _batch_of(a, b, c, scale_a, scale_b), a.shape[-1]
    work = math.prod((*batch, a.shape[-2], b.shape[-2], k))
    if not work:
        return None
    operands = _operands(batch, a, b, c, scale_a, scale_b)
    found = _by_engine(engine, work, arithmetic, k, lambda x: _fast(arithmetic, operands, k, x))
    if found is None:
        return None
    d, bad = _shaped(found[0], batch), found[1]
    rows, columns = _has_special(arithmetic.a, a), _has_special(arithmetic.b, b)
    bad = bad.reshape(*(batch if len(bad) > 1 else ()), *bad.shape[1:]) | rows[..., None]
    return d, np.broadcast_to(bad | columns[..., None, :], d.shape)


def _has_special(fmt: Format, codes: Array) -> Array:
    """Rows ``(…, m)`` with an infinity or a NaN."""
    if not fmt.is_float or fmt.specials == "none":
        return np.zeros((1,) * (codes.ndim - 1), np.bool_)
    return np.asarray(is_special(fmt, codes).any(-1))


def _batch_of(*operands: Array | None) -> tuple[int, ...]:
    return np.broadcast_shapes(*(x.shape[:-2] for x in operands if x is not None))


def _operands(batch: tuple[int, ...], *operands: Array | None) -> Operands:
    return Operands(*(None if x is None else _flat(x, batch) for x in operands))  # type: ignore[arg-type]


def _shaped(d: Array, batch: tuple[int, ...]) -> Array:
    """`d` ``(t, m, n)``, of which all of the batch may share one, with all axes of the batch."""
    if len(d) != math.prod(batch):
        d = np.array(np.broadcast_to(d, (math.prod(batch), *d.shape[1:])))
    return d.reshape(*batch, *d.shape[1:])


def _by_engine(
    engine: Engine, work: int, arithmetic: Arithmetic, k: int, compute: Callable[[Engine], _R]
) -> _R:
    """``compute`` with the engine that is chosen for the work, in multiply-adds."""
    # Integers and fp4 with scales make no use of LLVM: "auto" must not wait for it.
    by_blas = isinstance(arithmetic.steps[0], IntegerDot) or _in_groups(arithmetic, k)
    fused_dots = not by_blas and plan(arithmetic, k) is not None
    if isinstance(arithmetic.steps[0], PopcountDot):
        work //= _BITS
    elif not by_blas and not fused_dots:
        work *= _SINGLE_DOTS
    chosen = choose(engine, 0 if by_blas else work, ("matmul", arithmetic) if fused_dots else None)
    if engine == "auto" and fused_dots and work <= _FEW_PRODUCTS:
        chosen = "vector"
    try:
        return compute(chosen)
    except Exception as error:
        if engine != "auto" or chosen != "compiled":
            raise
        # Such as a damaged cache of machine code. What is the caller's fault fails here, too.
        found = compute("vector")
        give_up(error)
        return found


def dot(
    arithmetic: Arithmetic,
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    *,
    engine: Engine = "auto",
) -> Array:
    """``d = c + Σ a·b`` of codes, one by one: `a`, `b` ``(…, k)``, `c` ``(…)``, scales ``(…, v)``.

    The same as `matmul` of matrices with one element; broadcasts and raises as that does.
    """
    scales = (None if x is None else x[..., None, :] for x in (scale_a, scale_b))
    one = a[..., None, :], b[..., None, :], c[..., None, None]
    return matmul(arithmetic, *one, *scales, engine=engine)[..., 0, 0]


def _flat(x: Array, batch: tuple[int, ...]) -> Array:
    """`x` with one batch axis, of length 1 where all of the batch shares it."""
    if math.prod(x.shape[:-2]) == 1:
        return x.reshape(1, *x.shape[-2:])
    return np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:])


def _in_groups(arithmetic: Arithmetic, k: int) -> bool:
    # Most have no scales, and need not be looked up.
    return arithmetic.scale is not None and fused.exact_in_groups(arithmetic, k) is not None


def _matmul(arithmetic: Arithmetic, x: Operands, k: int, engine: Engine) -> Array:
    if engine == "reference":
        return _by_dots(reference.dot, arithmetic, x, k)
    found = _fast(arithmetic, x, k, engine)
    if engine == "compiled" and found is not None and _share(found[1]) > _RARE:
        found = _fast(arithmetic, x, k, "vector") or found
    if found is not None:
        return _settled(arithmetic, x, k, *found)
    if x.a.shape[-1] == k or plan(arithmetic, k) is None:
        return _by_dots(vector.dot, arithmetic, x, k)
    # The accumulator is converted between instructions.
    c = x.c
    for start in range(0, x.a.shape[-1], k):
        one = _instruction(x, start, k)._replace(c=c)
        c = _matmul(arithmetic, one, k, engine)
    return c


def _share(marks: Bool) -> float:
    return np.count_nonzero(marks) / marks.size


def _fast(arithmetic: Arithmetic, x: Operands, k: int, engine: Engine) -> tuple[Array, Bool] | None:
    """Codes, and where they are to be computed otherwise; None where there is no fast path."""
    if engine == "reference":
        return None
    first = arithmetic.steps[0]
    if isinstance(first, IntegerDot):
        return integers.dot(arithmetic, x.a, x.b, x.c, k), _NOWHERE
    if isinstance(first, PopcountDot):
        compiled_ones = engine == "compiled"
        return integers.popcount_dot(arithmetic, x.a, x.b, x.c, compiled_ones), _NOWHERE
    made: FusedPlan | FloatPlan | None = plan(arithmetic, k) if engine == "compiled" else None
    made = made or fused.plan(arithmetic, k)
    if made is None and engine == "compiled":
        from emulator.arith.fast import compiled

        return compiled.float_chain(arithmetic, x.a, x.b, x.c, k)
    if made is None or ((made.before or made.after) and x.a.shape[-1] > k):
        return None
    return _fused(made, arithmetic, x)


def _by_dots(compute: Compute, arithmetic: Arithmetic, x: Operands, k: int) -> Array:
    """One instruction after the other, each element by itself."""
    c = x.c
    for start in range(0, x.a.shape[-1], k):
        one = _instruction(x, start, k)
        rows = (None if y is None else y[..., :, None, :] for y in (one.a, one.scale_a))
        columns = (None if y is None else y[..., None, :, :] for y in (one.b, one.scale_b))
        (a, scale_a), (b, scale_b) = rows, columns
        c = in_pieces(compute, arithmetic, a, b, c, scale_a, scale_b)  # type: ignore[arg-type]
    return c


def _instruction(x: Operands, start: int, k: int) -> Operands:
    """The operands of the instruction, or of several, with the `k` positions from `start` on."""
    part, total = slice(start, start + k), x.a.shape[-1]

    def own(y: Array | None) -> Array | None:
        v = 0 if y is None else y.shape[-1] * k // total
        return None if y is None else y[..., start // k * v : (start // k + 1) * v]

    return Operands(x.a[..., part], x.b[..., part], x.c, own(x.scale_a), own(x.scale_b))


def _settled(arithmetic: Arithmetic, x: Operands, k: int, codes: Array, bad: Bool) -> Array:
    """`codes`, with what `vector` says of the elements that are `bad`."""
    if not bad.any():
        return codes
    if _share(bad) > 1 - _MOSTLY_ORDINARY:
        return _by_dots(vector.dot, arithmetic, x, k)
    _recompute(arithmetic, x, k, codes, bad)
    return codes


def _recompute(arithmetic: Arithmetic, x: Operands, k: int, codes: Array, bad: Bool) -> None:
    """Writes into `codes` what `vector` says of the elements that are `bad`."""
    where = np.nonzero(bad)
    piece = max(1, _PIECE // x.a.shape[-1])
    for start in range(0, len(where[0]), piece):
        t, i, j = (index[start : start + piece] for index in where)

        def pick(y: Array | None, place: Array, t: Array = t) -> Any:
            return None if y is None else y[t if len(y) > 1 else 0, place]

        c = x.c[t if len(x.c) > 1 else 0, i, j]
        picked = Operands(pick(x.a, i), pick(x.b, j), c, pick(x.scale_a, i), pick(x.scale_b, j))
        for first in range(0, x.a.shape[-1], k):
            one = _instruction(picked, first, k)
            c = vector.dot(arithmetic, one.a, one.b, c, one.scale_a, one.scale_b)
        codes[t, i, j] = c


# --- fused dot-adds -------------------------------------------------------------------------------


def _fused(made: FusedPlan | FloatPlan, arithmetic: Arithmetic, x: Operands) -> tuple[Array, Bool]:
    """Codes, and where they are to be computed otherwise."""
    codes = x.c if made.before is None else convert(arithmetic.c, made.before, x.c)
    bad, total = _NOWHERE, x.a.shape[-1]
    at_once = total
    if isinstance(made, FloatPlan):
        k = made.order.size
        at_once = k * max(1, _ELEMENTS // (k * (x.a[..., 0].size + x.b[..., 0].size)))
    for start in range(0, total, at_once):
        one = x if at_once >= total else _instruction(x, start, at_once)
        sides = ((arithmetic.a, one.a, one.scale_a), (arithmetic.b, one.b, one.scale_b))
        codes, odd = _chain(made, *sides, arithmetic.scale, codes)
        bad = odd if start == 0 else bad | odd
    return codes if made.after is None else convert(made.result, made.after, codes), bad


def _chain(
    made: FusedPlan | FloatPlan, left: Side, right: Side, scale: Format | None, x: Array
) -> tuple[Array, Bool]:
    """The codes of accumulators, and where they are to be computed otherwise."""
    products, (m, n) = _PIECE, x.shape[-2:]
    batch = max(len(y) for y in (*left[1:], *right[1:], x) if y is not None)
    in_tiles, in_lanes = isinstance(made, FusedPlan), False
    if in_tiles:
        from emulator.arith.fast import fused_tiles

        products, in_lanes = _COMPILED_PIECE, fused_tiles.suits_lanes(batch, m, n)
    few = made.order.size * m * n * batch <= _FEW_PRODUCTS and not in_tiles
    if not in_lanes and not few and n < min(m, _COLUMNS):
        # The innermost loops run over columns: A·B is also (Bᵀ·Aᵀ)ᵀ.
        x, bad = _chain(made, right, left, scale, x.swapaxes(-1, -2))
        return np.ascontiguousarray(x.swapaxes(-1, -2)), bad.swapaxes(-1, -2)
    size = max(1, products // (m * n * made.order.shape[1]))
    if in_lanes:
        size = -(-size // fused_tiles.TOGETHER) * fused_tiles.TOGETHER

    def part(y: Any, start: int) -> Any:
        return y if y is None or len(y) == 1 else y[start : start + size]

    def piece(start: int) -> tuple[Array, Bool]:
        p, q = (
            (fmt, part(codes, start), part(scales, start)) for fmt, codes, scales in (left, right)
        )
        c = part(x, start)
        if isinstance(made, FusedPlan):
            chain = fused_tiles.chain_of_batch if in_lanes else fused_tiles.chain
            return chain(made, p, q, scale, c)
        d, bad = fused.matmul(made, p, q, scale, c.view(f"f{c.itemsize}"))
        return _codes(made.result, d), bad

    if size >= batch:
        return piece(0)
    out = np.empty((batch, m, n), code_type(made.result.bits))
    bad = np.empty(out.shape, np.bool_)

    def write(start: int) -> None:
        done = slice(start, start + size)
        out[done], bad[done] = piece(start)

    in_threads(write, range(0, batch, size), None if in_tiles else 1)
    return out, bad


def _codes(fmt: Format, numbers: Array) -> Array:
    """Floats as codes of their format, with one for all NaNs."""
    codes = numbers.view(code_type(fmt.bits))
    assert fmt.nan is not None
    codes[np.isnan(numbers)] = fmt.nan
    return codes
