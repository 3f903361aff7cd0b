"""Tensor-core bits for Triton's interpreter: ``tl.dot`` as the GPU named by ``target`` computes it.

``TRITON_INTERPRET=1`` runs a kernel with NumPy, whose matrix product rounds differently from every
GPU. Inside ``tensor_core_dot`` each ``tl.dot`` is computed by the instruction that Triton compiles
it to (`triton_lowering`); everything else stays the interpreter's.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import numpy as np

from dtypes import FORMATS, Array
from emulator.adapters.dots import compute_dot, compute_scaled
from emulator.adapters.triton_lowering import (
    DEFAULT_IMPRECISE,
    DotCall,
    Plan,
    plan_dot,
    plan_scaled,
)
from emulator.arith import Engine
from emulator.arith.engines import check_engine
from emulator.errors import EmulatorError, OperandError, UnsupportedError, as_integer, shown
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import Target, find_chip

#: What ``instruction=`` may be: one for all dots, or a function of the call; None: Triton's choice.
Choice = str | Instruction | Callable[[DotCall], "str | Instruction | None"] | None

#: Triton's name of a type -> PTX's
_TYPES = {
    "fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64", "fp8e5": "e5m2",
    "fp8e4nv": "e4m3", "int8": "s8", "int32": "s32", "uint8": "ue8m0",
}  # fmt: skip

#: what is replaced, and the parameters that it must have
_DOT = ("self", "a", "b", "d", "input_precision", "max_num_imprecise_acc")
_SEMANTIC_DOT = ("self", "lhs", "rhs", "acc")
_ADDITIONS = ("create_fadd", "create_add")
#: attribute of a handle that says how to compute its dot again with another accumulator
_AGAIN = "tensor_core_dot"


@contextmanager
def tensor_core_dot(
    target: str | Target, *, instruction: Choice = None, num_warps: int = 4, engine: Engine = "auto"
) -> Iterator[Counter[str]]:
    """Inside it, ``tl.dot`` of interpreted kernels has the bits that `target` computes.

    Each dot is computed by the instruction that Triton takes for its types, tile, `num_warps` (the
    interpreter does not know it) and ``input_precision``; ``acc + tl.dot(a, b)`` is one
    accumulating dot where Triton fuses it. `instruction` names another one, or is a function
    that is given each `DotCall` and returns one, or None for Triton's own. What is yielded counts
    the dots by instruction. The block along k is taken in ascending steps of the instruction.

    The change is to the interpreter itself, for all threads of the process, and undone on leaving,
    in any case; contexts nest, the inner one counts. Raises UnsupportedError where Triton is
    missing, has another interpreter than this module knows, does not interpret, or where it takes
    an instruction for a dot that this package lacks.
    """
    check_engine(engine)
    chosen = find_chip(target).target
    warps = as_integer(num_warps)
    if warps is None or warps < 1 or warps & (warps - 1):
        raise OperandError(
            f"num_warps= is a number of warps, a power of two as in Triton; got {shown(num_warps)}"
        )
    if isinstance(instruction, str):
        instruction = Instruction.parse(instruction)
    interpreter = _interpreter()
    patch = _Patch(interpreter, chosen, instruction, warps, engine)
    with ExitStack() as stack:
        patch.apply(stack)
        yield patch.used


def _interpreter() -> Any:
    """Triton's interpreter module, when it is one that can be patched."""
    try:
        module = importlib.import_module("triton.runtime.interpreter")
    except ImportError as error:
        raise UnsupportedError(
            "Triton's interpreter cannot be imported; install it with "
            f"pip install 'ptx-mma-emulator[triton]' (the reason: {error})"
        ) from error
    version = getattr(importlib.import_module("triton"), "__version__", "unknown")
    try:
        builder, semantic = module.InterpreterBuilder, module.TritonSemantic
        known = (
            tuple(inspect.signature(builder.create_dot).parameters) == _DOT
            and tuple(inspect.signature(semantic.dot).parameters)[:4] == _SEMANTIC_DOT
            and all(hasattr(builder, name) for name in _ADDITIONS)
            and hasattr(module.interpreter_builder.options, "max_num_imprecise_acc_default")
            and callable(module.GridExecutor)
        )
    except (AttributeError, TypeError, ValueError):
        known = False
    if not known:
        raise UnsupportedError(
            f"the interpreter of Triton {version} is not one that this module knows "
            "(known: 3.4 to 3.9)"
        )
    if not _interprets():
        raise UnsupportedError(
            "Triton compiles kernels instead of interpreting them: set TRITON_INTERPRET=1 before "
            "the kernels are defined (@triton.jit looks at it)"
        )
    return module


