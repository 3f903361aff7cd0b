"""The arrays of a texture: what shapes they have, and the codes of their texels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith import texels
from emulator.errors import OperandError, listing, shown


def texels_of(array: Any, channels: int, layered: bool, cube: bool) -> tuple[Array, str]:
    """Codes ``(depth or layers, height, width, channels)``, and the geometry."""
    held = array if isinstance(array, np.ndarray) else None
    if held is None or str(held.dtype) not in texels.FORMATS:
        legal = listing(texels.FORMATS)
        got = held.dtype if held is not None else type(array).__name__
        raise OperandError(f"a Texture takes a NumPy array of {legal}; got {got}")
    if channels not in (1, 2, 4):
        raise OperandError(f"a texel has 1, 2 or 4 channels; got {shown(channels)}")
    axes = held.shape if channels == 1 else held.shape[:-1]
    last = f", then {channels} channels" if channels > 1 else ""
    if cube:
        square = len(axes) == 3 + layered and axes[-3] == 6 and axes[-1] == axes[-2]
        if not square or 0 in held.shape or (channels > 1 and held.shape[-1] != channels):
            what = "layers, then 6" if layered else "6"
            raise OperandError(f"a cube has {what} square faces{last}; the array is {held.shape}")
        codes = np.array(held, order="C").view(f"u{held.itemsize}")
        return codes.reshape(-1, *axes[-2:], channels), "acube" if layered else "cube"
    rank = len(axes) - layered
    if 0 in held.shape or rank not in ((1, 2) if layered else (1, 2, 3)) or (
        channels > 1 and held.shape[-1] != channels
    ):  # fmt: skip
        what = "layers, then one or two axes" if layered else "one to three axes"
        raise OperandError(f"a Texture has {what}{last}, none empty; the array is {held.shape}")
    geometry = f"a{rank}d" if layered else f"{rank}d"
    full = (axes[0], *(1,) * (2 - rank), *axes[1:]) if layered else (*(1,) * (3 - rank), *axes)
    codes = np.array(held, order="C").view(f"u{held.itemsize}")
    return codes.reshape(*full, channels), geometry


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
