"""How fast: one table, every line measured in this run.

    python benchmarks/run.py [--size N] [--repeat R]

GMAC/s are 1e9 multiply-adds a second of `gemm` on N × N × N matrices, the best of R runs; the
ratio is how many times faster NumPy's float32 matmul of the same size is, in the same run.
Latencies are medians.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date

import numpy as np

from dtypes import code_type
from emulator import Instruction, execute, gemm

GEMMS = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90a"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90a"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90a"),
    ("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3", "sm_90a"),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_90a"),
    ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", "sm_80"),
)


def seconds(work: Callable[[], object], repeat: int) -> list[float]:
    """Wall-clock times of `repeat` runs, after one that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def operands(ins: Instruction, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Codes of finite, ordinary operands."""
    rng = np.random.default_rng(seed)
    fmt = ins.fragment("a").fmt
    top = min(fmt.max_finite, fmt.code_mask) if fmt.is_float else fmt.code_mask
    a, b = (
        rng.integers(0, top, (size, size), np.uint64, endpoint=True).astype(code_type(fmt.bits))
        for _ in "ab"
    )
    return a, b


def latency(opcode: str, target: str, warps: int, repeat: int) -> float:
    """Median seconds of one `execute` on a batch of `warps`."""
    ins = Instruction.parse(opcode)
    rng = np.random.default_rng(0)
    registers = [
        rng.integers(0, 1 << 14, (warps, 32, ins.fragment(x).registers)).astype(np.uint32)
        for x in "abc"
    ]
    return statistics.median(seconds(lambda: execute(ins, *registers, target=target), repeat))


def start_up(code: str, repeat: int = 5) -> float:
    """Median seconds of a fresh interpreter that runs `code`."""
    command = [sys.executable, "-c", code]
    return statistics.median(seconds(lambda: subprocess.run(command, check=True), repeat))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    size, repeat = options.size, options.repeat
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, "
          f"NumPy {np.__version__}, gemm of {size}³")  # fmt: skip

    a = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    numpy_time = min(seconds(lambda: a @ a, max(repeat, 5)))
    work = size**3 / 1e9
    print(f"{'NumPy float32 matmul':58} {work / numpy_time:9.3f} GMAC/s")
    for opcode, target in GEMMS:
        ins = Instruction.parse(opcode)
        x, y = operands(ins, size)
        took = min(
            seconds(lambda: gemm(x, y, instruction=ins, target=target, codes=True), repeat)  # noqa: B023
        )
        print(f"{opcode.replace('.sync.aligned', ''):50} {target:7} {work / took:9.3f} GMAC/s  "
              f"ratio {took / numpy_time:8.0f}")  # fmt: skip

    for warps in (1, 1000):
        took = latency(GEMMS[0][0], "sm_90a", warps, 20)
        rate = warps * 16 * 8 * 16 / took / 1e9
        print(f"execute, {warps} warp(s) m16n8k16 f16: {took * 1e6:.0f} µs, {rate:.4f} GMAC/s")
    empty, numpy_only = start_up("pass"), start_up("import numpy")
    ours = start_up("import emulator")
    print(f"start: Python {empty:.3f} s, NumPy +{numpy_only - empty:.3f} s, "
          f"emulator +{ours - numpy_only:.3f} s")  # fmt: skip


if __name__ == "__main__":
    main()
