"""What is not PTX is refused with its place, what was expected and what stands there."""

import pytest
from ptx_texts import parse_module
from ptx_trees import module

from emulator.errors import ParseError
from emulator.ptx.parser import parse_statements
from emulator.ptx.source import Position, Source

STATEMENTS = [
    ("add.s32 %r1, %r2", 1, 17, "expected ',' or ';', found the end of the text"),
    ("add.s32 %r1 %r2;", 1, 13, "expected ',' or ';', found '%r2'"),
    ("add.s32 %r1,, %r2;", 1, 13, "expected an operand, found ','"),
    ("add.s32 %r1,;", 1, 13, "expected an operand, found ';'"),
    ("mov.u32, %r1;", 1, 8, "expected an operand, found ','"),
    ("ret;\nadd.s32 %r1, %r2 // sum\n  ret;", 2, 17, "expected ',' or ';', found 'ret'"),
    ('ret;\n.pragma "a"\n\n  ret;', 2, 12, "expected ';', found 'ret'"),
    (".reg .b32 x\nret;", 1, 12, "expected ',' or ';', found 'ret'"),
    ("call f\nret;", 1, 7, "expected ';', found 'ret'"),
    ("call (a), f, (b)\nret;", 1, 17, "expected ',' or ';', found 'ret'"),
    ("call (a) f;", 1, 10, "expected ',', found 'f'"),
    ("call r, f, a;", 1, 10, "expected ';', found ','"),
    ("call (a, {b}), f;", 1, 10, "expected a register or a constant, found '{'"),
    ("call (a b), f;", 1, 9, "expected ',' or ')', found 'b'"),
    ("call 5;", 1, 6, "expected a function or a register, found '5'"),
    ("call f, 5;", 1, 9, "expected a prototype or a list of functions, found '5'"),
    ("x [%r1-8];", 1, 7, "write a negative offset as [%r1+-8]"),
    ("x [%r1 - %r2];", 1, 8, "write a negative offset as [%r1+-offset]"),
    ("x sym-4;", 1, 6, "write a negative offset as sym+-4"),
    ("x [%r1+%r2];", 1, 8, "expected an offset in bytes, found '%r2'"),
    ("x [%r1+1.5];", 1, 8, "expected an offset in bytes, found a floating-point constant"),
    ("x [%r1;", 1, 7, "expected '+' or ']', found ';'"),
    ("x [_];", 1, 4, "expected a register or a variable, found '_'"),
    ("x [%v.x];", 1, 4, "expected a register or a variable, found '%v.x'"),
    ("x [!p];", 1, 5, "expected a constant, found 'p'"),
    ("x [a+4, {b}];", 1, 7, "expected '+' or ']', found ','"),
    ("x [a, 5];", 1, 7, "expected coordinates in braces, or a register, found '5'"),
    ("x [a, {b} c];", 1, 11, "expected ']', found 'c'"),
    ("x [4+%r1];", 1, 6, "expected a constant, found '%r1'"),
    ("x [a[2]];", 1, 5, "expected '+' or ']', found '['"),
    ("x a[1][2];", 1, 7, "expected ',' or ';', found '['"),
    ("x a[1]+4;", 1, 7, "expected ',' or ';', found '+'"),
    ("x a[b];", 1, 5, "expected an index, found 'b'"),
    ("x a[1;", 1, 6, "expected ']', found ';'"),
    ("x {};", 1, 4, "expected a register or a constant, found '}'"),
    ("x {a,};", 1, 6, "expected a register or a constant, found '}'"),
    ("x {a b};", 1, 6, "expected ',' or '}', found 'b'"),
    ("x {a, {b}};", 1, 7, "expected a register or a constant, found '{'"),
    ("x {!p};", 1, 5, "expected a constant, found 'p'"),
    ("x {a}+4;", 1, 6, "expected ',' or ';', found '+'"),
    ("x a|b|c;", 1, 6, "expected ',' or ';', found '|'"),
    ("x a, b|c;", 1, 7, "expected ',' or ';', found '|'"),
    ("x a|!b;", 1, 5, "expected a predicate or '_', found '!'"),
    ("x a|5;", 1, 5, "expected a predicate or '_', found '5'"),
    ("x 5|a;", 1, 5, "expected a constant, found 'a'"),
    ("x !!p;", 1, 5, "expected a constant, found 'p'"),
    ("x !p.x;", 1, 4, "expected a predicate, found 'p.x'"),
    ("x --%r1;", 1, 5, "expected a constant, found '%r1'"),
    ("x +%r1;", 1, 4, "expected a constant, found '%r1'"),
    ("x (%r1);", 1, 4, "expected a constant, found '%r1'"),
    ("x a.b.c;", 1, 3, "'a.b.c' is no register and no element of one"),
    ("x %v.0;", 1, 3, "'%v.0' is no register and no element of one"),
    ("x a::b;", 1, 4, "expected ',' or ';', found ':'"),
    ('x "a";', 1, 3, "expected an operand, found '\"a\"'"),
    ('x "a;', 1, 3, "expected an operand, found a string that is not closed"),
    ("x a; /* b", 1, 6, "expected a statement, found a comment that is not closed"),
    ("x 'a';", 1, 3, "expected an operand, found \"'\", which PTX does not use here"),
    ("x a$%b;", 1, 5, "expected ',' or ';', found '%b'"),
    ("x $;", 1, 3, "expected an operand, found '$', which PTX does not use here"),
    ("x\u00a0a;", 1, 2, "expected an operand, found '\\xa0', which PTX does not use here"),
    ("é x;", 1, 1, "expected a statement, found 'é', which PTX does not use here"),
    ("@ ret;", 1, 6, "expected an instruction, found ';'"),
    ("@p;", 1, 3, "expected an instruction, found ';'"),
    ("@p { }", 1, 4, "expected an instruction, found '{'"),
    ("@1 ret;", 1, 2, "expected a predicate, found '1'"),
    ("@@p ret;", 1, 2, "expected a predicate, found '@'"),
    ("@p L: ret;", 1, 1, "a label stands before the predicate, not behind it"),
    ("L.x: ret;", 1, 1, "'L.x' is no label"),
    ("_: ret;", 1, 1, "'_' is no label"),
    ("1: ret;", 1, 1, "expected a statement, found '1'"),
    ("ret; }", 1, 6, "expected a statement, found '}'"),
    ("{ ret;\n", 2, 1, "expected a statement, or '}' for the '{' of line 1, column 1, found"),
    (".reg .b32 _;", 1, 11, "expected a name, found '_'"),
    (".reg .b32 a.b;", 1, 11, "expected a name, found 'a.b'"),
    (".reg .b32;", 1, 10, "expected a name, found ';'"),
    (".reg x;", 1, 6, "expected a type such as .b32, found 'x'"),
    (".reg .v3 .b32 x;", 1, 6, "expected '.v2', '.v4' or a type, found '.v3'"),
    (".reg .b32 .v2 x;", 1, 11, "expected a name, found '.v2'"),
    (".reg .b32 x[4];", 1, 12, "expected ',' or ';', found '['"),
    (".reg .b32 x<>;", 1, 13, "expected a number of names, found '>'"),
    (".reg .b32 x<-1>;", 1, 13, "expected a number of names, found '-'"),
    (".reg .b32 x<2+3>;", 1, 14, "expected '>', found '+'"),
    (".reg .b32 x<1048577>;", 1, 13, "a range of 1048577 names; at most 1048576 are read"),
    (".reg .shared .b32 x;", 1, 6, "expected a type such as .b32, found '.shared'"),
    (".align 8 ret;", 1, 10, "expected a state space such as .global, found 'ret'"),
    (".shared .align 3 .b32 x;", 1, 16, ".align takes a power of two; got 3"),
    (".shared .align 0 .b32 x;", 1, 16, ".align takes a power of two; got 0"),
    (".shared .align .b32 x;", 1, 16, "expected a power of two, found '.b32'"),
    (".shared .b32 x[-1];", 1, 16, "an array of -1 elements"),
    (".shared .b32 x[2][];", 1, 19, "expected a constant, found ']'"),
    (".shared .b32 x[1.5];", 1, 16, "expected a number of elements, found a floating-point"),
    (".shared .b32 x<3>[2];", 1, 18, "expected ',' or ';', found '['"),
    (".shared .attribute(managed) .b32 x;", 1, 20, "expected an attribute such as .managed"),
    (".extern .shared .b8 x[];", 1, 1, "'.extern' stands outside of functions"),
    (".entry k { }", 1, 1, "'.entry' stands outside of functions"),
    (".maxntid 3;", 1, 1, "no directive '.maxntid' among statements"),
    (".sharde .b32 x;", 1, 1, "no directive '.sharde' among statements; nearest is '.shared'"),
    (".version 8.0 .version 8.0", 1, 14, "no directive '.version' among statements"),
    (".branchtargets L;", 1, 1, "a label names a .branchtargets, as in 'name: .branchtargets …;'"),
    (".callprototype _;", 1, 1, "a label names a .callprototype, as in 'name: .callprototype …;'"),
    ("p: .callprototype f;", 1, 19, "expected '_', found 'f'"),
    ("p: .callprototype _ .maxntid 3;", 1, 21, ".maxntid is for .entry, not for .func"),
    ("t: .branchtargets 5;", 1, 19, "expected a label, found '5'"),
    ("t: .calltargets;", 1, 16, "expected a function, found ';'"),
    (".loc 1 2 ret;", 1, 10, "expected a column, found 'ret'"),
    (".loc 1 -2 3 ret;", 1, 8, "expected a line, found '-'"),
    (".loc 1, 2 3", 1, 7, "expected a line, found ','"),
    (".loc 1 2 3, inlined_at 1 2 3", 1, 13, "expected 'function_name', found 'inlined_at'"),
    (".loc 1 2 3, function_name f ret;", 1, 29, "expected ',', found 'ret'"),
    (".loc 1 2 3, function_name f, at 1 2 3", 1, 30, "expected 'inlined_at', found 'at'"),
    (".loc 1 2 3;", 1, 11, None),
    (".pragma nounroll;", 1, 9, "expected a string, found 'nounroll'"),
    ('.pragma "used_bytes_mask zz";', 1, 1, "used_bytes_mask takes a number such as 0xff; got 'z"),
    ('.pragma "used_bytes_mask";', 1, 1, "used_bytes_mask takes a number such as 0xff; got ''"),
    ('asm("ret;");', 1, 1, "'asm' is C++: give what stands in its quotes"),
    (".version 8\nret;", 1, 10, "expected a number such as 8.0, found '8'"),
    (".version 8.0 .target 90", 1, 22, "expected a name such as sm_90a, found '90'"),
    (".address_size 48", 1, 15, "expected 32 or 64, found '48'"),
]  # fmt: skip


