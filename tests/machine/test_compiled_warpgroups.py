"""wgmma and mbarriers in native loops: the bytes, counts and errors of the vector engine."""

import ctypes
import gc
from functools import lru_cache

import numpy as np
import pytest
from interrupts import BODIES, KERNEL, forget
from llvmlite import ir
from test_compiled_engine import assert_same, ended
from test_wgmma_order import COMMIT, MULTIPLY, TEXT, wait

from emulator import Module
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.words import LONG
from emulator.machine.compiled import mbarriers
from emulator.machine.compiled.warp_emitter import WarpEmitter
from emulator.machine.reference import engine as reference_engine
from emulator.machine.vector import mbarriers as steps
from emulator.machine.vector import wgmma
from emulator.memory.mbarrier import MAX_COUNT, Barrier, Change

pytestmark = pytest.mark.sampled(5)

#: descriptors of the room's bytes as they lie in memory: bits that are added to %a and %b
SWIZZLES = {"none": 0, "128B": 1 << 62, "64B": 2 << 62, "32B": 3 << 62}
LOOP = """mov.u32 %r10, 0; AGAIN: wgmma.fence.sync.aligned; {body} {commit} {wait}
    add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, {turns}; @%p1 bra AGAIN;"""


@pytest.fixture(autouse=True)
def fast_arithmetic(monkeypatch):
    """The reference engine multiplies by fast arithmetic: who multiplies when matters here."""
    monkeypatch.setattr(reference_engine, "ARITHMETIC", "auto")


def multiply(types="f32", a="%a", b="%b", d="%d", scale_d="1", last="1, 1"):
    """wgmma.mma_async; `last`: imm_scales, without those for transposed matrices."""
    words, count = MULTIPLY[types]
    in_registers = a == "registers"
    a = "{%x0, %x1, %x2, %x3}" if in_registers else a
    sums = ", ".join(f"{d}{i}" for i in range(count))
    last = "" if types == "s32" else f", {last}" + (", 0" if in_registers else ", 0, 0")
    return f"wgmma.mma_async.sync.aligned.{words} {{{sums}}}, {a}, {b}, {scale_d}{last};"


def loop(body, turns=3):
    return LOOP.format(body=body, commit=COMMIT, wait=wait(), turns=turns)


def check(body, block=128, grid=2):
    """The vector, the compiled and the reference engine give the same; what the first does."""
    text = TEXT.format(body=body, functions="")
    out = np.zeros((grid * block, 8), np.uint32)
    found = assert_same(text, grid, block, [out])
    if isinstance(found[0], list):
        assert ended("reference", Module(text)["go"], grid, block, [out])[0] == found[0]
        assert np.frombuffer(found[0][0], np.uint32).any()
    return found


# --- products -------------------------------------------------------------------------------------

