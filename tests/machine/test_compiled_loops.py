"""Loops as native functions: the bytes, the counts and the errors of the vector engine."""

import random

import numpy as np
import pytest
from test_compiled_engine import U32, assert_same, kernel, words

from emulator import KernelError, Module
from emulator.arith.fast import threads
from emulator.arith.fast.words import WORD
from emulator.machine.compiled import budget, engine, loop, loop_function, loops
from emulator.machine.compiled.calls import Registers
from emulator.machine.compiled.loops import _cycles, loops_of
from emulator.machine.compiled.segment import Segment
from emulator.machine.compiled.traces import merged, one_of_each
from emulator.machine.vector import engine as vector
from emulator.machine.vector.wave import Wave


@pytest.fixture(autouse=True)
def _kept_memory_holds_anything(monkeypatch):
    take = Registers.take

    def spoiled(registers, warps):
        room = take(registers, warps)
        room[:] = 0xA5
        return room

    monkeypatch.setattr(Registers, "take", spoiled)


pytestmark = pytest.mark.sampled(3)

#: each thread its own number of turns, in %r6: 1 to 16
TURNS = "ld.global.u32 %r5, [%rd1]; and.b32 %r6, %r5, 15; add.u32 %r6, %r6, 1; mov.u32 %r4, 0;"
STORE = "st.global.u32 [%rd2], %r5;"
MIX = "mad.lo.u32 %r5, %r5, 1664525, 1013904223; shr.u32 %r7, %r5, 7; xor.b32 %r5, %r5, %r7;"

LOOPS = {
    "turns of each thread": f"""{TURNS} AGAIN: {MIX} add.u32 %r4, %r4, 1;
        setp.lt.u32 %p1, %r4, %r6; @%p1 bra AGAIN; {STORE}""",
    "a branch within": f"""{TURNS} AGAIN: {MIX} and.b32 %r8, %r5, 64; setp.eq.u32 %p2, %r8, 0;
        @%p2 bra OTHER; add.u32 %r5, %r5, %r4; shr.u32 %r9, %r5, 1; bra BOTH;
        OTHER: sub.u32 %r5, %r5, %r9; BOTH: add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 20;
        @%p1 bra AGAIN; add.u32 %r5, %r5, %r9; {STORE}""",
    "loops within loops": f"""{TURNS} mov.u32 %r10, 0;
        OUTER: mov.u32 %r4, 0; xor.b32 %r11, %r6, %r10;
        INNER: {MIX} add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r11; @%p1 bra INNER;
        add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, %r6; @!%p2 bra OUT;
        setp.eq.u32 %p3, %r10, 9; @%p3 bra OUT; bra OUTER;
        OUT: shl.b32 %r4, %r4, 3; add.u32 %r5, %r5, %r4; {STORE}""",
    "threads that end within": f"""{TURNS} AGAIN: {MIX} add.u32 %r4, %r4, 1; {STORE}
        setp.gt.u32 %p1, %r4, %r6; @%p1 exit; setp.lt.u32 %p2, %r4, 12; @%p2 bra AGAIN;""",
    "lanes together": f"""{TURNS} AGAIN: {MIX} shfl.sync.bfly.b32 %r8, %r5, 3, 31, -1;
        vote.sync.ballot.b32 %r9, %p1, -1; xor.b32 %r5, %r8, %r9; add.u32 %r4, %r4, 1;
        setp.lt.u32 %p1, %r4, 9; @%p1 bra AGAIN; {STORE}""",
    "halves of warps": f"""{TURNS} and.b32 %r9, %r3, 16; setp.eq.u32 %p3, %r9, 0;
        selp.u32 %r10, 65535, 4294901760, %p3;
        AGAIN: {MIX} shfl.sync.down.b32 %r8|%p2, %r5, 3, 4127, %r10; @%p2 add.u32 %r5, %r5, 7;
        vote.sync.any.pred %p2, %p1, %r10; @%p2 xor.b32 %r5, %r5, %r8;
        vote.sync.ballot.b32 %r9, %p1, %r10; xor.b32 %r5, %r8, %r9; add.u32 %r4, %r4, 1;
        setp.lt.u32 %p1, %r4, 9; @%p1 bra AGAIN; {STORE}""",
    "lanes that agree": f"""{TURNS} AGAIN: {MIX} activemask.b32 %r9; and.b32 %r8, %r5, 3;
        match.any.sync.b32 %r10, %r8, %r9; shfl.sync.idx.b32 %r11, %r5, %r4, 31, %r10;
        match.all.sync.b32 %r12|%p3, %r8, %r10; redux.sync.max.u32 %r13, %r5, %r10;
        cvt.u64.u32 %rd5, %r5; shl.b64 %rd5, %rd5, 33; match.any.sync.b64 %r14, %rd5, %r9;
        @%p3 add.u32 %r5, %r5, %r12; xor.b32 %r11, %r11, %r14; add.u32 %r11, %r11, %r13;
        xor.b32 %r5, %r5, %r11; add.u32 %r5, %r5, %r9; add.u32 %r4, %r4, 1;
        setp.lt.u32 %p1, %r4, %r6; @%p1 bra AGAIN; {STORE}""",
    "a barrier in an outer loop": f"""{TURNS} mov.u32 %r10, 0; mov.u32 %r11, room;
        mad.lo.u32 %r12, %r3, 4, %r11; OUTER: st.shared.u32 [%r12], %r5; bar.sync 0;
        mov.u32 %r4, 0; INNER: mad.lo.u32 %r13, %r4, 4, %r11; ld.shared.u32 %r14, [%r13];
        xor.b32 %r5, %r5, %r14; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r6; @%p1 bra INNER;
        bar.sync 0; add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 3; @%p2 bra OUTER; {STORE}""",
    "predicates, halves and 64 bits": f"""{TURNS} cvt.u64.u32 %rd5, %r5; cvt.u16.u32 %h1, %r5;
        setp.ne.u32 %p3, %r4, 0; AGAIN: mad.lo.u64 %rd5, %rd5, 25214903917, 11;
        @%p3 add.u16 %h1, %h1, 3; setp.gt.s64 %p3, %rd5, 0; add.u32 %r4, %r4, 1;
        setp.lt.u32 %p1, %r4, %r6; @%p1 bra AGAIN; cvt.u32.u64 %r5, %rd5; cvt.u32.u16 %r7, %h1;
        selp.u32 %r8, 5, 9, %p3; mad.lo.u32 %r5, %r7, %r8, %r5; {STORE}""",
}


