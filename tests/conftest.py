"""Which of many similar cases are in the fast suite, what collecting them costs, and fixtures that
several files take."""

import gc
import os
import sys
import zlib
from functools import partial

import pytest
from commands import answer, refusal

# What Python compiles is kept, as on a user's machine: tests start it anew many times.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True)
def own_symbols(request):
    """Functions that modules share are written anew for a test that may change how."""
    module = sys.modules.get("emulator.arith.fast.kernels.machine_code")
    if module and "monkeypatch" in request.fixturenames:
        request.getfixturevalue("monkeypatch").setattr(module, "_symbols", {})


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


def without_slow(config):
    """Whether this is the fast suite, and no test is named."""
    return config.option.markexpr == "not slow" and not any("::" in x for x in config.args)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Makes no cases of slow tests for the fast suite."""
    marks = getattr(obj, "pytestmark", ())
    slow = isinstance(marks, list) and any(mark.name == "slow" for mark in marks)
    slow = slow or collector.get_closest_marker("slow")
    return [] if slow and without_slow(collector.config) else None


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc):
    """Take what `sampled(n)` leaves out from the fast suite: of the cases of each test all but one
    of n, and one at least. The hashes of their ids choose, which are the same everywhere.

    What is left out is slow; with `covered_by`, a slow test that does the same and more, it is
    dropped.
    """
    test, cases = metafunc.definition, metafunc._calls
    sampled = test.get_closest_marker("sampled")
    if not sampled or not cases:
        return
    ordered = sorted(cases, key=lambda case: zlib.crc32(f"{test.nodeid}[{case.id}]".encode()))
    left_out = {case.id for case in ordered[-(-len(cases) // sampled.args[0]) :]}
    if "covered_by" in sampled.kwargs or without_slow(metafunc.config):
        cases[:] = [case for case in cases if case.id not in left_out]
    for case in cases:
        if case.id in left_out:
            case.marks.append(pytest.mark.slow.mark)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Gives the fast suite to workers file by file: what a file keeps is made once."""
    if config.option.dist == "load" and config.option.markexpr == "not slow":
        from xdist.scheduler import LoadFileScheduling

        return LoadFileScheduling(config, log)
    return None


def pytest_runtest_setup(item):
    """Compiles segments with all optimisations at once in half of the tests, by their names: those
    of short launches never run long enough for these."""
    segment = sys.modules.get("emulator.machine.compiled.segment")
    if segment is not None:
        segment._SELDOM = zlib.crc32(item.nodeid.encode()) % 2 == 0


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
