"""``tensormap.replace``: the bits that it edits, and what the maps that it makes mean."""

import numpy as np
import pytest
from paths import GOLDEN

from emulator import OperandError, TensorMap, UnsupportedError
from emulator.memory import tensor_map_bits
from emulator.memory.tensor_map_bits import BYTES, get, replace_field

REPLACED = dict(np.load(GOLDEN / "memory" / "replaced_maps.npz"))


def edited(data, *edits):
    for edit in edits:
        data = replace_field(data, *edit)
    return data


def test_replace_writes_what_the_h200_wrote():
    """CUTLASS writes the address of the map in shared memory for the strides that do not count."""
    a, b, d = (row.tobytes() for row in REPLACED["template"])
    recorded = [row.tobytes() for row in REPLACED["replaced"]]
    shared = {bits[16:20] for bits in recorded}
    rows = zip([d] * 8 + [d] * 4 + [a] * 4 + [b] * 4, recorded, strict=True)
    for template, bits in rows:
        new = TensorMap.decode(bits)
        own = int.from_bytes(bits[16:20], "little") << 4
        sizes = [("global_dim", size, i) for i, size in enumerate((*new.dims, 1, 1, 1))]
        strides = [("global_stride", new.strides[0], 0)]
        strides += [("global_stride", own + (0x7F << 40), i) for i in (1, 2, 3)]
        assert edited(template, ("global_address", new.address), *sizes, *strides) == bits
    assert len(shared) == 10


