"""Shared-memory descriptors of tcgen05: fields, and the address of every element they lead to.

The formulas are those of CuTe's layouts for this generation, written one element at a time.
"""

import itertools

import numpy as np
import pytest

from emulator import InstructionDescriptor, OperandError
from emulator.layout.shared_descriptor import SharedMemoryDescriptor, operand_tile
from emulator.layout.tile import TileShape

pytestmark = pytest.mark.sampled(3)

#: (swizzle in bytes, bytes of its atoms) -> code of bits 63:61
CODES = {(0, 16): 0, (128, 32): 1, (128, 16): 2, (64, 16): 4, (32, 16): 6}


def address(start, lbo, sbo, base, swizzle, atom, major, size, r, k):
    """Byte address of row r of the M or N dimension, column k, for elements of `size` bytes."""
    t, w = 16 // size, max(1, swizzle // 16)
    if atom == 32:
        o = (r % t) * size + ((r // t) % 8) * 16 + (r // (8 * t)) * lbo
        a = start + o + (k % 4) * 128 + (k // 4) * sbo
        return a ^ ((a >> 7 & 3) << 5)
    if major == "k" and w == 1:
        o = (r % 8) * 16 + (r // 8) * sbo + (k // t) * lbo + (k % t) * size
    elif major == "k":
        o = (r % 8) * 16 * w + (r // 8) * sbo + ((k // t) % w) * 16
        o += (k // (t * w)) * lbo + (k % t) * size
    elif w == 1:
        o = (r % t) * size + (r // t) * sbo + (k % 8) * 16 + (k // 8) * lbo
    else:
        o = (r % t) * size + ((r // t) % w) * 16 + (r // (t * w)) * lbo
        o += (k % 8) * 16 * w + (k // 8) * sbo
    a = start + o
    return a ^ (((a >> 7) - base & (w - 1)) << 4)


LAYOUTS = [
    *itertools.product([0, 32, 64, 128], [16], "k", [1, 2, 4]),
    *itertools.product([0, 32, 64, 128], [16], ["mn"], [1, 2]),
    (128, 32, "mn", 4),
]


@pytest.mark.parametrize(("swizzle", "atom", "major", "size"), LAYOUTS)
def test_every_element_lies_where_the_formula_says(swizzle, atom, major, size):
    rng = np.random.default_rng(size)
    rows, columns = 64, 32 // size
    for _ in range(3):
        start, lbo, sbo = (16 * int(rng.integers(0, 1 << 10)) for _ in range(3))
        base = int(rng.integers(0, 8)) if atom == 16 else 0
        descriptor = SharedMemoryDescriptor(start, lbo, sbo, base, swizzle, atom)
        places = descriptor.addresses(TileShape(rows, columns, size, major))
        for r, k in itertools.product(range(rows), range(columns)):
            want = address(start, lbo, sbo, base, swizzle, atom, major, size, r, k)
            assert places[r, k] == want


@pytest.mark.parametrize("swizzle", CODES)
def test_fields_stand_where_the_manual_puts_them(swizzle):
    rng = np.random.default_rng(sum(swizzle))
    for _ in range(20):
        start, lbo, sbo = (16 * int(rng.integers(0, 1 << 14)) for _ in range(3))
        base = int(rng.integers(0, 8))
        descriptor = SharedMemoryDescriptor(start, lbo, sbo, base, *swizzle)
        want = start >> 4 | (lbo >> 4) << 16 | (sbo >> 4) << 32 | 1 << 46 | base << 49
        assert int(descriptor.encode()) == want | CODES[swizzle] << 61
        assert SharedMemoryDescriptor.decode(descriptor.encode()) == descriptor
    flagged = SharedMemoryDescriptor(16, swizzle_bytes=128, leading_is_address=True)
    assert int(flagged.encode()) == 1 | 1 << 46 | 1 << 52 | 2 << 61
    assert SharedMemoryDescriptor.decode(flagged.encode()) == flagged
    assert int(SharedMemoryDescriptor(0, second_half=True).encode()) == 1 << 46 | 1 << 53


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (0, "bits 48:46 are 0b000.*wgmma"),
        (2 << 46, "0b010"),
        (1 << 46 | 3 << 61, "swizzle code 3 in bits 63:61.*0 no swizzle, 1 128-byte"),
        (1 << 46 | 5 << 61, "swizzle code 5"),
        (1 << 64, "64 bits"),
        (1 << 46 | 1 << 52, "goes with the 128-byte swizzle"),
    ],
)
def test_words_that_mean_nothing(word, message):
    with pytest.raises(OperandError, match=message):
        SharedMemoryDescriptor.decode(word)


def test_sm_107_has_a_bit_more_of_addresses():
    wide = SharedMemoryDescriptor((1 << 18) + 1024, (1 << 19) - 16, 1024, swizzle_bytes=128)
    word = int(wide.encode())
    assert word & 0xFFFFFFFF == 0x7FFF << 16 | 0x4040
    assert SharedMemoryDescriptor.decode(word, "sm_107a") == wide
    for target in (None, "sm_100a", "sm_103f"):
        narrow = SharedMemoryDescriptor.decode(word, target)
        assert (narrow.start_address, narrow.leading_byte_offset) == (1024, (1 << 18) - 16)
        assert narrow.stride_byte_offset == 1024


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"start_address": 8}, "multiple of 16"),
        ({"start_address": 1 << 19}, "start_address is 0 … 524272"),
        ({"stride_byte_offset": 1 << 18}, "stride_byte_offset is 0 … 262128"),
        ({"swizzle_bytes": 48}, "no swizzle of tcgen05"),
        ({"swizzle_bytes": 64, "atom_bytes": 32}, "no swizzle of tcgen05"),
        ({"base_offset": 8}, "0 … 7"),
    ],
)
def test_fields_that_do_not_fit(fields, message):
    with pytest.raises(OperandError, match=message):
        SharedMemoryDescriptor(**{"start_address": 0, **fields})


def test_48_byte_rows_go_on_at_the_address_in_lbo():
    """K = 96 of fp4: the third of three steps leaves the 128-byte line after 32 bytes."""
    chunk, rows = 1024 * 16, 128
    descriptor = SharedMemoryDescriptor(96, chunk, 1024, 0, 128, leading_is_address=True)
    places = descriptor.addresses(TileShape(rows, 48, 1))
    for r, x in itertools.product(range(rows), range(48)):
        line = r % 8 * 128 + r // 8 * 1024
        a = line + (96 + x if x < 32 else chunk + x - 32)
        assert places[r, x] == a ^ (a >> 7 & 7) << 4


OPERANDS = [
    (InstructionDescriptor("f16", "f16", "f16", n=64), "a", TileShape(128, 16, 2)),
    (InstructionDescriptor("f16", n=64, transpose_b=True), "b", TileShape(64, 16, 2, "mn")),
    (InstructionDescriptor("tf32", n=64, transpose_a=True), "a", TileShape(128, 8, 4, "mn")),
    (InstructionDescriptor("f16", n=64, sparse=True), "a", TileShape(128, 16, 2)),
    (InstructionDescriptor("f16", n=64, sparse=True), "b", TileShape(64, 32, 2)),
    (InstructionDescriptor("f8f6f4", "e2m1", "e4m3", n=64), "a", TileShape(128, 32, 1)),
    (InstructionDescriptor("mxf4", n=64), "a", TileShape(128, 32, 1)),
    (InstructionDescriptor("mxf4", n=64, k=96), "b", TileShape(64, 48, 1)),
]


@pytest.mark.parametrize(("instruction", "operand", "tile"), OPERANDS)
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_a_descriptor_built_for_an_operand_reads_it(instruction, operand, tile, swizzle):
    assert operand_tile(instruction, operand) == tile
    if (tile.major, tile.element_bytes) == ("mn", 4) and swizzle != 128:
        with pytest.raises(OperandError):
            SharedMemoryDescriptor.for_operand(instruction, operand, swizzle_bytes=swizzle)
        return
    for order in ("rows", "columns"):
        built, size = SharedMemoryDescriptor.for_operand(
            instruction, operand, swizzle_bytes=swizzle, start_address=2048, order=order
        )
        places = built.addresses(tile)
        assert len(np.unique(places)) == tile.rows * tile.k
        assert places.min() >= 2048 and places.max() + tile.element_bytes <= 2048 + size
        assert not [x for x in built.findings(tile) if x.level == "error"]


def test_a_pair_shares_rows():
    instruction = InstructionDescriptor("f16", m=256, n=64)
    assert operand_tile(instruction, "a", 2) == TileShape(128, 16, 2)
    assert operand_tile(instruction, "b", 2) == TileShape(32, 16, 2)


def test_what_reads_wrong_bytes_is_found():
    tile = TileShape(128, 8, 4, "mn")
    (found,) = SharedMemoryDescriptor(0, 512, 512, swizzle_bytes=128).findings(tile)[:1]
    assert found.field == "swizzle" and "32-byte atoms alone" in found.message
    wide = SharedMemoryDescriptor(0, 512, 512, 0, 128, 32)
    assert "both read byte" in wide.validate(tile)[0]
    assert "for MN-major 32-bit" in wide.validate(TileShape(128, 16, 2))[0]
    apart = SharedMemoryDescriptor(1 << 17, 512, 2048, 0, 128, 32)
    assert apart.validate(tile) == []
    assert "the tile ends" in apart.validate(tile, 1 << 17)[0]
    rows = SharedMemoryDescriptor(0, 0, 128, 0, 128).findings(TileShape(12, 16, 2))
    assert any("tcgen05 reads a multiple of 8 rows" in x.message for x in rows)
