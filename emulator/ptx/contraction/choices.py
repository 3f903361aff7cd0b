"""Contraction: min, max and selections that ptxas makes simpler."""

from __future__ import annotations

from emulator.ptx.contraction.rewrites import Identity, Saturation, Selection
from emulator.ptx.contraction.values import TYPES, Body, is_flushed, modifiers_of, same, type_of
from emulator.ptx.dataflow import Value

#: of one operand twice this operand, whatever it is
_EXTREMES = frozenset(
    f"{head}.{type_}" for head in ("min", "max") for type_ in ("f16", "f32", "f64")
)
#: selections that read operands with another sign, and what changes it
_SELECTIONS = ("selp.f32", "slct.f32.s32", "slct.f32.f32", "slct.ftz.f32.f32")
_SIGNS = ("abs.f32", "neg.f32")


def find_copies(body: Body) -> None:
    """Finds min and max of equal operands, which are no statements for what follows.

    Read off ptxas 13.0 and 13.5, also under guards, across blocks, and between a product and
    its sum; of bf16, of two elements, with .ftz or .NaN they stay.
    """
    for value in body.values:
        if value.opcode not in _EXTREMES or len(body.statements[value.index].sources) != 2:
            continue
        if same(*value.arguments[:2]):
            body.found[value.index] = Identity(0, False)
            value.alias = value.arguments[0], False


def find_saturations(body: Body) -> None:
    """Finds the outer ones of min and max with 0 and 1."""
    for value in body.values:
        bound = _bound(body, value)
        if bound is None:
            continue
        inner, negated = value.arguments[1 - bound].resolve()
        other = _bound(body, inner)
        if other is None or negated or inner.head == value.head:
            continue
        known = body.found.get(inner.index)
        if isinstance(known, Saturation):
            # Nothing is left to do, but for a flush.
            flushes = is_flushed(value) and not is_flushed(inner)
            body.found[value.index] = known if flushes else Identity(1 - bound, False)
        elif type_of(inner) == type_of(value):
            body.found[value.index] = Saturation(inner.index, 1 - other)


def _bound(body: Body, value: Value) -> int | None:
    """Index of the operand that is the 1 of a min or the 0 of a max; None if there is none."""
    if value.head not in ("min", "max") or type_of(value) not in ("f32", "f16"):
        return None
    if not modifiers_of(value) <= {"ftz"} or len(body.statements[value.index].sources) != 2:
        return None
    type_ = TYPES[type_of(value)]
    wanted = (type_.one,) if value.head == "min" else (0, type_.sign)
    for place in (1, 0):
        constant, negated = value.arguments[place].resolve()
        if constant.opcode == "constant" and not negated and constant.bits in wanted:
            return place
    return None


def find_selections(body: Body) -> None:
    """Finds selections of what only has another sign."""
    for value in body.values:
        if value.opcode in _SELECTIONS and not same(*value.arguments[:2]):
            operands = tuple(_signs(body, x) for x in value.arguments[:2])
            if any(signs for _, signs in operands):
                body.found[value.index] = Selection(operands)
        elif value.opcode in _SIGNS and body.statements[value.index].guard is not None:
            inner, signs = _signs(body, value.arguments[0])
            body.found[value.index] = Selection(((inner, (*signs, value.head)),))


def _signs(body: Body, operand: Value) -> tuple[int | None, tuple[str, ...]]:
    """The changes of sign that an operand of a selection is read through."""
    value, inner, signs = operand.root, None, list[str]()
    while value.opcode in _SIGNS and body.statements[value.index].guard is None:
        inner = value.index
        signs.insert(0, value.head)
        value = value.arguments[0].root
    return inner, tuple(signs)
