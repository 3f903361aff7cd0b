"""Going back from snapshots gives the state of a launch that is played from its start."""

import numpy as np
import pytest
from debugged import BRANCH, HEAD

from emulator import Module
from emulator.machine.debugger import player as players
from emulator.machine.debugger import snapshots
from emulator.machine.debugger.snapshots import Snapshot, UnknownStateError
from emulator.machine.shared.waiting import State

TEXT = (
    HEAD
    + """.global .align 8 .b32 total[4];
.func (.reg .b32 %out) twice(.reg .b32 %in)
{
 .reg .b32 %t<3>;
 add.u32 %t1, %in, %in;
 mov.u32 %out, %t1;
 ret;
}
.visible .entry go(.param .u64 a, .param .u64 b)
{
 .reg .b32 %r<16>; .reg .b64 %rd<9>; .reg .pred %p<5>;
 .shared .align 16 .b32 tile[256];
 .shared .align 8 .b64 bar;
 .local .align 4 .b32 own[4];
 ld.param.u64 %rd1, [a];
 ld.param.u64 %rd4, [b];
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd2, %r1, 16;
 add.s64 %rd3, %rd1, %rd2;
 mov.u32 %r6, tile;
 mad.lo.u32 %r6, %r1, 16, %r6;
 mov.u32 %r2, 0;
 setp.eq.u32 %p1, %r1, 0;
 @%p1 mbarrier.init.shared.b64 [bar], 48;
 bar.sync 0;
L:
 cp.async.ca.shared.global [%r6], [%rd3], 16;
 cp.async.commit_group;
 and.b32 %r7, %r1, 1;
 setp.eq.u32 %p2, %r7, 0;
 @%p2 bra EVEN;
 st.local.u32 [own+4], %r2;
 ld.local.u32 %r8, [own+4];
 call (%r9), twice, (%r8);
 add.u32 %r9, %r9, 1;
 bra JOIN;
EVEN:
 atom.global.add.u32 %r9, [total], 1;
 shr.u32 %r9, %r9, 2;
JOIN:
 cp.async.wait_group 0;
 mbarrier.arrive.shared.b64 %rd5, [bar];
W:
 mbarrier.test_wait.shared.b64 %p3, [bar], %rd5;
 @!%p3 bra W;
 ld.shared.u32 %r10, [%r6+4];
 add.u32 %r10, %r10, %r9;
 st.global.u32 [%rd3+4], %r10;
 red.global.add.u32 [%rd4], %r10;
 bar.sync 0;
 add.u32 %r2, %r2, 1;
 setp.lt.u32 %p4, %r2, 3;
 @%p4 bra L;
 ret;
}"""
)


def state(d):
    """All that a launch holds, as far as a debugger can tell."""
    run = d.player.threads[0].run
    out = [d.player.number, d.player.pc, [t.index for t in d.player.threads],
           d.player.mbarriers, run.statements, run.executed, run.progress, run.turns,
           run.resumed, run.changes]  # fmt: skip
    out += [(x.address, x.held.tobytes()) for x in run.arena]
    for cluster in run.clusters:
        out += [len(cluster.pending.copies), len(cluster.waiting)]
        held = cluster.barriers.arrived, cluster.barriers.partly, cluster.clusters.arrived
        out += [array.tobytes() for array in held]
        for block in cluster.blocks:
            out += [block.index, block.shared.tobytes(), list(block.ledger)]
            for thread in block.threads:
                # Where a thread has ended, a stop there may have noted.
                pc = None if thread.state is State.ENDED else thread.pc
                out += [pc, thread.state, thread.calls, thread.epoch, thread.loops,
                        bytes(thread.local),
                        [list(f.registers) for f in thread.frames]]  # fmt: skip
    return out


def debug(order):
    arrays = [np.arange(192, dtype=np.uint32), np.zeros(4, np.uint32)]
    return Module(TEXT)["go"].debug(
        2, 48, arrays, async_order=order, seed=5 if order == "random" else None
    )


