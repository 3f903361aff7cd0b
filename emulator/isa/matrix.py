"""``MatrixInstruction``: one mma, mma.sp or wgmma, its facts derived from the table's row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from dtypes import FORMATS, Format, Place, place
from emulator.errors import OperandError, listing
from emulator.isa.instruction import Instruction, version_numbers
from emulator.isa.matrix_forms import LATER, Later, MatrixForm
from emulator.isa.register_types import (
    DESCRIPTOR,
    PREDICATE,
    SCALE_ID,
    Matrices,
    hexadecimal,
    is_called,
    matrix_types,
)
from emulator.isa.signature import Constants, Operand, Signature, Use
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import lane_map
from emulator.targets import Target, find_target

if TYPE_CHECKING:
    from emulator.arith.evidence import Fidelity
    from emulator.arith.recipes import Arithmetic, Row
    from emulator.arith.steps import Step

Rounding = Literal["rn", "rz", "rm", "rp"]


class OwnSteps(Protocol):
    """The interface through which an instruction uses a `Recipe`."""

    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def fidelity(self) -> Fidelity: ...
    def applied(self, stated: Arithmetic, k: int, what: object) -> Arithmetic: ...


ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)

#: elements of a metadata chunk, by bits of an A element: 2:4, 1:2 for tf32, pair-wise 4:8
CHUNK = {32: 2, 16: 4, 8: 4, 6: 4, 4: 8}
#: one metadata nibble: two 2-bit indices of a chunk
_NIBBLE = Place(4, 0, 4)
#: immediates of wgmma -> what they may be; the first changes nothing
IMMEDIATES = {
    "imm_scale_a": (1, -1), "imm_scale_b": (1, -1), "imm_trans_a": (0, 1), "imm_trans_b": (0, 1),
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class MatrixInstruction(Instruction):
    """One mma, mma.sp or wgmma. A is m × k, B is k × n, C and D are m × n."""

    form: MatrixForm
    m: int
    n: int
    k: int
    d_type: str
    a_type: str
    b_type: str
    c_type: str
    layouts: tuple[str, str] = ("row", "col")
    satfinite: bool = False
    rounding: Rounding = "rn"
    scale_vec: str = ""
    scale_type: str = ""
    ordered_metadata: bool = False

    def __hash__(self) -> int:
        # Without the form, which is the row of a table: every call looks instructions up.
        return hash((self.m, self.n, self.k, self.d_type, self.a_type, self.b_type, self.layouts))

    @property
    def name(self) -> str:
        return "wgmma.mma_async" if self.is_wgmma else "mma"

    @cached_property
    def opcode_words(self) -> dict[str, str]:
        form, types = self.form, [self.d_type, self.a_type, self.b_type]
        types += [] if form.updates_d else [self.c_type]
        types += [self.scale_type] if self.scale_type else []
        sparse = "sp::ordered_metadata" if self.ordered_metadata else "sp"
        return {
            "sparse modifier": sparse if self.is_sparse else "",
            "sync": "sync",
            "aligned": "aligned",
            "shape": self.shape,
            "layout": "" if self.is_wgmma else ".".join(self.layouts),
            "kind": form.kind and f"kind::{form.kind}",
            "block_scale": "block_scale" if self.scale_vec else "",
            "scale_vec": self.scale_vec and f"scale_vec::{self.scale_vec}",
            "satfinite": "satfinite" if self.satfinite else "",
            "types": ".".join(types),
            "rounding": "" if self.rounding == "rn" else self.rounding,
            "bit operation": form.bit_operation,
            "popc": "popc" if form.bit_operation else "",
        }

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
        return self.form.scope == "warpgroup"

    @property
    def negated(self) -> tuple[bool, bool]:
        """For A and for B, True if an instruction descriptor has all signs flipped first."""
        return False, False

    @property
    def is_block_scaled(self) -> bool:
        return bool(self.scale_type)

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """Every target whose assembler takes the instruction, and whose recipe is known."""
        from emulator.arith.recipes import with_recipe

        kind = self.form.kind if self.is_block_scaled else None
        return with_recipe(self.form.targets, self.form.pipe, self.a_type, self.d_type, kind)

    @property
    def ptx_version(self) -> tuple[int, int]:
        later = [version_numbers(row.version) for row in LATER if self._is_of(row)]
        return max([super().ptx_version, *later])

    def _is_of(self, later: Later) -> bool:
        own = {
            "family": self.form.family, "a": self.a_type, "b": self.b_type, "d": self.d_type,
            "scale": f"{self.scale_vec}.{self.scale_type}",
        }  # fmt: skip
        alike = (
            getattr(later, x) in ("", y) or y in getattr(later, x).split() for x, y in own.items()
        )
        return all(alike) and later.ordered_metadata <= self.ordered_metadata

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

    # --- operands ---

    def fragment(self, operand: str) -> Fragment:
        """The lane map of operand a, b, c, d, e (sparsity metadata), scale_a or scale_b.

        The accumulator of wgmma is d, and c is another name for it. Its B is in shared memory and
        has no fragment; its A has one, for the form that takes A from registers. A of a sparse
        instruction is the compressed m × k/2 matrix. Raises OperandError for any other name.
        """
        if not isinstance(operand, str):
            return super().fragment(operand)
        if self.form.updates_d and operand == "c":
            operand = "d"
        if operand == "b" and self.form.b_kind == "descriptor":
            raise OperandError(
                f"{self} has no fragment 'b': b lies in shared memory (`descriptor` and "
                "`view --operand b` of the command line show where); its operands in registers are "
                f"{listing(self.fragments)}"
            )
        return super().fragment(operand)

    @cached_property
    def fragments(self) -> dict[str, Fragment]:
        return {fragment.operand: fragment for fragment in _fragments(self)}

    def signatures(self, target: str | Target | None = None) -> tuple[Signature, ...]:
        """One for each place of A: registers, or for wgmma a descriptor of shared memory, too."""
        return _signatures(self, "" if target is None else self.check_target(target).name)

    @property
    def options(self) -> tuple[str, ...]:
        # A wgmma whose types leave an immediate out computes as with its first value.
        absent = IMMEDIATES if self.form.immediates else {}
        return tuple(dict.fromkeys((*super().options, *absent)))

    def legal_ids(self, operand: str) -> tuple[range, range]:
        """Legal byte-ids and thread-ids of operand scale_a or scale_b."""
        threads = 2 if operand == "scale_a" else 4
        return range(0, 4, self.scale_chunks), range(threads)

    # --- arithmetic ---

    def recipe(self, target: str | Target) -> Row:
        """The recipe that `target` computes the instruction by.

        Raises UnsupportedError where the target lacks the instruction.
        """
        from emulator.arith.recipes import find_recipe

        chosen = self.check_target(target)
        kind = self.form.kind if self.is_block_scaled else None
        row = find_recipe(self.form.pipe, chosen.generation, self.a_type, self.d_type, kind)
        assert row is not None, "or the target would not be one of its targets"
        return row

    def fidelity(self, target: str | Target | OwnSteps) -> Fidelity:
        """Fidelity of the result on `target`: exact, validated or modelled, and why; of a recipe
        that it is your own.

        Raises UnsupportedError where the target lacks the instruction.
        """
        if not isinstance(target, (str, Target)):
            return _own(target).fidelity
        from emulator.arith.evidence import find_fidelity

        source = self.recipe(target).source
        generation = find_target(target).generation
        return find_fidelity(
            generation, self.form.family, str(self), self.shape, self.d_type, source
        )

    def arithmetic(self, target: str | Target | OwnSteps) -> Arithmetic:
        """The recipe and formats that an engine needs for the instruction's dot products on
        `target`, or by a recipe of your own.

        Raises UnsupportedError where the target lacks the instruction, OperandError for a recipe
        that does not suit it.
        """
        if isinstance(target, (str, Target)):
            return _arithmetic(self, find_target(target))
        own = _own(target)
        return own.applied(_stated(self, own.steps), self.stored_k, self)


def _own(given: Any) -> OwnSteps:
    """The recipe that stands in the place of a target; OperandError for what is neither."""
    if not hasattr(given, "applied"):
        find_target(given)
    own: OwnSteps = given
    return own


@lru_cache(maxsize=1024)
def _arithmetic(ins: MatrixInstruction, target: Target) -> Arithmetic:
    return _stated(ins, ins.recipe(target).steps)


def _stated(ins: MatrixInstruction, steps: tuple[Step, ...]) -> Arithmetic:
    """The types and modifiers that the opcode states, with steps."""
    from emulator.arith.recipes import Arithmetic

    return Arithmetic(
        FORMATS[ins.a_type],
        FORMATS[ins.b_type],
        FORMATS[ins.c_type],
        FORMATS[ins.d_type],
        steps,
        FORMATS[ins.scale_type] if ins.scale_type else None,
        ins.rounding,
        ins.satfinite,
        ins.form.bit_operation or None,  # type: ignore[arg-type]
    )


# --- fragments ------------------------------------------------------------------------------------


def _fragments(ins: MatrixInstruction) -> Iterator[Fragment]:
    yield _accumulator(ins, "d", ins.d_type)
    if ins.form.pipe == "quad":
        f16 = FORMATS["f16"]
        for x, layout in zip("ab", ins.layouts, strict=True):
            yield _held(x, f16, place(f16), f"{x}.quad.{layout}")
    else:
        yield _multiplicand("a", f"a{ins.m}", ins.a_type, ins.a_place, ins.m * ins.stored_k)
        if ins.form.b_kind == "vector":
            yield _multiplicand("b", f"b{ins.n}", ins.b_type, ins.b_place, ins.k * ins.n)
    if not ins.form.updates_d:
        yield _accumulator(ins, "c", ins.c_type)
    if ins.is_sparse:
        rows = "64" if ins.is_wgmma else ""
        yield _held("e", FORMATS["u4"], _NIBBLE, f"e{rows}.{ins.form.metadata}")
    if ins.is_block_scaled:
        scale = FORMATS[ins.scale_type]
        for x in ("scale_a", "scale_b"):
            yield _held(x, scale, place(scale, 8), x, ins.scale_chunks)


def _multiplicand(operand: str, name: str, type_: str, where: Place, size: int) -> Fragment:
    return _held(operand, FORMATS[type_], where, name, max(1, 32 // where.width), size)


def _accumulator(ins: MatrixInstruction, operand: str, type_: str) -> Fragment:
    name = f"d{ins.m}" if ins.form.updates_d else f"c{ins.m}"
    if ins.form.pipe == "quad":
        name = f"c.quad.{type_}"
    return _held(operand, FORMATS[type_], place(FORMATS[type_]), name, 1, ins.m * ins.n)


def _held(
    operand: str, element: Format, where: Place, name: str, e: int = 1, size: int = 0
) -> Fragment:
    """The fragment with the lane map of that name, see `lane_map`."""
    return Fragment(operand, element, where, lane_map(name, e, size), max(32, where.width))


# --- signatures -----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _signatures(ins: MatrixInstruction, target: str) -> tuple[Signature, ...]:
    kinds = ins.form.a_kinds.split()
    return tuple(Signature(tuple(_operands(ins, kind, target)), ins.scope) for kind in kinds)


def _operands(ins: MatrixInstruction, a_kind: str, target: str) -> Iterator[Operand]:
    form = ins.form
    yield _vector(ins, "d", "updated" if form.updates_d else "written", target)
    for name, kind in (("a", a_kind), ("b", form.b_kind)):
        if kind == "descriptor":
            yield Operand(name, "descriptor", DESCRIPTOR, uniform=True)
        else:
            yield _vector(ins, name, "read", target)
    if not form.updates_d:
        yield _vector(ins, "c", "read", target)
    if ins.is_sparse:
        types = _types(ins, "e", target)
        yield Operand("e", "register", types, constants=hexadecimal(types), braces=True)
        yield Operand("selector", "immediate", values=range(ins.fragment("e").groups))
    for x in "ab" if ins.is_block_scaled else "":
        types = _types(ins, f"scale_{x}", target)
        constants = hexadecimal(types)
        yield Operand(
            f"scale_{x}", "register", types, constants=constants, braces=True, option=True
        )
        ids = zip(("byte_id", "thread_id"), ins.legal_ids(f"scale_{x}"), strict=True)
        parts = (Operand(f"{one}_{x}", "immediate", SCALE_ID, values=y) for one, y in ids)
        yield Operand(f"ids_{x}", "ids", SCALE_ID, uniform=True, parts=tuple(parts))
    for name in form.immediates.split():
        if name in IMMEDIATES and (name, a_kind) != ("imm_trans_a", "vector"):
            yield Operand(name, "immediate", values=IMMEDIATES[name])
        elif name not in IMMEDIATES:
            yield Operand(name, "predicate", PREDICATE, uniform=True)


def _vector(ins: MatrixInstruction, name: str, use: Use, target: str) -> Operand:
    """A matrix in registers."""
    constants: Constants = "words" if use == "read" else "none"
    if name == "c" and ins.c_type == "s32":
        constants = "integers"
    each = name in "cd" and is_called(_facts(ins), target)
    count = ins.fragment(name).registers
    return Operand(
        name,
        "vector",
        _types(ins, name, target),
        count,
        use,
        constants,
        sink=use == "written" and not each,
        each=each,
    )


def _types(ins: MatrixInstruction, name: str, target: str) -> tuple[str, ...]:
    type_ = ins.d_type if name == "d" else ins.c_type
    return matrix_types(_facts(ins), name, type_, target)


def _facts(ins: MatrixInstruction) -> Matrices:
    return Matrices(ins.form.family, ins.shape, ins.a_type, ins.is_block_scaled)
