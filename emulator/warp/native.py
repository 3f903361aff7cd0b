"""Executes mma, mma.sp and wgmma by kernels of machine code, from registers to registers.

No operand is unpacked here: its registers, or the bytes of shared memory, go to the kernel with a
table of where each element lies. See `emulator.arith.fast.kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from dtypes import Array, Place, code_type
from emulator.arith.fast.kernels import batch as kernels
from emulator.arith.fast.kernels.batch import Native, OperandMemory, in_runs
from emulator.arith.fast.kernels.product import (
    METADATA,
    MIXED,
    OPERANDS,
    PADDING,
    Product,
    Sparsity,
    Units,
    arranged,
)
from emulator.arith.fast.kernels.transfer import known_words
from emulator.arith.steps import IntegerDot, PopcountDot
from emulator.arrays import address_of
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.memory.descriptors import tile_places
from emulator.memory.space import Space
from emulator.targets import Target
from emulator.warp.operands import Checked, Setting
from emulator.warp.scales import chosen_scales
from emulator.warp.sparse import legal_nibbles

Int64 = NDArray[np.int64]
Multiplication = MatrixInstruction | WmmaMultiply

#: bits that a kernel loads at once where neighbours along k lie beside each other
_WORD = 32
#: products of a batch up to which where operands lie is remembered: finding it takes 0.1 ms
_REMEMBERED = 1 << 14
#: what a kernel takes for one product whose C counts as zero, and for one whose does not
_KEPT = np.zeros(1, np.int64), np.ones(1, np.int64)


# --- products -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def product_of(ins: Multiplication, target: Target, setting: Setting) -> Product | None:
    """The product that `ins` is on `target`; None where no kernel computes its recipe."""
    arithmetic = ins.arithmetic(target)
    if arranged(arithmetic) is None:
        return None
    if isinstance(ins, WmmaMultiply):
        a, b = _held(ins, "a"), _held(ins, "b")
        if isinstance(arithmetic.steps[0], IntegerDot) and a.per != b.per:
            # Both have to make pairs of the same elements.
            a, b = (Units(x.width, 1, *x[2:]) for x in (a, b))
        # The places of smaller elements are not whole bytes.
        return Product(arithmetic, ins.m, ins.n, ins.k, a, b) if min(a.bits, b.bits) >= 8 else None
    a = _in_memory(ins.a_place, setting.major_a) if setting.a_in_memory else _held(ins, "a")
    b = _in_memory(ins.b_place, setting.major_b) if ins.is_wgmma else _held(ins, "b")
    k = ins.stored_k
    if isinstance(arithmetic.steps[0], PopcountDot):
        # Bits are counted by words.
        a, b, k = (Units(_WORD, 1, _WORD, 0, _WORD),) * 2 + (k // _WORD,)
    sparsity = None
    if ins.is_sparse:
        legal = sum(1 << nibble for nibble in legal_nibbles(ins))
        sparsity = Sparsity(ins.chunk, max(1, ins.chunk // 4), legal)
    groups = ins.fragment("d").groups
    return Product(arithmetic, ins.m, ins.n, k, a, b, groups, sparsity, ins.scale_chunks)


def _in_memory(where: Place, major: str) -> Units:
    if major != "k":
        return Units(where.width, 1, *where)
    return Units(_WORD, _WORD // where.width, *where)


def _held(ins: Multiplication, name: str) -> Units:
    """Whole registers where these hold neighbours along k, else single elements."""
    fragment = ins.fragment(name)
    per = fragment.word_bits // fragment.place.width
    along_k = 1 if name == "a" else 0
    words = fragment.coords.reshape(fragment.lanes, fragment.registers, per, 2)
    step = words - words[:, :, :1]
    expected = np.zeros((per, 2), np.intp)
    expected[:, along_k] = np.arange(per)
    if (step == expected).all():
        return Units(fragment.word_bits, per, *fragment.place)
    return Units(fragment.place.width, 1, *fragment.place)


class Multiplying(NamedTuple):
    """A multiplication that a kernel computes: an instruction on a target, in a setting."""

    ins: Multiplication
    setting: Setting
    product: Product

    @classmethod
    def of(cls, ins: Multiplication, target: Target, setting: Setting) -> Multiplying | None:
        """None where no kernel computes its recipe."""
        product = product_of(ins, target, setting)
        return None if product is None else cls(ins, setting, product)

    def is_in_memory(self, name: str) -> bool:
        """True for an operand that a wgmma takes by its descriptor."""
        ins = self.ins
        return (
            isinstance(ins, MatrixInstruction)
            and ins.is_wgmma
            and (name == "b" or (name == "a" and self.setting.a_in_memory))
        )

    def empty(self, batch: tuple[int, ...]) -> Array:
        """For the registers of D."""
        fragment = self.ins.fragment("d")
        return np.empty((*batch, fragment.lanes, fragment.registers), code_type(fragment.word_bits))

    def in_rows(self, name: str, x: Array) -> Array:
        """An operand as kernels take it, a copy where its lanes or registers do not lie side by
        side; words of scales may lie anywhere."""
        if name.startswith("scale") or self.is_in_memory(name):
            return x
        inner = (x.itemsize,) if name == "e" else (x.shape[-1] * x.itemsize, x.itemsize)
        return x if x.strides[-len(inner) :] == inner else np.ascontiguousarray(x)

    def prepared(self, given: dict[str, OperandMemory]) -> kernels.Prepared:
        """The kernel, for operands at these places."""
        flip_a = self._signs(self.product.a) if self.setting.flip_a else 0
        flip_b = self._signs(self.product.b) if self.setting.flip_b else 0
        return kernels.prepared(self.product, given, (flip_a, flip_b))

    def _signs(self, units: Units) -> int:
        sign = self.ins.fragment("a").fmt.sign_mask << units.shift
        return sum(sign << (i * units.width) for i in range(units.per))


# --- tables ---------------------------------------------------------------------------------------


class Places(NamedTuple):
    """Places of an operand's units in registers, in the order of a kernel's tables."""

    lane: Int64
    register: Int64
    #: the lowest bit
    bit: Int64

    def table(self, lane_bytes: int, register_bytes: int) -> Int64:
        return self.lane * lane_bytes + self.register * register_bytes + self.bit // 8


@lru_cache(maxsize=1024)
def places(
    ins: Multiplication, name: str, unit_bits: int, left: str = "a", group: int = -1
) -> Places:
    """Of one operand, by the order of a kernel whose `Product.left` is this; `group`: of one of the
    matrices that its registers hold."""
    fragment = ins.fragment(name)
    per = max(1, unit_bits // fragment.place.width)
    inverse = fragment.lane_map.inverse
    inverse = inverse if group < 0 else inverse[group : group + 1]
    if name == "a":
        inverse = inverse[..., ::per]
    elif name == "b":
        inverse = inverse[:, ::per]
    if left == "b":
        if name in ("a", "scale_a", "c", "d", "e"):
            inverse = inverse[:, _columns_of_lanes(ins.m)]
        inverse = np.swapaxes(inverse, -1, -2)
        if name in ("c", "d"):
            inverse = np.swapaxes(inverse.reshape(-1, ins.n // 2, 2, ins.m), -1, -2)
    # Of registers that hold a matrix several times, the first copy counts.
    lane, element = np.divmod(inverse.reshape(-1), fragment.lane_map.flat.shape[1])
    register, bit = np.divmod(element * fragment.place.width, fragment.word_bits)
    return Places(lane, register, bit)


def _columns_of_lanes(m: int) -> Int64:
    """The rows of A in the order in which they are lanes: rows of which registers of one lane hold
    elements, which are eight apart, are neighbours, so that these are loaded at once."""
    rows = np.arange(m)
    return rows if m % 16 else np.swapaxes(rows.reshape(-1, 2, 8), 1, 2).reshape(-1)


@lru_cache(maxsize=1024)
def _table(ins: Multiplication, name: str, product: Product) -> tuple[Int64, int, bytes]:
    """Of registers, those of one lane after the other: places in runs; or where blocks start, and
    the places of a block, if the kernel permutes the words of one."""
    together = ("c", "d") if name in ("c", "d") else (name,)
    blocks = {x: _blocks(ins, x, product) for x in together}
    if all(known for _, known in blocks.values()):
        return blocks[name][0], 1, blocks[name][1]
    return *in_runs(_by_lanes(ins, name, product), product.unit_bits(name) // 8), b""


def _blocks(ins: Multiplication, name: str, product: Product) -> tuple[Int64, bytes]:
    """Starts of the blocks of registers, which A and B have one of, and the places of each; none
    where they are not alike, or the kernel does not permute them."""
    blocks, (m, n) = _by_lanes(ins, name, product)[None], product.block
    if name in ("c", "d") and product.left == "b":
        blocks = blocks.reshape(-1, n // 2, ins.m // m, m, 2).transpose(2, 0, 1, 3, 4)
    elif name in ("c", "d"):
        blocks = blocks.reshape(-1, m, ins.n // n, n).transpose(2, 0, 1, 3)
    blocks = blocks.reshape(-1, m * n) if name in ("c", "d") else blocks
    starts = blocks.min(-1)
    known = blocks[0] - starts[0]
    alike = product.groups == 1 and (blocks == starts[:, None] + known).all()
    suits = alike and known_words(product, name, known.tolist()) is not None
    return starts, known.tobytes() if suits else b""


def _by_lanes(ins: Multiplication, name: str, product: Product) -> Int64:
    """Places of registers, those of one lane after the other."""
    fragment = ins.fragment(name)
    size = fragment.word_bits // 8
    found = places(ins, name, product.unit_bits(name), product.left)
    return found.table(fragment.registers * size, size)


@lru_cache(maxsize=1024)
def _scales(ins: Multiplication, name: str, stride: int, left: str, group: int) -> Int64:
    """The byte of each scale, from words `stride` bytes apart."""
    return places(ins, name, 8, left, group).table(stride, 0)


@lru_cache(maxsize=1024)
def _nibbles(ins: Multiplication, selector: int, left: str) -> Int64:
    """The bit of each nibble, from the words of neighbouring lanes."""
    found = places(ins, "e", 4, left, selector)
    return found.lane * 32 + found.bit


# --- batches of arrays ----------------------------------------------------------------------------


def run(
    ins: Multiplication, target: Target, x: Checked, batch: tuple[int, ...]
) -> tuple[Array, int] | None:
    """The registers of D, and what flags a kernel has for any of the batch; None where no kernel
    computes that."""
    work = Multiplying.of(ins, target, x.setting)
    if work is None:
        return None
    d, count = work.empty(batch), math.prod(batch)
    named = {name: work.in_rows(name, given) for name, given in x.operands.items()} | {"d": d}
    if x.shared is None and count <= _REMEMBERED:
        layouts = tuple((name, y.dtype, y.shape, y.strides) for name, y in named.items())
        made = _remembered(work, layouts, batch, x.selector, tuple(x.scales.items()))
        words = made.words_at(named)
    else:
        given = _given(work, named, batch, x.shared, x.selector, x.scales)
        if given is None:
            return None
        made = work.prepared(given)
        words = made.words
    return d, kernels.run(work.product, made.compute, words, count, _kept(x.keep, batch))


@lru_cache(maxsize=64)
def _remembered(
    work: Multiplying,
    layouts: tuple[tuple[str, np.dtype[Any], tuple[int, ...], tuple[int, ...]], ...],
    batch: tuple[int, ...],
    selector: int,
    scales: tuple[tuple[str, int], ...],
) -> kernels.Prepared:
    """For operands in registers of these layouts, whose addresses are still to come."""
    named = {
        name: as_strided(np.empty(1, type_), shape, strides)
        for name, type_, shape, strides in layouts
    }
    given = _given(work, named, batch, None, selector, dict(scales))
    assert given is not None, "nothing is in memory"
    return work.prepared(given)


def repeated(
    ins: MatrixInstruction, target: Target, x: Checked
) -> Callable[[dict[str, Array], bool, bool], Array | None] | None:
    """`run` for one wgmma again and again, with descriptors and settings as here; None where no
    kernel computes that.

    A function of the other operands, and of what lies in shared memory under the name "shared", of
    whether the accumulator is read and whether illegal metadata is refused; it gives the registers
    of D, or None where an operand is not legal.
    """
    work = Multiplying.of(ins, target, x.setting)
    if work is None:
        return None
    named = {name: given.copy() for name, given in x.operands.items()} | {"d": work.empty(())}
    places = _given(work, named, (), x.shared, x.selector, {})
    if places is None:
        return None
    prepared = work.prepared(places)
    slots: dict[str, list[int]] = {}
    for i, name in enumerate(OPERANDS):
        if name in x.operands:
            slots.setdefault("shared" if work.is_in_memory(name) else name, []).append(4 * i)
    slot_of_d, kept = 4 * OPERANDS.index("d"), [address_of(x) for x in _KEPT]
    (shape, type_), compute = (named["d"].shape, named["d"].dtype), prepared.compute
    refused = PADDING | MIXED, PADDING | MIXED | METADATA

    def again(given: dict[str, Array], keep: bool, metadata_is_checked: bool) -> Array | None:
        words, d = prepared.words.copy(), np.empty(shape, type_)
        for name, where in slots.items():
            x = given[name]
            if not x.flags.c_contiguous:
                x = given[name] = np.ascontiguousarray(x)  # which has to live until it is read
            address = address_of(x)
            for slot in where:
                words[slot] = address
        words[slot_of_d], words[-1] = address_of(d), kept[keep]
        flags = compute(address_of(words), 0, 1)
        return None if flags and flags & refused[metadata_is_checked] else d

    return again


def _given(
    work: Multiplying,
    operands: dict[str, Array],
    batch: tuple[int, ...],
    shared: Space | None,
    selector: int,
    scales: Mapping[str, int],
) -> dict[str, OperandMemory] | None:
    """Places of operands that are `in_rows`; None where an element lies outside of memory."""
    given: dict[str, OperandMemory] = {}
    ins, left = work.ins, work.product.left
    for name, x in operands.items():
        if work.is_in_memory(name):
            assert shared is not None
            bases = _bases(shared.data, shared.data.shape[-1:], batch)
            words = np.broadcast_to(x, batch).reshape(-1)
            found = _in_shared(work, name, words, shared, bases)
            if found is None:
                return None
            given[name] = found
        elif name == "e":
            given[name] = _metadata(ins, selector, x, batch, left)
        elif name in ("scale_a", "scale_b"):
            table = _scales(ins, name, x.strides[-1], left, scales[name])
            given[name] = _words(x, batch, table)
        else:
            bases = _bases(x, x.shape[-2:], batch)
            table, run, known = _table(ins, name, work.product)
            given[name] = OperandMemory(address_of(x), bases, table, _zeros(len(bases)), run, known)
    return given


def _metadata(
    ins: Multiplication, selector: int, x: Array, batch: tuple[int, ...], left: str
) -> OperandMemory:
    """Words of lanes one after the other."""
    found = _words(x, batch, _zeros(1))
    return found._replace(known=_nibbles(ins, selector, left).tobytes())


def _words(x: Array, batch: tuple[int, ...], table: Int64) -> OperandMemory:
    """One word for each lane."""
    bases = _bases(x, x.shape[-1:], batch)
    return OperandMemory(address_of(x), bases, table, _zeros(len(bases)))


def _bases(x: Array, inner: tuple[int, ...], batch: tuple[int, ...]) -> Int64:
    """Bytes from the first of an array's batch to each of `batch`, which it broadcasts to."""
    if not batch:
        return _zeros(1)
    whole = (*batch, *inner)
    # Nearly always it has the whole batch: then this is the fast path.
    strides = (x if x.shape == whole else np.broadcast_to(x, whole)).strides[: len(batch)]
    if len(batch) == 1:
        return _steps(batch[0], strides[0])
    out = np.zeros(1, np.int64)
    for size, stride in zip(batch, strides, strict=True):
        out = (out[:, None] + np.arange(size) * stride).reshape(-1)
    return out


