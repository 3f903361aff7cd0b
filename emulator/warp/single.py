"""One mma of one warp in few NumPy calls: tests and notebooks execute them one at a time.

An index array for each operand leads from the elements in lanes to the factors of all m·n·k
products at once, in the order of the lanes of D, so that no matrix is ever put together.
`arith.small` computes the rest. What that cannot compute, and every recipe without fused dot-adds,
is left to the path of batches.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dtypes import Array, unpack
from emulator.arith import factors, small
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import Index
from emulator.targets import Target
from emulator.warp.call import Call


class _Side(NamedTuple):
    """A or B."""

    fragment: Fragment
    #: ``(passes, k, elements of D)``: the element of each product, counted lane by lane
    elements: Index


class _Plan(NamedTuple):
    """What one instruction on one target looks up once."""

    a: _Side
    b: _Side
    c: Fragment
    made: factors.Plan


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
    a_value, a_power = _numbers(plan.a.fragment, made, a)
    b_value, b_power = _numbers(plan.b.fragment, made, b)

    def products(i: int) -> small.Numbers:
        in_a, in_b = plan.a.elements[i], plan.b.elements[i]
        value, power = a_value.take(in_a), a_power.take(in_a)
        value *= b_value.take(in_b)
        power *= b_power.take(in_b)
        return small.Numbers(value, power)

    codes = unpack(c, plan.c.place).reshape(-1)
    x = codes.view(np.float16).astype(np.float32) if made.numbers.half else codes.view(np.float32)
    d = small.dot_adds(made, len(made.order), products, x)
    if d is None:
        return None
    packed = d.astype(np.float16).view(np.uint32) if made.numbers.half else d.view(np.uint32)
    return packed.reshape(a.shape[0], -1)


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
    in_a, in_b = a.lane_map.inverse[group, row, k], b.lane_map.inverse[group, k, col]
    return _Plan(_Side(a, in_a), _Side(b, in_b), c, made)


def _numbers(fragment: Fragment, made: factors.Plan, registers: Array) -> small.Numbers:
    """The elements, lane by lane."""
    codes = unpack(registers, fragment.place).reshape(-1)
    return small.numbers(fragment.fmt, made.widen, codes)
