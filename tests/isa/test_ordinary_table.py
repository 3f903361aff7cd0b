"""The table of ordinary instructions: what parses, how it is spelled, what is refused, operands."""

import pickle
import random
import time
from operator import attrgetter

import pytest
from paths import GOLDEN
from sweeps import swept

from emulator import Instruction, ParseError, UnsupportedError
from emulator.arith.scalar import TYPES, find_rule
from emulator.isa import kinds
from emulator.isa.conversion import expand
from emulator.isa.grammar import Grammar
from emulator.isa.ordinary import instruction
from emulator.isa.ordinary.instruction import OrdinaryInstruction, names, parse, rows_of
from emulator.isa.ordinary.row import Row, register_types
from emulator.isa.ordinary.tables import ROWS
from emulator.machine.vector.statements import problem

pytestmark = pytest.mark.sampled(6)

OPCODES = GOLDEN / "scalar" / "opcodes.txt"
#: modifiers that say when or where an instruction acts, or what its rule does in any case
WITHOUT_EFFECT = {
    "approx", "aligned", "async", "bulk", "bulk_group", "cc", "cp", "from", "hint", "ld_reduce",
    "mbarrier::complete_tx::bytes", "mmio", "noftz", "pack", "red", "reduce", "scope", "semantics",
    "sync", "to", "unheeded", "vec", "weak",
}  # fmt: skip
#: the same where a rule of its own stands for them, and the one that nobody could record
OWN_RULES = {
    ("sat", "conversion.pack"), ("sat", "conversion.pack_onto"), ("any", "lanes.match_any"),
    *((word, "sparse_vectors.compress") for word in ("sp", "count")),
    *(("rounding", f"small_floats.{name}") for name in ("add", "sub", "mul", "fma")),
    ("all", "lanes.match_all"), ("space", "multimem.reduce"),
    ("oob", "fused.fma_oob"), ("rounding", "fused.fma_oob"),
}  # fmt: skip


def some_forms(row, count=40, seed=1):
    forms = list(row.expand())
    chosen = random.Random(seed).sample(forms, count) if len(forms) > count else forms
    return [OrdinaryInstruction(row, words) for words in chosen]


@swept(ROWS, ids=attrgetter("form"))
def test_a_form_parses_to_itself_in_any_order(row):
    rng = random.Random(2)
    for ins in some_forms(row):
        assert parse(str(ins)) == ins
        free = [not slot.leading for slot in row.grammar.slots]
        name = row.spell(tuple(w for w, x in zip(ins.words, free, strict=True) if not x))
        words = [w for w, x in zip(ins.words, free, strict=True) if x and w]
        types = [w for w in words if w in ins.types]
        others = [w for w in words if w not in ins.types]
        slots = [set(x.words) for x in row.grammar.slots if not (x.positional or x.leading)]
        slots += [{"from", "to"} for x in row.grammar.slots if x.name == "from"] * 2  # in order
        if sum(map(len, slots)) == len(set().union(*slots)):
            rng.shuffle(others)
        if len(types) == len(ins.types):
            assert parse(".".join([name, *others, *types])) == ins
        assert hash(parse(str(ins))) == hash(ins)
        assert ins.targets


def test_no_form_stands_twice():
    seen = {}
    for row in ROWS:
        for words in row.expand():
            opcode = frozenset((row.name, *words)), tuple(w for w in words if w in TYPES)
            text = row.spell(words)
            assert text not in seen, (text, row, seen.get(text))
            seen[text] = opcode
    assert len(seen) > 50_000


def test_no_cvt_stands_in_two_tables():
    for conversion in expand():
        with pytest.raises((ParseError, UnsupportedError)):
            parse(str(conversion))
        assert Instruction.parse(str(conversion)) == conversion


def test_a_row_of_a_new_name_is_an_instruction(monkeypatch):
    assert not kinds.kinds_of("havg.s32")
    monkeypatch.setattr(instruction, "ROWS", (Row("havg.type=s32"), *ROWS))
    monkeypatch.setattr(instruction, "names", names.__wrapped__)
    assert kinds.kinds_of("havg.s32") == [kinds.REST]
    assert "havg" in kinds.names()


def test_opcodes_of_real_kernels():
    """946 forms were counted in 394 files of nvcc, CUTLASS, Triton and others; these are ours."""
    opcodes = OPCODES.read_text().split()
    assert len(opcodes) > 750
    for opcode in opcodes:
        ins = Instruction.parse(opcode)
        assert "sm_90a" in ins.targets or "sm_100a" in ins.targets, opcode


