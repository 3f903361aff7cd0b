"""All engines: statements that compute addresses, cvta, isspacep, mapa and getctarank (PTX ISA
9.7.9)."""

from __future__ import annotations

import numpy as np

from emulator.machine.shared.issuing import Executor, LaneOperands, MakeAtOnce, RunAtOnce, require
from emulator.machine.shared.operands import Words
from emulator.memory.windows import FUNCTIONS, LOCAL, PARAMETERS, RANK_BITS, SHARED, WINDOW_BITS

_INSIDE, _OFFSET = (1 << WINDOW_BITS) - 1, (1 << RANK_BITS) - 1
_WINDOWS = {"shared": SHARED, "local": LOCAL, "param": PARAMETERS}


def convert_address(operands: LaneOperands) -> RunAtOnce:
    """cvta: generic addresses of global memory and constants are those of the space."""
    window = _WINDOWS.get(operands.modifier("space").partition("::")[0], 0)
    read, start = operands.word("a", "u64"), 0 if operands.modifier("to") else window
    write = operands.result(operands.statement.operands["d"], "u64")

    def run(who: Executor) -> None:
        word = read(who)
        write(who, (word & _INSIDE) + start if window else word)

    return run


def is_in_space(operands: LaneOperands) -> RunAtOnce:
    """isspacep: whether a generic address leads into a space."""
    space, read = operands.modifier("space"), operands.word("a", "u64")
    write = operands.result(operands.statement.operands["p"], "pred")
    return lambda who: write(who, _leads_to(who, read(who), space))


def _leads_to(who: Executor, addresses: Words, space: str) -> Words:
    window = addresses >> WINDOW_BITS
    if space.startswith("shared"):
        inside = window == SHARED >> WINDOW_BITS
        return inside if space == "shared::cluster" else inside & (_rank_at(addresses) == who.ranks)
    if space == "local":
        return window == LOCAL >> WINDOW_BITS
    if space == "global":
        shared, local, functions = (x >> WINDOW_BITS for x in (SHARED, LOCAL, FUNCTIONS))
        return (window != shared) & (window != local) & (window != functions)
    held = [who.arena.find(int(address)) for address in np.atleast_1d(addresses)]
    parameters = [x is not None and x.name == "parameters" for x in held]
    if space.startswith("param"):
        return np.array(parameters)
    constant = [x is not None and not x.writable for x in held]
    return np.array(constant) & ~np.array(parameters)


def map_to_rank(operands: LaneOperands) -> RunAtOnce:
    """mapa: the address of the same place in shared memory of another block of the cluster."""
    type_, given = operands.ins.types[-1], operands.statement.operands
    read, rank = operands.word("a", type_), operands.word("b", "u32")
    write = operands.result(given["d"], type_)
    window = SHARED if type_ == "u64" and not operands.modifier("space") else 0

    def run(who: Executor) -> None:
        ranks, size = rank(who), who.cluster_size
        text = f"in a cluster of {size} blocks"
        require(ranks < size, "cluster", lambda given: f"rank {given} {text}", ranks)
        above = ranks if isinstance(ranks, int) else ranks.astype(np.uint64)
        write(who, (read(who) & _OFFSET | above << RANK_BITS) + window)

    return run


def rank_of(operands: LaneOperands) -> RunAtOnce:
    """getctarank: the block of the cluster whose shared memory an address leads to."""
    read = operands.word("a", operands.ins.types[-1])
    write = operands.result(operands.statement.operands["d"], "u32")
    return lambda who: write(who, _rank_at(read(who)))


def _rank_at(addresses: Words) -> Words:
    """The rank in the cluster of the block whose shared memory an address leads to."""
    return (addresses & _INSIDE) >> RANK_BITS


AT_ONCE: dict[str, MakeAtOnce] = {
    "cvta": convert_address,
    "isspacep": is_in_space,
    "mapa": map_to_rank,
    "getctarank": rank_of,
}
