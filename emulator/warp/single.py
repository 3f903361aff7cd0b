"""One mma of one warp with little around it: tests and notebooks execute them one at a time.

What an instruction on a target needs is looked up once. Operands are taken here only where they are
arrays of just the type and shape of the instruction's registers. A function of machine code
computes those where enough calls have paid for making it; else, an index array for each operand
leads from the elements in lanes to the factors of all m·n·k products at once, in the order of the
lanes of D, so that no matrix is ever put together, and `arith.small` computes the rest. All else,
what is refused above all, is left to the path of batches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array, code_type, unpack
from emulator.arith import factors, small
from emulator.arith.engines import by_kernels, kernels_wanted, may_use_kernels
from emulator.errors import EmulatorError
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import Index
from emulator.targets import Target
from emulator.warp.call import Call
from emulator.warp.sparse import check_selector

#: machine code: the registers of D, from the operands and whether illegal metadata is refused; None
#: where they are not legal
Kernel = Callable[[list[Array], bool], Array | None]

#: multiply-adds that the vector engine does in the time of one call, which is mostly overhead
_CALL = 1 << 13


class _Side(NamedTuple):
    """A or B."""

    fragment: Fragment
    #: ``(passes, k, elements of D)``: the element of each product, counted lane by lane
    elements: Index


class _Products(NamedTuple):
    """How NumPy multiplies."""

    a: _Side
    b: _Side
    c: Fragment
    made: factors.Plan


class _Plan(NamedTuple):
    """What one instruction on one target looks up once."""

    #: type and shapes of the registers of a, b, c, e, scale_a and scale_b by name
    registers: dict[str, tuple[np.dtype[Any], tuple[tuple[int, ...], ...]]]
    #: the selector, and the ids of scales
    options: tuple[str, ...]
    #: those of D, one row for each register
    d: tuple[np.dtype[Any], tuple[int, int]]
    #: those made so far by values of `options`; None where none computes that
    kernels: dict[tuple[int, ...], Kernel | None]
    products: _Products | None


def run(call: Call) -> Array | None:
    """The registers of D of an mma; None where the path of batches is to compute or refuse it."""
    if call.engine == "reference":
        return None
    plan = _plan(call.instruction, call.target)
    if plan is None:
        return None
    given = _taken(plan, call)
    if given is None:
        return None
    d = _by_kernel(plan, call, given) if may_use_kernels(call.engine) else None
    if d is None and call.engine != "compiled" and plan.products is not None:
        d = _by_products(plan.products, *given)
    return d


@lru_cache(maxsize=1024)
def _plan(ins: MatrixInstruction, target: Target) -> _Plan | None:
    if ins.is_wgmma:
        return None
    registers = {}
    for name, x in ins.fragments.items():
        shapes: tuple[tuple[int, ...], ...] = ((x.lanes, x.registers),)
        if name not in ("a", "b", "c", "d"):
            shapes = ((x.lanes,), (x.lanes, 1))
        registers[name] = code_type(x.word_bits), shapes
    type_, ((lanes, count),) = registers.pop("d")
    options = tuple(x for x in ins.options if x not in registers)
    return _Plan(registers, options, (type_, (count, lanes)), {}, _products(ins, target))


def _taken(plan: _Plan, call: Call) -> list[Array] | None:
    """The operands, if all are arrays of just the type and shape of one warp's registers."""
    given = []
    for name, (type_, shapes) in plan.registers.items():
        x = call.operands.get(name)
        x = call.options.get(name) if x is None else x
        if type(x) is not np.ndarray or x.dtype != type_ or x.shape not in shapes:
            return None
        given.append(x)
    return given


# --- machine code ---------------------------------------------------------------------------------


def _by_kernel(plan: _Plan, call: Call, given: list[Array]) -> Array | None:
    """None where no function is worth it or computes it, and where an operand is not legal."""
    chosen = tuple([call.options.get(name, 0) for name in plan.options])
    if any(type(x) is not int for x in chosen):
        return None
    if chosen not in plan.kernels:
        ins, target = call.instruction, call.target
        work = max(_CALL, ins.m * ins.n * ins.k)
        if not kernels_wanted(call.engine, (ins, target), work):
            return None
        try:
            made = by_kernels(call.engine, lambda: _kernel(ins, target, plan, chosen))
        except EmulatorError:
            return None
        plan.kernels[chosen] = made
    multiply = plan.kernels[chosen]
    return None if multiply is None else multiply(given, call.undefined == "raise")


def _kernel(
    ins: MatrixInstruction, target: Target, plan: _Plan, chosen: tuple[int, ...]
) -> Kernel | None:
    """Raises OperandError for a selector or ids that the instruction has not."""
    from emulator.arith.kernels.batch import address_of
    from emulator.arith.kernels.machine_code import callable_at
    from emulator.arith.kernels.product import METADATA
    from emulator.warp.native import warp_function

    selector, ids = (chosen[0], chosen[1:]) if ins.is_sparse else (0, chosen)
    if ins.is_sparse:
        check_selector(ins, selector)
    found = warp_function(ins, target, selector, *([ids] if ids else []))
    if found is None:
        return None
    compute = callable_at(found.address, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    type_, shape = plan.d
    count = found.size // (type_.itemsize * ins.lanes)

    def multiply(given: list[Array], metadata_is_checked: bool) -> Array | None:
        # The function takes and gives the words of all lanes for one register after the other.
        registers = np.empty((count, ins.lanes), type_)
        np.concatenate([x.T if x.ndim == 2 else x[None] for x in given], out=registers)
        d = np.empty(shape, type_)
        flags = compute(address_of(registers), address_of(d))
        if flags and (flags != METADATA or metadata_is_checked):
            return None
        return d.T.copy()

    return multiply


# --- NumPy ----------------------------------------------------------------------------------------


def _by_products(plan: _Products, a: Array, b: Array, c: Array) -> Array | None:
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


def _products(ins: MatrixInstruction, target: Target) -> _Products | None:
    """None where a recipe, a format or the places of elements keep an instruction from here."""
    if ins.is_sparse or ins.is_block_scaled:
        return None
    made = factors.plan(ins.arithmetic(target), ins.k)
    a, b, c, d = (ins.fragment(x) for x in "abcd")
    if made is None or made.before or made.after or a.place.padding or b.place.padding:
        return None
    assert c.lane_map == d.lane_map and c.fmt is d.fmt, "the accumulator stays where it is"
    group, row, col = d.lane_map.coordinates.reshape(-1, 3).T
    k = made.order[..., None]
    in_a, in_b = a.lane_map.inverse[group, row, k], b.lane_map.inverse[group, k, col]
    return _Products(_Side(a, in_a), _Side(b, in_b), c, made)


def _numbers(fragment: Fragment, made: factors.Plan, registers: Array) -> small.Numbers:
    """The elements, lane by lane."""
    codes = unpack(registers, fragment.place).reshape(-1)
    return small.numbers(fragment.fmt, made.widen, codes)
