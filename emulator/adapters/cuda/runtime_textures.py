"""The CUDA runtime's arrays, copies to and from them, and texture and surface objects."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from emulator.adapters.cuda.calls import RUNTIME, Code, get, handles, put, refuse_if, runtime
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
    refuse_if((kind, bits[0]) not in _FORMATS, Code.NOT_SUPPORTED)
    refuse_if(len(set(given)) > 1 or bits[: len(given)] != given)
    return Channels(_FORMATS[kind, bits[0]], len(given))


def _put_channels(out: int, shape: Shape) -> None:
    kind, bits = _KINDS[shape.format]
    put(out, "iiiii", *[bits * (i < shape.channels) for i in range(4)], kind)


@runtime("cudaCreateChannelDesc")
def create_channels(out: int, x: int, y: int, z: int, w: int, kind: int) -> int:
    """Returns a structure: the caller says where, and is told so."""
    put(out, "iiiiI", x, y, z, w, kind)
    return out


@runtime("cudaArrayGetInfo")
def array_info(description: int, extent: int, flags: int, array: int) -> None:
    shape = handles.find(array, CudaArray).shape
    if description:
        _put_channels(description, shape)
    put(extent, "QQQ", shape.width, shape.height, shape.depth)
    put(flags, "I", shape.flags)


# --- copies ---------------------------------------------------------------------------------------


def ends_of(kind: int) -> tuple[bool, bool]:
    """Whether a copy of a cudaMemcpyKind goes to the device, and comes from it."""
    return kind in (_TO_DEVICE, _ON_DEVICE), kind in (_FROM_DEVICE, _ON_DEVICE)


def _copy(to: Side, source: Side, width: int, height: int, kind: int, stream: int) -> None:
    memory.submit_copy(memory.Box.between(to, source, width, height, 1, *ends_of(kind)), stream)


def box_at(what: int) -> memory.Box:
    """The copy that a cudaMemcpy3DParms describes: of an array its place counts texels, and so does
    the width where there is one."""
    source_array, *source, source_pitch, _, source_rows = get(what, "8Q")
    to_array, *to, to_pitch, _, to_rows = get(what + 64, "8Q")
    width, height, depth, kind = get(what + 128, "QQQI")
    return memory.Box.between(
        _side(to_array, to, to_pitch, to_rows),
        _side(source_array, source, source_pitch, source_rows),
        width * max(_texel(source_array), _texel(to_array), 1),
        height,
        depth,
        *ends_of(kind),
    )


def _texel(array: int) -> int:
    """Bytes of an array's texel; 0: there is no array."""
    return handles.find(array, CudaArray).texels.texel if array else 0


def _side(array: int, place: Sequence[int], pitch: int, rows: int) -> Side:
    x, y, z, address = place
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
    refuse_if(view, Code.NOT_SUPPORTED)
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
    refuse_if(handle not in _given)
    ctypes.memmove(out, _given[handle][0], _RESOURCE_BYTES)


@runtime("cudaGetTextureObjectTextureDesc")
def texture_description(out: int, handle: int) -> None:
    textures.texture_object(handle)
    ctypes.memmove(out, _given[handle][1], _TEXTURE_BYTES)


def _copy_by_word(word: str, rows: bool, *given: int) -> None:
    """Copies as the word in a function's name says: ToArray, FromArray or ArrayToArray. An array
    comes with a byte and a row; a side out of one has a pitch where `rows` are copied."""
    left = iter(given)

    def side(in_array: bool) -> Side:
        if in_array:
            return side_of_array(next(left), next(left), next(left))
        return Side(next(left), next(left) if rows else 0, 0)

    to, source = side(word != "FromArray"), side(word != "ToArray")
    _copy(to, source, next(left), next(left) if rows else 1, next(left), next(left, 0))


RUNTIME |= {
    "cudaGetChannelDesc": lambda out, array: _put_channels(
        out, handles.find(array, CudaArray).shape
    ),
    "cudaMallocArray": lambda out, what, width, height, flags: arrays.create(
        out, Shape(width, height, 0, *channels_at(what), flags)
    ),
    "cudaMalloc3DArray": lambda out, what, width, height, depth, flags: arrays.create(
        out, Shape(width, height, depth, *channels_at(what), flags)
    ),
    "cudaMallocMipmappedArray": lambda out, what, width, height, depth, levels, flags: (
        arrays.create_mipmaps(out, Shape(width, height, depth, *channels_at(what), flags), levels)
    ),
}
for _word in ("ToArray", "FromArray", "ArrayToArray"):
    for _ending in ("", "Async") if _word != "ArrayToArray" else ("",):
        runtime(f"cudaMemcpy{_word}{_ending}")(partial(_copy_by_word, _word, False))
        runtime(f"cudaMemcpy2D{_word}{_ending}")(partial(_copy_by_word, _word, True))
