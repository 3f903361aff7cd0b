"""CuTe's atom names and MMA-Sim's short qualifiers: the PTX beside them is CUTLASS's own asm."""

import pytest

from emulator import Instruction, ParseError, UnsupportedError
from emulator.isa.aliases import cute_name
from emulator.isa.catalogue import instructions

DENSE, WGMMA = "mma.sync.aligned", "wgmma.mma_async.sync.aligned"
#: name in include/cute/arch of CUTLASS 4.x -> the instruction in its asm statement
ATOMS = {
    "SM70_8x8x4_F32F16F16F32_TN": f"{DENSE}.m8n8k4.row.col.f32.f16.f16.f32",
    "SM70_8x8x4_F16F16F16F16_NT": f"{DENSE}.m8n8k4.col.row.f16.f16.f16.f16",
    "SM70_8x8x4_F16F16F16F16_NN": f"{DENSE}.m8n8k4.col.col.f16.f16.f16.f16",
    "SM70_8x8x4_F32F16F16F32_TT": f"{DENSE}.m8n8k4.row.row.f32.f16.f16.f32",
    "SM75_16x8x8_F32F16F16F32_TN": f"{DENSE}.m16n8k8.row.col.f32.f16.f16.f32",
    "SM75_8x8x16_S32S8S8S32_TN": f"{DENSE}.m8n8k16.row.col.s32.s8.s8.s32",
    "SM80_16x8x16_F32F16F16F32_TN": f"{DENSE}.m16n8k16.row.col.f32.f16.f16.f32",
    "SM80_16x8x8_F32BF16BF16F32_TN": f"{DENSE}.m16n8k8.row.col.f32.bf16.bf16.f32",
    "SM80_16x8x4_F32TF32TF32F32_TN": f"{DENSE}.m16n8k4.row.col.f32.tf32.tf32.f32",
    "SM80_8x8x4_F64F64F64F64_TN": f"{DENSE}.m8n8k4.row.col.f64.f64.f64.f64",
    "SM80_16x8x32_S32U8S8S32_TN_SATURATE": f"{DENSE}.m16n8k32.row.col.satfinite.s32.u8.s8.s32",
    "SM80_16x8x64_S32S4U4S32_TN": f"{DENSE}.m16n8k64.row.col.s32.s4.u4.s32",
    "SM80_16x8x256_S32U1U1S32_TN_XORPOPC": f"{DENSE}.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "SM80_8x8x128_S32U1U1S32_TN_ANDPOPC": f"{DENSE}.m8n8k128.row.col.s32.b1.b1.s32.and.popc",
    "SM89_16x8x32_F32E4M3E5M2F32_TN": f"{DENSE}.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "SM89_16x8x32_F16E5M2E5M2F16_TN": f"{DENSE}.m16n8k32.row.col.f16.e5m2.e5m2.f16",
    "SM90::MMA_16x8x16_F64F64F64F64_TN": f"{DENSE}.m16n8k16.row.col.f64.f64.f64.f64",
    "SM90_16x8x4_F64F64F64F64_TN": f"{DENSE}.m16n8k4.row.col.f64.f64.f64.f64",
    "SM90::GMMA::MMA_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::MN>":
        f"{WGMMA}.m64n128k16.f32.f16.f16",
    "MMA_64x128x16_F32F16F16_RS": f"{WGMMA}.m64n128k16.f32.f16.f16",
    "SM90_64x64x16_F32BF16BF16_SS": f"{WGMMA}.m64n64k16.f32.bf16.bf16",
    "cute::SM90::GMMA::MMA_64x24x8_F32TF32TF32_RS_TN<GMMA::ScaleIn::One, GMMA::ScaleIn::Neg>":
        f"{WGMMA}.m64n24k8.f32.tf32.tf32",
    "MMA_64x8x32_S32S8U8_SS_TN_SATURATE": f"{WGMMA}.m64n8k32.satfinite.s32.s8.u8",
    "MMA_64x256x32_F16E4M3E5M2_SS_TN": f"{WGMMA}.m64n256k32.f16.e4m3.e5m2",
    "SM90::GMMA::SPARSE::GMMA_64x8x32_F32F16F16_SS":
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16",
    "GMMA_64x16x64_S32U8U8_RS_TN_SATURATE<GMMA::SparseSel::Zero>":
        "wgmma.mma_async.sp.sync.aligned.m64n16k64.satfinite.s32.u8.u8",
    "SM120_16x8x32_TN<float_e2m1_t, float_e3m2_t, half_t>":
        f"{DENSE}.kind::f8f6f4.m16n8k32.row.col.f16.e2m1.e3m2.f16",
    "SM120_16x8x32_TN<cutlass::float_e4m3_t, cutlass::float_e4m3_t, float>":
        f"{DENSE}.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "SM120_16x8x32_TN_VS<float_e4m3_t, float_e2m3_t, float, float_ue8m0_t, 32>":
        f"{DENSE}.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col"
        ".f32.e4m3.e2m3.f32.ue8m0",
    "SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue8m0_t, 32>":
        f"{DENSE}.kind::mxf4nvf4.block_scale.scale_vec::2X.m16n8k64.row.col"
        ".f32.e2m1.e2m1.f32.ue8m0",
    "SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 16>":
        f"{DENSE}.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col"
        ".f32.e2m1.e2m1.f32.ue4m3",
    "SM120_SPARSE_16x8x64_TN<float_e5m2_t, float_e4m3_t, half_t>":
        f"{DENSE}.kind::f8f6f4.sp::ordered_metadata.m16n8k64.row.col.f16.e5m2.e4m3.f16",
    "SM120_SPARSE_16x8x64_TN_VS<float_e3m2_t, float_e3m2_t, float, float_ue8m0_t, 64>":
        f"{DENSE}.kind::mxf8f6f4.sp::ordered_metadata.block_scale.scale_vec::1X.m16n8k64.row.col"
        ".f32.e3m2.e3m2.f32.ue8m0",
    "SM120_SPARSE_16x8x128_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 32>":
        f"{DENSE}.kind::mxf4nvf4.sp::ordered_metadata.block_scale.scale_vec::4X.m16n8k128.row.col"
        ".f32.e2m1.e2m1.f32.ue4m3",
    "SM75_U32x4_LDSM_N": "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "SM75_U16x2_LDSM_T": "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16",
    "SM75_U32x1_MOVM_T": "movmatrix.sync.aligned.m8n8.trans.b16",
    "SM90_U32x2_STSM_N": "stmatrix.sync.aligned.m8n8.x2.shared.b16",
    "SM90_U16x8_STSM_T": "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "SM100_U8x8_LDSM_T": "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8",
    "SM100_SU4_DU8x16_x2_LDSM_N": "ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b4x16_p64",
    "SM100_SU6_DU8x16_x4_LDSM_N": "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b6x16_p32",
    "SM100_U8x16_STSM_T": "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8",
}  # fmt: skip


