"""Debugger: the state of a stopped launch, registers, memory, mbarriers, pending operations,
waits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS, Array
from dtypes.arrays import decode_values
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.errors import EmulatorError, OperandError, hint, listing, quoted, runs
from emulator.machine.debugger.expressions import Expression, Lookup, Value
from emulator.machine.debugger.locations import Locations
from emulator.machine.debugger.player import Player
from emulator.machine.debugger.shown import LARGE, Shown, number_text, text_of, value_of
from emulator.machine.reference.fragments import Registers
from emulator.machine.reference.mbarriers import waiting_of
from emulator.machine.reference.operands import special
from emulator.machine.reference.thread import Block, Cluster, Thread, Warp
from emulator.machine.reference.waiting import pc_of, what_for
from emulator.machine.shared.phases import SIZE, missing
from emulator.machine.shared.place import shown
from emulator.machine.shared.special import CLOCKS
from emulator.machine.shared.waiting import State
from emulator.memory.mbarrier import Barrier
from emulator.memory.tensor_copy import SWIZZLE_BITS, swizzled
from emulator.memory.windows import LOCAL, PARAMETERS, RANK_BITS, SHARED, WINDOW_BITS
from emulator.ptx.names import short_name
from emulator.ptx.program import Register, Statement, Vector, items_of, registers_of

#: elements that one answer may show
_MOST = 1 << 16
_NAMED = re.compile(r"&?\s*([A-Za-z_$.][\w$.]*)((?:\s*\[\s*\d+\s*\])*)\s*(?:\+\s*(\w+))?")
#: C's and NumPy's names of types -> those of PTX
_TYPES = {
    "float": "f32", "double": "f64", "half": "f16", "int": "s32", "unsigned": "u32",
    "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16",
    **{f"int{n}": f"s{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
}  # fmt: skip
_INSIDE = (1 << WINDOW_BITS) - 1


class Focus(NamedTuple):
    """The lane that commands speak of; `block` counts the blocks of the grid."""

    block: int = 0
    warp: int = 0
    lane: int = 0


class Spot(NamedTuple):
    """An address, and what its owner calls it."""

    space: str
    address: int
    name: str
    #: of an element, "" where nobody says
    type: str = ""


class Looking:
    """A stopped launch, as a lane in focus sees it."""

    def __init__(self, player: Player, locations: Locations, focus: Focus) -> None:
        self.player, self.locations, self.focus = player, locations, focus
        self.launch = player.launch

    # --- who is there ---

    @property
    def clusters(self) -> list[Cluster]:
        return self.player.threads[0].run.clusters if self.player.threads else []

    @property
    def blocks(self) -> Iterator[Block]:
        """The blocks that have started and not ended."""
        return (block for cluster in self.clusters for block in cluster.blocks)

    @property
    def block(self) -> Block:
        found = next((x for x in self.blocks if x.number == self.focus.block), None)
        if found is None:
            there = listing([shown(x.index) for x in self.blocks], 8)
            if not there:
                raise OperandError("the launch is over: run starts it again, or go back")
            raise OperandError(
                f"block {self.focus.block} is not running; blocks that run are {there}"
            )
        return found

    @property
    def warp(self) -> Warp:
        warps = self.block.warps
        if self.focus.warp >= len(warps):
            raise OperandError(f"a block has {len(warps)} warps; got warp {self.focus.warp}")
        return warps[self.focus.warp]

    @property
    def thread(self) -> Thread:
        threads = self.warp.threads
        if self.focus.lane >= len(threads):
            raise OperandError(f"the warp has {len(threads)} lanes; got lane {self.focus.lane}")
        return threads[self.focus.lane]

    def pc(self, thread: Thread) -> int:
        """The statement that a thread executes next, or waits at."""
        return min(pc_of(thread), len(self.locations.program.statements) - 1)

    def statement(self, thread: Thread) -> Statement | None:
        statements = self.locations.program.statements
        return statements[thread.pc] if thread.pc < len(statements) else None

    # --- registers ---

    def word(self, thread: Thread, name: str) -> tuple[int, str]:
        """The word of a register of a thread's innermost call, and its type."""
        frame = thread.frames[-1]
        alike = [i for i, info in enumerate(frame.function.registers) if info.name == name]
        if not alike:
            known = [info.name for info in frame.function.registers]
            raise OperandError(
                f"{frame.function.name} has no register {quoted(name)}{hint(name, known)}"
            )
        # Registers of blocks in braces may share a name: the one that the statement names is meant.
        statement = self.statement(thread)
        used = set() if statement is None else set(_indexes(statement))
        index = next((i for i in alike if i in used), alike[0])
        info = frame.function.registers[index]
        type_ = f"b{8 * info.zero.shape[1]}" if info.type == "bytes" else info.type
        return frame.registers[index], type_

    def lookup(self, thread: Thread) -> Lookup:
        """Values of names in expressions, for a thread."""

        def find(name: str) -> Value:
            if not name.startswith("%"):
                return self._variable(thread, name)
            if any(info.name == name for info in thread.frames[-1].function.registers):
                return value_of(*self.word(thread, name))
            if name in CLOCKS:
                raise OperandError(f"{name} moves on when it is read")
            try:
                return special(name)(thread)
            except EmulatorError:
                return value_of(*self.word(thread, name))

        return find

    def _variable(self, thread: Thread, name: str) -> Value:
        """The value of a variable of the source, or of a parameter by its name or the last part of
        it."""
        held = self.locations.variables(self.pc(thread))
        if name in held:
            place, type_ = held[name].place, held[name].type
            if not place.startswith("%"):
                return self._variable(thread, place)
            word, own = self.word(thread, place)
            same = type_ in TYPES and TYPES[type_].size == TYPES[own].size
            return value_of(word, type_ if same else own)
        named = self.launch.kernel.bound.function.parameters
        known = {p.name: p for p in named}
        # Names of the source and, behind them, those of the PTX.
        either = {p.name: p for p in self.launch.function.parameters} | known
        chosen = (
            [either[name]]
            if name in either
            else [p for p in self.launch.function.parameters if p.name.endswith("_" + name)]
        )
        if len(chosen) != 1:
            raise OperandError(
                f"no register, variable or parameter {quoted(name)}; parameters are "
                f"{listing(map(self._short, known), 20) or 'none'}{hint(name, known)}"
            )
        (p,) = chosen
        raw = self.parameter_bytes()[p.offset : p.offset + p.bytes]
        if p.count > 1 or p.type not in TYPES:
            raise OperandError(f"{name} has {p.bytes} bytes: x/{p.bytes}xb &{p.name} shows them")
        return value_of(int.from_bytes(raw, "little"), p.type)

    def parameter_bytes(self) -> bytes:
        arena = self.launch.arena
        found = arena.find(PARAMETERS)
        return b"" if found is None else bytes(found.held)

    def register_names(self, every: bool = False) -> list[str]:
        """Registers that are live at the focus, or that its last statement has named; or all."""
        thread = self.thread
        function = thread.frames[-1].function
        if every:
            return list(dict.fromkeys(x.name for x in function.registers if x.type != "bytes"))
        statements = self.locations.program.statements
        live = self.locations.program.liveness.at(min(thread.pc, len(statements)))
        near = [x for x in (thread.pc - 1, thread.pc) if function.first <= x < function.end]
        named = {i for pc in near for i in _indexes(statements[pc])}
        return list(
            dict.fromkeys(
                x.name
                for i, x in enumerate(function.registers)
                if x.type != "bytes" and (live >> i & 1 or i in named)
            )
        )

    def values(self, name: str) -> list[Value]:
        """The value of a register or an expression in each lane of the warp; None where a lane has
        ended."""
        expression = Expression(name)
        return [
            None if t.state is State.ENDED else expression(self.lookup(t))
            for t in self.warp.threads
        ]

    def variables(self) -> Shown:
        """The variables of the source that have a value at the focus, as its lane sees them."""
        thread, rows, data = self.thread, [], {}
        for name, variable in self.locations.variables(self.pc(thread)).items():
            value = self._variable(thread, name)
            text = f"{value:#x}" if variable.type == "u64" else number_text(value, variable.type)
            rows.append((name, text, variable.place))
            data[name] = value
        title = "" if rows else "the file names no variables here: nvcc -G does"
        return Shown(title, ("variable", "value", "in"), rows, data)

    def registers(self, names: Sequence[str] = (), every: bool = False) -> Shown:
        """Registers of the lane in focus, and how those of the other lanes differ."""
        thread, data = self.thread, {}
        rows: list[tuple[str, ...]] = []
        sources = {x.place: x.name for x in self.locations.variables(self.pc(thread)).values()}
        lanes = [t for t in self.warp.threads if t.state is not State.ENDED]
        for name in names or self.register_names(every):
            word, type_ = self.word(thread, name)
            words = [self._word_or_none(t, name) for t in lanes]
            data[name] = [value_of(w, type_) for w in words if w is not None]
            others = _differ([w for w in words if w is not None], type_)
            own = text_of(word, type_), f"{word:#x}"
            rows.append((name, f".{type_}", *own, others, sources.get(name, "")))
        title = f"lane {self.focus.lane} of {self.who(thread)}"
        columns = 6 if sources else 5
        header = ("register", "type", "value", "word", "all lanes", "variable")[:columns]
        rows = [row[:columns] for row in rows]
        return Shown(title, header, rows, data)

    def _word_or_none(self, thread: Thread, name: str) -> int | None:
        """A lane may be in another function, which lacks the register."""
        try:
            return self.word(thread, name)[0]
        except OperandError:
            return None

    def lanes(self, expressions: Sequence[str] = ()) -> Shown:
        """A row for each lane of the warp: where it is, what it waits for, and values."""
        held = [Expression(x) for x in expressions]
        rows, data = [], []
        for t in self.warp.threads:
            ended = t.state is State.ENDED
            values = [
                "" if ended else _shown_value(x(self.lookup(t)), self._type(t, x.text))
                for x in held
            ]
            where = "" if ended else str(self.locations.line(self.pc(t)))
            name = f"{'*' if t.lane == self.focus.lane else ' '}{t.lane}"
            rows.append((name, shown(t.coordinates), _state(t), where, *values))
            data.append({
                "lane": t.lane, "thread": t.coordinates, "state": t.state.name.lower(),
                "pc": t.pc, "line": where, "values": values,
            })  # fmt: skip
        header = ("lane", "thread", "state", "at", *expressions)
        return Shown(self.who(self.thread), header, rows, data)

    def _type(self, thread: Thread, text: str) -> str:
        try:
            return self.word(thread, text.strip().replace("$", "%"))[1]
        except OperandError:
            return ""

    def groups(self) -> Shown:
        """The convergence of the warp: which lanes are together, and where."""
        held: dict[tuple[State, int, tuple[int, ...]], list[Thread]] = {}
        for t in self.warp.threads:
            key = (t.state, 0, ()) if t.state is State.ENDED else (t.state, t.pc, t.calls)
            held.setdefault(key, []).append(t)
        current = set(self.player.threads)
        rows, data = [], []
        for (state, _, _), threads in held.items():
            ended, pc = state is State.ENDED, self.pc(threads[0])
            where = "" if ended else self.locations.line(pc)
            text = "" if ended else self.locations.statement(pc)
            lanes = [t.lane for t in threads]
            mark = "*" if not current.isdisjoint(threads) else " "
            rows.append((mark + runs(lanes), _state(threads[0]), str(where), text))
            data.append({"lanes": lanes, "state": state.name.lower(), "pc": pc, "statement": text})
        title = f"{self.who(self.thread)}: {len(rows)} group{'s' * (len(rows) > 1)} of lanes"
        return Shown(title, ("lanes", "state", "at", "statement"), rows, data)

    def who(self, thread: Thread) -> str:
        return f"block {shown(thread.block.index)}, warp {thread.warp.number}"

    def warps(self) -> Shown:
        """Every warp of the blocks that run: where it is, and what it waits for."""
        rows, data = [], []
        for block in self.blocks:
            for warp in block.warps:
                held: dict[tuple[object, ...], list[Thread]] = {}
                for t in warp.threads:
                    if t.state is not State.ENDED:
                        held.setdefault((t.pc, t.state), []).append(t)
                mine = (block.number, warp.number) == self.focus[:2]
                name = f"{'*' if mine else ' '}{shown(block.index)} warp {warp.number}"
                if not held:
                    rows.append((name, "none", "", "ended"))
                for threads in held.values():
                    first, lanes = threads[0], [t.lane for t in threads]
                    reason = "ready" if first.state is State.READY else what_for(threads)
                    line = str(self.locations.line(self.pc(first)))
                    rows.append((name, runs(lanes), line, reason))
                    data.append({
                        "block": block.index, "warp": warp.number, "lanes": lanes,
                        "pc": first.pc, "line": line, "waits": reason,
                    })  # fmt: skip
        return Shown("", ("block and warp", "lanes", "at", "waits for"), rows, data)

    def backtrace(self) -> Shown:
        """The calls that the lane is in, the innermost first."""
        thread = self.thread
        pcs = [self.pc(thread), *(pc - 1 for pc in reversed(thread.calls))]
        rows = [
            (f"#{i}", frame.function.name, self._where(pc), self.locations.statement(pc))
            for i, (frame, pc) in enumerate(zip(reversed(thread.frames), pcs, strict=True))
        ]
        return Shown("", (), rows, [list(row) for row in rows])

    def _where(self, pc: int) -> str:
        lines = self.locations.source_lines(pc) or (self.locations.ptx_line(pc),)
        return ", inlined at ".join(map(str, lines))

    def arguments(self) -> Shown:
        """The parameters of the kernel."""
        rows, raw = [], self.parameter_bytes()
        for p in self.launch.kernel.bound.function.parameters:
            held = raw[p.offset : p.offset + p.bytes]
            number = int.from_bytes(held, "little")
            scalar = p.count == 1 and p.type in TYPES
            text = text_of(number, p.type) if scalar else f"{p.bytes} bytes"
            found = self.launch.arena.find(number) if p.bytes == 8 else None
            array = ""
            if found is not None:
                shape = " × ".join(map(str, found.shape or (found.size,)))
                text, array = f"{number:#x}", f"{found.type or 'bytes'} {shape}"
            rows.append((self._short(p.name), f".{p.type}", text, array))
        return Shown("" if rows else "no parameters", (), rows, [list(row) for row in rows])

    def _short(self, name: str) -> str:
        """The name of a parameter without that of its kernel, which compilers put before it."""
        return name.removeprefix(f"{self.launch.function.name}_")

    # --- memory ---

    def spot(self, text: str) -> Spot:
        """The address that a text means: ``C[3][5]``, ``tile + 16``, ``shared:0x100``, ``%rd4``."""
        text = text.strip()
        space, colon, rest = text.partition(":")
        if colon and space in ("shared", "global", "local", "param"):
            return Spot(space, self._number(rest), text)
        match = _NAMED.fullmatch(text)
        if match and (found := self._named(match[1], match[2], match[3] or "0")):
            return found
        address = self._number(text)
        window = address >> WINDOW_BITS << WINDOW_BITS
        where = {SHARED: "shared", LOCAL: "local"}.get(window, "global")
        return Spot(where, address & _INSIDE if where != "global" else address, text)

    def _number(self, text: str) -> int:
        expression = Expression(text)
        value = expression(self.lookup(self.thread) if expression.names else _no_names)
        if not isinstance(value, int):
            raise OperandError(f"an address is an integer; {quoted(text)} is {value}")
        return value & (1 << 64) - 1

    def _named(self, name: str, indexes: str, more: str) -> Spot | None:
        """A variable of shared memory, an array of the caller, or a variable of the module."""
        extra = int(more, 0) if re.fullmatch(r"0[xX][0-9a-fA-F]+|\d+", more) else None
        if extra is None:
            return None
        numbers = [int(x) for x in re.findall(r"\d+", indexes)]
        for symbol in self.launch.shared_symbols:
            if name in (symbol.name, short_name(symbol.name)):
                offset = sum(numbers) * symbol.element_bytes + extra
                return Spot("shared", symbol.place + offset, name)
        alike = [x for x in self.launch.arena if x.name == name] or [
            x for x in self.launch.arena if x.name.endswith("_" + name)
        ]
        if len(alike) != 1:
            return None
        (found,) = alike
        shape = found.shape[len(found.shape) - len(numbers) :] if found.shape else (found.size,)
        element = 0
        for i, size in zip(numbers, shape, strict=False):
            element = element * size + i
        address = found.address + element * found.element_bytes + extra
        return Spot("global", address, name, _TYPES.get(found.type, ""))

    def bytes_at(self, spot: Spot, size: int) -> bytes:
        """Bytes of memory; OperandError where there are not so many."""
        held, start = self._held(spot)
        if not 0 <= start <= start + size <= len(held):
            raise OperandError(
                f"{size} byte{'s' * (size != 1)} at {spot.address:#x} of {spot.space} memory "
                f"({spot.name}) leave it: it has {len(held)} bytes there"
            )
        return bytes(held[start : start + size])

    def place(self, spot: Spot, size: int) -> tuple[int, int]:
        """Where bytes of memory lie in this process: the first address, and the one behind."""
        held, start = self._held(spot)
        first = np.frombuffer(held, np.uint8).ctypes.data + start
        return first, first + size

    def _held(self, spot: Spot) -> tuple[Array | bytearray | bytes, int]:
        """The memory that a spot is in, and where in it."""
        if spot.space == "shared":
            block, address = self.block, spot.address
            rank = address >> RANK_BITS
            blocks = block.cluster.blocks
            if rank and rank < len(blocks):
                block = blocks[rank]
            return block.shared, address & (1 << RANK_BITS) - 1
        if spot.space == "local":
            return self.thread.local, spot.address
        if spot.space == "param":
            return self.parameter_bytes(), spot.address
        arena = self.launch.arena
        found = arena.find(spot.address)
        if found is None:
            near = arena.nearest(spot.address)
            text = f"; nearest is {near.name} at {near.address:#x}" if near else ""
            raise OperandError(f"nothing lies at {spot.address:#x} ({spot.name}){text}")
        return found.held, spot.address - found.address

    def elements(self, text: str, type_: str, places: Array) -> Array:
        """Values of a type at bytes behind an address, as float64 or int64."""
        spot, kind = self.spot(text), _type_of(type_)
        size = max(1, kind.size // 8)
        low, high = int(places.min()), int(places.max()) + size
        raw = self.bytes_at(spot._replace(address=spot.address + low), high - low)
        rows = np.frombuffer(raw, np.uint8)[(places - low)[..., None] + np.arange(size)]
        codes = rows.view(f"<u{size}")[..., 0]
        return codes

    def memory(self, text: str, count: int = 8, type_: str = "", style: str = "") -> Shown:
        """`count` elements of memory from a place on; the type is the array's, or 32-bit words."""
        spot = self.spot(text)
        kind = _type_of(type_ or spot.type or "b32")
        size = max(1, kind.size // 8)
        _check_count(count)
        codes = self.elements(text, kind.name, np.arange(count) * size)
        per_row = max(1, 32 // size if style != "t" else 4)
        words = [int(x) for x in codes]
        rows = [
            (
                f"{spot.address + i * size:#x} <{spot.name}+{i * size}>:",
                *(text_of(word, kind.name, style) for word in words[i : i + per_row]),
            )
            for i in range(0, count, per_row)
        ]
        return Shown("", (), rows, [value_of(word, kind.name) for word in words])

    def tile(
        self,
        text: str,
        rows: int,
        columns: int,
        type_: str,
        stride: int | None = None,
        swizzle: str = "none",
    ) -> Shown:
        """Memory as a matrix: `stride` bytes from row to row (default: rows side by side), as it
        lies under a swizzle of "32B", "64B" or "128B"."""
        if swizzle not in SWIZZLE_BITS:
            raise OperandError(
                f"swizzle is {listing(SWIZZLE_BITS)}; got {quoted(swizzle)}"
                f"{hint(swizzle, SWIZZLE_BITS)}"
            )
        spot, kind = self.spot(text), _type_of(type_)
        size = max(1, kind.size // 8)
        pitch = columns * size if stride is None else stride
        _check_count(rows * columns)
        places = np.arange(rows)[:, None] * pitch + np.arange(columns) * size
        # The swizzle is of the address, which the place of the tile is part of.
        places = swizzled(spot.address + places, swizzle) - spot.address
        codes = self.elements(text, kind.name, places)
        return _matrix(f"{text}, {rows} × {columns} {kind.name}", codes, kind.name)

    def fragment(self, name: str) -> Shown:
        """An operand of the matrix instruction at the focus, or of the last one before it, as the
        matrix that its lanes hold together."""
        statements, thread = self.locations.program.statements, self.thread
        function = thread.frames[-1].function
        last = min(thread.pc, len(statements) - 1)
        found = next(
            (
                statements[pc]
                for pc in range(last, function.first - 1, -1)
                if getattr(statements[pc].instruction, "fragments", None)
            ),
            None,
        )
        if found is None:
            raise OperandError("no matrix instruction stands at the focus or before it")
        fragments: Any = found.instruction.fragments
        bound = found.operands.get(name)
        if name not in fragments or bound is None or not isinstance(bound, (Vector, Register)):
            raise OperandError(
                f"{found.instruction} has no operand {quoted(name)} in registers; it has "
                f"{listing([x for x in fragments if x in found.operands])}"
            )
        threads = self.warp.threads
        if found.instruction.lanes > len(threads):
            threads = self.block.warpgroup(self.warp.number)
        registers = Registers(found.signature[name], bound, function)
        if any(t.frames[-1].function is not function for t in threads):
            raise OperandError("lanes of the warp are in different functions")
        fragment = fragments[name]
        codes = fragment.gather(registers.read(threads))
        line = self.locations.line(found.pc)
        title = f"{name} of {found.instruction} at {line}: {' × '.join(map(str, codes.shape))}"
        return _matrix(title, codes.reshape(-1, codes.shape[-1]), fragment.fmt.name)

    # --- asynchronous statements ---

    def mbarriers(self) -> Shown:
        """Every mbarrier that was initialised: its phase, what it waits for, who waits for it."""
        by_number = {block.number: block for block in self.blocks}
        rows, data = [], []
        for number, place in self.player.mbarriers:
            block = by_number.get(number)
            if block is None:
                continue
            word = int(block.shared.view(np.uint64)[place])
            held = Barrier.decode(word)
            name = self.launch.shared_name(place * SIZE, SIZE)
            in_cluster = block.rank * block.run.shared_bytes // SIZE + place
            every = block.cluster.waiting
            waiting = [t for t in every if waiting_of(t).barrier == in_cluster]
            phases = [waiting_of(t).phase for t in waiting]
            warps = sorted({(t.block.number, t.warp.number) for t in waiting})
            texts = sorted({phase.test.text(int(phase.given)) for phase in phases})
            who = ", ".join(
                f"warp {w}" + (f" of block {b}" if b != number else "") for b, w in warps
            )
            waits = f"{who}: {', '.join(texts)}" if who else "nobody"
            rows.append((shown(block.index), name, f"parity {held.parity}", missing(held), waits))
            data.append({
                "block": block.index, "name": name, "offset": place * SIZE, **held._asdict(),
                "warps": [w for _, w in warps],
            })  # fmt: skip
        header = ("block", "mbarrier", "in phase of", "until it is over", "who waits")
        return Shown("" if rows else "no mbarrier was initialised", header, rows, data)

    def pending(self) -> Shown:
        """Asynchronous operations that were issued and have not taken effect."""
        rows: list[tuple[str, ...]] = []
        for cluster in self.clusters:
            per_block = cluster.blocks[0].run.lanes_of_block
            for x in cluster.pending.transfers:
                where, thread = divmod(x.lane, per_block)
                signals = f"group {x.group}"
                if x.barrier is not None:
                    rank, inside = divmod(x.barrier * SIZE, cluster.run.shared_bytes)
                    signals = f"mbarrier {self.launch.shared_name(inside, SIZE)}"
                    signals += f" of rank {rank}" if len(cluster.blocks) > 1 else ""
                block = shown(cluster.blocks[where].index)
                rows.append((block, f"thread {thread}", "bulk or tensor copy", signals))
            for copies in cluster.pending.copies:
                where = int(copies.lanes[0]) // per_block
                lanes = [int(x) % per_block for x in copies.lanes]
                block, groups = shown(cluster.blocks[where].index), {int(x) for x in copies.groups}
                signals = f"group {listing(sorted(groups))}"
                rows.append((block, f"threads {runs(sorted(lanes))}", "cp.async", signals))
            for product in cluster.products:
                numbers = [product.warpgroups[i] for i in product.left]
                signals = f"group {listing([product.groups[i] for i in product.left])}"
                rows.append(("", f"warpgroup {listing(numbers)} of the grid", "wgmma", signals))
        title = "" if rows else "nothing is under way"
        order = self.launch.async_order
        note = f"async_order is {order!r}: copies and products take effect at their issue"
        notes = (note,) if not rows and order == "early" else ()
        header = ("block", "issued by", "what", "signals") if rows else ()
        return Shown(title, header, rows, [list(row) for row in rows], notes)


# --- in words -------------------------------------------------------------------------------------


def _no_names(name: str) -> Value:
    raise AssertionError(name)


def _indexes(statement: Statement) -> Iterator[int]:
    """The registers that the operands of a statement name."""
    for bound in statement.operands.values():
        for item in items_of(bound):
            yield from registers_of(item)
    if statement.guard is not None:
        yield statement.guard.index


def _state(thread: Thread) -> str:
    return {State.READY: "ready", State.ENDED: "ended"}.get(thread.state, "waits")


def _shown_value(value: Value, type_: str) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return number_text(value, type_ or "f64")


def _differ(words: Sequence[int], type_: str) -> str:
    """A summary of the words of the lanes: one value, a range, or a count."""
    if len(set(words)) <= 1:
        return "the same"
    if TYPES[type_].kind == "predicate":
        return f"true in {sum(words)} of {len(words)}"
    values = [value_of(word, type_) for word in words]
    if TYPES[type_].kind == "bits" and any(abs(x) >= LARGE for x in values):
        return f"{len(set(words))} values"
    if isinstance(values[0], tuple) or any(x != x for x in values):
        return f"{len(set(words))} values"
    low, high = min(values), max(values)
    return f"{number_text(low, type_)} … {number_text(high, type_)}"


def _type_of(name: str) -> ScalarType:
    chosen = _TYPES.get(name, name)
    if chosen not in TYPES or chosen == "pred" or TYPES[chosen].size > 64:
        names = [x for x in TYPES if x != "pred" and TYPES[x].size <= 64]
        raise OperandError(f"no element type {quoted(name)}{hint(name, [*names, *_TYPES])}")
    return TYPES[chosen]


def _check_count(count: int) -> None:
    if not 1 <= count <= _MOST:
        raise OperandError(f"one answer has 1 … {_MOST:,} elements; got {count:,}")


def _matrix(title: str, codes: Array, type_: str) -> Shown:
    """A matrix of codes as numbers; `type_` is a type of PTX or the name of a format."""
    if type_ in TYPES:
        text = [[text_of(int(x), type_) for x in row] for row in codes]
        data = [[value_of(int(x), type_) for x in row] for row in codes]
    else:
        values = decode_values(FORMATS[type_], codes)
        text = [[number_text(x.item()) for x in row] for row in values]
        data = values.tolist()
    header = ("", *map(str, range(codes.shape[1])))
    rows = [(str(i), *row) for i, row in enumerate(text)]
    return Shown(title, header, rows, data)
