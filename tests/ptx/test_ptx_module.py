"""PTX files as syntax trees: headers, variables, functions, and what is passed."""

import pytest
from ptx_texts import parse_module
from ptx_trees import HEADER, SAMPLE, module, names_short, nodes, of_type, shown

from emulator.ptx.parser import parse_statements
from emulator.ptx.tree import (
    Alias,
    Block,
    DeclaredName,
    Directive,
    Element,
    File,
    Function,
    Guard,
    Instruction,
    Integer,
    Label,
    Name,
    Pragma,
    RegisterDeclaration,
    Variable,
)


def test_comparison_tells_types_and_values_apart():
    assert Name("a", 0) == Label("a", 0)  # which is why tests compare the text
    assert shown(Name("a", 0)) != shown(Label("a", 0))
    assert shown(Name("a", 0)) != shown(Name("b", 0))
    assert shown(Integer(1, 0)) != shown(Integer(2, 0))
    assert shown((Name("a", 0),)) != shown(Name("a", 0))
    assert shown(Name("a", 3)) == shown(Name("a", 9)), "places are compared by another test"


def test_smallest_module():
    parsed = parse_module(".version 8.0 .target sm_90")
    assert shown(parsed.header) == "Header((8, 0), ('sm_90'), (), None)"
    assert parsed[2:] == ((), (), (), ())


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (".version 9.5\n.target sm_120a\n.address_size 64", "((9, 5), ('sm_120a'), (), 64)"),
        (".version 3.1 .target sm_90, sm_80", "((3, 1), ('sm_90', 'sm_80'), (), None)"),
        (
            ".version 8.0 .target sm_100f, debug .target texmode_independent .address_size 32",
            "((8, 0), ('sm_100f'), ('debug', 'texmode_independent'), 32)",
        ),
        (".version /* a */ 8.0 // b\n.target sm_80 /* // */", "((8, 0), ('sm_80'), (), None)"),
        (".version 8.0\r\n.target sm_80\r\n", "((8, 0), ('sm_80'), (), None)"),
        ('# 1 "kernel.ptx"\n.version 8.0\n.target sm_80', "((8, 0), ('sm_80'), (), None)"),
    ],
)
def test_header(text, want):
    assert shown(parse_module(text).header) == "Header" + want


#: declaration -> the variables that it makes
VARIABLES = [
    (".global .b32 x;", "Variable(x, 'global', 'b32', 1, (), None, None, (), None, None)"),
    (
        ".const .align 16 .v4 .f32 c;",
        "Variable(c, 'const', 'f32', 4, (), 16, None, (), None, None)",
    ),
    (".shared .v2 .u8 s[4];", "Variable(s, 'shared', 'u8', 2, (4), None, None, (), None, None)"),
    (".align 8 .global .b32 x;", "Variable(x, 'global', 'b32', 1, (), 8, None, (), None, None)"),
    (".local .b8 x[2][3];", "Variable(x, 'local', 'b8', 1, (2, 3), None, None, (), None, None)"),
    (
        ".extern .shared .align 16 .b8 x[], y[][2];",
        "Variable(x, 'shared', 'b8', 1, (None), 16, 'extern', (), None, None) "
        "Variable(y, 'shared', 'b8', 1, (None, 2), 16, 'extern', (), None, None)",
    ),
    (
        ".visible .global .b32 x;",
        "Variable(x, 'global', 'b32', 1, (), None, 'visible', (), None, None)",
    ),
    (".weak .const .b32 x;", "Variable(x, 'const', 'b32', 1, (), None, 'weak', (), None, None)"),
    (
        ".common .global .b32 x;",
        "Variable(x, 'global', 'b32', 1, (), None, 'common', (), None, None)",
    ),
    (".global .texref t;", "Variable(t, 'global', 'texref', 1, (), None, None, (), None, None)"),
    (".tex .u32 t;", "Variable(t, 'tex', 'u32', 1, (), None, None, (), None, None)"),
    (
        ".global .attribute(.managed) .align 4 .attribute(.unified(1, 0x2)) .b32 x;",
        "Variable(x, 'global', 'b32', 1, (), 4, None, "
        "(Attribute('managed', ()), Attribute('unified', (1, 2))), None, None)",
    ),
    (
        ".global .b32 x[2 * 3 + WARP_SZ];",
        "Variable(x, 'global', 'b32', 1, (38), None, None, (), None, None)",
    ),
    (
        ".global .b32 x<3>, y;",
        "Variable(x<3>, 'global', 'b32', 1, (), None, None, (), None, None) "
        "Variable(y, 'global', 'b32', 1, (), None, None, (), None, None)",
    ),
    (
        ".global .b32 x = 1, y[2] = {2, 3}, z;",
        "Variable(x, 'global', 'b32', 1, (), None, None, (), None, 1) "
        "Variable(y, 'global', 'b32', 1, (2), None, None, (), None, Values((2, 3))) "
        "Variable(z, 'global', 'b32', 1, (), None, None, (), None, None)",
    ),
]


