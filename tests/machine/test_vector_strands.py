"""Loops that lanes leave at different times: strands send lanes over to the part that has left."""

from importlib.util import find_spec

import numpy as np
import pytest

from emulator import Module
from emulator.machine.vector.lanes import of_warps
from emulator.machine.vector.strand import WARP, Frame, Strand
from emulator.ptx.program import Program

#: how long a number takes to 1, what it meets on the way, and where it left: by a second exit, if
#: it meets a multiple of 40. The steps are in a loop of their own within a function.
COLLATZ = """
.version 9.0
.target sm_90a
.address_size 64
.func (.reg .u32 %to, .reg .u32 %most) walk(.reg .u32 %n, .reg .u32 %limit)
{
 .reg .pred %p<4>; .reg .b32 %r<6>;
 mov.u32 %to, %n; mov.u32 %most, %n; mov.u32 %r1, 0;
STEP:
 setp.eq.u32 %p1, %to, 1; @%p1 bra OUT;
 and.b32 %r2, %to, 1; setp.ne.u32 %p2, %r2, 0; shr.u32 %r3, %to, 1;
 @!%p2 bra HALF; mad.lo.u32 %r3, %to, 3, 1;
HALF:
 mov.u32 %to, %r3; max.u32 %most, %most, %to; add.u32 %r1, %r1, 1;
 setp.lt.u32 %p3, %r1, %limit; @%p3 bra STEP;
OUT:
 ret;
}
.visible .entry go(.param .u64 out)
{
 .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %d<4>;
 ld.param.u64 %d1, [out];
 mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r1, %r2, %r3, %r1;
 add.u32 %r4, %r1, 1; mov.u32 %r5, 0; mov.u32 %r6, 0; and.b32 %r12, %r1, 3; add.u32 %r12, %r12, 2;
LOOP:
 call (%r4, %r7), walk, (%r4, %r12);
 add.u32 %r5, %r5, 1; max.u32 %r6, %r6, %r7; rem.u32 %r8, %r4, 40;
 setp.eq.u32 %p2, %r8, 0; mov.u32 %r9, 7; @%p2 bra STORE;
 mov.u32 %r9, %r4; setp.ne.u32 %p1, %r4, 1; @%p1 bra LOOP;
STORE:
 mad.wide.u32 %d2, %r1, 16, %d1; st.global.v4.u32 [%d2], {%r5, %r6, %r9, %r12};
 ret;
}
"""
GRID, BLOCK = 3, 96


def run(engine="vector", **options):
    out = np.zeros((GRID * BLOCK, 4), np.uint32)
    report = Module(COLLATZ)["go"].launch(
        grid=GRID, block=BLOCK, args=[out], engine=engine, **options
    )
    return out, report


def walked(number, limit):
    """The same for one thread, in plain integers."""
    rounds = most = 0
    while True:
        rounds, steps = rounds + 1, 0
        most = max(most, number)
        while number != 1 and steps < limit:
            number, steps = number * 3 + 1 if number % 2 else number // 2, steps + 1
            most = max(most, number)
        if number % 40 == 0:
            return rounds, most, 7, limit
        if number == 1:
            return rounds, most, number, limit


@pytest.fixture(scope="module")
def expected():
    return np.array([walked(i + 1, i % 4 + 2) for i in range(GRID * BLOCK)], np.uint32)


needs_llvm = pytest.mark.skipif(not find_spec("llvmlite"), reason="needs llvmlite")
WAYS = [
    {}, {"check": True}, {"seed": 1}, {"seed": 2},
    pytest.param({"engine": "reference"}, marks=pytest.mark.slow),
    pytest.param({"engine": "compiled"}, marks=needs_llvm),
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_lanes_leave_loops_with_what_they_hold(expected, options):
    out, report = run(**options)
    assert (out == expected).all()
    assert not report.findings


def test_lanes_are_sent_and_the_counters_stay(expected, monkeypatch):
    sent, send = [], Strand.send
    monkeypatch.setattr(Strand, "send", lambda *given: sent.append(given) or send(*given))
    counters = run()[1].counters
    assert len(sent) > 20
    monkeypatch.setattr(Strand, "sibling_at", lambda *given: None)
    out, report = run()
    assert (out == expected).all()
    assert report.counters == counters


def test_words_of_full_warps_become_words_of_lanes():
    words = np.arange(2 * WARP * 3).reshape(2, WARP, 3)
    assert np.array_equal(of_warps(range(2 * WARP), words), words.reshape(-1, 3))


def test_a_slip_is_noticed(expected, monkeypatch):
    beside = Frame.beside

    def wrong(frame, chosen, live):
        made = beside(frame, chosen, live)
        made.registers = {i: np.roll(x, 1) for i, x in made.registers.items()}
        return made

    monkeypatch.setattr(Frame, "beside", wrong)
    assert (run()[0] != expected).any()


def test_what_a_function_returns_is_read_where_it_returns(expected, monkeypatch):
    monkeypatch.setattr(Program, "results", {})
    with pytest.raises(AssertionError):
        test_lanes_leave_loops_with_what_they_hold(expected, {"seed": 1})
