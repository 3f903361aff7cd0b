"""A case for every recipe, pair of operand types and modifier that a form takes."""

from dataclasses import replace
from itertools import product

from designed import Case
from dots import ROUNDINGS

from dtypes import FORMATS
from emulator.arith.recipes import RECIPES, arithmetic_for_row

#: operand types that an instruction may mix
FAMILIES = ({"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}, {"s8", "u8"}, {"s4", "u4"})
#: k of the longest instruction, by the bits of an element of A; f64 and f16 chains are shorter
LENGTHS = {64: 8, 32: 8, 16: 16, 8: 32, 6: 32, 4: 64, 1: 256}


def variants(row, a, b):
    """The arithmetics of one row and pair of types, with the modifiers that its forms take."""
    c_types = ("f32", "f16") if row.pipe == "quad" and row.d == "f32" else (row.d,)
    for c in c_types:
        plain = arithmetic_for_row(row, a, b, c)
        if a == "f64":
            yield from ((f"-{how}", replace(plain, rounding=how), 0) for how in ROUNDINGS)
        elif a == "b1":
            yield from ((f"-{op}", replace(plain, bit_operation=op), 0) for op in ("and", "xor"))
        elif row.d == "s32":
            yield from ((f"-sat{on:d}", replace(plain, saturate=on), 0) for on in (False, True))
        elif row.kinds == "mxf8f6f4":
            yield "-1X", arithmetic_for_row(row, a, b, c, "ue8m0"), 1
        elif row.kinds:
            yield "-2X", arithmetic_for_row(row, a, b, c, "ue8m0"), 2
            yield "-4X", arithmetic_for_row(row, a, b, c, "ue4m3"), 4
        else:
            yield f"-c.{c}", plain, 0


def every_case():
    for row in RECIPES:
        types = row.a.split()
        for a, b in product(types, types):
            if a != b and not any({a, b} <= family for family in FAMILIES):
                continue
            for suffix, arithmetic, v in variants(row, a, b):
                k = 4 if row.pipe == "quad" else LENGTHS[FORMATS[a].bits]
                if row.d != "s32" and FORMATS[a].bits == 4 and not row.kinds.startswith("mxf4"):
                    k = 32  # in bytes
                where = f"{row.pipe}-{row.generations.replace(' ', '+')}"
                name = f"{where}-{row.kinds.split(' ')[0]}-{a}.{b}.{row.d}{suffix}"
                yield Case(name.replace("--", "-"), arithmetic, k, v)


#: every arithmetic once, by its first name: generations share many
CASES = tuple({(c.arithmetic, c.k, c.v): c for c in reversed([*every_case()])}.values())[::-1]
