"""Operators, other than products, with the same bits on the CPU and on a GPU, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from torch import Tensor

from emulator.matrices.library.recorded import Evidence
from emulator.tools.pytorch.composites import tensors_in

MOVES = "moves values"
#: why -> operators of aten, without the "_" of those that work in place
EXACT: dict[str, str] = {
    MOVES: """
        copy clone empty empty_strided empty_like new_empty zeros zero ones full fill new_zeros
        new_full cat stack index index_select index_copy gather where masked_select take flip roll
        repeat tril triu select_backward slice_backward as_strided_scatter diag_embed set resize
        constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d
        slice_scatter select_scatter diagonal_scatter unfold_copy tril_indices triu_indices nonzero
        embedding masked_fill lift_fresh _to_copy detach channel_shuffle pixel_shuffle
        pixel_unshuffle _local_scalar_dense masked_scatter eye isfinite isnan isinf isneginf
        isposinf record_stream _foreach_copy _foreach_zero repeat_interleave one_hot equal""",
    "picks among values": """
        eq ne lt le gt ge maximum minimum clamp clamp_min clamp_max max min amax amin relu threshold
        threshold_backward argmax argmin any all isin bucketize searchsorted abs neg sign sgn
        signbit floor ceil trunc round fmax fmin hardtanh bitwise_and bitwise_or bitwise_xor
        bitwise_not bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__
        __rshift__ logical_and logical_or logical_xor logical_not is_nonzero aminmax
        max_pool2d_with_indices""",
}  # fmt: skip
#: operators with one rounding of a result that IEEE 754 defines
ROUNDED = "add sub rsub mul div sqrt reciprocal true_divide"
#: operators that are exact for integers besides
INTEGERS = (
    "floor_divide sum cumsum arange remainder fmod prod bincount scatter_add index_add index_put"
)


@cache
def _reason(name: str) -> str:
    return next((why for why, names in EXACT.items() if name in names.split()), "")


def why_exact(
    name: str, tensors: Sequence[Tensor], options: Mapping[str, object]
) -> tuple[str, Evidence]:
    """Whether an operator has a GPU's bits where the CPU computes it: why, and the evidence.

    "rule": the result follows from the operation alone; "none": the GPU sums in another order, or
    has functions of its own.
    """
    base = name.removeprefix("_foreach_").rstrip("_") or name
    reason = _reason(base) or _reason(name)
    is_complex = any(x.dtype.is_complex for x in tensors)
    if reason == MOVES or (reason and not is_complex):
        return reason, "rule"
    floating = is_complex or any(x.dtype.is_floating_point for x in tensors)
    if base in ROUNDED.split() or base in INTEGERS.split():
        if not floating:
            return "computes integers", "rule"
        # A GPU fuses alpha with the addition, and a rounded quotient is a remainder's.
        plain = options.get("alpha", 1) == 1 and options.get("rounding_mode") is None
        if base in ROUNDED.split() and plain and not is_complex:
            return "rounds each result once", "rule"
    return "the GPU has an order or a function of its own", "none"


def why_of_doubles(made: object, known: tuple[str, Evidence]) -> tuple[str, Evidence]:
    """Why a result has a GPU's bits, of an operator on f64 that rounds once, and the evidence."""
    if any(x.is_floating_point() and x.isnan().any() for x in tensors_in(made)):
        return "the code of a NaN of f64 is not known", "none"
    return known
