"""All instruction forms of a target, for tests that go through them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Literal

from emulator.errors import OperandError, UnsupportedError, shown
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.targets import Target
from emulator.tools.listing import find_instructions


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
    sizes = _sizes(n)
    found = [ins for ins in find_instructions(target, type, family) if _has_size(ins, sizes)]
    if not found:
        asked = {"target": target, "family": family, "type": type, "n": sizes}
        words = ", ".join(f"{k} {v}" for k, v in asked.items() if v not in (None, "sample"))
        raise UnsupportedError(
            f"no instruction has {words:.200}; `python -m emulator list` shows all"
        )
    return found


def _sizes(n: object) -> str | tuple[int, ...]:
    if isinstance(n, str) and n in ("sample", "all"):
        return n
    try:
        return tuple(operator.index(size) for size in n)  # type: ignore[attr-defined]
    except TypeError:
        raise OperandError(f"n= is 'sample', 'all' or the values of N; got {shown(n)}") from None


def _has_size(ins: Instruction, sizes: str | tuple[int, ...]) -> bool:
    if sizes == "all" or not isinstance(ins, MatrixInstruction) or not ins.is_wgmma:
        return True
    legal = ins.form.n
    sample = (legal[0], legal[len(legal) // 2], legal[-1])
    return ins.n in (sample if sizes == "sample" else sizes)
