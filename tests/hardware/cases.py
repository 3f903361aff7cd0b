"""The input arrays of a kernel: registers, metadata, descriptors and images of shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from probes import probe_codes, probes

from dtypes import FORMATS, Array, Place, pack
from emulator.layout.addressing import SWIZZLE_UNITS, addresses, encode_descriptor
from emulator.layout.descriptor import TileShape, decode_descriptor
from emulator.targets import find_target
from emulator.warp.sparse import legal_nibbles, select
from hardware.kernels import IMAGE_BYTES, Variant
from hardware.operands import REGIMES, Matrices, Rng, matrices, scales


@dataclass(frozen=True)
class Batch:
    """Cases of one variant: the arrays that its kernel reads, by name, cases first."""

    variant: Variant
    arrays: dict[str, Array]
    #: the regime of each case
    regimes: tuple[str, ...]
    #: metadata is any bits, beyond what PTX defines
    wild: bool = False

    @property
    def cases(self) -> int:
        return len(self.regimes)

    def operands(self) -> tuple[Array, ...]:
        """The operands that `execute` takes."""
        arrays, ins = self.arrays, self.variant.ins
        if ins.is_wgmma:
            a = arrays["descriptor_a" if self.variant.a_shared else "a"]
            out = [a, arrays["descriptor_b"], arrays["c"]]
        else:
            out = [arrays[x] for x in "abc"]
        return (*out, arrays["e"]) if ins.is_sparse else tuple(out)

    def options(self) -> dict[str, Any]:
        """The options that `execute` takes."""
        out: dict[str, Any] = dict(self.variant.options)
        if self.variant.ins.is_wgmma:
            out |= {"shared": self.arrays["image"], "scale_d": self.arrays["scale_d"] != 0}
        if self.variant.ins.is_block_scaled:
            out |= {x: self.arrays[x] for x in ("scale_a", "scale_b")}
        if self.wild:
            out["undefined"] = "hardware"
        return out


def draw(variant: Variant, rng: Rng, cases: int, wild: bool = False) -> Batch:
    """`cases` random cases; regimes take turns, starting at a random one."""
    start = int(rng.integers(len(REGIMES)))
    regimes = tuple(REGIMES[(start + i) % len(REGIMES)] for i in range(cases))
    parts = []
    for regime in dict.fromkeys(regimes):
        drawn = matrices(variant.ins, rng, regime, regimes.count(regime))
        arrays = _laid_out(variant, rng, drawn, regime)
        parts.append((np.flatnonzero([r == regime for r in regimes]), arrays))
    joined: dict[str, Array] = {}
    for where, arrays in parts:
        for name, array in arrays.items():
            if name not in joined:
                joined[name] = np.zeros((cases, *array.shape[1:]), array.dtype)
            joined[name][where] = array
    if variant.ins.is_sparse:
        joined["e"] = _metadata(variant, rng, cases, wild)
    return Batch(variant, joined, regimes, wild)


def with_probes(variant: Variant, rng: Rng, target: str) -> Batch | None:
    """Cases with the probes of tests/oracle/probes.py along the diagonals of D, zeros elsewhere.

    None where it has none, as integers have. Metadata are random.
    """
    ins, generation = variant.ins, find_target(target).generation
    types = (ins.a_type, ins.b_type, ins.c_type, ins.d_type)
    found = probes(ins.form.pipe, generation, types, ins.stored_k)
    if not found:
        return None
    a, b, c, _ = probe_codes(found, types, ins.stored_k)
    size, groups = min(ins.m, ins.n), 1 if ins.is_wgmma else ins.fragment("a").groups
    cases = -(-len(c) // (size * groups))
    shapes = ((ins.m, ins.stored_k), (ins.k, ins.n), (ins.m, ins.n))
    drawn = Matrices(
        *(np.zeros((cases * groups, *s), x.dtype) for s, x in zip(shapes, (a, b, c), strict=True))
    )
    arrays, places = {}, np.broadcast_to(np.arange(ins.stored_k), (len(c), ins.stored_k))
    case, i = np.divmod(np.arange(len(c)), size)
    if ins.is_sparse:
        arrays["e"] = e = _metadata(variant, rng, cases, wild=False)
        nibbles = ins.fragment("e").gather(e[..., None])
        if ins.fragment("e").groups > 1:
            nibbles = nibbles[:, variant.options["selector"]]
        # Which row of B each stored element meets: B is the numbers of its rows.
        rows = np.broadcast_to(np.arange(ins.k, dtype=b.dtype)[:, None], (ins.k, ins.n))
        places = select(ins, nibbles, rows)[case, i, i].astype(np.intp)
    drawn.a[case, i] = a
    drawn.b[case[:, None], places, i[:, None]] = b
    drawn.c[case, i, i] = c
    if groups > 1:
        drawn = Matrices(*(x.reshape(cases, groups, *x.shape[1:]) for x in drawn))
    arrays |= _laid_out(variant, rng, drawn, apart=True)
    if ins.is_wgmma:
        arrays["scale_d"][:] = 1
    return Batch(variant, arrays, ("probes",) * cases)


def _laid_out(
    variant: Variant, rng: Rng, drawn: Matrices, regime: str = "normal", apart: bool = False
) -> dict[str, Array]:
    """Matrices in registers and in images of shared memory, where their elements may share bytes
    unless they are to lie `apart`; scales are drawn."""
    ins, cases = variant.ins, len(drawn.c)
    out = {"c": ins.fragment("c").scatter(drawn.c)}
    if not (ins.is_wgmma and variant.a_shared):
        out["a"] = ins.fragment("a").scatter(drawn.a)
    for name in ("scale_a", "scale_b") if ins.is_block_scaled else ():
        fragment = ins.fragment(name)
        shape = (cases, fragment.groups, *fragment.shape)
        codes = scales(FORMATS[ins.scale_type], rng, shape, regime)
        out[name] = fragment.scatter(codes if fragment.groups > 1 else codes[:, 0])[..., 0]
    if not ins.is_wgmma:
        return out | {"b": ins.fragment("b").scatter(drawn.b)}
    image = np.zeros((cases, IMAGE_BYTES), np.uint8)
    taken = np.zeros(image.shape, np.bool_) if apart else None
    options = variant.options
    tiles = {"b": (np.swapaxes(drawn.b, -1, -2), ins.b_place)}
    if variant.a_shared:
        tiles["a"] = (drawn.a, ins.a_place)
    for x, (codes, where) in tiles.items():
        major = "mn" if options.get(f"imm_trans_{x}") else "k"
        out[f"descriptor_{x}"] = write_tiles(image, codes, where, major, rng, taken)
    scale_d = (rng.random(cases) < 0.8).astype(np.uint32)
    return out | {"image": image, "scale_d": scale_d}


def _metadata(variant: Variant, rng: Rng, cases: int, wild: bool) -> Array:
    """Metadata words: legal where the selector looks (or not, if `wild`), any bits elsewhere."""
    ins = variant.ins
    fragment = ins.fragment("e")
    shape = (cases, fragment.groups, *fragment.shape)
    nibbles = rng.integers(0, 16, shape, dtype=np.uint8)
    if not wild:
        legal = np.array(legal_nibbles(ins), np.uint8)
        chosen = variant.options["selector"]
        nibbles[:, chosen] = rng.choice(legal, nibbles[:, chosen].shape)
    return fragment.scatter(nibbles if fragment.groups > 1 else nibbles[:, 0])[..., 0]


def write_tiles(
    image: Array, codes: Array, where: Place, major: str, rng: Rng, taken: Array | None = None
) -> Array:
    """Writes matrices ``(cases, rows, k)`` into ``(cases, bytes)`` images; their descriptors.

    Descriptors are random: swizzle, start, strides and base offset. Elements of a tile may share
    bytes with others, as small strides have it; the last one written stays. With `taken`, which
    says for every byte of the images whether it is in use, and is brought up to date, they share
    none.
    """
    size = max(1, where.width // 8)
    if where.width < 8:
        codes = pack(codes, where, 8)
    tile = TileShape(codes.shape[-2], codes.shape[-1], size, major)
    descriptors = np.zeros(len(codes), np.uint64)
    for case, matrix in enumerate(codes):
        descriptors[case], places = random_descriptor(rng, tile)
        while taken is not None and not _take(taken[case], places, size):
            descriptors[case], places = random_descriptor(rng, tile)
        elements = image[case].view(f"<u{size}")
        elements[places // size] = matrix
    return descriptors


def _take(taken: Array, places: Array, size: int) -> bool:
    """Marks the elements at `places` as taken, if all are free and none shares a byte."""
    elements = taken.reshape(-1, size)
    index = np.unique(places // size)
    if len(index) < places.size or elements[index].any():
        return False
    elements[index] = True
    return True


def random_descriptor(rng: Rng, tile: TileShape) -> tuple[np.uint64, Array]:
    """A descriptor of a tile inside the image, and the addresses ``(rows, k)`` of its elements."""
    swizzle = 16 * int(rng.choice(list(SWIZZLE_UNITS.values())))
    swizzle = swizzle if swizzle > 16 else 0
    base = int(rng.integers(8)) if swizzle and rng.random() < 0.5 else 0
    limit = IMAGE_BYTES // 16
    while True:
        # Strides spread over all orders of magnitude; smaller ones where the tile does not fit.
        lbo, sbo = (16 * int(limit ** rng.random()) for _ in range(2))
        word = encode_descriptor(0, lbo, sbo, base, swizzle)
        last = int(addresses(decode_descriptor(np.array(word)), tile).max()) | 0x7F
        if last < IMAGE_BYTES:
            break
        limit = max(2, limit * 3 // 4)
    # A start that moves the swizzle can move an element within its 128 bytes, no further.
    start = 16 * int(rng.integers((IMAGE_BYTES - 1 - last) // 16 + 1))
    word = encode_descriptor(start, lbo, sbo, base, swizzle)
    return word, addresses(decode_descriptor(np.array(word)), tile)
