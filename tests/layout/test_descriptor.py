"""The wgmma matrix descriptor: its fields, and the address of every element it leads to.

The formulas are those measured on an H200, written here one element at a time; the layouts of PTX
ISA 9.7.15.5.1.2 (canonical layouts, strides of its examples) must come out of them.
"""

import itertools

import numpy as np
import pytest

from dtypes import FORMATS
from emulator import Instruction, OperandError, UndefinedError, execute
from emulator.layout.addressing import addresses, encode_descriptor
from emulator.layout.descriptor import Descriptor, TileShape, decode_descriptor
from emulator.memory.descriptors import load_tile

#: swizzle in bytes -> code of bits 63:62, and its width in 16-byte units
SWIZZLES = {0: (0, 1), 32: (3, 2), 64: (2, 4), 128: (1, 8)}
RESERVED = 0x3 << 14 | 0x3 << 30 | 0x7 << 46 | 0x3FF << 52


def address(start, lbo, sbo, base, swizzle, major, size, r, k):
    """Byte address of row r of the M or N dimension, column k, for elements of `size` bytes."""
    t, w = 16 // size, SWIZZLES[swizzle][1]
    if major == "k" and w == 1:
        o = (r % 8) * 16 + (r // 8) * sbo + (k // t) * lbo + (k % t) * size
    elif major == "k":
        o = (r % 8) * 16 * w + (r // 8) * sbo + (k // (t * w)) * lbo
        o += ((k // t) % w) * 16 + (k % t) * size
    elif w == 1:
        o = (r % t) * size + (r // t) * sbo + (k % 8) * 16 + (k // 8) * lbo
    else:
        o = (r % t) * size + ((r // t) % w) * 16 + (r // (t * w)) * lbo
        o += (k % 8) * 16 * w + (k // 8) * sbo
    a = start + o
    return a ^ ((((a >> 7) - base) & (w - 1)) << 4)


def tile(start, lbo, sbo, base, swizzle, major, size, rows, columns):
    fields = decode_descriptor(np.asarray(encode_descriptor(start, lbo, sbo, base, swizzle)))
    return addresses(fields, TileShape(rows, columns, size, major))


def random_descriptor(rng):
    """Start, LBO, SBO and base offset, as widely as the recordings vary them."""
    start, lbo, sbo = (16 * int(rng.integers(0, 64)) for _ in range(3))
    return start, lbo, sbo, int(rng.integers(0, 8))


# --- fields ---


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_fields_stand_where_the_manual_puts_them(swizzle):
    rng = np.random.default_rng(swizzle)
    for _ in range(50):
        start, lbo, sbo = (16 * int(rng.integers(0, 1 << 14)) for _ in range(3))
        base = int(rng.integers(0, 8))
        word = encode_descriptor(start, lbo, sbo, base, swizzle)
        assert isinstance(word, np.uint64)
        want = start >> 4 | (lbo >> 4) << 16 | (sbo >> 4) << 32 | base << 49
        assert int(word) == want | SWIZZLES[swizzle][0] << 62
        fields = decode_descriptor(np.asarray(word))
        assert [int(x) for x in fields] == [start, lbo, sbo, base, SWIZZLES[swizzle][0]]
        assert int(fields.units) == SWIZZLES[swizzle][1]


def test_every_bit_belongs_to_one_field_or_is_reserved():
    fields = [decode_descriptor(np.asarray(np.uint64(1 << bit))) for bit in range(64)]
    places = {
        "start_address": range(14), "leading_byte_offset": range(16, 30),
        "stride_byte_offset": range(32, 46), "base_offset": range(49, 52),
        "swizzle": range(62, 64),
    }  # fmt: skip
    for bit, decoded in enumerate(fields):
        changed = {name for name, value in decoded._asdict().items() if value}
        assert changed == {name for name, bits in places.items() if bit in bits}
        assert bool(changed) != bool(RESERVED >> bit & 1)


def test_encode_takes_the_extremes():
    top = 0x3FFF * 16
    word = encode_descriptor(top, top, top, 7, 128)
    assert int(word) == (1 << 64) - 1 & ~RESERVED & ~(1 << 63)
    assert encode_descriptor(0) == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"start_address": 8}, "start_address.*multiple of 16.*262128; got 8"),
        ({"start_address": 0x40000}, "start_address.*got 262144"),
        ({"start_address": -16}, "got -16"),
        ({"start_address": 0, "leading_byte_offset": 100}, "leading_byte_offset.*got 100"),
        ({"start_address": 0, "stride_byte_offset": 1 << 18}, "stride_byte_offset"),
        ({"start_address": 0, "base_offset": 8}, "base_offset.*0 to 7; got 8"),
        ({"start_address": 0, "base_offset": -1}, "base_offset"),
        ({"start_address": 0, "swizzle_bytes": 16}, r"swizzle_bytes.*0, 32, 64, 128.*got 16"),
        ({"start_address": 0, "swizzle_bytes": 1}, "swizzle_bytes"),
    ],
)
def test_encode_refuses_what_does_not_fit(values, message):
    with pytest.raises(OperandError, match=message):
        encode_descriptor(**values)


@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.float64])
def test_decode_takes_uint64_only(dtype):
    with pytest.raises(OperandError, match=f"uint64.*{np.dtype(dtype)}"):
        decode_descriptor(np.zeros(3, dtype))


# --- addresses ---

#: rows and columns of the widest tiles: A has 64 rows, B up to 256; 64 bytes of k for sparse B
TILES = [
    ("k", 1, 64, 32), ("k", 1, 24, 64), ("k", 2, 64, 16), ("k", 2, 16, 32), ("k", 4, 64, 8),
    ("k", 4, 40, 16), ("mn", 2, 64, 16), ("mn", 2, 256, 16), ("mn", 2, 8, 32),
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("major", "size", "rows", "columns"), TILES)
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_addresses_equal_the_formulas(swizzle, major, size, rows, columns):
    rng = np.random.default_rng(rows * columns + swizzle)
    for _ in range(4):
        given = (*random_descriptor(rng), swizzle, major, size)
        got = tile(*given, rows, columns)
        want = [[address(*given, r, k) for k in range(columns)] for r in range(rows)]
        assert got.tolist() == want


def test_the_comparison_can_fail():
    """Base offset added instead of subtracted, or a swizzle relative to the start: both show."""
    given = (128, 16, 1024, 1, 128, "k", 2)
    want = tile(*given, 8, 64)
    assert want[3, 9] == address(*given, 3, 9)
    added = tile(128, 16, 1024, 7, 128, "k", 2, 8, 64)
    assert not np.array_equal(want, added)
    assert not np.array_equal(want, tile(0, 16, 1024, 1, 128, "k", 2, 8, 64) + 128)


def test_a_batch_of_descriptors_is_as_each_alone():
    rng = np.random.default_rng(3)
    words = [
        encode_descriptor(*random_descriptor(rng), swizzle) for swizzle in [0, 32, 64, 128, 128, 0]
    ]
    shape = TileShape(16, 32, 2, "k")
    together = addresses(decode_descriptor(np.array(words).reshape(2, 3)), shape)
    assert together.shape == (2, 3, 16, 32)
    for word, got in zip(words, together.reshape(6, 16, 32), strict=True):
        assert np.array_equal(got, addresses(decode_descriptor(np.asarray(word)), shape))


def test_reserved_bits_have_no_effect():
    rng = np.random.default_rng(4)
    word = encode_descriptor(256, 48, 512, 5, 64)
    noisy = np.asarray(word | rng.integers(0, 1 << 63, 20, np.uint64) & np.uint64(RESERVED))
    shape = TileShape(16, 16, 2, "mn")
    clean = addresses(decode_descriptor(np.asarray(word)), shape)
    assert (addresses(decode_descriptor(noisy), shape) == clean).all()


def test_base_offset_undoes_an_unaligned_start():
    """Data laid out relative to a pattern that starts at 128·i needs base offset i."""
    for swizzle, period in ((32, 256), (64, 512), (128, 1024)):
        aligned = tile(0, 0, 1024, 0, swizzle, "k", 2, 16, 16)
        for start in range(0, period, 128):
            moved = tile(start, 0, 1024, (start >> 7) & 7, swizzle, "k", 2, 16, 16)
            assert np.array_equal(moved, aligned + start)
        assert not np.array_equal(tile(128, 0, 1024, 0, swizzle, "k", 2, 16, 16), aligned + 128)
    # Without a swizzle it counts for nothing.
    assert np.array_equal(tile(0, 16, 64, 5, 0, "k", 2, 8, 8), tile(0, 16, 64, 0, 0, "k", 2, 8, 8))


def test_leading_offset_counts_in_swizzled_k_major_beyond_one_width_only():
    def reads(swizzle, lbo, columns):
        return tile(0, lbo, 1024, 0, swizzle, "k", 1, 8, columns)

    assert np.array_equal(reads(32, 16, 32), reads(32, 1024, 32))
    assert not np.array_equal(reads(32, 16, 64), reads(32, 1024, 64))
    assert np.array_equal(reads(64, 16, 64), reads(64, 1024, 64))


# --- canonical layouts, 9.7.15.5.1.2, in 16-byte units; then Swizzle<log2 W, 4, 3> ---


def canonical(major, w, m, k, lbo, sbo):
    """Byte offset of unit (m, k) before the swizzle; m counts units of rows in MN-major."""
    if major == "mn" and w == 1:  # ((T, 1, m), (8, k)) : ((1, T, SBO), (1T, LBO))
        return m * sbo + k % 8 * 16 + k // 8 * lbo
    if major == "mn":  # ((T, W, m), (8, k)) : ((1, T, LBO), (W*T, SBO))
        return m % w * 16 + m // w * lbo + k % 8 * 16 * w + k // 8 * sbo
    if w == 1:  # ((8, m), (T, 2k)) : ((1T, SBO), (1, LBO))
        return m % 8 * 16 + m // 8 * sbo + k * lbo
    return m % 8 * 16 * w + m // 8 * sbo + k * 16  # ((8, m), (T, 2k)) : ((W*T, SBO), (1, T))


@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_canonical_layouts(swizzle, major):
    w, lbo, sbo = SWIZZLES[swizzle][1], 2048, 8192
    got = tile(0, lbo, sbo, 0, swizzle, major, 2, 64, 16)
    for m, k in itertools.product(range(64), range(16)):
        unit = (m, k // 8) if major == "k" else (m // 8, k)
        at = canonical(major, w, *unit, lbo, sbo)
        at ^= (at >> 7 & w - 1) << 4
        assert got[m, k] == at + (k % 8 if major == "k" else m % 8) * 2


#: the manual's examples: major, swizzle, element bytes, LBO, SBO, rows, columns
EXAMPLES = [
    ("k", 0, 4, 64 * 4, 32 * 4, 16, 8),
    ("k", 32, 4, 16, 64 * 4, 16, 8),
    ("mn", 0, 2, 128 * 2, 64 * 2, 16, 16),
    ("mn", 32, 2, 128 * 2, 256 * 2, 32, 16),
    ("mn", 64, 2, 256 * 2, 512 * 2, 64, 16),
]


@pytest.mark.parametrize(("major", "swizzle", "size", "lbo", "sbo", "rows", "columns"), EXAMPLES)
def test_examples_of_the_manual_tile_memory_without_holes(
    major, swizzle, size, lbo, sbo, rows, columns
):
    """Core matrices of 8 × 16 bytes, side by side: the examples' strides fill their memory once."""
    got = tile(0, lbo, sbo, 0, swizzle, major, size, rows, columns)
    assert sorted(got.reshape(-1).tolist()) == list(range(0, rows * columns * size, size))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_core_matrix_is_128_contiguous_bytes(size):
    got = tile(0, 4096, 8192, 0, 0, "k", size, 8, 16 // size)
    assert got.reshape(-1).tolist() == list(range(0, 128, size))


# --- through execute ---

INS = Instruction.parse("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16")


def run(shared, descriptor, **options):
    a, d = INS.fragment("a").zeros(), INS.fragment("d").zeros()
    return execute(INS, a, descriptor, d, shared=shared, target="sm_90a", **options)


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_execute_reads_b_where_the_formulas_say(swizzle, trans):
    """D = I·B: every element of B lies in memory at its own address."""
    rng, major = np.random.default_rng(swizzle), "mn" if trans else "k"
    given = (*random_descriptor(rng)[:1], 512, 1024, 3, swizzle)
    shared, b = np.zeros(8192, np.uint8), rng.integers(1, 0x7C00, (16, 16), np.uint16)
    for n, k in itertools.product(range(16), range(16)):
        at = address(*given, major, 2, n, k)
        shared[at : at + 2] = np.array([b[n, k]], "<u2").view(np.uint8)
    eye = np.eye(64, 16).astype(np.float16).view(np.uint16)
    a, d = INS.fragment("a").scatter(eye), INS.fragment("d").zeros()
    got = execute(
        INS, a, encode_descriptor(*given), d, shared=shared, imm_trans_b=trans, target="sm_90a"
    )
    values = INS.fragment("d").gather(got).view(np.float32)
    assert np.array_equal(values[:16], b.view(np.float16).T.astype(np.float32))


def test_an_element_outside_of_memory_is_named():
    descriptor = encode_descriptor(1024, 128, 256)
    run(np.zeros(1024 + 512, np.uint8), descriptor)
    with pytest.raises(
        UndefinedError, match=r"operand b.*row 15, k 15.*byte 1534.*1535 bytes.*SBO"
    ):
        run(np.zeros(1024 + 511, np.uint8), descriptor)


def test_a_batch_of_one_stays_a_batch():
    shared = np.arange(4096, dtype=np.uint32).astype(np.uint8)
    word = encode_descriptor(0, 128, 256)
    one = np.array([word], np.uint64)
    got = load_tile(shared, one, 8, 16, FORMATS["f16"])
    assert got.shape == (1, 8, 16)
    assert np.array_equal(got[0], load_tile(shared, one[0], 8, 16, FORMATS["f16"]))


# --- what execute takes as a descriptor -----------------------------------------------------------

WGMMA = Instruction.parse("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
WORD = 0x0000_0008_0008_0000


def multiplied(a, b):
    memory = np.random.default_rng(0).integers(0, 60, 8192).astype(np.uint8)
    return execute(WGMMA, a, b, WGMMA.fragment("d").zeros(), shared=memory, target="sm_90a")


def test_a_descriptor_is_a_word_an_integer_or_an_object():
    registers = np.full((128, 4), 0x3C003C00, np.uint32)
    one, other = Descriptor.decode(WORD), Descriptor.decode(WORD + 1)
    for a in (registers, np.uint64(WORD)):
        want = multiplied(a, np.uint64(WORD))
        assert want.any()
        for b in (WORD, one, np.int64(WORD), np.array(WORD, np.uint64)):
            assert np.array_equal(multiplied(a, b), want)
    for a in (WORD, one):
        assert np.array_equal(
            multiplied(a, np.uint64(WORD + 1)), multiplied(np.uint64(WORD), other)
        )
    both = multiplied(registers, np.array([WORD, WORD + 1], np.uint64))
    assert np.array_equal(multiplied(registers, [one, WORD + 1]), both)
    assert not np.array_equal(both[0], both[1])


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (WORD, -1, "operand b: a matrix descriptor is a 64-bit word: a Desc.* got -1"),
        (WORD, 1 << 64, "operand b: .*from 0 to .*; got 18446744073709551616"),
        (1 << 64, WORD, "operand a: a matrix descriptor .*; got 18446744073709551616"),
        (WORD, np.zeros((128, 4), np.uint32), r"operand b: .*; got uint32 \(128, 4\)"),
        (WORD, True, "operand b: .*; got True"),
        (WORD, [WORD, "x"], "operand b: .*; got"),
        (None, WORD, "operand a: .*; got None"),
        (WORD, np.int64([3]), r"operand b: .*; got int64 \(1,\)"),
    ],
)
def test_what_is_no_descriptor_is_named(a, b, message):
    with pytest.raises(OperandError, match=message):
        multiplied(a, b)
