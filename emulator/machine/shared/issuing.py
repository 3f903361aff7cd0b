"""Asynchronous statements, stated once for all engines.

A statement names the operands that it reads (`Operands`) and becomes a function of an `Issuer`: one
thread, or one warp by its first lane. An engine makes issuers of its threads or lanes. An issuer
reads the operands, finds memory and mbarriers, and holds the operations under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith import Engine
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.operands import constant, ordinary, space_of, to_shared
from emulator.machine.shared.pending import POISON, Pending, Transfer
from emulator.machine.shared.tensor_order import Pairs, TensorOperation
from emulator.memory.mbarrier import Change
from emulator.memory.space import Space
from emulator.memory.tensor_memory import TensorMemory
from emulator.memory.windows import RANK_BITS
from emulator.ptx.program import Address, Bound, Program, Statement, items_of
from emulator.targets import Target
from emulator.warp.call import Undefined

Places = NDArray[np.int64]
#: the bits of an address in shared memory that are its offset in a block
OFFSET = (1 << RANK_BITS) - 1
#: state spaces as opcodes name them, and as accesses do
SPACES = {"shared": "shared", "shared::cta": "shared", "shared::cluster": "cluster"}


class Place(NamedTuple):
    """The bytes of an access, looked up anew each time: memory moves when it grows."""

    #: all of the memory, and where the access starts in it
    memory: Callable[[], Array]
    start: int
    size: int

    @property
    def bytes(self) -> Array:
        """The bytes themselves, not a copy."""
        return self.memory()[self.start : self.start + self.size]


# --- what an engine gives -------------------------------------------------------------------------


class CompletionWatch(Protocol):
    """Checks of what a commit of tcgen05 waits for."""

    def commit(self, lane: int, group: int, barrier: int) -> None: ...


class TensorCoreWatch(Protocol):
    """Checks of tcgen05: what warps and threads issue, read and give back."""

    completion: CompletionWatch

    def space(self, held: Array, row: int, lane: int) -> Space: ...
    def operation(self, operation: TensorOperation) -> None: ...
    def loads(self, lane: int, registers: Sequence[int]) -> None: ...
    def unwritten(self, lanes: Places, what: str, pc: int) -> None: ...
    def given_back(self, memory: TensorMemory, address: int, columns: int, lane: int) -> None: ...


class Watch(Protocol):
    """Checks of asynchronous statements, where a launch brings some."""

    tensor_cores: TensorCoreWatch

    def issued(self, lane: int, barrier: int | None) -> None: ...
    def stored_by_copy(self, lanes: Places, places: Places) -> None: ...
    def map_used(self, lanes: Places, held: Array, place: int) -> None: ...
    def mbarrier_used(self, lanes: Places, places: Places, *, arrives: bool = True) -> None: ...


class Issuer(Protocol):
    """One thread, or one warp by its first lane, that executes a statement."""

    #: operations under way, and the numbers of the thread and its block among those of them
    pending: Pending
    lane: int
    row: int
    #: all threads that execute it alike, for the checks: nearly always the one alone
    lanes: Places
    #: the numbers of the blocks of its cluster, and the bytes of shared memory of each
    cluster: range
    shared_bytes: int
    #: the number of its warp in the block; warps that wait for the other block of a pair
    warp: int
    pairs: Pairs
    program: Program
    target: Target
    #: what computes matrix instructions, and what becomes of undefined results
    arithmetic: Engine
    undefined: Undefined
    #: the checks, if the launch has any
    watch: Watch | None

    def word(self, place: int) -> int:
        """The operand that stands at a place in the list of its statement's `Operands`."""

    def find(
        self, space: str, address: int, size: int, alignment: int, *, write: bool = False
    ) -> Place:
        """Finds the memory of an access; raises AccessError where the access is illegal."""

    def change(self, barrier: int, change: Change) -> None:
        """Changes an mbarrier, and lets those go on that wait for it."""

    def shared(self, row: int) -> Array:
        """The bytes of the shared memory of a block."""

    def tensor(self, row: int) -> TensorMemory:
        """The tensor memory of a block."""

    def advance(self) -> None:
        """Something has happened that other threads may wait for."""

    def take_cluster(self) -> tuple[int, int, int] | None:
        """Takes over the next cluster that has not started: its first block, if there is one."""

    def wake_allocators(self) -> None:
        """Lets warps go on that wait for columns of tensor memory."""

    def located(self, error: Exception, statement: Statement) -> Exception:
        """An error with the place where it happened, if the kernel caused it."""


# --- what a statement asks for --------------------------------------------------------------------

Read = Callable[[Issuer], int]
Run = Callable[[Issuer], None]
#: the words in memory and the given ones -> the new ones in memory
Combine = Callable[[Array, Array], Array]


class Wanted(NamedTuple):
    """An operand that issuers read: a word of a type, an address, or the mbarrier at an address of
    a state space, as its number among the 8-byte words of shared memory of all blocks."""

    name: str
    kind: Literal["word", "address", "mbarrier"]
    bound: Bound
    #: the type of a word, the space of an mbarrier
    detail: str = ""
    #: of a statement of warps: all lanes must hold the same; otherwise the first lane's counts
    same: bool = False


