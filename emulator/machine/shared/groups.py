"""Groups of copies that threads commit and wait for (PTX ISA 9.7.9.25.3, 9.7.9.25.4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from emulator.machine.shared.operands import constant
from emulator.machine.shared.pending import Lanes, Pending
from emulator.ptx.program import Statement

#: a commit or a wait of some threads, by their numbers
OnPending = Callable[[Pending, Lanes], None]


def _wait(wait: Callable[[Pending, Lanes, int], None], statement: Statement) -> OnPending:
    """A wait for all but the newest committed groups, as many as the statement says."""
    newest = constant(statement, "n")
    return lambda pending, lanes: wait(pending, lanes, newest)


GROUPS: dict[str, Callable[[Statement], OnPending]] = {
    "cp.async.commit_group": lambda statement: Pending.commit_copies,
    "cp.async.wait_group": partial(_wait, Pending.wait_copies),
    "cp.async.wait_all": lambda s: lambda pending, lanes: pending.wait_copies(lanes, None),
    "cp.async.bulk.commit_group": lambda statement: Pending.commit_bulk,
    "cp.async.bulk.wait_group": partial(_wait, Pending.wait_bulk),
}
