"""Life without Numba, and with one that does not work or has no place to keep its code."""

import os
import re
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from paths import ROOT

from emulator import OperandError, Warp, Warpgroup, execute, gemm, mma
from emulator.adapters.triton_interpreter import tensor_core_dot
from emulator.arith import engines
from emulator.tools.recordings import recordings
from emulator.tools.replay import replay, selftest_command

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WORDS = np.zeros((32, 4), np.uint32)
A, B = np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16)


@pytest.fixture
def no_numba(monkeypatch):
    """As on a machine that does not have it."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "emulator.arith.compiled", raising=False)
    engines._missing.cache_clear()
    yield
    engines._missing.cache_clear()


def test_compiled_needs_numba(no_numba):
    ones = np.ones((16, 16), np.float16)
    with pytest.raises(OperandError, match=r"'compiled' needs Numba.*pip install numba.*'vector'"):
        gemm(ones, ones, instruction=F16, target="sm_80", engine="compiled")
    assert engines.choose("auto", 1 << 40) == "vector"
    assert gemm(ones, ones, instruction=F16, target="sm_80")[0, 0] == 16


def run_python(text, said="", path=sys.path, **environment):
    """The words that a program prints; `said` matches the only line on standard error, if any."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(text)]
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **environment}
    # The folder that a program starts in comes first.
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=here, cwd=path[0]
    )
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == bool(said) and all(re.match(said, line) for line in lines), lines
    return result.stdout.split()


def test_small_work_never_imports_numba():
    out = run_python("""
        import sys
        import numpy as np
        import emulator
        from emulator import Instruction, execute, gemm
        ins = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
        registers = [np.zeros((32, n), np.uint32) for n in (4, 2, 4)]
        execute(ins, *registers, target="sm_90a")
        gemm(np.ones((64, 64), "f2"), np.ones((64, 64), "f2"), instruction=ins, target="sm_80")
        optional = {"numba", "dask", "distributed", "tqdm", "torch"}
        print(sorted(optional & set(sys.modules)))
    """)
    assert out == ["[]"]


def test_a_numba_that_does_not_import_is_none():
    """The usual ImportError of Numba after an upgrade of NumPy."""
    out = run_python(
        """
        import importlib.abc, importlib.machinery, sys
        class Broken(importlib.abc.MetaPathFinder, importlib.abc.Loader):
            def find_spec(self, name, path, target=None):
                if name == "numba":
                    return importlib.machinery.ModuleSpec(name, self)
            def create_module(self, spec):
                return None
            def exec_module(self, module):
                raise ImportError("Numba needs NumPy 2.2 or less. Got NumPy 9.9.")
        sys.meta_path.insert(0, Broken())
        from emulator import OperandError
        from emulator.arith.engines import choose
        try:
            choose("compiled", 1)
        except OperandError as error:
            assert "NumPy 2.2 or less" in str(error), error
            print(choose("auto", 1 << 40), choose("auto", 1 << 41))
    """,
        said=r"Numba does not work here \(ImportError: Numba needs NumPy 2\.2 or less",
    )
    assert out == ["vector", "vector"]


#: a product large enough for "auto" to start Numba, and one of bits, which compiles quickly
LARGE = """
    import numpy as np
    from emulator import gemm, mma
    from emulator.arith import engines
    engines._WORTH_STARTING = 1
    ones = np.ones((1, 8, 128), np.uint8)
    b1 = "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc"
    for _ in range(2):
        d = mma(b1, ones, ones.swapaxes(1, 2), target="sm_90a", codes=True)
        print(d[0, 3, 3], engines.choose("auto", 1 << 40))
"""


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"NUMBA_DISABLE_JIT": "1"}, "RuntimeError: NUMBA_DISABLE_JIT is set"),
        ({"NUMBA_NUM_THREADS": "0"}, "ValueError: Number of threads"),
        ({"NUMBA_THREADING_LAYER": "none such"}, "ValueError: The threading layer"),
    ],
)
def test_a_numba_that_does_not_work_is_done_without(setting, why):
    pytest.importorskip("numba")
    said = rf"Numba does not work here \({why}.*\): engine 'vector' computes the same"
    assert run_python(LARGE, said, **setting) == ["128", "vector"] * 2


def test_a_damaged_cache_is_done_without(tmp_path):
    pytest.importorskip("numba")
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert run_python(LARGE, **cache) == ["128", "compiled"] * 2
    indices = list(tmp_path.rglob("*popcount_tasks*.nbi"))
    assert indices
    for index in indices:
        index.write_bytes(b"")
    said = r"Numba does not work here \(EOFError: .*\): engine 'vector' computes the same"
    assert run_python(LARGE, said, **cache) == ["128", "vector"] * 2


def test_no_folder_for_the_cache(tmp_path):
    """A read-only installation, and a home that is no folder."""
    pytest.importorskip("numba")
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("emulator", "dtypes"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignore)
    # A file in its place: root may write to read-only folders.
    (tmp_path / "emulator" / "arith" / "__pycache__").write_text("")
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "IPYTHONDIR"), os.devnull)
    said = r"compiled code cannot be kept on disk \(cannot cache function .*NUMBA_CACHE_DIR"
    out = run_python(
        LARGE, said, path=[tmp_path, *sys.path], PYTHONDONTWRITEBYTECODE="1", **nowhere
    )
    assert out == ["128", "compiled"] * 2


def test_a_mistake_of_the_caller_gives_no_engine_up(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(engines, "_WORTH_STARTING", 1)
    a, b = np.ones((3, 16, 16), np.float16), np.ones((4, 16, 8), np.float16)
    with pytest.raises(OperandError, match="batch axes do not broadcast"):
        gemm(a, b, instruction=F16, target="sm_80")
    assert not engines._broken and engines.choose("auto", 1 << 40) == "compiled"


# --- names of engines -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: execute("movmatrix.sync.aligned.m8n8.trans.b16", WORDS[:, :1],
                               target="sm_90a", engine=engine),
        lambda engine: execute("cvt.rn.f16x2.f32", WORDS, WORDS, target="sm_90a", engine=engine),
        lambda engine: execute(F16, WORDS, WORDS[:, :2], WORDS, target="sm_90a", engine=engine),
        lambda engine: mma(F16, A, B, target="sm_90a", engine=engine),
        lambda engine: gemm(A, B, instruction=F16, target="sm_90a", engine=engine),
        lambda engine: gemm(A[:0], B, instruction=F16, target="sm_90a", engine=engine),
        lambda engine: Warp("sm_90a", engine=engine),
        lambda engine: Warpgroup("sm_90a", engine=engine),
        lambda engine: next(iter(tensor_core_dot("sm_90a", engine=engine).gen)),
        lambda engine: replay(next(recordings("h200_cvt")).head(1), engine),
        lambda engine: replay(next(recordings("h200_wmma")).head(1), engine),
        lambda engine: selftest_command(engine),
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ("bogus", None, 1))
def test_no_such_engine_anywhere(call, engine):
    with pytest.raises(OperandError, match=r"no engine .*; engines are auto, reference, vector"):
        call(engine)
