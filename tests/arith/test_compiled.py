"""The compiled engine: chains of multiply-adds, threads, and life without llvmlite."""

import importlib
import itertools
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from bits import assert_same_codes
from designed import Case, any_bits, boundary
from dots import FAST, ROUNDINGS, by_hand, each_fast
from edges import chain

from dtypes import code_type
from emulator import OperandError, gemm
from emulator.arith import engines, matmul, vector
from emulator.arith.fast import threads as pieces

pytestmark = pytest.mark.sampled(4)

quick = importlib.import_module("emulator.arith.matmul")
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
CHAINS = {
    **{f"f64 {how}": replace(by_hand("mma hopper f64 f64"), rounding=how) for how in ROUNDINGS},
    "quad f32": by_hand("quad hopper f16 f32"),
    "quad f16": by_hand("quad ampere f16 f16"),
}
#: chains that the compiled engine computes itself
QUICK = list(CHAINS)
each_chain = pytest.mark.parametrize("name", CHAINS)


def check(name, engine, a, b, c):
    """A chain of instructions of k = 4, against single dots; D of a narrowed recipe is C's type."""
    case = Case(name, CHAINS[name], 4, 0)
    got = matmul(case.arithmetic, a, b, c, k=4, engine=engine)
    assert_same_codes(got, chain(case, 4, a, b, c), c=c)


def zero(fmt, shape):
    return np.zeros(shape, code_type(fmt.bits))


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "k", "engine"), [*itertools.product(QUICK, (4, 12), FAST)])
def test_random_and_boundary_codes(name, k, engine):
    rng, arithmetic = np.random.default_rng(400 + k), CHAINS[name]
    for m, n in ((5, 9), (9, 5), (1, 33)) if engine == "compiled" else ((3, 5),):
        sizes = (2, m, k), (2, n, k), (2, m, n)
        formats = arithmetic.a, arithmetic.b, arithmetic.c
        drawn = [any_bits(rng, fmt, size) for fmt, size in zip(formats, sizes, strict=True)]
        check(name, engine, *drawn)
        edges = [rng.choice(boundary(fmt), size) for fmt, size in zip(formats, sizes, strict=True)]
        # NaNs and infinities in all dots would hide the rest.
        kept = [np.where(rng.integers(0, 20, x.shape), y & y.dtype.type(3), x)
                for x, y in zip(edges, drawn, strict=True)]  # fmt: skip
        check(name, engine, *edges)
        check(name, engine, *kept)


@each_fast
@each_chain
def test_signs_of_zero(name, engine):
    arithmetic = CHAINS[name]
    fmt_a, fmt_c = arithmetic.a, arithmetic.c
    signs = np.array([0, fmt_a.sign_mask, fmt_a.bias << fmt_a.mantissa_bits])
    a = np.stack(np.meshgrid(*[signs] * 4), -1).reshape(-1, 4).astype(code_type(fmt_a.bits))
    for start in (0, fmt_c.sign_mask, fmt_c.bias << fmt_c.mantissa_bits):
        for b in (0, fmt_a.sign_mask):
            c = np.full((len(a), 1), start, code_type(fmt_c.bits))
            check(name, engine, a, np.full((1, 4), b, a.dtype), c)


@each_fast
@each_chain
def test_subnormals(name, engine):
    """Operands, products and results below the normal numbers: nothing is flushed to zero."""
    rng, arithmetic = np.random.default_rng(401), CHAINS[name]
    fmt, normal = arithmetic.a, 1 << arithmetic.a.mantissa_bits
    one = fmt.bias << fmt.mantissa_bits
    a = rng.integers(1, 4 * normal, (6, 8)).astype(code_type(fmt.bits))
    b = rng.choice([one, one - normal, one | fmt.sign_mask, one + 1], (7, 8)).astype(a.dtype)
    c = rng.integers(0, 4 << arithmetic.c.mantissa_bits, (6, 7), np.uint64)
    c = c.astype(code_type(arithmetic.c.bits))
    check(name, engine, a, b, c)
    if fmt is arithmetic.d:
        got = matmul(arithmetic, a[:1, :4], b[:1, :4], c[:1, :1], engine=engine)
        assert got[0, 0] & ~np.uint64(fmt.sign_mask)


