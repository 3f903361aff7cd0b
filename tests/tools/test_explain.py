"""``explain``: what it says of one element, checked against examples worked by hand."""

from fractions import Fraction

import numpy as np
import pytest
from codes import f32_codes
from explained import F16, dot, lines_of

from dtypes import FORMATS, encode
from emulator import Instruction, OperandError, UndefinedError
from emulator.arith.steps import fused_dot_add
from emulator.layout.descriptor import Descriptor
from emulator.tools.explanations.explanation import explain, explain_registers
from emulator.tools.explanations.numbers import plural

# --- by hand --------------------------------------------------------------------------------------


def test_places_are_those_of_the_manual():
    """D(9, 5): groupID 1, threadID_in_group 2. A(9, 2) is a2, the low half of register 1, of lane
    5; B(2, 5) is b0 of lane 21 (PTX ISA 9.7.14.5.8)."""
    made = dot(F16, [(1.0, 1.0)] * 3, 0.5, target="sm_80", row=9, col=5)
    lines = lines_of(made)
    assert "in lane 6 d3" in lines
    assert "C = 0x3f000000 = 0.5, lane 6 c3" in lines
    assert "2 lane 5 a1[15:0] 0x3c00 1 lane 21 b0[15:0] 0x3c00 1" in lines
    assert "3-15 zero" in lines and "zero, without a part in it: k 3-7" in lines
    a = made.data["products"][2]["a"]
    assert a["place"] == {"operand": "a", "lane": 5, "register": 1, "low_bit": 0, "bits": 16}


def test_cut_sum_and_distance():
    """1 + 8 * 2^-25: Ampere's 24 fraction bits keep none of the eight, Hopper's 25 keep all."""
    tail = [(2.0**-13, 2.0**-12)] * 8
    ampere = dot(F16, tail, 1.0, target="sm_80")
    lines = lines_of(ampere)
    assert "D 0x3f800000 = 1 (f32)" in lines
    assert "exact 1.0000002384185791015625 (C + sum of a*b, infinitely precise)" in lines
    assert "distance D is 2 ulps below it" in lines
    assert "k 0 2^-25 -25 +0.000000000000000000000000|1 1 bit, 2^-25" in lines
    assert "sum 1 +1.000000000000000000000000" in lines
    assert ("Pass 1 of 2, k = 0-7: the largest exponent is 0, of x; bits below 2^-24 are cut"
            in lines)  # fmt: skip
    hopper = dot(F16, tail, 1.0, target="sm_90a")
    lines = lines_of(hopper)
    assert "D 0x3f800002 = 1.0000002384185791015625 (f32)" in lines
    assert "distance none: D is exact" in lines
    assert "sum 1.0000002384185791015625 +1.0000000000000000000001000" not in lines
    assert "sum ~1.0000002 +1.0000000000000000000001000" in lines
    (step,) = hopper.data["steps"]
    assert step["fields"]["fraction_bits"] == 25
    (record,) = step["records"]
    assert (record["top"], record["unit"]) == (0, -25)
    assert [term["kept"] for term in record["terms"]] == [1] * 8 + [0] * 8 + [1 << 25]
    assert record["sum"]["fraction"] == "4194305/4194304"


def test_normalisation_and_rounding():
    """1.5·1.5 = 2.25 with exponent 0; then 1 + 1.5·2^-24, of which f32 drops 0.75 ulp."""
    lines = lines_of(dot(F16, [(1.5, 1.5)], target="sm_90a"))
    assert "sum 2.25 +10.0100000000000000000000000" in lines
    assert "normalised: +1.00100000000000000000000 times 2^1, 24 significand bits" in lines
    lines = lines_of(dot(F16, [(1.5 * 2.0**-12, 2.0**-12)], 1.0, target="sm_90a"))
    assert "normalised: +1.00000000000000000000000|11 times 2^0, 24 significand bits" in lines
    assert ("rounded toward zero to f32: x = 0x3f800000 = 1 (f32); dropped 3*2^-25, 0.75 ulp"
            in lines)  # fmt: skip
    half = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
    lines = lines_of(dot(half, [(2.0**-6, 2.0**-5)], 0x3C01, target="sm_90a"))
    assert ("rounded to nearest even to f16: x = 0x3c02 = 1.001953125 (f16); added 2^-11, 0.5 ulp"
            in lines)  # fmt: skip


