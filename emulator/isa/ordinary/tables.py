"""All rows of ordinary instructions."""

from emulator.isa.ordinary import (
    approximate,
    asynchronous,
    atomics,
    comparison,
    control,
    conversion,
    fabric,
    floating,
    integer,
    lanes,
    memory,
    packed,
    surfaces,
    textures,
    video,
)
from emulator.isa.ordinary.row import Row

ROWS: tuple[Row, ...] = (
    *integer.ROWS,
    *floating.ROWS,
    *approximate.ROWS,
    *comparison.ROWS,
    *conversion.ROWS,
    *lanes.ROWS,
    *video.ROWS,
    *memory.ROWS,
    *atomics.ROWS,
    *packed.ROWS,
    *control.ROWS,
    *asynchronous.ROWS,
    *textures.ROWS,
    *surfaces.ROWS,
    *fabric.ROWS,
)
