"""ldmatrix, stmatrix and movmatrix: the table of their forms, and the instruction (9.7.14.5.15-17).

They move 8×8, 16×16, 8×16 or 16×8 tiles between rows of shared memory and lane registers. A form
names the lane map of its registers; ROW and COL of the map are a row in memory and an element of
that row, GROUP is the tile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from dtypes import FORMATS, Place
from emulator.arith.evidence import Fidelity, find_fidelity
from emulator.errors import (
    OperandError,
    ParseError,
    UnsupportedError,
    hint,
    listing,
    nearest_opcode,
    quoted,
)
from emulator.isa.instruction import Instruction
from emulator.layout.fragment import Fragment
from emulator.layout.fragments import lane_map
from emulator.targets import Target, find_target, select

#: bytes of one row in memory, the granule of every address
ROW_BYTES = 16


@dataclass(frozen=True)
class Form:
    """One row: alternatives are separated by spaces, an empty one is written as "-"."""

    mnemonic: str
    shape: str
    #: x1 x2 x4: tiles moved
    counts: str
    #: "", "trans": which of them are legal
    trans: str
    #: type of the elements in registers
    type: str
    targets: tuple[str, ...]
    #: formats of the rows in memory that are unpacked on the way
    sources: str = "-"
    #: rows of a tile in memory
    rows: int = 8


_75, _90 = select(since=75), select(since=90)
_SPECIFIC = select(since=100, specific=True)
_UNPACKING = "b6x16_p32 b4x16_p64"

FORMS: tuple[Form, ...] = (
    Form("ldmatrix", "m8n8", "x1 x2 x4", "- trans", "b16", _75),
    Form("ldmatrix", "m16n16", "x1 x2", "trans", "b8", _SPECIFIC, rows=16),
    Form("ldmatrix", "m16n16", "x1 x2", "trans", "b8x16", _SPECIFIC, _UNPACKING, rows=16),
    Form("ldmatrix", "m8n16", "x1 x2 x4", "-", "b8x16", _SPECIFIC, _UNPACKING),
    Form("stmatrix", "m8n8", "x1 x2 x4", "- trans", "b16", _90),
    Form("stmatrix", "m16n8", "x1 x2 x4", "trans", "b8", _SPECIFIC),
    Form("movmatrix", "m8n8", "-", "trans", "b16", _75),
)

#: (mnemonic's side, shape, trans) -> lane map
_MAPS = {
    ("m8n8", ""): "move.m8n8",
    ("m8n8", "trans"): "move.m8n8.trans",
    ("m16n16", "trans"): "move.m16n16.trans",
    ("m8n16", ""): "move.m8n16",
    ("m16n8", "trans"): "move.m16n8.trans",
}
_SPACES = ("shared", "shared::cta")


@dataclass(frozen=True, repr=False)
class Movement(Instruction):
    """One ldmatrix, stmatrix or movmatrix."""

    form: Form
    #: tiles: 1, 2 or 4
    count: int
    trans: bool
    #: b6x16_p32, b4x16_p64 or ""
    source: str = ""
    #: the state space as written; "" is a generic address, which must point into shared memory
    space: str = ""

    def __str__(self) -> str:
        words = [self.form.mnemonic, "sync", "aligned", self.form.shape]
        words += [f"x{self.count}"] if self.form.counts != "-" else []
        words += ["trans"] if self.trans else []
        words += [self.space] if self.space else []
        words += [self.form.type]
        words += [self.source] if self.source else []
        return ".".join(words)

    @property
    def family(self) -> str:
        return self.form.mnemonic

    @property
    def targets(self) -> tuple[str, ...]:
        return self.form.targets

    @property
    def rows(self) -> int:
        """Rows in memory that the tiles take together; lane i addresses row i."""
        return self.form.rows * self.count

    @property
    def operands(self) -> tuple[str, ...]:
        if self.family == "movmatrix":
            return ("d", "a")
        return ("d", "p") if self.family == "ldmatrix" else ("p", "r")

    def fragment(self, operand: str) -> Fragment:
        """How lanes hold the tiles: operand d of ldmatrix, r of stmatrix, d and a of movmatrix.

        A matrix of the fragment is a tile as it lies in memory: row, then element of the row.
        """
        if operand not in self._fragments:
            raise OperandError(
                f"{self} has no fragment {operand!r}; it has {listing(self._fragments)}"
            )
        return self._fragments[operand]

    @cached_property
    def _fragments(self) -> dict[str, Fragment]:
        bits = 16 if self.form.type == "b16" else 8
        element = FORMATS["b16" if bits == 16 else "b8"]

        def make(operand: str, trans: str) -> Fragment:
            lanes = lane_map(_MAPS[self.form.shape, trans], self.count)
            return Fragment(operand, element, Place(bits, 0, bits), lanes)

        trans = "trans" if self.trans else ""
        if self.family == "movmatrix":
            return {"d": make("d", trans), "a": make("a", "")}
        operand = "d" if self.family == "ldmatrix" else "r"
        return {operand: make(operand, trans)}

    def fidelity(self, target: str | Target) -> Fidelity:
        chosen = find_target(target)
        if chosen.name not in self.targets:
            raise UnsupportedError(
                f"{self} is not available on {chosen}; its targets are {listing(self.targets, 30)}"
            )
        form = self.form
        return find_fidelity(chosen.generation, self.family, form.shape, form.type, form.type)


def movements() -> Iterator[Movement]:
    """Every form with all its modifiers, with .shared written out."""
    for form in FORMS:
        for count in form.counts.split():
            for trans in form.trans.split():
                for source in form.sources.split():
                    yield Movement(
                        form,
                        1 if count == "-" else int(count[1:]),
                        trans == "trans",
                        "" if source == "-" else source,
                        "" if form.mnemonic == "movmatrix" else "shared",
                    )


@lru_cache(maxsize=512)
def parse_movement(text: str) -> Movement:
    """The instruction that `text` names; modifiers may stand in any order.

    Raises ParseError for a word that is no modifier, UnsupportedError for no legal form.
    """
    mnemonic, *words = text.strip().split(".")
    slots: dict[str, str] = {}
    kinds = {
        "shape": r"m\d+n\d+",
        "count": r"x\d+",
        "trans": "trans",
        "space": "|".join(_SPACES),
        "type": r"b16|b8|b8x16",
        "source": r"b6x16_p32|b4x16_p64",
        "sync": "sync",
        "aligned": "aligned",
    }
    for word in words:
        kind = next((k for k, pattern in kinds.items() if re.fullmatch(pattern, word)), None)
        if kind is None:
            spelled = ["sync", "aligned", "trans", *_SPACES, "b16", "b8", "b8x16",
                       *_UNPACKING.split(), "x1", "x2", "x4"]  # fmt: skip
            raise ParseError(
                f"unknown modifier {quoted('.' + word)} in {quoted(text)}{hint(word, spelled, '.')}"
            )
        if kind in slots and kind != "sync":
            raise ParseError(
                f"{quoted(text)} has two modifiers for its {kind}: .{word} is the second"
            )
        slots[kind] = word
    for needed in ("sync", "aligned"):
        if needed not in slots:
            raise ParseError(f".{needed} is missing in {quoted(text)}")
    if "source" in slots and slots.get("type") not in words[: words.index(slots["source"])]:
        raise ParseError(f".{slots['source']} must follow .b8x16 in {quoted(text)}")
    wanted = tuple(slots.get(k, "-") for k in ("shape", "count", "trans", "type", "source"))
    for form in FORMS:
        alternatives = (form.shape, form.counts, form.trans, form.type, form.sources)
        legal = all(w in a.split() for w, a in zip(wanted, alternatives, strict=True))
        if (
            form.mnemonic == mnemonic
            and legal
            and not (mnemonic == "movmatrix" and "space" in slots)
        ):
            count = slots.get("count", "x1")
            return Movement(
                form, int(count[1:]), "trans" in slots, slots.get("source", ""),
                slots.get("space", ""),
            )  # fmt: skip
    known = [str(m) for m in movements() if m.family == mnemonic]
    raise UnsupportedError(
        f"no form of {mnemonic} is {quoted(text)}; nearest is {nearest_opcode(text, known)}; "
        f"shapes are {listing(dict.fromkeys(f.shape for f in FORMS if f.mnemonic == mnemonic))}"
    )
