"""Rules as plain functions of arrays: the calls of NumPy that a text over words comes to.

A text, or several one after the other, run once on words that write down what is done with them,
and what they wrote is compiled. The function calls what the text calls on arrays, but for what is
not used or was computed before, and without the way through the rule to each call, which takes as
long as the arithmetic of a few thousand words.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import DTypeLike

from dtypes import Array
from emulator.arith.scalar.arrays import ARRAYS, rounded_sum
from emulator.arith.scalar.words import Words

#: operators by the names of their methods: how they are written, and what they do
_BINARY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("+", operator.add), "sub": ("-", operator.sub), "mul": ("*", operator.mul),
    "truediv": ("/", operator.truediv), "floordiv": ("//", operator.floordiv),
    "mod": ("%", operator.mod), "and": ("&", operator.and_), "or": ("|", operator.or_),
    "xor": ("^", operator.xor), "lshift": ("<<", operator.lshift),
    "rshift": (">>", operator.rshift), "lt": ("<", operator.lt), "le": ("<=", operator.le),
    "gt": (">", operator.gt), "ge": (">=", operator.ge), "eq": ("==", operator.eq),
    "ne": ("!=", operator.ne),
}  # fmt: skip
_UNARY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "neg": ("-{}", operator.neg), "invert": ("~{}", operator.invert), "abs": ("abs({})", abs),
}  # fmt: skip
#: operations of `ArrayWords` that a function calls as they are
_CALLED = (
    "minimum", "maximum", "count_ones", "leading_zeros", "reverse_bits", "high_product", "look_up",
    "sqrt", "integral", "to_integers", "fused",
)  # fmt: skip
#: types, each of them one object, and constants by their types and bytes
_TYPES: dict[np.dtype[Any], np.dtype[Any]] = {}
_CONSTANTS: dict[tuple[str, bytes], Array] = {}


class Untraceable(Exception):
    """Raised where a text does what is written for arrays, or for the lanes of a warp."""


class _Line(NamedTuple):
    """Source text that gives `target` a value from other names."""

    target: str
    source: list[str]
    uses: set[str]


class Tape:
    """What has been written down; `words` are the operations that texts take."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.words = cast("Words", _TracedWords(self))
        self.constants: dict[str, Any] = {}
        self._known: dict[str, TracedWord] = {}
        self._count = 0

    def new(self, like: Any) -> TracedWord:
        self._count += 1
        return TracedWord(self, f"v{self._count}", like)

    def given(self, kind: np.dtype[Any], source: str) -> TracedWord:
        """An array ``(n,)`` of a type, which an expression gives."""
        return self.write(source, np.ones(1, kind))

    def known(self, constant: Array) -> TracedWord:
        """A constant ``(1,)`` as a word of all lanes: without an axis, which NumPy is fastest
        with."""
        if constant.size > 1:  # words of 128 bits
            raise Untraceable
        name = self.refer(_constant(constant))
        return TracedWord(self, name, constant, is_constant=True)

    def write(self, text: str, like: Any, *operands: Any) -> TracedWord:
        """The word that an expression, with operands in its braces, gives or gave before."""
        words = [x for x in operands if isinstance(x, TracedWord)]
        if words and all(x.is_constant for x in words):
            return self.known(np.asarray(like))
        text = text.format(*map(self.refer, operands))
        if text not in self._known:
            out = self._known[text] = self.new(like)
            out.text = text
            self.lines.append(_Line(out.name, [f"{out.name} = {text}"], names_of(operands)))
        return self._known[text]

    def write_rarely(
        self, condition: TracedWord, aside: list[_Line], text: str, out: Any, *operands: Any
    ) -> TracedWord:
        """`out`, or the value of an expression behind other lines if a condition holds in any
        lane."""
        made = self.new(np.asarray(sample(out)))
        name, value = made.name, text.format(*map(self.refer, operands))
        inner = [x for line in aside for x in line.source]
        # Of a constant all lanes' one word: without an axis it would be no array in what follows.
        held = out.like if isinstance(out, TracedWord) and out.is_constant else out
        source = [f"{name} = {self.refer(held)}", f"if count_nonzero({condition.name}):"]
        source += [f"    {x}" for x in (*inner, f"{name} = {value}")]
        uses = names_of((condition, out, *operands)).union(*(line.uses for line in aside))
        self.lines.append(_Line(name, source, uses))
        return made

    def write_nans(
        self, condition: TracedWord, nan: int, out: TracedWord, number: TracedWord
    ) -> TracedWord:
        """`out`, words of a number, with one code of NaN. Whoever takes it for a number takes
        `number` as it was computed: one NaN is as good as another. Nobody else has the array."""
        made = self.new(out.like)
        self.same(made, number)
        code = self.refer(_constant(out.dtype.type(nan)))
        change = f"copyto({made.name}, {code}, where={condition.name})"
        source = [f"{made.name} = {out.name}", f"if count_nonzero({condition.name}): {change}"]
        self.lines.append(_Line(made.name, source, names_of((condition, out))))
        return made

    def same(self, word: TracedWord, number: TracedWord) -> None:
        """From now on a view of a word as the type of a number is that number."""
        self._known[f"{word.name}.view({self.refer(_kind(number.dtype))})"] = number

    def attempt(self, work: Callable[[], object]) -> bool:
        """Whether `work` could be written down; if not, nothing was."""
        lines, known = len(self.lines), len(self._known)
        try:
            work()
        except Untraceable:
            del self.lines[lines:]
            self._forget(known)
            return False
        return True

    def _forget(self, known: int) -> None:
        """Knows no more than so many words that it knew first."""
        while len(self._known) > known:
            self._known.popitem()

    def function(
        self, parameters: str, results: Sequence[TracedWord], ending: str, start: str = "pass"
    ) -> Any:
        """The function from a start to an ending, lines that the expressions of words and the names
        of results stand between."""
        source = [f"def rule({parameters}):", f"    {start}"]
        source += [f"    {x}" for x in _written(self.lines, names_of(results))]
        source.append(f"    {ending}")
        numpy = {x: getattr(np, x) for x in ("where", "copyto", "count_nonzero")}
        known = {"w": ARRAYS, "rounded_sum": rounded_sum, **numpy, **self.constants}
        exec("\n".join(source), known)  # of our own writing alone
        return known["rule"]

    @contextmanager
    def aside(self) -> Iterator[list[_Line]]:
        """Lines that are written meanwhile, and what is known there alone."""
        before, known = self.lines, len(self._known)
        self.lines = []
        try:
            yield self.lines
        finally:
            self.lines = before
            self._forget(known)

    def refer(self, operand: Any) -> str:
        """An operand as source text."""
        if isinstance(operand, TracedWord):
            return operand.name
        if isinstance(operand, np.generic):
            operand = _constant(operand)
        if type(operand) in (int, bool) or (type(operand) is float and math.isfinite(operand)):
            return f"({operand!r})"
        for name, known in self.constants.items():
            if known is operand:
                return name
        name = f"k{len(self.constants)}"
        self.constants[name] = operand
        return name


