"""What checks say: names, circles of waiters, last arrivals, memory of malloc."""

import numpy as np
import pytest

from emulator import KernelError, Module
from emulator.machine.checks import accesses
from emulator.memory.shadow import index_of
from emulator.ptx.names import Symbol, place_name, short_name

pytestmark = pytest.mark.sampled(2)

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def launch(text, grid=1, block=128, args=(), **options):
    return Module(HEAD + text)["k"].launch(grid, block, list(args), check=True, **options)


HEAP = """
.extern .func (.param .b64 r) malloc (.param .b64 n);
.visible .entry k(.param .u64 o)
{
    .reg .b64 %p, %o, %off;  .reg .b32 %thread, %v;
    ld.param.u64 %o, [o];
    {
        .param .b64 n;  st.param.b64 [n], 256;
        .param .b64 r;  call.uni (r), malloc, (n);
        ld.param.b64 %p, [r];
    }
    WRITE
    ld.u32 %v, [%p+8];
    mov.u32 %thread, %tid.x;  mad.wide.u32 %o, %thread, 4, %o;
    st.global.u32 [%o], %v;
    ret;
}
"""


@pytest.mark.parametrize("write, found", [
    ("", 1), ("st.u32 [%p+8], 5;", 0), ("st.u32 [%p+4], 5;", 1),
])  # fmt: skip
def test_memory_of_malloc_is_unwritten(write, found):
    report = launch(HEAP.replace("WRITE", write), 1, 32, [np.zeros(32, "u4")])
    assert [x.kind for x in report.findings] == ["uninitialised memory"] * found


ARRIVALS = """
.visible .entry k()
{
    .reg .pred %p;  .reg .b32 %thread, %at;
    .shared .align 8 .b64 full[2];
    mov.u32 %at, full;
    mov.u32 %thread, %tid.x;  setp.ne.u32 %p, %thread, 0;
    @%p bra WAIT;
    mbarrier.init.shared.b64 [%at+8], 2;
    mbarrier.arrive.shared.b64 _, [%at+8];
WAIT:
    bar.sync 0;
    mbarrier.try_wait.parity.shared.b64 %p, [%at+8], 0;
    @!%p bra WAIT;
    ret;
}
"""


def test_a_deadlock_names_the_last_arrival():
    with pytest.raises(KernelError) as caught:
        launch(ARRIVALS)
    text = str(caught.value)
    assert "mbarrier full[1], parity 0: 1 of 2 arrivals" in text
    assert "the last arrival was that of thread (0, 0, 0) at line 13" in text


@pytest.mark.parametrize("engine", ["vector", "reference"])
def test_a_loop_around_a_wait_with_a_barrier_in_it_ends(engine):
    # Every turn of the loop the threads meet, and nothing else will ever happen.
    with pytest.raises(KernelError, match="deadlock: no thread can ever go on"):
        Module(HEAD + ARRIVALS)["k"].launch(1, 128, [], engine=engine)


CROSSED = """
.visible .entry k()
{
    .reg .b32 %thread;  .reg .pred %p;
    mov.u32 %thread, %tid.x;  setp.lt.u32 %p, %thread, 64;
    @%p bra OTHER;
    bar.sync FIRST, 128;
    ret;
OTHER:
    bar.sync 2, 128;
    ret;
}
"""


def test_a_deadlock_names_a_circle():
    with pytest.raises(KernelError) as caught:
        launch(CROSSED.replace("FIRST", "1"))
    assert str(caught.value).count("which waits for") == 2
    launch(CROSSED.replace("FIRST", "2"))  # both sides meet, though at two statements


def test_what_was_found_before_an_error_is_told():
    race = CROSSED.replace("FIRST", "1").replace(
        "setp", ".shared .u32 s;\n    st.shared.u32 [s], %thread;\n    setp"
    )
    with pytest.raises(KernelError) as caught:
        launch(race)
    assert [x.kind for x in caught.value.findings] == ["race"]
    assert "Checks had found before (1 in all):\nrace: threads write different" in str(caught.value)


@pytest.mark.parametrize("mangled, name", [
    ("_ZZ12race_raw_badE1s", "s"), ("_ZZ10next_arrayILb0EEvPKiPiE1b", "b"),
    ("_ZZ6kernelvE4tile_0", "tile"), ("_ZZ6kernelvE5tile", "_ZZ6kernelvE5tile"), ("smem", "smem"),
])  # fmt: skip
def test_local_names(mangled, name):
    assert short_name(mangled) == name


