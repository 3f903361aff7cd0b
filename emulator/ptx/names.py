"""Names in a function: registers, variables, labels (PTX ISA 5.4, 6)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from emulator.errors import OperandError, hint
from emulator.isa.register_types import REGISTER_BITS
from emulator.ptx.program import Function, Register, RegisterInfo
from emulator.ptx.tree import DeclaredName, Prototype, RegisterDeclaration, TargetList

#: parts of a vector register, by their number
ELEMENTS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]*)", re.ASCII)
_HALVES, _WORDS, _PAIRS = (tuple(f"{x}{bits}" for x in "bus") for bits in (16, 32, 64))
#: registers that PTX predefines (PTX ISA 10), and the types that mov reads them as (ptxas 13.0)
_SPECIAL = {
    re.compile(f"%(?:{names})", re.ASCII): types
    for names, types in {
        r"laneid|warpid|nwarpid|smid|nsmid|clock(_hi)?|lanemask_(eq|le|lt|ge|gt)|pm\d+|envreg\d+"
        r"|globaltimer_(lo|hi)|(cluster_)?n?ctarank|(n?clusterid|cluster_n?ctaid)\.[xyzwrgba]"
        r"|(total|dynamic|aggr)_smem_size|reserved_smem_offset_(begin|end|cap|[01])": _WORDS,
        r"n?(tid|ctaid)\.[xyzwrgba]": _HALVES + _WORDS,
        r"clock64|globaltimer|pm\d+_64|current_graph_exec": _PAIRS,
        r"gridid": _HALVES + _WORDS + _PAIRS,
        r"is_explicit_cluster": ("pred",),
        # Vectors, of which each component has a name.
        r"n?tid|n?ctaid|n?clusterid|cluster_n?ctaid": (),
    }.items()
}
_LETTERS = "xyzw"


def is_special(name: str) -> bool:
    """True if a name is that of a register which PTX predefines."""
    return special_types(name) is not None


def special_types(name: str) -> tuple[str, ...] | None:
    """The types that mov reads a register as which PTX predefines, () for a vector; None for any
    other name."""
    return next((types for names, types in _SPECIAL.items() if names.fullmatch(name)), None)


def special_elements(name: str) -> tuple[str, ...]:
    """The names of the components of a vector that PTX predefines; () for any other name."""
    return tuple(f"{name}.{letter}" for letter in _LETTERS) if special_types(name) == () else ()


def is_reserved(name: str) -> bool:
    """True if no declaration may take a name: `_` discards a result, PTX reserves others."""
    return name in ("_", "WARP_SZ") or is_special(name)


class Symbol(NamedTuple):
    """A variable: its state space and where it starts there."""

    name: str
    space: str
    #: of .param in a function: the register that holds the bytes; else an address or an offset
    place: int
    element_bytes: int = 1
    #: of the whole variable; None: an array of .extern without a size
    bytes: int | None = 1


#: how C++ names a variable of a function: ``_ZZ6kernelE4tile``; the last name is its own
_LOCAL_NAME = re.compile(r"_ZZ.*E(\d+)([A-Za-z_].*?)(?:_\d+)?")


def short_name(name: str) -> str:
    """The name of a variable as its source has it, where the mangled name is that of a local one;
    any other name as it is."""
    match = _LOCAL_NAME.fullmatch(name)
    return match[2] if match and len(match[2]) == int(match[1]) else name


def place_name(symbols: Iterable[Symbol], offset: int, size: int = 0) -> str:
    """Name of the element at an offset in shared memory, for messages: ``tile[3]``.

    An array of bytes is counted in elements of `size` bytes, those of the access, as its source
    will have it; where the access names no element (0), in bytes: ``tile + 96 bytes``. An array
    without a size (dynamic shared memory) may hold anything, so its bytes are named beside.
    """
    below = [symbol for symbol in symbols if symbol.place <= offset]
    if not below:
        return f"at shared offset {offset:#x}"
    symbol = max(below, key=lambda symbol: symbol.place)
    name, inside = short_name(symbol.name), offset - symbol.place
    element = symbol.element_bytes
    if element == 1 and (not size or inside % size):
        return f"{name} + {inside} bytes" if inside else name
    step = size if element == 1 else element
    index, rest = divmod(inside, step)
    name = name if symbol.bytes is not None and symbol.bytes <= step else f"{name}[{index}]"
    name = f"{name} + {rest} bytes" if rest else name
    return f"{name} (byte {inside})" if symbol.bytes is None and index else name


@dataclass(frozen=True, slots=True)
class _Range:
    """``%r<5>``: %r0 to %r4 exist from when they are first named."""

    count: int
    type: str
    vector: int


#: register types that came later than PTX 1.0
_LATER_TYPES = {"b128": (8, 3)}


def check_version(type_: str, version: tuple[int, int] | None) -> None:
    """OperandError for a register type that is younger than the PTX version of a file."""
    since = _LATER_TYPES.get(type_)
    if version and since and version < since:
        raise OperandError(
            f"registers of type .{type_} came with PTX {since[0]}.{since[1]}; the file is PTX "
            f"{version[0]}.{version[1]} (.version)"
        )


@dataclass(eq=False)
class Scope:
    """The names of a block; what it lacks, the block around it may have."""

    function: Function
    parent: Scope | None = None
    registers: dict[str, int] = field(default_factory=dict)
    #: vector registers, by name: their elements
    vectors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    ranges: dict[str, _Range] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    #: label -> the pc that it names
    labels: dict[str, int] = field(default_factory=dict)
    lists: dict[str, TargetList] = field(default_factory=dict)
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    #: parameters of a function, whose names its outermost block cannot declare again
    parameters: frozenset[str] = frozenset()
    #: a number may be an address in shared memory: of a machine, which needs no variables
    shared_numbers: bool = False

    # --- declarations ---

    def declare(self, declaration: RegisterDeclaration) -> None:
        """Adds registers; all of them or, where it raises OperandError, none."""
        if declaration.type not in REGISTER_BITS:
            types = [f".{t}" for t in REGISTER_BITS]
            raise OperandError(
                f"no register type .{declaration.type}; types are {', '.join(types)}"
                f"{hint('.' + declaration.type, types)}"
            )
        names = [f"{n.text}<" if n.numbered is not None else n.text for n in declaration.names]
        for i, declared in enumerate(declaration.names):
            if declared.numbered is None:
                self.check_free(declared.text, names[:i])
            else:
                self._check_free_range(declared.text, declared.numbered, names[:i])
        for declared in declaration.names:
            self._declare(declared, declaration.type, declaration.vector)

    def _declare(self, name: DeclaredName, type_: str, vector: int) -> None:
        if name.numbered is not None:
            self.ranges[name.text] = _Range(name.numbered, type_, vector)
        else:
            self._make(name.text, type_, vector)

    def _make(self, name: str, type_: str, vector: int) -> None:
        if vector == 1:
            self.registers[name] = self.new(name, type_)
        else:
            parts = (f"{name}.{letter}" for letter in _LETTERS[:vector])
            self.vectors[name] = tuple(self.new(part, type_) for part in parts)

    def new(self, name: str, type_: str) -> int:
        """A new register of the function, under no name of the program."""
        self.function.registers.append(RegisterInfo.of(name, type_))
        return len(self.function.registers) - 1

    def check_free(self, name: str, others: Iterable[str] = ()) -> None:
        """OperandError for a name that is taken in this block, or reserved."""
        if is_reserved(name):
            raise OperandError(f"{name!r} is a name of PTX's own and cannot be declared")
        self.check_new(name, others)

    def check_new(self, name: str, others: Iterable[str] = ()) -> None:
        """OperandError for a name that is taken in this block."""
        taken = (self.registers, self.vectors, self.symbols, self.labels, self.lists)
        rest = (self.prototypes, self.parameters, others)
        if any(name in known for known in (*taken, *rest)) or self._range_of(name):
            raise OperandError(f"{name!r} is declared already")

    def _check_free_range(self, name: str, count: int, others: Iterable[str]) -> None:
        """The same for ``name<count>``: `name` itself may be something else."""
        if name in self.ranges or f"{name}<" in others:
            raise OperandError(f"'{name}<…>' is declared already")
        for known in (*self.registers, *self.vectors, *self.symbols, *self.parameters, *others):
            match = _NUMBERED.fullmatch(known)
            if match and match[1] == name and len(match[2]) < 9 and int(match[2]) < count:
                raise OperandError(f"{known!r} is declared already")

    def _range_of(self, name: str) -> _Range | None:
        """The range that has a register of that name."""
        match = _NUMBERED.fullmatch(name)
        found = self.ranges.get(match[1]) if match else None
        if match is None or found is None or len(match[2]) > 8 or int(match[2]) >= found.count:
            return None
        return found

    # --- look-up ---

    def around(self) -> Iterator[Scope]:
        """This block and those around it, the innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def register(self, name: str) -> Register | None:
        """The register of that name, None where there is none."""
        for scope in self.around():
            index = scope.registers.get(name)
            if index is not None:
                return Register(index)
            if scope._makes(name):
                return Register(scope.registers[name]) if name in scope.registers else None
            if name in scope.symbols:
                return None
        return None

    def _makes(self, name: str) -> bool:
        """Makes a register of a range when it is first named; False where no range has it."""
        if name in self.registers or name in self.vectors:
            return True
        if not self.ranges:
            return False
        found = self._range_of(name)
        if found is None:
            return False
        self._make(name, found.type, found.vector)
        return True

    def vector(self, name: str) -> tuple[int, ...] | None:
        """The elements of a vector register."""
        for scope in self.around():
            if name in scope.vectors or (scope._makes(name) and name in scope.vectors):
                return scope.vectors[name]
        return None

    def symbol(self, name: str) -> Symbol | None:
        return next((s.symbols[name] for s in self.around() if name in s.symbols), None)

    def label(self, name: str) -> int | None:
        return next((s.labels[name] for s in self.around() if name in s.labels), None)

    def target_list(self, name: str) -> TargetList | None:
        return next((s.lists[name] for s in self.around() if name in s.lists), None)

    def known(self) -> list[str]:
        """Names of registers, for messages."""
        out: list[str] = []
        for scope in self.around():
            out += scope.registers
            for prefix, found in scope.ranges.items():
                out += [f"{prefix}{i}" for i in {0, 1, found.count - 1} if 0 <= i < found.count]
        return list(dict.fromkeys(out))
