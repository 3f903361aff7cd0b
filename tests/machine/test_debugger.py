"""The debugger: where a launch stops, what it shows there, and how it goes back."""

import gc
import pickle
import threading
from math import prod

import numpy as np
import pytest
from debugged import BRANCH, HEAD
from kernel_recordings import KERNELS, differing_bytes
from paths import CUDA

from emulator import Instruction, Kernel, KernelError, Module, OperandError, Warp


def debug(text=BRANCH, block=64, args=None, **options):
    args = [np.zeros(64, np.uint32), 7] if args is None else args
    return Module(text)["go"].debug(1, block, args, **options)


def test_steps_go_through_both_sides_of_a_branch():
    with debug() as d:
        stops = [d.stop, *(d.stepi() for _ in range(9))]
        assert [x.line.number for x in stops] == [8, 9, 10, 11, 12, 13, 14, 15, 16, 18]
        assert stops[6].statement == "@%p1 bra LOW;"
        assert [x.lanes for x in stops[7:]] == [tuple(range(16, 32))] * 2 + [tuple(range(16))]
        groups = d.groups().data
        assert [x["lanes"] for x in groups] == [list(range(16)), list(range(16, 32))]
        assert d.values("%r2") == [0] * 16 + list(range(116, 132))
        # The parameter by its name, lanes of the warp, and the type of the register.
        assert d.values("%r1 + n * (%tid.x >= 30)")[28:] == [28, 29, 37, 38]


def test_going_back_gives_the_state_of_before():
    with debug() as d:
        words = []
        for _ in range(10):
            words.append((d.stop, d.values("%r2"), d.values("%rd3")))
            d.stepi()
        for stop, *values in reversed(words):
            d.stepi(reverse=True)
            assert (d.stop, d.values("%r2"), d.values("%rd3")) == (stop, *values)
        assert d.go_to(8) == words[7][0]


def test_arrays_stay_until_the_launch_ends():
    array = np.zeros(64, np.uint32)
    with debug(args=[array, 7]) as d:
        d.break_at("ret")
        d.cont()
        assert d.memory("a", 5).data == [0, 3, 6, 9, 12] and not array.any()
        d.cont()  # of the other warp
        assert d.cont().ended and d.report.counters["threads"] == 64
        assert array.tolist() == [*range(0, 48, 3), *range(116, 164)]
        # Once more from the start, where the array held zeros.
        d.restart()
        assert d.memory("a", 5).data == [0] * 5
        d.delete(1)
        assert d.cont().ended
    left = np.zeros(64, np.uint32)
    with debug(args=[left, 7]) as d:
        d.until("ret")
    assert not left.any()


@pytest.mark.parametrize(
    ("where", "options", "line", "warp", "lanes"),
    [
        ("18", {}, 18, 0, range(16)),
        ("ptx:17", {}, 18, 0, range(16)),  # the next line with a statement
        ("st.global", {"condition": "%r1 == 40"}, 21, 1, range(32)),
        ("st.global", {"thread": 40}, 21, 1, range(32)),
        ("st.global", {"warp": 0}, 21, 0, range(32)),
        ("st", {"condition": "%r1 < 32", "quantifier": "all"}, 21, 0, range(32)),
        ("bar.sync", {"block": (0, 0, 0)}, 20, 0, range(32)),
        (None, {"condition": "$r2 == 116"}, 16, 0, range(16, 32)),
        ("go", {"warp": 1}, 8, 1, range(32)),
    ],
)
def test_breakpoints(where, options, line, warp, lanes):
    with debug() as d:
        d.break_at(where, **options)
        stop = d.cont()
        assert (stop.line.number, stop.warp, stop.lanes) == (line, warp, tuple(lanes))
        assert stop.reason.startswith("breakpoint 1")


def test_a_breakpoint_is_found_backward():
    with debug() as d:
        d.break_at("mul.wide")
        first, second = d.cont(), d.cont()
        assert (first.warp, second.warp) == (0, 1)
        assert d.cont().ended
        assert d.cont(reverse=True) == second and d.cont(reverse=True) == first
        assert d.cont(reverse=True).number == 1 and d.stopper(1).hits == 2


