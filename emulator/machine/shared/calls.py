"""All engines: how deep calls may be, how much local memory threads may have, and the function that
an indirect call names."""

from __future__ import annotations

from emulator.machine.shared.failure import Failure
from emulator.ptx.program import Call, Function, Program

#: calls within calls, and bytes of local memory of a thread
MOST_CALLS, MOST_LOCAL = 2048, 512 << 10


def check_depth(calls: int, index: int | None = None) -> None:
    """Raises Failure for a call of threads that are in so many already."""
    if calls > MOST_CALLS:
        raise Failure("stack overflow", f"more than {MOST_CALLS} calls within calls", index)


def check_local(size: int, index: int | None = None) -> None:
    """Raises Failure where a thread needs more local memory than it may have."""
    if size > MOST_LOCAL:
        reason = f"a thread needs {size:,} bytes of local memory, and may have {MOST_LOCAL:,}"
        raise Failure("stack overflow", reason, index)


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
