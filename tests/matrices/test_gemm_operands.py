"""`gemm` of sparse and block-scaled instructions, and its orders of k, against loops of `mma`."""

import importlib
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from bits import assert_same_codes
from designed import any_bits, of_exponent

from dtypes import FORMATS, code_type, encode
from emulator import Instruction, OperandError, UndefinedError, UnsupportedError, gemm, mma
from emulator.arith.fast.wide import add
from emulator.matrices import scales as scale_layouts

sparse_tiles = importlib.import_module("emulator.matrices.sparse_tiles")
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SP = "mma.sp::ordered_metadata.sync.aligned."
SPARSE = {
    "f16": (SP + "m16n8k32.row.col.f32.f16.f16.f32", "sm_90a"),
    "f16 run of 8": (SP + "m16n8k32.row.col.f32.f16.f16.f32", "sm_80"),
    "f16 to f16": (SP + "m16n8k16.row.col.f16.f16.f16.f16", "sm_90a"),
    "tf32": (SP + "m16n8k16.row.col.f32.tf32.tf32.f32", "sm_90a"),
    "e4m3 in two f16 steps": (SP + "m16n8k64.row.col.f32.e4m3.e5m2.f32", "sm_90a"),
    "s8": (SP + "m16n8k64.row.col.satfinite.s32.s8.u8.s32", "sm_90a"),
    "s4": (SP + "m16n8k128.row.col.s32.s4.s4.s32", "sm_80"),
    "e4m3 wgmma": ("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3", "sm_90a"),
}
KIND = "row.col.kind::{}.block_scale.scale_vec::{}X.f32.{}.{}.f32.{}"
SCALED = {
    "mxf8": "mma.sync.aligned.m16n8k32." + KIND.format("mxf8f6f4", 1, "e4m3", "e5m2", "ue8m0"),
    "mxf4": "mma.sync.aligned.m16n8k64." + KIND.format("mxf4", 2, "e2m1", "e2m1", "ue8m0"),
    "nvf4": "mma.sync.aligned.m16n8k64." + KIND.format("mxf4nvf4", 4, "e2m1", "e2m1", "ue4m3"),
    "mxf8 sparse": SP + "m16n8k64." + KIND.format("mxf8f6f4", 1, "e4m3", "e3m2", "ue8m0"),
    "nvf4 sparse": SP + "m16n8k128." + KIND.format("mxf4nvf4", 4, "e2m1", "e2m1", "ue4m3"),
}
ENGINES = ("vector", "compiled")
each_engine = pytest.mark.parametrize("engine", ENGINES)


def codes_near_one(rng, fmt, size):
    if fmt.is_float:
        return of_exponent(rng, fmt, rng.integers(-3, 3, size)).astype(code_type(fmt.bits))
    return any_bits(rng, fmt, size)


