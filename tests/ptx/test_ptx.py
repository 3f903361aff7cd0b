"""PTX statements on a Warp and a Warpgroup: syntax, register types, ordering, all-or-nothing."""

import contextlib

import numpy as np
import pytest
from paths import PTX

from emulator import (
    EmulatorError,
    Instruction,
    OperandError,
    ParseError,
    UnsupportedError,
    Warp,
    execute,
)

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
REGISTERS = ".reg .b32 %a<4>, %b<2>; .reg .f32 %c<4>, %d<4>;"
STATEMENT = f"{MMA} {{%d0,%d1,%d2,%d3}}, {{%a0,%a1,%a2,%a3}}, {{%b0,%b1}}, {{%c0,%c1,%c2,%c3}};"


def warp(**options):
    out = Warp(target="sm_90a", **options)
    out.run(REGISTERS)
    return out


def fill(machine, seed=0):
    rng = np.random.default_rng(seed)
    for name, register in machine.registers.items():
        halves = rng.standard_normal((machine.lanes, 2)).astype(np.float16)
        value = halves if register.type != "f32" else halves[:, 0].astype(np.float32)
        words = np.ascontiguousarray(value).view(np.uint32).reshape(machine.lanes)
        machine.words[name] = words


# --- syntax ---


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("mov.b32 a, 1", "line 1, column 13", "expected ',' or ';', found the end"),
        ("\n  mov.b32 {a, 1;", "line 2, column 16", "expected ',' or '}', found ';'"),
        ("mov.b32 #;", "line 1, column 9", "'#', which PTX does not use"),
        ("@p L: mov.b32 a, 1;", "line 1, column 1", "a label stands before the predicate"),
        ("@ mov.b32 a, 1", "line 1, column 3", "expected a predicate"),
        (".reg b32 x;", "line 1, column 6", "expected a type such as .b32, found 'b32'"),
        (
            ".version 8.0 .visible .entry f(.param .u64 p) { ret; }",
            "column 14",
            "outside of functions",
        ),
        ('\nasm volatile("mov.b32 a, 1;");', "line 2, column 1", "what stands in its quotes"),
        ('"mov.b32 a, 1;"', "line 1, column 1", "expected a statement"),
        ("{ .reg .b32 x;", "line 1, column 15", "'}' for the '{' of line 1, column 1"),
        ("} mov.b32 x, 1;", "line 1, column 1", "expected a statement, found '}'"),
        (".reg .b32 x; mov.b32 x, {};", "line 1, column 26", "found '}'"),
        (".reg .b32 x; .target sm_90a", "line 1, column 14", "no directive '.target' among"),
        (".version sm_90a", "line 1, column 10", "a number such as 8.0, found 'sm_90a'"),
        (".target sm_80,", "line 1, column 15", "a name such as sm_90a, found the end of the text"),
        (".address_size 16", "line 1, column 15", "32 or 64"),
    ],
)
def test_syntax_errors_name_the_place(text, where, what):
    with pytest.raises(ParseError) as error:
        Warp(target="sm_80").run(text)
    assert where in str(error.value) and what in str(error.value)
    assert str(error.value).endswith("^")


@pytest.mark.parametrize(
    ("text", "error", "where", "what"),
    [
        ("@p mov.b32 a, 1;", OperandError, "column 1", "predicate 'p' is not declared"),
        (".reg .b32 p; @p ret;", OperandError, "column 14", "'p' guards a statement and is .b32"),
        ("bra L;", OperandError, "column 5", "no label 'L'"),
        (".global .b8 x[4];", UnsupportedError, "column 13", "a variable of .global"),
        ("call f;", OperandError, "column 6", "no function 'f' is declared"),
        ("{ .reg .b32 x; } mov.b32 x, 1;", OperandError, "column 26", "'x' is not declared"),
        ("applypriority.async.bulk a, b;", UnsupportedError, "column 1", "legal PTX"),
    ],
)
def test_statements_that_no_machine_takes_name_the_place(text, error, where, what):
    with pytest.raises(error) as raised:
        Warp(target="sm_80").run(text)
    assert f"line 1, {where}: " in str(raised.value) and what in str(raised.value)


