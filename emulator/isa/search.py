"""``Search``: the row of a table that an opcode means, found modifier by modifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from emulator.errors import UnsupportedError, listing, nearest_opcode, quoted
from emulator.isa.grammar import Words

Row = TypeVar("Row")


class Search(Generic[Row]):
    """Narrows rows down, so that an error can name the modifier that no row has.

    Every method that finds no row left raises UnsupportedError: what was given, what the rows that
    were left until then have there, and the nearest opcode.
    """

    def __init__(
        self, opcode: str, name: str, rows: Iterable[Row], known: Callable[[], Sequence[str]]
    ) -> None:
        self.opcode = opcode
        #: of the instructions that are searched
        self.name = name
        self.rows = list(rows)
        #: every legal opcode of that name
        self.known = known

    def keep(
        self,
        what: str,
        given: str,
        fits: Callable[[Row], bool],
        legal: Callable[[Row], Iterable[object]],
    ) -> None:
        """Keeps the rows that fit; `given` is the modifier, `legal` says which a row has."""
        left = [row for row in self.rows if fits(row)]
        if not left:
            self.refuse(what, given, dict.fromkeys(x for row in self.rows for x in legal(row)))
        self.rows = left

    def keep_equal(self, what: str, given: str, of: Callable[[Row], str]) -> None:
        """Keeps the rows of which `of` gives just `given`; "" is the absence of a modifier."""
        self.keep(
            what, given or "none", lambda row: of(row) == given, lambda row: [of(row) or "none"]
        )

    def by_words(self, words: Words, slots: Iterable[str]) -> Row:
        """The first instruction with those words in each of `slots`; the rows are instructions."""
        for slot in slots:
            self.keep_equal(slot, ".".join(words[slot]), _words_in(slot))
        return self.rows[0]

    def refuse(self, what: str, given: str, legal: Iterable[object]) -> NoReturn:
        """No row has `given` in the place of `what`."""
        raise UnsupportedError(
            f"no {self.name} instruction has {what} {quoted(given)} in {quoted(self.opcode)}; "
            f"legal here: {listing(legal, 24)}; nearest is "
            f"{nearest_opcode(self.opcode, self.known())}"
        )


def _words_in(slot: str) -> Callable[[Any], str]:
    return lambda instruction: instruction.opcode_words[slot]
