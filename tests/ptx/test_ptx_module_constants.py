"""Constants and constant expressions have the values that ptxas 13.5 gives them.

ptxas 13.5.37 assembled ``.const .u64 x = EXPRESSION;`` for sm_90a, .b64 for floating point, and the
eight bytes were read from the object file. The type of a result, .s64 or .u64, shows in what
``>> 1`` makes of it.
"""

import pytest
from ptx_trees import of_type

from emulator.ptx.constants import expression
from emulator.ptx.lexer import NESTING, Lexer
from emulator.ptx.parser import parse_statements
from emulator.ptx.source import Source
from emulator.ptx.tree import Float, Integer

#: expression -> the 64 bits that ptxas made of it
MEASURED = [
    # literals
    ("077", 0x3F), ("0b101U", 5), ("0xFFU", 0xFF), ("0", 0), ("00", 0), ("0U", 0), ("07U", 7),
    ("9223372036854775807>>1", 0x3FFFFFFFFFFFFFFF), ("9223372036854775808>>1", 0x4000000000000000),
    ("-9223372036854775808", 0x8000000000000000), ("-9223372036854775808>>1", 0x4000000000000000),
    ("WARP_SZ", 0x20), ("(WARP_SZ-40)>>1", 0xFFFFFFFFFFFFFFFC),
    ("(WARP_SZ-40U)>>1", 0x7FFFFFFFFFFFFFFC),
    # shifts: by the low six bits of the right operand, with the type of the left
    ("1<<63", 0x8000000000000000), ("1<<64", 1), ("1<<65", 2), ("1<<-1", 0x8000000000000000),
    ("1>>64", 1), ("-8>>1", 0xFFFFFFFFFFFFFFFC), ("-8>>64", 0xFFFFFFFFFFFFFFF8),
    ("-8>>65", 0xFFFFFFFFFFFFFFFC), ("0x8000000000000000>>63", 1),
    ("(-8<<0U)>>1", 0xFFFFFFFFFFFFFFFC), ("(-8>>0U)>>1", 0xFFFFFFFFFFFFFFFC),
    ("(-8<<1U)>>1", 0xFFFFFFFFFFFFFFF8), ("(-8+0U<<1)>>1", 0x7FFFFFFFFFFFFFF8),
    ("-8>>1U", 0xFFFFFFFFFFFFFFFC),
    # & | ^ + - * /: .u64 where one operand is
    ("(-8&-1)>>1", 0xFFFFFFFFFFFFFFFC), ("(-8|0)>>1", 0xFFFFFFFFFFFFFFFC),
    ("(-8^0)>>1", 0xFFFFFFFFFFFFFFFC), ("((.u64)-8 & -1) >>1", 0x7FFFFFFFFFFFFFFC),
    ("(-8 & 0xFFFFFFFFFFFFFFFF)>>1", 0x7FFFFFFFFFFFFFFC), ("(-8 | 0U)>>1", 0x7FFFFFFFFFFFFFFC),
    ("(-8 ^ 0U)>>1", 0x7FFFFFFFFFFFFFFC), ("(-8+0)>>1", 0xFFFFFFFFFFFFFFFC),
    ("(-8+0U)>>1", 0x7FFFFFFFFFFFFFFC), ("(-8*1U)>>1", 0x7FFFFFFFFFFFFFFC),
    ("0x7FFFFFFFFFFFFFFF+1", 0x8000000000000000),
    ("-8/3", 0xFFFFFFFFFFFFFFFE), ("-8/3U", 0x5555555555555552), ("(8/-3)>>1", 0xFFFFFFFFFFFFFFFF),
    ("8U/-3", 0), ("0x8000000000000000/-1", 0), ("7/2*2", 6),
    # % is of .u64
    ("-8 % 3", 2), ("8 % -3", 8), ("-8 % 3U", 2), ("(8 % 3-4)>>1", 0x7FFFFFFFFFFFFFFF),
    ("(.s64)0x8000000000000000 % -1", 0x8000000000000000),
    # unary
    ("(~7)>>1", 0x7FFFFFFFFFFFFFFC), ("~0", 0xFFFFFFFFFFFFFFFF), ("-(8U)>>1", 0x7FFFFFFFFFFFFFFC),
    ("+(-8)>>1", 0xFFFFFFFFFFFFFFFC), ("+(-8+0U)>>1", 0x7FFFFFFFFFFFFFFC),
    ("-(-8+0U)>>1", 4), ("!5", 0), ("!!5", 1), ("!0", 1), ("- -1", 1), ("--1", 1),
    ("(!0-2)>>1", 0xFFFFFFFFFFFFFFFF), ("(!0U-2)>>1", 0xFFFFFFFFFFFFFFFF),
    # comparisons and logic are of .s64; the operands are .u64 where one is
    ("-1<1", 1), ("-1<1U", 0), ("-1<0xFFFFFFFFFFFFFFFF", 0), ("0x8000000000000000>0", 1),
    ("-1==0xFFFFFFFFFFFFFFFF", 1), ("-1U==-1", 1), ("3>2>1", 0),
    ("(-1<1)-2>>1", 0xFFFFFFFFFFFFFFFF),
    ("(1==1)-2>>1", 0xFFFFFFFFFFFFFFFF), ("(1U==1U)-2>>1", 0xFFFFFFFFFFFFFFFF),
    ("(1U<2U)-2>>1", 0xFFFFFFFFFFFFFFFF), ("(1&&1)-2>>1", 0xFFFFFFFFFFFFFFFF),
    ("(1U&&1)-2>>1", 0xFFFFFFFFFFFFFFFF), ("(1U||0U)-2>>1", 0xFFFFFFFFFFFFFFFF),
    ("5&&0||1", 1), ("0||0&&1", 0), ("1.5<2.5", 1), ("1.5==1.5", 1),
    ("(1.5<2.5)-2>>1", 0xFFFFFFFFFFFFFFFF),
    # ?: has the type of what is chosen
    ("(1?-8:1U)>>1", 0xFFFFFFFFFFFFFFFC), ("(0?1U:-8)>>1", 0xFFFFFFFFFFFFFFFC),
    ("(1?(-8+0U):1)>>1", 0x7FFFFFFFFFFFFFFC), ("(0?5:(.u64)-8)>>1", 0x7FFFFFFFFFFFFFFC),
    ("(1?1U:2U)-9>>1", 0x7FFFFFFFFFFFFFFC), ("1?0?2:3:4", 3), ("0?1:0?2:3", 3), ("1?1.5<2.0:0", 1),
    # casts bind as unary operators do
    ("(.u64)-8>>1", 0x7FFFFFFFFFFFFFFC), ("(.s64)(-8+0U)>>1", 0xFFFFFFFFFFFFFFFC),
    ("(.u64)-8/2", 0x7FFFFFFFFFFFFFFC), ("(.u64)(.s64)-8>>1", 0x7FFFFFFFFFFFFFFC),
    ("(.s64)5U-6>>1", 0xFFFFFFFFFFFFFFFF), ("(.s64)-8U>>1", 0xFFFFFFFFFFFFFFFC),
    ("-(.u64)8>>1", 0x7FFFFFFFFFFFFFFC), ("~(.s64)7>>1", 0x7FFFFFFFFFFFFFFC),
    # precedence and direction
    ("2+3*4", 0xE), ("2*3+4", 0xA), ("1|2^3&4", 3), ("1<<2+3", 0x20), ("1<2==1", 1), ("1&1==0", 0),
    ("7-2-1", 4), ("100/7/2", 7), ("100 % 7 % 4", 2), ("1<<2<<3", 0x20),
    ("5-8>>1", 0xFFFFFFFFFFFFFFFE),
]  # fmt: skip

