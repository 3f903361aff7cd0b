"""All engines: what a statement that is stated once asks an engine for, and what it gives.

A statement names the operands that it reads and writes (`OperandList`) and becomes a function of
whoever executes it. That is an `Issuer`, one thread or one warp by its first lane, where each
thread's operation is one of its own, as a bulk copy is; and an `Executor` where all lanes of a
strand may execute it at once. The words of an Executor are integers in the reference engine and
arrays in the vector engine. An engine makes issuers and executors of its threads or lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith import Engine
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.launching import RunningLaunch
from emulator.machine.shared.operands import Words, constant, ordinary, space_of, to_shared
from emulator.machine.shared.pending import POISON, Pending, Transfer
from emulator.machine.shared.phases import PhaseWait
from emulator.machine.shared.place import Index
from emulator.machine.shared.tensor_order import Pairs, TensorOperation
from emulator.memory.arena import Arena
from emulator.memory.mbarrier import Change
from emulator.memory.multicast import OfDevices
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


class Span(NamedTuple):
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

    @property
    def completion(self) -> CompletionWatch: ...

    def space(self, held: Array, row: int, lane: int) -> Space: ...
    def operation(self, operation: TensorOperation) -> None: ...
    def loads(self, lane: int, registers: Sequence[int]) -> None: ...
    def unwritten(self, lanes: Places, what: str, pc: int) -> None: ...
    def given_back(self, memory: TensorMemory, address: int, columns: int, lane: int) -> None: ...


class PhaseWatch(Protocol):
    """Checks of phases: who has seen which end."""

    def waited(self, lanes: Places, places: Places) -> None: ...


class Watch(Protocol):
    """Checks of asynchronous statements, where a launch brings some."""

    @property
    def tensor_cores(self) -> TensorCoreWatch: ...

    def issued(self, lane: int, barrier: int | None) -> None: ...
    def stored_by_copy(self, lanes: Places, places: Places) -> None: ...
    def map_used(self, lanes: Places, held: Array, place: int) -> None: ...
    def copies_arrive(self, lanes: Places, places: Places) -> None: ...
    def mbarrier_init(self, lanes: Places, places: Places) -> None: ...
    def mbarrier_inval(self, lanes: Places, places: Places) -> None: ...
    def mbarrier_used(self, lanes: Places, places: Places, *, arrives: bool = True) -> None: ...
    @property
    def sync(self) -> PhaseWatch: ...


class Issuer(Protocol):
    """One thread, or one warp by its first lane, that executes a statement."""

    #: operations under way, and the numbers of the thread and its block among those of them
    pending: Pending
    lane: int
    row: int
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

    @property
    def launch(self) -> RunningLaunch: ...
    @property
    def coordinates(self) -> tuple[Index, Index]:
        """Block and thread."""

    @property
    def lanes(self) -> Places:
        """All threads that execute it alike, for the checks: nearly always the one alone."""

    def word(self, place: int) -> int:
        """The operand that stands at a place in the list of its statement's `Operands`."""

    def find(
        self, space: str, address: int, size: int, alignment: int, *, write: bool = False
    ) -> Span:
        """Finds the memory of an access; raises AccessError where the access is illegal."""

    def of_devices(self, addresses: Array, size: int) -> Iterator[OfDevices]:
        """As that of an `Executor`."""

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


class Writer(Protocol):
    """Threads whose operands are written."""

    def write(self, place: int, words: Words) -> None:
        """Gives words to the operand at a place in the list of those that are written."""


class Meeting(Writer, Protocol):
    """Threads that come to a barrier at once, all that execute the statement together; their words
    are arrays."""

    def word(self, place: int) -> Words:
        """The operand that stands at a place in the list of operands that are read."""

    def arrive(self, arrival: Arrival) -> None:
        """Arrives at a barrier of the block, and waits for it."""

    def arrive_in_cluster(self) -> None:
        """Arrives at the barrier of the cluster."""

    def wait_in_cluster(self) -> None:
        """Waits for the phase of that barrier in which the threads have arrived."""


