"""Whole kernels on tcgen05, built as CUTLASS and Triton build theirs, against matrices."""

import numpy as np
import pytest
from bits import assert_same_codes

from emulator import InstructionDescriptor, Memory, Module, TensorMap, gemm, mma
from emulator.arith.scalar.arrays import ARRAYS
from emulator.arith.special_words import ex2

F16 = "tcgen05.mma.cta_group::1.kind::f16"
RNG = np.random.default_rng(15)
HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k({parameters})
{{
 .reg .pred %p, %q, %on; .reg .b32 %r<40>; .reg .b32 %w<64>; .reg .b64 %rd<20>; .reg .f32 %f<64>;
 .reg .b16 %h<2>;
 .shared .align 1024 .b8 sm[{shared}]; .shared .align 8 .b64 bars[8]; .shared .b32 slot;
 mov.u32 %r0, %tid.x; mov.u32 %r1, sm; mov.u32 %r2, bars;
 setp.lt.u32 %p, %r0, 32; setp.eq.u32 %q, %r0, 0;
{inits}
 @%q fence.mbarrier_init.release.cluster;
 @%p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 128;
 tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
 ld.shared.b32 %r3, [slot];
 shr.u32 %r4, %r0, 5; and.b32 %r5, %r4, 3; shl.b32 %r5, %r5, 21; add.u32 %r5, %r5, %r3;
{body}
 tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
 @%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 128;
 ret;
}}
"""
#: of 128 bytes swizzle, 1024 bytes from 8 rows to the next; and without swizzle, with units of 16
#: bytes 128 apart and 8 rows {stride} apart
SWIZZLED = hex(2 << 61 | 1 << 46 | 64 << 32)


def plain(stride):
    return hex(1 << 46 | stride // 16 << 32 | 8 << 16)


def module(body, parameters, *, shared=49152, barriers=5):
    inits = "\n".join(
        f" @%q mbarrier.init.shared::cta.b64 [%r2+{8 * i}], 1;" for i in range(barriers)
    )
    return Module(HEAD.format(body=body, parameters=parameters, shared=shared, inits=inits))


def wait(label, barrier, parity):
    return f"""{label}: mbarrier.try_wait.parity.shared::cta.b64 %on, [{barrier}], {parity};
 @!%on bra {label};"""


def registers(prefix, count):
    return "{" + ", ".join(f"{prefix}{i}" for i in range(count)) + "}"


def stored(columns, address, prefix="%w"):
    """Columns of the accumulator of each of the first 128 threads to memory, f32."""
    lines = [
        f" tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {registers(prefix, columns)}, [%r5];",
        " tcgen05.wait::ld.sync.aligned;",
        *(f" st.global.b32 [{address}+{4 * i}], {prefix}{i};" for i in range(columns)),
    ]
    return "\n".join(lines)


# --- warps of their own: copies, products, epilogue -----------------------------------------------

#: barriers 0, 1: a stage is full; 2, 3: it is empty; 4: all is done. Two stages of 24 KiB.
PIPELINE = """ ld.param.u32 %r6, [pn]; mov.u32 %r7, 0;
 mov.u64 %rd0, pa; cvta.param.u64 %rd0, %rd0; mov.u64 %rd1, pb; cvta.param.u64 %rd1, %rd1;
 mov.u32 %r20, %ctaid.x; mov.u32 %r21, %ctaid.y;
 shl.b32 %r20, %r20, {rows_shift}; shl.b32 %r21, %r21, 6;
 setp.eq.u32 %on, %r0, 128; @%on bra COPIES;
 setp.eq.u32 %on, %r0, 160; @%on bra PRODUCTS;
 setp.ge.u32 %on, %r0, 128; @%on bra END;
{wait_done}
 tcgen05.fence::after_thread_sync;
 ld.param.u64 %rd2, [po]; mov.u32 %r22, %ctaid.x; shl.b32 %r22, %r22, 7; add.u32 %r22, %r22, %r0;
 ld.param.u32 %r23, [pw]; mad.lo.u32 %r22, %r22, %r23, %r21; mad.wide.u32 %rd2, %r22, 4, %rd2;
{store}
 bra END;
