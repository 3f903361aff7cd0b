"""`gemm`: the main loop of a kernel, in tiles; written into a given array, interrupted, resumed.

What it must give is an explicit loop of `mma` over k, tile by instruction tile.
"""

import importlib
import itertools

import ml_dtypes
import numpy as np
import pytest
from bits import assert_same_codes
from designed import any_bits, of_exponent

from dtypes import FORMATS, array_from_codes, array_type, code_type, encode
from emulator import EmulatorError, Instruction, OperandError, gemm, mma
from emulator.arith.fast.wide import add
from emulator.matrices import tiles

pytestmark = pytest.mark.sampled(3)

#: `emulator.gemm` is the function
module = importlib.import_module("emulator.matrices.gemm")
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
HALF = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
FP8 = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
#: instruction and target
EACH = {
    "f16": (F16, "sm_90a"),
    "f16 run of 8": (HALF, "sm_80"),
    "bf16": ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_80"),
    "tf32": ("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", "sm_90a"),
    "e4m3 wgmma": (FP8, "sm_90a"),
    "e4m3 in two f16 steps": ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90a"),
    "f64": ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_80"),
    "f64 toward -inf": ("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64.rm", "sm_90a"),
    "s8": (S8, "sm_80"),
    "s8 satfinite": ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", "sm_80"),
    "b1": ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc", "sm_80"),
    "quad": ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_80"),
}
each = pytest.mark.parametrize("name", EACH)


def drawn(ins, m, n, k, seed=0, batches=((), (), ())):
    """Codes of numbers near one another, so that every accumulation rounds."""
    rng = np.random.default_rng(seed)
    sizes = (m, k), (k, n), (m, n)
    out = []
    for x, size, batch in zip("abc", sizes, batches, strict=True):
        fmt = ins.fragment(x).fmt if x != "b" or not ins.is_wgmma else FORMATS[ins.b_type]
        size = (*batch, *size)
        if fmt.is_float:
            out.append(of_exponent(rng, fmt, rng.integers(-4, 4, size)))
        else:
            c = any_bits(rng, fmt, size)
            out.append(c | fmt.code_mask >> 1 if x == "c" else c)  # .satfinite clamps
    return out


