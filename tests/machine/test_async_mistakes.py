"""Mistakes around asynchronous copies, clusters and mbarriers, each beside its right version."""

import numpy as np
import pytest

from emulator import Module

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
START = """
.visible .entry k(.param .u64 o)
{
    .reg .b32 %r<8>, %at, %s, %far;  .reg .b64 %o, %mine, %d<4>;
    .reg .pred %p, %first;
    .shared .align 256 .b8 s[1024];  .shared .align 8 .b64 bar[2];
    ld.param.u64 %o, [o];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %mine, %r0, 4, %o;
    mov.u32 %s, s;
    mad.lo.u32 %at, %r0, 4, %s;
    setp.eq.u32 %first, %r0, 0;
"""


def findings(body, grid=1, block=64, **options):
    module = Module(HEAD + START + body + "\n    ret;\n}\n")
    given = np.arange(4096, dtype="u4")
    return module["k"].launch(grid, block, [given], check=True, **options).findings


def kinds(body, **options):
    return {x.kind for x in findings(body, **options)}


# --- copies ---------------------------------------------------------------------------------------

COPIED = """
    st.shared.u32 [%at], 0;
    cp.async.ca.shared.global [%at], [%mine], 4;
    EARLY
    cp.async.wait_all;
    LATE
"""


@pytest.mark.parametrize("change", [
    "st.shared.u32 [%at], 77;", "st.shared.u32 [%at], %r0;", "atom.shared.add.u32 %r1, [%at], 1;",
    "red.shared.add.u32 [%at], 1;",
])  # fmt: skip
def test_a_word_that_cp_async_fills_is_stored_to(change):
    early = COPIED.replace("EARLY", change).replace("LATE", "")
    assert kinds(early) == {"overwritten too early"}
    assert not kinds(COPIED.replace("EARLY", "").replace("LATE", change))


STORED = """
    st.shared.u32 [%at], %r0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @!%first bra END;
    OPCODE [%o+512], [%s], 256;
    cp.async.bulk.commit_group;
    WAIT
    USE
    cp.async.bulk.wait_group 0;
END:
"""
STORE = "cp.async.bulk.global.shared::cta.bulk_group"
REDUCE = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"


@pytest.mark.parametrize("opcode", [STORE, REDUCE])
@pytest.mark.parametrize("wait, use, found", [
    ("cp.async.bulk.wait_group.read 0;", "ld.global.u32 %r1, [%o+516];", {"read before wait"}),
    ("cp.async.bulk.wait_group 1;", "ld.global.u32 %r1, [%o+516];", {"read before wait"}),
    ("cp.async.bulk.wait_group.read 0;", "st.global.u32 [%o+516], 5;", {"overwritten too early"}),
    ("cp.async.bulk.wait_group.read 0;", "ld.global.u32 %r1, [%o+508];", set()),
    ("cp.async.bulk.wait_group.read 0;", "st.shared.u32 [%s], 5;", set()),
    ("", "st.shared.u32 [%s], 5;", {"overwritten too early"}),
    ("cp.async.bulk.wait_group 0;", "ld.global.u32 %r1, [%o+516];", set()),
    ("cp.async.bulk.wait_group 0;", "st.global.u32 [%o+516], 5;", set()),
])  # fmt: skip
def test_the_destination_of_a_bulk_copy_is_used(opcode, wait, use, found):
    body = STORED.replace("OPCODE", opcode).replace("WAIT", wait).replace("USE", use)
    assert kinds(body) == found


@pytest.mark.parametrize("wait, found", [
    ("cp.async.bulk.wait_group.read 0;", {"read before wait"}),
    ("cp.async.bulk.wait_group 0;", set()),
])  # fmt: skip
def test_other_threads_use_the_destination_of_a_bulk_copy(wait, found):
    body = STORED.replace("OPCODE", STORE).replace("WAIT", wait).replace("USE", "")
    body = body.replace("cp.async.bulk.wait_group 0;\nEND:", "END: bar.sync 0;")
    assert kinds(body + "ld.global.u32 %r1, [%mine+512];") == found


# --- clusters -------------------------------------------------------------------------------------

REMOTE = """
    mov.u32 %r1, %cluster_ctarank;
    xor.b32 %r1, %r1, 1;
    mapa.shared::cluster.u32 %far, %at, %r1;
    START
    USE
    barrier.cluster.arrive;
    barrier.cluster.wait;
"""
MEET = "barrier.cluster.arrive.RELAXED; barrier.cluster.wait;"
WRITE = "st.shared::cluster.u32 [%far], %r0;"
ADD = "red.shared::cluster.add.u32 [%far+512], 1;"
UNSTARTED = {"peer has not started"}


@pytest.mark.parametrize("use", [WRITE, ADD])
@pytest.mark.parametrize("start, found", [
    ("", UNSTARTED), ("bar.sync 0;", UNSTARTED),
    (MEET.replace("RELAXED", "release"), set()), (MEET.replace("RELAXED", "relaxed"), set()),
    # one thread waits for all
    ("barrier.cluster.arrive; @%first barrier.cluster.wait; bar.sync 0;", set()),
    ("barrier.cluster.arrive; @%first barrier.cluster.wait;", UNSTARTED),
])  # fmt: skip
def test_another_block_must_have_started(start, use, found):
    body = REMOTE.replace("START", start).replace("USE", use)
    if "@%first" in start:
        body = body.replace("barrier.cluster.arrive;\n    barrier.cluster.wait;", "")
        found = found | {"peer has ended"}
    assert kinds(body, grid=2, cluster=2) == found


