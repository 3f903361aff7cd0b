"""One mma of one warp in few NumPy calls: tests and notebooks execute them one at a time.

Most of the time that a single warp takes on the path of batches is the overhead of many calls on
small arrays. Here an index array for each operand leads from the elements in lanes to the factors
of all m·n·k products at once, in the order of the lanes of D, and a table for each format from
codes to numbers. The arithmetic is that of `arith.fused`. Whatever is not ordinary (see
`arith.factors`) and every recipe without fused dot-adds is left to the path of batches.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dtypes import Array, Format, unpack
from emulator.arith import factors, fused
from emulator.arith.factors import EXPONENT, Float32
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import Index
from emulator.targets import Target
from emulator.warp.call import Call

#: largest exponents that the alignment can work with, as numbers
_LOW, _HIGH = np.float32(fused.LOW.view(np.float32)), np.float32(fused.HIGH.view(np.float32))
#: bits of the widest format that has tables: two of 256 KiB
_TABLE_BITS = 16


class _Side(NamedTuple):
    """A or B."""

    fragment: Fragment
    #: the format whose exponents align the products
    aligned: Format
    #: ``(passes, k, elements of D)``: the element of each product, counted lane by lane
    elements: Index


class _Plan(NamedTuple):
    """What one instruction on one target looks up once."""

    a: _Side
    b: _Side
    c: Fragment
    made: factors.Plan
    #: the unit of the sums, as a share of the largest exponent
    unit: np.float32
    #: terms whose sum fits an int32
    run: int


def run(call: Call) -> Array | None:
    """The registers of D of a dense mma; None where the path of batches is to compute them.

    Raises OperandError for operands that are no registers of the instruction.
    """
    plan = _plan(call.instruction, call.target) if call.engine in ("auto", "vector") else None
    if plan is None:
        return None
    a, b, c = (x.check_registers(call.operands[x.operand]) for x in (plan.a[0], plan.b[0], plan.c))
    if a.ndim + b.ndim + c.ndim > 6:
        return None
    made = plan.made
    codes = unpack(c, plan.c.place).reshape(-1)
    x = codes.view(np.float16).astype(np.float32) if made.numbers.half else codes.view(np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        d = _dot_add(plan, a, b, x)
    if d is None:
        return None
    codes = d.astype(np.float16).view(np.uint16) if made.numbers.half else d.view(np.uint32)
    return codes.view(np.uint32).reshape(a.shape[0], -1)


@lru_cache(maxsize=128)
def _plan(ins: MatrixInstruction, target: Target) -> _Plan | None:
    """None where a recipe, a format or the places of elements keep an instruction from here."""
    if ins.is_wgmma or ins.is_sparse or ins.is_block_scaled:
        return None
    made = factors.plan(ins.arithmetic(target), ins.k)
    a, b, c, d = (ins.fragment(x) for x in "abcd")
    if made is None or made.before or made.after or a.place.padding or b.place.padding:
        return None
    assert c.lane_map == d.lane_map and c.fmt is d.fmt, "the accumulator stays where it is"
    group, row, col = d.lane_map.coordinates.reshape(-1, 3).T
    k = made.order[..., None]
    unit = (made.numbers.to_unit + (np.int64(127) << np.int64(52))).view(np.float64)
    return _Plan(
        _Side(a, made.widen or a.fmt, a.lane_map.inverse[group, row, k]),
        _Side(b, made.widen or b.fmt, b.lane_map.inverse[group, k, col]),
        c, made, np.float32(unit), int(2**29 * unit),
    )  # fmt: skip


def _dot_add(plan: _Plan, a: Array, b: Array, c: Float32) -> Float32 | None:
    """D of all passes, None where an operand or a result is not ordinary."""
    made = plan.made
    a_value, a_power = _numbers(plan.a, a)
    b_value, b_power = _numbers(plan.b, b)
    x = np.zeros_like(c) if made.adds_c else c
    for i, j in zip(plan.a.elements, plan.b.elements, strict=True):
        products, powers = a_value.take(i), a_power.take(i)
        products *= b_value.take(j)
        powers *= b_power.take(j)
        found = _pass(plan, products, np.maximum.reduce(powers, 0), x)
        if found is None:
            return None
        x = found
    if made.adds_c:
        x, odd = fused.add_rounded(made.numbers.half, c, x)
        if odd.any():
            return None
    return x


def _pass(plan: _Plan, products: Float32, top: Float32, x: Float32) -> Float32 | None:
    """One fused dot-add: `arith.fused` with products ``(k, elements)`` and their largest exponents;
    None where that would mark an element."""
    numbers = plan.made.numbers
    if numbers.half:
        exponent = factors.powers(plan.made.result, x)
    else:
        exponent = (x.view(np.int32) & EXPONENT).view(np.float32)
    top = np.maximum(np.maximum(top, exponent), numbers.floor.view(np.float32))
    # A NaN, of an infinite power and one of 0, compares as false.
    if not top.max() <= _HIGH or (top.min() < _LOW and ((top < _LOW) & (top + abs(x) != 0)).any()):
        return None
    scale = (numbers.to_scale - top.view(np.int32)).view(np.float32)
    products *= scale
    cut = products.astype(np.int32)
    total = (x * scale).astype(np.int32).astype(np.float64)
    for start in range(0, len(cut), plan.run):
        total += np.add.reduce(cut[start : start + plan.run], 0, dtype=np.int32)
    total *= top * plan.unit
    if numbers.half:
        rounded = fused.round_to_half(total)
        return rounded if np.abs(rounded).max() <= np.float32(65504) else None
    return (total.view(np.int64) & numbers.mask).view(np.float64).astype(np.float32)


def _numbers(side: _Side, registers: Array) -> tuple[Float32, Float32]:
    """Value and power of the elements, lane by lane; the power of one that is not ordinary is
    infinite."""
    codes = unpack(registers, side.fragment.place).reshape(-1)
    if side.fragment.fmt.bits <= _TABLE_BITS:
        value, power = _tables(side.fragment.fmt, side.aligned)
        return value.take(codes), power.take(codes)
    return _valued(side.fragment.fmt, side.aligned, codes)


@lru_cache(maxsize=16)
def _tables(fmt: Format, aligned: Format) -> tuple[Float32, Float32]:
    codes = np.arange(1 << fmt.bits, dtype=np.uint16 if fmt.bits > 8 else np.uint8)
    return _valued(fmt, aligned, codes)


def _valued(fmt: Format, aligned: Format, codes: Array) -> tuple[Float32, Float32]:
    value = factors.values(fmt, codes)
    power = factors.powers(aligned, value)
    special = ~((power >= factors.LEAST) & (power <= factors.LARGEST) | (value == 0))
    power[special] = np.inf
    return value, power
