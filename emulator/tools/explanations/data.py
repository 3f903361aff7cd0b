"""An explanation as data: the same facts as its text, for JSON."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import Any

from dtypes import Format
from emulator.arith.trace import Changed, Counted, Operated, Record, Summed, Tagged, Widened
from emulator.tools.explanations.exact import (
    code_text,
    exact_value,
    number_text,
    power_of_two,
    ulps_apart,
    value_text,
)
from emulator.tools.explanations.feeds import Element, Feed
from emulator.tools.explanations.steps import (
    by_step,
    causes,
    pass_positions,
    step_words,
    term_value,
)


def explanation_data(feed: Feed, exact: Fraction | None) -> dict[str, Any]:
    """Everything, with exact numbers as fractions in text next to floats."""
    level, detail = feed.ins.fidelity(feed.target)
    apart = None if exact is None else ulps_apart(feed.d.fmt, exact, feed.d.code)
    return {
        "opcode": str(feed.ins), "target": str(feed.target), "row": feed.row, "col": feed.col,
        "fidelity": {"level": level, "detail": detail},
        "d": element_data(feed.d), "c": element_data(feed.c),
        "exact": number_data(exact), "ulps": number_data(apart),
        "special": causes(feed), "notes": list(feed.notes),
        "products": [
            {"k": k, "a": element_data(a), "b": element_data(b)}
            for k, a, b in zip(feed.k, feed.a, feed.b, strict=True)
        ],
        "scale_a": [element_data(x) for x in feed.scale_a],
        "scale_b": [element_data(x) for x in feed.scale_b],
        "metadata": [element_data(x) for x in feed.metadata],
        "steps": _steps(feed),
    }  # fmt: skip


def number_data(value: Fraction | None) -> dict[str, Any] | None:
    """``{"fraction": "3/4", "value": 0.75}``; value is None where no float is near."""
    if value is None:
        return None
    try:
        near: float | None = float(value)
    except OverflowError:
        near = None
    return {"fraction": str(value), "value": near, "text": number_text(value, True)}


def code_data(fmt: Format, code: int) -> dict[str, Any]:
    """``{"type": "f16", "code": "0x3c00", "value": 1.0}``; inf and nan are strings."""
    value = exact_value(fmt, code)
    number: object = value_text(fmt, code)
    if value is not None:
        number = float(value) if fmt.is_float else int(value)
    return {"type": fmt.name, "code": code_text(fmt, code), "value": number}


def element_data(x: Element) -> dict[str, Any]:
    return code_data(x.fmt, x.code) | {"place": x.place.data if x.place else None}


def _tagged(x: Tagged) -> dict[str, Any]:
    return code_data(x.fmt, x.code)


def _steps(feed: Feed) -> list[dict[str, Any]]:
    out = []
    for words, (step, records) in zip(step_words(feed), by_step(feed.records), strict=True):
        name = type(step).__name__
        done = [_record(x, i, feed) for i, x in enumerate(records)]
        out.append({"step": name, "fields": asdict(step), "words": words, "records": done})
    return out


def _record(record: Record, number: int, feed: Feed) -> dict[str, Any]:
    match record:
        case Summed():
            return _summed(record, number, feed)
        case Widened():
            return {
                name: [code_data(record.fmt, code) for code in codes]
                for name, codes in zip("ab", record.after, strict=True)
            }
        case Changed(_, before, after):
            return {"before": _tagged(before), "after": _tagged(after)}
        case Operated(_, name, fmt, k, operands, result):
            return {
                "operation": name, "k": None if k is None else feed.k[k],
                "operands": [code_data(fmt, code) for code in operands],
                "after": code_data(fmt, result),
            }  # fmt: skip
        case Counted(_, addends, c, result):
            total = sum(addends)
            return {"sum": total, "c": c, "exact": c + total, "after": _tagged(result)}


def _summed(record: Summed, number: int, feed: Feed) -> dict[str, Any]:
    positions = pass_positions(record, number, feed)
    out: dict[str, Any] = {
        "k": [[feed.k[i] for i in block] for block in positions],
        "before": _tagged(record.before), "after": _tagged(record.after),
        "top": record.top, "terms": [], "sum": None,
    }  # fmt: skip
    if record.top is None:
        return out
    unit = power_of_two(record.unit)
    for i, (term, cut) in enumerate(zip(record.terms, record.cut, strict=True)):
        lost = term_value(term) - cut * unit
        out["terms"].append({
            "k": out["k"][i] if i < len(positions) else "x",
            "exponent": term.exponent if term.significand else None,
            "significand": term.significand, "fraction_bits": term.fraction_bits,
            "value": number_data(term_value(term)), "kept": cut, "dropped": number_data(lost),
        })  # fmt: skip
    return out | {"unit": record.unit, "sum": number_data(sum(record.cut) * unit)}
