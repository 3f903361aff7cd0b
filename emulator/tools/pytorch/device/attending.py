"""``scaled_dot_product_attention`` on the simulated device: which kernel runs, and its result.

PyTorch tries the kernels that `_TRIED` has for the chip, and else computes products with a softmax
in between. The sums of each kernel have the order that an H200 showed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from emulator.matrices.library.recorded import RECORDED_ON, Evidence
from emulator.targets import Chip
from emulator.tools.pytorch.composites import attention_is_fused
from emulator.tools.pytorch.device.attention import (
    CUDNN,
    EFFICIENT,
    FLASH,
    Attended,
    Operands,
    attend,
    attend_backward,
    has_gradient,
)
from emulator.tools.pytorch.device.family import COMPUTED, on_chip
from emulator.tools.pytorch.device.memory import Heap
from emulator.tools.pytorch.mode import Products
from emulator.tools.pytorch.unknown import unknown_kind

_NAME = "scaled_dot_product_attention"
_HALF = (torch.float16, torch.bfloat16)
#: major number of the compute capability -> the kernels that PyTorch tries, in this order. Chips
#: before 8.0 have others, which are not modelled.
_TRIED = {
    8: (FLASH, EFFICIENT), 9: (CUDNN, FLASH, EFFICIENT), 10: (CUDNN, FLASH, EFFICIENT),
    11: (FLASH, EFFICIENT), 12: (FLASH, EFFICIENT),
}  # fmt: skip
#: how many queries or keys cuDNN's kernels were recorded with, for one query and for more, and the
#: widest heads: what picks these kernels is not known
_LONGEST_OF_ONE, _LONGEST, _WIDEST = 200, 512, 128
_plain = (Tensor, torch.nn.Parameter)
_aten = torch.ops.aten


class Attention:
    """Runs attention on the device, and lists which kernel did it."""

    def __init__(self, chip: Chip, heap: Heap, products: Products) -> None:
        self.chip, self.heap, self.products = chip, heap, products

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """The attention of tensors of the device, with its gradient."""
        scaled = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else scale
        operands = Operands(q, k, v, is_causal and q.shape[-2] > 1, scaled)
        form = None
        if attn_mask is None and not dropout_p and not enable_gqa:
            form = self._form(operands)
        if form is not None:
            return _Attend.apply(self, form, operands.causal, scaled, q, k, v)
        if attention_is_fused():
            self.products.note_unknown(_NAME, [q, k, v], unknown_kind(_NAME))
        made = _aten._scaled_dot_product_attention_math.default(
            q, k, v, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )
        return made[0]

    def _form(self, operands: Operands) -> int | None:
        """The kernel that a GPU runs and that is modelled; None for any other."""
        tensors = operands[:3]
        tried, (queries, width) = _TRIED.get(self.chip.target.number // 10), operands.q.shape[-2:]
        if tried is None or _get_current_dispatch_mode() is not None:
            return None
        if any(type(x) not in _plain or x.dim() != 4 or not x.numel() for x in tensors):
            return None
        if len({x.dtype for x in tensors}) > 1 or len({x.shape[-1] for x in tensors}) > 1:
            return None
        if len({x.shape[:2] for x in tensors}) > 1 or any(x.stride(-1) != 1 for x in tensors):
            return None
        cuda, half = torch.backends.cuda, operands.q.dtype in _HALF
        square = not operands.causal or queries == operands.k.shape[-2]
        if half and width % 8 == 0:
            if CUDNN in tried and cuda.cudnn_sdp_enabled():
                longest = _LONGEST if queries > 1 else _LONGEST_OF_ONE
                seen = max(queries, operands.k.shape[-2]) <= longest and width <= _WIDEST
                return CUDNN if seen and square and self.chip.name == RECORDED_ON else None
            if cuda.flash_sdp_enabled() and width <= 256 and square:
                return FLASH
        aligned = width % (8 if half else 4) == 0
        if cuda.mem_efficient_sdp_enabled() and aligned and width <= 128 and square:
            return EFFICIENT if half or operands.q.dtype == torch.float32 else None
        return None

    def _on_cpu(self, operands: Operands) -> Operands:
        q, k, v = (self.heap.on_cpu(x) for x in operands[:3])
        return operands._replace(q=q, k=k, v=v)

    @property
    def _evidence(self) -> Evidence:
        return on_chip(self.chip, "rule")

    def forward(self, form: int, operands: Operands) -> tuple[Tensor, Attended]:
        """The result on the device, which lies as the kernel leaves it, and what was computed."""
        why = f"the {_WORDS[form]} kernel, in its order"
        self.products.note_unknown(_NAME, list(operands[:3]), why, self._evidence, COMPUTED)
        held = self._on_cpu(operands)
        made = attend(self.chip, form, held)
        if form == EFFICIENT:
            result = made.result.transpose(1, 2).contiguous().transpose(1, 2)
        else:
            result = torch.empty_like(held.q).copy_(made.result)
        return self.heap.on_device(result), made

    def backward(
        self, form: int, operands: Operands, made: Attended, given: Tensor
    ) -> tuple[Tensor | None, ...]:
        """The gradients; where a kernel's order is not known, by products and a softmax."""
        tensors, name = list(operands[:3]), f"{_NAME}_backward"
        if has_gradient(form, operands.q, operands.k):
            why = f"the {_WORDS[form]} kernel, of one block"
            self.products.note_unknown(name, tensors, why, self._evidence, COMPUTED)
            held = self._on_cpu(operands)
            found = attend_backward(self.chip, form, held, made, self.heap.on_cpu(given))
            pairs = zip(found, held[:3], strict=True)
            return tuple(self.heap.on_device(torch.empty_like(y).copy_(x)) for x, y in pairs)
        self.products.note_unknown(name, tensors, f"the gradient of {unknown_kind(_NAME)}")
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in tensors]
            again = _aten._scaled_dot_product_attention_math.default(
                *leaves, None, 0.0, operands.causal, None, scale=operands.scale
            )[0]
            return torch.autograd.grad(again, leaves, given)


_WORDS = {FLASH: "FlashAttention-2", EFFICIENT: "efficient", CUDNN: "cuDNN"}


class _Attend(torch.autograd.Function):  # type: ignore[misc]
    """An attention by one kernel, with its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        attention: Attention,
        form: int,
        causal: bool,
        scale: float,
        q: Tensor,
        k: Tensor,
        v: Tensor,
    ) -> Tensor:
        ctx.attention, ctx.form, ctx.causal, ctx.scale = attention, form, causal, scale
        ctx.save_for_backward(q, k, v)
        result, ctx.made = attention.forward(form, Operands(q, k, v, causal, scale))
        return result

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        operands = Operands(q, k, v, ctx.causal, ctx.scale)
        found = ctx.attention.backward(ctx.form, operands, ctx.made, given[0])
        return None, None, None, None, *found
