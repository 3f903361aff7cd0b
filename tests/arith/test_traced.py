"""Rules written out as functions of arrays compute what their texts compute."""

from operator import attrgetter

import numpy as np
import pytest
from sweeps import swept
from test_scalar_rules import THREAD_ROWS, cases, sampled, sources
from words import array_of

from emulator import Instruction
from emulator.arith.scalar.rule import bind_arrays, bind_words
from emulator.arith.scalar.traced import TracedWord, Untraceable, traced

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
