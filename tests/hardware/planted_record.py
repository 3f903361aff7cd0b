"""Records what compute-sanitizer says of the planted mistakes, and what the right twins write.

    python tests/hardware/planted_record.py -o FOLDER [--match REGEX] [--seconds N] [--workers N]

Kernels are those of golden/planted, assembled by ptxas of the path. Each runs alone in a fresh
process, without a tool and under each of the four, and is killed where it has not ended after
`--seconds`. Writes FOLDER/sanitizer.json: for each kernel a verdict by tool, and the digest of what
it has written; and FOLDER/logs.json.xz, all that the tools said. Exit codes as of capture.py.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(x) for x in (_TESTS.parent, _TESTS, _TESTS / "oracle")]

from planted_kernels import Run, digest, runs  # noqa: E402

from hardware.driver import CudaError, Gpu, needs_gpu  # noqa: E402

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
#: what a tool says first of each mistake; lines of a stack are indented further
_SAID = re.compile(r"^========= (?! |COMPUTE|ERROR SUM|RACECHECK SUM|$)(.+?)(?: at .+)?$", re.M)


def assemble(chosen: dict[str, Run], folder: Path) -> None:
    """Writes each launch to a file, with the machine code of its kernel."""
    images: dict[str, bytes] = {}
    source, target = folder / "kernel.ptx", folder / "kernel.cubin"
    for name, run in chosen.items():
        if run.ptx not in images:
            source.write_text(run.ptx)
            command = ["ptxas", "-arch=sm_90a", "-lineinfo", str(source), "-o", str(target)]
            subprocess.run(command, check=True, capture_output=True)
            images[run.ptx] = target.read_bytes()
        (folder / name).write_bytes(pickle.dumps((images[run.ptx], run)))


def launch(path: Path) -> str:
    """Runs a kernel; the digest of what it leaves in its arrays, or the error that it ends with."""
    image, run = pickle.loads(path.read_bytes())
    try:
        after = Gpu().call(
            image, run.entry, run.grid[0], run.block[0], run.memory, run.parameters,
            run.dynamic_shared,
        )  # fmt: skip
    except CudaError as error:
        return f"error: {error}"
    return digest(after[: run.compared])


def watched(command: list[str], seconds: float) -> str | None:
    """All that a command prints; None where it had to be killed."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None


def verdict(said: str | None) -> dict[str, object]:
    """How many mistakes a tool counts, and the first of its messages that is about one."""
    if said is None:
        return {"count": 0, "hangs": True}
    counts = [int(n) for n in _SUMMARY.findall(said)]
    messages = _SAID.findall(said)
    return {"count": counts[-1] if counts else 0, "said": messages[0] if messages else ""}


def record(name: str, seconds: float, folder: Path) -> tuple[dict[str, object], dict[str, str]]:
    """What happens to a kernel without a tool and under each, and what the tools print."""
    own = [sys.executable, __file__, "--one", str(folder / name), "-o", "."]
    plain = watched(own, seconds)
    found: dict[str, object] = {"alone": "hangs" if plain is None else plain.strip()[-200:]}
    logs = {}
    for tool in TOOLS:
        said = watched(["compute-sanitizer", "--tool", tool, *own], 3 * seconds)
        logs[tool] = "" if said is None else said
        found[tool] = verdict(said)
    return found, logs


@needs_gpu
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--match", default="")
    parser.add_argument("--workers", type=int, default=12, help="processes at the same time")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(launch(options.one))
        return 0
    gpu = Gpu()
    version = watched(["compute-sanitizer", "--version"], 60) or ""
    about = {
        "date": date.today().isoformat(), "gpu": gpu.name, "driver": gpu.driver,
        "compute_sanitizer": version.strip().splitlines()[-1],
    }  # fmt: skip
    chosen = {name: run for name, run in runs().items() if re.search(options.match, name)}
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        assemble(chosen, folder)
        found, logs = {}, {}
        with ThreadPoolExecutor(options.workers) as pool:
            done = pool.map(lambda name: record(name, options.seconds, folder), chosen)
            for name, (one, said) in zip(chosen, done, strict=True):
                found[name], logs[name] = one, said
                text = json.dumps({"provenance": about, "kernels": found}, indent=1)
                (options.output / "sanitizer.json").write_text(text + "\n")
    (options.output / "logs.json.xz").write_bytes(lzma.compress(json.dumps(logs).encode()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