PRODUCTS = {
    **{f"{types}, {a}": multiply(types, a) for types in MULTIPLY for a in ("%a", "registers")},
    "two accumulators": multiply() + multiply("f16", d="%e"),
    "C is not read": "setp.ne.u32 %p2, %r10, 1;" + multiply(scale_d="%p2"),
    "signs": multiply(last="-1, 1") + multiply("f16", "registers", d="%e", last="-1, -1"),
    "A changes": multiply(a="registers") + "mov.b32 %x1, %d0; add.u32 %x2, %x2, 3;",
    "sums of sums": multiply(d="%e") + "add.f32 %d0, %d0, %e1; mov.b32 %e2, %d0;",
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    check(loop(PRODUCTS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("step", [2, 8, 64])
def test_descriptors(swizzle, step):
    """Every turn has others, so that those of the first are not enough."""
    bits = SWIZZLES[swizzle] & (1 << 64) - 1
    body = f"or.b64 %a, %a, {bits}; or.b64 %b, %b, {bits};" + loop(
        multiply() + f"add.u64 %a, %a, {step}; xor.b64 %b, %b, 64;", 4
    )
    check(body)


@pytest.mark.slow
@pytest.mark.parametrize("block", [256, 384])
def test_several_warpgroups(block):
    """Each has descriptors of its own, and goes round for as long as it likes."""
    body = "shr.u32 %r11, %t, 7; add.u32 %r12, %r11, 2;"
    check(body + loop(multiply() + "add.u64 %b, %b, 2;", "%r12"), block)


@pytest.mark.slow
def test_a_warp_that_lags():
    """One warp of four has more to do before its product, in every turn."""
    lags = """shr.u32 %r11, %t, 5; setp.ne.u32 %p3, %r11, 2; @%p3 bra THERE; mov.u32 %r12, 0;
        MORE: add.u32 %r12, %r12, 1; setp.lt.u32 %p4, %r12, 9; @%p4 bra MORE;
        add.u32 %x1, %x1, %r12; THERE:"""
    check(loop(lags + multiply(a="registers")))


def test_products_in_loops_are_no_steps(monkeypatch):
    """But for the first of each descriptor not one of many turns."""
    asked, attempt = [], wgmma.kernels.multiplication
    monkeypatch.setattr(
        wgmma.kernels, "multiplication",
        lambda *given: (lambda run: lambda s: asked.append(1) or run(s))(attempt(*given)),
    )  # fmt: skip
    text = TEXT.format(body=loop(multiply() + multiply("f16", d="%e"), 50), functions="")
    for engine, most in (("vector", 100), ("compiled", 0)):
        Module(text)["go"].launch(2, 128, [np.zeros((256, 8), np.uint32)], engine=engine)
        assert len(asked) == most
        asked.clear()


FAULTS = {
    "outside of memory": "or.b64 %a, %a, 0x3fff;" + multiply(),
    "lanes that differ": "cvt.u64.u32 %b, %t; shl.b64 %b, %b, 4;" + multiply(),
    "a lane that has ended": "setp.eq.u32 %p3, %t, 77; @%p3 exit;" + multiply(),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    said = check(loop(f"setp.eq.u32 %p2, %r10, 1; @!%p2 bra NOT; {FAULTS[name]} NOT:"))
    assert isinstance(said[0], str)


# --- mbarriers ------------------------------------------------------------------------------------

#: warps 4 to 7 put numbers into one of two stages, warps 0 to 3 multiply by them and free it
PIPELINE = """
    .shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2]; .reg .b32 %bar, %stage, %phase;
    .reg .b64 %token;
    setp.ne.u32 %p1, %t, 0; @%p1 bra READY;
    mov.u32 %bar, full;
    mbarrier.init.shared.b64 [%bar], 128; mbarrier.init.shared.b64 [%bar+8], 128;
    mov.u32 %bar, empty; mbarrier.init.shared.b64 [%bar], {readers};
    mbarrier.init.shared.b64 [%bar+8], {readers};
    READY: bar.sync 0; mov.u32 %r10, 0; setp.ge.u32 %p2, %t, 128; @%p2 bra WRITER;
    READER: and.b32 %stage, %r10, 1; shr.u32 %phase, %r10, 1; and.b32 %phase, %phase, 1;
    shl.b32 %stage, %stage, 3; mov.u32 %bar, full; add.u32 %bar, %bar, %stage;
    FULL: mbarrier.try_wait.parity.shared.b64 %p3, [%bar], %phase; @!%p3 bra FULL;
    wgmma.fence.sync.aligned; shl.b32 %r11, %stage, 3; cvt.u64.u32 %token, %r11;
    add.u64 %token, %token, %a; {multiply} {commit} {wait}
    and.b32 %r12, %t, 127; setp.eq.u32 %p4, %r12, 0; mov.u32 %bar, empty;
    add.u32 %bar, %bar, %stage; {free}
    add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, {turns}; @%p1 bra READER; bra END;
    WRITER: and.b32 %stage, %r10, 1; shr.u32 %phase, %r10, 1; not.b32 %phase, %phase;
    and.b32 %phase, %phase, 1; shl.b32 %stage, %stage, 3; mov.u32 %bar, empty;
    add.u32 %bar, %bar, %stage;
    EMPTY: mbarrier.try_wait.parity.shared.b64 %p3, [%bar], %phase; @!%p3 bra EMPTY;
    and.b32 %r12, %t, 127; shl.b32 %r12, %r12, 3; shl.b32 %r13, %stage, 7; add.u32 %r12, %r12, %r13;
    mov.u32 %r13, room; add.u32 %r12, %r12, %r13; and.b32 %r13, %t, 15;
    mad.lo.u32 %r13, %r10, 0x00400040, %r13; add.u32 %r13, %r13, 0x38003800;
    st.shared.v2.b32 [%r12], {{%r13, %r13}}; fence.proxy.async;
    mov.u32 %bar, full; add.u32 %bar, %bar, %stage; {fill}
    add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, {turns}; @%p1 bra WRITER;
    END:
"""
FREE = {
    "one thread": (1, "@%p4 mbarrier.arrive.shared.b64 _, [%bar];"),
    "all threads": (128, "mbarrier.arrive.shared.b64 %token, [%bar];"),
    "by threes": (9, "setp.lt.u32 %p4, %r12, 3; @%p4 mbarrier.arrive.shared.b64 _, [%bar], 3;"),
}
FILL = {
    "arrive": "mbarrier.arrive.release.cta.shared.b64 %token, [%bar];",
    "of the cluster": "mapa.shared::cluster.u32 %bar, %bar, 0; "
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%bar];",
    "no bytes": "mbarrier.arrive.expect_tx.shared.b64 %token, [%bar], 0;",
}


def pipeline(free="one thread", fill="arrive", turns=6, **changes):
    readers, freeing = FREE[free]
    body = PIPELINE.format(
        readers=readers, free=freeing, fill=FILL[fill], turns=turns, commit=COMMIT, wait=wait(),
        multiply=multiply(a="%token"),
    )  # fmt: skip
    return body


@pytest.mark.parametrize("free", FREE)
def test_a_pipeline(free):
    check(pipeline(free), 256)


@pytest.mark.slow
@pytest.mark.parametrize("fill", FILL)
def test_arrivals(fill):
    check(pipeline(fill=fill, turns=9), 256, 3)


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 0])
def test_arrivals_that_are_undefined(count):
    """Of a phase of 128 arrivals one is left when the 43rd thread arrives three times."""
    body = pipeline().replace("_, [%bar];", "_, [%bar], %count;")
    body = f".reg .b32 %count; mov.u32 %count, {count};" + body
    body = body.replace("@%p4 mbarrier", "mbarrier").replace("[%bar+8], 1;", "[%bar+8], 128;")
    said = check(body.replace("[%bar], 1;", "[%bar], 128;"), 256)
    assert said[1] == "mbarrier"


def test_arrivals_are_no_steps(monkeypatch):
    ran, change = [], steps.change
    monkeypatch.setattr(steps, "change", lambda *args: ran.append(1) or change(*args))
    text = TEXT.format(body=pipeline("all threads", turns=20), functions="")
    for engine, most in (("vector", 40), ("compiled", 0)):
        Module(text)["go"].launch(1, 256, [np.zeros((256, 8), np.uint32)], engine=engine)
        assert len(ran) == most
        ran.clear()


WGMMA = TEXT.format(body=loop(multiply()), functions="")
MMA = KERNEL.replace("BODY", BODIES[-1])


@pytest.mark.parametrize("text", [MMA, WGMMA], ids=["mma", "wgmma"])
def test_native_code_keeps_the_kernels_that_it_calls(text):
    """Their addresses are in its arguments, also when nobody else keeps them any more."""
    module, found = Module(text), []
    (kernel,) = module.kernels
    for _ in range(3):
        found.append(np.arange(128 * 8, dtype=np.uint32))
        module[kernel].launch(1, 128, [found[-1]], engine="compiled")
        forget(files=True)
        gc.collect()
    assert found[0].any() and (found[0] == found[1]).all() and (found[0] == found[2]).all()


# --- the word after an arrival --------------------------------------------------------------------


@lru_cache(maxsize=1)
def arrival():
    """``arrive(word, arrivals, bytes)`` of native code."""
    module = ir.Module("arrive")
    function = ir.Function(module, ir.FunctionType(LONG, [LONG] * 3), "arrive")
    e = WarpEmitter(module, ir.IRBuilder(function.append_basic_block()), None)
    e.builder.ret(mbarriers._after(e, *function.args))
    return machine_code.function(str(module), "arrive", *[ctypes.c_uint64] * 4)


EDGES = [
    (Barrier(parity, pending, transactions, expected), Change(arrivals, 0, added))
    for parity in (0, 1)
    for pending, expected in ((1, 1), (2, 3), (MAX_COUNT, MAX_COUNT), (0, 5))
    for transactions in (0, -1, 16, MAX_COUNT, -MAX_COUNT)
    for arrivals in (0, 1, 2, MAX_COUNT, MAX_COUNT + 1, (1 << 32) - 1)
    for added in (0, 1, 16, MAX_COUNT, MAX_COUNT + 1, (1 << 32) - 1)
]


def test_words_after_arrivals():
    """Those of `Barrier`; the same word where that is undefined, or no arrival."""
    arrive, legal = arrival(), 0
    for barrier, operation in EDGES:
        defined = operation.arrivals and not barrier.undefined(operation)
        legal += bool(defined)
        after = barrier.after(operation) if defined else barrier
        assert arrive(barrier.encode(), operation.arrivals, operation.transactions) == (
            after.encode()
        ), (barrier, operation)
    assert 100 < legal < len(EDGES) - 100


@pytest.mark.parametrize("constant", ["PENDING", "TRANSACTIONS", "EXPECTED", "MAX_COUNT"])
def test_another_constant_is_noticed(constant, monkeypatch):
    monkeypatch.setattr(mbarriers, constant, getattr(mbarriers, constant) - 1)
    arrival.cache_clear()
    with pytest.raises(AssertionError):
        test_words_after_arrivals()
    arrival.cache_clear()
