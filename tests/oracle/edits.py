"""The package with one text of one file replaced, and whether a file of tests notices."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

from paths import ROOT, TESTS

#: seconds: an edit for which tests take longer is a bad one, and not noticed
_LIMIT = 240


def copied_package(to):
    """A copy of the package in a folder, with the machine code that Python made of it."""
    for name in ("dtypes", "emulator"):
        shutil.copytree(ROOT / name, to / name)
    return to


def times_in(file, old):
    """How often a text stands in a file of the package."""
    return (ROOT / file).read_text().count(old)


@contextmanager
def edited(package, file, old, new):
    """A file of the copy with `new` in place of `old`, until the end."""
    path = package / file
    right = path.read_text()
    assert right.count(old) == 1, f"{file} has {old!r} {right.count(old)} times, not once"
    path.write_text(right.replace(old, new))
    try:
        yield
    finally:
        shutil.copy2(ROOT / file, path)


def fast_tests_fail(package, tests):
    """Whether a fast test of a file in tests/ fails with this package."""
    # Python finds the package in the current folder first, and leaves no machine code of an edit.
    run = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-qx", "-p", "no:cacheprovider",
         "-c", ROOT / "pyproject.toml", f"--rootdir={ROOT}", TESTS / tests],
        cwd=package, env=os.environ | {"PYTHONPATH": str(package)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT,
    )  # fmt: skip
    assert run.returncode in (0, 1), f"{tests} did not run:\n{run.stdout}{run.stderr}"
    return run.returncode == 1
