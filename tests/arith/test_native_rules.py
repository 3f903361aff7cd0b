"""The machine code of every rule of ordinary arithmetic has the results of the reference."""

import random
from operator import attrgetter

import numpy as np
import pytest
from sweeps import swept
from test_scalar_rules import THREAD_ROWS, WARP_ROWS, cases, sampled, sources
from test_scalar_rules import differences as array_differences
from words import boundary_words, random_words

pytest.importorskip("llvmlite")

from llvmlite import ir
from native_rules import bind_native

from emulator import Instruction
from emulator.arith.scalar import TYPES, bind_reference
from emulator.isa.conversion import expand
from emulator.machine.compiled.warp_emitter import WarpEmitter
from emulator.machine.compiled.words import Word

ALL = 0xFFFFFFFF


def differences(ins, tuples):
    """Operands and results of the cases in which machine code and reference differ."""
    native, reference = bind_native(ins), bind_reference(ins)
    got, found = native(*zip(*tuples, strict=True)), []
    for i, words in enumerate(tuples):
        want = reference(*words)
        want = tuple(map(int, want if isinstance(want, tuple) else (want,)))
        have = tuple(column[i] for column in got)
        if have != want:
            found.append((str(ins), [hex(w) for w in words], want, have))
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("row", THREAD_ROWS[::8], ids=lambda row: row.form)
def test_machine_code_agrees(row):
    for ins in sampled(row, 1):
        assert differences(ins, cases(ins, 150))[:3] == []


@pytest.mark.slow
@swept(THREAD_ROWS, ids=attrgetter("form"))
def test_machine_code_of_every_rule_agrees(row):
    for ins in sampled(row, 6):
        assert differences(ins, cases(ins, 400))[:3] == []


#: match and activemask are steps of the vector engine
WARP = [row for row in WARP_ROWS if "match" not in row.rule and "active" not in row.rule]


@pytest.mark.parametrize("row", WARP, ids=lambda row: row.form)
def test_machine_code_of_whole_warps_agrees(row):
    rng = np.random.default_rng(1)
    for ins in sampled(row, 4):
        for _ in range(6):
            given = [random_words(x.type, 32, rng) for x in sources(ins)[:-1]] + [[ALL] * 32]
            want, got = bind_reference(ins)(*given), bind_native(ins)(*given)
            want = want if isinstance(want, tuple) else (want,)
            assert got == [list(map(int, column)) for column in want], str(ins)


CONVERSIONS = [ins for ins in expand() if bind_native(ins)]


@pytest.mark.parametrize("ins", random.Random(4).sample(CONVERSIONS, 12), ids=str)
def test_packing_conversions_agree(ins):
    assert len(CONVERSIONS) > 200
    check_conversion(ins)


@pytest.mark.slow
@swept(CONVERSIONS)
def test_every_packing_conversion_agrees(ins):
    check_conversion(ins)


def check_conversion(ins):
    type_ = ins.types[1]
    words = list(range(256)) if TYPES[type_].bits <= 8 else boundary_words(type_)
    tuples = [(a, b)[: len(sources(ins))] for a in words for b in (words[3], words[-3], a)]
    assert differences(ins, tuples)[:3] == []


#: f64 rounded in every direction, next to the ends of its range, and sums that cancel
F64 = ["add", "mul", "fma", "div", "rcp", "sqrt"]


def f64_words(rng, count):
    exponents = [rng.integers(0, 2047, count), rng.integers(960, 1090, count)]
    exponents += [rng.integers(0, 60, count), rng.integers(1985, 2048, count)]
    exponent = np.choose(rng.integers(0, 4, count), exponents).astype(np.uint64)
    fraction = rng.integers(0, 1 << 52, count, dtype=np.uint64)
    fraction &= ~np.uint64(0) << rng.integers(0, 53, count).astype(np.uint64)
    sign = rng.integers(0, 2, count).astype(np.uint64)
    return sign << np.uint64(63) | exponent << np.uint64(52) | fraction


def check_f64(name, rounding, count):
    ins, rng = Instruction.parse(f"{name}.{rounding}.f64"), np.random.default_rng(7)
    columns = [f64_words(rng, count) for _ in sources(ins)]
    if name == "fma":
        with np.errstate(all="ignore"):
            product = columns[0].view(np.float64) * columns[1].view(np.float64)
        near = (-product).view(np.uint64) + rng.integers(-2, 3, count).astype(np.uint64)
        columns[2] = np.where(rng.random(count) < 0.5, near, columns[2])
    tuples = list(zip(*(column.tolist() for column in columns), strict=True))
    assert differences(ins, tuples)[:3] == []
    assert array_differences(ins, tuples)[:3] == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rounding", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", F64)
def test_directed_f64(name, rounding):
    check_f64(name, rounding, 300)


@pytest.mark.slow
@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", F64)
def test_directed_f64_at_length(name, rounding):
    check_f64(name, rounding, 6000)


def test_zeros_of_both_signs_are_constants():
    e = WarpEmitter(ir.Module(), None, None)
    one = Word(e, ir.Constant(ir.FloatType(), 1.0))
    assert len({str(one.of(zero)) for zero in (0.0, -0.0)}) == 2


def test_a_difference_is_noticed(monkeypatch):
    ins = Instruction.parse("add.rn.f32")
    monkeypatch.setattr(Word, "__add__", Word.__sub__)
    assert differences(ins, cases(ins, 150))
