"""Pointwise operators as a GPU computes them: PyTorch's arithmetic in CUDA C++, run from its PTX.

`kernels/pointwise.cu` holds the kernels, `kernels/pointwise.ptx` what nvcc made of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.arith.fast.threads import in_parts
from emulator.layout.lanemap import WARP
from emulator.machine.module import Kernel
from emulator.targets import Chip
from emulator.tools.pytorch.device.family import Answer, Request, call_on_cpu, on_chip
from emulator.tools.pytorch.device.kernel import compute_alone, find_kernel, launch
from emulator.tools.pytorch.exact import why_exact, why_of_doubles
from emulator.tools.pytorch.operations import ON_CPU

_THREADS = 128
#: blocks at most: a thread that computes many elements costs less than many threads
_BLOCKS = 64
#: elements that are computed together, so that they stay in the cache
_TOGETHER = 1 << 20
#: codes of a type of 16 bits: an operator on as many elements is looked up in a table of them all
_CODES = 1 << 16
#: types of tensors -> which one that is for the kernels, and its NaN on a GPU
_TYPES = {
    torch.float32: (0, torch.int32, 0x7FFFFFFF),
    torch.float16: (1, torch.int16, 0x7FFF),
    torch.bfloat16: (2, torch.int16, 0x7FFF),
}
#: numbers up to this one round to the largest of e4m3
_MOST_E4M3 = 464
#: operators and their operands in the schema's order: tensors a to c, numbers p to r, and "-" for
#: what the kernel does not need. A number in the place of a tensor is one for every element.
_ROWS = """
    abs(a) acos(a) acosh(a) addcdiv(abcp) addcmul(abcp) asin(a) asinh(a) atan(a) atan2(ab) atanh(a)
    ceil(a) clamp(abc) copysign(ab) cos(a) cosh(a) digamma(a) elu(apqr) elu_backward(apqr-b) erf(a)
    erfc(a) erfinv(a) exp(a) exp2(a) expm1(a) floor(a) fmax(ab) fmin(ab) fmod(ab) frac(a) gelu(a)
    gelu_backward(ab) hardsigmoid(a) hardsigmoid_backward(ab) hardswish(a) hardswish_backward(ab)
    hardtanh(apq) hardtanh_backward(abpq) hypot(ab) i0(a) leaky_relu(ap) leaky_relu_backward(abp-)
    lerp(abc) lgamma(a) log(a) log10(a) log1p(a) log2(a) log_sigmoid_backward(ab-)
    log_sigmoid_forward(a) logaddexp(ab) logit(a-)
    maximum(ab) minimum(ab) mish(a) mish_backward(ab) neg(a) nextafter(ab) pow(ab) remainder(ab)
    round(a) rsqrt(a) sigmoid(a) sigmoid_backward(ab) silu(a) silu_backward(ab) sin(a) sinc(a)
    sinh(a) softplus(apq) softplus_backward(abpq) special_entr(a) special_i1(a) special_log_ndtr(a)
    special_ndtri(a) tan(a) tanh(a) tanh_backward(ab) trunc(a) xlogy(ab) add(abp) sub(abp)
    rsub(abp) mul(ab) div(ab) div_floor(ab) sqrt(a) reciprocal(a)"""
OPERANDS = {row.partition("(")[0]: row.partition("(")[2].rstrip(")") for row in _ROWS.split()}
#: source of the evidence
WHY = "PyTorch's arithmetic, in its order"
#: kernels that no recording covers
_UNRECORDED = ("minimum", "fmax", "rsub", "reciprocal")
#: kernels that round once, as the CPU does: only the codes of NaN differ
_EXACT = ("add", "sub", "rsub", "mul", "div", "reciprocal")
#: operators whose numbers stay as they are; others round them to the type of the tensors
_UNROUNDED = ("add", "sub", "rsub", "mul", "lerp")
#: operators that have a kernel for integers; others compute integers as floating point
_OF_INTEGERS = (
    "abs", "ceil", "clamp", "floor", "fmax", "fmin", "fmod", "maximum", "minimum", "neg", "pow",
    "remainder", "round", "trunc", "add", "sub", "rsub", "mul", "addcmul", "hardtanh",
)  # fmt: skip
#: exponents for which PyTorch has another kernel
_POWERS = {
    -2.0: "inverse_square", -1.0: "reciprocal", -0.5: "rsqrt", 0.0: "one", 0.5: "sqrt",
    1.0: "copy", 2.0: "mul", 3.0: "cube",
}  # fmt: skip
#: operators that are others by another name
_SAME = {"floor_divide": "div_floor", "true_divide": "div"}
#: operators that round after every step where the type is f16 or bf16
_STEPS = ("sigmoid_backward", "tanh_backward")
#: operators that pass a NaN on as it is
_MOVES = ("maximum", "minimum", "clamp", "hardtanh", "copy", "one")


class Call(NamedTuple):
    """A kernel, its operands a to c, which are tensors or one number for all, and numbers p to r.

    Without operands: the CPU computes it with the same bits, but for the codes of NaN.
    """

    kernel: str
    operands: list[Tensor | float]
    numbers: list[float]
    dtype: torch.dtype


def call_of(request: Request) -> Call | None:
    """The kernel that computes an operator; None for operators and types that have none."""
    base = _SAME.get(request.base, request.base)
    places = OPERANDS.get(base)
    if places is None:
        return None
    function, args = request.function, request.args
    schema = [x for x in function._schema.arguments if x.alias_info is None or not x.kwarg_only]
    given = [*args, *(request.kwargs.get(x.name, x.default_value) for x in schema[len(args) :])]
    words = [x for x in given if isinstance(x, str)]
    values = [x for x in given if not isinstance(x, str)]
    tensors = [x for x in values if isinstance(x, Tensor)]
    # An overload with more arguments than its row is another operator.
    if not tensors or len(values) > len(places) or any(x.layout != torch.strided for x in tensors):
        return None
    kernel = "_".join([base, *(x for x in words if x != "none")])
    dtype = _dtype_of(kernel, tensors, values)
    if dtype not in _TYPES:
        return None
    return _chosen(request, kernel, places, values, dtype)


def _dtype_of(kernel: str, tensors: Sequence[Tensor], values: Sequence[Any]) -> torch.dtype:
    """The type that PyTorch computes in: that of the tensors, and of numbers only by their kind."""
    first = tensors[0]
    out = first.dtype
    for one in tensors[1:]:
        alike = one.dim() and first.dim()
        out = torch.promote_types(out, one.dtype) if alike else torch.result_type(first, one)
    for number in values:
        if isinstance(number, bool | int | float | complex):
            out = torch.result_type(
                torch.empty((1,) if _has_axes(tensors) else (), dtype=out), number
            )
    integral = not out.is_floating_point and not out.is_complex
    if integral and kernel not in _OF_INTEGERS and not kernel.startswith("div_"):
        return torch.get_default_dtype()
    return out


def _has_axes(tensors: Sequence[Tensor]) -> bool:
    return any(x.dim() for x in tensors)


def _chosen(
    request: Request, kernel: str, places: str, values: list[Any], dtype: torch.dtype
) -> Call | None:
    """The kernel for what is given: PyTorch has others for some numbers."""
    numbers = [request.number(x) for x in values]
    second = numbers[1] if len(values) > 1 else None
    if kernel == "logit" and second is not None:
        return None
    if kernel == "clamp" and None in (values[1], values[2]):
        return None
    if kernel == "nextafter" and dtype != torch.float32:
        return Call(kernel, [], [], dtype)
    if dtype != torch.float32 and kernel in _STEPS:
        kernel += "_rounded"
    if kernel == "pow" and second in _POWERS and numbers[0] is None:
        kernel, places, values, numbers = _POWERS[second], "ab", [values[0]] * 2, [None] * 2
    if kernel.startswith("div") and second is not None:
        kernel, places, values = _division_by(kernel, values[0], second)
        numbers = [numbers[0], *values[1:]]
    if kernel in _EXACT and _rounds_once(places, values, numbers, dtype):
        return Call(kernel, [], [], dtype)
    narrow = torch.float32 if kernel in _UNROUNDED else dtype
    operands = [
        value if number is None else float(torch.tensor(number, dtype=torch.float64).to(narrow))
        for place, value, number in zip(places, values, numbers, strict=False)
        if place in "abc"
    ]
    rest = [float(value) for place, value in zip(places, values, strict=False) if place in "pqr"]
    if kernel in _MOVES:  # what these deliver is an operand or a number as it is
        rest = [float(torch.tensor(value).to(dtype)) for value in rest]
    return Call(kernel, operands, rest, dtype)


def _division_by(kernel: str, value: Any, number: float) -> tuple[str, str, list[Any]]:
    """The kernel that divides by a number, its operands and their values: it multiplies by the
    reciprocal, which has 64 bits unless the quotient is rounded to an integer."""
    wide = np.float64 if kernel == "div" else np.float32
    with np.errstate(divide="ignore", over="ignore"):
        inverse = float(wide(1) / wide(number))
    if kernel == "div" or (kernel == "div_floor" and number == 0):
        return "mul", "ab", [value, inverse]
    if kernel == "div_floor":
        return "div_floor_by", "apq", [value, number, inverse]
    return "div_trunc_by", "ap", [value, inverse]


def _rounds_once(
    places: str, values: list[Any], numbers: list[float | None], dtype: torch.dtype
) -> bool:
    """True if all operands are tensors of the type, so that none is rounded before."""
    factors = len(places.rstrip("p"))
    if any(x is not None for x in numbers[:factors]) or values[2:] not in ([], [1]):
        return False
    return all(x.dtype == dtype and (x.dim() or factors == 1) for x in values[:factors])


def pointwise(chip: Chip, request: Request) -> Answer | None:
    call = call_of(request)
    if call is None:
        return _round_to_decimals(chip, request) or _divide_wide(chip, request)
    if not call.operands:
        like = call_on_cpu(request.function, request.args, request.kwargs)
        canonical(_first(like))
        known = why_exact(call.kernel, request.tensors, {})
        if call.kernel not in _EXACT:
            known = WHY, on_chip(chip, "recorded")
        return Answer(like, *known, order=ON_CPU)
    if kernel_of(chip.target.name, call.kernel) is None:
        return None
    made = _compute(chip.target.name, call)
    evidence = on_chip(chip, "rule" if call.kernel in _UNRECORDED else "recorded")
    return Answer(_delivered(request, made), WHY, evidence)


def _round_to_decimals(chip: Chip, request: Request) -> Answer | None:
    """The answer of ``round`` with decimals, which rounds to the type after every step."""
    number, dtype = request.args[0], getattr(request.args[0], "dtype", None)
    if request.base != "round" or "decimals" not in request.kwargs or dtype not in _TYPES:
        return None
    decimals = request.kwargs["decimals"]
    # 10**308 is infinity in these types, as are the powers that no float holds.
    power = torch.tensor(10.0 ** min(abs(decimals), 308), dtype=torch.float64).to(dtype)
    there, back = (torch.mul, torch.div) if decimals >= 0 else (torch.div, torch.mul)
    made = canonical(back(there(number, power).round(), power))
    return Answer(_delivered(request, made), WHY, on_chip(chip, "recorded"), order=ON_CPU)


def _divide_wide(chip: Chip, request: Request) -> Answer | None:
    """A quotient of f64 by a number, which is a product as well."""
    if request.base not in ("div", "true_divide"):
        return None
    if getattr(request.args[0], "dtype", None) != torch.float64:
        return None
    number = request.number(request.args[1])
    if number is None or request.kwargs.get("rounding_mode") is not None:
        return None
    with np.errstate(divide="ignore"):
        inverse = float(np.float64(1) / number)
    name = "mul_" if request.name.endswith("_") else "mul"
    options = {key: x for key, x in request.kwargs.items() if key == "out"}
    made = getattr(torch.ops.aten, name)(request.args[0], inverse, **options)
    known = why_of_doubles(made, (WHY, on_chip(chip, "rule")))
    return Answer(made, *known, order=ON_CPU)


def _first(made: Any) -> Any:
    return made[0] if isinstance(made, tuple | list) else made


def _delivered(request: Request, made: Tensor) -> Any:
    """A result in the place where PyTorch puts it."""
    given = request.args[0] if request.name.endswith("_") else None
    if given is not None and given.shape == made.shape and torch.can_cast(made.dtype, given.dtype):
        return given.copy_(made)
    returns = request.function._schema.returns
    if given is not None or "out" in request.kwargs or len(returns) > 1:
        # The CPU resizes what takes the result, or says why it cannot.
        like = call_on_cpu(request.function, request.args, request.kwargs)
        _first(like).copy_(made)
        return like
    return made


def _compute(target: str, call: Call) -> Tensor:
    """The results, in the type of the tensors."""
    tensors = [x for x in call.operands if isinstance(x, Tensor)]
    shape = torch.broadcast_shapes(*(x.shape for x in tensors))
    out = _room(tensors, shape, call.dtype)
    # As the elements lie in memory.
    order = sorted(range(out.dim()), key=lambda axis: -out.stride(axis))
    flat = out.permute(order).reshape(-1)
    operands = [
        x.detach().expand(shape).permute(order).to(call.dtype).reshape(-1)
        if isinstance(x, Tensor)
        else x
        for x in call.operands
    ]
    assert flat.data_ptr() == out.data_ptr()
    lone = [x for x in operands if isinstance(x, Tensor)]
    one = len({(x.data_ptr(), x.stride()) for x in lone}) == 1
    if call.dtype.itemsize == 2 and one and len(flat) >= _CODES:
        given = tuple(x.hex() if isinstance(x, float) else None for x in operands)
        table = _table(target, call.kernel, given, tuple(x.hex() for x in call.numbers), call.dtype)
        _look_up(table, lone[0], flat)
        return out
    for first in range(0, len(flat), _TOGETHER):
        here = np.s_[first : first + _TOGETHER]
        part = [x[here] if isinstance(x, Tensor) else x for x in operands]
        _compute_part(target, call._replace(operands=part), flat[here])
    return out


def _room(tensors: Sequence[Tensor], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """New memory for a result, which lies as PyTorch has it for these operands."""
    whole = [x for x in tensors if x.shape == shape]
    if whole and all(x.stride() == whole[0].stride() for x in whole):
        return torch.empty_like(whole[0], dtype=dtype)
    # PyTorch alone knows where the operands lie in different orders.
    like = torch.empty_like(tensors[0], dtype=torch.bool)
    for other in tensors[1:]:
        like = torch.logical_and(like, torch.empty_like(other, dtype=torch.bool))
    return torch.empty_strided(like.shape, like.stride(), dtype=dtype)


def _compute_part(target: str, call: Call, out: Tensor) -> None:
    operands = [
        x.float().contiguous() if isinstance(x, Tensor) else torch.full(out.shape, x)
        for x in call.operands
    ]
    if out.dtype == torch.float32:
        run_kernel(target, call.kernel, operands, out, call.numbers, call.dtype)
        return
    made = torch.empty(out.shape)
    run_kernel(target, call.kernel, operands, made, call.numbers, call.dtype)
    if call.kernel not in _MOVES:
        canonical(out.copy_(made))
    elif call.dtype == torch.bfloat16:
        out.view(torch.int16).copy_(made.view(torch.int32) >> 16)
    else:
        out.copy_(made)


@lru_cache(maxsize=64)
def _table(
    target: str,
    kernel: str,
    operands: tuple[str | None, ...],
    numbers: tuple[str, ...],
    dtype: torch.dtype,
) -> Array:
    """The codes of the results for all codes of a type of 16 bits; None stands for the tensor."""
    codes = torch.from_numpy(np.arange(_CODES, dtype=np.uint16).view(np.int16)).view(dtype)
    given = [codes if x is None else float.fromhex(x) for x in operands]
    out = torch.empty_like(codes)
    rest = [float.fromhex(x) for x in numbers]
    _compute_part(target, Call(kernel, given, rest, dtype), out)
    return out.view(torch.int16).numpy().view(np.uint16)


def _look_up(table: Array, values: Tensor, out: Tensor) -> None:
    given, made = (x.view(torch.int16).numpy().view(np.uint16) for x in (values, out))

    def piece(first: int, last: int) -> int:
        here = np.s_[first * _CODES : last * _CODES]
        np.take(table, given[here], out=made[here], mode="clip")
        return 0

    parts = -(-len(given) // _CODES)
    in_parts(piece, parts, parts)


def convert_nans(to: Tensor, source: Tensor) -> None:
    """Gives the NaNs of a copy the code that a GPU's conversion returns."""
    pair = source.dtype, to.dtype
    if to.dtype == torch.float8_e4m3fn and source.dtype.is_floating_point:
        _overflow_to_nan(to, source.float())
    if source.dtype not in _TYPES or pair[0] == pair[1] or pair == (torch.bfloat16, torch.float32):
        return
    if pair == (torch.float16, torch.float64):
        to.view(torch.int64)[to.isnan()] = 0x7FFFFFFFE0000000
    canonical(to)


