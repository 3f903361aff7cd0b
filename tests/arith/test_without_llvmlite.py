"""Life without llvmlite, and with one that does not work or has no place to keep its code."""

import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from emulator import OperandError, Warp, Warpgroup, execute, gemm, mma
from emulator.adapters.triton_interpreter import tensor_core_dot
from emulator.arith import engines
from emulator.tools.recordings import recordings
from emulator.tools.replay import replay, selftest_command

pytestmark = pytest.mark.sampled(4)

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WORDS = np.zeros((32, 4), np.uint32)
A, B = np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16)


@pytest.fixture
def no_llvmlite(monkeypatch):
    """As on a machine that does not have it."""
    for name in [x for x in sys.modules if x.partition(".")[0] == "llvmlite"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("compiled", "emitter", "words", "kernels.machine_code"):
        monkeypatch.delitem(sys.modules, f"emulator.arith.fast.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    engines._missing.cache_clear()
    engines.say_slow.cache_clear()
    yield
    engines._missing.cache_clear()


def test_compiled_needs_llvmlite(no_llvmlite):
    ones = np.ones((16, 16), np.float16)
    with pytest.raises(OperandError, match=r"'compiled' needs llvmlite.*pip install .*'vector'"):
        gemm(ones, ones, instruction=F16, target="sm_80", engine="compiled")
    assert gemm(ones, ones, instruction=F16, target="sm_80")[0, 0] == 16


def test_heavy_work_says_once_that_it_would_be_faster_with_llvmlite(no_llvmlite, caplog):
    assert engines.choose("auto", 1 << 20) == "vector" and not caplog.records
    for _ in range(2):
        assert engines.choose("auto", 1 << 40) == "vector"
    (said,) = caplog.messages
    assert "llvmlite is not installed" in said and "20 times" in said and "`fast`" in said


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


def test_small_work_never_imports_llvmlite():
    out = run_python("""
        import sys
        import numpy as np
        import emulator
        from emulator import Instruction, execute, gemm
        ins = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
        registers = [np.zeros((32, n), np.uint32) for n in (4, 2, 4)]
        execute(ins, *registers, target="sm_90a")
        gemm(np.ones((64, 64), "f2"), np.ones((64, 64), "f2"), instruction=ins, target="sm_80")
        optional = {"llvmlite", "dask", "distributed", "tqdm", "torch"}
        print(sorted(optional & set(sys.modules)))
    """)
    assert out == ["[]"]


def test_an_llvmlite_that_does_not_import_is_none():
    """A library that does not load."""
    out = run_python(
        """
        import importlib.abc, importlib.machinery, sys
        class Broken(importlib.abc.MetaPathFinder, importlib.abc.Loader):
            def find_spec(self, name, path, target=None):
                if name == "llvmlite":
                    return importlib.machinery.ModuleSpec(name, self)
            def create_module(self, spec):
                return None
            def exec_module(self, module):
                raise ImportError("libllvmlite.so: cannot open shared object file")
        sys.meta_path.insert(0, Broken())
        from emulator import OperandError
        from emulator.arith.engines import choose
        try:
            choose("compiled", 1)
        except OperandError as error:
            assert "cannot open shared object" in str(error), error
            print(choose("auto", 1 << 40), choose("auto", 1 << 41))
    """,
        said=r"llvmlite does not work here \(ImportError: libllvmlite\.so: cannot open",
    )
    assert out == ["vector", "vector"]


#: a product large enough for "auto" to start LLVM, and one of bits, which compiles quickly
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


def test_no_folder_for_the_cache():
    """A home that is no folder: code is compiled in each process."""
    pytest.importorskip("llvmlite")
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "EMULATOR_CACHE_DIR"), os.devnull)
    assert run_python(LARGE, **nowhere) == ["128", "compiled"] * 2


def test_a_mistake_of_the_caller_gives_no_engine_up(monkeypatch):
    pytest.importorskip("llvmlite")
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
