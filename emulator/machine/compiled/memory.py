"""Loads and stores as LLVM instructions, and where addresses of a warp lead.

The lanes of a warp mostly look into one allocation: its bounds are kept for each statement, and
`locate` is called where an address is not within them. It finds the place of every lane by itself,
also through the windows of generic addresses. Nothing is read or written before all lanes of the
warp are known to be in bounds; where one is not, the function returns the number of the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir

from emulator.arith.fast.words import BIT, LONG, POINTER, WORD, Value
from emulator.machine.compiled import patterns
from emulator.machine.compiled.warp_emitter import WIDTH, WarpEmitter, integers
from emulator.memory.windows import LOCAL, PARAMETERS, RANK_BITS, SHARED, WINDOW_BITS

#: what a segment is told of memory, in words of 8 bytes: addresses of bytes and of tables, sizes
CONTEXT = (
    "allocations", "starts", "ends", "shifts", "readable", "writable", "looked", "kept",
    "kept_ends",
    "keep", "arena", "stopped",
    "shared", "shared_bytes", "shared_limit", "rows", "cluster_rows", "cluster_size",
    "ledger", "local", "local_bytes", "local_limit", "warps", "places",
)  # fmt: skip
#: ``keep(arena, row, address, size)``: the undo journal keeps bytes of an allocation
_KEEP = ir.FunctionType(ir.VoidType(), (LONG, LONG, LONG, LONG))


class Memory:
    """Accesses of one function; `place` says which warp it is at."""

    def __init__(self, e: WarpEmitter, context: Value, entry: Any) -> None:
        self.e, self.context = e, context
        #: where variables of the function are allocated
        self._entry = entry
        #: of the statements under way, by the value and the bits of a word
        self._bases: dict[tuple[Value, int], patterns.Base] = {}
        self._rooms: dict[tuple[str, int], Value] = {}
        self._scratch = self._allocated(WIDTH)
        self._nowhere = entry.ptrtoint(self._allocated(8), LONG)
        #: of the warp that is under way
        self.warp: Value = None

    def _allocated(self, words: int) -> Value:
        """A variable of the function; llvmlite would have its address point to one type alone."""
        out = self._entry.alloca(ir.ArrayType(LONG, words))
        out.type = POINTER
        return out

    def room(self, name: str, size: int) -> Value:
        """Bytes of a name and size, the same for all statements."""
        if (name, size) not in self._rooms:
            self._rooms[name, size] = self._allocated(-(-size // 8))
        return self._rooms[name, size]

    def field(self, name: str) -> Value:
        return field_of(self.e.builder, self.context, name)

    def of_warp(self, name: str) -> Value:
        """The part of the context for each warp."""
        return word_of_warp(self.e.builder, self.context, self.warp, name)

    def clear_shared(self, first: Value, end: Value) -> None:
        """Zeros in the shared memory of the blocks of some warps."""
        b, ends = self.e.builder, []
        for self.warp in (first, b.sub(end, LONG(1))):
            ends.append(b.add(self.field("shared"), self.of_warp("rows")))
        size = b.sub(b.add(ends[1], self.field("shared_bytes")), ends[0])
        byte = ir.IntType(8)(0)
        start = b.inttoptr(ends[0], POINTER)
        self.e.function("llvm.memset.p0.i64", ir.VoidType(), [start, byte, size, BIT(0)])

    def begin(self) -> None:
        """Other statements follow, which nothing of those before is known to dominate."""
        self._bases.clear()

    # --- where addresses lead ---

    def places(
        self,
        space: str,
        addresses: Value,
        size: int,
        mask: Value,
        write: bool,
        fail: Callable[[], None],
        told: bool = False,
    ) -> Value:
        """The addresses in this process; those of lanes outside of a mask lead nowhere. `told`:
        somebody knows where it reads."""
        e, make = self.e, _PLACES.get(space, _anywhere)
        given = [self.context, self.warp, addresses, e.mask(mask), self._nowhere]
        if make is _anywhere:
            window = {"param": PARAMETERS, "cluster": SHARED}.get(space, 0)
            if window:
                inside = e.builder.and_(addresses, e.word(64, (1 << WINDOW_BITS) - 1))
                given[2] = e.builder.add(inside, e.word(64, window))
            site = self._allocated(3)
            self._entry.store(ir.Constant(ir.ArrayType(LONG, 3), [0, 0, 0]), site)
            given += [BIT(write), BIT(told), site, self._scratch]
        name, results = f"places{make.__name__}.{size}", (BIT, integers(64))
        failed, places = e.fragment(name, results, partial(make, size), *given)
        with e.builder.if_then(failed, likely=False):
            fail()
        return places

    @property
    def nowhere(self) -> Value:
        """Addresses that lanes which do not take part may read and write."""
        return self.e.splat(self._nowhere)

    # --- bytes ---

    def load(self, places: Value, bits: int, count: int, mask: Value = None) -> list[Value]:
        """`count` neighbouring words of each lane of a mask; None: of all."""
        return patterns.load(self.e, places, bits, count, self._lanes(mask))

    def load_of_many(
        self, base: Value, offset: int, bits: int, mask: Value, load: Callable[[], list[Value]]
    ) -> Value:
        """A word of each lane in shared memory, at an offset from a register of which `bases` keeps
        the pattern; `load` does it where there is none."""
        e, b = self.e, self.e.builder
        if (base, bits) not in self._bases:
            inside = b.and_(e.resize(base, 32), e.word(32, (1 << RANK_BITS) - 1))
            self._bases[base, bits] = patterns.Base(e, inside, mask, bits // 8)
        known, memory = self._bases[base, bits], (self.context, self.warp)
        return known.load(offset, _bounds_of_shared, memory, lambda: load()[0])

    def store(self, places: Value, words: list[Value], mask: Value = None) -> None:
        """Neighbouring words of each lane of a mask; None: of all. Of lanes at one place that one
        wins as on the chip."""
        patterns.store(self.e, places, words, self._lanes(mask))

    def _lanes(self, mask: Value | None) -> Value:
        return self.e.word(1, 1) if mask is None else mask

    def scatter(self, places: Value, word: Value) -> None:
        """Stores a word of each lane; of lanes at one place the last wins."""
        bits = word.type.element.width
        pointers = self.e.builder.inttoptr(places, ir.VectorType(POINTER, WIDTH))
        arguments = [word, pointers, WORD(bits // 8), self.e.word(1, 1)]
        self.e.function(f"llvm.masked.scatter.v32i{bits}.v32p0", ir.VoidType(), arguments)


def field_of(builder: Any, context: Value, name: str) -> Value:
    place = builder.gep(context, [LONG(CONTEXT.index(name))], source_etype=LONG)
    return builder.load(place, typ=LONG)


def word_of_warp(builder: Any, context: Value, warp: Value, name: str) -> Value:
    table = builder.inttoptr(field_of(builder, context, name), POINTER)
    return builder.load(builder.gep(table, [warp], source_etype=LONG), typ=LONG)


# --- where addresses lead: whether a lane is out of bounds, and the places of those of a mask -----


def _misaligned(e: WarpEmitter, addresses: Value, size: int) -> Value:
    low = e.builder.and_(addresses, e.like(addresses, size - 1))
    return e.builder.icmp_unsigned("!=", low, e.like(addresses, 0))


def _result(
    e: WarpEmitter, wrong: Value, places: Value, lanes: Value, nowhere: Value
) -> tuple[Value, Value]:
    mask = e.lanes_of(lanes)
    failed = e.any(e.builder.and_(wrong, mask))
    return failed, e.select(mask, places, e.splat(nowhere))


def _bounds_of_shared(
    size: int, e: WarpEmitter, context: Value, warp: Value
) -> tuple[Value, Value]:
    """Where the shared memory of a warp's block starts, and the last place in it for a size."""
    b = e.builder
    last = b.trunc(b.sub(field_of(b, context, "shared_limit"), LONG(size)), WORD)
    start = b.add(field_of(b, context, "shared"), word_of_warp(b, context, warp, "rows"))
    return start, last


