"""All engines: handles of textures and surfaces, the object that one names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

from emulator.machine.shared.failure import Failure

T = TypeVar("T")


def named(
    objects: Mapping[int, T], kind: Literal["texture", "surface"], handle: int, index: int
) -> T:
    """The object of a handle; Failure, of the lane at `index`, where it names none."""
    if handle in objects:
        return objects[handle]
    reason = f"the handle {handle:#x} names no {kind}; pass a {kind.capitalize()}, or bind one"
    raise Failure(kind, reason, index)
