"""``error_study``: how far the sums of an instruction are off, over k, targets, numbers and orders.

Operands are drawn, rounded to the element type, and multiplied as `gemm` does it; the error is the
distance to the product of the rounded operands in integers, which is exact. So it is the error of
the accumulation alone, not that of quantisation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, code_type, decode, decode_values, encode
from dtypes.codec import NumberClass
from emulator.arith.recipes import Arithmetic
from emulator.arrays import several
from emulator.errors import OperandError, UnsupportedError, hint, listing, one_of, shown, whole
from emulator.isa.instruction import Instruction, opcode_of
from emulator.isa.kinds import is_tensor_product
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.recipe import Recipe
from emulator.matrices.gemm import accumulating, gemm
from emulator.matrices.library.rules import RULES
from emulator.report import Report
from emulator.targets import TARGETS, Target, find_target
from emulator.tools.report import WIDTH, in_width, render
from emulator.tools.studies.chart import Line, line_chart
from emulator.tools.studies.exact import (
    Whole,
    as_whole,
    difference,
    magnitudes,
    product,
    ratios,
    summed,
)

if TYPE_CHECKING:
    from emulator.layout.instruction_descriptor import InstructionDescriptor

Draw = Callable[[np.random.Generator, tuple[int, int]], Array]
_Target = Target | Recipe
Targets = str | _Target | Sequence[str | _Target] | None

#: what operands are drawn from, by name
DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "positive": lambda rng, shape: rng.uniform(0, 1, shape),
    "wide": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape),
    "outliers": lambda rng, shape: (
        rng.standard_normal(shape) * np.where(rng.random(shape) < 0.01, 32, 1)
    ),
}
#: what is said of the dots of a cell: (key of the data, words)
MEASURES = {
    "rms": "root mean square of the error, by that of the exact results",
    "max_relative": "largest |error| / |exact|",
    "max_scaled": "largest |error| / sum of |a*b|",
    "bias": "mean error toward zero (negative) or away from it, by the mean |exact|",
}
_ORDER = re.compile(r"chain|reversed|promote:[1-9]\d{0,5}|(split|sliced):[1-9]\d{0,3}")
_LARGEST_K, _MOST_DOTS, _MOST_CELLS = 1 << 17, 1 << 14, 4096


@dataclass(repr=False)
class ErrorStudy(Report):
    """The errors found: `data` for each cell, tables as text, `csv()`, `svg()` and a page."""

    opcode: str
    #: what the picture and the first table show, of `MEASURES`
    measure: str
    data: dict[str, Any]

    @property
    def title(self) -> str:
        targets = list(dict.fromkeys(row["target"] for row in self.rows))
        on = f" on {targets[0]}" if len(targets) == 1 else ""
        return f"Error of {self.opcode}{on} against the exact result"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One for each target, distribution, order and k."""
        found: list[dict[str, Any]] = self.data["rows"]
        return found

    def lines(self) -> Iterator[str]:
        yield self.title
        yield self.data["about"]
        for name in dict.fromkeys([self.measure, "rms", "max_relative"]):
            yield ""
            yield f"{MEASURES[name]}:"
            for table in in_width(*self._table(name), WIDTH):
                yield from render(table.header, table.rows)
        yield from self._notes()

    def _notes(self) -> Iterator[str]:
        yield from self.data["libraries"]
        if self.data["not_available"]:
            yield f"not available on {', '.join(self.data['not_available'])}"
        if lost := sum(row["not_finite"] for row in self.rows):
            yield f"{lost} results were infinities or NaNs and are left out"

    def _series(self, name: str) -> dict[str, dict[int, float]]:
        """Line -> k -> number; only what differs names a line."""
        out: dict[str, dict[int, float]] = {}
        for row in self.rows:
            out.setdefault(self._name(row), {})[row["k"]] = row[name]
        return out

    @cached_property
    def _several(self) -> list[str]:
        keys = [key for key in ("opcode", "target", "distribution", "order") if key in self.rows[0]]
        return [key for key in keys if len({row[key] for row in self.rows}) > 1] or ["target"]

    def _name(self, row: dict[str, Any]) -> str:
        """The line of a chart, or column of a table, that a row belongs to."""
        return ", ".join(_brief(row[key]) for key in self._several)

    def _table(self, name: str) -> tuple[list[str], list[list[str]]]:
        series = self._series(name)
        ks = sorted({row["k"] for row in self.rows})
        return ["k", *series], [[str(k), *(f"{x[k]:.3g}" for x in series.values())] for k in ks]

    def table(self, style: Literal["markdown", "latex"] = "markdown") -> str:
        """The measure over k, as a table for a paper or a page, with its caption and notes: in
        Markdown a paragraph, in LaTeX comments."""
        header, rows = self._table(self.measure)
        caption = [f"{self.title}: {MEASURES[self.measure]}.", f"{self.data['about']}."]
        caption += [f"{note[0].upper()}{note[1:]}." for note in self._notes()]
        above = ["% " * (style == "latex") + line for line in caption]
        return "\n".join([*above, *([""] * (style == "markdown")), *render(header, rows, style)])

    def csv(self) -> str:
        """All cells and measures as comma-separated values, with a header."""
        header = list(self.rows[0])
        return "\n".join(
            render(header, [[str(row[x]) for x in header] for row in self.rows], "csv")
        )

    def svg(self) -> str:
        """The measure over k, both logarithmic, as an SVG file."""
        target = {self._name(row): row["target"] for row in self.rows}
        lines = [
            Line(name, sorted(points.items()), _hue(target[name]))
            for name, points in self._series(self.measure).items()
        ]
        return line_chart(lines, self.title, "k, the products of a sum", MEASURES[self.measure])

    def _body(self) -> str:
        return f"{self.svg()}\n{super()._body()}"


