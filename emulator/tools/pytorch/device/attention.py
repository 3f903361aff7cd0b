"""Fused attention as PyTorch's kernels compute it: products of tensor cores and what lies between.

Three kernels: FlashAttention-2, the efficient one of CUTLASS, and cuDNN's for Hopper. Scores of a
block of keys become weights, whose products with the values are summed over the blocks. The steps
of a row are in `kernels/attention.cu`, run from `kernels/attention.ptx`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dtypes import Array
from emulator.matrices.gemm import gemm
from emulator.targets import Chip
from emulator.tools.pytorch.device.kernel import find_kernel, launch
from emulator.tools.pytorch.device.reductions import sum_
from emulator.tools.pytorch.operations import FORMAT_NAMES, codes_of, tensor_of

_THREADS = 128
#: how a kernel of attention.cu calls the forms
FLASH, EFFICIENT, CUDNN = 0, 1, 2
#: rows of queries of a block where FlashAttention splits the keys
_SPLIT_ROWS = 64
#: bits of f32 that tf32 has
_TF32 = np.uint32(0xFFFFE000)
_EXPONENT = np.uint32(0x7F800000)


class Operands(NamedTuple):
    """The operands of an attention that a fused kernel may take."""

    #: ``(batch, heads, queries, width)``
    q: Tensor
    k: Tensor
    v: Tensor
    causal: bool
    #: multiplies the scores
    scale: float


class Attended(NamedTuple):
    """Results, and for every query the logarithm of the sum of its exponentials."""

    result: Tensor
    logarithms: Tensor


def attend(chip: Chip, form: int, operands: Operands) -> Attended:
    """The attention of tensors on the CPU, by a kernel.

    The logarithms are ``(batch, heads, queries)`` and f32.
    """
    (q, k, _), rows = operands[:3], _rows(chip, form, operands)
    q3, k3, v3 = (x.reshape(-1, *x.shape[2:]) for x in operands[:3])
    splits = _splits(chip, q, k) if form == FLASH else 1
    if splits == 1:
        keys = _block_keys(form, *q.shape[2:])
        made, logarithms = rows.attend(q3, k3, v3, range(0, k.shape[2], keys), keys)
    else:
        made, logarithms = _attend_in_splits(rows, q3, k3, v3, splits)
    return Attended(made.to(q.dtype).view(*q.shape[:3], -1), logarithms.view(q.shape[:3]))


def has_gradient(form: int, q: Tensor, k: Tensor) -> bool:
    """True if the order of the gradients is known: of one block of keys.

    More blocks add to the gradient of q in the order in which they end.
    """
    (queries, width), keys = q.shape[2:], k.shape[2]
    if form == EFFICIENT:
        return keys <= _gradient_block(q)[1]
    longest = max(queries, keys)
    if form == FLASH:
        return longest <= (128 if width <= 64 else 64) and width <= 128
    return queries > 1 and longest <= 64 and width <= 128


def attend_backward(
    chip: Chip, form: int, operands: Operands, made: Attended, given: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of q, k and v of an attention that `has_gradient`, as `attend`.

    `given` is the gradient of its result, `made` what `attend` returned.
    """
    q, k, v, result, g = (x.reshape(-1, *x.shape[2:]) for x in (*operands[:3], made.result, given))
    rows, logarithms = _rows(chip, form, operands), made.logarithms.reshape(-1)
    found = rows.gradients(q, k, v, result, g, logarithms)
    return tuple(x.to(y.dtype).view(y.shape) for x, y in zip(found, operands[:3], strict=True))


def _block_keys(form: int, queries: int, width: int) -> int:
    """Keys of a block of each kernel; cuDNN has one of its own for a single query."""
    if form == CUDNN:
        return 128 if queries > 1 else 64
    if form == EFFICIENT:
        return 64 if width <= 64 else 128
    return 128 if width <= 64 else 64


def _gradient_block(q: Tensor) -> tuple[int, int]:
    """Queries and keys of a block of the efficient kernel's gradient, of heads of up to 128."""
    if q.shape[-1] <= 64:
        return 64, 64
    return 128, 64 if q.dtype == torch.float32 else 128


