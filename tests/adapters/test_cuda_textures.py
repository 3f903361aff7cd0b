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
LAYERED, CUBEMAP = 1, 4
#: words of a cudaTextureDesc
LINEAR, UNIT_VALUES, IS_SRGB, BORDER, UNIT, ANISOTROPY, BETWEEN, BIAS, MOST, SEAMLESS = (
    3, 4, 5, 6, 10, 11, 12, 13, 15, 17,
)  # fmt: skip
ONE, INFINITY = 0x3F800000, 0x7F800000
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


def resource(array: int, kind: int = 0) -> Any:
    return words(kind, array, *[0] * 16)


def texture(array: int, options: dict[int, int] | None = None, mode: int = 1, kind: int = 0) -> int:
    """A texture object of an array, or, of kind 1, of a mipmapped array."""
    how = (ctypes.c_uint * 18)(mode, mode, mode)
    for word, value in (options or {}).items():
        how[word] = value
    return made("cudaCreateTextureObject", resource(array, kind), how, 0)


def fill(array: int, texels: Any) -> None:
    call(RUNTIME, "cudaMemcpyToArray", array, 0, 0, texels.ctypes.data, texels.nbytes, TO_DEVICE)


def fetched(
    geometry: str, handle: int, *coordinates: float, layer: str = "", level: float | None = None
) -> list[float]:
    """The components that ``tex`` reads."""
    words_ = [f"0f{np.float32(x).view(np.uint32):08x}" for x in (*coordinates, level or 0)]
    place, behind = ", ".join(words_[:-1]), "" if level is None else f", {words_[-1]}"
    kernel = Module(f""".version 9.0
.target sm_90
.address_size 64
.visible .entry fetch(.param .u64 t, .param .u64 out)
{{
    .reg .b64 %t, %out; .reg .f32 %f<4>;
    ld.param.u64 %t, [t]; ld.param.u64 %out, [out];
    tex.{geometry}.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%t, {{{layer}{place}}}]{behind};
    st.global.v4.f32 [%out], {{%f0, %f1, %f2, %f3}};
    ret;
}}
""", memory=space().memory)["fetch"]  # fmt: skip
    out = np.zeros(4, np.float32)
    kernel.launch(1, 1, [handle, out], memory=space().memory)
    return [float(x) for x in out]


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


@pytest.mark.parametrize("cubes", [1, 2])
def test_a_texture_reads_cubes(cubes: int) -> None:
    flags = CUBEMAP | (LAYERED if cubes > 1 else 0)
    array = made("cudaMalloc3DArray", channels(32, 1, FLOAT), 2, 2, 6 * cubes, flags)
    fill(array, np.arange(24 * cubes, dtype=np.float32))
    blends, seamless = texture(array, {LINEAR: 1}), texture(array, {LINEAR: 1, SEAMLESS: 1})

    def first(handle: int, place: list[float]) -> float:
        if cubes == 1:
            return fetched("cube", handle, *place, 0)[0]
        return fetched("acube", handle, *place, layer="1, ")[0] - 24

    for axis in range(6):
        place = [0.0, 0.0, 0.0]
        place[axis // 2] = -1.0 if axis % 2 else 1.0
        assert first(blends, place) == 4 * axis + 1.5
    # at an edge of +z the last texels of its rows, and half of them and of the first ones of +x
    assert first(blends, [1, 0, 1]) == (17 + 19) / 2
    assert first(seamless, [1, 0, 1]) == (17 + 19 + 0 + 2) / 4


def test_a_texture_reads_the_levels_of_a_mipmapped_array() -> None:
    array = made("cudaMallocMipmappedArray", channels(32, 1, FLOAT), 4, 2, 0, 3, 0)
    for number, size in enumerate((8, 2, 1)):
        level = made("cudaGetMipmappedArrayLevel", array, number)
        fill(level, np.full(size, 10.0 * number, np.float32))
    all_levels = {UNIT: 1, MOST: INFINITY}
    handle = texture(array, all_levels, kind=1)
    assert [fetched("level.2d", handle, 0.5, 0.5, level=k)[0] for k in (0, 1, 2, 3)] == [
        0,
        10,
        20,
        20,
    ]
    biased = texture(array, {**all_levels, BIAS: ONE}, kind=1)
    assert fetched("level.2d", biased, 0.5, 0.5, level=0)[0] == 10
    blended = texture(array, {**all_levels, BETWEEN: 1}, kind=1)
    assert fetched("level.2d", blended, 0.5, 0.5, level=0.25)[0] == 2.5
    first = texture(array, {UNIT: 1}, kind=1)  # whose largest level is 0
    assert fetched("level.2d", first, 0.5, 0.5, level=2)[0] == 0
    with pytest.raises(CudaError):
        made("cudaCreateSurfaceObject", resource(array, 1))


def test_a_texture_has_a_border_and_light() -> None:
    array = made("cudaMallocArray", channels(8, 4, UNSIGNED), 2, 2, 0)
    fill(array, np.full(16, 128, np.uint8))
    border = {BORDER + i: int(np.float32(i / 4).view(np.uint32)) for i in range(4)}
    # 0, 0.25, 0.5 and 0.75 of 255, to nearest, ties down
    outside = [float(np.float32(x / 255)) for x in (0, 64, 127, 191)]
    handle = texture(array, {**border, UNIT_VALUES: 1}, mode=3)
    assert fetched("2d", handle, -1, 0) == outside
    assert fetched("2d", handle, 1, 1) == [float(np.float32(128 / 255))] * 4
    *light, alpha = fetched("2d", texture(array, {UNIT_VALUES: 1, IS_SRGB: 1}), 1, 1)
    assert alpha == float(np.float32(128 / 255)) and light == [light[0]] * 3
    assert 0.215 < light[0] < 0.217


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
        ("cudaMalloc3DArray", (channels(8, 1, UNSIGNED), 4, 4, 12, CUBEMAP), 1),
        ("cudaMalloc3DArray", (channels(8, 1, UNSIGNED), 4, 4, 0, CUBEMAP), 1),
        ("cudaMalloc3DArray", (channels(8, 1, UNSIGNED), 4, 2, 6, CUBEMAP), 1),
        ("cudaMalloc3DArray", (channels(8, 1, UNSIGNED), 4, 0, 0, LAYERED), 1),
    ],
)
def test_what_is_no_array_is_an_error(name: str, given: Any, code: int) -> None:
    with pytest.raises(CudaError) as caught:
        made(name, *given)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({LINEAR: 1}, "filter='linear' blends floats"),
        ({ANISOTROPY: 2}, "anisotropy is not modelled"),
        ({IS_SRGB: 1}, "srgb= is for uint8"),
    ],
)
def test_objects_that_are_not_modelled_say_so(
    options: dict[int, int], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    array = made("cudaMallocArray", channels(32, 1, UNSIGNED), 4, 4, 0)
    with pytest.raises(CudaError) as caught:
        texture(array, options)
    assert caught.value.code == 801
    assert message in capfd.readouterr().err


@pytest.mark.parametrize("options", [{0: 4, 1: 4, 2: 4}, {LINEAR: 2}])
def test_modes_that_there_are_not_are_errors(options: dict[int, int]) -> None:
    array = made("cudaMallocArray", channels(32, 1, UNSIGNED), 4, 4, 0)
    with pytest.raises(CudaError) as caught:
        texture(array, options)
    assert caught.value.code == 1