def test_a_watchpoint_stops_behind_the_write_and_before_it():
    with debug() as d:
        d.watch("a[3]")
        stop = d.cont()
        assert stop.reason == "watchpoint 1, a[3]: 0x00000000 -> 0x00000009"
        assert stop.statement == "ret;" and d.memory("a", 4).data == [0, 3, 6, 9]
        d.go_to(stop.number + 1)
        assert d.cont(reverse=True).statement == "st.global.u32 [%rd3], %r2;"
        assert d.memory("a", 4).data == [0] * 4
        d.restart()
        d.delete(1)
        d.watch("%r2")
        assert d.cont().line.number == 16 and d.cont().line.number == 20


def test_the_first_nan_is_caught_where_it_is_made():
    text = BRANCH.replace(
        "mul.lo.u32 %r2, %r1, 3;",
        """
    sub.u32 %r4, %r1, 7; cvt.rn.f32.s32 %f1, %r4; sqrt.rn.f32 %f2, %f1; add.f32 %f3, %f2, %f2;""",
    )
    with debug(text) as d:
        d.catch("nan")
        stop = d.cont()
        assert "sqrt.rn.f32 has made a NaN in thread (0, 0, 0)" in stop.reason
        assert stop.statement == "add.f32 %f3, %f2, %f2;"
        assert [x != x for x in d.values("%f2")[:16]] == [True] * 7 + [False] * 9
        assert d.cont().ended  # NaN of NaN is made of one
        assert d.cont(reverse=True).statement == "sqrt.rn.f32 %f2, %f1;"
        assert d.cont() == stop  # the statement that it stands at counts, too


def test_what_all_warps_wait_for():
    with debug() as d:
        d.focus(warp=1)
        assert d.stepi().warp == 1
        waits = {x["warp"]: x["waits"] for x in d.warps().data}
        assert waits[0].startswith("barrier 0") and waits[1] == "ready"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.break_at("mull.wide"), "no place 'mull.wide'.*nearest is .mul.wide"),
        (lambda d: d.break_at("ptx:99"), "the last line with statements is 22"),
        (lambda d: d.break_at("x.cu:1"), "no statement comes from a file 'x.cu'"),
        (lambda d: d.break_at("go", block=1), r"the block, of \(1, 1, 1\), .* is 0 … 0; got 1"),
        (lambda d: d.break_at("go", block="a"), "got 'a'"),
        (lambda d: d.break_at("go", thread=(0, 1)), "the thread along y is 0 … 0; got 1"),
        (lambda d: d.break_at("go", thread=1.5), "got 1.5"),
        (lambda d: d.break_at("go", warp=2), "the warp is 0 … 1; got 2"),
        (lambda d: d.break_at("go", quantifier="most"), "quantifier is 'any' or 'all'"),
        (lambda d: d.break_at("go", condition=5), "a str is needed; got 5"),
        (lambda d: d.watch("a", size=0), "is 1 or more; got 0"),
        (lambda d: d.stepi(0), "the number of steps is 1 or more; got 0"),
        (lambda d: d.stepi("2"), "got '2'"),
        (lambda d: d.values("%r77"), "no register '%r77'"),
        (lambda d: d.values("__import__('os')"), "an expression has registers"),
        (lambda d: d.values("%r1 +"), "is no expression"),
        (lambda d: d.values("1 << 100000"), "a shift is by"),
        (lambda d: d.values("1 % 0"), "by zero|modulo"),
        (lambda d: d.values("%clock"), "moves on when it is read"),
        (lambda d: d.memory("a", 65), "leave it"),
        (lambda d: d.memory("a", 1 << 20), "1 … 65,536"),
        (lambda d: d.memory("0x10"), "nothing lies at 0x10"),
        (lambda d: d.fragment("a"), "no matrix instruction"),
        (lambda d: d.focus(warp=2), "a block has 2 warps"),
        (lambda d: d.focus(block=3), "0 … 0; got 3"),
        (lambda d: d.finish(), "this is the kernel itself"),
        (lambda d: d.delete(4), "no breakpoint 4"),
        (lambda d: d.catch("nam"), "catch takes nan"),
        (lambda d: d.tile("a", 2, 2, "f23"), "no element type 'f23'"),
        (lambda d: d.tile("a", 2, 2, "f32", swizzle="12B"), "swizzle is"),
    ],
)
def test_mistakes_are_named(call, message):
    with debug() as d, pytest.raises(OperandError, match=message):
        call(d)
    assert d.stop.number == 1


