"""``State``: what statements read and change, and how all of it is taken back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dtypes import Array
from emulator.arith import Engine
from emulator.errors import UndefinedError, UnsupportedError
from emulator.memory.space import Space
from emulator.ptx.ordering import Saved, WgmmaOrder
from emulator.ptx.registers import RegisterFile
from emulator.ptx.shared import SharedVariables
from emulator.targets import Target
from emulator.warp.call import Undefined


@dataclass
class State:
    """Registers, variables and shared memory of a warp or warpgroup, or of a batch of them."""

    lanes: int
    target: Target
    engine: Engine
    undefined: Undefined
    registers: RegisterFile
    #: variables of .shared declarations
    variables: SharedVariables
    shared: Space
    #: what wgmma has in flight
    order: WgmmaOrder = field(default_factory=WgmmaOrder)
    #: statements run: what they change can be taken back
    _running: bool = False
    _order_before: Saved | None = None
    #: registers and variables that these statements have declared, and where variables ended before
    _declared: tuple[Sequence[str], Sequence[str], int] = ((), (), 0)

    @property
    def batch(self) -> tuple[int, ...]:
        return self.registers.shape[:-1]

    # --- registers ---

    def check_read(self, names: Sequence[str], where: str = "") -> None:
        """Raises UndefinedError for a register that holds nothing yet, or may still change."""
        if self.undefined != "raise":
            return
        self.check_written(names, where)
        self.order.check_read(names, where)

    def check_written(self, names: Iterable[str], where: str = "") -> None:
        """Raises UndefinedError for a register that nothing has written."""
        if self.undefined != "raise":
            return
        for name in names:
            if not self.registers[name].written:
                raise UndefinedError(
                    f"{where}register {name!r:.100} is read and nothing has written it; with "
                    "undefined='hardware' it would hold zeros"
                )

    def read(self, name: str, where: str) -> Array:
        """The words of a register, for an ordinary statement."""
        if self.undefined == "raise":
            self.check_read([name], where)
            self.order.touch([name])
        return self.registers[name].words

    def write(self, name: str, words: Array, where: str) -> None:
        """Sets the words ``(*batch, lanes)`` of a register, for an ordinary statement."""
        if self.undefined == "raise":
            self.order.check_write([name], where)
            self.order.touch([name])
        self.registers.write(name, np.broadcast_to(words, self.registers.shape))

    def set_from_outside(self, names: Sequence[str]) -> None:
        """The caller is about to set registers; raises UndefinedError where a wgmma uses one."""
        if self.undefined == "raise":
            self.order.check_write(names, "")
            self.order.touch(names)

    # --- memory ---

    def memory(self, keyword: str, where: str) -> Space:
        """The memory that `execute` calls so; raises UnsupportedError for one that is not here."""
        if keyword != "shared":
            raise UnsupportedError(
                f"{where}a warp has shared memory alone; `execute` takes {keyword}="
            )
        return self.shared

    # --- all or nothing ---

    def begin(
        self, registers: Sequence[str] = (), variables: Sequence[str] = (), end: int | None = None
    ) -> None:
        """From here on everything that is changed can be taken back, with the declarations of those
        registers and variables, before which the variables ended at `end`."""
        self.settle()
        self._declared = registers, variables, self.variables.end if end is None else end
        self.registers.replaced, self.shared.replaced = {}, []
        self._order_before = self.order.saved()
        self._running = True

    def end(self) -> None:
        """What was changed since `begin` stays."""
        self._running = False
        self.registers.replaced = self.shared.replaced = None

    def roll_back(self) -> None:
        """Takes back what was changed since `begin`; `settle` goes on after an interrupt."""
        self.registers.roll_back()
        self.shared.roll_back()
        if self._order_before is not None:
            self.order.restore(self._order_before)
        registers, variables, end = self._declared
        self.registers.forget(registers)
        self.variables.forget(variables, end)
        self.end()

    def settle(self) -> None:
        """Takes back what an interrupted run has left."""
        if self._running:
            self.roll_back()
