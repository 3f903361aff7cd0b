"""Asynchronous statements in both engines. They share its text, so each case states a result."""

import numpy as np
import pytest
from test_tcgen05 import product, run

from emulator import KernelError, Module, TensorMap

ENGINES = ("vector", "reference")
HEAD = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .align 64 .b8 map[128]) {cluster}
{{
 .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .b128 %q;
 .shared .align 128 .b8 s[1024]; .shared .align 8 .b64 bar; .shared .align 16 .b8 answer[16];
 ld.param.u64 %rd1, [pa]; ld.param.u64 %rd2, [pb]; mov.b64 %rd3, map; cvta.param.u64 %rd3, %rd3;
 mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, s; mov.u32 %r3, bar;
 mad.lo.u32 %r4, %r0, 4, %r2; setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r1, 0;
 mad.wide.u32 %rd4, %r0, 4, %rd1; mov.u32 %r5, %ntid.x; mad.lo.u32 %r6, %r1, %r5, %r0;
 mad.wide.u32 %rd5, %r6, 4, %rd2; st.shared.u32 [%r4], %r0;
 @%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
{body}
 ret;
}}
"""
A = np.arange(1, 257, dtype=np.uint32)


def results(body, engine, *, grid=1, block=32, cluster=0, tensor_map=None, **options):
    """The buffers a and b after a launch."""
    around = f".explicitcluster .reqnctapercluster {cluster}, 1, 1" if cluster else ""
    module = Module(HEAD.format(body=body, cluster=around))
    assert module.problems == []
    a, b = A.copy(), np.zeros(256, np.uint32)
    given = TensorMap.tiled(np.zeros((8, 8), np.int32), box=(4, 4))
    module["k"].launch(grid, block, [a, b, tensor_map or given], engine=engine, **options)
    return a, b


def error_of(body, engine, **options):
    """What kind of error a launch ends with, and which threads it names."""
    with pytest.raises(KernelError) as caught:
        results(body, engine, **options)
    return caught.value.kind, caught.value.block, caught.value.threads


LOAD = """ @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;
 @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%rd1], 64, [bar];
"""
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra W;\n"
SHOW = " ld.shared.u32 %r7, [%r4]; st.global.u32 [%rd5], %r7;"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ["early", "late"])
def test_a_destination_holds_a_pattern_until_the_wait(engine, order):
    _, early = results(LOAD + SHOW, engine, async_order=order)
    _, waited = results(LOAD + WAIT + SHOW, engine, async_order=order)
    copied = [*A[:16], *range(16, 32)]
    assert waited[:32].tolist() == copied
    assert early[:32].tolist() == (copied if order == "early" else [0xFFFFFFFF] * 16 + copied[16:])


STORED = """ fence.proxy.async; bar.sync 0; @!%p1 bra END;
 cp.async.bulk.global.shared::cta.bulk_group{mask} [%rd2], [s], 64{bits};
 cp.async.bulk.commit_group;
 cp.async.bulk.global.shared::cta.bulk_group [%rd2+64], [s], 16; cp.async.bulk.commit_group;
 cp.async.bulk.wait_group {newest};
 ld.global.u32 %r8, [%rd2+4]; ld.global.u32 %r9, [%rd2+68];
 st.global.u32 [%rd1], %r8; st.global.u32 [%rd1+4], %r9;
