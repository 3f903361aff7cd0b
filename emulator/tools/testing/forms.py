"""All instruction forms of a target, for tests that go through them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from emulator.errors import OperandError, UnsupportedError, listing, nearest
from emulator.isa.catalogue import instructions
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import Target, find_target
from emulator.tools.facts import element_types


def all_forms(
    target: str | Target | None = None,
    *,
    family: str | None = None,
    type: str | None = None,
    n: Literal["sample", "all"] | Iterable[int] = "sample",
) -> list[Instruction]:
    """Every instruction that `target` has (None: that any has), with all its types and modifiers.

    `family` is mma, mma.sp, wgmma, ldmatrix, cvt … (mma.sp has the ::ordered_metadata ones, too),
    `type` that of any operand's elements. Of the N of wgmma there are by default the least, one
    from the middle and the greatest; "all" has every N, a collection those that it names.

    Raises UnsupportedError for an unknown target, OperandError for an unknown family, type or n,
    and where nothing is left: a test that ran over no form would pass.
    """
    chosen = None if target is None else find_target(target).name
    if n not in ("sample", "all") and (isinstance(n, str) or not isinstance(n, Iterable)):
        raise OperandError(f"n= is 'sample', 'all' or the values of N; got {n!r:.80}")
    sizes = n if isinstance(n, str) else tuple(n)
    found = [
        ins
        for ins in instructions()
        if (chosen is None or chosen in ins.targets)
        and (family is None or family in _families(ins))
        and _has_size(ins, sizes)
        and (type is None or type in element_types(ins).values())
    ]
    if not found:
        _check("family", family, (name for ins in instructions() for name in _families(ins)))
        types = (name for ins in instructions() for name in element_types(ins).values())
        _check("type", type, types)
        asked = {"target": chosen, "family": family, "type": type, "n": n}
        words = ", ".join(f"{k} {v}" for k, v in asked.items() if v not in (None, "sample"))
        raise UnsupportedError(f"no instruction has {words}; `python -m emulator list` shows all")
    return found


def _families(ins: Instruction) -> tuple[str, str]:
    return ins.family.split("::")[0], ins.family


def _has_size(ins: Instruction, sizes: str | tuple[int, ...]) -> bool:
    if sizes == "all" or not isinstance(ins, MatrixInstruction) or not ins.is_wgmma:
        return True
    legal = ins.form.n
    sample = (legal[0], legal[len(legal) // 2], legal[-1])
    return ins.n in (sample if sizes == "sample" else sizes)


def _check(what: str, given: str | None, known: Iterable[str]) -> None:
    names = list(dict.fromkeys(known))
    if given is not None and given not in names:
        raise OperandError(
            f"no {what} {given!r:.80}; there are {listing(names, 24)}; nearest is "
            f"{nearest(str(given)[:80], names)[0]!r}"
        )
