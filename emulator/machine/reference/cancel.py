"""clusterlaunchcontrol.query_cancel: what a response says, one thread at a time."""

from __future__ import annotations

from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.operands import reader, writer
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.cancel import queried
from emulator.ptx.program import Function, Statement


def query_cancel(statement: Statement, function: Function) -> Run:
    """The value: 1 if a cluster was cancelled, or a coordinate of its first thread block."""
    read, is_flag = reader(statement.operands["a"], "b128"), "p" in statement.operands
    type_ = "pred" if is_flag else "b32"
    writes = [(place, writer(bound, type_, function)) for place, bound in queried(statement)]

    def run(thread: Thread) -> None:
        response = read(thread)
        for place, write in writes:
            word = response >> 32 * place & 0xFFFFFFFF
            write(thread, int(word != 0) if is_flag else word)

    return guarded(statement, run)


EACH = {"clusterlaunchcontrol.query_cancel": query_cancel}
