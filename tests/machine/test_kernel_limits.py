"""What cannot go on ends with a KernelError that says who waits where, and nothing is written."""

import numpy as np
import pytest

from emulator import KernelError, Module, OperandError
from emulator.machine.reference import schedule
from emulator.machine.vector import engine, wave
from emulator.machine.vector.strand import Strand

pytestmark = pytest.mark.sampled(2)

HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
{
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<9>;
    .shared .align 8 .b64 full[2];
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    st.global.u32 [%rd1], 7;
    BODY
    ret;
}
"""
INIT = "setp.ne.u32 %p1, %r1, 0; @%p1 bra S; mbarrier.init.shared.b64 [full+8], 3; S: bar.sync 0;"


def run(body, **options):
    array = np.zeros(8, "u4")
    try:
        Module(HEAD.replace("BODY", body))["k"].launch(2, 128, [array], **options)
    finally:
        if body and "exits" not in options:
            assert options or not array.any() or body.startswith("//runs")
    return array


@pytest.mark.parametrize(
    "body, said",
    [
        ("setp.lt.u32 %p1, %r1, 64; @%p1 bar.sync 3, 128;", [
            "blocks (0, 0, 0), (1, 0, 0), warps 0-1 (64 threads)",
            "barrier 3: 64 of 128 threads arrived"]),
        ("setp.lt.u32 %p1, %r1, 32; @%p1 bra D; bar.sync 0; bra E; D: bar.sync 1; E:", [
            "barrier 0: 96 of 128 threads arrived; missing warps 0",
            "barrier 1: 32 of 128 threads arrived; missing warps 1-3"]),
        (f"{INIT} L: mbarrier.try_wait.parity.shared.b64 %p2, [full+8], 0; @!%p2 bra L;", [
            "mbarrier full[1], parity 0: 3 of 3 arrivals and 0 bytes are outstanding"]),
        ("setp.lt.u32 %p1, %r1, 16; @%p1 bra D; bar.warp.sync -1; D: bar.sync 0;", [
            "warp 0 (16 threads, 16 to 31)", "threads elsewhere: 0-15"]),
    ],
)  # fmt: skip
def test_a_deadlock_says_who_waits_where(body, said):
    with pytest.raises(KernelError) as caught:
        run(body)
    assert caught.value.kind == "deadlock"
    assert caught.value.line == HEAD.split("BODY")[0].count("\n") + 1
    for text in said:
        assert text in str(caught.value)


def test_a_cluster_that_waits_for_a_block():
    text = HEAD.replace(".visible .entry k(.param .u64 p)",
                        ".visible .entry k(.param .u64 p) .reqnctapercluster 2, 1, 1")  # fmt: skip
    body = (
        "mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p1, %r2, 1; @%p1 bra L; "
        "barrier.cluster.arrive; barrier.cluster.wait; ret; L: bar.sync 0, 256;"
    )
    with pytest.raises(KernelError, match=r"128 threads of block \(1, 0, 0\) have not arrived"):
        Module(text.replace("BODY", body))["k"].launch(2, 128, [np.zeros(8, "u4")])


def test_loops_without_an_end(monkeypatch):
    monkeypatch.setattr(engine.Grid, "most_in_vain", 5000)
    monkeypatch.setattr(engine, "VAIN_POLLS", 5000)
    with pytest.raises(KernelError, match=r"endless loop: .* step_limit=N"):
        run("L: add.u32 %r2, %r2, 1; bra L;")
    with pytest.raises(KernelError, match="deadlock: the loop waits for a change of memory"):
        run("L: ld.volatile.global.u32 %r2, [%rd1]; setp.eq.u32 %p1, %r2, 77; @!%p1 bra L;")


def test_a_step_limit():
    body = "L: add.u32 %r2, %r2, 1; st.global.u32 [%rd1], %r2; bra L;"
    # The loop is compiled on the way: limits are checked after 4,096 turns of either kind.
    with pytest.raises(KernelError, match=r"step limit: [12][0-9],[0-9]{3} statements.*=10,000"):
        run(body, step_limit=10_000)
    assert run("//runs\n add.u32 %r2, %r2, 1;", step_limit=10_000)[0] == 7


def test_endless_recursion():
    text = HEAD.replace(".visible", ".func f() { call f; ret; }\n.visible").replace(
        "BODY", "call f;"
    )
    with pytest.raises(KernelError, match="stack overflow: more than 2048 calls"):
        Module(text)["k"].launch(1, 1, [np.zeros(8, "u4")])


#: each thread adds up the words of as many calls as it has a number
RECURSION = """
.func (.reg .b32 out) f(.reg .b32 n) {
    .local .b8 room[SIZE]; .reg .b32 %r<5>; .reg .b64 %rd1; .reg .pred %p1;
    mov.u32 out, 0; setp.eq.u32 %p1, n, 0; @%p1 bra END;
    mov.u64 %rd1, room; st.local.u32 [%rd1], n; mul.lo.u32 %r4, n, n; sub.u32 %r1, n, 1;
    call (%r2), f, (%r1);
    ld.local.u32 %r3, [%rd1]; add.u32 %r2, %r2, %r4; add.u32 out, %r2, %r3;
    END: ret;
}
"""
SUM = (
    "//runs\n mov.u32 %r1, %tid.x; call (%r2), f, (%r1); mul.wide.u32 %rd2, %r1, 4; "
    "add.u64 %rd2, %rd1, %rd2; st.global.u32 [%rd2+4], %r2;"
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["reference", "vector", "compiled"])
def test_deep_recursion(name):
    text = HEAD.replace(".visible", RECURSION.replace("SIZE", "16") + ".visible")
    out = np.zeros(257, "u4")
    Module(text.replace("BODY", SUM))["k"].launch(1, 256, [out], engine=name)
    assert out[1:].tolist() == [sum(i + i * i for i in range(n + 1)) for n in range(256)]
    large = text.replace("[16]", "[16384]").replace("BODY", SUM)
    with pytest.raises(KernelError, match="needs 540,672 bytes of local memory, and may have 524"):
        Module(large)["k"].launch(1, 256, [out], engine=name)


LOCK = (
    "//runs\n L: atom.global.cas.b32 %r2, [%rd1+4], 0, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra L; "
    "ld.volatile.global.u32 %r3, [%rd1+8]; add.u32 %r3, %r3, 1; "
    "st.volatile.global.u32 [%rd1+8], %r3; membar.gl; atom.global.exch.b32 %r3, [%rd1+4], 0;"
)


def test_a_lock_between_blocks():
    array = np.zeros(8, "u4")
    Module(HEAD.replace("BODY", LOCK))["k"].launch(2, 16, [array])
    assert array[:3].tolist() == [7, 0, 32]


@pytest.mark.parametrize("engine", ["vector", "compiled"])
def test_threads_that_get_a_lock_leave_no_ancestors_behind(engine, monkeypatch):
    """Each parts from those that go round; registers of all generations would take gigabytes."""
    part, generations = Strand.part, []

    def counting(self, mask, pc):
        made = above = part(self, mask, pc)
        generations.append(0)
        while above.parent is not None:
            above, generations[-1] = above.parent, generations[-1] + 1
        return made

    def most():
        generations.clear()
        array = np.zeros(8, "u4")
        Module(HEAD.replace("BODY", LOCK))["k"].launch(80, 1, [array], engine=engine)
        assert array[:3].tolist() == [7, 0, 80]
        return max(generations)

    monkeypatch.setattr(Strand, "part", counting)
    assert most() <= wave._GENERATIONS + 2
    monkeypatch.setattr(wave, "_GENERATIONS", 1 << 30)
    assert most() > 70


def test_blocks_that_wait_for_later_ones():
    """More blocks than run together: the first waits for a flag of the last."""
    body = (
        "//runs\n mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x; sub.u32 %r3, %r3, 1; "
        "setp.eq.u32 %p1, %r2, %r3; @%p1 st.volatile.global.u32 [%rd1+4], 1; "
        "L: ld.volatile.global.u32 %r4, [%rd1+4]; setp.eq.u32 %p2, %r4, 0; @%p2 bra L;"
    )
    array = np.zeros(8, "u4")
    Module(HEAD.replace("BODY", body))["k"].launch(40, 1024, [array])
    assert array[:2].tolist() == [7, 1]


@pytest.mark.parametrize(
    "options, said",
    [
        ({"engine": "bogus"}, "engine is one of auto, compiled, vector"),
        ({"contract": "all"}, "contract is one of ptxas, none, O0"),
        ({"async_order": "erly"}, "async_order is one of early, late, random.*nearest is 'early'"),
    ],
)
def test_words_that_are_none(options, said):
    with pytest.raises(OperandError, match=said):
        run("", **options)


def test_progress_is_told():
    told = []
    Module(HEAD.replace("BODY", ""))["k"].launch(
        40, 1024, [np.zeros(8, "u4")], progress=lambda done, total: told.append((done, total))
    )
    assert told[-1] == (40, 40)
    assert told == sorted(told)


#: a grid-wide barrier: the first thread of each block adds to p[1] and looks until all have
MEET = """
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    mov.u32 %r2, %nctaid.x;
    atom.add.release.gpu.global.u32 %r3, [%rd1+4], 1;
