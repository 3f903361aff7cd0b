"""Planted errors: all engines say the same kind, statement, block and threads, if only one
statement is at fault."""

import numpy as np
import pytest
from sweeps import swept

from emulator import KernelError, Module

TEXT = """.version 9.5
.target sm_90a
.address_size 64
.func deep() { .local .b8 held[64]; call deep, (); ret; }
.visible .entry go(.param .u64 a, .param .u64 b)
{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<20>; .reg .f32 %f<9>;
.shared .align 128 .b8 room[512]; .local .align 8 .b8 mine[64];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r0, %r1, %r2, %r3;
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; mad.wide.u32 %d4, %r0, 4, %d2; mov.u32 %r7, room;
cvt.u64.u32 %d6, %r7; mov.u64 %d7, 0; mov.u64 %d8, 0x123456789; mov.u64 %d9, 77; mov.u32 %r9, 16;
mov.u32 %r8, 0;
and.b32 %r10, %r3, 3;
BODY
ret;
}
"""
#: the statement that is at fault, without its guard
ONE_THREAD = {
    "read behind the end": "ld.global.u32 %r5, [%d1+4096];",
    "write behind the end": "st.global.u32 [%d2+4096], %r0;",
    "before the start": "ld.global.u32 %r5, [%d1+-4];",
    "null": "ld.global.u32 %r5, [%d7];",
    "misaligned": "st.global.u32 [%d4+2], %r0;",
    "misaligned vector": "ld.global.v4.u32 {%r5,%r6,%r8,%r11}, [%d1+4];",
    "behind shared": "st.shared.u32 [%r7+65536], %r0;",
    "misaligned in shared": "ld.shared.u32 %r5, [%r7+1];",
    "behind local": "st.local.u32 [mine+16777216], %r0;",
    "misaligned in local": "st.local.u64 [mine+4], %d1;",
    "global as shared": "ld.shared.u32 %r5, [%d1];",
    "shared as global": "ld.global.u32 %r5, [%d6];",
    "foreign": "ld.u32 %r5, [%d8];",
    "atomic": "atom.global.add.u32 %r5, [%d1+8192], 1;",
    "misaligned atomic": "red.global.add.u64 [%d1+4], %d1;",
    "trap": "trap;",
    "brkpt": "brkpt;",
    "pointer": "call %d9, (), PROTOTYPE;",
    "target": "brx.idx %r9, TABLE;",
    "stack": "call deep, ();",
    "count of mbarrier": "mbarrier.init.shared.b64 [room], %r8;",
    "no mbarrier": "mbarrier.arrive.shared.b64 _, [room+256];",
    "arrivals": "mbarrier.arrive.shared.b64 _, [room+256], %r8;",
    "misaligned mbarrier": "mbarrier.init.shared.b64 [room+4], 3;",
    "mbarrier behind shared": "mbarrier.init.shared.b64 [room+65536], 3;",
    "misaligned copy": "cp.async.ca.shared.global [%r7], [%d1+2], 4;",
    "copy behind the end": "cp.async.ca.shared.global [%r7], [%d1+32768], 4;",
    "size of a copy": "cp.async.ca.shared.global [%r7], [%d1], 4, %r9;",
    "rank": "mapa.shared::cluster.u32 %r5, %r7, 9;",
    "number of a barrier": "barrier.sync %r9;",
    "count of a barrier": "barrier.sync 1, %r9;",
    "membermask": "shfl.sync.idx.b32 %r5, %r3, 0, 31, 0;",
    "set of rows": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r3+1];",
}
NAMES = "PROTOTYPE: .callprototype _ (); TABLE: .branchtargets OVER;\n"
#: who executes the statement
WHERE = {
    "all": NAMES + "{}\nOVER:",
    "guarded": NAMES + "setp.eq.u32 %p1, %r3, 37; @%p1 {}\nOVER:",
    "one": NAMES + "setp.ne.u32 %p1, %r3, 37; @%p1 bra OVER; {}\nOVER:",
    "some": NAMES + "setp.ne.u32 %p1, %r10, 2; @%p1 bra OVER; {}\nOVER:",
    "second warp": NAMES + "setp.lt.u32 %p1, %r3, 40; @%p1 bra OVER; {}\nOVER:",
    "second block": NAMES + "setp.ne.u32 %p1, %r1, 1; @%p1 bra OVER; {}\nOVER:",
    "between barriers": NAMES + "bar.sync 0; setp.le.u32 %p1, %r3, 33; @%p1 bra OVER; {}\n"
    "OVER: bar.sync 0;",
    "after a barrier": NAMES + "bar.sync 0; {}\nOVER:",
    "after a barrier of the cluster": NAMES + "barrier.cluster.arrive; barrier.cluster.wait; {}\n"
    "OVER:",
    "after the end of others": NAMES + "setp.ge.u32 %p1, %r3, 64; @%p1 ret; bar.sync 0; {}\nOVER:",
}  # fmt: skip
OTHERS = {
    "barrier": "setp.lt.u32 %p1, %r3, 32; @%p1 bra L; barrier.sync 2, 64; L: barrier.sync 3, 64;",
    "mbarrier": "mbarrier.init.shared.b64 [room+8], 5; bar.sync 0; "
    "L: mbarrier.try_wait.parity.shared.b64 %p1, [room+8], 0; @!%p1 bra L;",
    "mbarrier for some": "mbarrier.init.shared.b64 [room+8], 5; setp.lt.u32 %p2, %r3, 40; "
    "@%p2 bra END; L: mbarrier.try_wait.parity.shared.b64 %p1, [room+8], 0; @!%p1 bra L; END:",
    "cluster": "setp.lt.u32 %p1, %r3, 32; @%p1 bra L; barrier.cluster.arrive; "
    "barrier.cluster.wait; L: barrier.sync 1, 64;",
    "lanes": "setp.lt.u32 %p1, %r3, 2; @%p1 bra L; bar.warp.sync -1; L: barrier.sync 1, 64;",
    "memory": "L: ld.volatile.global.u32 %r5, [%d4]; setp.eq.u32 %p2, %r5, 0; @%p2 bra L;",
    "shared memory": "st.shared.u32 [%r7], 0; bar.sync 0; "
    "L: ld.volatile.shared.u32 %r5, [%r7]; setp.eq.u32 %p2, %r5, 0; @%p2 bra L;",
    "shuffle": "setp.lt.u32 %p1, %r3, 40; @%p1 bra L; shfl.sync.idx.b32 %r5, %r3, 0, 31, -1; "
    "L: bar.sync 0;",
    "divergent barrier": "and.b32 %r8, %r3, 1; setp.eq.u32 %p1, %r8, 1; @%p1 bra L; "
    "barrier.sync 1; bra M; L: barrier.sync 2; M:",
    "too few arrive": "setp.lt.u32 %p1, %r3, 32; @%p1 bra L; barrier.arrive 1, 96; bra M; "
    "L: barrier.sync 1, 96; M:",
    "two arrivals": "barrier.cluster.arrive; setp.lt.u32 %p1, %r3, 45; @%p1 bra L; "
    "barrier.cluster.arrive; L: barrier.cluster.wait;",
    "no arrival": "setp.lt.u32 %p1, %r3, 45; @%p1 bra L; barrier.cluster.wait; L:",
    "half a warp": "setp.lt.u32 %p1, %r3, 45; @%p1 ret; "
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r7];",
    "one lane less": "setp.eq.u32 %p1, %r3, 45; @%p1 ret; "
    "movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r5;",
    "more arrivals": "mbarrier.init.shared.b64 [room], 2; bar.sync 0; setp.lt.u32 %p1, %r3, 50; "
    "@%p1 bra L; mbarrier.arrive.shared.b64 _, [room], 3; L:",
    "step limit": "setp.ne.u32 %p2, %r3, 37; @%p2 bra END; LOOP: add.u32 %r4, %r4, 1; "
    "setp.ge.u32 %p1, %r4, 0; @%p1 bra LOOP; END:",
    "guarded target": "T: .branchtargets L; and.b32 %r8, %r3, 7; setp.gt.u32 %p1, %r8, 5; "
    "@%p1 brx.idx %r8, T; L:",
    "pointers": "cvt.u64.u32 %d5, %r3; add.u64 %d5, %d5, 99; T: .callprototype _ (); "
    "call %d5, (), T;",
}  # fmt: skip
CASES = {f"{name}, {where}": WHERE[where].format(ONE_THREAD[name])
         for name in ONE_THREAD for where in WHERE}  # fmt: skip