@pytest.mark.sampled(1)
@swept([row for row in ROWS if row.rule], 50, ids=attrgetter("form"))
def test_a_rule_heeds_every_modifier(row):
    heeded = {name.lower() for name in find_rule(row.rule).keywords}
    for slot in row.grammar.slots:
        if not slot.positional and slot.name not in WITHOUT_EFFECT:
            assert slot.name.lower() in heeded or (slot.name, row.rule) in OWN_RULES, slot.name


def test_the_first_parse_of_a_form_is_quick():
    parse("add.s32")
    started = time.process_time()
    forms = [str(ins) for name in names()[::3] for ins in some_forms(rows_of(name)[0], 3)]
    for row in ROWS:
        row.__dict__.pop("grammar", None)
    parse.cache_clear()
    started = time.process_time()
    for form in forms:
        parse(form)
    # Under a millisecond each where nothing else runs; the test allows for a busy machine.
    assert (time.process_time() - started) / len(forms) < 0.01


def test_an_instruction_can_be_pickled():
    ins = Instruction.parse("fma.rn.ftz.f32")
    assert pickle.loads(pickle.dumps(ins)) == ins


def test_what_a_form_says_of_itself():
    ins = Instruction.parse("mad.lo.cc.u32")
    assert (ins.family, ins.types, ins.rule) == ("mad", ("u32",), "carry.mad_cc")
    assert (ins.reads_carry, ins.writes_carry, ins.lanes) == (False, True, 1)
    assert ins.modifiers["mode"] == "lo"
    assert Instruction.parse("madc.hi.cc.s64").reads_carry
    assert Instruction.parse("shfl.sync.idx.b32").lanes == 32
    assert Instruction.parse("wgmma.fence.sync.aligned").lanes == 128
    assert Instruction.parse("add.rn.bf16").ptx_version == (7, 8)
    assert Instruction.parse("ld.relaxed.cluster.global.b32").ptx_version == (7, 8)
    tensor = "cp.async.bulk.tensor.3d.shared::cluster.global.{}.mbarrier::complete_tx::bytes"
    assert Instruction.parse(tensor.format("im2col")).ptx_version == (8, 0)
    assert Instruction.parse(tensor.format("im2col::w")).ptx_version == (8, 6)
    assert "sm_80" not in Instruction.parse("ld.relaxed.cluster.global.b32").targets
    assert repr(ins).startswith("Instruction.parse('mad.lo.cc.u32')")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("add.f33", ParseError, r"unknown modifier '\.f33'.*nearest is '\.f32'"),
        (
            "add.sat.u32",
            UnsupportedError,
            r"nearest is 'add\.sat\.s32'.*add\{\.rounding\}|add\.sat",
        ),
        ("add.rn.s32", UnsupportedError, r"nearest is 'add\.s32'"),
        ("add", UnsupportedError, "there are add"),
        ("fma.f32", UnsupportedError, "nearest is 'fma.rn.f32'"),
        ("add.ftz.ftz.f32", UnsupportedError, "nearest is 'add.ftz.f32'"),
        ("cvt.s32.f32", UnsupportedError, r"nearest is 'cvt\.rni\.s32\.f32'"),
        ("cvt.f16.f32", UnsupportedError, r"nearest is cvt\.r[nz]\.f16\.f32"),
        ("setp.lo.s32", UnsupportedError, "there are setp"),
        ("set.lt.f32.u32.u32", UnsupportedError, "nearest is"),
        ("addx.s32", ParseError, "nearest to 'addx' is 'add"),
    ],
)
def test_what_is_no_form(text, error, message):
    with pytest.raises(error, match=message) as raised:
        Instruction.parse(text)
    assert len(str(raised.value)) < 900


@pytest.mark.parametrize(
    ("opcode", "reason"),
    [
        (
            "txq.channel_order.b32",
            "properties but width, height and depth, which CUDA's driver has no answer to",
        )
    ],
)
def test_textures_of_other_kinds_are_legal_and_not_modelled(opcode, reason):
    ins = Instruction.parse(opcode)
    assert problem(ins) == f"{opcode!r} is legal PTX, not modelled here: {reason}"


def test_types_keep_their_order():
    assert Instruction.parse("set.lt.f32.u32").types == ("f32", "u32")
    with pytest.raises(UnsupportedError):
        Instruction.parse("set.lt.u64.u32")
    assert Instruction.parse("cvt.s32.rzi.f32") == Instruction.parse("cvt.rzi.s32.f32")


