"""Statements whose text the engines share: what threads find, stated once more here.

A comparison of the engines cannot notice a mistake in a text of both.
"""

import numpy as np
import pytest

from emulator import KernelError, Module

ENGINES = ["vector", "reference", "compiled"]
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
KERNEL = """.visible .entry go(.param .u64 a, .param .u64 b) {{
    .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
    {declared}
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r0, %r1, %r2, %r3; ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
    mad.wide.u32 %rd2, %r0, {row}, %rd2;
    {body}
    ret;
}}
"""


def launch(engine, body, shape, grid=1, block=32, declared="", given=None, **options):
    """What the threads write, a row each of 32-bit words."""
    out = np.zeros(shape, np.uint32)
    text = HEAD + KERNEL.format(body=body, declared=declared, row=4 * shape[1])
    given = np.arange(256, dtype=np.uint32) if given is None else given
    Module(text)["go"].launch(grid, block, [given, out], engine=engine, **options)
    return out


# --- special registers ----------------------------------------------------------------------------

GRID, BLOCK, CLUSTER = (4, 6, 2), (5, 3, 3), (2, 3, 1)


def specials(block, thread):
    """The registers of the thread at coordinates in the block at coordinates, by name."""
    number = thread[0] + 5 * (thread[1] + 3 * thread[2])
    lane, inside = number % 32, [i % n for i, n in zip(block, CLUSTER, strict=True)]
    axes = {"tid": thread, "ntid": BLOCK, "ctaid": block, "nctaid": GRID, "cluster_nctaid": CLUSTER,
            "cluster_ctaid": inside, "clusterid": [block[0] // 2, block[1] // 3, block[2]],
            "nclusterid": (2, 2, 2)}  # fmt: skip
    found = {
        f"%{name}.{axis}": value
        for name, values in axes.items()
        for axis, value in zip("xyz", values, strict=True)
    }
    bits = [1 << i for i in range(32)]
    return found | {
        "%laneid": lane, "%warpid": number // 32, "%lanemask_eq": bits[lane],
        "%lanemask_lt": sum(bits[:lane]), "%lanemask_le": sum(bits[: lane + 1]),
        "%lanemask_gt": sum(bits[lane + 1 :]), "%lanemask_ge": sum(bits[lane:]),
        "%cluster_ctarank": inside[0] + 2 * inside[1], "%cluster_nctarank": 6,
        "%smid": (block[0] + 4 * (block[1] + 6 * block[2])) % 132, "%nsmid": 132, "%tid.w": 0,
        "%nwarpid": 64, "%gridid": 0, "%dynamic_smem_size": 64, "%total_smem_size": 128,
        "%reserved_smem_offset_end": 1024, "%aggr_smem_size": 1152,
    }  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_special_registers(engine):
    names = list(specials((0, 0, 0), (0, 0, 0)))
    body = (
        """mov.u32 %r4, %nctaid.x; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.z;
    mov.u32 %r7, %nctaid.y; mad.lo.u32 %r5, %r6, %r7, %r5; mad.lo.u32 %r4, %r5, %r4, %r1;
    mov.u32 %r5, %tid.y; mov.u32 %r6, %tid.z; mad.lo.u32 %r5, %r6, 3, %r5;
    mad.lo.u32 %r5, %r5, 5, %r3; mad.lo.u32 %r4, %r4, 45, %r5; ld.param.u64 %rd2, [b];
    mad.wide.u32 %rd2, %r4, """
        + f"{4 * len(names)}, %rd2;"
    )
    for i, name in enumerate(names):
        body += f"mov.u32 %r8, {name}; st.global.u32 [%rd2+{4 * i}], %r8;\n"
    out = launch(
        engine, body, (48 * 45, len(names)), GRID, BLOCK, cluster=CLUSTER, dynamic_shared=64
    )
    indexes = [list(np.ndindex(sizes[::-1])) for sizes in (GRID, BLOCK)]
    wanted = [
        list(specials(block[::-1], thread[::-1]).values())
        for block in indexes[0] for thread in indexes[1]
    ]  # fmt: skip
    assert out.tolist() == wanted


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_addresses_and_their_spaces(engine):
    """Addresses of each space made generic and back, and what each leads into."""
    declared = ".shared .align 8 .b8 room[64]; .local .align 8 .b8 mine[64];"
    body = """mov.u64 %rd3, room; cvta.shared.u64 %rd4, %rd3; mov.u64 %rd5, mine;
    cvta.local.u64 %rd6, %rd5; cvta.global.u64 %rd7, %rd1; mov.u64 %rd8, known;
    cvta.const.u64 %rd8, %rd8; cvta.to.shared.u64 %rd9, %rd4; cvta.to.local.u64 %rd10, %rd6;
    setp.eq.u64 %p1, %rd9, %rd3; selp.u32 %r8, 1, 0, %p1; st.global.u32 [%rd2], %r8;
    setp.eq.u64 %p1, %rd10, %rd5; selp.u32 %r8, 1, 0, %p1; st.global.u32 [%rd2+4], %r8;
    setp.eq.u64 %p1, %rd7, %rd1; selp.u32 %r8, 1, 0, %p1; st.global.u32 [%rd2+8], %r8;\n"""
    spaces = ("shared", "local", "global", "const", "shared::cta", "shared::cluster")
    for i, address in enumerate(("%rd4", "%rd6", "%rd7", "%rd8")):
        for j, space in enumerate(spaces):
            body += f"""isspacep.{space} %p1, {address}; selp.u32 %r8, 1, 0, %p1;
            st.global.u32 [%rd2+{12 + 4 * (len(spaces) * i + j)}], %r8;\n"""
    # Constants have addresses of global memory.
    wanted = [[1, 0, 0, 0, 1, 1], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0]]
    text = HEAD + ".const .align 8 .b32 known[4] = {1, 2, 3, 4};\n"
    out = np.zeros((64, 27), np.uint32)
    text += KERNEL.format(body=body, declared=declared, row=4 * 27)
    Module(text)["go"].launch(2, 32, [np.zeros(4, np.uint32), out], engine=engine)
    assert (out == [1, 1, 1, *(word for row in wanted for word in row)]).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("guard", ["", "@%p2 "])
