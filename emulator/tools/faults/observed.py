"""Records the matrix instructions of a launch (operands, the rows that ldmatrix loaded, memory)
and its stores.

The reference engine shows every statement to a `Recorder` before it executes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.scalar.types import TYPES
from emulator.errors import OperandError, UnsupportedError
from emulator.isa.kinds import is_tensor_copy, is_tensor_product
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import Movement
from emulator.machine.reference.fragments import Fetch, Registers
from emulator.machine.reference.matrix import shared_address
from emulator.machine.reference.memory import resolve
from emulator.machine.reference.operands import addresses, guard_of, reader
from emulator.machine.reference.thread import Thread
from emulator.machine.shared.operands import ordinary, space_of
from emulator.machine.shared.place import Index
from emulator.machine.shared.waiting import FOR_OTHERS
from emulator.memory.space import Space
from emulator.ptx.program import Address, Statement, items_of
from emulator.tools.faults.kernel import Rows
from emulator.tools.faults.rows import load_rows
from emulator.tools.faults.transfers import Transfers
from emulator.warp import multiply
from emulator.warp.call import Call

_STORES = frozenset({"writes"})
#: matrix instructions that one launch may execute under the recorder
_MOST = 1 << 16


@dataclass(frozen=True, eq=False)
class Product:
    """One execution of a matrix instruction."""

    pc: int
    block: Index
    #: the first warp that executes it
    warp: int
    ins: MatrixInstruction
    #: a, b, c ``(lanes, registers)``; descriptor_a, descriptor_b ``()``
    words: Mapping[str, Array]
    options: Mapping[str, Any]
    #: registers of the result ``(lanes, registers)``
    result: Array
    #: all of shared memory, uint8 ``(bytes,)``
    shared: Array
    #: tensor copies that the block has been sent by then
    transfers: int
    #: where ldmatrix loaded registers of a and b from; addresses are ``(1, lanes)``
    rows: Mapping[str, Rows] = field(default_factory=dict)
    #: the statements of these ldmatrix
    loads: Mapping[str, int] = field(default_factory=dict)


class _Loaded(NamedTuple):
    """An ldmatrix that wrote a register: its addresses, and which of its tiles the register has."""

    pc: int
    addresses: Array
    tile: int
    trans: bool
    shared: Array


class Recorder:
    """Collects the dense `mma` and `wgmma` of a launch, in the order of execution, its tensor
    copies, and what each thread stores."""

    def __init__(self) -> None:
        self.products: list[Product] = []
        self.transfers = Transfers()
        #: by block and number of the thread: addresses and the bytes stored there
        self.stores: dict[tuple[Index, int], list[tuple[int, bytes]]] = {}
        #: by statement: what reads its operands
        self._readers: dict[Statement, Any] = {}
        #: by warp of the grid: register -> the ldmatrix that wrote it last
        self._loaded: dict[tuple[Index, int], dict[int, _Loaded]] = {}
        self._snapshots: dict[Index, Array] = {}

    def observe(self, threads: Sequence[Thread], pc: int) -> None:
        """Looks at a statement that is about to be executed.

        Raises UnsupportedError for a product that is not modelled.
        """
        statement = threads[0].run.program.statements[pc]
        ins = statement.instruction
        if not isinstance(ins, (MatrixInstruction, Movement)):
            if statement.effects == _STORES and isinstance(statement.operands.get("a"), Address):
                self._stored(threads, statement)
            elif is_tensor_copy(str(ins)):
                self.transfers.observe(threads, statement)
            elif is_tensor_product(str(ins)):
                raise _not_modelled(statement)
            return
        if isinstance(ins, MatrixInstruction) and (ins.is_sparse or ins.is_block_scaled):
            raise _not_modelled(statement)
        peers = together(threads, ins.lanes, statement)
        if peers and isinstance(ins, MatrixInstruction):
            self._multiplied(peers, statement, ins)
        elif peers and isinstance(ins, Movement) and "reads" in ins.effects:
            self._rows_loaded(peers, statement, ins)

    def _stored(self, threads: Sequence[Thread], statement: Statement) -> None:
        place = statement.operands["a"]
        assert isinstance(place, Address)
        space = space_of(statement, place)
        if statement not in self._readers:
            type_ = ordinary(statement).types[-1]
            size = TYPES[type_].size // 8
            reads = [reader(item, type_) for item in items_of(statement.operands["b"])]
            self._readers[statement] = guard_of(statement.guard), addresses(place), reads, size
        holds, find, reads, size = self._readers[statement]
        for thread in threads:
            if holds is not None and not holds(thread):
                continue
            found, address = resolve(space, find(thread))
            if found == "global":
                data = b"".join(read(thread).to_bytes(size, "little") for read in reads)
                who = thread.block.index, thread.index
                self.stores.setdefault(who, []).append((address, data))

    def _rows_loaded(self, threads: Sequence[Thread], statement: Statement, ins: Movement) -> None:
        function = threads[0].frames[-1].function
        if statement not in self._readers:
            found = Registers(statement.signature["d"], statement.operands["d"], function)
            self._readers[statement] = found, shared_address(statement.operands["p"])
        registers, find = self._readers[statement]
        rows = np.array([find(thread) for thread in threads], np.int64)
        held = self._loaded.setdefault(_warp(threads[0]), {})
        shared, trans = self._snapshot(threads[0]), ".trans" in str(ins)
        for tile, index in enumerate(registers.indexes):
            held[index] = _Loaded(statement.pc, rows, tile, trans, shared)

    def _multiplied(
        self, threads: Sequence[Thread], statement: Statement, ins: MatrixInstruction
    ) -> None:
        if len(self.products) == _MOST:
            raise OperandError(
                f"the launch executes more than {_MOST:,} matrix instructions: "
                "the fault finder needs a smaller problem, of a few tiles"
            )
        first = threads[0]
        if statement not in self._readers:
            self._readers[statement] = Fetch(statement, first.frames[-1].function)
        fetch, shared = self._readers[statement], self._snapshot(first)
        operands, options = fetch(threads)
        memory = {"shared": Space("shared memory", shared)} if ins.is_wgmma else {}
        call = Call(ins, operands, options | memory, first.run.target, "auto", "hardware")
        words = {}
        for name, value in operands.items():
            in_memory = name in ("a", "b") and name not in fetch.vectors
            words[f"descriptor_{name}" if in_memory else "c" if name == "d" else name] = value
        rows, loads = {}, {}
        for name in () if ins.is_wgmma else ("a", "b"):
            indexes = fetch.vectors[name].indexes
            if found := self._rows(first, indexes, words[name], ins, name):
                rows[name] = found
                loads[name] = self._loaded[_warp(first)][indexes[0]].pc
        copies = len(self.transfers.of_block.get(first.block.index, ()))
        given = ins, words, options, multiply.run(call), shared, copies, rows, loads
        self.products.append(Product(statement.pc, first.block.index, first.warp.number, *given))

    def _rows(
        self,
        thread: Thread,
        indexes: Sequence[int],
        words: Array,
        ins: MatrixInstruction,
        name: str,
    ) -> Rows | None:
        """The rows that ldmatrix loaded all registers of an operand from; None where others have
        set them, or have changed them since."""
        held = self._loaded.get(_warp(thread), {})
        loads = [held.get(index) for index in indexes]
        if len(loads) not in (1, 2, 4):
            return None
        lanes = np.zeros((1, ins.lanes), np.int64)
        first = loads[0]
        for register, load in enumerate(loads):
            if load is None or first is None or load.trans != first.trans:
                return None
            if load.shared is not first.shared:
                return None
            tile = slice(8 * load.tile, 8 * load.tile + 8)
            lanes[0, 8 * register : 8 * register + 8] = load.addresses[tile]
        assert first is not None
        rows = Rows(first.shared, lanes, first.trans)
        same = np.array_equal(load_rows(ins.fragment(name), rows)[0], words)
        return rows if same else None

    def _snapshot(self, thread: Thread) -> Array:
        """Shared memory of a block as it is now; the same array while it does not change."""
        held, now = self._snapshots.get(thread.block.index), thread.block.shared
        if held is None or not np.array_equal(held, now):
            held = self._snapshots[thread.block.index] = now.copy()
        return held


def _not_modelled(statement: Statement) -> UnsupportedError:
    return UnsupportedError(
        f"{statement.instruction}: of a whole kernel the fault finder takes dense mma and wgmma, "
        "no sparse or block-scaled product and no tcgen05.mma; give find_faults the instruction "
        "with its operands and D instead"
    )


def _warp(thread: Thread) -> tuple[Index, int]:
    return thread.block.index, thread.warp.number


def together(threads: Sequence[Thread], lanes: int, statement: Statement) -> Sequence[Thread]:
    """The threads that execute the statement together, once the last of them has come; else ()."""
    holds = guard_of(statement.guard)
    coming = [t for t in threads if holds is None or holds(t)]
    first = threads[0]
    peers = first.warp.threads if lanes <= 32 else first.block.warpgroup(first.warp.number)
    here = [t for t in peers if t in coming or (t.state in FOR_OTHERS and t.pc == statement.pc)]
    return here if coming and len(here) == lanes else ()
