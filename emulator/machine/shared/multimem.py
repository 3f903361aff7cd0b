"""All engines: multimem statements on the memory of several devices (PTX ISA 9.7.9). Each access of
a thread becomes one in the memory of each device, in the order of the devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.machine.shared.issuing import Executor, LaneOperands, MakeAtOnce, Places, RunAtOnce
from emulator.ptx.program import items_of

#: which of the threads access one group of devices, with their addresses in the memory of each
Accesses = tuple[Places, list[Array]]


def _accesses(operands: LaneOperands, size: int) -> Callable[[Executor], Iterator[Accesses]]:
    """The accesses of `size` bytes that threads make, by groups of devices."""
    find = operands.address("a")

    def accesses(who: Executor) -> Iterator[Accesses]:
        for part in who.of_devices(np.atleast_1d(np.asarray(find(who), np.uint64)), size):
            every = np.arange(len(who.lanes)) if part.which is None else part.which
            yield every, part.addresses

    return accesses


def load_reduced(operands: LaneOperands) -> RunAtOnce:
    """multimem.ld_reduce: the words of all devices as one."""
    type_, items = operands.ins.types[-1], items_of(operands.statement.operands["d"])
    writes, dtype = [operands.result(item, type_) for item in items], TYPES[type_].dtype
    size = dtype.itemsize * len(items)
    accesses, combine = _accesses(operands, size), operands.rule()

    def run(who: Executor) -> None:
        out = np.zeros((len(items), len(who.lanes)), dtype)
        for which, devices in accesses(who):
            loaded = [who.load("global", at, size, which).view(dtype).T for at in devices]
            for held, words in zip(out, zip(*loaded, strict=True), strict=True):
                held[which] = combine(*map(np.ascontiguousarray, words))
        for write, held in zip(writes, out, strict=True):
            write(who, held)

    return run


def _to_devices(
    operands: LaneOperands, act: Callable[[Executor, Array, Array, Places], None]
) -> RunAtOnce:
    """`act` on each device, with addresses, the bytes of each access or of all, and its threads."""
    type_ = operands.ins.types[-1]
    reads, dtype = operands.words("b", type_), TYPES[type_].dtype
    accesses = _accesses(operands, dtype.itemsize * len(reads))

    def run(who: Executor) -> None:
        words = [np.atleast_1d(np.asarray(read(who), dtype)) for read in reads]
        raw = np.stack(np.broadcast_arrays(*words), axis=-1).view(np.uint8)
        for which, devices in accesses(who):
            for at in devices:
                act(who, at, raw if len(raw) == 1 else raw[which], which)

    return run


def store(operands: LaneOperands) -> RunAtOnce:
    """multimem.st: the same words to the memory of each device."""
    return _to_devices(
        operands, lambda who, at, raw, which: who.store("global", at, raw, which, raw.shape[1])
    )


def reduce(operands: LaneOperands) -> RunAtOnce:
    """multimem.red: an atomic operation in the memory of each device."""
    return _to_devices(
        operands, lambda who, at, raw, which: who.update(at, operands.ins, raw, which)
    )


AT_ONCE: dict[str, MakeAtOnce] = {
    "multimem.ld_reduce": load_reduced,
    "multimem.st": store,
    "multimem.red": reduce,
}
