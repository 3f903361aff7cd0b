"""Finds the order in which a GPU's library adds products, by experiment, as a tree.

    python tests/hardware/torch_trees.py JOBS.json OUT.json.gz [--seconds N]

Of products that are all 1, two are made +M and -M, so large that a 1 added to them is lost. The
result counts the products that are added after the two have met: so many leaves lie outside the
smallest subtree that holds both (the method of FPRev, Xie et al. 2024, arXiv:2411.00442). Every row
or column of the result is an experiment of its own. An addend counts as one more product.

A tree is ``[leaf, [subtree, …], [subtree, …], …]``: a leaf, then what is added to it, step by step;
several subtrees in one step are added at once, as tensor cores do. Needs torch, NumPy and this
folder, nothing else of the project.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from hardware.torch_cases import TYPES, precision
from hardware.torch_record import in_chunks, provenance
from hardware.torch_sweep import parts_of

#: 1 and M of an operand; the other operand is 1
_UNITS = {"f16": (2.0**-24, 2.0**15), "f64": (1.0, 2.0**300)}
#: sums that a result can count exactly, less what stands for the addend
_COUNTS = {"f16": 1000, "bf16": 250}
#: pairs that are tried for one tree
_PAIRS = 150_000

Measure = Callable[[np.ndarray], np.ndarray]


class Unclear(Exception):
    """The counts are those of no tree: the order is not fixed, or products are no longer 1."""


def find_tree(leaves: list[int], measure: Measure) -> Any:
    """The tree of sums; `measure`: pairs ``(p, 2)`` -> leaves of the smallest subtree with both."""
    found: dict[int, list[tuple[int, list[int]]]] = {}
    work, pairs_left = [leaves], _PAIRS
    while work:
        pairs = np.array([(x[0], y) for x in work for y in x[1:]])
        pairs_left -= len(pairs)
        if pairs_left < 0:
            raise Unclear("too many pairs")
        sizes = measure(pairs)
        start, following = 0, []
        for group in work:
            counts = sizes[start : start + len(group) - 1]
            start += len(group) - 1
            parts = [
                (int(size), [y for y, z in zip(group[1:], counts, strict=True) if z == size])
                for size in np.unique(counts)
            ]
            found.setdefault(group[0], []).extend(parts)
            following += [part for _, part in parts if len(part) > 1]
        work = following
    return _assembled(leaves[0], found, None)[0]


def _assembled(first: int, found: Any, within: int | None) -> list[Any]:
    """The subtrees that the group of leaf `first` consists of, inside a subtree of that size."""
    tree: list[Any] = [first]
    parts, seen = found.get(first, []), 1
    for size, group in parts:
        if within is not None and size >= within:
            if size > within:
                raise Unclear(f"{size} leaves within {within}")
            return [tree, *_assembled(group[0], found, within)]
        seen += len(group)
        if size != seen:
            raise Unclear(f"{size} leaves where {seen} were counted")
        tree.append(_assembled(group[0], found, size))
    return [tree]


def chosen_leaves(count: int, limit: int) -> list[int]:
    """At most `limit` of the leaves: the first ones, and a sample of the others."""
    if count <= limit:
        return list(range(count))
    random = np.random.Generator(np.random.PCG64(4))
    first = limit // 3
    others = random.choice(np.arange(first, count), limit - first, replace=False)
    return sorted([*range(first), *map(int, others)])


class Experiments:
    """Sums of ones of which two are replaced by numbers that cancel: `width` experiments at once,
    in each of which `leaves` numbers are added, those that are `active` and zeros."""

    one: float
    much: float
    dtype: torch.dtype
    active: list[int]
    leaves: int
    width: int

    def load(self, masks: torch.Tensor) -> None:
        """Puts the numbers ``(width, leaves)`` into the operands."""
        raise NotImplementedError

    def sums(self) -> torch.Tensor:
        """The results of the experiments."""
        raise NotImplementedError

    def measure(self, pairs: np.ndarray) -> np.ndarray:
        """For each pair of leaves, how many ones are added before both of them are."""
        base = torch.zeros(self.leaves, dtype=self.dtype, device="cuda")
        base[torch.tensor(self.active, device="cuda")] = self.one
        found = []
        where = torch.from_numpy(pairs).cuda()
        for start in range(0, len(pairs), self.width):
            pair = where[start : start + self.width]
            masks = base.repeat(self.width, 1)
            rows = torch.arange(len(pair), device="cuda")
            masks[rows, pair[:, 0]], masks[rows, pair[:, 1]] = self.much, -self.much
            self.load(masks)
            found.append(self.sums()[: len(pair)])
        counts = torch.cat(found).double() / self.one
        return len(self.active) - counts.cpu().numpy()


class Product(Experiments):
    """Experiments with one product of a sweep: row by row of A, or column by column of B."""

    def __init__(self, kind: str, layout: str, batch: int, m: int, n: int, k: int) -> None:
        self.operation, self.name, out = parts_of(kind)
        self.options = {"out_dtype": torch.float32} if out else {}
        kept = self.dtype = TYPES[self.name]
        self.by_rows = m >= n and self.operation != "linear"
        self.one, self.much = _UNITS.get(self.name, (1.0, 2.0**100))
        count = max(batch, 1)
        shapes = (count, m, k), (count, n, k)
        self.width = m if self.by_rows else n
        a, b = (torch.ones(x, dtype=kept, device="cuda") for x in shapes)
        if layout[0] == "t":
            a = a.mT.contiguous().mT
        b = b.mT.contiguous() if layout[1] == "n" else b.mT
        self.a, self.b, self.batch = a, b, batch
        shape = (n,) if self.operation == "linear" else (count, m, n)
        self.c = torch.ones(shape, dtype=kept, device="cuda") * self.one
        # What carries the experiments: (experiment, k) of the first matrix.
        self.carrier = a[0] if self.by_rows else b[0].mT
        self.k = k
        self.leaves = k + bool(self.operation in ("linear", "addmm", "baddbmm"))
        limit = 1024 if out else _COUNTS.get(self.name, 1024)
        self.active = chosen_leaves(k, limit) + ([k] if self.leaves > k else [])

    def compute(self) -> torch.Tensor:
        a, b, c = self.a, self.b, self.c
        if self.operation == "linear":
            return torch.nn.functional.linear(a[0], b[0].mT, c)
        if self.operation == "baddbmm":
            return torch.baddbmm(c, a, b)
        if self.operation == "addmm":
            return torch.addmm(c[0], a[0], b[0])
        if self.operation == "mv":
            return torch.mv(a[0], b[0, :, 0])[:, None]
        if self.operation == "dot":
            return torch.dot(a[0, 0], b[0, :, 0])[None, None]
        return torch.bmm(a, b, **self.options) if self.batch else torch.mm(a[0], b[0])

    def load(self, masks: torch.Tensor) -> None:
        self.carrier.copy_(masks[:, : self.k])
        if self.leaves > self.k:
            self._place(masks[:, self.k])

    def sums(self) -> torch.Tensor:
        d = self.compute()
        d = d[0] if d.ndim == 3 else d
        return d[:, 0] if self.by_rows else d[0]

    def _place(self, addends: torch.Tensor) -> None:
        if self.operation == "linear":
            self.c.copy_(addends)
        elif self.by_rows:
            self.c[0].copy_(addends[:, None].expand_as(self.c[0]))
        else:
            self.c[0].copy_(addends.expand_as(self.c[0]))


class Convolution(Experiments):
    """Experiments with a convolution, or one of its gradients: channel by channel."""

    def __init__(self, kind: str, what: str, last: bool, x: Any, w: Any, options: Any) -> None:
        self.what, self.options, self.dtype = what, options, TYPES[kind]
        self.one, self.much = _UNITS.get(kind, (1.0, 2.0**100))
        where = {"memory_format": torch.channels_last} if last else {}
        self.x, self.w = (
            torch.ones(s, dtype=self.dtype, device="cuda").to(**where) for s in (x, w)
        )
        y = torch.nn.functional.conv2d(self.x, self.w, **options)
        self.g = torch.ones_like(y)
        stride, pad = options.get("stride", 1), options.get("padding", 0)
        self.center = [n // 2 for n in (y if what == "y" else self.x).shape[2:]]
        if what == "y":
            self.shape, self.width = tuple(self.w.shape[1:]), w[0]
            active = list(range(int(np.prod(self.shape))))
        elif what == "dx":
            self.shape, self.width = (w[0], *w[2:]), x[1]
            taps = [
                [r for r in range(w[2 + i])
                 if (self.center[i] + pad - r) % stride == 0
                 and 0 <= (self.center[i] + pad - r) // stride < y.shape[2 + i]]
                for i in (0, 1)
            ]  # fmt: skip
            active = [
                (o * w[2] + r) * w[3] + s for o in range(w[0]) for r in taps[0] for s in taps[1]
            ]
        else:
            self.shape, self.width = (y.shape[0], *y.shape[2:]), w[0]
            self.center = [w[2] // 2, w[3] // 2]
            inside = [
                [p for p in range(y.shape[2 + i])
                 if 0 <= p * stride + self.center[i] - pad < x[2 + i]]
                for i in (0, 1)
            ]  # fmt: skip
            active = [
                (b * y.shape[2] + p) * y.shape[3] + q
                for b in range(y.shape[0]) for p in inside[0] for q in inside[1]
            ]  # fmt: skip
        self.leaves = int(np.prod(self.shape))
        limit = _COUNTS.get(kind, 1024)
        self.active = [active[i] for i in chosen_leaves(len(active), limit)]

    def compute(self) -> torch.Tensor:
        if self.what == "y":
            return torch.nn.functional.conv2d(self.x, self.w, **self.options)
        stride, pad = ([self.options.get(x, d)] * 2 for x, d in (("stride", 1), ("padding", 0)))
        made = torch.ops.aten.convolution_backward(
            self.g, self.x, self.w, None, stride, pad, [1, 1], False, [0, 0], 1,
            [self.what == "dx", self.what == "dw", False],
        )  # fmt: skip
        return made[0] if self.what == "dx" else made[1]

    def load(self, masks: torch.Tensor) -> None:
        shaped = masks.view(self.width, *self.shape)
        if self.what == "y":
            self.w.copy_(shaped)
        elif self.what == "dx":
            self.w.copy_(shaped.transpose(0, 1))
        else:
            self.g.copy_(shaped.transpose(0, 1))

    def sums(self) -> torch.Tensor:
        d, (i, j) = self.compute(), self.center
        return d[:, 0, i, j] if self.what == "dw" else d[0, :, i, j]


def _first_counts(made: Any, kind: str) -> list[float]:
    """What is counted for the first leaf and each other one."""
    pairs = np.array([(made.active[0], x) for x in made.active[1:]])
    with precision(kind):
        return [float(x) for x in made.measure(pairs)]


def record(jobs: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """The tree of every job, the kernels that ran, and their grids and blocks."""
    end, rows = time.monotonic() + seconds, []

    def work(profile: Any, job: dict[str, Any]) -> None:
        row = dict(job)
        rows.append(row)
        if time.monotonic() > end:
            row["error"] = "no time"
            with profile.operation():
                return
        made = None
        start = time.monotonic()
        try:
            with precision(job["type"]):
                make = Product if "shape" in job else Convolution
                made = make(*job["shape"]) if "shape" in job else make(*job["conv"])
                row["leaves"] = made.active
                made.compute()
        except (RuntimeError, ValueError) as error:
            row["error"] = str(error)[:300]
        with profile.operation(), precision(job["type"]):
            if made is not None and "error" not in row:
                made.compute()
        row["made"] = made
        row["seconds"] = time.monotonic() - start

    for start in range(0, len(jobs), 50):
        part = jobs[start : start + 50]
        kernels = in_chunks(part, 50, work)
        for row, ran in zip(rows[start:], kernels, strict=True):
            row["kernels"] = ran
            made = row.pop("made", None)
            if made is None or time.monotonic() > end:
                row.setdefault("error", "no time")
                continue
            begin = time.monotonic()
            try:
                with precision(row["type"]):
                    row["tree"] = find_tree(made.active, made.measure)
            except (Unclear, RuntimeError, RecursionError) as error:
                row["error"] = f"{type(error).__name__}: {error}"[:300]
                row["counts"] = _first_counts(made, row["type"])
            row["seconds"] += time.monotonic() - begin
            if row["leaves"] == list(range(len(row["leaves"]))):
                row["leaves"] = len(row["leaves"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("jobs", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=100)
    given = parser.parse_args()
    start = time.monotonic()
    sys.setrecursionlimit(20_000)
    rows = record(json.loads(given.jobs.read_text()), given.seconds)
    text = json.dumps({"provenance": provenance(), "rows": rows}, separators=(",", ":"))
    given.output.write_bytes(gzip.compress(text.encode()))
    good = sum("tree" in row for row in rows)
    print(f"{good} trees of {len(rows)} jobs, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
