"""Statements of tcgen05: tensor memory of each block, and products on it (PTX ISA 9.7.16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.isa.tcgen05 import Tcgen05
from emulator.machine.shared import tensor_cores, tensor_order
from emulator.machine.shared.operands import constant, space_of
from emulator.machine.shared.tensor_order import Load, TensorOperation
from emulator.machine.vector import memory
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.fragments import Registers, one_for_all, whole
from emulator.machine.vector.lanes import together, whole_or_split
from emulator.machine.vector.mbarriers import change, find_barriers
from emulator.machine.vector.memory import Who
from emulator.machine.vector.operands import addresses, reader
from emulator.machine.vector.strand import WARP, Parked, State, Strand
from emulator.machine.vector.wave import Wave
from emulator.memory.descriptors import load_rows
from emulator.memory.mbarrier import Change
from emulator.memory.space import Space
from emulator.memory.tensor_memory import TensorMemory
from emulator.ptx.program import Constant, Function, Statement, items_of
from emulator.warp.tensor_mma import Operands

Read = Callable[[Strand], Array]


def _instruction(statement: Statement) -> Tcgen05:
    assert isinstance(statement.instruction, Tcgen05)
    return statement.instruction


def tensor_memory(wave: Wave, row: int) -> TensorMemory:
    """The tensor memory of a block of the wave."""
    if row not in wave.tensor:
        wave.tensor[row] = TensorMemory(wave.grid.target.tensor_columns)
    return wave.tensor[row]


def _shared(wave: Wave, row: int) -> Space:
    return Space("shared memory", wave.shared[row, : wave.shared_limit])


def _heard(wave: Wave, row: int, lane: int) -> Space:
    """Shared memory of a block, of which the checks hear what a thread's operation reads."""
    heard: Space = wave.watch.tensor_cores.space(wave.shared[row, : wave.shared_limit], row, lane)
    return heard


class _Warp(NamedTuple):
    """One warp that executes a statement."""

    #: its number among those of the strand, its block's in the wave, its own in the block, and its
    #: first lane
    place: int
    row: int
    number: int
    lane: int


