"""Immediate operands: single integers out of a short list."""

from __future__ import annotations

import numpy as np


def is_immediate(given: object, legal: tuple[int, ...] | range) -> bool:
    """Whether `given` is one integer, not an array or a bool, and legal."""
    whole = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
    return whole and int(given) in legal  # type: ignore[call-overload]
