"""`gemm` of Dask arrays: lazy, in any chunks, on workers that die, with the bits of one process."""

import os
import pickle
import signal
import time

import ml_dtypes
import numpy as np
import pytest
from bits import assert_same_codes
from test_gemm import EACH, F16, FP8, drawn

from dtypes import array_from_codes
from emulator import Instruction, OperandError, gemm, mma
from emulator.matrices import tiles

pytestmark = pytest.mark.sampled(4)

da = pytest.importorskip("dask.array")

#: sizes of m, k, n and chunk sizes of each
SIZES = (37, 100, 21)
CHUNKS = {
    "one chunk": (37, 100, 21),
    "k in instructions": (16, 32, 8),
    "k in two": (37, 64, 21),
    "k off the instructions": (10, 30, 7),
    "single columns": (37, 100, 1),
    "single rows": (1, 100, 21),
    "uneven": ((30, 7), (16, 48, 32, 4), (1, 19, 1)),
    "k ends off": ((37,), (96, 4), (21,)),
    "k begins off": ((37,), (4, 96), (21,)),
    "empty chunks": ((0, 37), (32, 0, 68), (21, 0)),
}
each_chunking = pytest.mark.parametrize("chunks", CHUNKS.values(), ids=list(CHUNKS))


def computed(lazy):
    return lazy.compute(scheduler="synchronous")


def pieces(chunks, a, b, c=None):
    m, k, n = chunks
    c = None if c is None else da.from_array(c, chunks=(m, n))
    return da.from_array(a, chunks=(m, k)), da.from_array(b, chunks=(k, n)), c


@each_chunking
@pytest.mark.parametrize("promote", (None, 32))
def test_chunks_change_nothing(chunks, promote):
    m, k, n = SIZES
    operands = drawn(Instruction.parse(F16), m, n, k)
    given = {"instruction": F16, "target": "sm_90a", "codes": True, "k_promote": promote}
    want = gemm(*operands, **given)
    lazy = gemm(*pieces(chunks, *operands), **given)
    assert isinstance(lazy, da.Array)
    assert (lazy.shape, lazy.dtype) == (want.shape, want.dtype)
    assert_same_codes(computed(lazy), want)


@pytest.mark.parametrize("name", EACH)
def test_each_instruction_in_codes_and_in_values(name):
    text, target = EACH[name]
    ins = Instruction.parse(text)
    arithmetic = ins.arithmetic(target)
    a, b, c = drawn(ins, 5, 6, 2 * ins.k + 3)
    want = gemm(a, b, c, instruction=text, target=target, codes=True)
    chunks = (3, ins.k, 4)
    lazy = gemm(*pieces(chunks, a, b, c), instruction=text, target=target, codes=True)
    assert_same_codes(computed(lazy), want)
    a, b, c = (
        array_from_codes(fmt, x)
        for fmt, x in ((arithmetic.a, a), (arithmetic.b, b), (arithmetic.c, c))
    )
    lazy = gemm(*pieces(chunks, a, b, c), instruction=text, target=target)
    d = computed(lazy)
    assert lazy.dtype == d.dtype == array_from_codes(arithmetic.d, want).dtype
    assert_same_codes(d.view(want.dtype), want)


def test_nothing_is_computed_before_it_is_asked_for(monkeypatch):
    def refuse(*_):
        raise AssertionError("computed")

    dask_gemm = pytest.importorskip("emulator.matrices.dask_gemm")
    monkeypatch.setattr(dask_gemm, "accumulate", refuse)
    a = da.from_delayed(_never(), (40, 64), np.float16)
    lazy = gemm(a, a.T, instruction=F16, target="sm_80")
    assert lazy.shape == (40, 40)
    with pytest.raises(AssertionError, match="never"):
        computed(lazy)


def _never():
    import dask

    @dask.delayed
    def never():
        raise AssertionError("never")

    return never()


@pytest.mark.parametrize("which", ("a", "b", "c"))
def test_one_operand_may_be_lazy_and_the_others_not(which):
    operands = dict(zip("abc", drawn(Instruction.parse(F16), 20, 21, 50), strict=True))
    given = {"instruction": F16, "target": "sm_80", "codes": True}
    want = gemm(*operands.values(), **given)
    operands[which] = da.from_array(operands[which], chunks=7)
    assert_same_codes(computed(gemm(*operands.values(), **given)), want)
    if which != "c":
        del operands["c"]
        assert computed(gemm(*operands.values(), **given)).shape == (20, 21)


def test_threads_of_one_process():
    operands = drawn(Instruction.parse(F16), 64, 64, 64)
    given = {"instruction": F16, "target": "sm_80", "codes": True}
    lazy = gemm(*pieces((16, 32, 16), *operands), **given)
    assert_same_codes(lazy.compute(scheduler="threads", num_workers=4), gemm(*operands, **given))


def test_empty_sides():
    for m, k, n in ((0, 4, 3), (3, 0, 4), (3, 4, 0), (0, 0, 0)):
        a, b, c = drawn(Instruction.parse(F16), m, n, k)
        given = {"instruction": F16, "target": "sm_80", "codes": True}
        lazy = gemm(*(da.from_array(x, chunks=-1) for x in (a, b, c)), **given)
        assert_same_codes(computed(lazy), gemm(a, b, c, **given))


def test_more_can_be_done_with_the_result_before_it_is_computed():
    a = np.arange(256, dtype=np.float16).reshape(16, 16) / 64
    lazy = gemm(da.from_array(a, chunks=8), a, instruction=F16, target="sm_80")
    want = gemm(a, a, instruction=F16, target="sm_80")
    assert np.array_equal(computed((lazy * 2)[3:5].astype(np.float64)), want[3:5] * 2.0)
    twice = gemm(lazy.astype(np.float16), a, instruction=F16, target="sm_80")
    again = gemm(want.astype(np.float16), a, instruction=F16, target="sm_80")
    assert np.array_equal(computed(twice), again)


