"""Statements that ptxas takes and refuses, operand by operand, against ``check_statement``."""

import gzip
import shutil
import subprocess

import pytest
from paths import GOLDEN
from ptx_texts import check_statement

from emulator import (
    EmulatorError,
    Instruction,
    OperandError,
    ParseError,
    UnsupportedError,
    Warp,
    Warpgroup,
)

pytestmark = pytest.mark.sampled(4)

STATEMENTS = GOLDEN / "ptxas_statements.txt.gz"


def sample():
    """(declarations, statement, family/case, accepted targets) of every row, targets asked."""
    lines = gzip.decompress(STATEMENTS.read_bytes()).decode().splitlines()
    asked = next(line for line in lines if line.startswith("# 75")).removeprefix("# ").split()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [(d, s, case, set(on.split()) - {"-"}) for d, s, case, on in rows], asked


def takes(declarations, statement, target):
    try:
        check_statement(f"{declarations}\n{statement}", f"sm_{target}")
    except EmulatorError:
        return False
    return True


def is_opcode(text):
    try:
        Instruction.parse(text)
    except EmulatorError:
        return False
    return True


def disagreements(rows, targets):
    """Rows of which ptxas and we think differently on one of the targets."""
    wrong = []
    for declarations, statement, case, accepted in rows:
        # An opcode that is none is refused on every target.
        known = is_opcode(statement.split()[0])
        here = {t for t in targets if known and takes(declarations, statement, t)}
        if here != accepted & set(targets):
            wrong.append((case, statement, sorted(here), sorted(accepted)))
    return wrong


# --- the sample ---


def test_statements_are_legal_where_ptxas_takes_them():
    rows, asked = sample()
    assert (len(rows), sum(bool(row[3]) for row in rows), len(asked)) == (1663, 643, 16)
    taken, refused = [r for r in rows if r[3]], [r for r in rows if not r[3]]
    assert disagreements(taken[::3], ["75", "90", "90a", "103a", "120a"]) == []
    assert disagreements(refused[::6], ["90a", "120a"]) == []


def test_a_wrong_row_shows():
    rows, asked = sample()
    declarations, statement, case, accepted = next(row for row in rows if len(row[3]) > 2)
    one_more = {t for t in asked if t not in accepted} or accepted
    planted = [
        (declarations, statement, case, accepted - {max(accepted)}),
        (declarations, statement, case, set()),
        (declarations, statement.replace("}", ", %x}", 1), case, accepted),
        (".reg .b8 %x;", statement, case, accepted ^ one_more),
    ]
    assert len(disagreements(planted, asked)) == len(planted)


def test_the_sample_covers_every_family_and_operand():
    rows, _ = sample()
    taken = {case for *_, case, accepted in rows if accepted}
    refused = {case for *_, case, accepted in rows if not accepted}
    families = {"mma", "mma.sp", "mma.sp::ordered_metadata", "wgmma", "wgmma.sp", "ldmatrix",
                "stmatrix", "movmatrix"}  # fmt: skip
    for cases in (taken, refused):
        assert {case.split("/")[0] for case in cases} == families
        assert {"regtype", "selector", "scale_ids", "scale_operand"} <= {
            case.split("/")[1] for case in cases
        }
    assert {"operand_count", "operand_missing", "operand_extra", "operand_scalar"} <= {
        case.split("/")[1] for case in refused
    }


@pytest.mark.slow
def test_the_whole_sample():
    assert disagreements(*sample()) == []


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("ptxas"), reason="ptxas is not installed")
@pytest.mark.parametrize("target", ["80", "90a", "100a", "120a"])
def test_ptxas_of_this_machine_agrees(target, tmp_path):
    """One kernel for each row that the sample says it takes, and one file for some it refuses."""
    rows, _ = sample()
    taken = [row[:2] for row in rows if target in row[3]]
    refused = [row[:2] for row in rows if target not in row[3]][::60]
    assert assembles(taken, target, tmp_path)
    assert not any(assembles([row], target, tmp_path) for row in refused)


