"""Kernels that read textures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator import KernelError, Module, OperandError, Texture

PTX = """.version 9.0
.target sm_90
.address_size 64
.visible .entry read(.param .u64 t, .param .u64 x, .param .u64 out)
{
    .reg .b64 %rd<5>; .reg .f32 %f<6>; .reg .b32 %r<2>; .reg .pred %p;
    ld.param.u64 %rd1, [t]; ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [out];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4;
    add.u64 %rd2, %rd2, %rd4; add.u64 %rd3, %rd3, %rd4;
    ld.global.f32 %f1, [%rd2]; setp.ne.u32 %p, %r1, 3;
    mov.f32 %f2, 0f40A00000;
    @%p tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1, 0f3F000000}];
    st.global.f32 [%rd3], %f2;
    ret;
}
""".replace("0f3F000000}", "%f0}").replace("mov.f32 %f2", "mov.f32 %f0, 0f3F000000; mov.f32 %f2")
ENGINES = ("reference", "vector", "compiled")


def launch(texture: Any, engine: str, **more: Any) -> Any:
    out = np.zeros(8, np.float32)
    x = np.arange(8, dtype=np.float32) / 2 + 0.25
    Module(PTX)["read"].launch(grid=1, block=8, args=[texture, x, out], engine=engine, **more)
    return out


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_read_a_texture_where_their_guard_holds(engine: str) -> None:
    array = np.array([[0, 256, 512, 768], [1, 2, 3, 4]], np.float32)
    found = launch(Texture(array, filter="linear"), engine)
    assert found.tolist() == [0, 64, 192, 5, 448, 576, 704, 768]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("texture", "said"),
    [
        (123, "the handle 0x7b names no texture"),
        (Texture(np.zeros(4, np.float32)), r"tex\.2d reads Texture\(1d, float32"),
        (Texture(np.zeros((4, 4), np.uint8)), r"type \.f32 reads Texture\(2d, uint8"),
    ],
)
def test_handles_that_do_not_fit_are_errors(texture: Any, said: str, engine: str) -> None:
    with pytest.raises(KernelError, match=said) as caught:
        launch(texture, engine)
    assert "thread (0, 0, 0)" in str(caught.value)


FORMS = """.version 9.0
.target sm_90
.address_size 64
.visible .entry read(.param .u64 t, .param .u64 out)
{
    .reg .b64 %t, %o; .reg .f32 %f<10>; .reg .b32 %r<9>; .reg .pred %p<3>; .reg .b16 %h<3>;
    ld.param.u64 %t, [t]; ld.param.u64 %o, [out];
    mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1; mul.f32 %f1, %f1, 0f3E000000;
    mad.wide.u32 %o, %r1, 32, %o;
    tex.2d.v4.f32.f32 {%f2, %f3, _, _}|%p1, [%t, {%f1, 0f3F000000}], {1, 0}, %f1;
    tld4.g.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%t, {%f1, %f1}];
    tex.level.2d.v2.f16x2.f32 {%r2, %r3}, [%t, {%f1, %f1}], 0f00000000;
    tex.grad.2d.v4.f16.f32 {%h1, %h2, _, _}, [%t, {%f1, %f1}], {%f1, %f1}, {0f3F800000, %f1};
    txq.width.b32 %r4, [%t]; txq.level.height.b32 %r5, [%t], %r1; istypep.texref %p2, %t;
    selp.u32 %r6, 1, 0, %p1; selp.u32 %r7, 1, 0, %p2; cvt.u32.u16 %r8, %h2;
    st.global.f32 [%o], %f2; st.global.f32 [%o+4], %f4; st.global.b32 [%o+8], %r2;
    st.global.u32 [%o+12], %r8; st.global.u32 [%o+16], %r4; st.global.u32 [%o+20], %r5;
    st.global.u32 [%o+24], %r6; st.global.u32 [%o+28], %r7;
    ret;
}
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_forms_of_fetches_and_queries(engine: str) -> None:
    array = np.arange(64, dtype=np.float32).reshape(4, 8, 2)
    texture = Texture(array, channels=2, unit_coordinates=True, filter="linear")
    out = np.zeros((8, 8), np.uint32)
    Module(FORMS)["read"].launch(grid=1, block=8, args=[texture, out], engine=engine)
    assert out[:, 0].view(np.float32).tolist() == [25, 27, 29, 31, 33, 35, 37, 38]
    assert out[:, 1].view(np.float32).tolist() == [1, 17, 19, 37, 39, 57, 59, 61]
    halves = np.array([[0, 1], [1, 2]], np.float16)
    assert out[:2, 2].tolist() == halves.view(np.uint32)[:, 0].tolist()
    assert out[:2, 3].tolist() == halves.view(np.uint16)[:, 1].tolist()
    assert out[:, 4:].tolist() == [[8, 4, 1, 0], *[[8, 0, 1, 0]] * 7]


def test_a_handle_of_a_sampler_names_none() -> None:
    text = PTX.replace("[%rd1, {%f1", "[%rd1, %rd1, {%f1")
    with pytest.raises(KernelError, match="a handle of a sampler names none"):
        Module(text)["read"].launch(
            grid=1, block=8, args=[Texture(np.zeros((4, 4), np.float32)), *[np.zeros(8, "f4")] * 2]
        )


def test_checks_find_nothing_in_a_fetch() -> None:
    launch(Texture(np.zeros((4, 4), np.float32)), "auto", check=True)


def test_texture_needs_a_parameter_of_8_bytes() -> None:
    text = (
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u32 t) { ret; }"
    )
    with pytest.raises(OperandError, match="a Texture is passed as a handle of 8"):
        Module(text)["k"].launch(grid=1, block=1, args=[Texture(np.zeros(4, np.float32))])
