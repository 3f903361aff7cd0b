"""``explain``: why one element of D has the bits that it has.

Everything shown comes from the records of `reference` and from the tables; nothing is computed a
second time, but for the infinitely precise value that the result is compared with.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from emulator.arrays import accepts_tensors
from emulator.isa.instruction import Instruction
from emulator.targets import Target
from emulator.tools.explanations.data import explanation_data
from emulator.tools.explanations.exact import (
    both_text,
    code_text,
    exact_value,
    number_text,
    plural,
    ulps_apart,
    value_text,
)
from emulator.tools.explanations.feeds import Element, Feed, from_matrices, from_registers
from emulator.tools.explanations.steps import causes, step_sections
from emulator.tools.explanations.zeros import k_text, without_zeros
from emulator.tools.report import Block, Report, Section, Table


class Explanation(Report):
    """How one element of D came about; see `Report` for its forms."""


@accepts_tensors()
def explain(
    ins: Instruction | str,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    row: int,
    col: int,
    target: str | Target,
    codes: bool = False,
    scale_a: Any = None,
    scale_b: Any = None,
    nibbles: Any = None,
    computation: int = 0,
    batch: int | tuple[int, ...] = (),
) -> Explanation:
    """Explains D[row][col] of ``mma(ins, a, b, c, …)`` on `target`.

    Operands are as `mma` takes them; `ins` may be an opcode, wmma.mma is taken too. Where they have
    batch axes, `batch` says which. `computation` is that of m8n8k4.f16 whose lanes are shown.
    Raises what `mma` raises, and OperandError for a row, column or index out of range.
    """
    return explanation_of(
        from_matrices(
            ins, a, b, c, row=row, col=col, target=target, codes=codes, scale_a=scale_a,
            scale_b=scale_b, nibbles=nibbles, computation=computation, batch=batch,
        )
    )  # fmt: skip


@accepts_tensors(words=True)
def explain_registers(
    ins: Instruction | str,
    *operands: Any,
    row: int,
    col: int,
    target: str | Target,
    computation: int = 0,
    batch: int | tuple[int, ...] = (),
    **options: Any,
) -> Explanation:
    """Explains D[row][col] of ``execute(ins, *operands, target=target, **options)``.

    Operands and options are those of `execute`: lane registers, metadata, block scales, descriptors
    and shared memory. The rest is as in `explain`; raises what `execute` raises.
    """
    return explanation_of(
        from_registers(
            ins, *operands, row=row, col=col, target=target, computation=computation, batch=batch,
            **options,
        )
    )  # fmt: skip


def explanation_of(feed: Feed) -> Explanation:
    """The explanation of an element of D and all that fed it."""
    exact = exact_result(feed)
    sections = [
        Section("Result", _result(feed, exact)),
        Section("Operands", _operands(feed)),
        *step_sections(feed),
    ]
    title = f"D[{feed.row}][{feed.col}] of {feed.ins} on {feed.target}"
    return Explanation(title, sections, explanation_data(feed, exact))


def exact_result(feed: Feed) -> Fraction | None:
    """C + Σ a·b, infinitely precise; None where an operand is infinite or a NaN."""
    total = exact_value(feed.c.fmt, feed.c.code)
    for i in range(len(feed.k)):
        product = product_value(feed, i)
        total = None if total is None or product is None else total + product
    return total


def product_value(feed: Feed, i: int) -> Fraction | None:
    """a·b, with its scales; the bit operation of b1; None where an operand is no number."""
    a, b = feed.a[i], feed.b[i]
    if operation := feed.arithmetic.bit_operation:
        return Fraction(a.code ^ b.code if operation == "xor" else a.code & b.code)
    factors = [a, b]
    for scales in (feed.scale_a, feed.scale_b):
        if scales:
            factors.append(scales[i * len(scales) // len(feed.k)])
    out = Fraction(1)
    for factor in factors:
        value = exact_value(factor.fmt, factor.code)
        if value is None:
            return None
        out *= value
    return out


def _result(feed: Feed, exact: Fraction | None) -> list[Block]:
    fidelity = feed.ins.fidelity(feed.target)
    rows = [["D", f"{both_text(feed.d.fmt, feed.d.code, True)} ({feed.d.fmt.name})"]]
    if feed.d.place:
        rows.append(["in", feed.d.place.text])
    if exact is not None:
        what = "C + number of ones" if feed.arithmetic.bit_operation else "C + sum of a*b"
        what += ", infinitely precise" if feed.d.fmt.is_float else ""
        rows.append(["exact", f"{number_text(exact, True)}  ({what})"])
        rows.append(["distance", distance_text(feed, exact)])
    blocks: list[Block] = [Table(["", ""], rows), f"How sure: {fidelity}"]
    blocks.append("Numbers after ~ are shown rounded; bits after | are cut off.")
    if found := causes(feed):
        blocks.append(f"Why it is {value_text(feed.d.fmt, feed.d.code)}: {'; '.join(found)}")
    return blocks


def distance_text(feed: Feed, exact: Fraction) -> str:
    """How far D is from the exact value."""
    ulps = ulps_apart(feed.d.fmt, exact, feed.d.code)
    if ulps is None:
        return "D is no finite number"
    if not ulps:
        return "none: D is exact"
    unit = "ulp" if feed.d.fmt.is_float else "unit"
    side = "above" if ulps > 0 else "below"
    return f"D is {plural(abs(ulps), unit)} {side} it"


# --- operands -------------------------------------------------------------------------------------


def _operands(feed: Feed) -> list[Block]:
    c = feed.c
    held = f", {c.place.text}" if c.place else ""
    blocks: list[Block] = [f"C = {both_text(c.fmt, c.code, True)}{held}", *feed.notes]
    if feed.metadata:
        blocks.append(_metadata(feed))
    if feed.scale_a:
        blocks.append(_scales(feed))
        blocks.append("exp of a term below is the exponent of its scales' product alone")
    blocks.append(_words(feed) if feed.arithmetic.bit_operation else _products(feed))
    return blocks


def _place(x: Element) -> str:
    return x.place.text if x.place else "-"


def _products(feed: Feed) -> Table:
    """What meets at each k; the products of floating point are terms of the steps below."""
    exact = not feed.d.fmt.is_float
    rows = []
    for i, run in without_zeros([a.code | b.code for a, b in zip(feed.a, feed.b, strict=True)]):
        row = [k_text([feed.k[j] for j in range(i, i + run)], 20)]
        if run > 1:
            rows.append([*row, "zero", *[""] * (6 if exact else 5)])
            continue
        for x in (feed.a[i], feed.b[i]):
            row += [_place(x), code_text(x.fmt, x.code), value_text(x.fmt, x.code, most=6)]
        rows.append([*row, str(product_value(feed, i))] if exact else row)
    header = ["k", "a in", "a", "", "b in", "b", ""]
    return Table([*header, "a*b"] if exact else header, rows)


def _metadata(feed: Feed) -> Table:
    """Chunks of the row: the nibble, and the columns that it picks."""
    per_chunk = len(feed.k) // len(feed.metadata)
    rows = []
    for i, x in enumerate(feed.metadata):
        picked = feed.k[i * per_chunk : (i + 1) * per_chunk]
        rows.append([str(i), _place(x), f"{x.code:04b}", " ".join(map(str, picked))])
    return Table(["chunk", "metadata in", "nibble", "picks k"], rows)


def _scales(feed: Feed) -> Table:
    rows = []
    for i, (a, b) in enumerate(zip(feed.scale_a, feed.scale_b, strict=True)):
        per = len(feed.k) // len(feed.scale_a)
        row = [f"{i * per}-{(i + 1) * per - 1}" if not feed.metadata else str(i)]
        for x in (a, b):
            row += [_place(x), both_text(x.fmt, x.code)]
        rows.append(row)
    return Table(["k", "scale of A in", "", "scale of B in", ""], rows)


def _words(feed: Feed) -> Table:
    """Bits, 32 at a time, as the words that hold them."""
    rows = []
    for start in range(0, len(feed.k), 32):
        part = slice(start, start + 32)
        row = [f"{start}-{start + 31}"]
        words = []
        for elements in (feed.a[part], feed.b[part]):
            words.append(sum(x.code << i for i, x in enumerate(elements)))
            row += [_place(elements[0]).split("[")[0].split(" bit ")[0], f"{words[-1]:#010x}"]
        met = words[0] ^ words[1] if feed.arithmetic.bit_operation == "xor" else words[0] & words[1]
        rows.append([*row, f"{met:#010x}", str(met.bit_count())])
    operation = feed.arithmetic.bit_operation or ""
    return Table(["k", "a in", "a", "b in", "b", f"a {operation} b", "ones"], rows)
