"""Right kernels that a coarser rule would blame, each beside a twin with a mistake."""

from pathlib import Path

import numpy as np
import pytest

from emulator import KernelError, Module

RIGHT = (Path(__file__).parents[1] / "cuda" / "right.ptx").read_text()

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
START = """
.visible .entry k(.param .u64 o)
{
    .reg .b16 %h<4>;  .reg .b32 %r<8>, %at, %s;  .reg .b64 %o, %mine, %x;  .reg .f32 %f<4>;
    .reg .pred %p, %q, %first;
    .shared  .align 256 .b8 s[1024];  .shared .b64 bar[2];
    .local .align 16 .b32 own[8];
    ld.param.u64 %o, [o];
    mov.u32 %r0, %tid.x;
    mov.u32 %r7, 7;
    mad.wide.u32 %mine, %r0, 4, %o;
    mov.u32 %at, s;
    mad.lo.u32 %at, %r0, 4, %at;
    mov.u32 %s, s;
    setp.eq.u32 %first, %r0, 0;
    mov.u64 %x, own;
    cvta.local.u64 %x, %x;
"""


def kinds(body, grid=1, block=64, **options):
    module = Module(HEAD + START + body + "\n    ret;\n}\n")
    report = module["k"].launch(grid, block, [np.zeros(1024, "u4")], check=True, **options)
    return {x.kind for x in report.findings}


COPIES = """
    @%first mbarrier.init.shared.b64 [bar], 64;
    bar.sync 0;
    st.shared.u32 [%at+256], 1;
    FIRST
    SECOND
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
    @!%p bra WAIT;
    xor.b32 %r1, %at, 252;
    ld.shared.u32 %r2, [%r1];
"""
COPY = "cp.async.ca.shared.global [%at], [%mine], 4;"
ARRIVE = "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];"
COUNTED = ARRIVE.replace(".noinc", "") + " mbarrier.arrive.shared.b64 _, [bar];"


@pytest.mark.parametrize("arrive", [ARRIVE, COUNTED])
def test_an_mbarrier_tells_of_the_copies_that_arrive_at_it(arrive):
    assert not kinds(COPIES.replace("FIRST", COPY).replace("SECOND", arrive))
    early = COPIES.replace("FIRST", arrive).replace("SECOND", COPY)
    assert kinds(early) == {"read before wait"}


def test_the_arrival_of_copies_says_nothing_of_stores():
    text = COPIES.replace("FIRST", COPY).replace("SECOND", "ARRIVAL").replace("%r1]", "%r1+256]")
    assert kinds(text.replace("ARRIVAL", ARRIVE)) == {"race"}
    assert not kinds(text.replace("ARRIVAL", COUNTED))


REDUCTION = """
    st.shared.u32 [%at], %r0;
    fence.proxy.async;
    bar.sync 0;
    @%first OPCODE [%o], [%s], 128;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
"""


@pytest.mark.parametrize("opcode, found", [
    ("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.u32", set()),
    ("cp.async.bulk.global.shared::cta.bulk_group", {"race between blocks"}),
])  # fmt: skip
def test_bulk_reductions_of_several_blocks_are_no_race(opcode, found):
    assert kinds(REDUCTION.replace("OPCODE", opcode), grid=2) == found


