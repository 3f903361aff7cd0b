"""Which bytes tensor copies move: as the specification says, anywhere; and what is refused."""

import numpy as np
import pytest
from bits import assert_same_codes
from boxes import BASE, Memory, random_map, random_place, shared_image

from emulator import OperandError, TensorMap, UnsupportedError
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import TileShape
from emulator.memory.tensor_copy import MODES, place_problem, plan, swizzled
from emulator.memory.tensor_copy_reference import elements, load_code, swizzled_byte
from emulator.memory.tensor_map_bits import SWIZZLES
from emulator.memory.tensor_transfer import OUTSIDE_NAN, load_box

pytestmark = pytest.mark.sampled(2)


@pytest.mark.parametrize("mode", MODES)
def test_copies_equal_the_specification(mode):
    rng = np.random.default_rng(list(MODES).index(mode))
    partly = 0
    for _ in range(150):
        size, tensor_map = random_map(rng, mode)
        coordinates, offsets = random_place(rng, tensor_map, mode)
        shared = int(rng.integers(0, 64)) * 128
        copy = plan(tensor_map, mode).at(BASE, coordinates, offsets)
        wanted = list(elements(tensor_map, mode, coordinates, offsets, shared))
        inside = np.array([e.global_address is not None for e in wanted])
        assert len(wanted) * copy.plan.element_bytes == copy.plan.bytes
        assert (copy.element_inside.ravel() == inside).all(), tensor_map
        columns = np.arange(copy.plan.row_elements) * copy.plan.element_bytes
        found = (copy.row_address[..., None] + columns).ravel()[inside]
        assert found.tolist() == [e.global_address for e in wanted if e.global_address is not None]
        runs = copy.plan.run_addresses(shared)
        steps = np.arange(16 // copy.plan.element_bytes) * copy.plan.element_bytes
        places = (runs[..., None] + steps).ravel()
        assert places.tolist() == [e.shared_address for e in wanted], tensor_map
        assert copy.whole == inside.all()
        partly += inside.any() and not inside.all()

        data = rng.integers(0, 256, size, dtype=np.uint8)
        box = load_box(copy, Memory(data).read).reshape(-1)
        kind, outside = f"u{copy.plan.element_bytes}", 0
        if tensor_map.fill == "nan":
            outside = int.from_bytes(OUTSIDE_NAN.to_bytes(2, "little") * 4, "little")
            outside %= 1 << 8 * copy.plan.element_bytes
        codes = []
        for element in wanted:
            code = outside
            if element.global_address is not None:
                at = element.global_address - BASE
                bits = data[at : at + copy.plan.element_bytes].view(kind)[0]
                code = load_code(tensor_map.dtype, int(bits))
            codes.append(code)
        assert_same_codes(box.view(kind), np.array(codes, kind))
    assert partly > 20


@pytest.mark.parametrize("mode", MODES)
def test_many_copies_at_once(mode):
    rng = np.random.default_rng(50)
    for _ in range(10):
        size, tensor_map = random_map(rng, mode)
        memory = Memory(rng.integers(0, 256, size, dtype=np.uint8))
        places = [random_place(rng, tensor_map, mode) for _ in range(12)]
        coordinates = np.array([c for c, _ in places], np.int32).reshape(3, 4, -1)
        offsets = np.array([o for _, o in places], np.uint16).reshape(3, 4, -1)
        several = plan(tensor_map, mode).at(BASE, coordinates, offsets)
        boxes = load_box(several, memory.read)
        for i, (one, shift) in enumerate(places):
            alone = plan(tensor_map, mode).at(BASE, one, shift)
            assert_same_codes(boxes.reshape(12, *boxes.shape[2:])[i], load_box(alone, memory.read))


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_swizzles_equal_the_specification(swizzle):
    addresses = np.arange(8192)
    wanted = [swizzled_byte(int(a), swizzle) for a in addresses]
    assert swizzled(addresses, swizzle).tolist() == wanted
    assert swizzled(5555, swizzle) == swizzled_byte(5555, swizzle)
    assert sorted(wanted) == list(range(8192))


@pytest.mark.parametrize("swizzle", SWIZZLES[1:])
@pytest.mark.parametrize("start", [0x400, 0x480, 0x1380])
def test_wgmma_reads_what_a_load_has_written(swizzle, start):
    """The layout of matrix descriptors was measured by itself."""
    width = int(swizzle[:-1])
    x = np.arange(64 * width // 2, dtype=np.uint16).reshape(64, width // 2)
    tensor_map = TensorMap.tiled(x, box=x.shape[::-1], swizzle=swizzle)
    copy = plan(tensor_map).at(BASE, (0, 0))
    image = shared_image(copy, load_box(copy, Memory(x).read), start, 0x4000)
    descriptor = Descriptor(start, 16, 8 * width, 0, width)
    tile = TileShape.of(64, width // 2, "f16")
    assert_same_codes(image.view(np.uint16)[descriptor.addresses(tile) // 2], x)


# --- what is refused ---


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("im2col", OperandError, "needs a map in im2col mode; TensorMap.tiled("),
        ("im2col::w", UnsupportedError, "legal PTX, not modelled here"),
        ("im2col::w::128", UnsupportedError, "legal PTX, not modelled here"),
        ("tiles", OperandError, "no mode 'tiles' of tensor copies; nearest is 'tile'"),
        ("tile::gather4", OperandError, "rank 2 with a box of one row"),
    ],
)
def test_modes_that_do_not_go(mode, error, words):
    tensor_map = TensorMap.tiled(BASE, dtype="uint8", dims=(64, 8), box=(64, 2))
    with pytest.raises(error) as caught:
        plan(tensor_map, mode)
    assert words in str(caught.value)


def test_a_slice_of_channels_is_a_dimension():
    """Width, slices, images of 32 bytes a slice: one slice of two images, four wide."""
    tensor_map = TensorMap.tiled(
        BASE, dtype="uint16", dims=(5, 3, 2), strides=(160, 480), box=(8, 64, 2),
        element_strides=(2, 1, 1), interleave="32B",
    )  # fmt: skip
    copy = plan(tensor_map).at(BASE, (1, 2, 0))
    assert (copy.plan.rows, copy.plan.row_elements, copy.plan.bytes) == (8, 16, 256)
    assert copy.row_inside.tolist() == [True, True, False, False] * 2
    assert (copy.row_address[copy.row_inside] - BASE).tolist() == [352, 416, 832, 896]


def test_rows_narrower_than_the_swizzle_lie_apart():
    tensor_map = TensorMap.tiled(BASE, dtype="uint8", dims=(32, 8), box=(32, 3), swizzle="128B")
    narrow = plan(tensor_map)
    assert (narrow.bytes, narrow.row_pitch, narrow.shared_bytes) == (96, 128, 384)
    assert narrow.run_addresses(0).tolist() == [[0, 16], [144, 128], [288, 304]]


@pytest.mark.parametrize(
    ("coordinates", "offsets", "words"),
    [
        ((0,), (), "takes 2 coordinates; got int64 (1,)"),
        ((0, 1.5), (), "got float64 (2,)"),
        ((0, 0), (1,), "takes 0 im2col offsets"),
    ],
)
def test_wrong_coordinates(coordinates, offsets, words):
    tensor_map = TensorMap.tiled(BASE, dtype="uint8", dims=(64, 8), box=(64, 2))
    with pytest.raises(OperandError) as error:
        plan(tensor_map).at(BASE, coordinates, offsets)
    assert words in str(error.value)


def test_coordinates_are_signed_registers():
    copies = plan(TensorMap.tiled(BASE, dtype="uint8", dims=(64, 8), box=(64, 4)))
    registers = copies.at(BASE, np.array([0, 2**32 - 2], np.uint32))
    assert registers.row_inside.tolist() == [False, False, True, True]
    assert registers.row_address.tolist() == copies.at(BASE, (0, -2)).row_address.tolist()


def test_a_box_beyond_shared_memory_is_refused_before_it_takes_memory():
    vast = TensorMap.tiled(BASE, dtype="uint64", dims=(256,) * 5, box=(256,) * 5)
    with pytest.raises(OperandError, match="a box of more than 262144 bytes"):
        plan(vast)
    # Element strides thin a box out.
    thin = TensorMap.tiled(
        BASE, dtype="uint8", dims=(64, 256, 256), box=(64, 256, 256), element_strides=(1, 8, 8)
    )
    assert plan(thin).bytes == 64 * 32 * 32


def test_where_copies_may_not_begin():
    tile = plan(TensorMap.tiled(BASE, dtype="uint8", dims=(64, 8), box=(64, 4)))
    assert place_problem(tile, (-16, -1), stores=False) == ""
    assert place_problem(tile, (48, 7), stores=True) == ""
    assert "multiple of 16 bytes" in place_problem(tile, (8, 0), stores=False)
    assert "not negative" in place_problem(tile, (0, -1), stores=True)
    image = {"dtype": "uint8", "dims": (64, 9, 9, 2), "channels": 64, "pixels": 8}
    for lower, upper, words in (((0, 0), (0, -1), ""), ((0, -1), (0, 0), "within the tensor"),
                                ((0, 0), (1, 0), "within the tensor")):  # fmt: skip
        tensor_map = TensorMap.im2col(BASE, lower=lower, upper=upper, **image)
        through = plan(tensor_map, "im2col_no_offs")
        assert place_problem(through, (0, 0, 0, 0), stores=False) == ""
        assert words in place_problem(through, (0, 0, 0, 0), stores=True)
        assert bool(words) == bool(place_problem(through, (0, 0, 0, 0), stores=True))
    cut = plan(TensorMap.im2col(BASE, lower=(2, 0), upper=(-1, 0), **image), "im2col")
    for width, legal in ((1, False), (2, True), (7, True), (8, False)):
        problem = place_problem(cut, (0, width, 0, 0), stores=False)
        assert problem == "" if legal else "between the corners, at 2 to 7" in problem


def test_a_plan_is_kept_for_every_address():
    x = np.zeros((8, 64), np.uint8)
    tensor_map = TensorMap.tiled(x, box=(64, 4))
    assert plan(tensor_map) is plan(tensor_map.with_address(BASE))
    assert plan(tensor_map) is not plan(TensorMap.tiled(x, box=(64, 2)))