# --- registers of lanes ---------------------------------------------------------------------------


def run_lanes(
    ins: Multiplication,
    target: Target,
    setting: Setting,
    registers: Mapping[str, Array | list[Array]],
    count: int,
    *,
    words: dict[str, Array] | None = None,
    shared: Space | None = None,
    rows: Int64 | None = None,
    keep: Array | None = None,
    selector: int = 0,
) -> tuple[Array, int] | None:
    """`run` for `count` warps or warpgroups whose lanes lie one after the other.

    `registers` of a, b and c by name are arrays ``(lanes,)``, contiguous, one for each register, or
    one array ``(registers, lanes)``, as the result is. `words`: metadata ``(lanes,)``, and
    descriptors ``(count,)`` of what lies in the `rows` of ``shared (…, bytes)``.
    """
    work = Multiplying.of(ins, target, setting)
    if work is None:
        return None
    fragment, given = ins.fragment("d"), {}
    type_ = np.dtype(f"u{fragment.word_bits // 8}")
    d = np.empty((fragment.registers, count * fragment.lanes), type_)
    given["d"] = _columns(work, "d", d, count)
    copies = []  # which live until the kernel has run
    for name, columns in registers.items():
        given[name] = _columns(work, name, columns, count)
    for name, x in (words or {}).items():
        if name in ("a", "b"):
            assert shared is not None and rows is not None
            found = _in_shared(work, name, x, shared, rows * shared.data.strides[0])
            if found is None:
                return None
            given[name] = found
        else:
            each = np.ascontiguousarray(x.reshape(count, ins.lanes))
            copies.append(each)
            given[name] = _metadata(ins, selector, each, (count,), work.product.left)
    made = work.prepared(given)
    return d, kernels.run(work.product, made.compute, made.words, count, _kept(keep, (count,)))


