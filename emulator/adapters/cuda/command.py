"""``exec``: runs a program, unmodified, with a GPU that is not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import emulator
from emulator.adapters.cuda import settings
from emulator.adapters.cuda.native import library_folder, real_nvrtc
from emulator.errors import OperandError
from emulator.targets import find_chip
from emulator.tools.report import Answer

#: exit code of a program that ran too long, as that of the command `timeout`
_TOO_LONG = 124


#: arguments of `exec` and what they mean
EXEC_HELP = {
    "--gpu NAME": "the GPU, such as H100 (the default) or A100",
    "--check": "look for mistakes in every launch; exit code 1 if there are some",
    "--log FILE": "write a line of JSON on each launch: kernel, grid, block, seconds, findings; "
    "and on each function that is not there",
    "--time-limit S": "end the program after S seconds (exit code 124)",
    "--step-limit N": "end a launch after N statements",
    "--recover": "report an error of a kernel once and go on, which no GPU does",
    "command ...": "the program and its arguments, behind --",
}


def environment(
    gpu: str,
    *,
    check: bool = False,
    log: str = "",
    recover: bool = False,
    step_limit: int | None = None,
) -> dict[str, str]:
    """The environment variables that give a process the GPU."""
    find_chip(gpu)
    folder = str(library_folder())
    before = os.environ.get("LD_LIBRARY_PATH")
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / (
        sysconfig.get_config_var("INSTSONAME") or ""
    )
    shared = ".so" in library.name and library.is_file()
    # A Python of the program starts with a file of ours, which waits for torch and triton.
    start = str(Path(__file__).with_name("start"))
    paths = [start, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(paths),
        "LD_LIBRARY_PATH": f"{folder}{os.pathsep}{before}" if before else folder,
        "EMULATOR_CUDA_HOME": str(Path(emulator.__file__).resolve().parents[1]),
        "EMULATOR_CUDA_PATH": os.pathsep.join(
            p for p in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")) if p
        ),
        "EMULATOR_CUDA_VERSION": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "EMULATOR_CUDA_PYTHONHOME": sys.base_prefix,
        "EMULATOR_CUDA_LIBPYTHON": str(library) if shared else "",
        "EMULATOR_NVRTC": real_nvrtc(),
        settings.GPU: gpu,
        settings.CHECK: "1" if check else "",
        settings.LOG: log,
        settings.RECOVER: "1" if recover else "",
        settings.STEPS: "" if step_limit is None else str(step_limit),
    }


def exec_command(
    command: Sequence[str],
    gpu: str = "H100",
    check: bool = False,
    log: str | None = None,
    time_limit: float | None = None,
    step_limit: int | None = None,
    recover: bool = False,
) -> Answer:
    words = list(command[1:] if command and command[0] == "--" else command)
    if not words:
        raise OperandError("which program? python -m emulator exec --gpu H100 -- PROGRAM ...")
    if time_limit is not None and not time_limit > 0:
        raise OperandError(f"--time-limit is a number of seconds above 0; got {time_limit}")
    with tempfile.TemporaryDirectory() as made:
        path = Path(log).absolute() if log else Path(made) / "log"
        try:
            path.write_bytes(b"")
        except OSError as error:
            raise OperandError(f"cannot write {log}: {error.strerror}") from None
        given = environment(
            gpu,
            check=check,
            log=str(path) if check or log else "",
            recover=recover,
            step_limit=step_limit,
        )
        code = _run(words, given, time_limit)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    if check:
        return _checked(code, rows)
    return Answer((), {"exit code": code}, code)


def _run(words: Sequence[str], given: dict[str, str], time_limit: float | None) -> int:
    """Runs the program; its exit code."""
    sys.stdout.flush()
    try:
        child = subprocess.Popen(words, env={**os.environ, **given}, start_new_session=True)
    except OSError as error:
        raise OperandError(f"cannot run {words[0]}: {error.strerror}") from None
    try:
        code = child.wait(time_limit)
    except subprocess.TimeoutExpired:
        _end(child)
        print(f"error: the program ran longer than {time_limit} s", file=sys.stderr)
        return _TOO_LONG
    except BaseException:
        _end(child)
        raise
    return code if code >= 0 else 128 - code


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the program and what it has started."""
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _checked(code: int, rows: Sequence[dict[str, object]]) -> Answer:
    """The report of ``--check``: each finding once, with the kernel and how often it was found."""
    launches = [row for row in rows if "kernel" in row]
    counted: dict[tuple[str, str], int] = {}
    for row in launches:
        found = row.get("findings")
        texts = [str(x) for x in found] if isinstance(found, list) else []
        if "error" in row:
            texts.append(str(row["error"]))
        for text in texts:
            key = (str(row["kernel"]), text)
            counted[key] = counted.get(key, 0) + 1
    lines = [f"{_counted(len(launches), 'launch')} checked, {_counted(len(counted), 'finding')}"]
    for (kernel, text), count in counted.items():
        lines += ["", f"{kernel} ({_counted(count, 'time')}):", text]
    data = {"launches": len(launches), "findings": [
        {"kernel": k, "finding": t, "count": n} for (k, t), n in counted.items()
    ], "exit code": code}  # fmt: skip
    return Answer(lines, data, code or int(bool(counted)))


def _counted(count: int, name: str) -> str:
    plural = f"{name}es" if name.endswith("ch") else f"{name}s"
    return f"{count:,} {name if count == 1 else plural}"
