"""Mistakes with registers, the bits inside of them, and lanes.

A mistake yields ways of making it with one operand: texts, and changes of its words.
``each_operand`` turns it into what `finder.MISTAKES` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import combinations, permutations

import numpy as np

from dtypes import Array
from emulator.tools.faults.kernel import Change, RecordedKernel, Variant

#: with more registers than this, only pairs as far apart as these
_EVERY_PAIR, _NEIGHBOURS = 8, (1, 2, 4)

Ways = Iterator[tuple[str, Change]]


def each_operand(
    ways: Callable[[RecordedKernel, str, int], Ways],
) -> Callable[[RecordedKernel], Iterator[Variant]]:
    """Applies a mistake to every operand; it takes the operand and the words that a lane has."""

    @wraps(ways)
    def variants(kernel: RecordedKernel) -> Iterator[Variant]:
        for name, count in kernel.words_per_lane.items():
            for text, change in ways(kernel, name, count):
                yield Variant(name, text, kernel.changing(name, change))

    return variants


def exchanged(size: int, pair: tuple[int, int]) -> list[int]:
    """The numbers below `size`, with two in each other's place."""
    order = list(range(size))
    order[pair[0]], order[pair[1]] = pair[1], pair[0]
    return order


def of_registers(order: list[int]) -> Change:
    return lambda words: words[..., order]


def of_lanes(order: Array | list[int]) -> Change:
    return lambda words: words[..., order, :]


# --- whole registers ------------------------------------------------------------------------------


