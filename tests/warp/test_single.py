"""One warp's mma by the short path: as dot products computed element by element.

The operands aim at what float arithmetic can get wrong (see `edges`), and what they are compared
with is `vector.dot`, which test_engines compares with the reference.
"""

import numpy as np
import pytest
from designed import REGIMES as DESIGNED
from designed import Case
from each_form import ALL
from edges import ORDINARY, REGIMES, chain, matrices
from kernel_operands import drawn as warps

from dtypes import encode
from emulator import EmulatorError, Instruction, OperandError, execute
from emulator.arith import engines
from emulator.arith.fast import fused
from emulator.memory.space import Space
from emulator.targets import TARGETS
from emulator.warp import products, single
from emulator.warp.call import Call, by_name

pytestmark = pytest.mark.sampled(2)


def alone_of(call):
    """What `single` gives for a call."""
    compute = single.bound(call.instruction, call.target, call.engine, call.undefined)
    return compute(call.operands, call.options)


def planned():
    """Every instruction and target with a plan of its own; targets of a generation share one."""
    found = {}
    for ins in (x for x in ALL if x.family == "mma" and not x.is_block_scaled):
        for target in (TARGETS[name] for name in ins.targets):
            found.setdefault((ins, ins.arithmetic(target)), (ins, target))
    found = {key: x for key, x in found.items() if products.plan(*x, 0, ()) is not None}
    return [
        # The fast suite has every sixteenth of them.
        pytest.param(*x, id=f"{x[0]}-{x[1]}", marks=[pytest.mark.slow] if i % 16 else [])
        for i, x in enumerate(found.values())
    ]


PLANNED = planned()
F16 = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


def drawn(ins, target, regime, seed=0):
    """Codes of the matrices, one for each group of the fragments, and of what D must be."""
    case = Case(str(ins), ins.arithmetic(target), ins.k, 0)
    size = (ins.fragment("d").groups, ins.m, ins.n, ins.k)
    operands = matrices(np.random.default_rng(seed), case, regime, size, ins.k)
    return *operands[:3], chain(case, ins.k, *operands[:3])


def registers(ins, operand, codes):
    fragment = ins.fragment(operand)
    codes = codes.swapaxes(-1, -2) if operand == "b" else codes
    return fragment.scatter(codes if fragment.groups > 1 else codes[0])


def named(ins, given):
    """Operands and options of a call of `execute` with these names, as a `Call` has them."""
    return by_name(ins, 0, tuple(given)).sort((), dict(given))


def short(ins, target, *codes):
    """The registers of D by the short path; None where it leaves them to the other."""
    words = [registers(ins, x, y) for x, y in zip("abc", codes, strict=True)]
    return alone_of(Call(ins, dict(zip("abc", words, strict=True)), {}, target, "vector"))


def assert_same(ins, target, regime, seed=0):
    """Whether the short path computed it, after a comparison of what it computed."""
    *codes, d = drawn(ins, target, regime, seed)
    found = short(ins, target, *codes)
    if found is not None:
        assert np.array_equal(found, registers(ins, "d", d)), regime
    return found is not None


@pytest.mark.parametrize(("ins", "target"), PLANNED)
def test_the_short_path_gives_the_same_codes(ins, target):
    for regime in REGIMES:
        assert_same(ins, target, regime, len(str(ins)))


