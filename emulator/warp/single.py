"""One mma or wgmma with little around it: tests and notebooks execute them one at a time.

What an instruction on a target needs is looked up once. Operands are taken here only where they are
arrays of just the type and shape of the instruction's registers. A function of machine code
computes those where enough calls have paid for making it; else a few calls of NumPy do, which
`products` has planned. All else, what is refused above all, is left to the path of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import numpy as np

from dtypes import Array, code_type
from emulator.arith import Engine
from emulator.arith.engines import by_kernels, kernels_wanted, may_use_kernels
from emulator.arrays import address_of
from emulator.errors import EmulatorError
from emulator.isa.matrix import IMMEDIATES, MatrixInstruction
from emulator.layout.descriptor import as_words
from emulator.memory.descriptors import tile_places
from emulator.memory.space import Space
from emulator.targets import Target
from emulator.warp import products
from emulator.warp.call import Call, Undefined
from emulator.warp.operands import Checked
from emulator.warp.sparse import check_selector

#: machine code: the registers of D, from the operands and whether illegal metadata is refused; None
#: where they are not legal
Kernel = Callable[[list[Array], bool], Array | None]

#: multiply-adds that the vector engine does in the time of a call, which is mostly overhead
_CALL = 1 << 13


class _Plan(NamedTuple):
    """Facts of one instruction on one target, looked up once."""

    #: type and shapes of the registers of a, b, c, e, scale_a and scale_b by name
    registers: dict[str, tuple[np.dtype[Any], tuple[tuple[int, ...], ...]]]
    #: the selector, and the ids of scales
    options: tuple[str, ...]
    #: those of D, one row for each register
    d: tuple[np.dtype[Any], tuple[int, int]]
    #: those made so far by values of `options`; None where none computes that
    kernels: dict[tuple[int, ...], Kernel | None]
    products: dict[tuple[int, ...], products.Products | None]


class _How(NamedTuple):
    """What calls have in common."""

    instruction: MatrixInstruction
    target: Target
    engine: Engine
    undefined: Undefined


def bound(
    ins: MatrixInstruction, target: Target, engine: Engine, undefined: Undefined
) -> Callable[[dict[str, Array], dict[str, Any]], Array | None]:
    """The registers of D from operands and options; None where the path of batches is to compute
    or refuse them."""
    if engine == "reference":
        return lambda operands, options: None
    plan, how = _plan(ins, target), _How(ins, target, engine, undefined)
    if isinstance(plan, _Warpgroup):
        return partial(_of_warpgroup, plan, how)
    return partial(_of_warp, plan, how)


def _of_warp(
    plan: _Plan, how: _How, operands: dict[str, Array], options: dict[str, Any]
) -> Array | None:
    given = _taken(plan, operands, options)
    chosen = tuple([options.get(name, 0) for name in plan.options])
    if given is None or any(type(x) is not int for x in chosen):
        return None
    try:
        d = _by_kernel(plan, how, chosen, given) if may_use_kernels(how.engine) else None
        if d is None and how.engine != "compiled":
            d = _by_products(plan, how, chosen, given)
    except EmulatorError:
        return None
    return d


@lru_cache(maxsize=1024)
def _plan(ins: MatrixInstruction, target: Target) -> _Plan | _Warpgroup:
    if ins.is_wgmma:
        return _warpgroup(ins)
    registers = {}
    for name, x in ins.fragments.items():
        shapes: tuple[tuple[int, ...], ...] = ((x.lanes, x.registers),)
        if name not in ("a", "b", "c", "d"):
            shapes = ((x.lanes,), (x.lanes, 1))
        registers[name] = code_type(x.word_bits), shapes
    type_, ((lanes, count),) = registers.pop("d")
    options = tuple(x for x in ins.options if x not in registers)
    return _Plan(registers, options, (type_, (count, lanes)), {}, {})


def _taken(plan: _Plan, operands: dict[str, Array], options: dict[str, Any]) -> list[Array] | None:
    """The operands, if all are arrays of just the type and shape of one warp's registers."""
    given = []
    for name, (type_, shapes) in plan.registers.items():
        x: Any = operands.get(name)
        x = options.get(name) if x is None else x
        if type(x) is not np.ndarray or x.dtype != type_ or x.shape not in shapes:
            return None
        given.append(x)
    return given


# --- machine code ---------------------------------------------------------------------------------


