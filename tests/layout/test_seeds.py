"""The manual sections that the project was created from, to the last sentence and formula.

PTX ISA 9.7.14.5.1 and .2 (m8n8k4), 9.7.14.5.4 (m8n8k32), 9.7.14.5.13 (m16n8k256) and
9.7.15.5.1.1.3 (wgmma m64nNk32); test_seeds_sparse.py has 9.7.14.6.2.8. The formulas stand here as
the pages print them; what the wgmma page draws stands as measured on an H200. Every instruction is
then executed on lane registers built from those formulas.
"""

import itertools
import random

import numpy as np
import pytest
from lanes import (
    c_m16,
    check_fragment,
    codes_of,
    group,
    integers,
    on_targets,
    pack_by,
    range_of,
    thread,
    unpack_by,
)

from emulator import Instruction, UnsupportedError, execute


def test_check_fragment_can_fail():
    fragment = Instruction.parse("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32").fragment("a")
    stated = {"registers": 1, "elements": 8, "shape": (8, 32)}
    check_fragment(fragment, a_8832, **stated)
    with pytest.raises(AssertionError):
        check_fragment(fragment, lambda lane, i: a_8832(lane, i ^ 1), **stated)
    with pytest.raises(AssertionError):
        check_fragment(fragment, a_8832, registers=2, elements=8, shape=(8, 32))


# --- 9.7.14.5.4. mma.m8n8k32 ---


def a_8832(lane, i):
    return group(lane), thread(lane) * 8 + i


def b_8832(lane, i):
    return thread(lane) * 8 + i, group(lane)


def c_m8(lane, i):
    return group(lane), thread(lane) * 2 + i


@pytest.fixture(params=itertools.product(("s4", "u4"), repeat=2), ids=".".join)
def m8n8k32(request):
    a, b = request.param
    return Instruction.parse(f"mma.sync.aligned.m8n8k32.row.col.s32.{a}.{b}.s32")


def test_9_7_14_5_4_mma_m8n8k32_a(m8n8k32):
    # "a single .b32 register, containing eight .s4 or .u4 elements"
    check_fragment(m8n8k32.fragment("a"), a_8832, registers=1, elements=8, shape=(8, 32))


def test_9_7_14_5_4_mma_m8n8k32_b(m8n8k32):
    check_fragment(m8n8k32.fragment("b"), b_8832, registers=1, elements=8, shape=(32, 8))


@pytest.mark.parametrize("operand", "cd")
def test_9_7_14_5_4_mma_m8n8k32_accumulators(m8n8k32, operand):
    # "A vector expression of two .s32 registers."
    check_fragment(m8n8k32.fragment(operand), c_m8, registers=2, elements=2, shape=(8, 8))
    assert m8n8k32.fragment(operand).fmt.name == "s32"


def test_9_7_14_5_4_mma_m8n8k32_executes(m8n8k32):
    rng = np.random.default_rng(32)
    a = integers(rng, *range_of(m8n8k32.a_type), (8, 32))
    b = integers(rng, *range_of(m8n8k32.b_type), (32, 8))
    c = integers(rng, -(1 << 20), 1 << 20, (8, 8))
    d = on_targets(
        m8n8k32,
        pack_by(a_8832, codes_of(a, "s4"), 4, 8),
        pack_by(b_8832, codes_of(b, "s4"), 4, 8),
        pack_by(c_m8, codes_of(c, "s32"), 32, 2),
    )
    assert np.array_equal(unpack_by(c_m8, d, 32, 2, (8, 8)), codes_of(a @ b + c, "s32"))


# --- 9.7.14.5.13. mma.m16n8k256 ---


def a_168256(lane, i):
    row = group(lane) if 0 <= i < 32 or 64 <= i < 96 else group(lane) + 8
    # The page prints "+ i" for i < 64. Hardware and CuTe take i & 0x1F, as the page does elsewhere.
    col = thread(lane) * 32 + (i & 0x1F) + (128 if i >= 64 else 0)
    return row, col


def a_168256_as_printed(lane, i):
    row, col = a_168256(lane, i)
    return row, thread(lane) * 32 + i if i < 64 else col


def b_168256(lane, i):
    return thread(lane) * 32 + (i & 0x1F) + (128 if i >= 32 else 0), group(lane)


@pytest.fixture(params=["xor", "and"])
def m16n8k256(request):
    return Instruction.parse(
        f"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.{request.param}.popc"
    )


