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


def test_checks_find_nothing_in_a_fetch() -> None:
    launch(Texture(np.zeros((4, 4), np.float32)), "auto", check=True)


def test_texture_needs_a_parameter_of_8_bytes() -> None:
    text = (
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u32 t) { ret; }"
    )
    with pytest.raises(OperandError, match="a Texture is passed as a handle of 8"):
        Module(text)["k"].launch(grid=1, block=1, args=[Texture(np.zeros(4, np.float32))])