#: the guard leaves lanes out that a warp needs, or the lanes of a warp wait for each other first
CASES.pop("set of rows, between barriers")
_NULL, _ODD = ONE_THREAD["null"], ONE_THREAD["misaligned"]
#: two statements at fault: which one is met first depends on the order of warps
SEVERAL = {
    "a later one in the first warp": f"setp.lt.u32 %p1, %r3, 32; @%p1 bra L; {_NULL} L: {_ODD}",
    "a later one in the first block": f"setp.eq.u32 %p1, %r1, 1; @%p1 {_NULL} {_ODD}",
    "a later turn of a loop": "shr.u32 %r8, %r3, 5; sub.u32 %r8, 9, %r8; L: sub.u32 %r8, %r8, 1; "
    f"setp.eq.u32 %p1, %r8, 0; @%p1 {_NULL} bra L;",
    "in a call": f"setp.ge.u32 %p1, %r3, 32; @%p1 {_NULL} call deep, ();",
}
FAST = ("trap", "null", "no mbarrier", "misaligned copy", "pointer")


def error(body, engine):
    """What an engine says of a kernel; None where it runs to its end."""
    arrays = [np.zeros(256, "u4"), np.zeros(256, "u4")]
    limit = 20_000 if "LOOP" in body else None
    try:
        Module(TEXT.replace("BODY", body))["go"].launch(
            2, 64, arrays, engine=engine, step_limit=limit
        )
    except KernelError as error:
        return error.kind, error.line, error.block, error.threads
    return None


