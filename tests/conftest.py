"""Which of many similar cases are in the fast suite, what collecting them costs, and fixtures that
several files take."""

import gc
import os
import sys
import zlib
from collections import defaultdict
from functools import partial

import pytest
from commands import answer, refusal

# What Python compiles is kept, as on a user's machine: tests start it anew many times.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Cases by the ten thousand stay: the garbage collector need not look at them, while they are
    collected and while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Makes no cases of slow tests for the fast suite, unless a test is named."""
    config, marks = collector.config, getattr(obj, "pytestmark", ())
    if config.option.markexpr != "not slow" or any("::" in word for word in config.args):
        return None
    slow = isinstance(marks, list) and any(mark.name == "slow" for mark in marks)
    return [] if slow or collector.get_closest_marker("slow") else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Take what `sampled(n)` leaves out from the fast suite: of the cases of each test all but one
    of n, and one at least. The hashes of their ids choose, which are the same everywhere.

    What is left out is slow; with `covered_by`, a slow test that does the same and more, it is
    dropped.
    """
    tests, dropped = defaultdict(list), set()
    for item in items:
        if item.get_closest_marker("sampled"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        sampled = cases[0].get_closest_marker("sampled")
        cases.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        left_out = cases[-(-len(cases) // sampled.args[0]) :]
        if "covered_by" in sampled.kwargs:
            dropped.update(left_out)
        for item in left_out:
            item.add_marker(pytest.mark.slow)
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in dropped]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Gives the fast suite to workers file by file: what a file keeps is made once."""
    if config.option.dist == "load" and config.option.markexpr == "not slow":
        from xdist.scheduler import LoadFileScheduling

        return LoadFileScheduling(config, log)
    return None


@pytest.fixture
def ask(capsys):
    """Runs a command that must succeed: its lines, or its JSON."""
    return partial(answer, capsys)


@pytest.fixture
def refused(capsys):
    """Runs a command that must be refused: its message."""
    return partial(refusal, capsys)


@pytest.fixture(scope="module")
def client():
    """A Dask cluster of two processes on this machine."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
