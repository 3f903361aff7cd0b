"""Block scales of matrices of any size: types, shapes, and the tiled layout of GPU libraries."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from dtypes import FORMATS, Array, Format, array_type
from emulator.arrays import as_array
from emulator.errors import OperandError, one_of
from emulator.isa.matrix import MatrixInstruction
from emulator.matrices.operands import operand_codes

ScaleLayout = Literal["matrix", "128x4"]

#: the tile of the layout "128x4": rows, scales of a row
_ROWS, _SCALES = 128, 4


def check_scale_layout(given: object) -> None:
    """Raises OperandError for anything but the name of a layout."""
    one_of("scale_layout", given, get_args(ScaleLayout))


def scale_codes(
    ins: MatrixInstruction,
    scale_a: object,
    scale_b: object,
    m: int,
    n: int,
    k: int,
    layout: ScaleLayout,
) -> tuple[Array | None, Array | None]:
    """Codes ``(…, m, v)`` and ``(…, v, n)`` of whole instructions along k; None without scales.

    Raises OperandError for scales of another shape, type or layout, or that are missing.
    """
    check_scale_layout(layout)
    if not ins.is_block_scaled:
        if scale_a is not None or scale_b is not None or layout != "matrix":
            raise OperandError(f"{ins} has no block scales")
        return None, None
    fmt, block = FORMATS[ins.scale_type], ins.k // ins.scale_chunks
    if scale_a is None or scale_b is None:
        raise OperandError(
            f"{ins} needs scale_a= and scale_b=, {fmt.name} for every {block} elements of k"
        )
    count = -(-k // block)
    # What fills the last instruction up meets zeros only.
    padding = [(0, -(-k // ins.k) * ins.scale_chunks - count)]
    if layout == "matrix":
        a = _codes("scale_a", scale_a, fmt, (m, count))
        b = np.swapaxes(_codes("scale_b", scale_b, fmt, (count, n)), -1, -2)
    else:
        a, b = (
            from_tiles_of_128x4(_codes(name, x, fmt, None), rows, count, name)
            for name, x, rows in (("scale_a", scale_a, m), ("scale_b", scale_b, n))
        )
    a, b = (np.pad(x, [(0, 0)] * (x.ndim - 1) + padding) for x in (a, b))
    return a, np.swapaxes(b, -1, -2)


def _codes(name: str, given: object, fmt: Format, shape: tuple[int, ...] | None) -> Array:
    """Codes, from codes or from the type that libraries keep them in: float8_e8m0fnu for ue8m0,
    float8_e4m3fn, which has a sign that must be 0, for ue4m3. Of no `shape`: flat."""
    array = as_array(given, name)
    type_ = array_type(FORMATS["e4m3"] if fmt.name == "ue4m3" else fmt)
    if array.dtype.kind != "u" and array.dtype == type_:
        array = array.view(np.uint8)
    if shape is None:
        array, shape = array.reshape(-1), (array.size,)
    return operand_codes(name, array, fmt, shape, codes=True)


def from_tiles_of_128x4(codes: Array, rows: int, count: int, name: str = "scales") -> Array:
    """Scales ``(rows, count)`` from tiles of 128 rows by 4 scales, as cuBLAS and CUTLASS keep them.

    The scale of row r and block b of a tile is at byte ``16 (r % 32) + 4 (r // 32) + b``; the tiles
    of the same rows are neighbours. Rows and scales are filled up to whole tiles. `codes` may have
    any shape with so many elements. Source: PTX ISA, tcgen05 scale factor layout, and the cuBLAS
    manual, "1D Block Scaling Factors Layout". Raises OperandError for another number of elements.
    """
    high, wide = -(-rows // _ROWS), -(-count // _SCALES)
    need = high * wide * _ROWS * _SCALES
    if codes.size != need:
        raise OperandError(
            f"{name}: {rows} rows of {count} scales fill {high} × {wide} tiles of 128x4, {need} "
            f"codes; got {codes.size} {codes.shape}"
        )
    tiles = codes.reshape(high, wide, 32, 4, _SCALES)
    full = tiles.transpose(0, 3, 2, 1, 4).reshape(high * _ROWS, wide * _SCALES)
    return full[:rows, :count]
