"""wgmma.mma_async within loops: the four warps of a warpgroup are one call of a kernel.

Which kernel, and what it is called with, depends on the descriptors: a site remembers that for
those that it has seen, and whoever comes with others leaves the loop; steps execute the statement
then, and refuse what they refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from emulator.arith.fast.kernels.machine_code import address_of_function
from emulator.arith.fast.kernels.product import MIXED, PADDING
from emulator.arith.fast.words import BIT, LONG, POINTER, WORD, Value
from emulator.arrays import address_of
from emulator.isa.matrix import MatrixInstruction
from emulator.machine.compiled.function import NativeFunction
from emulator.machine.vector.fragments import Fetch
from emulator.machine.vector.kernels import setting_of
from emulator.machine.vector.strand import WARP, WARPGROUP
from emulator.ptx.program import Function, Statement
from emulator.targets import Target
from emulator.warp import native

#: warps of a warpgroup
WARPS = 4
#: bytes of a register of a warp, and of a warpgroup
_WARP_ROW, _ROW = 4 * WARP, 4 * WARPGROUP
#: what native code knows of a statement, in words of 8 bytes: how many entries there are, and
#: where; registers of C and of A, and where the numbers of their arguments are; whether descriptors
#: of no entry were met, and those of A and B
_SITE = ("count", "entries", "c", "a", "numbers", "missed", "missed_a", "missed_b")
#: an entry: the descriptors but for where matrices start, how far these reach, a `GroupFunction`
_ENTRY = ("a", "b", "reach_a", "reach_b", "function")
_WORDS = 32
#: entries that a site has at most
_MOST = 16
_FUNCTION = ir.FunctionType(WORD, [POINTER, LONG, LONG])
_NAME = "warpgroup"


def fits(statement: Statement, function: Function, target: Target) -> bool:
    """True if a statement is a product of warpgroups that a kernel computes."""
    ins = statement.instruction
    if not isinstance(ins, MatrixInstruction) or not ins.is_wgmma or ins.is_sparse:
        return False
    fetch = Fetch(statement, function, WARPGROUP)
    if statement.guard is not None or any(min(x.indexes) < 0 for x in fetch.vectors.values()):
        return False
    return native.product_of(ins, target, setting_of(fetch)) is not None


def orders(statement: Statement) -> bool:
    """True if it decides when products take effect: where they do at once, nothing does."""
    of_groups = statement.instruction.scope == "warpgroup" and "orders" in statement.effects
    return of_groups and statement.guard is None


class Site:
    """Knowledge of a statement that is kept from call to call."""

    def __init__(self, statement: Statement, function: Function, target: Target) -> None:
        ins, fetch = statement.instruction, Fetch(statement, function, WARPGROUP)
        assert isinstance(ins, MatrixInstruction)
        self.statement, self._ins, self._target = statement, ins, target
        self._setting = setting_of(fetch)
        a = fetch.vectors.get("a")
        #: the registers of C, then those of A
        self.registers = fetch.result.indexes + (() if a is None else a.indexes)
        self._known: list[native.GroupFunction] = []
        self._entries = np.zeros((_MOST, len(_ENTRY) + _WORDS), np.int64)
        self._numbers = np.zeros(len(self.registers), np.int64)
        self.words = np.zeros(len(_SITE), np.int64)
        self._put("entries", address_of(self._entries))
        self._put("numbers", address_of(self._numbers))
        self._put("c", fetch.result.count)
        self._put("a", 0 if a is None else a.count)

    def _put(self, name: str, word: int) -> None:
        self.words[_SITE.index(name)] = word

    def _missed(self, name: str) -> int:
        return int(self.words[_SITE.index(name)])

    def number(self, arguments: Sequence[int]) -> None:
        """Says which arguments its registers are."""
        self._numbers[:] = arguments

    @property
    def in_memory(self) -> bool:
        """True if A lies in shared memory."""
        return self._setting.a_in_memory

    @property
    def room(self) -> int:
        """Bytes that a kernel needs for C, A and D."""
        return (len(self.registers) + self._missed("c")) * _ROW

    def learn(self) -> bool:
        """Makes an entry for descriptors that were met for the first time; whether there was one
        to make."""
        if not self._missed("missed"):
            return False
        self._put("missed", 0)
        given = {name: self._missed(f"missed_{name}") for name in "ab"}
        if not self._setting.a_in_memory:
            del given["a"]
        found = None
        if len(self._known) < _MOST:
            found = native.group_function(self._ins, self._target, self._setting, given)
        if found is None:
            return False
        keys = [given.get(name, 0) & ~native.START_BITS for name in "ab"]
        words = [*keys, *found.reach, address_of_function(found.compute), *found.words]
        self._entries[len(self._known), : len(words)] = words
        self._known.append(found)
        self._put("count", len(self._known))
        return True


# --- instructions ---------------------------------------------------------------------------------


def emit(t: NativeFunction, site: Site, first: Value) -> Value:
    """Executes a product for the four warps from `first` on, all lanes of which are there; whether
    it was: else nothing has happened."""
    b, bound = t.b, site.statement.operands
    given, differ = [], BIT(0)
    for name, type_ in (("a", "b64"), ("b", "b64"), ("scale_d", "pred")):
        if name not in bound or (name == "a" and not site.in_memory):
            given.append(LONG(int(name == "scale_d")))
            continue
        word = None
        for warp in range(WARPS):
            t.at(b.add(first, LONG(warp)))
            words = t.read(bound[name], type_)
            word = b.extract_element(words, WORD(0)) if word is None else word
            other = t.e.any(b.icmp_unsigned("!=", words, t.e.splat(word)))
            differ = b.or_(differ, other)
        given.append(word if type_ == "b64" else b.zext(word, LONG))
    t.at(first)
    row = b.add(t.memory.field("shared"), t.memory.of_warp("rows"))
    address = t.pointer("site", site, address_of(site.words))
    arguments = [
        t.places, first, b.inttoptr(address, POINTER), t.memory.room(_NAME, site.room), row,
        t.memory.field("shared_limit"), *given, differ,
    ]  # fmt: skip
    return t.e.function(_NAME, BIT, arguments)


def define(module: Any) -> None:
    """Writes the function that statements call: ``bit (arguments, first warp, site, room, shared
    memory of the block, its size, descriptors of A and B, whether C is read, whether lanes differ)
    ``; it returns whether the product was computed."""
    if _NAME in module.globals:
        function = module.globals[_NAME]
        function.linkage = "internal"
        function.attributes.add("noinline")
        _Body(function).write()


class _Body:
    """The body of that function."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.b = ir.IRBuilder(function.append_basic_block())
        self.failed = function.append_basic_block("failed")

    def write(self) -> None:
        b = self.b
        arguments, first, site, room, shared, limit, a, b_, keep, differ = self.function.args
        words = b.alloca(ir.ArrayType(LONG, _WORDS))
        kept = b.alloca(LONG)
        words.type = POINTER  # not to one type alone
        b.store(keep, kept)
        self.require(b.not_(differ))
        entry = self.find(site, a, b_)
        starts = []
        for name, word in (("a", a), ("b", b_)):
            high = b.shl(b.lshr(b.and_(word, LONG(native.START_BITS)), LONG(6)), LONG(10))
            end = b.add(high, self.word(entry, _ENTRY.index(f"reach_{name}")))
            self.require(b.icmp_signed("<=", end, limit))
            starts.append(b.add(shared, high))
        count_c, count_a = (self.word(site, _SITE.index(x)) for x in "ca")
        every = b.add(count_c, count_a)
        start = b.ptrtoint(room, LONG)
        at_a, at_d = (b.add(start, b.mul(x, LONG(_ROW))) for x in (count_c, every))
        held = b.icmp_unsigned("!=", count_a, LONG(0))
        read = b.icmp_unsigned("!=", keep, LONG(0))
        numbers = b.inttoptr(self.word(site, _SITE.index("numbers")), POINTER)
        row = arguments, first, numbers
        with self.each(b.select(read, LONG(0), count_c), every) as i:
            for own, packed in self.register(*row, i, b.add(start, b.mul(i, LONG(_ROW)))):
                self.copy(packed, own)
        at = b.gep(entry, [LONG(len(_ENTRY))], source_etype=LONG)
        self.copy(b.ptrtoint(words, LONG), b.ptrtoint(at, LONG), 8 * _WORDS)
        places = (b.select(held, at_a, starts[0]), starts[1], start, at_d, b.ptrtoint(kept, LONG))
        for index, place in zip(native.GROUP_ADDRESSES, places, strict=True):
            b.store(place, b.gep(words, [LONG(index)], source_etype=LONG))
        kernel = b.inttoptr(self.word(entry, _ENTRY.index("function")), _FUNCTION.as_pointer())
        flags = b.call(kernel, [words, LONG(0), LONG(1)])
        self.require(b.icmp_unsigned("==", b.and_(flags, WORD(PADDING | MIXED)), WORD(0)))
        with self.each(LONG(0), count_c) as i:
            for own, packed in self.register(*row, i, b.add(at_d, b.mul(i, LONG(_ROW)))):
                self.copy(own, packed)
        b.ret(BIT(1))
        b.position_at_end(self.failed)
        b.ret(BIT(0))

    def word(self, start: Value, index: Any) -> Value:
        at = self.b.gep(
            start, [index if isinstance(index, ir.Value) else LONG(index)], source_etype=LONG
        )
        return self.b.load(at, typ=LONG)

    def require(self, condition: Value) -> None:
        going = self.function.append_basic_block("going")
        self.b.cbranch(condition, going, self.failed)
        self.b.position_at_end(going)

    @contextmanager
    def each(self, first: Value, end: Value) -> Iterator[Value]:
        """A loop over the numbers from `first` to before `end`, whose body is written within."""
        b, before = self.b, self.b.block
        loop, body, after = (self.function.append_basic_block() for _ in range(3))
        b.branch(loop)
        b.position_at_end(loop)
        i = b.phi(LONG)
        i.add_incoming(first, before)
        b.cbranch(b.icmp_unsigned("<", i, end), body, after)
        b.position_at_end(body)
        yield i
        i.add_incoming(b.add(i, LONG(1)), b.block)
        b.branch(loop)
        b.position_at_end(after)

    def find(self, site: Value, a: Value, b_: Value) -> Value:
        """The entry of some descriptors; where there is none they are said to be missed."""
        b = self.b
        found = b.alloca(LONG)
        b.store(LONG(0), found)
        start = self.word(site, _SITE.index("entries"))
        keys = [b.and_(x, LONG(~native.START_BITS)) for x in (a, b_)]
        with self.each(LONG(0), self.word(site, _SITE.index("count"))) as i:
            place = b.add(start, b.mul(i, LONG(8 * (len(_ENTRY) + _WORDS))))
            entry = b.inttoptr(place, POINTER)
            alike = [b.icmp_unsigned("==", self.word(entry, n), x) for n, x in enumerate(keys)]
            b.store(b.select(b.and_(*alike), place, b.load(found, typ=LONG)), found)
        place = b.load(found, typ=LONG)
        with b.if_then(b.icmp_unsigned("==", place, LONG(0)), likely=False):
            for name, word in (("missed", LONG(1)), ("missed_a", a), ("missed_b", b_)):
                b.store(word, b.gep(site, [LONG(_SITE.index(name))], source_etype=LONG))
            b.branch(self.failed)
        return b.inttoptr(place, POINTER)

    def register(
        self, arguments: Value, first: Value, numbers: Value, i: Value, row: Value
    ) -> list[tuple[Value, Value]]:
        """Addresses of a register of the warps, and of its words in a row of all warps."""
        b = self.b
        number = b.shl(self.word(numbers, i), LONG(1))
        start, step = self.word(arguments, number), self.word(arguments, b.add(number, LONG(1)))
        return [
            (
                b.add(start, b.mul(b.add(first, LONG(warp)), step)),
                b.add(row, LONG(_WARP_ROW * warp)),
            )
            for warp in range(WARPS)
        ]

    def copy(self, target: Value, source: Value, size: int = _WARP_ROW) -> None:
        b = self.b
        places = [b.inttoptr(x, POINTER) for x in (target, source)]
        type_ = ir.VectorType(LONG, size // 8)
        b.store(b.load(places[1], typ=type_, align=8), places[0], align=8)
