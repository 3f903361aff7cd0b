"""Packed fp8, fp6 and fp4 arithmetic, and the sparse form of register vectors: PTX ISA 9.4."""

from collections.abc import Iterator

from emulator.isa.ordinary.row import Row
from emulator.targets import having

_SMALL_FLOATS = having("add.e4m3x4")
_SPARSE = having("spcompress")
_RESULTS = "to=e4m3x4|e5m2x4"
_SOURCES = "e4m3x4|e5m2x4|e2m3x4|e3m2x4|e2m1p4x4|ue8m0x4|e2m1x4"
_ROUNDED = "{.rounding=rn}{.satfinite}"

_ARITHMETIC = (
    *(
        Row(
            f"{name}{_ROUNDED}.{_RESULTS}.atype={_SOURCES}",
            "d$:to, a$:atype, c$:to",
            f"small_floats.{name}",
            _SMALL_FLOATS,
            "9.4",
        )
        for name in ("add", "sub")
    ),
    Row(
        f"mul{_ROUNDED}.{_RESULTS}.atype={_SOURCES}.btype={_SOURCES}",
        "d$:to, a$:atype, b$:btype",
        "small_floats.mul",
        _SMALL_FLOATS,
        "9.4",
    ),
    Row(
        f"fma{_ROUNDED}.{_RESULTS}.atype={_SOURCES}.btype={_SOURCES}",
        "d$:to, a$:atype, b$:btype, c$:to",
        "small_floats.fma",
        _SMALL_FLOATS,
        "9.4",
    ),
)

_COUNTS = (1, 2, 4, 8, 16, 32, 64)
#: S:T, elements kept of how many
_GROUPS = ((1, 2), (1, 4), (1, 8), (1, 16), (2, 4), (2, 8), (2, 16), (4, 8), (4, 16))
#: registers that the operands of an instruction may have together
_MOST_REGISTERS = 253


def _registers(bits: int) -> int:
    return -(-bits // 32)


def _compressions() -> Iterator[Row]:
    for element in (8, 16):
        for index in (2, 4):
            for count in _COUNTS:
                positions = -(-count * index // element)
                if positions + 3 * count <= _MOST_REGISTERS:
                    yield Row(
                        f"spcompress.element=b{element}.index=b{index}.sp=sp::2:4.count=x{count}",
                        f"{{mdata!:b32*{positions}}}, {{cdata!:b32*{count}}}, "
                        f"{{data:b32*{2 * count}}}, spdesc%:b32",
                        "sparse_vectors.compress", _SPARSE, "9.4",
                    )  # fmt: skip


def _decompressions() -> Iterator[Row]:
    for element in (8, 16):
        for index in (2, 4):
            for kept, group in _GROUPS:
                if kept * element > 32 or (index == 2 and group > 4):
                    continue
                for count in _COUNTS:
                    bits = group * element * count
                    positions = _registers(kept * index * count)
                    elements = _registers(kept * element * count)
                    everything = positions + elements + _registers(bits)
                    if 32 <= bits <= 4096 and everything <= _MOST_REGISTERS:
                        yield Row(
                            f"spdecompress.element=b{element}.index=b{index}.sp=sp::{kept}:{group}"
                            f".count=x{count}",
                            f"{{d:b32*{_registers(bits)}}}, {{mdata%:b32*{positions}}}, "
                            f"{{cdata%:b32*{elements}}}",
                            "sparse_vectors.decompress", _SPARSE, "9.4",
                        )  # fmt: skip


ROWS = (*_ARITHMETIC, *_compressions(), *_decompressions())