def test_what_another_block_may_still_read_is_written():
    meet = MEET.replace("RELAXED", "release")
    read, write = "ld.shared::cluster.u32 %r1, [%far];", "st.shared.u32 [%at], 1;"
    body = REMOTE.replace("START", f"st.shared.u32 [%at], 0; {meet}")
    assert kinds(body.replace("USE", read + write), grid=2, cluster=2) == {"race"}
    assert not kinds(body.replace("USE", read + meet + write), grid=2, cluster=2)


def test_who_does_not_wait_for_the_other_block_is_named():
    (finding,) = findings(REMOTE.replace("START", "").replace("USE", WRITE), grid=2, cluster=2)
    assert "shared memory of block (0, 0, 0) is accessed" in finding.reason
    assert finding.block == (1, 0, 0) and finding.count == 128


# --- halves ---------------------------------------------------------------------------------------

HALF = "mad.wide.u32 %mine, %r0, 8, %o;"


@pytest.mark.parametrize("body, found", [
    ("mov.b64 %d0, {%r0, %r5}; st.global.b64 [%mine], %d0;", {"uninitialised register"}),
    ("mov.b64 %d0, {%r5, %r0}; mov.b64 %d1, %d0; st.global.b64 [%mine], %d1;",
     {"uninitialised register"}),
    ("mov.b64 %d0, {%r0, %r0}; st.global.b64 [%mine], %d0;", set()),
    ("mov.b64 %d0, {%r0, 0}; st.global.b64 [%mine], %d0;", set()),
    ("mov.b64 %d0, {%r0, %r5}; selp.b64 %d1, %d0, %d0, %first; st.global.b64 [%mine], %d1;",
     {"uninitialised register"}),
    # taken apart again, in registers and in memory
    ("mov.b64 %d0, {%r0, %r5}; mov.b64 {%r1, %r2}, %d0; st.global.b32 [%mine], %r1;", set()),
    ("mov.b64 %d0, {%r0, %r5}; mov.b64 {%r1, %r2}, %d0; st.global.b32 [%mine], %r2;",
     {"uninitialised register"}),
    ("mov.b64 %d0, {%r0, %r5}; st.shared.b64 [%s], %d0; ld.shared.b32 %r1, [%s]; "
     "st.global.b32 [%mine], %r1;", set()),
    ("mov.b64 %d0, {%r0, %r5}; st.shared.b64 [%s], %d0; ld.shared.b32 %r1, [%s+4]; "
     "st.global.b32 [%mine], %r1;", {"uninitialised memory"}),
    # a word that nobody wrote, loaded for one half
    ("ld.shared.b32 %r5, [%s]; mov.b64 %d0, {%r0, %r5}; st.global.b64 [%mine], %d0;",
     {"uninitialised memory"}),
    # an address, and a number that is computed from the other half
    ("mov.b64 %d0, {%r0, %r5}; ld.global.b32 %r1, [%d0];", {"uninitialised register"}),
    ("mov.b64 %d0, {%r0, %r5}; cvt.u32.u64 %r1, %d0; st.global.b32 [%mine], %r1;", set()),
    # padding of a structure that is copied as it stands
    ("st.shared.b32 [%s], 1; ld.shared.b64 %d0, [%s]; st.global.b64 [%mine], %d0;", set()),
])  # fmt: skip
def test_half_of_a_word_has_no_value(body, found):
    try:
        report = kinds(HALF + body, block=1)
    except Exception as error:
        report = {x.kind for x in error.findings}
    assert report == found


def test_the_half_is_named():
    body = "mov.b64 %d0, {%r0, %r5}; st.global.b64 [%o], %d0;"
    (finding,) = findings(body, block=1)
    assert "the high half of %d0, which nothing has written" in finding.reason


# --- mbarriers ------------------------------------------------------------------------------------

BARRIER = """
    @%first mbarrier.init.shared.b64 [bar], 64;
    bar.sync 0;
    mbarrier.arrive.shared.b64 %d0, [bar];
WAIT:
    mbarrier.test_wait.shared.b64 %p, [bar], %d0;
    @!%p bra WAIT;
    bar.sync 0;
    INVAL
    USE
"""
INVAL = "@%first mbarrier.inval.shared.b64 [bar];"


@pytest.mark.parametrize("use", [
    "@%first st.shared.u32 [bar], 1;", "@%first st.shared.b64 [bar], %o;",
    "@%first atom.shared.add.u32 %r1, [bar+4], 1;",
    "@%first cp.async.ca.shared.global [bar], [%o], 8;",
    "@%first mbarrier.init.shared.b64 [bar], 32;",
])  # fmt: skip
def test_the_memory_of_an_mbarrier_is_used_for_something_else(use):
    body = BARRIER.replace("USE", use + " cp.async.wait_all;")
    assert kinds(body.replace("INVAL", "")) == {"mbarrier"}
    assert not kinds(body.replace("INVAL", INVAL)) - {"uninitialised memory"}


def test_an_mbarrier_is_invalidated_before_others_use_its_memory():
    body = BARRIER.replace("USE", "setp.eq.u32 %p, %r0, 40; @%p st.shared.u32 [bar], 1;")
    assert kinds(body.replace("INVAL", INVAL)) == {"race"}
    assert not kinds(body.replace("INVAL", INVAL + " bar.sync 0;"))
