"""All engines: helpers for tcgen05, the words of an opcode as `memory` and `warp` take them.

An allocation of a CTA shares its columns with no other CTA, as if each ran on a multiprocessor of
its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from dtypes import Array
from emulator.isa.tcgen05 import Tcgen05
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.layout.shared_descriptor import SharedMemoryDescriptor
from emulator.machine.shared.failure import Failure
from emulator.memory.descriptors import load_rows
from emulator.memory.space import Space
from emulator.memory.tensor_memory import TensorMemory, expanded
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


class LoadResult(NamedTuple):
    """Results of a tcgen05.ld: ``(32, n)`` for each operand that is written."""

    words: list[Array]
    #: whether anything had written any of it
    defined: bool


def loaded(ins: Tcgen05, memory: TensorMemory, address: int, warp: int, split: int) -> LoadResult:
    """The registers of a tcgen05.ld of a warp."""
    shape, num, packed = Access.of(ins)
    words, defined = memory.load(address, shape, num, warp, packed=packed, split=split)
    return LoadResult(_results(ins, words), bool(defined.any()))


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
    ins: Tcgen05,
    memory: TensorMemory,
    shared: Space | Array,
    address: int,
    descriptor: int,
    target: Target,
) -> None:
    """tcgen05.cp from the shared memory of a CTA to its tensor memory."""
    shape = copy_shape(ins)
    rows = load_rows(shared, SharedMemoryDescriptor.decode(descriptor, target), shape)
    if source := ins.modifiers.get("from"):
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
        ins.cta_group,
        bool(given.get("ws")),
        bool(given.get("ashift")),
        bool(given.get("decompress::lut::b")),
    )
