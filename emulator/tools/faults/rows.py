"""Mistakes with the addresses that ldmatrix loads an operand from.

The tile is searched for in shared memory. Its layout there and the way in which the addresses were
computed show which term is wrong. Rows that hold equal bytes cannot be told apart, and a matrix
that is not stored in rows of one stride (in blocks of 8 lines, say) is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.errors import OperandError
from emulator.isa.movement import parse
from emulator.layout.addressing import Int64
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import WARP
from emulator.memory.space import Space
from emulator.tools.faults.kernel import Mistake, RecordedKernel, Rows, Variant
from emulator.tools.faults.layouts import RowLayout, find_layout, fit_layouts, row_bytes
from emulator.warp import move


def load_rows(fragment: Fragment, rows: Rows) -> Array:
    """The registers ``(steps, lanes, registers)`` that ldmatrix loads for an operand.

    Raises OperandError for one that it cannot load, UndefinedError for a misaligned address and for
    one outside of shared memory.
    """
    count = fragment.registers
    if fragment.word_bits != 32 or fragment.groups > 1 or count not in (1, 2, 4):
        raise OperandError(
            f"ldmatrix loads 1, 2 or 4 registers of 32 bits; operand {fragment.operand} has "
            f"{count} of {fragment.word_bits}"
        )
    ins = parse(f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if rows.trans else ''}.shared.b16")
    steps = len(rows.addresses)
    each = rows.addresses.reshape(steps * fragment.lanes // WARP, WARP)
    words = move.load(ins, each, Space.of(rows.shared, "shared"))
    return words.reshape(steps, fragment.lanes, count)


class _Wanted(NamedTuple):
    """A matrix as it lies in memory, and what belongs at the addresses ``(steps, n)``."""

    matrix: Array
    #: rows, and bytes within them
    places: tuple[Int64, Int64]


def _wanted(kernel: RecordedKernel, name: str, codes: Array, trans: bool) -> _Wanted:
    fragment = kernel.ins.fragment(name)
    per_register = fragment.elements // fragment.registers
    lane = np.arange(fragment.lanes)
    tile, line = lane % WARP // 8, lane % 8
    tile = tile % fragment.registers  # addresses of further lanes do not count
    # Line i of a tile goes to lanes 4 i …, with .trans to halves of lanes i / 2, i / 2 + 4, …
    holder = line // 2 if trans else 4 * line
    element = tile * per_register + (line % 2 * per_register // 2 if trans else 0)
    row, col = fragment.coords[lane // WARP * WARP + holder, element].T.astype(np.int64)
    along_k, across = (row, col) if name == "b" else (col, row)
    k = fragment.shape[0 if name == "b" else 1]
    along_k = along_k + k * np.arange(kernel.steps)[:, None]
    across = np.broadcast_to(across, along_k.shape)
    line_of, place_in = (along_k, across) if trans else (across, along_k)
    matrix = codes if (name == "b") == trans else codes.T
    byte = place_in * fragment.place.width // 8
    return _Wanted(row_bytes(matrix, fragment.place), (line_of, byte))


def _used(fragment: Fragment, addresses: Int64) -> Int64:
    """Those of the lanes whose addresses count: the first 8 of each tile, in every warp."""
    warps = addresses.reshape(len(addresses), fragment.lanes // WARP, WARP)
    return warps[..., : 8 * fragment.registers].reshape(len(addresses), -1)


class _Finding(NamedTuple):
    #: stride, swizzle, start, step, lane
    kind: str
    text: str
    kernel: RecordedKernel


def _findings(kernel: RecordedKernel) -> Iterator[tuple[str, _Finding]]:
    """Yields mistakes in the addresses of each operand, with the kernel that avoids them."""
    for name, rows in kernel.rows.items():
        codes, fragment = kernel.aims.get(name), kernel.ins.fragment(name)
        if codes is None:
            continue
        for trans in (rows.trans, not rows.trans):
            if trans and fragment.place.width != 16:
                continue
            wanted = _wanted(kernel, name, codes, trans)
            fits = fit_layouts(*(_used(fragment, x) for x in (rows.addresses, *wanted.places)))
            if layout := find_layout(rows.shared, wanted.matrix, fits):
                break
        else:
            continue
        right = rows._replace(addresses=layout.addresses(*wanted.places), trans=trans)
        have, want = (_used(fragment, x.addresses) for x in (rows, right))
        if np.array_equal(have, want):
            continue
        found = fits.get(layout.swizzle) or next(iter(fits.values()), None)
        texts = _terms(*found, layout, wanted) if found else {}
        texts = texts or {"lane": _lanes(fragment, have, want)}
        text = f"addresses of {name.upper()}: {'; '.join(texts.values())}"
        if trans != rows.trans:
            text += f", and {'.trans' if trans else 'no .trans'}"
        changed = kernel.loading(name, right, load_rows(fragment, right))
        yield name, _Finding(next(iter(texts)), text, changed)


def _terms(mine: RowLayout, apart: Int64, layout: RowLayout, wanted: _Wanted) -> dict[str, str]:
    """The terms of the addresses that are wrong, in words, by kind."""
    texts = {}
    if mine.stride != layout.stride:
        texts["stride"] = _strides(mine.stride, layout.stride, wanted)
    if mine.swizzle != layout.swizzle:
        texts["swizzle"] = f"{layout.how} instead of {mine.how}, as the tile is stored"
    if offset := mine.start + int(apart[0]) - layout.start:
        texts["start"] = _start(-offset, layout, wanted)
    if (drift := apart - apart[0]).any():
        rows, bytes_ = (int(x[1, 0] - x[0, 0]) for x in wanted.places)
        step = bytes_ + rows * layout.stride
        texts["step"] = f"steps along k {step} bytes apart instead of {step + int(drift[1])}"
    return texts


def _strides(have: int, want: int, wanted: _Wanted) -> str:
    text, own = f"rows {want} bytes apart instead of {have}", wanted.matrix.shape[1]
    if have < want < 2 * have:
        return f"{text}: the padding of {want - have} bytes behind each row is left out"
    if want < have < 2 * want:
        return f"{text}: a padding of {have - want} bytes is counted that is not there"
    if own == want and have in (want // 2, want // 4):
        return f"{text}: elements are counted, not bytes"
    return text


def _start(offset: int, layout: RowLayout, wanted: _Wanted) -> str:
    text = f"start {offset:+} bytes"
    for size, what in ((len(wanted.matrix) * layout.stride, "tile"), (layout.stride, "row")):
        if offset % size == 0:
            count = abs(offset) // size
            return f"{text} ({count} {what}{'s' if count > 1 else ''} of {size} bytes)"
    return text


def _lanes(fragment: Fragment, have: Int64, want: Int64) -> str:
    """The first lane whose address is not that of its row."""
    step, at = (int(x) for x in np.argwhere(have != want)[0])
    per_warp = 8 * fragment.registers
    lane = at // per_warp * WARP + at % per_warp
    where = f"lane {lane}" + (f" of step {step}" if len(have) > 1 else "")
    return (
        f"{where} {int(want[step, at]):#x} instead of {int(have[step, at]):#x}; "
        f"{int((have != want).sum())} of {have.size} are wrong"
    )


def _generator(kind: str) -> Callable[[RecordedKernel], Iterator[Variant]]:
    def variants(kernel: RecordedKernel) -> Iterator[Variant]:
        for name, finding in _findings(kernel):
            if finding.kind == kind:
                yield Variant(name, finding.text, finding.kernel)

    return variants


#: what `finder.MISTAKES` has of ldmatrix, by the term of an address
MISTAKES = (
    Mistake("row stride of ldmatrix", "The address of row r is start + r · stride: the bytes of a "
            "whole row of the tile in shared memory, with its padding.", _generator("stride")),
    Mistake("swizzle of ldmatrix", "Whoever writes the tile (TMA, cp.async, st) and the addresses "
            "of ldmatrix must permute the 16-byte units of a row in the same way.",
            _generator("swizzle")),
    Mistake("start address of ldmatrix", "The tile does not begin where the addresses do: look at "
            "the offset of the stage, of the warp and of the operand.", _generator("start")),
    Mistake("k step of ldmatrix", "A step along k is k · bytes of an element within a row, and "
            "with .trans k rows.", _generator("step")),
)  # fmt: skip
#: where no term of the address is wrong, or several in no simple way; behind all likelier mistakes
OF_LANES = Mistake(
    "addresses of ldmatrix", "Lanes 8 t to 8 t + 7 give the rows of tile t, the one that register "
    "t holds.", _generator("lane"),
)  # fmt: skip
