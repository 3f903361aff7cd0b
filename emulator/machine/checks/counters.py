"""Counters of a kernel, statement by statement, and their tables.

A *warp statement* is one statement that one warp executes. Shared memory has 32 banks of 4 bytes;
global memory moves in sectors of 32 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from emulator.machine.checks.banks import Banks, Rows
from emulator.machine.shared.place import Place


@dataclass(slots=True)
class Numbers:
    """Counts of some statements."""

    #: warp statements, the lanes that were at them, and those of these whose guard held
    warps: int = 0
    lanes: int = 0
    executed: int = 0
    #: matrix instructions, and multiply-adds: m × n × k of each, of sparse ones too
    matrices: int = 0
    multiply_adds: int = 0
    #: passes over the banks of shared memory, and how few would do without conflicts
    passes: int = 0
    least_passes: int = 0
    #: sectors of global memory, and how few would hold the same bytes
    sectors: int = 0
    least_sectors: int = 0
    #: warps that a branch divided
    divided: int = 0
    #: warps that had to wait at a barrier, in the order of this run
    waits: int = 0
    #: the access of shared memory with the most passes for its size, or the tile of a wgmma
    picture: Banks | Rows | None = field(default=None, compare=False)

    @property
    def conflicts(self) -> int:
        """Passes over shared memory that bank conflicts add."""
        return self.passes - self.least_passes

    @property
    def is_special(self) -> bool:
        """True if anything but warp statements and their lanes was counted."""
        return any(getattr(self, name) for name in FIELDS[3:])

    def add(self, other: Numbers) -> None:
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if self.picture is None or (other.picture and other.picture.worse(self.picture)):
            self.picture = other.picture


#: numbers of all statements that go into `Report.counters`
_TOTALS = ("matrices", "multiply_adds", "conflicts", "sectors", "least_sectors", "divided", "waits")
#: names of what is counted
FIELDS = tuple(x.name for x in fields(Numbers) if x.name != "picture")


@dataclass(frozen=True)
class Count:
    """Counts of one statement."""

    place: Place
    opcode: str
    numbers: Numbers

    @property
    def line(self) -> str:
        """``kernel.cu:12``, or ``PTX line 12`` where the file does not say it."""
        return self.place.source[0] if self.place.source else f"PTX line {self.place.line}"

    @property
    def data(self) -> dict[str, object]:
        """The count as JSON keeps it."""
        return {
            "line": self.place.line, "source": list(self.place.source), "opcode": self.opcode,
            **numbers_data(self.numbers),
        }  # fmt: skip


def numbers_data(numbers: Numbers) -> dict[str, int]:
    return {name: getattr(numbers, name) for name in FIELDS} | {"conflicts": numbers.conflicts}


@dataclass(frozen=True)
class Counts(Sequence[Count]):
    """The counts of a launch, in the order of the PTX; statements that nothing executed have none.

    `by_opcode` and `by_line` add them up.
    """

    statements: tuple[Count, ...] = ()

    def __len__(self) -> int:
        return len(self.statements)

    def __getitem__(self, index: Any) -> Any:
        return self.statements[index]

    def __iter__(self) -> Iterator[Count]:
        return iter(self.statements)

    @property
    def by_opcode(self) -> dict[str, Numbers]:
        """Opcode -> its numbers, those that warps executed most first."""
        found = added((count.opcode, count.numbers) for count in self.statements)
        return dict(sorted(found.items(), key=lambda x: -x[1].warps))

    @property
    def by_line(self) -> dict[str, Numbers]:
        """CUDA or Triton source line, or PTX line where the file has no others -> its numbers."""
        found = added((count.line, count.numbers) for count in self.statements)
        return dict(sorted(found.items(), key=lambda x: file_and_line(x[0])))

    @property
    def totals(self) -> dict[str, int]:
        """Sums of the additive counts over all statements, by name."""
        every = added(("", count.numbers) for count in self.statements).get("", Numbers())
        return {name: count for name, count in numbers_data(every).items() if name in _TOTALS}


def file_and_line(line: str) -> tuple[str, int]:
    """File and line of ``kernel.cu:12``, or of ``PTX line 12``, whose file is ""."""
    if line.startswith("PTX line "):
        return "", int(line.rpartition(" ")[2])
    name, _, number = line.rpartition(":")
    return name, int(number)


def added(pairs: Iterable[tuple[str, Numbers]]) -> dict[str, Numbers]:
    """The numbers of each name, added up."""
    out: dict[str, Numbers] = {}
    for name, numbers in pairs:
        out.setdefault(name, Numbers()).add(numbers)
    return out


# --- tables ---------------------------------------------------------------------------------------


class Column(NamedTuple):
    """One column of a table: `show` gives the cell, which is "" where nothing was counted."""

    heading: str
    show: Callable[[Numbers], str]


def _of(part: str, whole: str) -> Callable[[Numbers], str]:
    """``64 (32)``: what was, and the least that would do."""

    def show(numbers: Numbers) -> str:
        had, least = getattr(numbers, part), getattr(numbers, whole)
        return f"{had:,} ({least:,})" if had else ""

    return show


def _number(name: str) -> Callable[[Numbers], str]:
    def show(numbers: Numbers) -> str:
        count = getattr(numbers, name)
        return f"{count:,}" if count else ""

    return show


COLUMNS = (
    Column("warps", _number("warps")),
    Column("lanes", lambda x: f"{x.lanes / x.warps:.3g}" if x.warps else ""),
    Column("guard held", lambda x: f"{x.executed / x.warps:.3g}" if x.executed < x.lanes else ""),
    Column("matrix", _number("matrices")),
    Column("MACs", _number("multiply_adds")),
    Column("shared passes (least)", _of("passes", "least_passes")),
    Column("bank conflicts", _number("conflicts")),
    Column("sectors (least)", _of("sectors", "least_sectors")),
    Column("divided", _number("divided")),
    Column("waits", _number("waits")),
)


def used_columns(every: Iterable[Numbers]) -> list[Column]:
    """The columns that have something in them."""
    rows = list(every)
    return [column for column in COLUMNS if any(column.show(numbers) for numbers in rows)]
