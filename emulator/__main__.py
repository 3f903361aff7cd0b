"""``python -m emulator``: questions about instructions, PTX files and kernels, from a shell.

Exit codes: 0 right, 1 wrong (a recording was not reproduced), 2 a mistake of the caller's or output
that cannot be written, 130 interrupted, 141 the reader of the output left. Results go to stdout,
messages to stderr.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, TextIO

from emulator import __version__
from emulator.errors import EmulatorError
from emulator.tools.arguments import add_command

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from emulator.report import Report

#: command -> module of `emulator.tools`, or behind "adapters:" one of those, and its line; the
#: module has NAME_command, and NAME_HELP for its arguments.
#: A module is imported when its command is asked for: `lane` must not wait for `run`.
COMMANDS = {
    "guide": ("guide", "Shows a page of the guide, or lists the pages."),
    "list": ("listing", "Lists the instructions, one line each."),
    "info": ("info", "Shows the operands and targets of an instruction, and what it does."),
    "lane": ("lookup", "Shows which lane, register and bits hold an element."),
    "element": ("lookup", "Shows the elements in a register, lowest bits first."),
    "table": ("lookup", "Shows a whole fragment: the elements by lane and register."),
    "view": ("pictures.command", "Draws the operands: a page that answers pointing, or an SVG."),
    "run": ("runfile", "Runs a PTX file and shows the registers that it wrote."),
    "launch": ("launching", "Runs a kernel of a PTX or CUDA C++ file on arrays."),
    "check": (
        "launching",
        "Runs a kernel as `launch` does and looks for mistakes: races, memory that nothing wrote, "
        "and such. Exit code 0: none; 1: some.",
    ),
    "debug": (
        "debugging.command",
        "Runs a kernel as `launch` does under a debugger with gdb's commands: breakpoints, steps, "
        "also backward, registers of all lanes, memory, barriers.",
    ),
    "descriptor": (
        "descriptors.command",
        "Decodes and checks a matrix descriptor of wgmma, or builds the one that a tile needs.",
    ),
    "explain": ("explanations.command", "Shows how one element of D came about, bit by bit."),
    "compare": (
        "explanations.command",
        "Computes the same operands on several targets, and tells why results differ. Several "
        "instructions with the same types are compared, too.",
    ),
    "error": (
        "studies.command",
        "Measures how far the sums of an instruction are off, over k, targets and orders.",
    ),
    "fault": (
        "faults.command",
        "Names the mistake in a kernel that explains what came out. Exit code 0: nothing is wrong, "
        "or a mistake explains every bit; 1: none does.",
    ),
    "torch": (
        "pytorch.command",
        "Runs a Python script whose PyTorch products on the CPU get the bits of a GPU's library.",
    ),
    "exec": (
        "adapters:cuda.command",
        "Runs a program, unmodified, with a GPU that is not there: `exec --gpu H100 -- ./a.out`.",
    ),
    "probe": (
        "studies.command",
        "Finds by experiment with which precision an instruction accumulates.",
    ),
    "record": (
        "recording.command",
        "Writes a script that runs a kernel or an instruction on your GPU and keeps the results.",
    ),
    "selftest": ("replay", "Replays the recordings of real hardware, or those of your own GPU."),
}


class _Parser(argparse.ArgumentParser):
    """Names unknown options instead of printing the usage of the whole program."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            import difflib

            near = difflib.get_close_matches(
                rest[0].partition("=")[0][:100], self._option_string_actions, n=1, cutoff=0.75
            )
            nearest = f"; nearest is {near[0]}" if near else ""
            self.error(f"unrecognized arguments: {' '.join(rest)[:200]}{nearest}")
        return known, rest

    def error(self, message: str) -> NoReturn:
        # A word of the command line is quoted in whole.
        super().error(re.sub(r"\S{200,}", lambda word: f"{word[0][:200]}…", message))

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        print(self.format_help(), end="", file=file)  # argparse's own hides that it could not


def tool_of(module: str) -> ModuleType:
    """The module that a row of `COMMANDS` names."""
    room, _, rest = module.rpartition(":")
    return import_module(f"emulator.{room or 'tools'}.{rest}")


def _parser(asked: str) -> argparse.ArgumentParser:
    """The parser of the program, with the arguments of the command that is asked for; the others
    are listed where none is."""
    parser = _Parser(
        prog="python -m emulator",
        description="NVIDIA's PTX on simulated warps, register for register and bit for bit.",
    )
    parser.add_argument("--version", action="version", version=f"emulator {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in [asked] if asked in COMMANDS else COMMANDS:
        module, text = COMMANDS[name]
        # Abbreviated, --target of `compare` would be taken for --targets.
        # What is left out is not passed: the defaults are those of the command's function.
        command = commands.add_parser(
            name,
            help=text,
            description=text,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        if name == asked:
            tool = tool_of(module)
            command.add_argument("--json", action="store_true", help="print JSON")
            add_command(command, tool, name)
            command.set_defaults(answer=getattr(tool, f"{name}_command"), json=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; argparse exits by itself on a bad one."""
    words = sys.argv[1:] if argv is None else list(argv)
    arguments = vars(_parser(words[0] if words else "").parse_args(words))
    answer, as_json = arguments.pop("answer"), arguments.pop("json")
    try:
        report: Report = answer(**arguments)
        if as_json:
            import json

            print(json.dumps(report.data, allow_nan=False))
        else:
            for line in report.lines():
                print(line)
    except EmulatorError as error:
        _complain(str(error))
        return 2
    return report.code


def _complain(message: str) -> None:
    # print takes None for standard output; a stream that is full cannot be written to.
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"error: {message}", file=sys.stderr, flush=True)


def _shell() -> int:
    """Calls `main`, and handles interrupts, closed streams and a reader that leaves."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - argparse needs one
    if sys.stdout is None:
        _complain("standard output is closed")
        return 2
    if hasattr(sys.stdout, "reconfigure"):
        # Words from elsewhere may hold characters such as × that an old console lacks.
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            code = main()
        except SystemExit as stop:  # argparse's, after it has shown help or what is wrong
            code = stop.code if isinstance(stop.code, int) else 2
        sys.stdout.flush()
        return code
    except OSError as error:
        if error.filename is not None:
            raise
        _drop(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return 141
        _complain(f"cannot write the output: {error.strerror or error}")
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """Discards what a stream does not take: the interpreter would try again, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(_shell())
