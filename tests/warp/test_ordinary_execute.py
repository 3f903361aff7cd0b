"""`execute` of ordinary instructions: words in, words out, and what is refused."""

import numpy as np
import pytest

from emulator import Instruction, OperandError, UnsupportedError, execute

A = np.array([1.5, -2.0, 0.0], np.float32).view(np.uint32)
B = np.float32(1).view(np.uint32)


def test_operands_broadcast():
    got = execute("add.rn.f32", A, B, target="sm_90a")
    assert got.view(np.float32).tolist() == [2.5, -1.0, 1.0]
    table = execute("mul.lo.u32", np.arange(3)[:, None], np.arange(4), target="sm_80")
    assert table.tolist() == [[i * j for j in range(4)] for i in range(3)]
    assert execute(Instruction.parse("add.s32"), 2, 3, target="H100") == 5


def test_several_destinations_are_a_tuple():
    p, q = execute("setp.lt.f32", A, B, target="sm_90a")
    assert (p.tolist(), q.tolist()) == ([False, True, True], [True, False, False])
    low, carry = execute("add.cc.u32", np.uint32(0xFFFFFFFF), np.uint32(1), target="sm_90a")
    assert (int(low), bool(carry)) == (0, True)
    assert int(execute("addc.u32", 1, 1, carry, target="sm_90a")) == 3


def test_low_bits_of_wider_words_count():
    assert execute("add.u16", np.array([0x12345]), np.array([1]), target="sm_90").tolist() == [
        0x2346
    ]


def test_a_warp():
    lane = np.arange(32, dtype=np.uint32)
    d, p = execute("shfl.sync.bfly.b32", lane, 1, 31, 0xFFFFFFFF, target="sm_90a")
    assert d.tolist() == (lane ^ 1).tolist()
    assert p.all()
    half = lane < 16
    votes = execute("vote.sync.ballot.b32", lane % 2 == 0, 0xFFFF, target="sm_90a", active=half)
    assert votes.tolist() == [0x5555] * 16 + [0] * 16
    assert execute("activemask.b32", target="sm_90a", active=half)[0] == 0xFFFF


def test_mov_of_vectors():
    low, high = execute("mov.b32", np.array([0x12345678], np.uint32), target="sm_90a", parts=2)
    assert (low.tolist(), high.tolist()) == ([0x5678], [0x1234])
    assert execute("mov.b32", low, high, target="sm_90a").tolist() == [0x12345678]


def test_target_dependent_operands():
    assert int(execute("max.s32", 1, 2, target="sm_90")) == 2
    three = execute("max.f32", *np.array([1, 3, 2], np.float32).view(np.uint32), target="sm_100a")
    assert three.view(np.float32) == 3
    with pytest.raises(OperandError, match=r"takes 2 operands \(a, b\); got 3"):
        execute("max.f32", A, A, A, target="sm_90a")


@pytest.mark.parametrize(
    ("opcode", "operands", "options", "error", "message"),
    [
        ("add.f32", (A,), {}, OperandError, r"takes 2 operands \(a, b\); got 1"),
        ("add.f32", (A.view(np.float32), B), {}, OperandError, "raw words.*float32.*view"),
        ("add.f32", (A, np.arange(2)), {}, OperandError, r"do not broadcast: \(3,\), \(2,\)"),
        ("add.f32", (A, B), {"shared": A}, OperandError, "takes no 'shared'; its options are none"),
        (
            "selp.b32",
            (A, B, A),
            {},
            OperandError,
            "c of selp.b32 is a predicate, bools; got uint32",
        ),
        ("lop3.b32", (A, A, A, 1.5), {}, OperandError, "lut of lop3.b32 is an integer; got 1.5"),
        ("elect.sync", (A,), {}, OperandError, r"32 lanes.*\(…, 32\); got \(3,\)"),
        ("ld.global.b32", (A,), {}, UnsupportedError, "does more than compute.*kernel"),
        ("add.rn.bf16", (A, A), {}, UnsupportedError, None),
    ],
)
def test_what_is_refused(opcode, operands, options, error, message):
    target = "sm_80" if message is None else "sm_90a"
    with pytest.raises(error, match=message or "not available on sm_80"):
        execute(opcode, *operands, target=target, **options)