END:
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_groups_of_bulk_stores_and_masks_of_bytes(engine):
    for newest, seen in ((0, [1, 1]), (1, [1, 0]), (2, [0, 0])):
        body = STORED.format(mask="", bits="", newest=newest)
        a, b = results(body, engine, async_order="late")
        assert a[:2].tolist() == seen
        assert b[:20].tolist() == [*range(16), *range(4)]
    body = "mov.b16 %h1, 0x8305;" + STORED.format(mask=".cp_mask", bits=", %h1", newest=0)
    _, b = results(body, engine)
    stored = np.arange(16, dtype=np.uint32).view(np.uint8)
    wanted = np.where(0x8305 >> np.arange(64) % 16 & 1, stored, 0)
    assert b[:16].view(np.uint8).tolist() == wanted.tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_groups_of_copies(engine):
    body = """ cp.async.ca.shared.global [%r4], [%rd4], 4; cp.async.commit_group;
 cp.async.ca.shared.global [%r4+128], [%rd4+128], 4;
 {wait} ld.shared.u32 %r8, [%r4]; ld.shared.u32 %r9, [%r4+128]; sub.u32 %r9, %r9, %r8;
 st.global.u32 [%rd5], %r9;"""
    waits = {
        "cp.async.commit_group; cp.async.wait_group 0;": 32, "cp.async.wait_all;": 32,
        "cp.async.commit_group; cp.async.wait_group 1;": 0xFFFFFFFE,
    }  # fmt: skip
    for wait, first in waits.items():
        _, b = results(body.format(wait=wait), engine, async_order="late")
        assert b[0] == first


@pytest.mark.parametrize("engine", ENGINES)
def test_zeros_in_shared_memory(engine):
    body = " mov.u64 %rd6, 16; @%p1 st.bulk.weak.shared::cta [%r2], %rd6, 0; bar.sync 0;" + SHOW
    _, b = results(body, engine)
    assert b[:32].tolist() == [0] * 4 + list(range(4, 32))


MULTICAST = """ @!%p1 bra HERE; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;
HERE: barrier.cluster.arrive; barrier.cluster.wait; and.pred %p4, %p1, %p2; mov.b16 %h1, {mask};
 @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
   [%r2], [%rd1], 64, [%r3], %h1;
""" + WAIT + SHOW + " barrier.cluster.arrive; barrier.cluster.wait;"  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_a_multicast_goes_to_each_block_and_its_mbarrier(engine):
    for order in ("early", "late"):
        _, b = results(MULTICAST.format(mask=3), engine, grid=2, cluster=2, async_order=order)
        assert b[:64].tolist() == 2 * [*A[:16], *range(16, 32)]
    kind, block, threads = error_of(MULTICAST.format(mask=4), engine, grid=2, cluster=2)
    assert (kind, block, threads) == ("multicast", (0, 0, 0), ((0, 0, 0),))