def test_ranks_of_a_cluster(engine, guard):
    """mapa leads to the block of a rank, and getctarank and isspacep tell which."""
    body = f"""setp.lt.u32 %p2, %r3, 20; mov.u32 %r4, room; mad.lo.u32 %r4, %r3, 4, %r4;
    st.shared.u32 [%r4], %r0; and.b32 %r5, %r3, 3; mov.u32 %r6, %r4; cvt.u64.u32 %rd3, %r4;
    cvta.shared.u64 %rd3, %rd3; mov.u64 %rd4, %rd3; barrier.cluster.arrive; barrier.cluster.wait;
    {guard}mapa.shared::cluster.u32 %r6, %r4, %r5; {guard}mapa.u64 %rd4, %rd3, %r5;
    ld.shared::cluster.u32 %r7, [%r6]; ld.u32 %r8, [%rd4];
    getctarank.shared::cluster.u32 %r9, %r6; getctarank.u64 %r10, %rd4;
    isspacep.shared::cta %p1, %rd4; selp.u32 %r11, 1, 0, %p1;
    st.global.v4.u32 [%rd2], {{%r7, %r8, %r9, %r10}}; st.global.u32 [%rd2+16], %r11;
    barrier.cluster.arrive; barrier.cluster.wait;"""
    declared = ".shared .align 8 .b8 room[128];"
    out = launch(engine, body, (8 * 32, 8), 8, 32, declared, cluster=4)
    for number, (one, two, rank, same, own) in enumerate(out[:, :5].tolist()):
        block, lane = divmod(number, 32)
        mapped = lane & 3 if lane < 20 or not guard else 0
        # Without a guard the word was not mapped: an address of the block's own shared memory.
        there = block // 4 * 4 + mapped if lane < 20 or not guard else block
        assert (one, two) == (there * 32 + lane,) * 2
        assert (rank, same) == (there % 4,) * 2
        assert own == (there == block)


