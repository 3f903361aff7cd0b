"""Arrays, texture and surface objects of the CUDA runtime and driver, called as programs do."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from emulator.adapters.cuda.calls import CudaError
from emulator.adapters.cuda.driver import DRIVER
from emulator.adapters.cuda.driver.devices import space
from emulator.adapters.cuda.runtime import RUNTIME
from emulator.adapters.cuda.settings import settings
from emulator.machine.module import Module

#: cudaMemcpyKind
TO_DEVICE, FROM_DEVICE = 1, 2
FLOAT, UNSIGNED = 2, 1
LAYERED = 1
READ = """.version 9.0
.target sm_90
.address_size 64
.visible .entry twice(.param .u64 t, .param .u64 s)
{
    .reg .b64 %t, %s; .reg .f32 %f<4>, %x, %y; .reg .b32 %i, %j, %b;
    ld.param.u64 %t, [t]; ld.param.u64 %s, [s];
    mov.u32 %i, %tid.x; mov.u32 %j, %tid.y; shl.b32 %b, %i, 2;
    cvt.rn.f32.u32 %x, %i; cvt.rn.f32.u32 %y, %j;
    tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%t, {%x, %y}];
    add.f32 %f0, %f0, %f0; sust.b.2d.b32.trap [%s, {%b, %j}], %f0;
    ret;
}
"""


def words(*values: int) -> Any:
    """A structure of 64-bit words, which lives as long as it is held."""
    return (ctypes.c_uint64 * len(values))(*values)


def call(table: dict[str, Any], name: str, *arguments: Any) -> None:
    given = [ctypes.addressof(x) if isinstance(x, ctypes.Array) else x for x in arguments]
    assert not table[name](*given)


def channels(bits: int, count: int, kind: int) -> Any:
    return (ctypes.c_int * 5)(*[bits * (i < count) for i in range(4)], kind)


def made(name: str, *arguments: Any, table: dict[str, Any] = RUNTIME) -> int:
    out = words(0)
    call(table, name, out, *arguments)
    return out[0]


def resource(array: int) -> Any:
    return words(0, array, *[0] * 16)


def texture(array: int, linear: bool = False) -> int:
    how = (ctypes.c_uint * 18)(1, 1, 1, int(linear))
    return made("cudaCreateTextureObject", resource(array), how, 0)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings(), "gpu", "H100", raising=False)


def test_a_kernel_reads_an_array_and_writes_another() -> None:
    texels = np.arange(15, dtype=np.float32).reshape(3, 5)
    first, second = (made("cudaMallocArray", channels(32, 1, FLOAT), 5, 3, 0) for _ in range(2))
    call(RUNTIME, "cudaMemcpyToArray", first, 0, 0, texels.ctypes.data, 60, TO_DEVICE)
    source, to = texture(first), made("cudaCreateSurfaceObject", resource(second))
    kernel = Module(READ, memory=space().memory)["twice"]
    kernel.launch(1, (5, 3), [source, to], memory=space().memory)
    found = np.zeros((3, 5), np.float32)
    call(RUNTIME, "cudaMemcpy2DFromArray", found.ctypes.data, 20, second, 0, 0, 20, 3, FROM_DEVICE)
    assert (found == 2 * texels).all()
    again = texture(second)  # what a kernel has written, the next one reads
    kernel.launch(1, (5, 3), [again, to], memory=space().memory)
    call(RUNTIME, "cudaMemcpyFromArray", found.ctypes.data, second, 0, 0, 60, FROM_DEVICE)
    assert (found == 4 * texels).all()
    for name, handle in (("Texture", source), ("Texture", again), ("Surface", to)):
        call(RUNTIME, f"cudaDestroy{name}Object", handle)
    with pytest.raises(CudaError):
        RUNTIME["cudaDestroySurfaceObject"](to)
    call(RUNTIME, "cudaFreeArray", first)
    with pytest.raises(CudaError):
        RUNTIME["cudaFreeArray"](first)


def test_a_texture_reads_pitched_memory_whose_last_row_is_short() -> None:
    address = space().allocate(3 * 32 + 20, "device")
    texels = np.arange(20, dtype=np.float32).reshape(4, 5)
    for i, row in enumerate(texels):
        space().memory.write(address + 32 * i, row)
    pitched = words(3, address, 32, 0, FLOAT, 5, 4, 32, *[0] * 10)
    handle = made("cudaCreateTextureObject", pitched, (ctypes.c_uint * 18)(1, 1, 1), 0)
    array = made("cudaMallocArray", channels(32, 1, FLOAT), 5, 4, 0)
    to = made("cudaCreateSurfaceObject", resource(array))
    kernel = Module(READ, memory=space().memory)["twice"]
    kernel.launch(1, (5, 4), [handle, to], memory=space().memory)
    found = np.zeros((4, 5), np.float32)
    call(RUNTIME, "cudaMemcpyFromArray", found.ctypes.data, array, 0, 0, 80, FROM_DEVICE)
    assert (found == 2 * texels).all()


def test_boxes_of_layers_are_copied_in_texels() -> None:
    array = made("cudaMalloc3DArray", channels(8, 4, UNSIGNED), 6, 4, 3, LAYERED)
    source = np.arange(2 * 3 * 8, dtype=np.uint8).reshape(2, 3, 8)
    pointer = source.ctypes.data
    # from a pitched pointer to texel 1, row 1 of layer 1: 2 texels, 3 rows, 2 layers
    call(RUNTIME, "cudaMemcpy3D", words(0, 0, 0, 0, pointer, 8, 2, 3, array, 1, 1, 1, 0, 0, 0, 0,
                                        2, 3, 2, TO_DEVICE))  # fmt: skip
    found = np.zeros((3, 4, 24), np.uint8)
    call(RUNTIME, "cudaMemcpyFromArray", found.ctypes.data, array, 0, 0, 288, FROM_DEVICE)
    want = np.zeros_like(found)
    want[1:, 1:, 4:12] = source
    assert (found == want).all()
    described, extent, flags = channels(0, 0, 0), words(0, 0, 0), (ctypes.c_uint * 1)()
    call(RUNTIME, "cudaArrayGetInfo", described, extent, flags, array)
    assert (list(described), list(extent), list(flags)) == ([8, 8, 8, 8, 1], [6, 4, 3], [LAYERED])


def test_the_driver_describes_arrays_and_the_levels_of_mipmaps() -> None:
    array = made("cuArrayCreate_v2", words(7, 5, 0x20 | 2 << 32), table=DRIVER)
    out = words(0, 0, 0)
    call(DRIVER, "cuArrayGetDescriptor_v2", out, array)
    assert list(out) == [7, 5, 0x20 | 2 << 32]
    mipmaps = made("cuMipmappedArrayCreate", words(8, 4, 0, 0x01 | 1 << 32, 0), 3, table=DRIVER)
    out = words(*[0] * 5)
    for number, size in enumerate([(8, 4), (4, 2), (2, 1)]):
        level = made("cuMipmappedArrayGetLevel", mipmaps, number, table=DRIVER)
        call(DRIVER, "cuArray3DGetDescriptor_v2", out, level)
        assert tuple(out[:3]) == (*size, 0)
    call(DRIVER, "cuMipmappedArrayDestroy", mipmaps)


@pytest.mark.parametrize(
    ("name", "given", "code"),
    [
        ("cudaMallocArray", (channels(24, 1, FLOAT), 4, 4, 0), 801),
        ("cudaMallocArray", (channels(8, 3, UNSIGNED), 4, 4, 0), 1),
        ("cudaMallocArray", (channels(8, 1, UNSIGNED), 0, 4, 0), 1),
    ],
)
def test_what_is_no_array_is_an_error(name: str, given: Any, code: int) -> None:
    with pytest.raises(CudaError) as caught:
        made(name, *given)
    assert caught.value.code == code


def test_objects_that_are_not_modelled_say_so(capfd: pytest.CaptureFixture[str]) -> None:
    array = made("cudaMallocArray", channels(32, 1, UNSIGNED), 4, 4, 0)
    with pytest.raises(CudaError) as caught:
        texture(array, linear=True)
    assert caught.value.code == 801
    assert "filter='linear' blends floats" in capfd.readouterr().err
