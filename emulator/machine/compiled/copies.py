"""cp.async as LLVM instructions, where copies take effect at their issue."""

from __future__ import annotations

from functools import partial

from llvmlite import ir

from emulator.arith.fast.words import BIT, LONG, Value
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.compiled.memory import Memory
from emulator.machine.compiled.warp_emitter import WarpEmitter
from emulator.ptx.program import Constant, Statement

#: effects that are nothing here: all copies are done
_NOTHING = {"commits", "waits"}


def fits(statement: Statement) -> bool:
    effects, operands = statement.effects, statement.operands
    if "copies" not in effects or "bulk" in effects:
        return False
    return bool(effects & _NOTHING) or ("size" in operands and "ignore" not in operands)


def emit(t: NativeFunction, statement: Statement) -> None:
    if statement.effects & _NOTHING:
        return
    e, b = t.e, t.b
    given = statement.operands["size"]
    assert isinstance(given, Constant)
    size, active = given.word, t.active(t.guard(statement))
    target = t.memory.places(
        "shared", t.address(statement.operands["dst"]), size, active, True, t.fail
    )
    addresses, sizes = t.address(statement.operands["src"]), _sizes(t, statement, size)
    too_many = b.and_(b.icmp_unsigned(">", sizes, e.word(32, size)), active)
    with b.if_then(e.any(too_many), likely=False):
        t.fail()
    whole = b.and_(b.icmp_unsigned("==", sizes, e.word(32, size)), active)
    source = t.memory.places("global", addresses, size, whole, False, t.fail)
    bits, count = (64, 2) if size == 16 else (8 * size, 1)
    words = t.memory.load(source, bits, count)
    t.memory.store(target, [e.select(whole, x, e.like(x, 0)) for x in words])
    part = b.and_(b.icmp_unsigned("!=", sizes, e.word(32, 0)), b.and_(active, b.not_(whole)))
    with b.if_then(e.any(part), likely=False):
        words = [t.memory.context, t.warp, addresses, target, sizes, e.mask(part)]
        failed = e.outlined(f"copy.{size}", BIT, partial(_copy_parts, size), *words)
        with b.if_then(failed, likely=False):
            t.fail()
    t.has_stored(active)


def _sizes(t: NativeFunction, statement: Statement, size: int) -> Value:
    """The bytes that each lane reads."""
    operands, e = statement.operands, t.e
    if "ignore" in operands:
        return e.select(t.read(operands["ignore"], "pred"), e.word(32, 0), e.word(32, size))
    if "source_size" in operands:
        return t.read(operands["source_size"], "u32")
    return e.word(32, size)


def _copy_parts(
    size: int,
    e: WarpEmitter,
    context: Value,
    warp: Value,
    addresses: Value,
    target: Value,
    sizes: Value,
    lanes: Value,
) -> Value:
    """Copies some bytes of the size, one after the other; zeros stand behind them already. Whether
    a lane is out of bounds."""
    b, mask = e.builder, e.lanes_of(lanes)
    before = b.block
    entry = ir.IRBuilder(before)
    memory = Memory(e, context, entry)
    memory.warp = warp
    loop, done = b.append_basic_block("bytes"), b.append_basic_block("copied")
    b.position_at_end(loop)
    at = b.phi(LONG)
    at.add_incoming(LONG(0), before)
    offset = e.splat(at)
    inside = b.and_(b.icmp_unsigned("<", offset, e.resize(sizes, 64)), mask)
    source = memory.places(
        "global", b.add(addresses, offset), 1, inside, False, lambda: b.ret(BIT(1))
    )
    (byte,) = memory.load(source, 8, 1)
    memory.store(e.select(inside, b.add(target, offset), memory.nowhere), [byte])
    following = b.add(at, LONG(1))
    at.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, LONG(size)), loop, done)
    entry.branch(loop)
    b.position_at_end(done)
    return BIT(0)
