"""Texture references of a module, called as programs of the CUDA driver do."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from emulator.adapters.cuda.calls import CudaError
from emulator.adapters.cuda.driver import DRIVER
from emulator.adapters.cuda.driver.devices import device, space
from emulator.adapters.cuda.settings import settings

#: CUarray_format of floats and of bytes; bits of CU_TRSF_*; CU_TR_ADDRESS_MODE_BORDER
FLOAT, BYTE = 0x20, 0x01
READ_AS_INTEGER, UNIT = 1, 2
BORDER = 3
PTX = b""".version 9.0
.target sm_90
.address_size 64
.global .texref image;
.global .texref row;
.global .b32 not_one;
.visible .entry at(.param .u64 out, .param .f32 x, .param .f32 y)
{
    .reg .b64 %out; .reg .f32 %f<4>, %x, %y;
    ld.param.u64 %out, [out]; ld.param.f32 %x, [x]; ld.param.f32 %y, [y];
    tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [image, {%x, %y}];
    st.global.v4.f32 [%out], {%f0, %f1, %f2, %f3};
    ret;
}
.visible .entry fetch(.param .u64 out, .param .u32 x)
{
    .reg .b64 %out; .reg .f32 %f<4>; .reg .b32 %x;
    ld.param.u64 %out, [out]; ld.param.u32 %x, [x];
    tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [row, {%x}];
    st.global.v4.f32 [%out], {%f0, %f1, %f2, %f3};
    ret;
}
\0"""
TEXELS = np.arange(15, dtype=np.float32).reshape(3, 5)


def call(name: str, *arguments: Any) -> None:
    given = [ctypes.addressof(x) if isinstance(x, ctypes.Array) else x for x in arguments]
    assert not DRIVER[name](*given)


def got(name: str, *arguments: Any, outs: str = "Q") -> Any:
    """What a function puts at its first arguments: numbers of 64 and 32 bits, and floats."""
    kinds = {"Q": ctypes.c_uint64, "I": ctypes.c_uint, "f": ctypes.c_float}
    held = [(kinds[kind] * 4)() for kind in outs]
    call(name, *held, *arguments)
    return held[0][0] if len(held) == 1 else tuple(x[0] for x in held)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings(), "gpu", "H100", raising=False)
    monkeypatch.setattr(device, "failed", 0, raising=False)


@pytest.fixture
def module() -> int:
    return got("cuModuleLoadData", ctypes.create_string_buffer(PTX))


def reference(module: int, name: bytes = b"image") -> int:
    return got("cuModuleGetTexRef", module, ctypes.create_string_buffer(name))


def array_of(texels: Any, format_: int = FLOAT) -> int:
    height, width = texels.shape
    made = got("cuArrayCreate_v2", (ctypes.c_uint64 * 3)(width, height, format_ | 1 << 32))
    call("cuMemcpyHtoA_v2", made, 0, texels.ctypes.data, texels.nbytes)
    return made


def launched(module: int, kernel: bytes, *values: Any) -> list[float]:
    function = got("cuModuleGetFunction", module, ctypes.create_string_buffer(kernel))
    out = got("cuMemAlloc_v2", 16)
    held = [ctypes.c_uint64(out), *values]
    pointers = (ctypes.c_uint64 * len(held))(*(ctypes.addressof(x) for x in held))
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, 0, pointers, 0)
    found = np.zeros(4, np.float32)
    call("cuMemcpyDtoH_v2", found.ctypes.data, out, 16)
    return [float(x) for x in found]


def at(module: int, x: float, y: float) -> list[float]:
    return launched(module, b"at", ctypes.c_float(x), ctypes.c_float(y))


def test_a_kernel_reads_the_array_that_a_reference_has(module: int) -> None:
    image, array = reference(module), array_of(TEXELS)
    assert image == reference(module)
    call("cuTexRefSetArray", image, array, 1)
    assert at(module, 3, 1)[0] == TEXELS[1, 3]
    call("cuTexRefSetFilterMode", image, 1)
    assert at(module, 3, 1)[0] == TEXELS[:2, 2:4].mean()
    call("cuTexRefSetFlags", image, UNIT)
    assert at(module, 0.5, 0.5)[0] == TEXELS[1, 2]
    colour = (ctypes.c_float * 4)(0.5, 0, 0, 1)
    call("cuTexRefSetBorderColor", image, colour)
    for axis in (0, 1):
        call("cuTexRefSetAddressMode", image, axis, BORDER)
    assert at(module, -1, 0.5)[0] == 0.5
    call("cuTexRefSetArray", image, array_of(TEXELS + 1), 1)
    assert at(module, 0.5, 0.5)[0] == TEXELS[1, 2] + 1


def test_a_new_reference_is_that_of_an_h200(module: int) -> None:
    """Recorded on one with driver 580.159.04: coordinates are clamped, texels are f32."""
    image = reference(module)
    for name in ("FilterMode", "MipmapFilterMode", "MaxAnisotropy", "Flags"):
        assert got(f"cuTexRefGet{name}", image, outs="I") == 0
    assert [got("cuTexRefGetAddressMode", image, i, outs="I") for i in range(3)] == [1, 1, 1]
    assert got("cuTexRefGetFormat", image, outs="II") == (FLOAT, 1)
    assert got("cuTexRefGetMipmapLevelBias", image, outs="f") == 0
    assert got("cuTexRefGetMipmapLevelClamp", image, outs="ff") == (0, 0)


def test_a_reference_says_what_it_was_given(module: int) -> None:
    image, array = reference(module), array_of(TEXELS)
    call("cuTexRefSetArray", image, array, 1)
    assert got("cuTexRefGetArray", image) == array
    assert got("cuTexRefGetFormat", image, outs="II") == (FLOAT, 1)
    for name, value in (("FilterMode", 1), ("Flags", UNIT), ("MipmapFilterMode", 1),
                        ("MaxAnisotropy", 1), ("MipmapLevelBias", 0.5)):  # fmt: skip
        call(f"cuTexRefSet{name}", image, value)
        form = "f" if isinstance(value, float) else "I"
        assert got(f"cuTexRefGet{name}", image, outs=form) == value
    call("cuTexRefSetMipmapLevelClamp", image, 0.25, 2.0)
    assert got("cuTexRefGetMipmapLevelClamp", image, outs="ff") == (0.25, 2)
    call("cuTexRefSetAddressMode", image, 1, BORDER)
    assert [got("cuTexRefGetAddressMode", image, i, outs="I") for i in (0, 1)] == [1, BORDER]
    colour, found = (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 4)()
    call("cuTexRefSetBorderColor", image, colour)
    call("cuTexRefGetBorderColor", found, image)
    assert list(found) == [1, 2, 3, 4]


def test_a_reference_reads_linear_and_pitched_memory(module: int) -> None:
    raw = np.arange(64, dtype=np.uint8)
    address = space().allocate(64, "device")
    space().memory.write(address, raw)
    row, image = reference(module, b"row"), reference(module)
    call("cuTexRefSetFormat", row, BYTE, 4)
    assert got("cuTexRefSetAddress_v2", row, address, 64) == 0
    assert got("cuTexRefGetAddress_v2", row) == address
    unit = [float(np.float32(x) / np.float32(255)) for x in (20, 21, 22, 23)]
    assert launched(module, b"fetch", ctypes.c_uint(5)) == unit
    # rows of 3 texels, of which each starts 32 bytes behind the one before
    what = (ctypes.c_uint64 * 3)(3, 2, BYTE | 1 << 32)
    call("cuTexRefSetAddress2D_v3", image, what, address, 32)
    assert at(module, 2, 1)[0] == float(np.float32(34) / np.float32(255))


def test_a_reference_reads_the_levels_of_a_mipmapped_array(module: int) -> None:
    image = reference(module)
    sizes = (ctypes.c_uint64 * 5)(4, 2, 0, FLOAT | 1 << 32, 0)
    mipmaps = got("cuMipmappedArrayCreate", sizes, 3)
    for number, count in enumerate((8, 2, 1)):
        texels = np.full(count, number, np.float32)
        level = got("cuMipmappedArrayGetLevel", mipmaps, number)
        call("cuMemcpyHtoA_v2", level, 0, texels.ctypes.data, texels.nbytes)
    call("cuTexRefSetMipmappedArray", image, mipmaps, 1)
    assert got("cuTexRefGetMipmappedArray", image) == mipmaps
    call("cuTexRefSetFlags", image, UNIT)
    call("cuTexRefSetMipmapLevelClamp", image, 1, 2)
    assert at(module, 0.5, 0.5)[0] == 1


@pytest.mark.parametrize(
    ("name", "values", "code"),
    [
        ("cuTexRefSetArray", (0, 1), 400),
        ("cuTexRefSetAddressMode", (3, 1), 1),
        ("cuTexRefGetArray", None, 1),
    ],
)
def test_what_a_reference_cannot_have_is_an_error(
    module: int, name: str, values: Any, code: int
) -> None:
    out, image = (ctypes.c_uint64 * 1)(), reference(module)
    given = (image, *values) if values else (ctypes.addressof(out), image)
    with pytest.raises(CudaError) as caught:
        DRIVER[name](*given)
    assert caught.value.code == code


@pytest.mark.parametrize("channels", [0, 3])
def test_linear_memory_has_one_two_or_four_channels(module: int, channels: int) -> None:
    image = reference(module)
    call("cuTexRefSetFormat", image, FLOAT, channels)
    with pytest.raises(CudaError) as caught:
        DRIVER["cuTexRefSetAddress_v2"](0, image, 4096, 16)
    assert caught.value.code == 1


@pytest.mark.parametrize("name", [b"not_one", b"nothing"])
def test_another_variable_is_no_reference(module: int, name: bytes) -> None:
    with pytest.raises(CudaError) as caught:
        reference(module, name)
    assert caught.value.code == 500


@pytest.mark.parametrize(
    ("has_texels", "message"), [(False, "call cuTexRefSetArray"), (True, "anisotropy is not")]
)
def test_a_launch_says_what_is_wrong(
    module: int, has_texels: bool, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    image = reference(module)
    call("cuTexRefSetMaxAnisotropy", image, 2)
    if has_texels:
        call("cuTexRefSetArray", image, array_of(TEXELS), 1)
    with pytest.raises(CudaError) as caught:
        at(module, 0, 0)
    assert caught.value.code == 719 and message in capfd.readouterr().err


def test_a_reference_ends_with_its_module(module: int) -> None:
    image = reference(module)
    call("cuTexRefSetArray", image, array_of(TEXELS), 1)
    known = len(space().memory.textures)
    call("cuModuleUnload", module)
    assert len(space().memory.textures) == known - 1
    with pytest.raises(CudaError) as caught:
        DRIVER["cuTexRefSetFlags"](image, 0)
    assert caught.value.code == 400
