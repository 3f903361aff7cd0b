"""Operators on the simulated device: PyTorch's dispatcher sends every one here.

An operator runs on the CPU, over the same bytes; matrix products go the way of a GPU's library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch._ops import OpOverload

from emulator.errors import UnsupportedError
from emulator.matrices.library.recorded import Evidence
from emulator.targets import Chip
from emulator.tools.pytorch.composites import name_of
from emulator.tools.pytorch.device.attending import Attention
from emulator.tools.pytorch.device.convolutions import Convolutions
from emulator.tools.pytorch.device.family import Answer, Family, Request, call_on_cpu
from emulator.tools.pytorch.device.generator import Generator, of_device
from emulator.tools.pytorch.device.images import images
from emulator.tools.pytorch.device.memory import Heap, replace, view
from emulator.tools.pytorch.device.optimisers import WHOLE as LISTS
from emulator.tools.pytorch.device.optimisers import optimisers
from emulator.tools.pytorch.device.ordered import ordered
from emulator.tools.pytorch.device.pointwise import copied, pointwise
from emulator.tools.pytorch.device.random import drawn
from emulator.tools.pytorch.device.ranges import ranges
from emulator.tools.pytorch.exact import MOVES, why_exact, why_of_doubles
from emulator.tools.pytorch.mode import COMPUTED, Products
from emulator.tools.pytorch.unknown import unknown_kind

_frames = torch._C._dynamo.eval_frame
_CPU_KEY = torch._C.DispatchKey.CPU
_COMPOSITE_KEY = torch._C.DispatchKey.CompositeExplicitAutograd
_CPU = torch.device("cpu")
#: operators that take tensors of both devices: copies, and indices on the CPU
_MIXED = {"copy_", "index", "index_put_", "index_put", "_index_put_impl_", "set_", "_copy_from"}
#: operators that PyTorch makes of others in C++, by the kernels that a GPU has
_WHOLE = (
    "copy_", "convolution", "convolution_backward", "resize_", "_fused_rms_norm",
    "_fused_rms_norm_backward", *LISTS,
)  # fmt: skip
#: kinds of tensors that are not modelled
_REFUSED = ("SparseCUDA", "SparseCsrCUDA", "NestedTensorCUDA", "QuantizedCUDA")
_aten = torch.ops.aten


def _refuse(function: OpOverload, *_: object, **__: object) -> NoReturn:
    raise UnsupportedError(
        f"{function}: sparse, nested, quantised and other tensors that are not strided are not "
        "modelled on the simulated device; compute this on the CPU, with .cpu() of its operands"
    )


def _empty(heap: Heap, function: OpOverload, *args: Any, **kwargs: Any) -> Tensor:
    """New memory, which nobody writes."""
    kwargs.update(device=torch.device("meta"), pin_memory=False)
    like = function(*args, **kwargs)
    row = heap.allocate(like.untyped_storage().nbytes())
    return view(row.view(like.dtype), like.size(), like.stride(), 0)


def _resize(
    heap: Heap, function: OpOverload, tensor: Tensor, size: Sequence[int], **kwargs: Any
) -> Tensor:
    """Resizes in place; a tensor that grows gets new memory."""
    made = torch.empty(size, dtype=tensor.dtype, **kwargs)
    if made.untyped_storage().nbytes() > tensor.untyped_storage().nbytes():
        held = heap.on_cpu(tensor).untyped_storage()
        ctypes.memmove(made.data_ptr(), held.data_ptr(), held.nbytes())
        replace(tensor, heap.on_device(made))
    else:
        replace(tensor, view(tensor, made.size(), made.stride(), tensor.storage_offset()))
    return tensor


def _set(heap: Heap, function: OpOverload, *args: Any, **kwargs: Any) -> Any:
    return function._op_dk(_CPU_KEY, *args, **kwargs)


#: operators on memory alone
_OWN: dict[str, Callable[..., Any]] = {
    "empty": _empty, "empty_strided": _empty, "resize_": _resize, "set_": _set,
}  # fmt: skip


def _softmax(function: OpOverload, values: Tensor, axis: int, widens: bool) -> Tensor:
    """A softmax; the CPU has none from f16 to f32."""
    return function(values.float() if widens else values, axis, False)


def _softmax_gradient(
    function: OpOverload, given: Tensor, result: Tensor, axis: int, dtype: torch.dtype
) -> Tensor:
    """The gradient of a softmax, in f32 if that is what was given, and rounded once."""
    return function(given, result, axis, given.dtype).to(dtype)


def _rms_gradient(
    function: OpOverload,
    given: Tensor,
    x: Tensor,
    shape: Sequence[int],
    scale: Tensor,
    weight: Tensor | None,
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor | None]:
    """The gradient of an RMS norm, for which the CPU has no operator."""
    products = given if weight is None else given * weight
    axes = tuple(range(-len(shape), 0))
    made = scale * (products - x * scale**2 * (products * x).mean(axes, keepdim=True))
    of_weight = None if weight is None else (given * x * scale).reshape(-1, *shape).sum(0)
    return made.to(x.dtype), of_weight


def _threshold(
    function: OpOverload, x: Tensor, limit: float, value: float, out: Tensor | None = None
) -> Tensor:
    """A threshold; a GPU rounds it to the type of the tensor, the CPU to f32."""
    if function is _aten.threshold_.default:
        out = x
    limit, value = (x.new_tensor(number) for number in (limit, value))
    return torch.where(x <= limit, value, x, out=out)


def _threshold_gradient(
    function: OpOverload, given: Tensor, x: Tensor, limit: float, grad_input: Tensor | None = None
) -> Tensor:
    return torch.where(x <= x.new_tensor(limit), given.new_zeros(()), given, out=grad_input)


#: operators that the CPU does not have as a GPU has them
_SUBSTITUTES: dict[Any, Callable[..., Any]] = {
    _aten._softmax.default: _softmax, _aten._log_softmax.default: _softmax,
    _aten._softmax_backward_data.default: _softmax_gradient,
    _aten._log_softmax_backward_data.default: _softmax_gradient,
    _aten._fused_rms_norm_backward.default: _rms_gradient,
    _aten.threshold.default: _threshold, _aten.threshold_.default: _threshold,
    _aten.threshold.out: _threshold,
    _aten.threshold_backward.default: _threshold_gradient,
    _aten.threshold_backward.grad_input: _threshold_gradient,
}  # fmt: skip


class _Plan(NamedTuple):
    """Facts of an operator that are known before it runs."""

    name: str
    #: returns views of its operands and reads no bytes
    views: bool
    takes_generator: bool
    #: draws random numbers and takes no generator
    draws: bool
    #: operands by name that hold the result
    out: tuple[str, ...]


@cache
def _plan(function: OpOverload) -> _Plan:
    schema = function._schema
    views = any(x.alias_info is not None and not x.alias_info.is_write for x in schema.returns)
    takes = any(x.name == "generator" for x in schema.arguments)
    return _Plan(
        name_of(function),
        views and function.has_kernel_for_dispatch_key(_CPU_KEY),
        takes,
        not takes and torch.Tag.nondeterministic_seeded in function.tags,
        tuple(
            x.name
            for x in schema.arguments
            if x.kwarg_only and x.alias_info is not None and x.alias_info.is_write
        ),
    )


@cache
def _operators() -> tuple[OpOverload, ...]:
    """The operators with a kernel for the CPU, and _WHOLE; a mode may look for each by itself."""
    names = [
        name.partition("::")
        for name in torch._C._dispatch_get_all_op_names()
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")
    ]
    pairs = [name.partition(".")[::2] for space, _, name in names if space == "aten"]
    found = [getattr(getattr(_aten, name), overload or "default") for name, overload in pairs]
    whole = (getattr(_aten, name) for name in _WHOLE)
    others = [getattr(packet, overload) for packet in whole for overload in packet.overloads()]
    return tuple(dict.fromkeys([*found, *others]))


class Operators:
    def __init__(self, chip: Chip, heap: Heap, products: Products, generator: Generator) -> None:
        self.heap, self.products, self.generator = heap, products, generator
        self.attention = Attention(chip, heap, products)
        #: asked in this order; the CPU computes what none of them answers
        own = (partial(x, chip) for x in (optimisers, images, pointwise, ordered, ranges))
        random = partial(drawn, chip, generator)
        convolutions = Convolutions(chip, products, self._multiply)
        self._families: tuple[Family, ...] = (random, convolutions, self._multiply, *own, copied)

    def enter(self, stack: ExitStack) -> None:
        """Registers with PyTorch's dispatcher until `stack` closes."""
        rest = torch.library.Library("_", "IMPL")
        stack.callback(rest._destroy)
        rest.fallback(self.run, "CUDA")
        for key in _REFUSED:
            rest.fallback(_refuse, key)
        own = torch.library.Library("aten", "IMPL")
        stack.callback(own._destroy)
        for function in _operators():
            own.impl(function, partial(self.run, function), "CUDA")
        attention = _aten.scaled_dot_product_attention.default
        for key in ("CUDA", "AutogradCUDA"):
            own.impl(attention, self.attention.__call__, key)
        # Packages such as flag-gems put kernels of theirs in the place of these, which PyTorch 2.11
        # refuses for what it has in this list.
        torch.library._impls.difference_update(own._op_impls)
        own._op_impls.clear()
        self._enter_redispatch(stack)
        # Where torch.compile leaves an operator to Python, it would compile what is below as well.
        skip = _frames._FrameAction.SKIP
        for method in (self.run, self.attention.__call__):
            code = method.__code__
            _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(skip, skip))

    def _enter_redispatch(self, stack: ExitStack) -> None:
        """Answers packages that ask for PyTorch's own kernel by its key: this build has none."""
        original = torch._ops.OpOverload.redispatch

        def redispatch(function: OpOverload, /, keys: Any, *args: Any, **kwargs: Any) -> Any:
            whole = keys.has(_COMPOSITE_KEY) and name_of(function) in _WHOLE
            if whole and any(getattr(x, "is_cuda", False) for x in args):
                return self.run(function, *args, **kwargs)
            return original(function, keys, *args, **kwargs)

        stack.callback(setattr, torch._ops.OpOverload, "redispatch", original)
        torch._ops.OpOverload.redispatch = redispatch

    def run(self, function: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """The result of an operator of which an operand or the result is on the device."""
        plan = _plan(function)
        if plan.name in _OWN:
            return _OWN[plan.name](self.heap, function, *args, **kwargs)
        if plan.views:
            return function._op_dk(_CPU_KEY, *args, **kwargs)
        call = _Call(self, plan)
        moved, named = call.down(args), call.down(kwargs)
        fresh = call.resizable(kwargs, named)
        call.check_devices()
        if plan.takes_generator and not any(of_device(x) for x in (*args, *named.values())):
            named["generator"] = self.generator
        request = Request(function, moved, named, call.host)
        made = self._answer(request) if function.namespace == "aten" else None
        result = self._on_cpu(plan, request) if made is None else made.result
        for tensor, held in fresh:
            replace(tensor, self.heap.on_device(held))
        return call.up(result)

    def _enter_generator(self, stack: ExitStack) -> None:
        """Has operators without a generator draw from the device's."""
        default = torch.default_generator
        stack.callback(default.set_state, default.get_state())
        default.set_state(self.generator.on_cpu().get_state())

    def _answer(self, request: Request) -> Answer | None:
        """The answer of the first family that has one, which is listed."""
        for family in self._families:
            if (answer := family(request)) is not None:
                if answer.evidence is not None:
                    known = answer.why, answer.evidence, answer.order
                    self.products.note_unknown(request.name, request.tensors, *known)
                return answer
        return None

    def _multiply(self, request: Request) -> Answer | None:
        """Products, which list themselves."""
        if request.base not in COMPUTED or not request.tensors or unknown_kind(request.base):
            return None
        given = request.function, request.name, request.tensors, request.args, request.kwargs
        return Answer(self.products.compute(*given))

    def _on_cpu(self, plan: _Plan, request: Request) -> Any:
        """What the CPU computes, which is listed before it runs, unless a NaN decides how."""
        function, args, kwargs = request.function, request.args, request.kwargs
        why = unknown_kind(request.base)
        if function.namespace != "aten":
            why = f"what operators of {function.namespace} compute is not known"
        known: tuple[str, Evidence] = (why, "none")
        if not why:
            known = why_exact(request.name, request.tensors, kwargs)
        doubtful = known[0] != MOVES and any(x.dtype == torch.float64 for x in request.tensors)
        if known[1] == "rule" and doubtful:
            made = call_on_cpu(function, args, kwargs)
            self.products.note_unknown(request.name, request.tensors, *why_of_doubles(made, known))
            return made
        self.products.note_unknown(request.name, request.tensors, *known)
        with ExitStack() as stack:
            if plan.draws:
                self._enter_generator(stack)
            if plan.takes_generator:
                args, kwargs = _each(_for_cpu, [args, kwargs])
            if function in _SUBSTITUTES:
                return _SUBSTITUTES[function](function, *args, **kwargs)
            return call_on_cpu(function, args, kwargs)


class _Call:
    """One call of an operator: its tensors of the device, and the same on the CPU."""

    def __init__(self, operators: Operators, plan: _Plan) -> None:
        self._heap, self._plan = operators.heap, plan
        #: by the id of the tensor on the CPU: that tensor, and the device's
        self.seen: dict[int, tuple[Any, Any]] = {}
        self._others: list[Any] = []

    def down(self, values: Any) -> Any:
        """Operands with tensors on the CPU in place of the device's."""
        return _each(self._down, values)

    def _down(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.device.type == "cuda":
                held = self._heap.on_cpu(value)
                self.seen[id(held)] = held, value
                return held
            self._others.append(value)
            self.seen[id(value)] = value, value
        if isinstance(value, torch.device) and value.type == "cuda":
            return _CPU
        return value

    @property
    def host(self) -> frozenset[int]:
        """Ids of the operands without dimensions that are on the CPU."""
        return frozenset(id(x) for x in self._others if not x.dim())

    def check_devices(self) -> None:
        """Raises what PyTorch raises where operands are on two devices."""
        if len(self.seen) > len(self._others) and self._plan.name not in _MIXED:
            for other in self._others:
                if other.dim():
                    raise RuntimeError(
                        "Expected all tensors to be on the same device, but found at least two "
                        f"devices, cuda:0 and {other.device}! (in {self._plan.name})"
                    )

    def resizable(self, given: Any, named: Any) -> list[tuple[Tensor, Tensor]]:
        """Puts new tensors in the place of empty ones that take a result; pairs of both."""
        fresh = []
        for name in self._plan.out:
            tensor = given.get(name)
            if isinstance(tensor, Tensor) and not tensor.numel():
                named[name] = torch.empty(0, dtype=tensor.dtype)
                self.seen[id(named[name])] = named[name], tensor
                fresh.append((tensor, named[name]))
        return fresh

    def up(self, made: Any) -> Any:
        """Results as tensors of the device; what was given comes back as it was."""
        return _each(self._up, made)

    def _up(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.layout != torch.strided or value.is_nested or value.is_quantized:
            _refuse(self._plan.name)
        known = self.seen.get(id(value))
        if known is not None:
            return known[1]
        address = value.untyped_storage().data_ptr()
        for held, tensor in self.seen.values():
            if address and held is not tensor and held.untyped_storage().data_ptr() == address:
                return view(tensor, value.size(), value.stride(), value.storage_offset())
        return self._heap.on_device(value)


def _for_cpu(value: Any) -> Any:
    """A value; in the place of a generator of the device, one for the CPU's operators."""
    generator = of_device(value)
    return generator.on_cpu() if generator else value


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """A value with a function done to what its lists, tuples and dicts hold."""
    if isinstance(value, (list, tuple)):
        return type(value)([_each(function, x) for x in value])
    if isinstance(value, dict):
        return {name: _each(function, x) for name, x in value.items()}
    return function(value)
