"""Checks of tcgen05: who issues it, what it reads, in which order, and what a block leaves
allocated (PTX ISA 9.7.16.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.errors import runs
from emulator.layout.tensor_memory import LANES
from emulator.machine.checks.accesses import Conflict, Sort
from emulator.machine.checks.completion import Completion, lanes_of
from emulator.machine.checks.finding import Party
from emulator.machine.shared.tensor_order import Load, TensorOperation
from emulator.machine.vector.strand import WARP, Lanes, Strand
from emulator.memory.space import Space
from emulator.memory.tensor_memory import TensorMemory, Words

if TYPE_CHECKING:
    from emulator.machine.checks.async_watch import AsyncWatch

Places = NDArray[np.int64]


class HeardSpace(Space):
    """Shared memory of a block, of which the checks hear what one thread's tcgen05 reads."""

    def __init__(self, checks: TensorCoreChecks, held: Array, row: int, lane: int) -> None:
        super().__init__("shared memory", held)
        self._checks, self._row, self._lane = checks, row, lane

    def load(self, addresses: Places, size: int, alignment: int = 1) -> Array:
        found = super().load(addresses, size, alignment)
        places = np.asarray(addresses).reshape(-1, 1) + np.arange(size)
        watch = self._checks.watch
        flat = watch.tensor_core_reads(self._row, places.reshape(-1), self._lane)
        self._checks.read_shared(flat, len(watch.shared.shadow.written))
        return found


# --- what operations do ---------------------------------------------------------------------------


class _Shadow(NamedTuple):
    """Of each word of a tensor memory, the number of the last operation that wrote it, of the last
    ld that read it, and of the last other one that did; 0: none."""

    written: NDArray[np.int32]
    loaded: NDArray[np.int32]
    used: NDArray[np.int32]


