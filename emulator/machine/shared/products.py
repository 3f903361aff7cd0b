"""All engines: multiplications of warpgroups that were issued, and when they take effect (PTX ISA
9.7.15.7).

A wgmma may read its matrices and write its accumulator at any moment from its issue to the wait for
its group; those of one warpgroup do so in the order of their issue. Until then a pattern stands in
the accumulator; a wgmma that adds to the sum of another one gets it, whatever stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.isa.matrix import MatrixInstruction
from emulator.machine.options import Order
from emulator.ptx.program import Statement

#: words that stand in registers which are yet to be written: NaN in every format, or an integer
#: that is easily recognised
POISON_FLOAT, POISON_INTEGER = 0xFFFF_FFFF, 0xDEAD_BEEF
#: warpgroups that a thread block can have
WARPGROUPS = 8
#: of "random": how often the oldest one takes effect when the warpgroup comes to a wgmma statement
_CHANCE = 0.3

Indexes = NDArray[np.int64]


class Terms(NamedTuple):
    """A multiplication: its instruction, with operands and options by name."""

    instruction: MatrixInstruction
    operands: dict[str, Array]
    options: dict[str, Any]


class RegisterVector(Protocol):
    """The registers of an operand, as an engine reads and writes them."""

    #: their numbers, -1 of what is none
    indexes: tuple[int, ...]


R = TypeVar("R", bound=RegisterVector)


@dataclass(eq=False)
class PendingProduct:
    """A wgmma of one or more warpgroups, with what it took from registers at its issue."""

    #: numbers of the warpgroups in the grid
    warpgroups: list[int]
    #: the call that it works in, counted from the kernel
    depth: int
    #: the addend ``(warpgroups, 128, registers)``
    accumulator: Array
    #: without the operands that are read when it takes effect
    terms: Terms
    #: A, where it lies in registers, and the registers of the accumulator
    a: RegisterVector | None
    result: RegisterVector
    #: the warpgroups, as the engine has them
    home: object
    #: the warpgroups, by their index, for which it has yet to take effect
    left: list[int] = field(init=False)
    #: the group that each warpgroup was filling
    groups: list[int] = field(init=False)

    @property
    def sources(self) -> int:
        """A set of bits: the registers that it reads when it takes effect."""
        return 0 if self.a is None else sum(1 << i for i in set(self.a.indexes) if i >= 0)


class Due(NamedTuple):
    """A product that takes effect now, for some of its warpgroups, by their index."""

    product: PendingProduct
    which: Indexes


def poison(instruction: MatrixInstruction) -> int:
    """The pattern in the registers of an accumulator."""
    integer = instruction.d_type.startswith("s")
    return POISON_INTEGER if integer else POISON_FLOAT


def is_wgmma(statement: Statement) -> bool:
    """True if a statement multiplies matrices for a warpgroup."""
    ins = statement.instruction
    return isinstance(ins, MatrixInstruction) and ins.is_wgmma


class Products:
    """Products that the warpgroups of some thread blocks have issued and not yet waited for.

    A warpgroup has its number in the grid, so that "random" chooses the same moments for it in
    whatever order the blocks run.
    """

    def __init__(self, order: Order, seed: int | None) -> None:
        self._order, self._seed = order, seed
        self._open: list[PendingProduct] = []
        #: number of the group that each warpgroup is filling
        self._group: dict[int, int] = {}
        self._random: dict[int, np.random.Generator] = {}

    def __iter__(self) -> Iterator[PendingProduct]:
        return iter(self._open)

    def issue(self, product: PendingProduct) -> None:
        product.groups = [self._group.get(number, 0) for number in product.warpgroups]
        product.left = list(range(len(product.warpgroups)))
        self._open.append(product)

    def commit(self, warpgroups: Collection[int]) -> Iterable[Due]:
        """Closes the group that each warpgroup is filling; nothing takes effect."""
        for number in warpgroups:
            self._group[number] = self._group.get(number, 0) + 1
        return ()

    def forget(self, warpgroups: Collection[int], depth: int) -> None:
        """A call returns: what it has issued has no registers to write to any more."""
        for product in list(self._open):
            if product.depth >= depth:
                product.left = [i for i in product.left if product.warpgroups[i] not in warpgroups]
                if not product.left:
                    self._open.remove(product)

    def covered(self, warpgroups: Collection[int], newest: int) -> Iterator[Due]:
        """The products that a wait for all but the `newest` committed groups covers, the oldest
        first."""
        before = {number: self._group.get(number, 0) - newest for number in warpgroups}
        return self._taken(lambda number, group: group < before.get(number, 0))

    def by_chance(self, warpgroups: Collection[int]) -> Iterator[Due]:
        """The products that take effect without a wait, the oldest first."""
        going = set(warpgroups) if self._order == "random" else set()

        def takes_effect(number: int, group: int) -> bool:
            if number in going and self._generator(number).random() >= _CHANCE:
                going.remove(number)
            return number in going

        return self._taken(takes_effect)

    def _taken(self, wanted: Callable[[int, int], bool]) -> Iterator[Due]:
        for product in list(self._open):
            named = product.warpgroups, product.groups
            which = [i for i in product.left if wanted(named[0][i], named[1][i])]
            if which:
                product.left = [i for i in product.left if i not in which]
                if not product.left:
                    self._open.remove(product)
                yield Due(product, np.array(which))

    def _generator(self, number: int) -> np.random.Generator:
        if number not in self._random:
            seed = None if self._seed is None else [int(self._seed), number]
            self._random[number] = np.random.default_rng(seed)
        return self._random[number]

    def hand_on(self, due: Due, sums: Array) -> NDArray[np.bool_]:
        """Gives sums ``(warpgroups, 128, registers)`` to the products that add to them; which of
        them have none, so that they belong into registers now."""
        own, last = due.product, np.ones(len(due.which), np.bool_)
        for i, index in enumerate(due.which.tolist()):
            number = own.warpgroups[index]
            for other in self._open:
                if other.result.indexes != own.result.indexes or other.depth != own.depth:
                    continue
                mine = [j for j in other.left if other.warpgroups[j] == number]
                if mine:
                    other.accumulator[mine[0]] = sums[i]
                    last[i] = False
                    break
        return last
