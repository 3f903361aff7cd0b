"""Instruction descriptors of tcgen05.mma: words of CUTLASS, every field, what is refused."""

import re

import pytest

from emulator import InstructionDescriptor, OperandError
from emulator.layout.instruction_descriptor import FIELDS
from emulator.layout.mma_kinds import KINDS, SHAPES

pytestmark = pytest.mark.sampled(4)

#: words that CUTLASS makes, for the descriptors they are of
CUTLASS = [
    (0x08400010, InstructionDescriptor("f16", "f16", "f16", m=128, n=256)),
    (0x1020A490, InstructionDescriptor("f16", "bf16", "bf16", "f32", 256, 128, True, False, True)),
    (0x08200910, InstructionDescriptor("tf32", m=128, n=128)),
    (0x08180410, InstructionDescriptor("f8f6f4", "e4m3", "e5m2", m=128, n=96)),
    (0x080800A0, InstructionDescriptor("i8", "s8", "u8", m=128, n=32)),
    (
        0x0811E494,
        InstructionDescriptor("f16", "bf16", "bf16", "f32", 128, 64, True, True, True, True, True),
    ),
    (0x08A00400, InstructionDescriptor("mxf8f6f4", "e4m3", "e5m2", m=128, n=128)),
    (0x08C00480, InstructionDescriptor("mxf4", m=128, n=256)),
    (0x10080480, InstructionDescriptor("mxf4nvf4", scale="ue4m3", m=256, n=32)),
]


@pytest.mark.parametrize(("word", "descriptor"), CUTLASS)
def test_words_are_those_of_cutlass(word, descriptor):
    assert descriptor.encode() == word
    assert InstructionDescriptor.decode(word, descriptor.kind) == descriptor
    assert descriptor.validate(2 if descriptor.m == 256 else 1) == []


#: a field of a kind and a value -> the bits in which the word differs from that without it
BITS = [
    ("f16", {"a": "f16"}, 1 << 7),
    ("f16", {"b": "f16"}, 1 << 10),
    ("f8f6f4", {"d": "f16"}, 1 << 4),
    ("f16", {"transpose_a": True}, 1 << 15),
    ("f16", {"transpose_b": True}, 1 << 16),
    ("f16", {"negate_a": True}, 1 << 13),
    ("f16", {"negate_b": True}, 1 << 14),
    ("f16", {"sparse": True, "k": 32}, 1 << 2),
    ("f16", {"selector": 3}, 3),
    ("i8", {"saturate": True}, 1 << 3),
    ("f16", {"max_shift": 8}, 1 << 30),
    ("f16", {"max_shift": 16}, 2 << 30),
    ("f16", {"max_shift": 32}, 3 << 30),
    ("f16", {"m": 192}, (8 ^ 12) << 24),
    ("f16", {"n": 8}, (32 ^ 1) << 17),
    ("f8f6f4", {"a": "e5m2"}, 1 << 7),
    ("f8f6f4", {"a": "e2m3"}, 3 << 7),
    ("f8f6f4", {"b": "e3m2"}, 4 << 10),
    ("mxf8f6f4", {"b": "e2m1"}, 5 << 10),
    ("f8f6f4", {"k": 64}, 1 << 29),
    ("mxf8f6f4", {"k": 64}, 1 << 31),
    ("mxf8f6f4", {"scale_a_id": 3}, 3 << 29),
    ("mxf8f6f4", {"scale_b_id": 2}, 2 << 4),
    ("mxf8f6f4", {"m": 256}, 3 << 27),
    ("mxf8f6f4", {"scale_a_rows": True}, 1 << 26),
    ("mxf4", {"k": 96}, 1 << 31),
    ("mxf4", {"k": 128}, 1 << 3),
    ("mxf4", {"sparsity_version": 1}, 1 << 12),
    ("mxf4nvf4", {"scale": "ue8m0"}, 1 << 23),
    ("mxf4nvf4", {"scale": "ue5m3"}, 2 << 23),
]
TYPES = {"f8f6f4": "e4m3", "mxf8f6f4": "e4m3", "i8": "s8"}


def usual(kind):
    return InstructionDescriptor(kind, TYPES.get(kind, ""), TYPES.get(kind, ""))


