"""How fast: one table, every line measured in this run.

    python benchmarks/run.py [--size N] [--large N] [--repeat R]

GMAC/s are 1e9 multiply-adds a second of `gemm` on N × N × N matrices, the best of R runs after one
that is not counted; "NumPy is" how many times faster NumPy's float32 matmul of the same size is,
measured just before each line. Latencies and start times are medians. Peak memory is that of a
process of its own. MMA-Sim is measured beside us where it can be imported.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from typing import NamedTuple

import numpy as np

from dtypes import code_type, encode
from emulator import Instruction, execute, gemm

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
BF16 = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"


class Line(NamedTuple):
    """One gemm of the table."""

    opcode: str
    target: str
    #: by engine: N as a share of --size
    engines: dict[str, float]


FULL = {"compiled": 1, "vector": 0.5, "reference": 0.03125}
QUICK = {"compiled": 1, "vector": 0.5}
LINES = (
    Line(F16, "sm_90a", FULL),
    Line(F16, "sm_80", QUICK),
    Line(BF16, "sm_90a", QUICK),
    Line(BF16, "sm_80", QUICK),
    Line("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90a", QUICK),
    Line("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90a", QUICK),
    Line("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3", "sm_90a", QUICK),
    Line("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90a", QUICK),
    Line("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_90a",
         {"compiled": 1, "vector": 0.125}),
    Line(S8, "sm_90a", {"compiled": 1, "vector": 1}),
    Line("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", "sm_80", {"vector": 1}),
    Line("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", "sm_80",
         {"compiled": 1, "vector": 1}),
)  # fmt: skip


def seconds(work: Callable[[], object], repeat: int) -> list[float]:
    """Wall-clock times of `repeat` runs, after one that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def operands(ins: Instruction, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of ordinary numbers: normally distributed floats, integers of the whole range."""
    rng = np.random.default_rng(0)
    fmt = ins.fragment("a").fmt
    if fmt.is_float:
        a, b = (encode(fmt, rng.standard_normal(shape)) for shape in ((m, k), (k, n)))
        return a, b
    a, b = (
        rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True).astype(code_type(fmt.bits))
        for shape in ((m, k), (k, n))
    )
    return a, b


def numpy_seconds(size: int) -> float:
    a = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    return min(seconds(lambda: a @ a, 5))


def gemms(size: int, repeat: int) -> None:
    print(f"{'gemm':58} {'engine':10} {'N':>5} {'GMAC/s':>8} {'NumPy is':>9}")
    for line in LINES:
        ins = Instruction.parse(line.opcode)
        for engine, share in line.engines.items():
            if engine == "compiled" and importlib.util.find_spec("numba") is None:
                continue
            n = max(16, int(size * share))
            a, b = operands(ins, n, n, n)

            def work(engine=engine, ins=ins, line=line, a=a, b=b) -> object:
                return gemm(a, b, instruction=ins, target=line.target, codes=True, engine=engine)

            ideal = numpy_seconds(n)
            took = min(seconds(work, 1 if engine == "reference" else repeat))
            name = line.opcode.replace(".sync.aligned", "").replace(".mma_async", "")
            print(
                f"{name:50} {line.target:7} {engine:10} {n:5} {n**3 / took / 1e9:8.3f} "
                f"{took / ideal:8.1f}×",
                flush=True,
            )


def executes() -> None:
    """Latency of one warp, and batches."""
    ins = Instruction.parse(F16)
    rng = np.random.default_rng(0)
    for warps in (1, 20_000):
        registers = [
            fragment.scatter(encode(fragment.fmt, rng.standard_normal((warps, *fragment.shape))))
            for fragment in map(ins.fragment, "abc")
        ]
        for engine in ("compiled", "vector"):
            if engine == "compiled" and importlib.util.find_spec("numba") is None:
                continue

            def work(registers=registers, engine=engine) -> object:
                return execute(ins, *registers, target="sm_90a", engine=engine)

            took = statistics.median(seconds(work, 200 if warps == 1 else 7))
            print(
                f"execute m16n8k16 f16, {warps:6} warps  {engine:10} {took * 1e6:9.0f} µs "
                f"{warps * ins.m * ins.n * ins.k / took / 1e9:8.3f} GMAC/s"
            )


def peak_of_large(size: int) -> None:
    """Time and peak memory (Linux) of one large f16 gemm, in a process of its own."""
    code = (
        "import time, numpy as np\n"
        "from emulator import gemm\n"
        f"rng, n = np.random.default_rng(0), {size}\n"
        "a, b = (rng.standard_normal((n, n), np.float32).astype(np.float16) for _ in 'ab')\n"
        "start = time.perf_counter()\n"
        f"gemm(a, b, instruction={F16!r}, target='sm_90a')\n"
        "took = time.perf_counter() - start\n"
        "status = open('/proc/self/status').read()\n"
        "print(took, status.split('VmHWM:')[1].split()[0])\n"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    took, kib = map(float, out.stdout.split())
    print(
        f"gemm f16 {size}³ from a fresh process: {took:.1f} s, {size**3 / took / 1e9:.2f} GMAC/s, "
        f"peak memory of the process {kib / 2**20:.2f} GiB"
    )


def start_up(repeat: int = 7) -> None:
    def took(*command: str) -> float:
        def work() -> object:
            return subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)

        return statistics.median(seconds(work, repeat))

    empty, numpy_only = took("-c", "pass"), took("-c", "import numpy")
    ours = took("-c", "import emulator")
    command = took("-m", "emulator", "lane", F16, "a", "9", "2")
    print(
        f"start: Python {empty:.3f} s, NumPy +{numpy_only - empty:.3f} s, emulator "
        f"+{ours - numpy_only:.3f} s; `python -m emulator lane …` in all {command:.3f} s"
    )


def mma_sim(repeat: int) -> None:
    """MMA-Sim's m16n8k16, if the user has it (pip install mmasim)."""
    if importlib.util.find_spec("mmasim") is None:
        print("MMA-Sim: not installed")
        return
    import torch
    from mmasim.nv_ptx.sim import MMA

    a, b, c = torch.randn(16, 16).half(), torch.randn(16, 8).half(), torch.zeros(16, 8)
    compute = MMA("Hopper", "m16n8k16.f32.f16.f16.f32")
    took = min(seconds(lambda: compute(a, b, c), repeat))
    print(f"MMA-Sim m16n8k16 f16: {took * 1e6:.0f} µs, {2048 / took / 1e9:.6f} GMAC/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024, help="N of the gemms (default 1024)")
    parser.add_argument("--large", type=int, default=4096, help="N of the large gemm; 0: none")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(
        f"{date.today()}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python "
        f"{platform.python_version()}, NumPy {np.__version__}"
    )
    gemms(options.size, options.repeat)
    executes()
    if options.large:
        peak_of_large(options.large)
    start_up()
    mma_sim(options.repeat)


if __name__ == "__main__":
    main()
