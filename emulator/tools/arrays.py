"""Arrays out of the files that commands are given."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from dtypes import Array
from emulator.errors import OperandError


def read_npz(file: str) -> dict[str, Array]:
    """The arrays of an .npz file; raises OperandError for a file that is none."""
    try:
        # NumPy leaves a file open that it opened itself and cannot read.
        with Path(file).open("rb") as opened, np.load(opened) as arrays:
            return dict(arrays.items())
    except OSError as error:
        raise OperandError(f"cannot read {file!r}: {error.strerror or error}") from None
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error):
        raise OperandError(
            f"{file!r} is no .npz file of arrays (numpy.savez writes them)"
        ) from None
