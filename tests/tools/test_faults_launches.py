"""The fault finder on whole kernels: mistakes planted in a GEMM are named from a launch alone."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from emulator import Descriptor, Module, OperandError, TensorMap, UnsupportedError, find_faults
from emulator.tools.faults.meant import Meant
from emulator.tools.guide import pages

pytestmark = pytest.mark.sampled(2)

KERNEL = Module(Path(__file__).parents[1] / "cuda" / "gemm_mma.ptx")["product"]
RNG = np.random.default_rng(0)
A, B = (RNG.standard_normal((32, 64)).astype("f2") for _ in "ab")
WANT = A.astype("f4") @ B.astype("f4").T
#: bytes of a row of A, bytes of a step along k, bits of the swizzle, a row of C, a pair of columns
RIGHT = (144, 32, 7, 32, 2)
BOTH = {"grid": 1, "block": 128}


def faults(*how, kernel=KERNEL, expected=WANT, **more):
    C = np.zeros((32, 32), "f4")
    return find_faults(
        kernel, args=[A, B, C, 32, A.shape[1], *how], expected=expected, **BOTH, **more
    )


@pytest.mark.parametrize(
    ("type_", "right", "wrong"),
    [
        ("float32", 2.0**-9, 2.0**-8), ("float16", 2.0**-9 + 2.0**-11, 2.0**-8),
        ("bfloat16", 2.0**-8 + 2.0**-9, 2.0**-7), ("float8_e4m3fn", 2.0**-4, 2.0**-3),
        ("int32", 0, 2.0**-9),
    ],
)  # fmt: skip
def test_rounding_explains_as_much_as_the_type_of_c_loses(type_, right, wrong):
    """Of one product, 1: half a unit of C, and 2**-9 for the sum, which integers have exactly."""
    one = np.ones((1, 1), "f4")
    stored = one.astype(getattr(ml_dtypes, type_, type_))
    for off, told in ((right, False), (-right, False), (wrong, True), (-wrong, True)):
        assert Meant(one, one, one + np.float32(off), "C", stored).wrong.item() == told


def test_a_right_kernel_has_no_faults():
    report = faults(*RIGHT)
    assert not len(report) and report.code == 0 and not report.wrong
    assert "8 tiles of C, 0 with a wrong A" in str(report)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("how", "detail"),
    [
        ((128, 32, 7, 32, 2), "addresses of A: rows 144 bytes apart instead of 128: the padding of "
         "16 bytes behind each row is left out"),
        ((144, 16, 7, 32, 2), "addresses of A: steps along k 32 bytes apart instead of 16"),
        ((144, 32, 3, 32, 2), "addresses of B: the 128-byte swizzle counted from its start instead "
         "of the 64-byte swizzle, as the tile is stored"),
        ((144, 32, 7, 16, 2), "C: rows stored 16 elements apart instead of 32"),
        ((144, 32, 7, 32, 1), "C: column + lane % 4 where column + lane % 4 * 2 belongs"),
    ],
)  # fmt: skip
def test_one_wrong_number_is_named(how, detail):
    report = faults(*how)
    assert [x.detail for x in report] == [detail]
    assert report[0].exact and report[0].tiles == 8 and report.code == 0
    assert report[0].line.startswith("gemm_mma.cu:") and report.data["faults"][0]["tiles"] == 8


@pytest.mark.slow
def test_two_mistakes_in_two_operands_are_both_named():
    """In a loop that fills shared memory twice."""
    a, b = (RNG.standard_normal((32, 128)).astype("f2") for _ in "ab")
    report = find_faults(KERNEL, args=[a, b, np.zeros_like(WANT), 32, 128, 128, 32, 0, 32, 2],
                         expected=a.astype("f4") @ b.astype("f4").T, **BOTH)  # fmt: skip
    assert [x.fault.operand for x in report] == ["a", "b"]
    assert "swizzle" in report[1].detail and "padding" in report[0].detail


def test_a_loop_that_ends_early_is_named():
    C = np.zeros((32, 32), "f4")
    report = find_faults(KERNEL, args=[A, B, C, 32, 64, *RIGHT], expected=2 * WANT,
                         a=np.hstack([A, A]), b=np.hstack([B, B]).T, **BOTH)  # fmt: skip
    assert [x.detail for x in report] == [
        "4 of 8 steps along k are made: columns 64-79 of A are the first left out"
    ]


@pytest.mark.slow
def test_what_is_missing_is_said():
    with pytest.raises(OperandError, match=r"missing is grid=, block="):
        find_faults(KERNEL, args=[], expected=WANT)
    with pytest.raises(OperandError, match="expected=, the C that is right"):
        find_faults(KERNEL, grid=1, block=1, args=[])
    with pytest.raises(OperandError, match=r"the launch should write one array of this shape"):
        faults(*RIGHT, expected=WANT[:5])
    with pytest.raises(OperandError, match=r"give the matrices that are meant"):
        faults(*RIGHT, expected=np.ones((32, 32)))
    with pytest.raises(OperandError, match=r"a= .* and b= .* go together"):
        faults(*RIGHT, a=A)
    with pytest.raises(OperandError, match=r"takes what launch takes: .*'blocks'"):
        faults(*RIGHT, blocks=3)
    kernel = Module(""".version 8.0
            .target sm_80
            .address_size 64
            .visible .entry nothing(.param .u64 c) { ret; }""")["nothing"]
    with pytest.raises(UnsupportedError, match="executes no dense mma or wgmma"):
        find_faults(kernel, grid=1, block=32, args=[np.zeros((8, 8), "f4")], expected=WANT)


WGMMA = re.search(r'text = """(.*?)"""', pages()["tma"], re.DOTALL)[1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "swizzle", "stride", "detail"),
    [
        (("", ""), 64, 1024, "descriptor of A: swizzle 128B instead of 64B"),
        (("", ""), 128, 512, "descriptor of A: stride byte offset (SBO) is 1024 instead of 512"),
        (("add.u64 %db, %db, 2", "add.u64 %db, %db, 4"), 128, 1024,
         "descriptor of B: steps along k 32 bytes apart instead of 64: as a K-major tile lies"),
        (("[%to + 256]", "[%to + 248]"), 128, 1024, None),
    ],
)  # fmt: skip
def test_descriptors_of_wgmma(change, swizzle, stride, detail):
    b = RNG.standard_normal((8, 64)).astype("f2")
    a, d = RNG.standard_normal((64, 64)).astype("f2"), np.zeros((64, 8), "f4")
    maps = [TensorMap.tiled(x, box=(64, len(x)), swizzle="128B") for x in (a, b)]
    word, right = (
        int(Descriptor(0, stride_byte_offset=x, swizzle_bytes=y).encode())
        for x, y in ((stride, swizzle), (1024, 128))
    )
    kernel = Module(WGMMA.replace(*change) if change[0] else WGMMA)["product"]
    report = find_faults(kernel, grid=1, block=128, args=[*maps, d, word, right],
                         expected=a.astype("f4") @ b.T.astype("f4"))  # fmt: skip
    assert report.tiles["tiles of C"] == 1 and report.wrong
    if detail is None:
        assert report.code == 1 and "no usual mistake explains how it was stored" in str(report)
    else:
        assert [x.detail for x in report] == [detail]
