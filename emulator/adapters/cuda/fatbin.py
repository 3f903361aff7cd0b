"""PTX inside of fat binaries, as nvcc embeds them: plain, in LZ4 blocks, or as zstd frames."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from emulator.errors import UnsupportedError

#: the first bytes of a fat binary, and of the structure in a program that points to it
MAGIC, WRAPPER = 0xBA55ED50, 0x466243B1
_PTX = 1
_ZSTD, _LZ4 = 0x8000, 0x2000
_LARGEST = 1 << 30


class Text(NamedTuple):
    """PTX, and the number of the architecture that it was compiled for."""

    architecture: int
    ptx: str


class NoPtx(UnsupportedError):
    """The image has machine code, or nothing, but no PTX."""


def size_of(head: bytes) -> int:
    """Bytes of the fat binary that begins with these 16."""
    _, _, header, body = struct.unpack_from("<IHHQ", head)
    return int(header + body)


def texts(image: bytes, number: int) -> Iterator[Text]:
    """The PTX texts of a fat binary for architectures up to a number."""
    magic, _, header, _ = struct.unpack_from("<IHHQ", image)
    if magic != MAGIC:
        raise UnsupportedError("not a fat binary")
    at, end = header, min(len(image), size_of(image))
    while at + 64 <= end:
        kind, _, head, padded = struct.unpack_from("<HHIQ", image, at)
        (packed,) = struct.unpack_from("<I", image, at + 16)
        (architecture,) = struct.unpack_from("<I", image, at + 28)
        (flags,) = struct.unpack_from("<Q", image, at + 40)
        (full,) = struct.unpack_from("<Q", image, at + 56)
        if kind == _PTX and architecture <= number and full <= _LARGEST:
            body = image[at + head : at + head + padded]
            if flags & _ZSTD:
                body = _unpack_zstd(body[:packed], full)
            elif flags & _LZ4:
                body = unpack_lz4(body[:packed], full)
            yield Text(architecture, body.split(b"\0")[0].decode("utf-8", "replace"))
        if head + padded == 0:
            return
        at += head + padded


def newest(image: bytes, number: int) -> str:
    """The PTX for the newest architecture that is not newer than the GPU's.

    Raises NoPtx where there is none.
    """
    found = newest_or_none(image, number)
    if found is None:
        raise NoPtx(
            "the program has no PTX for this GPU, only machine code or PTX for newer ones; build "
            "it with PTX (nvcc -gencode arch=compute_90,code=compute_90)"
        )
    return found


def newest_or_none(image: bytes, number: int) -> str | None:
    """As `newest`; None where there is none."""
    found = max(texts(image, number), key=lambda text: text.architecture, default=None)
    return found.ptx if found else None


def _unpack_zstd(data: bytes, size: int) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise UnsupportedError(
            "the program's PTX is compressed with zstd: pip install zstandard, or build it with "
            "nvcc -Xfatbin -compress-mode=speed"
        ) from None
    return bytes(zstandard.ZstdDecompressor().decompress(data, max_output_size=size))


def unpack_lz4(data: bytes, size: int) -> bytes:
    """One LZ4 block of `size` bytes when unpacked; raises UnsupportedError for a broken one."""
    out = bytearray()
    at = 0

    def length(short: int) -> int:
        nonlocal at
        total = short
        while short == 15:
            more = data[at]
            at += 1
            total += more
            if more != 255:
                break
        return total

    try:
        while len(out) < size:
            token = data[at]
            at += 1
            literal = length(token >> 4)
            out += data[at : at + literal]
            at += literal
            if len(out) >= size:
                break
            (back,) = struct.unpack_from("<H", data, at)
            at += 2
            count = length(token & 15) + 4
            if not 0 < back <= len(out):
                raise UnsupportedError("broken LZ4 block in a fat binary")
            # A match may overlap what it makes: it repeats then.
            start = len(out) - back
            piece = bytes(out[start : start + count])
            out += (piece * -(-count // len(piece)))[:count]
    except (IndexError, struct.error):
        raise UnsupportedError("broken LZ4 block in a fat binary") from None
    return bytes(out)
