"""All engines: wgmma, products of warpgroups on shared memory and the waits for them (PTX ISA
9.7.15). They take effect at their issue, or later, as `products` has it.

An engine brings the warpgroups that come to a statement together. It reads and writes their
registers, and multiplies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol, TypeVar, cast

import numpy as np

from dtypes import Array
from emulator.machine.shared.operands import constant
from emulator.machine.shared.pending import Pending
from emulator.machine.shared.products import (
    Due,
    Indexes,
    PendingProduct,
    Products,
    R,
    RegisterVector,
    Terms,
    poison,
)
from emulator.ptx.program import Statement

R_contra = TypeVar("R_contra", bound=RegisterVector, contravariant=True)
#: what later statements know warpgroups by
H = TypeVar("H")
T = TypeVar("T")


class Warpgroups(Protocol[R_contra, H]):
    """Whole warpgroups that execute a statement together."""

    pending: Pending
    products: Products
    #: how many calls they are in, the kernel counted
    depth: int

    @property
    def numbers(self) -> list[int]:
        """Their numbers in the grid."""

    @property
    def home(self) -> H:
        """What later statements know them by."""

    def check(self, terms: Terms) -> None:
        """Raises what the product would, as far as its operands are read already."""

    def multiply(self, terms: Terms, home: H, *, heard: bool = False) -> Array:
        """Sums ``(warpgroups, 128, registers)``; `heard`: checks are told what is read."""

    def write(self, registers: R_contra, words: Array) -> None:
        """Gives words to registers of all these warpgroups."""

    def fill(self, registers: R_contra, word: int) -> None:
        """The same word for all registers of all these warpgroups."""

    def some_of(self, home: H, which: Indexes) -> H:
        """Some of the warpgroups of a product, by their index."""

    def read_of(self, registers: R_contra, home: H, depth: int) -> Array:
        """Registers of warpgroups in a call that they are in, maybe not in the innermost."""

    def write_of(self, registers: R_contra, home: H, depth: int, words: Array) -> None:
        """Gives words to such registers."""


def multiplication(groups: Warpgroups[R, H], terms: Terms, a: R | None, result: R) -> None:
    """wgmma.mma_async; `a` is A, where it lies in registers, and `result` the accumulator."""
    if groups.pending.at_once:
        groups.write(result, groups.multiply(terms, groups.home, heard=True))
        return
    groups.check(terms)
    kept = {
        name: x for name, x in terms.operands.items() if name != "d" and (name != "a" or a is None)
    }
    groups.products.issue(
        PendingProduct(
            groups.numbers,
            groups.depth,
            terms.operands["d"],
            terms._replace(operands=kept),
            a,
            result,
            groups.home,
        )
    )
    groups.fill(result, poison(terms.instruction))
    _by_chance(groups)


def _finish(groups: Warpgroups[R, H], due: Iterable[Due]) -> None:
    """Computes what takes effect now, of the warpgroups that execute a statement."""
    for product, which in due:
        home, depth = groups.some_of(cast(H, product.home), which), product.depth
        ins, *given = product.terms
        operands, options = ({name: _chosen(x, which) for name, x in y.items()} for y in given)
        operands["d"] = product.accumulator[which]
        if product.a is not None:
            operands["a"] = groups.read_of(cast(R, product.a), home, depth)
        sums = groups.multiply(Terms(ins, operands, options), home)
        last = np.flatnonzero(groups.products.hand_on(Due(product, which), sums))
        if len(last):
            result = cast(R, product.result)
            groups.write_of(result, groups.some_of(home, last), depth, sums[last])


def _chosen(x: T, which: Indexes) -> T:
    """An operand of some of the warpgroups; what all share stays."""
    return cast(T, x[which]) if isinstance(x, np.ndarray) and x.ndim and len(x) > 1 else x


def _by_chance(groups: Warpgroups[R, H]) -> None:
    _finish(groups, groups.products.by_chance(groups.numbers))


# --- fence, commit, wait --------------------------------------------------------------------------

#: a fence, commit or wait of warpgroups, by their numbers in the grid; returns the products that
#: take effect
OnProducts = Callable[[Products, Collection[int]], Iterable[Due]]


def in_order(groups: Warpgroups[R, H], act: OnProducts) -> None:
    """Warpgroups commit their products, or wait for them."""
    if not groups.pending.at_once:
        _finish(groups, act(groups.products, groups.numbers))
        _by_chance(groups)


def _wait(statement: Statement) -> OnProducts:
    newest = constant(statement, "n")
    return lambda products, warpgroups: products.covered(warpgroups, newest)


ORDER: dict[str, Callable[[Statement], OnProducts]] = {
    # Nothing to do: every reader sees earlier writes of registers.
    "wgmma.fence": lambda statement: lambda products, warpgroups: (),
    "wgmma.commit_group": lambda statement: Products.commit,
    "wgmma.wait_group": _wait,
}
