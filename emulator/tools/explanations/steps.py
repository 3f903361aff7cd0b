"""The records of one dot product in words: a section of sentences and tables for every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import singledispatch
from itertools import groupby

from dtypes import Format, NumberClass
from dtypes.codec import decode
from emulator.arith.steps import ROUNDED, FmaChain, Step, brief
from emulator.arith.trace import Changed, Counted, Operated, Record, Summed, Tagged, Term, Widened
from emulator.tools.explanations.exact import (
    binary_text,
    both_text,
    code_text,
    exact_value,
    number_text,
    plural,
    power_of_two,
    top_exponent,
    ulp_exponent,
    value_text,
)
from emulator.tools.explanations.feeds import Feed
from emulator.tools.explanations.zeros import k_text, without_zeros
from emulator.tools.report import Block, Section, Table
from emulator.tools.wording import steps as wording_of


def step_words(feed: Feed) -> list[str]:
    """What each step does, in a sentence."""
    steps = feed.arithmetic.steps
    words = wording_of(feed.ins, feed.target.name)
    return words if len(words) == len(steps) else [brief([step]) for step in steps]


def by_step(records: Sequence[Record]) -> list[tuple[Step, list[Record]]]:
    """The records of each step; every step has at least one."""
    groups = ((key, list(group)) for key, group in groupby(records, lambda x: id(x.step)))
    return [(group[0].step, group) for _, group in groups]


def step_sections(feed: Feed) -> list[Section]:
    """One section for each step of the recipe."""
    parts, words = by_step(feed.records), step_words(feed)
    return [
        Section(f"Step {i + 1} of {len(parts)}: {words[i]}", list(_blocks(records, feed)))
        for i, (_, records) in enumerate(parts)
    ]


def _blocks(records: Sequence[Record], feed: Feed) -> Iterator[Block]:
    if isinstance(records[-1], Summed):
        passes = [x for x in records if isinstance(x, Summed)]
        yield from _passes(passes, feed)
    elif isinstance(records[-1], Operated):
        for record in records:
            if isinstance(record, Changed):
                yield from _one(record, feed)
        yield from _operations([x for x in records if isinstance(x, Operated)], feed)
    else:
        for record in records:
            yield from _one(record, feed)


# --- steps that have one record -------------------------------------------------------------------


@singledispatch
def _one(record: Record, feed: Feed) -> Iterator[Block]:
    raise AssertionError(f"no words for {record}")


@_one.register
def _(record: Changed, feed: Feed) -> Iterator[Block]:
    before, after = record.before, record.after
    if before != after:
        yield f"x = {tagged_text(before)} becomes {tagged_text(after)}"


@_one.register
def _(record: Widened, feed: Feed) -> Iterator[Block]:
    rows = []
    for i, k in enumerate(feed.k):
        row = [str(k)]
        for side in (0, 1):
            row.append(both_text(record.formats[side], record.before[side][i]))
            row.append(code_text(record.fmt, record.after[side][i]))
        if record.before[0][i] or record.before[1][i]:
            rows.append(row)
    if rows:
        to = record.fmt.name
        yield Table(["k", "a", f"a in {to}", "b", f"b in {to}"], rows)
    if len(rows) < len(feed.k):
        yield "zeros stay zeros" if rows else "every a and b is zero"


@_one.register
def _(record: Counted, feed: Feed) -> Iterator[Block]:
    total, fmt = sum(record.addends), record.result.fmt
    exact = record.c + total
    got = exact_value(fmt, record.result.code)
    yield f"sum over k = {total}; C = {record.c}; exact sum {exact}"
    if got == exact:
        yield f"it fits {fmt.name}: D = {tagged_text(record.result)}"
    elif feed.arithmetic.saturate:
        yield f"too large for {fmt.name}, clamped: D = {tagged_text(record.result)}"
    else:
        assert got is not None
        times = int(exact - got) >> fmt.bits
        yield (
            f"too large for {fmt.name}, wrapped ({times:+d} times 2^{fmt.bits} left out): "
            f"D = {tagged_text(record.result)}"
        )


# --- the fused dot-add ----------------------------------------------------------------------------


def _passes(passes: Sequence[Summed], feed: Feed) -> Iterator[Block]:
    for number, record in enumerate(passes):
        positions = pass_positions(record, number, feed)
        name = f"Pass {number + 1} of {len(passes)}, {_positions_text(positions, feed)}: "
        name = name if len(passes) > 1 else ""
        labels = [*(_term_label(block, feed) for block in positions), "x"]
        if record.top is None:
            yield from _undivided(record, name, positions, labels, feed)
        else:
            yield from _aligned(record, name, positions, labels, feed)


def pass_positions(record: Summed, number: int, feed: Feed) -> list[list[int]]:
    """The products that each term of a pass but the last one stands for."""
    step = record.step
    block = step.blocks(len(feed.k) // step.group)[number]
    return [list(range(i * step.group, (i + 1) * step.group)) for i in block]


def _term_label(positions: Sequence[int], feed: Feed) -> str:
    first, last = feed.k[positions[0]], feed.k[positions[-1]]
    return f"k {first}" if len(positions) == 1 else f"k {first}-{last}"


def _positions_text(positions: Sequence[Sequence[int]], feed: Feed) -> str:
    return f"k = {k_text([feed.k[i] for block in positions for i in block])}"


def _undivided(
    record: Summed, name: str, positions: list[list[int]], labels: list[str], feed: Feed
) -> Iterator[Block]:
    causes = list(special_causes(record, positions, feed))
    if not causes:
        yield f"{name}every term is zero: x = {tagged_text(record.after)}"
        return
    yield f"{name}special values decide, nothing is added: x = {tagged_text(record.after)}"
    yield from causes


def special_causes(record: Summed, positions: list[list[int]], feed: Feed) -> Iterator[str]:
    """Which operands are NaNs and infinities, and what they make."""
    signs = {t.sign for t in record.terms if t.number_class == NumberClass.INFINITE}
    for i, term in enumerate(record.terms):
        if term.number_class < NumberClass.INFINITE:
            continue
        if i == len(positions):
            yield f"x: {_kind_of(term)} comes in with {tagged_text(record.before)}"
            continue
        for p in positions[i]:
            if reason := _product_cause(feed, p):
                yield f"k {feed.k[p]}: {reason}"
        for name, scales in (("A", feed.scale_a), ("B", feed.scale_b)):
            if scales and (j := positions[i][0] * len(scales) // len(feed.k)) < len(scales):
                scale = scales[j]
                if decode(scale.fmt, scale.code).number_class == NumberClass.NAN:
                    yield f"scale {j} of {name} is a NaN, {code_text(scale.fmt, scale.code)}"
    if len(signs) == 2 and not any(t.number_class == NumberClass.NAN for t in record.terms):
        yield "infinities of both signs make a NaN"


def _product_cause(feed: Feed, i: int) -> str:
    a, b = feed.a[i], feed.b[i]
    classes = [decode(x.fmt, x.code).number_class for x in (a, b)]
    named = [f"{name} = {both_text(x.fmt, x.code)}" for name, x in (("a", a), ("b", b))]
    if max(classes) < NumberClass.INFINITE:
        return ""
    if NumberClass.NAN in classes:
        return f"a NaN operand: {', '.join(named)}"
    if NumberClass.ZERO in classes:
        return f"infinity times zero is a NaN: {', '.join(named)}"
    return f"an infinite product: {', '.join(named)}"


def _kind_of(term: Term) -> str:
    return "a NaN" if term.number_class == NumberClass.NAN else "an infinity"


def _aligned(
    record: Summed, name: str, positions: list[list[int]], labels: list[str], feed: Feed
) -> Iterator[Block]:
    top, unit, step = record.top, record.unit, record.step
    assert top is not None
    parts = list(zip(labels, record.terms, record.cut, strict=True))
    live = [x for x in parts if x[1].significand]
    highest = max(term.exponent for _, term, _ in live)
    of = [label for label, term, _ in live if term.exponent == highest]
    why = f"the largest exponent is {highest}, of {_few(of)}"
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
        [
            label, number_text(term_value(term), most=most), str(term.exponent), text,
            cut_text(term, unit, term_value(term) - cut * power_of_two(unit)),
        ]
        for (label, term, cut), text in zip(live, bits, strict=False)
    ]  # fmt: skip
    rows.append(["sum", number_text(total, most=most), "", bits[-1], ""])
    yield Table(["term", "value", "exp", f"aligned, times 2^{top}", "cut off"], rows)
    dead = [i for i, term in enumerate(record.terms) if not term.significand]
    if dead:
        ks = [feed.k[p] for i in dead if i < len(positions) for p in positions[i]]
        names = [f"k {k_text(ks)}"] if ks else []
        names += ["x"] if dead[-1] == len(positions) else []
        yield f"zero, without a part in it: {', '.join(names)}"
    yield from _rounded(total, record.after, step.rounding, step.precision)


def term_value(term: Term) -> Fraction:
    magnitude = term.significand * power_of_two(term.exponent - term.fraction_bits)
    return -magnitude if term.sign else magnitude


def cut_text(term: Term, unit: int, lost: Fraction) -> str:
    """How many bits of a significand are cut off, zeros at its end not counted, and their worth."""
    below = max(unit - (term.exponent - term.fraction_bits), 0)
    if not lost:
        return ""
    zeros = (term.significand & -term.significand).bit_length() - 1
    count = min(below, term.significand.bit_length()) - zeros
    return f"{count} bit{'s' if count > 1 else ''}, {number_text(lost, most=4)}"


def _few(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names)})"


def _rounded(total: Fraction, after: Tagged, rounding: str, precision: int | None) -> Iterator[str]:
    """The sum before and after normalisation, and its rounding."""
    fmt = after.fmt
    if not total:
        yield f"the sum is zero: x = {tagged_text(after)}"
        return
    bits = precision or fmt.precision
    top = top_exponent(total)
    last = max(top, fmt.emin) - bits + 1
    point = max(top, last)
    normal = binary_text(total, point, last)
    short = "" if bits == fmt.precision else f" (kept of {fmt.name}'s {fmt.precision})"
    least = "; 2^emin is reached, fewer bits are left" if top < fmt.emin else ""
    yield f"normalised: {normal} times 2^{point}, {bits} significand bits{short}{least}"
    yield f"rounded {ROUNDED[rounding]} to {fmt.name}: {_error(total, after)}"


def _error(total: Fraction, after: Tagged) -> str:
    """``x = … , exact``, or by how much it is off."""
    got = exact_value(after.fmt, after.code)
    end = f"x = {tagged_text(after)}"
    if got is None:
        return f"{number_text(total, True)} is too large: {end}"
    off = got - total
    if not off:
        return f"{end}, exact"
    ulps = abs(off) / power_of_two(ulp_exponent(after.fmt, max(abs(got), abs(total))))
    way = "added" if (off > 0) == (total > 0) else "dropped"
    return f"{end}; {way} {number_text(abs(off))}, {plural(ulps, 'ulp')}"


def tagged_text(x: Tagged) -> str:
    """``0x3f800000 = 1 (f32)``."""
    return f"{both_text(x.fmt, x.code, True)} ({x.fmt.name})"


# --- IEEE 754 operations --------------------------------------------------------------------------

_SIGN = {"fma": "a*b + x", "multiply": "a*b", "add": "x + y"}


def _operations(records: Sequence[Operated], feed: Feed) -> Iterator[Block]:
    fmt = records[0].fmt
    rows = []
    for i, run in without_zeros([not _adds_nothing(x) for x in records]):
        x = records[i]
        k = "" if x.k is None else str(feed.k[x.k])
        if run > 1:
            k = k_text([feed.k[x.k] for x in records[i : i + run] if x.k is not None])
            rows.append([k, "zero", *[""] * 5])
            continue
        exact = operation_value(x)
        got = exact_value(fmt, x.result)
        rows.append([
            k, _operation_name(x), "" if exact is None else number_text(exact),
            code_text(fmt, x.result), value_text(fmt, x.result), _off(exact, got, fmt),
            _operation_note(x),
        ])  # fmt: skip
    header = ["k", "operation", "exact", "rounded", f"in {fmt.name}", "error", "why"]
    used = [i for i in range(len(header)) if i < 5 or any(row[i] for row in rows)]
    used = [i for i in used if i or any(row[0] for row in rows)]
    start = records[0].operands[-1 if records[0].name == "fma" else 0]
    if records[0].name == "fma":
        yield f"x starts as {tagged_text(Tagged(fmt, start))}"
    elif records[0].name == "add":
        x_text, c_text = (tagged_text(Tagged(fmt, code)) for code in records[0].operands)
        yield f"x = {x_text}, c = {c_text}"
    yield Table([header[i] for i in used], [[row[i] for i in used] for row in rows])
    rounding = feed.arithmetic.rounding if isinstance(records[0].step, FmaChain) else "rn"
    yield f"each operation rounded {ROUNDED[rounding]}"


def _adds_nothing(x: Operated) -> bool:
    """Whether it is a fused multiply-add of two zeros that leaves x as it is."""
    return x.name == "fma" and x.operands[:2] == (0, 0) and x.result == x.operands[2]


def _operation_name(x: Operated) -> str:
    return _SIGN[x.name] if x.name != "add" or x.k is None else "x + pair"


def operation_value(x: Operated) -> Fraction | None:
    """The exact result of an operation on finite operands, before it is rounded."""
    values = [exact_value(x.fmt, code) for code in x.operands]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    if x.name == "add":
        return numbers[0] + numbers[1]
    return numbers[0] * numbers[1] + (numbers[2] if x.name == "fma" else 0)


def _off(exact: Fraction | None, got: Fraction | None, fmt: Format) -> str:
    if exact is None or got is None or got == exact:
        return ""
    unit = power_of_two(ulp_exponent(fmt, max(abs(got), abs(exact))))
    return plural((got - exact) / unit, "ulp", most=3)


def _operation_note(x: Operated) -> str:
    """Why a result is a NaN or an infinity."""
    outcome = decode(x.fmt, x.result).number_class
    if outcome < NumberClass.INFINITE:
        return ""
    classes = [decode(x.fmt, code).number_class for code in x.operands]
    names = {"fma": "abx", "multiply": "ab", "add": "xy"}[x.name]
    nans = [n for n, kind in zip(names, classes, strict=True) if kind == NumberClass.NAN]
    if nans:
        return f"{' and '.join(nans)} NaN"
    infinite = [n for n, kind in zip(names, classes, strict=True) if kind == NumberClass.INFINITE]
    if outcome == NumberClass.NAN:
        product = {NumberClass.ZERO, NumberClass.INFINITE} <= set(classes[:2])
        return "inf * 0" if product and x.name != "add" else "inf - inf"
    return f"{', '.join(infinite)} infinite" if infinite else "too large"


def causes(feed: Feed) -> list[str]:
    """Where the first NaN or infinity of a result that is one comes from; [] of any other."""
    if not feed.d.fmt.is_float or exact_value(feed.d.fmt, feed.d.code) is not None:
        return []
    number: dict[int, int] = {}
    for record in feed.records:
        if isinstance(record, Summed):
            i = number[id(record.step)] = number.get(id(record.step), -1) + 1
            if found := list(special_causes(record, pass_positions(record, i, feed), feed)):
                return found
            after = record.after
        elif isinstance(record, Operated):
            after = Tagged(record.fmt, record.result)
            if note := _operation_note(record):
                where = "" if record.k is None else f"k {feed.k[record.k]}: "
                return [f"{where}{_operation_name(record)}: {note}"]
        elif isinstance(record, Changed):
            after = record.after
        else:
            continue
        if exact_value(after.fmt, after.code) is None:
            before = getattr(record, "before", None)
            if before is None or exact_value(before.fmt, before.code) is not None:
                return [f"the sum is too large for {after.fmt.name}"]
    return ["C is no finite number"]
