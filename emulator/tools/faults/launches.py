"""The fault finder on a whole kernel.

The operands of each matrix instruction of a launch are compared with the parts of A and B that
belong there, and what was stored with what was computed.

A tile of C is a chain of products, each of which accumulates on the one before. Operands that are
right tell which tile it is: they are looked for in A and B. Where an operand is wrong, the place of
the result in C tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from emulator.errors import OperandError, UnsupportedError, listing
from emulator.machine.arguments import arrays_of
from emulator.machine.debugger.locations import Locations
from emulator.machine.module import Kernel
from emulator.tools.faults.gemm import Gemm, Search, Stores, Tile, chains, covers
from emulator.tools.faults.meant import Meant, find_meant
from emulator.tools.faults.observed import Recorder
from emulator.tools.faults.report import Fault, FaultReport, Faults

#: tiles of one kind that are searched until one is explained
_LOOKS = 3


@dataclass(frozen=True)
class LaunchFault:
    """A mistake, and the tiles of C that it explains."""

    fault: Fault
    #: a tile in which it was found, and the tiles of the same kind
    tile: str
    tiles: int
    #: the statement: line and text
    line: str
    statement: str

    @property
    def detail(self) -> str:
        return self.fault.detail

    @property
    def exact(self) -> bool:
        return self.fault.exact


@dataclass(frozen=True, repr=False)
class LaunchFaults(Faults[LaunchFault]):
    """The mistakes of a launch, the likeliest first, and what was looked at."""

    kernel: str
    target: str
    faults: tuple[LaunchFault, ...]
    #: elements of C that differ from what is expected by more than rounding, of all
    wrong: int
    total: int
    #: tiles that were looked at; those with a wrong A, a wrong B, a wrong store, in no known place
    tiles: dict[str, int]
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.kernel} on {self.target}"

    @property
    def code(self) -> int:  # type: ignore[override]
        return 1 if self.wrong and not any(x.exact for x in self.faults) else 0

    def lines(self) -> Iterator[str]:
        yield self.title
        yield (
            f"C: {self.wrong:,} of {self.total:,} elements differ from expected= by more than "
            "rounding"
            if self.wrong
            else f"C: right, {self.total:,} elements but for rounding"
        )
        yield ", ".join(f"{count:,} {what}" for what, count in self.tiles.items())
        for i, x in enumerate(self.faults, 1):
            repair = "repaired by: " if x.fault.direction == "repair" else ""
            yield ""
            yield f"{i}. {repair}{x.detail}"
            much = (
                "every bit"
                if x.exact
                else (f"{x.fault.explained} of {x.fault.wrong} wrong elements")
            )
            yield f"   {x.fault.mistake}: explains {much} of this tile"
            yield f"   in {x.tiles:,} tile{'s' * (x.tiles > 1)}, as in {x.tile}"
            yield f"   {x.line}: {x.statement}"
            yield f"   {x.fault.explanation}"
            if x.fault.same_as:
                yield f"   the same in other words: {'; '.join(x.fault.same_as[:3])}"
        yield from (f"note: {note}" for note in self.notes)

    @property
    def data(self) -> dict[str, object]:
        return asdict(self)


class _Launch:
    """A launch that was recorded, and the search for its mistakes."""

    def __init__(
        self, kernel: Kernel, meant: Meant, recorder: Recorder, stores: Stores, search: Search
    ) -> None:
        self.kernel, self.meant, self.search = kernel, meant, search
        self.stores = stores
        tiles = self.tiles = chains(recorder.products)
        self.locations = Locations(kernel.bound.program, kernel)
        self.gemms: dict[str, Gemm] = {}
        self.notes: list[str] = []
        self.transfers = recorder.transfers
        for tile in tiles:
            name = str(tile.ins)
            if name not in self.gemms:
                self.gemms[name] = Gemm(meant, tile.ins, kernel.module.target, recorder.transfers)
            self.gemms[name].look(tile)
        shape, voted = meant.stored.shape, [x.voted for x in tiles]
        by_result = not covers(shape, tiles, voted) and covers(
            shape, tiles, [x.there or (None, None) for x in tiles]
        )
        for tile in tiles:
            self.gemms[str(tile.ins)].judge(tile, by_result)
        self._join()

    def _join(self) -> None:
        """Several chains may add up to one tile: what is stored is their sum, which is not judged.
        One that leaves out a part of K is."""
        places: dict[tuple[int, int], list[Tile]] = {}
        for tile in self.tiles:
            if tile.row is not None and tile.column is not None:
                places.setdefault((tile.row, tile.column), []).append(tile)
        self.short: list[Tile] = []
        for alike in places.values():
            covered = {k for tile in alike for k in tile.along}
            if len(alike) > 1:
                for tile in alike:
                    tile.stored = True
            step = alike[0].ins.k
            if len(covered) * step < self.meant.a.shape[1]:
                self.short.append(alike[0])

    def report(self, limit: int) -> LaunchFaults:
        placed = [x for x in self.tiles if x.along]
        wrong_a, wrong_b = ([x for x in placed if any(x.wrong[name])] for name in "ab")
        not_stored = [x for x in placed if not x.stored]
        found = [*self._operands("a", wrong_a), *self._operands("b", wrong_b), *self._shortened()]
        found += self._stores(not_stored)
        lost = len(self.tiles) - len(placed)
        if lost:
            self.notes.append(
                f"of {lost} tiles neither the operands nor the result tell where in C they belong: "
                "give inputs whose elements all differ"
            )
        self.notes += [
            f"{self.locations.ptx_line(pc)}: {why}; the bytes that it has written are looked at, "
            "and not its coordinates"
            for pc, why in sorted(self.transfers.unknown.items())
        ]
        wrong = int(self.meant.wrong.sum())
        if wrong and not found:
            self.notes.append(
                "every operand and every store of the tiles is right: C is changed elsewhere, or "
                "what is expected= is not the product of A and B"
                if not lost
                else "the tiles whose place is known do not tell why"
            )
        return LaunchFaults(
            self.kernel.name,
            str(self.kernel.module.target),
            tuple(found[:limit]),
            wrong,
            self.meant.wrong.size,
            {
                "tiles of C": len(self.tiles),
                "with a wrong A": len(wrong_a),
                "with a wrong B": len(wrong_b),
                "not stored where they belong": len(not_stored),
            },
            tuple(dict.fromkeys(self.notes)),
        )

    def _operands(self, name: str, tiles: list[Tile]) -> Iterator[LaunchFault]:
        best: FaultReport | None = None
        for tile in tiles[:_LOOKS]:
            gemm = self.gemms[str(tile.ins)]
            report, copy = gemm.search_operand(self.search, tile, name)
            own = [x for x in report.faults if x.operand in (name, "")]
            if not own:
                best = best or report
                continue
            product = tile.products[next(i for i, x in enumerate(tile.wrong[name]) if x)]
            pc = copy.pc if copy else product.loads.get(name, product.pc)
            for fault in own:
                yield self._fault(fault, tile, len(tiles), pc)
            return
        if best is not None:
            self.notes.append(
                f"{name.upper()} is wrong in {tiles[0]}, and no usual mistake explains how"
            )
            self.notes += best.notes

    def _shortened(self) -> Iterator[LaunchFault]:
        for tile in self.short[:1]:
            done, steps = len(tile.along), -(-self.meant.a.shape[1] // tile.ins.k)
            missing = sorted({i * tile.ins.k for i in range(steps)} - set(tile.along))
            detail = (
                f"{done} of {steps} steps along k are made: columns "
                f"{missing[0]}-{missing[0] + tile.ins.k - 1} of A are the first left out"
            )
            why, every = "The loop over K ends early, or begins late.", np.ones(1, bool)
            fault = Fault.of("loop over k", "", detail, why, every, every)
            yield self._fault(fault, tile, len(self.short), tile.products[-1].pc)

    def _stores(self, tiles: list[Tile]) -> Iterator[LaunchFault]:
        for tile in tiles[:_LOOKS]:
            found = self.gemms[str(tile.ins)].search_store(self.search, tile, self.stores)
            faults = [found] if isinstance(found, Fault) else found.exact if found else ()
            if faults:
                for fault in faults:
                    yield self._fault(fault, tile, len(tiles), tile.products[-1].pc)
                return
        if tiles:
            self.notes.append(
                f"the result of {tiles[0]} does not stand there, and no usual mistake explains "
                "how it was stored: it is scaled or changed on the way, perhaps"
            )

    def _fault(self, fault: Fault, tile: Tile, count: int, pc: int) -> LaunchFault:
        lines = self.locations.source_lines(pc) or (self.locations.ptx_line(pc),)
        where = ", inlined at ".join(map(str, lines))
        return LaunchFault(fault, str(tile), count, where, self.locations.statement(pc))


def find_launch_faults(
    kernel: Kernel, search: Search, expected: object, a: object, b: object, limit: int, launch: Any
) -> LaunchFaults:
    """Launches a kernel on the reference engine and names what went wrong; see `find_faults`."""
    if "args" not in launch or "grid" not in launch or "block" not in launch:
        raise OperandError(
            "find_faults(kernel, grid=, block=, args=, expected=C) launches the kernel; missing is "
            f"{listing([f'{x}=' for x in ('grid', 'block', 'args') if x not in launch])}"
        )
    try:
        prepared = kernel.prepare(**launch)
    except TypeError as error:
        raise OperandError(f"find_faults of a kernel takes what launch takes: {error}") from None
    held = arrays_of(kernel.bound.function, launch["args"], launch.get("memory"))
    arrays = {name: array for name, array in held if array.ndim}
    before = {name: array.copy() for name, array in arrays.items()}
    recorder = Recorder()
    prepared.observe = recorder.observe
    prepared.run("reference")
    if not recorder.products:
        raise UnsupportedError(
            f"{kernel.name} executes no dense mma or wgmma; the fault finder takes no other product"
        )
    meant = find_meant(expected, a, b, arrays, before)
    placed = {x.name: x.address for x in prepared.arena}
    start = placed[meant.name]
    end = start + meant.stored.nbytes
    stores = {
        who: [(at - start, data) for at, data in each if start <= at < end]
        for who, each in recorder.stores.items()
    }
    recorder.transfers.arrays = {placed[x]: y for x, y in arrays.items() if x in placed}
    return _Launch(kernel, meant, recorder, stores, search).report(limit)
