"""Records what this machine's GPU makes of asynchronous copies of every kind.

    python tests/hardware/copy_record.py -o OUT.json.gz [--seed N] [--match TEXT] [--whole OUT.npz]

Cases are drawn by copy_tensors.py, copy_bulk.py and copy_edits.py: random arguments, the same for
a seed. A recording is a case with a digest of everything that its launch has written, window by
window, or the error that the GPU gave. `--whole` keeps the bytes themselves beside it. Exit codes
as of capture.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import pickle
import sys
import tempfile
from pathlib import Path
from random import Random

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(x) for x in (_TESTS.parent, _TESTS, _TESTS / "oracle")]

import numpy as np  # noqa: E402
from copy_kernels import ENTRY, THREADS, Case, buffers, digest, results, tensor_map, text  # noqa: E402

from hardware.capture import provenance, say, target_of  # noqa: E402
from hardware.copy_bulk import bulk_cases  # noqa: E402
from hardware.copy_edits import replace_cases  # noqa: E402
from hardware.copy_tensors import (  # noqa: E402
    interleaved_cases,
    multicast_cases,
    prefetch_cases,
    reduced_cases,
    refused_cases,
    tensor_cases,
)
from hardware.driver import CudaError, Gpu, needs_gpu  # noqa: E402

#: a process that has not finished its launches after so many seconds has hung
PATIENCE = 120
Found = dict[str, list[bytes] | str]


def draw(seed: int) -> list[Case]:
    """All cases."""
    out: list[Case] = []
    for make in (tensor_cases, reduced_cases, refused_cases, interleaved_cases, multicast_cases):
        out += make(Random(f"{seed} {make.__name__}"))
    rng = Random(f"{seed} bulk_cases")
    out += [*bulk_cases(rng), *prefetch_cases(rng)]
    out += replace_cases(Random(f"{seed} replace_cases"))
    return out


def launch(gpu: Gpu, case: Case) -> list[bytes]:
    """What the GPU writes."""

    def map_at(addresses: list[int]) -> list[bytes]:
        return [tensor_map(case, addresses[2]).encode()] if case.map else []

    after = gpu.launch(text(case), ENTRY, case.grid, THREADS, buffers(case), map_at)
    return results(case, after)


def work(cases: list[Case], path: str) -> None:
    """Runs cases and writes each result at once: a fatal error ends the process."""
    gpu = Gpu()
    with Path(path).open("wb") as out:
        for case in cases:
            fatal, found = False, None
            try:
                found = launch(gpu, case)
            except CudaError as error:
                found, fatal = str(error), error.is_fatal
            pickle.dump((case.name, found), out)
            out.flush()
            if fatal:
                return


def run_all(cases: list[Case], jobs: int) -> Found:
    """Results of all cases by name, from several processes."""
    left, found = list(cases), Found()
    with tempfile.TemporaryDirectory() as folder:
        while left:
            shares = [left[i::jobs] for i in range(jobs) if left[i::jobs]]
            paths = [f"{folder}/{i}" for i in range(len(shares))]
            running = [
                multiprocessing.Process(target=work, args=pair)
                for pair in zip(shares, paths, strict=True)
            ]
            for process in running:
                process.start()
            before = len(found)
            for process, path, share in zip(running, paths, shares, strict=True):
                process.join(PATIENCE)
                hung = process.is_alive()
                if hung:
                    process.kill()
                    process.join()
                done = _read(path)
                found.update(done)
                if hung:
                    found[share[len(done)].name] = "hung"
            left = [case for case in left if case.name not in found]
            say(f"{len(found)} of {len(cases)} launches")
            if len(found) == before:
                raise SystemExit("no launch succeeds any more")
    return found


def _read(path: str) -> Found:
    out = Found()
    try:
        with Path(path).open("rb") as file:
            while True:
                name, result = pickle.load(file)
                out[name] = result
    except (EOFError, OSError, pickle.UnpicklingError):
        return out


@needs_gpu
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", dest="out", type=Path, required=True, help="OUT.json.gz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="", help="only cases with this text in their name")
    parser.add_argument("--whole", type=Path, help="OUT.npz for all bytes")
    parser.add_argument("--jobs", type=int, default=8)
    given = parser.parse_args(argv)
    gpu = Gpu()
    target = target_of(gpu.capability)
    about = provenance(gpu, target, given.seed) | {"source": "tests/hardware/copy_record.py"}
    cases = [case for case in draw(given.seed) if given.match in case.name]
    found = run_all(cases, given.jobs)
    rows = []
    for case in cases:
        result = found[case.name]
        key = "error" if isinstance(result, str) else "digests"
        value = result if isinstance(result, str) else [digest(part) for part in result]
        rows.append({"case": case.json(), key: value})
    with gzip.GzipFile(given.out, "wb", mtime=0) as file:
        file.write(json.dumps({"provenance": about, "launches": rows}).encode())
    if given.whole:
        whole = {
            name: np.frombuffer(b"".join(result), np.uint8)
            for name, result in found.items()
            if not isinstance(result, str)
        }
        np.savez_compressed(given.whole, **whole)
    failed = [(name, result) for name, result in found.items() if isinstance(result, str)]
    for name, error in failed:
        say(f"{name}: {error[:160]}")
    say(f"{len(cases)} launches, {len(failed)} of them errors, in {given.out}")
    return 0


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    sys.exit(main())