class TracedWord:
    """A word that writes down what is done with it; `like` is what it is for one lane."""

    #: NumPy's scalars leave operators to it
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, tape: Tape, name: str, like: Any, *, is_constant: bool = False) -> None:
        self.tape, self.name, self.like = tape, name, like
        #: all lanes hold `like`, in every call
        self.is_constant = is_constant
        #: the expression that it is, where that is one
        self.text = ""
        #: the word that it is a view of
        self.of: TracedWord | None = None

    @property
    def is_new(self) -> bool:
        """True if its array was made for it, and is no other's."""
        return self.text != "" and not self.text.startswith("read(") and ".view(" not in self.text

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.asarray(self.like).dtype

    def view(self, dtype: DTypeLike) -> TracedWord:
        made = self._as("view", np.dtype(dtype))
        if made.of is None and made.text.startswith(f"{self.name}.view("):
            made.of = self
            self.tape.same(made, self)
        return made

    def astype(self, dtype: DTypeLike, *, copy: bool = True) -> TracedWord:
        return self._as("astype", np.dtype(dtype))

    def _as(self, method: str, dtype: np.dtype[Any]) -> TracedWord:
        if dtype == self.dtype:  # nobody changes an array in place
            return self
        like = getattr(self.like, method)(dtype)
        return self.tape.write(f"{{}}.{method}({{}})", like, self, _kind(dtype))

    def __bool__(self) -> bool:
        raise Untraceable


