"""``compare``: the same operands on several targets or instructions, and why results differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, codes_from_array
from emulator.arrays import accepts_tensors
from emulator.errors import OperandError, UnsupportedError
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.matrices.gemm import gemm
from emulator.targets import Target, find_target
from emulator.tools.explanations.cause import Dot, find_cause, parting
from emulator.tools.explanations.data import code_data
from emulator.tools.explanations.exact import (
    both_text,
    code_text,
    exact_value,
    plural,
    power_of_two,
    ulp_exponent,
)
from emulator.tools.explanations.feeds import Multiply, computed, from_matrices, multiplying
from emulator.tools.report import Block, Report, Section, Table, in_width
from emulator.tools.wording import short_targets


class Comparison(Report):
    """Results of the same operands side by side; see `Report` for its forms."""

    @property
    def differs(self) -> bool:
        """Whether any two results differ in any bit."""
        return len(self.data["results"]) > 1


class _Run(NamedTuple):
    ins: Multiply
    target: Target


class _Result(NamedTuple):
    """The codes of D, and all runs that give them."""

    name: str
    runs: list[_Run]
    codes: Array


class _Operands(NamedTuple):
    a: Any
    b: Any
    c: Any
    codes: bool
    more: dict[str, Any]


@accepts_tensors()
def compare(
    instructions: Instruction | str | Sequence[Instruction | str],
    a: Any,
    b: Any,
    c: Any = None,
    *,
    targets: str | Target | Sequence[str | Target] | None = None,
    codes: bool = False,
    scale_a: Any = None,
    scale_b: Any = None,
    nibbles: Any = None,
    limit: int = 12,
) -> Comparison:
    """Computes D = A·B + C by every instruction on every target, and says where and why they part.

    Instructions may be opcodes. Operands are as `mma` takes them, one matrix each. An instruction
    of another shape (dense, without scales) computes them as `gemm` does, step by step over k.
    `targets`: None for all that any of the instructions has; a target that lacks an instruction is
    listed as not available. `limit` is the number of elements shown.

    Raises OperandError for operands that do not fit and instructions of different types,
    UnsupportedError where no target has any of the instructions.
    """
    chosen = _instructions(instructions)
    if not isinstance(limit, int) or limit < 0:
        raise OperandError(f"limit is a number of elements, 0 or more; got {limit!r:.80}")
    places, missing = _runs(chosen, targets)
    given = _Operands(a, b, c, codes, {"scale_a": scale_a, "scale_b": scale_b, "nibbles": nibbles})
    results = _results(places, given)
    fmt = FORMATS[chosen[0].d_type]
    pairs = [_Pair(p, q, np.argwhere(p.codes != q.codes)) for p, q in combinations(results, 2)]
    causes = [_cause(pair, given) for pair in pairs]
    title = f"{' and '.join(map(str, chosen))}: the same operands on "
    title += f"{len(places)} target{'s' if len(places) > 1 else ''}"
    if len(chosen) > 1:
        title = f"The same operands, {len(places)} ways: {', '.join(map(str, chosen))}"
    sections = [
        Section("Results", _summary(results, missing, len(chosen) > 1, _aliases(targets))),
        Section(*_elements(results, fmt, limit)),
        *(_pair_section(pair, cause, fmt) for pair, cause in zip(pairs, causes, strict=True)),
    ]
    data = _data(chosen, results, missing, pairs, causes, fmt)
    return Comparison(title, sections, data)


# --- what runs ------------------------------------------------------------------------------------


def _instructions(given: Instruction | str | Sequence[Instruction | str]) -> list[Multiply]:
    several = [given] if isinstance(given, (Instruction, str)) else list(given)
    if not several:
        raise OperandError("compare takes an instruction or several; got none")
    chosen = [multiplying(ins) for ins in several]
    types = [(x.d_type, x.a_type, x.b_type, x.c_type) for x in chosen]
    for ins, own in zip(chosen, types, strict=True):
        if own != types[0]:
            raise OperandError(
                f"compare takes instructions with the same types of D, A, B and C: {chosen[0]} has "
                f"{'.'.join(types[0])}, {ins} has {'.'.join(own)}"
            )
    return chosen


def _runs(
    chosen: Sequence[Multiply], targets: str | Target | Sequence[str | Target] | None
) -> tuple[list[_Run], list[_Run]]:
    if targets is None:
        names = {name: None for ins in chosen for name in ins.targets}
        wanted = [find_target(name) for name in names]
    else:
        several = [targets] if isinstance(targets, (str, Target)) else list(targets)
        wanted = list(dict.fromkeys(find_target(x) for x in several))
        if not wanted:
            raise OperandError("targets= names none; such as sm_80, sm_90a, B200")
    pairs = [_Run(ins, target) for ins in chosen for target in wanted]
    there = [x for x in pairs if x.target.name in x.ins.targets]
    if not there:
        raise UnsupportedError(
            f"none of {', '.join(map(str, wanted))} has {chosen[0]}; its targets "
            f"are {', '.join(chosen[0].targets)}"
        )
    absent = [] if targets is None else [x for x in pairs if x.target.name not in x.ins.targets]
    return there, absent


def _aliases(targets: str | Target | Sequence[str | Target] | None) -> list[str]:
    """What to say of several names of one target."""
    names: dict[Target, list[str]] = {}
    for x in [] if targets is None or isinstance(targets, (str, Target)) else targets:
        names.setdefault(find_target(x), []).append(str(x).strip())
    return [
        f"{' and '.join(dict.fromkeys(several))} are one target, {target}"
        for target, several in names.items()
        if len(set(several)) > 1
    ]


def _results(places: Sequence[_Run], given: _Operands) -> list[_Result]:
    """Runs with the same bits together; targets with the same recipe are computed once."""
    known: dict[Any, Array] = {}
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
        out, _ = computed(
            run.ins, (given.a, given.b, given.c), run.target, given.codes, **given.more
        )
    else:
        d = gemm(
            given.a, given.b, given.c, instruction=run.ins, target=run.target, codes=given.codes
        )
        out = d if given.codes else codes_from_array(FORMATS[run.ins.d_type], d)
    if out.ndim != 2:
        raise OperandError(
            f"compare takes one matrix A, B and C each; they have batch axes {out.shape[:-2]}"
        )
    return out


def _fits(ins: Multiply, given: _Operands) -> bool:
    """Whether the matrices are those of one instruction, or can only be."""
    if not isinstance(ins, MatrixInstruction) or ins.is_sparse or ins.is_block_scaled:
        return True
    shapes = (np.shape(given.a)[-2:], np.shape(given.b)[-2:])
    fits = shapes == ((ins.m, ins.k), (ins.k, ins.n))
    return fits or ins.c_type != ins.d_type or any(x is not None for x in given.more.values())


# --- pairs ----------------------------------------------------------------------------------------


class _Pair(NamedTuple):
    """Two results, and the elements (row, col) in which they differ."""

    p: _Result
    q: _Result
    where: Array


class _Cause(NamedTuple):
    row: int
    col: int
    parting: list[str]
    #: (name of the difference, the difference in words)
    why: list[tuple[str, str]]


def _cause(pair: _Pair, given: _Operands) -> _Cause:
    row, col = (int(i) for i in pair.where[0])
    p, q = (_dot(x, given, row, col) for x in (pair.p, pair.q))
    why = [(x.name, x.words) for x in find_cause(p, q)]
    return _Cause(row, col, parting(p, q), why)


def _dot(result: _Result, given: _Operands, row: int, col: int) -> Dot:
    ins, target = result.runs[0]
    arithmetic = ins.arithmetic(target)
    if _fits(ins, given):
        feed = from_matrices(
            ins, given.a, given.b, given.c, row=row, col=col, target=target, codes=given.codes,
            **given.more,
        )  # fmt: skip
        a, b, u, v = (
            tuple(x.code for x in y) for y in (feed.a, feed.b, feed.scale_a, feed.scale_b)
        )
        position = "stored k" if feed.metadata else "k"
        return Dot(result.name, arithmetic, a, b, feed.c.code, len(a), u, v, position)
    codes = [
        _line(x, fmt, given.codes, place)
        for x, fmt, place in (
            (given.a, arithmetic.a, np.s_[row, :]),
            (given.b, arithmetic.b, np.s_[:, col]),
        )
    ]
    c = 0 if given.c is None else _line(given.c, arithmetic.c, given.codes, np.s_[row, [col]])[0]
    return Dot(result.name, arithmetic, codes[0], codes[1], c, ins.k)


def _line(matrix: Any, fmt: Format, codes: bool, place: Any) -> tuple[int, ...]:
    array = np.asarray(matrix)
    array = array if codes else codes_from_array(fmt, array)
    return tuple(int(x) for x in array[place])


# --- what is shown --------------------------------------------------------------------------------


def _summary(
    results: Sequence[_Result], missing: Sequence[_Run], with_names: bool, aliases: Sequence[str]
) -> list[Block]:
    size = results[0].codes.size
    rows = [[x.name, _runs_text(x.runs, with_names), _fidelities(x.runs)] for x in results]
    # Names of instructions are too long for columns.
    blocks: list[Block] = [f"{name} ({sure}): {of}" for name, of, sure in rows]
    if not with_names:
        blocks = [Table(["result", "of", "how sure"], rows)]
    if len(results) == 1:
        blocks.append(f"All {size} elements of D are the same, bit for bit.")
    blocks += aliases
    if missing:
        blocks.append(f"Not available: {_runs_text(missing, with_names)}")
    return blocks


def _runs_text(several: Sequence[_Run], with_names: bool) -> str:
    by_instruction: dict[str, list[str]] = {}
    for ins, target in several:
        by_instruction.setdefault(str(ins), []).append(target.name)
    parts = [
        (f"{name} on " if with_names else "") + short_targets(targets)
        for name, targets in by_instruction.items()
    ]
    return "; ".join(parts)


def _fidelities(several: Sequence[_Run]) -> str:
    return ", ".join(dict.fromkeys(ins.fidelity(target).level for ins, target in several))


def _elements(results: Sequence[_Result], fmt: Format, limit: int) -> tuple[str, list[Block]]:
    stacked = np.stack([x.codes for x in results])
    differing = (stacked != stacked[0]).any(0)
    count = int(differing.sum())
    places = np.argwhere(differing if count else np.ones_like(differing))
    title = f"Elements that differ: {count} of {differing.size}" if count else "Elements"
    shown = [(int(row), int(col)) for row, col in places[:limit]]
    header = ["element", *(x.name for x in results)]
    rows = [
        [f"D[{row}][{col}]", *(both_text(fmt, int(x.codes[row, col])) for x in results)]
        for row, col in shown
    ]
    blocks: list[Block] = list(in_width(header, rows))
    if len(places) > len(shown):
        blocks.append(f"… and {len(places) - len(shown)} more")
    return title, blocks


def _pair_section(pair: _Pair, cause: _Cause, fmt: Format) -> Section:
    count, size = len(pair.where), pair.p.codes.size
    codes = [int(x.codes[cause.row, cause.col]) for x in (pair.p, pair.q)]
    blocks: list[Block] = [
        f"{count} of {size} elements differ{_farthest(pair, fmt)}; first D[{cause.row}]"
        f"[{cause.col}]: {both_text(fmt, codes[0], True)} and {both_text(fmt, codes[1], True)}",
        *cause.parting,
        *(f"why, {name}: {words}" for name, words in cause.why),
    ]
    if all(exact_value(fmt, code) is None for code in codes):
        blocks.append("both are infinities or NaNs")
    if len(cause.why) > 1:
        blocks.append("only together these make the difference")
    return Section(f"{pair.p.name} and {pair.q.name}", blocks)


def _farthest(pair: _Pair, fmt: Format) -> str:
    ulps = _largest_ulps(pair, fmt)
    return "" if ulps is None else f", by up to {plural(ulps, 'ulp')}"


def _largest_ulps(pair: _Pair, fmt: Format) -> Any:
    """The largest distance of two finite elements, in units in the last place."""
    found = []
    for row, col in pair.where:
        x, y = (exact_value(fmt, int(r.codes[row, col])) for r in (pair.p, pair.q))
        if x is not None and y is not None and fmt.is_float:
            unit = power_of_two(ulp_exponent(fmt, max(abs(x), abs(y))))
            found.append(abs(x - y) / unit)
    return max(found, default=None)


def _data(
    chosen: Sequence[Multiply],
    results: Sequence[_Result],
    missing: Sequence[_Run],
    pairs: Sequence[_Pair],
    causes: Sequence[_Cause],
    fmt: Format,
) -> dict[str, Any]:
    def runs_data(several: Sequence[_Run]) -> list[dict[str, str]]:
        return [{"opcode": str(ins), "target": target.name} for ins, target in several]

    def at(row: int, col: int) -> dict[str, Any]:
        codes = {x.name: code_data(fmt, int(x.codes[row, col])) for x in results}
        return {"row": row, "col": col, "results": codes}

    stacked = np.stack([x.codes for x in results])
    where = np.argwhere((stacked != stacked[0]).any(0))
    return {
        "opcodes": [str(ins) for ins in chosen], "type": fmt.name,
        "elements": int(results[0].codes.size),
        "results": [{"name": x.name, "of": runs_data(x.runs)} for x in results],
        "not_available": runs_data(missing),
        "differing": [at(int(row), int(col)) for row, col in where],
        "pairs": [
            {
                "results": [pair.p.name, pair.q.name], "differing": len(pair.where),
                "first": {
                    "row": cause.row, "col": cause.col,
                    "codes": [
                        code_text(fmt, int(x.codes[cause.row, cause.col]))
                        for x in (pair.p, pair.q)
                    ],
                },
                "parting": cause.parting,
                "why": [{"aspect": name, "words": words} for name, words in cause.why],
            }
            for pair, cause in zip(pairs, causes, strict=True)
        ],
    }  # fmt: skip
