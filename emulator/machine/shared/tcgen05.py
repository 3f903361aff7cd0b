"""All engines: statements of tcgen05, tensor memory of each block, and products on it (PTX ISA
9.7.16).

cp, shift, mma and commit are issued by single threads; all others are executed by whole warps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from dtypes import Array
from emulator.isa.signature import Operand
from emulator.isa.tcgen05 import Tcgen05
from emulator.layout.lanemap import WARP
from emulator.machine.shared import tensor_cores, tensor_order
from emulator.machine.shared.issuing import (
    Issuer,
    Make,
    Operands,
    Read,
    Run,
    in_block,
    same_barrier,
    shared_offset,
)
from emulator.machine.shared.pending import Pending
from emulator.machine.shared.tensor_order import Load, TensorOperation
from emulator.machine.shared.waiting import State
from emulator.memory.descriptors import load_rows
from emulator.memory.mbarrier import Change
from emulator.memory.space import Space
from emulator.ptx.program import Bound, Statement, registers_of
from emulator.warp.tensor_mma import Operands as MmaOperands

#: the registers of an operand, as an engine has them
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


def instruction(statement: Statement) -> Tcgen05:
    """The instruction of a statement of tcgen05."""
    assert isinstance(statement.instruction, Tcgen05)
    return statement.instruction


def _group(ins: Tcgen05, who: Issuer) -> Sequence[int]:
    """The blocks that an operation works on: one, or both of a pair, the even one first."""
    if ins.cta_group == 1:
        return (who.row,)
    tensor_cores.check_pair(len(who.cluster))
    even = who.row - who.cluster.index(who.row) % 2
    return even, even + 1


def _shared(who: Issuer, row: int) -> Space:
    return Space("shared memory", who.shared(row))


def _watched(who: Issuer, row: int) -> Space:
    """Shared memory of a block, for checks that follow what an operation reads."""
    assert who.watch is not None
    return who.watch.tensor_cores.space(who.shared(row), row, who.lane)


def _issue(who: Issuer, statement: Statement, operation: TensorOperation) -> None:
    who.advance()
    if who.watch is not None and operation.name != "commit":
        who.watch.tensor_cores.operation(operation)
    operation.issue(who.pending, lambda error: who.located(error, statement))


# --- allocation -----------------------------------------------------------------------------------

#: what a warp does; False: it waits for columns and comes to the statement again
Attempt = Callable[[Issuer], bool]


def _arrives(who: Issuer, statement: Statement) -> None:
    """A warp comes to an operation; of a pair of blocks one warp of each executes it."""
    ins = instruction(statement)
    if ins.cta_group > 1:
        tensor_cores.check_pair(len(who.cluster))
        who.pairs.arrive(who.lane, who.row, ins.operation)


def is_met(who: Issuer, statement: Statement) -> bool:
    """True if a warp at an operation need not wait for the other block."""
    ins = instruction(statement)
    return ins.cta_group == 1 or who.pairs.is_complete(who.lane, who.row ^ 1, ins.operation)


def _allocate(operands: Operands) -> Attempt:
    """alloc: takes columns, and stores their address."""
    exclusive = bool(operands.modifier("exclusive"))
    find, columns = shared_offset(operands, "dst"), operands.word("columns", "u32", same=True)

    def attempt(who: Issuer) -> bool:
        found = who.tensor(who.row).allocate(columns(who), exclusive)
        if found is None:
            return False
        place = in_block(who, find(who), who.cluster.index(who.row), 4, 4)
        place.bytes[:] = np.array([found], np.uint32).view(np.uint8)
        return True

    return attempt


def _deallocate(operands: Operands) -> Attempt:
    """dealloc: gives columns back, once everything that is under way there is complete."""
    exclusive = bool(operands.modifier("exclusive"))
    address = operands.word("taddr", "b32", same=True)
    columns = operands.word("columns", "u32", same=True)

    def attempt(who: Issuer) -> bool:
        at, count, memory = address(who), columns(who), who.tensor(who.row)
        tensor_order.given_back(who.pending, memory)
        memory.deallocate(at, count, exclusive)
        if who.watch is not None:
            who.watch.tensor_cores.given_back(memory, at, count, who.lane)
        who.wake_allocators()
        return True

    return attempt


def _relinquish(operands: Operands) -> Attempt:
    """relinquish_alloc_permit: the block takes no more columns."""

    def attempt(who: Issuer) -> bool:
        who.tensor(who.row).relinquish()
        return True

    return attempt


# --- ld, st ---------------------------------------------------------------------------------------


def _split(operands: Operands) -> int:
    """Columns between the two halves of a shape."""
    return operands.constant("split_off") if "split_off" in operands else 0


def _written(statement: Statement) -> list[Operand]:
    """The operands that a ld writes."""
    return [x for x in statement.signature.operands if x.use == "written"]


class _TensorLoad:
    """A tcgen05.ld: what warps read, and when their registers have it."""

    def __init__(self, operands: Operands) -> None:
        self._statement = operands.statement
        self._ins, self._split = instruction(self._statement), _split(operands)
        self._find = operands.address("taddr", same=True)
        self._waits = tensor_order.Waits(self._statement.pc)
        bounds = [self._statement.operands[x.name] for x in _written(self._statement)]
        self._registers = [i for bound in bounds for i in registers_of(bound)]

    def issue(self, warps: Sequence[Issuer], results: Sequence[object]) -> list[Load]:
        """The loads of warps, if their registers are written now; a wait::ld gives the others.

        `results` are the registers, as the engine writes them.
        """
        loads = [self._of_warp(who, results) for who in warps]
        pending = warps[0].pending
        if later := self._waits.defer(pending, warps[0].program, loads):
            pending.loads += loads
        for who, load in zip(warps, loads, strict=True):
            _issue(who, self._statement, load)
            if who.watch is not None:
                who.watch.tensor_cores.loads(load.lane, self._registers)
        return [] if later else loads

    def _of_warp(self, who: Issuer, results: Sequence[object]) -> Load:
        ins, split, address = self._ins, self._split, self._find(who)
        shape, num, packed = tensor_cores.Access.of(ins)
        memory, warp = who.tensor(who.row), who.warp

        def read() -> list[Array]:
            found = tensor_cores.loaded(ins, memory, address, warp, split)
            if who.watch is not None and not found.defined:
                lanes = who.lane + np.arange(WARP)
                who.watch.tensor_cores.unwritten(lanes, str(ins), self._statement.pc)
            return found.words

        made = Load.of(who.lane, memory, read, results)
        made.reads = lambda: [memory.reached(address, shape, num, warp, packed=packed, split=split)]
        return made


def _store_one(operands: Operands) -> Callable[[Issuer, Array], None]:
    """tcgen05.st of a warp: takes the words ``(32, registers)``."""
    ins, split = instruction(operands.statement), _split(operands)
    shape, num, unpacked = tensor_cores.Access.of(ins)
    find = operands.address("taddr", same=True)

    def run(who: Issuer, words: Array) -> None:
        memory, place = who.tensor(who.row), (find(who), shape, num, who.warp)
        effect = partial(memory.store, *place, words, unpacked=unpacked, split=split)
        reached = partial(memory.reached, *place, packed=unpacked, split=split, name="tcgen05.st")
        operation = TensorOperation(who.lane, effect, name="st", writes=lambda: [reached()])
        _issue(who, operands.statement, operation)

    return run


# --- cp, shift ------------------------------------------------------------------------------------


def _copy(operands: Operands) -> Run:
    """cp: from shared to tensor memory."""
    ins = instruction(operands.statement)
    shape = tensor_cores.copy_shape(ins)
    find, descriptor = operands.address("taddr"), operands.word("s_desc", "b64")

    def run(who: Issuer) -> None:
        address, word, rows = find(who), descriptor(who), _group(ins, who)
        memories, target = [who.tensor(row) for row in rows], who.target

        def effect() -> None:
            for row, memory in zip(rows, memories, strict=True):
                tensor_cores.copy(ins, memory, _shared(who, row), address, word, target)

        _issue(
            who,
            operands.statement,
            TensorOperation(
                who.lane,
                effect,
                name="cp.4x256b" if shape == "4x256b" else "cp",
                cta_group=ins.cta_group,
                writes=lambda: [memory.copied(address, shape) for memory in memories],
                hear=lambda: [load_rows(_watched(who, row), word, shape) for row in rows],
            ),
        )

    return run


def _shift(operands: Operands) -> Run:
    """shift: rows of tensor memory move down by one."""
    ins, find = instruction(operands.statement), operands.address("taddr")

    def run(who: Issuer) -> None:
        address, memories = find(who), [who.tensor(row) for row in _group(ins, who)]

        def effect() -> None:
            for memory in memories:
                memory.shift(address)

        _issue(
            who,
            operands.statement,
            TensorOperation(
                who.lane,
                effect,
                name="shift",
                cta_group=ins.cta_group,
                reads=lambda: [memory.shifted(address)[0] for memory in memories],
                writes=lambda: [memory.shifted(address)[1] for memory in memories],
            ),
        )

    return run


# --- mma ------------------------------------------------------------------------------------------


def _mma_reads(operands: Operands) -> dict[str, Read]:
    """The operands of a product that are one word or address, by name."""
    out: dict[str, Read] = {}
    for operand in operands.statement.signature.operands:
        if operand.name not in operands or operand.kind in ("vector", "immediate"):
            continue
        is_address, name = operand.kind == "address", operand.name
        out[name] = operands.address(name) if is_address else operands.word(name, operand.type)
    return out


def _multiply(operands: Operands) -> Run:
    """mma: a product of the matrices of one block, or of a pair."""
    statement, ins = operands.statement, instruction(operands.statement)
    reads, disabled = _mma_reads(operands), operands.words("mask", "b32")
    in_tensor_memory = statement.signature["a"].kind == "address"
    scale_input_d = operands.constant("scale_input_d") if "scale_input_d" in operands else 0

    def run(who: Issuer) -> None:
        given = {name: read(who) for name, read in reads.items()}
        mma = tensor_cores.product(ins, given.pop("idesc"), scale_input_d, who.target)
        taken = MmaOperands(
            given["d"],
            given["a"],
            given["b"],
            in_tensor_memory,
            bool(given["enable"]),
            given.get("e"),
            given.get("scale_a"),
            given.get("scale_b"),
            [read(who) for read in disabled],
            given.get("zero_mask", 0),
            given.get("lut"),
        )
        rows = _group(ins, who)
        memories = [who.tensor(row) for row in rows]

        def effect() -> None:
            shared = [_shared(who, row) for row in rows]
            unwritten = mma.run(
                memories, shared, taken, engine=who.arithmetic, undefined=who.undefined
            )
            if unwritten and who.watch is not None:
                what = f"{', '.join(unwritten)} of {ins}"
                who.watch.tensor_cores.unwritten(np.array([who.lane]), what, statement.pc)

        _issue(
            who,
            statement,
            TensorOperation(
                who.lane,
                effect,
                name="mma",
                cta_group=ins.cta_group,
                accumulator=(taken.d, mma.product.instruction.m, mma.product.instruction.n),
                reads=lambda: mma.touched(memories, taken).read,
                writes=lambda: mma.touched(memories, taken).written,
                hear=lambda: mma.read_shared([_watched(who, row) for row in rows], taken),
            ),
        )

    return run


# --- order ----------------------------------------------------------------------------------------


def _commit(operands: Operands) -> Run:
    """commit: an arrival once everything before it is complete. With a mask it arrives at the
    barrier of the same offset in every block of the cluster that the mask names."""
    ins, barrier = instruction(operands.statement), operands.barrier()
    mask = None
    if "mask" in operands:
        mask = operands.word("mask", operands.statement.signature["mask"].type)

    def run(who: Issuer) -> None:
        barriers = [barrier(who)]
        if mask is not None:
            named, own = mask(who), barriers[0]
            ranks = [rank for rank in range(len(who.cluster)) if named >> rank & 1]
            barriers = [same_barrier(who, own, rank) for rank in ranks]
        for each in barriers:
            if who.watch is not None:
                who.watch.mbarrier_used(np.array([who.lane]), np.array([each]))
                who.watch.tensor_cores.completion.commit(who.lane, ins.cta_group, each)
            effect = partial(who.change, each, Change(arrivals=1))
            _issue(
                who,
                operands.statement,
                TensorOperation(who.lane, effect, each, name="commit", cta_group=ins.cta_group),
            )

    return run


EACH: dict[str, Make] = {
    "tcgen05.cp": _copy,
    "tcgen05.shift": _shift,
    "tcgen05.mma": _multiply,
    "tcgen05.commit": _commit,
}


# --- whole warps ----------------------------------------------------------------------------------


class Warps(Protocol[R_contra]):
    """Whole warps that execute a statement together."""

    @property
    def pending(self) -> Pending:
        """Operations under way."""

    @property
    def every(self) -> Sequence[Issuer]:
        """Each of them, with the operands that its statement asks for."""

    def wake_pairs(self) -> None:
        """Lets warps look again that wait for one of the other block of their pair."""

    def come_again(self, goes_on: Sequence[bool], state: State) -> None:
        """Warps that cannot go on wait, and come to the statement again."""

    def read(self, registers: R_contra) -> Array:
        """The words ``(warps, 32, registers)`` of an operand."""

    def write(self, registers: R_contra, words: Array) -> None:
        """Gives words ``(warps, 32, registers)`` to an operand."""

    def write_one(self, registers: R_contra, lane: int, words: Array) -> None:
        """The same for one warp, by its first lane."""


#: what an engine makes of the registers of an operand
MakeRegisters = Callable[[Operand, Bound], R]
RunByWarps = Callable[[Warps[R]], None]
MakeByWarps = Callable[[Operands, MakeRegisters[R]], RunByWarps[R]]


def _allocation(
    make: Callable[[Operands], Attempt], operands: Operands, registers: MakeRegisters[R]
) -> RunByWarps[R]:
    """Warps wait for one of the other block of their pair each, then for columns."""
    attempt, statement = make(operands), operands.statement

    def run(warps: Warps[R]) -> None:
        every = warps.every
        for who in every:
            _arrives(who, statement)
        met = [is_met(who, statement) for who in every]
        warps.wake_pairs()
        if not all(met):
            warps.come_again(met, State.PAIR)
            return
        done = []
        for who in every:
            done.append(attempt(who))
            if done[-1]:
                who.pairs.leave(who.lane)
        if not all(done):
            warps.come_again(done, State.TENSOR)

    return run


def _load(operands: Operands, registers: MakeRegisters[R]) -> RunByWarps[R]:
    """ld: the registers of warps."""
    issue, statement = _TensorLoad(operands).issue, operands.statement
    results = [registers(x, statement.operands[x.name]) for x in _written(statement)]

    def run(warps: Warps[R]) -> None:
        if loads := issue(warps.every, results):
            parts = zip(*(load.found for load in loads), strict=True)
            for result, words in zip(results, parts, strict=True):
                warps.write(result, np.stack(words))

    return run


def _store(operands: Operands, registers: MakeRegisters[R]) -> RunByWarps[R]:
    """st: the registers of warps to tensor memory."""
    run_one, statement = _store_one(operands), operands.statement
    source = registers(statement.signature["src"], statement.operands["src"])

    def run(warps: Warps[R]) -> None:
        for who, words in zip(warps.every, warps.read(source), strict=True):
            run_one(who, words)

    return run


def _wait_for_loads(operands: Operands, registers: MakeRegisters[R]) -> RunByWarps[R]:
    """wait::ld: registers that warps have loaded."""

    def run(warps: Warps[R]) -> None:
        for load in tensor_order.arrived(warps.pending, [who.lane for who in warps.every]):
            for result, words in zip(load.results, load.found, strict=True):
                warps.write_one(cast(R, result), load.lane, words)

    return run


def _wait_for_stores(operands: Operands, registers: MakeRegisters[R]) -> RunByWarps[R]:
    """wait::st: what warps have stored is in tensor memory."""
    return lambda warps: tensor_order.stored(warps.pending, [who.lane for who in warps.every])


BY_WARPS: dict[str, MakeByWarps[Any]] = {
    "tcgen05.alloc": partial(_allocation, _allocate),
    "tcgen05.dealloc": partial(_allocation, _deallocate),
    "tcgen05.relinquish_alloc_permit": partial(_allocation, _relinquish),
    "tcgen05.ld": _load,
    "tcgen05.st": _store,
    "tcgen05.wait::ld": _wait_for_loads,
    "tcgen05.wait::st": _wait_for_stores,
}