@pytest.mark.parametrize(("text", "want"), VARIABLES)
def test_variables(text, want):
    assert names_short(" ".join(map(shown, module(text).variables))) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("7", "7"),
        ("-7", "-7"),
        ("0x10U", "16"),
        ("017", "15"),
        ("(1 << 4) | 3", "19"),
        ("1.5", "Float(4609434218613702656, 64)"),
        ("0f3F800000", "Float(1065353216, 32)"),
        ("0dBFF8000000000000", "Float(13832806255468478464, 64)"),
        ("f", "SymbolAddress('f', 0, False, None)"),
        ("x+8", "SymbolAddress('x', 8, False, None)"),
        ("x+-8", "SymbolAddress('x', -8, False, None)"),
        ("x + 2 * 4", "SymbolAddress('x', 8, False, None)"),
        ("generic(x)", "SymbolAddress('x', 0, True, None)"),
        ("generic(x)+8", "SymbolAddress('x', 8, True, None)"),
        ("generic", "SymbolAddress('generic', 0, False, None)"),
        ("0xFF(x)", "SymbolAddress('x', 0, False, 255)"),
        ("0xFF00(x+4)", "SymbolAddress('x', 4, False, 65280)"),
        ("0xFF0000(generic(x)+4)", "SymbolAddress('x', 4, True, 16711680)"),
        ("{}", "Values(())"),
        ("{1, 2,\n 3}", "Values((1, 2, 3))"),
        ("{1, // one\n 2}", "Values((1, 2))"),
        ("{01, 010}", "Values((1, 8))"),
        ("{-1, 18446744073709551615}", "Values((-1, 18446744073709551615))"),
        ("{-9223372036854775808}", "Values((9223372036854775808))"),
        ("{1-2, 3}", "Values((-1, 3))"),
        ("{{1, 2}, {3}}", "Values((Values((1, 2)), Values((3))))"),
        ("{x, 0, f}", "Values((SymbolAddress('x', 0, False, None), 0, "
                      "SymbolAddress('f', 0, False, None)))"),
        ("{a = b, c = 5}", "Values((Field('a', 'b'), Field('c', 5)))"),
    ],
)  # fmt: skip
def test_initial_values(text, want):
    (variable,) = module(f".global .b64 v = {text};").variables
    assert shown(variable.initialiser) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "()"),
        ("()", "()"),
        ("(.param .b32 a)", "(Variable(a, 'param', 'b32', 1, (), None, None, (), None, None))"),
        ("(.param .b32 _)", "(Variable(_, 'param', 'b32', 1, (), None, None, (), None, None))"),
        (
            "(.param .align 64 .b8 m[128], .reg .pred p)",
            "(Variable(m, 'param', 'b8', 1, (128), 64, None, (), None, None), "
            "Variable(p, 'reg', 'pred', 1, (), None, None, (), None, None))",
        ),
        (
            "(.param .b8 .align 8 m[])",
            "(Variable(m, 'param', 'b8', 1, (None), 8, None, (), None, None))",
        ),
        (
            "(.param .align 8 .u64 .ptr .shared .align 16 m)",
            "(Variable(m, 'param', 'u64', 1, (), 8, None, (), Pointer('shared', 16), None))",
        ),
        (
            "(.param .u64 .ptr .align 4 m)",
            "(Variable(m, 'param', 'u64', 1, (), None, None, (), Pointer(None, 4), None))",
        ),
        (
            "(.param .u64 .ptr m)",
            "(Variable(m, 'param', 'u64', 1, (), None, None, (), Pointer(None, None), None))",
        ),
    ],
)
def test_parameters(text, want):
    for function in module(f".entry k{text} {{ }} .func k{text};").functions:
        assert names_short(shown(function.parameters)) == want
    (function,) = module(f".func {text} k;").functions
    assert names_short(shown(function.returns)) == want


def test_functions():
    parsed = module(
        ".extern .func (.reg .b32 r) f (.reg .b32 a) .noreturn ;"
        ".visible .entry k { ret; } .func .attribute(.unified(1, 2)) g() { }"
    )
    assert names_short(shown(parsed.functions)) == (
        "(Function('func', 'f', 'extern', (), "
        "(Variable(r, 'reg', 'b32', 1, (), None, None, (), None, None)), "
        "(Variable(a, 'reg', 'b32', 1, (), None, None, (), None, None)), "
        "(Directive('noreturn', ())), None), "
        "Function('entry', 'k', 'visible', (), (), (), (), "
        "Block((Instruction('ret', (), None, None, None)))), "
        "Function('func', 'g', None, (Attribute('unified', (1, 2))), (), (), (), Block(())))"
    )


