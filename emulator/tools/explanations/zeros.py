"""Zeros among the k of a dot product, many of them in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from emulator.errors import runs

#: zeros in a row that become one line
_FEWEST = 3


def without_zeros(codes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, how many): each place by itself, but three or more zeros in a row together.

    >>> list(without_zeros([7, 0, 0, 0, 5, 0]))
    [(0, 1), (1, 3), (4, 1), (5, 1)]
    """
    start = 0
    for live, group in groupby(codes, bool):
        count = len(list(group))
        if not live and count >= _FEWEST:
            yield start, count
        else:
            yield from ((i, 1) for i in range(start, start + count))
        start += count


def k_text(ks: Sequence[int | str], room: int = 200) -> str:
    """``5``, ``2-15``; the first and the last where they are not numbers, or there is no room.

    >>> k_text(["halves 3, 2", 2, 4])
    'halves 3, 2 … 4'
    """
    numbers = [k for k in ks if isinstance(k, int)]
    if len(numbers) == len(ks) and len(text := runs(numbers)) <= room:
        return text
    return str(ks[0]) if len(ks) == 1 else f"{ks[0]} … {ks[-1]}"
