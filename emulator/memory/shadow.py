"""Shadow state of memory for checks: the last writer and readers of each piece.

A piece, or *granule*, is as many bytes as the smallest access that a program can make, so that
what two threads do to neighbouring bytes is never taken for one place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.memory.untouched import grown

Events = NDArray[np.int32]
Places = NDArray[np.int64]
#: granules of global memory that are told apart at first sight: a power of two, by its exponent
_PAGE = 10


class SharedShadow:
    """Of the shared memory of several blocks: one row of granules after the other."""

    def __init__(self, blocks: int, size: int, granule: int, columns: int) -> None:
        self.granule = granule
        #: granules of a block
        self.row = -(-size // granule)
        count = blocks * self.row
        #: the event, the lane and the sort of the last write; event 0: nothing ever wrote it
        self.written = np.zeros(count, np.int32)
        self.writer = np.zeros(count, np.int32)
        self.sort = np.zeros(count, np.int8)
        #: of blocks, the event of the last write to any of their granules
        self.last_write = np.zeros(blocks, np.int32)
        #: sorts of writes that there were, but for 0
        self.any_sorts = self.any_copies = False
        #: holds what somebody wrote who had it from nobody
        self.undefined = np.zeros(count, np.bool_)
        self.any_undefined = False
        #: the last read of each column of readers, and its lane; of a warp a mask of the lanes
        self.read = np.zeros((columns, count), np.int32)
        self.reader = np.zeros((columns, count), np.int32)
        #: by column and block, the event of the last read that these arrays know of
        self.last_read = np.zeros((columns, blocks), np.int32)

    def unwritten(self, at: Places) -> NDArray[np.bool_]:
        """Mask of the granules that hold nothing that anybody meant to write."""
        out: NDArray[np.bool_] = self.written[at] == 0
        return out | self.undefined[at] if self.any_undefined else out

    def define(self, at: Places, undefined: NDArray[np.bool_] | None) -> None:
        """Marks the words just written to granules as defined or undefined."""
        if undefined is not None and undefined.any():
            self.any_undefined = True
            self.undefined[at] = undefined
        elif self.any_undefined:
            self.undefined[at] = False

    @staticmethod
    def bytes_of(size: int, granule: int, columns: int) -> int:
        """Bytes that the state of one block takes."""
        return size // granule * (10 + 8 * columns)


class GlobalShadow:
    """Of global memory: the last write, the last read, and the last read of another block."""

    def __init__(self, size: int, granule: int) -> None:
        self.granule = granule
        count = -(-size // granule)
        self.written, self.writer = np.zeros(count, np.int32), np.zeros(count, np.int32)
        self.sort = np.zeros(count, np.int8)
        self.read, self.reader = np.zeros((2, count), np.int32), np.zeros((2, count), np.int32)
        #: pages with granules that were written, and with such that were read
        self.pages_written, self.pages_read = np.zeros((2, (count >> _PAGE) + 1), np.bool_)

    @staticmethod
    def pages(at: Places) -> slice:
        """The pages among which some granules lie."""
        if not at.size:
            return slice(0)
        return slice(int(at.min()) >> _PAGE, (int(at.max()) >> _PAGE) + 1)

    @staticmethod
    def bytes_of(size: int, granule: int) -> int:
        """Bytes that the state takes."""
        return size // granule * 25

    def need(self, size: int) -> None:
        """Room for memory that has grown."""
        count = -(-size // self.granule)
        if count <= len(self.written):
            return
        for name in ("written", "writer", "sort", "read", "reader"):
            setattr(self, name, grown(getattr(self, name), count))
        for name in ("pages_written", "pages_read"):
            setattr(self, name, grown(getattr(self, name), (count >> _PAGE) + 1))


def granules(places: Places, size: int, granule: int) -> Places:
    """The granules ``(n, size / granule)`` of accesses of `size` bytes at places in bytes."""
    first: Places = places >> granule.bit_length() - 1  # a power of two: a division takes longer
    count = max(1, size // granule)
    if count == 1:
        return first[:, None]
    out: Places = first[:, None] + np.arange(count)
    return out


def index_of(at: Places) -> Places | slice:
    """Places as an index: a slice where each is the next one, then nothing is copied."""
    count = len(at)
    if count < 2 or at[-1] - at[0] != count - 1:
        return at
    first = int(at[0])
    return slice(first, first + count) if (np.diff(at) == 1).all() else at


def regrouped(flags: NDArray[np.bool_], columns: int) -> NDArray[np.bool_]:
    """Flags ``(n, pieces)`` of what accesses move, for pieces of another size: a larger piece has
    the flag where all its parts have it."""
    n, pieces = flags.shape
    if pieces <= columns:
        return np.repeat(flags, columns // pieces, axis=1)
    return np.asarray(flags.reshape(n, columns, -1).all(2))
