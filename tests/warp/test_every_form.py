"""Every form of the table is executed: all engines give the same registers, on each generation."""

import numpy as np
import pytest
from dots import FAST
from each_form import ALL, operands, targets_of_each_arithmetic
from sweeps import swept

from emulator import execute
from emulator.isa.matrix_forms import FORMS

pytestmark = pytest.mark.sampled(30)


@pytest.mark.sampled(60, covered_by="test_engines_agree_on_every_generation")
@pytest.mark.parametrize("ins", ALL, ids=str)
def test_engines_agree_on_the_newest_generation(ins):
    check(ins, targets_of_each_arithmetic(ins)[-1:])


@pytest.mark.slow
@swept(ALL, 10)
def test_engines_agree_on_every_generation(ins):
    check(ins, targets_of_each_arithmetic(ins))


def check(ins, targets):
    rng = np.random.default_rng(len(str(ins)))
    registers, options = operands(ins, rng)
    for target in targets:
        slow = execute(ins, *registers, target=target, engine="reference", **options)
        assert slow.shape == (ins.lanes, ins.fragment("d").registers)
        for engine in FAST:
            fast = execute(ins, *registers, target=target, engine=engine, **options)
            assert np.array_equal(fast, slow), (target, engine)


def test_no_form_is_left_out():
    """A form whose types an earlier one takes first would never be reached, nor executed."""
    assert {ins.form for ins in ALL} == set(FORMS)