ONES = da.ones((8, 16), chunks=4, dtype=np.float16)


@pytest.mark.parametrize(("change", "words"), [
    ({"b": ONES}, r"A is \(m, k\), B is \(k, n\).*got A \(8, 16\), B \(8, 16\)"),
    ({"c": da.zeros((8, 9), dtype=np.float32)}, r"got A \(8, 16\), B \(16, 8\), C \(8, 9\)"),
    ({"a": ONES[None]}, r"A: gemm takes two-dimensional Dask arrays of float16; got float16 \(1,"),
    ({"a": ONES[0]}, r"two-dimensional.* got float16 \(16,\)"),
    ({"b": ONES.T.astype(np.float32)}, "B: gemm takes.*of float16; got float32"),
    ({"c": np.zeros((8, 8))}, "C: gemm takes.*of float32; got float64"),
    ({"codes": True}, "A: gemm takes.*of uint16; got float16"),
    ({"out": np.zeros((8, 8), np.float32)}, "out= and first_tile= are for arrays in memory"),
    ({"first_tile": 1}, "out= and first_tile="),
    ({"k_promote": 24}, "k_promote is a multiple of 16"),
    ({"engine": "quick"}, "no engine 'quick'"),
])  # fmt: skip
def test_refused_when_it_is_built(change, words):
    given = {"a": ONES, "b": ONES.T, "instruction": F16, "target": "sm_80", **change}
    with pytest.raises(OperandError, match=words):
        gemm(given.pop("a"), given.pop("b"), given.pop("c", None), **given)


def test_codes_that_do_not_fit_are_refused_when_they_are_met():
    bits = np.full((8, 128), 2, np.uint8)
    text = "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc"
    lazy = gemm(da.from_array(bits), bits.T, instruction=text, target="sm_80", codes=True)
    with pytest.raises(OperandError, match="code 0x2 does not fit the 1 bits of b1"):
        computed(lazy)


def test_the_comparison_would_show_k_in_another_order(monkeypatch):
    """The planted error: chunks of k that do not end between instructions."""
    dask_gemm = pytest.importorskip("emulator.matrices.dask_gemm")
    monkeypatch.setattr(
        dask_gemm, "accumulate",
        lambda order, a, b, c: tiles.accumulate(order, a[:, ::-1], b[::-1], c),
    )  # fmt: skip
    with pytest.raises(AssertionError, match="codes differ"):
        test_chunks_change_nothing(CHUNKS["k in two"], None)


def test_an_arithmetic_means_the_same_in_another_process():
    """Formats are compared by identity: what a worker unpickles must be the very same."""
    ins = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
    arithmetic = ins.arithmetic("sm_90a")
    again = pickle.loads(pickle.dumps(arithmetic))
    assert again == arithmetic
    assert all(getattr(again, x) is getattr(arithmetic, x) for x in "abcd")


# --- a cluster ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_worker_processes(client):
    pids = client.run(os.getpid)
    assert len({*pids.values(), os.getpid()}) == 3
    m, k, n = 150, 300, 170
    rng = np.random.default_rng(500)
    a = rng.standard_normal((m, k)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((k, n)).astype(ml_dtypes.float8_e4m3fn)
    for promote in (None, 128):
        given = {"instruction": FP8, "target": "sm_90a", "k_promote": promote}
        lazy = gemm(*pieces((40, 128, 50), a, b), **given)
        assert_same_codes(lazy.compute().view("u4"), gemm(a, b, **given).view("u4"))


@pytest.mark.slow
def test_nan_payloads_survive_the_way_to_a_worker(client):
    """f64 keeps the payload of a NaN, also from one chunk of k to the next."""
    text = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    a, b = np.zeros((3, 20)), np.zeros((20, 3))
    c = np.full((3, 3), 0x7FF4000000001234, np.uint64).view(np.float64)
    lazy = gemm(*pieces((2, 8, 2), a, b, c), instruction=text, target="sm_90a")
    want = np.full((3, 3), 0x7FFC000000001234, np.uint64)
    assert_same_codes(lazy.compute().view(np.uint64), want)
    assert_same_codes(gemm(a, b, c, instruction=text, target="sm_90a").view(np.uint64), want)


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(client):
    operands = drawn(Instruction.parse(F16), 512, 512, 1024)
    given = {"instruction": F16, "target": "sm_80", "codes": True, "engine": "vector"}
    want = gemm(*operands, **given)
    lazy = gemm(*pieces((128, 128, 128), *operands), **given)
    before = client.run(os.getpid)
    future = client.compute(lazy)
    # Until a part of the 128 steps is done, and held by the worker that is about to die.
    victim = next(iter(before))
    while len(client.has_what()[victim]) < 4 and not future.done():
        time.sleep(0.01)
    assert not future.done()
    os.kill(before[victim], signal.SIGKILL)
    assert_same_codes(future.result(timeout=300), want)
    client.wait_for_workers(2, timeout=60)
    assert before[victim] not in client.run(os.getpid).values()


def test_mma_is_what_a_chunk_computes():
    """One instruction, one chunk: no other arithmetic comes in on the way."""
    ins = Instruction.parse(F16)
    a, b, c = drawn(ins, ins.m, ins.n, ins.k)
    lazy = gemm(da.from_array(a), b, c, instruction=ins, target="sm_80", codes=True)
    assert_same_codes(computed(lazy), mma(ins, a, b, c, target="sm_80", codes=True))