def drawn(ins, m, n, steps, seed=0):
    """A that satisfies the pattern, B, C, scale_a, scale_b: scales differ from step to step."""
    rng = np.random.default_rng(seed)
    k = ins.k * steps
    a = codes_near_one(rng, FORMATS[ins.a_type], (m, k))
    b = codes_near_one(rng, FORMATS[ins.b_type], (k, n))
    c = codes_near_one(rng, FORMATS[ins.d_type], (m, n))
    if ins.is_sparse:
        granule = max(1, ins.chunk // 4)
        count = ins.chunk // granule
        key = rng.random((m, k // ins.chunk, count))
        kept = key >= np.sort(key, -1)[..., count // 2, None]
        a = a * np.repeat(kept, granule, -1).reshape(m, k).astype(a.dtype)
    scales = ()
    if ins.is_block_scaled:
        fmt, v = FORMATS[ins.scale_type], ins.scale_chunks * steps
        middle = fmt.bias << fmt.mantissa_bits
        sizes = (m, v), (v, n)
        scales = tuple((middle + rng.integers(-9, 9, s)).astype(np.uint8) for s in sizes)
    return a, b, c, scales


def loop(ins, target, a, b, c, scales=()):
    """`mma` on tiles of m rows and n columns, one after the other along k."""
    d = np.empty_like(c)
    v = ins.scale_chunks
    for row in range(0, c.shape[0], ins.m):
        for column in range(0, c.shape[1], ins.n):
            rows, columns = slice(row, row + ins.m), slice(column, column + ins.n)
            x = c[rows, columns]
            for step in range(a.shape[1] // ins.k):
                part, own = slice(step * ins.k, (step + 1) * ins.k), slice(step * v, (step + 1) * v)
                given = {}
                if scales:
                    given = {"scale_a": scales[0][rows, own], "scale_b": scales[1][own, columns]}
                x = mma(ins, a[rows, part], b[part, columns], x, target=target, codes=True,
                        engine="vector", **given)  # fmt: skip
            d[rows, columns] = x
    return d


@pytest.mark.sampled(3)
@each_engine
@pytest.mark.parametrize("name", SPARSE)
def test_sparse(name, engine):
    if engine == "compiled":
        pytest.importorskip("llvmlite")
    text, target = SPARSE[name]
    ins = Instruction.parse(text)
    a, b, c, _ = drawn(ins, 2 * ins.m, 2 * ins.n, 3)
    want = loop(ins, target, a, b, c)
    given = {"instruction": ins, "target": target, "codes": True, "engine": engine}
    assert_same_codes(gemm(a, b, c, **given), want, c=c)
    stored, nibbles = sparse_tiles.compressed(ins, a, None)
    assert stored.shape == (a.shape[0], a.shape[1] // 2)
    assert_same_codes(gemm(stored, b, c, nibbles=nibbles, **given), want, c=c)
    # k is filled up, and rows and columns need not be those of whole instructions.
    cut = ins.k + ins.chunk
    want = loop(ins, target, *(np.pad(x[:, :cut] if x is a else x[:cut],
                                      [(0, 0), (0, 2 * ins.k - cut)][:: 1 if x is a else -1])
                               for x in (a, b)), c)  # fmt: skip
    got = gemm(a[: ins.m + 1, :cut], b[:cut, :5], c[: ins.m + 1, :5], **given)
    assert_same_codes(got, want[: ins.m + 1, :5])
    slots = nibbles.shape[1] * cut // a.shape[1]
    got = gemm(stored[:, : cut // 2], b[:cut], c, nibbles=nibbles[:, :slots], **given)
    assert_same_codes(got, want)


@each_engine
@pytest.mark.parametrize("name", SCALED)
def test_block_scaled(name, engine):
    if engine == "compiled":
        pytest.importorskip("llvmlite")
    ins = Instruction.parse(SCALED[name])
    a, b, c, scales = drawn(ins, 32, 16, 3)
    given = {"instruction": ins, "target": "sm_120a", "codes": True, "engine": engine}
    want = loop(ins, "sm_120a", a, b, c, scales)
    got = gemm(a, b, c, scale_a=scales[0], scale_b=scales[1], **given)
    assert_same_codes(got, want, c=c)
    swapped = [np.flip(x, axis) for x, axis in zip(scales, (1, 0), strict=True)]
    other = gemm(a, b, c, scale_a=swapped[0], scale_b=swapped[1], **given)
    with pytest.raises(AssertionError, match="codes differ"):  # the planted error
        assert_same_codes(other, want)
    stacked = gemm(np.stack([a, a]), b, c, scale_a=np.stack([scales[0], swapped[0]]),
                   scale_b=np.stack([scales[1], swapped[1]]), **given)  # fmt: skip
    assert_same_codes(stacked, np.stack([want, other]))


def test_the_reference_says_the_same():
    for text, target in (SPARSE["f16"], (SCALED["nvf4 sparse"], "sm_120a")):
        ins = Instruction.parse(text)
        a, b, c, scales = drawn(ins, 3, 2, 2)
        named = dict(zip(("scale_a", "scale_b"), scales, strict=False))
        d = [gemm(a, b, c, instruction=ins, target=target, codes=True, engine=e, **named)
             for e in ("reference", "vector")]  # fmt: skip
        assert_same_codes(*d)


def test_scales_in_types_of_ml_dtypes_and_a_last_block_that_is_not_whole():
    """A is e4m3 and 80 long: 3 blocks of 32, the last of 16."""
    rng = np.random.default_rng(4)
    # So small that float64 and every step of the chain are exact.
    a, b = (rng.integers(-8, 9, s).astype(ml_dtypes.float8_e4m3fn) for s in ((20, 80), (80, 7)))
    mxf8 = SCALED["mxf8"].replace("e5m2", "e4m3")
    scale_a, scale_b = (2.0 ** rng.integers(-2, 3, s) for s in ((20, 3), (3, 7)))
    typed = [x.astype(ml_dtypes.float8_e8m0fnu) for x in (scale_a, scale_b)]
    got = gemm(a, b, instruction=mxf8, target="sm_120a", scale_a=typed[0], scale_b=typed[1])
    exact = (a.astype(float) * np.repeat(scale_a, 32, 1)[:, :80]) @ (
        b.astype(float) * np.repeat(scale_b, 32, 0)[:80]
    )
    assert np.array_equal(got, exact)
    four = encode(FORMATS["e2m1"], rng.standard_normal((20, 64)))
    given = {"instruction": SCALED["nvf4"], "target": "sm_120a", "codes": True}
    codes = rng.integers(8, 100, (2, 20, 4), np.uint8)
    want = gemm(four, four.T, scale_a=codes[0], scale_b=codes[1].T, **given)
    typed = codes.view(ml_dtypes.float8_e4m3fn)
    assert_same_codes(gemm(four, four.T, scale_a=typed[0], scale_b=typed[1].T, **given), want)
    negative = (codes[0] | 0x80).view(ml_dtypes.float8_e4m3fn)
    with pytest.raises(OperandError, match=r"scale_a: code .* does not fit the 7 bits of ue4m3"):
        gemm(four, four.T, scale_a=negative, scale_b=typed[1].T, **given)


def in_tiles(codes):
    """PTX ISA: row r, block b at byte 16 (r % 32) + 4 (r // 32) + b of a tile of 512 bytes."""
    row, block = np.indices(codes.shape)
    high, wide = -(-codes.shape[0] // 128), -(-codes.shape[1] // 4)
    tiles = np.zeros(high * wide * 512, codes.dtype)
    tile = row // 128 * wide + block // 4
    tiles[tile * 512 + 16 * (row % 32) + 4 * (row % 128 // 32) + block % 4] = codes
    return tiles


def test_scales_in_tiles_of_128x4():
    rng = np.random.default_rng(5)
    ins = Instruction.parse(SCALED["nvf4"])
    a, b, c, scales = drawn(ins, 150, 9, 2)
    given = {"instruction": ins, "target": "sm_120a", "codes": True}
    want = gemm(a, b, c, scale_a=scales[0], scale_b=scales[1], **given)
    tiled = [in_tiles(x) for x in (scales[0], scales[1].T)]
    got = gemm(a, b, c, scale_a=tiled[0], scale_b=tiled[1], scale_layout="128x4", **given)
    assert_same_codes(got, want)
    shaped = tiled[0].reshape(2, 2, 32, 4, 4).view(ml_dtypes.float8_e4m3fn)
    got = gemm(a, b, c, scale_a=shaped, scale_b=tiled[1], scale_layout="128x4", **given)
    assert_same_codes(got, want)
    for rows, count in ((1, 1), (128, 4), (129, 5), (300, 9)):
        codes = rng.integers(0, 255, (rows, count), np.uint8)
        got = scale_layouts.from_tiles_of_128x4(in_tiles(codes), rows, count)
        assert np.array_equal(got, codes)
    with pytest.raises(OperandError, match=r"150 rows of 8 scales fill 2 × 2 tiles.* 2048 codes"):
        gemm(a, b, c, scale_a=scales[0], scale_b=tiled[1], scale_layout="128x4", **given)


@pytest.mark.parametrize(("change", "words"), [
    ({"scale_b": None}, "needs scale_a= and scale_b=, ue8m0 for every 32 elements of k"),
    ({"scale_a": np.zeros((16, 2), np.uint8)}, r"scale_a must be \(…, 16, 3\); got \(16, 2\)"),
    ({"scale_a": np.zeros((16, 3))}, "scale_a: element codes are unsigned integers; got float64"),
])  # fmt: skip
def test_wrong_scales_are_refused(change, words):
    a, b = np.zeros((16, 96), np.uint8), np.zeros((96, 8), np.uint8)
    given = {"scale_a": np.zeros((16, 3), np.uint8), "scale_b": np.zeros((3, 8), np.uint8)}
    with pytest.raises(OperandError, match=words):
        gemm(a, b, instruction=SCALED["mxf8"], target="sm_120a", codes=True, **given | change)


# --- sparse: what is not stored has no effect -----------------------------------------------------


@pytest.mark.parametrize("name", ("f16", "f16 to f16", "tf32"))
def test_infinities_that_are_not_selected_have_no_effect(name):
    text, target = SPARSE[name]
    ins = Instruction.parse(text)
    fmt = FORMATS[ins.b_type]
    a, b, c, _ = drawn(ins, ins.m + 3, 2 * ins.n, 2, seed=1)
    infinity = fmt.infinity
    b[3, 1], b[40 % len(b), 6], b[9, 6], b[5, 2] = (
        infinity, infinity, infinity | fmt.sign_mask, infinity + (1 << fmt.ignored_bits),
    )  # fmt: skip
    a[1, 4] = infinity  # times a zero or an infinity: a NaN; else an infinity
    a[1, 5:8] = 0
    padded = np.pad(a, [(0, ins.m - 3), (0, 0)])
    want = loop(ins, target, padded, b, np.pad(c, [(0, ins.m - 3), (0, 0)]))[: ins.m + 3]
    got = gemm(a, b, c, instruction=ins, target=target, codes=True)
    assert_same_codes(got, want, c=c)
    assert len(np.unique(got[:, 1] & 0x7F80)) > 1  # not all of the column is special


def test_metadata_that_is_not_defined_and_a_that_is_not_sparse():
    text, target = SPARSE["f16"]
    a = np.zeros((16, 16), np.uint16)
    b = np.zeros((32, 8), np.uint16)
    nibbles = np.full((16, 8), 0b0100, np.uint8)
    given = {"instruction": text, "target": target, "codes": True}
    gemm(a, b, nibbles=nibbles, **given)
    nibbles[3, 5] = 0b0101
    gemm(a, b, nibbles=nibbles, **given)  # over stored zeros
    a[3, 10] = 1
    with pytest.raises(
        UndefinedError, match=r"metadata of row 3, chunk 5 is 0b0101; mma.sp.* defines"
    ):
        gemm(a, b, nibbles=nibbles, **given)
    with pytest.raises(OperandError, match=r"nibbles must be \(…, 16, 8\); got \(16, 7\)"):
        gemm(a, b, nibbles=nibbles[:, :7], **given)
    with pytest.raises(OperandError, match="A stores 2 elements for each nibble; got 15 columns"):
        gemm(a[:, :15], b[:30], nibbles=nibbles, **given)
    with pytest.raises(OperandError, match="nibbles are integers; got float64"):
        gemm(a, b, nibbles=nibbles * 1.0, **given)
    full = np.ones((16, 64), np.uint16)
    with pytest.raises(OperandError, match="row 0, columns 0…3 of A have 4 non-zero"):
        gemm(full, np.zeros((64, 8), np.uint16), **given)


# --- orders along k -------------------------------------------------------------------------------


def in_parts(a, b, c, parts, **given):
    """Chains of some positions of k each, their sums added in order."""
    total = None
    for positions in parts:
        x = gemm(a[:, positions], b[positions], c if total is None else None, **given)
        total = x if total is None else add(FORMATS["f32"], total, x)
    return total


@pytest.mark.parametrize("split_k", (2, 3, 5, 40))
def test_split_k(split_k):
    ins = Instruction.parse(F16)
    a, b, c, _ = drawn(ins, 9, 10, 7, seed=2)
    given = {"instruction": ins, "target": "sm_90a", "codes": True}
    count = min(split_k, 7)
    cuts = [i * 7 // count * 16 for i in range(count + 1)]
    parts = [np.arange(x, y) for x, y in pairwise(cuts)]
    got = gemm(a, b, c, split_k=split_k, **given)
    assert_same_codes(got, in_parts(a, b, c, parts, **given))
    step = np.arange(7 * 16) // 16
    slices = [np.flatnonzero(step % count == i) for i in range(count)]
    sliced = gemm(a, b, c, split_k=split_k, order="sliced", **given)
    assert_same_codes(sliced, in_parts(a, b, c, slices, **given))
    with pytest.raises(AssertionError, match="codes differ"):
        assert_same_codes(got, gemm(a, b, c, **given))


def test_split_k_with_promotion_scales_and_empty_sides():
    ins = Instruction.parse(SCALED["mxf8"])
    a, b, c, scales = drawn(ins, 16, 8, 4, seed=3)
    named = dict(zip(("scale_a", "scale_b"), scales, strict=True))
    given = {"instruction": ins, "target": "sm_120a", "codes": True}
    got = gemm(a, b, c, split_k=2, k_promote=32, **named, **given)
    halves = []
    for i in range(2):
        k, v = slice(64 * i, 64 * i + 64), slice(2 * i, 2 * i + 2)
        halves.append(gemm(a[:, k], b[k], None if i else c, scale_a=scales[0][:, v],
                           scale_b=scales[1][v], k_promote=32, **given))  # fmt: skip
    assert_same_codes(got, add(FORMATS["f32"], *halves))
    empty = np.zeros((3, 0), np.uint16), np.zeros((0, 5), np.uint16)
    d = gemm(*empty, instruction=F16, target="sm_90a", codes=True, split_k=4)
    assert d.shape == (3, 5) and not d.any()


def test_dask_takes_none_of_these():
    da = pytest.importorskip("dask.array")
    a = da.zeros((16, 32), dtype=np.float16)
    with pytest.raises(UnsupportedError, match="Dask arrays takes dense"):
        gemm(a, a.T, instruction=SPARSE["f16"][0], target="sm_90a")
    with pytest.raises(UnsupportedError, match="Dask arrays takes dense"):
        gemm(a, a.T, instruction=F16, target="sm_90a", split_k=2)
