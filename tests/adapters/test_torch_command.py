"""``python -m emulator torch`` and the fixture `tensor_cores`."""

import sys

import numpy as np
import pytest
from commands import answer, refusal
from plugin_runs import run_with_plugin

pytest.importorskip("torch")
pytest_plugins = "pytester"

SCRIPT = """
import sys, torch
a = torch.ones(64, 64).half()
print((a @ a).amax().item(), sys.argv[1:], __name__)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_a_script_runs_and_its_products_are_listed(script, capsys):
    before = list(sys.argv), list(sys.path)
    said = answer(capsys, "torch", script, "one", "two", "--target", "H100")
    assert said[0] == "64.0 ['one', 'two'] __main__"
    assert said[1] == "1 matrix product as on H100: 1 modelled"
    assert (sys.argv, sys.path) == before


def test_a_script_may_end_itself(tmp_path, capsys):
    path = tmp_path / "end.py"
    path.write_text("import sys; sys.exit(0)")
    assert "none ran" in answer(capsys, "torch", path, "--target", "A100")[0]
    path.write_text("import sys; sys.exit(3)")
    with pytest.raises(SystemExit, match="3"):
        answer(capsys, "torch", path, "--target", "A100")


def test_refusals(script, tmp_path, capsys):
    path = tmp_path / "convolution.py"
    path.write_text(
        "import torch; torch.nn.functional.conv1d(torch.ones(1, 1, 5), torch.ones(1, 1, 3))"
    )
    said = refusal(capsys, "torch", path, "--target", "H100", "--strict")
    assert "strict=True: convolution" in said
    assert "cannot read" in refusal(capsys, "torch", "missing.py", "--target", "H100")
    assert "no target 'H10'" in refusal(capsys, "torch", script, "--target", "H10")


@pytest.mark.parametrize(
    "content, said",
    [
        (b"x = 1\ny = (", ", line 2: '(' was never closed"),
        (b'x = "\xff"', "no Python script"),
        (b"\x7fELF\xff\0", "null bytes"),
        (None, "no Python script"),
    ],
)
def test_what_is_no_script(tmp_path, capsys, content, said):
    """An archive, too, which Python takes for a folder of modules."""
    path = tmp_path / "script.npz"
    if content is None:
        np.savez(path, A=np.zeros(3))
    else:
        path.write_bytes(content)
    assert said in refusal(capsys, "torch", path, "--target", "H100")


TESTS = """
import pytest, torch

a = torch.ones(64, 64).half()

def test_of_an_h100(tensor_cores):
    a @ a
    assert tensor_cores.target == "sm_90a" and len(tensor_cores) == 1

@pytest.mark.tensor_cores("A100")
def test_of_a_mark(tensor_cores):
    a @ a
    assert tensor_cores.target == "sm_80"

@pytest.mark.tensor_cores("A99")
def test_of_a_wrong_name(tensor_cores):
    pass

def test_without():
    a @ a
"""


def test_the_fixture(pytester, monkeypatch):
    pytester.makepyfile(TESTS)
    result = run_with_plugin(pytester, monkeypatch)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*tensor_cores: no target 'A99'*"])
