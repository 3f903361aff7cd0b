"""``record``: the script runs on the simulated driver, and golden files tell what differs."""

import base64
import json
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from commands import answer, refusal
from paths import ROOT
from plugin_runs import run_with_plugin
from test_launch_command import LOAD, SCALE

from emulator.__main__ import main

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(
    not shutil.which("cc") and not shutil.which("gcc"), reason="exec needs a C compiler"
)
ARRAYS = ["--arg", "x.npy", "--arg", "zeros:f4:8x8"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scale.ptx").write_text(SCALE)
    np.save("x.npy", np.arange(64, dtype="f4"))
    return tmp_path


def on_gpu(script, *words, gpu="A100"):
    """Runs a script on the simulated driver, as a user does on a machine with a GPU."""
    command = [sys.executable, "-m", "emulator", "exec", "--gpu", gpu, "--", sys.executable, script]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [*command, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def packed(array):
    return base64.b64encode(zlib.compress(array.tobytes())).decode()


@pytest.fixture
def golden(folder):
    """What the script of a kernel writes on an A100."""
    words = ["record", "scale.ptx", "--grid", "2", "--block", "32", *ARRAYS, "--arg", "2.5"]
    assert main([*words, "-o", "scale.py"]) == 0
    done = on_gpu("scale.py", "scale.json")
    assert done.returncode == 0, done.stderr
    return json.loads(Path("scale.json").read_text())


def test_a_kernel_is_recorded_and_compared(golden, capsys):
    about = golden["provenance"]
    assert about["compute capability"] == "8.0" and "A100" in about["gpu"]
    y = np.frombuffer(zlib.decompress(base64.b64decode(golden["outputs"][1])), "f4")
    assert (y == 2.5 * np.arange(64)).all()
    assert golden["job"]["ptx"] == SCALE
    capsys.readouterr()
    (line,) = answer(capsys, "selftest", "scale.json")
    assert line.startswith("scale.json: 2 of 2 arrays bit-identical to NVIDIA A100")
    y = y.copy()
    y.view("u4")[5] ^= 1
    golden["outputs"][1] = packed(y)
    Path("off.json").write_text(json.dumps(golden))
    assert main(["selftest", "scale.json", "off.json"]) == 1
    out = capsys.readouterr().out
    assert "off.json: 1 of 2 arrays bit-identical" in out
    assert "y (actual: here, expected: the GPU): 1 of 64 elements of f32 differ (1 ulp: 1)" in out


@pytest.mark.slow
def test_the_fixture_compares_other_kernels_with_the_recording(
    golden, pytester, monkeypatch, folder
):
    shutil.copy(folder / "scale.json", pytester.path)
    pytester.makepyfile(
        f"""
        from emulator import Module
        TEXT = {SCALE!r}

        def test_recorded(recorded):
            recorded("scale.json")

        def test_own(recorded):
            recorded("scale.json", Module(TEXT)["scale"])

        def test_wrong(recorded):
            recorded("scale.json", Module(TEXT.replace("mul.f32", "add.f32"))["scale"])

        def test_absent(recorded):
            recorded("absent.json")
        """
    )
    monkeypatch.chdir(pytester.path)
    result = run_with_plugin(pytester, monkeypatch)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*unlike *scale.json, of NVIDIA A100*", "*absent.json*"])


def test_a_tensor_map_and_its_array(folder, capsys):
    Path("load.ptx").write_text(LOAD)
    words = ["record", "load.ptx", "--arg", "tensormap:arange:f4:6x8:box=2x4"]
    assert main([*words, "--arg", "zeros:f4:2x4", "-o", "load.py"]) == 0
    done = on_gpu("load.py", gpu="H100")
    assert done.returncode == 0, done.stderr
    golden = json.loads(Path("load.json").read_text())
    d = np.frombuffer(zlib.decompress(base64.b64decode(golden["outputs"][1])), "f4")
    assert d.tolist() == [28, 29, 30, 31, 36, 37, 38, 39]
    assert main(["selftest", "load.json"]) == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("opcode", [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32",
])  # fmt: skip
def test_an_instruction_is_recorded(folder, capsys, opcode):
    words = ["record", opcode, "--cases", "6", "--target", "sm_80", "-o", "mma.py"]
    assert main([*words, "--seed", "3"]) == 0
    assert on_gpu("mma.py").returncode == 0
    capsys.readouterr()
    assert "4 of 4 arrays bit-identical" in answer(capsys, "selftest", "mma.json")[0]
    golden = json.loads(Path("mma.json").read_text())
    assert any(zlib.decompress(base64.b64decode(golden["outputs"][0])))


@pytest.mark.slow
def test_results_that_differ_from_run_to_run_are_not_written(folder):
    assert main(["record", "scale.ptx", *ARRAYS, "--arg", "1", "-o", "scale.py"]) == 0
    text = Path("scale.py").read_text()
    again = "again = run(driver, JOB)\n"
    assert text.count(again) == 1
    wrong = "again = [b'', *run(driver, JOB)[1:]]\n"
    Path("scale.py").write_text(text.replace(again, wrong))
    done = on_gpu("scale.py", "out.json")
    assert done.returncode == 1 and "arrays [0] differ from run to run" in done.stderr
    assert not Path("out.json").exists()


def test_without_a_gpu_the_script_says_so(folder):
    assert main(["record", "scale.ptx", *ARRAYS, "--arg", "1", "-o", "scale.py"]) == 0
    done = subprocess.run(
        [sys.executable, "scale.py"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 4 and "no NVIDIA driver here" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["scale.ptx", "--arg", "1"], "scale takes 3 arguments"),
        (["wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"], "a kernel of a dense mma"),
        (["mma.sync.aligned.m16n8k17"], "mma.sync.aligned.m16n8k17"),
        (["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "--cases", "0"], "--cases is 1"),
        (["scale.ptx", *ARRAYS, "--arg", "1", "-o", "scale.ptx"], "is read, too"),
    ],
)
def test_records_that_make_no_sense(folder, capsys, words, said):
    assert said in refusal(capsys, "record", *words)


def test_files_that_are_no_golden_files(folder, capsys):
    job = {"arrays": [{"name": "x", "dtype": "float32", "shape": [4], "data": ""}]}
    about = {"format": 1, "provenance": {}, "job": job}
    for text in (
        "", "[]", '{"format": 2}', json.dumps(about | {"outputs": []}),
        json.dumps(about | {"outputs": [packed(np.zeros(5, "f4"))]}),
        json.dumps(about | {"outputs": ["!!"]}),
    ):  # fmt: skip
        Path("bad.json").write_text(text)
        assert "'bad.json' is no golden file" in refusal(capsys, "selftest", "bad.json")
