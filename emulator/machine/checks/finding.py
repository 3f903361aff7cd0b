"""A finding of a check: the mistake, its threads and place, and the conflicting access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.machine.shared.place import Index, Place, shown

#: findings that a report keeps; of more it says how many there were
MOST_FINDINGS = 200
#: threads that a finding names; of more it says how many there are
MOST_THREADS = 32


@dataclass(frozen=True)
class Party:
    """A party to a mistake: one access, or one statement that should have come first."""

    place: Place
    block: Index
    #: the first of the threads
    threads: tuple[Index, ...]
    #: "wrote it"
    what: str = ""
    #: "warp 2, lanes 0-15"
    lanes: str = ""

    def __str__(self) -> str:
        more = f" and {len(self.threads) - 1} others" if len(self.threads) > 1 else ""
        thread = f", thread {shown(self.threads[0])}{more}" if self.threads else ""
        thread += f" ({self.lanes})" if self.lanes else ""
        what = f"{self.what} " if self.what else ""
        return f"{what}in block {shown(self.block)}{thread}\n    at {self.place}"


@dataclass
class Finding:
    """One mistake of a kernel, however many threads made it.

    `kind` is what `KINDS` lists; `reason` says in a sentence what is wrong, `advice` what to do.
    """

    kind: str
    reason: str
    party: Party
    #: what it conflicts with, if it conflicts with something
    earlier: Party | None = None
    advice: str = ""
    #: how often it happened, in threads
    count: int = 1

    @property
    def kernel(self) -> str:
        return self.party.place.kernel

    @property
    def line(self) -> int:
        """Line of the PTX text."""
        return self.party.place.line

    @property
    def source(self) -> str | None:
        """File and line of the CUDA or Python source, where the file says it."""
        return self.party.place.source[0] if self.party.place.source else None

    @property
    def block(self) -> Index:
        return self.party.block

    @property
    def threads(self) -> tuple[Index, ...]:
        """The threads of that block that made it, the first `MOST_THREADS` of them."""
        return self.party.threads

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        times = f" ({self.count:,} threads)" if self.count > 1 else ""
        yield f"{self.kind}: {self.reason}{times}"
        yield from (f"  {line}" for line in str(self.party).splitlines())
        if self.earlier is not None:
            yield "  earlier:"
            yield from (f"    {line}" for line in str(self.earlier).splitlines())
        if self.advice:
            yield f"  {self.advice}"

    @property
    def data(self) -> dict[str, Any]:
        """The finding as JSON keeps it."""
        return {
            "kind": self.kind, "reason": self.reason, "kernel": self.kernel, "count": self.count,
            "advice": self.advice, **_party_data(self.party),
            "earlier": None if self.earlier is None else _party_data(self.earlier),
        }  # fmt: skip


def _party_data(party: Party) -> dict[str, Any]:
    place = party.place
    return {
        "line": place.line, "column": place.column, "statement": place.statement,
        "source": list(place.source), "block": list(party.block),
        "threads": [list(thread) for thread in party.threads], "what": party.what,
    }  # fmt: skip


@dataclass
class Findings:
    """The findings of a launch: the same mistake of many threads is one, with a count."""

    found: dict[tuple[Any, ...], Finding] = field(default_factory=dict)
    #: different mistakes beyond MOST_FINDINGS
    left_out: int = 0

    def add(self, key: Sequence[Any], count: int) -> bool:
        """Counts a mistake that is known by `key`; False where it is new, and wanted."""
        known = self.found.get(tuple(key))
        if known is not None:
            known.count += count
            return True
        if len(self.found) >= MOST_FINDINGS:
            self.left_out += 1
            return True
        return False

    def keep(self, key: Sequence[Any], finding: Finding) -> None:
        self.found[tuple(key)] = finding

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found.values())
