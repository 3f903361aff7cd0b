"""Pictures of accesses of shared memory: which lanes meet in which bank, and how a tile lies there.

Shared memory has 32 banks of 4 bytes. A warp accesses it as a whole, with 8 bytes a lane in halves
and with 16 in quarters; a pass takes one word from each bank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from emulator.layout.descriptor import Descriptor
from emulator.layout.lanemap import WARP
from emulator.layout.tile import TileShape

#: banks, and bytes of one
BANKS, BANK = 32, 4
#: bytes of a row of all banks, and of a unit that a swizzle moves
ROW, UNIT = BANKS * BANK, 16
#: rows that a picture shows
_MOST = 32

STYLE = """
.emulator-report .banks { display: inline-table; width: auto; margin: .3em 0; }
.emulator-report .banks td, .emulator-report .banks th { padding: 0; min-width: 15px;
  text-align: center; font-size: 10px; line-height: 1.4; font-weight: 400;
  border: 1px solid #8885; }
.emulator-report .banks td:first-child { padding: 0 .4em; text-align: right; }
.emulator-report .units td { min-width: 42px; }
.emulator-report .banks td.hit { background: #3f83d1; color: #fff; }
.emulator-report .banks td.conflict { background: #d22; color: #fff; }
"""


@dataclass(frozen=True)
class Banks:
    """One access of a warp: the address of each lane in shared memory, and the bytes of each."""

    lanes: tuple[int, ...]
    addresses: tuple[int, ...]
    size: int

    @property
    def parts(self) -> dict[range, list[dict[int, list[int]]]]:
        """For each part of the warp, its lanes, for each bank: word -> the lanes that want it."""
        words = max(1, self.size // BANK)
        parts: dict[range, list[dict[int, list[int]]]] = {}
        each = WARP // words
        for lane, address in zip(self.lanes, self.addresses, strict=True):
            part = range(lane // each * each, lane // each * each + each)
            banks = parts.setdefault(part, [{} for _ in range(BANKS)])
            for word in range(address // BANK, address // BANK + words):
                banks[word % BANKS].setdefault(word, []).append(lane)
        return parts

    @property
    def passes(self) -> list[int]:
        """The passes that each part takes."""
        return [max(map(len, banks)) for banks in self.parts.values()]

    @property
    def start(self) -> int:
        """The first row of all banks that is accessed."""
        return min(self.addresses) // ROW * ROW

    def from_its_start(self) -> Banks:
        """The same with addresses from `start` on: accesses that meet alike are equal."""
        start = self.start
        return Banks(self.lanes, tuple(x - start for x in self.addresses), self.size)

    @property
    def conflicts(self) -> int:
        """The passes beyond one for each part."""
        return sum(self.passes) - len(self.passes)

    def worse(self, other: Banks | Rows) -> bool:
        return isinstance(other, Banks) and sum(self.passes) * len(other.passes) > (
            sum(other.passes) * len(self.passes)
        )

    @property
    def summary(self) -> str:
        passes, least = sum(self.passes), len(self.passes)
        return f"{passes} pass{'es' * (passes > 1)}, {least} without conflicts"

    def html(self) -> str:
        """A row for each pass and a column for each bank; cells name the lanes."""
        rows = []
        for part, banks in self.parts.items():
            for number in range(max(map(len, banks))):
                cells = [_bank_cell(bank, number) for bank in banks]
                name = f"pass {number + 1}" if number else f"{part[0]}–{part[-1]}"
                rows.append(f"<tr><td>{name}</td>{''.join(cells)}</tr>")
        more = f"<p>and {len(rows) - _MOST} passes more</p>" if len(rows) > _MOST else ""
        return _table("lanes", range(BANKS), rows[:_MOST]) + more


def _bank_cell(bank: dict[int, list[int]], number: int) -> str:
    if number >= len(bank):
        return "<td></td>"
    word, lanes = list(bank.items())[number]
    text = f"{lanes[0]}" + ("…" if len(lanes) > 1 else "")
    title = f"lanes {', '.join(map(str, lanes))}: the word at {word * BANK:#x}"
    kind = "conflict" if len(bank) > 1 else "hit"
    return f'<td class={kind} title="{title}">{text}</td>'


@dataclass(frozen=True)
class Rows:
    """How a tile lies in shared memory: the address of each unit of 16 bytes of its lines."""

    #: the operand, and how its descriptor says it lies
    name: str
    #: line by line
    addresses: tuple[tuple[int, ...], ...]

    def worse(self, other: Banks | Rows) -> bool:
        return False

    @property
    def conflicts(self) -> int:
        """The most lines of eight that stand in the same banks, less one."""
        worst = 1
        for first in range(0, len(self.addresses), 8):
            for column in zip(*self.addresses[first : first + 8], strict=False):
                banks = [address % ROW // UNIT for address in column]
                worst = max(worst, *(banks.count(x) for x in banks))
        return worst - 1

    @property
    def summary(self) -> str:
        found = self.conflicts
        text = f"{found + 1} of 8 lines in the same banks" if found else "no conflicts"
        return f"{self.name}: {text}"

    def html(self) -> str:
        """A row for each 128 bytes, a column for each unit of 16; cells name line and unit."""
        held = {
            address // UNIT: (line, unit)
            for line, units in enumerate(self.addresses)
            for unit, address in enumerate(units)
        }
        numbers = sorted({place * UNIT // ROW for place in held})
        rows = []
        for number in numbers[:_MOST]:
            cells = []
            for column in range(ROW // UNIT):
                found = held.get(number * ROW // UNIT + column)
                text = f"{found[0]}:{found[1]}" if found else ""
                kind = "conflict" if self.conflicts else "hit"
                cells.append(f"<td class={kind}>{text}</td>" if found else "<td></td>")
            rows.append(f"<tr><td>{number * ROW:#x}</td>{''.join(cells)}</tr>")
        more = f"<p>and {len(numbers) - _MOST} rows more</p>" if len(numbers) > _MOST else ""
        heads = (f"{x * BANKS // 8}–{x * BANKS // 8 + 3}" for x in range(ROW // UNIT))
        return (
            f"<p>{escape(self.name)}; line : unit of 16 bytes</p>"
            + _table("banks", heads, rows, "banks units")
            + more
        )


def rows_of(name: str, descriptor: Descriptor, tile: TileShape) -> Rows:
    """How the tile of a matrix descriptor lies in shared memory."""
    places = descriptor.addresses(tile)
    lines = places if tile.major == "k" else places.T
    units = lines[:, :: UNIT // tile.element_bytes]
    swizzle = (
        f"{descriptor.swizzle_bytes}-byte swizzle" if descriptor.swizzle_bytes else "no swizzle"
    )
    return Rows(f"{name}, {swizzle}", tuple(tuple(row) for row in units.tolist()))


def _table(first: str, heads: Iterator[str] | range, rows: list[str], kind: str = "banks") -> str:
    head = "".join(f"<th>{x}</th>" for x in (first, *heads))
    return f'<table class="{kind}"><tr>{head}</tr>{"".join(rows)}</table>'
