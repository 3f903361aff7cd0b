"""Signatures: operands stated once, for every kind of instruction."""

from types import SimpleNamespace

import numpy as np
import pytest

from emulator import Instruction, OperandError, ParseError, UnsupportedError, execute
from emulator.arith.scalar import lanes
from emulator.isa.catalogue import instructions
from emulator.isa.instruction import _parse
from emulator.isa.kinds import KINDS, kinds_of
from emulator.isa.signature import LANES, is_immediate
from emulator.layout import lanemap

parse = Instruction.parse
DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
    ".f32.e2m1.e2m1.f32.ue4m3"
)
WGMMA = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"
WGMMA_SP = "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.u8"


def one_of_each_form():
    found = {}
    for ins in instructions():
        found.setdefault((type(ins), ins.form, ins.lanes), ins)
    return list(found.values())


# --- by hand ---


def written(ins, way=0):
    """A signature as one would write it: {4 registers}, [address], <descriptor>, ?optional."""
    marks = {
        "vector": "{{{0.count} {0.name}}}", "address": "[{0.name}]", "descriptor": "<{0.name}>",
        "ids": "ids {0.name}", "predicate": "pred {0.name}", "register": "{0.name}",
        "immediate": "{0.name}={0.values}",
    }  # fmt: skip
    operands = ins.signatures()[way].operands
    return ", ".join("?" * x.optional + marks[x.kind].format(x) for x in operands)