def check_loop(name, block):
    given = words(2 * block)
    held, counters = assert_same(kernel(LOOPS[name]), 2, block, [given, np.zeros_like(given)])
    assert held[1] != bytes(len(held[1]))
    assert counters["statements"] > 20


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name):
    check_loop(name, 64)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_parts_of_warps(name):
    check_loop(name, 72)


@pytest.mark.parametrize(
    "name", ["loops within loops", "lanes together", "halves of warps", "lanes that agree"]
)
def test_loops_are_native_functions(name, monkeypatch):
    """Not one turn of a loop is a step where the lanes are there that statements want."""
    ran = []
    step = Wave._run_block
    monkeypatch.setattr(Wave, "_run_block", lambda *args: ran.append(1) or step(*args))
    monkeypatch.setattr(
        engine.CompiledWave, "_run_steps", lambda *args: ran.append(1) or step(*args)
    )
    text = kernel(LOOPS[name])
    Module(text)["go"].launch(2, 64, [words(128), words(128)], engine="compiled")
    assert len(ran) < 5


def test_what_a_loop_cannot_do_segments_do(monkeypatch):
    """Half a block waits at a barrier of its own."""
    monkeypatch.setattr(engine, "_COLD", 0.0)
    monkeypatch.setattr(budget.CLOCK, "share", lambda: 1.0)  # whatever else the machine does
    body = f"""{TURNS} setp.gt.u32 %p3, %r3, 31; @%p3 bra DONE; AGAIN: {MIX} bar.sync 1, 32;
        add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 40; @%p1 bra AGAIN; DONE: {STORE}"""
    module, given = Module(kernel(body)), words(64)
    expected, out = np.zeros(64, U32), np.zeros(64, U32)
    module["go"].launch(1, 64, [given, expected], engine="vector")
    for _ in range(3):
        module["go"].launch(1, 64, [given, out])
        assert out.tolist() == expected.tolist()
        blocks = module["go"]._blocks[engine.LazyBlocks, False]
        (found,) = set(blocks.loops.values())
        found._budget.left = 0.0
    assert found.gives_up
    assert found._native is None
    assert any(isinstance(x, Segment) for block in blocks.values() for x in block.steps)


def test_many_turns_are_several_calls(monkeypatch):
    monkeypatch.setattr(loop, "_MOST_PARTS", 16)
    monkeypatch.setattr(loop, "_POLLS", 3)
    for name in ("loops within loops", "a barrier in an outer loop"):
        given = np.full(128, 11, U32)
        assert_same(kernel(LOOPS[name]), 2, 64, [given, np.zeros_like(given)])


