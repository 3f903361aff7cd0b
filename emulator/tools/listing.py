"""``list``: which instructions there are."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dtypes import FORMATS
from emulator.errors import OperandError, hint, runs
from emulator.isa.catalogue import instructions
from emulator.isa.instruction import Instruction
from emulator.isa.wmma import Wmma
from emulator.targets import find_target
from emulator.tools.answer import Answer, render
from emulator.tools.facts import element_types, sizes
from emulator.tools.wording import short_targets


def list_instructions(
    target: str | None = None,
    type_: str | None = None,
    family: str | None = None,
    every: bool = False,
) -> Answer:
    """One line per instruction that passes all filters.

    The N of wgmma share a line unless `every`. With a target the fidelity there is shown. fp8, fp6
    and fp4 stand for all their types, wmma for all that start so. Raises UnsupportedError for an
    unknown target, OperandError for an unknown type or family.
    """
    chosen = find_target(target).name if target is not None else None
    everything = [(ins, element_types(ins)) for ins in instructions()]
    named = [(_with_groups(types.values()), _families(ins)) for ins, types in everything]
    _check("type", type_, (name for types, _ in named for name in types))
    _check("family", family, (name for _, families in named for name in families))
    found: dict[str, list[Instruction]] = {}
    for (ins, _), (types, families) in zip(everything, named, strict=True):
        if (
            (chosen is None or chosen in ins.targets)
            and (type_ is None or type_ in types)
            and (family is None or family in families)
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


def _families(ins: Instruction) -> list[str]:
    """The family, and without what stands behind ``::``: mma.sp is the ordered one, too.

    wmma.mma is one of wmma; mma.sp is none of mma, which is a family itself.
    """
    out = [ins.family.split("::")[0], ins.family]
    return [*out, "wmma"] if isinstance(ins, Wmma) else out


def _with_groups(types: Iterable[str]) -> list[str]:
    """The types, and fp8, fp6, fp4 where floats with a sign of so many bits are among them."""
    out = list(types)
    floats = [FORMATS[x] for x in out if x in FORMATS and FORMATS[x].is_float]
    return out + [f"fp{x.bits}" for x in floats if x.bits <= 8 and x.signed]


def _any_n(ins: Instruction) -> str:
    return re.sub(r"n\d+k", "nNk", str(ins)) if ins.family.startswith("wgmma") else str(ins)


def _check(what: str, given: str | None, legal: Iterable[str]) -> None:
    names = list(dict.fromkeys(legal))
    if given is not None and given not in names:
        raise OperandError(f"no {what} {given!r}; there are {', '.join(names)}{hint(given, names)}")
