"""Debugger: ``Player``, a launch that can be stopped before any statement, and played again from
its start.

The reference engine runs in a thread of its own, which waits while the caller looks at its state.
A launch is deterministic: to go back is to play it again to an earlier statement, from the last
snapshot before it, or from the start. Statements are counted in the order in which groups of
threads come to them; the first has number 1.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import cast

from dtypes import Array
from emulator.errors import EmulatorError, OperandError
from emulator.machine.arguments import Placed
from emulator.machine.debugger.snapshots import Snapshot, UnknownStateError
from emulator.machine.debugger.texts import TextLaunch
from emulator.machine.launch import Launch
from emulator.machine.memory import Memory
from emulator.machine.reference import mbarriers
from emulator.machine.reference.operands import Read, guard_of
from emulator.machine.reference.thread import Run, Thread
from emulator.machine.report import KernelError, Report
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.phases import SIZE
from emulator.machine.shared.waiting import State
from emulator.machine.turns import Turn, taken
from emulator.memory.arena import AccessError
from emulator.ptx.program import Statement

#: whether to stop before a statement: the threads that go next, and their pc
Wanted = Callable[[Sequence[Thread], int], bool]

#: kinds of errors that are raised between statements: the threads stand where they are to go on
_BETWEEN = ("deadlock", "endless loop", "step limit")

#: seconds between snapshots, and how often the time of the last one; they may have so many bytes,
#: and be so many: beyond that, every second one is dropped
_PAUSE, _SHARE, _MOST_BYTES, _MOST = 0.05, 10, 1 << 28, 64


class _Left(BaseException):
    """Ends a launch that nobody will look at again."""


class Initialised:
    """The places of the mbarriers that a launch has initialised so far."""

    def __init__(self) -> None:
        #: (block of the grid, number of the word in its shared memory), in their order
        self.found: dict[tuple[int, int], None] = {}
        self._find: dict[Statement, tuple[Read | None, Read]] = {}

    def note(self, run: Run, threads: Sequence[Thread], pc: int) -> None:
        """Keeps the places of the mbarriers that a statement initialises."""
        statement = run.program.statements[pc]
        if not str(statement.instruction).startswith("mbarrier.init"):
            return
        find = self._find.get(statement)
        if find is None:
            find = self._find[statement] = (
                guard_of(statement.guard),
                mbarriers.barrier_of(statement),
            )
        holds, barrier = find
        # Who watches memory is told when the statement executes.
        told, run.touched = run.touched, {}
        for thread in threads:
            with suppress(AccessError, EmulatorError):
                if holds is None or holds(thread):
                    rank, word = divmod(barrier(thread), run.shared_bytes // SIZE)
                    self.found[thread.cluster.blocks[rank].number, word] = None
        run.touched = told


class _Play:
    """One run of the launch, in a thread of its own."""

    def __init__(
        self,
        launch: Launch | TextLaunch,
        initial: Mapping[int, Array] | None,
        stop: threading.Event,
    ) -> None:
        self.launch = launch
        #: bytes of global memory before the first statement, by address
        self.initial = initial
        self.number = 0
        self.threads: Sequence[Thread] = ()
        self.pc = -1
        self.outcome: Report | Exception | None = None
        self.mbarriers = Initialised()
        self.until = 0
        self.wanted: Wanted = _never
        self._closing = False
        #: set by whoever wants the launch to stop before the next statement
        self.stop = stop
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._worker: threading.Thread | None = None
        #: what `_place` has returned, and whose turns it took; None before
        self._placed: tuple[Placed, dict[str, Turn], Memory | None] | None = None
        #: the number of the last statement before each snapshot, and the mbarriers until there
        self._snapshots: list[tuple[int, Snapshot, list[tuple[int, int]]]] = []
        self._earliest, self._pause = 0.0, _PAUSE
        self._run_of_grid: Run | None = None

    @property
    def ended(self) -> bool:
        return self.outcome is not None

    # --- the caller's side ---

    def play(self, until: int, wanted: Wanted) -> None:
        """Goes on until before statement `until`, or a later one that is wanted, or the end."""
        if self.ended:
            return
        self.until, self.wanted = until, wanted
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, daemon=True, name="debugged launch")
            self._worker.start()
        else:
            self._go.release()
        try:
            self._stopped.acquire()
        except KeyboardInterrupt:
            self.stop.set()
            self._stopped.acquire()
        finally:
            # What waits must not keep alive whoever waited for it.
            self.wanted = _never

    def close(self) -> None:
        if self._worker is not None and not self.ended:
            self._closing = True
            self._go.release()
            self._worker.join()
            self._stopped.acquire()

    def starts(self, number: int) -> list[int]:
        """The places before a statement where the launch can go on from."""
        if isinstance(self.outcome, Report):
            return [0]
        return [0, *(held for held, _, _ in self._snapshots if held < number)]

    def go_back(self, start: int) -> None:
        """Puts back the snapshot behind a statement; `play` goes on from there."""
        self.close()
        at = bisect_left(self._snapshots, start, key=lambda held: held[0])
        self.number, snapshot, found = self._snapshots[at]
        snapshot.restore()
        self.mbarriers.found = dict.fromkeys(found)
        self.outcome, self._closing, self._worker = None, False, None

    # --- the launch's side ---

    def _work(self) -> None:
        try:
            self.outcome = self._run()
        except _Left:
            self.outcome = OperandError("the debugger was closed")
        except Exception as error:
            self.outcome = error
            if getattr(error, "kind", "") not in _BETWEEN:
                self._settle()
        finally:
            self._stopped.release()

    def _run(self) -> Report:
        if self._placed is None:
            self._placed = self._place()
        placed, turns, memory = self._placed
        launch = self.launch
        try:
            # After `go_back` the grid is under way already.
            counters = launch._run_grids("reference", self._run_of_grid)
        except Failure as failure:
            raise KernelError(failure.kind, failure.reason) from None
        with taken(turns):
            report = launch._finish(placed, counters)
            if memory is not None and launch.memory is not None:
                memory.take_back(launch.memory)
        return report

    def _place(self) -> tuple[Placed, dict[str, Turn], Memory | None]:
        launch = self.launch
        launch.observe = self._observe
        # What launches share is theirs while they copy it in and out, and not while one is looked
        # at: a launch that is stopped would keep others waiting.
        memory, turns = launch.memory, launch._turns()
        with taken(turns):
            if memory is not None:
                launch.memory = memory.apart()
            placed = launch._place(apart=True)
        if self.initial is None:
            self.initial = {made.address: made.held.copy() for made in launch.arena}
        for made in launch.arena:
            made.held[:] = self.initial[made.address]
        return placed, turns, memory

    def _between(self, run: Run) -> None:
        """Takes a snapshot now and then; of the first grid, not of those that it launches."""
        now = perf_counter()
        if now < self._earliest or (self._snapshots and self._snapshots[-1][0] >= self.number):
            return
        try:
            if sum(made.size for made in run.arena) > _MOST_BYTES // 4:
                raise UnknownStateError("so much memory is not copied")
            snapshot = Snapshot([run, self.launch])
        except UnknownStateError:
            self._earliest = float("inf")
            return
        held = self._snapshots
        held.append((self.number, snapshot, list(self.mbarriers.found)))
        if len(held) > _MOST or sum(each.bytes for _, each, _ in held) > _MOST_BYTES:
            del held[::2]
            self._pause *= 2
        done = perf_counter()
        self._earliest = done + max(self._pause, _SHARE * (done - now))

    def _observe(self, threads: Sequence[Thread], pc: int) -> None:
        self.number += 1
        self.threads, self.pc = threads, pc
        run = threads[0].run
        if run.between is None and self.launch.goes_on and run.launch is self.launch:
            self._run_of_grid, run.between = run, partial(self._between, run)
            self._earliest = perf_counter() + self._pause
        if "mbarrier" in run.program.statements[pc].effects:
            self.mbarriers.note(run, threads, pc)
        interrupted = self.stop.is_set()
        if self.number < self.until and not interrupted:
            return
        if self.number == self.until or interrupted or self.wanted(threads, pc):
            self._settle()
            self._stopped.release()
            self._go.acquire()
            if self._closing:
                raise _Left

    def _settle(self) -> None:
        """Puts the pc of the threads that go next where `_advance` will put it."""
        for thread in self.threads:
            if thread.state is State.READY:
                thread.pc = self.pc


def _never(threads: Sequence[Thread], pc: int) -> bool:
    return False


class Player:
    """A launch, stopped before a statement, or at its end."""

    def __init__(self, prepare: Callable[[], Launch | TextLaunch]) -> None:
        self._prepare = prepare
        self._stop = threading.Event()
        self._play = _Play(prepare(), None, self._stop)

    @property
    def number(self) -> int:
        """The statement that comes next: 1 is the first; 0 before the launch has started."""
        return self._play.number

    @property
    def threads(self) -> Sequence[Thread]:
        """The threads that execute the next statement; those of the last one at the end."""
        return self._play.threads

    @property
    def pc(self) -> int:
        return self._play.pc

    @property
    def launch(self) -> Launch | TextLaunch:
        """The launch, or the one that a thread of it has asked for, whose turn it is."""
        play = self._play
        return cast("Launch", play.threads[0].run.launch) if play.threads else play.launch

    @property
    def started(self) -> bool:
        return self._play.number > 0 or self._play.ended

    @property
    def outcome(self) -> Report | Exception | None:
        """The report of a launch that has ended, or its error; None while it is under way."""
        return self._play.outcome

    @property
    def interrupted(self) -> bool:
        return self._stop.is_set()

    @property
    def mbarriers(self) -> Sequence[tuple[int, int]]:
        """(block, number of the word in its shared memory) of each mbarrier."""
        return tuple(self._play.mbarriers.found)

    def forward(self, wanted: Wanted) -> None:
        """Goes on to the next statement that is wanted, or to the end."""
        self._play.play(0, wanted)

    def go_to(self, number: int) -> None:
        """Goes to before a statement by its number, backward or forward."""
        if number < self.number or (number == self.number and self._play.ended):
            self._go_back(self._play.starts(number)[-1])
        if number > self.number:
            self._play.play(number, _never)

    def starts(self) -> list[int]:
        """Numbers of the statements behind which `again` may start; 0 is the first of them."""
        return self._play.starts(self.number)

    def again(self, look: Callable[[Sequence[Thread], int], None], start: int = 0) -> None:
        """Plays the launch from behind statement `start` of `starts` to this one, and shows each
        to `look`."""
        here, ended = self.number, self._play.ended

        def seen(threads: Sequence[Thread], pc: int) -> bool:
            look(threads, pc)
            return self.number == here and not ended

        self._go_back(start)
        self._play.play(0, seen)

    def _go_back(self, start: int) -> None:
        if start:
            self._play.go_back(start)
            return
        initial = self._play.initial
        self._play.close()
        self._play = _Play(self._prepare(), initial, self._stop)

    def interrupt(self) -> None:
        """Stops a launch that another thread lets go on, before the next statement."""
        self._stop.set()

    def resume(self) -> None:
        """Forgets an interruption that the launch has stopped for."""
        self._stop.clear()

    def close(self) -> None:
        self._play.close()
