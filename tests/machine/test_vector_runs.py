"""Runs of statements as one function compute what the statements compute one by one."""

import numpy as np
import pytest
from random_kernels import RandomKernel
from test_reference_engine import HEAD, kernel

from emulator import KernelError, Module
from emulator.arith.scalar.traced import TracedWord
from emulator.machine.vector import runs
from emulator.machine.vector.blocks import Blocks
from emulator.machine.vector.engine import Grid

#: f32 codes of numbers that rules make exceptions of: zeros, infinities, NaNs, subnormal numbers
SPECIAL = np.array(
    [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 1, 0x807FFFFF],
    np.uint32,
)


class RunsAtOnce(runs.RunBlocks):
    """Blocks of runs from the first time."""

    def _make(self, first):
        return runs.with_runs(Blocks._make(self, first), self._program, self._reads_late)


def words(rng, shape):
    """Random words, a third of them special numbers."""
    out = rng.integers(0, 1 << 32, shape, np.uint32)
    return np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, shape), out)


def launched(text, kind, buffers, monkeypatch, block=96):
    """The buffers after a launch, and how many statements waves and threads executed."""
    counted, run = [], Grid.run

    def counting(grid):
        run(grid)
        counted.append((grid.executed, grid.thread_statements))

    buffers = [x.copy() for x in buffers]
    with monkeypatch.context() as patch:
        patch.setattr(Grid, "blocks_class", kind)
        patch.setattr(Grid, "run", counting)
        Module(text)["go"].launch(2, block, buffers, engine="vector")
    return buffers, counted


def differences(text, monkeypatch, seed=0, lanes=192):
    """How many words differ, and statements."""
    buffers = [words(np.random.default_rng(seed), (lanes, 16)) for _ in range(2)]
    (one, count), (other, count_of_runs) = (
        launched(text, kind, buffers, monkeypatch) for kind in (Blocks, RunsAtOnce)
    )
    return sum(map(np.count_nonzero, (x != y for x, y in zip(one, other, strict=True)))) + (
        count != count_of_runs
    )


def check_random(seed, monkeypatch):
    assert not differences(RandomKernel(seed).text, monkeypatch, seed)


@pytest.mark.sampled(4, covered_by="test_more_random_kernels")
@pytest.mark.parametrize("seed", range(40))
def test_random_kernels(seed, monkeypatch):
    check_random(seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_more_random_kernels(seed, monkeypatch):
    check_random(seed, monkeypatch)


#: the divisor is taken for a number where few lanes compute, and in all lanes behind that
DIVISOR = """mov.u32 %r9, 0; ld.global.u32 %r4, [%rd1]; mov.b32 %r5, 0f40490FDB;
AGAIN: div.full.f32 %r6, %r5, %r4; add.f32 %r7, %r4, %r5; xor.b32 %r4, %r6, %r7;
    add.u32 %r9, %r9, 1; setp.lt.u32 %p8, %r9, 4; @%p8 bra AGAIN; st.global.u32 [%rd2], %r4;"""


def test_a_view_in_few_lanes(monkeypatch):
    assert not differences(HEAD + kernel(DIVISOR), monkeypatch)


@pytest.mark.parametrize(
    "statement",
    ["abs.f16x2 %r6, %r5;", "sin.approx.f32 %r6, 0fFFFFFFFF;", "cvt.rn.f32.f64 %r6, %rd9;"],
)
def test_a_code_of_nan_for_a_constant(statement, monkeypatch):
    """What is chosen under a condition that is a constant is a constant, too."""
    body = f"""mov.b32 %r5, 0xFFC12345; mov.b64 %rd9, 0x7FF8000000000001;
        ld.global.u32 %r4, [%rd1]; {statement} xor.b32 %r4, %r4, %r6; st.global.u32 [%rd2], %r4;"""
    assert not differences(HEAD + kernel(body), monkeypatch)


def test_a_constant_that_few_lanes_change(monkeypatch):
    """It has a word of all lanes where none does."""
    body = """cvt.rn.f32.u32 %r4, %r3; div.full.f32 %r5, 0fFFC12345, %r4;
        div.full.f32 %r6, 0f40490FDB, %r4; xor.b32 %r4, %r5, %r6; st.global.u32 [%rd2], %r4;"""
    assert not differences(HEAD + kernel(body), monkeypatch)


def test_a_difference_is_noticed(monkeypatch):
    text = RandomKernel(1).text
    assert not differences(text, monkeypatch)
    monkeypatch.setattr(TracedWord, "__xor__", TracedWord.__or__)
    assert differences(text, monkeypatch)


#: each lane leaves the loop after turns of its own, some by an error
LEAVING = """.version 8.0
.target sm_80
.address_size 64
.visible .entry go(.param .u64 a, .param .u64 b)
{
  .reg .pred %p<3>; .reg .f32 %f<4>; .reg .b32 %r<9>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 256, %r1;
  mul.wide.u32 %rd3, %r1, 64; add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
  ld.global.u32 %r3, [%rd1]; and.b32 %r3, %r3, 1023;
  mov.f32 %f1, 0f3F800000; mov.u32 %r4, 0;
TURN:
  mul.f32 %f1, %f1, 0f40000000; sub.f32 %f2, %f1, %f1; add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, %r3;
  @%p1 bra TURN;
  st.global.u32 [%rd2], %r4; st.global.f32 [%rd2+4], %f1; st.global.f32 [%rd2+8], %f2;
  setp.gt.u32 %p2, %r3, MOST; @%p2 trap;
  ret;
}
"""


def test_lanes_that_left_a_loop_compute_nothing(monkeypatch):
    text = LEAVING.replace("MOST", "2000")
    buffers = [words(np.random.default_rng(0), (512, 16)) for _ in range(2)]
    found = [launched(text, kind, buffers, monkeypatch, 256) for kind in (Blocks, RunsAtOnce)]
    turns = np.maximum(buffers[0][:, 0] & 1023, 1)
    for (_, out), _ in found:
        assert (out[:, 0] == turns).all()
        assert (out[:, 1] == np.where(turns < 128, turns + 127 << 23, 0x7F800000)).all()
        assert (out[:, 2] == np.where(turns < 128, 0, 0x7FFFFFFF)).all()
    assert found[0][1] == found[1][1]


def test_an_error_names_lanes_that_are_there(monkeypatch):
    buffers = [words(np.random.default_rng(0), (512, 16)) for _ in range(2)]
    said = []
    for kind in (Blocks, RunsAtOnce):
        for text, limit in ((LEAVING.replace("MOST", "900"), None), (LEAVING, 700)):
            with monkeypatch.context() as patch:
                patch.setattr(Grid, "blocks_class", kind)
                with pytest.raises(KernelError) as caught:
                    kernel = Module(text.replace("MOST", "2000"))["go"]
                    kernel.launch(2, 256, buffers, engine="vector", step_limit=limit)
            said.append(str(caught.value))
    assert said[:2] == said[2:]
