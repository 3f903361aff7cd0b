"""``OrdinaryInstruction``: every instruction whose forms stand in the tables of this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property, lru_cache

from emulator.arith.evidence import Fidelity, scalar_fidelity
from emulator.arith.scalar.types import TYPES
from emulator.errors import ParseError, UnsupportedError, hint, listing, quoted
from emulator.isa.instruction import Form, Instruction
from emulator.isa.ordinary.row import Row, operand_patterns, settle
from emulator.isa.ordinary.tables import ROWS
from emulator.isa.signature import Signature
from emulator.targets import Target

#: slots that say where memory lies and when others see it, and leave values as they are
_PLACES = ("semantics", "scope", "space", "hint")


@dataclass(frozen=True, repr=False)
class OrdinaryInstruction(Instruction):
    """One form of a row: `words` has the word of every slot, "" where it is left out."""

    row: Row
    words: tuple[str, ...]

    @property
    def form(self) -> Form:  # type: ignore[override]
        return self.row

    @cached_property
    def _spelled(self) -> str:
        return self.row.spell(self.words)

    def __str__(self) -> str:
        return self._spelled

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return parse, (str(self),)

    @cached_property
    def modifiers(self) -> Mapping[str, str]:
        """The modifiers by slot, "" where one is left out, and the name; types are in `types`."""
        slots = zip(self.row.grammar.slots, self.words, strict=True)
        given = {slot.name: word for slot, word in slots if not slot.positional}
        return {"name": self.row.name, **given}

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types that the opcode names, in order."""
        slots = zip(self.row.grammar.slots, self.words, strict=True)
        return tuple(word for slot, word in slots if slot.positional and word)

    @cached_property
    def value_form(self) -> str:
        """The opcode without the words that do not touch values: orders, scopes, spaces, hints."""
        slots = zip(self.row.grammar.slots, self.words, strict=True)
        return self.row.spell(tuple("" if slot.name in _PLACES else word for slot, word in slots))

    @property
    def rule(self) -> str:
        """The rule of its values, see `emulator.arith.scalar`; "" for what has effects."""
        return self.row.rule

    @property
    def family(self) -> str:
        return self.row.name

    @cached_property
    def targets(self) -> tuple[str, ...]:
        return self.row.targets_of(self.words)

    @cached_property
    def ptx_version(self) -> tuple[int, int]:
        """The PTX version that introduced the form: (7, 8) for 7.8."""
        return self.row.version_of(self.words)

    @cached_property
    def is_move(self) -> bool:  # kept: `execute` asks for it several times a call
        return super().is_move

    @property
    def reads_carry(self) -> bool:
        return self.row.carry.startswith("reads")

    @property
    def writes_carry(self) -> bool:
        return self.row.carry.endswith("writes")

    def signatures(self, target: str | Target | None = None) -> tuple[Signature, ...]:
        """The operands in PTX order, once: what may be left out is marked in it. Without a target,
        those that any target takes.

        Raises UnsupportedError where `target` lacks the instruction.
        """
        if target is None:
            return (self._signature,)
        chosen = self.check_target(target)
        if self.row.optional_on and chosen.name not in self.row.optional_on:
            return (
                self._signature.without({x.name for x in self._signature.operands if x.optional}),
            )
        return (self._signature,)

    @cached_property
    def _signature(self) -> Signature:
        slots = zip(self.row.grammar.slots, self.words, strict=True)
        words = {slot.name: word for slot, word in slots}
        default = self.types[0] if self.types else "b32"
        patterns = operand_patterns(self.row.operands)
        operands = (settle(pattern, words, default) for pattern in patterns)
        return Signature(tuple(filter(None, operands)), self.row.scope)

    def fidelity(self, target: str | Target) -> Fidelity:
        generation = self.check_target(target).generation
        samples = not self.effects.isdisjoint({"samples", "paints"})
        return scalar_fidelity(generation, self.rule, self.value_form, samples)


@cache
def rows_of(name: str) -> tuple[Row, ...]:
    """The rows of the opcodes that start with a word."""
    return tuple(row for row in ROWS if row.form.partition(".")[0].partition("{")[0] == name)


@cache
def names() -> tuple[str, ...]:
    """The first words of all opcodes."""
    return tuple(dict.fromkeys(row.name for row in ROWS))


def expand() -> Iterator[OrdinaryInstruction]:
    """Every form of every row."""
    for row in ROWS:
        for words in row.expand():
            yield OrdinaryInstruction(row, words)


@lru_cache(maxsize=4096)
def parse(text: str) -> OrdinaryInstruction:
    """The instruction that `text` names, its modifiers in any order, its types in theirs.

    Raises ParseError for a word that no form of the instruction has, UnsupportedError for modifiers
    that do not go together.
    """
    name, *words = text.strip().split(".")
    rows = rows_of(name)
    for row in rows:
        if (found := row.grammar.match(words)) is not None:
            return OrdinaryInstruction(row, found)
    raise refusal(text, words, rows)


def refusal(text: str, words: list[str], rows: tuple[Row, ...]) -> ParseError | UnsupportedError:
    """The error that says why no row takes the words."""
    legal = {word for row in rows for slot in row.grammar.slots for word in slot.words}
    for word in words:
        if word not in legal:
            return ParseError(
                f"unknown modifier {quoted('.' + word)} in {quoted(text)}{hint(word, legal, '.')}"
            )
    close = {_nearest_form(row, words): row for row in rows}
    types = [word for word in words if word in TYPES]

    def likeness(form: str) -> tuple[int, int, int]:
        """Shared types come first, then other shared words, and few that were not given."""
        found = form.split(".")[1:]
        same = zip(types, (word for word in found if word in TYPES), strict=False)
        return sum(x == y for x, y in same), len(set(words).intersection(found)), -len(found)

    best = sorted(close, key=likeness, reverse=True)
    # Forms with all their collectors and sizes are no help to anybody.
    short = [form for x in best[:3] if len(form := close[x].form.replace("!", "")) <= _LONGEST_FORM]
    there = f"; there are {listing(short, 3)}" if short else ""
    return UnsupportedError(f"PTX has no {quoted(text)}; nearest is {best[0]!r}{there}")


#: characters of a form that a message shows
_LONGEST_FORM = 200


def _nearest_form(row: Row, words: list[str]) -> str:
    """The form of a row that shares the most words with `words`."""
    left = list(words)
    found = []
    for slot in row.grammar.slots:
        word = next((word for word in left if word in slot.words), "")
        if word:
            left.remove(word)
        elif slot.needed:
            alike = (get_close_matches(given, slot.words, 1, 0.5) for given in left)
            word = next(filter(None, alike), slot.words)[0]
        found.append(word)
    return row.spell(tuple(found))