@pytest.mark.parametrize("atom", ATOMS)
def test_atoms_are_instructions(atom):
    assert Instruction.parse(atom) == Instruction.parse(ATOMS[atom])
    assert Instruction.parse(f"  {atom} ") == Instruction.parse(ATOMS[atom])


def test_every_name_is_unique_and_parses():
    named = [(cute_name(ins), ins) for ins in instructions()]
    names = [name for name, _ in named if name]
    assert len(names) == len(set(names)) > 1300
    for name, ins in named[::7]:
        if name and "<" not in name:
            number = "".join(filter(str.isdigit, ins.targets[-1]))
            assert Instruction.parse(f"SM{number}_{name}") == ins


@pytest.mark.parametrize(
    ("short", "opcode"),
    [
        ("m16n8k16.f32.f16.f16.f32", f"{DENSE}.m16n8k16.row.col.f32.f16.f16.f32"),
        ("m16n8k8.f32.tf32.tf32.f32", f"{DENSE}.m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("m8n8k4.f64.f64.f64.f64", f"{DENSE}.m8n8k4.row.col.f64.f64.f64.f64"),
        ("m16n8k32.s32.s8.u8.s32", f"{DENSE}.m16n8k32.row.col.s32.s8.u8.s32"),
        ("m16n8k32.f16.e4m3.e5m2.f16", f"{DENSE}.m16n8k32.row.col.f16.e4m3.e5m2.f16"),
        ("m16n8k32.f32.e2m1.e4m3.f32",
         f"{DENSE}.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e4m3.f32"),
        ("m16n8k32.block32.f32.e5m2.e4m3.f32.ue8m0",
         f"{DENSE}.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col"
         ".f32.e5m2.e4m3.f32.ue8m0"),
        ("m16n8k64.block16.f32.e2m1.e2m1.f32.ue4m3",
         f"{DENSE}.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col"
         ".f32.e2m1.e2m1.f32.ue4m3"),
        ("m64n8k16.f32.f16.f16", f"{WGMMA}.m64n8k16.f32.f16.f16"),
        ("m64n248k32.f16.e5m2.e4m3", f"{WGMMA}.m64n248k32.f16.e5m2.e4m3"),
    ],
)  # fmt: skip
def test_short_qualifiers(short, opcode):
    assert Instruction.parse(short) == Instruction.parse(opcode)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("SM80_16x8x16_F32F16F16F16_TN", ParseError,
         "no CuTe atom is 'SM80_16x8x16_F32F16F16F16_TN'; nearest are "
         "'SM80_16x8x16_F32F16F16F32_TN'"),
        ("SM75_16x8x16_F32F16F16F32_TN", UnsupportedError, "which sm_75 has not; its targets"),
        ("SM90_64x128x16_F32F16F16F32_SS", ParseError, "'SM90::GMMA::MMA_64x128x16_F32F16F16_SS'"),
        ("MMA_64x8x32_F32F16F16_SS", ParseError, "GMMA_64x8x32_F32F16F16_SS"),
        ("SM80_8x8x4_C64C64C64C64_TN", UnsupportedError, "complex numbers"),
        ("SM100_MMA_F16BF16_SS", UnsupportedError, r"tcgen05\.mma"),
        ("SM120_16x8x32_TN<float_e4m3_t, float_e4m3_t, float", ParseError, "closing '>'"),
        ("SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 32>", ParseError,
         "ue4m3,16>"),
        ("SM90_U32x8_STSM_N", ParseError, "SM90_U32x4_STSM_N"),
        ("SM80_", ParseError, "no CuTe atom"),
        ("m8n8k4.f32.f16.f16.f32", UnsupportedError, r"names 4 instructions; .*\.col\.row\."),
        ("m8n8k128.s32.b1.b1.s32", UnsupportedError, r"names 2 instructions; .*xor.*and"),
        ("m16n8k64.block32.f32.e2m1.e2m1.f32.ue8m0", UnsupportedError, "names 2 instructions"),
        ("m16n8k64.block0.f32.e2m1.e2m1.f32.ue8m0", UnsupportedError, "no dense mma or wgmma"),
        ("m16n8k16.f32.f16.f16", UnsupportedError, r"nearest is mma\.sync\.aligned\.m16n8k16"),
        ("m128n8k16.f32.f16.f16", UnsupportedError, "no dense mma or wgmma"),
        ("m16n8k16.", UnsupportedError, "no dense mma or wgmma"),
        ("sm80_16x8x16", ParseError, "is no instruction"),
    ],
)  # fmt: skip
def test_wrong_aliases(text, error, words):
    with pytest.raises(error, match=words):
        Instruction.parse(text)


def test_an_alias_is_spelled_as_ptx():
    ins = Instruction.parse("SM80_16x8x16_F32F16F16F32_TN")
    assert str(ins) == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert cute_name(ins) == "16x8x16_F32F16F16F32_TN"
    assert (
        cute_name(Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")) is None
    )