def test_the_lines_that_open_a_file_are_skipped():
    machine = Warp(target="sm_90a")
    machine.run(
        "// of nvcc\n.version 8.0\n.target sm_90a, debug\n.address_size 64\n"
        ".reg .b32 x; mov.b32 x, 7;"
    )
    assert (machine["x"] == 7).all()


# --- registers and shared memory ---


def test_what_sets_a_register_is_named():
    machine = Warp(target="sm_80")
    machine.declare("b32", "%a0")
    with pytest.raises(OperandError, match=r'set a register as warp\["%a0"\] = '):
        machine.registers["%a0"] = np.ones(32, np.uint32)
    machine.registers["%a0"].values = np.full(32, 7)
    assert (machine.registers["%a0"].values == 7).all()
    machine["%a0"] = np.ones(32, np.uint32)
    assert (machine.registers["%a0"].values == 1).all()


def test_shared_memory_is_checked_when_it_is_set():
    machine = Warp(target="sm_80", batch=(2,))
    for wrong in (3, b"bytes", np.zeros((2, 8), np.int8), [1, 2]):
        with pytest.raises(OperandError, match="shared memory, a uint8 array"):
            machine.shared = wrong
    with pytest.raises(OperandError, match=r"uint8 \(2, bytes\) here; got \(100,\)"):
        machine.shared = np.zeros(100, np.uint8)
    assert machine.shared.shape == (2, 48 * 1024)
    machine.shared = memory = np.zeros((2, 64), np.uint8)
    assert machine.shared is memory


# --- mma ---


def test_mma_statement_is_execute():
    machine = warp()
    fill(machine)
    a, b, c = machine.read("%a", 4), machine.read("%b", 2), machine.read("%c", 4)
    machine.run(STATEMENT)
    want = execute(Instruction.parse(MMA), a, b, c, target="sm_90a")
    assert np.array_equal(machine.read("%d", 4), want)
    assert np.array_equal(machine.read("%a", 4), a)


def test_example_file():
    machine = Warp(target="sm_80")
    machine.run((PTX / "first.ptx").read_text())
    assert (machine.registers["%d3"].values == 16 * 2 + 0.5).all()


def test_accumulating_in_place_and_discarding():
    machine = warp()
    fill(machine)
    c = machine.read("%c", 4)
    machine.run(STATEMENT.replace("%d", "%c"))
    twice = machine.read("%c", 4)
    assert not np.array_equal(twice, c)
    kept, written = machine["%d0"], machine["%d1"]
    machine.run(STATEMENT.replace("{%d0,%d1", "{_,%d1"))
    assert np.array_equal(machine["%d0"], kept) and not np.array_equal(machine["%d1"], written)


def test_batch_of_warps():
    machine = Warp(target="sm_90a", batch=(3,))
    machine.run(REGISTERS)
    machine.write("%c", np.zeros((32, 4), np.uint32))
    rng = np.random.default_rng(1)
    for prefix, count in (("%a", 4), ("%b", 2)):
        halves = rng.standard_normal((3, 32, count, 2)).astype(np.float16)
        machine.write(prefix, halves.view(np.uint32)[..., 0])
    machine.run(STATEMENT)
    one = warp()
    one.write("%a", machine.read("%a", 4)[2])
    one.write("%b", machine.read("%b", 2)[2])
    one.write("%c", np.zeros((32, 4), np.uint32))
    one.run(STATEMENT)
    assert np.array_equal(machine.read("%d", 4)[2], one.read("%d", 4))


