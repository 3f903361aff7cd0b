"""``list``: which instructions there are."""

from __future__ import annotations

import re
from collections.abc import Iterable

from emulator.errors import OperandError, nearest
from emulator.isa.catalogue import instructions
from emulator.isa.instruction import Instruction
from emulator.targets import find_target
from emulator.tools.answer import Answer, render, runs
from emulator.tools.facts import element_types, sizes
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
    everything = [(ins, element_types(ins)) for ins in instructions()]
    _check("type", type_, (name for _, types in everything for name in types.values()))
    _check("family", family, (name for ins, _ in everything for name in _families(ins)))
    found: dict[str, list[Instruction]] = {}
    for ins, types in everything:
        if (
            (chosen is None or chosen in ins.targets)
            and (type_ is None or type_ in types.values())
            and (family is None or family in _families(ins))
        ):
            found.setdefault(str(ins) if every else _any_n(ins), []).append(ins)

    rows, data = [], []
    for opcode, same in found.items():
        ins = same[0]
        widths = [sizes(each)["n"] for each in same if sizes(each)]
        facts = {
            "opcode": opcode, "family": ins.family, "n": widths, "types": element_types(ins),
            "targets": list(ins.targets),
        }  # fmt: skip
        last = short_targets(ins.targets)
        if chosen is not None:
            last = facts["fidelity"] = ins.fidelity(chosen).level
        rows.append([opcode, runs(widths) if len(widths) > 1 else "", last])
        data.append(facts)
    header = ["opcode", "N", "targets" if chosen is None else f"on {chosen}"]
    if not any(shown for _, shown, _ in rows):
        header, rows = header[::2], [row[::2] for row in rows]
    return Answer(render(header, rows, "text"), data)


def _families(ins: Instruction) -> tuple[str, str]:
    """The family, and without what stands behind ``::``: mma.sp is the ordered one, too."""
    return ins.family.split("::")[0], ins.family


def _any_n(ins: Instruction) -> str:
    return re.sub(r"n\d+k", "nNk", str(ins)) if ins.family.startswith("wgmma") else str(ins)


def _check(what: str, given: str | None, legal: Iterable[str]) -> None:
    names = list(dict.fromkeys(legal))
    if given is not None and given not in names:
        raise OperandError(
            f"no {what} {given!r}; there are {', '.join(names)}; nearest is "
            f"{nearest(given, names)[0]!r}"
        )
