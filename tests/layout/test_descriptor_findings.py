"""``Descriptor.findings`` and ``validate``, and the core matrices that a descriptor leads to."""

import re
import tracemalloc

import pytest

from emulator import OperandError
from emulator.layout.descriptor import Descriptor, TileShape

# --- what is wrong with a descriptor ---

TILE = TileShape.of(64, 16, "f16")


@pytest.mark.parametrize(
    ("descriptor", "tile", "words"),
    [
        (
            Descriptor(128, 16, 1024, 0, 128),
            TILE,
            "128 bytes behind a multiple of 1024.*base_offset 1 where",
        ),
        (
            Descriptor(256, 16, 256, 3, 32),
            TILE,
            "0 bytes behind a multiple of 256.*is 3; legal: base_offset 0",
        ),
        (Descriptor(0, 1024, 128, 2), TILE, "base_offset 2 has no effect without a swizzle"),
        (
            Descriptor(0, 2048, 1024, 0, 128),
            TILE,
            "offset 2048 has no effect: 32 bytes of k .* one 128-byte line",
        ),
        (Descriptor(0, 1024, 64), TILE, r"\(0, 0\) and \(1, 0\) both read byte 0x40"),
        (Descriptor(0, 0, 128), TILE, r"\(0, 0\) and \(0, 1\) both read byte 0x0"),
        (
            Descriptor(0, 16, 512, 0, 128),
            TILE,
            "both read byte .*stride_byte_offset 512 does not keep the blocks",
        ),
        (
            Descriptor(64, 16, 512, 0, 64),
            TILE,
            "^start_address 0x40 .64. lies in the middle of the 128",
        ),
        (
            Descriptor(112, 16, 1024, 0, 128),
            TILE,
            "^start_address 0x70 .* lies 112 .* the last 16 are",
        ),
        (Descriptor(0, 16, 1040, 0, 128), TILE, "^stride_byte_offset 1040 is no multiple of 1024"),
        (Descriptor(0, 1024, 128), TileShape.of(60, 16, "f16"), "60 rows"),
        (Descriptor(0, 1024, 128), TileShape.of(64, 32, "s8", "mn"), "MN-major tile of 8-bit"),
        (Descriptor(0, 1024, 128), TileShape.of(64, 20, "s8"), "20 columns.*holds 16"),
        (
            Descriptor(1 << 17, 1 << 17, 128),
            TILE,
            "ends at byte 0x40400 .263168., and the 18 bits of shared",
        ),
    ],
)
def test_each_mistake_is_named(descriptor, tile, words):
    problems = descriptor.validate(tile)
    assert [p for p in problems if re.search(words, p)], problems


@pytest.mark.parametrize("sizes", [(1 << 18, 1 << 18), (1 << 12, 65), (65537, 2)])
def test_a_tile_fits_the_addresses(sizes):
    """Else a check of its bytes would take gigabytes."""
    with pytest.raises(OperandError, match="takes more than the 262144 bytes of shared addresses"):
        TileShape(*sizes, 2)
    assert TileShape(1 << 12, 32, 2).size == 1 << 18


def test_the_largest_tile_is_checked_in_little_memory():
    tracemalloc.start()
    try:
        problems = Descriptor(0, 16, 16).validate(TileShape(1 << 13, 32, 1))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert "do not keep the blocks of 128 bytes apart" in problems[0]


@pytest.mark.parametrize("size", [0, -1, 1.5, "48k", True, None])
def test_memory_has_a_size(size):
    with pytest.raises(OperandError, match="the size of shared memory is 1 or more; got"):
        Descriptor(0, 1024, 128).validate(TILE, size)


@pytest.mark.parametrize("tile", [None, "f16", (64, 16)])
def test_addresses_are_those_of_a_tile(tile):
    with pytest.raises(OperandError, match="a TileShape is needed; got"):
        Descriptor(0).addresses(tile)


def test_memory_size_and_no_mistake():
    descriptor, size = Descriptor.for_tile(64, 16, "f16", start_address=1024)
    assert size == 8192  # 8 blocks of 8 lines of 128 bytes, of which 32 are used
    assert descriptor.validate(TILE, 1024 + 8192) == []
    (problem,) = descriptor.validate(TILE, 1024 + 4096)
    assert (
        "shared memory ends at 0x1400 (5120): element (row 32, k 0) is the first outside" in problem
    )


# --- core matrices ---


def test_core_matrices_without_a_swizzle_are_128_bytes():
    descriptor, _ = Descriptor.for_tile(16, 32, "s8", swizzle_bytes=0, start_address=512)
    found = descriptor.core_matrices(TileShape.of(16, 32, "s8"))
    assert [(m.rows, m.columns) for m in found] == [
        (range(r, r + 8), range(k, k + 16)) for r in (0, 8) for k in (0, 16)
    ]
    firsts = [512, 768, 640, 896]  # rows before columns
    for matrix, first in zip(found, firsts, strict=True):
        assert matrix.lines == tuple(range(x, x + 16) for x in range(first, first + 128, 16))


def test_core_matrices_of_a_swizzled_tile():
    descriptor, _ = Descriptor.for_tile(8, 64, "f16", swizzle_bytes=128)
    found = descriptor.core_matrices(TileShape.of(8, 64, "f16"))
    for unit, matrix in enumerate(found):
        assert [x.start for x in matrix.lines] == [r * 128 + (unit ^ r) * 16 for r in range(8)]
    transposed, _ = Descriptor.for_tile(16, 8, "bf16", major="mn", swizzle_bytes=32)
    found = transposed.core_matrices(TileShape.of(16, 8, "bf16", "mn"))
    assert [(m.rows.start, m.columns.start) for m in found] == [(0, 0), (8, 0)]
    for unit, matrix in enumerate(found):
        assert [x.start for x in matrix.lines] == [k * 32 + (unit ^ k // 4) * 16 for k in range(8)]
        assert {len(x) for x in matrix.lines} == {16}


def test_address_names_the_bytes():
    descriptor, _ = Descriptor.for_tile(64, 16, "f16", swizzle_bytes=32, start_address=256)
    assert descriptor.address(5, 9, TILE) == range(256 + 5 * 32 + 2, 256 + 5 * 32 + 4)
    with pytest.raises(OperandError, match=r"row is 0 … 63.*got 64"):
        descriptor.address(64, 0, TILE)
    with pytest.raises(OperandError, match=r"k is 0 … 15.*got -1"):
        descriptor.address(0, -1, TILE)
