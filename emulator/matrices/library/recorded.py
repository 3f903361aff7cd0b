"""Which order the library of an H200 took for the sizes that were recorded.

The file beside this one has, for every sweep, sizes and the order that gave the recorded bits:
the elements of k of each part of a kernel that is split over k, 0 for one chain, or that no known
order gave them.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dtypes import Array

#: recorded: the order gave the recorded bits of this size; rule: sizes around it were recorded, and
#: all took this order; none: not known
Evidence = Literal["recorded", "rule", "none"]

#: sizes of m and n, and of k, that were recorded in all combinations
SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
         4096)  # fmt: skip
DEPTHS = (*SIZES[3:], 6144, 8192)
LAYOUTS = ("nt", "nn", "tn", "tt")
_UNKNOWN = -1


class Choice(NamedTuple):
    """The order of a product, and how it is known."""

    #: elements of k of each part; 0: one chain
    part: int
    evidence: Evidence
    why: str


def choose_order(sweep: str, layout: str, batch: int, m: int, n: int, k: int) -> Choice:
    """The order that the library takes for a size, as far as recordings tell.

    `sweep` names operands and result such as "bf16" or "bf16.f32"; layout "nt" means that A lies
    row by row and B column by column. `batch` is 0 for a product that is no batch.
    """
    table = _table().get(sweep)
    if table is None:
        return Choice(0, "rule", "no size of it was recorded")
    part = table.get(_key(layout, batch, m, n, k))
    if part is None:
        return _around(table, layout, batch, m, n, k)
    if part == _UNKNOWN:
        return Choice(0, "none", "recorded, and no known order gives the bits")
    return Choice(part, "recorded", "")


def _around(table: dict[int, int], layout: str, batch: int, m: int, n: int, k: int) -> Choice:
    """What the recorded sizes next to one say."""
    corners = [
        table.get(_key(layout, batch, *size))
        for size in _corners(m, n, k)
    ]  # fmt: skip
    known = [x for x in corners if x is not None]
    if not known:
        return Choice(0, "none", "no size near it was recorded")
    if any(known):
        parts = ", ".join(
            sorted({"unknown" if x == _UNKNOWN else f"parts of {x}" for x in known if x})
        )
        return Choice(0, "none", f"of the recorded sizes around it some are split: {parts}")
    return Choice(0, "rule", f"the {len(known)} recorded sizes around it are one chain")


def _corners(m: int, n: int, k: int) -> list[tuple[int, int, int]]:
    axes = [_between(SIZES, m), _between(SIZES, n), _between(DEPTHS, k)]
    return [(x, y, z) for x in axes[0] for y in axes[1] for z in axes[2]]


def _between(sizes: tuple[int, ...], size: int) -> set[int]:
    at = int(np.searchsorted(sizes, size))
    return {sizes[max(at - 1, 0)] if sizes[min(at, len(sizes) - 1)] != size else size,
            sizes[min(at, len(sizes) - 1)]}  # fmt: skip


def _key(layout: str, batch: int, m: int, n: int, k: int) -> int:
    return (((LAYOUTS.index(layout) << 8 | min(batch, 255)) << 16 | m) << 16 | n) << 16 | k


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[int, int]]:
    path = Path(__file__).with_name("h200_orders.npz")
    if not path.exists():
        return {}
    with np.load(path) as file:
        return {name: _rows(file[name]) for name in file.files}


def _rows(rows: Array) -> dict[int, int]:
    return {
        _key(LAYOUTS[layout], batch, m, n, k): part
        for layout, batch, m, n, k, part in rows.tolist()
    }
