"""Statements as syntax trees: operands, guards, blocks, declarations and what .loc says."""

import pytest
from ptx_trees import module, names_short, of_type, shown

from emulator.ptx.parser import parse_statements
from emulator.ptx.tree import Block, Float, Instruction, Label, Pragma


def operands(text, opcode="x"):
    (item,) = parse_statements(f"{opcode} {text};").items
    assert item.opcode == opcode
    return shown(item.operands)[1:-1]


OPERANDS = [
    ("", ""),
    ("%r1", "Name('%r1')"),
    ("_", "Name('_')"),
    ("a, $b_1, _c, %d", "Name('a'), Name('$b_1'), Name('_c'), Name('%d')"),
    ("%v.x", "Element('%v', 'x')"),
    ("%v .x", "Element('%v', 'x')"),
    ("%tid.y, %r1.b0", "Element('%tid', 'y'), Element('%r1', 'b0')"),
    ("5", "Integer(5)"),
    ("-5, 0x1F, 0b101, 017, 5U", "Integer(-5), Integer(31), Integer(5), Integer(15), Integer(5)"),
    ("WARP_SZ, WARP_SZ - 1", "Integer(32), Integer(31)"),
    ("WARP_SZ1", "Name('WARP_SZ1')"),
    ("(1 | 2), !1, ~0U", "Integer(3), Integer(0), Integer(18446744073709551615)"),
    ("1.5", "Float(4609434218613702656, 64)"),
    ("-1.5, .5, 1e1", "Float(13832806255468478464, 64), Float(4602678819172646912, 64), "
                      "Float(4621819117588971520, 64)"),
    ("0f3f800000, 0D7ff0000000000001", "Float(1065353216, 32), Float(9218868437227405313, 64)"),
    ("0f7F800001, 0F80000000", "Float(2139095041, 32), Float(2147483648, 32)"),
    ("!%p1", "Negated(Name('%p1'))"),
    ("! p", "Negated(Name('p'))"),
    ("-%r1", "Minus(Name('%r1'))"),
    ("- %r1.h1", "Minus(Element('%r1', 'h1'))"),
    ("{%r1}", "Vector((Name('%r1')))"),
    ("{%r1, _, 5, -1.5, %v.x, 2+3}", "Vector((Name('%r1'), Name('_'), Integer(5), "
     "Float(13832806255468478464, 64), Element('%v', 'x'), Integer(5)))"),
    ("sym+16, sym + 2*4+-1", "Offset('sym', 16), Offset('sym', 7)"),
    ("sym[2], sym[1+1], sym[-1]", "Index('sym', 2), Index('sym', 2), Index('sym', -1)"),
    ("[%r1]", "Address(Name('%r1'), 0, ())"),
    ("[ sym ]", "Address(Name('sym'), 0, ())"),
    ("[%r1+-8], [%r1 + 0x10]", "Address(Name('%r1'), -8, ()), Address(Name('%r1'), 16, ())"),
    ("[sym+4+4], [sym+(1?4:8)]", "Address(Name('sym'), 8, ()), Address(Name('sym'), 4, ())"),
    ("[16], [-4], [4*4]", "Address(None, 16, ()), Address(None, -4, ()), Address(None, 16, ())"),
    ("[%rd1, {%r1, 2}]", "Address(Name('%rd1'), 0, (Vector((Name('%r1'), Integer(2)))))"),
    ("[t, s, {%f1}], [t, %v]", "Address(Name('t'), 0, (Name('s'), Vector((Name('%f1'))))), "
                               "Address(Name('t'), 0, (Name('%v')))"),
    ("%p|%q, a", "Pair(Name('%p'), Name('%q')), Name('a')"),
    ("%p | _, a", "Pair(Name('%p'), Name('_')), Name('a')"),
    ("_|p", "Pair(Name('_'), Name('p'))"),
    ("{%f1, %f2}|%p, [t, {%f3}]", "Pair(Vector((Name('%f1'), Name('%f2'))), Name('%p')), "
                                  "Address(Name('t'), 0, (Vector((Name('%f3')))))"),
    ("%r1, // what\n /* is */ %r2", "Name('%r1'), Name('%r2')"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "want"), OPERANDS)
