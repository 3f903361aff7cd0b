"""Tensor memory: allocation, what ld, st, cp and shift move, and what they refuse."""

import numpy as np
import pytest

from dtypes import FORMATS, Place, place
from emulator import InstructionDescriptor, OperandError, UndefinedError
from emulator.layout.shared_descriptor import SharedMemoryDescriptor
from emulator.layout.tensor_memory import TRANSFERS, TensorAddress, TensorLayout, transfer_places
from emulator.memory.descriptors import load_operand, load_rows, store_operand
from emulator.memory.tensor_memory import TensorMemory, load_codes, store_codes

pytestmark = pytest.mark.sampled(3)


def full():
    """All columns allocated, every word telling its lane and column."""
    memory = TensorMemory()
    assert memory.allocate(512) == 0
    lane, column = np.ogrid[:128, :512]
    memory.words[:] = lane << 16 | column
    memory.defined[:] = True
    return memory


# --- allocation ---


def test_allocations_take_the_lowest_free_run_aligned_to_their_size():
    memory = TensorMemory()
    assert [memory.allocate(n) for n in (128, 64, 64, 32)] == [0, 128, 192, 256]
    memory.deallocate(128, 64)
    assert memory.allocate(32) == 128
    assert memory.allocate(32) == 160
    for address, n in ((0, 128), (192, 64), (256, 32), (128, 32), (160, 32)):
        memory.deallocate(address, n)
    assert not memory.allocations


def test_a_full_memory_makes_the_warp_wait():
    memory = TensorMemory()
    assert memory.allocate(512) == 0
    assert memory.allocate(32) is None
    memory.deallocate(0, 512)
    assert memory.allocate(32) == 0


def test_exclusive_allocations():
    memory = TensorMemory(576)
    assert memory.allocate(576, exclusive=True) == 0
    assert memory.allocate(32) is None
    with pytest.raises(UndefinedError, match="576 columns at lane 0, column 0: allocated are"):
        memory.deallocate(0, 576)
    memory.deallocate(0, 576, exclusive=True)
    assert memory.allocate(96, exclusive=True) == 0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([48], "legal: 32, 64, 128, 256, 512"),
        ([1024], "legal: 32"),
        ([0], "legal: 32"),
        ([32, 64], "of 64 columns after one of 32: .* must not grow"),
    ],
)
def test_sizes_that_are_refused(sizes, message):
    memory = TensorMemory()
    with pytest.raises(UndefinedError, match=message):
        for size in sizes:
            memory.allocate(size)


def test_the_end_of_allocating():
    memory = TensorMemory()
    memory.allocate(64)
    memory.relinquish()
    with pytest.raises(UndefinedError, match=r"after tcgen05\.relinquish_alloc_permit"):
        memory.allocate(64)
    assert [str(x) for x in memory.allocations] == ["columns 0-63"]
    for address, n in ((32, 64), (0, 32), (1 << 16, 64)):
        with pytest.raises(UndefinedError, match="allocated are columns 0-63"):
            memory.deallocate(address, n)
    memory.deallocate(0, 64)
    assert not memory.allocations


# --- ld and st ---


@pytest.mark.parametrize("shape", TRANSFERS)
@pytest.mark.parametrize("warp", range(4))
def test_ld_brings_the_words_of_its_places(shape, warp):
    memory = full()
    for half in (0,) if shape == "32x32b" else (0, 16):
        address = TensorAddress(32 * warp + half, 40).encode()
        lanes, columns = transfer_places(shape, 8, split=64)
        got = memory.load(address, shape, 8, 4 + warp, split=64)
        want = (lanes + 32 * warp + half) << 16 | columns + 40
        assert (got.words == want).all() and got.defined.all()


