"""Vector engine: statements that lanes of a warp execute together (PTX ISA 9.7.9.6, 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dtypes import Array
from emulator.arith.scalar.rule import bind_arrays
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.operands import ordinary, sources
from emulator.machine.shared.waiting import State
from emulator.machine.vector.compute import guarded, operands_of
from emulator.machine.vector.operands import Write, reader
from emulator.machine.vector.strand import WARP, Parked, Strand
from emulator.ptx.program import Constant, Function, Statement

#: a membermask of a whole warp
_EVERY_LANE = (1 << WARP) - 1


def together(s: Strand, pc: int, masks: Array | None = None) -> None:
    """Goes on where every lane of the masks that has not ended is there, too.

    `masks` are the membermasks ``(lanes,)`` or ``(1,)``; None: the whole warp. Lanes whose warp is
    not complete wait until others come or end; raises Parked then.
    """
    wave = s.wave
    if wave.is_whole(s):
        return
    warps = wave.warps_of(s)
    alive = wave.alive_bits(warps.numbers)
    if masks is None:
        missing = alive & ~warps.bits
    else:
        wanted = np.bitwise_or.reduceat(s.spread(masks), warps.starts)
        missing = wanted & alive & ~warps.bits
    if not missing.any():
        return
    counts = np.diff(warps.starts, append=len(s))
    lacking = np.repeat(missing != 0, counts)
    _wait(s, lacking, pc)


def together_in_groups(s: Strand, pc: int) -> None:
    """The same for warpgroups, four warps each: all lanes that have not ended must be there."""
    wave = s.wave
    if s.marks.get("groups") == wave.version:
        return
    group = wave.warpgroup[s.lanes]
    have = np.bincount(group)
    wanted = np.bincount(wave.warpgroup[wave.alive], minlength=len(have))[: len(have)]
    lacking = (have < wanted)[group]
    if lacking.any():
        _wait(s, lacking, pc, State.WARPGROUP)
    s.marks["groups"] = wave.version


def _wait(s: Strand, lacking: Array, pc: int, state: State = State.WARP) -> None:
    """Lanes of a mask wait at a statement; the others, if any, go on from it by themselves."""
    wave = s.wave
    wave.hold(s, lacking, state, pc, pc, pc)
    mates = wave.mates(wave.waiting[-1])
    if len(mates) > 1:
        # Some may be complete now: they look once more, together.
        for mate in mates:
            wave.waiting.remove(mate)
        wave.ready.append(wave.joined(mates))
    raise Parked


def check_members(s: Strand, masks: Array) -> None:
    """Every lane must be in its own membermask."""
    own = np.uint32(1) << (s.lanes % WARP).astype(np.uint32)
    wrong = (masks & own) == 0
    if wrong.any():
        index = int(np.argmax(wrong))
        mask = int(masks[index if len(masks) > 1 else 0])
        raise Failure("membermask", f"the lane is not in its own membermask {mask:#010x}", index)


def by_warp(s: Strand, words: Array) -> Array:
    """Words of a strand as ``(warps, 32, …)``; lanes that are not there hold zeros."""
    words = s.spread(words)
    if has_whole_warps(s):
        return words.reshape(-1, WARP, *words.shape[1:])
    whole = np.zeros((len(s.wave.warps_of(s).numbers) * WARP, *words.shape[1:]), words.dtype)
    whole[slots(s)] = words
    return whole.reshape(-1, WARP, *words.shape[1:])


def has_whole_warps(s: Strand) -> bool:
    """True if a strand has all 32 lanes of its warps."""
    return len(s.wave.warps_of(s).numbers) * WARP == len(s)


def slots(s: Strand) -> Array:
    """For each lane its place among all lanes of the strand's warps."""
    found: Array | None = s.marks.get("slots")
    if found is None:
        warps = s.wave.warps_of(s)
        counts = np.diff(warps.starts, append=len(s))
        number = np.repeat(np.arange(len(counts)), counts)
        found = s.marks["slots"] = number * WARP + s.lanes % WARP
    return found


def of_warps(s: Strand, words: Array) -> Array:
    """The lanes' words of ``(warps, 32, …)``."""
    flat = words.reshape(-1, *words.shape[2:])
    return flat if len(flat) == len(s) else flat[slots(s)]


def present(s: Strand) -> Array:
    """``bool (warps, 32)``: which lanes of the strand's warps are in it."""
    found: Array | None = s.marks.get("present")
    if found is None:
        found = s.marks["present"] = by_warp(s, np.ones(len(s), np.bool_))
    return found


