"""A loop, or a whole kernel, as it runs: one native function for all warps of a strand, until they
leave it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import reduce
from math import inf
from operator import or_
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.engines import Engine, by_kernels, may_use_kernels
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.scratch import LINE, Scratch, at_line
from emulator.arith.fast.threads import clear_bytes, cuts_of, in_native_parts, processors
from emulator.arrays import address_of
from emulator.machine.compiled import mbarriers, near, products, warpgroups
from emulator.machine.compiled.atomics import order_matters
from emulator.machine.compiled.blocks import always_live
from emulator.machine.compiled.budget import Budget
from emulator.machine.compiled.calls import Layout, Registers, by_warp, layout_of, refreshed, spread
from emulator.machine.compiled.claims import OWNER_BITS, bytes_of, claims_of
from emulator.machine.compiled.function import NAME, Input
from emulator.machine.compiled.loop_function import (
    APART,
    CALL,
    COPIED,
    CROSSED,
    EVERY,
    MET,
    NOWHERE,
    OVER,
    RECORD,
    REFUSED,
    SERIAL,
    SPLIT,
    STORED,
    TOTALS,
    LoopFunction,
    bytes_of_number,
)
from emulator.machine.compiled.loops import Part, loops_of, stands_alone, threads_of_barrier
from emulator.machine.compiled.segment import SIGNATURE, WORTH_A_THREAD, seconds_to_compile, work_of
from emulator.machine.compiled.traces import merged, one_of_each
from emulator.machine.compiled.translation import need_all_lanes, need_no_delay, stay_apart
from emulator.machine.compiled.trials import Trials, bases_of, may_store_to_shared
from emulator.machine.shared.products import is_wgmma
from emulator.machine.turns import alone
from emulator.machine.vector.fragments import is_whole
from emulator.machine.vector.mbarriers import wake
from emulator.machine.vector.strand import WARP, WARPGROUP, Strand
from emulator.memory.arena import Arena
from emulator.ptx.program import Function, Liveness, Program
from emulator.targets import Target

#: statements that warps may execute in one call: those who interrupt a launch wait for them
_MOST_STATEMENTS = 1 << 27
#: parts of a loop that a warp executes in one call at most, and branches backward where it looks at
#: memory that others may change; fewer where others are ready
_MOST_PARTS, _POLLS, _POLLS_BESIDE = 4096, 2048, 16
#: parts in the traces of all groups, roughly; of a group that is not known yet
_TRACES, _LONG = 1 << 24, 512
_TURNS = 1 << 30
#: calls that lead nowhere before a loop is left to steps
_MOST_VAIN = 8
#: pairs of phases of a call, before the rest is one
_MOST_PHASES = 32
#: phases of blocks that could not store at the same time before it is tried no more
_MOST_REFUSED = 8
#: where words of a call stand, and `TOTALS`; what those start with
_PLACES, _NUMBERS = ({name: i for i, name in enumerate(names)} for names in (CALL, TOTALS))
_TOTALS = [word for _, word in TOTALS.values()]
#: bits of the number of entries of the smallest table of claims
_FEWEST_CLAIMS = 10


class Ended(NamedTuple):
    """Places of the warps of a strand that have left a loop, and what they executed."""

    #: for each lane; one where all are at one place
    pcs: NDArray[np.uint32]
    #: whether any part was executed
    went: bool
    #: statements of the strand, and of its threads
    statements: int
    thread_statements: int
    #: where warps go on that branched backward too often -> the pc of the part that did
    tired: dict[int, int]
    #: the statements that the loop was left for, because steps know how to wait at them
    for_steps: frozenset[int]
    #: lanes that must not execute a statement, the part it is of, and its number there
    failed: tuple[NDArray[np.bool_], Part, int] | None


class Loop:
    """Parts of a function that lead to each other."""

    def __init__(
        self,
        parts: Sequence[Part],
        function: Function,
        liveness: Liveness,
        always_live: int,
        target: Target,
        at_once: bool,
    ) -> None:
        self.parts, self._function, self._target = tuple(parts), function, target
        self._liveness, self._always = liveness, always_live
        self._places = {part.pc: part for part in parts}
        statements = [x for part in parts for x in part.statements]
        self._stays = [part.pc for part in parts if part.may_stay]
        self._no_delay = need_no_delay(statements)
        self._by_groups = any(map(is_wgmma, statements))
        self._multiplies = self._by_groups or any(products.fits(x, target) for x in statements)
        self._arrives = any(map(mbarriers.arrives, statements))
        self._together = need_all_lanes(statements, target)
        exits = {x for part in parts for x in (part.target, part.following)} - set(self._places)
        #: all warps take turns part by part: who leaves the loop may come back to the others
        self._in_step = any(x <= parts[-1].pc for x in exits)
        self._in_step |= order_matters(statements, of_blocks=True)
        #: the warps of a block do
        self._in_blocks = order_matters(statements)
        #: parts that blocks execute one after the other; phases are worth it where not all are
        self.serial = {x.pc: claims_of(x.statements) for x in parts if not stay_apart(x.statements)}
        #: where a whole kernel stores that may be tried, see `trials`
        self.bases: dict[object, int] | None = None
        has_phases = not self._in_step and not any(map(stands_alone, statements))
        if has_phases and parts[0].pc == function.first:
            self.bases = bases_of(statements)
        self._stores_to_shared = self.bases is not None and may_store_to_shared(statements)
        if not has_phases or (len(self.serial) == len(parts) and self.bases is None):
            self.serial = {}
        self._apart = not self._in_step and (bool(self.serial) or stay_apart(statements))
        #: it is a run of statements, which few warps call faster as a segment
        self._is_run = len(parts) == 1 and not parts[0].goes_back
        #: for how many threads its barriers are, 0: all of a block
        self._barriers = {threads_of_barrier(x.barrier) for x in parts if x.barrier is not None}
        self._polls = any(part.polls for part in parts if part.goes_back)
        #: statements of each part, and of the longest
        self._counts = np.array([part.count for part in parts], np.int64)
        self._longest = int(self._counts.max())
        #: what a warp has to do in a part, in statements; how many parts it executed lately
        self._work = 1 + work_of(statements, target) // len(parts)
        self._usual = 16
        #: parts that a group executed at most lately, twice as many where it had no more room
        self._longest_trace = _LONG
        #: calls that led nowhere, less the others; strands that it could not run
        self._vain = self._refused = 0
        self._engine: Engine = "compiled" if at_once else "auto"
        seconds = 0.0 if at_once else seconds_to_compile(statements, target, len(parts))
        self._budget = Budget(seconds)
        self._native: _Native | None = None

    def took(self, seconds: float) -> bool:
        """Parts ran as steps for so long; False: a segment is to run them from now on."""
        self._budget.charge(seconds)
        return not self._is_run or self._budget.left > 0

    @property
    def gives_up(self) -> bool:
        """True if segments are to do what the loop mostly does not."""
        return self._budget.left == inf or self._refused > _MOST_VAIN

    @property
    def is_native(self) -> bool:
        """Whether it has been compiled, and runs."""
        return self._native is not None and not self.gives_up

    @property
    def bytes_of_lane(self) -> int:
        """Bytes of the registers of a lane that lie in memory between parts."""
        return 1 if self._native is None else self._native.bytes_of_lane

    def most_blocks(self, warps: int) -> int:
        """Thread blocks of so many warps whose traces have room."""
        groups = 1 if self._barriers or self._in_blocks else warps
        return max(1, _TRACES // groups // (6 * len(self.parts) + self._longest_trace))

    def can_run(self, s: Strand) -> bool:
        if self._budget.left > 0:
            return False
        grid = s.wave.grid
        if self._is_run and grid.total * grid.threads * self._work < WARP * WORTH_A_THREAD:
            return False
        if not self._fits(s):
            self._refused += 1
            return False
        if self._native is None:
            self._native = by_kernels(self._engine, self._make)
            if self._native is None:
                self._budget.never()
        return self._native is not None

    def _fits(self, s: Strand) -> bool:
        """True if a strand has the lanes that statements need, and copies are done at once."""
        if self._no_delay and not s.wave.pending.at_once:
            return False
        if self._multiplies and not may_use_kernels(s.wave.grid.arithmetic):
            return False
        if self._together and layout_of(s).slots is not None:
            return False
        if self._by_groups and not is_whole(s, WARPGROUP):
            return False
        return not self._barriers or self._has_whole_blocks(s)

    def _has_whole_blocks(self, s: Strand) -> bool:
        """True if all threads of blocks are in a strand, and none has arrived at a barrier."""
        wave = s.wave
        if not self._barriers <= {0, wave.lanes_per_cta}:
            return False
        if not wave.barriers.is_idle:
            return False
        layout = layout_of(s)
        if np.any(np.diff(layout.starts) != wave.warps_per_cta):
            return False
        return wave.is_whole(s)

    def live_at(self, pc: int) -> int:
        return self._liveness.at(pc) | self._always

    def _make(self) -> _Native:
        return _Native(self.parts, self._function, self._target, self)

    def __call__(self, s: Strand, limit: int, left: int, beside: bool) -> Ended:
        """Runs a strand that is at one of the parts until its lanes are elsewhere, or at `limit` or
        behind it, or have gone round often. `left`: statements that may still be executed, but for
        one turn of each warp. `beside`: others are ready."""
        assert self._native is not None
        layout = layout_of(s)
        together = warpgroups.WARPS if self._by_groups else 1
        if self._barriers:
            together = s.wave.warps_per_cta
        if self._in_blocks:
            together = s.wave.warps_per_cta
            if np.any(np.diff(layout.starts) != together):
                together = layout.warps
        if self._in_step:
            together = layout.warps
        room = _MOST_STATEMENTS // (self._work * layout.warps)
        groups = -(-layout.warps // together)
        room = min(room, _MOST_PARTS, _TRACES // groups)
        room = 4 * len(self.parts) + max(16, room)
        room = min(room, 2 * len(self.parts) + 1 + left // (groups * self._longest))
        turns = _TURNS
        if self._polls:
            turns = _POLLS_BESIDE if beside else _POLLS
        threads = 1
        if together <= s.wave.warps_per_cta:
            threads += layout.warps * self._usual * self._work // WORTH_A_THREAD
        trial = threads > 1 and self._may_try(s, layout, together)
        threads = min(threads, processors())
        while True:
            self._native.improve()
            size = bytes_of_number(len(self.parts))
            call = _Call(s, layout, limit, turns, room, together, np.dtype(f"uint{8 * size}"))
            with alone() if trial else nullcontext(False) as trial:
                many = threads if trial or self._apart else 1
                stays = self._native.run(s, layout, call, many, trial=trial)
            longest = call.total("longest") * (2 if call.is_over else 1)
            self._longest_trace = min(_MOST_PARTS, max(self._longest_trace // 2, longest))
            if not stays:
                trial = False
                call.end()
                s.wave.begin_again()
                continue
            self._usual = -(-call.total("parts") // len(call.records))
            learned = by_kernels(self._engine, self._native.learn)
            if self._usual or not learned:
                break
        if self._barriers:
            s.wave.grid.meetings += 1
        if self._arrives:
            wake(s.wave)
        self._vain += -1 if self._usual else 1
        if self._vain > _MOST_VAIN:
            self._budget.never()
        ended = self._ended(layout, call)
        call.end()
        return ended._replace(for_steps=frozenset()) if learned else ended

    def _may_try(self, s: Strand, layout: Layout, together: int) -> bool:
        """Whether all blocks may run whole at the same time, see `trials`."""
        assert self._native is not None
        if not self._native.may_try or not s.wave.is_new(layout.warps):
            return False
        if self._stores_to_shared and together < s.wave.warps_per_cta and s.wave.has_shared:
            return False
        arena: Arena = s.wave.grid.arena
        return not arena.shares_bytes()

    def _ended(self, layout: Layout, call: _Call) -> Ended:
        (statements, ends), tired, failed = self._merged(call), {}, None
        lows: set[int] = set()
        if call.is_over or self._stays:
            lowest, backward = np.minimum.reduceat(call.low, call.starts), call.record("tired")
            lows, there = set(lowest.tolist()), backward >= 0
            pairs = zip(lowest[there].tolist(), backward[there].tolist(), strict=True)
            tired = dict(sorted(pairs))
        if call.is_over and (call.record("failed") >= 0).any():
            failed = self._first_failure(layout, call, ends)
        return Ended(
            call.pcs_of_lanes(layout),
            self._usual > 0,
            statements,
            call.total("lanes"),
            tired,
            frozenset(lows & {*self._stays}),
            failed,
        )

    def _merged(self, call: _Call) -> tuple[int, tuple[Array, Array]]:
        """Statements of all warps where those at one place execute them together, the lowest place
        first; and the hashes of records, with how many parts had been executed when each ended."""
        lengths, hashes = call.record("parts"), call.record("hash")
        if call.total("hash_least") == call.total("hash_most"):
            return int(call.record("statements")[0]), (hashes[:1], lengths[:1])
        # Groups that execute the same parts do so together: one stands for all of them.
        chosen = one_of_each(hashes)
        parts, ends = merged(call.trace, chosen, lengths[chosen], len(self.parts))
        return int(self._counts[parts].sum()), (hashes[chosen], ends)

    def _first_failure(
        self, layout: Layout, call: _Call, ends: tuple[Array, Array]
    ) -> tuple[NDArray[np.bool_], Part, int]:
        numbers = call.record("failed")
        known = dict(zip(*(x.tolist() for x in ends), strict=True))
        order = np.array([known[x] for x in call.record("hash").tolist()])
        first = order[numbers >= 0].min()
        chosen = (numbers >= 0) & (order == first)
        index = int(np.argmax(chosen))
        part = self.parts[int(call.trace[index, call.records[index, RECORD.index("parts")] - 1])]
        # Warps before the one that failed have executed the part.
        behind = np.repeat(
            np.where(chosen, call.record("warp"), 1 << 62),
            np.diff(call.starts, append=layout.warps),
        )
        warps = (np.arange(layout.warps) >= behind) & (call.low == part.pc)
        lanes = (call.mask[:, None] >> np.arange(WARP, dtype=np.uint32) & 1 != 0) & warps[:, None]
        flat = lanes.reshape(-1)
        there = flat if layout.slots is None else flat[layout.slots]
        return there, part, int(numbers[chosen].min())


class _Call:
    """The arrays of a call; see `loop_function.CALL`."""

    #: memory of copies, of traces, of records, of pcs of lanes, and of claims
    _groups: ClassVar[Scratch] = Scratch()
    _traces: ClassVar[Scratch] = Scratch()
    _records: ClassVar[Scratch] = Scratch()
    _lanes: ClassVar[Scratch] = Scratch()
    _table: ClassVar[Scratch] = Scratch()

    def __init__(
        self,
        s: Strand,
        layout: Layout,
        limit: int,
        turns: int,
        room: int,
        together: int,
        number: np.dtype[Any],
    ) -> None:
        """`number`: the type of the numbers of parts."""
        warps = layout.warps
        self.starts = np.arange(0, warps, together)
        self.low = np.full(warps, s.pc, np.uint32)
        self.alive = s.wave.alive_bits(s.wave.warps_of(s).numbers)
        if layout.slots is None:
            self.whole = np.full(warps, 0xFFFFFFFF, np.uint32)
        else:
            self.whole = np.packbits(layout.present, bitorder="little").view(np.uint32)
        self.mask = self.whole.copy()
        # Those of warps that stay together are never looked at.
        self.pcs = self._lanes.take(warps * WARP * 4).view(np.uint32).reshape(warps, WARP)
        row = len(COPIED) * self.low.itemsize * together
        self.copies = self._groups.take(len(self.starts) * (row + -row % LINE))
        held = self._traces.take(number.itemsize * len(self.starts) * room)
        self.trace = held.view(number).reshape(len(self.starts), room)
        kept = self._records.take(8 * len(self.starts) * len(RECORD))
        self.records = kept.view(np.int64).reshape(-1, len(RECORD))
        kept_totals = at_line(np.empty(8 * len(_TOTALS) + LINE, np.uint8))
        self.totals = kept_totals[: 8 * len(_TOTALS)].view(np.int64)
        words = {
            "together": together, "limit": limit, "turns": turns, "room": room, "phase": EVERY,
            "later": 0, "clear": 0, "claims": 0, "shift": 0, "arguments": 0, "row": 0, "near": 0,
            "hulls": 0,
            **{name: address_of(getattr(self, name)) for name in CALL[CALL.index("copies") :]},
        }  # fmt: skip
        self.words = np.array([words[name] for name in CALL], np.int64)
        self.together, self.room = together, room
        self._claims: Array | None = None
        #: groups that failed in a phase, their records, and where all were
        self._failures: list[tuple[Array, Array, Array]] = []
        #: the bits that the function returned in this phase; None: none has begun
        self.found: int | None = None

    def begin(self, phase: int, claims: int = 0) -> None:
        """Starts a phase; `claims`: with an empty table for so many."""
        self.claimed, address = claims > 0, 0
        later, self.found = int(self.found is not None), 0
        self.totals[:] = _TOTALS
        bits = max(_FEWEST_CLAIMS, (claims - 1).bit_length())
        if claims:
            self._claims = self._table.take(8 << bits)
            clear_bytes(self._claims)
            address = address_of(self._claims)
        self.put(phase=phase, later=later, claims=address, shift=64 - bits)
        if later:
            self.put(clear=0)

    def with_hulls(self, bases: int) -> NDArray[np.uint64]:
        """Rows for the hulls of a trial, of which those at starts of parts are written."""
        self._claims = self._table.take(len(self.starts) * bases * 16)
        self.put(hulls=address_of(self._claims))
        return self._claims.view(np.uint64).reshape(len(self.starts), bases, 2)

    def put(self, **words: int) -> None:
        """Changes words of the call."""
        for name, word in words.items():
            self.words[_PLACES[name]] = word

    def reach(self) -> tuple[int, int]:
        """The addresses that were claimed in this phase, the first and the one behind the last."""
        return self.total("least"), self.total("most") + LINE

    def total(self, name: str) -> int:
        """A word of all groups together, in this phase."""
        return int(self.totals[_NUMBERS[name]])

    def end(self) -> None:
        """Nobody looks at its arrays any more."""
        self._groups.give_back(self.copies)
        self._traces.give_back(self.trace)
        self._records.give_back(self.records)
        self._lanes.give_back(self.pcs)
        if self._claims is not None:
            self._table.give_back(self._claims)

    @property
    def is_over(self) -> bool:
        """True if some warps have to wait for others, or failed."""
        assert self.found is not None
        return bool(self.found & OVER)

    def must_end(self) -> bool:
        """Whether no other phase may follow. Groups that failed take no part in it: another may
        fail in it that comes before them, see `Loop._first_failure`."""
        if not self.is_over:
            return False
        if (self.record("tired") >= 0).any():
            return True
        failed = self.record("failed") >= 0
        self._failures.append((failed, self.records[failed], self.low.copy()))
        self.low[np.repeat(failed, np.diff(self.starts, append=len(self.low)))] = NOWHERE
        return False

    def recall_failures(self) -> None:
        """All phases are over: who failed in one of them has failed, and is where it was."""
        assert self.found is not None
        for failed, records, low in self._failures:
            self.records[failed], self.found = records, self.found | OVER
            warps = np.repeat(failed, np.diff(self.starts, append=len(self.low)))
            self.low[warps] = low[warps]
        if self._failures:
            first, last = int(self.low.min()), int(self.low.max())
            self.totals[[_NUMBERS["first"], _NUMBERS["last"]]] = first, last

    def record(self, name: str) -> NDArray[np.int64]:
        return self.records[:, RECORD.index(name)]

    def pcs_of_lanes(self, layout: Layout) -> NDArray[np.uint32]:
        """Statement of each lane of the strand; one word where all are at one place."""
        assert self.found is not None
        if not self.found & SPLIT:
            if self.total("first") == self.total("last"):
                return self.low[:1]
            pcs = np.repeat(self.low, WARP)
        else:
            apart = (self.mask != self.whole)[:, None]
            pcs = np.where(apart, self.pcs, self.low[:, None]).reshape(-1)
        return pcs if layout.slots is None else pcs[layout.slots]


class _Native:
    """The function of a loop, and the registers that it is called with."""

    def __init__(
        self, parts: Sequence[Part], function: Function, target: Target, loop: Loop
    ) -> None:
        self._serial = loop.serial
        with machine_code.written():
            made = LoopFunction(
                parts, function, target, loop.live_at, self._serial, loop.bases
            ).written()
        self._bases, self._trials = len(loop.bases or ()), Trials()
        self._inputs = made.inputs
        self._written = [key for key, _ in made.inputs if key in made.written]
        alive = [loop.live_at(x.pc) for x in parts]
        # A part writes what is alive at either of its ends, whichever a lane comes to.
        alive += [loop.live_at(x.target) | loop.live_at(x.following) for x in parts]
        kept = {x: y.dtype for x, y in made.inputs if x in made.written}
        self._registers = Registers(kept, alive)
        self._sites = made.sites
        self._live_at = loop.live_at
        self._find_near(parts, function)
        self._template()
        #: phases in which threads could not store at the same time; pairs of phases lately, but one
        self._refused = self._pairs = 0
        #: lines that a warp may claim, where its lanes store side by side; more than twice as many
        #: as it does
        most = max(map(bytes_of, self._serial.values()), default=0)
        self._claims = 2 * (1 + WARP * most // LINE)
        self._function = machine_code.Improved(made.text, NAME, *SIGNATURE, ctypes.c_void_p)

    def _find_near(self, parts: Sequence[Part], function: Function) -> None:
        """The tables of registers near the function, and how many bytes of a lane are far."""
        keys = [key for key, _ in self._inputs]
        entries = [(keys.index(key), *self._registers.entry(key)) for key in self._written]
        ends = {pc for part in parts for pc in (part.pc, part.target, part.following)}
        live = {
            pc: [i for i, key in enumerate(self._written) if self._live_at(pc) >> key & 1]
            for pc in ends
        }
        self._tables = near.table_of(function, entries, live), near.table_of(function, [], {})
        left = {*self._serial} or {part.pc for part in parts}
        left |= ends - {part.pc for part in parts}
        most = max(sum(entries[i][2] for i in live[pc]) for pc in left)
        # Of what is hardly touched there may be four times as much.
        self._bytes_of_lane = 1 + max(most, self._registers.bytes_of_warp // 4) // WARP

    def _template(self) -> None:
        """The arguments of a call: those that are the same in all, and how many bytes registers lie
        behind the start of their memory, for each warp."""
        self._words = np.zeros((len(self._inputs), 2), np.int64)
        self._behind = np.zeros(len(self._inputs), np.int64)
        #: those that each call reads of its strand
        self._of_strand: list[tuple[int, Input]] = []
        for number, (key, given) in enumerate(self._inputs):
            if given.fixed is not None:
                self._words[number, 0] = address_of(given.fixed)
            elif key in self._registers:
                self._behind[number], self._words[number, 1] = self._registers.entry(key)
            else:
                self._of_strand.append((number, given))
        self._is_far = self._words[:, 1] > 0

    def _arguments(self, s: Strand, layout: Layout, room: Array, held: list[Any]) -> Array:
        """The arguments of a call, with the registers that are read in their places in `room`."""
        words = self._words.copy()
        words[:, 0] += self._behind * layout.warps + address_of(room) * self._is_far
        for number, given in self._of_strand:
            words[number] = spread(s, given.read(s), given.dtype, layout, held, given.by_warp)
        live = self._live_at(s.pc)
        for key, given in self._inputs if live else ():
            if key in self._registers and live >> key & 1:
                array = self._registers.words(room, layout.warps, key)
                array[...] = by_warp(given.read(s), layout)
        return words

    def improve(self) -> None:
        """Compiles once more, if it is time for that: LLVM needs much memory for a while, so that
        a call has not taken its own yet."""
        self._function.now()

    @property
    def may_try(self) -> bool:
        """Whether all blocks may run at the same time, to see whether they have memory of their
        own."""
        return self._bases > 0 and self._trials.are_worth_it

    @property
    def bytes_of_lane(self) -> int:
        """Bytes of the registers of a lane that lie far; hardly any are touched in a trial."""
        return -(-self._bytes_of_lane // 2) if self.may_try else self._bytes_of_lane

    def run(self, s: Strand, layout: Layout, call: _Call, threads: int, *, trial: bool) -> bool:
        """Runs all warps; False: it was a trial, and all that it stored is taken back."""
        held: list[Any] = []
        compute, arena = self._function.now(), s.wave.grid.arena
        registers, room = self._registers, self._registers.take(layout.warps)
        arguments = self._arguments(s, layout, room, held)
        call.put(clear=int(not s.wave.is_clear(layout.warps)))
        context = refreshed(s, layout)
        row = registers.bytes_of_warp if registers.bytes_of_warp * call.together <= near.MOST else 0
        table = self._tables[row == 0]
        call.put(arguments=arguments.size, row=row, near=address_of(table))
        shared = address_of(arguments), address_of(context), address_of(call.words)

        def run(threads: int, more: bool, reach: tuple[int, int] | None = None) -> int:
            starts, found = layout.starts, 0
            if reach is not None:
                # The first block stores alone: the journal then keeps what all are to write.
                with arena.journal.expecting(*reach):
                    found, starts = compute(*starts[:2].tolist(), *shared), starts[1:]
            if len(starts) > 1:
                cuts = starts[cuts_of(len(starts) - 1, threads)]
                more |= s.wave.grid.has_others  # another wave follows
                parts = in_native_parts(compute, cuts, threads, *shared, more=more)
                found = reduce(or_, parts, found)
            call.found = found
            return found

        begun = perf_counter()
        if trial:
            cuts = layout.starts[cuts_of(len(layout.starts) - 1, threads)]
            found = self._try(s, call, cuts, lambda: run(threads, False))
        else:
            found = self._in_phases(run, call, threads)
        self._function.ran(perf_counter() - begun)
        if found is None:
            registers.give_back(room)
            return False
        s.wave.grid.progress += found & STORED
        after, pcs = 0, call.pcs_of_lanes(layout)
        for pc in pcs.tolist() if len(pcs) == 1 else np.flatnonzero(np.bincount(pcs)).tolist():
            after |= self._live_at(pc)
        for index in self._written if after else ():
            if after >> index & 1:
                array = registers.words(room, layout.warps, index).flatten()
                s.write(index, array if layout.slots is None else array[layout.slots])
        registers.give_back(room)
        return True

    def _try(self, s: Strand, call: _Call, cuts: Array, run: Callable[[], int]) -> int | None:
        """Runs all blocks whole, in parts between `cuts`; the bits of all, None: they did not have
        memory of their own."""
        arena: Arena = s.wave.grid.arena
        self._trials.begin(arena, is_first=not s.wave.ctas[0])
        call.begin(EVERY)
        hulls = call.with_hulls(self._bases)
        found = run()
        rows = hulls[cuts[:-1] // call.together]
        ends = {
            "crossed": bool(found & CROSSED), "went_well": not call.is_over,
            "cut_off": call.is_over and call.room < _MOST_PARTS,
        }  # fmt: skip
        return found if self._trials.end(arena, rows, **ends) else None

    def _in_phases(self, run: Callable[..., int], call: _Call, threads: int) -> int:
        """Runs all blocks, in so many threads; the bits of all. Phases do not depend on the number
        of threads, as stores of blocks to one place do on phases."""
        if not self._serial:
            call.begin(EVERY)
            return run(threads, False)
        found, pairs = 0, self._pairs
        for self._pairs in range(_MOST_PHASES):
            may_claim = self._refused <= _MOST_REFUSED and not len(call.low) >> OWNER_BITS
            lines = len(call.low) * self._claims if threads > 1 and may_claim else 0
            call.begin(APART, claims=lines)
            now = run(threads, True)
            found |= now
            if not now & MET or call.must_end():
                break
            together, reach = self._may_store_together(call, now), call.reach()
            call.begin(SERIAL)
            now = run(threads if together else 1, self._pairs < pairs, reach if together else None)
            found |= now
            if not now & MET or call.must_end():
                break
        else:
            call.begin(EVERY)
            found |= run(1, False)
        call.recall_failures()
        return found

    def _may_store_together(self, call: _Call, found: int) -> bool:
        """True if threads store to places of their own next, by the claims of all."""
        if not call.claimed:
            return False
        if not found & REFUSED:
            return True
        self._refused, self._claims = self._refused + 1, 2 * WARP
        return False

    def learn(self) -> bool:
        """Looks after products that it left because their descriptors were new; whether any can be
        executed now."""
        return sum(site.learn() for site in self._sites) > 0


def loops_by_pc(
    program: Program, function: Function, target: Target, *, at_once: bool
) -> dict[int, Loop]:
    """The loops of a function, by the pcs of their parts; `at_once`: they are compiled before they
    first run."""
    live = always_live(program, function)
    out: dict[int, Loop] = {}
    for parts in loops_of(program, function, target):
        loop = Loop(parts, function, program.liveness, live, target, at_once)
        out |= dict.fromkeys([part.pc for part in parts], loop)
    return out
