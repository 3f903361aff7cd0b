"""Integer arithmetic, logic, shifts and bit fields: PTX ISA 9.7.1, 9.7.2 and 9.7.8."""

from emulator.isa.ordinary.row import Row
from emulator.targets import having

INTEGERS = "u16|u32|u64|s16|s32|s64"
_WORDS = "u32|s32|u64|s64"
_80, _90 = having("sm_80"), having("sm_90")
_BYTES = having("add.u8x4")

#: of u32 ptxas divides without a branch
_SPLIT = "pure splits@u16|s16|s32|u64|s64"
_POINTS = "pure points"

_ARITHMETIC = (
    Row(f"add.type={INTEGERS}", "d, a, b", "integer.add", effects=_POINTS),
    Row("add.sat.type=s32", "d, a, b", "integer.add"),
    Row("add.type=u16x2|s16x2", "d, a, b", "integer.add", _90, "8.0"),
    Row("add.sat.type=u16x2|s16x2", "d, a, b", "integer.add", _BYTES, "9.2"),
    Row("add{.sat}.type=u8x4|s8x4", "d, a, b", "integer.add", _BYTES, "9.2"),
    Row(f"sub.type={INTEGERS}", "d, a, b", "integer.sub", effects=_POINTS),
    Row("sub.sat.type=s32", "d, a, b", "integer.sub"),
    Row("sub{.sat}.type=u8x4|s8x4", "d, a, b", "integer.sub", _BYTES, "9.2"),
    Row(f"mul.mode=lo|hi!.type={INTEGERS}", "d, a, b", "integer.mul"),
    Row("mul.mode=wide!.type=u16|u32|s16|s32", "d:wide, a, b", "integer.mul"),
    Row(f"mad.mode=lo|hi!.type={INTEGERS}", "d, a, b, c", "integer.mad", effects=_POINTS),
    Row("mad.mode=hi!.sat.type=s32", "d, a, b, c", "integer.mad"),
    Row(
        "mad.mode=wide!.type=u16|u32|s16|s32",
        "d:wide, a, b, c:wide",
        "integer.mad",
        effects=_POINTS,
    ),
    Row("mul24.mode=lo|hi!.type=u32|s32", "d, a, b", "integer.mul24"),
    Row("mad24.mode=lo|hi!.type=u32|s32", "d, a, b, c", "integer.mad24"),
    Row("mad24.mode=hi!.sat.type=s32", "d, a, b, c", "integer.mad24"),
    Row("clmad.mode=lo|hi!.type=u64|s64", "d, a, b, c", "integer.clmad", _80, "9.3"),
    Row(f"sad.type={INTEGERS}", "d, a, b, c", "integer.sad"),
    Row(f"div.type={INTEGERS}", "d, a, b", "integer.div", effects=_SPLIT),
    Row(f"rem.type={INTEGERS}", "d, a, b", "integer.rem", effects=_SPLIT),
    Row("abs.type=s16|s32|s64", "d, a", "integer.absolute"),
    Row("neg.type=s16|s32|s64", "d, a", "integer.neg"),
    Row("neg.type=s8x4", "d, a", "integer.neg", _BYTES, "9.2"),
    Row(f"min.type={INTEGERS}", "d, a, b", "integer.minimum", effects=_POINTS),
    Row("min.type=u16x2|s16x2", "d, a, b", "integer.minimum", _90, "8.0"),
    Row("min.relu.type=s32|s16x2", "d, a, b", "integer.minimum", _90, "8.0"),
    Row("min.type=u8x4|s8x4", "d, a, b", "integer.minimum", _BYTES, "9.2"),
    Row("min.relu.type=s8x4", "d, a, b", "integer.minimum", _BYTES, "9.2"),
    Row(f"max.type={INTEGERS}", "d, a, b", "integer.maximum"),
    Row("max.type=u16x2|s16x2", "d, a, b", "integer.maximum", _90, "8.0"),
    Row("max.relu.type=s32|s16x2", "d, a, b", "integer.maximum", _90, "8.0"),
    Row("max.type=u8x4|s8x4", "d, a, b", "integer.maximum", _BYTES, "9.2"),
    Row("max.relu.type=s8x4", "d, a, b", "integer.maximum", _BYTES, "9.2"),
    Row(
        "dp4a.atype=u32|s32.btype=u32|s32",
        "d:u32, a:u32/f16x2, b:u32/f16x2, c:u32",
        "integer.dp4a",
        version="5.0",
    ),
    Row(
        "dp2a.mode=lo|hi!.atype=u32|s32.btype=u32|s32",
        "d:u32, a:u32/f16x2, b:u32/f16x2, c:u32",
        "integer.dp2a",
        version="5.0",
    ),
)

