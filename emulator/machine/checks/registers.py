"""Registers that hold nothing that anybody wrote: tracked lane by lane, told where they matter.

Each register has a shadow beside it, ``int32 (lanes,)`` or ``(1,)``: 0 where it holds a value, else
minus the event that brought what nobody wrote (a load), or `NEVER`; a parameter of a call has one
for each byte, and halves of long words are told apart (see `parts`). Shadows are registers of the
same frames, so that branches and calls treat them as they treat the words. To copy or to compute
with such a word is no mistake; to use it as an address or predicate, to store it to global memory,
or to multiply a matrix with it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.checks.clocks import Bools
from emulator.machine.checks.finding import Party
from emulator.machine.checks.matrices import ProductShadow, registers_of_rows, rows_of_registers
from emulator.machine.checks.parts import (
    ParameterMove,
    event_of,
    half_of,
    halves,
    joined,
    moved_operand,
    wholes,
)
from emulator.machine.checks.reporter import Reporter
from emulator.machine.shared.operands import word_type
from emulator.machine.vector.operands import active, reader
from emulator.machine.vector.strand import WARP, Frame, Lanes, Strand
from emulator.memory.shadow import regrouped
from emulator.ptx.program import (
    Address,
    Bound,
    Constant,
    Function,
    Liveness,
    ParameterPlace,
    Program,
    Register,
    RegisterInfo,
    Statement,
    Vector,
    items_of,
    registers_of,
)

#: the shadow of a register that no path has written
NEVER = -1
CLEAN = np.zeros(1, np.int32)


class ShadowedLiveness(Liveness):
    """A shadow is live where its register is."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.statements, carries=program.carries, results=program.results)
        self._program = program

    def at(self, pc: int) -> int:
        bits = super().at(pc)
        return bits | bits << count_of(self._program.function_at(pc))


class ShadowedProgram(Program):
    """A program whose functions have a shadow behind each register."""

    @cached_property
    def liveness(self) -> Liveness:
        return ShadowedLiveness(self)


def shadowed(program: Program) -> Program:
    functions = {
        name: replace(
            function,
            registers=[
                *function.registers,
                *(RegisterInfo(r.name, "shadow", _never(r)) for r in function.registers),
            ],
        )
        for name, function in program.functions.items()
    }
    return ShadowedProgram(program.statements, functions, program.addresses, program.leaders)


def _never(register: RegisterInfo) -> Array:
    """The shadow of a register that nothing has written: one for each byte of a parameter."""
    return np.full(register.zero.shape if register.type == "bytes" else 1, NEVER, np.int32)


def count_of(function: Function) -> int:
    """Number of a function's registers, without their shadows."""
    return len(function.registers) // 2


# --- what a statement does ------------------------------------------------------------------------


def _indexes(statement: Statement, use: str) -> Iterator[int]:
    """The registers that a statement reads as values, or writes."""
    for operand in statement.signature.operands:
        bound = statement.operands.get(operand.name)
        if operand.use in (use, "updated") and not isinstance(bound, Address):
            yield from registers_of(bound)


def _bases(statement: Statement) -> Iterator[int]:
    for bound in statement.operands.values():
        if isinstance(bound, Address):
            yield from registers_of(bound)