@pytest.mark.parametrize(("kind", "change", "bits"), BITS)
def test_every_field_has_its_bits(kind, change, bits):
    one = usual(kind)
    other = one.replace(**change)
    assert one.encode() ^ other.encode() == bits
    assert InstructionDescriptor.decode(other.encode(), kind) == other


@pytest.mark.parametrize("kind", FIELDS)
def test_bits_without_a_field_are_refused(kind):
    one = usual(kind)
    covered = 0
    for field in FIELDS[kind].values():
        assert not covered & field.mask, "fields do not overlap"
        covered |= field.mask
    left = [bit for bit in range(32) if not covered >> bit & 1]
    assert 6 in left
    for bit in left:
        with pytest.raises(OperandError, match=rf"bits {bit} are set"):
            InstructionDescriptor.decode(one.encode() | 1 << bit, kind)


@pytest.mark.parametrize(
    ("word", "kind", "message"),
    [
        (0x08400110, "f16", "A type has code 2.*codes are 0 f16, 1 bf16"),
        (0x08400030, "f16", "D type has code 3"),
        (0x08200410, "mxf8f6f4", "scale type has code 0"),
        (0x88C00488, "mxf4", "K has code 3"),
        (0x00400010, "f16", "m of kind f16 is a multiple of 16; got 0"),
        (1 << 32, "f16", "32 bits"),
        (-1, "f16", "32 bits"),
        (0x08400010, "f32", "kind"),
    ],
)
def test_words_that_mean_nothing(word, kind, message):
    with pytest.raises(OperandError, match=message):
        InstructionDescriptor.decode(word, kind)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "f32"}, "nearest is 'tf32'"),
        ({"kind": "f8f6f4"}, "a .* is needed: e4m3, e5m2"),
        ({"kind": "f16", "a": "e4m3"}, "a of kind f16"),
        ({"kind": "tf32", "d": "f16"}, "d of kind tf32"),
        ({"n": 20}, "multiple of 8"),
        ({"m": 72}, "multiple of 16"),
        ({"kind": "mxf4", "m": 64}, "multiple of 128"),
        ({"k": 32}, "k of dense kind f16 is 16; got 32"),
        ({"kind": "mxf4", "transpose_a": True}, "cannot be transposed"),
        ({"kind": "i8", "a": "s8", "b": "s8", "negate_b": True}, "cannot be negated"),
        ({"saturate": True}, "for kind i8"),
        ({"scale": "ue8m0"}, "no block scales"),
        ({"kind": "mxf4", "scale": "ue4m3"}, "scale of kind mxf4"),
        ({"d": "f16"}, "bf16 needs d='f32'"),
        ({"kind": "mxf4", "max_shift": 8}, "no max_shift"),
        ({"max_shift": 12}, "0, 8, 16, 32"),
        ({"selector": 4}, "0 … 3"),
        ({"a": 5}, "a of kind f16"),
        ({"k": "16"}, "k of an Instr"),
        ({"transpose_a": 2}, "True or False"),
    ],
)
def test_what_no_word_says(fields, message):
    with pytest.raises(OperandError, match=message):
        InstructionDescriptor(**fields)


@pytest.mark.parametrize(
    ("fields", "how", "message"),
    [
        ({"m": 32}, {}, "m 64, 128: nearest is 64"),
        ({"m": 256}, {}, "m 64, 128: nearest is 128"),
        ({"m": 64}, {"cta_group": 2}, "m 128, 256"),
        ({"n": 24}, {"cta_group": 2}, "multiple|n 16-256 by 16: nearest is 16"),
        ({"n": 192}, {"weight_stationary": True}, "n 64, 128, 256"),
        ({"sparse": True}, {"weight_stationary": True}, "n 64, 128: nearest is 128"),
        ({"kind": "mxf4", "sparse": True}, {"cta_group": 2}, "m 256"),
        ({"kind": "mxf4"}, {"weight_stationary": True}, "no tcgen05.mma of kind mxf4"),
        ({"kind": "mxf4", "k": 96}, {"cta_group": 2}, "the manual lists 256 alone"),
        ({"kind": "mxf4", "k": 96}, {"target": "sm_100a"}, "k 64"),
        ({"kind": "mxf4", "k": 128}, {"target": "sm_100a"}, "k 64"),
        ({"kind": "mxf4nvf4", "scale": "ue5m3"}, {"target": "sm_100a"}, "scale ue4m3"),
        ({"selector": 1}, {}, "only sparse"),
        ({"selector": 2, "sparse": True}, {}, "selector 0 or 1"),
        ({"kind": "mxf4", "scale_a_id": 1}, {}, "scale_a_id 0 or 2"),
        ({"max_shift": 8}, {}, "for tcgen05.mma.ws"),
        (
            {"kind": "mxf8f6f4", "a": "e2m1", "b": "e4m3", "k": 64, "transpose_a": True}, {},
            "with k 64 elements below 8 bits are K-major",
        ),
        ({"kind": "f8f6f4", "a": "e2m1", "b": "e4m3", "k": 64}, {}, "types e4m3 and e5m2"),
        (
            {"kind": "i8", "a": "s8", "b": "s8", "n": 24, "transpose_b": True}, {},
            "a multiple of 16",
        ),
    ],
)  # fmt: skip
def test_shapes_that_an_instruction_lacks(fields, how, message):
    found = InstructionDescriptor(**fields).validate(**how)
    assert len(found) == 1
    assert re.search(message, found[0])


