"""CUB's sorts and scans, libcu++'s barriers and pipelines, cooperative groups: what nvcc makes of
them ends with the H200's bytes and raises no alarm."""

import lzma
from functools import cache

import numpy as np
import pytest
from paths import GOLDEN

from emulator import Module

BLOCKS = GOLDEN / "blocks"
THREADS = 128


def arguments():
    """Of each kernel; the place of what it writes is 1, but for `atom_ref`, where it is 0."""
    rng = np.random.default_rng(1)
    small, large = rng.integers(0, 100, 512), rng.integers(0, 2**32, 512, dtype=np.uint64)
    floats = rng.standard_normal(1024).astype(np.float32)
    letters = rng.integers(0, 256, 512).astype(np.uint8)
    signed, few = rng.integers(-999, 999, 384), rng.integers(0, 100, THREADS).astype(np.int32)
    small = small.astype(np.int32)

    def zeros(count, dtype=np.int32):
        return np.zeros(count, dtype)

    return {
        "block_scan": [small, zeros(513)],
        "block_sort": [large.astype(np.uint32), zeros(1024, np.uint32)],
        "block_reduce": [floats[:THREADS], zeros(2, np.float32)],
        "block_hist": [letters, zeros(256, np.uint32)],
        "block_hist_sort": [letters, zeros(256, np.uint32)],
        "block_merge": [signed.astype(np.int32), zeros(384)],
        "warp_prims": [few, zeros(512)],
        "block_select": [small // 20, zeros(512), 500],
        "coop": [few, zeros(768)],
        "pipeline": [floats, zeros(THREADS, np.float32), 8],
        "barr": [floats[:THREADS], zeros(THREADS, np.float32)],
        "atom_ref": [zeros(2), few],
        "pads": [floats[:THREADS], zeros(THREADS, np.float32)],
    }


CASES = [("blocks", name) for name in arguments()] + [("debug", "coop"), ("debug", "pads")]


@cache
def module(build):
    return Module(lzma.decompress((BLOCKS / f"{build}.ptx.xz").read_bytes()).decode())


def launch(build, name, **options):
    given = arguments()[name]
    report = module(build)[name].launch(grid=1, block=THREADS, args=given, **options)
    with np.load(BLOCKS / "h200.npz") as held:
        expected = held[name].tobytes()
    return report, given[0 if name == "atom_ref" else 1].tobytes() == expected


@pytest.mark.sampled(4)
@pytest.mark.parametrize("build, name", CASES)
def test_what_an_h200_wrote_and_no_alarm(build, name):
    report, equal = launch(build, name, check=True)
    assert equal
    assert not report.findings


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["reference", "vector", "compiled"])
@pytest.mark.parametrize("build, name", [x for x in CASES if x != ("debug", "coop")])
def test_all_engines(build, name, engine):
    _, equal = launch(build, name, engine=engine)
    assert equal