def _interprets() -> bool:
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


class _Patch:
    """The replacements for one context."""

    def __init__(
        self, interpreter: Any, target: Target, choice: Choice, num_warps: int, engine: Engine
    ) -> None:
        self.interpreter = interpreter
        self.target = target
        self.choice = choice
        self.num_warps = num_warps
        self.engine: Engine = engine
        self.used: Counter[str] = Counter()
        #: whether the dot at hand was written without an accumulator
        self.fresh = False

    def apply(self, stack: ExitStack) -> None:
        """Replaces, and has `stack` restore."""
        # The classes, because older versions make a semantic object for each patched function.
        builder, semantic = self.interpreter.InterpreterBuilder, self.interpreter.TritonSemantic
        executor = self.interpreter.GridExecutor
        options = self.interpreter.interpreter_builder.options
        default = DEFAULT_IMPRECISE.get(self.target.generation, 0)
        # Triton up to 3.6 does not interpret tl.dot_scaled.
        scaled = getattr(builder, "create_dot_scaled", None)
        for owner, name, value in (
            *([(builder, "create_dot_scaled", self._create_dot_scaled(scaled))] if scaled else []),
            (builder, "create_dot", self._create_dot(builder.create_dot)),
            *((builder, x, self._create_addition(getattr(builder, x))) for x in _ADDITIONS),
            (semantic, "dot", self._semantic_dot(semantic.dot)),
            (executor, "__call__", _with_our_errors(executor.__call__)),
            (
                self.interpreter.interpreter_builder,
                "options",
                dataclasses.replace(options, max_num_imprecise_acc_default=default),
            ),
        ):
            stack.callback(_restore, owner, name, vars(owner).get(name, _restore))
            setattr(owner, name, value)

    def _semantic_dot(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def dot(semantic: Any, lhs: Any, rhs: Any, acc: Any, *args: Any, **kwargs: Any) -> Any:
            self.fresh = acc is None
            try:
                return original(semantic, lhs, rhs, acc, *args, **kwargs)
            finally:
                self.fresh = False

        return dot

    def _create_dot(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def create_dot(
            builder: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: int
        ) -> Any:
            (m, k), n = a.data.shape[-2:], b.data.shape[-1]
            precision = getattr(input_precision, "name", str(input_precision)).lower()
            kinds, imprecise = (_type_of(a), _type_of(b), _type_of(d)), max_num_imprecise_acc or 0
            call = DotCall(*kinds, m, n, k, a.data.ndim > 2, self.num_warps, precision, imprecise)
            plan = self._plan(call)
            self.used[str(plan.instruction or f"fma.rn.{call.d}")] += 1

            def result(accumulator: Any) -> Any:
                codes = compute_dot(
                    call, plan, _codes(a), _codes(b), _codes(accumulator), self.target, self.engine
                )
                return self._handle(codes, d)

            out = result(d)
            # Triton fuses the addition where it need not bound an fp8 accumulation.
            if self.fresh and call.imprecise == 0:
                setattr(out, _AGAIN, result)
            return out

        return create_dot

    def _create_addition(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def addition(builder: Any, lhs: Any, rhs: Any) -> Any:
            for dot, other in ((lhs, rhs), (rhs, lhs)):
                again = getattr(dot, _AGAIN, None)
                if again is not None and np.shape(other.data) == dot.data.shape:
                    return again(other)
            return original(builder, lhs, rhs)

        return addition

    def _create_dot_scaled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def create_dot_scaled(
            builder: Any,
            lhs: Any,
            lhs_scale: Any,
            lhs_format: Any,
            rhs: Any,
            rhs_scale: Any,
            rhs_format: Any,
            fast_math: bool,
            lhs_k_pack: bool,
            rhs_k_pack: bool,
            acc: Any,
        ) -> Any:
            a, b = (x.name.lower() for x in (lhs_format, rhs_format))
            if lhs_scale is None or rhs_scale is None or not (lhs_k_pack and rhs_k_pack):
                raise UnsupportedError(
                    f"tl.dot_scaled of {a} × {b} needs both scales and operands packed along k to "
                    "be a block-scaled mma.sync; Triton scales the operands itself otherwise"
                )
            a_codes, b_codes = _unpack(_codes(lhs), a, -1), _unpack(_codes(rhs), b, -2)
            elements = a_codes.shape[-1] // lhs_scale.data.shape[-1]
            scale = _type_of(lhs_scale).replace("e4m3", "ue4m3")
            ins = plan_scaled(a, b, scale, elements, self.target)
            self.used[str(ins)] += 1
            scales = _codes(lhs_scale), np.swapaxes(_codes(rhs_scale), -1, -2)
            given = a_codes, b_codes, _codes(acc), *scales
            codes = compute_scaled(ins, *given, self.target, self.engine)
            return self._handle(codes, acc)

        return create_dot_scaled

    def _handle(self, codes: Array, like: Any) -> Any:
        data = np.ascontiguousarray(codes).view(like.data.dtype)
        return self.interpreter.TensorHandle(data, like.dtype.scalar)

    def _plan(self, call: DotCall) -> Plan:
        choice: object = self.choice(call) if callable(self.choice) else self.choice
        if choice is None or call.precision == "ieee":
            return plan_dot(call, self.target)
        ins = Instruction.parse(choice) if isinstance(choice, str) else choice
        if not isinstance(ins, MatrixInstruction):
            raise OperandError(f"instruction= must name an mma or wgmma; got {shown(ins, 120)}")
        wanted = [("tf32" if t == "f32" else t) for t in (call.a, call.b)]
        widened = ins.a_type if [ins.a_type, ins.b_type] != wanted else ""
        exact = widened == ins.b_type and all(_widens(t, widened) for t in wanted)
        if ins.d_type != call.d or ins.c_type != call.d or (widened and not exact):
            raise UnsupportedError(f"instruction= gives {ins} for a {call}: other types")
        return Plan(ins, widened)


def _with_our_errors(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Triton wraps what is raised inside a kernel; the caller should get our errors as they are."""

    @wraps(launch)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return launch(*args, **kwargs)
        except Exception as error:
            if isinstance(error.__cause__, EmulatorError):
                raise error.__cause__ from None
            raise

    return call


def _restore(owner: Any, name: str, value: Any) -> None:
    """Puts an attribute back; one that its owner did not have itself is marked by this function."""
    if value is _restore:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def _widens(small: str, wide: str) -> bool:
    """Whether every number of one format is one of the other."""
    a, b = FORMATS[small], FORMATS[wide]
    return (
        a.is_float
        and b.is_float
        and a.exponent_bits <= b.exponent_bits
        and a.mantissa_bits <= b.mantissa_bits
    )


def _type_of(handle: Any) -> str:
    name = handle.get_element_ty().name
    if name not in _TYPES:
        raise UnsupportedError(
            f"no NVIDIA tensor core multiplies {name}; tl.dot takes {', '.join(_TYPES)}"
        )
    return _TYPES[name]


def _codes(handle: Any) -> Array:
    data = np.ascontiguousarray(handle.data)
    return data.view(f"u{data.dtype.itemsize}")


def _unpack(codes: Array, fmt: str, axis: int) -> Array:
    """Two e2m1 of a byte, the low one first along `axis`; other formats have a byte each."""
    if FORMATS[fmt].bits != 4:
        return codes
    pairs = np.stack([codes & 0xF, codes >> 4], axis=axis if axis == -1 else -2)
    shape = list(codes.shape)
    shape[axis] *= 2
    return pairs.reshape(shape)
