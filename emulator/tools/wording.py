"""The steps of an instruction in words, and targets in short."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from dtypes import FORMATS, Format
from emulator.arith.steps import ROUNDED
from emulator.errors import runs
from emulator.isa.conversion import Conversion, split_type
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.movement import PACKED, ROW_BYTES, Movement
from emulator.isa.recipe import Recipe
from emulator.isa.wmma import WmmaMultiply, WmmaTransfer
from emulator.targets import TARGETS, Target, find_target


def short_targets(names: Sequence[str]) -> str:
    """Targets in few characters.

    ``sm_80+`` is sm_80 and all later ones, ``sm_100a/f+`` all later ones with a suffix, and
    ``sm_80 to sm_89`` these two and all between them.
    """
    since = min(find_target(name).number for name in names)
    later = {name for name, target in TARGETS.items() if target.number >= since}
    if set(names) == later:
        return f"sm_{since}+"
    if set(names) == {name for name in later if TARGETS[name].specific}:
        return f"sm_{since}a/f+"
    places = [place for place, name in enumerate(TARGETS) if name in names]
    parts = []
    # Places less their rank are the same along a stretch without gaps.
    for _, same in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        stretch = [list(TARGETS)[place] for _, place in same]
        parts += stretch if len(stretch) < 4 else [f"{stretch[0]} to {stretch[-1]}"]
    return ", ".join(parts)


def steps(ins: Instruction, target: str | Target | Recipe) -> list[str]:
    """The steps of the instruction on `target`, or by a recipe, one line per step; [] for
    kinds without a description."""
    if isinstance(ins, MatrixInstruction | WmmaMultiply):
        arithmetic = ins.arithmetic(target)
        k = ins.stored_k if isinstance(ins, MatrixInstruction) else ins.k
        return [step.sentence(arithmetic, k) for step in arithmetic.steps]
    if isinstance(ins, WmmaTransfer):
        return [_transferred(ins)]
    if isinstance(ins, Movement):
        return _moved(ins)
    return _converted(ins) if isinstance(ins, Conversion) else []


# --- wmma.load, wmma.store, ldmatrix, stmatrix, movmatrix -----------------------------------------


def _transferred(ins: WmmaTransfer) -> str:
    line = "row" if ins.layout == "row" else "column"
    does = "read from" if ins.verb == "load" else "written to"
    return (
        f"every {line} of matrix {ins.matrix}, {ins.default_stride} elements, is {does} memory at "
        f"multiples of {ins.alignment} bytes, the next one stride (in elements) further"
    )


def _moved(ins: Movement) -> list[str]:
    if "lanes" in ins.effects:
        return ["a register of a holds neighbours of one row, a register of d of one column"]
    tile = ins.form.rows
    which = f"row i % {tile} of tile i // {tile}" if ins.count > 1 else "row i"
    out = [
        f"lanes {runs(range(ins.rows))} address one row each, {ROW_BYTES} bytes at a multiple of "
        f"{ROW_BYTES}: lane i has the address of {which}"
    ]
    operand = "d" if "reads" in ins.effects else "r"
    line = "column" if ins.trans else "row"
    held = f"a register of {operand} holds neighbours of one {line} of a tile"
    if "writes" in ins.effects:
        return [*out, f"{held}; the lanes write the tiles to the rows"]
    if ins.source:
        bits, signed = PACKED[ins.source]
        out.append(
            f"the first {2 * bits} bytes of a row are 16 elements of {bits} bits, each extended "
            f"{'by its sign' if signed else 'with zeros'} to 8; the last {ROW_BYTES - 2 * bits} "
            "bytes are padding"
        )
    return [*out, f"the lanes read the tiles; {held}"]


# --- cvt ------------------------------------------------------------------------------------------


def _converted(ins: Conversion) -> list[str]:
    out = ["numbers with the sign bit set become +0"] if ins.relu else []
    source, to = (FORMATS[split_type(x)[0]] for x in (ins.source, ins.to))
    scaled = []
    if ins.scaled:
        which = "one for both elements" if "::n1" in ins.scaled else "the low byte for the low one"
        how = "divided" if source.bits > to.bits else "multiplied"
        scaled = [f"every element is {how} by a scale of ue8m0, {which}"]
    out += [*scaled, _rounded(ins)] if source.bits > to.bits else [_rounded(ins), *scaled]
    out += ["a result of -0 becomes +0"] if ins.pzo else []
    if ins.sources > 1:
        given = ins.operands[1 : 1 + ins.sources]
        out.append(f"d holds, from its highest bits down: {', '.join(given)}")
    elif split_type(ins.to)[1] > 1:
        out.append("d holds the elements in the places that they have in a")
    return out


def _rounded(ins: Conversion) -> str:
    source, to = (FORMATS[split_type(x)[0]] for x in (ins.source, ins.to))
    if source.fraction_bits or (to.precision >= source.precision and not to.fraction_bits):
        return f"every element is converted to {to.name}, exactly; {_nan(to)}"
    how = {
        **ROUNDED,
        "rna": "to nearest, ties away from zero",
        "rs": "toward zero after the random bits were added below its last kept bit",
    }[ins.rounding]
    text = f"every element is rounded to {to.name}, {how}"
    if not to.signed:
        text = f"the magnitude of e{text[1:]}"
    if ins.satfinite:
        text += "; infinities and numbers too large become the largest finite one"
    elif to.infinity is None:
        text += "; infinities and numbers too large become NaN"
    else:
        largest = "the largest finite one" if ins.rounding == "rz" else "infinity"
        text += f"; numbers too large become {largest}"
    if ins.rounding == "rna":
        less = " and one unit of the last kept one" if ins.satfinite else ""
        return f"{text}; a NaN loses its low bits{less}, and may end as no NaN"
    return f"{text}; {_nan(to)}"


def _nan(fmt: Format) -> str:
    if fmt.nan is None:
        return "a NaN becomes the largest number, for want of a NaN"
    return f"a NaN becomes {fmt.nan:#x}"