#: what ptxas 13.5 compiles each replacement to: field, ordinal, value, then (byte, bits, new bits)
EDITS = [
    ("global_address", None, 0x123456789ABCDEF0, [(0, 2**64 - 1, 0x123456789ABCDEF0)]),
    ("rank", None, 4, [(8, 0x70, 0x40)]),
    ("rank", None, 9, [(8, 0x70, 0x10)]),
    ("box_dim", 0, 64, [(52, 0xFF000000, 63 << 24)]),
    ("box_dim", 1, 256, [(56, 0xFF, 0xFF)]),
    ("box_dim", 2, 0, [(56, 0xFF00, 0xFF00)]),
    ("box_dim", 3, 257, [(56, 0xFF0000, 0)]),
    ("box_dim", 4, 2, [(56, 0xFF000000, 1 << 24)]),
    ("global_dim", 0, 1 << 32, [(32, 0xFFFFFFFF, 0xFFFFFFFF)]),
    ("global_dim", 4, 1000, [(48, 0xFFFFFFFF, 999)]),
    ("global_stride", 0, 0xABCDEF1230, [(12, 0xFFFFFFFF, 0xBCDEF123), (28, 0xF, 0xA)]),
    ("global_stride", 1, 0xABCDEF1230, [(16, 0xFFFFFFFF, 0xBCDEF123), (28, 0xF0, 0xA0)]),
    ("global_stride", 2, 0xABCDEF1230, [(20, 0xFFFFFFFF, 0xBCDEF123), (28, 0xF00, 0xA00)]),
    ("global_stride", 3, 0xABCDEF1230, [(24, 0xFFFFFFFF, 0xBCDEF123), (28, 0xF000, 0xA000)]),
    ("global_stride", 4, 0xABCDEF1230, [(28, 0xFFFFFFFF, 0xBCDEF123 & ~0xF0000 | 0xA0000)]),
    ("element_stride", 0, 8, [(52, 0x7, 0x7)]),
    ("element_stride", 1, 9, [(52, 0x38, 0)]),
    ("element_stride", 2, 3, [(52, 0x1C0, 0x80)]),
    ("element_stride", 3, 2, [(52, 0xE00, 0x200)]),
    ("element_stride", 4, 0, [(52, 0x7000, 0x7000)]),
    *(("elemtype", None, code, [(8, 0x780, code << 7)]) for code in range(11)),
    ("elemtype", None, 11, [(8, 0x10780, 0x10380)]),
    ("elemtype", None, 12, [(8, 0x10780, 0x10400)]),
    ("elemtype", None, 13, [(8, 0x780, 0x580)]),
    ("elemtype", None, 14, [(8, 0x780, 0x600)]),
    ("elemtype", None, 15, [(8, 0x780, 0x680)]),
    *(("interleave_layout", None, code, [(8, 0x1800, code << 11)]) for code in range(3)),
    *(("swizzle_mode", None, code, [(8, 0x406000, code << 13)]) for code in range(4)),
    ("swizzle_mode", None, 4, [(8, 0x406000, 0x400000)]),
    *(("swizzle_atomicity", None, code, [(8, 0x180000, code << 19)]) for code in range(4)),
    *(("fill_mode", None, code, [(8, 0x8000, code << 15)]) for code in range(2)),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("background", [0, 2 ** (8 * BYTES) - 1])
@pytest.mark.parametrize(("field", "ordinal", "value", "changes"), EDITS)
def test_replace_edits_the_bits_that_ptxas_edits(field, ordinal, value, changes, background):
    expected = background
    for byte, mask, bits in changes:
        expected = expected & ~(mask << 8 * byte) | bits << 8 * byte
    before = background.to_bytes(BYTES, "little")
    after = replace_field(before, field, value, ordinal)
    assert int.from_bytes(after, "little") == expected


def test_replace_covers_every_field():
    fields = {edit[0] for edit in EDITS}
    assert fields == {*tensor_map_bits._VALUE_FIELDS, *tensor_map_bits._CHOICE_FIELDS}


def test_a_map_made_from_zeros():
    """As Triton makes one: the driver's own notes stay 0, and copies do not miss them."""
    made = edited(
        bytes(BYTES), ("global_address", 1 << 40), ("rank", 1), ("box_dim", 64, 0),
        ("box_dim", 128, 1), ("global_dim", 320, 0), ("global_dim", 256, 1),
        ("global_stride", 640, 0), ("element_stride", 1, 0), ("element_stride", 1, 1),
        ("elemtype", 6), ("interleave_layout", 0), ("swizzle_mode", 3), ("fill_mode", 0),
    )  # fmt: skip
    t = TensorMap.tiled(1 << 40, dtype="float16", dims=(320, 256), box=(64, 128), swizzle="128B")
    assert TensorMap.decode(made) == t
    assert get(int.from_bytes(made, "little"), "box_bytes") == 0
    assert made[:64] == t.encode()[:64]
    assert made != t.encode()


def test_an_element_type_keeps_the_tf32_bit():
    tf32 = TensorMap.tiled(0, dtype="tfloat32", dims=(64,), box=(16,)).encode()
    assert TensorMap.decode(edited(tf32, ("elemtype", 7))).dtype == "tfloat32"
    assert TensorMap.decode(edited(tf32, ("elemtype", 8))).dtype == "tfloat32_ftz"


def test_newer_features_are_named():
    t = TensorMap.tiled(0, dtype="uint8", dims=(128,), box=(128,), swizzle="128B").encode()
    for edit, words in (
        (("swizzle_atomicity", 1), "swizzle of 32B"),
        (("swizzle_mode", 4), "swizzle over 96 bytes"),
        (("elemtype", 13), "tensor maps of b4x16 "),
    ):
        with pytest.raises(UnsupportedError, match=words):
            TensorMap.decode(edited(t, edit))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("box_dims", 1, 0), "knows no field 'box_dims'; nearest is 'box_dim'"),
        (("box_dim", 1), "takes an ordinal from 0 to 4; got None"),
        (("box_dim", 1, 5), "takes an ordinal from 0 to 4; got 5"),
        (("box_dim", 1, -1), "got -1"),
        (("rank", 1, 0), "takes no ordinal; got 0"),
        (("fill_mode", 1, 0), "takes no ordinal"),
        (("elemtype", 16), "elemtype is 0 to 15; got 16"),
        (("interleave_layout", 3), "interleave_layout is 0 to 2"),
        (("swizzle_mode", 5), "swizzle_mode is 0 to 4"),
        (("swizzle_atomicity", 4), "swizzle_atomicity is 0 to 3"),
        (("fill_mode", 2), "fill_mode is 0 to 1"),
    ],
)
def test_replacements_that_the_assembler_refuses(edit, words):
    with pytest.raises(OperandError) as error:
        replace_field(bytes(BYTES), *edit)
    assert words in str(error.value)
