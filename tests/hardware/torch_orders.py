"""Finds the orders along k that give the recorded bits, and writes the table of the library.

    python tests/hardware/torch_orders.py find SWEEP.npz -o TABLE.npz
    python tests/hardware/torch_orders.py join TABLE.npz ... \\
        -o emulator/matrices/library/h200_orders.npz

A sweep is what torch_record.py wrote. The names and grids of the kernels say which orders come into
question; a size is in the table with the order whose bits are those recorded, or with none.
Operands of a sweep are cut from one array, so that the block of D that was kept depends on k alone.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from emulator.matrices.library.product import multiply, multiply_add, result_codes, with_addend
from emulator.matrices.library.recorded import LAYOUTS
from emulator.matrices.library.rules import Order, Rule, find_rule, order_of
from emulator.targets import find_target
from hardware.torch_cases import draw
from hardware.torch_sweep import FIRST, hashed, parts_of

UNKNOWN = -1
_H200 = find_target("H200")
_CUTLASS = re.compile(r"cutlass_(80)_\w*?gemm\w*?_\d+x\d+_(\d+)x\d+_\w\w_align(\d+)")
_CUTLASS_75 = re.compile(r"cutlass_(75)_\w*?gemm\w*?_\d+x\d+_()\w\w_align(\d+)")
_XMMA = re.compile(r"xmma_gemm_\w+?_\w\w_n_tilesize\d+x\d+x(\d+)")


class SweepBlock:
    """The block of D that a sweep keeps of every size, as orders make it."""

    def __init__(self, kind: str) -> None:
        self.operation, self.name, self.out = parts_of(kind)
        self.adds = self.operation not in ("", "mv", "dot")
        self.base = self.name.removesuffix("slow")
        variant = {"tf32": "tf32", "e4m3": "fast"}.get(self.name, "")
        letters = "f32" if self.base == "tf32" else self.base
        rule = find_rule(letters, letters, variant)
        assert rule is not None
        self.rule: Rule = rule
        self.result = self.out or ("bf16" if self.base == "e4m3" else letters)
        #: rows and columns that are computed
        self.size = {"dot": (1, 1), "mv": (FIRST[0], 1)}.get(self.operation, FIRST)
        self._pools = {x: draw(f"sweep {x} {self.base}", (1 << 21,), self.base) for x in "abc"}
        self._sums: dict[Any, Any] = {}
        self._digests: dict[Any, int] = {}

    def digest(self, shape: Any, order: Order) -> int:
        """Of the first block of D, in an order."""
        _, m, n, k = shape
        rows, columns = min(m, FIRST[0]), min(n, FIRST[1])
        # An addend that is a matrix lies row by row: which of it meets the block depends on n.
        key = (order, rows, columns, k, n if self.operation in ("addmm", "baddbmm") else 0)
        if key not in self._digests:
            self._digests[key] = hashed(np.ascontiguousarray(self._block(order, *key[1:4], n)))
        return self._digests[key]

    def _block(self, order: Order, rows: int, columns: int, k: int, n: int) -> Any:
        if not self.adds:
            kind, codes = self.accumulators(order, k)
            return result_codes(kind, codes[:rows, :columns], self.result)
        c = self._pools["c"]
        if self.operation == "linear":
            c = np.broadcast_to(c[:columns], (rows, columns))
        else:
            c = np.stack([c[i * n : i * n + columns] for i in range(rows)])
        if order.addend != "first":
            kind, codes = self.accumulators(order._replace(addend="sum"), k)
            return with_addend(kind, codes[:rows, :columns], c, order, self.result)
        a, b = self._operands(k)
        return multiply_add(
            self.rule, a[:rows], b[:, :columns], c, _H200, order, self.result,
            engine=self._engine(order),
        )  # fmt: skip

    def _operands(self, k: int) -> Any:
        a, b = (self._pools[x][: rows * k] for x, rows in zip("ab", self.size, strict=True))
        return a.reshape(self.size[0], k), b.reshape(self.size[1], k).T

    def _engine(self, order: Order) -> Any:
        return "compiled" if not self.rule.opcodes or order.fma else "auto"

    def accumulators(self, order: Order, k: int) -> Any:
        if (order, k) not in self._sums:
            self._sums[order, k] = multiply(
                self.rule, *self._operands(k), _H200, order, self.result, self._engine(order)
            )  # fmt: skip
        return self._sums[order, k]


class Sweep(SweepBlock):
    """The recordings of one sweep."""

    def __init__(self, kind: str, path: Path) -> None:
        super().__init__(kind)
        with np.load(path) as file:
            self.rows = {name: file[name] for name in file.files}
        names = json.loads(bytes(self.rows["meta"]))["rows"]["kernels"]
        self.names = [json.loads(x) for x in names]

    def candidates(self, i: int) -> list[Order]:
        """The orders that the names and the grid of the kernels leave; none of unknown kernels."""
        names = [x for x in self.names[self.rows["kernel"][i]] if "elementwise" not in x]
        kernels = [x for x in names if "Memset" not in x]
        if not kernels or "splitKreduce" in kernels[0]:
            return []
        if any(x in kernels[0] for x in _VECTOR):
            # The first kernel of two scales C.
            grid = [int(x) for x in self.rows["grid"][i][int("scal_" in kernels[0])]]
            _, m, n, k = (int(x) for x in self.rows["shape"][i])
            layout = str(self.rows["layout"][i])
            strided = layout[0] == "t" if m >= n else layout[1] == "n"
            wide = 1 if strided or self.name == "f64" else 2
            return self._with_addends(vector_orders(kernels, grid, k, wide, max(m, n)), names)
        # The grids of the first two kernels that have one are kept.
        grid = self.rows["grid"][i][0]
        narrow = bool(re.search(r"splitKreduce_kernel<32, 16, int, __", " ".join(kernels)))
        shape = [int(x) for x in self.rows["shape"][i]]
        orders = _orders(kernels, [int(x) for x in grid], shape, narrow)
        if self.name == "tf32" and re.search("ffma|simt", kernels[0]):
            orders = [x._replace(fma=True) for x in orders]
        if self.name not in ("f16", "bf16"):
            orders = [x._replace(k=0) for x in orders]
        plain = list(dict.fromkeys(self._plain(x, shape[3]) for x in orders))
        return self._with_addends(plain, names)

    def _with_addends(self, orders: list[Order], kernels: list[str]) -> list[Order]:
        """Orders with each way in which the addend may get in."""
        if not self.adds:
            return orders
        addends: list[Any] = ["sum", "rounded"] if self.name in ("f16", "bf16") else ["sum"]
        if "Memset (Device)" in kernels or "scal_" in kernels[0]:
            addends.append("first")
        return [x._replace(addend=addend) for x in orders for addend in addends]

    def _plain(self, order: Order, k: int) -> Order:
        """The order without what changes nothing for that k."""
        if order.shares > 1:
            return order
        part = 0 if order.part >= k else order.part
        lengths = {part, k % part} if part else {k}
        ins = None if order.fma else self.rule.instruction(_H200, order.k)
        short = {x % order.tile for x in lengths} if order.tile else {0}
        tile = order.tile if ins is not None and any(x % ins.k for x in short) else 0
        return order._replace(part=part, tile=tile, narrow=order.narrow and part > 0)

    def find(self, i: int) -> Order | None:
        """The order that gives the recorded bits; None where several or none do."""
        shape = [int(x) for x in self.rows["shape"][i]]
        found = [
            x for x in self.candidates(i) if self.digest(shape, x) == int(self.rows["first"][i])
        ]
        if len(found) > 1:
            # Rounded results may hide that orders differ: then nobody knows which it was.
            plain = [x._replace(addend="sum") for x in found]
            sums = {self.accumulators(x, shape[3])[1].tobytes() for x in plain}
            addends = {x.addend for x in found}
            return found[0] if len(sums) == len(addends) == 1 else None
        return found[0] if found else None


#: kernels of products with a vector or a narrow matrix, on CUDA cores
_VECTOR = ("gemv", "gemmSN", "gemmk1", "dot_kernel", "magma_sgemmEx", "sgemm_largek", "scal_")
_CHAIN = Order(fma=True)


def vector_orders(
    kernels: list[str], grid: list[int], k: int, wide: int = 2, outputs: int = 1
) -> list[Order]:
    """The orders that kernels of CUDA cores may have: trees that torch_trees.py found.

    `wide`: elements that dot_kernel's threads read at once; `outputs`: elements of D.
    """
    name = " ".join(kernels)
    if "dot_kernel" in name:
        chain = Order(fma=True, rounded=True)
        threads = Order(0, 128, wide, fma=True, sums="by halves", within=chain)
        block = 128 * wide
        blocks = Order(block, fma=True, sums="by fours", within=threads)
        if k > block * grid[0]:
            blocks = blocks._replace(part=0, shares=grid[0], tile=block)
        found = [blocks if k > block and grid[0] > 1 else threads]
    elif "gemvx" in name:
        found = []
        for lanes in _lanes(name, grid[0], outputs):
            found += [Order(0, lanes, x, fma=True, sums="by halves") for x in (1, 32, 64)]
            found.append(Order(-(-k // lanes), fma=True, sums="by halves"))
    elif "gemvNSP" in name:
        found = [Order(0, x, 4, fma=True, sums="by halves") for x in (8, 16, 24, 32)]
    elif "gemv2T" in name or "gemmSN_TN" in name:
        chunks = [None, *(Order(x, fma=True) for x in (8, 16, 32, 64))]
        found = [Order(0, 16, 1, fma=True, within=x) for x in chunks]
        found.append(_CHAIN)
    elif "gemmSN_NN" in name:
        found = [Order(_up(-(-k // x), y), fma=True) for x in (2, 4, 8) for y in (1, 2, 4, 8)]
        found += [
            Order(x * y, fma=True, within=Order(y, fma=True))
            for x in (2, 4, 8) for y in (64, 128, 256) if x * y < k
        ]  # fmt: skip
        found.append(_CHAIN)
    elif "largek" in name:
        return _parts_of_grid(_CHAIN, k, grid[2], (1, 8, 16, 32, 64))
    else:
        found = [_CHAIN, *(Order(-(-k // x), fma=True) for x in (2, 4, 8))]
    if "splitKreduce" in name:
        found = [
            whole
            for x in found
            for whole in _parts_of_grid(x, k, grid[2], (1, 2, 4, 8, 16, 32, 64, 128))
        ]
    return list(dict.fromkeys(found))


def _lanes(name: str, blocks: int, outputs: int) -> list[int]:
    """Threads that share an element of D, of gemvx::kernel: a block has some elements."""
    found = re.search(r"gemvx::kernel<[^>]*?(?:true|false), (\d+), ", name)
    threads = 1 << int(found[1]) if found else 0
    lanes = [2, 4, 8, 16, 32]
    return [x for x in lanes if threads % x == 0 and -(-outputs * x // threads) == blocks] or lanes


def _parts_of_grid(inner: Order, k: int, parts: int, multiples: tuple[int, ...]) -> list[Order]:
    """Parts as large as they must be for so many of them."""
    sizes = {_up(-(-k // parts), x) for x in multiples}
    within = None if inner == _CHAIN else inner
    return [Order(x, fma=True, within=within) if x < k else inner for x in sorted(sizes)]


def _up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


def _orders(kernels: list[str], grid: list[int], shape: list[int], narrow: bool) -> list[Order]:
    batch, k = shape[0], shape[3]
    main, parts = kernels[0], grid[2]
    if batch and parts % batch == 0:
        parts //= batch
    if "nvjet" in main:
        return _nvjet_orders(main, grid, shape, narrow)
    if found := _CUTLASS.search(main) or _CUTLASS_75.search(main):
        of_turing, tiles, align = found[1] == "75", found[2] or "32", int(found[3])
        order = Order(0, 1, int(tiles), narrow, 8 if "1688" in main else 0)
        if parts == 1:
            return [order]
        width = -(-k // parts)
        multiples = (align, 8, int(tiles), 32, 1) if not of_turing else (align, 8, 32, 1)
        return [order._replace(part=_up(width, x)) for x in multiples]
    if found := _XMMA.search(main):
        tile = int(found[1])
        if parts == 1:
            # Stream-K: blocks share tiles in a way that the grid does not tell.
            return [] if "segment_k_on" in main else [Order()]
        return [Order(0, parts, tile)]
    return []


def _nvjet_orders(main: str, grid: list[int], shape: list[int], narrow: bool) -> list[Order]:
    batch, m, n, k = shape
    if "splitK" not in main:
        return [Order()]
    found = re.search(r"_(\d+)x(\d+)_(\d+)x", main)
    assert found is not None
    wide, high, tile = (int(x) for x in found.groups())
    # The library takes D by columns: what is first of a tile runs along n, but for a single column.
    x, y = (m, n) if n == 1 else (n, m)
    across, along = -(-x // wide), -(-y // high)
    blocks, tiles = int(np.prod(grid)), across * along * max(batch, 1)
    clusters = re.search(r"_(\d)x(\d)_[hv]_", main)
    assert clusters is not None
    # Tiles are whole clusters.
    whole = {
        _up(across, int(i)) * _up(along, int(j)) * max(batch, 1)
        for i, j in (clusters.groups(), clusters.groups()[::-1])
    }
    return [
        Order(_up(_up(k, tile) // tile, parts) // parts * tile, narrow=narrow)
        for parts in {blocks // tiles, -(-blocks // tiles), *(blocks // y for y in whole)}
        if parts > 1
    ]


def orders_of(kind: str, path: Path, alike: int) -> dict[str, Any]:
    """The table of one sweep: sizes whose k at least `alike` others have, and places of orders."""
    orders: dict[Order, int] = {}
    sweep, rows, lost = Sweep(kind, path), [], Counter[str]()
    shapes = sweep.rows["shape"]
    counts = Counter(shapes[:, 3].tolist())
    for i in np.argsort(shapes[:, 3], kind="stable"):
        if counts[int(shapes[i, 3])] < alike:
            continue
        order = sweep.find(i)
        place = UNKNOWN if order is None else orders.setdefault(order, len(orders))
        rows.append([LAYOUTS.index(sweep.rows["layout"][i]), *shapes[i].tolist(), place])
        if order is None:
            kernels = sweep.names[sweep.rows["kernel"][i]]
            name = re.sub(r"void |cutlass::Kernel2<|\d+x\d+", "", " ".join(kernels))[:60]
            lost[f"{name} {'differs' if sweep.candidates(i) else 'unknown'}"] += 1
    known = sum(row[-1] != UNKNOWN for row in rows)
    print(f"{kind}: {known} of {len(rows)} sizes", dict(lost.most_common(8)), flush=True)
    return {kind: np.array(rows, np.int32), "orders": _as_text(orders)}


def _as_text(orders: dict[Order, int]) -> Any:
    return np.frombuffer(json.dumps([list(x) for x in orders]).encode(), np.uint8)


def joined(paths: list[Path]) -> dict[str, Any]:
    """Tables of sweeps as one, with one list of orders; later ones add sizes to a sweep."""
    orders: dict[Order, int] = {}
    found: dict[str, Any] = {}
    for path in paths:
        with np.load(path) as file:
            own = [order_of(x) for x in json.loads(bytes(file["orders"]))]
            places = [orders.setdefault(x, len(orders)) for x in own]
            for kind in (x for x in file.files if x != "orders"):
                rows = file[kind].copy()
                rows[:, -1] = [UNKNOWN if x == UNKNOWN else places[x] for x in rows[:, -1]]
                found[kind] = np.concatenate([found[kind], rows]) if kind in found else rows
    return found | {"orders": _as_text(orders)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("find", "join"))
    parser.add_argument("paths", type=Path, nargs="+", help="a sweep; or the tables to join")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--alike", type=int, default=20, help="leave out k of fewer sizes")
    given = parser.parse_args()
    if given.what == "find":
        (path,) = given.paths
        written = orders_of(path.stem.replace("_", " "), path, given.alike)
    else:
        written = joined(given.paths)
    np.savez_compressed(given.output, **written)


if __name__ == "__main__":
    main()
