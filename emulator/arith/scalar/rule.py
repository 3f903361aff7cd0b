"""Rules of ordinary instructions, each stated twice, and how an engine takes one.

A rule is a function on Python integers, to be read beside the manual, and a text over words
(`words`), from which the arrays of the vector engine and the machine code of the compiled one come;
tests hold them equal. Both take the types of the instruction, then its source operands in PTX
order, and the modifiers that they heed as keywords of the modifiers' names, or those that belong
together as the fields of one named tuple; the text takes the operations on words before them. They
return the destinations in PTX order. A carry that an instruction reads comes last, one that it
writes is returned last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from emulator.arith.scalar.arrays import ARRAYS
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.arith.scalar.words import Words, joined

#: source words to a destination word, or to a tuple of them
Bound = Callable[..., Any]


class Operation(Protocol):
    """The facts of an instruction that its rule needs."""

    @property
    def rule(self) -> str:
        """Module and function of the rule, as ``integer.add``."""

    @property
    def types(self) -> tuple[str, ...]:
        """The types that its opcode names, in order."""

    @property
    def modifiers(self) -> Mapping[str, str]:
        """Its other modifiers: slot -> word, "" for one that is left out."""


def _no_text(*words: Any, **options: Any) -> Any:
    raise NotImplementedError("a rule without a text over words")


class Rule:
    """One rule: ``rule(types…, operands…)`` computes on integers, `text` on words."""

    def __init__(self, reference: Bound, packed: bool) -> None:
        self.reference = reference
        self.text: Bound = _no_text
        #: the text is so long that its machine code stands in one place
        self.long = False
        #: the rule takes packed types whole, instead of element by element
        self.packed = packed
        self.__name__, self.__doc__ = reference.__name__, reference.__doc__
        self._defaults: Mapping[str, Any] = reference.__kwdefaults__ or {}
        #: the named tuples of modifiers by their parameters
        self._tuples = {x: y for x, y in self._defaults.items() if hasattr(y, "_fields")}
        #: the modifiers that the rule heeds, and what they are where they are left out
        self.keywords = {x: y for x, y in self._defaults.items() if x not in self._tuples}
        for given in self._tuples.values():
            self.keywords |= given._asdict()

    def options(self, **modifiers: Any) -> dict[str, Any]:
        """The keywords that both functions take, from modifiers."""
        assert modifiers.keys() <= self.keywords.keys(), (self.__name__, modifiers)
        out = {x: y for x, y in modifiers.items() if x in self._defaults}
        for name, default in self._tuples.items():
            fields = {x: y for x, y in modifiers.items() if x in default._fields}
            out |= {name: default._replace(**fields)} if fields else {}
        return out

    def words(self, function: Bound) -> None:
        """Makes `function` the text over words."""
        assert (function.__kwdefaults__ or {}) == self._defaults, self.__name__
        self.text = function

    def long_words(self, function: Bound) -> None:
        """As `words`, of a text of many instructions."""
        self.words(function)
        self.long = True

    def arrays(self, function: Bound) -> None:
        """Makes `function` the text, written for NumPy's arrays alone: there is no machine code."""

        def text(words: Words, *args: Any, **options: Any) -> Any:
            return words.by_arrays(partial(function, **options), *args)

        text.__kwdefaults__ = function.__kwdefaults__
        self.words(text)

    def __call__(self, *args: Any, **modifiers: Any) -> Any:
        return self.reference(*args, **self.options(**modifiers))


def rule(reference: Bound) -> Rule:
    """Makes a rule of a function on integers; it is applied to each element of a packed type."""
    return Rule(reference, packed=False)


def packed_rule(reference: Bound) -> Rule:
    """A rule that takes words of packed types whole."""
    return Rule(reference, packed=True)


@cache
def find_rule(name: str) -> Rule:
    """The rule of that name: ``integer.add`` is `add` of the module `integer` of this package."""
    module, _, function = name.partition(".")
    found = getattr(import_module(f"emulator.arith.scalar.{module}"), function)
    assert isinstance(found, Rule), name
    return found


def bind_reference(operation: Operation, **given: str) -> Bound:
    """The instruction as a function of Python integers: source words in, destination words out.

    Sources come in PTX order and destinations are returned in PTX order, a tuple where there are
    several. The carry flag is the last source of what reads it, and the last destination of what
    writes it. `given` sets modifiers that the opcode leaves open, such as the state space of a
    generic address.
    """
    found = find_rule(operation.rule)
    bound, types = _bound(operation, found, found.reference, given)
    if found.packed or not types or types[0].count == 1:
        return bound
    return partial(_by_element, bound, types[0])


def bind_vector(operation: Operation, **given: str) -> Bound:
    """As `bind_reference`, on arrays of words that broadcast; see `types` for what a word is."""
    return partial(_quietly, bind_arrays(operation, **given))


def bind_arrays(operation: Operation, **given: str) -> Bound:
    """As `bind_vector`, for callers already inside ``np.errstate(all="ignore")``."""
    return bind_words(operation, ARRAYS, **given)


def bind_words(operation: Operation, words: Words, **given: str) -> Bound:
    """As `bind_reference`, on words that the given operations are for."""
    found = find_rule(operation.rule)
    bound, types = _bound(operation, found, partial(found.text, words), given)
    if not found.packed and types and types[0].count > 1:
        bound = partial(_by_element_words, bound, types[0])
    return bound


def _bound(
    operation: Operation, found: Rule, function: Bound, given: Mapping[str, str]
) -> tuple[Bound, tuple[ScalarType, ...]]:
    """The function with types and modifiers filled in, and the types."""
    types = tuple(TYPES[name] for name in operation.types)
    words = {slot.lower(): word for slot, word in {**operation.modifiers, **given}.items()}
    modifiers: dict[str, Any] = {}
    for name, default in found.keywords.items():
        if word := words.get(name, ""):
            modifiers[name] = True if isinstance(default, bool) else word
    elements = types if found.packed else tuple(t.element for t in types)
    return partial(function, *elements, **found.options(**modifiers)), types


def _by_element(bound: Bound, packed: ScalarType, *words: int) -> int:
    element = packed.element
    out = 0
    for shift in range(0, packed.size, element.bits):
        out |= bound(*(word >> shift & element.mask for word in words)) << shift
    return out


def _by_element_words(bound: Bound, packed: ScalarType, *words: Any) -> Any:
    results = []
    for place in range(0, packed.size, packed.bits):
        parts = (word >> place if place else word for word in words)
        result = bound(*(part.astype(packed.element.dtype) for part in parts))
        results.append(result.astype(packed.dtype))
    return joined(results, packed.bits)


def _quietly(bound: Bound, *words: Any, **options: Any) -> Any:
    with np.errstate(all="ignore"):
        return bound(*words, **options)
