"""A generation that targets.py knows and recipes.py does not: it lists, prints and refuses cleanly.

The package is copied and one row is added to the copy, as a developer would add it first.
"""

import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from paths import ROOT

from emulator.targets import FEATURES, LAYERS, TARGETS

#: the end of the table, and the chips added there: a generation without recipes, one without any
#: feature, and a copy of sm_100
END = "    )\n    for target in chip\n"
LATER = '        _chip(130, "later", 100, 227, plain=(9, 5), exact=(9, 5)),\n'
BARE = '        _chip(131, "later", 0, 227, plain=(9, 5), exact=(9, 5)),\n'


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs Python, or a command of the emulator, with targets sm_130, sm_131 and sm_140 added."""
    folder = tmp_path_factory.mktemp("package")
    for package in ("emulator", "dtypes"):
        shutil.copytree(ROOT / package, folder / package)
    table = folder / "emulator" / "targets.py"
    text = table.read_text()
    assert text.count(END) == 1
    copied = re.search(r" {8}_chip\(100,.*?\),\n(?= {8}_chip)", text, re.DOTALL)[0]
    copied = copied.replace("_chip(100,", "_chip(140,")
    table.write_text(text.replace(END, LATER + BARE + copied + END))

    def go(*arguments, code=0):
        here = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run(
            [sys.executable, "-W", "error", *arguments], cwd=folder, env=here,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout or done.stderr

    return go


def test_every_feature_is_asked_for_by_a_row_and_had_by_a_target():
    # The tables in targets.py and the rows of emulator.isa name the same features.
    source = "".join(p.read_text() for p in (ROOT / "emulator").rglob("*.py"))
    had = frozenset().union(*(target.features for target in TARGETS.values()))
    layers = {f"sm_{n}" for n in LAYERS}
    assert had == {*FEATURES, *layers}
    names = re.findall(r'"([\w.:]+)"', "".join(re.findall(r"having\([^)]*\)", source)))
    names += re.findall(r'"(\S+)" (?:not )?in \S+\.features', source)
    assert set(FEATURES) <= set(names), set(FEATURES) - set(names)


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


def test_a_target_has_no_feature_that_it_does_not_name_and_a_copy_has_all(run):
    out = run(
        "-c",
        textwrap.dedent("""
        from emulator.isa import catalogue, tcgen05
        from emulator.isa.ordinary import instruction
        ordinary = [*instruction.expand()]
        forms = [*catalogue.instructions(), *ordinary[:: len(ordinary) // 3000], *tcgen05.expand()]
        for place, ins in enumerate(forms):
            targets = set(ins.targets)
            assert not targets & {"sm_131", "sm_131a"}, ins
            for suffix in ("", "a", "f"):
                assert ("sm_140" + suffix in targets) == ("sm_100" + suffix in targets), ins
                if place % 10 == 0 and "sm_100" + suffix in targets:
                    one, other = (ins.signatures("sm_%d%s" % (n, suffix)) for n in (100, 140))
                    assert one == other, ins
        print(len(forms))
    """),
    )
    assert int(out) > 5000


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
