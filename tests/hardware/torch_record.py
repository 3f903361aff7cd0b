"""Records what PyTorch's matrix products return on a GPU, and which kernels computed them.

    python tests/hardware/torch_record.py cases OUT.npz
    python tests/hardware/torch_record.py sweep KIND OUT.npz [--seconds N]

`cases` computes every case of torch_cases.py twice and keeps digests, a few codes and the kernels.
`sweep` multiplies operands of many sizes, all cut from the same two arrays, and keeps the kernels,
their grids and digests of two blocks of D: which order a library takes is a matter of size.
Needs torch, NumPy and this folder, nothing else of the project.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
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
from hardware.torch_cases import cases, codes_of, digest, precision, run, tensor

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


def record_cases() -> dict[str, Any]:
    """For each case: the kernels, and of each result its shape, digest and first codes."""
    rows: list[dict[str, Any]] = [{"case": case} for case in cases()]
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
            codes[f"{index}.{name}"] = codes_of(x).reshape(-1)[:4096]

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

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
         4096)  # fmt: skip
DEPTHS = (*SIZES[3:], 6144, 8192)
FEWER = tuple(x for x in SIZES if x & x - 1 == 0)
FEWER_DEPTHS = tuple(x for x in DEPTHS if x & x - 1 == 0)
#: rows and columns of D that are kept: the first, and the last
FIRST, LAST = (32, 64), (16, 16)


def shapes(kind: str) -> list[tuple[str, int, int, int, int]]:
    """(layout, batch, m, n, k) of a sweep."""
    name, _, out = kind.partition(".")
    full = name == "bf16" and not out
    sizes, depths = (SIZES, DEPTHS) if full else (FEWER, FEWER_DEPTHS)
    layouts = ("nt",) if name in ("e4m3", "e4m3slow") else ("nt", "nn", "tn")
    low = 16 if name in ("e4m3", "e4m3slow") else 1
    found = [
        (layout, 0, m, n, k)
        for layout, m, n, k in itertools.product(layouts, sizes, sizes, depths)
        if n >= low and k >= low
    ]
    random = np.random.Generator(np.random.PCG64(1))
    step = 16 if low == 16 else 8
    for _ in range(2000 if full else 800):
        m, n, k = (int(step * round(2 ** random.uniform(0, 12 - np.log2(step)))) for _ in range(3))
        found.append((layouts[random.integers(len(layouts))], 0, m, n, k))
    if low == 1:
        for _ in range(600):
            m, n, k = (int(2 ** random.uniform(0, 11)) for _ in range(3))
            found.append((layouts[random.integers(3)], 0, m, n, k))
        for batch, m, n, k in itertools.product(
            (2, 8, 32), (1, 16, 64, 128, 512), (16, 64, 128, 512), (16, 32, 64, 128, 512, 2048)
        ):
            found += [(layout, batch, m, n, k) for layout in ("nt", "nn", "tn")]
    return found


def operands(kind: str, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The two arrays, flat, that the operands of a sweep are cut from."""
    base = kind.partition(".")[0].removesuffix("slow")
    length = 8192 * 4096
    return tuple(tensor(f"sweep {x} {base}", (length,), base, device) for x in "ab")


def multiply(
    kind: str, pools: tuple[torch.Tensor, torch.Tensor], shape: tuple[str, int, int, int, int]
) -> Callable[[], torch.Tensor]:
    """The product, to be called, of operands that lie ready. B is cut as n × k."""
    layout, batch, m, n, k = shape
    count = max(batch, 1)
    a = pools[0][: count * m * k].view(count, m, k)
    b = pools[1][: count * n * k].view(count, n, k).mT
    a = a.mT.contiguous().mT if layout[0] == "t" else a
    b = b.contiguous() if layout[1] == "n" else b
    name, _, out = kind.partition(".")
    if name in ("e4m3", "e4m3slow"):
        one = torch.ones((), device=a.device)
        fast = name == "e4m3"
        return lambda: torch._scaled_mm(
            a[0], b[0], one, one, out_dtype=torch.bfloat16 if not out else torch.float32,
            use_fast_accum=fast,
        )  # fmt: skip
    options = {"out_dtype": torch.float32} if out else {}
    if batch:
        return lambda: torch.bmm(a, b, **options)
    return lambda: torch.mm(a[0], b[0], **options)


def blocks(d: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    d = d if d.ndim == 3 else d[None]
    return d[0, : FIRST[0], : FIRST[1]], d[-1, -LAST[0] :, -LAST[1] :]


def hashed(codes: np.ndarray) -> int:
    return int.from_bytes(hashlib.sha256(codes.tobytes()).digest()[:8], "little")


def record_sweep(kind: str, seconds: float) -> dict[str, Any]:
    pools, chosen = operands(kind, "cuda"), shapes(kind)
    length = len(pools[0])
    chosen = [
        x for x in chosen
        if max(x[1], 1) * max(x[2] * x[4], x[3] * x[4]) <= length
    ]  # fmt: skip
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

    with precision(kind.partition(".")[0]):
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
        "sample": sample if kind.startswith("f64") else sample.astype(np.uint32),
    }  # fmt: skip


def _grids(kernels: list[Any]) -> list[list[int]]:
    found = [x[1] for x in kernels if x[1]]
    return [*found, [0, 0, 0], [0, 0, 0]][:2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("cases", "sweep"))
    parser.add_argument("words", nargs="+")
    parser.add_argument("--seconds", type=float, default=120)
    given = parser.parse_args()
    start = time.monotonic()
    if given.what == "cases":
        found = record_cases()
    else:
        found = record_sweep(given.words[0], given.seconds)
    found["meta"] = np.frombuffer(
        json.dumps({"provenance": provenance(), "rows": found["meta"]}).encode(), np.uint8
    )
    np.savez_compressed(given.words[-1], **found)
    print(given.what, given.words, f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
