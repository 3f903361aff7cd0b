"""Records what spellings of ordinary instructions compute on a GPU of compute capability 9.0.

    python tests/hardware/values_record.py -o FILE [--match REGEX] [--workers N]

Statements are those of oracle/value_kernels.py, assembled by the ptxas of the path. Writes to FILE,
as JSON, a digest for each, or why there is none; and the bytes before and after of those that the
emulator computes otherwise. Exit codes as of capture.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
from datetime import date
from multiprocessing import get_context
from pathlib import Path

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(x) for x in (_TESTS.parent, _TESTS, _TESTS / "oracle")]

from one_instruction import HEAD, OneInstruction, memory_of, parts_of  # noqa: E402
from value_kernels import THREADS, digest, fresh, kernels, run, spelled, statements, text  # noqa: E402

from hardware.driver import CudaError, Gpu, needs_gpu  # noqa: E402

#: a recording that takes longer hangs
_SECONDS = 300
_ERROR = re.compile(r"line (\d+); (?:error|fatal)\s*: (.*)")


def assembled(given: list[OneInstruction], folder: str) -> tuple[bytes, dict[int, str]]:
    """The machine code, and what ptxas says of the statements that it refuses, by their start."""
    source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
    left, refused = list(given), {}
    while True:
        source.write_text(text(left))
        command = ["ptxas", "-arch=sm_90a", str(source), "-o", str(target)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if not ran.returncode:
            return target.read_bytes(), refused
        wrong = {left[int(line) - HEAD - 1]: said for line, said in _ERROR.findall(ran.stderr)}
        if not wrong:
            raise RuntimeError(ran.stderr)
        refused |= {one.start: f"refused: {said}" for one, said in wrong.items()}
        left = [one for one in left if one not in wrong]


def record(names: list[str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The digest of each statement of a kernel, and those that the emulator computes otherwise."""
    given = statements(names)
    with tempfile.TemporaryDirectory() as folder:
        image, refused = assembled(given, folder)
    try:
        (held,) = Gpu().call(
            image, "go", 1, THREADS, [memory_of(given)],
            lambda addresses: [addresses[0].to_bytes(8, "little")],
        )  # fmt: skip
    except CudaError as error:
        return dict.fromkeys(names, f"error: {error}"), {}
    digests, differing = {}, {}
    for name, one, there, here in zip(names, given, parts_of(given, held), run(given), strict=True):
        digests[name] = refused.get(one.start) or digest(there)
        if there != here or one.start in refused:
            differing[name] = [one.statement, one.memory.hex(), there.hex(), here.hex()]
    return digests, differing


def provenance() -> dict[str, str]:
    gpu = Gpu()
    version = subprocess.run(["ptxas", "--version"], capture_output=True, text=True).stdout
    return {
        "date": date.today().isoformat(), "gpu": gpu.name, "driver": gpu.driver,
        "ptxas": version.strip().splitlines()[-1],
    }  # fmt: skip


@needs_gpu
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--match", default="", help="a pattern of opcodes")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--fresh", type=int, default=0, help="so many statements of a new seed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    names = fresh(options.seed, options.fresh) if options.fresh else spelled()
    chosen = kernels([name for name in names if re.search(options.match, name)])
    # After a fatal error a process has lost the GPU: each kernel has a child of its own.
    with get_context("fork").Pool(options.workers, maxtasksperchild=1) as pool:
        about = pool.apply(provenance)
        found = pool.map_async(record, chosen, 1).get(_SECONDS)
    kept: dict[str, dict[str, object]] = {"about": about, "digests": {}, "differing": {}}
    for digests, differing in found:
        kept["digests"] |= digests
        kept["differing"] |= differing
    print(len(kept["digests"]), "statements, of which differ", len(kept["differing"]))
    options.output.write_bytes(gzip.compress(json.dumps(kept).encode(), 9, mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
