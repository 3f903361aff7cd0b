"""``compare_launches``: where two targets, or two settings, part in a whole kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtypes import Array
from emulator.errors import OperandError
from emulator.errors import shown as given_text
from emulator.isa.wmma import WmmaTransfer
from emulator.machine.checks.recording import Probe, Result, Stop, Trace, Writer
from emulator.machine.checks.values import shown
from emulator.machine.module import Kernel, Module
from emulator.machine.shared.place import Index, Place
from emulator.ptx.program import Statement
from emulator.report import Report
from emulator.tools.orders import SavedArrays, element_text, other_elements

#: operands that the text shows
_OPERANDS = 12


@dataclass(frozen=True)
class Store:
    """The first element that differs, and the last store to it in the first launch."""

    name: str
    index: tuple[int, ...]
    #: how many elements of the array differ, of how many
    differing: int
    size: int
    #: what each launch left there
    values: tuple[str, str]
    #: block, thread and place; None where no thread's own store wrote it
    writer: tuple[Index, Index, Place] | None


@dataclass(frozen=True)
class Parting:
    """The first statement whose results differ, in the block of that store."""

    place: Place
    block: Index
    thread: Index
    #: name -> value, alike in both launches; the result that differs, and its two values
    operands: dict[str, str]
    result: str
    values: tuple[str, str]
    #: why, where that is known
    reason: str = ""


@dataclass(frozen=True, repr=False)
class LaunchComparison(Report):
    """Two launches: alike, or where they part."""

    kernel: str
    #: what tells the launches apart: two targets, or two settings of `contract`
    variants: tuple[str, str]
    store: Store | None = None
    parting: Parting | None = None

    @property
    def title(self) -> str:
        first, second = self.variants
        if self.store is None:
            return f"{self.kernel}: {first} and {second} give every byte alike"
        found = self.store
        return (
            f"{self.kernel}: {first} and {second} part in {found.differing:,} of {found.size:,} "
            f"elements of {found.name}"
        )

    def lines(self) -> Iterator[str]:
        yield self.title
        if self.store is None:
            return
        (first, second), store = self.variants, self.store
        place = store.name + "".join(f"[{i}]" for i in store.index)
        yield f"{place} is {store.values[0]} on {first}, {store.values[1]} on {second}"
        if store.writer is not None:
            block, thread, where = store.writer
            yield f"  stored by block {block}, thread {thread}"
            yield f"  at {where}"
        yield from self._parting_lines()

    def _parting_lines(self) -> Iterator[str]:
        found = self.parting
        if found is None:
            yield "no register shows where: what was stored came by an asynchronous copy"
            return
        yield f"values first part in block {found.block}, thread {found.thread}"
        yield f"  at {found.place}"
        for value, variant in zip(found.values, self.variants, strict=True):
            yield f"  {found.result} is {value} on {variant}"
        if found.operands:
            named = [f"{name} = {value}" for name, value in found.operands.items()]
            more = f" and {len(named) - _OPERANDS} more" if len(named) > _OPERANDS else ""
            yield f"  of {', '.join(named[:_OPERANDS])}{more}"
        if found.reason:
            yield f"  {found.reason}"

    @property
    def data(self) -> dict[str, object]:
        out: dict[str, Any] = {"kernel": self.kernel, "variants": list(self.variants)}
        if self.store is not None:
            out["store"] = {
                "name": self.store.name, "index": list(self.store.index),
                "differing": self.store.differing, "of": self.store.size,
                "values": list(self.store.values),
            }  # fmt: skip
        if self.parting is not None:
            found = self.parting
            out["parting"] = {
                "line": found.place.line, "source": list(found.place.source),
                "statement": found.place.statement, "block": list(found.block),
                "thread": list(found.thread), "operands": found.operands,
                "result": found.result, "values": list(found.values), "reason": found.reason,
            }  # fmt: skip
        return out


def compare_launches(
    kernel: Kernel,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence[object] | Mapping[str, object] = (),
    *,
    targets: Sequence[str] | None = None,
    contracts: Sequence[str] | None = None,
    **options: object,
) -> LaunchComparison:
    """Runs a kernel twice, on two targets or with two settings of ``contract=``, and says which
    element of its arrays first differs and at which statement values first part.

    What is compared in step are the results of all statements of the block that stored the element.
    The other arguments are those of `Kernel.launch`; arrays are afterwards as they were.

    Raises OperandError unless there are two targets or two settings, and what the launches raise.
    """
    if not isinstance(kernel, Kernel):
        raise OperandError(f"a kernel is module['name']; got {type(kernel).__name__}")
    pair = _Pair(_launches(kernel, targets, contracts), (grid, block, args), options)
    first, second = pair.run(0), pair.run(1)
    found = next((i for i, x in enumerate(first) if other_elements(x, second[i]).any()), None)
    if found is None:
        return LaunchComparison(kernel.name, pair.variants)
    old, new = first[found], second[found]
    differs = other_elements(old, new)
    place, name = int(np.argmax(differs)), pair.state.arrays[found][0]
    writer = Writer(name, place * old.itemsize)
    pair.run(0, writer.watch)
    where, number = None, None
    if writer.found is not None:
        number, block_, thread, statement = writer.found
        where = (block_, thread, pair.place_of(statement))
    index = tuple(map(int, np.unravel_index(place, old.shape)))
    values = (element_text(old, place), element_text(new, place))
    store = Store(name, index, int(differs.sum()), differs.size, values, where)
    return LaunchComparison(kernel.name, pair.variants, store, _parting(pair, number))


class _Pair:
    """Two launches on the same arrays, which are run as often as one likes."""

    def __init__(
        self,
        launches: list[tuple[str, Kernel, dict[str, object]]],
        sizes: tuple[Any, Any, Any],
        options: dict[str, Any],
    ) -> None:
        self._launches, self._sizes, self._options = launches, sizes, options
        self.variants = (launches[0][0], launches[1][0])
        self._kernel = launches[0][1]
        self.program = self._kernel.bound.program
        self.state = SavedArrays(self._kernel, sizes[2], options.get("memory"), variables=False)
        self.place_of: Callable[[Statement], Place]

    def run(self, which: int, watcher: Any = None) -> list[Array]:
        """Launches, copies the resulting arrays, and restores the originals."""
        _, kernel, more = self._launches[which]
        # Variables of the module start anew.
        kernel = Module(kernel.module.text, str(kernel.module.target))[kernel.name]
        grid, block, args = self._sizes
        launch = kernel.prepare(grid, block, args, **(self._options | more))
        launch.watchers = () if watcher is None else (watcher,)
        self.place_of = launch.place_of
        with suppress(Stop):
            launch.run("auto")
        after = self.state.now()
        self.state.restore()
        return after

    def reason(self, statement: Statement) -> str:
        """The known reason why a statement has other results."""
        if "reads" in statement.effects or isinstance(statement.instruction, WmmaTransfer):
            return "memory brought it: another block or an asynchronous copy has written it"
        if len({more.get("contract") for _, _, more in self._launches}) == 1:
            return ""
        line = self.place_of(statement).line
        return next((str(x) for x in self._kernel.contracted if x.line == line), "")


def _launches(
    kernel: Kernel, targets: Sequence[str] | None, contracts: Sequence[str] | None
) -> list[tuple[str, Kernel, dict[str, object]]]:
    """Of the two launches what they are called, the kernel, and its options."""
    given = targets if contracts is None else contracts
    if (targets is None) == (contracts is None) or not _are_two(given):
        raise OperandError(
            "give two targets, targets=('A100', 'H100'), or two settings, "
            f"contracts=('ptxas', 'none'); got {given_text(targets)} and {given_text(contracts)}"
        )
    if contracts is not None:
        return [(f"contract={x}", kernel, {"contract": x}) for x in contracts]
    text, out = kernel.module.text, list[tuple[str, Kernel, dict[str, object]]]()
    for target in targets or ():
        module = Module(text, target)
        out.append((str(module.target), module[kernel.name], {}))
    return out


def _are_two(given: object) -> bool:
    return (
        isinstance(given, (list, tuple))
        and len(given) == 2
        and all(isinstance(x, str) for x in given)
    )


def _parting(pair: _Pair, number: int | None) -> Parting | None:
    """Runs both launches in step, as far as the first result that differs."""
    program = pair.program
    usual = Trace(program, number)
    pair.run(0, usual.watch)
    other = Trace(program, number, usual)
    pair.run(1, other.watch)
    index = len(other.results) - 1
    if usual.results[index : index + 1] == other.results[index:]:
        return None
    probes = [Probe(program, number, index) for _ in range(2)]
    for which, probe in enumerate(probes):
        pair.run(which, probe.watch)
    first, second = (probe.result for probe in probes)
    if first is None or second is None or first.statement.pc != second.statement.pc:
        return None
    return _told(pair, first, second)


def _told(pair: _Pair, first: Result, second: Result) -> Parting | None:
    for i, value in enumerate(first.written):
        differs = other_elements(first.after[i], second.after[i])
        if len(first.after[i]) != len(second.after[i]) or not differs.any():
            continue
        lane = int(np.argmax(differs.reshape(len(first.after[i]), -1).any(1)))
        block, thread = first.threads[lane]
        operands = {
            x.name: shown(words, x.type, lane)
            for x, words in zip(first.read, first.before, strict=True)
        }
        one, other = (shown(x.after[i], value.type, lane) for x in (first, second))
        place, why = pair.place_of(first.statement), pair.reason(first.statement)
        return Parting(place, block, thread, operands, value.name, (one, other), why)
    return None
