"""Records the tensor copies (TMA) of a launch, and finds those that an operand was brought by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.errors import EmulatorError
from emulator.machine.reference.issuer import Issuer, combination, readers
from emulator.machine.reference.operands import guard_of
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Operands
from emulator.machine.shared.place import Index
from emulator.machine.shared.tensor_maps import BOX_ALIGNMENT, TensorIssue
from emulator.memory.arena import AccessError
from emulator.memory.tensor_copy import RUN, plan
from emulator.memory.tensor_map_arguments import Backing
from emulator.ptx.program import Statement
from emulator.tools.faults.copies import image_of
from emulator.tools.faults.kernel import Box


class Transfer(NamedTuple):
    """A tensor copy into the shared memory of one block."""

    pc: int
    #: its map has the address of the tensor, and no array
    box: Box


class Transfers:
    """Collects the tiled copies of a launch by block, in the order of issue."""

    def __init__(self) -> None:
        #: those of the launch, by address
        self.arrays: Mapping[int, Array] = {}
        self.of_block: dict[Index, list[Transfer]] = {}
        #: statements whose coordinates the fault finder does not know, and why
        self.unknown: dict[int, str] = {}
        #: by statement: its guard, its operands and what reads them
        self._issues: dict[Statement, tuple[Any, TensorIssue, Any]] = {}

    def observe(self, threads: Sequence[Thread], statement: Statement) -> None:
        """Looks at a tensor copy that is about to be issued; one to global memory is left out."""
        if statement not in self._issues:
            operands = Operands(statement, combination)
            issue = TensorIssue(operands)
            self._issues[statement] = guard_of(statement.guard), issue, readers(operands)
        holds, issue, reads = self._issues[statement]
        for thread in threads if issue.form.loads else ():
            if holds is None or holds(thread):
                try:
                    self._issued(thread, statement.pc, issue, Issuer(thread, reads))
                except (Failure, AccessError):
                    return  # the engine says what is wrong with it

    def _issued(self, thread: Thread, pc: int, issue: TensorIssue, who: Issuer) -> None:
        found = issue.box(who)
        if found.tensor_map.mode != "tiled" or issue.form.mode != "tile":
            self.unknown[pc] = "a copy in another mode than .tile"
            return
        for place, _ in issue.targets(who, found.plan.shared_bytes, BOX_ALIGNMENT):
            box = Box(found.tensor_map, tuple(found.coordinates), place.start)
            for block in thread.cluster.blocks:
                if np.shares_memory(place.memory(), block.shared):
                    self.of_block.setdefault(block.index, []).append(Transfer(pc, box))

    def refilled(self, block: Index, since: int, until: int, read: Array) -> bool:
        """True if some of the copies of a block from one number to another go to bytes that are
        read."""
        return any(_reaches(x.box, read) for x in self.of_block.get(block, ())[since:until])

    def standing(self, block: Index, until: int, shared: Array, read: Array) -> list[Transfer]:
        """Of the first copies of a block those that have brought bytes that are read, and whose
        bytes stand in shared memory still; their maps have arrays."""
        taken: Array = np.zeros(len(shared), bool)
        kept = []
        for pc, box in reversed(self.of_block.get(block, ())[:until]):
            found = self.arrays.get(box.tensor_map.address or 0)
            if not _reaches(box, read):
                continue
            if found is None:
                self.unknown[pc] = "a copy of a tensor that begins where no array of args= does"
                continue
            of_array = replace(box.tensor_map, address=None, backing=Backing(found))
            box = box._replace(tensor_map=of_array)
            try:
                places, rows = image_of(box)
            except EmulatorError:  # the map goes beyond the array
                continue
            bytes_ = places[:, None] + np.arange(RUN)
            if not taken[bytes_].any() and np.array_equal(shared[bytes_], rows):
                taken[bytes_] = True
                kept.append(Transfer(pc, box))
        return kept[::-1]


def _reaches(box: Box, read: Array) -> bool:
    runs = plan(box.tensor_map).run_addresses(box.address)
    return bool(np.isin(read // RUN * RUN, runs).any())
