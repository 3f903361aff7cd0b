"""The error types. Every mistake that a caller can make raises one of them.

A message says what was given, where, what is legal, and the nearest legal thing. ``assert`` is for
mistakes of this package alone.
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

#: likeness of two spellings below which it does not help to name the one for the other
_ALIKE = 0.5


class EmulatorError(ValueError):
    """Base of all errors of this package."""


class ParseError(EmulatorError):
    """The text is not PTX, or not a matrix instruction."""


class UnsupportedError(EmulatorError):
    """PTX, but no legal form of the instruction, not on this target, or not modelled here."""


class OperandError(EmulatorError):
    """A wrong count, shape, type or range of operands."""


class UndefinedError(EmulatorError):
    """PTX calls the outcome undefined: metadata values, descriptors, register races."""


def _close(given: str, legal: Iterable[str], count: int, cutoff: float) -> list[str]:
    """The spellings at least so much like `given`, best first."""
    import difflib  # a hundredth of a start, and of use to mistakes alone

    return difflib.get_close_matches(given, list(legal), n=count, cutoff=cutoff)


def nearest(given: str, legal: Iterable[str], count: int = 1) -> list[str]:
    """The legal spellings most like `given`, best first."""
    return _close(given, list(legal), count, 0.0)


def hint(given: str, legal: Iterable[str], dot: str = "") -> str:
    """``; nearest is 'f16'`` for the end of a message; "" where nothing legal is like `given`.

    `dot` stands before the name, as in ``'.f16'``.
    """
    names, given = list(legal), given[:100]
    found = _close(given, names, 1, _ALIKE)
    if not found:
        lower = {name.lower(): name for name in names}
        alike = _close(given.lower(), lower, 1, _ALIKE)
        found = [lower[name] for name in alike]
    return f"; nearest is {dot + found[0]!r}" if found else ""


def near_name(given: str, known: Iterable[str]) -> str:
    """The end of a message about a name that nobody declared: a name that was misspelt, or the last
    one of a numbered range; "" where no name is near, for another register helps nobody.

    >>> near_name("%r9", ["%r0", "%r3", "%f1"]), near_name("acumulator", ["accumulator", "x"])
    ("; the last '%r' is '%r3'", "; nearest is 'accumulator'")
    >>> near_name("%f1", ["%r1", "%fd1"])
    ''
    """
    names = list(known)
    stem, number = _stem(given[:100])
    numbers = [int(own) for other, own in map(_stem, names) if other == stem and own]
    if number and numbers:
        return f"; the last {stem!r} is {f'{stem}{max(numbers)}'!r}"
    alike = {other: name for other, name in ((_stem(x)[0], x) for x in names) if other}
    if len(stem.lstrip("%$")) < 3:
        return ""
    found = _close(stem, alike, 1, _MISSPELT)
    return f"; nearest is {alike[found[0]]!r}" if found else ""


#: likeness of a name and of itself misspelt; digits of a register's number at its end
_MISSPELT = 0.8
_NUMBER = re.compile(r"(.*?)(\d{0,8})", re.DOTALL)


def _stem(name: str) -> tuple[str, str]:
    """A name without the number at its end, and the number."""
    match = _NUMBER.fullmatch(name)
    return (match[1], match[2]) if match else (name, "")


def nearest_opcode(given: str, legal: Iterable[str]) -> str:
    """The legal opcode that shares the most words with `given`, and of those the most alike.

    Of opcodes that differ in their shape alone it is the one with the nearest numbers.
    """
    given = given[:1000]
    words = set(given.split("."))
    ranked = sorted(legal, key=lambda text: -len(words.intersection(text.split("."))))
    best = nearest(given, ranked[:8])[0]
    wanted = _SHAPE.search(given)
    if wanted is None:
        return best
    same = [text for text in ranked if _SHAPE.sub("", text) == _SHAPE.sub("", best)]
    return min(same, key=lambda text: _distance(wanted[0], text))


_SHAPE = re.compile(r"(?<![a-z])m\d+n\d+(k\d+)?")


def _distance(shape: str, opcode: str) -> int:
    """By how much the numbers of a shape and of the shape in an opcode differ in all."""
    found = _SHAPE.search(opcode)
    pairs = zip(
        re.findall(r"\d+", shape), re.findall(r"\d+", found[0] if found else ""), strict=False
    )
    return sum(abs(int(x) - int(y)) for x, y in pairs)


def quoted(text: str, limit: int = 120) -> str:
    """`text` in quotes, its end left out where it is very long."""
    return repr(text if len(text) <= limit else f"{text[:limit]}…")


def shown(value: object, limit: int = 80) -> str:
    """A given value as Python writes it, cut off where it is very long."""
    try:
        text = repr(value)
    except Exception:  # an integer of too many digits, an object with a repr of its own
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else f"{text[:limit]}…"


def one_of(what: str, given: object, legal: Iterable[str]) -> str:
    """`given`, if it is one of some words; OperandError for anything else."""
    names = list(legal)
    if isinstance(given, str) and given in names:
        return given
    near = hint(given, names) if isinstance(given, str) else ""
    *most, last = map(repr, names)
    all_ = f"{', '.join(most)} or {last}" if 1 < len(names) < 4 else listing(names, 60)
    raise OperandError(f"{what} is {all_}; got {shown(given)}{near}")


def as_integer(given: object) -> int | None:
    """`given` as an int, if it is an integer of Python's or NumPy's; None for anything else, a bool
    and NumPy's durations, which are NumPy's integers too, among it."""
    # NumPy's bool_, which some versions warn about, goes by the same name.
    if type(given).__name__ != "bool":
        with contextlib.suppress(TypeError):
            return operator.index(given)  # type: ignore[arg-type]
    return None


def whole(what: str, given: object, least: int = 0, most: int | None = None) -> int:
    """`given`, if it is a whole number in a range; OperandError for anything else."""
    number = as_integer(given)
    if number is not None and least <= number and (most is None or number <= most):
        return number
    legal = f"{least} or more" if most is None else f"{least} … {most}"
    raise OperandError(f"{what} is {legal}; got {shown(given)}")


def needed(kind: type[T], given: object) -> T:
    """`given`, if it is of a class; OperandError for anything else."""
    if isinstance(given, kind):
        return given
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    raise OperandError(f"{article} {kind.__name__} is needed; got {shown(given)}")


def flag(what: str, given: object) -> bool:
    """`given` as a bool, if it is one, or 0 or 1; OperandError for anything else."""
    numpys = type(given).__name__ in ("bool", "bool_")  # NumPy itself is not needed here
    if numpys or (isinstance(given, int) and given in (0, 1)):
        return bool(given)
    raise OperandError(f"{what} is True or False; got {shown(given)}")


def listing(names: Iterable[object], limit: int = 12) -> str:
    """``a, b, c, … (30 in all)``: a list of legal things short enough for a message."""
    shown = [f"{name!s:.200}" for name in names]
    if len(shown) <= limit:
        return ", ".join(shown)
    return f"{', '.join(shown[:limit])}, … ({len(shown)} in all)"


def runs(numbers: Sequence[int]) -> str:
    """Numbers as runs of equal steps: ``0-3, 8-11``, ``8-256 by 8``.

    >>> runs((8, 16, 24, 32, 48, 64))
    '8-32 by 8, 48, 64'
    >>> runs((0, 1, 4, 5))
    '0-1, 4-5'
    """
    parts = []
    rest = list(numbers)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        length = 1
        while length < len(rest) and rest[length] - rest[length - 1] == step:
            length += 1
        if length == 1 or (length == 2 and step != 1):
            parts.append(str(rest.pop(0)))
            continue
        parts.append(f"{rest[0]}-{rest[length - 1]}" + (f" by {step}" if step != 1 else ""))
        rest = rest[length:]
    return ", ".join(parts)
