"""``Terminal``: the debugger's commands, named as in gdb, with help and completion."""

from __future__ import annotations

import cmd
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from emulator.errors import EmulatorError, OperandError, hint, listing, quoted
from emulator.machine.debugger.debugger import Debugger, Stop
from emulator.machine.debugger.expressions import Expression
from emulator.machine.debugger.locations import PTX
from emulator.machine.debugger.shown import Shown, number_text
from emulator.machine.debugger.stops import Breakpoint, Stopper
from emulator.report import Report

#: gdb's short names that are not the beginning of exactly one command
_SHORT = {
    "b": "break", "c": "continue", "s": "step", "si": "stepi", "n": "next", "ni": "nexti",
    "p": "print", "bt": "backtrace", "where": "backtrace", "i": "info", "l": "list", "r": "run",
    "d": "delete", "u": "until", "q": "quit", "h": "help", "rc": "reverse-continue",
    "rs": "reverse-step", "rsi": "reverse-stepi", "rn": "reverse-next", "rni": "reverse-nexti",
    "fin": "finish", "tb": "tbreak", "f": "focus", "cuda": "focus", "advance": "until",
    "disas": "disassemble", "exit": "quit", "dis": "disable", "frame": "backtrace",
}  # fmt: skip
#: focus without its name: thread 37, lane 5
_PARTS = ("block", "warp", "lane", "thread")
_PART = re.compile(rf"({'|'.join(_PARTS)})\s+(\([^)]*\)|\d+)")
#: other names for what info shows: gdb's, and letters that several names begin with
_INFO_SHORT = {"b": "breakpoints", "r": "registers", "threads": "lanes"}
#: characters of the longest use of a command that the list of commands shows
_USAGE = 34
#: x's letters of size -> bits, and of format -> the first letter of a type
_SIZES = {"b": 8, "h": 16, "w": 32, "g": 64}
_AROUND = 5
_FILTER = re.compile(r"\b(block|warp|thread)\s+(\([^)]*\)|\d+)")
_QUANTIFIER = re.compile(r"\s+in\s+(any|all|every)\s+lanes?\s*$")


