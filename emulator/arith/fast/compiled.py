"""Chains of multiply-adds and counts of bits as machine code, by LLVM (the extra ``fast``).

A block of columns of one row of D stays in registers while k runs. Fused dot-adds have code of
their own, in `fused_code`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from dtypes import FORMATS, Array, code_type, convert
from emulator.arith.arrangement import arrangement
from emulator.arith.fast.factors import Bool
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.threads import run_in_threads
from emulator.arith.fast.vector_code import (
    F32,
    F64,
    I32,
    I64,
    POINTER,
    Value,
    module,
    repeat,
)
from emulator.arith.recipes import Arithmetic
from emulator.arith.rounding_modes import rounded
from emulator.arith.steps import FmaChain, PairSums

#: what is computed of the words of A and B: a + b·c in one rounding; pairs of products, the first
#: of them rounded; the ones of ``a and b``, of ``a xor b``
Operation = Literal["fma", "pairs", "and", "xor"]
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
    operation: Operation = "pairs" if isinstance(step, PairSums) else "fma"
    tasks = rounded(row_tasks(operation, fmt.bits), arithmetic.rounding)
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
    run_in_threads(
        tasks, batch * tiles * blocks, x.size * words * positions,
        a, np.ascontiguousarray(columns.swapaxes(-1, -2)), x,
        m, blocks, words, period or words, int(period > 0), len(a) > 1, len(b) > 1,
    )  # fmt: skip
    return np.ascontiguousarray(x[..., :n])


def _padded(x: Array, axis: int) -> Array:
    """A copy, filled up with zeros along the axis of the columns of D."""
    missing = -x.shape[axis] % COLUMNS
    return np.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)])


# --- the code -------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def row_tasks(operation: Operation, bits: int) -> Tasks:
    """``f(first, last, a, b, x, m, blocks, words, period, partial, a_step, b_step)``: the tiles
    `first` … `last` of x ``(t, m, blocks, COLUMNS)``, of a ``(t, m, words)`` and b
    ``(t, blocks, words, COLUMNS)``.

    Sums of each `period` words start from +0 and are added to x if `partial`, else from x. The
    steps are 0 where the batch shares an operand.
    """
    total = {"fma": {32: F32, 64: F64}, "pairs": {32: F32, 64: F64}}.get(operation, {32: I32})[bits]
    word = I64 if total is I32 else total
    types = [I64] * 2 + [POINTER] * 3 + [I64] * 7
    name, writer = f"rows_{operation}_{bits}", _Writer(operation, word, total)
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    arguments = [*[size] * 2, *[pointer] * 3, *[size] * 7]
    call = machine_code.function(module(name, types, writer.tasks), name, None, *arguments)

    def run(first: int, last: int, *given: Any) -> None:
        call(first, last, *(x.ctypes.data if isinstance(x, np.ndarray) else x for x in given))

    return run


class _Writer:
    """Writes the code of an operation on words of one type, whose sums have another."""

    def __init__(self, operation: Operation, word: Any, total: Any) -> None:
        self.operation, self.word, self.total = operation, word, total

    def tasks(
        self, first: Value, last: Value, a: Value, b: Value, x: Value, m: Value, blocks: Value,
        words: Value, period: Value, partial: Value, a_step: Value, b_step: Value,
    ) -> None:  # fmt: skip
        zero, tiles = first.constant(0), (m + (_ROWS - 1)) // _ROWS
        starts_anew = partial.compare("!=", 0)

        def task(index: Value) -> tuple[()]:
            t, block, tile = index // (tiles * blocks), index % blocks, index // blocks % tiles
            columns = b.at((t * b_step * blocks + block) * words * COLUMNS, self.word)

            def row(i: Value) -> tuple[()]:
                words_of_row = a.at((t * a_step * m + i) * words, self.word)
                place = x.at(((t * m + i) * blocks + block) * COLUMNS, self.total, COLUMNS)

                def part(start: Value, total: Value) -> tuple[Value]:
                    begin = starts_anew.select(total.constant(0), total)
                    sums = self.chain(words_of_row, columns, start, start + period, begin)
                    return (starts_anew.select(total + sums, sums),)

                (total,) = repeat(zero, words, period, part, place.load(1))
                place.store(total, 1)
                return ()

            repeat(tile * _ROWS, (tile * _ROWS + _ROWS).min(m), 1, row)
            return ()

        repeat(first, last, 1, task)

    def chain(self, row: Value, columns: Value, start: Value, stop: Value, total: Value) -> Value:
        """`total` after some words of a row with all columns of a block."""

        def at(k: Value) -> tuple[Value, Value]:
            column = columns.at(k * COLUMNS, self.word, COLUMNS)
            return row.at(k, self.word).load(1).splat(COLUMNS), column.load(1)

        def step(k: Value, total: Value) -> tuple[Value]:
            p, q = at(k)
            if self.operation == "fma":
                return (total.plus_product(p, q),)
            if self.operation == "pairs":
                return (total + (p * q).plus_product(*at(k + 1)),)
            ones = (p & q if self.operation == "and" else p ^ q).ones()
            return (total + ones.to(self.total),)

        (total,) = repeat(start, stop, 2 if self.operation == "pairs" else 1, step, total)
        return total
