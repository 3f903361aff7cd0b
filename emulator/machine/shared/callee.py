"""All engines: the function that an indirect call names by its address."""

from __future__ import annotations

from emulator.machine.shared.failure import Failure
from emulator.ptx.program import Call, Function, Program


def callee_at(
    program: Program, address: int, passed: Call, caller: Function, index: int = 0
) -> Function:
    """The function at the address that a lane calls, as `mov` of its name gives it.

    Raises Failure where none is there, or one that does not take what the call passes.
    """
    name = program.addresses.get(address)
    if name is None:
        raise Failure("target", f"no function is at address {address:#x}", index)
    callee = program.functions[name]
    if why := passed.misfit(caller, callee):
        raise Failure("target", why, index)
    return callee