class TensorCoreChecks:
    """Checks of tcgen05 in a wave, called by its steps."""

    def __init__(self, watch: AsyncWatch) -> None:
        self.watch = watch
        self.completion = Completion(watch)
        #: operations by their numbers, with their events
        self._operations: list[tuple[TensorOperation, int]] = []
        self._shadows: dict[TensorMemory, _Shadow] = {}
        #: by the first lane of a warp, registers that a ld under way writes, with its event
        self.arriving: dict[int, dict[int, int]] = {}
        #: of granules of shared memory, the number of the last operation that read them
        self._read = np.zeros(0, np.int32)

    def space(self, held: Array, row: int, lane: int) -> Space:
        return HeardSpace(self, held, row, lane)

    def issued(self, lanes: Lanes) -> None:
        """Threads have issued an operation, each its own."""
        warps, counts = np.unique(lanes // WARP, return_counts=True)
        if (counts > 1).any():
            mine = lanes[lanes // WARP == warps[int(np.argmax(counts > 1))]]
            self.watch.report(
                "issued more than once",
                mine,
                len(mine),
                f"{len(mine)} threads of a warp issue it, and each issues the whole operation",
            )

    def operation(self, operation: TensorOperation) -> None:
        """An operation is issued: what it reads and overwrites must be complete."""
        # What it does, and the words that it moves, are not kept.
        kept = TensorOperation(
            operation.lane,
            tuple,
            name=operation.name,
            cta_group=operation.cta_group,
            accumulator=operation.accumulator,
            complete=operation.complete,
        )
        self._operations.append((kept, self.watch.now))
        operation.hear()
        number, reads, writes = len(self._operations), operation.reads(), operation.writes()
        told: set[tuple[str, int]] = set()
        for words in reads:
            self._judge(operation, "reads", words, self._shadow(words.memory)[:1], told)
        for words in writes:
            self._judge(operation, "writes", words, self._shadow(words.memory), told)
        for memory, lanes, columns in reads:
            shadow = self._shadow(memory)
            held = shadow.loaded if operation.name == Load.name else shadow.used
            held[lanes, columns] = number
        for memory, lanes, columns in writes:
            self._shadow(memory).written[lanes, columns] = number

    def _shadow(self, memory: TensorMemory) -> _Shadow:
        if memory not in self._shadows:
            self._shadows[memory] = _Shadow(*np.zeros((3, *memory.words.shape), np.int32))
        return self._shadows[memory]

    def _earlier(
        self, words: Words, shadows: tuple[Array, ...]
    ) -> Iterator[tuple[int, str, Array]]:
        """Numbers of the operations that touched words, what they did, and the columns."""
        for shadow, verb in zip(shadows, ("writes", "reads", "reads"), strict=False):
            held = shadow[words.lanes, words.columns]
            for number in np.unique(held).tolist():
                if number:
                    mine = np.broadcast_to(words.columns, held.shape)[held == number]
                    yield number, verb, np.unique(mine)

    def _judge(
        self,
        operation: TensorOperation,
        verb: str,
        words: Words,
        shadows: tuple[Array, ...],
        told: set[tuple[str, int]],
    ) -> None:
        """Reports what is wrong with each earlier operation on words, once for each statement."""
        for number, did, columns in self._earlier(words, shadows):
            first, event = self._operations[number - 1]
            if event == self.watch.now and first.lane // WARP == operation.lane // WARP:
                continue  # issued more than once, which is told as such
            kind, reason = self.completion.problem(first, event, operation)
            what = kind, self.watch.all.pcs[event]
            if kind and what not in told:
                told.add(what)
                self._report(kind, lanes_of(operation), verb, did, reason, columns, (first, event))

    def _report(
        self,
        kind: str,
        lanes: Lanes,
        verb: str,
        did: str,
        reason: str,
        columns: Array,
        earlier: tuple[TensorOperation, int],
    ) -> None:
        watch, (first, event) = self.watch, earlier
        pc = watch.all.pcs[event]
        name = f"tcgen05.{first.name.partition('.')[0]}"
        done = "wrote" if did == "writes" else "read"
        under_way = kind == "tcgen05 in flight"
        what = f"which a {name} under way {did}" if under_way else f"which a {name} {done}"
        watch.report(
            kind,
            lanes,
            len(lanes),
            f"{verb} columns {runs(columns.tolist())} of tensor memory, {what}; {reason}",
            Party(watch.place(pc), *watch.who(lanes_of(first)), f"{done} them"),
            pc,
        )

    def unwritten(self, lanes: Lanes, what: str, pc: int) -> None:
        """Words of tensor memory are read that nothing has written."""
        self.watch.report(
            "tensor memory",
            lanes,
            len(lanes),
            f"{what} reads columns of tensor memory that nothing has written",
            pc=pc,
        )

    # --- registers ---

    def loads(self, lane: int, registers: Iterable[int]) -> None:
        """A ld of a warp, by its first lane, is to write registers."""
        self.arriving.setdefault(lane, {}).update(dict.fromkeys(registers, self.watch.now))

    def wait(self, name: str, lanes: Lanes) -> None:
        """wait::ld or wait::st of warps."""
        self.completion.wait(name, lanes)
        if name == Load.name and self.arriving:
            for lane in np.unique(lanes - lanes % WARP).tolist():
                self.arriving.pop(lane, None)

    def touched(self, s: Strand, read: frozenset[int], written: frozenset[int]) -> None:
        """A statement uses registers, which waits for what a ld brings, or writes them."""
        for warp in np.unique(s.lanes // WARP).tolist():
            held = self.arriving.get(warp * WARP, {})
            over = {held[register] for register in read & held.keys()}
            for register in [x for x, event in held.items() if event in over]:
                del held[register]
            if wrong := written & held.keys():
                lanes, event = s.lanes[s.lanes // WARP == warp], held[min(wrong)]
                pc, name = (
                    self.watch.all.pcs[event],
                    s.frames[-1].function.registers[min(wrong)].name,
                )
                self.watch.report(
                    "tcgen05 in flight",
                    lanes,
                    len(lanes),
                    f"writes register {name}, which a tcgen05.ld under way writes; its warp has "
                    "executed no tcgen05.wait::ld since",
                    Party(self.watch.place(pc), *self.watch.who(lanes), "loads it"),
                    pc,
                )
            for register in wrong:
                del held[register]

    # --- shared memory ---

    def read_shared(self, at: Places, granules: int) -> None:
        """The operation that was issued last reads granules of shared memory, of so many."""
        if not len(self._read):
            self._read = np.zeros(granules, np.int32)
        self._read[at] = len(self._operations)

    def conflicts(self, lanes: Lanes, at: Places) -> Iterator[Conflict]:
        """Reads by operations that lanes which write granules do not know to be complete."""
        if not len(self._read):
            return
        numbers = self._read[at]
        for number in np.unique(numbers[numbers > 0]).tolist():
            first, event = self._operations[number - 1]
            mine = np.flatnonzero(numbers == number)
            which = mine[~self.completion.commit_seen(first, event, lanes[mine])]
            if which.size:
                others = np.full(len(which), first.lane)
                yield Conflict("read", which, np.full(len(which), event), others, Sort.PLAIN)

    # --- allocations ---

    def given_back(self, memory: TensorMemory, column: int, count: int, lane: int) -> None:
        """A warp, by its first lane, gives columns back: all that uses them must be complete."""
        shadow, lanes = self._shadow(memory), lane + np.arange(WARP)
        words = Words(memory, np.arange(LANES)[:, None], column + np.arange(count))
        for number, did, columns in self._earlier(words, shadow):
            earlier = self._operations[number - 1]
            kind, reason = self.completion.unknown(*earlier, lanes, fences=False)
            if kind:
                self._report(kind, lanes, "gives back", did, reason, columns, earlier)
        for held in shadow:
            held[:, words.columns] = 0

    def finish(self) -> None:
        """All threads have ended: everything must have been given back."""
        for row, memory in self.watch.wave.tensor.items():
            if memory.allocations:
                lane = np.array([row * self.watch.clocks.per_block])
                left = ", ".join(map(str, memory.allocations))
                self.watch.report(
                    "tensor memory",
                    lane,
                    1,
                    f"the block ends, and {left} of its tensor memory are still allocated",
                    None,
                    "left",
                )
