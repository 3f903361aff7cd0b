"""The standard streams of ``python -m emulator``: closed, full, or of another encoding."""

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="streams of a POSIX shell"),
    pytest.mark.sampled(12),
]

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
LANE = f"lane {F16} a 9 3"
ANSWER = "a(9, 3): lane 5, register 1, bits 31:16\n"
FULL = "error: cannot write the output: No space left on device\n"


def shell(words, redirection="", buffered=True, **environment):
    """Exit code, standard output and standard error of a command line."""
    # Unbuffered, a stream that is full says so at once; else when the program ends.
    unbuffered = {} if buffered else {"PYTHONUNBUFFERED": "1"}
    inherited = {x: y for x, y in os.environ.items() if x != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        f'exec "{sys.executable}" -m emulator {words} {redirection}', shell=True,
        capture_output=True, check=False, env=inherited | unbuffered | environment,
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "redirection", "expected"),
    [
        (LANE, "", (0, ANSWER, "")),
        (LANE, "2>&-", (0, ANSWER, "")),
        (LANE, "<&-", (0, ANSWER, "")),
        (LANE, ">&-", (2, "", "error: standard output is closed\n")),
        (LANE, ">&- 2>&-", (2, "", "")),
        (LANE, "<&- >&- 2>&-", (2, "", "")),
        ("--help", ">&-", (2, "", "error: standard output is closed\n")),
        ("list", ">/dev/full", (2, "", FULL)),
        (LANE, ">/dev/full", (2, "", FULL)),
        ("--help", ">/dev/full", (2, "", FULL)),
        (LANE, ">/dev/full 2>/dev/full", (2, "", "")),
        ("lane x a 0 0", "2>/dev/full", (2, "", "")),
        ("lane x a 0 0", "2>&-", (2, "", "")),
        ("lane", "2>&-", (2, "", "")),
        ("lane", "2>/dev/full", (2, "", "")),
        ("run -", "<&-", (2, "", "error: standard input is closed\n")),
        ("list", "| exec head -n 1 >/dev/null", (0, "", "")),
    ],
)
@pytest.mark.parametrize("buffered", [True, False])
def test_streams(words, redirection, expected, buffered):
    assert shell(words, redirection, buffered) == expected


def test_an_encoding_that_lacks_characters():
    code, out, err = shell(f"descriptor 0x1 {WGMMA}", PYTHONIOENCODING="ascii")
    assert (code, err) == (1, "") and "64 rows (n) ? 16 columns" in out and out.isascii()


@pytest.mark.parametrize("words", ["lane x a 0 0", "list --type f61", "run /nowhere"])
def test_mistakes_go_to_standard_error(words):
    code, out, err = shell(words)
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1
