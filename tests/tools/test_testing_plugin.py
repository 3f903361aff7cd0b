"""The pytest plugin, in runs of pytest of its own: golden files, forms, and how it is loaded."""

import os
import re
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest
from paths import ROOT

from emulator import Instruction, OperandError, UnsupportedError
from emulator.testing import all_forms
from emulator.tools.testing.golden_arrays import read_golden, write_golden

pytestmark = pytest.mark.sampled(6)

pytest_plugins = ["pytester"]

TEST = """
    import numpy as np

    def test_d(golden):
        golden(d=np.arange(4, dtype="f4"))
"""


@pytest.fixture
def run(pytester):
    """Runs pytest in the folder of `pytester`, with the plugin; warnings are errors."""

    def run(*arguments):
        return pytester.runpytest_inprocess(
            "-p", "emulator.testing", "-W", "error", "--strict-markers", "-p", "no:cacheprovider",
            # It would import and rewrite all of Hypothesis once for each of these runs.
            "-p", "no:hypothesispytest", *arguments,
        )  # fmt: skip

    return run


# --- golden files ---------------------------------------------------------------------------------


def test_a_missing_file_fails_and_says_how_to_make_it(pytester, run):
    pytester.makepyfile(test_k=TEST)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["no golden file *golden*test_k.test_d.npz",
         "to make it *: pytest test_k.py::test_d --update-golden"]
    )  # fmt: skip
    assert not (pytester.path / "golden").exists()


def test_update_writes_and_the_next_run_compares(pytester, run):
    pytester.makepyfile(test_k=TEST)
    result = run("--update-golden")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["golden files: 1 written"])
    assert [x.name for x in (pytester.path / "golden").iterdir()] == ["test_k.test_d.npz"]
    run().assert_outcomes(passed=1)


def test_a_planted_change_fails(pytester, run):
    pytester.makepyfile(test_k=TEST)
    run("--update-golden")
    pytester.makepyfile(test_k=TEST.replace("arange(4", "-np.arange(4").replace("np.-np", "-np"))
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["unlike *test_k.test_d.npz",
         "d: 4 of 4 elements of f32 differ (number sign: 3, zero sign: 1)", "first at [[]0]",
         "recorded with test test_k.py::test_d, emulator *, numpy *",
         "if the change is meant: pytest test_k.py::test_d --update-golden"]
    )  # fmt: skip
    run("--update-golden").stdout.fnmatch_lines(["golden files: 1 written"])
    run().assert_outcomes(passed=1)


def test_an_update_without_a_change_leaves_the_file_alone(pytester, run):
    pytester.makepyfile(test_k=TEST)
    run("--update-golden")
    path = pytester.path / "golden" / "test_k.test_d.npz"
    os.utime(path, (1, 1))
    run("--update-golden").stdout.fnmatch_lines(["golden files: 1 unchanged"])
    assert path.stat().st_mtime == 1


def test_arrays_that_are_new_lost_or_of_another_type(pytester, run):
    pytester.makepyfile(test_k=TEST)
    run("--update-golden")
    pytester.makepyfile(test_k=TEST.replace("d=np", "e=np"))
    run().stdout.fnmatch_lines(
        ["'d' is in the file, the test did not give it", "'e' is not in the file"]
    )
    pytester.makepyfile(test_k=TEST.replace('"f4"', '"f8"'))
    run().stdout.fnmatch_lines(
        ["d: types differ: actual is float64 (4,), expected is float32 (4,)"]
    )
    pytester.makepyfile(test_k=TEST.replace("arange(4", "arange(5"))
    run().stdout.fnmatch_lines(["d: shapes differ: *"])


def test_several_files_of_parametrised_tests_and_provenance(pytester, run):
    pytester.makepyfile(
        test_k="""
        import ml_dtypes, numpy as np, pytest
        from emulator import Instruction

        INS = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")

        class TestIt:
            @pytest.mark.parametrize("name", ["a/b", "a:b"])
            def test_d(self, golden, name):
                golden.provenance["target"] = "sm_90a"
                golden(x=np.array([1, 2], ml_dtypes.bfloat16), y=np.float64(3), z=[1, 2])
                golden("registers", INS, d=np.full((32, 4), len(name), np.uint32))
        """
    )
    run("--update-golden").assert_outcomes(passed=2)
    run().assert_outcomes(passed=2)
    files = sorted((pytester.path / "golden").iterdir())
    assert len(files) == 4
    assert all(re.fullmatch(r"[\w.\[\]-]+\.npz", x.name) for x in files)
    golden = read_golden(next(x for x in files if "registers" not in x.name))
    assert golden.provenance["target"] == "sm_90a"
    assert golden.provenance["test"].startswith("test_k.py::TestIt::test_d[a")
    assert golden.arrays["x"].dtype.name == "bfloat16"
    assert golden.arrays["y"].shape == ()

    source = pytester.path / "test_k.py"
    source.write_text(source.read_text().replace("len(name)", "2 * len(name)"))
    run().stdout.fnmatch_lines(["first at lane 0, register 0, bits 0…31, D[[]0][[]0]"])