def _columns(
    work: Multiplying, name: str, columns: Array | list[Array], count: int
) -> OperandMemory:
    """Registers that are rows of one array, or arrays of their own: the table holds addresses."""
    ins, left = work.ins, work.product.left
    bits, size = work.product.unit_bits(name), columns[0].itemsize
    bases = _steps(count, ins.lanes * size)
    if isinstance(columns, np.ndarray):
        rows = _rows(ins, name, bits, columns.strides, left)
        return OperandMemory(address_of(columns), bases, rows, _zeros(count))
    found = places(ins, name, bits, left)
    starts = np.array([address_of(x) for x in columns], np.int64)
    table = found.table(size, 0) + starts[found.register]
    return OperandMemory(0, bases, table, _zeros(count))


@lru_cache(maxsize=256)
def _rows(
    ins: Multiplication, name: str, unit_bits: int, strides: tuple[int, int], left: str
) -> Int64:
    """Places of registers that are rows of one array."""
    return places(ins, name, unit_bits, left).table(*strides[::-1])


def _different(words: Array) -> tuple[Array, Int64]:
    """Each word once, and which of these every one is; without a sort where there is but one."""
    if (words == words[:1]).all():
        return words[:1], _zeros(words.size)
    found, which = np.unique(words, return_inverse=True)
    return found, which


