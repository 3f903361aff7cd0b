"""Which rules of `arith.scalar` have LLVM instructions, and in which forms.

What is not here is left to the vector engine's steps: other roundings than to nearest but of f32,
approximate functions of f16 and f64, formats of matrix operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any

from emulator.arith.scalar import rule
from emulator.arith.scalar.types import TYPES, ScalarType
from emulator.machine.compiled import approximate, conversion, floating, integer, roundings
from emulator.machine.compiled.emitter import Emitter, Value

#: words to the destination's word, or to several
Emit = Callable[..., Any]

RULES: dict[str, Emit] = (
    integer.RULES | floating.RULES | conversion.RULES | approximate.RULES | roundings.RULES
)

#: rules of so many instructions that statements call them
_LONG = frozenset((*approximate.RULES, "integer.div", "integer.rem"))
_NUMBERS = ("f16", "bf16", "f32", "f64")


def _never_half(types: tuple[ScalarType, ...], options: Mapping[str, Any]) -> bool:
    return types[0].bits != 16 or not options.get("ftz")


def _to_wide(types: tuple[ScalarType, ...], options: Mapping[str, Any]) -> bool:
    return types[0].bits > 16


def _between_narrow(types: tuple[ScalarType, ...], options: Mapping[str, Any]) -> bool:
    """NaNs of f64 keep their payload, .ftz has a rule of its own for each pair."""
    return not options.get("ftz") and all(t.bits < 64 for t in types)


def _of_singles(types: tuple[ScalarType, ...], options: Mapping[str, Any]) -> bool:
    return types[1].name == "f32" and types[0].element.name in ("f16", "bf16")


def _single(types: tuple[ScalarType, ...], options: Mapping[str, Any]) -> bool:
    return all(t.count == 1 for t in types)


#: rules of which only some forms are here -> whether one is
_FORMS: dict[str, Callable[[tuple[ScalarType, ...], Mapping[str, Any]], bool]] = {
    "fused.fma": _never_half,
    "conversion.integer_to_float": _to_wide,
    "conversion.floats": _between_narrow,
    "packing.elements": _of_singles,
    "comparison.set_": _single,
}


def find(operation: rule.Operation, given: Mapping[str, str]) -> Emit | None:
    """The instruction as a function of an emitter and source words; None where there is none."""
    if operation.rule not in RULES:
        return None
    found = rule.find_rule(operation.rule)
    types = tuple(TYPES[name] for name in operation.types)
    options = _options(found, operation, given)
    directed = options.get("rounding", "rn") != "rn"
    if directed and any(t.name != "f32" for t in types):
        return None
    emit = (roundings.DIRECTED if directed else RULES).get(operation.rule)
    if emit is None or set(options) - set(signature(emit).parameters):
        return None
    elements = types if found.packed else tuple(t.element for t in types)
    if any(t.size > 64 or (t.is_float and t.element.name not in _NUMBERS) for t in elements):
        return None
    if operation.rule in _FORMS and not _FORMS[operation.rule](elements, options):
        return None
    run = partial(_run, emit, elements, options)
    if operation.rule in _LONG:
        run = partial(_outlined, ".".join([operation.rule, *operation.types, *options]), run)
    if not found.packed and types and types[0].count > 1:
        return partial(_by_element, run, types[0])
    return run


def _options(
    found: rule.Rule, operation: rule.Operation, given: Mapping[str, str]
) -> dict[str, Any]:
    """The modifiers that a rule heeds, as `rule` fills them in."""
    words = {slot.lower(): word for slot, word in {**operation.modifiers, **given}.items()}
    return {
        name: True if isinstance(default, bool) else words[name]
        for name, default in found.keywords.items()
        if words.get(name, "")
    }


def _run(
    emit: Emit, types: tuple[ScalarType, ...], options: Mapping[str, Any], e: Emitter, *words: Value
) -> Any:
    return emit(e, *types, *words, **options)


def _outlined(name: str, run: Emit, e: Emitter, *words: Value) -> Value:
    return e.outlined(name, words[0].type, run, *words)


def _by_element(run: Emit, packed: ScalarType, e: Emitter, *words: Value) -> Value:
    """A rule on each element of a packed type."""
    out = None
    for place in range(0, packed.size, packed.bits):
        parts = [e.resize(e.shift("lshr", word, place), packed.bits) for word in words]
        result = e.shift("shl", e.resize(run(e, *parts), packed.size), place)
        out = result if out is None else e.builder.or_(out, result)
    return out