REFUSED = {
    "mov.u32 %r8, 24; @%p4 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [s], %r8;":
        "bulk copy",
    "mov.u32 %r8, 24; @%p4 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2],"
    " [s], %r8;": "bulk reduction",
    "mov.u64 %rd6, 12; @%p4 st.bulk.weak.shared::cta [%r2], %rd6, 0;": "st.bulk",
    "@%p4 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [s+4096], 16;": "out of bounds",
    "@%p4 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [s+8], 16;": "misaligned",
    "@%p4 cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd3, {%r0, %r0, %r0}], [s];":
        "tensor map",
    "@%p4 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd3, {%r8, %r8}], [s];":
        "tensor copy",
    "mov.u32 %r8, 0; @%p4 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    " [%rd3, {%r8, %r8}], [s+64];": "misaligned",
    "add.u64 %rd3, %rd2, 32; @%p4 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    " [%rd3, {%r8, %r8}], [s];": "misaligned",
    "mov.u32 %r8, 0; @%p4 mbarrier.init.shared.b64 [bar], %r8;": "mbarrier",
    "mov.u32 %r8, 0; @%p4 mbarrier.arrive.shared.b64 _, [bar], %r8;": "mbarrier",
    "@%p4 mbarrier.arrive.noComplete.shared.b64 %rd6, [bar], 1;": "mbarrier",
    "mov.u32 %r8, 16; @%p4 barrier.sync %r8;": "barrier",
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_refused_names_the_thread(statement, engine):
    body = f" setp.eq.u32 %p4, %r0, 5; mov.u32 %r8, -1; {statement}"
    kind, block, threads = error_of(body, engine)
    assert (kind, block, threads[0]) == (REFUSED[statement], (0, 0, 0), (5, 0, 0))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tensor_map_is_copied_as_a_whole(engine):
    body = """ bar.warp.sync -1;
 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
   [%rd1], [s+PLACE], 128;"""
    a, _ = results(body.replace("PLACE", "128"), engine, block=64)
    assert a[:32].tolist() == list(range(32, 64)) and np.array_equal(a[32:], A[32:])
    assert error_of(body.replace("PLACE", "64"), engine)[0] == "misaligned"


@pytest.mark.parametrize("engine", ENGINES)
def test_arrivals(engine):
    """Words of the barrier after arrivals, drops and bytes, and the tokens of two of them."""
    body = """ @!%p1 bra END; mbarrier.init.shared.b64 [bar], 5;
 mbarrier.arrive.noComplete.shared.b64 %rd6, [bar], 2; ld.shared.u64 %rd7, [bar];
 mbarrier.arrive_drop.shared.b64 %rd8, [bar]; ld.shared.u64 %rd9, [bar];
 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 40;
 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 24; ld.shared.u64 %rd10, [bar];
 mbarrier.arrive.expect_tx.shared.b64 %rd11, [bar], 8; ld.shared.u64 %rd12, [bar];
 st.global.v2.u64 [%rd2], {%rd6, %rd7}; st.global.v2.u64 [%rd2+16], {%rd8, %rd9};
 st.global.v2.u64 [%rd2+32], {%rd10, %rd11}; st.global.u64 [%rd2+48], %rd12;
END:"""
    _, b = results(body, engine)

    def word(pending, moved, expected):
        fields = (pending, 43, 20), (moved, 21, 21), (expected, 1, 20)
        return sum((-count & (1 << bits) - 1) << low for count, low, bits in fields)

    upper = 0xFFFFFFFF << 32
    assert b[:14].view(np.uint64).tolist() == [
        word(5, 0, 5) & upper, word(3, 0, 5), word(3, 0, 5) & upper, word(2, 0, 4),
        word(2, 16, 4), word(2, 16, 4), word(1, 24, 4),
    ]  # fmt: skip


CANCEL = """ mov.u32 %r16, %ctaid.z; setp.eq.u32 %p2, %r16, 0; @!%p1 bra END; @%p2 bra ASK; bra END;
ASK: mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
 clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [answer], [bar];
W: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra W; ld.shared.b128 %q, [answer];
 clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p5, %q; selp.u32 %r8, 1, 0, %p5;
 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r9, %q;
 clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r10, %q;
 clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 %r11, %q;
 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r12, %r13, %r14, %r15}, %q;
 st.global.v4.u32 [%rd2], {%r8, %r9, %r10, %r11}; st.global.v4.u32 [%rd2+16], {%r12, %r13, %r14, 7};
END:"""


@pytest.mark.parametrize("engine", ENGINES)
def test_responses_about_clusters(engine, monkeypatch):
    """The only block gets none; the first of more than run together gets another."""
    _, b = results(CANCEL, engine)
    assert b[:8].tolist() == [0, 0, 0, 0, 0, 0, 0, 7]
    monkeypatch.setattr("emulator.machine.reference.engine._THREADS", 256)
    monkeypatch.setattr("emulator.machine.vector.engine.LANES", 256)
    count = 20
    _, b = results(CANCEL, engine, grid=(1, 1, count))
    found, z = int(b[0]), int(b[3])
    assert found == 1 and 0 < z < count
    assert b[1:8].tolist() == [0, 0, z, 0, 0, z, 7]
    second = "mad.lo.u32 %r16, %r16, 2, %r1; setp.eq.u32 %p2, %r16, 1;"
    body = CANCEL.replace("setp.eq.u32 %p2, %r16, 0;", second)
    _, b = results(body, engine, grid=(2, 1, count), cluster=2)
    assert b[:3].tolist() == [1, 0, 0] and 0 < b[3] < count


@pytest.mark.parametrize("engine", ENGINES)
def test_stores_that_signal(engine):
    """st.async and red.async to the other block of a cluster, and its mbarrier."""
    body = """ @!%p1 bra HERE; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 20;
HERE: barrier.cluster.arrive; barrier.cluster.wait; @!%p1 bra HEAR; xor.b32 %r8, %r1, 1;
 mapa.shared::cluster.u32 %r9, %r2, %r8; mapa.shared::cluster.u32 %r10, %r3, %r8;
 add.u32 %r11, %r1, 70;
 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32
   [%r9], {%r11, %r11, %r1, %r1}, [%r10];
 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
   [%r9+16], %r11, [%r10];
HEAR:""" + WAIT + SHOW + " barrier.cluster.arrive; barrier.cluster.wait;"  # fmt: skip
    for order in ("early", "late"):
        _, b = results(body, engine, grid=2, cluster=2, async_order=order)
        assert b[:6].tolist() == [71, 71, 1, 1, 75, 5]
        assert b[32:38].tolist() == [70, 70, 0, 0, 74, 5]


# --- tcgen05 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("waits", "gives"), [("%p", "%q"), ("%q", "%p")])
def test_columns_that_are_given_back_wake_who_waits_for_them(waits, gives, engine):
    body = f"""
 setp.eq.u32 %q, %r1, 1;
 @{waits} tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
 @{gives} tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 512;
 bar.sync 0; ld.shared.b32 %r5, [slot];
"""
    run(body, [], columns=512, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_warps_that_come_together_get_columns_one_after_the_other(engine):
    """The one that has them goes on behind the statement, while the other waits at it."""
    body = """
 @%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 512;
 bar.sync 0; setp.lt.u32 %q, %r1, 2;
 @%q tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
 @%q ld.shared.b32 %r5, [slot];
 @%q tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 512;
 bar.sync 0;
 @%p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
 bar.sync 0; ld.shared.b32 %r5, [slot];
"""
    run(body, [], columns=512, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_commit_arrives_in_the_blocks_that_its_mask_names(engine):
    body = """
 mov.u32 %r252, bar; setp.eq.u32 %q, %r0, 0; @%q mbarrier.init.shared::cta.b64 [%r252], 2;
 barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r20, %cluster_ctarank;
 or.b32 %r21, %r20, %r0; setp.eq.u32 %q, %r21, 0; mov.b16 %h, MASK;
 @%q tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64
   [%r252], %h;
 barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u64 %rd3, [bar];
 mbarrier.pending_count.b64 %r22, %rd3; mad.wide.u32 %rd4, %r4, 4, %x; st.global.u32 [%rd4], %r22;
"""
    for mask, left in ((1, [1, 2]), (2, [2, 1]), (3, [1, 1])):
        out = np.zeros(256, np.uint32)
        run(body.replace("MASK", str(mask)), [out], engine=engine, group=2, blocks=2)
        assert out[[0, 128]].tolist() == left


def test_either_block_of_a_pair_issues_a_product():
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-8, 9, (rows, 16)).astype(np.float16) for rows in (256, 64))
    out = np.zeros((256, 64), np.float32)
    body = product("f16", 2)
    for old, new in (
        ("%cluster_ctarank;", "%cluster_ctarank; xor.b32 %r250, %r250, 1;"),
        # An address in the second block has its rank, which no descriptor takes.
        ("shr.u32 %r18, %r10, 4;", "and.b32 %r18, %r10, 0x3ffff; shr.u32 %r18, %r18, 4;"),
    ):
        assert old in body
        body = body.replace(old, new)
    run(body, [a, b, out], group=2, blocks=2)
    assert np.array_equal(out, a.astype(int) @ b.T.astype(int))
