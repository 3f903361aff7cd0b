"""Traces: the parts of a loop that groups of warps executed, merged into those of all together."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.fast.kernels import machine_code
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


#: groups wait at their next parts, in lists: `heads` has the first of each part, `following` the
#: next of each group, -1: none
_MERGE = """
define internal i64 @wait(ptr %groups, ptr %following, ptr %heads, ptr %traces, i64 %room, i64 %i,
  i64 %position, i64 %least)
{ ; a group waits at its next part; the less of this and `least`
  %group_at = getelementptr i64, ptr %groups, i64 %i
  %group = load i64, ptr %group_at
  %row = mul i64 %group, %room
  %place = add i64 %row, %position
  %word_at = getelementptr $part, ptr %traces, i64 %place
  %word = load $part, ptr %word_at
  %part = zext $part %word to i64
  %head_at = getelementptr i64, ptr %heads, i64 %part
  %head = load i64, ptr %head_at
  %following_at = getelementptr i64, ptr %following, i64 %i
  store i64 %head, ptr %following_at
  store i64 %i, ptr %head_at
  %lower = icmp ult i64 %part, %least
  %out = select i1 %lower, i64 %part, i64 %least
  ret i64 %out
}
define i64 @merge(ptr %groups, ptr %lengths, ptr %positions, ptr %ends, ptr %following, ptr %heads,
  ptr %out, ptr %traces, i64 %room, i64 %count)
{
enter:
  br label %begin
begin:
  %i = phi i64 [ 0, %enter ], [ %next, %begun ]
  %least = phi i64 [ -1, %enter ], [ %known_least, %begun ]
  %waiting = phi i64 [ 0, %enter ], [ %known_waiting, %begun ]
  %any = icmp ult i64 %i, %count
  br i1 %any, label %one, label %turn
one:
  %length_at = getelementptr i64, ptr %lengths, i64 %i
  %length = load i64, ptr %length_at
  %some = icmp ne i64 %length, 0
  br i1 %some, label %first, label %begun
first:
  %lower = call i64 @wait(ptr %groups, ptr %following, ptr %heads, ptr %traces, i64 %room, i64 %i,
    i64 0, i64 %least)
  %another = add i64 %waiting, 1
  br label %begun
begun:
  %known_least = phi i64 [ %least, %one ], [ %lower, %first ]
  %known_waiting = phi i64 [ %waiting, %one ], [ %another, %first ]
  %next = add i64 %i, 1
  br label %begin
turn: ; all who wait at the lowest part execute it, and then wait at their next ones
  %parts = phi i64 [ 0, %begin ], [ %more, %turned ]
  %lowest = phi i64 [ %least, %begin ], [ %again, %turned ]
  %left = phi i64 [ %waiting, %begin ], [ %remaining, %turned ]
  %over = icmp eq i64 %left, 0
  br i1 %over, label %done, label %find
find:
  %low = phi i64 [ %lowest, %turn ], [ %higher, %find ]
  %head_at = getelementptr i64, ptr %heads, i64 %low
  %head = load i64, ptr %head_at
  %higher = add i64 %low, 1
  %nobody = icmp eq i64 %head, -1
  br i1 %nobody, label %find, label %take
take:
  store i64 -1, ptr %head_at
  %part = trunc i64 %low to $part
  %out_at = getelementptr $part, ptr %out, i64 %parts
  store $part %part, ptr %out_at
  br label %each
each:
  %j = phi i64 [ %head, %take ], [ %behind, %gone ]
  %now = phi i64 [ %left, %take ], [ %remaining, %gone ]
  %lowest_now = phi i64 [ %higher, %take ], [ %again, %gone ]
  %behind_at = getelementptr i64, ptr %following, i64 %j
  %behind = load i64, ptr %behind_at
  %position_at = getelementptr i64, ptr %positions, i64 %j
  %before = load i64, ptr %position_at
  %position = add i64 %before, 1
  store i64 %position, ptr %position_at
  %end_at = getelementptr i64, ptr %ends, i64 %j
  store i64 %parts, ptr %end_at
  %all_at = getelementptr i64, ptr %lengths, i64 %j
  %all = load i64, ptr %all_at
  %goes_on = icmp ult i64 %position, %all
  br i1 %goes_on, label %further, label %last
further:
  %new = call i64 @wait(ptr %groups, ptr %following, ptr %heads, ptr %traces, i64 %room, i64 %j,
    i64 %position, i64 %lowest_now)
  br label %gone
last:
  %fewer = sub i64 %now, 1
  br label %gone
gone:
  %remaining = phi i64 [ %now, %further ], [ %fewer, %last ]
  %again = phi i64 [ %new, %further ], [ %lowest_now, %last ]
  %ended = icmp eq i64 %behind, -1
  br i1 %ended, label %turned, label %each
turned:
  %more = add i64 %parts, 1
  br label %turn
done:
  ret i64 %parts
}"""


@lru_cache(maxsize=2)
def _merge(size: int) -> Any:
    """``merge(groups, lengths, positions, ends, following, heads, out, traces, room, count)``: see
    `merged`. The number of parts in `out`, whose numbers have so many bytes."""
    text = Template(_MERGE).substitute(part=f"i{8 * size}")
    kinds = [*[ctypes.c_void_p] * 8, *[ctypes.c_int64] * 2]
    return machine_code.function(text, "merge", ctypes.c_int64, *kinds)
