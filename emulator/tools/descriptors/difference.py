"""Difference of a wgmma matrix descriptor from the one that a stored tile needs, with causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from emulator.errors import OperandError
from emulator.isa.instruction import Instruction
from emulator.layout.addressing import FIELDS, SWIZZLES
from emulator.layout.descriptor import Descriptor, Finding, Placed
from emulator.layout.tile import block_bytes
from emulator.report import Report
from emulator.tools.descriptors.description import as_hex
from emulator.tools.descriptors.mistakes import FieldMistake, likely_mistakes
from emulator.tools.descriptors.tiles import (
    ReadTile,
    StoredTile,
    needed_descriptor,
    placed_tile,
    read_tile,
)
from emulator.tools.report import render


@dataclass(frozen=True, repr=False)
class Difference(Report):
    """Difference between a descriptor and the one that is needed."""

    word: int
    tile: ReadTile
    #: with its size filled in
    stored: StoredTile
    needed: Placed
    #: field -> (what the word has, what is needed), in bytes; only those that differ
    fields: dict[str, tuple[int, int]]
    #: usual mistakes that make the one of the other
    faults: tuple[FieldMistake, ...]
    #: (row, column) of what the instruction reads from wrong bytes; of b1 every 8th column
    wrong: tuple[tuple[int, int], ...]
    #: wrong and right address of the first of them
    first: tuple[int, int] | None

    @property
    def is_same(self) -> bool:
        """Whether the same bytes are read, whatever the fields say."""
        return not self.wrong

    @property
    def title(self) -> str:
        return f"matrix descriptor {as_hex(self.word)} beside the one that {self.stored} needs"

    @property
    def code(self) -> int:  # type: ignore[override]
        return int(not self.is_same)

    def judged(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Mistakes of the word; the legal values are those that the stored tile needs.

        What is said of a field that is as it has to be follows from another one, and is left out.
        """
        out = []
        for finding in findings:
            if finding.field in self.fields:
                want = self.fields[finding.field][1]
                legal = f"{finding.field} {want}, which the stored tile needs"
                out.append(finding._replace(legal=legal))
            elif finding.field not in FIELDS:
                out.append(finding)
        return tuple(out)

    def lines(self) -> Iterator[str]:
        yield f"{self.stored},"
        yield f"needs {as_hex(int(self.needed.descriptor.encode()))}"
        if self.fields:
            rows = [[name, str(have), str(want)] for name, (have, want) in self.fields.items()]
            yield from render(["field", "this word", "needed"], rows)
        if self.first is None:
            yield "the same bytes are read" + (": these fields do not count" if self.fields else "")
            return
        (row, column), (have, want), per_k = self.wrong[0], self.first, self.tile.per_k
        yield (
            f"{len(self.wrong) * per_k} of {self.tile.shape.rows * self.tile.k} elements come from "
            f"wrong bytes, first (row {row}, column {column}) from {have:#x} instead of {want:#x}"
        )
        for fault in self.faults:
            names = " and ".join(fault.fields) if len(fault.fields) < 3 else "all fields"
            if fault.mistakes:
                yield f"likely fault in {names}: {'; or '.join(fault.mistakes)}"
            else:
                yield f"{names}: no usual mistake makes this value"

    @property
    def data(self) -> dict[str, object]:
        return {
            "stored": asdict(self.stored),
            "needed": as_hex(int(self.needed.descriptor.encode())),
            "same_bytes": self.is_same,
            "differences": [
                {"field": name, "word": have, "needed": want}
                for name, (have, want) in self.fields.items()
            ],
            "wrong_elements": len(self.wrong) * self.tile.per_k,
            "faults": [{"fields": list(x.fields), "mistakes": list(x.mistakes)}
                       for x in self.faults],
        }  # fmt: skip


def diff_descriptors(
    word: int, ins: Instruction | str, operand: str = "b", stored: StoredTile | None = None
) -> Difference:
    """A descriptor beside the one that `needed_descriptor` builds, and the likely mistakes.

    >>> mma = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    >>> found = diff_descriptors(0x00000040_00080000, mma, "b", StoredTile(swizzle_bytes=0))
    >>> found.faults[0].mistakes[0]
    'LBO and SBO are exchanged'
    """
    stored = StoredTile() if stored is None else stored
    needed, tile = needed_descriptor(ins, operand, stored), read_tile(ins, operand, stored.major)
    given, stored, per_k = Descriptor.decode(word), stored.sized(tile), tile.per_k
    fields = {
        name: (getattr(given, key), getattr(needed.descriptor, key))
        for name in FIELDS
        for key in ["swizzle_bytes" if name == "swizzle" else name]
        if getattr(given, key) != getattr(needed.descriptor, key)
    }
    have, want = given.addresses(tile.shape), needed.descriptor.addresses(tile.shape)
    wrong = [(int(r), int(k)) for r, k in np.argwhere(have != want)]
    first = (int(have[wrong[0]]), int(want[wrong[0]])) if wrong else None
    (large, _), shape = placed_tile(tile, stored)
    there = np.argwhere(large.addresses(shape) == given.start_address)
    place = (int(there[0][0]), int(there[0][1]) * per_k) if len(there) else None
    faults = likely_mistakes(
        int(word),
        needed.descriptor,
        tile.shape,
        _other_layouts(tile, stored),
        _larger_tiles(given, tile, stored),
        place,
    )
    places = tuple((row, k * per_k) for row, k in wrong)
    return Difference(int(word), tile, stored, needed, fields, faults, places, first)


def _other_layouts(tile: ReadTile, stored: StoredTile) -> dict[str, Descriptor]:
    """Descriptors of tiles that are easily taken for this one, by what to say of their strides."""
    major, order = {"k": "mn", "mn": "k"}, {"rows": "columns", "columns": "rows"}
    others = {
        f"as for {f'the {width}-byte swizzle' if width else 'a tile without a swizzle'}": replace(
            stored, swizzle_bytes=width
        )
        for width in SWIZZLES
        if width != stored.swizzle_bytes
    } | {
        f"as for {'an MN' if stored.major == 'k' else 'a K'}-major tile": replace(
            stored, major=major[stored.major]
        ),
        f"as for blocks stored {order[stored.order]} first": replace(
            stored, order=order[stored.order]
        ),
        "as for a tile of the instruction's own size, and the stored one is larger": replace(
            stored, rows=None, k=None
        ),
    }
    out = {}
    for text, layout in others.items():
        whole_start = replace(layout, leading_bytes=None, row=0, column=0)
        try:
            out[text] = needed_descriptor(tile.ins, tile.operand, whole_start).descriptor
        except OperandError:
            continue  # no such tile of this type and size: nobody took it for this one
    return out


def _larger_tiles(given: Descriptor, tile: ReadTile, stored: StoredTile) -> Iterator[str]:
    """Other sizes of the stored tile with which the strides of a descriptor are right."""
    width, shape = stored.swizzle_bytes, tile.shape
    block, used, (high, wide) = block_bytes(width), shape.used_strides(width), shape.block(width)
    rows, k = (getattr(given, shape.strides(width)[way]) for way in ("rows", "k"))
    if "k" in used and ("rows" not in used or rows == block) and k and k % block == 0:
        yield f"{k // block * high}x{stored.k},order=rows"
    if "rows" in used and ("k" not in used or k == block) and rows and rows % block == 0:
        yield f"{stored.rows}x{rows // block * wide * tile.per_k},order=columns"
