"""Kernels of our own with the arithmetic of PyTorch's, from the PTX beside their source."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.arith.engines import by_kernels
from emulator.errors import UnsupportedError
from emulator.machine.module import Kernel, Module

if TYPE_CHECKING:
    from emulator.machine.compiled.elementwise import Elementwise

KERNELS = Path(__file__).parent.parent / "kernels"


@cache
def _module(target: str, file: str) -> Module | None:
    try:
        return Module(KERNELS / f"{file}.ptx", target)
    except UnsupportedError:
        return None


@cache
def find_kernel(target: str, file: str, name: str) -> Kernel | None:
    """A kernel of kernels/FILE.ptx; None where the target cannot run the file, or it has none."""
    module = _module(target, file)
    return module[name] if module and name in module.kernels else None


def launch(kernel: Kernel | None, blocks: int, threads: int, args: Sequence[object]) -> None:
    """Runs a kernel that is there; where it fails, arrays keep what it has written, for nobody else
    has them."""
    assert kernel is not None
    made = kernel.prepare(blocks, threads, args)
    made.arena.journal.undoes = False
    made.run("auto")


def compute_alone(kernel: Kernel, args: Sequence[Any], out: Any) -> bool:
    """Runs the arithmetic of a kernel alone, without its threads; False where it has another form.

    `args`: an array of f32 or a number of 32 bits for each parameter, None for what is no operand.
    """
    native = _native(kernel)
    if native is None:
        return False
    words = [None if x is None else np.asarray(x).reshape(-1).view(np.uint32) for x in args]
    native.run(words, np.asarray(out).reshape(-1).view(np.uint32))
    return True


@cache
def _native(kernel: Kernel) -> Elementwise | None:
    """A kernel's arithmetic as a native function; None where it has another form."""
    if importlib.util.find_spec("llvmlite") is None:
        return None
    from emulator.machine.compiled.elementwise import elementwise

    program = kernel.rewritten[0]
    function = program.functions[kernel.name]
    made: Elementwise | None = by_kernels(
        "auto", lambda: elementwise(program, function, kernel.module.target)
    )
    return made
