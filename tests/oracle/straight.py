"""Kernels around a few statements: each thread loads three words, runs them and stores a result."""

import numpy as np
from words import array_of, boundary_words, random_words

from emulator import Module
from emulator.arith.scalar import TYPES

#: type -> the declared type of registers that hold it
REGISTERS = {"f32": "f32", "f64": "f64", 16: "b16", 32: "b32", 64: "b64"}
THREADS = 128

_KERNEL = """.version 8.8
.target {target}
.address_size 64
{before}
.visible .entry kernel(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)
{{
.reg .{held} a, b, c, d, t, u, v; .reg .f32 f<8>; .reg .pred p, q;
.reg .b32 i, n; .reg .b64 r<4>, at;
mov.u32 i, %tid.x; mov.u32 n, %ctaid.x; mad.lo.u32 i, n, {threads}, i;
mul.wide.u32 at, i, {size};
ld.param.u64 r0, [pa]; add.u64 r0, r0, at; ld.global.b{bits} a, [r0];
ld.param.u64 r1, [pb]; add.u64 r1, r1, at; ld.global.b{bits} b, [r1];
ld.param.u64 r2, [pc]; add.u64 r2, r2, at; ld.global.b{bits} c, [r2];
mov.b{bits} d, a;
{body}
ld.param.u64 r3, [pd]; add.u64 r3, r3, at; st.global.b{bits} [r3], d;
ret;
}}
"""


def kernel(type_, body, target="sm_90a", before=""):
    """A kernel that computes d from a, b and c of a type; t, u, v are free, and other registers."""
    bits = TYPES[type_].size
    held = REGISTERS.get(type_) or REGISTERS[bits]
    text = _KERNEL.format(
        target=target, before=before, held=held, bits=bits, size=bits // 8, threads=THREADS,
        body=body,
    )  # fmt: skip
    return Module(text)["kernel"]


def run(type_, body, sources, contract="ptxas", target="sm_90a", before=""):
    """Words of d for arrays of words of a, b, c."""
    count = -(-len(sources[0]) // THREADS) * THREADS
    padded = [np.resize(words, count) for words in sources]
    out = np.zeros_like(padded[0])
    kernel(type_, body, target, before).launch(
        count // THREADS, THREADS, [*padded, out], contract=contract
    )
    return out[: len(sources[0])]


def cases(type_, seed=0, most=800):
    """Words of a, b, c: boundaries with each other, random ones, and sums that nearly cancel."""
    rng = np.random.default_rng(seed)
    edges = boundary_words(type_)
    columns = [rng.choice(np.array(edges, dtype=object), most) for _ in range(3)]
    columns = [[*column, *random_words(type_, most, rng)] for column in columns]
    a, b, c = (array_of(type_, column) for column in columns)
    near = _products(type_, a, b) ^ TYPES[type_].dtype.type(sum(
        TYPES[type_].format.sign_mask << shift
        for shift in range(0, TYPES[type_].size, TYPES[type_].bits)
    ))  # fmt: skip
    return tuple(np.concatenate(pair) for pair in ((a, a), (b, b), (c, near)))


def _products(type_, a, b):
    from emulator import Instruction
    from emulator.arith.scalar import bind_vector

    return bind_vector(Instruction.parse(f"mul.{type_}"))(a, b)