LOOK:
    ld.acquire.gpu.global.u32 %r3, [%rd1+4];
    setp.ne.u32 %p1, %r3, %r2;
    @%p1 bra LOOK;
DONE:
    bar.sync 0;
"""
#: the first block computes for long and then sets p[1], for which the others look
SLOW = """
    mov.u32 %r2, %ctaid.x;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra LOOK;
    mov.u32 %r3, 30000;
WORK:
    sub.u32 %r3, %r3, 1;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra WORK;
    st.volatile.global.u32 [%rd1+4], 8;
LOOK:
    ld.volatile.global.u32 %r3, [%rd1+4];
    setp.ne.u32 %p1, %r3, 8;
    @%p1 bra LOOK;
"""
LOOK_AT_SHARED = "L: ld.volatile.shared.b32 %r2, [full]; setp.ne.u32 %p1, %r2, 5; @%p1 bra L;"


@pytest.mark.parametrize("name", ["auto", "compiled", "vector", "reference"])
@pytest.mark.parametrize("body", [MEET, SLOW])
def test_a_poll_is_no_deadlock_while_others_may_change_memory(body, name, monkeypatch):
    monkeypatch.setattr(engine, "LANES", 32)  # a block a wave: many looks before the last starts
    monkeypatch.setattr(engine, "VAIN_POLLS", 1 << 14)
    array = np.zeros(2, "u4")
    Module(HEAD.replace("BODY", body))["k"].launch(8, 32, [array], engine=name)
    assert array.tolist() == [7, 8]


@pytest.mark.parametrize("name", ["auto", "compiled", "vector", "reference"])
@pytest.mark.parametrize(
    "body", [MEET.replace("nctaid.x", "ctaid.x"), LOOK_AT_SHARED, f"{INIT} {LOOK_AT_SHARED}"]
)
def test_a_poll_that_nobody_ends_is_a_deadlock(body, name, monkeypatch):
    monkeypatch.setattr(engine, "LANES", 32)
    monkeypatch.setattr(engine, "VAIN_POLLS", 1 << 12)
    monkeypatch.setattr(schedule, "VAIN_POLLS", 1 << 12)
    with pytest.raises(KernelError, match="memory that no thread") as caught:
        Module(HEAD.replace("BODY", body))["k"].launch(8, 32, [np.zeros(2, "u4")], engine=name)
    assert caught.value.kind == "deadlock"


def test_a_loop_that_waits_for_time_does_not_execute_all_of_it():
    body = """
    mov.u64 %rd2, %clock64;
LOOK:
    mov.u64 %rd3, %clock64;
    sub.u64 %rd3, %rd3, %rd2;
    setp.lt.u64 %p1, %rd3, 1000000000;
    @%p1 bra LOOK;
"""
    module = Module(HEAD.replace("BODY", body))
    counters = module["k"].launch(1, 32, [np.zeros(8, "u4")], engine="vector").counters
    assert counters["statements"] < 5_000
