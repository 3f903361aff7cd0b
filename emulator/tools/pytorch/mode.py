"""``tensor_core_matmul``: PyTorch on the CPU, with the bits that its library returns on a GPU.

The mode sees every operator that torch dispatches, forward and backward, and computes the matrix
products among them itself. Other operators run as ever: the CPU's own exp or sum is not the GPU's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from emulator.arith import Engine
from emulator.errors import OperandError, UnsupportedError
from emulator.isa.recipe import Recipe
from emulator.matrices.library.recorded import RECORDED_ON, Evidence
from emulator.targets import Chip, Target, find_chip
from emulator.tools.pytorch.composites import (
    attention_is_fused,
    decompose,
    is_composite,
    mark_gradients,
    name_of,
    refuse_autocast,
    replace_composites,
    tensors_in,
)
from emulator.tools.pytorch.convolutions import convolution, convolution_backward
from emulator.tools.pytorch.operations import OPERATIONS, Computer
from emulator.tools.pytorch.unknown import COMPOSITES, NO_PRODUCTS, unknown_kind
from emulator.tools.pytorch.used import Used, UsedProduct

COMPUTED = OPERATIONS | {
    "convolution": convolution, "convolution_backward": convolution_backward,
}  # fmt: skip

#: how a class of tensors says that it handles no operators itself
_PLAIN = Tensor.__torch_dispatch__


@contextmanager
def tensor_core_matmul(
    target: str | Target | Recipe, *, strict: bool = False, engine: Engine = "auto"
) -> Iterator[Used]:
    """Inside, matrix products of CPU tensors get the bits of PyTorch's libraries on a GPU.

    ``with tensor_core_matmul("H200") as used: y = model(x)``; `used` lists every product with its
    shape, the order that it was computed in, and how that order is known. Covered: mm, addmm, bmm,
    baddbmm, mv, addmv, dot, linear, matmul and einsum, `_scaled_mm`, `_int_mm`, convolutions of one
    and two axes, and what autograd makes of them; f16, bf16, f32 (tf32 where
    ``torch.backends.cuda.matmul.allow_tf32`` is set, for convolutions ``cudnn.allow_tf32``), f64,
    fp8 and int8. PyTorch computes all other products on the CPU, such as fused attention, recurrent
    layers, sparse, complex and quantised products and decompositions; they are listed with the
    evidence "none". Operations that multiply no matrices (softmax, sums, exp) run on the CPU, have
    the CPU's bits, and are not listed.

    The orders were recorded with PyTorch 2.11 on an H200. Other chips compute in the same order
    with the arithmetic of their tensor cores, and their products are "modelled". A target such as
    "sm_90" stands for a chip of that number: the library picks its instructions by the chip.

    A `Recipe` in the place of the target asks "what if": the orders of an H200, with the recipe for
    its floating-point instructions. It must suit all of them that run, and keep their formats.

    Raises OperandError for a recipe that does not, UnsupportedError for a target that has no
    instruction for a product, for ``torch.autocast("cuda")``, which does not cast CPU tensors, and
    with ``strict=True`` for a product whose evidence is "none".
    """
    recipe = target if isinstance(target, Recipe) else None
    if recipe is not None and (recipe.a or recipe.b):
        raise OperandError(f"{recipe.name} has element formats of its own; tensors have PyTorch's")
    chip = find_chip(RECORDED_ON if isinstance(target, Recipe) else target)
    mode = _Mode(Products(chip, strict, engine, recipe))
    with ExitStack() as stack:
        replace_composites(stack, _run_composite)
        refuse_autocast(stack)
        stack.enter_context(mode)
        yield mode.products.used


def _run_composite(function: OpOverload, args: Any, kwargs: Any) -> Any:
    """Runs an operator that PyTorch makes of others, by the mode that sees it, if there is one."""
    mode = _get_current_dispatch_mode()
    if isinstance(mode, _Mode):
        return mode.run_composite(function, args, kwargs)
    return decompose(function, args, kwargs)


class Products:
    """Computes matrix products as a chip's library does, and lists them."""

    def __init__(
        self,
        chip: Chip,
        strict: bool,
        engine: Engine = "auto",
        recipe: Recipe | None = None,
        used: Used | None = None,
    ) -> None:
        self.used = Used(chip, recipe) if used is None else used
        self._computer = Computer(chip, engine, self._note, recipe)
        self._strict = strict

    def _note(self, product: UsedProduct) -> None:
        self.used.add(product)
        if self._strict and product.evidence == "none":
            shape = f" {product.shape}" if product.layout else ""
            what = "the order of the library" if product.layout else "what it gives"
            raise UnsupportedError(
                f"strict=True: {product.operation} {product.types}{shape}: {what} on "
                f"{self.used.chip} is not known: {product.why}"
            )

    def note_unknown(
        self, name: str, tensors: list[Tensor], why: str, evidence: Evidence = "none", *order: str
    ) -> None:
        """Lists an operator that is no product; `order`: where the CPU does not compute it."""
        self._computer.note_unknown(name, tensors, why, evidence, *order)

    def compute(
        self, function: OpOverload, name: str, tensors: list[Tensor], args: Any, kwargs: Any
    ) -> Any:
        """The result of an operator of COMPUTED."""
        options = {key: value for key, value in kwargs.items() if key != "out"}
        made = COMPUTED[name.rstrip("_")](self._computer, *args, **options)
        if made is None:
            self.note_unknown(name, tensors, "no product of such operands was recorded")
            return function(*args, **kwargs)
        out = args[0] if name.endswith("_") else kwargs.get("out")
        return made if out is None else out.copy_(made)


