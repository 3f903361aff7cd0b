"""Numbers of descriptors as people write them in a shell."""

from __future__ import annotations

from emulator.errors import OperandError, listing, quoted
from emulator.layout.addressing import SWIZZLE_UNITS
from emulator.layout.tile import LINE_BYTES


def whole_number(what: str, text: str) -> int:
    """The number in decimal, 0x or 0b; raises OperandError for any other text."""
    try:
        return int(text, 0)
    except ValueError:
        raise OperandError(f"{what} is a whole number; got {quoted(text, 80)}") from None


def swizzle_width(text: str, what: str = "swizzle") -> int:
    """Bytes of ``none``, ``128B`` or ``128``; raises OperandError for what is no swizzle."""
    plain = text.lower().removesuffix("b")
    width = 0 if plain in ("none", "0") else whole_number(f"{what} (none, 32B, 64B, 128B)", plain)
    widths = sorted(LINE_BYTES * w if w > 1 else 0 for w in SWIZZLE_UNITS.values())
    if width not in widths:
        names = [f"{x}B" if x else "none" for x in widths]
        raise OperandError(
            f"{what} is {listing(names)}, in bytes whatever its code; got {quoted(text, 80)}; "
            f"nearest is {names[widths.index(min(widths, key=lambda x: abs(x - width)))]}"
        )
    return width
