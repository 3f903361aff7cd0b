"""Memory that is kept for the next call."""

import numpy as np
import pytest

from emulator.arith.fast.scratch import LINE, Scratch
from emulator.memory.untouched import zeros


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_memory_starts_with_a_line_and_is_kept(size):
    kept = Scratch()
    room = kept.take(size)
    assert len(room) == size and room.ctypes.data % LINE == 0
    assert zeros(size).ctypes.data % LINE == 0
    address = room.ctypes.data
    kept.give_back(room[: size // 2].view(np.uint8))
    assert kept.take(size).ctypes.data == address


def test_too_much_is_not_kept():
    kept = Scratch(most=100)
    kept.give_back(kept.take(200))
    assert not kept._free


def test_several_arrays_are_kept_and_the_one_that_fits_is_taken():
    kept = Scratch(arrays=2)
    rooms = [kept.take(size) for size in (100, 5000, 20)]
    addresses = [room.ctypes.data for room in rooms]
    for room in rooms:
        kept.give_back(room)
    assert [len(x) for x in kept._free] == [5000 + LINE, 20 + LINE]
    assert kept.take(300).ctypes.data == addresses[1]
    assert kept.take(10).ctypes.data == addresses[2]
