"""The instructions that Triton compiles ``tl.dot`` to, as a table.

Read off the PTX that Triton 3.9.0 writes for compute capabilities 75, 80, 89, 90, 100 and 120, all
operand types, tile shapes and warp counts (a compiler needs no GPU). On an H200 kernels of every
Hopper row, compiled by Triton 3.6.0, gave the bits that `dots` computes from these rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from emulator.errors import UnsupportedError
from emulator.isa.instruction import Instruction
from emulator.isa.kinds import is_tensor
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import Target


@dataclass(frozen=True)
class DotCall:
    """One ``tl.dot`` as the compiler sees it; types have PTX's names."""

    a: str
    b: str
    #: type of the accumulator and of the result
    d: str
    #: of the tile, without a batch axis
    m: int
    n: int
    k: int
    batched: bool = False
    num_warps: int = 4
    #: tf32, tf32x3 or ieee; matters for f32 operands
    precision: str = "tf32"
    #: Triton's max_num_imprecise_acc; matters for fp8 on Hopper
    imprecise: int = 0

    def __str__(self) -> str:
        how = f", input_precision={self.precision!r}" if self.a == "f32" else ""
        return (
            f"tl.dot of {self.a} × {self.b} into {self.d}, {self.m}×{self.n}×{self.k}, "
            f"num_warps={self.num_warps}{how}"
        )


@dataclass(frozen=True)
class Lowering:
    """One row: the first that fits a call says how it is computed."""

    generations: str
    #: types of A, and B likewise; f32 operands are tf32 here unless input_precision is ieee
    a: str
    #: opcode with {a}, {b}, {d} and, for wgmma, {n}; "" is a chain of FMAs, None is not available
    opcode: str | None
    #: operands are converted to this type first, exactly. A register of four fp8 becomes two
    #: of f16, and one instruction takes the first of each lane's two, the next one the second
    widen: str = ""
    #: types of the accumulator; "" is any
    d: str = ""
    #: the tile is a multiple of this many rows and columns; larger than (1, 1): no batch
    tile: tuple[int, int] = (1, 1)
    #: (multiple of, at most) of num_warps
    warps: tuple[int, int] = (1, 1 << 30)
    #: least max_num_imprecise_acc for an f32 accumulator
    imprecise: int = 0

    def fits(self, call: DotCall, generation: str) -> bool:
        step, most = self.warps
        return (
            generation in self.generations.split()
            and {call.a, call.b} <= set(self.a.split())
            and call.d in (self.d or call.d).split()
            and call.m % self.tile[0] == 0
            and call.n % self.tile[1] == 0
            and not (call.batched and self.tile > (1, 1))
            and call.num_warps % step == 0
            and call.num_warps <= most
            and (call.d != "f32" or call.imprecise >= self.imprecise)
        )


_FP8 = "e4m3 e5m2"
_FROM_AMPERE = "ampere ada hopper blackwell rtx_blackwell"
_WARPGROUP = {"tile": (64, 8), "warps": (4, 1 << 30)}
_TENSOR_MEMORY = {"tile": (64, 8), "warps": (4, 8)}


def _wgmma(a: str, k: int, imprecise: int = 0) -> Lowering:
    opcode = f"wgmma.mma_async.sync.aligned.m64n{{n}}k{k}.{{d}}.{{a}}.{{b}}"
    return Lowering("hopper", a, opcode, imprecise=imprecise, **_WARPGROUP)  # type: ignore[arg-type]


def _tcgen05(a: str, kind: str) -> Lowering:
    opcode = f"tcgen05.mma.cta_group::1.kind::{kind}"
    return Lowering("blackwell", a, opcode, **_TENSOR_MEMORY)  # type: ignore[arg-type]


def _mma(generations: str, a: str, shape: str, widen: str = "", modifier: str = "") -> Lowering:
    opcode = f"mma.sync.aligned.{shape}.row.col{modifier}.{{d}}.{{a}}.{{b}}.{{d}}"
    return Lowering(generations, a, opcode, widen)


LOWERINGS: tuple[Lowering, ...] = (
    _wgmma("f16", 16), _wgmma("bf16", 16), _wgmma("tf32", 8), _wgmma("s8", 32),
    # below 32 Triton takes f16 mma.sync, which adds in full precision
    _wgmma(_FP8, 32, imprecise=32),
    _tcgen05("f16 bf16 tf32", "{kind}"), _tcgen05(_FP8, "f8f6f4"),
    # Whether its descriptor saturates nobody here has read.
    Lowering("blackwell", "s8", None, **_TENSOR_MEMORY),  # type: ignore[arg-type]
    _mma(_FROM_AMPERE, "f16", "m16n8k16"), _mma(_FROM_AMPERE, "bf16", "m16n8k16"),
    _mma(_FROM_AMPERE, "tf32", "m16n8k8"),
    _mma(_FROM_AMPERE, "s8", "m16n8k32", modifier=".satfinite"),
    # On Ada and sm_120 Triton writes the chain of FMAs that this instruction is.
    _mma(_FROM_AMPERE, "f64", "m8n8k4"),
    _mma("ada rtx_blackwell", _FP8, "m16n8k32"),
    _mma("hopper blackwell", _FP8, "m16n8k16", widen="f16"),
    _mma("ampere", "e5m2", "m16n8k16", widen="f16"),
    Lowering("turing", "f16", "", d="f32"), Lowering("turing", "bf16", "", d="f32"),
    Lowering("turing", "e5m2", "", d="f32"), Lowering("turing", "f64", "", d="f64"),
    Lowering(f"turing {_FROM_AMPERE}", "f32", "", d="f32"),
)  # fmt: skip

