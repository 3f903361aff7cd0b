"""Vector engine: statements that say where a strand goes on, branches, calls, returns, ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from dtypes import Array
from emulator.machine.shared import control
from emulator.machine.shared.control import FlowContext
from emulator.machine.system.externals import EXTERNALS
from emulator.machine.system.host import Host
from emulator.machine.vector.issuer import Issuer, of_lane
from emulator.machine.vector.operands import active, reader
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Call, Register

End = Callable[[Strand], int | None]


def fall_through(pc: int) -> End:
    """A block that ends because a branch leads behind it."""
    return lambda s: pc


def branch(place: FlowContext) -> End:
    (target,), following = place.statement.targets, place.following
    if place.statement.guard is None:
        return lambda s: target
    find = active(place.statement.guard)

    def end(s: Strand) -> int | None:
        mask = find(s)
        if mask is None or mask is False:
            return target if mask is None else following
        if target == following:
            return target
        went: int | None = s.wave.split(s, mask, target, following)
        return went

    return end


def _under_guard(make: Callable[[FlowContext], End], place: FlowContext) -> End:
    """What `make` gives, for the lanes of the guard; the others go on at the next statement."""
    run, find, pc = make(place), active(place.statement.guard), place.statement.pc

    def end(s: Strand) -> int | None:
        mask = find(s)
        if mask is False:
            return pc + 1
        if mask is not None:
            s.wave.split(s, mask, pc, pc + 1)
            return None
        return run(s)

    return end


def _parts(s: Strand, words: Array) -> list[tuple[int, Strand]]:
    """Each word, ascending, with the lanes that hold it."""
    found = np.unique(words).tolist()
    return [(word, s.part(words == word, s.pc) if len(found) > 1 else s) for word in found]


def indexed_branch(place: FlowContext) -> End:
    choose = control.indexed_branch(place, partial(reader, function=place.function))

    def end(s: Strand) -> int | None:
        parts = _parts(s, np.asarray(choose(s)))
        if len(parts) == 1:
            return parts[0][0]
        for pc, part in parts:
            part.pc = pc
            s.wave.ready.append(part)
        return None

    return end


def end_threads(place: FlowContext) -> End:
    """exit, and ret of a kernel."""
    find, following = active(place.statement.guard), place.following

    def end(s: Strand) -> int | None:
        mask = find(s)
        if mask is False:
            return following
        s.wave.end(s, mask, following)
        return None

    return end


def leave(place: FlowContext) -> End:
    """ret: back to the caller; a kernel's thread ends."""
    if place.function.is_kernel:
        return end_threads(place)
    return _under_guard(lambda place: lambda s: control.leave(s, place.program), place)


def call(place: FlowContext) -> End:
    """A call of a function of the module, of one that the system has, or through a pointer."""
    passed, following = place.statement.call, place.following
    assert passed is not None
    if passed.function in EXTERNALS:
        return _external(place, passed)
    if passed.function is not None:
        callee = place.program.functions[passed.function]
        return lambda s: control.enter(s, callee, passed, following)
    assert passed.register is not None
    pointer = reader(Register(passed.register), "u64", place.function)

    def choose(s: Strand) -> int | None:
        words = pointer(s)
        firsts = sorted(np.unique(words, return_index=True)[1].tolist())
        callees = {
            int(words[i]): control.callee_at(int(words[i]), passed, place, i) for i in firsts
        }
        parts = _parts(s, words)
        for word, part in parts:
            pc = control.enter(part, callees[word], passed, following)
            if part is s:
                return pc
            part.pc = pc
            s.wave.ready.append(part)
        return None

    return choose


def _external(place: FlowContext, passed: Call) -> End:
    run, following = EXTERNALS[passed.function or ""], place.following
    arguments = [bound.index for bound in passed.arguments if isinstance(bound, Register)]

    def end(s: Strand) -> int | None:
        given, values = [_integers(s.spread(s.read(index))) for index in arguments], []
        for i in range(len(s)):
            with of_lane(i):
                values.append(run(Host(Issuer(s, i, ())), [words[i] for words in given]))
        for index in passed.results:
            s.write(index, _words_like(s.read(index), values))
        if s.wave.watch is not None:
            s.wave.watch.written(s, passed.results)
        return following

    return end


def _integers(words: Array) -> list[int]:
    """Words of lanes, or the bytes of parameters ``(lanes, n)``, as integers."""
    if words.ndim == 1:
        return words.tolist()
    return [int.from_bytes(row.tobytes(), "little") for row in words]


def _words_like(held: Array, values: list[int]) -> Array:
    """Integers as words of a register's type, or as bytes of a parameter."""
    if held.ndim == 1:
        return np.array(values, np.uint64).astype(held.dtype)
    raw = np.array(values, np.uint64)[:, None].view(np.uint8)
    return np.ascontiguousarray(raw[:, : held.shape[1]])


#: first word of an opcode -> what ends a block
ENDS: dict[str, Callable[[FlowContext], End]] = {
    "bra": branch,
    "brx": partial(_under_guard, indexed_branch),
    "ret": leave,
    "exit": end_threads,
    "call": partial(_under_guard, call),
    "trap": partial(_under_guard, control.trap),
    "brkpt": partial(_under_guard, control.trap),
}
