"""Atomic operations of many lanes at once against the rule, one lane after the other."""

import numpy as np
import pytest

from emulator import Module
from emulator.arith.scalar import atomic_series
from emulator.arith.scalar.atomic import update
from emulator.arith.scalar.atomic_series import Series
from emulator.arith.scalar.rule import bind_vector
from emulator.arith.scalar.types import TYPES
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.vector import atomics
from emulator.machine.vector.atomics import Update, perform

OPERATIONS = [
    *(f"{x}.{t}" for x in ("add", "min", "max") for t in ("u32", "s32", "u64", "s64")),
    *(f"{x}.b{n}" for x in ("and", "or", "xor", "exch", "cas") for n in (32, 64)), "cas.b16",
    "inc.u32", "dec.u32", "add.f32", "add.f64", "add.noftz.f16x2",
]  # fmt: skip
#: f32: a NaN, infinities, subnormals, what becomes one, zeros of both signs
SPECIAL = [0x7FC00001, 0x7F800000, 0xFF800000, 1, 0x807FFFFF, 0x00800000, 0x80800001, 0, 1 << 31]
LANES = 72


def instruction(operation):
    name = operation.replace("add.s64", "add.u64")
    return OrdinaryInstruction.parse(f"atom.global.{name}")


def operands(random, t, operation, kind):
    """Words of two operands: a few that are alike, any, or floating-point numbers."""
    few = random.integers(0, 6, (2, LANES)).astype(t.dtype)
    if kind == "few":
        return tuple(few)
    if kind == "one":
        return np.full(LANES, 5, t.dtype), few[1]
    if t.is_float and t.count == 1:
        words = random.standard_normal((2, LANES)).astype(t.values).view(t.dtype)
        if kind == "special":
            at = random.integers(0, LANES, 5)
            words[0, at] = np.array(random.choice(SPECIAL, 5), t.dtype) << t.dtype.type(t.bits - 32)
        return tuple(words)
    return tuple(random.integers(0, 1 << t.size, (2, LANES), dtype=np.uint64).astype(t.dtype))


def one_after_the_other(ins, held, places, words):
    """What each lane finds and what is there at the end, by the rule on integers."""
    t, operation = TYPES[ins.types[-1]], ins.modifiers["operation"]
    before, held = [], held.tolist()
    for place, *given in zip(places.tolist(), *(x.tolist() for x in words), strict=True):
        before.append(held[place])
        after = 0
        for at in range(0, t.size, t.bits):
            parts = [word >> at & t.mask for word in (held[place], *given)]
            after |= update(t.element, *parts, operation=operation) << at
        held[place] = after
    return before, held


def check(operation, kind, seed=0):
    ins = instruction(operation)
    t, name = TYPES[ins.types[-1]], ins.modifiers["operation"]
    random = np.random.default_rng([seed, len(kind)])
    words = operands(random, t, name, kind)[: 2 if name == "cas" else 1]
    for spread in (1, 3, 40, 4096):
        places = random.integers(0, spread, LANES)
        held = operands(random, t, name, "few" if kind == "one" else kind)[0]
        held = np.resize(held, spread)
        expected = one_after_the_other(ins, held, places, words)
        for wanted in (True, False):
            view = held.copy()
            does = Update(bind_vector(ins, space="global"), Series(t, name), 1, wanted)
            found, changed = perform(view, places, words, does)
            if wanted:
                assert found.tolist() == expected[0]
            assert view.tolist() == expected[1]
            assert changed or (view == held).all()


KINDS = ("any", "few", "one", "special")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_lanes_go_one_after_the_other(operation, kind):
    check(operation, kind)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_more_lanes_go_one_after_the_other(operation):
    for seed in range(1, 4):
        for kind in KINDS:
            check(operation, kind, seed)


def test_sums_that_a_gpu_flushes_are_not_numpys():
    """0x00800001 - 0x00800000 is subnormal, and flushed in global memory."""
    held, words = np.array([0x00800001], np.uint32), np.array([0x80800000, 0], np.uint32)
    does = Update(
        bind_vector(instruction("add.f32"), space="global"), Series(TYPES["f32"], "add"), 1, False
    )
    perform(held, np.zeros(2, np.int64), (words,), does)
    assert held.tolist() == [0]


@pytest.mark.parametrize("operation", ["add.u32", "exch.b32", "inc.u32"])
def test_a_difference_is_noticed(operation, monkeypatch):
    found = Series.found

    def wrong(self, old, words, starts):
        before, after = found(self, old, words, starts)
        return before, after ^ (np.arange(len(after)) == 0).astype(after.dtype)

    monkeypatch.setattr(Series, "found", wrong)
    with pytest.raises(AssertionError):
        check(operation, "one")


@pytest.mark.parametrize("way", ["_compare_and_swap", "_swap_at_one", "_in_turns"])
def test_a_difference_of_a_swap_is_noticed(way, monkeypatch):
    """Swaps at several locations, at one, and those that follow each other at one."""
    swap = getattr(atomics, way)

    def wrong(*given):
        done = swap(*given)
        return done and (done[0] ^ (np.arange(LANES) == LANES - 1), done[1])

    monkeypatch.setattr(atomics, way, wrong)
    with pytest.raises(AssertionError):
        for seed in range(24):
            check("cas.b32", "one" if seed else "few", seed)


def test_the_least_magnitude_is_noticed(monkeypatch):
    monkeypatch.setitem(atomic_series._SUMS, TYPES["f32"], np.float32(0))
    with pytest.raises(AssertionError):
        test_sums_that_a_gpu_flushes_are_not_numpys()


@pytest.mark.parametrize("engine", ["reference", "vector", "compiled"])
def test_noftz_keeps_subnormal_sums(engine):
    """ptxas makes REDG.ADD.F32.FTZ without .noftz, and REDG.ADD.F32 with it."""
    text = """.version 9.4\n.target sm_90a\n.address_size 64
.entry k(.param .u64 p) { .reg .b64 %p; .reg .f32 %f; ld.param.u64 %p, [p];
  mov.f32 %f, 0f00000001; red.global.add.f32 [%p], %f; red.global.add.noftz.f32 [%p+4], %f; ret; }
"""
    words = np.array([1, 1], np.uint32)
    Module(text)["k"].launch(1, 1, [words], engine=engine)
    assert words.tolist() == [0, 2]