@pytest.mark.parametrize("shape", TRANSFERS)
def test_st_is_the_inverse_of_ld(shape):
    memory = TensorMemory()
    memory.allocate(256)
    count = 4 * TRANSFERS[shape].registers
    given = np.random.default_rng(1).integers(0, 1 << 32, (32, count), np.uint32)
    memory.store(64 << 16 | 8, shape, 4, 2, given, split=100)
    got = memory.load(64 << 16 | 8, shape, 4, 2, split=100)
    assert (got.words == given).all() and got.defined.all()
    assert memory.defined.sum() == given.size
    assert not memory.load(64 << 16 | 64, shape, 4, 2, split=100).defined.all()


def test_packing_puts_two_columns_into_a_register():
    memory = full()
    packed = memory.load(7, "32x32b", 2, 0, packed=True)
    assert packed.words[5].tolist() == [7 | 8 << 16, 9 | 10 << 16]
    memory.defined[5, 8] = False
    assert memory.load(7, "32x32b", 2, 0, packed=True).defined[5].tolist() == [False, True]
    memory.store(0, "32x32b", 2, 0, packed.words, unpacked=True)
    assert memory.words[5, :4].tolist() == [7, 8, 9, 10]


@pytest.mark.parametrize(
    ("address", "shape", "num", "warp", "message"),
    [
        (0, "32x32b", 1, 1, r"reaches lanes 32-63, and the address names lane 32"),
        (16 << 16, "32x32b", 1, 0, "names lane 0"),
        (8 << 16, "16x64b", 1, 0, "names lane 0 or 16"),
        (508, "32x32b", 8, 0, "columns 512-515 of tensor memory; allocated are columns 0-511"),
        (500, "16x32bx2", 4, 0, "columns 1500-1503"),
    ],
)
def test_ld_outside_of_its_lanes_or_columns(address, shape, num, warp, message):
    with pytest.raises(UndefinedError, match=message):
        full().load(address, shape, num, warp, split=1000)


def test_columns_that_are_not_allocated():
    memory = TensorMemory()
    memory.allocate(64)
    with pytest.raises(UndefinedError, match=r"columns 64-67 of .*; allocated are columns 0-63"):
        memory.load(60, "32x32b", 8, 0)
    with pytest.raises(OperandError, match=r"stores registers uint32 \(32, 2\)"):
        memory.store(0, "32x32b", 2, 0, np.zeros((32, 1), np.uint32))


def test_what_was_allocated_anew_is_not_defined():
    memory = full()
    memory.deallocate(0, 512)
    memory.allocate(32)
    assert not memory.load(0, "32x32b", 1, 0).defined.any()


# --- cp and shift ---


