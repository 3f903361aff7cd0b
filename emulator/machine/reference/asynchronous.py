"""Statements that copy asynchronously: cp.async, bulk copies and reductions, stores that signal an
mbarrier (PTX ISA 9.7.9.25, 9.7.13.14). Tensor copies have a module of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from emulator.arith.scalar.rule import bind_reference
from emulator.arith.scalar.types import TYPES
from emulator.machine.reference import memory
from emulator.machine.reference.access import ordinary, space_of
from emulator.machine.reference.compute import Run, guarded
from emulator.machine.reference.mbarriers import barrier_of, change, key_of
from emulator.machine.reference.operands import Read, addresses, reader
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.pending import POISON, Transfer
from emulator.memory.mbarrier import Operation
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Constant, Function, Statement, items_of

#: finds the bytes of an access when it takes effect: memory may have grown since its issue
Find = Callable[[], memoryview]

_SPACES = {"shared": "shared", "shared::cta": "shared", "shared::cluster": "cluster"}


def words_of(statement: Statement) -> set[str]:
    return set(str(statement.instruction).split("."))


def constant(statement: Statement, name: str) -> int:
    bound = statement.operands[name]
    assert isinstance(bound, Constant)
    return bound.word


# --- cp.async -------------------------------------------------------------------------------------


def copy(statement: Statement, function: Function) -> Run:
    """cp.async of 4, 8 or 16 bytes; what lies behind the size of the source becomes zeros."""
    operands = statement.operands
    target, source = addresses(operands["dst"]), addresses(operands["src"])
    size = constant(statement, "size")
    given, left_out = operands.get("source_size"), operands.get("ignore")
    used = reader(given, "u32") if given is not None else None
    ignored = reader(left_out, "pred") if left_out is not None else None

    def run(thread: Thread) -> None:
        count = size if used is None else used(thread)
        if ignored is not None and ignored(thread):
            count = 0
        if count > size:
            raise Failure("cp.async", f"the source has {count} bytes; {size} are copied")
        at, pending = source(thread), thread.cluster.pending
        place = memory.find(thread, "shared", target(thread), size, size, write=True)
        if count:
            memory.find(thread, "global", at, count, size if count == size else 1)

        def perform(which: object) -> None:
            data = memory.find(thread, "global", at, count, 1) if count else b""
            memory.put(thread, place, bytes(data) + bytes(size - count))

        if not pending.at_once:
            place[:] = bytes([POISON]) * size
        pending.copy(np.array([thread.number]), perform)

    return guarded(statement, run)


def commit_copies(statement: Statement, function: Function) -> Run:
    def run(thread: Thread) -> None:
        thread.cluster.pending.commit_copies(np.array([thread.number]))

    return guarded(statement, run)


def wait_copies(statement: Statement, function: Function) -> Run:
    newest = None if "wait_all" in words_of(statement) else constant(statement, "n")

    def run(thread: Thread) -> None:
        thread.cluster.pending.wait_copies(np.array([thread.number]), newest)

    return guarded(statement, run)


def arrive_after_copies(statement: Statement, function: Function) -> Run:
    """cp.async.mbarrier.arrive: an arrival once the thread's copies are done; without .noinc it is
    one that was not counted before."""
    address, noinc = barrier_of(statement), "noinc" in words_of(statement)

    def run(thread: Thread) -> None:
        at, pending = address(thread), thread.cluster.pending
        if not noinc:
            change(thread, at, Operation(arrivals=-1))

        def perform() -> None:
            pending.wait_copies(np.array([thread.number]), None)
            change(thread, at, Operation(arrivals=1))

        pending.transfer(Transfer(thread.number, perform, key_of(thread, at)))

    return guarded(statement, run)


# --- bulk copies ----------------------------------------------------------------------------------


class Issue:
    """What every bulk copy has: its operands, and the mbarrier that it signals, if it does."""

    def __init__(self, statement: Statement) -> None:
        modifiers, operands = ordinary(statement).modifiers, statement.operands
        self.to = _SPACES.get(modifiers.get("to", ""), modifiers.get("to", ""))
        self.source = _SPACES.get(modifiers.get("from", ""), modifiers.get("from", ""))
        places = {name: addresses(operands[name]) for name in ("dst", "src") if name in operands}
        self.target, self.origin = places.get("dst"), places.get("src")
        self.size = reader(operands["size"], "u32") if "size" in operands else None
        self.mask = reader(operands["mask"], "u16") if "mask" in operands else None
        self.barrier = barrier_of(statement, self.to) if "mbarrier" in operands else None

    def targets(
        self, thread: Thread, size: int, alignment: int
    ) -> Iterator[tuple[str, int, int | None]]:
        """Where a copy goes: a space, an address, and the mbarrier that the place signals; several
        for a multicast, each at the same place of its block."""
        assert self.target is not None
        address = self.target(thread)
        barrier = None if self.barrier is None else self.barrier(thread)
        if self.mask is None:
            memory.find(thread, self.to, address, size, alignment, write=True)
            yield self.to, address, barrier
            return
        ranks, count = self.mask(thread), thread.run.blocks_of_cluster
        if ranks >> count:
            raise Failure("multicast", f"mask {ranks:#x} in a cluster of {count}")
        inside = (1 << RANK_BITS) - 1
        assert barrier is not None
        for rank in range(count):
            if ranks >> rank & 1:
                place = address & inside | rank << RANK_BITS
                memory.find(thread, "cluster", place, size, alignment, write=True)
                yield "cluster", place, barrier & inside | rank << RANK_BITS


def submit(thread: Thread, barrier: int | None, size: int, perform: Callable[[], None]) -> None:
    """Issues an operation on `size` bytes, which an mbarrier or the thread's group waits for."""

    def whole() -> None:
        perform()
        if barrier is not None:
            change(thread, barrier, Operation(transactions=-size))

    key = None if barrier is None else key_of(thread, barrier)
    thread.cluster.pending.transfer(Transfer(thread.number, whole, key))


