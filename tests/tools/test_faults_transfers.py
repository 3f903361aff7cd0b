"""The fault finder on whole kernels that TMA feeds: wrong coordinates of copies are named."""

import re

import numpy as np
import pytest

from emulator import Descriptor, KernelError, Memory, Module, TensorMap, find_faults
from emulator.tools.faults import copies

pytestmark = pytest.mark.sampled(3)

#: two blocks of 64 rows of C; each goes along k in tiles of 64
PTX = """
.version 8.0
.target sm_90a
.address_size 64

.visible .entry product(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128],
                        .param .u64 out, .param .u64 descriptor)
{
    .reg .pred %first, %done, %more;
    .reg .b32 %t, %r<9>, %twice, %behind, %k, %row, %tile, %parity;
    .reg .f32 %d<4>;
    .reg .b64 %a, %b, %da, %db, %out, %to, %x, %maps<2>;
    .shared .align 1024 .b8 tile_a[8192];
    .shared .align 1024 .b8 tile_b[1024];
    .shared .align 8 .b64 full;

    mov.u32 %t, %tid.x;
    setp.eq.u32 %first, %t, 0;
    mov.u32 %tile, %ctaid.x;
    shl.b32 %row, %tile, 6;
    mov.u32 %k, 0;
    mov.u32 %parity, 0;
    mov.f32 %d0, 0f00000000;
    mov.f32 %d1, 0f00000000;
    mov.f32 %d2, 0f00000000;
    mov.f32 %d3, 0f00000000;
    @!%first bra READY;
    mbarrier.init.shared.b64 [full], 1;
    fence.mbarrier_init.release.cluster;
READY:
    bar.sync 0;
LOOP:
    add.u32 %twice, %k, %k;
    add.u32 %behind, %k, 32;
    @!%first bra ASKED;
    mbarrier.arrive.expect_tx.shared.b64 _, [full], 9216;
    mov.u64 %maps0, map_a;
    cvta.param.u64 %maps0, %maps0;
    mov.u64 %maps1, map_b;
    cvta.param.u64 %maps1, %maps1;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [tile_a], [%maps0, {%k, %row}], [full];
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [tile_b], [%maps1, {%k, 0}], [full];
ASKED:
    mbarrier.try_wait.parity.shared.b64 %done, [full], %parity;
    @!%done bra ASKED;
    xor.b32 %parity, %parity, 1;
    ld.param.u64 %da, [descriptor];
    mov.u64 %db, %da;
    mov.u64 %a, tile_a;
    shr.u64 %a, %a, 4;
    add.u64 %da, %da, %a;
    mov.u64 %b, tile_b;
    shr.u64 %b, %b, 4;
    add.u64 %db, %db, %b;
    wgmma.fence.sync.aligned;
STEPS
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    bar.sync 0;
    add.u32 %k, %k, 64;
    setp.lt.u32 %more, %k, 128;
    @%more bra LOOP;

    ld.param.u64 %out, [out];
    shr.u32 %r0, %t, 5;
    shl.b32 %r0, %r0, 4;
    and.b32 %r1, %t, 31;
    shr.u32 %r2, %r1, 2;
    add.u32 %r0, %r0, %r2;
    mad.lo.u32 %r0, %tile, 64, %r0;
    and.b32 %r1, %r1, 3;
    shl.b32 %r1, %r1, 1;
    mad.lo.u32 %r0, %r0, 8, %r1;
    mul.wide.u32 %x, %r0, 4;
    add.u64 %to, %out, %x;
    st.global.v2.f32 [%to], {%d0, %d1};
    st.global.v2.f32 [%to + 256], {%d2, %d3};
    ret;
}
""".replace("STEPS", """\
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %da, %db, 1, 1, 1, 0, 0;
    add.u64 %da, %da, 2;
    add.u64 %db, %db, 2;
""" * 4)  # fmt: skip
RNG = np.random.default_rng(0)
A, B = (RNG.standard_normal((rows, 128)).astype("f2") for rows in (128, 8))
OF_A, OF_B, ROWS = "[%maps0, {%k, %row}]", "[%maps1, {%k, 0}]", "    shl.b32 %row, %tile, 6;\n"


