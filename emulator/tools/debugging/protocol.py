"""The Debug Adapter Protocol, for editors: ``python -m emulator.tools.debugging.protocol``.

Requests come on standard input, and responses and events go to standard output, each as JSON behind
a header with its length. A *thread* of the protocol is a warp; its variables are the registers of
one lane, which unfold into all lanes.
"""

from __future__ import annotations

import json
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from emulator.errors import EmulatorError, OperandError, hint, listing, quoted
from emulator.machine.debugger.debugger import Debugger, Stop
from emulator.machine.debugger.locations import PTX, Line
from emulator.machine.debugger.shown import number_text
from emulator.machine.debugger.stops import Breakpoint, Stopper
from emulator.tools.debugging.terminal import Terminal
from emulator.tools.launching import LaunchWords

Body = dict[str, Any]
#: bytes that one message may have
_LONGEST = 1 << 24
#: warps that a thread block can have: numbers of threads are made of those of blocks and warps
_WARPS = 64
#: numbers of the scopes are below this; those of registers, which unfold, begin here
_FIRST = 5
_CAPABILITIES = (
    "supportsConfigurationDoneRequest", "supportsFunctionBreakpoints",
    "supportsConditionalBreakpoints", "supportsStepBack", "supportsRestartRequest",
    "supportsEvaluateForHovers", "supportsTerminateRequest", "supportsDataBreakpoints",
    "supportsCompletionsRequest",
)  # fmt: skip
#: requests that are the last of a session
_LAST = ("disconnect", "terminate")
#: access of a data breakpoint -> the method that watches for it
_WATCHES = {"read": "rwatch", "write": "watch", "readWrite": "awatch"}
_FILTERS = {"nan": "the first NaN", "inf": "the first infinity"}
#: words of a launch configuration -> arguments of the command
_WORDS = {
    "program": "file", "kernel": "kernel", "grid": "grid", "block": "block", "cluster": "cluster",
    "args": "arg", "dynamicShared": "dynamic_shared", "target": "target", "contract": "contract",
    "asyncOrder": "async_order", "seed": "seed", "source": "source",
}  # fmt: skip
#: what a configuration has for the editor itself
_EDITORS = ("type", "request", "name", "stopOnEntry", "noDebug", "presentation",
            "internalConsoleOptions", "preLaunchTask", "postDebugTask")  # fmt: skip


# --- messages -------------------------------------------------------------------------------------


def read_message(stream: IO[bytes]) -> Body | None:
    """The next message; None at the end. Raises OperandError for what is none."""
    size = None
    while line := stream.readline(1000):
        if not line.strip():
            break
        name, _, value = line.decode("ascii", "replace").partition(":")
        if name.strip().lower() == "content-length" and value.strip().isdigit():
            size = int(value)
    else:
        return None
    if size is None or size > _LONGEST:
        raise OperandError(f"a message has a Content-Length of 0 … {_LONGEST:,}")
    raw = stream.read(size)
    if len(raw) < size:
        return None
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError):
        raise OperandError("a message is JSON") from None
    if not isinstance(message, dict):
        raise OperandError("a message is an object of JSON")
    return message