def test_9_7_14_5_13_mma_m16n8k256_a(m16n8k256):
    # "four .b32 registers, with each register containing thirty two .b1 elements"
    fragment = m16n8k256.fragment("a")
    check_fragment(fragment, a_168256, registers=4, elements=128, shape=(16, 256))


def test_9_7_14_5_13_mma_m16n8k256_a_as_printed_is_no_layout():
    """Two elements of the printed formula fall on one place, so it cannot be meant."""
    places = {a_168256_as_printed(lane, i) for lane in range(32) for i in range(128)}
    assert len(places) < 16 * 256
    assert len({a_168256(lane, i) for lane in range(32) for i in range(128)}) == 16 * 256


def test_9_7_14_5_13_mma_m16n8k256_b(m16n8k256):
    fragment = m16n8k256.fragment("b")
    check_fragment(fragment, b_168256, registers=2, elements=64, shape=(256, 8))
    # Figures 101 and 102: register 0 holds rows 0–127 of B, register 1 rows 128–255.
    for lane, register in itertools.product(range(32), range(2)):
        rows = [row for row, _ in fragment.element(lane, register)]
        assert 128 * register <= min(rows) <= max(rows) < 128 * (register + 1)


@pytest.mark.parametrize("operand", "cd")
def test_9_7_14_5_13_mma_m16n8k256_accumulators(m16n8k256, operand):
    fragment = m16n8k256.fragment(operand)
    check_fragment(fragment, c_m16, registers=4, elements=4, shape=(16, 8))
    assert fragment.fmt.name == "s32"


def test_9_7_14_5_13_mma_m16n8k256_executes(m16n8k256):
    rng = np.random.default_rng(256)
    a, b = integers(rng, 0, 1, (16, 256)), integers(rng, 0, 1, (256, 8))
    c = integers(rng, -(1 << 30), 1 << 30, (16, 8))
    d = on_targets(
        m16n8k256,
        pack_by(a_168256, a, 1, 128),
        pack_by(b_168256, b, 1, 64),
        pack_by(c_m16, codes_of(c, "s32"), 32, 4),
    )
    and_ = a @ b
    popc = and_ if "and" in str(m16n8k256) else a.sum(1)[:, None] + b.sum(0) - 2 * and_
    assert np.array_equal(unpack_by(c_m16, d, 32, 4, (16, 8)), codes_of(popc + c, "s32"))


# --- 9.7.14.5.1. mma.m8n8k4 with .f16 ---


def computation(lane):
    """Computation 1: lanes 0–3 (low group) and 16–19 (high group), and so on, counted from 0."""
    (found,) = (
        q for q in range(4) if lane in (*range(4 * q, 4 * q + 4), *range(16 + 4 * q, 20 + 4 * q))
    )
    return found


def quad(row, col):
    """A formula of one computation as a formula into the four matrices."""
    return lambda lane, i: (computation(lane), row(lane, i), col(lane, i))


def low_high(lane):
    return lane % 4 if lane < 16 else lane % 4 + 4


def x_884(lane, i):
    return (lane & 0b1) + (i & 0b10)


A_884 = {
    "row": quad(lambda lane, i: low_high(lane), lambda lane, i: i),
    "col": quad(lambda lane, i: i % 4 + (0 if lane < 16 else 4), lambda lane, i: lane % 4),
}
B_884 = {
    "row": quad(lambda lane, i: lane % 4, lambda lane, i: i if lane < 16 else i + 4),
    "col": quad(lambda lane, i: i, lambda lane, i: low_high(lane)),
}
C_884 = {
    "f16": quad(lambda lane, i: low_high(lane), lambda lane, i: i),
    "f32": quad(
        lambda lane, i: x_884(lane, i) + (0 if lane < 16 else 4),
        lambda lane, i: (i & 0b100) + (lane & 0b10) + (i & 0b1),
    ),
}
LAYOUTS = list(itertools.product(("row", "col"), repeat=2))
ACCUMULATORS = [("f16", "f16"), ("f32", "f16"), ("f32", "f32")]  # d, c


def m8n8k4(a_layout, b_layout, d="f32", c="f32"):
    return Instruction.parse(f"mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{d}.f16.f16.{c}")


def test_9_7_14_5_1_mma_m8n8k4_f16_computations():
    for layouts in LAYOUTS:
        for operand in "abcd":
            fragment = m8n8k4(*layouts).fragment(operand)
            assert fragment.groups == 4
            for lane in range(32):
                assert set(fragment.group[lane].tolist()) == {computation(lane)}