@pytest.mark.parametrize("body, found", [
    # to copy the padding of a structure within local memory
    ("ld.u32 %r1, [%x]; st.u32 [%x], %r1;", set()),
    ("ld.u32 %r1, [%x]; st.u32 [%mine], %r1;", {"uninitialised memory"}),
    ("ld.u32 %r1, [%x]; atom.add.u32 %r1, [%mine], %r1;", {"uninitialised memory"}),
    ("st.u32 [%x], %r1;", set()),
    ("st.u32 [%mine], %r1;", {"uninitialised register"}),
    ("@%first st.u32 [%mine], %r1;", {"uninitialised register"}),
    # a structure of a byte and its padding, and a byte by itself
    ("mov.u16 %h0, 1; st.global.v4.u8 [%mine], {%h0, %h1, %h2, %h3};", set()),
    ("st.global.v2.u8 [%mine], {%h1, %h2};", set()),
    ("st.global.u8 [%mine], %h1;", {"uninitialised register"}),
    ("mov.u16 %h0, 1; st.global.v2.u16 [%mine], {%h0, %h1};", {"uninitialised register"}),
    # a comparison that is decided without it
    ("setp.eq.u32 %p, %r1, 0; setp.ne.u32 %q, %r7, 7; and.pred %p, %p, %q; @%p bra END;", set()),
    ("setp.eq.u32 %p, %r1, 0; setp.eq.u32 %q, %r7, 7; and.pred %p, %p, %q; @%p bra END;",
     {"uninitialised register"}),
    ("setp.eq.u32 %p, %r1, 0; setp.eq.u32 %q, %r7, 7; or.pred %p, %q, %p; @%p bra END;", set()),
    ("setp.eq.u32 %p, %r1, 0; setp.ne.u32 %q, %r7, 7; or.pred %p, %q, %p; @%p bra END;",
     {"uninitialised register"}),
    ("and.b32 %r2, %r7, 8; and.b32 %r2, %r1, %r2; st.u32 [%mine], %r2;", set()),
    ("and.b32 %r2, %r7, 4; and.b32 %r2, %r1, %r2; st.u32 [%mine], %r2;",
     {"uninitialised register"}),
    # the other half of a pair
    ("cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, 0f40000000; st.u16 [%mine], %h0;", set()),
    ("cvt.rn.f32.u32 %f0, %r0; cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f0; st.u16 [%mine], %h0;",
     set()),
    ("cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f2; st.u16 [%mine], %h0;",
     {"uninitialised register"}),
    # a bit field of a structure that nobody has cleared, and no field but the whole
    ("ld.u32 %r1, [%x]; and.b32 %r1, %r1, -8; or.b32 %r1, %r1, 5; st.u32 [%x], %r1; "
     "ld.u32 %r1, [%x]; and.b32 %r1, %r1, 7; st.u32 [%mine], %r1;", set()),
    ("ld.u32 %r1, [%x]; bfi.b32 %r1, %r7, %r1, 0, 3; st.u32 [%mine], %r1;", set()),
    ("prmt.b32 %r1, %r7, %r2, 0x5410; st.u32 [%mine], %r1;", set()),
    ("prmt.b32 %r1, %r2, %r2, 0x0123; st.u32 [%mine], %r1;", {"uninitialised register"}),
    ("ld.u32 %r1, [%x]; and.b32 %r1, %r1, -8; st.u32 [%x], %r1; ld.u32 %r1, [%x]; "
     "st.u32 [%mine], %r1;", {"uninitialised memory"}),
    # a quotient that is fused with a sum
    ("cvt.rn.f32.u32 %f0, %r0; div.full.f32 %f1, %f0, 0f40400000; add.f32 %f1, %f1, 0f3F800000; "
     "st.f32 [%mine], %f1;", set()),
    ("div.full.f32 %f1, %f0, 0f40400000; add.f32 %f1, %f1, 0f3F800000; st.f32 [%mine], %f1;",
     {"uninitialised register"}),
])  # fmt: skip
def test_what_nobody_wrote_matters_where_it_is_used(body, found):
    assert kinds(body + "\nEND:") == found


STRUCTURE = """
    mad.wide.u32 %mine, %r0, 32, %o;
    st.u32 [%x], %r0;
    st.u8 [%x+4], %r0;
    COPY
    ld.u8 %h0, [%x+4];
    st.global.u8 [%mine+4], %h0;
"""
MEMBER = "ld.u32 %r1, [%x]; st.global.u32 [%mine], %r1;"


