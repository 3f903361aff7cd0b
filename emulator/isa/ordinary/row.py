"""One row of the tables of ordinary instructions, and the operands that it writes.

Operands are written in PTX order with commas, each a name and what differs from the rule that it
is a register of the instruction's (first) type and is read, or written if it is the first one and
called d, p or q:

* ``a:u32`` another type, ``c:stype`` the type in that slot, ``d:wide`` twice the width,
  ``d:to+`` or a wider register, ``a:u32++`` but of an integer up to 64 bits; ``a:u32/f16x2`` or a
  register of that type, too, ``a:f32/u32/s32`` of those types, ``d:u32/`` or of none besides;
* ``mdata!`` is written, too, behind the first operand;
* ``{e~:s32*2}`` two integers, or a number without braces, which is dropped, and nothing behind it;
  with ``~~`` so is a register of an integer;
* ``d|p`` a pair of destinations, of which p is a predicate; ``p|q?`` of which the second may be
  left out; ``d~`` may be the sink ``_``, ``_`` must be it; ``c?`` may be left out;
* ``a.part`` may be followed by a selector of `SELECTORS`, which the rule takes as ``asel``;
* ``a%`` must be a register (a predicate, if it is one), and of a vector one of them;
* ``a&`` may be the name of a variable or function, for its address; ``a&shared`` of a variable in
  that space, ``a&space`` in the space of that slot;
* ``a^`` may be a vector of two or four registers in braces, which share the operand's bits, or one;
* ``a$`` may stand in braces with others behind it, which do not count;
* ``[a]`` an address, ``[a:shared]`` in that state space, ``[a:space]`` in the space of that slot;
  in global memory and where no space is said the register has any size but 32 bits, with
  ``[a:space/b32]`` any, with ``[a:space+]`` 32 bits at least, with ``[a:space++]`` 64;
* ``[h:endpoint;1]`` a logical endpoint and a place in it, ``[h:endpoint;2]`` two;
* ``[t:texture;2]`` a texture's handle and two coordinates, ``[s:surface;2]`` a surface's,
  ``[t:texture;a2]`` of which the first is the number of a layer, ``[a:tensor]`` in a register of 32
  bits, ``[a:tensor+]`` or of a 32-bit integer, ``[a:tensor++]`` or a pair of halves, ``[map;dim]``
  with as many coordinates behind it as the slot says (``3d``), ``[map;5]`` with five;
* ``{d*vec}`` registers in braces, as many as the slot says (``v4``), or one without braces where it
  says nothing; ``{d*4}`` so many, ``{c:u16*dim-2}`` two less than the slot says, of another type,
  ``{d:b32*num*2}`` twice as many;
* ``policy:b64@L2::cache_hint`` is there if the opcode has that word, and only then;
* ``lut=0..255`` an immediate of that range, ``n=`` any integer; ``a<0..15>`` a register or an
  immediate of that range, ``b<32..1024/32>`` in steps of 32;
* ``target#label`` is a label, ``f#function`` a function, ``(…)#parameters`` those of a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Literal, NamedTuple, cast

from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.isa.grammar import Grammar
from emulator.isa.instruction import Form, version_numbers
from emulator.isa.register_types import ADDRESS, REGISTER_BITS
from emulator.isa.signature import Constants, Kind, Operand, Scope
from emulator.targets import having

#: uses of the carry flag CC.CF
Carry = Literal["", "writes", "reads", "reads and writes"]

ALL_TARGETS = having("sm_70")


class Needs(NamedTuple):
    """Targets and version that one word of an opcode, or several together, need besides its row."""

    #: with spaces between several
    words: str
    targets: tuple[str, ...] = ALL_TARGETS
    version: str = "1.0"

    def are_in(self, words: tuple[str, ...]) -> bool:
        return all(word in words for word in self.words.split())


@dataclass(frozen=True, eq=False)
class Row(Form):
    """One family of forms: the opcode and its modifiers as the manual writes them."""

    #: as `Grammar.of` takes it
    form: str
    #: as the module describes
    operands: str = "d, a"
    #: where the rule of its values stands in `emulator.arith.scalar`; "" where it has effects
    rule: str = ""
    targets: tuple[str, ...] = ALL_TARGETS
    #: the PTX version that introduced it
    version: str = "1.0"
    carry: Carry = ""
    scope: Scope = "thread"
    #: targets that take the operands which may be left out, where not all do
    optional_on: tuple[str, ...] = ()
    #: see `Form`
    later_operands: tuple[tuple[str, str], ...] = ()
    #: words that came later or to fewer targets than the rest
    needs: tuple[Needs, ...] = ()
    #: see `Form`; a row with a rule is pure where it names none, unless it reads the carry flag
    effects: str = ""
    #: see `Form`
    unmodelled: str = ""
    #: words of other instructions that ptxas takes and drops (it makes the same code), and the most
    #: of them: "row|col*2"
    dropped: str = ""

    def __post_init__(self) -> None:
        if self.rule and not self.effects:
            effects = "carry" if self.carry.startswith("reads") else "pure"
            object.__setattr__(self, "effects", effects)

    def __repr__(self) -> str:
        return f"Row({self.form!r})"

    @cached_property
    def grammar(self) -> Grammar:
        return Grammar.of(self.form, self.dropped)

    @property
    def name(self) -> str:
        return self.grammar.name

    def targets_of(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The targets that take a form."""
        given = [need.targets for need in self.needs if need.are_in(words)]
        return tuple(t for t in self.targets if all(t in targets for targets in given))

    def version_of(self, words: tuple[str, ...]) -> tuple[int, int]:
        """The PTX version that introduced a form."""
        later = [need.version for need in self.needs if need.are_in(words)]
        return max(version_numbers(version) for version in (self.version, *later))

    def expand(self) -> Iterator[tuple[str, ...]]:
        """The words of every form: for each slot its word, "" where it is left out."""
        yield from product(
            *(slot.words if slot.needed else ("", *slot.words) for slot in self.grammar.slots)
        )

    def spell(self, words: tuple[str, ...]) -> str:
        return ".".join([self.name, *filter(None, words)])


