"""The fault finder on a whole kernel.

The operands of each matrix instruction of a launch are compared with the parts of A and B that
belong there, and what was stored with what was computed.

A tile of C is a chain of products, each of which accumulates on the one before. Operands that are
right tell which tile it is: they are looked for in A and B. Where an operand is wrong, the place of
the result in C tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from dtypes import FORMATS, Array, array_from_codes, array_type, decode_values
from emulator.arrays import as_array
from emulator.errors import EmulatorError, OperandError, UnsupportedError, listing
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import LINE_BYTES, TileShape
from emulator.machine.arguments import arrays_of
from emulator.machine.debugger.locations import Locations
from emulator.machine.module import Kernel
from emulator.machine.shared.place import Index, shown
from emulator.report import Report
from emulator.tools.faults.copies import MISTAKES
from emulator.tools.faults.kernel import RecordedKernel
from emulator.tools.faults.observed import Product, Recorder
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
#: cosine between two matrices from which on one is taken for the product that the other is, too
_ALIKE = 0.98
#: of the sum of absolute products: as much may lie between two right sums in floating point. The
#: coarsest accumulator, Hopper's for fp8, cuts 13 bits below the largest term: this is 16 cuts.
_OF_SUMS = 16 * 2.0**-13
#: tiles of one kind that are searched until one is explained
_LOOKS = 3
#: elements of a tile that must be found in C before their places are fitted
_FEW = 8


# --- what is meant --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Meant:
    """The product that a launch should have computed, and the C that it stored."""

    a: Array
    b: Array
    expected: Array
    #: name of the argument that is C, and its contents
    name: str
    stored: Array

    @cached_property
    def wrong(self) -> Array:
        """Elements that differ from what is expected by more than rounding ``(M, N)``."""
        want = _numbers(self.expected)
        with np.errstate(all="ignore"):
            sums = np.abs(_numbers(self.a)) @ np.abs(_numbers(self.b))
            stored = _numbers(self.stored)
            rounded = (_unit(self.stored) + _unit(self.expected)) / 2
            allowed = rounded * np.maximum(np.abs(stored), np.abs(want))
            if _unit(self.stored):
                allowed += _OF_SUMS * sums
            wrong: Array = ~(np.abs(stored - want) <= allowed)
        return wrong


def _unit(array: Array) -> float:
    """The distance from 1 to the next number of the array's type; 0 for integers."""
    try:
        return float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]
    except ValueError:
        return 0.0


def _numbers(array: Array) -> Array:
    return array.astype(np.float64)


def find_meant(
    expected: Any, a: Any, b: Any, arrays: Mapping[str, Array], before: Mapping[str, Array]
) -> Meant:
    """Finds A, B and C among the arrays of a launch. Raises OperandError where that is open."""
    want = as_array(expected, "expected=")
    if want.ndim != 2:
        raise OperandError(f"expected= is the matrix C (M, N); got {want.shape}")
    alike = [name for name, x in arrays.items() if x.shape == want.shape]
    changed = [name for name in alike if arrays[name].tobytes() != before[name].tobytes()]
    if len(changed or alike) != 1:
        raise OperandError(
            f"expected= is {want.shape}: the launch should write one array of this shape; it has "
            f"{listing(changed or alike) or 'none'}"
        )
    (name,) = changed or alike
    if (a is None) != (b is None):
        raise OperandError("a= (M, K) and b= (K, N) go together: one of them is missing")
    pair = _factors(want, before, name) if a is None else (as_array(a, "a="), as_array(b, "b="))
    shapes = [x.shape for x in pair]
    if any(len(x) != 2 for x in shapes) or (
        (shapes[0][0], shapes[1][1]) != want.shape or shapes[0][1] != shapes[1][0]
    ):
        raise OperandError(
            f"a= is (M, K), b= (K, N) and expected= (M, N); got {shapes[0]}, {shapes[1]} and "
            f"{want.shape}"
        )
    return Meant(*pair, want, name, arrays[name])


def _factors(want: Array, arrays: Mapping[str, Array], c: str) -> tuple[Array, Array]:
    """The two arrays whose product, maybe of one transposed, is `want` but for a factor."""
    ways = [x for name, array in arrays.items() if name != c and array.ndim == 2
            for x in (array, array.T)]  # fmt: skip
    best, found, goal = _ALIKE, None, _numbers(want)
    for a in ways:
        for b in ways:
            if (a.shape[0], b.shape[1]) == want.shape and a.shape[1] == b.shape[0]:
                product = _numbers(a) @ _numbers(b)
                size = float(np.linalg.norm(product) * np.linalg.norm(goal))
                alike = abs(float((product * goal).sum())) / size if size else 0.0
                if alike > best:
                    best, found = alike, (a, b)
    if found is None:
        raise OperandError(
            "no two arrays among the arguments have expected= as their product: give the matrices "
            "that are meant, a= (M, K) and b= (K, N)"
        )
    return found


