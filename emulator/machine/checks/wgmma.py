"""Registers and shared memory of wgmma, which is asynchronous (PTX ISA 9.7.15.7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dtypes import Array
from emulator.isa import tcgen05
from emulator.machine.checks.clocks import Aspect
from emulator.machine.checks.finding import Party
from emulator.machine.checks.reporter import Reporter
from emulator.machine.shared.products import is_wgmma
from emulator.machine.vector.strand import Lanes, Strand
from emulator.memory.space import Space
from emulator.ptx.program import Function, Program, registers_of


@dataclass(frozen=True)
class UsedRegisters:
    """The registers of a function that its wgmma use, accumulators and those of A, and those that
    its tcgen05.ld write."""

    accumulators: frozenset[int]
    sources: frozenset[int]
    loaded: frozenset[int]

    @classmethod
    def of_function(cls, program: Program, function: Function) -> UsedRegisters:
        accumulators: set[int] = set()
        sources: set[int] = set()
        loaded: set[int] = set()
        for pc in range(function.first, function.end):
            statement = program.statements[pc]
            if is_wgmma(statement):
                accumulators |= set(registers_of(statement.operands["d"]))
                sources |= set(registers_of(statement.operands.get("a")))
            if isinstance(statement.instruction, tcgen05.Tcgen05):
                loaded |= {i for bound in statement.bound("written") for i in registers_of(bound)}
        return cls(frozenset(accumulators), frozenset(sources), frozenset(loaded))


@dataclass
class Flight:
    """One wgmma under way in a warpgroup."""

    #: the number of its group, counted from 0
    group: int
    pc: int
    event: int
    accumulators: set[int]
    sources: set[int]


@dataclass
class Warpgroup:
    flights: list[Flight] = field(default_factory=list)
    #: registers that others have written since the last wgmma.fence, with the pc
    dirty: dict[int, int] = field(default_factory=dict)
    fenced: bool = False


@dataclass(eq=False)
class WgmmaChecks:
    """The wgmma of the warpgroups of a wave."""

    watch: Reporter
    #: by their first lanes
    warpgroups: defaultdict[int, Warpgroup] = field(default_factory=lambda: defaultdict(Warpgroup))

    def _groups(self, lanes: Lanes) -> list[int]:
        return np.unique(self.watch.clocks.warpgroup(lanes)).tolist()

    def _groups_of(self, s: Strand) -> list[int]:
        found: list[int] | None = s.marks.get("warpgroups")
        if found is None:
            found = s.marks["warpgroups"] = self._groups(s.lanes)
        return found

    def touched(self, s: Strand, read: frozenset[int], written: frozenset[int], move: bool) -> None:
        """Another statement reads accumulators, or writes them or registers of A."""
        for number in self._groups_of(s):
            warpgroup = self.warpgroups[number]
            for flight in warpgroup.flights:
                used = (read & flight.accumulators) | (
                    written & (flight.accumulators | flight.sources)
                )
                if not used:
                    continue
                if move and not written & (flight.accumulators | flight.sources):
                    # ptxas gives both names one register: the copy is under way, too.
                    flight.accumulators |= written
                    continue
                self._report(s, number, flight, used)
            # Copies are ptxas's to place: what is copied counts, not when.
            clean = move and not read & warpgroup.dirty.keys()
            for register in written:
                if clean:
                    warpgroup.dirty.pop(register, None)
                else:
                    warpgroup.dirty[register] = self.watch.statement.pc

    def _report(
        self, s: Strand, number: int, flight: Flight, used: set[int] | frozenset[int]
    ) -> None:
        watch = self.watch
        lanes = s.lanes[self.watch.clocks.warpgroup(s.lanes) == number]
        name = s.frames[-1].function.registers[min(used)].name
        block, thread = watch.wave.coordinates(int(lanes[0]))
        earlier = Party(watch.place(flight.pc), block, (thread,), "wgmma under way")
        left = watch.left_under_way(watch.wgmma, Aspect.WGMMA, number, flight.event)
        watch.report(
            "wgmma in flight",
            lanes,
            len(lanes),
            f"register {name} is used by a wgmma that no wgmma.wait_group has waited for{left}",
            earlier,
            flight.pc,
        )

    def multiply(self, s: Strand, accumulators: frozenset[int], sources: frozenset[int]) -> None:
        """A wgmma is issued."""
        watch = self.watch
        for number in self._groups_of(s):
            warpgroup = self.warpgroups[number]
            dirty = (accumulators | sources) & warpgroup.dirty.keys()
            lanes = s.lanes[self.watch.clocks.warpgroup(s.lanes) == number]
            if dirty or not warpgroup.fenced:
                block, thread = watch.wave.coordinates(int(lanes[0]))
                earlier, reason = None, "there was no wgmma.fence before the first wgmma"
                if dirty:
                    register = min(dirty)
                    name = s.frames[-1].function.registers[register].name
                    pc = warpgroup.dirty[register]
                    earlier = Party(watch.place(pc), block, (thread,), "wrote it")
                    reason = f"register {name} was written, and no wgmma.fence stands between"
                watch.report("wgmma order", lanes, len(lanes), reason, earlier)
            group = int(watch.wgmma.count[lanes[0]])
            for flight in warpgroup.flights:
                wrong = flight.sources & accumulators | flight.accumulators & sources
                if wrong:
                    self._report(s, number, flight, wrong)
            warpgroup.flights.append(
                Flight(group, watch.statement.pc, watch.now, set(accumulators), set(sources))
            )

    def fence(self, lanes: Lanes) -> None:
        for number in self._groups(lanes):
            self.warpgroups[number].dirty.clear()
            self.warpgroups[number].fenced = True

    def wait(self, lanes: Lanes, newest: int) -> None:
        for number in self._groups(lanes):
            done = int(self.watch.wgmma.count[number]) - newest
            warpgroup = self.warpgroups[number]
            warpgroup.flights = [f for f in warpgroup.flights if f.group >= done]


class WatchedSpace(Space):
    """Shared memory whose reads by wgmma are told: ``(blocks, 1, bytes)``."""

    def __init__(self, read: Callable[[Array, Lanes], None], data: Array, lanes: Lanes) -> None:
        super().__init__("shared memory", data)
        self._read, self._lanes = read, lanes

    def load(self, addresses: Array, size: int, alignment: int = 1) -> Array:
        out = super().load(addresses, size, alignment)
        every = np.broadcast_to(addresses, (*self._lanes.shape, addresses.shape[-1]))
        for places, lane in zip(every.reshape(-1, every.shape[-1]), self._lanes.flat, strict=True):
            self._read(places, np.array([lane]))
        return out
