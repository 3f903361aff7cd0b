"""The opcodes of wmma: their words, the instruction that they name, and the list of all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product

from emulator.isa.grammar import Grammar, Slot
from emulator.isa.search import Search
from emulator.isa.wmma import FORMS, ROUNDINGS, SPACES, TYPES, Verb, WmmaMultiply, WmmaTransfer

Wmmas = WmmaMultiply | WmmaTransfer


# --- all of them ----------------------------------------------------------------------------------


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
def _by_name() -> dict[str, dict[str, Wmmas]]:
    """Name, as wmma.load.a, -> canonical spelling -> instruction; transfers with .shared."""
    out: dict[str, dict[str, Wmmas]] = {name: {} for name in _NAMES}
    for ins in (*_multiplications(), *_transfers()):
        assert isinstance(ins, WmmaMultiply | WmmaTransfer)
        same = out[ins.name]
        known = same.setdefault(str(ins), ins)
        # Several forms load the same matrix: the one with the most targets tells them all.
        if len(ins.targets) > len(known.targets):
            same[str(ins)] = ins
    return out


def expand() -> Iterator[Wmmas]:
    """Every wmma with all its modifiers; of the state spaces, .shared."""
    every = [ins for same in _by_name().values() for ins in same.values()]
    yield from sorted(every, key=lambda ins: ins.family)


# --- words ----------------------------------------------------------------------------------------

_NAMES = ("wmma.mma", "wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.store.d")


def _grammar(name: str) -> Grammar:
    common = (
        Slot("sync", ("sync",), needed=True, repeatable=True),
        Slot("aligned", ("aligned",), needed=True),
        Slot("layout", ("row", "col"), most=2),
        Slot("shape", pattern="m{0}n{0}k{0}".format("[1-9][0-9]{0,3}"), example="m16n16k16",
             needed=True),
        Slot("types", TYPES, most=4),
    )  # fmt: skip
    own = (
        Slot("bit operation", ("xor", "and"), brings="popc"),
        Slot("popc", ("popc",), after="bit operation"),
        Slot("rounding", ROUNDINGS),
        Slot("satfinite", ("satfinite",), repeatable=True),
    )
    slots = own if name == "wmma.mma" else (Slot("space", SPACES),)
    return Grammar(name, (*common, *slots), lambda: tuple(_by_name()[name]))


_GRAMMARS = {name: _grammar(name) for name in _NAMES}


@lru_cache(maxsize=1024)
def parse(opcode: str) -> Wmmas:
    """The wmma that `opcode` names.

    After the name modifiers may stand in any order that ptxas takes: only types and layouts keep
    theirs, and .popc follows its operation. Raises ParseError for a word that is no modifier, or
    one too many or missing; UnsupportedError for no legal form.
    """
    name = next(name for name in _NAMES if opcode.startswith(f"{name}.") or opcode == name)
    words = _GRAMMARS[name].split(opcode)
    known = _by_name()[name]
    search: Search[Wmmas] = Search(opcode, name, known.values(), lambda: tuple(known))
    found = search.by_words(words, ("types", "shape", "layout"))
    if isinstance(found, WmmaTransfer):
        return replace(found, space="".join(words["space"]))
    search.by_words(words, ("bit operation", "satfinite"))
    if words["rounding"] and not search.rows[0].form.rounding:
        search.refuse("rounding", words["rounding"][0], ["none"])
    if words["rounding"] == ("rn",):  # which is meant where none is written, too
        words = {**words, "rounding": ()}
    return search.by_words(words, ("rounding",))
