"""The cvt instructions that pack matrix operands: their table, and the instruction (9.7.9.21).

Legality and targets of every row were compared with ptxas of CUDA 13.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from emulator.arith.evidence import Fidelity, find_fidelity
from emulator.errors import ParseError, UnsupportedError, hint, listing, nearest_opcode, quoted
from emulator.isa.instruction import Instruction
from emulator.targets import Target, find_target, select


@dataclass(frozen=True)
class Form:
    """One row: alternatives are separated by spaces; "-" writes an absent modifier."""

    #: destination and source, such as "e4m3x2" and "f32"
    to: str
    source: str
    rounding: str
    #: "-", "satfinite" or both
    saturation: str
    targets: tuple[str, ...]
    relu: bool = True


_75, _80, _89, _90, _100 = (select(since=n) for n in (75, 80, 89, 90, 100))
_SPECIFIC = select(since=100, specific=True)
_STOCHASTIC = select(only="100a 103a")
_OPTIONAL, _ALWAYS = "- satfinite", "satfinite"
_FP8, _FP6_FP4 = "e4m3x2 e5m2x2", "e2m3x2 e3m2x2 e2m1x2"

FORMS: tuple[Form, ...] = (
    Form("f16x2 bf16x2 bf16", "f32", "rn rz", _OPTIONAL, _80),
    Form("f16", "f32", "rn rz", _OPTIONAL, _75, relu=False),
    Form("f16", "f32", "rn rz", _OPTIONAL, _80),
    Form("f16x2 bf16x2", "f32", "rs", _OPTIONAL, _STOCHASTIC),
    Form("tf32", "f32", "rna", _OPTIONAL, _80, relu=False),
    Form("tf32", "f32", "rn rz", "-", _90),
    Form("tf32", "f32", "rn rz", _ALWAYS, _100),
    Form(_FP8, "f32 f16x2", "rn", _ALWAYS, _89),
    Form("f16x2", _FP8, "rn", "-", _89),
    Form(_FP6_FP4, "f32", "rn", _ALWAYS, _SPECIFIC),
    # The manual has this one from PTX 9.1 on, with fp6 and bf16x2 beside it; ptxas 13.0 takes it.
    Form("e2m1x2", "f16x2", "rn", _ALWAYS, _SPECIFIC),
    Form("f16x2", _FP6_FP4, "rn", "-", _SPECIFIC),
    Form("ue8m0x2", "f32 bf16x2", "rz rp", _OPTIONAL, _SPECIFIC, relu=False),
    Form("bf16x2", "ue8m0x2", "rn", "-", _SPECIFIC, relu=False),
    Form("e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4", "f32", "rs", _ALWAYS, _STOCHASTIC),
)

_ROUNDINGS = ("rn", "rz", "rna", "rs", "rp", "rm")
_TYPE = re.compile(r"(?P<name>[a-z]+\d+(?:m\d)?)(?:x(?P<count>[24]))?")


def split_type(text: str) -> tuple[str, int]:
    """Element format and number of elements of a type: ``e4m3x2`` is ("e4m3", 2)."""
    match = _TYPE.fullmatch(text)
    assert match is not None
    return match["name"], int(match["count"] or 1)


@dataclass(frozen=True, repr=False)
class Conversion(Instruction):
    """One cvt that packs or unpacks elements of matrix operands."""

    form: Form
    to: str
    source: str
    rounding: str
    satfinite: bool
    relu: bool

    def __str__(self) -> str:
        words = ["cvt", self.rounding]
        # The manual writes .relu last, except where .satfinite is optional.
        pair = [w for w, yes in (("relu", self.relu), ("satfinite", self.satfinite)) if yes]
        return ".".join([*words, *(pair if self.form.saturation != _ALWAYS else pair[::-1]),
                         self.to, self.source])  # fmt: skip

    @property
    def family(self) -> str:
        return "cvt"

    @property
    def targets(self) -> tuple[str, ...]:
        return self.form.targets

    @property
    def sources(self) -> int:
        """f32 operands that the result packs; 1 for a packed source."""
        return split_type(self.to)[1] if self.source == "f32" else 1

    @property
    def takes_random_bits(self) -> bool:
        """.rs: the last operand holds random bits."""
        return self.rounding == "rs"

    @property
    def operands(self) -> tuple[str, ...]:
        """Operand names in PTX order, after d."""
        names = tuple("abef"[: self.sources]) if self.sources > 1 else ("a",)
        return ("d", *names, *(["rbits"] if self.takes_random_bits else []))

    def fidelity(self, target: str | Target) -> Fidelity:
        chosen = find_target(target)
        if chosen.name not in self.targets:
            raise UnsupportedError(
                f"{self} is not available on {chosen}; its targets are {listing(self.targets, 30)}"
            )
        return find_fidelity(chosen.generation, "cvt", a=self.source, d=self.to)


def conversions() -> Iterator[Conversion]:
    """Every conversion of the table."""
    seen = set()
    for form in FORMS:
        for to in form.to.split():
            for source in form.source.split():
                for rounding in form.rounding.split():
                    for saturation in form.saturation.split():
                        for relu in (False, True)[: 1 + form.relu]:
                            out = Conversion(form, to, source, rounding, saturation != "-", relu)
                            if str(out) not in seen:
                                seen.add(str(out))
                                yield out


@lru_cache(maxsize=512)
def parse_conversion(text: str) -> Conversion:
    """The conversion that `text` names.

    Raises ParseError for a word that is no modifier, UnsupportedError for no form of the table.
    """
    types = [t for f in FORMS for t in (*f.to.split(), *f.source.split())]
    words = text.strip().split(".")[1:]
    found: dict[str, list[str]] = {"rounding": [], "relu": [], "satfinite": [], "type": []}
    for word in words:
        kind = "rounding" if word in _ROUNDINGS else word
        kind = "type" if word in types else kind
        if kind not in found:
            spelled = [*_ROUNDINGS, "relu", "satfinite", *types]
            raise ParseError(
                f"unknown modifier {quoted('.' + word)} in {quoted(text)}{hint(word, spelled, '.')}"
            )
        found[kind].append(word)
    for kind, given in found.items():
        if len(given) > (2 if kind == "type" else 1):
            raise ParseError(f"{quoted(text)} has more than one {kind}: {', '.join(given)}")
    if len(found["type"]) != 2:
        raise ParseError(f"{quoted(text)} must name two types: destination, then source")
    to, source = found["type"]
    rounding = found["rounding"][0] if found["rounding"] else "-"
    for conversion in conversions():
        if (
            (conversion.to, conversion.source, conversion.rounding) == (to, source, rounding)
            and conversion.satfinite == bool(found["satfinite"])
            and conversion.relu == bool(found["relu"])
        ):
            return conversion
    known = [str(c) for c in conversions()]
    alike = [s for s in known if s.endswith(f".{to}.{source}")]
    raise UnsupportedError(
        f"no cvt {quoted(text)}; nearest is {nearest_opcode(text, alike or known)}; "
        f"from {source} to {to} "
        f"there are {listing(alike) or 'none'}"
    )