@pytest.mark.parametrize(
    ("opcode", "operands", "scope"),
    [
        (DENSE, ["{4 d}, {4 a}, {2 b}, {4 c}"], "warp"),
        (SPARSE, ["{4 d}, {4 a}, {4 b}, {4 c}, e, selector=range(0, 2)"], "warp"),
        (SCALED, ["{4 d}, {4 a}, {2 b}, {4 c}, scale_a, ids ids_a, scale_b, ids ids_b"], "warp"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", ["{2 d}, {1 a}, {1 b}, {2 c}"], "warp"),
        (
            WGMMA,
            [
                "{8 d}, <a>, <b>, pred scale_d, imm_scale_a=(1, -1), imm_scale_b=(1, -1), "
                "imm_trans_a=(0, 1), imm_trans_b=(0, 1)",
                "{8 d}, {4 a}, <b>, pred scale_d, imm_scale_a=(1, -1), imm_scale_b=(1, -1), "
                "imm_trans_b=(0, 1)",
            ],
            "warpgroup",
        ),
        (
            WGMMA_SP,
            [
                "{4 d}, <a>, <b>, e, selector=range(0, 1), pred scale_d",
                "{4 d}, {4 a}, <b>, e, selector=range(0, 1), pred scale_d",
            ],
            "warpgroup",
        ),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ["{4 d}, [p]"], "warp"),
        ("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16", ["[p], {2 r}"], "warp"),
        ("movmatrix.sync.aligned.m8n8.trans.b16", ["d, a"], "warp"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", ["{8 r}, [p], ?stride"], "warp"),
        ("wmma.store.d.sync.aligned.row.m16n16k16.global.f32", ["[p], {8 r}, ?stride"], "warp"),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", ["{8 d}, {8 a}, {8 b}, {8 c}"], "warp"),
        ("cvt.rn.f16x2.f32", ["d, a, b"], "thread"),
        ("cvt.rs.f16x2.f32", ["d, a, b, rbits"], "thread"),
        ("cvt.rs.satfinite.e4m3x4.f32", ["d, {4 abef}, rbits"], "thread"),
        ("cvt.rn.f16x2.e4m3x2", ["d, a"], "thread"),
    ],
)
def test_operands(opcode, operands, scope):
    ins = parse(opcode)
    assert [written(ins, i) for i in range(len(ins.signatures()))] == operands
    assert ins.scope == scope and ins.lanes == LANES[scope]


@pytest.mark.parametrize(
    ("opcode", "arguments", "options"),
    [
        (DENSE, "a b c", ""),
        (SPARSE, "a b c e", "selector"),
        (SCALED, "a b c", "scale_a byte_id_a thread_id_a scale_b byte_id_b thread_id_b"),
        (
            WGMMA,
            "descriptor_a descriptor_b d",
            "shared scale_d imm_scale_a imm_scale_b imm_trans_a imm_trans_b",
        ),
        (WGMMA_SP, "descriptor_a descriptor_b d e", "shared selector scale_d"),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16", "p r", "shared"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16", "p", "global_memory stride"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared::cta.f16", "p", "shared stride"),
        ("cvt.rs.satfinite.e4m3x4.f32", "a b e f rbits", ""),
    ],
)
def test_what_execute_takes(opcode, arguments, options):
    signature = parse(opcode).signature()
    assert [operand.argument for operand in signature.arguments] == arguments.split()
    assert list(signature.options) == options.split()


# --- every form ---


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ins", one_of_each_form(), ids=str)
def test_signatures_agree_with_what_else_is_known(ins):
    for target in (None, ins.targets[0], ins.targets[-1]):
        for signature in ins.signatures(target):
            assert signature.scope == ins.scope
            names = [operand.name for operand in signature.operands]
            assert len(set(names)) == len(names)
            for operand in signature.operands:
                assert operand.types or operand.kind == "immediate"
                if operand.kind == "vector" and not operand.parts:
                    assert operand.count == ins.fragment(operand.name).registers
                if operand.use == "written":
                    assert operand is signature.operands[0]
    assert ins.operands == ins.signature().names
    held = set(ins.fragments)
    assert held <= {name for x in ins.signatures() for name in x.names}
    with pytest.raises(OperandError, match="has no fragment 'nothing'"):
        ins.fragment("nothing")
    with pytest.raises(OperandError, match="has no fragment"):
        ins.fragment(["a"])


def test_a_target_without_the_instruction_has_no_signature():
    for opcode, target in ((WGMMA, "sm_100a"), ("cvt.rs.f16x2.f32", "sm_90a"), (SCALED, "sm_80")):
        with pytest.raises(UnsupportedError, match=f"is not available on {target}; its targets"):
            parse(opcode).signatures(target)


def test_register_types_depend_on_the_target():
    """Where ptxas makes a call of it, an accumulator of f64 is of f64 alone."""
    ins = parse("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64")
    assert ins.signature("sm_90")["d"].types == ("b64", "f64", "s64", "u64")
    called = ins.signature("sm_100")["d"]
    assert called.types == ("b64", "f64") and called.each and not called.sink
    assert ins.signature()["d"] == ins.signature("sm_90")["d"]


def test_immediates():
    assert is_immediate(1, (1, -1)) and is_immediate(np.int8(-1), (1, -1))
    for wrong in (0, True, 1.0, "1", None, np.array([1]), np.array(1.0)):
        assert not is_immediate(wrong, (1, -1))


# --- one word for an operand in every call ---


def test_operands_by_name():
    ins = parse(DENSE)
    a, b, c = (ins.fragment(x).zeros() + 7 for x in "abc")
    want = execute(ins, a, b, c, target="sm_90")
    assert np.array_equal(execute(ins, a, c=c, b=b, target="sm_90"), want)
    assert np.array_equal(execute(ins, a=a, c=c, b=b, target="sm_90"), want)
    with pytest.raises(OperandError, match=r"takes 3 operands \(a, b, c\); got 2"):
        execute(ins, a, c=c, target="sm_90")
    with pytest.raises(OperandError, match="takes no a=; its options are none"):
        execute(ins, a, b, a=a, target="sm_90")
    with pytest.raises(OperandError, match="takes no descriptor_b=; its options are none"):
        execute(ins, a, descriptor_b=b, c=c, target="sm_90")


def test_a_descriptor_has_one_name():
    ins = parse(WGMMA)
    shared = np.random.default_rng(0).integers(0, 256, 1 << 14).astype(np.uint8)
    d, word = ins.fragment("d").zeros(), np.uint64(8 << 16 | 16 << 32)
    want = execute(ins, word, word, d, shared=shared, target="sm_90a")
    named = {"descriptor_b": word, "d": d, "shared": shared, "target": "sm_90a"}
    assert np.array_equal(execute(ins, descriptor_a=word, **named), want)
    a = ins.fragment("a").zeros()
    assert np.array_equal(execute(ins, a=a, **named), execute(ins, a, **named))
    for wrong in ("b", "b_descriptor"):
        with pytest.raises(OperandError, match=f"takes no {wrong}=; its options are shared"):
            execute(ins, word, d=d, shared=shared, target="sm_90a", **{wrong: word})


# --- kinds ---


def test_kinds_are_told_apart_by_how_opcodes_start():
    names = [name for kind in KINDS for name in kind.names.split()]
    # The cvts that pack matrix operands and those between numbers are two kinds.
    assert {name for name in names if names.count(name) > 1} == {"cvt"}
    for kind in KINDS:
        module = kind.load()
        opcodes = {str(ins) for ins in module.expand()}
        assert opcodes
        for opcode in sorted(opcodes):
            assert kind.module in [found.module for found in kinds_of(opcode)], opcode
        for opcode in sorted(opcodes)[::37]:
            assert str(module.parse(opcode)) == opcode


def test_of_two_kinds_with_a_name_the_first_that_takes_an_opcode_has_it(monkeypatch):
    def kind(module, refusal=None):
        def parse(opcode):
            if refusal:
                raise refusal
            return module

        return SimpleNamespace(load=lambda: SimpleNamespace(parse=parse))

    unknown, illegal = ParseError("an unknown word"), UnsupportedError("an illegal form")
    for kinds, want in (
        ([kind("one"), kind("two")], "one"),
        ([kind("one", illegal), kind("two")], "two"),
        ([kind("one", unknown), kind("two", illegal)], illegal),
        ([kind("one", illegal), kind("two", unknown)], illegal),
        ([kind("one", unknown), kind("two", ParseError("other"))], unknown),
    ):
        monkeypatch.setattr("emulator.isa.instruction.kinds_of", lambda _, kinds=kinds: kinds)
        if isinstance(want, str):
            assert _parse("cvt.x") == want
        else:
            with pytest.raises(type(want), match=str(want)):
                _parse("cvt.x")


def test_an_instruction_that_nothing_executes():
    class Other(Instruction):
        targets = ("sm_90",)

        def __str__(self):
            return "other.sync"

    with pytest.raises(UnsupportedError, match=r"execute does not run other\.sync"):
        execute(Other(), target="sm_90")


def test_arith_and_layout_which_do_not_meet_have_warps_of_one_size():
    assert (lanes.LANES, lanemap.WARP, lanemap.WARPGROUP) == (32, 32, 128)
