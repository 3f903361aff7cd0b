"""The command ``list``: instructions by target, type and family."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dtypes import FORMATS
from emulator.errors import OperandError, hint, listing, quoted, runs, shown
from emulator.isa.catalogue import instructions, tensor_instructions
from emulator.isa.instruction import Instruction
from emulator.isa.tcgen05 import Tcgen05
from emulator.isa.wmma import Wmma
from emulator.targets import Target, find_target
from emulator.tools.facts import element_types, sizes
from emulator.tools.report import Answer, render
from emulator.tools.wording import short_targets


def find_instructions(
    target: str | Target | None,
    type_: str | None,
    family: str | None,
    *,
    tensor_memory: bool = False,
) -> list[Instruction]:
    """Every instruction with a target, an operand of a type, and a family; None: any. With
    `tensor_memory` tcgen05 is among them, without collectors.

    fp8, fp6 and fp4 stand for all their types, wmma and tcgen05 for all that start so, mma.sp for
    the ::ordered_metadata ones, too. Raises UnsupportedError for an unknown target, OperandError
    for an unknown type or family.
    """
    chosen = None if target is None else find_target(target).name
    for what, given in (("type", type_), ("family", family)):
        if given is not None and not isinstance(given, str):
            raise OperandError(f"a {what} is a word such as f16 or mma; got {shown(given)}")
    known = [*instructions(), *(tensor_instructions() if tensor_memory else ())]
    found = [
        ins
        for ins in known
        if (chosen is None or chosen in ins.targets)
        and (family is None or family in _families(ins))
        and (type_ is None or type_ in _types(ins))
    ]
    if not found:
        _check("type", type_, (name for ins in known for name in _types(ins)))
        _check("family", family, (name for ins in known for name in _families(ins)))
    return found


def _families(ins: Instruction) -> list[str]:
    """The family, without what stands behind ``::``, too; mma.sp is not among mma."""
    out, first = [ins.family.split("::")[0], ins.family], ins.family.partition(".")[0]
    if isinstance(ins, Tcgen05):
        return [ins.family, first]
    return [*out, first] if isinstance(ins, Wmma) else out


def _types(ins: Instruction) -> Iterator[str]:
    """The types, and fp8, fp6, fp4 where floats with a sign of so many bits are among them."""
    for name in " ".join(_element_types(ins).values()).split():
        yield name
        fmt = FORMATS.get(name)
        if fmt and fmt.is_float and fmt.signed and fmt.bits <= 8:
            yield f"fp{fmt.bits}"


def _element_types(ins: Instruction) -> dict[str, str]:
    return ins.element_types if isinstance(ins, Tcgen05) else element_types(ins)


def _check(what: str, given: str | None, known: Iterable[str]) -> None:
    names = list(dict.fromkeys(known))
    if given is not None and given not in names:
        near = hint(given, names)
        raise OperandError(f"no {what} {quoted(given)}; there are {listing(names, 60)}{near}")


# --- list -----------------------------------------------------------------------------------------


#: arguments of `list` and what they mean
LIST_HELP = {
    "--target": "only those of this target: sm_90a, H100, ...",
    "--type": "only those with elements of this type: f16, s8, fp8, ...",
    "--family": "only mma, mma.sp, wgmma, wmma, ldmatrix, tcgen05.mma, ...",
    "--all": "every N of wgmma, and of tcgen05.ld and st, on a line of its own",
}


def list_command(
    target: str | None = None,
    type_: str | None = None,
    family: str | None = None,
    all_: bool = False,
) -> Answer:
    """One line for each of `find_instructions`; the N of wgmma share a line unless `all_`, and so
    do those of tcgen05.ld and st.

    With a target the fidelity there is shown.
    """
    found: dict[str, list[Instruction]] = {}
    for ins in find_instructions(target, type_, family, tensor_memory=True):
        found.setdefault(str(ins) if all_ else _any_n(ins), []).append(ins)
    chosen = None if target is None else find_target(target).name
    rows, data = [], []
    for opcode, same in found.items():
        ins = same[0]
        widths = [width for each in same if (width := _width(each)) is not None]
        facts = {
            "opcode": opcode, "family": ins.family, "n": widths, "types": _element_types(ins),
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
    return Answer(render(header, rows), data)


def _width(ins: Instruction) -> int | None:
    """N of a product, or the .num of tcgen05.ld and st."""
    if isinstance(ins, Tcgen05):
        num = ins.modifiers.get("num")
        return int(num[1:]) if num else None
    return sizes(ins).get("n")


def _any_n(ins: Instruction) -> str:
    if isinstance(ins, Tcgen05):
        return re.sub(r"\.x\d+\b", ".xN", str(ins))
    return re.sub(r"n\d+k", "nNk", str(ins)) if ins.scope == "warpgroup" else str(ins)