def test_places_are_counted_in_elements_of_the_access():
    symbols = [Symbol("bytes", "shared", 1024, 1, 1024), Symbol("words", "shared", 2048, 4, 64),
        Symbol("one", "shared", 4096, 8, 8), Symbol("any", "shared", 8192, 1, None)]  # fmt: skip
    assert place_name(symbols, 1032, 8) == "bytes[1]"
    assert place_name(symbols, 1120, 2) == "bytes[48]"
    assert place_name(symbols, 1120) == "bytes + 96 bytes"
    assert place_name(symbols, 1033, 8) == "bytes + 9 bytes"
    assert place_name(symbols, 2057, 8) == "words[2] + 1 bytes"
    assert place_name(symbols, 2056, 8) == "words[2]"
    assert place_name(symbols, 1024, 4) == "bytes[0]"
    assert place_name(symbols, 1024) == "bytes" and place_name(symbols, 4096, 8) == "one"
    assert place_name(symbols, 8192 + 96, 8) == "any[12] (byte 96)"
    assert place_name(symbols, 8192, 8) == "any[0]"


TILE = """
.visible .entry k(.param .u64 o)
{
    .reg .b32 %thread, %r<8>, %tile;  .reg .f32 %f<8>;  .reg .b64 %o;
    .shared .align 32 .b8 tile[512];
    ld.param.u64 %o, [o];
    mov.u32 %tile, tile;
    mov.u32 %thread, %tid.x;  mad.lo.u32 %r0, %thread, 16, %tile;
    STORE
    bar.warp.sync -1;
    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16
        {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%tile];
    wmma.load.b.sync.aligned.row.m16n16k16.shared.f16
        {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%tile];
    mad.wide.u32 %o, %thread, 4, %o;
    st.global.u32 [%o], %r0;
    ret;
}
"""


def test_tiles_that_nobody_filled_are_loaded():
    """Of wmma.load it is not known which lane has what: nothing is said, and nothing breaks."""
    x = np.zeros(32, "u4")
    assert not launch(TILE.replace("STORE", ""), 1, 32, [x]).findings
    store = "st.shared.v4.b32 [%r0], {%r0, %r0, %r0, %r0};"
    assert not launch(TILE.replace("STORE", store), 1, 32, [x]).findings


COUNTER = """
.visible .entry k(.param .u64 o)
{
    .reg .b64 %o;  .reg .b32 %v;
    ld.param.u64 %o, [o];
    FENCE
    atom.global.add.u32 %v, [%o], 1;
    ret;
}
"""


def test_a_counter_of_all_blocks_costs_a_step_each():
    x = np.zeros(1, "u4")
    assert not launch(COUNTER.replace("FENCE", "membar.gl;"), 1000, 32, [x]).findings
    assert x[0] == 32000


CANCEL = """.version 8.6
.target sm_100a
.address_size 64
.visible .entry k()
{
    .reg .b32 %thread;  .reg .pred %p;  .reg .b128 %q;
    .shared .align 16 .b8 answer[16];  .shared .b64 bar;
    mov.u32 %thread, %tid.x;  setp.eq.u32 %p, %thread, 0;
    @%p mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    @%p mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
    @%p clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [answer], [bar];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
    @!%p bra WAIT;
    ld.shared.b128 %q, [answer];
    ret;
}
"""


def test_the_answer_of_try_cancel_comes_with_its_mbarrier():
    wait = CANCEL[CANCEL.index("WAIT:") : CANCEL.index("    ld.shared.b128")]
    assert not Module(CANCEL)["k"].launch(1, 64, [], check=True).findings
    report = Module(CANCEL.replace(wait, ""))["k"].launch(1, 64, [], check=True)
    assert {x.kind for x in report.findings} == {"read before wait"}
    assert "try_cancel" in str(report.findings[0])


#: a thread reads words of shared memory, and writes its own later
READS = """
.visible .entry k()
{
    .reg .b32 %thread, %other, %base, %own, %read, %v;
    .shared .b32 held[128];
    mov.u32 %thread, %tid.x;  mov.u32 %base, held;  mad.lo.u32 %own, %thread, 4, %base;
    st.shared.u32 [%own], %thread;
    bar.sync 0;
    xor.b32 %other, %thread, OTHER;  mad.lo.u32 %read, %other, 4, %base;
    READ
    WRITE
    ret;
}
"""
LOAD, BLOCKS, WARPS = "ld.shared.u32 %v, [%read];", "bar.sync 0;", "bar.warp.sync -1;"
OWN, LATER = "st.shared.u32 [%own], %other;", "ld.shared.u32 %v, [%own];"
FAR = "xor.b32 %v, %thread, 32;  mad.lo.u32 %v, %v, 4, %base;  st.shared.u32 [%v], %other;"
ONE = "st.shared.u32 [held], 5;"