def test_every_kind_has_shapes():
    for kind in KINDS:
        assert {row.cta_group for row in SHAPES if kind in row.kinds.split()} == {1, 2}
    assert InstructionDescriptor("mxf4", k=96).validate(target="sm_103a") == []
    assert InstructionDescriptor("mxf4", sparse=True).k == 128
    assert InstructionDescriptor("mxf4", sparse=True, k=192).validate(target="sm_103a") == []


def test_ti16():
    one = InstructionDescriptor("ti16", m=128, n=32)
    assert (one.a, one.b, one.d, one.k) == ("s1z4m11", "s1z4m11", "s32", 16)
    assert one.encode() == 8 << 24 | 4 << 17 | 3 << 10 | 3 << 7 | 2 << 4
    assert one.validate() == one.validate(cta_group=2) == []
    assert one.replace(m=64, n=24).validate() == []
    assert "n 16-256 by 16" in one.replace(n=24).validate()[0]
    assert "n 32-256 by 32" in one.replace(n=48).validate(cta_group=2)[0]
    with pytest.raises(OperandError, match="cannot be transposed"):
        one.replace(transpose_a=True)


def test_bits_that_an_element_takes():
    small = InstructionDescriptor("mxf8f6f4", "e2m3", "e2m1")
    assert (small.width("a"), small.width("b")) == (8, 8)
    for packed in (small.replace(k=64), small.replace(sparse=True, k=128)):
        assert (packed.width("a"), packed.width("b")) == (6, 4)
    assert small.replace(sparse=True).width("a") == 8
    assert InstructionDescriptor("f8f6f4", "e4m3", "e4m3", k=64).width("a") == 8
    assert InstructionDescriptor("tf32").width("a") == 32


def test_the_sparsity_version_is_that_of_the_chip():
    one = InstructionDescriptor("mxf4", sparse=True)
    assert one.validate(target="sm_100a") == []
    assert "sparsity_version 1" in one.validate(target="sm_107a")[0]
    other = one.replace(sparsity_version=1)
    assert other.validate(target="sm_107a") == []
    assert "sparsity_version 0" in other.validate(target="sm_103a")[0]
    assert (one.chunk, other.chunk) == (8, 4)
    assert InstructionDescriptor("mxf4").validate(target="sm_107a") == []


def test_a_k_that_no_longer_fits_becomes_the_usual_one():
    assert InstructionDescriptor().replace(sparse=True).k == 32
    assert InstructionDescriptor().replace(n=64).k == 16


@pytest.mark.parametrize(
    ("descriptor", "what"),
    [
        (InstructionDescriptor(), ""),
        (InstructionDescriptor("mxf8f6f4", "e2m3", "e4m3", k=64), ""),
        (
            InstructionDescriptor("mxf8f6f4", "e2m3", "e4m3", transpose_a=True, sparse=True, k=128),
            "MN-major A of e2m3 without padding",
        ),
        (InstructionDescriptor("f8f6f4", "e2m1", "e4m3", transpose_a=True), ""),
    ],
)
def test_what_is_not_modelled(descriptor, what):
    assert what in descriptor.not_modelled and bool(what) == bool(descriptor.not_modelled)
