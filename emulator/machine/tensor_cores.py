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

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from dtypes import Array
from emulator.isa.tcgen05 import Tcgen05
from emulator.layout.instruction_descriptor import InstructionDescriptor
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

#: kinds and modifiers that no part of this package computes
_NOT_MODELLED = ("kind::ti16", "decompress::lut::b")


def is_modelled(ins: Tcgen05) -> bool:
    """Whether the values of an instruction are known."""
    return not any(word in ins.words for word in _NOT_MODELLED)


def check_pair(blocks: int) -> None:
    """Failure where the blocks of a cluster, so many, make no pairs."""
    if blocks % 2:
        raise Failure(
            "cta pair",
            f".cta_group::2 needs a pair: a cluster of 2, 4, … blocks; this one has {blocks}",
        )


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
    ins: Tcgen05, memory: TensorMemory, shared: Space | Array, address: int, descriptor: int
) -> None:
    """tcgen05.cp from the shared memory of a CTA to its tensor memory."""
    shape = copy_shape(ins)
    rows = load_rows(shared, descriptor, shape)
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
    )  # fmt: skip


# --- order ----------------------------------------------------------------------------------------

#: operations of one thread and one .cta_group of which the second takes effect after the first
#: (PTX ISA 9.7.16.6.2); of two mma those of one accumulator and shape
PIPELINES = frozenset({
    ("mma", "mma"), ("cp", "mma"), ("cp.4x256b", "mma"), ("shift", "mma"), ("mma", "shift"),
    ("shift", "cp.4x256b"),
})  # fmt: skip
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
    #: the words that it is to write, once it was issued
    words: Sequence[Words] = ()
    #: what it is to write
    writes: Callable[[], Sequence[Words]] = tuple

    def follows(self, other: Transfer) -> bool:
        return isinstance(other, Operation) and other.lane == self.lane and ordered(other, self)

    def belongs(self, lanes: set[int], groups: Any) -> bool:
        return False

    def issue(self, pending: Pending, placed: Callable[[Exception], Exception]) -> None:
        """It takes effect now, or later; then a pattern stands in what it is to write, and `placed`
        says where an error belongs."""
        if pending.at_once:
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
    return (first.name, second.name) in PIPELINES


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

    def issue(self, pending: Pending, placed: Callable[[Exception], Exception]) -> None:
        pending.loads.append(self)
        super().issue(pending, placed)


def stored(pending: Pending, lanes: Collection[int]) -> None:
    """wait::st of warps, by their first lanes."""
    pending.settle(lambda x: isinstance(x, Operation) and x.name == "st" and x.lane in lanes)


def arrived(pending: Pending, lanes: Collection[int]) -> list[Load]:
    """wait::ld of warps, by their first lanes: what it gives to registers, the oldest first."""
    found = [x for x in pending.loads if x.lane in lanes]
    pending.settle(lambda x: x in found)
    pending.loads = [x for x in pending.loads if x not in found]
    return found


def is_waited_for(program: Program, pc: int) -> bool:
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
