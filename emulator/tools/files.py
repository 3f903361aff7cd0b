"""Files that the tools are given and that they write: .npz archives of arrays, texts, pages."""

from __future__ import annotations

import io
import math
import os
import re
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from dtypes import Array
from emulator.errors import EmulatorError, OperandError, quoted

#: bytes that the arrays of one file may have together: a small .npz expands to any size
LIMIT = 1 << 30
#: zip entries carry a time; a fixed one gives equal files for equal arrays
_TIME = (1980, 1, 1, 0, 0, 0)

#: what numpy.savez and numpy.savez_compressed write
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

# --- reading --------------------------------------------------------------------------------------


def read_text(file: str) -> str:
    """The text of a file ("-": standard input); raises OperandError where it cannot be read."""
    if file == "-" and sys.stdin is None:
        raise OperandError("standard input is closed")
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise OperandError(f"{quoted(file)} is not text; PTX is needed, not a cubin") from None
    except (OSError, ValueError) as error:
        raise OperandError(f"cannot read {quoted(file)}: {_reason(error)}") from None


def read_npz(file: str | Path, limit: int = LIMIT) -> dict[str, Array]:
    """The arrays of an .npz file, in the byte order of this machine.

    The headers are read first: OperandError for a file that is none, is damaged or encrypted, holds
    Python objects, or whose arrays have more than `limit` bytes together.
    """
    shown = quoted(str(file))
    with _opened(file, ".npz file of arrays (numpy.savez writes them)") as opened:
        if opened.read(6) == b"\x93NUMPY":
            raise OperandError(
                f"{shown} is one array, an .npy file; numpy.savez('x.npz', A=…) names several"
            )
        with zipfile.ZipFile(opened) as archive:
            _check_members(archive, shown, limit)
            return {x.filename.removesuffix(".npy"): _array(archive, x)
                    for x in archive.infolist()}  # fmt: skip


def read_array(file: str | Path, limit: int = LIMIT) -> Array:
    """The array of an .npy file; OperandError for a file that is none, or has more bytes."""
    shown = quoted(str(file))
    with _opened(file, ".npy file of an array, as numpy.save writes") as opened:
        size, has_objects = _declared(opened)
        if has_objects:
            raise OperandError(f"{shown} holds Python objects; save numbers, of a NumPy type")
        if size > limit:
            raise OperandError(f"{shown} has {size:,} bytes, more than {limit:,}")
        opened.seek(0)
        return _read(opened)


@contextmanager
def _opened(file: str | Path, what: str) -> Iterator[IO[bytes]]:
    """A file to read; raises OperandError where it cannot be read, or is no `what`."""
    shown = quoted(str(file))
    try:
        with Path(file).open("rb") as opened, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of headers that old versions wrote
            yield opened
    except OperandError:
        raise
    except OSError as error:
        raise OperandError(f"cannot read {shown}: {_reason(error)}") from None
    except Exception:  # whatever zipfile, zlib and NumPy raise for bytes that are forged
        raise OperandError(f"{shown} is no {what}") from None


def _read(opened: IO[bytes]) -> Array:
    array: Array = np.lib.format.read_array(opened, allow_pickle=False)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_members(archive: zipfile.ZipFile, shown: str, limit: int) -> None:
    total = 0
    for member in archive.infolist():
        name = quoted(member.filename.removesuffix(".npy"))
        if member.flag_bits & 1:
            raise OperandError(f"array {name} of {shown} is encrypted")
        if member.compress_type not in _METHODS:
            raise ValueError("a way of compression that may take any amount of memory")
        with archive.open(member) as opened:
            size, has_objects = _declared(opened)
        if has_objects:
            raise OperandError(
                f"array {name} of {shown} holds Python objects; save numbers, of a NumPy type"
            )
        total += max(size, member.file_size)
        if total > limit:
            raise OperandError(
                f"the arrays of {shown} have more than {limit:,} bytes together: up to {name} they "
                f"take {total:,}"
            )
        if size > member.file_size:
            raise ValueError("a header that announces more than there is")


def _declared(opened: IO[bytes]) -> tuple[int, bool]:
    """Bytes of the array that a header announces, and whether its elements are objects."""
    version = np.lib.format.read_magic(opened)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(opened)
    if any(size < 0 for size in shape):
        raise ValueError("a negative size")
    return math.prod(shape) * dtype.itemsize, dtype.hasobject


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as opened:
        return _read(opened)


def unnamed(name: str) -> str:
    """The end of a message about an array that numpy.savez had to name itself; else ""."""
    if not re.fullmatch(r"arr_\d+", name):
        return ""
    return "; numpy.savez calls it so where it is given no name: numpy.savez('x.npz', A=…)"


# --- writing --------------------------------------------------------------------------------------


@contextmanager
def replacing(file: str | Path) -> Iterator[IO[bytes]]:
    """A binary file to write, which takes the place of `file` once it is whole.

    Raises OperandError where it cannot be written; what stood there before is then as it was.
    """
    try:
        target = Path(file)
        if target.exists() and not target.is_file():  # a device or a pipe, or no file at all
            with target.open("wb") as out:
                yield out
            return
        target = target.resolve()
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as out:
                yield out
            Path(temporary).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644)
            Path(temporary).replace(target)
        finally:
            with suppress(FileNotFoundError):
                Path(temporary).unlink()
    except EmulatorError:
        raise
    except (OSError, ValueError) as error:
        raise OperandError(f"cannot write {quoted(str(file))}: {_reason(error)}") from None


def write_text(file: str, text: str) -> None:
    """Writes a text as UTF-8; raises as `replacing`."""
    with replacing(file) as out:
        out.write(text.encode())


def write_npz(file: str | Path, arrays: Mapping[str, Array]) -> None:
    """Writes arrays of any names, compressed and without pickles; raises as `replacing`."""
    with replacing(file) as out, zipfile.ZipFile(out, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asarray(array), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", _TIME)
            archive.writestr(entry, content.getvalue(), zipfile.ZIP_DEFLATED)


def _reason(error: Exception) -> Any:
    return (error.strerror if isinstance(error, OSError) else None) or error