@pytest.mark.parametrize("copy, found", [
    (f"{MEMBER} ld.u8 %h1, [%x+5]; st.global.u8 [%mine+5], %h1;", set()),
    (f"{MEMBER} ld.u8 %h2, [%x+5]; mov.u16 %h1, %h2; st.global.u8 [%mine+5], %h1;", set()),
    (f"{MEMBER} ld.v2.u16 {{%h1, %h2}}, [%x+8]; st.global.v2.u16 [%mine+8], {{%h1, %h2}};", set()),
    (f"{MEMBER} ld.u8 %h1, [%x+15]; st.global.u8 [%mine+15], %h1;", set()),
    # no structure: bytes alone, or too far away
    ("ld.u8 %h1, [%x+5]; st.global.u8 [%mine+5], %h1;", {"uninitialised memory"}),
    (f"{MEMBER} ld.u8 %h1, [%x+16]; st.global.u8 [%mine+16], %h1;", {"uninitialised memory"}),
    # a member elsewhere, one that was computed, one that is wide
    (f"{MEMBER} ld.u8 %h1, [%x+5]; st.global.u8 [%mine+6], %h1;", {"uninitialised memory"}),
    (f"{MEMBER} ld.u8 %h1, [%x+5]; add.u16 %h1, %h1, 1; st.global.u8 [%mine+5], %h1;",
     {"uninitialised memory"}),
    ("st.u64 [%x], %o; ld.u64 %o, [%x]; st.global.u64 [%mine], %o; ld.u32 %r1, [%x+12]; "
     "st.global.u32 [%mine+12], %r1;", {"uninitialised memory"}),
])  # fmt: skip
def test_a_structure_is_copied_with_its_padding(copy, found):
    assert kinds(STRUCTURE.replace("COPY", copy), block=32) == found


def test_a_bulk_store_is_no_piece_of_a_structure():
    text = HEAD.replace("sm_90", "sm_100a") + START
    text += "@%first st.bulk.weak.shared::cta [%s], 64, 0; bar.sync 0; ld.shared.u32 %r1, [%s];"
    report = Module(text + "st.u32 [%mine], %r1; ret; }")["k"].launch(
        1, 64, [np.zeros(1024, "u4")], check=True
    )
    assert not report.findings


@pytest.mark.sampled(3)
@pytest.mark.parametrize("memory, name", [("%x", "local"), ("%at", "shared")])
@pytest.mark.parametrize("body, found", [
    # a vector of which nobody means the last element, as it is written and as it is not
    ("st.v4.u32 [M], {%r7, %r0, %r7, %r5}; ld.v4.u32 {%r1, %r2, %r3, %r4}, [M];", "0001"),
    ("st.v2.u32 [M], {%r7, %r0}; st.u32 [M+8], %r0; ld.v4.u32 {%r1, %r2, %r3, %r4}, [M];", "0001"),
    ("st.v2.u32 [M+8], {%r7, %r0}; ld.v4.u32 {%r1, _, %r3, %r4}, [M]; mov.u32 %r2, %r7;", "1000"),
    ("st.v4.u32 [M], {%r5, 7, %r5, %r7}; ld.v4.u32 {%r1, %r2, %r3, %r4}, [M];", "1010"),
    # who stores again means it
    ("st.u32 [M], %r5; st.u32 [M], %r7; ld.u32 %r1, [M]; mov.v4.u32 {%r2, %r3, %r4, %r6}, "
     "{%r7, %r7, %r7, %r7};", "0000"),
    # a structure is copied as one word, and one of its two members used
    ("st.u32 [M], %r7; ld.b64 %mine, [M]; st.b64 [M+8], %mine; ld.u32 %r1, [M+8]; mov.u32 %r2, 1; "
     "mov.u32 %r3, 1; ld.u32 %r4, [M+4];", "0001"),
])  # fmt: skip
def test_elements_of_a_vector_are_told_apart(memory, name, body, found):
    head = "mad.lo.u32 %at, %r0, 12, %at; st.shared.u32 [%at], %r5;"
    text = body.replace("M", memory)
    if name == "shared":
        text = head + text.replace("st.", "st.shared.").replace("ld.", "ld.shared.")
    for number, wrong in enumerate(found, 1):
        used = f"mad.wide.u32 %mine, %r0, 4, %o; st.global.u32 [%mine], %r{number};"
        assert bool(kinds(text + used)) == bool(int(wrong)), number


