"""The error types. Every mistake that a caller can make raises one of them.

A message says what was given, where, what is legal, and the nearest legal thing. ``assert`` is for
mistakes of this package alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EmulatorError(ValueError):
    """Base of all errors of this package."""


class ParseError(EmulatorError):
    """The text is not PTX, or not a matrix instruction."""


class UnsupportedError(EmulatorError):
    """PTX, but no legal form of the instruction, or not on this target."""


class OperandError(EmulatorError):
    """A wrong count, shape, type or range of operands."""


class UndefinedError(EmulatorError):
    """PTX calls the outcome undefined: metadata values, descriptors, register races."""


def nearest(given: str, legal: Iterable[str], count: int = 1) -> list[str]:
    """The legal spellings most like `given`, best first."""
    return difflib.get_close_matches(given, list(legal), n=count, cutoff=0.0)


def nearest_opcode(given: str, legal: Iterable[str]) -> str:
    """The legal opcode that shares the most words with `given`, and of those the most alike."""
    words = set(given[:1000].split("."))
    ranked = sorted(legal, key=lambda text: -len(words.intersection(text.split("."))))
    return nearest(given[:1000], ranked[:8])[0]


def quoted(text: str, limit: int = 120) -> str:
    """`text` in quotes, its end left out where it is very long."""
    return repr(text if len(text) <= limit else f"{text[:limit]}…")


def listing(names: Iterable[object], limit: int = 12) -> str:
    """``a, b, c, … (30 in all)``: a list of legal things short enough for a message."""
    shown = [str(name) for name in names]
    if len(shown) <= limit:
        return ", ".join(shown)
    return f"{', '.join(shown[:limit])}, … ({len(shown)} in all)"
