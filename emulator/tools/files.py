"""Files that the tools are given and that they write: .npz archives of arrays, texts, pages."""

from __future__ import annotations

import io
import math
import os
import re
import stat
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np

from dtypes import Array
from emulator.errors import EmulatorError, OperandError, quoted
from emulator.reading import opened, read_bytes, read_standard_input, reason

#: bytes that the arrays of one file may have together: a small .npz expands to any size
LIMIT = 1 << 30
#: zip entries carry a time; a fixed one gives equal files for equal arrays
_TIME = (1980, 1, 1, 0, 0, 0)

#: what numpy.savez and numpy.savez_compressed write
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

# --- reading --------------------------------------------------------------------------------------


def read_text(file: str) -> str:
    """The text of a file ("-": standard input); raises OperandError where it cannot be read."""
    try:
        return read_standard_input() if file == "-" else read_bytes(file).decode("utf-8")
    except UnicodeDecodeError:
        raise OperandError(f"{quoted(file)} is not text; PTX is needed, not a cubin") from None


def read_npz(
    file: str | Path, limit: int = LIMIT, check_name: Callable[[str], object] | None = None
) -> dict[str, Array]:
    """The arrays of an .npz file, in the byte order of this machine.

    The names are read first, of which `check_name` raises for one that is not legal, then the
    headers: OperandError for a file that is none, is damaged or encrypted, holds Python objects, a
    name twice, or whose arrays have more than `limit` bytes together.
    """
    shown = quoted(str(file))
    with _opened(file, ".npz file of arrays (numpy.savez writes them)") as stream:
        if stream.read(6) == b"\x93NUMPY":
            raise OperandError(
                f"{shown} is one array, an .npy file; numpy.savez('x.npz', A=…) names several"
            )
        with zipfile.ZipFile(stream) as archive:
            members = _members(archive, shown, check_name)
            _check_members(archive, members, shown, limit)
            return {name: _array(archive, member) for name, member in members.items()}


def read_array(file: str | Path, limit: int = LIMIT) -> Array:
    """The array of an .npy file; OperandError for a file that is none, or has more bytes."""
    shown = quoted(str(file))
    with _opened(file, ".npy file of an array, as numpy.save writes") as stream:
        size, has_objects = _declared(stream)
        if has_objects:
            raise OperandError(f"{shown} holds Python objects; save numbers, of a NumPy type")
        if size > limit:
            raise OperandError(f"{shown} has {size:,} bytes, more than {limit:,}")
        stream.seek(0)
        return _read(stream)


@contextmanager
def _opened(file: str | Path, what: str) -> Iterator[IO[bytes]]:
    """A file to read; raises OperandError where it cannot be read, or is no `what`."""
    shown = quoted(str(file))
    try:
        with opened(file) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of headers that old versions wrote
            yield stream
    except OperandError:
        raise
    except Exception:  # whatever zipfile, zlib and NumPy raise for bytes that are forged
        raise OperandError(f"{shown} is no {what}") from None


def _read(stream: IO[bytes]) -> Array:
    array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _members(
    archive: zipfile.ZipFile, shown: str, check_name: Callable[[str], object] | None
) -> dict[str, zipfile.ZipInfo]:
    """The members of an archive by the names of their arrays."""
    out: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if check_name is not None:
            check_name(name)
        if name in out:
            raise OperandError(f"{shown} has an array {quoted(name)} twice")
        out[name] = member
    return out


def _check_members(
    archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], shown: str, limit: int
) -> None:
    total = 0
    for plain, member in members.items():
        name = quoted(plain)
        if member.flag_bits & 1:
            raise OperandError(f"array {name} of {shown} is encrypted")
        if member.compress_type not in _METHODS:
            raise ValueError("a way of compression that may take any amount of memory")
        with archive.open(member) as stream:
            size, has_objects = _declared(stream)
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


def _declared(stream: IO[bytes]) -> tuple[int, bool]:
    """Bytes of the array that a header announces, and whether its elements are objects."""
    version = np.lib.format.read_magic(stream)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(stream)
    if any(size < 0 for size in shape):
        raise ValueError("a negative size")
    return math.prod(shape) * dtype.itemsize, dtype.hasobject


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as stream:
        return _read(stream)


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
        target, mode = Path(file), _mode(file)
        if mode is not None and not stat.S_ISREG(mode):  # a device or a pipe, or no file at all
            with target.open("wb") as out:
                yield out
            return
        target = target.resolve()
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as out:
                yield out
            Path(temporary).chmod(0o644 if mode is None else mode & 0o777)
            Path(temporary).replace(target)
        finally:
            with suppress(FileNotFoundError):
                Path(temporary).unlink()
    except EmulatorError:
        raise
    except (OSError, ValueError) as error:
        raise OperandError(f"cannot write {quoted(str(file))}: {reason(error)}") from None


def _mode(file: str | Path) -> int | None:
    """Kind and rights of a file; None where there is none, OSError for a loop of links."""
    with suppress(FileNotFoundError):
        return Path(file).stat().st_mode
    return None


@contextmanager
def replacing_all(files: Iterable[str]) -> Iterator[list[IO[bytes]]]:
    """`replacing` for several files: where one of them cannot be written, none is replaced."""
    with ExitStack() as stack:
        out = [stack.enter_context(replacing(file)) for file in files]
        yield out
        for written, file in zip(out, files, strict=True):
            try:
                written.flush()  # a full disk shows here, before the first is replaced
            except OSError as error:
                raise OperandError(f"cannot write {quoted(file)}: {reason(error)}") from None


def check_outputs(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Raises OperandError for an output that is an input, too, or is named twice. None, ""
    and "-" name no file, and a device is not replaced."""
    taken = {key: "is read, too" for file in inputs if (key := _identity(file)) is not None}
    for file in outputs:
        if (key := _identity(file)) is None:
            continue
        if key in taken:
            raise OperandError(f"{quoted(str(file))} {taken[key]}; name another file to write")
        taken[key] = "is written twice"


def _identity(file: str | None) -> object:
    """Equal for the names of one file; None for what is no file that can be replaced."""
    if not file or file == "-":
        return None
    try:
        found = Path(file).stat()
    except (OSError, ValueError):  # not there, or told when it is opened
        return os.path.realpath(file) if "\0" not in file else None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


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
