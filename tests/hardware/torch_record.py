"""Records what PyTorch's matrix products return on a GPU, and which kernels computed them.

    python tests/hardware/torch_record.py cases [CASES.json] OUT.npz
    python tests/hardware/torch_record.py sweep KIND OUT.npz [--seconds N]
    python tests/hardware/torch_record.py pack FOLDER tests/golden

`cases` computes every case of torch_cases.py, or of a file, twice and keeps digests, a few codes
and the kernels.
`sweep` multiplies operands of many sizes, all cut from the same two arrays, and keeps the kernels,
their grids and digests of two blocks of D: which order a library takes is a matter of size.
`pack` writes what the tests replay: all cases, with few codes, and a sample of every sweep.
Needs torch, NumPy and this folder, nothing else of the project.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from hardware.torch_cases import Case, cases, codes_of, digest, precision, run
from hardware.torch_sweep import blocks, hashed, largest, multiply, operands, parts_of, shapes

#: the kernel that stands between two operations in a profile
_MARKER = "erfinv"


def provenance() -> dict[str, Any]:
    return {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
        "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
        "cublas": _version("nvidia-cublas"), "driver": _driver(),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _driver() -> str:
    import subprocess

    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


# --- profiles -------------------------------------------------------------------------------------


class Profile:
    """Runs operations and tells, for each, the kernels that ran: [name, grid, block]."""

    def __init__(self) -> None:
        self.kernels: list[list[Any]] = []
        self._dot = torch.zeros(1, device="cuda")

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Kernels of what runs inside count; those between two operations do not."""
        self._dot.erfinv_()
        yield
        self._dot.erfinv_()

    @contextmanager
    def recording(self) -> Iterator[None]:
        from torch.profiler import ProfilerActivity, profile

        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as made:
            yield
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            made.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        ran = [x for x in events if x.get("cat") in ("kernel", "gpu_memset")]
        ran.sort(key=lambda x: x["ts"])
        segments: list[list[Any]] = [[]]
        for x in ran:
            if _MARKER in x["name"]:
                segments.append([])
            else:
                more = x.get("args", {})
                segments[-1].append([x["name"], more.get("grid"), more.get("block")])
        self.kernels += segments[1::2]


def in_chunks(items: list[Any], size: int, work: Callable[[Profile, Any], None]) -> list[list[Any]]:
    """Does `work` for every item, `size` of them in one profile; the kernels of each."""
    found: list[list[Any]] = []
    for start in range(0, len(items), size):
        profile, chunk = Profile(), items[start : start + size]
        with profile.recording():
            for item in chunk:
                work(profile, item)
        if len(profile.kernels) != len(chunk):
            raise RuntimeError(f"{len(profile.kernels)} segments of {len(chunk)} operations")
        found += profile.kernels
    return found