def test_operands(text, want):
    assert operands(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("f", "Name('f')"),
        ("f, (a)", "Name('f'), Arguments((Name('a')))"),
        ("f, ()", "Name('f'), Arguments(())"),
        ("(r), f", "Arguments((Name('r'))), Name('f')"),
        ("(), f, ()", "Arguments(()), Name('f'), Arguments(())"),
        (
            "(r, _), %rd1, (a, -5, 1.5), p",
            "Arguments((Name('r'), Name('_'))), Name('%rd1'), "
            "Arguments((Name('a'), Integer(-5), Float(4609434218613702656, 64))), Name('p')",
        ),
        ("%rd1, p", "Name('%rd1'), Name('p')"),
        ("(r), \n%rd20, \n(\na\n)\n, p", "Arguments((Name('r'))), Name('%rd20'), "
                                         "Arguments((Name('a'))), Name('p')"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("opcode", ["call", "call.uni"])
def test_calls(opcode, text, want):
    assert operands(text, opcode) == want


def test_value_of_a_constant():
    block = parse_statements("x 0f3FC00000, 0d3FF8000000000000, 1.5, -0.0, 0.1;")
    assert [f.value for f in of_type(block, Float)] == [1.5, 1.5, 1.5, 0.0, 0.1]
    assert [f.width for f in of_type(block, Float)] == [32, 64, 64, 64, 64]
    assert of_type(block, Float)[3].bits == 1 << 63


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("ret;", "None"),
        ("@p ret;", "Guard('p', False)"),
        ("@!%p1 ret;", "Guard('%p1', True)"),
        ("@ ! p\nret;", "Guard('p', True)"),
    ],
)
def test_guards(text, want):
    (item,) = parse_statements(text).items
    assert shown(item.guard) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("add.s32", "add.s32"),
        ("add .s32", "add.s32"),
        ("ld.shared::cta .u32\n.v2", "ld.shared::cta.u32.v2"),
        ("ld.global.L2::cache_hint.b32", "ld.global.L2::cache_hint.b32"),
        ("tex.1d.v4.f32.s32", "tex.1d.v4.f32.s32"),
        ("tcgen05.ld.sync.aligned.16x64b.x2.b32", "tcgen05.ld.sync.aligned.16x64b.x2.b32"),
    ],
)
def test_opcodes_are_text(text, want):
    (item,) = parse_statements(f"{text} a;").items
    assert (item.opcode, shown(item.operands)) == (want, "(Name('a'))")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (".reg .b32 x;", "RegisterDeclaration('b32', 1, (x))"),
        (".reg .v4 .f32 v<2>, %w;", "RegisterDeclaration('f32', 4, (v<2>, %w))"),
        (".reg .align 4 .pred p<0>;", "RegisterDeclaration('pred', 1, (p<0>))"),
        (".reg .b32 x<1048576>;", "RegisterDeclaration('b32', 1, (x<1048576>))"),
        (".reg .b33 x<WARP_SZ>;", "RegisterDeclaration('b33', 1, (x<32>))"),
        (
            ".param .align 8 .b8 a0[16];",
            "Variable(a0, 'param', 'b8', 1, (16), 8, None, (), None, None)",
        ),
        (
            ".shared .b32 a, b[2];",
            "Variable(a, 'shared', 'b32', 1, (), None, None, (), None, None) "
            "Variable(b, 'shared', 'b32', 1, (2), None, None, (), None, None)",
        ),
        (
            ".global .b32 a; .const .b32 b; .local .b32 c;",
            "Variable(a, 'global', 'b32', 1, (), None, None, (), None, None) "
            "Variable(b, 'const', 'b32', 1, (), None, None, (), None, None) "
            "Variable(c, 'local', 'b32', 1, (), None, None, (), None, None)",
        ),
        ("L: $M: ret;", "Label('L') Label('$M') Instruction('ret', (), None, None, None)"),
        ("L:", "Label('L')"),
        ('.pragma "nounroll", "x";', "Pragma(('nounroll', 'x'))"),
        ("p: .callprototype _;", "Prototype('p', (), (), ())"),
        (
            "p : .callprototype (.param .b32 _) _ (.reg .f32 x) .noreturn .abi_preserve 8;",
            "Prototype('p', (Variable(_, 'param', 'b32', 1, (), None, None, (), None, None)), "
            "(Variable(x, 'reg', 'f32', 1, (), None, None, (), None, None)), "
            "(Directive('noreturn', ()), Directive('abi_preserve', (8))))",
        ),
        ("t: .branchtargets L1, L<3>;", "TargetList('t', 'branchtargets', (L1, L<3>))"),
        ("t: .calltargets f;", "TargetList('t', 'calltargets', (f))"),
        ("{ }", "Block(())"),
        (
            "{ L: { .reg .b32 x; } } L:",
            "Block((Label('L'), Block((RegisterDeclaration('b32', 1, (x)))))) Label('L')",
        ),
    ],
)
def test_other_statements(text, want):
    assert names_short(" ".join(map(shown, parse_statements(text).items))) == want
    (function,) = module(f".func f {{ {text} }}").functions
    assert shown(function.body.items) == shown(parse_statements(text).items)


def test_statements_share_lines_and_spread_over_them():
    block = parse_statements("mov.u32\t%r1\n,\n%r2\n;add.s32 %r1,%r1,%r2;{bar.sync 0;}exit;")
    assert [i.opcode for i in of_type(block, Instruction)] == ["mov.u32", "add.s32", "bar.sync",
                                                               "exit"]  # fmt: skip


def test_semicolons_too_many():
    """Straight-line text that was put together has them; ptxas refuses them in a file."""
    block = parse_statements(";; ret; ;\n;\t; { ret;; } ;")
    assert [type(item) for item in block.items] == [Instruction, Block]
    with pytest.raises(ValueError, match="found ';'"):
        module(".func f { ret;; }")