#: what max_num_imprecise_acc=None means for fp8; 0 elsewhere
DEFAULT_IMPRECISE = {"hopper": 1 << 30}

#: dot_scaled: (generation, types of A and of B, type of the scales, elements per scale) -> opcode
SCALED: tuple[tuple[str, str, str, int, str], ...] = (
    ("rtx_blackwell", _FP8, "ue8m0", 32,
     "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"),
    ("rtx_blackwell", "e2m1", "ue8m0", 32,
     "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X"),
    ("rtx_blackwell", "e2m1", "ue4m3", 16,
     "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"),
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The computation of a call: by `instruction`, or by a chain of FMAs where that is None."""

    instruction: MatrixInstruction | None
    #: type that the operands are converted to first
    widen: str = ""
    #: of each run of this many k, the first half goes to one instruction and the second to the
    #: next, as many k as two instructions have at a time; 0: k ascends
    interleave: int = 0
    #: k after which a partial sum is added with an ordinary f32 addition; 0: never
    partial_k: int = 0


def plan_dot(call: DotCall, target: Target) -> Plan:
    """What Triton makes of `call` on `target`; raises UnsupportedError where it refuses it, or
    takes an instruction that this package does not have."""
    wanted = call
    if call.a == "f32" and call.precision != "ieee":
        wanted = replace(call, a="tf32", b="tf32")
    for row in LOWERINGS:
        # Before Ampere there is no tf32: Triton computes the dot with FMAs then.
        if row.fits(wanted, target.generation) or (
            row.opcode == "" and call.precision == "tf32" and row.fits(call, target.generation)
        ):
            return _plan(row, wanted, target)
    _refuse(call, target)


def _plan(row: Lowering, call: DotCall, target: Target) -> Plan:
    if row.opcode is None:
        raise UnsupportedError(
            f"Triton compiles this {call} for {target} to tcgen05.mma, which is not chosen here; "
            "to compute it by another instruction, name one with instruction="
        )
    if not row.opcode:
        return Plan(None)
    if is_tensor(row.opcode):
        return Plan(_described(row.opcode, call))
    a, b = row.widen or call.a, row.widen or call.b
    # Every N of wgmma computes the same; integers have not every multiple of 8.
    n = call.n if call.n in (8, 16, 32, 64, 128, 256) else 8
    found = Instruction.parse(row.opcode.format(a=a, b=b, d=call.d, n=n))
    assert isinstance(found, MatrixInstruction)
    counts = row.imprecise and call.d == "f32" and call.imprecise <= call.k
    partial = -(-call.imprecise // found.k) * found.k if counts else 0
    return Plan(found, row.widen, 4 if row.widen else 0, partial)


def _described(opcode: str, call: DotCall) -> MatrixInstruction:
    """The tcgen05.mma of a call; every M and N computes the same."""
    from emulator.isa.tensor_matrix import settle
    from emulator.layout.instruction_descriptor import InstructionDescriptor

    found = opcode.format(kind="tf32" if call.a == "tf32" else "f16")
    kind, n = (
        found.rpartition("::")[2],
        next(x for x in (256, 128, 64, 32, 16, 8) if not call.n % x),
    )
    return settle(
        found, InstructionDescriptor(kind, call.a, call.b, call.d, call.m % 128 or 128, n)
    )


def _refuse(call: DotCall, target: Target) -> NoReturn:
    types = dict.fromkeys(
        t
        for row in LOWERINGS
        if target.generation in row.generations.split()
        for t in row.a.split()
    )
    raise UnsupportedError(
        f"Triton does not compile this {call} for {target}; "
        f"operands there are {', '.join(types) or 'none: it starts at sm_75'}"
    )


def plan_scaled(a: str, b: str, scale: str, per_scale: int, target: Target) -> MatrixInstruction:
    """The block-scaled instruction of a ``tl.dot_scaled``; UnsupportedError where Triton scales the
    operands itself instead."""
    for generation, types, scale_type, elements, opcode in SCALED:
        if (
            generation == target.generation
            and {a, b} <= set(types.split())
            and (scale, per_scale) == (scale_type, elements)
        ):
            found = Instruction.parse(f"{opcode}.f32.{a}.{b}.f32.{scale}")
            assert isinstance(found, MatrixInstruction)
            return found
    known = ", ".join(f"{types} with {s} per {n}" for _, types, s, n, _ in SCALED)
    raise UnsupportedError(
        f"tl.dot_scaled of {a} × {b} with {scale} per {per_scale} elements is no block-scaled "
        f"mma.sync on {target}: Triton converts and scales the operands there, or takes tcgen05; "
        f"supported on sm_120a and its kin: {known}"
    )