def loop(ins, target, a, b, c, promote=None):
    """Matrices padded to whole instructions; one `mma` for all tiles after the other along k."""
    (m, k), n = a.shape, b.shape[1]
    rows, columns, depth = (
        -(-size // step) * step for size, step in ((m, ins.m), (n, ins.n), (k, ins.k))
    )
    a, b, c = (
        np.pad(x, [(0, big - size) for big, size in zip(shape, x.shape, strict=True)])
        for x, shape in ((a, (rows, depth)), (b, (depth, columns)), (c, (rows, columns)))
    )
    a = a.reshape(rows // ins.m, 1, ins.m, depth)
    b = b.reshape(depth, columns // ins.n, ins.n).swapaxes(0, 1)
    x = total = c.reshape(rows // ins.m, ins.m, columns // ins.n, ins.n).swapaxes(1, 2)
    for at in range(0, depth, ins.k):
        if promote and at % promote == 0:
            x = np.zeros_like(x)
        end = at + ins.k
        part = a[..., at:end], b[:, at:end]
        x = mma(ins, *part, x, target=target, codes=True, engine="vector")
        if promote and (end % promote == 0 or end == depth):
            total = add(FORMATS["f32"], total, x)
    return (total if promote else x).swapaxes(1, 2).reshape(rows, columns)[:m, :n]


def check(name, m, n, k, engine="auto", **options):
    text, target = EACH[name]
    ins = Instruction.parse(text)
    operands = drawn(ins, m, n, k)
    before = [x.copy() for x in operands]
    d = gemm(*operands, instruction=ins, target=target, codes=True, engine=engine, **options)
    assert_same_codes(d, loop(ins, target, *operands, options.get("k_promote")), c=operands[2])
    assert all(np.array_equal(x, y) for x, y in zip(operands, before, strict=True))
    return d


# --- sizes and orders -----------------------------------------------------------------------------


@each
@pytest.mark.parametrize("sizes", [(17, 9, 70), (3, 20, 33)], ids=str)
def test_a_loop_of_instructions(name, sizes):
    check(name, *sizes)


@each
def test_engines_agree(name):
    pytest.importorskip("llvmlite")
    check(name, 9, 18, 65, engine="compiled")
    check(name, 2, 2, 33, engine="reference")


@pytest.mark.parametrize("sizes", [*itertools.product((0, 1, 3), repeat=3)], ids=str)
def test_empty_sides(sizes):
    """k = 0 leaves C, whatever it holds: no instruction is executed."""
    m, n, k = sizes
    ins = Instruction.parse(F16)
    a, b, c = drawn(ins, m, n, k)
    c[...] = 0x80000000
    d = gemm(a, b, c, instruction=ins, target="sm_80", codes=True)
    assert_same_codes(d, loop(ins, "sm_80", a, b, c))
    assert gemm(a, b, instruction=ins, target="sm_80", codes=True).shape == (m, n)
    assert_same_codes(gemm(a, b, c, instruction=ins, target="sm_80", codes=True, k_promote=16),
                      loop(ins, "sm_80", a, b, c, 16))  # fmt: skip


def test_c_is_zero_where_none_is_given():
    a, b, c = drawn(Instruction.parse(F16), 5, 6, 20)
    given = {"instruction": F16, "target": "sm_80", "codes": True}
    assert_same_codes(gemm(a, b, **given), gemm(a, b, c * 0, **given))


@pytest.mark.parametrize(("name", "k", "promote"), [
    ("e4m3 wgmma", 300, 128), ("e4m3 wgmma", 256, 128), ("e4m3 wgmma", 64, 128),
    ("e4m3 in two f16 steps", 150, 64), ("f16", 100, 48), ("tf32", 30, 8), ("quad", 18, 8),
])  # fmt: skip
def test_promoted_partial_sums(name, k, promote):
    promoted = check(name, 6, 7, k, k_promote=promote)
    if k > promote:
        text, target = EACH[name]
        operands = drawn(Instruction.parse(text), 6, 7, k)
        chained = gemm(*operands, instruction=text, target=target, codes=True)
        assert not np.array_equal(promoted, chained)


def test_the_loop_would_show_another_order(monkeypatch):
    """The planted error: k in another order, which a tolerance would not see."""

    def backwards(order, a, b, c):
        return tiles.accumulate(order, a[..., ::-1], b[..., ::-1, :], c)

    monkeypatch.setattr(module, "accumulate", backwards)
    with pytest.raises(AssertionError, match="codes differ"):
        check("f16", 17, 9, 70)


@pytest.mark.parametrize("promote", (None, 32))
def test_tiles_segments_and_pieces_change_nothing(promote, monkeypatch):
    ins = Instruction.parse(F16)
    operands = drawn(ins, 37, 21, 100, batches=((2, 3), (3,), (2, 1)))
    given = {"instruction": ins, "target": "sm_90a", "codes": True, "k_promote": promote}
    whole = gemm(*operands, **given)
    for tile, segment, batch in ((16, 32, 1), (7, 16, 500), (8, 48, 1 << 20), (1000, 64, 1600)):
        monkeypatch.setattr(tiles, "TILE", tile)
        monkeypatch.setattr(tiles, "SEGMENT", segment)
        monkeypatch.setattr(tiles, "BATCH", batch)
        assert_same_codes(gemm(*operands, **given), whole)


BATCHES = [
    # leading axes of A, B and C
    ((3,), (3,), (3,)), ((3,), (), ()), ((), (), (3,)), ((2, 1), (3,), ()), ((1,), (1, 1), ()),
    ((1, 3), (2, 1), (2, 3)), ((0,), (), ()), ((2, 0), (0,), (1,)),
]  # fmt: skip


@pytest.mark.parametrize("engine", ("vector", "auto"))
@pytest.mark.parametrize("batches", BATCHES, ids=str)
def test_batches_broadcast(batches, engine):
    ins = Instruction.parse(F16)
    operands = drawn(ins, 9, 10, 40, batches=batches)
    d = gemm(*operands, instruction=ins, target="sm_80", codes=True, engine=engine)
    batch = np.broadcast_shapes(*batches)
    spread = [np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in operands]
    assert d.shape == (*batch, 9, 10)
    for index in np.ndindex(batch):
        assert_same_codes(d[index], loop(ins, "sm_80", *(x[index] for x in spread)))


@each
def test_arrays_in_and_out(name):
    text, target = EACH[name]
    ins = Instruction.parse(text)
    fmt = ins.arithmetic(target)
    a, b, c = drawn(ins, 9, 10, 40)
    arrays = [array_from_codes(f, x) for f, x in ((fmt.a, a), (fmt.b, b), (fmt.c, c))]
    d = gemm(*arrays, instruction=text, target=target)
    assert d.dtype == array_type(fmt.d)
    want = gemm(a, b, c, instruction=text, target=target, codes=True)
    assert_same_codes(d.view(want.dtype), want)


def test_types_of_ml_dtypes():
    rng = np.random.default_rng(1)
    a = rng.standard_normal((20, 40)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((40, 10)).astype(ml_dtypes.float8_e4m3fn)
    d = gemm(a, b, instruction=FP8, target="sm_90a", k_promote=32)
    exact = a.astype(float) @ b.astype(float)
    assert d.dtype == np.float32 and abs(d - exact).max() < 0.1
    codes = encode(FORMATS["e4m3"], a.astype(float)), encode(FORMATS["e4m3"], b.astype(float))
    got = gemm(*codes, instruction=FP8, target="sm_90a", k_promote=32, codes=True)
    assert_same_codes(got, d.view(code_type(32)))


# --- what is refused ------------------------------------------------------------------------------

ONES = np.ones((4, 16), np.float16)


@pytest.mark.parametrize(("change", "words"), [
    ({"b": ONES}, r"B must be \(…, 16, n\); got \(4, 16\)"),
    ({"c": np.zeros((4, 5), np.float32)}, r"C must be \(…, 4, 4\); got \(4, 5\)"),
    ({"a": np.ones(16, np.float16)}, r"A must be \(…, m, k\); got \(16,\)"),
    ({"a": ONES.astype(np.float32)}, "A: f16 elements come as float16; got float32"),
    ({"c": np.zeros((4, 4))}, "C: f32 elements come as float32; got float64"),
    ({"a": np.ones((2, 4, 16), np.float16), "b": np.ones((3, 16, 4), np.float16)},
     r"batch axes do not broadcast: A \(2, 4, 16\), B \(3, 16, 4\)"),
    ({"codes": True}, "A: element codes are unsigned integers; got float16"),
    ({"engine": "fast"}, "no engine 'fast'"),
    ({"engine": "fast", "a": ONES[:0]}, "no engine 'fast'"),
    ({"k_promote": 24}, r"k_promote is a multiple of 16, the k of mma.*; got 24"),
    ({"k_promote": 0}, "k_promote is a multiple of 16"),
    ({"k_promote": -16}, "k_promote is a multiple of 16"),
    ({"k_promote": 16.0}, "k_promote is a multiple of 16"),
    ({"k_promote": 16, "instruction": HALF, "c": None}, "f32 total; mma.* has f16"),
    ({"first_tile": 1}, "first_tile is an integer 0 … 0"),
    ({"first_tile": 2, "out": np.zeros((4, 4), np.float32)}, "first_tile is an integer 0 … 1"),
    ({"first_tile": -1}, "first_tile"),
    ({"first_tile": 0.5}, "first_tile"),
    ({"instruction": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16"}, "mma"),
    ({"instruction": 3}, "or its opcode, is needed; got int"),
    ({"target": "sm_60"}, "sm_60"),
    ({"instruction": "ldmatrix.sync.aligned.m8n8.x4.shared.b16"},
         "multiplies is needed: mma or wgmma; got ldmatrix.sync"),
    ({"instruction": "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16", "target": "sm_70"},
     "C and D are of one type"),
    ({"instruction": "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"},
     "row 0, columns 0…3 of A have 4 non-zero elements; mma.sp keeps 2 of 4"),
    ({"nibbles": np.zeros((4, 4), np.uint8), "a": ONES[:, :8]}, "is not sparse and takes no nibb"),
    ({"scale_a": ONES}, "has no block scales"),
    ({"scale_layout": "128x4"}, "has no block scales"),
    ({"scale_layout": "128×4"}, "scale_layout is 'matrix' or '128x4'; got '128×4'"),
    ({"split_k": 0}, "split_k is a number of parts, 1 or more; got 0"),
    ({"split_k": 2.0}, "split_k is a number"),
    ({"split_k": True}, "split_k is a number"),
    ({"split_k": 2, "instruction": HALF, "c": None}, "partial sums in f32; mma.* has f16"),
    ({"order": "slice"}, "order is 'ascending' or 'sliced'; got 'slice'; nearest is 'sliced'"),
    ({"order": "sliced"}, "deals the steps along k to split_k= chains"),
])  # fmt: skip
def test_refused_with_nothing_changed(change, words):
    given = {"a": ONES, "b": ONES.T, "instruction": F16, "target": "sm_80", **change}
    out = given.pop("out", None)
    before = None if out is None else out.copy()
    with pytest.raises(EmulatorError, match=words):
        gemm(given.pop("a"), given.pop("b"), given.pop("c", None), out=out, **given)
    assert out is None or np.array_equal(out, before)


@pytest.mark.parametrize("out", [
    np.full((4, 4), 7, np.float64), np.full((4, 5), 7, np.float32), np.full((1, 4, 4), 7, "f4"),
    np.full((4, 4), 7, np.uint32), np.full((4, 4), 7, ">f4"), [[7.0] * 4] * 4, 3,
], ids=str)  # fmt: skip
def test_a_wrong_out_is_refused_and_left_alone(out):
    before = np.array(out)
    with pytest.raises(OperandError, match=r"out must be an array float32 \(4, 4\); got"):
        gemm(ONES, ONES.T, instruction=F16, target="sm_80", out=out)
    assert np.array_equal(before, out)


def test_a_read_only_out_is_refused():
    out = np.full((4, 4), 7, np.float32)
    out.flags.writeable = False
    with pytest.raises(OperandError, match="not writeable"):
        gemm(ONES, ONES.T, instruction=F16, target="sm_80", out=out)
