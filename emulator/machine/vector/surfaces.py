"""``suld``, ``sust``, ``sured`` and ``suq``, all lanes of a strand at once (PTX ISA 9.7.11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dtypes import Array
from emulator.arith.scalar.atomic_series import Series
from emulator.arith.scalar.rule import bind_arrays
from emulator.arith.scalar.types import TYPES
from emulator.machine.shared.handles import named
from emulator.machine.shared.operands import ordinary
from emulator.machine.shared.surfaces import (
    Part,
    check_aligned,
    coordinates_of,
    parts_of,
    query_of,
    raw_of,
    update_of,
    words_of,
)
from emulator.machine.vector import memory
from emulator.machine.vector.atomics import Update, update
from emulator.machine.vector.compute import Step, guarded
from emulator.machine.vector.operands import addresses, reader, writer
from emulator.machine.vector.strand import Strand
from emulator.machine.vector.textures import failing_at, lanes_of
from emulator.ptx.program import Function, Statement, items_of


def _parts_of(
    statement: Statement, function: Function
) -> Callable[[Strand, Array | None], Iterator[Part]]:
    """The accesses of lanes, which are counted in their strand."""
    handle, find = addresses(statement.operands["s"], function), parts_of(statement)
    reads = [reader(item, "b32", function) for item in coordinates_of(statement)]

    def parts(s: Strand, mask: Array | None) -> Iterator[Part]:
        which, (handles, *given) = lanes_of(s, mask, (handle, *reads))
        with failing_at(which):
            for part in find(s.wave.grid.arena.surfaces, handles, given):
                yield part._replace(lanes=which[part.lanes], inside=which[part.inside])

    return parts


def load(statement: Statement, function: Function) -> Step:
    """Reads elements of a surface, zeros where it has none."""
    type_, parts = ordinary(statement).types[-1], _parts_of(statement, function)
    writes = [writer(x, type_, function) for x in items_of(statement.operands.get("d"))]
    dtype = TYPES[type_].dtype

    def run(s: Strand, mask: Array | None) -> None:
        raw = np.zeros((len(s), dtype.itemsize * len(writes)), np.uint8)
        for part in parts(s, mask):
            for piece, at in part.pieces():
                if len(at):
                    words = memory.load(s, "global", at, part.piece, part.inside)
                    found = np.ascontiguousarray(words).view(np.uint8)
                    raw[part.inside, piece] = found.reshape(len(at), part.piece)
        for write, words in zip(writes, raw.view(dtype).T, strict=True):
            write(s, np.ascontiguousarray(words), mask)

    return guarded(statement, run)


def store(statement: Statement, function: Function) -> Step:
    """Writes elements of a surface, or a texel in its format."""
    type_, parts = ordinary(statement).types[-1], _parts_of(statement, function)
    items, raw = items_of(statement.operands["b"]), raw_of(statement)
    reads = [reader(item, type_, function) for item in items]

    def run(s: Strand, mask: Array | None) -> None:
        given = [np.broadcast_to(read(s), len(s)) for read in reads]
        for part in parts(s, mask):
            data = raw(part.texels, [words[part.inside] for words in given])
            for piece, at in part.pieces():
                if len(at):
                    words = words_of(data[:, piece])
                    memory.store(s, "global", at, words, part.inside, part.size)

    return guarded(statement, run)


def reduce(statement: Statement, function: Function) -> Step:
    """Combines elements of a surface with an operand."""
    type_, parts = ordinary(statement).types[-1], _parts_of(statement, function)
    read = reader(statement.operands["b"], type_, function)

    def run(s: Strand, mask: Array | None) -> None:
        words = np.broadcast_to(read(s), len(s))
        for part in parts(s, mask):
            check_aligned(part)
            ins = update_of(statement, part.texels)
            series = Series(TYPES[ins.types[-1]], ins.modifiers["operation"])
            operation = Update(bind_arrays(ins, space="global"), series, 1, False)
            if len(part.inside):
                given = words[part.inside]
                update(s, "global", part.addresses, (given,), operation, part.inside)

    return guarded(statement, run)


def query(statement: Statement, function: Function) -> Step:
    """The sizes of surfaces along an axis."""
    handle, ask = addresses(statement.operands["s"], function), query_of(statement)
    write = writer(statement.operands["d"], "b32", function)

    def run(s: Strand, mask: Array | None) -> None:
        (which, (handles,)), out = lanes_of(s, mask, (handle,)), np.zeros(len(s), np.uint32)
        for lane, given in zip(which.tolist(), handles.tolist(), strict=True):
            out[lane] = ask(named(s.wave.grid.arena.surfaces, "surface", given, lane))
        write(s, out, mask)

    return guarded(statement, run)


STEPS = {"suld": load, "sust": store, "sured": reduce, "suq": query}
