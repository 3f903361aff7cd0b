"""How sure we are of each instruction on each generation; the one place that says so.

A row of EVIDENCE says: on this generation, so many results of these instructions were compared bit
by bit, and none differed. "validated" says more: a change of any constant of the recipe would have
shown. Constants that the recordings leave `open` are from the source that the recipe names, and the
instruction is "modelled" then, however many results agree. Tests add the results up from the files
in tests/golden, and change every constant to see which recordings notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Level = Literal["exact", "validated", "modelled", "your own"]


class Fidelity(NamedTuple):
    """exact: integers, and elements that are moved as they are, provable · validated: equal to
    recordings of that generation, which would show a change of any constant · modelled: from
    published models, the manual or another generation, whole or in some constants · your own: a
    recipe that a caller made."""

    level: Level
    #: where the claim comes from, with the number of results compared
    detail: str

    def __str__(self) -> str:
        return f"{self.level}: {self.detail}"


@dataclass(frozen=True)
class Evidence:
    """`results` of the hardware that ours equal; alternatives are separated by spaces."""

    generation: str
    family: str
    #: types of A and D; of cvt the source and the destination
    a: str
    d: str
    results: int
    source: str
    #: shapes compared; "" where every shape of the family was
    shapes: str = ""
    #: constants of the recipe, by their names in `steps`, that these recordings would not show
    #: a change of, though other operands would
    open: str = ""


# tests/golden/compared/h200.json: every instruction of sm_90a, all N, run beside the emulator. The
# recordings of tests/golden/h200_* are further evidence that the counts leave out.
_H200 = "result registers compared on an H200"
# tests/golden/compared/h200_wmma.json: elements of D in memory, after wmma.load, mma and store;
# tests/golden/compared/h200_cvt.json: every packing cvt
_RESULTS = "results compared on an H200"
_DOTS = "dots recorded by Khattak and Mikaitis, finite operands, on"
_AMPERE, _ADA, _B200 = (f"{_DOTS} {gpu}" for gpu in ("an A100 and an A2", "an Ada card", "a B200"))
_BITS_AND_FLOOR = "fraction_bits floor"
_LOWERED = "to fraction_bits rounding precision run passes"

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
    Evidence("hopper", "wmma", "f16 bf16 tf32", "f32", 9_830_400, _RESULTS),
    Evidence("hopper", "wmma", "f16", "f16", 5_898_240, _RESULTS),
    Evidence("hopper", "wmma", "f64", "f64", 983_040, _RESULTS),
    Evidence("hopper", "cvt", "f32", "f16x2 bf16x2 f16 bf16", 33_554_432, _RESULTS),
    Evidence("hopper", "cvt", "f32", "tf32", 6_291_456, _RESULTS),
    Evidence("hopper", "cvt", "f32", "e4m3x2 e5m2x2", 4_194_304, _RESULTS),
    Evidence("hopper", "cvt", "f16x2", "e4m3x2 e5m2x2", 1_048_576, _RESULTS),
    Evidence("hopper", "cvt", "e4m3x2 e5m2x2", "f16x2", 262_144, _RESULTS),
    # tests/golden/h200_move.json
    Evidence("hopper", "ldmatrix", "b16", "b16", 1_344, "registers recorded on an H200", "m8n8"),
    Evidence("hopper", "stmatrix", "b16", "b16", 73_728, "bytes recorded on an H200", "m8n8"),
    Evidence("hopper", "movmatrix", "b16", "b16", 96, "registers recorded on an H200", "m8n8"),
    Evidence("volta", "mma", "f16", "f32", 5_000, f"{_DOTS} a V100", "m8n8k4"),
    Evidence("volta", "mma", "f16", "f16", 5_000, f"{_DOTS} a V100", "m8n8k4", _BITS_AND_FLOOR),
    Evidence("ampere", "mma", "f16", "f32", 10_000, _AMPERE, "m16n8k8"),
    Evidence("ampere", "mma", "f16", "f16", 10_000, _AMPERE, "m16n8k8", _BITS_AND_FLOOR),
    Evidence("ampere", "mma", "bf16", "f32", 10_000, _AMPERE, "m16n8k8", "floor"),
    Evidence("ampere", "mma", "tf32", "f32", 10_000, _AMPERE, "m16n8k4", "floor"),
    # The arrays of the L40S are byte for byte those of the other Ada card: counted once.
    Evidence("ada", "mma", "f16", "f32", 5_000, _ADA, "m16n8k8"),
    Evidence("ada", "mma", "f16", "f16", 5_000, _ADA, "m16n8k8", _BITS_AND_FLOOR),
    Evidence("ada", "mma", "bf16", "f32", 5_000, _ADA, "m16n8k8", "floor"),
    Evidence("ada", "mma", "tf32", "f32", 5_000, _ADA, "m16n8k4", "floor"),
    Evidence("ada", "mma", "e4m3 e5m2", "f32 f16", 20_000, _ADA, "m16n8k32"),
    Evidence("blackwell", "mma", "f16", "f32", 5_000, _B200, "m16n8k16"),
    Evidence("blackwell", "mma", "f16", "f16", 5_000, _B200, "m16n8k16", _BITS_AND_FLOOR),
    Evidence("blackwell", "mma", "bf16", "f32", 5_000, _B200, "m16n8k16", "floor"),
    Evidence("blackwell", "mma", "tf32", "f32", 5_000, _B200, "m16n8k4", "floor"),
    Evidence("blackwell", "mma", "e4m3 e5m2", "f32", 10_000, _B200, "m16n8k32", _LOWERED),
    Evidence("blackwell", "mma", "e4m3 e5m2", "f16", 10_000, _B200, "m16n8k32", "to fraction_bits"),
)

#: the constants that `open` names, in words
CONSTANTS = {
    "to": "the format of the factors",
    "fraction_bits": "fraction bits",
    "floor": "the exponent floor",
    "rounding": "rounding",
    "precision": "significant bits",
    "run": "the order of k",
    "passes": "the number of sums",
}

#: what needs no recording: (families, types of D, why); no types: all
EXACT: tuple[tuple[str, str, str], ...] = (
    ("mma mma.sp wgmma wgmma.sp wmma tcgen05.mma tcgen05.mma.sp", "s32", "integer arithmetic"),
    ("wmma.load wmma.store", "", "moves elements; PTX leaves open which lane holds which"),
)

#: what has no recipe that could name its source: (families, shapes, source); no shapes: all others
SOURCES: tuple[tuple[str, str, str], ...] = (
    ("ldmatrix stmatrix movmatrix", "m8n8", "the manual's layout, as recorded on Hopper"),
    ("ldmatrix stmatrix", "", "CUTLASS's layouts"),
    ("cvt", "", "the manual's rules for rounding and special values"),
    ("tcgen05.mma", "", "MMA-Sim's model of a B200, CuTe's layouts and descriptors"),
    (
        "tcgen05.move",
        "",
        "CuTe's layouts of tensor memory; what CuTe leaves open, the manual's text",
    ),
    ("tcgen05", "", "the manual's rules of allocation and order"),
)


#: what cuBLAS, CUTLASS and DeepGEMM multiply with: (generation, types of A, instruction)
LIBRARIES: tuple[tuple[str, str, str], ...] = (
    ("hopper", "f16 bf16 tf32 e4m3 e5m2 s8 u8", "wgmma.mma_async"),
    ("blackwell", "f16 bf16 tf32 e4m3 e5m2 e3m2 e2m3 e2m1 s8 u8", "tcgen05.mma"),
)


def library_instruction(generation: str, family: str, a: str) -> str:
    """The instruction that libraries use on a generation instead of mma and mma.sp; "" where it is
    mma itself, or where nothing is known."""
    for own, types, name in LIBRARIES:
        if own == generation and a in types.split() and family.partition(".")[0] == "mma":
            return name
    return ""


def find_fidelity(
    generation: str, family: str, shape: str = "", a: str = "", d: str = "", source: str = ""
) -> Fidelity:
    """The fidelity of an instruction on a generation; `source` is that of its recipe, if any."""
    for families, types, why in EXACT:
        if family in families.split() and (not types or d in types.split()):
            return Fidelity("exact", why)
    source = source or next(
        text for families, shapes, text in SOURCES
        if family in families.split() and (not shapes or shape in shapes.split())
    )  # fmt: skip
    row = find_evidence(generation, family, shape, a, d)
    if row is None:
        return Fidelity("modelled", source)
    results = f"{row.results:,} {row.source}"
    if not row.open:
        return Fidelity("validated", results)
    left = ", ".join(CONSTANTS[name] for name in row.open.split())
    return Fidelity("modelled", f"{source}; equal to {results}, which leave open: {left}")


def find_evidence(generation: str, family: str, shape: str, a: str, d: str) -> Evidence | None:
    """The row of recordings that an instruction was compared with; None where there is none."""
    for row in EVIDENCE:
        if (
            (row.generation, row.family) == (generation, family)
            and a in row.a.split()
            and d in row.d.split()
            and (not row.shapes or shape in row.shapes.split())
        ):
            return row
    return None


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
