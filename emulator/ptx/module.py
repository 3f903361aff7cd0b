"""A PTX file bound: its variables placed, and a program for each of its kernels.

What cannot be bound is a `Problem` with its place; a kernel with problems cannot run, the others
can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from dtypes import Array
from emulator.arith.scalar.bits import HANDLE_BITS
from emulator.errors import EmulatorError, OperandError, UnsupportedError, listing
from emulator.isa.instruction import Instruction, effects_of, version_numbers
from emulator.isa.signature import Signature
from emulator.memory.windows import FUNCTIONS, PARAMETERS, VARIABLES
from emulator.ptx import tree
from emulator.ptx.binding import Binder, BindError, choose, spelled
from emulator.ptx.mentions import addressed_in, items_of, names_in, symbols_in, variables_in
from emulator.ptx.names import Scope, Symbol, check_version, special_types
from emulator.ptx.passing import with_moves
from emulator.ptx.program import (
    Bound,
    Call,
    Constant,
    Function,
    Guard,
    Parameter,
    Program,
    Register,
    RegisterInfo,
    Statement,
    Target,
    Targets,
)
from emulator.ptx.redeclaration import Conflict, faults, has_any_bytes
from emulator.ptx.source import Source
from emulator.ptx.variables import (
    ELEMENT_BYTES,
    OPAQUE,
    check_complete,
    extent,
    initial_bytes,
    place,
)
from emulator.targets import Target as Chip

#: bytes of a handle
_HANDLE_BYTES = 8
#: between variables in global memory: what runs out of one meets none of the others
_GAP = 256


class Problem(NamedTuple):
    """A statement that cannot run."""

    line: int
    column: int
    opcode: str
    reason: str
    function: str
    #: "b.ptx:12" where several texts are one program: then `line` counts in `Module.text`
    file: str = ""

    def __str__(self) -> str:
        file = f" ({self.file})" if self.file else ""
        return f"line {self.line}, column {self.column}{file}: {self.reason}"


@dataclass(eq=False)
class BoundModule:
    """The tree of a file, and what follows from it for all kernels."""

    parsed: tree.Module
    target: Chip
    #: of shared memory, the bytes that the system keeps for itself
    reserved_shared: int = 0
    #: functions that the system supplies, and a file only declares
    supplied: tuple[str, ...] = ()
    #: the address of the first variable
    variables_at: int = VARIABLES
    #: of several texts that are one program: what keeps them from being one, and their headers
    conflicts: tuple[Conflict, ...] | None = None
    headers: tuple[tree.Header, ...] = ()
    #: kernels that were bound, by name; see `bind_kernel`
    bound: dict[str, BoundKernel] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        return self.parsed.source

    @cached_property
    def functions(self) -> dict[str, tree.Function]:
        """Functions by name: the definition, where one is only declared elsewhere."""
        out: dict[str, tree.Function] = {}
        for function in self.parsed.functions:
            if function.name not in out or function.body is not None:
                out[function.name] = function
        for alias in self.parsed.aliases:
            if alias.of in out:
                out[alias.name] = out[alias.of]
        return out

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        return tuple(
            name
            for name, function in self.functions.items()
            if function.kind == "entry" and function.body is not None and function.name == name
        )

    @cached_property
    def tables(self) -> frozenset[str]:
        """The names whose addresses variables start with."""
        values = (variable.initialiser for variable in self.variables.values())
        return frozenset(item.name for value in values for item in symbols_in(value))

    @cached_property
    def addressed(self) -> list[str]:
        """The functions whose addresses variables start with or statements take."""
        taken = self.tables.union(*(addressed_in(f.body) for f in self.functions.values()))
        return [name for name, f in self.functions.items() if name in taken and f.kind == "func"]

    @cached_property
    def addresses(self) -> dict[str, int]:
        """The address that a pointer to a function holds, by all of its names."""
        numbers = {name: i for i, name in enumerate(self.functions)}
        return {
            name: FUNCTIONS + 16 * numbers[function.name]
            for name, function in self.functions.items()
        }

    @cached_property
    def variables(self) -> dict[str, tree.Variable]:
        """Variables of .global and .const; a definition hides a declaration."""
        out: dict[str, tree.Variable] = {}
        for variable in self.parsed.variables:
            name = variable.name.text
            known = variable.space in ("global", "const") and variable.linkage != "extern"
            if known and variable.type in ELEMENT_BYTES:
                out[name] = variable
        return out

    @cached_property
    def problems(self) -> dict[str, Problem]:
        """By name, the first declaration that ptxas or nvlink refuses."""
        out: dict[str, Problem] = {}
        for fault in faults(self.parsed) if self.conflicts is None else self.conflicts:
            out.setdefault(fault.name, self.problem(fault.at, "", fault.reason, fault.name))
        return out

    def problem(self, at: int, opcode: str, reason: str, function: str) -> Problem:
        """A problem of what stands at an offset."""
        line, column = self.source.position(at)
        return Problem(line, column, opcode, reason, function, self.source.file_line(at))

    def version(self, at: int) -> tuple[int, int] | None:
        """The PTX version of the text at an offset."""
        before = [header for header in self.headers if header.at <= at]
        return (before[-1] if before else self.parsed.header).version

    @cached_property
    def symbols(self) -> dict[str, Symbol]:
        """The symbols of the variables of .global and .const, and of what are handles."""
        return self._placed | {
            name: Symbol(name, OPAQUE[type_], handle, _HANDLE_BYTES)
            for name, (type_, handle) in self.references.items()
        }

    @cached_property
    def _placed(self) -> dict[str, Symbol]:
        out: dict[str, Symbol] = {}
        start = self.variables_at
        for space in ("global", "const"):
            mine = [v for v in self.variables.values() if v.space == space]
            placed = place(mine, start, space, _GAP)
            out |= placed.symbols
            start = -(-placed.end // 4096) * 4096
        return out

    @cached_property
    def references(self) -> dict[str, tuple[str, int]]:
        """Types and handles of .texref, .samplerref and .surfref: addresses of no variable, with
        the bit of the type."""
        named = {
            v.name.text: v.type
            for v in self.parsed.variables
            if v.type in OPAQUE and v.linkage != "extern"
        }
        return {
            name: (type_, self._last + _HANDLE_BYTES * i | 1 << HANDLE_BITS[type_])
            for i, (name, type_) in enumerate(named.items())
        }

    @property
    def variable_sizes(self) -> list[int]:
        """Bytes of each variable of .global and .const."""
        return [extent(variable).bytes for variable in self.variables.values()]

    def initial_bytes(self) -> dict[str, Array]:
        """The bytes that each variable starts with."""
        return {
            name: initial_bytes(variable, self.symbols, self.addresses)
            for name, variable in self.variables.items()
        }

    @property
    def end(self) -> int:
        """Where the variables of another module may start."""
        return -(-(self._last + _HANDLE_BYTES * len(self.references)) // 4096) * 4096

    @property
    def _last(self) -> int:
        """Where variables end, rounded up."""
        sizes = zip(self.variables, self.variable_sizes, strict=True)
        last = max((self._placed[name].place + size for name, size in sizes), default=0)
        return max(self.variables_at, -(-(last + _GAP) // 4096) * 4096)

    def places(self) -> Iterator[tuple[str, int, bool]]:
        """(name, address, whether a kernel may write it) of every variable."""
        for name, variable in self.variables.items():
            yield name, self.symbols[name].place, variable.space == "global"

    @cached_property
    def shared(self) -> tuple[tree.Variable, ...]:
        """Variables of .shared outside of functions, also those without a size."""
        return tuple(
            v for v in self.parsed.variables if v.space == "shared" and v.type in ELEMENT_BYTES
        )


# --- a kernel and what it calls -------------------------------------------------------------------


@dataclass(eq=False)
class BoundKernel:
    """A kernel: its program, or the problems that keep it from running."""

    program: Program
    function: Function
    problems: list[Problem]
    #: shared memory: bytes that the system and the variables with a size take, and where the
    #: dynamic part starts
    static_shared: int
    dynamic_start: int
    #: names of shared variables, for messages
    shared_symbols: dict[str, Symbol] = field(default_factory=dict)


class Line(NamedTuple):
    """An instruction of the text, and the names that it sees."""

    instruction: tree.Instruction
    scope: Scope


def bind_kernel(module: BoundModule, name: str) -> BoundKernel:
    """The program of a kernel and of all functions that it may call; bound once."""
    if name not in module.bound:
        module.bound[name] = KernelBinder(module, name).result()
    return module.bound[name]


class KernelBinder:
    """Binds the statements of a kernel and of what it calls; collects what cannot run."""

    def __init__(self, module: BoundModule, name: str) -> None:
        self.module, self.name = module, name
        self.program = Program()
        self.problems: list[Problem] = []
        self.lines: dict[str, list[Line]] = {}
        self.shared: dict[str, Symbol] = {}
        #: where the last label leads; debug information has labels to which no branch leads
        self._labelled = -1

    def result(self) -> BoundKernel:
        reached = self._reached()
        self._check_declarations(reached)
        static, dynamic = self._place_shared(reached)
        for name in reached:
            self._outline(self.module.functions[name])
        for name in reached:
            self._bind(name)
        return BoundKernel(
            self.program,
            self.program.functions[self.name],
            self.problems,
            static,
            dynamic,
            self.shared,
        )

    # --- what belongs to the kernel ---

    def _reached(self) -> list[str]:
        """The kernel, and every function whose name is met from it on; with an indirect call all
        whose addresses the module takes, since a launch before may have stored one."""
        functions, out, left = self.module.functions, [], [self.name]
        tables, addressed = self.module.tables, self.module.addressed
        while left:
            function = functions[left.pop()]
            name, body = function.name, function.body
            if name in out or body is None:
                continue
            out.append(name)
            called = [n for n in names_in(body) if n in functions]
            if any(n in self.module.variables for n in names_in(body)):
                called += [n for n in tables if n in functions]
            if any(isinstance(item, tree.Prototype) for item in items_of(body)):
                called += addressed
            left += reversed(called)
        return out

    def _check_declarations(self, reached: list[str]) -> None:
        """Problems of the declarations that the kernel names."""
        faulty, named = self.module.problems, {*reached}
        for name in reached if faulty else ():
            named |= names_in(self.module.functions[name].body)
        self.problems += [faulty[name] for name in faulty if name in named]

    def _place_shared(self, reached: list[str]) -> tuple[int, int]:
        """Static variables in order of declaration, then where those without a size start."""
        module = self.module
        used = {n for name in reached for n in names_in(module.functions[name].body)}
        sized = [v for v in module.shared if v.linkage != "extern" and v.name.text in used]
        for name in reached:
            sized += [
                v
                for v in variables_in(module.functions[name].body)
                if v.space == "shared" and v.type in ELEMENT_BYTES
            ]
        placed = place(sized, module.reserved_shared, "shared")
        self.shared = dict(placed.symbols)
        dynamic = [v for v in module.shared if v.linkage == "extern" and v.name.text in used]
        alignment = max([16, *(extent(v).alignment for v in dynamic)])
        start = -(-placed.end // alignment) * alignment
        for variable in dynamic:
            name = variable.name.text
            self.shared[name] = Symbol(name, "shared", start, extent(variable).element_bytes, None)
        return placed.end, start

    # --- names of a function ---

    def _outline(self, function: tree.Function) -> None:
        """Declares all names of a function and lists its instructions."""
        made = Function(function.name, function.kind == "entry", first=self._count())
        made.directives = {d.name: d.values for d in function.directives}
        scope = self._body_scope(made, function)
        self.program.functions[function.name] = made
        self.program.addresses[self.module.addresses[function.name]] = function.name
        assert function.body is not None
        lines = self.lines[function.name] = []
        # Blocks nest as deep as a text likes: no recursion.
        stack: list[tuple[Iterator[tree.Item], Scope]] = [(iter(function.body.items), scope)]
        while stack:
            items, inner = stack[-1]
            for item in items:
                if isinstance(item, tree.Block):
                    stack.append((iter(item.items), Scope(made, inner)))
                    break
                self._item(item, inner, made, lines)
            else:
                stack.pop()
        if _falls_off(lines) or made.first + len(lines) == self._labelled:
            # ptxas puts an exit behind the last statement, too.
            end = tree.Instruction("ret", (), None, None, None, function.body.at)
            lines.append(Line(end, scope))
        made.end = made.first + len(lines)

    def _body_scope(self, made: Function, function: tree.Function) -> Scope:
        """The scope of a function's outermost block."""
        around = Scope(made)
        around.symbols |= self.module.symbols | self.shared
        try:
            self._parameters(made, function, around)
        except EmulatorError as error:
            if function.name not in self.module.problems:
                self._problem(function.at, "", error, function.name)
        names = (variable.name.text for variable in (*function.returns, *function.parameters))
        return Scope(made, around, parameters=frozenset(names))

    def _count(self) -> int:
        return sum(len(lines) for lines in self.lines.values())

    def _parameters(self, made: Function, function: tree.Function, scope: Scope) -> None:
        if function.kind == "entry":
            parameters = layout(function.parameters)
            made.parameters = parameters
            for parameter in parameters:
                place_ = PARAMETERS + parameter.offset
                size = parameter.bytes // max(1, parameter.count)
                scope.symbols[parameter.name] = Symbol(parameter.name, "param", place_, size)
            return
        if has_any_bytes(function):
            self._problem(
                function.at,
                "",
                UnsupportedError(
                    f"{function.name!r} takes bytes of any number: legal PTX, not modelled here"
                ),
                function.name,
            )
        made.parameter_registers = tuple(_formal(v, made, scope) for v in function.parameters)
        made.result_registers = tuple(_formal(v, made, scope) for v in function.returns)

    def _item(self, item: tree.Item, scope: Scope, function: Function, lines: list[Line]) -> None:
        if isinstance(item, tree.Instruction):
            *first, last = _lines(item, scope)
            lines += [*first, *self._with_moves(last)]
        elif isinstance(item, tree.Naming):
            try:
                self._named(item, scope, function)
            except EmulatorError as error:
                self._problem(item.at, "", error, function.name)

    def _with_moves(self, line: Line) -> list[Line]:
        """A line; a direct call with the moves that it needs."""
        given, scope = line
        if "calls" not in effects_of(given.opcode):
            return [line]
        name = next((x.text for x in given.operands if isinstance(x, tree.Name)), "")
        function = self.module.functions.get(name) if scope.register(name) is None else None
        if function is None:
            return [line]
        return [Line(each, scope) for each in with_moves(given, function, scope)]

    def _named(self, item: tree.Naming, scope: Scope, function: Function) -> None:
        if isinstance(item, tree.RegisterDeclaration):
            check_version(item.type, self.module.version(item.at))
            scope.declare(item)
            return
        if isinstance(item, tree.Variable):
            self._variable(item, scope, function)
            return
        scope.check_free(item.name)
        if isinstance(item, tree.Label):
            scope.labels[item.name] = self._labelled = self._count()
        elif isinstance(item, tree.TargetList):
            scope.lists[item.name] = item
        else:
            scope.prototypes[item.name] = item

    def _variable(self, variable: tree.Variable, scope: Scope, function: Function) -> None:
        name = variable.name.text
        scope.check_new(name)
        check_complete(variable)
        if variable.space == "shared" and name in self.shared:
            scope.symbols[name] = self.shared[name]
            return
        room = extent(variable)
        if variable.space == "local":
            start = -(-function.local_bytes // room.alignment) * room.alignment
            function.local_bytes = start + room.bytes
            scope.symbols[name] = Symbol(name, "local", start, room.element_bytes, room.bytes)
        elif variable.space == "param":
            _formal(variable, function, scope)
        else:
            raise UnsupportedError(
                f"a variable of .{variable.space} in a function is not modelled here"
            )

    # --- statements ---

    def _bind(self, name: str) -> None:
        function = self.program.functions[name]
        for pc, line in enumerate(self.lines[name], function.first):
            try:
                statement = self._statement(pc, line, function)
            except EmulatorError as error:
                at = error.at if isinstance(error, BindError) else line.instruction.at
                self._problem(at, line.instruction.opcode, error, name)
                continue
            self.program.statements.append(statement)
            self.program.leaders.update(statement.targets)

    def _statement(self, pc: int, line: Line, function: Function) -> Statement:
        given, scope = line.instruction, line.scope
        version = self.module.version(given.at)
        instruction = parsed(given.opcode, self.module.target, version)
        place = _guard(given, scope), given.at, given.location
        if "calls" in instruction.effects:
            call = self._call(given, scope, function)
            return Statement(pc, instruction, Signature(()), {}, *place, call=call)
        signatures = instruction.signatures(self.module.target)
        signature = choose(signatures, given.operands)
        later = instruction.form.later_operands
        if version and later:
            signature = signature.without({x for x, v in later if version < version_numbers(v)})
        binder = Binder(scope, given.opcode, self.module.addresses)
        operands = binder.bind(signature, given.operands)
        if _uses_carry(instruction) and function.carry is None:
            function.carry = scope.new("CC.CF", "pred")
        return Statement(
            pc,
            instruction,
            signature,
            operands,
            *place,
            used_bytes=given.used_bytes_mask,
            targets=tuple(_targets(operands)),
            selectors=binder.selectors,
        )

    def _call(self, given: tree.Instruction, scope: Scope, caller: Function) -> Call:
        operands = list(given.operands)
        results: tuple[int, ...] = ()
        if operands and isinstance(returned := operands[0], tree.Arguments):
            del operands[0]
            results = tuple(self._result(item, scope) for item in returned.items)
        if not operands or not isinstance(operands[0], tree.Name):
            raise OperandError("call names a function, or a register with its address")
        callee = operands.pop(0)
        assert isinstance(callee, tree.Name)
        arguments: tuple[Bound, ...] = ()
        if operands and isinstance(operands[0], tree.Arguments):
            arguments = tuple(self._argument(item, scope) for item in operands.pop(0).items)
        register = scope.register(callee.text)
        if register is not None:
            return Call(None, register.index, arguments, results)
        function = self.module.functions.get(callee.text)
        if function is None:
            raise BindError(f"no function {callee.text!r} is declared", callee.at)
        if function.body is None and callee.text not in self.module.supplied:
            raise UnsupportedError(
                f"function {callee.text!r} is declared and not defined; of the system's there are "
                f"{listing(self.module.supplied) or 'none here'}"
            )
        call = Call(function.name, None, arguments, results)
        if why := call.misfit(caller, self._declared(function)):
            raise OperandError(why)
        return call

    def _declared(self, function: tree.Function) -> Function:
        """A function with its parameters, whether it has a body or not."""
        if function.name in self.program.functions:
            return self.program.functions[function.name]
        made = Function(function.name, function.kind == "entry")
        self._parameters(made, function, Scope(made))
        return made

    def _result(self, item: tree.Operand, scope: Scope) -> int:
        bound = self._argument(item, scope)
        if not isinstance(bound, Register):
            raise BindError("a call returns into a register or a parameter;", item.at)
        return bound.index

    def _argument(self, item: tree.Operand, scope: Scope) -> Bound:
        if isinstance(item, tree.Integer):
            return Constant(item.value & (1 << 64) - 1)
        if isinstance(item, tree.Float):
            return Constant(item.bits)
        if isinstance(item, tree.Name):
            register = scope.register(item.text)
            if register is not None:
                return register
            symbol = scope.symbol(item.text)
            if symbol is not None and symbol.space == "param::func":
                return Register(symbol.place)
        raise BindError(f"{spelled(item)} is no parameter of a call", item.at)

    def _problem(self, at: int, opcode: str, error: Exception, function: str) -> None:
        self.problems.append(self.module.problem(at, opcode, str(error), function))


def parsed(opcode: str, target: Chip, version: tuple[int, int] | None = None) -> Instruction:
    """The instruction, if the target has it, and the PTX version of the file."""
    instruction = Instruction.parse(opcode)
    if target.name not in instruction.targets:
        raise UnsupportedError(
            f"{instruction} is not available on {target}; its targets are "
            f"{listing(instruction.targets, 30)}"
        )
    if version is not None and instruction.ptx_version > version:
        raise UnsupportedError(
            f"{instruction} came with PTX {spelled_version(instruction.ptx_version)}; the file is "
            f"PTX {spelled_version(version)} (.version)"
        )
    return instruction


def spelled_version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _uses_carry(instruction: Instruction) -> bool:
    return bool(
        getattr(instruction, "reads_carry", False) or getattr(instruction, "writes_carry", False)
    )


def _falls_off(lines: list[Line]) -> bool:
    """True if something may follow the last statement of a function."""
    if not lines:
        return True
    last = lines[-1].instruction
    return last.guard is not None or "ends" not in effects_of(last.opcode)


def _lines(given: tree.Instruction, scope: Scope) -> list[Line]:
    """An instruction; one that a special register guards behind the mov that reads it."""
    guard = given.guard
    if guard is None or special_types(guard.name) != ("pred",):
        return [Line(given, scope)]
    name = f"{guard.name} as a guard"
    if name not in scope.registers:
        scope.registers[name] = scope.new(name, "pred")
    operands = tree.Name(name, guard.at), tree.Name(guard.name, guard.at)
    read = tree.Instruction("mov.pred", operands, None, given.location, None, guard.at)
    return [Line(read, scope), Line(given._replace(guard=guard._replace(name=name)), scope)]


def _guard(given: tree.Instruction, scope: Scope) -> Guard | None:
    if given.guard is None:
        return None
    register = scope.register(given.guard.name)
    if register is None:
        raise BindError(f"predicate {given.guard.name!r} is not declared", given.guard.at)
    held = scope.function.registers[register.index].type
    if held != "pred":
        raise BindError(f"{given.guard.name!r} guards a statement and is .{held}", given.guard.at)
    return Guard(register.index, given.guard.negated)


def _targets(operands: Mapping[str, Bound]) -> Iterator[int]:
    for bound in operands.values():
        if isinstance(bound, Target):
            yield bound.pc
        elif isinstance(bound, Targets):
            yield from bound.pcs


def layout(variables: tuple[tree.Variable, ...]) -> tuple[Parameter, ...]:
    """Parameters of a kernel in the order of declaration, each at its alignment."""
    out = []
    end = 0
    for variable in variables:
        room = extent(variable)
        start = -(-end // room.alignment) * room.alignment
        count = room.bytes // room.element_bytes
        out.append(
            Parameter(variable.name.text, variable.type, start, room.bytes, room.alignment, count)
        )
        end = start + room.bytes
    return tuple(out)


def _formal(variable: tree.Variable, function: Function, scope: Scope) -> int:
    """The register that a parameter of a call lies in."""
    name = variable.name.text
    if variable.space == "reg":
        scope.registers[name] = scope.new(name, variable.type)
        return scope.registers[name]
    room = extent(variable)
    function.registers.append(RegisterInfo.bytes(name, room.bytes))
    index = len(function.registers) - 1
    scope.symbols[name] = Symbol(name, "param::func", index, room.element_bytes)
    return index
