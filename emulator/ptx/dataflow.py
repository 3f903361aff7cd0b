"""Definitions that each read of a register sees, over the basic blocks of a function.

Registers of PTX are written as often as one likes, under predicates too. Here a `Value` is what one
statement computes; a guarded statement makes two, its result and the choice between that and what
the register held; where control flow joins, a phi stands for what the branches bring (static single
assignment). Moves make no value: the register that they write holds the value that they read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from emulator.isa.instruction import effects_of

#: a register by its name, or an immediate as the bits that the instruction sees
Source = str | int


@dataclass(frozen=True, slots=True)
class Statement:
    """One instruction of a function body, as far as the flow of its values is concerned.

    Registers of addresses belong to `sources`, symbols do not. A vector operand is its elements.
    """

    opcode: str
    destinations: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    #: register of the predicate, and whether it is negated
    guard: tuple[str, bool] | None = None
    #: labels that stand in front of the instruction
    labels: tuple[str, ...] = ()
    #: labels that the instruction may jump to
    targets: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """The first word of the opcode."""
        return self.opcode.partition(".")[0]

    @property
    def ends(self) -> bool:
        """True if control never reaches the next statement, unless a guard is false."""
        return "ends" in effects_of(self.opcode)


@dataclass(slots=True, eq=False)
class Value:
    """A value: the result of a statement, or a register's content where control flow joins."""

    #: that of the statement; "phi", "select", "part" (of several destinations), "constant" and
    #: "undefined" for values that are no statement's result
    opcode: str
    #: of the statement, -1 for none
    index: int
    #: block that the statement is in, joined with those that follow it without a branch
    region: int
    arguments: list[Value] = field(default_factory=list)
    #: immediates, and which of several destinations this is
    bits: int | None = None
    #: the value that this one is, and whether with the other sign
    alias: tuple[Value, bool] | None = None
    #: values that something with an effect needs and that take this one, once for each operand
    users: list[Value] = field(default_factory=list)
    #: number of users when they were found
    uses: int = 0

    @property
    def head(self) -> str:
        """The first word of the opcode."""
        return self.opcode.partition(".")[0]

    def resolve(self) -> tuple[Value, bool]:
        """The value behind aliases, and whether its sign differs."""
        value, negated = self, False
        while value.alias is not None:
            value, flip = value.alias
            negated ^= flip
        return value, negated

    @property
    def root(self) -> Value:
        return self.resolve()[0]

    @property
    def roots(self) -> list[Value]:
        """The arguments, with aliases resolved."""
        return [argument.resolve()[0] for argument in self.arguments]


@dataclass(slots=True)
class Block:
    start: int
    stop: int
    successors: list[int]
    predecessors: list[int] = field(default_factory=list)
    region: int = -1


#: moves of a whole register
MOVES = frozenset(f"mov.{letter}{bits}" for letter in "bus" for bits in (16, 32, 64)) | {
    "mov.f32",
    "mov.f64",
}


def basic_blocks(
    statements: Sequence[Statement], parts: Callable[[Statement], bool]
) -> tuple[list[Block], list[int]]:
    """The basic blocks, and the numbers of those that can be reached, in reverse postorder.

    `parts` says of a statement whether it stands alone, in a block of its own.
    """
    targeted = {target for statement in statements for target in statement.targets}
    starts = {0}
    for index, statement in enumerate(statements):
        if targeted.intersection(statement.labels):
            starts.add(index)
        if parts(statement):
            starts |= {index, index + 1}
        elif statement.ends:
            starts.add(index + 1)
    order = sorted(start for start in starts if start < len(statements))
    at = {label: number for number, start in enumerate(order) for label in statements[start].labels}
    blocks = []
    for number, start in enumerate(order):
        stop = order[number + 1] if number + 1 < len(order) else len(statements)
        last = statements[stop - 1]
        following = [at[target] for target in last.targets if target in at]
        if (not last.ends or last.guard) and stop < len(statements):
            following.append(number + 1)
        blocks.append(Block(start, stop, list(dict.fromkeys(following))))
    reached = _reverse_postorder(blocks)
    for number in reached:
        for following_number in blocks[number].successors:
            blocks[following_number].predecessors.append(number)
    _join_regions(statements, parts, blocks, reached)
    return blocks, reached


def _reverse_postorder(blocks: list[Block]) -> list[int]:
    seen, post, stack = {0}, [], [(0, 0)]
    while stack:
        number, child = stack.pop()
        if child == len(blocks[number].successors):
            post.append(number)
            continue
        stack.append((number, child + 1))
        following = blocks[number].successors[child]
        if following not in seen:
            seen.add(following)
            stack.append((following, 0))
    return post[::-1]


def _join_regions(
    statements: Sequence[Statement],
    parts: Callable[[Statement], bool],
    blocks: list[Block],
    order: list[int],
) -> None:
    for number in order:
        block = blocks[number]
        block.region = number
        if len(block.predecessors) == 1:
            before = blocks[block.predecessors[0]]
            alone = parts(statements[block.start]) or parts(statements[before.stop - 1])
            if len(before.successors) == 1 and not alone:
                block.region = before.region


