"""A finding of a check: the mistake, its threads and place, and the conflicting access."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from emulator.machine.shared.place import Index, Place, shown

#: findings that a report keeps; of more it says how many there were
MOST_FINDINGS = 200
#: threads that a finding names; of more it says how many there are
MOST_THREADS = 32
#: findings alike that become one, where the PTX names no source lines; and lines that one lists
_ALIKE, _MOST_LINES = 4, 12
_NUMBER = re.compile(r"\d+")


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
    #: the other access of a conflict
    earlier: Party | None = None
    advice: str = ""
    #: number of occurrences, counted in threads
    count: int = 1
    #: other statements with the same mistake, as an unrolled loop or a wrong constant makes
    others: tuple[Place, ...] = ()

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
        if self.others:
            lines = sorted({place.line for place in self.others})
            more = " …" if len(lines) > _MOST_LINES else ""
            yield (
                f"  the same at {len(self.others)} more statement{'s' * (len(self.others) > 1)}, "
                f"PTX lines {', '.join(map(str, lines[:_MOST_LINES]))}{more}"
            )
        if self.advice:
            yield f"  {self.advice}"

    @property
    def data(self) -> dict[str, object]:
        """The finding as JSON keeps it."""
        return {
            "kind": self.kind, "reason": self.reason, "kernel": self.kernel, "count": self.count,
            "advice": self.advice, **_party_data(self.party),
            "earlier": None if self.earlier is None else _party_data(self.earlier),
            "others": [place.line for place in self.others],
        }  # fmt: skip


def _party_data(party: Party) -> dict[str, object]:
    place = party.place
    return {
        "line": place.line, "column": place.column, "statement": place.statement,
        "source": list(place.source), "block": list(party.block),
        "threads": [list(thread) for thread in party.threads], "what": party.what,
    }  # fmt: skip


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of one mistake as one finding that lists the other statements: those of one source
    line, or many whose statements differ in their numbers alone."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        pair = _where(finding.party), _where(finding.earlier)
        key = (finding.kind, _NUMBER.sub("#", finding.reason), *pair)
        groups.setdefault(key, []).append(finding)
    out: list[Finding] = []
    for same in groups.values():
        first = same[0]
        if len(same) == 1 or not (first.source or len(same) >= _ALIKE):
            out += same
            continue
        parties = [party for x in same for party in (x.party, x.earlier) if party is not None]
        places = dict.fromkeys(party.place for party in parties)
        for party in (first.party, first.earlier):
            places.pop(party.place if party else None, None)  # type: ignore[arg-type]
        out.append(replace(first, count=sum(x.count for x in same), others=tuple(places)))
    return out


def _where(party: Party | None) -> object:
    """The source line of an access, or its statement without numbers."""
    if party is None:
        return None
    return party.place.source or _NUMBER.sub("#", party.place.statement)


@dataclass
class Findings:
    """The findings of a launch: the same mistake of many threads is one, with a count."""

    found: dict[tuple[object, ...], Finding] = field(default_factory=dict)
    #: different mistakes beyond MOST_FINDINGS
    left_out: int = 0

    def add(self, key: Sequence[object], count: int) -> bool:
        """Counts a mistake that is known by `key`; False where it is new, and wanted."""
        known = self.found.get(tuple(key))
        if known is not None:
            known.count += count
            return True
        if len(self.found) >= MOST_FINDINGS:
            self.left_out += 1
            return True
        return False

    def keep(self, key: Sequence[object], finding: Finding) -> None:
        self.found[tuple(key)] = finding

    def __iter__(self) -> Iterator[Finding]:
        return iter(merged(self.found.values()))
