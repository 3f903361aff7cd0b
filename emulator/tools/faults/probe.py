"""The same kernel with operands that tell every mistake from every other."""

from __future__ import annotations

import numpy as np

from dtypes import FORMATS, Array, Format, encode
from emulator.errors import OperandError
from emulator.tools.faults.kernel import ONE_WORD, Kernel
from emulator.warp.sparse import legal_nibbles


def probe_of(base: Kernel) -> Kernel:
    """The same kernel with another value in every element."""
    rng = np.random.default_rng(12345)
    ins, kernel = base.ins, base
    for name in ("a", "b", "c", "e", "scale_a", "scale_b"):
        if name in ONE_WORD and name not in base.words:
            continue
        old = base.matrix(name)
        if name == "e":
            codes = rng.choice(legal_nibbles(ins), old.shape)
        else:
            scale = name.startswith("scale")
            codes = _unique(rng, FORMATS[ins.scale_type if scale else getattr(ins, f"{name}_type")],
                            old.shape)  # fmt: skip
        try:
            kernel = kernel.holding(name, codes.astype(old.dtype))
        except OperandError:
            continue  # a tile that overlaps itself stays as it is
    return kernel


def _unique(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...]) -> Array:
    if fmt.is_float and fmt.signed:
        return encode(fmt, rng.uniform(-2, 2, shape))
    if fmt.is_float:
        return (fmt.bias << fmt.mantissa_bits) + rng.integers(-6, 7, shape)
    return rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True)
