"""Optimisers, losses and others of PyTorch on small tensors, for a GPU and the simulated one."""

import numpy as np
import torch
import torch.nn.functional as F

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def values(number, *shape, dtype=torch.float32):
    """Nearly normal numbers, the same on every machine."""
    words = np.random.PCG64(number).random_raw(int(np.prod(shape)))
    parts = [((words >> np.uint64(s)) & np.uint64(0xFFFF)).astype(float) for s in (0, 16, 32, 48)]
    made = torch.from_numpy((sum(parts) - 131070.0) / 37837.0).reshape(shape)
    return made.to(torch.float32).to(dtype).to("cuda")


_optim = torch.optim
OPTIMISERS = {
    "adamw": lambda p: _optim.AdamW(p, 3e-3, betas=(0.8, 0.95), weight_decay=0.1),
    "adamw.loop": lambda p: _optim.AdamW(p, 3e-3, foreach=False, maximize=True),
    "adamw.amsgrad": lambda p: _optim.AdamW(p, 3e-3, amsgrad=True),
    "adamw.fused": lambda p: _optim.AdamW(p, 3e-3, betas=(0.8, 0.95), fused=True),
    "adamw.fused.amsgrad": lambda p: _optim.AdamW(p, 3e-3, amsgrad=True, fused=True),
    "adamw.fused.maximize": lambda p: _optim.AdamW(p, 3e-3, maximize=True, fused=True),
    "adam.fused": lambda p: _optim.Adam(p, 3e-3, weight_decay=0.1, fused=True),
    "adam": lambda p: _optim.Adam(p, 3e-3, weight_decay=0.1),
    "sgd": lambda p: _optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, dampening=0.1),
    "sgd.loop": lambda p: _optim.SGD(p, 0.1, momentum=0.9, nesterov=True, foreach=False),
    "sgd.fused": lambda p: _optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, fused=True),
    "rmsprop": lambda p: _optim.RMSprop(p, 1e-3, momentum=0.9, centered=True),
    "rmsprop.loop": lambda p: _optim.RMSprop(p, 1e-3, weight_decay=0.1, foreach=False),
    "adagrad": lambda p: _optim.Adagrad(p, 1e-2),
}  # fmt: skip


def _stepped(make, dtype):
    held = [values(i, 23, 5 + i, dtype=dtype).requires_grad_() for i in range(3)]
    optimiser = make(held)
    for step in range(4):
        for i, one in enumerate(held):
            one.grad = values(100 + 10 * step + i, 23, 5 + i, dtype=dtype)
        optimiser.step()
    return torch.cat([x.detach().reshape(-1) for x in held])


def _clipped(dtype, **given):
    held = [values(i, 50, 33 + i, dtype=dtype) for i in range(4)]
    for one in held:
        one.grad = one * 3
    norm = torch.nn.utils.clip_grad_norm_(held, 0.5, **given)
    return torch.cat([norm.reshape(1), *(x.grad.reshape(-1) for x in held)])


def _gradient(function, x):
    x = x.clone().requires_grad_()
    made = function(x)
    made.backward(values(77, *made.shape, dtype=made.dtype) if made.dim() else None)
    return x.grad


def _labels(classes, *shape):
    words = np.random.PCG64(5).random_raw(int(np.prod(shape))).reshape(shape)
    return torch.from_numpy((words % np.uint64(classes)).astype(np.int64)).to("cuda")


def _misc(dtype):
    """Name, function and operand of what has a gradient."""
    rows, image = values(1, 19, 37, dtype=dtype), values(2, 2, 3, 13, 17, dtype=dtype)
    other, table = values(3, 19, 37, dtype=dtype), values(4, 50, 24, dtype=dtype)
    labels, many = _labels(37, 19), _labels(50, 300)
    labels[3] = -100
    yield "cross_entropy", lambda x: F.cross_entropy(x, labels), rows
    yield "cross_entropy.smooth", lambda x: F.cross_entropy(x, labels, label_smoothing=0.2), rows
    yield "cross_entropy.none", lambda x: F.cross_entropy(x, labels, reduction="none"), rows
    yield "cross_entropy.sum", lambda x: F.cross_entropy(x, labels, reduction="sum"), rows
    yield "norms", lambda x: torch.stack(torch._foreach_norm([x, values(6, 99_991).to(x)])), rows
    yield "mse", lambda x: F.mse_loss(x, other), rows
    yield "l1", lambda x: F.l1_loss(x, other), rows
    yield "smooth_l1", lambda x: F.smooth_l1_loss(x, other, beta=0.7), rows
    yield "smooth_l1.none", lambda x: F.smooth_l1_loss(x, other, reduction="none"), rows
    yield "huber", lambda x: F.huber_loss(x, other, delta=0.7), rows
    yield "kl", lambda x: F.kl_div(x, other.softmax(-1), reduction="none"), rows
    yield "kl.log", lambda x: F.kl_div(x, other, log_target=True, reduction="none"), rows
    yield "bce", lambda x: F.binary_cross_entropy(
        x.sigmoid(), other.sigmoid(), reduction="none"), rows  # fmt: skip
    yield "bce_logits", lambda x: F.binary_cross_entropy_with_logits(x, other.sigmoid()), rows
    yield "addcmul", lambda x: torch.addcmul(x, other, other), rows
    yield "foreach", lambda x: torch.cat([*torch._foreach_addcmul([x], [other], [other]),
                                          *torch._foreach_div([x], 3.3)]), rows  # fmt: skip
    yield "embedding", lambda x: F.embedding(many, x), table
    yield "embedding.padding", lambda x: F.embedding(many, x, padding_idx=3), table
    for mode in ("bilinear", "bicubic"):
        for corners in (False, True):
            yield f"{mode}.{corners}", lambda x, m=mode, c=corners: F.interpolate(
                x, size=(20, 9), mode=m, align_corners=c), image  # fmt: skip
        yield f"{mode}.scale", lambda x, m=mode: F.interpolate(x, scale_factor=1.3, mode=m), image


def cases():
    """Name and call of every case."""
    for name, dtype in TYPES.items():
        for kind, make in OPTIMISERS.items():
            yield f"{kind}.{name}", lambda m=make, t=dtype: _stepped(m, t)
        yield f"clip.{name}", lambda t=dtype: _clipped(t)
        yield f"clip.loop.{name}", lambda t=dtype: _clipped(t, foreach=False)
        for kind, function, x in _misc(dtype):
            yield f"{kind}.{name}", lambda f=function, x=x: f(x)
            yield f"{kind}.grad.{name}", lambda f=function, x=x: _gradient(f, x)
