"""cvt, and mov that packs and unpacks, as PTX statements."""

import numpy as np
import pytest
from ptx_texts import check_statement

from emulator import Instruction, OperandError, UnsupportedError, Warp, Warpgroup, execute

REGISTERS = (
    ".reg .f32 %f<4>; .reg .b32 %w<4>; .reg .b16 %h<4>; .reg .b8 %c<4>; .reg .b64 %q;"
    ".reg .f16 half;"
)


def machine(target="sm_100a", kind=Warp, **options):
    out = kind(target, **options)
    out.run(REGISTERS)
    return out


def after(text, name, target="sm_100a"):
    """The word of register `name` after `text`, the same in every lane."""
    one = machine(target)
    one.run(text)
    words = one[name]
    assert (words == words[0]).all()
    return int(words[0])


# --- cvt ---


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [
        # The first source goes to the upper half.
        ("cvt.rn.f16x2.f32 %w0, 1.0, -2.0;", "%w0", 0x3C00C000),
        ("cvt.rn.bf16x2.f32 %w0, 0f3f800000, 0f7fc00000;", "%w0", 0x3F807FFF),
        ("cvt.rn.relu.f16x2.f32 %w0, 1.0, -2.0;", "%w0", 0x3C000000),
        ("cvt.rz.f16.f32 half, 0.1;", "half", 0x2E66),
        ("cvt.rn.f16.f32 %h0, 65536.0;", "%h0", 0x7C00),
        ("cvt.rn.f16.f32 %w0, -1.0;", "%w0", 0xBC00),  # zero-extended, not sign-extended
        ("mov.b32 %w0, -1; cvt.rn.f16.f32 %w0, 1.0;", "%w0", 0x3C00),
        ("mov.b64 %q, -1; cvt.rn.f16.f32 %q, -1.0;", "%q", 0xBC00),
        ("mov.b64 %q, 0x123456783f800000; cvt.rn.f16.f32 %h0, %q;", "%h0", 0x3C00),
        ("cvt.rna.tf32.f32 %w0, 0f3f801000;", "%w0", 0x3F802000),
        ("cvt.rn.satfinite.e4m3x2.f32 %h0, 1.0, 1000.0;", "%h0", 0x387E),
        ("cvt.rn.satfinite.e5m2x2.f32 %h0, -1.0, 0.0;", "%h0", 0xBC00),
        ("cvt.rn.satfinite.e2m1x2.f32 %c0, 6.0, -1.5;", "%c0", 0x7B),
        ("mov.b16 %h0, 0x387e; cvt.rn.f16x2.e4m3x2 %w0, %h0;", "%w0", 0x3C005F00),
        ("mov.b32 %w0, 0x3c00bc00; cvt.rn.satfinite.e4m3x2.f16x2 %h0, %w0;", "%h0", 0x38B8),
        ("cvt.rn.satfinite.e2m1x2.f32 %c0, 6.0, 1.0; cvt.rn.f16x2.e2m1x2 %w0, %c0;",
         "%w0", 0x46003C00),
        ("cvt.rp.ue8m0x2.f32 %h0, 1.5, 2.0;", "%h0", 0x8080),
        ("mov.b16 %h0, 0x7f80; cvt.rn.bf16x2.ue8m0x2 %w0, %h0;", "%w0", 0x3F804000),
        ("mov.b32 %w0, 0; cvt.rs.satfinite.e4m3x4.f32 %w1, {1.0, 2.0, -1.0, 0.5}, %w0;",
         "%w1", 0x3840B830),
        ("mov.b32 %w0, 0; cvt.rs.satfinite.e2m1x4.f32 %h0, {1.0, 2.0, -1.0, 0.5}, %w0;",
         "%h0", 0x24A1),
        ("mov.b32 %w0, 0; cvt.rs.f16x2.f32 %w1, 1.0, 2.0, %w0;", "%w1", 0x3C004000),
    ],
)  # fmt: skip
def test_conversions(text, name, word):
    assert after(text, name) == word


