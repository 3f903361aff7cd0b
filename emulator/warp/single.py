"""One mma of one warp with little around it: tests and notebooks execute them one at a time.

What an instruction on a target needs is looked up once. Operands are taken here only where they are
arrays of just the type and shape of the instruction's registers. A function of machine code
computes those where enough calls have paid for making it; else a few calls of NumPy do, which
`products` has planned. All else, what is refused above all, is left to the path of batches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array, code_type
from emulator.arith.engines import by_kernels, kernels_wanted, may_use_kernels
from emulator.errors import EmulatorError
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import Target
from emulator.warp import products
from emulator.warp.call import Call
from emulator.warp.sparse import check_selector

#: machine code: the registers of D, from the operands and whether illegal metadata is refused; None
#: where they are not legal
Kernel = Callable[[list[Array], bool], Array | None]

#: multiply-adds that the vector engine does in the time of a call, which is mostly overhead
_CALL = 1 << 13


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
    products: dict[tuple[int, ...], products.Products | None]


def run(call: Call) -> Array | None:
    """The registers of D of an mma; None where the path of batches is to compute or refuse it."""
    if call.engine == "reference":
        return None
    plan = _plan(call.instruction, call.target)
    if plan is None:
        return None
    given = _taken(plan, call)
    chosen = tuple([call.options.get(name, 0) for name in plan.options])
    if given is None or any(type(x) is not int for x in chosen):
        return None
    try:
        d = _by_kernel(plan, call, chosen, given) if may_use_kernels(call.engine) else None
        if d is None and call.engine != "compiled":
            d = _by_products(plan, call, chosen, given)
    except EmulatorError:
        return None
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
    return _Plan(registers, options, (type_, (count, lanes)), {}, {})


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


def _by_kernel(
    plan: _Plan, call: Call, chosen: tuple[int, ...], given: list[Array]
) -> Array | None:
    """None where no function is worth it or computes it, and where an operand is not legal."""
    if chosen not in plan.kernels:
        ins, target = call.instruction, call.target
        # What NumPy has no plan for goes the long way, by the path of batches. No type is slower:
        # this is time, nearly all of it overhead.
        work = _CALL if plan.products.get(chosen, ...) else 4 * _CALL
        if not kernels_wanted(call.engine, (ins, target), work, d_type=""):
            return None
        made = by_kernels(call.engine, lambda: _kernel(ins, target, plan, chosen))
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

    selector, ids = _selector_and_ids(ins, chosen)
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


def _by_products(
    plan: _Plan, call: Call, chosen: tuple[int, ...], given: list[Array]
) -> Array | None:
    """None where an operand is not legal, or an element or a result not ordinary."""
    if chosen not in plan.products:
        selector, ids = _selector_and_ids(call.instruction, chosen)
        plan.products[chosen] = products.plan(call.instruction, call.target, selector, ids)
    found = plan.products[chosen]
    return None if found is None else products.multiply(found, given)


def _selector_and_ids(
    ins: MatrixInstruction, chosen: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    return (chosen[0], chosen[1:]) if ins.is_sparse else (0, chosen)
