"""Addresses of arrays, which native code reads and writes at."""

import numpy as np
import pytest

from emulator import arrays

HELD = np.arange(24, dtype=np.uint16).reshape(4, 6)
FIXED = HELD.copy()
FIXED.flags.writeable = False


@pytest.mark.parametrize(
    "x",
    [
        HELD,
        HELD[1:, 2],
        HELD[::-1],
        HELD.T,
        FIXED,
        np.array(3.5),
        np.empty((0, 4)),
        np.frombuffer(b"bytes", np.uint8),
        HELD.view(np.recarray),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_cpython", [True, False])
def test_addresses(x, is_cpython, monkeypatch):
    monkeypatch.setattr(arrays, "_IS_CPYTHON", is_cpython)
    assert arrays.address_of(x) == x.ctypes.data
