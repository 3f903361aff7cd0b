"""Kernels of our own with the arithmetic of PyTorch's, from the PTX beside their source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from emulator.errors import UnsupportedError
from emulator.machine.module import Kernel, Module

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


def launch(kernel: Kernel, blocks: int, threads: int, args: Sequence[Any]) -> None:
    """Runs a kernel; where it fails, arrays keep what it has written, for nobody else has them."""
    made = kernel.prepare(blocks, threads, args)
    made.arena.undoes = False
    made.run("auto")
