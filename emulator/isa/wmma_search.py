"""Finds the wmma instruction that an opcode names, and lists all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product

from emulator.errors import (
    ParseError,
    UnsupportedError,
    hint,
    listing,
    nearest_opcode,
    quoted,
)
from emulator.isa.wmma import FORMS, ROUNDINGS, SPACES, TYPES, Verb, WmmaMultiply, WmmaTransfer


def _sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = (int(x) for x in re.findall(r"\d+", shape))
    return m, n, k


def _multiplications() -> Iterator[WmmaMultiply]:
    for form in FORMS:
        for shape, type_, dc, layouts, satfinite, rounding in product(
            form.shapes.split(),
            form.types.split(),
            form.dc.split(),
            form.layouts.split(),
            (False, True)[: 1 + form.satfinite],
            ROUNDINGS if form.rounding else ROUNDINGS[:1],
        ):
            d, c = dc.split(".")
            a, b = layouts.split(".")
            yield WmmaMultiply(form, *_sizes(shape), d, type_, c, (a, b), satfinite, rounding)


def _transfers() -> Iterator[WmmaTransfer]:
    """Every load and store, some of them for several forms."""
    for form in FORMS:
        layouts = [pair.split(".") for pair in form.layouts.split()]
        accumulators = f"{form.dc} {form.moved}".replace(".", " ").split()
        either = ["row", "col"]
        moves: tuple[tuple[Verb, str, list[str], list[str]], ...] = (
            ("load", "a", form.types.split(), [a for a, _ in layouts]),
            ("load", "b", form.types.split(), [b for _, b in layouts]),
            ("load", "c", accumulators, either),
            ("store", "d", accumulators, either),
        )
        for verb, matrix, types, legal in moves:
            for shape, type_, layout in product(form.shapes.split(), types, legal):
                yield WmmaTransfer(form, verb, matrix, *_sizes(shape), layout, type_, "shared")


@lru_cache(maxsize=1)
def _by_opcode() -> dict[str, WmmaMultiply | WmmaTransfer]:
    """Every instruction by its canonical spelling; transfers with .shared written out."""
    out: dict[str, WmmaMultiply | WmmaTransfer] = {}
    for ins in (*_multiplications(), *_transfers()):
        assert isinstance(ins, WmmaMultiply | WmmaTransfer)
        known = out.setdefault(str(ins), ins)
        if len(ins.targets) > len(known.targets):
            out[str(ins)] = ins
    return out


def wmma_instructions() -> Iterator[WmmaMultiply | WmmaTransfer]:
    """Every wmma with all its modifiers; of the state spaces, .shared."""
    yield from sorted(_by_opcode().values(), key=lambda ins: ins.family)


#: what a word may be, in the order of the canonical spelling
_WORDS = {
    "bit operation": r"xor|and",
    "popc": "popc",
    "sync": "sync",
    "aligned": "aligned",
    "layout": "row|col",
    "shape": r"m[1-9]\d{0,3}n[1-9]\d{0,3}k[1-9]\d{0,3}",
    "space": "|".join(SPACES),
    "rounding": "|".join(ROUNDINGS),
    "type": "|".join(TYPES),
    "satfinite": "satfinite",
}
_NAMES = ("wmma.mma", "wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.store.d")
_REPEATABLE = ("sync", "satfinite")


@lru_cache(maxsize=1024)
def parse_wmma(text: str) -> WmmaMultiply | WmmaTransfer:
    """The wmma that `text` names.

    After the name modifiers may stand in any order that ptxas takes: only types and layouts keep
    theirs, and .popc follows its operation. Raises ParseError for a word that is no modifier, or
    one too many or missing; UnsupportedError for no legal form.
    """
    words = text.strip().split(".")
    name = ".".join(words[: 2 if words[1:2] == ["mma"] else 3])
    if name not in _NAMES:
        raise ParseError(
            f"no instruction is {quoted(name)}; names are {listing(_NAMES)}{hint(name, _NAMES)}"
        )
    found = _sort(text, words[name.count(".") + 1 :])
    for needed in ("sync", "aligned", "shape"):
        if not found[needed]:
            raise ParseError(f".{needed} is missing in {quoted(text)}")
    for word in _REPEATABLE:
        found[word] = found[word][:1]
    space, nearest_even = "".join(found["space"]), found["rounding"] == ["rn"]
    if name != "wmma.mma":
        found["space"] = ["shared"]
    if nearest_even:
        found["rounding"] = []
    canonical = ".".join([name, *(word for given in found.values() for word in given)])
    known = _by_opcode()
    ins = known.get(canonical)
    rounds = isinstance(ins, WmmaMultiply) and ins.form.rounding
    if ins is None or (nearest_even and not rounds):
        like = [opcode for opcode in known if opcode.startswith(f"{name}.")]
        shapes = dict.fromkeys(known[opcode].shape for opcode in like)
        raise UnsupportedError(
            f"no form of {name} is {quoted(text)}; nearest is {nearest_opcode(canonical, like)}; "
            f"shapes are {listing(shapes)}"
        )
    return replace(ins, space=space) if isinstance(ins, WmmaTransfer) else ins


def _sort(text: str, words: list[str]) -> dict[str, list[str]]:
    """`words` by their kind, in the order of _WORDS."""
    found: dict[str, list[str]] = {kind: [] for kind in _WORDS}
    for word in words:
        kind = next((k for k, pattern in _WORDS.items() if re.fullmatch(pattern, word)), None)
        if kind is None:
            spelled = [w for p in _WORDS.values() if "[" not in p for w in p.split("|")]
            raise ParseError(
                f"unknown modifier {quoted('.' + word)} in {quoted(text)}{hint(word, spelled, '.')}"
            )
        if kind == "popc" and not found["bit operation"]:
            raise ParseError(f".popc without .xor or .and before it, in {quoted(text)}")
        # Layouts and types are several; which number is legal depends on the form.
        if found[kind] and kind not in ("layout", "type", *_REPEATABLE):
            raise ParseError(
                f"{quoted(text)} has two modifiers for its {kind}: .{word} is the second"
            )
        found[kind].append(word)
    return found
