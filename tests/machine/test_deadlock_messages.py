"""Deadlocks at mbarriers: the mistake by name, and the same words from every engine."""

import numpy as np
import pytest

from emulator import KernelError, Module
from emulator.memory.mbarrier import Barrier, Change, advance_lanes, history, noted

TEXT = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
{
 .shared .align 128 .b8 tile[16384]; .shared .align 8 .b64 full[2];
 .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<4>;
 ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;
 @%p1 mbarrier.init.shared.b64 [full+8], COUNT;
 bar.sync 0;
 BODY
 ret;
}
"""
WAIT = "L: mbarrier.try_wait.parity.shared.b64 %p2, [full+8], PARITY; @!%p2 bra L;"
COPY = (
    "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full+8], EXPECTED; "
    "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[tile], [%rd1], 8192, [full+8];"
)
#: three phases end, by one arrival each
PHASES = (
    "mov.u32 %r3, 0; LOOP: @%p1 mbarrier.arrive.shared.b64 _, [full+8]; bar.sync 0; "
    "add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 3; @%p3 bra LOOP; "
)
#: 32 arrivals of one statement end 10 phases of 3, and are 2 of the next
AT_ONCE = "mbarrier.arrive.shared.b64 _, [full+8]; "
CASES = {
    "too many bytes": (
        COPY.replace("EXPECTED", "4096") + WAIT, 1, 0,
        "parity 0: 0 of 1 arrivals are outstanding; the phase expects 4,096 bytes, its copies "
        "bring 8,192",
    ),
    "too few bytes": (
        COPY.replace("EXPECTED", "16384") + WAIT, 1, 0,
        "0 of 1 arrivals and 8,192 bytes are outstanding; the phase expects 16,384 bytes, its "
        "copies have brought 8,192",
    ),
    "parity": (
        PHASES + WAIT, 1, 1,
        "parity 1: 1 of 1 arrivals and 0 bytes are outstanding; the barrier is in phase 3, counted "
        "from 0, and parity 1 asks for the end of this phase; phase 2 is over, and a wait for it "
        "asks for parity 0",
    ),
    "phases within one statement": (
        AT_ONCE + WAIT, 3, 0,
        "1 of 3 arrivals and 0 bytes are outstanding; the barrier is in phase 10, counted from 0, "
        "and parity 0 asks for the end of this phase\n",
    ),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_every_engine_names_the_mistake(case):
    body, count, parity, said = CASES[case]
    text = TEXT.replace("BODY", body).replace("COUNT", str(count)).replace("PARITY", str(parity))
    reasons = set()
    for engine in ("reference", "vector", "compiled", "auto"):
        with pytest.raises(KernelError) as caught:
            Module(text)["k"].launch(1, 32, [np.zeros(4096, "u4")], engine=engine)
        reasons.add(caught.value.reason + "\n")
    assert len(reasons) == 1
    assert said in reasons.pop()


def test_blocks_that_wait_alike_share_a_row_which_names_ended_warps():
    """Every engine; the first warp waits, the second and the third have ended."""
    wait = f"setp.ge.u32 %p3, %r1, 32; @%p3 ret; {WAIT}"
    text = TEXT.replace("BODY", wait).replace("COUNT", "1").replace("PARITY", "0")
    row = (
        "blocks (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0) and 1 more, warp 0 (32 threads, 0 to "
        "31) at line 11: mbarrier full[1], parity 0: 1 of 1 arrivals and 0 bytes are outstanding; "
        "warps 1-2 have ended"
    )
    for engine in ("reference", "vector", "compiled"):
        with pytest.raises(KernelError) as caught:
            Module(text)["k"].launch(5, 96, [np.zeros(4096, "u4")], engine=engine)
        assert caught.value.reason.split("\n  ")[1:] == [row]


def test_a_launch_without_the_dynamic_memory_that_its_kernel_has():
    text = TEXT.split(".visible")[0] + (
        ".extern .shared .b8 room[]; .visible .entry k() { .reg .b64 %a; mov.u64 %a, room; "
        "st.shared.u32 [%a+4096], 1; ret; }"
    )
    for engine in ("reference", "vector"):
        with pytest.raises(KernelError, match="; room is dynamic shared memory, of which dyn"):
            Module(text)["k"].launch(1, 1, [], engine=engine)
        with pytest.raises(KernelError) as caught:
            Module(text)["k"].launch(1, 1, [], engine=engine, dynamic_shared=2)
        assert "dynamic" not in str(caught.value)


@pytest.mark.parametrize("lanes", [5, 40])
def test_the_ledger_of_many_lanes_is_that_of_one_after_the_other(lanes):
    """Few lanes and many go two ways; several barriers, and phases that end within."""
    rng = np.random.default_rng(lanes)
    for _ in range(50):
        barriers = rng.integers(0, 3, lanes)
        counts = rng.integers(1, 4, 3)
        added = rng.integers(0, 2, lanes) * 16 * rng.integers(0, 2)
        words = np.array([Barrier.init(int(x)).encode() for x in counts], np.uint64)
        ledger = np.zeros(3, np.uint64)
        advance_lanes(words, barriers, Change(1, 0, added), ledger)
        want, held = [0, 0, 0], [Barrier.init(int(x)) for x in counts]
        for at, more in zip(barriers.tolist(), added.tolist(), strict=True):
            after = held[at].after(Change(1, 0, more))
            want[at] = noted(want[at], after.parity != held[at].parity, more)
            held[at] = after
        assert ledger.tolist() == want


def test_a_ledger_entry():
    entry = noted(noted(noted(0, False, 64), False, -32), False, 16)
    assert history(entry) == (0, 80)
    assert history(noted(noted(entry, True, 0), False, 8)) == (1, 8)
