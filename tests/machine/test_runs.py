"""Runs of statements that only compute, each as one function, end with the statements' bits."""

import numpy as np
import pytest
from random_kernels import RandomKernel
from test_reference_engine import HEAD, U32, kernel, words

from emulator import Module
from emulator.arith.scalar.traced import TracedWord
from emulator.machine.vector import runs

NEVER = 1 << 40
#: turns of a loop around statements, whose results are a word of %r4
LOOP = """mov.u32 %r9, 0; ld.global.u32 %r4, [%rd1]; mov.b32 %r5, 0f40490FDB;
AGAIN: {}
    add.u32 %r9, %r9, 1; setp.lt.u32 %p8, %r9, 4; @%p8 bra AGAIN; st.global.u32 [%rd2], %r4;"""
#: the divisor is taken for a number where few lanes compute, and in all lanes behind that
DIVISOR = "div.full.f32 %r6, %r5, %r4; add.f32 %r7, %r4, %r5; xor.b32 %r4, %r6, %r7;"


def out_of(text, often, monkeypatch, given):
    monkeypatch.setattr(runs, "_OFTEN", often)
    out = np.zeros_like(given)
    Module(text)["go"].launch(2, 64, [given.copy(), out], engine="vector")
    return out


def assert_runs_agree(text, monkeypatch, given):
    """What is written is the same whether blocks become runs at once or never."""
    found, expected = (out_of(text, often, monkeypatch, given) for often in (1, NEVER))
    assert found.tobytes() == expected.tobytes()


def test_a_view_in_few_lanes(monkeypatch):
    text = HEAD + kernel(LOOP.format(DIVISOR))
    assert_runs_agree(text, monkeypatch, words(128))
    assert_runs_agree(text, monkeypatch, np.full(128, 0x3F800000, U32))


def assert_random_runs_agree(seed, monkeypatch):
    given = words(2 * 64 * 16, seed)
    given[::7] &= 15
    assert_runs_agree(RandomKernel(seed).text, monkeypatch, given)


def test_random_runs(monkeypatch):
    assert_random_runs_agree(1, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 60))
def test_more_random_runs(seed, monkeypatch):
    assert_random_runs_agree(seed, monkeypatch)


def test_a_difference_is_noticed(monkeypatch):
    monkeypatch.setattr(TracedWord, "__add__", TracedWord.__sub__)
    with pytest.raises(AssertionError):
        assert_runs_agree(
            HEAD + kernel(LOOP.format("add.u32 %r4, %r4, 3;")), monkeypatch, words(128)
        )