def _overflow_to_nan(to: Tensor, wide: Tensor) -> None:
    """As PyTorch 2.11, which was recorded; later ones return the largest number."""
    over = ~(wide.abs() <= _MOST_E4M3)
    to.view(torch.uint8)[over] = (0x7F | wide[over].signbit() * 0x80).to(torch.uint8)


def copied(request: Request) -> Answer | None:
    """Copies and conversions, which the CPU makes but for the codes of NaN."""
    if request.base not in ("copy", "_to_copy"):
        return None
    made = call_on_cpu(request.function, request.args, request.kwargs)
    convert_nans(made, request.args[1] if request.base == "copy" else request.args[0])
    return Answer(made, *why_exact(request.name, request.tensors, request.kwargs), order=ON_CPU)


def canonical(values: Tensor) -> Tensor:
    """Values with the NaN that a GPU's arithmetic and conversions return."""
    # A sum is fast, and shows whether there may be any.
    if values.dtype not in _TYPES or not values.sum(dtype=torch.float32).isnan():
        return values
    _, integers, code = _TYPES[values.dtype]
    values.view(integers)[values.isnan()] = code
    return values


def run_kernel(
    target: str,
    name: str,
    operands: Sequence[Tensor | Array],
    out: Tensor | Array,
    numbers: Sequence[float] = (),
    dtype: torch.dtype = torch.float32,
) -> None:
    """Runs a kernel on contiguous operands of f32, tensors or arrays, of the size of `out`."""
    kernel = kernel_of(target, name)
    assert kernel is not None
    count = math.prod(out.shape)
    words = [np.float32(x) for x in [*numbers, *[0.0] * (3 - len(numbers))]]
    rest = [*words, np.uint32(_TYPES[dtype][0])]
    missing = 3 - len(operands)
    if compute_alone(kernel, [*operands, *[None] * (missing + 3), *rest], out):
        return
    blocks = min(-(-count // _THREADS), _BLOCKS)
    share = -(-count // (blocks * _THREADS)) * WARP
    launch(kernel, blocks, _THREADS, [*operands, *[0] * missing, out, count, share, *rest])


def kernel_of(target: str, name: str) -> Kernel | None:
    """The kernel of an operator; None where it has none, or the target cannot run them."""
    return find_kernel(target, "pointwise", f"op_{name}")
