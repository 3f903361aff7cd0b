"""Fixtures of all tests of launches."""

import zlib
from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True)
def level_of_segments(request, monkeypatch):
    """Compiles segments with all optimisations at once in half of the tests, by their names: in
    short launches they never run long enough for those."""
    if find_spec("llvmlite") and zlib.crc32(request.node.nodeid.encode()) % 2:
        from emulator.machine.compiled import segment

        monkeypatch.setattr(segment, "_SELDOM", False)
