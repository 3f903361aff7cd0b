"""Atomic operations of many lanes, as if one lane after the other did them.

Where several lanes meet at one location, `arith.scalar.atomic_series` says what each of them finds;
what it does not know goes in turns, one operation on each location in each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.scalar.atomic_series import Series
from emulator.machine.vector import memory
from emulator.machine.vector.memory import Addresses, Places, Positions
from emulator.machine.vector.strand import Strand


class Operation(NamedTuple):
    """What lanes do at their locations."""

    #: ``rule(old, *operands)`` gives what is there afterwards
    rule: Callable[..., Array]
    series: Series
    #: words of an access, each a location by itself
    elements: int
    #: what was there before is asked for
    wanted: bool


def update(
    s: Strand,
    space: str,
    addresses: Addresses,
    words: tuple[Array, ...],
    operation: Operation,
    positions: Positions = None,
) -> Array:
    """Operations in ascending order of lanes, or the schedule's: what was there before each, which
    means nothing where it is not wanted."""
    lanes = len(s) if positions is None else len(positions)
    addresses = np.broadcast_to(addresses, (lanes,))
    words = tuple(np.broadcast_to(x, (lanes, *x.shape[1:])) for x in words)
    size = words[0].itemsize * (words[0].shape[1] if words[0].ndim > 1 else 1)
    old = np.empty(words[0].shape, words[0].dtype)
    watch, schedule = s.wave.watch, s.wave.grid.schedule

    def change(view: Array, places: Places, chosen: Positions) -> None:
        if watch is not None:
            watch.updated(s, view, places, size, memory.among(positions, chosen))
        order = slice(None) if chosen is None else chosen
        if schedule and len(places) > 1:
            mixed = schedule.order(len(places))
            places, order = places[mixed], mixed if chosen is None else chosen[mixed]
        given = tuple(x[order] for x in words)
        if operation.elements == 1:
            found = perform(view, places, given, operation)
        else:
            dtype, count = operation.series.type.dtype, operation.elements
            elements = places[:, None] * count + np.arange(count)
            parts = tuple(np.ascontiguousarray(x).reshape(-1).view(dtype) for x in given)
            found = perform(view.reshape(-1).view(dtype), elements.reshape(-1), parts, operation)
        before, changed = found
        s.wave.grid.progress += changed
        if operation.wanted:
            old[order] = before.view(old.dtype).reshape(given[0].shape)

    memory.access(s, space, addresses, size, change, positions, write=True)
    return old


def perform(
    view: Array, places: Places, operands: tuple[Array, ...], operation: Operation
) -> tuple[Array, bool]:
    """Performs operations in their order: what each finds, and whether any of them changes
    anything."""
    series, first = operation.series, view[places]
    if not operation.wanted and series.ufunc is not None and series.tells_of(first, *operands):
        held = series.numbers(view)
        with np.errstate(all="ignore"):
            series.ufunc.at(held, places, series.numbers(np.ascontiguousarray(operands[0])))
        after = view[places]
        if not series.type.is_float or np.isfinite(series.numbers(after)).all():
            return first, bool((after != first).any())
        view[places] = first
    order, starts = _by_place(places)
    if order is None:
        after = operation.rule(first, *operands)
        view[places] = after
        return first, bool((after != first).any())
    at = places[order[starts]]
    found = series.found(view[at], tuple(x[order] for x in operands), starts)
    if found is None:
        return _in_turns(view, places, operands, operation.rule, order, starts)
    before = np.empty_like(first)
    before[order], view[at] = found
    return before, bool((before != first).any() or (view[at] != first[order[starts]]).any())


def _by_place(places: Places) -> tuple[Places | None, Places]:
    """The order that brings operations on one location together, earlier ones first, and where each
    location starts in it; None where all are different."""
    count = len(places)
    every = np.arange(count)
    if (places[1:] > places[:-1]).all():
        return None, every
    # A sort of plain numbers is several times faster than a stable one of positions.
    bits = count.bit_length()
    keys = np.sort((places - places.min()) << bits | every)
    starts = np.flatnonzero(np.diff(keys >> bits, prepend=-1))
    return (None if len(starts) == count else keys & ((1 << bits) - 1)), starts


def _in_turns(
    view: Array, places: Places, operands: tuple[Array, ...], rule: Callable[..., Array],
    order: Places, starts: Places,
) -> tuple[Array, bool]:  # fmt: skip
    """One operation on each location after the other."""
    before = np.empty((len(places), *view.shape[1:]), view.dtype)
    changed = False
    for turn in _turns(order, starts):
        at = places[turn]
        found = before[turn] = view[at]
        after = rule(found, *(x[turn] for x in operands))
        view[at] = after
        changed |= bool((after != found).any())
    return before, changed


def _turns(order: Places, starts: Places) -> list[Places]:
    """The operations of each turn."""
    counts = np.diff(starts, append=len(order))
    turn = np.arange(len(order)) - np.repeat(starts, counts)
    by_turn = np.argsort(turn, kind="stable")
    return np.split(order[by_turn], np.cumsum(np.bincount(turn))[:-1])
