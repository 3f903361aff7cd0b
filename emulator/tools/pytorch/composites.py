"""Operators that PyTorch makes of others before a dispatch mode sees them, and ``torch.autocast``.

A GPU runs one kernel for a whole LSTM or attention, but on the CPU the mode would see its parts.
While a mode is active, a hook in torch's dispatcher replaces each such operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from emulator.errors import UnsupportedError
from emulator.tools.pytorch.unknown import COMPOSITES

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
Run = Callable[[Any, Any, Any], Any]
#: number of active modes; the hooks exist while there is one
_users = 0
_library: Any = None


def name_of(function: OpOverload) -> str:
    """The name of an operator, without its space and its overload."""
    name: str = function.name()
    return name.rpartition("::")[2].partition(".")[0]


def tensors_in(*given: object) -> list[Tensor]:
    """The tensors among arguments or results, also those in lists."""
    return [x for x in tree_leaves(given) if isinstance(x, Tensor)]


@cache
def is_composite(function: OpOverload) -> bool:
    """Whether PyTorch has no kernel for an operator of aten but makes it of others."""
    return function.namespace == "aten" and function.has_kernel_for_dispatch_key(_COMPOSITE)


def decompose(function: OpOverload, args: Any, kwargs: Any) -> Any:
    """Runs the operators that a composite one is made of, as PyTorch does."""
    return function._op_dk(_COMPOSITE, *args, **kwargs)


def replace_composites(stack: ExitStack, run: Run) -> None:
    """Has `run` called with each operator of COMPOSITES and its arguments, until `stack` closes."""
    global _users, _library
    if not _users:
        _library = torch.library.Library("aten", "IMPL")
        for function in _overloads():
            _library.impl(function, _hook(function, run), "AutogradCPU")
    _users += 1
    stack.callback(_leave)


def _leave() -> None:
    global _users, _library
    _users -= 1
    if not _users:
        _library._destroy()
        _library = None


def _hook(function: OpOverload, run: Run) -> Callable[..., Any]:
    return lambda *args, **kwargs: run(function, args, kwargs)


@cache
def _overloads() -> tuple[OpOverload, ...]:
    packets = (getattr(torch.ops.aten, name, None) for name in COMPOSITES)
    every = (getattr(packet, x) for packet in packets if packet for x in packet.overloads())
    return tuple(function for function in every if is_composite(function))


def attention_is_fused() -> bool:
    """Whether PyTorch may take a fused kernel for an attention; else it multiplies matrices."""
    cuda = torch.backends.cuda
    return cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled() or cuda.cudnn_sdp_enabled()


# --- gradients ------------------------------------------------------------------------------------


def mark_gradients(made: object, operands: list[Tensor], name: str, running: list[str]) -> None:
    """Has `name` in `running` while autograd computes the gradients of what `made` is made of, down
    to `operands`."""
    for node in _nodes(made, operands):
        node.register_prehook(lambda *_: running.append(name))
        node.register_hook(lambda *_: running.clear())


def _nodes(made: object, operands: list[Tensor]) -> Iterator[Any]:
    """The nodes of autograd's graph between results and operands."""
    seen = {x.grad_fn for x in operands}
    left = [x.grad_fn for x in tensors_in(made)]
    while left:
        node = left.pop()
        # A node that collects the gradient of a leaf may serve other operators as well.
        if node is not None and node not in seen and not hasattr(node, "variable"):
            seen.add(node)
            yield node
            left += [following for following, _ in node.next_functions]


# --- autocast -------------------------------------------------------------------------------------


def refuse_autocast(stack: ExitStack) -> None:
    """Has ``torch.autocast("cuda")`` raise until `stack` closes: it would not cast CPU tensors."""
    autocast = torch.amp.autocast_mode.autocast
    original = autocast.__init__

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        enabled = kwargs.get("enabled", args[1] if len(args) > 1 else True)
        if device_type == "cuda" and enabled:
            raise UnsupportedError(
                'torch.autocast("cuda") does not cast CPU tensors, so the products inside would '
                "not be those of a GPU; cast the model and its inputs, as with .half()"
            )
        original(self, device_type, *args, **kwargs)

    autocast.__init__ = init
    stack.callback(setattr, autocast, "__init__", original)