# --- tiles of C -----------------------------------------------------------------------------------


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
    ends: dict[tuple[Any, ...], list[Tile]] = {}
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


class _Gemm:
    """The matrices of a GEMM as the tiles of one instruction see them."""

    def __init__(
        self, meant: Meant, ins: MatrixInstruction, target: Any, transfers: Transfers
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
        words = {name: np.stack([x.words[name] for x in products])
                 for name in first.words if name != "c"}  # fmt: skip
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
            held = tile.held[name] = [self._matrix(product, name) for product in tile.products]
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
        tile.along = self._along([x and x[1] for x in tile.found["a"]],
                                 [x and x[0] for x in tile.found["b"]])  # fmt: skip
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

    def _matrix(self, product: Product, name: str) -> Array | None:
        try:
            return self.recorded([product]).matrix(name)
        except EmulatorError:  # a descriptor that leaves shared memory
            return None

    def _along(self, by_a: list[int | None], by_b: list[int | None]) -> list[int]:
        """Where each product belongs along K: where both operands say so; else one after another,
        as most of them say, or as one operand does that goes through all of them."""
        usual = [i * self.ins.k for i in range(len(by_a))]
        for one in (by_a, by_b):
            if None not in one and len(set(one)) == len(one):
                usual = [int(x) for x in one if x is not None]
                break
        else:
            votes = [k - i * self.ins.k for one in (by_a, by_b)
                     for i, k in enumerate(one) if k is not None]  # fmt: skip
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
        height, k, place, major = tile_in_memory(self.ins, name, product.options)
        shape = TileShape(height, k * min(8, place.width) // 8, max(1, place.width // 8), major)
        return np.unique(Descriptor.decode(int(word)).addresses(shape)).clip(0, size - 1)

    def search_store(
        self, search: Search, tile: Tile, stores: Stores
    ) -> FaultReport | Fault | None:
        """Names the mistake with which a right result was stored."""
        places = self._places(tile, stores)
        known = int((places >= 0).sum())
        if known >= _FEW and (text := self._strides(tile, places) or self._formula(tile, places)):
            return Fault("store of D", "d", f"C: {text}", "Every matrix instruction computes its "
                "tile from the right operands; the addresses of the stores are not those of the "
                "tile in C.", known, known, known, known)  # fmt: skip
        row, col, ins = tile.row or 0, tile.column or 0, self.ins
        stored = self.meant.stored[row : row + ins.m, col : col + ins.n]
        if stored.shape != (ins.m, ins.n) or stored.dtype != array_type(FORMATS[ins.d_type]):
            return None
        ks = np.concatenate([np.arange(ins.k) + k for k in tile.along])
        c = ins.fragment("c").gather(tile.products[0].words["c"])
        return search(ins, self.a[row : row + ins.m][:, ks], self.b[ks, col : col + ins.n], c,
                      target=self.target, d=stored)  # fmt: skip

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
            texts.append(f"{own} starts {off:+} elements off" if texts else
                         f"{own} is stored from row {there[0]}, column {there[1]} on")  # fmt: skip
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


def _cover(shape: tuple[int, ...], tiles: Sequence[Tile], places: Sequence[Place]) -> bool:
    """Whether tiles at these places cover C, each element once."""
    count = np.zeros(shape, int)
    for tile, (row, column) in zip(tiles, places, strict=True):
        if row is None or column is None:
            return False
        count[row : row + tile.ins.m, column : column + tile.ins.n] += 1
    return bool((count == 1).all())


def _usual(votes: list[int], other: int | None) -> int | None:
    return Counter(votes).most_common(1)[0][0] if votes else other


# --- the report -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaunchFault:
    """A mistake, and the tiles of C that it explains."""

    fault: Fault
    #: a tile in which it was found, and the tiles of the same kind
    tile: str
    tiles: int
    #: the statement: line and text
    line: str
    statement: str

    @property
    def detail(self) -> str:
        return self.fault.detail

    @property
    def exact(self) -> bool:
        return self.fault.exact


@dataclass(frozen=True, repr=False)
class LaunchFaults(Report):
    """The mistakes of a launch, the likeliest first, and what was looked at."""

    kernel: str
    target: str
    faults: tuple[LaunchFault, ...]
    #: elements of C that differ from what is expected by more than rounding, of all
    wrong: int
    total: int
    #: tiles that were looked at; those with a wrong A, a wrong B, a wrong store, in no known place
    tiles: dict[str, int]
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.kernel} on {self.target}"

    @property
    def code(self) -> int:  # type: ignore[override]
        return 1 if self.wrong and not any(x.exact for x in self.faults) else 0

    def __len__(self) -> int:
        return len(self.faults)

    def __iter__(self) -> Iterator[LaunchFault]:
        return iter(self.faults)

    def __getitem__(self, i: int) -> LaunchFault:
        return self.faults[i]

    def lines(self) -> Iterator[str]:
        yield self.title
        yield (
            f"C: {self.wrong:,} of {self.total:,} elements differ from expected= by more than "
            "rounding" if self.wrong else f"C: right, {self.total:,} elements but for rounding"
        )  # fmt: skip
        yield ", ".join(f"{count:,} {what}" for what, count in self.tiles.items())
        for i, x in enumerate(self.faults, 1):
            repair = "repaired by: " if x.fault.direction == "repair" else ""
            yield ""
            yield f"{i}. {repair}{x.detail}"
            much = "every bit" if x.exact else (
                f"{x.fault.explained} of {x.fault.wrong} wrong elements")  # fmt: skip
            yield f"   {x.fault.mistake}: explains {much} of this tile"
            yield f"   in {x.tiles:,} tile{'s' * (x.tiles > 1)}, as in {x.tile}"
            yield f"   {x.line}: {x.statement}"
            yield f"   {x.fault.explanation}"
            if x.fault.same_as:
                yield f"   the same in other words: {'; '.join(x.fault.same_as[:3])}"
        yield from (f"note: {note}" for note in self.notes)

    @property
    def data(self) -> dict[str, Any]:
        return asdict(self)


class _Launch:
    """A launch that was recorded, and the search for its mistakes."""

    def __init__(
        self, kernel: Kernel, meant: Meant, recorder: Recorder, stores: Stores, search: Search
    ) -> None:
        self.kernel, self.meant, self.search = kernel, meant, search
        self.stores = stores
        tiles = self.tiles = chains(recorder.products)
        self.locations = Locations(kernel.bound.program, kernel)
        self.gemms: dict[str, _Gemm] = {}
        self.notes: list[str] = []
        self.transfers = recorder.transfers
        for tile in tiles:
            name = str(tile.ins)
            if name not in self.gemms:
                self.gemms[name] = _Gemm(meant, tile.ins, kernel.module.target, recorder.transfers)
            self.gemms[name].look(tile)
        shape, voted = meant.stored.shape, [x.voted for x in tiles]
        by_result = not _cover(shape, tiles, voted) and _cover(
            shape, tiles, [x.there or (None, None) for x in tiles]
        )
        for tile in tiles:
            self.gemms[str(tile.ins)].judge(tile, by_result)
        self._join()

    def _join(self) -> None:
        """Several chains may add up to one tile: what is stored is their sum, which is not judged.
        One that leaves out a part of K is."""
        places: dict[tuple[int, int], list[Tile]] = {}
        for tile in self.tiles:
            if tile.row is not None and tile.column is not None:
                places.setdefault((tile.row, tile.column), []).append(tile)
        self.short: list[Tile] = []
        for alike in places.values():
            covered = {k for tile in alike for k in tile.along}
            if len(alike) > 1:
                for tile in alike:
                    tile.stored = True
            step = alike[0].ins.k
            if len(covered) * step < self.meant.a.shape[1]:
                self.short.append(alike[0])

    def report(self, limit: int) -> LaunchFaults:
        placed = [x for x in self.tiles if x.along]
        wrong_a, wrong_b = ([x for x in placed if any(x.wrong[name])] for name in "ab")
        not_stored = [x for x in placed if not x.stored]
        found = [*self._operands("a", wrong_a), *self._operands("b", wrong_b), *self._shortened()]
        found += self._stores(not_stored)
        lost = len(self.tiles) - len(placed)
        if lost:
            self.notes.append(
                f"of {lost} tiles neither the operands nor the result tell where in C they belong: "
                "give inputs whose elements all differ"
            )
        self.notes += [
            f"{self.locations.ptx_line(pc)}: {why}; the bytes that it has written are looked at, "
            "and not its coordinates"
            for pc, why in sorted(self.transfers.unknown.items())
        ]
        wrong = int(self.meant.wrong.sum())
        if wrong and not found:
            self.notes.append(
                "every operand and every store of the tiles is right: C is changed elsewhere, or "
                "what is expected= is not the product of A and B" if not lost else
                "the tiles whose place is known do not tell why"
            )  # fmt: skip
        return LaunchFaults(
            self.kernel.name, str(self.kernel.module.target), tuple(found[:limit]), wrong,
            self.meant.wrong.size, {
                "tiles of C": len(self.tiles), "with a wrong A": len(wrong_a),
                "with a wrong B": len(wrong_b), "not stored where they belong": len(not_stored),
            }, tuple(dict.fromkeys(self.notes)),
        )  # fmt: skip

    def _operands(self, name: str, tiles: list[Tile]) -> Iterator[LaunchFault]:
        best: FaultReport | None = None
        for tile in tiles[:_LOOKS]:
            gemm = self.gemms[str(tile.ins)]
            report, copy = gemm.search_operand(self.search, tile, name)
            own = [x for x in report.faults if x.operand in (name, "")]
            if not own:
                best = best or report
                continue
            product = tile.products[next(i for i, x in enumerate(tile.wrong[name]) if x)]
            pc = copy.pc if copy else product.loads.get(name, product.pc)
            for fault in own:
                yield self._fault(fault, tile, len(tiles), pc)
            return
        if best is not None:
            self.notes.append(f"{name.upper()} is wrong in {tiles[0]}, and no usual mistake "
                              "explains how")  # fmt: skip
            self.notes += best.notes

    def _shortened(self) -> Iterator[LaunchFault]:
        for tile in self.short[:1]:
            done, steps = len(tile.along), -(-self.meant.a.shape[1] // tile.ins.k)
            missing = sorted({i * tile.ins.k for i in range(steps)} - set(tile.along))
            fault = Fault(
                "loop over k", "", f"{done} of {steps} steps along k are made: columns "
                f"{missing[0]}-{missing[0] + tile.ins.k - 1} of A are the first left out",
                "The loop over K ends early, or begins late.", 1, 1, 1, 1,
            )  # fmt: skip
            yield self._fault(fault, tile, len(self.short), tile.products[-1].pc)

    def _stores(self, tiles: list[Tile]) -> Iterator[LaunchFault]:
        for tile in tiles[:_LOOKS]:
            found = self.gemms[str(tile.ins)].search_store(self.search, tile, self.stores)
            faults = [found] if isinstance(found, Fault) else found.exact if found else ()
            if faults:
                for fault in faults:
                    yield self._fault(fault, tile, len(tiles), tile.products[-1].pc)
                return
        if tiles:
            self.notes.append(
                f"the result of {tiles[0]} does not stand there, and no usual mistake explains "
                "how it was stored: it is scaled or changed on the way, perhaps"
            )

    def _fault(self, fault: Fault, tile: Tile, count: int, pc: int) -> LaunchFault:
        lines = self.locations.source_lines(pc) or (self.locations.ptx_line(pc),)
        where = ", inlined at ".join(map(str, lines))
        return LaunchFault(fault, str(tile), count, where, self.locations.statement(pc))


def find_launch_faults(
    kernel: Kernel, search: Search, expected: Any, a: Any, b: Any, limit: int, launch: Any
) -> LaunchFaults:
    """Launches a kernel on the reference engine and names what went wrong; see `find_faults`."""
    if "args" not in launch or "grid" not in launch or "block" not in launch:
        raise OperandError(
            "find_faults(kernel, grid=, block=, args=, expected=C) launches the kernel; missing is "
            f"{listing([f'{x}=' for x in ('grid', 'block', 'args') if x not in launch])}"
        )
    try:
        prepared = kernel.prepare(**launch)
    except TypeError as error:
        raise OperandError(f"find_faults of a kernel takes what launch takes: {error}") from None
    held = arrays_of(kernel.bound.function, launch["args"], launch.get("memory"))
    arrays = {name: array for name, array in held if array.ndim}
    before = {name: array.copy() for name, array in arrays.items()}
    recorder = Recorder()
    prepared.observe = recorder.observe
    prepared.run("reference")
    if not recorder.products:
        raise UnsupportedError(
            f"{kernel.name} executes no dense mma or wgmma; the fault finder takes no other product"
        )
    meant = find_meant(expected, a, b, arrays, before)
    placed = {x.name: x.address for x in prepared.arena}
    start = placed[meant.name]
    end = start + meant.stored.nbytes
    stores = {who: [(at - start, data) for at, data in each if start <= at < end]
              for who, each in recorder.stores.items()}  # fmt: skip
    recorder.transfers.arrays = {placed[x]: y for x, y in arrays.items() if x in placed}
    return _Launch(kernel, meant, recorder, stores, search).report(limit)