def test_a_kernel_that_raises_is_looked_at_where_it_did():
    text = BRANCH.replace("st.global.u32 [%rd3]", "st.global.u32 [%rd3 + 200]")
    with debug(text) as d:
        stop = d.cont()
        assert stop.ended and isinstance(d.error, KernelError) and d.error.kind == "out of bounds"
        assert d.focused.warp == 0 and d.focused.lane == 14
        assert d.values("%r2")[14] == 42
        assert d.stepi(reverse=True).statement == "st.global.u32 [%rd3 + 200], %r2;"
        with pytest.raises(OperandError, match="the launch is over"):
            d.cont()
            d.cont()


WILD = BRANCH.replace("st.global.u32 [%rd3]", "st.global.u32 [%rd3 + 200]")


def failed(engine="auto", text=WILD, **options):
    array = np.zeros(64, np.uint32)
    with pytest.raises(KernelError) as caught:
        Module(text)["go"].launch(1, 64, [array, 7], engine=engine, **options)
    return caught.value, array


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_an_error_keeps_its_state(engine):
    error, array = failed(engine)
    with error.state as d:
        assert d.error == error and not array.any()
        assert d.value("%r2") == 42 and error.state is d
        assert d.stepi(reverse=True).statement == "st.global.u32 [%rd3 + 200], %r2;"
    assert not array.any()


def test_the_state_of_stop_at_is_behind_the_statement():
    text = BRANCH.replace(
        "mul.lo.u32 %r2, %r1, 3;", "mov.f32 %f1, 0fBF800000; sqrt.rn.f32 %f2, %f1;"
    )
    error, _ = failed(text=text, stop_at="nan")
    with error.state as d:
        assert d.stop.reason.startswith("catchpoint") and d.value("%f1") == -1


def test_an_error_without_a_launch_has_no_state():
    error, array = failed()
    array[3] = 1
    with pytest.raises(OperandError, match="a has changed since the launch failed"):
        assert error.state
    with pytest.raises(OperandError, match="keeps no launch"):
        assert pickle.loads(pickle.dumps(error)).state
    with pytest.raises(OperandError, match="keeps no launch"):
        assert KernelError("trap", "").state


WARP = """
    .reg .b32 %a<2>, %b<1>;  .reg .f32 %c<4>;  .reg .pred %p;  .shared .b32 slot[32];
    mov.b32 %b0, %laneid;
    setp.lt.u32 %p, %b0, 8;
    @%p add.u32 %a0, %a0, 5;
    mov.u32 %a1, slot;
    mad.lo.u32 %a1, %b0, 4, %a1;
    st.shared.u32 [%a1], %a0;
"""


@pytest.mark.parametrize("batch", [(), (2,)])
def test_statements_of_a_warp(batch):
    warp, plain = (Warp("sm_90a", batch=batch, shared_bytes=128) for _ in range(2))
    values = np.arange(32 * prod(batch)).reshape(*batch, 32)
    for each in (warp, plain):
        each.declare("b32", "%a0")
        each["%a0"] = values
    text = WARP.replace("%a<2>", "%a1")
    plain.run(text)
    with warp.debug(text) as d:
        d.break_at("st.shared")
        assert d.cont().statement == "st.shared.u32 [%a1], %a0;"
        assert d.values("%a0") == [*range(5, 13), *range(8, 32)]
        assert d.memory("slot", 3).data == [0, 0, 0]
        d.stepi(reverse=True)
        d.delete(1)
        assert (warp["%a0"] == values).all()
        assert d.cont().ended
        for name in ("%a0", "%a1", "%b0", "%p"):
            assert (warp[name] == plain[name]).all(), name
        assert (warp.shared == plain.shared).all()
        # Once more from what the registers held before.
        d.restart()
        assert d.value("%a0") == 0 and d.cont().ended
        assert (warp["%a0"] == plain["%a0"]).all()


