"""Traces: the parts of a loop that groups of warps executed, merged into those of all together."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.threads import in_native_parts
from emulator.arith.fast.words import LONG, POINTER, Value
from emulator.arrays import address_of

#: bits of the number of entries of the first table of hashes; hashes that a thread looks at
_FEWEST, _PIECE = 10, 1 << 12


def one_of_each(hashes: NDArray[np.int64]) -> Array:
    """Where among hashes one of each stands, ascending; mostly there are few different ones."""
    bits, pieces = _FEWEST, -(-len(hashes) // _PIECE)
    if pieces > 2:
        # Those of each piece first, in several threads.
        found, out = _of_pieces(hashes, bits, pieces)
        if min(found) >= 0:
            likely = np.concatenate([row[:n] for row, n in zip(out, found, strict=True)])
            some: Array = likely[one_of_each(hashes[likely])]
            return some
    while True:
        (count,), (out,) = _of_pieces(hashes, bits, 1)
        if count >= 0:
            return out[:count]
        bits += 4


def _of_pieces(hashes: Array, bits: int, pieces: int) -> tuple[list[int], Array]:
    """How many different hashes each piece has, and rows of where one of each stands; -1: more than
    half of the entries of a table."""
    count = len(hashes)
    each = count if pieces == 1 else _PIECE
    tables = np.zeros((pieces, 1 << bits), np.int64)
    out = np.empty((pieces, min(each, 1 << bits - 1)), np.int64)
    cuts = np.minimum(np.arange(pieces + 1) * each, count)
    arrays = map(address_of, (hashes, tables, out))
    words = hashes.strides[0], each, tables.shape[1], out.shape[1]
    return in_native_parts(_distinct(), cuts, pieces, *arrays, *words), out


def merged(traces: Array, groups: Array, lengths: Array, parts: int) -> tuple[Array, Array]:
    """The parts, of so many, that groups execute whose traces have these lengths, the lowest first
    and together where they are at the same; and how many had been executed when each group went on
    last."""
    ends, out = np.zeros_like(lengths), np.empty(int(lengths.sum()), traces.dtype)
    heads, positions, following = np.full(parts, -1), np.zeros_like(lengths), np.empty_like(lengths)
    arrays = groups, lengths, positions, ends, following, heads, out, traces
    count = _merge(traces.itemsize)(*map(address_of, arrays), traces.shape[1], len(groups))
    return out[:count], ends


class _Writer:
    """A function of arrays and then of words of 8 bytes, with variables that start as 0."""

    def __init__(
        self, name: str, arrays: int, words: int, variables: Sequence[str], before: int = 0
    ) -> None:
        """`before`: words that come before the arrays."""
        word, array = (ctypes.c_int64, LONG), (ctypes.c_void_p, POINTER)
        given = [word] * before + [array] * arrays + [word] * words
        self.name, self._kinds = name, [kind for kind, _ in given]
        self._module = ir.Module(name)
        type_ = ir.FunctionType(LONG, [kind for _, kind in given])
        function = ir.Function(self._module, type_, name)
        self.given = function.args
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self._places = {variable: self.b.alloca(LONG) for variable in variables}
        for variable in variables:
            self[variable] = LONG(0)

    def __getitem__(self, variable: str) -> Value:
        return self.b.load(self._places[variable], typ=LONG)

    def __setitem__(self, variable: str, word: Value) -> None:
        self.b.store(word, self._places[variable])

    def add(self, variable: str, number: int) -> None:
        self[variable] = self.b.add(self[variable], LONG(number))

    def word(self, array: Value, at: Value, kind: Any = LONG) -> Value:
        return self.b.load(self.b.gep(array, [at], source_etype=kind), typ=kind)

    def put(self, array: Value, at: Value, word: Value) -> None:
        self.b.store(word, self.b.gep(array, [at], source_etype=word.type))

    def less(self, a: Value, b: Value) -> Value:
        return self.b.icmp_unsigned("<", a, b)

    def equal(self, a: Value, number: int) -> Value:
        return self.b.icmp_unsigned("==", a, LONG(number))

    @contextmanager
    def until(self, over: Callable[[], Value]) -> Iterator[None]:
        """Repeats instructions until something holds."""
        head, body, after = (self.b.append_basic_block() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(over(), after, body)
        self.b.position_at_end(body)
        yield
        self.b.branch(head)
        self.b.position_at_end(after)

    def function(self, result: Value) -> Any:
        self.b.ret(result)
        return machine_code.function(str(self._module), self.name, ctypes.c_int64, *self._kinds)


@lru_cache(maxsize=1)
def _distinct() -> Any:
    """``distinct(first, end, hashes, tables, out, step, piece, entries, most)``: see `_of_pieces`.
    A table of zeros takes the number of a hash, from 1 on."""
    t = _Writer("distinct", 3, 4, ("i", "slot", "known", "found"), before=2)
    (first, end, hashes, tables, rows, step, piece, entries, most), b = t.given, t.b
    number = b.udiv(first, piece)
    table, out = (
        b.gep(array, [b.mul(number, size)], source_etype=LONG)
        for array, size in ((tables, entries), (rows, most))
    )
    mask = b.sub(entries, LONG(1))
    t["i"] = first

    def hash_at(i: Value) -> Value:
        return b.load(b.gep(hashes, [b.mul(i, step)], source_etype=ir.IntType(8)), typ=LONG)

    with t.until(lambda: b.not_(t.less(t["i"], end))):
        mine = hash_at(t["i"])
        t["slot"], t["known"] = b.lshr(mine, LONG(40)), LONG(0)
        with t.until(lambda: t.equal(t["known"], 1)):
            at = b.and_(t["slot"], mask)
            held = t.word(table, at)
            with b.if_else(t.equal(held, 0)) as (new, old):
                with new:
                    with b.if_then(b.not_(t.less(t["found"], most))):
                        b.ret(LONG(-1))
                    t.put(table, at, b.add(t["i"], LONG(1)))
                    t.put(out, t["found"], t["i"])
                    t.add("found", 1)
                    t["known"] = LONG(1)
                with old:
                    same = b.icmp_unsigned("==", hash_at(b.sub(held, LONG(1))), mine)
                    t["known"] = b.zext(same, LONG)
            t.add("slot", 1)
        t.add("i", 1)
    return t.function(t["found"])


@lru_cache(maxsize=2)
def _merge(size: int) -> Any:
    """``merge(groups, lengths, positions, ends, following, heads, out, traces, room, count)``: see
    `merged`. Groups wait at their next parts, in lists: `heads` has the first of each part,
    `following` the next of each group, -1: none. The number of parts in `out`, whose numbers have
    so many bytes."""
    t = _Writer("merge", 8, 2, ("i", "low", "left", "parts", "next"))
    groups, lengths, positions, ends, following, heads, out, traces, room, count = t.given
    b, kind = t.b, ir.IntType(8 * size)

    def wait(i: Value, position: Value) -> None:
        """A group waits at its next part, which may be the lowest."""
        row = b.mul(t.word(groups, i), room)
        part = b.zext(t.word(traces, b.add(row, position), kind), LONG)
        t.put(following, i, t.word(heads, part))
        t.put(heads, part, i)
        t["low"] = b.select(t.less(part, t["low"]), part, t["low"])

    t["low"] = LONG(-1)
    with t.until(lambda: b.not_(t.less(t["i"], count))):
        with b.if_then(b.not_(t.equal(t.word(lengths, t["i"]), 0))):
            wait(t["i"], LONG(0))
            t.add("left", 1)
        t.add("i", 1)
    with t.until(lambda: t.equal(t["left"], 0)):
        with t.until(lambda: b.not_(t.equal(t.word(heads, t["low"]), -1))):
            t.add("low", 1)
        low = t["low"]
        t["next"] = t.word(heads, low)
        t.put(heads, low, LONG(-1))
        t.put(out, t["parts"], b.trunc(low, kind))
        t.add("low", 1)
        # All who wait at the lowest part execute it, and then wait at their next ones.
        with t.until(lambda: t.equal(t["next"], -1)):
            i = t["next"]
            t["next"] = t.word(following, i)
            position = b.add(t.word(positions, i), LONG(1))
            t.put(positions, i, position)
            t.put(ends, i, t["parts"])
            with b.if_else(t.less(position, t.word(lengths, i))) as (further, last):
                with further:
                    wait(i, position)
                with last:
                    t.add("left", -1)
        t.add("parts", 1)
    return t.function(t["parts"])
