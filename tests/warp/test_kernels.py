"""Kernels of machine code: every recipe in every family gives the registers of the vector engine,
for operands around everything that an engine can get wrong; one warp by its address, too.

What kernels are not to compute is in test_native; every form is executed in test_every_form.
"""

import numpy as np
import pytest
from designed import REGIMES
from each_form import ALL
from kernel_operands import by_address, by_kernel, drawn

from emulator import execute
from emulator.targets import TARGETS, find_target

pytestmark = pytest.mark.sampled(18)

native = pytest.importorskip("emulator.warp.native")


def each_recipe():
    """An instruction and a target of each recipe, in each family and for each type of A and D."""
    found = {}
    for ins in ALL:
        for target in {TARGETS[name].generation: name for name in ins.targets}.values():
            form, steps = ins.form, ins.arithmetic(target).steps
            key = (form.family, form.pipe, steps, ins.a_type, ins.d_type, ins.scale_vec)
            found.setdefault(key, (ins, target))
    return found.values()


each = pytest.mark.parametrize("ins, target", each_recipe(), ids=str)


@each
def test_designed_and_random_operands(monkeypatch, ins, target):
    operands = drawn(ins, target, np.random.default_rng(1), REGIMES)
    found = by_kernel(monkeypatch, ins, target, operands)
    expected = execute(ins, target=target, engine="vector", **operands)
    wrong = np.argwhere(found != expected)
    assert not len(wrong), (REGIMES[wrong[0][0]], wrong[0], len(wrong))


OF_A_WARP = [(ins, target) for ins, target in each_recipe() if not ins.is_wgmma]


@pytest.mark.parametrize("ins, target", OF_A_WARP[::4], ids=str)
def test_one_warp_by_its_address(ins, target):
    operands = drawn(ins, target, np.random.default_rng(3), REGIMES)
    expected = execute(ins, target=target, engine="vector", **operands)
    found = by_address(native.warp_function(ins, find_target(target)), operands, expected)
    wrong = np.argwhere(found != expected)
    assert not len(wrong), (REGIMES[wrong[0][0]], wrong[0], len(wrong))
