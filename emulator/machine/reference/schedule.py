"""Reference engine: the schedule, which says what threads go next and where they meet.

Of the threads of a warp those go first that are innermost in calls and lowest in the program, all
that are at one place together, statement by statement, each by itself: compilers lay code out so
that the lanes of a warp meet again that way. Threads that go round and round in vain give way to
others (an *epoch* later), so that a lane which waits for another lane of its own warp gets it.

Lanes that come to one place in the same calls meet there. PTX promises nobody that they do, nor
that they do not (PTX ISA 9.7.13, activemask), and code that ptxas made meets so too, but for
functions that call themselves: where activemask shows it, `Convergence` says who goes next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emulator.layout.lanemap import WARP
from emulator.machine.reference.thread import Cluster, Each, Flow, Position, Thread, Together, Warp
from emulator.machine.report import failure_of
from emulator.machine.shared.failure import (
    VAIN_POLLS,
    VAIN_STATEMENTS,
    Failure,
    in_vain,
    over_limit,
    polls_in_vain,
)
from emulator.machine.shared.waiting import FOR_OTHERS, TURNS, State
from emulator.ptx.program import Statement

# --- turns ----------------------------------------------------------------------------------------


def run_cluster(cluster: Cluster) -> None:
    """Gives every warp its turn. Behind a barrier they go on from the first one, not from that
    which came last, so that an error names the first warp as in the other engines."""
    warps = [warp for block in cluster.blocks for warp in block.warps]
    position = cluster.run.position
    while position.warp < len(warps):
        position.warp = 0 if run_warp(warps[position.warp]) else position.warp + 1
    position.warp = 0


def run_warp(warp: Warp) -> bool:
    """Runs until no thread is ready, or those that are give way to other warps; whether it has let
    threads go on that waited."""
    position = warp.block.run.position
    resumed = _take_turn(warp, position)
    position.began = None
    return resumed


def _take_turn(warp: Warp, position: Position) -> bool:
    run = warp.block.run
    if position.began is None:
        position.began = run.progress, run.statements, run.resumed
    seen, start, resumed = position.began
    while ready := [thread for thread in warp.threads if thread.state is State.READY]:
        together = _group(warp, ready)
        epoch = max(thread.epoch for thread in together)
        for thread in together:
            thread.epoch = epoch
        alone = len(together) == len(ready) and warp.convergence is None
        pc = _advance(together, alone)
        _check_steps(together)
        if run.progress != seen:
            seen, start, warp.vain = run.progress, run.statements, 0
            position.began = seen, start, resumed
        if pc is not None:
            warp.vain += run.statements - start
            _check_vain(together, pc)
            return False
        if run.resumed != resumed:
            return True
        if run.between is not None:
            run.between()
    return False


def _group(warp: Warp, ready: list[Thread]) -> list[Thread]:
    """The threads that go next."""
    if warp.convergence is None:
        first = min(ready, key=_order)
        return [t for t in ready if t.pc == first.pc and t.calls == first.calls]
    epoch = min(thread.epoch for thread in ready)
    later = sum(1 << thread.lane for thread in ready if thread.epoch > epoch)
    pcs = {thread.lane: thread.pc for thread in ready}
    calls = {thread.lane: len(thread.calls) for thread in ready}
    living = sum(1 << t.lane for t in warp.threads if t.state is not State.ENDED)
    chosen = warp.convergence.choose(pcs, calls, later, living)
    return [thread for thread in ready if chosen >> thread.lane & 1]


def _order(thread: Thread) -> tuple[int, int, int]:
    return thread.epoch, -len(thread.calls), thread.pc


def _check_steps(threads: list[Thread]) -> None:
    """Raises KernelError where the launch has executed more statements than it may."""
    run = threads[0].run
    launch, executed = run.launch, run.launch.earlier + run.statements
    if launch.step_limit is not None and executed > launch.step_limit:
        failure = over_limit(executed, launch.step_limit)
        raise placed(failure, threads, run.program.statements[threads[0].pc])


def _check_vain(threads: list[Thread], pc: int) -> None:
    """Raises KernelError where a warp goes round without end and without effect."""
    run, vain = threads[0].run, threads[0].warp.vain
    if run.launch.step_limit is not None:
        return
    step = run.code[pc]
    if isinstance(step, Flow) and step.patience < TURNS and vain > VAIN_POLLS:
        raise placed(polls_in_vain(), threads, run.program.statements[pc])
    if vain > VAIN_STATEMENTS:
        raise placed(in_vain(vain), threads, run.program.statements[pc])


def _advance(threads: list[Thread], alone: bool) -> int | None:
    """Executes statements of threads at one place, until they part, wait, let threads go on that
    waited, or others go first.

    Where they have gone round so often that it is time to look at others: the branch of the loop.
    """
    run, pc = threads[0].run, threads[0].pc
    resumed = run.resumed
    code, leaders, observe = run.code, run.program.leaders, run.observe
    thread = threads[0]
    try:
        while True:
            if observe is not None:
                observe(threads, pc)
            step = code[pc]
            run.executed += len(threads)
            run.statements += 1
            if isinstance(step, Each):
                execute = step.run
                for thread in threads:
                    execute(thread)
                if step.order and len(threads) > 1:
                    # Again, now that no lane fails: the last one at a place wins.
                    for thread in sorted(threads, key=step.order):
                        execute(thread)
                pc += 1
                if alone or pc not in leaders:
                    continue
                _go(threads, pc)
                return None
            if isinstance(step, Together):
                _gather(pc, step, threads)
                return None
            for thread in threads:
                following = step.run(thread)
                if following is not None:
                    thread.pc = following
            first = threads[0].pc
            parted = any(t.state is not State.READY or t.pc != first for t in threads)
            if parted or first <= pc or not alone or run.resumed != resumed:
                return pc if _give_way(step, threads, pc) else None
            pc = first
    except Exception as error:
        raise placed(error, [thread], run.program.statements[pc]) from error


def _go(threads: Sequence[Thread], pc: int) -> None:
    for thread in threads:
        thread.pc, thread.state = pc, State.READY


def _give_way(step: Flow, threads: list[Thread], pc: int) -> bool:
    """True if it is time to let others run, for threads that have executed a branch.

    Who comes back with the same in all registers looks at memory in vain and lets the other threads
    of the warp go first; the others do only after very many turns, for they would meet again behind
    the loop.
    """
    back = [t for t in threads if t.state is State.READY and t.pc <= pc]
    for thread in back:
        thread.loops += 1
    tired = [thread for thread in back if thread.loops % step.patience == 0]
    if not tired:
        return False
    warp, run = threads[0].warp, threads[0].run
    later = max(t.epoch for t in warp.threads if t.state is State.READY) + 1
    for thread in tired:
        held = (thread.pc, thread.calls, [list(frame.registers) for frame in thread.frames])
        vain, thread.polled = held == thread.polled, held
        run.turns += not vain
        if vain or (thread.loops >= TURNS and warp.convergence is None):
            thread.epoch, thread.loops = later, 0
    return True


# --- what threads execute together ----------------------------------------------------------------


def _gather(pc: int, step: Together, threads: list[Thread]) -> None:
    """Threads come to a statement that they execute together."""
    here = threads
    if step.guard is not None:
        here = [thread for thread in threads if step.guard(thread)]
        _go([thread for thread in threads if not step.guard(thread)], pc + 1)
    if not here:
        return
    if not step.lanes:
        _execute_together(pc, step, here)
        return
    for thread in here:
        if step.mask is not None and not (mask := step.mask(thread)) >> thread.lane & 1:
            failure = Failure("membermask", f"the lane is not in its own membermask {mask:#010x}")
            raise placed(failure, [thread], thread.run.program.statements[pc])
        thread.stops(State.WARP if step.lanes <= WARP else State.WARPGROUP, pc)
    _meet(here[0].warp, pc, step)


def _meet(warp: Warp, pc: int, step: Together) -> None:
    """Executes a statement if all are there that its threads wait for."""
    peers = warp.threads if step.lanes <= WARP else warp.block.warpgroup(warp.number)
    here = [t for t in peers if t.state in FOR_OTHERS and t.pc == pc]
    alive = [t for t in peers if t.state is not State.ENDED]
    if step.mask is None:
        if here and len(here) == len(alive):
            _execute_together(pc, step, here)
        return
    masks = {thread: step.mask(thread) for thread in here}
    for mask in dict.fromkeys(masks.values()):
        # Lanes with different membermasks do not meet, but each must be there for the other.
        if all(thread in masks for thread in alive if mask >> thread.lane & 1):
            _execute_together(pc, step, [t for t in here if masks[t] == mask])


def _execute_together(pc: int, step: Together, threads: Sequence[Thread]) -> None:
    """Executes a statement whose threads are all there."""
    run = threads[0].run
    try:
        if step.whole and len(threads) < step.lanes:
            reason = f"{step.whole} needs all {step.lanes} lanes; some have ended"
            raise Failure("lanes missing", reason)
        step.run(threads)
    except Exception as error:
        raise placed(error, threads, run.program.statements[pc]) from error
    _go([t for t in threads if t.state is State.READY or t.state in FOR_OTHERS], pc + 1)
    run.progress += 1


def end(thread: Thread) -> None:
    """A thread ends: what waited for it may be complete without it."""
    cluster, lanes = thread.cluster, np.array([thread.number])
    thread.state = State.ENDED
    cluster.alive[lanes] = False
    thread.run.progress += 1
    thread.run.changes += 1
    for peer in thread.block.warpgroup(thread.warp.number):
        if peer.state in FOR_OTHERS:
            step = thread.run.code[peer.pc]
            assert isinstance(step, Together)
            _meet(peer.warp, peer.pc, step)
    cluster.barriers.lanes_ended(lanes)
    cluster.clusters.lanes_ended(lanes)


# --- errors ---------------------------------------------------------------------------------------


def placed(error: Exception, threads: Sequence[Thread], statement: Statement) -> Exception:
    """The error with the place where it happened; what is no failure of a kernel stays."""
    failure = failure_of(error)
    if failure is None:
        return error
    chosen = threads if failure.index is None else threads[failure.index : failure.index + 1]
    launch = threads[0].run.launch
    return launch.failed(failure, statement, ((x.block.index, x.coordinates) for x in chosen))