def test_policies_of_a_golden_file(pytester, run):
    pytester.makepyfile(test_k=TEST)
    run("--update-golden")
    pytester.makepyfile(test_k=TEST.replace("np.arange(4", "-0. + np.arange(4").replace(
        "        golden(", "        golden.signed_zero = 'equal'\n        golden("))  # fmt: skip
    run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("golden()", "golden() got no arrays*"),
        ("golden(d=1); golden(d=1)", "*test_k.test_d.npz is used twice in this test*"),
        ("golden(d=[None])", "array 'd' has elements of type object; golden files hold numbers"),
        ("golden(**{'a b': 1})", "the name of an array is a Python name; got 'a b'"),
    ],
)
def test_wrong_calls(pytester, run, call, words):
    pytester.makepyfile(test_k=f"def test_d(golden):\n    {call}\n")
    result = run("--update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([words])


def test_a_damaged_file_is_named(pytester, run):
    pytester.makepyfile(test_k=TEST)
    run("--update-golden")
    path = pytester.path / "golden" / "test_k.test_d.npz"
    path.write_bytes(path.read_bytes()[:100])
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_k.test_d.npz' is no .npz file of arrays *--update-golden*"])
    run("--update-golden").assert_outcomes(passed=1)
    run().assert_outcomes(passed=1)


def test_files_hold_no_pickles_and_are_never_half_written(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    assert write_golden(path, {"d": np.arange(3)}, {"by": "me"})
    with zipfile.ZipFile(path) as file:
        assert sorted(file.namelist()) == ["about.json.npy", "d.npy"]
    with np.load(path, allow_pickle=False) as file:
        assert file["d"].tolist() == [0, 1, 2]
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(OperandError, match=r"cannot write .*no space"):
        write_golden(path, {"d": np.arange(4)}, {})
    assert path.read_bytes() == before
    assert [x.name for x in tmp_path.iterdir()] == ["x.npz"]


def test_a_file_with_a_pickle_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", d=np.array([None]))
    with pytest.raises(OperandError, match=r"'d' of .*x\.npz' holds Python objects; .* --update"):
        read_golden(tmp_path / "x.npz")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x93NUMPY\x01", b"PK\x03\x04"])
def test_what_is_no_npz_is_said_without_advice_to_load_pickles(tmp_path, content):
    file = tmp_path / "x.npz"
    file.write_bytes(content)
    with pytest.raises(OperandError, match=r"x\.npz' is .*; --update") as caught:
        read_golden(file)
    assert "pickle" not in str(caught.value)


# --- forms ----------------------------------------------------------------------------------------


def test_the_mark_runs_a_test_for_each_form(pytester, run):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.all_forms(target="H100", family="wgmma", type="f16")
        def test_sample(instruction):
            assert instruction.n in (8, 136, 256)

        @pytest.mark.all_forms(target="sm_80", family="movmatrix")
        @pytest.mark.parametrize("x", [1, 2])
        class TestMore:
            @pytest.mark.all_forms(target="sm_80", family="mma", type="f64")
            def test_both(self, instruction, x):
                assert "sm_80" in instruction.targets
        """
    )
    result = run("-v")
    # wgmma with f16 somewhere: three N, of f16 to f16 and f32, and of four pairs of fp8 to f16.
    # f64: m8n8k4, four rounding modes. The one movmatrix comes from the class.
    result.assert_outcomes(passed=3 * (2 + 4) + 2 * (4 + 1))
    result.stdout.fnmatch_lines(
        ["*::test_sample[[]wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16[]] PASSED*"]
    )


@pytest.mark.parametrize(
    ("mark", "argument", "words"),
    [
        ("target='sm_99'", "instruction", "*all_forms: no target 'sm_99'; *nearest is 'sm_90'*"),
        ("families=1", "instruction", "*all_forms: *unexpected keyword argument 'families'*"),
        ("'sm_90a'", "", "*a test with the mark all_forms takes `instruction`"),
    ],
)
def test_a_wrong_mark_is_an_error_of_collection(pytester, run, mark, argument, words):
    pytester.makepyfile(
        f"import pytest\n@pytest.mark.all_forms({mark})\ndef test_x({argument}): pass\n"
    )
    result = run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([words])
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"family": "mmma"}, OperandError, "no family 'mmma'; .* nearest is 'mma'"),
        ({"family": ""}, OperandError, "no family ''"),
        ({"type": "f17"}, OperandError, "no type 'f17'; .* nearest is 'f16'"),
        ({"n": "some"}, OperandError, "n= is 'sample', 'all' or the values of N; got 'some'"),
        ({"n": 8}, OperandError, "n= is 'sample', 'all' or the values of N; got 8"),
        ({"target": "H1000"}, UnsupportedError, "no target 'H1000'; .* nearest is 'h100'"),
        (
            {"target": "sm_80", "family": "wgmma"},
            UnsupportedError,
            "no instruction has target sm_80, family wgmma",
        ),
    ],
)
def test_no_form_is_an_error(asked, error, words):
    with pytest.raises(error, match=words):
        all_forms(**asked)


def test_the_number_of_forms_is_that_of_the_manual():
    """N of wgmma: multiples of 8 up to 256, of integers and bits 8, 16, 24, 32, 48 … (9.7.15)."""
    n, integer_n = 32, 3 + 15
    floats = n * (2 + 1 + 1 + 2 * 2 * 2)  # f16 to f16 and f32, bf16, tf32, pairs of fp8 to both
    integers = integer_n * 2 * 2 * 2  # pairs of s8 and u8, with and without .satfinite
    assert len(all_forms("sm_90a", family="wgmma", n="all")) == floats + integers + integer_n
    assert len(all_forms("sm_90a", family="wgmma.sp", n="all")) == floats + integers
    assert len(all_forms("sm_90a", family="wgmma", n=[64])) == 12 + 8 + 1
    # A sample has three N of everything.
    assert len(all_forms("sm_90a", family="wgmma")) == 3 * (12 + 8 + 1)


def test_the_number_of_mma_forms_of_turing():
    """m8n8k4 in 4 layouts of 3 accumulator pairs; m16n8k8 f16 in 2; m8n8k16 and m8n8k32 integers in
    4 pairs, saturated or not; b1.xor (9.7.14.5 and its "target ISA notes")."""
    assert len(all_forms("sm_75", family="mma")) == 4 * 3 + 2 + 2 * 4 * 2 + 1


def test_all_forms_are_of_the_target_and_unlike():
    forms = all_forms("sm_120a")
    assert all("sm_120a" in ins.targets for ins in forms)
    assert len(set(map(str, forms))) == len(forms)
    assert Instruction.parse(
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
    ) in all_forms(type="e2m1", family="mma")


# --- loading --------------------------------------------------------------------------------------


def installed(folder):
    """What an installation adds to a path: the entry points of pyproject.toml, and their files."""
    text = (ROOT / "pyproject.toml").read_text()
    ((name, module),) = re.findall(r"\[project\.entry-points\.pytest11\]\n(\S+) = (\S+)\n", text)
    name, module = name.strip('"'), module.strip('"')
    source = re.search(rf'^"(\S+)" = "{module}\.py"$', text, re.MULTILINE)[1]
    about = folder / "ptx_mma_emulator-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ptx-mma-emulator\nVersion: 0\n")
    (about / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    (about / "RECORD").write_text(f"{module}.py,,\n")
    (folder / f"{module}.py").write_bytes((ROOT / source).read_bytes())
    return folder


@pytest.mark.parametrize(
    "more", [(), pytest.param(("-p", "emulator.testing"), marks=pytest.mark.slow)], ids=str
)
def test_the_entry_point_loads_it_without_numpy(pytester, tmp_path, more):
    pytester.makepyfile(
        test_a="""
        import sys

        def test_nothing_heavy_is_loaded():
            assert not {"numpy", "ml_dtypes", "emulator", "dtypes"} & sys.modules.keys()
        """,
        test_b=TEST
        + """
    import pytest

    @pytest.mark.all_forms("sm_80", family="movmatrix")
    def test_form(instruction):
        assert instruction.family == "movmatrix"
    """,
    )
    paths = [str(installed(tmp_path / "site")), str(ROOT)]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "--strict-markers", "--update-golden",
         *more, "test_b.py" if more else "test_a.py"],
        cwd=pytester.path, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert ("golden files: 1 written" in result.stdout) == bool(more)


def test_importing_the_package_loads_neither():
    code = "import sys, emulator.testing; print({'pytest', 'hypothesis'} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == "set()\n", run.stderr


def test_importing_it_needs_neither_pytest_nor_hypothesis():
    code = textwrap.dedent(
        """
        import sys
        sys.modules |= {"pytest": None, "_pytest": None, "hypothesis": None}
        import emulator.testing as t
        t.assert_bits_equal(1, 1)
        try:
            t.codes("f16")
        except ModuleNotFoundError as error:
            print(error)
        """
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert run.stdout == (
        "emulator.testing.codes is a Hypothesis strategy: pip install hypothesis\n"
    ), run.stderr
