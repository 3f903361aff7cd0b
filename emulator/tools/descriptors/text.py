"""The answers of ``descriptor``: what it found as lines for people, and all of it as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from emulator.layout.addressing import Int64
from emulator.layout.descriptor import Placed
from emulator.layout.tile import LINE_BYTES, LINES, CoreMatrix
from emulator.layout.validation import line_bytes
from emulator.tools.answer import Answer, render
from emulator.tools.descriptors.description import Description, Difference, StoredTile

#: rows of a table of blocks that are shown where they do not follow one rule
_SHOWN = 16


def word_answer(found: Description, parts: Difference | None = None) -> Answer:
    """One word, and how it differs from what is needed; code 1 where either is wrong."""
    wrong = not found.is_legal or (parts is not None and not parts.is_same)
    per_k = found.tile.per_k if found.tile else 1
    lines = [*_head(found), *_findings(found)]
    if parts is not None:
        lines += ["", *_difference(found, parts)]
    lines += _matrices(found)
    return Answer(lines, _data(found) | (_parts(parts, per_k) if parts else {}), int(wrong))


def build_answer(
    found: Description, stored: StoredTile, placed: Placed, steps: list[tuple[int, int]]
) -> Answer:
    """The word that a stored tile needs, where the tile lies, and the words along k."""
    first, size = stored.start_address, placed.size
    lines = [
        *_head(found), *_findings(found), "",
        f"the stored tile takes bytes {first:#x}-{first + size - 1:#x} ({size})",
    ]  # fmt: skip
    if len(steps) > 1:
        width = steps[1][0] - steps[0][0]
        rows = [[_span(column, width), _hex(word)] for column, word in steps]
        lines += ["", *render(["columns", "word"], rows, "text")]
    lines += _matrices(found)
    data = _data(found) | {
        "stored": asdict(stored),
        "stored_bytes": [first, first + size - 1],
        "along_k": [{"column": column, "word": _hex(word)} for column, word in steps],
    }
    return Answer(lines, data, int(not found.is_legal))


def _hex(word: int) -> str:
    return f"{word:#018x}"


def _span(first: int, count: int) -> str:
    return f"{first}-{first + count - 1}" if count > 1 else str(first)


# --- the word -------------------------------------------------------------------------------------


def _head(found: Description) -> Iterator[str]:
    yield _hex(found.word)
    if found.tile:
        yield f"{found.tile.ins}, {found.tile}"
    yield ""
    rows = [
        [f"{field.high}:{field.low}", field.name, f"{field.raw:#x}", field.meaning]
        for field in found.fields
        if field.name != "unused" or field.raw
    ]
    yield from render(["bits", "field", "raw", "meaning"], rows, "text")


def _findings(found: Description) -> Iterator[str]:
    yield ""
    for finding in found.findings:
        yield f"{finding.level}: {finding.message}"
        yield f"  legal: {finding.legal}"
    if not found.findings:
        yield (
            "nothing is wrong with it"
            if found.tile
            else (
                "no fault can be seen without an instruction: give an opcode, --operand and --major"
            )
        )


def _difference(found: Description, parts: Difference) -> Iterator[str]:
    yield f"{parts.stored},"
    yield f"needs {_hex(int(parts.needed.descriptor.encode()))}"
    if parts.fields:
        rows = [[name, str(have), str(want)] for name, (have, want) in parts.fields.items()]
        yield from render(["field", "this word", "needed"], rows, "text")
    assert found.tile is not None
    per_k, shape = found.tile.per_k, found.tile.shape
    if parts.is_same:
        yield "the same bytes are read" + (": these fields do not count" if parts.fields else "")
        return
    (row, column), (have, want) = parts.wrong[0], parts.first or (0, 0)
    yield (
        f"{len(parts.wrong) * per_k} of {shape.rows * shape.k * per_k} elements come from wrong "
        f"bytes, first (row {row}, column {column}) from {have:#x} instead of {want:#x}"
    )
    for fault in parts.faults:
        names = " and ".join(fault.fields) if len(fault.fields) < 3 else "all fields"
        yield (
            f"likely fault in {names}: {'; or '.join(fault.mistakes)}"
            if fault.mistakes
            else (f"{names}: no usual mistake makes this value")
        )


# --- core matrices --------------------------------------------------------------------------------


def _grid(found: Description) -> tuple[list[CoreMatrix], Int64]:
    """Core matrices, and the first byte of every line ``(i, j, line)``."""
    matrices = list(found.core_matrices)
    wide = len({matrix.columns.start for matrix in matrices})
    firsts = np.array([[line.start for line in matrix.lines] for matrix in matrices])
    return matrices, firsts.reshape(-1, wide, LINES)


def _matrices(found: Description) -> Iterator[str]:
    """Core matrix (i, j) by its bytes; of a swizzled tile first the lines of one block."""
    if not found.tile:
        return
    _, firsts = _grid(found)
    by_rows = found.tile.shape.major == "k"
    units = line_bytes(found.descriptor.swizzle_bytes) // LINE_BYTES
    high, wide = (1, units) if by_rows else (units, 1)
    if units > 1:
        yield from _lines_of_a_block(found, firsts[:high, :wide], by_rows)
    yield from _blocks(found, firsts, high, wide)


def _labels(found: Description) -> tuple[list[str], list[str]]:
    """Rows and columns (in elements) of the core matrices, by i and by j."""
    per_k = found.tile.per_k if found.tile else 1
    rows = {m.rows.start: _span(m.rows.start, len(m.rows)) for m in found.core_matrices}
    columns = {
        m.columns.start: _span(m.columns.start * per_k, len(m.columns) * per_k)
        for m in found.core_matrices
    }
    return list(rows.values()), list(columns.values())


def _lines_of_a_block(found: Description, firsts: Int64, by_rows: bool) -> Iterator[str]:
    """Where the 16 bytes of every line of the first core matrices land."""
    rows, columns = _labels(found)
    per_k = found.tile.per_k if found.tile else 1
    if by_rows:
        header = ["row", *columns[: firsts.shape[1]]]
        which, cells = f"(0,{_span(0, firsts.shape[1])})", firsts[0].T
    else:
        header = ["k", *rows[: firsts.shape[0]]]
        which, cells = f"({_span(0, firsts.shape[0])},0)", firsts[:, 0].T
    header[1] = f"{'k' if by_rows else 'rows'} {header[1]}"
    yield ""
    yield f"where the 16 bytes of each line of core matrices {which} start:"
    named = [str(line) if by_rows else _span(line * per_k, per_k) for line in range(LINES)]
    body = [[name, *(f"{x:#x}" for x in line)] for name, line in zip(named, cells, strict=True)]
    yield from render(header, body, "text")


def _blocks(found: Description, firsts: Int64, high: int, wide: int) -> Iterator[str]:
    """The bytes of the blocks within which a swizzle permutes; without one, of core matrices."""
    rows, columns = _labels(found)
    ways = [range(0, count, step) for count, step in zip(firsts.shape, (high, wide), strict=False)]
    if len(ways[0]) * len(ways[1]) == 1 and high * wide > 1:
        return
    parts = [[firsts[i : i + high, j : j + wide] for j in ways[1]] for i in ways[0]]
    body, marked = [], False
    for i, line in zip(ways[0], parts, strict=True):
        cells = []
        for part in line:
            other = not np.array_equal(part - part.min(), parts[0][0] - parts[0][0].min())
            marked |= other
            cells.append(f"{part.min():#x}-{part.max() + LINE_BYTES - 1:#x}{'*' if other else ''}")
        body.append([_joined(i, high, firsts.shape[0]), _ends(rows[i : i + high]), *cells])
    header = ["i", "rows", *(f"j={_joined(j, wide, firsts.shape[1])}, k "
                             f"{_ends(columns[j : j + wide])}" for j in ways[1])]  # fmt: skip
    blocks = ", a swizzled block at a time, first to last" if high * wide > 1 else ""
    yield ""
    yield f"bytes of core matrices (i,j){blocks}:"
    lines = render(header, body, "text")
    steps = {tuple(int((b - a).flat[0]) for a, b in zip(x, y, strict=True))
             for x, y in pairwise(parts)}  # fmt: skip
    if len(body) > 4 and len(steps) == 1 and not marked:
        (step,) = steps
        yield from lines[:3]
        yield f"…  each {' and '.join(dict.fromkeys(f'{x:#x}' for x in step))} further"
        yield lines[-1]
    else:
        yield from lines[: 1 + _SHOWN]
        if len(body) > _SHOWN:
            yield f"…  {len(body) - _SHOWN} more, see --json"
    if marked:
        yield "* permuted otherwise than the first"


def _joined(first: int, step: int, count: int) -> str:
    return _span(first, min(step, count - first))


def _ends(labels: list[str]) -> str:
    return f"{labels[0].split('-')[0]}-{labels[-1].split('-')[-1]}"


# --- data -----------------------------------------------------------------------------------------


def _data(found: Description) -> dict[str, Any]:
    data: dict[str, Any] = {
        "word": _hex(found.word),
        "fields": [field._asdict() for field in found.fields],
        "findings": [finding._asdict() for finding in found.findings],
        "legal": found.is_legal,
    }
    if found.tile is None:
        return data
    tile, (matrices, firsts) = found.tile, _grid(found)
    return data | {
        "opcode": str(tile.ins), "operand": tile.operand, "major": tile.shape.major,
        "rows": tile.shape.rows, "columns": tile.shape.k * tile.per_k,
        "core_matrices": [
            {
                "i": place // firsts.shape[1], "j": place % firsts.shape[1],
                "rows": [matrix.rows[0], matrix.rows[-1]],
                "columns": [matrix.columns[0] * tile.per_k,
                            (matrix.columns[-1] + 1) * tile.per_k - 1],
                "lines": [[line[0], line[-1]] for line in matrix.lines],
            }
            for place, matrix in enumerate(matrices)
        ],
    }  # fmt: skip


def _parts(parts: Difference, per_k: int) -> dict[str, Any]:
    return {
        "stored": asdict(parts.stored),
        "needed": _hex(int(parts.needed.descriptor.encode())),
        "same_bytes": parts.is_same,
        "differences": [
            {"field": name, "word": have, "needed": want}
            for name, (have, want) in parts.fields.items()
        ],
        "wrong_elements": len(parts.wrong) * per_k,
        "faults": [
            {"fields": list(fault.fields), "mistakes": list(fault.mistakes)}
            for fault in parts.faults
        ],
    }