def _live_in(
    statements: Sequence[Statement], blocks: list[Block], order: list[int]
) -> list[set[str]]:
    """Registers that a block or one behind it reads before it is written."""
    live: list[set[str]] = [set() for _ in blocks]
    writes: list[set[str]] = [set() for _ in blocks]
    for number in order:
        for statement in statements[blocks[number].start : blocks[number].stop]:
            read = {source for source in statement.sources if isinstance(source, str)}
            if statement.guard is not None:
                read |= {statement.guard[0], *statement.destinations}
            live[number] |= read - writes[number]
            writes[number].update(statement.destinations)
    work = list(order)
    while work:
        number = work.pop()
        for before in blocks[number].predecessors:
            more = live[number] - writes[before] - live[before]
            if more:
                live[before] |= more
                work.append(before)
    return live


class Dataflow:
    """The values of a function body: `values`, in an order in which arguments come before users.

    Only phis may take a value that comes later.
    """

    def __init__(self, statements: Sequence[Statement], parts: Callable[[Statement], bool]) -> None:
        self.values: list[Value] = []
        self.blocks: list[Block] = []
        #: the blocks that can be reached, in reverse postorder
        self.order: list[int] = []
        #: by the index of a guarded statement, what its guard is
        self.guards: dict[int, Value] = {}
        self._statements = statements
        self._constants: dict[int, Value] = {}
        self._undefined: dict[str, Value] = {}
        if statements:
            self.blocks, self.order = basic_blocks(statements, parts)
            self._number(self.blocks, self.order)

    def _number(self, blocks: list[Block], order: list[int]) -> None:
        live = _live_in(self._statements, blocks, order)
        leaving: dict[int, dict[str, Value]] = {}
        phis: list[tuple[Value, str, int]] = []
        for number in order:
            block, known = blocks[number], dict[str, Value]()
            if len(block.predecessors) == 1 and block.predecessors[0] in leaving:
                before = leaving[block.predecessors[0]]
                known = {name: before[name] for name in live[number] if name in before}
            elif block.predecessors:
                # Sorted, so that what is found never depends on the hash of a name.
                for name in sorted(live[number]):
                    known[name] = self._new("phi", -1, block.region)
                    phis.append((known[name], name, number))
            for index in range(block.start, block.stop):
                self._define(index, block.region, known)
            leaving[number] = known
        for phi, name, number in phis:
            predecessors = blocks[number].predecessors
            phi.arguments = [self._read(name, leaving[before]) for before in predecessors]
            if number == 0:
                phi.arguments.append(self._read(name, {}))
        _drop_phis([phi for phi, _, _ in phis])

    def _new(self, opcode: str, index: int, region: int, *arguments: Value) -> Value:
        value = Value(opcode, index, region, list(arguments))
        self.values.append(value)
        return value

    def _read(self, source: Source, known: dict[str, Value]) -> Value:
        if isinstance(source, int):
            if source not in self._constants:
                self._constants[source] = Value("constant", -1, -1, bits=source)
            return self._constants[source]
        if source not in known and source not in self._undefined:
            self._undefined[source] = Value("undefined", -1, -1)
        return known.get(source) or self._undefined[source]

    def _define(self, index: int, region: int, known: dict[str, Value]) -> None:
        statement = self._statements[index]
        names, guard = statement.destinations, statement.guard
        arguments = [self._read(source, known) for source in statement.sources]
        if guard is not None:
            self.guards[index] = self._read(guard[0], known)
        if statement.opcode in MOVES and len(arguments) == len(names) == 1:
            results = arguments
        else:
            result = self._new(statement.opcode, index, region, *arguments)
            if guard is not None:
                result.arguments.append(self._read(guard[0], known))
            results = [result]
            if len(names) > 1:
                results = [self._new("part", index, region, result) for _ in names]
                for place, part in enumerate(results):
                    part.bits = place
        for name, value in zip(names, results, strict=False):
            if guard is not None:
                predicate, old = self._read(guard[0], known), self._read(name, known)
                value = self._new("select", index, region, value, old, predicate)
            known[name] = value


def _drop_phis(phis: list[Value]) -> None:
    """Makes a phi of which all operands are one value, or the phi itself, an alias of that."""
    changed = True
    while changed:
        changed = False
        for phi in phis:
            if phi.alias is None:
                incoming = {id(root): root for root in phi.roots if root is not phi}
                if len(incoming) == 1:
                    phi.alias = next(iter(incoming.values())), False
                    changed = True


def find_users(values: Sequence[Value], has_effect: Callable[[Value], bool]) -> None:
    """Fills `users` of every value that one of those with an effect needs, however indirectly."""
    work = [value for value in values if has_effect(value)]
    live = set(map(id, work))
    while work:
        value = work.pop()
        for root in value.roots:
            root.users.append(value)
            root.uses += 1
            if id(root) not in live:
                live.add(id(root))
                work.append(root)
