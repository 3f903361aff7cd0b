"""Modules of the same text, which is read once, and of texts that are made for other chips."""

import copy
import gc
import pickle

import numpy as np
import pytest

from emulator import EmulatorError, Module, UnsupportedError
from emulator.machine.module import _bound_once

COUNTING = """
.version 8.0
.target sm_90a
.address_size 64
.global .u32 count = 5;
.visible .entry add_one() {
    .reg .u32 %r<3>;
    ld.global.u32 %r1, [count];
    add.u32 %r2, %r1, 1;
    st.global.u32 [count], %r2;
    ret;
}
"""


def test_modules_of_one_text_have_variables_of_their_own():
    one, two = Module(COUNTING), Module(COUNTING)
    for module, times in ((one, 2), (two, 1)):
        for _ in range(times):
            module["add_one"].launch(grid=1, block=1)
    counts = [int(m.variable("count").view(np.uint32)[0]) for m in (one, two, Module(COUNTING))]
    assert counts == [7, 6, 5]
    assert one["add_one"] is not two["add_one"]
    assert one["add_one"].bound is two["add_one"].bound
    other = Module(COUNTING.replace(".target sm_90a", ".target sm_80"), "sm_90")
    assert other.target.name == "sm_90" and one.target.name == "sm_90a"


@pytest.mark.parametrize("engine", ["reference", "vector", "compiled", "auto"])
@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_a_module_that_ran_is_copied(engine, copied):
    if engine == "compiled":
        pytest.importorskip("llvmlite")
    one = Module(COUNTING)
    one["add_one"].launch(grid=1, block=1, engine=engine)
    other = copied(one)
    for module in (other, other, one):
        module["add_one"].launch(grid=1, block=1, engine=engine)
    counts = [int(m.variable("count").view(np.uint32)[0]) for m in (one, other)]
    assert counts == [7, 8]


def test_modules_share_code_and_free_it():
    machine_code = pytest.importorskip("emulator.arith.fast.kernels.machine_code")
    gc.collect()
    before = set(machine_code._codes)
    text, modules = COUNTING.replace("%r1, 1", "%r1, 77"), []
    for _ in range(3):
        modules.append(Module(text))
        modules[-1]["add_one"].launch(grid=1, block=1, engine="compiled")
        assert len(set(machine_code._codes) - before) == 1
    modules.clear()
    gc.collect()
    assert set(machine_code._codes) <= before


def test_a_text_that_is_refused_is_refused_again():
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="cannot run"):
            Module(COUNTING, "sm_80")
        with pytest.raises(EmulatorError):
            Module(COUNTING, ["sm_90a"])


def test_few_short_texts_are_kept():
    for i in range(40):
        Module(COUNTING.replace("= 5", f"= {i}"))
    assert _bound_once.cache_info().currsize <= 16
    before = _bound_once.cache_info().misses
    Module(COUNTING + "// " + "x" * (1 << 15))
    assert _bound_once.cache_info().misses == before


def test_a_text_for_a_chip_without_tensor_cores_runs_on_later_ones():
    text = COUNTING.replace("sm_90a", "sm_52")
    for target in ("sm_70", "H100"):
        module = Module(text, target)
        module["add_one"].launch(grid=1, block=1)
        assert int(module.variable("count").view(np.uint32)[0]) == 6
    with pytest.raises(UnsupportedError, match=r"made for sm_52 .* name a chip, .*'sm_70'"):
        Module(text)
    with pytest.raises(UnsupportedError, match="no target 'sm_52': too old"):
        Module(text, "sm_52")
