"""``descriptor`` of tcgen05: words of both sorts decoded, checked and built."""

import json

import pytest

from emulator import InstructionDescriptor, OperandError, SharedMemoryDescriptor
from emulator.__main__ import main
from emulator.isa.tensor_matrix import settle
from emulator.tools.descriptors.tensor import describe_instruction, describe_shared

pytestmark = pytest.mark.sampled(2)

F16 = "tcgen05.mma.cta_group::1.kind::f16"
PAIR = "tcgen05.mma.cta_group::2.kind::f16"


def run(capsys, *given):
    code = main(["descriptor", *given])
    out = capsys.readouterr()
    return code, out.out + out.err


def test_an_instruction_descriptor_is_decoded(capsys):
    code, text = run(capsys, "0x4200490", F16)
    assert code == 0
    for line in (
        "64 × 128 × 16, D f32 = A bf16 · B bf16",
        "lanes 0-15, 32-47, 64-79, 96-111, columns 0-127 of tensor memory (layout F)",
        "22:17  n            0x10  N = 128",
        "28:24  m            0x4   M = 64",
        "nothing is wrong with it",
    ):
        assert line in text


def test_a_shape_that_the_opcode_lacks(capsys):
    code, text = run(capsys, "0x4200490", PAIR)
    assert code == 1
    assert "error: m = 64" in text and "legal: m 128, 256: nearest is 128" in text
    assert "columns 0-127" not in text


@pytest.mark.parametrize(
    ("opcode", "build", "word"),
    [
        (F16, "a=bf16,b=bf16,m=128,n=256", 0x0840_0490),
        (F16, "a=f16,b=f16,m=128,n=256", 0x0840_0010),
        (PAIR, "m=256,n=128,transpose_a=1,negate_a=1", 0x1020_A490),
        ("tcgen05.mma.sp.cta_group::1.kind::f16", "n=64,selector=1", 0x0810_0495),
    ],
)
def test_instruction_descriptors_are_built(capsys, opcode, build, word):
    code, text = run(capsys, opcode, "--build", build)
    assert code == 0 and f"{word:#010x}" in text


def test_shared_memory_descriptors_are_built_and_read(capsys):
    given = [F16, "--idesc", "0x8400490", "--operand", "a"]
    code, text = run(capsys, *given, "--build", "swizzle=128B,start=0x400")
    assert code == 0 and "0x4000404000010040" in text
    assert "it reads bytes 0x400-0x43ff of shared memory" in text
    code, text = run(capsys, "0x4000404000010040", *given)
    assert code == 0 and "63:61  swizzle              0x2   128-byte swizzle" in text
    code, text = run(capsys, *given, "--build", "swizzle=none,order=columns")
    assert code == 0 and "no swizzle" in text


def test_as_json(capsys):
    assert main(["descriptor", "0x8400490", F16, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["legal"] and found["word"] == "0x08400490"
    assert {"high": 28, "low": 24, "name": "m", "raw": 8, "meaning": "M = 128"} in found["fields"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["0x4000004000010040", F16], "bits 48:46 are 0b000"),
        ([F16], "give a 64-bit word, an instruction descriptor"),
        ([F16, "--build", "swizzle=128B"], "give --idesc, too"),
        ([F16, "--build", "am=3"], "no field 'am'; it has a, b, d, m"),
        ([F16, "--build", "m=x"], "m is a whole number"),
        ([F16, "--build", "m"], "key=value"),
        ([F16, "--idesc", "0x8400490", "--build", "swizzle=128B,m=3"], "m: a tile of tcgen05"),
        ([F16, "0x8400490", "--diff"], "tcgen05 has --build"),
        (["0x40", "--idesc", "0x8400490"], "--idesc goes with a tcgen05.mma"),
        (["0x40", "--target", "sm_107a"], "--target goes with a tcgen05.mma"),
        (["0x4000404000404010", F16, "--target", "sm_9"], "sm_9"),
        (["0x8400490", "tcgen05.mma.cta_group::1.kind::f32"], "kind"),
    ],
)
def test_what_cannot_be_answered(capsys, given, message):
    code, text = run(capsys, *given)
    assert code == 2 and message in text


def test_exchanged_strides_are_named():
    x = settle(F16, InstructionDescriptor("f16", "f16", "f16", n=64))
    right = SharedMemoryDescriptor(0, 16, 1024, swizzle_bytes=128)
    assert describe_shared(int(right.encode()), x, "a").is_legal
    wrong = SharedMemoryDescriptor(0, 1024, 16, swizzle_bytes=128)
    found = describe_shared(int(wrong.encode()), x, "a")
    assert not found.is_legal
    assert "warning: LBO and SBO look exchanged" in found.text()
    other = SharedMemoryDescriptor(0, 16, 16, swizzle_bytes=128)
    assert "exchanged" not in describe_shared(int(other.encode()), x, "a").text()


def test_sm_107_reads_a_bit_more_of_addresses(capsys):
    word = int(SharedMemoryDescriptor(1 << 18, 1 << 18, 1024, swizzle_bytes=128).encode())
    code, text = run(capsys, hex(word), F16)
    assert "bit 14 is set: it belongs to start_address on sm_107 alone" in text and code == 0
    assert "bit 30 is set: it belongs to leading_byte_offset on sm_107 alone" in text
    code, text = run(capsys, hex(word), F16, "--target", "sm_107a", "--shared-size", "0x80000")
    assert "0x40000" in text and "bit 14" not in text


def test_descriptions_are_reports():
    found = describe_instruction(InstructionDescriptor(m=256, n=64), PAIR)
    assert "of each CTA of the pair (layout A)" in found.text()
    assert found.title == "instruction descriptor 0x10100490"
    with pytest.raises(OperandError, match="codes are 0 f16, 1 bf16"):
        describe_instruction(0x0840_0110, F16)