def assembles(rows, target, folder):
    kernels = [
        f".visible .entry k{i}() {{ {declarations} {statement} ret; }}"
        for i, (declarations, statement) in enumerate(rows)
    ]
    file = folder / "rows.ptx"
    file.write_text(f".version 9.0\n.target sm_{target}\n.address_size 64\n" + "\n".join(kernels))
    command = ["ptxas", "-arch", f"sm_{target}", str(file), "-o", str(folder / "rows.cubin")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


# --- facts that stand by themselves: (operand, register types that it takes) ---

REGISTERS = ".reg .b8 %b8; .reg .u8 %u8; .reg .s8 %s8; .reg .b16 %b16; .reg .u16 %u16;" \
    " .reg .s16 %s16; .reg .f16 %f16; .reg .b32 %b32; .reg .u32 %u32; .reg .s32 %s32;" \
    " .reg .f32 %f32; .reg .f16x2 %f16x2; .reg .b64 %b64; .reg .u64 %u64; .reg .s64 %s64;" \
    " .reg .f64 %f64; .reg .pred %pred;"  # fmt: skip
TYPES = [name.strip("%; ") for name in REGISTERS.split() if name.startswith("%")]
ANY_32 = "b32 u32 s32 f32 f16x2"
WIDE_ADDRESS = "b32 u32 s32 b64 u64 s64"
ADDRESS = f"b8 u8 s8 b16 u16 s16 {WIDE_ADDRESS}"
SCALED = (
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
    ".f32.e4m3.e4m3.f32.ue8m0 {%f32,%f32,%f32,%f32}, {%b32,%b32,%b32,%b32}, {%b32,%b32},"
    " {%f32,%f32,%f32,%f32}, "
)
FP8_SPARSE = (
    "mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32 {%f32,%f32,%f32,%f32},"
    " {%b32,%b32,%b32,%b32}, {%b32,%b32,%b32,%b32}, {%f32,%f32,%f32,%f32}, @, 0;"
)
DOUBLES = (
    "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {@,@,@,@}, {%f64,%f64}, {%f64},"
    " {%f64,%f64,%f64,%f64};"
)
S8_M8 = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%s32,%s32}, {%b32}, {@}, {%s32,%s32};"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f32,%f32,%f32,%f32}, "


@pytest.mark.parametrize(
    ("statement", "target", "legal"),
    [
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {@}, [%b32];", "sm_75", ANY_32),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%b32}, [@];", "sm_75", ADDRESS),
        ("ldmatrix.sync.aligned.m8n8.x1.b16 {%b32}, [@+16];", "sm_75", WIDE_ADDRESS),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%b32], {@,@};", "sm_90", ANY_32),
        ("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [@], {%b32};", "sm_90", ADDRESS),
        ("movmatrix.sync.aligned.m8n8.trans.b16 @, %b32;", "sm_75", ANY_32),
        ("movmatrix.sync.aligned.m8n8.trans.b16 %f32, @;", "sm_75", ANY_32),
        ("cvt.rn.f16x2.f32 @, %f32, %f32;", "sm_80", "b32 f16x2 b64"),
        ("cvt.rn.f16x2.f32 %b32, @, %f32;", "sm_80", "b32 f32 b64"),
        ("cvt.rn.bf16x2.f32 @, %f32, %f32;", "sm_80", "b32"),
        ("cvt.rn.bf16x2.f32 %b32, %f32, @;", "sm_80", "b32 f32"),
        ("cvt.rz.f16.f32 @, %f32;", "sm_75", "b16 f16 b32 b64"),
        ("cvt.rn.bf16.f32 @, %f32;", "sm_80", "b16"),
        ("cvt.rna.tf32.f32 @, %f32;", "sm_80", "b32"),
        ("cvt.rn.satfinite.e4m3x2.f32 @, %f32, %f32;", "sm_89", "b16"),
        ("cvt.rn.satfinite.e5m2x2.f16x2 %b16, @;", "sm_89", "b32 f16x2"),
        ("cvt.rn.f16x2.e4m3x2 %b32, @;", "sm_89", "b16"),
        ("cvt.rn.satfinite.e2m1x2.f32 @, %f32, %f32;", "sm_100a", "b8"),
        ("cvt.rn.f16x2.e2m1x2 %b32, @;", "sm_120a", "b8"),
        ("cvt.rz.ue8m0x2.bf16x2 %b16, @;", "sm_100a", "b32"),
        ("cvt.rn.bf16x2.ue8m0x2 @, %b16;", "sm_100a", "b32"),
        ("cvt.rs.satfinite.e4m3x4.f32 %b32, {@,@,@,@}, %b32;", "sm_100a", "b32 f32"),
        ("cvt.rs.satfinite.e2m1x4.f32 @, {%f32,%f32,%f32,%f32}, %b32;", "sm_103a", "b16"),
        ("cvt.rs.f16x2.f32 %b32, %f32, %f32, @;", "sm_100a", "b32"),
        ("mov.b32 @, {%b8,%b8,%b8,%b8};", "sm_75", ANY_32),
        ("mov.b32 %b32, {@,@,@,@};", "sm_75", "b8 u8 s8"),
        ("mov.b16 {@,@}, %b16;", "sm_75", "b8 u8 s8"),
        ("mov.b16 @, {%b8,%b8};", "sm_75", "b16 u16 s16 f16"),
        (SCALED + "@, {0,0}, %b32, {0,0};", "sm_120a", ANY_32),
        (SCALED + "{@,@}, {0,0}, %b32, {0,0};", "sm_120a", ANY_32),
        (SCALED + "%b32, {@,@}, %b32, {0,0};", "sm_120a", "b16 u16 s16"),
        (FP8_SPARSE, "sm_89", ANY_32),
        (FP8_SPARSE, "sm_90", "b32 u32 s32 f16x2"),
        (FP8_SPARSE, "sm_110a", "b32 u32 s32 f16x2"),
        (FP8_SPARSE, "sm_120", ANY_32),
        (DOUBLES, "sm_90a", "b64 u64 s64 f64"),
        (DOUBLES, "sm_100", "b64 f64"),
        (DOUBLES, "sm_120a", "b64 f64"),
        (S8_M8, "sm_90a", "b32 u32 s32"),
        (S8_M8, "sm_100", ANY_32),
        (WGMMA + "@, %b64, %pred, 1, 1;", "sm_90a", "b64 u64 s64"),
        (WGMMA + "{@,@,@,@}, %b64, %pred, 1, 1;", "sm_90a", "b32 f16x2"),
        (WGMMA + "%b64, %b64, !@, 1, 1;", "sm_90a", "pred"),
    ],
)  # fmt: skip
def test_register_types(statement, target, legal):
    here = [t for t in TYPES if takes(REGISTERS, statement.replace("@", f"%{t}"), target[3:])]
    assert set(here) == set(legal.split())


