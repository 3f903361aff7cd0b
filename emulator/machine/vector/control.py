"""Vector engine: statements that say where a strand goes on, branches, calls, returns, ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dtypes import Array
from emulator.machine.shared.calls import callee_at, check_depth
from emulator.machine.shared.failure import Failure
from emulator.machine.system.externals import EXTERNALS
from emulator.machine.system.host import Host
from emulator.machine.vector.issuer import Issuer
from emulator.machine.vector.operands import active, first_position, reader, selected
from emulator.machine.vector.strand import Frame, Strand
from emulator.memory.arena import AccessError
from emulator.ptx.program import Call, Function, Program, Register, Statement, Targets

End = Callable[[Strand], int | None]


def fall_through(pc: int) -> End:
    """A block that ends because a branch leads behind it."""
    return lambda s: pc


def branch(statement: Statement, function: Function, program: Program) -> End:
    (target,), following = statement.targets, statement.pc + 1
    if statement.guard is None:
        return lambda s: target
    find = active(statement.guard)

    def end(s: Strand) -> int | None:
        mask = find(s)
        if mask is None or mask is False:
            return target if mask is None else following
        assert not isinstance(mask, bool)
        if target == following:
            return target
        s.wave.split(s, mask, target, following)
        return None

    return end


def indexed_branch(statement: Statement, function: Function, program: Program) -> End:
    """brx.idx: a lane goes to the target that its index picks."""
    index = reader(statement.operands["index"], "u32", function)
    targets = statement.operands["targets"]
    assert isinstance(targets, Targets)
    find, following = active(statement.guard), statement.pc + 1

    def end(s: Strand) -> int | None:
        mask = find(s)
        if mask is False:
            return following
        assert not isinstance(mask, bool)
        words = index(s)
        chosen = selected(words, mask)
        if (wrong := chosen >= len(targets.pcs)).any():
            reason = f"the index {chosen[wrong][0]} is past the {len(targets.pcs)} targets"
            raise Failure("target", reason, first_position(wrong, mask))
        pcs = np.asarray([*targets.pcs, following], np.int64)[np.minimum(words, len(targets.pcs))]
        if mask is not None:
            pcs = np.where(mask, pcs, following)
        if len(pcs) == 1 or (pcs == pcs[0]).all():
            return int(pcs[0])
        for pc in np.unique(pcs).tolist():
            s.wave.ready.append(s.part(pcs == pc, pc))
        return None

    return end


def leave(statement: Statement, function: Function, program: Program) -> End:
    """ret: back to the caller; a kernel's thread ends."""
    if function.is_kernel:
        return end_threads(statement, function, program)
    return _under_guard(statement, lambda s: _return(s, program))


def _return(s: Strand, program: Program) -> int:
    frame = s.frames[-1]
    call = program.statements[frame.return_pc - 1].call
    assert call is not None
    results = [frame.read(i) for i in frame.function.result_registers]
    if not s.wave.pending.at_once:
        s.wave.products.forget(s.wave.warpgroups_in_grid(s.lanes), len(s.frames))
    s.leave()
    for index, words in zip(call.results, results, strict=True):
        s.write(index, words)
    if s.wave.watch is not None:
        s.wave.watch.returned(s, frame, call.results)
    return frame.return_pc


def end_threads(statement: Statement, function: Function, program: Program) -> End:
    """exit, and ret of a kernel."""
    find, following = active(statement.guard), statement.pc + 1

    def end(s: Strand) -> int | None:
        mask = find(s)
        if mask is False:
            return following
        assert not isinstance(mask, bool)
        s.wave.end(s, mask, following)
        return None

    return end


def call(statement: Statement, function: Function, program: Program) -> End:
    """A call of a function of the module, of one that the system has, or through a pointer."""
    passed = statement.call
    assert passed is not None
    if passed.function in EXTERNALS:
        return _external(statement, passed, function)
    if passed.function is not None:
        callee = program.functions[passed.function]
        return _under_guard(statement, lambda s: _enter(s, callee, statement))
    assert passed.register is not None
    pointer = reader(Register(passed.register), "u64", function)

    def choose(s: Strand) -> int | None:
        words = pointer(s)
        if len(words) > 1 and (words != words[0]).any():
            firsts = sorted(np.unique(words, return_index=True)[1].tolist())
            callees = {
                int(words[i]): callee_at(program, int(words[i]), passed, function, i)
                for i in firsts
            }
            for word, callee in sorted(callees.items()):
                part = s.part(words == word, statement.pc)
                part.pc = _enter(part, callee, statement)
                s.wave.ready.append(part)
            return None
        return _enter(s, callee_at(program, int(words[0]), passed, function), statement)

    return _under_guard(statement, choose)


def _under_guard(statement: Statement, run: End) -> End:
    """`run` for the lanes of the guard; the others go on at the next statement."""
    find = active(statement.guard)

    def end(s: Strand) -> int | None:
        mask = find(s)
        if mask is False:
            return statement.pc + 1
        if mask is not None:
            assert not isinstance(mask, bool)
            s.wave.split(s, mask, statement.pc, statement.pc + 1)
            return None
        return run(s)

    return end


def _enter(s: Strand, callee: Function, statement: Statement) -> int:
    passed = statement.call
    assert passed is not None
    check_depth(len(s.frames), 0)
    arguments = [s.read(bound.index) for bound in passed.arguments if isinstance(bound, Register)]
    # Frames of all lanes start at one place.
    local = -(-int(np.max(s.wave.stack_top(s))) // 16) * 16
    frame = Frame(callee, s.lanes, local=local)
    frame.return_pc = statement.pc + 1
    s.wave.grid.need_local(s.wave, local + callee.local_bytes)
    for index, words in zip(callee.parameter_registers, arguments, strict=True):
        frame.registers[index] = words
    if s.wave.watch is not None:
        s.wave.watch.entered(s, frame, passed.arguments)
    s.enter(frame)
    return callee.first


def _external(statement: Statement, passed: Call, function: Function) -> End:
    run, following = EXTERNALS[passed.function or ""], statement.pc + 1

    def end(s: Strand) -> int | None:
        given = [
            _integers(s.spread(s.read(bound.index)))
            for bound in passed.arguments
            if isinstance(bound, Register)
        ]
        values = [_called(run, s, i, [words[i] for words in given]) for i in range(len(s))]
        for index in passed.results:
            s.write(index, _words_like(s.read(index), values))
        if s.wave.watch is not None:
            s.wave.watch.written(s, passed.results)
        return following

    return _under_guard(statement, end)


def _called(run: Callable[..., int], s: Strand, index: int, arguments: list[int]) -> int:
    try:
        return run(Host(Issuer(s, index, ())), arguments)
    except Failure as failure:
        failure.index = index
        raise
    except AccessError as error:
        raise AccessError(replace(error.fault, index=index)) from None


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


def trap(statement: Statement, function: Function, program: Program) -> End:
    """trap: the grid ends with an error; brkpt, which a debugger would catch, too."""

    def end(s: Strand) -> int | None:
        raise Failure("trap", f"{statement.name} was executed", 0)

    return _under_guard(statement, end)


#: first word of an opcode -> what ends a block
ENDS: dict[str, Callable[[Statement, Function, Program], End]] = {
    "bra": branch,
    "brx": indexed_branch,
    "ret": leave,
    "exit": end_threads,
    "call": call,
    "trap": trap,
    "brkpt": trap,
}
