"""Which lane map each operand of an instruction uses: derived from its shape and types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtypes import FORMATS, Format, Place, place
from emulator.layout.fragment import Fragment
from emulator.layout.fragments import lane_map

if TYPE_CHECKING:
    from emulator.isa.matrix import MatrixInstruction

#: one metadata nibble: two 2-bit indices of a chunk
NIBBLE = Place(4, 0, 4)


def fragments_of(ins: MatrixInstruction) -> dict[str, Fragment]:
    """The fragments of all register operands, by operand name."""

    def make(
        operand: str, element: Format, where: Place, name: str, e: int = 1, size: int = 0
    ) -> Fragment:
        word_bits = max(32, where.width)
        return Fragment(operand, element, where, lane_map(name, e, size), word_bits)

    def multiplicand(operand: str, name: str, type_: str, where: Place, size: int) -> Fragment:
        return make(operand, FORMATS[type_], where, name, max(1, 32 // where.width), size)

    def accumulator(operand: str, name: str, type_: str) -> Fragment:
        return make(operand, FORMATS[type_], place(FORMATS[type_]), name, 1, ins.m * ins.n)

    types = {"c": ins.c_type, "d": ins.d_type}
    if ins.form.pipe == "quad":
        a_layout, b_layout = ins.layouts
        f16 = FORMATS["f16"]
        return {
            "a": make("a", f16, place(f16), f"a.quad.{a_layout}"),
            "b": make("b", f16, place(f16), f"b.quad.{b_layout}"),
            **{x: accumulator(x, f"c.quad.{t}", t) for x, t in types.items()},
        }
    a_size = ins.m * ins.stored_k
    out = {"a": multiplicand("a", f"a{ins.m}", ins.a_type, ins.a_place, a_size)}
    if ins.is_wgmma:
        out["d"] = accumulator("d", "d64", ins.d_type)
    else:
        out["b"] = multiplicand("b", "b8", ins.b_type, ins.b_place, ins.k * ins.n)
        out |= {x: accumulator(x, f"c{ins.m}", t) for x, t in types.items()}
    if ins.is_sparse:
        name = f"e64.{ins.form.metadata}" if ins.is_wgmma else f"e.{ins.form.metadata}"
        out["e"] = make("e", FORMATS["u4"], NIBBLE, name)
    if ins.is_block_scaled:
        scale = FORMATS[ins.scale_type]
        for operand in ("scale_a", "scale_b"):
            where = place(scale, 8)
            out[operand] = make(operand, scale, where, operand, ins.scale_chunks)
    return out