class Executor(Writer, Protocol):
    """The threads that execute a statement at once: one, or lanes of a strand.

    What they are given and give is an integer or an array (`Words`). The index of a Failure counts
    these threads; that of an AccessError is the engine's.
    """

    #: operations under way
    pending: Pending
    #: blocks of a cluster
    cluster_size: int
    #: the checks, if the launch has any
    watch: Watch | None

    @property
    def arena(self) -> Arena:
        """Global memory, with the textures and surfaces of the launch."""

    @property
    def lanes(self) -> Places:
        """The numbers of the threads among those of `pending`."""

    @property
    def ranks(self) -> Words:
        """The rank of each thread's block in its cluster."""

    def word(self, place: int) -> Words:
        """The operand that stands at a place in the list of operands that are read."""

    def spread(self, words: Words, dtype: type[np.unsignedinteger]) -> Array:
        """Words of so many bits as an array with an entry for each thread."""

    def load(self, space: str, addresses: Array, size: int, which: Places) -> Array:
        """Bytes ``(n, size)`` at the addresses of some of the threads."""

    def store(self, space: str, addresses: Array, raw: Array, which: Places, size: int) -> None:
        """Writes bytes at the addresses of some of the threads; `size`: those of the whole access
        that they are a part of."""

    def update(self, addresses: Array, ins: OrdinaryInstruction, raw: Array, which: Places) -> None:
        """Executes a reduction on global memory for some of the threads; `raw` are the bytes
        ``(n, size)`` that are combined with memory, word by word."""

    def of_devices(self, addresses: Array, size: int) -> Iterator[OfDevices]:
        """Where accesses at multimem addresses lead to, in the memory of each device; raises
        AccessError for an address that is none."""

    def change_barriers(self, barriers: Words, change: Change) -> Words:
        """Changes the mbarrier of each thread, or a single one, and lets those go on that wait for
        it; the words before that."""

    def barrier_words(self, barriers: Words) -> Words:
        """The words that mbarriers hold."""

    def wait_for(self, wait: PhaseWait, over: Words, write: Write) -> None:
        """Waits for phases; `write` gives a thread that goes on whether its phase is over."""

    def put_barriers(self, barriers: Words, counts: Words, layout: int) -> None:
        """Makes mbarriers of a layout that expect counts of arrivals."""

    @property
    def stack_top(self) -> int:
        """First byte of local memory that no call of the threads takes."""

    def set_stack(self, end: int) -> None:
        """Says where the stack of the threads' call ends."""

    def need_local(self, size: int) -> None:
        """Makes room for so many bytes of local memory in each thread."""

    def copy(self, to: Words, source: Words, sizes: Words, size: int) -> None:
        """Issues cp.async of `size` bytes each, of which so many come from global memory."""


# --- what a statement asks for --------------------------------------------------------------------

W = TypeVar("W", int, Words)
W_co = TypeVar("W_co", covariant=True)


class _Reader(Protocol[W_co]):
    """An `Issuer`, whose words are integers, or an `Executor`."""

    def word(self, place: int) -> W_co: ...


Read = Callable[[_Reader[int]], int]
Run = Callable[[Issuer], None]
RunAtOnce = Callable[[Executor], None]
RunMeeting = Callable[[Meeting], None]
Write = Callable[[Writer, Words], None]
#: takes the votes at a bar.red: how many threads voted, and how many voted true
Finish = Callable[[Writer, Words, Words], None]


class Arrival(NamedTuple):
    """An arrival of threads at a barrier of their block."""

    number: Words
    #: how many it is for; 0: all of the block
    threads: Words
    waits: bool
    #: of bar.red: their votes, and what is told of all votes when they go on
    vote: Words | None
    finish: Finish | None


#: the words in memory and the given ones -> the new ones in memory
Combine = Callable[..., Array]


class Wanted(NamedTuple):
    """An operand that is read: a word of a type, a number (a word of up to 32 bits that is to be
    computed with), an address, or the mbarrier at an address of a state space, as its number among
    the 8-byte words of shared memory of all blocks."""

    name: str
    kind: Literal["word", "number", "address", "mbarrier"]
    bound: Bound
    #: the type of a word, the space of an mbarrier
    detail: str = ""
    #: of a statement of warps: all lanes must hold the same; otherwise the first lane's counts
    same: bool = False


class OperandList(Generic[W]):
    """The operands of one statement: a list of those that it reads, and of those that it writes."""

    def __init__(self, statement: Statement, bind: Callable[..., Combine]) -> None:
        self.statement, self.ins = statement, ordinary(statement)
        self.wanted: list[Wanted] = []
        #: operands that are written, with the types of their words; None for the sink ``_``
        self.results: list[tuple[Bound | None, str]] = []
        self._bind = bind

    def __contains__(self, name: str) -> bool:
        return name in self.statement.operands

    def word(self, name: str, type_: str, *, same: bool = False) -> Callable[[_Reader[W]], W]:
        """An operand that the instruction takes for a type."""
        return self._read(Wanted(name, "word", self.statement.operands[name], type_, same))

    def number(self, name: str, default: W) -> Callable[[_Reader[W]], W]:
        """An operand of type u32 that is computed with; `default` where the statement has none."""
        bound = self.statement.operands.get(name)
        if bound is None:
            return lambda who: default
        return self._read(Wanted(name, "number", bound, "u32"))

    def words(self, name: str, type_: str) -> list[Callable[[_Reader[W]], W]]:
        """The items of an operand in braces."""
        items = items_of(self.statement.operands.get(name)) if name in self else ()
        return self.items([item for item in items if item is not None], type_, name)

    def items(
        self, bounds: Iterable[Bound], type_: str, name: str = ""
    ) -> list[Callable[[_Reader[W]], W]]:
        """Several operands of one type."""
        return [self._read(Wanted(name, "word", bound, type_)) for bound in bounds]

    def coordinates(self, name: str) -> list[Callable[[_Reader[W]], W]]:
        """The coordinates behind the address of a tensor map."""
        place = self.statement.operands[name]
        assert isinstance(place, Address)
        (given,) = place.coordinates
        return self.items([item for item in items_of(given) if item], "b32", name)

    def address(self, name: str, *, same: bool = False) -> Callable[[_Reader[W]], W]:
        """The address of a memory operand."""
        return self._read(Wanted(name, "address", self.statement.operands[name], same=same))

    def barrier(self, space: str | None = None) -> Callable[[_Reader[W]], W]:
        """The mbarrier; `space` is "cluster" where it is in the block that a copy goes to."""
        bound = self.statement.operands["mbarrier"]
        named = space_of(self.statement, bound) if space is None else space
        return self._read(Wanted("mbarrier", "mbarrier", bound, named))

    def result(self, bound: Bound | None, type_: str) -> Write:
        """A function that gives words of a type to an operand."""
        place = len(self.results)
        self.results.append((bound, type_))
        return lambda who, words: who.write(place, words)

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

    def _read(self, wanted: Wanted) -> Callable[[_Reader[W]], W]:
        place = len(self.wanted)
        self.wanted.append(wanted)
        return lambda who: who.word(place)


