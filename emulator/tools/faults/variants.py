"""Ways of making mistakes, one or two at a time, and what they compute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, encode
from emulator.errors import OperandError
from emulator.tools.faults.kernel import Mistake, RecordedKernel, Variant, results
from emulator.tools.operands import ONE_WORD
from emulator.warp.sparse import legal_nibbles

#: variants computed at a time
CHUNK = 512


class Try(NamedTuple):
    """One way of making one mistake."""

    mistake: Mistake
    variant: Variant

    @property
    def key(self) -> tuple[str, str, str]:
        return self.mistake.name, self.variant.operand, self.variant.detail


def results_of(tries: Iterable[Try]) -> Iterator[tuple[Try, Array | None]]:
    """Every mistake with its `Kernel.result`."""
    chunk: list[Try] = []
    for one in tries:
        chunk.append(one)
        if len(chunk) == CHUNK:
            yield from zip(chunk, results([x.variant.kernel for x in chunk]), strict=True)
            chunk = []
    yield from zip(chunk, results([x.variant.kernel for x in chunk]), strict=True)


def pairs_of(base: RecordedKernel, tries: list[Try]) -> Iterator[Try]:
    """Two mistakes that change different things, as one; those of the likelier mistakes first."""
    for total in range(1, 2 * len(tries) - 2):
        for i in range(max(0, total - len(tries) + 1), (total + 1) // 2):
            if (both := _combined(base, tries[i], tries[total - i])) is not None:
                yield both


def _combined(base: RecordedKernel, first: Try, second: Try) -> Try | None:
    x, y = first.variant, second.variant
    if x.operand == y.operand or "" in (x.operand, y.operand):
        return None
    kernels = (x.kernel, y.kernel)
    words = [{n: w for n, w in k.words.items() if w is not base.words.get(n)} for k in kernels]
    options = [{n: v for n, v in k.options.items() if base.options.get(n) != v} for k in kernels]
    if set(words[0]) & set(words[1]) or set(options[0]) & set(options[1]):
        return None
    kernel = replace(
        base.using(**words[0], **words[1]).setting(**options[0], **options[1]),
        carries=x.kernel.carries and y.kernel.carries,
        reads=x.kernel.reads + y.kernel.reads,
    )
    name = f"{first.mistake.name}, and {second.mistake.name}"
    text = " ".join(z.mistake.explain(z.variant.operand) for z in (first, second))
    mistake = first.mistake._replace(name=name, explanation=text, advice={})
    return Try(mistake, Variant(f"{x.operand} {y.operand}", f"{x.detail}, and {y.detail}", kernel))


# --- operands that tell every mistake from every other --------------------------------------------


def probe_of(base: RecordedKernel) -> RecordedKernel:
    """The same kernel with another value in every element."""
    rng = np.random.default_rng(12345)
    ins, kernel = base.ins, base
    for name in ("a", "b", "c", *ONE_WORD):
        if name in ONE_WORD and name not in base.words:
            continue
        old = base.matrix(name)
        if name == "e":
            codes = rng.choice(legal_nibbles(ins), old.shape)
        else:
            type_ = ins.scale_type if name in ONE_WORD else getattr(ins, f"{name}_type")
            codes = _unique(rng, FORMATS[type_], old.shape)
        try:
            kernel = kernel.holding(name, codes.astype(old.dtype))
        except OperandError:
            continue  # a tile that overlaps itself stays as it is
    return kernel


def _unique(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...]) -> Array:
    if fmt.is_float and fmt.signed:
        return encode(fmt, rng.uniform(-2, 2, shape))
    if fmt.is_float:
        return (fmt.bias << fmt.mantissa_bits) + rng.integers(-6, 7, shape)
    return rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True)
