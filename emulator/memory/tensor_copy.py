"""Bytes that tensor copies move: ``cp.async.bulk.tensor`` and ``cp.reduce.async.bulk.tensor``.

A copy moves *rows*: elements of dimension 0 that lie side by side in global memory and, cut into
16-byte runs that the swizzle permutes, in shared memory. A `BoxPlan` holds all that follows from
the map and the mode; the coordinates then place it. `tensor_copy_reference` says the same one
element at a time. PTX ISA 5.5.3 to 5.5.7, 9.7.9.27.1; what the manual leaves open was measured on
an H200.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from emulator.errors import OperandError, UnsupportedError, hint, listing, quoted
from emulator.memory.tensor_map import TensorMap

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

#: bytes that a swizzle keeps together, and that a row is a multiple of
RUN = 16
#: a swizzle permutes the runs within 1024 bytes at most
PERIOD = 1024
#: a destination or source in shared memory is aligned to so many bytes
SHARED_ALIGNMENT = 128
#: no box is larger: shared memory of a CTA ends before
MAX_BYTES = 1 << 18
#: swizzle -> how many bits of the number of a run are flipped, by as many bits from bit 7 up
SWIZZLE_BITS = {"none": 0, "32B": 1, "64B": 2, "128B": 3}


class Mode(NamedTuple):
    """One way to say which rows a copy moves."""

    #: mode of the maps that it goes with
    map_mode: str
    #: coordinates beside that of dimension 0; None: as many as the map has dimensions more
    coordinates: int | None = None
    #: the instruction has an offset for each spatial dimension
    offsets: bool = False


MODES = {
    "tile": Mode("tiled"),
    "tile::gather4": Mode("tiled", 4),
    "tile::scatter4": Mode("tiled", 4),
    "im2col": Mode("im2col", offsets=True),
    "im2col_no_offs": Mode("im2col"),
}
#: sm_100 and later; which bytes the driver writes for such maps is not known
_NOT_MODELLED = ("im2col::w", "im2col::w::128")


class Geometry(NamedTuple):
    """A tensor as its copies see it: an interleaved one has a dimension more, in front.

    The elements of a slice of 16 or 32 bytes are dimension 0 then; the dimensions of the map follow
    as they are: width, [height, [depth,]] slices, images. Measured on an H200.
    """

    #: innermost first, as all of these
    dims: tuple[int, ...]
    #: bytes, of the dimensions from 1 on
    strides: tuple[int, ...]
    #: elements of a row of a copy
    row_elements: int
    #: sizes of a tiled copy, and its steps, in the dimensions from 1 on
    box: tuple[int, ...]
    steps: tuple[int, ...]

    @staticmethod
    def of(m: TensorMap) -> Geometry:
        """The tensor of a map."""
        if not (unit := m.slice_bytes):
            row = m.row_bytes // m.element_type.bytes
            return Geometry(m.dims, m.strides, row, m.box[1:], m.element_strides[1:])
        elements = unit // m.element_type.bytes
        # A copy takes one slice, whatever the box says.
        box = (*m.box[:-2], 1, *m.box[-1:]) if m.box else ()
        dims, strides = (elements, *m.dims), (unit, *m.strides)
        return Geometry(dims, strides, elements, box, m.element_strides)


class PlacedCopy(NamedTuple):
    """Tensor copies of one plan, placed: where their rows lie in global memory.

    Leading axes, here ``…``, are those of the coordinates: none for one copy.
    """

    plan: BoxPlan
    #: ``(…, rows)``: address of the first element of each row; 0 for rows outside of the tensor
    row_address: Int64
    #: ``(…, rows)``: whether the row lies inside of the tensor in all dimensions but the first
    row_inside: Bool
    #: ``(…)``: the elements ``first <= i < last`` of a row lie inside in dimension 0
    first: Int64
    last: Int64

    @property
    def whole(self) -> bool:
        """True if nothing lies outside the tensor."""
        full = (self.first == 0) & (self.last == self.plan.row_elements)
        return bool(full.all() and self.row_inside.all())

    @property
    def element_inside(self) -> Bool:
        """``(…, rows, elements)``: whether an element lies inside of the tensor."""
        index = np.arange(self.plan.row_elements)
        columns = (index >= self.first[..., None]) & (index < self.last[..., None])
        return self.row_inside[..., None] & columns[..., None, :]

    @property
    def behind(self) -> PlacedCopy:
        """Bytes that a store writes besides: the rest of the last 16 bytes of a row that it enters.

        So up to 15 bytes behind the tensor are written in dimension 0. Measured on an H200.
        """
        elements = RUN // self.plan.element_bytes
        return self._replace(first=self.last, last=-(-self.last // elements) * elements)

    def pieces(self) -> list[tuple[Bool, Int64, slice]]:
        """The part inside the tensor, as pieces of rows of equal length.

        Each is the mask ``(…, rows)`` of its rows, the address of the first byte of each (in the
        order of the mask), and which bytes of a row it is.
        """
        out, size = [], self.plan.element_bytes
        spans = {(int(i), int(j)) for i, j in zip(self.first.flat, self.last.flat, strict=True)}
        for first, last in sorted(spans):
            mask = self.row_inside
            if len(spans) > 1:
                mask = mask & ((self.first == first) & (self.last == last))[..., None]
            if first < last and mask.any():
                addresses = self.row_address[mask] + first * size
                out.append((mask, addresses, slice(first * size, last * size)))
        return out


@dataclass(frozen=True, eq=False)
class BoxPlan:
    """Facts that all copies of one map in one mode share."""

    tensor_map: TensorMap
    mode: str
    #: number of rows
    rows: int
    geometry: Geometry
    #: ``(rank - 1, rows)``: position of each row in the dimensions from 1 on, counted from the
    #: coordinates; None where it depends on them in another way
    positions: Int64 | None = None

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return self.tensor_map.element_type.bytes

    @property
    def row_elements(self) -> int:
        """Elements of one row."""
        return self.geometry.row_elements

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, a multiple of 16."""
        return self.row_elements * self.element_bytes

    @property
    def row_pitch(self) -> int:
        """Bytes from one row to the next in shared memory.

        Rows narrower than the swizzle take as much room as it permutes; slices of an interleaved
        tensor lie without gaps. Measured on an H200.
        """
        m = self.tensor_map
        if m.slice_bytes or m.swizzle == "none":
            return self.row_bytes
        return max(self.row_bytes, RUN << SWIZZLE_BITS[m.swizzle])

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory from the first to the last that a copy may touch."""
        return (self.rows - 1) * self.row_pitch + max(
            self.row_bytes, min(self.row_pitch, RUN << SWIZZLE_BITS[self.tensor_map.swizzle])
        )

    @property
    def bytes(self) -> int:
        """Bytes that a load counts towards its mbarrier, those outside of the tensor included."""
        return self.rows * self.row_bytes

    def at(self, address: int, coordinates: object, offsets: object = ()) -> PlacedCopy:
        """The copies that begin at `coordinates` of a tensor at `address`.

        `coordinates` are 32-bit registers ``(…, n)``, taken as signed, in the order of the
        instruction, which begins with dimension 0; `offsets` are those of im2col
        ``(…, rank - 2)``, width first. Raises OperandError for a wrong number of them.
        """
        m, mode = self.tensor_map, MODES[self.mode]
        wanted = 1 + (m.rank - 1 if mode.coordinates is None else mode.coordinates)
        signed = _integers("coordinates", coordinates, wanted, self.mode).astype(np.int32)
        start = signed.astype(np.int64)
        shift = _integers("im2col offsets", offsets, mode.offsets * (m.rank - 2), self.mode)
        if m.slice_bytes:
            start = np.concatenate([np.zeros_like(start[..., :1]), start], -1)
        size, sizes, strides = self.element_bytes, self.sizes, self.strides
        origin = start[..., 0] * size + _wrapped(address)
        first = np.minimum(np.maximum(-start[..., 0], 0), self.row_elements)
        inside_row = np.minimum(self.geometry.dims[0] - start[..., 0], self.row_elements)
        last = np.maximum(inside_row, first)

        corner = start[..., 1:]
        if self.positions is not None and ((corner >= 0) & (corner < self.last_inside)).all():
            rows = (origin + corner @ strides)[..., None] + self.row_offsets
            return PlacedCopy(self, rows, np.broadcast_to(np.True_, rows.shape), first, last)
        if self.positions is not None:
            place = corner[..., None] + self.positions
        elif mode.map_mode == "im2col":
            place = im2col_positions(self, start, shift)
        else:
            place = corner[..., None, :]
        inside = np.asarray(((place >= 0) & (place < sizes[:, None])).all(-2))
        rows = origin[..., None] + (place * strides[:, None]).sum(-2)
        return PlacedCopy(self, np.where(inside, rows, 0), inside, first, last)

    @cached_property
    def sizes(self) -> Int64:
        """``(rank - 1,)``: sizes of the tensor in the dimensions from 1 on."""
        return np.array(self.geometry.dims[1:], np.int64)

    @cached_property
    def strides(self) -> Int64:
        """``(rank - 1,)``: bytes between neighbours in the dimensions from 1 on."""
        return np.array(self.geometry.strides, np.int64)

    @cached_property
    def last_inside(self) -> Int64:
        """``(rank - 1,)``: from these coordinates on, the last row lies outside of the tensor."""
        assert self.positions is not None
        return self.sizes - self.positions.max(-1)

    @cached_property
    def row_offsets(self) -> Int64:
        """``(rows,)``: bytes from the first row to each in global memory."""
        assert self.positions is not None
        return self.strides @ self.positions

    def run_addresses(self, address: int) -> Int64:
        """``(rows, runs of 16 bytes)``: where the runs of a box at a shared `address` lie.

        The swizzle goes by bits of the address itself, not of the offset in the box.
        """
        base = address % PERIOD
        return _swizzled_runs(self, base) + (address - base)


def _wrapped(address: int) -> int:
    """An address as a signed number: sums of addresses are modulo 2**64."""
    return address - (address >> 63 << 64)


def _integers(what: str, given: object, count: int, mode: str) -> Int64:
    values = np.asarray(given)
    if values.shape[-1:] != (count,) or (count and values.dtype.kind not in "iu"):
        raise OperandError(
            f"a tensor copy in mode {mode} takes {count} {what}; got {values.dtype} {values.shape}"
        )
    return values.astype(np.int64)


def plan(tensor_map: TensorMap, mode: str = "tile") -> BoxPlan:
    """The plan of copies with a map in one of `MODES`, kept for the next call.

    Raises OperandError where map and mode do not go together, UnsupportedError for what is legal
    but not modelled: ``im2col::w``.
    """
    return _plan(tensor_map.placeless, mode)


@lru_cache(maxsize=1024)
def _plan(m: TensorMap, mode: str) -> BoxPlan:
    if mode in _NOT_MODELLED:
        raise UnsupportedError(f"tensor copies in mode {mode} are legal PTX, not modelled here")
    if mode not in MODES:
        raise OperandError(
            f"no mode {quoted(mode)} of tensor copies{hint(mode, MODES)}; modes are "
            f"{listing([*MODES, *_NOT_MODELLED])}"
        )
    if m.mode != MODES[mode].map_mode:
        raise OperandError(
            f"a tensor copy in mode {mode} needs a map in {MODES[mode].map_mode} mode; {m!r:.200}"
        )
    geometry = Geometry.of(m)
    steps = [-(-size // s) for size, s in zip(geometry.box, geometry.steps, strict=False)]
    row_bytes = geometry.row_elements * m.element_type.bytes
    if (m.pixels or prod(steps)) * row_bytes > MAX_BYTES:
        raise OperandError(
            f"a box of more than {MAX_BYTES} bytes fits no shared memory; {m!r:.200}"
        )
    if m.mode == "im2col":
        return BoxPlan(m, mode, m.pixels, geometry)
    if mode == "tile":
        grid = np.indices(steps[::-1], np.int64).reshape(len(steps), prod(steps))[::-1]
        thin = np.array(geometry.steps, np.int64)[:, None]
        return BoxPlan(m, mode, grid.shape[1], geometry, grid * thin)
    if m.rank != 2 or m.box[1] != 1:
        raise OperandError(
            f"a tensor copy in mode {mode} needs a map of rank 2 with a box of one row; {m!r:.200}"
        )
    return BoxPlan(m, mode, 4, geometry)


def place_problem(p: BoxPlan, coordinates: object, stores: bool) -> str:
    """The reason why a copy may not begin at coordinates; "" where it may.

    An H200 answers each of these with "illegal instruction". What holds for stores and reductions
    alone is in the manual, too: PTX ISA 9.7.9.27.1.1.
    """
    m, start = p.tensor_map, np.asarray(coordinates).astype(np.int32).astype(np.int64)
    if not m.slice_bytes and (start[..., 0] * p.element_bytes % RUN).any():
        return (
            f"coordinate {int(start[..., 0].flat[0])} of dimension 0: a copy starts at a multiple "
            f"of {RUN} bytes, {RUN // p.element_bytes} elements"
        )
    for k, (low, high) in enumerate(zip(m.lower, m.upper, strict=True), not m.slice_bytes):
        last = m.dims[k] - 1 + high
        if ((start[..., k] < low) | (start[..., k] > last)).any():
            return (
                f"coordinate {int(start[..., k].flat[0])} of dimension {k}: a copy through im2col "
                f"starts between the corners, at {low} to {last}"
            )
    if not stores:
        return ""
    if (start < 0).any():
        return "a store to a tensor starts at coordinates that are not negative"
    if any(low < 0 for low in m.lower) or any(high > 0 for high in m.upper):
        return "a store through im2col needs a box within the tensor: lower >= 0, upper <= 0"
    return ""


def im2col_positions(p: BoxPlan, start: Int64, shift: Int64) -> Int64:
    """``(…, rank - 1, pixels)``: where the pixels of im2col copies lie, images last.

    The pixels walk through the box of filter positions, width first, from the coordinates on: past
    the upper corner of a dimension they go on at its lower one and one step further in the next.
    `shift`, the position within the filter, is added to each. PTX ISA 5.5.4; that images have an
    element stride, too, was measured on an H200.
    """
    m, g = p.tensor_map, p.geometry
    index = np.broadcast_to(np.arange(m.pixels), (*start.shape[:-1], m.pixels))
    place = []
    walked = len(m.lower)
    steps = m.element_strides[:walked] if m.slice_bytes else m.element_strides[1 : walked + 1]
    for k, step in enumerate(steps, 1):
        here = start[..., k, None]
        low, high = m.lower[k - 1], g.dims[k] - 1 + m.upper[k - 1]
        # Steps before the walk leaves the box for the first time, and from then on.
        fresh = np.maximum((high - here) // step + 1, 1)
        round_trip = max((high - low) // step + 1, 1)
        later = index - fresh
        place.append(np.where(later < 0, here + index * step, low + later % round_trip * step))
        index = np.where(later < 0, 0, 1 + later // round_trip)
    if m.slice_bytes:
        place.append(np.broadcast_to(start[..., -2:-1], index.shape))
    place.append(start[..., -1:] + index * m.element_strides[-1])
    out = np.stack(place, -2)
    if shift.shape[-1]:
        out[..., :walked, :] += shift[..., None]
    return out


# --- shared memory ---


Number = TypeVar("Number", int, Int64)


def swizzled(address: Number, swizzle: str) -> Number:
    """The swizzled place of the byte at a shared address: an integer or an array.

    The number of a 16-byte run within the width of the swizzle is flipped by that of its 128-byte
    line. PTX ISA 5.5.7.
    """
    bits = SWIZZLE_BITS[swizzle]
    return address ^ (address >> 7 & (1 << bits) - 1) << 4


@lru_cache(maxsize=256)
def _swizzled_runs(p: BoxPlan, base: int) -> Int64:
    rows = base + p.row_pitch * np.arange(p.rows, dtype=np.int64)
    runs = rows[:, None] + RUN * np.arange(p.row_bytes // RUN, dtype=np.int64)
    out: Int64 = swizzled(runs, p.tensor_map.swizzle)
    out.flags.writeable = False
    return out
