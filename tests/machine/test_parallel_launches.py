"""Launches of several Python threads on one Module or Memory: each sees what the others wrote."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from emulator import KernelError, Memory, Module

TEXT = """
.version 8.0
.target sm_90
.address_size 64
VARIABLE
.visible .entry k(.param .u64 p)
{
    .reg .b64 %rd<5>; .reg .b32 %r<5>; .reg .pred %p;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, 0;
    L: atom.global.add.u32 %r2, [ADDRESS], 1;
    add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 8; @%p bra L;
    ret;
}
"""
ADDRESS = 0x7000_0000_0000


def with_variable() -> Module:
    return Module(TEXT.replace("VARIABLE", ".global .u32 g;").replace("ADDRESS", "g"))


def without() -> Module:
    return Module(TEXT.replace("VARIABLE", "").replace("ADDRESS", "%rd1"))


def mapped() -> tuple[Memory, np.ndarray]:
    memory, array = Memory(), np.zeros(4, "u4")
    memory.map(ADDRESS, array)
    return memory, array


def together(run, threads: int = 4) -> None:
    """Calls ``run(number of the thread)`` in so many threads at once."""
    start = Barrier(threads)

    def each(i: int) -> None:
        start.wait()
        run(i)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(each, range(threads)))


@pytest.mark.parametrize("engine", ["vector", "compiled", "auto", "reference"])
def test_no_update_of_a_variable_is_lost(engine):
    kernel = with_variable()["k"]
    together(lambda i: [kernel.launch(2, 32, [0], engine=engine) for _ in range(3)])
    assert kernel.module.variable("g").view("u4")[0] == 4 * 3 * 2 * 32 * 8


def test_no_update_of_a_memory_is_lost():
    """Also of kernels of several modules."""
    kernels = [without()["k"] for _ in range(4)]
    memory, array = mapped()
    together(lambda i: [kernels[i].launch(2, 32, [ADDRESS], memory=memory) for _ in range(3)])
    assert array.tolist() == [4 * 3 * 2 * 32 * 8, 0, 0, 0]


def test_launches_that_share_nothing():
    """One kernel, without variables, from several threads."""
    kernel = without()["k"]
    arrays = [np.zeros(4, "u4") for _ in range(4)]
    together(lambda i: [kernel.launch(2, 32, [arrays[i]]) for _ in range(3)])
    assert [x[0] for x in arrays] == [3 * 2 * 32 * 8] * 4


def test_a_launch_within_a_launch_is_refused():
    kernel, (memory, array) = with_variable()["k"], mapped()

    def again(done, total):
        kernel.launch(1, 32, [0])

    with pytest.raises(KernelError, match=r"the Module, .* is in use by the launch that made"):
        kernel.launch(1, 32, [0], progress=again)
    assert kernel.module.variable("g").view("u4")[0] == 0
    other = without()["k"]
    with pytest.raises(KernelError, match=r"the Memory is in use by the launch that made") as error:
        other.launch(1, 32, [ADDRESS], memory=memory, progress=lambda *_: other.launch(
            1, 32, [ADDRESS], memory=memory))  # fmt: skip
    assert error.value.kind == "launch"
    # Both are free again, and what shares nothing may be within.
    own = np.zeros(4, "u4")
    kernel.launch(1, 32, [0], memory=memory, progress=lambda *_: other.launch(1, 32, [own]))
    assert kernel.module.variable("g").view("u4")[0] == 256 == own[0]
    assert not array.any()


def test_launches_within_launches_of_two_threads_do_not_wait_for_each_other():
    kernels, meet, refused = [with_variable()["k"] for _ in range(2)], Barrier(2), []

    def run(i: int) -> None:
        def again(done, total):
            meet.wait()
            try:
                kernels[1 - i].launch(1, 32, [0])
            except KernelError as error:
                refused.append(str(error))
            meet.wait()

        kernels[i].launch(1, 32, [0], progress=again)

    together(run, 2)
    assert len(refused) == 2
    assert all("a launch of another Python thread" in x for x in refused)


def test_a_memory_may_be_copied():
    memory, _ = mapped()
    for same in (copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))):
        without()["k"].launch(1, 1, [ADDRESS], memory=same)
        assert same.arrays[0][1][0] == 8
