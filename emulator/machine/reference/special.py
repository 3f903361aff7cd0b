"""Reference engine: special registers of one thread (PTX ISA 10)."""

from __future__ import annotations

from collections.abc import Callable

from emulator.machine.reference.thread import Thread
from emulator.machine.shared.special import CLOCKS, Readers, value_of


def special(name: str) -> Callable[[Thread], int]:
    """The word of a special register, as a function of the thread.

    Raises UnsupportedError for one that is not modelled.
    """
    if name in CLOCKS:
        bits, low = CLOCKS[name]
        return lambda thread: thread.run.now() >> low & (1 << bits) - 1
    value = value_of(name)
    return lambda thread: int(value(_reader(thread)))


def _reader(thread: Thread) -> Readers:
    run, number = thread.run, thread.block.number
    return Readers(thread.index, number, run.size, run.block, run.cluster, run.launch)