@pytest.mark.parametrize("other, read, write, found", [
    (0, LOAD, OWN, 0), (1, LOAD, OWN, 1), (1, LOAD + WARPS, OWN, 0), (32, LOAD + WARPS, OWN, 1),
    (32, LOAD + BLOCKS, OWN, 0), (1, LOAD + LATER + WARPS + LATER, OWN, 0), (0, 9 * LOAD, OWN, 0),
    (32, LOAD + WARPS + LATER, OWN, 1), (32, 9 * LOAD, OWN, 1), (33, LOAD + LATER, OWN + LOAD, 2),
    (0, LOAD, ONE, 1), (0, LOAD + BLOCKS, ONE, 0), (96, LOAD, ONE, 1), (7, LOAD, ONE, 1),
    (1, LOAD + LATER + WARPS, FAR, 1), (1, LOAD + LATER + WARPS + BLOCKS, FAR, 0),
])  # fmt: skip
def test_reads_that_are_kept_are_told_as_those_that_are_entered_at_once(
    monkeypatch, other, read, write, found
):
    text = READS.replace("OTHER", str(other)).replace("READ", read).replace("WRITE", write)
    kept = launch(text, 3)
    monkeypatch.setattr(accesses, "_MOST_RECENT", -1)
    assert kept.findings == launch(text, 3).findings
    assert len(kept.findings) == found


@pytest.mark.parametrize("asked", [[], [3], [3, 3, 4, 4, 4, 3], [1, 2, 3]])
def test_neighbours_who_ask_the_same_get_one_answer(asked):
    asked = np.array(asked, np.int64)
    once = accesses.questions(asked, asked * 0)
    assert (np.diff(asked[once]) != 0).all()
    assert (accesses.answers(asked[once], once, len(asked)) == asked).all()


@pytest.mark.parametrize("at, where", [
    ([], None), ([7], None), ([4, 5, 6], slice(4, 7)), ([4, 6, 6], None), ([4, 6, 5, 7], None),
])  # fmt: skip
def test_places_are_a_slice_where_each_is_the_next_one(at, where):
    at = np.array(at, np.int64)
    assert index_of(at) is at if where is None else index_of(at) == where


#: rows of %kept in which a register of every warp is stored that few lanes have
ROWS = """
.visible .entry k(.param .u64 o)
{
    .reg .pred %p;  .reg .b32 %thread, %at, %v;  .reg .b64 %o, %off;
    .shared .align 16 .b8 kept[256];
    ld.param.u64 %o, [o];  mov.u32 %thread, %tid.x;
    setp.lt.u32 %p, %thread, 36;  @%p mov.u32 %v, 7;
    shl.b32 %at, %thread, 4;  and.b32 %at, %at, 112;  and.b32 %thread, %thread, 32;
    mad.lo.u32 %at, %thread, 4, %at;  mov.u32 %thread, kept;  add.u32 %at, %at, %thread;
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [%at], {%v};
    bar.sync 0;
    ld.shared.u32 %v, [%at];  mov.u32 %thread, %tid.x;  mad.wide.u32 %o, %thread, 4, %o;
    st.global.u32 [%o], %v;
    ret;
}
"""


@pytest.mark.parametrize("options", [{}, {"seed": 3}])
def test_rows_of_registers_that_some_lanes_have(options):
    """Of the second warp seven rows are of lanes that never wrote the register."""
    report = launch(ROWS, 1, 64, [np.zeros(64, "u4")], **options)
    (found,) = [x for x in report.findings if x.kind == "uninitialised memory"]
    assert found.count == 28 and found.threads[0] == (33, 0, 0)


#: block 2 writes what others copy without waiting for that
COPIED = """
.visible .entry k(.param .u64 o)
{
    .reg .pred %p;  .reg .b32 %thread, %at;  .reg .b64 %o;
    .shared .align 16 .b8 room[512];
    ld.param.u64 %o, [o];  mov.u32 %thread, %tid.x;  mad.wide.u32 %o, %thread, 16, %o;
    shl.b32 %thread, %thread, 4;  mov.u32 %at, room;  add.u32 %at, %at, %thread;
    mov.u32 %thread, %ctaid.x;  setp.eq.u32 %p, %thread, 2;  @%p bra WRITE;
    cp.async.ca.shared.global [%at], [%o], 16;  cp.async.commit_group;
    ret;
WRITE:
    st.global.u32 [%o], %thread;
    ret;
}
"""


def test_a_conflict_with_a_copy_of_another_wave(monkeypatch):
    monkeypatch.setattr("emulator.machine.vector.engine.LANES", 32)
    report = launch(COPIED, 3, 32, [np.zeros(128, "u4")])
    assert [x.kind for x in report.findings] == ["overwritten too early"]
