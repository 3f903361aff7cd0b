"""Rules compute rows of words, of several registers, as they compute words."""

from operator import attrgetter

import numpy as np
import pytest
from sweeps import swept
from test_scalar_rules import THREAD_ROWS, cases, sampled, sources
from words import array_of

from emulator.arith.scalar.rule import bind_arrays

ROWS = 4
FORMS = [ins for row in THREAD_ROWS[1::4] for ins in sampled(row, 1)]


def differ(ins, tuples):
    """Whether results of rows of words differ from those of all of them, one after the other."""
    whole = len(tuples) - len(tuples) % ROWS
    columns = list(zip(*tuples[:whole], strict=True))
    flat = [
        int(column[0]) if operand.kind == "immediate" else array_of(operand.type, column)
        for operand, column in zip(sources(ins), columns, strict=False)
    ]
    if ins.reads_carry or any(not isinstance(x, int) and x.ndim > 1 for x in flat):
        return False
    rows = [x if isinstance(x, int) else x.reshape(ROWS, -1) for x in flat]
    rule = bind_arrays(ins)
    with np.errstate(all="ignore"):
        want, got = rule(*flat), rule(*rows)
        # An operand that is the same in all lanes.
        first = [x if isinstance(x, int) else x[:, :1] for x in rows]
        apart = [rule(first[0][i], *(x if isinstance(x, int) else x[i] for x in rows[1:]))
                 for i in range(ROWS)] if not isinstance(first[0], int) else []  # fmt: skip
        mixed = rule(first[0], *rows[1:])
    several = isinstance(want, tuple)
    pairs = [*zip(want, got, strict=True)] if several else [(want, got)]
    wrong = any(not np.array_equal(x, y.reshape(-1)) or x.dtype != y.dtype for x, y in pairs)
    pairs = [] if several else list(zip(apart, mixed, strict=False))
    return wrong or any(not np.array_equal(x, y) for x, y in pairs)


@pytest.mark.sampled(20, covered_by="test_every_rule_takes_rows")
@pytest.mark.parametrize("ins", FORMS, ids=str)
def test_rules_take_rows(ins):
    assert not differ(ins, cases(ins, 40 * ROWS))


@pytest.mark.slow
@swept(THREAD_ROWS, ids=attrgetter("form"))
def test_every_rule_takes_rows(row):
    for ins in sampled(row, 10):
        assert not differ(ins, cases(ins, 150 * ROWS)), str(ins)
