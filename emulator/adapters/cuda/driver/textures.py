"""Texture and surface objects: how kernels read and write arrays and linear memory."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, cast

import numpy as np

from dtypes import Array
from emulator.adapters.cuda.calls import (
    DRIVER,
    Code,
    CudaError,
    driver,
    get,
    handles,
    present,
    put,
    refuse_if,
)
from emulator.adapters.cuda.driver.arrays import FACES, FORMATS, CudaArray, Mipmaps, Shape
from emulator.adapters.cuda.driver.devices import space
from emulator.adapters.cuda.driver.modules import complain
from emulator.errors import EmulatorError, UnsupportedError
from emulator.memory.texture import Texture

#: CUresourcetype
ARRAY, MIPMAPPED, LINEAR, PITCHED = range(4)
#: bytes of a CUDA_RESOURCE_DESC and of a CUDA_TEXTURE_DESC, with what is reserved there
RESOURCE_BYTES, TEXTURE_BYTES = 144, 104
#: CUaddress_mode, CUfilter_mode
_ADDRESSES: tuple[Literal["wrap", "clamp", "mirror", "border"], ...] = (
    "wrap", "clamp", "mirror", "border",
)  # fmt: skip
_FILTERS: tuple[Literal["point", "linear"], ...] = ("point", "linear")
#: flags of a CUDA_TEXTURE_DESC
READ_AS_INTEGER, UNIT_COORDINATES, SRGB, NOT_TRILINEAR, SEAMLESS = 1, 2, 0x10, 0x20, 0x40


@dataclass(frozen=True)
class Resource:
    """The texels that a CUDA_RESOURCE_DESC names: their shape, address and bytes from row to row,
    of a mipmapped array those of the first level; `raw` is the descriptor."""

    kind: int
    shape: Shape
    address: int
    pitch: int
    raw: bytes
    #: the further levels of a mipmapped array
    mipmaps: tuple[Resource, ...] = ()

    def array(self) -> Array:
        """The texels as an array of now: rows without what pads them, and the channels last."""
        row, count = self.shape.texels(self.address).row, prod(self.shape.axes[:-1])
        held = space().memory.view(self.address, self.pitch * (count - 1) + row)
        rows = np.lib.stride_tricks.as_strided(held, (count, row), (self.pitch, 1))
        last = (self.shape.channels,) if self.shape.channels > 1 else ()
        codes = np.ascontiguousarray(rows).view(FORMATS[self.shape.format])
        axes = self.shape.axes
        if self.shape.is_cube and self.shape.is_layered:
            axes = -1, FACES, *axes[1:]
        return codes.reshape(*axes, *last)


def resource_at(what: int) -> Resource:
    """The resource that a CUDA_RESOURCE_DESC describes."""
    kind, first = get(what, "I4xQ")
    raw = ctypes.string_at(what, RESOURCE_BYTES)
    if kind in (ARRAY, MIPMAPPED):
        levels = handles.find(first, Mipmaps).levels if kind == MIPMAPPED else [first]
        arrays = [handles.find(level, CudaArray) for level in levels]
        large, *small = [Resource(kind, x.shape, x.address, x.texels.row, raw) for x in arrays]
        return replace(large, mipmaps=tuple(small))
    format_, channels, *sizes = get(what + 16, "IIQ" if kind == LINEAR else "IIQQQ")
    refuse_if(format_ not in FORMATS, Code.NOT_SUPPORTED)
    if kind == LINEAR:
        count = sizes[0] // (np.dtype(FORMATS[format_]).itemsize * max(1, channels))
        shape = Shape(count, 0, 0, format_, channels)
        return Resource(kind, shape, first, shape.texels(first).row, raw)
    refuse_if(kind != PITCHED)
    width, height, pitch = sizes
    return Resource(kind, Shape(width, height, 0, format_, channels), first, pitch, raw)


@dataclass(frozen=True)
class TextureObject:
    """A texture object; `raw` is its CUDA_TEXTURE_DESC."""

    resource: Resource
    raw: bytes

    def texture(self) -> Texture:
        """The texture as a launch finds it. Raises EmulatorError for one that is not modelled."""
        *modes, filter_, flags, anisotropy, level_filter, bias, least, most = struct.unpack_from(
            "<7I3f", self.raw
        )
        border = cast("tuple[float, float, float, float]", struct.unpack_from("<4f", self.raw, 40))
        shape, levels = self.resource.shape, self.resource.mipmaps
        asked = modes[: shape.rank]
        refuse_if(max(asked) >= len(_ADDRESSES) or max(filter_, level_filter) >= len(_FILTERS))
        if anisotropy > 1:
            raise UnsupportedError("anisotropy is not modelled here")
        small = FORMATS[shape.format] in ("uint8", "uint16", "int8", "int16")
        return Texture(
            self.resource.array(),
            channels=cast("Literal[1, 2, 4]", shape.channels),
            layered=shape.is_layered,
            cube=shape.is_cube,
            mipmaps=[level.array() for level in levels],
            address=[_ADDRESSES[mode] for mode in asked],
            border=border,
            filter=_FILTERS[filter_],
            unit_coordinates=bool(flags & UNIT_COORDINATES),
            unit_values=small and not flags & READ_AS_INTEGER,
            level_filter=_FILTERS[level_filter],
            level_bias=bias,
            level_clamp=(least, most),
            srgb=bool(flags & SRGB),
            seamless=bool(flags & SEAMLESS),
            linear_memory=self.resource.kind == LINEAR,
        )


class Objects:
    """Texture and surface objects by their handles, which are small numbers, as on a GPU."""

    def __init__(self) -> None:
        self._count = 0
        self.textures: dict[int, TextureObject] = {}
        self.surfaces: dict[int, Resource] = {}

    def new_handle(self) -> int:
        self._count += 1
        return self._count


_objects = Objects()


def create_texture(out: int, resource: Resource, raw: bytes) -> None:
    """A new texture object. Raises CudaError, with the reason on the standard error, for one that
    is not modelled."""
    made = TextureObject(resource, raw)
    try:
        made.texture()
    except EmulatorError as error:
        complain("the texture object cannot be made", error)
        raise CudaError(Code.NOT_SUPPORTED) from None
    handle = _objects.new_handle()
    _objects.textures[handle] = made
    space().memory.textures[handle] = made.texture
    put(out, "Q", handle)


def texture_object(handle: int) -> TextureObject:
    return present(_objects.textures.get(handle))


def surface_resource(handle: int) -> Resource:
    return present(_objects.surfaces.get(handle))


@driver("cuTexObjectCreate")
def texture_create(out: int, resource: int, what: int, view: int) -> None:
    refuse_if(view, Code.NOT_SUPPORTED)
    create_texture(out, resource_at(resource), ctypes.string_at(what, TEXTURE_BYTES))


@driver("cuTexObjectDestroy")
def texture_destroy(handle: int) -> None:
    texture_object(handle)
    del _objects.textures[handle], space().memory.textures[handle]


@driver("cuTexObjectGetResourceViewDesc")
def texture_view(out: int, handle: int) -> None:
    texture_object(handle)
    raise CudaError(Code.INVALID_VALUE)  # none was made with a view


@driver("cuSurfObjectCreate")
def surface_create(out: int, what: int) -> None:
    resource = resource_at(what)
    refuse_if(resource.kind != ARRAY)
    handle = _objects.new_handle()
    _objects.surfaces[handle] = resource
    space().memory.surfaces[handle] = resource.shape.texels(resource.address)
    put(out, "Q", handle)


@driver("cuSurfObjectDestroy")
def surface_destroy(handle: int) -> None:
    surface_resource(handle)
    del _objects.surfaces[handle], space().memory.surfaces[handle]


def _put_raw(out: int, raw: bytes) -> None:
    ctypes.memmove(out, raw, len(raw))


DRIVER |= {
    "cuTexObjectGetResourceDesc": lambda out, handle: _put_raw(
        out, texture_object(handle).resource.raw
    ),
    "cuTexObjectGetTextureDesc": lambda out, handle: _put_raw(out, texture_object(handle).raw),
    "cuSurfObjectGetResourceDesc": lambda out, handle: _put_raw(out, surface_resource(handle).raw),
}
