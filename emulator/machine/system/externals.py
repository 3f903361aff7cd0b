"""System around a kernel: functions that the system supplies to kernels, vprintf, __assertfail,
malloc and free; those of the device runtime are in `device_runtime`.

Each is called for one thread, with its arguments as integers, and knows of the thread what its
`Host` tells (CUDA C++ programming guide, "Formatted output", "Assertion", "Dynamic global memory
allocation").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

from emulator.machine.shared.failure import Failure
from emulator.machine.system.device_runtime import DEVICE_RUNTIME
from emulator.machine.system.host import Host

# --- printf ---------------------------------------------------------------------------------------

_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?:\.(?P<precision>\d*|\*))?"
    r"(?P<size>hh|h|ll|l|j|z|t)?(?P<kind>[diouxXeEfFgGaAcsp%])"
)
#: what the device counts arguments by (70 formats on an H200): it knows no ``.*``, hh, j, z and t
_COUNTED = re.compile(
    r"%%|%[-+ #0]*(?:\d+|(?P<star>\*))?(?:\.\d*)?(?:h|ll|l)?(?P<kind>[diouxXeEfFgGaAcsp])"
)
_EIGHT_BYTES = ("ll", "l", "j", "z", "t")
_NARROW = {"hh": 8, "h": 16}


class _Arguments:
    """The arguments behind the format: each at a multiple of its own size."""

    def __init__(self, host: Host, address: int, counted: int) -> None:
        self.host, self.address, self.offset, self.count = host, address, 0, 0
        #: those that the device knows of
        self.counted = counted

    def take(self, size: int) -> bytes:
        self.offset = -(-self.offset // size) * size
        raw = self.host.read(self.address + self.offset, size)
        self.offset += size
        self.count += 1
        return raw

    def integer(self, size: int = 4, *, signed: bool = True) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)


def vprintf(host: Host, arguments: Sequence[int]) -> int:
    """Formats a text as C's printf does; how many arguments the device counts.

    Those behind it are the program's here; an H200 prints whatever its memory holds there.
    """
    form = host.text(arguments[0])
    counted = sum(1 + bool(x["star"]) for x in _COUNTED.finditer(form) if x["kind"])
    given = _Arguments(host, arguments[1], counted)
    host.print(_SPECIFIER.sub(lambda match: _formatted(match, given), form))
    return counted


def _formatted(match: re.Match[str], given: _Arguments) -> str:
    flags, kind, size = match["flags"], match["kind"], match["size"] or ""
    if kind == "%":
        return "%"
    if match["precision"] == "*" and given.count >= given.counted:
        return match[0]  # as an H200 prints it
    width = given.integer() if match["width"] == "*" else int(match["width"] or 0)
    if width < 0:
        flags, width = flags + "-", -width
    precision: int | None = None
    if match["precision"] is not None:
        star = match["precision"] == "*"
        precision = given.integer() if star else int(match["precision"] or 0)
        precision = None if precision < 0 else precision
    text = _CONVERSIONS[kind](kind, flags, precision, size, given)
    if "-" in flags:
        return text.ljust(width)
    if "0" in flags and kind in "diouxXeEfFgGaA" and (precision is None or kind in "eEfFgGaA"):
        return _zero_filled(text, width)
    return text.rjust(width)


def _zero_filled(text: str, width: int) -> str:
    if text.strip("+- ").lower() in ("inf", "nan"):
        return text.rjust(width)
    head = re.match(r"[-+ ]?(0[xX])?", text)
    end = head.end() if head else 0
    return text[:end] + text[end:].rjust(width - end, "0")


def _integer(kind: str, flags: str, precision: int | None, size: str, given: _Arguments) -> str:
    signed = kind in "di"
    value = given.integer(8 if size in _EIGHT_BYTES else 4, signed=signed)
    if bits := _NARROW.get(size):
        value &= (1 << bits) - 1
        if signed and value >> bits - 1:
            value -= 1 << bits
    digits = format(abs(value), {"o": "o", "x": "x", "X": "X"}.get(kind, "d"))
    if precision is not None:
        digits = "" if precision == 0 and value == 0 else digits.rjust(precision, "0")
    if "#" in flags and value and kind in "xX":
        digits = f"0{kind}{digits}"
    if "#" in flags and kind == "o" and not digits.startswith("0"):
        digits = f"0{digits}"
    return _signed(digits, value < 0, flags if signed else "")


def _signed(digits: str, negative: bool, flags: str) -> str:
    return ("-" if negative else "+" if "+" in flags else " " if " " in flags else "") + digits


def _float(kind: str, flags: str, precision: int | None, size: str, given: _Arguments) -> str:
    (value,) = struct.unpack("<d", given.take(8))
    negative = bool(struct.unpack("<Q", struct.pack("<d", value))[0] >> 63)
    if value != value or value in (float("inf"), float("-inf")):
        name = "nan" if value != value else "inf"
        return _signed(name.upper() if kind.isupper() else name, negative, flags)
    alternate = "#" if "#" in flags else ""
    if kind in "aA":
        digits = _hexadecimal(abs(value), precision)
        digits = digits.upper() if kind == "A" else digits
    else:
        places = 6 if precision is None else precision
        digits = f"%{alternate}.{places}{kind}" % abs(value)
    return _signed(digits, negative, flags)


def _hexadecimal(value: float, precision: int | None) -> str:
    """``0x1.8p+0``: the shortest exact digits, or so many, rounded to nearest even."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    exponent, fraction = bits >> 52, bits & (1 << 52) - 1
    lead = 1 if exponent else 0
    power = exponent - 1023 if exponent else (-1022 if fraction else 0)
    if precision is not None and precision < 13:
        cut = 4 * (13 - precision)
        whole = (lead << 52) | fraction
        rest, half = whole & (1 << cut) - 1, 1 << cut - 1
        whole >>= cut
        whole += rest > half or (rest == half and whole & 1)
        lead, fraction = whole >> 4 * precision, whole & (1 << 4 * precision) - 1
        digits = format(fraction, f"0{precision}x") if precision else ""
    else:
        digits = format(fraction, "013x")
        digits = digits.rstrip("0") if precision is None else digits.ljust(precision, "0")
    return f"0x{lead}{'.' if digits else ''}{digits}p{power:+d}"


