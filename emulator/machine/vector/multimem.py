"""multimem: statements on the memory of several devices, for many lanes (PTX ISA 9.7.9).

Each access of a lane becomes one in the memory of each device, in the order of the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.scalar.atomic_series import Series
from emulator.arith.scalar.rule import bind_arrays
from emulator.arith.scalar.types import TYPES
from emulator.machine.shared.operands import ordinary
from emulator.machine.vector import memory
from emulator.machine.vector.access import among_all, taken_apart, together
from emulator.machine.vector.atomics import Update, update
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.memory import Addresses, Positions
from emulator.machine.vector.operands import addresses, reader, selected, writer
from emulator.machine.vector.strand import Strand
from emulator.memory.arena import AccessError
from emulator.ptx.program import Function, Statement, items_of


class _Accesses(NamedTuple):
    """Accesses of lanes through one multicast group."""

    #: which of the accesses, and the positions of their lanes in the strand; None: all
    which: Positions
    positions: Positions
    #: for each device their addresses
    devices: list[Addresses]

    def of(self, words: Array) -> Array:
        """Their part of the words of all lanes; one word for all stays that."""
        return words if self.which is None or len(words) == 1 else words[self.which]


Find = Callable[[Strand, Array | None], Iterator[_Accesses]]


def _finder(statement: Statement, function: Function, count: int) -> Find:
    """The function that finds where lanes access `count` elements."""
    find = addresses(statement.operands["a"], function)
    size = TYPES[ordinary(statement).types[-1]].size // 8 * count

    def of_devices(s: Strand, mask: Array | None) -> Iterator[_Accesses]:
        positions = memory.positions_of(mask)
        try:
            for part in s.wave.grid.arena.of_devices(selected(find(s), mask), size):
                lanes = memory.among(positions, part.which)
                yield _Accesses(part.which, lanes, part.addresses)
        except AccessError as error:
            raise memory.at_positions(error, positions) from None

    return of_devices


def load_reduced(statement: Statement, function: Function) -> Step:
    """multimem.ld_reduce: the words of all devices as one."""
    ins = ordinary(statement)
    items, type_ = items_of(statement.operands["d"]), ins.types[-1]
    writes = [writer(item, type_, function) for item in items]
    find, combine = _finder(statement, function, len(items)), bind_arrays(ins)
    kind = TYPES[type_]
    size = kind.size // 8 * len(items)

    def run(s: Strand, mask: Array | None) -> None:
        lanes = len(s) if mask is None else int(mask.sum())
        out = [np.zeros(lanes, kind.dtype) for _ in items]
        for part in find(s, mask):
            loaded = (memory.load(s, "global", at, size, part.positions) for at in part.devices)
            elements = [taken_apart(words, type_, len(items)) for words in loaded]
            where = slice(None) if part.which is None else part.which
            for held, words in zip(out, zip(*elements, strict=True), strict=True):
                held[where] = combine(*words)
        for write, held in zip(writes, out, strict=True):
            write(s, held if mask is None else among_all(s, held, mask), mask)

    return guarded(statement, run)


def store_multicast(statement: Statement, function: Function) -> Step:
    """multimem.st: the same words to the memory of each device."""
    type_, items = ordinary(statement).types[-1], items_of(statement.operands["b"])
    reads = [reader(item, type_, function) for item in items]
    find = _finder(statement, function, len(items))

    def run(s: Strand, mask: Array | None) -> None:
        words = selected(together([read(s) for read in reads]), mask)
        for part in find(s, mask):
            for at in part.devices:
                memory.store(s, "global", at, part.of(words), part.positions)

    return guarded(statement, run)


def reduce_multicast(statement: Statement, function: Function) -> Step:
    """multimem.red: an atomic operation in the memory of each device."""
    ins = ordinary(statement)
    type_, items = ins.types[-1], items_of(statement.operands["b"])
    reads = [reader(item, type_, function) for item in items]
    find = _finder(statement, function, len(items))
    series = Series(TYPES[type_], ins.modifiers["operation"])
    operation = Update(bind_arrays(ins, space="global"), series, len(items), wanted=False)

    def run(s: Strand, mask: Array | None) -> None:
        words = selected(together([read(s) for read in reads]), mask)
        for part in find(s, mask):
            for at in part.devices:
                update(s, "global", at, (part.of(words),), operation, part.positions)

    return guarded(statement, run)
