"""Registers near the processor: while warps take turns in a native function, theirs lie in the
stack of its thread.

Far from it, in memory of the call, are only those that somebody reads after the turns: most of a
kernel's registers never leave the cache, and the memory of a call is hardly touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from dtypes import Array
from emulator.arith.fast.words import BIT, LONG, POINTER, WORD, Value
from emulator.machine.compiled.warp_emitter import WarpEmitter
from emulator.ptx.program import Function

#: bytes of stack for the registers of all warps that take turns
MOST = 1 << 18
#: words of an entry of a table: the number of an argument, where it lies near for each warp, bytes
_ENTRY = ("number", "offset", "size")
#: bytes that are moved at a time; registers take a multiple of it
_STEP = 32


def table_of(
    function: Function, entries: Sequence[tuple[int, int, int]], live: Mapping[int, Iterable[int]]
) -> Array:
    """What `place` and `move` are told: how many registers there are; where in the entries those
    start and end that are to be moved, first of a warp that is at several places or at one that is
    not known, then of one at each statement of the function; the entries. `live`: which entries
    are read from a statement on."""
    count = function.end - function.first
    ranges = np.zeros((1 + count, 2), np.int64)
    ranges[:, 1] = len(entries)
    rows = list(entries)
    for pc, chosen in live.items():
        if 0 <= pc - function.first < count:
            start = len(rows)
            rows += [entries[i] for i in chosen]
            ranges[1 + pc - function.first] = start, len(rows)
    flat = np.array(rows, np.int64).reshape(-1)
    return np.concatenate([[len(entries)], ranges.reshape(-1), flat])


def _each(b: Any, start: Value, end: Value, step: int, run: Callable[[Value], None]) -> None:
    """`run` for numbers from `start` to before `end`."""
    before, loop, after = b.block, b.append_basic_block("each"), b.append_basic_block("after")
    b.cbranch(b.icmp_unsigned("<", start, end), loop, after)
    b.position_at_end(loop)
    at = b.phi(LONG)
    at.add_incoming(start, before)
    run(at)
    following = b.add(at, LONG(step))
    at.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, end), loop, after)
    b.position_at_end(after)


def _word(b: Any, array: Value, at: Value) -> Value:
    return b.load(b.gep(array, [at], source_etype=LONG), typ=LONG)


def _entry(b: Any, table: Value, statements: Value, number: Value) -> list[Value]:
    """The words of an entry."""
    entries = b.add(LONG(3), b.shl(statements, LONG(1)))
    first = b.add(entries, b.mul(number, LONG(len(_ENTRY))))
    return [_word(b, table, b.add(first, LONG(i))) for i in range(len(_ENTRY))]


def copy_words(b: Any, to: Value, source: Value, count: Value) -> None:
    """Copies words of 8 bytes."""

    def copy(at: Value) -> None:
        b.store(_word(b, source, at), b.gep(to, [at], source_etype=LONG))

    _each(b, LONG(0), count, 1, copy)


def place(e: WarpEmitter, function: Function, *given: Value) -> None:
    """Says in arguments that registers lie near: `given` are the arguments, the table, the address
    at which the row of the first warp would start, and the bytes from warp to warp."""
    statements = LONG(function.end - function.first)
    e.outlined("place", ir.VoidType(), _write_places, statements, *given)


def _write_places(
    e: WarpEmitter, statements: Value, places: Value, table: Value, start: Value, row: Value
) -> None:
    b = e.builder

    def one(number: Value) -> None:
        argument, offset, _ = _entry(b, table, statements, number)
        at = b.shl(argument, LONG(1))
        for i, word in enumerate((b.add(start, offset), row)):
            b.store(word, b.gep(places, [b.add(at, LONG(i))], source_etype=LONG))

    _each(b, LONG(0), _word(b, table, LONG(0)), 1, one)


def move(e: WarpEmitter, function: Function, *given: Value, inward: bool) -> None:
    """Copies the registers of a warp that are read from where it is: `given` are the arguments far
    and near, the table, the warp, its lowest pc, the lanes there, and all its lanes."""
    here = LONG(function.first), LONG(function.end - function.first)
    e.outlined("move", ir.VoidType(), _copy_registers, *here, *given, BIT(int(inward)))


def _copy_registers(e: WarpEmitter, first_pc: Value, statements: Value, *words: Value) -> None:
    b = e.builder
    far, near, table, warp, low, mask, whole, way = words
    at = b.sub(b.zext(low, LONG), first_pc)
    known = b.and_(b.icmp_unsigned("==", mask, whole), b.icmp_unsigned("<", at, statements))
    at = b.shl(b.select(known, b.add(at, LONG(1)), LONG(0)), LONG(1))
    start, end = (_word(b, table, b.add(at, LONG(1 + i))) for i in range(2))

    def one(number: Value) -> None:
        argument, _, size = _entry(b, table, statements, number)
        pair, places = b.shl(argument, LONG(1)), []
        for array in (far, near):
            first, step = (_word(b, array, b.add(pair, LONG(i))) for i in range(2))
            places.append(b.add(first, b.mul(warp, step)))
        to, source = (b.select(way, places[i], places[1 - i]) for i in (1, 0))
        kind = ir.VectorType(WORD, _STEP // 4)

        def copy(done: Value) -> None:
            held = b.load(b.inttoptr(b.add(source, done), POINTER), typ=kind, align=4)
            b.store(held, b.inttoptr(b.add(to, done), POINTER), align=4)

        _each(b, LONG(0), size, _STEP, copy)

    _each(b, start, end, 1, one)