#: of a statement that an `Issuer` executes, and of one that an `Executor` does
Operands = OperandList[int]
LaneOperands = OperandList[Words]
Make = Callable[[Operands], Run]
MakeAtOnce = Callable[[LaneOperands], RunAtOnce]
MakeMeeting = Callable[[LaneOperands], RunMeeting]


# --- what many statements do ----------------------------------------------------------------------


class Issue:
    """Operands of every bulk copy: its spaces, its targets, and the mbarrier that it signals.

    `to_devices`: the target is a multimem address.
    """

    def __init__(self, operands: Operands, *, to_devices: bool = False) -> None:
        self._to_devices = to_devices
        to, source = operands.modifier("to"), operands.modifier("from")
        self.to, self._from = SPACES.get(to, to), SPACES.get(source, source)
        self._target = operands.address("dst") if "dst" in operands else None
        self._origin = operands.address("src") if "src" in operands else None
        self._mask = operands.word("mask", "u16") if "mask" in operands else None
        self._barrier = operands.barrier(self.to) if "mbarrier" in operands else None

    def source(
        self, who: Issuer, size: int, alignment: int, skipped: tuple[int, int] = (0, 0)
    ) -> Span:
        """The bytes that are copied, without some at the start and the end that need not be
        there."""
        assert self._origin is not None
        address, left, rest = self._origin(who), skipped[0], size - sum(skipped)
        if rest == size:
            return who.find(self._from, address, size, alignment)
        if address % alignment:
            raise Failure("misaligned", f"address {address:#x} is no multiple of {alignment}")
        if rest <= 0:
            return Span(lambda: np.zeros(0, np.uint8), 0, 0)
        return who.find(self._from, address + left, rest, 1)

    def targets(self, who: Issuer, size: int, alignment: int) -> Iterator[tuple[Span, int | None]]:
        """Targets of a copy, with the mbarrier that each place signals; several for a multicast,
        each at the same offset in its block."""
        assert self._target is not None
        address = self._target(who)
        barrier = None if self._barrier is None else self._barrier(who)
        if self._to_devices:
            (part,) = who.of_devices(np.array([address], np.uint64), size)
            for (place,) in part.addresses:
                yield who.find(self.to, int(place), size, alignment, write=True), barrier
            return
        if self._mask is None:
            yield who.find(self.to, address, size, alignment, write=True), barrier
            return
        assert barrier is not None
        for rank in ranks_of(who, self._mask(who)):
            yield in_block(who, address, rank, size, alignment), same_barrier(who, barrier, rank)


def shared_offset(operands: Operands, name: str) -> Read:
    """The offset in shared memory of an address there, which may be a generic one."""
    find, generic = operands.address(name), operands.space(name) == ""
    return lambda who: (to_shared(find(who)) if generic else find(who)) & OFFSET


def require(legal: Words, kind: str, reason: Callable[[int], str], words: Words) -> None:
    """Raises Failure for the first thread whose word is not legal; `reason` says why of a word."""
    if not np.all(legal):
        first = int(np.argmin(legal))
        given = np.atleast_1d(words)
        raise Failure(kind, reason(int(given[first if len(given) > 1 else 0])), first)


def ranks_of(who: Issuer, mask: int) -> list[int]:
    """The blocks of a cluster that a multicast names; Failure where it names others."""
    size = len(who.cluster)
    if mask >> size:
        raise Failure("multicast", f"mask {mask:#x} in a cluster of {size}")
    return [rank for rank in range(size) if mask >> rank & 1]


def in_block(who: Issuer, address: int, rank: int, size: int, alignment: int) -> Span:
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


def poison(who: Issuer, place: Span) -> None:
    """Fills the destination of a copy with a pattern, until it takes effect."""
    if not who.pending.at_once:
        place.bytes[:] = POISON
