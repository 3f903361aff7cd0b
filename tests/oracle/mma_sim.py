"""Dot products by MMA-Sim 2.1.1 (Xie et al., arXiv:2511.10909; MIT licence), an independent model.

What it models of Volta, Turing, RTX Blackwell and tcgen05 has no recording of ours. Its authors
compared it with those GPUs. As a script this makes tests/golden/mma_sim.npz anew:

    pip install torch mmasim==2.1.1 && PYTHONPATH=.:tests/oracle python tests/oracle/mma_sim.py
"""

import json
from typing import NamedTuple

import numpy as np
from paths import GOLDEN

from dtypes import FORMATS, code_type

FILE = GOLDEN / "mma_sim.npz"
#: rows and columns of results of one regime
SHAPE = 12, 8
SMALL = ("e5m2", "e4m3", "e3m2", "e2m3", "e2m1")


class Form(NamedTuple):
    """A recipe as `find_recipe` is asked for it, and MMA-Sim's name of such an instruction."""

    pipe: str
    generation: str
    a: str
    b: str
    d: str
    k: int
    name: str
    kind: str = ""
    scale: str = ""
    scales: int = 0


def forms():
    architectures = {"volta": "Volta", "turing": "Turing", "ampere": "Ampere",
                     "ada": "Ada Lovelace", "hopper": "Hopper", "blackwell": "Blackwell",
                     "rtx_blackwell": "RTX Blackwell"}  # fmt: skip
    wide = [("f16", "f32", 16), ("f16", "f16", 16), ("bf16", "f32", 16), ("tf32", "f32", 8)]
    for generation in list(architectures)[:2]:
        for d in ("f32", "f16"):
            yield Form("quad", generation, "f16", "f16", d, 4, f"m8n8k4.{d}.f16.f16.{d}")
    for d in ("f32", "f16"):
        yield Form("mma", "turing", "f16", "f16", d, 8, f"m16n8k8.{d}.f16.f16.{d}")
    for generation in list(architectures)[2:]:
        for a, d, k in wide:
            yield Form("mma", generation, a, a, d, k, f"m16n8k{k}.{d}.{a}.{a}.{d}")
    for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3")):
        for d in ("f32", "f16"):
            yield Form("mma", "ada", a, b, d, 32, f"m16n8k32.{d}.{a}.{b}.{d}")
            yield Form("wgmma", "hopper", a, b, d, 32, f"m64n8k32.{d}.{a}.{b}")
    for a, d, k in wide:
        yield Form("wgmma", "hopper", a, a, d, k, f"m64n8k{k}.{d}.{a}.{a}")
        kind = "tf32" if a == "tf32" else "f16"
        name = f"m64n8k{k}.kind::{kind}.{d}.{a}.{a}"
        yield Form("tcgen05", "blackwell", a, a, d, k, name)
    for a, b in zip(SMALL, SMALL[1:] + SMALL[:1], strict=True):
        for d in ("f32", "f16"):
            name = f"k32.kind::f8f6f4.{d}.{a}.{b}"
            yield Form("mma", "rtx_blackwell", a, b, d, 32, f"m16n8{name}.{d}")
            yield Form("tcgen05", "blackwell", a, b, d, 32, f"m64n8{name}")
        yield from _scaled("mxf8f6f4", a, b, 32, "ue8m0", 1)
    yield from _scaled("mxf4", "e2m1", "e2m1", 64, "ue8m0", 2)
    for scale in ("ue8m0", "ue4m3"):
        yield from _scaled("mxf4nvf4", "e2m1", "e2m1", 64, scale, 4)


def _scaled(kind, a, b, k, scale, scales):
    name = f"n8k{k}.kind::{kind}.block{16 if scales == 4 else 32}.f32.{a}.{b}"
    more = (a, b, "f32", k)
    yield Form("mma", "rtx_blackwell", *more, f"m16{name}.f32.{scale}", kind, scale, scales)
    yield Form("tcgen05", "blackwell", *more, f"m128{name}.{scale}", kind, scale, scales)


FORMS = tuple(forms())
REGIMES = ("near", "cancelling", "tiny", "any", "floor")


def word_of(fmt):
    return code_type(32 if fmt.name == "tf32" else fmt.bits)


def sign_of(fmt):
    shift = 31 if fmt.name == "tf32" else fmt.exponent_bits + fmt.mantissa_bits
    return word_of(fmt).type(1 << shift)


