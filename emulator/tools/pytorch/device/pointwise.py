"""Pointwise operators as a GPU computes them: PyTorch's arithmetic in CUDA C++, run from its PTX.

`kernels/pointwise.cu` holds the kernels, `kernels/pointwise.ptx` what nvcc made of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from emulator.machine.module import Kernel
from emulator.matrices.library.recorded import RECORDED_ON, Evidence
from emulator.targets import Chip
from emulator.tools.pytorch.device.kernel import find_kernel

_THREADS = 128
#: blocks at most: a thread that computes many elements costs less than many threads
_BLOCKS = 64
#: types of tensors -> which one that is for the kernels, and its NaN on a GPU
_TYPES = {
    torch.float32: (0, torch.int32, 0x7FFFFFFF),
    torch.float16: (1, torch.int16, 0x7FFF),
    torch.bfloat16: (2, torch.int16, 0x7FFF),
}
#: operators and their operands in the schema's order: tensors a to c, numbers p to r, and "-" for
#: what the kernel does not need. A number in the place of a tensor is one for every element.
_ROWS = """
    abs(a) acos(a) acosh(a) addcdiv(abcp) addcmul(abcp) asin(a) asinh(a) atan(a) atan2(ab) atanh(a)
    ceil(a) copysign(ab) cos(a) cosh(a) digamma(a) elu(apqr) elu_backward(apqr-b) erf(a) erfc(a)
    erfinv(a) exp(a) exp2(a) expm1(a) floor(a) fmax(ab) fmin(ab) fmod(ab) frac(a) gelu(a)
    gelu_backward(ab) hardsigmoid(a) hardsigmoid_backward(ab) hardswish(a) hardswish_backward(ab)
    hardtanh(apq) hardtanh_backward(abpq) hypot(ab) i0(a) leaky_relu(ap) leaky_relu_backward(abp-)
    lerp(abc) lgamma(a) log(a) log10(a) log1p(a) log2(a) log_sigmoid_backward(ab-)
    log_sigmoid_forward(a) logaddexp(ab) logit(a-)
    maximum(ab) minimum(ab) mish(a) mish_backward(ab) neg(a) nextafter(ab) pow(ab) remainder(ab)
    round(a) rsqrt(a) sigmoid(a) sigmoid_backward(ab) silu(a) silu_backward(ab) sin(a) sinc(a)
    sinh(a) softplus(apq) softplus_backward(abpq) special_entr(a) special_i1(a) special_log_ndtr(a)
    special_ndtri(a) tan(a) tanh(a) tanh_backward(ab) trunc(a) xlogy(ab) add(abp) sub(abp)
    rsub(abp) mul(ab) div(ab) sqrt(a) reciprocal(a)"""
OPERANDS = {row.partition("(")[0]: row.partition("(")[2].rstrip(")") for row in _ROWS.split()}
#: what the evidence rests on
EVIDENCE = "PyTorch's arithmetic, in its order"
#: kernels of which no recording is
_UNRECORDED = ("minimum", "fmax")
#: kernels that round once, as the CPU does: only the codes of NaN differ
_EXACT = ("add", "sub", "rsub", "mul", "div", "reciprocal")
#: operators whose numbers are rounded to the type of the tensors, as they are in a GPU's kernels
_ROUNDED = ("pow",)
#: exponents for which PyTorch has another kernel; "" is for those that the table has none for
_POWERS = {2.0: "mul", 3.0: "cube", 0.5: "sqrt"} | dict.fromkeys((-2.0, -1.0, -0.5, 0.0, 1.0), "")
#: operators that round after every step where the type is f16 or bf16
_STEPS = ("sigmoid_backward", "tanh_backward")
#: operators that pass a NaN on as it is
_MOVES = ("maximum", "minimum", "hardtanh")


class Call(NamedTuple):
    """A kernel, its tensors in f32, and its numbers."""

    kernel: str
    tensors: list[torch.Tensor]
    numbers: list[float]
    dtype: torch.dtype


def call_of(function: Any, name: str, args: Sequence[Any], kwargs: Any) -> Call | None:
    """The kernel that computes an operator; None for operators and types that have none."""
    base = name.rstrip("_") or name
    operands = OPERANDS.get(base)
    if operands is None:
        return None
    schema = [x for x in function._schema.arguments if x.alias_info is None or not x.kwarg_only]
    given = [*args, *(kwargs.get(x.name, x.default_value) for x in schema[len(args) :])]
    words = [x for x in given if isinstance(x, str)]
    values = [x for x in given if not isinstance(x, str)]
    tensors = [x for x in values if isinstance(x, torch.Tensor)]
    if not tensors or any(x.layout != torch.strided for x in tensors):
        return None
    dtype = _dtype_of(tensors, values)
    if dtype not in _TYPES:
        return None
    return _chosen("_".join([base, *(x for x in words if x != "none")]), operands, values, dtype)


def _dtype_of(tensors: Sequence[torch.Tensor], values: Sequence[Any]) -> torch.dtype:
    """The type that PyTorch computes in: that of the tensors, and of numbers only by their kind."""
    first = tensors[0]
    out = first.dtype
    for one in tensors[1:]:
        alike = one.dim() and first.dim()
        out = torch.promote_types(out, one.dtype) if alike else torch.result_type(first, one)
    return torch.complex64 if any(isinstance(x, complex) for x in values) else out


def _chosen(kernel: str, operands: str, values: list[Any], dtype: torch.dtype) -> Call | None:
    """The kernel for what is given: PyTorch has others for some numbers."""
    number = _number(values[1]) if len(values) > 1 else None
    if kernel == "logit" and number is not None:
        return None
    if kernel == "nextafter" and dtype != torch.float32:
        return Call("", [], [], dtype)
    if dtype != torch.float32 and kernel in _STEPS:
        kernel += "_rounded"
    if kernel == "pow" and number is not None and isinstance(values[0], torch.Tensor):
        if number in _POWERS:
            kernel, operands, values = _POWERS[number], "ab", [values[0], values[0]]
        if not kernel:
            return None
    if kernel in ("div_trunc", "div_floor") and number is not None:
        return None
    if kernel == "div" and number is not None:
        with np.errstate(divide="ignore"):
            kernel, values = "mul", [values[0], float(np.float64(1) / number)]
    if kernel in _EXACT and _rounds_once(operands, values):
        return Call("", [], [], dtype)
    given = list(zip(operands, values, strict=False))
    tensors = [_operand(kernel, value, dtype) for place, value in given if place in "abc"]
    numbers = [float(value) for place, value in given if place in "pqr"]
    return Call(kernel, tensors, numbers, dtype)


def _rounds_once(operands: str, values: list[Any]) -> bool:
    """Whether all that is computed on is tensors, so that no number is rounded before."""
    factors = values[: len(operands.rstrip("p"))]
    return all(isinstance(x, torch.Tensor) and x.dim() for x in factors) and (
        values[2:] in ([], [1])
    )


def _operand(kernel: str, value: Any, dtype: torch.dtype) -> torch.Tensor:
    """An operand in f32: a tensor as it is; a number, which some kernels round to the type."""
    number = _number(value)
    if number is None:
        made: torch.Tensor = value.detach().to(torch.float32)
        return made
    narrow = dtype if kernel in _ROUNDED else torch.float32
    return torch.tensor(number, dtype=torch.float64).to(narrow).to(torch.float32)


def _number(value: Any) -> float | None:
    """A number, also one that PyTorch has wrapped in a tensor of no dimensions."""
    if isinstance(value, bool | int | float):
        return float(value)
    wrapped = isinstance(value, torch.Tensor) and not value.dim()
    return float(value) if wrapped and value.dtype == torch.float64 else None


class Pointwise:
    """Runs pointwise operators of a chip."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip

    def evidence(self, call: Call) -> Evidence:
        """The evidence of a call: recordings are of one chip, and of most kernels."""
        if self.chip.name != RECORDED_ON:
            return "modelled"
        return "rule" if call.kernel in _UNRECORDED else "recorded"

    def of(self, function: Any, name: str, args: Sequence[Any], kwargs: Any) -> Call | None:
        """The call for an operator; None where the chip or the operator has no kernel."""
        call = call_of(function, name, args, kwargs)
        if call is None or (call.kernel and kernel_of(self.chip.target.name, call.kernel) is None):
            return None
        if name.endswith("_") or kwargs.get("out") is not None:
            # The CPU will have overwritten them.
            return call._replace(tensors=[x.clone() for x in call.tensors])
        return call

    def run(self, call: Call, like: Any) -> Any:
        """Writes the result of a call into `like`, which the CPU has made of the same operands."""
        result = like[0] if isinstance(like, tuple | list) else like
        if not call.kernel:
            canonical(result)
            return like
        tensors = [x.contiguous() for x in torch.broadcast_tensors(*call.tensors)]
        count = tensors[0].numel()
        made = torch.empty(tensors[0].shape, dtype=torch.float32)
        if count:
            run_kernel(self.chip.target.name, call.kernel, tensors, made, call.numbers, call.dtype)
        result.copy_(_narrowed(made, call))
        return like


