"""The native function of a loop or a whole kernel: warps go round by themselves until they leave
it.

Of the lanes of a warp those go first that are lowest in the program, and lanes at one place go
together, as strands of the vector engine do. Registers lie in arrays between the parts of a loop,
within a part they are values of LLVM; so where a lane must not execute a statement, its registers
are as they were at the start of the part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from llvmlite import ir

from emulator.arith.fast.scratch import LINE
from emulator.arith.fast.words import BIT, LONG, POINTER, WORD, Value
from emulator.machine.compiled import claims, near, warpgroups
from emulator.machine.compiled.function import Input, NativeFunction
from emulator.machine.compiled.loops import Part
from emulator.machine.compiled.translation import bases_of_many, emit, need_all_lanes
from emulator.machine.compiled.trials import Hulls
from emulator.machine.compiled.warp_emitter import WIDTH, WarpEmitter, integers
from emulator.machine.shared.products import is_wgmma
from emulator.ptx.program import Bound, Function, Statement
from emulator.targets import Target

#: what a call says, in words of 8 bytes: how many warps take turns part by part, the first pc that
#: is for others, the most branches backward of parts that poll and parts executed, the phase,
#: whether records go on from one before, whether shared memory of the blocks is to be cleared, the
#: table of claims with 64 less the bits of a place in it; how many words the arguments are, bytes
#: of a row of near registers, and their table; rows for the hulls of a trial, 0: it is none; where
#: groups have copies; arrays of the warps: the lowest pc of each, its lanes there, all its lanes,
#: those that have not ended, the pcs of lanes where they differ, the numbers of parts that were
#: executed, and what happened; and `TOTALS`
CALL = (
    "together", "limit", "turns", "room", "phase", "later", "clear", "claims", "shift",
    "arguments", "row", "near", "hulls",
    "copies", "low", "mask", "whole", "alive", "pcs", "trace", "records", "totals",
)  # fmt: skip
#: which parts run in a call: all; those that write no memory of other blocks, which threads execute
#: at the same time, with the claims of the next of the others where there is a table; one of those
EVERY, APART, SERIAL = range(3)
#: bits that the function returns: something was stored, a part of another phase was met, a line is
#: claimed by others, warps have to wait for others or failed, lanes of a warp are apart, a hull is
#: not behind those before
STORED, MET, REFUSED, OVER, SPLIT, CROSSED = 1, 2, 4, 8, 16, 32
#: what happened to warps that take turns, in words of 8 bytes: parts, statements and statements of
#: threads executed, a hash of the parts; the pc of the part that branched backward too often, the
#: statement that must not be executed; -1: none; and the warp that it belongs to
RECORD = ("parts", "statements", "lanes", "hash", "tired", "failed", "warp")
_GOES_ON = ("parts", "statements", "lanes", "hash")
_COUNTERS = (*_GOES_ON, "turns")
#: words of all groups together, each with how it is made of theirs, and what it starts with: the
#: least and the greatest address that was claimed, lowest pc of a warp, and hash; the most parts
#: of a group; parts and statements of threads executed
TOTALS = {
    "least": ("umin", -1), "most": ("umax", 0),
    "first": ("umin", -1), "last": ("umax", 0),
    "hash_least": ("umin", -1), "hash_most": ("umax", 0), "longest": ("umax", 0),
    "parts": ("add", 0), "lanes": ("add", 0),
}  # fmt: skip
#: the place of lanes that are at none
NOWHERE, _ALL = 0xFFFFFFFF, 0xFFFFFFFF
#: the arrays of a call that say where lanes are, and their bytes for each warp
_OF_LANES = (("low", 4), ("mask", 4), ("whole", 4), ("pcs", 128))
#: those of them that every part changes: the warps that take turns have a copy of their own, since
#: their neighbours, with words in the same line of the cache, may run in another thread
COPIED = ("low", "mask")
#: the factor of each step of a hash
_MIX = 0x9E3779B97F4A7C15


def bytes_of_number(parts: int) -> int:
    """Bytes of the number of one of so many parts, as traces have it."""
    return 1 if parts <= 1 << 8 else 2


class LoopText(NamedTuple):
    """A loop as text for LLVM, and the arrays that it takes: words of the strand, or a register."""

    text: str
    inputs: tuple[tuple[Any, Input], ...]
    #: registers that are written to their arrays
    written: frozenset[int]
    #: its products of warpgroups
    sites: tuple[warpgroups.Site, ...]


class LoopFunction(NativeFunction):
    """The function ``i64 (first, end, arguments, context, call)``; it returns bits. `live_at` gives
    the registers, as bits, that may be read from a pc on; `serial` the pcs of parts that run in the
    phase of that name, where there are phases, each with the statements of its claims; `bases` the
    bases of addresses that have hulls."""

    def __init__(
        self,
        parts: Sequence[Part],
        function: Function,
        target: Target,
        live_at: Callable[[int], int],
        serial: Mapping[int, Sequence[Statement] | None] | None = None,
        bases: Mapping[object, int] | None = None,
    ) -> None:
        super().__init__(function, target, POINTER)
        self._serial = serial or {}
        self._parts, self._live_at = parts, live_at
        self._kept: set[int] = set()
        entry = self._entry
        (call,) = self._more
        self._given = {
            name: entry.load(entry.gep(call, [LONG(i)], source_etype=LONG), typ=LONG)
            for i, name in enumerate(CALL)
        }
        self._count = {name: entry.alloca(LONG) for name in _COUNTERS}
        self._turned, self._went, self._served = (entry.alloca(LONG) for _ in range(3))
        self._totals = {name: entry.alloca(LONG) for name in TOTALS}
        for name, (_, word) in TOTALS.items():
            entry.store(LONG(word), self._totals[name])
        #: where arrays would start that have the copies of a group at its warps
        self._near: dict[str, Value] = {}
        #: the arguments where registers lie near, the table of these, and where they have room
        self.places = self._array(LONG, self._given["arguments"])
        self._moves = entry.inttoptr(self._given["near"], POINTER)
        row = entry.mul(self._given["row"], self._given["together"])
        self._rows = entry.ptrtoint(self._array(ir.IntType(8), row), LONG)
        self._sites: list[warpgroups.Site] = []
        self._hulls = Hulls(self.e, entry, bases or {})
        #: where a part ends that not all of its warps have executed; None: it is another part
        self._stays: Any = None
        self._starts = {part.pc: self._block(f"part{part.pc}") for part in parts}
        self._dispatch, self._finish = self._block("dispatch"), self._block("finish")

    def _array(self, kind: Any, count: Value) -> Value:
        """Room for so many elements in the stack."""
        out = self._entry.alloca(kind, size=count)
        out.align, out.type = LINE, POINTER
        return out

    def _block(self, name: str) -> Any:
        return self.native.append_basic_block(name)

    def written(self) -> LoopText:
        """Writes the function."""
        b, begin, head, done = self.b, *map(self._block, ("begin", "warps", "done"))
        b.position_at_end(begin)
        near.copy_words(b, self.places, self.arguments, self._given["arguments"])
        with b.if_then(b.icmp_unsigned("!=", self._given["clear"], LONG(0))):
            self.memory.clear_shared(self._first, self._end)
        before = b.block
        b.branch(head)
        b.position_at_end(head)
        self._from = start = b.phi(LONG)
        start.add_incoming(self._first, before)
        last = b.add(start, self._given["together"])
        self._group = b.udiv(start, self._given["together"])
        self._to = b.select(b.icmp_unsigned("<", last, self._end), last, self._end)
        b.store(LONG(0), self._count["turns"])
        b.store(LONG(0), self._served)
        self._hulls.begin()
        self._find_copies()
        self._each_warp(lambda warp: self._copy(warp, self._given, self._near))
        # The row of a warp that goes alone is the same for each.
        alone = b.icmp_unsigned("==", self._given["together"], LONG(1))
        row = b.select(alone, LONG(0), self._given["row"])
        with b.if_then(b.or_(b.not_(alone), b.icmp_unsigned("==", start, self._first))):
            rows = b.sub(self._rows, b.mul(start, row))
            near.place(self.e, self.function, self.places, self._moves, rows, row)
        self._each_warp(lambda warp: self._move(warp, inward=True))
        self._begin_records()
        b.branch(self._dispatch)
        self._write_dispatch()
        for number, part in enumerate(self._parts):
            known = len(self.native.blocks)
            self._write_part(number, part)
            for block in (self._starts[part.pc], *self.native.blocks[known:]):
                _settle(block)
        b.position_at_end(self._finish)
        self._each_warp(lambda warp: self._move(warp, inward=False))
        self._each_warp(lambda warp: self._copy(warp, self._near, self._given))
        counts = {name: b.load(self._count[name], typ=LONG) for name in _GOES_ON}
        for name, word in counts.items():
            self._record(name, word)
        self._count_in(
            parts=counts["parts"], lanes=counts["lanes"],
            hash_least=counts["hash"], hash_most=counts["hash"], longest=counts["parts"],
        )  # fmt: skip
        self._each_warp(self._look_at)
        self._return_too(b.shl(b.zext(self._hulls.end(), LONG), LONG(CROSSED.bit_length() - 1)))
        start.add_incoming(self._to, b.block)
        b.cbranch(b.icmp_unsigned("<", self._to, self._end), head, done)
        b.position_at_end(done)
        self._tell()
        with b.if_then(b.icmp_unsigned("!=", self._given["hulls"], LONG(0))):
            rows = b.inttoptr(self._given["hulls"], POINTER)
            self._hulls.write(rows, b.udiv(self._first, self._given["together"]))
        b.ret(b.load(self._stored, typ=LONG))
        self._entry.branch(begin)
        inputs = tuple((key, given) for key, (_, given) in self._inputs.items())
        return LoopText(self._text(), inputs, frozenset(self._kept), tuple(self._sites))

    def _text(self) -> str:
        warpgroups.define(self._module)
        return super()._text()

    # --- places ---

    def _place(self, name: str, warp: Value, size: int) -> Value:
        """Address of a warp's part in an array of the call, or in the copy of it."""
        return self._part_of(self._near.get(name, self._given[name]), warp, size)

    def _part_of(self, start: Value, warp: Value, size: int) -> Value:
        return self.b.inttoptr(self.b.add(start, self.b.mul(warp, LONG(size))), POINTER)

    def _find_copies(self) -> None:
        """The copies of a group lie side by side, from the start of a line on."""
        b, each = self.b, self.b.mul(self._given["together"], LONG(4))
        lines = b.add(b.mul(each, LONG(len(COPIED))), LONG(LINE - 1))
        row = b.mul(self._group, b.and_(lines, LONG(-LINE)))
        at = b.sub(b.add(self._given["copies"], row), b.mul(self._from, LONG(4)))
        for number, name in enumerate(COPIED):
            self._near[name] = b.add(at, b.mul(each, LONG(number)))

    def _copy(self, warp: Value, source: Mapping[str, Value], to: Mapping[str, Value]) -> None:
        """Copies the words of a warp that each part changes."""
        for name in COPIED:
            word = self.b.load(self._part_of(source[name], warp, 4), typ=WORD)
            self.b.store(word, self._part_of(to[name], warp, 4))

    def _move(self, warp: Value, *, inward: bool) -> None:
        """Copies the registers of a warp that are read from where it is."""
        words = [self._word(name, warp) for name in ("low", "mask", "whole")]
        arrays = self.arguments, self.places, self._moves
        near.move(self.e, self.function, *arrays, warp, *words, inward=inward)

    def _word(self, name: str, warp: Value) -> Value:
        start = self._near.get(name, self._given[name])
        return self.e.fragment("word", WORD, _word, start, warp)

    def _record(self, name: str, word: Value) -> None:
        _record(self.e, self._given["records"], self._group, name, word)

    def _begin_records(self) -> None:
        """Starts with what the phases before have left, if any."""
        b = self.b
        later = b.icmp_unsigned("!=", self._given["later"], LONG(0))
        for name in _GOES_ON:
            records = self._place("records", self._group, 8 * len(RECORD))
            at = b.gep(records, [LONG(RECORD.index(name))], source_etype=LONG)
            b.store(b.select(later, b.load(at, typ=LONG), LONG(0)), self._count[name])
        for name in ("tired", "failed"):
            self._record(name, LONG(-1))

    def _add(self, name: str, word: Value) -> Value:
        total = self.b.add(self.b.load(self._count[name], typ=LONG), word)
        self.b.store(total, self._count[name])
        return total

    def _each_warp(self, run: Callable[[Value], None], step: int = 1) -> None:
        """`run` for all warps that take turns, or for the first of every few of them."""
        b, before = self.b, self.b.block
        loop, after = self._block("warp"), self._block("after")
        b.branch(loop)
        b.position_at_end(loop)
        warp = b.phi(LONG)
        warp.add_incoming(self._from, before)
        run(warp)
        following = b.add(warp, LONG(step))
        warp.add_incoming(following, b.block)
        b.cbranch(b.icmp_unsigned("<", following, self._to), loop, after)
        b.position_at_end(after)

    # --- parts ---

    def _write_dispatch(self) -> None:
        """To the lowest part that any warp is at, or out where that is none of the loop's."""
        b = self.b
        b.position_at_end(self._dispatch)
        lowest = self._entry.alloca(WORD)
        b.store(WORD(NOWHERE), lowest)

        def look(warp: Value) -> None:
            low, before = self._word("low", warp), b.load(lowest, typ=WORD)
            b.store(b.select(b.icmp_unsigned("<", low, before), low, before), lowest)

        self._each_warp(look)
        low = b.load(lowest, typ=WORD)
        going = self._block("going")
        inside = b.icmp_unsigned("<", b.zext(low, LONG), self._given["limit"])
        b.cbranch(inside, going, self._finish)
        b.position_at_end(going)
        switch = b.switch(low, self._finish)
        for pc, start in self._starts.items():
            switch.add_case(WORD(pc), start)

    def _write_part(self, number: int, part: Part) -> None:
        b = self.b
        b.position_at_end(self._starts[part.pc])
        if self._serial:
            self._write_phase(part)
        if part.barrier is not None:
            self._each_warp(lambda warp: self._require_at_barrier(warp, part))
            self._return_too(LONG(STORED))
        if need_all_lanes(part.statements, self.target):
            self._each_warp(lambda warp: self._require_all(warp, part))
        if part.may_stay:
            self._write_one_that_may_stay(number, part)
            return
        parts = self._note(number, part)
        b.store(LONG(0), self._turned)
        self._each_warp(lambda warp: self._run_if_there(warp, part))
        if not part.goes_back:
            b.branch(self._dispatch)
            return
        turned = b.load(self._turned, typ=LONG) if part.polls else LONG(0)
        turns = self._add("turns", turned)
        # Until the next branch backward every other part is executed at most once.
        room = b.sub(self._given["room"], LONG(2 * len(self._parts)))
        tired = b.or_(
            b.icmp_unsigned(">=", turns, self._given["turns"]), b.icmp_unsigned(">=", parts, room)
        )
        with b.if_then(tired, likely=False):
            self._record("tired", LONG(part.pc))
            self._return_too(LONG(OVER))
            b.branch(self._finish)
        b.branch(self._dispatch)

    def _write_phase(self, part: Part) -> None:
        """Leaves the loop where a part is of another phase, and claims what it is to store."""
        b, phase = self.b, self._given["phase"]
        if part.pc not in self._serial:
            with b.if_then(b.icmp_unsigned("==", phase, LONG(SERIAL)), likely=False):
                self._return_too(LONG(MET))
                b.branch(self._finish)
            return
        apart = b.icmp_unsigned("==", phase, LONG(APART))
        served = b.icmp_unsigned("!=", b.load(self._served, typ=LONG), LONG(0))
        served = b.and_(served, b.icmp_unsigned("==", phase, LONG(SERIAL)))
        b.store(LONG(1), self._served)
        with b.if_then(b.or_(served, apart), likely=False):
            stores = self._serial[part.pc]
            self._return_too(LONG(MET | (REFUSED if stores is None else 0)))
            claims = b.icmp_unsigned("!=", self._given["claims"], LONG(0))
            if stores is not None:
                with b.if_then(b.and_(apart, claims)):
                    self._each_warp(lambda warp: self._claim_if_there(warp, part, stores))
            b.branch(self._finish)

    def tell(self, place: Bound, space: str, addresses: Value, size: int, active: Value) -> bool:
        return self._hulls.tell(place, space, addresses, size, active)

    def _return_too(self, bits: Value) -> None:
        self.b.store(self.b.or_(self.b.load(self._stored, typ=LONG), bits), self._stored)

    def _claim_if_there(self, warp: Value, part: Part, stores: Sequence[Statement]) -> None:
        b = self.b
        table = b.inttoptr(self._given["claims"], POINTER)
        owner = b.add(self._first, LONG(1))
        with b.if_then(b.icmp_unsigned("==", self._word("low", warp), WORD(part.pc))):
            self.at(warp)
            self._values, self._written, self.bases = {}, {}, ()
            self.memory.begin()
            self.present = self.e.lanes_of(self._word("mask", warp))
            for statement in stores:
                if not claims.stores(statement):
                    emit(self, statement)
                    continue
                shift = self._given["shift"]
                refused = claims.emit(self, statement, table, shift, owner, self._count_in)
                self._return_too(b.shl(b.zext(refused, LONG), LONG(REFUSED.bit_length() - 1)))

    def _count_in(self, **words: Value) -> None:
        """Words of a group become part of those of all."""
        for name, word in words.items():
            place, how = self._totals[name], TOTALS[name][0]
            before = self.b.load(place, typ=LONG)
            if how == "add":
                self.b.store(self.b.add(before, word), place)
            else:
                self.b.store(self.e.function(f"llvm.{how}.i64", LONG, [before, word]), place)

    def _look_at(self, warp: Value) -> None:
        """Where a warp is that has left."""
        b = self.b
        low = b.zext(self._word("low", warp), LONG)
        self._count_in(first=low, last=low)
        split = b.icmp_unsigned("!=", self._word("mask", warp), self._word("whole", warp))
        self._return_too(b.shl(b.zext(split, LONG), LONG(SPLIT.bit_length() - 1)))

    def _tell(self) -> None:
        """Counts what was executed here among what all threads did."""
        totals = self.b.inttoptr(self._given["totals"], POINTER)
        for number, (name, (how, _)) in enumerate(TOTALS.items()):
            place = self.b.gep(totals, [LONG(number)], source_etype=LONG)
            word = self.b.load(self._totals[name], typ=LONG)
            self.b.atomic_rmw(how, place, word, "monotonic")

    def _note(self, number: int, part: Part) -> Value:
        """Counts a part as executed; how many were."""
        size = bytes_of_number(len(self._parts))
        trace, room = self._given["trace"], self._given["room"]
        counts = [self._count[name] for name in ("parts", "statements", "hash")]
        given = [trace, self._group, room, LONG(number), LONG(part.count), *counts]
        found: Value = self.e.fragment("note", LONG, partial(_note, size), *given)
        return found

    def _run_if_there(self, warp: Value, part: Part) -> None:
        b = self.b
        with b.if_then(b.icmp_unsigned("==", self._word("low", warp), WORD(part.pc))):
            self.at(warp)
            self._run(part)
            b.store(LONG(1), self._went)

    # --- statements that steps may have to execute ---

    def _write_one_that_may_stay(self, number: int, part: Part) -> None:
        """A wait, or a product of warpgroups: the first that stays ends the turns of all."""
        b = self.b
        self._stays = self._block(f"stay{part.pc}")
        b.store(LONG(0), self._went)
        (statement,) = part.statements
        if is_wgmma(statement):
            site = warpgroups.Site(statement, self.function, self.target)
            site.number([self._number(i, self._held(i)) for i in site.registers])
            self._kept |= set(site.registers)
            self._sites.append(site)
            self._each_warp(
                lambda warp: self._multiply_if_there(warp, part, site), warpgroups.WARPS
            )
        else:
            self._each_warp(lambda warp: self._run_if_there(warp, part))
        self._note(number, part)
        b.branch(self._dispatch)
        b.position_at_end(self._stays)
        with b.if_then(b.icmp_unsigned("!=", b.load(self._went, typ=LONG), LONG(0))):
            self._note(number, part)
        b.branch(self._finish)
        self._stays = None

    def _multiply_if_there(self, first: Value, part: Part, site: warpgroups.Site) -> None:
        """Multiplies for a warpgroup, all lanes of which must be there."""
        b, some, every = self.b, BIT(0), BIT(1)
        warps = [b.add(first, LONG(i)) for i in range(warpgroups.WARPS)]
        for warp in warps:
            here = b.icmp_unsigned("==", self._word("low", warp), WORD(part.pc))
            whole = b.icmp_unsigned("==", self._word("mask", warp), WORD(_ALL))
            some, every = b.or_(some, here), b.and_(every, b.and_(here, whole))
        with b.if_then(some):
            with b.if_then(b.not_(every), likely=False):
                b.branch(self._stays)
            done = warpgroups.emit(self, site, first)
            with b.if_then(b.not_(done), likely=False):
                b.branch(self._stays)
            for warp in warps:
                b.store(WORD(part.following), self._place("low", warp, 4))
            self._add("lanes", LONG(WIDTH * warpgroups.WARPS))
            b.store(LONG(1), self._went)

    # --- parts as they are executed ---

    def alive(self) -> Value:
        return self._word("alive", self.warp)

    def _require_all(self, warp: Value, part: Part) -> None:
        """Leaves the loop where lanes of a warp are missing that a part needs."""
        b = self.b
        here = b.icmp_unsigned("==", self._word("low", warp), WORD(part.pc))
        lacking = b.icmp_unsigned("!=", self._word("mask", warp), WORD(_ALL))
        with b.if_then(b.and_(here, lacking), likely=False):
            b.branch(self._finish)

    def _require_at_barrier(self, warp: Value, part: Part) -> None:
        """Leaves the loop where lanes of a warp are not at a barrier."""
        b = self.b
        elsewhere = b.icmp_unsigned("!=", self._word("low", warp), WORD(part.pc))
        mask, whole = self._word("mask", warp), self._word("whole", warp)
        with b.if_then(b.or_(elsewhere, b.icmp_unsigned("!=", mask, whole)), likely=False):
            b.branch(self._finish)

    def _run(self, part: Part) -> None:
        """The statements of a part for the lanes of a warp that are there."""
        e = self.e
        self._values, self._written = {}, {}
        self.memory.begin()
        self.bases = bases_of_many(part.statements)
        mask = self._word("mask", self.warp)
        self.present = e.lanes_of(mask)
        for self.number, statement in enumerate(part.statements):
            emit(self, statement)
        guard = self.guard(part.branch) if part.branch else None
        live = self._live_at(part.target) | self._live_at(part.following)
        for index in [i for i in self._written if live >> i & 1]:
            words = self._values.pop(index)
            self._keep(
                e.select(self.present, words, self.register(index)),
                self._argument(self._number(index, self._held(index))),
            )
            self._kept.add(index)
        self._go_on(part, guard, mask)

    def _go_on(self, part: Part, guard: Value | None, mask: Value) -> None:
        """The lanes of a warp go where the end of a part leads."""
        b, e = self.b, self.e
        taken = mask if guard is None else b.and_(e.mask(guard), mask)
        if part.target <= part.pc:
            back = b.zext(b.icmp_unsigned("!=", taken, WORD(0)), LONG)
            b.store(b.or_(b.load(self._turned, typ=LONG), back), self._turned)
        starts = [self._near.get(name, self._given[name]) for name, _ in _OF_LANES]
        ways = [WORD(part.target), WORD(part.following)]
        counts = [LONG(part.count), self._count["lanes"]]
        given = [mask, taken, *ways, *counts, self.warp, *starts]
        e.outlined("go_on", ir.VoidType(), _go_on, *given)

    def fail(self) -> None:
        if self._stays is not None:
            self.b.branch(self._stays)
            return
        given = [self._given["records"], self._group, LONG(self.number), self.warp, self._stored]
        self.e.fragment("fail", ir.VoidType(), _fail, *given)
        self.b.branch(self._finish)


