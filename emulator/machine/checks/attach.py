"""The checks as an engine takes them: what goes around its steps, its launches and its waves."""

from __future__ import annotations

from emulator.machine.checks.reporter import GridWatch
from emulator.machine.checks.steps import checked, checked_end
from emulator.machine.checks.watch import Watch
from emulator.machine.vector.wave import Wave, WaveGrid


class Attached:
    """`emulator.machine.vector.watching.Checks`."""

    step = staticmethod(checked)
    end = staticmethod(checked_end)

    @staticmethod
    def grid(grid: WaveGrid) -> GridWatch:
        return GridWatch(grid)

    @staticmethod
    def wave(watch: GridWatch, wave: Wave) -> Watch:
        return Watch(watch, wave)