def test_a_target_without_the_instruction():
    ins = Instruction.parse("add.rn.bf16")
    with pytest.raises(UnsupportedError, match="not available on sm_80; its targets are sm_90"):
        ins.signature("sm_80")


# --- operands -------------------------------------------------------------------------------------


def shown(opcode, target=None):
    """name:kind:types:… of every operand."""
    out = []
    for x in Instruction.parse(opcode).signature(target).operands:
        marks = "?" * x.optional + "~" * x.sink + "|" * x.paired + "&" * x.symbol
        out.append(f"{x.name}{marks} {x.use} {x.kind} {x.type} {'/'.join(x.types)}")
    return out


def test_operands_are_registers_of_the_type():
    assert shown("add.s32") == [
        "d written register s32 s32/b32/u32/f16x2",
        "a read register s32 s32/b32/u32/f16x2",
        "b read register s32 s32/b32/u32/f16x2",
    ]
    assert shown("mul.wide.u16")[0] == "d written register u32 u32/b32/s32/f16x2"
    assert shown("add.bf16x2")[0] == "d written register bf16x2 b32"
    assert shown("setp.lt.f32") == [
        "p~ written register pred pred",
        "q?~| written register pred pred",
        "a read register f32 f32/b32",
        "b read register f32 f32/b32",
    ]
    assert shown("selp.b64")[-1] == "c read predicate pred pred"
    assert shown("cvt.u8.u32")[0].split()[-1].startswith("u8/b8/s8/b16/u16")


def test_operands_that_depend_on_modifiers():
    assert [x.split()[0] for x in shown("ld.global.b32")] == ["d", "a"]
    assert [x.split()[0] for x in shown("ld.global.L2::cache_hint.b32")] == ["d", "a", "policy"]
    signature = Instruction.parse("ld.global.v4.f32").signature()
    assert (signature["d"].kind, signature["d"].count) == ("vector", 4)
    assert signature["a"].space == "global"
    assert Instruction.parse("ld.b32").signature()["a"].space == ""
    tensor = Instruction.parse(
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        ".multicast::cluster"
    ).signature()
    assert tensor.names == ("dst", "map", "mbarrier", "offsets", "mask")
    assert (tensor["map"].coordinates, tensor["offsets"].count) == (3, 1)
    assert tensor["offsets"].type == "u16"


def test_operands_that_depend_on_the_target():
    assert Instruction.parse("max.f32").signature("sm_90a").names == ("d", "a", "b")
    assert Instruction.parse("max.f32").signature("sm_100").names == ("d", "a", "b", "c")


def test_immediates():
    lop3 = Instruction.parse("lop3.b32").signature()["lut"]
    assert (lop3.kind, lop3.constants) == ("immediate", "integers")
    assert Instruction.parse("add.f32").signature()["b"].constants == "values"
    assert Instruction.parse("add.f16x2").signature()["b"].constants == "none"
    assert Instruction.parse("and.b32").signature()["b"].constants == "any"
    assert Instruction.parse("setmaxnreg.inc.sync.aligned.u32").signature()[
        "count"
    ].values == range(24, 257, 8)
    barrier = Instruction.parse("bar.sync").signature()
    assert (barrier["a"].kind, barrier["a"].values) == ("register", range(16))
    assert (barrier["b"].optional, 33 in barrier["b"].values) == (True, False)


def test_wider_registers():
    assert register_types("u8", wider=True)[:3] == ("u8", "b8", "s8")
    assert "b64" in register_types("u8", wider=True)
    assert "f32" not in register_types("u32", wider=True)
    assert register_types("f32", wider=True) == ("f32", "b32", "b64", "b128")
    assert register_types("bf16", wider=True) == ("b16",)


# --- the notation ---------------------------------------------------------------------------------


def test_forms_are_matched_word_by_word():
    grammar = Grammar.of("set.compare=lt|gt{.ftz}.to=u32|f32.type=u32|f32")
    assert grammar.match(["lt", "u32", "f32"]) == ("lt", "", "u32", "f32")
    assert grammar.match(["u32", "ftz", "gt", "f32"]) == ("gt", "ftz", "u32", "f32")
    assert grammar.match(["lt", "u32"]) is None
    assert grammar.match(["lt", "lt", "u32", "f32"]) is None
    assert grammar.match(["lt", "u32", "f32", "f32"]) is None
    assert Grammar.of("elect.sync").match(["sync", "sync"]) == ("sync",)