def _settle(block: Any) -> None:
    """Keeps the text of a block that is complete: its instructions take twenty times the memory."""
    assert block.is_terminated
    block.terminator = "\n  ".join(map(str, block.instructions))
    block.instructions = [block.terminator]


# --- pieces of code that many parts have ----------------------------------------------------------


def _word(e: WarpEmitter, start: Value, warp: Value) -> Value:
    """The word of a warp in an array."""
    b = e.builder
    return b.load(b.inttoptr(b.add(start, b.mul(warp, LONG(4))), POINTER), typ=WORD)


def _note(
    size: int,
    e: WarpEmitter,
    trace: Value,
    group: Value,
    room: Value,
    number: Value,
    count: Value,
    parts: Value,
    statements: Value,
    hashed: Value,
) -> Value:
    """Counts a part with so many statements as executed, and puts its number into the trace of the
    group; how many were."""
    b = e.builder
    before = b.load(parts, typ=LONG)
    at = b.mul(b.add(b.mul(group, room), before), LONG(size))
    place = b.inttoptr(b.add(trace, at), POINTER)
    b.store(b.trunc(number, ir.IntType(8 * size)), place)
    mixed = b.xor(b.load(hashed, typ=LONG), b.add(number, LONG(1)))
    b.store(b.mul(mixed, LONG(_MIX)), hashed)
    b.store(b.add(b.load(statements, typ=LONG), count), statements)
    now = b.add(before, LONG(1))
    b.store(now, parts)
    return now


