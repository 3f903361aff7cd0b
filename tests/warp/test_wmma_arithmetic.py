"""wmma.mma computes what the machine instructions compute that ptxas makes of it, and its check."""

from itertools import product

import numpy as np
import pytest
from bits import assert_same_codes
from hardware import wmma_check
from stand_ins import Echo

from emulator import Instruction, OperandError, UnsupportedError, execute, gemm, mma
from emulator.isa.catalogue import instructions

pytestmark = pytest.mark.sampled(6)

MULTIPLIES = list(instructions("wmma.mma"))
#: one target of every generation, and the other one with Volta's tensor cores
TARGETS = ("sm_70", "sm_72", "sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
SHAPES = ("m16n16k16", "m8n32k16", "m32n8k16")
parse = Instruction.parse


def drawn(ins, seed, cases=36):
    """Codes of A, B and C in all regimes, three cases of each."""
    plan = wmma_check.plans(ins)[0]
    memory, _ = wmma_check.memories(plan, np.random.default_rng(seed), cases)
    loads = (execute(plan.transfers[x], 0, shared=memory[x], target="sm_90a") for x in "abc")
    return [ins.fragment(x).gather(words) for x, words in zip("abc", loads, strict=True)]


def computed(ins, a, b, c, target, **options):
    """D of matrices of codes, through registers."""
    words = (ins.fragment(x).scatter(codes) for x, codes in zip("abc", (a, b, c), strict=True))
    return ins.fragment("d").gather(execute(ins, *words, target=target, **options))


def on(*targets):
    return [t for t in TARGETS if t in targets]


# --- integers ---


def signed(codes, type_):
    """Values of s32, s8, s4, u8 or u4 codes."""
    bits = int(type_[1:])
    values = codes.astype(np.int64)
    return values - (values >> bits - 1 << bits) if type_[0] == "s" else values


@pytest.mark.parametrize("ins", [x for x in MULTIPLIES if x.a_type[0] in "su"], ids=str)
def test_integers_are_exact(ins):
    a, b, c = drawn(ins, 1)
    total = signed(a, ins.a_type) @ signed(b, ins.a_type) + signed(c, "s32")
    if ins.satfinite:
        total = np.clip(total, -(2**31), 2**31 - 1)
        assert (np.abs(total) >= 2**31 - 1).any()
    for target in TARGETS:
        if target in ins.targets:
            expected = (total & 0xFFFFFFFF).astype(np.uint32)
            assert_same_codes(computed(ins, a, b, c, target), expected)


@pytest.mark.parametrize("operation", ["xor", "and"])
def test_bits_are_counted(operation):
    ins = parse(f"wmma.mma.{operation}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32")
    a, b, c = drawn(ins, 2)
    joined = {"xor": np.not_equal, "and": np.logical_and}[operation]
    ones = joined(a[:, :, None, :], np.swapaxes(b, 1, 2)[:, None]).sum(-1)
    expected = (c + ones).astype(np.uint32)
    for target in on("sm_80", "sm_90a", "sm_120a") + ["sm_75"] * (operation == "xor"):
        assert_same_codes(computed(ins, a, b, c, target), expected)


# --- floats: chains along k, as the disassembly of ptxas's code shows them ---

_MMA = "mma.sync.aligned"
F16_STEP = {
    "sm_70": f"{_MMA}.m8n8k4.row.col", "sm_72": f"{_MMA}.m8n8k4.row.col",
    "sm_75": f"{_MMA}.m16n8k8.row.col",
}  # fmt: skip
#: (type of A, target) -> the mma that is chained
STEPS = {
    **{("f16", t): F16_STEP.get(t, f"{_MMA}.m16n8k16.row.col") for t in TARGETS},
    **{("bf16", t): f"{_MMA}.m16n8k16.row.col" for t in TARGETS[3:]},
    **{("tf32", t): f"{_MMA}.m16n8k4.row.col" for t in TARGETS[3:]},
    **{("f64", t): f"{_MMA}.m8n8k4.row.col" for t in TARGETS[3:]},
}
LOWERED = [
    (f"wmma.mma.sync.aligned.{layouts}.{shape}.{types}", target)
    for (layouts, shape), target in product(
        [("row.col", SHAPES[0]), ("col.row", SHAPES[1]), ("col.col", SHAPES[2])], TARGETS
    )
    for types in ("f16.f16", "f32.f32", "f16.f32", "f32.f16", "f32.bf16.bf16.f32")
    if (("bf16" if "bf16" in types else "f16"), target) in STEPS
] + [
    (f"wmma.mma.sync.aligned.row.col.{rest}", target)
    for target in TARGETS[3:]
    for rest in (
        "m16n16k8.f32.tf32.tf32.f32", "m8n8k4.f64.f64.f64.f64", "m8n8k4.rz.f64.f64.f64.f64",
    )
]  # fmt: skip


def widened(codes):
    """f16 codes as f32 codes; every NaN is the canonical one."""
    values = codes.view(np.float16).astype(np.float32)
    return np.where(np.isnan(values), np.uint32(0x7FFFFFFF), values.view(np.uint32))


def narrowed(codes):
    """f32 codes rounded to nearest f16; every NaN is the canonical one."""
    values = codes.view(np.float32)
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def chained(ins, a, b, c, target):
    """D by the mma instructions that the lowering chains, with conversions around them."""
    step = STEPS[ins.a_type, target]
    if target in ("sm_70", "sm_72") and (ins.c_type, ins.d_type) == ("f16", "f32"):
        # The first HMMA takes C as it is.
        first = parse(f"{step}.f32.f16.f16.f16")
        blocks = [
            [
                mma(first, a[:, i : i + 8, :4], b[:, :4, j : j + 8], c[:, i : i + 8, j : j + 8],
                    target=target, codes=True)
                for j in range(0, ins.n, 8)
            ]
            for i in range(0, ins.m, 8)
        ]  # fmt: skip
        c, a, b = np.block(blocks), a[..., 4:], b[:, 4:]
    elif (ins.c_type, ins.d_type) == ("f16", "f32"):
        c = widened(c)
    inner = "f32" if "f32" in (ins.c_type, ins.d_type) else ins.d_type
    rounding = f".{ins.rounding}" if ins.a_type == "f64" else ""
    opcode = f"{step}{rounding}.{inner}.{ins.a_type}.{ins.a_type}.{inner}"
    d = gemm(a, b, c, instruction=opcode, target=target, codes=True)
    return narrowed(d) if (inner, ins.d_type) == ("f32", "f16") else d


@pytest.mark.parametrize(("opcode", "target"), LOWERED)
def test_floats_are_what_the_lowering_computes(opcode, target):
    ins = parse(opcode)
    a, b, c = drawn(ins, 3)
    assert_same_codes(computed(ins, a, b, c, target), chained(ins, a, b, c, target))


def test_a_chain_differs_from_one_sum():
    """tf32 goes in steps of 4 even where mma.m16n8k8 sums 8 at once, and it shows."""
    ins = parse("wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32")
    a, b, c = drawn(ins, 4, 120)
    opcode = f"{_MMA}.m16n8k8.row.col.f32.tf32.tf32.f32"
    at_once = gemm(a, b, c, instruction=opcode, target="sm_90a", codes=True)
    assert (computed(ins, a, b, c, "sm_90a") != at_once).any()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        # C = 2**-24, a subnormal of f16, becomes a normal f32 and 2**-40 is not cut off ...
        *((t, 0x33800080) for t in TARGETS[2:]),
        # ... but where the tensor core reads the f16 itself, its exponent counts as -14.
        ("sm_70", 0x33800000),
    ],
)
def test_an_f16_accumulator_is_converted_first(target, expected):
    ins = parse("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16")
    a, b, c = (np.zeros((16, 16), np.uint16) for _ in range(3))
    a[0, 0], b[0, 0], c[0, 0] = 0x0001, 0x0100, 0x0001  # 2**-24 · 2**-16 + 2**-24
    assert computed(ins, a, b, c, target)[0, 0] == expected


