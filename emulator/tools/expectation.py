"""``--expect``: an array that a launch has written, compared with one from a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, quoted
from emulator.tools.files import read_array
from emulator.tools.testing.difference import Differences, find_differences
from emulator.tools.testing.difference_kinds import KINDS, ulps

_WORD = re.compile(r"(?:(\d{1,4}):)?(.*?\.npy)(?::ulps=(\d{1,19}))?")


class Expectation(NamedTuple):
    """The contents that an argument must have after the launch."""

    text: str
    expected: Array
    #: the argument; None: the one that fits
    argument: int | None
    #: largest distance of an element, in ulps
    allowed: int


def expectation(text: str) -> Expectation:
    """Reads one word of ``--expect``: ``[N:]REF.npy[:ulps=K]``."""
    found = _WORD.fullmatch(text)
    if found is None:
        raise OperandError(
            f"--expect is REF.npy, N:REF.npy for argument N, or REF.npy:ulps=K; got {quoted(text)}"
        )
    index = None if found[1] is None else int(found[1])
    return Expectation(text, read_array(found[2]), index, int(found[3] or 0))


def differences(
    wanted: Expectation, arrays: Sequence[Array | None], changed: Sequence[bool]
) -> Differences | None:
    """Compares an argument with its expectation; None where every element is near enough.

    Elements are equal bit for bit, or at most `allowed` ulps apart; a NaN equals only the same NaN.
    """
    index = _which(wanted, arrays, changed)
    actual, expected = arrays[index], wanted.expected
    assert actual is not None
    if expected.dtype.kind == "V" and expected.dtype.itemsize == actual.dtype.itemsize:
        expected = expected.view(actual.dtype)  # so NumPy keeps the types of ml_dtypes
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        raise OperandError(
            f"--expect {quoted(wanted.text)} is {expected.dtype} {expected.shape}; argument "
            f"{index} is {actual.dtype} {actual.shape}"
        )
    found = find_differences(actual, expected, name=f"argument {index}")
    if found is None or not wanted.allowed:
        return found
    if found.fmt is None:
        raise OperandError(f"--expect: ulps are of numbers; argument {index} is {actual.dtype}")
    is_nan = np.array(["NaN" in kind for kind in KINDS])[found.kinds]
    near = ulps(found.fmt, found.actual, found.expected) <= wanted.allowed
    left = np.where(near & ~is_nan, 0, found.kinds).astype(found.kinds.dtype)
    return replace(found, kinds=left) if left.any() else None


def _which(wanted: Expectation, arrays: Sequence[Array | None], changed: Sequence[bool]) -> int:
    """The argument that is meant: the one named, or the only one that fits."""
    fitting = [
        i
        for i, array in enumerate(arrays)
        if array is not None
        and array.shape == wanted.expected.shape
        and array.dtype.itemsize == wanted.expected.dtype.itemsize
    ]
    if wanted.argument is not None:
        if not (wanted.argument < len(arrays) and arrays[wanted.argument] is not None):
            raise OperandError(
                f"--expect {quoted(wanted.text)}: argument {wanted.argument} is no array"
            )
        return wanted.argument
    if len(fitting) > 1:
        fitting = [i for i in fitting if changed[i]] or fitting
    if len(fitting) != 1:
        which = "none" if not fitting else f"arguments {', '.join(map(str, fitting))}"
        raise OperandError(
            f"--expect {quoted(wanted.text)}: {which} have its shape {wanted.expected.shape} and "
            "size of elements; N:REF.npy names argument N"
        )
    return fitting[0]