def test_every_lane_converts_its_own():
    for kind in (Warp, Warpgroup):
        group = machine(kind=kind, batch=(2,))
        rng = np.random.default_rng(0)
        for name in ("%f0", "%f1", "%w0"):
            group[name] = rng.standard_normal((2, group.lanes)).astype(np.float32)
        group.run(
            "cvt.rn.f16x2.f32 %w1, %f0, %f1;"
            "cvt.rs.satfinite.e5m2x4.f32 %w2, {%f0, %f1, %f1, %f0}, %w0;"
        )
        ins = Instruction.parse("cvt.rn.f16x2.f32")
        f0, f1 = group["%f0"], group["%f1"]
        assert np.array_equal(group["%w1"], execute(ins, f0, f1, target="sm_100a"))
        ins = Instruction.parse("cvt.rs.satfinite.e5m2x4.f32")
        want = execute(ins, f0, f1, f1, f0, group["%w0"], target="sm_100a")
        assert np.array_equal(group["%w2"], want)
        packed = np.stack([f1, f0], -1).view(np.float32).astype(np.float16)
        assert np.array_equal(group["%w1"], packed.view(np.uint32)[..., 0])


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("cvt.rn.f16x2.f32 %h0, %f0, %f1;", OperandError, "operand d .*.b64; '%h0' is .b16"),
        ("cvt.rn.f16x2.f32 _, %f0, %f1;", OperandError, "operand d .* cannot be dropped; got '_'"),
        ("cvt.rn.f16x2.f32 %w0, %f0;", OperandError, "lacks operand b"),
        ("cvt.rn.f16x2.f32 %w0, {%f0, %f1};", OperandError, "operand a .*{%f0, %f1}"),
        ("cvt.rn.satfinite.e2m1x2.f32 %h0, %f0, %f1;", OperandError, "type .b8; '%h0' is .b16"),
        ("cvt.rn.satfinite.e4m3x2.f32 %w0, %f0, %f1;", OperandError, "type .b16; '%w0' is .b32"),
        ("cvt.rn.f16x2.e4m3x2 %w0, 5;", OperandError, "operand a .*single register; got 5"),
        ("cvt.rn.f16x2.e4m3x2 %w0, 1.0;", OperandError, "operand a .*single register; got 1.0"),
        ("cvt.rs.f16x2.f32 %w0, %f0, %f1, 7;", OperandError, "rbits .*single register; got 7"),
        ("cvt.rs.satfinite.e4m3x4.f32 %w0, %f0, %f1, %f2, %f3, %w1;", OperandError,
         "operand abef .* 4 registers in braces"),
        ("cvt.rs.satfinite.e4m3x4.f32 %w0, {%f0, %f1, %f2}, %w1;", OperandError, "4 registers; 3"),
        ("cvt.rs.satfinite.e4m3x4.f32 %w0, {%f0, %f1, %f2, 1}, %w1;", OperandError, "got 1"),
        ("cvt.rs.satfinite.e4m3x4.f32 %w0, {%f0, %f1, %f2, _}, %w1;", OperandError, "it is read"),
        ("cvt.rn.f16.f32 %h0, %h1;", OperandError, "operand a .*'%h1' is .b16"),
    ],
)  # fmt: skip
def test_bad_conversions(text, error, words):
    one = machine()
    one["%w0"] = 3
    with pytest.raises(error, match=rf"line 2, column \d+: .*{words}"):
        one.run(f"mov.b32 %w0, 5;\n{text}")
    assert one["%w0"][0] == 3


def test_targets_of_conversions():
    with pytest.raises(UnsupportedError, match=r"line 1, .*not available on sm_90a"):
        machine("sm_90a").run("cvt.rn.satfinite.e2m1x2.f32 %c0, %f0, %f1;")


# --- mov ---


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [
        ("mov.b32 {%c0,%c1,%c2,%c3}, 0x44332211; mov.b32 %w0, {%c3,%c2,%c1,%c0};", "%w0",
         0x11223344),
        ("mov.b32 {%c0,_,_,%c1}, 0x44332211; mov.b16 %h0, {%c0,%c1};", "%h0", 0x4411),
        ("mov.b16 %h1, 0x4321; mov.b16 {%c0,%c1}, %h1; mov.b16 half, {%c1,%c0};", "half", 0x2143),
        ("mov.b16 {_,%c2}, 0x4321; mov.b32 %w0, {%c2,0,-1,0x17};", "%w0", 0x17FF0043),
        ("mov.b32 %w0, {0x1234, 0x5678};", "%w0", 0x56781234),
        ("mov.b64 {%h0,%h1,%h2,%h3}, 0x4444333322221111; mov.b32 %f0, {%h3,%h1};", "%f0",
         0x22224444),
        ("mov.b32 %w1, 5; mov.b64 %q, {%w1, -1};", "%q", 0xFFFFFFFF00000005),
    ],
)  # fmt: skip
def test_packing_and_unpacking(text, name, word):
    assert after(text, name, "sm_75") == word


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mov.b32 %w0, {%c0,%c1};", "registers of type .b16, .*'%c0' is .b8"),
        ("mov.b32 %w0, {%c0,%c1,%h0,%c2};", "registers of type .b8, .*'%h0' is .b16"),
        (
            "mov.b32 %w0, {%c0,%c1,%c2};",
            "operand a of mov.b32 has 1, 2 or 4 parts; got {%c0, %c1, %c2}",
        ),
        (
            "mov.b64 %q, {%c0,%c0,%c0,%c0,%c0,%c0,%c0,%c0};",
            "operand a of mov.b64 has 1, 2 or 4 parts; got",
        ),
        ("mov.b16 %h0, {%c0,%c0,%c0,%c0};", "operand a of mov.b16 has 1 or 2 parts; got"),
        ("mov.u32 %w0, {%h0,%h1};", "operand a of mov.u32 is a single register; got"),
        ("mov.b32 {%h0,0}, %w0;", "operand d of mov.b32 is written; got 0"),
        ("mov.b32 {_,_}, %w0;", "operand d of mov.b32 is all '_'"),
        ("mov.b32 %w0, {%h0,_};", "operand a of mov.b32 is read; got '_'"),
        ("mov.b32 %w0, {%h0,1.0};", "or an integer; got 1.0"),
        ("mov.b32 {%h0,%h1}, {%h1,%h0};", "one vector, not two"),
        ("mov.b32 [%w0], 1;", "operand d of mov.b32 is written; got"),
    ],
)
def test_bad_packing(text, words):
    with pytest.raises(OperandError, match=rf"line 1, column \d+: .*{words}"):
        machine().run(text)