@pytest.mark.parametrize("layouts", LAYOUTS, ids=".".join)
def test_9_7_14_5_1_mma_m8n8k4_f16_a_b(layouts):
    # "two .f16x2 registers, with each register containing two .f16 elements"
    ins = m8n8k4(*layouts)
    stated = {"registers": 2, "elements": 4}
    check_fragment(ins.fragment("a"), A_884[layouts[0]], shape=(4, 8, 4), **stated)
    check_fragment(ins.fragment("b"), B_884[layouts[1]], shape=(4, 4, 8), **stated)


@pytest.mark.parametrize("types", ACCUMULATORS, ids=".".join)
def test_9_7_14_5_1_mma_m8n8k4_f16_accumulators(types):
    # "four .f16x2 registers" or "eight .f32 registers"
    for operand, type_ in zip("dc", types, strict=True):
        fragment = m8n8k4("row", "col", *types).fragment(operand)
        registers = {"f16": 4, "f32": 8}[type_]
        check_fragment(fragment, C_884[type_], registers=registers, elements=8, shape=(4, 8, 8))
        assert fragment.fmt.name == type_


@pytest.mark.parametrize("types", ACCUMULATORS, ids=".".join)
@pytest.mark.parametrize("layouts", LAYOUTS, ids=".".join)
def test_9_7_14_5_1_mma_m8n8k4_f16_executes_four_computations(layouts, types):
    (d_type, c_type), rng = types, np.random.default_rng(884)
    a, b = integers(rng, -9, 9, (4, 8, 4)), integers(rng, -9, 9, (4, 4, 8))
    c = integers(rng, -99, 99, (4, 8, 8))
    c_bits, d_bits = int(c_type[1:]), int(d_type[1:])
    d = on_targets(
        m8n8k4(*layouts, d_type, c_type),
        pack_by(A_884[layouts[0]], codes_of(a, "f16"), 16, 4),
        pack_by(B_884[layouts[1]], codes_of(b, "f16"), 16, 4),
        pack_by(C_884[c_type], codes_of(c, c_type), c_bits, 8),
    )
    got = unpack_by(C_884[d_type], d, d_bits, 8, (4, 8, 8))
    assert np.array_equal(got, codes_of(a @ b + c, d_type))


# --- 9.7.14.5.2. mma.m8n8k4 with .f64 ---


def a_884_f64(lane, i):
    return lane >> 2, lane % 4


def b_884_f64(lane, i):
    return lane % 4, lane >> 2


def c_884_f64(lane, i):
    return group(lane), thread(lane) * 2 + (i & 0x1)


def test_9_7_14_5_2_mma_m8n8k4_f64():
    ins = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
    one = {"registers": 1, "elements": 1, "word": 64}
    check_fragment(ins.fragment("a"), a_884_f64, shape=(8, 4), **one)
    check_fragment(ins.fragment("b"), b_884_f64, shape=(4, 8), **one)
    for operand in "cd":
        fragment = ins.fragment(operand)
        check_fragment(fragment, c_884_f64, registers=2, elements=2, shape=(8, 8), word=64)
    rng = np.random.default_rng(64)
    a, b = integers(rng, -99, 99, (8, 4)), integers(rng, -99, 99, (4, 8))
    c = integers(rng, -(1 << 40), 1 << 40, (8, 8))
    d = on_targets(
        ins,
        pack_by(a_884_f64, codes_of(a, "f64"), 64, 1, word=64),
        pack_by(b_884_f64, codes_of(b, "f64"), 64, 1, word=64),
        pack_by(c_884_f64, codes_of(c, "f64"), 64, 2, word=64),
    )
    got = unpack_by(c_884_f64, d, 64, 2, (8, 8), word=64)
    assert np.array_equal(got, codes_of(a @ b + c, "f64"))


# --- 9.7.15.5.1.1.3. wgmma.mma_async.m64nNk32 ---

