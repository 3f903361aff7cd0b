"""What ptxas contracts: which additions take the product of a multiplication unrounded.

ptxas (default options) turns ``mul`` and ``add`` or ``sub`` without a rounding modifier into one
fused multiply-add where its rules allow, so the bits of a kernel depend on those rules. NVIDIA
publishes none of them. Those below were read off ptxas 13.0 and 13.5 by comparing the machine code
of random programs with that of the same programs with every fusion written out; a test repeats this
where the tools are installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emulator.ptx.dataflow import MOVES, Dataflow, Source, Statement, Value, find_users

__all__ = ["Copy", "Fusion", "Rewrite", "Scaling", "Source", "Statement", "contract"]


@dataclass(frozen=True, slots=True)
class Fusion:
    """An addition that becomes ``opcode d, a, b, c`` with the factors a, b of a multiplication."""

    #: index of the multiplication's statement
    multiplication: int
    #: which source of the addition is the product; the other one is c
    operand: int
    #: ``fma.rn`` with the modifiers and the type of the addition
    opcode: str
    #: whether the product and whether c change their sign
    negated: tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class Scaling:
    """A multiplication of a product by 2^exponent, which becomes one: round(a × b × 2^exponent)."""

    #: index of the statement that multiplies a and b
    multiplication: int
    exponent: int
    #: whether the product changes its sign
    negated: bool


@dataclass(frozen=True, slots=True)
class Copy:
    """A statement that becomes a move, or a ``neg``, of one source: NaN keep their bits."""

    source: Source
    negated: bool


Rewrite = Fusion | Scaling | Copy

#: type -> the code of one, sign bit
_ONES = {
    "f32": (0x3F800000, 1 << 31),
    "f64": (0x3FF0000000000000, 1 << 63),
    "f16": (0x3C00, 1 << 15),
    "bf16": (0x3F80, 1 << 15),
}

#: types of the multiplications and additions that ptxas contracts
TYPES = frozenset(["f16x2", "bf16x2", "f32x2", *_ONES])

#: opcodes that ptxas expands to several basic blocks, by their first words
SPLITTING = tuple(
    "call brkpt pmevent setmaxnreg membar fence.acq_rel fence.sc griddepcontrol.launch_dependents "
    "rcp.rn rcp.rz rcp.rm rcp.rp sqrt.rn sqrt.rz sqrt.rm sqrt.rp div.rn div.rz div.rm div.rp "
    "div.s16 div.u16 div.s32 div.s64 div.u64 rem.s16 rem.u16 rem.s32 rem.s64 rem.u64 "
    "rsqrt.approx.f64".split()
)

#: first words of instructions that do nothing but write their destinations. Under a guard they
#: become a selection; all others become a branch around them.
PURE = frozenset(
    "abs add and bfe bfi bfind bmsk brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2 fma fns "
    "getctarank isspacep lg2 lop3 mad mad24 mapa max min mov mul mul24 neg not or popc prmt rcp "
    "redux rem rsqrt sad selp set setp shf shl shr sin slct sqrt sub szext tanh testp vabsdiff "
    "vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 "
    "vset vset2 vset4 vshl vshr vsub vsub2 vsub4 xor".split()
)

#: f32 codes of the factors that a multiplication has as a modifier in machine code: exponent
_SCALES = {0x3E800000: -2, 0x3F000000: -1, 0x40000000: 1, 0x40800000: 2, 0x41000000: 3}


def contract(statements: Sequence[Statement], *, entry: bool = True) -> dict[int, Rewrite]:
    """What ptxas makes of the multiplications and additions of a function body, by their index.

    `entry` says whether the function is a kernel: then its parameters lie in constant memory.
    """
    flow = Dataflow(statements, _stands_alone)
    rules = _Rules(statements, entry)
    for value in flow.values:
        rules.simplify(value)
    find_users(flow.values, rules.has_effect)
    rules.count(flow.values)
    for value in sorted(flow.values, key=lambda value: value.index):
        if value.users and rules.is_sum(value):
            rules.fuse(value)
    for value in flow.values:
        if value.users:
            rules.scale(value)
    return dict(sorted(rules.found.items()))


def _stands_alone(statement: Statement) -> bool:
    """Whether ptxas gives a statement basic blocks of its own."""
    if statement.head in ("bra", "brx", "ret", "exit", "trap"):
        return False
    if statement.guard is not None and statement.head not in PURE:
        return True
    return (statement.opcode + ".").startswith(tuple(word + "." for word in SPLITTING))


class _Rules:
    """The rules, and what they have found so far."""

    def __init__(self, statements: Sequence[Statement], entry: bool) -> None:
        self.statements, self.entry = statements, entry
        self.found: dict[int, Rewrite] = {}
        #: users of a value before anything was contracted
        self.uses: dict[int, int] = {}

    # --- what a value is ---

    def is_product(self, value: Value) -> bool:
        head, *modifiers = value.opcode.split(".")
        kept = set(modifiers[:-1])
        if head == "mul":
            return bool(modifiers) and modifiers[-1] in TYPES and kept <= {"ftz"}
        if head == "rcp":
            return modifiers == ["approx", "f32"]
        return head == "div" and modifiers[-1] == "f32" and bool(kept & {"full", "approx"})

    def is_sum(self, value: Value) -> bool:
        head, *modifiers = value.opcode.split(".")
        if head not in ("add", "sub") or not modifiers or modifiers[-1] not in TYPES:
            return False
        return set(modifiers[:-1]) <= {"ftz", "sat"} and value.index not in self.found

    def is_constant(self, value: Value) -> bool:
        """Whether a value is an immediate, or lies in constant memory at a constant address."""
        if value.bits is not None:
            return True
        spaces = ("ld.const", "ld.param") if self.entry else ("ld.const",)
        return value.opcode.startswith(spaces) and not value.arguments

    def has_effect(self, value: Value) -> bool:
        head = value.opcode.partition(".")[0]
        if value.index < 0 or head in ("select", "part"):
            return False
        if head in PURE:
            return _stands_alone(self.statements[value.index])
        return head not in ("ld", "ldu") or ".volatile" in value.opcode

    def can_move(self, product: Value) -> bool:
        """Whether ptxas computes a product where it is used: one factor needs no register."""
        return product.opcode.startswith("mul.") and any(map(self.is_constant, product.roots))

    # --- what happens before ---

    def simplify(self, value: Value) -> None:
        """Makes aliases of changes of sign, and of what ptxas takes out before it contracts."""
        head, *modifiers = value.opcode.split(".")
        if head == "neg" and modifiers[-1] in TYPES:
            if "ftz" not in modifiers or _flushed(value.arguments[0].root):
                value.alias = value.arguments[0], True
        elif head == "selp" and value.arguments[0].resolve() == value.arguments[1].resolve():
            value.alias = value.arguments[0], False
        elif head == "part":
            _unpack(value)
        elif head == "mul" and modifiers[-1] in _ONES and set(modifiers) <= {"ftz", modifiers[-1]}:
            self._drop_multiplication_by_one(value)

    def _drop_multiplication_by_one(self, value: Value) -> None:
        ftz, type_ = ".ftz" in value.opcode, value.opcode.rpartition(".")[2]
        one, sign = _ONES[type_]
        for place in (0, 1):
            factor, other = value.arguments[place].root, value.arguments[1 - place]
            if factor.opcode == "constant" and factor.bits in (one, one | sign):
                if not ftz or _flushed(other.root):
                    value.alias = other, factor.bits != one
                    source = self.statements[value.index].sources[1 - place]
                    self.found[value.index] = Copy(source, factor.bits != one)
                else:
                    value.opcode = "other"
                return

    def count(self, values: Sequence[Value]) -> None:
        self.uses = {id(value): len(value.users) for value in values}

    # --- fusing ---

    def fuse(self, addition: Value) -> None:
        if self._merge_twins(addition):
            return
        roots = addition.roots[:2]
        best: int | None = None
        for operand, product in enumerate(roots):
            if roots[0] is not roots[1] and self._may_fuse(product):
                if best is None or self.uses[id(product)] < self.uses[id(roots[best])]:
                    best = operand
        if best is None:
            return
        roots[best].users.remove(addition)
        product, negated = addition.arguments[best].resolve()
        head, *modifiers = addition.opcode.split(".")
        self.found[addition.index] = Fusion(
            multiplication=product.index,
            operand=best,
            opcode=".".join(["fma", "rn", *modifiers]),
            negated=(negated != (head == "sub" and best == 1), head == "sub" and best == 0),
        )

    def _may_fuse(self, product: Value) -> bool:
        """Whether every use of a value is an addition that could take it as its product."""
        if not self.is_product(product):
            return False
        anywhere = self.can_move(product)
        for user in product.users:
            if not self.is_sum(user) or _ftz_and_type(user) != _ftz_and_type(product):
                return False
            if not anywhere and user.region != product.region:
                return False
            left, right = user.roots[:2]
            if left is right:
                return False
            other = right if left is product else left
            alone = self.is_product(other) and self.uses[id(other)] == 1
            if alone and self.uses[id(product)] > 1:
                return False
        return True

    def _merge_twins(self, addition: Value) -> bool:
        """Whether an addition doubles a product: adds it to itself or to the same once more.

        Equal products are merged before only here, and where one has no other use.
        """
        left, right = addition.roots[:2]
        if left is right or not addition.opcode.startswith("add."):
            return False
        if not self.is_product(left) or left.opcode != right.opcode:
            return False
        if 1 not in (self.uses[id(left)], self.uses[id(right)]):
            return False
        if set(map(id, left.roots[:2])) != set(map(id, right.roots[:2])):
            return False
        kept, gone = (left, right) if self.uses[id(left)] > 1 else (right, left)
        gone.users.remove(addition)
        kept.users.append(addition)
        addition.arguments[:2] = [
            kept if argument.root is gone else argument for argument in addition.arguments[:2]
        ]
        return True

    # --- multiplying by powers of two ---

    def scale(self, value: Value) -> None:
        head, *modifiers = value.opcode.split(".")
        if head != "mul" or modifiers[-1] != "f32" or value.index in self.found:
            return
        for place in (0, 1):
            factor, (product, negated) = (
                value.arguments[place].root,
                value.arguments[1 - place].resolve(),
            )
            if factor.opcode != "constant" or factor.bits not in _SCALES:
                continue
            if (
                product.opcode.startswith("mul")
                and self.is_product(product)
                and product.index not in self.found
            ):
                if (
                    len(product.users) == 1
                    and self.uses[id(product)] == 1
                    and (".ftz" in product.opcode) == (".ftz" in value.opcode)
                ):
                    self.found[value.index] = Scaling(product.index, _SCALES[factor.bits], negated)
                    return


def _flushed(value: Value) -> bool:
    """Whether a value is a result that .ftz has already flushed."""
    return ".ftz" in value.opcode


def _ftz_and_type(value: Value) -> tuple[bool, str]:
    return ".ftz" in value.opcode, value.opcode.rpartition(".")[2]


def _unpack(part: Value) -> None:
    """Lets what is packed into a register and taken apart again be what it was."""
    source = part.arguments[0]
    if source.opcode in MOVES and len(source.arguments) == 1:
        packed = source.arguments[0].root
        if packed.opcode in MOVES and len(packed.arguments) == 2 and part.bits in (0, 1):
            part.alias = packed.arguments[part.bits], False
