"""Blocks of code in README and the guide: how tests find them, and run each alone."""

import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys

import pytest
from paths import ROOT

from emulator.machine import compiling

#: what a block may need that the tests do not install: import -> the package that must be there
OPTIONAL = {
    "torch": "torch",
    "triton": "triton",
    "numba": "numba_cuda",
    "warp": "warp.config",  # tests/warp is found as warp
    "cutlass": "cutlass",
    "tilelang": "tilelang",
}


def blocks(text, language):
    """The blocks of a Markdown text that are said to be in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text):
    """What stands behind ``python -m emulator`` in the shell blocks of a Markdown text."""
    return [
        line.removeprefix("python -m emulator ")
        for block in blocks(text, "sh")
        for line in block.splitlines()
        if line.startswith("python -m emulator ")
    ]


def run_python(code, folder):
    """Runs a block from a file in a folder, with the folder as the working directory.

    What needs packages that not everybody has runs in a process of its own, because some of them
    look at the environment when they are imported; it is skipped where one is missing.
    """
    path = folder / "block.py"
    path.write_text(code, encoding="utf-8")
    imported = re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)
    needed = [OPTIONAL[name] for name in imported if name in OPTIONAL]
    if "from_cuda(" in code and not (compiling._nvcc() or compiling._nvrtc()):
        pytest.skip("no compiler of CUDA C++ is installed")
    if not needed:
        runpy.run_path(str(path))
        return
    for package in needed:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("TRITON_INTERPRET", None)  # of other tests in this process
    subprocess.run([sys.executable, path], cwd=folder, env=environment, check=True, timeout=600)


def run_command(line, capsys):
    """Runs a command line in this process; it must succeed and print something."""
    from emulator.__main__ import main

    capsys.readouterr()
    assert main(shlex.split(line)) == 0
    assert capsys.readouterr().out
