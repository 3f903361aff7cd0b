"""wmma.load and wmma.store as LLVM instructions: the lines of a matrix by the lane map of its
fragment.

A line lies together in memory; its bounds and alignment are checked once, as those of a row of
ldmatrix are. Then each element of all lanes is one access.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from dtypes import Array
from emulator.arith.fast.words import LONG, WORD, Value
from emulator.isa.wmma import WmmaTransfer
from emulator.machine.compiled import patterns
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.compiled.warp_emitter import WIDTH, WarpEmitter, integers
from emulator.machine.shared.operands import word_type
from emulator.ptx.program import Address, Statement, items_of
from emulator.warp.wmma import line_bytes


class _Element(NamedTuple):
    """One element of all lanes: its register and lowest bit there, which line holds it in each
    lane, at which byte, and at which bit of that."""

    register: int
    low: int
    lines: Array
    offsets: Array
    shifts: Array


def fits(statement: Statement) -> bool:
    """True for a wmma.load or wmma.store of elements that fill their place in a register."""
    ins = statement.instruction
    if not isinstance(ins, WmmaTransfer) or statement.guard is not None:
        return False
    place = ins.fragment("r").place
    return place.shift == 0 and place.code_bits == place.width and ins.lines <= WIDTH


def space_of(statement: Statement) -> str:
    """The state space of a matrix; "" for a generic address."""
    ins, bound = statement.instruction, statement.operands["p"]
    assert isinstance(ins, WmmaTransfer)
    own = bound.space if isinstance(bound, Address) else ""
    return ins.space.partition("::")[0] or own


def emit(t: NativeFunction, statement: Statement) -> None:
    ins, operand = statement.instruction, statement.signature["r"]
    assert isinstance(ins, WmmaTransfer)
    items, type_ = items_of(statement.operands["r"]), word_type(operand)
    starts = _starts(t, statement, ins)
    if ins.verb == "store":
        words = [t.read(item, type_) for item in items]
        store = partial(_store, ins)
        t.e.outlined(f"{ins}", ir.VoidType(), store, starts, *words)
        t.has_stored(t.present)
        return
    type_of_all = ir.ArrayType(integers(ins.fragment("r").word_bits), len(items))
    loaded = t.e.outlined(f"{ins}", type_of_all, partial(_load, ins), starts)
    for number, item in enumerate(items):
        t.write(item, type_, t.b.extract_value(loaded, number), None)


def _starts(t: NativeFunction, statement: Statement, ins: WmmaTransfer) -> Value:
    """Where the lines start, each in its lane; the step says what is wrong with an operand."""
    e, b, bits = t.e, t.b, ins.fragment("r").fmt.bits
    base = _one_for_all(t, t.address(statement.operands["p"]))
    stride: Value = LONG(ins.default_stride)
    if "stride" in statement.operands:
        given = e.resize(t.read(statement.operands["stride"], "b32"), 64)
        stride = _one_for_all(t, given)
        short = b.icmp_unsigned("<", stride, LONG(ins.default_stride))
        with b.if_then(short, likely=False):
            t.fail()
    step = b.mul(stride, LONG(bits))
    odd = b.urem(step, LONG(8 * ins.alignment))
    with b.if_then(b.icmp_unsigned("!=", odd, LONG(0)), likely=False):
        t.fail()
    step = b.udiv(step, LONG(8))
    addresses = b.add(e.splat(base), b.mul(e.splat(step), e.iota(64)))
    mask = ir.Constant(integers(1), [lane < ins.lines for lane in range(WIDTH)])
    space, more, writes = space_of(statement), line_bytes(ins) - ins.alignment, ins.verb == "store"
    starts = t.memory.places(space, addresses, ins.alignment, mask, writes, t.fail)
    if more:
        last = b.add(addresses, e.word(64, more))
        ends = t.memory.places(space, last, ins.alignment, mask, writes, t.fail)
        apart = b.icmp_unsigned("!=", b.sub(ends, starts), e.word(64, more))
        with b.if_then(e.any(b.and_(apart, mask)), likely=False):
            t.fail()
    return starts


def _one_for_all(t: NativeFunction, words: Value) -> Value:
    """The word that all lanes hold."""
    first = t.b.extract_element(words, WORD(0))
    with t.b.if_then(t.e.any(t.b.icmp_unsigned("!=", words, t.e.splat(first))), likely=False):
        t.fail()
    return first


def _elements(ins: WmmaTransfer) -> Iterator[_Element]:
    """The elements of a lane, those of further copies left out."""
    fragment = ins.fragment("r")
    bits = fragment.fmt.bits
    # A lane map knows one copy.
    for number, coordinates in enumerate(np.moveaxis(fragment.lane_map.coordinates, 1, 0)):
        _, row, col = coordinates.T
        lines, places = (row, col) if ins.layout == "row" else (col, row)
        first = places * bits
        register, low = divmod(number * bits, fragment.word_bits)
        yield _Element(register, low, lines, first // 8, first % 8)


def _constant(bits: int, words: Array) -> Any:
    return ir.Constant(integers(bits), [int(x) for x in words])


def _places(e: WarpEmitter, starts: Value, element: _Element) -> Value:
    """The addresses of an element of all lanes."""
    lines = e.builder.shuffle_vector(starts, starts, _constant(32, element.lines))
    return e.builder.add(lines, _constant(64, element.offsets))


def _load(ins: WmmaTransfer, e: WarpEmitter, starts: Value) -> Value:
    """The registers of a matrix, an array."""
    b, fragment = e.builder, ins.fragment("r")
    size, bits = fragment.word_bits, fragment.fmt.bits
    words: dict[int, Value] = {}
    for element in _elements(ins):
        places = _places(e, starts, element)
        (word,) = patterns.load(e, places, max(8, bits), 1, e.word(1, 1))
        if bits < 8:
            word = b.lshr(word, _constant(8, element.shifts))
            word = b.and_(word, e.like(word, (1 << bits) - 1))
        word = e.shift("shl", e.resize(word, size), element.low)
        held = words.get(element.register)
        words[element.register] = word if held is None else b.or_(held, word)
    out = ir.Constant(ir.ArrayType(integers(size), fragment.registers), ir.Undefined)
    for number in range(fragment.registers):
        out = b.insert_value(out, words[number % len(words)], number)
    return out


def _store(ins: WmmaTransfer, e: WarpEmitter, starts: Value, *words: Value) -> None:
    bits = ins.fragment("r").fmt.bits
    for element in _elements(ins):
        word = e.resize(e.shift("lshr", words[element.register], element.low), bits)
        patterns.store(e, _places(e, starts, element), [word], e.word(1, 1))