def test_subnormal_results_have_fewer_bits():
    bf16 = Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32")
    made = dot(bf16, [(2.0**-74, 2.0**-74), (-(2.0**-79), 2.0**-79)], target="sm_90a")
    assert made.data["d"]["code"] == "0x00000001"
    lines = lines_of(made)
    assert any("it counts as -133, the least that the alignment uses" in x for x in lines)
    assert any(x.startswith("normalised: +1|") and "times 2^-149, 24" in x for x in lines)


def test_fp8_on_hopper_is_four_steps():
    fp8 = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
    made = dot(fp8, [(1.0, 1.0), (0.5, 1.0), (2.0, 1.0)], 4.0, target="sm_90a")
    lines = lines_of(made)
    assert "Step 1 of 4: convert a and b to f16, exactly" in lines
    assert "2 0x40 = 2 0x4000 0x38 = 1 0x3c00" in lines
    text = " ".join(lines)
    assert "Pass 1 of 2, k = 0-1, 4-5, 8-9, 12-13, 16-17, 20-21, 24-25, 28-29: the largest" in text
    assert "x = 0x40600000 = 3.5 (f32), c = 0x40800000 = 4 (f32)" in lines
    assert "x + y 7.5 0x40f00000 7.5" in lines
    ada = dot(fp8, [(1.0, 1.0)], 1 + 2.0**-10, target="sm_89")
    assert any("14 significand bits (kept of f32's 24)" in x for x in lines_of(ada))


