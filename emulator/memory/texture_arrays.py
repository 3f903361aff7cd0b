"""The arrays of textures and surfaces: what shapes they have, and the codes of their texels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith import texels
from emulator.errors import OperandError, listing, shown


def axes_of(
    array: Any, name: str, channels: int, layered: bool, cube: bool = False
) -> tuple[int, ...]:
    """The axes of an array of texels, besides that of their channels. `name` is the class that
    takes it. Raises OperandError for what is no such array."""
    held = array if isinstance(array, np.ndarray) else None
    if held is None or str(held.dtype) not in texels.FORMATS:
        legal = listing(texels.FORMATS)
        got = held.dtype if held is not None else type(array).__name__
        raise OperandError(f"a {name} takes a NumPy array of {legal}; got {got}")
    if channels not in (1, 2, 4):
        raise OperandError(f"a texel has 1, 2 or 4 channels; got {shown(channels)}")
    axes: tuple[int, ...] = held.shape if channels == 1 else held.shape[:-1]
    last = f", then {channels} channels" if channels > 1 else ""
    rank = len(axes) - layered
    wrong = 0 in held.shape or (channels > 1 and held.shape[-1:] != (channels,))
    if cube:
        if wrong or rank != 3 or axes[-3] != 6 or axes[-1] != axes[-2]:
            what = "layers, then 6" if layered else "6"
            raise OperandError(f"a cube has {what} square faces{last}; the array is {held.shape}")
    elif wrong or rank not in ((1, 2) if layered else (1, 2, 3)):
        what = "layers, then one or two axes" if layered else "one to three axes"
        raise OperandError(f"a {name} has {what}{last}, none empty; the array is {held.shape}")
    return axes


def texels_of(array: Any, channels: int, layered: bool, cube: bool) -> tuple[Array, str]:
    """Codes ``(depth or layers, height, width, channels)`` of a texture, and its geometry."""
    axes = axes_of(array, "Texture", channels, layered, cube)
    codes = np.array(array, order="C").view(f"u{array.itemsize}")
    if cube:
        return codes.reshape(-1, *axes[-2:], channels), "acube" if layered else "cube"
    rank = len(axes) - layered
    full = (axes[0], *(1,) * (2 - rank), *axes[1:]) if layered else (*(1,) * (3 - rank), *axes)
    return codes.reshape(*full, channels), f"a{rank}d" if layered else f"{rank}d"


def mipmaps_of(
    first: Array, mipmaps: Sequence[Any], format_: texels.TexelFormat, geometry: str
) -> list[Array]:
    """The codes of further levels. Raises OperandError where one has another size or dtype."""
    out = []
    deep, *plane, channels = first.shape
    for k, array in enumerate(mipmaps, 1):
        height, width = (max(1, n >> k) for n in plane)
        depth = max(1, deep >> k) if geometry == "3d" else deep
        needed = (depth, height, width, channels)
        held = np.asarray(array)
        if held.dtype != format_.dtype or held.size != np.prod(needed):
            raise OperandError(
                f"level {k} has {' x '.join(map(str, needed))} {format_.dtype} (depth or layers, "
                f"height, width, channels); the array is {held.shape} {held.dtype}"
            )
        out.append(np.array(held, order="C").view(f"u{held.itemsize}").reshape(needed))
    return out