def poison(thread: Thread, place: memoryview) -> None:
    """What stands where a copy will write, until it does."""
    if not thread.cluster.pending.at_once:
        place[:] = bytes([POISON]) * len(place)


def bulk_copy(statement: Statement, function: Function) -> Run:
    """cp.async.bulk between global memory, shared memory, and that of the cluster."""
    issue = Issue(statement)
    given = statement.operands.get("byte_mask")
    mask = reader(given, "u16") if given is not None else lambda thread: 0xFFFF
    assert issue.size is not None and issue.origin is not None
    count, origin = issue.size, issue.origin

    def run(thread: Thread) -> None:
        size = count(thread)
        if size % 16:
            raise Failure("bulk copy", f"{size} bytes: a multiple of 16 is copied")
        source = partial(memory.find, thread, issue.source, origin(thread), size, 16)
        source()
        for space, address, barrier in issue.targets(thread, size, 16):
            place = partial(memory.find, thread, space, address, size, 16, write=True)
            if barrier is not None:
                poison(thread, place())
            submit(thread, barrier, size, _moves(thread, source, place, mask(thread)))

    return guarded(statement, run)


def _moves(thread: Thread, source: Find, place: Find, mask: int) -> Callable[[], None]:
    """Copies of every 16 bytes those whose bit of the mask is set."""

    def perform() -> None:
        pairs = enumerate(zip(source(), place(), strict=True))
        data = bytes(new if mask >> i % 16 & 1 else old for i, (new, old) in pairs)
        memory.put(thread, place(), data)

    return perform