def check(body):
    reference = error(body, "reference")
    assert reference is not None and reference[3]
    assert error(body, "vector") == error(body, "compiled") == reference
    return reference


@pytest.mark.parametrize("name", FAST)
def test_one_thread(name):
    for where in ("guarded", "second warp"):
        *_, threads = check(CASES[f"{name}, {where}"])
        assert threads == ((37 if where == "guarded" else 40, 0, 0),)


@pytest.mark.slow
@swept(CASES)
def test_each_error(name):
    check(CASES[name])


def test_a_second_arrival_in_the_first_phase():
    assert check(OTHERS["two arrivals"])[0] == "cluster barrier"


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_deadlocks_and_others(name):
    check(OTHERS[name])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("body", SEVERAL.values(), ids=SEVERAL)
def test_several_statements_at_fault(body):
    """The reference engine names the first warp, the others the statement that is met first."""
    _, _, block, threads = error(body, "reference")
    others = error(body, "vector")
    assert (block, threads) == ((0, 0, 0), ((0, 0, 0),))
    assert others == error(body, "compiled") and others[0] == "out of bounds"
    assert others[2:] in (((0, 0, 0), ((32, 0, 0),)), ((1, 0, 0), ((0, 0, 0),)))


def test_a_warp_that_fails_as_a_whole():
    *_, threads = check(OTHERS["half a warp"])
    assert threads == tuple((i, 0, 0) for i in range(45, 64))


@pytest.mark.parametrize("engine", ["reference", "vector", "compiled"])
@pytest.mark.parametrize(
    "body",
    [
        # lanes that the guard leaves out hold an index past the table, an address of no barrier
        "T: .branchtargets L, L; setp.lt.u32 %p1, %r10, 2; @%p1 brx.idx %r10, T; L:",
        "mbarrier.init.shared.b64 [room+8], 1; mov.u32 %r11, 0x7fffffff; setp.eq.u32 %p1, %r3, 0; "
        "@%p1 mov.u32 %r11, %r7; @%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 "
        "[%r7], 5, [%r11+8];",
        "mbarrier.init.shared.b64 [room+8], 1; mov.u32 %r11, 0x7fffffff; setp.eq.u32 %p1, %r3, 0; "
        "@%p1 mov.u32 %r11, %r7; @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx"
        "::bytes [room+16], [%d1], 16, [%r11+8];",
    ],
)
def test_lanes_that_a_guard_leaves_out_fail_nowhere(engine, body):
    assert error(body, engine) is None
