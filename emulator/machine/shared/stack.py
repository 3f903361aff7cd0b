"""All engines: room on a thread's stack in local memory: alloca, stacksave, stackrestore (PTX ISA
9.7.9)."""

from __future__ import annotations

import numpy as np

from emulator.machine.shared.issuing import Executor, LaneOperands, MakeAtOnce, RunAtOnce
from emulator.machine.shared.operands import word_type

#: more than any thread has
_MOST = np.uint64(1 << 40)


def allocate(operands: LaneOperands) -> RunAtOnce:
    """alloca: room until the function returns, in each thread as much as it asks for."""
    type_ = operands.ins.types[-1]
    size = operands.word("size", type_)
    write = operands.result(operands.statement.operands["d"], type_)
    alignment = operands.constant("alignment") if "alignment" in operands else 8

    def run(who: Executor) -> None:
        start = -(-who.stack_top // alignment) * alignment
        end = start + np.minimum(size(who), _MOST).astype(np.int64)
        who.need_local(int(np.max(end)))
        who.set_stack(end)
        write(who, start)

    return run


def save(operands: LaneOperands) -> RunAtOnce:
    """stacksave: where the stack ends."""
    type_ = word_type(operands.statement.signature["d"])
    write = operands.result(operands.statement.operands["d"], type_)
    return lambda who: write(who, who.stack_top)


def restore(operands: LaneOperands) -> RunAtOnce:
    """stackrestore: the stack ends there again."""
    read = operands.word("a", word_type(operands.statement.signature["a"]))
    return lambda who: who.set_stack(read(who))


AT_ONCE: dict[str, MakeAtOnce] = {"alloca": allocate, "stacksave": save, "stackrestore": restore}