def test_layouts_change_nothing_once_loaded():
    """The layout says how A and B lie in memory; in registers it is gone."""
    opcodes = [str(x) for x in MULTIPLIES if x.shape == "m16n16k16" and str(x).endswith("f32.f16")]
    a, b, c = drawn(parse(opcodes[0]), 5)
    first, *others = (computed(parse(opcode), a, b, c, "sm_90a") for opcode in opcodes)
    assert len(others) == 3
    for other in others:
        assert_same_codes(other, first)


# --- engines, batches, errors ---


def only_slowly(target):
    """Targets whose recipes are also run, row by row, in test_engines."""
    slow = target not in ("sm_70", "sm_90a")
    return pytest.param(target, marks=pytest.mark.slow) if slow else target


@pytest.mark.parametrize("target", [only_slowly(target) for target in TARGETS])
def test_engines_agree(target):
    seen = set()
    for ins in MULTIPLIES:
        if target not in ins.targets or ins.layouts != ("row", "col"):
            continue
        arithmetic = ins.arithmetic(target)
        if arithmetic in seen:
            continue
        seen.add(arithmetic)
        a, b, c = (codes[::5] for codes in drawn(ins, 6))
        # A corner of the matrices is enough.
        a[:, 2:], b[..., 3:] = 0, 0
        fast = computed(ins, a, b, c, target, engine="vector")
        assert_same_codes(fast, computed(ins, a, b, c, target, engine="reference"))
    assert len(seen) >= (4 if target in ("sm_70",) else 6)


