"""All engines: ``tex``, ``tld4`` and ``txq`` (PTX ISA 9.7.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.issuing import Executor, LaneOperands, MakeAtOnce, RunAtOnce
from emulator.machine.shared.operands import ordinary
from emulator.machine.shared.surfaces import named
from emulator.memory.texture import Fetch, Texture, TextureError
from emulator.ptx.program import Address, Bound, Statement, Vector, items_of

#: handles and the words of `_operands_of`, of lanes, to what they write, uint32 (lanes, results)
Read = Callable[[Mapping[int, Texture], Array, Sequence[Array]], NDArray[np.uint32]]
#: geometry -> coordinates that count; those behind them fill a vector of four
_COUNTED = {"3d": 3, "a2d": 3, "cube": 3, "2dms": 3}
#: geometry -> offsets that count, where it is not all that are given
_OFFSETS = {"3d": 3}
#: geometry -> derivatives that count along x, and along y
_SLOPES = {"3d": 3, "cube": 3, "acube": 3}
_QUERIES = ("width", "height", "depth")


def fetch(operands: LaneOperands) -> RunAtOnce:
    """Reads the components of a texel, of a blend or of four texels, or a texture's size."""
    handle, find = operands.address("t"), _read_of(operands.statement)
    reads = operands.items(_operands_of(operands.statement), "b32")
    writes = [operands.result(*result) for result in _results_of(operands.statement)]

    def run(who: Executor) -> None:
        words = [who.spread(read(who), np.uint32) for read in reads]
        found = find(who.arena.textures, who.spread(handle(who), np.uint64), words)
        for write, column in zip(writes, found.T, strict=False):
            write(who, column)

    return run


def _operands_of(statement: Statement) -> tuple[Bound, ...]:
    """The words that a statement reads besides the handle: coordinates, the level, derivatives, and
    offsets. Textures of CUDA compare with nothing."""
    place = statement.operands["t"]
    assert isinstance(place, Address)
    geometry = ordinary(statement).modifiers.get("geometry", "")
    coordinates = items_of(place.coordinates[-1])[: _COUNTED.get(geometry)] if geometry else ()
    offsets = items_of(statement.operands.get("e"))[: _OFFSETS.get(geometry)]
    found = (*coordinates, statement.operands.get("level"), *_slopes_of(statement), *offsets)
    return tuple(item for item in found if item is not None)


def _slopes_of(statement: Statement) -> tuple[Bound, ...]:
    """The derivatives that count: along x, then along y."""
    geometry = ordinary(statement).modifiers.get("geometry", "")
    given = [items_of(statement.operands.get(name)) for name in ("dx", "dy")]
    counted = [item for items in given for item in items[: _SLOPES.get(geometry)]]
    return tuple(item for item in counted if item is not None)


def _results_of(statement: Statement) -> Iterator[tuple[Bound | None, str]]:
    """The registers that a statement writes, with their types: components, and whether the texels
    are resident, which those of CUDA's arrays always are."""
    kind = ordinary(statement).types[0]
    for item in items_of(statement.operands.get("d")):
        yield item, kind
    if "p" in statement.operands:
        yield statement.operands["p"], "pred"


def _read_of(statement: Statement) -> Read:
    """What a statement reads of lanes with handles and words ``(lanes,)``.

    Raises Failure, with the position of a lane, for a handle that names no texture, for a
    texture of another geometry or type than the instruction's, and for a sampler.
    """
    place = statement.operands["t"]
    assert isinstance(place, Address)
    sampled = len(place.coordinates) > 1
    find = (
        _query_of(statement) if "query" in ordinary(statement).modifiers else _fetch_of(statement)
    )

    def read(
        textures: Mapping[int, Texture], handles: Array, words: Sequence[Array]
    ) -> NDArray[np.uint32]:
        if (handles == handles[0]).all():
            return of_one(textures, int(handles[0]), words, 0)
        out = np.zeros((len(handles), 5), np.uint32)
        for handle in np.unique(handles).tolist():
            mask = handles == handle
            found = of_one(textures, handle, [x[mask] for x in words], int(np.argmax(mask)))
            out[mask, : found.shape[1]] = found
        return out

    def of_one(
        textures: Mapping[int, Texture], handle: int, words: Sequence[Array], first: int
    ) -> NDArray[np.uint32]:
        texture = named(textures, "texture", handle, first)
        if sampled:
            reason = "a handle of a sampler names none: a Texture brings its own"
            raise Failure("texture", reason, first)
        try:
            return find(texture, list(words))
        except TextureError as error:
            raise Failure("texture", str(error), first) from None

    return read


def _fetch_of(statement: Statement) -> Callable[[Texture, list[Array]], Array]:
    ins = ordinary(statement)
    kind, given = ins.types
    asked = Fetch(
        ins.modifiers["geometry"], given == "s32", kind, ins.modifiers.get("component", "")
    )
    place = statement.operands["t"]
    assert isinstance(place, Address) and isinstance(place.coordinates[-1], Vector)
    count = len(place.coordinates[-1].items[: _COUNTED.get(asked.geometry)])
    leveled, resident = "level" in statement.operands, "p" in statement.operands
    slopes = len(_slopes_of(statement))

    def fetch(texture: Texture, words: list[Array]) -> Array:
        coordinates, rest = words[:count], words[count:]
        level = rest.pop(0) if leveled else None
        out = texture.fetch(asked, coordinates, level, rest[slopes:], rest[:slopes])
        if kind == "f16x2":
            out = out[:, ::2] | out[:, 1::2] << np.uint32(16)
        return np.insert(out, out.shape[1], 1, axis=1) if resident else out

    return fetch


def _query_of(statement: Statement) -> Callable[[Texture, list[Array]], Array]:
    which = _QUERIES.index(ordinary(statement).modifiers["query"])

    def query(texture: Texture, words: list[Array]) -> Array:
        levels = words[0].astype(np.uint32) if words else np.zeros(1, np.uint32)
        return np.array([[texture.query(int(k))[which]] for k in levels], np.uint32)

    return query


AT_ONCE: dict[str, MakeAtOnce] = {"tex": fetch, "tld4": fetch, "txq": fetch}
