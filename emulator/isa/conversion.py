"""The cvt instructions that pack matrix operands: their table, and the instruction (9.7.9.21).

Legality, targets and versions of every row were compared with ptxas of CUDA 13.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import TYPE_CHECKING

from emulator.errors import ParseError, quoted
from emulator.isa.grammar import Grammar, Slot
from emulator.isa.instruction import Form, Instruction
from emulator.isa.register_types import ANY_32, BITS, HALF, SINGLE, hexadecimal
from emulator.isa.search import Search
from emulator.isa.signature import Constants, Operand, Scope, Signature
from emulator.targets import Target, having

if TYPE_CHECKING:
    from emulator.arith.evidence import Fidelity


@dataclass(frozen=True)
class ConversionForm(Form):
    """One row: alternatives are separated by spaces; "-" writes an absent modifier."""

    #: destination and source, such as "e4m3x2" and "f32"
    to: str
    source: str
    rounding: str
    #: "-", "satfinite" or both
    saturation: str
    targets: tuple[str, ...]
    relu: bool = True
    scope: Scope = "thread"
    #: "-", "pzo" or both: a result of -0 becomes one of +0
    pzo: str = "-"
    #: block scales of ue8m0: "-", one of all elements (n1), one for each (n2)
    scaled: str = "-"
    version: str = "1.0"
    effects: str = "pure packs"


_75, _80, _89, _90, _100 = (having(f"sm_{n}") for n in (75, 80, 89, 90, 100))
_SPECIFIC = having("cvt.e2m1x2")
_S2F6, _STOCHASTIC, _PZO = having("cvt.s2f6x2"), having("cvt.rs"), having("cvt.pzo")
_OPTIONAL, _ALWAYS = "- satfinite", "satfinite"
_FP8, _FP6_FP4 = "e4m3x2 e5m2x2", "e2m3x2 e3m2x2 e2m1x2"
_SMALL = f"{_FP8} {_FP6_FP4}"
_WIDER = "f32 f16x2 bf16x2"
_ONE, _EACH = "scaled::n1::ue8m0", "scaled::n2::ue8m0"
#: as they go with a block scale
_SCALES = {"": "", _ONE: "b8", _EACH: "b16"}

FORMS: tuple[ConversionForm, ...] = (
    ConversionForm("f16x2 bf16x2 bf16", "f32", "rn rz", _OPTIONAL, _80, version="7.0"),
    ConversionForm("f16", "f32", "rn rz", _OPTIONAL, _75, relu=False, version="1.0"),
    ConversionForm("f16", "f32", "rn rz", _OPTIONAL, _80, version="7.0"),
    ConversionForm("f16x2 bf16x2", "f32", "rs", _OPTIONAL, _STOCHASTIC, version="8.7"),
    ConversionForm("tf32", "f32", "rna", _OPTIONAL, _80, relu=False, version="7.0"),
    ConversionForm("tf32", "f32", "rn rz", "-", _90, version="7.8"),
    ConversionForm("tf32", "f32", "rn rz", _ALWAYS, _100, version="8.6"),
    ConversionForm("f16 bf16 f16x2 bf16x2 tf32", "f32", "rn rz", _OPTIONAL, _PZO,
                   pzo="pzo", version="9.4"),
    ConversionForm(_FP8, "f32 f16x2", "rn", _ALWAYS, _89, version="8.1"),
    ConversionForm("f16x2", _FP8, "rn", "-", _89, version="8.1"),
    ConversionForm(_FP6_FP4, "f32", "rn", _ALWAYS, _SPECIFIC, version="8.6"),
    ConversionForm("f16x2", _FP6_FP4, "rn", "-", _SPECIFIC, version="8.6"),
    ConversionForm(_FP8, "bf16x2", "rn", _ALWAYS, _SPECIFIC, version="9.1"),
    ConversionForm(_FP6_FP4, "f16x2 bf16x2", "rn", _ALWAYS, _SPECIFIC, version="9.1"),
    ConversionForm("bf16x2", _SMALL, "rn", _OPTIONAL, _SPECIFIC, scaled=f"- {_EACH}",
                   version="9.2"),
    ConversionForm(_SMALL, _WIDER, "rz", _ALWAYS, _PZO, pzo="- pzo", scaled=f"- {_ONE}",
                   version="9.4"),
    ConversionForm(_SMALL, _WIDER, "rn", _ALWAYS, _PZO, pzo="pzo", scaled=f"- {_ONE}",
                   version="9.4"),
    ConversionForm(_SMALL, _WIDER, "rn", _ALWAYS, _PZO, scaled=_ONE, version="9.4"),
    ConversionForm("ue8m0x2", "f32 bf16x2", "rz rp", _OPTIONAL, _SPECIFIC, relu=False,
                   version="8.6"),
    ConversionForm("bf16x2", "ue8m0x2", "rn", "-", _SPECIFIC, relu=False, version="8.6"),
    ConversionForm("ue5m3x2", _WIDER, "rn rz rp", _OPTIONAL, _PZO, relu=False, version="9.4"),
    ConversionForm("ue5m3x2", _WIDER, "rn rz", _OPTIONAL, _PZO, relu=False, scaled=_ONE,
                   version="9.4"),
    ConversionForm("f16x2", "ue5m3x2", "rn", "-", _PZO, relu=False, version="9.4"),
    ConversionForm("bf16x2", "ue5m3x2", "rn", _OPTIONAL, _PZO, relu=False, scaled=f"- {_EACH}",
                   version="9.4"),
    ConversionForm("s2f6x2", "f32 bf16x2", "rn", _ALWAYS, _S2F6, scaled=f"- {_EACH}",
                   version="9.1"),
    ConversionForm("s2f6x2", "f32 bf16x2", "rz", _ALWAYS, having("cvt.rz.s2f6x2"),
                   scaled=f"- {_EACH}", version="9.4"),
    ConversionForm("bf16x2", "s2f6x2", "rn", _OPTIONAL, _S2F6, scaled=f"- {_EACH}",
                   version="9.1"),
    ConversionForm("e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4", "f32", "rs", _ALWAYS, _STOCHASTIC,
                   version="8.7"),
)  # fmt: skip

_ROUNDINGS = ("rn", "rz", "rna", "rs", "rp", "rm")
_TYPE = re.compile(r"(?P<name>[a-z]+\d+(?:[mf]\d)?)(?:x(?P<count>[24]))?")


def split_type(text: str) -> tuple[str, int]:
    """Element format and number of elements of a type: ``e4m3x2`` is ("e4m3", 2)."""
    match = _TYPE.fullmatch(text)
    assert match is not None
    return match["name"], int(match["count"] or 1)


@dataclass(frozen=True, repr=False)
class Conversion(Instruction):
    """One cvt that packs or unpacks elements of matrix operands."""

    form: ConversionForm
    to: str
    source: str
    rounding: str
    satfinite: bool
    relu: bool
    pzo: bool = False
    #: the words of a block scale, "" without one
    scaled: str = ""

    @property
    def name(self) -> str:
        return "cvt"

    @cached_property
    def opcode_words(self) -> dict[str, str]:
        # The manual writes .relu last, except where .satfinite is optional.
        flags = ("satfinite", "relu")[:: 1 if self.form.saturation == _ALWAYS else -1]
        return {
            "rounding": self.rounding,
            **{flag: flag if getattr(self, flag) else "" for flag in flags},
            "pzo": "pzo" if self.pzo else "",
            "scaled": self.scaled,
            "types": f"{self.to}.{self.source}",
        }

    @property
    def family(self) -> str:
        return "cvt"

    @property
    def sources(self) -> int:
        """f32 operands that the result packs; 1 for a packed source."""
        return split_type(self.to)[1] if self.source == "f32" else 1

    @property
    def ptx_version(self) -> tuple[int, int]:
        # .satfinite is younger than the conversions to 16 bits.
        later = (8, 1) if self.satfinite and self.form.saturation == _OPTIONAL else (1, 0)
        return max(super().ptx_version, later)

    @property
    def takes_random_bits(self) -> bool:
        """.rs: the last operand holds random bits."""
        return self.rounding == "rs"

    @cached_property
    def _signature(self) -> Signature:
        names = tuple("abef"[: self.sources]) if self.sources > 1 else ("a",)
        types = _source_types(self)
        # ptxas turns a decimal into an f32 for every conversion of f32 but that to tf32.
        decimals = self.source == "f32" and self.to != "tf32"
        constants: Constants = "values" if decimals else hexadecimal(types)
        sources = [Operand(name, "register", types, constants=constants) for name in names]
        if split_type(self.to)[1] == 4:
            sources = [
                Operand(
                    "".join(names), "vector", types, len(names), constants=constants,
                    parts=tuple(sources),
                )
            ]  # fmt: skip
        if self.takes_random_bits:
            sources.append(Operand("rbits", "register", BITS))
        if self.scaled:
            sources.append(Operand("scale", "register", (_SCALES[self.scaled],)))
        d = Operand("d", "register", _destination_types(self), use="written")
        return Signature((d, *sources), self.scope)

    # --- what `emulator.arith.scalar` asks of an instruction ---

    @property
    def rule(self) -> str:
        return "packing.elements"

    @property
    def types(self) -> tuple[str, ...]:
        return self.to, self.source

    @property
    def modifiers(self) -> dict[str, str]:
        flags = {"relu": self.relu, "satfinite": self.satfinite, "pzo": self.pzo}
        given = {name: name for name, is_given in flags.items() if is_given}
        return {"rounding": self.rounding, "scaled": self.scaled, **given}

    def fidelity(self, target: str | Target) -> Fidelity:
        from emulator.arith.evidence import find_fidelity

        chosen = self.check_target(target)
        return find_fidelity(chosen.generation, "cvt", str(self))


# --- register types -------------------------------------------------------------------------------

#: destination or packed source of cvt -> what its register may be; a wider one is zero-extended
_PACKED = {
    "f16": ("b16", "f16", "b32", "b64"), "bf16": ("b16",), "tf32": BITS,
    "f16x2": HALF, "bf16x2": BITS,
    "e4m3x2": ("b16",), "e5m2x2": ("b16",), "e2m3x2": ("b16",), "e3m2x2": ("b16",),
    "e2m1x2": ("b8",), "ue8m0x2": ("b16",), "ue5m3x2": ("b16",), "s2f6x2": ("b16",),
    "e4m3x4": BITS, "e5m2x4": BITS, "e2m3x4": BITS, "e3m2x4": BITS, "e2m1x4": ("b16",),
}  # fmt: skip


def _source_types(ins: Conversion) -> tuple[str, ...]:
    if ins.source == "f32":
        # f32 sources of a conversion to f16 may be wider than they are: the low half counts.
        return (*SINGLE, "b64") if split_type(ins.to)[0] == "f16" else SINGLE
    if ins.source == "bf16x2" and (ins.to == "e2m1x2" or ins.scaled == _ONE):
        return ANY_32
    return _PACKED[ins.source]


def _destination_types(ins: Conversion) -> tuple[str, ...]:
    types = _PACKED[ins.to]
    return (*types, "b64") if (ins.to, ins.source) == ("f16x2", "f32") else types


# --- opcodes --------------------------------------------------------------------------------------


def expand() -> Iterator[Conversion]:
    """Every conversion of the table."""
    seen = set()
    for form in FORMS:
        choices = (form.to, form.source, form.rounding, form.saturation, form.pzo, form.scaled)
        for to, source, rounding, saturation, pzo, scaled in product(*(x.split() for x in choices)):
            for relu in (False, True)[: 1 + form.relu]:
                out = Conversion(
                    form,
                    to,
                    source,
                    rounding,
                    saturation != "-",
                    relu,
                    pzo != "-",
                    scaled.strip("-"),
                )
                if str(out) not in seen:
                    seen.add(str(out))
                    yield out


@lru_cache(maxsize=1)
def _all() -> tuple[Conversion, ...]:
    return tuple(expand())


def _spelled() -> tuple[str, ...]:
    return tuple(map(str, _all()))


_TYPES = tuple(dict.fromkeys(x for form in FORMS for x in f"{form.to} {form.source}".split()))
_GRAMMAR = Grammar(
    "cvt",
    (
        Slot("rounding", _ROUNDINGS),
        Slot("relu", ("relu",), repeatable=True),
        Slot("satfinite", ("satfinite",), repeatable=True),
        Slot("pzo", ("pzo",)),
        Slot("scaled", (_ONE, _EACH)),
        Slot("types", _TYPES, most=2),
    ),
    _spelled,
)
#: words of the cvts between numbers, which this table has not
_ORDINARY = re.compile(r"[us](8|16|32|64)|f(16|32|64)|bf16|r[nzmp]i?|ftz|sat")


@lru_cache(maxsize=512)
def parse(opcode: str) -> Conversion:
    """The conversion that `opcode` names.

    Raises ParseError for a word that is no modifier, UnsupportedError for no form of the table.
    """
    if len(opcode.split(".")) > 2 and all(map(_ORDINARY.fullmatch, opcode.split(".")[1:])):
        ordinary = [word for word in opcode.split(".")[1:] if _GRAMMAR.slot_of(word) is None]
        if ordinary:
            raise ParseError(f"{quoted(opcode)} converts numbers: no matrix operands are packed")
    words = _GRAMMAR.split(opcode)
    if len(words["types"]) != 2:
        raise ParseError(f"{quoted(opcode)} must name two types: destination, then source")
    to, source = words["types"]
    search = Search(opcode, "cvt", _all(), lambda: [str(x) for x in search.rows])
    search.keep_equal("destination", to, lambda x: x.to)
    search.keep_equal(f"source of {to}", source, lambda x: x.source)
    return search.by_words(words, ("rounding", "satfinite", "relu", "pzo", "scaled"))
