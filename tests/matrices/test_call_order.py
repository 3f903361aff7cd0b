"""Calls of mma and gemm: the instruction first or by name, the matrices in order or by name."""

import numpy as np
import pytest

from emulator import Instruction, OperandError, gemm, mma

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
INS = Instruction.parse(F16)
A = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float16)
B = np.random.default_rng(2).normal(size=(16, 8)).astype(np.float16)
C = np.random.default_rng(3).normal(size=(16, 8)).astype(np.float32)
ON = {"target": "sm_90a"}
BOTH = pytest.mark.parametrize("call", (mma, gemm))
ORDERS = {
    "first": ((INS, A, B, C), {}),
    "as text": ((F16, A, B, C), {}),
    "by name": ((A, B, C), {"instruction": INS}),
    "text by name": ((A, B, C), {"instruction": F16}),
    "c by name": ((INS, A, B), {"c": C}),
    "b and c by name": ((A,), {"b": B, "c": C, "instruction": INS}),
    "all by name": ((), {"c": C, "b": B, "a": A, "instruction": INS}),
    "as version 0.2 called it": ((), {"ins": INS, "a": A, "b": B, "c": C}),
}


@BOTH
@pytest.mark.parametrize("order", ORDERS)
def test_every_order_means_the_same(call, order):
    operands, named = ORDERS[order]
    assert call(*operands, **named, **ON).tobytes() == mma(F16, A, B, C, **ON).tobytes()
    assert not np.array_equal(mma(F16, A, B, **ON), mma(F16, A, B, C, **ON))


@BOTH
@pytest.mark.parametrize(("operands", "named"), [((INS, A, B), {}), ((A, B), {"instruction": INS}),
                                                 ((A, B, None), {"instruction": INS})])  # fmt: skip
def test_c_may_be_left_out(call, operands, named):
    zeros = np.zeros_like(C)
    assert call(*operands, **named, **ON).tobytes() == mma(F16, A, B, zeros, **ON).tobytes()


@BOTH
@pytest.mark.parametrize(("operands", "named", "words"), [
    ((A, INS, B, C), {}, r"the instruction stands second; call {}\(instruction, a, b, c\) or"),
    ((A, B, F16), {}, "the instruction stands third"),
    ((A, B, C, INS), {}, "the instruction stands fourth"),
    ((A, B, C, C, INS), {}, "the instruction stands last"),
    ((A, B, C), {}, "{} needs an instruction, or its opcode as text; got ndarray, ndarray, nd"),
    ((), {}, "{} needs an instruction, or its opcode as text; got none"),
    ((INS, A, B), {"instruction": INS}, "{} takes one instruction; got 2"),
    ((INS, INS, A, B), {}, "{} takes one instruction; got 2"),
    ((A, B), {"instruction": 5}, "Instruction that multiplies, or its opcode, is needed; got int"),
    ((INS, A), {}, "{} needs A and B"),
    ((INS,), {"b": B}, "{} needs A and B"),
    ((INS, A, B), {"a": A}, "{}: a is given twice"),
    ((INS, A, B, C, C), {}, "{} takes matrices A, B and C; got 4"),
    ((A, B, C, C), {"instruction": INS}, "{} takes matrices A, B and C; got 4"),
])  # fmt: skip
def test_other_calls_are_refused(call, operands, named, words):
    with pytest.raises(OperandError, match=words.format(call.__name__)):
        call(*operands, **named, **ON)


def test_the_signature_and_the_documentation_are_those_of_the_function():
    assert gemm.__doc__.startswith("D = A·B + C of any size") and gemm.__name__ == "gemm"
    with pytest.raises(TypeError, match="bogus"):
        mma(INS, A, B, bogus=1, **ON)
    with pytest.raises(TypeError, match="target"):
        mma(INS, A, B)