# --- cp.async -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ["early", "late"])
@pytest.mark.parametrize("last", ["16", "16, %r5", "16, %p1"])
def test_copies_of_a_part(engine, order, last):
    """Thread i copies 16 bytes, i % 17 of them, or none where i is odd; zeros stand behind."""
    body = f"""and.b32 %r4, %r3, 1; setp.ne.u32 %p1, %r4, 0; rem.u32 %r5, %r3, 17;
    mov.u32 %r6, room; mad.lo.u32 %r6, %r3, 16, %r6; mad.wide.u32 %rd3, %r3, 16, %rd1;
    cp.async.ca.shared.global [%r6], [%rd3], {last}; cp.async.commit_group; cp.async.wait_group 0;
    ld.shared.v4.u32 {{%r7, %r8, %r9, %r10}}, [%r6];
    st.global.v4.u32 [%rd2], {{%r7, %r8, %r9, %r10}};"""
    given = np.random.default_rng(1).integers(0, 256, (64, 16), np.uint8)
    out = launch(engine, body, (64, 4), 1, 64, ".shared .align 16 .b8 room[1024];", given,
                 async_order=order)  # fmt: skip
    wanted = given.copy()
    for i, row in enumerate(wanted):
        row[{"16": 16, "16, %r5": i % 17, "16, %p1": 0 if i % 2 else 16}[last] :] = 0
    assert (out.view(np.uint8) == wanted).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("noinc", "expected"), [("", 1), (".noinc", 33)])
def test_arrivals_behind_copies(engine, noinc, expected):
    """Without .noinc the arrival of a copy was not counted before."""
    body = f"""mov.u32 %r4, bar; setp.ne.u32 %p1, %r3, 0;
    @!%p1 mbarrier.init.shared.b64 [bar], {expected}; bar.sync 0;
    cp.async.mbarrier.arrive{noinc}.shared.b64 [bar]; bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; selp.u32 %r5, 1, 0, %p2;
    bar.sync 0; mov.b64 %rd3, 0; @!%p1 mbarrier.arrive.shared.b64 %rd3, [bar];
    mbarrier.pending_count.b64 %r6, %rd3; bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; selp.u32 %r7, 1, 0, %p2;
    st.global.v4.u32 [%rd2], {{%r5, %r6, %r7, %r0}};"""
    out = launch(engine, body, (32, 4), declared=".shared .align 8 .b64 bar;")
    assert out[:, 0].tolist() == [0] * 32
    assert out[0, 1] == 1
    assert out[:, 2].tolist() == [1] * 32


# --- barriers, phases and the stack ---------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES[:2])
@pytest.mark.parametrize(("where", "voted"), [("0", 64), ("2, 32", 32)])
def test_votes_at_a_barrier(engine, where, voted):
    """Threads below 3 vote true, then all, then none; a barrier for 32 is one warp's."""
    votes = "".join(
        f"bar.red.popc.u32 %r{4 * i + 4}, {where}, {p}; bar.red.and.pred %p4, {where}, {p};"
        f"bar.red.or.pred %p5, {where}, {p}; selp.u32 %r{4 * i + 5}, 1, 0, %p4;"
        f"selp.u32 %r{4 * i + 6}, 1, 0, %p5;"
        for i, p in enumerate(("%p1", "%p2", "!%p2"))
    )
    body = f"""setp.lt.u32 %p1, %r3, 3; setp.ne.u32 %p2, %r2, 0; setp.ge.u32 %p3, %r3, {voted};
    @%p3 bra end;
    {votes}
    st.global.v4.u32 [%rd2], {{%r4, %r5, %r6, %r8}};
    st.global.v4.u32 [%rd2+16], {{%r9, %r10, %r12, %r13}}; st.global.u32 [%rd2+32], %r14;
    end:"""
    out = launch(engine, body, (64, 12), block=64)
    wanted = [3, 0, 1, voted, 1, 1, 0, 0, 0, 0, 0, 0]
    assert (out[:voted] == wanted).all() and not out[voted:].any()


