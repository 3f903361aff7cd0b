"""Vector engine: atomic operations of many lanes, as if one lane after the other did them.

Where several lanes meet at one location, `arith.scalar.atomic_series` says what each of them finds;
what it does not know goes in turns, one operation on each location in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.scalar.atomic_series import Series, counts_of, starts_of
from emulator.machine.vector import memory
from emulator.machine.vector.memory import Addresses, Places, Positions
from emulator.machine.vector.strand import Strand


class Update(NamedTuple):
    """The update that lanes make at their locations."""

    #: ``rule(old, *operands)`` gives what is there afterwards
    rule: Callable[..., Array]
    series: Series
    #: words of an access, each a location by itself
    elements: int
    #: the previous value is wanted
    wanted: bool


def update(
    s: Strand,
    space: str,
    addresses: Addresses,
    words: Sequence[Array],
    operation: Update,
    positions: Positions = None,
) -> Array:
    """Operations in ascending order of lanes, or the schedule's: what was there before each, which
    means nothing where it is not wanted."""
    lanes = len(s) if positions is None else len(positions)
    words = [x if len(x) == lanes else x.repeat(lanes, 0) for x in words]
    size = words[0].itemsize * (words[0].shape[1] if words[0].ndim > 1 else 1)
    old = np.empty(words[0].shape, words[0].dtype)
    watch, schedule = s.wave.watch, s.wave.grid.schedule

    def change(view: Array, places: Places, chosen: Positions) -> None:
        if chosen is None and len(places) < lanes:
            places = np.full(lanes, places[0])
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
    view: Array, places: Places, operands: tuple[Array, ...], operation: Update
) -> tuple[Array, bool]:
    """Performs operations in their order: what each finds, and whether any of them changes
    anything."""
    series, swaps = operation.series, False
    if operation.series.operation == "cas" and view.ndim == 1:
        swaps = len(places) <= np.iinfo(view.dtype).max
        if (places == places[0]).all():
            done = _swap_at_one(view[places[0] :], *operands)
            if done is not None:
                return done
    first = view[places]
    if not operation.wanted and series.ufunc is not None and series.tells_of(first, *operands):
        held = series.numbers(view)
        series.ufunc.at(held, places, series.numbers(np.ascontiguousarray(operands[0])))
        after = view[places]
        if not series.type.is_float or np.isfinite(series.numbers(after)).all():
            return first, bool((after != first).any())
        view[places] = first
    if (places[1:] > places[:-1]).all():
        after = operation.rule(first, *operands)
        view[places] = after
        return first, bool((after != first).any())
    if swaps:
        done = _compare_and_swap(view, places, first, *operands)
        if done is not None:
            return done
    order, starts = _by_place(places)
    at = places[order[starts]]
    found = series.found(view[at], tuple(x[order] for x in operands), starts)
    if found is None:
        return _in_turns(view, places, operands, operation.rule, order, starts)
    before = np.empty_like(first)
    before[order], view[at] = found
    return before, bool((before != first).any() or (view[at] != first[order[starts]]).any())


def _swap_at_one(view: Array, b: Array, c: Array) -> tuple[Array, bool] | None:
    """The value that each compare-and-swap of the first word finds, and whether any of them changes
    it; None, and nothing has happened, where several do."""
    before = np.full(len(b), view[0])
    chosen = ((b == view[0]) & (b != c)).nonzero()[0]
    if not len(chosen):
        return before, False
    number = int(chosen[0])
    behind, after = slice(number + 1, None), c[number]
    if ((b[behind] == after) & (c[behind] != after)).any():
        return None
    before[behind] = view[0] = after
    return before, True


def _compare_and_swap(
    view: Array, places: Places, first: Array, b: Array, c: Array
) -> tuple[Array, bool] | None:
    """The same at many locations, which hold `first`; None where one changes several times.

    For a moment a location holds the number of the operation that changes it: the first one that
    expects what is there. So no order by locations is needed.
    """
    count, every = len(places), np.arange(len(places))
    chosen = ((b == first) & (b != c)).nonzero()[0]
    if not len(chosen):
        return first, False
    # Of numbers for one location the last is kept.
    if len(chosen) == count:
        view[places[::-1]] = every[::-1]
        number = view[places]
        view[places] = after = c[number]
        return np.where(number == every, first, after), True
    view[places] = count
    view[places[chosen[::-1]]] = chosen[::-1]
    number = view[places]
    behind, changed = (number < every).nonzero()[0], (number < count).nonzero()[0]
    before = first.copy()
    after = before[behind] = c[number[behind]]
    view[places] = first
    if ((b[behind] == after) & (c[behind] != after)).any():
        return None
    view[places[changed]] = c[number[changed]]
    return before, True


def _by_place(places: Places) -> tuple[Places, Places]:
    """The order that brings operations on one location together, earlier ones first, and where each
    location starts in it."""
    above = places - places.min()
    if above.max() < 1 << 16:  # NumPy has a stable sort of 16 bits alone that compares nothing
        short = above.astype(np.uint16)
        order = np.argsort(short, kind="stable")
        return order, starts_of(short[order])
    # A sort of plain numbers is several times faster than a stable one of positions.
    bits = len(places).bit_length()
    keys = np.sort(above << bits | np.arange(len(places)))
    return keys & ((1 << bits) - 1), starts_of(keys >> bits)


def _in_turns(
    view: Array,
    places: Places,
    operands: tuple[Array, ...],
    rule: Callable[..., Array],
    order: Places,
    starts: Places,
) -> tuple[Array, bool]:
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
    counts = counts_of(starts, len(order))
    turn = np.arange(len(order)) - np.repeat(starts, counts)
    by_turn = np.argsort(turn, kind="stable")
    return np.split(order[by_turn], np.cumsum(np.bincount(turn))[:-1])