def test_a_warpgroup_shows_fragments():
    ins = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    codes = np.arange(256).reshape(16, 16)
    words = ins.fragment("a").scatter(codes.astype("f2").view("u2"))
    warp = Warp("sm_90a")
    warp.declare("b32", *(f"%a{i}" for i in range(4)))
    warp.write("%a", words)
    text = """.reg .b32 %b<2>; .reg .f32 %d<4>;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%d0, %d1, %d2, %d3};"""
    with warp.debug(text) as d:
        assert d.fragment("a").data == codes.tolist()
        assert d.fragment("b").data == np.zeros((16, 8)).tolist()
        with pytest.raises(OperandError, match="has no operand 'e' in registers; it has d, a, b"):
            d.fragment("e")


def test_tiles_are_read_through_their_swizzle():
    warp = Warp("sm_90a", shared_bytes=1024)
    rows = np.arange(8 * 64, dtype="u2").reshape(8, 8, 8)
    for row in range(8):
        for chunk in range(8):
            place = row * 128 + (chunk ^ row) * 16
            warp.shared[place : place + 16] = rows[row, chunk].view("u1")
    with warp.debug(".reg .b32 %r; mov.b32 %r, 1;") as d:
        held = d.tile("shared:0", 8, 64, "u16", swizzle="128B").data
        assert held == rows.reshape(8, 64).tolist()
        assert d.tile("shared:0", 8, 64, "u16").data != held
        # A tile within the swizzled area: its address takes part.
        inner = d.tile("shared:128", 2, 8, "u16", stride=128, swizzle="128B").data
        assert inner == rows[1:3, 0].tolist()


DEADLOCK = (
    HEAD
    + """.visible .entry go(.param .u64 a, .param .u32 n)
{
 .reg .b32 %r<9>; .reg .pred %p;
 .shared .align 8 .b64 full[2];
 mov.u32 %r1, full;
 mbarrier.init.shared.b64 [%r1 + 8], 3;
 mbarrier.arrive.shared.b64 _, [%r1 + 8];
AGAIN:
 mbarrier.try_wait.parity.shared.b64 %p, [%r1 + 8], 0;
 @!%p bra AGAIN;
 ret;
}"""
)


def test_a_deadlock_shows_its_mbarrier():
    with debug(DEADLOCK, 1) as d:
        assert d.cont().ended and d.error.kind == "deadlock"
        (held,) = d.mbarriers().data
        assert held == {"block": (0, 0, 0), "name": "full[1]", "offset": 1032, "parity": 0,
                        "pending": 2, "transactions": 0, "expected": 3, "layout": 0,
                        "warps": [0]}  # fmt: skip
        assert "warp 0: parity 0" in str(d.mbarriers())
        assert d.warps().data[0]["waits"].startswith("mbarrier full[1], parity 0: 2 of 3 arrivals")
        assert d.stepi(reverse=True).statement.startswith("mbarrier.try_wait")
        assert "nobody" in str(d.mbarriers())


LATE = (
    HEAD
    + """.visible .entry go(.param .u64 a, .param .u32 n)
{
 .reg .b32 %r<9>; .reg .b64 %rd<3>;
 .shared .align 16 .b8 tile[512];
 ld.param.u64 %rd1, [a];
 mov.u32 %r1, tile;
 cp.async.ca.shared.global [%r1], [%rd1], 16;
 cp.async.commit_group;
 cp.async.wait_group 0;
 ret;
}"""
)


def test_pending_copies_are_shown_until_their_wait():
    with debug(LATE, 1, async_order="late") as d:
        d.until("cp.async.commit_group")
        assert d.pending().data == [["(0, 0, 0)", "threads 0", "cp.async", "group 0"]]
        assert d.memory("tile", 2, "b8", "x").rows[0][1:] == ("0xff", "0xff")
        d.until("ret")
        assert d.pending().data == []
    with debug(LATE, 1) as d:
        d.until("cp.async.commit_group")
        assert "take effect at their issue" in str(d.pending())


