"""Memory: device, managed and pinned, pools, copies and fills."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from emulator.adapters.cuda.calls import (
    DRIVER,
    CudaError,
    driver,
    get,
    handles,
    present,
    put,
    refuse_if,
)
from emulator.adapters.cuda.driver.arrays import Side, side_of_array
from emulator.adapters.cuda.driver.devices import check_device, check_error, device, space
from emulator.adapters.cuda.driver.graph_memory import (
    POOL_BYTES,
    Allocate,
    Free,
    graph_memory,
    kind_of_pool,
)
from emulator.adapters.cuda.driver.nodes import Kind, Work
from emulator.adapters.cuda.driver.streams import stream_of, submit
from emulator.adapters.cuda.space import Kind as MemoryKind

#: CUmemorytype: where a rectangle of a copy lies
_HOST, _DEVICE, _ARRAY, _UNIFIED = 1, 2, 3, 4
_PITCH = 512
#: one side of a CUDA_MEMCPY3D: place, level, memory, addresses, array, pitch, rows
_SIDE = struct.Struct("<QQQQI4xQQQQQQ")


@dataclass(eq=False)
class Pool:
    """A memory pool: the CUmemPoolProps that it was made of."""

    properties: bytes

    @property
    def kind(self) -> MemoryKind:
        """The kind of its memory."""
        return kind_of_pool(self.properties)

    @property
    def is_shared(self) -> bool:
        """Whether other processes may import it."""
        return bool(struct.unpack_from("<II", self.properties)[1])


def _allocate(out: int, size: int, stream: int, pool: Pool) -> None:
    if not size:  # which cuMemAlloc refuses
        put(out, "Q", 0)
    elif stream_of(stream).capture is None:
        put(out, "Q", space().allocate(size, pool.kind))
    else:
        work = Allocate(graph_memory.block(size, pool.properties))
        submit(stream, work)
        put(out, "Q", work.block.address)


@driver("cuMemAllocPitch_v2")
def allocate_pitch(out: int, pitch: int, width: int, height: int, element: int = 4) -> None:
    row = -(-width // _PITCH) * _PITCH
    put(pitch, "Q", row)
    put(out, "Q", space().allocate(row * height, "device"))


@driver("cuMemFree_v2")
def free(address: int) -> None:
    if address in graph_memory.blocks:
        graph_memory.find(address).end()
    elif address:
        space().release(address, "device", "managed", "imported")


@driver("cuMemFreeAsync")
def free_in_stream(address: int, stream: int) -> None:
    if stream_of(stream).capture is not None:
        submit(stream, Free(address))
    elif (found := space().find(address)) is not None and found.kind == "host":
        free_host(address)  # of a pool on the host
    else:
        free(address)


@driver("cuMemFreeHost")
def free_host(address: int) -> None:
    if address:
        space().release(address, "host")


@driver("cuMemHostGetDevicePointer_v2")
def host_pointer(out: int, address: int, flags: int) -> None:
    present(space().find(address))
    put(out, "Q", address)


@driver("cuMemGetInfo_v2")
def memory_info(free_bytes: int, total: int) -> None:
    put(free_bytes, "Q", space().total - space().used)
    put(total, "Q", space().total)


@driver("cuMemGetAddressRange_v2")
def address_range(base: int, size: int, address: int) -> None:
    found = present(space().find(address))
    put(base, "Q", found.address)
    put(size, "Q", found.size)


def _attribute(attribute: int, address: int) -> tuple[str, int]:
    """The form and value of a CUpointer_attribute; raises CudaError for memory not known."""
    found = present(space().find(address))
    on_host = found.kind in ("host", "registered")
    reachable = on_host or found.kind == "managed"
    refuse_if(attribute == 4 and not reachable)
    values = {
        1: ("Q", device.primary_context()), 2: ("I", _HOST if on_host else _DEVICE),
        3: ("Q", address), 4: ("Q", address), 7: ("Q", found.address),
        8: ("I", int(found.kind == "managed")), 9: ("i", 0), 11: ("Q", found.address),
        12: ("Q", found.size), 13: ("I", 1), 6: ("I", 0), 10: ("I", 0), 14: ("I", 0), 15: ("I", 3),
        16: ("I", 0), 17: ("Q", 0), 18: ("Q", 0), 19: ("Q", 0), 20: ("I", 0), 21: ("I", 0),
    }  # fmt: skip
    refuse_if(attribute not in values)
    return values[attribute]


@driver("cuPointerGetAttributes")
def pointer_attributes(count: int, which: int, outs: int, address: int) -> None:
    # Where one is not known it is null, and no error.
    for attribute, out in zip(get(which, f"{count}I"), get(outs, f"{count}Q"), strict=True):
        try:
            put(out, *_attribute(attribute, address))
        except CudaError:
            wide = attribute in (1, 3, 4, 7, 11, 12, 17, 18, 19)
            put(out, "q" if wide else "i", -2 if attribute == 9 else 0)


# --- copies and fills -----------------------------------------------------------------------------


@dataclass
class Box(Work):
    """A copy of a box of bytes: bytes from row to row and from plane to plane, and how many of
    each."""

    kind: ClassVar[Kind] = Kind.MEMCPY
    to: int
    to_pitch: int
    to_plane: int
    source: int
    pitch: int
    plane: int
    width: int
    height: int
    depth: int = 1
    to_device: bool = False
    from_device: bool = False
    #: the CUDA_MEMCPY3D that describes it; empty if another structure did
    given: bytes = b""

    @classmethod
    def between(
        cls,
        to: Side,
        source: Side,
        width: int,
        height: int,
        depth: int = 1,
        to_device: bool = False,
        from_device: bool = False,
    ) -> Box:
        """A copy of a box from one side to the other."""
        return cls(*to, *source, width, height, depth, to_device, from_device)

    def run(self) -> None:
        """Copies it. Raises CudaError where a row reaches beyond its buffer."""
        for k in range(self.depth):
            for row in range(self.height if self.width else 0):
                to = self.to + k * self.to_plane + row * self.to_pitch
                source = self.source + k * self.plane + row * self.pitch
                held = space().host(to, self.width, device=self.to_device)
                ctypes.memmove(
                    held, space().host(source, self.width, device=self.from_device), self.width
                )

    def write(self, at: int) -> None:
        # In front of the CUDA_MEMCPY3D are flags and the context.
        put(at, "IIQ", 0, 0, device.context)
        given = self.given or _described(self)
        ctypes.memmove(at + 16, given, len(given))


def _described(box: Box) -> bytes:
    """The CUDA_MEMCPY3D of a box of bytes that is in no array."""
    kinds = [_kind_of(box.source), _kind_of(box.to)]
    sides = ((box.source, box.pitch, box.plane), (box.to, box.to_pitch, box.to_plane))
    raw = b"".join(
        _SIDE.pack(0, 0, 0, 0, kind, at, at, 0, 0, pitch, plane // pitch if pitch else 0)
        for kind, (at, pitch, plane) in zip(kinds, sides, strict=True)
    )
    return raw + struct.pack("<QQQ", box.width, box.height, box.depth)


def _kind_of(address: int) -> int:
    found = space().find(address)
    return _HOST if found is None or found.kind in ("host", "registered") else _DEVICE


def submit_copy(box: Box, stream: int = 0) -> None:
    """Copies a box in a stream."""
    check_error()
    if box.width and box.height and box.depth:
        submit(stream, box)


def copy(
    to: int,
    source: int,
    size: int,
    stream: int = 0,
    to_device: bool = False,
    of_device: bool = False,
) -> None:
    """Copies bytes between the host and the device, whichever the addresses are of."""
    submit_copy(Box(to, 0, 0, source, 0, 0, size, 1, 1, to_device, of_device), stream)


def _copy_by_word(word: str, *given: int) -> None:
    """Copies as the word in a function's name says, such as HtoA: H is an address of the host, D of
    the device, and A an array and a byte in it."""
    left = iter(given)
    places = (
        side_of_array(next(left), next(left)).address if kind == "A" else next(left)
        for kind in (word[-1], word[0])
    )
    to, source = places
    copy(to, source, next(left), next(left, 0), word[-1] != "H", word[0] != "H")


def _side(where: Sequence[int], place: Sequence[int], pitch: int, rows: int = 0) -> Side:
    """One side of a copy, from `place` on: a byte, a row and a plane. `where` says its kind, its
    addresses on the host and on the device, and its array."""
    kind, host, on_device, array = where
    x, y, z = place
    if kind == _ARRAY:
        return side_of_array(array, x, y, z)
    base, plane = host if kind == _HOST else on_device, pitch * rows
    return Side(base + z * plane + y * pitch + x, pitch, plane)


def _rectangle_at(what: int) -> Box:
    """The copy that a CUDA_MEMCPY2D describes."""
    words = get(what, "QQI4xQQQQQQI4xQQQQQQ")
    sides = [_side(words[i + 2 : i + 6], (*words[i : i + 2], 0), words[i + 6]) for i in (0, 7)]
    return Box.between(sides[1], sides[0], *words[14:])


def box_at(what: int) -> Box:
    """The copy that a CUDA_MEMCPY3D describes."""
    sides = []
    for at in (what, what + _SIDE.size):
        x, y, z, _, *where, _, pitch, rows = get(at, "QQQQI4xQQQQQQ")
        sides.append(_side(where, (x, y, z), pitch, rows))
    box = Box.between(sides[1], sides[0], *get(what + 2 * _SIDE.size, "QQQ"))
    box.given = ctypes.string_at(what, 2 * _SIDE.size + 24)
    return box


def fill(
    dtype: Any, to: int, pitch: int, value: int, width: int, height: int, stream: int = 0
) -> None:
    """Writes one value to each element of a rectangle."""
    check_error()
    if width and height:
        submit(stream, Fill(to, pitch, value, width, height, dtype))


def fill_line(dtype: Any, to: int, value: int, count: int, stream: int = 0) -> None:
    """Writes one value again and again."""
    fill(dtype, to, 0, value, count, 1, stream)


@dataclass
class Fill(Work):
    """The fill of a rectangle with one value."""

    kind: ClassVar[Kind] = Kind.MEMSET
    to: int
    pitch: int
    value: int
    width: int
    height: int
    dtype: Any

    def __post_init__(self) -> None:
        refuse_if(self.to % self.size)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return int(np.dtype(self.dtype).itemsize)

    def run(self) -> None:
        for row in range(self.height):
            to = self.to + row * self.pitch
            space().bytes_at(to, self.width * self.size).view(self.dtype)[:] = self.value

    def write(self, at: int) -> None:
        put(at, "QQIIQQ", self.to, self.pitch, self.value, self.size, self.width, self.height)


# --- pools ----------------------------------------------------------------------------------------

#: the kinds of memory that have a default pool, as the start of a CUmemPoolProps
_DEFAULTS: dict[MemoryKind, tuple[int, int, int, int]] = {
    "device": (1, 0, 1, 0), "host": (1, 0, 2, 0), "managed": (2, 0, 1, 0),
}  # fmt: skip


@cache
def _default_pool(kind: MemoryKind) -> int:
    properties = struct.pack("<IIII", *_DEFAULTS[kind]).ljust(POOL_BYTES, b"\0")
    return handles.add(Pool(properties))


@driver("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool")
def device_pool(out: int, number: int) -> None:
    check_device(number)
    put(out, "Q", _default_pool("device"))


@driver("cuMemGetDefaultMemPool", "cuMemGetMemPool")
def default_pool(out: int, location: int, kind: int) -> None:
    place = get(location, "II")
    put(out, "Q", _default_pool(kind_of_pool(struct.pack("<IIII", kind, 0, *place))))


@driver("cuMemPoolCreate")
def pool_create(out: int, properties: int) -> None:
    refuse_if(not properties)
    put(out, "Q", handles.add(Pool(ctypes.string_at(properties, POOL_BYTES))))


@driver("cuMemPoolGetAttribute")
def pool_attribute(pool: int, attribute: int, out: int) -> None:
    # Those from 4 on are sizes of 64 bits; switches come before.
    handles.find(pool, Pool)
    put(out, *(("Q", 0) if attribute >= 4 else ("i", 1)))


DRIVER |= {
    "cuMemAlloc_v2": lambda out, size: put(out, "Q", space().allocate(size, "device")),
    "cuMemAllocAsync": lambda out, size, stream: _allocate(
        out, size, stream, handles.find(_default_pool("device"), Pool)
    ),
    "cuMemAllocFromPoolAsync": lambda out, size, pool, stream: _allocate(
        out, size, stream, handles.find(pool, Pool)
    ),
    "cuMemAllocManaged": lambda out, size, flags: put(out, "Q", space().allocate(size, "managed")),
    "cuMemHostAlloc": lambda out, size, flags: put(out, "Q", space().allocate(size, "host")),
    "cuMemHostRegister_v2": lambda address, size, flags: space().register(address, size),
    "cuMemHostUnregister": lambda address: space().release(address, "registered"),
    "cuMemHostGetFlags": lambda out, address: put(out, "I", 2),
    "cuPointerGetAttribute": lambda out, which, address: put(out, *_attribute(which, address)),
    "cuMemPoolDestroy": lambda pool: handles.end(pool, Pool),
    "cuMemPoolGetAccess": lambda out, pool, location: put(out, "I", 3),
}
for _word in ("HtoD", "DtoH", "DtoD", "HtoA", "AtoH", "DtoA", "AtoD", "AtoA"):
    driver(f"cuMemcpy{_word}_v2")(partial(_copy_by_word, _word))
    if _word not in ("DtoA", "AtoD", "AtoA"):
        driver(f"cuMemcpy{_word}Async_v2")(partial(_copy_by_word, _word))
driver("cuMemcpy", "cuMemcpyAsync")(copy)
for _bits, _dtype in ((8, np.uint8), (16, np.uint16), (32, np.uint32)):
    driver(f"cuMemsetD{_bits}_v2", f"cuMemsetD{_bits}Async")(partial(fill_line, _dtype))
    driver(f"cuMemsetD2D{_bits}_v2", f"cuMemsetD2D{_bits}Async")(partial(fill, _dtype))
for _ending in ("", "Async"):
    driver(f"cuMemcpy3D{_ending}_v2")(lambda what, stream=0: submit_copy(box_at(what), stream))
    driver(f"cuMemcpy2D{_ending}_v2", "cuMemcpy2DUnaligned_v2")(
        lambda what, stream=0: submit_copy(_rectangle_at(what), stream)
    )
