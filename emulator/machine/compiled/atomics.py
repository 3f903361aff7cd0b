"""atom and red as LLVM instructions: the lanes of a warp one after the other, as in the rule
`atomic.update`.

Vectors, words of 128 bits, and f32 and f64 at generic addresses are steps of the vector engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from llvmlite import ir

from emulator.arith.fast.words import LONG, POINTER, WORD, Value
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.compiled import rules
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.compiled.warp_emitter import WIDTH, WarpEmitter, integers
from emulator.machine.shared.operands import space_of
from emulator.ptx.program import Statement, items_of

#: operations that give the same in any order
_ANY_ORDER = ("add", "min", "max", "and", "or", "xor")
#: of an emitter, the word that was there and the operands: the word that is there then
_Update = Callable[..., Value]


def fits(statement: Statement) -> bool:
    """True if an atomic operation has LLVM instructions."""
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    kind = TYPES[ins.types[-1]]
    if kind.size not in (16, 32, 64) or len(items_of(statement.operands["b"])) > 1:
        return False
    # Which sums flush subnormal numbers, or pass a NaN on, depends on where they are.
    known = space_of(statement, statement.operands["a"]) in ("global", "shared")
    return known or kind.name not in ("f32", "f64")


def order_matters(statements: Iterable[Statement], *, of_blocks: bool = False) -> bool:
    """True if the results of atomic operations depend on their order: an operation that returns a
    value, a sum of floats, or two different operations. `of_blocks`: the order of thread blocks."""
    found = [x for x in statements if "exchanges" in x.effects]
    if of_blocks:
        found = [x for x in found if space_of(x, x.operands["a"]) != "shared"]
    return any(map(_is_ordered, found)) or len({str(x.instruction) for x in found}) > 1


def come_apart(before: Sequence[Statement], statement: Statement) -> bool:
    """True if all threads must have executed some statements before one executes the next."""
    if "exchanges" not in statement.effects:
        return False
    return any("exchanges" in x.effects for x in before) and order_matters((*before, statement))


def _is_ordered(statement: Statement) -> bool:
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    if "d" in statement.operands or TYPES[ins.types[-1]].is_float:
        return True
    return ins.modifiers["operation"] not in _ANY_ORDER


def emit(t: NativeFunction, statement: Statement, ins: OrdinaryInstruction) -> None:
    b, type_ = t.b, ins.types[-1]
    kind, place = TYPES[type_], statement.operands["a"]
    bits, operation = kind.size, ins.modifiers["operation"]
    words = [t.read(statement.operands[x], type_) for x in "bc" if x in statement.operands]
    space, guard = space_of(statement, place), t.guard(statement)
    active = t.active(guard)
    places = t.memory.places(space, t.address(place), bits // 8, active, True, t.fail)
    after = t.memory.room("after", WIDTH * bits // 8)
    update = partial(one_by_one, rules.of_words(ins, space), kind)
    before = t.e.outlined(
        f"atomic.{operation}.{ins.modifiers.get('noftz', '')}.{type_}.{space}",
        integers(bits),
        update,
        t.e.mask(active),
        after,
        places,
        *words,
    )
    changed = b.icmp_unsigned("!=", b.load(after, typ=integers(bits), align=8), before)
    t.has_stored(b.and_(active, changed))
    if "d" in statement.operands:
        t.write(statement.operands["d"], type_, before, guard)


def one_by_one(
    update: _Update,
    kind: ScalarType,
    e: WarpEmitter,
    mask: Value,
    after: Value,
    places: Value,
    *words: Value,
) -> Value:
    """Updates of the lanes of a mask, ascending; what was there before, and `after` what is there
    then."""
    b, type_ = e.builder, ir.IntType(kind.size)
    *vectors, before = (b.alloca(x.type) for x in (places, *words, *words[:1]))
    for variable in (*vectors, before):
        variable.type = POINTER  # not to one type alone
    for vector, word in zip(vectors, (places, *words), strict=True):
        b.store(word, vector)
    start, loop, done = b.block, b.append_basic_block("lane"), b.append_basic_block("done")
    b.cbranch(b.icmp_unsigned("!=", mask, WORD(0)), loop, done)
    b.position_at_end(loop)
    left = b.phi(WORD)
    left.add_incoming(mask, start)
    lane = b.zext(e.function("llvm.cttz.i32", WORD, [left, ir.IntType(1)(1)]), LONG)

    def of_lane(vector: Value, element: Value) -> Value:
        return b.gep(vector, [lane], source_etype=element)

    place = b.inttoptr(b.load(of_lane(vectors[0], LONG), typ=LONG), POINTER)
    old = b.load(place, typ=type_, align=kind.size // 8)
    given = [b.load(of_lane(vector, type_), typ=type_) for vector in vectors[1:]]
    new = update(e, old, *given)
    b.store(new, place, align=kind.size // 8)
    b.store(old, of_lane(before, type_))
    b.store(new, of_lane(after, type_))
    rest = b.and_(left, b.sub(left, WORD(1)))
    left.add_incoming(rest, b.block)
    b.cbranch(b.icmp_unsigned("!=", rest, WORD(0)), loop, done)
    b.position_at_end(done)
    return b.load(before, typ=integers(kind.size), align=kind.size // 8)