WIDENED = """
    .reg .b32 %v<2>;
    mad.lo.u32 %at, %r0, 12, %at;
    mad.wide.u32 %x, %r0, 16, %o;
    st.SPACE.v2.u32 [PLACE], {%r7, %r7};
    bar.sync 0;
    xor.b32 %r1, %r0, 1;
    sub.u32 %r1, %r1, %r0;
    mad.wide.s32 %x, %r1, 16, %x;
    mad.lo.s32 %at, %r1, 16, %at;
    PRAGMA
    ld.SPACE.v2.u32 {%v0, %v1}, [PLACE];
    mad.wide.u32 %x, %r0, 16, %o;
    mad.lo.s32 %at, %r1, -16, %at;
    st.SPACE.u32 [PLACE+4], %r0;
"""


@pytest.mark.parametrize("space, place", [("shared", "%at"), ("global", "%x")])
@pytest.mark.parametrize("pragma, found", [
    ("", {"race"}),
    ('.pragma "used_bytes_mask 0xff";', {"race"}),
    ('.pragma "used_bytes_mask 0x1f";', {"race"}),
    ('.pragma "used_bytes_mask 0xf";', set()),
    ('.pragma "used_bytes_mask 0x0";', set()),
])  # fmt: skip
def test_bytes_that_a_load_does_not_use(space, place, pragma, found):
    """Each thread reads two words of its neighbour and uses the first; that changes the second."""
    text = WIDENED.replace("SPACE", space).replace("PLACE", place).replace("PRAGMA", pragma)
    assert kinds(text) == found


MIXED = """
    cvta.shared.u64 %mine, s;
    mad.wide.u32 %mine, %r0, 4, %mine;
    setp.lt.u32 %q, %r0, 7;
    selp.b64 %x, %x, %mine, %q;
    STORE
    ld.u32 %r1, [%x];
    mad.wide.u32 %mine, %r0, 4, %o;
    st.global.u32 [%mine], %r1;
"""


@pytest.mark.parametrize("store, found", [
    ("", {"uninitialised memory"}),
    ("st.u32 [%x], 1;", set()),
    ("st.u32 [%x], %r5;", {"uninitialised memory"}),
    ("@%q st.u32 [%x], 1;", {"uninitialised memory"}),
])  # fmt: skip
def test_lanes_of_one_load_may_read_different_memories(store, found):
    assert kinds(MIXED.replace("STORE", store)) == found


@pytest.mark.parametrize("body, found", [
    ("atom.shared.add.u32 %r1, [%at], 1; st.u32 [%mine], %r1;", {"uninitialised memory"}),
    ("red.shared.add.u32 [%at], 1; ld.shared.u32 %r1, [%at]; st.u32 [%mine], %r1;",
     {"uninitialised memory"}),
    ("red.shared.or.b32 [%at], 1; ld.shared.u32 %r1, [%at]; st.u32 [%mine], %r1;",
     {"uninitialised memory"}),
    ("red.shared.and.b32 [%at], -2; ld.shared.u32 %r1, [%at]; st.u32 [%mine], %r1;", set()),
    ("st.shared.u32 [%at], 0; atom.shared.add.u32 %r1, [%at], 1; st.u32 [%mine], %r1;", set()),
    ("atom.shared.exch.b32 %r1, [%at], 1; ld.shared.u32 %r2, [%at]; st.u32 [%mine], %r2;", set()),
    ("atom.shared.exch.b32 %r1, [%at], 1; st.u32 [%mine], %r1;", {"uninitialised memory"}),
    ("atom.shared.exch.b32 %r1, [%at], %r5; ld.shared.u32 %r2, [%at]; st.u32 [%mine], %r2;",
     {"uninitialised memory"}),
])  # fmt: skip
def test_what_is_computed_from_nothing_is_nothing(body, found):
    assert kinds(body) == found


@pytest.mark.parametrize("lane, found", [(0, set()), (6, set()), (7, {"uninitialised memory"})])
def test_each_lane_stores_what_it_has(lane, found):
    """Stores reach memory in an order of lanes of their own; lane 7 has nothing to store."""
    body = f"""
        setp.ne.u32 %q, %r0, 7;
        @%q mov.u32 %r1, 5;
        st.shared.u32 [%at], %r1;
        setp.eq.u32 %q, %r0, {lane};
        ld.shared.u32 %r2, [%at];
        @%q st.u32 [%mine], %r2;
    """
    assert kinds(body, block=32) == found


