"""``mma`` and ``gemm``: the same bits as ``execute``, for arrays and for codes."""

import ml_dtypes
import numpy as np
import pytest

from dtypes import FORMATS, code_type, decode_values, encode
from emulator import (
    Instruction,
    OperandError,
    UndefinedError,
    UnsupportedError,
    compress,
    execute,
    gemm,
    mma,
)

F16 = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
OPCODES = [
    str(F16),
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16",
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32",
    "mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32",
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64.rp",
]


def random_codes(fmt, shape, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True).astype(
        code_type(fmt.bits)
    )


@pytest.mark.parametrize("opcode", OPCODES)
def test_mma_is_execute(opcode):
    ins = Instruction.parse(opcode)
    fragments = {x: ins.fragment(x) for x in "abcd"}
    matrices = [
        random_codes(fragments[x].fmt, (5, *fragments[x].shape), seed)
        for seed, x in enumerate("abc")
    ]
    registers = [fragments[x].scatter(m) for x, m in zip("abc", matrices, strict=True)]
    want = fragments["d"].gather(execute(ins, *registers, target="sm_90a"))
    assert np.array_equal(mma(ins, *matrices, target="sm_90a", codes=True), want)


@pytest.mark.parametrize("layouts", ["row.row", "row.col", "col.row", "col.col"])
def test_quad_computes_one_of_four(layouts):
    ins = Instruction.parse(f"mma.sync.aligned.m8n8k4.{layouts}.f32.f16.f16.f16")
    matrices = [
        random_codes(ins.fragment(x).fmt, (4, *ins.fragment(x).shape), seed)
        for seed, x in enumerate("abc")
    ]
    registers = [ins.fragment(x).scatter(m) for x, m in zip("abc", matrices, strict=True)]
    for target in ("sm_70", "sm_75", "sm_90a"):
        got = mma(ins, *matrices, target=target, codes=True)
        want = ins.fragment("d").gather(execute(ins, *registers, target=target))
        assert np.array_equal(got, want)


def test_arrays_in_arrays_out():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((16, 16)).astype(np.float16)
    b = rng.standard_normal((16, 8)).astype(np.float16)
    d = mma(F16, a, b, target="H100")
    assert d.dtype == np.float32
    codes = mma(F16, a.view(np.uint16), b.view(np.uint16), target="sm_90a", codes=True)
    assert np.array_equal(d.view(np.uint32), codes)

    fp8 = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32")
    a8 = rng.standard_normal((2, 16, 32)).astype(ml_dtypes.float8_e4m3fn)
    b8 = rng.standard_normal((32, 8)).astype(ml_dtypes.float8_e5m2)
    assert mma(fp8, a8, b8, np.ones((16, 8), np.float32), target="sm_89").shape == (2, 16, 8)

    int4 = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.s32.s4.u4.s32")
    a4 = rng.integers(-8, 8, (16, 32)).astype(ml_dtypes.int4)
    b4 = rng.integers(0, 16, (32, 8)).astype(ml_dtypes.uint4)
    exact = a4.astype(np.int32) @ b4.astype(np.int32)
    assert np.array_equal(mma(int4, a4, b4, target="sm_80"), exact)


def test_sparse_full_and_compressed_agree():
    ins = Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
    rng = np.random.default_rng(3)
    full = np.zeros((16, 32), np.int8)
    nibbles = rng.choice([0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110], (16, 8)).astype(np.uint8)
    stored = rng.integers(-128, 128, (16, 16)).astype(np.int8)
    for row in range(16):
        for chunk in range(8):
            low, high = nibbles[row, chunk] & 3, nibbles[row, chunk] >> 2
            full[row, 4 * chunk + low] = stored[row, 2 * chunk]
            full[row, 4 * chunk + high] = stored[row, 2 * chunk + 1]
    b = rng.integers(-128, 128, (32, 8)).astype(np.int8)
    want = full.astype(np.int32) @ b.astype(np.int32)
    assert np.array_equal(mma(ins, full, b, target="sm_80"), want)
    assert np.array_equal(mma(ins, stored, b, target="sm_80", nibbles=nibbles), want)
    full[3, 4:8] = 1
    with pytest.raises(OperandError, match=r"row 3, columns 4…7 .* 4 non-zero elements.* 2 of 4"):
        mma(ins, full, b, target="sm_80")


