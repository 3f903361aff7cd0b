"""``MatrixInstruction``: one mma, mma.sp or wgmma, its facts derived from the table's row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from dtypes import FORMATS, Place, place
from emulator.arith.evidence import Fidelity, find_fidelity
from emulator.arith.recipes import Arithmetic, Row, find_recipe, with_recipe
from emulator.errors import OperandError, UnsupportedError, hint, listing
from emulator.isa.fragments import fragments_of
from emulator.isa.instruction import Instruction
from emulator.isa.table import Form
from emulator.layout.fragment import Fragment
from emulator.targets import Target, find_target

#: elements of a metadata chunk, by bits of an A element: 2:4, 1:2 for tf32, pair-wise 4:8
CHUNK = {32: 2, 16: 4, 8: 4, 6: 4, 4: 8}


@dataclass(frozen=True, repr=False)
class MatrixInstruction(Instruction):
    """One mma, mma.sp or wgmma. A is m × k, B is k × n, C and D are m × n."""

    form: Form
    m: int
    n: int
    k: int
    d_type: str
    a_type: str
    b_type: str
    c_type: str
    layouts: tuple[str, str] = ("row", "col")
    satfinite: bool = False
    rounding: Literal["rn", "rz", "rm", "rp"] = "rn"
    scale_vec: str = ""
    scale_type: str = ""
    ordered_metadata: bool = False

    def __str__(self) -> str:
        family = self.form.family
        words = ["wgmma.mma_async" if self.is_wgmma else "mma"]
        if self.is_sparse:
            words.append("sp::ordered_metadata" if self.ordered_metadata else "sp")
        words += ["sync", "aligned", self.shape]
        if not self.is_wgmma:
            words += self.layouts
        if self.form.kind:
            words.append(f"kind::{self.form.kind}")
        if self.scale_vec:
            words += ["block_scale", f"scale_vec::{self.scale_vec}"]
        if self.satfinite:
            words.append("satfinite")
        words += [self.d_type, self.a_type, self.b_type]
        if family.startswith("mma"):
            words.append(self.c_type)
        if self.scale_type:
            words.append(self.scale_type)
        if self.rounding != "rn":
            words.append(self.rounding)
        if self.form.bit_operation:
            words += [self.form.bit_operation, "popc"]
        return ".".join(words)

    # --- facts ---

    @property
    def shape(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def family(self) -> str:
        """mma, mma.sp, mma.sp::ordered_metadata, wgmma or wgmma.sp."""
        return self.form.family + ("::ordered_metadata" if self.ordered_metadata else "")

    @property
    def is_sparse(self) -> bool:
        return bool(self.form.metadata)

    @property
    def is_wgmma(self) -> bool:
        return bool(self.form.n)

    @property
    def lanes(self) -> int:
        """Lanes that execute it together: a warp of 32 or a warpgroup of 128."""
        return 128 if self.is_wgmma else 32

    @property
    def is_block_scaled(self) -> bool:
        return bool(self.scale_type)

    @property
    def targets(self) -> tuple[str, ...]:
        """Every target whose assembler takes the instruction, and whose recipe is known."""
        kind = self.form.kind if self.is_block_scaled else None
        return with_recipe(self.form.targets, self.form.pipe, self.a_type, self.d_type, kind)

    @property
    def stored_k(self) -> int:
        """Columns of A that are stored: k, or k / 2 of a sparse A."""
        return self.k // 2 if self.is_sparse else self.k

    @property
    def chunk(self) -> int:
        """Columns of A that one metadata nibble describes (sparse instructions)."""
        return CHUNK[self.a_place.width if self.form.container is None else 8]

    @property
    def scale_chunks(self) -> int:
        """Scales of a row of A and of a column of B: 1, 2 or 4; 0 without block scaling."""
        return int(self.scale_vec[0]) if self.scale_vec else 0

    @property
    def a_place(self) -> Place:
        return place(FORMATS[self.a_type], self.form.container)

    @property
    def b_place(self) -> Place:
        return place(FORMATS[self.b_type], self.form.container)

    # --- layout ---

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands that registers hold, in PTX order."""
        names = ["d", "a"] if self.is_wgmma else ["d", "a", "b", "c"]
        names += ["e"] if self.is_sparse else []
        names += ["scale_a", "scale_b"] if self.is_block_scaled else []
        return tuple(names)

    def fragment(self, operand: str) -> Fragment:
        """How lanes hold operand a, b, c, d, e (sparsity metadata), scale_a or scale_b.

        The accumulator of wgmma is d, and c is another name for it. Its B is in shared memory and
        has no fragment; its A has one, for the form that takes A from registers. A of a sparse
        instruction is the compressed m × k/2 matrix. Raises OperandError for any other name.
        """
        if self.is_wgmma and operand == "c":
            operand = "d"
        fragment = self._fragments.get(operand)
        if fragment is None:
            where = ""
            if self.is_wgmma and operand == "b":
                where = (
                    ": b lies in shared memory (`descriptor` and `view --operand b` of the command "
                    "line show where)"
                )
            raise OperandError(
                f"{self} has no fragment {operand!r:.80}{where}; its register operands are "
                f"{listing(self.operands)}{hint(operand, self.operands)}"
            )
        return fragment

    @cached_property
    def _fragments(self) -> dict[str, Fragment]:
        return fragments_of(self)

    # --- arithmetic ---

    def recipe(self, target: str | Target) -> Row:
        """The recipe that `target` computes the instruction by.

        Raises UnsupportedError where the target lacks the instruction.
        """
        chosen = find_target(target)
        if chosen.name not in self.targets:
            raise UnsupportedError(
                f"{self} is not available on {chosen}; its targets are {listing(self.targets, 30)}"
            )
        kind = self.form.kind if self.is_block_scaled else None
        row = find_recipe(self.form.pipe, chosen.generation, self.a_type, self.d_type, kind)
        assert row is not None, "or the target would not be one of its targets"
        return row

    def fidelity(self, target: str | Target) -> Fidelity:
        """How sure the result on `target` is: exact, validated or modelled, and why.

        Raises UnsupportedError where the target lacks the instruction.
        """
        source = self.recipe(target).source
        generation = find_target(target).generation
        return find_fidelity(
            generation, self.form.family, self.shape, self.a_type, self.d_type, source
        )

    def arithmetic(self, target: str | Target) -> Arithmetic:
        """What an engine needs to compute the instruction's dot products on `target`."""
        return _arithmetic(self, find_target(target))


@lru_cache(maxsize=1024)
def _arithmetic(ins: MatrixInstruction, target: Target) -> Arithmetic:
    return Arithmetic(
        FORMATS[ins.a_type],
        FORMATS[ins.b_type],
        FORMATS[ins.c_type],
        FORMATS[ins.d_type],
        ins.recipe(target).steps,
        FORMATS[ins.scale_type] if ins.scale_type else None,
        ins.rounding,
        ins.satfinite,
        ins.form.bit_operation or None,  # type: ignore[arg-type]
    )
