"""Matrix products of FMA chains and of bits as machine code (the extra ``fast``).

A block of columns of one row of D stays in registers while k runs. Fused dot-adds have code of
their own, in `fused_code`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import mul
from typing import Any, Literal

import numpy as np

from dtypes import FORMATS, Array, code_type, convert
from emulator.arith.arrangement import arrangement
from emulator.arith.fast.emitter import Emitter, native_function
from emulator.arith.fast.factors import Bool
from emulator.arith.fast.threads import run_in_threads
from emulator.arith.fast.words import LONG, POINTER, Value, Word, select
from emulator.arith.recipes import Arithmetic
from emulator.arith.rounding_modes import rounded
from emulator.arith.steps import FmaChain, PairSums

#: what is computed of the words of A and B: a + b·c in one rounding; pairs of products, the first
#: of them rounded; the ones of ``a and b``, of ``a xor b``
ChainKind = Literal["fma", "pairs", "and", "xor"]
#: columns of a block, which are computed beside each other, and rows of a tile, which one task has
COLUMNS, _ROWS = 64, 16

Tasks = Callable[..., None]


# --- chains of fused multiply-adds ----------------------------------------------------------------


def float_chain(
    arithmetic: Arithmetic, a: Array, b: Array, c: Array, k: int
) -> tuple[Array, Bool] | None:
    """Codes after a recipe of multiply-add chains, and where they are NaNs, whose code `vector`
    must say. None for a recipe of another kind or a rounding that the machine has not.

    Operands as for `matmul`, with one batch axis.
    """
    found = arrangement(arithmetic.steps)
    if found is None or not isinstance(found.core, (FmaChain, PairSums)):
        return None
    step, fmt, after = found.core, FORMATS[found.core.fmt], found.after
    if fmt.name not in ("f32", "f64"):
        return None
    one_format = found.before is None and found.widen in (None, fmt) and found.adds_c in (None, fmt)
    if not one_format or (after and a.shape[-1] > k):
        return None
    kind: ChainKind = "pairs" if isinstance(step, PairSums) else "fma"
    tasks = rounded(row_tasks(kind, fmt.bits), arithmetic.rounding)
    if tasks is None:
        return None
    if found.widen:
        a, b = convert(arithmetic.a, fmt, a), convert(arithmetic.b, fmt, b)
    if arithmetic.c is not fmt:
        c = convert(arithmetic.c, fmt, c)
    x = _rows(tasks, a, b, c, k if found.adds_c else 0)
    bad = np.isnan(x.view(f"f{fmt.bits // 8}"))
    codes = x.view(code_type(fmt.bits))
    return (convert(fmt, after, codes) if after else codes), bad


def popcount_dot(p: Array, q: Array, c: Array, both: bool) -> Array:
    """c ``(t, m, n)`` plus the ones of ``p and q`` or of ``p xor q``, words ``(t, m, w)`` and
    ``(t, n, w)``."""
    return _rows(row_tasks("and" if both else "xor", 32), p, q, c, 0, 64)


def _rows(tasks: Tasks, a: Array, b: Array, c: Array, period: int, positions: int = 1) -> Array:
    """D, as the tasks compute it; a word of A has so many positions of k. With a `period` so many
    words are summed up from +0, and then added."""
    batch, (m, n), words = max(len(a), len(b), len(c)), c.shape[-2:], a.shape[-1]
    blocks, tiles = -(-n // COLUMNS), -(-m // _ROWS)
    a, c = np.ascontiguousarray(a), np.broadcast_to(c, (batch, m, n))
    x, columns = _padded(c, 2), _padded(b, 1).reshape(len(b), blocks, COLUMNS, words)
    arrays = a, np.ascontiguousarray(columns.swapaxes(-1, -2)), x
    sizes = m, blocks, words, period or words, int(period > 0), len(a) > 1, len(b) > 1
    work = x.size * words * positions
    run_in_threads(tasks, batch * tiles * blocks, work, *arrays, *sizes)
    return np.ascontiguousarray(x[..., :n])


def _padded(x: Array, axis: int) -> Array:
    """A copy, filled up with zeros along the axis of the columns of D."""
    missing = -x.shape[axis] % COLUMNS
    return np.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)])


# --- the code -------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def row_tasks(kind: ChainKind, bits: int) -> Tasks:
    """``f(first, last, a, b, x, m, blocks, words, period, partial, a_step, b_step)``: the tiles
    `first` … `last` of x ``(t, m, blocks, COLUMNS)``, of a ``(t, m, words)`` and b
    ``(t, blocks, words, COLUMNS)``.

    Sums of each `period` words start from +0 and are added to x if `partial`, else from x. The
    steps are 0 where the batch shares an operand.
    """
    is_float = kind in ("fma", "pairs")
    word, total = (f"f{bits // 8}",) * 2 if is_float else ("u8", "u4")
    step = 2 if kind == "pairs" else 1

    def write(e: Emitter, first: Word, last: Word, *given: Any) -> None:
        a, b, x, m, blocks, words, period, partial, a_step, b_step = given

        def pair(row: Value, columns: Value, k: Word) -> tuple[Word, Word]:
            column = e.lanes(columns, k * COLUMNS, word)
            return e.load(row, k, word).splat(COLUMNS), column

        tiles, starts_anew = (m + (_ROWS - 1)) // _ROWS, (partial != 0).splat(COLUMNS)
        with e.loop(last, first) as index:
            t, block, tile = index // (tiles * blocks), index % blocks, index // blocks % tiles
            columns = e.at(b, (t * b_step * blocks + block) * words * COLUMNS, word)
            with e.loop((tile * _ROWS + _ROWS).minimum(m), tile * _ROWS) as i:
                row = e.at(a, (t * a_step * m + i) * words, word)
                place = e.at(x, ((t * m + i) * blocks + block) * COLUMNS, total)
                sums = [e.lanes(place, 0, total)]
                with e.loop(words, step=period, carried=sums) as start:
                    part = [select(starts_anew, 0, sums[0])]
                    with e.loop(start + period, start, step, part) as k:
                        pairs = [pair(row, columns, k + j) for j in range(step)]
                        part[0] = _added(kind, part[0], pairs)
                    sums[0] = select(starts_anew, sums[0] + part[0], part[0])
                e.store(sums[0], place, 0)

    types = [LONG] * 2 + [POINTER] * 3 + [LONG] * 7
    return native_function(f"rows_{kind}_{bits}", types, write, COLUMNS)


def _added(kind: ChainKind, total: Word, words: list[tuple[Word, Word]]) -> Word:
    """The sum with words of A and B, of one position or of a pair of them."""
    p, q = words[-1]
    if kind == "fma":
        return p.fma(q, total)
    if kind == "pairs":
        return total + p.fma(q, mul(*words[0]))
    return total + (p & q if kind == "and" else p ^ q).ones().astype(total.dtype)
