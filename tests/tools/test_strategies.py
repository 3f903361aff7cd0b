"""Hypothesis strategies: legal operands, edges that turn up, planted errors that are found soon."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.errors import NoSuchExample

from dtypes import FORMATS, NumberClass, decode
from emulator import Instruction, OperandError, UnsupportedError, execute
from emulator.arith import dot
from emulator.arith.steps import FusedDotAdd
from emulator.testing import Inputs, codes, matrices, operands

pytestmark = pytest.mark.sampled(12)

QUIET = settings(
    max_examples=60, database=None, deadline=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
BF16 = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
HALF = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
E4M3 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
#: one of every kind of operand
SOME = [
    (F16, "sm_80"),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
    ("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64", "sm_90a"),
    ("mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.u4.s32", "sm_80"),
    ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc", "sm_75"),
    ("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", "sm_80"),
    ("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_80"),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.u4.u4.s32", "sm_90a"),
    ("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
     ".f32.e4m3.e2m1.f32.ue8m0", "sm_120a"),
    ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2", "sm_90a"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f16.f16.f16", "sm_90a"),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "sm_80"),
]  # fmt: skip


def drawn(strategy, count=40):
    """`count` examples, always the same."""
    out = []

    @settings(QUIET, max_examples=count, phases=[Phase.generate])
    @given(strategy)
    def collect(x):
        out.append(x)

    collect()
    return out


# --- codes and matrices ---------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
def test_codes_fit_their_format(fmt):
    assert all(0 <= code <= fmt.code_mask for code in drawn(codes(fmt.name)))


def test_codes_reach_every_edge_of_a_float():
    """f16: zeros, one, least and largest subnormal, least normal, largest, infinities, NaNs."""
    edges = {0x0000, 0x3C00, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0x7C01, 0x7FFF}
    assert edges | {code | 0x8000 for code in edges} <= set(drawn(codes("f16"), 600))
    kinds = {int(decode(FORMATS["e4m3"], np.array(x)).number_class) for x in drawn(codes("e4m3"))}
    assert kinds == {NumberClass.ZERO, NumberClass.FINITE, NumberClass.NAN}


@pytest.mark.parametrize(
    ("fmt", "edges"),
    [("s8", {0, 1, 127, 128, 255}), ("u4", {0, 1, 15}), ("s32", {0, 1 << 31, (1 << 31) - 1})],
)
def test_codes_reach_every_edge_of_an_integer(fmt, edges):
    assert edges <= set(drawn(codes(fmt), 200))


def test_codes_shrink_to_zero():
    assert find(codes("bf16"), lambda code: True, settings=QUIET) == 0
    assert find(codes("bf16"), lambda code: code & 0x7F80 == 0x7F80, settings=QUIET) == 0x7F80


@pytest.mark.parametrize("operand", ["a", "b", "c"])
def test_matrices_have_the_shape_of_their_operand(operand):
    shape = {"a": (16, 16), "b": (16, 8), "c": (16, 8)}[operand]
    found = drawn(matrices(Instruction.parse(F16), operand))
    assert {x.shape for x in found} == {shape}
    assert max(len(np.unique(x)) for x in found) > 50
    assert min(len(np.unique(x)) for x in found) == 1


def test_metadata_is_legal():
    """0000, 0101, 1010 and 1111 select an element twice; descending ones are not ordered."""
    plain = Instruction.parse("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    ordered = Instruction.parse(
        "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    )
    ascending = {4, 8, 9, 12, 13, 14}
    assert set(np.ravel(drawn(matrices(plain, "nibbles")))) == set(range(16)) - {0, 5, 10, 15}
    assert set(np.ravel(drawn(matrices(ordered, "nibbles")))) == ascending


@pytest.mark.parametrize(("opcode", "target"), SOME)
def test_operands_run(opcode, target):
    ins = Instruction.parse(opcode)
    for inputs in drawn(operands(ins, target), 8):
        d = execute(ins, *inputs.registers, target=target, **inputs.options)
        assert d.shape == (ins.lanes, ins.fragment("d").registers)
        assert np.array_equal(d, inputs.run(target))
        assert isinstance(inputs, Inputs)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: codes("f17"), OperandError, "a format is .*got 'f17'; nearest is 'f16'"),
        (lambda: matrices(Instruction.parse(F16), "e"), OperandError, "is .*got 'e'"),
        (lambda: operands(Instruction.parse(F16), "sm_75"), UnsupportedError, "not available on"),
        (
            lambda: operands(Instruction.parse("cvt.rn.f16x2.f32"), "sm_80"),
            OperandError,
            "an instruction that multiplies is needed",
        ),
    ],
)
def test_wrong_calls(make, error, words):
    with pytest.raises(error, match=words):
        make()


# --- planted errors -------------------------------------------------------------------------------


def matrix_product(arithmetic, inputs):
    a, b, c = (inputs.matrices[name] for name in "abc")
    return dot(arithmetic, a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :], c)


def planted(right, **change):
    steps = [replace(s, **change) if isinstance(s, FusedDotAdd) else s for s in right.steps]
    return replace(right, steps=tuple(steps))


def tells(inputs, right, other):
    return not np.array_equal(matrix_product(right, inputs), matrix_product(other, inputs))


def first(opcode, target, condition, examples, seed=0, shrink=False):
    """The first example of operands that meets a condition, or None."""
    phases = [Phase.generate, *([Phase.shrink] if shrink else [])]
    try:
        return find(
            operands(Instruction.parse(opcode), target), condition, random=random.Random(seed),
            settings=settings(QUIET, max_examples=examples, derandomize=False, phases=phases),
        )  # fmt: skip
    except NoSuchExample:
        return None


def search(opcode, target, examples, seed=0, shrink=False, **change):
    """An example that tells the recipe of a target from one with a change, or None."""
    right = Instruction.parse(opcode).arithmetic(target)
    other = planted(right, **change)
    return first(opcode, target, lambda x: tells(x, right, other), examples, seed, shrink)


@pytest.mark.parametrize(
    ("opcode", "target", "change"),
    [
        (F16, "sm_90a", {"fraction_bits": 24}),
        (F16, "sm_90a", {"fraction_bits": 26}),
        (F16, "sm_90a", {"rounding": "rn"}),
        (F16, "sm_80", {"run": 16}),
        (HALF, "sm_90a", {"rounding": "rz"}),
        (E4M3, "sm_89", {"fraction_bits": 12}),
        (E4M3, "sm_89", {"precision": None}),
    ],
    ids=str,
)
def test_a_planted_error_is_found_soon(opcode, target, change):
    assert search(opcode, target, 300, **change) is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("opcode", "target", "changes"),
    [
        (BF16, "sm_90a", [{"floor": -132}, {"floor": -134}]),
        (HALF, "sm_90a", [{"floor": -20}, {"floor": -22}]),
        (E4M3, "sm_89", [{"fraction_bits": 14}, {"run": 32}]),
    ],
    ids=str,
)
def test_rarer_errors_are_found(opcode, target, changes, seed):
    """A wrong floor shows only where a sum of the very least numbers is cut.

    Hypothesis also draws constants of the modules that are loaded, so how many examples a search
    takes depends on what else a process tests: some 3,000 in the mean, at times more than 6,000.
    """
    right = Instruction.parse(opcode).arithmetic(target)
    left = [planted(right, **change) for change in changes]

    def last_one_is_found(inputs):
        left[:] = [other for other in left if not tells(inputs, right, other)]
        return not left

    assert first(opcode, target, last_one_is_found, 20_000, seed) is not None, left


def test_hypothesis_shows_a_failing_example_in_few_lines():
    @settings(QUIET, max_examples=200, phases=[Phase.generate])
    @given(operands(Instruction.parse(F16), "sm_80"))
    def fails(x):
        assert not x.matrices["a"].any()

    with pytest.raises(AssertionError) as caught:
        fails()
    notes = "\n".join(caught.value.__notes__)
    assert "x=Inputs of mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in notes
    assert "array(" not in notes


def test_what_is_right_is_not_found():
    assert search(F16, "sm_90a", 30) is None


@pytest.mark.slow
def test_an_example_shrinks_to_few_elements():
    found = [search(F16, "sm_90a", 200, seed, shrink=True, fraction_bits=24) for seed in range(3)]
    sizes = [np.count_nonzero(x.matrices["a"]) for x in found]
    assert max(sizes) <= 4
