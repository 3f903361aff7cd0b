"""Random CUDA C++ programs with six sets of options: every result is what an H200 wrote."""

import numpy as np
import pytest
from cuda_recordings import digests, read
from random_cuda import BLOCKS, FLAGS, RESULTS, THREADS, inputs

from emulator import Module

RECORDED, ABOUT = read()
FAST = ("1_O0", "3_fmad")


def check(name):
    ptx, wanted = RECORDED[name]
    results = np.zeros((BLOCKS * THREADS, RESULTS), np.uint64)
    contract = FLAGS[name.partition("_")[2]][1]
    Module(ptx)["go"].launch(BLOCKS, THREADS, [inputs(), results], contract=contract)
    assert np.flatnonzero(digests(results) != wanted).tolist() == []


@pytest.mark.parametrize("name", FAST)
def test_programs(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECORDED if name not in FAST])
def test_more_programs(name):
    check(name)


def test_provenance():
    assert ABOUT["gpu"] == "NVIDIA H200" and "13.0" in ABOUT["nvcc"]
