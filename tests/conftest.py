"""Which of many similar cases are in the fast suite, what collecting them costs, and fixtures that
several files take."""

import gc
import zlib
from collections import defaultdict
from functools import partial

import pytest
from commands import answer, refusal


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Cases by the ten thousand stay: the garbage collector need not look at them again and
    again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as slow what `sampled(n)` leaves out of the fast suite: of the cases of each test all
    but one of n, and one at least. The hashes of their ids choose, which are the same everywhere.
    """
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        (n,) = cases[0].get_closest_marker("sampled").args
        cases.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in cases[-(-len(cases) // n) :]:
            item.add_marker(pytest.mark.slow)


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