@each_fast
def test_nan_payloads_of_f64(engine):
    """B's NaN survives before the accumulator's before A's, quieted (measured)."""
    fmt = CHAINS["f64 rn"].a
    one = fmt.bias << fmt.mantissa_bits
    quiet, payloads = 0x7FF8 << 48, (0x7FF0000000000001, 0xFFF8000000000002, 0x7FF4000000000003)
    cases = [
        # NaN of a, of b, of c, and the result
        ((payloads[0], one, one), payloads[0] | quiet),
        ((payloads[0], payloads[1], one), payloads[1] | quiet),
        ((payloads[0], payloads[1], payloads[2]), payloads[1] | quiet),
        ((payloads[0], one, payloads[2]), payloads[2] | quiet),
        ((one, one, payloads[2]), payloads[2] | quiet),
        ((fmt.infinity, 0, one), 0xFFF8 << 48),
        ((fmt.infinity, one, fmt.infinity | fmt.sign_mask), 0xFFF8 << 48),
    ]
    for (a, b, c), want in cases:
        left, right = zero(fmt, (3, 8)), zero(fmt, (3, 8))
        left[1, 0], right[1, 0] = a, b
        x = np.full((3, 3), one, np.uint64)
        x[1, 1] = c
        got = matmul(CHAINS["f64 rn"], left, right, x, k=4, engine=engine)
        assert f"{got[1, 1]:#x}" == f"{want:#x}"


def test_the_quick_way_is_taken(monkeypatch):
    pytest.importorskip("llvmlite")

    def refuse(*_):
        raise AssertionError("by single dots")

    monkeypatch.setattr(quick, "_by_dots", refuse)
    for arithmetic in CHAINS.values():
        operands = (zero(arithmetic.a, (5, 4)), zero(arithmetic.b, (6, 4)),
                    zero(arithmetic.c, (5, 6)))  # fmt: skip
        matmul(arithmetic, *operands, k=4, engine="compiled")


@pytest.mark.parametrize("how", ("rz", "rm", "rp"))
def test_roundings_of_the_machine_are_set_and_taken_back(how, monkeypatch):
    """In every thread that computes; a machine that lacks them is told from one that has them."""
    pytest.importorskip("llvmlite")
    rng, arithmetic = np.random.default_rng(405), CHAINS[f"f64 {how}"]
    a, b, c = (rng.standard_normal(s).view(np.uint64) for s in ((90, 96), (80, 96), (90, 80)))
    got = matmul(arithmetic, a, b, c, k=4, engine="compiled")
    part = matmul(arithmetic, a[:9], b[:5], c[:9, :5], k=4, engine="vector")
    assert_same_codes(got[:9, :5], part)
    nearest = matmul(CHAINS["f64 rn"], a, b, c, k=4, engine="compiled")
    assert np.count_nonzero(got != nearest) > 0.9 * got.size
    assert (np.ones(8) + 2.0**-80 == 1).all() and (2.0**-80 - np.ones(8) == -1).all()
    modes = importlib.import_module("emulator.arith.rounding_modes")
    assert modes._reaches_vectors.__wrapped__(how)
    monkeypatch.setattr(modes, "_set_mode", lambda: lambda mode: None)
    assert not modes._reaches_vectors.__wrapped__(how)
    modes._reaches_vectors.cache_clear()
    assert modes.rounded(print, how) is None
    modes._reaches_vectors.cache_clear()


@pytest.mark.parametrize("name", ("f64 rn", "quad f16"))
def test_the_codes_would_show_unfused_multiply_adds(name, monkeypatch):
    """The planted error: a rounding too many."""
    pytest.importorskip("llvmlite")
    compiled = importlib.import_module("emulator.arith.fast.compiled")

    def planted(operation, bits):
        def rows(first, last, a, b, x, *sizes):
            """Every product rounded, and added to the accumulator itself."""
            y = x.view(f"f{bits // 8}").reshape(*x.shape[:2], -1, compiled.COLUMNS)
            p = a.view(y.dtype)
            for k in range(p.shape[-1]):
                y += p[..., k, None, None] * b.view(y.dtype)[:, None, :, k]

        return rows

    rng, arithmetic = np.random.default_rng(402), CHAINS[name]
    dtype = {64: np.float64, 32: np.float32, 16: np.float16}
    a, b, c = (
        rng.standard_normal(size).astype(dtype[fmt.bits])
        for fmt, size in ((arithmetic.a, (1, 9, 4)), (arithmetic.b, (1, 9, 4)),
                          (arithmetic.c, (1, 9, 9)))
    )  # fmt: skip
    # The last product loses bits in the sum with the one before, which the first one cancels.
    a[..., 0], a[..., 1], a[..., 2], b[..., 2], c = 999, 0, -999, b[..., 0], c * 0
    drawn = [x.view(f"u{x.dtype.itemsize}") for x in (a, b, c)]
    check(name, "compiled", *drawn)
    monkeypatch.setattr(compiled, "row_tasks", planted)
    with pytest.raises(AssertionError, match="codes differ"):
        check(name, "compiled", *drawn)


# --- threads and processes ------------------------------------------------------------------------


def product(seed, engine="compiled"):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(size).astype(np.float16) for size in ((96, 128), (128, 160)))
    return gemm(a, b, instruction=F16, target="sm_90a", engine=engine).view(np.uint32)