def _in_shared(
    size: int,
    e: WarpEmitter,
    context: Value,
    warp: Value,
    addresses: Value,
    lanes: Value,
    nowhere: Value,
) -> tuple[Value, Value]:
    b = e.builder
    inside = b.and_(e.resize(addresses, 32), e.word(32, (1 << RANK_BITS) - 1))
    start, last = _bounds_of_shared(size, e, context, warp)
    wrong = b.icmp_signed(">", inside, e.splat(last))
    wrong = b.or_(wrong, _misaligned(e, inside, size))
    return _result(e, wrong, b.add(e.resize(inside, 64), e.splat(start)), lanes, nowhere)


def _in_local(
    size: int,
    e: WarpEmitter,
    context: Value,
    warp: Value,
    addresses: Value,
    lanes: Value,
    nowhere: Value,
) -> tuple[Value, Value]:
    b = e.builder
    last = e.splat(b.sub(field_of(b, context, "local_limit"), LONG(size)))
    outside = b.icmp_signed(">", addresses, last)
    outside = b.or_(outside, b.icmp_signed("<", addresses, e.word(64, 0)))
    wrong = b.or_(outside, _misaligned(e, addresses, size))
    stride = field_of(b, context, "local_bytes")
    number = b.mul(word_of_warp(b, context, warp, "warps"), LONG(WIDTH))
    offsets = b.mul(e.iota(64), e.splat(stride))
    start = b.add(field_of(b, context, "local"), b.mul(number, stride))
    return _result(e, wrong, b.add(b.add(addresses, offsets), e.splat(start)), lanes, nowhere)


