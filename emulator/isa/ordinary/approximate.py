"""Approximate functions: PTX ISA 9.7.3 and 9.7.4."""

from emulator.isa.ordinary.row import Row
from emulator.targets import having

_75, _90 = having("sm_75"), having("sm_90")

ROWS = (
    *(
        Row(f"{name}.approx{{.ftz}}.type=f32", "d, a", f"approximate.{name}", version=version)
        for name, version in (
            ("rcp", "1.4"),
            ("sqrt", "1.4"),
            ("rsqrt", "1.4"),
            ("sin", "1.4"),
            ("cos", "1.4"),
            ("lg2", "1.4"),
            ("ex2", "1.4"),
        )
    ),
    *(
        Row(f"{name}.approx.ftz.unit=2pi.type=f32", "d, a", f"approximate.{name}", version="9.5")
        for name in ("sin", "cos")
    ),
    Row("div.approx{.ftz}.type=f32", "d, a, b", "approximate.div", version="1.4"),
    Row("div.full!{.ftz}.type=f32", "d, a, b", "approximate.div", version="1.4"),
    Row("rcp.approx.ftz.type=f64", "d, a", "approximate.rcp64", version="2.1"),
    Row(
        "rsqrt.approx.type=f64", "d, a", "approximate.rsqrt64", version="1.4", effects="pure splits"
    ),
    Row("rsqrt.approx.ftz.type=f64", "d, a", "approximate.rsqrt64", version="1.4"),
    Row("tanh.approx.type=f32", "d, a", "approximate.tanh", _75, "7.0"),
    Row("tanh.approx.type=f16|f16x2", "d, a", "approximate.tanh_half", _75, "7.0"),
    Row("tanh.approx.type=bf16|bf16x2", "d, a", "approximate.tanh_half", _90, "7.8"),
    Row("ex2.approx.type=f16|f16x2", "d, a", "approximate.ex2_half", _75, "7.0"),
    Row("ex2.approx.ftz.type=bf16|bf16x2", "d, a", "approximate.ex2_half", _90, "7.8"),
)