COPIES:
 and.b32 %r8, %r7, 1; shr.u32 %r9, %r7, 1; and.b32 %r9, %r9, 1; xor.b32 %r10, %r9, 1;
 mad.lo.u32 %r11, %r8, 8, %r2; mad.lo.u32 %r12, %r8, 24576, %r1; add.u32 %r13, %r12, 16384;
 add.u32 %r14, %r11, 16;
{wait_empty}
 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 24576;
 shl.b32 %r15, %r7, 6;
{copy_a}
 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
   [%r13], [%rd1, {{%r15, %r21}}], [%r11];
 add.u32 %r7, %r7, 1; setp.lt.u32 %on, %r7, %r6; @%on bra COPIES;
 bra END;
PRODUCTS:
 and.b32 %r8, %r7, 1; shr.u32 %r9, %r7, 1; and.b32 %r9, %r9, 1;
 mad.lo.u32 %r11, %r8, 8, %r2; mad.lo.u32 %r12, %r8, 24576, %r1; add.u32 %r14, %r11, 16;
{wait_full}
 tcgen05.fence::after_thread_sync;
 shr.u32 %r12, %r12, 4; cvt.u64.u32 %rd3, %r12; add.u64 %rd3, %rd3, {descriptor};
 add.u64 %rd4, %rd3, 1024;
 setp.ne.u32 %on, %r7, 0;
{products}
 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r14];
 add.u32 %r7, %r7, 1; setp.lt.u32 %on, %r7, %r6; @%on bra PRODUCTS;
 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2+32];
END:
"""
TILED = """ cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
   [%r12], [%rd0, {%r15, %r20}], [%r11];"""
#: of a 3 × 3 filter of 64 channels, one tap a step; 128 pixels of images of 8 × 8, padded by one
CONVOLVED = """ div.u32 %r16, %r7, 3; rem.u32 %r17, %r7, 3;
 cvt.u16.u32 %h0, %r17; cvt.u16.u32 %h1, %r16;
 mov.u32 %r18, 0; mov.u32 %r19, -1;
 cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
   [%r12], [%rd0, {%r18, %r19, %r19, %r20}], [%r11], {%h0, %h1};"""


def pipeline(idesc, copy_a, rows_shift):
    products = "\n".join(
        f" add.u64 %rd5, %rd3, {2 * i}; add.u64 %rd6, %rd4, {2 * i};\n"
        f" {F16} [%r3], %rd5, %rd6, {idesc.encode()}, {'%on' if i == 0 else 1};"
        for i in range(4)
    )
    body = PIPELINE.format(
        wait_done=wait("DONE", "%r2+32", 0), wait_empty=wait("EMPTY", "%r14", "%r10"),
        wait_full=wait("FULL", "%r11", "%r9"), store=stored(64, "%rd2"), products=products,
        descriptor=SWIZZLED, copy_a=copy_a, rows_shift=rows_shift,
    )  # fmt: skip
    parameters = ".param .align 64 .b8 pa[128], .param .align 64 .b8 pb[128], .param .u64 po, " \
                 ".param .u32 pn, .param .u32 pw"  # fmt: skip
    return module(body, parameters)


M128 = InstructionDescriptor("f16", "f16", "f16", m=128, n=64)


def numbers(*shape):
    return RNG.normal(size=shape).astype(np.float16)


@pytest.mark.slow
@pytest.mark.parametrize("check", [False, True])
def test_a_pipelined_product(check):
    a, b, d = numbers(256, 320), numbers(128, 320), np.zeros((256, 128), np.float32)
    kernel = pipeline(M128, TILED, 7)["k"]
    maps = (TensorMap.tiled(a, box=(64, 128), swizzle="128B"),
            TensorMap.tiled(b, box=(64, 64), swizzle="128B"))  # fmt: skip
    report = kernel.launch(grid=(2, 2), block=(192,), args=[*maps, d, 5, 128], check=check)
    assert not report.findings
    assert_same_codes(d.view("u4"), gemm(F16, a, b.T, idesc=M128, target="sm_100a").view("u4"))


def test_a_convolution():
    image, weights = numbers(2, 8, 8, 64), numbers(64, 3, 3, 64)
    d = np.zeros((128, 64), np.float32)
    maps = (TensorMap.im2col(image, lower=(-1, -1), upper=(-1, -1), channels=64, pixels=128,
                             swizzle="128B"),
            TensorMap.tiled(weights.reshape(64, 576), box=(64, 64), swizzle="128B"))  # fmt: skip
    pipeline(M128, CONVOLVED, 1)["k"].launch(grid=(1, 1), block=(192,), args=[*maps, d, 9, 64])
    padded = np.pad(image, [(0, 0), (1, 1), (1, 1), (0, 0)])
    taps = [padded[:, r : r + 8, s : s + 8] for r in range(3) for s in range(3)]
    a = np.concatenate([x.reshape(128, 64) for x in taps], 1)
    want = gemm(F16, a, weights.reshape(64, 576).T, idesc=M128, target="sm_100a")
    assert_same_codes(d.view("u4"), want.view("u4"))


# --- a block takes tile after tile ----------------------------------------------------------------

#: rows of K = 16 in %rd0, of the thread's number and 32 bytes each, into shared memory at %r{at}
ROW = """ mad.wide.u32 %rd10, %r0, {bytes}, %rd{pointer}; add.u64 %rd10, %rd10, {offset};
 shr.u32 %r30, %r0, 3; and.b32 %r31, %r0, 7; mad.lo.u32 %r30, %r30, 256, %r{at};
 mad.lo.u32 %r30, %r31, 16, %r30;
 {guard}ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%rd10];
 {guard}st.shared.v4.b32 [%r30], {{%w0, %w1, %w2, %w3}};
 {guard}ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%rd10+16];
 {guard}st.shared.v4.b32 [%r30+128], {{%w0, %w1, %w2, %w3}};
