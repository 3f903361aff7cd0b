"""``Call``: an instruction with everything that one execution of it needs, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from dtypes import Array
from emulator.arith import Engine
from emulator.errors import OperandError, shown
from emulator.isa.instruction import Instruction
from emulator.memory.space import Space
from emulator.targets import Target

Undefined = Literal["raise", "hardware"]


class Call(NamedTuple):
    """Operands and options by the names of the instruction's signature, not checked further: what
    NumPy makes arrays of may be one."""

    instruction: Any
    operands: dict[str, Array]
    options: dict[str, Any]
    target: Target
    engine: Engine = "auto"
    undefined: Undefined = "raise"

    @property
    def memory(self) -> Space:
        """The one memory that the instruction accesses."""
        keyword = _accepted(self.instruction).memory
        return Space.of(self.options.get(keyword), keyword)


#: the result from operands and options by name
Compute = Callable[[dict[str, Array], dict[str, Any]], Array]


class _Accepted(NamedTuple):
    #: names of the operands in order; a descriptor has that of its matrix
    operands: tuple[str, ...]
    #: the same, as a call may name them
    arguments: tuple[tuple[str, ...], ...]
    #: the operand of each of these names
    named: dict[str, str]
    options: tuple[str, ...]
    #: that one of the options which is memory, "" where there is none
    memory: str


@lru_cache(maxsize=1024)
def _accepted(ins: Instruction) -> _Accepted:
    ways = [signature.arguments for signature in ins.signatures()]
    arguments = tuple(
        tuple(dict.fromkeys(x.argument for x in same)) for same in zip(*ways, strict=True)
    )
    names = tuple(operand.name for operand in ways[0])
    memory = next((x.memory for x in ins.signature().operands if x.memory), "")
    named = {x: name for name, same in zip(names, arguments, strict=True) for x in same}
    return _Accepted(names, arguments, named, ins.options, memory)


class Names(NamedTuple):
    """Where a call has the operands and options of an instruction."""

    #: the operands that it gives in order
    places: tuple[str, ...]
    #: the other operands, and the names that it gives them by
    named: tuple[tuple[str, str], ...] = ()

    def sort(
        self, operands: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Operands by name, which are taken from `options`, and the options that are left."""
        found = dict(zip(self.places, operands, strict=True)) if operands else {}
        for name, given in self.named:
            found[name] = options.pop(given)
        return found, options


def by_name(ins: Instruction, count: int, options: tuple[str, ...]) -> Names:
    """For a call with so many operands in order and options of these names; operands may also be
    given by the names that a call has for them.

    Raises OperandError for a wrong number of operands and for options that `ins` has not.
    """
    accepted = _accepted(ins)
    named: dict[str, str] = {}
    first = accepted.operands[:count]
    for given in options:
        name = accepted.named.get(given)
        if name is not None and name not in named and name not in first:
            named[name] = given
        elif given not in accepted.options:
            raise OperandError(
                f"{ins} takes no {given:.80}=; its options are "
                f"{', '.join(accepted.options) or 'none'}"
            )
    found = len(first) + len(named)
    if count > len(accepted.operands) or found < len(accepted.operands):
        shown = ", ".join(" or ".join(names) for names in accepted.arguments)
        expected = len(accepted.operands)
        raise OperandError(
            f"{ins} takes {expected} operand{'s' if expected > 1 else ''} ({shown}); "
            f"got {max(count, found)}"
        )
    return Names(first, tuple(named.items()))


def check_undefined(given: object) -> None:
    """OperandError where `undefined=` is neither "raise" nor "hardware"."""
    if not isinstance(given, str) or given not in ("raise", "hardware"):
        raise OperandError(f"undefined= is 'raise' or 'hardware'; got {shown(given)}")
