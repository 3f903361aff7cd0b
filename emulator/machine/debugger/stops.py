"""Debugger: breakpoints, watchpoints and catchpoints, where a launch stops by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from emulator.arith.scalar.types import TYPES
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.machine.checks.values import is_float, specials_of_words, typed_items
from emulator.machine.debugger.expressions import Expression
from emulator.machine.reference.operands import Read, guard_of, reader
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.place import shown
from emulator.machine.shared.waiting import FOR_OTHERS
from emulator.ptx.program import Address, Program, Statement, registers_of

#: gives the threads that go next, and their pc
Coming = Callable[[], tuple[Sequence[Thread], int]]
Quantifier = Literal["any", "all"]
Lookups = Callable[[Thread], Callable[[str], object]]


@dataclass(eq=False)
class Stopper:
    """A reason to stop, by its number; it keeps what it saw last."""

    number: int
    text: str
    enabled: bool = True
    temporary: bool = False
    #: how often it has stopped the launch, and how often it is still to be ignored
    hits: int = 0
    ignore: int = 0
    #: whether the statement before the stop is the one that it is about
    behind: bool = False

    def start(self) -> None:
        """The launch goes on from here."""

    def meets(self, threads: Sequence[Thread], pc: int) -> str:
        """Why to stop before a statement of threads; "" to go on."""
        raise NotImplementedError


@dataclass(eq=False)
class Breakpoint(Stopper):
    """Stops before statements; in one block, warp or thread, and where a condition holds."""

    pcs: frozenset[int] = frozenset()
    program: Program | None = None
    #: the number of a block in the grid, of a warp in its block, of a thread in its block
    block: int | None = None
    warp: int | None = None
    thread: int | None = None
    condition: Expression | None = None
    quantifier: Quantifier = "any"
    lookups: Lookups | None = None
    #: the lane that it has stopped for
    lane: int = -1

    def meets(self, threads: Sequence[Thread], pc: int) -> str:
        first = threads[0]
        if pc not in self.pcs or first.run.program is not self.program:
            return ""
        if self.block is not None and first.block.number != self.block:
            return ""
        if self.warp is not None and first.warp.number != self.warp:
            return ""
        if self.thread is not None:
            threads = [t for t in threads if t.index == self.thread]
            if not threads:
                return ""
        if self.condition is not None:
            assert self.lookups is not None
            lookups = self.lookups
            held = [t for t in threads if self.condition(lookups(t))]
            if not held or (self.quantifier == "all" and len(held) < len(threads)):
                return ""
            threads = held
        particular = self.condition is not None or self.thread is not None
        self.lane = threads[0].lane if particular else -1
        return f"breakpoint {self.number}, {self.text}"


class Watched(NamedTuple):
    """Memory, or a register of a warp, that a watchpoint is about."""

    text: str
    #: the lane that was in focus
    lane: int
    #: the value, None while its block does not run; and its text in a lane
    read: Callable[[], object]
    show: Callable[[object, int], str]
    #: of memory: its first address in this process, and the one behind
    place: Callable[[], tuple[int, int] | None] = lambda: None
    #: of a register: who of the threads at a pc uses it, by use
    users: Callable[[Sequence[Thread], int], dict[str, Thread]] | None = None


@dataclass(eq=False)
class Watchpoint(Stopper):
    """Stops after a statement that has changed a value: memory, or a register of a warp."""

    watched: Watched = field(kw_only=True)
    behind: bool = True
    _last: object = None

    def start(self) -> None:
        self._last = self.watched.read()

    def meets(self, threads: Sequence[Thread], pc: int) -> str:
        now, before = self.watched.read(), self._last
        if now == before:
            return ""
        self._last = now
        if before is None or now is None:  # its block has started, or ended
            return ""
        old, new = (self.watched.show(x, self.watched.lane) for x in (before, now))
        return f"watchpoint {self.number}, {self.text}: {old} -> {new}"


@dataclass(eq=False)
class AccessWatchpoint(Stopper):
    """Stops after a statement that uses memory, or a register of a warp."""

    watched: Watched = field(kw_only=True)
    #: "read", "written", or both
    uses: Sequence[str] = field(kw_only=True)
    coming: Coming = field(kw_only=True)
    behind: bool = True
    #: by use: a thread of the statement that was last looked at
    _seen: dict[str, Thread] = field(default_factory=dict)
    _place: tuple[int, int] | None = None
    _opcode: str = ""

    def start(self) -> None:
        self._look(*self.coming())

    def meets(self, threads: Sequence[Thread], pc: int) -> str:
        seen, opcode = self._seen, self._opcode
        self._look(threads, pc)
        used = [use for use in self.uses if use in seen]
        if not used:
            return ""
        thread = seen[used[0]]
        who = f"thread {shown(thread.coordinates)} of block {shown(thread.block.index)}"
        what = f"{' and '.join(used)} by {opcode} in {who}"
        now = self.watched.read()
        value = "" if now is None else f", now {self.watched.show(now, thread.lane)}"
        return f"watchpoint {self.number}, {self.text}: {what}{value}"

    def _look(self, threads: Sequence[Thread], pc: int) -> None:
        """Waits for what a statement uses."""
        self._seen = {}
        if not threads:
            return
        run = threads[0].run
        self._opcode = str(run.program.statements[pc].instruction)
        if self.watched.users is not None:
            self._seen = self.watched.users(threads, pc)
        else:
            self._place = self.watched.place()
            run.touched[self] = self._touched

    def _touched(
        self, thread: Thread, held: memoryview, start: int, size: int, uses: Sequence[str]
    ) -> None:
        if self._place is None or not size:
            return
        first = np.frombuffer(held, np.uint8).ctypes.data + start
        if first < self._place[1] and self._place[0] < first + size:
            for use in uses:
                self._seen.setdefault(use, thread)


def users_of(
    statement: Statement, indexes: Sequence[int], threads: Sequence[Thread]
) -> dict[str, Thread]:
    """By use, "read" and "written": the first of the threads whose register a statement uses."""
    read = {i for bound in statement.bound("read") for i in registers_of(bound)}
    written: set[int] = set()
    for bound in statement.bound("written"):
        (read if isinstance(bound, Address) else written).update(registers_of(bound))
    guard = statement.guard
    holds = guard_of(guard)
    chosen = [t for t in threads if holds is None or holds(t)]
    found = {}
    for use, used in (("read", read), ("written", written)):
        if chosen and not used.isdisjoint(indexes):
            found[use] = chosen[0]
    if guard is not None and guard.index in indexes:
        found["read"] = threads[0]
    return found


class _Floats(NamedTuple):
    """The floats that a statement takes and writes, each a type and a reader."""

    reads: list[tuple[str, Read]]
    writes: list[tuple[str, Read]]
    guard: Read | None
    #: whether its lanes compute together
    matrix: bool


@dataclass(eq=False)
class Catchpoint(Stopper):
    """Stops after a statement that has made a NaN or an infinity of operands without any."""

    wanted: Literal["nan", "inf", "any"] = field(kw_only=True)
    coming: Coming = field(kw_only=True)
    behind: bool = True
    #: the threads of the statement that was last seen, what to look at, and what there was before
    _seen: tuple[list[Thread], _Floats, list[bool], str] | None = None
    _known: dict[Statement, _Floats | None] = field(default_factory=dict)

    def start(self) -> None:
        self._look(*self.coming())

    def meets(self, threads: Sequence[Thread], pc: int) -> str:
        found = self._found()
        self._look(threads, pc)
        return found

    def _look(self, threads: Sequence[Thread], pc: int) -> None:
        """Looks at what a statement takes."""
        self._seen = None
        if not threads:
            return
        statement = threads[0].run.program.statements[pc]
        if statement not in self._known:
            self._known[statement] = _floats_of(statement)
        held = self._known[statement]
        if held is None:
            return
        reads, _, guard, together = held
        chosen = [t for t in threads if guard is None or guard(t)]
        special = [
            any(_special(read(t), type_, self.wanted) for type_, read in reads) for t in chosen
        ]
        if together:
            special = [any(special)] * len(special)
        if chosen:
            self._seen = chosen, held, special, str(statement.instruction)

    def _found(self) -> str:
        if self._seen is None:
            return ""
        threads, (_, writes, _, _), before, opcode = self._seen
        for thread, was in zip(threads, before, strict=True):
            if was or thread.state in FOR_OTHERS:
                continue
            if any(_special(read(thread), type_, self.wanted) for type_, read in writes):
                who = f"thread {shown(thread.coordinates)} of block {shown(thread.block.index)}"
                what = {"nan": "a NaN", "inf": "an infinity"}.get(self.wanted, "NaN or infinity")
                return f"catchpoint {self.number}: {opcode} has made {what} in {who}"
        return ""


def _floats_of(statement: Statement) -> _Floats | None:
    """The floats of a statement; None where it makes none."""
    ins = statement.instruction
    matrix = isinstance(ins, (MatrixInstruction, WmmaMultiply))
    if not matrix and not getattr(ins, "rule", ""):
        return None
    reads, writes = (
        [
            (type_, reader(item, type_))
            for _, type_, item in typed_items(statement, written)
            if is_float(type_)
        ]
        for written in (False, True)
    )
    return _Floats(reads, writes, guard_of(statement.guard), matrix) if writes else None


def _special(word: int, type_: str, wanted: str) -> bool:
    nan, infinite = specials_of_words(np.array([word], TYPES[type_].dtype), type_)
    return bool((wanted != "inf" and nan[0]) or (wanted != "nan" and infinite[0]))