def step(statement: Statement, function: Function) -> Callable[[Strand], None]:
    """shfl, vote, match, redux, elect, activemask, by the rules of `arith.scalar.lanes`."""
    ins = ordinary(statement)
    compute = bind_arrays(ins)
    reads, writes = operands_of(statement, function)
    mask = reads[-1] if "membermask" in statement.signature else None
    pattern = _pattern(statement, compute)

    def run(s: Strand) -> None:
        if pattern is not None and has_whole_warps(s):
            _shuffle(s, pattern, reads[0](s), writes)
            return
        words = [by_warp(s, read(s)) for read in reads]
        active = present(s) if reads else s.marks.get("group", present(s))
        masks = None if mask is None else mask(s)
        if masks is not None:
            check_members(s, masks)
            together(s, statement.pc, masks)
        results = _by_mask(compute, words, active)
        for write, column in zip(writes, results, strict=False):
            write(s, of_warps(s, column), None)

    return run


def _pattern(
    statement: Statement, compute: Callable[..., Array | tuple[Array, ...]]
) -> list[Array] | None:
    """Of a shuffle whose other operands are constants, with a membermask of all lanes: the lane
    that each lane of a warp reads, and the results that do not depend on words; else None."""
    if "shuffles" not in ordinary(statement).effects:
        return None
    _, *others = (bound for bound, _ in sources(statement))
    known = [x.word & _EVERY_LANE for x in others if isinstance(x, Constant)]
    if len(known) < len(others) or known[-1] != _EVERY_LANE:
        return None
    # The lanes' own numbers, shuffled, are the lanes that are read.
    words = (np.full((1, WARP), word, np.uint32) for word in known)
    lanes = np.arange(WARP, dtype=np.uint32)[None]
    results = compute(lanes, *words, active=np.ones(lanes.shape, np.bool_))
    return [x[0] for x in results]


def _shuffle(s: Strand, pattern: list[Array], words: Array, writes: list[Write]) -> None:
    """Shuffles words of whole warps."""
    warps = len(s) // WARP
    if len(words) > 1:
        words = words.reshape(warps, WARP).take(pattern[0], 1).reshape(-1)
    writes[0](s, words, None)
    for write, column in zip(writes[1:], pattern[1:], strict=False):
        write(s, np.tile(column, warps), None)


def _by_mask(
    compute: Callable[..., Array | tuple[Array, ...]], words: list[Array], active: Array
) -> tuple[Array, ...]:
    """Results of all lanes; those of a warp with one membermask, the last operand, compute
    together."""
    masks = np.broadcast_to(words[-1] if words else np.uint32(0), active.shape)
    results: tuple[Array, ...] = ()
    left = active
    while True:
        chosen = np.take_along_axis(masks, np.argmax(left, axis=-1, keepdims=True), axis=-1)
        mine = left & (masks == chosen)
        part = compute(*words, active=mine)
        part = part if isinstance(part, tuple) else (part,)
        left = left & ~mine
        if not results and not left.any():
            return part
        results = results or tuple(np.zeros(active.shape, x.dtype) for x in part)
        for whole, x in zip(results, part, strict=True):
            np.copyto(whole, x, where=mine)
        if not left.any():
            return results


def warp_barrier(statement: Statement, function: Function) -> Callable[[Strand], None]:
    """bar.warp.sync: lanes of the membermask wait for each other."""
    mask = reader(statement.operands["membermask"], "u32", function)

    def step(s: Strand) -> None:
        masks = mask(s)
        check_members(s, masks)
        together(s, statement.pc, masks)

    return whole_or_split(statement, step)


def registers_of_warp(statement: Statement, function: Function) -> Callable[[Strand], None]:
    """setmaxnreg: the number of registers is legal, and has no effect on values."""
    return whole_or_split(statement, lambda s: together(s, statement.pc))


STEPS = {"bar.warp.sync": warp_barrier, "setmaxnreg": registers_of_warp}


def whole_or_split(statement: Statement, run: Callable[[Strand], None]) -> Callable[[Strand], None]:
    """`run` for whole strands: where the guard divides one, both parts go on by themselves."""

    def under(s: Strand, mask: Array | None) -> None:
        if mask is None:
            run(s)
            return
        s.wave.split(s, mask, statement.pc, statement.pc + 1)
        raise Parked

    return guarded(statement, under)
