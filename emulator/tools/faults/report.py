"""``FaultReport``: what the fault finder found, for people and as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Generic, Literal, TypeVar

from dtypes import Array
from emulator.report import Report

_Fault = TypeVar("_Fault")
Verdict = Literal["right", "found", "near", "none"]
#: "made": what the kernel does; "repair": made on top of it, this gives what is right
Direction = Literal["made", "repair"]


@dataclass(frozen=True)
class Fault:
    """One mistake, and how much of what is wrong it explains."""

    #: name of the row in MISTAKES
    mistake: str
    #: a, b, c, d, e, scale_a, scale_b; "" for the instruction and the target
    operand: str
    #: which registers, lanes, fields …
    detail: str
    #: what goes wrong there in kernels, and what to look at
    explanation: str
    #: elements that come out as observed with this mistake, of all elements compared
    equal: int
    total: int
    #: wrong elements that it reproduces, of all wrong ones
    explained: int
    wrong: int
    #: other descriptions of exactly the same words
    same_as: tuple[str, ...] = ()
    direction: Direction = "made"

    @classmethod
    def of(
        cls,
        mistake: str,
        operand: str,
        detail: str,
        explanation: str,
        equal: Array,
        wrong: Array,
        direction: Direction = "made",
    ) -> Fault:
        """From the elements that come out as observed, and from those that are wrong (bool)."""
        counts = int(equal.sum()), equal.size, int((equal & wrong).sum()), int(wrong.sum())
        return cls(mistake, operand, detail, explanation, *counts, direction=direction)

    @property
    def exact(self) -> bool:
        return self.equal == self.total

    def __str__(self) -> str:
        much = "all" if self.exact else f"{self.explained}"
        how = "reproduces" if self.direction == "made" else "repairs"
        return f"{self.mistake}: {self.detail} ({how} {much} of {self.wrong} wrong elements)"


class Faults(Report, Generic[_Fault]):
    """A report that is a sequence of faults: truth value and ``len`` are theirs."""

    faults: tuple[_Fault, ...]

    def __len__(self) -> int:
        return len(self.faults)

    def __iter__(self) -> Iterator[_Fault]:
        return iter(self.faults)

    def __getitem__(self, i: int) -> _Fault:
        return self.faults[i]


@dataclass(frozen=True, repr=False)
class FaultReport(Faults[Fault]):
    """The faults, the likeliest first, and what the search can and cannot say."""

    opcode: str
    target: str
    #: exact ones first, then near ones
    faults: tuple[Fault, ...]
    #: wrong mistakes were looked for in this: "D", "registers of a", …
    compared: tuple[str, ...]
    wrong: int
    total: int
    #: ways of making a mistake that were tried, those of them that leave D as it is, and those of
    #: these that would show with another value in every element
    tried: int
    invisible: int = 0
    untold: int = 0
    notes: tuple[str, ...] = ()
    kinds: int = 0
    #: for each operand of which registers or memory were given: whether that is right
    operands: dict[str, bool] = field(default_factory=dict)
    #: where D is wrong and how, if no mistake explains all of it
    where: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        if not self.wrong:
            return "right"
        if self.exact:
            return "found"
        return "near" if self.faults else "none"

    @property
    def exact(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if fault.exact)

    @property
    def code(self) -> int:  # type: ignore[override]
        return 0 if self.verdict in ("right", "found") else 1

    @property
    def title(self) -> str:
        return f"{self.opcode} on {self.target}"

    def lines(self) -> Iterator[str]:
        yield self.title
        for name, right in self.operands.items():
            yield f"{name} as passed: {'right' if right else 'wrong'}"
        what = " and ".join(self.compared)
        if not self.wrong:
            yield f"{what}: right, {self.total} of {self.total} elements"
        else:
            yield f"{what}: {self.wrong} of {self.total} elements are wrong"
            yield from (f"   {line}" for line in self.where)
            yield from self._findings()
        yield from (f"note: {note}" for note in self.notes)

    def _findings(self) -> Iterator[str]:
        tried = f"none of {self.tried} ways of making {self.kinds} mistakes reproduces it"
        if self.verdict == "none":
            yield f"{tried}, or the greater part of it"
        elif self.verdict == "near":
            yield f"{tried}; nearest are"
        for i, x in enumerate(self.faults, 1):
            repair = x.direction == "repair"
            rest = f"; {x.total - x.equal} of {x.total} still differ"
            yield ""
            yield f"{i}. {'repaired by: ' if repair else ''}{x.detail}"
            change = ": this change of what was passed gives what is right"
            yield f"   {x.mistake}{change if repair else ''}"
            yield (
                f"   {'repairs' if repair else 'explains'} {x.explained} of {x.wrong} wrong "
                f"elements{', bit for bit' if x.exact else rest}"
            )
            yield f"   {x.explanation}"
            if x.same_as:
                yield f"   the same in other words: {'; '.join(x.same_as[:3])}"

    @property
    def data(self) -> dict[str, object]:
        faults = [asdict(x) | {"exact": x.exact, "same_as": list(x.same_as)} for x in self.faults]
        lists = {name: list(getattr(self, name)) for name in ("compared", "notes", "where")}
        data = asdict(self) | lists | {"faults": faults, "verdict": self.verdict}
        return data | {"mistakes": data.pop("kinds")}
