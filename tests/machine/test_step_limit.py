"""Every engine stops within a few statements of `step_limit`, whatever the loop does."""

import random
import re
import signal

import numpy as np
import pytest
from sweeps import swept

from emulator import KernelError, Module, Warp
from emulator.machine.vector import engine as vector_engine

HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.func f(.reg .b32 x) {
    .reg .b32 %r<3>; .reg .pred %p;
    mov.u32 %r1, x;
    M: sub.s32 %r1, %r1, 1; setp.gt.s32 %p, %r1, 0; @%p bra M;
    ret;
}
.visible .entry k(.param .u64 p)
{
    .reg .b64 %rd<9>; .reg .b32 %r<19>; .reg .pred %p<9>;
    .shared .align 8 .b64 bar[2]; .shared .b32 word;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    BODY
    ret;
}
"""
#: lanes leave it at different times
INNER = "mov.u32 %r5, %tid.x; K: sub.s32 %r5, %r5, 1; setp.gt.s32 %p1, %r5, 0; @%p1 bra K;"
BODIES = {
    "nested loops": f"L: {INNER} bra L;",
    "a barrier": "L: bar.sync 0; bra L;",
    "a barrier in the outer loop": f"L: {INNER} bar.sync 0; bra L;",
    "a store": "L: st.global.u32 [%rd1], %r1; bra L;",
    "an atomic operation": f"L: {INNER} atom.global.add.u32 %r3, [%rd1], 1; bra L;",
    "a call": "L: call f, (%r1); bra L;",
    "a call and a barrier": "L: call f, (%r1); bar.sync 0; bra L;",
    "a shuffle": f"L: {INNER} shfl.sync.idx.b32 %r3, %r1, 0, 31, -1; bra L;",
    "a wait": "mbarrier.init.shared.b64 [bar], 7; "
    "L: mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra L;",
    "a clock": "L: mov.u32 %r4, %clock; st.shared.u32 [word], %r4; bra L;",
    "a convergence that activemask shows": f"L: {INNER} activemask.b32 %r4; bra L;",
    "lanes that part for good": "and.b32 %r6, %r1, 1; setp.eq.u32 %p3, %r6, 0; @%p3 bra B; "
    "A: add.u32 %r2, %r2, 1; bra A; B: add.u32 %r2, %r2, 3; bra B;",
}
ENGINES = ("reference", "vector", "compiled", "auto")
#: statements from one branch or label to the next, and those of f, here
RUN = 8


def executed(body: str, block: int, limit: int, engine: str, grid: int = 1, **options) -> int:
    """The statements after which an endless kernel was stopped; the limit plus one where it was
    found before that it waits for ever."""
    array = np.full(8, 7, "u4")
    with pytest.raises(KernelError) as caught:
        Module(HEAD.replace("BODY", body))["k"].launch(
            grid, block, [array], step_limit=limit, engine=engine, **options
        )
    assert (array == 7).all()
    if caught.value.kind == "deadlock":
        assert "test_wait" in body or "volatile" in body
        return limit + 1
    assert caught.value.kind == "step limit"
    found = re.match(rf"([\d,]+) statements were executed; step_limit={limit:,}$",
                     caught.value.reason)  # fmt: skip
    assert found
    return int(found[1].replace(",", ""))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_endless_loops_end_at_the_limit(body, engine):
    for limit in (0, 200, 777):
        assert limit < executed(body, 96, limit, engine) <= limit + RUN


def test_a_loop_without_effect_ends_without_a_limit(monkeypatch):
    """Lanes that part and meet in a function start new strands, which have gone round once."""
    monkeypatch.setattr(vector_engine.Grid, "most_in_vain", 1 << 12)
    monkeypatch.setattr(vector_engine, "_LOOK", 1 << 12)
    for body in (f"L: {INNER} bra L;", "L: call f, (%r1); bra L;"):
        kernel = Module(HEAD.replace("BODY", body))["k"]
        with pytest.raises(KernelError, match="endless loop"):
            kernel.launch(1, 64, [np.zeros(8, "u4")], engine="vector")


def test_a_limit_that_suffices():
    body = "mov.u32 %r6, 0; L: add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 100; @%p3 bra L;"
    for engine in ENGINES:
        kernel = Module(HEAD.replace("BODY", body))["k"]
        kernel.launch(1, 32, [np.zeros(8, "u4")], step_limit=304, engine=engine)
        with pytest.raises(KernelError, match="304 statements were executed; step_limit=303"):
            kernel.launch(1, 32, [np.zeros(8, "u4")], step_limit=303, engine=engine)


def test_the_limit_of_a_text():
    machine = Warp("sm_90")
    text = f".reg .b32 %r<9>; .reg .pred %p<3>; L: {INNER} bar.warp.sync -1; bra L;"
    with pytest.raises(KernelError, match=r"step limit: 1,00\d statements"):
        machine.run(text, step_limit=1000)


# --- random loops ---------------------------------------------------------------------------------


class Loops:
    """Endless loops of random shape."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.labels = 0

    def text(self) -> str:
        """Loops within an endless one."""
        return f"L: {self.items(3, together=True)} bra L;"

    def items(self, depth: int, *, together: bool) -> str:
        """Some statements; `together`: all threads of a block execute them."""
        kinds = [self.plain, self.plain, self.divergent, self.loop, self.branch]
        kinds += [self.meeting] * 2 * together
        return " ".join(self.random.choice(kinds)(depth) for _ in range(self.random.randint(1, 3)))

    def label(self) -> str:
        self.labels += 1
        return f"X{self.labels}"

    def plain(self, depth: int) -> str:
        return self.random.choice((
            "add.u32 %r9, %r9, 1;", "st.global.u32 [%rd1], %r1;", "st.shared.u32 [word], %r1;",
            "atom.global.add.u32 %r3, [%rd1], 1;", "call f, (%r1);", "mov.u32 %r4, %clock;",
            "ld.volatile.shared.u32 %r4, [word];", "red.shared.add.u32 [word], 1;",
        ))  # fmt: skip

    def meeting(self, depth: int) -> str:
        return self.random.choice((
            "bar.sync 0;", "shfl.sync.idx.b32 %r3, %r1, 0, 31, -1;", "bar.warp.sync -1;",
            "vote.sync.any.pred %p4, %p1, -1;", "barrier.cluster.arrive; barrier.cluster.wait;",
        ))  # fmt: skip

    def divergent(self, depth: int) -> str:
        """A loop that lanes leave at different times."""
        if not depth:
            return self.plain(depth)
        at, count = self.label(), f"%r{10 + depth}"
        inside = self.items(depth - 1, together=False)
        return (
            f"and.b32 {count}, %r1, 7; {at}: {inside} sub.s32 {count}, {count}, 1; "
            f"setp.gt.s32 %p1, {count}, 0; @%p1 bra {at};"
        )

    def loop(self, depth: int) -> str:
        if not depth:
            return self.plain(depth)
        at, count = self.label(), f"%r{10 + depth}"
        return (
            f"mov.u32 {count}, {self.random.randint(1, 9)}; {at}: "
            f"{self.items(depth - 1, together=False)} sub.s32 {count}, {count}, 1; "
            f"setp.gt.s32 %p1, {count}, 0; @%p1 bra {at};"
        )

    def branch(self, depth: int) -> str:
        at = self.label()
        inside = self.items(max(0, depth - 1), together=False)
        return f"setp.lt.u32 %p2, %r1, {self.random.randint(1, 90)}; @%p2 bra {at}; {inside} {at}:"


