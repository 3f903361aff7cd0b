"""CUDA arrays and mipmapped arrays: texels one row after the other, in memory of their own."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import NamedTuple

from emulator.adapters.cuda.calls import DRIVER, Code, driver, get, handles, put, refuse_if
from emulator.adapters.cuda.driver.devices import space
from emulator.memory.surface import Texels

#: CUarray_format -> the NumPy type of a channel
FORMATS = {
    0x01: "uint8", 0x02: "uint16", 0x03: "uint32", 0x08: "int8", 0x09: "int16", 0x0A: "int32",
    0x10: "float16", 0x20: "float32",
}  # fmt: skip
#: flags of CUDA_ARRAY3D_DESCRIPTOR
LAYERED, CUBEMAP = 1, 4
FACES = 6


@dataclass(frozen=True)
class Shape:
    """What a CUDA_ARRAY3D_DESCRIPTOR says. Axes that an array does not have are 0."""

    width: int
    height: int
    depth: int
    format: int
    channels: int
    flags: int = 0

    def __post_init__(self) -> None:
        cubes, rest = divmod(self.depth, FACES)
        several = cubes > 1 and not self.is_layered
        no_cube = rest or several or self.width != self.height
        refuse_if(not self.width or self.channels not in (1, 2, 4) or (self.is_cube and no_cube))
        refuse_if(self.has_planes and not self.depth)
        refuse_if(self.format not in FORMATS, Code.NOT_SUPPORTED)

    @property
    def is_layered(self) -> bool:
        """True if the last axis counts layers, or the faces of several cubes."""
        return bool(self.flags & LAYERED)

    @property
    def is_cube(self) -> bool:
        """True if the last axis counts faces."""
        return bool(self.flags & CUBEMAP)

    @property
    def has_planes(self) -> bool:
        """True if the last axis counts layers or faces."""
        return self.is_layered or self.is_cube

    @property
    def rank(self) -> int:
        """The axes that coordinates are for, besides layers and faces."""
        return len(self.axes) - self.has_planes

    @property
    def axes(self) -> tuple[int, ...]:
        """Texels along each axis, x last; layers come first."""
        return tuple(n for n in (self.depth, self.height, self.width) if n)

    def texels(self, address: int) -> Texels:
        """The texels of such an array at an address."""
        return Texels(FORMATS[self.format], self.channels, self.axes, self.has_planes, address)

    def level(self, number: int) -> Shape:
        """The shape of a level of detail: half as many texels along each axis, at least one."""
        half = [n and max(1, n >> number) for n in (self.width, self.height, self.depth)]
        depth = self.depth if self.has_planes else half[2]
        return Shape(half[0], half[1], depth, self.format, self.channels, self.flags)


@dataclass(eq=False)
class CudaArray:
    """A CUDA array."""

    shape: Shape
    address: int = 0

    def __post_init__(self) -> None:
        self.address = space().allocate(self.texels.size, "device")

    @property
    def texels(self) -> Texels:
        return self.shape.texels(self.address)

    def free(self) -> None:
        space().release(self.address, "device")


@dataclass(eq=False)
class Mipmaps:
    """A mipmapped array: the handles of its levels, the largest first."""

    shape: Shape
    levels: list[int]


class Side(NamedTuple):
    """One side of a copy: address, and bytes from row to row and from plane to plane."""

    address: int
    pitch: int
    plane: int


def side_of_array(handle: int, x: int, y: int = 0, z: int = 0) -> Side:
    """The side of a copy that lies in an array, from byte `x` of a row on."""
    texels = handles.find(handle, CudaArray).texels
    return Side(texels.address + z * texels.plane + y * texels.row + x, texels.row, texels.plane)


def create(out: int, shape: Shape) -> None:
    put(out, "Q", handles.add(CudaArray(shape)))


def _create_2d(out: int, what: int) -> None:
    width, height, format_, channels = get(what, "QQII")
    create(out, Shape(width, height, 0, format_, channels))


def _descriptor_2d(out: int, array: int) -> None:
    shape = handles.find(array, CudaArray).shape
    put(out, "QQII", shape.width, shape.height, shape.format, shape.channels)


def create_mipmaps(out: int, shape: Shape, count: int) -> None:
    """A new mipmapped array with so many levels."""
    refuse_if(not 0 < count <= max(shape.axes[-shape.rank :]).bit_length())
    levels = [handles.add(CudaArray(shape.level(i))) for i in range(count)]
    put(out, "Q", handles.add(Mipmaps(shape, levels)))


def _destroy(array: int) -> None:
    handles.take(array, CudaArray).free()


def _destroy_mipmaps(mipmaps: int) -> None:
    for level in handles.take(mipmaps, Mipmaps).levels:
        _destroy(level)


DRIVER |= {
    "cuArray3DCreate_v2": lambda out, what: create(out, Shape(*get(what, "QQQIII"))),
    "cuArrayCreate_v2": _create_2d,
    "cuArrayDestroy": _destroy,
    "cuArray3DGetDescriptor_v2": lambda out, array: put(
        out, "QQQIII", *astuple(handles.find(array, CudaArray).shape)
    ),
    "cuArrayGetDescriptor_v2": _descriptor_2d,
    "cuMipmappedArrayCreate": lambda out, what, count: create_mipmaps(
        out, Shape(*get(what, "QQQIII")), count
    ),
    "cuMipmappedArrayDestroy": _destroy_mipmaps,
}


@driver("cuMipmappedArrayGetLevel")
def mipmap_level(out: int, mipmaps: int, number: int) -> None:
    levels = handles.find(mipmaps, Mipmaps).levels
    refuse_if(number >= len(levels))
    put(out, "Q", levels[number])
