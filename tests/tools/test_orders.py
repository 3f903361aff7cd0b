"""Other orders: what depends on them is found, what does not is the same in all."""

import json

import numpy as np
import pytest
from kernel_recordings import KERNELS, differing_bytes

from emulator import EmulatorError, KernelError, Memory, Module, check_order
from emulator.machine.vector.schedule import Schedule

pytestmark = pytest.mark.sampled(4)

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
START = """
    .reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %rd<8>; .reg .f32 %f<8>;
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %rd1, %r3, 4;
"""


def kernel(body, declared=""):
    text = f"{HEAD}{declared}.visible .entry k(.param .u64 out)\n{{{START}{body} ret;\n}}"
    return Module(text)["k"]


#: 2**20 + 1/1 + 1/2 + …: what is small is lost once the sum is large
FLOAT_SUM = kernel("""
    cvt.rn.f32.u32 %f0, %r3; rcp.approx.f32 %f0, %f0; setp.eq.u32 %p0, %r3, 0;
    @%p0 mov.f32 %f0, 0f49800000; red.global.add.f32 [%rd0], %f0;""")
INTEGER_SUM = kernel("red.global.add.u32 [%rd0], %r3;")
#: every thread writes its number to the same place
SAME_PLACE = kernel("st.global.u32 [%rd0+4], %r3;")
#: warp 1 reads what warp 0 writes to shared memory without a barrier
RACE = kernel("""
    .shared .align 4 .b32 box; setp.lt.u32 %p0, %r0, 32;
    @%p0 bra WRITE; ld.shared.u32 %r4, [box]; add.u64 %rd1, %rd0, %rd1;
    st.global.u32 [%rd1], %r4; bra DONE;
WRITE: st.shared.u32 [box], 77;
DONE:""")
WITH_BARRIER = kernel("""
    .shared .align 4 .b32 box; setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [box], 77;
    bar.sync 0; ld.shared.u32 %r4, [box]; add.u64 %rd1, %rd0, %rd1; st.global.u32 [%rd1], %r4;""")
#: the sides of a branch in one warp write one place
SIDES = kernel("""
    and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 0; @%p0 bra EVEN; st.global.u32 [%rd0], 1; bra DONE;
EVEN: st.global.u32 [%rd0], 2;
DONE:""")
#: tickets: which thread gets which number
TICKETS = kernel("""
    atom.global.add.u32 %r4, [%rd0], 1; add.u64 %rd1, %rd0, %rd1; st.global.u32 [%rd1+4], %r4;""")


@pytest.mark.parametrize(
    "kernel, grid, block, size, first",
    [
        (FLOAT_SUM, 4, 64, 4, (0,)), (SAME_PLACE, 4, 64, 4, (1,)), (SAME_PLACE, 1, 32, 4, (1,)),
        (SAME_PLACE, 64, 1, 4, (1,)), (RACE, 1, 64, 64, (32,)), (SIDES, 1, 32, 4, (0,)),
        (TICKETS, 1, 32, 64, (1,)), (TICKETS, 32, 1, 64, (1,)), (TICKETS, 1, 1024, 1025, (1,)),
    ],
)  # fmt: skip
def test_what_depends_on_the_order_is_found(kernel, grid, block, size, first):
    out = np.zeros(size, "u4")
    report = check_order(kernel, grid, block, {"out": out}, seeds=8)
    assert report.code == 1
    (found,) = report.arrays
    assert found.name == "out" and found.first >= first and len(found.seeds) > 0
    assert f"out: {int(found.differs.sum()):,} of {size:,} elements" in report.text()


@pytest.mark.parametrize("kernel", [INTEGER_SUM, WITH_BARRIER])
def test_what_does_not_depend_on_it(kernel):
    out = np.zeros(512, "u4")
    report = check_order(kernel, 4, 128, [out], seeds=12)
    assert report.code == 0 and report.arrays == []
    assert report.text() == "k: 12 other orders give every byte of out alike"
    again = np.zeros(512, "u4")
    kernel.launch(4, 128, [again])
    assert (out == again).all()


def test_a_seed_is_an_order():
    """The same seed gives the same bytes; different seeds give many."""
    found = []
    for seed in (*range(6), *range(6)):
        out = np.zeros(1025, "u4")
        TICKETS.launch(8, 128, [out], seed=seed)
        assert sorted(out[1:]) == list(range(1024))
        found.append(out.tobytes())
    assert found[:6] == found[6:] and len(set(found)) == 6


def test_without_a_seed_order_is_ascending():
    out = np.zeros(1025, "u4")
    TICKETS.launch(8, 128, [out])
    assert (out[1:] == np.arange(1024)).all()


