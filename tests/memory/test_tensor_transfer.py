"""The bytes of tensor copies: recorded boxes, a recorded convolution, loads, stores, reductions."""

from types import SimpleNamespace

import numpy as np
import pytest
from bits import assert_same_codes
from boxes import BASE, Memory, random_map, random_place, shared_image
from paths import GOLDEN

from emulator import TensorMap, gemm
from emulator.memory import tensor_copy
from emulator.memory.arena import Arena
from emulator.memory.tensor_copy import plan
from emulator.memory.tensor_copy_reference import elements, load_code
from emulator.memory.tensor_map_bits import ELEMENT_TYPES
from emulator.memory.tensor_transfer import (
    OUTSIDE_NAN,
    load_box,
    load_conversion,
    reduce_box,
    store_box,
)

# --- recordings ---

LOADS = dict(np.load(GOLDEN / "memory" / "tensor_loads.npz"))


def arrived(which, coordinates, address):
    """What a recorded copy brings to its destination; destination is as in the recording."""
    tensor_map = TensorMap.decode(LOADS[f"map{which}"].tobytes())
    memory = Memory(LOADS[f"tensor{which}"], tensor_map.address)
    copy = plan(tensor_map).at(tensor_map.address, coordinates)
    assert not copy.whole
    image = shared_image(copy, load_box(copy, memory.read), address, 0x4000)
    return image[address : address + copy.plan.bytes]


def test_boxes_arrive_as_on_the_h200():
    assert_same_codes(arrived(0, (-8, 20), 0x400), LOADS["shared0"])
    assert_same_codes(arrived(1, (4, -2, 1), 0x1400), LOADS["shared1"])


@pytest.mark.parametrize("bits", [0, 1, 3])
def test_recorded_boxes_notice_another_swizzle(bits, monkeypatch):
    monkeypatch.setitem(tensor_copy.SWIZZLE_BITS, "64B", bits)
    tensor_copy._swizzled_runs.cache_clear()
    assert (arrived(0, (-8, 20), 0x400) != LOADS["shared0"]).any()
    tensor_copy._swizzled_runs.cache_clear()


@pytest.mark.parametrize(
    ("coordinates", "address"), [((-7, 20), 0x400), ((-8, 21), 0x400), ((-8, 20), 0x480)]
)
def test_recorded_boxes_notice_another_place(coordinates, address):
    assert (arrived(0, coordinates, address) != LOADS["shared0"]).any()


CONVOLUTION = dict(np.load(GOLDEN / "memory" / "convolution.npz"))


def convolved(tensor_map):
    """f16 codes ``(128 pixels, 8 filters)``: the convolution as the recorded kernel computes it.

    Its blocks of k are 64 channels, then filter columns, then filter rows.
    """
    base = tensor_map.address
    memory = Memory(CONVOLUTION["activations"], base)
    filters, left, right = CONVOLUTION["filters"], [], []
    im2col = plan(tensor_map, "im2col")
    for row in range(3):
        for column in range(3):
            for channel in (0, 64):
                # The first output pixel; the filter's first position there is -1 in both ways.
                copy = im2col.at(base, (channel, -1, -1, 0), (column, row))
                left.append(load_box(copy, memory.read).view(np.float16))
                part = filters[:, row, column, channel : channel + 64]
                right.append(np.pad(part, ((0, 0), (0, 64 - part.shape[1]))).view(np.float16))
    accumulator = gemm(
        np.concatenate(left, 1), np.concatenate(right, 1).T,
        instruction="wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", target="sm_90a",
    )  # fmt: skip
    c = CONVOLUTION["c"].view(np.float16).astype(np.float32)
    return (accumulator + np.float32(0.5) * c).astype(np.float16).view(np.uint16)


def test_a_convolution_through_im2col_gives_the_bits_of_the_h200():
    tensor_map = TensorMap.decode(CONVOLUTION["map"].tobytes())
    assert (tensor_map.element_strides, tensor_map.lower) == ((1, 2, 2, 1), (-1, -1))
    assert_same_codes(convolved(tensor_map), CONVOLUTION["d"])


