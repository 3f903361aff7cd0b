"""What both engines know of tcgen05: the words of an opcode as `memory` and `warp` take them, and
in which order operations take effect (PTX ISA 9.7.16.6).

mma, cp, shift, ld and st are asynchronous: each may take effect at any moment from its issue to
what tells that it is complete, an mbarrier that a commit arrives at or a wait::ld or wait::st.
`emulator.machine.pending` chooses the moment. Until then a tcgen05.ld finds a pattern where the
operation has yet to write.

An allocation of a CTA shares its columns with no other CTA, as if each ran on a multiprocessor of
its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from dtypes import Array
from emulator.isa.tcgen05 import Tcgen05
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.layout.shared_descriptor import SharedMemoryDescriptor
from emulator.machine.failure import Failure
from emulator.machine.pending import Pending, Transfer
from emulator.memory.descriptors import load_rows
from emulator.memory.space import Space
from emulator.memory.tensor_memory import TensorMemory, Words, expanded
from emulator.ptx.program import Program, Statement, registers_of, successors
from emulator.targets import Target
from emulator.warp.tensor_load import compressed, reduced
from emulator.warp.tensor_mma import TensorMma
from emulator.warp.tensor_multiply import TensorProduct


def check_pair(blocks: int) -> None:
    """Failure where the blocks of a cluster, so many, make no pairs."""
    if blocks % 2:
        raise Failure(
            "cta pair",
            f".cta_group::2 needs a pair: a cluster of 2, 4, … blocks; this one has {blocks}",
        )


class Pairs:
    """Warps that have come to an operation of .cta_group::2 which one warp of each CTA of a pair
    executes: alloc, dealloc, relinquish_alloc_permit. The first waits for the other one."""

    def __init__(self) -> None:
        #: by CTA and operation, how many warps have come to it so far
        self._counts: defaultdict[tuple[Hashable, str], int] = defaultdict(int)
        #: of a warp that has come to one and not gone on, the number of its coming
        self._there: dict[Hashable, int] = {}

    def arrive(self, warp: Hashable, cta: Hashable, name: str) -> None:
        if warp not in self._there:
            self._counts[cta, name] += 1
            self._there[warp] = self._counts[cta, name]

    def is_complete(self, warp: Hashable, peer: Hashable, name: str) -> bool:
        """Whether a warp of the other CTA has come as often."""
        return self._counts[peer, name] >= self._there[warp]

    def leave(self, warp: Hashable) -> None:
        """A warp goes on."""
        self._there.pop(warp, None)


class Access(NamedTuple):
    """An ld or st as the opcode has it."""

    shape: str
    num: int
    #: .pack::16b, .unpack::16b
    packed: bool

    @classmethod
    def of(cls, ins: Tcgen05) -> Access:
        given = ins.modifiers
        packed = given.get("pack::16b", "") or given.get("unpack::16b", "")
        return cls(given["shape"], int(given["num"][1:]), bool(packed))


class Registers(NamedTuple):
    """What a tcgen05.ld gives: ``(32, n)`` for each operand that is written."""

    words: list[Array]
    #: whether anything had written any of it
    defined: bool


def loaded(ins: Tcgen05, memory: TensorMemory, address: int, warp: int, split: int) -> Registers:
    """The registers of a tcgen05.ld of a warp."""
    shape, num, packed = Access.of(ins)
    words, defined = memory.load(address, shape, num, warp, packed=packed, split=split)
    return Registers(_results(ins, words), bool(defined.any()))


def _results(ins: Tcgen05, words: Array) -> list[Array]:
    given = ins.modifiers
    extreme: Any = given.get("operation", "")
    if not extreme:
        return [words]
    absolute, nan = bool(given.get("abs")), bool(given.get("NaN"))
    found = [reduced(words, extreme, ins.types[0], absolute=absolute, nan=nan)[:, None]]
    found = found if given.get("red") else []
    kept = [words]
    if given.get("spcompress"):
        kept = list(compressed(words, extreme, absolute=absolute))
    return kept + found


def copy_shape(ins: Tcgen05) -> str:
    """The shape of a tcgen05.cp with its multicast."""
    given = ins.modifiers
    return ".".join(filter(None, (given["shape"], given.get("lanes", ""))))


def copy(
    ins: Tcgen05, memory: TensorMemory, shared: Space | Array, address: int, descriptor: int,
    target: Target,
) -> None:  # fmt: skip
    """tcgen05.cp from the shared memory of a CTA to its tensor memory."""
    shape = copy_shape(ins)
    rows = load_rows(shared, SharedMemoryDescriptor.decode(descriptor, target), shape)
    if source := ins.modifiers.get("source"):
        rows = expanded(rows, source)
    memory.copy(address, shape, rows)


@lru_cache(maxsize=256)
def product(ins: Tcgen05, word: int, scale_input_d: int, target: Target) -> TensorMma:
    """The product that an opcode and an instruction descriptor settle."""
    given = ins.modifiers
    kind = given.get("kind", "").removeprefix("kind::")
    descriptor = InstructionDescriptor.decode(word, kind)
    return TensorMma(
        TensorProduct(descriptor, target, given.get("scale_vec", ""), scale_input_d),
        ins.cta_group, bool(given.get("ws")), bool(given.get("ashift")),
        bool(given.get("decompress::lut::b")),
    )  # fmt: skip


# --- order ----------------------------------------------------------------------------------------

#: operations of one thread and one .cta_group of which the second takes effect after the first
#: (PTX ISA 9.7.16.6.2); of two mma those of one accumulator and shape
PIPELINES = frozenset({
    ("mma", "mma"), ("cp", "mma"), ("cp.4x256b", "mma"), ("shift", "mma"), ("mma", "shift"),
    ("shift", "cp.4x256b"),
})  # fmt: skip
#: the same, where the manual leaves the order open: block-scaled main loops, CUTLASS's and
#: Triton's, copy the next scales over those that an mma before reads
RELIED_ON = frozenset({("mma", "cp"), ("cp", "cp")})
#: what a commit waits for
COMMITTED = frozenset({"mma", "cp", "cp.4x256b", "shift"})


@dataclass(eq=False)
class Operation(Transfer):
    """An operation of a thread that was issued, or a ld or st of a warp, by its first lane."""

    #: "mma", "cp", "cp.4x256b", "shift", "commit", "ld", "st"
    name: str = ""
    #: of a ld or st 0
    cta_group: int = 0
    #: of an mma: where D lies, and its shape
    accumulator: tuple[int, ...] = ()
    #: of a ld: a register dependency says that it is complete, and not a wait::ld
    complete: bool = False
    #: the words that it is to write, once it was issued
    words: Sequence[Words] = ()
    #: what it is to read, and to write
    reads: Callable[[], Sequence[Words]] = tuple
    writes: Callable[[], Sequence[Words]] = tuple
    #: reads the shared memory that it is to read, for checks that hear it
    hear: Callable[[], object] = tuple

    def follows(self, other: Transfer) -> bool:
        return isinstance(other, Operation) and other.lane == self.lane and ordered(other, self)

    def belongs(self, lanes: set[int], groups: Any) -> bool:
        return False

    def issue(self, pending: Pending, placed: Callable[[Exception], Exception]) -> None:
        """It takes effect now, or later; then a pattern stands in what it is to write, and `placed`
        says where an error belongs."""
        if pending.at_once or self.complete:
            self.perform()
            return
        effect, self.words = self.perform, self.writes()

        def perform() -> None:
            for memory, lanes, columns in self.words:
                memory.under_way[lanes, columns] -= 1
            try:
                effect()
            except Exception as error:
                raise placed(error) from error

        self.perform = perform
        for memory, lanes, columns in self.words:
            memory.under_way[lanes, columns] += 1
        pending.transfer(self)


def ordered(first: Operation, second: Operation) -> bool:
    """Whether of two operations of one thread the first takes effect before the second."""
    if first.cta_group != second.cta_group:
        return False
    if second.name == "commit":
        return first.name in COMMITTED
    if (first.name, second.name) == ("mma", "mma"):
        return first.accumulator == second.accumulator
    return (first.name, second.name) in PIPELINES | RELIED_ON


@dataclass(eq=False)
class Load(Operation):
    """A ld that gives its registers to the wait::ld behind it: nothing looks at them before."""

    name: str = "ld"
    #: `Registers` of the engine, and what was read for each, once it took effect
    results: Sequence[Any] = ()
    found: Sequence[Array] = ()

    @classmethod
    def of(cls, lane: int, read: Callable[[], Sequence[Array]], results: Sequence[Any]) -> Load:
        made = cls(lane, lambda: None, results=results)

        def perform() -> None:
            made.found = read()

        made.perform = perform
        return made


def stored(pending: Pending, lanes: Collection[int]) -> None:
    """wait::st of warps, by their first lanes."""
    pending.settle(lambda x: isinstance(x, Operation) and x.name == "st" and x.lane in lanes)


def arrived(pending: Pending, lanes: Collection[int]) -> list[Load]:
    """wait::ld of warps, by their first lanes: what it gives to registers, the oldest first."""
    found = [x for x in pending.loads if x.lane in lanes]
    pending.settle(lambda x: x in found)
    pending.loads = [x for x in pending.loads if x not in found]
    return found


class Waits:
    """What completes the ld at a place: a wait::ld behind it, or the use of its registers."""

    def __init__(self, pc: int) -> None:
        self._pc = pc
        self._waits: bool | None = None

    def defer(self, pending: Pending, program: Program, loads: Iterable[Load]) -> bool:
        """Whether loads give their registers to the wait::ld."""
        if self._waits is None:
            self._waits = _is_waited_for(program, self._pc)
        for load in loads:
            load.complete = not self._waits
        return self._waits and not pending.at_once


def _is_waited_for(program: Program, pc: int) -> bool:
    """Whether behind a ld every path comes to a wait::ld before anything touches its registers.

    Where one does not, the register dependency alone keeps the order.
    """
    results = {i for bound in program.statements[pc].bound("written") for i in registers_of(bound)}
    open_, seen = [pc + 1], set()
    while open_:
        at = open_.pop()
        if at in seen:
            continue
        seen.add(at)
        statement = program.statements[at]
        covers = str(statement.instruction).startswith("tcgen05.wait::ld")
        if covers and statement.guard is None:
            continue
        if statement.name in ("call", "ret") or results & _touched(statement):
            return False
        open_ += successors(statement)
    return True


def _touched(statement: Statement) -> set[int]:
    parts = statement.expansion or (statement,)
    bounds = [bound for part in parts for bound in part.operands.values()]
    return {i for bound in bounds for i in registers_of(bound)}


def given_back(pending: Pending, memory: TensorMemory) -> None:
    """Columns of a CTA are given back: what is under way there takes effect before."""
    pending.settle(
        lambda x: isinstance(x, Operation) and any(held.memory is memory for held in x.words)
    )
