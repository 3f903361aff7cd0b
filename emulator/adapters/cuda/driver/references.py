"""Texture references: variables of a module that the program gives texels to."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field
from functools import partial

from emulator.adapters.cuda.calls import DRIVER, Code, driver, get, handles, put, refuse_if, text_at
from emulator.adapters.cuda.driver import textures
from emulator.adapters.cuda.driver.devices import space
from emulator.adapters.cuda.driver.modules import Loaded
from emulator.errors import OperandError
from emulator.memory.texture import Texture

#: CU_TRSA_OVERRIDE_FORMAT: the format is the array's
_ARRAY_FORMAT = 1
#: what follows ``cuTexRefSet`` and ``cuTexRefGet`` -> where it stands in a CUDA_TEXTURE_DESC
_PROPERTIES = {
    "FilterMode": (12, "I"), "Flags": (16, "I"), "MaxAnisotropy": (20, "I"),
    "MipmapFilterMode": (24, "I"), "MipmapLevelBias": (28, "f"), "MipmapLevelClamp": (32, "ff"),
}  # fmt: skip
_BORDER = 40
#: what one is before the program says otherwise (on an H200): coordinates are clamped, texels f32
_UNSET = struct.pack("<3I", *[1] * 3).ljust(textures.TEXTURE_BYTES, b"\0")
_FLOAT = 0x20


@dataclass(eq=False)
class TextureReference:
    """A variable of type .texref."""

    #: a CUDA_TEXTURE_DESC
    how: bytearray = field(default_factory=lambda: bytearray(_UNSET))
    #: a CUDA_RESOURCE_DESC; empty: no texels were given
    what: bytes = b""
    #: CUarray_format and channels
    format: tuple[int, int] = (_FLOAT, 1)

    def give(self, form: str, kind: int, *words: int) -> None:
        """Gives it the texels that a CUDA_RESOURCE_DESC describes. Raises CudaError for what no
        texture can have."""
        what = struct.pack(f"<I4x{form}", kind, *words).ljust(textures.RESOURCE_BYTES, b"\0")
        shape = _resource(what).shape
        self.what, self.format = what, (shape.format, shape.channels)

    def texture(self) -> Texture:
        """The texture as a launch finds it. Raises OperandError where no texels were given."""
        if not self.what:
            raise OperandError("a texture reference has no texels; call cuTexRefSetArray first")
        return textures.TextureObject(_resource(self.what), bytes(self.how)).texture()


def _resource(what: bytes) -> textures.Resource:
    held = ctypes.create_string_buffer(what)
    return textures.resource_at(ctypes.addressof(held))


_find = partial(handles.find, kind=TextureReference)


def _register(name: str, place: tuple[int, str]) -> None:
    """Registers the functions that set and get a property."""
    at, form = place[0], f"<{place[1]}"

    def set_property(reference: int, *values: float) -> None:
        struct.pack_into(form, _find(reference).how, at, *values)

    def get_property(*given: int) -> None:
        *outs, reference = given
        values = struct.unpack_from(form, _find(reference).how, at)
        for out, value in zip(outs, values, strict=True):
            put(out, form[-1], value)

    driver(f"cuTexRefSet{name}")(set_property)
    driver(f"cuTexRefGet{name}")(get_property)


for _name, _place in _PROPERTIES.items():
    _register(_name, _place)


@driver("cuModuleGetTexRef")
def texture_reference(out: int, module: int, name: int) -> None:
    loaded, text = handles.find(module, Loaded), text_at(name)
    type_, known = loaded.module.reference_handles.get(text, ("", 0))
    refuse_if(type_ != "texref", Code.NOT_FOUND)
    if text not in loaded.references:
        made = TextureReference()
        loaded.references[text] = handles.add(made)
        space().memory.textures[known] = made.texture
    put(out, "Q", loaded.references[text])


def _set_array(kind: int, reference: int, array: int, flags: int) -> None:
    refuse_if(flags != _ARRAY_FORMAT)
    _find(reference).give("Q", kind, array)


def _array_of(kind: int, out: int, reference: int) -> None:
    given, first = struct.unpack_from("<I4xQ", _find(reference).what.ljust(16, b"\xff"))
    refuse_if(given != kind)
    put(out, "Q", first)


@driver("cuTexRefGetFormat")
def format_of(format_: int, channels: int, reference: int) -> None:
    for out, value in zip((format_, channels), _find(reference).format, strict=True):
        put(out, "I", value)


@driver("cuTexRefSetAddress_v2")
def set_address(offset: int, reference: int, address: int, size: int) -> None:
    found = _find(reference)
    found.give("QIIQ", textures.LINEAR, address, *found.format, size)
    put(offset, "Q", 0)


def _axis(axis: int) -> int:
    """Where the address mode of an axis stands."""
    refuse_if(not 0 <= axis < 3)
    return 4 * axis


def _set_format(reference: int, format_: int, channels: int) -> None:
    _find(reference).format = format_, channels


def _set_address_2d(reference: int, what: int, address: int, pitch: int) -> None:
    width, height, *form = get(what, "QQII")
    _find(reference).give("QIIQQQ", textures.PITCHED, address, *form, width, height, pitch)


DRIVER |= {
    "cuTexRefSetArray": partial(_set_array, textures.ARRAY),
    "cuTexRefSetMipmappedArray": partial(_set_array, textures.MIPMAPPED),
    "cuTexRefGetArray": partial(_array_of, textures.ARRAY),
    "cuTexRefGetMipmappedArray": partial(_array_of, textures.MIPMAPPED),
    "cuTexRefGetAddress_v2": partial(_array_of, textures.LINEAR),
    "cuTexRefSetFormat": _set_format,
    "cuTexRefSetAddress2D_v3": _set_address_2d,
    "cuTexRefSetAddressMode": lambda reference, axis, mode: struct.pack_into(
        "<I", _find(reference).how, _axis(axis), mode
    ),
    "cuTexRefGetAddressMode": lambda out, reference, axis: put(
        out, "I", *struct.unpack_from("<I", _find(reference).how, _axis(axis))
    ),
    "cuTexRefSetBorderColor": lambda reference, colour: struct.pack_into(
        "<4f", _find(reference).how, _BORDER, *get(colour, "4f")
    ),
    "cuTexRefGetBorderColor": lambda out, reference: put(
        out, "4f", *struct.unpack_from("<4f", _find(reference).how, _BORDER)
    ),
}