def test_blocks_in_several_threads(monkeypatch):
    monkeypatch.setattr(threads, "processors", lambda: 4)
    monkeypatch.setattr(loop, "WORTH_A_THREAD", 1)
    given = words(64 * 30)
    text = kernel(LOOPS["a barrier in an outer loop"])
    assert_same(text, 30, 64, [given, np.zeros_like(given)])


# --- what others do -------------------------------------------------------------------------------

#: a lane of each warp waits for another one, a warp for another one
WAITS = {
    "for a lane that is behind": """mov.u32 %r11, room; mov.u32 %r10, 0; shr.u32 %r13, %r3, 5;
        mad.lo.u32 %r11, %r13, 4, %r11; st.shared.u32 [%r11], %r10; and.b32 %r5, %r3, 31;
        setp.ne.u32 %p1, %r5, 0; @%p1 bra SET;
        WAIT: ld.volatile.shared.u32 %r4, [%r11]; setp.eq.u32 %p2, %r4, 0; @%p2 bra WAIT; bra OUT;
        SET: st.volatile.shared.u32 [%r11], %r5; OUT: st.global.u32 [%rd2], %r5;""",
    "for a warp": """mov.u32 %r11, room; mov.u32 %r10, 0; shr.u32 %r5, %r3, 5;
        st.shared.u32 [%r11], %r10; bar.sync 0;
        WAIT: ld.volatile.shared.u32 %r4, [%r11]; setp.ne.u32 %p2, %r4, %r5; @%p2 bra WAIT;
        add.u32 %r6, %r5, 1; bar.warp.sync -1; st.volatile.shared.u32 [%r11], %r6;
        st.global.u32 [%rd2], %r4;""",
}


@pytest.mark.parametrize("name", WAITS)
def test_waits(name):
    body = kernel(WAITS[name])
    out = np.zeros(96, U32)
    Module(body)["go"].launch(1, 96, [words(96), out], engine="compiled")
    number = np.arange(96)
    expected = number % 32 if "lane" in name else number // 32
    assert out.tolist() == expected.tolist()