def test_gemm_is_a_chain_of_mma():
    rng = np.random.default_rng(4)
    a = rng.standard_normal((20, 50)).astype(np.float16)
    b = rng.standard_normal((50, 11)).astype(np.float16)
    c = rng.standard_normal((20, 11)).astype(np.float32)
    padded_a, padded_b = np.zeros((32, 64), np.float16), np.zeros((64, 16), np.float16)
    want = np.zeros((32, 16), np.float32)
    padded_a[:20, :50], padded_b[:50, :11], want[:20, :11] = a, b, c
    for k in range(0, 64, 16):
        for i in (0, 16):
            for j in (0, 8):
                tile = np.s_[i : i + 16, j : j + 8]
                want[tile] = mma(
                    F16, padded_a[i : i + 16, k : k + 16], padded_b[k : k + 16, j : j + 8],
                    want[tile], target="sm_80",
                )  # fmt: skip
    got = gemm(a, b, c, instruction=F16, target="sm_80")
    assert np.array_equal(got.view(np.uint32), want[:20, :11].view(np.uint32))
    reference = gemm(a, b, c, instruction=str(F16), target="sm_80", engine="reference")
    assert np.array_equal(got.view(np.uint32), reference.view(np.uint32))


def test_gemm_edges():
    ones = np.ones((3, 4), np.float16)
    assert gemm(ones, ones.T, instruction=F16, target="sm_80").tolist() == [[4.0] * 3] * 3
    empty = gemm(np.ones((3, 0), np.float16), np.ones((0, 2), np.float16), instruction=F16,
                 target="sm_80")  # fmt: skip
    assert empty.tolist() == [[0.0, 0.0]] * 3
    batch = gemm(np.ones((2, 3, 4), np.float16), ones.T, instruction=F16, target="sm_80")
    assert batch.shape == (2, 3, 3)


def test_fp8_differs_between_generations():
    """The reason why target= must be given: one PTX line, other bits (13 fraction bits on Ada)."""
    ins = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
    a = np.zeros((16, 32))
    a[0, :3] = [256, 1, 0.015625]
    codes = encode(FORMATS["e4m3"], a), encode(FORMATS["e4m3"], np.ones((32, 8)))
    values = {
        target: float(
            decode_values(FORMATS["f32"], mma(ins, *codes, target=target, codes=True))[0, 0]
        )
        for target in ("sm_89", "sm_90a")
    }
    assert values == {"sm_89": 257.0, "sm_90a": 257.015625}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (np.zeros((16, 15), np.float16), np.zeros((16, 8), np.float16)),
            r"A must be \(…, 16, 16\)",
        ),
        (
            (np.zeros((16, 16), np.float32), np.zeros((16, 8), np.float16)),
            "A: f16 elements come as",
        ),
        ((np.zeros((16, 16), np.float16), np.zeros(16, np.float16)), "B must be"),
        (([[1.0], [1.0, 2.0]], np.zeros((16, 8))), "A: the rows of the list are not of one length"),
        (([[0.5] * 16] * 16, np.zeros((16, 8))), r"got float64; np.array\(A, np.float16\) makes"),
    ],
)
def test_bad_matrices(arguments, words):
    with pytest.raises(OperandError, match=words):
        mma(F16, *arguments, target="sm_80")


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ("m8n8k32.row.col.s32.s4.s4.s32", r"int4; got int16; .*astype\(ml_dtypes.int4\), or pass"),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", r"float32; got int16; .*astype\(np.float32\)"),
    ],
)
def test_types_are_named_with_their_module(types, words):
    ins = Instruction.parse(f"mma.sync.aligned.{types}")
    with pytest.raises(OperandError, match=words):
        mma(ins, np.ones((ins.m, ins.k), np.int16), None, target="sm_80")


def test_an_opcode_is_an_instruction():
    a, b = np.ones((16, 16), np.float16), np.eye(16, 8, dtype=np.float16)
    assert np.array_equal(mma(str(F16), a, b, target="sm_80"), mma(F16, a, b, target="sm_80"))
    assert (mma("SM80_16x8x16_F32F16F16F32_TN", a, b, target="sm_80") == 1).all()
    with pytest.raises(OperandError, match="or its opcode as text; got float, ndarray, ndarray"):
        mma(1.5, a, b, target="sm_80")


SPARSE = Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")


