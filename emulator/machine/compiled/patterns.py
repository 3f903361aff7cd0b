"""Loads and stores of a warp by the pattern of its addresses.

Half a warp whose lanes follow each other is one access of a vector, and one whose lanes are all at
one place is one load; only others gather and scatter. Each is a function of its own, written once
for all statements of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from llvmlite import ir

from emulator.arith.fast.words import BIT, LONG, POINTER, WORD, Value
from emulator.machine.compiled.warp_emitter import WIDTH, WarpEmitter, integers
from emulator.machine.shared.served import within_group

_HALF = WIDTH // 2
_LANES = ir.IntType(_HALF)


def load(e: WarpEmitter, places: Value, bits: int, count: int, mask: Value) -> list[Value]:
    """`count` neighbouring words of each lane of a mask; others may be anything."""
    type_ = ir.ArrayType(integers(bits), count)
    make = partial(_loaded, bits, count)
    words = e.outlined(f"load.{bits}.{count}", type_, make, places, e.mask(mask))
    return [e.builder.extract_value(words, i) for i in range(count)]


def store(e: WarpEmitter, places: Value, words: Sequence[Value], mask: Value) -> None:
    """Stores neighbouring words of each lane; the others are at places of their own. Of lanes at
    one place that one wins as on the chip."""
    bits = words[0].type.element.width
    name = f"store.{bits}.{len(words)}"
    e.outlined(name, ir.VoidType(), _stored, places, e.mask(mask), *words)


class _Half(NamedTuple):
    """Half of a warp."""

    places: Value
    #: its lanes of the mask, as bits
    lanes: Value
    #: where the first of them is, and where the first of all were if lanes followed each other
    base: Value
    start: Value


def _vector(bits: int) -> ir.VectorType:
    return ir.VectorType(ir.IntType(bits), _HALF)


def _chosen(e: WarpEmitter, words: Value, lanes: Sequence[int]) -> Value:
    return e.builder.shuffle_vector(
        words, words, ir.Constant(ir.VectorType(WORD, len(lanes)), [*lanes])
    )


def _splat(e: WarpEmitter, scalar: Value) -> Value:
    b, type_ = e.builder, ir.VectorType(scalar.type, _HALF)
    one = b.insert_element(ir.Constant(type_, ir.Undefined), scalar, WORD(0))
    return _chosen(e, one, [0] * _HALF)


def _half(e: WarpEmitter, number: int, places: Value, mask: Value, size: int) -> _Half:
    b = e.builder
    places = _chosen(e, places, range(_HALF * number, _HALF * number + _HALF))
    lanes = b.trunc(b.lshr(mask, WORD(_HALF * number)), _LANES)

    def first() -> list[Value]:
        """Slower: by way of memory."""
        some = b.or_(lanes, _LANES(1 << _HALF - 1))
        number = e.function(f"llvm.cttz.i{_HALF}", _LANES, [some, BIT(1)])
        base = b.extract_element(places, b.zext(number, WORD))
        return [base, b.sub(base, b.mul(b.zext(number, LONG), LONG(size)))]

    whole = b.icmp_unsigned("==", lanes, _LANES(-1))
    base, start = _chain(e, [(whole, lambda: [b.extract_element(places, WORD(0))] * 2)], first)
    return _Half(places, lanes, base, start)


def _are_at(e: WarpEmitter, half: _Half, places: Value) -> Value:
    """True if all lanes of the mask are at these places."""
    b = e.builder
    there = b.bitcast(b.icmp_unsigned("==", half.places, places), _LANES)
    return b.icmp_unsigned("==", b.or_(there, b.not_(half.lanes)), _LANES(-1))


def _follow(e: WarpEmitter, half: _Half, size: int) -> Value:
    """True if lanes are consecutive."""
    steps = ir.Constant(_vector(64), [size * i for i in range(_HALF)])
    return _are_at(e, half, e.builder.add(_splat(e, half.start), steps))


def _present(e: WarpEmitter, half: _Half) -> Value:
    return e.builder.bitcast(half.lanes, _vector(1))


def _chain(
    e: WarpEmitter,
    ways: Sequence[tuple[Value, Callable[[], Sequence[Value]]]],
    otherwise: Callable[[], Sequence[Value]],
) -> list[Value]:
    """The words of the first way whose condition holds, else those of `otherwise`."""
    b, ends = e.builder, []
    after = b.append_basic_block("after")
    for condition, make in ways:
        here, following = b.append_basic_block("here"), b.append_basic_block("following")
        b.cbranch(condition, here, following)
        b.position_at_end(here)
        ends.append((make(), b.block))
        b.branch(after)
        b.position_at_end(following)
    ends.append((otherwise(), b.block))
    b.branch(after)
    b.position_at_end(after)
    out = []
    for i, word in enumerate(ends[0][0]):
        out.append(b.phi(word.type))
        for words, block in ends:
            out[i].add_incoming(words[i], block)
    return out


# --- loads ----------------------------------------------------------------------------------------


def _loaded(bits: int, count: int, e: WarpEmitter, places: Value, mask: Value) -> Value:
    size = bits // 8
    halves = []
    for number in range(2):
        half = _half(e, number, places, mask, size)
        ways = [(_are_at(e, half, _splat(e, half.base)), partial(_load_one, e, half, bits, count))]
        if count == 1:
            ways = [(_follow(e, half, size), partial(_load_row, e, half, bits)), *ways]
        halves.append(_chain(e, ways, partial(_gather, e, half, bits, count)))
    out = ir.Constant(ir.ArrayType(integers(bits), count), ir.Undefined)
    both = ir.Constant(ir.VectorType(WORD, WIDTH), list(range(WIDTH)))
    for i, (low, high) in enumerate(zip(*halves, strict=True)):
        out = e.builder.insert_value(out, e.builder.shuffle_vector(low, high, both), i)
    return out


def _load_row(e: WarpEmitter, half: _Half, bits: int) -> list[Value]:
    type_ = _vector(bits)
    place = e.builder.inttoptr(half.start, POINTER)
    given = [place, WORD(bits // 8), _present(e, half), ir.Constant(type_, ir.Undefined)]
    return [e.function(f"llvm.masked.load.v{_HALF}i{bits}.p0", type_, given)]


def _load_one(e: WarpEmitter, half: _Half, bits: int, count: int) -> list[Value]:
    b, type_ = e.builder, ir.IntType(bits)
    at = [b.inttoptr(b.add(half.base, LONG(i * bits // 8)), POINTER) for i in range(count)]
    return [_splat(e, b.load(x, typ=type_, align=bits // 8)) for x in at]


def _gather(e: WarpEmitter, half: _Half, bits: int, count: int) -> list[Value]:
    type_, out = _vector(bits), []
    for i in range(count):
        at = _pointers(e, half.places, i * bits // 8)
        every = ir.Constant(_vector(1), [1] * _HALF)
        given = [at, WORD(bits // 8), every, ir.Constant(type_, ir.Undefined)]
        out.append(e.function(f"llvm.masked.gather.v{_HALF}i{bits}.v{_HALF}p0", type_, given))
    return out


def _pointers(e: WarpEmitter, places: Value, offset: int) -> Value:
    if offset:
        places = e.builder.add(places, ir.Constant(_vector(64), [offset] * _HALF))
    return e.builder.inttoptr(places, ir.VectorType(POINTER, _HALF))


# --- stores ---------------------------------------------------------------------------------------


def _stored(e: WarpEmitter, places: Value, mask: Value, *words: Value) -> None:
    bits = words[0].type.element.width
    size, within = bits // 8, within_group(len(words) * bits // 8)
    for turn in range(2):
        number = turn ^ (within >= _HALF)
        half = _half(e, number, places, mask, size)
        first = _HALF * number
        given = [_chosen(e, x, range(first, first + _HALF)) for x in words]
        ways = []
        if len(words) == 1:
            ways = [(_follow(e, half, size), partial(_store_row, e, half, given[0]))]
        _chain(e, ways, partial(_scatter, e, half, given, within % _HALF))


def _store_row(e: WarpEmitter, half: _Half, words: Value) -> list[Value]:
    bits = words.type.element.width
    place = e.builder.inttoptr(half.start, POINTER)
    given = [words, place, WORD(bits // 8), _present(e, half)]
    e.function(f"llvm.masked.store.v{_HALF}i{bits}.p0", ir.VoidType(), given)
    return []


def _scatter(e: WarpEmitter, half: _Half, words: Sequence[Value], within: int) -> list[Value]:
    order = [i ^ within for i in range(_HALF)]
    every, places = ir.Constant(_vector(1), [1] * _HALF), _chosen(e, half.places, order)
    for i, word in enumerate(words):
        bits = word.type.element.width
        at = _pointers(e, places, i * bits // 8)
        given = [_chosen(e, word, order), at, WORD(bits // 8), every]
        e.function(f"llvm.masked.scatter.v{_HALF}i{bits}.v{_HALF}p0", ir.VoidType(), given)
    return []


# --- many loads by one register -------------------------------------------------------------------


#: ``(size, emitter, *memory)``: where memory starts, and the last place in it for such a word
Bounds = Callable[..., tuple[Value, Value]]


class Base:
    """Addresses in shared memory that many loads of a part add constants to: their pattern is found
    once."""

    def __init__(self, e: WarpEmitter, addresses: Value, mask: Value, size: int) -> None:
        b = e.builder
        self._e, self._size = e, size
        #: of each half the first address and how far the others reach; whether its lanes follow
        #: each other, and which of them load
        self._ends: list[Value] = []
        self._rows: list[tuple[Value, Value]] = []
        simple = b.icmp_unsigned("==", e.mask(mask), WORD(-1))
        steps = ir.Constant(_vector(32), [size * i for i in range(_HALF)])
        for number in range(2):
            half = _chosen(e, addresses, range(_HALF * number, _HALF * number + _HALF))
            first = b.extract_element(half, WORD(0))
            row, one = (
                _all_of(e, b.icmp_unsigned("==", half, x))
                for x in (b.add(_splat(e, first), steps), _splat(e, first))
            )
            simple = b.and_(simple, b.or_(row, one))
            reach = b.select(row, WORD(size * (_HALF - 1)), WORD(0))
            self._ends += [first, reach]
            self._rows.append((row, b.select(row, _LANES(-1), _LANES(1))))
        self._simple = simple

    def load(
        self, offset: int, bounds: Bounds, memory: Sequence[Value], otherwise: Callable[[], Value]
    ) -> Value:
        """Words at an offset from the addresses, in memory within `bounds`; `otherwise` loads where
        lanes follow no pattern or leave the memory."""
        e, size = self._e, self._size
        given = [WORD(offset), self._simple, *self._ends, *memory]
        make = partial(_within, size, bounds)
        good, *places = e.fragment(f"within.{size}", (BIT, LONG, LONG), make, *given)

        def rows() -> list[Value]:
            words = [
                x for place, row in zip(places, self._rows, strict=True) for x in (place, *row)
            ]
            type_ = integers(8 * size)
            return [e.fragment(f"rows.{size}", type_, partial(_rows, 8 * size), *words)]

        (word,) = _chain(e, [(good, rows)], lambda: [otherwise()])
        return word


def _within(
    size: int, bounds: Bounds, e: WarpEmitter, offset: Value, good: Value, *given: Value
) -> tuple[Value, ...]:
    """Whether both halves of a warp are in bounds at an offset, and where they start."""
    b, (first, low, second, high, *memory) = e.builder, given
    start, last = bounds(size, e, *memory)
    places = []
    for at, reach in ((first, low), (second, high)):
        place = b.add(at, offset)
        good = b.and_(good, b.icmp_signed(">=", place, WORD(0)))
        good = b.and_(good, b.icmp_signed("<=", place, b.sub(last, reach)))
        aligned = b.and_(place, WORD(size - 1))
        good = b.and_(good, b.icmp_unsigned("==", aligned, WORD(0)))
        places.append(b.add(start, b.zext(place, LONG)))
    return good, *places


def _rows(bits: int, e: WarpEmitter, *given: Value) -> Value:
    """Words of both halves: of each the place, whether its lanes follow each other, and which of
    them load."""
    b, type_ = e.builder, _vector(bits)
    halves = []
    for place, row, lanes in (given[:3], given[3:]):
        mask, nothing = b.bitcast(lanes, _vector(1)), ir.Constant(type_, ir.Undefined)
        words = [b.inttoptr(place, POINTER), WORD(bits // 8), mask, nothing]
        loaded = e.function(f"llvm.masked.load.v{_HALF}i{bits}.p0", type_, words)
        halves.append(b.select(row, loaded, _chosen(e, loaded, [0] * _HALF)))
    every = ir.Constant(ir.VectorType(WORD, WIDTH), list(range(WIDTH)))
    return b.shuffle_vector(*halves, every)


def _all_of(e: WarpEmitter, condition: Value) -> Value:
    return e.builder.icmp_unsigned("==", e.builder.bitcast(condition, _LANES), _LANES(-1))