def _by_kernel(plan: _Plan, how: _How, chosen: tuple[int, ...], given: list[Array]) -> Array | None:
    """None where no function is worth it or computes it, and where an operand is not legal."""
    if chosen not in plan.kernels:
        ins, target = how.instruction, how.target
        # What NumPy has no plan for goes the long way, by the path of batches. No type is slower:
        # this is time, nearly all of it overhead.
        work = _CALL if plan.products.get(chosen, ...) else 4 * _CALL
        if not kernels_wanted(how.engine, (ins, target), work, d_type=""):
            return None
        made = by_kernels(how.engine, lambda: _kernel(ins, target, plan, chosen))
        plan.kernels[chosen] = made
    multiply = plan.kernels[chosen]
    return None if multiply is None else multiply(given, how.undefined == "raise")


def _kernel(
    ins: MatrixInstruction, target: Target, plan: _Plan, chosen: tuple[int, ...]
) -> Kernel | None:
    """Raises OperandError for a selector or ids that the instruction has not."""
    from emulator.arith.fast.kernels.product import METADATA
    from emulator.warp.native import warp_function

    selector, ids = _selector_and_ids(ins, chosen)
    if ins.is_sparse:
        check_selector(ins, selector)
    found = warp_function(ins, target, selector, *([ids] if ids else []))
    if found is None:
        return None
    type_, shape = plan.d
    count = found.size // (type_.itemsize * ins.lanes)

    def multiply(given: list[Array], metadata_is_checked: bool) -> Array | None:
        # The function takes and gives the words of all lanes for one register after the other.
        registers = np.empty((count, ins.lanes), type_)
        np.concatenate([x.T if x.ndim == 2 else x[None] for x in given], out=registers)
        d = np.empty(shape, type_)
        flags = found.compute(address_of(registers), address_of(d))
        if flags and (flags != METADATA or metadata_is_checked):
            return None
        return d.T.copy()

    return multiply


# --- NumPy ----------------------------------------------------------------------------------------


def _by_products(
    plan: _Plan, how: _How, chosen: tuple[int, ...], given: list[Array]
) -> Array | None:
    """None where an operand is not legal, or an element or a result not ordinary."""
    if chosen not in plan.products:
        selector, ids = _selector_and_ids(how.instruction, chosen)
        plan.products[chosen] = products.plan(how.instruction, how.target, selector, ids)
    found = plan.products[chosen]
    return None if found is None else products.multiply(found, given)


