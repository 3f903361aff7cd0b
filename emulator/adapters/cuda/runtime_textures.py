"""The CUDA runtime's arrays, copies to and from them, and texture and surface objects."""

from __future__ import annotations

import ctypes
import struct
from typing import NamedTuple

from emulator.adapters.cuda.calls import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    CudaError,
    get,
    handles,
    put,
    runtime,
)
from emulator.adapters.cuda.driver import arrays, memory, textures
from emulator.adapters.cuda.driver.arrays import CudaArray, Shape, Side, side_of_array

_SIGNED, _UNSIGNED, _FLOAT = range(3)
#: cudaChannelFormatKind and bits of a channel -> CUarray_format
_FORMATS = {
    (_UNSIGNED, 8): 0x01, (_UNSIGNED, 16): 0x02, (_UNSIGNED, 32): 0x03, (_SIGNED, 8): 0x08,
    (_SIGNED, 16): 0x09, (_SIGNED, 32): 0x0A, (_FLOAT, 16): 0x10, (_FLOAT, 32): 0x20,
}  # fmt: skip
_KINDS = {code: kind for kind, code in _FORMATS.items()}
#: cudaMemcpyKind
_TO_DEVICE, _FROM_DEVICE, _ON_DEVICE = 1, 2, 3
#: bytes of a cudaResourceDesc and of a cudaTextureDesc
_RESOURCE_BYTES, _TEXTURE_BYTES = 136, 72


# --- arrays ---------------------------------------------------------------------------------------


class Channels(NamedTuple):
    """A format as the driver names it."""

    format: int
    number: int


def channels_at(what: int) -> Channels:
    """The format that a cudaChannelFormatDesc describes. Raises CudaError for one that an array
    cannot have, or that is not modelled."""
    *bits, kind = get(what, "iiiii")
    given = [n for n in bits if n]
    if (kind, bits[0]) not in _FORMATS:
        raise CudaError(NOT_SUPPORTED)
    if len(set(given)) > 1 or bits[: len(given)] != given:
        raise CudaError(INVALID_VALUE)
    return Channels(_FORMATS[kind, bits[0]], len(given))


def _put_channels(out: int, shape: Shape) -> None:
    kind, bits = _KINDS[shape.format]
    put(out, "iiiii", *[bits * (i < shape.channels) for i in range(4)], kind)


@runtime("cudaCreateChannelDesc")
def create_channels(out: int, x: int, y: int, z: int, w: int, kind: int) -> int:
    """Returns a structure: the caller says where, and is told so."""
    put(out, "iiiiI", x, y, z, w, kind)
    return out


@runtime("cudaMallocArray")
def allocate_array(out: int, what: int, width: int, height: int, flags: int) -> None:
    arrays.create(out, Shape(width, height, 0, *channels_at(what), flags))


@runtime("cudaMalloc3DArray")
def allocate_3d_array(out: int, what: int, width: int, height: int, depth: int, flags: int) -> None:
    arrays.create(out, Shape(width, height, depth, *channels_at(what), flags))


@runtime("cudaMallocMipmappedArray")
def allocate_mipmaps(
    out: int, what: int, width: int, height: int, depth: int, levels: int, flags: int
) -> None:
    arrays.create_mipmaps(out, Shape(width, height, depth, *channels_at(what), flags), levels)


@runtime("cudaGetChannelDesc")
def channel_description(out: int, array: int) -> None:
    _put_channels(out, handles.find(array, CudaArray).shape)


@runtime("cudaArrayGetInfo")
def array_info(description: int, extent: int, flags: int, array: int) -> None:
    shape = handles.find(array, CudaArray).shape
    if description:
        _put_channels(description, shape)
    put(extent, "QQQ", shape.width, shape.height, shape.depth)
    put(flags, "I", shape.flags)


# --- copies ---------------------------------------------------------------------------------------


def _copy(to: Side, source: Side, width: int, height: int, kind: int, stream: int) -> None:
    box = memory.Box.between(
        to,
        source,
        width,
        height,
        1,
        kind in (_TO_DEVICE, _ON_DEVICE),
        kind in (_FROM_DEVICE, _ON_DEVICE),
    )
    memory.submit_copy(box, stream)


@runtime("cudaMemcpyToArray", "cudaMemcpyToArrayAsync")
def copy_to_array(
    array: int, x: int, y: int, source: int, size: int, kind: int, stream: int = 0
) -> None:
    _copy(side_of_array(array, x, y), Side(source, 0, 0), size, 1, kind, stream)


@runtime("cudaMemcpyFromArray", "cudaMemcpyFromArrayAsync")
def copy_from_array(
    to: int, array: int, x: int, y: int, size: int, kind: int, stream: int = 0
) -> None:
    _copy(Side(to, 0, 0), side_of_array(array, x, y), size, 1, kind, stream)


@runtime("cudaMemcpyArrayToArray")
def copy_array_to_array(
    array: int, x: int, y: int, source: int, from_x: int, from_y: int, size: int, kind: int
) -> None:
    _copy(side_of_array(array, x, y), side_of_array(source, from_x, from_y), size, 1, kind, 0)


@runtime("cudaMemcpy2DToArray", "cudaMemcpy2DToArrayAsync")
def copy_2d_to_array(
    array: int,
    x: int,
    y: int,
    source: int,
    pitch: int,
    width: int,
    height: int,
    kind: int,
    stream: int = 0,
) -> None:
    _copy(side_of_array(array, x, y), Side(source, pitch, 0), width, height, kind, stream)


