"""The tool that records copies, without a GPU: what it launches, and what it does after errors."""

import gzip
import json
from typing import ClassVar

import pytest
from copy_kernels import Case, digest
from hardware import copy_record
from hardware.driver import CudaError, NoGpuError
from test_copy_recordings import LAUNCHES

from emulator import Memory, Module

NAMES = ("tile load 2d 64B 0", "im2col store 3d 32B", "bulk to cta 0", "replace rank 1 in global")
FIRST = 0x7F0000000000


class StandIn:
    """Launches as `driver.Gpu` does, with the emulator: memory at addresses, maps as bytes."""

    name, capability, driver, cuda = "stand-in", (9, 0), "none", 13000
    #: launches to come until one fails, and whether the context is lost with it
    failing: ClassVar[list[bool]] = []

    def launch(self, ptx, entry, grid, block, memory, by_value):
        if self.failing:
            code = 715 if self.failing.pop(0) else 1
            raise CudaError(f"error {code}", code)
        held, after, addresses = Memory(), [array.copy() for array in memory], []
        for i, array in enumerate(after):
            addresses.append(FIRST + (i << 24))
            held.map(addresses[-1], array)
        arguments = [*addresses, *by_value(addresses)]
        Module(ptx, target="sm_90a")[entry].launch(grid, block, arguments, memory=held)
        return after


@pytest.fixture
def cases(monkeypatch):
    monkeypatch.setattr(copy_record, "Gpu", StandIn)
    monkeypatch.setattr(StandIn, "failing", [])
    return [Case.of(LAUNCHES[name]["case"]) for name in NAMES]


def test_a_launch_writes_what_is_recorded(cases):
    for case in cases:
        found = copy_record.launch(StandIn(), case)
        assert [digest(part) for part in found] == LAUNCHES[case.name]["digests"]


@pytest.mark.parametrize(("fatal", "done"), [(False, 4), (True, 1)])
def test_a_lost_context_ends_a_process(cases, tmp_path, fatal, done):
    StandIn.failing = [fatal]
    copy_record.work(cases, str(tmp_path / "results"))
    found = copy_record._read(str(tmp_path / "results"))
    assert list(found) == [case.name for case in cases[:done]]
    assert found[NAMES[0]] == f"error {715 if fatal else 1}"


class Inline:
    """A process that runs when it is joined, here."""

    def __init__(self, target, args):
        self.run = lambda: target(*args)

    def start(self):
        pass

    def join(self, patience=None):
        self.run()

    def is_alive(self):
        return False


def test_all_cases_are_run_whatever_fails(cases, monkeypatch, tmp_path):
    monkeypatch.setattr(copy_record.multiprocessing, "Process", Inline)
    monkeypatch.setattr(copy_record, "draw", lambda seed: cases)
    StandIn.failing = [True]
    out, whole = tmp_path / "out.json.gz", tmp_path / "whole.npz"
    given = ["-o", str(out), "--whole", str(whole), "--jobs", "2"]
    assert copy_record.main(given) == 0
    launches = json.loads(gzip.decompress(out.read_bytes()))["launches"]
    assert launches[0]["error"] == "error 715"
    for row in launches[1:]:
        assert row == LAUNCHES[row["case"]["name"]]
    assert whole.exists()


def test_without_a_gpu_the_tool_says_so(monkeypatch, capsys, tmp_path):
    def refuse():
        raise NoGpuError("none here")

    monkeypatch.setattr(copy_record, "Gpu", refuse)
    assert copy_record.main(["-o", str(tmp_path / "out")]) == 4
    assert "needs an NVIDIA GPU: none here" in capsys.readouterr().err