def _selector_and_ids(
    ins: MatrixInstruction, chosen: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    return (chosen[0], chosen[1:]) if ins.is_sparse else (0, chosen)


# --- warpgroups -----------------------------------------------------------------------------------

#: descriptors of A and B, bytes of shared memory and its first address, and what `options` are
_Setting = tuple[Hashable, ...]
#: the registers of D from the operands and the shared memory by name, whether the accumulator is
#: read and whether illegal metadata is refused; None where they are left to others
_Again = Callable[[dict[str, Array], bool, bool], Array | None]
#: settings of an instruction that are kept: descriptors change, in loops over k above all
_SETTINGS = 256
#: options of most calls
_USUAL = {"shared", "scale_d"}
#: multiply-adds up to which NumPy is faster than the path of batches
_MOST_PRODUCTS = 1 << 17


def _unmet(given: dict[str, Array], keep: bool, checked: bool) -> Array | None:
    """Stands for a setting that was not met yet."""
    raise NotImplementedError


class _Warpgroup(NamedTuple):
    """Facts of one wgmma on one target, looked up once."""

    #: type and shapes of the registers of a, c and e by name
    registers: dict[str, tuple[np.dtype[Any], tuple[tuple[int, ...], ...]]]
    #: the immediates and the selector, with what they are where they are left out; these alone
    options: tuple[tuple[str, int], ...]
    first: tuple[int, ...]
    is_sparse: bool
    #: multiply-adds
    work: int
    #: those made so far; None where none computes that
    kernels: dict[_Setting, _Again | None]
    products: dict[_Setting, _Again | None]


def _warpgroup(ins: MatrixInstruction) -> _Warpgroup:
    registers = {}
    for name, x in ins.fragments.items():
        shapes = ((x.lanes, x.registers), *([(x.lanes,)] if name == "e" else []))
        registers["c" if name == "d" else name] = code_type(x.word_bits), shapes
    options = {name: values[0] for name, values in IMMEDIATES.items()}
    options |= {"selector": 0} if ins.is_sparse else {}
    work = ins.m * ins.n * ins.k
    first = tuple(options.values())
    return _Warpgroup(registers, tuple(options.items()), first, ins.is_sparse, work, {}, {})


def _of_warpgroup(
    plan: _Warpgroup, how: _How, operands: dict[str, Array], options: dict[str, Any]
) -> Array | None:
    a, b, c = cast("tuple[Any, Any, Any]", (operands["a"], operands["b"], operands["d"]))
    b = b if type(b) is np.uint64 else as_words(b)
    given = {"c": c}
    if type(a) is not np.uint64:
        a = as_words(a)
        if type(a) is not np.uint64:
            given["a"], a = a, None
    if plan.is_sparse:
        given["e"] = operands["e"]
    for name, x in given.items():
        type_, shapes = plan.registers[name]
        if type(x) is not np.ndarray or x.dtype != type_ or x.shape not in shapes:
            return None
    shared, keep = options.get("shared"), options.get("scale_d", True)
    data, start = (shared.data, shared.start) if type(shared) is Space else (shared, 0)
    if type(data) is not np.ndarray or data.dtype != np.uint8 or data.strides != (1,):
        return None
    chosen = plan.first
    if not options.keys() <= _USUAL:
        chosen = tuple([options.get(name, first) for name, first in plan.options])
        if {*map(type, chosen)} != {int}:
            return None
    if type(b) is not np.uint64 or type(keep) is not bool:
        return None
    given["shared"], setting = data, (a, b, data.size, start, chosen)
    checked, d = how.undefined == "raise", None
    ins, target, engine, _ = how
    if may_use_kernels(engine):
        again = plan.kernels.get(setting, _unmet)
        if again is _unmet:
            wanted, again = kernels_wanted(engine, (ins, target), plan.work, ins.d_type), None
            if wanted:
                call = Call(ins, operands, options, *how[1:])
                again = _made(plan.kernels, setting, call, _by_kernels)
        d = again and again(given, keep, checked)
    if d is None and engine != "compiled" and plan.work <= _MOST_PRODUCTS:
        again = plan.products.get(setting, _unmet)
        if again is _unmet:
            call = Call(ins, operands, options, *how[1:])
            again = _made(plan.products, setting, call, _repeated_products)
        d = again and again(given, keep, checked)
    return d


def _made(
    found: dict[_Setting, _Again | None],
    setting: _Setting,
    call: Call,
    make: Callable[[Call], _Again | None],
) -> _Again | None:
    try:
        made = make(call)
    except EmulatorError:
        return None  # which the path of batches raises
    if len(found) >= _SETTINGS:
        found.clear()
    found[setting] = made
    return made


def _by_kernels(call: Call) -> _Again | None:
    made: _Again | None = by_kernels(call.engine, lambda: _repeated(call))
    return made


def _repeated(call: Call) -> _Again | None:
    """Raises EmulatorError for operands and options that are wrong."""
    from emulator.warp.native import repeated

    return repeated(call.instruction, call.target, Checked.of(call))


def _repeated_products(call: Call) -> _Again | None:
    """Raises EmulatorError for operands and options that are wrong."""
    ins, x = call.instruction, Checked.of(call)
    assert x.shared is not None
    tiles, setting = {}, x.setting
    for name in "ab" if setting.a_in_memory else "b":
        rows, k, where = ins.m, ins.stored_k, ins.a_place
        if name == "b":
            rows, k, where = ins.n, ins.k, ins.b_place
        places, size = tile_places(
            x.operands[name][()], rows, k, where, getattr(setting, f"major_{name}")
        )
        places = places - x.shared.start
        if places.min() < 0 or places.max() + size > x.shared.bytes or x.shared.start % size:
            return None
        tiles[name] = products.Tile(places // size, where)
    negative = [name for name in "ab" if getattr(setting, f"flip_{name}")]
    plan = products.plan(ins, call.target, x.selector, (), tiles, negative)
    if plan is None:
        return None
    order = [name for name in ("a", "b", "c", "e") if name in ins.fragments or name in "abc"]
    order = ["shared" if name in tiles else name for name in order]

    def multiply(given: dict[str, Array], keep: bool, metadata_is_checked: bool) -> Array | None:
        if not keep:
            given = given | {"c": np.zeros_like(given["c"])}
        return products.multiply(plan, [given[name] for name in order])

    return multiply