def played(d, monkeypatch):
    """The states before all statements, with no snapshots; there are many of them from here on."""
    monkeypatch.setattr(players, "_PAUSE", 1e9)
    d.restart()
    states = [state(d)]
    while not d.go_to(d.player.number + 1).ended:
        states.append(state(d))
    assert d.player.starts() == [0]
    monkeypatch.setattr(players, "_PAUSE", 0)
    monkeypatch.setattr(players, "_SHARE", 0)
    d.restart()
    return states


@pytest.mark.slow
@pytest.mark.parametrize("order", ["early", "late", "random"])
def test_every_statement_is_as_in_a_fresh_launch(order, monkeypatch):
    with debug(order) as d:
        states = played(d, monkeypatch)
        last = len(states)
        d.go_to(last)
        assert len(d.player.starts()) > 20
        for number in [*range(last, 0, -17), *range(3, last, 41)]:
            d.go_to(number)
            assert state(d) == states[number - 1], number
        d.go_to(last // 2)
        d.cont()
        assert d.report is not None
        assert d.report.counters["statements"] == last


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.ndarray, bytearray, list, "_put_attributes", "_put_slots"])
def test_a_snapshot_that_forgets_is_noticed(kind, monkeypatch):
    def restore(snapshot):
        for undo in snapshot._undo:
            setter = undo.func
            if kind not in (
                type(getattr(setter, "__self__", None)),
                getattr(setter, "__name__", ""),
            ):
                undo()

    monkeypatch.setattr(snapshots.Snapshot, "restore", restore)
    with debug("late") as d:
        states = played(d, monkeypatch)
        wrong = 0
        for number in range(len(states), 0, -29):
            try:
                d.go_to(number)
                wrong += state(d) != states[number - 1]
            except Exception:
                wrong += 1
                break
        assert wrong


@pytest.mark.slow
def test_reverse_commands_land_where_they_do_without_snapshots(monkeypatch):
    found = []
    for pause, share in ((0, 0), (1e9, 0)):
        monkeypatch.setattr(players, "_PAUSE", pause)
        monkeypatch.setattr(players, "_SHARE", share)
        with debug("late") as d:
            d.watch("b[0]")
            d.break_at("ret")
            d.catch("nan")
            d.go_to(300)
            stops = [d.cont(reverse=True) for _ in range(8)]
            d.go_to(290)
            stops += [d.step(reverse=True) for _ in range(5)] + [d.stepi(reverse=True)]
            stops += [d.next(reverse=True) for _ in range(5)]
            found.append(stops)
    assert found[0] == found[1] and len({x.number for x in found[0]}) > 10


def test_a_short_kernel_is_the_same_at_every_statement(monkeypatch):
    with Module(BRANCH)["go"].debug(1, 64, [np.zeros(64, np.uint32), 7]) as d:
        states = played(d, monkeypatch)
        for number in range(len(states), 0, -1):
            d.go_to(number)
            assert state(d) == states[number - 1]
        d.go_to(len(states))
        assert len(d.player.starts()) > 4


def test_containers_get_back_what_they_held():
    inner = [1]
    held = {"a": inner, "b": {2}, "c": np.arange(3), "d": bytearray(b"ab")}
    view = held["c"][1:]
    snapshot = Snapshot([held])
    held["b"].add(3), inner.append(3), held["d"].__setitem__(0, 7)
    view[:] = 9
    del held["a"]
    snapshot.restore()
    assert held["a"] is inner == [1] and held["b"] == {2} and held["d"] == b"ab"
    assert view.tolist() == [1, 2] and snapshot.bytes == held["c"].nbytes + 2


def test_state_that_cannot_be_put_back_is_refused():
    with pytest.raises(UnknownStateError, match="generator"):
        Snapshot([[], {"a": (x for x in ())}])