_CARRIES = (
    Row(
        f"add.cc.type={_WORDS}",
        "d, a, b",
        "carry.add_cc",
        version="1.2",
        carry="writes",
        effects=_POINTS,
    ),
    Row(f"addc.type={_WORDS}", "d, a, b", "carry.addc", version="1.2", carry="reads"),
    Row(f"addc.cc.type={_WORDS}", "d, a, b", "carry.addc", version="1.2", carry="reads and writes"),
    Row(
        f"sub.cc.type={_WORDS}",
        "d, a, b",
        "carry.sub_cc",
        version="1.2",
        carry="writes",
        effects=_POINTS,
    ),
    Row(f"subc.type={_WORDS}", "d, a, b", "carry.subc", version="3.0", carry="reads"),
    Row(f"subc.cc.type={_WORDS}", "d, a, b", "carry.subc", version="3.0", carry="reads and writes"),
    Row(
        f"mad.mode=lo|hi!.cc.type={_WORDS}",
        "d, a, b, c",
        "carry.mad_cc",
        version="3.0",
        carry="writes",
    ),
    Row(
        f"madc.mode=lo|hi!.type={_WORDS}", "d, a, b, c", "carry.madc", version="3.0", carry="reads"
    ),
    Row(
        f"madc.mode=lo|hi!.cc.type={_WORDS}",
        "d, a, b, c",
        "carry.madc",
        version="3.0",
        carry="reads and writes",
    ),
)

_LOGIC = (
    Row("and.type=b16|b32|b64|pred", "d, a, b", "bits.and_", effects="pure points zero"),
    Row("or.type=b16|b32|b64", "d, a, b", "bits.or_", effects="pure points packs"),
    Row("or.type=pred", "d, a, b", "bits.or_", effects="pure one"),
    Row("xor.type=b16|b32|b64|pred", "d, a, b", "bits.xor", effects=_POINTS),
    Row("not.type=b16|b32|b64|pred", "d, a", "bits.not_"),
    Row("cnot.type=b16|b32|b64", "d, a", "bits.cnot"),
    Row("lop3.type=b32", "d~, a, b, c, lut=", "bits.lop3", version="4.3"),
    Row(
        "lop3.combine=or|and.type=b32",
        "d~|p, a, b, c, lut=, q",
        "bits.lop3_predicate",
        version="8.2",
    ),
    Row("shl.type=b16|b32|b64", "d, a, b:u32", "bits.shl"),
    Row("shr.type=b16|b32|b64|u16|u32|u64|s16|s32|s64", "d, a, b:u32", "bits.shr"),
    Row("shf.direction=l|r!.mode=clamp|wrap.type=b32", "d, a, b, c:u32", "bits.shf", version="3.1"),
    Row(
        "prmt.type=b32{.mode=f4e|b4e|rc8|ecl|ecr|rc16}",
        "d, a, b, c",
        "bits.prmt",
        version="2.0",
        effects="pure packs",
    ),
)

_FIELDS = (
    Row(f"bfe.type={_WORDS}", "d, a, b:u32<0..255>, c:u32<0..255>", "fields.bfe", version="2.0"),
    Row(
        "bfi.type=b32|b64",
        "f, a, b, c:u32<0..255>, d:u32<0..255>",
        "fields.bfi",
        version="2.0",
        effects="pure packs",
    ),
    Row("szext.mode=clamp|wrap.type=u32|s32", "d, a, b:u32", "fields.szext", version="7.6"),
    Row("bmsk.mode=clamp|wrap.type=b32", "d:u32, a:u32, b:u32", "fields.bmsk", version="7.6"),
    Row("popc.type=b32|b64", "d:u32, a", "fields.popc", version="2.0"),
    Row("clz.type=b32|b64", "d:u32, a", "fields.clz", version="2.0"),
    Row("brev.type=b32|b64", "d, a", "fields.brev", version="2.0"),
    Row(f"bfind{{.shiftamt}}.type={_WORDS}", "d:u32, a", "fields.bfind", version="2.0"),
    Row("fns.type=b32", "d:b32, mask:b32, base:b32, offset:b32", "fields.fns", version="6.0"),
)

ROWS = (*_ARITHMETIC, *_CARRIES, *_LOGIC, *_FIELDS)
