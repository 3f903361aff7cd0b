"""``Descriptor``: tiles placed in shared memory, read back, multiplied, and their mistakes named.

Facts from PTX ISA 9.7.15.5.1 and recordings of an H200; test_descriptor.py has the field positions
and address formulas. Here the layouts are stated block by block.
"""

import itertools

import numpy as np
import pytest
from bits import assert_same_codes
from lanes import codes_of, range_of

from dtypes import FORMATS
from emulator import Instruction, OperandError, UndefinedError, compress, execute
from emulator.layout.descriptor import Descriptor, TileShape
from emulator.memory.descriptors import load_tile, store_tile

pytestmark = pytest.mark.sampled(4)

SWIZZLES = (0, 32, 64, 128)
#: type -> bits of an element; 16-bit types may be transposed
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}
CASES = [
    (type_, major, swizzle)
    for type_, bits in BITS.items()
    for major in (("k", "mn") if bits == 16 else ("k",))
    for swizzle in SWIZZLES
]


def canonical(rows, r, byte, swizzle):
    """Offset of byte `byte` of line r (of `rows` lines in one direction), one block after another.

    A block is 8 lines as wide as the swizzle; a line's 16-byte units are permuted by the number of
    the 128 bytes that it starts in.
    """
    wide = swizzle or 16
    blocks = -(-rows // 8)
    block = byte // wide * blocks + r // 8
    line = r % 8
    unit = byte % wide // 16
    if swizzle:
        unit ^= line * wide // 128
    return block * 8 * wide + line * wide + unit * 16 + byte % 16


def random_codes(rng, rows, k, type_):
    return rng.integers(0, 1 << BITS[type_], (rows, k), np.uint64).astype(
        np.uint32 if BITS[type_] == 32 else np.uint16 if BITS[type_] == 16 else np.uint8
    )


# --- the word ---


def test_encode_and_decode():
    rng = np.random.default_rng(1)
    for swizzle in SWIZZLES:
        values = [16 * int(x) for x in rng.integers(0, 1 << 14, 3)]
        whole = Descriptor(*values, base_offset=int(rng.integers(0, 8)), swizzle_bytes=swizzle)
        word = whole.encode()
        assert isinstance(word, np.uint64)
        assert Descriptor.decode(word) == Descriptor.decode(int(word)) == whole
        # 63:62 swizzle, 51:49 base offset; other bits belong to no field
        assert int(word) >> 62 == {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
        assert Descriptor.decode(int(word) | 0x3 << 14 | 0x7 << 46 | 0x3FF << 52) == whole


@pytest.mark.parametrize("word", [-1, 1 << 64, 1.0, True, "0", None, np.zeros(2, np.uint64)])
def test_decode_takes_one_word(word):
    with pytest.raises(OperandError, match=r"a matrix descriptor of 64 bits is 0 … .*; got"):
        Descriptor.decode(word)


def test_fields_that_do_not_fit():
    with pytest.raises(OperandError, match=r"start_address.*multiple of 16.*got 8"):
        Descriptor(8)
    with pytest.raises(OperandError, match="stride_byte_offset"):
        Descriptor(0, 0, 1 << 18)
    with pytest.raises(OperandError, match=r"swizzle_bytes.*got 16"):
        Descriptor(0, swizzle_bytes=16)


# --- for_tile ---


@pytest.mark.parametrize(("type_", "major", "swizzle"), CASES)
def test_for_tile_places_blocks_one_after_another(type_, major, swizzle):
    bits = BITS[type_]
    size = max(1, bits // 8)
    for rows, row_bytes in ((8, 32), (64, 32), (24, 64), (40, 256)):
        k = row_bytes * 8 // bits
        tile = TileShape.of(rows, k, type_, major)
        start = 4096 + 128 * (rows // 8)  # base offsets 1, 0, 3, 5
        descriptor, taken = Descriptor.for_tile(
            rows, k, type_, major=major, swizzle_bytes=swizzle, start_address=start
        )
        assert descriptor.validate(tile) == []
        got = descriptor.addresses(tile) - start
        if major == "k":
            want = [[canonical(rows, r, c * size, swizzle) for c in range(tile.k)]
                    for r in range(rows)]  # fmt: skip
        elif swizzle:
            # Lines are columns here; blocks follow each other along the rows first.
            high = -(-rows * 2 // swizzle)
            want = [[canonical(8, c % 8, r * 2, swizzle) + c // 8 * high * 8 * swizzle
                     for c in range(k)] for r in range(rows)]  # fmt: skip
        else:
            want = [[c // 8 * (rows // 8) * 128 + r // 8 * 128 + c % 8 * 16 + r % 8 * 2
                     for c in range(k)] for r in range(rows)]  # fmt: skip
        assert got.tolist() == want
        assert taken >= got.max() + size
        if (row_bytes if major == "k" else rows * size) % max(swizzle, 16) == 0:
            assert sorted(got.reshape(-1).tolist()) == list(range(0, taken, size))


@pytest.mark.parametrize(("type_", "major", "swizzle"), CASES)
def test_store_and_load(type_, major, swizzle):
    rng = np.random.default_rng(swizzle)
    fmt, k = FORMATS[type_], 512 // BITS[type_]
    for start in (0, 1024) if swizzle == 0 else (0, 128, 256, 640, 1024):
        codes = random_codes(rng, 24, k, type_)
        descriptor, size = Descriptor.for_tile(
            24, k, type_, major=major, swizzle_bytes=swizzle, start_address=start
        )
        assert descriptor.base_offset == (start // 128) % max(1, swizzle // 16)
        memory = np.full(start + size, 0xAA, np.uint8)
        store_tile(memory, descriptor, codes, fmt, major)
        assert (memory[:start] == 0xAA).all()
        assert_same_codes(load_tile(memory, descriptor, 24, k, fmt, major), codes)
        # Every element lies, low byte first, at the bytes that address() names.
        tile = TileShape.of(24, k, type_, major)
        for row, column in rng.integers(0, (24, tile.k), (20, 2)).tolist():
            where = descriptor.address(row, column, tile)
            held = int.from_bytes(bytes(memory[where.start : where.stop]), "little")
            if type_ == "b1":
                assert [held >> i & 1 for i in range(8)] == (
                    codes[row, 8 * column : 8 * column + 8].tolist()
                )
            else:
                assert held == codes[row, column]


def test_another_swizzle_reads_something_else():
    codes = random_codes(np.random.default_rng(2), 64, 16, "f16")
    memory, fmt = np.zeros(8192, np.uint8), FORMATS["f16"]
    store_tile(memory, Descriptor.for_tile(64, 16, fmt, swizzle_bytes=32).descriptor, codes, fmt)
    for swizzle in (0, 64, 128):
        other, _ = Descriptor.for_tile(64, 16, fmt, swizzle_bytes=swizzle)
        with pytest.raises(AssertionError, match="codes differ"):
            assert_same_codes(load_tile(memory, other, 64, 16, fmt), codes)


def test_a_batch_of_memories_and_descriptors():
    rng, fmt = np.random.default_rng(3), FORMATS["bf16"]
    codes = rng.integers(0, 1 << 16, (3, 8, 16), np.uint16)
    words = np.array([Descriptor.for_tile(8, 16, fmt, swizzle_bytes=s).descriptor.encode()
                      for s in (0, 32, 128)])  # fmt: skip
    memory = np.zeros((3, 2048), np.uint8)
    store_tile(memory, words, codes, fmt)
    assert_same_codes(load_tile(memory, words, 8, 16, fmt), codes)
    store_tile(memory[:0], words[:0], codes[:0], fmt)
    assert load_tile(memory[:0], words[:0], 8, 16, fmt).shape == (0, 8, 16)
    with pytest.raises(OperandError, match=r"each shared memory of \(2048,\) takes one tile"):
        store_tile(memory[0], words, codes, fmt)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((64, 16, "f32"), "wgmma reads from memory is f16, bf16, .*; got 'f32'"),
        ((64, 12, "b1"), "k of b1 is a multiple of 8; got 12"),
        ((60, 16, "f16"), "60 rows: wgmma reads a multiple of 8"),
        ((64, 12, "f16"), "12 columns: a core matrix holds 8"),
        ((0, 16, "f16"), "rows of a TileShape is 1 … 262144; got 0"),
        ((64, 1.5, "f16"), "got 1.5"),
    ],
)
def test_for_tile_refuses(arguments, words):
    with pytest.raises(OperandError, match=words):
        Descriptor.for_tile(*arguments)


def test_for_tile_refuses_options():
    with pytest.raises(OperandError, match=r"MN-major tile of 8-bit.*only 16-bit types"):
        Descriptor.for_tile(64, 32, "s8", major="mn")
    with pytest.raises(OperandError, match=r"32 is no multiple of 128.*stepped"):
        Descriptor.for_tile(64, 16, "f16", start_address=32)
    with pytest.raises(OperandError, match=r"swizzle_bytes is one of.*got 48"):
        Descriptor.for_tile(64, 16, "f16", swizzle_bytes=48)
    with pytest.raises(OperandError, match=r"start_address must be a multiple of 16.*got 8"):
        Descriptor.for_tile(64, 16, "f16", start_address=8)
    with pytest.raises(OperandError, match="'k' or 'mn'; got 'm'"):
        Descriptor.for_tile(64, 16, "f16", major="m")
    with pytest.raises(
        OperandError, match=r"18 bits of shared addresses end at 0x40000.*row 0, k 32"
    ):
        Descriptor.for_tile(64, 128, "f16", swizzle_bytes=64, start_address=(1 << 18) - 4096)


# --- through execute ---


def integer_matmul(a, b):
    return a.astype(np.int64) @ b.astype(np.int64).T


def product(ins, descriptors, memory, **options):
    d = execute(
        ins, descriptors[0], descriptors[1], ins.fragment("d").zeros(), *options.pop("e", ()),
        shared=memory, scale_d=False, target="sm_90a", **options,
    )  # fmt: skip
    codes = ins.fragment("d").gather(d)
    return codes.view({"f32": np.float32, "s32": np.int32}[ins.d_type]).astype(np.int64)


#: type -> k of a dense instruction
DENSE = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}


def opcode(type_, n, sparse=False):
    d = {"s8": "s32", "u8": "s32", "b1": "s32"}.get(type_, "f32")
    sp, k = (".sp", 2 * DENSE[type_]) if sparse else ("", DENSE[type_])
    end = ".and.popc" if type_ == "b1" else ""
    return f"wgmma.mma_async{sp}.sync.aligned.m64n{n}k{k}.{d}.{type_}.{type_}{end}"


def small(rng, shape, type_):
    """Integers that the type holds and whose sums are exact, and their codes."""
    low, high = (0, 1) if type_ == "b1" else range_of(type_)
    values = rng.integers(low, high, shape, endpoint=True)
    if type_ in ("tf32", "bf16"):
        word = codes_of(values, "f32")
        return values, word if type_ == "tf32" else (word >> 16).astype(np.uint16)
    return values, codes_of(values, type_).astype(np.uint16 if type_ == "f16" else np.uint8)


@pytest.mark.parametrize("type_", DENSE)
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_wgmma_multiplies_what_was_stored(type_, swizzle):
    majors = ("k", "mn") if BITS[type_] == 16 else ("k",)
    for (major_a, major_b), n in itertools.product(itertools.product(majors, repeat=2), (16, 128)):
        rng = np.random.default_rng(n + swizzle)
        ins = Instruction.parse(opcode(type_, n))
        (a, a_codes), (b, b_codes) = (small(rng, (rows, ins.k), type_) for rows in (64, n))
        place = {"swizzle_bytes": swizzle}
        to_a, size = Descriptor.for_tile(64, ins.k, type_, major=major_a, **place)
        # B starts behind A, which may be in the middle of a swizzle pattern.
        to_b, more = Descriptor.for_tile(
            n, ins.k, type_, major=major_b, start_address=size + 128, **place
        )
        memory = np.zeros(size + 128 + more, np.uint8)
        store_tile(memory, to_a, a_codes, FORMATS[type_], major_a)
        store_tile(memory, to_b, b_codes, FORMATS[type_], major_b)
        trans = {"imm_trans_a": int(major_a == "mn"), "imm_trans_b": int(major_b == "mn")}
        got = product(ins, (to_a.encode(), to_b.encode()), memory, **trans)
        assert np.array_equal(got, integer_matmul(a, b))


@pytest.mark.parametrize("type_", [t for t in DENSE if t != "b1"])
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_sparse_wgmma_multiplies_what_was_stored(type_, swizzle):
    rng = np.random.default_rng(swizzle)
    ins = Instruction.parse(opcode(type_, 24, sparse=True))
    (a, a_codes), (b, b_codes) = (small(rng, (rows, ins.k), type_) for rows in (64, 24))
    width = 2 if type_ == "tf32" else 4
    keep = np.argsort(rng.random((64, ins.k // width, width)), -1) < width // 2
    a, a_codes = (x * keep.reshape(64, ins.k) for x in (a, a_codes))
    for major in ("k", "mn") if BITS[type_] == 16 else ("k",):
        for selector in range(ins.fragment("e").groups):
            stored, e = compress(ins, a_codes, selector)
            to_a, size = Descriptor.for_tile(
                64, ins.k // 2, type_, major=major, swizzle_bytes=swizzle
            )
            to_b, more = Descriptor.for_tile(
                24, ins.k, type_, swizzle_bytes=swizzle, start_address=size
            )
            memory = np.zeros(size + more, np.uint8)
            store_tile(memory, to_a, stored, FORMATS[type_], major)
            store_tile(memory, to_b, b_codes, FORMATS[type_])
            got = product(ins, (to_a.encode(), to_b.encode()), memory, e=(e,),
                          selector=selector, imm_trans_a=int(major == "mn"))  # fmt: skip
            assert np.array_equal(got, integer_matmul(a, b))


def test_steps_along_k_inside_of_a_swizzled_tile():
    """A kernel's main loop: one 64 × 64 tile, four instructions of k 16, 32 bytes apart."""
    rng = np.random.default_rng(5)
    ins = Instruction.parse(opcode("f16", 8))
    (a, a_codes), (b, b_codes) = (small(rng, (rows, 64), "f16") for rows in (64, 8))
    to_a, size = Descriptor.for_tile(64, 64, "f16")
    to_b, more = Descriptor.for_tile(8, 64, "f16", start_address=size)
    memory = np.zeros(size + more, np.uint8)
    store_tile(memory, to_a, a_codes, FORMATS["f16"])
    store_tile(memory, to_b, b_codes, FORMATS["f16"])
    d = ins.fragment("d").zeros()
    for step in range(0, 128, 32):
        words = (x.stepped(step).encode() for x in (to_a, to_b))
        d = execute(ins, *words, d, shared=memory, target="sm_90a")
        assert to_a.stepped(step).validate(TileShape.of(64, 16, "f16")) == []
    assert np.array_equal(ins.fragment("d").gather(d).view(np.float32), a @ b.T)


# --- errors of store_tile ---


def test_store_tile_writes_all_or_nothing():
    codes = random_codes(np.random.default_rng(6), 64, 16, "f16")
    fmt, memory = FORMATS["f16"], np.zeros(2048, np.uint8)
    good, _ = Descriptor.for_tile(64, 16, fmt, swizzle_bytes=0)
    with pytest.raises(UndefinedError, match=r"row 0, k 8.*2048 of shared memory, .* 2048 bytes"):
        store_tile(memory, Descriptor(0, 2048, 128), codes, fmt)
    with pytest.raises(OperandError, match=r"\(4, 0\) and \(8, 0\) of the tile at the same byte"):
        store_tile(memory, Descriptor(0, 1024, 64), codes, fmt)
    with pytest.raises(OperandError, match="unsigned element codes"):
        store_tile(memory, good, codes.astype(np.int64), fmt)
    with pytest.raises(OperandError, match=r"code 0x1.* does not fit the 16 bits"):
        store_tile(memory, good, codes.astype(np.uint32) | 0x10000, fmt)
    with pytest.raises(OperandError, match="multiple of 8 for 1-bit"):
        store_tile(memory, good, codes[:, :4] & 1, FORMATS["b1"])
    with pytest.raises(OperandError, match="uint8 array"):
        store_tile(memory.view(np.int8), good, codes, fmt)
    assert not memory.any()
    memory.flags.writeable = False
    with pytest.raises(OperandError, match="read-only"):
        store_tile(memory, good, codes, fmt)