COPIES = {x.name for x in copies.MISTAKES}


def faults(*changes, rows_of_a=64, map_a=None, **more):
    text = PTX
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    maps = [
        TensorMap.tiled(x, box=(64, rows), swizzle="128B") for x, rows in ((A, rows_of_a), (B, 8))
    ]
    maps[0] = map_a or maps[0]
    word = int(Descriptor(0, stride_byte_offset=1024, swizzle_bytes=128).encode())
    return find_faults(Module(text)["product"], grid=2, block=128,
                       args=[*maps, np.zeros((128, 8), "f4"), word],
                       expected=A.astype("f4") @ B.T.astype("f4"), **more)  # fmt: skip


def test_right_coordinates_have_no_fault():
    report = faults()
    assert not len(report) and not report.wrong and not report.notes
    assert report.tiles["tiles of C"] == 2


MISTAKES = {
    "exchanged": (
        (OF_A, "[%maps0, {%row, %k}]"), "a", OF_A, "tensor copy 0 at (0, 64): coordinates "
        "exchanged, the innermost dimension comes first: (64, 0) instead of (0, 64)",
    ),
    "a tile of rows too far": (
        (ROWS, f"{ROWS}    add.u32 %row, %row, 64;\n"), "a", OF_A, "tensor copy 0 at (0, 64): "
        "coordinate 1 -64 (1 × the 64 of a box): (0, 0) instead of (0, 64)",
    ),
    "rows counted in tiles": (
        (ROWS, "    mov.b32 %row, %tile;\n"), "a", OF_A, "tensor copy 0 at (0, 1): "
        "coordinate 1 counts elements, not boxes of 64: (0, 64) instead of (0, 1)",
    ),
    "columns counted in bytes": (
        (OF_B, "[%maps1, {%twice, 0}]"), "b", OF_B, "tensor copy 0 at (128, 0): "
        "coordinate 0 counts elements, not bytes: (64, 0) instead of (128, 0)",
    ),
    "not advanced": (
        (OF_B, "[%maps1, {0, 0}]"), "b", OF_B, "tensor copy 0 at (0, 0): "
        "coordinate 0 +64 (1 × the 64 of a box): (64, 0) instead of (0, 0)",
    ),
    "half a tile too far along k": (
        (OF_A, "[%maps0, {%behind, %row}]"), "a", OF_A, "tensor copy 0 at (32, 0): "
        "coordinate 0 -32: (0, 0) instead of (32, 0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("planted", MISTAKES)
def test_wrong_coordinates_are_named_first(planted):
    change, operand, copy, detail = MISTAKES[planted]
    (found,) = report = faults(change)
    assert found.detail == detail and found.exact and report.code == 0
    assert found.fault.mistake == "coordinates of a tensor copy"
    assert found.fault.operand == operand
    # The statement is the copy as the kernel has it.
    assert found.statement.startswith("cp.async.bulk.tensor.2d.shared::cluster")
    assert (change[1] if copy == change[0] else copy) in found.statement


@pytest.mark.slow
def test_of_a_tensor_within_an_array_only_the_bytes_are_looked_at():
    memory = Memory()
    memory.map(1 << 20, np.concatenate([A[:2], A]))
    inside = (1 << 20) + 512
    map_a = TensorMap.tiled(inside, dtype="float16", dims=(128, 128), strides=(256,), box=(64, 64),
                            swizzle="128B")  # fmt: skip
    given = {"map_a": map_a, "memory": memory, "a": A, "b": B.T}
    assert not faults(**given).wrong
    report = faults((OF_A, "[%maps0, {%row, %k}]"), **given)
    assert report.wrong and not any(x.fault.mistake in COPIES for x in report)
    assert "ptx:41: a copy of a tensor that begins where no array of args= does" in str(report)


def test_right_tiles_in_the_place_of_others_are_laid_on_the_stores():
    """As well the copies of A could be wrong."""
    (found,) = faults(
        ("    ld.param.u64 %out", "    xor.b32 %tile, %tile, 1;\n    ld.param.u64 %out")
    )
    assert found.detail == "C: the tile from row 0, column 0 on is stored from row 64, column 0 on"


@pytest.mark.slow
def test_copies_of_a_statement_each():
    """Two statements fill two halves of A's tile; only the second one is wrong."""
    halves = "".join(
        f"""
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [tile_a + {128 * at}], [%maps0, {{%k, %r{place}}}], [full];"""
        for place, at in ((7, 0), (8, 32))
    )
    whole = re.search(r"\n    cp\.async\S+\s+\[tile_a\].*?;", PTX, re.DOTALL)[0]
    rows = f"{ROWS}    mov.b32 %r7, %row;\n    add.u32 %r8, %row, 32;\n"
    right = ((whole, halves), (ROWS, rows))
    assert not len(faults(*right, rows_of_a=32))
    (found,) = faults((whole, halves), (ROWS, rows.replace(", 32", ", 40")), rows_of_a=32)
    assert "%r8}" in found.statement
    assert found.detail == ("tensor copy 0 at (0, 40): coordinate 1 -8: (0, 32) instead of (0, 40)")


@pytest.mark.slow
def test_of_copies_in_another_mode_only_the_bytes_are_looked_at():
    """The same tiles of A by im2col: 64 pixels of 64 channels; and a tile of channels too far."""
    copy = re.search(r"\n    cp\.async\S+\s+\[tile_a\].*?;", PTX, re.DOTALL)[0]
    im2col = copy.replace(".2d", ".3d").replace(".tile", ".im2col").replace("%row}", "%row, 0}")
    im2col = im2col.replace("[full];", "[full], {%none};")
    declared = (".reg .f32 %d<4>;", ".reg .f32 %d<4>;\n    .reg .b16 %none;")
    none = (ROWS, f"{ROWS}    mov.b16 %none, 0;\n")
    map_a = TensorMap.im2col(A[None], lower=(0,), upper=(0,), channels=64, pixels=64,
                             swizzle="128B")  # fmt: skip
    given = {"map_a": map_a, "a": A, "b": B.T}
    right = faults((copy, im2col), declared, none, **given)
    assert not len(right) and not right.wrong
    wrong = faults((copy, im2col.replace("%k,", "%behind,")), declared, none, **given)
    assert wrong.wrong and wrong.code == 1 and not any(x.fault.mistake in COPIES for x in wrong)
    for report in (right, wrong):
        assert "ptx:43: a copy in another mode than .tile; the bytes that it has written" in str(
            report
        )


@pytest.mark.parametrize(
    ("opcode", "target"),
    [
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
         "{%r0, %r0, %r0, %r0}, {%r0, %r0}, {%r0, %r0}, {%r0, %r0, %r0, %r0}, %r0, 0x0", "sm_80"),
        ("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1."
         "f32.ue8m0 {%r0, %r0, %r0, %r0}, {%r0, %r0, %r0, %r0}, {%r0, %r0}, "
         "{%r0, %r0, %r0, %r0}, %r0, {0, 0}, %r0, {0, 0}", "sm_120a"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r0], %x, %x, %r0, %p", "sm_100a"),
    ],
)  # fmt: skip
def test_other_products_are_refused(opcode, target):
    """Also beside dense ones."""
    kernel = Module(f"""
        .version 8.8
        .target {target}
        .address_size 64
        .visible .entry product(.param .u64 c) {{
            .reg .b32 %r0;
            .reg .b64 %x;
            .reg .pred %p;
            {opcode};
            ret;
        }}""")["product"]
    with pytest.raises(KernelError, match="no sparse or block-scaled product") as error:
        find_faults(kernel, grid=1, block=32, args=[np.zeros((8, 8), "f4")], expected=A[:8, :8])
    assert opcode.partition(" ")[0] in str(error.value)
