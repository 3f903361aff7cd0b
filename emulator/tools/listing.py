"""``list``: which instructions there are."""

from __future__ import annotations

from collections.abc import Iterable

from dtypes import FORMATS
from emulator.errors import OperandError, nearest
from emulator.isa.instruction import Instruction, instructions
from emulator.isa.table import FORMS
from emulator.targets import find_target
from emulator.tools.answer import Answer, render, runs
from emulator.tools.wording import short_targets


def list_instructions(
    target: str | None = None,
    type_: str | None = None,
    family: str | None = None,
    every: bool = False,
) -> Answer:
    """One line per instruction that passes all filters.

    The N of wgmma share a line unless `every`. With a target the fidelity there is shown. Raises
    UnsupportedError for an unknown target, OperandError for an unknown type or family.
    """
    chosen = find_target(target).name if target is not None else None
    _check("type", type_, FORMATS)
    _check("family", family, [*(form.family for form in FORMS), "mma.sp::ordered_metadata"])
    found: dict[str, list[Instruction]] = {}
    for ins in instructions():
        if (
            (chosen is None or chosen in ins.targets)
            and (type_ is None or type_ in element_types(ins).values())
            and (family is None or family in (ins.family, ins.form.family))
        ):
            found.setdefault(str(ins) if every else _any_n(ins), []).append(ins)

    rows, data = [], []
    for opcode, same in found.items():
        ins = same[0]
        sizes = [each.n for each in same]
        facts = {
            "opcode": opcode, "family": ins.family, "n": sizes, "types": element_types(ins),
            "targets": list(ins.targets),
        }  # fmt: skip
        last = short_targets(ins.targets)
        if chosen is not None:
            last = facts["fidelity"] = ins.fidelity(chosen).level
        rows.append([opcode, runs(sizes) if len(sizes) > 1 else "", last])
        data.append(facts)
    header = ["opcode", "N", "targets" if chosen is None else f"on {chosen}"]
    if not any(sizes for _, sizes, _ in rows):
        header, rows = header[::2], [row[::2] for row in rows]
    return Answer(render(header, rows, "text"), data)


def _any_n(ins: Instruction) -> str:
    return str(ins).replace(f"n{ins.n}k", "nNk") if ins.is_wgmma else str(ins)


def _check(what: str, given: str | None, legal: Iterable[str]) -> None:
    names = list(dict.fromkeys(legal))
    if given is not None and given not in names:
        raise OperandError(
            f"no {what} {given!r}; there are {', '.join(names)}; nearest is "
            f"{nearest(given, names)[0]!r}"
        )


def element_types(ins: Instruction) -> dict[str, str]:
    """Element types by operand."""
    types = {"d": ins.d_type, "a": ins.a_type, "b": ins.b_type, "c": ins.c_type}
    return types | ({"scale": ins.scale_type} if ins.scale_type else {})
