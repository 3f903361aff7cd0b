"""Statements of tcgen05: tensor memory of each block, and products on it (PTX ISA 9.7.16).

What they compute is `emulator.warp`'s, here with the reference engine of its arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dtypes import Array
from emulator.isa.tcgen05 import Tcgen05
from emulator.machine.reference import memory
from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.fragments import Registers, Threads, same
from emulator.machine.reference.mbarriers import barrier_of, change
from emulator.machine.reference.operands import Read, addresses, guard_of, reader
from emulator.machine.reference.schedule import placed
from emulator.machine.reference.thread import WARP, Block, State, Thread, Together
from emulator.machine.shared import tensor_cores, tensor_order
from emulator.machine.shared.operands import constant, space_of, to_shared
from emulator.machine.shared.tensor_order import Load, TensorOperation
from emulator.memory.mbarrier import Change
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


def _issue(threads: Threads, statement: Statement, operation: TensorOperation) -> None:
    operation.issue(threads[0].cluster.pending, lambda error: placed(error, threads, statement))


# --- allocation -----------------------------------------------------------------------------------


def _meets(threads: Threads, statement: Statement) -> bool:
    """Whether a warp goes on: the operation is one of a single block, or a warp of the other block
    of the pair has come to one like it. Otherwise it comes to the statement again."""
    ins, block = _instruction(statement), threads[0].block
    if ins.cta_group == 1:
        return True
    cluster, name = block.cluster, str(ins).split(".")[1]
    tensor_cores.check_pair(len(cluster.blocks))
    peer, warp = cluster.blocks[block.rank ^ 1], threads[0].warp
    cluster.pairs.arrive(warp, block.rank, name)
    if cluster.pairs.is_complete(warp, peer.rank, name):
        for thread in peer.threads:
            if thread.state is State.PAIR:
                thread.goes_on()
        return True
    for thread in threads:
        thread.stops(State.PAIR, statement.pc)
    return False


def _part(threads: Threads) -> None:
    """A warp of a pair goes on."""
    threads[0].cluster.pairs.leave(threads[0].warp)


def allocate(statement: Statement, function: Function) -> Together:
    ins, bound = _instruction(statement), statement.operands["dst"]
    find, space = addresses(bound), space_of(statement, bound)
    columns = reader(statement.operands["columns"], "u32")
    exclusive = bool(ins.modifiers.get("exclusive"))

    def run(threads: Threads) -> None:
        if not _meets(threads, statement):
            return
        first, count = threads[0], same(threads, columns, "columns")
        found = tensor_memory(first.block).allocate(count, exclusive)
        if found is None:
            # It comes to the statement again when columns are given back.
            for thread in threads:
                thread.stops(State.TENSOR, statement.pc)
            return
        _part(threads)
        given = find(first)
        place = (to_shared(given) if space == "" else given) & _OFFSET
        memory.store(first, "shared", place, 4, found)

    return _by_warp(statement, run)


def deallocate(statement: Statement, function: Function) -> Together:
    exclusive = bool(_instruction(statement).modifiers.get("exclusive"))
    address = reader(statement.operands["taddr"], "b32")
    columns = reader(statement.operands["columns"], "u32")

    def run(threads: Threads) -> None:
        if not _meets(threads, statement):
            return
        _part(threads)
        at, count = same(threads, address, "taddr"), same(threads, columns, "columns")
        block = threads[0].block
        tensor_order.given_back(block.cluster.pending, tensor_memory(block))
        tensor_memory(block).deallocate(at, count, exclusive)
        for thread in block.threads:
            if thread.state is State.TENSOR:
                thread.goes_on()

    return _by_warp(statement, run)


def relinquish(statement: Statement, function: Function) -> Together:
    def run(threads: Threads) -> None:
        if _meets(threads, statement):
            _part(threads)
            tensor_memory(threads[0].block).relinquish()

    return _by_warp(statement, run)


# --- ld, st, cp, shift ----------------------------------------------------------------------------


def _split_of(statement: Statement) -> int:
    return constant(statement, "split_off") if "split_off" in statement.operands else 0


def load(statement: Statement, function: Function) -> Together:
    ins, split = _instruction(statement), _split_of(statement)
    find = addresses(statement.operands["taddr"])
    written = [x for x in statement.signature.operands if x.use == "written"]
    results = [Registers(x, statement.operands[x.name], function) for x in written]
    waits = tensor_order.Waits(statement.pc)

    def run(threads: Threads) -> None:
        at, first = same(threads, find, "taddr"), threads[0]
        memory_, pending = tensor_memory(first.block), first.cluster.pending

        def read() -> list[Array]:
            return tensor_cores.loaded(ins, memory_, at, first.warp.number, split).words

        load = Load.of(first.number, memory_, read, results)
        later = waits.defer(pending, first.run.program, [load])
        _issue(threads, statement, load)
        if later:
            pending.loads.append(load)
        else:
            _put(results, threads, load.found)

    return _by_warp(statement, run)


def _put(results: Sequence[Registers], threads: Threads, found: Sequence[Array]) -> None:
    for result, words in zip(results, found, strict=True):
        result.write(threads, words)


def store(statement: Statement, function: Function) -> Together:
    ins, split = _instruction(statement), _split_of(statement)
    shape, num, unpacked = tensor_cores.Access.of(ins)
    find = addresses(statement.operands["taddr"])
    source = Registers(statement.signature["src"], statement.operands["src"], function)

    def run(threads: Threads) -> None:
        first, memory_ = threads[0], tensor_memory(threads[0].block)
        place = same(threads, find, "taddr"), shape, num, first.warp.number
        words = source.read(threads).astype(np.uint32)
        effect = partial(memory_.store, *place, words, unpacked=unpacked, split=split)
        reached = partial(memory_.reached, *place, packed=unpacked, split=split, name="tcgen05.st")
        _issue(threads, statement, TensorOperation(
            first.number, effect, name="st", writes=lambda: [reached()]
        ))  # fmt: skip

    return _by_warp(statement, run)


def copy(statement: Statement, function: Function) -> Run:
    ins = _instruction(statement)
    shape = tensor_cores.copy_shape(ins)
    find = addresses(statement.operands["taddr"])
    descriptor = reader(statement.operands["s_desc"], "b64")

    def run(thread: Thread) -> None:
        address, word, blocks = find(thread), descriptor(thread), _group(ins, thread.block)

        def effect() -> None:
            for block in blocks:
                memory_, target = tensor_memory(block), thread.run.target
                tensor_cores.copy(ins, memory_, _shared(block), address, word, target)

        _issue([thread], statement, TensorOperation(
            thread.number, effect, name="cp.4x256b" if shape == "4x256b" else "cp",
            cta_group=ins.cta_group,
            writes=lambda: [tensor_memory(block).copied(address, shape) for block in blocks],
        ))  # fmt: skip

    return _by_thread(statement, run)


def shift(statement: Statement, function: Function) -> Run:
    ins, find = _instruction(statement), addresses(statement.operands["taddr"])

    def run(thread: Thread) -> None:
        address, blocks = find(thread), _group(ins, thread.block)

        def effect() -> None:
            for block in blocks:
                tensor_memory(block).shift(address)

        _issue([thread], statement, TensorOperation(
            thread.number, effect, name="shift", cta_group=ins.cta_group,
            writes=lambda: [tensor_memory(block).shifted(address)[1] for block in blocks],
        ))  # fmt: skip

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
        memories = [tensor_memory(block) for block in blocks]

        def effect() -> None:
            shared = [_shared(block) for block in blocks]
            engine = thread.run.arithmetic
            mma.run(memories, shared, operands, engine=engine, undefined="hardware")

        _issue([thread], statement, TensorOperation(
            thread.number, effect, name="mma", cta_group=ins.cta_group,
            accumulator=(operands.d, mma.product.instruction.m, mma.product.instruction.n),
            writes=lambda: mma.touched(memories, operands).written,
        ))  # fmt: skip

    return _by_thread(statement, run)


# --- order ----------------------------------------------------------------------------------------


def commit(statement: Statement, function: Function) -> Run:
    """commit: an arrival once everything before it is complete. With a mask it arrives at the
    barrier of the same offset in every block of the cluster that the mask names."""
    ins, barrier = _instruction(statement), barrier_of(statement)
    bound = statement.operands.get("mask")
    mask = None if bound is None else reader(bound, statement.signature["mask"].type)

    def run(thread: Thread) -> None:
        places = [barrier(thread)]
        if mask is not None:
            named, words = mask(thread), thread.run.shared_bytes // 8
            ranks = range(thread.run.blocks_of_cluster)
            places = [rank * words + places[0] % words for rank in ranks if named >> rank & 1]
        for place in places:
            effect = partial(change, thread, place, Change(arrivals=1))
            _issue([thread], statement, TensorOperation(
                thread.number, effect, place, name="commit",
                cta_group=ins.cta_group,
            ))  # fmt: skip

    return _by_thread(statement, run)


def wait_for_loads(statement: Statement, function: Function) -> Together:
    def run(threads: Threads) -> None:
        for load in tensor_order.arrived(threads[0].cluster.pending, {threads[0].number}):
            _put(load.results, threads, load.found)

    return _by_warp(statement, run)


def wait_for_stores(statement: Statement, function: Function) -> Together:
    return _by_warp(
        statement,
        lambda threads: tensor_order.stored(threads[0].cluster.pending, {threads[0].number}),
    )


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
    "tcgen05.wait::ld": wait_for_loads,
    "tcgen05.wait::st": wait_for_stores,
}