class Calls(TorchDispatchMode):
    """The names of the operations that torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.append(str(function).removeprefix("aten."))
        return function(*args, **(kwargs or {}))


# --- cases ----------------------------------------------------------------------------------------


def record_cases(chosen: list[Case]) -> dict[str, Any]:
    """For each case: the kernels, and of each result its shape, digest and first codes."""
    rows: list[dict[str, Any]] = [{"case": case} for case in chosen]
    codes: dict[str, np.ndarray] = {}

    def work(profile: Profile, index: int) -> None:
        row = rows[index]
        with profile.operation():
            try:
                results = run(row["case"], "cuda")
            except (RuntimeError, ValueError) as error:
                row["error"] = str(error)[:200]
                return
        row["results"] = {
            name: [list(x.shape), str(x.dtype).removeprefix("torch."), digest(x)]
            for name, x in results.items()
        }
        for name, x in results.items():
            codes[f"{index}.{name}"] = codes_of(x).reshape(-1)[:1024]

    order = list(range(len(rows)))
    for row, kernels in zip(rows, in_chunks(order, 100, work), strict=True):
        row["kernels"] = kernels
    for row in rows:
        if "results" in row:
            with Calls() as calls:
                again = {name: digest(x) for name, x in run(row["case"], "cuda").items()}
            row["repeats"] = again == {name: x[2] for name, x in row["results"].items()}
            row["calls"] = calls.names
    return {"meta": rows, **codes}


# --- a sweep over sizes ---------------------------------------------------------------------------


def record_sweep(kind: str, seconds: float) -> dict[str, Any]:
    pools, chosen = operands(kind, "cuda"), shapes(kind)
    length = len(pools[0])
    chosen = [x for x in chosen if max(x[1], 1) * largest(*x[2:]) <= length]
    # Where time runs out, what is left out is a sample, not one corner.
    np.random.Generator(np.random.PCG64(2)).shuffle(chosen)
    rows, kept = [], []
    names: dict[str, int] = {}
    end = time.monotonic() + seconds

    def work(profile: Profile, shape: Any) -> None:
        product = multiply(kind, pools, shape)
        with profile.operation():
            try:
                d = product()
            except RuntimeError:  # of sizes that the operation refuses
                d = torch.zeros(1, 1, device="cuda")
        one, two = blocks(d)
        kept.append((one.contiguous(), two.contiguous()))

    with precision(parts_of(kind)[1]):
        for start in range(0, len(chosen), 500):
            if time.monotonic() > end:
                break
            part = chosen[start : start + 500]
            kept.clear()
            for shape, kernels in zip(part, in_chunks(part, 500, work), strict=True):
                rows.append([shape, kernels])
            for row, pair in zip(rows[start:], kept, strict=True):
                row += [hashed(codes_of(pair[0])), hashed(codes_of(pair[1]))]
                row.append(codes_of(pair[0])[:4, :8])
    ids = np.array([
        [names.setdefault(json.dumps([x[0] for x in row[1]]), len(names))] for row in rows
    ])  # fmt: skip
    grids = np.array([
        [*_grids(row[1])[:2]] for row in rows
    ])  # fmt: skip
    sample = np.zeros((len(rows), 4, 8), np.uint64)
    for i, row in enumerate(rows):
        sample[i, : row[4].shape[0], : row[4].shape[1]] = row[4]
    return {
        "meta": {"kind": kind, "kernels": list(names), "of": len(chosen)},
        "layout": np.array([row[0][0] for row in rows]),
        "shape": np.array([row[0][1:] for row in rows], np.int32),
        "kernel": ids[:, 0].astype(np.int32), "grid": grids.astype(np.int32),
        "first": np.array([row[2] for row in rows], np.uint64),
        "last": np.array([row[3] for row in rows], np.uint64),
        "sample": sample if "f64" in kind else sample.astype(np.uint32),
    }  # fmt: skip


def _grids(kernels: list[Any]) -> list[list[int]]:
    found = [x[1] for x in kernels if x[1]]
    return [*found, [0, 0, 0], [0, 0, 0]][:2]


# --- what tests replay ----------------------------------------------------------------------------

#: codes of a result, and sizes of a sweep, that are packed
CODES, SAMPLE = 8, 400


def pack(folder: Path, golden: Path) -> None:
    """Writes h200_torch.json.gz, the cases, and h200_torch.npz, a sample of the sweeps.

    Of convolutions.npz, cases of a file of their own, every sixth is packed.
    """
    rows = []
    for name, step in (("cases", 1), ("convolutions", 6)):
        with np.load(folder / f"{name}.npz") as file:
            meta = json.loads(bytes(file["meta"]))
            chosen = list(enumerate(meta["rows"]))[::step]
            rows += [_packed(row, i, file) for i, row in chosen]
    text = json.dumps({"provenance": meta["provenance"], "cases": rows}, separators=(",", ":"))
    with gzip.GzipFile(golden / "h200_torch.json.gz", "wb", mtime=0) as out:
        out.write(text.encode())
    arrays: dict[str, Any] = {}
    for path in sorted(folder.glob("*.npz")):
        if path.stem in ("cases", "convolutions"):
            continue
        with np.load(path) as file:
            random = np.random.Generator(np.random.PCG64(3))
            small = np.flatnonzero(file["shape"][:, 3] <= 2048)
            chosen = np.sort(random.choice(small, min(SAMPLE, len(small)), replace=False))
            kind = path.stem.replace("_", " ")
            arrays[f"{kind}/layout"] = file["layout"][chosen].astype("S2")
            arrays[f"{kind}/shape"] = file["shape"][chosen].astype(np.uint16)
            arrays[f"{kind}/first"] = file["first"][chosen].astype(np.uint32)
    np.savez_compressed(golden / "h200_torch.npz", **arrays)


def _packed(row: dict[str, Any], i: int, file: Any) -> dict[str, Any]:
    results = {
        name: [*found, [int(x) for x in file[f"{i}.{name}"][:CODES]]]
        for name, found in row["results"].items()
    }
    kernels = [_short(name) for name, _, _ in row["kernels"] if "elementwise" not in name]
    return {"case": row["case"], "results": results, "kernels": kernels, "repeats": row["repeats"]}


def _short(name: str) -> str:
    """The name of a kernel without what C++ adds to it."""
    return re.sub(r"void |cutlass::Kernel2<|[<(].*", "", name).rstrip(">")[:90]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("cases", "sweep", "pack"))
    parser.add_argument("words", nargs="+")
    parser.add_argument("--seconds", type=float, default=120)
    given = parser.parse_args()
    start = time.monotonic()
    if given.what == "pack":
        pack(*(Path(word) for word in given.words))
        return
    if given.what == "cases":
        words = given.words[:-1]
        found = record_cases(json.loads(Path(words[0]).read_text()) if words else cases())
    else:
        found = record_sweep(given.words[0], given.seconds)
    found["meta"] = np.frombuffer(
        json.dumps({"provenance": provenance(), "rows": found["meta"]}).encode(), np.uint8
    )
    np.savez_compressed(given.words[-1], **found)
    print(given.what, given.words, f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
