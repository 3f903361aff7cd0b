"""System around a kernel: what a function of the system may ask of the thread that calls it."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from emulator.machine.shared.issuing import Issuer

#: bytes that a text may have
LONGEST_TEXT = 1 << 16


class Host:
    """The thread that calls a function."""

    def __init__(self, who: Issuer) -> None:
        self._who, launch = who, who.launch
        self.heap, self.launches, self.print = launch.heap, launch.launches, launch.printed.append

    @property
    def thread_id(self) -> Hashable:
        """Tells the thread from others of its grid."""
        return self._who.coordinates

    def read(self, address: int, size: int) -> bytes:
        """Bytes at a generic address."""
        return self._who.find("", address, size, 1).bytes.tobytes()

    def write(self, address: int, raw: bytes) -> None:
        """Writes bytes at a generic address that is a multiple of their number."""
        place = self._who.find("", address, len(raw), len(raw), write=True)
        place.bytes[:] = np.frombuffer(raw, np.uint8)

    def text(self, address: int) -> str:
        """The characters at a generic address, up to the first zero."""
        place, found = self._who.find("", address, 1, 1), self._who.launch.arena.find(address)
        longest = LONGEST_TEXT if found is None else min(LONGEST_TEXT, found.end - address)
        raw = place.memory()[place.start :][:longest].tobytes()
        return raw.partition(b"\0")[0].decode("utf-8", "replace")