@dataclass(frozen=True)
class Use:
    """The shadows that a statement looks at and changes."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    bases: tuple[int, ...]
    guard: int | None
    #: it may store its sources to global memory, where a word that nobody wrote is a mistake
    publishes: bool
    active: Callable[[Strand], Array | bool | None]
    #: of selp: the registers of its operands, the last of which picks one of the others
    chooser: tuple[int | None, ...] | None
    #: of a logical operation: the value of one source that makes those of the others not matter
    absorbing: int | None = None
    #: it packs its sources: of what it makes, a part may be meant
    packs: bool = False
    #: of a mov that joins two registers to a word of 64 bits or more: their shadows
    joins: tuple[int | None, ...] = ()
    #: of a mov that splits such a word: the shadows of the two registers
    splits: tuple[int | None, ...] = ()
    #: it copies words as they are: halves without a value stay apart from those with one
    copies: bool = False
    #: of a load or store of a parameter of a call
    parameter: ParameterMove | None = None
    #: of a load or store: the shadows of the items that it moves; None: an item is no register
    items: tuple[int | None, ...] = ()
    #: of shfl: the lane of its warp that each lane reads from
    shuffles: Callable[[Strand], Array] | None = None
    #: of a statement that gives each lane something of all: the membermask
    gathers: Callable[[Strand], Array] | None = None
    #: of a multiplication: whether it adds to D, and its operands
    adds: Callable[[Strand], Array] | None = None
    product: ProductShadow | None = None
    #: it stores to memory, and how the rows of stmatrix come from registers
    stores: Callable[[Strand], Bools] | bool = False
    #: of ldmatrix: the shadows that rows without values give
    loads: Callable[[Bools], list[Bools]] | None = None

    @classmethod
    def of(cls, statement: Statement, function: Function) -> Use:
        count = count_of(function)
        guard = None if statement.guard is None else statement.guard.index + count
        sources = tuple(dict.fromkeys(i + count for i in _indexes(statement, "read")))
        chooser = None
        effects = statement.effects
        if "selects" in effects:
            chooser = tuple(next(registers_of(statement.operands[name]), None) for name in "abc")
        targets = tuple(dict.fromkeys(i + count for i in _indexes(statement, "written")))
        place = statement.operands.get("a")
        if "writes" in effects and isinstance(place, ParameterPlace):
            targets = (place.index + count,)
            sources = tuple(i + count for i in registers_of(statement.operands["b"]))
        packs = _packs(statement)
        if packs and any(isinstance(statement.operands.get(x), Constant) for x in "ab"):
            sources = ()
        return cls(
            sources,
            targets,
            tuple(dict.fromkeys(i + count for i in _bases(statement))),
            guard,
            _publishes(statement),
            active(statement.guard),
            chooser,
            _absorbing(statement),
            packs,
            _halves(statement, "a", count),
            _halves(statement, "d", count),
            "moves" in effects,
            ParameterMove.of(statement, place, count),
            _items(statement, count),
            _shuffles(statement, function),
            _members(statement, function),
            _addition(statement, function),
            _product(statement, function),
            _stores(statement, sources),
            _loads(statement),
        )


def _addition(statement: Statement, function: Function) -> Callable[[Strand], Array] | None:
    """wgmma reads D only where its scale is not 0."""
    scale = statement.operands.get("scale_d")
    if scale is None or not isinstance(statement.instruction, MatrixInstruction):
        return None
    return reader(scale, word_type(statement.signature["scale_d"]), function)


def _shuffles(statement: Statement, function: Function) -> Callable[[Strand], Array] | None:
    if "shuffles" not in statement.effects or not isinstance(statement.operands["a"], Register):
        return None
    return sources_of_shuffle(statement, function)


def sources_of_shuffle(statement: Statement, function: Function) -> Callable[[Strand], Array]:
    """The lane of its warp that each lane of a shfl reads from."""
    words = str(statement.instruction).split(".")
    mode = next(word for word in words if word in ("up", "down", "bfly", "idx"))
    lane, clamp = (reader(statement.operands[name], "u32", function) for name in ("b", "c"))
    return lambda s: _source(
        mode, s.lanes % WARP, lane(s).astype(np.int64), clamp(s).astype(np.int64)
    )


def _source(mode: str, own: Array, b: Array, c: Array) -> Array:
    """The lane that each lane reads from; its own where the other is out of range (PTX ISA
    9.7.9.6)."""
    clamp, segment = c & 31, c >> 8 & 31
    most = own & segment | clamp & ~segment
    least = own & segment
    b = b & 31
    if mode == "idx":
        source = least | b & ~segment
        valid = source <= most
    elif mode == "up":
        source = own - b
        valid = source >= most
    else:
        source = own + b if mode == "down" else own ^ b
        valid = source <= most
    out: Array = np.where(valid, source, own)
    return out


def _packs(statement: Statement) -> bool:
    """True if a statement puts its sources beside each other: cvt to a pair, mov from a vector. In
    contrast, or, bfi and prmt insert a bit field into a word with other fields."""
    if "packs" not in statement.effects:
        return False
    return "b" in statement.operands or isinstance(statement.operands["a"], Vector)


def _halves(statement: Statement, name: str, count: int) -> tuple[int | None, ...]:
    """The shadows of the two registers that a mov joins to a long word, or splits one into."""
    bound = statement.operands.get(name)
    if "moves" not in statement.effects or not isinstance(bound, Vector) or len(bound.items) != 2:
        return ()
    if TYPES[word_type(statement.signature[name])].size < 64:
        return ()
    return tuple(x.index + count if isinstance(x, Register) else None for x in bound.items)


def _items(statement: Statement, count: int) -> tuple[int | None, ...]:
    name = moved_operand(statement)
    if not name:
        return ()
    bound = statement.operands.get(name)
    items = items_of(bound) if isinstance(bound, Vector) else (bound,)
    return tuple(x.index + count if isinstance(x, Register) else None for x in items)


def _members(statement: Statement, function: Function) -> Callable[[Strand], Array] | None:
    if "gathers" not in statement.effects:
        return None
    return reader(statement.operands["membermask"], "u32", function)


def _stores(statement: Statement, sources: tuple[int, ...]) -> bool | Callable[[Strand], Bools]:
    ins = statement.instruction
    if isinstance(ins, Movement) and "writes" in ins.effects:
        if ins.form.type != "b16":
            return False
        return lambda s: rows_of_registers(s, sources, ins.trans)
    if not isinstance(ins, OrdinaryInstruction) or "writes" not in statement.effects:
        return False
    if "exchanges" in statement.effects:
        return lambda s: np.any([spread(s, s.read(i)) < 0 for i in sources], axis=0)
    return True


def _loads(statement: Statement) -> Callable[[Bools], list[Bools]] | None:
    ins = statement.instruction
    if isinstance(ins, Movement) and "reads" in ins.effects:
        return lambda missing: registers_of_rows(ins, missing)
    return None


def _product(statement: Statement, function: Function) -> ProductShadow | None:
    if isinstance(statement.instruction, MatrixInstruction):
        return ProductShadow(statement, function)
    return None


def _publishes(statement: Statement) -> bool:
    """True if storing an unwritten word is a mistake. It is none in vectors of bytes, with which
    nvcc copies a structure together with its padding."""
    place, value = statement.operands.get("a"), statement.operands.get("b")
    if isinstance(value, Vector) and _size_of_item(statement) == 8:
        return False
    return "writes" in statement.effects and isinstance(place, Address)


def _size_of_item(statement: Statement) -> int:
    """Bits of the type that an opcode ends with; 0: it ends with none."""
    type_ = TYPES.get(str(statement.instruction).rpartition(".")[2])
    return 0 if type_ is None else type_.size


def _absorbing(statement: Statement) -> int | None:
    """The value of one operand that decides the result."""
    return next((x for x, word in enumerate(("zero", "one")) if word in statement.effects), None)


# --- while it runs --------------------------------------------------------------------------------


def before(watch: Reporter, s: Strand, use: Use, mask: Array | None) -> None:
    """Looks at the registers that a statement uses, and says what its results are."""
    if use.guard is not None:
        _refuse(watch, s, use.guard, None, "is the predicate of a statement")
    for base in use.bases:
        _refuse(watch, s, base, mask, "is part of an address")
    if use.product is not None:
        _multiply(s, use)
        return
    if use.parameter is not None:
        use.parameter.run(s, mask)
        return
    shadow = _combined(s, use) if use.shuffles is None else _shuffled(s, use, mask)
    if use.gathers is not None:
        shadow = _gathered(s, use.gathers, shadow, mask)
    if shadow is not CLEAN and use.stores:
        items = use.stores(s)[:, None] if callable(use.stores) else _undefined(s, use)
        watch.storing = (s.lanes, items) if mask is None else (s.lanes[mask], items[mask])
    if shadow is not CLEAN and use.publishes:
        watch.publishing = partial(_refuse_to_publish, watch, s, use)
    if use.splits and shadow is not CLEAN:
        for target, half in zip(use.splits, halves(shadow), strict=True):
            if target is not None:
                put(s, (target,), half, mask)
    elif use.targets:
        put(s, use.targets, shadow, mask)


def _multiply(s: Strand, use: Use) -> None:
    """A multiplication, which whole warps execute."""
    product = use.product
    assert product is not None
    if len(s) % product.lanes:
        return
    adds = use.adds is None or bool(use.adds(s).any())
    shadows = product.result(s, adds)
    for i, target in enumerate(product.d):
        s.write(target, CLEAN if shadows is None or not shadows[i].any() else shadows[i])


def _combined(s: Strand, use: Use) -> Array:
    if use.chooser is not None:
        count = count_of(s.frames[-1].function)
        first, second, picks = (CLEAN if i is None else s.read(i + count) for i in use.chooser)
        if (first is CLEAN and second is CLEAN and picks is CLEAN) or use.chooser[2] is None:
            return CLEAN
        out: Array = np.minimum(np.where(s.read(use.chooser[2]), first, second), picks)
        return out if out.any() else CLEAN
    if use.joins:
        low, high = (CLEAN if i is None else s.read(i) for i in use.joins)
        return CLEAN if low is CLEAN and high is CLEAN else joined(low, high)
    every = [s.read(i) for i in use.sources]
    found = [x for x in every if x is not CLEAN]
    if not found or (use.packs and len(found) < len(every)):
        return CLEAN
    join = np.maximum if use.packs else np.minimum
    out = found[0]
    for more in found[1:]:
        out = join(out, more)
    if use.absorbing is not None:
        count = count_of(s.frames[-1].function)
        for i, shadow in zip(use.sources, every, strict=True):
            decides = (shadow == 0) & (s.read(i - count) == use.absorbing)
            out = np.where(decides, 0, out)
    if not use.copies and not use.stores:
        out = wholes(out)
    return out if out.any() else CLEAN


def _shuffled(s: Strand, use: Use, mask: Array | None) -> Array:
    """Each lane gets the first source of the lane that it reads from. Of part of a warp nothing is
    said: the statement may be tried again when the others have come."""
    shadow, lanes = s.read(use.sources[0]), s.lanes
    if shadow is CLEAN or mask is not None or use.shuffles is None or not s.wave.is_whole(s):
        return CLEAN
    wanted = lanes - lanes % WARP + use.shuffles(s)
    at = np.minimum(np.searchsorted(lanes, wanted), len(lanes) - 1)
    out: Array = np.where(lanes[at] == wanted, spread(s, shadow)[at], 0)
    return out if out.any() else CLEAN


def _gathered(
    s: Strand, members: Callable[[Strand], Array], shadow: Array, mask: Array | None
) -> Array:
    """Spreads a value nobody wrote from one lane to all that share a membermask with it."""
    if shadow is CLEAN or mask is not None or not s.wave.is_whole(s):
        return shadow
    groups = (s.lanes // WARP).astype(np.int64) << WARP | spread(s, members(s)).astype(np.int64)
    _, which = np.unique(groups, return_inverse=True)
    least = np.zeros(len(s), np.int32)
    np.minimum.at(least, which, spread(s, shadow))
    out: Array = least[which]
    return out


def _undefined(s: Strand, use: Use) -> Bools:
    """Flags ``(lanes, 2 * items)`` of the stored halves that hold values nobody wrote."""
    shadows = [CLEAN if i is None else s.read(i) for i in use.items]
    return np.stack([spread(s, half) < 0 for x in shadows for half in halves(x)], 1)


def _refuse_to_publish(watch: Reporter, s: Strand, use: Use, lanes: Lanes) -> None:
    """Lanes store their sources to global memory."""
    for source in use.sources:
        _refuse(watch, s, source, np.isin(s.lanes, lanes), "is stored to global memory")


def spread(s: Strand, shadow: Array) -> Array:
    return np.broadcast_to(shadow, (len(s),))


def put(s: Strand, targets: tuple[int, ...], shadow: Array, mask: Array | None) -> None:
    for target in targets:
        if mask is None:
            s.write(target, shadow)
            continue
        old = s.read(target)
        if old is CLEAN and shadow is CLEAN:
            continue
        held = np.where(mask, shadow, old)
        s.write(target, held if held.any() else CLEAN)


def after_load(watch: Reporter, s: Strand, use: Use, mask: Array | None) -> None:
    """A load read what nothing wrote, in some lanes."""
    for lanes, missing in watch.unwritten:
        if use.loads is not None:
            for target, held in zip(
                use.targets, use.loads(np.asarray(missing.any(1))), strict=True
            ):
                s.write(target, np.where(held, -watch.now, 0).astype(np.int32))
            return
        where = np.searchsorted(s.lanes, lanes)
        for item, held in zip(use.items, regrouped(missing, len(use.items)).T, strict=True):
            if item is not None:
                shadow = np.array(spread(s, s.read(item)))
                shadow[where[held]] = -watch.now
                put(s, (item,), shadow, mask)


def _refuse(watch: Reporter, s: Strand, index: int, mask: Array | None, purpose: str) -> None:
    """Reports the lanes whose register holds what nobody wrote."""
    shadow = s.read(index)
    if shadow is CLEAN:
        return
    wrong = np.broadcast_to(shadow, (len(s),)) < 0
    if mask is not None:
        wrong = wrong & mask
    if not wrong.any():
        return
    function = s.frames[-1].function
    name = function.registers[index].name
    lanes = s.lanes[wrong]
    first = int(np.broadcast_to(shadow, (len(s),))[wrong][0])
    name, event = half_of(first) + name, event_of(first)
    if event == -NEVER:
        watch.report(
            "uninitialised register",
            lanes,
            len(lanes),
            f"{name}, which nothing has written, {purpose}",
            None,
            index,
        )
        return
    pc = watch.all.pcs[event]
    block = watch.wave.coordinates(int(lanes[0]))
    earlier = Party(watch.place(pc), block[0], (block[1],), "loaded it")
    watch.report(
        "uninitialised memory",
        lanes,
        len(lanes),
        f"{name}, loaded from memory that nothing has written, {purpose}",
        earlier,
        pc,
    )


# --- calls ----------------------------------------------------------------------------------------


def entered(s: Strand, frame: Frame, arguments: tuple[Bound, ...]) -> None:
    """The shadows of what a call passes."""
    caller, callee = s.frames[-1].function, frame.function
    passed = [bound.index for bound in arguments if isinstance(bound, Register)]
    for index, given in zip(callee.parameter_registers, passed, strict=True):
        frame.registers[index + count_of(callee)] = s.read(given + count_of(caller))


def returned(s: Strand, left: Frame, results: tuple[int, ...]) -> None:
    """The shadows of what a function returns; the strand is in the caller again."""
    count, own = count_of(left.function), count_of(s.frames[-1].function)
    for index, given in zip(results, left.function.result_registers, strict=True):
        s.write(index + own, left.read(given + count))
