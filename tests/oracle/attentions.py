"""Attention that an H200 computed: operands of each case, and digests of what came out."""

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "h200_attention.json.gz"
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}  # fmt: skip


def _normal(tag, *shape):
    """Nearly normal numbers by a hash: sums of four numbers of 16 bits."""
    seed = hashlib.blake2b(tag.encode(), digest_size=16).digest()
    words = np.random.PCG64(int.from_bytes(seed, "little")).random_raw(int(np.prod(shape)))
    parts = [((words >> np.uint64(s)) & np.uint64(0xFFFF)).astype(float) for s in (0, 16, 32, 48)]
    return torch.from_numpy(((sum(parts) - 131070.0) / 37837.0).reshape(shape)).float()


def run(case, gradients=None):
    """Result of a case such as "flash.f16.1.2.33.33.32.c" on the device "cuda"; and its gradients,
    by default if they were recorded."""
    kernel, kind, *sizes, mask = case.split(".")
    batch, heads, queries, keys, width = map(int, sizes)
    tag = f"{kind}.{'.'.join(sizes)}"
    lengths = {"q": queries, "k": keys, "v": keys, "g": queries}
    q, k, v, g = (
        _normal(f"fl{name}{tag}", batch, heads, length, width).to(TYPES[kind]).cuda()
        for name, length in lengths.items()
    )
    leaves = [x.requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(KERNELS[kernel]):
        out = F.scaled_dot_product_attention(*leaves, is_causal=mask == "c")
    found = {"out": out.detach()}
    if f"{case}.dq" in read()["results"] if gradients is None else gradients:
        out.backward(g)
        found |= {f"d{name}": x.grad for name, x in zip("qkv", leaves, strict=True)}
    return found


def digest(x):
    raw = x.cpu().contiguous().view(torch.uint8).numpy()
    return hashlib.sha256(raw.tobytes()).hexdigest()[:24]


def read():
    return json.loads(gzip.decompress(RECORDED.read_bytes()))
