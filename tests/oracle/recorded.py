"""The recordings of hardware, read once for all tests that are made of them."""

from emulator.tools.recordings import recordings

RECORDED = tuple(recordings())
