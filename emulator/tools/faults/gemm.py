"""Tiles of a whole GEMM: the chains of products that a launch executed, and where each belongs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dtypes import FORMATS, Array, array_from_codes, array_type, decode_values
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import LINE_BYTES
from emulator.machine.shared.place import Index, shown
from emulator.targets import Target
from emulator.tools.faults.copies import MISTAKES
from emulator.tools.faults.kernel import RecordedKernel
from emulator.tools.faults.meant import Meant
from emulator.tools.faults.observed import Product
from emulator.tools.faults.report import Fault, FaultReport
from emulator.tools.faults.stores import Places, wrong_places
from emulator.tools.faults.transfers import Transfer, Transfers
from emulator.tools.operands import as_codes, tile_in_memory

#: the fault finder on one instruction
Search = Callable[..., FaultReport]
#: by block and thread: offsets in C, and the bytes stored there
Stores = Mapping[tuple[Index, int], Sequence[tuple[int, bytes]]]
#: row and column in C, as far as they are known
Place = tuple[int | None, int | None]
#: elements of a tile that must be found in C before their places are fitted
_FEW = 8


@dataclass(eq=False)
class Tile:
    """A chain of products, each of which starts from the result of the one before."""

    products: list[Product]
    #: first row and first column in C; None where nothing tells
    row: int | None = None
    column: int | None = None
    #: where each product belongs along K
    along: list[int] = field(default_factory=list)
    #: operand -> whether it is wrong in each product
    wrong: dict[str, list[bool]] = field(default_factory=dict)
    #: what the products take from A and B, None where it leaves shared memory, and where that
    #: stands in A and in B
    held: dict[str, list[Array | None]] = field(default_factory=dict)
    found: dict[str, list[tuple[int, int] | None]] = field(default_factory=dict)
    #: where the result stands in C
    there: tuple[int, int] | None = None
    #: the result stands in C where it belongs; where it stands instead, if anywhere
    stored: bool = True
    elsewhere: tuple[int, int] | None = None

    @property
    def ins(self) -> MatrixInstruction:
        return self.products[0].ins

    @property
    def voted(self) -> tuple[int | None, int | None]:
        """Its row and column, as most of its operands say."""
        rows = [x[0] for x in self.found["a"] if x]
        return _usual(rows, None), _usual([x[1] for x in self.found["b"] if x], None)

    @property
    def right(self) -> bool:
        return self.stored and not any(any(x) for x in self.wrong.values())

    def __str__(self) -> str:
        first = self.products[0]
        text = f"block {shown(first.block)}, warp {first.warp}"
        if self.row is None or self.column is None:
            return text
        rows = f"rows {self.row}-{self.row + self.ins.m - 1}"
        return f"{text}: {rows}, columns {self.column}-{self.column + self.ins.n - 1} of C"


def chains(products: Sequence[Product]) -> list[Tile]:
    """Tiles: a product whose accumulators hold an earlier result of its warp continues that one."""
    tiles: list[Tile] = []
    ends: dict[tuple[object, ...], list[Tile]] = {}
    for product in products:
        who = (product.block, product.warp, str(product.ins))
        earlier = ends.get((*who, product.words["c"].tobytes()))
        if earlier and product.options.get("scale_d", True):
            tile = earlier.pop(0)
            tile.products.append(product)
        else:
            tile = Tile([product])
            tiles.append(tile)
        ends.setdefault((*who, product.result.tobytes()), []).append(tile)
    return tiles


class _Places:
    """Where blocks of a matrix stand in it, by their bytes; None where a block stands twice."""

    def __init__(self, matrix: Array, shape: tuple[int, int], steps: tuple[int, int]) -> None:
        self._found: dict[bytes, tuple[int, int] | None] = {}
        for i in range(0, matrix.shape[0] - shape[0] + 1, steps[0]):
            for j in range(0, matrix.shape[1] - shape[1] + 1, steps[1]):
                key = matrix[i : i + shape[0], j : j + shape[1]].tobytes()
                self._found[key] = None if key in self._found else (i, j)

    def of(self, block: Array) -> tuple[int, int] | None:
        return self._found.get(np.ascontiguousarray(block).tobytes())


class Gemm:
    """The matrices of a GEMM as the tiles of one instruction see them."""

    def __init__(
        self, meant: Meant, ins: MatrixInstruction, target: Target, transfers: Transfers
    ) -> None:
        self.meant, self.ins, self.target, self.transfers = meant, ins, target, transfers
        self.k = meant.a.shape[1]
        # A last tile may stick out of the matrix: behind it are zeros.
        a, b = as_codes("A", FORMATS[ins.a_type], meant.a), as_codes("B", FORMATS[ins.b_type],
                                                                     meant.b)  # fmt: skip
        self.a = np.pad(a, [(0, -a.shape[0] % ins.m), (0, -a.shape[1] % ins.k)])
        self.b = np.pad(b, [(0, -b.shape[0] % ins.k), (0, -b.shape[1] % ins.n)])
        self._in_a = _Places(self.a, (ins.m, ins.k), (8, ins.k))
        self._in_b = _Places(self.b, (ins.k, ins.n), (ins.k, 8))
        self._in_c = _Places(meant.stored, (ins.m, ins.n), (1, 1))

    def recorded(self, products: Sequence[Product]) -> RecordedKernel:
        first = products[0]
        words = {
            name: np.stack([x.words[name] for x in products]) for name in first.words if name != "c"
        }
        words["c"] = first.words["c"]
        if first.ins.is_wgmma:
            words["shared"] = first.shared
        return RecordedKernel(first.ins, self.target, words, dict(first.options))

    def result(self, tile: Tile) -> Array:
        """What the tile computed, as C's type ``(m, n)``."""
        fragment = self.ins.fragment("d")
        codes, type_ = fragment.gather(tile.products[-1].result), self.meant.stored.dtype
        if array_type(fragment.fmt) == type_:
            return array_from_codes(fragment.fmt, codes)
        with np.errstate(all="ignore"):
            return decode_values(fragment.fmt, codes).astype(type_)

    # --- where a tile belongs, and what is wrong with it ---

    def look(self, tile: Tile) -> None:
        """Finds where the operands and the result of a tile stand."""
        for name, places in (("a", self._in_a), ("b", self._in_b)):
            held = tile.held[name] = [self.recorded([x]).matrix_inside(name) for x in tile.products]
            tile.found[name] = [None if x is None else places.of(x) for x in held]
        tile.there = self._in_c.of(self.result(tile))

    def judge(self, tile: Tile, by_result: bool) -> None:
        """Fills in what can be told of a tile; `by_result`: what is stored says where it belongs,
        not the operands."""
        there = tile.there
        ways = [there or (None, None), tile.voted]
        (tile.row, tile.column), other = ways if by_result else ways[::-1]
        tile.row = other[0] if tile.row is None else tile.row
        tile.column = other[1] if tile.column is None else tile.column
        if tile.row is None or tile.column is None:
            return
        tile.along = self._along(
            [x and x[1] for x in tile.found["a"]], [x and x[0] for x in tile.found["b"]]
        )
        result = self.result(tile)
        rows, cols = tile.row + np.arange(self.ins.m), tile.column + np.arange(self.ins.n)
        for name in "ab":
            tile.wrong[name] = []
            for k, held in zip(tile.along, tile.held[name], strict=True):
                inner = slice(k, k + self.ins.k)
                meant = self.a[rows, inner] if name == "a" else self.b[inner, cols]
                tile.wrong[name].append(held is None or not np.array_equal(meant, held))
        inside = self.meant.stored[tile.row :, tile.column :][: self.ins.m, : self.ins.n]
        part = np.ascontiguousarray(result[: inside.shape[0], : inside.shape[1]])
        tile.stored = part.tobytes() == inside.tobytes()
        tile.elsewhere = None if tile.stored else there

    def _along(self, by_a: list[int | None], by_b: list[int | None]) -> list[int]:
        """Where each product belongs along K: where both operands say so; else one after another,
        as most of them say, or as one operand does that goes through all of them."""
        usual = [i * self.ins.k for i in range(len(by_a))]
        for one in (by_a, by_b):
            if None not in one and len(set(one)) == len(one):
                usual = [int(x) for x in one if x is not None]
                break
        else:
            votes = [
                k - i * self.ins.k
                for one in (by_a, by_b)
                for i, k in enumerate(one)
                if k is not None
            ]
            start = _usual([x for x in votes if x >= 0], 0) or 0
            last = self.a.shape[1] - len(by_a) * self.ins.k
            usual = [x + min(start, max(0, last)) for x in usual]
        both = zip(by_a, by_b, usual, strict=True)
        return [a if a is not None and a == b else k for a, b, k in both]

    # --- which mistake it is ---

    def search_operand(
        self, search: Search, tile: Tile, name: str
    ) -> tuple[FaultReport, Transfer | None]:
        """The fault finder on an operand, in the steps from the first wrong one on that find shared
        memory alike; and one of the tensor copies that are to blame, where they are."""
        which = self._alike(tile, name)
        chosen = [tile.products[i] for i in which]
        ks = np.concatenate([np.arange(self.ins.k) + tile.along[i] for i in which])
        rows, cols = (tile.row or 0) + np.arange(self.ins.m), (
            tile.column or 0) + np.arange(self.ins.n)  # fmt: skip
        given: dict[str, Any] = {}
        last = chosen[-1]
        if self.ins.is_wgmma:
            for word in last.words:
                if word != "c":
                    key = "registers_a" if word == "a" else word
                    given[key] = np.stack([x.words[word] for x in chosen])
            given["shared"] = last.shared
            given |= {x: y for x, y in last.options.items() if x.startswith("imm_")}
        elif all(name in x.rows for x in chosen):
            given[f"addresses_{name}"] = np.concatenate([x.rows[name].addresses for x in chosen])
            given |= {f"trans_{name}": last.rows[name].trans, "shared": last.rows[name].shared}
        else:
            given[f"registers_{name}"] = np.stack([x.words[name] for x in chosen])
        part = self.a[np.ix_(rows, ks)], self.b[np.ix_(ks, cols)]
        read = np.unique(np.concatenate([self._read(x, name) for x in chosen]))
        memory = self._memory(last, name)
        brought = self.transfers.standing(last.block, last.transfers, memory, read)
        # Those of one statement at a time, then all together.
        ways = [[x for x in brought if x.pc == pc] for pc in dict.fromkeys(x.pc for x in brought)]
        best: FaultReport | None = None
        for way in [*ways, *([brought] if len(ways) != 1 else [])]:
            boxes = {"boxes": [x.box for x in way]} if way else {}
            report = search(self.ins, *part, target=self.target, **given, **boxes)
            best = best or report
            if report.exact:
                copied = report.exact[0].mistake in {x.name for x in MISTAKES}
                return report, way[0] if copied else None
        assert best is not None
        return best, None

    def _alike(self, tile: Tile, name: str) -> list[int]:
        """Steps around the first wrong one between which what the earlier ones read stays."""
        epochs: list[list[int]] = [[]]
        read = np.zeros(0, np.int64)
        for i, product in enumerate(tile.products):
            before = epochs[-1][-1] if epochs[-1] else None
            if before is not None:
                earlier = tile.products[before]
                old, new = (self._memory(x, name) for x in (earlier, product))
                sent = product.block, earlier.transfers, product.transfers
                if not np.array_equal(old[read], new[read]) or self.transfers.refilled(*sent, read):
                    epochs.append([])
                    read = np.zeros(0, np.int64)
            epochs[-1].append(i)
            read = np.union1d(read, self._read(product, name))
        wrong = tile.wrong[name]
        return next(x for x in epochs if any(wrong[i] for i in x))

    def _memory(self, product: Product, name: str) -> Array:
        return product.rows[name].shared if name in product.rows else product.shared

    def _read(self, product: Product, name: str) -> Array:
        """The bytes of shared memory that a product takes an operand from."""
        word = product.words.get(f"descriptor_{name}")
        size = len(product.shared)
        if name in product.rows:
            rows = product.rows[name]
            used = rows.addresses[0, : 8 * self.ins.fragment(name).registers]
            return np.unique(used[:, None] + np.arange(LINE_BYTES)).clip(0, size - 1)
        if word is None:
            return np.zeros(0, np.int64)
        shape = tile_in_memory(self.ins, name, product.options).shape()
        return np.unique(Descriptor.decode(int(word)).addresses(shape)).clip(0, size - 1)

    def search_store(
        self, search: Search, tile: Tile, stores: Stores
    ) -> FaultReport | Fault | None:
        """Names the mistake with which a right result was stored."""
        places = self._places(tile, stores)
        known = int((places >= 0).sum())
        if known >= _FEW and (text := self._strides(tile, places) or self._formula(tile, places)):
            every = np.ones(known, bool)
            why = (
                "Every matrix instruction computes its tile from the right operands; the addresses "
                "of the stores are not those of the tile in C."
            )
            return Fault.of("store of D", "d", f"C: {text}", why, every, every)
        row, col, ins = tile.row or 0, tile.column or 0, self.ins
        stored = self.meant.stored[row : row + ins.m, col : col + ins.n]
        if stored.shape != (ins.m, ins.n) or stored.dtype != array_type(FORMATS[ins.d_type]):
            return None
        ks = np.concatenate([np.arange(ins.k) + k for k in tile.along])
        c = ins.fragment("c").gather(tile.products[0].words["c"])
        return search(
            ins,
            self.a[row : row + ins.m][:, ks],
            self.b[ks, col : col + ins.n],
            c,
            target=self.target,
            d=stored,
        )

    def _places(self, tile: Tile, stores: Stores) -> Places:
        """Which element of C each thread has stored its part of the tile to ``(lanes, elements)``;
        -1 where that is open."""
        fragment, size = self.ins.fragment("d"), self.meant.stored.itemsize
        result = np.ascontiguousarray(self.result(tile)).view(f"u{size}").reshape(-1)
        out = np.full(fragment.lane_map.flat.shape, -1, np.intp)
        first = tile.products[0]
        for lane in range(fragment.lanes):
            to: dict[int, set[int]] = {}
            for offset, data in stores.get((first.block, first.warp * 32 + lane), ()):
                if offset % size == 0 and len(data) % size == 0:
                    for i, code in enumerate(np.frombuffer(data, f"<u{size}").tolist()):
                        to.setdefault(code, set()).add(offset // size + i)
            for element, flat in enumerate(fragment.lane_map.flat[lane]):
                found = to.get(int(result[flat]), ())
                if len(found) == 1:
                    (out[lane, element],) = found
        return out

    def _strides(self, tile: Tile, places: Places) -> str:
        """The start and the strides that all places have, as far as they are wrong, in words."""
        rows, cols = np.moveaxis(self.ins.fragment("d").coords, -1, 0)
        known = places >= 0
        system = np.stack([rows[known], cols[known], np.ones(known.sum(), int)], 1)
        fit = np.rint(np.linalg.lstsq(system.astype(float), places[known], rcond=None)[0])
        by_row, by_column, start = (int(x) for x in fit)
        if not np.array_equal(system @ fit, places[known]):
            return ""
        height, width = self.meant.stored.shape
        texts = []
        if (by_row, by_column) == (1, height):
            texts.append("stored transposed, column by column")
        elif by_row != width:
            texts.append(f"rows stored {by_row} elements apart instead of {width}")
        if by_column not in (1, height if texts[:1] else 1):
            texts.append(f"columns stored {by_column} elements apart instead of 1")
        if off := start - (tile.row or 0) * by_row - (tile.column or 0) * by_column:
            there = divmod(start, width)
            own = f"the tile from row {tile.row}, column {tile.column} on"
            texts.append(
                f"{own} starts {off:+} elements off"
                if texts
                else f"{own} is stored from row {there[0]}, column {there[1]} on"
            )
        return "; ".join(texts)

    def _formula(self, tile: Tile, places: Places) -> str:
        """The term of the index of a lane's elements that is wrong, in words."""
        width, known = self.meant.stored.shape[1], places >= 0
        row, col = places // width - (tile.row or 0), places % width - (tile.column or 0)
        inside = (row >= 0) & (row < self.ins.m) & (col >= 0) & (col < self.ins.n)
        flat = np.where(inside, row * self.ins.n + col, -1)[known]
        for text, wrong in wrong_places(self.ins.fragment("d")):
            if np.array_equal(np.where(wrong < 0, -1, wrong)[known], flat):
                return text
        return ""


def covers(shape: tuple[int, ...], tiles: Sequence[Tile], places: Sequence[Place]) -> bool:
    """True if tiles at these places cover C, each element once."""
    count = np.zeros(shape, int)
    for tile, (row, column) in zip(tiles, places, strict=True):
        if row is None or column is None:
            return False
        count[row : row + tile.ins.m, column : column + tile.ins.n] += 1
    return bool((count == 1).all())


def _usual(votes: list[int], other: int | None) -> int | None:
    return Counter(votes).most_common(1)[0][0] if votes else other
