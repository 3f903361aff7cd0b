"""How fast ordinary kernels are: each beside the same job in C++, measured in this run.

    python benchmarks/ordinary.py [--repeat N] [--engine NAME] [--scaling] [KERNEL ...]

The kernels are in ordinary.cu (by nvcc or NVRTC), the jobs in ordinary.cpp (by g++ with -O3,
vectors and all cores). Launches and jobs take turns. "first" is the first launch in this process,
"later" the median of the others, both in seconds of wall time and of processor time; the ratios
are those of "later" to C++. Results are compared, so that both did the job. --scaling prints
instead how many times faster launches are on more processors, a process for each number of them.
"""

from __future__ import annotations

import argparse
import ctypes
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


def jobs() -> dict[str, Callable[[], Job]]:
    rng = np.random.default_rng(0)

    def nbody() -> Job:
        at = rng.random((4096, 4), np.float32)
        a, b = np.zeros_like(at), np.zeros_like(at)
        return Job(32, 128, [at, a, 4096], [at, b, 4096], (a, b), 1e-3)

    def mandelbrot() -> Job:
        a, b = (np.zeros(512 * 512, np.int32) for _ in range(2))
        return Job(1024, 256, [a, 512, 256], [b, 512, 256], (a, b), 0.01)

    def histogram() -> Job:
        data = rng.integers(0, 256, 1 << 20, np.uint8)
        a, b = (np.zeros(256, np.uint32) for _ in range(2))
        return Job(64, 256, [data, a, data.size], [data, b, data.size], (a, b))

    def sgemm() -> Job:
        x, y = (rng.random((512, 512), np.float32) for _ in range(2))
        a, b = np.zeros_like(x), np.zeros_like(x)
        return Job((32, 32), (16, 16), [x, y, a, 512], [x, y, b, 512], (a, b), 1e-4)

    def reduction() -> Job:
        data = np.ones(1 << 24, np.float32)
        a, b = np.zeros(256, np.float32), np.zeros(1, np.float32)
        return Job(256, 256, [data, a, data.size], [data, b, data.size], (a, b))

    def hashes() -> Job:
        a = rng.integers(0, 1 << 32, 1 << 18, np.uint32)
        b = a.copy()
        return Job(1024, 256, [a, 64], [b, 64, b.size], (a, b))

    def bitonic() -> Job:
        a = rng.integers(0, 1 << 32, 1 << 19, np.uint32)
        b = a.copy()
        return Job(1024, 512, [a], [b, 1024], (a, b))

    def black_scholes() -> Job:
        n = 1 << 18
        price, strike = (rng.uniform(5, 100, n).astype(np.float32) for _ in range(2))
        years = rng.uniform(0.25, 10, n).astype(np.float32)
        a, b = (np.zeros((2, n), np.float32) for _ in range(2))
        return Job(
            1024,
            256,
            [price, strike, years, a[0], a[1], n],
            [price, strike, years, b[0], b[1], n],
            (a, b),
            1e-3,
        )

    known = (nbody, mandelbrot, histogram, sgemm, reduction, hashes, bitonic, black_scholes)
    return {make.__name__: make for make in known}


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


def measure(
    name: str, make: Callable[[], Job], kernel: Any, native: Any, engine: str, repeat: int
) -> None:
    job = make()
    given = [ctypes.c_void_p(x.ctypes.data) if isinstance(x, np.ndarray) else x for x in job.native]
    start = [x.copy() for x in job.results]

    def both() -> tuple[tuple[float, float], tuple[float, float]]:
        for array, before in zip(job.results, start, strict=True):
            array[...] = before
        launched = seconds(lambda: kernel.launch(job.grid, job.block, job.arguments, engine=engine))
        return launched, seconds(lambda: native(*given))

    first, _ = both()
    check(name, job)
    taken = np.array([both() for _ in range(repeat)])
    wall, used = np.array([[statistics.median(taken[:, i, j]) for i in range(2)] for j in range(2)])
    print(
        f"{name:14} {first[0]:7.3f} {first[1]:7.3f} {wall[0]:8.4f} {used[0]:8.4f} "
        f"{wall[1]:8.4f} {used[1]:8.4f} {wall[0] / wall[1]:6.1f} {used[0] / used[1]:6.1f}",
        flush=True,
    )


def launches(module: Module, names: Sequence[str], engine: str, repeat: int) -> dict[str, float]:
    """Median wall time of later launches of kernels."""
    taken = {}
    for name in names:
        job = jobs()[name]()
        times = [
            seconds(
                lambda job=job, name=name: module[name].launch(
                    job.grid, job.block, job.arguments, engine=engine
                )
            )[0]
            for _ in range(repeat + 2)
        ]
        taken[name] = statistics.median(times[2:])
    return taken


def scaling(names: Sequence[str], engine: str, repeat: int) -> None:
    """How many times faster each kernel is on 2, 4, … processors than on one."""
    mine = sorted(os.sched_getaffinity(0))
    counts = [count for i in range(8) if (count := 1 << i) <= len(mine)]
    command = [sys.executable, __file__, *names, "--engine", engine, "--repeat", str(repeat)]
    rows = []
    for count in counts:
        given = [*command, "--processors", str(count)]
        out = subprocess.run(given, check=True, capture_output=True, text=True).stdout
        rows.append([float(x) for x in out.split()])
    print(f"{'processors':14}" + "".join(f"{count:>8}" for count in counts))
    for name, taken in zip(names, zip(*rows, strict=True), strict=True):
        print(f"{name:14}" + "".join(f"{taken[0] / x:7.1f}×" for x in taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", choices=[*jobs(), []])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--scaling", action="store_true", help="by the number of processors")
    parser.add_argument("--processors", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    names = [name for name in jobs() if name in (chosen.kernels or jobs())]
    if chosen.scaling:
        scaling(names, chosen.engine, chosen.repeat)
        return
    if chosen.processors:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.processors])
        module = Module.from_cuda(HERE / "ordinary.cu", target="sm_90a")
        print(*launches(module, names, chosen.engine, chosen.repeat).values())
        return
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ordinary.so"
        subprocess.run(["g++", *FLAGS, HERE / "ordinary.cpp", "-o", path], check=True)
        library = ctypes.CDLL(str(path))
    module = Module.from_cuda(HERE / "ordinary.cu", target="sm_90a")
    print(f"{'':14} {'first':^15} {'later':^17} {'C++':^17} {'ratio':^13}")
    print(
        f"{'':14} {'wall':>7} {'CPU':>7}"
        + f" {'wall':>8} {'CPU':>8}" * 2
        + f" {'wall':>6} {'CPU':>6}"
    )
    for name in names:
        native = getattr(library, name)
        measure(name, jobs()[name], module[name], native, chosen.engine, chosen.repeat)


if __name__ == "__main__":
    main()
