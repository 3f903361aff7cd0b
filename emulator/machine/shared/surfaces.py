"""All engines: ``suld``, ``sust``, ``sured`` and ``suq`` (PTX ISA 9.7.11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.arith.texel_codes import codes
from emulator.isa.ordinary.instruction import OrdinaryInstruction, parse
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Executor, LaneOperands, MakeAtOnce, RunAtOnce
from emulator.machine.shared.operands import ordinary
from emulator.memory.surface import Mode, SurfaceError, Texels
from emulator.ptx.program import Address, Bound, Statement, items_of

Raw = NDArray[np.uint8]
T = TypeVar("T")
#: registers that count, of coordinates in four
_COUNTED = {"3d": 3, "a2d": 3}


def named(
    objects: Mapping[int, T], kind: Literal["texture", "surface"], handle: int, index: int
) -> T:
    """The object of a handle; Failure, of the lane at `index`, where it names none."""
    if handle in objects:
        return objects[handle]
    reason = f"the handle {handle:#x} names no {kind}; pass a {kind.capitalize()}, or bind one"
    raise Failure(kind, reason, index)


def coordinates_of(statement: Statement) -> tuple[Bound, ...]:
    """The coordinates of an access that count."""
    place = statement.operands["s"]
    assert isinstance(place, Address)
    items = tuple(item for item in items_of(place.coordinates[0]) if item is not None)
    return items[: _COUNTED.get(ordinary(statement).modifiers["geometry"])]


def _is_formatted(ins: OrdinaryInstruction) -> bool:
    return "p" in str(ins).split(".")


def size_in(statement: Statement) -> Callable[[Texels], int]:
    """The bytes of an access to a surface: those of its registers, and of a formatted store those
    of a texel."""
    ins = ordinary(statement)
    items = items_of(statement.operands.get("b", statement.operands.get("d")))
    size = TYPES[ins.types[-1]].size // 8 * len(items)
    if _is_formatted(ins) and "operation" not in ins.modifiers:
        return lambda texels: texels.texel
    return lambda texels: size


class Part(NamedTuple):
    """Threads that use one surface: which of those given are in range, with the addresses of their
    accesses of `size` bytes, in pieces of `piece` bytes that are aligned."""

    texels: Texels
    inside: NDArray[np.int64]
    addresses: NDArray[np.uint64]
    size: int

    @property
    def piece(self) -> int:
        return min(self.size, self.texels.alignment)

    def pieces(self) -> Iterator[tuple[slice, NDArray[np.uint64]]]:
        """The bytes of each piece, and its addresses."""
        for start in range(0, self.size, self.piece):
            yield slice(start, start + self.piece), self.addresses + np.uint64(start)


#: surfaces by their handles, handles and coordinates of threads -> the threads by their surfaces
Parts = Callable[[Mapping[int, Texels], Array, Sequence[Array]], Iterator[Part]]


def parts_of(statement: Statement) -> Parts:
    """The accesses of threads with handles and coordinates ``(threads,)``.

    Raises Failure, with the position of a thread, for a handle that names no surface, one of
    another geometry than the instruction's, and an access that the surface refuses.
    """
    ins, size_of = ordinary(statement), size_in(statement)
    modifiers, formatted = ins.modifiers, _is_formatted(ins)
    mode = cast("Mode", modifiers["clamp"])

    def parts(
        objects: Mapping[int, Texels], handles: Array, coordinates: Sequence[Array]
    ) -> Iterator[Part]:
        for handle in np.unique(handles).tolist():
            lanes = np.flatnonzero(handles == handle)
            texels = named(objects, "surface", handle, int(lanes[0]))
            if texels.geometry != modifiers["geometry"]:
                reason = f"{ins} is of another geometry than {texels!r}"
                raise Failure("surface", reason, int(lanes[0]))
            size = size_of(texels)
            given = [axis[lanes].view(np.int32).astype(np.int64) for axis in coordinates]
            try:
                addresses, inside = texels.places(given, size, mode, size if formatted else 1)
            except SurfaceError as error:
                raise Failure(error.kind, str(error), int(lanes[error.index])) from None
            yield Part(texels, lanes[inside], addresses[inside], size)

    return parts


def raw_of(statement: Statement) -> Callable[[Texels, Sequence[Array]], Raw]:
    """The bytes ``(lanes, size)`` that a store writes, of the words of its vector."""
    ins = ordinary(statement)
    dtype = TYPES[ins.types[-1]].dtype

    def plain(texels: Texels, words: Sequence[Array]) -> Raw:
        return _bytes([given.astype(dtype) for given in words])

    def formatted(texels: Texels, words: Sequence[Array]) -> Raw:
        absent = [np.zeros_like(words[0])] * (texels.channels - len(words))
        given = [*words, *absent][: texels.channels]
        return _bytes([codes(texels.format, x.astype(np.uint32)) for x in given])

    return formatted if _is_formatted(ins) else plain


def _bytes(elements: Sequence[Array]) -> Raw:
    held = np.ascontiguousarray(np.stack(elements, axis=-1))
    return held.view(np.uint8).reshape(len(held), held.shape[1] * held.itemsize)


def update_of(statement: Statement, texels: Texels) -> OrdinaryInstruction:
    """The reduction in global memory that ``sured`` does at its address; what is formatted takes
    its sign from the surface."""
    ins = ordinary(statement)
    type_, operation = ins.types[-1], ins.modifiers["operation"]
    if type_.startswith("b") and operation not in ("and", "or"):
        signed = texels.format.kind == "signed" and operation != "add"
        type_ = f"{'s' if signed else 'u'}{type_[1:]}"
    return parse(f"red.global.{operation}.{type_}")


def _check_aligned(part: Part) -> None:
    """Raises Failure for a reduction at an address that is not aligned, as that of a row whose size
    is no multiple of it: a GPU has no such rows."""
    if part.piece < part.size and len(part.inside):
        reason = f"the rows of {part.texels!r} are no multiple of {part.size} bytes, as sured needs"
        raise Failure("unsupported", reason, int(part.inside[0]))


# --- statements -----------------------------------------------------------------------------------


def _parts_by(operands: LaneOperands) -> Callable[[Executor], Iterator[Part]]:
    """`parts_of` a statement's operands."""
    find, split = operands.address("s"), parts_of(operands.statement)
    reads = operands.items(coordinates_of(operands.statement), "b32")

    def parts(who: Executor) -> Iterator[Part]:
        coordinates = [who.spread(read(who), np.uint32) for read in reads]
        return split(who.arena.surfaces, who.spread(find(who), np.uint64), coordinates)

    return parts