def doing(effects: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows with the same effects."""
    return (replace(row, effects=effects) for row in rows)


# --- registers ------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def register_types(name: str, wider: int = 0) -> tuple[str, ...]:
    """The types of registers that may hold an operand of a type, the preferred one first.

    Compared with ptxas of CUDA 13.0: the size must agree, and a register of numbers must hold
    numbers of the operand's kind; registers and operands of bits go with all. With `wider` larger
    registers serve, too, but for bf16: of 1 all of them, of 2 those of integers up to 64 bits.
    """
    type_ = TYPES[name]
    sizes = [size for size in (8, 16, 32, 64, 128) if size >= type_.size]
    if not wider or name == "bf16":
        sizes = sizes[:1]
    elif wider == 2:
        sizes.remove(128)
    if type_.kind == "predicate":
        return ("pred",)
    fitting = [
        t
        for size in sizes
        for t in _of_size(type_, size)
        if wider < 2 or size == type_.size or t[0] != "f"
    ]
    return tuple(dict.fromkeys([name] * (name in fitting) + fitting))


def _of_size(type_: ScalarType, size: int) -> list[str]:
    """The register types of one size that go with a type."""
    found = [f"b{size}"]
    numbers = size in (8, 16, 32, 64)
    if type_.kind != "float" and type_.count == 1 and numbers:
        found += [f"u{size}", f"s{size}"]
    if size == 32 and type_.name in ("b32", "f16x2"):
        found.append("f16x2")
    plain_float = type_.is_float and type_.count == 1 and type_.name != "bf16"
    if (type_.kind == "bits" and size in (16, 32, 64)) or (plain_float and size == type_.size):
        found.append(f"f{size}")
    return found


@lru_cache(maxsize=256)
def constants_of(name: str) -> Constants:
    """The immediates that may stand for an operand of a type."""
    type_ = TYPES[name]
    if type_.count > 1 or name in ("f16", "bf16"):
        return "none"
    kinds: dict[str, Constants] = {"float": "values", "bits": "any"}
    return kinds.get(type_.kind, "words")


# --- operands -------------------------------------------------------------------------------------

_OPERAND = re.compile(
    r"(?P<open>[\[{]?)(?P<name>\w+)(?:\.(?P<selector>\w+))?(?P<bare>%?)(?P<written>!?)(?P<sink>~{0,2})(?P<pieces>\^?)(?P<symbol>&?)(?P<where>(?:(?<=&)\w+)?)(?P<braces>\$?)"
    r"(?::(?P<type>[\w:]*?)(?P<wider>\+*)(?P<also>(?:/\w*)*))?(?:[*;](?P<count>\w+)(?P<less>-\d)?(?:\*(?P<times>\d))?)?"
    r"(?:=(?P<values>[\d.,/-]*))?(?:<(?P<legal>[\d.,/]+)>)?(?:#(?P<kind>\w+))?[\]}]?"
    r"(?:@(?P<when>[\w:]+))?(?P<optional>\??)"
)
#: kinds of selectors: a byte or half, halves or bytes of two words, masks of halves and bytes
SELECTORS = {
    "part": r"b[0-3]|h[01]",
    "halves": r"h[0-3]{2}",
    "bytes": r"b[0-7]{4}",
    "half_mask": r"h(10|1|0)",
    "byte_mask": r"b(?=\d)3?2?1?0?",
}
#: names of destinations
_DESTINATIONS = ("d", "f", "p", "q", "_")
_KINDS: dict[str, Kind] = {"[": "address", "{": "vector", "": "register"}


@dataclass(frozen=True)
class OperandPattern:
    """One operand of a row, before the modifiers of an opcode are known."""

    operand: Operand
    #: a type, a slot with one, "wide", or "" for the instruction's type; of an address its space
    type: str
    #: how many plus signs there are
    wider: int
    #: register types that serve, too, each behind a slash; a slash alone: none does
    also: str
    #: no immediate may stand in its place
    bare: bool
    #: of a vector or of coordinates: a number or a slot, and how many less, or how often as many
    count: str
    less: int
    times: int
    #: the word of the opcode that it belongs to
    when: str
    #: the space of the variables whose names may stand for it, or the slot with that; "" for any
    where: str


@lru_cache(maxsize=1024)
def operand_patterns(text: str) -> tuple[OperandPattern, ...]:
    """The operands of a row's text."""
    return tuple(
        _pattern(part, first=not i, paired=bool(j))
        for i, token in enumerate(filter(None, text.split(", ")))
        for j, part in enumerate(token.split("|"))
    )


def _pattern(part: str, first: bool, paired: bool) -> OperandPattern:
    match = _OPERAND.fullmatch(part)
    assert match is not None, part
    name, type_ = match["name"], match["type"] or ("pred" if match["name"] in "pq" else "")
    kind = cast("Kind", match["kind"]) or _KINDS[match["open"]]
    values = match["values"] or match["legal"]
    operand = Operand(
        name,
        kind if match["values"] is None else "immediate",
        use="written" if match["written"] or (first and _is_destination(match)) else "read",
        values=_values(values) if values else (),
        optional=bool(match["optional"]),
        sink=bool(match["sink"]) or name == "_",
        sink_register=match["sink"] == "~~",
        symbol=bool(match["symbol"]),
        pieces=(1, 2, 4) if match["pieces"] else (),
        braces=bool(match["braces"]),
        selector=SELECTORS[match["selector"]] if match["selector"] else "",
        paired=paired,
    )
    less, times = int(match["less"] or 0), int(match["times"] or 1)
    return OperandPattern(
        operand,
        type_,
        len(match["wider"] or ""),
        match["also"] or "",
        bool(match["bare"]),
        match["count"] or "",
        less,
        times,
        match["when"] or "",
        match["where"],
    )


def _is_destination(match: re.Match[str]) -> bool:
    return match["name"] in _DESTINATIONS and match["open"] != "["


def _values(text: str) -> tuple[int, ...] | range:
    low, dots, high = text.partition("..")
    if not dots:
        return tuple(map(int, text.split(",")))
    last, _, step = high.partition("/")
    return range(int(low), int(last) + 1, int(step or 1))


#: registers that an address may be in, the widest first
_ADDRESSES = tuple(sorted(ADDRESS, key=lambda name: -REGISTER_BITS[name]))
_HANDLES = tuple(x for x in _ADDRESSES if REGISTER_BITS[x] == 64)
#: by the number of plus signs
_TENSOR_ADDRESSES = (("b32",), ("b32", "u32", "s32"), ("b32", "u32", "s32", "f16x2"))
_LEAST_BITS = (0, 32, 64)


def _addresses(space: str, wider: int, also: str) -> tuple[str, ...]:
    if space == "tensor":
        return _TENSOR_ADDRESSES[wider]
    if space in ("texture", "surface"):
        return _HANDLES
    if space == "endpoint":
        return _TENSOR_ADDRESSES[1]
    # One of 32 bits is an address of 32 bits, and the file one of 32-bit code, where ptxas looks at
    # the address as it stands.
    narrow = space in ("", "global") and not wider and not also
    return tuple(
        x
        for x in _ADDRESSES
        if REGISTER_BITS[x] >= _LEAST_BITS[wider] and not (narrow and REGISTER_BITS[x] == 32)
    )


def settle(pattern: OperandPattern, words: dict[str, str], default: str) -> Operand | None:
    """The operand, now that the modifiers and the instruction's type are known; None where the
    modifiers leave it out."""
    operand, name = pattern.operand, pattern.type
    if pattern.when and pattern.when not in words.values():
        return None
    count = words.get(pattern.count, pattern.count if pattern.count[-1:].isdigit() else "")
    number = int(re.sub(r"\D", "", count) or 1) * pattern.times + pattern.less
    if operand.kind == "address":
        coordinates = number if pattern.count else 0
        space = words.get(name, name)
        operand = replace(
            operand,
            space=space,
            types=_addresses(space, pattern.wider, pattern.also),
            coordinates=coordinates,
            layered=count.startswith("a"),
        )
        return replace(operand, type=words.get("ctype", "")) if space == "texture" else operand
    if operand.kind == "immediate":
        return replace(operand, constants="integers")
    if operand.kind in ("label", "function", "parameters") or operand.name == "_":
        return operand
    if operand.kind == "vector":
        # One register may stand in braces, too.
        operand = replace(operand, count=number)
        if not count:
            operand = replace(operand, kind="register", pieces=(1,))
    if name == "wide":
        name = f"{default[0]}{2 * TYPES[default].bits}"
    else:
        name = words.get(name, name) or default
    types = register_types(name, pattern.wider)
    also = pattern.also.removeprefix("/")
    sized = TYPES[name].is_float and operand.kind == "vector" and pattern.also != "/"
    if sized and f"f{TYPES[name].size}" in types:
        # ptxas looks at no more than the size.
        types += tuple(f"{sign}{TYPES[name].size}" for sign in "us")
    elif pattern.type in ("", "wide", *words) and "b32" in types and not pattern.also:
        # ptxas takes it where the opcode says the type, and not where the instruction does.
        own = pattern.wider < 2 or TYPES[name].size == 32
        also = "f16x2" if own and TYPES[name].kind != "float" else ""
    types = tuple(dict.fromkeys((*types, *also.split("/")))) if also else types
    reads = operand.use == "read"
    constants = constants_of(name) if reads else "none"
    space = words.get(pattern.where, pattern.where)
    if pattern.bare:
        constants = "words" if operand.count > 1 else "none"
    return replace(
        operand,
        kind="predicate" if name == "pred" and reads else operand.kind,
        type=name,
        types=types,
        constants=constants,
        space=space,
    )