@pytest.mark.parametrize(
    "change",
    [
        {"lower": (0, -1)}, {"upper": (-1, 1)}, {"element_strides": (1, 1, 2, 1)},
        {"element_strides": (1, 2, 1, 1)}, {"dims": (72, 17, 15, 3)}, {"fill": "nan"},
    ],
)  # fmt: skip
def test_the_recorded_convolution_notices_a_mistake(change):
    kept = TensorMap.decode(CONVOLUTION["map"].tobytes())
    fields = {
        name: getattr(kept, name)
        for name in ("dtype", "dims", "strides", "lower", "upper", "channels", "pixels", "fill",
                     "element_strides", "swizzle")
    }  # fmt: skip
    other = TensorMap.im2col(kept.address, **(fields | {"dtype": "float16"} | change))
    assert (convolved(other) != CONVOLUTION["d"]).any()


# --- what arrives, what is stored ---


@pytest.mark.parametrize("dtype", ["float32", "float32_ftz", "tfloat32", "tfloat32_ftz"])
def test_conversions_of_a_load(dtype):
    exponents = np.arange(256, dtype=np.uint32)[:, None] << 23
    fractions = [0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x3000, 0x3001, 0x7FEFFF, 0x7FF000,
                 0x7FFFFF, 0x400000]  # fmt: skip
    codes = (exponents | np.array(fractions, np.uint32)).ravel()
    codes = np.concatenate([codes, codes | 0x80000000]).astype(np.uint32)
    codes = np.concatenate([codes, np.random.default_rng(3).integers(0, 2**32, 2000, np.uint32)])
    wanted = np.array([load_code(dtype, int(code)) for code in codes], np.uint32)
    assert_same_codes(load_conversion(dtype, codes.view(np.uint8)).view(np.uint32), wanted)
    assert (wanted == codes).all() == (not dtype.startswith("tfloat32"))


@pytest.mark.parametrize(
    ("dtype", "code", "arrives"),
    [
        ("tfloat32", 0x3F801000, 0x3F800000),  # a tie, to even
        ("tfloat32", 0x3F803000, 0x3F804000),
        ("tfloat32", 0x3F801001, 0x3F802000),
        ("tfloat32", 0x7F7FFFFF, 0x7F800000),
        ("tfloat32", 0xFF800000, 0xFF800000),
        ("tfloat32", 0x7F800001, 0x7FFFE000),
        ("tfloat32", 0xFFC00000, 0x7FFFE000),
        ("tfloat32", 0x00001800, 0x00002000),
        ("tfloat32_ftz", 0x807FFFFF, 0x80800000),  # nothing is flushed
        ("float32_ftz", 0x00000001, 0x00000001),
        ("float32_ftz", 0x00800000, 0x00800000),
    ],
)
def test_conversions_by_hand(dtype, code, arrives):
    assert load_code(dtype, code) == arrives