N_OF = {
    "s32": [8 * i for i in (1, 2, 3, 4)] + [16 * i for i in range(3, 17)],
    "f32": [8 * i for i in range(1, 33)],
    "f16": [8 * i for i in range(1, 33)],
}
PAIRS = [
    *(("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")),
    *((d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
]


def a_64n32(lane, i):
    """Figure 152: the map of a warp's mma.m16n8k32, sixteen rows for every warp."""
    warp, lane = divmod(lane, 32)
    row = group(lane) if i % 8 < 4 else group(lane) + 8
    return 16 * warp + row, thread(lane) * 4 + i % 4 + (16 if i >= 8 else 0)


def d_64n32(lane, i):
    """Figure 153: pairs of columns, rows groupID and groupID + 8, eight columns further on."""
    warp, lane = divmod(lane, 32)
    return 16 * warp + group(lane) + 8 * (i >> 1 & 1), 8 * (i >> 2) + thread(lane) * 2 + (i & 1)


def m64nNk32(n, d, a, b):
    return Instruction.parse(f"wgmma.mma_async.sync.aligned.m64n{n}k32.{d}.{a}.{b}")


@pytest.mark.parametrize("types", PAIRS, ids=".".join)
def test_9_7_15_5_1_1_3_wgmma_m64nNk32_a(types):
    # "four .b32 registers, with each register containing four elements": a0 … a15
    fragment = m64nNk32(8, *types).fragment("a")
    check_fragment(fragment, a_64n32, registers=4, elements=16, shape=(64, 32), lanes=128)
    assert fragment.fmt.name == types[1]


@pytest.mark.parametrize(("d", "a"), [("s32", "s8"), ("f32", "e4m3"), ("f16", "e5m2")])
def test_9_7_15_5_1_1_3_wgmma_m64nNk32_d(d, a):
    """N/2 registers, N/4 of f16x2; N/2 elements, d0 … dW with W = N/2 - 1."""
    for n in N_OF[d]:
        fragment = m64nNk32(n, d, a, a).fragment("d")
        assert fragment.registers == (n // 4 if d == "f16" else n // 2)
        assert (fragment.lanes, fragment.elements, fragment.shape) == (128, n // 2, (64, n))
        assert fragment.fmt.name == d
    for n in (8, 24, 256):
        registers = n // 4 if d == "f16" else n // 2
        check_fragment(
            m64nNk32(n, d, a, a).fragment("d"), d_64n32,
            registers=registers, elements=n // 2, shape=(64, n), lanes=128,
        )  # fmt: skip


@pytest.mark.parametrize(("d", "a"), [("s32", "u8"), ("f32", "e5m2"), ("f16", "e4m3")])
def test_9_7_15_5_1_1_3_wgmma_m64nNk32_refuses_other_n(d, a):
    others = {0, 4, 12, 20, 100, 264, 272, 512} | set(range(8, 257, 8)) - set(N_OF[d])
    for n in sorted(others):
        with pytest.raises(UnsupportedError, match=f"m64n{n}k32"):
            m64nNk32(n, d, a, a)


def plain_tile(matrix, start):
    """Bytes of a K-major tile ``(rows, 32)`` without swizzle, and its descriptor.

    9.7.15.5.1.2: 8 × 16-byte core matrices; here 128 bytes to the next one along k, 256 along rows.
    """
    leading, stride = 128, 256
    memory = np.zeros(matrix.size, np.uint8)
    for r, k in itertools.product(*map(range, matrix.shape)):
        memory[r % 8 * 16 + r // 8 * stride + k // 16 * leading + k % 16] = matrix[r, k]
    return memory, np.uint64(start >> 4 | leading >> 4 << 16 | stride >> 4 << 32)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", ["registers", "shared memory"])
@pytest.mark.parametrize("types", PAIRS, ids=".".join)
def test_9_7_15_5_1_1_3_wgmma_m64nNk32_executes(types, source):
    d_type, a_type, b_type = types
    n = random.Random(".".join(types)).choice(N_OF[d_type][:8])
    ins, rng = m64nNk32(n, *types), np.random.default_rng(n)
    a = integers(rng, *range_of(a_type), (64, 32))
    b = integers(rng, *range_of(b_type), (32, n))
    c = integers(rng, -99, 99, (64, n))
    a_codes, b_codes = codes_of(a, a_type), codes_of(b, b_type)
    a_bytes, a_descriptor = plain_tile(a_codes, 0)
    b_bytes, descriptor_b = plain_tile(b_codes.T, a_bytes.size)
    bits = int(d_type[1:])
    in_registers = pack_by(a_64n32, a_codes, 8, 16, lanes=128)
    d = execute(
        ins,
        in_registers if source == "registers" else a_descriptor,
        descriptor_b,
        pack_by(d_64n32, codes_of(c, d_type), bits, n // 2, lanes=128),
        shared=np.concatenate([a_bytes, b_bytes]),
        target="sm_90a",
    )
    got = unpack_by(d_64n32, d, bits, n // 2, (64, n))
    assert np.array_equal(got, codes_of(a @ b + c, d_type))