# --- other operands ---


def test_a_scale_in_braces_is_the_first_register():
    """ptxas makes the same code of {a, b} and a, whatever b is."""
    opcode = (
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
        ".f32.e4m3.e4m3.f32.ue8m0 {%f0,%f1,%f2,%f3}, {%w0,%w0,%w0,%w0}, {%w0,%w0},"
        " {0f00000000,0f00000000,0f00000000,0f00000000}, "
    )
    setup = "mov.b32 %w0, 0x38383838; mov.b32 %w1, 0x7f7f7f80; mov.b32 %w2, 0x7f7f7f7f;"
    for scale, value in (("%w1", 64), ("{%w1,%w2}", 64), ("{%w2,%w1}", 32), ("{%w1}", 64)):
        text = f"{setup}{opcode}{scale}, {{0,0}}, {{%w2,%w1,%w1,%w1}}, {{0,0}};"
        one = machine("sm_120a")
        one.run(text)
        assert one.registers["%f0"].values.tolist() == [value] * 32


def test_scale_ids_in_registers_are_the_same_in_all_lanes():
    opcode = (
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
        ".f32.e4m3.e4m3.f32.ue8m0 {%f0,%f1,%f2,%f3}, {%w0,%w0,%w0,%w0}, {%w0,%w0},"
        " {%f0,%f1,%f2,%f3}, %w1, {%h0,0}, %w1, {0,0};"
    )
    setup = "mov.b32 %w0, 0x38383838; mov.b32 %w1, 0x7f807f7f; mov.f32 %f0, 0.0;"
    setup += "mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;"
    one = machine("sm_120a")
    one.run(f"{setup}mov.b16 %h0, 2; {opcode}")
    assert one.registers["%f0"].values.tolist() == [64] * 32
    one["%h0"] = [0, 1] * 16
    with pytest.raises(OperandError, match="byte_id_a must hold the same in all lanes"):
        one.run(opcode)
    one["%h0"] = 4
    with pytest.raises(OperandError, match="byte_id_a is 4"):
        one.run(opcode)


def test_a_negated_predicate_and_a_descriptor_in_the_statement():
    group = Warpgroup("sm_90a", shared_bytes=4096)
    group.run(".reg .s32 %d<4>; .reg .b32 one; .reg .pred p; mov.b32 one, 0x01010101;")
    group["p"] = False
    group.shared[:] = 2
    text = (
        "wgmma.fence.sync.aligned;"
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%d0,%d1,%d2,%d3},"
        " {one,one,one,one}, 0x1000080000, @;"
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    )
    for scale_d, want in (("p", 64), ("!p", 128), ("0", 64), ("!p", 128), ("1", 192)):
        group.run(text.replace("@", scale_d))
        assert group.registers["%d0"].values.tolist() == [want] * 128


def test_checking_leaves_nothing_behind():
    text = ".shared .b8 t[64]; .reg .b32 r; mov.u32 r, t; mov.b32 r, {r, r, r};"
    for _ in range(2):
        with pytest.raises(OperandError, match=r"mov\.b32 has 1, 2 or 4 parts"):
            check_statement(text, "sm_80")
    check_statement(text.removesuffix("mov.b32 r, {r, r, r};"), "sm_80")
