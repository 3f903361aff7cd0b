"""The matrix products that a compiled ``tl.dot`` consists of, on element codes.

A is ``(…, m, k)``, B ``(…, k, n)``, C ``(…, m, n)``. What surrounds the instructions was read off
Triton 3.9.0's compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from dtypes import FORMATS, Array, convert
from emulator.adapters.triton_lowering import DotCall, Plan
from emulator.arith import Engine, matmul
from emulator.arith.conversions import convert as cvt
from emulator.arith.fast.wide import add
from emulator.arith.recipes import Arithmetic
from emulator.arith.steps import FmaChain, Widen
from emulator.isa.matrix import MatrixInstruction
from emulator.matrices.gemm import gemm
from emulator.matrices.mma import mma
from emulator.targets import Target

_F32 = FORMATS["f32"]
_SIGN = np.uint32(1 << 31)


def compute_dot(
    call: DotCall, plan: Plan, a: Array, b: Array, c: Array, target: Target, engine: Engine
) -> Array:
    """Codes of A·B + C, as `plan` says."""
    if plan.instruction is None:
        return _fma_chain(call, a, b, c, engine)
    multiply = partial(
        gemm, instruction=plan.instruction, target=target, codes=True, engine=engine, progress=False
    )
    if plan.widen:
        a, b = (convert(FORMATS[t], FORMATS[plan.widen], x) for t, x in ((call.a, a), (call.b, b)))
    if plan.interleave:
        order = _interleaved(a.shape[-1], plan.interleave, 2 * plan.instruction.k)
        a, b = a[..., :, order], b[..., order, :]
    if call.a == "f32" and call.precision == "tf32x3":
        return _three_tf32(multiply, a, b, c)
    return multiply(a, b, c, k_promote=plan.partial_k or None)


def _interleaved(k: int, run: int, block: int) -> Array:
    """Positions along k in the order of the instructions; see `Plan.interleave`.

    >>> _interleaved(8, 4, 8).tolist()
    [0, 1, 4, 5, 2, 3, 6, 7]
    """
    positions = np.arange(k)
    second = positions % run >= run // 2
    return np.lexsort((second, positions // block))


def _fma_chain(call: DotCall, a: Array, b: Array, c: Array, engine: Engine) -> Array:
    """x = fma(a[k], b[k], x) for ascending k, from C on, in the type of the accumulator."""
    steps = (FmaChain(call.d),) if call.a == call.d else (Widen(call.d), FmaChain(call.d))
    a_type, b_type, d_type = (FORMATS[t] for t in (call.a, call.b, call.d))
    arithmetic = Arithmetic(a_type, b_type, d_type, d_type, steps)
    return matmul(arithmetic, a, np.swapaxes(b, -1, -2), c, engine=engine)


def _three_tf32(multiply: Callable[..., Array], a: Array, b: Array, c: Array) -> Array:
    """3xTF32: each operand is a tf32 and what is left of it; the product of the rests is left out.

    The two small products come first, a NaN of theirs becomes 0, and C is added at the end.
    """
    a_big, a_rest = _split(a)
    b_big, b_rest = _split(b)
    small = multiply(a_rest, b_big, None)
    small = multiply(a_big, b_rest, small)
    small = np.where(np.isnan(small.view(np.float32)), np.uint32(0), small)
    return add(_F32, multiply(a_big, b_big, small), c)


def _split(words: Array) -> tuple[Array, Array]:
    """cvt.rna.tf32 of f32 words, and what the subtraction from them leaves."""
    big = cvt(_F32, FORMATS["tf32"], words, "rna")
    return big, add(_F32, words, big ^ _SIGN)


def compute_scaled(
    ins: MatrixInstruction,
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array,
    scale_b: Array,
    target: Target,
    engine: Engine,
) -> Array:
    """Codes of a block-scaled A·B + C: scales ``(…, m, s)`` and ``(…, s, n)`` for all of k."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    a, scale_a = (_padded(x, -2, ins.m) for x in (_padded(a, -1, ins.k), scale_a))
    b, scale_b = (_padded(x, -1, ins.n) for x in (_padded(b, -2, ins.k), scale_b))
    v = ins.scale_chunks
    scale_a, scale_b = _padded(scale_a, -1, v), _padded(scale_b, -2, v)
    x = _tiles(_padded(_padded(c, -2, ins.m), -1, ins.n), ins.m, ins.n)
    for step in range(-(-k // ins.k)):
        part, scales = (slice(step * size, (step + 1) * size) for size in (ins.k, v))
        x = mma(
            ins,
            _tiles(a[..., :, part], ins.m, ins.k),
            _tiles(b[..., part, :], ins.k, ins.n),
            x,
            scale_a=_tiles(scale_a[..., :, scales], ins.m, v),
            scale_b=_tiles(scale_b[..., scales, :], v, ins.n),
            target=target,
            codes=True,
            engine=engine,
        )
    rows, columns = x.shape[-4] * ins.m, x.shape[-3] * ins.n
    return np.swapaxes(x, -3, -2).reshape(*x.shape[:-4], rows, columns)[..., :m, :n]


def _tiles(matrix: Array, rows: int, columns: int) -> Array:
    """``(…, R, C)`` to ``(…, R / rows, C / columns, rows, columns)``."""
    *batch, height, width = matrix.shape
    split = matrix.reshape(*batch, height // rows, rows, width // columns, columns)
    return np.swapaxes(split, -3, -2)


def _padded(x: Array, axis: int, multiple: int) -> Array:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % multiple)
    return np.pad(x, widths)