@lru_cache(maxsize=64)
def _steps(count: int, size: int) -> Int64:
    out = np.arange(count, dtype=np.int64) * size
    out.flags.writeable = False
    return out


@lru_cache(maxsize=64)
def _zeros(count: int) -> Int64:
    return _steps(count, 0)


# --- one warp, for native code --------------------------------------------------------------------


class WarpFunction(NamedTuple):
    """``int32 warp(const void *registers, void *d)``, for other native code to call, too.

    It multiplies for one warp, and returns 0, or the flags of `fast.kernels.product`: then an
    operand is not legal, or with MIXED `d` means nothing. Each register is the words of all lanes,
    one after the other.
    """

    compute: Native
    #: byte of each operand's first register from `registers` on: a, b, c, e, scale_a, scale_b
    offsets: dict[str, int]
    #: bytes of all of them, and of the registers of D
    size: int
    result_size: int


@lru_cache(maxsize=512)
def warp_function(
    ins: Multiplication,
    target: Target,
    selector: int = 0,
    ids: tuple[int, int, int, int] = (0,) * 4,
) -> WarpFunction | None:
    """The function of an mma, mma.sp or wmma.mma; `ids` are the byte-id and thread-id of scale_a
    and of scale_b. None where no kernel computes it, and for wgmma.

    Raises OperandError for ids that the instruction has not.
    """
    setting = Setting()
    product = None if ins.lanes != 32 else product_of(ins, target, setting)
    if product is None:
        return None
    offsets: dict[str, int] = {}
    tables, end = [], 0
    for name in ("a", "b", "c", "d", "e", "scale_a", "scale_b"):
        if name not in ins.fragments:
            continue
        fragment, group = ins.fragment(name), -1
        size, start = fragment.word_bits // 8, 0 if name == "d" else end
        if name == "e":
            table = _nibbles(ins, selector, product.left) + 8 * start
        else:
            if name.startswith("scale"):
                assert isinstance(ins, MatrixInstruction)
                group = chosen_scales(ins, name, *(ids[:2] if name == "scale_a" else ids[2:]))
            found = places(ins, name, product.unit_bits(name), product.left, group)
            table = found.table(size, ins.lanes * size) + start
        tables.append((name, tuple(table.tolist())))
        if name != "d":
            offsets[name] = start
            end += fragment.registers * ins.lanes * size
    d = ins.fragment("d")
    compute = kernels.of_warp(product, tuple(tables))
    return WarpFunction(compute, offsets, end, d.registers * ins.lanes * d.word_bits // 8)


# --- one warpgroup, for native code --------------------------------------------------------------

#: the bits of a descriptor that say where its matrix starts but for its place within 1024 bytes,
#: which every swizzle pattern repeats after
START_BITS = 0x3FC0
#: bytes of a register of a warpgroup
_ROW = 4 * 128


class GroupFunction(NamedTuple):
    """``int32 batch(const int64 *words, int64 0, int64 1)``, for other native code to call:
    a wgmma with all descriptors that are alike but for `START_BITS`.

    It returns what a `WarpFunction` does. Each register is the words of all lanes, one after the
    other.
    """

    compute: Native
    #: its arguments, without the addresses below
    words: Int64
    #: bytes from the multiple of 1024 where A and B start to their ends; 0: A is in registers
    reach: tuple[int, int]
    #: arrays that the words point to
    held: Mapping[str, OperandMemory]


#: of the words of a `GroupFunction`: registers of A, or what A starts in, the same of B, registers
#: of C and of D, and where there is a 0 if C is not read, else a 1
GROUP_ADDRESSES = (*(4 * i for i in range(4)), 4 * len(OPERANDS) + 2)


def group_function(
    ins: MatrixInstruction, target: Target, setting: Setting, descriptors: Mapping[str, int]
) -> GroupFunction | None:
    """The function of a dense wgmma, for descriptors of A, if it is in memory, and of B; None where
    no kernel computes it."""
    work = Multiplying.of(ins, target, setting)
    if work is None:
        return None
    product = work.product
    given: dict[str, OperandMemory] = {}
    reach = {"a": 0, "b": 0}
    for name in ("a", "b", "c", "d"):
        bits = product.unit_bits(name)
        if name in descriptors:
            word = np.uint64(descriptors[name] & ~START_BITS & (1 << 64) - 1)
            tables, run = _tile(work, name, word.tobytes(), bits // 8)
            given[name] = OperandMemory(0, _zeros(1), tables, _zeros(1), run)
            reach[name] = int(tables.max()) + run * bits // 8
        else:
            rows = _rows(ins, name, bits, (_ROW, 4), product.left)
            given[name] = OperandMemory(0, _zeros(1), rows, _zeros(1))
    compute, words, _ = work.prepared(given)
    return GroupFunction(compute, words, (reach["a"], reach["b"]), given)


# --- what both have in common ---------------------------------------------------------------------


def _kept(keep: Array | None, batch: tuple[int, ...]) -> Int64 | None:
    """The mask of C for `kernels.run`; None where all of C counts."""
    if keep is None or keep.all():
        return None
    return np.ascontiguousarray(np.broadcast_to(keep, batch), np.int64).reshape(-1)


def _in_shared(
    work: Multiplying, name: str, descriptors: Array, shared: Space, bases: Int64
) -> OperandMemory | None:
    """A matrix in the shared memories that lie at `bases`; None where an element is outside."""
    if shared.data.strides[-1] != 1:
        return None
    words, which = _different(descriptors)
    size = work.product.unit_bits(name) // 8
    tables, run = _tile(work, name, words.tobytes(), size)
    if tables.min() < shared.start or tables.max() + run * size > shared.start + shared.bytes:
        return None
    starts = which.reshape(-1).astype(np.int64) * tables.shape[1]
    return OperandMemory(address_of(shared.data), bases - shared.start, tables, starts, run)


@lru_cache(maxsize=256)
def _tile(work: Multiplying, name: str, words: bytes, unit: int) -> tuple[Int64, int]:
    """Places ``(descriptors, units)`` of the matrices that descriptors point to, in runs; `unit`:
    bytes of one."""
    ins, setting, left = work.ins, work.setting, work.product.left
    assert isinstance(ins, MatrixInstruction)
    rows, k, where, major = ins.m, ins.stored_k, ins.a_place, setting.major_a
    if name == "b":
        rows, k, where, major = ins.n, ins.k, ins.b_place, setting.major_b
    found, size = tile_places(np.frombuffer(words, np.uint64), rows, k, where, major)
    found = found[..., :: unit // size]
    if name == "a" and left == "b":
        found = found[:, _columns_of_lanes(ins.m)]
    if name != left:
        found = np.swapaxes(found, -1, -2)
    return in_runs(np.ascontiguousarray(found, np.int64).reshape(len(found), -1), unit)
