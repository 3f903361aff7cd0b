"""Mistakes with the accumulator and the loop over k.

Each function yields the ways of making one mistake with a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dtypes import Array, decode, decode_values, encode
from emulator.tools.faults.kernel import RecordedKernel, Variant

#: steps from either end of a loop that may be left out or done twice
_STEPS = 16


def accumulator(kernel: RecordedKernel) -> Iterator[Variant]:
    """The accumulator forgotten, not zeroed, or not carried from step to step."""
    ins, c = kernel.ins, kernel.words["c"]
    if ins.is_wgmma:
        taken = bool(kernel.options.get("scale_d", True))
        text = f"scale-d is {int(not taken)} instead of {int(taken)}"
        yield Variant("c", text, kernel.setting(scale_d=not taken))
    yield Variant("c", "C is zero: A·B alone came out", kernel.using(c=np.zeros_like(c)))
    if ins.c_type == ins.d_type:
        if (right := kernel.result()) is not None:
            again = kernel.using(c=ins.fragment("c").scatter(right))
            text = "not set before the second run: the result is added to itself"
            yield Variant("c", text, again.setting(scale_d=True) if ins.is_wgmma else again)
        yield Variant("d", "D is C: the instruction never ran", kernel.changing("d", lambda _: c))
    zero = ins.fragment("d").zeros()
    yield Variant("d", "D is zero: it was never written", kernel.changing("d", lambda _: zero))
    if (doubled := _doubled(kernel)) is not None:
        yield Variant("c", "C is added twice", kernel.using(c=doubled))
    if kernel.steps > 1:
        text = "not carried: every step along k starts from C, and the last one stays"
        yield Variant("c", text, replace(kernel, carries=False))


def _doubled(kernel: RecordedKernel) -> Array | None:
    fragment = kernel.ins.fragment("c")
    fmt, codes = fragment.fmt, fragment.gather(kernel.words["c"])
    if not fmt.is_float:
        return fragment.scatter(codes + codes)
    if fmt.bits > 32 or (decode(fmt, codes).number_class > 1).any():
        return None
    return fragment.scatter(encode(fmt, 2.0 * decode_values(fmt, codes)))


def steps_along_k(kernel: RecordedKernel) -> Iterator[Variant]:
    """The loop over k takes a part of A or B twice, or leaves one out."""
    n = kernel.steps
    if n == 1:
        return
    along, done = [x for x in kernel.words if x not in ("c", "shared")], list(range(n))
    orders = [("the last step along k is left out", done[:-1]),
              ("the first step along k is left out", done[1:])]  # fmt: skip
    for i in (i for i in done if i < _STEPS or i >= n - _STEPS):
        step = f"step {i} along k, of 0 to {n - 1}, is"
        if 0 < i < n - 1:
            orders.append((f"{step} left out", done[:i] + done[i + 1 :]))
        orders.append((f"{step} done twice", done[: i + 1] + done[i:]))
    for text, order in orders:
        yield Variant("", text, kernel.using(**{x: kernel.words[x][order] for x in along}))
    for name in along:
        for text, order in (
            ("every step along k takes that of the first step", [0] * n),
            ("every step along k takes that of the step before", [0, *done[:-1]]),
            ("the steps along k are in reverse", done[::-1]),
        ):
            taken = kernel.using(**{name: kernel.words[name][order]})
            yield Variant(name.removeprefix("descriptor_"), f"{name}: {text}", taken)
