"""All engines: asynchronous operations that were issued, and when they take effect (PTX ISA
9.7.9.25).

An operation may take effect at any moment from its issue to the wait that covers it. "early" has
it at its issue; "late" when a wait needs it, with a pattern in its destination until then, so that
a program which does not wait computes with that; "random" somewhere between, by a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.machine.options import Order

#: bytes that stand where an operation has yet to write: NaN in every format, and no valid address
POISON = 0xFF
#: of "random": how often an operation waits no longer when others are issued
_CHANCE = 0.3

Lanes = NDArray[np.int64]


@dataclass(eq=False)
class Transfer:
    """An operation of one thread."""

    lane: int
    #: its effect on memory; called once
    perform: Callable[[], object]
    #: which word of shared memory is the mbarrier that it signals; None: it belongs to a group
    barrier: int | None = None
    #: number of its group, counted for each thread
    group: int = 0

    #: whether waits for groups of bulk copies cover it, if it has no mbarrier
    in_group: ClassVar[bool] = True

    def follows(self, other: Transfer) -> bool:
        """True if it takes effect after one issued before it; bulk copies have no order."""
        return False


@dataclass(eq=False)
class Copies:
    """cp.async of several threads at once."""

    lanes: Lanes
    groups: Lanes
    #: does the copies of some of the lanes, by their index
    perform: Callable[[Lanes], None]

    def take(self, mask: NDArray[np.bool_]) -> bool:
        """Performs those of a mask; whether any are left."""
        if mask.any():
            self.perform(np.flatnonzero(mask))
        left = ~mask
        if not left.any():
            return False
        chosen, inner = np.flatnonzero(left), self.perform
        self.lanes, self.groups = self.lanes[left], self.groups[left]
        self.perform = lambda which: inner(chosen[which])
        return True


class Pending:
    """Operations that threads, numbered from 0 on, have issued and not yet waited for."""

    def __init__(self, lanes: int, order: Order, seed: int | None) -> None:
        self.order = order
        self.copies: list[Copies] = []
        self.transfers: list[Transfer] = []
        #: loads of tensor memory that have registers to write
        self.loads: list[Transfer] = []
        self._count, self._seed = lanes, seed

    @cached_property
    def copy_group(self) -> Lanes:
        """Number of the group of cp.async that each thread is filling."""
        return np.zeros(self._count, np.int64)

    @cached_property
    def bulk_group(self) -> Lanes:
        """The same of bulk copies."""
        return np.zeros(self._count, np.int64)

    @cached_property
    def _random(self) -> np.random.Generator:
        return np.random.default_rng(self._seed)

    # --- issue ---

    @property
    def at_once(self) -> bool:
        return self.order == "early"

    def copy(self, lanes: Lanes, perform: Callable[[Lanes], None]) -> None:
        """cp.async of some lanes."""
        if self.at_once:
            perform(np.arange(len(lanes)))
            return
        self.copies.append(Copies(lanes, self.copy_group[lanes], perform))
        self._now_and_then()

    def transfer(self, transfer: Transfer) -> None:
        if self.at_once:
            transfer.perform()
            return
        transfer.group = int(self.bulk_group[transfer.lane])
        self.transfers.append(transfer)
        self._now_and_then()

    def _now_and_then(self) -> None:
        if self.order == "random":
            for transfer in [x for x in self.transfers if self._random.random() < _CHANCE]:
                self._finish(transfer)
            for copies in list(self.copies):
                mask = self._random.random(len(copies.lanes)) < _CHANCE
                if not copies.take(mask):
                    self.copies.remove(copies)

    # --- waits ---

    def commit_copies(self, lanes: Lanes) -> None:
        self.copy_group[lanes] += 1

    def commit_bulk(self, lanes: Lanes) -> None:
        self.bulk_group[lanes] += 1

    def wait_copies(self, lanes: Lanes, newest: int | None) -> None:
        """All but the `newest` committed groups of the lanes are done; None: all copies are."""
        for copies in list(self.copies):
            mask = np.isin(copies.lanes, lanes)
            if newest is not None:
                mask &= copies.groups < self.copy_group[copies.lanes] - newest
            if not copies.take(mask):
                self.copies.remove(copies)

    def wait_bulk(self, lanes: Lanes, newest: int) -> None:
        """All but the `newest` committed bulk groups of the lanes are done."""
        done, before = set(lanes.tolist()), self.bulk_group - newest
        self.settle(
            lambda x: (
                x.in_group and x.barrier is None and x.lane in done and x.group < before[x.lane]
            )
        )

    def settle(self, wanted: Callable[[Transfer], bool]) -> None:
        """Performs the transfers for which `wanted` holds."""
        for transfer in [x for x in self.transfers if wanted(x)]:
            self._finish(transfer)

    def before_wait(self, barriers: Lanes) -> None:
        """Someone waits for mbarriers: what signals them is done."""
        if self.transfers:
            wanted = set(barriers.tolist())
            self.settle(lambda x: x.barrier in wanted)

    def finish(self, lanes: Lanes | None = None) -> bool:
        """Everything, or what some lanes have issued, is done; whether there was anything."""
        some = bool(self.transfers or self.copies)
        for copies in list(self.copies):
            mask = np.ones(len(copies.lanes), np.bool_)
            if lanes is not None:
                mask = np.isin(copies.lanes, lanes)
            if not copies.take(mask):
                self.copies.remove(copies)
        chosen = None if lanes is None else set(lanes.tolist())
        self.settle(lambda x: chosen is None or x.lane in chosen)
        return some

    def _finish(self, transfer: Transfer) -> None:
        """Does a transfer, and before it those that it follows."""
        if transfer not in self.transfers:
            return
        for earlier in self.transfers[: self.transfers.index(transfer)]:
            if transfer.follows(earlier):
                self._finish(earlier)
        self.transfers.remove(transfer)
        transfer.perform()
