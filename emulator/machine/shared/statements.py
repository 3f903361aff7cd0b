"""All engines: tables of the statements that are stated once, by first words of opcodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from emulator.machine.shared import (
    addresses,
    barriers,
    bulk,
    cancel,
    copies,
    mbarriers,
    multimem,
    stack,
    surfaces,
    tensor_maps,
    textures,
)
from emulator.machine.shared.issuing import Make, MakeAtOnce, MakeMeeting

#: each thread does it by itself
EACH: dict[str, Make] = {**bulk.EACH, **cancel.EACH, **tensor_maps.EACH}
#: all lanes of a strand may do it at once
AT_ONCE: dict[str, MakeAtOnce] = {
    **addresses.AT_ONCE,
    **mbarriers.AT_ONCE,
    **multimem.AT_ONCE,
    **stack.AT_ONCE,
    **copies.AT_ONCE,
    **cancel.AT_ONCE,
    **textures.AT_ONCE,
    **surfaces.AT_ONCE,
}
#: the same, where they may have to wait behind it
WAITING: dict[str, MakeAtOnce] = mbarriers.WAITING
#: all threads that are at it do it together, and may have to wait behind it
MEETING: dict[str, MakeMeeting] = barriers.MEETING
#: a warp does it, by its first lane
BY_WARP: dict[str, Make] = tensor_maps.BY_WARP

T = TypeVar("T")


def longest(known: Mapping[str, T], opcode: str) -> T | None:
    """The entry of the longest beginning of an opcode, in whole words; None where none is known."""
    words = opcode.split(".")
    beginnings = (".".join(words[:count]) for count in range(len(words), 0, -1))
    return next((known[found] for found in beginnings if found in known), None)
