"""Statements that follow each other as one native function over the warps of a strand.

What is not here stays a step of the vector engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dtypes import Array
from emulator.arith.fast.words import Value
from emulator.arith.scalar.types import TYPES
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.register_types import REGISTER_BITS
from emulator.isa.wmma import WmmaTransfer
from emulator.machine.compiled import (
    atomics,
    collective,
    copies,
    mbarriers,
    products,
    rules,
    warpgroups,
    wmma_lines,
)
from emulator.machine.compiled.compute import compute
from emulator.machine.compiled.function import Input, NativeFunction, Output, SegmentFunction
from emulator.machine.shared.operands import space_of
from emulator.machine.shared.products import is_wgmma
from emulator.machine.vector import access
from emulator.machine.vector.memory import generic_in, load
from emulator.machine.vector.statements import STEPS, Make, maker_of
from emulator.machine.vector.strand import Strand
from emulator.memory.windows import LOCAL, PARAMETERS, RANK_BITS, SHARED, WINDOW_BITS
from emulator.ptx.program import (
    Address,
    Bound,
    Constant,
    Function,
    Inverted,
    LocalAddress,
    Register,
    SharedAddress,
    SpecialRegister,
    Statement,
    Vector,
    items_of,
)
from emulator.targets import Target

_MASK = (1 << 64) - 1
#: loads of a part by one register whose pattern is worth to be found once
_MANY = 4
#: special registers that change from statement to statement
_CLOCKS = ("%clock", "%globaltimer")


@dataclass(frozen=True)
class Translated:
    """A segment as text for LLVM, and the arrays that it takes and makes."""

    text: str
    inputs: tuple[Input, ...]
    #: registers that it writes, and what their arrays hold
    outputs: tuple[Output, ...]
    #: all lanes of a warp must be there; copies and products must take effect at their issue
    together: bool
    at_once: bool
    #: kernels of `emulator.arith.fast.kernels` are called
    multiplies: bool
    apart: bool
    #: others may wait for what it does
    arrives: bool


def translate(
    statements: Sequence[Statement], function: Function, live: int, target: Target
) -> Translated:
    """The function of some statements; `live`, as bits, are registers that may be read later."""
    made = SegmentFunction(function, target)
    for made.number, statement in enumerate(statements):
        emit(made, statement)
    return Translated(
        *made.finish(live),
        together=need_all_lanes(statements, target),
        at_once=need_no_delay(statements),
        multiplies=any(products.fits(x, target) for x in statements),
        apart=stay_apart(statements) and not atomics.order_matters(statements),
        arrives=any(map(mbarriers.arrives, statements)),
    )


def need_all_lanes(statements: Sequence[Statement], target: Target) -> bool:
    """True if all lanes of a warp must be present."""
    return any(
        collective.fits(x) or products.fits(x, target) or warpgroups.orders(x) for x in statements
    )


def need_no_delay(statements: Sequence[Statement]) -> bool:
    """True if copies and products must take effect at their issue."""
    return any(
        copies.fits(x) or warpgroups.orders(x) or mbarriers.waits(x) or is_wgmma(x)
        for x in statements
    )


def stay_apart(statements: Sequence[Statement]) -> bool:
    """True if blocks write no memory but their own, so that they may run at the same time."""
    if any(
        isinstance(x.instruction, WmmaTransfer)
        and x.instruction.verb == "store"
        and wmma_lines.space_of(x) != "shared"
        for x in statements
    ):
        return False
    return all(
        space_of(x, x.operands[name]) in ("shared", "local")
        for x in statements
        for effect, name in (("writes", "a"), ("mbarrier", "mbarrier"))
        if effect in x.effects and name in x.operands
    )


# --- which statements -----------------------------------------------------------------------------


def can_translate(statement: Statement, function: Function, target: Target) -> bool:
    """True if a statement has LLVM instructions."""
    if statement.expansion:
        return all(can_translate(part, function, target) for part in statement.expansion)
    if statement.call is not None or not _plain(statement, function):
        return False
    if collective.fits(statement) or collective.tells(statement) or copies.fits(statement):
        return True
    if (
        products.fits(statement, target)
        or mbarriers.fits(statement)
        or warpgroups.orders(statement)
    ):
        return True
    ins = statement.instruction
    if "hint" in ins.effects:
        return True
    maker = maker_of(str(ins)) if isinstance(ins, OrdinaryInstruction) else None
    if maker is not None:
        return maker in _STATEMENTS and _STATEMENTS[maker].fits(statement)
    if getattr(ins, "scope", "thread") != "thread" or not hasattr(ins, "rule"):
        return False
    return rules.find(ins, statement.selectors) is not None  # type: ignore[arg-type]


def _plain(statement: Statement, function: Function) -> bool:
    """True if all operands are words of at most 64 bits."""
    return all(_is_plain(bound, function) for bound in statement.operands.values())


def _is_plain(bound: Bound | None, function: Function) -> bool:
    if isinstance(bound, Register):
        return REGISTER_BITS.get(function.registers[bound.index].type, 128) <= 64
    if isinstance(bound, SpecialRegister):
        return not bound.name.startswith(_CLOCKS)
    if isinstance(bound, Vector):
        return all(_is_plain(item, function) for item in bound.items)
    if isinstance(bound, Address):
        return not bound.coordinates and _is_plain(bound.base, function)
    return bound is None or isinstance(bound, (Constant, Inverted, LocalAddress, SharedAddress))


# --- statements ---


def emit(t: NativeFunction, statement: Statement) -> None:
    """Appends the instructions of a statement."""
    for part in statement.expansion or (statement,):
        if part.expansion:
            emit(t, part)
        elif collective.fits(part):
            collective.emit(t, part)
        elif collective.gathers(part):
            collective.emit_gathered(t, part)
        elif collective.tells(part):
            collective.emit_active(t, part)
        elif copies.fits(part):
            copies.emit(t, part)
        elif products.fits(part, t.target):
            products.emit(t, part)
        elif mbarriers.fits(part) or mbarriers.waits(part):
            mbarriers.emit(t, part)
        elif warpgroups.orders(part) or "hint" in part.effects:
            pass
        elif isinstance(part.instruction, OrdinaryInstruction) and (
            maker := maker_of(str(part.instruction))
        ):
            _STATEMENTS[maker].emit(t, part, part.instruction)
        else:
            compute(t, part)


# --- loads, stores, addresses ---------------------------------------------------------------------


def _is_uniform(place: Bound, space: str) -> bool:
    """True if an operand is one address of memory that nobody writes."""
    return (
        isinstance(place, Address)
        and isinstance(place.base, Constant)
        and (space in ("param", "const"))
    )


def _of_words(statement: Statement) -> bool:
    """True if a load or store is one of registers, from or to memory."""
    ins = statement.instruction
    assert isinstance(ins, OrdinaryInstruction)
    place = statement.operands["a"]
    count = len(items_of(statement.operands.get("d", statement.operands.get("b"))))
    kind = TYPES[ins.types[-1]]
    if not isinstance(place, Address) or kind.size > 64:
        return False
    size = kind.size // 8 * count
    return size & (size - 1) == 0 and size <= 32


def _load(t: NativeFunction, statement: Statement, ins: OrdinaryInstruction) -> None:
    items = items_of(statement.operands.get("d"))
    place, type_ = statement.operands["a"], ins.types[-1]
    bits, space = TYPES[type_].size, space_of(statement, place)
    guard = t.guard(statement)
    if guard is None and _is_uniform(place, space):
        words = [_uniform(t, place, space, bits, i) for i in range(len(items))]
    else:
        active, size = t.active(guard), bits // 8 * len(items)

        def load() -> list[Value]:
            addresses = t.address(place)
            told = t.tell(place, space, addresses, size, active)
            places = t.memory.places(space, addresses, size, active, False, t.fail, told)
            return t.memory.load(places, bits, len(items), active)

        if guard is None and len(items) == 1 and (base := t.many(place, space)) is not None:
            assert isinstance(place, Address)
            words = [t.memory.load_of_many(base, place.offset, bits, t.present, load)]
        else:
            words = load()
    for item, word in zip(items, words, strict=True):
        t.write(item, type_, word, guard)


def _uniform(t: NativeFunction, place: Bound, space: str, bits: int, number: int) -> Value:
    """A word at a constant address, read once a call."""
    assert isinstance(place, Address)
    assert isinstance(place.base, Constant)
    size = bits // 8
    address = np.array([place.base.word + place.offset + number * size & _MASK], np.uint64)

    dtype, at = np.dtype(f"uint{bits}"), int(generic_in(space, address)[0])

    def read(s: Strand) -> Array:
        held = s.wave.grid.arena.held_at(at, size)
        return load(s, space, address, size) if held is None else held.view(dtype)

    return t.input((space, int(address[0]), size), Input(read, dtype))


def _store(t: NativeFunction, statement: Statement, ins: OrdinaryInstruction) -> None:
    place, type_ = statement.operands["a"], ins.types[-1]
    words = [t.read(item, type_) for item in items_of(statement.operands["b"])]
    space, guard = space_of(statement, place), t.guard(statement)
    active, size = t.active(guard), TYPES[type_].size // 8 * len(words)
    addresses = t.address(place)
    t.tell(place, space, addresses, size, active)
    places = t.memory.places(space, addresses, size, active, True, t.fail)
    t.memory.store(places, words, active)
    t.has_stored(active)


def bases_of_many(statements: Sequence[Statement]) -> set[int]:
    """The registers that many loads of words from shared memory add constants to."""
    counts: Counter[int] = Counter()
    for statement in statements:
        place = statement.operands.get("a")
        loads = "reads" in statement.effects and "writes" not in statement.effects
        if not loads or statement.guard or not isinstance(place, Address):
            continue
        if isinstance(place.base, Register) and space_of(statement, place) == "shared":
            counts[place.base.index] += 1
    return {index for index, count in counts.items() if count >= _MANY}


_WINDOWS = {"shared": SHARED, "local": LOCAL, "param": PARAMETERS}


def _convert_address(t: NativeFunction, statement: Statement, ins: OrdinaryInstruction) -> None:
    window = _WINDOWS.get(ins.modifiers["space"].partition("::")[0], 0)
    words = t.read(statement.operands["a"], "u64")
    if window:
        words = t.b.and_(words, t.e.word(64, (1 << WINDOW_BITS) - 1))
        if not ins.modifiers.get("to"):
            words = t.b.add(words, t.e.word(64, window))
    t.write(statement.operands["d"], "u64", words, t.guard(statement))


def _map_to_rank(t: NativeFunction, statement: Statement, ins: OrdinaryInstruction) -> None:
    e, b, type_ = t.e, t.b, ins.types[-1]
    place, rank = t.read(statement.operands["a"], type_), t.read(statement.operands["b"], "u32")
    guard = t.guard(statement)
    blocks = e.resize(e.splat(t.memory.field("cluster_size")), 32)
    outside = b.and_(b.icmp_unsigned(">=", rank, blocks), t.active(guard))
    with b.if_then(e.any(outside), likely=False):
        t.fail()
    place = b.and_(place, e.like(place, (1 << RANK_BITS) - 1))
    rank = e.resize(rank, TYPES[type_].size)
    place = b.or_(place, e.shift("shl", rank, RANK_BITS))
    if type_ == "u64" and not ins.modifiers["space"]:
        place = b.add(place, e.word(64, SHARED))
    t.write(statement.operands["d"], type_, place, guard)


@dataclass(frozen=True)
class _Kind:
    """Statements with an effect of their own: which of them fit, and their instructions."""

    fits: Callable[[Statement], bool]
    emit: Callable[[NativeFunction, Statement, OrdinaryInstruction], None]


#: maker of a statement's step -> its translation, for statements that compute by no rule
_STATEMENTS: dict[Make, _Kind] = {
    access.load: _Kind(_of_words, _load),
    access.store: _Kind(_of_words, _store),
    access.atomic: _Kind(atomics.fits, atomics.emit),
    STEPS["cvta"]: _Kind(lambda statement: True, _convert_address),
    STEPS["mapa"]: _Kind(lambda statement: True, _map_to_rank),
}
