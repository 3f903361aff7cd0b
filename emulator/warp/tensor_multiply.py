"""``TensorProduct``: what one tcgen05.mma computes, of codes of whole matrices.

It is pure: `tensor_mma` brings the matrices from memory and takes D back there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Format
from emulator.arith import Engine, matmul
from emulator.arith.evidence import Fidelity, find_fidelity
from emulator.arith.recipes import Arithmetic, Row, find_recipe
from emulator.errors import OperandError, UndefinedError, UnsupportedError, listing, shown, whole
from emulator.layout.instruction_descriptor import TARGETED, InstructionDescriptor
from emulator.layout.mma_kinds import KINDS
from emulator.targets import Target
from emulator.warp.call import Undefined
from emulator.warp.sparse import Compressed, check_metadata, matmul_compressed

#: the largest scale-input-d, and the types of D that can have one
MAX_SCALE_INPUT_D, SCALED_D = 15, ("f16", "tf32")


@dataclass(frozen=True)
class TensorProduct:
    """D = A·B + D of one instruction descriptor on a target: A is m × k, B is k × n.

    Raises UnsupportedError where no recipe is known, OperandError for a vector or scale-input-d
    that the kind lacks.
    """

    instruction: InstructionDescriptor
    target: Target
    #: .scale_vec or .block of the opcode; "": what the kind has by default
    vector: str = ""
    #: scale-input-d: the old D counts 2**-s as much
    scale_input_d: int = 0

    def __post_init__(self) -> None:
        kind = KINDS[self.instruction.kind]
        if self.instruction.not_modelled:
            raise UnsupportedError(f"{self.instruction.not_modelled}: not modelled here")
        if self.vector not in ("", *kind.vectors):
            raise OperandError(
                f"kind {kind.name} takes {listing(kind.vectors) or 'no scale vector'}; got "
                f"{shown(self.vector)}"
            )
        whole("scale-input-d", self.scale_input_d, 0, MAX_SCALE_INPUT_D)
        if self.scale_input_d and kind.name not in SCALED_D:
            raise OperandError(f"scale-input-d is for kinds f16 and tf32; got kind {kind.name}")
        _ = self.recipe  # may raise
        for finding in self.instruction.findings(target=self.target):
            if finding.level == "error" and finding.field in TARGETED:
                raise UnsupportedError(f"{finding.message}; legal: {finding.legal}")
        if kind.is_block_scaled and self.scale_type != "ue8m0" and self.scale_width != 16:
            raise OperandError(f"scales of {self.scale_type} go with .scale_vec::4X or .block16")

    # --- facts ---

    @property
    def m(self) -> int:
        return self.instruction.m

    @property
    def n(self) -> int:
        return self.instruction.n

    @property
    def k(self) -> int:
        return self.instruction.k

    @property
    def is_sparse(self) -> bool:
        return self.instruction.sparse

    @property
    def stored_k(self) -> int:
        """Columns of A that are stored: k, or k / 2 of a sparse A."""
        return self.k // 2 if self.is_sparse else self.k

    @property
    def chunk(self) -> int:
        """Columns of A that one metadata nibble describes."""
        return self.instruction.chunk

    @property
    def a_type(self) -> str:
        return self.instruction.a

    @property
    def family(self) -> str:
        return "tcgen05.mma.sp" if self.is_sparse else "tcgen05.mma"

    @property
    def ordered_metadata(self) -> bool:
        return True

    @property
    def scale_type(self) -> str | None:
        return self.instruction.scale

    @property
    def scale_width(self) -> int:
        """Stored elements of a row of A that share a scale; 0 without block scaling."""
        vectors = KINDS[self.instruction.kind].vectors
        return vectors[self.vector or next(iter(vectors))] if vectors else 0

    @property
    def scales(self) -> int:
        """Scales of a row of A and of a column of B; 0 without block scaling."""
        return self.stored_k // self.scale_width if self.scale_width else 0

    @property
    def format_c(self) -> Format:
        return FORMATS[self.instruction.d]

    @cached_property
    def recipe(self) -> Row:
        """The recipe that the target computes it by."""
        x = self.instruction
        kind = x.kind if KINDS[x.kind].is_block_scaled else None
        row = find_recipe("tcgen05", self.target.generation, x.a, x.d, kind)
        if row is None:
            raise UnsupportedError(
                f"tcgen05.mma of kind {x.kind} on {self.target}: no such recipe is known"
            )
        return row

    @cached_property
    def arithmetic(self) -> Arithmetic:
        x = self.instruction
        return Arithmetic(
            FORMATS[x.a],
            FORMATS[x.b],
            FORMATS[x.d],
            FORMATS[x.d],
            self.recipe.steps,
            FORMATS[x.scale] if x.scale else None,
            saturate=x.saturate,
            c_shift=self.scale_input_d,
        )

    @property
    def fidelity(self) -> Fidelity:
        """Fidelity of the result: exact for integers, else modelled, and from what."""
        x = self.instruction
        return find_fidelity(
            self.target.generation, "tcgen05.mma", d=x.d, source=self.recipe.source
        )

    # --- the product ---

    def multiply(
        self,
        a: Array,
        b: Array,
        c: Array,
        scale_a: Array | None = None,
        scale_b: Array | None = None,
        nibbles: Array | None = None,
        *,
        engine: Engine = "auto",
        undefined: Undefined = "raise",
    ) -> Array:
        """Codes ``(…, m, n)`` of A ``(…, m, stored k)``, B ``(…, k, n)`` and C ``(…, m, n)``.

        Scales are ``(…, m, v)`` and, by columns of B, ``(…, n, v)``; nibbles ``(…, m, chunks)`` of
        a sparse A. Any number of rows and columns will do. Raises UndefinedError for nibbles that
        PTX leaves undefined.
        """
        x = self.instruction
        for name, type_, codes in (("A", x.a, a), ("B", x.b, b)):
            _check_unused_bits(name, FORMATS[type_], codes)
        if x.negate_a:
            a = a ^ a.dtype.type(FORMATS[x.a].sign_mask)
        if x.negate_b:
            b = b ^ b.dtype.type(FORMATS[x.b].sign_mask)
        if nibbles is None:
            return matmul(
                self.arithmetic, a, np.swapaxes(b, -1, -2), c, scale_a, scale_b, engine=engine
            )
        part = _Part(a.shape[-2], b.shape[-1], self.k, self.stored_k, self.chunk, self.a_type)
        if undefined == "raise":
            check_metadata(part, nibbles, a)
        operands = Compressed(a, nibbles, b, c, scale_a, scale_b)
        return matmul_compressed(part, self.arithmetic, operands, engine=engine)


def _check_unused_bits(name: str, fmt: Format, codes: Array) -> None:
    """Raises UndefinedError where bits of a code are set that must be 0."""
    if fmt.unused_mask and (wrong := codes & codes.dtype.type(fmt.unused_mask)).any():
        *case, row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise UndefinedError(
            f"{name}[{row}][{column}] of {fmt.name} is {int(codes[(*case, row, column)]):#06x}: "
            f"the bits of {fmt.unused_mask:#06x} must be 0"
        )


class _Part(NamedTuple):
    """Some rows and columns of a sparse product."""

    m: int
    n: int
    k: int
    stored_k: int
    chunk: int
    a_type: str
    family: str = "tcgen05.mma.sp"
    ordered_metadata: bool = True


# --- the zero-column mask of tcgen05.mma.ws -------------------------------------------------------


class ZeroColumns(NamedTuple):
    """The meaning of a zero-column mask for the columns of a product."""

    #: bool ``(n,)``: columns of B that read as zero
    zero: NDArray[np.bool_]
    #: column n of the product uses column n + shift of B
    shift: int


def zero_columns(mask: int, m: int, n: int) -> ZeroColumns:
    """The 64-bit zero-column mask of a tcgen05.mma.ws of that M and N (PTX ISA 9.7.16.4.3).

    Each 128 / m of the columns has a sub-mask with a start and a first span of its own; spans of
    `use` columns that are used and of `skip` that are not follow each other.

    >>> zero_columns(1 << 39, 128, 64).zero[:4].tolist()
    [False, True, False, True]
    """
    mask = whole("a zero-column mask of 64 bits", mask, 0, (1 << 64) - 1)
    zero = np.zeros(n, np.bool_)
    if mask >> 39 & 1:
        skip, use = (mask >> 40 & 0xFF) + 1, (mask >> 48 & 0xFF) + 1
        blocks = 128 // m
        for i in range(blocks):
            place = ((mask >> 8 * i & 0xFF) + np.arange(n // blocks)) % (use + skip)
            skips_first = mask >> 32 + i & 1
            part = slice(i * n // blocks, (i + 1) * n // blocks)
            zero[part] = place < skip if skips_first else place >= use
    return ZeroColumns(zero, mask >> 56 & 0x3F)