def test_sparse_and_f64_and_block_scale_statements():
    machine = Warp(target="sm_90a")
    machine.run(
        ".reg .b32 %a<2>, %b<2>, e; .reg .s32 %c<4>; .reg .f64 %x<3>, %y<2>;"
        "mov.b32 %a0, 0x01010101; mov.b32 %b0, 0x02020202; mov.b32 e, 0x44444444;"
        "mov.b32 %a1, 0; mov.b32 %b1, 0; mov.s32 %c0, 0; mov.s32 %c1, 0; mov.s32 %c2, 0;"
        "mov.s32 %c3, 0;"
        "mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
        " {%c0,%c1,%c2,%c3}, {%a0,%a1}, {%b0,%b1}, {%c0,%c1,%c2,%c3}, e, 0;"
        "mov.f64 %x0, 1.5; mov.f64 %x1, 2.0; mov.f64 %x2, 0d3fe0000000000000;"
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%y0,%y1}, {%x0}, {%x1}, {%x2, 0.25};"
    )
    # 4 lanes hold 4 stored ones each of the first 8 rows; half of them meet B's first half.
    assert machine.registers["%c0"].values.tolist() == [16] * 32
    assert machine.registers["%y0"].values.tolist() == [12.5] * 32
    assert machine.registers["%y1"].values.tolist() == [12.25] * 32

    scaled = Warp(target="sm_120a")
    scaled.run(
        ".reg .b32 %a<4>, %b<2>, s, u; .reg .f32 %d<4>;"
        "mov.b32 %a0, 0x38383838; mov.b32 %b0, 0x38383838;"  # e4m3 1.0
        "mov.b32 %a1, 0; mov.b32 %b1, 0;"
        "mov.b32 s, 0x7f7f807f; mov.b32 u, 0x7f7f7f7f;"
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
        ".f32.e4m3.e4m3.f32.ue8m0 {%d0,%d1,%d2,%d3}, {%a0,%a1,0,0}, {%b0,%b1},"
        " {0f00000000,0f00000000,0f00000000,0f00000000}, s, {1, 0}, u, {0, 0};"
    )
    assert scaled.registers["%d0"].values.tolist() == [32.0] * 32  # 16 ones, scale 2


# --- bad statements ---


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (STATEMENT.replace("%a3}", "%a3,%a0}"), OperandError, "takes 4 registers; 5"),
        (STATEMENT.replace("{%b0,%b1}", "%b0"), OperandError, "vector of 2 registers"),
        # All of one wrong type: a mixed vector would be .b32 to ptxas, which takes it.
        (
            STATEMENT.replace("%a0,%a1,%a2,%a3", "%c0,%c1,%c2,%c3"),
            OperandError,
            ".b32, .f16x2; '%c0' is .f32",
        ),
        (STATEMENT.replace("%a3", "%a4"), OperandError, "'%a4' is not declared"),
        (
            STATEMENT.replace("{%c0,%c1,%c2,%c3}", "{%c0,%c1,%c2,1}"),
            OperandError,
            "stands beside .f32",
        ),
        (STATEMENT.replace("%d0", "1"), OperandError, "an immediate cannot be"),
        (STATEMENT.replace(", {%c0,%c1,%c2,%c3}", ""), OperandError, "lacks operand c"),
        (STATEMENT.replace(";", ", %a0;"), OperandError, "one operand too many is '%a0'"),
        (
            STATEMENT.replace("{%b0,%b1}", "[%b0]"),
            OperandError,
            "a vector of 2 registers in braces; got [%b0]",
        ),
        (STATEMENT.replace("f16.f16.f32", "f16.f15.f32"), ParseError, ".f15"),
        (STATEMENT.replace("k16", "k17"), UnsupportedError, "m16n8k16"),
        (
            ".reg .b64 %x; mov.b64 %x, 0; ld.global.b32 %a0, [%x];",
            UnsupportedError,
            "a warp has shared memory alone",
        ),
        ("mov.b32 %a0, %c0, %c1;", OperandError, "takes d, a; one operand too many is '%c1'"),
        ("mov.u32 %a0, %c0;", OperandError, "'%c0' is .f32"),
        ("mov.f32 %c0, 1;", OperandError, "an f32 immediate"),
        ("mov.f16x2 %a0, %a1;", ParseError, "unknown modifier '.f16x2'"),
        (".reg .b33 x;", OperandError, "nearest is '.b32'"),
        (".reg .b32 %a0;", OperandError, "declared already"),
        ("wgmma.fence.sync.aligned;", UnsupportedError, "Warpgroup"),
    ],
)
def test_bad_statement(text, error, words):
    machine = warp()
    fill(machine)
    before = {name: r.words.copy() for name, r in machine.registers.items()}
    with pytest.raises(error) as raised:
        machine.run(f"mov.b32 %a0, 5;\n{text}")
    assert "line 2" in str(raised.value) and words in str(raised.value)
    assert list(machine.registers) == list(before)
    for name, words_before in before.items():
        assert np.array_equal(machine.registers[name].words, words_before), name


