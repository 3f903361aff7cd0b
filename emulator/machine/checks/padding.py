"""Stores that copy a structure as it stands, its padding too.

nvcc copies a structure in pieces: each member, and sometimes the bytes between and behind them,
which nothing has written. A piece that is narrower than a member near it, and is copied from the
same structure to the same structure, may be padding. PTX does not say more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from emulator.arith.scalar.types import TYPES
from emulator.ptx.program import (
    Address,
    Function,
    ParameterPlace,
    Program,
    Register,
    Statement,
    items_of,
)

#: bytes of the largest piece that is taken for padding, and of the largest alignment of a member
_LARGEST, _ALIGNMENT = 2, 16


class _Piece(NamedTuple):
    """Bytes that one statement loads or stores."""

    #: what the address counts from
    base: object
    offset: int
    size: int
    register: int
    pc: int


def copies_of_padding(program: Program, function: Function) -> frozenset[int]:
    """The pcs of the stores of a function that may copy the padding of a structure."""
    statements = program.statements[function.first : function.end]
    loaded = _origins(statements)
    structures = defaultdict(list)
    for statement in statements:
        if "writes" in statement.effects and "exchanges" not in statement.effects:
            for piece in _pieces(statement, "b"):
                source = loaded.get(piece.register)
                if source is not None and source.size == piece.size:
                    key = piece.base, source.base, piece.offset - source.offset
                    structures[key].append(piece)
    return frozenset(
        piece.pc
        for pieces in structures.values()
        for piece in pieces
        if piece.size <= _LARGEST and any(_is_member_near(other, piece) for other in pieces)
    )


def _is_member_near(other: _Piece, piece: _Piece) -> bool:
    return other.size > piece.size and abs(other.offset - piece.offset) < _ALIGNMENT


def _origins(statements: list[Statement]) -> dict[int, _Piece]:
    """Pieces that a load puts into registers which no other statement writes, moves followed."""
    writers: dict[int, list[Statement]] = defaultdict(list)
    for statement in statements:
        for bound in statement.bound("written"):
            for item in items_of(bound):
                if isinstance(item, Register):
                    writers[item.index].append(statement)
    once = {index: found[0] for index, found in writers.items() if len(found) == 1}
    out = {
        piece.register: piece
        for statement in once.values()
        if "reads" in statement.effects and "exchanges" not in statement.effects
        for piece in _pieces(statement, "d")
        if piece.register in once
    }
    for index, statement in once.items():  # in the order of the program
        source = statement.operands.get("a")
        if statement.instruction.is_move and isinstance(source, Register) and source.index in out:
            out[index] = out[source.index]
    return out


def _pieces(statement: Statement, value: str) -> Iterator[_Piece]:
    """Pieces that a load or store moves from or to registers, item by item; bulk stores have no
    items."""
    place = statement.operands.get("a")
    type_ = TYPES.get(str(statement.instruction).rpartition(".")[2])
    if type_ is not None and isinstance(place, (Address, ParameterPlace)):
        size = type_.size // 8
        for number, item in enumerate(items_of(statement.operands.get(value))):
            if isinstance(item, Register):
                offset = place.offset + number * size
                yield _Piece(_base(place), offset, size, item.index, statement.pc)


def _base(place: Address | ParameterPlace) -> object:
    return (place.space, place.base) if isinstance(place, Address) else place.index
