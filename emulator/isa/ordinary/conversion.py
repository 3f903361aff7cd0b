"""Conversions and moves: cvt, cvt.pack and mov (PTX ISA 9.7.9).

The cvts that pack elements of matrix operands, and those of f16, bf16 and tf32 from f32 that go
with them, have their own table in `emulator.isa.conversion`; none stands in both.
"""

from functools import partial

from emulator.arith.scalar.types import TYPES
from emulator.isa.ordinary.row import Row, doing
from emulator.targets import having

_80, _90 = having("sm_80"), having("sm_90")
_NAMES = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_INTEGERS = "|".join(_NAMES)
_CVT = "d:to+, a:from+"
#: with bf16 on either side no register may be wider
_NARROW = "d:to, a:from"


def _exceeding(to: str) -> str:
    """The integer types with numbers that `to` lacks: .sat is for them alone."""
    low, high = TYPES[to].smallest, TYPES[to].largest
    sources = (TYPES[name] for name in _NAMES)
    return "|".join(t.name for t in sources if t.smallest < low or t.largest > high)


_Whole = partial(Row, operands=_CVT, rule="conversion.integers")
_WHOLE = (
    _Whole(f"cvt.to={_INTEGERS}.from={_INTEGERS}", effects="pure points special"),
    *(_Whole(f"cvt.sat.to={to}.from={_exceeding(to)}", effects="pure special") for to in _NAMES),
    Row(
        f"cvt.rounding{{.ftz}}{{.sat}}.to=f32.from={_INTEGERS}", _CVT, "conversion.integer_to_float"
    ),
    Row(f"cvt.rounding{{.sat}}.to=f16|f64.from={_INTEGERS}", _CVT, "conversion.integer_to_float"),
    Row(
        f"cvt.rounding.to=bf16.from={_INTEGERS}", _NARROW, "conversion.integer_to_float", _90, "7.8"
    ),
    Row(
        f"cvt.integer_rounding{{.ftz}}{{.sat}}.to={_INTEGERS}.from=f32",
        _CVT,
        "conversion.float_to_integer",
    ),
    Row(
        f"cvt.integer_rounding{{.sat}}.to={_INTEGERS}.from=f16|f64",
        _CVT,
        "conversion.float_to_integer",
    ),
    Row(
        f"cvt.integer_rounding.to={_INTEGERS}.from=bf16",
        _NARROW,
        "conversion.float_to_integer",
        _90,
        "7.8",
    ),
)

_FLOATS = (
    Row("cvt{.ftz}{.sat}.to=f32.from=f32", _CVT, "conversion.move"),
    Row("cvt{.sat}.to=f16.from=f16", _CVT, "conversion.move"),
    Row("cvt{.sat}.to=f64.from=f64", _CVT, "conversion.move"),
    Row("cvt.to=bf16.from=bf16", _NARROW, "conversion.move", _90, "7.8"),
    Row("cvt.integer_rounding{.ftz}{.sat}.to=f32.from=f32", _CVT, "conversion.float_to_integral"),
    Row("cvt.integer_rounding{.sat}.to=f16.from=f16", _CVT, "conversion.float_to_integral"),
    Row("cvt.integer_rounding{.sat}.to=f64.from=f64", _CVT, "conversion.float_to_integral"),
    Row(
        "cvt.integer_rounding.to=bf16.from=bf16",
        _NARROW,
        "conversion.float_to_integral",
        _90,
        "7.8",
    ),
    Row("cvt{.ftz}{.sat}.to=f32.from=f16", _CVT, "conversion.floats"),
    Row("cvt{.ftz}{.sat}.to=f64.from=f32", _CVT, "conversion.floats"),
    Row("cvt{.sat}.to=f64.from=f16", _CVT, "conversion.floats"),
    Row("cvt.rounding{.ftz}{.sat}.to=f32.from=f64", _CVT, "conversion.floats"),
    Row("cvt.rounding{.sat}.to=f16.from=f64", _CVT, "conversion.floats"),
    Row("cvt.rounding=rm|rp{.ftz}{.sat}.to=f16.from=f32", _CVT, "conversion.floats"),
    Row("cvt.rounding=rn|rz.ftz{.sat}.to=f16.from=f32", _CVT, "conversion.floats"),
    Row("cvt.rounding=rn|rz.sat.to=f16.from=f32", _CVT, "conversion.floats"),
    Row("cvt{.rounding}.to=f32.from=bf16", _NARROW, "conversion.floats", _80, "7.1"),
    Row("cvt{.rounding}.ftz.to=f32.from=bf16", _NARROW, "conversion.floats", _90, "7.8"),
    Row("cvt.rounding=rm|rp{.ftz}.to=bf16.from=f32", _NARROW, "conversion.floats", _80, "7.0"),
    Row("cvt.rounding=rn|rz.ftz.to=bf16.from=f32", _NARROW, "conversion.floats", _80, "7.0"),
    Row("cvt.rounding.to=bf16.from=f64", _NARROW, "conversion.floats", _90, "7.8"),
    Row("cvt{.rounding}.to=f16|f64.from=bf16", _NARROW, "conversion.floats", _90, "7.8"),
    Row("cvt{.rounding}.to=bf16.from=f16", _NARROW, "conversion.floats", _90, "7.8"),
)

_PACK = doing(
    "pure packs special",
    (
        Row(
            "cvt.pack!.sat.to=u16|s16.from=s32",
            "d:u32+/f16x2, a:from+, b:from+",
            "conversion.pack",
            version="6.5",
        ),
        Row(
            "cvt.pack!.sat.to=u8|s8.from=s32.rest=b32",
            "d:u32+/f16x2, a:from+, b:from+, c:rest+",
            "conversion.pack_onto",
            version="6.5",
        ),
        Row(
            "cvt.pack!.sat.to=u2|s2|u4|s4.from=s32.rest=b32",
            "d:u32+/f16x2, a:from+, b:from+, c:rest+",
            "conversion.pack_onto",
            having("sm_75"),
            "6.5",
        ),
    ),
)

_MOV = doing(
    "pure moves points packs special",
    (
        Row("mov.type=u16|s16|f32|f64|pred", "d, a", "conversion.mov"),
        Row("mov.type=u32|u64|s32|s64", "d, a&", "conversion.mov"),
        Row("mov.type=b16", "d^, a^", "conversion.mov"),
        Row("mov.type=b32|b64", "d^, a^&", "conversion.mov"),
        Row("mov.type=b128", "d^, a^", "conversion.mov", version="8.3"),
        Row(
            "mov.vec=v2|v4.type=b16|u16|s16|b32|u32|s32|f32", "{d*vec}, {a*vec}", "conversion.movs"
        ),
        Row("mov.vec=v2.type=b64|u64|s64|f64", "{d*vec}, {a*vec}", "conversion.movs"),
    ),
)

ROWS = (*_WHOLE, *_FLOATS, *_PACK, *_MOV)
