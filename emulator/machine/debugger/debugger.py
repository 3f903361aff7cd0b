"""Debugger: a launch under it, as ``Debugger``, whose methods are gdb's commands with data."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

from emulator.errors import EmulatorError, OperandError, hint, needed, one_of, quoted, runs, whole
from emulator.layout.lanemap import WARP
from emulator.machine.debugger.expressions import Expression, Value
from emulator.machine.debugger.locations import Line, Locations
from emulator.machine.debugger.looking import Focus, Looking
from emulator.machine.debugger.player import Player
from emulator.machine.debugger.shown import Shown, text_of
from emulator.machine.debugger.stops import (
    AccessWatchpoint,
    Breakpoint,
    Catchpoint,
    Quantifier,
    Stopper,
    Watched,
    Watchpoint,
    users_of,
)
from emulator.machine.debugger.texts import TextLaunch
from emulator.machine.launch import Launch
from emulator.machine.reference.thread import Thread
from emulator.machine.report import KernelError, Report
from emulator.machine.shared.place import Index, number_of, shown
from emulator.machine.shared.waiting import State
from emulator.ptx.program import items_of, registers_of

#: events that a catchpoint can name
_SPECIALS = ("nan", "inf", "any")


#: a kind of stopper
_Made = TypeVar("_Made", bound=Stopper)
#: true of the threads that a move goes to, and of their statement
Wanted = Callable[[Sequence[Thread], int], bool]
#: a line, and the lanes that are there together
_At = tuple[Line, frozenset[int]]


@dataclass(frozen=True)
class Stop:
    """Why and where the launch has stopped."""

    reason: str
    #: number of the statement that comes next, counted from the start of the launch
    number: int
    block: Index = (0, 0, 0)
    warp: int = 0
    #: the lanes that execute the next statement together
    lanes: tuple[int, ...] = ()
    line: Line | None = None
    source: str = ""
    statement: str = ""
    #: the launch is over: it has ended, or raised
    ended: bool = False

    def __str__(self) -> str:
        if not self.statement:
            return self.reason
        where = f"block {shown(self.block)}, warp {self.warp}, lanes {runs(self.lanes)}"
        text = [f"{self.reason}", f"{where} at {self.line}: {self.statement}"]
        if self.source:
            text.append(f"{self.line.number if self.line else ''}\t{self.source}")
        return "\n".join(x for x in text if x)


class Debugger:
    """A launch that stops where it is told to, goes back, and shows what it holds.

    ``kernel.debug(grid, block, args)`` makes one, stopped before the first statement. It runs on
    the reference engine. Arrays of the caller get what the kernel wrote when the launch ends, and
    stay as they were when it is left before. Close it, or use it in a ``with`` statement.
    """

    def __init__(
        self, prepare: Callable[[], Launch | TextLaunch], source: str | Path | None = None
    ) -> None:
        self.player = Player(prepare)
        self._source = source
        self._locations: dict[int, Locations] = {}
        self.stops: dict[int, Stopper] = {}
        self.focused = Focus()
        self._count = 0
        self._close = weakref.finalize(self, self.player.close)
        self.stop = self._go("", lambda threads, pc: " ")

    def __enter__(self) -> Debugger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Debugger of {self.player.launch.kernel.name}: {self.stop.reason or 'stopped'}>"

    def close(self) -> None:
        """Leaves the launch; the caller's arrays stay as they are."""
        self._close()

    # --- where it is ---

    @property
    def look(self) -> Looking:
        """The state of the launch, as the lane in focus sees it."""
        return Looking(self.player, self.locations, self.focused)

    @property
    def locations(self) -> Locations:
        """The places of the kernel that runs: one that launches others has a program of its own."""
        launch = self.player.launch
        key = id(launch.program)
        if key not in self._locations:
            self._locations[key] = Locations(launch.program, launch.kernel, self._source)
        return self._locations[key]

    @property
    def error(self) -> KernelError | None:
        """The error that the launch has raised."""
        outcome = self.player.outcome
        return outcome if isinstance(outcome, KernelError) else None

    @property
    def report(self) -> Report | None:
        """The report of a launch that has ended."""
        outcome = self.player.outcome
        return outcome if isinstance(outcome, Report) else None

    @property
    def printed(self) -> list[str]:
        """The output of printf so far."""
        return list(self.player.launch.printed)

    def focus(
        self,
        block: int | Sequence[int] | None = None,
        warp: int | None = None,
        lane: int | None = None,
        thread: int | Sequence[int] | None = None,
    ) -> Focus:
        """Chooses the block, warp and lane that later calls speak of; ``thread=`` names a thread of
        the block by its number or coordinates. Returns the focus."""
        launch, old = self.player.launch, self.focused
        number = old.block if block is None else number_of("block", block, launch.grid)
        if thread is not None:
            warp, lane = divmod(number_of("thread", thread, launch.block), 32)
        chosen = Focus(
            number, old.warp if warp is None else warp, old.lane if lane is None else lane
        )
        if block is not None and warp is None:
            chosen = chosen._replace(warp=0, lane=lane or 0)
        elif warp is not None and lane is None:
            chosen = chosen._replace(lane=0)
        assert Looking(self.player, self.locations, chosen).thread is not None
        self.focused = chosen
        return chosen

    # --- stopping ---

    def break_at(
        self,
        where: str | int | None = None,
        *,
        condition: str | None = None,
        quantifier: Quantifier = "any",
        block: int | Sequence[int] | None = None,
        warp: int | None = None,
        thread: int | Sequence[int] | None = None,
        temporary: bool = False,
    ) -> Breakpoint:
        """Stops before the statements of a place: a line ("12", "kernel.cu:12", "ptx:30"), a
        function, an opcode or its first words ("mma.sync"); None: wherever the condition holds.

        `condition` is an expression, as "%r3 == 7", that holds in "any" or in "all" of the lanes
        which come to the statement; `block`, `warp` and `thread` say whose statements count.
        """
        if where is None:
            pcs, text = frozenset(range(len(self.locations.program.statements))), "anywhere"
        else:
            pcs, text = self.locations.find(str(where))
        one_of("quantifier", quantifier, get_args(Quantifier))
        held = None if condition is None else Expression(condition)
        launch = self.player.launch
        if warp is not None:
            whole("the warp", warp, 0, -(-math.prod(launch.block) // 32) - 1)
        number = None if block is None else number_of("block", block, launch.grid)
        chosen = None if thread is None else number_of("thread", thread, launch.block)
        return self._add(
            Breakpoint(
                self._count + 1,
                text,
                temporary=temporary,
                pcs=pcs,
                program=launch.program,
                block=number,
                warp=warp,
                thread=chosen,
                condition=held,
                quantifier=quantifier,
                lookups=lambda thread: self.look.lookup(thread),
            )
        )

    def watch(self, what: str, size: int | None = None) -> Watchpoint:
        """Stops after a statement that changes a register of the warp in focus ("%r3"), or bytes of
        memory ("C[3][5]", "shared:0x100"), of which `size` count: those of an element, or 4."""
        watched = self._watched(what, size)
        return self._add(Watchpoint(self._count + 1, watched.text, watched=watched))

    def rwatch(self, what: str, size: int | None = None) -> AccessWatchpoint:
        """Stops after a statement that reads a register of the warp in focus, or bytes of memory,
        named as for `watch`. Atomic operations and those of mbarriers read what they change; a
        copy reads where it is issued, or takes effect. What textures, surfaces and the descriptors
        of wgmma and tcgen05 read is not seen."""
        return self._access(what, size, ("read",))

    def awatch(self, what: str, size: int | None = None) -> AccessWatchpoint:
        """As `rwatch`, and after a statement that writes them, be it the value that is there."""
        return self._access(what, size, ("read", "written"))

    def _access(self, what: str, size: int | None, uses: Sequence[str]) -> AccessWatchpoint:
        watched = self._watched(what, size)
        return self._add(
            AccessWatchpoint(
                self._count + 1, watched.text, watched=watched, uses=uses, coming=self._coming
            )
        )

    def _coming(self) -> tuple[Sequence[Thread], int]:
        return self.player.threads, self.player.pc

    def _watched(self, what: str, size: int | None) -> Watched:
        text = needed(str, what).strip()
        if text[:1] in "%$" and text[1:].isidentifier():
            return self._watched_register(text)
        held = {name: place for name, _, place in self.look.variables().rows}
        if held.get(text, "").startswith("%"):
            raise OperandError(f"{text} is in {held[text]} at this statement: watch {held[text]}")
        focus, spot = self.focused, self.look.spot(text)
        count = 4 if size is None else whole("the size of what is watched", size, 1)
        self.look.bytes_at(spot, count)

        def show(words: Any, lane: int) -> str:
            return f"{int.from_bytes(words, 'little'):#0{2 * len(words) + 2}x}"

        return Watched(
            text,
            focus.lane,
            lambda: self._at(focus, lambda look: look.bytes_at(spot, count)),
            show,
            place=lambda: self._at(focus, lambda look: look.place(spot, count)),
        )

    def _watched_register(self, text: str) -> Watched:
        focus, look, name = self.focused, self.look, "%" + text[1:]
        type_ = look.word(look.thread, name)[1]

        def read() -> object:
            return self._at(
                focus,
                lambda look: tuple(
                    None if t.state is State.ENDED else look.word(t, name)[0]
                    for t in look.warp.threads
                ),
            )

        def show(words: Any, lane: int) -> str:
            return text_of(words[lane] or 0, type_)

        def users(threads: Sequence[Thread], pc: int) -> dict[str, Thread]:
            first = threads[0]
            if (first.block.number, first.warp.number) != focus[:2]:
                return {}
            registers = first.frames[-1].function.registers
            indexes = [i for i, info in enumerate(registers) if info.name == name]
            return users_of(first.run.program.statements[pc], indexes, threads)

        return Watched(text, focus.lane, read, show, users=users)

    def _at(self, focus: Focus, read: Callable[[Looking], Any]) -> Any:
        """Reads from a warp; None while its block does not run."""
        try:
            return read(Looking(self.player, self.locations, focus))
        except OperandError:
            return None

    def catch(self, what: str = "nan") -> Catchpoint:
        """Stops after a statement that makes a NaN ("nan"), an infinity ("inf") or either ("any")
        of operands that are none."""
        if what not in _SPECIALS:
            raise OperandError(f"catch takes nan, inf or any; got {quoted(what)}")
        wanted = cast('Literal["nan", "inf", "any"]', what)
        text = f"catch {what}"
        return self._add(Catchpoint(self._count + 1, text, wanted=wanted, coming=self._coming))

    def delete(self, number: int) -> None:
        """Removes a breakpoint, watchpoint or catchpoint by its number."""
        self.stopper(number)
        del self.stops[number]

    def stopper(self, number: int) -> Stopper:
        if number not in self.stops:
            near = ", ".join(map(str, self.stops)) or "none"
            raise OperandError(f"no breakpoint {number}; there are {near}")
        return self.stops[number]

    def _add(self, made: _Made) -> _Made:
        self._count = made.number
        self.stops[made.number] = made
        return made

    # --- going on ---

    def cont(self, reverse: bool = False) -> Stop:
        """Goes on to the next breakpoint, watchpoint or catchpoint, or to the end of the launch;
        backward to the last one before, or to the start."""
        return self._move("", self._stoppers, reverse)

    def stepi(self, count: int = 1, reverse: bool = False) -> Stop:
        """Goes on until the warp in focus has executed `count` statements."""
        return self._repeat(count, lambda: self._mine(lambda threads, pc: True), reverse)

    def nexti(self, count: int = 1, reverse: bool = False) -> Stop:
        """As `stepi`, over calls."""
        return self._repeat(count, lambda: self._mine(self._shallow()), reverse)

    def step(self, count: int = 1, reverse: bool = False) -> Stop:
        """Goes on until the warp in focus comes to another line of its source, `count` times; a
        line of PTX where the file names no source."""
        return self._repeat(count, lambda: self._mine(self._new_line(reverse)), reverse)

    def next(self, count: int = 1, reverse: bool = False) -> Stop:
        """As `step`, over calls."""

        def wanted() -> Wanted:
            shallow, line = self._shallow(), self._new_line(reverse)
            return self._mine(lambda threads, pc: shallow(threads, pc) and line(threads, pc))

        return self._repeat(count, wanted, reverse)

    def finish(self) -> Stop:
        """Goes on until the function that the lane in focus is in has returned."""
        depth = len(self.look.thread.calls)
        if not depth:
            raise OperandError("finish leaves a called function; this is the kernel itself")
        return self._steps("", self._mine(lambda threads, pc: len(threads[0].calls) < depth), False)

    def until(self, where: str | int) -> Stop:
        """Goes on until the warp in focus comes to a place, as `break_at` takes it."""
        pcs, text = self.locations.find(str(where))
        return self._steps(f"at {text}", self._mine(lambda threads, pc: pc in pcs), False)

    def to_barrier(self) -> Stop:
        """Goes on until the warp in focus comes to a barrier, of its block, cluster or memory."""

        def wanted(threads: Sequence[Thread], pc: int) -> bool:
            effects = threads[0].run.program.statements[pc].effects
            return not effects.isdisjoint(("barrier", "mbarrier"))

        return self._steps("at a barrier", self._mine(wanted), False)

    def run(self) -> Stop:
        """Starts again from the first statement, and goes on as `cont`."""
        self.restart()
        return self.cont()

    def restart(self) -> Stop:
        """Goes back to before the first statement."""
        return self.go_to(1)

    def go_to(self, number: int) -> Stop:
        """Goes to before a statement of the launch by its number, backward or forward."""
        self.player.go_to(whole("the number of a statement", number, 1))
        self.stop = self._stopped("")
        return self.stop

    # --- what is wanted ---

    def _stoppers(self, threads: Sequence[Thread], pc: int) -> str:
        return self._reason(threads, pc, lambda stopper: True)

    def _reason(self, threads: Sequence[Thread], pc: int, counts: Callable[[Stopper], bool]) -> str:
        found = ""
        for stopper in list(self.stops.values()):
            if not stopper.enabled or not counts(stopper):
                continue
            reason = stopper.meets(threads, pc)
            if not reason:
                continue
            if stopper.ignore:
                stopper.ignore -= 1
                continue
            stopper.hits += 1
            self._behind = stopper.behind
            self._lane = stopper.lane if isinstance(stopper, Breakpoint) else -1
            if stopper.temporary:
                del self.stops[stopper.number]
            found = found or reason
        return found

    def _mine(self, wanted: Wanted) -> Wanted:
        """`wanted` of the warp in focus; what other warps do is passed over, until it has ended."""
        block, warp = self.focused[:2]
        look = self.look

        def chosen(threads: Sequence[Thread], pc: int) -> bool:
            own = threads[0].warp
            if own.number == warp and own.block.number == block:
                return wanted(threads, pc)
            return not self._alive(look, block, warp)

        return chosen

    def _alive(self, look: Looking, block: int, warp: int) -> bool:
        for each in Looking(self.player, self.locations, look.focus).blocks:
            if each.number == block:
                return any(t.state is not State.ENDED for t in each.warps[warp].threads)
        return False

    def _shallow(self) -> Wanted:
        depth = len(self.look.thread.calls)
        return lambda threads, pc: len(threads[0].calls) <= depth

    def _new_line(self, reverse: bool) -> Wanted:
        """True if a group reaches another line than the one the warp was at."""
        before: list[_At | None] = [None if reverse else self._line_now()]

        def wanted(threads: Sequence[Thread], pc: int) -> bool:
            now = self.locations.line(pc), frozenset(t.lane for t in threads)
            if before[0] is not None and now[0] == before[0][0] and now[1] <= before[0][1]:
                return False
            before[0] = now
            return True

        return wanted

    def _line_now(self) -> _At | None:
        if not self.player.threads or self.player.outcome is not None:
            return None
        lanes = frozenset(t.lane for t in self.player.threads)
        return self.locations.line(self.player.pc), lanes

    # --- moving ---

    def _repeat(self, count: int, wanted: Callable[[], Wanted], reverse: bool) -> Stop:
        for _ in range(whole("the number of steps", count, 1)):
            stop = self._steps("", wanted(), reverse)
            if stop.ended or stop.reason.startswith(("breakpoint", "watchpoint", "catchpoint")):
                break
        return self.stop

    def _steps(self, reason: str, wanted: Wanted, reverse: bool) -> Stop:
        """Moves until the warp in focus is where it is wanted, or a breakpoint stops it."""
        block, warp = self.focused[:2]

        def meets(threads: Sequence[Thread], pc: int) -> str:
            own = threads[0].warp
            mine = own.number == warp and own.block.number == block
            found = self._reason(threads, pc, lambda stopper: mine or stopper.behind)
            return found or (reason or " " if wanted(threads, pc) else "")

        return self._move(reason, meets, reverse)

    def _move(
        self, reason: str, meets: Callable[[Sequence[Thread], int], str], reverse: bool
    ) -> Stop:
        if reverse:
            return self._back(meets)
        if self.player.outcome is not None:
            raise OperandError(
                "the launch is over; `run` starts it again, and reverse commands go back"
            )
        self.stop = self._go(reason, meets)
        return self.stop

    def _go(self, reason: str, meets: Callable[[Sequence[Thread], int], str]) -> Stop:
        found = ""
        failed: list[EmulatorError] = []
        for stopper in self.stops.values():
            stopper.start()

        def wanted(threads: Sequence[Thread], pc: int) -> bool:
            nonlocal found
            try:
                found = meets(threads, pc)
            except EmulatorError as error:  # of a condition: stops, and says why
                failed.append(error)
                return True
            return bool(found)

        self.player.forward(wanted)
        if failed:
            return self._stopped(f"error in a condition: {failed[0]}")
        return self._stopped(found.strip())

    def _back(self, meets: Callable[[Sequence[Thread], int], str]) -> Stop:
        """Moves to the last statement before this one that `meets` something."""
        player, found, why = self.player, 0, "start of the launch"
        held = {n: (x.hits, x.ignore, x.temporary) for n, x in self.stops.items()}
        for stopper in self.stops.values():
            stopper.ignore, stopper.temporary = 0, False
        before = player.number + (player.outcome is not None)

        met, started = 0, False

        def look(threads: Sequence[Thread], pc: int) -> None:
            nonlocal found, why, met, started
            self._behind = False
            if not started:
                started = True
                for stopper in self.stops.values():
                    stopper.start()
            reason = meets(threads, pc)
            number = player.number - self._behind
            if reason and 0 < number < before:
                found, why, met = number, reason.strip(), met + 1

        # What is met first may be so because nothing is known of the statements before.
        starts = player.starts()
        for back in (2**i for i in range(len(starts).bit_length() + 1)):
            start = starts[-min(back, len(starts))]
            player.again(look, start)
            if met > 1 or not start:
                break
            met, found, why, started = 0, 0, "start of the launch", False
        for number, (hits, ignore, temporary) in held.items():
            stopper = self.stops[number]
            stopper.hits, stopper.ignore, stopper.temporary = hits, ignore, temporary
        player.go_to(found or 1)
        self.stop = self._stopped(why)
        return self.stop

    #: of the stopper that met last: whether it is about the statement before, and its lane
    _behind, _lane = False, -1

    def _stopped(self, reason: str) -> Stop:
        """Describes where the launch stands, and puts the focus on the threads that go next."""
        player, outcome = self.player, self.player.outcome
        if outcome is not None and not isinstance(outcome, (Report, KernelError)):
            raise outcome
        if isinstance(outcome, Report):
            return Stop(f"the launch has ended: {outcome.title}", player.number, ended=True)
        if player.interrupted:
            reason = "interrupted"
            player.resume()
        threads, pc = player.threads, player.pc
        if isinstance(outcome, KernelError):
            self._focus_on_error(outcome)
            return Stop(str(outcome), player.number, ended=True)
        first = threads[0]
        lanes = tuple(t.lane for t in threads)
        old = self.focused
        same = (first.block.number, first.warp.number) == old[:2] and old.lane in lanes
        lane = old.lane if same else lanes[0]
        if self._lane in lanes and reason.startswith("breakpoint"):
            lane = self._lane
        self.focused = Focus(first.block.number, first.warp.number, lane)
        line = self.locations.line(pc)
        held = self.locations.lines_of(line.file) if line.file != "ptx" else ()
        source = held[line.number - 1].strip() if line.number <= len(held) else ""
        return Stop(
            reason,
            player.number,
            first.block.index,
            first.warp.number,
            lanes,
            line,
            source,
            self.locations.statement(pc),
        )

    def _focus_on_error(self, error: KernelError) -> None:
        launch = self.player.launch
        if error.block is not None and error.threads:
            number = number_of("thread", error.threads[0], launch.block)
            block = number_of("block", error.block, launch.grid)
            self.focused = Focus(block, *divmod(number, WARP))

    # --- looking: what `look` has, by gdb's names ---

    def registers(self, *names: str, every: bool = False) -> Shown:
        """Registers of the lane in focus, and how those of the other lanes differ; `data` has the
        values of all lanes."""
        return self.look.registers(["%" + x.lstrip("%$") for x in names], every)

    def value(self, expression: str) -> Value:
        """The value of an expression in the lane in focus."""
        look = self.look
        return Expression(expression)(look.lookup(look.thread))

    def written(self) -> list[str]:
        """The registers that the statement at the focus writes."""
        look = self.look
        statement = look.statement(look.thread)
        if statement is None:
            return []
        registers = look.thread.frames[-1].function.registers
        return [
            registers[i].name
            for bound in statement.bound("written")
            for item in items_of(bound)
            for i in registers_of(item)
            if registers[i].type != "bytes"
        ]

    def values(self, expression: str) -> list[Value]:
        """The value of an expression in each lane of the warp; None where a lane has ended."""
        return self.look.values(expression)

    def __getattr__(self, name: str) -> Any:
        if name in _LOOKS:
            return getattr(self.look, name)
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}{hint(name, _LOOKS)}"
        )


#: methods of `Looking` that a debugger has, too
_LOOKS = ("arguments", "lanes", "groups", "warps", "backtrace", "memory", "tile", "fragment",
          "mbarriers", "pending", "variables")  # fmt: skip
