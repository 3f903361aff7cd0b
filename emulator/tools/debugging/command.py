"""``debug``: a kernel of a PTX or CUDA C++ file under the debugger, in a terminal or an editor."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from emulator.errors import OperandError
from emulator.machine.debugger.debugger import Debugger
from emulator.tools.debugging.terminal import Terminal
from emulator.tools.files import read_text
from emulator.tools.launching import KERNEL, LaunchWords
from emulator.tools.report import Answer

#: arguments of `debug` and what they mean
DEBUG_HELP = KERNEL | {
    "-x --commands FILE": "debugger commands to run first, one on each line",
    "-e -ex --execute COMMAND": "a debugger command to run first; may be given several times",
    "--batch": "quit behind these commands",
}
DEBUG_WORDS = LaunchWords


def debug_command(
    file: str,
    commands: str | None = None,
    execute: Sequence[str] = (),
    batch: bool = False,
    **words: Any,
) -> Answer:
    """Debugs a launch by commands: those given, and then lines from a terminal or standard input.

    Answers with what the commands showed, unless a terminal has shown it already; the code is 1
    where the kernel has raised an error. Raises OperandError for files and words that cannot be
    used, and whatever `Kernel.debug` raises.
    """
    if file == "-":
        raise OperandError("debug reads commands from standard input: name a file with the kernel")
    given = [*(read_text(commands).splitlines() if commands else ()), *execute]
    command = LaunchWords(file, **words)
    command.prepare()
    with command.debug() as debugger:
        live = not batch and sys.stdin is not None and sys.stdin.isatty()
        shown, data = _answers(debugger, given, live, batch)
        if debugger.report is not None:
            command.write(debugger.report, [x for x in command.values if x.output])
        return Answer([] if live else shown, data, code=int(debugger.error is not None))


def _answers(
    debugger: Debugger, given: Sequence[str], live: bool, batch: bool
) -> tuple[list[str], list[dict[str, Any]]]:
    """Runs commands: what they showed as lines, and by command."""
    terminal = Terminal(debugger)
    if live:
        print(f"{terminal.welcome}\n{debugger.stop}")
        for line in given:
            terminal.onecmd(line)
        terminal.cmdloop()
        return [], []
    shown, data = str(debugger.stop).splitlines(), []
    rest: Iterator[str] = iter(()) if batch or sys.stdin is None else iter(sys.stdin)
    for line in chain(given, rest):
        start = len(terminal.said)
        if not line.strip():
            continue
        over = terminal.onecmd(line.strip())
        lines = terminal.said[start:]
        shown += [f"{terminal.prompt}{line.strip()}", *lines]
        data.append({"command": line.strip(), "output": lines})
        if over:
            break
    return shown, data