def check_random(seed: int) -> None:
    """A random endless loop on all engines."""
    loops = Loops(seed)
    body, draw = loops.text(), loops.random
    block, grid = draw.choice((1, 32, 50, 96, 256)), draw.choice((1, 2, 5))
    limit = int(10 ** draw.uniform(0, 4))
    statements, warps = body.count(";") + 12, grid * -(-block // 32)
    for engine in ENGINES:
        # Warps that have parted go round a compiled loop at most once more, each by itself.
        most = statements * (1 if engine in ("reference", "vector") else warps)
        assert executed(body, block, limit, engine, grid) - limit <= most, (seed, engine)
    assert executed(body, block, limit, "vector", grid, seed=seed) - limit <= statements, seed


def test_random_endless_loops():
    for seed in range(3):
        check_random(seed)


@pytest.mark.slow
@swept(range(100, 160), 10)
def test_many_random_endless_loops(seed):
    check_random(seed)


ENDED = {"L: add.u32 %r2, %r2, 1; bra L;": "endless loop",
         "L: ld.volatile.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r2, 0; @%p1 bra L;": "deadlock",
         }  # fmt: skip


@pytest.mark.parametrize("engine", ["auto", "compiled"])
@pytest.mark.parametrize("body", ENDED)
def test_loops_that_end_without_a_limit(body, engine):
    """As the guide says (kernels)."""
    with pytest.raises(KernelError) as caught:
        Module(HEAD.replace("BODY", body))["k"].launch(1, 32, [np.full(8, 7, "u4")], engine=engine)
    assert caught.value.kind == ENDED[body]


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("loop", ["a store", "an atomic operation", "a barrier"])
def test_an_interrupt_leaves_arrays_and_variables_as_they_were(loop, engine):
    """Such a loop ends on no engine without a limit. As a user presses Ctrl-C again, the timer goes
    off again: Python drops what is raised in the callback of a weak reference."""

    def interrupt(*_):
        raise KeyboardInterrupt

    body = f"mov.u64 %rd2, v; st.global.u32 [%rd2], %r1; st.global.u32 [%rd1+4], 9; {BODIES[loop]}"
    text = HEAD.replace(".func f", ".global .u32 v = 5;\n.func f").replace("BODY", body)
    module, array = Module(text), np.full(8, 7, "u4")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5, 3)
        with pytest.raises(KeyboardInterrupt):
            module["k"].launch(1, 32, [array], engine=engine)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (array == 7).all() and module.variable("v").view("u4") == 5