def _record(e: WarpEmitter, records: Value, group: Value, name: str, word: Value) -> None:
    b = e.builder
    at = b.add(b.mul(group, LONG(8 * len(RECORD))), LONG(8 * RECORD.index(name)))
    b.store(word, b.inttoptr(b.add(records, at), POINTER))


def _fail(
    e: WarpEmitter, records: Value, group: Value, number: Value, warp: Value, stored: Value
) -> None:
    """Notes which statement a warp must not execute."""
    b = e.builder
    _record(e, records, group, "failed", number)
    _record(e, records, group, "warp", warp)
    b.store(b.or_(b.load(stored, typ=LONG), LONG(OVER)), stored)


def _go_on(
    e: WarpEmitter,
    mask: Value,
    taken: Value,
    target: Value,
    following: Value,
    count: Value,
    executed: Value,
    warp: Value,
    *starts: Value,
) -> None:
    """Lanes of a mask, which have executed so many statements, go to `target` where a branch is
    taken, and else to `following`; then those that are lowest of all lanes of the warp are the
    next."""
    b = e.builder
    low, place, whole, pcs = (
        b.inttoptr(b.add(start, b.mul(warp, LONG(size))), POINTER)
        for start, (_, size) in zip(starts, _OF_LANES, strict=True)
    )
    lanes = b.mul(b.zext(e.function("llvm.ctpop.i32", WORD, [mask]), LONG), count)
    b.store(b.add(b.load(executed, typ=LONG), lanes), executed)
    every = b.load(whole, typ=WORD)
    same = b.or_(b.icmp_unsigned("==", taken, mask), b.icmp_unsigned("==", taken, WORD(0)))
    together = b.and_(b.icmp_unsigned("==", mask, every), same)
    with b.if_else(together) as (alike, apart):
        with alike:
            b.store(b.select(b.icmp_unsigned("!=", taken, WORD(0)), target, following), low)
        with apart:
            now = b.load(pcs, typ=integers(32), align=4)
            new = e.select(e.lanes_of(taken), e.splat(target), e.splat(following))
            now = e.select(e.lanes_of(mask), new, now)
            b.store(now, pcs, align=4)
            there = e.select(e.lanes_of(every), now, e.word(32, NOWHERE))
            lowest = e.call("vector.reduce.umin", there, result=WORD)
            here = e.mask(b.icmp_unsigned("==", there, e.splat(lowest)))
            b.store(lowest, low)
            b.store(b.and_(here, every), place)
