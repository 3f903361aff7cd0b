"""The statements that order wgmma: fence, commit_group, wait_group, and the proxy fence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emulator.errors import OperandError, UnsupportedError
from emulator.ptx.binder import Binder, Scope
from emulator.ptx.ordering import WgmmaOrder
from emulator.ptx.state import State
from emulator.ptx.syntax import Call, Integer


def _nothing(order: WgmmaOrder, count: int) -> None:
    """Shared memory is written at once here, so that a proxy fence has nothing to wait for."""


_EFFECTS: dict[str, Callable[[WgmmaOrder, int], None]] = {
    "wgmma.fence": lambda order, _: order.fence(),
    "wgmma.commit_group": lambda order, _: order.commit(),
    "wgmma.wait_group": lambda order, count: order.wait(count),
    "fence.proxy.async": _nothing,
}


@dataclass(frozen=True)
class SynchronisationStep:
    name: str
    pending: int

    def run(self, state: State) -> None:
        _EFFECTS[self.name](state.order, self.pending)


def is_synchronisation(opcode: str) -> bool:
    return opcode.startswith(tuple(_EFFECTS))


def bind_synchronisation(call: Call, scope: Scope, lanes: int) -> SynchronisationStep:
    """One of the ordering statements, checked; raises UnsupportedError or OperandError."""
    name = next(x for x in _EFFECTS if call.opcode.startswith(x))
    modifiers = set(call.opcode.removeprefix(name).split(".")[1:])
    needed = {"sync", "aligned"} if name.startswith("wgmma") else set()
    extra = {"shared::cta"} if name.startswith("fence") else set()
    if not needed <= modifiers or modifiers - needed - extra:
        raise UnsupportedError(f"write {'.'.join([name, *sorted(needed, reverse=True)])}")
    if name.startswith("wgmma") and lanes < 128:
        raise UnsupportedError(f"{name} runs on a Warpgroup; this is a Warp of {lanes} lanes")
    binder = Binder(call, scope, name)
    pending = 0
    if name == "wgmma.wait_group":
        operand = binder.take("number of pending groups")
        if not isinstance(operand, Integer) or operand.value < 0:
            raise OperandError(
                f"{operand.position}: wgmma.wait_group takes a number of groups, an integer 0 or "
                "more"
            )
        pending = operand.value
    binder.end()
    return SynchronisationStep(name, pending)