#: words of opcodes that say nothing of the arithmetic
_PLAIN = frozenset({"sync", "aligned", "mma_async", "row", "col", "kind::mxf8f6f4"})


def _brief(text: str) -> str:
    """An opcode without the words that all have; other names as they are."""
    return ".".join(word for word in text.split(".") if word not in _PLAIN)


def _hue(target: str) -> int | None:
    """The colour of a target, in every chart the same: that of its generation."""
    if target not in TARGETS:
        return None
    generations = list(dict.fromkeys(x.generation for x in TARGETS.values()))
    return generations.index(TARGETS[target].generation)


def _together(
    instructions: Sequence[Instruction | str],
    idesc: InstructionDescriptor | int | None,
    targets: Targets,
    options: dict[str, Any],
) -> ErrorStudy:
    """The studies of several instructions as one, each on those of the targets that have it."""
    if not instructions:
        raise OperandError("error_study takes an instruction, or several; got none")
    studies: list[ErrorStudy] = []
    missing: list[str] = []
    for each in instructions:
        own = idesc if is_tensor_product(opcode_of(each)) else None
        ins = accumulating(each, own)
        wanted = [] if targets is None else several(targets)
        names = [x.name if isinstance(x, Recipe) else find_target(x).name for x in wanted]
        here = [x for x in wanted if isinstance(x, Recipe) or find_target(x).name in ins.targets]
        if here or not names or (not studies and each is instructions[-1]):
            studies.append(error_study(each, idesc=own, targets=targets, **options))
        else:
            missing += [f"{name} ({_brief(str(ins))})" for name in names]
    for study in studies:
        missing += [f"{x} ({_brief(study.opcode)})" for x in study.data["not_available"]]
    rows = [{"opcode": study.opcode} | row for study in studies for row in study.rows]
    data = studies[0].data | {
        "opcode": ", ".join(x.opcode for x in studies),
        "not_available": missing,
        "rows": rows,
        "libraries": list(dict.fromkeys(y for x in studies for y in x.data["libraries"])),
        "about": "; ".join(dict.fromkeys(x.data["about"] for x in studies)),
    }
    opcode = ", ".join(_brief(x.opcode) for x in studies)
    return ErrorStudy(opcode, studies[0].measure, data)


