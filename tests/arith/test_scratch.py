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


def test_too_much_is_not_kept(monkeypatch):
    monkeypatch.setattr(Scratch, "_MOST", 100)
    kept = Scratch()
    kept.give_back(kept.take(200))
    assert not kept._free
