"""Executes mma, mma.sp and wgmma in five stages: unpack and gather the operands into matrices of
codes, select what a sparse A meets, compute the dot products, scatter and pack the result."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from dtypes import Array, padding_is_zero
from emulator.arith import Engine, matmul
from emulator.arith.engines import by_kernels, kernels_wanted, may_use_kernels
from emulator.arrays import as_array
from emulator.errors import EmulatorError, OperandError, UndefinedError
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.descriptor import as_words
from emulator.layout.fragment import Fragment
from emulator.memory.descriptors import load_tile
from emulator.targets import Target
from emulator.warp import single
from emulator.warp.call import Call, Compute, Undefined
from emulator.warp.operands import Checked, given_scales, immediates, scale_d_of
from emulator.warp.scales import gather_scales
from emulator.warp.sparse import (
    Compressed,
    check_metadata,
    check_selector,
    gather_metadata,
    matmul_compressed,
)


@lru_cache(maxsize=1024)
def bound(ins: MatrixInstruction, target: Target, engine: Engine, undefined: Undefined) -> Compute:
    """The registers of D from operands and options; see `execute` for these and for errors."""
    alone = single.bound(ins, target, engine, undefined)

    def compute(operands: dict[str, Array], options: dict[str, Any]) -> Array:
        d = alone(operands, options)
        if d is None:
            d = _run_batch(Call(ins, operands, options, target, engine, undefined))
        return d

    return compute


def run(call: Call) -> Array:
    """`bound` to the facts of a call."""
    compute = bound(call.instruction, call.target, call.engine, call.undefined)
    return compute(call.operands, call.options)


def _run_batch(call: Call) -> Array:
    ins = call.instruction
    arithmetic = ins.arithmetic(call.target)
    try:
        d = _by_kernel(call)
        if d is not None:
            return d
        a, b, c, sign_b = _wgmma_operands(call) if ins.is_wgmma else _operands(call)
        scales = _scales(call) if ins.is_block_scaled else ()
        if ins.is_sparse:
            nibbles = _nibbles(call, a)
            operands = Compressed(a, nibbles, b, c, *scales)
            d = matmul_compressed(ins, arithmetic, operands, sign_b=sign_b, engine=call.engine)
        else:
            b = b ^ b.dtype.type(sign_b) if sign_b else b
            d = matmul(arithmetic, a, np.swapaxes(b, -1, -2), c, *scales, engine=call.engine)
    except EmulatorError:
        raise
    except ValueError as error:
        # Everything else was checked: only batch axes are left that can fail to broadcast.
        given = {_argument(ins, *item): item[1] for item in call.operands.items()} | call.options
        shapes = ", ".join(f"{n} {np.shape(x)}" for n, x in given.items() if np.ndim(x))
        raise OperandError(f"the batch axes do not broadcast: {shapes}") from error
    return ins.fragment("d").scatter(d)


def _by_kernel(call: Call) -> Array | None:
    """The registers of D by a kernel of machine code; None where none is worth it or computes it,
    and where an operand is wrong, which those who unpack it tell best."""
    ins = call.instruction
    if not may_use_kernels(call.engine):
        return None
    # Accumulators have the whole batch, nearly always: a guess that costs nothing.
    c = call.operands["d" if ins.is_wgmma else "c"]
    work = c.size * ins.k if isinstance(c, np.ndarray) else 0
    if not kernels_wanted(call.engine, (ins, call.target), work, ins.d_type):
        return None
    try:
        x = Checked.of(call)
        batch = np.broadcast_shapes(*x.batches) if any(x.batches) else ()
    except (EmulatorError, ValueError):
        return None
    if not math.prod(batch):
        return None
    return by_kernels(call.engine, lambda: _run_kernel(call, x, batch))


def _run_kernel(call: Call, x: Checked, batch: tuple[int, ...]) -> Array | None:
    from emulator.arith.fast.kernels.product import METADATA, MIXED, PADDING
    from emulator.warp import native

    ins = call.instruction
    found = native.run(ins, call.target, x, batch)
    if found is None or found[1] & (PADDING | MIXED):
        return None
    if found[1] & METADATA and call.undefined == "raise":
        a = (_wgmma_operands if ins.is_wgmma else _operands)(call)[0]
        _nibbles(call, a)  # Equal indices over stored zeros pass.
    return found[0]


def check(call: Call) -> None:
    """Raises what `run` would, for a wgmma that is computed later."""
    _wgmma_operands(call)
    if call.instruction.is_sparse:
        check_selector(call.instruction, call.options.get("selector", 0))


def _argument(ins: MatrixInstruction, name: str, given: object) -> str:
    """Name of an operand in a call; it may be a descriptor or registers."""
    named = {x[name].kind: x[name].argument for x in ins.signatures()}
    is_descriptor = np.asarray(given).dtype == np.uint64 or "vector" not in named
    return named["descriptor"] if is_descriptor and "descriptor" in named else name


def _operands(call: Call) -> tuple[Array, Array, Array, int]:
    """A ``(…, m, stored k)``, B ``(…, k, n)``, C, and the sign bit to flip in B: none."""
    ins = call.instruction
    a, b, c = (_gather(ins.fragment(x), call.operands[x]) for x in "abc")
    return a, b, c, 0


def _gather(fragment: Fragment, registers: Array) -> Array:
    if not fragment.place.padding:
        return fragment.gather(registers)
    words = fragment.check_registers(registers)
    if not padding_is_zero(words, fragment.place):
        _, low, bits = fragment.place
        raise UndefinedError(
            f"operand {fragment.operand}: bits that hold no part of an element are set; "
            f"{fragment.fmt.name} uses bits {low}…{low + bits - 1} of each byte, the rest must be 0"
        )
    return fragment.gather(words)


def _nibbles(call: Call, a: Array) -> Array:
    """The metadata that the selector reads, checked."""
    ins = call.instruction
    selector = check_selector(ins, call.options.get("selector", 0))
    nibbles = gather_metadata(ins, call.operands["e"], selector)
    if call.undefined == "raise":
        check_metadata(ins, nibbles, a, selector)
    return nibbles


def _scales(call: Call) -> tuple[Array, Array]:
    """scale_a ``(…, m, v)`` and scale_b ``(…, n, v)``, as `matmul` takes them."""
    ins, options, out = call.instruction, call.options, []
    for operand in ("scale_a", "scale_b"):
        x = operand[-1]
        ids = options.get(f"byte_id_{x}", 0), options.get(f"thread_id_{x}", 0)
        out.append(gather_scales(ins, operand, given_scales(call, operand), *ids))
    return out[0], np.swapaxes(out[1], -1, -2)


# --- wgmma ----------------------------------------------------------------------------------------


def _wgmma_operands(call: Call) -> tuple[Array, Array, Array, int]:
    """A ``(…, 64, stored k)``, B ``(…, k, n)``, the accumulator, and the sign bit to flip in B."""
    ins, memory = call.instruction, call.memory
    a, b = as_words(call.operands["a"]), as_words(call.operands["b"])
    given = as_array(a, "operand a")
    from_registers = given.ndim > 0 and given.dtype != np.uint64
    signs, majors = immediates(call, "vector" if from_registers else "descriptor")
    c = ins.fragment("d").gather(call.operands["d"])
    if from_registers:
        a = _gather(ins.fragment("a"), a)
    else:
        a = load_tile(memory, a, ins.m, ins.stored_k, ins.a_place, majors["a"], "a")
    b = load_tile(memory, b, ins.n, ins.k, ins.b_place, majors["b"], "b")
    sign = ins.fragment("a").fmt.sign_mask
    if signs["a"] == -1:
        a = a ^ a.dtype.type(sign)
    # scale-d = 0: the accumulator is not read; a zero takes no part in any sum.
    keep = scale_d_of(call)
    c = np.where(keep[..., None, None], c, c.dtype.type(0))
    return a, np.swapaxes(b, -1, -2), c, sign if signs["b"] == -1 else 0