@pytest.mark.parametrize("name", [name for name, kind in ELEMENT_TYPES.items() if kind.is_float])
def test_what_lies_outside_is_a_nan_of_every_float_type(name):
    size = ELEMENT_TYPES[name].bytes
    code = np.full(size // 2, OUTSIDE_NAN, np.uint16)
    if name == "bfloat16":
        code = np.array([0, OUTSIDE_NAN], np.uint16)
    assert np.isnan(code.view(f"f{code.nbytes}"))[0]


@pytest.mark.parametrize("mode", ["tile", "tile::scatter4", "im2col_no_offs"])
def test_stores_skip_what_lies_outside(mode):
    rng = np.random.default_rng(8)
    for _ in range(60):
        size, tensor_map = random_map(rng, mode)
        coordinates, _ = random_place(rng, tensor_map, mode)
        copy = plan(tensor_map, mode).at(BASE, coordinates)
        box = rng.integers(0, 256, (copy.plan.rows, copy.plan.row_bytes), dtype=np.uint8)
        memory = Memory(rng.integers(0, 256, size, dtype=np.uint8))
        wanted, width = memory.data.copy(), copy.plan.element_bytes
        for element, code in zip(
            elements(tensor_map, mode, coordinates, stores=True),
            box.reshape(-1, width),
            strict=True,
        ):
            if element.global_address is not None:
                at = element.global_address - BASE
                wanted[at : at + width] = code
        store_box(copy, box, memory.write)
        assert_same_codes(memory.data, wanted)


def test_reductions_combine_what_lies_inside():
    x = np.arange(6 * 8, dtype=np.uint32).reshape(6, 8)
    memory = Memory(x)
    copy = plan(TensorMap.tiled(x, box=(8, 4))).at(BASE, (-2, 4))
    box = np.full((4, 8), 1000, np.uint32).view(np.uint8)
    reduce_box(copy, box, memory.read, memory.write, np.add)
    wanted = x.copy()
    wanted[4:, :6] += 1000
    assert_same_codes(memory.data.view(np.uint32).reshape(6, 8), wanted)


def test_reductions_of_overlapping_rows_all_count():
    memory = Memory(np.zeros(4, np.uint32))
    overlapping = TensorMap.tiled(BASE, dtype="uint32", dims=(4, 5), strides=(0,), box=(4, 5))
    box = np.arange(20, dtype=np.uint32).reshape(5, 4).view(np.uint8)
    reduce_box(plan(overlapping).at(BASE, (0, 0)), box, memory.read, memory.write, np.add)
    assert memory.data.view(np.uint32).tolist() == [40, 45, 50, 55]


def test_a_store_ends_with_memory():
    """The last 16 bytes of a row are stored whole, as far as there is memory."""
    x = np.zeros(5, np.uint32)
    arena = Arena()
    allocation = arena.allocate("x", x.nbytes, address=BASE)
    cut = TensorMap.tiled(BASE, dtype="uint32", dims=(5,), box=(8,))
    copy, box = plan(cut).at(BASE, (0,)), np.full((1, 32), 1, np.uint8)
    store_box(copy, box, arena.write_rows)
    assert (allocation.held == 1).all()
    reduce_box(copy, box, arena.read_rows, arena.write_rows, np.add)
    assert (allocation.held == 2).all()
    memory = Memory(np.zeros(8, np.uint32))
    store_box(copy, box, memory.write)
    assert memory.data.tolist() == [1] * 32


def test_rows_behind_a_tensor_are_stored_one_by_one_where_memory_ends():
    arena = Arena()
    allocation = arena.allocate("x", 12, address=BASE)
    pieces = [(slice(None), BASE + np.array([8, 0, 12, 4]), slice(0, 4))]
    copy = SimpleNamespace(pieces=list, behind=SimpleNamespace(pieces=lambda: pieces))
    store_box(copy, np.arange(16, dtype=np.uint8).reshape(4, 4), arena.write_rows)
    assert allocation.held.tolist() == [4, 5, 6, 7, 12, 13, 14, 15, 0, 1, 2, 3]


def test_a_box_outside_of_the_tensor_touches_nothing():
    x = np.ones((4, 64), np.uint8)
    copy = plan(TensorMap.tiled(x, box=(64, 4))).at(BASE, (0, 4))
    memory = Memory(x)
    assert not load_box(copy, memory.read).any()
    store_box(copy, np.zeros((4, 64), np.uint8), memory.write)
    assert memory.data.all()
    assert copy.plan.bytes == 256


def test_addresses_of_absurd_maps_wrap_around():
    """Strides and sizes may span more than 64 bits of addresses; nothing warns or raises."""
    absurd = TensorMap.tiled(
        2**64 - 16, dtype="uint8", dims=(16, 2**32), strides=(2**40 - 16,), box=(16, 256)
    )
    copy = plan(absurd).at(absurd.address, (0, 2**31 - 1))
    assert copy.row_inside.all()
    assert plan(absurd).at(absurd.address, (-(2**31), -(2**31))).row_inside.sum() == 0
