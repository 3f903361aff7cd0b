"""Variables in shared memory: where ``.shared`` declarations put them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from emulator.errors import OperandError, nearest
from emulator.isa.register_types import REGISTER_BITS
from emulator.ptx.syntax import SharedDeclaration, Variable


@dataclass(frozen=True)
class SharedVariable:
    """One variable: its first byte in shared memory, and the bytes of one element."""

    name: str
    address: int
    element_bytes: int
    bytes: int


class SharedVariables(Mapping[str, SharedVariable]):
    """The declared variables by name, one after the other from address 0 on."""

    def __init__(self) -> None:
        self._variables: dict[str, SharedVariable] = {}
        self._end = 0

    def __getitem__(self, name: str) -> SharedVariable:
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    @property
    def end(self) -> int:
        """The first byte behind all variables."""
        return self._end

    def forget(self, names: Iterable[str], end: int) -> None:
        """Takes declarations back; `end` is what it was before them."""
        for name in names:
            self._variables.pop(name, None)
        self._end = end

    def declare(self, declaration: SharedDeclaration, limit: int | None) -> None:
        """Places the variables; raises OperandError where more than `limit` bytes are needed."""
        bits = REGISTER_BITS.get(declaration.type, 1)
        if bits == 1:
            types = [t for t, n in REGISTER_BITS.items() if n > 1]
            raise OperandError(
                f"{declaration.position}: no type .{declaration.type} in shared memory; types are "
                f"{', '.join('.' + t for t in types)}; nearest is "
                f".{nearest(declaration.type, types)[0]}"
            )
        for variable in declaration.variables:
            self._place(variable, bits // 8, declaration.alignment or bits // 8, limit)

    def _place(self, variable: Variable, size: int, alignment: int, limit: int | None) -> None:
        if variable.name in self._variables:
            raise OperandError(
                f"{variable.position}: variable {variable.name!r:.100} is declared already"
            )
        address = -(-self._end // alignment) * alignment
        end = address + size * variable.count
        if limit is not None and end > limit:
            raise OperandError(
                f"{variable.position}: variable {variable.name!r:.100} takes bytes {address} … "
                f"{end - 1} of shared memory, which has {limit}; make the machine with "
                f"shared_bytes={end}"
            )
        self._variables[variable.name] = SharedVariable(
            variable.name, address, size, size * variable.count
        )
        self._end = end