@pytest.mark.parametrize(
    ("shape", "lanes"),
    [
        ("128x256b", lambda r: [r]),
        ("128x128b", lambda r: [r]),
        ("64x128b.warpx2::02_13", lambda r: [r, r + 64]),
        ("64x128b.warpx2::01_23", lambda r: [r // 32 * 64 + r % 32, r // 32 * 64 + r % 32 + 32]),
        ("32x128b.warpx4", lambda r: [r, r + 32, r + 64, r + 96]),
        ("4x256b", lambda r: [31 + 32 * r]),
    ],
)
@pytest.mark.parametrize("swizzle", [0, 128])
def test_cp_from_shared_memory(shape, lanes, swizzle):
    rows, bits = (int(x) for x in shape.partition("b")[0].split("x"))
    shared = np.random.default_rng(2).integers(0, 256, 1 << 15, np.uint8)
    descriptor = SharedMemoryDescriptor(1024, 4096, 8 * max(16, swizzle), 0, swizzle)
    memory = TensorMemory()
    memory.allocate(32)
    address = TensorAddress(31 if shape == "4x256b" else 0, 4).encode()
    memory.copy(address, shape, load_rows(shared, int(descriptor.encode()), shape))
    for r in range(rows):
        for x in range(bits // 8):
            unit = x // 16
            a = 1024 + r % 8 * max(16, swizzle) + r // 8 * 8 * max(16, swizzle)
            a += unit * 16 if swizzle else unit * 4096
            a = (a ^ (a >> 7 & 7) << 4 if swizzle else a) + x % 16
            for lane in lanes(r):
                assert memory.words[lane, 4 + x // 4] >> 8 * (x % 4) & 0xFF == shared[a]
    assert memory.defined.sum() == rows * bits // 32 * len(lanes(0))


def test_shift_moves_rows_by_one():
    memory = full()
    memory.shift(TensorAddress(64, 16).encode())
    assert memory.words[64, 16] == 65 << 16 | 16
    assert memory.words[94, 23] == 95 << 16 | 23
    assert memory.words[95, 16] == 95 << 16 | 16
    untouched = np.ones((128, 512), bool)
    untouched[64:95, 16:24] = False
    assert (memory.words == full().words)[untouched].all()
    with pytest.raises(UndefinedError, match="a multiple of 32; nearest is 32"):
        memory.shift(TensorAddress(40, 16).encode())


# --- matrices ---


@pytest.mark.parametrize("width", [4, 8, 16, 32])
def test_codes_are_stored_where_they_are_loaded(width):
    kinds = {4: ("mxf4", "e2m1"), 8: ("i8", "u8"), 16: ("f16", "f16"), 32: ("tf32", "tf32")}
    kind, a = kinds[width]
    places = TensorLayout(InstructionDescriptor(kind, a, a, n=64)).a
    memory = full()
    memory.words[:] = 0xFFFF_FFFF
    codes = np.random.default_rng(3).integers(0, 1 << width, places.lane.shape, np.uint64)
    where = Place(width, 0, width)
    store_codes([memory], 96, places, codes.astype(np.uint32), where, "A")
    got = load_codes([memory], 96, places, where, "A")
    assert (got.words == codes).all() and got.defined.all()
    assert (memory.words[:, :96] == 0xFFFF_FFFF).all()
    lane, k = 77, 5
    word = int(memory.words[lane, 96 + k * width // 32])
    assert word >> k * width % 32 & (1 << width) - 1 == codes[0, lane, k]


def test_a_mask_keeps_elements():
    places = TensorLayout(InstructionDescriptor(n=64)).d
    memory = full()
    mask = np.zeros(places.lane.shape, bool)
    mask[3, 4] = True
    store_codes([memory], 0, places, np.full(mask.shape, 9), Place(32, 0, 16), "D", mask)
    assert memory.words[3, 4] == 9
    assert (memory.words != full().words).sum() == 1
    with pytest.raises(UndefinedError, match="D at lane 0, column 480 reaches columns 512-543"):
        load_codes([memory], 480, places, Place(32, 0, 32), "D")


# --- operands in shared memory ---


@pytest.mark.parametrize(
    ("kind", "a", "more"),
    [
        ("f16", "bf16", {}), ("f16", "f16", {"transpose_a": True}), ("tf32", "", {}),
        ("tf32", "", {"transpose_a": True}), ("i8", "s8", {"transpose_a": True}),
        ("f8f6f4", "e4m3", {}), ("f8f6f4", "e3m2", {}), ("f8f6f4", "e2m1", {}), ("mxf4", "", {}),
        ("mxf4", "", {"k": 96}), ("f16", "f16", {"sparse": True}),
    ],
)  # fmt: skip
def test_operands_are_stored_where_they_are_loaded(kind, a, more):
    x = InstructionDescriptor(kind, a, a, n=64, **more)
    built, _ = SharedMemoryDescriptor.for_operand(x, "a", start_address=1024)
    shared = np.full(1 << 16, 0xEE, np.uint8)
    bits = {"e3m2": 6, "e2m1": 4, "": 4 if kind == "mxf4" else 32}.get(a, 8)
    bits = 16 if kind == "f16" else bits
    shape = (128, x.k // (2 if x.sparse else 1))
    codes = np.random.default_rng(4).integers(0, 1 << bits, shape, np.uint64).astype(np.uint32)
    store_operand(shared, built, codes, x, "a")
    assert (load_operand(shared, int(built.encode()), x, "a") == codes).all()


def test_where_small_elements_lie():
    """16 elements of f8f6f4 take the first 8 (fp4) or 12 (fp6) bytes of 16, the lowest first."""
    for a, bits in (("e2m1", 4), ("e2m3", 6)):
        x = InstructionDescriptor("f8f6f4", a, "e4m3", n=64)
        shared = np.zeros(1 << 14, np.uint8)
        plain = SharedMemoryDescriptor(0, 128, 256)
        codes = np.zeros((128, 32), np.uint8)
        codes[9, 17] = (1 << bits) - 1
        store_operand(shared, plain, codes, x, "a")
        # row 9 is line 1 of block 1; column 17 is element 1 of unit 1
        unit = 1 * 16 + 1 * 256 + 1 * 128
        held = int.from_bytes(shared[unit : unit + 16].tobytes(), "little")
        assert held == (1 << bits) - 1 << bits
        assert shared.sum() == shared[unit : unit + 16].sum()


@pytest.mark.parametrize(("a", "bits"), [("e2m1", 4), ("e2m3", 6)])
def test_where_small_elements_lie_without_padding_and_mn_major(a, bits):
    """At K = 64 of mxf8f6f4 the elements of a row follow each other in 4 * bits bytes of units of
    16; MN-major ones have 16 rows of a column in a unit."""
    shared, plain = np.zeros(1 << 14, np.uint8), SharedMemoryDescriptor(0, 128, 512)
    codes = np.zeros((128, 64), np.uint8)
    codes[9, 35] = (1 << bits) - 1
    store_operand(shared, plain, codes, InstructionDescriptor("mxf8f6f4", a, a, n=64, k=64), "a")
    units = [1 * 16 + 1 * 512 + unit * 128 for unit in range(bits // 2)]
    row = b"".join(shared[unit : unit + 16].tobytes() for unit in units)
    assert int.from_bytes(row, "little") == (1 << bits) - 1 << 35 * bits

    shared = np.zeros(1 << 14, np.uint8)
    codes = np.zeros((128, 32), np.uint8)
    codes[18, 11] = (1 << bits) - 1
    x = InstructionDescriptor("f8f6f4", a, "e4m3", n=64, transpose_a=True)
    store_operand(shared, plain, codes, x, "a")
    # row 18 is element 2 of unit 1 of column 11, which is line 3 of the second 8 columns
    unit = 1 * 512 + 3 * 16 + 1 * 128
    held = int.from_bytes(shared[unit : unit + 16].tobytes(), "little")
    assert held == (1 << bits) - 1 << 2 * bits
    assert (load_operand(shared, plain, x, "a") == codes).all()


def test_elements_that_lie_in_two_words():
    x = InstructionDescriptor("mxf8f6f4", "e2m3", "e2m3", n=64, k=64)
    where, memory = place(FORMATS["e2m3"], 6), TensorMemory()
    memory.allocate(32)
    layout, codes = TensorLayout(x, scales=2), np.zeros((1, 128, 64), np.uint8)
    codes[0, 7, 5] = 0b101101  # bits 30 … 35 of the row
    store_codes([memory], 3, layout.a, codes, where, "A")
    assert memory.words[7, 3:6].tolist() == [0b01 << 30, 0b1011, 0]
    assert memory.defined[7, 3:15].all() and not memory.defined[7, 15]
    codes = np.random.default_rng(1).integers(0, 64, codes.shape, np.uint8)
    store_codes([memory], 3, layout.a, codes, where, "A")
    loaded = load_codes([memory], 3, layout.a, where, "A")
    assert (loaded.words == codes).all() and loaded.defined.all()
    memory.defined[9, 4] = False
    loaded = load_codes([memory], 3, layout.a, where, "A")
    assert np.flatnonzero(~loaded.defined[0, 9]).tolist() == [5, 6, 7, 8, 9, 10]


def test_operands_outside_of_memory():
    x = InstructionDescriptor("f16", n=64)
    with pytest.raises(UndefinedError, match=r"operand a: element \(row 64, k 0\)"):
        load_operand(np.zeros(4096, np.uint8), SharedMemoryDescriptor(0, 16, 512, 0, 64), x, "a")
    with pytest.raises(OperandError, match="0b000"):
        load_operand(np.zeros(4096, np.uint8), 0, x, "a")
