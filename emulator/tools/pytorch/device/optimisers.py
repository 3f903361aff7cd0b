"""Fused optimisers as a GPU computes them, and operators on lists that differ from single ones.

`kernels/optimisers.cu` holds the arithmetic. Other operators on lists do what the operator on each
tensor does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from emulator.targets import Chip
from emulator.tools.pytorch.device.family import FLOATS, Answer, Request, on_chip
from emulator.tools.pytorch.device.kernel import find_kernel, launch
from emulator.tools.pytorch.device.native import Steps, take_turns
from emulator.tools.pytorch.device.pointwise import canonical
from emulator.tools.pytorch.device.reductions import Magnitudes, Squares
from emulator.tools.pytorch.device.softmax import in_turns, sums_of_block

_WHY = "PyTorch's kernels over lists, in their order"
#: operators on lists that PyTorch would split before it asks for the device
WHOLE = ("_foreach_div", "_foreach_div_", "_foreach_norm")
_THREADS = 128
#: the place of the gradient among the tensors of a kernel, which does not change it
_GRADIENT = 1
#: of a norm: elements of a block, its threads, and elements that a thread takes at once
_CHUNK, _BLOCK, _VECTOR = 65536, 512, 4
_aten = torch.ops.aten
_NORM = _aten._foreach_norm.Scalar


def optimisers(chip: Chip, request: Request) -> Answer | None:
    rule = _RULES.get(request.function)
    if rule is None or find_kernel(chip.target.name, "optimisers", "fused_sgd") is None:
        return None
    given = request.given
    tensors = [x for y in given.values() if isinstance(y, list) for x in y]
    if any(isinstance(x, Tensor) and x.dtype not in FLOATS for x in tensors):
        return None
    if given.get("grad_scale") is not None or given.get("found_inf") is not None:
        return None
    made = rule(chip, **given)
    # Recordings of norms show other sizes.
    evidence = on_chip(chip, "rule" if request.function == _NORM else "recorded")
    return None if made is False else Answer(None if made is True else made, _WHY, evidence)


def _launch(chip: Chip, name: str, tensors: Sequence[Tensor], *rest: object) -> None:
    """Runs a kernel on tensors, which it overwrites."""
    found = find_kernel(chip.target.name, "optimisers", name)
    count = tensors[0].numel()
    if not count:
        return
    wide = [x.to(torch.float32, copy=True).contiguous() for x in tensors]
    launch(found, -(-count // _THREADS), _THREADS, [*wide, count, *rest])
    for place, (tensor, made) in enumerate(zip(tensors, wide, strict=True)):
        if place != _GRADIENT:
            canonical(tensor.copy_(made))


def _divided(chip: Chip, self: Sequence[Tensor], **given: Any) -> list[Tensor]:
    """Quotients: numbers of a list divide, and a single one is multiplied by as a reciprocal."""
    with np.errstate(all="ignore"):
        if "scalar" in given:
            inverse = np.float32(np.float64(1) / given["scalar"])
            made = [x.float().numpy() * inverse for x in self]
        else:
            pairs = zip(self, given["scalars"], strict=True)
            made = [x.float().numpy() / np.float32(number) for x, number in pairs]
    results = zip(made, self, strict=True)
    return [canonical(torch.as_tensor(x).to(tensor.dtype)) for x, tensor in results]


def _divide(chip: Chip, self: Sequence[Tensor], **given: Any) -> bool:
    for tensor, made in zip(self, _divided(chip, self, **given), strict=True):
        tensor.copy_(made)
    return True


def _norms(
    chip: Chip, self: Sequence[Tensor], ord: float, dtype: torch.dtype | None
) -> list[Tensor] | bool:
    """The norm of each tensor; facts from aten/src/ATen/native/cuda/foreach_reduce.cuh."""
    first = self[0]
    plain = all(x.dtype == first.dtype and x.is_contiguous() and x.numel() for x in self)
    if not plain or ord not in (1, 2) or dtype not in (None, first.dtype):
        return False
    steps = Squares() if ord == 2 else Magnitudes()
    with np.errstate(all="ignore"):
        made = [_total(steps, x) for x in self]
        made = [np.sqrt(x) for x in made] if ord == 2 else made
    return [canonical(torch.as_tensor(x).to(first.dtype)) for x in made]


def _total(steps: Steps, x: Tensor) -> Any:
    """The sum over a tensor: of blocks, then of their sums."""
    values = x.float().reshape(1, -1).numpy()
    count = values.shape[1]
    loads = not count % _VECTOR and not x.data_ptr() % (_VECTOR * x.element_size())
    blocks = []
    for at in range(0, count, _CHUNK):
        state = steps.start((1, _BLOCK * _VECTOR))
        take_turns(steps, state, values[:, at : at + _CHUNK])
        (held,) = state
        lists = held.reshape(_BLOCK, _VECTOR) if loads else held.reshape(_VECTOR, _BLOCK).T
        blocks.append(sums_of_block(in_turns(lists, 1).T)[0])
    return sums_of_block(in_turns(np.array([blocks], np.float32), _BLOCK))[0]


def _numbers(given: Mapping[str, Any], names: str) -> list[int | np.float32]:
    """Arguments as a kernel takes them: numbers in f32, flags as integers."""
    values = (given[name] for name in names.split())
    return [int(x) if isinstance(x, bool) else np.float32(float(x)) for x in values]


def _adam(decoupled: bool) -> Callable[..., bool]:
    def rule(chip: Chip, **given: Any) -> bool:
        numbers = _numbers(given, "lr beta1 beta2 weight_decay eps")
        flags = [int(decoupled), *_numbers(given, "amsgrad maximize")]
        names = ("self", "grads", "exp_avgs", "exp_avg_sqs", "state_steps")
        greatest = given["max_exp_avg_sqs"] if given["amsgrad"] else given["exp_avg_sqs"]
        lists = zip(*(given[name] for name in names), greatest, strict=True)
        for *tensors, step, most in lists:
            held = [*tensors, most if given["amsgrad"] else most.clone()]
            _launch(chip, "fused_adam", held, np.float32(float(step)), *numbers, *flags)
        return True

    return rule


def _sgd(chip: Chip, **given: Any) -> bool:
    tensors = given["self"]
    buffers = given["momentum_buffer_list"] or [x.clone() for x in tensors]
    numbers = _numbers(given, "lr momentum weight_decay dampening nesterov maximize is_first_step")
    for held in zip(tensors, given["grads"], buffers, strict=True):
        _launch(chip, "fused_sgd", held, *numbers)
    return True


_RULES: dict[Any, Callable[..., bool | list[Any]]] = {
    _NORM: _norms,
    _aten._foreach_div.Scalar: _divided, _aten._foreach_div.ScalarList: _divided,
    _aten._foreach_div_.Scalar: _divide, _aten._foreach_div_.ScalarList: _divide,
    _aten._fused_adam_.default: _adam(False), _aten._fused_adam_.tensor_lr: _adam(False),
    _aten._fused_adamw_.default: _adam(True), _aten._fused_adamw_.tensor_lr: _adam(True),
    _aten._fused_sgd_.default: _sgd, _aten._fused_sgd_.tensor_lr: _sgd,
}  # fmt: skip