def _narrowed(made: torch.Tensor, call: Call) -> torch.Tensor:
    """The results in the type of the tensors."""
    if call.dtype == torch.float32:
        return made
    if call.kernel not in _MOVES:
        return canonical(made.to(call.dtype))
    if call.dtype == torch.bfloat16:
        return (made.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
    return made.to(call.dtype)


def convert_nans(to: torch.Tensor, source: torch.Tensor) -> None:
    """Gives the NaNs of a copy the code that a GPU's conversion returns."""
    pair = source.dtype, to.dtype
    if source.dtype not in _TYPES or pair[0] == pair[1] or pair == (torch.bfloat16, torch.float32):
        return
    if pair == (torch.float16, torch.float64):
        to.view(torch.int64)[to.isnan()] = 0x7FFFFFFFE0000000
    canonical(to)


def canonical(values: torch.Tensor) -> torch.Tensor:
    """Values with the NaN that a GPU's arithmetic and conversions return."""
    if values.dtype not in _TYPES:
        return values
    _, integers, code = _TYPES[values.dtype]
    values.view(integers)[values.isnan()] = code
    return values


def run_kernel(
    target: str, name: str, operands: Sequence[Any], out: Any, numbers: Sequence[float] = (),
    dtype: torch.dtype = torch.float32,
) -> None:  # fmt: skip
    """Runs a kernel on contiguous operands of f32, tensors or arrays, of the size of `out`."""
    kernel = kernel_of(target, name)
    assert kernel is not None
    count = math.prod(out.shape)
    padded = [*operands, *[0] * (3 - len(operands))]
    rest = [np.float32(x) for x in [*numbers, *[0.0] * (3 - len(numbers))]]
    blocks = min(-(-count // _THREADS), _BLOCKS)
    kernel.launch(blocks, _THREADS, [*padded, out, count, *rest, _TYPES[dtype][0]])


def kernel_of(target: str, name: str) -> Kernel | None:
    """The kernel of an operator; None where it has none, or the target cannot run them."""
    return find_kernel(target, "pointwise", f"op_{name}")
