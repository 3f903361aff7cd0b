"""Vector engine: a thread of a strand, as the functions of the system see it."""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.machine.system.externals import LONGEST_TEXT
from emulator.machine.vector import memory
from emulator.machine.vector.strand import Strand


class ThreadHost:
    """The thread at a position of a strand: a `Host`."""

    def __init__(self, s: Strand, index: int) -> None:
        self.strand, self.position = s, np.array([index])
        self.who = memory.who(s, self.position)
        launch = s.wave.grid.launch
        self.heap, self.print = launch.heap, launch.printed.append
        self.launches = launch.launches
        lane = int(s.lanes[index])
        self.thread_id = int(s.wave.ctas[lane // s.wave.lanes_per_cta]), int(s.wave.thread[lane])

    def read(self, address: int, size: int) -> bytes:
        held, places = memory.bytes_at(self.who, "", np.array([address], np.uint64), size)
        start = int(places[0])
        return held[start : start + size].tobytes()

    def write(self, address: int, raw: bytes) -> None:
        s, place = self.strand, np.array([address], np.uint64)
        memory.store(s, "", place, np.frombuffer(raw, f"<u{len(raw)}"), self.position)

    def text(self, address: int) -> str:
        held, places = memory.bytes_at(self.who, "", np.array([address], np.uint64), 1)
        start = int(places[0])
        found = self.strand.wave.grid.arena.find(address)
        longest = LONGEST_TEXT if found is None else min(LONGEST_TEXT, found.end - address)
        return (
            held[start : start + longest].tobytes().partition(b"\0")[0].decode("utf-8", "replace")
        )


def integers(words: Array) -> list[int]:
    """Words of lanes, or the bytes of parameters ``(lanes, n)``, as integers."""
    if words.ndim == 1:
        return words.tolist()
    return [int.from_bytes(row.tobytes(), "little") for row in words]
