"""All engines: the lane that wins where several of a warp store to one place (PTX ISA 9.7.9.11
leaves it undefined).

An H200 moves 128 bytes at a time: all 32 lanes of an access of up to 4 bytes, 16 lanes of one of 8,
8 lanes of one of 16. These groups go one after the other, lowest lanes first, and within a group
the lowest lane wins. Measured for st of every size and of vectors to shared and to global memory,
weak, volatile and release: 120 patterns of addresses and active lanes each, the same every time.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from emulator.layout.lanemap import WARP

_AT_ONCE = 128


def within_group(size: int) -> int:
    """The bits of a lane's number that say which place it has in its group."""
    return min(WARP, _AT_ONCE // max(size, 4)) - 1


def storing_order(lanes: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Positions of lanes, ascending over warps, in the order in which accesses of `size` bytes
    reach memory if the last one at a place stays: a lane behind the higher ones of its group."""
    bits = within_group(size)
    count = len(lanes)
    if count % WARP == 0 and lanes[-1] - lanes[0] == count - 1 and lanes[0] % WARP == 0:
        return _of_whole_warps(count, bits)
    return np.argsort(lanes ^ bits, kind="stable")


@lru_cache(64)
def _of_whole_warps(count: int, bits: int) -> NDArray[np.int64]:
    order = np.arange(count) ^ bits
    order.flags.writeable = False
    return order
