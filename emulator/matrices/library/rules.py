"""Rules of a library for all sizes: instructions of main loops, and epilogues.

Sources. "measured": recordings of PyTorch 2.11 (cuBLAS 13.1) on an H200, tests/golden. Elsewhere
the order is that of an H200 and the arithmetic that of the generation, which nobody compared with
its library: "modelled".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from emulator.errors import UnsupportedError
from emulator.isa.kinds import is_tensor
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.matrices.operands import as_matrix_instruction
from emulator.targets import Target


@dataclass(frozen=True)
class Rule:
    """The instructions that multiply operands of some types and sum along k."""

    #: types of A and of B, and what tells rows with the same types apart
    a: str
    b: str
    variant: str = ""
    #: instructions of main loops: the first that a target has is taken. None: a chain of fused
    #: multiply-adds in the type of A
    opcodes: tuple[str, ...] = ()
    #: the type that operands are rounded to first, to nearest even
    operands_as: str = ""
    #: k after which a partial sum is added to an f32 total, on the generations on which cuBLAS
    #: does it (its manual on CUBLASLT_MATMUL_DESC_FAST_ACCUM)
    k_promote: int = 0
    promoting: str = "ada hopper"
    #: generations that recordings were made on
    measured: str = "hopper"

    def instruction(self, target: Target, k: int = 0) -> MatrixInstruction | None:
        """The instruction of the main loop on a target; None for fused multiply-adds.

        `k`: one with that k, 0: any. Raises UnsupportedError where the target has none of the
        row's.
        """
        return _first_of(self, target.name, k) if self.opcodes else None

    def runs_on(self, target: Target) -> bool:
        """True if a target has an instruction for the row."""
        try:
            self.instruction(target)
        except UnsupportedError:
            return False
        return True

    def promotion(self, target: Target) -> int | None:
        """The ``k_promote=`` of `gemm`."""
        promotes = target.generation in self.promoting.split()
        return (self.k_promote or None) if promotes else None


@lru_cache(maxsize=256)
def _first_of(rule: Rule, target: str, k: int) -> MatrixInstruction:
    for opcode in rule.opcodes:
        descriptor = None
        if is_tensor(opcode):
            kind = opcode.rpartition("::")[2]
            a, b = (rule.operands_as or x for x in (rule.a, rule.b))
            descriptor = InstructionDescriptor(kind=kind, a=a, b=b, d="f32", m=128, n=256)
        found = as_matrix_instruction(opcode, descriptor)
        if target in found.targets and k in (0, found.k):
            return found
    raise UnsupportedError(f"{target} has no instruction that a library multiplies {rule.a} with")


def _wgmma(k: int, types: str) -> str:
    return f"wgmma.mma_async.sync.aligned.m64n8k{k}.f32.{types}"


def _tcgen05(kind: str) -> str:
    return f"tcgen05.mma.cta_group::1.kind::{kind}"


def _mma(shape: str, types: str) -> str:
    a_b = types if types.count(".") else f"{types}.{types}"
    return f"mma.sync.aligned.{shape}.row.col.f32.{a_b}.f32"


def _fp8(a: str, b: str, variant: str, k_promote: int) -> Rule:
    types = f"{a}.{b}"
    opcodes = (_wgmma(32, types), _tcgen05("f8f6f4"), _mma("m16n8k32", types))
    return Rule(a, b, variant, opcodes, k_promote=k_promote)


_PAIRS = (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))

RULES: tuple[Rule, ...] = (
    Rule(
        "f16", "f16",
        opcodes=(_wgmma(16, "f16.f16"), _tcgen05("f16"), _mma("m16n8k16", "f16"),
                 _mma("m16n8k8", "f16"), "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"),
    ),
    Rule(
        "bf16", "bf16",
        opcodes=(_wgmma(16, "bf16.bf16"), _tcgen05("f16"), _mma("m16n8k16", "bf16"),
                 _mma("m16n8k8", "bf16")),
    ),
    Rule(
        "f32", "f32", "tf32", operands_as="tf32",
        opcodes=(_wgmma(8, "tf32.tf32"), _tcgen05("tf32"), _mma("m16n8k8", "tf32")),
    ),
    Rule("f32", "f32"),
    Rule("f64", "f64"),
    *(_fp8(*pair, "fast", 0) for pair in _PAIRS),
    *(_fp8(*pair, "", 128) for pair in _PAIRS),
    Rule("s8", "s8", opcodes=("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32",
                              "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32")),
)  # fmt: skip


def find_rule(a: str, b: str, variant: str = "") -> Rule | None:
    """The row for operands of these types; None where there is none."""
    for rule in RULES:
        if (rule.a, rule.b, rule.variant) == (a, b, variant):
            return rule
    return None


# --- orders along k -------------------------------------------------------------------------------


Addend = Literal["sum", "rounded", "first"]
Sums = Literal["in turn", "by halves", "by fours"]


class Order(NamedTuple):
    """The order in which a kernel walks along k; by default one chain."""

    #: elements of k of each part: a chain from zero each. 0: one part
    part: int = 0
    #: parts that take tiles of k in turn: of three parts the second has tiles 1, 4, 7, …
    shares: int = 1
    #: elements of k of a tile. Of a kernel without shares: the first tile of a part is the short
    #: one where the part is no multiple, 0: the last
    tile: int = 0
    #: the sums of parts are rounded to the type of the result before they are added
    narrow: bool = False
    #: k of the instruction, 0: of the rule's first
    k: int = 0
    #: fused multiply-adds of f32, whatever instruction the rule has
    fma: bool = False
    #: how C gets in: "sum": added to the accumulators, which are rounded once; "rounded": added to
    #: the rounded product; "first": C is rounded first, and the sum after every part
    addend: Addend = "sum"
    #: how the sums of parts are added: one after the other; the upper half of them to the lower
    #: half, until one is left, as threads of a warp do; or every fourth one, then the four sums
    sums: Sums = "in turn"
    #: the order inside each part, None: one chain
    within: Order | None = None
    #: with fused multiply-adds: every product is rounded before it is added, so that none is fused
    rounded: bool = False

    def __str__(self) -> str:
        words = ["one chain"]
        if self.part:
            words = [f"parts of {self.part}"]
        elif self.shares > 1:
            words = [f"{self.shares} parts that take tiles of {self.tile} in turn"]
        if self.within is not None:
            words[0] += f" ({self.within})"
        if self.narrow:
            words.append("rounded before they are added")
        if self.sums != "in turn":
            words.append(f"added {self.sums}")
        if self.tile and self.shares == 1:
            words.append(f"the first tile of {self.tile} is the short one")
        if self.rounded:
            words.append("with rounded products")
        if self.addend != "sum":
            words.append(_ADDENDS[self.addend])
        return ", ".join(words)


_ADDENDS = {
    "rounded": "the product is rounded before the addend is added",
    "first": "the addend is the first summand, and every sum is rounded",
}


def order_of(fields: Any) -> Order:
    """An order as a table has it: its fields, of which those at the end may be left out."""
    order = Order(*fields)
    return order._replace(within=order_of(order.within)) if order.within else order


#: (operation, type of the result) whose addend is added to a rounded product, as a rule
_ROUNDED = {(x, y) for x in ("addmm", "baddbmm") for y in ("f16", "bf16")}
#: operands whose products are the same in any order
EXACT = frozenset({"s8"})


def usual_order(operation: str, result: str, *, has_bias: bool = False) -> Order:
    """The order that most sizes of an operation have; `has_bias`: C is one row, of `linear`."""
    rounded = (operation, result) in _ROUNDED and not has_bias
    return Order(addend="rounded") if rounded else Order()
