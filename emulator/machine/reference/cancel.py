"""clusterlaunchcontrol (PTX ISA 9.7.13.17): a running cluster takes over one that has not started.

The response of 16 bytes is opaque to programs; here it has the coordinates of the first thread
block in its first three words, and whether there is one in the lowest bit of the fourth.
"""

from __future__ import annotations

from emulator.machine.reference import memory
from emulator.machine.reference.access import space_of
from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.mbarriers import barrier_of, change
from emulator.machine.reference.operands import addresses, reader, writer
from emulator.machine.reference.thread import Thread
from emulator.memory.mbarrier import Operation
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Function, Statement, items_of

RESPONSE = 16
_OFFSET = (1 << RANK_BITS) - 1


def try_cancel(statement: Statement, function: Function) -> Run:
    """A thread asks for the next cluster that has not started; the answer is there at once."""
    bound = statement.operands["dst"]
    find, space, barrier = addresses(bound), space_of(statement, bound), barrier_of(statement)
    to_all = "multicast::cluster::all" in str(statement.instruction)

    def run(thread: Thread) -> None:
        given, signal = find(thread), barrier(thread)
        offset = (memory.to_shared(given) if space == "" else given) & _OFFSET
        found = next(thread.run.coming, None)
        words = (0, 0, 0, 0) if found is None else (*found, 1)
        if found is not None:
            thread.run.launch.blocks_done(thread.run.blocks_of_cluster)
        response = b"".join(word.to_bytes(4, "little") for word in words)
        ranks = range(thread.run.blocks_of_cluster) if to_all else (thread.block.rank,)
        for rank in ranks:
            place = rank << RANK_BITS | offset
            memory.put(
                thread,
                memory.find(thread, "cluster", place, RESPONSE, RESPONSE, write=True),
                response,
            )
            own = rank << RANK_BITS | signal & _OFFSET if to_all else signal
            change(thread, own, Operation(transactions=-RESPONSE))

    return guarded(statement, run)


def query_cancel(statement: Statement, function: Function) -> Run:
    """Whether a cluster was taken over, or the coordinates of its first thread block."""
    opcode, operands = str(statement.instruction), statement.operands
    read = reader(operands["a"], "b128")
    if "is_canceled" in opcode:
        canceled = writer(operands["p"], "pred", function)
        return guarded(statement, lambda thread: canceled(thread, int(read(thread) >> 96 != 0)))
    items = items_of(operands["d"])
    axis = opcode.partition("get_first_ctaid")[2].removeprefix("::")[:1]
    places = range(4) if len(items) > 1 else ["xyz".index(axis)]
    writes = [writer(item, "b32", function) for item in items]

    def run(thread: Thread) -> None:
        for place, write in zip(places, writes, strict=True):
            write(thread, read(thread) >> 32 * place & 0xFFFFFFFF)

    return guarded(statement, run)


EACH = {
    "clusterlaunchcontrol.try_cancel": try_cancel,
    "clusterlaunchcontrol.query_cancel": query_cancel,
}
