"""``python -m emulator``: questions about instructions and fragments, and PTX files, from a shell.

Exit codes: 0 right, 1 wrong (a recording was not reproduced), 2 a mistake of the caller's, 130
interrupted, 141 the reader of the output left. Results go to stdout, messages to stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from emulator.errors import EmulatorError

if TYPE_CHECKING:
    from emulator.tools.answer import Answer


class _Parser(argparse.ArgumentParser):
    """Speaks of unknown options itself: the usage of the whole program helps nobody."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            import difflib

            near = difflib.get_close_matches(
                rest[0].partition("=")[0], self._option_string_actions, n=1, cutoff=0.75
            )
            nearest = f"; nearest is {near[0]}" if near else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{nearest}")
        return known, rest


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m emulator",
        description="NVIDIA's PTX matrix instructions, register for register and bit for bit.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, answer: str, text: str) -> argparse.ArgumentParser:
        """`answer` is "module:function" of `emulator.tools`, imported when it is called: `lane`
        must not wait for `run`."""
        # Abbreviated, --target of `compare` would be taken for --targets.
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.set_defaults(answer=answer)
        sub.add_argument("--json", action="store_true", help="print JSON")
        return sub

    def fragment(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("opcode", help="such as mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
        sub.add_argument(
            "operand", help="a, b, c, d; e (metadata); scale_a, scale_b; r of stmatrix"
        )

    def operands(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--input", metavar="FILE.npz", help="matrices A, B, and C, scale_a, scale_b, nibbles: "
            "values, or as unsigned integers element codes",
        )  # fmt: skip
        sub.add_argument("--a", metavar="NUMBERS", help='row of A: "1.5,0x3c00,nan", the rest 0')
        sub.add_argument("--b", metavar="NUMBERS", help="column of B")
        sub.add_argument("--c", metavar="NUMBER", help="element of C (default 0)")
        sub.add_argument("--seed", type=int, help="of generated operands, the default (0)")
        sub.add_argument("--inputs", metavar="KIND", help="of generated operands: wide (default), "
                         "normal, edges, any")  # fmt: skip
        sub.add_argument("--html", action="store_true", help="a page instead of text")
        sub.add_argument("-o", "--output", metavar="FILE", help="write there; .html: a page")

    sub = command("list", "listing:list_instructions", "Lists the instructions, one line each.")
    sub.add_argument("--target", help="only those of this target: sm_90a, H100, ...")
    sub.add_argument(
        "--type", dest="type_", help="only those with elements of this type: f16, s8, fp8, ..."
    )
    sub.add_argument("--family", help="only mma, mma.sp, wgmma, wmma, ldmatrix, ...")
    sub.add_argument(
        "--all", dest="every", action="store_true", help="every N of wgmma on a line of its own"
    )

    sub = command(
        "info", "info:info", "Shows the operands and targets of an instruction, and what it does."
    )
    sub.add_argument("opcode")
    sub.add_argument("--target", help="show what it does on this target only")

    sub = command("lane", "lookup:lane", "Shows which lane, register and bits hold an element.")
    fragment(sub)
    sub.add_argument("row", type=int)
    sub.add_argument("col", type=int)
    sub.add_argument(
        "--group", type=int, default=0,
        help="where lanes hold several matrices: the computation of m8n8k4.f16, the selector of e, "
        "the choice of scale ids, the tile of ldmatrix (`table` names them)",
    )  # fmt: skip

    sub = command(
        "element", "lookup:element", "Shows the elements in a register, lowest bits first."
    )
    fragment(sub)
    sub.add_argument("lane", type=int)
    sub.add_argument("register", type=int)

    sub = command(
        "table", "lookup:table", "Shows a whole fragment: the elements by lane and register."
    )
    fragment(sub)
    sub.add_argument("--format", dest="style", choices=("text", "csv", "markdown"), default="text")
    sub.add_argument(
        "--by", choices=("lane", "element"), default="lane",
        help="element: the matrix, with lane:register.[bits] in each place",
    )  # fmt: skip

    sub = command(
        "view",
        "pictures.command:view",
        "Draws the operands: a page that answers pointing, or an SVG.",
    )
    sub.add_argument("opcode")
    sub.add_argument("--operand", help="only this one: a, b, c, d, e, scale_a, p, ...")
    sub.add_argument("--target", help="tell what it does on this target only")
    sub.add_argument("--format", choices=("html", "svg"), help="default: by the file name, or html")
    sub.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    tile = sub.add_argument_group("tiles of wgmma in shared memory")
    tile.add_argument("--swizzle", metavar="WIDTH", help="none, 32B, 64B or 128B (default)")
    tile.add_argument("--major", choices=("k", "mn"), help="default k")
    tile.add_argument("--start-address", metavar="BYTE", help="0x400, 1024, ... (default 0)")

    sub = command(
        "run", "runfile:run_file", "Runs a PTX file and shows the registers that it wrote."
    )
    sub.add_argument("file", help="straight-line PTX; - reads from standard input")
    sub.add_argument("--target", default="sm_90a", help="sm_80, H100, ... (default sm_90a)")
    sub.add_argument("--registers", metavar="IN.npz", help="register words to start with, by name "
                     "without %%: uint32 or uint64 (lanes,); `shared`: uint8 bytes")  # fmt: skip
    sub.add_argument("-o", "--output", metavar="OUT.npz", help="where to write all registers")
    sub.add_argument("--show", metavar="NAMES", help="registers to show: r0,f1 (default: written)")

    sub = command(
        "descriptor", "descriptors.command:descriptor",
        "Decodes and checks a matrix descriptor of wgmma, or builds the one that a tile needs.",
    )  # fmt: skip
    sub.add_argument(
        "given", nargs="*", metavar="WORD|OPCODE",
        help="64-bit words (0x, 0b or decimal), and a wgmma to check them for",
    )  # fmt: skip
    sub.add_argument("--operand", default="b", help="a or b (default b)")
    sub.add_argument("--major", help="k (default), or mn where imm-trans is 1")
    sub.add_argument("--shared-size", metavar="BYTES", help="of the shared memory (default 2**18)")
    sub.add_argument(
        "--need", metavar="TILE",
        help="name the difference to the word that a tile needs, such as swizzle=128B,start=0x400: "
        "swizzle= none, 32B, 64B, 128B; start= byte address; tile= ROWSxCOLUMNS as stored (rows "
        "are m or n, columns k, whatever the major); row=, column= where the instruction starts in "
        "it; order= rows or columns, which block of 8 lines follows in memory; leading= bytes "
        "between lines, or 64e in elements; major=",
    )  # fmt: skip
    sub.add_argument("--diff", action="store_true", help="--need, everything taken from the word")
    sub.add_argument("--build", metavar="TILE", help="build the word that such a tile needs")

    sub = command(
        "explain",
        "explanations.command:explain_command",
        "Shows how one element of D came about, bit by bit.",
    )
    sub.add_argument("opcode")
    sub.add_argument("--target", required=True, help="sm_90a, H100, ...")
    sub.add_argument("--row", type=int, default=0, help="of D (default 0)")
    sub.add_argument("--col", type=int, default=0, help="of D (default 0)")
    operands(sub)
    sub.add_argument(
        "--registers", metavar="FILE.npz", help="lane registers by the names that `execute` gives "
        "its operands and options: a, b, c, e, selector, descriptor_b, shared, ...",
    )  # fmt: skip
    sub.add_argument("--computation", type=int, default=0, help="of m8n8k4.f16, 0 to 3")
    sub.add_argument("--batch", default="", metavar="INDEX", help="which of a batch: 0 or 0,2")

    sub = command(
        "compare",
        "explanations.command:compare_command",
        "Computes the same operands on several targets, and tells why results differ. Several "
        "instructions with the same types are compared, too.",
    )
    sub.add_argument("opcodes", metavar="opcode", nargs="+")
    sub.add_argument("--targets", metavar="NAMES", help="sm_80,sm_90a,B200 (default: all)")
    operands(sub)
    sub.add_argument("--limit", type=int, default=12, help="elements shown (default 12)")
    sub.add_argument("--same", action="store_true", help="exit with 1 where any bit differs")

    sub = command(
        "fault",
        "faults.command:fault",
        "Names the mistake in a kernel that explains what came out. Exit code 0: nothing is wrong, "
        "or a mistake explains every bit; 1: none does.",
    )
    sub.add_argument("opcode")
    sub.add_argument("--target", required=True, help="sm_80, H100, ...")
    sub.add_argument(
        "--input", required=True, metavar="IN.npz",
        help="A, B, C: the matrices that are meant (C may be left out: zeros; bf16, fp8, fp4 as "
        "codes); D: what came out, a matrix or registers (lanes, registers); and what the kernel "
        "passed, as far as it is known: a, b, c (registers), e, selector, scale_a, scale_b, "
        "byte_id_a, ..., shared, descriptor_a, descriptor_b, scale_d, ...; or, instead of "
        "D, `expected`: the D that a, b, c should give",
    )  # fmt: skip
    sub.add_argument("--pairs", action="store_true", help="try two mistakes at once, too")
    sub.add_argument("--limit", type=int, default=5, help="most faults to list (default 5)")

    sub = command("guide", "guide:guide", "Shows a page about what one can do, or lists the pages.")
    sub.add_argument("name", nargs="?", metavar="PAGE", help="kernels, explain, testing, ...")

    sub = command("selftest", "replay:selftest", "Replays the recordings of real hardware.")
    sub.add_argument("--engine", default="auto", help="auto, reference, vector or compiled")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; argparse exits by itself on a bad one."""
    arguments = vars(_parser().parse_args(argv))
    answer, as_json = arguments.pop("answer"), arguments.pop("json")
    try:
        module, function = answer.split(":")
        result: Answer = getattr(import_module(f"emulator.tools.{module}"), function)(**arguments)
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
