"""Evidence for each instruction on each generation; the only place that states it.

Evidence goes by form. recorded_forms.txt beside this file lists, for each generation, the forms
whose results were compared with hardware bit by bit, and how many; none differed. A form that is
not in the list is at most "modelled". "validated" says more than equal: a change of any constant of
the recipe would have shown. Constants that the recordings leave open are in `OPEN`; they are from
the source that the recipe names, and the instruction is "modelled" then, however many results
agree. Tests derive the list from the files in tests/golden, and change every constant to see which
recordings notice.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
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


class Recorded(NamedTuple):
    """Number of results of a form on a generation that were recorded or compared; none differed."""

    results: int
    #: the kind of the results, and the GPU
    source: str


#: constants of recipes, by their names in `steps`, that the recordings of some forms would not show
#: a change of, though other operands would: (generations, types of the forms, constants)
OPEN: tuple[tuple[str, str, str], ...] = (
    ("volta ampere ada blackwell", "f16.f16.f16.f16", "fraction_bits floor"),
    ("ampere ada blackwell", "f32.bf16.bf16.f32 f32.tf32.tf32.f32", "floor"),
    ("blackwell", "f32.e4m3.e4m3.f32 f32.e5m2.e5m2.f32",
     "to fraction_bits rounding precision run passes"),
    ("blackwell", "f16.e4m3.e4m3.f16 f16.e5m2.e5m2.f16", "to fraction_bits"),
)  # fmt: skip

#: the constants that OPEN names, in words
CONSTANTS = {
    "to": "the format of the factors",
    "fraction_bits": "fraction bits",
    "floor": "the exponent floor",
    "rounding": "rounding",
    "precision": "significant bits",
    "run": "the order of k",
    "passes": "the number of sums",
}

#: exact without a recording: (families, types of D, why); no types: all
EXACT: tuple[tuple[str, str, str], ...] = (
    ("mma mma.sp wgmma wgmma.sp wmma tcgen05.mma tcgen05.mma.sp", "s32", "integer arithmetic"),
    ("wmma.load wmma.store", "", "moves elements; PTX leaves open which lane holds which"),
)

#: sources of forms without a recipe: (families, shapes, source); no shapes: all others
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
    generation: str, family: str, form: str = "", shape: str = "", d: str = "", source: str = ""
) -> Fidelity:
    """The fidelity of an instruction on a generation.

    `form` is the opcode as `str` writes it, `d` the type of its result, `source` that of its
    recipe, if it has one.
    """
    for families, types, why in EXACT:
        if family in families.split() and (not types or d in types.split()):
            return Fidelity("exact", why)
    source = source or next(
        text
        for families, shapes, text in SOURCES
        if family in families.split() and (not shapes or shape in shapes.split())
    )
    recorded = find_recorded(generation, form)
    if recorded is None:
        return Fidelity("modelled", source)
    results = f"{recorded.results:,} {recorded.source}"
    left = open_constants(generation, form)
    if not left:
        return Fidelity("validated", results)
    words = ", ".join(CONSTANTS[name] for name in left)
    return Fidelity("modelled", f"{source}; equal to {results}, which leave open: {words}")


def find_recorded(generation: str, form: str) -> Recorded | None:
    """Finds the recordings of a form; None where there are none."""
    return _recorded_forms().get((generation, form))


def open_constants(generation: str, form: str) -> tuple[str, ...]:
    """The constants of a form's recipe that its recordings do not show."""
    for generations, types, constants in OPEN:
        if generation in generations.split() and form.endswith(tuple(types.split())):
            return tuple(constants.split())
    return ()


@cache
def _recorded_forms() -> dict[tuple[str, str], Recorded]:
    """(generation, form) -> what was recorded of it."""
    found: dict[tuple[str, str], Recorded] = {}
    generation = source = ""
    text = Path(__file__).with_name("recorded_forms.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            generation, _, source = line.strip("[]").partition(": ")
        elif line and not line.startswith("#"):
            count, form = line.split()
            for n in _NS if _EVERY_N in form else ("",):
                found[generation, form.replace(_EVERY_N, str(n))] = Recorded(int(count), source)
    return found


#: the n of wgmma, of which every one was recorded, as the file has them
_EVERY_N, _NS = "{8..256}", range(8, 257, 8)


# --- ordinary instructions ------------------------------------------------------------------------

#: rules that only rearrange bits or compute with integers
_EXACT = ("integer", "carry", "bits", "fields", "lanes", "video")


def scalar_fidelity(generation: str, rule: str, form: str, samples: bool = False) -> Fidelity:
    """The fidelity of a form of an ordinary instruction on a generation; its `rule` is "" where it
    has no arithmetic, or where it `samples` textures."""
    module = rule.partition(".")[0]
    if (not rule and not samples) or (module in _EXACT and rule != "lanes.redux_float"):
        return Fidelity("exact", "integer arithmetic" if rule else "it moves bits or none")
    recorded = find_recorded(generation, form)
    if recorded is not None:
        return Fidelity("validated", f"{recorded.results:,} {recorded.source}")
    if samples:
        return Fidelity("modelled", "rules found in recordings of an H200, of this or like forms")
    if find_recorded("hopper", form) is not None:
        return Fidelity("modelled", "IEEE 754 with the special cases of an H200, or its tables")
    return Fidelity("modelled", "the manual, with the special cases of like forms; not recorded")
