"""Floating-point arithmetic: PTX ISA 9.7.3 (f32, f64), 9.7.4 (f16, bf16) and 9.7.5 (mixed)."""

from emulator.isa.ordinary.row import Row
from emulator.targets import having

_80, _90, _100 = (having(f"sm_{n}") for n in (80, 90, 100))
_75 = having("sm_75")

_SUMS = tuple(
    row
    for name in ("add", "sub", "mul")
    for row in (
        Row(f"{name}{{.rounding}}{{.ftz}}{{.sat}}.type=f32", "d, a, b", f"floating.{name}"),
        Row(f"{name}{{.rounding}}.type=f64", "d, a, b", f"floating.{name}", version="1.3"),
        Row(f"{name}{{.rounding}}{{.ftz}}.type=f32x2", "d, a, b", f"floating.{name}", _100, "8.6"),
        Row(
            f"{name}{{.rounding=rn}}{{.ftz}}{{.sat}}.type=f16|f16x2",
            "d, a, b",
            f"floating.{name}",
            version="4.2",
        ),
        Row(f"{name}{{.rounding=rn}}.type=bf16|bf16x2", "d, a, b", f"floating.{name}", _90, "7.8"),
    )
)

_FUSED = (
    Row("fma.rounding{.ftz}{.sat}.type=f32", "d, a, b, c", "fused.fma", version="2.0"),
    Row("fma.rounding.type=f64", "d, a, b, c", "fused.fma", version="1.4"),
    Row("fma.rounding{.ftz}.type=f32x2", "d, a, b, c", "fused.fma", _100, "8.6"),
    Row("fma.rounding=rn{.ftz}{.sat}.type=f16|f16x2", "d, a, b, c", "fused.fma", version="4.2"),
    Row("fma.rounding=rn{.ftz}.relu.type=f16|f16x2", "d, a, b, c", "fused.fma", _80, "7.0"),
    Row("fma.rounding=rn{.relu}.type=bf16|bf16x2", "d, a, b, c", "fused.fma", _80, "7.0"),
    # The manual has .rn alone.
    *(
        Row(f"fma.rounding=rz|rm|rp{{.relu}}.type={type_}", "d, a, b, c", rule, _80, "7.0")
        for type_, rule in (("bf16", "fused.fma_of_half"), ("bf16x2", "fused.fma_to_nearest"))
    ),
    Row(
        "fma.rounding=rn.oob{.relu}.type=f16|f16x2|bf16|bf16x2",
        "d, a, b, c",
        "fused.fma_oob",
        _90,
        "8.1",
    ),
    # The manual has .rn alone.
    Row(
        "fma.rounding=rz|rm|rp.oob{.relu}.type=bf16|bf16x2",
        "d, a, b, c",
        "",
        _90,
        "8.1",
        effects="pure",
        unmodelled="oob beside another rounding than rn, which nobody has documented or recorded",
    ),
    Row("mad.rounding{.ftz}{.sat}.type=f32", "d, a, b, c", "fused.fma", version="2.0"),
    Row("mad.rounding.type=f64", "d, a, b, c", "fused.fma", version="1.4"),
)

_MIXED = (
    Row(
        "add{.rounding}{.sat}.type=f32.atype=f16|bf16",
        "d, a:atype, c",
        "floating.add_mixed",
        _100,
        "8.6",
    ),
    Row(
        "sub{.rounding}{.sat}.type=f32.atype=f16|bf16",
        "d, a:atype, c",
        "floating.sub_mixed",
        _100,
        "8.6",
    ),
    Row(
        "fma.rounding{.sat}.type=f32.atype=f16|bf16",
        "d, a:atype, b:atype, c",
        "fused.fma_mixed",
        _100,
        "8.6",
    ),
)

_QUOTIENTS = (
    Row(
        "div.rounding{.ftz}.type=f32",
        "d, a, b",
        "quotients.div",
        version="2.0",
        effects="pure splits",
    ),
    Row("div.rounding.type=f64", "d, a, b", "quotients.div", version="1.4", effects="pure splits"),
    Row(
        "rcp.rounding{.ftz}.type=f32", "d, a", "quotients.rcp", version="2.0", effects="pure splits"
    ),
    # ptxas makes the same code of it with .ftz and without, though f64 has no such mode.
    Row(
        "rcp.rounding{.unheeded=ftz}.type=f64",
        "d, a",
        "quotients.rcp",
        version="1.4",
        effects="pure splits",
    ),
    Row(
        "sqrt.rounding{.ftz}.type=f32",
        "d, a",
        "quotients.sqrt",
        version="2.0",
        effects="pure splits",
    ),
    Row("sqrt.rounding.type=f64", "d, a", "quotients.sqrt", version="1.4", effects="pure splits"),
)

_SIGNS = tuple(
    row
    for name, rule in (("abs", "comparison.absolute"), ("neg", "comparison.neg"))
    for row in (
        Row(f"{name}{{.ftz}}.type=f32", "d, a", rule),
        Row(f"{name}.type=f64", "d, a", rule),
        Row(f"{name}{{.ftz}}.type=f16|f16x2", "d, a", rule, version="6.0"),
        Row(f"{name}.type=bf16|bf16x2", "d, a", rule, _80, "7.0"),
    )
)

_EXTREMES = tuple(
    row
    for name, rule in (("min", "comparison.minimum"), ("max", "comparison.maximum"))
    for row in (
        Row(
            f"{name}{{.ftz}}.type=f32",
            "d, a, b, c?",
            rule,
            optional_on=_100,
            later_operands=(("c", "8.8"),),
        ),
        Row(
            f"{name}{{.ftz}}.NaN.type=f32",
            "d, a, b, c?",
            rule,
            _80,
            "7.0",
            optional_on=_100,
            later_operands=(("c", "8.8"),),
        ),
        Row(
            f"{name}{{.ftz}}{{.NaN}}.xorsign.abs.type=f32", "d, a, b", rule, having("sm_86"), "7.2"
        ),
        Row(f"{name}{{.ftz}}{{.NaN}}.abs.type=f32", "d, a, b, c", rule, _100, "8.8"),
        Row(f"{name}.type=f64", "d, a, b", rule),
        Row(f"{name}{{.ftz}}{{.NaN}}.type=f16|f16x2", "d, a, b", rule, _80, "7.0"),
        Row(f"{name}{{.NaN}}.type=bf16|bf16x2", "d, a, b", rule, _80, "7.0"),
        Row(
            f"{name}{{.ftz}}{{.NaN}}.xorsign.abs.type=f16|f16x2",
            "d, a, b",
            rule,
            having("sm_86"),
            "7.2",
        ),
        Row(
            f"{name}{{.NaN}}.xorsign.abs.type=bf16|bf16x2", "d, a, b", rule, having("sm_86"), "7.2"
        ),
    )
)

ROWS = (*_SUMS, *_FUSED, *_MIXED, *_QUOTIENTS, *_SIGNS, *_EXTREMES)
