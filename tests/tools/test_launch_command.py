"""``python -m emulator launch``: arguments, files, what it shows and refuses."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from paths import CUDA

from emulator import EmulatorError
from emulator.__main__ import main
from emulator.machine import compiling
from emulator.machine.compiling import compile_cuda
from emulator.tools.launching import launch_command

pytestmark = pytest.mark.sampled(3)

SCALE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 a)
{
    .reg .b64 %x, %y, %i; .reg .f32 %v, %a; .reg .b32 %t, %n, %b;
    ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.f32 %a, [a];
    mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x; mov.u32 %b, %ctaid.x; mad.lo.u32 %t, %b, %n, %t;
    mul.wide.u32 %i, %t, 4; add.u64 %x, %x, %i; add.u64 %y, %y, %i;
    ld.global.f32 %v, [%x]; mul.f32 %v, %v, %a; st.global.f32 [%y], %v;
    ret;
}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scale.ptx").write_text(SCALE)
    np.save("x.npy", np.arange(64, dtype="f4"))
    return tmp_path


def test_arrays_from_and_to_files(folder, capsys):
    words = "launch scale.ptx scale --grid 2 --block 32 --arg x.npy --arg zeros:f4:8x8:y.npy"
    assert main([*words.split(), "--arg", "2.5", "--counters"]) == 0
    assert (np.load("y.npy") == 2.5 * np.arange(64).reshape(8, 8)).all()
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("scale on sm_80: ")
    assert out[1:5] == [
        "argument  value          changed   file   changed to",
        "0         float32 64     0 of 64",
        "1         float32 8 × 8  63 of 64  y.npy  2.5 5 7.5 … 152.5 155 157.5",
        "2         2.5",
    ]
    assert "blocks: 2" in out and "threads: 64" in out


def test_an_array_that_is_changed_in_place(folder):
    launch_command("scale.ptx", block="64", arg=["x.npy:x.npy", "x.npy", "2"])
    assert (np.load("x.npy") == np.arange(64)).all()  # the second array was written
    launch_command("scale.ptx", block="64", arg=["x.npy", "x.npy:z.npy", "2"])
    assert (np.load("z.npy") == 2 * np.arange(64)).all()


@pytest.mark.parametrize(
    "text, values",
    [
        ("ones:bfloat16:4", [1, 1, 1, 1]),
        ("arange:f4:2x2", [[0, 1], [2, 3]]),
        ("zeros:u1:3", [0, 0, 0]),
    ],
)
def test_arrays_that_are_made(text, values):
    from emulator.tools.launching import _argument

    made = _argument(text, None).value
    assert made.astype(float).tolist() == values


def test_random_arrays_have_a_seed():
    from emulator.tools.launching import _argument

    one, other, third = (_argument("random:f4:9", seed).value for seed in (None, 0, 1))
    assert (one == other).all() and (one != third).any()
    assert len(set(_argument("random:u1:1000", 3).value.tolist())) > 200


def test_json(folder, capsys):
    words = "launch scale.ptx --block 64 --arg x.npy --arg zeros:f4:64 --arg 3 --json"
    assert main(words.split()) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["kernel"] == "scale" and data["counters"]["threads"] == 64
    assert data["arguments"][1] == {
        "index": "1", "value": "float32 64", "changed": "63 of 64", "file": "",
            "changed to": "3 6 9 … 183 186 189",
    }  # fmt: skip


def test_problems(folder, capsys):
    assert main(["launch", "scale.ptx", "--problems"]) == 0
    fetch = "applypriority.async.bulk;"
    Path("tex.ptx").write_text(SCALE.replace("    ret;", f"    {fetch}\n    ret;"))
    assert main(["launch", "tex.ptx", "--problems"]) == 1
    assert "'applypriority.async.bulk' is legal PTX, not modelled here" in capsys.readouterr().out


RIGHT = "scale.ptx --block 8 --arg x.npy --arg zeros:f4:8"


@pytest.mark.parametrize(
    "words, said",
    [
        ("nothing.ptx", "cannot read"),
        ("scale.ptx scal3", "no kernel 'scal3'; kernels are scale; nearest is 'scale'"),
        ("scale.ptx --grid 0", "grid along x is 1"),
        ("scale.ptx --grid a,b", "--grid is one to three numbers such as 8,8; got 'a,b'"),
        ("scale.ptx --block 2048", "block"),
        ("scale.ptx --arg zero:f4:4", "nearest is 'zeros'"),
        ("scale.ptx --arg zeros:f4", "--arg is zeros:TYPE:SHAPE"),
        ("scale.ptx --arg zeros:g4:4", "no element type 'g4'"),
        ("scale.ptx --arg zeros:O:4", "elements are numbers"),
        ("scale.ptx --arg zeros:f4:4xx4", "a shape is numbers"),
        ("scale.ptx --arg random:f4:4 --seed -1", "--seed is 0 or more; got -1"),
        ("scale.ptx --arg zeros:f8:99999999999999", "has more than 8,589,934,592 bytes"),
        ("scale.ptx --arg missing.npy", "cannot read 'missing.npy'"),
        ("scale.ptx --arg scale.ptx.npy", "is no .npy file of an array"),
        ("scale.ptx --arg x.npy", "scale takes 3 arguments"),
        ("scale.ptx --target sm_75", "sm_75 cannot run"),
        (f"scale.ptx --arg zeros:f4:{'x'.join('1' * 100)}", "a shape has at most 32 sizes"),
        ("scale.ptx --arg zeros:f4:0x999999999999x999999999999", "has more than 8,589,934,592"),
        ("scale.ptx --arg zeros:f4,,:4", "no element type 'f4,,'"),
        ("scale.ptx --arg random:>i4:4", "no element type '>i4'"),
        (f"scale.ptx --arg {'9' * 5000}", "is larger than every number of a kernel"),
        (f"scale.ptx --arg -{'9' * 5000}", "is larger than every number of a kernel"),
        ("scale.ptx --arg 1e400", "--arg '1e400' is larger than every number of a kernel"),
        ("scale.ptx --arg loop.npy", "cannot read 'loop.npy': Too many levels of symbolic links"),
        (f"{RIGHT}:loop.npy --arg 1", "cannot write 'loop.npy': Too many levels of symbolic links"),
        (
            f"{RIGHT} --arg 1 --html loop.npy/x",
            "cannot write 'loop.npy/x': Too many levels of symbolic",
        ),
    ],
)
def test_mistakes_are_told(folder, capsys, words, said):
    Path("scale.ptx.npy").write_text("not an array")
    Path("loop.npy").symlink_to("loop.npy")
    assert main(["launch", *words.split()]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error) < 1000


def test_output_that_cannot_be_written(folder, capsys):
    words = "launch scale.ptx --block 64 --arg x.npy --arg zeros:f4:64:no/where.npy --arg 1"
    assert main(words.split()) == 2
    assert "cannot write 'no/where.npy'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["launch", "check"])
@pytest.mark.parametrize("last", ["--arg 1 --html no/where.html", "--arg 1 --html /dev/full"])
def test_of_two_outputs_none_is_replaced_where_one_cannot_be_written(folder, command, last):
    before = Path("x.npy").read_bytes()
    words = f"{command} scale.ptx --block 64 --arg x.npy:x.npy --arg zeros:f4:64:y.npy {last}"
    assert main(words.split()) == 2
    assert Path("x.npy").read_bytes() == before
    assert sorted(x.name for x in folder.iterdir()) == ["scale.ptx", "x.npy"]


@pytest.mark.parametrize(
    "words, said",
    [
        ("--arg zeros:f4:64:scale.ptx", "'scale.ptx' is read, too; name another file to write"),
        ("--arg zeros:f4:64:./link.ptx", "'./link.ptx' is read, too"),
        ("--arg zeros:f4:64:x.npy", "'x.npy' is read, too"),
        ("--arg zeros:f4:64 --html scale.ptx", "'scale.ptx' is read, too"),
        ("--arg zeros:f4:64:new.npy --html new.npy", "'new.npy' is written twice"),
        ("--arg x.npy:new.npy --arg x.npy:new.npy", "'new.npy' is written twice"),
    ],
)
def test_an_output_is_no_input_and_no_other_output(folder, capsys, words, said):
    Path("link.ptx").symlink_to("scale.ptx")
    before = {x.name: x.read_bytes() for x in folder.iterdir()}
    assert main(["launch", "scale.ptx", "--block", "64", "--arg", "x.npy", *words.split()]) == 2
    assert said in capsys.readouterr().err
    assert {x.name: x.read_bytes() for x in folder.iterdir()} == before


# --- expectations ---------------------------------------------------------------------------------

LAUNCH = "launch scale.ptx --block 64 --arg x.npy --arg zeros:f4:64 --arg 2"


@pytest.mark.parametrize(
    ("expect", "code", "said"),
    [
        ("ref.npy", 0, "as expected: ref.npy"),
        ("1:ref.npy", 0, "as expected: 1:ref.npy"),
        ("0:ref.npy", 1, "argument 0: 63 of 64 elements of f32 differ"),
        ("off.npy", 1, "argument 1: 2 of 64 elements of f32 differ"),
        ("off.npy:ulps=3", 1, "argument 1: 1 of 64 elements of f32 differ"),
        ("off.npy:ulps=4", 1, "NaN vs number: 1"),
        ("near.npy:ulps=2", 1, "2 to 16 ulps: 1"),
        ("near.npy:ulps=3", 0, "as expected: near.npy:ulps=3"),
    ],
)
def test_expectations(folder, capsys, expect, code, said):
    want = 2 * np.arange(64, dtype="f4")
    np.save("ref.npy", want)
    near = want.copy()
    near.view("u4")[5] += 3
    np.save("near.npy", near)
    near[7] = np.nan
    np.save("off.npy", near)
    for command in (LAUNCH, LAUNCH.replace("launch", "check", 1)):
        assert main([*command.split(), "--expect", expect]) == code
        assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("ref", "--expect is REF.npy, N:REF.npy"),
        ("2:x.npy", "argument 2 is no array"),
        ("9:x.npy", "argument 9 is no array"),
        ("small.npy", "none have its shape (3,)"),
        ("1:small.npy", "'1:small.npy' is float32 (3,); argument 1 is float32 (64,)"),
        ("whole.npy", "is int32 (64,); argument 1 is float32 (64,)"),
        ("absent.npy", "absent.npy"),
    ],
)
def test_expectations_that_make_no_sense(folder, capsys, expect, said):
    np.save("small.npy", np.zeros(3, "f4"))
    np.save("whole.npy", np.zeros(64, "i4"))
    assert main([*LAUNCH.split(), "--expect", expect]) == 2
    assert said in capsys.readouterr().err


def test_expectations_as_json(folder, capsys):
    np.save("ref.npy", np.zeros(64, "f4"))
    assert main([*LAUNCH.split(), "--expect", "ref.npy", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["expected"]
    assert found["differences"]["count"] == 63


def test_the_mistake_of_a_product_by_name(folder, capsys):
    """Rows of A are read without their padding: the command names the flag, and the mistake."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((32, 64)).astype("f2") for _ in "ab")
    np.save("a.npy", a)
    np.save("b.npy", b)
    np.save("ref.npy", a.astype("f4") @ b.astype("f4").T)
    words = ["launch", str(CUDA / "gemm_mma.ptx"), "--block", "128"]
    values = ["a.npy", "b.npy", "zeros:f4:32x32:c.npy", "32", "64", "128", "32", "7", "32", "2"]
    words += [word for value in values for word in ("--arg", value)]
    assert main([*words, "--faults"]) == 2
    assert "--faults takes one --expect" in capsys.readouterr().err
    words += ["--expect", "ref.npy:ulps=99999"]
    assert main(words) == 1
    assert capsys.readouterr().out.endswith("\n--faults names the mistake of a matrix product\n")
    assert main([*words, "--faults"]) == 1
    told = capsys.readouterr().out
    assert "the padding of 16 bytes behind each row is left out" in told
    assert "changed to" in told and np.load("c.npy").any()
    assert main([*words, "--faults", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["faults"]["faults"]


# --- tensor maps ----------------------------------------------------------------------------------

LOAD = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry load(.param .align 64 .b8 map[128], .param .u64 out)
{
    .reg .b64 %map, %out; .reg .b32 %v, %t, %at; .reg .pred %done;
    .shared .align 1024 .b8 tile[1024]; .shared .align 8 .b64 full;
    cvta.param.u64 %map, map; ld.param.u64 %out, [out]; mov.u32 %t, 0;
    mbarrier.init.shared.b64 [full], 1; fence.proxy.async;
    mbarrier.arrive.expect_tx.shared.b64 _, [full], 32;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [tile], [%map, {4, 3}], [full];
WAIT: mbarrier.try_wait.parity.shared.b64 %done, [full], 0; @!%done bra WAIT;
NEXT: mov.u32 %at, tile; add.u32 %at, %at, %t; ld.shared.u32 %v, [%at];
    st.global.u32 [%out], %v; add.u64 %out, %out, 4; add.u32 %t, %t, 4;
    setp.lt.u32 %done, %t, 32; @%done bra NEXT;
    ret;
}
"""


@pytest.mark.parametrize("array", ["tensormap:arange:f4:6x8", "tensormap:a.npy"])
def test_a_tensor_map(folder, array):
    """The box has its rows first, as the shape: 2 rows of 4, from row 3 and column 4 on."""
    Path("load.ptx").write_text(LOAD)
    a = np.arange(48, dtype="f4").reshape(6, 8)
    np.save("a.npy", a)
    words = ["--arg", f"{array}:box=2x4", "--arg", "zeros:f4:2x4:d.npy"]
    assert main(["launch", "load.ptx", *words]) == 0
    assert (np.load("d.npy") == a[3:5, 4:8]).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tensormap:arange:f4:6x8", "--arg is tensormap:A.npy:box=64x64"),
        ("tensormap:box=4x4", "--arg is tensormap:A.npy:box=64x64"),
        ("tensormap:arange:f4:6x8:box=4x4:swizle=32B", "nearest is 'swizzle'"),
        ("tensormap:arange:f4:6x8:box=4xa", "box is one to five numbers"),
        ("tensormap:3:box=4x4", "a tensor map is of an array"),
        ("tensormap:arange:f4:6x8:box=4x4:swizzle=33B", "swizzle"),
        ("tensormap:arange:f4:6x8:box=4", "box"),
    ],
)
def test_tensor_maps_that_make_no_sense(folder, capsys, text, said):
    Path("load.ptx").write_text(LOAD)
    assert main(["launch", "load.ptx", "--arg", text, "--arg", "zeros:f4:4x4"]) == 2
    assert said in capsys.readouterr().err


# --- CUDA C++ -------------------------------------------------------------------------------------

ADD = (
    'extern "C" __global__ void add(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] += 1; }'
)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_cuda_by_nvcc(folder):
    Path("add.cu").write_text(ADD)
    launch_command("add.cu", block="32", arg=["ones:f4:32:y.npy", "8"])
    assert np.load("y.npy").tolist() == [2] * 8 + [1] * 24
    Path("wrong.cu").write_text("int f(")
    with pytest.raises(EmulatorError, match=r"nvcc refuses 'wrong.cu':\n.*error"):
        compile_cuda("wrong.cu", "sm_90a")


def test_cuda_by_nvrtc(folder, monkeypatch):
    library = compiling._nvrtc()
    if library is None:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    monkeypatch.setattr(compiling, "_nvcc", lambda: None)
    Path("add.cu").write_text(ADD)
    launch_command("add.cu", block="32", arg=["ones:f4:32:y.npy", "8"])
    assert np.load("y.npy").tolist() == [2] * 8 + [1] * 24
    Path("wrong.cu").write_text("int f(")
    with pytest.raises(EmulatorError, match="NVRTC refuses"):
        compile_cuda("wrong.cu", "sm_90a")


def test_cuda_without_a_compiler(folder, monkeypatch):
    Path("add.cu").write_text(ADD)
    monkeypatch.setattr(compiling, "_nvcc", lambda: None)
    monkeypatch.setattr(compiling, "_nvrtc", lambda: None)
    with pytest.raises(EmulatorError, match="pip install nvidia-cuda-nvrtc"):
        compile_cuda("add.cu", "sm_90a")


MACROS = """
#include "add.cuh"
template <int N> __global__ void k(int *x) {
    if constexpr (N > 1) x[blockIdx.x] = ADDED + N + VALUE;
}
template __global__ void k<32>(int *);
template __global__ void k<64>(int *);
"""


@pytest.mark.parametrize("command", ["launch", "check"])
def test_macros_headers_and_the_version_of_cuda(folder, command):
    if compiling._nvcc() is None and compiling._nvrtc() is None:
        pytest.skip("no compiler of CUDA C++ is installed")
    Path("k.cu").write_text(MACROS)
    Path("headers").mkdir()
    Path("headers/add.cuh").write_text("constexpr int ADDED = 1000;")
    words = f"{command} k.cu k<64> --grid 2 --arg zeros:i4:2:x.npy"
    assert main([*words.split(), "-DVALUE=7", "-Iheaders", "-std=c++17"]) == 0
    assert np.load("x.npy").tolist() == [1071, 1071]
    assert main([*words.split(), "-D", "VALUE=8", "-I", "headers", "--std", "c++17"]) == 0
    assert np.load("x.npy").tolist() == [1072, 1072]


def test_options_of_the_compiler_are_for_cuda(folder, capsys):
    assert main(["launch", "scale.ptx", "-DN=3", "--compiler-option=-G"]) == 2
    assert "-DN=3 -G is for the compiler of CUDA C++ (.cu); 'scale.ptx' is PTX" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_the_recorded_ptx_is_what_nvcc_makes():
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    made = compile_cuda(CUDA / "system.cu", "sm_80").text
    statements = [line for line in made.splitlines() if line.strip().endswith(";")]
    kept = (CUDA / "system.ptx").read_text()
    assert sum(line in kept for line in statements) > 0.9 * len(statements)


def test_progress_goes_to_a_terminal_alone(folder):
    words = [sys.executable, "-m", "emulator", "launch", "scale.ptx", "--block", "64"]
    words += ["--arg", "x.npy", "--arg", "zeros:f4:64", "--arg", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""