#: expression -> the bits of .f64 that ptxas made of it
MEASURED_FLOATING = [
    ("1.5*2.0", 0x4008000000000000), ("1.5-.5", 0x3FF0000000000000),
    ("1.0/3.0", 0x3FD5555555555555), ("2.0-3.0*2.0", 0xC010000000000000),
    ("--1.5", 0x3FF8000000000000), ("+1.5", 0x3FF8000000000000), ("(1.5)", 0x3FF8000000000000),
    ("-0.0", 0x8000000000000000), ("0.0*-1.0", 0x8000000000000000), ("0e0", 0), ("0e-400", 0),
    ("1e-307", 0x0031FA182C40C60D), ("2.2250738585072014e-308", 0x0010000000000000),
    ("1.7976931348623157e308", 0x7FEFFFFFFFFFFFFF), ("1e308*10.0", 0x7FF0000000000000),
    ("16777217.0", 0x4170000010000000), ("1.e5", 0x40F86A0000000000), ("01.5", 0x3FF8000000000000),
]  # fmt: skip


def evaluated(text):
    lexer = Lexer(Source(text))
    value = expression(lexer)
    assert lexer.kind == "end"
    return value


@pytest.mark.parametrize(("text", "want"), MEASURED)
def test_integers(text, want):
    value = evaluated(text)
    assert value.is_integer and value.value & (1 << 64) - 1 == want
    low = -(1 << 63) if value.type == "s64" else 0
    assert low <= value.value < low + (1 << 64)


@pytest.mark.parametrize(("text", "want"), MEASURED_FLOATING)
def test_floating_point(text, want):
    (constant,) = of_type(parse_statements(f"x {text};"), Float)
    assert (constant.bits, constant.width) == (want, 64)