@pytest.mark.parametrize("opcode, found", [
    ("redux.sync.add.u32 %r2, %r1, MASK;", {"uninitialised register"}),
    ("match.any.sync.b32 %r2, %r1, MASK;", {"uninitialised register"}),
    ("vote.sync.ballot.b32 %r2, %first, MASK;", set()),
])  # fmt: skip
def test_what_one_lane_lacks_all_its_group_lacks(opcode, found):
    """Lane 31 has no value; lane 0 stores what the warp computes."""
    body = "setp.lt.u32 %q, %r0, 31; @%q mov.u32 %r1, 5;" + opcode.replace("MASK", "-1")
    assert kinds(body + "@%first st.u32 [%mine], %r2;", block=32) == found


@pytest.mark.parametrize("lane, found", [(0, set()), (1, {"uninitialised register"})])
def test_a_shuffle_gives_what_its_source_holds(lane, found):
    body = f"@%first mov.u32 %r1, 5; shfl.sync.idx.b32 %r2, %r1, {lane}, 31, -1;"
    assert kinds(body + "st.global.u32 [%mine], %r2;", block=32) == found


# The first lane of each warp raises a bit, and the last warp goes on when all have: as the tiles of
# cooperative groups that are larger than a warp do.
FLAG = """
    @%first st.shared.u32 [bar], 0;
    and.b32 %r1, %r0, 31;
    shr.u32 %r2, %r0, 5;
    shl.b32 %r3, 1, %r2;
    setp.eq.u32 %q, %r1, 0;
    bar.sync 0;
    st.shared.u32 [%at], %r0;
    bar.warp.sync -1;
    ARRIVE
    WAIT
    xor.b32 %at, %at, 132;
    ld.shared.u32 %r5, [%at];
"""
RAISE = "@%q atom.shared.or.acq_rel.cta.b32 %r4, [bar], %r3;"
FENCED = "fence.acq_rel.cta; @%q red.shared.or.relaxed.cta.b32 [bar], %r3;"
SPIN = """
AGAIN:
    ld.acquire.cta.shared.u32 %r4, [bar];
    setp.ne.u32 %p, %r4, 3;
    @%p bra AGAIN;
"""
LEADER = """
AGAIN:
    @%q ld.acquire.cta.shared.u32 %r4, [bar];
    shfl.sync.idx.b32 %r4, %r4, 0, 31, -1;
    setp.ne.u32 %p, %r4, 3;
    @%p bra AGAIN;
"""


@pytest.mark.parametrize("arrive, wait, found", [
    (RAISE, SPIN, set()), (FENCED, SPIN, set()), (RAISE, LEADER, set()),
    (RAISE, "", {"race"}),
    (RAISE.replace("acq_rel", "acquire"), SPIN, {"race"}),
    (FENCED.replace("fence.acq_rel.cta;", ""), SPIN, {"race"}),
    (RAISE, SPIN.replace(".acquire.cta", ""), {"race"}),
])  # fmt: skip
def test_shared_memory_as_a_flag(arrive, wait, found):
    assert kinds(FLAG.replace("ARRIVE", arrive).replace("WAIT", wait)) == found


REMOTE = """
    @%first mbarrier.init.shared.b64 [bar], 1;
    st.shared.u32 [%at], 0;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    @%first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
    mov.u32 %r1, %cluster_ctarank;
    xor.b32 %r1, %r1, 1;
    mov.u32 %r3, bar;
    mapa.shared::cluster.u32 %r3, %r3, %r1;
    mapa.shared::cluster.u32 %r2, PLACE, %r1;
    OPCODE [%r2], %r0, [%r3];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
    @!%p bra WAIT;
    ld.shared.u32 %r2, [%at];
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
"""
SIGNALS = "async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32"


@pytest.mark.parametrize("opcode, place, found", [
    ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32", "%at", set()),
    ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32", "%s",
     {"overwritten too early"}),
    (f"red.{SIGNALS}", "%s", set()),
])  # fmt: skip
def test_stores_that_signal_an_mbarrier(opcode, place, found):
    text = REMOTE.replace("OPCODE", opcode).replace("PLACE", place)
    assert kinds(text, grid=2, cluster=2) == found
    early = text[: text.index("WAIT:")] + text[text.index("    ld.shared") :]
    assert "read before wait" in kinds(early, grid=2, cluster=2)


