"""``check_order``: which bytes of a kernel's results depend on the order of execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, as_integer, shown, whole
from emulator.machine.arguments import arrays_of
from emulator.machine.module import Kernel
from emulator.machine.report import KernelError
from emulator.report import Report

#: runs of elements that a report lists for each array
_RUNS = 8
_MOST_SEEDS = 10_000


@dataclass
class Dependence:
    """An array whose contents depend on the order.

    `differs` says for each element, in the order of memory, whether any order gave it other bits.
    """

    name: str
    #: what the usual order wrote
    usual: Array
    differs: Array
    #: seeds of the orders with other contents, and what the first of them wrote
    seeds: list[int]
    other: Array

    @property
    def first(self) -> tuple[int, ...]:
        """The index of the first element that differs."""
        found = np.unravel_index(int(np.argmax(self.differs)), self.usual.shape)
        return tuple(map(int, found))

    @property
    def runs(self) -> list[tuple[int, int]]:
        """First and last element of each run of differing elements, counted in memory."""
        edges = np.flatnonzero(np.diff(self.differs, prepend=False, append=False))
        return [(int(a), int(b) - 1) for a, b in edges.reshape(-1, 2)]

    def lines(self) -> Iterator[str]:
        count, size = int(self.differs.sum()), self.usual.size
        seeds = ", ".join(map(str, self.seeds))
        yield f"{self.name}: {count:,} of {size:,} elements depend on the order (seeds {seeds})"
        shown = [self._run(*run) for run in self.runs[:_RUNS]]
        more = len(self.runs) - len(shown)
        yield f"  {', '.join(shown)}{f' and {more:,} places more' if more else ''}"
        place = int(np.argmax(other_elements(self.usual, self.other)))
        usual, other = (element_text(array, place) for array in (self.usual, self.other))
        yield f"  {self._index(place)} is {usual}, and {other} in the order of seed {self.seeds[0]}"

    def _run(self, first: int, last: int) -> str:
        if first == last:
            return self._index(first)
        return f"{self._index(first)} … {self._index(last)}"

    def _index(self, place: int) -> str:
        return self.name + "".join(f"[{i}]" for i in np.unravel_index(place, self.usual.shape))

    @property
    def data(self) -> dict[str, object]:
        return {
            "name": self.name, "elements": int(self.differs.sum()), "of": self.usual.size,
            "first": list(self.first), "runs": [list(run) for run in self.runs],
            "seeds": self.seeds,
        }  # fmt: skip


@dataclass(repr=False)
class OrderReport(Report):
    """Effects of other orders: none, or changed `arrays` and failed launches."""

    kernel: str
    seeds: tuple[int, ...]
    #: arrays that were compared
    compared: tuple[str, ...]
    arrays: list[Dependence] = field(default_factory=list)
    #: seed -> the error of a launch that cannot go on in that order
    failures: dict[int, KernelError] = field(default_factory=dict)

    @property
    def code(self) -> int:  # type: ignore[override]
        """1 where anything depends on the order."""
        return 1 if self.arrays or self.failures else 0

    @property
    def title(self) -> str:
        if not self.code:
            return (
                f"{self.kernel}: {len(self.seeds)} other orders give every byte of "
                f"{', '.join(self.compared) or 'no array'} alike"
            )
        return f"{self.kernel}: what it does depends on the order of blocks, warps or atomics"

    @property
    def data(self) -> dict[str, object]:
        return {
            "kernel": self.kernel, "seeds": list(self.seeds), "compared": list(self.compared),
            "arrays": [found.data for found in self.arrays],
            "failures": {str(seed): str(error) for seed, error in self.failures.items()},
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        yield self.title
        for found in self.arrays:
            yield from found.lines()
        for seed, error in self.failures.items():
            yield f"seed {seed}: the launch fails"
            yield from (f"  {line}" for line in str(error).splitlines())


def check_order(
    kernel: Kernel,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence[object] | Mapping[str, object] = (),
    *,
    seeds: int | Sequence[int] = 8,
    **options: Any,
) -> OrderReport:
    """Runs a kernel in its usual order and in others, and says which elements of arrays differ.

    `seeds` is a number of orders, or the seeds themselves: each picks an order of thread blocks, of
    warps, of lanes that come to one place, and, unless `options` has ``async_order=``, of
    asynchronous operations. The other arguments are those of `Kernel.launch`. Arrays hold
    afterwards what the usual order wrote; variables of the module are compared, too.

    Raises OperandError for seeds that are none, and what the usual launch raises; a launch that
    fails in another order is in the report.
    """
    if not isinstance(kernel, Kernel):
        raise OperandError(f"a kernel is module['name']; got {type(kernel).__name__}")
    if "seed" in options:
        raise OperandError("check_order takes seeds=, a number or a list, in place of seed=")
    chosen = _seeds(seeds)
    state = SavedArrays(kernel, args, options.get("memory"))
    kernel.launch(grid, block, args, **options)
    usual = state.now()
    other = {"async_order": "random"} | options
    found = OrderReport(kernel.name, chosen, tuple(state.names))
    by_name: dict[int, Dependence] = {}
    try:
        for seed in chosen:
            state.restore()
            try:
                kernel.launch(grid, block, args, seed=seed, **other)
            except KernelError as error:
                found.failures[seed] = error
                continue
            _compare(by_name, state, usual, seed)
    finally:
        state.restore(usual)
    found.arrays = [by_name[i] for i in sorted(by_name)]
    return found


def _seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(given, (list, tuple, range)) and 0 < len(given) <= _MOST_SEEDS:
        return tuple(whole("a seed", x) for x in given)
    count = as_integer(given)
    if count is not None and 1 <= count <= _MOST_SEEDS:
        return tuple(range(count))
    raise OperandError(f"seeds is 1 … {_MOST_SEEDS}, or a list of numbers; got {shown(given)}")


class SavedArrays:
    """The arrays that a launch may change: the caller's, and the variables of the module."""

    def __init__(self, kernel: Kernel, args: Any, memory: Any, variables: bool = True) -> None:
        own = arrays_of(kernel.bound.function, args, memory)
        self.arrays = [(name, array) for name, array in own if array.flags.writeable]
        self.arrays += kernel.module.variables().items() if variables else ()
        self.names = list(dict.fromkeys(name for name, _ in self.arrays))
        self.before = self.now()

    def now(self) -> list[Array]:
        return [array.copy() for _, array in self.arrays]

    def restore(self, held: Sequence[Array] | None = None) -> None:
        """Gives the arrays what they held before, or something else that they held."""
        for (_, array), old in zip(self.arrays, held or self.before, strict=True):
            array[...] = old


def _compare(
    found: dict[int, Dependence], state: SavedArrays, usual: Sequence[Array], seed: int
) -> None:
    for i, ((name, array), old) in enumerate(zip(state.arrays, usual, strict=True)):
        differs = other_elements(old, array)
        if not differs.any():
            continue
        if i not in found:
            found[i] = Dependence(name, old, differs, [seed], array.copy())
        else:
            found[i].differs = found[i].differs | differs
            found[i].seeds.append(seed)


def other_elements(a: Array, b: Array) -> Array:
    """``bool (elements,)``: where two arrays have other bits."""
    raw = [np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b)]
    return (raw[0] != raw[1]).reshape(a.size, a.itemsize).any(1)


def element_text(array: Array, place: int) -> str:
    """An element, with its bits where it is a number with a fraction."""
    element = array.reshape(-1)[place : place + 1]
    if element.dtype.kind in "iub":
        return str(element[0])
    return f"{element[0]!s} (0x{element.view(np.uint8)[::-1].tobytes().hex()})"
