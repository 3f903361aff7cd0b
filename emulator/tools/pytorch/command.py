"""``torch``: a Python script whose matrix products get the bits of a GPU's library."""

from __future__ import annotations

import runpy
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from emulator.errors import OperandError, UnsupportedError, quoted
from emulator.reading import TEXT_LIMIT, check_regular
from emulator.targets import find_target
from emulator.tools.report import Answer

#: arguments of `torch` and what they mean
TORCH_HELP = {
    "script": "a Python script that uses torch on the CPU",
    "words ARG": "arguments of the script; after -- if they have -",
    "--target": "H100, A100, B200, sm_90a, ...",
    "--strict": "end at a product whose order is not known",
}


def torch_command(
    script: str, target: str, words: Sequence[str] = (), strict: bool = False
) -> Answer:
    """Runs a script as ``python SCRIPT ARG ...`` does and answers with the products that it used.

    Raises OperandError for a script that cannot be read, UnsupportedError where torch is missing,
    and whatever `tensor_core_matmul` raises.
    """
    find_target(target)
    path = Path(script)
    check_regular(path, TEXT_LIMIT)
    _check_python(path)
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


def _check_python(path: Path) -> None:
    """Raises OperandError for a file that Python would not run; runpy would open an archive."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come again when the script runs
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        at = "" if error.lineno is None else f", line {error.lineno}"
        raise OperandError(f"{quoted(str(path))} is no Python script{at}: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise OperandError(f"cannot read {quoted(str(path))}: {error!s:.200}") from None


def _run(script: str) -> None:
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        if stop.code:
            raise