def check(parse, text, line, column, words):
    with pytest.raises(ParseError) as raised:
        parse(text)
    first, shown, caret = str(raised.value).split("\n")
    assert first.startswith(f"line {line}, column {column}: ")
    assert words in first
    assert len(str(raised.value)) < 600
    return shown, caret


@pytest.mark.parametrize(("text", "line", "column", "words"), STATEMENTS)
def test_statements(text, line, column, words):
    if words is None:  # a semicolon too many, which straight-line text may have
        parse_statements(text)
        return
    shown, caret = check(parse_statements, text, line, column, words)
    source = text.split("\n")[line - 1]
    assert shown == "    " + source.strip().replace("\u00a0", "?")
    assert caret.strip() == "^"
    assert caret.index("^") - 4 == column - 1 - (len(source) - len(source.lstrip()))


MODULES = [
    ("", 4, 1, None),
    ("ret;", 4, 1, "expected a directive such as '.entry' or '.global', found 'ret'"),
    (";", 4, 1, "expected a directive such as '.entry' or '.global', found ';'"),
    ("{ }", 4, 1, "expected a directive such as '.entry' or '.global', found '{'"),
    (".globl x;", 4, 1, "no directive '.globl' outside of functions; nearest is '.global'"),
    (".loc 1 2 3", 4, 1, "no directive '.loc' outside of functions"),
    (".version 8.0", 4, 1, "no directive '.version' outside of functions"),
    (".entry k { ret; };", 4, 18, "found ';'"),
    (".entry k { ret; } }", 4, 19, "found '}'"),
    (".entry k { ret }", 4, 16, "expected an operand, found '}'"),
    (".entry k { ;ret; }", 4, 12, "expected a statement or '}', found ';'"),
    (".entry k { ret;", 4, 16, "expected a statement, or '}' for the '{' of line 4, column 10"),
    (".entry k { { ret; }", 4, 20, "expected a statement, or '}' for the '{' of line 4, column 10"),
    (".entry k { .entry j { } }", 4, 12, "'.entry' stands outside of functions"),
    (".entry k { .file 1 \"x\" }", 4, 12, "no directive '.file' among statements"),
    (".entry _ { }", 4, 8, "expected the name of the function, found '_'"),
    (".entry k.a { }", 4, 8, "expected the name of the function, found 'k.a'"),
    (".entry (.param .b32 r) k { }", 4, 8, "expected the name of the function, found '('"),
    (".entry k", 4, 9, "expected '(', '{', ';' or a directive, found the end of the text"),
    (".entry k(.param .b32 a) ret;", 4, 25, "expected '{', ';' or a directive, found 'ret'"),
    (".entry k(.param .b32 a,) { }", 4, 24, "expected '.param' or '.reg', found ')'"),
    (".entry k(.param .b32) { }", 4, 21, "expected the name of a parameter, or '_', found ')'"),
    (".entry k(.param .b32 a.b) { }", 4, 22, "expected the name of a parameter, or '_'"),
    (".entry k(.param .b32 a<3>) { }", 4, 23, "expected ',' or ')', found '<'"),
    (".entry k(.param .b8 a[4][4]) { }", 4, 21, "a parameter has one dimension at most"),
    (".entry k(.global .b32 a) { }", 4, 10, "expected '.param' or '.reg', found '.global'"),
    (".entry k(.param .u64 .ptr .align 16 .global a) { }", 4, 37, "expected the name of"),
    (".entry k .maxntdi 5 { }", 4, 10, ".entry takes no directive '.maxntdi'; nearest is '.maxn"),
    (".entry k .noreturn { }", 4, 10, ".noreturn is for .func, not for .entry"),
    (".func f .maxntid 5 { }", 4, 9, ".maxntid is for .entry, not for .func"),
    (".func f .pragma \"a\"; { }", 4, 9, ".func takes no directive '.pragma'"),
    (".entry k .maxntid { }", 4, 19, "expected an integer, found '{'"),
    (".entry k .maxntid 64*2 { }", 4, 21, "expected '{', ';' or a directive, found '*'"),
    (".entry k .maxntid 1,2,3,4 { }", 4, 24, "expected '{', ';' or a directive, found ','"),
    (".entry k .maxntid 128; { }", 4, 24, "found '{'"),
    (".visible .extern .func f;", 4, 10, "expected a variable, '.entry' or '.func', found '.exter"),
    (".weak .alias f, g;", 4, 7, "expected a variable, '.entry' or '.func', found '.alias'"),
    (".alias f;", 4, 9, "expected ',', found ';'"),
    (".alias f, g", 4, 12, "expected ';', found the end of the text"),
    (".reg .b32 x;", 4, 1, "registers are declared in functions only"),
    (".global .b32 x = ;", 4, 18, "expected a constant, found ';'"),
    (".global .b32 x {1};", 4, 16, "expected ',' or ';', found '{'"),
    (".global .b8 x[4] = \"abc\";", 4, 20, "a string is no initial value: write its bytes"),
    (".global .b32 x[2] = {1,2,};", 4, 26, "expected a constant, found '}'"),
    (".global .b32 x[2] = {1 2};", 4, 24, "expected ',' or '}', found '2'"),
    (".global .b32 x[2] = {1,,2};", 4, 24, "expected a constant, found ','"),
    (".global .b32 x[1] = {08};", 4, 22, "octal"),
    (".global .b32 x[1] = {18446744073709551616};", 4, 22, "does not fit 64 bits"),
    (".global .u64 x = a-8;", 4, 19, "write a negative offset as a+-offset"),
    (".global .u64 x = 8+a;", 4, 20, "expected a constant, found 'a'"),
    (".global .u64 x = a[2];", 4, 19, "expected ',' or ';', found '['"),
    (".global .u64 x = generic(a+8);", 4, 27, "expected ')', found '+'"),
    (".global .u64 x = generic(5);", 4, 26, "expected the name of a variable, found '5'"),
    (".global .u8 x = 0xFF(a)+1;", 4, 24, "expected ',' or ';', found '+'"),
    (".global .u8 x = 0xFF(a = b);", 4, 24, "expected ')', found '='"),
    (".pragma \"a\" \"b\";", 4, 13, "expected ';', found '\"b\"'"),
    (".file 1, \"x\"", 4, 8, "expected the name of a file in quotes, found ','"),
    (".file \"x\"", 4, 7, "expected the number of a file, found '\"x\"'"),
    (".file 1 \"x\", 2", 4, 15, "expected ',', found the end of the text"),
    (".section debug { }", 4, 10, "expected the name of a section, found 'debug'"),
    (".section .debug, \"a\" { }", 4, 16, "expected '{', found ','"),
    (".section .debug { .b8 1", 4, 1, "this section is not closed by '}'"),
    (".section .debug { { }", 4, 1, "this section is not closed by '}'"),
    (".section .debug { /* }", 4, 1, "this section is not closed by '}'"),
    (".section .debug { \" }", 4, 1, "this section is not closed by '}'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "words"), MODULES)
def test_modules(text, line, column, words):
    if words is None:
        module(text)
        return
    shown, caret = check(module, text, line, column, words)
    assert shown == "    " + text.rstrip() and caret.index("^") - 4 == column - 1


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "expected '.version', with which a PTX file begins, found the end of the text"),
        ("// nothing", 1, 11, "expected '.version'"),
        ("\x7fELF\x02\x01", 1, 1, "found '\\x7f', which PTX does not use here"),
        ("\ufeff.version 8.0 .target sm_80", 1, 1, "found '\\ufeff'"),
        (".version 8.0", 1, 13, "expected '.target' with a name such as sm_90a, found the end"),
        (".version 8.0 .target debug .entry", 1, 28, "expected '.target' with a name such as"),
        (".version 8.0 .address_size 64 .target sm_80", 1, 31, "expected '.target'"),
        (".target sm_80 .version 8.0", 1, 1, "expected '.version'"),
        (".version 0x8.0 .target sm_80", 1, 10, "expected a number such as 8.0"),
        (".version 8.0;", 1, 13, "expected '.target'"),
        (".version 8.0 .target sm_80\n\x00ret", 2, 1, "found '\\x00', which PTX does not use here"),
    ],
)
def test_headers(text, line, column, words):
    check(parse_module, text, line, column, words)