def test_batches_broadcast():
    ins = parse("wmma.mma.sync.aligned.row.col.m8n32k16.f32.bf16.bf16.f32")
    a, b, c = drawn(ins, 7, 6)
    got = computed(ins, a[:2, None], b[None, :3], c[5], "sm_80")
    assert got.shape == (2, 3, 8, 32)
    for i, j in product(range(2), range(3)):
        assert_same_codes(got[i, j], computed(ins, a[i], b[j], c[5], "sm_80"))


def test_wrong_operands():
    ins = parse("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    a, b, c = (ins.fragment(x).zeros() for x in "abc")
    with pytest.raises(OperandError, match=r"takes 3 operands \(a, b, c\); got 2"):
        execute(ins, a, b, target="sm_80")
    with pytest.raises(OperandError, match="32 lanes, 8 registers"):
        execute(ins, a[:, :4], b, c, target="sm_80")
    with pytest.raises(OperandError, match="do not broadcast"):
        execute(ins, np.zeros((2, 32, 8), np.uint32), np.zeros((3, 32, 8), np.uint32), c,
                target="sm_80")  # fmt: skip
    with pytest.raises(OperandError, match="takes no shared=; its options are none"):
        execute(ins, a, b, c, shared=np.zeros(8, np.uint8), target="sm_80")
    with pytest.raises(UnsupportedError, match="not available on sm_75"):
        bf16 = parse("wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32")
        execute(bf16, a, b, c, target="sm_75")


# --- the check on hardware, without hardware ---


@pytest.mark.parametrize("number", range(4))
def test_the_check_finds_one_wrong_byte(number):
    ins = parse("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32")
    plan = wmma_check.plans(ins)[number]
    outcome = wmma_check.check(Echo(plan), plan, "sm_90a", "9.0", 12, 0)
    assert (outcome.results, outcome.differing) == (12 * 256, 0)
    spoilt = wmma_check.check(Echo(plan, (7, 40)), plan, "sm_90a", "9.0", 12, 0)
    assert spoilt.differing == 1 and spoilt.first.startswith("case 7 (")
    assert wmma_check.plans(ins)[3].strides != wmma_check.plans(ins)[0].strides


def test_the_check_fills_memory_as_a_program_would():
    """What it writes is what a load reads: for all matrices, types and strides."""
    rng = np.random.default_rng(8)
    for ins in MULTIPLIES[::7]:
        for plan in wmma_check.plans(ins):
            for x in "abc":
                load, fragment = plan.transfers[x], ins.fragment(x)
                top = fragment.fmt.code_mask
                codes = rng.integers(0, top, (2, *fragment.shape), np.uint64, endpoint=True)
                codes = codes.astype(fragment.gather(fragment.zeros()).dtype)
                memory = wmma_check.written(plan, x, codes)
                stride = plan.strides[x]
                held = wmma_check.in_memory(load, memory)
                words = execute(load, 0, stride=stride, target="sm_90a", **held)
                assert_same_codes(fragment.gather(words), codes)
