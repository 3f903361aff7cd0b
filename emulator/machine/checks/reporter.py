"""Events, names and places: how what checks notice becomes findings."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.errors import UnsupportedError
from emulator.isa.movement import Movement
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.checks.accesses import SharedAccesses
from emulator.machine.checks.clocks import Aspect, Bools, Clocks
from emulator.machine.checks.finding import MOST_THREADS, Finding, Findings, Party
from emulator.machine.checks.grid_memory import GlobalAccesses
from emulator.machine.checks.groups import Groups
from emulator.machine.checks.kinds import KINDS, MISCOMPILATION
from emulator.machine.checks.variables import extents
from emulator.machine.shared.place import Index, Place, spans
from emulator.machine.vector.strand import WARP, Lanes
from emulator.machine.vector.wave import Wave, WaveGrid
from emulator.memory.shadow import GlobalShadow, SharedShadow
from emulator.ptx.program import Program, Statement, Vector

#: bytes of what is kept about global memory
_MOST_SHADOW = 1 << 33


class GridWatch:
    """The checks of a launch."""

    def __init__(self, grid: WaveGrid) -> None:
        #: the launch under way
        self.grid = grid
        self.findings, self.warnings = Findings(), Findings()
        self.now = 1
        #: of each event the pc
        self.pcs = array("i", [-1, -1])
        self.granules = _granules(grid.program)
        launch = grid.launch
        #: by pc, the variable of shared memory that an access means
        starts = [symbol.place for symbol in launch.shared_symbols]
        self.extents = extents(grid.program, starts, launch.shared_bytes)
        #: blocks may look into each other's shared memory
        self.has_peers = int(np.prod(grid.cluster)) > 1
        per_block = -(-grid.threads // WARP) * WARP
        size, granule = grid.arena.used, self.granules["global"]
        if GlobalShadow.bytes_of(size, granule) > _MOST_SHADOW:
            raise UnsupportedError(
                f"check=True would keep {GlobalShadow.bytes_of(size, granule):,} bytes for the "
                f"{size:,} bytes of global memory: check a smaller problem"
            )
        self.memory = GlobalAccesses(size, granule, per_block)

    def bytes_of_block(self, shared_bytes: int) -> int:
        """Memory that the state of one block takes."""
        grid = self.grid
        warps = -(-grid.threads // WARP)
        shadow = SharedShadow.bytes_of(
            shared_bytes, self.granules["shared"], SharedAccesses.columns(warps)
        )
        return shadow + 24 * (warps * WARP) ** 2 * int(np.prod(grid.cluster))

    def tick(self, pc: int = -1) -> int:
        """The next event."""
        self.now += 1
        self.pcs.append(pc)
        return self.now


def _granules(program: Program) -> dict[str, int]:
    """Bytes of the smallest access to shared and to global memory that a program has."""
    out = {"shared": 16, "global": 16}
    for statement in program.statements:
        for part in statement.expansion or (statement,):
            ins = part.instruction
            if not isinstance(ins, OrdinaryInstruction) or not ins.types:
                continue
            if part.effects.isdisjoint({"reads", "writes"}):
                continue
            size = TYPES[ins.types[-1]].size // 8
            bound = part.operands.get("d") or part.operands.get("b")
            if isinstance(bound, Vector):
                size *= len(bound.items)
            space = ins.modifiers.get("space", "").partition("::")[0]
            for name in out:
                if space in ("", name):
                    out[name] = min(out[name], size)
    out["shared"] = min(out["shared"], 8 if _has(program, "mbarrier") else 16)
    if _has(program, "copies"):
        out = {name: min(size, 4) for name, size in out.items()}
    return out


def element_bytes(statement: Statement) -> int:
    """Bytes of the elements that a load, a store or an atomic operation names in its type; 0 of
    copies, which name none."""
    ins = statement.instruction
    if isinstance(ins, Movement):
        return 2 if ins.form.type == "b16" else 1
    if not isinstance(ins, OrdinaryInstruction) or not ins.types or "copies" in statement.effects:
        return 0
    return TYPES[ins.types[-1]].size // 8


def _has(program: Program, name: str) -> bool:
    return name in program.effects


class Reporter:
    """Common base of the checks of a wave: the running statement, and how to report."""

    def __init__(self, all_: GridWatch, wave: Wave) -> None:
        self.all, self.wave = all_, wave
        self.clocks = Clocks(wave)
        #: the statement that runs now, and the words of its opcode
        self.statement: Statement = all_.grid.program.statements[0]
        self.words: frozenset[str] = frozenset()
        #: of a load that reads what nothing wrote, lanes and their pieces ``(lanes, pieces)``
        self.unwritten: list[tuple[Lanes, Bools]] = []
        #: of a store of what nobody wrote, lanes and their items ``(lanes, items)``
        self.storing: tuple[Lanes, Bools] | None = None
        #: of a store of what nobody wrote, what is to be said of lanes that reach global memory
        self.publishing: Callable[[Lanes], None] | None = None
        lanes = len(wave.thread)
        self.copies, self.bulk, self.wgmma = Groups(lanes), Groups(lanes), Groups(lanes)
        self.words_per_cluster = wave.shared_bytes // 8 * wave.cluster_size
        #: of lanes, the event of the last fence of any sort
        self.fences = np.zeros(lanes, np.int32)

    @property
    def now(self) -> int:
        return self.all.now

    def tick(self) -> int:
        return self.all.tick(self.statement.pc)

    def begin(self, statement: Statement, words: frozenset[str]) -> None:
        """A strand is about to execute a statement."""
        self.statement, self.words = statement, words
        self.all.tick(statement.pc)
        self.storing = self.publishing = None
        if self.unwritten:
            self.unwritten = []

    def gather(self, row: int) -> None:
        """A barrier of a block: what its threads know of other blocks, all of them know."""
        per_block = self.clocks.per_block
        block = int(self.wave.ctas[row])
        first = block * per_block
        self.all.memory.knowledge.gather(
            block, first, first + per_block, first // WARP, (first + per_block) // WARP
        )

    # --- reports ---

    def report(
        self,
        kind: str,
        lanes: Lanes,
        count: int,
        reason: str,
        earlier: Party | None = None,
        *key: object,
        pc: int | None = None,
        advice: str = "",
    ) -> None:
        """A mistake that lanes of this wave have made at the statement that runs, or at `pc`."""
        findings = self.all.warnings if kind == MISCOMPILATION else self.all.findings
        pc = self.statement.pc if pc is None else pc
        full = (kind, pc, *key)
        if not findings.add(full, count):
            party = Party(self.place(pc), *self.who(lanes), lanes=self.lanes_of(lanes))
            findings.keep(full, Finding(kind, reason, party, earlier, advice or KINDS[kind], count))

    def lanes_of(self, lanes: Lanes) -> str:
        """Warps of the first block of some lanes, and of one warp the lanes, in words."""
        inside = lanes[lanes // self.clocks.per_block == lanes[0] // self.clocks.per_block]
        inside = np.unique(inside % self.clocks.per_block)
        warps = np.unique(inside // WARP)
        if len(warps) > 1:
            return f"warps {spans(warps)}"
        several = "s" if len(inside) > 1 else ""
        return f"warp {warps[0]}, lane{several} {spans(inside % WARP)}"

    def left_under_way(self, groups: Groups, aspect: Aspect, lane: int, event: int) -> str:
        """Why the last wait of a lane does not cover an operation of it, in words; empty where it
        does, or there was none since."""
        wait = int(groups.waited[lane])
        if wait <= event or int(self.clocks.own[aspect][lane]) >= event:
            return ""
        place = self.place(self.all.pcs[wait])
        if int(groups.committed[lane]) < event:
            return f"; no commit_group follows it before the wait at PTX line {place.line}"
        statement = place.statement.rstrip("; ")
        return f"; {statement} at PTX line {place.line} leaves its group under way"

    def place(self, pc: int | None = None) -> Place:
        grid = self.all.grid
        statement = self.statement if pc is None else grid.program.statements[pc]
        return grid.launch.place_of(statement)

    def who(self, lanes: Lanes) -> tuple[Index, tuple[Index, ...]]:
        found = [self.wave.coordinates(int(lane)) for lane in lanes[: 4 * MOST_THREADS]]
        block = found[0][0]
        return block, tuple(thread for cta, thread in found if cta == block)[:MOST_THREADS]

    def thread(self, number: int) -> tuple[Index, tuple[Index, ...]]:
        """Block and thread of a number in the grid."""
        grid, per_block = self.all.grid, self.all.memory.per_block
        block, thread = divmod(number, per_block)
        x, y, _ = grid.size
        a, b, _ = grid.block
        return (block % x, block // x % y, block // (x * y)), (
            (thread % a, thread // a % b, thread // (a * b)),
        )

    def name_of(self, view: Array | None, place: int, size: int | None = None) -> str:
        """Name of the variable at a byte of the wave's shared memory, or of the arena; `size`: the
        bytes of an element, None: those of the statement that runs."""
        size = element_bytes(self.statement) if size is None else size
        launch = self.all.grid.launch
        if view is not None and self.memory_of(view) == "shared":
            return str(launch.shared_name(place % self.wave.shared_bytes, size))
        return str(launch.arena.name_at(place))

    def memory_of(self, view: Array) -> str:
        owner = _owner(view)
        if owner is _owner(self.wave.shared):
            return "shared"
        return "local" if owner is _owner(self.wave.local) else "global"


def _owner(view: Array) -> object:
    """The array that owns the memory of a view."""
    return view if view.base is None else view.base