def test_target_must_have_the_instruction():
    machine = Warp(target="sm_75")
    machine.run(REGISTERS)
    with pytest.raises(UnsupportedError, match="not available on sm_75"):
        machine.run(STATEMENT)


@pytest.mark.parametrize("text", [None, 5, b"mov.b32 a, 1;"])
def test_text_must_be_a_string(text):
    with pytest.raises(ParseError, match="is a string"):
        warp().run(text)


def test_random_text_only_raises_our_errors():
    rng = np.random.default_rng(2)
    pieces = [
        *STATEMENT.replace(",", " , ").split(),
        "{",
        "}",
        ";",
        "mov.b32",
        "0f3f",
        "\n",
        "<",
        "é",
    ]
    for _ in range(300):
        text = " ".join(rng.choice(pieces, rng.integers(1, 14)))
        with contextlib.suppress(EmulatorError):
            warp().run(text)


# --- registers ---


def test_setting_registers():
    machine = warp()
    machine["%c0"] = np.full(32, 1.5, np.float32)
    assert (machine["%c0"] == 0x3FC00000).all()
    machine["%a0"] = -1
    assert (machine["%a0"] == 0xFFFFFFFF).all()
    machine["%a1"] = range(32)
    assert machine["%a1"].tolist() == list(range(32))
    machine["%a1"][0] = 99
    assert machine["%a1"][0] == 0, "reading gives a copy"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("%a0", np.zeros(31, np.uint32), "one word per lane"),
        ("%a0", np.full(32, 1 << 32, np.uint64), "holds 32 bits"),
        ("%a0", 1 << 32, "holds 32 bits"),
        ("%q", 1, "not declared"),
        ("%a0", "text", "32-bit words"),
        ("%c0", "text", "numbers or arrays of floats"),
    ],
)
def test_bad_register_value(name, value, words):
    machine = warp()
    with pytest.raises(OperandError, match=words):
        machine[name] = value
    assert not machine.registers["%a0"].written


def test_mov():
    machine = warp()
    machine.run(
        ".reg .b16 h<2>; .reg .b64 w; .reg .u32 l; .reg .pred p; .reg .f64 x;"
        "mov.u32 l, %laneid; mov.b32 %a0, 0x12345678; mov.b32 {h0, h1}, %a0;"
        "mov.b32 %a1, {h1, h0}; mov.b64 w, {%a0, %a1}; mov.pred p, 1; mov.b64 x, w;"
        "mov.b32 %a2, 0x1ffffffff; mov.f32 %c0, -2.5; mov.b32 %a3, 0f3f800000;"
    )
    assert machine["l"].tolist() == list(range(32))
    assert machine["h0"][0] == 0x5678 and machine["h1"][0] == 0x1234
    assert machine["%a1"][0] == 0x56781234
    assert machine["w"][0] == machine["x"][0] == 0x5678123412345678
    assert machine.registers["p"].values.all()
    assert machine["%a2"][0] == 0xFFFFFFFF, "ptxas cuts long immediates, and so do we"
    assert machine.registers["%c0"].values[0] == -2.5
    assert machine["%a3"][0] == 0x3F800000