def test_several_threads_of_a_program_at_once():
    """Each of them is large enough to be shared out among the threads of the engine."""
    pytest.importorskip("llvmlite")
    want = [product(seed, "vector") for seed in range(3)]
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(product, [0, 1, 2] * 8))
    for i, d in enumerate(got):
        assert_same_codes(d, want[i % 3])


def test_pieces_of_a_batch_in_several_threads_at_once(monkeypatch):
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(quick, "_COMPILED_PIECE", 1 << 14)
    arithmetic, rng = by_hand("mma hopper f16 f32"), np.random.default_rng(403)
    a, b = rng.integers(0, 0x3C00, (40, 16, 32), np.uint16), rng.integers(0, 0x3C00, (8, 32))
    b, c = b.astype(np.uint16), np.zeros((16, 8), np.uint32)
    want = matmul(arithmetic, a, b, c, k=16, engine="vector")
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(matmul, arithmetic, a, b, c, k=16, engine="compiled") for _ in range(8)]
    for job in jobs:
        assert_same_codes(job.result(), want)


@pytest.mark.parametrize("threads", (1, 4))
def test_parts_are_computed_once_each_and_those_within_by_the_same_thread(threads, monkeypatch):
    monkeypatch.setattr(pieces, "processors", lambda: threads)
    done = []

    def outer(part):
        this = threading.get_ident()
        pieces.in_threads(lambda x: done.append((part, x, threading.get_ident() == this)), "xy")

    pieces.in_threads(outer, range(50))
    assert sorted(done) == [(part, x, True) for part in range(50) for x in "xy"]


def test_a_part_that_fails_ends_the_others(monkeypatch):
    monkeypatch.setattr(pieces, "processors", lambda: 4)
    done = []

    def piece(part):
        if part == 3:
            raise ValueError("planted")
        time.sleep(0.001)
        done.append(part)

    with pytest.raises(ValueError, match="planted"):
        pieces.in_threads(piece, range(9999))
    assert len(done) < 999
    pieces.in_threads(done.append, ["next"])
    assert done[-1] == "next"


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"  # the very thing tested: a fork beside threads
)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_computes_too():
    """It inherits the engine's threads by name only: a task given to them would wait for ever."""
    pytest.importorskip("llvmlite")
    want = product(0)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert_same_codes(pool.apply_async(product, (0,)).get(400), want)


# --- which engine "auto" is -----------------------------------------------------------------------


def test_auto_goes_by_the_work(monkeypatch):
    limit = engines._WORTH_STARTING
    monkeypatch.setattr(engines, "_missing", lambda: "")
    monkeypatch.setitem(sys.modules, "emulator.arith.fast.compiled", object())
    assert engines.choose("auto", 1) == "compiled"  # it has started already
    monkeypatch.delitem(sys.modules, "emulator.arith.fast.compiled")
    assert engines.choose("auto", limit - 1) == "vector"
    assert engines.choose("auto", limit) == "compiled"
    for engine in ("reference", "vector", "compiled"):
        assert engines.choose(engine, 1) == engine


def test_auto_makes_code_of_a_recipe_when_the_work_has_paid_for_it(monkeypatch):
    monkeypatch.setattr(engines, "_missing", lambda: "")
    monkeypatch.setitem(sys.modules, "emulator.arith.fast.compiled", object())
    monkeypatch.setattr(engines, "_asked", {})
    part = engines._WORTH_CODE // 4
    found = [engines.choose("auto", part, "a recipe") for _ in range(5)]
    assert found == ["vector"] * 3 + ["compiled"] * 2
    assert engines.choose("auto", part, "another") == "vector"
    assert engines.choose("compiled", 1, "another") == "compiled"


@pytest.mark.parametrize("engine", ("Vector", "", None, 3, ["vector"]))
def test_no_such_engine(engine):
    ones = np.ones((1, 4), np.uint16)
    for c in (np.zeros((1, 1), np.uint16), np.zeros((0, 1), np.uint16)):
        with pytest.raises(OperandError, match=r"no engine .*; engines are auto, reference, vec"):
            matmul(by_hand("quad hopper f16 f16"), ones[: len(c)], ones, c, engine=engine)


def test_vector_is_what_single_dots_are():
    """`dot` is `matmul` of matrices with one element."""
    arithmetic, rng = by_hand("mma hopper f16 f32"), np.random.default_rng(404)
    a, b, c = (any_bits(rng, f, s) for f, s in ((arithmetic.a, (40, 16)), (arithmetic.b, (40, 16)),
                                               (arithmetic.c, 40)))  # fmt: skip
    assert_same_codes(
        quick.dot(arithmetic, a, b, c, engine="vector"), vector.dot(arithmetic, a, b, c)
    )
