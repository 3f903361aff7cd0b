"""Statements as they stand in a kernel, bound to what texts before them have declared.

A machine that runs one text after the other keeps its registers and shared variables from text to
text. Each text is bound as the body of a kernel whose outermost names are the machine's: a register
of the machine becomes one of the kernel when the text first names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from emulator.errors import EmulatorError, OperandError, UnsupportedError, hint
from emulator.isa.register_types import REGISTER_BITS
from emulator.ptx import tree
from emulator.ptx.mentions import items_of
from emulator.ptx.module import BoundModule, KernelBinder, Line
from emulator.ptx.names import Scope, Symbol, is_reserved
from emulator.ptx.parser import parse_statements
from emulator.ptx.program import Function, Program, Statement
from emulator.ptx.shared import SharedVariable, SharedVariables
from emulator.ptx.source import Source
from emulator.targets import Target, check_made_for

#: registers that a machine may have: a kernel of ptxas's largest inputs has a tenth of them
MOST_REGISTERS = 1 << 17
#: no name of PTX
_NAME = "<statements>"


# --- what is known by name ------------------------------------------------------------------------


class Mark(NamedTuple):
    """Number of registers, vectors and variables declared so far, and the end of the variables."""

    registers: int
    vectors: int
    variables: int
    end: int


class Declared:
    """Registers and shared variables by name; `limit` is the size of shared memory, if any."""

    def __init__(self, limit: int | None = None) -> None:
        #: name -> type; of a vector register there are its elements, ``%v.x``
        self.registers: dict[str, str] = {}
        #: vector register -> its elements
        self.vectors: dict[str, tuple[str, ...]] = {}
        self.variables = SharedVariables()
        self.limit = limit

    def declare(self, type_: str, names: Sequence[str], vector: int = 1) -> None:
        """Declares registers; all of them or, on an error, none.

        Raises OperandError for a type that does not exist, and for a name that is taken or PTX's.
        """
        if type_ not in REGISTER_BITS:
            known = [f".{t}" for t in REGISTER_BITS]
            raise OperandError(
                f"no register type .{type_:.80}; types are {', '.join(known)}"
                f"{hint(f'.{type_}', known)}"
            )
        self._check_count(len(names))
        new: set[str] = set()
        for name in names:
            if is_reserved(name):
                raise OperandError(f"{name!r:.100} is a name of PTX's own and cannot be declared")
            taken = name in self.registers or name in self.vectors or name in self.variables
            if taken or name in new:
                raise OperandError(f"{name!r:.100} is declared already")
            new.add(name)
        for name in names:
            parts = tuple(f"{name}.{letter}" for letter in "xyzw"[:vector])
            if vector > 1:
                self.vectors[name] = parts
            self.registers.update(dict.fromkeys(parts if vector > 1 else (name,), type_))

    def _check_count(self, more: int) -> None:
        if more + len(self.registers) > MOST_REGISTERS:
            raise OperandError(f"more than {MOST_REGISTERS:,} registers are declared")

    def add(self, declaration: tree.RegisterDeclaration) -> None:
        """Declares what a ``.reg`` says; raises as `declare`."""
        names: list[str] = []
        for name in declaration.names:
            self._check_count(len(names) + (name.numbered or 1))
            if name.numbered is None:
                names.append(name.text)
            else:
                names += [f"{name.text}{i}" for i in range(name.numbered)]
        self.declare(declaration.type, names, declaration.vector)

    def add_variable(self, variable: tree.Variable) -> Symbol:
        """Places a ``.shared`` variable; raises OperandError for a name that is taken."""
        name = variable.name.text
        if name in self.registers or name in self.vectors or name in self.variables:
            raise OperandError(f"{name!r:.100} is declared already")
        return _symbol(self.variables.declare(variable, self.limit))

    def symbols(self) -> list[Symbol]:
        """The variables as names of a scope."""
        return [_symbol(variable) for variable in self.variables.values()]

    @property
    def mark(self) -> Mark:
        """Returns a mark for `forget`, which returns to this state."""
        variables = self.variables
        return Mark(len(self.registers), len(self.vectors), len(variables), variables.end)

    def forget(self, mark: Mark) -> None:
        """Takes declarations back that came after a mark."""
        for known, count in ((self.registers, mark.registers), (self.vectors, mark.vectors)):
            for name in list(known)[count:]:
                del known[name]
        self.variables.forget(mark.variables, mark.end)


def _symbol(variable: SharedVariable) -> Symbol:
    name, element = variable.name, variable.element_bytes
    return Symbol(name, "shared", variable.address, element, variable.bytes)


@dataclass(eq=False)
class _Outermost(Scope):
    """The names of a machine, and labels of a text; a register takes part once it is named."""

    declared: Declared = field(default_factory=Declared)
    #: registers of the machine that take part -> their number in the function
    taking_part: dict[str, int] = field(default_factory=dict)

    def declare(self, declaration: tree.RegisterDeclaration) -> None:
        self.declared.add(declaration)

    def _makes(self, name: str) -> bool:
        if name in self.registers or name in self.vectors:
            return True
        if name in self.declared.vectors:
            parts = self.declared.vectors[name]
            self.vectors[name] = tuple(self._index(part) for part in parts)
            return True
        if name in self.declared.registers:
            self._index(name)
            return True
        return False

    def _index(self, name: str) -> int:
        if name not in self.registers:
            index = self.new(name, self.declared.registers[name])
            self.registers[name] = self.taking_part[name] = index
        return self.registers[name]

    def known(self) -> list[str]:
        return list(self.declared.registers)


# --- binding --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Text:
    """A text that is bound."""

    source: Source
    program: Program
    function: Function
    #: registers of the machine that it names -> their number in the function
    registers: dict[str, int]
    #: statements that were written
    count: int


def bind(text: str, declared: Declared, target: Target, lanes: int) -> Text:
    """Binds statements, and adds what they declare outside of braces to `declared`.

    Instructions that more than `lanes` lanes execute together are refused, and a text whose
    ``.target`` cannot run on `target`. Raises ParseError, UnsupportedError or OperandError, with
    line, column and the source line; then nothing is declared.
    """
    block, source = parse_statements(text), Source(text)
    _check_header(block, source, target)
    mark = declared.mark
    try:
        return _StatementsBinder(source, block, declared, target, lanes).text()
    except BaseException:
        declared.forget(mark)
        raise


def target_of(text: str) -> str | None:
    """The target that the ``.target`` line of `text` names; None without such a line.

    Raises ParseError for a text that is not PTX.
    """
    header = _header(parse_statements(text))
    return header.targets[0] if header is not None and header.targets else None


def instructions(text: str) -> Iterator[tree.Instruction]:
    """The instructions of `text`, those in braces, too; raises ParseError for what is not PTX."""
    return (x for x in items_of(parse_statements(text)) if isinstance(x, tree.Instruction))


def _header(block: tree.Block) -> tree.Header | None:
    first = block.items[0] if block.items else None
    return first if isinstance(first, tree.Header) else None


def _check_header(block: tree.Block, source: Source, target: Target) -> None:
    header = _header(block)
    if header is not None and header.targets:
        name = header.targets[0].replace("compute_", "sm_")
        with located(source, source.text.find(header.targets[0], header.at)):
            check_made_for(name, target)


@contextmanager
def located(source: Source, at: int) -> Iterator[None]:
    """Errors say where in the text they happened."""
    try:
        yield
    except EmulatorError as error:
        raise at_place(error, source, at) from error


def at_place(error: EmulatorError, source: Source, at: int) -> EmulatorError:
    """An error of the same kind that says where it happened."""
    kind = next(x for x in type(error).__mro__ if x.__module__ == EmulatorError.__module__)
    return kind(source.located(at, str(error)))


class _StatementsBinder(KernelBinder):
    """Binds a text as the body of a kernel; what cannot run is raised."""

    def __init__(
        self, source: Source, block: tree.Block, declared: Declared, target: Target, lanes: int
    ) -> None:
        header = _header(block) or tree.Header(None, (), (), None, 0)
        body = tree.Function("entry", _NAME, None, (), (), (), (), block, 0)
        parsed = tree.Module(source, header, (), (), (body,), ())
        super().__init__(BoundModule(parsed, target), _NAME)
        self.declared, self.lanes, self.count = declared, lanes, 0
        function = Function(_NAME, True)
        self.outermost = _Outermost(function, declared=declared, shared_numbers=True)

    def text(self) -> Text:
        self._outline(self.module.functions[_NAME])
        self._bind(_NAME)
        self.program.kept = sum(1 << i for i in self.outermost.taking_part.values())
        return Text(
            self.module.source,
            self.program,
            self.program.functions[_NAME],
            self.outermost.taking_part,
            self.count,
        )

    def _body_scope(self, made: Function, function: tree.Function) -> Scope:
        self.outermost.function = made
        self.outermost.symbols.update((x.name, x) for x in self.declared.symbols())
        return self.outermost

    def _item(self, item: tree.Item, scope: Scope, function: Function, lines: list[Line]) -> None:
        self.count += isinstance(item, tree.Instruction)
        super()._item(item, scope, function, lines)

    def _variable(self, variable: tree.Variable, scope: Scope, function: Function) -> None:
        if variable.space != "shared":
            super()._variable(variable, scope, function)
        elif scope is self.outermost:
            scope.symbols[variable.name.text] = self.declared.add_variable(variable)
        else:
            scope.check_free(variable.name.text)
            placed = self.declared.variables.place(variable, self.declared.limit)
            scope.symbols[placed.name] = _symbol(placed)

    def _statement(self, pc: int, line: Line, function: Function) -> Statement:
        statement = super()._statement(pc, line, function)
        if statement.instruction.lanes > self.lanes:
            raise UnsupportedError(
                f"{statement.instruction} runs on {statement.instruction.lanes} lanes, a "
                f"Warpgroup; this is a Warp of {self.lanes}"
            )
        return statement

    def _problem(self, at: int, opcode: str, error: Exception, function: str) -> NoReturn:
        assert isinstance(error, EmulatorError)
        raise at_place(error, self.module.source, at) from None
