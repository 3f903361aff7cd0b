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
    ends, out = np.zeros_like(lengths), np.empty(int(lengths.sum()), traces.dtype)
    heads, positions, following = np.full(parts, -1), np.zeros_like(lengths), np.empty_like(lengths)
    arrays = groups, lengths, positions, ends, following, heads, out, traces
    count = _merge(traces.itemsize)(*map(address_of, arrays), traces.shape[1], len(groups))
    return out[:count], ends


@lru_cache(maxsize=2)
def _merge(size: int) -> Any:
    """``merge(groups, lengths, positions, ends, following, heads, out, traces, room, count)``: see
    `merged`. The number of parts in `out`, whose numbers have so many bytes."""
    kinds = [*[ctypes.c_void_p] * 8, *[ctypes.c_int64] * 2]
    return machine_code.function(str(_Merge(size).module), "merge", ctypes.c_int64, *kinds)


class _Merge:
    """The text of `_merge`. Groups wait at their next parts, in lists: `heads` has the first of
    each part, `following` the next of each group, -1: none."""

    def __init__(self, size: int) -> None:
        self.kind, self.module = ir.IntType(8 * size), ir.Module("merge")
        type_ = ir.FunctionType(LONG, [*[POINTER] * 8, *[LONG] * 2])
        function = ir.Function(self.module, type_, "merge")
        self.groups, self.lengths, self.positions, self.ends, *more = function.args
        self.following, self.heads, self.out, self.traces, self.room, self.count = more
        self.new_block, self.b = function.append_basic_block, ir.IRBuilder()
        self._turns(*self._begin())

    def _at(self, block: Any) -> None:
        self.b.position_at_end(block)

    def _word(self, array: Any, at: Any, kind: Any = LONG) -> Any:
        return self.b.load(self.b.gep(array, [at], source_etype=kind), typ=kind)

    def _put(self, array: Any, at: Any, value: Any) -> None:
        self.b.store(value, self.b.gep(array, [at], source_etype=value.type))

    def _phis(self, count: int) -> list[Any]:
        return [self.b.phi(LONG) for _ in range(count)]

    def _wait(self, i: Any, position: Any, least: Any) -> Any:
        """A group waits at its next part; the less of this and `least`."""
        b, row = self.b, self._word(self.groups, i)
        part = self._word(self.traces, b.add(b.mul(row, self.room), position), self.kind)
        part = b.zext(part, LONG)
        self._put(self.following, i, self._word(self.heads, part))
        self._put(self.heads, part, i)
        return b.select(b.icmp_unsigned("<", part, least), part, least)

    def _begin(self) -> tuple[Any, Any, Any, Any]:
        """Each group waits at its first part: where that is done and where it goes on, the lowest
        part, and how many wait."""
        b = self.b
        enter, begin, one, first, begun, turn = (self.new_block() for _ in range(6))
        self._at(enter)
        b.branch(begin)
        self._at(begin)
        starting = i, least, waiting = self._phis(3)
        _come(starting, enter, LONG(0), LONG(-1), LONG(0))
        b.cbranch(b.icmp_unsigned("<", i, self.count), one, turn)
        self._at(one)
        b.cbranch(b.icmp_unsigned("!=", self._word(self.lengths, i), LONG(0)), first, begun)
        self._at(first)
        lower, another = self._wait(i, LONG(0), least), b.add(waiting, LONG(1))
        b.branch(begun)
        self._at(begun)
        known = self._phis(2)
        _come(known, one, least, waiting)
        _come(known, first, lower, another)
        _come(starting, begun, b.add(i, LONG(1)), *known)
        b.branch(begin)
        return begin, turn, least, waiting

    def _turns(self, begin: Any, turn: Any, least: Any, waiting: Any) -> None:
        """All who wait at the lowest part execute it, and then wait at their next ones."""
        b, number = self.b, LONG(1)
        find, take, each, turned, done = (self.new_block() for _ in range(5))
        self._at(turn)
        turning = parts, lowest, left = self._phis(3)
        _come(turning, begin, LONG(0), least, waiting)
        b.cbranch(b.icmp_unsigned("==", left, LONG(0)), done, find)
        self._at(find)
        (low,) = self._phis(1)
        head, higher = self._word(self.heads, low), b.add(low, number)
        _come([low], turn, lowest)
        _come([low], find, higher)
        b.cbranch(b.icmp_unsigned("==", head, LONG(-1)), find, take)
        self._at(take)
        self._put(self.heads, low, LONG(-1))
        self._put(self.out, parts, b.trunc(low, self.kind))
        b.branch(each)
        self._at(each)
        going = j, now, lowest = self._phis(3)
        _come(going, take, head, left, higher)
        behind, remaining, again, gone = self._execute(j, now, lowest, parts)
        _come(going, gone, behind, remaining, again)
        b.cbranch(b.icmp_unsigned("==", behind, LONG(-1)), turned, each)
        self._at(turned)
        _come(turning, turned, b.add(parts, number), again, remaining)
        b.branch(turn)
        self._at(done)
        b.ret(parts)

    def _execute(self, j: Any, now: Any, lowest: Any, parts: Any) -> tuple[Any, Any, Any, Any]:
        """A group executes a part: the group behind it in the list, how many wait then, the lowest
        part at which one does, and where it goes on."""
        b = self.b
        further, last, gone = (self.new_block() for _ in range(3))
        behind = self._word(self.following, j)
        position = b.add(self._word(self.positions, j), LONG(1))
        self._put(self.positions, j, position)
        self._put(self.ends, j, parts)
        b.cbranch(b.icmp_unsigned("<", position, self._word(self.lengths, j)), further, last)
        self._at(further)
        new = self._wait(j, position, lowest)
        b.branch(gone)
        self._at(last)
        fewer = b.sub(now, LONG(1))
        b.branch(gone)
        self._at(gone)
        remaining, again = self._phis(2)
        _come([remaining, again], further, now, new)
        _come([remaining, again], last, fewer, lowest)
        return behind, remaining, again, gone


def _come(phis: Sequence[Any], block: Any, *values: Any) -> None:
    """The values of phis for those who come from a block."""
    for phi, value in zip(phis, values, strict=True):
        phi.add_incoming(value, block)
