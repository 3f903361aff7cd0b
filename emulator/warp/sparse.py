"""Sparse A: metadata nibbles to selected elements of B; compression of full matrices.

One nibble describes a chunk of one row of A. Its two 2-bit indices pick two of four *granules* of
the matching chunk of B: single elements (2:4), pairs of 4-bit elements (4:8), or 16-bit halves of
tf32 words (1:2, where the two halves of one word are picked). PTX ISA 9.7.14.6.1; that hardware
treats every nibble as two independent indices was measured on an H200.
"""

from __future__ import annotations

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, UndefinedError
from emulator.isa.matrix import MatrixInstruction
from emulator.warp.immediates import is_immediate

ORDERED = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
UNORDERED = (*ORDERED, 0b0001, 0b0010, 0b0011, 0b0110, 0b0111, 0b1011)
WHOLE_WORDS = (0b0100, 0b1110)
EQUAL = (0b0000, 0b0101, 0b1010, 0b1111)


def legal_nibbles(ins: MatrixInstruction) -> tuple[int, ...]:
    """The metadata values that PTX defines for a sparse instruction."""
    if ins.chunk == 2:
        return WHOLE_WORDS
    return ORDERED if ins.ordered_metadata else UNORDERED


def check_selector(ins: MatrixInstruction, selector: int) -> int:
    """The sparsity selector, or OperandError naming the legal ones."""
    legal = range(ins.fragment("e").groups)
    if not is_immediate(selector, legal):
        raise OperandError(
            f"selector {selector!r:.80} is out of range for {ins}; "
            f"legal: {', '.join(map(str, legal))}"
        )
    return int(selector)


def check_metadata(ins: MatrixInstruction, nibbles: Array, a: Array, selector: int) -> None:
    """Raises UndefinedError for a nibble ``(…, m, chunks)`` that PTX leaves undefined.

    Equal indices are harmless where the stored elements ``a (…, m, k/2)`` of the chunk are zeros,
    and CUTLASS's compressor writes them there: those pass.
    """
    legal = legal_nibbles(ins)
    wrong = ~np.isin(nibbles, legal)
    if not wrong.any():
        return
    fmt = ins.fragment("a").fmt
    magnitude = fmt.code_mask & ~fmt.sign_mask if fmt.is_float else fmt.code_mask
    magnitude = magnitude >> fmt.ignored_bits << fmt.ignored_bits
    stored = a.reshape(*a.shape[:-1], nibbles.shape[-1], -1)
    empty = ((stored & magnitude) == 0).all(-1)
    wrong = wrong & ~(np.isin(nibbles, EQUAL) & empty)
    if wrong.any():
        *batch, row, chunk = (int(i) for i in np.argwhere(wrong)[0])
        location = ins.fragment("e").lane(row, chunk, selector)
        raise UndefinedError(
            f"metadata of row {row}, chunk {chunk} (lane {location.lane}, bits {location.low_bit}…"
            f"{location.low_bit + 3} of e{f', batch {tuple(batch)}' if batch else ''}) is "
            f"{int(nibbles[(*batch, row, chunk)]):#06b}; {ins.family} on {ins.a_type} defines "
            f"{', '.join(f'{x:04b}' for x in legal)}; undefined='hardware' computes as an H200"
        )


def select(ins: MatrixInstruction, nibbles: Array, b: Array) -> Array:
    """The element of B that each stored element of A meets: ``(…, m, n, k/2)`` codes.

    `nibbles` are ``(…, m, chunks)``, `b` is ``(…, k, n)``.
    """
    chunks = nibbles.shape[-1]
    by_column = np.swapaxes(b, -1, -2)
    if ins.chunk == 2:
        by_column = np.ascontiguousarray(by_column).view("<u2")
    granules = by_column.reshape(*by_column.shape[:-1], chunks, 4, -1)  # (…, n, chunks, 4, size)
    pair = np.stack([nibbles & 3, nibbles >> 2], -1).astype(np.intp)  # (…, m, chunks, 2)
    index = pair[..., :, None, :, :, None]
    source = granules[..., None, :, :, :, :]
    batch = np.broadcast_shapes(index.shape[:-5], source.shape[:-5])
    size, n, m = granules.shape[-1], b.shape[-1], nibbles.shape[-2]
    index = np.broadcast_to(index, (*batch, m, n, chunks, 2, size))
    source = np.broadcast_to(source, (*batch, m, n, chunks, 4, size))
    picked = np.ascontiguousarray(np.take_along_axis(source, index, -2))
    picked = picked.reshape(*batch, m, n, -1)
    return picked.view("<u4") if ins.chunk == 2 else picked


def metadata(ins: MatrixInstruction, a: Array) -> tuple[Array, Array]:
    """Compresses a full matrix of codes: ``(…, m, k)`` to ``(…, m, k/2)`` and nibbles.

    Raises OperandError, naming the place, where a chunk has more non-zeros than the pattern keeps.
    A zero of either sign counts as zero. Nibbles are ``(…, m, chunks)``, indices ascending.
    """
    width = ins.chunk
    granule = max(1, width // 4)
    count = width // granule  # granules of a chunk: 4, or 2 whole words of tf32
    keep = count // 2
    fmt = ins.fragment("a").fmt
    magnitude = fmt.code_mask & ~fmt.sign_mask if fmt.is_float else fmt.code_mask
    magnitude = magnitude >> fmt.ignored_bits << fmt.ignored_bits
    pieces = a.reshape(*a.shape[:-1], -1, count, granule)
    used = ((pieces & magnitude) != 0).any(-1)
    if (used.sum(-1) > keep).any():
        *batch, row, chunk = (int(i) for i in np.argwhere(used.sum(-1) > keep)[0])
        what = "pairs" if granule > 1 else "elements"
        found = int(used[(*batch, row, chunk)].sum())
        raise OperandError(
            f"row {row}, columns {chunk * width}…{chunk * width + width - 1} of A"
            f"{f' (batch {tuple(batch)})' if batch else ''} have {found} non-zero {what}; "
            f"{ins.family} keeps {keep} of {count}"
        )
    # Non-zero granules first, each kind in ascending order; then the kept ones back in order.
    order = np.sort(np.argsort(~used, -1, kind="stable")[..., :keep], -1)
    kept = np.take_along_axis(pieces, order[..., None], -2)
    low, high = (
        (order[..., 0] * 2, order[..., 0] * 2 + 1) if keep == 1 else np.moveaxis(order, -1, 0)
    )
    nibbles = (low | high << 2).astype(np.uint8)
    return kept.reshape(*a.shape[:-1], -1), nibbles