@pytest.mark.parametrize("engine", ENGINES)
def test_phases_of_an_mbarrier(engine):
    """The phase of parity 1 is over before the first arrival, that of parity 0 behind it."""
    tests = "".join(
        f"mbarrier.{verb}.parity.shared.b64 %p2, [bar], {parity}; selp.u32 %r{{}}, 1, 0, %p2;"
        for verb in ("test_wait", "try_wait") for parity in (0, 1)
    )  # fmt: skip
    before, after = (tests.format(*range(first, first + 4)) for first in (10, 14))
    body = f"""setp.ne.u32 %p1, %r3, 0; @!%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
    {before}
    bar.sync 0; @!%p1 mbarrier.arrive.shared.b64 _, [bar]; bar.sync 0;
    {after}
    st.global.v4.u32 [%rd2], {{%r10, %r11, %r12, %r13}};
    st.global.v4.u32 [%rd2+16], {{%r14, %r15, %r16, %r17}};"""
    out = launch(engine, body, (64, 8), block=64, declared=".shared .align 8 .b64 bar;")
    assert (out == [0, 1, 0, 1, 1, 0, 1, 0]).all()


@pytest.mark.parametrize("engine", ENGINES[:2])
def test_room_on_the_stack(engine):
    """Room starts at multiples of 8, or as it is asked for, and is free again behind a restore."""
    body = """stacksave.u64 %rd3; alloca.u64 %rd4, 20; alloca.u64 %rd5, 8, 64;
    stacksave.u64 %rd6; alloca.u64 %rd7, 4; stackrestore.u64 %rd3; alloca.u64 %rd8, 4;
    cvt.u32.u64 %r4, %rd4; cvt.u32.u64 %r5, %rd5; cvt.u32.u64 %r6, %rd6; cvt.u32.u64 %r7, %rd7;
    cvt.u32.u64 %r8, %rd8; st.global.v4.u32 [%rd2], {%r5, %r6, %r7, %r8};
    st.global.u32 [%rd2+16], %r4;"""
    out = launch(engine, body, (32, 8))
    assert (out == [64, 72, 72, 0, 0, 0, 0, 0]).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "body",
    [
        """setp.eq.u32 %p1, %r3, 5; selp.b64 %rd3, 0x7fffffffffffffff, 8, %p1;
    alloca.u64 %rd4, %rd3;""",
        """setp.eq.u32 %p1, %r3, 5; selp.b64 %rd3, 0xfffffffffffffff0, 8, %p1;
    stackrestore.u64 %rd3; alloca.u64 %rd4, 8;""",
    ],
    ids=["alloca", "stackrestore"],
)
def test_a_stack_without_end_is_an_error_of_its_lane(engine, body):
    with pytest.raises(KernelError, match=r"(?s)stack overflow.*thread \(5, 0, 0\)"):
        launch(engine, body, (32, 1))


@pytest.mark.parametrize("engine", ENGINES[:2])
def test_room_that_lanes_take_in_branches_is_theirs_behind_them(engine):
    body = """setp.lt.u32 %p1, %r3, 16; @%p1 bra FEW;
    alloca.u64 %rd3, 64; st.local.u32 [%rd3+32], %r3; ld.local.u32 %r5, [%rd3+32]; bra MEET;
FEW: alloca.u64 %rd3, 16; st.local.u32 [%rd3], %r3;
MEET: alloca.u64 %rd4, 64; mov.u32 %r4, 99; st.local.u32 [%rd4], %r4; st.local.u32 [%rd4+32], %r4;
    @%p1 ld.local.u32 %r5, [%rd3]; @!%p1 ld.local.u32 %r5, [%rd3+32];
    st.global.u32 [%rd2], %r5;"""
    assert (launch(engine, body, (32, 1))[:, 0] == np.arange(32)).all()


