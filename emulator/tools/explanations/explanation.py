"""``explain``: why one element of D has the bits that it has.

Everything shown comes from the records of `reference` and from the tables; nothing is computed a
second time, but for the infinitely precise value that the result is compared with.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from emulator.arrays import accepts_tensors
from emulator.isa.instruction import Instruction
from emulator.isa.recipe import Recipe
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.targets import Target
from emulator.tools.explanations.feeds import Asked, Feed, from_matrices, from_registers
from emulator.tools.explanations.numbers import (
    k_text,
    number_data,
    number_text,
    plural,
    ulps_apart,
    without_zeros,
)
from emulator.tools.explanations.steps import causes, step_data, step_sections
from emulator.tools.operands import as_multiplication
from emulator.tools.report import Block, Document, Section, Table


class Explanation(Document):
    """Explanation of one element of D; see `Report` for its forms."""


@accepts_tensors()
def explain(
    ins: Instruction | str,
    a: object,
    b: object,
    c: object = None,
    *,
    row: int,
    col: int,
    target: str | Target | Recipe,
    idesc: InstructionDescriptor | int | None = None,
    codes: bool = False,
    scale_a: object = None,
    scale_b: object = None,
    nibbles: object = None,
    computation: int = 0,
    batch: int | tuple[int, ...] = (),
) -> Explanation:
    """Explains D[row][col] of ``mma(ins, a, b, c, …)`` on `target`, or by a `Recipe`.

    Operands are as `mma` takes them; `ins` may be an opcode, wmma.mma is taken too, and a
    tcgen05.mma with its instruction descriptor `idesc`. Where they have
    batch axes, `batch` says which. `computation` is that of m8n8k4.f16 whose lanes are shown.
    Raises what `mma` raises, and OperandError for a row, column or index out of range.
    """
    asked = Asked(row, col, target, computation, batch)
    more = {"scale_a": scale_a, "scale_b": scale_b, "nibbles": nibbles}
    return _explanation(
        from_matrices(as_multiplication(ins, idesc), (a, b, c), asked, codes, **more)
    )


@accepts_tensors(words=True)
def explain_registers(
    ins: Instruction | str,
    *operands: object,
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
    asked = Asked(row, col, target, computation, batch)
    return _explanation(from_registers(as_multiplication(ins), operands, asked, options))


def _explanation(feed: Feed) -> Explanation:
    exact = _exact_result(feed)
    apart = None if exact is None else ulps_apart(exact, feed.d.code)
    level, detail = feed.ins.fidelity(feed.target)
    data = {
        "opcode": str(feed.ins), "target": feed.target.name, "row": feed.row, "col": feed.col,
        "fidelity": {"level": level, "detail": detail},
        "d": feed.d.data, "c": feed.c.data,
        # Exact numbers are fractions in text next to floats.
        "exact": number_data(exact), "ulps": number_data(apart),
        "special": causes(feed), "notes": list(feed.notes),
        "products": [{"k": k, "a": a.data, "b": b.data}
                     for k, a, b in zip(feed.k, feed.a, feed.b, strict=True)],
        **{name: [x.data for x in getattr(feed, name)]
           for name in ("scale_a", "scale_b", "metadata")},
        "steps": step_data(feed),
    }  # fmt: skip
    sections = [
        Section("Result", _result(feed, exact, apart)),
        Section("Operands", _operands(feed)),
        *step_sections(feed),
    ]
    way = "by" if isinstance(feed.target, Recipe) else "on"
    title = f"D[{feed.row}][{feed.col}] of {feed.ins} {way} {feed.target.name}"
    return Explanation(title, sections, data)


def _exact_result(feed: Feed) -> Fraction | None:
    """C + Σ a·b, infinitely precise; None where an operand is infinite or a NaN."""
    total = feed.c.code.value
    for i in range(len(feed.k)):
        product = _product(feed, i)
        total = None if total is None or product is None else total + product
    return total


def _product(feed: Feed, i: int) -> Fraction | None:
    """a·b, with its scales; the bit operation of b1; None where an operand is no number."""
    a, b = feed.a[i].code, feed.b[i].code
    if operation := feed.arithmetic.bit_operation:
        return Fraction(a.code ^ b.code if operation == "xor" else a.code & b.code)
    sides = [x for x in (feed.scale_a, feed.scale_b) if x]
    scales = [side[i * len(side) // len(feed.k)].code for side in sides]
    out = Fraction(1)
    for factor in (a, b, *scales):
        if factor.value is None:
            return None
        out *= factor.value
    return out


def _result(feed: Feed, exact: Fraction | None, apart: Fraction | None) -> list[Block]:
    d = feed.d.code
    rows = [["D", d.typed()]]
    if feed.d.held:
        rows.append(["in", feed.d.place])
    if exact is not None:
        what = "C + number of ones" if feed.arithmetic.bit_operation else "C + sum of a*b"
        what += ", infinitely precise" if d.fmt.is_float else ""
        rows.append(["exact", f"{number_text(exact, True)}  ({what})"])
        distance = "D is no finite number" if apart is None else "none: D is exact"
        if apart:
            unit, side = "ulp" if d.fmt.is_float else "unit", "above" if apart > 0 else "below"
            distance = f"D is {plural(abs(apart), unit)} {side} it"
        rows.append(["distance", distance])
    blocks: list[Block] = [
        Table(["", ""], rows),
        f"How sure: {feed.ins.fidelity(feed.target)}",
        "Numbers after ~ are shown rounded; bits after | are cut off.",
    ]
    if found := causes(feed):
        blocks.append(f"Why it is {d.text()}: {'; '.join(found)}")
    return blocks


# --- operands -------------------------------------------------------------------------------------


def _operands(feed: Feed) -> list[Block]:
    held = f", {feed.c.place}" if feed.c.held else ""
    blocks: list[Block] = [f"C = {feed.c.code.both(True)}{held}", *feed.notes]
    if feed.metadata:
        per_chunk = len(feed.k) // len(feed.metadata)
        picked = [feed.k[i : i + per_chunk] for i in range(0, len(feed.k), per_chunk)]
        rows = [
            [str(i), x.place, f"{x.code.code:04b}", " ".join(map(str, picked[i]))]
            for i, x in enumerate(feed.metadata)
        ]
        blocks.append(Table(["chunk", "metadata in", "nibble", "picks k"], rows))
    if feed.scale_a:
        per, rows = len(feed.k) // len(feed.scale_a), []
        for i, (a, b) in enumerate(zip(feed.scale_a, feed.scale_b, strict=True)):
            k = str(i) if feed.metadata else f"{i * per}-{(i + 1) * per - 1}"
            rows.append([k, a.place, a.code.both(), b.place, b.code.both()])
        blocks.append(Table(["k", "scale of A in", "", "scale of B in", ""], rows))
        blocks.append("exp of a term below is the exponent of its scales' product alone")
    blocks.append(_words(feed) if feed.arithmetic.bit_operation else _products(feed))
    return blocks


def _products(feed: Feed) -> Table:
    """Table of the elements that meet at each k; later steps show floating-point products."""
    exact = not feed.d.code.fmt.is_float
    rows, pairs = [], list(zip(feed.a, feed.b, strict=True))
    for i, run in without_zeros([a.code.code | b.code.code for a, b in pairs]):
        row = [k_text([feed.k[j] for j in range(i, i + run)], 20)]
        if run > 1:
            rows.append([*row, "zero", *[""] * (6 if exact else 5)])
            continue
        for x in pairs[i]:
            row += [x.place, x.code.hex, x.code.text(most=6)]
        rows.append([*row, str(_product(feed, i))] if exact else row)
    header = ["k", "a in", "a", "", "b in", "b", ""]
    return Table([*header, "a*b"] if exact else header, rows)


def _words(feed: Feed) -> Table:
    """Bits, 32 at a time, as the words that hold them."""
    operation = feed.arithmetic.bit_operation or ""
    rows = []
    for start in range(0, len(feed.k), 32):
        row, words = [f"{start}-{start + 31}"], []
        for elements in (feed.a[start : start + 32], feed.b[start : start + 32]):
            words.append(sum(x.code.code << i for i, x in enumerate(elements)))
            row += [elements[0].place.split("[")[0].split(" bit ")[0], f"{words[-1]:#010x}"]
        met = words[0] ^ words[1] if operation == "xor" else words[0] & words[1]
        rows.append([*row, f"{met:#010x}", str(met.bit_count())])
    return Table(["k", "a in", "a", "b in", "b", f"a {operation} b", "ones"], rows)
