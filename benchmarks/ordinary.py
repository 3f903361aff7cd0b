"""How fast ordinary kernels are: each beside the same job in C++, measured in this run.

    python benchmarks/ordinary.py [--repeat N] [--engine NAME] [--size N] [--scaling] [KERNEL ...]

The kernels are in ordinary.cu (by nvcc or NVRTC), the jobs in ordinary.cpp (by g++ with -O3,
vectors and all cores). Launches and jobs take turns. "first" is the first launch in this process,
"later" the median of the others, both in seconds of wall time and of processor time; the ratios
are those of "later" to C++. Results are compared, so that both did the job. --size N does about N
times the work. --scaling prints instead how many times faster launches, and the jobs in C++, are on
more processors, a process for each number of them: first one of each core, then its others. Each
launches for a second before it measures, and a first process of all does not count: what is
launched often is compiled twice. Two jobs more, without a kernel, show what the machine allows:
virtual processors often share cores.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emulator import Module

HERE = Path(__file__).parent
#: jobs in C++ that show what the machine can do at most
LIMITS = ("multiply_adds", "first_cache")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-shared", "-fPIC")


class Job(NamedTuple):
    """One kernel: its grid, its arguments, and those of the job in C++."""

    grid: Any
    block: Any
    #: what a launch takes, the result among them
    arguments: list[Any]
    native: list[Any]
    #: of both, the array that holds the result, and how near they are
    results: tuple[np.ndarray, np.ndarray]
    tolerance: float = 0.0


def jobs(size: int = 1) -> dict[str, Callable[[], Job]]:
    """The jobs by name, with about `size` times the work: a power of 4."""
    rng = np.random.default_rng(0)
    root = math.isqrt(size)

    def nbody() -> Job:
        n = 4096 * root
        at = rng.random((n, 4), np.float32)
        a, b = np.zeros_like(at), np.zeros_like(at)
        return Job(n // 128, 128, [at, a, n], [at, b, n], (a, b), 1e-3)

    def mandelbrot() -> Job:
        n = 512 * root
        a, b = (np.zeros(n * n, np.int32) for _ in range(2))
        return Job(n * n // 256, 256, [a, n, 256], [b, n, 256], (a, b), 0.01)

    def histogram() -> Job:
        data = rng.integers(0, 256, size << 20, np.uint8)
        a, b = (np.zeros(256, np.uint32) for _ in range(2))
        return Job(64, 256, [data, a, data.size], [data, b, data.size], (a, b))

    def sgemm() -> Job:
        n = round(32 * size ** (1 / 3)) * 16
        x, y = (rng.random((n, n), np.float32) for _ in range(2))
        a, b = np.zeros_like(x), np.zeros_like(x)
        return Job((n // 16, n // 16), (16, 16), [x, y, a, n], [x, y, b, n], (a, b), 1e-4)

    def reduction() -> Job:
        data = np.ones(size << 24, np.float32)
        a, b = np.zeros(256, np.float32), np.zeros(1, np.float32)
        return Job(256, 256, [data, a, data.size], [data, b, data.size], (a, b), 1e-3)

    def hashes() -> Job:
        a = rng.integers(0, 1 << 32, size << 18, np.uint32)
        b = a.copy()
        return Job(1024 * size, 256, [a, 64], [b, 64, b.size], (a, b))

    def bitonic() -> Job:
        a = rng.integers(0, 1 << 32, size << 19, np.uint32)
        b = a.copy()
        return Job(1024 * size, 512, [a], [b, 1024 * size], (a, b))

    def black_scholes() -> Job:
        n = size << 18
        price, strike = (rng.uniform(5, 100, n).astype(np.float32) for _ in range(2))
        years = rng.uniform(0.25, 10, n).astype(np.float32)
        a, b = (np.zeros((2, n), np.float32) for _ in range(2))
        return Job(
            1024 * size,
            256,
            [price, strike, years, a[0], a[1], n],
            [price, strike, years, b[0], b[1], n],
            (a, b),
            1e-3,
        )

    known = (nbody, mandelbrot, histogram, sgemm, reduction, hashes, bitonic, black_scholes)
    made = {make.__name__: make for make in known}
    return {"nbody": nbody, "nbody_global": nbody, **made}


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall time and processor time of all threads."""
    wall, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - used


def check(name: str, job: Job) -> None:
    """Raises AssertionError where the launch and C++ differ."""
    a, b = (x.astype(np.float64) for x in job.results)
    if name == "reduction":
        a, b = a.sum(), b[0]
    far = np.abs(a - b) > job.tolerance * np.maximum(1, np.abs(b)) + 1e-3 * (job.tolerance > 0)
    assert np.mean(far) <= 0.01 * (job.tolerance > 0), (name, np.mean(far))


def launched(kernel: Any, job: Job, engine: str) -> Callable[[], object]:
    return lambda: kernel.launch(job.grid, job.block, job.arguments, engine=engine)