class Terminal(cmd.Cmd):
    """Reads commands and shows answers; `said` has the lines of all answers."""

    prompt = "(ptx-gdb) "
    #: the longest lines that are looked at
    longest = 4000

    def __init__(self, debugger: Debugger) -> None:
        super().__init__()
        self.debugger = debugger
        self.said: list[str] = []
        self._displays: list[str] = []
        self._listed: tuple[str, int] = ("", 0)

    @property
    def welcome(self) -> str:
        name = self.debugger.player.launch.kernel.name
        return f"{name} on {self.debugger.player.launch.module.target}; help lists the commands."

    # --- lines ---

    def say(self, answer: object) -> None:
        lines = answer.text() if isinstance(answer, Report) else str(answer)
        self.said += lines.splitlines()
        if self.use_rawinput and self._live:
            print(lines)

    _live = False

    def cmdloop(self, intro: object = None) -> None:
        self._live = True
        while True:
            try:
                super().cmdloop(intro)
                return
            except KeyboardInterrupt:
                print("Quit with quit.")

    def onecmd(self, line: str) -> bool:
        """Runs one command, or shows the mistake in it; whether it was the last one."""
        if len(line) > self.longest:
            line = line[: self.longest]
        try:
            return bool(super().onecmd(self._whole(line)))
        except EmulatorError as error:
            self.say(f"error: {error}")
        except ValueError as error:  # of shlex
            self.say(f"error: {quoted(line)}: {error}")
        return False

    def _whole(self, line: str) -> str:
        """A line with the whole name of its command, for one that is abbreviated."""
        match = re.match(r"\s*([A-Za-z][\w-]*)", line)
        if not match:
            return line
        word, rest = match[1], line[match.end() :]
        if word in _PARTS:
            return f"focus {line.strip()}"
        known = sorted({*self.completenames(""), *_SHORT})
        if word == "EOF":
            return line
        found = [x for x in known if x.startswith(word)]
        chosen = word if word in known else (found[0] if len(set(map(_long, found))) == 1 else "")
        if not chosen:
            either = f": it may be {listing(found)}" if found else ""
            raise OperandError(f"no command {quoted(word)}{either or hint(word, known)}")
        return _long(chosen).replace("-", "_") + (f" {rest}" if rest else "")

    def completenames(self, text: str, *ignored: object) -> list[str]:
        names = {x[3:].replace("_", "-") for x in self.get_names() if x.startswith("do_")}
        return sorted(x for x in names - {"EOF"} if x.startswith(text))

    def default(self, line: str) -> None:
        raise OperandError(f"{quoted(line)} is no command; help lists them")

    def do_EOF(self, words: str) -> bool:
        return True

    def do_quit(self, words: str) -> bool:
        """quit: leaves the launch. Arrays have changed only if it has ended."""
        return True

    def do_help(self, words: str) -> None:
        """help [COMMAND]: lists the commands, or explains one."""
        if words.strip():
            name = self._whole(words.strip().replace("-", "_")).split()[0]
            text = getattr(self, f"do_{name}").__doc__ or ""
            self.say(" ".join(text.split()))
            return
        rows = []
        for name in self.completenames(""):
            text = " ".join((getattr(self, "do_" + name.replace("-", "_")).__doc__ or "").split())
            usage, _, line = text.partition(": ")
            short = usage if len(usage) <= _USAGE else f"{usage.partition(' ')[0]} …"
            rows.append((short, line.partition(". ")[0].rstrip(".")))
        self.say(Shown("", (), rows))

    # --- running ---

    def _stopped(self, stop: Stop) -> None:
        self.say(stop)
        self._listed = ("", 0)
        if stop.ended:
            return
        for text in self._displays:
            try:
                self._print(text)
            except EmulatorError as error:
                self.say(f"{text}: {error}")

    def do_run(self, words: str) -> None:
        """run: starts again from the first statement, and goes on to a breakpoint."""
        self._stopped(self.debugger.run())

    def do_start(self, words: str) -> None:
        """start: goes back to before the first statement."""
        self._stopped(self.debugger.restart())

    def do_continue(self, words: str) -> None:
        """continue [N]: goes on to the next breakpoint, passing N - 1 of them, or to the end."""
        for _ in range(_count(words)):
            stop = self.debugger.cont()
            if stop.ended:
                break
        self._stopped(self.debugger.stop)

    def do_step(self, words: str) -> None:
        """step [N]: goes on to another source line of the warp in focus; a line of PTX where the
        file names no source."""
        self._stopped(self.debugger.step(_count(words)))

    def do_next(self, words: str) -> None:
        """next [N]: as step, over calls."""
        self._stopped(self.debugger.next(_count(words)))

    def do_stepi(self, words: str) -> None:
        """stepi [N]: the warp in focus executes one statement, and its result is shown."""
        self._with_result(lambda: self.debugger.stepi(_count(words)))

    def do_nexti(self, words: str) -> None:
        """nexti [N]: as stepi, over calls."""
        self._with_result(lambda: self.debugger.nexti(_count(words)))

    def do_finish(self, words: str) -> None:
        """finish: goes on until the function of the lane in focus has returned."""
        self._stopped(self.debugger.finish())

    def do_until(self, words: str) -> None:
        """until PLACE: goes on until the warp in focus comes to a line, function or opcode."""
        self._stopped(self.debugger.until(words))

    def do_barrier(self, words: str) -> None:
        """barrier: goes on until the warp in focus comes to a barrier or an mbarrier."""
        self._stopped(self.debugger.to_barrier())

    def do_goto(self, words: str) -> None:
        """goto NUMBER: goes to before a statement of the launch, counted from 1."""
        self._stopped(self.debugger.go_to(_count(words, "a statement")))

    def do_reverse_continue(self, words: str) -> None:
        """reverse-continue: goes back to the last breakpoint before, or to the start."""
        self._stopped(self.debugger.cont(reverse=True))

    def do_reverse_step(self, words: str) -> None:
        """reverse-step [N]: goes back to the start of a source line of the warp in focus."""
        self._stopped(self.debugger.step(_count(words), reverse=True))

    def do_reverse_next(self, words: str) -> None:
        """reverse-next [N]: as reverse-step, over calls."""
        self._stopped(self.debugger.next(_count(words), reverse=True))

    def do_reverse_stepi(self, words: str) -> None:
        """reverse-stepi [N]: goes back by one statement of the warp in focus."""
        self._stopped(self.debugger.stepi(_count(words), reverse=True))

    def do_reverse_nexti(self, words: str) -> None:
        """reverse-nexti [N]: as reverse-stepi, over calls."""
        self._stopped(self.debugger.nexti(_count(words), reverse=True))

    def _with_result(self, move: Callable[[], Stop]) -> None:
        """Moves by statements, and shows what the last one has written."""
        written = self.debugger.written()
        stop = move()
        if written and not stop.ended and stop.lanes:
            self.say(self.debugger.registers(*written))
        self._stopped(stop)

    # --- breakpoints ---

    def do_break(self, words: str) -> None:
        """break PLACE [block B] [warp W] [thread T] [if CONDITION [in all lanes]]: stops before
        statements. A PLACE is a line (12, kernel.cu:12, ptx:30), a function, an opcode or its first
        words (mma.sync); without one, the statement that comes next. break if CONDITION stops
        wherever it holds: break if %r3 == 7 in any lane."""
        self._break(words, temporary=False)

    def do_tbreak(self, words: str) -> None:
        """tbreak PLACE ...: as break, once."""
        self._break(words, temporary=True)

    def _break(self, words: str, temporary: bool) -> None:
        head, found, condition = re.sub(r"(^|\s)if(\s|$)", " if ", f"{words} ").partition(" if ")
        options: dict[str, Any] = {}
        if found:
            if match := _QUANTIFIER.search(condition):
                options["quantifier"] = "any" if match[1] == "any" else "all"
                condition = condition[: match.start()]
            options["condition"] = condition
        for name, value in _FILTER.findall(head):
            options[name] = _index(value)
        where: str | None = _FILTER.sub("", head).strip()
        if not where and not found:
            where = f"ptx:{self.debugger.locations.ptx_line(self.debugger.player.pc).number}"
        made = self.debugger.break_at(where or None, temporary=temporary, **options)
        self.say(f"Breakpoint {made.number}: {made.text}")

    def do_watch(self, words: str) -> None:
        """watch REGISTER, or watch MEMORY [BYTES]: stops after a statement that changes a register
        of the warp in focus, or bytes of memory: watch %r3, watch C[3][5] 16."""
        self._watch(words, self.debugger.watch, "Watchpoint")

    def do_rwatch(self, words: str) -> None:
        """rwatch REGISTER, or rwatch MEMORY [BYTES]: stops after a statement that reads a register
        of the warp in focus, or bytes of memory: rwatch %r3, rwatch C[3][5] 16."""
        self._watch(words, self.debugger.rwatch, "Read watchpoint")

    def do_awatch(self, words: str) -> None:
        """awatch REGISTER, or awatch MEMORY [BYTES]: stops after a statement that reads or writes a
        register of the warp in focus, or bytes of memory: awatch %r3, awatch C[3][5] 16."""
        self._watch(words, self.debugger.awatch, "Access watchpoint")

    def _watch(self, words: str, watch: Callable[..., Stopper], name: str) -> None:
        match = re.fullmatch(r"(.*?)(?:\s+(\d+))?", words.strip())
        assert match is not None
        made = watch(match[1], int(match[2]) if match[2] else None)
        self.say(f"{name} {made.number}: {made.text}")

    def do_catch(self, words: str) -> None:
        """catch nan, catch inf or catch any: stops where a NaN or an infinity is made."""
        made = self.debugger.catch(words.strip() or "nan")
        self.say(f"Catchpoint {made.number}: {made.text}")

    def do_delete(self, words: str) -> None:
        """delete [N ...]: removes breakpoints by their numbers; all of them without one."""
        for number in _numbers(words) or list(self.debugger.stops):
            self.debugger.delete(number)

    def do_enable(self, words: str) -> None:
        """enable [N ...]: breakpoints stop again."""
        for number in _numbers(words) or list(self.debugger.stops):
            self.debugger.stopper(number).enabled = True

    def do_disable(self, words: str) -> None:
        """disable [N ...]: breakpoints stop no longer."""
        for number in _numbers(words) or list(self.debugger.stops):
            self.debugger.stopper(number).enabled = False

    def do_ignore(self, words: str) -> None:
        """ignore N COUNT: passes over a breakpoint COUNT times."""
        numbers = _numbers(words)
        if len(numbers) != 2:
            raise OperandError(f"ignore takes a breakpoint and a count; got {quoted(words)}")
        self.debugger.stopper(numbers[0]).ignore = numbers[1]

    def do_condition(self, words: str) -> None:
        """condition N [CONDITION]: gives a breakpoint a condition, or takes it away."""
        first, _, rest = words.strip().partition(" ")
        (number,) = _numbers(first) or [0]
        stopper = self.debugger.stopper(number)
        if not isinstance(stopper, Breakpoint):
            raise OperandError(f"{number} is no breakpoint: {stopper.text}")
        stopper.condition = Expression(rest) if rest.strip() else None

    # --- looking ---

    def do_info(self, words: str) -> None:
        """info registers [NAMES | all], locals, lanes [EXPRESSIONS], convergence, warps, blocks,
        mbarriers, pending, breakpoints, args, printed: shows what the launch holds."""
        name, *rest = words.split() or [""]
        if name == "cuda":  # as cuda-gdb has it
            name, *rest = rest or [""]
        found = [x for x in _INFO if x.startswith(name)] if name else []
        if len(found) != 1 and name not in _INFO_SHORT:
            raise OperandError(f"info takes {listing(_INFO)}; got {quoted(words)}")
        self.say(_INFO[_INFO_SHORT.get(name) or found[0]](self, rest))

    def _blocks(self) -> Shown:
        rows = [
            (str(block.index), f"{len(block.warps)} warps") for block in self.debugger.look.blocks
        ]
        return Shown("" if rows else "no block is running", (), rows)

    def _breakpoints(self) -> Shown:
        rows = [
            (str(x.number), x.text, "" if x.enabled else "disabled", f"{x.hits} hits",
             x.condition.text if isinstance(x, Breakpoint) and x.condition else "")
            for x in self.debugger.stops.values()
        ]  # fmt: skip
        return Shown("" if rows else "no breakpoints", (), rows)

    def do_lanes(self, words: str) -> None:
        """lanes EXPRESSION ...: values in every lane of the warp, and where the lane is."""
        self.say(self.debugger.look.lanes(shlex.split(words)))

    def do_print(self, words: str) -> None:
        """print[/x|d|u|t|f] EXPRESSION: its value in the lane in focus: print %r3 * 4."""
        self._print(words)

    def _print(self, words: str) -> None:
        match = re.fullmatch(r"\s*(?:/([xdutf])\s)?(.*)", words)
        assert match is not None
        value = self.debugger.value(match[2])
        text = number_text(value, "f32")
        if match[1] in ("x", "t") and isinstance(value, int):
            text = f"{value & (1 << 64) - 1 if value < 0 else value:#{match[1].replace('t', 'b')}}"
        self.say(f"{match[2].strip()} = {text}")

    def do_display(self, words: str) -> None:
        """display EXPRESSION: shows its value at every stop."""
        self._print(words)
        self._displays.append(words)

    def do_undisplay(self, words: str) -> None:
        """undisplay: shows nothing at stops any more."""
        self._displays.clear()

    def do_x(self, words: str) -> None:
        """x/NFU PLACE: N elements of memory, in format F (x, d, u, t, f) and size U (b, h, w, g). A
        PLACE is an array or a variable (C[3][5], tile+16), shared:0x100, or an address (%rd4)."""
        match = re.fullmatch(r"\s*(?:/(\d*)([xdutf]?)([bhwg]?)\s)?(.*)", words)
        assert match is not None
        count, style, size, place = match.groups()
        bits = _SIZES.get(size or "", 32)
        type_ = "" if not style and not size else f"{'f' if style == 'f' else 'b'}{bits}"
        if style == "f" and bits == 8:
            raise OperandError("f shows floats of sizes h, w and g")
        self.say(self.debugger.look.memory(place, int(count or 1), type_, style or ""))

    def do_tile(self, words: str) -> None:
        """tile PLACE ROWSxCOLUMNS TYPE [stride BYTES] [swizzle 32B|64B|128B]: memory as a matrix:
        tile shared:0 16x8 f16 stride 128 swizzle 128B."""
        match = re.fullmatch(
            r"\s*(.+?)\s+(\d{1,5})x(\d{1,5})\s+(\w+)(?:\s+stride\s+(\d{1,9}))?"
            r"(?:\s+swizzle\s+(\w+))?\s*",
            words,
        )
        if not match:
            raise OperandError(
                f"tile takes PLACE ROWSxCOLUMNS TYPE, as tile A 16x8 f16 stride 128 swizzle 128B; "
                f"got {quoted(words)}"
            )
        place, rows, columns, type_, stride, swizzle = match.groups()
        apart = None if stride is None else int(stride)
        shape = int(rows), int(columns)
        self.say(self.debugger.look.tile(place, *shape, type_, apart, swizzle or "none"))

    def do_fragment(self, words: str) -> None:
        """fragment OPERAND: a, b, c or d of the matrix instruction at the focus, or of the last one
        before it, as the matrix that its lanes hold together."""
        self.say(self.debugger.look.fragment(words.strip()))

    def do_backtrace(self, words: str) -> None:
        """backtrace: the calls that the lane in focus is in."""
        self.say(self.debugger.look.backtrace())

    def do_list(self, words: str) -> None:
        """list [PLACE]: lines of the source around a place, around the stop, or the next ones."""
        file, first = self._listed
        if words.strip():
            pcs, _ = self.debugger.locations.find(words)
            line = self.debugger.locations.line(min(pcs))
            file, first = line.file, line.number - _AROUND
        elif not file:
            line = self.debugger.locations.line(self.debugger.player.pc)
            file, first = line.file, line.number - _AROUND
        self._list(file, first)

    def do_disassemble(self, words: str) -> None:
        """disassemble: lines of the PTX around the statement that comes next."""
        line = self.debugger.locations.ptx_line(self.debugger.player.pc)
        self._list(PTX, line.number - _AROUND)

    def _list(self, file: str, first: int) -> None:
        held, first = self.debugger.locations.lines_of(file), max(1, first)
        if not held:
            raise OperandError(f"{file} cannot be read; --source names its folder")
        here = {self.debugger.locations.line(self.debugger.player.pc),
                self.debugger.locations.ptx_line(self.debugger.player.pc)}  # fmt: skip
        last = min(len(held), first + 2 * _AROUND)
        self.say(
            "\n".join(
                f"{'=>' if (file, i) in here else '  '} {i}\t{held[i - 1]}"
                for i in range(first, last + 1)
            )
            or f"{file} ends at line {len(held)}"
        )
        self._listed = file, last + 1

    def do_focus(self, words: str) -> None:
        """focus [block B] [warp W] [lane L] [thread T]: which lane commands speak of; B and T are
        numbers or coordinates: focus block (1,0,0) warp 2 lane 5."""
        given, rest = _PART.findall(words), _PART.sub("", words).strip()
        if rest:
            raise OperandError(f"focus takes {listing(_PARTS)}; got {quoted(rest)}")
        if given:
            chosen: dict[str, Any] = {name: _index(value) for name, value in given}
            self.debugger.focus(**chosen)
        look = self.debugger.look
        self.say(
            f"{look.who(look.thread)}, lane {look.focus.lane}, thread "
            f"{look.thread.coordinates}, at {look.locations.line(look.pc(look.thread))}: "
            f"{look.locations.statement(look.pc(look.thread))}"
        )

    # --- completion ---

    def completions_of(self, line: str) -> list[str]:
        """What may stand for the last word of a line."""
        first, space, _ = line.lstrip().partition(" ")
        if not space:
            return self.completenames(first)
        try:
            name = self._whole(first).strip()
        except OperandError:
            return []
        complete = getattr(self, f"complete_{name}", None)
        found: list[str] = complete(line.split(" ")[-1]) if complete else []
        return found

    def _places(self, text: str, *ignored: object) -> list[str]:
        return [x for x in self.debugger.locations.names() if x.startswith(text)]

    complete_break = complete_tbreak = complete_until = complete_list = _places

    def _names(self, text: str, *ignored: object) -> list[str]:
        return [x for x in self._known() if x.startswith(text)]

    complete_print = complete_display = complete_lanes = complete_x = _names
    complete_watch = complete_rwatch = complete_awatch = _names

    def _known(self) -> Iterator[str]:
        look = self.debugger.look
        try:
            yield from look.register_names(every=True)
        except OperandError:
            return
        yield from look.locations.variables(look.pc(look.thread))
        yield from (x.name for x in look.launch.arena)

    def complete_info(self, text: str, *ignored: object) -> list[str]:
        return [x for x in (*_INFO, *self._known()) if x.startswith(text)]