def test_the_types_of_literals():
    for text, type_ in [
        ("5", "s64"), ("5U", "u64"), ("0x7FFFFFFFFFFFFFFF", "s64"), ("0x8000000000000000", "u64"),
        ("9223372036854775807", "s64"), ("9223372036854775808", "u64"), ("WARP_SZ", "s64"),
        ("1.0", "f64"), ("0f00000000", "0f"), ("0D0000000000000000", "0d"),
    ]:  # fmt: skip
        assert evaluated(text).type == type_, text


@pytest.mark.parametrize(
    "text",
    [
        "18446744073709551615", "0xFFFFFFFFFFFFFFFF", "0x0000000000000000FFFFFFFFFFFFFFFF",
        "01777777777777777777777", "0b" + "1" * 64, "0b" + "0" * 64 + "1" * 64, "-1 & ~0",
    ],
)  # fmt: skip
def test_largest_integers(text):
    assert evaluated(text).value == (1 << 64) - 1


@pytest.mark.parametrize(
    "text",
    [
        "18446744073709551616", "0x10000000000000000", "02000000000000000000000",
        "0b1" + "0" * 64, "1" * 21, "9" * 5000, "7" * 100_000, "0x" + "f" * 100_000,
        "0b" + "1" * 100_000, "0" + "7" * 100_000,
    ],
)  # fmt: skip
def test_too_large_integers(text):
    with pytest.raises(ValueError, match="does not fit 64 bits") as raised:
        parse_statements(f"x {text};")
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("08", "octal"),
        ("0779", "octal"),
        ("0x", "'0x', which is no number"),
        ("0b102", "no number"),
        ("5u", "no number"),
        ("5UL", "no number"),
        ("0x1p3", "no number"),
        ("1.0f", "no number"),
        ("0f3F80000", "no number"),
        ("0f3F8000000", "no number"),
        ("0d3FF000000000000", "no number"),
        ("1e400", "normal numbers of .f64"),
        ("1.7976931348623159e308", "normal numbers of .f64"),
        ("2.2250738585072011e-308", "normal numbers of .f64"),
        ("1e-400", "normal numbers of .f64"),
        ("5/0", "divides by zero"),
        ("5 % (3-3)", "divides by zero"),
        ("0 && 1/0", "divides by zero"),
        ("1 ? 2 : 1U/0U", "divides by zero"),
        ("1.0/0.0", "divides by zero"),
        ("1.5+1", "two integers or two .f64"),
        ("1<1.5", "two integers or two .f64"),
        ("1.5&1.5", "takes integers"),
        ("1.5<<1.5", "takes integers"),
        ("1.5&&1.5", "takes integers"),
        ("1.5 % 1.5", "takes integers"),
        ("~1.5", "'~' takes no constant"),
        ("!1.5", "'!' takes no constant"),
        ("1.5?1:2", "'?:' takes integers"),
        ("1?1.5:2.5", "'?:' takes integers"),
        ("1?1.5:2", "'?:' takes integers"),
        ("-0f3F800000", "'-' takes no constant"),
        ("0f3F800000+0f3F800000", "'+' takes no constant written as 0f"),
        ("1.0*0d3FF0000000000000", "two integers or two .f64"),
        ("(.s32)5", "cast is to .s64 or .u64, not to '.s32'"),
        ("(.u64)1.5", "takes an integer"),
        ("(5", "expected ')' or an operator"),
        ("1?2", "expected ':'"),
        ("1+", "expected a constant"),
        ("1+x", "expected a constant, found 'x'"),
        ("(%r1)", "expected a constant, found '%r1'"),
        ("5%3", "found '%3'"),
        ("٣", "'٣', which PTX does not use here"),
        ("1٣", "'٣'"),
        ("1_000", "no number"),
    ],
)
def test_what_is_no_constant(text, words):
    with pytest.raises(ValueError) as raised:
        parse_statements(f"x {text};")
    assert words in str(raised.value)
    assert "line 1, column " in str(raised.value)


@pytest.mark.parametrize(
    ("start", "end"), [("(", ")"), ("-", ""), ("!", ""), ("1 ? 1 : ", ""), ("(.s64)", "")]
)
def test_nesting_is_bounded(start, end):
    deep = NESTING
    parse_statements(f"x {start * deep}1{end * deep};")
    with pytest.raises(ValueError, match=f"more than {NESTING} levels"):
        parse_statements(f"x {start * (deep + 1)}1{end * (deep + 1)};")


def test_long_expressions():
    (constant,) = of_type(parse_statements(f"x {'1+' * 5000}1;"), Integer)
    assert constant.value == 5001
    deepest = "1||1&&1|1^1&1==1<1<<1+1*("
    parse_statements(f"x {deepest * NESTING}1{')' * NESTING};")
