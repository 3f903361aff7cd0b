"""``TensorMap``: the driver's bytes both ways, what it refuses, what arrays say."""

import ml_dtypes
import numpy as np
import pytest
from paths import GOLDEN

from emulator import EmulatorError, OperandError, TensorMap, UnsupportedError
from emulator.memory import tensor_map, tensor_map_bits
from emulator.memory.tensor_map_bits import (
    BYTES,
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    SWIZZLES,
    element_dtype,
)

pytestmark = pytest.mark.sampled(3)

RECORDED = dict(np.load(GOLDEN / "memory" / "tensor_maps.npz"))
#: names by the driver's numbers, with those that only newer targets have
DTYPES = [*ELEMENT_TYPES, "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"]
ALL_SWIZZLES = [*SWIZZLES, "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"]


def built(i):
    """The map of recorded call `i`, made by name."""
    p, extra = RECORDED["parameters"][i].tolist(), RECORDED["im2col"][i].tolist()
    n = p[2]
    common = {
        "dtype": DTYPES[p[1]], "dims": p[4 : 4 + n], "strides": p[9 : 9 + n - 1],
        "interleave": INTERLEAVES[p[24]], "swizzle": ALL_SWIZZLES[p[25]],
        "l2_promotion": L2_PROMOTIONS[p[26]], "fill": FILLS[p[27]],
    }  # fmt: skip
    if p[0]:
        return TensorMap.im2col(
            p[3], lower=extra[: n - 2], upper=extra[3 : 3 + n - 2], channels=extra[6],
            pixels=extra[7], element_strides=extra[8 : 8 + n], **common,
        )  # fmt: skip
    return TensorMap.tiled(p[3], box=p[14 : 14 + n], element_strides=p[19 : 19 + n], **common)


def differing_maps():
    """How many recorded maps are not encoded, or not decoded and encoded, as the driver does."""
    accepted = np.flatnonzero(RECORDED["result"] == 0)
    wrong = 0
    for i in accepted:
        bits = RECORDED["encoded"][i].tobytes()
        try:
            wrong += built(i).encode() != bits or TensorMap.decode(bits).encode() != bits
        except EmulatorError:
            wrong += 1
    return wrong, len(accepted)


def test_maps_are_encoded_and_decoded_as_the_driver_does():
    assert differing_maps() == (0, 360)


@pytest.fixture
def other_table(monkeypatch):
    """Changes tables for one test, with nothing decoded before or after it kept."""
    tensor_map._decode.cache_clear()
    yield monkeypatch.setitem
    tensor_map._decode.cache_clear()


#: fields that are 0 in every map of an H200: see test_tensormap_replace.py
NEWER_FIELDS = ("swizzle_atomicity", "swizzle_96B")


@pytest.mark.parametrize("field", [x for x in tensor_map_bits.FIELDS if x not in NEWER_FIELDS])
def test_recordings_notice_a_moved_field(field, other_table):
    low, width, ordinals = tensor_map_bits.FIELDS[field]
    other_table(tensor_map_bits.FIELDS, field, tensor_map_bits.Field(low + 1, width, ordinals))
    assert differing_maps()[0] > 0


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("fact", ["code", "bytes", "round_to_tf32"])
def test_recordings_notice_another_element_type(dtype, fact, other_table):
    kind = ELEMENT_TYPES[dtype]
    other = {"code": kind.code ^ 15, "bytes": 12 - kind.bytes, "round_to_tf32": True}
    if kind.round_to_tf32:
        other["round_to_tf32"] = False
    other_table(ELEMENT_TYPES, dtype, kind._replace(**{fact: other[fact]}))
    assert differing_maps()[0] > 0


def test_a_code_with_its_rounding_names_one_element_type():
    for dtype, kind in ELEMENT_TYPES.items():
        assert element_dtype(kind.code, kind.round_to_tf32) == dtype
    assert element_dtype(6, True) == element_dtype(15, False) == ""


