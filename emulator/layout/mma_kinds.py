"""The kinds of tcgen05.mma: element types, K, and the M and N that each may have.

PTX ISA 9.7.16 (tcgen05), tables of shapes and of the instruction descriptor. A combination that no
row has does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class MmaKind:
    """One ``.kind`` of tcgen05.mma."""

    name: str
    #: element type of A or B -> its code in the instruction descriptor
    types: dict[str, int]
    #: types of D
    d: tuple[str, ...]
    #: K of a dense and of a sparse instruction, by the K code of the descriptor
    dense_k: tuple[int, ...]
    sparse_k: tuple[int, ...]
    #: types of block scales -> their codes; none: no block scaling
    scales: dict[str, int] = field(default_factory=dict)
    #: .scale_vec or .block -> logical k that share a scale when A is dense; the default first
    vectors: dict[str, int] = field(default_factory=dict)
    #: bits that an element of A or B takes in memory; 0: as many as its type has
    container: int = 0
    #: K of a dense instruction whose elements have no container; 0: none has
    packed_k: int = 0
    #: columns of a sparse A that a metadata nibble describes, by sparsity version
    chunks: tuple[int, ...] = (4,)
    #: whether A and B in shared memory may be MN-major
    transposable: bool = True
    can_negate: bool = True
    can_saturate: bool = False

    @property
    def is_block_scaled(self) -> bool:
        return bool(self.scales)


_SMALL = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_BLOCK_32 = {"scale_vec::2X": 32, "block32": 32}
_BLOCK_16 = {"scale_vec::4X": 16, "block16": 16}

KINDS: dict[str, MmaKind] = {
    kind.name: kind
    for kind in (
        MmaKind("f16", {"f16": 0, "bf16": 1}, ("f32", "f16"), (16,), (32,)),
        MmaKind("tf32", {"tf32": 2}, ("f32",), (8,), (16,), chunks=(2,)),
        MmaKind("f8f6f4", _SMALL, ("f32", "f16"), (32, 64), (64,), container=8),
        MmaKind(
            "i8", {"u8": 0, "s8": 1}, ("s32",), (32,), (64,), can_negate=False, can_saturate=True
        ),
        # The manual's two tables disagree on whether its matrices can be transposed.
        MmaKind("ti16", {"s1z4m11": 3}, ("s32",), (16,), (32,), transposable=False),
        MmaKind(
            "mxf8f6f4", _SMALL, ("f32",), (32, 64), (64, 128), {"ue8m0": 1},
            {"scale_vec::1X": 32, "block32": 32}, container=8, packed_k=64,
        ),
        MmaKind(
            "mxf4", {"e2m1": 1}, ("f32",), (64, 96, 128), (128, 192), {"ue8m0": 1}, _BLOCK_32,
            chunks=(8, 4), transposable=False,
        ),
        MmaKind(
            "mxf4nvf4", {"e2m1": 1}, ("f32",), (64, 96, 128), (128, 192),
            {"ue4m3": 0, "ue8m0": 1, "ue5m3": 2}, {**_BLOCK_16, **_BLOCK_32}, chunks=(8, 4),
            transposable=False,
        ),
    )
}  # fmt: skip

#: type of D -> its code in the instruction descriptor
D_CODES = {"f16": 0, "f32": 1, "s32": 2}

#: `Shapes` of instructions that may be dense or sparse, and those that are one of them
_EITHER, _DENSE, _SPARSE = (False, True), (False,), (True,)


class Shapes(NamedTuple):
    """The M and N that instructions of some kinds may have."""

    kinds: str
    cta_group: int
    m: tuple[int, ...]
    n: tuple[int, ...]
    #: of instructions that are sparse, or not
    sparse: tuple[bool, ...] = _EITHER
    #: of tcgen05.mma.ws
    weight_stationary: bool = False


def _steps(step: int) -> tuple[int, ...]:
    return tuple(range(step, 257, step))


_FLOATS, _FP4 = "f16 tf32 f8f6f4", "mxf4 mxf4nvf4"
_I8_SINGLE, _I8_PAIR = (8, 16, 24, *range(32, 257, 16)), tuple(range(32, 257, 32))

SHAPES: tuple[Shapes, ...] = (
    Shapes(_FLOATS, 1, (64, 128), _steps(8)),
    Shapes(_FLOATS, 2, (128, 256), _steps(16)),
    Shapes("i8", 1, (64, 128), _I8_SINGLE),
    Shapes("ti16", 1, (64,), _steps(8)),
    Shapes("ti16", 1, (128,), _steps(16)),
    Shapes("i8", 2, (128, 256), _I8_PAIR),
    Shapes("ti16", 2, (128, 256), _steps(32)),
    Shapes(f"{_FLOATS} i8 ti16", 1, (32, 64, 128), (64, 128, 256), _DENSE, weight_stationary=True),
    Shapes(f"{_FLOATS} i8 ti16", 1, (32, 64, 128), (64, 128), _SPARSE, weight_stationary=True),
    Shapes(f"mxf8f6f4 {_FP4}", 1, (128,), _steps(8)),
    Shapes(f"mxf8f6f4 {_FP4}", 2, (128, 256), _steps(16), _DENSE),
    Shapes(f"mxf8f6f4 {_FP4}", 2, (256,), _steps(16), _SPARSE),
)


def find_shapes(
    kind: str, cta_group: int, sparse: bool = False, weight_stationary: bool = False
) -> list[Shapes]:
    """The M and N that an instruction may have: any M of a row with any N of it."""
    return [
        row
        for row in SHAPES
        if kind in row.kinds.split()
        and (row.cta_group, row.weight_stationary) == (cta_group, weight_stationary)
        and sparse in row.sparse
    ]