def test_places_runs_and_values():
    # Threads 3, 4, 5 and 9 draw tickets; nobody else writes.
    body = """
    setp.eq.u32 %p0, %r0, 9; setp.ge.u32 %p1, %r0, 3; setp.le.and.u32 %p1, %r0, 5, %p1;
    or.pred %p0, %p0, %p1; @!%p0 bra DONE;
    atom.global.add.u32 %r4, [%rd0], 1; add.u64 %rd1, %rd0, %rd1; st.global.u32 [%rd1+4], %r4;
DONE:"""
    out = np.zeros((4, 8), "u4")
    report = check_order(kernel(body), 1, 32, {"out": out}, seeds=list(range(40)))
    (found,) = report.arrays
    assert found.runs == [(4, 6), (10, 10)] and found.first == (0, 4)
    text = report.text()
    assert "out[0][4] … out[0][6], out[1][2]\n" in text and "seeds 0, " in text
    assert out.reshape(-1)[[4, 5, 6, 10]].tolist() == [0, 1, 2, 3]
    data = json.loads(json.dumps(report.data))
    assert data["arrays"][0]["runs"] == [[4, 6], [10, 10]]
    assert "<pre>" in report.html()


def test_variables_and_mapped_memory_are_compared():
    declared = ".visible .global .u32 last = 5; .visible .global .u32 calls = 0;\n"
    found = kernel("st.global.u32 [last], %r3; red.global.add.u32 [calls], 1;"
                   "ld.global.u64 %rd0, [%rd0]; st.global.u32 [%rd0], %r3;", declared)  # fmt: skip
    memory, mapped = Memory(), np.zeros(1, "u4")
    memory.map(0x7000_0000, mapped, "mapped")
    pointers = np.array([0x7000_0000], "u8")
    report = check_order(found, 4, 64, [pointers], memory=memory)
    assert [x.name for x in report.arrays] == ["mapped", "last"]
    # The lowest lane of a warp wins, and the last warp is the eighth.
    assert found.module.variable("last").view("u4")[0] == 224 == mapped[0]
    # Launches of other orders leave nothing behind.
    assert found.module.variable("calls").view("u4")[0] == 256


def test_a_launch_that_fails_in_some_orders():
    body = "atom.global.add.u32 %r4, [%rd0], 1; setp.ne.u32 %p0, %r4, %r3; @%p0 trap;"
    report = check_order(kernel(body), 1, 64, {"out": np.zeros(1, "u4")})
    assert report.code == 1 and len(report.failures) >= 6 and not report.arrays
    assert "seed 0: the launch fails\n  trap: trap was executed" in report.text()
    with pytest.raises(KernelError, match="trap"):
        check_order(kernel("trap;"), 1, 1, [np.zeros(1, "u4")])


@pytest.mark.parametrize("seeds", [0, -1, True, "8", [], [-1], [1.5], None, 10**9])
def test_seeds_that_are_none(seeds):
    with pytest.raises(EmulatorError, match=r"seeds? is"):
        check_order(INTEGER_SUM, 1, 1, [np.zeros(1, "u4")], seeds=seeds)


def test_other_mistakes_of_callers():
    with pytest.raises(EmulatorError, match="a kernel is module"):
        check_order("k", 1, 1)
    with pytest.raises(EmulatorError, match="seeds="):
        check_order(INTEGER_SUM, 1, 1, [np.zeros(1, "u4")], seed=3)
    with pytest.raises(EmulatorError, match="one order of warps alone"):
        INTEGER_SUM.launch(1, 1, [np.zeros(1, "u4")], seed=3, engine="reference")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", [0, 1])
def test_recorded_kernels_have_their_bytes_in_every_order(path, seed):
    assert not any(differing_bytes(path, seed=seed))


@pytest.mark.parametrize("clusters", [1, 2, 3, 12, 97, 1 << 20, (1 << 40) + 1])
def test_every_block_starts_once(clusters):
    for seed in range(4):
        schedule = Schedule(seed, clusters)
        most = min(clusters, 1000)
        blocks = schedule.blocks(np.arange(2 * most), 2)
        pairs = blocks.reshape(-1, 2)
        assert (pairs[:, 1] == pairs[:, 0] + 1).all() and (pairs[:, 0] % 2 == 0).all()
        assert len(set(blocks.tolist())) == 2 * most
        assert blocks.min() >= 0 and blocks.max() < 2 * clusters


def test_an_empty_array_is_compared():
    empty = kernel("ret;")
    assert not check_order(empty, 1, 32, [np.zeros(0, np.float32)], seeds=1).arrays
