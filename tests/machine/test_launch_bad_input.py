"""Whatever is wrong with a launch is an EmulatorError in few words, and nothing is written."""

import os
from datetime import timedelta

import ml_dtypes
import numpy as np
import pytest

from emulator import EmulatorError, KernelError, Memory, Module, OperandError, TensorMap

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p, .param .f32 a, .param .align 8 .b8 s[16]) REQUIRED
{
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .f32 %f<4>;
    ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2; add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1;
    ret;
}
"""
KERNEL = Module(TEXT.replace("REQUIRED", ".reqntid 32"))["k"]
FREE = Module(TEXT.replace("REQUIRED", ""))["k"]
A = np.zeros(32, "u4")
S = bytes(16)
READ_ONLY = np.zeros(32, "u4")
READ_ONLY.flags.writeable = False


def launch(args=None, grid=1, block=32, kernel=KERNEL, **options):
    return kernel.launch(grid, block, [A, 1.0, S] if args is None else args, **options)


@pytest.fixture(autouse=True)
def nothing_is_written():
    A[:] = 0
    yield
    assert not A.any()


@pytest.mark.parametrize(
    "args, said",
    [
        ([A, 1.0], r"takes 3 arguments \(\.u64 p, \.f32 a, \.b8 s\); 2 are given"),
        ([A, 1.0, S, 3], "4 are given"),
        ({"p": A, "s": S}, "k has parameters that args does not name: a"),
        ({"p": A, "a": 1.0, "q": S}, "no parameter 'q'; parameters are p, a, s"),
        (5, "args is a list"),
        ("abc", "args is a list"),
        (["x", 1.0, S], "argument p is an array"),
        ([A, np.float64(1), S], r"parameter a is \.f32; got float64"),
        ([A, np.int32(1), S], r"parameter a is \.f32"),
        ([A, A, S], "an array is passed as an address of 8"),
        ([A, 1.0, bytes(15)], "16 bytes; 15 are given"),
        ([np.zeros((8, 8), "u4").T[:, :4], 1.0, S], "p is not C-contiguous"),
        ([np.array([object()] * 32), 1.0, S], "p holds object"),
        ([np.ma.masked_array(A, A == 0), 1.0, S], "MaskedArray"),
        ([A.astype(">u4"), 1.0, S], "p holds >u4"),
        ([2**70, 1.0, S], "64 bits"),
    ],
)
def test_arguments(args, said):
    with pytest.raises(OperandError, match=said):
        launch(args)


class Mute:
    """An object that cannot be shown."""

    def __repr__(self):
        raise RuntimeError("no text")


HUGE = 10**5000


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: launch([HUGE, 1.0, S]), "p has 64 bits; got <int>"),
        (lambda: launch([A, HUGE, S]), r"a is \.f32, which has no number as large as <int>"),
        (lambda: launch([A, 1e39, S]), r"a is \.f32, which has no number as large as 1e\+39"),
        (lambda: launch([A, Mute(), S]), "argument a is an array, .* got Mute"),
        (lambda: launch([A, np.timedelta64(1, "s"), S]), "got timedelta64"),
        (lambda: launch(grid=HUGE), "grid along x is 1 … 2147483647; got <int>"),
        (lambda: launch(grid=np.array(1.5)), r"grid has one to three sizes; got array\(1.5\)"),
        (lambda: launch(grid=np.array("1")), "grid has one to three sizes"),
        (lambda: launch(block=np.ones((2, 2), int)), "block has one to three sizes"),
        (lambda: launch(grid=Mute()), "grid has one to three sizes; got <Mute>"),
        (lambda: launch(cluster=[HUGE]), "cluster along x is 1 … 16; got <int>"),
        (lambda: launch(dynamic_shared=HUGE), "takes <int> bytes of shared memory; sm_90a"),
        (lambda: launch(check=np.array([True, False])), "check is True or False; got array"),
        (lambda: launch(counters=Mute()), "counters is True or False; got <Mute>"),
        (lambda: launch(seed=timedelta(1)), "seed is a number from 0 on, or None; got .*timedelta"),
        (lambda: launch(seed=np.timedelta64(1, "s")), "seed is a number from 0 on, or None"),
        (lambda: launch(step_limit=-HUGE), "step_limit is a number from 0 on, or None; got <int>"),
        (lambda: launch(contract=Mute()), "contract is one of .*; got <Mute>"),
        (lambda: launch(engine=np.array(["auto"])), "engine is one of .*; got array"),
        (lambda: KERNEL.module[0], "no kernel 0; kernels are k"),
        (lambda: KERNEL.module[np.array(["k", "k"])], r"no kernel array\(\["),
        (lambda: KERNEL.module[HUGE], "no kernel <int>"),
        (lambda: KERNEL.module.variable([]), r"no variable \[\]; there are none"),
        (lambda: TensorMap.decode(None), "a tensor map is 128 bytes; got None"),
        (lambda: Memory().map(HUGE, A), "an address is 1 … .*; got <int>"),
        (lambda: Memory().map(4096, A, name=7), "a str is needed; got 7"),
    ],
)
def test_what_has_no_text_and_what_no_type_holds(call, said):
    """Integers of more than 4,300 digits cannot be formatted, and some objects neither."""
    with pytest.raises(OperandError, match=said) as caught:
        call()
    assert len(str(caught.value)) < 500


def test_numbers_at_the_edge_of_a_type():
    largest = float(np.finfo("f4").max)
    for value in (largest, -largest, float("inf"), float("nan"), 2**127, 3.4028235677e38):
        launch([np.zeros(32, "u4"), value, S])
    with pytest.raises(OperandError, match="no number as large as"):
        launch([A, 3.4028235678e38, S])
    assert np.array([1, 2]) not in FREE.module and "k" in FREE.module


@pytest.mark.parametrize(
    "first, kind, said",
    [
        (0, "out of bounds", "the null pointer is written"),
        (None, "out of bounds", "the null pointer"),
        (0x10000, "out of bounds", "no allocation is near"),
        (-5, "misaligned", "no multiple of 4"),
        (READ_ONLY, "read-only", r"p\[0\] is written, and it is read-only"),
        (np.zeros(3, "u4"), "out of bounds", "1 byte after the end of p"),
        (np.zeros(0, "u4"), "out of bounds", "after the end of p"),
    ],
)
def test_pointers(first, kind, said):
    with pytest.raises(KernelError, match=said) as caught:
        launch([first, 1.0, S])
    assert caught.value.kind == kind
    assert caught.value.line == TEXT[: TEXT.index("st.global")].count("\n") + 1


def test_a_launch_that_raises_leaves_every_array_as_it_was():
    whole = np.arange(32, dtype="u4")
    small = whole[:16].copy()
    with pytest.raises(KernelError):
        launch([small, 1.0, S])
    assert (small == np.arange(16)).all()


@pytest.mark.parametrize(
    "options, said",
    [
        ({"block": 64}, r"needs blocks of 32 × 1 × 1 threads \(\.reqntid\)"),
        ({"block": 0}, "block along x is 1 … 1024"),
        ({"block": (1, 1, 65)}, "block along z is 1 … 64"),
        ({"grid": 1.5}, "grid has one to three sizes"),
        ({"grid": "1"}, "grid has one to three sizes"),
        ({"grid": None}, "grid has one to three sizes"),
        ({"grid": True}, "grid has one to three sizes"),
        ({"grid": (-1,)}, "grid along x"),
        ({"grid": (1, 1, 1, 1)}, "one to three sizes"),
        ({"grid": (1, 70000)}, "grid along y is 1 … 65535"),
        ({"grid": 2**31 - 1}, "68,719,476,704 threads, which would take hours; step_limit=N"),
        ({"dynamic_shared": 300000}, "sm_90a has 232448"),
        ({"dynamic_shared": -1}, "number of bytes"),
        ({"dynamic_shared": "5"}, "number of bytes"),
        ({"grid": 3, "cluster": 2}, "no multiple of clusters of 2"),
        ({"grid": 32, "cluster": 32}, "cluster along x is 1 … 16"),
        ({"cluster": "x"}, "cluster has one to three sizes"),
        ({"memory": 5}, "memory is a Memory; got int"),
        ({"step_limit": -1}, "step_limit is a number"),
        ({"step_limit": "x"}, "step_limit is a number"),
        ({"seed": 1.5}, "seed is a number"),
        ({"progress": 5}, "progress is called"),
        ({"engine": 7}, "engine is one of"),
        ({"check": "yes"}, "check is True or False"),
        ({"check": True, "engine": "reference"}, "the reference engine has no checks"),
    ],
)
def test_options(options, said):
    with pytest.raises(EmulatorError, match=said):
        launch(**options)


def test_a_billion_threads():
    with pytest.raises(OperandError, match="1,073,741,824 threads"):
        launch(grid=1 << 20, block=1024, kernel=FREE)
    with pytest.raises(KernelError, match="out of bounds"):
        launch(grid=1 << 20, block=1024, kernel=FREE, step_limit=10**6)


@pytest.mark.parametrize(
    "change, said",
    [
        ((".version 8.0", ".version 12.0"), "PTX 12.0; the newest known here is 9.5"),
        (("sm_90a", "sm_130"), "no target 'sm_130'"),
        (("ret;", ".local .b8 big[5000000000]; ret;"), "5,000,000,000 bytes of local memory"),
        ((".visible", ".global .b8 g[90000000000000];\n.visible"), "90,000,000,000,000 bytes"),
        (("%f<4>", "%f<400000000>"), "a range of 400000000 names"),
        (("ret;\n}", "re"), "expected"),
    ],
)
def test_texts(change, said):
    with pytest.raises(EmulatorError, match=said):
        launch(kernel=Module(TEXT.replace("REQUIRED", "").replace(*change))["k"])


def test_files(tmp_path):
    binary = tmp_path / "binary.ptx"
    binary.write_bytes(bytes(range(256)) * 20)
    for source, said in (
        (binary, "expected '.version'"),
        ("nofile.ptx", "cannot read 'nofile.ptx': No such file"),
        ("", "expected '.version'"),
        ("\x7fELF\n" + "x" * 10**6, "expected '.version'"),
        (os.urandom(1000).decode("latin1"), "line"),
        (b"abc", "PTX text or a path"),
        (None, "PTX text or a path"),
    ):
        with pytest.raises(EmulatorError, match=said) as caught:
            Module(source)
        assert len(str(caught.value)) < 4000


def test_memory():
    for address, array, said in (
        (0, A, "an address is 1"),
        ("x", A, "an address is 1 … 562949953421311; got 'x'"),
        (5, "x", "is an array"),
        (1 << 49, A, "an address is 1"),
    ):
        with pytest.raises(OperandError, match=said):
            Memory().map(address, array)
    memory = Memory()
    memory.map(4096, np.zeros(100, ml_dtypes.bfloat16))
    with pytest.raises(OperandError, match="overlap memory at 0x1000"):
        memory.map(4100, A)
