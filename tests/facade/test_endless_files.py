"""A file that never ends, or waits for a writer, is refused at once wherever a path is read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from emulator import Module, OperandError, reading
from emulator.tools.files import read_array, read_npz, read_text

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes")
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
COMMANDS = {
    "launch": ("launch", "FILE", "--block", "1"),
    "check": ("check", "FILE", "--block", "1"),
    "launch of CUDA C++": ("launch", "FILE.cu", "--block", "1"),
    "an argument": ("launch", "-", "--block", "1", "--arg", "FILE.npy"),
    "run": ("run", "FILE"),
    "registers of run": ("run", "-", "--registers", "FILE"),
    "fault": ("fault", MMA, "--target", "sm_80", "--input", "FILE"),
    "explain": ("explain", MMA, "--target", "sm_80", "--row", "0", "--col", "0", "--input", "FILE"),
    "torch": ("torch", "FILE", "--target", "H100"),
}
PTX = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(){ ret; }\n"


def answer(words, standard_input=None):
    """(exit code, standard error) of a command, which has 1 GiB of memory to read into."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
        "from emulator.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True,
        timeout=60, check=False, **(standard_input or {"input": PTX}),
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.fixture(params=["a device", "a pipe"])
def endless(request, tmp_path):
    """A path to something endless; with any suffix, another."""

    def make(suffix=""):
        path = tmp_path / f"endless{suffix}"
        if request.param == "a pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
        return path, request.param

    return make


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_commands_refuse_what_is_no_file(command, endless):
    (word,) = [word for word in command if word.startswith("FILE")]
    path, kind = endless(word.removeprefix("FILE"))
    code, error = answer([str(path) if x == word else x for x in command])
    assert code == 2 and f"it is {kind}, not a file" in error and "Traceback" not in error


def test_a_launch_from_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "x.ptx")
    code, error = answer(["launch", str(tmp_path / "x.ptx"), "--block", "1"])
    assert code == 2 and "it is a pipe, not a file: write its content to a file" in error


@pytest.mark.slow
def test_endless_standard_input_is_refused():
    with Path("/dev/zero").open() as zeros:
        code, error = answer(["launch", "-", "--block", "1"], {"stdin": zeros})
    assert code == 2 and "standard input: it has more than 268,435,456 bytes" in error


@pytest.mark.parametrize("read", [Module, read_text, read_npz, read_array])
def test_readers_refuse_what_is_no_file(read, endless):
    path, kind = endless(".ptx")
    with pytest.raises(OperandError, match=f"cannot read .*: it is {kind}, not a file"):
        read(str(path))


def test_the_length_of_a_text_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "x.ptx"
    path.write_text(PTX)
    assert reading.read_bytes(path, len(PTX)) == PTX.encode()
    with pytest.raises(OperandError, match=f"it has more than {len(PTX) - 1} bytes"):
        reading.read_bytes(path, len(PTX) - 1)
    with path.open("wb") as out:
        out.truncate(reading.TEXT_LIMIT + 1)
    for read in (Module, read_text):
        with pytest.raises(OperandError, match="it has more than 268,435,456 bytes"):
            read(str(path))


def test_a_page_leaves_out_source_files_that_never_end(endless):
    path, _ = endless(".cu")
    text = PTX.replace("{ ret; }", "{\n.loc 1 1 0\nret; }") + f'.file 1 "{path}"\n'
    report = Module(text)["k"].launch(1, 1, counters=True)
    assert "endless.cu" in report.html()
