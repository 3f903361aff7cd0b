"""A kernel around one mma, and operands for it: a block is one case, a warp."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dtypes import Array, code_type, encode
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import find_target
from emulator.tools.operands import format_of, operand_shapes
from emulator.tools.testing.lane_inputs import Inputs


def kernel_of(ins: MatrixInstruction, target: str) -> str:
    """PTX of the kernel `run`, which takes the arrays of D and of the operands, ``(cases, lanes,
    registers)`` each."""
    names = "dabc"
    declared = "\n    ".join(
        f".reg .b{ins.fragment(x).word_bits} {x}<{ins.fragment(x).registers}>;" for x in names
    )
    lines = [line for name in names[1:] for line in _moves(ins, name, load=True)]
    operands = ", ".join(_list(ins, x) for x in names)
    lines += [f"{ins} {operands};", *_moves(ins, "d", load=False)]
    version = f"{ins.ptx_version[0]}.{ins.ptx_version[1]}"
    body = "\n    ".join(lines)
    return f"""\
.version {max(version, "7.0")}
.target {find_target(target)}
.address_size 64
.visible .entry run({", ".join(f".param .u64 to_{name}" for name in names)})
{{
    .reg .b32 lane, thread;
    .reg .b64 at, offset;
    {declared}
    mov.u32 lane, %tid.x;
    mov.u32 thread, %ctaid.x;
    mad.lo.u32 thread, thread, {ins.lanes}, lane;
    {body}
    ret;
}}
"""


def _moves(ins: MatrixInstruction, name: str, *, load: bool) -> Iterator[str]:
    """Loads or stores of all registers of an operand."""
    fragment = ins.fragment(name)
    size = fragment.word_bits // 8
    yield f"ld.param.u64 at, [to_{name}];"
    yield f"mul.wide.u32 offset, thread, {size * fragment.registers};"
    yield "add.u64 at, at, offset;"
    for i in range(fragment.registers):
        place, kind = f"[at+{i * size}]", f"global.b{fragment.word_bits}"
        yield f"ld.{kind} {name}{i}, {place};" if load else f"st.{kind} {place}, {name}{i};"


def _list(ins: MatrixInstruction, name: str) -> str:
    return "{" + ", ".join(f"{name}{i}" for i in range(ins.fragment(name).registers)) + "}"


def inputs_of(ins: MatrixInstruction, cases: int, seed: int) -> list[Array]:
    """Registers of D, which are zeros, and of the operands.

    Every second case has any bits; the others are numbers near 1, whose sums show how they are
    rounded.
    """
    rng = np.random.default_rng(seed)
    held = {}
    for name, shape in operand_shapes(ins).items():
        fmt, size = format_of(ins, name), (cases, *shape)
        codes = rng.integers(0, 1 << fmt.bits, size, np.uint64).astype(code_type(fmt.bits))
        if fmt.is_float:
            codes[::2] = encode(fmt, rng.standard_normal(codes[::2].shape))
        held[name] = codes
    registers = Inputs(ins, held).registers
    d = np.zeros_like(registers[2])
    return [d, *(np.ascontiguousarray(x) for x in registers)]