"""
GROUPED = """ ld.param.u64 %rd0, [pt]; ld.param.u32 %r6, [pn];
 mov.u32 %r7, %ctaid.x; mov.u32 %r8, 0;
 add.u32 %r9, %r1, 4096; shr.u32 %r10, %r1, 4; cvt.u64.u32 %rd11, %r10;
 add.u64 %rd11, %rd11, {descriptor}; add.u64 %rd12, %rd11, 256;
TILE: setp.ge.u32 %on, %r7, %r6; @%on bra END;
 mad.wide.u32 %rd1, %r7, 32, %rd0;
 ld.global.v2.b64 {{%rd2, %rd3}}, [%rd1]; ld.global.v2.b64 {{%rd4, %rd5}}, [%rd1+16];
 cvt.u32.u64 %r11, %rd5; shl.b32 %r12, %r11, 1; mov.u32 %r13, 0; cvt.u64.u32 %rd6, %r12;
STEP: mul.wide.u32 %rd7, %r13, 2; setp.lt.u32 %p, %r0, 64;
{rows}
 fence.proxy.async; bar.sync 0;
 setp.ne.u32 %on, %r13, 0;
 @%q {opcode} [%r3], %rd11, %rd12, {idesc}, %on;
 @%q tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2];
{wait}
 xor.b32 %r8, %r8, 1; bar.sync 0;
 add.u32 %r13, %r13, 16; setp.lt.u32 %on, %r13, %r11; @%on bra STEP;
 tcgen05.fence::after_thread_sync;
 mad.wide.u32 %rd4, %r0, 256, %rd4;
{store}
 tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
 mov.u32 %r14, %nctaid.x; add.u32 %r7, %r7, %r14; bra TILE;
