"""All engines: room on a thread's stack in local memory: alloca, stacksave, stackrestore (PTX ISA
9.7.9)."""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.machine.shared.control import MOST_LOCAL, too_much
from emulator.machine.shared.issuing import Executor, LaneOperands, MakeAtOnce, RunAtOnce, require
from emulator.machine.shared.operands import Words, word_type

#: more than any thread has
_MOST = np.uint64(1 << 40)


def _bytes(words: Words) -> Array:
    """Unsigned words as numbers of bytes that may be added."""
    return np.minimum(np.asarray(words, np.uint64), _MOST).astype(np.int64)


def allocate(operands: LaneOperands) -> RunAtOnce:
    """alloca: room until the function returns, in each thread as much as it asks for."""
    type_ = operands.ins.types[-1]
    size = operands.word("size", type_)
    write = operands.result(operands.statement.operands["d"], type_)
    alignment = operands.constant("alignment") if "alignment" in operands else 8

    def run(who: Executor) -> None:
        start = -(-who.stack_top // alignment) * alignment
        end = start + _bytes(size(who))
        require(end <= MOST_LOCAL, "stack overflow", too_much, end)
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
    return lambda who: who.set_stack(_bytes(read(who)))


AT_ONCE: dict[str, MakeAtOnce] = {"alloca": allocate, "stacksave": save, "stackrestore": restore}