CALLS = (
    HEAD
    + """
.func (.param .b32 out) helper(.param .b32 in)
{
 .reg .b32 %x<3>;
 ld.param.u32 %x1, [in];
 add.u32 %x2, %x1, 1;
 st.param.b32 [out], %x2;
 ret;
}
.visible .entry go(.param .u64 a, .param .u32 n)
{
 .reg .b32 %r<9>; .reg .b64 %rd<3>;
 .param .b32 given; .param .b32 got;
 mov.u32 %r1, 41;
 st.param.b32 [given], %r1;
 call (got), helper, (given);
 ld.param.b32 %r2, [got];
 add.u32 %r3, %r2, 1;
 ret;
}"""
)


def test_calls_are_stepped_into_and_over_and_left():
    with debug(CALLS, 1) as d:
        assert d.until("call").line.number == 19
        into = d.step()
        assert into.line.number == 8 and len(d.backtrace().rows) == 2
        d.stepi()
        assert d.value("%x1") == 41
        assert d.finish().line.number == 20
        over = d.go_to(into.number - 1)
        assert over.line.number == 19 and d.next().line.number == 20
        assert d.next(reverse=True).line.number == 19
        d.go_to(into.number - 1)
        assert d.nexti().line.number == 20 and d.nexti(reverse=True).line.number == 19
        d.break_at("helper")
        assert d.next().reason.startswith("breakpoint 1")


def test_kernels_that_kernels_launch_are_stopped_in_too():
    log = np.zeros(64, "i4")
    with Module(CUDA / "launches_within.ptx")["order"].debug(1, 1, [log]) as d:
        d.catch("nan")
        first, inner = d.stop.statement, []
        while not (stop := d.stepi()).ended:
            name = d.player.launch.kernel.name
            if not inner or inner[-1][0] != name:
                inner.append((name, stop))
                d.memory("param_0", 2)
        assert len({name for name, _ in inner}) > 1 and "ended" in stop.reason
        assert log[:4].tolist() == [13, 1, 10, 11]
        # Back into a launched kernel, and to the start.
        name, stop = inner[-2]
        assert d.go_to(stop.number) == stop and d.player.launch.kernel.name == name
        assert d.restart().statement == first


def test_a_forgotten_debugger_ends_its_launch():
    def count():
        return sum(x.name == "debugged launch" for x in threading.enumerate())

    before = count()
    d = debug()
    d.break_at("bar.sync")
    d.watch("%r2")
    d.stepi(3)
    d.cont(reverse=True)
    assert count() == before + 1
    del d
    gc.collect()
    assert count() == before
    closed = debug()
    closed.close()
    with pytest.raises(OperandError, match="is over"):
        closed.stepi()
    assert count() == before


def test_a_recorded_kernel_ends_with_its_bytes(monkeypatch):
    seen = []

    def launch(kernel, *args, **options):
        del options["engine"]
        with kernel.debug(*args, **options) as d:
            for _ in range(3):
                seen.append(d.stepi())
            d.stepi(reverse=True)
            assert d.cont().ended
            return d.report

    monkeypatch.setattr(Kernel, "launch", launch)
    path = next(x for x in KERNELS if x.stem == "tri_softmax")
    assert set(differing_bytes(path, engine="reference")) == {0}
    assert len(seen) >= 3


USES = (
    HEAD
    + """.visible .entry go(.param .u64 a, .param .u64 b)
{
 .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
 .shared .align 16 .b32 tile[64];
 .shared .align 8 .b64 bar;
 .local .align 4 .b32 own[4];
 ld.param.u64 %rd1, [a];
 ld.param.u64 %rd4, [b];
 mov.u32 %r1, %tid.x;
 setp.eq.u32 %p1, %r1, 5;
 mul.wide.u32 %rd2, %r1, 16;
 add.s64 %rd3, %rd1, %rd2;
 mov.u32 %r6, tile;
 mad.lo.u32 %r6, %r1, 4, %r6;
 st.shared.u32 [tile+20], 7;
 st.local.u32 [own+4], %r1;
 @%p1 mbarrier.init.shared.b64 [bar], 1;
 ld.shared.u32 %r2, [%r6];
 @!%p1 ld.shared.u32 %r3, [tile+16];
 @%p1 st.shared.u32 [tile+20], 7;
 @%p1 atom.shared.add.u32 %r3, [tile+20], 1;
 @%p1 st.shared.u16 [tile+22], 0;
 @%p1 mbarrier.arrive.shared.b64 %rd5, [bar];
 @%p1 cp.async.ca.shared.global [tile+16], [%rd4], 16;
 cp.async.wait_all;
 ld.local.u32 %r4, [own+4];
 ld.global.u32 %r5, [%rd3+4];
 st.global.u32 [%rd4], %r2;
 ret;
}"""
)


