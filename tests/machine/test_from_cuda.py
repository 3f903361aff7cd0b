"""`Module.from_cuda`: CUDA C++ by nvcc or NVRTC, its flags, and kernels by their names in C++."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from emulator import EmulatorError, Module
from emulator.machine import compiling
from emulator.machine.compiling import contract_of
from emulator.machine.mangling import find_mangled

FUSED = """
extern "C" __global__ void k(float *x) {
    int i = threadIdx.x;
    // As written in CUDA C++, nvcc itself would fuse it, or write the .rn that forbids it.
    asm("{ .reg .f32 p; mul.f32 p, %0, %0; add.f32 %0, p, %1; }" : "+f"(x[i]) : "f"(x[i + 32]));
}
template <int N, typename T> __global__ void scale(T *x) { x[threadIdx.x] *= N; }
template __global__ void scale<32, float>(float *);
template __global__ void scale<3, float>(float *);
namespace ours { template <bool B> __global__ void flag(int *x) { *x = B; } }
template __global__ void ours::flag<true>(int *);
template __global__ void ours::flag<false>(int *);
"""
nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


@pytest.mark.parametrize(
    ("options", "contract"),
    [
        ("", "ptxas"),
        ("-O3 -DTILE=64", "ptxas"),
        ("-fmad=false", "none"),
        ("--fmad false", "none"),
        ("-fmad=false -fmad=true", "ptxas"),
        ("-use_fast_math -fmad=false", "none"),
        ("-fmad=false --use_fast_math", "ptxas"),
        ("-G", "O0"),
        ("--device-debug -fmad=true", "O0"),
        ("-Xptxas -O0", "O0"),
        ("-Xptxas=-O0", "O0"),
        ("--ptxas-options=-O0 -fmad=false", "O0"),
        ("-Xptxas -O1", "ptxas"),
    ],
)
def test_flags(options, contract):
    assert contract_of(options.split()) == contract


@nvcc
@pytest.mark.slow
def test_flags_set_how_a_launch_contracts(tmp_path):
    x = np.random.default_rng(0).standard_normal(64).astype("f4")
    product = x[:32] * x[:32] + x[32:]
    fused = (x[:32].astype("f8") ** 2 + x[32:]).astype("f4")
    assert (product != fused).any()
    file = tmp_path / "k.cu"
    file.write_text(FUSED)
    for source, options, want in (
        (FUSED, (), fused), (file, ("-fmad=false",), product), (str(file), ("-G",), product),
    ):  # fmt: skip
        module = Module.from_cuda(source, "sm_90a", options)
        assert module.compiler.startswith("nvcc V")
        assert len(module["k"].contracted) == (want is fused)
        given = x.copy()
        module["k"].launch(1, 32, [given])
        assert given[:32].tobytes() == want.tobytes()
        given = x.copy()
        module["k"].launch(1, 32, [given], contract="ptxas")
        assert "-G" in options or given[:32].tobytes() == fused.tobytes()
    assert module["scale<32, float>"].name == "_Z5scaleILi32EfEvPT0_"
    assert module["scale<3>"].name == "_Z5scaleILi3EfEvPT0_"
    assert module["ours::flag<true>"].name == "_ZN4ours4flagILb1EEEvPi"


def test_nvrtc(monkeypatch):
    if compiling._nvrtc() is None:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    monkeypatch.setattr(compiling, "_nvcc", lambda: None)
    module = Module.from_cuda(FUSED, options=["-fmad=false"])
    assert module.compiler.startswith("NVRTC 13") and module.contract == "none"


KERNELS = (
    "_Z1kILi32EfEvPT0_", "_Z1kILi3EfEvPT0_", "_Z1kILin3E6__halfEvPT0_", "_Z2kkILi32EfEvPT0_",
    "_ZN1n1kIdEEvPT_", "_ZN12_GLOBAL__N_11pI6__halfS1_EEvv", "_Z1sILj4E5ModelPKfEvv", "plain",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("k<32>", [0]),
        ("k<32, float>", [0]),
        ("k< 3 ,float >", [1]),
        ("k<-3, half>", [2]),
        ("kk<32>", [3]),
        ("n::k<double>", [4]),
        ("k<double>", [4]),
        ("p<half, half>", [5]),
        ("s<4u, Model, const float*>", [6]),
        ("s<4u, Model, float const*>", [6]),
        ("s<4, Model>", [6]),
        ("k<2>", []),
        ("<", []),
        ("k<(((", []),
    ],
)
def test_names_of_cxx(name, places):
    assert find_mangled(name, KERNELS) == [KERNELS[i] for i in places]


def test_mistakes(tmp_path, monkeypatch):
    with pytest.raises(EmulatorError, match=r"'k.cu' is CUDA C\+\+: Module.from_cuda compiles it"):
        Module("k.cu")
    with pytest.raises(EmulatorError, match=r"CUDA C\+\+: Module.from_cuda"):
        Module(Path("k.cuh"))
    for options in ("-O3", [3], [b"-O3"]):
        with pytest.raises(EmulatorError, match="options is a sequence of words"):
            Module.from_cuda(FUSED, options=options)
    with pytest.raises(EmulatorError, match=r"CUDA C\+\+ is text or a path; got int"):
        Module.from_cuda(3)
    with pytest.raises(EmulatorError, match=r"absent\.cu"):
        Module.from_cuda(tmp_path / "absent.cu")
    monkeypatch.setattr(compiling, "_nvcc", lambda: None)
    monkeypatch.setattr(compiling, "_nvrtc", lambda: None)
    with pytest.raises(EmulatorError, match="pip install nvidia-cuda-nvrtc"):
        Module.from_cuda(FUSED)