def _dot_threads(form: int, width: int) -> int:
    """Threads that share the product of a row of so many elements; each takes 8 in turn."""
    if form == EFFICIENT:
        return -(-width // 64) * 2
    held = -(-width // 32) * 32
    if form == FLASH:
        return 8 if held % 64 == 0 else 4
    return 1 << (held // 8 - 1).bit_length()


def _split_keys(width: int) -> int:
    """Keys of a block where FlashAttention splits the keys."""
    return 256 if width <= 64 else 128 if width <= 128 else 64


def _splits(chip: Chip, q: Tensor, k: Tensor) -> int:
    """Into how many parts FlashAttention cuts the keys, to keep all multiprocessors busy."""
    batch, heads, queries, width = q.shape
    work, room = batch * heads * -(-queries // _SPLIT_ROWS), 2 * chip.board.processors
    blocks = -(-k.shape[2] // _split_keys(width))
    if work >= np.float32(0.8) * room:
        return 1

    def efficiency(splits: int) -> float:
        waves = np.float32(work * splits) / np.float32(room)
        return float(waves / np.ceil(waves))

    # Of counts that leave a split as long as one fewer would, only the first.
    counts = [
        x
        for x in range(1, min(128, room, blocks) + 1)
        if x == 1 or -(-blocks // x) != -(-blocks // (x - 1))
    ]
    best = max(map(efficiency, counts))
    return next(x for x in counts if efficiency(x) >= 0.85 * best)


def _attend_in_splits(
    rows: _Rows, q: Tensor, k: Tensor, v: Tensor, splits: int
) -> tuple[Tensor, Tensor]:
    """The results of splits of the keys, joined by a kernel of their own."""
    width, count = q.shape[2], k.shape[1]
    keys = _split_keys(width)
    blocks = -(-count // keys)
    step = -(-blocks // splits) * keys
    made, logarithms = zip(
        *(
            rows.attend(q, k, v, range(start, min(start + step, count), keys), keys, split=True)
            for start in range(0, splits * step, step)
        ),
        strict=True,
    )
    factors, total = torch.stack(logarithms), torch.empty_like(logarithms[0])
    lanes = {128: 32, 64: 16}.get(next((x for x in (128, 64) if width % x == 0), 0), 8)
    threads = min(lanes, 1 << (splits - 1).bit_length())
    rows.launch("split_factors", total.numel(), factors, total, total.numel(), splits, threads)
    joined = torch.empty_like(made[0])
    sizes = total.numel(), joined.shape[-1], splits
    rows.launch("join_splits", joined.numel(), torch.stack(made), factors, joined, *sizes)
    return joined, total


class _Rows(NamedTuple):
    """What all blocks of an attention share."""

    chip: Chip
    form: int
    causal: bool
    scale: np.float32
    queries: int
    keys: int

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, starts: range, keys: int, split: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Results in f32 and logarithms over blocks of keys from `starts`."""
        shape = q.shape[:2]
        rows = shape[0] * shape[1]
        state = torch.full((rows,), -math.inf), torch.zeros(rows, 4)
        factors = torch.empty(rows)
        total = torch.zeros(*shape, v.shape[2])
        power = self.scale if self.form == EFFICIENT else self._power()
        # FlashAttention goes from the last keys to the first.
        for start in reversed(starts) if self.form == FLASH else starts:
            end = min(start + keys, starts.stop)
            scores = self._scores(q, k[:, start:end], start, keys)
            weights = torch.empty_like(scores)
            tensors = scores, weights, *state, factors
            self.launch("block_weights", rows, *tensors, rows, keys, power, self.form)
            narrow = weights[..., : end - start].to(q.dtype)
            total = self._product(narrow, v[:, start:end], total * factors.view(*shape, 1))
        inverses, logarithms = torch.empty(rows), torch.empty(rows)
        numbers = rows, self.scale, self.form, int(split)
        self.launch("row_end", rows, *state, inverses, logarithms, *numbers)
        return total * inverses.view(*shape, 1), logarithms.view(shape)

    def _power(self) -> np.float32:
        """The scale of scores in powers of 2; FlashAttention multiplies in f64."""
        wide = np.float64 if self.form == FLASH else np.float32
        return np.float32(wide(self.scale) * wide(math.log2(math.e)))

    def gradients(
        self, q: Tensor, k: Tensor, v: Tensor, result: Tensor, given: Tensor, logarithms: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v, in f32, of one block of keys."""
        if self.form == EFFICIENT:
            # Its first product has the keys on the left, which matters for f32 of three parts.
            scores = self._masked(self._product(k, q.mT, None).mT, 0, self.keys)
        else:
            scores = self._scores(q, k, 0, self.keys)
        weights = torch.empty_like(scores)
        numbers = scores.numel(), self.keys, self.scale, self._power(), self.form
        self.launch("weights_again", scores.numel(), scores, logarithms, weights, *numbers)
        narrow, scale = weights.to(q.dtype), float(self.scale)
        if self.form == EFFICIENT:
            weights = narrow.float()
        slopes = weights * (self._product(given, v.mT, None) - self._dots(result, given))
        # FlashAttention's kernel scales the results.
        before, after = (1.0, scale) if self.form == FLASH else (scale, 1.0)
        slopes = (slopes * before).to(q.dtype)
        dq = self._product(slopes, k, torch.zeros_like(q, dtype=torch.float32))
        return dq * after, self._over_queries(slopes, q) * after, self._over_queries(narrow, given)

    def _dots(self, result: Tensor, given: Tensor) -> Tensor:
        """For every query, the product of its result and the gradient of that."""
        width = result.shape[2]
        if self.form == EFFICIENT and result.dtype == torch.float32:
            return sum_(self.chip, result * given, -1, keepdim=True)
        threads = _dot_threads(self.form, width)
        dots = torch.empty(result.shape[0] * result.shape[1])
        numbers = len(dots), width, threads, self.form
        self.launch("row_dots", len(dots), given.float(), result.float(), dots, *numbers)
        return dots.view(*result.shape[:2], 1)

    def _over_queries(self, left: Tensor, right: Tensor) -> Tensor:
        """The transpose of `left` times `right`: a sum over queries."""
        step = _gradient_block(right)[0] if self.form == EFFICIENT else self.queries
        total = torch.zeros(len(left), left.shape[2], right.shape[2])
        for part in (slice(i, i + step) for i in range(0, self.queries, step)):
            operands = left[:, part].mT, right[:, part]
            if left.dtype == torch.float32:
                total = total + self._product(*operands, torch.zeros_like(total))
            else:
                total = self._product(*operands, total)
        return total

    def _scores(self, q: Tensor, k: Tensor, start: int, keys: int) -> Tensor:
        """Scores of a block, -infinity where there is no key or a query must not see it."""
        return self._masked(self._product(q, k.mT, None), start, keys)

    def _masked(self, products: Tensor, start: int, keys: int) -> Tensor:
        scores = torch.full((*products.shape[:2], keys), -math.inf)
        scores[..., : products.shape[2]] = products
        if self.causal:
            last = torch.arange(self.queries)[:, None] + self.keys - self.queries
            scores.masked_fill_(torch.arange(start, start + keys) > last, -math.inf)
        return scores

    def _product(self, a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
        """A·B + C in the kernel's order, in f32; the scores are a product without C."""
        if self.form == EFFICIENT:
            a, b = _in_tiles(a, b, short_first=c is None)
        if a.dtype == torch.float32:
            return torch.from_numpy(self._from_three(a.numpy(), b.numpy(), c))
        kind, depth = FORMAT_NAMES[a.dtype], 8 if self.form == EFFICIENT else 16
        ins = f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32"
        codes = None if c is None else codes_of(c)
        return tensor_of(self._gemm(codes_of(a), codes_of(b), codes, ins), "f32")

    def _gemm(self, a: Array, b: Array, c: Array | None, ins: str) -> Array:
        return gemm(a, b, c, instruction=ins, target=self.chip.target, codes=True, progress=False)

    def _from_three(self, a: Array, b: Array, c: Tensor | None) -> Array:
        """A·B of f32 from three products of tf32: small times big, big times small, big times big.

        A pipelined loop adds up by itself what lies between two loads of tiles of 32, and its first
        step of 8 alone; those sums are added in f32.
        """
        total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32) if c is None else c.numpy()
        ins = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
        bounds = [0, 8, *range(40, a.shape[-1], 32), a.shape[-1]]
        for start, end in pairwise(bounds):
            big, small = _halves(a[..., start:end])
            left = _interleaved((small, big, big), -1)
            big, small = _halves(b[..., start:end, :])
            right = _interleaved((big, small, big), -2)
            total = total + self._gemm(left, right, None, ins).view(np.float32)
        return total

    def launch(self, name: str, count: int, *args: object) -> None:
        """Runs a kernel of attention.cu with a thread for each of `count`."""
        kernel = find_kernel(self.chip.target.name, "attention", name)
        given = [x.contiguous() if isinstance(x, Tensor) else x for x in args]
        launch(kernel, -(-count // _THREADS), _THREADS, given)


def _rows(chip: Chip, form: int, operands: Operands) -> _Rows:
    queries, keys = operands.q.shape[2], operands.k.shape[2]
    return _Rows(chip, form, operands.causal, np.float32(operands.scale), queries, keys)


def _in_tiles(a: Tensor, b: Tensor, short_first: bool) -> tuple[Tensor, Tensor]:
    """A and B with zeros along k up to whole tiles of 32, in the first tile or in the last."""
    k = a.shape[-1]
    cut, room = (k % 32 if short_first else k), -k % 32
    zeros = a.new_zeros(*a.shape[:-1], room), b.new_zeros(*b.shape[:-2], room, b.shape[-1])
    return (
        torch.cat([a[..., :cut], zeros[0], a[..., cut:]], -1),
        torch.cat([b[..., :cut, :], zeros[1], b[..., cut:, :]], -2),
    )


def _halves(x: Array) -> tuple[Array, Array]:
    """Two numbers of tf32 whose sum is about x, as codes: x cut, and what is left, rounded."""
    big = np.ascontiguousarray(x).view(np.uint32) & _TF32
    small = (x - big.view(np.float32)).view(np.uint32)
    finite = small & _EXPONENT != _EXPONENT
    return big, np.where(finite, small + np.uint32(0x1000), small) & _TF32


def _interleaved(parts: Sequence[Array], axis: int) -> Array:
    """Steps of 8 along an axis: the first of every part, the second of every part, and so on."""
    steps = parts[0].shape[axis] // 8
    return np.concatenate(
        [
            piece
            for pieces in zip(*(np.split(x, steps, axis) for x in parts), strict=True)
            for piece in pieces
        ],
        axis,
    )
