"""ldmatrix, stmatrix and movmatrix: the table of their forms, and the instruction (9.7.14.5.15-17).

They move 8×8, 16×16, 8×16 or 16×8 tiles between rows of shared memory and lane registers. A form
names the lane map of its registers; ROW and COL of the map are a row in memory and an element of
that row, GROUP is the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from dtypes import FORMATS, Place
from emulator.isa.grammar import Grammar, Slot
from emulator.isa.instruction import Form, Instruction, version_numbers
from emulator.isa.register_types import ADDRESS, ANY_32, WIDE_ADDRESS, hexadecimal
from emulator.isa.search import Search
from emulator.isa.signature import Operand, Scope, Signature
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import lane_map
from emulator.targets import Target, having

if TYPE_CHECKING:
    from emulator.arith.evidence import Fidelity

#: bytes of one row in memory, the granule of every address
ROW_BYTES = 16


@dataclass(frozen=True)
class MovementForm(Form):
    """One row: alternatives are separated by spaces, an empty one is written as "-"."""

    mnemonic: Literal["ldmatrix", "stmatrix", "movmatrix"]
    #: in PTX order: [an address], {registers}, one register
    operands: str
    shape: str
    #: x1 x2 x4: tiles moved
    counts: str
    #: "-", "trans": which of them are legal
    trans: str
    #: type of the elements in registers
    type: str
    targets: tuple[str, ...]
    #: formats of the rows in memory that are unpacked on the way
    sources: str = "-"
    #: rows of a tile in memory
    rows: int = 8
    scope: Scope = "warp"
    #: the PTX version that introduced it
    version: str = "8.6"
    effects: str = "reads"


_75, _90 = having("sm_75"), having("sm_90")
_BYTES = having("ldmatrix.b8")
_UNPACKING = "b6x16_p32 b4x16_p64"

_LOAD, _STORE, _MOVE = "{d} [p]", "[p] {r}", "d a"

FORMS: tuple[MovementForm, ...] = (
    MovementForm("ldmatrix", _LOAD, "m8n8", "x1 x2 x4", "- trans", "b16", _75, version="6.5"),
    MovementForm("ldmatrix", _LOAD, "m16n16", "x1 x2", "trans", "b8", _BYTES, rows=16),
    MovementForm("ldmatrix", _LOAD, "m16n16", "x1 x2", "trans", "b8x16", _BYTES, _UNPACKING,
                 rows=16),
    MovementForm("ldmatrix", _LOAD, "m8n16", "x1 x2 x4", "-", "b8x16", _BYTES, _UNPACKING),
    MovementForm("ldmatrix", _LOAD, "m8n16", "x1 x2 x4", "-", "s8", having("ldmatrix.s8"), "s4",
                 version="9.4"),
    MovementForm("stmatrix", _STORE, "m8n8", "x1 x2 x4", "- trans", "b16", _90, version="7.8",
                 effects="writes"),
    MovementForm("stmatrix", _STORE, "m16n8", "x1 x2 x4", "trans", "b8", _BYTES, effects="writes"),
    MovementForm("movmatrix", _MOVE, "m8n8", "-", "trans", "b16", _75, version="7.8",
                 effects="lanes"),
)  # fmt: skip

#: (shape, trans) -> lane map
_MAPS = {
    ("m8n8", ""): "move.m8n8",
    ("m8n8", "trans"): "move.m8n8.trans",
    ("m16n16", "trans"): "move.m16n16.trans",
    ("m8n16", ""): "move.m8n16",
    ("m16n8", "trans"): "move.m16n8.trans",
}


class Packed(NamedTuple):
    """Rows in memory whose elements are unpacked on the way: 16 of them, and then padding."""

    #: of an element
    bits: int
    #: extended by its sign, not with zeros
    signed: bool = False


#: Their order, lowest bits first, and the padding of s4 are UNVERIFIED.
PACKED = {"b6x16_p32": Packed(6), "b4x16_p64": Packed(4), "s4": Packed(4, signed=True)}

#: state spaces, and the PTX versions that introduced them
_SPACES = {"shared": "1.0", "shared::cta": "7.8"}


@dataclass(frozen=True, repr=False)
class Movement(Instruction):
    """One ldmatrix, stmatrix or movmatrix."""

    form: MovementForm
    #: tiles: 1, 2 or 4
    count: int
    trans: bool
    #: b6x16_p32, b4x16_p64, s4 or ""
    source: str = ""
    #: the state space as written; "" is a generic address, which must point into shared memory
    space: str = ""

    @property
    def name(self) -> str:
        return self.form.mnemonic

    @cached_property
    def opcode_words(self) -> dict[str, str]:
        return {
            "sync": "sync",
            "aligned": "aligned",
            "shape": self.form.shape,
            "count": "" if self.form.counts == "-" else f"x{self.count}",
            "trans": "trans" if self.trans else "",
            "space": self.space,
            "type": self.form.type,
            "source": self.source,
        }

    @property
    def family(self) -> str:
        return self.form.mnemonic

    @property
    def ptx_version(self) -> tuple[int, int]:
        return max(super().ptx_version, version_numbers(_SPACES.get(self.space, "1.0")))

    @property
    def rows(self) -> int:
        """Rows in memory that the tiles take together; lane i addresses row i."""
        return self.form.rows * self.count

    @cached_property
    def _signature(self) -> Signature:
        return Signature(tuple(map(self._operand, self.form.operands.split())), self.scope)

    def _operand(self, text: str) -> Operand:
        """An operand as the table writes it."""
        name = text.strip("[]{}")
        if text.startswith("["):
            if self.space:
                return Operand(name, "address", ADDRESS, space="shared")
            return Operand(name, "address", WIDE_ADDRESS)
        count = self.fragment(name).registers
        if name == "d":
            kind: Literal["vector", "register"] = "vector" if text.startswith("{") else "register"
            return Operand(name, kind, ANY_32, count, "written", sink=kind == "vector")
        if text.startswith("{"):
            return Operand(name, "vector", ANY_32, count, constants="words")
        return Operand(name, "register", ANY_32, constants=hexadecimal(ANY_32))

    @cached_property
    def fragments(self) -> dict[str, Fragment]:
        """The tiles: operand d of ldmatrix, r of stmatrix, d and a of movmatrix.

        A matrix of a fragment is a tile as it lies in memory: row, then element of the row.
        """
        bits = 16 if self.form.type == "b16" else 8
        element = FORMATS["b16" if bits == 16 else "b8"]

        def make(operand: str, trans: str) -> Fragment:
            lanes = lane_map(_MAPS[self.form.shape, trans], self.count)
            return Fragment(operand, element, Place(bits, 0, bits), lanes)

        trans = "trans" if self.trans else ""
        held = [text.strip("{}") for text in self.form.operands.split() if "[" not in text]
        return {name: make(name, "" if name == "a" else trans) for name in held}

    def fidelity(self, target: str | Target) -> Fidelity:
        from emulator.arith.evidence import find_fidelity

        chosen, form = self.check_target(target), self.form
        return find_fidelity(chosen.generation, self.family, str(self), form.shape)


# --- opcodes --------------------------------------------------------------------------------------


def expand() -> Iterator[Movement]:
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
                        "shared" if "[" in form.operands else "",
                    )


def _words(field: str, mnemonic: str) -> tuple[str, ...]:
    """Every word that the rows of an instruction have in a field."""
    rows = [str(getattr(form, field)).split() for form in FORMS if form.mnemonic == mnemonic]
    return tuple(dict.fromkeys(word for row in rows for word in row if word != "-"))


def _grammar(mnemonic: str) -> Grammar:
    has_address = any("[" in form.operands for form in FORMS if form.mnemonic == mnemonic)
    slots = (
        Slot("sync", ("sync",), needed=True, repeatable=True),
        Slot("aligned", ("aligned",), needed=True),
        Slot("shape", pattern=r"m[0-9]+n[0-9]+", example="m8n8", needed=True),
        Slot("count", pattern=r"x[0-9]+", example="x4"),
        Slot("trans", ("trans",)),
        *([Slot("space", tuple(_SPACES))] if has_address else []),
        Slot("type", _words("type", mnemonic), needed=True),
        Slot("source", _words("sources", mnemonic), after="type"),
        # Layouts are words of mma, of which ptxas makes the same code.
        Slot("layout", ("row", "col"), most=2),
    )
    return Grammar(mnemonic, slots, lambda: _spelled(mnemonic))


def _spelled(mnemonic: str) -> tuple[str, ...]:
    return tuple(str(ins) for ins in expand() if ins.family == mnemonic)


_GRAMMARS = {form.mnemonic: _grammar(form.mnemonic) for form in FORMS}


@lru_cache(maxsize=512)
def parse(opcode: str) -> Movement:
    """The instruction that `opcode` names; modifiers may stand in any order.

    Raises ParseError for a word that is no modifier, UnsupportedError for no legal form.
    """
    mnemonic = opcode.split(".")[0]
    words = _GRAMMARS[mnemonic].split(opcode)  # type: ignore[index]
    rows = [ins for ins in expand() if ins.family == mnemonic]
    search = Search(opcode, mnemonic, rows, lambda: _spelled(mnemonic))
    found = search.by_words(words, ("shape", "type", "count", "trans", "source"))
    return replace(found, space="".join(words.get("space", ())))