def bulk_reduce(statement: Statement, function: Function) -> Run:
    """cp.reduce.async.bulk: combines memory with what lies in shared memory, element by element."""
    issue, ins = Issue(statement), ordinary(statement)
    assert issue.size is not None and issue.origin is not None
    count, origin = issue.size, issue.origin
    space = "global" if issue.to == "global" else "shared"
    rule = bind_reference(ins, space=space, bulk="bulk")
    element = TYPES[ins.types[-1]].size // 8

    def run(thread: Thread) -> None:
        size = count(thread)
        if size % 16:
            raise Failure("bulk reduction", f"{size} bytes: a multiple of 16 is combined")
        source = partial(memory.find, thread, issue.source, origin(thread), size, 16)
        source()
        for space, address, barrier in issue.targets(thread, size, 16):
            place = partial(memory.find, thread, space, address, size, 16, write=True)
            submit(thread, barrier, size, _combines(thread, source, place, element, rule))

    return guarded(statement, run)


def _combines(
    thread: Thread,
    source: Callable[[], memoryview | bytes],
    place: Find,
    size: int,
    rule: Callable[..., int],
) -> Callable[[], None]:
    """Combines elements of `size` bytes."""

    def perform() -> None:
        held, data = place(), source()
        for start in range(0, len(held), size):
            here = slice(start, start + size)
            old, given = (int.from_bytes(x[here], "little") for x in (held, data))
            memory.put(thread, held[here], rule(old, given).to_bytes(size, "little"))

    return perform


def commit_bulk(statement: Statement, function: Function) -> Run:
    def run(thread: Thread) -> None:
        thread.cluster.pending.commit_bulk(np.array([thread.number]))

    return guarded(statement, run)


def wait_bulk(statement: Statement, function: Function) -> Run:
    newest = constant(statement, "n")

    def run(thread: Thread) -> None:
        thread.cluster.pending.wait_bulk(np.array([thread.number]), newest)

    return guarded(statement, run)


# --- stores and reductions that signal an mbarrier ------------------------------------------------


def store_and_signal(statement: Statement, function: Function) -> Run:
    """st.async and red.async to shared memory of the cluster."""
    ins, operands = ordinary(statement), statement.operands
    type_ = ins.types[-1]
    reads = [reader(item, type_) for item in items_of(operands["b"])]
    address, space = addresses(operands["a"]), space_of(statement, operands["a"])
    signals = "mbarrier" in operands
    barrier: Read | None = barrier_of(statement, "cluster") if signals else None
    element = TYPES[type_].size // 8
    rule = bind_reference(ins, space="shared") if ins.modifiers.get("operation", "") else None

    def run(thread: Thread) -> None:
        size = element * len(reads)
        place = memory.find(thread, space, address(thread), size, size, write=True)
        data = b"".join(read(thread).to_bytes(element, "little") for read in reads)
        at = None if barrier is None else barrier(thread)
        if rule is None:
            if at is not None:
                poison(thread, place)
            submit(thread, at, size, lambda: memory.put(thread, place, data))
        else:
            find = partial(memory.find, thread, space, address(thread), size, size, write=True)
            submit(thread, at, size, _combines(thread, lambda: data, find, element, rule))

    return guarded(statement, run)


def clear(statement: Statement, function: Function) -> Run:
    """st.bulk: zeros in shared memory."""
    address, space = (
        addresses(statement.operands["a"]),
        space_of(statement, statement.operands["a"]),
    )
    count = reader(statement.operands["size"], "u64")

    def run(thread: Thread) -> None:
        size = count(thread)
        if size % 8:
            raise Failure("st.bulk", f"{size} bytes: a multiple of 8 is set")
        place = memory.find(thread, space, address(thread), size, 8, write=True)
        memory.put(thread, place, bytes(size))

    return guarded(statement, run)


EACH = {
    "cp.async": copy,
    "cp.async.commit_group": commit_copies,
    "cp.async.wait_group": wait_copies,
    "cp.async.wait_all": wait_copies,
    "cp.async.mbarrier.arrive": arrive_after_copies,
    "cp.async.bulk": bulk_copy,
    "cp.async.bulk.commit_group": commit_bulk,
    "cp.async.bulk.wait_group": wait_bulk,
    "cp.reduce.async.bulk": bulk_reduce,
    "st.async": store_and_signal,
    "st.bulk": clear,
    "red.async": store_and_signal,
}