#: ptxas gives the vector a type: that of all its elements, or .b32 where they differ
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {D}, {A}, {%b32,%b32}, {C};"


@pytest.mark.parametrize(
    ("operand", "items", "legal"),
    [
        ("A", "%f32,%f32,%f32,%f32", False),
        ("A", "%f32,%b32,%b32,%b32", True),
        ("A", "%b32,%b32,%b32,%s32", True),
        ("A", "%u32,%s32,%s32,%s32", True),
        ("A", "%s32,%s32,%s32,%s32", False),
        ("A", "%b32,%f16x2,%u32,%b32", False),  # neighbours that do not fit
        ("A", "%b32,0,0x10,-1", True),
        ("A", "%b32,0f3f800000,%b32,%b32", True),
        ("A", "%f16x2,%f16x2,%f16x2,0", False),
        ("A", "0,0,0,0", False),
        ("A", "0,0,0,%b32", True),
        ("A", "_,%b32,%b32,%b32", False),
        ("C", "0f3f800000,0f00000000,0f3f800000,0f3f800000", True),
        ("C", "0,0,0,0", False),
        ("C", "%f32,%f32,%f32,0", False),
        ("C", "%f32,%f32,%f32,0f3f800000", True),
        ("C", "%b64,%f32,%f32,%f32", False),
        ("D", "_,%f32,%f32,_", True),
        ("D", "_,_,_,_", False),
        ("D", "%f32,%b32,%u32,%b32", True),
        ("D", "%f32,%f32,%f32,0f3f800000", False),
    ],
)
def test_types_within_a_vector(operand, items, legal):
    good = {"A": "%b32,%b32,%b32,%b32", "C": "%f32,%f32,%f32,%f32", "D": "%f32,%f32,%f32,%f32"}
    statement = F16
    for name, default in good.items():
        statement = statement.replace(f"{{{name}}}", f"{{{items if name == operand else default}}}")
    assert takes(REGISTERS, statement, "80") == legal


@pytest.mark.parametrize(
    ("target", "first", "legal"),
    [("89", "_", True), ("90", "_", False), ("100a", "%u32", False), ("120", "%u32", True)],
)
def test_where_a_call_takes_the_place_of_the_instruction(target, first, legal):
    """fp8 on sm_90 to sm_110: every register of D is of a legal type, and none is discarded."""
    statement = (
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {@,%b32,%b32,%b32},"
        " {%b32,%b32,%b32,%b32}, {%b32,%b32}, {%f32,%f32,%f32,%f32};"
    )
    assert takes(REGISTERS, statement.replace("@", first), target) == legal


# --- messages ---