def error_study(
    instruction: Instruction | str | Sequence[Instruction | str],
    *,
    idesc: InstructionDescriptor | int | None = None,
    targets: Targets = None,
    k: Sequence[int] | int = (16, 64, 256, 1024, 4096, 16384),
    distributions: str | Draw | Sequence[str | Draw] = "normal",
    orders: str | Sequence[str] = "chain",
    rows: int = 32,
    columns: int = 32,
    seed: int = 0,
    measure: str = "rms",
) -> ErrorStudy:
    """The error of ``rows * columns`` dot products of `k` numbers against the exact result.

    Several instructions share targets and numbers; each is studied on those targets that have it.
    `targets` are names, Recipes, or a sequence of both (None: each different arithmetic among the
    instruction's targets once). `distributions` are "normal", "uniform" (-1 … 1), "positive"
    (0 … 1), "wide" (normal times powers of two), "outliers" (1 % are 32 times as large), or
    functions of (NumPy generator, shape). `orders`: "chain" is one accumulator over ascending k,
    "reversed" over descending, "promote:128", "split:4" and "sliced:4" are what `gemm` does with
    ``k_promote=128``, ``split_k=4`` and that with ``order="sliced"``. `measure`, of the picture:
    "rms", "max_relative", "max_scaled" or "bias"; all are in the data.

    Of a sparse instruction, A keeps the largest of every chunk; of a block-scaled one, each block
    has the least scale that leaves no number above the largest of the type. A tcgen05.mma needs
    `idesc`, as for `gemm`.

    Operands of the shorter k are the first ones of the longest. Results that are infinities or
    NaNs are counted and left out. Raises OperandError for what cannot be, UnsupportedError for an
    instruction that has integers, for "reversed" with one that is sparse or block-scaled, and where
    no target has it.
    """
    if isinstance(instruction, (list, tuple)):
        options = {"k": k, "distributions": distributions, "orders": orders, "rows": rows,
                   "columns": columns, "seed": seed, "measure": measure}  # fmt: skip
        return _together(instruction, idesc, targets, options)
    ins = accumulating(instruction, idesc)  # type: ignore[arg-type]
    if not FORMATS[ins.d_type].is_float:
        raise UnsupportedError(f"{ins} adds integers, which is exact")
    lengths = _lengths(k)
    draws = _draws(distributions)
    ways = _orders(orders)
    if "reversed" in ways and (ins.is_sparse or ins.is_block_scaled):
        raise UnsupportedError(f"'reversed' is an order of dense sums without scales; got {ins}")
    rows, columns = (whole(x, y, 1, _MOST_DOTS) for x, y in (("rows", rows), ("columns", columns)))
    if rows * columns > _MOST_DOTS:
        raise OperandError(f"rows * columns is at most {_MOST_DOTS}; got {rows * columns}")
    seed = whole("seed", seed, 0, (1 << 64) - 1)
    one_of("measure", measure, MEASURES)
    there, missing = _targets(ins, targets)
    cells = len(there) * len(lengths) * len(draws) * len(ways)
    if cells > _MOST_CELLS:
        raise OperandError(f"a study has at most {_MOST_CELLS} cells; got {cells}")
    found: list[dict[str, Any]] = []
    for name, draw in draws.items():
        operands = _drawn(ins, draw, rows, columns, max(lengths), seed, name)
        found += _rows(ins, there, name, ways, operands, lengths)
    libraries = [text for x in there if (text := _library(ins, x))]
    about = (
        f"{rows * columns:,} dot products of {ins.a_type} and {ins.b_type} in {ins.d_type}, "
        f"seed {seed}; numbers: {', '.join(draws)}; order: {', '.join(ways)}"
    )
    data = {
        "opcode": str(ins), "about": about, "seed": seed, "dots": rows * columns,
        "not_available": missing, "libraries": libraries, "rows": found,
    }  # fmt: skip
    return ErrorStudy(str(ins), measure, data)


def _library(ins: MatrixInstruction, target: _Target) -> str:
    """Which instruction libraries multiply these types with on a target, where that is another."""
    rules = [x for x in RULES if ins.a_type in (x.a, x.operands_as) and x.opcodes]
    if isinstance(target, Recipe) or not rules or not rules[0].runs_on(target):
        return ""
    used = rules[0].instruction(target)
    if used is None or used.arithmetic(target) == ins.arithmetic(target):
        return ""
    return f"libraries multiply {ins.a_type} on {target.name} with {used}"


# --- what is asked for ----------------------------------------------------------------------------


def _lengths(k: Sequence[int] | int) -> list[int]:
    lengths = [whole("k", x, 1, _LARGEST_K) for x in several(k)]
    if not lengths:
        raise OperandError("k names no length; such as (256, 4096)")
    return sorted(set(lengths))