@each_operand
def exchanged_registers(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """Two registers of an operand in each other's place."""
    for i, j in _pairs(count):
        yield f"{name}{i} and {name}{j} exchanged", of_registers(exchanged(count, (i, j)))


@each_operand
def repeated_register(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """One register of an operand written twice."""
    for pair in _pairs(count):
        for i, j in (pair, pair[::-1]):
            order = list(range(count))
            order[j] = i
            yield f"{name}{i} stands where {name}{j} belongs", of_registers(order)


@each_operand
def register_order(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """All registers of an operand in another order."""
    for order in _orders(count):
        listed = ", ".join(f"{name}{i}" for i in order[:8]) + (", …" if count > 8 else "")
        yield f"{name}: registers in the order {listed}", of_registers(order)


@each_operand
def missing_register(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """A register that was never loaded, or never stored."""
    for i in range(count) if name in kernel.registers else ():
        yield f"{name}{i} is zero in every lane", _cleared(np.arange(count) == i)


def _cleared(which: Array) -> Change:
    return lambda words: np.where(which, words.dtype.type(0), words)


def foreign_register(kernel: RecordedKernel) -> Iterator[Variant]:
    """A register of B among those of A, or the reverse."""
    if "a" not in kernel.words or "b" not in kernel.words:
        return
    for name, other in (("a", "b"), ("b", "a")):
        for i in range(kernel.registers[name]):
            for j in range(kernel.registers[other]):
                words = kernel.words[name].copy()
                words[..., i] = kernel.words[other][..., j]
                detail = f"{other}{j} stands where {name}{i} belongs"
                yield Variant(name, detail, kernel.using(**{name: words}))


def exchanged_operands(kernel: RecordedKernel) -> Iterator[Variant]:
    """A and B, or their descriptors or scales, in each other's place."""
    words = kernel.words
    for a, b in (("a", "b"), ("descriptor_a", "descriptor_b"), ("scale_a", "scale_b")):
        if a in words and b in words and words[a].shape == words[b].shape:
            changed = kernel.using(**{a: words[b], b: words[a]})
            yield Variant(a.replace("descriptor_", ""), f"{a} and {b} exchanged", changed)


def _pairs(count: int) -> Iterator[tuple[int, int]]:
    for i, j in combinations(range(count), 2):
        if count <= _EVERY_PAIR or j - i in _NEIGHBOURS:
            yield i, j


def _orders(count: int) -> Iterator[list[int]]:
    """Orders that are more than one exchange away from the right one."""
    right = list(range(count))
    if count <= 4:
        for order in permutations(right):
            if sum(i != x for i, x in enumerate(order)) > 2:
                yield list(order)
        return
    bits = (count - 1).bit_length()
    if count == 1 << bits:
        for i, j in combinations(range(bits), 2):
            yield [_swapped_bits(x, i, j) for x in right]
    yield right[::-1]
    for shift in (1, -1, count // 2):
        yield [(x + shift) % count for x in right]
    for step in (2, 4):
        if count % (2 * step) == 0:
            yield [x ^ (step // 2) for x in right]


def _swapped_bits(number: int, i: int, j: int) -> int:
    differ = (number >> i ^ number >> j) & 1
    return number ^ (differ << i | differ << j)


# --- bits of a register ---------------------------------------------------------------------------


@each_operand
def order_within_register(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """Halves, bytes, nibbles or bits of every register in another order."""
    for text, change in _BIT_ORDERS:
        yield f"{name}: {text}", change


def _reordered(bits: int, group: int) -> Change:
    """The `bits`-bit units within every group of `group` bits in the opposite order."""

    def change(words: Array) -> Array:
        shifts = np.arange(0, words.dtype.itemsize * 8, bits).astype(words.dtype)
        units = words[..., None] >> shifts & words.dtype.type((1 << bits) - 1)
        grouped = units.reshape(*words.shape, -1, group // bits)[..., ::-1].reshape(units.shape)
        return np.bitwise_or.reduce(grouped << shifts, -1)

    return change


_BIT_ORDERS = (
    ("the two halves of every register exchanged", _reordered(16, 32)),
    ("the four bytes of every register reversed", _reordered(8, 32)),
    ("the bytes of each half exchanged", _reordered(8, 16)),
    ("the two nibbles of each byte exchanged", _reordered(4, 8)),
    ("the eight nibbles of every register reversed", _reordered(4, 32)),
    ("the four nibbles of each half reversed", _reordered(4, 16)),
    ("the bits of each byte reversed", _reordered(1, 8)),
    ("the 32 bits of every register reversed", _reordered(1, 32)),
)


@each_operand
def transposed_registers(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """ldmatrix (or movmatrix, stmatrix) with .trans where it must not be, or without."""
    if name in kernel.registers and kernel.ins.fragment(name).word_bits == 32:
        yield f"{name}: every register transposed as an 8 × 8 matrix of 16-bit elements", _moved


def _moved(words: Array) -> Array:
    """Applies movmatrix.trans to every register."""
    warps = words.reshape(*words.shape[:-2], -1, 32, words.shape[-1])
    halves = np.stack([warps & 0xFFFF, warps >> 16], -1)  # (…, lane, register, half)
    tiles = np.moveaxis(halves, -3, -2).reshape(*halves.shape[:-3], halves.shape[-2], 8, 8)
    turned = np.swapaxes(tiles, -1, -2).reshape(*tiles.shape[:-2], 32, 2)
    moved = np.moveaxis(turned[..., 0] | turned[..., 1] << 16, -1, -2)
    return moved.reshape(words.shape).astype(words.dtype)


# --- lanes ----------------------------------------------------------------------------------------


@each_operand
def permuted_lanes(kernel: RecordedKernel, name: str, count: int) -> Ways:
    """Lanes hold what belongs to other lanes."""
    for text, order in _lane_orders(kernel.ins.lanes):
        yield f"{name}: {text}", of_lanes(order)


def _lane_orders(lanes: int) -> Iterator[tuple[str, Array]]:
    """Wrong orders of lanes: lane i holds what belongs to lane ``order[i]``."""
    lane = np.arange(lanes)
    warp, inner = lane & ~31, lane & 31
    group = "lane / 4 and lane % 4 (groupID, threadID_in_group)"
    yield f"{group} taken for lane % 8 and lane / 8", warp | inner % 8 * 4 | inner // 8
    yield f"{group} taken for lane / 8 and lane % 8, in reverse", warp | inner % 4 * 8 | inner // 4
    for bit in range((lanes - 1).bit_length()):
        yield f"lane L holds what belongs to lane L ^ {1 << bit}", lane ^ 1 << bit
    for step in (1, 2, 4, 8, 16, 32, 64):
        if step < lanes:
            for sign, offset in (("+", step), ("-", -step)):
                yield f"lane L holds what belongs to lane L {sign} {step}", (lane + offset) % lanes
    yield "lanes in reverse", lane[::-1]
    yield "lanes of each group of four in reverse", lane ^ 3
    for i, j in combinations(range(5), 2):
        order = np.array([_swapped_bits(x, i, j) for x in range(lanes)])
        yield f"bits {i} and {j} of the lane number exchanged", order
    yield "every lane of a group of four holds what belongs to its first", lane & ~3
    yield "every lane holds what belongs to lane 0 of the warp", warp
    if lanes > 32:
        yield "every warp holds what belongs to the first", inner
