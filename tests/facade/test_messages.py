"""What messages quote of what was given, and the checks of words and whole numbers."""

import numpy as np
import pytest

from emulator import Instruction
from emulator.errors import (
    OperandError,
    UnsupportedError,
    hint,
    listing,
    near_name,
    one_of,
    quoted,
    runs,
    shown,
    whole,
)


class Loud:
    def __repr__(self):
        raise RuntimeError("no words for it")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        ("a", "'a'"),
        (None, "None"),
        ("x" * 500, "'" + "x" * 79 + "…"),
        pytest.param(10**5000, "<int>", id="huge"),
        (Loud(), "<Loud>"),
        ([10**5000], "<list>"),
    ],
)
def test_shown(value, text):
    assert shown(value) == text


def test_what_is_quoted_is_short():
    for text in (quoted("x" * 10_000), shown("x" * 10_000), shown(np.zeros(10_000))):
        assert len(text) <= 200
    assert quoted("a'b") == '"a\'b"'
    assert listing(range(30), 3) == "0, 1, 2, … (30 in all)"
    assert runs([1, 2, 3, 5]) == "1-3, 5" and runs([]) == ""


def test_hints():
    assert hint("f61", ["f16", "bf16"]) == "; nearest is 'f16'"
    assert hint("F16", ["f16"], ".") == "; nearest is '.f16'"
    assert hint("", ["f16"]) == "" and hint("row", ["k", "mn"]) == ""


@pytest.mark.parametrize("given", ["a", np.str_("b")])
def test_one_of_some_words(given):
    assert one_of("it", given, ("a", "b")) is given


@pytest.mark.parametrize(
    ("given", "legal", "message"),
    [
        ("c", ("k", "mn"), "it is 'k' or 'mn'; got 'c'"),
        ("c", ("k",), "it is k; got 'c'"),
        ("nean", ("near", "all", "none"), "it is 'near', 'all' or 'none'; got 'nean'; nearest is"),
        (b"k", ("k", "mn"), "it is 'k' or 'mn'; got b'k'"),
        (["k"], ("k", "mn"), r"it is 'k' or 'mn'; got \['k'\]"),
        (np.array(["k", "mn"]), ("k", "mn"), r"got array\("),
        ({}, "abcd", "it is a, b, c, d; got {}"),
        ("x" * 5000, ("k", "mn"), "got 'x{79}…$"),
    ],
)
def test_none_of_the_words(given, legal, message):
    with pytest.raises(OperandError, match=message):
        one_of("it", given, legal)


@pytest.mark.parametrize("number", [3, np.uint8(3), np.int64(3), np.array(3)])
def test_whole_numbers(number):
    found = whole("it", number, 0, 3)
    assert found == 3 and type(found) is int
    assert whole("it", 10**30) == 10**30 and whole("it", -5, -5) == -5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (-1, "it is 0 … 8; got -1"),
        (9, "it is 0 … 8; got 9"),
        pytest.param(10**5000, "got <int>", id="huge"),
        (True, "got True"),
        (np.True_, "got np.True_"),
        (1.0, "got 1.0"),
        ("1", "got '1'"),
        (None, "got None"),
        ([1], r"got \[1\]"),
        (np.array([1, 2]), "got array"),
        (float("nan"), "got nan"),
    ],
)
def test_no_whole_numbers(given, message):
    with pytest.raises(OperandError, match=message):
        whole("it", given, 0, 8)
    with pytest.raises(OperandError, match="it is 1 or more; got 0"):
        whole("it", 0, 1)


# --- names that nobody declared -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "known", "end"),
    [
        ("%r9", ["%r0", "%r1", "%r3", "%f0"], "; the last '%r' is '%r3'"),
        ("%r99999999", ["%r3"], "; the last '%r' is '%r3'"),
        ("%f1", ["%r1", "%rd1", "%fd1"], ""),
        ("%addr", ["%r3", "%rd3"], ""),
        ("%addr2", ["%adr2", "%r2"], "; nearest is '%adr2'"),
        ("acumulator", ["accumulator", "x"], "; nearest is 'accumulator'"),
        ("x", ["y"], ""),
        ("%q", [], ""),
        ("1" * 400, ["1"], ""),
        ("tile", ["tiles", "file"], "; nearest is 'tiles'"),
    ],
)
def test_a_far_register_is_never_suggested(given, known, end):
    assert near_name(given, known) == end


def test_legal_ptx_that_is_not_modelled_says_so():
    for opcode, reason in (
        ("fabric.try_atom.async", "it is newer than PTX 9.3"),
        ("tensormap.query.alloc_class_large", "it is newer than PTX 9.3"),
    ):
        with pytest.raises(UnsupportedError) as caught:
            Instruction.parse(opcode)
        assert str(caught.value) == f"{opcode!r} is legal PTX, not modelled here: {reason}"