def write_message(stream: IO[bytes], message: Body) -> None:
    raw = json.dumps(message).encode()
    stream.write(b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
    stream.flush()


class _Session(NamedTuple):
    """The launch that an editor debugs."""

    command: LaunchWords
    debugger: Debugger
    terminal: Terminal


# --- the adapter ----------------------------------------------------------------------------------


class Adapter:
    """Answers the requests of one editor about one launch."""

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source, self._sink, self._sent = source, sink, 0
        self._requests: queue.Queue[Body | None] = queue.Queue()
        self._held: _Session | None = None
        self._stop_on_entry = False
        #: breakpoints by the file, or by what else they were set through
        self._set: dict[str, list[int]] = {}
        self._printed = 0
        #: True once the editor leaves; then nothing runs any more
        self._leaving = False

    def serve(self) -> None:
        """Answers requests until the editor leaves."""
        threading.Thread(target=self._read, daemon=True, name="requests").start()
        try:
            while (request := self._requests.get()) is not None:
                self._answer(request)
                if request.get("command") in _LAST:
                    return
        finally:
            if self._held is not None:
                self._held.debugger.close()

    def _read(self) -> None:
        """Takes requests while the launch runs, and interrupts it for those that cannot wait."""
        try:
            while (message := read_message(self._source)) is not None:
                if message.get("command") in _LAST:
                    self._leaving = True
                if message.get("command") in ("pause", *_LAST) and self._held:
                    self._held.debugger.player.interrupt()
                self._requests.put(message)
        except OperandError as error:
            self._event("output", {"category": "stderr", "output": f"{error}\n"})
        self._leaving = True
        if self._held:
            self._held.debugger.player.interrupt()
        self._requests.put(None)

    def _send(self, message: Body) -> None:
        self._sent += 1
        write_message(self._sink, {"seq": self._sent, **message})

    def _event(self, name: str, body: Body | None = None) -> None:
        self._send({"type": "event", "event": name, "body": body or {}})

    def _answer(self, request: Body) -> None:
        name, given = str(request.get("command", "")), request.get("arguments")
        answer: Body = {"type": "response", "request_seq": request.get("seq", 0), "command": name}
        after: Callable[[], None] | None = None
        try:
            handler = _HANDLERS.get(name)
            if handler is None:
                raise OperandError(f"no request {quoted(name)}{hint(name, _HANDLERS)}")
            body, after = handler(self, given if isinstance(given, dict) else {})
            answer |= {"success": True, "body": body}
        except EmulatorError as error:
            answer |= {"success": False, "message": str(error)}
        except (KeyError, TypeError, ValueError) as error:
            answer |= {"success": False, "message": f"{name}: its arguments are wrong ({error})"}
        self._send(answer)
        if after is not None:
            after()

    @property
    def session(self) -> _Session:
        if self._held is None:
            raise OperandError("no kernel is launched yet")
        return self._held

    @property
    def debugger(self) -> Debugger:
        return self.session.debugger

    # --- starting and ending ---

    def initialize(self, given: Body) -> Answered:
        filters = [{"filter": name, "label": text} for name, text in _FILTERS.items()]
        body: Body = dict.fromkeys(_CAPABILITIES, True)
        return body | {"exceptionBreakpointFilters": filters}, None

    def launch(self, given: Body) -> Answered:
        words = {_WORDS[name]: value for name, value in given.items() if name in _WORDS}
        unknown = [x for x in given if x not in (*_WORDS, *_EDITORS) and not x.startswith("_")]
        if unknown:
            raise OperandError(
                f"a configuration has {listing(_WORDS, 20)}; got {quoted(unknown[0])}"
                f"{hint(unknown[0], _WORDS)}"
            )
        if not isinstance(words.get("file"), str):
            raise OperandError("program is the path of a PTX or CUDA C++ file")
        for name in ("grid", "block", "cluster"):
            if name in words:
                words[name] = _sizes(words[name])
        words["arg"] = [str(x) for x in words.get("arg", ())]
        command = LaunchWords(**words)
        command.prepare()
        debugger = command.debug()
        self._held = _Session(command, debugger, Terminal(debugger))
        self._stop_on_entry = bool(given.get("stopOnEntry"))
        return {}, lambda: self._event("initialized")

    def configuration_done(self, given: Body) -> Answered:
        if self._stop_on_entry:
            return {}, lambda: self._stopped(self.debugger.stop, "entry")
        return {}, lambda: self._moved(self.debugger.cont, "step")

    def leave(self, given: Body) -> Answered:
        return {}, lambda: self._event("terminated")

    def restart(self, given: Body) -> Answered:
        self.debugger.restart()
        return self.configuration_done({})

    # --- breakpoints ---

    def set_breakpoints(self, given: Body) -> Answered:
        source = given["source"]
        path = str(source.get("path") or source.get("name") or "")
        file = self._file(path)
        wanted = given["breakpoints"]
        return self._replace(path, [self._breaker(f"{file}:{int(x['line'])}", x) for x in wanted])

    def set_functions(self, given: Body) -> Answered:
        wanted = given["breakpoints"]
        return self._replace("functions", [self._breaker(str(x["name"]), x) for x in wanted])

    def _breaker(self, where: str, wanted: Body) -> Callable[[], Stopper]:
        condition = wanted.get("condition") or None
        return lambda: self.debugger.break_at(where, condition=condition)

    def _replace(self, key: str, wanted: Iterable[Callable[[], Stopper]]) -> Answered:
        """Sets breakpoints in place of those that were set in the same way before."""
        out: list[Body] = []
        self._forget(key)
        for make in wanted:
            try:
                made = make()
            except EmulatorError as error:
                out.append({"verified": False, "message": str(error)})
                continue
            self._set[key].append(made.number)
            out.append({"verified": True, "id": made.number})
            if isinstance(made, Breakpoint):
                number = made.text.rpartition(":")[2]
                line = self.debugger.locations.line(min(made.pcs)).number
                out[-1]["line"] = int(number) if number.isdigit() else line
        return {"breakpoints": out}, None

    def _forget(self, key: str) -> None:
        for number in self._set.get(key, ()):
            self.debugger.stops.pop(number, None)
        self._set[key] = []

    def set_exceptions(self, given: Body) -> Answered:
        self._forget("exceptions")
        for name in given.get("filters", ()):
            self._set["exceptions"].append(self.debugger.catch(str(name)).number)
        return {}, None

    def data_information(self, given: Body) -> Answered:
        name = str(given["name"])
        return {"dataId": name, "description": name, "accessTypes": list(_WATCHES)}, None

    def set_data(self, given: Body) -> Answered:
        return self._replace(
            "data",
            [
                partial(
                    getattr(self.debugger, _WATCHES[x.get("accessType", "write")]), str(x["dataId"])
                )
                for x in given["breakpoints"]
            ],
        )

    def _file(self, path: str) -> str:
        own = self.session.command.file
        same = Path(path).name == Path(own).name and not own.endswith((".cu", ".cuh"))
        return PTX if same or path == PTX else Path(path).name

    # --- moving ---

    def move(self, given: Body, name: str, **options: Any) -> Answered:
        debugger = self.debugger
        if "threadId" in given and name != "cont":
            self._focus(int(given["threadId"]))
        if given.get("granularity") == "instruction":
            name = {"next": "nexti", "step": "stepi"}.get(name, name)
        method = getattr(debugger, name)
        body = {"allThreadsContinued": True}
        return body, lambda: self._moved(lambda: method(**options), "step")

    def pause(self, given: Body) -> Answered:
        self.debugger.player.resume()
        return {}, None

    def _moved(self, move: Callable[[], Stop], reason: str) -> None:
        if self._leaving:
            return
        debugger = self.debugger
        was_over = debugger.player.outcome is not None
        try:
            stop = move()
        except EmulatorError as error:
            if was_over:
                self._event("terminated")
                return
            self._event("output", {"category": "stderr", "output": f"{error}\n"})
            stop = debugger.stop
        self._stopped(stop, reason)

    def _stopped(self, stop: Stop, reason: str) -> None:
        debugger = self.debugger
        printed = debugger.printed
        if text := "".join(printed[self._printed :]):
            self._event("output", {"category": "stdout", "output": text})
        self._printed = len(printed)
        if debugger.report is not None:
            command = self.session.command
            command.write(debugger.report, [x for x in command.values if x.output])
            self._event("output", {"category": "console", "output": f"{stop.reason}\n"})
            self._event("exited", {"exitCode": 0})
            self._event("terminated")
            return
        kinds = {"breakpoint": "breakpoint", "watchpoint": "data breakpoint",
                 "catchpoint": "exception", "interrupted": "pause"}  # fmt: skip
        first = stop.reason.partition(" ")[0]
        kind = "exception" if debugger.error is not None else kinds.get(first, reason)
        focus = debugger.focused
        body = {"reason": kind, "threadId": self._number(focus.block, focus.warp),
                "allThreadsStopped": True, "text": stop.reason}  # fmt: skip
        self._event("stopped", body)

    # --- looking ---

    @staticmethod
    def _number(block: int, warp: int) -> int:
        return block * _WARPS + warp + 1

    def _focus(self, number: int) -> None:
        """Puts the focus on a warp; its lane stays where the warp stays."""
        block, warp = divmod(number - 1, _WARPS)
        if self.debugger.focused[:2] != (block, warp):
            self.debugger.focus(block=block, warp=warp)

    def threads(self, given: Body) -> Answered:
        out = [
            {
                "id": self._number(block.number, warp.number),
                "name": f"block {block.index} warp {warp.number}",
            }
            for block in self.debugger.look.blocks
            for warp in block.warps
        ]
        return {"threads": out or [{"id": 1, "name": "ended"}]}, None

    def stack(self, given: Body) -> Answered:
        self._focus(int(given["threadId"]))
        look, frames = self.debugger.look, []
        thread = look.thread
        pcs = [look.pc(thread), *(pc - 1 for pc in reversed(thread.calls))]
        for i, (frame, pc) in enumerate(zip(reversed(thread.frames), pcs, strict=True)):
            line = look.locations.line(pc)
            shown = {"id": i, "name": frame.function.name, "line": line.number, "column": 1}
            frames.append(shown | {"source": self._source_of(line)})
        return {"stackFrames": frames, "totalFrames": len(frames)}, None

    def _source_of(self, line: Line) -> Body:
        own = self.session.command.file
        path = self.debugger.locations.path(line.file)
        if line.file == PTX and own.endswith(".ptx"):
            path = Path(own)
        if path is not None:
            return {"name": path.name, "path": str(path.resolve())}
        return {"name": line.file, "sourceReference": 1}

    def source(self, given: Body) -> Answered:
        return {"content": "\n".join(self.debugger.locations.lines_of(PTX))}, None

    def scopes(self, given: Body) -> Answered:
        names = ("Registers", "Parameters", "mbarriers", "Variables")
        return {"scopes": [
            {"name": name, "variablesReference": i + 1, "expensive": False}
            for i, name in enumerate(names)
        ]}, None  # fmt: skip

    def variables(self, given: Body) -> Answered:
        reference, look = int(given["variablesReference"]), self.debugger.look
        if reference == 1:
            names = look.register_names(every=True)
            return _variables(
                (name, f"{value}  ({every})", type_, name, _FIRST + names.index(name))
                for name, type_, value, _, every, *_ in self.debugger.registers().rows
            )
        if reference == 2:
            return _variables(
                (row[0], f"{row[2]} {row[3]}".strip(), row[1]) for row in look.arguments().rows
            )
        if reference == 3:
            barriers = look.mbarriers().rows
            return _variables((f"{x[1]} of block {x[0]}", ", ".join(x[2:])) for x in barriers)
        if reference == 4:
            return _variables((x[0], x[1], x[2], x[0]) for x in look.variables().rows)
        values = look.values(look.register_names(every=True)[reference - _FIRST])
        texts = ("ended" if x is None else number_text(x, "f32") for x in values)
        return _variables((f"lane {i}", text) for i, text in enumerate(texts))

    def evaluate(self, given: Body) -> Answered:
        text = str(given["expression"])
        if given.get("context") == "repl":
            terminal, before = self.session.terminal, self.debugger.stop
            start = len(terminal.said)
            terminal.onecmd(text)
            body = {"result": "\n".join(terminal.said[start:]), "variablesReference": 0}
            moved = self.debugger.stop is not before
            return body, (lambda: self._stopped(self.debugger.stop, "step")) if moved else None
        value = self.debugger.value(text)
        return {"result": number_text(value, "f32"), "variablesReference": 0}, None

    def completions(self, given: Body) -> Answered:
        text = str(given["text"])[: int(given.get("column", 1)) - 1]
        word = re.split(r"\s", text)[-1]
        names = self.session.terminal.completions_of(text)
        targets = [
            {"label": x, "start": len(text) - len(word), "length": len(word)} for x in names[:200]
        ]
        return {"targets": targets}, None


Answered = tuple[Body, Callable[[], None] | None]
Handler = Callable[[Adapter, Body], Answered]


def _variables(rows: Iterable[tuple[object, ...]]) -> Answered:
    """Variables by name, value, and as far as they have them: type, expression and reference."""
    keys = ("name", "value", "type", "evaluateName", "variablesReference")
    found = [{"variablesReference": 0} | dict(zip(keys, row, strict=False)) for row in rows]
    return {"variables": found}, None


def _mover(name: str, **options: object) -> Handler:
    return lambda adapter, given: adapter.move(given, name, **options)


#: request -> what answers it
_HANDLERS: dict[str, Handler] = {
    "initialize": Adapter.initialize, "launch": Adapter.launch, "restart": Adapter.restart,
    "configurationDone": Adapter.configuration_done,
    "disconnect": Adapter.leave, "terminate": Adapter.leave,
    "setBreakpoints": Adapter.set_breakpoints, "setFunctionBreakpoints": Adapter.set_functions,
    "setExceptionBreakpoints": Adapter.set_exceptions,
    "dataBreakpointInfo": Adapter.data_information, "setDataBreakpoints": Adapter.set_data,
    "continue": _mover("cont"), "reverseContinue": _mover("cont", reverse=True),
    "next": _mover("next"), "stepIn": _mover("step"), "stepOut": _mover("finish"),
    "stepBack": _mover("step", reverse=True), "pause": Adapter.pause,
    "threads": Adapter.threads, "stackTrace": Adapter.stack, "source": Adapter.source,
    "scopes": Adapter.scopes, "variables": Adapter.variables,
    "evaluate": Adapter.evaluate, "completions": Adapter.completions,
}  # fmt: skip


def _sizes(given: object) -> str:
    """8, "8,8" or [8, 8], as the command line has it."""
    return ",".join(map(str, given)) if isinstance(given, list) else str(given)


def main() -> None:
    """Serves one editor on standard input and output."""
    Adapter(sys.stdin.buffer, sys.stdout.buffer).serve()


if __name__ == "__main__":
    main()
