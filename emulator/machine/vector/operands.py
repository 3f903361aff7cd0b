"""Vector engine: operands of statements as functions of a strand, what is read, what is written,
and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.scalar.types import TYPES, cut, extend
from emulator.isa.register_types import REGISTER_BITS
from emulator.machine.vector.memory import shared_rank
from emulator.machine.vector.special import special
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import (
    Address,
    Bound,
    Constant,
    Function,
    Guard,
    Inverted,
    LocalAddress,
    ParameterPlace,
    Register,
    SharedAddress,
    SpecialRegister,
    Vector,
)

#: of 64-bit addresses
_MASK = (1 << 64) - 1

Read = Callable[[Strand], Array]
Write = Callable[[Strand, Array, Array | None], None]
#: a mask of the lanes where a statement runs; None: it runs in all, False: in none
Active = Callable[[Strand], Array | Literal[False] | None]


def reader(bound: Bound | None, type_: str, function: Function) -> Read:
    """Words of a source operand that the instruction takes for a type: ``(lanes,)`` or ``(1,)``."""
    kind = TYPES[type_]
    if isinstance(bound, Register):
        index, held = bound.index, function.registers[bound.index].type
        if held == "pred" or REGISTER_BITS[held] == kind.size:
            return lambda s: s.read(index)
        return lambda s: cut(kind, s.read(index))
    if isinstance(bound, Constant):
        words = constant(bound.word, type_)
        return lambda s: words
    if isinstance(bound, SpecialRegister):
        name = bound.name
        return lambda s: cut(kind, special(s, name))
    if isinstance(bound, Inverted):
        index = bound.index
        return lambda s: ~s.read(index)
    if isinstance(bound, LocalAddress):
        offset = bound.offset
        low = (1 << kind.size) - 1
        return lambda s: np.array([s.frames[-1].local + offset & low], kind.dtype)
    if isinstance(bound, SharedAddress):
        address = np.uint64(bound.offset & _MASK)
        return lambda s: (shared_rank(s) + address).astype(kind.dtype, copy=False)
    if isinstance(bound, ParameterPlace):
        index, offset, size = bound.index, bound.offset, kind.size // 8
        return lambda s: _part(s.read(index), offset, size).view(kind.dtype)[:, 0]
    if isinstance(bound, Vector):
        part = f"b{kind.size // len(bound.items)}"
        parts = [reader(item, part, function) for item in bound.items]
        dtype = np.dtype(np.uint64) if kind.size == 128 else kind.dtype
        return lambda s: _packed([read(s) for read in parts], dtype)
    raise AssertionError(f"no operand is read from {bound!r}")


def _part(held: Array, offset: int, size: int) -> Array:
    return np.ascontiguousarray(held[:, offset : offset + size])


def _packed(parts: list[Array], dtype: np.dtype[Any]) -> Array:
    """Words that hold parts, the first one in the lowest bits."""
    held = np.stack(np.broadcast_arrays(*parts), axis=-1)
    packed = np.ascontiguousarray(held).view(dtype)
    return packed[:, 0] if packed.shape[1] == 1 else packed


def constant(word: int, type_: str) -> Array:
    """One word for all lanes."""
    kind = TYPES[type_]
    if kind.size == 128:
        mask = (1 << 64) - 1
        return np.array([[word & mask, word >> 64 & mask]], np.uint64)
    return np.array([word & (1 << kind.size) - 1], kind.dtype)


def writer(bound: Bound | None, type_: str, function: Function) -> Write:
    """Puts words of a type into a register, in the lanes of a mask or in all."""
    if bound is None:
        return lambda s, words, mask: None
    if isinstance(bound, ParameterPlace):
        return _parameter_writer(bound, type_)
    if isinstance(bound, Vector):
        return _parts_writer(bound, type_, function)
    assert isinstance(bound, Register), bound
    index, kind = bound.index, TYPES[type_]
    held = function.registers[index].type
    bits = REGISTER_BITS[held]
    widens = kind.kind != "predicate" and kind.size < bits

    def write(s: Strand, words: Array, mask: Array | None) -> None:
        if widens:
            words = extend(kind, words, bits)
        if mask is not None:
            old = s.read(index)
            words = np.where(mask if words.ndim == 1 else mask[:, None], words, old)
        s.frames[-1].registers[index] = words

    return write


def _parts_writer(bound: Vector, type_: str, function: Function) -> Write:
    """Takes words apart into registers, the lowest bits into the first."""
    bits = TYPES[type_].size // len(bound.items)
    writes = [writer(item, f"b{bits}", function) for item in bound.items]

    def write(s: Strand, words: Array, mask: Array | None) -> None:
        held = np.ascontiguousarray(words).reshape(len(words), -1).view(f"uint{bits}")
        for i, part in enumerate(writes):
            part(s, np.ascontiguousarray(held[:, i]), mask)

    return write


def _parameter_writer(bound: ParameterPlace, type_: str) -> Write:
    index, size = bound.index, TYPES[type_].size // 8
    place = slice(bound.offset, bound.offset + size)

    def write(s: Strand, words: Array, mask: Array | None) -> None:
        old = s.read(index)
        count = 1 if len(old) == len(words) == 1 and mask is None else len(s)
        held = np.array(np.broadcast_to(old, (count, old.shape[1])), order="C")
        raw = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), size)
        if mask is None:
            held[:, place] = raw
        else:
            held[mask, place] = raw[mask] if len(raw) > 1 else raw
        s.write(index, held)

    return write


def active(guard: Guard | None) -> Active:
    """Mask of the lanes on which a guarded statement runs."""
    if guard is None:
        return lambda s: None
    index, negated = guard.index, guard.negated

    def mask(s: Strand) -> Array | Literal[False] | None:
        held = s.read(index)
        if 0 < np.count_nonzero(held) < len(held):
            return ~held if negated else held
        return None if held[0] != negated else False

    return mask


def addresses(bound: Bound, function: Function) -> Callable[[Strand], NDArray[np.uint64]]:
    """The addresses ``uint64 (lanes,)`` or ``(1,)`` of a memory operand."""
    assert isinstance(bound, Address), bound
    base, offset = bound.base, bound.offset
    if not isinstance(base, Register):
        return reader(bound.place, "u64", function)
    index = base.index
    bits = REGISTER_BITS[function.registers[index].type]
    if bits == 64:
        add = np.array([offset & _MASK], np.uint64)
        return (lambda s: s.read(index) + add) if offset else (lambda s: s.read(index))
    # A narrower register is zero-extended.
    add = np.array([offset & (1 << 32) - 1], np.uint32)
    return lambda s: (s.read(index).astype(np.uint32) + add).astype(np.uint64)


def selected(words: Array, mask: Array | None) -> Array:
    """The words of the lanes of a mask; one word for all stays that."""
    return words if mask is None or len(words) == 1 else words[mask]
