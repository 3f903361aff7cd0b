"""Hypothesis strategies for operands that aim at the edges of the arithmetic.

Hypothesis is imported when a strategy is asked for. A failing example shrinks to few elements that
are not zero, each as simple as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtypes import Array, Format, code_type
from emulator.arith.recipes import Arithmetic
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import Target
from emulator.tools.operands import Multiplication, as_multiplication, format_of, operand_shapes
from emulator.tools.testing.difference_kinds import find_format
from emulator.tools.testing.edges import code_of, edge_codes, exponent_range, scales_of_sums
from emulator.tools.testing.lane_inputs import Inputs
from emulator.warp.sparse import legal_nibbles, stored_columns

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

#: elements of a matrix that are drawn one by one; the others are alike
_EDITS = 6
#: dot products of one example that are designed, and terms of each
_DOTS, _TERMS = 3, 5


def codes(fmt: Format | str) -> SearchStrategy[int]:
    """Element codes of a format: zeros of both signs, subnormals, the ends, infinity, NaNs, any.

    Raises OperandError for an unknown format, ModuleNotFoundError without Hypothesis.
    """
    st, known = _hypothesis("codes"), find_format(fmt)
    return st.sampled_from(edge_codes(known)) | st.integers(0, known.code_mask)


def matrices(ins: Instruction | str, operand: str) -> SearchStrategy[Array]:
    """Matrices of codes for one operand: a, b, c, nibbles (legal metadata), scale_a or scale_b.

    Shapes are those of `Inputs.matrices`: of a sparse A the stored half, of m8n8k4.f16 four
    matrices. Raises OperandError for an operand that the instruction lacks.
    """
    st, ins = _hypothesis("matrices"), as_multiplication(ins)
    fmt, shape = format_of(ins, operand), operand_shapes(ins)[operand]
    if operand == "nibbles":
        assert isinstance(ins, MatrixInstruction)
        legal = legal_nibbles(ins)
        return _matrix(st.sampled_from(legal), shape, legal, fmt.bits)
    return _matrix(codes(fmt), shape, None, fmt.bits)


def operands(
    ins: Instruction | str, target: str | Target, *, selector: int = 0
) -> SearchStrategy[Inputs]:
    """All operands of an instruction as `Inputs`, aimed at what `target` does with them.

    Some dot products are designed: terms just above and below the bits at which the recipe cuts and
    rounds, near its exponent floor and the overflow, ties, carries, cancelling pairs, and zeros
    elsewhere. Others have any codes. Metadata is legal, block scales are powers of two or edges.
    Raises UnsupportedError where the target lacks the instruction.
    """
    st, ins = _hypothesis("operands"), as_multiplication(ins)
    arithmetic = ins.arithmetic(target)
    given: Any = {name: matrices(ins, name) for name in operand_shapes(ins)}
    if arithmetic.scale is not None:
        fmt = arithmetic.scale
        powers = [fmt.bias + x << fmt.mantissa_bits for x in (0, 1, -1, 2, -2, 4, -4)]
        for name in ("scale_a", "scale_b"):
            shape = operand_shapes(ins)[name]
            usual = _matrix(st.sampled_from(powers), shape, powers, fmt.bits)
            given[name] = usual | given[name]

    def draw_inputs(draw: DrawFn) -> Inputs:
        designed = draw(st.sampled_from((True, True, True, False)))
        held = {name: draw(strategy) for name, strategy in given.items() if name not in "abc"}
        if designed:
            for name in "abc":
                bits = format_of(ins, name).bits
                held[name] = np.zeros(operand_shapes(ins)[name], code_type(bits))
            _place(ins, held, draw(st.lists(_dot(arithmetic), min_size=1, max_size=_DOTS)))
        else:
            # Zeros outside of a corner: without them an example could not shrink to one sum.
            k = operand_shapes(ins)["a"][-1]
            rows, columns, depth = (draw(st.integers(1, size)) for size in (ins.m, ins.n, k))
            held |= {name: draw(given[name]) for name in "abc"}
            held["a"][..., rows:, :] = held["a"][..., depth:] = 0
            held["b"][..., columns:] = 0
            held["c"][..., rows:, :] = held["c"][..., columns:] = 0
        order = operand_shapes(ins)
        return Inputs(ins, {name: held[name] for name in order}, selector)

    return st.composite(draw_inputs)()


# --- matrices -------------------------------------------------------------------------------------


def _matrix(
    one: SearchStrategy[int], shape: tuple[int, ...], legal: Sequence[int] | None, bits: int
) -> SearchStrategy[Array]:
    """Elements alike but for a few, or a window of any codes; `legal` None: all are legal."""
    st = _hypothesis("matrices")
    size, dtype = int(np.prod(shape)), code_type(bits)
    edits = st.lists(st.tuples(st.integers(0, size - 1), one), max_size=_EDITS)

    def alike(usual: int, changed: Sequence[tuple[int, int]]) -> Array:
        flat = np.full(size, usual, dtype)
        for place, code in changed:
            flat[place] = code
        return flat.reshape(shape)

    def anything(seed: int, first: int, count: int) -> Array:
        rng, some = np.random.default_rng(seed), np.zeros(size, dtype)
        window = some[first : first + count]
        if legal is None:
            top = (1 << bits) - 1
            window[:] = rng.integers(0, top, window.shape, np.uint64, endpoint=True).astype(dtype)
        else:
            some[:] = legal[0]
            window[:] = rng.choice(legal, window.shape)
        return some.reshape(shape)

    # A window of elements with any bits can shrink to one element.
    place = st.integers(0, size)
    return st.builds(alike, one, edits) | st.builds(anything, st.integers(0, 999), place, place)


# --- designed dot products ------------------------------------------------------------------------


class _Term(NamedTuple):
    """One product: `below` the largest one by so many powers of two."""

    below: int
    negative: bool
    #: of a and of b, see `_significand`
    shape: tuple[int, int]
    #: how much of the exponent a has
    split: int
    #: the same product again with the other sign, so that both cancel
    cancelled: bool


class _Dot(NamedTuple):
    base: int
    terms: list[_Term]
    #: C: a product's exponent below `base`, or None for zero
    c: _Term | None
    #: operand and code: overrules C, or an element of the first product
    special: tuple[str, int] | None
    #: products lie far apart along k
    apart: bool


def _significand(fmt: Format, which: int) -> tuple[int, int]:
    """(significand, bits): 1, all ones, 1 and an ulp, 1.5."""
    bits = fmt.precision
    ones = (1 << bits) - 1
    half = 1 << bits - 1
    return (half, ones, half | 1, half | half >> 1)[which], bits


def _dot(arithmetic: Arithmetic) -> SearchStrategy[_Dot]:
    st = _hypothesis("operands")
    pairs = [(a, b) for a in range(4) for b in range(4)]
    shape = st.sampled_from([*[(0, 0)] * len(pairs), *pairs])

    def near(where: tuple[int, list[int]]) -> SearchStrategy[_Dot]:
        base, below = where
        term = st.builds(_Term, st.sampled_from(below), flip, shape, split, flip)
        # Two powers of two, one at a cut below the other, show most that a recipe can have wrong.
        far = [x for x in below if x > 3] or below
        pair = st.builds(
            lambda distance, negative, split: [
                _Term(0, False, (0, 0), split, False),
                _Term(distance, negative, (0, 0), split, False),
            ],
            st.sampled_from(far),
            flip,
            split,
        )
        terms = st.lists(term, min_size=1, max_size=_TERMS) | pair
        return st.builds(_Dot, st.just(base), terms, st.none() | term, special, st.booleans())

    flip, split = st.booleans(), st.integers(-8, 8)
    formats = (("a", arithmetic.a), ("b", arithmetic.b), ("c", arithmetic.c))
    any_special = st.one_of(*(st.tuples(st.just(x), codes(fmt)) for x, fmt in formats))
    special = st.sampled_from(range(8)).flatmap(lambda i: st.none() if i < 7 else any_special)
    usual, *others = scales_of_sums(arithmetic)
    anywhere = st.integers(-20, 20).map(lambda base: (base, usual[1]))
    return st.one_of(st.sampled_from([usual, *others]), st.sampled_from(others), anywhere).flatmap(
        near
    )


def _place(ins: Multiplication, held: dict[str, Array], dots: list[_Dot]) -> None:
    """Writes each dot product into a row of A, a column of B and an element of C of its own."""
    a, b, c = (x.reshape(-1, *x.shape[-2:])[0] for x in (held["a"], held["b"], held["c"]))
    columns = _columns(ins, held.get("nibbles"))
    for i, dot in enumerate(dots[: min(c.shape)]):
        products = _products(ins, dot)[: a.shape[1]]
        # Side by side, or far apart: a recipe may go through k in passes.
        step = a.shape[1] // len(products) if dot.apart else 1
        for j, (code_a, code_b) in enumerate(products):
            a[i, j * step], b[columns[i, j * step], i] = code_a, code_b
        c[i, i] = _c(ins, dot)
        if dot.special is not None:
            operand, code = dot.special
            where = {"a": (a, 0), "b": (b.T, columns[i, 0]), "c": (c, i)}[operand]
            where[0][i, where[1]] = code


def _columns(ins: Multiplication, nibbles: Array | None) -> Array:
    """``(m, stored k)``: the row of B that each stored element of A meets."""
    if nibbles is None:
        rows = operand_shapes(ins)["a"][-2]
        return np.broadcast_to(np.arange(ins.k), (rows, ins.k))
    assert isinstance(ins, MatrixInstruction)
    return stored_columns(ins, nibbles)


def _products(ins: Multiplication, dot: _Dot) -> list[tuple[int, int]]:
    """Codes of A and B for each term, and for one that is cancelled two."""
    fmt_a, fmt_b = format_of(ins, "a"), format_of(ins, "b")
    if not fmt_a.is_float:
        ends_a, ends_b = edge_codes(fmt_a), edge_codes(fmt_b)
        return [(ends_a[t.split % len(ends_a)], ends_b[t.below % len(ends_b)]) for t in dot.terms]
    out = []
    (low_a, high_a), (low_b, high_b) = exponent_range(fmt_a), exponent_range(fmt_b)
    for term in dot.terms:
        exponent = dot.base - term.below
        first = min(max(exponent // 2 + term.split, exponent - high_b), exponent - low_b)
        first = min(max(first, low_a), high_a)
        second = min(max(exponent - first, low_b), high_b)
        code_b = code_of(fmt_b, False, second, *_significand(fmt_b, term.shape[1]))
        signs = (term.negative, not term.negative)[: 1 + term.cancelled]
        for negative in signs:
            out.append(
                (code_of(fmt_a, negative, first, *_significand(fmt_a, term.shape[0])), code_b)
            )
    return out


def _c(ins: Multiplication, dot: _Dot) -> int:
    fmt = format_of(ins, "c")
    if dot.c is None:
        return 0
    if not fmt.is_float:
        options = edge_codes(fmt)
        return options[dot.c.below % len(options)]
    return code_of(fmt, dot.c.negative, dot.base - dot.c.below, *_significand(fmt, dot.c.shape[0]))


# --- arguments ------------------------------------------------------------------------------------


def _hypothesis(what: str) -> ModuleType:
    try:
        import hypothesis.strategies as st
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"emulator.testing.{what} is a Hypothesis strategy: pip install hypothesis",
            name="hypothesis",
        ) from None
    return st