def native(library: Any, name: str, job: Job) -> Callable[[], object]:
    given = [ctypes.c_void_p(x.ctypes.data) if isinstance(x, np.ndarray) else x for x in job.native]
    run = getattr(library, name.partition("_global")[0])
    return lambda: run(*given)


def measure(name: str, job: Job, launch: Any, native: Any, repeat: int) -> None:
    start = [x.copy() for x in job.results]

    def both() -> tuple[tuple[float, float], tuple[float, float]]:
        for array, before in zip(job.results, start, strict=True):
            array[...] = before
        return seconds(launch), seconds(native)

    first, _ = both()
    check(name, job)
    taken = np.array([both() for _ in range(repeat)])
    wall, used = np.array([[statistics.median(taken[:, i, j]) for i in range(2)] for j in range(2)])
    print(
        f"{name:14} {first[0]:7.3f} {first[1]:7.3f} {wall[0]:8.4f} {used[0]:8.4f} "
        f"{wall[1]:8.4f} {used[1]:8.4f} {wall[0] / wall[1]:6.1f} {used[0] / used[1]:6.1f}",
        flush=True,
    )


def both_later(
    module: Module, library: Any, names: Sequence[str], chosen: argparse.Namespace
) -> None:
    """Prints the median wall times of later launches and of the jobs in C++, a line for each; then
    those of jobs that have no kernel."""
    for name in names:
        job = jobs(chosen.size)[name]()
        taken = []
        works = launched(module[name], job, chosen.engine), native(library, name, job)
        for work, warm in zip(works, (1.0, 0.1), strict=True):
            until = time.perf_counter() + warm
            while time.perf_counter() < until:
                work()
            taken.append(statistics.median(seconds(work)[0] for _ in range(chosen.repeat)))
        print(*taken)
    for name in LIMITS:
        print(statistics.median(seconds(getattr(library, name))[0] for _ in range(chosen.repeat)))


def processors() -> list[int]:
    """The processors that this process may use, one of each core first."""

    def place(number: int) -> tuple[int, int]:
        path = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        known = path.read_text() if path.exists() else str(number)
        parts = [part.split("-") for part in known.strip().split(",")]
        siblings = [i for part in parts for i in range(int(part[0]), int(part[-1]) + 1)]
        return siblings.index(number), number

    return sorted(os.sched_getaffinity(0), key=place)


def scaling(names: Sequence[str], chosen: argparse.Namespace, built: Sequence[Path]) -> None:
    """How many times faster each kernel is on 2, 4, … processors than on one, beside C++."""
    counts = [count for i in range(8) if (count := 1 << i) <= len(processors())]
    command = [sys.executable, __file__, *names, "--built", *built, "--engine", chosen.engine]
    command += ["--repeat", str(chosen.repeat), "--size", str(chosen.size)]
    rows = []
    for count in (1, *counts):
        given = [*command, "--processors", str(count)]
        out = subprocess.run(given, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows.append([[float(x) for x in line.split()] for line in out.splitlines()])
    print(f"{'processors':14}{'1, ms':>9}" + "".join(f"{count:>8}" for count in counts[1:]))
    for name, taken in zip([*names, *LIMITS], zip(*rows[1:], strict=True), strict=True):
        for title, times in zip((name, "  in C++"), zip(*taken, strict=True), strict=False):
            ratios = "".join(f"{times[0] / x:7.1f}×" for x in times[1:])
            print(f"{title:14}{times[0] * 1e3:9.2f}{ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", choices=[*jobs(), []])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--size", type=int, default=1, help="about so many times the work")
    parser.add_argument("--scaling", action="store_true", help="by the number of processors")
    parser.add_argument("--processors", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--built", nargs=2, type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    names = [name for name in jobs() if name in (chosen.kernels or jobs())]
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if chosen.processors:
        os.sched_setaffinity(0, processors()[: chosen.processors])
        text, library = chosen.built
        both_later(Module(text.read_text()), ctypes.CDLL(str(library)), names, chosen)
        return
    with tempfile.TemporaryDirectory() as folder:
        text, path = Path(folder) / "ordinary.ptx", Path(folder) / "ordinary.so"
        subprocess.run(["g++", *FLAGS, HERE / "ordinary.cpp", "-o", path], check=True)
        module = Module.from_cuda(HERE / "ordinary.cu", target="sm_90a")
        if chosen.scaling:
            text.write_text(module.text)
            scaling(names, chosen, (text, path))
            return
        library = ctypes.CDLL(str(path))
    print(f"{'':14} {'first':^15} {'later':^17} {'C++':^17} {'ratio':^13}")
    print(
        f"{'':14} {'wall':>7} {'CPU':>7}"
        + f" {'wall':>8} {'CPU':>8}" * 2
        + f" {'wall':>6} {'CPU':>6}"
    )
    for name in names:
        job = jobs(chosen.size)[name]()
        launch = launched(module[name], job, chosen.engine)
        measure(name, job, launch, native(library, name, job), chosen.repeat)


if __name__ == "__main__":
    main()