@pytest.mark.parametrize("dtype", [name for name, kind in ELEMENT_TYPES.items() if kind.is_float])
def test_recordings_notice_a_type_without_nan(dtype, other_table):
    other_table(ELEMENT_TYPES, dtype, ELEMENT_TYPES[dtype]._replace(is_float=False))
    assert differing_maps()[0] > 0


def test_all_that_the_driver_refused_is_refused():
    refused = np.flatnonzero(RECORDED["result"])
    assert len(refused) == 95
    for i in refused:
        with pytest.raises((OperandError, UnsupportedError)):
            built(i)


# --- what is refused, and in which words ---

PLAIN = {"dtype": "float16", "dims": (64, 32, 8), "strides": (128, 4096), "box": (64, 4, 1)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"address": 8}, "address 0x8; it is a multiple of 16"),
        ({"address": 16, "interleave": "32B"}, "multiple of 32"),
        ({"dims": (0, 32, 8)}, "dims with 0; legal is 1 to 4294967296"),
        ({"dims": (2**32 + 1, 32, 8)}, "dims with 4294967297"),
        ({"strides": (130, 4096)}, "stride 130 of dimension 1"),
        ({"strides": (128, 2**40)}, "stride 1099511627776 of dimension 2"),
        ({"strides": (-16, 4096)}, "stride -16"),
        ({"strides": (48, 4096), "interleave": "32B"}, "a multiple of 32 below"),
        ({"box": (64, 257, 1)}, "box with 257; legal is 1 to 256"),
        ({"box": (64, 0, 1)}, "box with 0"),
        ({"box": (4, 1, 1)}, "a row of 4 elements of 2 bytes; its bytes are a multiple of 16"),
        ({"box": (64, 1, 1), "swizzle": "64B"}, "swizzle 64B permutes rows of at most"),
        ({"element_strides": (1, 9, 1)}, "element_strides with 9; legal is 1 to 8"),
        ({"element_strides": (1, 0, 1)}, "element_strides with 0"),
        ({"dtype": "int32", "box": (32, 1, 1), "fill": "nan"}, "fill nan for int32"),
        ({"dims": (64, 32), "strides": (128,), "box": (64, 4), "interleave": "16B"}, "rank 2"),
        ({"dims": (8,) * 6, "strides": (16,) * 5, "box": (8,) * 6}, "rank 6; it is 1 to 5"),
    ],
)  # fmt: skip
def test_refusals_give_their_reason(change, words):
    arguments = PLAIN | change
    with pytest.raises(OperandError, match="the driver refuses this tensor map") as error:
        TensorMap.tiled(arguments.pop("address", 0), **arguments)
    assert words in str(error.value)


IMAGE = {
    "dtype": "float16", "dims": (64, 20, 10, 4), "strides": (128, 2560, 25600), "lower": (-1, -1),
    "upper": (-1, -1), "channels": 64, "pixels": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"channels": 257}, "channels with 257"),
        ({"pixels": 1025}, "pixels with 1025; legal is 1 to 1024"),
        ({"lower": (-129, 0)}, "lower with -129; legal is -128 to 127"),
        ({"upper": (0, 128)}, "upper with 128"),
        ({"lower": (0, 5), "upper": (0, -5)}, "dimension 2 (10 elements): an empty box"),
        ({"dims": (64, 20), "strides": (128,), "lower": (), "upper": ()}, "rank 2; im2col maps"),
    ],
)
def test_refusals_of_im2col_give_their_reason(change, words):
    with pytest.raises(OperandError) as error:
        TensorMap.im2col(0, **(IMAGE | change))
    assert words in str(error.value)


