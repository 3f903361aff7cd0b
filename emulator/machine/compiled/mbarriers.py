"""mbarriers within native functions: words in shared memory.

An arrival may complete a phase: whoever calls the function looks afterwards after those that wait.
A try_wait of a phase that is not over is left to the step, which knows how to wait.
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir

from emulator.arith.fast.words import LONG, POINTER, Value
from emulator.arith.scalar.types import TYPES
from emulator.machine.compiled.atomics import one_by_one
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.compiled.warp_emitter import WIDTH, WarpEmitter, integers
from emulator.machine.shared.mbarriers import Arrival
from emulator.machine.shared.operands import space_of
from emulator.machine.shared.phases import SIZE, PhaseTest
from emulator.memory.mbarrier import (
    COUNT_MASK,
    EXPECTED,
    FLAGS,
    LEDGER_BYTES,
    MAX_COUNT,
    PARITY,
    PENDING,
    TRANSACTIONS,
    TRANSACTIONS_MASK,
)
from emulator.ptx.program import Statement

_TOKEN = 0xFFFF_FFFF_0000_0000
#: operands of tests that have LLVM instructions
_TESTED = tuple(
    {"p", "mbarrier", *more}
    for more in (("state",), ("parity",), ("state", "time"), ("parity", "time"))
)


def _in_shared(statement: Statement) -> bool:
    """True if the barrier that a statement names certainly lies in shared memory."""
    place = statement.operands.get("mbarrier")
    if "mbarrier" not in statement.effects or place is None:
        return False
    return space_of(statement, place) in ("shared", "cluster")


def arrives(statement: Statement) -> bool:
    """True if a statement arrives at a barrier, and has LLVM instructions."""
    if not _in_shared(statement):
        return False
    arrival = Arrival(statement)
    # What is rare is left to steps.
    return arrival.arrives and arrival.may_complete and not arrival.drops


def _tests(statement: Statement) -> bool:
    """True if a statement tests a phase in all lanes, and asks for nothing else."""
    plain = statement.operands.keys() in _TESTED
    return plain and _in_shared(statement) and statement.guard is None


def waits(statement: Statement) -> bool:
    """True for a wait for a phase, which cannot be part of a segment."""
    return _tests(statement) and "waits" in statement.effects


def fits(statement: Statement) -> bool:
    """True if a statement has LLVM instructions wherever it stands."""
    return arrives(statement) or (_tests(statement) and not waits(statement))


def emit(t: NativeFunction, statement: Statement) -> None:
    if arrives(statement):
        _arrive(t, statement)
        return
    over = _over(t, statement)
    if waits(statement):
        with t.b.if_then(t.e.any(t.b.and_(t.b.not_(over), t.present)), likely=False):
            t.fail()
        over = t.e.word(1, 1)
    t.write(statement.operands["p"], "pred", over, None)


def _places(t: NativeFunction, statement: Statement, active: Value, write: bool) -> Value:
    bound = statement.operands["mbarrier"]
    space = space_of(statement, bound)
    return t.memory.places(space, t.address(bound), SIZE, active, write, t.fail)


def _over(t: NativeFunction, statement: Statement) -> Value:
    """The lanes whose phase is over: see `memory.mbarrier`."""
    e, b, test = t.e, t.b, PhaseTest(statement)
    (words,) = t.memory.load(_places(t, statement, t.present, False), 64, 1)
    given = e.resize(t.read(statement.operands[test.operand], test.type), 64)
    words = b.xor(words, e.shift("shl", given, PARITY) if test.by_parity else given)
    return b.icmp_signed("<", words, e.word(64, 0))


# --- arrivals -------------------------------------------------------------------------------------


def _arrive(t: NativeFunction, statement: Statement) -> None:
    e, b, operands = t.e, t.b, statement.operands
    given = [
        e.resize(t.read(operands[name], "u32"), 64) if name in operands else e.word(64, default)
        for name, default in (("count", 1), ("bytes", 0))
    ]
    guard = t.guard(statement)
    active = t.active(guard)
    places, after = _places(t, statement, active, True), t.memory.room("after", WIDTH * SIZE)
    before = e.outlined(
        "mbarrier.arrive",
        integers(64),
        partial(one_by_one, _arrived, TYPES["u64"]),
        e.mask(active),
        after,
        places,
        *given,
        b.add(places, e.splat(t.memory.field("ledger"))),
    )
    alike = b.icmp_unsigned("==", b.load(after, typ=integers(64), align=SIZE), before)
    # What is undefined leaves the word as it is; the step says why, on words as they were.
    with b.if_then(e.any(b.and_(alike, active)), likely=False):
        t.memory.scatter(_reversed(e, places), _reversed(e, before))
        t.fail()
    t.has_stored(active)
    if "bytes" not in operands:
        before = b.and_(before, e.word(64, _TOKEN))
    t.write(operands.get("d"), "b64", before, guard)


def _reversed(e: WarpEmitter, words: Value) -> Value:
    """The last lane first."""
    lanes = ir.Constant(integers(32), list(reversed(range(WIDTH))))
    return e.builder.shuffle_vector(words, words, lanes)


def _arrived(e: WarpEmitter, word: Value, arrivals: Value, added: Value, ledger: Value) -> Value:
    """`_after`, and what `memory.mbarrier.noted` notes in the ledger."""
    b, after = e.builder, _after(e, word, arrivals, added)
    place = b.inttoptr(ledger, POINTER)
    entry = b.load(place, typ=LONG, align=SIZE)
    phases = b.shl(b.add(b.lshr(entry, LONG(LEDGER_BYTES)), LONG(1)), LONG(LEDGER_BYTES))
    over = b.icmp_signed("<", b.xor(word, after), LONG(0))
    b.store(b.select(over, phases, b.add(entry, added)), place, align=SIZE)
    return after


def _after(e: WarpEmitter, word: Value, arrivals: Value, added: Value) -> Value:
    """The word after some arrivals and bytes that are expected, as `Barrier.after` has it; the same
    word where that is undefined."""
    b = e.builder
    pending, transactions, expected = (
        b.and_(b.neg(b.lshr(word, LONG(low))), LONG(mask))
        for low, mask in (
            (PENDING, COUNT_MASK),
            (TRANSACTIONS, TRANSACTIONS_MASK),
            (EXPECTED, COUNT_MASK),
        )
    )
    unused = LONG(64 - TRANSACTIONS_MASK.bit_length())
    total = b.add(b.ashr(b.shl(transactions, unused), unused), added)
    left = b.sub(pending, arrivals)
    legal = b.and_(
        b.icmp_unsigned("<", b.sub(arrivals, LONG(1)), pending),
        b.icmp_unsigned("<=", added, LONG(MAX_COUNT)),
    )
    above = b.add(total, LONG(MAX_COUNT))
    legal = b.and_(legal, b.icmp_unsigned("<=", above, LONG(2 * MAX_COUNT)))
    done = b.icmp_unsigned("==", b.or_(left, total), LONG(0))
    flip = b.shl(b.zext(done, LONG), LONG(PARITY))
    out = b.xor(b.and_(word, LONG(FLAGS)), flip)
    for count, low, mask in (
        (b.select(done, expected, left), PENDING, COUNT_MASK),
        (total, TRANSACTIONS, TRANSACTIONS_MASK),
        (expected, EXPECTED, COUNT_MASK),
    ):
        out = b.or_(out, b.shl(b.and_(b.neg(count), LONG(mask)), LONG(low)))
    return b.select(legal, out, word)