def _anywhere(
    size: int,
    e: WarpEmitter,
    context: Value,
    warp: Value,
    addresses: Value,
    lanes: Value,
    nowhere: Value,
    write: Value,
    told: Value,
    site: Value,
    scratch: Value,
) -> tuple[Value, Value]:
    """In global memory, or wherever the window of an address is.

    A site keeps the bounds of a statement: the first address, how many an access may start at, and
    how far bytes are from their addresses.
    """
    b, mask = e.builder, e.lanes_of(lanes)
    first, reach, shift = (
        b.load(b.gep(site, [LONG(i)], source_etype=LONG), typ=LONG) for i in range(3)
    )
    far = b.icmp_unsigned(">=", b.sub(addresses, e.splat(first)), e.splat(reach))
    if size > 1:
        far = b.or_(far, _misaligned(e, addresses, size))
    near = b.add(addresses, e.splat(shift))
    before = b.block
    with b.if_then(e.any(b.and_(far, mask)), likely=False):
        b.store(addresses, scratch, align=8)
        arguments = [context, scratch, lanes, LONG(size), write, told, warp, site]
        wrong = e.outlined("locate", BIT, _locate, *arguments)
        found = b.load(scratch, typ=integers(64), align=8)
        last = b.block
    failed, out = b.phi(BIT), b.phi(integers(64))
    for phi, usual, other in ((failed, BIT(0), wrong), (out, near, found)):
        phi.add_incoming(usual, before)
        phi.add_incoming(other, last)
    return failed, e.select(mask, out, e.splat(nowhere))


#: state space -> where its addresses lead; all others: anywhere
_PLACES: dict[str, Callable[..., tuple[Value, Value]]] = {
    "shared": _in_shared, "local": _in_local,
}  # fmt: skip


# --- the slow path --------------------------------------------------------------------------------


def _locate(e: WarpEmitter, *given: Value) -> Value:
    """``(context, addresses, mask, size, write, told, warp, site)``: puts addresses in this process
    where the addresses stood, and the bounds of the last allocation into `site`; whether a lane is
    out of bounds."""
    return _Locate(e.builder).written(*given)


