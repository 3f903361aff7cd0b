"""``python -m emulator``: questions about instructions and fragments, and PTX files, from a shell.

Exit codes: 0 right, 1 wrong (a recording was not reproduced), 2 a mistake of the caller's, 130
interrupted, 141 the reader of the output left. Results go to stdout, messages to stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from emulator.errors import EmulatorError

if TYPE_CHECKING:
    from emulator.tools.answer import Answer

# Every command imports what it needs when it is called: `lane` must not wait for `run`.


def _list(target: str, type: str, family: str, all: bool) -> Answer:
    from emulator.tools.listing import list_instructions

    return list_instructions(target, type, family, all)


def _info(opcode: str, target: str) -> Answer:
    from emulator.tools.info import info

    return info(opcode, target)


def _lane(**question: Any) -> Answer:
    from emulator.tools.lookup import lane

    return lane(**question)


def _element(**question: Any) -> Answer:
    from emulator.tools.lookup import element

    return element(**question)


def _table(opcode: str, operand: str, format: Any, by: Any) -> Answer:
    from emulator.tools.lookup import table

    return table(opcode, operand, format, by)


def _run(**question: Any) -> Answer:
    from emulator.tools.runfile import run_file

    return run_file(**question)


def _selftest(engine: Any) -> Answer:
    from emulator.tools.replay import selftest

    return selftest(engine)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m emulator",
        description="NVIDIA's PTX matrix instructions, register for register and bit for bit.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, answer: Callable[..., Answer], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(answer=answer)
        sub.add_argument("--json", action="store_true", help="print JSON")
        return sub

    def fragment(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("opcode", help="such as mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
        sub.add_argument(
            "operand", help="a, b, c, d; e (metadata); scale_a, scale_b; r of stmatrix"
        )

    sub = command("list", _list, "Lists the instructions, one line each.")
    sub.add_argument("--target", help="only those of this target: sm_90a, H100, ...")
    sub.add_argument("--type", help="only those with elements of this type: f16, s8, ...")
    sub.add_argument("--family", help="only mma, mma.sp, wgmma, ldmatrix, cvt, ...")
    sub.add_argument("--all", action="store_true", help="every N of wgmma on a line of its own")

    sub = command(
        "info", _info, "Shows the operands and targets of an instruction, and what it does."
    )
    sub.add_argument("opcode")
    sub.add_argument("--target", help="show what it does on this target only")

    sub = command("lane", _lane, "Shows which lane, register and bits hold an element.")
    fragment(sub)
    sub.add_argument("row", type=int)
    sub.add_argument("col", type=int)
    sub.add_argument(
        "--group", type=int, default=0,
        help="where lanes hold several matrices: the computation of m8n8k4.f16, the selector of e, "
        "the choice of scale ids, the tile of ldmatrix (`table` names them)",
    )  # fmt: skip

    sub = command("element", _element, "Shows the elements in a register, lowest bits first.")
    fragment(sub)
    sub.add_argument("lane", type=int)
    sub.add_argument("register", type=int)

    sub = command("table", _table, "Shows a whole fragment: the elements by lane and register.")
    fragment(sub)
    sub.add_argument("--format", choices=("text", "csv", "markdown"), default="text")
    sub.add_argument(
        "--by", choices=("lane", "element"), default="lane",
        help="element: the matrix, with lane:register.[bits] in each place",
    )  # fmt: skip

    sub = command("run", _run, "Runs a PTX file and shows the registers that it changed.")
    sub.add_argument("file", help="straight-line PTX; - reads from standard input")
    sub.add_argument("--target", default="sm_90a", help="sm_80, H100, ... (default sm_90a)")
    sub.add_argument("--registers", metavar="IN.npz", help="register words to start with, by name "
                     "without %%: uint32 or uint64 (lanes,); `shared`: uint8 bytes")  # fmt: skip
    sub.add_argument("-o", "--output", metavar="OUT.npz", help="where to write all registers")
    sub.add_argument("--show", metavar="NAMES", help="registers to show: r0,f1 (default: changed)")

    sub = command("selftest", _selftest, "Replays the recordings of real hardware.")
    sub.add_argument("--engine", default="auto", help="auto, reference, vector or compiled")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; argparse exits by itself on a bad one."""
    arguments = vars(_parser().parse_args(argv))
    answer, as_json = arguments.pop("answer"), arguments.pop("json")
    try:
        result: Answer = answer(**arguments)
        if as_json:
            import json

            print(json.dumps(result.data, allow_nan=False))
        else:
            for line in result.lines:
                print(line)
    except EmulatorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return result.code


def _shell() -> int:
    """`main`, and the ways in which a shell ends a program."""
    if hasattr(sys.stdout, "reconfigure"):
        # Words from elsewhere may hold characters such as × that an old console lacks.
        sys.stdout.reconfigure(errors="replace")
    try:
        code = main()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The interpreter would flush, and complain, once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(_shell())
