"""TEMPORARY."""
from emulator.isa.ordinary.row import Row
from dataclasses import replace
T="b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
SP="const|global|local|param|shared|shared::cta|shared::cluster|param::func|param::entry"
ROWS=(
 Row(f"ld{{.sem=weak|volatile|relaxed|acquire}}{{.scope=cta|cluster|gpu|sys}}{{.space={SP}}}{{.cop=ca|cg|cs|lu|cv|nc}}{{.level=L2::64B|L2::128B|L2::256B}}{{.vec=v2|v4}}.type={T}","{d:vec}, [a:space]"),
 Row(f"st{{.sem=weak|volatile|relaxed|release}}{{.scope=cta|cluster|gpu|sys}}{{.space={SP}}}{{.cop=wb|cg|cs|wt}}{{.vec=v2|v4}}.type={T}","[a:space], {b:vec}"),
 Row("bra{.uni}","target:label"),
 Row("ret{.uni}",""),Row("exit",""),Row("trap",""),Row("call{.uni}",""),
 Row("bar.sync","a:u32, b:u32?"),
 Row("barrier.sync{.aligned}","a:u32, b:u32?"),
)
