"""Large, deep, cut and mutated texts: a tree or a ParseError, soon."""

import random
import time

import pytest
from ptx_texts import parse_module
from ptx_trees import HEADER, SAMPLE, module

from emulator.errors import ParseError
from emulator.ptx.lexer import NESTING
from emulator.ptx.parser import parse_statements

pytestmark = pytest.mark.sampled(6)


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (parse_statements, ";" * 3_000_000, None),
        (parse_statements, "; " * 1_500_000, None),
        (parse_statements, "//" + "x" * 10_000_000, None),
        (parse_statements, ".reg .b32 %a<40000>, %b<1048576>;", None),
        (module, ".global .b8 x[] = {" + "1," * 500_000 + "1};", None),
        (module, ";" * 3_000_000, "found ';'"),
        (parse_statements, "{" * 1_000_000, "blocks nest more than 40 levels"),
        (module, ".entry k " + "{" * 1_000_000, "blocks nest more than 40 levels"),
        (module, ".global .b32 x = " + "{" * 1_000_000, "values nest more than 40 levels"),
        (parse_statements, "x " + "(" * 1_000_000, "expression nests more than 40 levels"),
        (parse_statements, "x " + "-" * 1_000_000, "expression nests more than 40 levels"),
        (parse_statements, "x " + "1?" * 1_000_000, "expression nests more than 40 levels"),
        (parse_statements, "x " + "(.u64)" * 1_000_000, "expression nests more than 40 levels"),
        (parse_statements, "x " + "{" * 1_000_000, "expected a register or a constant"),
        (parse_statements, "}" * 10_000_000, "found '}'"),
        (parse_statements, "@" * 10_000_000, "found '@'"),
        (parse_statements, "x " + "1" * 10_000_000 + ";", "does not fit 64 bits"),
        (parse_statements, "x 0." + "0" * 10_000_000 + "1;", "normal numbers of .f64"),
        (parse_statements, "a" * 10_000_000, "found the end of the text"),
        (parse_statements, "a " * 5_000_000, "found 'a'"),
        (parse_statements, "x " + "a." * 1_000_000, "is no register"),
        (parse_statements, "x" + " .a" * 300_000, "found the end of the text"),
        (parse_statements, "/*" * 5_000_000 + "/", "found '*'"),
        (parse_statements, "/*" + "x" * 10_000_000, "a comment that is not closed"),
        (parse_statements, 'x "' + "x" * 10_000_000, "a string that is not closed"),
        (parse_module, " " * 10_000_000, "found the end of the text"),
        (parse_module, "\n" * 3_000_000 + "\x01", "line 3000001, column 1"),
        (parse_module, "\0" * 10_000_000 + "x", "'\\x00'"),
        (parse_module, "é" * 10_000_000, "'é'"),
        (module, ".section .debug { " + "/*" * 1_000_000, "section is not closed"),
        (module, ".section .debug { " + "/" * 10_000_000, "section is not closed"),
        (module, ".global .b8 x[] = {" + "1," * 100_000, "expected a constant"),
        (parse_statements, ".reg .b32 %a<99999999999999999999>;", "does not fit 64 bits"),
    ],
    ids=lambda value: repr(value[:30])[:30] if isinstance(value, str) else None,
)
def test_large_texts_end_soon(parse, text, words):
    start = time.process_time()
    if words is None:
        parse(text)
    else:
        with pytest.raises(ParseError) as raised:
            parse(text)
        assert words in str(raised.value) and len(str(raised.value)) < 600
    assert time.process_time() - start < 5


def test_depth_of_blocks_and_values():
    deep = NESTING
    parse_statements("{" * deep + "}" * deep)
    module(".func f {" + "{" * deep + "}" * deep + "}")
    module(".global .b32 x = {" + "{" * deep + "}" * deep + "};")
    for text in (f".func f {{{'{' * (deep + 1)}", f".global .b32 x = {{{'{' * (deep + 1)}"):
        with pytest.raises(ParseError, match=f"more than {NESTING} levels"):
            module(text)


MARKS = "{}[]()<>,;:@!|+-*/%&^~?=.$_#\"'\\é\x00\n\t"
WORDS = "/* */ // << && 0x 0f 1e 08 1.5 .loc .section .global WARP_SZ 18446744073709551616 generic("
PIECES = (*SAMPLE.split(), *MARKS, *WORDS.split(" "))


def mutated(rng, text):
    """`text` with a few pieces cut out, doubled, moved or put in."""
    for _ in range(rng.randint(1, 6)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((0, 1, 1, 2, 5, 20, 200)))
        new = rng.choice(
            ("", "", text[start:end] * 2, rng.choice(PIECES), rng.choice(PIECES) + " ")
        )
        text = text[:start] + new + text[end:]
    return text


@pytest.mark.parametrize("seed", range(4))
def test_mutated_texts_parse_or_are_refused(seed):
    rng = random.Random(seed)
    body = SAMPLE[SAMPLE.index("{\n  .reg") + 1 : SAMPLE.index("$DONE: ret;")]
    parsed = 0
    for case in range(400):
        parse, text = (parse_module, SAMPLE) if case % 2 else (parse_statements, body)
        text = mutated(rng, text)
        start = time.process_time()
        try:
            parse(text)
            parsed += 1
        except ParseError as error:
            assert str(error).startswith("line ") and len(str(error)) < 600
        assert time.process_time() - start < 1, text
    assert 20 < parsed < 380, "most mutations should matter, and some should not"


@pytest.mark.parametrize("seed", range(2))
def test_random_pieces_parse_or_are_refused(seed):
    rng = random.Random(seed)
    for _ in range(1500):
        text = rng.choice((" ", "")).join(rng.choices(PIECES, k=rng.randint(1, 15)))
        for whole in (text, HEADER + text):
            try:
                parse_statements(whole)
            except ParseError as error:
                assert len(str(error)) < 600
            try:
                parse_module(whole)
            except ParseError as error:
                assert len(str(error)) < 600


def test_every_cut_of_a_file_is_refused_or_parses():
    for end in range(0, len(SAMPLE), 3):
        try:
            parse_module(SAMPLE[:end])
        except ParseError as error:
            assert str(error).startswith("line ")
