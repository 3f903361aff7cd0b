"""Claims: whether thread blocks that run in different threads store to places of their own.

Before blocks store to memory that others see, each claims the lines that it is about to write, in a
table that all threads share. Where no two threads claim one line, the order of blocks changes
nothing, and they store at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from emulator.arith.fast.scratch import LINE
from emulator.arith.fast.words import BIT, LONG, POINTER, WORD, Value
from emulator.arith.scalar.types import TYPES
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.compiled.warp_emitter import WarpEmitter
from emulator.machine.shared.operands import space_of
from emulator.machine.vector import access
from emulator.machine.vector.statements import maker_of
from emulator.ptx.program import Statement, items_of, registers_of

#: effects of statements that neither read nor change what other blocks see
_HARMLESS = {
    "pure", "hint", "moves", "special", "selects", "points", "packs", "zero", "one", "splits",
    "lanes", "gathers", "shuffles", "aligned", "active", "carry", "orders", "before", "after",
}  # fmt: skip
#: those of them whose results may depend on other lanes, or on more than their operands
_TOGETHER = {"lanes", "gathers", "shuffles", "aligned", "active", "carry"}
#: spaces that a block has for itself, or that nobody writes; and those that others see
_OWN, OTHERS = ("shared", "local", "param", "const"), ("global", "")
#: bits of an entry that name its owner; addresses have no more bits than this
OWNER_BITS, _ADDRESS_BITS = 20, 48
#: entries of the table that a line may be in, one after the other
_PROBES = 8
#: spreads the numbers of lines over the table
_SPREAD = 0x9E3779B97F4A7C15


def claims_of(statements: Sequence[Statement]) -> list[Statement] | None:
    """The stores of a part to memory that other blocks see, and the statements before them that
    compute where they store; None where that is not known before, or the part does more."""
    wanted: set[int] = set()
    out: list[Statement] = []
    for statement in reversed(statements):
        if not is_harmless(statement):
            return None
        is_store = stores(statement)
        if is_store and space_of(statement, statement.operands["a"]) in _OWN:
            continue
        parts = statement.expansion or (statement,)
        written = {i for part in parts for i in _registers(part, "written")}
        if not is_store and not written & wanted:
            continue
        if is_store:
            wanted |= set(registers_of(statement.operands["a"]))
        elif statement.effects & _TOGETHER or _uses_carry(parts) or _looks(statement):
            return None
        else:
            if statement.guard is None:
                wanted -= written
            wanted |= {i for part in parts for i in _registers(part, "read")}
        if statement.guard is not None:
            wanted.add(statement.guard.index)
        out.append(statement)
    return out[::-1]


def stores(statement: Statement) -> bool:
    """True for a store of registers."""
    return maker_of(str(statement.instruction)) is access.store


def is_harmless(statement: Statement, loads: Sequence[str] = ()) -> bool:
    """True for a store, or a statement that neither changes memory that other blocks see nor looks
    at it, but for a load from the spaces `loads`."""
    ins = statement.instruction
    if not isinstance(ins, OrdinaryInstruction):
        return False
    maker = maker_of(str(ins))
    if maker is access.store:
        return space_of(statement, statement.operands["a"]) in (*OTHERS, "shared", "local")
    if maker is access.load:
        return space_of(statement, statement.operands["a"]) in (*_OWN, *loads)
    return all(part.effects <= _HARMLESS for part in statement.expansion or (statement,))


def _looks(statement: Statement) -> bool:
    """True for a load of what a statement before it may have stored."""
    if maker_of(str(statement.instruction)) is not access.load:
        return False
    return space_of(statement, statement.operands["a"]) not in ("param", "const")


def _uses_carry(parts: Sequence[Statement]) -> bool:
    names = ("reads_carry", "writes_carry")
    return any(getattr(part.instruction, name, False) for part in parts for name in names)


def _registers(statement: Statement, use: str) -> Iterator[int]:
    for bound in statement.bound(use):
        yield from registers_of(bound)


def emit(
    t: NativeFunction,
    statement: Statement,
    table: Value,
    shift: Value,
    owner: Value,
    reached: Callable[..., None],
) -> Value:
    """Claims what a statement stores, where it stores; whether another owner has claimed it.
    `reached` takes the least and the greatest address of them."""
    place, e = statement.operands["a"], t.e
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    assert TYPES[ins.types[-1]].size // 8 * len(items_of(statement.operands["b"])) <= LINE
    active, addresses = t.active(t.guard(statement)), t.address(place)
    ends = {
        name: e.call(
            f"vector.reduce.{pick}", e.select(active, addresses, e.word(64, other)), result=LONG
        )
        for name, pick, other in (("least", "umin", -1), ("most", "umax", 0))
    }
    reached(**ends)
    mask = e.mask(active)
    return e.outlined("claim", BIT, _claim, addresses, mask, table, shift, owner)


def bytes_of(statements: Sequence[Statement] | None) -> int:
    """The most bytes that a lane stores in statements whose stores are claimed."""
    out = 0
    for statement in statements or ():
        if stores(statement):
            ins = statement.instruction
            assert isinstance(ins, OrdinaryInstruction)
            out += TYPES[ins.types[-1]].size // 8 * len(items_of(statement.operands["b"]))
    return out


def _claim(
    e: WarpEmitter, addresses: Value, mask: Value, table: Value, shift: Value, owner: Value
) -> Value:
    """Lane by lane; an access lies in one line, or is refused where it is executed."""
    b = e.builder
    room = b.alloca(addresses.type)
    room.type = POINTER  # not to one type alone
    b.store(addresses, room)
    start = b.block
    lane, probe, taken, other, following, free, refused = (b.append_basic_block() for _ in range(7))
    b.cbranch(b.icmp_unsigned("!=", mask, WORD(0)), lane, free)

    b.position_at_end(lane)
    left = b.phi(WORD)
    left.add_incoming(mask, start)
    number = b.zext(e.function("llvm.cttz.i32", WORD, [left, BIT(1)]), LONG)
    address = b.load(b.gep(room, [number], source_etype=LONG), typ=LONG)
    line = b.udiv(address, LONG(LINE))
    entry = b.or_(b.shl(line, LONG(OWNER_BITS)), owner)
    slot = b.lshr(b.mul(line, LONG(_SPREAD)), shift)
    far = b.icmp_unsigned("!=", b.lshr(address, LONG(_ADDRESS_BITS)), LONG(0))
    b.cbranch(far, refused, probe)

    b.position_at_end(probe)
    turn = b.phi(LONG)
    turn.add_incoming(LONG(0), lane)
    at = b.and_(b.add(slot, turn), b.lshr(LONG(-1), shift))
    place = b.gep(table, [at], source_etype=LONG)
    held = b.load(place, typ=LONG)
    mine = b.icmp_unsigned("==", held, entry)
    empty = b.icmp_unsigned("==", held, LONG(0))
    b.cbranch(mine, following, taken)

    b.position_at_end(taken)
    swap = b.append_basic_block()
    b.cbranch(empty, swap, other)
    b.position_at_end(swap)
    swapped = b.cmpxchg(place, LONG(0), entry, "seq_cst")
    old = b.extract_value(swapped, 0)
    b.cbranch(b.extract_value(swapped, 1), following, other)

    b.position_at_end(other)
    now = b.phi(LONG)
    now.add_incoming(held, taken)
    now.add_incoming(old, swap)
    same = b.icmp_unsigned("==", b.lshr(now, LONG(OWNER_BITS)), line)
    another = b.add(turn, LONG(1))
    turn.add_incoming(another, other)
    b.cbranch(b.or_(same, b.icmp_unsigned("==", another, LONG(_PROBES))), refused, probe)

    b.position_at_end(following)
    rest = b.and_(left, b.sub(left, WORD(1)))
    left.add_incoming(rest, following)
    b.cbranch(b.icmp_unsigned("!=", rest, WORD(0)), lane, free)
    b.position_at_end(refused)
    b.ret(BIT(1))
    b.position_at_end(free)
    return BIT(0)
