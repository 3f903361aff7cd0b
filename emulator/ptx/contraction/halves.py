"""Contraction: statements of f32x2 as two of f32, for chips that do not have f32x2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from emulator.ptx.contraction.rewrites import (
    Elements,
    Fusion,
    Identity,
    Inverse,
    Rewrite,
    Saturation,
    Scaling,
    Selection,
)
from emulator.ptx.contraction.values import HALF, TAKE
from emulator.ptx.dataflow import Source, Statement
from emulator.ptx.folding import Conversion


def take_apart(
    statements: Sequence[Statement], needed: bool
) -> tuple[Sequence[Statement], list[tuple[int, int | None]]]:
    """Makes two statements of each that multiplies or adds f32x2; where each comes from.

    Where it comes from is the index of a statement, and 0 or 1 for its low and its high half.
    """
    if not needed or not any(s.opcode.endswith(".f32x2") for s in statements):
        return statements, [(index, None) for index in range(len(statements))]
    result: list[Statement] = []
    origins: list[tuple[int, int | None]] = []
    for index, statement in enumerate(statements):
        taken = _halves(statement, index)
        result += [part for part, _ in taken]
        origins += [(index, element) for _, element in taken]
    return result, origins


def _halves(statement: Statement, index: int) -> list[tuple[Statement, int | None]]:
    if statement.head not in ("mul", "add", "sub") or not statement.opcode.endswith(".f32x2"):
        return [(statement, None)]
    parts: list[tuple[Statement, int | None]] = []
    sources: list[tuple[Source, Source]] = []
    for place, source in enumerate(statement.sources):
        if isinstance(source, int):
            sources.append((source & 0xFFFFFFFF, source >> 32))
        else:
            low, high = (f"{index} {place} {half}" for half in ("low", "high"))
            sources.append((low, high))
            parts.append((Statement(TAKE, (low, high), (source,)), None))
    opcode = statement.opcode.removesuffix("f32x2") + HALF
    results = tuple(f"{index} {half}" for half in ("low", "high"))
    for element, name in enumerate(results):
        halves = tuple(source[element] for source in sources)
        parts.append((Statement(opcode, (name,), halves), element))
    parts.append((Statement("mov.b64", statement.destinations, results, statement.guard), None))
    first = replace(parts[0][0], labels=statement.labels)
    return [(first, parts[0][1]), *parts[1:]]


def joined(
    found: dict[int, Rewrite], origins: Sequence[tuple[int, int | None]]
) -> dict[int, Rewrite]:
    """Maps rewrites of parts back to the statements that they come from."""
    result: dict[int, Rewrite] = {}
    halves: dict[int, list[Fusion | Scaling | Identity | None]] = {}
    for part, rewrite in sorted(found.items()):
        index, element = origins[part]
        if isinstance(rewrite, (Fusion, Scaling)):
            source, half = origins[rewrite.multiplication]
            rewrite = replace(rewrite, multiplication=source, element=half)
        elif isinstance(rewrite, (Saturation, Conversion, Inverse)):
            rewrite = replace(rewrite, inner=origins[rewrite.inner][0])
        elif isinstance(rewrite, Selection):
            rewrite = Selection(
                tuple(
                    (None if inner is None else origins[inner][0], signs)
                    for inner, signs in rewrite.operands
                )
            )
        if element is None:
            result[index] = rewrite
        elif isinstance(rewrite, (Fusion, Scaling, Identity)):
            halves.setdefault(index, [None, None])[element] = rewrite
    for index, (low, high) in halves.items():
        result[index] = _whole(low, high) or Elements((low, high))
    return dict(sorted(result.items()))


def _whole(
    low: Fusion | Scaling | Identity | None, high: Fusion | Scaling | Identity | None
) -> Rewrite | None:
    """The rewrite of a whole f32x2 where both halves are rewritten alike, from halves alike."""
    if isinstance(low, Identity):
        return low if low == high else None
    if (
        low is None
        or high is None
        or isinstance(high, Identity)
        or (low.element, high.element) != (0, 1)
    ):
        return None
    whole = replace(low, element=None)
    if whole != replace(high, element=None):
        return None
    if isinstance(whole, Fusion):
        return replace(whole, opcode=whole.opcode.replace("f32", "f32x2"))
    return whole