@pytest.mark.parametrize(("engine", "seed"), [*((x, None) for x in ENGINES), ("vector", 3)])
def test_each_lane_takes_as_much_room_as_it_asks_for(engine, seed):
    """Sizes that differ by lane, under a guard, in branches and in loops that lanes leave at
    different times; ends are saved and restored."""
    body = """setp.lt.u32 %p1, %r3, 9; and.b32 %r9, %r3, 3; setp.eq.u32 %p2, %r9, 1;
    alloca.u32 %r4, %r3, 4; @%p2 alloca.u32 %r5, 24; @!%p2 mov.u32 %r5, 1;
    stacksave.u32 %r12; @%p1 bra FEW; alloca.u32 %r6, 40; bra MEET; FEW: alloca.u32 %r6, %r3, 16;
MEET: mov.u32 %r7, 0;
NEXT: alloca.u32 %r8, 8; add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, %r9; @%p3 bra NEXT;
    @%p2 stackrestore.u32 %r12; alloca.u32 %r10, 4; stacksave.u32 %r11;
    st.global.v4.u32 [%rd2], {%r4, %r5, %r6, %r8};
    st.global.v4.u32 [%rd2+16], {%r10, %r11, %r12, %r7};"""
    wanted = []
    for lane in range(64):
        out, end = [0], lane

        def take(size, alignment=8, end=0):
            start = -(-end // alignment) * alignment
            return start, start + size

        start, saved = take(24, end=end) if lane & 3 == 1 else (1, end)
        out.append(start)
        start, end = take(*((lane, 16) if lane < 9 else (40,)), end=saved)
        out.append(start)
        for _ in range(max(1, lane & 3)):
            start, end = take(8, end=end)
        out.append(start)
        start, end = take(4, end=saved if lane & 3 == 1 else end)
        wanted.append([*out, start, end, saved, max(1, lane & 3)])
    assert launch(engine, body, (64, 8), block=64, seed=seed).tolist() == wanted


KEEPS = """
.func (.reg .b32 out) keeps(.reg .b32 x)
{ .local .b32 room[4]; st.local.u32 [room+4], x; WAIT ld.local.u32 out, [room+4]; ret; }
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_lanes_with_different_room_call_a_function(seed):
    """In other orders they are in it at the same time; where they wait there, that is refused."""
    body = """setp.lt.u32 %p1, %r3, 16; @%p1 bra MEET; alloca.u64 %rd3, 64; MEET:
    call (%r4), keeps, (%r3); st.global.u32 [%rd2], %r4;"""
    text = HEAD + KEEPS + KERNEL.format(body=body, declared="", row=4)
    out, given = np.zeros((32, 1), np.uint32), np.zeros(1, np.uint32)
    Module(text.replace("WAIT", ""))["go"].launch(1, 32, [given, out], seed=seed)
    assert (out[:, 0] == np.arange(32)).all()
    with pytest.raises(KernelError, match="took different room by alloca"):
        Module(text.replace("WAIT", "bar.warp.sync -1;"))["go"].launch(
            1, 32, [given, out], seed=seed
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_more_warps_come_than_a_barrier_is_for(engine):
    """Two warps complete it, the next two complete its next phase; the votes are those of two."""
    body = """setp.lt.u32 %p1, %r3, 40; bar.red.popc.u32 %r4, 1, 64, %p1;
    st.global.u32 [%rd2], %r4;"""
    out = launch(engine, body, (256, 1), block=128)
    assert out[:128, 0].tolist() == [40] * 64 + [0] * 64


# --- control --------------------------------------------------------------------------------------

CALLED = """
.func (.param .b32 out, .param .b64 other) both(.param .b64 x, .param .b32 n)
{ .reg .b64 %v<2>; .reg .b32 %n<2>; .reg .pred %q<2>; .local .align 4 .b8 room[12];
  ld.param.u64 %v0, [x]; ld.param.u32 %n0, [n]; st.local.u32 [room+8], %n0; add.u64 %v1, %v0, 5;
  st.param.u64 [other], %v1; setp.lt.u32 %q0, %n0, 8; st.param.u32 [out], 7; @%q0 ret;
  mov.u32 %n1, room; ld.local.u32 %n0, [%n1+8]; st.param.u32 [out], %n0; ret; }
.func (.reg .b32 out) first(.reg .b32 x) { mad.lo.u32 out, x, 3, 1; ret; }
.func (.reg .b32 out) second(.reg .b32 x) { .local .align 4 .b8 room[4]; mov.u32 out, room; ret; }
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("guard", ["", "@%p2 "])
def test_branches_calls_and_returns(engine, guard):
    """Thread i goes to target i % 3; callees take their own room, 16 bytes apart, and some lanes
    return early, or call another function."""
    body = f"""setp.ne.u32 %p2, %r3, 4; rem.u32 %r4, %r3, 3; mov.u32 %r5, 9;
    T: .branchtargets A, B, C; {guard}brx.idx %r4, T; bra MEET;
    A: mov.u32 %r5, 10; bra MEET; B: mov.u32 %r5, 11; bra MEET; C: mov.u32 %r5, 12;
    MEET: cvt.u64.u32 %rd3, %r3; mov.u32 %r6, 0; mov.u32 %r7, 0;
    {{ .param .b64 x; .param .b32 n; .param .b32 out; .param .b64 other;
      st.param.u64 [x], %rd3; st.param.u32 [n], %r3; {guard}call (out, other), both, (x, n);
      @!%p2 st.param.u32 [out], 0; @!%p2 st.param.u64 [other], 0;
      ld.param.u32 %r6, [out]; ld.param.u64 %rd4, [other]; cvt.u32.u64 %r7, %rd4; }}
    mov.u64 %rd5, first; mov.u64 %rd6, second; setp.lt.u32 %p1, %r3, 20;
    selp.b64 %rd5, %rd5, %rd6, %p1; P: .callprototype (.reg .b32 _) _ (.reg .b32 _);
    call (%r8), %rd5, (%r3), P; setp.eq.u32 %p3, %r3, 31; @%p3 exit;
    st.global.v4.u32 [%rd2], {{%r5, %r6, %r7, %r8}};"""
    text = HEAD + CALLED + KERNEL.format(body=body, declared=".local .b32 own;", row=16)
    out = np.zeros((32, 4), np.uint32)
    Module(text)["go"].launch(1, 32, [np.zeros(1, np.uint32), out], engine=engine)
    wanted = [
        [10 + i % 3, 7 if i < 8 else i, i + 5, 3 * i + 1 if i < 20 else 16] for i in range(32)
    ]
    wanted[31], wanted[4][:3] = [0] * 4, [9 if guard else 11, 0, 0]
    assert out.tolist() == wanted


# --- errors ---------------------------------------------------------------------------------------

WRONG = {
    "mbarrier.arrive.b64 _, [%rd3];": "address space",
    "mbarrier.init.b64 [%rd3], 1;": "address space",
    "cp.async.mbarrier.arrive.b64 [%rd3];": "address space",
    "mbarrier.init.shared.b64 [bar], %r4;": "mbarrier",
    "mbarrier.arrive.shared.b64 _, [bar], %r4;": "mbarrier",
    "cp.async.ca.shared.global [bar], [%rd1], 8, %r5;": "cp.async",
    "cp.async.ca.shared.global [bar+4], [%rd1], 8;": "misaligned",
    "cp.async.ca.shared.global [bar], [%rd3], 8;": "out of bounds",
    "mapa.shared::cluster.u32 %r6, %r4, %r5;": "cluster",
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("statement", WRONG)
def test_an_error_names_the_first_thread_that_executes_the_statement(engine, statement):
    body = f"""setp.ge.u32 %p1, %r3, 20; mov.u64 %rd3, 64; mov.u32 %r4, 0; mov.u32 %r5, 9;
    @%p1 {statement}"""
    with pytest.raises(KernelError) as caught:
        launch(engine, body, (32, 1), declared=".shared .align 8 .b64 bar;")
    assert (caught.value.kind, caught.value.threads) == (WRONG[statement], ((20, 0, 0),))