def drawn(rng, fmt, shape, regime):
    """Codes: exponents near one, or small, or any bits; some zeros."""
    sign, fraction = fmt.exponent_bits + fmt.mantissa_bits, (1 << fmt.mantissa_bits) - 1
    codes = rng.integers(0, 2 << sign, shape)
    if regime != "any":
        fields = 1 << fmt.exponent_bits
        low, high = (0, max(2, fields // 3)) if regime == "tiny" else (fmt.bias - 3, fmt.bias + 3)
        field = rng.integers(max(low, 0), min(high, fields), shape)
        codes = codes & (1 << sign | fraction) | field << fmt.mantissa_bits
    codes = np.where(rng.random(shape) < 0.15, 0, codes)
    return (codes << (13 if fmt.name == "tf32" else 0)).astype(word_of(fmt))


def operands(rng, form, regime):
    """A ``(m, k)``, B ``(n, k)``, C ``(m, n)`` and scales of one regime."""
    (m, n), a, b, d = SHAPE, *(FORMATS[x] for x in (form.a, form.b, form.d))
    p, q = drawn(rng, a, (m, form.k), regime), drawn(rng, b, (n, form.k), regime)
    if regime == "cancelling":
        p[:, 1::2], q[:, 1::2] = p[:, ::2], q[:, ::2] ^ sign_of(b)
        p[::3, 1] ^= p.dtype.type(1 << (13 if form.a == "tf32" else 0))
    c = drawn(rng, d, (m, n), regime)
    c[rng.random((m, n)) < 0.5] = 0
    scales = ()
    if form.scales:
        codes = {"near": range(105, 150), "tiny": range(60), "any": range(255)}
        if form.scale == "ue4m3":
            codes = {"near": range(127), "tiny": range(16), "any": range(127)}
        scales = tuple(
            rng.choice(codes.get(regime, codes["near"]), (rows, form.scales)).astype(np.uint8)
            for rows in (m, n)
        )
    if regime == "floor" and form.k == 64:
        _least(rng, p, q, c, *scales)
    return p, q, c, *scales


def _least(rng, a, b, c, scale_a, scale_b):
    """One small number in the first group, and about the last bit that is kept less in the third:
    only beside nothing else is the common exponent the floor."""
    a[:], b[:], c[:] = 0, 0, 0
    a[:, 0], b[:, 0], a[:, 32], b[:, 32] = 2, 2, 1, 9  # 1, 1, 1/2, −1/2
    half = scale_a.shape[1] // 2
    for scale in (scale_a, scale_b):
        scale[:, 0] = rng.integers(127 - 75, 127 - 70, len(scale))
        scale[:, half] = rng.integers(127 - 88, 127 - 82, len(scale))


def main():
    """Draws operands, asks MMA-Sim, writes the file."""
    import torch
    from mmasim.nv_ptx import sim

    types = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32,
             "f32": torch.float32, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
             "ue8m0": torch.float8_e8m0fnu, "ue4m3": torch.float8_e4m3fn}  # fmt: skip
    architectures = {"ada": "Ada Lovelace", "rtx_blackwell": "RTX Blackwell"}

    def tensor(codes, name, k):
        if name == "e2m1" and k == 64:
            codes = codes[..., ::2] << 4 | codes[..., 1::2]
        elif name == "e2m1":
            codes = codes << 2
        signed = torch.from_numpy(codes.view(f"i{codes.itemsize}") if name in types else codes)
        return signed.view(types[name]) if name in types else signed

    rng, arrays, names = np.random.default_rng(211), {}, []
    for number, form in enumerate(FORMS):
        arch = architectures.get(form.generation, form.generation.capitalize())
        which = {"wgmma": "WGMMA", "tcgen05": "TCGen05MMA"}.get(form.pipe, "MMA")
        made = getattr(sim, which + ("BlockScale" if form.scales else ""))(arch, form.name)
        cases = [operands(rng, form, regime) for regime in REGIMES]
        p, q, c, *scales = (np.stack(x) for x in zip(*cases, strict=True))
        a, b = (np.broadcast_to(x, (*c.shape, form.k)).copy() for x in (p[:, :, None], q[:, None]))
        uv = [
            tensor(np.broadcast_to(x, (*c.shape, form.scales)).copy(), form.scale, 0)
            for x in ((scales[0][:, :, None], scales[1][:, None]) if scales else ())
        ]
        with np.errstate(all="ignore"):
            d = made.dpa(tensor(a, form.a, form.k), tensor(b, form.b, form.k),
                         tensor(c, form.d, 0), *uv)  # fmt: skip
        bits = torch.int16 if form.d == "f16" else torch.int32
        d = d.contiguous().view(bits).numpy().view(c.dtype)
        for name, x in zip("abcduv", (p, q, c, d, *scales), strict=False):
            arrays[f"{number}.{name}"] = x
        names.append(form.name)
    provenance = {"source": "MMA-Sim 2.1.1, dot products of operands drawn here", "names": names}
    np.savez_compressed(FILE, about=json.dumps(provenance), **arrays)


if __name__ == "__main__":
    main()
