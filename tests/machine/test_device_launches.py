"""Kernels that launch kernels: tests/cuda/launches_within.cu, compiled by nvcc 13.0.

What an H200 gave for it (2026-11-22, driver 580, -rdc=true -lcudadevrt) stands here as numbers.
"""

import re

import numpy as np
import pytest
from paths import CUDA

from emulator import KernelError, Module, UnsupportedError
from emulator.machine.shared.failure import Failure
from emulator.machine.system.device_launches import MOST_NESTED, Copy
from emulator.memory.arena import Arena

pytestmark = pytest.mark.sampled(2)

MODULE = Module(CUDA / "launches_within.ptx")
ENGINES = ("vector", "reference")
LINE = np.dtype(
    [("slope", "f4"), ("offset", "f4"), ("count", "i4"), ("unused", "i4"), ("points", "u8")]
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
@pytest.mark.parametrize("size", [1, 2, 40, 100])
def test_a_quicksort_launches_itself(engine, size):
    data = np.random.default_rng(size).integers(-2048, 2048, size).astype("i4")
    want = np.sort(data)
    MODULE["sort"].launch(1, 1, [data, 0, size - 1, 0], engine=engine)
    assert np.array_equal(data, want)


@pytest.mark.parametrize("engine", ENGINES)
def test_streams_keep_their_order_and_tails_come_last(engine):
    log = np.zeros(64, "i4")
    MODULE["order"].launch(1, 1, [log], engine=engine)
    # The order that an H200 gave in eight of eight runs.
    assert log[:14].tolist() == [13, 1, 10, 11, 13, 12, 20, 21, 23, 22, 100, 101, 103, 102]
    assert not log[14:].any()


@pytest.mark.parametrize("engine", ENGINES)
def test_structs_shared_memory_copies_and_memory_of_the_device(engine):
    n = 7
    counts = 24 + 8 * np.arange(n)
    lines, out = np.zeros(n, LINE), np.zeros(counts.sum(), "f4")
    copy = np.zeros_like(out)
    MODULE["all"].launch(1, 1, [lines, out, copy, n, len(out)], engine=engine)
    want = []
    for i, count in enumerate(counts):
        at = np.arange(-(-count // 32) * 32).reshape(-1, 32)[:, ::-1].reshape(-1)
        values = np.float32(0.5 * i) * at.astype("f4") + np.float32(1) / np.float32(i + 1)
        want.append((values * np.float32(i + 2))[:count])
    assert out.tobytes() == np.concatenate(want).tobytes()
    assert copy.tobytes() == out.tobytes()
    assert np.array_equal(lines["count"], counts)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_device_refuses_it_says_when_it_is_asked(engine):
    log, errors = np.zeros(8, "i4"), np.zeros(32, "i4")
    MODULE["refused"].launch(1, 1, [log, errors, 0], engine=engine)
    assert errors[:11].tolist() == [9, 9, 0, 9, 9, 9, 9, 2, 0, 2, 0]
    assert errors[11:].tobytes().rstrip(b"\0") == b"invalid configuration argument"
    assert log[:2].tolist() == [1, 1]


@pytest.mark.slow
def test_as_many_grids_within_each_other_as_an_h200_has():
    log = np.zeros(8, "i4")
    MODULE["deep"].launch(1, 32, [log, 0], engine="vector")
    assert log[:3].tolist() == [2047, 69, 2047]
    assert MOST_NESTED == 2048


@pytest.mark.parametrize("engine", ENGINES)
def test_grids_that_launch_grids_without_end_end(engine, monkeypatch):
    log = np.zeros(8, "i4")
    with pytest.raises(KernelError, match="step_limit=400"):
        MODULE["deep"].launch(1, 32, [log, 0], engine=engine, step_limit=400)
    monkeypatch.setattr("emulator.machine.launch.MOST_GRIDS", 20)
    with pytest.raises(KernelError, match="grids launched more than 20 others"):
        MODULE["deep"].launch(1, 32, [log, 0], engine=engine)
    assert not log.any()


def test_checks_look_into_grids_that_kernels_launch():
    log = np.zeros(64, "i4")
    assert not MODULE["order"].launch(1, 1, [log], check=True).findings
    lines, out = np.zeros(3, LINE), np.zeros(96, "f4")
    report = MODULE["all"].launch(1, 1, [lines, out, out.copy(), 3, 96], check=True)
    assert not report.findings, report.findings
    text = MODULE.text.replace("bar.sync \t0;", "", 1)
    assert text != MODULE.text
    report = Module(text)["all"].launch(1, 1, [lines, out, out.copy(), 3, 96], check=True)
    assert "race" in {finding.kind for finding in report.findings}


def test_counters_add_up_over_all_grids():
    log = np.zeros(64, "i4")
    counted = [MODULE["order"].launch(1, 1, [log], engine=e).counters for e in ENGINES]
    assert counted[0] == counted[1]
    assert counted[0]["blocks"] == 13


def test_a_pointer_that_leads_to_no_kernel_is_named():
    text, count = re.subn(r"(mov\.[bu]64\s+%rd\d+), nested;", r"\1, 64;", MODULE.text)
    assert count == 1
    with pytest.raises(KernelError, match="no kernel of this module is at address 0x40"):
        Module(text)["order"].launch(1, 1, [np.zeros(64, "i4")])


def test_copies_stay_within_allocations():
    arena = Arena()
    made = arena.allocate("A", 64)
    Copy(made.address, 64, None, 7).carry_out(arena)
    Copy(made.address, 0, None, 9).carry_out(arena)
    assert (made.held == 7).all()
    for wrong in (
        Copy(made.address, 65, None), Copy(made.address, 2**63, None), Copy(8, 1, made.address),
        Copy(made.address, 32, made.address + 40),
    ):  # fmt: skip
        with pytest.raises(Failure, match="a copy that a kernel asked for"):
            wrong.carry_out(arena)
    assert (made.held == 7).all()


def test_a_launch_over_workers_is_refused():
    class Client:
        def submit(self): ...

        def scatter(self): ...

        def nthreads(self):
            return {"a": 1}

    with pytest.raises(UnsupportedError, match="launches within the kernel"):
        MODULE["sort"].launch(1, 1, [np.zeros(2, "i4"), 0, 1, 0], dask=Client())
