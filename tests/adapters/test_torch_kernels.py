"""The PTX of PyTorch's kernels is what nvcc makes of the source beside it."""

import shutil
import subprocess
from pathlib import Path

import pytest

import emulator

KERNELS = Path(emulator.__file__).parent / "tools" / "pytorch" / "kernels"


@pytest.mark.slow
@pytest.mark.parametrize("source", sorted(KERNELS.glob("*.cu")), ids=lambda path: path.stem)
def test_the_ptx_is_that_of_its_source(tmp_path, source):
    nvcc = shutil.which("nvcc") or pytest.skip("no nvcc")
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    if "release 13.0" not in version:
        pytest.skip("the files are nvcc 13.0's")
    made = tmp_path / "made.ptx"
    command = [nvcc, "-arch=compute_75", "-ptx", "-std=c++17", "-o", made, source]
    subprocess.run(command, check=True)

    def code(path):
        return [x for x in path.read_text().splitlines() if not x.startswith("//")]

    assert code(made) == code(source.with_suffix(".ptx"))
