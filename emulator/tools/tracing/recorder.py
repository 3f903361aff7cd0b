"""Records a launch for its page: what each warp executed and wrote, and what it waited for.

Time is counted in statements: each takes one step of its warp's own clock, and a warp that waits
continues one step after the statement that released it. The clock shows what may run at the same
time; it does not model the speed of a GPU.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, decode_values
from emulator.arith.scalar.types import TYPES
from emulator.errors import EmulatorError
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import ROW_BYTES, Movement
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.layout.descriptor import Descriptor
from emulator.machine.checks.banks import ROW, Banks, Rows, rows_of
from emulator.machine.debugger.player import Initialised
from emulator.machine.reference.fragments import Fetch
from emulator.machine.reference.issuer import Issuer, combination, readers
from emulator.machine.reference.matrix import shared_address
from emulator.machine.reference.mbarriers import barrier_of
from emulator.machine.reference.memory import resolve
from emulator.machine.reference.operands import Read, addresses, guard_of
from emulator.machine.reference.thread import Frame, Thread, Warp
from emulator.machine.reference.waiting import what_for
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Operands
from emulator.machine.shared.operands import constant, ordinary, space_of
from emulator.machine.shared.phases import SIZE
from emulator.machine.shared.place import shown
from emulator.machine.shared.tensor_maps import TensorIssue
from emulator.machine.shared.waiting import State
from emulator.memory.arena import AccessError
from emulator.memory.mbarrier import Barrier
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Address, Statement, items_of, registers_of
from emulator.tools.faults.observed import together
from emulator.tools.operands import load_matrix, tile_in_memory

#: effects of a statement -> the colour of its marks; the first that fits
_KINDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("barrier", frozenset({"barrier", "mbarrier"})),
    ("wait", frozenset({"waits"})),
    ("copy", frozenset({"copies", "bulk", "commits"})),
    ("memory", frozenset({"reads", "writes", "exchanges", "reduces"})),
    ("branch", frozenset({"jumps", "ends", "calls", "returns"})),
)
#: elements of all tiles that a page holds
_MOST_ELEMENTS = 1 << 20
#: title of a picture of a tile
_TILE = f"rows of {ROW} bytes of shared memory"
KINDS = ("matrix", *(name for name, _ in _KINDS), "other")


def kind_of(statement: Statement) -> str:
    """What a statement does, as one of `KINDS`."""
    if getattr(statement.instruction, "fragments", None) and "p" not in statement.operands:
        return "matrix"
    effects = statement.effects
    return next((name for name, some in _KINDS if not some.isdisjoint(effects)), "other")


class _Open(NamedTuple):
    """The last statement of a warp, whose results are read when the warp comes to its next one."""

    statement: Statement
    frames: Sequence[Frame]
    #: reads the result of a product
    result: Callable[[], None] | None = None


@dataclass
class WarpTrace:
    """What one warp executed; lists have an entry for each statement."""

    block: str
    number: int
    times: list[int] = field(default_factory=list)
    pcs: list[int] = field(default_factory=list)
    #: bits of the lanes that executed it
    lanes: list[int] = field(default_factory=list)
    #: number of a register, and its words in all lanes
    written: list[list[tuple[int, str]]] = field(default_factory=list)
    #: statement -> why the warp waited behind it
    waits: dict[int, str] = field(default_factory=dict)
    #: statement -> operand -> number of the tile
    tiles: dict[int, dict[str, int]] = field(default_factory=dict)
    #: statement -> titles and numbers of the pictures of what it accesses in shared memory
    pictures: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    #: kind of group, first and last time, statements
    groups: list[tuple[str, int, int, int]] = field(default_factory=list)
    clock: int = 0
    open: _Open | None = None

    @property
    def data(self) -> dict[str, object]:
        names = (
            "block", "number", "times", "pcs", "lanes", "written", "waits", "tiles",
            "pictures", "groups",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


class TraceRecorder:
    """Collects a launch on the reference engine, up to `limit` statements of warps."""

    def __init__(self, limit: int) -> None:
        self.limit, self.count = limit, 0
        self.warps: dict[tuple[int, int], WarpTrace] = {}
        #: (function, index) of a register -> its number; and name and type by number
        self._numbers: dict[tuple[str, int], int] = {}
        self.registers: list[tuple[str, str]] = []
        self.tiles: list[dict[str, Any]] = []
        #: of all tiles
        self.elements = 0
        #: HTML of how tiles lie in shared memory, and of the banks that lanes meet in
        self.pictures: list[str] = []
        self._drawn: dict[Rows | Banks, int] = {}
        self._known_tiles: dict[bytes, int] = {}
        #: block, place -> name and changes: time, phases that are over, arrivals and bytes missing
        self.mbarriers: dict[tuple[int, int], tuple[str, list[tuple[int, int, int, int]]]] = {}
        self._places = Initialised()
        #: mbarrier -> when its last phase was over
        self._over: dict[tuple[int, int], int] = {}
        self._barriers: dict[Statement, Read] = {}
        #: warps that wait, and the mbarrier that they wait for
        self._waiting: dict[tuple[int, int], tuple[Warp, tuple[int, int] | None]] = {}
        self._readers: dict[Statement, Any] = {}
        #: of a warp and a family of statements: those issued since the last commit, open groups
        self._groups: dict[tuple[tuple[int, int], str], tuple[list[int], list[list[int]]]] = {}
        self._last: tuple[tuple[int, int], Warp, Statement] | None = None
        self._families: tuple[str, ...] | None = None

    # --- one statement after the other ---

    def observe(self, threads: Sequence[Thread], pc: int) -> None:
        """Records a statement that is about to be executed."""
        first = threads[0]
        self._settle(first)
        self.count += 1
        if self.count > self.limit:
            return
        key, warp = (first.block.number, first.warp.number), first.warp
        if key not in self.warps:
            self.warps[key] = WarpTrace(shown(first.block.index), first.warp.number)
        trace, statement = self.warps[key], first.run.program.statements[pc]
        self._close(trace)
        holds = guard_of(statement.guard)
        executing = [t for t in threads if holds is None or holds(t)]
        trace.times.append(trace.clock)
        trace.pcs.append(pc)
        trace.lanes.append(sum(1 << t.lane for t in executing))
        trace.written.append([])
        trace.clock += 1
        trace.open = _Open(statement, [t.frames[-1] for t in warp.threads])
        self._last = key, warp, statement
        if "mbarrier" in statement.effects:
            self._places.note(first.run, threads, pc)
        if executing:
            self._look(trace, statement, executing, threads)
            self._group(trace, key, first, statement)

    def _settle(self, thread: Thread) -> None:
        """Notes which mbarriers the last statement changed, and which warps it released."""
        if self._last is None:
            return
        key, warp, statement = self._last
        trace, self._last = self.warps[key], None
        self._note_mbarriers(thread, trace.clock)
        states = {t.state for t in warp.threads} - {State.ENDED}
        barrier = self._barrier(warp, statement)
        if states and State.READY not in states:
            self._waiting[key] = warp, barrier
            waiting = [t for t in warp.threads if t.state is not State.ENDED]
            trace.waits[len(trace.times) - 1] = what_for(waiting)
        elif barrier is not None and "waits" in statement.effects:
            trace.clock = max(trace.clock, self._over.get(barrier, 0))
        met = [trace]
        for other, (held, barrier) in list(self._waiting.items()):
            if any(t.state is State.READY for t in held.threads):
                del self._waiting[other]
                if barrier is None:
                    met.append(self.warps[other])
                else:
                    resumed = self.warps[other]
                    resumed.clock = max(resumed.clock, self._over.get(barrier, 0))
        # Warps that meet at a barrier continue when the last one arrives.
        for each in met:
            each.clock = max(x.clock for x in met)

    def _barrier(self, warp: Warp, statement: Statement) -> tuple[int, int] | None:
        """The block and the place of the mbarrier that a statement names."""
        if "mbarrier" not in statement.effects or "mbarrier" not in statement.operands:
            return None
        if statement not in self._barriers:
            self._barriers[statement] = barrier_of(statement)
        thread = warp.threads[0]
        with suppress(AccessError, EmulatorError):
            rank, place = divmod(self._barriers[statement](thread), thread.run.shared_bytes // SIZE)
            return thread.cluster.blocks[rank].number, place
        return None

    def _note_mbarriers(self, thread: Thread, now: int) -> None:
        blocks = {block.number: block for block in thread.cluster.blocks}
        for number, place in self._places.found:
            if number not in blocks:
                continue
            held = Barrier.decode(int(blocks[number].shared.view(np.uint64)[place]))
            name = thread.run.launch.shared_name(place * SIZE, SIZE)
            _, changes = self.mbarriers.setdefault((number, place), (name, []))
            over = changes[-1][1] if changes else 0
            ends = bool(changes) and over % 2 != held.parity
            state = (over + ends, held.pending, held.transactions)
            if not changes or changes[-1][1:] != state:
                # Statements are recorded in the engine's order, which is not that of their clocks.
                now = max(now, changes[-1][0] if changes else 0)
                changes.append((now, *state))
            if ends:
                self._over[number, place] = now

    def _close(self, trace: WarpTrace) -> None:
        """Reads what the last statement of a warp has written."""
        if trace.open is None:
            return
        statement, frames, result = trace.open
        function = frames[0].function
        trace.open = None
        for bound in statement.bound("written"):
            for item in items_of(bound):
                for index in registers_of(item):
                    info = function.registers[index]
                    if info.type == "bytes":
                        continue
                    words = [
                        frame.registers[index] if frame.function is function else 0
                        for frame in frames
                    ]
                    number = self._number(function.name, index, info.name, info.type)
                    trace.written[-1].append((number, packed(words, TYPES[info.type].size)))
        if result is not None:
            result()

    def _number(self, function: str, index: int, name: str, type_: str) -> int:
        if (function, index) not in self._numbers:
            self._numbers[function, index] = len(self.registers)
            self.registers.append((name, type_))
        return self._numbers[function, index]

    def finish(self) -> None:
        """The launch has ended: the last statements of the warps are complete."""
        for trace in self.warps.values():
            self._close(trace)
        for (key, family), (issued, groups) in self._groups.items():
            trace = self.warps[key]
            for group in (*groups, issued):
                if group:
                    trace.groups.append((family, group[0], trace.clock, len(group)))

    # --- what a statement looks at ---

    def _look(
        self,
        trace: WarpTrace,
        statement: Statement,
        executing: Sequence[Thread],
        threads: Sequence[Thread],
    ) -> None:
        """The matrices of a product, and addresses in shared memory."""
        ins = statement.instruction
        if isinstance(ins, MatrixInstruction):
            if not ins.is_sparse and (peers := together(threads, ins.lanes, statement)):
                self._multiplied(trace, peers, statement, ins)
            return
        place = next(
            (x for x in map(statement.operands.get, ("a", "p", "dst")) if isinstance(x, Address)),
            None,
        )
        accesses = not statement.effects.isdisjoint({"reads", "writes", "copies"})
        if "map" in statement.operands and "copies" in statement.effects:
            self._boxed(trace, executing[0], statement)
        known = isinstance(ins, (Movement, OrdinaryInstruction))
        if place is None or not known or not accesses or "bulk" in statement.effects:
            return
        rows = ins.rows if isinstance(ins, Movement) else 32
        if statement not in self._readers:
            self._readers[statement] = _finder(statement, place)
        find = self._readers[statement]
        found = [(t.lane, *find(t)) for t in executing if t.lane < rows]
        if found and all(x[1] in ("shared", "cluster") for x in found):
            size, places = _access_bytes(statement), [x[2] & (1 << RANK_BITS) - 1 for x in found]
            banks = Banks(tuple(x[0] for x in found), tuple(places), size)
            title = f"shared memory from {banks.start:#x}: {size} bytes a lane, lanes over banks"
            self._draw(trace, title, banks.from_its_start())

    def _boxed(self, trace: WarpTrace, thread: Thread, statement: Statement) -> None:
        """How the box of a tensor copy lies in shared memory."""
        if statement not in self._readers:
            operands = Operands(statement, combination)
            end = next(
                (statement.operands.get(x) for x in ("dst", "src") if x in statement.operands), None
            )
            if not isinstance(end, Address):  # a prefetch
                return
            box = TensorIssue(operands).box
            self._readers[statement] = box, readers(operands), addresses(end)
        box, reads, find = self._readers[statement]
        with suppress(AccessError, EmulatorError, Failure):  # the launch is about to raise it
            found = box(Issuer(thread, reads))
            start = find(thread) & (1 << RANK_BITS) - 1
            runs = found.plan.run_addresses(start)
            swizzle = found.tensor_map.swizzle
            where = ", ".join(map(str, found.coordinates))
            name = f"box at ({where}), swizzle {swizzle}"
            self._draw(trace, _TILE, Rows(name, tuple(map(tuple, runs.tolist()))))

    def _draw(self, trace: WarpTrace, title: str, drawn: Rows | Banks) -> None:
        """Keeps the picture of a tile in shared memory, or of an access."""
        if drawn not in self._drawn:
            self._drawn[drawn] = len(self.pictures)
            self.pictures.append(f"{drawn.html()}<pre>{escape(drawn.summary)}</pre>")
        number = len(trace.times) - 1
        trace.pictures.setdefault(number, []).append((title, self._drawn[drawn]))

    def _multiplied(
        self,
        trace: WarpTrace,
        threads: Sequence[Thread],
        statement: Statement,
        ins: MatrixInstruction,
    ) -> None:
        """Keeps the matrices that an instruction multiplies, and reads its result later."""
        function = threads[0].frames[-1].function
        if statement not in self._readers:
            self._readers[statement] = Fetch(statement, function)
        fetch, number = self._readers[statement], len(trace.times) - 1
        operands, options = fetch(threads)
        tiles = trace.tiles.setdefault(number, {})
        for name, words in operands.items():
            if name in ("a", "b") and name not in fetch.vectors:
                with suppress(EmulatorError):  # it lies outside of shared memory
                    codes = load_matrix(ins, name, threads[0].block.shared, words, options)
                    fmt = FORMATS[ins.a_type if name == "a" else ins.b_type]
                    tiles[name] = self._tile(fmt, codes, f"descriptor {int(words):#018x}")
                    shape = tile_in_memory(ins, name, options).shape()
                    self._draw(trace, _TILE, rows_of(name, Descriptor.decode(int(words)), shape))
            elif name in fetch.vectors and name != "d":
                tiles[name] = self._gathered(ins, name, words)
        frames = [t.frames[-1] for t in threads]
        result, registers = fetch.result, fetch.result.indexes

        def read() -> None:
            words = [[frame.registers[i] if i >= 0 else 0 for i in registers] for frame in frames]
            tiles["d"] = self._gathered(ins, "d", np.array(words, result.dtype))

        assert trace.open is not None
        trace.open = trace.open._replace(result=read)

    def _gathered(self, ins: MatrixInstruction, name: str, words: Array) -> int:
        fragment = ins.fragment(name)
        codes = fragment.gather(words)
        return self._tile(fragment.fmt, codes.reshape(-1, codes.shape[-1]), "in registers")

    def _tile(self, fmt: Format, codes: Array, place: str) -> int:
        """The number of a tile; -1 where the page has room for no more."""
        key = fmt.name.encode() + place.encode() + str(codes.shape).encode() + codes.tobytes()
        if key not in self._known_tiles:
            self.elements += codes.size
            if self.elements > _MOST_ELEMENTS:
                return -1
            self._known_tiles[key] = len(self.tiles)
            values = decode_values(fmt, codes).astype(float).tolist()
            rows = [[f"{x:.4g}" for x in row] for row in values]
            self.tiles.append({"type": fmt.name, "place": place, "rows": rows})
        return self._known_tiles[key]

    # --- groups of asynchronous statements ---

    def _group(
        self, trace: WarpTrace, key: tuple[int, int], thread: Thread, statement: Statement
    ) -> None:
        if self._families is None:
            opcodes = (
                str(x.instruction) for x in thread.run.program.statements if "commits" in x.effects
            )
            self._families = tuple({x.partition(".commit")[0] for x in opcodes})
        opcode, effects = str(statement.instruction), statement.effects
        alike = [x for x in self._families if opcode.startswith(x + ".")]
        if not alike:
            return
        family, now = max(alike, key=len), trace.times[-1]
        issued, groups = self._groups.setdefault((key, family), ([], []))
        product = isinstance(statement.instruction, MatrixInstruction)
        if "commits" in effects:
            if issued:
                groups.append(issued.copy())
                issued.clear()
        elif "waits" in effects:
            newest = constant(statement, "n") if "n" in statement.operands else 0
            while len(groups) > newest:
                group = groups.pop(0)
                trace.groups.append((family, group[0], now + 1, len(group)))
        elif product or "copies" in effects:
            issued.append(now)


def _finder(statement: Statement, place: Address) -> Callable[[Thread], tuple[str, int]]:
    """The space and the address of an access of a thread."""
    if isinstance(statement.instruction, Movement):
        row = shared_address(place)
        return lambda thread: ("shared", row(thread))
    find, space = addresses(place), space_of(statement, place)
    return lambda thread: resolve(space, find(thread))


def _access_bytes(statement: Statement) -> int:
    """Bytes that each lane accesses."""
    if isinstance(statement.instruction, Movement):
        return ROW_BYTES
    if "copies" in statement.effects:
        return constant(statement, "size")
    held = statement.operands.get("b", statement.operands.get("d"))
    return TYPES[ordinary(statement).types[-1]].size // 8 * len(items_of(held))


def packed(words: Sequence[int], bits: int) -> str:
    """Words of the lanes for the page: ``v`` where all are v, ``v+s`` where each is s more than the
    one before, both in hexadecimal, else ``=`` and their bytes in base64."""
    mask = (1 << bits) - 1
    step = (words[1] - words[0]) & mask if len(words) > 1 else 0
    if all((words[0] + i * step) & mask == word for i, word in enumerate(words)):
        return f"{words[0]:x}" + (f"+{step:x}" if step else "")
    size = 8 if bits > 32 else 4
    return "=" + b64encode(b"".join(word.to_bytes(size, "little") for word in words)).decode()
