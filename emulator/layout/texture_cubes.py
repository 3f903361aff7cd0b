"""Directions into a cube of six faces: which face a direction leads to, and where on it.

ptxas divides the three coordinates by the largest magnitude, with the reciprocal of the special
function unit; the texture unit takes the quotients. Found in recordings of an H200, with which it
agrees (tests/golden/h200_texture_forms.jsonl.gz).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array

Integers = NDArray[np.int64]

#: bits of a place's fraction from 0 to 1
PLACE_BITS = 31


class OnFace(NamedTuple):
    """The face, +x -x +y -y +z -z, and places along it from 0 to 1 in 2**-31."""

    face: Integers
    s: Integers
    t: Integers


def on_face(quotients: Sequence[Array]) -> OnFace:
    """Where directions ``f32 (lanes,)`` along x, y and z, of which the largest is 1, lead to."""
    values = np.stack([q.astype(np.float64) for q in quotients])
    missing = np.isnan(values)
    sizes = np.where(missing, -1.0, np.abs(values))
    x, y, z = values = np.where(missing, 0.0, values)
    largest = sizes.max(axis=0)
    axis = np.where(sizes[2] == largest, 2, np.where(sizes[1] == largest, 1, 0))
    negative = values[axis, np.arange(len(x))] < 0
    s = np.where(axis == 0, np.where(negative, z, -z), np.where((axis == 2) & negative, -x, x))
    t = np.where(axis == 1, np.where(negative, -z, z), -y)
    return OnFace(2 * axis + negative, _fixed(s), _fixed(t))


def _fixed(values: NDArray[np.float64]) -> Integers:
    """Places from -1 to 1 as places from 0 to 1."""
    half = 1 << PLACE_BITS - 1
    held = np.where(np.abs(values) < 2.0**-126, 0.0, np.clip(values, -1.0, 1.0))
    return np.floor(held * half).astype(np.int64) + half
