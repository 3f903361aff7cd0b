"""``compare``: the same operands on several targets or instructions, and why results differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, codes_from_array
from emulator.arrays import accepts_tensors, as_array, several
from emulator.errors import OperandError, UnsupportedError, listing, whole
from emulator.isa.instruction import Instruction, opcode_of
from emulator.isa.kinds import is_tensor_product
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.recipe import Recipe
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.matrices.gemm import gemm
from emulator.targets import Target, find_target
from emulator.tools.explanations.cause import Aspect, Dot, find_cause, parting
from emulator.tools.explanations.feeds import Asked, Given, computed, from_matrices
from emulator.tools.explanations.heat import bit_heights, heat_map
from emulator.tools.explanations.numbers import ShownCode, plural, ulp
from emulator.tools.operands import Multiplication, as_multiplication
from emulator.tools.report import Block, Document, Section, Table, in_width
from emulator.tools.wording import short_targets

Targets = str | Target | Recipe | Sequence[str | Target | Recipe] | None


@dataclass(frozen=True, repr=False)
class Comparison(Document):
    """Results of the same operands side by side; see `Report` for its forms.

    The page has a map of each pair of results: which elements differ, and up to which bit.
    """

    #: title of each map, and the number of low bits in which the elements differ
    maps: tuple[tuple[str, Array], ...] = ()

    def _body(self) -> str:
        maps = (heat_map(heights, title) for title, heights in self.maps)
        return "\n".join([super()._body(), *(f"<p>{x}</p>" for x in maps)])

    @property
    def differs(self) -> bool:
        """Whether any two results differ in any bit."""
        return len(self.data["results"]) > 1


class _Run(NamedTuple):
    ins: Multiplication
    target: Target | Recipe

    @property
    def is_available(self) -> bool:
        return isinstance(self.target, Recipe) or self.target.name in self.ins.targets


class _Result(NamedTuple):
    """The codes of D, and all runs that give them."""

    name: str
    runs: list[_Run]
    codes: Array

    def element(self, fmt: Format, place: tuple[int, int]) -> ShownCode:
        return ShownCode(fmt, int(self.codes[place]))


class _Operands(NamedTuple):
    """A, B, C as they were given, and scale_a, scale_b, nibbles."""

    matrices: Given
    codes: bool
    more: dict[str, object]


class _Pair(NamedTuple):
    """Two results, the elements (row, col) in which they differ, and why the first one does."""

    p: _Result
    q: _Result
    where: Array
    parting: list[str]
    why: list[Aspect]

    @property
    def first(self) -> tuple[int, int]:
        return int(self.where[0][0]), int(self.where[0][1])


@accepts_tensors()
def compare(
    instructions: Instruction | str | Sequence[Instruction | str],
    a: object,
    b: object,
    c: object = None,
    *,
    targets: Targets = None,
    idesc: InstructionDescriptor | int | None = None,
    codes: bool = False,
    scale_a: object = None,
    scale_b: object = None,
    nibbles: object = None,
    limit: int = 12,
) -> Comparison:
    """Computes D = A·B + C by every instruction on every target, and says where and why they part.

    Instructions may be opcodes; `idesc` goes with each tcgen05.mma. Operands are as `mma` takes
    them, one matrix each. An instruction of another shape (dense, without scales) computes them as
    `gemm` does, step by step over k.
    `targets`: None for all that any of the instructions has; a target that lacks an instruction is
    listed as not available; a `Recipe` may stand among them. `limit` is how many elements are
    shown.

    Raises OperandError for operands that do not fit and instructions of different types,
    UnsupportedError where no target has any of the instructions.
    """
    chosen = _instructions(instructions, idesc)
    limit = whole("limit=", limit)
    there, missing, aliases = _runs(chosen, targets)
    more = {"scale_a": scale_a, "scale_b": scale_b, "nibbles": nibbles}
    given = _Operands((a, b, c), codes, more)
    results = _results(there, given)
    fmt = FORMATS[chosen[0].d_type]
    pairs = [_pair(p, q, given) for p, q in combinations(results, 2)]
    title = f"{' and '.join(map(str, chosen))}: the same operands on "
    title += f"{len(there)} target{'s' if len(there) > 1 else ''}"
    if len(chosen) > 1 or any(isinstance(x.target, Recipe) for x in there):
        title = f"The same operands, {len(there)} ways: {', '.join(map(str, chosen))}"
    stacked = np.stack([x.codes for x in results])
    differing = (stacked != stacked[0]).any(0)
    sections = [
        Section("Results", _summary(results, missing, len(chosen) > 1, aliases)),
        _elements(results, differing, fmt, limit),
        *(_pair_section(pair, fmt) for pair in pairs),
    ]
    maps = tuple(
        (f"D of {x.p.name} and {x.q.name}", bit_heights(x.p.codes, x.q.codes)) for x in pairs
    )
    data = _data(chosen, results, missing, pairs, differing, fmt)
    return Comparison(title, sections, data, maps)


# --- what runs ------------------------------------------------------------------------------------


def _instructions(
    given: Instruction | str | Iterable[Instruction | str],
    idesc: InstructionDescriptor | int | None,
) -> list[Multiplication]:
    chosen = [
        as_multiplication(ins, idesc if is_tensor_product(opcode_of(ins)) else None)
        for ins in several(given)
    ]
    if not chosen:
        raise OperandError("compare takes an instruction or several; got none")
    types = [".".join((x.d_type, x.a_type, x.b_type, x.c_type)) for x in chosen]
    for ins, own in zip(chosen, types, strict=True):
        if own != types[0]:
            raise OperandError(
                f"compare takes instructions with the same types of D, A, B and C: {chosen[0]} has "
                f"{types[0]}, {ins} has {own}"
            )
    return chosen


def _runs(
    chosen: Sequence[Multiplication], targets: Targets
) -> tuple[list[_Run], list[_Run], list[str]]:
    """Splits targets into runs and unavailable ones, with notes on several names of one target."""
    names: dict[Target | Recipe, list[str]] = {}
    every = [name for ins in chosen for name in ins.targets]
    for x in every if targets is None else several(targets):
        if isinstance(x, Recipe):
            names.setdefault(x, []).append(x.name)
        else:
            names.setdefault(find_target(x), []).append(str(x).strip())
    if not names:
        raise OperandError("targets= names none; such as sm_80, sm_90a, B200")
    pairs = [_Run(ins, target) for ins in chosen for target in names]
    there = [x for x in pairs if x.is_available]
    if not there:
        raise UnsupportedError(
            f"none of {listing(x.name for x in names)} has {chosen[0]}; its targets "
            f"are {', '.join(chosen[0].targets)}"
        )
    absent = [] if targets is None else [x for x in pairs if x not in there]
    aliases = [
        f"{' and '.join(dict.fromkeys(own))} are one target, {target.name}"
        for target, own in names.items()
        if len(set(own)) > 1
    ]
    return there, absent, aliases


def _results(places: Sequence[_Run], given: _Operands) -> list[_Result]:
    """Runs with the same bits together; targets with the same recipe are computed once."""
    known: dict[tuple[object, ...], Array] = {}
    results: list[_Result] = []
    for run in places:
        key = (run.ins, run.ins.arithmetic(run.target))
        if key not in known:
            known[key] = _codes(run, given)
        codes = known[key]
        for result in results:
            if result.codes.shape != codes.shape:
                raise OperandError(
                    f"D is {result.codes.shape} by one instruction and {codes.shape} by {run.ins}"
                )
            if np.array_equal(result.codes, codes):
                result.runs.append(run)
                break
        else:
            results.append(_Result(f"R{len(results) + 1}", [run], codes))
    return results


def _codes(run: _Run, given: _Operands) -> Array:
    if _fits(run.ins, given):
        out, _ = computed(run.ins, given.matrices, run.target, given.codes, given.more)
    else:
        d = gemm(*given.matrices, instruction=run.ins, target=run.target, codes=given.codes)
        out = d if given.codes else codes_from_array(FORMATS[run.ins.d_type], d)
    if out.ndim != 2:
        raise OperandError(
            f"compare takes one matrix A, B and C each; they have batch axes {out.shape[:-2]}"
        )
    return out


def _fits(ins: Multiplication, given: _Operands) -> bool:
    """Whether the matrices are those of one instruction, or can only be."""
    if not isinstance(ins, MatrixInstruction) or ins.is_sparse or ins.is_block_scaled:
        return True
    shapes = [as_array(x, name).shape[-2:] for name, x in zip("AB", given.matrices, strict=False)]
    fits = shapes == [(ins.m, ins.k), (ins.k, ins.n)]
    return fits or ins.c_type != ins.d_type or any(x is not None for x in given.more.values())


# --- pairs ----------------------------------------------------------------------------------------


def _pair(p: _Result, q: _Result, given: _Operands) -> _Pair:
    where = np.argwhere(p.codes != q.codes)
    first, second = (_dot(x, given, int(where[0][0]), int(where[0][1])) for x in (p, q))
    return _Pair(p, q, where, parting(first, second), find_cause(first, second))


def _dot(result: _Result, given: _Operands, row: int, col: int) -> Dot:
    ins, target = result.runs[0]
    arithmetic = ins.arithmetic(target)
    if _fits(ins, given):
        asked = Asked(row, col, target)
        feed = from_matrices(ins, given.matrices, asked, given.codes, **given.more)
        a, b, u, v = (
            tuple(x.code.code for x in y) for y in (feed.a, feed.b, feed.scale_a, feed.scale_b)
        )
        position = "stored k" if feed.metadata else "k"
        return Dot(result.name, arithmetic, a, b, feed.c.code.code, len(a), u, v, position)

    def line(matrix: object, fmt: Format, place: Any) -> tuple[int, ...]:
        array = np.asarray(matrix)
        array = array if given.codes else codes_from_array(fmt, array)
        return tuple(int(x) for x in array[place])

    whole_a, whole_b, whole_c = given.matrices
    a = line(whole_a, arithmetic.a, np.s_[row, :])
    b = line(whole_b, arithmetic.b, np.s_[:, col])
    if isinstance(ins, MatrixInstruction) and any(ins.negated):
        masks = [
            fmt.sign_mask if on else 0
            for fmt, on in zip((arithmetic.a, arithmetic.b), ins.negated, strict=True)
        ]
        a, b = (tuple(x ^ mask for x in y) for y, mask in zip((a, b), masks, strict=True))
    c = 0 if whole_c is None else line(whole_c, arithmetic.c, np.s_[row, [col]])[0]
    return Dot(result.name, arithmetic, a, b, c, ins.k)


def _largest_ulps(pair: _Pair, fmt: Format) -> Fraction | None:
    """The largest distance of two finite elements, in units in the last place."""
    found = []
    for place in pair.where:
        x, y = (r.element(fmt, tuple(place)).value for r in (pair.p, pair.q))
        if x is not None and y is not None and fmt.is_float:
            found.append(abs(x - y) / ulp(fmt, x, y))
    return max(found, default=None)


# --- what is shown --------------------------------------------------------------------------------


def _summary(
    results: Sequence[_Result], missing: Sequence[_Run], with_names: bool, aliases: Sequence[str]
) -> list[Block]:
    rows = []
    for x in results:
        levels = dict.fromkeys(ins.fidelity(target).level for ins, target in x.runs)
        rows.append([x.name, _runs_text(x.runs, with_names), ", ".join(levels)])
    # Names of instructions are too long for columns.
    blocks: list[Block] = [f"{name} ({sure}): {of}" for name, of, sure in rows]
    if not with_names:
        blocks = [Table(["result", "of", "how sure"], rows)]
    if len(results) == 1:
        size = results[0].codes.size
        blocks.append(f"All {size} elements of D are the same, bit for bit.")
    blocks += aliases
    return blocks + ([f"Not available: {_runs_text(missing, with_names)}"] if missing else [])


def _runs_text(several: Sequence[_Run], with_names: bool) -> str:
    by_instruction: dict[str, list[Target | Recipe]] = {}
    for ins, target in several:
        by_instruction.setdefault(str(ins), []).append(target)
    return "; ".join(
        (f"{name} on " if with_names else "") + _targets_text(targets)
        for name, targets in by_instruction.items()
    )


def _targets_text(several: Sequence[Target | Recipe]) -> str:
    names = [x.name for x in several if not isinstance(x, Recipe)]
    own = [x.name for x in several if isinstance(x, Recipe)]
    return ", ".join(([short_targets(names)] if names else []) + own)


def _elements(results: Sequence[_Result], differing: Array, fmt: Format, limit: int) -> Section:
    count = int(differing.sum())
    places = np.argwhere(differing if count else np.ones_like(differing))
    title = f"Elements that differ: {count} of {differing.size}" if count else "Elements"
    rows = [
        [f"D[{row}][{col}]", *(x.element(fmt, (row, col)).both() for x in results)]
        for row, col in places[:limit]
    ]
    blocks: list[Block] = list(in_width(["element", *(x.name for x in results)], rows))
    if len(places) > limit:
        blocks.append(f"… and {len(places) - limit} more")
    return Section(title, blocks)


def _pair_section(pair: _Pair, fmt: Format) -> Section:
    count, size, (row, col) = len(pair.where), pair.p.codes.size, pair.first
    codes = [x.element(fmt, pair.first) for x in (pair.p, pair.q)]
    ulps = _largest_ulps(pair, fmt)
    farthest = "" if ulps is None else f", by up to {plural(ulps, 'ulp')}"
    blocks: list[Block] = [
        f"{count} of {size} elements differ{farthest}; first D[{row}][{col}]: "
        f"{codes[0].both(True)} and {codes[1].both(True)}",
        *pair.parting,
        *(f"why, {aspect.name}: {aspect.words}" for aspect in pair.why),
    ]
    if all(x.value is None for x in codes):
        blocks.append("both are infinities or NaNs")
    if len(pair.why) > 1:
        blocks.append("only together these make the difference")
    return Section(f"{pair.p.name} and {pair.q.name}", blocks)


def _data(
    chosen: Sequence[Multiplication],
    results: Sequence[_Result],
    missing: Sequence[_Run],
    pairs: Sequence[_Pair],
    differing: Array,
    fmt: Format,
) -> dict[str, object]:
    def runs_data(several: Sequence[_Run]) -> list[dict[str, str]]:
        return [{"opcode": str(ins), "target": target.name} for ins, target in several]

    return {
        "opcodes": [str(ins) for ins in chosen], "type": fmt.name,
        "elements": int(results[0].codes.size),
        "results": [{"name": x.name, "of": runs_data(x.runs)} for x in results],
        "not_available": runs_data(missing),
        "differing": [
            {"row": row, "col": col,
             "results": {x.name: x.element(fmt, (row, col)).data for x in results}}
            for row, col in np.argwhere(differing).tolist()
        ],
        "pairs": [
            {
                "results": [pair.p.name, pair.q.name], "differing": len(pair.where),
                "first": {
                    "row": pair.first[0], "col": pair.first[1],
                    "codes": [x.element(fmt, pair.first).hex for x in (pair.p, pair.q)],
                },
                "parting": pair.parting,
                "why": [{"aspect": x.name, "words": x.words} for x in pair.why],
            }
            for pair in pairs
        ],
    }  # fmt: skip
