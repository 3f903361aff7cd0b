"""Random numbers as a GPU draws them: cuRAND's Philox in the order of PyTorch's threads.

`kernels/random.cu` holds the distributions. Which thread draws the number of an element follows
from how many threads PyTorch starts: blocks of 256, as many as the chip has room for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.targets import BOARDS, Chip
from emulator.tools.pytorch.device.family import Answer, Request, on_chip
from emulator.tools.pytorch.device.generator import Generator, of_device
from emulator.tools.pytorch.device.kernel import find_kernel, launch
from emulator.tools.pytorch.device.pointwise import canonical

_WHY = "Philox and PyTorch's distributions, on the threads of the chip"
_BLOCK = 256
#: bytes that a thread loads at a time
_VECTOR = 16
#: bytes that a launch of PyTorch's covers at most; larger tensors take several
_LIMIT = 1 << 31
#: types of tensors -> the type as the kernels know it
_FLOATS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
#: ranges of integers from this one on take 64 bits each
_WIDE = 1 << 28
_INTEGERS = {"words": torch.uint32, "pairs": torch.uint64}


def drawn(chip: Chip, generator: Generator, request: Request) -> Answer | None:
    """The answer of an operator that draws random numbers, from a generator if it is given none;
    None where PyTorch's way or the chip's threads are unknown."""
    rule = _RULES.get(request.function)
    if rule is None or chip.name not in BOARDS:
        return None
    if find_kernel(chip.target.name, "random", "random_words") is None:
        return None
    if any(x.numel() * x.element_size() >= _LIMIT for x in request.tensors):
        return None
    given = dict(request.given)
    made = rule(_Draw(chip, of_device(given.pop("generator", None)) or generator), **given)
    return None if made is None else Answer(made, _WHY, on_chip(chip, "recorded"))


class _Draw:
    """One operator's draws from a generator."""

    def __init__(self, chip: Chip, generator: Generator) -> None:
        self._chip, self._generator = chip, generator

    def numbers(
        self,
        kernel: str,
        count: int,
        *numbers: float,
        dtype: torch.dtype = torch.float32,
        together: int = 0,
    ) -> Tensor:
        """`count` numbers of a distribution.

        `together`: consecutive numbers that a thread makes of the words of one draw; 0 where it
        makes every so-many-th.
        """
        out = torch.empty(count, dtype=_INTEGERS.get(kernel, torch.float32))
        if count:
            most = self._chip.board.processors * (self._chip.processor.threads // _BLOCK)
            blocks = min(most, -(-count // _BLOCK))
            steps = -(-count // (blocks * _BLOCK * (2 if kernel == "pairs" else 4)))
            drawn = self._generator.draw(4 * steps)
            if together:
                # Some draw more often than PyTorch counts, as it does not count what is together.
                steps = -(-count // (blocks * _BLOCK * min(together, 4)))
            values = [np.float32(x) for x in (*numbers, *[0.0] * (3 - len(numbers)))]
            kind = _FLOATS.get(dtype, 0)
            self._launch(kernel, out, blocks, steps, together, *drawn, *values, kind)
        return out

    def _launch(self, kernel: str, out: Tensor, blocks: int, steps: int, *rest: object) -> None:
        found = find_kernel(self._chip.target.name, "random", f"random_{kernel}")
        launch(found, blocks * steps, _BLOCK, [out, out.numel(), blocks * _BLOCK, *rest])

    def fill(self, tensor: Tensor, kernel: str, *numbers: float) -> Tensor:
        made = self.numbers(kernel, tensor.numel(), *numbers, dtype=tensor.dtype)
        return _fill(tensor, made.to(tensor.dtype))

    def shuffle(self, keys: Array, values: Array) -> None:
        """Shuffles values whose keys are equal, a run of them by the thread at its start."""
        drawn = self._generator.draw(len(keys))
        starts = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
        sizes = np.diff(starts, append=len(keys))
        if sizes.max() < 2:
            return
        blocks, steps = -(-len(keys) // _BLOCK), -(-(int(sizes.max()) - 1) // 4)
        out = torch.empty(blocks * _BLOCK * 4 * steps, dtype=torch.uint32)
        zero = np.float32(0)
        self._launch("words", out, blocks, steps, 0, *drawn, zero, zero, zero, 0)
        words = out.numpy().reshape(4 * steps, -1)
        for start, size in zip(starts[sizes > 1], sizes[sizes > 1], strict=True):
            for i, word in zip(range(size - 1, 0, -1), words[:, start], strict=False):
                other = start + int(word) % (i + 1)
                values[[start + i, other]] = values[[other, start + i]]


def _by_place(tensor: Tensor) -> Tensor:
    """A view with its axes in the order of memory."""
    return tensor.permute(sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis)))


def _fill(tensor: Tensor, values: Tensor) -> Tensor:
    """Puts values where PyTorch's threads do: by place in memory, not by index."""
    seen = _by_place(tensor)
    seen.copy_(values.reshape(seen.shape))
    return tensor


# --- distributions: None for types without a rule, and for errors, which the CPU tells ------------


def _uniform(draw: _Draw, self: Tensor, to: float, **rest: float) -> Tensor | None:
    if self.dtype not in _FLOATS or not rest["from"] <= to:
        return None
    low, high = (torch.tensor(x, dtype=self.dtype) for x in (rest["from"], to))
    return draw.fill(self, "uniform", float(low), float(high), float(high - low))


def _normal(draw: _Draw, self: Tensor, mean: float, std: float) -> Tensor | None:
    return draw.fill(self, "normal", mean, std) if self.dtype in _FLOATS and std >= 0 else None


def _exponential(draw: _Draw, self: Tensor, lambd: float) -> Tensor | None:
    return draw.fill(self, "exponential", lambd) if self.dtype in _FLOATS and lambd > 0 else None


def _bernoulli(draw: _Draw, self: Tensor, p: float) -> Tensor | None:
    known = self.dtype != torch.float64 and 0 <= p <= 1
    return draw.fill(self, "below", p) if known else None


# --- integers -------------------------------------------------------------------------------------


def _integers(draw: _Draw, tensor: Tensor, kernel: str, low: int, size: int) -> Tensor:
    """Fills a tensor with `size` integers from `low` on."""
    words = draw.numbers(kernel, tensor.numel()).numpy().astype("u8")
    made = (words % np.uint64(size)).view("i8") + np.int64(low)
    return _fill(tensor, torch.from_numpy(made).to(tensor.dtype))


def _bounds(dtype: torch.dtype) -> tuple[int, int]:
    """The integers of a type; of a floating type, those without gaps."""
    if dtype == torch.bool:
        return 0, 1
    if dtype.is_floating_point:
        last = 1 << 1 - round(math.log2(torch.finfo(dtype).eps))
        return -last, last
    held = torch.iinfo(dtype)
    return int(held.min), int(held.max)


def _random(draw: _Draw, self: Tensor) -> Tensor:
    kernel = "pairs" if self.dtype in (torch.float64, torch.int64) else "words"
    return _integers(draw, self, kernel, 0, _bounds(self.dtype)[1] + 1)


def _random_to(draw: _Draw, self: Tensor, to: int) -> Tensor | None:
    return _random_from(draw, self, to, **{"from": 0})


def _random_from(draw: _Draw, self: Tensor, to: int | None, **rest: int) -> Tensor | None:
    low, (least, greatest) = rest["from"], _bounds(self.dtype)
    size = (greatest + 1 if to is None else to) - low
    if not (least <= low < low + size <= greatest + 1 and size < 1 << 64):
        return None
    return _integers(draw, self, "pairs" if size >= _WIDE else "words", low, size)


def _randperm(draw: _Draw, n: int, out: Tensor) -> Tensor | None:
    """Sorts random keys, and shuffles the numbers of those that are equal."""
    if n < 1 or n - 1 > _bounds(out.dtype)[1]:
        return None
    bits = math.ceil(math.log2(n - (6.0 * n * n + 1) / (12 * math.log(0.9))))
    key = torch.int32 if bits <= 32 else torch.int64
    least, greatest = _bounds(key)
    keys = _integers(draw, torch.empty(n, dtype=key), "pairs", least, greatest - least)
    ranks = keys.long().numpy()
    if bits < torch.iinfo(key).bits:
        # Sorted by these bits alone; with all of them, the sign counts.
        ranks = ranks & ((1 << bits) - 1)
    order = np.argsort(ranks, kind="stable")
    draw.shuffle(ranks[order], order)
    return out.resize_(n).copy_(torch.from_numpy(order))


# --- what is made of them -------------------------------------------------------------------------


def _dropout(
    draw: _Draw, input: Tensor, p: float, train: bool | None
) -> tuple[Tensor, Tensor] | None:
    if input.dtype not in _FLOATS or train is False or not input.numel() or not 0 < p < 1:
        return None
    keep, together = np.float32(1 - p), _together(input)
    drawn = draw.numbers("below", input.numel(), float(keep), together=together)
    mask = torch.empty_like(input, dtype=torch.float32)
    mask = _fill(mask, drawn) if together else mask.copy_(drawn.reshape(input.shape))
    made = input.float() * mask * float(np.float32(1) / keep)
    return canonical(made.to(input.dtype)), mask.bool()


def _together(tensor: Tensor) -> int:
    """How many elements in a row a thread of dropout computes; 0 where they are not in a row."""
    most = _VECTOR // tensor.element_size()
    if not _by_place(tensor).is_contiguous() or tensor.data_ptr() % tensor.element_size():
        return 0
    whole = math.gcd(tensor.numel(), tensor.data_ptr() // tensor.element_size(), most)
    return whole if whole > 1 else 0


def _dropout_backward(
    draw: _Draw, grad_output: Tensor, mask: Tensor, scale: float
) -> Tensor | None:
    if grad_output.dtype not in _FLOATS:
        return None
    made = mask.float() * grad_output.float() * float(np.float32(scale))
    return canonical(made.to(grad_output.dtype))


def _multinomial(draw: _Draw, self: Tensor, num_samples: int, replacement: bool) -> Tensor | None:
    known = num_samples == 1 or (not replacement and num_samples <= self.shape[-1])
    if self.dtype not in _FLOATS or not known or not num_samples:
        return None
    if not bool(((self >= 0) & self.isfinite()).all() & (self.sum(-1) > 0).all()):
        return None  # an error, and the CPU says which
    quotients = self / _exponential(draw, torch.empty_like(self), 1.0)
    if num_samples == 1:
        return quotients.argmax(-1, keepdim=True)
    return quotients.topk(num_samples)[1]


_aten = torch.ops.aten
_RULES: dict[Any, Callable[..., Any]] = {
    _aten.uniform_.default: _uniform, _aten.normal_.default: _normal,
    _aten.exponential_.default: _exponential, _aten.bernoulli_.float: _bernoulli,
    _aten.random_.default: _random, _aten.random_.to: _random_to,
    getattr(_aten.random_, "from"): _random_from,
    _aten.randperm.generator_out: _randperm, _aten.multinomial.default: _multinomial,
    _aten.native_dropout.default: _dropout,
    _aten.native_dropout_backward.default: _dropout_backward,
}  # fmt: skip
