"""``tensor_core_matmul``: PyTorch on the CPU, with the bits that its library returns on a GPU.

The mode sees every operation that torch dispatches, forward and backward, and computes the matrix
products among them itself. What is no product runs as ever: the CPU's own exp or sum is not the
GPU's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from emulator.arith import Engine
from emulator.errors import OperandError, UnsupportedError
from emulator.isa.recipe import Recipe
from emulator.targets import Target, find_target
from emulator.tools.pytorch.convolutions import convolution, convolution_backward
from emulator.tools.pytorch.operations import OPERATIONS, UNKNOWN, Computer
from emulator.tools.pytorch.used import Used

#: where orders were recorded
_RECORDED = "H200"
_COMPUTED = OPERATIONS | {
    "convolution": convolution, "convolution_backward": convolution_backward,
}  # fmt: skip


@contextmanager
def tensor_core_matmul(
    target: str | Target | Recipe, *, strict: bool = False, engine: Engine = "auto"
) -> Iterator[Used]:
    """Inside, matrix products of CPU tensors get the bits of PyTorch's libraries on a GPU.

    ``with tensor_core_matmul("H100") as used: y = model(x)``; `used` lists every product with its
    shape, the order that it was computed in, and how that order is known. Covered: mm, addmm, bmm,
    baddbmm, mv, addmv, dot, linear, matmul and einsum, `_scaled_mm`, `_int_mm`, convolutions of one
    and two axes, and what autograd makes of them; f16, bf16, f32 (tf32 where
    ``torch.backends.cuda.matmul.allow_tf32`` is set, for convolutions ``cudnn.allow_tf32``), f64,
    fp8 and int8. Other convolutions, fused attention and recurrent layers are computed by PyTorch
    and listed without a known order.

    The orders were recorded with PyTorch 2.11 on an H200. Other targets compute in the same order
    with the arithmetic of their tensor cores, which their evidence says.

    A `Recipe` in the place of the target asks "what if": the orders of an H200, with the recipe for
    its floating-point instructions. It must suit all of them that run, and keep their formats.

    Raises OperandError for a recipe that does not, UnsupportedError for a target that has no
    instruction for a product, and with ``strict=True`` for a product whose order is not known.
    """
    recipe = target if isinstance(target, Recipe) else None
    if recipe is not None and (recipe.a or recipe.b):
        raise OperandError(f"{recipe.name} has element formats of its own; tensors have PyTorch's")
    chip = find_target(_RECORDED if isinstance(target, Recipe) else target)
    mode = _Mode(chip, strict, engine, recipe)
    with mode:
        yield mode.used


class _Mode(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, target: Target, strict: bool, engine: Engine, recipe: Recipe | None) -> None:
        super().__init__()
        self.used = Used(str(target) if recipe is None else recipe.name)
        self._computer = Computer(target, engine, self._note, recipe)
        self._strict = strict

    def _note(self, product: Any) -> None:
        self.used.add(product)
        if self._strict and product.evidence == "none":
            raise UnsupportedError(
                f"strict=True: {product.operation} {product.types} {product.shape}: the order of "
                f"the library on {self.used.target} is not known: {product.why}"
            )

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name, _, overload = str(function).removeprefix("aten.").partition(".")
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        if not tensors or any(x.device.type != "cpu" or x.is_sparse for x in tensors):
            return function(*args, **kwargs)
        if name in UNKNOWN:
            self._computer.note_unknown(name, tensors)
            return function(*args, **kwargs)
        in_place, base = name.endswith("_"), name.rstrip("_")
        compute = _COMPUTED.get(base)
        if compute is None:
            return function(*args, **kwargs)
        out = kwargs.pop("out", None) if overload == "out" else args[0] if in_place else None
        made = compute(self._computer, *args, **kwargs)
        if made is None:
            if overload == "out":
                kwargs["out"] = out
            return function(*args, **kwargs)
        return made if out is None else out.copy_(made)