def test_an_empty_box_is_refused_without_interleave_only():
    corners = {"lower": (0, 5), "upper": (0, -5)}
    assert TensorMap.im2col(0, **(IMAGE | corners), interleave="16B").upper == (0, -5)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (dict(PLAIN, swizzle="128"), OperandError, "got '128'; nearest is '128B'"),
        (dict(PLAIN, swizzle="128B_ATOM_32B"), UnsupportedError, "not modelled"),
        (dict(PLAIN, swizzle=3), OperandError, "swizzle is one of 'none'"),
        (dict(PLAIN, fill="zero"), OperandError, "nearest is 'zeros'"),
        (dict(PLAIN, dtype="f16"), OperandError, "no dtype 'f16'"),
        (dict(PLAIN, dtype="16U4_ALIGN8B"), UnsupportedError, "not modelled"),
        (dict(PLAIN, dtype=np.float16), OperandError, "dtype must be a name"),
        (dict(PLAIN, box=(64, 4)), OperandError, "box must have 3 entries"),
        (dict(PLAIN, box=(64, 4.0, 1)), OperandError, "box must be an integer; got 4.0"),
        (dict(PLAIN, box="abc"), OperandError, "box must be a sequence"),
        (dict(PLAIN, dims=7), OperandError, "dims must be a sequence"),
        (dict(PLAIN, strides=(1,)), OperandError, "strides must have 2 entries"),
        ({"dims": (64,), "box": (64,)}, OperandError, "of an address needs dtype"),
        ({"box": (64,)}, OperandError, "needs dtype and dims"),
        (dict(PLAIN, box=(64, 10**9999, 1)), OperandError, "box must fit 64 bits; got a number"),
        (dict(PLAIN, dims=np.array(5)), OperandError, "dims must be a sequence of integers"),
        (dict(PLAIN, dims={1, 2}), OperandError, "dims must be a sequence of integers"),
    ],
)
def test_wrong_arguments_are_told(arguments, error, words):
    with pytest.raises(error) as caught:
        TensorMap.tiled(1 << 20, **arguments)
    assert words in str(caught.value)


def test_only_arrays_and_addresses_are_taken():
    with pytest.raises(OperandError, match="an array, a CPU tensor or an address; got list"):
        TensorMap.tiled([1, 2], box=(16,))
    with pytest.raises(OperandError, match="address must fit 64 bits"):
        TensorMap.tiled(-(10**9999), dtype="uint8", dims=(16,), box=(16,))
    with pytest.raises(OperandError, match="no address before a launch"):
        TensorMap.tiled(np.zeros(64, "u1"), box=(16,)).encode()


# --- arrays ---


def test_sizes_come_from_the_array():
    x = np.zeros((8, 32, 64), np.float16)
    t = TensorMap.tiled(x, box=(64, 4, 1), swizzle="128B")
    assert t == TensorMap.tiled(x, **PLAIN, swizzle="128B")
    assert (t.dtype, t.dims, t.strides, t.rank) == ("float16", (64, 32, 8), (128, 4096), 3)
    assert t.array is x
    placed = t.with_address(1 << 32)
    assert placed.encode() == TensorMap.tiled(1 << 32, **PLAIN, swizzle="128B").encode()
    assert placed.array is x
    assert TensorMap.decode(placed.encode()) == TensorMap.tiled(1 << 32, **PLAIN, swizzle="128B")


def test_views_keep_their_strides():
    x = np.zeros((16, 24, 64), np.float32)[::2, 4:20, :32]
    t = TensorMap.tiled(x, box=(32, 1, 1))
    assert (t.dims, t.strides) == ((32, 16, 8), (256, 2 * 24 * 256))
    with pytest.raises(OperandError, match="the last axis of the array must be contiguous"):
        TensorMap.tiled(x[..., ::2], box=(16, 1, 1))
    with pytest.raises(OperandError, match="stride -256"):
        TensorMap.tiled(x[:, ::-1], box=(16, 1, 1))
    # The stride of an axis of one element says nothing.
    assert TensorMap.tiled(x[:, :, :1].copy()[..., ::-1], box=(4, 1, 1), strides=(16, 32)).rank == 3


