"""Rules written out as functions of arrays compute what their texts compute."""

from operator import attrgetter

import numpy as np
import pytest
from sweeps import swept
from test_scalar_rules import THREAD_ROWS, cases, sampled, sources
from words import array_of

from emulator import Instruction
from emulator.arith.scalar.arrays import ARRAYS
from emulator.arith.scalar.rule import bind_arrays, bind_words
from emulator.arith.scalar.traced import Tape, TracedWord, Untraceable, traced

#: forms whose functions are compared in the fast suite
FORMS = [ins for row in THREAD_ROWS[::4] for ins in sampled(row, 1)]


def differences(ins, tuples):
    """How many results differ, in value or type; None where there is no function."""
    columns = list(zip(*tuples, strict=True))
    words = [
        int(column[0]) if operand.kind == "immediate" else array_of(operand.type, column)
        for operand, column in zip(sources(ins), columns, strict=False)
    ]
    words += [np.array(columns[-1], bool)] if ins.reads_carry else []
    kinds, found = [x if isinstance(x, int) else x.dtype for x in words], 0
    with np.errstate(all="ignore"):
        want = bind_arrays(ins)(*words)
        want = want if isinstance(want, tuple) else (want,)
        for count in range(1, len(want) + 1):
            try:
                got = traced(lambda w: bind_words(ins, w), kinds, count)(*words)
            except Untraceable:
                return None
            got = got if isinstance(got, tuple) else (got,)
            found += len(got) != count
            for a, b in zip(want, got, strict=False):
                found += int(a.dtype != b.dtype) + np.count_nonzero(a != b)
    return found


@pytest.mark.sampled(20, covered_by="test_functions_of_every_rule_agree")
@pytest.mark.parametrize("ins", FORMS, ids=str)
def test_functions_agree(ins):
    assert not differences(ins, cases(ins, 150))


@pytest.mark.slow
@swept(THREAD_ROWS, ids=attrgetter("form"))
def test_functions_of_every_rule_agree(row):
    for ins in sampled(row, 10):
        assert not differences(ins, cases(ins, 600)), str(ins)


def test_almost_all_rules_have_functions():
    without = [str(ins) for ins in FORMS[::4] if differences(ins, cases(ins, 6)) is None]
    assert len(without) <= 2, without


def test_a_difference_is_noticed(monkeypatch):
    ins = Instruction.parse("fma.rn.ftz.f32")
    assert differences(ins, cases(ins, 600)) == 0
    monkeypatch.setattr(TracedWord, "__and__", TracedWord.__or__)
    assert differences(ins, cases(ins, 600)) > 0


def behind_sums(ins, words):
    """The rule of an instruction that takes sums and products for its f32 operands; `words` are its
    operations."""
    rule, first = bind_words(ins, words), bind_words(Instruction.parse("fma.rn.f32"), words)

    def both(*operands):
        kinds = [operand.type for operand in sources(ins)]
        taken = [
            first(x, x, operands[-1]) if kind == "f32" else x
            for x, kind in zip(operands, kinds, strict=False)
        ]
        results = rule(*taken, *operands[len(kinds) : -1])
        return results if isinstance(results, tuple) else (results,)

    return both


def differences_behind_sums(ins, tuples):
    """How many results of `behind_sums` differ."""
    columns = list(zip(*tuples, strict=True))
    words = [
        int(column[0]) if operand.kind == "immediate" else array_of(operand.type, column)
        for operand, column in zip(sources(ins), columns, strict=False)
    ]
    words += [np.array(columns[-1], bool)] if ins.reads_carry else []
    rng = np.random.default_rng(0)
    words.append(rng.choice(np.array(NUMBERS, np.uint32), len(tuples)))
    kinds, found = [x if isinstance(x, int) else x.dtype for x in words], 0
    with np.errstate(all="ignore"):
        want = behind_sums(ins, ARRAYS)(*words)
        try:
            got = traced(lambda w: behind_sums(ins, w), kinds, len(want))(*words)
        except Untraceable:
            return 0
        for a, b in zip(want, got if isinstance(got, tuple) else (got,), strict=True):
            found += np.count_nonzero(a != b)
    return found


#: f32 codes: zeros, 1, infinities, NaNs
NUMBERS = (0, 1 << 31, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FFFFFFF, 0xFFC00001, 0x7F800001)
#: forms that take f32
OF_F32 = [ins for ins in FORMS if any(x.type == "f32" for x in sources(ins))]


@pytest.mark.sampled(10, covered_by="test_numbers_of_every_rule_agree")
@pytest.mark.parametrize("ins", OF_F32, ids=str)
def test_numbers_between_rules_agree(ins):
    """One rule takes the numbers of another, whatever NaNs they are."""
    assert not differences_behind_sums(ins, cases(ins, 150))


@pytest.mark.slow
@swept(THREAD_ROWS, ids=attrgetter("form"))
def test_numbers_of_every_rule_agree(row):
    for ins in sampled(row, 10):
        if any(x.type == "f32" for x in sources(ins)):
            assert not differences_behind_sums(ins, cases(ins, 600)), str(ins)


def test_a_nan_that_is_no_number_is_noticed(monkeypatch):
    ins = Instruction.parse("copysign.f32")
    assert differences_behind_sums(ins, cases(ins, 600)) == 0
    monkeypatch.setattr(Tape, "write_nans", lambda tape, condition, nan, out, number: out)
    assert differences_behind_sums(ins, cases(ins, 600)) > 0
