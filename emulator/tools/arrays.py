"""Arrays out of the files that commands are given."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dtypes import Array
from emulator.errors import OperandError


def read_npz(file: str) -> dict[str, Array]:
    """The arrays of an .npz file; raises OperandError for a file that is none."""
    try:
        # NumPy leaves a file open that it opened itself and cannot read.
        with Path(file).open("rb") as opened:
            loaded = np.load(opened)
            if isinstance(loaded, np.ndarray):
                raise OperandError(
                    f"{file!r} is one array, an .npy file; numpy.savez('x.npz', A=…) names several"
                )
            with loaded as arrays:
                return {name: _read(file, name, arrays) for name in arrays}
    except OperandError:
        raise
    except OSError as error:
        raise OperandError(f"cannot read {file!r}: {error.strerror or error}") from None
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error):
        raise OperandError(
            f"{file!r} is no .npz file of arrays (numpy.savez writes them)"
        ) from None


def _read(file: str, name: str, arrays: Mapping[str, Array]) -> Array:
    try:
        return arrays[name]
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise OperandError(
            f"array {name!r} of {file!r} holds Python objects; save numbers, of a NumPy type"
        ) from None


def unnamed(name: str) -> str:
    """The end of a message about an array that numpy.savez had to name itself; else ""."""
    if not re.fullmatch(r"arr_\d+", name):
        return ""
    return "; numpy.savez calls it so where it is given no name: numpy.savez('x.npz', A=…)"