class Operands:
    """The operands of one statement, and a list of those that it reads."""

    def __init__(self, statement: Statement, bind: Callable[..., Combine]) -> None:
        self.statement, self.ins = statement, ordinary(statement)
        self.wanted: list[Wanted] = []
        self._bind = bind

    def __contains__(self, name: str) -> bool:
        return name in self.statement.operands

    def word(self, name: str, type_: str, *, same: bool = False) -> Read:
        """An operand that the instruction takes for a type."""
        return self._read(Wanted(name, "word", self.statement.operands[name], type_, same))

    def words(self, name: str, type_: str) -> list[Read]:
        """The items of an operand in braces."""
        items = items_of(self.statement.operands.get(name)) if name in self else ()
        return [self._read(Wanted(name, "word", item, type_)) for item in items if item is not None]

    def coordinates(self, name: str) -> list[Read]:
        """The coordinates behind the address of a tensor map."""
        place = self.statement.operands[name]
        assert isinstance(place, Address)
        (given,) = place.coordinates
        return [self._read(Wanted(name, "word", item, "b32")) for item in items_of(given) if item]

    def address(self, name: str, *, same: bool = False) -> Read:
        """The address of a memory operand."""
        return self._read(Wanted(name, "address", self.statement.operands[name], same=same))

    def shared_offset(self, name: str) -> Read:
        """The offset in shared memory of an address there, which may be a generic one."""
        find, generic = self.address(name), self.space(name) == ""
        return lambda who: (to_shared(find(who)) if generic else find(who)) & OFFSET

    def barrier(self, space: str | None = None) -> Read:
        """The mbarrier; `space` is "cluster" where it is in the block that a copy goes to."""
        bound = self.statement.operands["mbarrier"]
        named = space_of(self.statement, bound) if space is None else space
        return self._read(Wanted("mbarrier", "mbarrier", bound, named))

    def constant(self, name: str) -> int:
        """An immediate operand."""
        return constant(self.statement, name)

    def space(self, name: str) -> str:
        """The state space of a memory operand."""
        return space_of(self.statement, self.statement.operands[name])

    def modifier(self, slot: str) -> str:
        """The word of the opcode in a slot; "" where it has none."""
        return self.ins.modifiers.get(slot, "") or ""

    def rule(self, **given: str) -> Combine:
        """The rule by which a reduction combines words."""
        return self._bind(self.ins, **given)

    def _read(self, wanted: Wanted) -> Read:
        place = len(self.wanted)
        self.wanted.append(wanted)
        return lambda who: who.word(place)


Make = Callable[[Operands], Run]


# --- what many statements do ----------------------------------------------------------------------


class Issue:
    """Operands of every bulk copy: its spaces, its targets, and the mbarrier that it signals."""

    def __init__(self, operands: Operands) -> None:
        to, source = operands.modifier("to"), operands.modifier("from")
        self.to, self._from = SPACES.get(to, to), SPACES.get(source, source)
        self._target = operands.address("dst") if "dst" in operands else None
        self._origin = operands.address("src") if "src" in operands else None
        self._mask = operands.word("mask", "u16") if "mask" in operands else None
        self._barrier = operands.barrier(self.to) if "mbarrier" in operands else None

    def source(self, who: Issuer, size: int, alignment: int) -> Place:
        """The bytes that are copied."""
        assert self._origin is not None
        return who.find(self._from, self._origin(who), size, alignment)

    def targets(self, who: Issuer, size: int, alignment: int) -> Iterator[tuple[Place, int | None]]:
        """Targets of a copy, with the mbarrier that each place signals; several for a multicast,
        each at the same offset in its block."""
        assert self._target is not None
        address = self._target(who)
        barrier = None if self._barrier is None else self._barrier(who)
        if self._mask is None:
            yield who.find(self.to, address, size, alignment, write=True), barrier
            return
        assert barrier is not None
        for rank in ranks_of(who, self._mask(who)):
            yield in_block(who, address, rank, size, alignment), same_barrier(who, barrier, rank)


def ranks_of(who: Issuer, mask: int) -> list[int]:
    """The blocks of a cluster that a multicast names; Failure where it names others."""
    size = len(who.cluster)
    if mask >> size:
        raise Failure("multicast", f"mask {mask:#x} in a cluster of {size}")
    return [rank for rank in range(size) if mask >> rank & 1]


def in_block(who: Issuer, address: int, rank: int, size: int, alignment: int) -> Place:
    """Bytes to write at an offset in shared memory, in the block of a rank in the cluster."""
    place = rank << RANK_BITS | address & OFFSET
    return who.find("cluster", place, size, alignment, write=True)


def same_barrier(who: Issuer, barrier: int, rank: int) -> int:
    """The mbarrier at the offset of another one, in the block of a rank in the cluster."""
    words = who.shared_bytes // 8
    return barrier % words + who.cluster[rank] * words


def submit(who: Issuer, barrier: int | None, size: int, perform: Callable[[], None]) -> None:
    """Issues an operation on `size` bytes, which an mbarrier or the thread's group waits for."""
    if who.watch is not None:
        who.watch.issued(who.lane, barrier)

    def complete() -> None:
        perform()
        who.advance()
        if barrier is not None:
            who.change(barrier, Change(transactions=-size))

    who.pending.transfer(Transfer(who.lane, complete, barrier))


def poison(who: Issuer, place: Place) -> None:
    """Fills the destination of a copy with a pattern, until it takes effect."""
    if not who.pending.at_once:
        place.bytes[:] = POISON
