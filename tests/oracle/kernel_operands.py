"""Operands of instructions around what an engine can get wrong, and kernels alone on them."""

import numpy as np
from designed import Case, scales_of
from designed import operands as dots

from emulator import execute
from emulator.layout.descriptor import Descriptor
from emulator.memory.descriptors import store_tile
from emulator.warp import multiply
from emulator.warp.sparse import legal_nibbles


def matrices(ins, target, rng, regime, selector=0):
    """Codes of one warp: rows of A and columns of B, the same ones of a designed dot product."""
    arithmetic = ins.arithmetic(target)
    if regime not in ("any", "boundary") and not arithmetic.a.is_float:
        regime = "any"
    case = Case("", arithmetic, ins.stored_k, ins.scale_chunks)
    a, b, c = dots(rng, case, regime, ins.m * ins.n)
    a, c = a[: ins.m], c.reshape(ins.m, ins.n)
    b = b[: ins.n].T
    if ins.is_sparse:
        more = dots(rng, case, regime, ins.n)[1].T
        b = np.stack([b, more], 1).reshape(ins.k, ins.n)
    scales = scales_of(rng, case, regime, max(ins.m, ins.n))
    return a, b, c, [scales[0][: ins.m], scales[1][: ins.n].T] if scales else []


def drawn(ins, target, rng, regimes, *, swizzle=0, a_in_memory=False, major="k"):
    """Operands by name for a batch of one warp for each regime."""
    parts = [
        [matrices(ins, target, rng, regime) for regime in regimes]
        for _ in range(ins.fragment("d").groups)
    ]
    a, b, c = (np.stack([np.stack([x[i] for x in one]) for one in parts], 1) for i in range(3))
    named = {"a": a, "b": b, "d" if ins.is_wgmma else "c": c}
    out = {}
    for name, codes in named.items():
        if not (ins.is_wgmma and (name == "b" or (name == "a" and a_in_memory))):
            fragment = ins.fragment(name)
            out[name] = fragment.scatter(codes if fragment.groups > 1 else codes[:, 0])
    if ins.is_wgmma:
        out |= in_memory(ins, {"a": a[:, 0], "b": np.swapaxes(b[:, 0], -1, -2)}, swizzle,
                         "ab" if a_in_memory else "b", major)  # fmt: skip
    if ins.is_sparse:
        count = ins.fragment("e").lanes * 8
        nibbles = rng.choice(legal_nibbles(ins), (len(regimes), count // 8, 8)).astype(np.uint32)
        out["e"] = (nibbles << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32)
    if ins.is_block_scaled:
        for i, name in enumerate(("scale_a", "scale_b")):
            fragment = ins.fragment(name)
            codes = np.stack([one[3][i] for one in parts[0]])
            out[name] = fragment.scatter(np.stack([codes] * fragment.groups, 1))[..., 0]
    return out


def in_memory(ins, tiles, swizzle, which, major):
    batch = len(tiles["b"])
    out = {"shared": np.zeros((batch, 1 << 17), np.uint8)}
    for name, start in zip(which, (0, 1 << 16), strict=False):
        codes, where = tiles[name], ins.a_place if name == "a" else ins.b_place
        placed = Descriptor.for_tile(
            *codes.shape[1:], ins.a_type if name == "a" else ins.b_type,
            swizzle_bytes=swizzle, start_address=start, major=major,
        )  # fmt: skip
        word = placed.descriptor.encode()
        store_tile(out["shared"], word, codes, where, major)
        out[f"descriptor_{name}"] = np.full(batch, word, np.uint64)
    if major == "mn":
        out |= {f"imm_trans_{name}": 1 for name in which}
    return out


def by_kernel(monkeypatch, ins, target, operands, **options):
    """What a kernel gives; fails where another engine would have computed it."""
    ran = []
    run = multiply._run_kernel
    monkeypatch.setattr(multiply, "_run_kernel", lambda *x: ran.append(run(*x)) or ran[-1])
    out = execute(ins, target=target, engine="compiled", **operands, **options)
    monkeypatch.undo()
    assert ran and ran[0] is not None, "no kernel computed that"
    return out


def by_address(function, operands, like):
    """What the machine code of a `WarpFunction` gives for each warp of a batch; `like`: registers
    of the shape of D."""
    out = np.empty_like(like)
    for t in range(len(like)):
        held = np.zeros(function.size, np.uint8)
        for name, start in function.offsets.items():
            words = operands[name][t]
            words = np.ascontiguousarray(words.T if words.ndim == 2 else words)
            held[start : start + words.nbytes] = words.reshape(-1).view(np.uint8)
        d = np.full(function.result_size, 0xA5, np.uint8)
        assert function.compute(held.ctypes.data, d.ctypes.data) == 0
        out[t] = d.view(like.dtype).reshape(like[t].T.shape).T
    return out
