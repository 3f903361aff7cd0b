"""The words of an opcode: splits ``mma.sync.aligned…`` into slots, in any order ptxas takes.

Measured on ptxas of CUDA 13.0: the modifiers form a set, with three exceptions. The types keep
their order, ``.row``/``.col`` are A's then B's, and the bit operation precedes ``.popc``. Writing
``.sync`` or ``.satfinite`` twice is accepted; any other repetition is not.

``.sp`` belongs to the name, ``mma.sp``. ptxas takes it anywhere; here it may stand elsewhere only
in an opcode with a ``.kind``, which is how CUTLASS spells those.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from emulator.errors import ParseError, hint, quoted
from emulator.isa.table import FORMS

SHAPE = re.compile(r"m{0}n{0}k{0}".format("(?:0|[1-9][0-9]{0,3})"))
ROUNDINGS = ("rn", "rz", "rm", "rp")
TYPES = tuple(
    dict.fromkeys(
        t
        for f in FORMS
        for t in f"{f.a} {f.b} {f.dc} {f.scales}".replace(".", " ").split()
        if not t.endswith("X")
    )
)
SPARSE = {"sp": "plain", "sp::ordered_metadata": "ordered"}
KINDS = ("f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4")
SCALE_VECS = ("1X", "2X", "4X")
_REPEATABLE = ("sync", "satfinite")

#: what a word may look like, for the error message of an unknown one
VOCABULARY = (
    "sync", "aligned", "row", "col", "satfinite", "popc", "xor", "and", "block_scale",
    *SPARSE, *ROUNDINGS, *TYPES, *(f"kind::{k}" for k in KINDS),
    *(f"scale_vec::{v}" for v in SCALE_VECS),
)  # fmt: skip


@dataclass
class Slots:
    """The modifiers of one opcode, sorted into what they mean."""

    mnemonic: str
    words: set[str] = field(default_factory=set)
    shape: str = ""
    types: list[str] = field(default_factory=list)
    layouts: list[str] = field(default_factory=list)
    sparse: str = ""
    kind: str = ""
    scale_vec: str = ""
    rounding: str = ""
    bit_operation: str = ""


def split(opcode: str) -> Slots:
    """Slots of `opcode`; raises ParseError for a word that is none, or one word too many."""
    mnemonic, *words = opcode.strip().split(".")
    slots = Slots(mnemonic)
    if mnemonic == "wgmma" and words[:1] != ["mma_async"]:
        raise ParseError(f"the name is wgmma.mma_async; got {quoted(opcode)}")
    name = words[: mnemonic == "wgmma"]
    for word in words[len(name) :]:
        _place(slots, word, opcode)
    if slots.sparse and not slots.kind and not words[len(name)].startswith("sp"):
        raise ParseError(
            f".sp is part of the name: write {'.'.join([mnemonic, *name])}.sp… instead of "
            f"{quoted(opcode)} (ptxas takes it in other places too)"
        )
    if slots.bit_operation and "popc" not in slots.words:
        raise ParseError(f".{slots.bit_operation} needs .popc after it, in {quoted(opcode)}")
    return slots


def _place(slots: Slots, word: str, opcode: str) -> None:
    name, _, value = word.partition("::")
    if SHAPE.fullmatch(word):
        _once(slots, "shape", word, opcode)
    elif word in TYPES:
        slots.types.append(word)
    elif word in ("row", "col"):
        slots.layouts.append(word)
    elif word in SPARSE:
        _once(slots, "sparse", SPARSE[word], opcode)
    elif name == "kind" and value in KINDS:
        _once(slots, "kind", value, opcode)
    elif name == "scale_vec" and value in SCALE_VECS:
        _once(slots, "scale_vec", value, opcode)
    elif word in ROUNDINGS:
        _once(slots, "rounding", word, opcode)
    elif word in ("xor", "and"):
        _once(slots, "bit_operation", word, opcode)
    elif word == "popc" and not slots.bit_operation:
        raise ParseError(f".popc without .xor or .and before it, in {quoted(opcode)}")
    elif word in ("sync", "aligned", "satfinite", "block_scale", "popc"):
        if word in slots.words and word not in _REPEATABLE:
            raise ParseError(f".{word} is written twice in {quoted(opcode)}")
        slots.words.add(word)
    else:
        raise ParseError(
            f"unknown modifier {quoted('.' + word)} in {quoted(opcode)}"
            f"{hint(word, VOCABULARY, '.')}"
        )


def _once(slots: Slots, slot: str, value: str, opcode: str) -> None:
    if getattr(slots, slot):
        raise ParseError(
            f"{quoted(opcode)} has two modifiers for its {slot}: a second one is {value!r}"
        )
    setattr(slots, slot, value)
