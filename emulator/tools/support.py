"""The support table of README: instructions by generation, with their fidelity. Generated.

    python -m emulator.tools.support

prints it; a test compares it with README.
"""

from __future__ import annotations

from emulator.isa.catalogue import instructions, tensor_instructions
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.tcgen05 import Tcgen05
from emulator.targets import TARGETS
from emulator.tools.report import render

_TYPES = {
    "fp8": "e4m3 e5m2", "fp6, fp4": "e3m2 e2m3 e2m1", "s8, u8": "s8 u8", "s4, u4": "s4 u4",
}  # fmt: skip
_GENERATIONS = {
    "volta": "Volta", "turing": "Turing", "ampere": "Ampere", "ada": "Ada", "hopper": "Hopper",
    "blackwell": "Blackwell", "rtx_blackwell": "RTX Blackwell",
}  # fmt: skip


#: operations of tcgen05 -> their row
_SHOWN = {
    "mma": "tcgen05.mma",
    **dict.fromkeys(("ld", "st", "cp", "shift"), "tcgen05.ld, st, cp, shift"),
}


def support_table() -> list[str]:
    """Markdown lines: a row for each family and types, a column for each generation.

    A cell says exact, validated or modelled; both of the last where it depends on the shape.
    """
    levels: dict[tuple[str, str], dict[str, set[str]]] = {}
    for ins in (*instructions(), *tensor_instructions()):
        if isinstance(ins, Tcgen05) and ins.operation not in _SHOWN:
            continue
        row = levels.setdefault(_row(ins), {})
        for target in ins.targets:
            level = ins.fidelity(target).level
            row.setdefault(TARGETS[target].generation, set()).add(level)
    families = list(dict.fromkeys(family for family, _ in levels))
    cells = [
        [*key, *(", ".join(sorted(row.get(g, ()), reverse=True)) for g in _GENERATIONS)]
        for key, row in sorted(levels.items(), key=lambda item: families.index(item[0][0]))
    ]
    return render(["instruction", "types", *_GENERATIONS.values()], cells, "markdown")


def _row(ins: Instruction) -> tuple[str, str]:
    if isinstance(ins, Tcgen05):
        products = "i8, ti16 → s32" if ins.element_types.get("d") == "s32" else "floating point"
        return _SHOWN[ins.operation], products if ins.operation == "mma" else ""
    if not isinstance(ins, MatrixInstruction):
        return ins.family, ""
    types = [ins.a_type, ins.b_type]
    widest = "fp6, fp4" if any(t in _TYPES["fp6, fp4"].split() for t in types) else None
    name = widest or next((n for n, t in _TYPES.items() if ins.a_type in t.split()), ins.a_type)
    scaled = ", block scale" if ins.is_block_scaled else ""
    return ins.form.family, f"{name} → {ins.d_type}{scaled}"


if __name__ == "__main__":
    print("\n".join(support_table()))
