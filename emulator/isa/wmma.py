"""wmma.load, wmma.mma and wmma.store: the table of their forms, and the instructions (9.7.14.4).

A warp loads A, B and C as a whole from memory, multiplies, and stores D. Legality, targets and
register types were compared with ptxas: of CUDA 13.0, and of CUDA 12.9 for sm_70 and sm_72.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from dtypes import FORMATS
from emulator.arith.evidence import Fidelity, find_fidelity
from emulator.arith.recipes import Arithmetic, Row, find_recipe, with_recipe
from emulator.isa.instruction import Form, Instruction
from emulator.isa.recipe import Recipe
from emulator.isa.signature import Constants, Operand, Scope, Signature, Use
from emulator.layout.fragment import Fragment
from emulator.layout.lanemap import WARP
from emulator.layout.wmma import wmma_fragment
from emulator.targets import Target, find_target, having

Verb = Literal["load", "store"]
Rounding = Literal["rn", "rz", "rm", "rp"]
ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)


@dataclass(frozen=True)
class WmmaForm(Form):
    """One row: alternatives are separated by spaces."""

    shapes: str
    #: types of A and B, which are alike
    types: str
    #: accumulators of wmma.mma, "D.C"
    dc: str
    targets: tuple[str, ...]
    #: of A and B
    layouts: str = "row.row row.col col.row col.col"
    satfinite: bool = False
    #: takes .rn .rz .rm .rp
    rounding: bool = False
    #: "xor", "and": written with .popc
    bit_operation: Literal["", "xor", "and"] = ""
    #: types that accumulators are loaded and stored as, beyond those of `dc`
    moved: str = ""
    scope: Scope = "warp"
    #: the PTX version that introduced it
    version: str = "6.0"


_70, _72, _75, _80 = (having(f"sm_{n}") for n in (70, 72, 75, 80))
_K16 = "m16n16k16 m8n32k16 m32n8k16"
_FLOATS = "f16.f16 f16.f32 f32.f16 f32.f32"

# ptxas also takes a wmma.mma of f64 as m16n16k8 and m16n16k16, and makes no code of it; nothing
# could load its operands. Accumulators of m8n8k32 and m8n8k128 it moves as f32, too.
FORMS: tuple[WmmaForm, ...] = (
    WmmaForm(_K16, "f16", _FLOATS, _70),
    WmmaForm(_K16, "bf16", "f32.f32", _80, version="7.0"),
    WmmaForm("m16n16k8", "tf32", "f32.f32", _80, version="7.0"),
    WmmaForm("m8n8k4", "f64", "f64.f64", _80, rounding=True, version="7.0"),
    WmmaForm(_K16, "s8 u8", "s32.s32", _72, satfinite=True, version="6.3"),
    WmmaForm(
        "m8n8k32", "s4 u4", "s32.s32", _75, "row.col", satfinite=True, moved="f32", version="6.3"
    ),
    WmmaForm(
        "m8n8k128", "b1", "s32.s32", _75, "row.col", bit_operation="xor", moved="f32", version="6.3"
    ),
    WmmaForm("m8n8k128", "b1", "s32.s32", _80, "row.col", bit_operation="and", version="7.1"),
)

SPACES = ("global", "shared", "shared::cta")
#: elements of A and of B that a lane holds where they are f16, whatever the matrix needs
_F16_ELEMENTS = 16

#: Declared register types, by element type. Vectors stand in braces even of one register. A vector
#: is legal where all its registers are of one legal type or any of them is .b32; only loads and
#: stores of f64 look at each. Sources may be immediates, destinations "_".
_REGISTERS = {
    "f16": ("b32", "f16x2"),
    "bf16": ("b32",), "tf32": ("b32",),
    "f32": ("b32", "f32"), "f64": ("b64", "f64"),
    "s8": ("b32", "s32", "u32"), "u8": ("b32", "s32", "u32"), "s32": ("b32", "s32", "u32"),
    "s4": ("b32", "s32", "u32"), "u4": ("b32", "s32", "u32"), "b1": ("b32", "s32", "u32"),
}  # fmt: skip
#: names of the element types
TYPES = tuple(_REGISTERS)
#: the exceptions, by (family, element type, operands)
_OTHER_REGISTERS = {
    ("wmma.mma", "f64", "dc"): ("b64", "f64", "s64", "u64"),
    ("wmma.load", "s4", "r"): ("b32", "f16x2", "f32", "s32", "u32"),
    ("wmma.load", "u4", "r"): ("b32", "f16x2", "f32", "s32", "u32"),
    ("wmma.load", "b1", "r"): ("b32", "f16x2", "f32", "s32", "u32"),
}
_ADDRESS = ("b32", "s32", "u32", "b64", "s64", "u64")
_STRIDE = ("b32", "s32", "u32")


class Wmma(Instruction):
    """The common base of wmma.load, wmma.mma and wmma.store."""

    form: WmmaForm

    @property
    def shape(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"

    def _vector(self, name: str, use: Use, constants: Constants) -> Operand:
        """A fragment in registers."""
        fragment = self.fragment(name)
        types = self._register_types(name, fragment.fmt.name)
        # Loads and stores of f64 look at each register.
        each = fragment.fmt.name == "f64" and self.family != "wmma.mma"
        return Operand(
            name,
            "vector",
            types,
            fragment.registers,
            use,
            constants,
            sink=use == "written" and not each,
            each=each,
        )

    def _register_types(self, operand: str, type_: str) -> tuple[str, ...]:
        for (family, name, operands), types in _OTHER_REGISTERS.items():
            if (family, name) == (self.family, type_) and operand in operands:
                return types
        return _REGISTERS[type_]

    def _make(self, operand: str, matrix: str, type_: str) -> Fragment:
        rows, cols = self.matrix_shape(matrix)
        padded = type_ == "f16" and matrix in "ab"
        copies = _F16_ELEMENTS * WARP // (rows * cols) if padded else 1
        return wmma_fragment(operand, FORMATS[type_], rows, cols, copies)

    def matrix_shape(self, matrix: str) -> tuple[int, int]:
        """(rows, cols) of matrix a, b, c or d."""
        return {"a": (self.m, self.k), "b": (self.k, self.n)}.get(matrix, (self.m, self.n))


@dataclass(frozen=True, repr=False)
class WmmaMultiply(Wmma):
    """wmma.mma: D = A·B + C, operands ``d, a, b, c``."""

    form: WmmaForm
    m: int
    n: int
    k: int
    d_type: str
    a_type: str
    c_type: str
    layouts: tuple[str, str]
    satfinite: bool = False
    rounding: Rounding = "rn"

    @property
    def name(self) -> str:
        return "wmma.mma"

    @cached_property
    def opcode_words(self) -> dict[str, str]:
        multiplicands = [] if self.a_type == "f16" else [self.a_type, self.b_type]
        return {
            "bit operation": self.form.bit_operation,
            "popc": "popc" if self.form.bit_operation else "",
            "sync": "sync",
            "aligned": "aligned",
            "layout": ".".join(self.layouts),
            "shape": self.shape,
            "rounding": "" if self.rounding == "rn" else self.rounding,
            "types": ".".join([self.d_type, *multiplicands, self.c_type]),
            "satfinite": "satfinite" if self.satfinite else "",
        }

    @property
    def family(self) -> str:
        return "wmma.mma"

    @property
    def targets(self) -> tuple[str, ...]:
        """Every target whose assembler takes the instruction, and whose recipe is known."""
        return with_recipe(self.form.targets, "wmma", self.a_type, self.d_type, None, self.c_type)

    @property
    def b_type(self) -> str:
        return self.a_type

    @cached_property
    def _signature(self) -> Signature:
        sources = [self._vector(name, "read", "none") for name in "ab"]
        d, c = self._vector("d", "written", "none"), self._vector("c", "read", "words")
        return Signature((d, *sources, c), self.scope)

    @cached_property
    def fragments(self) -> dict[str, Fragment]:
        types = {"d": self.d_type, "a": self.a_type, "b": self.b_type, "c": self.c_type}
        return {name: self._make(name, name, type_) for name, type_ in types.items()}

    def recipe(self, target: str | Target) -> Row:
        """The recipe that `target` computes it by: mma's, but for what the lowering changes.

        Raises UnsupportedError where the target lacks the instruction.
        """
        generation = self.check_target(target).generation
        row = find_recipe("wmma", generation, self.a_type, self.d_type, None, self.c_type)
        assert row is not None, "or the target would not be one of its targets"
        return row

    def arithmetic(self, target: str | Target | Recipe) -> Arithmetic:
        """The arithmetic of its dot products on `target`, or by a recipe."""
        steps = target.steps if isinstance(target, Recipe) else self.recipe(target).steps
        a, b, c, d = (FORMATS[t] for t in (self.a_type, self.b_type, self.c_type, self.d_type))
        stated = Arithmetic(
            a, b, c, d, steps, None, self.rounding, self.satfinite, self.form.bit_operation or None
        )
        return target.applied(stated, self.k, self) if isinstance(target, Recipe) else stated

    def fidelity(self, target: str | Target | Recipe) -> Fidelity:
        if isinstance(target, Recipe):
            return target.fidelity
        row = self.recipe(target)
        source = row.source if row.pipe == "wmma" else f"as mma by the lowering ({row.source})"
        generation = find_target(target).generation
        return find_fidelity(generation, "wmma", str(self), self.shape, self.d_type, source)


@dataclass(frozen=True, repr=False)
class WmmaTransfer(Wmma):
    """wmma.load, operands ``r, p, stride``, or wmma.store, ``p, r, stride``."""

    #: of those that load or store such a matrix, the one with the most targets
    form: WmmaForm
    verb: Verb
    #: a, b, c, or d of a store
    matrix: str
    m: int
    n: int
    k: int
    #: how the matrix lies in memory
    layout: str
    type: str
    #: the state space as written; "" is a generic address
    space: str = ""

    @property
    def name(self) -> str:
        return f"wmma.{self.verb}.{self.matrix}"

    @cached_property
    def opcode_words(self) -> dict[str, str]:
        return {
            "sync": "sync",
            "aligned": "aligned",
            "layout": self.layout,
            "shape": self.shape,
            "space": self.space,
            "types": self.type,
        }

    @property
    def family(self) -> str:
        return f"wmma.{self.verb}"

    @cached_property
    def _signature(self) -> Signature:
        p = Operand("p", "address", _ADDRESS, space=self.space.partition("::")[0], uniform=True)
        stride = Operand(
            "stride",
            "register",
            _STRIDE,
            constants="words",
            optional=True,
            uniform=True,
            option=True,
        )
        if self.verb == "load":
            return Signature((self._vector("r", "written", "none"), p, stride), self.scope)
        return Signature((p, self._vector("r", "read", "words"), stride), self.scope)

    @cached_property
    def fragments(self) -> dict[str, Fragment]:
        return {"r": self._make("r", self.matrix, self.type)}

    @property
    def lines(self) -> int:
        """Rows, or of a column-major matrix columns: what lies together in memory."""
        return self.matrix_shape(self.matrix)[self.layout == "col"]

    @property
    def default_stride(self) -> int:
        """Elements of a line: the stride that is meant when none is given, and the least one."""
        return self.matrix_shape(self.matrix)[self.layout == "row"]

    @property
    def alignment(self) -> int:
        """Bytes that every line must start at a multiple of: 16, or those of a shorter line.

        PTX demands the size of a lane's fragment, up to 32 bytes; CUDA C++ allows leading
        dimensions of any multiple of 16 bytes, kernels pad their tiles by that, and an H200 runs
        them (all types, shared and global memory; 8 bytes worked, too, except for some).
        """
        fragment = self.fragment("r")
        held = fragment.registers * fragment.word_bits // 8
        return min(16, held, self.default_stride * fragment.fmt.bits // 8)

    def fidelity(self, target: str | Target) -> Fidelity:
        return find_fidelity(self.check_target(target).generation, self.family)
