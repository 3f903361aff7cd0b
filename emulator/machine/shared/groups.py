"""Groups of copies that threads commit and wait for (PTX ISA 9.7.9.25.3, 9.7.9.25.4)."""

from __future__ import annotations

from collections.abc import Callable

from emulator.machine.shared.operands import constant
from emulator.machine.shared.pending import Lanes, Pending
from emulator.ptx.program import Statement

#: a commit or a wait of some threads, by their numbers
OnPending = Callable[[Pending, Lanes], None]


def _commit_copies(statement: Statement) -> OnPending:
    return Pending.commit_copies


def _wait_copies(statement: Statement) -> OnPending:
    newest = constant(statement, "n")
    return lambda pending, lanes: pending.wait_copies(lanes, newest)


def _wait_all_copies(statement: Statement) -> OnPending:
    return lambda pending, lanes: pending.wait_copies(lanes, None)


def _commit_bulk(statement: Statement) -> OnPending:
    return Pending.commit_bulk


def _wait_bulk(statement: Statement) -> OnPending:
    newest = constant(statement, "n")
    return lambda pending, lanes: pending.wait_bulk(lanes, newest)


GROUPS: dict[str, Callable[[Statement], OnPending]] = {
    "cp.async.commit_group": _commit_copies,
    "cp.async.wait_group": _wait_copies,
    "cp.async.wait_all": _wait_all_copies,
    "cp.async.bulk.commit_group": _commit_bulk,
    "cp.async.bulk.wait_group": _wait_bulk,
}
