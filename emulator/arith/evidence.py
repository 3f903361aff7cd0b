"""How sure we are of each recipe: which recordings of which hardware it was compared with.

A row says: on this generation, so many results of these instructions were compared bit by bit, and
none differed. A test adds them up from the files in tests/golden. What has no row is modelled, and
its recipe names the source. Integers and bits need no recording: their arithmetic is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Level = Literal["exact", "validated", "modelled"]


class Fidelity(NamedTuple):
    """exact: integers, provable · validated: equal to recordings of that generation · modelled:
    from published models or from another generation, without a recording."""

    level: Level
    #: where the claim comes from, with the number of results compared
    detail: str

    def __str__(self) -> str:
        return f"{self.level}: {self.detail}"


@dataclass(frozen=True)
class Evidence:
    """`results` of the hardware that ours equal."""

    generation: str
    family: str
    a: str
    d: str
    results: int
    source: str
    #: shapes compared; "" where every shape of the family was
    shapes: str = ""


# tests/golden/compared/h200.json: every instruction of sm_90a, all N, run beside the emulator. The
# recordings of tests/golden/h200_* are further evidence that the counts leave out.
_H200 = "result registers compared on an H200"
# tests/golden/compared/h200_wmma.json: elements of D in memory, after wmma.load, mma and store
_H200_WMMA = "results compared on an H200"
_DOTS = "dots recorded by Khattak and Mikaitis, finite operands, on"

EVIDENCE: tuple[Evidence, ...] = (
    Evidence("hopper", "mma", "f16 bf16 tf32", "f32", 1_351_680, _H200),
    Evidence("hopper", "mma", "f16", "f16", 307_200, _H200),
    Evidence("hopper", "mma", "e4m3 e5m2", "f32", 491_520, _H200),
    Evidence("hopper", "mma", "e4m3 e5m2", "f16", 245_760, _H200),
    Evidence("hopper", "mma", "f64", "f64", 860_160, _H200),
    Evidence("hopper", "mma.sp", "f16 bf16 tf32", "f32", 2_949_120, _H200),
    Evidence("hopper", "mma.sp", "f16", "f16", 491_520, _H200),
    Evidence("hopper", "mma.sp", "e4m3 e5m2", "f32", 655_360, _H200),
    Evidence("hopper", "wgmma", "f16 bf16 tf32", "f32", 97_320_960, _H200),
    Evidence("hopper", "wgmma", "f16", "f16", 16_220_160, _H200),
    Evidence("hopper", "wgmma", "e4m3 e5m2", "f32", 129_761_280, _H200),
    Evidence("hopper", "wgmma", "e4m3 e5m2", "f16", 64_880_640, _H200),
    Evidence("hopper", "wgmma.sp", "f16 bf16 tf32", "f32", 259_522_560, _H200),
    Evidence("hopper", "wgmma.sp", "f16", "f16", 43_253_760, _H200),
    Evidence("hopper", "wgmma.sp", "e4m3 e5m2", "f32", 173_015_040, _H200),
    Evidence("hopper", "wgmma.sp", "e4m3 e5m2", "f16", 86_507_520, _H200),
    Evidence("hopper", "wmma", "f16 bf16 tf32", "f32", 9_830_400, _H200_WMMA),
    Evidence("hopper", "wmma", "f16", "f16", 5_898_240, _H200_WMMA),
    Evidence("hopper", "wmma", "f64", "f64", 983_040, _H200_WMMA),
    Evidence("volta", "mma", "f16", "f32 f16", 10_000, f"{_DOTS} a V100", "m8n8k4"),
    Evidence("ampere", "mma", "f16", "f32 f16", 20_000, f"{_DOTS} an A100 and an A2", "m16n8k8"),
    Evidence("ampere", "mma", "bf16", "f32", 10_000, f"{_DOTS} an A100 and an A2", "m16n8k8"),
    Evidence("ampere", "mma", "tf32", "f32", 10_000, f"{_DOTS} an A100 and an A2", "m16n8k4"),
    # The arrays of the L40S are byte for byte those of the other Ada card: counted once.
    Evidence("ada", "mma", "f16", "f32 f16", 10_000, f"{_DOTS} an Ada card", "m16n8k8"),
    Evidence("ada", "mma", "bf16", "f32", 5_000, f"{_DOTS} an Ada card", "m16n8k8"),
    Evidence("ada", "mma", "tf32", "f32", 5_000, f"{_DOTS} an Ada card", "m16n8k4"),
    Evidence("ada", "mma", "e4m3 e5m2", "f32 f16", 20_000, f"{_DOTS} an Ada card", "m16n8k32"),
    Evidence("blackwell", "mma", "f16", "f32 f16", 10_000, f"{_DOTS} a B200", "m16n8k16"),
    Evidence("blackwell", "mma", "bf16", "f32", 5_000, f"{_DOTS} a B200", "m16n8k16"),
    Evidence("blackwell", "mma", "tf32", "f32", 5_000, f"{_DOTS} a B200", "m16n8k4"),
    Evidence("blackwell", "mma", "e4m3 e5m2", "f32 f16", 20_000, f"{_DOTS} a B200", "m16n8k32"),
)


def find_fidelity(
    generation: str, family: str, shape: str, a: str, d: str, source: str
) -> Fidelity:
    """The fidelity of an instruction on a generation; `source` is that of its recipe."""
    if d == "s32":
        return Fidelity("exact", "integer arithmetic")
    for row in EVIDENCE:
        if (
            row.generation == generation
            and family == row.family
            and a in row.a.split()
            and d in row.d.split()
            and (not row.shapes or shape in row.shapes.split())
        ):
            return Fidelity("validated", f"{row.results:,} {row.source}")
    return Fidelity("modelled", source)


# --- ordinary instructions ------------------------------------------------------------------------

#: rules that only rearrange bits or compute with integers
_EXACT = ("integer", "carry", "bits", "fields", "lanes", "video")
#: rule of `emulator.arith.scalar` -> results in tests/golden/scalar that an H200 returned and ours
#: equal; a test adds them up
SCALAR_RESULTS: dict[str, int] = {
    "approximate.cos": 320,
    "approximate.div": 640,
    "approximate.ex2": 481,
    "approximate.ex2_half": 640,
    "approximate.lg2": 452,
    "approximate.rcp": 647,
    "approximate.rcp64": 160,
    "approximate.rsqrt": 599,
    "approximate.rsqrt64": 320,
    "approximate.sin": 437,
    "approximate.sqrt": 724,
    "approximate.tanh": 261,
    "approximate.tanh_half": 640,
    "atomic.update": 8_269,
    "comparison.absolute": 400,
    "comparison.copysign": 108,
    "comparison.maximum": 1_268,
    "comparison.minimum": 1_188,
    "comparison.neg": 360,
    "comparison.selp": 360,
    "comparison.set_": 14_880,
    "comparison.setp": 31_680,
    "comparison.slct": 1_080,
    "comparison.testp": 480,
    "conversion.float_to_integer": 6_320,
    "conversion.float_to_integral": 1_280,
    "conversion.floats": 3_160,
    "conversion.integer_to_float": 7_560,
    "conversion.integers": 3_520,
    "conversion.mov": 618,
    "conversion.move": 320,
    "conversion.pack": 80,
    "conversion.pack_onto": 240,
    "floating.add": 1_684,
    "fused.fma": 1_370,
    "floating.mul": 1_776,
    "floating.sub": 1_684,
    "quotients.div": 468,
    "quotients.rcp": 400,
    "quotients.sqrt": 440,
}


def scalar_fidelity(generation: str, rule: str) -> Fidelity:
    """The fidelity of an ordinary instruction's rule on a generation; "" has no arithmetic."""
    module = rule.partition(".")[0]
    if not rule or (module in _EXACT and rule != "lanes.redux_float"):
        return Fidelity("exact", "integer arithmetic" if rule else "it moves bits or none")
    count = SCALAR_RESULTS.get(rule, 0)
    if count and generation == "hopper":
        return Fidelity("validated", f"{count:,} results recorded on an H200")
    if count:
        return Fidelity("modelled", "IEEE 754 with the special cases of an H200, or its tables")
    return Fidelity("modelled", "the manual, with the special cases of like instructions")
