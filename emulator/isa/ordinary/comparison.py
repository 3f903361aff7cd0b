"""Comparisons, selections and tests of numbers: PTX ISA 9.7.3, 9.7.6 and 9.7.7."""

from typing import NamedTuple

from emulator.isa.ordinary.row import ALL_TARGETS, Row
from emulator.targets import having

_90 = having("sm_90")
_EQUAL = "eq|ne"
_SIGNED = f"{_EQUAL}|lt|le|gt|ge"
_UNSIGNED = f"{_SIGNED}|lo|ls|hi|hs"
_FLOAT = f"{_SIGNED}|equ|neu|ltu|leu|gtu|geu|num|nan"

_COMBINE = ".combine=and|or|xor"


class Compared(NamedTuple):
    """Types that setp and set compare alike."""

    compare: str
    types: str
    ftz: str = ""
    targets: tuple[str, ...] = ALL_TARGETS
    version: str = "1.0"
    #: destinations of set
    to: str = "u32|s32|f16|f32"
    #: those that are no .ftz forms and came with sm_90
    to_bf16: str = "bf16"
    #: destinations of setp. Measured on ptxas: single halves have no second one.
    pair: str = "p~|q~?"


_HALF = "u16|s16|u32|s32"
_COMPARED = (
    Compared(_EQUAL, "b16|b32|b64"),
    Compared(_UNSIGNED, "u16|u32|u64"),
    Compared(_SIGNED, "s16|s32|s64"),
    Compared(_FLOAT, "f32", "{.ftz}"),
    Compared(_FLOAT, "f64"),
    Compared(_FLOAT, "f16", "{.ftz}", version="4.2", to=f"{_HALF}|f16", pair="p~"),
    Compared(_FLOAT, "bf16", "", _90, "7.8", to=_HALF, pair="p~"),
    Compared(_FLOAT, "f16x2", "{.ftz}", version="4.2", to="u32|s32|f16x2", to_bf16=""),
    Compared(_FLOAT, "bf16x2", "", _90, "7.8", to="u32|s32", to_bf16="bf16x2"),
)


def _rows(
    form: str, operands: str, rule: str, targets: tuple[str, ...], version: str
) -> tuple[Row, Row]:
    """The plain form and the one that combines the result with a predicate."""
    combined = form.replace("|COMBINE", _COMBINE)
    with_ = "c%:pred" if "bf16" in form else "c:pred"
    return (
        Row(form.replace("|COMBINE", ""), operands, rule, targets, version),
        Row(combined, f"{operands}, {with_}", rule, targets, version),
    )


_SETP = tuple(
    row
    for x in _COMPARED
    for row in _rows(
        f"setp.compare={x.compare}|COMBINE{x.ftz}.type={x.types}",
        f"{x.pair}, a, b",
        "comparison.setp",
        x.targets,
        x.version,
    )
)

_SET = tuple(
    row
    for x in _COMPARED
    for to, ftz, targets, version in (
        (x.to, x.ftz, x.targets, x.version),
        (x.to_bf16, "", _90, "7.8"),
    )
    if to
    for row in _rows(
        f"set.compare={x.compare}|COMBINE{ftz}.to={to}.type={x.types}",
        "d:to, a:type, b:type",
        "comparison.set_",
        targets,
        version,
    )
)

_SELECT = (
    Row(
        "selp.type=b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64",
        "d, a, b, c:pred",
        "comparison.selp",
        effects="pure moves selects points",
    ),
    Row(
        "slct.type=b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64.ctype=s32",
        "d, a, b, c:ctype",
        "comparison.slct",
    ),
    Row(
        "slct{.ftz}.type=b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64.ctype=f32",
        "d, a, b, c:ctype",
        "comparison.slct",
    ),
    Row(
        "testp{.test=finite|infinite|number|notanumber|normal|subnormal}.type=f32|f64",
        "p, a",
        "comparison.testp",
        version="2.0",
    ),
    Row("copysign.type=f32|f64", "d, a, b", "comparison.copysign", version="2.0"),
)

ROWS = (*_SETP, *_SET, *_SELECT)
