"""Checks of tcgen05: who issues it, what it reads, and what a block leaves allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtypes import Array
from emulator.machine.vector.strand import WARP, Lanes
from emulator.memory.space import Space

if TYPE_CHECKING:
    from emulator.machine.checks.async_watch import AsyncWatch

Places = Any


class HeardSpace(Space):
    """Shared memory of a block, of which the checks hear what one thread's tcgen05 reads."""

    def __init__(self, checks: TensorCoreChecks, held: Array, row: int, lane: int) -> None:
        super().__init__("shared memory", held)
        self._checks, self._row, self._lane = checks, row, lane

    def load(self, addresses: Places, size: int, alignment: int = 1) -> Array:
        found = super().load(addresses, size, alignment)
        places = np.asarray(addresses).reshape(-1, 1) + np.arange(size)
        self._checks.watch.tensor_core_reads(self._row, places.reshape(-1), self._lane)
        return found


class TensorCoreChecks:
    """What the steps of tcgen05 tell the checks of a wave."""

    def __init__(self, watch: AsyncWatch) -> None:
        self.watch = watch

    def space(self, held: Array, row: int, lane: int) -> Space:
        return HeardSpace(self, held, row, lane)

    def issued(self, lanes: Lanes) -> None:
        """Threads have issued an operation, each its own."""
        warps, counts = np.unique(lanes // WARP, return_counts=True)
        if (counts > 1).any():
            mine = lanes[lanes // WARP == warps[int(np.argmax(counts > 1))]]
            self.watch.report(
                "issued more than once", mine, len(mine),
                f"{len(mine)} threads of a warp issue it, and each issues the whole operation",
            )  # fmt: skip

    def unwritten(self, lanes: Lanes, what: str, pc: int) -> None:
        """Words of tensor memory are read that nothing has written."""
        self.watch.report(
            "tensor memory", lanes, len(lanes),
            f"{what} reads columns of tensor memory that nothing has written", pc=pc,
        )  # fmt: skip

    def finish(self) -> None:
        """All threads have ended: everything must have been given back."""
        for row, memory in self.watch.wave.tensor.items():
            if memory.allocations:
                lane = np.array([row * self.watch.clocks.per_block])
                left = ", ".join(map(str, memory.allocations))
                self.watch.report(
                    "tensor memory", lane, 1,
                    f"the block ends, and {left} of its tensor memory are still allocated", None,
                    "left",
                )  # fmt: skip