def _warps(s: Strand) -> Iterator[_Warp]:
    first = s.lanes[::WARP]
    for place, lane in enumerate(first.tolist()):
        row, thread = divmod(lane, s.wave.lanes_per_cta)
        yield _Warp(place, row, thread // WARP, lane)


def _by_warps(statement: Statement, run: Callable[[Strand], None]) -> Step:
    """`run` for whole warps."""

    def step(s: Strand) -> None:
        together(s, statement.pc)
        whole(s, WARP, statement.instruction)
        s.wave.grid.progress += 1
        run(s)

    return whole_or_split(statement, step)


def _by_threads(statement: Statement, run: Callable[[Strand, int, int], None]) -> Step:
    """`run` for each thread by itself: the place of its lane in the strand, and its block's row."""

    def under(s: Strand, mask: Array | None) -> None:
        rows = s.wave.row(s)
        s.wave.grid.progress += 1
        if s.wave.watch is not None:
            s.wave.watch.tensor_cores.issued(s.lanes if mask is None else s.lanes[mask])
        for i in range(len(s)) if mask is None else np.flatnonzero(mask).tolist():
            run(s, i, int(rows[i]))

    return guarded(statement, under)


def _issue(s: Strand, statement: Statement, operation: TensorOperation) -> None:
    if s.wave.watch is not None and operation.name != "commit":
        s.wave.watch.tensor_cores.operation(operation)
    operation.issue(s.wave.pending, lambda error: s.wave.grid.placed(error, s, statement))


def _at(words: Array, i: int) -> int:
    """The word of a lane."""
    return int(words[i if len(words) > 1 else 0])


def _pair(wave: Wave, row: int) -> tuple[int, int]:
    """The rows of both blocks of a pair, the one of even rank first."""
    rank = row % wave.cluster_size
    tensor_cores.check_pair(wave.cluster_size)
    even = row - rank % 2
    return even, even + 1


def _group(ins: Tcgen05, wave: Wave, row: int) -> tuple[int, ...]:
    """The rows of the blocks that an operation works on."""
    return _pair(wave, row) if ins.cta_group == 2 else (row,)


# --- allocation -----------------------------------------------------------------------------------


def _meet(s: Strand, statement: Statement) -> None:
    """Goes on where the operation is one of a single block, or where of each warp's pair a warp of
    the other block has come to one like it."""
    ins, wave = _instruction(statement), s.wave
    if ins.cta_group == 1:
        return
    tensor_cores.check_pair(wave.cluster_size)
    name = str(ins).split(".")[1]
    if wave.pairs is None:
        wave.pairs = tensor_order.Pairs()
    for warp in _warps(s):
        wave.pairs.arrive(warp.lane, warp.row, name)
    lacking = _without_peers(s, name)
    for other in [x for x in wave.waiting if x.state is State.PAIR]:
        if not _without_peers(other, other.wait).all():
            wave.wake(other)
    if lacking.any():
        if not lacking.all():
            s, going = wave.divide(s, lacking, statement.pc)
            wave.ready.append(going)
        wave.park(s, State.PAIR, name, statement.pc)
        raise Parked


def _without_peers(s: Strand, name: str) -> Array:
    """The lanes whose warps wait for one of the other block."""
    complete = [s.wave.pairs.is_complete(x.lane, x.row ^ 1, name) for x in _warps(s)]
    return np.repeat(~np.array(complete), WARP)


def _part(s: Strand, warp: _Warp) -> None:
    """A warp of a pair goes on."""
    if s.wave.pairs is not None:
        s.wave.pairs.leave(warp.lane)


def allocate(statement: Statement, function: Function) -> Step:
    """alloc: warps that find no room wait until some is given back."""
    ins = _instruction(statement)
    exclusive = bool(ins.modifiers.get("exclusive"))
    bound = statement.operands["dst"]
    find, space = addresses(bound, function), space_of(statement, bound)
    columns = reader(statement.operands["columns"], "u32", function)

    def step(s: Strand) -> None:
        together(s, statement.pc)
        whole(s, WARP, ins)
        wave = s.wave
        wave.grid.progress += 1
        _meet(s, statement)
        counts = one_for_all(columns(s), s, WARP, "columns")
        given = find(s) if space else memory.to_shared(wave, find(s))
        lacking = np.zeros(len(s), np.bool_)
        for warp in _warps(s):
            found = tensor_memory(wave, warp.row).allocate(_at(counts, warp.place), exclusive)
            if found is None:
                lacking[warp.place * WARP : (warp.place + 1) * WARP] = True
                continue
            _part(s, warp)
            who = Who(wave, s.lanes[warp.place * WARP :][:1], np.array([warp.row]))
            address = np.array([_at(given, warp.place * WARP)], np.uint64)
            held, start = memory.bytes_at(who, "shared", address, 4, alignment=4, write=True)
            held[int(start[0]) : int(start[0]) + 4] = np.array([found], "<u4").view(np.uint8)
        if lacking.any():
            _wait(s, lacking, statement.pc)

    return whole_or_split(statement, step)


def _wait(s: Strand, lacking: Array, pc: int) -> None:
    """Warps without room wait at the statement; the others go on behind it."""
    wave = s.wave
    if not lacking.all():
        s, going = wave.divide(s, lacking, pc)
        going.pc = pc + 1
        wave.ready.append(going)
    wave.park(s, State.TENSOR, None, pc)
    raise Parked


def deallocate(statement: Statement, function: Function) -> Step:
    exclusive = bool(_instruction(statement).modifiers.get("exclusive"))
    find = reader(statement.operands["taddr"], "b32", function)
    columns = reader(statement.operands["columns"], "u32", function)

    def give_back(s: Strand, warp: _Warp, address: int, count: int) -> None:
        held = tensor_memory(s.wave, warp.row)
        tensor_order.given_back(s.wave.pending, held)
        held.deallocate(address, count, exclusive)
        if s.wave.watch is not None:
            s.wave.watch.tensor_cores.given_back(held, address, count, warp.lane)

    def run(s: Strand) -> None:
        _meet(s, statement)
        at = one_for_all(find(s), s, WARP, "taddr")
        counts = one_for_all(columns(s), s, WARP, "columns")
        for warp in _warps(s):
            _part(s, warp)
            give_back(s, warp, _at(at, warp.place), _at(counts, warp.place))
        for strand in list(s.wave.waiting):
            if strand.state is State.TENSOR:
                s.wave.wake(strand)

    return _by_warps(statement, run)


def relinquish(statement: Statement, function: Function) -> Step:
    def run(s: Strand) -> None:
        _meet(s, statement)
        for warp in _warps(s):
            _part(s, warp)
            tensor_memory(s.wave, warp.row).relinquish()

    return _by_warps(statement, run)


# --- ld, st, cp, shift ----------------------------------------------------------------------------


def _split_of(statement: Statement) -> int:
    return constant(statement, "split_off") if "split_off" in statement.operands else 0


def load(statement: Statement, function: Function) -> Step:
    ins, split = _instruction(statement), _split_of(statement)
    shape, num, packed = tensor_cores.Access.of(ins)
    find = addresses(statement.operands["taddr"], function)
    written = [x for x in statement.signature.operands if x.use == "written"]
    results = [Registers(x, statement.operands[x.name], function, WARP) for x in written]

    registers = [i for result in results for i in result.indexes if i >= 0]
    waits = tensor_order.Waits(statement.pc)

    def of_warp(s: Strand, warp: _Warp, address: int) -> Load:
        held, first = tensor_memory(s.wave, warp.row), warp.place * WARP
        lanes = s.lanes[first : first + WARP]

        def read() -> list[Array]:
            found = tensor_cores.loaded(ins, held, address, warp.number, split)
            if s.wave.watch is not None and not found.defined:
                s.wave.watch.tensor_cores.unwritten(lanes, str(ins), statement.pc)
            return found.words

        made = Load.of(warp.lane, held, read, results)
        made.reads = lambda: [
            held.reached(address, shape, num, warp.number, packed=packed, split=split)
        ]
        return made

    def run(s: Strand) -> None:
        at = one_for_all(find(s), s, WARP, "taddr")
        loads = [of_warp(s, warp, _at(at, warp.place)) for warp in _warps(s)]
        if later := waits.defer(s.wave.pending, s.wave.grid.program, loads):
            s.wave.pending.loads += loads
        for load in loads:
            _issue(s, statement, load)
            if s.wave.watch is not None:
                s.wave.watch.tensor_cores.loads(load.lane, registers)
        if not later:
            parts = zip(*(load.found for load in loads), strict=True)
            for result, words in zip(results, parts, strict=True):
                result.write(s, np.stack(words))

    return _by_warps(statement, run)


def store(statement: Statement, function: Function) -> Step:
    ins, split = _instruction(statement), _split_of(statement)
    shape, num, unpacked = tensor_cores.Access.of(ins)
    find = addresses(statement.operands["taddr"], function)
    operand = statement.signature["src"]
    source = Registers(operand, statement.operands["src"], function, WARP)

    def of_warp(held: TensorMemory, warp: _Warp, address: int, words: Array) -> TensorOperation:
        place = address, shape, num, warp.number
        effect = partial(held.store, *place, words, unpacked=unpacked, split=split)
        reached = partial(held.reached, *place, packed=unpacked, split=split, name="tcgen05.st")
        return TensorOperation(warp.lane, effect, name="st", writes=lambda: [reached()])

    def run(s: Strand) -> None:
        at, words = one_for_all(find(s), s, WARP, "taddr"), source.read(s)
        for warp in _warps(s):
            held = tensor_memory(s.wave, warp.row)
            _issue(s, statement, of_warp(held, warp, _at(at, warp.place), words[warp.place]))

    return _by_warps(statement, run)


def copy(statement: Statement, function: Function) -> Step:
    ins = _instruction(statement)
    shape = tensor_cores.copy_shape(ins)
    find = addresses(statement.operands["taddr"], function)
    descriptor = reader(statement.operands["s_desc"], "b64", function)

    def run(s: Strand, i: int, row: int) -> None:
        address, word, lane = _at(find(s), i), _at(descriptor(s), i), int(s.lanes[i])
        rows = _group(ins, s.wave, row)
        held = [(tensor_memory(s.wave, own), _shared(s.wave, own)) for own in rows]

        def effect() -> None:
            for memory_, shared in held:
                tensor_cores.copy(ins, memory_, shared, address, word, s.wave.grid.target)

        _issue(s, statement, TensorOperation(
            lane, effect, name="cp.4x256b" if shape == "4x256b" else "cp", cta_group=ins.cta_group,
            writes=lambda: [memory_.copied(address, shape) for memory_, _ in held],
            hear=lambda: [load_rows(_heard(s.wave, own, lane), word, shape) for own in rows],
        ))  # fmt: skip

    return _by_threads(statement, run)


def shift(statement: Statement, function: Function) -> Step:
    ins = _instruction(statement)
    find = addresses(statement.operands["taddr"], function)

    def run(s: Strand, i: int, row: int) -> None:
        address = _at(find(s), i)
        held = [tensor_memory(s.wave, own) for own in _group(ins, s.wave, row)]

        def effect() -> None:
            for memory_ in held:
                memory_.shift(address)

        _issue(s, statement, TensorOperation(
            int(s.lanes[i]), effect, name="shift", cta_group=ins.cta_group,
            reads=lambda: [memory_.shifted(address)[0] for memory_ in held],
            writes=lambda: [memory_.shifted(address)[1] for memory_ in held],
        ))  # fmt: skip

    return _by_threads(statement, run)


# --- mma ------------------------------------------------------------------------------------------


def _operand_readers(statement: Statement, function: Function) -> dict[str, Read]:
    """Readers of the operands that a thread gives a product, by name."""
    out: dict[str, Read] = {}
    for operand in statement.signature.operands:
        bound = statement.operands.get(operand.name)
        if bound is None or operand.kind in ("vector", "immediate"):
            continue
        if operand.kind == "address":
            out[operand.name] = addresses(bound, function)
        else:
            out[operand.name] = reader(bound, operand.type, function)
    return out


def multiply(statement: Statement, function: Function) -> Step:
    ins = _instruction(statement)
    reads = _operand_readers(statement, function)
    in_tensor_memory = statement.signature["a"].kind == "address"
    mask = statement.operands.get("mask")
    disabled = [reader(x, "b32", function) for x in items_of(mask)] if mask is not None else []
    scale = statement.operands.get("scale_input_d")
    assert scale is None or isinstance(scale, Constant)
    scale_input_d = 0 if scale is None else scale.word

    def run(s: Strand, i: int, row: int) -> None:
        wave, grid = s.wave, s.wave.grid
        given: dict[str, Any] = {name: _at(read(s), i) for name, read in reads.items()}
        mma = tensor_cores.product(ins, given.pop("idesc"), scale_input_d, grid.target)
        operands = Operands(
            given["d"], given["a"], given["b"], in_tensor_memory, bool(given["enable"]),
            given.get("e"), given.get("scale_a"), given.get("scale_b"),
            [_at(read(s), i) for read in disabled], given.get("zero_mask", 0), given.get("lut"),
        )  # fmt: skip
        rows, lane = _group(ins, wave, row), int(s.lanes[i])
        memories = [tensor_memory(wave, own) for own in rows]
        shared = [_shared(wave, own) for own in rows]

        def effect() -> None:
            unwritten = mma.run(
                memories, shared, operands, engine=grid.arithmetic, undefined=grid.undefined
            )
            if unwritten and wave.watch is not None:
                what = f"{', '.join(unwritten)} of {ins}"
                wave.watch.tensor_cores.unwritten(np.array([lane]), what, statement.pc)

        _issue(s, statement, TensorOperation(
            lane, effect, name="mma", cta_group=ins.cta_group,
            accumulator=(operands.d, mma.product.instruction.m, mma.product.instruction.n),
            reads=lambda: mma.touched(memories, operands).read,
            writes=lambda: mma.touched(memories, operands).written,
            hear=lambda: mma.read_shared([_heard(wave, own, lane) for own in rows], operands),
        ))  # fmt: skip

    return _by_threads(statement, run)


# --- order ----------------------------------------------------------------------------------------


def commit(statement: Statement, function: Function) -> Step:
    """commit: an arrival once everything before it is complete. With a mask it arrives at the
    barrier of the same offset in every block of the cluster that the mask names."""
    ins, places = _instruction(statement), find_barriers(statement, function)
    bound = statement.operands.get("mask")
    mask = None if bound is None else reader(bound, statement.signature["mask"].type, function)

    def run(s: Strand, i: int, row: int) -> None:
        wave = s.wave
        place = _at(places(s, None), i)
        at = np.array([place])
        if mask is not None:
            words, first = wave.shared_bytes // 8, row // wave.cluster_size * wave.cluster_size
            named = _at(mask(s), i)
            ranks = [rank for rank in range(wave.cluster_size) if named >> rank & 1]
            at = np.array([(first + rank) * words + place % words for rank in ranks], np.int64)
        for barrier in at.tolist():
            if wave.watch is not None:
                wave.watch.mbarrier_used(s.lanes[i : i + 1], np.array([barrier]))
                lane = int(s.lanes[i])
                wave.watch.tensor_cores.completion.commit(lane, ins.cta_group, barrier)
            effect = partial(change, wave, np.array([barrier]), Change(arrivals=1))
            _issue(s, statement, TensorOperation(
                int(s.lanes[i]), effect, barrier, name="commit", cta_group=ins.cta_group
            ))  # fmt: skip

    return _by_threads(statement, run)


def wait_for_loads(statement: Statement, function: Function) -> Step:
    def run(s: Strand) -> None:
        for load in tensor_order.arrived(s.wave.pending, s.lanes[::WARP].tolist()):
            lanes = load.lane + np.arange(WARP)
            for result, words in zip(load.results, load.found, strict=True):
                result.write_lanes(s, lanes[None], words[None])

    return _by_warps(statement, run)


def wait_for_stores(statement: Statement, function: Function) -> Step:
    return _by_warps(
        statement, lambda s: tensor_order.stored(s.wave.pending, s.lanes[::WARP].tolist())
    )


def fence(statement: Statement, function: Function) -> Step:
    return lambda s: None


STEPS = {
    "tcgen05.alloc": allocate,
    "tcgen05.dealloc": deallocate,
    "tcgen05.relinquish_alloc_permit": relinquish,
    "tcgen05.ld": load,
    "tcgen05.st": store,
    "tcgen05.cp": copy,
    "tcgen05.shift": shift,
    "tcgen05.mma": multiply,
    "tcgen05.commit": commit,
    "tcgen05.wait::ld": wait_for_loads,
    "tcgen05.wait::st": wait_for_stores,
    **{f"tcgen05.fence::{x}_thread_sync": fence for x in ("before", "after")},
}