@pytest.mark.parametrize(
    ("array_type", "dtype"),
    [
        ("u1", "uint8"), ("i1", "uint8"), ("?", "uint8"), ("u2", "uint16"), ("i2", "uint16"),
        ("u4", "uint32"), ("i4", "int32"), ("u8", "uint64"), ("i8", "int64"), ("f2", "float16"),
        ("f4", "float32"), ("f8", "float64"), (ml_dtypes.bfloat16, "bfloat16"),
        (ml_dtypes.float8_e4m3fn, "uint8"), (ml_dtypes.float8_e5m2, "uint8"),
    ],
)  # fmt: skip
def test_types_of_arrays(array_type, dtype):
    assert TensorMap.tiled(np.zeros(64, array_type), box=(16,)).dtype == dtype


@pytest.mark.parametrize("array_type", ["c8", ml_dtypes.int4, ml_dtypes.float4_e2m1fn, "S4"])
def test_types_without_a_map(array_type):
    with pytest.raises(OperandError, match="no dtype of a tensor map has the bits of"):
        TensorMap.tiled(np.zeros(64, array_type), box=(16,))


def test_an_array_as_plain_memory():
    memory = np.zeros(4096, np.uint8)
    t = TensorMap.tiled(memory, dtype="float32", dims=(16, 60), box=(16, 8))
    assert (t.strides, t.array) == ((64,), memory)
    with pytest.raises(OperandError, match=r"have 1 bytes, those of float32 4: give dims"):
        TensorMap.tiled(memory, dtype="float32", box=(16,))
    with pytest.raises(OperandError, match="at least one dimension"):
        TensorMap.tiled(np.zeros((), "f4"), box=())


def test_tensors():
    torch = pytest.importorskip("torch")
    x = torch.zeros((8, 64), dtype=torch.bfloat16)
    t = TensorMap.tiled(x, box=(64, 8))
    assert (t.dtype, t.dims, t.strides) == ("bfloat16", (64, 8), (128,))
    t.array.view(np.uint16)[:] = 0x3F80
    assert (x == 1).all()


def test_maps_are_values():
    x = np.zeros((32, 64), np.float16)
    t = TensorMap.tiled(x, box=(64, 4))
    assert t == TensorMap.tiled(x, box=[64, np.int64(4)])
    assert hash(t) == hash(TensorMap.tiled(x, box=(64, 4)))
    assert t != TensorMap.tiled(x.copy(), box=(64, 4))
    assert t != t.with_address(16)
    assert t.placeless == TensorMap.tiled(x.copy(), box=(64, 4)).placeless
    assert repr(t) == (
        "TensorMap.tiled(<array (32, 64)>, dtype='float16', dims=(64, 32), strides=(128,), "
        "box=(64, 4))"
    )
    assert repr(TensorMap.im2col(4096, **IMAGE, element_strides=(1, 2, 2, 1))) == (
        "TensorMap.im2col(0x1000, dtype='float16', dims=(64, 20, 10, 4), strides=(128, 2560, "
        "25600), lower=(-1, -1), upper=(-1, -1), channels=64, pixels=128, "
        "element_strides=(1, 2, 2, 1))"
    )
    assert "<no address>" in repr(t.placeless)
    with pytest.raises(OperandError, match="address 0x8"):
        t.with_address(8)
    with pytest.raises(AttributeError):
        t.box = (1,)


# --- bytes that no driver wrote ---


def test_bytes_that_are_no_map():
    with pytest.raises(OperandError, match="has 128 bytes; got 3"):
        TensorMap.decode(b"abc")
    with pytest.raises(OperandError, match="a row of 1 elements of 1 bytes"):
        TensorMap.decode(bytes(BYTES))
    with pytest.raises(OperandError, match="are no tensor map: element type 15 with tf32"):
        TensorMap.decode(b"\xff" * BYTES)


def test_random_bytes_raise_nothing_else():
    rng = np.random.default_rng(5)
    good = RECORDED["encoded"][RECORDED["result"] == 0]
    for _ in range(3000):
        data = good[rng.integers(len(good))].copy()
        data[rng.integers(0, 64, 3)] ^= rng.integers(1, 256, 3).astype(np.uint8)
        try:
            t = TensorMap.decode(data.tobytes())
        except EmulatorError as error:
            assert len(str(error)) < 2000
        else:
            assert TensorMap.decode(t.encode()) == t