#: directive -> the most values that it takes, and where it may stand
DIRECTIVES = [
    ("maxntid", 3, "entry"),
    ("reqntid", 3, "entry"),
    ("minnctapersm", 1, "entry"),
    ("maxnctapersm", 1, "entry"),
    ("maxnreg", 1, "entry"),
    ("reqnctapercluster", 3, "entry"),
    ("maxclusterrank", 1, "entry"),
    ("explicitcluster", 0, "entry"),
    ("blocksareclusters", 0, "entry"),
    ("minperctamemory", 1, "entry"),
    ("local_maxnreg", 1, "entry func"),
    ("language", 1, "entry func"),
    ("noreturn", 0, "func"),
    ("abi_preserve", 1, "func"),
    ("abi_preserve_control", 1, "func"),
]


@pytest.mark.parametrize(("name", "most", "kinds"), DIRECTIVES)
@pytest.mark.parametrize("kind", ["entry", "func"])
def test_directives(name, most, kinds, kind):
    for count in range(5):
        values = ", ".join(map(str, range(32, 32 + count)))
        text = f".{kind} k .{name} {values} {{ }}"
        if kind in kinds.split() and min(most, 1) <= count <= most:
            (function,) = module(text).functions
            want = Directive(name, tuple(range(32, 32 + count)), len(f"{HEADER}.{kind} k "))
            assert function.directives == (want,)
        else:
            with pytest.raises(ValueError, match="line 4"):
                module(text)


def test_directives_in_a_row():
    (function,) = module(
        '.entry k .maxntid 0x80, WARP_SZ .language "CUDA C++" .pragma "a", "b"; .maxnreg 32 { }'
    ).functions
    assert shown(function.directives) == (
        "(Directive('maxntid', (128, 32)), Directive('language', ('CUDA C++')), "
        "Directive('pragma', ('a', 'b')), Directive('maxnreg', (32)))"
    )


def test_what_else_stands_in_a_file():
    parsed = module(
        '.file 1 "a b.cu"\n.file 2 "c.cu", 5, 6\n.pragma "x", "y"; .func f; .func g { }'
        ".alias f, g;\n.section .debug_abbrev\n{\n.b8 1,2 // }\nL: /* } */ .b32 L+4\n}\n"
        ".section .debug_macinfo { }"
    )
    assert shown(parsed.files) == "(File(1, 'a b.cu'), File(2, 'c.cu'))"
    assert shown(parsed.aliases) == "(Alias('f', 'g'))"
    assert [function.name for function in parsed.functions] == ["f", "g"]


def test_every_node_knows_its_place():
    """At the offset of a node stands what it was read from."""
    parsed = parse_module(SAMPLE)
    starts = {
        Alias: lambda n: ".alias",
        Block: lambda n: "{",
        DeclaredName: lambda n: n.text,
        Directive: lambda n: f".{n.name}",
        Element: lambda n: f"{n.register}.{n.element}",
        File: lambda n: f".file {n.number}",
        Function: lambda n: "." if n.linkage is None else f".{n.linkage} .{n.kind}",
        Guard: lambda n: "@",
        Instruction: lambda n: n.opcode,
        Label: lambda n: f"{n.name}:",
        Name: lambda n: n.text,
        Pragma: lambda n: ".pragma",
        RegisterDeclaration: lambda n: ".reg",
        Variable: lambda n: n.name.text,
    }
    others = {
        "Header": ".version", "Attribute": ".", "Values": "{", "Vector": "{", "Address": "[",
        "Arguments": "(", "Negated": "!", "Minus": "-", "Pair": "%p1|", "Offset": "tile+4",
        "Index": "counts[1]", "Prototype": "proto:", "TargetList": "list:", "Field": "",
        "SymbolAddress": "", "Integer": "", "Float": "",
    }  # fmt: skip
    seen = set()
    for node in nodes(parsed):
        kind = type(node).__name__
        seen.add(kind)
        if "at" in node._fields:
            want = starts[type(node)](node) if type(node) in starts else others[kind]
            assert parsed.source.text.startswith(want, node.at), node
    made = {*others, *(type_.__name__ for type_ in starts)}
    assert seen == made | {"Module", "Pointer", "SourceLocation"}


def test_places_of_constants():
    text = "mov.b64 {%r1, 0x10}, -0.5; x (3 + 4), [16];"
    block = parse_statements(text)
    assert [text[n.at :][:4] for n in of_type(block, Integer)] == ["0x10", "(3 +"]
    assert shown(block.items[1].operands) == "(Integer(7), Address(None, 16, ()))"


def test_statements_keep_the_header():
    block = parse_statements(".version 8.0\n.target sm_90, debug\nret;")
    assert [shown(item) for item in block.items] == [
        "Header((8, 0), ('sm_90'), ('debug'), None)",
        "Instruction('ret', (), None, None, None)",
    ]
    assert shown(parse_statements("").items) == "()"
    assert shown(parse_statements(" // nothing\n").items) == "()"
    assert len(parse_statements(".address_size 64").items) == 1
