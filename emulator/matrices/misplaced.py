"""Hints about swapped matrices, with which a message about shapes or types ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import permutations, product
from typing import Any, NamedTuple

import numpy as np

from dtypes import array_type
from emulator.arith.recipes import Arithmetic
from emulator.errors import OperandError

#: rows and columns of A, B and C by their names
_AXES = (("m", "k"), ("k", "n"), ("m", "n"))


class _Given(NamedTuple):
    """A matrix as it was given, as the same transposed, or in another place."""

    place: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    transposed: bool = False

    @property
    def t(self) -> _Given:
        return self._replace(shape=self.shape[::-1], transposed=True)


@contextmanager
def misplaced_named(
    arithmetic: Arithmetic,
    codes: bool,
    sizes: Mapping[str, int],
    a: object,
    b: object,
    c: object = None,
) -> Iterator[None]:
    """Where operands are refused although they would fit transposed or in each other's places, the
    message says so. `sizes` are those of m, n and k that are fixed."""
    try:
        yield
    except OperandError as error:
        formats = (arithmetic.a, arithmetic.b, arithmetic.c)
        wanted = [None if codes else array_type(fmt) for fmt in formats]
        given = [_given(name, x) for name, x in zip("ABC", (a, b, c), strict=True) if x is not None]
        found = _arranged([x for x in given if x is not None], wanted, sizes)
        if len(found) != 1 or None in given:
            raise
        raise OperandError(f"{error}; {_said(found[0])}") from None


def _given(place: str, values: object) -> _Given | None:
    """None for what is no matrix."""
    shape: tuple[int, ...] = getattr(values, "shape", ())
    dtype = getattr(values, "dtype", None)
    if dtype is None or len(shape) < 2:
        return None
    return _Given(place, (shape[-2], shape[-1]), dtype)


def _arranged(
    given: list[_Given], wanted: list[np.dtype[Any] | None], sizes: Mapping[str, int]
) -> list[tuple[_Given, ...]]:
    """The ways to fit the matrices that change least; one that changes nothing is not among them,
    since it was refused."""
    best: list[tuple[_Given, ...]] = []
    least = len(given) + 1
    for order in permutations(given):
        for turned in product((False, True), repeat=len(order)):
            way = tuple(x.t if turn else x for x, turn in zip(order, turned, strict=True))
            moved = sum(x.place != name for x, name in zip(way, "ABC", strict=False))
            cost = moved + sum(turned)
            if cost and cost <= least and _fits(way, wanted, sizes):
                best = [way] if cost < least else [*best, way]
                least = cost
    return best


def _fits(
    way: tuple[_Given, ...], wanted: list[np.dtype[Any] | None], sizes: Mapping[str, int]
) -> bool:
    known = dict(sizes)
    for x, axes, dtype in zip(way, _AXES, wanted, strict=False):
        if dtype is not None and x.dtype != dtype:
            return False
        for axis, size in zip(axes, x.shape, strict=True):
            if known.setdefault(axis, size) != size:
                return False
    return True


def _said(way: tuple[_Given, ...]) -> str:
    moved = [name for x, name in zip(way, "ABC", strict=False) if x.place != name]
    turned = [f"{x.place}.T" for x in way if x.transposed]
    if not moved:
        return f"{' and '.join(turned)} would fit: transposed?"
    if len(moved) == 2 and not turned:
        return f"{' and '.join(moved)} would fit in each other's places: swapped?"
    spelled = [x.place + (".T" if x.transposed else "") for x in way]
    return f"({', '.join(spelled)}) would fit as ({', '.join('ABC'[: len(way)])}): in other places?"