def used(method, what, lane=5, **options):
    """The opcodes behind which a watchpoint stops, with its texts."""
    arrays = [np.arange(128, dtype=np.uint32), np.zeros(64, np.uint32)]
    with debug(USES, 32, arrays, **options) as d:
        d.focus(lane=lane)
        d.stepi(2)
        made = getattr(d, method)(what)
        found = []
        while not (stop := d.cont()).ended:
            opcode = d.locations.program.statements[d.player.pc - 1].instruction
            assert stop.reason.startswith(f"watchpoint {made.number}, {what}: ")
            found.append((str(opcode), stop.reason.partition(": ")[2]))
        # Backward, the same statements, before they execute.
        back = []
        while (stop := d.cont(reverse=True)).number > 1:
            back.insert(0, str(d.locations.program.statements[d.player.pc].instruction))
        assert back == [opcode for opcode, _ in found]
        return found


def test_reads_of_memory_are_watched():
    found = used("rwatch", "tile[5]")
    who = "in thread (5, 0, 0) of block (0, 0, 0)"
    assert found == [
        ("ld.shared.u32", f"read by ld.shared.u32 {who}, now 0x00000007"),
        ("atom.shared.add.u32", f"read by atom.shared.add.u32 {who}, now 0x00000008"),
    ]
    assert [x for x, _ in used("awatch", "tile[5]", async_order="early")] == [
        "st.shared.u32", "ld.shared.u32", "st.shared.u32", "atom.shared.add.u32", "st.shared.u16",
        "cp.async.ca.shared.global",
    ]  # fmt: skip
    assert "read and written by atom" in used("awatch", "tile[5]")[3][1]
    assert [x for x, _ in used("rwatch", "bar")] == [
        "mbarrier.init.shared.b64", "mbarrier.arrive.shared.b64",
    ]  # fmt: skip
    assert "cp.async.ca.shared.global" in [x for x, _ in used("rwatch", "b[3]")]
    ((opcode, text),) = used("rwatch", "a[21]")
    assert opcode == "ld.global.u32" and text.endswith(f"{who}, now 0x00000015")
    # Local memory is that of the lane in focus.
    ((opcode, text),) = used("rwatch", "local:4", lane=9)
    assert opcode == "ld.local.u32" and "thread (9, 0, 0)" in text
    assert used("rwatch", "a[22]") == [] and used("rwatch", "local:8") == []


def test_reads_of_registers_are_watched():
    assert [x for x, _ in used("rwatch", "%rd3")] == ["ld.global.u32"]
    assert [x for x, _ in used("awatch", "%rd3")] == ["add.s64", "ld.global.u32"]
    assert [x for x, _ in used("rwatch", "%r6")] == ["mad.lo.u32", "ld.shared.u32"]
    assert [x for x, _ in used("rwatch", "%r2")] == ["st.global.u32"]
    reads = used("rwatch", "%p1")
    assert len(reads) == 7 and "thread (0, 0, 0)" in reads[0][1]
    # A statement whose guard does not hold uses no operand.
    ((_, text),) = used("awatch", "%rd5")
    assert "written by mbarrier.arrive.shared.b64 in thread (5, 0, 0)" in text
    with debug() as d:
        d.focus(warp=1)
        d.rwatch("%r2")
        stop = d.cont()
        assert "st.global.u32 in thread (32, 0, 0)" in stop.reason and d.focused.warp == 1
        # The statement that comes next counts, too.
        d.restart()
        d.delete(1)
        d.until("ptx:12")
        d.rwatch("%rd1")
        assert "read by add.s64" in d.stepi().reason
        with pytest.raises(OperandError, match="no register"):
            d.rwatch("%r77")
