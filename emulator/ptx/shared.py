"""Variables in shared memory: where ``.shared`` declarations put them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from emulator.errors import OperandError
from emulator.ptx.tree import Variable
from emulator.ptx.variables import extent


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

    def forget(self, count: int, end: int) -> None:
        """Takes declarations back: `count` are left, which end at `end`."""
        for name in list(self._variables)[count:]:
            del self._variables[name]
        self._end = end

    def declare(self, variable: Variable, limit: int | None) -> SharedVariable:
        """Places a variable and remembers its name."""
        placed = self.place(variable, limit)
        self._variables[placed.name] = placed
        return placed

    def place(self, variable: Variable, limit: int | None) -> SharedVariable:
        """Places a variable behind the others.

        Raises OperandError for a type or a size that a variable cannot have, and where more than
        `limit` bytes are needed.
        """
        name, room = variable.name.text, extent(variable)
        if not room.bytes:
            raise OperandError(f"variable {name!r:.100} has no elements")
        address = -(-self._end // room.alignment) * room.alignment
        end = address + room.bytes
        if limit is not None and end > limit:
            raise OperandError(
                f"variable {name!r:.100} takes bytes {address} … {end - 1} of shared memory, which "
                f"has {limit}; make the machine with shared_bytes={end}"
            )
        self._end = end
        return SharedVariable(name, address, room.element_bytes, room.bytes)
