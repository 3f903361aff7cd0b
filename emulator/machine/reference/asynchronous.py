"""cp.async, one thread after the other (PTX ISA 9.7.9.25.3, 9.7.13.15.15)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emulator.machine.reference import memory
from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.mbarriers import barrier_of, change
from emulator.machine.reference.operands import addresses, reader
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.groups import GROUPS, OnPending
from emulator.machine.shared.operands import constant, ordinary
from emulator.machine.shared.pending import POISON, Transfer
from emulator.memory.mbarrier import Change
from emulator.ptx.program import Function, Statement

# --- cp.async -------------------------------------------------------------------------------------


def copy(statement: Statement, function: Function) -> Run:
    """cp.async of 4, 8 or 16 bytes; what lies behind the size of the source becomes zeros."""
    operands = statement.operands
    target, source = addresses(operands["dst"]), addresses(operands["src"])
    size = constant(statement, "size")
    given, left_out = operands.get("source_size"), operands.get("ignore")
    used = reader(given, "u32") if given is not None else None
    ignored = reader(left_out, "pred") if left_out is not None else None

    def run(thread: Thread) -> None:
        count = size if used is None else used(thread)
        if ignored is not None and ignored(thread):
            count = 0
        if count > size:
            raise Failure("cp.async", f"the source has {count} bytes; {size} are copied")
        at, pending = source(thread), thread.cluster.pending
        place = memory.find(thread, "shared", target(thread), size, size, write=True)
        if count:
            memory.find(thread, "global", at, count, size if count == size else 1)

        def perform(which: object) -> None:
            data = memory.find(thread, "global", at, count, 1) if count else b""
            memory.put(thread, place, bytes(data) + bytes(size - count))

        if not pending.at_once:
            place[:] = bytes([POISON]) * size
        pending.copy(np.array([thread.number]), perform)

    return guarded(statement, run)


def arrive_after_copies(statement: Statement, function: Function) -> Run:
    """cp.async.mbarrier.arrive: an arrival once the thread's copies are done; without .noinc it is
    one that was not counted before."""
    barrier, noinc = barrier_of(statement), ordinary(statement).modifiers.get("noinc")

    def run(thread: Thread) -> None:
        at, pending = barrier(thread), thread.cluster.pending
        if not noinc:
            change(thread, at, Change(arrivals=-1))

        def perform() -> None:
            pending.wait_copies(np.array([thread.number]), None)
            change(thread, at, Change(arrivals=1))

        pending.transfer(Transfer(thread.number, perform, at))

    return guarded(statement, run)


# --- groups of copies -----------------------------------------------------------------------------


def _by_group(make: Callable[[Statement], OnPending]) -> Callable[[Statement, Function], Run]:
    """Makes the steps of single threads that commit groups of copies, or wait for them."""

    def made(statement: Statement, function: Function) -> Run:
        act = make(statement)

        def run(thread: Thread) -> None:
            act(thread.cluster.pending, np.array([thread.number]))

        return guarded(statement, run)

    return made


EACH = {
    "cp.async": copy,
    "cp.async.mbarrier.arrive": arrive_after_copies,
    **{name: _by_group(make) for name, make in GROUPS.items()},
}
