"""Records what every spelling of an ordinary instruction computes on a GPU of compute capability 9.0.

    python tests/hardware/values_record.py -o FILE [--kernels FIRST LAST] [--words N ...]

Statements are those of oracle/value_kernels.py, assembled by the ptxas of the path. Writes a digest
for each, or why there is none, as JSON to FILE; with --words also what the statements of those
numbers leave in their memory. Exit codes as of capture.py.
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
from functools import partial
from multiprocessing import get_context
from pathlib import Path

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(x) for x in (_TESTS.parent, _TESTS, _TESTS / "oracle")]

from one_instruction import HEAD, OneInstruction  # noqa: E402
from value_kernels import (  # noqa: E402
    STATEMENTS, THREADS, digest, kernels, memory, parts, statements, text,
)  # fmt: skip

from hardware.driver import CudaError, Gpu, needs_gpu  # noqa: E402

#: a recording that takes longer hangs
_SECONDS = 300
_ERROR = re.compile(r"line (\d+); (?:error|fatal)\s*: (.*)")


def assembled(
    given: list[OneInstruction], folder: str
) -> tuple[bytes, list[OneInstruction], dict[int, str]]:
    """The machine code, the statements in it, and what ptxas says of the others by place."""
    source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
    left, refused = list(given), {}
    while True:
        source.write_text(text(left))
        command = ["ptxas", "-arch=sm_90a", str(source), "-o", str(target)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if not ran.returncode:
            return target.read_bytes(), left, refused
        wrong = {left[int(line) - HEAD - 1]: said for line, said in _ERROR.findall(ran.stderr)}
        if not wrong:
            raise RuntimeError(ran.stderr)
        refused |= {given.index(one): f"refused: {said}" for one, said in wrong.items()}
        left = [one for one in left if one not in wrong]


def record(number: int, wanted: frozenset[int] = frozenset()) -> tuple[list[str], dict[int, str]]:
    """The digests of a kernel's statements, and the bytes of those that are wanted."""
    given = statements(number)
    first = number * STATEMENTS
    with tempfile.TemporaryDirectory() as folder:
        image, left, refused = assembled(given, folder)
    try:
        (held,) = Gpu().call(
            image, "go", 1, THREADS, [memory(given)],
            lambda addresses: [addresses[0].to_bytes(8, "little")],
        )  # fmt: skip
    except CudaError as error:
        return [f"error: {error}"] * len(given), {}
    found = dict(enumerate(parts(given, held)))
    words = {first + i: part.hex() for i, part in found.items() if first + i in wanted}
    return [refused.get(i) or digest(part) for i, part in found.items()], words


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
    parser.add_argument("--kernels", type=int, nargs=2, metavar=("FIRST", "LAST"))
    parser.add_argument("--words", type=int, nargs="*", default=())
    parser.add_argument("--workers", type=int, default=12)
    options = parser.parse_args()
    chosen = range(*options.kernels) if options.kernels else kernels()
    if options.words:
        chosen = sorted({number // STATEMENTS for number in options.words})
    one = partial(record, wanted=frozenset(options.words))
    # After a fatal error a process has lost the GPU: each kernel has a child of its own.
    with get_context("fork").Pool(options.workers, maxtasksperchild=1) as pool:
        about = pool.apply(provenance)
        found = dict(zip(chosen, pool.map_async(one, chosen, 1).get(_SECONDS), strict=True))
    kept = {
        "about": about,
        "digests": {number: digests for number, (digests, _) in found.items()},
        "words": {number: word for _, words in found.values() for number, word in words.items()},
    }
    options.output.write_bytes(gzip.compress(json.dumps(kept).encode(), 9, mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