#: what info shows -> the answer, given the words behind
_INFO: dict[str, Callable[[Terminal, list[str]], object]] = {
    "args": lambda self, rest: self.debugger.look.arguments(),
    "barriers": lambda self, rest: self.debugger.look.mbarriers(),
    "blocks": lambda self, rest: self._blocks(),
    "breakpoints": lambda self, rest: self._breakpoints(),
    "convergence": lambda self, rest: self.debugger.look.groups(),
    "lanes": lambda self, rest: self.debugger.look.lanes(rest),
    "locals": lambda self, rest: self.debugger.look.variables(),
    "mbarriers": lambda self, rest: self.debugger.look.mbarriers(),
    "pending": lambda self, rest: self.debugger.look.pending(),
    "printed": lambda self, rest: "".join(self.debugger.printed) or "nothing was printed",
    "registers": lambda self, rest: (
        self.debugger.registers(every=True) if rest == ["all"] else self.debugger.registers(*rest)
    ),
    "warps": lambda self, rest: self.debugger.look.warps(),
}


def _long(name: str) -> str:
    return _SHORT.get(name, name)


def _count(words: str, what: str = "a count") -> int:
    text = words.strip() or "1"
    if not re.fullmatch(r"\d{1,12}", text) or int(text) < 1:
        raise OperandError(f"{what} is a number from 1 on; got {quoted(text)}")
    return int(text)


def _numbers(words: str) -> list[int]:
    if not all(re.fullmatch(r"\d{1,9}", x) for x in words.split()):
        raise OperandError(f"numbers of breakpoints are meant; got {quoted(words)}")
    return [int(x) for x in words.split()]


def _index(text: str) -> int | tuple[int, ...]:
    """A number, or coordinates in parentheses."""
    parts = re.findall(r"\d{1,9}", text)
    if not parts or len(parts) > 3:
        raise OperandError(f"{quoted(text)} is no number and no coordinates such as (1,0,0)")
    return int(text) if text.isdigit() and len(text) < 10 else tuple(map(int, parts))