END: setp.lt.u32 %p, %r0, 32;
"""


@pytest.mark.slow
def test_a_grouped_product_takes_tile_after_tile():
    rows = (ROW.format(bytes="%r12", pointer=2, offset="%rd7", at=1, guard="")
            + ROW.format(bytes="%r12", pointer=3, offset="%rd7", at=9, guard="@%p "))  # fmt: skip
    body = GROUPED.format(
        descriptor=plain(256), rows=rows, opcode=F16, idesc=M128.encode(),
        wait=wait("DONE", "%r2", "%r8"), store=stored(64, "%rd4"),
    )  # fmt: skip
    memory, tiles, problems = Memory(), [], []
    for i, k in enumerate((16, 48, 32, 80, 64)):
        own = numbers(128, k), numbers(64, k), np.zeros((128, 64), np.float32)
        problems.append(own)
        for j, array in enumerate(own):
            memory.map((i + 1 << 24) + (j << 20), array)
        tiles += [(i + 1 << 24) + (j << 20) for j in range(3)] + [k]
    kernel = module(body, ".param .u64 pt, .param .u32 pn", barriers=1)["k"]
    report = kernel.launch(
        grid=(2,), block=(128,), args=[np.array(tiles, np.uint64), 5], memory=memory, check=True
    )
    assert not report.findings
    for a, b, d in problems:
        assert_same_codes(d.view("u4"), gemm(F16, a, b.T, idesc=M128, target="sm_100a").view("u4"))


# --- what a product leaves is an operand of the next ----------------------------------------------

ATTENTION = """ ld.param.u64 %rd2, [pq]; ld.param.u64 %rd3, [pk]; ld.param.u64 %rd4, [pv];
 ld.param.u64 %rd5, [po]; ld.param.u64 %rd6, [pp];
 add.u32 %r9, %r1, 4096; add.u32 %r10, %r1, 6144; setp.lt.u32 %p, %r0, 64;
{rows}
 shr.u32 %r30, %r0, 3; and.b32 %r31, %r0, 7; mul.wide.u32 %rd10, %r0, 128;
 add.u64 %rd10, %rd10, %rd4;
 mad.lo.u32 %r30, %r30, 1024, %r10; mad.lo.u32 %r30, %r31, 16, %r30;
{values}
 fence.proxy.async; bar.sync 0;
 shr.u32 %r11, %r1, 4; cvt.u64.u32 %rd11, %r11; add.u64 %rd11, %rd11, {descriptor};
 add.u64 %rd12, %rd11, 256;
 @%q {opcode} [%r3], %rd11, %rd12, {scores}, 0;
 @%q tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2];
{wait_scores}
 tcgen05.fence::after_thread_sync;
 tcgen05.ld.sync.aligned.32x32b.x64.b32 {registers}, [%r5]; tcgen05.wait::ld.sync.aligned;
{weights}
 tcgen05.st.sync.aligned.32x32b.x32.b32 [%r5+64], {halves}; tcgen05.wait::st.sync.aligned;
 mad.wide.u32 %rd6, %r0, 128, %rd6;
{keep}
 tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
 add.u64 %rd13, %rd11, 384; add.u64 %rd13, %rd13, {value_strides}; add.u32 %r12, %r3, 64;
{products}
 @%q tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2+8];
{wait_done}
 tcgen05.fence::after_thread_sync; mad.wide.u32 %rd5, %r0, 256, %rd5;
{store}
 setp.lt.u32 %p, %r0, 32;
