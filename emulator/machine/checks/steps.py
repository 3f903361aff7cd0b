"""Steps of statements with the checks around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from dtypes import Array
from emulator.isa.tcgen05 import Tcgen05
from emulator.machine.checks import registers
from emulator.machine.checks.clocks import Aspect, Bools
from emulator.machine.checks.matrices import ProductShadow
from emulator.machine.checks.miscompilations import known_of
from emulator.machine.checks.padding import copies_of_padding
from emulator.machine.checks.registers import Use, count_of, sources_of_shuffle
from emulator.machine.checks.synchronisation import warps_complete
from emulator.machine.checks.watch import Watch
from emulator.machine.checks.wgmma import UsedRegisters
from emulator.machine.shared.operands import constant
from emulator.machine.shared.products import is_wgmma
from emulator.machine.shared.tensor_order import STORE, Load
from emulator.machine.vector.lanes import by_warp, present
from emulator.machine.vector.operands import reader
from emulator.machine.vector.strand import WARP, Lanes, Strand
from emulator.ptx.program import Function, Program, Statement, registers_of

Step = Callable[[Strand], None]
End = Callable[[Strand], int | None]
Found = TypeVar("Found")
#: called when a statement has been executed, with its lanes
After = Callable[[Watch, Strand, Lanes], None]


def checked(statement: Statement, function: Function, program: Program, step: Step) -> Step:
    """A step with its checks."""
    use = Use.of(statement, function)
    if use.publishes and statement.pc in _known(copies_of_padding, program, function):
        use = replace(use, publishes=False)
    # What is new in an expansion goes through registers of its own.
    parts = [replace(Use.of(x, function), guard=None, chooser=None) for x in statement.expansion]
    words = frozenset(str(statement.instruction).split("."))
    after = _after(statement, function)
    look = _before(statement, function, program)
    touch = _of_loaded(statement, function, program)
    loads = "reads" in statement.effects
    miscompiled = known_of(statement, function, program)

    def run(s: Strand) -> None:
        mask = use.active(s)
        watch = s.wave.watch
        watch.begin(statement, words)
        if miscompiled:
            watch.miscompiled(miscompiled, s, mask)
        if mask is False:
            if use.guard is not None:
                registers.before(watch, s, _only_guard(use), None)
            return
        for each in (use, *parts):
            registers.before(watch, s, each, mask)
        if look is not None:
            look(watch, s, mask)
        if touch is not None and watch.tensor_cores.arriving:
            touch(watch, s)
        step(s)
        if loads:
            registers.after_load(watch, s, use, mask)
        if after is not None:
            after(watch, s, s.lanes if mask is None else s.lanes[mask])

    return run


def checked_end(statement: Statement, function: Function, end: End) -> End:
    """The end of a block of statements with its checks."""
    use = Use.of(statement, function)
    only = _only_guard(use)
    words = frozenset(str(statement.instruction).split("."))

    def run(s: Strand) -> int | None:
        watch = s.wave.watch
        watch.begin(statement, words)
        if only.guard is not None:
            registers.before(watch, s, only, None)
        return end(s)

    return run


def _only_guard(use: Use) -> Use:
    return Use((), (), (), use.guard, False, use.active, None)


# --- before a statement ---------------------------------------------------------------------------


def _before(
    statement: Statement, function: Function, program: Program
) -> Callable[[Watch, Strand, Array | None], None] | None:
    if "membermask" in statement.operands:
        return _with_members(statement, function)
    found = _registers(program, function)
    if not found.accumulators:
        return None
    if is_wgmma(statement):
        accumulators = frozenset(registers_of(statement.operands["d"]))
        sources = frozenset(registers_of(statement.operands.get("a")))
        if len(sources) < 2:  # a descriptor
            sources = frozenset()
        return lambda watch, s, mask: _whole_groups(watch, s, accumulators, sources)
    count = count_of(function)
    use = Use.of(statement, function)
    read = frozenset(i - count for i in (*use.sources, *use.bases)) & found.accumulators
    written = frozenset(i - count for i in use.targets)
    written &= found.accumulators | found.sources
    if not read and not written:
        return None
    move = "moves" in statement.effects
    return lambda watch, s, mask: watch.wgmma_checks.touched(s, read, written, move)


def _of_loaded(
    statement: Statement, function: Function, program: Program
) -> Callable[[Watch, Strand], None] | None:
    """Check of statements that touch registers which a tcgen05.ld writes."""
    found, count = _registers(program, function), count_of(function)
    use = Use.of(statement, function)
    read = frozenset(i - count for i in (*use.sources, *use.bases)) & found.loaded
    written = (frozenset(i - count for i in use.targets) & found.loaded) - read
    if not read and not written:
        return None
    return lambda watch, s: watch.tensor_cores.touched(s, read, written)


def _whole_groups(
    watch: Watch, s: Strand, accumulators: frozenset[int], sources: frozenset[int]
) -> None:
    """A wgmma counts once all four warps are there: then the step executes it."""
    wave = watch.wave
    groups, counts = np.unique(watch.clocks.warpgroup(s.lanes), return_counts=True)
    every = watch.clocks.warpgroup(np.flatnonzero(wave.alive))
    alive = np.searchsorted(every, groups, "right") - np.searchsorted(every, groups)
    if (counts == alive).all():
        watch.wgmma_checks.multiply(s, accumulators, sources)


#: the last function that each was asked about, and the answer
_KNOWN: dict[Any, tuple[Function, Any]] = {}


def _known(
    find: Callable[[Program, Function], Found], program: Program, function: Function
) -> Found:
    """The result of `find` for a function, kept for all its statements."""
    known = _KNOWN.get(find)
    if known is None or known[0] is not function:
        known = _KNOWN[find] = function, find(program, function)
    found: Found = known[1]
    return found


def _registers(program: Program, function: Function) -> UsedRegisters:
    return _known(UsedRegisters.of_function, program, function)


def _with_members(
    statement: Statement, function: Function
) -> Callable[[Watch, Strand, Array | None], None]:
    """Lanes that name each other in a membermask name the same lanes, at the same statement."""
    members = reader(statement.operands["membermask"], "u32", function)
    shuffle = _shuffle(statement, function) if "shuffles" in statement.effects else None

    def look(watch: Watch, s: Strand, mask: Array | None) -> None:
        if mask is not None:
            return
        masks = members(s)
        if len(masks) > 1 and (masks != masks[0]).any():
            watch.masks_disagree(s, masks)
        if not s.wave.is_whole(s):
            watch.masks_elsewhere(s, s.spread(masks))
        else:
            watch.masks_met(s)
        if shuffle is not None:
            shuffle(watch, s, mask)

    return look


def _shuffle(
    statement: Statement, function: Function
) -> Callable[[Watch, Strand, Array | None], None] | None:
    """shfl.sync: a lane that is read from must be in the membermask and execute it, too."""
    if "membermask" not in statement.operands:
        return None
    members = reader(statement.operands["membermask"], "u32", function)
    sources = sources_of_shuffle(statement, function)

    def look(watch: Watch, s: Strand, mask: Array | None) -> None:
        if mask is not None:
            return
        own = s.lanes % 32
        source = sources(s)
        masks = np.broadcast_to(members(s), own.shape).astype(np.int64)
        there = by_warp(s, np.ones(len(s), np.bool_)) if len(s) % WARP else present(s)
        bits = (there * (1 << np.arange(32))).sum(1)
        warps = np.repeat(bits, there.sum(1)) if len(s) else bits
        wrong = masks >> source & 1 == 0
        wrong |= (
            (masks >> source & 1 == 1) & (warps >> source & 1 == 0) & _complete(s, masks, warps)
        )
        if wrong.any():
            index = int(np.argmax(wrong))
            watch.report(
                "shuffle",
                s.lanes[wrong],
                f"lane {int(own[index])} reads from lane {int(source[index])}, which does not take "
                f"part (membermask {int(masks[index]):#010x})",
            )

    return look


def _complete(s: Strand, masks: Array, warps: Array) -> Array:
    """Flags of the masks whose lanes are all there, or have ended."""
    warps_of = s.wave.warps_of(s)
    alive = np.repeat(
        s.wave.alive_bits(warps_of.numbers), np.diff(warps_of.starts, append=len(s))
    ).astype(np.int64)
    out: Array = masks & alive & ~warps == 0
    return out


# --- after a statement ----------------------------------------------------------------------------


def _after(statement: Statement, function: Function) -> After | None:
    if is_wgmma(statement):
        return _multiplied(statement, function)
    if "membermask" in statement.operands:
        if "barrier" in statement.effects:
            return _warp_barrier(statement, function)
        return _exchange if "a" in statement.operands else None
    if "waits" in statement.effects and isinstance(statement.instruction, Tcgen05):
        return _tensor_wait(statement)
    fits = (make for effects, make in _AFTER.items() if {*effects.split()} <= statement.effects)
    make = next(fits, None)
    return make and make(statement)


def _warp_barrier(statement: Statement, function: Function) -> After:
    members = reader(statement.operands["membermask"], "u32", function)

    def after(watch: Watch, s: Strand, lanes: Lanes) -> None:
        whole = warps_complete(s, members(s))
        watch.clocks.warp_barrier(s.lanes, whole, watch.now)
        watch.gather_warps(s.lanes)

    return after


def _exchange(watch: Watch, s: Strand, lanes: Lanes) -> None:
    watch.clocks.shuffled(lanes, watch.now)
    watch.sync.exchanged(lanes)


def _fence(statement: Statement) -> After:
    run = _of_fence(statement)

    def after(watch: Watch, s: Strand, lanes: Lanes) -> None:
        watch.fences[lanes] = watch.now
        if run is not None:
            run(watch, s, lanes)

    return after


def _of_fence(statement: Statement) -> After | None:
    words = set(str(statement.instruction).split("."))
    if "proxy" in words:
        if "async" in words or not {"tensormap::generic", "alias"} & words:
            return lambda watch, s, lanes: watch.clocks.fence(lanes, watch.now)
        if "tensormap::generic" in words:
            return lambda watch, s, lanes: watch.tensor_map_fence(lanes)
        return None
    if words & {"cta", "mbarrier_init"}:
        return None
    return lambda watch, s, lanes: watch.all.memory.fence(watch.clocks, lanes, watch.now)


def _wait_copies(statement: Statement) -> After:
    everything = "n" not in statement.operands
    newest = 0 if everything else constant(statement, "n")

    def after(watch: Watch, s: Strand, lanes: Lanes) -> None:
        events = watch.copies.wait(lanes, newest, watch.now)
        own = watch.clocks.own[Aspect.COPIES]
        own[lanes] = np.maximum(own[lanes], watch.now if everything else events)

    return after


def _wait_bulk(statement: Statement) -> After:
    newest = constant(statement, "n")
    read_only = "read" in str(statement.instruction).split(".")
    aspects = [Aspect.BULK_READ] if read_only else [Aspect.BULK_READ, Aspect.BULK]

    def after(watch: Watch, s: Strand, lanes: Lanes) -> None:
        events = watch.bulk.wait(lanes, newest, watch.now)
        for aspect in aspects:
            own = watch.clocks.own[aspect]
            own[lanes] = np.maximum(own[lanes], events)

    return after


def _multiplied(statement: Statement, function: Function) -> After:
    """A wgmma was executed: rows and columns of its tiles that nobody wrote spoil its sums."""
    product = ProductShadow(statement, function)
    ins: Any = statement.instruction

    def after(watch: Watch, s: Strand, lanes: Lanes) -> None:
        spoilt, watch.spoilt = watch.spoilt, {}
        if not any(tile.any() for tiles in spoilt.values() for tile in tiles):
            return
        sizes = (ins.n,) if product.a is not None else (ins.m, ins.n)
        product.with_shared(
            s,
            {
                first: [_spoilt(tile, size) for tile, size in zip(tiles, sizes, strict=True)]
                for first, tiles in spoilt.items()
            },
        )

    return after


def _spoilt(tile: Bools, size: int) -> Bools:
    """The rows of a tile of which an element is spoilt."""
    return np.any(tile.reshape(size, -1), 1) if tile.size else np.zeros(size, np.bool_)


def _wait_wgmma(statement: Statement) -> After:
    newest = constant(statement, "n")

    def after(watch: Watch, s: Strand, lanes: Lanes) -> None:
        own = watch.clocks.own[Aspect.WGMMA]
        own[lanes] = np.maximum(own[lanes], watch.wgmma.wait(lanes, newest, watch.now))
        watch.wgmma_checks.wait(lanes, newest)

    return after


def _tensor_wait(statement: Statement) -> After:
    name = Load.name if "arrives" in statement.effects else STORE
    return lambda watch, s, lanes: watch.tensor_cores.wait(name, lanes)


def _tensor_fence(statement: Statement) -> After:
    sort = "before" if "before" in statement.effects else "after"
    return lambda watch, s, lanes: watch.tensor_cores.completion.fence(sort, lanes)


#: effects that a statement has -> what to do behind it; the first that fits counts
_AFTER: dict[str, Callable[[Statement], After]] = {
    "bulk commits": lambda _: lambda watch, s, lanes: watch.bulk.commit(lanes, watch.now),
    "bulk waits": _wait_bulk,
    "copies commits": lambda _: lambda watch, s, lanes: watch.copies.commit(lanes, watch.now),
    "copies waits": _wait_copies,
    "orders commits": lambda _: lambda watch, s, lanes: watch.wgmma.commit(lanes, watch.now),
    "orders waits": _wait_wgmma,
    "orders before": _tensor_fence,
    "orders after": _tensor_fence,
    "orders hint": _fence,
    "orders": lambda _: lambda watch, s, lanes: watch.wgmma_checks.fence(lanes),
    "registers": lambda _: lambda watch, s, lanes: watch.set_registers(lanes),
}
