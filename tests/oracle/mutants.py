"""Recipes that differ from the right ones in one constant; for the tests that must notice each."""

import functools
import sys
from dataclasses import fields, replace
from itertools import permutations
from typing import NamedTuple

from emulator.arith import recipes
from emulator.arith.recipes import Row
from emulator.arith.steps import AddC, Clear, FusedDotAdd
from emulator.warp import single

#: what takes the place of a format: the one beside it
_OTHER_FORMAT = {"f16": "f32", "f32": "f16", "f64": "f32"}
_ORDERS = ((), *permutations("abx"))


class Mutant(NamedTuple):
    """A row with one constant changed; `row` is None where all of it is taken away."""

    #: such as "floor", or "order of C" for what is no field of a step
    constant: str
    #: the constant's value here
    value: object
    row: Row | None

    @property
    def name(self):
        return f"{self.constant} {self.value}"


def mutants(row, lengths):
    """All mutants of a row whose instructions have `lengths` products each."""
    for i, step in enumerate(row.steps):
        for field in fields(step):
            for value in _alternatives(step, field.name, row, lengths):
                steps = (*row.steps[:i], replace(step, **{field.name: value}), *row.steps[i + 1 :])
                yield Mutant(field.name, value, replace(row, steps=steps))
    fused = [step for step in row.steps if isinstance(step, FusedDotAdd)]
    if any(isinstance(step, Clear) for step in row.steps):
        steps = tuple(step for step in row.steps if not isinstance(step, (Clear, AddC)))
        yield Mutant("order of C", "first", replace(row, steps=steps))
    elif fused:
        i = row.steps.index(fused[0])
        steps = (*row.steps[:i], Clear(), fused[0], AddC(fused[0].result), *row.steps[i + 1 :])
        yield Mutant("order of C", "last", replace(row, steps=steps))
    if row.pipe == "wmma":
        yield Mutant("row", "that of mma", None)


def _alternatives(step, name, row, lengths):
    value = getattr(step, name)
    match name:
        case "fraction_bits":
            return [value - 1, value + 1]
        case "floor":
            if value is None:
                return [{"f16": -21, "f32": -133}[step.result]]  # Hopper's
            return [value - 1, value + 1, None]
        case "rounding":
            return ["rn" if value == "rz" else "rz"]
        case "precision":
            bits = {"f16": 11, "f32": 24}[step.result]
            return [bits - 1] if value is None else [value - 1, value + 1, None]
        case "run" | "passes":
            near = {0, value - 1, value + 1, 2 * value} if value else {1, max(lengths) // 2}
            changed = {x: replace(step, **{name: x}) for x in sorted(near - {value}) if x >= 0}
            return [
                x for x, other in changed.items()
                if any(_passes(other, k) != _passes(step, k) for k in lengths)
            ]  # fmt: skip
        case "group":
            return [value * 2, value // 2] if value > 1 else [2] if row.kinds else []
        case "nan_order":
            return [order for order in _ORDERS if order != value and len(order) in (0, 3)]
        case "to" | "fmt" | "result":
            return [_OTHER_FORMAT[value]]
    raise AssertionError(f"no rule for the constant {name} of {step}")


def _passes(step, k):
    """The passes that hold any position: one that has none changes nothing."""
    return [block for block in step.blocks(k) if block]


#: the table as it is
RIGHT = recipes.RECIPES


def replaced(monkeypatch, other, row):
    """Makes `other` stand in the table in place of `row`, or nothing if it is None."""
    table = [other if x is row else x for x in RIGHT]
    monkeypatch.setattr(recipes, "RECIPES", tuple(x for x in table if x is not None))
    for cache in _caches():
        cache.cache_clear()


@functools.lru_cache(maxsize=1)
def _caches():
    """What remembers the arithmetic of instructions."""
    watched = ("emulator.isa", "emulator.arith.recipes")
    places = [module for name, module in sys.modules.items() if name.startswith(watched)]
    places += [x for module in places for x in vars(module).values() if isinstance(x, type)]
    return [single._plan] + [
        found for place in places for found in vars(place).values()
        if type(found) is functools._lru_cache_wrapper and found.__module__.startswith(watched)
    ]  # fmt: skip
