"""``execute``: one instruction on the registers of a warp or warpgroup, or of a batch of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from dtypes import Array
from emulator.arith import Engine
from emulator.arith.engines import check_engine
from emulator.arrays import accepts_tensors
from emulator.errors import UnsupportedError
from emulator.isa.instruction import Instruction, as_instruction
from emulator.targets import Target
from emulator.warp.call import Call, Compute, Names, Undefined, by_name, check_undefined

#: Where a kind of instruction is -> the module whose ``run(call)`` executes it, imported with the
#: first of them. Operands have their names by `by_name`, or by the module's own ``arguments``;
#: `execute` takes what the module's own ``bound`` gives, if it has that, in place of ``run``.
RUNNERS = {
    "emulator.isa.matrix": "emulator.warp.multiply",
    "emulator.isa.movement": "emulator.warp.move",
    "emulator.isa.wmma": "emulator.warp.wmma",
    "emulator.isa.conversion": "emulator.warp.conversion",
    "emulator.isa.ordinary.instruction": "emulator.warp.ordinary",
}


@accepts_tensors(words=True)
def execute(
    ins: Instruction | str,
    *operands: object,
    target: str | Target,
    engine: Engine = "auto",
    undefined: Undefined = "raise",
    **options: object,
) -> Array:
    """Executes `ins`, an Instruction or its opcode, as `target` does; registers in, registers out.

    Nothing is changed in place, except memory by stmatrix and wmma.store. Operands, in PTX order
    after d, or by these names; leading axes are a batch and broadcast:

    * mma: ``a, b, c``, words ``(…, 32, registers)``, uint32 or uint64 for f64;
    * mma.sp: ``a, b, c, e`` with e ``uint32 (…, 32)`` or ``(…, 32, 1)``, and ``selector=``;
    * block scaling: ``scale_a=``, ``scale_b=`` ``uint32 (…, 32)``, and ``byte_id_a=``,
      ``thread_id_a=``, ``byte_id_b=``, ``thread_id_b=``;
    * wgmma: ``a, descriptor_b, d`` and for wgmma.sp ``e``, where a is registers ``(…, 128, 4)`` or
      ``descriptor_a`` in its place; descriptors are ``uint64 (…)``; ``shared=`` memory ``uint8
      (…, bytes)``, ``scale_d=`` a bool or an array over the batch, ``imm_scale_a=`` and
      ``imm_scale_b=`` 1 or -1, ``imm_trans_a=`` and ``imm_trans_b=`` 0 or 1;
    * ldmatrix: addresses ``p (…, 32)`` and ``shared=``; stmatrix: addresses ``p``, registers ``r``
      and ``shared=``, which it writes; movmatrix: registers ``a``;
    * wmma.mma: ``a, b, c``; wmma.load: an address ``p`` and wmma.store: ``p``, registers ``r``,
      with ``stride=`` in elements and ``shared=``, or ``global_memory=`` of forms with .global,
      which are bytes, too; an address is one integer for each warp;
    * cvt: the sources in PTX order, unsigned words of any one shape; the result is words;
    * ordinary instructions that only compute, such as ``add.rn.f32``: the sources in PTX order,
      words that broadcast, bools for predicates, and last the carry flag where they read it; the
      destinations, in a tuple where there are several. Those over a warp take ``(…, 32)`` and
      ``active=``, the lanes that execute them.

    ``undefined="hardware"`` computes what an H200 does with metadata that PTX leaves undefined.

    Raises UnsupportedError where the target lacks the instruction, OperandError for operands of a
    wrong count, shape, type or range, UndefinedError for what PTX leaves undefined.
    """
    ins, are_words = as_instruction(ins), isinstance(engine, str) and isinstance(undefined, str)
    # Where one of the words has no hash, it is wrong.
    known = _known if are_words and isinstance(target, (str, Target)) else _known.__wrapped__
    compute, names = known(ins, target, engine, undefined, len(operands), tuple(options))
    return compute(*names.sort(operands, options))


def run(call: Call) -> Array:
    """Executes a call whose operands are already named.

    Raises UnsupportedError for an instruction that `execute` does not run.
    """
    return _runner(call.instruction).run(call)


class _Runner(NamedTuple):
    run: Callable[[Call], Array]
    arguments: Callable[[Any, int, tuple[str, ...]], Names]
    bound: Callable[[Any, Target, Engine, Undefined], Compute] | None


@lru_cache(maxsize=4096)
def _known(
    ins: Instruction,
    target: str | Target,
    engine: Engine,
    undefined: Undefined,
    count: int,
    options: tuple[str, ...],
) -> tuple[Compute, Names]:
    """For calls with so many operands in order and options of these names: the function that runs
    an instruction, and where operands are; raises for what `execute` does not take."""
    check_undefined(undefined)
    chosen = ins.check_target(target)
    check_engine(engine)
    runner = _runner(ins)
    names = runner.arguments(ins, count, options)
    if runner.bound is not None:
        return runner.bound(ins, chosen, engine, undefined), names

    def compute(operands: dict[str, Array], options: dict[str, Any]) -> Array:
        return runner.run(Call(ins, operands, options, chosen, engine, undefined))

    return compute, names


def _runner(ins: Instruction) -> _Runner:
    kind = type(ins).__module__
    if kind not in RUNNERS:
        raise UnsupportedError(f"execute does not run {ins}")
    return _loaded(RUNNERS[kind])


@lru_cache(maxsize=64)
def _loaded(name: str) -> _Runner:
    module = import_module(name)
    arguments, bound = getattr(module, "arguments", by_name), getattr(module, "bound", None)
    return _Runner(module.run, arguments, bound)