def _draws(given: str | Draw | Sequence[str | Draw]) -> dict[str, Draw]:
    out: dict[str, Draw] = {}
    for x in several(given):
        if callable(x):
            out[str(getattr(x, "__name__", type(x).__name__))[:40]] = x
        else:
            name = one_of("a distribution", x, DISTRIBUTIONS)
            out[name] = DISTRIBUTIONS[name]
    if not out:
        raise OperandError(f"distributions names none of {', '.join(DISTRIBUTIONS)}")
    return out


def _orders(given: str | Sequence[str]) -> list[str]:
    out = []
    for x in several(given):
        if not isinstance(x, str) or not _ORDER.fullmatch(x):
            legal = ("chain", "reversed", "promote:128", "split:4", "sliced:4")
            near = hint(x, legal) if isinstance(x, str) else ""
            raise OperandError(f"an order is {', '.join(legal)} or such; got {shown(x)}{near}")
        out.append(x)
    if not out:
        raise OperandError("orders names none; such as 'chain'")
    return list(dict.fromkeys(out))


def _targets(ins: MatrixInstruction, given: Targets) -> tuple[list[_Target], list[str]]:
    """The targets that have the instruction, and names of those that lack it."""
    if given is None:
        first: dict[Arithmetic, _Target] = {}
        for name in ins.targets:
            first.setdefault(ins.arithmetic(name), find_target(name))
        return list(first.values()), []
    wanted = {x if isinstance(x, Recipe) else find_target(x): None for x in several(given)}
    there = [x for x in wanted if isinstance(x, Recipe) or x.name in ins.targets]
    if not there:
        names = listing([x.name for x in wanted]) or "no target"
        raise UnsupportedError(f"{ins} is not on {names}; its targets are {listing(ins.targets)}")
    if len({x.name for x in there}) < len(there):
        raise OperandError(
            "two recipes have the same name; recipe.changed(name=…) tells them apart"
        )
    return there, [x.name for x in wanted if x not in there]


def _drawn(
    ins: MatrixInstruction, draw: Draw, rows: int, columns: int, k: int, seed: int, name: str
) -> tuple[Array, Array]:
    """Numbers of A ``(rows, k)`` and B ``(k, columns)``, not rounded yet."""
    rng = np.random.default_rng(seed)
    out = []
    for shape in ((rows, k), (k, columns)):
        values = np.asarray(draw(rng, shape))
        if values.shape != shape or values.dtype.kind not in "fiu":
            raise OperandError(
                f"the distribution {name} must give numbers {shape}; got {values.dtype} "
                f"{values.shape}"
            )
        out.append(values.astype(np.float64))
    return out[0], out[1]


# --- one cell -------------------------------------------------------------------------------------


def _rows(
    ins: MatrixInstruction,
    targets: Sequence[_Target],
    distribution: str,
    orders: Sequence[str],
    operands: tuple[Array, Array],
    lengths: Sequence[int],
) -> list[dict[str, Any]]:
    """The rows of one distribution by order, target and k."""
    made: list[dict[str, Any]] = []
    for k in lengths:
        made += _cells(ins, targets, distribution, orders, operands, k)
    ordered, keys = list(orders), [x.name for x in targets]
    made.sort(key=lambda x: (ordered.index(x["order"]), keys.index(x["target"]), x["k"]))
    return made


def _cells(
    ins: MatrixInstruction,
    targets: Sequence[_Target],
    distribution: str,
    orders: Sequence[str],
    operands: tuple[Array, Array],
    k: int,
) -> Iterator[dict[str, object]]:
    """The rows of all targets and orders for one k."""
    known: dict[tuple[Format, Format], tuple[_Operands, Whole, Whole]] = {}
    for target in targets:
        arithmetic = ins.arithmetic(target)
        types = arithmetic.a, arithmetic.b
        if types not in known:
            made = _as_operands(ins, types, operands[0][:, :k], operands[1][:k])
            p, q = made.exact
            known[types] = made, product(p, q), product(magnitudes(p), magnitudes(q))
        made, exact, sizes = known[types]
        for order in orders:
            d = _ordered(ins, target, made, order)
            measured = _measured(arithmetic, d, exact, sizes)
            yield {
                "target": target.name,
                "distribution": distribution,
                "order": order,
                "k": k,
            } | measured


class _Operands(NamedTuple):
    """Codes of A and B, their scales by the names that `gemm` has, and the exact numbers."""

    a: Array
    b: Array
    scales: dict[str, Array]
    exact: tuple[Whole, Whole]


