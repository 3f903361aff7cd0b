"""FlashAttention-3 of any number of tokens.

flash_attention_3.npz has the PTX and the parameters of a launch for 328 queries, as recorded on an
H200 (FlashAttention-3 forward, f16, causal, head dimension 64, two query heads on one key head; by
nvcc 13.0; the source is FlashAttention's, BSD 3-clause). The parameters are one struct of 2,944
bytes; fields that depend on the number of tokens are written anew.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from emulator import Memory, Module, TensorMap

RECORDED = Path(__file__).parent / "flash_attention_3.npz"
#: elements of a head, query heads, rows of a tile of queries, bytes of the L2 cache in use
HEAD, HEADS, TILE, CACHE = 64, 2, 192, 1 << 25
#: offsets of fields of 4 bytes that are tokens, and of strides in elements, which are as many times
#: the tokens
ROWS = (8, 48, 96, 288, 336, 2056, 2112, 2248, 2272, 2288)
STRIDES = {40: 128, 80: 128, 128: 64, 168: 64, 2096: 128, 2152: 128, 2256: 2, 2296: 2}
#: offsets of the last key, of tiles of a head and of all heads, of what the scheduler divides by,
#: and of tensor maps
LAST, TILES, ALL_TILES, DIVISORS = 1884, 2820, 2856, (2860, 2872, 2884, 2896, 2908)
MAPS = 512, 768, 1024, 1280, 1536, 2432


def parameters(recorded: bytes, tokens: int) -> bytes:
    """The struct for so many queries and keys."""
    out, tiles = bytearray(recorded), -(-tokens // TILE)

    def put(at: int, *words: int) -> None:
        struct.pack_into(f"<{len(words)}I", out, at, *words)

    for at in ROWS:
        put(at, tokens)
    for at, factor in STRIDES.items():
        put(at, factor * tokens)
    put(LAST, tokens - 1)
    put(TILES, tiles)
    put(ALL_TILES, HEADS * tiles)
    # Tiles of so many heads share keys and values in the cache.
    together = HEADS << (CACHE // (2 * 2 * HEAD * tokens)).bit_length() - 1
    for at, divisor in zip(
        DIVISORS, (tiles, HEADS, together, together * tiles, HEADS), strict=True
    ):
        put(at, divisor, *_divider(divisor))
    for at in MAPS:
        held = TensorMap.decode(bytes(out[at : at + 128]))
        heads = held.dims[2]
        dims = held.dims[0], tokens, *held.dims[2:]
        strides = *held.strides[:2], 2 * HEAD * heads * tokens, *held.strides[3:]
        made = TensorMap.tiled(
            held.address, dtype=held.dtype, dims=dims, strides=strides, box=held.box,
            swizzle=held.swizzle, l2_promotion=held.l2_promotion,
        )  # fmt: skip
        out[at : at + 128] = made.encode()
    return bytes(out)


def _divider(divisor: int) -> tuple[int, int]:
    """Factor and shift by which CUTLASS divides."""
    shift = 31 + (divisor - 1).bit_length()
    return -(-(1 << shift) // divisor) & 0xFFFFFFFF, shift - 32


def launch(tokens: int, **options: Any) -> tuple[list[np.ndarray], int]:
    """Q, K, V and O after a launch, and the bytes of all arrays."""
    with np.load(RECORDED) as held:
        meta, text, given = json.loads(bytes(held["meta"])), bytes(held["ptx"]), held["params"]
    rng, memory, arrays = np.random.default_rng(0), Memory(), []
    for allocation in meta["allocations"]:
        per_row = {"Q": 128, "K": 64, "V": 64, "O": 128}.get(allocation["name"], 0)
        array = rng.standard_normal((tokens, per_row)).astype(np.float16)
        if not per_row:
            array = np.zeros(2 * tokens if allocation["name"] == "LSE" else 1, np.float32)
        arrays.append(array)
    kernel, raw = Module(text.decode(), target="sm_90a")[meta["entry"]], bytes(given)
    raw = parameters(raw, tokens)
    # Longer arrays than the recording's would overlap at its addresses.
    for i, (allocation, array) in enumerate(zip(meta["allocations"], arrays, strict=True)):
        place = (1 << 40) + (i << 30)
        raw = raw.replace(struct.pack("<Q", allocation["address"]), struct.pack("<Q", place))
        memory.map(place, array)
    kernel.launch(
        meta["grid"], meta["block"], [raw], dynamic_shared=meta["shared"], memory=memory, **options
    )
    return arrays[:4], sum(x.nbytes for x in arrays)


def error(arrays: list[np.ndarray], rows: range) -> float:
    """The largest error of some rows of O."""
    q, k, v, o = (x.astype(np.float64) for x in arrays)
    worst = 0.0
    for row in rows:
        for head in range(HEADS):
            part = slice(HEAD * head, HEAD * (head + 1))
            score = np.exp(q[row, part] @ k[: row + 1].T / 8)
            exact = score @ v[: row + 1] / score.sum()
            worst = max(worst, float(np.abs(exact - o[row, part]).max()))
    return worst
