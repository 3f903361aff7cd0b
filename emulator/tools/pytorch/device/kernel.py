"""Kernels of our own with the arithmetic of PyTorch's, from the PTX beside their source."""

from __future__ import annotations

from functools import cache
from pathlib import Path

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
