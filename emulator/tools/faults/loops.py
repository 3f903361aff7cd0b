"""Mistakes with the accumulator and the loop over k.

Each function yields the ways of making one mistake with a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dtypes import Array, decode, decode_values, encode
from emulator.tools.faults.kernel import Kernel
from emulator.tools.faults.registers import Variant


def accumulator(kernel: Kernel) -> Iterator[Variant]:
    """The accumulator forgotten, not zeroed, or not carried from step to step."""
    c = kernel.words["c"]
    zeroed = kernel.using(c=np.zeros_like(c))
    if kernel.ins.is_wgmma:
        taken = bool(kernel.options.get("scale_d", True))
        text = f"scale-d is {int(not taken)} instead of {int(taken)}"
        yield Variant("c", text, kernel.setting(scale_d=not taken))
    yield Variant("c", "C is zero: A·B alone came out", zeroed)
    if kernel.ins.c_type == kernel.ins.d_type:
        if (right := kernel.result()) is not None:
            again = kernel.using(c=kernel.ins.fragment("c").scatter(right))
            text = "not set before the second run: the result is added to itself"
            yield Variant("c", text, again.setting(scale_d=True) if kernel.ins.is_wgmma else again)
        yield Variant("d", "D is C: the instruction never ran", kernel.changing("d", lambda _: c))
    zero = np.zeros((kernel.ins.lanes, kernel.registers["d"]), _words_of(kernel))
    yield Variant("d", "D is zero: it was never written", kernel.changing("d", lambda _: zero))
    doubled = _doubled(kernel)
    if doubled is not None:
        yield Variant("c", "C is added twice", kernel.using(c=doubled))
    if kernel.steps > 1:
        text = "not carried: every step along k starts from C, and the last one stays"
        yield Variant("c", text, replace(kernel, carries=False))


def _words_of(kernel: Kernel) -> type[np.uint32] | type[np.uint64]:
    return np.uint64 if kernel.ins.fragment("d").word_bits == 64 else np.uint32


def _doubled(kernel: Kernel) -> Array | None:
    fragment = kernel.ins.fragment("c")
    codes = fragment.gather(kernel.words["c"])
    if not fragment.fmt.is_float:
        return fragment.scatter(codes + codes)
    if fragment.fmt.bits > 32 or (decode(fragment.fmt, codes).number_class > 1).any():
        return None
    return fragment.scatter(encode(fragment.fmt, 2.0 * decode_values(fragment.fmt, codes)))


#: steps from either end of a loop that may be left out or done twice
_STEPS = 16


def steps_along_k(kernel: Kernel) -> Iterator[Variant]:
    """The loop over k takes a part of A or B twice, or leaves one out."""
    n = kernel.steps
    if n == 1:
        return
    along = [x for x in kernel.words if x not in ("c", "shared")]
    orders = [("the last step along k is left out", list(range(n - 1))),
              ("the first step along k is left out", list(range(1, n)))]  # fmt: skip
    for i in _some_steps(n):
        done = list(range(n))
        if 0 < i < n - 1:
            text = f"step {i} along k, of 0 to {n - 1}, is left out"
            orders.append((text, done[:i] + done[i + 1 :]))
        orders.append(
            (f"step {i} along k, of 0 to {n - 1}, is done twice", done[: i + 1] + done[i:])
        )
    for text, order in orders:
        yield Variant("", text, kernel.using(**{x: kernel.words[x][order] for x in along}))
    for name in along:
        for text, order in (
            ("every step along k takes that of the first step", [0] * n),
            ("every step along k takes that of the step before", [0, *range(n - 1)]),
            ("the steps along k are in reverse", list(range(n))[::-1]),
        ):
            taken = kernel.using(**{name: kernel.words[name][order]})
            yield Variant(name.removeprefix("descriptor_"), f"{name}: {text}", taken)


def _some_steps(n: int) -> list[int]:
    """Every step along k of a short loop, of a long one those at either end."""
    return [i for i in range(n) if i < _STEPS or i >= n - _STEPS]