"""


def test_attention():
    """P = 2^(Q·Kᵀ), in f16, goes to tensor memory as A of P·V; V is MN-major."""
    q, k, v = numbers(128, 16) / 4, numbers(64, 16) / 4, numbers(64, 64)
    d, p = np.zeros((128, 64), np.float32), np.zeros((128, 64), np.float16)
    second = M128.replace(transpose_b=True)
    rows = (ROW.format(bytes=32, pointer=2, offset=0, at=1, guard="")
            + ROW.format(bytes=32, pointer=3, offset=0, at=9, guard="@%p "))  # fmt: skip
    values = "\n".join(
        f" @%p ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%rd10+{16 * i}];\n"
        f" @%p st.shared.v4.b32 [%r30+{128 * i}], {{%w0, %w1, %w2, %w3}};"
        for i in range(8)
    )
    weights = "\n".join(
        [f" ex2.approx.ftz.f32 %f{i}, %f{i};" for i in range(64)]
        + [f" cvt.rn.f16x2.f32 %w{i}, %f{2 * i + 1}, %f{2 * i};" for i in range(32)]
    )
    products = "\n".join(
        f" add.u64 %rd14, %rd13, {128 * i}; add.u32 %r13, %r12, {8 * i};\n"
        f" @%q {F16} [%r3], [%r13], %rd14, {second.encode()}, {int(i > 0)};"
        for i in range(4)
    )
    body = ATTENTION.format(
        rows=rows, values=values, descriptor=plain(256), opcode=F16, scores=M128.encode(),
        wait_scores=wait("SCORES", "%r2", 0), registers=registers("%f", 64), weights=weights,
        halves=registers("%w", 32), products=products, wait_done=wait("DONE", "%r2+8", 0),
        keep="\n".join(f" st.global.b32 [%rd6+{4 * i}], %w{i};" for i in range(32)),
        # V: 8 of N stand beside each other, 128 bytes from 8 of N to the next, 1024 of K
        value_strides=hex((8 - 16 << 32) + (64 - 8 << 16) & (1 << 64) - 1),
        store=stored(64, "%rd5"),
    )  # fmt: skip
    parameters = ", ".join(f".param .u64 p{x}" for x in "qkvop")
    kernel = module(body, parameters, barriers=2)["k"]
    report = kernel.launch(grid=(1,), block=(128,), args=[q, k, v, d, p], check=True)
    assert not report.findings
    for order in ("late", "random"):
        again = np.zeros_like(d)
        args = [q, k, v, again, np.zeros_like(p)]
        kernel.launch(grid=(1,), block=(128,), args=args, async_order=order)
        assert_same_codes(again.view("u4"), d.view("u4"))
    scores = mma(F16, q, k.T, idesc=M128, target="sm_100a")
    exponentials = ex2(ARRAYS, scores.view("u4")).view("f4")
    assert_same_codes(p.view("u2"), exponentials.astype(np.float16).view("u2"))
    want = gemm(F16, p, v, idesc=second, target="sm_100a")
    assert_same_codes(d.view("u4"), want.view("u4"))


# --- scales by way of shared memory ---------------------------------------------------------------

SCALED = """ ld.param.u64 %rd2, [pa]; ld.param.u64 %rd3, [pb]; ld.param.u64 %rd4, [ps];
 ld.param.u64 %rd5, [po];
 add.u32 %r9, %r1, 4096; add.u32 %r10, %r1, 8192;
{rows}
 mad.wide.u32 %rd10, %r0, 8, %rd4; mad.lo.u32 %r30, %r0, 8, %r10;
 ld.global.b64 %rd9, [%rd10]; st.shared.b64 [%r30], %rd9;
 fence.proxy.async; bar.sync 0;
 shr.u32 %r11, %r1, 4; cvt.u64.u32 %rd11, %r11; add.u64 %rd11, %rd11, {descriptor};
 add.u64 %rd12, %rd11, 256;
 add.u64 %rd13, %rd11, 512; sub.u64 %rd13, %rd13, {closer}; add.u64 %rd14, %rd13, 32;
 add.u32 %r12, %r3, 64; add.u32 %r13, %r3, 68;
 @%q tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd13;
 @%q tcgen05.cp.cta_group::1.32x128b.warpx4 [%r13], %rd14;
 @%q {opcode} [%r3], %rd11, %rd12, {idesc}, [%r12], [%r13], 0;
 @%q tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2];
{wait}
 tcgen05.fence::after_thread_sync; mad.wide.u32 %rd5, %r0, 256, %rd5;
{store}
"""


def test_scales_are_copied_to_tensor_memory():
    """nvfp4: 4 scales of a row beside each other, those of rows r, r + 32 … in 16 bytes."""
    opcode = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16"
    idesc = InstructionDescriptor("mxf4nvf4", m=128, n=64)
    a, b = (RNG.integers(0, 16, (rows, 64), np.uint8) for rows in (128, 128))
    scales = RNG.integers(0x30, 0x48, (2, 128, 4), np.uint8)
    packed = [x[:, ::2] | x[:, 1::2] << 4 for x in (a, b)]
    blocks = scales.reshape(2, 4, 32, 4).transpose(0, 2, 1, 3).copy()
    rows = "".join(ROW.format(bytes=32, pointer=x, offset=0, at=y, guard="") for x, y in
                   ((2, 1), (3, 9)))  # fmt: skip
    body = SCALED.format(
        rows=rows, descriptor=plain(256), opcode=opcode, idesc=idesc.encode(),
        closer=128 // 16 << 32,  # 8 rows of scales are 128 bytes from the next, not 256
        wait=wait("DONE", "%r2", 0), store=stored(64, "%rd5"),
    )  # fmt: skip
    d = np.zeros((128, 64), np.float32)
    kernel = module(body, ", ".join(f".param .u64 p{x}" for x in "abso"), barriers=1)["k"]
    report = kernel.launch(grid=(1,), block=(128,), args=[*packed, blocks, d], check=True)
    assert not report.findings
    want = mma(
        opcode, a, b[:64].T, idesc=idesc, target="sm_100a", codes=True,
        scale_a=scales[0], scale_b=scales[1, :64].T,
    )  # fmt: skip
    assert_same_codes(d.view("u4"), want)
