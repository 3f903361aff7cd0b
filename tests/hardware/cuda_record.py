"""Records what random CUDA C++ programs write on a GPU of compute capability 9.0.

    python tests/hardware/cuda_record.py -o FILE [--programs FIRST LAST] [--workers N]

Programs are those of oracle/random_cuda.py, compiled by the nvcc of the path: those of the tests
with one set of options each, or all of a range with every set. Writes their PTX and digests of
their results to FILE, an .npz as oracle/cuda_recordings.py reads it. Exit codes as of capture.py.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(x) for x in (_TESTS.parent, _TESTS, _TESTS / "oracle")]

from cuda_recordings import jobs, write  # noqa: E402
from random_cuda import BLOCKS, FLAGS, RESULTS, THREADS, CudaProgram, inputs  # noqa: E402

from hardware.driver import Gpu, needs_gpu  # noqa: E402

#: bytes of stack for each thread: functions call themselves
_STACK = 16384


def compiled(folder: Path, job: tuple[int, str]) -> tuple[str, bytes]:
    """The PTX and the machine code of a program, for one set of options."""
    own = folder / f"{job[0]}_{job[1]}"
    own.mkdir()
    (own / "p.cu").write_text(CudaProgram(job[0]).text)
    command = ["nvcc", "-arch=sm_90a", "-cubin", "-w", "--keep", "--keep-dir", str(own)]
    subprocess.run([*command, *FLAGS[job[1]][0], "p.cu", "-o", "p.cubin"], cwd=own, check=True)
    return (own / "p.ptx").read_text(), (own / "p.cubin").read_bytes()


@needs_gpu
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--programs", type=int, nargs=2, metavar=("FIRST", "LAST"))
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args()
    gpu = Gpu()
    gpu.set_stack(_STACK)
    chosen = jobs()
    if options.programs:
        chosen = [(seed, flags) for seed in range(*options.programs) for flags in FLAGS]
    memory = [inputs(), np.zeros((BLOCKS * THREADS, RESULTS), np.uint64)]
    found = {}
    with tempfile.TemporaryDirectory() as held, ThreadPoolExecutor(options.workers) as pool:
        made = pool.map(partial(compiled, Path(held)), chosen)
        for (seed, flags), (ptx, image) in zip(chosen, made, strict=True):
            _, results = gpu.call(
                image, "go", BLOCKS, THREADS, memory,
                lambda addresses: [a.to_bytes(8, "little") for a in addresses],
            )  # fmt: skip
            found[f"{seed}_{flags}"] = ptx, results
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    about = {
        "date": date.today().isoformat(), "gpu": gpu.name, "driver": gpu.driver,
        "nvcc": version.strip().splitlines()[-2],
    }  # fmt: skip
    write(options.output, found, about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
