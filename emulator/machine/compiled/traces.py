"""Traces: the parts of a loop that groups of warps executed, merged into those of all together."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.words import LONG, POINTER
from emulator.arrays import address_of


def one_of_each(hashes: NDArray[np.int64]) -> Array:
    """Where among hashes one of each stands, ascending; mostly there are few different ones."""
    count, bits = len(hashes), _FEWEST
    while True:
        table, out = np.zeros(1 << bits, np.int64), np.empty(min(count, 1 << bits - 1), np.int64)
        room = address_of(table), (1 << bits) - 1, address_of(out), len(out)
        found = _distinct()(address_of(hashes), hashes.strides[0], count, *room)
        if found >= 0:
            return out[:found]
        bits += 4


#: bits of the number of entries of the first table of hashes
_FEWEST = 10
_DISTINCT = """
define i64 @distinct(ptr %hashes, i64 %step, i64 %count, ptr %table, i64 %mask, ptr %out, i64 %most)
{
enter:
  br label %next
next:
  %i = phi i64 [ 0, %enter ], [ %following, %known ]
  %n = phi i64 [ 0, %enter ], [ %found, %known ]
  %any = icmp ult i64 %i, %count
  br i1 %any, label %look, label %done
look:
  %offset = mul i64 %i, %step
  %place = getelementptr i8, ptr %hashes, i64 %offset
  %hash = load i64, ptr %place
  %upper = lshr i64 %hash, 40
  %following = add i64 %i, 1
  br label %probe
probe:
  %slot = phi i64 [ %upper, %look ], [ %another, %other ]
  %at = and i64 %slot, %mask
  %entry = getelementptr i64, ptr %table, i64 %at
  %held = load i64, ptr %entry
  %empty = icmp eq i64 %held, 0
  br i1 %empty, label %new, label %compare
compare:
  %owner = sub i64 %held, 1
  %there = mul i64 %owner, %step
  %first = getelementptr i8, ptr %hashes, i64 %there
  %before = load i64, ptr %first
  %same = icmp eq i64 %before, %hash
  br i1 %same, label %known, label %other
other:
  %another = add i64 %slot, 1
  br label %probe
new:
  %full = icmp uge i64 %n, %most
  br i1 %full, label %many, label %put
put:
  store i64 %following, ptr %entry
  %end = getelementptr i64, ptr %out, i64 %n
  store i64 %i, ptr %end
  %more = add i64 %n, 1
  br label %known
known:
  %found = phi i64 [ %n, %compare ], [ %more, %put ]
  br label %next
many:
  ret i64 -1
done:
  ret i64 %n
}"""


@lru_cache(maxsize=1)
def _distinct() -> Any:
    """``distinct(hashes, step, count, table, mask, out, most)``: see `one_of_each`. A table of
    zeros takes the number of a hash, from 1 on; -1: there are more than `most`."""
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    kinds = pointer, word, word, pointer, word, pointer, word
    return machine_code.function(_DISTINCT, "distinct", word, *kinds)


def merged(traces: Array, groups: Array, lengths: Array, parts: int) -> tuple[Array, Array]:
    """The parts, of so many, that groups execute whose traces have these lengths, the lowest first
    and together where they are at the same; and how many had been executed when each group went on
    last."""
    ends, out = np.zeros_like(lengths), np.empty(int(lengths.sum()), np.uint16)
    heads, positions, following = np.full(parts, -1), np.zeros_like(lengths), np.empty_like(lengths)
    arrays = groups, lengths, positions, ends, following, heads, out, traces
    count = _merge()(*map(address_of, arrays), traces.shape[1], len(groups))
    return out[:count], ends


@lru_cache(maxsize=1)
def _merge() -> Any:
    """``merge(groups, lengths, positions, ends, following, heads, out, traces, room, count)``: see
    `merged`. Groups wait at their next parts, in lists: `heads` has the first of each part,
    `following` the next of each group, -1: none. The number of parts in `out`."""
    half, module = ir.IntType(16), ir.Module("merge")
    type_ = ir.FunctionType(LONG, [*[POINTER] * 8, *[LONG] * 2])
    function = ir.Function(module, type_, "merge")
    groups, lengths, positions, ends, following, heads, out, traces, room, count = function.args
    enter, begin, one, first, begun, turn, find, take, each, further, last, gone, turned, done = (
        function.append_basic_block() for _ in range(14)
    )
    b, zero, number = ir.IRBuilder(enter), LONG(0), LONG(1)

    def word(array: Any, at: Any, kind: Any = LONG) -> Any:
        return b.load(b.gep(array, [at], source_etype=kind), typ=kind)

    def put(array: Any, at: Any, value: Any) -> None:
        b.store(value, b.gep(array, [at], source_etype=value.type))

    def phis(count: int) -> list[Any]:
        return [b.phi(LONG) for _ in range(count)]

    def come(phis: Sequence[Any], block: Any, *values: Any) -> None:
        for phi, value in zip(phis, values, strict=True):
            phi.add_incoming(value, block)

    def wait(i: Any, position: Any, least: Any) -> Any:
        """A group waits at its next part; the less of this and `least`."""
        part = word(traces, b.add(b.mul(word(groups, i), room), position), half)
        part = b.zext(part, LONG)
        put(following, i, word(heads, part))
        put(heads, part, i)
        return b.select(b.icmp_unsigned("<", part, least), part, least)

    b.branch(begin)
    b.position_at_end(begin)
    starting = i, least, waiting = phis(3)
    come(starting, enter, zero, LONG(-1), zero)
    b.cbranch(b.icmp_unsigned("<", i, count), one, turn)
    b.position_at_end(one)
    b.cbranch(b.icmp_unsigned("!=", word(lengths, i), zero), first, begun)
    b.position_at_end(first)
    lower, another = wait(i, zero, least), b.add(waiting, number)
    b.branch(begun)
    b.position_at_end(begun)
    known = phis(2)
    come(known, one, least, waiting)
    come(known, first, lower, another)
    come(starting, begun, b.add(i, number), *known)
    b.branch(begin)

    # All who wait at the lowest part execute it, and then wait at their next ones.
    b.position_at_end(turn)
    turning = parts, lowest, left = phis(3)
    come(turning, begin, zero, least, waiting)
    b.cbranch(b.icmp_unsigned("==", left, zero), done, find)
    b.position_at_end(find)
    (low,) = phis(1)
    head, higher = word(heads, low), b.add(low, number)
    come([low], turn, lowest)
    come([low], find, higher)
    b.cbranch(b.icmp_unsigned("==", head, LONG(-1)), find, take)
    b.position_at_end(take)
    put(heads, low, LONG(-1))
    put(out, parts, b.trunc(low, half))
    b.branch(each)
    b.position_at_end(each)
    going = j, now, lowest = phis(3)
    come(going, take, head, left, higher)
    behind, position = word(following, j), b.add(word(positions, j), number)
    put(positions, j, position)
    put(ends, j, parts)
    b.cbranch(b.icmp_unsigned("<", position, word(lengths, j)), further, last)
    b.position_at_end(further)
    new = wait(j, position, lowest)
    b.branch(gone)
    b.position_at_end(last)
    fewer = b.sub(now, number)
    b.branch(gone)
    b.position_at_end(gone)
    remaining, again = phis(2)
    come([remaining, again], further, now, new)
    come([remaining, again], last, fewer, lowest)
    come(going, gone, behind, remaining, again)
    b.cbranch(b.icmp_unsigned("==", behind, LONG(-1)), turned, each)
    b.position_at_end(turned)
    come(turning, turned, b.add(parts, number), again, remaining)
    b.branch(turn)
    b.position_at_end(done)
    b.ret(parts)
    kinds = [*[ctypes.c_void_p] * 8, *[ctypes.c_int64] * 2]
    return machine_code.function(str(module), "merge", ctypes.c_int64, *kinds)