def test_sparse_shows_what_metadata_picks():
    ins = Instruction.parse("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    a = np.zeros((16, 16), np.float16)
    a[1, [5, 7]] = 3, 4
    b = np.arange(128, dtype=np.float16).reshape(16, 8)
    made = explain(ins, a, b, row=1, col=2, target="sm_80")
    lines = lines_of(made)
    # Chunk 1 of row 1: elements 1 and 3 of columns 4-7; metadata of rows 0-7 is in lane 4·row.
    assert "1 lane 4 e[7:4] 1101 5 7" in lines
    assert "5 lane 5 a0[15:0] 0x4200 3 lane 10 b0[31:16] 0x5140 42" in lines
    assert made.data["d"]["value"] == 3 * 42 + 4 * 58
    e = np.full(32, 0x44444444, np.uint32)
    registers = [ins.fragment(x).zeros() for x in "abc"]
    registers[1][:] = 0x3C003C00
    chosen = explain_registers(ins, *registers, e, row=1, col=2, target="sm_80", selector=1)
    assert chosen.data["metadata"][0]["place"]["lane"] == 5


def test_mixed_halves_of_tf32_are_named():
    ins = Instruction.parse("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    registers = [ins.fragment(x).zeros() for x in "abc"]
    e = np.full(32, 0b1011 * 0x11111111, np.uint32)
    with pytest.raises(UndefinedError):
        registers[0][:] = 0x3F800000
        explain_registers(ins, *registers, e, row=0, col=0, target="sm_90a")
    made = explain_registers(ins, *registers, e, row=0, col=0, target="sm_90a",
                             undefined="hardware")  # fmt: skip
    assert made.data["products"][0]["k"] == "halves 3, 2"


def test_block_scales():
    ins = Instruction.parse(
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32"
        ".ue8m0"
    )
    ones = encode(FORMATS["e2m1"], np.ones((16, 64))), encode(FORMATS["e2m1"], np.ones((64, 8)))
    scale_a, scale_b = np.full((16, 2), 0x7F, np.uint8), np.full((2, 8), 0x7F, np.uint8)
    scale_a[:, 1] = 0x80
    made = explain(ins, *ones, row=0, col=0, target="sm_120a", codes=True, scale_a=scale_a,
                   scale_b=scale_b)  # fmt: skip
    lines = lines_of(made)
    assert made.data["d"]["value"] == 96
    assert "32-63 lane 0 scale_a[15:8] 0x80 = 2 lane 0 scale_b[15:8] 0x7f = 1" in lines
    assert "exp of a term below is the exponent of its scales' product alone" in lines
    assert "k 48-63 32 1 +10000.00000000000000000000000000000000000" in lines
    words = {x: np.full(32, 0x807F807F, np.uint32) for x in ("scale_a", "scale_b")}
    registers = [ins.fragment(x).zeros() for x in "abc"]
    chosen = explain_registers(ins, *registers, row=9, col=3, target="sm_120a", **words,
                               byte_id_a=2, thread_id_a=1, thread_id_b=3)  # fmt: skip
    assert chosen.data["scale_a"][0]["place"] == {
        "operand": "scale_a", "lane": 7, "register": 0, "low_bit": 16, "bits": 8,
    }  # fmt: skip
    assert chosen.data["scale_b"][1]["place"]["lane"] == 15
    nan = explain(ins, *ones, row=0, col=0, target="sm_120a", codes=True,
                  scale_a=np.full((16, 2), 0xFF, np.uint8), scale_b=scale_b)  # fmt: skip
    assert "scale 0 of A is a NaN, 0xff" in nan.data["special"]


def test_wgmma_reads_bytes():
    ins = Instruction.parse("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
    tile, size = Descriptor.for_tile(8, 16, "f16", swizzle_bytes=0, start_address=256)
    shared = np.zeros(256 + size, np.uint8)
    shared.view(np.uint16)[:] = 0x3C00
    a, d = ins.fragment("a").zeros(), ins.fragment("d").zeros()
    a[:] = 0x40004000
    d[:] = f32_codes(5)[0]
    given = (ins, a, tile.encode(), d)
    made = explain_registers(*given, row=17, col=5, target="sm_90a", shared=shared)
    for word in (tile, int(tile.encode())):
        again = explain_registers(ins, a, word, d, row=17, col=5, target="sm_90a", shared=shared)
        assert again.data == made.data
    lines = lines_of(made)
    # B(2, 5): line 5 of the first core matrix, 16 bytes each; B(10, 5): the second one, at 128.
    assert "2 lane 37 a0[15:0] 0x4000 2 bytes 340-341 0x3c00 1" in lines
    assert "10 lane 37 a2[15:0] 0x4000 2 bytes 468-469 0x3c00 1" in lines
    assert "in lane 38 d1" in lines and made.data["d"]["value"] == 37
    other = explain_registers(*given, row=17, col=5, target="sm_90a", shared=shared, scale_d=0,
                              imm_scale_a=-1)  # fmt: skip
    assert other.data["d"]["value"] == -32
    assert "scale-d is 0: the accumulator is not read, C counts as +0" in other.data["notes"]
    assert "imm-scale-a is -1: A is negated; shown after that" in other.data["notes"]
    bits = Instruction.parse("wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc")
    tile, size = Descriptor.for_tile(64, 256, "b1", swizzle_bytes=0)
    words = explain_registers(bits, tile.encode(), tile.encode(), bits.fragment("d").zeros(),
                              row=0, col=0, target="sm_90a",
                              shared=np.full(size, 255, np.uint8))  # fmt: skip
    assert words.data["products"][9]["a"]["place"] == {"byte": 1, "bytes": 1, "low_bit": 1}
    assert words.data["d"]["value"] == 256


@pytest.mark.parametrize(
    ("satfinite", "words", "value"),
    [
        ("", "too large for s32, wrapped (+1 times 2^32 left out): D = 0x80003ef0", -2147467536),
        (".satfinite", "too large for s32, clamped: D = 0x7fffffff", 2147483647),
    ],
)
def test_integers(satfinite, words, value):
    ins = Instruction.parse(f"mma.sync.aligned.m16n8k16.row.col{satfinite}.s32.s8.s8.s32")
    made = dot(ins, [(127, 127)], 0x7FFFFFEF, target="sm_80")
    lines = lines_of(made)
    assert "sum over k = 16129; C = 2147483631; exact sum 2147499760" in lines
    assert any(words in x for x in lines)
    assert made.data["d"]["value"] == value
    assert "0 lane 0 a0[7:0] 0x7f 127 lane 0 b0[7:0] 0x7f 127 16129" in lines


def test_bits_are_counted_word_by_word():
    ins = Instruction.parse("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc")
    made = dot(ins, [(1, 0)] * 3 + [(1, 1)] * 4 + [(0, 1)] * 30, 10, target="sm_80")
    lines = lines_of(made)
    assert "0-31 lane 0 a0 0x0000007f lane 0 b0 0xfffffff8 0xffffff87 28" in lines
    assert "32-63 lane 1 a0 0x00000000 lane 1 b0 0x0000001f 0x0000001f 5" in lines
    assert "sum over k = 33; C = 10; exact sum 43" in lines


def test_f64_chain():
    ins = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
    made = dot(ins, [(1.0, 2.0**-53), (1.0, 2.0**-53)], 1.0, target="sm_90a")
    lines = lines_of(made)
    assert "0 a*b + x ~1 0x3ff0000000000000 1 -0.5 ulp" in lines
    assert "distance D is 1 ulp below it" in lines
    up = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rp")
    made = dot(up, [(1.0, 2.0**-53)], 1.0, target="sm_90a")
    assert made.data["d"]["code"] == "0x3ff0000000000001"
    assert "each operation rounded toward plus infinity" in lines_of(made)


def test_zeros_in_a_row_are_one_line():
    lines = lines_of(dot(F16, [(1.5, 1.0), (0.0, 0.0), (0.0, -0.0), (2.0, 1.0)], target="sm_90a"))
    assert "1 lane 0 a0[31:16] 0x0000 0 lane 0 b0[31:16] 0x0000 0" in lines
    assert (
        "4-15 zero" in lines and "4 lane 2 a0[15:0] 0x0000 0 lane 2 b0[15:0] 0x0000 0" not in lines
    )
    assert "zero, without a part in it: k 1-2, 4-15, x" in lines
    integers = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32")
    made = dot(integers, [(7, 3), (0, 0), (0, 0), (0, 5)], target="sm_80")
    assert "4-15 zero" in lines_of(made) and len(made.data["products"]) == 16
    chain = Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64")
    lines = lines_of(dot(chain, [(3.0, 2.0)], target="sm_90a"))
    assert lines.count("1-7 zero") == 2
    # From -0 the first zero makes +0: it does something.
    lines = lines_of(dot(chain, [], 1 << 63, target="sm_90a"))
    assert "0 a*b + x 0 0x0000000000000000 0" in lines and "1-7 zero" in lines


def test_ulps_have_a_plural():
    chain = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
    made = dot(chain, [(1.0, 2.0**-53)] * 4, 1.0, target="sm_90a")
    assert "distance D is 2 ulps below it" in lines_of(made)
    for number, words in ((0.75, "0.75 ulp"), (-1, "-1 ulp"), (1.5, "1.5 ulps"), (0, "0 ulps")):
        assert plural(Fraction(number), "ulp") == words


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("pairs", "c", "value", "why"),
    [
        ([(1.0, 1.0), (NAN, 0.0)], 0, "nan", "k 1: a NaN operand: a = 0x7fff = nan, b = 0x0000"),
        ([(INF, 0.0)], 0, "nan", "k 0: infinity times zero is a NaN"),
        ([(INF, 1.0), (1.0, -INF)], 0, "nan", "infinities of both signs make a NaN"),
        ([(-INF, 1.0)], 0, "-inf", "k 0: an infinite product: a = 0xfc00 = -inf"),
        ([(1.0, 1.0)], 0x7FC00001, "nan", "x: a NaN comes in with 0x7fc00001 = nan (f32)"),
        ([(60000.0, 60000.0)], 0x7F7FFFFF, 3.4028234663852886e38, None),
    ],
)
def test_special_values(pairs, c, value, why):
    made = dot(F16, pairs, c, target="sm_90a")
    assert made.data["d"]["value"] == value
    if why is None:
        assert made.data["special"] == []
    else:
        assert why in "; ".join(made.data["special"])
        assert made.data["exact"] is None
        assert f"Why it is {value}: " in made.text()


def test_overflow_is_the_cause_of_an_infinity():
    bf16 = Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32")
    made = dot(bf16, [(2.0**100, 2.0**28)], target="sm_80")
    assert made.data["d"]["value"] == "inf"
    assert made.data["special"] == ["the sum is too large for f32"]
    assert "distance  D is no finite number" in made.text()
    quad = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16")
    made = dot(quad, [(INF, 0.0)], target="sm_90a")
    assert made.data["special"] == ["k 0: a*b: inf * 0"]


def test_one_computation_of_four():
    quad = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32")
    a = np.zeros((4, 8, 4), np.uint16)
    a[2] = 0x3C00
    b = np.full((4, 4, 8), 0x3C00, np.uint16)
    registers = [quad.fragment("a").scatter(a), quad.fragment("b").scatter(b)]
    made = explain_registers(quad, *registers, quad.fragment("c").zeros(), row=0, col=0,
                             target="sm_70", computation=2)  # fmt: skip
    assert made.data["d"]["value"] == 4
    assert made.data["products"][0]["a"]["place"]["lane"] == 8
    with pytest.raises(OperandError, match="computation is 0 … 3; got 4"):
        explain(quad, a[0], b[0], row=0, col=0, target="sm_70", codes=True, computation=4)


def test_a_trace_of_other_bits_is_refused(monkeypatch):
    """The planted error: a reference that keeps one bit less than the result has."""
    pairs = [(1.0, 1.0), *[(2.0**-13, 2.0**-12)] * 8]
    assert dot(F16, pairs, target="sm_90a").data["d"]["code"] == "0x3f800002"
    right = fused_dot_add.truncated
    monkeypatch.setattr(fused_dot_add, "truncated", lambda term, unit: right(term, unit + 2) << 2)
    with pytest.raises(AssertionError, match=r"the trace .* ends in 0x3f800000"):
        dot(F16, pairs, target="sm_90a")