LOAD = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 "


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (LOAD + "{%b32}, [%b32];", OperandError, "column 42: operand d.* 2 registers; 1"),
        (LOAD + "%b32, [%b32];", OperandError, "2 registers in braces; got '%b32'"),
        (LOAD + "{%b32,%b32}, %b32;", OperandError, r"an address, \[register\+offset\]"),
        (LOAD + "{%b32,%b32}, [%f32];", OperandError, "operand p.*'%f32' is .f32"),
        (LOAD + "{%b32,%b32}, [%q];", OperandError, "'%q' is not declared; declared are %b8"),
        (LOAD + "{%b32,%b32};", OperandError, "lacks operand p"),
        (LOAD + "{%f32,%u32}, [%b32];", OperandError, "'%u32' is .u32 .* beside .f32"),
        (LOAD + "{_,_}, [%b32];", OperandError, "all '_'"),
        (LOAD + "{0,%b32}, [%b32];", OperandError, "is written; an immediate"),
        (LOAD + "{%b32,%b32}, [%b32, 16];", ParseError, "coordinates in braces"),
        ("movmatrix.sync.aligned.m8n8.trans.b16 {%b32}, %b32;", OperandError,
         r"operand d .* is written; got \{%b32\}"),
        ("cvt.rn.f16x2.f32 %b32, %f32, 1;", OperandError, "an f32 immediate; got 1"),
        ("cvt.rna.tf32.f32 %b32, 1.5;", OperandError, "hexadecimal.*got 1.5"),
        ("cvt.rn.satfinite.e4m3x2.f32 %b16, %f32, %f32;", UnsupportedError, "not available"),
        (F16.replace("{D}", "{%f32,%f32,%f32,%f32}").replace("{A}", "{%b32,%b32,%b32,%b32}")
         .replace("{C}", "{%f32,%f32,%f32,1.0}"), OperandError, "operand c.*hexadecimal.*got 1.0"),
        ("mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%b32,%b32}, {%b32,%b32},"
         " {%b32,%b32}, {%b32,%b32}, %b32, 4;", OperandError, "one of 0, 1, 2, 3; got 4"),
        ("mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%b32,%b32}, {%b32,%b32},"
         " {%b32,%b32}, {%b32,%b32}, %b32, %b32;", OperandError, "an integer immediate, one of"),
    ],
)  # fmt: skip
def test_messages_say_what_is_legal(text, error, words):
    with pytest.raises(error, match=rf"line 2, .*{words}"):
        check_statement(f"{REGISTERS}\n{text}", "sm_80")


@pytest.mark.parametrize(
    ("operands", "words"),
    [
        ("%b32, {4,0}, %b32, {0,0};", "byte_id_a of .* one of 0, 1, 2, 3; got 4"),
        ("%b32, {0,2}, %b32, {0,0};", "thread_id_a of .* is 0 or 1; got 2"),
        ("%b32, {0,0}, %b32, {0,4};", "thread_id_b of .* one of 0, 1, 2, 3; got 4"),
        ("%b32, {0}, %b32, {0,0};", r"ids_a.*\{byte_id_a, thread_id_a\}; got \{0\}"),
        ("{%b32,%b32,%b32}, {0,0}, %b32, {0,0};", "scale_a.*1, 2 or 4 in braces"),
        ("0, {0,0}, %b32, {0,0};", "scale_a.* is a single register"),
    ],
)
def test_messages_of_scales(operands, words):
    with pytest.raises(OperandError, match=words):
        check_statement(f"{REGISTERS}\n{SCALED}{operands}", "sm_120a")


@pytest.mark.parametrize(
    ("operands", "words"),
    [
        ("%b64, %b64, %pred, 0, 1;", "imm_scale_a.* is 1 or -1; got 0"),
        ("%b64, %b64, 2, 1, 1;", "a predicate, or 0 or 1; got 2"),
        ("%b64, %b64, %pred, 1, 1, 0;", "imm_scale_b; one operand too many is 0"),
        ("%b32, %b64, %pred, 1, 1;", "operand a.*'%b32' is .b32"),
    ],
)
def test_messages_of_wgmma(operands, words):
    with pytest.raises(OperandError, match=words):
        check_statement(f"{REGISTERS}\n{WGMMA}{operands}", "sm_90a")


def test_checking_is_what_running_does_first():
    text = f"{REGISTERS}\n{WGMMA}%b64, %b64, 1, 1, -2;"
    messages = []
    for run in (lambda: check_statement(text, "sm_90a"), lambda: Warpgroup("sm_90a").run(text)):
        with pytest.raises(OperandError) as error:
            run()
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    check_statement(f"{REGISTERS}\n{WGMMA}%b64, %b64, 1, 1, -1;", "sm_90a")
    with pytest.raises(UnsupportedError, match="runs on 128 lanes"):
        Warp("sm_90a").run(f"{REGISTERS}\n{WGMMA}%b64, %b64, 1, 1, -1;")