def test_names_are_made_once():
    block = parse_statements("mov.b32 %r1, %r2; mov.b32 %r1, %r2;")
    first, second = block.items
    assert first.opcode is second.opcode
    assert first.operands[0].text is second.operands[0].text


# --- .loc and .pragma ---


def locations(text):
    return [shown(i.location) for i in of_type(parse_statements(text), Instruction)]


def test_no_location():
    assert locations("ret;") == ["None"]


def test_location_holds_until_the_next():
    text = "trap; .loc 1 20 5\nret; L: { exit; } .loc 2 0x1F 0 // x.cu:31\nret; ret;"
    first, second = ("SourceLocation(1, 20, 5, None)", ("SourceLocation(2, 31, 0, None)"))
    assert locations(text) == ["None", first, first, second, second]


def test_only_the_first_location_inside_inline_assembly_counts():
    """LLVM writes one for each line of the assembly, each a line further down in the source."""
    inline = "// begin inline asm\n.loc 1 6 9 a;\n.loc 1 7 9 b;\n.loc 1 8 9 c;\n// end inline asm\n"
    text = f".loc 1 6 9 {inline} d; {inline.replace('.loc 1 ', '.loc 2 ')} .loc 1 20 1 e;"
    first, other, last = locations(".loc 1 6 9 a; .loc 2 6 9 b; .loc 1 20 1 c;")
    assert locations(text) == [first] * 4 + [other] * 3 + [last]
    broken = text.replace("begin inline asm\n", "inline asm\n", 1)
    assert locations(broken)[1] != first


def test_location_ends_with_its_function():
    parsed = module(".func f { .loc 1 2 3 ret; } .func g { ret; }")
    assert [shown(i.location) for i in of_type(parsed, Instruction)][1] == "None"


def test_inlined_locations():
    text = """.loc 1 5 0
      .loc 2 9 1, function_name $L__info_string0, inlined_at 1 5 0
      .loc 3 7 2, function_name f + 8, inlined_at 2 9 1
      ret;
      .loc 3 8 2, function_name f, inlined_at 4 1 1
      ret;
      .loc 3 7 2
      ret;"""
    outer = "SourceLocation(1, 5, 0, None)"
    middle = f"SourceLocation(2, 9, 1, {outer})"
    assert locations(text) == [
        f"SourceLocation(3, 7, 2, {middle})",
        "SourceLocation(3, 8, 2, SourceLocation(4, 1, 1, None))",
        "SourceLocation(3, 7, 2, None)",
    ]


@pytest.mark.parametrize(("calls", "kept"), [(199, 199), (200, 200), (201, 1), (202, 2)])
def test_chain_of_inlined_locations_is_bounded(calls, kept):
    lines = [f".loc 1 {i + 1} 0, function_name f, inlined_at 1 {i} 0" for i in range(calls)]
    (item,) = parse_statements(".loc 1 0 0 " + " ".join(lines) + " ret;").items
    depth, location = 0, item.location
    while location.inlined_at is not None:
        depth, location = depth + 1, location.inlined_at
    assert depth == kept


@pytest.mark.parametrize(
    ("text", "masks"),
    [
        ('.pragma "used_bytes_mask 0xf0ff"; ld.v4.b32 a, [b]; ld.b32 a, [b];', [0xF0FF, None]),
        ('.pragma "used_bytes_mask 255";\n.loc 1 2 3\nL: @p ld.b32 a, [b];', [255]),
        ('.pragma "used_bytes_mask 15"; add.s32 a, b, c; ldmatrix a, [b]; ld a, [b];',
         [None, None, 15]),
        ('.pragma "used_bytes_mask 1"; .pragma "used_bytes_mask 2"; ld a, [b];', [2]),
        ('.pragma "used_bytes_mask 0xffffffffffffffffffffffffffffffff"; ld a, [b];',
         [(1 << 128) - 1]),
        ("ld.b32 a, [b];", [None]),
    ],
)  # fmt: skip
def test_used_bytes(text, masks):
    block = parse_statements(text)
    assert [i.used_bytes_mask for i in of_type(block, Instruction)] == masks
    assert of_type(block, Pragma) == []


def test_used_bytes_beside_another_pragma():
    block = parse_statements('.pragma "used_bytes_mask 0x3", "nounroll"; ld a, [b];')
    assert [shown(item) for item in block.items] == [
        "Pragma(('nounroll'))",
        "Instruction('ld', (Name('a'), Address(Name('b'), 0, ())), None, None, 3)",
    ]


def test_used_bytes_end_with_their_function():
    parsed = module('.func f { .pragma "used_bytes_mask 1"; ret; } .func g { ld a, [b]; }')
    assert of_type(parsed, Instruction)[1].used_bytes_mask is None


def test_sections_are_passed_and_labels_of_them_too():
    parsed = module('.section .debug_str { $L__i: .b8 "}" }\n.func f { $L__i: ret; }')
    assert [label.name for label in of_type(parsed, Label)] == ["$L__i"]
