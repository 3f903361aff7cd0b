"""Vector engine: orders that PTX leaves open, chosen by a seed. They are those of thread blocks, of
warps, of the sides of a branch, and of lanes that an atomic operation or a store brings to one
place (PTX ISA 8, 9.7.13.5).

Without a seed a launch has the order of the tables here and in `wave`: ascending. A right program
computes the same in every order; what it computes in one that a seed picks, a GPU may compute too.
"""

from __future__ import annotations

from math import gcd

import numpy as np
from numpy.typing import NDArray

from emulator.machine.vector.strand import WARP, Lanes, Strand

#: probability of running the strand that the launch prefers, not a random one
_PREFERRED = 0.5
#: probability of dividing a strand into warps that run by themselves, and the most strands of a
#: wave
_DIVIDES, _MOST = 0.4, 24
#: blocks of statements that a strand runs before the next choice
_LONGEST = 12
#: waves are so many times smaller than they could be
_SMALLER = 5
#: of more clusters than this the order is turned, not mixed: numbers must not overflow
_MIXED = 1 << 31


class Schedule:
    """The choices of one launch, the same for the same seed."""

    def __init__(self, seed: int, clusters: int) -> None:
        self._random = np.random.default_rng([seed, 1])
        self._clusters = clusters
        self._shift = int(self._random.integers(clusters))
        self._factor = 1
        if 2 < clusters < _MIXED:
            factors = self._random.integers(1, clusters, 64).tolist()
            self._factor = next((x for x in factors if gcd(x, clusters) == 1), clusters - 1)
        #: whether strands that are far in the program are preferred, as without a seed they never
        #: are: for every other seed, so that a few seeds have both
        self._farthest = seed % 2 == 0

    # --- thread blocks ---

    def blocks(self, places: Lanes, cluster: int) -> Lanes:
        """The thread blocks that start at these places; those of a cluster stay together."""
        number, rank = np.divmod(places, cluster)
        return (number * self._factor + self._shift) % self._clusters * cluster + rank

    def together(self, most: int) -> int:
        """Number of thread blocks that run together."""
        return max(1, most // int(self._random.integers(1, _SMALLER)))

    # --- warps ---

    def pick(self, ready: list[Strand]) -> Strand:
        """One of the strands that are ready."""
        if self._random.random() >= _PREFERRED:
            return ready[int(self._random.integers(len(ready)))]
        sign = -1 if self._farthest else 1
        return min(ready, key=lambda s: (s.epoch, -len(s.frames), sign * s.pc))

    def part(self, strand: Strand) -> Strand:
        """A strand, or some of its warps: the others are ready, too."""
        wave = strand.wave
        if self._random.random() >= _DIVIDES or len(wave.ready) + len(wave.waiting) >= _MOST:
            return strand
        warps = strand.lanes // WARP
        chosen = self._random.random(int(warps[-1]) + 1)[warps] < 0.5
        if chosen.all() or not chosen.any():
            return strand
        first, second = wave.divide(strand, chosen, strand.pc)
        wave.ready.append(second)
        return first

    def turns(self) -> int:
        """Blocks of statements that a strand runs before others may go."""
        return int(self._random.integers(1, _LONGEST + 1))

    # --- lanes ---

    def order(self, count: int) -> NDArray[np.int64]:
        """An order of so many lanes."""
        return self._random.permutation(count)