ENDLESS = {
    "deadlock": """mov.u32 %r11, room; WAIT: ld.volatile.shared.u32 %r4, [%r11];
        setp.eq.u32 %p2, %r4, 0; @%p2 bra WAIT;""",
    "endless loop": "AGAIN: add.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r0, 500; @%p1 bra AGAIN;",
    "step limit": """AGAIN: add.u32 %r4, %r4, 1; st.global.u32 [%rd2], %r4;
        setp.ne.u32 %p1, %r0, 500; @%p1 bra AGAIN;""",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_loops_without_end(kind, monkeypatch):
    monkeypatch.setattr(vector, "VAIN_POLLS", 1 << 12)
    monkeypatch.setattr(vector.Grid, "most_in_vain", 1 << 14)
    limit = 10_000 if kind == "step limit" else None
    said = []
    for name in ("vector", "compiled"):
        with pytest.raises(KernelError) as raised:
            Module(kernel(ENDLESS[kind]))["go"].launch(
                1, 64, [words(64), words(64)], engine=name, step_limit=limit
            )
        error = raised.value
        said.append((error.kind, error.line, error.block, error.threads))
    assert said[0] == said[1]
    assert said[0][0] == kind


FAULTS = {
    #: the higher a thread, the earlier it fails
    "the first turn of all": """mul.lo.u32 %r5, %r0, 40; sub.u32 %r5, 20000, %r5;
        AGAIN: add.u32 %r4, %r4, 1; mad.lo.u32 %r6, %r4, 4096, 0; setp.gt.u32 %p2, %r6, %r5;
        @%p2 mov.u64 %rd1, 8; ld.global.u8 %r7, [%rd1]; setp.lt.u32 %p1, %r4, 90;
        @%p1 bra AGAIN;""",
    "all threads": """AGAIN: add.u32 %r4, %r4, 1; ld.global.u32 %r7, [%rd1];
        setp.eq.u32 %p2, %r4, 33; @%p2 mov.u64 %rd1, 2;
        setp.lt.u32 %p1, %r4, 90; @%p1 bra AGAIN;""",
    "some lanes, on a side": """AGAIN: add.u32 %r4, %r4, 1; and.b32 %r5, %r0, 5;
        setp.ne.u32 %p1, %r5, 5; @%p1 bra ON; setp.lt.u32 %p2, %r4, 7; @%p2 bra ON;
        st.global.u32 [%rd2+2], %r4; ON: setp.lt.u32 %p1, %r4, 90; @%p1 bra AGAIN;""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    body = "mov.u32 %r4, 0;" + FAULTS[name]
    kind = assert_same(kernel(body), 2, 64, [words(128), np.zeros(128, U32)])[1]
    assert kind in ("out of bounds", "misaligned")


# --- which loops ----------------------------------------------------------------------------------


def test_ways_that_lead_back():
    edges = {1: [2], 2: [3, 2], 3: [4, 5], 4: [3], 5: [], 6: [7], 7: [6, 1]}
    assert _cycles(edges) == [[2], [3, 4], [6, 7]]


#: a statement without native code, which keeps a kernel from being one function
KEPT = "bar.red.popc.u32 %r4, 0, %p1;"


@pytest.mark.parametrize(
    "name, kept, counts",
    [
        ("loops within loops", KEPT, [5]), ("a barrier in an outer loop", KEPT, [6]),
        ("a branch within", KEPT, [4]), ("a branch within", "", [6]),
    ],
)  # fmt: skip
def test_parts_of_loops(name, kept, counts):
    go = Module(kernel(LOOPS[name] + kept))["go"]
    found = loops_of(go.rewritten[0], go.rewritten[0].functions["go"], go.module.target)
    assert [len(parts) for parts in found] == counts


def test_a_loop_of_a_large_function_is_alone(monkeypatch):
    """What is around it is much more, and may be cold."""
    go = Module(kernel(LOOPS["a branch within"] + "add.u32 %r4, %r4, 1;" * 30))["go"]
    given = go.rewritten[0], go.rewritten[0].functions["go"], go.module.target
    assert [len(parts) for parts in loops_of(*given)] == [6]
    monkeypatch.setattr(loops, "_SHORT", 0)
    assert [len(parts) for parts in loops_of(*given)] == [4]


def test_a_difference_is_noticed(monkeypatch):
    """Lanes that wait elsewhere must stay there."""
    text = kernel(LOOPS["a branch within"])
    go_on = loop_function._go_on

    def all_go_on(e, mask, *given):
        go_on(e, WORD(0xFFFFFFFF), *given)

    monkeypatch.setattr(loop_function, "_go_on", all_go_on)
    with pytest.raises(AssertionError):
        assert_same(text, 2, 64, [words(128), np.zeros(128, U32)], step_limit=100_000)


@pytest.mark.parametrize(("count", "many"), [(1, 3), (100, 300), (5000, 15000), (100, 20000)])
def test_one_of_each_hash_is_found(count, many):
    rng = np.random.default_rng(count)
    # Half of them differ in their lower bits alone.
    known = rng.integers(-(1 << 63), 1 << 63, count, np.int64)
    known = np.concatenate([known, known ^ 1])
    hashes = known[rng.integers(0, len(known), many)]
    chosen = one_of_each(hashes)
    assert (np.diff(chosen) > 0).all()
    assert not np.isin(hashes[: chosen[0]], hashes[chosen]).any()
    assert (np.sort(hashes[chosen]) == np.unique(hashes)).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("groups", [1, 3, 40])
def test_groups_are_merged_at_the_lowest_part(groups, dtype):
    """As a plain loop does: who is at the lowest part executes it and goes on."""
    rng = np.random.default_rng(groups)
    lengths = rng.integers(0, 12, groups)
    traces = np.zeros((groups, 12), dtype)
    for row, length in zip(traces, lengths, strict=True):
        row[:length] = rng.choice(20, length, replace=False)
        row[: length // 2].sort()
    order = rng.permutation(groups)
    out, ends = merged(traces, order, lengths[order], 20)
    at, expected, gone_on = [0] * groups, [], [0] * groups
    while left := [i for i in range(groups) if at[i] < lengths[order[i]]]:
        low = min(traces[order[i], at[i]] for i in left)
        for i in [i for i in left if traces[order[i], at[i]] == low]:
            at[i], gone_on[i] = at[i] + 1, len(expected)
        expected.append(low)
    assert (out.tolist(), ends.tolist()) == (expected, gone_on)


def test_cycles_are_places_that_lead_back():
    draw = random.Random(3)
    for _ in range(300):
        pcs = draw.sample(range(99), draw.randint(1, 12))
        edges = {pc: [x for x in pcs if draw.random() < 0.15] for pc in pcs}
        reached = {pc: set(edges[pc]) for pc in pcs}
        for _ in pcs:
            for ways in reached.values():
                ways |= {y for x in ways for y in reached[x]}
        together = {
            tuple(sorted(x for x in reached[pc] if pc in reached[x])) for pc in pcs
        } - {()}  # fmt: skip
        assert sorted(tuple(sorted(x)) for x in _cycles(edges)) == sorted(together)
