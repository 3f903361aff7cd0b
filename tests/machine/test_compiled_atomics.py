"""Atomic operations as native code: what is there afterwards, and what each thread gets."""

import numpy as np
import pytest
from test_compiled_engine import U32, assert_same, ended, kernel, words
from words import boundary_words

from emulator import Module
from emulator.arith.scalar import TYPES, rounded
from emulator.machine.compiled import atomics, loops, rules
from emulator.machine.compiled.words import Word

pytestmark = pytest.mark.sampled(5)

START = """mov.u32 %r11, room; ld.global.u32 %r20, [%rd1]; and.b32 %r12, %r20, 24;
    add.u32 %r11, %r11, %r12; cvt.u64.u32 %rd8, %r12; ld.param.u64 %rd9, [b];
    add.u64 %rd9, %rd9, %rd8; cvt.u64.u32 %rd10, %r20; mul.lo.u64 %rd10, %rd10, 25214903917;
    setp.lt.u32 %p1, %r3, 37; mov.u32 %r21, 0; mov.u64 %rd11, 0; bar.sync 0;"""
END = """bar.sync 0; mad.lo.u32 %r4, %r3, 4, room+0; setp.gt.u32 %p2, %r3, 15;
    @%p2 bra DONE; ld.shared.u32 %r4, [%r4]; ld.param.u64 %rd13, [b];
    mad.wide.u32 %rd13, %r3, 4, %rd13; red.global.add.u32 [%rd13+128], %r4;
    DONE: st.global.u32 [%rd2+256], %r21;"""
OPERATIONS = [
    *(f"{x}.{t}" for x in ("add", "min", "max", "exch", "cas") for t in ("u32", "s32", "u64")),
    *(f"{x}.b{n}" for x in ("and", "or", "xor") for n in (32, 64)),
    "inc.u32", "dec.u32", "min.s64", "max.s64", "add.f32",
]  # fmt: skip


def statements(operation, space, unused=""):
    """An operation with a result, one under a guard, and one without a result."""
    name, _, type_ = operation.rpartition(".")
    if name in ("exch", "cas"):
        type_ = "b" + type_[1:]
    if type_ == "s64" and name == "add":
        type_ = "u64"
    operation, wide = f"{name}.{type_}", type_.endswith("64")
    place = {"shared": "[%r11]", "global": "[%rd9]", "": "[%rd9]"}[space]
    given, result = ("%rd10", "%rd12") if wide else ("%r20", "%r13")
    if name == "cas":
        given = f"{result}, {given}"
    dot = f".{space}" if space else ""
    mix = f"add.u64 %rd11, %rd11, {result};" if wide else f"xor.b32 %r21, %r21, {result};"
    without = "" if name in ("exch", "cas") else f"red{dot}.{operation} {place}, {given};"
    return f"""mov.u32 %r13, 0; mov.u64 %rd12, 0; atom{dot}.{operation} {result}, {place}, {given};
        {mix} @%p1 atom{dot}.{operation} {result}, {place}, {given}; {mix} {without}
        atom{dot}.{operation} {result}, {place}, {given};
        cvt.u32.u64 %r14, %rd11; xor.b32 %r21, %r21, %r14;"""


def check(body, block=64):
    given, out = words(2 * block), words(2 * block + 64, 1)
    out &= U32(0x3FFFFFFF)
    held, _ = assert_same(kernel(START + body + END), 2, block, [given, out])
    assert held[1] != out.tobytes()


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("operation", OPERATIONS[::6])
def test_operations(operation, space):
    check(statements(operation, space))


@pytest.mark.slow
@pytest.mark.parametrize("space", ["shared", "global", ""])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation(operation, space):
    check(statements(operation, space), 72 if space == "shared" else 64)


#: what else takes floats, or words of 16 bits
FLOATS = [
    "add.f32", "add.f64", *(f"add.noftz.{t}" for t in ("f16", "bf16", "f16x2", "bf16x2")),
    "add.noftz.f32", "cas.b16",
]  # fmt: skip