# Lanes in one part of the code while others wait for all at the end of it.
PARTS = """
    setp.gt.u32 %p, %r0, 27;
    @%p exit;
    and.b32 %r1, %r0, 1;
    setp.ne.u32 %p, %r1, 0;
    @%p bra PART;
JOIN:
    bar.warp.sync -1;
    exit;
PART:
    vote.sync.ballot.b32 %r2, %p, MASK;
    vote.sync.ballot.b32 %r2, %p, MASK;
    LEAVE
    bra JOIN;
"""


@pytest.mark.parametrize("mask, leave, found", [
    ("0x0aaaaaaa", "", set()), ("0x0aaaaaab", "", {"shuffle"}),
    ("0x0aaaaaaa", "exit;", {"shuffle"}),
])  # fmt: skip
def test_lanes_that_are_named_elsewhere_may_come_later(mask, leave, found):
    try:
        assert kinds(PARTS.replace("MASK", mask).replace("LEAVE", leave), block=32) == found
    except KernelError as error:
        assert {x.kind for x in error.findings} == found


THREADS = np.arange(128)


def of_cuda(name, out, block, edit=("", "")):
    """The findings of a kernel of right.cu, with one piece of its text replaced."""
    text = RIGHT.replace(*edit)
    assert edit == ("", "") or text != RIGHT
    given = [out, np.ones(128, "f8") if name == "padding" else np.ones(128, "i4")]
    kernel = Module(text)[name]
    report = kernel.launch(1, block, given[: len(kernel.parameters)], check=True)
    return {x.kind for x in report.findings}


def test_padding_of_structures_is_passed_to_functions():
    out = np.zeros(64, [("value", "f8"), ("count", "i4"), ("tag", "i4")])
    assert not of_cuda("padding", out, 64)
    even = THREADS[:64] % 2 == 0
    np.testing.assert_array_equal(out["value"], np.where(even, 2, 3 * THREADS[:64]) + 3)
    assert (out["tag"] == 3).all()


def test_a_member_that_nobody_wrote_spoils_what_is_made_of_it():
    out = np.zeros(64, [("value", "f8"), ("count", "i4"), ("tag", "i4")])
    edit = ("st.param.b32 \t[param1+8], 2;", "")
    assert of_cuda("padding", out, 64, edit) == {"uninitialised register"}


@pytest.mark.parametrize("edit, found", [
    (("", ""), set()),
    # the barrier before the second store, which waits for the reads of the first step
    (("$L__BB2_3:\n\tbar.warp.sync \t33554431;", "$L__BB2_3:"), {"race"}),
])  # fmt: skip
def test_part_of_a_warp_meets_again_and_again(edit, found):
    out = np.zeros(1, "i4")
    assert of_cuda("part_of_warp", out, 100, edit) == found
    assert out[0] == 25


def test_volatile_flags_in_shared_memory():
    out = np.zeros(4, "i4")
    assert not of_cuda("flags", out, 128)
    assert out.tolist() == [5, 6, 7, 8]
    assert of_cuda("flags", out, 128, ("membar.cta;", "")) == {"race"}
    assert of_cuda("flags", out, 128, ("st.volatile.shared", "st.shared")) == {"race"}


VOLATILE_SUM = """
    st.volatile.shared.u32 [%at], %r0;
    FENCE
    ld.volatile.shared.u32 %r1, [%at+4];
    add.u32 %r1, %r1, 1;
    FENCE
    st.volatile.shared.u32 [%at], %r1;
"""


@pytest.mark.parametrize("fence, found", [
    ("", {"race"}), ("membar.cta;", {"race"}), ("bar.warp.sync -1;", set()),
])  # fmt: skip
def test_volatile_words_of_a_warp_are_no_flags(fence, found):
    body = "st.shared.u32 [%at+4], 0; bar.warp.sync -1;" + VOLATILE_SUM.replace("FENCE", fence)
    assert kinds(body, block=32) == found


def test_tiles_of_several_warps_meet_through_bits_of_one_word():
    out = np.zeros(2, "i4")
    assert not of_cuda("tiles", out, 128)
    assert out.tolist() == [64, 64]
