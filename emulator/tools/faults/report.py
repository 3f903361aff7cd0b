"""``Report``: what the fault finder found, for people and as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["right", "found", "near", "none"]


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
    #: "made": what the kernel does; "repair": made on top of it, this gives what is right
    direction: Literal["made", "repair"] = "made"

    @property
    def exact(self) -> bool:
        return self.equal == self.total

    def __str__(self) -> str:
        much = "all" if self.exact else f"{self.explained}"
        how = "reproduces" if self.direction == "made" else "repairs"
        return f"{self.mistake}: {self.detail} ({how} {much} of {self.wrong} wrong elements)"


@dataclass(frozen=True)
class Report:
    """The faults, the likeliest first, and what the search can and cannot say.

    Truth value and ``len`` are those of `faults`.
    """

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
    #: for each operand of which registers were given: whether they are right
    operands: dict[str, bool] = field(default_factory=dict)
    #: where D is wrong and how, if no mistake explains all of it
    where: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        if not self.wrong:
            return "right"
        if any(fault.exact for fault in self.faults):
            return "found"
        return "near" if self.faults else "none"

    @property
    def exact(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if fault.exact)

    def __len__(self) -> int:
        return len(self.faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.faults)

    def __getitem__(self, i: int) -> Fault:
        return self.faults[i]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.opcode} on {self.target}"
        for name, right in self.operands.items():
            yield f"registers of {name}: {'right' if right else 'wrong'}"
        what = " and ".join(self.compared)
        if not self.wrong:
            yield f"{what}: right, {self.total} of {self.total} elements"
        else:
            yield f"{what}: {self.wrong} of {self.total} elements are wrong"
            yield from (f"   {line}" for line in self.where)
            yield from self._findings()
        for note in self.notes:
            yield f"note: {note}"

    def _findings(self) -> Iterator[str]:
        tried = f"{self.tried} ways of making {self.kinds} mistakes"
        if self.verdict == "none":
            yield f"none of {tried} reproduces it, or the greater part of it"
        elif self.verdict == "near":
            yield f"none of {tried} reproduces it; nearest are"
        for i, fault in enumerate(self.faults, 1):
            yield ""
            repair = fault.direction == "repair"
            yield f"{i}. {'repaired by: ' if repair else ''}{fault.detail}"
            yield f"   {fault.mistake}" + (
                ": this change of what was passed gives what is right" if repair else ""
            )
            does = "repairs" if repair else "explains"
            rest = f"; {fault.total - fault.equal} of {fault.total} still differ"
            yield (
                f"   {does} {fault.explained} of {fault.wrong} wrong "
                f"elements{', bit for bit' if fault.exact else rest}"
            )
            yield f"   {fault.explanation}"
            if fault.same_as:
                yield f"   the same in other words: {'; '.join(fault.same_as[:3])}"

    @property
    def data(self) -> dict[str, object]:
        """For JSON."""
        faults = [
            {
                "mistake": x.mistake, "operand": x.operand, "detail": x.detail, "exact": x.exact,
                "explanation": x.explanation, "equal": x.equal, "total": x.total,
                "explained": x.explained, "wrong": x.wrong, "same_as": list(x.same_as),
                "direction": x.direction,
            }
            for x in self.faults
        ]  # fmt: skip
        return {
            "opcode": self.opcode, "target": self.target, "verdict": self.verdict,
            "compared": list(self.compared), "wrong": self.wrong, "total": self.total,
            "tried": self.tried, "mistakes": self.kinds, "invisible": self.invisible,
            "untold": self.untold,
            "operands": self.operands, "where": list(self.where), "faults": faults,
            "notes": list(self.notes),
        }  # fmt: skip