def test_metadata_words_and_nibbles_of_mma():
    full = np.zeros((16, 32), np.float16)
    full[:, 1::4] = np.arange(128).reshape(16, 8)
    b = np.arange(256).reshape(32, 8).astype(np.float16)
    want = full.astype(np.float32) @ b.astype(np.float32)
    stored, e = compress(SPARSE, full.view(np.uint16))
    a, options = stored.view(np.float16), {"target": "sm_80"}
    nibbles = SPARSE.fragment("e").gather(e[..., None])[0]
    assert np.array_equal(mma(SPARSE, a, b, nibbles=nibbles, **options), want)
    with pytest.raises(OperandError, match=r"or compressed \(…, 16, 16\) with nibbles= \(…, 16, 8"):
        mma(SPARSE, a, b, **options)
    with pytest.raises(OperandError, match=r'fragment\("e"\).gather\(e\[..., None\]\)\[..., sel'):
        mma(SPARSE, a, b, nibbles=e, **options)
    with pytest.raises(OperandError, match=r"A is unsigned .* got float16 .*use \.view"):
        compress(SPARSE, full)


def test_undefined_metadata_as_the_hardware_does():
    a, b = np.ones((16, 16), np.float16), np.arange(256).reshape(32, 8).astype(np.float16)
    nibbles = np.full((16, 8), 0b0101, np.uint8)
    with pytest.raises(UndefinedError, match=r"0001, 0010, 0011, .*mma with undefined='hardware'"):
        mma(SPARSE, a, b, nibbles=nibbles, target="sm_90a")
    # Both stored elements meet element 1 of each chunk of B.
    d = mma(SPARSE, a, b, nibbles=nibbles, target="sm_90a", undefined="hardware")
    assert np.array_equal(d, np.broadcast_to(2 * b[1::4].sum(0, dtype=np.float32), d.shape))
    with pytest.raises(OperandError, match="undefined= is 'raise' or 'hardware'; got 'x'"):
        mma(SPARSE, a, b, nibbles=nibbles, target="sm_90a", undefined="x")


def test_block_scales_of_their_own_type():
    ins = Instruction.parse(
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X"
        ".f32.e2m1.e2m1.f32.ue8m0"
    )
    a, b = (np.ones(shape).astype(ml_dtypes.float4_e2m1fn) for shape in ((16, 64), (64, 8)))
    scale_a, scale_b = np.full((16, 2), 2.0), np.full((2, 8), 0.5)
    typed = {"scale_a": scale_a.astype(ml_dtypes.float8_e8m0fnu)}
    typed["scale_b"] = scale_b.astype(ml_dtypes.float8_e8m0fnu)
    assert (mma(ins, a, b, target="sm_120a", **typed) == 64).all()
    codes = {name: array.view(np.uint8) for name, array in typed.items()}
    assert (mma(ins, a, b, target="sm_120a", **codes) == 64).all()
    with pytest.raises(OperandError, match=r"scale_a: element codes are .* got float64"):
        mma(ins, a, b, target="sm_120a", scale_a=scale_a, scale_b=scale_b)


def test_batches_that_do_not_fit():
    a, b = np.zeros((2, 16, 16), np.float16), np.zeros((3, 16, 8), np.float16)
    with pytest.raises(OperandError, match=r"batch axes do not broadcast: A \(2, 16, 16\)"):
        mma(F16, a, b, target="sm_80")
    with pytest.raises(OperandError, match="batch axes"):
        gemm(a, b, instruction=F16, target="sm_80")


def test_bad_codes_and_options():
    b1 = Instruction.parse("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc")
    bits = np.ones((8, 128), np.uint8)
    with pytest.raises(OperandError, match="code 0x2 does not fit the 1 bits of b1"):
        mma(b1, bits * 2, bits.T, target="sm_80", codes=True)
    with pytest.raises(OperandError, match="unsigned integers"):
        mma(b1, bits.astype(np.int8), bits.T, target="sm_80", codes=True)
    with pytest.raises(OperandError, match="not sparse"):
        mma(b1, bits, bits.T, target="sm_80", codes=True, nibbles=bits)
    with pytest.raises(OperandError, match="no block scales"):
        mma(b1, bits, bits.T, target="sm_80", codes=True, scale_a=bits)
    with pytest.raises(OperandError, match=r"b1 .*uint8; pass 0 and 1 as uint8 with codes=True"):
        mma(b1, bits, bits.T, target="sm_80")
    with pytest.raises(UnsupportedError, match="C and D are of one type"):
        gemm(bits, bits.T, instruction="mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16",
             target="sm_70")  # fmt: skip
