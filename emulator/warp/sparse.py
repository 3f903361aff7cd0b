"""Sparse A: metadata nibbles to selected elements of B; compression of full matrices.

One nibble describes a chunk of one row of A. Its two 2-bit indices pick two of four *granules* of
the matching chunk of B: single elements (2:4), pairs of 4-bit elements (4:8), or 16-bit halves of
tf32 words (1:2, where the two halves of one word are picked). PTX ISA 9.7.14.6.1; that hardware
treats every nibble as two independent indices was measured on an H200.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from dtypes import FORMATS, Array, Format, code_type
from emulator.arith import Engine, dot, matmul, ordinary
from emulator.arith.arrangement import with_gaps
from emulator.arith.engines import cut_batch
from emulator.arith.recipes import Arithmetic
from emulator.arrays import as_array
from emulator.errors import OperandError, UndefinedError, shown
from emulator.isa.instruction import Instruction, as_instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.signature import is_immediate

ORDERED = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
UNORDERED = (*ORDERED, 0b0001, 0b0010, 0b0011, 0b0110, 0b0111, 0b1011)
WHOLE_WORDS = (0b0100, 0b1110)
EQUAL = (0b0000, 0b0101, 0b1010, 0b1111)
#: nibbles that the manual lists for one family
_LISTED = {"tcgen05.mma.sp": (*ORDERED, 0b0110)}
#: nibble -> its two indices, the one of the first stored element first
_PAIRS = np.stack([np.arange(16) & 3, np.arange(16) >> 2], -1)
#: share of elements that are not ordinary, up to which they are computed one by one
_FEW = 0.1
#: bytes of selected elements of B that are held at a time
_SELECTED_AT_ONCE = 1 << 25


class SparseProduct(Protocol):
    """The facts of a product with a sparse A, of any instruction."""

    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def stored_k(self) -> int:
        """Columns of A that are stored."""

    @property
    def chunk(self) -> int:
        """Columns of A that one metadata nibble describes."""

    @property
    def a_type(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def ordered_metadata(self) -> bool: ...


def legal_nibbles(ins: SparseProduct) -> tuple[int, ...]:
    """The metadata values that PTX defines for a sparse instruction."""
    if ins.chunk == 2:
        return WHOLE_WORDS
    if ins.family in _LISTED:
        return _LISTED[ins.family]
    return ORDERED if ins.ordered_metadata else UNORDERED


def check_selector(ins: MatrixInstruction, selector: int) -> int:
    """The sparsity selector, or OperandError naming the legal ones."""
    legal = ins.signature()["selector"].values
    if not is_immediate(selector, legal):
        raise OperandError(
            f"selector {shown(selector)} is out of range for {ins}; "
            f"legal: {', '.join(map(str, legal))}"
        )
    return int(selector)


def check_metadata(
    ins: SparseProduct, nibbles: Array, a: Array, selector: int | None = None
) -> None:
    """Raises UndefinedError for a nibble ``(…, m, chunks)`` that PTX leaves undefined, with its
    place in registers where they are those of a selector.

    ValueError where the batch axes do not broadcast.

    Equal indices are harmless where the stored elements ``a (…, m, k/2)`` of the chunk are zeros,
    and CUTLASS's compressor writes them there: those pass.
    """
    batch = np.broadcast_shapes(nibbles.shape[:-2], a.shape[:-2])
    nibbles = np.broadcast_to(nibbles, (*batch, *nibbles.shape[-2:]))
    a = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    legal = sorted(legal_nibbles(ins))
    wrong = ~np.isin(nibbles, legal)
    if not wrong.any():
        return
    stored = a.reshape(*nibbles.shape, a.shape[-1] // nibbles.shape[-1])
    empty = ((stored & magnitude_mask(FORMATS[ins.a_type])) == 0).all(-1)
    wrong = wrong & ~(np.isin(nibbles, EQUAL) & empty)
    if wrong.any():
        *case, row, chunk = (int(i) for i in np.argwhere(wrong)[0])
        where = [f"batch {tuple(case)}"] if case else []
        advice = ""
        if isinstance(ins, MatrixInstruction) and selector is not None:
            place = ins.fragment("e").lane(row, chunk, selector)
            where = [f"lane {place.lane}", f"bits {place.low_bit}…{place.low_bit + 3} of e", *where]
            advice = "; execute and mma with undefined='hardware' compute as an H200"
        location = f" ({', '.join(where)})" if where else ""
        raise UndefinedError(
            f"metadata of row {row}, chunk {chunk}{location} is "
            f"{int(nibbles[(*case, row, chunk)]):#06b}; {ins.family} on {ins.a_type} defines "
            f"{', '.join(f'{x:04b}' for x in legal)}{advice}"
        )


def select(ins: SparseProduct, nibbles: Array, b: Array) -> Array:
    """The element of B that each stored element of A meets: ``(…, m, n, k/2)`` codes.

    `nibbles` are ``(…, m, chunks)``, `b` is ``(…, k, n)``.
    """
    row, b = picked_rows(ins, nibbles), _granules(ins, b)
    k, n = b.shape[-2:]
    batch = np.broadcast_shapes(row.shape[:-2], b.shape[:-2])
    # Whole rows of B are picked: its matrices stand one below the other.
    each = np.arange(math.prod(b.shape[:-2])).reshape(*b.shape[:-2], 1, 1) * k
    picked = b.reshape(-1, n).take(np.broadcast_to(row + each, (*batch, *row.shape[-2:])), axis=0)
    picked = np.swapaxes(picked, -1, -2)
    return np.ascontiguousarray(picked).view("<u4") if ins.chunk == 2 else picked


def _granules(ins: SparseProduct, b: Array) -> Array:
    """B with a row for everything that an index can pick: for tf32 ``(…, 2 k, n)``, two rows of
    16-bit halves for every row of words."""
    if ins.chunk != 2:
        return b
    halves = np.ascontiguousarray(b)[..., None].view("<u2")
    return np.moveaxis(halves, -1, -2).reshape(*b.shape[:-2], 2 * b.shape[-2], b.shape[-1])


def picked_rows(ins: SparseProduct, nibbles: Array) -> Array:
    """``(…, m, k/2)``: the row of `_granules` that each stored element of A meets; for tf32 the
    rows of both its halves, one after the other ``(…, m, k)``."""
    chunks = nibbles.shape[-1]
    size = 1 if ins.chunk == 2 else ins.chunk // 4
    granule = _PAIRS.take(nibbles, axis=0) + np.arange(0, 4 * chunks, 4)[:, None]
    row = granule if size == 1 else granule[..., None] * size + np.arange(size)
    return row.reshape(*nibbles.shape[:-1], 2 * chunks * size)


def stored_columns(ins: SparseProduct, nibbles: Array) -> Array:
    """``(…, m, k/2)``: the column of the full A that each stored element is, which is the row of B
    that it meets, of nibbles ``(…, m, chunks)``; those of tf32 have to pick whole words."""
    rows = picked_rows(ins, nibbles)
    return rows[..., ::2] >> 1 if ins.chunk == 2 else rows


def matmul_selected(
    arithmetic: Arithmetic,
    a: Array,
    selected: Array,
    c: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    *,
    engine: Engine = "auto",
) -> Array:
    """`arith.matmul` where every row of A has a B of its own: `selected` is ``(…, m, n, k/2)``."""
    if scale_a is not None and scale_b is not None:
        scale_a, scale_b = scale_a[..., :, None, :], scale_b[..., None, :, :]
    rows = a[..., :, None, :], selected, c[..., :, None, :]
    return matmul(arithmetic, *rows, scale_a, scale_b, engine=engine)[..., 0, :]


class Compressed(NamedTuple):
    """Codes of a compressed A ``(…, m, k/2)`` with its nibbles ``(…, m, chunks)``, of B, of C
    ``(…, m, n)``, and of scales."""

    a: Array
    nibbles: Array
    b: Array
    c: Array
    scale_a: Array | None = None
    scale_b: Array | None = None


def matmul_compressed(
    ins: SparseProduct,
    arithmetic: Arithmetic,
    x: Compressed,
    *,
    sign_b: int = 0,
    engine: Engine = "auto",
) -> Array:
    """`arith.matmul` of a compressed A and B ``(…, k, n)``.

    `sign_b` is flipped in the elements of B that are selected: that shows where a tf32 nibble mixes
    two words.
    """
    if engine != "reference":
        with_sign = x._replace(b=x.b ^ x.b.dtype.type(sign_b)) if sign_b else x
        found = _matmul_full(ins, arithmetic, with_sign, engine)
        if found is not None:
            d, wrong = found
            if not wrong.any():
                return d
            if wrong.mean() <= _FEW:
                _recompute(ins, arithmetic, x, sign_b, d, wrong)
                return d
    return _matmul_each_row(ins, arithmetic, x, sign_b, engine)


def _matmul_full(
    ins: SparseProduct, arithmetic: Arithmetic, x: Compressed, engine: Engine
) -> tuple[Array, Array] | None:
    """The product with A written out ``(…, m, k)``, zeros where it stores nothing, and a mask of
    what is to be computed otherwise. None where the recipe does not allow it.

    All rows of A share one B then. A zero meets what the hardware does not even read: elements
    with an infinity or NaN in their row or column are in the mask, and so are rows that use an
    element of B twice or mix two words of it.
    """
    a, nibbles = x.a, x.nibbles
    spread = with_gaps(arithmetic, ins.stored_k // nibbles.shape[-1])
    if spread is None:
        return None
    if ins.chunk == 2:
        mixed = np.asarray(~np.isin(nibbles, WHOLE_WORDS).all(-1))
    else:
        twice = np.isin(nibbles, EQUAL)
        mixed = np.asarray(twice.any(-1))
        if mixed.any():
            # Equal indices over stored zeros, as CUTLASS's compressor writes them, do no harm.
            used = (a != 0).reshape(*a.shape[:-1], nibbles.shape[-1], -1).any(-1)
            mixed = (twice & used).any(-1)
    full = spread_out(ins, a, nibbles)
    columns = np.swapaxes(x.b, -1, -2)
    found = ordinary(spread, full, columns, *x[3:], engine=engine)
    if found is None:
        return None
    d, wrong = found
    return d, (wrong | mixed[..., None] if mixed.any() else wrong)


def spread_out(ins: SparseProduct, a: Array, nibbles: Array) -> Array:
    """A written out ``(…, m, k)``, zeros where it stores nothing, from the stored ``(…, m, k/2)``
    and its nibbles ``(…, m, chunks)``, of one instruction or of several along k."""
    batch = np.broadcast_shapes(a.shape[:-2], nibbles.shape[:-2])
    stored = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    column = stored_columns(ins, nibbles)
    m, k = a.shape[-2], 2 * a.shape[-1]
    full = np.zeros((*batch, m, k), a.dtype)
    first = np.arange(0, full.size, k).reshape(*batch, m, 1)
    full.reshape(-1)[first + column] = stored
    return full


def _recompute(
    ins: SparseProduct,
    arithmetic: Arithmetic,
    operands: Compressed,
    sign_b: int,
    d: Array,
    wrong: Array,
) -> None:
    """Writes into `d` the elements where `wrong`, each a dot product of what it selects."""
    batch, where = d.shape[:-2], np.nonzero(wrong)
    a, nibbles, b, c, scale_a, scale_b = (
        x if x is None else np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in operands
    )
    assert a is not None and nibbles is not None and b is not None and c is not None
    count = max(1, _SELECTED_AT_ONCE // (8 * ins.k))
    for start in range(0, len(where[0]), count):
        *t, i, j = (index[start : start + count] for index in where)
        rows = picked_rows(ins, nibbles[(*t, i)][:, None])[:, 0]
        own = tuple(x[:, None] for x in t)
        if ins.chunk == 2:
            halves = b[(*own, rows >> 1, j[:, None])] >> (rows.astype(np.uint32) % 2 * 16)
            picked = np.ascontiguousarray(halves.astype("<u2")).view("<u4")
        else:
            picked = b[(*own, rows, j[:, None])]
        picked = picked ^ picked.dtype.type(sign_b)
        scales = (
            None if x is None else x[(*t, place)] for x, place in ((scale_a, i), (scale_b, j))
        )
        d[(*t, i, j)] = dot(arithmetic, a[(*t, i)], picked, c[(*t, i, j)], *scales, engine="vector")


def _matmul_each_row(
    ins: SparseProduct, arithmetic: Arithmetic, x: Compressed, sign_b: int, engine: Engine
) -> Array:
    """`matmul_compressed` by `select`: every row of A has a B of its own.

    A long batch is computed in pieces because of them.
    """
    batch = np.broadcast_shapes(*(y.shape[:-2] for y in x if y is not None))
    selected = math.prod((*batch, ins.m, ins.n, ins.stored_k)) * x.b.itemsize
    if selected <= _SELECTED_AT_ONCE or math.prod(batch) == 1:
        columns = select(ins, x.nibbles, x.b)
        columns = columns ^ columns.dtype.type(sign_b) if sign_b else columns
        return matmul_selected(arithmetic, x.a, columns, *x[3:], engine=engine)
    axis, pieces = cut_batch(batch, _SELECTED_AT_ONCE / selected, x, 2)
    out = [_matmul_each_row(ins, arithmetic, Compressed(*y), sign_b, engine) for y in pieces]
    return np.concatenate(out, axis)


def metadata(ins: SparseProduct, a: Array) -> tuple[Array, Array]:
    """Compresses a full matrix of codes, of one instruction or of several along k: ``(…, m, k)`` to
    ``(…, m, k/2)`` and nibbles.

    Raises OperandError, naming the place, where a chunk has more non-zeros than the pattern keeps.
    A zero of either sign counts as zero, and so does a tf32 word with nothing but ignored bits; a
    chunk that has room keeps such words rather than clear ones. Nibbles are ``(…, m, chunks)``,
    indices ascending.
    """
    # A tf32 word is one granule here, though its nibble names two halves.
    width, granule = ins.chunk, max(1, ins.chunk // 4)
    count, keep = width // granule, width // granule // 2
    pieces = a.reshape(*a.shape[:-1], a.shape[-1] // width, count, granule)
    used = ((pieces & magnitude_mask(FORMATS[ins.a_type])) != 0).any(-1)
    # Worth 2: a number; 1: a zero that is not all clear.
    worth = used.astype(np.uint8) + (pieces != 0).any(-1)
    pattern = sum(worth[..., i] * np.uint8(3**i) for i in range(count))
    order, numbers = _kept_of_patterns(count, keep)
    if (numbers > keep)[pattern].any():
        *batch, row, chunk = (int(i) for i in np.argwhere(used.sum(-1) > keep)[0])
        what = "pairs" if granule > 1 else "elements"
        found = int(used[(*batch, row, chunk)].sum())
        raise OperandError(
            f"row {row}, columns {chunk * width}…{chunk * width + width - 1} of A"
            f"{f' (batch {tuple(batch)})' if batch else ''} have {found} non-zero {what}; "
            f"{ins.family} keeps {keep} of {count}"
        )
    order = order[pattern]
    kept = np.take_along_axis(pieces, order[..., None], -2)
    low, high = (
        (order[..., 0] * 2, order[..., 0] * 2 + 1) if keep == 1 else np.moveaxis(order, -1, 0)
    )
    nibbles = (low | high << 2).astype(np.uint8)
    return kept.reshape(*a.shape[:-1], a.shape[-1] // 2), nibbles


@lru_cache(maxsize=8)
def _kept_of_patterns(count: int, keep: int) -> tuple[Array, Array]:
    """Of all worths 0 … 2 of `count` granules, that of granule i worth 3**i: which are kept, in
    ascending order, those worth most and of these the first; and how many are numbers."""
    worth = np.arange(3**count)[:, None] // 3 ** np.arange(count) % 3
    order = np.sort(np.argsort(-worth, -1, kind="stable")[:, :keep], -1)
    return order, (worth == 2).sum(-1)


def compress(ins: Instruction | str, a: Array, selector: int = 0) -> tuple[Array, Array]:
    """A full A of codes ``(…, m, k)`` to what mma.sp and wgmma.sp take.

    Returns the compressed codes ``(…, m, k/2)``, for ``ins.fragment("a").scatter`` or
    ``store_tile``, and the metadata words e ``uint32 (…, lanes)`` for a sparsity selector; words of
    lanes that the selector does not read are 0; ``fragment("e").gather(e[..., None])`` gives the
    nibbles of `mma`. Of a chunk with fewer non-zeros than the pattern
    keeps, zeros are stored too; their sign is kept where there is room.

    Raises OperandError, naming row and columns, where A does not satisfy the pattern (2:4, 1:2 for
    tf32, 4:8 by pairs for 4-bit types), and for codes or a selector that the instruction lacks.
    """
    ins = _sparse(ins)
    chosen, fragment = check_selector(ins, selector), ins.fragment("e")
    stored, nibbles = metadata(ins, _check_codes(ins, a, ins.k))
    words = np.zeros((*nibbles.shape[:-2], fragment.groups, *nibbles.shape[-2:]), np.uint8)
    words[..., chosen, :, :] = nibbles
    e = fragment.scatter(words if fragment.groups > 1 else nibbles)
    return stored, e[..., 0]


def decompress(ins: Instruction | str, a: Array, e: Array, selector: int = 0) -> Array:
    """Compressed codes ``(…, m, k/2)`` and metadata words to full codes ``(…, m, k)``.

    The inverse of `compress`; words e are ``(…, lanes)`` or, as fragments have them,
    ``(…, lanes, 1)``. Elements that are not stored are +0. Raises UndefinedError for
    metadata that PTX leaves undefined (equal indices over stored zeros pass, as in `execute`), and
    OperandError for arrays or a selector that the instruction lacks.
    """
    ins = _sparse(ins)
    chosen = check_selector(ins, selector)
    nibbles, a = gather_metadata(ins, e, chosen), _check_codes(ins, a, ins.stored_k)
    try:
        np.broadcast_shapes(nibbles.shape[:-2], a.shape[:-2])
    except ValueError:
        raise OperandError(
            f"the batch axes do not broadcast: a {a.shape}, e {np.shape(e)}"
        ) from None
    check_metadata(ins, nibbles, a, chosen)
    return spread_out(ins, a, nibbles)


def gather_metadata(ins: MatrixInstruction, e: Array, selector: int) -> Array:
    """Metadata words ``(…, lanes)`` or ``(…, lanes, 1)`` to the nibbles ``(…, m, chunks)`` that a
    selector reads.

    Raises OperandError for words of another shape or type.
    """
    fragment, words = ins.fragment("e"), metadata_words(ins, e)
    nibbles = fragment.gather(words[..., None])
    return nibbles[..., selector, :, :] if fragment.groups > 1 else nibbles


def metadata_words(ins: MatrixInstruction, e: Array) -> Array:
    """Metadata as ``(…, lanes)`` words, one for each lane, or OperandError."""
    fragment, words = ins.fragment("e"), as_array(e, "e")
    if words.shape[-2:] == (fragment.lanes, 1):
        words = words[..., 0]
    if words.dtype != np.uint32 or words.shape[-1:] != (fragment.lanes,):
        raise OperandError(
            f"e is one metadata word per lane, uint32 (…, {fragment.lanes}); "
            f"got {words.dtype} {words.shape}"
        )
    return words


def magnitude_mask(fmt: Format) -> int:
    """The bits of a code that make it differ from zero."""
    has_sign = fmt.is_float or fmt.magnitude_bits is not None
    magnitude = fmt.code_mask & ~fmt.sign_mask if has_sign else fmt.code_mask
    return magnitude >> fmt.ignored_bits << fmt.ignored_bits


def _sparse(ins: object) -> MatrixInstruction:
    ins = as_instruction(ins, "a sparse Instruction")
    if not isinstance(ins, MatrixInstruction) or not ins.is_sparse:
        raise OperandError(f"a sparse instruction is needed, mma.sp or wgmma.sp; got {ins}")
    return ins


def _check_codes(ins: MatrixInstruction, a: Array, columns: int) -> Array:
    codes, fmt = as_array(a, "A"), FORMATS[ins.a_type]
    if codes.dtype.kind != "u" or codes.shape[-2:] != (ins.m, columns):
        raise OperandError(
            f"A is unsigned element codes (…, {ins.m}, {columns}); got {codes.dtype} {codes.shape}"
            + (" (use .view to keep the bits)" if codes.dtype.kind != "u" else "")
        )
    if codes.size and int(codes.max()) > fmt.code_mask:
        raise OperandError(
            f"A: code {int(codes.max()):#x} does not fit the {fmt.bits} bits of {fmt.name}"
        )
    return codes.astype(code_type(fmt.bits), copy=False)
