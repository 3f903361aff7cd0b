"""The order that the library of an H200 took for each recorded size.

The file beside this one has, for every sweep, sizes and the order that gave the recorded bits, or
that no known order gave them. tests/hardware/torch_orders.py makes it of recordings.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dtypes import FORMATS
from emulator.matrices.library.rules import EXACT, Order, order_of

#: the chip whose library was recorded
RECORDED_ON = "H200"
#: properties that may differ on another chip
OTHER_CHIP = (
    f"the order of an {RECORDED_ON}; its number of multiprocessors decides on kernels and on how "
    "they split k, and another chip's may differ"
)
OTHER_GENERATION = f"the order of an {RECORDED_ON}; another generation has other kernels"

#: recorded: the order gave the recorded bits of this size; rule: sizes around it were recorded, and
#: all took this order; modelled: it is the order of another chip; none: not known
Evidence = Literal["recorded", "rule", "modelled", "none"]

#: sizes of m and n, and of k, that were recorded in all combinations
SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
         4096)  # fmt: skip
DEPTHS = (*SIZES[3:], 6144, 8192)
LAYOUTS = ("nt", "nn", "tn", "tt")
_UNKNOWN = -1
_CHAIN = Order()


class Choice(NamedTuple):
    """The order of a product, and how it is known."""

    order: Order
    evidence: Evidence
    why: str

    def at_most(self, evidence: Evidence, why: str) -> Choice:
        """The same with no more evidence than that."""
        weaker = min(self.evidence, evidence, key=_RANK.index)
        return Choice(self.order, weaker, "; ".join(filter(None, [why, self.why])))


#: kinds of evidence from the weakest up
_RANK: tuple[Evidence, ...] = ("none", "modelled", "rule", "recorded")


class Sweep(NamedTuple):
    """Recordings of an operation with operands of some types."""

    #: size, see `_key` -> place in `orders`; `_UNKNOWN` where no known order gives the bits
    places: dict[int, int]
    orders: tuple[Order, ...]


def choose_order(
    sweep: str, layout: str, batch: int, m: int, n: int, k: int, usual: Order = _CHAIN
) -> Choice:
    """The order that the library takes for a size, as far as recordings tell.

    `sweep` names operands and result such as "bf16", "bf16.f32" or "linear bf16"; layout "nt" means
    that A lies row by row and B column by column. `batch` is 0 for a product that is no batch, and
    `usual` the order to take where recordings do not tell.
    """
    if sweep in EXACT:
        return Choice(usual, "recorded", "exact in any order")
    table = _table(sweep)
    if table is None:
        return Choice(usual, "none", "no size of it was recorded")
    place = table.places.get(_key(layout, batch, m, n, k))
    if place is None:
        if not _is_aligned(sweep, layout, m, n, k):
            return Choice(usual, "none", "rows are no multiple of 16 bytes")
        return _around(table, usual, layout, batch, m, n, k)
    if place == _UNKNOWN:
        return Choice(usual, "none", "recorded, and no known order gives the bits")
    return Choice(table.orders[place], "recorded", "")


def _is_aligned(sweep: str, layout: str, m: int, n: int, k: int) -> bool:
    """True if rows, of A and B as they lie and of D, start at multiples of 16 bytes."""
    name = sweep.rpartition(" ")[2].partition(".")[0].removesuffix("slow")
    elements = 128 // FORMATS["f32" if name == "tf32" else name].bits
    rows = (k if layout[0] == "n" else m, k if layout[1] == "t" else n, n)
    return not any(size % elements for size in rows)


def _around(table: Sweep, usual: Order, layout: str, batch: int, m: int, n: int, k: int) -> Choice:
    """Chooses by the recorded sizes next to one."""
    corners = [table.places.get(_key(layout, batch, *size)) for size in _corners(m, n, k)]
    known = [x for x in corners if x is not None]
    if not known:
        return Choice(usual, "none", "no size near it was recorded")
    if all(x != _UNKNOWN and table.orders[x] == usual for x in known):
        return Choice(usual, "rule", f"the {len(known)} recorded sizes around it have this order")
    words = {"unknown" if x == _UNKNOWN else str(table.orders[x]) for x in known}
    return Choice(usual, "none", f"recorded sizes around it have other orders: {min(words)}")


def _corners(m: int, n: int, k: int) -> list[tuple[int, int, int]]:
    """The recorded sizes between which one lies."""
    return list(product(_between(SIZES, m), _between(SIZES, n), _between(DEPTHS, k)))


def _between(sizes: tuple[int, ...], size: int) -> set[int]:
    above = bisect_left(sizes, size)
    if above < len(sizes) and sizes[above] == size:
        return {size}
    return {*sizes[max(above - 1, 0) : above], *sizes[above : above + 1]}


def _key(layout: str, batch: int, m: int, n: int, k: int) -> int:
    return ((((LAYOUTS.index(layout) << 16) + batch << 24) + m << 24) + n << 24) + k


@lru_cache(maxsize=32)
def _table(sweep: str) -> Sweep | None:
    path = Path(__file__).with_name("h200_orders.npz")
    with np.load(path) as file:
        if sweep not in file.files:
            return None
        rows, orders = file[sweep].tolist(), json.loads(bytes(file["orders"]))
    places = {_key(LAYOUTS[layout], *size): place for layout, *size, place in rows}
    return Sweep(places, tuple(order_of(x) for x in orders))