class _Locate:
    """The body of `locate`: lane by lane, for each the window, then the allocation."""

    def __init__(self, b: Any) -> None:
        self.b = b
        self.lane, self.out, self.low, self.high = (b.alloca(LONG) for _ in range(4))
        self.failed = b.append_basic_block("failed")

    def written(
        self,
        context: Value,
        addresses: Value,
        mask: Value,
        size: Value,
        write: Value,
        told: Value,
        warp: Value,
        site: Value,
    ) -> Value:
        self.context, self.size, self.write, self.warp = context, size, write, warp
        self.site, self.told = site, told
        b = self.b
        loop, body, following, done = (
            b.append_basic_block(name) for name in ("loop", "body", "following", "done")
        )
        b.store(LONG(0), self.lane)
        b.branch(loop)
        b.position_at_end(loop)
        lane = b.load(self.lane, typ=LONG)
        b.cbranch(b.icmp_unsigned("<", lane, LONG(WIDTH)), body, done)
        b.position_at_end(body)
        active = b.trunc(b.lshr(mask, b.trunc(lane, WORD)), BIT)
        place = b.gep(addresses, [lane], source_etype=LONG)
        with b.if_then(active):
            b.store(self._place(b.load(place, typ=LONG), lane), place)
        b.branch(following)
        b.position_at_end(following)
        b.store(b.add(lane, LONG(1)), self.lane)
        b.branch(loop)
        b.position_at_end(self.failed)
        b.ret(BIT(1))
        b.position_at_end(done)
        return BIT(0)

    def _field(self, name: str) -> Value:
        return field_of(self.b, self.context, name)

    def _of_warp(self, name: str) -> Value:
        return word_of_warp(self.b, self.context, self.warp, name)

    def _require(self, condition: Value) -> None:
        """Goes on where a condition holds, else the access is refused."""
        going = self.b.append_basic_block("going")
        self.b.cbranch(condition, going, self.failed)
        self.b.position_at_end(going)

    def _place(self, address: Value, lane: Value) -> Value:
        b = self.b
        self._require(b.icmp_unsigned("==", b.and_(address, b.sub(self.size, LONG(1))), LONG(0)))
        out = self.out
        window = b.lshr(address, LONG(WINDOW_BITS))
        inside = b.and_(address, LONG((1 << WINDOW_BITS) - 1))
        shared = b.icmp_unsigned("==", window, LONG(SHARED >> WINDOW_BITS))
        with b.if_else(shared) as (then, otherwise):
            with then:
                b.store(self._in_shared(inside), out)
            with otherwise:
                local = b.icmp_unsigned("==", window, LONG(LOCAL >> WINDOW_BITS))
                with b.if_else(local) as (within, elsewhere):
                    with within:
                        b.store(self._in_local(inside, lane), out)
                    with elsewhere:
                        b.store(self._in_arena(address), out)
        return b.load(out, typ=LONG)

    def _in_shared(self, inside: Value) -> Value:
        """In the row of the block of the cluster that the address names."""
        b = self.b
        rank = b.lshr(inside, LONG(RANK_BITS))
        self._require(b.icmp_unsigned("<", rank, self._field("cluster_size")))
        offset = b.and_(inside, LONG((1 << RANK_BITS) - 1))
        last = b.sub(self._field("shared_limit"), self.size)
        self._require(b.icmp_signed("<=", offset, last))
        row = b.add(self._of_warp("cluster_rows"), b.mul(rank, self._field("shared_bytes")))
        return b.add(b.add(self._field("shared"), row), offset)

    def _in_local(self, inside: Value, lane: Value) -> Value:
        b = self.b
        last = b.sub(self._field("local_limit"), self.size)
        self._require(b.icmp_signed("<=", inside, last))
        number = b.add(b.mul(self._of_warp("warps"), LONG(WIDTH)), lane)
        first = b.mul(number, self._field("local_bytes"))
        return b.add(b.add(self._field("local"), first), inside)

    def _in_arena(self, address: Value) -> Value:
        """In the last allocation that starts at or below the address: a binary search."""
        b = self.b

        def entry(name: str, at: Value) -> Value:
            table = b.inttoptr(self._field(name), POINTER)
            return b.load(b.gep(table, [at], source_etype=LONG), typ=LONG)

        low, high = self.low, self.high
        b.store(LONG(0), low)
        b.store(self._field("allocations"), high)
        search, look, found = (b.append_basic_block(name) for name in ("search", "look", "found"))
        b.branch(search)
        b.position_at_end(search)
        first, behind = b.load(low, typ=LONG), b.load(high, typ=LONG)
        b.cbranch(b.icmp_unsigned(">", b.sub(behind, first), LONG(1)), look, found)
        b.position_at_end(look)
        middle = b.lshr(b.add(first, behind), LONG(1))
        above = b.icmp_unsigned("<", address, entry("starts", middle))
        b.store(b.select(above, first, middle), low)
        b.store(b.select(above, middle, behind), high)
        b.branch(search)
        b.position_at_end(found)
        usable = b.select(self.write, self._field("writable"), self._field("readable"))
        flag = b.load(
            b.gep(b.inttoptr(usable, POINTER), [first], source_etype=ir.IntType(8)),
            typ=ir.IntType(8),
        )
        self._require(b.icmp_unsigned("!=", flag, ir.IntType(8)(0)))
        self._require(b.icmp_signed("<=", address, b.sub(entry("ends", first), self.size)))
        self._require(b.icmp_signed(">=", address, LONG(0)))

        def is_kept() -> Value:
            above = b.icmp_signed(">=", address, entry("kept", first))
            end = entry("kept_ends", first)
            return b.and_(above, b.icmp_signed("<=", b.add(address, self.size), end))

        with b.if_then(b.and_(self.write, b.not_(is_kept())), likely=False):
            keep = b.inttoptr(self._field("keep"), _KEEP.as_pointer())
            b.call(keep, [self._field("arena"), first, address, self.size])
            kept = is_kept()
            stopped = b.inttoptr(self._field("stopped"), POINTER)
            with b.if_then(b.not_(kept)):
                b.store(LONG(1), stopped)
            self._require(kept)
        with b.if_then(b.not_(b.or_(self.write, self.told))):
            looked = b.gep(
                b.inttoptr(self._field("looked"), POINTER), [first], source_etype=ir.IntType(8)
            )
            b.store(ir.IntType(8)(1), looked)
        start = b.select(self.write, entry("kept", first), entry("starts", first))
        end = b.select(self.write, entry("kept_ends", first), entry("ends", first))
        last, shift = b.sub(end, self.size), entry("shifts", first)
        for i, word in enumerate((start, b.add(b.sub(last, start), LONG(1)), shift)):
            b.store(word, b.gep(self.site, [LONG(i)], source_etype=LONG))
        return b.add(address, shift)