def _character(kind: str, flags: str, precision: int | None, size: str, given: _Arguments) -> str:
    return chr(given.integer() & 0xFF)


def _text(kind: str, flags: str, precision: int | None, size: str, given: _Arguments) -> str:
    address = given.integer(8, signed=False)
    return ("(null)" if address == 0 else given.host.text(address))[:precision]


def _pointer(kind: str, flags: str, precision: int | None, size: str, given: _Arguments) -> str:
    address = given.integer(8, signed=False)
    return f"{address:#x}" if address else "(nil)"


_CONVERSIONS: dict[str, Callable[[str, str, int | None, str, _Arguments], str]] = {
    **dict.fromkeys("diouxX", _integer),
    **dict.fromkeys("eEfFgGaA", _float),
    "c": _character,
    "s": _text,
    "p": _pointer,
}


# --- the others -----------------------------------------------------------------------------------


def assertion_failed(host: Host, arguments: Sequence[int]) -> int:
    message, file, line, function = arguments[:4]
    raise Failure(
        "assertion",
        f"{host.text(file)}:{line}: {host.text(function)}: assertion `{host.text(message)}` failed",
    )


def allocate(host: Host, arguments: Sequence[int]) -> int:
    return host.heap.allocate(arguments[0])


def release(host: Host, arguments: Sequence[int]) -> int:
    if arguments[0]:
        host.heap.free(arguments[0])
    return 0


#: name -> the function; what it gives goes to the results that the call names, if any
EXTERNALS: dict[str, Callable[[Host, Sequence[int]], int]] = {
    "vprintf": vprintf,
    "__assertfail": assertion_failed,
    "malloc": allocate,
    "free": release,
    **DEVICE_RUNTIME,
}
