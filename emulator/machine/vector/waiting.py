"""Strands that wait: what lets them go on, and what to say where nothing does."""

from __future__ import annotations

from emulator.machine.report import KernelError
from emulator.machine.vector.wave import Wave


def resolve(wave: Wave) -> None:
    """Lets strands of a wave go on that wait for what only time brings."""
    raise deadlock([wave])


def deadlock(waves: list[Wave]) -> KernelError:
    """Nothing can go on: who waits where, and for what."""
    lines = []
    for wave in waves:
        for strand in wave.waiting[:20]:
            lines.append(f"{len(strand)} threads at {strand.pc}: {strand.state.value}")
    return KernelError("deadlock", "no thread can go on:\n  " + "\n  ".join(lines))
