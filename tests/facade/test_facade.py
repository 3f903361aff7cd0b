"""What `emulator` offers by name: lazy exports, the version, types for those who import it."""

import ast
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from paths import ROOT

import emulator

#: calls whose types a strict checker must know: a checker that took emulator for untyped would
#: find no fault in the wrong ones
DOWNSTREAM = """
import numpy as np

from emulator import (
    FORMATS, TARGETS, Descriptor, EmulatorError, Instruction, KernelError, Memory, Module, Page,
    Recipe, StoredTile, TensorMap, Warp, Warpgroup, __version__, compare, compress, decompress,
    execute, explain, find_faults, gemm, load_tile, mma, needed_descriptor, store_tile,
)
from emulator.testing import Inputs, all_forms, assert_bits_equal, lane_unique


def first_lane(opcode: str, target: str) -> int:
    ins = Instruction.parse(opcode)
    a = ins.fragment("a").scatter(np.zeros((16, 16), np.uint16))
    d = execute(ins, a, ins.fragment("b").zeros(), ins.fragment("c").zeros(), target=target)
    assert_bits_equal(d, d, fragment=ins)
    return ins.m + ins.fragment("d").lane(0, 0).lane


def run(text: str) -> str:
    memory = Memory()
    memory.map(0x1000, np.zeros(4, np.float32))
    try:
        report = Module(text, target="H100")["kernel"].launch(1, 32, memory=memory)
    except KernelError as error:
        return f"{error.kind} {error.line}"
    except EmulatorError as error:
        return str(error)
    return "".join(report.printed)


def statements(text: str) -> list[int]:
    warp = Warp(target="sm_80")
    warp.run(text)
    return [int(word) for word in warp.registers["%r0"].values]


A, B = np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16)
shown: str = explain("m16n8k16.f32.f16.f16.f32", A, B, row=0, col=0, target="H100").text()
length: int = len(__version__)
"""
WRONG = """
from emulator import Instruction, Module

Instruction.parse(3)
Module("text").launch(1, 32)
"""


def test_what_is_imported_late_is_what_type_checkers_see():
    stub = ast.parse((ROOT / "emulator/__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: node.module for node in imports for alias in node.names}
    assert seen == emulator._MODULES
    assert sorted(seen) == emulator.__all__


@pytest.mark.parametrize("name", emulator.__all__)
def test_every_public_name_is_there(name):
    assert getattr(emulator, name) is not None
    assert name in dir(emulator)


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Modul'"):
        emulator.Modul  # noqa: B018


def test_the_version_stands_in_one_place():
    assert emulator.__version__.count(".") == 2
    assert 'version = "' not in (ROOT / "pyproject.toml").read_text().split("[tool.", 1)[0]
    try:
        installed = version("ptx-mma-emulator")
    except PackageNotFoundError:
        return
    assert installed == emulator.__version__


@pytest.mark.parametrize("package", ["emulator", "dtypes"])
def test_packages_say_that_they_have_types(package):
    assert (ROOT / package / "py.typed").read_bytes() == b""


def mypy(tmp_path, source):
    (tmp_path / "downstream.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "downstream.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.slow
def test_a_strict_checker_knows_the_types_downstream(tmp_path):
    pytest.importorskip("mypy")
    right = mypy(tmp_path, DOWNSTREAM)
    assert right.returncode == 0, right.stdout
    wrong = mypy(tmp_path, WRONG)
    assert 'Argument 1 to "parse" of "Instruction"' in wrong.stdout
    assert 'Module has no attribute "launch"' in wrong.stdout


@pytest.mark.slow
def test_the_wheel_has_types_guide_pictures_and_licences(tmp_path):
    import zipfile

    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)],
        check=True, timeout=600,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"ptx_mma_emulator-{emulator.__version__}-")
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    for name in (
        "emulator/py.typed", "dtypes/py.typed", "emulator/guide/kernels.md",
        "emulator/tools/pictures/page.css", "emulator/golden/h200_dense.npz",
    ):  # fmt: skip
        assert name in names, name
    licences = [name for name in names if ".dist-info/licenses/" in name]
    assert sorted(Path(name).name for name in licences) == ["LICENCE.dots", "LICENSE"]
    assert not [name for name in names if name.endswith((".nbi", ".nbc", ".pyc"))]
    # What `emulator.testing` names as its plugin is there, under whatever name.
    archive.extractall(tmp_path / "site")
    code = "import emulator.testing as t; __import__(t.pytest_plugins[0]); print(t.__file__)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
    )  # fmt: skip
    assert run.stdout.startswith(str(tmp_path)), run.stderr
