"""All engines: in which order operations of tcgen05 take effect (PTX ISA 9.7.16.6).

mma, cp, shift, ld and st are asynchronous: each may take effect at any moment from its issue to
what tells that it is complete, an mbarrier that a commit arrives at or a wait::ld or wait::st.
`pending` chooses the moment. Until then a tcgen05.ld finds a pattern where the operation has yet to
write.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dtypes import Array
from emulator.machine.shared.pending import Pending, Transfer
from emulator.memory.tensor_memory import TensorMemory, Words
from emulator.ptx.program import Program, Statement, registers_of, successors

#: operations of one thread and one .cta_group of which the second takes effect after the first
#: (PTX ISA 9.7.16.6.2); of two mma those of one accumulator and shape
PIPELINES = frozenset({
    ("mma", "mma"), ("cp", "mma"), ("cp.4x256b", "mma"), ("shift", "mma"), ("mma", "shift"),
    ("shift", "cp.4x256b"),
})  # fmt: skip
#: the same, where the manual leaves the order open: block-scaled main loops, CUTLASS's and
#: Triton's, copy the next scales over those that an mma before reads
RELIED_ON = frozenset({("mma", "cp"), ("cp", "cp")})
#: operations that a wait::st waits for
STORE = "st"
#: operations that a commit waits for
COMMITTED = frozenset({"mma", "cp", "cp.4x256b", "shift"})


@dataclass(eq=False)
class TensorOperation(Transfer):
    """An operation of a thread that was issued, or a ld or st of a warp, by its first lane."""

    in_group: ClassVar[bool] = False
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
    #: memory that it reads, and memory that it writes
    reads: Callable[[], Sequence[Words]] = tuple
    writes: Callable[[], Sequence[Words]] = tuple
    #: reads the shared memory that it is to read, for checks that hear it
    hear: Callable[[], object] = tuple

    def follows(self, other: Transfer) -> bool:
        return (
            isinstance(other, TensorOperation) and other.lane == self.lane and ordered(other, self)
        )

    def reaches(self, memory: TensorMemory) -> bool:
        """True until it has read or written that memory."""
        return any(held.memory is memory for held in self.words)

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


def ordered(first: TensorOperation, second: TensorOperation) -> bool:
    """True if the first of two operations of one thread takes effect before the second."""
    if first.cta_group != second.cta_group:
        return False
    if second.name == "commit":
        return first.name in COMMITTED
    if (first.name, second.name) == ("mma", "mma"):
        return first.accumulator == second.accumulator
    return (first.name, second.name) in PIPELINES | RELIED_ON


@dataclass(eq=False)
class Load(TensorOperation):
    """A ld that gives its registers to the wait::ld behind it: nothing looks at them before."""

    name: str = "ld"
    #: `Registers` of the engine, and what was read for each, once it took effect
    results: Sequence[object] = ()
    found: Sequence[Array] = ()
    #: where it reads
    memory: TensorMemory | None = None

    @classmethod
    def of(
        cls,
        lane: int,
        memory: TensorMemory,
        read: Callable[[], Sequence[Array]],
        results: Sequence[object],
    ) -> Load:
        """The ld of a warp, by its first lane, that `read` does."""
        made = cls(lane, lambda: None, results=results, memory=memory)

        def perform() -> None:
            made.found = read()

        made.perform = perform
        return made

    def reaches(self, memory: TensorMemory) -> bool:
        return self.memory is memory


def stored(pending: Pending, lanes: Collection[int]) -> None:
    """wait::st of warps, by their first lanes."""
    pending.settle(lambda x: isinstance(x, TensorOperation) and x.name == STORE and x.lane in lanes)


def arrived(pending: Pending, lanes: Collection[int]) -> list[Load]:
    """wait::ld of warps, by their first lanes: what it gives to registers, the oldest first."""
    found = [x for x in pending.loads if isinstance(x, Load) and x.lane in lanes]
    pending.settle(lambda x: x in found)
    pending.loads = [x for x in pending.loads if x not in found]
    return found


class Waits:
    """The completion of the ld at a place: a wait::ld behind it, or the use of its registers."""

    def __init__(self, pc: int) -> None:
        self._pc = pc
        self._waits: bool | None = None

    def defer(self, pending: Pending, program: Program, loads: Iterable[Load]) -> bool:
        """Says which loads complete at a wait::ld; True if they write their registers there."""
        if self._waits is None:
            self._waits = _is_waited_for(program, self._pc)
        for load in loads:
            load.complete = not self._waits
        return self._waits and not pending.at_once


def _is_waited_for(program: Program, pc: int) -> bool:
    """True if every path behind a ld comes to a wait::ld before anything touches its registers.

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
        if "arrives" in statement.effects and statement.guard is None:
            continue
        if statement.effects & {"calls", "returns"} or results & _touched(statement):
            return False
        open_ += successors(statement)
    return True


def _touched(statement: Statement) -> set[int]:
    parts = statement.expansion or (statement,)
    bounds = [bound for part in parts for bound in part.operands.values()]
    return {i for bound in bounds for i in registers_of(bound)}


def given_back(pending: Pending, memory: TensorMemory) -> None:
    """Columns of a CTA are given back: what is under way there takes effect before."""
    pending.settle(lambda x: isinstance(x, TensorOperation) and x.reaches(memory))


# --- pairs of CTAs --------------------------------------------------------------------------------


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
        """True if a warp of the other CTA has arrived as often."""
        return self._counts[peer, name] >= self._there[warp]

    def leave(self, warp: Hashable) -> None:
        """A warp goes on."""
        self._there.pop(warp, None)