def check_floats(operation, space):
    """Lanes update one of five places of their warp, twice: with a result, and without."""
    name, type_ = operation.rsplit(".", 1)
    size, codes = TYPES[type_].size // 8, np.array(boundary_words(type_), np.uint64)
    given = np.random.default_rng(1).permuted(np.resize(codes, 256)).astype(f"u{size}")
    bits, word = 8 * size, {2: "%h", 4: "%r2", 8: "%rd1"}[size]
    atom, red = (f"{x}{'.' * bool(space)}{space}.{operation}" for x in ("atom", "red"))
    place = "[%r5]" if space == "shared" else "[%rd6]"
    operands = f"{word}3, {word}1" if name == "cas" else f"{word}1"
    body = f"""ld.param.u64 %rd3, [a]; ld.param.u64 %rd4, [b];
    rem.u32 %r4, %r3, 5; mul.lo.u32 %r4, %r4, 8; mov.u32 %r5, room; add.u32 %r5, %r5, %r4;
    mad.lo.u32 %r4, %r1, 64, %r4; cvt.u64.u32 %rd6, %r4; add.u64 %rd6, %rd6, %rd4;
    mad.wide.u32 %rd3, %r0, {size}, %rd3; mad.wide.u32 %rd5, %r0, {size}, %rd4;
    ld.global.b{bits} {word}1, [%rd3]; mov.b{bits} {word}3, 0;
    {atom} {word}2, {place}, {operands}; {"" if name == "cas" else f"{red} {place}, {word}1;"}
    st.global.b{bits} [%rd5+512], {word}2; bar.warp.sync -1;
    setp.gt.u32 %p1, %r3, 4; @%p1 bra DONE;
    ld.shared.b{bits} {word}2, [%r5]; st.global.b{bits} [%rd5+2560], {word}2; DONE:"""
    buffers = [given, np.zeros(5120, np.uint8)]
    held, _ = assert_same(kernel(body), 8, 32, buffers)
    reference, _ = ended("reference", Module(kernel(body))["go"], 8, 32, buffers)
    assert held == reference


@pytest.mark.parametrize("space", ["shared", "global", ""])
@pytest.mark.parametrize("operation", FLOATS)
def test_every_code_of_floats(operation, space):
    check_floats(operation, space)


def test_another_nan_is_noticed(monkeypatch):
    held = rounded.are_nans

    def wrong(t, code):
        return held(t, code) & False if isinstance(code, Word) else held(t, code)

    monkeypatch.setattr(rounded, "are_nans", wrong)
    with pytest.raises(AssertionError):
        check_floats("add.f64", "global")


@pytest.mark.parametrize("operation", ["add.f32", "exch.u32"])
def test_loops(operation):
    """Whose turn it is matters where a thread sees what others did, and for sums of f32."""
    body = statements(operation, "global")
    check(f"""mov.u32 %r30, 0; and.b32 %r31, %r20, 7; AGAIN: {body} add.u32 %r30, %r30, 1;
        setp.lt.u32 %p3, %r30, %r31; @%p3 bra AGAIN;""")


def test_a_lock():
    """Threads that add to a word one after the other, each while it holds a lock."""
    body = """mov.u32 %r12, 0; st.shared.u32 [room], %r12; st.shared.u32 [room+4], %r12;
    bar.sync 0;
    TRY: atom.shared.cas.b32 %r4, [room], 0, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra NEXT;
    ld.volatile.shared.u32 %r5, [room+4]; add.u32 %r5, %r5, %r3;
    st.volatile.shared.u32 [room+4], %r5;
    atom.shared.exch.b32 %r6, [room], 0; mov.u32 %r12, 1;
    NEXT: setp.eq.u32 %p2, %r12, 0; @%p2 bra TRY; bar.sync 0; ld.shared.u32 %r5, [room+4];
    st.global.u32 [%rd2], %r5;"""
    held, _ = assert_same(kernel(body), 2, 96, [words(192), np.zeros(192, U32)])
    assert set(np.frombuffer(held[1], U32).tolist()) == {96 * 95 // 2}


@pytest.mark.parametrize("operation", ["xor", "inc", "cas"])
def test_a_difference_is_noticed(operation, monkeypatch):
    monkeypatch.setattr(rules, "of_words", lambda ins, space: lambda e, old, *operands: old)
    type_ = "u32" if operation == "inc" else "b32"
    with pytest.raises(AssertionError):
        check(statements(f"{operation}.{type_}", "global"))


def test_an_order_that_matters_is_noticed(monkeypatch):
    monkeypatch.setattr(atomics, "_ANY_ORDER", ())
    assert_loops_are_ordered(True)
    monkeypatch.setattr(atomics, "_ANY_ORDER", ("add",))
    assert_loops_are_ordered(False)


def assert_loops_are_ordered(expected):
    body = "mov.u32 %r4, 0; AGAIN: atom.global.add.u32 %r5, [%rd2], 1; add.u32 %r4, %r4, 1; \
        setp.lt.u32 %p1, %r4, 3; @%p1 bra AGAIN;"
    go = Module(kernel(body))["go"]
    (parts,) = loops.loops_of(go.rewritten[0], go.rewritten[0].functions["go"], go.module.target)
    assert any(atomics.order_matters(part.statements) for part in parts) == expected
