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
from emulator.layout.texture_axes import PLACE_BITS

Integers = NDArray[np.int64]


class OnFace(NamedTuple):
    """The face, +x -x +y -y +z -z, and places along it from 0 to 1 in 2**-31."""

    face: Integers
    s: Integers
    t: Integers


def on_face(quotients: Sequence[Array]) -> OnFace:
    """Where directions ``f32 (lanes,)`` along x, y and z, of which the largest is 1, lead to."""
    axis, sign, (x, y, z) = main_axis(quotients)
    s, t = _along(axis, sign < 0, x, y, z)
    return OnFace(2 * axis + (sign < 0), _fixed(s), _fixed(t))


def main_axis(quotients: Sequence[Array]) -> tuple[Integers, Integers, NDArray[np.float64]]:
    """The axis whose face directions lead to, the sign of the face, and the parts of directions
    ``(3, lanes)``, 0 for NaN."""
    values = np.stack([q.astype(np.float64) for q in quotients])
    missing = np.isnan(values)
    sizes = np.where(missing, -1.0, np.abs(values))
    values = np.where(missing, 0.0, values)
    largest = sizes.max(axis=0)
    axis = np.where(sizes[2] == largest, 2, np.where(sizes[1] == largest, 1, 0))
    return axis, np.where(values[axis, np.arange(len(axis))] < 0, -1, 1), values


def across(face: Integers, s: Integers, t: Integers, size: int) -> OnFace:
    """The texels that stand for texels of a face, where those beyond one edge lie on the next face.
    Beyond two edges there is none, and the result is any."""
    axis, negative, lanes = face // 2, face % 2 == 1, np.arange(len(face))
    s, t = 2 * s + 1 - size, 2 * t + 1 - size
    major = np.where(negative, -size, size)
    x = np.where(axis == 0, major, np.where((axis == 2) & negative, -s, s))
    y = np.where(axis == 1, np.where(negative, -size, size), -t)
    z = np.where(axis == 2, major, np.where((axis == 0) != negative, -s, s))
    z = np.where(axis == 1, np.where(negative, -t, t), z)
    places = np.stack([x, y, z])
    beyond = np.abs(places).argmax(axis=0)
    folded = beyond != axis
    places[axis, lanes] -= np.where(folded, np.sign(major), 0)
    places[beyond, lanes] = np.sign(places[beyond, lanes]) * size
    negative = places[beyond, lanes] < 0
    s, t = _along(beyond, negative, *places)
    return OnFace(2 * beyond + negative, *((x + size - 1) // 2 for x in (s, t)))


def _along(axis: Array, negative: Array, x: Array, y: Array, z: Array) -> tuple[Array, Array]:
    """The places along a face of an axis, of places in the cube."""
    s = np.where(axis == 0, np.where(negative, z, -z), np.where((axis == 2) & negative, -x, x))
    return s, np.where(axis == 1, np.where(negative, -z, z), -y)


def _fixed(values: NDArray[np.float64]) -> Integers:
    """Places from -1 to 1 as places from 0 to 1."""
    half = 1 << PLACE_BITS - 1
    held = np.where(np.abs(values) < 2.0**-126, 0.0, np.clip(values, -1.0, 1.0))
    return np.floor(held * half).astype(np.int64) + half
