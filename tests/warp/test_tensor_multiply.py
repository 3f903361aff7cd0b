"""What one tcgen05.mma computes: its modifiers by hand, and the engines against each other."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from bits import assert_same_codes

from dtypes import FORMATS, code_type, decode_values, encode
from emulator import InstructionDescriptor, OperandError, UndefinedError, UnsupportedError
from emulator.targets import find_target
from emulator.warp.tensor_multiply import TensorProduct, zero_columns

pytestmark = pytest.mark.sampled(3)

B200 = find_target("sm_100a")


def product(kind="f16", a="", b="", vector="", shift=0, target=B200, **more):
    return TensorProduct(InstructionDescriptor(kind, a, b, **more), target, vector, shift)


def ones(*shape):
    return np.full(shape, 0x3C00, np.uint16)  # f16


# --- scale-input-d ---


@pytest.mark.parametrize("engine", ["reference", "vector", "auto"])
def test_scale_input_d_lowers_the_exponent_of_c(engine):
    c = np.array([[3.0, -1.0, 2.0**-10]], np.float32).view(np.uint32)
    a, b = ones(1, 16), np.zeros((16, 3), np.uint16)
    for shift in (0, 1, 15):
        got = product("f16", "f16", "f16", shift=shift).multiply(a, b, c, engine=engine)
        assert got.view(np.float32).tolist() == [[x * 2.0**-shift for x in (3.0, -1.0, 2.0**-10)]]


@pytest.mark.parametrize("engine", ["reference", "vector", "auto"])
def test_the_lowered_exponent_takes_part_in_the_alignment(engine):
    """c = 2**26 hides a product of 1 + 2**-10 altogether, and of 2**11 nothing."""
    c = np.array([[2.0**26]], np.float32).view(np.uint32)
    a, b = np.zeros((1, 16), np.uint16), np.zeros((16, 1), np.uint16)
    a[0, 0], b[0, 0] = 0x3C01, 0x3C00
    plain = product("f16", "f16", "f16").multiply(a, b, c, engine=engine)
    assert plain.view(np.float32)[0, 0] == 2.0**26
    lowered = product("f16", "f16", "f16", shift=15).multiply(a, b, c, engine=engine)
    assert lowered.view(np.float32)[0, 0] == 2.0**11 + 1 + 2.0**-10


def test_an_f16_c_is_not_rounded_by_the_shift():
    """2**-14 shifted by 15 is far below f16, and half an ulp decides with it."""
    x = product("f16", "f16", "f16", shift=1, d="f16")
    a, b = np.zeros((1, 16), np.uint16), np.zeros((16, 1), np.uint16)
    a[0, 0], b[0, 0] = 0x0001, 0x3C00  # 2**-24
    c = np.array([[0x0001]], np.uint16)
    assert x.multiply(a, b, c)[0, 0] == 0x0002  # 1.5 ulp, a tie to even


@pytest.mark.parametrize(("kind", "a", "d"), [("f16", "bf16", ""), ("tf32", "", ""),
                                              ("f16", "f16", "f16")])  # fmt: skip
def test_engines_agree_on_shifted_accumulators(kind, a, d):
    rng = np.random.default_rng(5)
    x = product(kind, a, a, shift=7, d=d)
    shapes = ((4, x.k), (x.k, 8), (4, 8))
    types = [FORMATS[t] for t in (x.instruction.a, x.instruction.b, x.instruction.d)]
    operands = [rng.integers(0, 1 << f.bits, shape, np.uint64).astype(code_type(f.bits))
                for f, shape in zip(types, shapes, strict=True)]  # fmt: skip
    for codes, f in zip(operands[:2], types, strict=False):
        codes &= codes.dtype.type(f.code_mask & ~(1 << f.bits - 2))  # below 2, so that few overflow
    want = x.multiply(*operands, engine="reference")
    assert_same_codes(x.multiply(*operands, engine="vector"), want)
    assert_same_codes(x.multiply(*operands), want)
    other = replace(x, scale_input_d=0).multiply(*operands, engine="reference")
    assert (other != want).any()


# --- signs ---


def test_negated_matrices():
    a, b, c = ones(1, 16), ones(16, 1), np.zeros((1, 1), np.uint32)
    for na, nb, want in ((0, 0, 16.0), (1, 0, -16.0), (0, 1, -16.0), (1, 1, 16.0)):
        x = product("f16", "f16", "f16", negate_a=na, negate_b=nb)
        assert x.multiply(a, b, c).view(np.float32)[0, 0] == want
    tf32 = np.full((1, 8), 0x3F800000, np.uint32)
    x = product("tf32", negate_a=True)
    assert x.multiply(tf32, tf32.T, c).view(np.float32)[0, 0] == -8.0


# --- integers ---


def test_integers_wrap_or_saturate():
    a, b = np.full((1, 32), 127, np.uint8), np.full((32, 1), 127, np.uint8)
    c = np.full((1, 1), 0x7FFF_FFFF, np.uint32)
    wrapped = product("i8", "s8", "s8").multiply(a, b, c)[0, 0]
    assert wrapped == (0x7FFF_FFFF + 32 * 127 * 127) & 0xFFFF_FFFF
    assert product("i8", "s8", "s8", saturate=True).multiply(a, b, c)[0, 0] == 0x7FFF_FFFF
    assert product("i8", "u8", "s8").fidelity.level == "exact"


# --- fp4 with scales ---


@pytest.mark.parametrize("k", [64, 96, 128])
@pytest.mark.parametrize(("kind", "scale", "vector"), [
    ("mxf4", "ue8m0", ""), ("mxf4nvf4", "ue4m3", ""), ("mxf4nvf4", "ue8m0", "block32"),
    ("mxf4nvf4", "ue5m3", "block16"),
])  # fmt: skip
def test_fp4_of_near_scales_is_the_exact_sum_rounded_toward_zero(kind, scale, vector, k):
    rng = np.random.default_rng(k)
    x = product(kind, vector=vector, k=k, scale=scale, target=find_target("sm_107a"))
    width = 32 if scale == "ue8m0" else 16
    assert (x.scale_width, x.scales) == (width, k // width)
    a, b = (rng.integers(0, 16, shape, np.uint8) for shape in ((3, k), (k, 5)))
    low, high = {"ue8m0": (124, 131), "ue4m3": (40, 72), "ue5m3": (104, 136)}[scale]
    sa, sb = (rng.integers(low, high, (n, x.scales), np.uint8) for n in (3, 5))
    c = rng.normal(size=(3, 5)).astype(np.float32)
    got = x.multiply(a, b, c.view(np.uint32), sa, sb).view(np.float32)
    e2m1, ue = FORMATS["e2m1"], FORMATS[scale]
    for i in range(3):
        for j in range(5):
            total = Fraction(float(c[i, j]))
            for p in range(k):
                factors = [
                    *decode_values(e2m1, np.array([a[i, p], b[p, j]])),
                    *decode_values(ue, np.array([sa[i, p // width], sb[j, p // width]])),
                ]
                term = Fraction(1)
                for factor in factors:
                    term *= Fraction(float(factor))
                total += term
            near = np.float32(float(total))
            if abs(Fraction(float(near))) > abs(total):
                near = np.nextafter(near, np.float32(0))
            assert got[i, j] == near
    want = x.multiply(a, b, c.view(np.uint32), sa, sb, engine="reference")
    assert_same_codes(got.view(np.uint32), want)


def test_a_scale_that_is_no_number_makes_none():
    x = product("mxf8f6f4", "e4m3", "e5m2")
    a, b = np.full((1, 32), 0x38, np.uint8), np.full((32, 1), 0x3C, np.uint8)
    scales, c = np.full((1, 1), 127, np.uint8), np.zeros((1, 1), np.uint32)
    assert x.multiply(a, b, c, scales, scales).view(np.float32)[0, 0] == 32.0
    assert x.multiply(a, b, c, scales + 1, scales).view(np.float32)[0, 0] == 64.0
    assert x.multiply(a, b, c, scales + 128, scales)[0, 0] == 0x7FFF_FFFF


# --- sparse ---


@pytest.mark.parametrize(("kind", "a"), [("f16", "f16"), ("tf32", ""), ("f8f6f4", "e2m3"),
                                         ("i8", "s8"), ("mxf4", "")])  # fmt: skip
def test_a_sparse_product_is_that_of_the_full_matrix(kind, a):
    rng = np.random.default_rng(6)
    x = product(kind, a, a, sparse=True)
    fmt = FORMATS[x.instruction.a]
    legal = {2: [0b0100, 0b1110]}.get(x.chunk, [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110])
    nibbles = rng.choice(np.array(legal, np.uint8), (4, x.k // x.chunk))
    top = {"s8": 256, "tf32": 1 << 32}.get(fmt.name, 16)
    stored, b = (
        rng.integers(1, top, shape, np.uint64).astype(code_type(fmt.bits))
        for shape in ((4, x.k // 2), (x.k, 8))
    )
    if fmt.name in ("tf32", "f16"):
        stored, b = (y & y.dtype.type(0x3FFF_FFFF >> (32 - fmt.bits)) for y in (stored, b))
    full = np.zeros((4, x.k), stored.dtype)
    each = max(1, x.chunk // 4)
    for i in range(4):
        for chunk, nibble in enumerate(nibbles[i]):
            picks = [nibble & 3, nibble >> 2]
            picks = picks[:1] if x.chunk == 2 else picks
            for place, pick in enumerate(picks):
                first = chunk * x.chunk + (pick // 2 if x.chunk == 2 else pick * each)
                from_ = chunk * x.chunk // 2 + place * each
                full[i, first : first + each] = stored[i, from_ : from_ + each]
    scales = [np.full((n, x.scales), 127, np.uint8) if x.scales else None for n in (4, 8)]
    c = np.zeros((4, 8), np.uint32)
    got = x.multiply(stored, b, c, *scales, nibbles)
    if kind == "mxf4":
        assert (x.scale_width, x.scales) == (32, 2)
        values = decode_values(fmt, full) @ decode_values(fmt, b)  # exact in float32
        assert (got.view(np.float32) == values).all()
    else:
        dense = replace(x, instruction=x.instruction.replace(sparse=False))
        assert_same_codes(got, dense.multiply(full, b, c))
    with pytest.raises(UndefinedError, match=r"tcgen05\.mma\.sp on .* defines"):
        x.multiply(stored, b, c, *scales, np.full_like(nibbles, 0b0010))


# --- zero columns ---


def test_zero_column_masks():
    def by_formula(mask, m, n):
        out = []
        for i in range(128 // m):
            start, first = mask >> 8 * i & 0xFF, mask >> 32 + i & 1
            skip, use = (mask >> 40 & 0xFF) + 1, (mask >> 48 & 0xFF) + 1
            for j in range(n // (128 // m)):
                p = (start + j) % (use + skip)
                out.append(p < skip if first else p >= use)
        return out

    rng = np.random.default_rng(7)
    for m in (32, 64, 128):
        for n in (64, 128, 256):
            mask = int(rng.integers(0, 1 << 62)) & ~(7 << 36) | 1 << 39
            assert zero_columns(mask, m, n).zero.tolist() == by_formula(mask, m, n)
            assert zero_columns(mask, m, n).shift == mask >> 56 & 0x3F
            assert not zero_columns(mask & ~(1 << 39), m, n).zero.any()
    # two used, one skipped, the first span skipped from its second column on
    mask = 1 << 39 | 1 << 32 | 1 << 40 | 0 << 48 | 1
    assert zero_columns(mask, 128, 8).zero.tolist() == [True, False, True, True, False, True,
                                                        True, False]  # fmt: skip


# --- what is refused ---


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"shift": 16}, OperandError, "scale-input-d is 0 … 15"),
        ({"kind": "f8f6f4", "a": "e4m3", "b": "e4m3", "shift": 1}, OperandError, "f16 and tf32"),
        ({"vector": "block32"}, OperandError, "takes no scale vector; got 'block32'"),
        ({"kind": "mxf4", "vector": "block16"}, OperandError, "scale_vec::2X, block32"),
        ({"kind": "mxf4nvf4", "vector": "block32"}, OperandError, "ue4m3 go with"),
        ({"kind": "mxf4", "k": 96}, UnsupportedError, "k 96 is for sm_103a"),
        ({"target": find_target("sm_90a")}, UnsupportedError, "on sm_90a: no such recipe"),
    ],
)
def test_what_there_is_no_product_of(how, error, message):
    with pytest.raises(error, match=message):
        product(**how)


def test_ti16_is_exact_and_wraps():
    rng = np.random.default_rng(5)
    x = InstructionDescriptor("ti16", m=64, n=8, negate_b=True)
    product = TensorProduct(x, find_target("sm_107a"))
    a, b = rng.integers(-2047, 2048, (64, 16)), rng.integers(-2047, 2048, (16, 8))
    a[0], b[:, 0] = 2047, 2047
    c = rng.integers(-(2**31), 2**31, (64, 8))
    codes = [encode(FORMATS["s1z4m11"], values) for values in (a, b)]
    want = (c - a @ b).astype(np.int64).astype(np.uint32)
    for engine in ("reference", "vector", "compiled", "auto"):
        found = product.multiply(*codes, c.astype(np.uint32), engine=engine)
        assert_same_codes(found, want)
    assert product.fidelity.level == "exact"
    codes[1][3, 5] |= 0x0800
    with pytest.raises(
        UndefinedError, match=r"B\[3\]\[5\] of s1z4m11 is 0x.*bits of 0x7800 must be 0"
    ):
        product.multiply(*codes, c.astype(np.uint32))


def test_fidelity_says_that_it_is_modelled():
    assert product().fidelity.level == "modelled"
    assert "MMA-Sim" in product().fidelity.detail