class _Mode(TorchDispatchMode):  # type: ignore[misc]
    #: such as flex_attention, which come as they are
    supports_higher_order_operators = True

    def __init__(self, products: Products) -> None:
        super().__init__()
        self.products = products
        #: the composite operator that PyTorch computes now, which was noted as a whole
        self._inside = ""
        #: the composite operators whose gradients are computed now
        self._gradients: list[str] = []

    def __torch_dispatch__(
        self, function: OpOverload, types: Sequence[Any], args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(t.__torch_dispatch__ is not _PLAIN for t in types):
            # A tensor of a class of its own makes plain ones of it, and the mode sees those.
            return NotImplemented
        kwargs = kwargs or {}
        name = name_of(function)
        base = name.rstrip("_")
        if self._inside or function.namespace in NO_PRODUCTS:
            return function(*args, **kwargs)
        why = self._why_unknown(function, base)
        if not why and base not in COMPUTED:
            return self._run_other(function, args, kwargs)
        tensors = tensors_in(args, kwargs)
        if not tensors or any(x.device.type != "cpu" for x in tensors):
            return function(*args, **kwargs)
        is_plain = all(x.layout == torch.strided and not x.is_nested for x in tensors)
        if is_plain and is_composite(function) and base not in COMPOSITES:
            return self._run_other(function, args, kwargs)
        if why or not is_plain:
            self.products.note_unknown(name, tensors, why or "tensors that are not strided")
            return function(*args, **kwargs)
        return self.products.compute(function, name, tensors, args, kwargs)

    def _why_unknown(self, function: OpOverload, base: str) -> str:
        """Why the GPU's bits of an operator are not known; "" where they may be."""
        if function.namespace != "aten":
            return f"what operators of {function.namespace} multiply is not known"
        if self._gradients and base in COMPUTED:
            return f"the gradient of {self._gradients[-1]}"
        if base == "scaled_dot_product_attention" and not attention_is_fused():
            return ""
        return unknown_kind(base)

    def _run_other(self, function: OpOverload, args: Any, kwargs: Any) -> Any:
        """An operator that multiplies nothing or, in inference mode, one made of others."""
        if is_composite(function) and not any(x.is_nested for x in tensors_in(args, kwargs)):
            with self:
                return decompose(function, args, kwargs)
        return function(*args, **kwargs)

    def run_composite(self, function: OpOverload, args: Any, kwargs: Any) -> Any:
        """Runs an operator that PyTorch makes of others, and notes it as a whole."""
        name = name_of(function)
        why = "" if self._inside else self._why_unknown(function, name)
        if not why:
            return decompose(function, args, kwargs)
        tensors = tensors_in(args, kwargs)
        self.products.note_unknown(name, tensors, why)
        self._inside = name
        try:
            made = decompose(function, args, kwargs)
        finally:
            self._inside = ""
        mark_gradients(made, tensors, name, self._gradients)
        return made
