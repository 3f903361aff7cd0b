"""``tex``: what all engines do for lanes that read a texture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.operands import ordinary
from emulator.memory.texture import Texture, TextureError
from emulator.ptx.program import Address, Bound, Statement, Vector

#: handles and coordinates of lanes to the components of their texels
Fetch = Callable[[dict[int, Texture], Array, Sequence[Array]], NDArray[np.uint32]]
#: geometry -> coordinates that count; those behind them fill a vector of four
_COUNTED = {"3d": 3, "a2d": 3}


def coordinates_of(statement: Statement) -> tuple[Bound, ...]:
    """The coordinates of a fetch that count."""
    place = statement.operands["t"]
    assert isinstance(place, Address)
    (given,) = place.coordinates
    assert isinstance(given, Vector)
    items = tuple(item for item in given.items if item is not None)
    return items[: _COUNTED.get(ordinary(statement).modifiers["geometry"])]


def fetch_of(statement: Statement) -> Fetch:
    """The texels ``uint32 (lanes, 4)`` of lanes with handles and coordinates ``(lanes,)``.

    Raises Failure, with the position of a lane, for a handle that names no texture and for a
    texture of another geometry or type than the instruction's.
    """
    ins = ordinary(statement)
    geometry, (kind, given) = ins.modifiers["geometry"], ins.types

    def fetch(
        textures: dict[int, Texture], handles: Array, coordinates: Sequence[Array]
    ) -> NDArray[np.uint32]:
        out = np.zeros((len(handles), 4), np.uint32)
        for handle in np.unique(handles).tolist():
            mask = handles == handle
            first = int(np.argmax(mask))
            if handle not in textures:
                reason = f"the handle {handle:#x} names no texture; pass a Texture as an argument"
                raise Failure("texture", reason, first)
            words = [axis[mask] for axis in coordinates]
            try:
                out[mask] = textures[handle].fetch(geometry, given == "s32", words, kind)
            except TextureError as error:
                raise Failure("texture", str(error), first) from None
        return out

    return fetch
