"""Traces: the parts of a loop that groups of warps executed, merged into those of all together."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from dtypes import Array
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.words import LONG, POINTER
from emulator.arrays import address_of


def one_of_each(hashes: Array) -> Array:
    """Where among hashes of 8 bytes one of each stands, ascending: by their upper bits, as sorting
    takes ten times as long."""
    chosen, left = np.zeros(len(hashes), np.bool_), np.arange(len(hashes))
    table = np.empty(1 << 16, np.int64)
    while len(left):
        places = hashes[left] >> 48 & 0xFFFF
        table[places] = left
        found = table[places]
        chosen[found] = True
        left = left[hashes[found] != hashes[left]]
    return np.flatnonzero(chosen)


def merged(traces: Array, lengths: Array, ends: Array) -> Array:
    """The parts that groups execute whose traces have these lengths, the lowest first and together
    where they are at the same; `ends` takes how many had been executed when each went on last."""
    active = np.flatnonzero(lengths)
    if not len(active):
        return np.zeros(0, np.uint16)
    positions, out = np.zeros_like(lengths), np.empty(int(lengths.sum()), np.uint16)
    arrays = map(address_of, (active, lengths, positions, ends, out, traces))
    low = int(traces[active, 0].min())
    count = _merge()(*arrays, traces.shape[1], len(active), low)
    return out[:count]


def _put(b: Any, value: Any, place: Any, at: Any) -> None:
    b.store(value, b.gep(place, [at], source_etype=value.type))


def _phi(b: Any, *incoming: tuple[Any, Any]) -> Any:
    """A word that comes from several blocks."""
    made = b.phi(LONG)
    for value, block in incoming:
        made.add_incoming(value, block)
    return made


@lru_cache(maxsize=1)
def _merge() -> Any:
    """``merge(active, lengths, positions, ends, out, traces, room, count, low)``: see `merged`.
    The first `count` of `active` are the traces that are not over, `low` is the lowest part that
    one of them starts with; the number of parts in `out`."""
    half, module = ir.IntType(16), ir.Module("merge")
    type_ = ir.FunctionType(LONG, [*[POINTER] * 6, *[LONG] * 3])
    function = ir.Function(module, type_, "merge")
    active, lengths, positions, ends, out, traces, room, count, first = function.args
    before, turn, each, here, over, stays, following, turned, done = (
        function.append_basic_block() for _ in range(9)
    )
    b = ir.IRBuilder(before)

    def word(place: Any, at: Any) -> Any:
        return b.load(b.gep(place, [at], source_etype=LONG), typ=LONG)

    def part_at(trace: Any, at: Any) -> Any:
        place = b.gep(traces, [b.add(b.mul(trace, room), at)], source_etype=half)
        return b.zext(b.load(place, typ=half), LONG)

    b.branch(turn)
    b.position_at_end(turn)
    parts, low, left = (_phi(b, (x, before)) for x in (LONG(0), first, count))
    _put(b, b.trunc(low, half), out, parts)
    b.branch(each)

    # Each trace at the lowest part goes on; the next lowest part is found meanwhile.
    b.position_at_end(each)
    j, now, lowest = (_phi(b, (x, turn)) for x in (LONG(0), left, LONG(-1)))
    trace = word(active, j)
    at = word(positions, trace)
    part = part_at(trace, at)
    b.cbranch(b.icmp_unsigned("==", part, low), here, stays)
    b.position_at_end(here)
    further = b.add(at, LONG(1))
    _put(b, further, positions, trace)
    _put(b, parts, ends, trace)
    b.cbranch(b.icmp_unsigned("<", further, word(lengths, trace)), stays, over)
    b.position_at_end(over)
    fewer = b.sub(now, LONG(1))
    _put(b, word(active, fewer), active, j)
    b.branch(following)
    b.position_at_end(stays)
    part = part_at(trace, _phi(b, (at, each), (further, here)))
    lower = b.select(b.icmp_unsigned("<", part, lowest), part, lowest)
    another = b.add(j, LONG(1))
    b.branch(following)
    b.position_at_end(following)
    next_j, next_now = _phi(b, (j, over), (another, stays)), _phi(b, (fewer, over), (now, stays))
    next_lowest = _phi(b, (lowest, over), (lower, stays))
    for value, after in ((j, next_j), (now, next_now), (lowest, next_lowest)):
        value.add_incoming(after, following)
    b.cbranch(b.icmp_unsigned("<", next_j, next_now), each, turned)

    b.position_at_end(turned)
    more = b.add(parts, LONG(1))
    for value, after in ((parts, more), (low, next_lowest), (left, next_now)):
        value.add_incoming(after, turned)
    b.cbranch(b.icmp_unsigned("==", next_now, LONG(0)), done, turn)
    b.position_at_end(done)
    b.ret(more)
    kinds = [*[ctypes.c_void_p] * 6, *[ctypes.c_int64] * 3]
    return machine_code.function(str(module), "merge", ctypes.c_int64, *kinds)
