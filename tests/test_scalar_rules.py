"""Every rule of ordinary arithmetic: the two engines agree word by word, and known results hold."""

import itertools
import random

import numpy as np
import pytest
from words import array_of, boundary_words, random_words

from emulator import Instruction
from emulator.arith.scalar import TYPES, bind_reference, bind_vector
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.ordinary.tables import ROWS

# Words of 128 bits, which only mov has, are pairs: a test of their own below.
THREAD_ROWS = [
    row
    for row in ROWS
    if row.rule and row.scope == "thread"
    and not row.form.endswith("b128") and not row.rule.startswith("atomic.")
]  # fmt: skip
WARP_ROWS = [row for row in ROWS if row.rule and row.scope == "warp"]


def sampled(row, most, seed=0):
    """At most so many forms of a row; the same ones in every run."""
    forms = list(row.expand())
    chosen = random.Random(seed).sample(forms, most) if len(forms) > most else forms
    return [OrdinaryInstruction(row, words) for words in chosen]


def sources(ins):
    return [x for x in ins.signature().operands if x.use == "read"]


def cases(ins, most, seed=0):
    """Tuples of source words: boundaries with boundaries, as many as fit, then random ones."""
    rng = np.random.default_rng(seed)
    columns = []
    for operand in sources(ins):
        if operand.kind == "immediate":
            legal = operand.values or range(256)
            columns.append([legal[int(rng.integers(len(legal)))]])
        else:
            columns.append(boundary_words(operand.type))
    if ins.reads_carry:
        columns.append([0, 1])
    total = int(np.prod([len(column) for column in columns]))
    picks = range(total) if total <= most else rng.choice(total, most, replace=False).tolist()
    out = [_tuple(columns, pick) for pick in picks]
    rest = [
        [columns[i][0]] * (most // 3) if operand.kind == "immediate"
        else random_words(operand.type, most // 3, rng)
        for i, operand in enumerate(sources(ins))
    ]  # fmt: skip
    if ins.reads_carry:
        rest.append(rng.integers(0, 2, most // 3).tolist())
    return out + list(zip(*rest, strict=True))


def _tuple(columns, pick):
    words = []
    for column in columns:
        pick, place = divmod(pick, len(column))
        words.append(column[place])
    return tuple(words)


def differences(ins, tuples):
    """Operands and results of the cases in which the two engines differ."""
    reference, vector = bind_reference(ins), bind_vector(ins)
    columns = list(zip(*tuples, strict=True))
    arrays = [
        column[0] if operand.kind == "immediate" else array_of(operand.type, column)
        for operand, column in zip(sources(ins), columns, strict=False)
    ]
    if ins.reads_carry:
        arrays.append(np.array(columns[-1], bool))
    got = vector(*arrays)
    got = got if isinstance(got, tuple) else (got,)
    got = [np.broadcast_to(array, len(tuples)).tolist() for array in got]
    found = []
    for i, words in enumerate(tuples):
        want = reference(*words)
        want = want if isinstance(want, tuple) else (want,)
        have = tuple(int(column[i]) for column in got)
        if have != tuple(map(int, want)):
            found.append((str(ins), [hex(w) for w in words], want, have))
    return found


@pytest.mark.parametrize("row", THREAD_ROWS, ids=lambda row: row.form)
def test_the_engines_agree(row):
    for ins in sampled(row, 3):
        assert differences(ins, cases(ins, 150))[:3] == []


@pytest.mark.slow
@pytest.mark.parametrize("row", THREAD_ROWS, ids=lambda row: row.form)
def test_the_engines_agree_on_every_form(row):
    for i, ins in enumerate(sampled(row, 10_000)):
        assert differences(ins, cases(ins, 600, seed=i))[:3] == []


def test_a_difference_is_noticed(monkeypatch):
    ins = Instruction.parse("add.s32")
    rule = __import__("emulator.arith.scalar.integer", fromlist=["add"]).add
    monkeypatch.setattr(rule, "array", lambda t, a, b: a + b + (a == 7))
    assert differences(ins, cases(ins, 2000))


@pytest.mark.parametrize("row", WARP_ROWS, ids=lambda row: row.form)
def test_the_engines_agree_on_warps(row):
    rng = np.random.default_rng(1)
    for ins in sampled(row, 4):
        for warp in range(12):
            given = [
                random_words(x.type, 32, rng) if warp % 3 else rng.choice(
                    boundary_words(x.type)[:3], 32
                ).tolist()
                for x in sources(ins)
            ]  # fmt: skip
            active = (rng.integers(0, 4, 32) > 0).tolist() if warp else [True] * 32
            want = bind_reference(ins)(*given, active=active)
            arrays = [array_of(x.type, w) for x, w in zip(sources(ins), given, strict=True)]
            got = bind_vector(ins)(*arrays, active=np.array(active))
            want, got = (x if isinstance(x, tuple) else (x,) for x in (want, got))
            for w, g in zip(want, got, strict=True):
                shown = [int(x) for x, a in zip(g, active, strict=True) if a]
                assert shown == [x for x, a in zip(w, active, strict=True) if a], str(ins)


def test_packed_types_are_two_elements():
    ins, half = Instruction.parse("add.rn.f16x2"), Instruction.parse("add.rn.f16")
    for low, high in itertools.product((0x3C00, 0x7C01, 0x8000), repeat=2):
        one = bind_reference(half)
        want = one(low, high) | one(high, low) << 16
        assert bind_reference(ins)(low | high << 16, high | low << 16) == want


def test_words_have_the_type_of_their_destination():
    for opcode, dtype in (
        ("cvt.rzi.u8.f32", "uint8"),
        ("mul.wide.s32", "uint64"),
        ("popc.b64", "uint32"),
    ):
        ins = Instruction.parse(opcode)
        given = [array_of(x.type, [1, 2]) for x in sources(ins)]
        assert bind_vector(ins)(*given).dtype == dtype
    assert TYPES["u8"].dtype == np.uint8


def test_words_of_128_bits_are_pairs():
    ins = Instruction.parse("mov.b128")
    pair = np.array([[1, 2], [3, 4]], np.uint64)
    low, high = bind_vector(ins, parts="2")(pair)
    assert (low.tolist(), high.tolist()) == ([1, 3], [2, 4])
    assert bind_vector(ins)(low, high).tolist() == pair.tolist()
    quarters = bind_vector(ins, parts="4")(pair)
    assert [x.tolist() for x in quarters] == [[1, 3], [0, 0], [2, 4], [0, 0]]
    assert bind_vector(ins)(*quarters).tolist() == pair.tolist()
    assert bind_reference(ins, parts="2")(1 | 2 << 64) == (1, 2)
    assert bind_reference(ins)(1, 0, 2, 0) == 1 | 2 << 64


def test_mov_takes_and_gives_vectors():
    ins = Instruction.parse("mov.b32")
    assert bind_reference(ins)(0x1234, 0xABCD) == 0xABCD1234
    assert bind_reference(ins, parts="4")(0x04030201) == (1, 2, 3, 4)
    halves = bind_vector(ins, parts="2")(np.array([0xABCD1234], np.uint32))
    assert [x.tolist() for x in halves] == [[0x1234], [0xABCD]]
    assert bind_vector(ins)(*halves).tolist() == [0xABCD1234]
