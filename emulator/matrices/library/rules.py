"""What a library computes whatever the sizes are: instructions of main loops, and epilogues.

Sources. "measured": recordings of PyTorch 2.11 (cuBLAS 13.1) on an H200, tests/golden. Elsewhere
the order is that of an H200 and the arithmetic that of the generation, which nobody compared with
its library: "modelled".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from emulator.errors import UnsupportedError
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import Target


@dataclass(frozen=True)
class Rule:
    """How operands of some types are multiplied and summed along k."""

    #: types of A and of B, and what tells rows with the same types apart
    a: str
    b: str
    variant: str = ""
    #: instructions of main loops: the first that a target has is taken. None: a chain of fused
    #: multiply-adds in the type of A
    opcodes: tuple[str, ...] = ()
    #: the type that operands are rounded to first, to nearest even
    operands_as: str = ""
    #: k after which a partial sum is added to an f32 total
    k_promote: int = 0
    #: generations that recordings were made on
    measured: str = "hopper"

    def instruction(self, target: Target) -> MatrixInstruction | None:
        """The instruction of the main loop on a target; None for fused multiply-adds.

        Raises UnsupportedError where the target has none of the row's.
        """
        return _first_of(self.opcodes, target.name) if self.opcodes else None


@lru_cache(maxsize=256)
def _first_of(opcodes: tuple[str, ...], target: str) -> MatrixInstruction:
    for opcode in opcodes:
        found = Instruction.parse(opcode)
        if target in found.targets and isinstance(found, MatrixInstruction):
            return found
    raise UnsupportedError(f"{target} has no instruction for {opcodes[-1]}")


def _wgmma(k: int, types: str) -> str:
    return f"wgmma.mma_async.sync.aligned.m64n8k{k}.f32.{types}"


def _mma(shape: str, types: str) -> str:
    a_b = types if types.count(".") else f"{types}.{types}"
    return f"mma.sync.aligned.{shape}.row.col.f32.{a_b}.f32"


def _fp8(a: str, b: str, variant: str, k_promote: int) -> Rule:
    types = f"{a}.{b}"
    opcodes = (_wgmma(32, types), _mma("m16n8k32", types))
    return Rule(a, b, variant, opcodes, k_promote=k_promote)


_PAIRS = (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))

RULES: tuple[Rule, ...] = (
    Rule(
        "f16", "f16",
        opcodes=(_wgmma(16, "f16.f16"), _mma("m16n8k16", "f16"), _mma("m16n8k8", "f16"),
                 "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"),
    ),
    Rule("bf16", "bf16", opcodes=(_wgmma(16, "bf16.bf16"), _mma("m16n8k16", "bf16"))),
    Rule(
        "f32", "f32", "tf32", operands_as="tf32",
        opcodes=(_wgmma(8, "tf32.tf32"), _mma("m16n8k8", "tf32")),
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


# --- what happens to a product at the end ---------------------------------------------------------

Addend = Literal["", "row", "matrix"]


@dataclass(frozen=True)
class Epilogue:
    """What an operation does with the accumulators, with one rounding to the result's type."""

    operation: str
    #: types of the result, empty: all
    results: str
    #: the addend is rounded on its own: the product is rounded to the result's type, and the sum
    #: is rounded again
    two_roundings: bool = False


EPILOGUES: tuple[Epilogue, ...] = (
    Epilogue("addmm", ""),
    Epilogue("baddbmm", "f16 bf16", two_roundings=True),
    Epilogue("baddbmm", ""),
)


def find_epilogue(operation: str, result: str) -> Epilogue:
    """The row for an operation and the type of its result; one rounding where there is none."""
    for row in EPILOGUES:
        if row.operation == operation and (not row.results or result in row.results.split()):
            return row
    return Epilogue(operation, result)
