"""Words of a command line: numbers, sizes and lists as people write them in a shell."""

from __future__ import annotations

import re

from emulator.errors import OperandError, listing, quoted
from emulator.layout.addressing import SWIZZLES

#: help of --idesc
IDESC = "instruction descriptor of a tcgen05.mma, such as 0x8400490"
_COUNTS = ("one", "two", "three", "four", "five")


def whole_number(what: str, text: str) -> int:
    """The number in decimal, 0x or 0b; raises OperandError for any other text."""
    try:
        return int(text, 0)
    except ValueError:
        raise OperandError(f"{what} is a whole number; got {quoted(text, 80)}") from None


def instruction_word(idesc: str | None) -> int | None:
    """The word that --idesc gives. Raises OperandError for what is no word."""
    return None if idesc is None else whole_number("--idesc, a word such as 0x8400490,", idesc)


def sizes(option: str, text: str, most: int = 3, least: int = 1) -> tuple[int, ...]:
    """``8,8`` or ``8x8``: from `least` (1, or both are 2) to `most` numbers; OperandError for any
    other text."""
    parts = re.split("[,x]", text)
    if not least <= len(parts) <= most or not all(re.fullmatch("[0-9]{1,10}", x) for x in parts):
        form = "two numbers such as 8x8"
        if least == 1:
            form = f"one to {_COUNTS[most - 1]} numbers such as 8,8"
        raise OperandError(f"{option} is {form}; got {quoted(text)}")
    return tuple(map(int, parts))


def separated(text: str) -> list[str]:
    """The words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def swizzle_width(text: str, what: str = "swizzle") -> int:
    """Bytes of ``none``, ``128B`` or ``128``; raises OperandError for what is no swizzle."""
    plain = text.lower().removesuffix("b")
    width = 0 if plain in ("none", "0") else whole_number(f"{what} (none, 32B, 64B, 128B)", plain)
    if width not in SWIZZLES:
        names = {x: f"{x}B" if x else "none" for x in sorted(SWIZZLES)}
        raise OperandError(
            f"{what} is {listing(names.values())}, in bytes whatever its code; got "
            f"{quoted(text, 80)}; nearest is {names[min(names, key=lambda x: abs(x - width))]}"
        )
    return width