def _as_operands(
    ins: MatrixInstruction, types: tuple[Format, Format], a: Array, b: Array
) -> _Operands:
    """Numbers of A ``(rows, k)`` and B ``(k, columns)`` as the instruction takes them."""
    if ins.is_sparse:
        a = _kept(ins, a)
    if not ins.is_block_scaled:
        a, b = (encode(fmt, x) for fmt, x in zip(types, (a, b), strict=True))
        return _Operands(a, b, {}, (as_whole("A", types[0], a), as_whole("B", types[1], b)))
    block = ins.k // ins.scale_chunks
    found = [
        _scaled(fmt, FORMATS[ins.scale_type], block, x)
        for fmt, x in zip(types, (a, b.T), strict=True)
    ]
    (a, scale_a, p), (b, scale_b, q) = found
    exact = (as_whole("A", FORMATS["f64"], p), as_whole("B", FORMATS["f64"], q.T))
    return _Operands(a, b.T, {"scale_a": scale_a, "scale_b": scale_b.T}, exact)


def _kept(ins: MatrixInstruction, a: Array) -> Array:
    """A with zeros where the pattern has room for nothing more: the largest of each chunk stay."""
    k, granule = a.shape[1], max(1, ins.chunk // 4)
    count = ins.chunk // granule
    pieces = np.pad(a, [(0, 0), (0, -k % ins.chunk)]).reshape(len(a), -1, count, granule)
    least = np.argsort(abs(pieces).sum(-1), -1, kind="stable")[..., : count // 2]
    np.put_along_axis(pieces, least[..., None], 0, -2)
    return pieces.reshape(len(a), -1)[:, :k]


def _scaled(fmt: Format, scale: Format, block: int, x: Array) -> tuple[Array, Array, Array]:
    """Codes of ``(rows, k)``, of the scale of each block along k, and both multiplied, in f64."""
    rows, k = x.shape
    blocks = np.pad(x, [(0, 0), (0, -k % block)]).reshape(rows, -1, block)
    largest = float(decode_values(fmt, np.array(fmt.max_finite, code_type(fmt.bits))))
    need = abs(blocks).max(-1) / largest
    scales = encode(scale, np.where(need == 0, 1, need), "rp", overflow="saturate")
    factors = decode_values(scale, scales)[..., None]
    codes = encode(fmt, np.clip(blocks / factors, -largest, largest))
    exact = decode_values(fmt, codes) * factors
    codes, exact = (y.reshape(rows, -1)[:, :k] for y in (codes, exact))
    return codes, scales, np.ascontiguousarray(exact).view(np.uint64)


def _ordered(ins: MatrixInstruction, target: _Target, made: _Operands, order: str) -> Array:
    """Codes of D in an order of additions."""
    name, _, number = order.partition(":")
    options: dict[str, Any] = {"instruction": ins, "target": target, "codes": True, **made.scales}
    a, b = made.a, made.b
    if name == "promote":
        options["k_promote"] = int(number)
    elif number:
        options |= {"split_k": int(number), "order": "sliced" if name == "sliced" else "ascending"}
    elif name == "reversed":
        a, b = a[:, ::-1], b[::-1]
    return gemm(a, b, **options)


def _measured(arithmetic: Arithmetic, d: Array, exact: Whole, sizes: Whole) -> dict[str, object]:
    """The measures of the finite results."""
    finite = decode(arithmetic.d, d).number_class < NumberClass.INFINITE
    out: dict[str, Any] = {"not_finite": int((~finite).sum())}
    if not finite.any():
        return dict.fromkeys(MEASURES, math.inf) | out
    kept = Whole(exact.integers[finite], exact.unit)
    off = difference(as_whole("D", arithmetic.d, d[finite]), kept)
    toward = Whole(np.where(kept.integers < 0, -off.integers, off.integers), off.unit)
    square, norm = (summed(Whole(x.integers**2, 2 * x.unit)) for x in (off, kept))
    return {
        "rms": math.sqrt(ratios(square, norm)[0]),
        "max_relative": float(ratios(magnitudes(off), magnitudes(kept)).max()),
        "max_scaled": float(
            ratios(magnitudes(off), Whole(sizes.integers[finite], sizes.unit)).max()
        ),
        "bias": float(ratios(summed(toward), summed(magnitudes(kept)))[0]),
    } | out