def _constant(number: Any) -> Array:
    """A number of some type as an array without an axis, each of them one object."""
    held = np.array(number).reshape(())
    return _CONSTANTS.setdefault((held.dtype.str, held.tobytes()), held)


def _kind(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A type, each of them one object."""
    return _TYPES.setdefault(dtype, dtype)


def _beside(kind: np.dtype[Any], operand: Any) -> Any:
    """A number of Python beside words as an array of their type, where it comes to that: NumPy
    takes longer to find out."""
    if type(operand) is float and kind.kind == "f":
        return _constant(kind.type(operand))
    if type(operand) is int and kind.kind in "iu" and np.iinfo(kind).min <= operand:
        return _constant(kind.type(operand)) if operand <= np.iinfo(kind).max else operand
    return operand


def sample(operand: Any) -> Any:
    """What an operand is for one lane."""
    return operand.like if isinstance(operand, TracedWord) else operand


def names_of(operands: Iterable[Any]) -> set[str]:
    """The names of the words among operands."""
    return {x.name for x in operands if isinstance(x, TracedWord)}


def _binary(sign: str, compute: Callable[[Any, Any], Any], reflected: bool) -> Any:
    def method(self: TracedWord, other: Any) -> TracedWord:
        a, b = (other, self) if reflected else (self, other)
        like = compute(sample(a), sample(b))
        a, b = (_beside(self.dtype, x) for x in (a, b))
        return self.tape.write(f"{{}} {sign} {{}}", like, a, b)

    return method


def _unary(text: str, compute: Callable[[Any], Any]) -> Any:
    return lambda self: self.tape.write(text, compute(self.like), self)


for _name, (_sign, _of_two) in _BINARY.items():
    setattr(TracedWord, f"__{_name}__", _binary(_sign, _of_two, False))
    setattr(TracedWord, f"__r{_name}__", _binary(_sign, _of_two, True))
for _name, (_text, _of_one) in _UNARY.items():
    setattr(TracedWord, f"__{_name}__", _unary(_text, _of_one))


class _TracedWords:
    """The operations of `words` on words that write down what is done with them."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _CALLED:
            raise Untraceable(name)

        def call(*operands: Any) -> Any:
            like = getattr(ARRAYS, name)(*map(sample, operands))
            text = f"w.{name}({', '.join('{}' for _ in operands)})"
            return self._tape.write(text, like, *operands) if names_of(operands) else like

        return call

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        like = np.where(*map(sample, (condition, a, b)))
        return self._tape.write("where({}, {}, {})", like, condition, a, b)

    def fused(self, x: Any, y: Any, z: Any) -> Any:
        """The steps of `rounded_sum`, whose wide numbers others may need, too."""
        words = x, y, z
        if not any(isinstance(v, TracedWord) for v in words) or x.dtype != np.float32:
            return self.__getattr__("fused")(*words)
        a, b, c = (v.astype(np.float64) for v in words)
        like = ARRAYS.fused(*map(sample, words))
        return self._tape.write("rounded_sum({}, {}, {}, {})", like, a * b + c, *words)

    def put(self, condition: Any, value: Any, out: Any) -> Any:
        if not isinstance(condition, TracedWord) or condition.is_constant:
            chosen = value if sample(condition) else out
            chosen = chosen() if callable(chosen) else chosen
            if isinstance(condition, TracedWord) and not isinstance(chosen, TracedWord):
                chosen = self._tape.known(np.where(condition.like, chosen, sample(out)))
            return chosen
        with self._tape.aside() as lines:
            value = value() if callable(value) else value
        number = self._number_of(condition, value, out)
        if number is not None:
            return self._tape.write_nans(condition, value, out, number)
        text = "where({}, {}, {})"
        return self._tape.write_rarely(condition, lines, text, out, condition, value, out)

    def _number_of(self, condition: TracedWord, value: Any, out: Any) -> TracedWord | None:
        """Where `put` gives those of some words that are no numbers one code of NaN, and the words
        are numbers that were computed: these."""
        number = out.of if isinstance(out, TracedWord) else None
        if number is None or type(value) is not int or not number.is_new:
            return None
        is_nan = condition.text == f"{number.name} != {number.name}"
        return number if is_nan and np.isnan(out.dtype.type(value).view(number.dtype)) else None

    def mend(self, condition: Any, out: Any, make: Callable[..., Any], *operands: Any) -> Any:
        if isinstance(condition, TracedWord) and condition.is_constant:
            return make(*operands) if sample(condition) else out
        if not all(isinstance(x, TracedWord) for x in (condition, *operands)):
            raise Untraceable
        # Constants are no arrays of lanes: the function refers to them.
        given = [x if x.is_constant else self._tape.new(x.like) for x in operands]
        operands = tuple(x for x in operands if not x.is_constant)
        with self._tape.aside() as lines:
            made = make(*given)
        made_of = set().union(names_of((made,)), *(line.uses for line in lines))
        source = [f"def make({', '.join(x.name for x in given if not x.is_constant)}):"]
        source += [f"    {x}" for line in lines for x in line.source]
        source.append(f"    return {self._tape.refer(made)}")
        text = f"w.mend({', '.join('{}' for _ in (condition, out))}, make, "
        text += "".join("{}, " for _ in operands) + ")"
        function = [_Line("make", source, made_of)]
        return self._tape.write_rarely(condition, function, text, out, condition, out, *operands)

    def constant(self, word: Any) -> int | None:
        return None if isinstance(word, TracedWord) else ARRAYS.constant(word)

    def outlined(self, name: str, function: Callable[..., Any], *words: Any) -> Any:
        return function(self, *words)


def traced(
    bind: Callable[[Words], Callable[..., Any]], kinds: Sequence[np.dtype[Any] | int], count: int
) -> Any:
    """What `bind` makes of operations on words as a function of arrays ``(n,)`` of some types, and
    of numbers that are the same in each call; of its results the first `count`.

    Raises Untraceable.
    """
    tape, given = Tape(), []
    for i, kind in enumerate(kinds):
        is_number = isinstance(kind, int)
        given.append(kind if is_number else TracedWord(tape, f"a{i}", np.ones(1, kind)))
    made = bind(tape.words)(*given)
    results = (made if isinstance(made, tuple) else (made,))[:count]
    if not all(isinstance(x, TracedWord) and not x.is_constant for x in results):
        raise Untraceable
    parameters = ", ".join(f"a{i}" for i in range(len(kinds)))
    return tape.function(parameters, results, "return " + ", ".join(x.name for x in results))


def _written(lines: Sequence[_Line], wanted: set[str]) -> list[str]:
    """The source of the lines whose targets are used; arrays are let go of behind the last use."""
    own, out = {line.target for line in lines}, []
    used = set(wanted)
    for line in reversed(lines):
        if line.target in used:
            last = sorted((line.uses - used) & own)
            out += [f"del {', '.join(last)}"] if last else []
            out += reversed(line.source)
            used |= line.uses
    return out[::-1]
