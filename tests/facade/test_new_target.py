"""A generation that targets.py knows and recipes.py does not: it lists, prints and refuses cleanly.

The package is copied and one row is added to the copy, as a developer would add it first.
"""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from paths import ROOT

LAST = '    ("rtx_blackwell", "120 120a 120f 121 121a 121f"),\n'
KIB = '"121": 99,'


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs Python, or a command of the emulator, with targets sm_130 and sm_130a added."""
    folder = tmp_path_factory.mktemp("package")
    for package in ("emulator", "dtypes"):
        shutil.copytree(ROOT / package, folder / package)
    table = folder / "emulator" / "targets.py"
    text = table.read_text()
    for old, new in ((LAST, LAST + '    ("later", "130 130a"),\n'), (KIB, f'{KIB} "130": 227,')):
        assert old in text
        text = text.replace(old, new)
    table.write_text(text)

    def go(*arguments, code=0):
        here = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run(
            [sys.executable, "-W", "error", *arguments], cwd=folder, env=here,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout or done.stderr

    return go


def test_instructions_print_and_leave_it_out(run):
    out = run(
        "-c",
        textwrap.dedent("""
        from emulator.isa.catalogue import instructions
        from emulator.targets import TARGETS
        assert TARGETS["sm_130a"].generation == "later"
        for ins in instructions():
            repr(ins)
            multiplies = hasattr(ins, "recipe")
            assert not (multiplies and "sm_130a" in ins.targets), ins
            for target in ins.targets:
                ins.fidelity(target)
        print(sum("sm_130a" in ins.targets for ins in instructions()) > 50)
    """),
    )
    assert out.split() == ["True"]


def test_what_multiplies_is_refused(run):
    out = run(
        "-c",
        textwrap.dedent("""
        import numpy as np
        from emulator import Instruction, UnsupportedError, Warp, execute, gemm, mma
        ins = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
        a, b = np.ones((16, 16), "f2"), np.ones((16, 8), "f2")
        registers = [np.zeros((32, n), np.uint32) for n in (4, 2, 4)]
        wmma = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
        for call in (
            lambda: execute(ins, *registers, target="sm_130a"),
            lambda: mma(ins, a, b, target="sm_130"),
            lambda: gemm(a, b, instruction=ins, target="sm_130a"),
            lambda: ins.recipe("sm_130a"),
            lambda: ins.fidelity("sm_130a"),
            lambda: Instruction.parse(wmma).recipe("sm_130"),
        ):
            try:
                call()
            except UnsupportedError as error:
                assert "is not available on sm_130" in str(error), error
            else:
                raise AssertionError("it was computed")
        moved = execute("movmatrix.sync.aligned.m8n8.trans.b16", registers[0][:, :1],
                        target="sm_130a")
        print(moved.shape, Warp("sm_130a").target)
    """),
    )
    assert out.split() == ["(32,", "1)", "sm_130a"]


def test_commands(run):
    listed = run("-m", "emulator", "list", "--target", "sm_130a")
    assert "ldmatrix" in listed and "mma.sync" not in listed and "wgmma" not in listed
    told = run("-m", "emulator", "info", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert "sm_130" not in told
    refusal = run(
        "-m", "emulator", "info", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "--target", "sm_130a", code=2,
    )  # fmt: skip
    assert "is not available on sm_130a" in refusal
    assert "sm_130" not in run("-m", "emulator.tools.support")
