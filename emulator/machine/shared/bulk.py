"""All engines: bulk copies and reductions, and stores that signal an mbarrier (PTX ISA 9.7.9.25.4,
9.7.9.12, 9.7.13.7). Each thread issues its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import (
    Combine,
    Issue,
    Issuer,
    Make,
    Operands,
    Run,
    Span,
    poison,
    submit,
)

#: bytes that a bulk copy moves at a time
_UNIT = 16


def _whole(size: int, kind: str, unit: int, verb: str) -> int:
    """A size in bytes that must be a multiple of a unit."""
    if size % unit:
        raise Failure(kind, f"{size} bytes: a multiple of {unit} is {verb}")
    return size


def copy(operands: Operands, *, to_devices: bool = False) -> Run:
    """cp.async.bulk between global memory, shared memory, and that of the cluster; `to_devices`:
    multimem.cp.async.bulk."""
    issue = Issue(operands, to_devices=to_devices)
    count = operands.word("size", "u32")
    byte_mask = operands.word("byte_mask", "u16") if "byte_mask" in operands else None
    left, right = operands.number("left", 0), operands.number("right", 0)

    def run(who: Issuer) -> None:
        size = _whole(count(who), "bulk copy", _UNIT, "copied")
        skipped = left(who), right(who)
        if max(skipped) >= _UNIT:
            raise Failure("bulk copy", f"{max(skipped)} bytes at an end: up to 15 are ignored")
        source, chosen = issue.source(who, size, _UNIT, skipped), None
        if byte_mask is not None:
            # Of every 16 bytes those are copied whose bit is set.
            chosen = byte_mask(who) >> np.arange(size) % _UNIT & 1 == 1
        for target, barrier in issue.targets(who, size, _UNIT):
            if barrier is not None:
                poison(who, target)
            if who.watch is not None and issue.to == "global":
                inside = np.arange(size) if chosen is None else np.flatnonzero(chosen)
                who.watch.stored_by_copy(who.lanes, source.start + inside)
            submit(who, barrier, size, _movement(source, _within(target, skipped), chosen))

    return run


def _within(target: Span, skipped: tuple[int, int]) -> Span:
    """A target without bytes at its ends, which a copy leaves as they are: any value may stand
    there."""
    if not any(skipped):
        return target
    rest = max(0, target.size - sum(skipped))
    return Span(target.memory, target.start + skipped[0], rest)


def _movement(source: Span, target: Span, chosen: Array | None) -> Callable[[], None]:
    where = True if chosen is None else chosen
    return lambda: np.copyto(target.bytes, source.bytes, where=where)


def reduce(operands: Operands, *, to_devices: bool = False) -> Run:
    """cp.reduce.async.bulk: combines memory with what lies in shared memory, element by element;
    `to_devices`: multimem.cp.reduce.async.bulk."""
    issue = Issue(operands, to_devices=to_devices)
    count = operands.word("size", "u32")
    combine = operands.rule(space="global" if issue.to == "global" else "shared", bulk="bulk")
    dtype = TYPES[operands.ins.types[-1]].dtype

    def run(who: Issuer) -> None:
        size = _whole(count(who), "bulk reduction", _UNIT, "combined")
        source = issue.source(who, size, _UNIT)
        for target, barrier in issue.targets(who, size, _UNIT):
            change = _combination(target, lambda: source.bytes.view(dtype), combine)
            submit(who, barrier, size, change)

    return run


def _combination(target: Span, given: Callable[[], Array], combine: Combine) -> Callable[[], None]:
    """Combines words in memory with given ones of the same type."""

    def perform() -> None:
        words = given()
        held = target.bytes
        held[:] = np.ascontiguousarray(combine(held.view(words.dtype), words)).view(np.uint8)

    return perform


def store_and_signal(operands: Operands, *, to_devices: bool = False) -> Run:
    """st.async and red.async to shared memory of the cluster, or to global memory; `to_devices`:
    those of multimem."""
    type_ = operands.ins.types[-1]
    reads, address = operands.words("b", type_), operands.address("a")
    space, each = operands.space("a"), TYPES[type_].size // 8
    signal = operands.barrier("cluster") if "mbarrier" in operands else None
    size = each * len(reads)
    combine = operands.rule(space="shared") if operands.modifier("operation") else None

    def run(who: Issuer) -> None:
        raw = b"".join(int(read(who)).to_bytes(each, "little") for read in reads)
        data = np.frombuffer(raw, np.uint8)
        barrier = None if signal is None else signal(who)
        for place in _places(who, address(who), size, to_devices):
            target = who.find(space, place, size, size, write=True)
            if combine is not None:
                change = _combination(target, lambda: data.view(TYPES[type_].dtype), combine)
                submit(who, barrier, size, change)
                continue
            if barrier is not None:
                poison(who, target)
            submit(who, barrier, size, _store(target, data))

    return run


def _places(who: Issuer, address: int, size: int, to_devices: bool) -> Iterator[int]:
    """An address, or the addresses in the memory of each device that a multimem address names."""
    if not to_devices:
        yield address
        return
    (part,) = who.of_devices(np.array([address], np.uint64), size)
    for (place,) in part.addresses:
        yield int(place)


def _store(target: Span, data: Array) -> Callable[[], None]:
    def perform() -> None:
        target.bytes[:] = data

    return perform


def clear(operands: Operands) -> Run:
    """st.bulk: zeros in shared memory."""
    address, space = operands.address("a"), operands.space("a")
    count = operands.word("size", "u64")

    def run(who: Issuer) -> None:
        size = _whole(count(who), "st.bulk", 8, "set")
        who.find(space, address(who), size, 8, write=True).bytes[:] = 0
        who.advance()

    return run


EACH: dict[str, Make] = {
    "cp.async.bulk": copy,
    "cp.reduce.async.bulk": reduce,
    "multimem.cp.async.bulk": partial(copy, to_devices=True),
    "multimem.cp.reduce.async.bulk": partial(reduce, to_devices=True),
    "multimem.st.async": partial(store_and_signal, to_devices=True),
    "multimem.red.async": partial(store_and_signal, to_devices=True),
    "st.async": store_and_signal,
    "st.bulk": clear,
    "red.async": store_and_signal,
}
