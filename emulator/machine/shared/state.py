"""All engines: ``WarpState``, what texts of statements read and change, and how all of it is taken
back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dtypes import Array
from emulator.arith import Engine
from emulator.errors import UndefinedError
from emulator.machine.shared.ordering import Saved, WgmmaOrder
from emulator.machine.shared.registers import RegisterFile
from emulator.memory.space import Space
from emulator.ptx.statements import Declared, Mark
from emulator.targets import Target
from emulator.warp.call import Undefined


@dataclass(eq=False)
class WarpState:
    """Registers, variables and shared memory of a warp or warpgroup, or of a batch of them."""

    lanes: int
    target: Target
    engine: Engine
    undefined: Undefined
    #: names of registers and of shared variables
    declared: Declared
    registers: RegisterFile
    shared: Space
    #: products of wgmma in flight
    order: WgmmaOrder = field(default_factory=WgmmaOrder)
    #: a text runs: what it changes can be taken back
    _running: bool = False
    _order_before: Saved | None = None
    #: where the declarations of the text began
    _mark: Mark | None = None

    @property
    def batch(self) -> tuple[int, ...]:
        return self.registers.shape[:-1]

    # --- from outside of statements ---

    def words_of(self, name: str) -> Array:
        """The words of a register, for the caller.

        Raises UndefinedError for one that holds nothing yet, or may still change.
        """
        register = self.registers[name]
        if self.undefined == "raise":
            if not register.written:
                raise UndefinedError(unwritten(name))
            self.order.check_read([name])
        return register.words

    def set_from_outside(self, names: Sequence[str]) -> None:
        """The caller is about to set registers; raises UndefinedError where a wgmma uses one."""
        if self.undefined == "raise":
            self.order.check_write(names)
            self.order.touch(names)

    # --- all or nothing ---

    def begin(self, mark: Mark | None) -> None:
        """From here on everything that is changed can be taken back, with the declarations that
        came after the mark."""
        self._mark = mark
        self.registers.replaced, self.shared.replaced = {}, []
        self._order_before = self.order.saved()
        self._running = True

    def end(self) -> None:
        """Keeps the changes since `begin`."""
        self._running = False
        self.registers.replaced = self.shared.replaced = None

    def roll_back(self) -> None:
        """Takes back what was changed since `begin`; `settle` goes on after an interrupt."""
        self.registers.roll_back()
        self.shared.roll_back()
        if self._order_before is not None:
            self.order.restore(self._order_before)
        if self._mark is not None:
            self.registers.forget(self._mark)
        self.end()

    def settle(self) -> None:
        """Takes back what an interrupted run has left."""
        if self._running:
            self.roll_back()


def unwritten(name: str) -> str:
    """The message for a register that is read too early."""
    return (
        f"register {name!r:.100} is read and nothing has written it; with undefined='hardware' it "
        "would hold zeros"
    )
