"""The fault finder on loops along k: long ones are computed as one product, and pairs of mistakes
are bounded."""

from dataclasses import replace

import numpy as np
import pytest
from planted import DENSE

from emulator import Instruction, find_faults, gemm
from emulator.targets import find_target
from emulator.tools.faults import kernel, search
from emulator.tools.faults.kernel import RecordedKernel

INTEGER = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
BITS = Instruction.parse("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc")
DOUBLE = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
TF32 = Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
QUAD = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32")
PADDED = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e3m2.f32")


def random_kernel(ins, steps, seed=0):
    """Every bit of every register at random: NaNs, infinities and subnormals among them."""
    rng = np.random.default_rng(seed)
    words = {}
    for name in "abc":
        fragment = ins.fragment(name)
        shape = (fragment.lanes, fragment.registers)
        shape = shape if name == "c" else (steps, *shape)
        type_ = np.uint32 if fragment.word_bits == 32 else np.uint64
        words[name] = rng.integers(0, np.iinfo(type_).max, shape, type_, endpoint=True)
    return RecordedKernel(ins, find_target("sm_80"), words)


@pytest.mark.parametrize("ins", [DENSE, INTEGER, BITS, DOUBLE, TF32, QUAD], ids=str)
@pytest.mark.parametrize("steps", [2, 3, 8])
def test_a_long_product_is_that_of_its_steps(ins, steps):
    kernels = [random_kernel(ins, steps, seed) for seed in range(8)]
    words = {x: np.stack([k.words[x] for k in kernels]) for x in "abc"}
    executed = kernel._executed(kernels[0], words)
    assert kernel._is_plain_loop(kernels[0])
    assert np.array_equal(kernel._chained(kernels[0], words), executed)
    for one, d in zip(kernels, executed, strict=True):
        assert np.array_equal(one.run(), d)


def test_what_no_loop_carries_is_not_chained():
    one = random_kernel(DENSE, 3)
    assert not kernel._is_plain_loop(random_kernel(DENSE, 1))
    # `execute` refuses what stands beside a code of 6 bits in its byte.
    assert not kernel._is_plain_loop(random_kernel(PADDED, 3))
    assert not kernel._is_plain_loop(replace(one, carries=False))
    last = one.using(a=one.words["a"][-1:], b=one.words["b"][-1:])
    assert np.array_equal(replace(one, carries=False).run(), last.run())
    assert not np.array_equal(one.run(), last.run())


def loop(k):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((16, k)).astype("f2"), rng.standard_normal((k, 8)).astype("f2")
    return a, b, rng.standard_normal((16, 8)).astype("f4")


def test_two_mistakes_in_a_loop_are_found():
    a, b, c = loop(64)

    def wrong(name, matrix, order):
        """The matrix that the lanes' registers in another order are."""
        fragment = DENSE.fragment(name)
        parts = kernel.split_k(name, matrix.view("u2"), 4)
        turned = fragment.gather(fragment.scatter(parts)[..., order])
        return np.concatenate(list(turned), -2 if name == "b" else -1).view("f2")

    d = gemm(wrong("a", a, [1, 0, 2, 3]), wrong("b", b, [1, 0]), c,
             instruction=DENSE, target="sm_80")  # fmt: skip
    report = find_faults(DENSE, a, b, c, target="sm_80", d=d, pairs=True)
    assert report[0].detail == "a0 and a1 exchanged, and b0 and b1 exchanged"
    assert find_faults(DENSE, a, b, c, target="sm_80", d=d).verdict == "none"


def test_pairs_are_bounded_and_the_report_says_so(monkeypatch):
    a, b, c = loop(32)
    garbage = np.random.default_rng(9).standard_normal((16, 8)).astype("f4")
    plain = find_faults(DENSE, a, b, c, target="sm_80", d=garbage)
    work = 16 * 8 * 32
    for most, allowed, text in (
        (700, 1 << 29, "of the pairs of mistakes only the first 700 were tried"),
        (
            40_000,
            900 * work,
            f"only the first 900 were tried: K is long, {work} multiply-adds each",
        ),
        (40_000, work, f"only the first 512 were tried: K is long, {work} multiply-adds each"),
    ):
        monkeypatch.setattr(search, "_MOST_PAIRS", most)
        monkeypatch.setattr(search, "_MOST_WORK", allowed)
        report = find_faults(DENSE, a, b, c, target="sm_80", d=garbage, pairs=True)
        (note,) = [x for x in report.notes if "pairs of mistakes" in x]
        assert text in note and note in str(report) and note in report.data["notes"]
        count = int(text.split("first ")[1].split()[0])
        assert report.tried == plain.tried + count
        assert report.verdict == plain.verdict
