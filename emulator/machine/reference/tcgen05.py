"""Statements of tcgen05: tensor memory of each block, and products on it (PTX ISA 9.7.16).

What they compute is `emulator.warp`'s, here with the reference engine of its arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emulator.isa.tcgen05 import Tcgen05
from emulator.machine import tensor_cores
from emulator.machine.reference import memory
from emulator.machine.reference.access import space_of
from emulator.machine.reference.asynchronous import constant
from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.fragments import Registers, Threads, same
from emulator.machine.reference.mbarriers import barrier_of, change
from emulator.machine.reference.operands import Read, addresses, guard_of, reader
from emulator.machine.reference.thread import WARP, Block, State, Thread, Together
from emulator.memory.mbarrier import Operation
from emulator.memory.space import Space
from emulator.memory.tensor_memory import TensorMemory
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Constant, Function, Statement, items_of
from emulator.warp.tensor_mma import Operands

_OFFSET = (1 << RANK_BITS) - 1


def _instruction(statement: Statement) -> Tcgen05:
    assert isinstance(statement.instruction, Tcgen05)
    return statement.instruction


def tensor_memory(block: Block) -> TensorMemory:
    """The tensor memory of a block."""
    if block.tensor is None:
        block.tensor = TensorMemory(block.run.target.tensor_columns)
    return block.tensor


def _shared(block: Block) -> Space:
    return Space("shared memory", block.shared)


def _group(ins: Tcgen05, block: Block) -> list[Block]:
    """The blocks that an operation works on: one, or both of a pair, the even one first."""
    blocks = block.cluster.blocks
    if ins.cta_group == 1:
        return [block]
    tensor_cores.check_pair(len(blocks))
    even = block.rank // 2 * 2
    return blocks[even : even + 2]


def _by_warp(statement: Statement, run: Callable[[Threads], None]) -> Together:
    def told(threads: Threads) -> None:
        threads[0].run.progress += 1
        threads[0].run.changes += 1
        run(threads)

    return Together(WARP, told, guard=guard_of(statement.guard), whole=str(statement.instruction))


def _by_thread(statement: Statement, run: Run) -> Run:
    def told(thread: Thread) -> None:
        thread.run.progress += 1
        thread.run.changes += 1
        run(thread)

    return guarded(statement, told)


# --- allocation -----------------------------------------------------------------------------------


def allocate(statement: Statement, function: Function) -> Together:
    ins, bound = _instruction(statement), statement.operands["dst"]
    find, space = addresses(bound), space_of(statement, bound)
    columns = reader(statement.operands["columns"], "u32")
    exclusive = bool(ins.modifiers.get("exclusive"))

    def run(threads: Threads) -> None:
        first, count = threads[0], same(threads, columns, "columns")
        found = tensor_memory(first.block).allocate(count, exclusive)
        if found is None:
            # It comes to the statement again when columns are given back.
            for thread in threads:
                thread.stops(State.TENSOR, statement.pc)
            return
        given = find(first)
        place = (memory.to_shared(given) if space == "" else given) & _OFFSET
        memory.store(first, "shared", place, 4, found)

    return _by_warp(statement, run)


def deallocate(statement: Statement, function: Function) -> Together:
    exclusive = bool(_instruction(statement).modifiers.get("exclusive"))
    address = reader(statement.operands["taddr"], "b32")
    columns = reader(statement.operands["columns"], "u32")

    def run(threads: Threads) -> None:
        at, count = same(threads, address, "taddr"), same(threads, columns, "columns")
        block = threads[0].block
        tensor_memory(block).deallocate(at, count, exclusive)
        for thread in block.threads:
            if thread.state is State.TENSOR:
                thread.goes_on()

    return _by_warp(statement, run)


def relinquish(statement: Statement, function: Function) -> Together:
    return _by_warp(statement, lambda threads: tensor_memory(threads[0].block).relinquish())


# --- ld, st, cp, shift ----------------------------------------------------------------------------


def _split_of(statement: Statement) -> int:
    return constant(statement, "split_off") if "split_off" in statement.operands else 0


def load(statement: Statement, function: Function) -> Together:
    ins, split = _instruction(statement), _split_of(statement)
    find = addresses(statement.operands["taddr"])
    written = [x for x in statement.signature.operands if x.use == "written"]
    results = [Registers(x, statement.operands[x.name], function) for x in written]

    def run(threads: Threads) -> None:
        at, warp = same(threads, find, "taddr"), threads[0].warp.number
        parts = tensor_cores.loaded(ins, tensor_memory(threads[0].block), at, warp, split).words
        for result, words in zip(results, parts, strict=True):
            result.write(threads, words)

    return _by_warp(statement, run)


def store(statement: Statement, function: Function) -> Together:
    ins, split = _instruction(statement), _split_of(statement)
    shape, num, unpacked = tensor_cores.Transfer.of(ins)
    find = addresses(statement.operands["taddr"])
    source = Registers(statement.signature["src"], statement.operands["src"], function)

    def run(threads: Threads) -> None:
        at, warp = same(threads, find, "taddr"), threads[0].warp.number
        tensor_memory(threads[0].block).store(
            at, shape, num, warp, source.read(threads).astype(np.uint32), unpacked=unpacked,
            split=split,
        )  # fmt: skip

    return _by_warp(statement, run)


def copy(statement: Statement, function: Function) -> Run:
    ins = _instruction(statement)
    find = addresses(statement.operands["taddr"])
    descriptor = reader(statement.operands["s_desc"], "b64")

    def run(thread: Thread) -> None:
        for block in _group(ins, thread.block):
            tensor_cores.copy(
                ins, tensor_memory(block), _shared(block), find(thread), descriptor(thread),
                thread.run.target,
            )  # fmt: skip

    return _by_thread(statement, run)


def shift(statement: Statement, function: Function) -> Run:
    ins, find = _instruction(statement), addresses(statement.operands["taddr"])

    def run(thread: Thread) -> None:
        for block in _group(ins, thread.block):
            tensor_memory(block).shift(find(thread))

    return _by_thread(statement, run)


# --- mma ------------------------------------------------------------------------------------------


def multiply(statement: Statement, function: Function) -> Run:
    ins = _instruction(statement)
    reads: dict[str, Read] = {}
    for operand in statement.signature.operands:
        bound = statement.operands.get(operand.name)
        if bound is None or operand.kind in ("vector", "immediate"):
            continue
        is_address = operand.kind == "address"
        reads[operand.name] = addresses(bound) if is_address else reader(bound, operand.type)
    in_tensor_memory = statement.signature["a"].kind == "address"
    mask = statement.operands.get("mask")
    disabled = [reader(x, "b32") for x in items_of(mask)] if mask is not None else []
    scale = statement.operands.get("scale_input_d")
    assert scale is None or isinstance(scale, Constant)
    scale_input_d = 0 if scale is None else scale.word

    def run(thread: Thread) -> None:
        given = {name: int(read(thread)) for name, read in reads.items()}
        mma = tensor_cores.product(ins, given.pop("idesc"), scale_input_d, thread.run.target)
        operands = Operands(
            given["d"], given["a"], given["b"], in_tensor_memory, bool(given["enable"]),
            given.get("e"), given.get("scale_a"), given.get("scale_b"),
            [read(thread) for read in disabled], given.get("zero_mask", 0), given.get("lut"),
        )  # fmt: skip
        blocks = _group(ins, thread.block)
        mma.run(
            [tensor_memory(block) for block in blocks], [_shared(block) for block in blocks],
            operands, engine=thread.run.arithmetic, undefined="hardware",
        )  # fmt: skip

    return _by_thread(statement, run)


# --- order ----------------------------------------------------------------------------------------


def commit(statement: Statement, function: Function) -> Run:
    """commit: everything before it is complete, so that it arrives at once. With a mask it arrives
    at the barrier of the same offset in every block of the cluster that the mask names."""
    barrier, bound = barrier_of(statement), statement.operands.get("mask")
    mask = None if bound is None else reader(bound, statement.signature["mask"].type)

    def run(thread: Thread) -> None:
        address = barrier(thread)
        if mask is None:
            change(thread, address, Operation(arrivals=1))
            return
        named = mask(thread)
        for rank in range(thread.run.blocks_of_cluster):
            if named >> rank & 1:
                change(thread, rank << RANK_BITS | address & _OFFSET, Operation(arrivals=1))

    return _by_thread(statement, run)


def wait(statement: Statement, function: Function) -> Together:
    """wait: what came before has taken effect."""
    return _by_warp(statement, lambda threads: None)


def fence(statement: Statement, function: Function) -> Run:
    return lambda thread: None


EACH = {
    "tcgen05.cp": copy,
    "tcgen05.shift": shift,
    "tcgen05.mma": multiply,
    "tcgen05.commit": commit,
    **{f"tcgen05.fence::{x}_thread_sync": fence for x in ("before", "after")},
}
TOGETHER = {
    "tcgen05.alloc": allocate,
    "tcgen05.dealloc": deallocate,
    "tcgen05.relinquish_alloc_permit": relinquish,
    "tcgen05.ld": load,
    "tcgen05.st": store,
    **dict.fromkeys(("tcgen05.wait::ld", "tcgen05.wait::st"), wait),
}
