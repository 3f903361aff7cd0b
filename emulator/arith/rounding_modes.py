"""The rounding of the machine's own arithmetic, set for what one thread computes."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dtypes import Rounding

#: <fenv.h>: what fesetround takes, by the machine; toward zero, up, down
_MODES = {
    "x86_64": {"rz": 0xC00, "rp": 0x800, "rm": 0x400},
    "aarch64": {"rz": 0xC00000, "rp": 0x400000, "rm": 0x800000},
}
_NEAREST = 0


def rounded(compute: Callable[..., None], rounding: Rounding) -> Callable[..., None] | None:
    """`compute`, every operation of which rounds so; None where that cannot be had.

    The mode belongs to a thread: it is set before `compute` runs and taken back afterwards.
    """
    if rounding == "rn":
        return compute
    mode, set_mode = _modes().get(rounding), _set_mode()
    if mode is None or set_mode is None:
        return None

    def run(*given: object) -> None:
        set_mode(mode)
        try:
            compute(*given)
        finally:
            set_mode(_NEAREST)

    return run if _reaches_vectors(rounding) else None


def _modes() -> dict[str, int]:
    machine = platform.machine()
    return _MODES.get("aarch64" if machine == "arm64" else machine, {})


@lru_cache(maxsize=1)
def _set_mode() -> Any:
    if platform.system() == "Windows":
        return None  # other numbers, and no need so far
    try:
        return ctypes.CDLL(None).fesetround
    except (OSError, AttributeError):
        return None


@lru_cache(maxsize=4)
def _reaches_vectors(rounding: str) -> bool:
    """True if the mode changes what NumPy computes, by sums that the modes round differently."""
    set_mode, one, tiny = _set_mode(), np.ones(8), np.full(8, 2.0**-80)
    set_mode(_modes()[rounding])
    try:
        sums = [one + tiny, tiny - one, -one - tiny]
    finally:
        set_mode(_NEAREST)
    up, toward_zero = 1 + 2.0**-52, -1 + 2.0**-53
    want = {"rz": (1, toward_zero, -1), "rp": (up, toward_zero, -1), "rm": (1, -1, -up)}[rounding]
    return all(bool((x == y).all()) for x, y in zip(sums, want, strict=True))
