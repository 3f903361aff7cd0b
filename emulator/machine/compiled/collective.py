"""Statements that all 32 lanes of a warp execute together, as LLVM instructions.

They run where no lane is missing, and in loops where the lanes that are there are those of the
membermask; else they are steps of the vector engine, which knows how to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from emulator.arith.fast.words import POINTER, WORD, Value
from emulator.isa.movement import ROW_BYTES, Movement
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.wmma import WmmaTransfer
from emulator.layout.fragment import Fragment
from emulator.machine.compiled import rules, wmma_lines
from emulator.machine.compiled.compute import compute
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.compiled.warp_emitter import WIDTH, WarpEmitter, integers
from emulator.machine.shared import operands
from emulator.memory.windows import SHARED, WINDOW_BITS
from emulator.ptx.program import Address, Constant, Statement, items_of

_EVERY = 0xFFFFFFFF
#: elements of 16 bits of a tile of 8 rows
_TILE, _ROW = 64, 8


def fits(statement: Statement) -> bool:
    """True if all lanes of a warp execute a statement together, and it is one of these."""
    ins = statement.instruction
    if statement.guard is not None:
        return False
    if isinstance(ins, Movement):
        return ins.form.shape == "m8n8"
    if isinstance(ins, WmmaTransfer):
        return wmma_lines.fits(statement)
    if not isinstance(ins, OrdinaryInstruction):
        return False
    if ins.scope != "warp" or ("barrier" not in ins.effects and rules.find(ins, {}) is None):
        return False
    mask = statement.operands.get("membermask")
    return isinstance(mask, Constant) and mask.word & _EVERY == _EVERY


def gathers(statement: Statement) -> bool:
    """True for one of these whose membermask may leave lanes out, which cannot be part of a
    segment."""
    ins = statement.instruction
    if statement.guard is not None or not isinstance(ins, OrdinaryInstruction):
        return False
    if ins.scope != "warp" or "barrier" in ins.effects or fits(statement):
        return False
    return "membermask" in statement.operands and rules.find(ins, statement.selectors) is not None


def emit_gathered(t: NativeFunction, statement: Statement) -> None:
    """The lanes with one membermask after those with another; leaves it to the step where lanes
    are elsewhere that a membermask names."""
    e, b = t.e, t.b
    emit_rule = rules.find(statement.instruction, statement.selectors)  # type: ignore[arg-type]
    assert emit_rule is not None
    words: list[Any] = [
        t.read(bound, type_) if type_ else bound.word  # type: ignore[union-attr]
        for bound, type_ in operands.sources(statement)
    ]
    *words, masks = words
    left = t.room_of(WORD)
    b.store(e.mask(t.present), left)
    turn, after = b.append_basic_block("turn"), b.append_basic_block("after")
    b.branch(turn)
    b.position_at_end(turn)
    ahead = b.load(left, typ=WORD)
    mask = b.extract_element(masks, b.cttz(ahead, ir.Constant(ir.IntType(1), 0)))
    group = b.and_(e.mask(b.icmp_unsigned("==", masks, e.splat(mask))), ahead)
    with b.if_then(b.icmp_unsigned("!=", group, b.and_(mask, t.alive())), likely=False):
        t.fail()
    results = emit_rule(e, *words, e.splat(group))
    made = [*operands.destinations(statement)]
    results = results[: len(made)] if isinstance(results, tuple) else (results,)
    rooms = [t.room_of(x.type) for x in results]
    mine = e.lanes_of(group)
    for room, x in zip(rooms, results, strict=True):
        b.store(e.select(mine, x, b.load(room, typ=x.type)), room)
    ahead = b.and_(ahead, b.not_(group))
    b.store(ahead, left)
    b.cbranch(b.icmp_unsigned("!=", ahead, WORD(0)), turn, after)
    b.position_at_end(after)
    for (bound, type_), room, x in zip(made, rooms, results, strict=True):
        t.write(bound, type_, b.load(room, typ=x.type), None)


def tells(statement: Statement) -> bool:
    """True for a statement whose result is the mask of the lanes that execute it."""
    return statement.guard is None and "active" in statement.effects


def emit_active(t: NativeFunction, statement: Statement) -> None:
    (item,) = items_of(statement.operands["d"])
    t.write(item, "b32", t.e.splat(t.e.mask(t.present)), None)


def emit(t: NativeFunction, statement: Statement) -> None:
    ins = statement.instruction
    if isinstance(ins, Movement):
        _MOVEMENTS[ins.family](t, statement, ins)
    elif isinstance(ins, WmmaTransfer):
        wmma_lines.emit(t, statement)
    elif isinstance(ins, OrdinaryInstruction) and ins.rule:
        compute(t, statement)


# --- ldmatrix, stmatrix, movmatrix ----------------------------------------------------------------


def _chosen(e: WarpEmitter, words: Value, indexes: Sequence[int]) -> Value:
    """Elements of 16 bits of a vector, by their places."""
    places = ir.Constant(ir.VectorType(WORD, len(indexes)), [int(i) for i in indexes])
    return e.builder.shuffle_vector(words, words, places)


def _halves(e: WarpEmitter, words: Value) -> Value:
    """Registers as elements of 16 bits, two of each lane."""
    return e.builder.bitcast(words, ir.VectorType(ir.IntType(16), _TILE))


def _words(e: WarpEmitter, halves: Value) -> Value:
    return e.builder.bitcast(halves, integers(32))


def _from_tile(fragment: Fragment, tile: int) -> list[int]:
    """For each half of a register the element of the tile that it holds."""
    return [int(i) - _TILE * tile for i in fragment.lane_map.flat[:, 2 * tile : 2 * tile + 2].flat]


def _to_tile(fragment: Fragment, tile: int) -> list[int]:
    """For each element of a tile the half of a register that holds it."""
    lanes, elements = divmod(fragment.lane_map.inverse[tile].reshape(-1), fragment.elements)
    return [int(lane) * 2 + int(x) - 2 * tile for lane, x in zip(lanes, elements, strict=True)]


def _rows(t: NativeFunction, statement: Statement, ins: Movement, *, write: bool) -> Value:
    """Places of the rows whose addresses the first lanes hold."""
    e, b, bound = t.e, t.b, statement.operands["p"]
    addresses = t.address(bound)
    mask = ir.Constant(integers(1), [lane < ins.rows for lane in range(WIDTH)])
    assert isinstance(bound, Address)
    if bound.space == "":
        window = e.shift("lshr", addresses, WINDOW_BITS)
        outside = b.icmp_unsigned("!=", window, e.word(64, SHARED >> WINDOW_BITS))
        with b.if_then(e.any(b.and_(outside, mask)), likely=False):
            t.fail()
    return t.memory.places("shared", addresses, ROW_BYTES, mask, write, t.fail)


def _row(e: WarpEmitter, places: Value, row: int) -> Value:
    return e.builder.inttoptr(e.builder.extract_element(places, WORD(row)), POINTER)


def _load_matrix(t: NativeFunction, statement: Statement, ins: Movement) -> None:
    places, items = _rows(t, statement, ins, write=False), items_of(statement.operands["d"])

    def load(e: WarpEmitter, places: Value) -> tuple[Value, ...]:
        indexes = [_from_tile(ins.fragment("d"), tile) for tile in range(len(items))]
        return tuple(_loaded(x, tile, e, places) for tile, x in enumerate(indexes))

    made = t.e.outlined(f"load.{ins}", (integers(32),) * len(items), load, places)
    for item, words in zip(items, made, strict=True):
        t.write(item, "b32", words, None)


def _loaded(indexes: Sequence[int], tile: int, e: WarpEmitter, places: Value) -> Value:
    """The register that holds a tile."""
    type_ = ir.VectorType(ir.IntType(16), _ROW)
    parts = [
        e.builder.load(_row(e, places, _ROW * tile + i), typ=type_, align=1) for i in range(_ROW)
    ]
    while len(parts) > 1:
        parts = [_joined(e, *parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return _words(e, _chosen(e, parts[0], indexes))


def _joined(e: WarpEmitter, low: Value, high: Value) -> Value:
    count = 2 * low.type.count
    places = ir.Constant(ir.VectorType(WORD, count), list(range(count)))
    return e.builder.shuffle_vector(low, high, places)


def _store_matrix(t: NativeFunction, statement: Statement, ins: Movement) -> None:
    places = _rows(t, statement, ins, write=True)
    for tile, item in enumerate(items_of(statement.operands["r"])):
        store = partial(_stored, _to_tile(ins.fragment("r"), tile), tile)
        words = t.read(item, "b32")
        t.e.outlined(f"store.{ins}.{tile}", ir.VoidType(), store, words, places)
    t.has_stored(t.present)


def _stored(indexes: Sequence[int], tile: int, e: WarpEmitter, words: Value, places: Value) -> None:
    halves = _halves(e, words)
    for i in range(_ROW):
        part = _chosen(e, halves, indexes[_ROW * i : _ROW * i + _ROW])
        e.builder.store(part, _row(e, places, _ROW * tile + i), align=1)


def _transpose(t: NativeFunction, statement: Statement, ins: Movement) -> None:
    given, made = ins.fragment("a"), ins.fragment("d")
    held = _to_tile(given, 0)
    halves = _halves(t.e, t.read(statement.operands["a"], "b32"))
    chosen = _chosen(t.e, halves, [held[i] for i in _from_tile(made, 0)])
    (item,) = items_of(statement.operands["d"])
    t.write(item, "b32", _words(t.e, chosen), None)


_MOVEMENTS = {"ldmatrix": _load_matrix, "stmatrix": _store_matrix, "movmatrix": _transpose}