def load(operands: LaneOperands) -> RunAtOnce:
    """``suld``: reads elements of a surface, zeros where it has none."""
    parts, type_ = _parts_by(operands), operands.ins.types[-1]
    items = items_of(operands.statement.operands.get("d"))
    writes, dtype = [operands.result(x, type_) for x in items], TYPES[type_].dtype

    def run(who: Executor) -> None:
        raw = np.zeros((len(who.lanes), dtype.itemsize * len(writes)), np.uint8)
        for part in parts(who):
            for piece, at in part.pieces():
                if len(at):
                    raw[part.inside, piece] = who.load("global", at, part.piece, part.inside)
        for write, words in zip(writes, raw.view(dtype).T, strict=True):
            write(who, words)

    return run


def store(operands: LaneOperands) -> RunAtOnce:
    """``sust``: writes elements of a surface, or a texel in its format."""
    parts, raw, type_ = _parts_by(operands), raw_of(operands.statement), operands.ins.types[-1]
    reads, dtype = operands.words("b", type_), TYPES[type_].dtype.type

    def run(who: Executor) -> None:
        given = [who.spread(read(who), dtype) for read in reads]
        for part in parts(who):
            data = raw(part.texels, [words[part.inside] for words in given])
            for piece, at in part.pieces():
                if len(at):
                    who.store("global", at, data[:, piece], part.inside, part.size)

    return run


def reduce(operands: LaneOperands) -> RunAtOnce:
    """``sured``: combines elements of a surface with an operand."""
    parts, type_ = _parts_by(operands), operands.ins.types[-1]
    read, dtype = operands.word("b", type_), TYPES[type_].dtype.type

    def run(who: Executor) -> None:
        words = who.spread(read(who), dtype)
        for part in parts(who):
            _check_aligned(part)
            if len(part.inside):
                update = update_of(operands.statement, part.texels)
                raw = words[part.inside, None].view(np.uint8)
                who.update(part.addresses, update, raw, part.inside)

    return run


def query(operands: LaneOperands) -> RunAtOnce:
    """``suq``: texels along an axis; layers come behind the other axes, and 0 is none."""
    find = operands.address("s")
    write = operands.result(operands.statement.operands["d"], "b32")
    place = ("width", "height", "depth").index(operands.modifier("query"))

    def run(who: Executor) -> None:
        handles = who.spread(find(who), np.uint64).tolist()
        found = [named(who.arena.surfaces, "surface", x, i) for i, x in enumerate(handles)]
        sizes = [(*reversed(texels.axes), 0, 0)[place] for texels in found]
        write(who, np.array(sizes, np.uint32))

    return run


AT_ONCE: dict[str, MakeAtOnce] = {"suld": load, "sust": store, "sured": reduce, "suq": query}
