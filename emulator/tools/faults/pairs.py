"""Mistakes with a kernel, one or two at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from dtypes import Array
from emulator.tools.faults.kernel import Kernel, results
from emulator.tools.faults.registers import Mistake, Variant

#: variants computed at a time
CHUNK = 512


class Try(NamedTuple):
    """One way of making one mistake."""

    mistake: Mistake
    variant: Variant


def results_of(tries: Iterable[Try]) -> Iterator[tuple[Try, Array | None]]:
    """Every mistake with its `Kernel.result`."""
    chunk: list[Try] = []
    for one in tries:
        chunk.append(one)
        if len(chunk) == CHUNK:
            yield from zip(chunk, results([x.variant.kernel for x in chunk]), strict=True)
            chunk = []
    yield from zip(chunk, results([x.variant.kernel for x in chunk]), strict=True)


def diagonals(tries: list[Try]) -> Iterator[tuple[Try, Try]]:
    """All pairs, those of the likelier mistakes first."""
    for total in range(1, 2 * len(tries) - 2):
        for i in range(max(0, total - len(tries) + 1), (total + 1) // 2):
            yield tries[i], tries[total - i]


def combined_try(base: Kernel, first: Try, second: Try) -> Try | None:
    """Two mistakes that change different things, as one."""
    x, y = first.variant, second.variant
    if x.operand == y.operand or "" in (x.operand, y.operand):
        return None
    changed = [
        {n: w for n, w in k.words.items() if w is not base.words.get(n)}
        for k in (x.kernel, y.kernel)
    ]
    options = [
        {n: v for n, v in k.options.items() if base.options.get(n) != v}
        for k in (x.kernel, y.kernel)
    ]
    if set(changed[0]) & set(changed[1]) or set(options[0]) & set(options[1]):
        return None
    kernel = replace(
        base.using(**changed[0], **changed[1]).setting(**options[0], **options[1]),
        carries=x.kernel.carries and y.kernel.carries, reads=x.kernel.reads + y.kernel.reads,
    )  # fmt: skip
    name = f"{first.mistake.name}, and {second.mistake.name}"
    text = " ".join(z.mistake.explain(z.variant.operand) for z in (first, second))
    mistake = first.mistake._replace(name=name, explanation=text, advice={})
    detail = f"{x.detail}, and {y.detail}"
    return Try(mistake, Variant(f"{x.operand} {y.operand}", detail, kernel))


def distinct(pairs: Iterable[tuple[Try, Array | None]], right: Array) -> list[Try]:
    """One mistake of all those with the same result."""
    seen = {right.tobytes()}
    out = []
    for one, result in pairs:
        if result is not None and result.tobytes() not in seen:
            seen.add(result.tobytes())
            out.append(one)
    return out
