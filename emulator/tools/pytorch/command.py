"""``torch``: a Python script whose matrix products get the bits of a GPU's library."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.errors import OperandError, UnsupportedError, quoted
from emulator.targets import find_target
from emulator.tools.report import Answer

if TYPE_CHECKING:
    from argparse import ArgumentParser


def torch_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("script", help="a Python script that uses torch on the CPU")
    add("words", nargs="*", metavar="ARG", help="arguments of the script; after -- if they have -")
    add("--target", required=True, help="H100, A100, B200, sm_90a, ...")
    add("--strict", action="store_true", help="end at a product whose order is not known")


def torch_command(script: str, words: list[str], target: str, strict: bool = False) -> Answer:
    """Runs a script as ``python SCRIPT ARG ...`` does and answers with the products that it used.

    Raises OperandError for a script that cannot be read, UnsupportedError where torch is missing,
    and whatever `tensor_core_matmul` raises.
    """
    find_target(target)
    path = Path(script)
    if not path.is_file():
        raise OperandError(f"no script {quoted(script)}")
    try:
        from emulator.tools.pytorch.mode import tensor_core_matmul
    except ImportError as error:
        raise UnsupportedError(f"this needs PyTorch: pip install torch ({error!s:.100})") from None
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [script, *words], str(path.resolve().parent)
    try:
        with tensor_core_matmul(target, strict=strict) as used:
            _run(script)
    finally:
        sys.argv, sys.path[0] = before
    return Answer(list(used.lines()), used.data)


def _run(script: str) -> None:
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        if stop.code:
            raise
