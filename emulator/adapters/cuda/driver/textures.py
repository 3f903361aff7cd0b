"""Texture and surface objects: how kernels read and write arrays and linear memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, cast

import numpy as np

from dtypes import Array
from emulator.adapters.cuda.calls import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    CudaError,
    driver,
    get,
    handles,
    put,
)
from emulator.adapters.cuda.driver.arrays import FORMATS, CudaArray, Mipmaps, Shape
from emulator.adapters.cuda.driver.devices import space
from emulator.adapters.cuda.driver.modules import complain
from emulator.errors import EmulatorError
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
READ_AS_INTEGER, UNIT_COORDINATES, SRGB = 1, 2, 0x10


@dataclass(frozen=True)
class Resource:
    """The texels that a CUDA_RESOURCE_DESC names: their shape, address and bytes from row to row;
    `raw` is the descriptor."""

    kind: int
    shape: Shape
    address: int
    pitch: int
    raw: bytes

    def array(self) -> Array:
        """The texels as an array of now: rows without what pads them, and the channels last."""
        row, count = self.shape.texels(self.address).row, prod(self.shape.axes[:-1])
        held = space().memory.view(self.address, self.pitch * (count - 1) + row)
        rows = np.lib.stride_tricks.as_strided(held, (count, row), (self.pitch, 1))
        last = (self.shape.channels,) if self.shape.channels > 1 else ()
        codes = np.ascontiguousarray(rows).view(FORMATS[self.shape.format])
        return codes.reshape(*self.shape.axes, *last)


def resource_at(what: int) -> Resource:
    """The resource that a CUDA_RESOURCE_DESC describes."""
    kind, first = get(what, "I4xQ")
    raw = ctypes.string_at(what, RESOURCE_BYTES)
    if kind == MIPMAPPED:
        levels = handles.find(first, Mipmaps).levels
        if len(levels) > 1:
            raise CudaError(NOT_SUPPORTED)
        kind, first = ARRAY, levels[0]
    if kind == ARRAY:
        texels = handles.find(first, CudaArray).texels
        shape = handles.find(first, CudaArray).shape
        return Resource(kind, shape, texels.address, texels.row, raw)
    format_, channels, *sizes = get(what + 16, "IIQ" if kind == LINEAR else "IIQQQ")
    if format_ not in FORMATS:
        raise CudaError(NOT_SUPPORTED)
    if kind == LINEAR:
        count = sizes[0] // (np.dtype(FORMATS[format_]).itemsize * channels)
        shape = Shape(count, 0, 0, format_, channels)
        return Resource(kind, shape, first, shape.texels(first).row, raw)
    if kind != PITCHED:
        raise CudaError(INVALID_VALUE)
    width, height, pitch = sizes
    return Resource(kind, Shape(width, height, 0, format_, channels), first, pitch, raw)


@dataclass(frozen=True)
class TextureObject:
    """A texture object; `raw` is its CUDA_TEXTURE_DESC."""

    resource: Resource
    raw: bytes

    def texture(self) -> Texture:
        """The texture as a launch finds it. Raises EmulatorError for one that is not modelled."""
        words = np.frombuffer(self.raw, np.uint32)
        modes, flags = set(words[: min(3, len(self.resource.shape.axes))].tolist()), int(words[4])
        shape = self.resource.shape
        small = FORMATS[shape.format] in ("uint8", "uint16", "int8", "int16")
        if len(modes) > 1 or flags & SRGB or words[10:14].any():
            raise CudaError(NOT_SUPPORTED)
        more: dict[str, Any] = {"layered": True} if shape.is_layered else {}
        return Texture(
            self.resource.array(),
            channels=cast("Literal[1, 2, 4]", shape.channels),
            address=_ADDRESSES[modes.pop()],
            filter=_FILTERS[words[3]],
            unit_coordinates=bool(flags & UNIT_COORDINATES),
            unit_values=small and not flags & READ_AS_INTEGER,
            linear_memory=self.resource.kind == LINEAR,
            **more,
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
        raise CudaError(NOT_SUPPORTED) from None
    handle = _objects.new_handle()
    _objects.textures[handle] = made
    space().memory.textures[handle] = made.texture
    put(out, "Q", handle)


def texture_object(handle: int) -> TextureObject:
    if handle not in _objects.textures:
        raise CudaError(INVALID_VALUE)
    return _objects.textures[handle]


def surface_resource(handle: int) -> Resource:
    if handle not in _objects.surfaces:
        raise CudaError(INVALID_VALUE)
    return _objects.surfaces[handle]


@driver("cuTexObjectCreate")
def texture_create(out: int, resource: int, what: int, view: int) -> None:
    if view:
        raise CudaError(NOT_SUPPORTED)
    create_texture(out, resource_at(resource), ctypes.string_at(what, TEXTURE_BYTES))


@driver("cuTexObjectDestroy")
def texture_destroy(handle: int) -> None:
    texture_object(handle)
    del _objects.textures[handle], space().memory.textures[handle]


@driver("cuTexObjectGetResourceDesc")
def texture_resource(out: int, handle: int) -> None:
    raw = texture_object(handle).resource.raw
    ctypes.memmove(out, raw, len(raw))


@driver("cuTexObjectGetTextureDesc")
def texture_description(out: int, handle: int) -> None:
    ctypes.memmove(out, texture_object(handle).raw, TEXTURE_BYTES)


@driver("cuTexObjectGetResourceViewDesc")
def texture_view(out: int, handle: int) -> None:
    texture_object(handle)
    raise CudaError(INVALID_VALUE)  # none was made with a view


@driver("cuSurfObjectCreate")
def surface_create(out: int, what: int) -> None:
    resource = resource_at(what)
    if resource.kind != ARRAY:
        raise CudaError(INVALID_VALUE)
    handle = _objects.new_handle()
    _objects.surfaces[handle] = resource
    space().memory.surfaces[handle] = resource.shape.texels(resource.address)
    put(out, "Q", handle)


@driver("cuSurfObjectDestroy")
def surface_destroy(handle: int) -> None:
    surface_resource(handle)
    del _objects.surfaces[handle], space().memory.surfaces[handle]


@driver("cuSurfObjectGetResourceDesc")
def surface_description(out: int, handle: int) -> None:
    raw = surface_resource(handle).raw
    ctypes.memmove(out, raw, len(raw))