@pytest.mark.parametrize(
    ("opcode", "target"),
    [
        ("m16n8k16.row.col.f32.f16.f16.f32", "sm_90a"),
        ("m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
        ("m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90a"),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90a"),
        ("m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90a"),
        ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89"),
        ("m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
        ("m8n8k4.row.col.f32.f16.f16.f16", "sm_70"),
        ("m8n8k4.row.col.f32.f16.f16.f32", "sm_80"),
        ("m8n8k4.col.row.f32.f16.f16.f16", "sm_90"),
    ],
)
def test_ordinary_operands_take_the_short_path(opcode, target):
    ins = Instruction.parse(f"mma.sync.aligned.{opcode}")
    for regime in ORDINARY:
        assert assert_same(ins, TARGETS[target], regime), regime
    zeros = [np.zeros_like(x) for x in drawn(ins, TARGETS[target], "near")[:3]]
    assert not short(ins, TARGETS[target], *zeros).any()


@pytest.mark.parametrize("shape", ["m16n8k16.row.col", "m8n8k4.row.row"])
def test_a_result_of_f16_takes_the_short_path_where_it_is_finite(shape):
    ins = Instruction.parse(f"mma.sync.aligned.{shape}.f16.f16.f16.f16")
    for name in ("sm_80", "sm_90a"):
        codes = [np.asarray(x) & 0xBFFF for x in drawn(ins, TARGETS[name], "near")[:3]]
        codes = [np.where(x & 0x7C00 > 0x3C00, 0x3C00, x).astype(np.uint16) for x in codes]
        words = [registers(ins, x, y) for x, y in zip("abc", codes, strict=True)]
        slow = execute(ins, *words, target=name, engine="reference")
        assert np.array_equal(short(ins, TARGETS[name], *codes), slow)


@pytest.mark.parametrize("special", [0x7C00, 0xFC00, 0x7E00])
def test_what_is_not_ordinary_is_left_to_the_other_path(special):
    a, b, c, _ = drawn(F16, TARGETS["sm_90a"], "near")
    a[0, 3, 5] = special
    b[0, :, 5] = 0
    assert short(F16, TARGETS["sm_90a"], a, b, c) is None
    words = [registers(F16, x, y) for x, y in zip("abc", (a, b, c), strict=True)]
    d = execute(F16, *words, target="sm_90a")
    assert np.array_equal(d, execute(F16, *words, target="sm_90a", engine="reference"))


@pytest.mark.parametrize("side", "ab")
@pytest.mark.parametrize("change", [lambda x: np.roll(x, 1, 1), lambda x: x[:, :-1]])
def test_a_wrong_plan_is_noticed(monkeypatch, side, change):
    ins, target = F16, TARGETS["sm_90a"]
    assert assert_same(ins, target, "near")
    plans = single._plan(ins, target).products
    held = getattr(plans[()], side)
    wrong = plans[()]._replace(**{side: held._replace(elements=change(held.elements))})
    monkeypatch.setitem(plans, (), wrong)
    with pytest.raises((AssertionError, ValueError)):
        assert_same(ins, target, "near")


def test_operands_are_refused_as_on_the_other_path():
    a, b, c = (F16.fragment(x).zeros() for x in "abc")
    for wrong in ((a[:, :3], b, c), (a, b.astype(np.int64), c), (a, b, c.view(np.float32))):
        with pytest.raises(OperandError) as short_message:
            execute(F16, *wrong, target="sm_90a")
        with pytest.raises(OperandError) as long_message:
            execute(F16, *wrong, target="sm_90a", engine="reference")
        assert str(short_message.value) == str(long_message.value)


def test_a_batch_takes_the_other_path():
    words = {x: F16.fragment(x).zeros(1 if x == "b" else 2) for x in "abc"}
    assert alone_of(Call(F16, words, {}, TARGETS["sm_90a"])) is None
    one = {x: F16.fragment(x).zeros() for x in "abc"}
    assert alone_of(Call(F16, one, {}, TARGETS["sm_90a"], "reference")) is None


# --- every kind of operand, by both ways ----------------------------------------------------------

SPARSE = "mma.sp::ordered_metadata.sync.aligned."
SCALED = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
FP4 = "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
MXF4 = "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
SPARSE_SCALED = (
    f"{SPARSE}m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e3m2.f32.ue8m0"
)


@pytest.mark.parametrize("engine", ["vector", "compiled"])
@pytest.mark.parametrize(
    ("opcode", "target", "options"),
    [
        (str(F16), "sm_90a", {}),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_80", {}),
        ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", "sm_80", {}),
        (f"{SPARSE}m16n8k64.row.col.s32.u8.s8.s32", "sm_80", {}),
        (f"{SPARSE}m16n8k128.row.col.s32.s4.s4.s32", "sm_80", {}),
        (f"{SPARSE}m16n8k32.row.col.f32.f16.f16.f32", "sm_90a", {}),
        (f"{SPARSE}m16n8k16.row.col.f16.f16.f16.f16", "sm_90a", {"selector": 1}),
        (f"{SPARSE}m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90a", {"selector": 3}),
        (f"{SCALED}.f32.e2m1.e4m3.f32.ue8m0", "sm_120a", {"byte_id_b": 2, "thread_id_a": 1}),
        (SPARSE_SCALED, "sm_120a", {"byte_id_a": 3, "thread_id_b": 2}),
        (f"mma.sync.aligned.{FP4}", "sm_120a", {"thread_id_b": 3}),
        (f"mma.sync.aligned.{MXF4}", "sm_120a", {"byte_id_a": 2, "thread_id_a": 1}),
        (f"{SPARSE}{FP4.replace('k64', 'k128')}", "sm_120a", {"thread_id_a": 1}),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc", "sm_80", {}),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", "sm_80", {}),
    ],
)
def test_one_warp_of_each_kind(opcode, target, options, engine):
    if engine == "compiled":
        pytest.importorskip("llvmlite")
    ins = Instruction.parse(opcode)
    rng = np.random.default_rng(5)
    operands = warps(ins, target, rng, DESIGNED)
    for name, words in operands.items():
        more = words[:1]
        if name in ("a", "b", "c") and "f" in ins.d_type:
            fragment = ins.fragment(name)
            codes = encode(fragment.fmt, rng.standard_normal(fragment.shape))
            more = fragment.scatter(codes)[None]
        operands[name] = np.concatenate([words, more])
    expected = execute(ins, **operands, **options, target=target, engine="vector")

    def alone(i, **change):
        one = {name: x[i] for name, x in operands.items()} | options
        one |= {name: with_(one[name]) for name, with_ in change.items()}
        return alone_of(Call(ins, *named(ins, one), TARGETS[target], engine))

    wrong = {name: 0 for name in operands if not name.startswith("scale")}
    alone_too = [alone(i) for i in range(len(expected))]
    computed = [i for i, d in enumerate(alone_too) if d is not None]
    assert len(computed) == len(expected) or (engine == "vector" and len(DESIGNED) in computed)
    for i in computed:
        d = expected[i]
        assert np.array_equal(alone_too[i], d)
        for name in wrong:
            wrong[name] += not np.array_equal(alone(i, **{name: lambda x: x[::-1]}), d)
    assert all(wrong.values()), "another order of lanes is noticed"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("opcode", [f"mma.sync.aligned.{FP4}", f"mma.sync.aligned.{MXF4}",
                                    f"{SPARSE}{FP4.replace('k64', 'k128')}"])  # fmt: skip
def test_products_of_a_group_that_cancel_count(opcode, monkeypatch):
    ins, rng, right = Instruction.parse(opcode), np.random.default_rng(7), fused.in_groups

    def cancelled(made, sums, live, *rest):
        return right(made, sums, sums != 0, *rest)

    low, high = (8, 112) if ins.scale_type == "ue4m3" else (95, 142)
    missed = 0
    for _ in range(40):
        words = {x: rng.integers(0, 1 << 32, ins.fragment(x).zeros().shape) for x in "abc"}
        words["a"] &= np.where(rng.random(words["a"].shape) < 0.5, 0x99999999, 0)
        words["b"] &= 0x99999999  # zeros and halves of either sign: many sums are zero
        words["c"] = words["c"] & 0x803FFFFF | 0x3F000000
        if ins.is_sparse:
            words["e"] = np.full(32, 0x4E4E4E4E)
        operands = {name: x.astype(np.uint32) for name, x in words.items()}
        for name in ("scale_a", "scale_b"):
            scales = rng.integers(low, high, (32, 4)).astype(np.uint8)
            operands[name] = scales.view(np.uint32)[:, 0]
        call = Call(ins, *named(ins, operands), TARGETS["sm_120a"], "vector")
        d = execute(ins, **operands, target="sm_120a", engine="reference")
        assert np.array_equal(alone_of(call), d)
        with monkeypatch.context() as planted:
            planted.setattr(fused, "in_groups", cancelled)
            missed += not np.array_equal(alone_of(call), d)
    assert missed, "that they do not count would be noticed"


WGMMA, WGMMA_SP = "wgmma.mma_async.sync.aligned.", "wgmma.mma_async.sp.sync.aligned."
NEGATIVE = {"imm_scale_a": -1, "imm_scale_b": -1}
#: bits of a word that stay, and that are set, so that each number is between a half and four
MODERATE = {
    "f16": (0x83FF83FF, 0x3C003C00), "bf16": (0x80FF80FF, 0x3F003F00),
    "f32": (0x80FFFFFF, 0x3F000000), "tf32": (0x80FFFFFF, 0x3F000000),
}  # fmt: skip


def with_ordinary(operands, ins):
    """The batch with one more at its end: the first, with numbers of moderate size."""
    kinds = {"a": ins.a_type, "shared": ins.b_type, "d": ins.d_type}
    out = {}
    for name, x in operands.items():
        more = x[:1].copy()
        if kinds.get(name) in MODERATE:
            kept, set_ = MODERATE[kinds[name]]
            words = more.view(np.uint32)
            words[...] = words & kept | set_
        out[name] = np.concatenate([x, more])
    return out


@pytest.mark.parametrize("engine", ["vector", "compiled"])
@pytest.mark.parametrize(
    ("opcode", "memory", "options"),
    [
        (f"{WGMMA}m64n8k16.f32.f16.f16", {}, {}),
        (f"{WGMMA}m64n16k16.f32.bf16.bf16", {"a_in_memory": True, "swizzle": 64}, NEGATIVE),
        (f"{WGMMA}m64n16k16.f16.f16.f16", {"major": "mn", "swizzle": 32}, {"imm_scale_b": -1}),
        (f"{WGMMA}m64n8k8.f32.tf32.tf32", {"swizzle": 32}, {"scale_d": False, "imm_scale_a": -1}),
        (f"{WGMMA}m64n8k32.f32.e4m3.e5m2", {"a_in_memory": True}, {}),
        (f"{WGMMA}m64n24k32.s32.u8.s8.satfinite", {"a_in_memory": True}, {"scale_d": False}),
        (f"{WGMMA}m64n8k256.s32.b1.b1.and.popc", {"a_in_memory": True}, {}),
        (f"{WGMMA}m64n8k256.s32.b1.b1.and.popc", {}, {}),
        (f"{WGMMA_SP}m64n8k32.f32.f16.f16", {"a_in_memory": True}, {"selector": 1}),
        (f"{WGMMA_SP}m64n8k16.f32.tf32.tf32", {}, {"selector": 1, "imm_scale_b": -1}),
        (f"{WGMMA_SP}m64n8k64.s32.s8.s8", {"a_in_memory": True, "swizzle": 64}, {}),
    ],
)
def test_one_warpgroup_of_each_kind(opcode, memory, options, engine):
    if engine == "compiled":
        pytest.importorskip("llvmlite")
    ins, target = Instruction.parse(opcode), "sm_90a"
    operands = warps(ins, target, np.random.default_rng(6), DESIGNED, **memory)
    common = {x: operands.pop(x) for x in list(operands) if x.startswith("imm")} | options
    operands = with_ordinary(operands, ins)
    expected = execute(ins, **operands, **common, target=target, engine="vector")

    def alone(i, **change):
        one = {name: x[i] for name, x in operands.items()} | common | change
        return alone_of(Call(ins, *named(ins, one), TARGETS[target], engine))

    computed = []
    for i, d in enumerate(expected):
        found = alone(i)
        if found is not None:
            computed.append(i)
            assert np.array_equal(found, d)
            assert np.array_equal(alone(i), d), "what is planned is used again"
    assert len(computed) == len(expected) or (engine == "vector" and computed)
    i = computed[-1]
    for name in operands.keys() & {"a", "e", "shared"}:
        others = [alone(j, **{name: operands[name][i]}) for j in range(len(expected)) if j != i]
        assert any(not np.array_equal(x, y) for x, y in zip(others, expected, strict=False)), name
    memory = Space("shared memory", operands["shared"][i], start=0)
    assert np.array_equal(alone(i, shared=memory), expected[i])
    for wrong in (
        {"scale_d": 2}, {"imm_scale_a": True}, {"imm_scale_b": 0}, {"selector": 9},
        {"descriptor_b": 1 << 64}, {"shared": operands["shared"][i][:64]}, {"d": expected[:, 1:]},
    ):  # fmt: skip
        if "selector" not in wrong or ins.is_sparse:
            assert alone(i, **wrong) is None, wrong


def test_auto_makes_machine_code_when_calls_have_paid_for_it(monkeypatch):
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(engines, "_WORTH_A_KERNEL", 3 * single._CALL)
    monkeypatch.setattr(engines, "_asked", {})
    plan = single._plan(F16, TARGETS["sm_90a"])
    plan.kernels.clear()
    operands = [F16.fragment(x).zeros() for x in "abc"]
    for made in (0, 0, 1, 1):
        assert not execute(F16, *operands, target="sm_90a").any()
        assert len(plan.kernels) == made


def test_machine_code_refuses_what_the_other_path_refuses():
    """A value that equals a legal one, after a call with that, too."""
    ins = Instruction.parse(f"{SPARSE}m16n8k16.row.col.f32.f16.f16.f32")
    operands = [ins.fragment(x).zeros() for x in "abc"]
    metadata = np.full(32, 0x44444444, np.uint32)
    for engine in ("compiled", "reference"):
        execute(ins, *operands, metadata, selector=1, target="sm_80", engine=engine)
        for wrong in (True, 1.0, 4, [1], "1"):
            with pytest.raises(OperandError, match="selector"):
                execute(ins, *operands, metadata, selector=wrong, target="sm_80", engine=engine)


@pytest.mark.slow
@pytest.mark.parametrize("undefined", ["raise", "hardware"])
@pytest.mark.parametrize("ins", [x for x in ALL if x.family.startswith("mma")][::40], ids=str)
def test_any_bits_give_the_same_or_are_refused_in_the_same_words(ins, undefined):
    pytest.importorskip("llvmlite")
    rng = np.random.default_rng(len(str(ins)))
    operands = {
        name: rng.integers(0, 2**64, (x.lanes, x.registers), "u8").astype(f"u{x.word_bits // 8}")
        for name, x in ins.fragments.items() if name != "d"
    }  # fmt: skip
    found = []
    for engine in ("reference", "vector", "compiled"):
        options = {"target": ins.targets[-1], "engine": engine, "undefined": undefined}
        try:
            found.append(execute(ins, **operands, **options).tobytes())
        except EmulatorError as error:
            found.append(str(error))
    assert found[0] == found[1] == found[2]
