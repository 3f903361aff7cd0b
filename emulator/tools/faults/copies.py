"""Mistakes with the tensor copies (TMA) that fill shared memory: coordinates, boxes, destinations.

Copies are of one map where they belong to one operand; a mistake is made with all copies of a map,
or with one of them. A wrong swizzle may be that of the copy or of the descriptor, a wrong place
that of the destination or of the start address: either change repairs the operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dtypes import Array
from emulator.errors import EmulatorError, OperandError, shown
from emulator.memory.space import Space
from emulator.memory.tensor_copy import RUN, SHARED_ALIGNMENT, SWIZZLE_BITS, place_problem, plan
from emulator.memory.tensor_map import TensorMap
from emulator.memory.tensor_map_arguments import integer, integers
from emulator.memory.tensor_transfer import load_box
from emulator.tools.faults.kernel import Box, Mistake, RecordedKernel, Variant
from emulator.tools.faults.rows import load_rows

#: elements that a coordinate may be off by, beside boxes
_OFF = (8, 16, 32, 64, 128, 256)


def as_boxes(given: object) -> tuple[Box, ...]:
    """Checks the argument ``boxes=``.

    Raises OperandError for what is no tiled map of an array, and for a copy that an H200 refuses.
    """
    boxes = []
    if not isinstance(given, Sequence):
        raise OperandError(f"boxes= is a list of tensor copies; got {shown(given)}")
    for one in given:
        if not isinstance(one, Sequence) or len(one) != 3 or not isinstance(one[0], TensorMap):
            raise OperandError(
                "boxes= are tensor copies, each (tensor map, coordinates, shared address); got "
                f"{shown(one)}"
            )
        tensor_map, coordinates, address = one
        if tensor_map.mode != "tiled" or tensor_map.array is None:
            raise OperandError(f"boxes= are of tiled maps of arrays; got {shown(tensor_map, 200)}")
        at = integers("coordinates of a tensor copy", coordinates, tensor_map.rank)
        box = Box(tensor_map, at, integer("the shared address of a tensor copy", address))
        image_of(box)  # may raise
        boxes.append(box)
    return tuple(boxes)


def filled(before: Array, boxes: Sequence[Box]) -> Array:
    """Shared memory after copies, one after another.

    Raises OperandError for a copy that an H200 refuses, UndefinedError for one that leaves memory.
    """
    shared = before.copy()
    space = Space.of(shared, "shared")
    for box in boxes:
        places, rows = image_of(box)
        space.store(places, rows, RUN)
    return shared


def image_of(box: Box) -> tuple[Array, Array]:
    """Places of the 16-byte runs of a copy in shared memory, and their contents."""
    tensor_map, coordinates, address = box
    if address % SHARED_ALIGNMENT or address < 0:
        raise OperandError(
            f"a tensor copy writes to a multiple of {SHARED_ALIGNMENT} of shared memory; got "
            f"{address:#x}"
        )
    whole = plan(tensor_map)
    copy = whole.at(0, np.array(coordinates))
    if problem := place_problem(whole, np.array(coordinates), stores=False):
        raise OperandError(f"tensor copy at {coordinates}: {problem}")
    tensor = Space("the tensor", _bytes_of(tensor_map.array))
    rows = load_box(copy, lambda addresses, size: tensor.load(addresses, size))
    runs = whole.run_addresses(address).reshape(-1)
    return runs, rows.reshape(len(runs), RUN)


def _bytes_of(array: Array) -> Array:
    """The bytes from the first element of an array to its last, with what lies between rows."""
    size = array.itemsize
    if any(stride < 0 or stride % size for stride in array.strides):
        raise OperandError(f"boxes= are of arrays that lie forwards; strides are {array.strides}")
    steps = zip(array.shape, array.strides, strict=True)
    span = 1 + sum((n - 1) * stride for n, stride in steps) // size
    flat: Array = np.lib.stride_tricks.as_strided(array, (span,), (size,), writeable=False)
    return flat.view(np.uint8)


# --- mistakes -------------------------------------------------------------------------------------

#: a copy, and its number among those of its map, to another copy
Change = Callable[[Box, int], Box]
#: a way to change copies, in words
Edit = tuple[str, Change]


def _coordinates(first: Box) -> Iterator[Edit]:
    """Wrong coordinates, and what makes them."""
    m, size = first.tensor_map, first.tensor_map.element_type.bytes
    yield (
        "coordinates exchanged, the innermost dimension comes first",
        lambda box, i: box._replace(coordinates=box.coordinates[::-1]),
    )
    yield "coordinate 0 counts elements, not bytes", _at(0, over=size)
    for d, n in enumerate(m.box):
        yield f"coordinate {d} counts elements, not boxes of {n}", _at(d, times=n)
        yield f"coordinate {d} counts boxes of {n}, not elements", _at(d, over=n)
        text = f"coordinate {d} one box of {n} further than in the copy before: not advanced"
        yield text, _along(first.coordinates, d, n)
    for d, n in enumerate(m.box):
        boxes = {x * n: f" ({x} × the {n} of a box)" for x in (1, 2, 3, 4)}
        for off in sorted({*boxes, *_OFF}):
            for by in (off, -off):
                yield f"coordinate {d} {by:+}{boxes.get(off, '')}", _at(d, by=by)


def _at(dimension: int, *, times: int = 1, over: int = 1, by: int = 0) -> Change:
    """With one coordinate multiplied, divided where that leaves nothing over, and shifted."""

    def change(box: Box, number: int) -> Box:
        at = list(box.coordinates)
        if at[dimension] * times % over:
            return box
        at[dimension] = at[dimension] * times // over + by
        return box._replace(coordinates=tuple(at))

    return change


def _along(start: tuple[int, ...], dimension: int, step: int) -> Change:
    """With copies that all start at one place side by side along a dimension."""

    def change(box: Box, number: int) -> Box:
        return _at(dimension, by=number * step)(box, 0) if box.coordinates == start else box

    return change


def _maps(first: Box) -> Iterator[Edit]:
    """Another swizzle, box or tensor in the map."""
    m = first.tensor_map
    for swizzle in SWIZZLE_BITS:
        if swizzle != m.swizzle:
            yield f"swizzle {swizzle} in the map instead of {m.swizzle}", _mapped(swizzle=swizzle)
    if len(set(m.box)) > 1:
        text = f"box {m.box[::-1]} instead of {m.box}, the innermost dimension comes first"
        yield text, _mapped(box=m.box[::-1])
    dims, strides = m.array.shape[::-1], m.array.strides[-2::-1]
    if m.array.itemsize == m.element_type.bytes and len(dims) == m.rank:
        if strides != m.strides:
            yield f"strides {strides} of the array instead of {m.strides}", _mapped(strides=strides)
        if dims != m.dims:
            text = f"dims {dims} of the array instead of {m.dims}"
            yield text, _mapped(dims=dims)
            yield f"{text}, with its strides", _mapped(dims=dims, strides=strides)


def _mapped(**fields: Any) -> Change:
    return lambda box, i: box._replace(tensor_map=replace(box.tensor_map, **fields))


def _destinations(first: Box) -> Iterator[Edit]:
    size = plan(first.tensor_map).shared_bytes
    yield (
        f"each copy goes {size} bytes behind the one before",
        lambda box, i: box._replace(address=first.address + i * size),
    )
    for off in sorted({*(n * size for n in (1, 2, 3, 4)), SHARED_ALIGNMENT, 1024, 8192, 16384}):
        boxes = f" ({off // size} × the {size} of a box)" if off % size == 0 else ""
        for by in (off, -off):
            yield f"destination {by:+} bytes{boxes}", _sent(by)


def _sent(by: int) -> Change:
    return lambda box, i: box._replace(address=box.address + by)


def _generator(
    edits: Callable[[Box], Iterator[Edit]],
) -> Callable[[RecordedKernel], Iterator[Variant]]:
    """A mistake with all copies of a map, and with one of them."""

    def variants(kernel: RecordedKernel) -> Iterator[Variant]:
        boxes = kernel.copies.boxes if kernel.copies else ()
        of_map: dict[TensorMap, list[int]] = {}
        for i, box in enumerate(boxes):
            of_map.setdefault(box.tensor_map, []).append(i)
        for name in kernel.aims.keys() & {"a", "b"}:
            for numbers in of_map.values():
                for text, change in edits(boxes[numbers[0]]):
                    for chosen in [numbers, *([i] for i in numbers if len(numbers) > 1)]:
                        which = "tensor copies " + ", ".join(map(str, chosen[:8]))
                        if len(chosen) == 1:
                            which = f"tensor copy {chosen[0]} at {boxes[chosen[0]].coordinates}"
                        changed = {i: (numbers.index(i), change) for i in chosen}
                        with suppress(EmulatorError):  # no such map, copy or place
                            made = _edited(kernel, changed)
                            yield Variant(name, f"{which}: {text}{_moved(kernel, made)}", made)

    return variants


def _moved(kernel: RecordedKernel, made: RecordedKernel) -> str:
    """The first coordinates that are others, in words."""
    assert kernel.copies is not None and made.copies is not None
    for old, new in zip(kernel.copies.boxes, made.copies.boxes, strict=True):
        if old.coordinates != new.coordinates:
            return f": {new.coordinates} instead of {old.coordinates}"
    return ""


def _edited(kernel: RecordedKernel, changed: Mapping[int, tuple[int, Change]]) -> RecordedKernel:
    """With some copies changed, and what they bring in shared memory.

    Raises an EmulatorError for copies that are refused, or leave memory.
    """
    assert kernel.copies is not None
    boxes = list(kernel.copies.boxes)
    for i, (number, change) in changed.items():
        boxes[i] = change(boxes[i], number)
    if boxes == list(kernel.copies.boxes):
        return kernel
    copies = kernel.copies._replace(boxes=tuple(boxes))
    return replace(_with_memory(kernel, filled(copies.before, boxes)), copies=copies)


def _with_memory(kernel: RecordedKernel, shared: Array) -> RecordedKernel:
    """With other bytes in shared memory; raises UndefinedError where addresses leave it."""
    if kernel.ins.is_wgmma:
        kernel = kernel.using(shared=shared)
    for name, rows in kernel.rows.items():
        other = rows._replace(shared=shared)
        kernel = kernel.loading(name, other, load_rows(kernel.ins.fragment(name), other))
    return kernel


#: what `finder.MISTAKES` has of tensor copies
MISTAKES = (
    Mistake("coordinates of a tensor copy", "Coordinates are elements of the tensor, dimension 0, "
            "the innermost, first; a box is copied from there on.", _generator(_coordinates)),
    Mistake("tensor map", "The map has the sizes and strides (in bytes) of the tensor and the box, "
            "innermost dimension first, and the swizzle of whoever reads the tile.",
            _generator(_maps)),
    Mistake("destination of a tensor copy", "Each box has its own place in shared memory, the one "
            "that descriptors or ldmatrix lead to.", _generator(_destinations)),
)  # fmt: skip