@runtime("cudaMemcpy2DFromArray", "cudaMemcpy2DFromArrayAsync")
def copy_2d_from_array(
    to: int,
    pitch: int,
    array: int,
    x: int,
    y: int,
    width: int,
    height: int,
    kind: int,
    stream: int = 0,
) -> None:
    _copy(Side(to, pitch, 0), side_of_array(array, x, y), width, height, kind, stream)


@runtime("cudaMemcpy2DArrayToArray")
def copy_2d_array_to_array(
    array: int,
    x: int,
    y: int,
    source: int,
    from_x: int,
    from_y: int,
    width: int,
    height: int,
    kind: int,
) -> None:
    to, found = side_of_array(array, x, y), side_of_array(source, from_x, from_y)
    _copy(to, found, width, height, kind, 0)


def box_at(what: int) -> memory.Box:
    """The copy that a cudaMemcpy3DParms describes: of an array its place counts texels, and so does
    the width where there is one."""
    (
        source_array,
        *source,
        source_pitch,
        _,
        source_rows,
        to_array,
        to_x,
        to_y,
        to_z,
        to,
        to_pitch,
        _,
        to_rows,
        width,
        height,
        depth,
        kind,
    ) = get(what, "QQQQQQQQQQQQQQQQQQQI")
    x, y, z, address = source
    size = max(_texel(source_array), _texel(to_array), 1)
    return memory.Box.between(
        _side(to_array, to, to_pitch, to_rows, (to_x, to_y, to_z)),
        _side(source_array, address, source_pitch, source_rows, (x, y, z)),
        width * size,
        height,
        depth,
        kind in (_TO_DEVICE, _ON_DEVICE),
        kind in (_FROM_DEVICE, _ON_DEVICE),
    )


def _texel(array: int) -> int:
    """Bytes of an array's texel; 0: there is no array."""
    return handles.find(array, CudaArray).texels.texel if array else 0


def _side(array: int, address: int, pitch: int, rows: int, place: tuple[int, int, int]) -> Side:
    x, y, z = place
    if array:
        return side_of_array(array, x * _texel(array), y, z)
    return Side(address + (z * rows + y) * pitch + x, pitch, rows * pitch)


# --- texture and surface objects ------------------------------------------------------------------


def _driver_resource(what: int) -> bytes:
    """A cudaResourceDesc as a CUDA_RESOURCE_DESC."""
    (kind,) = get(what, "I")
    raw = bytearray(ctypes.string_at(what, _RESOURCE_BYTES).ljust(textures.RESOURCE_BYTES, b"\0"))
    if kind in (textures.LINEAR, textures.PITCHED):
        format_, count = channels_at(what + 16)
        sizes = raw[40:64]
        raw[16:] = struct.pack("<II24s", format_, count, sizes).ljust(len(raw) - 16, b"\0")
    return bytes(raw)


def _driver_texture(raw: bytes) -> bytes:
    """A cudaTextureDesc as a CUDA_TEXTURE_DESC."""
    words = struct.unpack("<18I", raw)
    mode, srgb, border, unit = words[4], words[5], words[6:10], words[10]
    anisotropy, *mipmaps = words[11:16]
    flags = textures.READ_AS_INTEGER * (mode == 0) | textures.UNIT_COORDINATES * bool(unit)
    flags |= textures.SRGB * bool(srgb) | textures.NOT_TRILINEAR * bool(words[16])
    flags |= textures.SEAMLESS * bool(words[17])
    packed = struct.pack("<4I2I4I4I", *words[:4], flags, anisotropy, *mipmaps, *border)
    return packed.ljust(textures.TEXTURE_BYTES, b"\0")


#: the descriptors of objects, as their programs gave them
_given: dict[int, tuple[bytes, bytes]] = {}


@runtime("cudaCreateTextureObject")
def create_texture(out: int, resource: int, what: int, view: int) -> None:
    if view:
        raise CudaError(NOT_SUPPORTED)
    held = ctypes.create_string_buffer(_driver_resource(resource))
    texture = ctypes.string_at(what, _TEXTURE_BYTES)
    found = textures.resource_at(ctypes.addressof(held))
    textures.create_texture(out, found, _driver_texture(texture))
    _given[get(out, "Q")[0]] = ctypes.string_at(resource, _RESOURCE_BYTES), texture


@runtime("cudaCreateSurfaceObject")
def create_surface(out: int, resource: int) -> None:
    held = ctypes.create_string_buffer(_driver_resource(resource))
    textures.surface_create(out, ctypes.addressof(held))
    _given[get(out, "Q")[0]] = ctypes.string_at(resource, _RESOURCE_BYTES), b""


@runtime("cudaGetTextureObjectResourceDesc", "cudaGetSurfaceObjectResourceDesc")
def resource_description(out: int, handle: int) -> None:
    if handle not in _given:
        raise CudaError(INVALID_VALUE)
    ctypes.memmove(out, _given[handle][0], _RESOURCE_BYTES)


@runtime("cudaGetTextureObjectTextureDesc")
def texture_description(out: int, handle: int) -> None:
    textures.texture_object(handle)
    ctypes.memmove(out, _given[handle][1], _TEXTURE_BYTES)
