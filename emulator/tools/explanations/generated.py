"""Generated operands: matrices of codes for an instruction, from a seed."""

from __future__ import annotations

import numpy as np

from dtypes import FORMATS, Array, Format, code_type, encode
from emulator.errors import OperandError, nearest
from emulator.isa.matrix import MatrixInstruction
from emulator.tools.explanations.feeds import Multiply
from emulator.warp.sparse import legal_nibbles

KINDS = {
    "wide": "exponents far apart, so that low bits of products are cut off",
    "normal": "standard normal numbers",
    "edges": "as wide, with zeros, subnormals, largest numbers, infinities and NaNs among them",
    "any": "random bits",
}


def generate(ins: Multiply, seed: int = 0, kind: str = "wide") -> dict[str, Array]:
    """Codes of A, B and C, and where `ins` takes them scale_a, scale_b and nibbles.

    A of a sparse instruction is compressed. Integers are random bits in every kind; "edges" has C
    near the ends of s32. Raises OperandError for another kind or seed.
    """
    if kind not in KINDS:
        raise OperandError(
            f"no inputs {kind!r:.80}; there are {', '.join(KINDS)}; nearest is "
            f"{nearest(str(kind), KINDS)[0]!r}"
        )
    if not isinstance(seed, int) or seed < 0:
        raise OperandError(f"a seed is an integer from 0 on; got {seed!r:.80}")
    rng = np.random.default_rng(seed)
    formats = {"A": ins.a_type, "B": ins.b_type, "C": ins.c_type}
    sparse = isinstance(ins, MatrixInstruction) and ins.is_sparse
    stored = ins.k // 2 if sparse else ins.k
    shapes = {"A": (ins.m, stored), "B": (ins.k, ins.n), "C": (ins.m, ins.n)}
    out = {x: _matrix(rng, FORMATS[formats[x]], shapes[x], kind) for x in "ABC"}
    if kind == "edges" and not FORMATS[ins.c_type].is_float:
        near = rng.integers(-2000, 2000, shapes["C"]) + (1 << 31) * rng.integers(0, 2, shapes["C"])
        out["C"] = (near & 0xFFFFFFFF).astype(np.uint32)
    if not isinstance(ins, MatrixInstruction):
        return out
    if sparse:
        count = (ins.m, ins.k // ins.chunk)
        out["nibbles"] = rng.choice(legal_nibbles(ins), count).astype(np.uint8)
    if ins.is_block_scaled:
        fmt, v = FORMATS[ins.scale_type], ins.scale_chunks
        one = fmt.bias << fmt.mantissa_bits
        for name, shape in (("scale_a", (ins.m, v)), ("scale_b", (v, ins.n))):
            out[name] = (one + rng.integers(-6, 7, shape)).astype(code_type(fmt.bits))
    return out


def _matrix(rng: np.random.Generator, fmt: Format, shape: tuple[int, int], kind: str) -> Array:
    random = rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True)
    codes = random.astype(code_type(fmt.bits))
    if not fmt.is_float or kind == "any":
        return codes
    values = rng.standard_normal(shape)
    if kind != "normal":
        values = (1 + rng.random(shape)) * np.where(random & np.uint64(1), 1.0, -1.0)
        values = np.ldexp(values, rng.integers(-6, 7, shape))
    codes = encode(fmt, values, overflow="saturate")
    if kind == "edges":
        special = rng.choice(_specials(fmt), shape)
        codes = np.where(rng.integers(0, 12, shape), codes, special).astype(codes.dtype)
    return codes


def _specials(fmt: Format) -> Array:
    """Zero, the least numbers, the largest, infinity and NaN, of both signs."""
    unit = 1 << fmt.ignored_bits
    codes = [0, unit, unit << fmt.mantissa_bits, fmt.max_finite]
    codes += [x for x in (fmt.infinity, fmt.nan) if x is not None]
    both = [*codes, *(x | fmt.sign_mask for x in codes)]
    return np.array(both, np.uint64).astype(code_type(fmt.bits))
