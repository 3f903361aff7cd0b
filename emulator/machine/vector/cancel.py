"""clusterlaunchcontrol.query_cancel: what responses say, all lanes at once."""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.machine.shared.cancel import queried
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.operands import reader, writer
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Function, Statement


def query_cancel(statement: Statement, function: Function) -> Step:
    """The value: 1 if a cluster was cancelled, or a coordinate of its first thread block."""
    read, is_flag = reader(statement.operands["a"], "b128", function), "p" in statement.operands
    type_ = "pred" if is_flag else "b32"
    writes = [(place, writer(bound, type_, function)) for place, bound in queried(statement)]

    def run(s: Strand, mask: Array | None) -> None:
        words = np.ascontiguousarray(read(s)).view(np.uint32)
        for place, write in writes:
            found = words[:, place]
            write(s, found != 0 if is_flag else found, mask)

    return guarded(statement, run)


STEPS = {"clusterlaunchcontrol.query_cancel": query_cancel}
