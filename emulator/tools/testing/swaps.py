"""``check_swaps``: would inputs show that a kernel swaps two registers, or two lanes?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, UndefinedError, one_of, shown
from emulator.isa.instruction import Instruction
from emulator.targets import Target
from emulator.tools.operands import ONE_WORD
from emulator.tools.testing.lane_inputs import Inputs
from emulator.tools.testing.lane_unique import lane_unique
from emulator.warp.execute import execute

#: which lanes are swapped: those whose numbers differ in one bit, every two, or none
Lanes = Literal["near", "all", "none"]
#: computes D from the operands and options of `execute`
Run = Callable[..., Any]
Same = Callable[[Array, Array], bool]
#: of more registers than these, only those are swapped whose numbers differ in one bit
_ALL_PAIRS = 16
#: swaps that a message lists
_SHOWN = 12


@dataclass(frozen=True)
class Swap:
    """Two registers of an operand exchanged in every lane, or all its registers in two lanes."""

    operand: str
    what: Literal["register", "lane"]
    first: int
    second: int

    def __str__(self) -> str:
        if self.what == "register":
            return f"{self.operand}[{self.first}] from {self.operand}[{self.second}]"
        return f"lane {self.first} from lane {self.second} in {self.operand}"

    def apply(self, words: Array) -> Array:
        """The registers ``(…, lanes, registers)``, or words ``(…, lanes)``, after the swap."""
        lanes_last = self.operand in ONE_WORD
        axis = -1 if self.what == "register" or lanes_last else -2
        order = np.arange(words.shape[axis])
        order[[self.first, self.second]] = self.second, self.first
        swapped: Array = np.take(words, order, axis)
        return swapped


def check_swaps(
    inputs: Inputs | Instruction | str,
    target: str | Target = "",
    *,
    run: Run | None = None,
    same: Same = np.array_equal,
    lanes: Lanes = "near",
) -> None:
    """Raises AssertionError if a swap in the operands would leave D as it is, and names them all.

    See `unnoticed_swaps` for the arguments.
    """
    __tracebackhide__ = True
    swaps = unnoticed_swaps(inputs, target, run=run, same=same, lanes=lanes)
    if swaps:
        more = [f"… and {len(swaps) - _SHOWN} more"] if len(swaps) > _SHOWN else []
        lines = [f"your inputs cannot tell {swap}" for swap in swaps[:_SHOWN]]
        raise AssertionError("\n".join([*lines, *more, "lane_unique(ins) makes inputs that can"]))


def unnoticed_swaps(
    inputs: Inputs | Instruction | str,
    target: str | Target = "",
    *,
    run: Run | None = None,
    same: Same = np.array_equal,
    lanes: Lanes = "near",
) -> list[Swap]:
    """The swaps of two registers or two lanes of an operand that D does not show.

    Of an instruction or an opcode, `inputs` are its ``lane_unique``. D is computed by `execute` on
    `target`, or by ``run(*operands, **options)``, a function that takes what `execute` takes.
    ``same(d, other_d)`` says whether the caller's test would take the two for equal: a test with a
    tolerance notices less. A swap after which PTX leaves the operands undefined counts as noticed.
    Every swap costs a run; of `lanes`, and of registers where there are more than 16, those are
    swapped whose numbers differ in one bit.
    """
    if isinstance(inputs, Instruction | str):
        inputs = lane_unique(inputs)
    if not isinstance(inputs, Inputs):
        raise OperandError(f"Inputs are needed, such as lane_unique(ins); got {shown(inputs)}")
    one_of("lanes=", lanes, get_args(Lanes))
    if run is None:
        if isinstance(target, str) and not target:
            raise OperandError("check_swaps needs target=, or run= that computes D")

        ins = inputs.ins

        def run(*operands: Any, **options: Any) -> Any:
            return execute(ins, *operands, target=target, **options)

    right = run(*inputs.registers, **inputs.options)
    out = []
    for swap in _swaps(inputs, lanes):
        words = inputs.words | {swap.operand: swap.apply(inputs.words[swap.operand])}
        operands = (word for name, word in words.items() if not name.startswith("scale"))
        scales = {name: word for name, word in words.items() if name.startswith("scale")}
        try:
            noticed = not same(right, run(*operands, **inputs.options | scales))
        except UndefinedError:
            noticed = True
        if not noticed:
            out.append(swap)
    return out


def _swaps(inputs: Inputs, lanes: Lanes) -> Iterator[Swap]:
    for operand, words in inputs.words.items():
        if np.ndim(words) == 0:
            continue  # a descriptor
        one = operand in ONE_WORD
        registers = 1 if one else words.shape[-1]
        for i, j in combinations(range(registers), 2):
            if registers <= _ALL_PAIRS or _near(i, j):
                yield Swap(operand, "register", i, j)
        read = _read_lanes(inputs, operand) if one else range(words.shape[-2])
        for i, j in combinations(range(inputs.ins.lanes), 2):
            if (lanes == "all" or (lanes == "near" and _near(i, j))) and (i in read or j in read):
                yield Swap(operand, "lane", i, j)


def _near(i: int, j: int) -> bool:
    return (i ^ j).bit_count() == 1


def _read_lanes(inputs: Inputs, operand: str) -> set[int]:
    """The lanes whose metadata or scales count."""
    group = inputs.selector if operand == "e" else 0
    used = (inputs.ins.fragment(operand).group == group).any(-1)
    return {int(lane) for lane in np.flatnonzero(used)}
