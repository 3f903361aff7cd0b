"""Files that a user names, opened to be read: what has no end, or waits for a writer, is refused.

Every place that reads a path of the user reads it through here.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from emulator.errors import OperandError, quoted

#: bytes that a text may have; a parsed one takes many times its size
TEXT_LIMIT = 1 << 28
#: what is no regular file, and why it is not read
_OTHERS = {
    stat.S_IFDIR: "Is a directory",
    stat.S_IFIFO: "it is a pipe, not a file: write its content to a file",
    stat.S_IFCHR: "it is a device, not a file",
    stat.S_IFBLK: "it is a device, not a file",
    stat.S_IFSOCK: "it is a socket, not a file",
}


@contextmanager
def opened(file: str | Path, limit: int | None = None) -> Iterator[IO[bytes]]:
    """A regular file to read; raises as `check_regular`, and where reading fails."""
    check_regular(file, limit)
    try:
        with Path(file).open("rb") as stream:
            yield stream
    except OSError as error:
        raise OperandError(f"cannot read {quoted(str(file))}: {reason(error)}") from None


def check_regular(file: str | Path, limit: int | None = None) -> None:
    """Raises OperandError for what is no regular file, or has more bytes than `limit`."""
    shown = quoted(str(file))
    try:
        status = Path(file).stat()
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise OperandError(f"cannot read {shown}: {reason(error)}") from None
    if not stat.S_ISREG(status.st_mode):
        why = _OTHERS.get(stat.S_IFMT(status.st_mode), "it is not a regular file")
        raise OperandError(f"cannot read {shown}: {why}")
    if limit is not None and status.st_size > limit:
        raise _too_long(shown, limit)


def read_bytes(file: str | Path, limit: int = TEXT_LIMIT) -> bytes:
    """All bytes of a regular file; raises as `check_regular`."""
    with opened(file, limit) as stream:
        content = stream.read(limit + 1)  # files of the system say that they have no byte
    if len(content) > limit:
        raise _too_long(quoted(str(file)), limit)
    return content


def read_standard_input(limit: int = TEXT_LIMIT) -> str:
    """The text of standard input; raises OperandError where it is closed, or longer."""
    if sys.stdin is None:
        raise OperandError("standard input is closed")
    text = sys.stdin.read(limit + 1)
    if len(text) > limit:
        raise _too_long("standard input", limit)
    return text


def _too_long(shown: str, limit: int) -> OperandError:
    return OperandError(f"cannot read {shown}: it has more than {limit:,} bytes")


def reason(error: Exception) -> object:
    """The system's text for an error."""
    return (error.strerror if isinstance(error, OSError) else None) or error