@pytest.mark.parametrize("text", [None, 5, b".version 8.0", ["ret;"]])
@pytest.mark.parametrize("parse", [parse_module, parse_statements])
def test_text_is_a_string(parse, text):
    with pytest.raises(ParseError, match=f"PTX is a string; got {type(text).__name__}"):
        parse(text)


@pytest.mark.parametrize("before", [0, 10, 1000, 100_000])
@pytest.mark.parametrize("separator", ["\n", " "])
def test_a_missing_semicolon_far_into_a_text(before, separator):
    text = f"ret;{separator}" * before + "add.s32 a, b // ;\n\nret;"
    with pytest.raises(ParseError, match="expected ',' or ';', found 'ret'") as raised:
        parse_statements(text)
    assert str(raised.value).endswith("^")
    at = text.index(" // ;") if separator == "\n" or before <= 10 else text.rindex("ret")
    assert str(raised.value).startswith(f"{Source(text).position(at)}: ")


# --- places ---


def test_positions():
    source = Source("ab\n\ncde\r\n\tf")
    assert [source.position(at) for at in range(11)] == [
        Position(1, 1), Position(1, 2), Position(1, 3), Position(2, 1), Position(3, 1),
        Position(3, 2), Position(3, 3), Position(3, 4), Position(3, 5), Position(4, 1),
        Position(4, 2),
    ]  # fmt: skip
    assert source.position(11) == Position(4, 3), "behind the last character"
    assert str(Position(4, 3)) == "line 4, column 3"


@pytest.mark.parametrize(
    ("text", "at", "want"),
    [
        ("ret;", 0, "    ret;\n    ^"),
        ("  ret  ;  ", 7, "    ret  ;\n         ^"),
        ("\tadd\ta, b", 5, "    add\ta, b\n       \t^"),
        ("a\nb c\nd", 4, "    b c\n      ^"),
        ("a\r\nb", 0, "    a\n    ^"),
        ("a\x00\x1bé b", 4, "    a??é b\n        ^"),
        ("ret;\n", 5, "    \n    ^"),
        ("  \n", 1, "    \n    ^"),
        ("x" * 300, 0, "    " + "x" * 120 + "\n    ^"),
        ("x" * 300, 299, "    " + "x" * 81 + "\n    " + " " * 80 + "^"),
        (" " * 100 + "y" * 300, 200, "    " + "y" * 120 + "\n    " + " " * 80 + "^"),
    ],
)
def test_excerpts(text, at, want):
    assert Source(text).excerpt(at) == want
