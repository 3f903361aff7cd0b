"""The words of an opcode: one grammar for every kind of instruction.

An opcode is a name and modifiers. Measured on ptxas of CUDA 13.0 and seen in what nvcc, CUTLASS and
Triton write: the modifiers form a set, and compilers order them as they like. Only the types keep
their order (destination before source, D before A), as do the layouts of A and B. So every modifier
is the value of a *slot*, and a grammar is a name with its slots.

A grammar may be written as the manual writes a form, ``add{.rounding}{.ftz}{.sat}.type=f32``:
braces for what may be left out, a slot by its name where its words are those of ``VOCABULARY``,
``slot=word|word`` where they are others, and any other word for itself. A slot of types, such as
``to=f32|f64``, takes them in the order of the form, and ``from`` follows ``to``; other slots may
share words, and the first one with room takes a word. To ptxas some modifiers are part of the
name, ``mul.wide`` or ``cp.async.bulk``: ``!`` stands behind the last of them, and up to there the
order is that of the form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from emulator.errors import ParseError, hint, listing, nearest_opcode, quoted

#: the name and the slots of a form
_PARTS = re.compile(r"\{\.[^}]+\}|\.?[^.{]+")
#: what goes by the same name in every instruction: slot -> its words
VOCABULARY: dict[str, tuple[str, ...]] = {
    "rounding": ("rn", "rz", "rm", "rp"),
    "integer_rounding": ("rni", "rzi", "rmi", "rpi"),
}

#: the words of every slot of an opcode, as they were given; of a slot without words an empty tuple
Words = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Slot:
    """One kind of modifier: the words that it may be, or a pattern for shapes."""

    name: str
    words: tuple[str, ...] = ()
    pattern: str = ""
    #: must be given
    needed: bool = False
    #: the most words: types and layouts may be several
    most: int = 1
    #: written twice it means the same, as ptxas has it for .sync and .satfinite
    repeatable: bool = False
    #: name of the slot whose word must stand before this one's: .popc follows .xor or .and
    after: str = ""
    #: stands for a type: such slots are filled in the order of the form
    positional: bool = False
    #: name of the slot whose word must be given with this one's: .xor and .and bring .popc
    brings: str = ""
    #: a word, where there is only a pattern for them
    example: str = ""
    #: part of the name for ptxas: nothing but other such slots may stand before it
    leading: bool = False

    def takes(self, word: str) -> bool:
        return word in self.words or bool(self.pattern and re.fullmatch(self.pattern, word))


@dataclass(frozen=True)
class Grammar:
    """A name, of one word or several, and the slots of what may follow it in any order."""

    name: str
    slots: tuple[Slot, ...]
    #: gives all legal opcodes, to name one of them in messages
    known: Callable[[], Iterable[str]] | None = None
    #: words that ptxas takes and drops, and the most of them; see `Row.dropped`
    dropped: tuple[str, ...] = ()
    most_dropped: int = 0

    @classmethod
    def of(cls, form: str, dropped: str = "") -> Grammar:
        """The grammar of a form written as in the manual; see the module.

        >>> grammar = Grammar.of("add{.rounding}{.ftz}.type=f32|f64")
        >>> dict(grammar.split("add.ftz.rz.f32"))
        {'rounding': ('rz',), 'ftz': ('ftz',), 'type': ('f32',)}
        """
        named, mark, _ = form.partition("!")
        name, *rest = _PARTS.findall(form.replace("!", ""))
        leading = len(_PARTS.findall(named)) - 1 if mark else 0
        slots = [_slot(part) for part in rest]
        names = [slot.name for slot in slots]
        for i, slot in enumerate(slots):
            after = "to" if slot.name == "from" and "to" in names[:i] else ""
            slots[i] = replace(slot, leading=i < leading, after=after)
        listed, _, most = dropped.partition("*")
        return cls(name, tuple(slots), None, tuple(listed.split("|")), int(most or 1))

    @cached_property
    def by_word(self) -> dict[str, Slot]:
        """The slot of every word that is spelled out."""
        return {word: slot for slot in reversed(self.slots) for word in slot.words}

    @cached_property
    def _of_word(self) -> dict[str, tuple[int, ...]]:
        """The places of all slots of every word that is spelled out, but of leading ones."""
        places: dict[str, tuple[int, ...]] = {}
        for place, slot in enumerate(self.slots):
            for word in () if slot.leading else slot.words:
                places[word] = (*places.get(word, ()), place)
        return places

    @cached_property
    def _place(self) -> dict[str, int]:
        return {slot.name: place for place, slot in enumerate(self.slots)}

    def match(self, words: Sequence[str]) -> tuple[str, ...] | None:
        """The word of every slot, "" where it has none; None where `words` do not fit.

        For grammars whose slots are all spelled out and take one word each: tables of many forms
        try their rows with it.
        """
        found, last_type = [""] * len(self.slots), -1
        left = list(words)
        for place, slot in enumerate(self.slots):
            if slot.leading and left and left[0] in slot.words:
                found[place] = left.pop(0)
        extra = [word for word in left if word in self.dropped]
        if extra:
            if len(extra) > self.most_dropped and not set(extra).issubset(_REPEATABLE):
                return None
            left = [word for word in left if word not in extra]
        for word in left:
            for place in self._of_word.get(word, ()):
                slot = self.slots[place]
                if found[place] == word and word in _REPEATABLE:
                    break
                late = slot.positional and place < last_type
                early = slot.after and not found[self._place[slot.after]]
                if not (found[place] or late or early):
                    break
            else:
                return None
            found[place] = word
            if slot.positional:
                last_type = place
        if any(slot.needed and not word for slot, word in zip(self.slots, found, strict=True)):
            return None
        return tuple(found)

    def slot_of(self, word: str) -> Slot | None:
        """The slot that takes `word`; None where none does."""
        if word in self.by_word:
            return self.by_word[word]
        return next((slot for slot in self.slots if slot.pattern and slot.takes(word)), None)

    def split(self, opcode: str) -> Words:
        """The words of `opcode` by slot.

        Raises ParseError for a word that no slot takes, for one too many, one too early, and for a
        slot that lacks its word.
        """
        words = opcode.strip().split(".")[self.name.count(".") + 1 :]
        found: dict[str, tuple[str, ...]] = {slot.name: () for slot in self.slots}
        for word in words:
            slot = self.slot_of(word)
            if slot is None:
                raise ParseError(
                    f"unknown modifier {quoted('.' + word)} in {quoted(opcode)}"
                    f"{hint(word, self.by_word, '.')}"
                )
            if slot.after and not found[slot.after]:
                raise ParseError(f".{word} must follow {_spelled(self, slot)}, in {quoted(opcode)}")
            if len(found[slot.name]) == slot.most and not slot.repeatable:
                raise _too_many(slot, word, found[slot.name], opcode)
            if not slot.repeatable or not found[slot.name]:
                found[slot.name] += (word,)
        if missing := [slot for slot in self.slots if slot.needed and not found[slot.name]]:
            verb = "is" if len(missing) == 1 else "are"
            raise ParseError(
                f"{' and '.join(_legal(slot) for slot in missing)} {verb} missing in "
                f"{quoted(opcode)}{self._nearest(opcode)}"
            )
        for slot in self.slots:
            if slot.brings and found[slot.name] and not found[slot.brings]:
                raise ParseError(
                    f".{found[slot.name][0]} needs .{slot.brings} after it, in {quoted(opcode)}"
                )
        return found

    def _nearest(self, opcode: str) -> str:
        """The end of a message: the legal opcode that is most like one with too few words."""
        return f"; nearest is {nearest_opcode(opcode, self.known())}" if self.known else ""


def _slot(part: str) -> Slot:
    """A slot as a form writes it: ``{.ftz}``, ``.rounding``, ``.type=f32|f64``."""
    needed = not part.startswith("{")
    name, _, listed = part.strip("{}").removeprefix(".").partition("=")
    words = tuple(listed.split("|")) if listed else VOCABULARY.get(name, (name,))
    positional = all(_TYPE.fullmatch(word) for word in words)
    return Slot(name, words, needed=needed, positional=positional)


#: words that ptxas takes twice
_REPEATABLE = ("sync", "uni", "approx", "sat", "satfinite", "relu", "NaN", "cc", "shiftamt")
_TYPE = re.compile(r"(bf|[usbf])(2|4|8|16|32|64|128)(x\d)?|u?e\dm\d(p4)?(x\d)?|pred")


def _too_many(slot: Slot, word: str, found: Sequence[str], opcode: str) -> ParseError:
    if word in found and slot.most == 1:
        return ParseError(f".{word} is written twice in {quoted(opcode)}")
    count = "two modifiers" if slot.most == 1 else f"more than {slot.most} modifiers"
    given = " and ".join(f".{x}" for x in (*found, word))
    return ParseError(f"{quoted(opcode)} has {count} for its {slot.name}: {given}")


def _spelled(grammar: Grammar, slot: Slot) -> str:
    before = next(x for x in grammar.slots if x.name == slot.after)
    return _legal(before)


def _legal(slot: Slot) -> str:
    """The legal words of a slot, for a message."""
    if not slot.words:
        return f"a {slot.name}" + (f" such as .{slot.example}" if slot.example else "")
    if len(slot.words) == 1:
        return f".{slot.words[0]}"
    return f"a {slot.name} ({listing(('.' + word for word in slot.words), 24)})"
