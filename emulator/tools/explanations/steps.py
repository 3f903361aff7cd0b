"""Steps of one dot product, from the records of `reference`, in words and as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from fractions import Fraction
from itertools import groupby
from typing import Any

from dtypes import NumberClass
from emulator.arith.steps import ROUNDED, FmaChain, Step, brief
from emulator.arith.trace import Changed, Counted, Operated, Record, Summed, Term, Widened
from emulator.tools.explanations.feeds import Feed
from emulator.tools.explanations.numbers import (
    ShownCode,
    binary_text,
    k_text,
    number_data,
    number_text,
    plural,
    power_of_two,
    top_exponent,
    ulp,
    without_zeros,
)
from emulator.tools.report import Block, Section, Table
from emulator.tools.wording import steps as wording_of

NAN, INFINITE, ZERO = NumberClass.NAN, NumberClass.INFINITE, NumberClass.ZERO


def _by_step(feed: Feed) -> list[tuple[str, Step, list[Record]]]:
    """The records of each step, with a sentence that says what it does; each has at least one."""
    groups = [list(group) for _, group in groupby(feed.records, lambda x: id(x.step))]
    words = wording_of(feed.ins, feed.target)
    if len(words) != len(groups):
        words = [brief([step]) for step in feed.arithmetic.steps]
    return [(text, group[0].step, group) for text, group in zip(words, groups, strict=True)]


def step_sections(feed: Feed) -> list[Section]:
    """One section for each step of the recipe."""
    parts = _by_step(feed)
    return [
        Section(f"Step {i} of {len(parts)}: {words}", list(_blocks(records, feed)))
        for i, (words, _, records) in enumerate(parts, 1)
    ]


def step_data(feed: Feed) -> list[dict[str, object]]:
    """The same for JSON."""
    return [
        {
            "step": type(step).__name__,
            "fields": asdict(step),
            "words": words,
            "records": [_record_data(x, i, feed) for i, x in enumerate(records)],
        }
        for words, step, records in _by_step(feed)
    ]


def _blocks(records: Sequence[Record], feed: Feed) -> Iterator[Block]:
    passes = [x for x in records if isinstance(x, Summed)]
    for number, summed in enumerate(passes):
        yield from _pass(summed, number, len(passes), feed)
    for record in () if passes else records:
        match record:
            case Changed(_, before, after) if before != after:
                yield f"x = {ShownCode(*before).typed()} becomes {ShownCode(*after).typed()}"
            case Widened():
                yield from _widened(record, feed)
            case Counted():
                yield from _counted(record, feed)
    if operations := [x for x in records if isinstance(x, Operated)]:
        yield from _operations(operations, feed)


def _record_data(record: Record, number: int, feed: Feed) -> dict[str, object]:
    match record:
        case Summed():
            return _pass_data(record, number, feed)
        case Widened():
            return {
                name: [ShownCode(record.fmt, code).data for code in codes]
                for name, codes in zip("ab", record.after, strict=True)
            }
        case Changed(_, before, after):
            return {"before": ShownCode(*before).data, "after": ShownCode(*after).data}
        case Operated(_, name, fmt, k, operands, result):
            return {
                "operation": name, "k": None if k is None else feed.k[k],
                "operands": [ShownCode(fmt, code).data for code in operands],
                "after": ShownCode(fmt, result).data,
            }  # fmt: skip
        case Counted(_, addends, c, result):
            total = sum(addends)
            return {"sum": total, "c": c, "exact": c + total, "after": ShownCode(*result).data}


def _widened(record: Widened, feed: Feed) -> Iterator[Block]:
    rows = []
    for i, k in enumerate(feed.k):
        row = [str(k)]
        for fmt, before, after in zip(record.formats, record.before, record.after, strict=True):
            row += [ShownCode(fmt, before[i]).both(), ShownCode(record.fmt, after[i]).hex]
        if record.before[0][i] or record.before[1][i]:
            rows.append(row)
    if rows:
        to = record.fmt.name
        yield Table(["k", "a", f"a in {to}", "b", f"b in {to}"], rows)
    if len(rows) < len(feed.k):
        yield "zeros stay zeros" if rows else "every a and b is zero"


def _counted(record: Counted, feed: Feed) -> Iterator[Block]:
    total, result = sum(record.addends), ShownCode(*record.result)
    exact, fmt, end = record.c + total, result.fmt, f"D = {result.typed()}"
    yield f"sum over k = {total}; C = {record.c}; exact sum {exact}"
    assert result.value is not None
    if result.value == exact:
        yield f"it fits {fmt.name}: {end}"
    elif feed.arithmetic.saturate:
        yield f"too large for {fmt.name}, clamped: {end}"
    else:
        times = int(exact - result.value) >> fmt.bits
        yield f"too large for {fmt.name}, wrapped ({times:+d} times 2^{fmt.bits} left out): {end}"


# --- the fused dot-add ----------------------------------------------------------------------------


def _positions(record: Summed, number: int, feed: Feed) -> list[list[int]]:
    """The products that each term of a pass but the last one stands for."""
    step = record.step
    block = step.blocks(len(feed.k) // step.group)[number]
    return [list(range(i * step.group, (i + 1) * step.group)) for i in block]


def term_value(term: Term) -> Fraction:
    magnitude = term.significand * power_of_two(term.exponent - term.fraction_bits)
    return -magnitude if term.sign else magnitude


def losses(record: Summed) -> list[Fraction]:
    """The part of each term that truncation removes."""
    unit = power_of_two(record.unit)
    return [term_value(x) - cut * unit for x, cut in zip(record.terms, record.cut, strict=True)]


def cut_text(term: Term, unit: int, lost: Fraction) -> str:
    """Describes the bits that a significand loses, trailing zeros not counted, and their value."""
    if not lost:
        return ""
    below = max(unit - (term.exponent - term.fraction_bits), 0)
    zeros = (term.significand & -term.significand).bit_length() - 1
    count = min(below, term.significand.bit_length()) - zeros
    return f"{count} bit{'s' if count > 1 else ''}, {number_text(lost, most=4)}"


def _pass(record: Summed, number: int, count: int, feed: Feed) -> Iterator[Block]:
    positions, after = _positions(record, number, feed), ShownCode(*record.after)
    ks = k_text([feed.k[i] for block in positions for i in block])
    name = f"Pass {number + 1} of {count}, k = {ks}: " if count > 1 else ""
    if record.top is not None:
        yield from _aligned(record, record.top, name, positions, feed)
        return
    found = list(_special_causes(record, positions, feed))
    if not found:
        yield f"{name}every term is zero: x = {after.typed()}"
        return
    yield f"{name}special values decide, nothing is added: x = {after.typed()}"
    yield from found


def _aligned(
    record: Summed, top: int, name: str, positions: list[list[int]], feed: Feed
) -> Iterator[Block]:
    unit, step = record.unit, record.step
    labels = [
        f"k {feed.k[block[0]]}" + (f"-{feed.k[block[-1]]}" if block[1:] else "")
        for block in positions
    ]
    parts = zip([*labels, "x"], record.terms, losses(record), strict=True)
    live = [x for x in parts if x[1].significand]
    highest = max(term.exponent for _, term, _ in live)
    of = [label for label, term, _ in live if term.exponent == highest]
    several = f", … ({len(of)})" if len(of) > 4 else ""
    why = f"the largest exponent is {highest}, of {', '.join(of[:4])}{several}"
    if top > highest:
        why += f"; it counts as {top}, the least that the alignment uses"
    yield f"{name}{why}; bits below 2^{unit} are cut"

    room, most = (5, 8) if step.fraction_bits < 30 else (2, 3)  # long lines of fp4 with scales
    total = sum(record.cut) * power_of_two(unit)
    texts = [binary_text(term_value(term), top, unit, room) for _, term, _ in live]
    texts.append(binary_text(total, top, unit))
    point = max(len(x.split(".")[0]) for x in texts)
    bits = [" " * (point - len(x.split(".")[0])) + x for x in texts]
    rows = [
        [label, number_text(term_value(x), most=most), str(x.exponent), text,
         cut_text(x, unit, lost)]
        for (label, x, lost), text in zip(live, bits, strict=False)
    ]  # fmt: skip
    rows.append(["sum", number_text(total, most=most), "", bits[-1], ""])
    yield Table(["term", "value", "exp", f"aligned, times 2^{top}", "cut off"], rows)
    dead = [i for i, term in enumerate(record.terms) if not term.significand]
    if dead:
        ks = [feed.k[p] for i in dead if i < len(positions) for p in positions[i]]
        names = [f"k {k_text(ks)}"] if ks else []
        names += ["x"] if dead[-1] == len(positions) else []
        yield f"zero, without a part in it: {', '.join(names)}"
    yield from _rounded(total, ShownCode(*record.after), step.rounding, step.precision)


def _rounded(
    total: Fraction, after: ShownCode, rounding: str, precision: int | None
) -> Iterator[str]:
    """The sum before and after normalisation, its rounding, and by how much that is off."""
    fmt, end = after.fmt, f"x = {after.typed()}"
    if not total:
        yield f"the sum is zero: {end}"
        return
    bits, top = precision or fmt.precision, top_exponent(total)
    last = max(top, fmt.emin) - bits + 1
    point = max(top, last)
    normal = binary_text(total, point, last)
    short = "" if bits == fmt.precision else f" (kept of {fmt.name}'s {fmt.precision})"
    least = "; 2^emin is reached, fewer bits are left" if top < fmt.emin else ""
    yield f"normalised: {normal} times 2^{point}, {bits} significand bits{short}{least}"
    got = after.value
    if got is None:
        end = f"{number_text(total, True)} is too large: {end}"
    elif off := got - total:
        way = "added" if (off > 0) == (total > 0) else "dropped"
        ulps = abs(off) / ulp(fmt, got, total)
        end = f"{end}; {way} {number_text(abs(off))}, {plural(ulps, 'ulp')}"
    else:
        end += ", exact"
    yield f"rounded {ROUNDED[rounding]} to {fmt.name}: {end}"


def _pass_data(record: Summed, number: int, feed: Feed) -> dict[str, object]:
    positions = _positions(record, number, feed)
    ks: list[object] = [[feed.k[i] for i in block] for block in positions]
    out: dict[str, Any] = {
        "k": ks, "before": ShownCode(*record.before).data, "after": ShownCode(*record.after).data,
        "top": record.top, "terms": [], "sum": None,
    }  # fmt: skip
    if record.top is None:
        return out
    parts = zip([*ks, "x"], record.terms, record.cut, losses(record), strict=True)
    out["terms"] = [
        {"k": k, "exponent": x.exponent if x.significand else None, "significand": x.significand,
         "fraction_bits": x.fraction_bits, "value": number_data(term_value(x)), "kept": cut,
         "dropped": number_data(lost)}
        for k, x, cut, lost in parts
    ]  # fmt: skip
    total = sum(record.cut) * power_of_two(record.unit)
    return out | {"unit": record.unit, "sum": number_data(total)}


# --- IEEE 754 operations --------------------------------------------------------------------------

_SIGN = {"fma": "a*b + x", "multiply": "a*b", "add": "x + y"}


def _operations(records: Sequence[Operated], feed: Feed) -> Iterator[Block]:
    first = records[0]
    fmt = first.fmt
    rows = []
    # A fused multiply-add of two zeros that leaves x as it is adds nothing.
    idle = [
        x.name == "fma" and x.operands[:2] == (0, 0) and x.result == x.operands[2] for x in records
    ]
    for i, run in without_zeros([not x for x in idle]):
        x = records[i]
        k = "" if x.k is None else str(feed.k[x.k])
        if run > 1:
            k = k_text([feed.k[x.k] for x in records[i : i + run] if x.k is not None])
            rows.append([k, "zero", *[""] * 5])
            continue
        exact, result = _exact(x), ShownCode(fmt, x.result)
        told = "" if exact is None else number_text(exact)
        row = [k, _operation_name(x), told, result.hex, result.text(), _off(exact, result)]
        rows.append([*row, _operation_note(x)])
    header = ["k", "operation", "exact", "rounded", f"in {fmt.name}", "error", "why"]
    used = [i for i in range(len(header)) if 1 <= i < 5 or any(row[i] for row in rows)]
    codes = [ShownCode(fmt, code).typed() for code in first.operands]
    if first.name == "fma":
        yield f"x starts as {codes[-1]}"
    elif first.name == "add":
        yield f"x = {codes[0]}, c = {codes[1]}"
    yield Table([header[i] for i in used], [[row[i] for i in used] for row in rows])
    rounding = feed.arithmetic.rounding if isinstance(first.step, FmaChain) else "rn"
    yield f"each operation rounded {ROUNDED[rounding]}"


def _operation_name(x: Operated) -> str:
    return _SIGN[x.name] if x.name != "add" or x.k is None else "x + pair"


def _exact(x: Operated) -> Fraction | None:
    """The exact result of an operation on finite operands, before it is rounded."""
    values = [ShownCode(x.fmt, code).value for code in x.operands]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    if x.name == "add":
        return numbers[0] + numbers[1]
    return numbers[0] * numbers[1] + (numbers[2] if x.name == "fma" else 0)


def _off(exact: Fraction | None, result: ShownCode) -> str:
    got = result.value
    if exact is None or got is None or got == exact:
        return ""
    return plural((got - exact) / ulp(result.fmt, got, exact), "ulp", most=3)


def _operation_note(x: Operated) -> str:
    """The reason why a result is a NaN or an infinity."""
    outcome = ShownCode(x.fmt, x.result).number_class
    if outcome < INFINITE:
        return ""
    names = {"fma": "abx", "multiply": "ab", "add": "xy"}[x.name]
    classes = [ShownCode(x.fmt, code).number_class for code in x.operands]

    def those(kind: NumberClass) -> list[str]:
        return [name for name, own in zip(names, classes, strict=True) if own == kind]

    if nans := those(NAN):
        return f"{' and '.join(nans)} NaN"
    if outcome == NAN:
        product = {ZERO, INFINITE} <= set(classes[:2])
        return "inf * 0" if product and x.name != "add" else "inf - inf"
    infinite = those(INFINITE)
    return f"{', '.join(infinite)} infinite" if infinite else "too large"


# --- NaNs and infinities --------------------------------------------------------------------------


def causes(feed: Feed) -> list[str]:
    """Origin of the first NaN or infinity of a result that is one; [] for other results."""
    if not feed.d.code.fmt.is_float or feed.d.code.value is not None:
        return []
    number: dict[int, int] = {}
    for record in feed.records:
        before: ShownCode | None = None
        if isinstance(record, Summed):
            i = number[id(record.step)] = number.get(id(record.step), -1) + 1
            if found := list(_special_causes(record, _positions(record, i, feed), feed)):
                return found
        if isinstance(record, Summed | Changed):
            before, after = ShownCode(*record.before), ShownCode(*record.after)
        elif isinstance(record, Operated):
            after = ShownCode(record.fmt, record.result)
            if note := _operation_note(record):
                where = "" if record.k is None else f"k {feed.k[record.k]}: "
                return [f"{where}{_operation_name(record)}: {note}"]
        else:
            continue
        if after.value is None and (before is None or before.value is not None):
            return [f"the sum is too large for {after.fmt.name}"]
    return ["C is no finite number"]


def _special_causes(record: Summed, positions: list[list[int]], feed: Feed) -> Iterator[str]:
    """Lists operands that are NaNs and infinities, and their effect."""
    for i, term in enumerate(record.terms):
        if term.number_class < INFINITE:
            continue
        if i == len(positions):
            kind = "a NaN" if term.number_class == NAN else "an infinity"
            yield f"x: {kind} comes in with {ShownCode(*record.before).typed()}"
            continue
        for p in positions[i]:
            if reason := _product_cause(feed, p):
                yield f"k {feed.k[p]}: {reason}"
        for name, scales in (("A", feed.scale_a), ("B", feed.scale_b)):
            j = positions[i][0] * len(scales) // len(feed.k)
            if scales and scales[j].code.number_class == NAN:
                yield f"scale {j} of {name} is a NaN, {scales[j].code.hex}"
    signs = {t.sign for t in record.terms if t.number_class == INFINITE}
    if len(signs) == 2 and not any(t.number_class == NAN for t in record.terms):
        yield "infinities of both signs make a NaN"


def _product_cause(feed: Feed, i: int) -> str:
    a, b = feed.a[i].code, feed.b[i].code
    classes = {a.number_class, b.number_class}
    named = f"a = {a.both()}, b = {b.both()}"
    if max(classes) < INFINITE:
        return ""
    if NAN in classes:
        return f"a NaN operand: {named}"
    if ZERO in classes:
        return f"infinity times zero is a NaN: {named}"
    return f"an infinite product: {named}"
