"""The compiled engine: the bytes and the errors of the vector engine."""

import random
import re

import numpy as np
import pytest
from kernel_recordings import KERNELS, REAL, differing_bytes
from one_instruction import in_kernels, kernel_of, memory_of, parts_of
from random_kernels import RandomKernel

from emulator import Instruction, KernelError, Module, UnsupportedError
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.ordinary.tables import ROWS

pytest.importorskip("llvmlite")

from emulator.arith import engines as arith_engines
from emulator.arith.fast import threads
from emulator.arith.fast.kernels import machine_code
from emulator.arith.scalar import rounded
from emulator.machine import engines
from emulator.machine.compiled import engine, loop, rules, segment
from emulator.machine.compiled.segment import Segment
from emulator.machine.compiled.translation import can_translate
from emulator.machine.compiled.words import NativeWords, Word

pytestmark = pytest.mark.sampled(4)

HEAD = ".version 9.5\n.target sm_90a\n.address_size 64\n"
U32 = np.uint32


def words(count, seed=0):
    return np.frombuffer(np.random.default_rng(seed).bytes(4 * count), U32).copy()


def ended(name, kernel, grid, block, buffers, **options):
    """The bytes of the buffers after a launch, or what its error says."""
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in buffers]
    try:
        report = kernel.launch(grid, block, copies, engine=name, **options)
    except KernelError as error:
        # Arrays lie in memory in the order of their addresses in this process.
        said = re.sub(r"0x7f[0-9a-f]+", "ADDRESS", str(error))
        return said, error.kind, error.line, error.block, error.threads
    return [x.tobytes() for x in copies if isinstance(x, np.ndarray)], report.counters


def assert_same(text, grid, block, buffers, **options):
    """The vector engine and the compiled one end alike; what they end with."""
    vector, compiled = (
        ended(name, Module(text)["go"], grid, block, buffers, **options)
        for name in ("vector", "compiled")
    )
    assert compiled == vector
    return vector


# --- rules ----------------------------------------------------------------------------------------

ROWS_WITH_RULES = [row for row in ROWS if row.rule and row.scope == "thread"]


def drawn(rows, most):
    """At most so many instructions of each row, those that have machine code."""
    for row in rows:
        forms = list(row.expand())
        for chosen in random.Random(2).sample(forms, min(most, len(forms))):
            ins = OrdinaryInstruction(row, chosen)
            if ins.targets and rules.find(ins, {}):
                yield ins


def check(instructions):
    """Kernels of these leave the same memory in both engines; only `ret` has no machine code."""
    for ones in in_kernels(instructions):
        go = Module(kernel_of(ones))["go"]
        program = go.rewritten[0]
        assert {
            x.name for x in program.statements
            if not can_translate(x, program.functions["go"], go.module.target)
        } == {"ret"}  # fmt: skip
        vector, compiled = (
            ended(name, Module(kernel_of(ones))["go"], 1, ones[0].threads, [memory_of(ones)])[0][0]
            for name in ("vector", "compiled")
        )
        pairs = zip(ones, parts_of(ones, vector), parts_of(ones, compiled), strict=True)
        assert [str(one.ins) for one, v, c in pairs if v != c] == []


@pytest.mark.parametrize("row", ROWS_WITH_RULES[::16], ids=lambda row: row.form)
def test_rules(row):
    check(drawn([row], 1))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(ROWS_WITH_RULES), 40))
def test_every_rule(first):
    check(drawn(ROWS_WITH_RULES[first : first + 40], 2))


#: of f32 in every rounding, and quotients and roots of f64
ROUNDED = [
    f"{name}.{rounding}{ftz}.f32"
    for name in ("add", "sub", "mul", "fma", "div", "rcp", "sqrt")
    for rounding in ("rn", "rz", "rm", "rp")
    for ftz in ("", ".ftz")
] + [f"{name}.rn.f64" for name in ("div", "rcp", "sqrt")]


def check_rounded(opcode):
    check([Instruction.parse(opcode)])


@pytest.mark.parametrize("opcode", ["fma.rm.f32", "add.rp.ftz.f32", "div.rn.f32", "sqrt.rn.f64"])
def test_roundings(opcode):
    check_rounded(opcode)


@pytest.mark.slow
def test_every_rounding():
    check(map(Instruction.parse, ROUNDED))


@pytest.mark.parametrize(
    "rounding, code", [("rm", 0x80800000), ("rp", 0x80000000), ("rz", 0x80000000)]
)
def test_next_to_the_smallest_normal_number(rounding, code):
    """2**-156 - 2**-126 is tiny unless it is rounded away from zero."""
    body = f"""mov.u32 %r4, 0x18800000; mov.u32 %r5, 0x80800000; xor.b32 %r4, %r4, 0;
    fma.{rounding}.ftz.f32 %r6, %r4, %r4, %r5; st.global.u32 [%rd2], %r6;"""
    held, _ = assert_same(kernel(body), 1, 32, [words(32), np.zeros(32, U32)])
    assert set(np.frombuffer(held[1], U32).tolist()) == {code}


def test_a_wrong_rounding_is_noticed(monkeypatch):
    for name, check in (
        ("stepped", lambda: check_rounded("fma.rm.f32")),
        ("is_tiny", lambda: test_next_to_the_smallest_normal_number("rm", 0x80800000)),
    ):
        held = getattr(rounded, name)

        def wrong(w, *args, held=held):
            native = isinstance(w, NativeWords) or isinstance(args[0], Word)
            return held(w, *args[:-1], "rz" if native else args[-1])

        with monkeypatch.context() as patch, pytest.raises(AssertionError):
            patch.setattr(rounded, name, wrong)
            check()


def test_a_difference_is_noticed(monkeypatch):
    monkeypatch.setattr(Word, "__xor__", Word.__or__)
    with pytest.raises(AssertionError):
        assert_same(kernel(LOOP), 1, 64, [words(64), np.zeros(64, U32)])


# --- kernels --------------------------------------------------------------------------------------


def check_random(seed, block):
    made = RandomKernel(seed)
    given = words(2 * block * 16, seed).reshape(-1, 16)
    assert_same(made.text, 2, block, [given, np.zeros_like(given)])


def test_a_random_kernel():
    check_random(30, 40)


def test_bits_are_selected_under_a_mask():
    """The sign of a register in memory with the magnitude of another, unless that is a NaN: as
    fmodf ends. LLVM folds the load into one instruction of AVX-512, wrongly."""
    body = """ld.global.u32 %r4, [%rd1]; mov.u32 %r9, 0;
    L: mad.lo.u32 %r5, %r3, 0x01234567, %r9; and.b32 %r6, %r4, 0x80000000;
    and.b32 %r7, %r5, 0x7fffffff; or.b32 %r8, %r6, %r7; setp.gt.u32 %p1, %r7, 0x7f800000;
    selp.b32 %r9, %r5, %r8, %p1; add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 3; @%p2 bra L;
    st.global.u32 [%rd2], %r9;"""
    assert_same(kernel("mov.u32 %r10, 0;" + body), 1, 64, [words(64), np.zeros(64, U32)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(3, 27), 45, 54])
def test_more_random_kernels(seed):
    check_random(seed, (33, 64, 96, 128)[seed % 4])


@pytest.mark.slow
@pytest.mark.parametrize("path", [*KERNELS, *REAL], ids=lambda path: path.stem)
def test_recordings(path):
    names = ("tri_softmax", "tri_misc", "tri_mm_bf16", "ints", "floats")
    if path.stem not in names:
        pytest.skip("too long to compile at once")
    assert not any(differing_bytes(path, engine="compiled"))


#: of the thread's own address in a, %rd1, in b, %rd2, and its number, %r0
THREAD = """.visible .entry go(.param .u64 a, .param .u64 b)
{{
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
    .shared .align 16 .b8 room[512]; .local .align 16 .b8 mine[64]; {declared}
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r0, %r1, %r2, %r3;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
    mad.wide.u32 %rd1, %r0, 4, %rd1; mad.wide.u32 %rd2, %r0, 4, %rd2;
    {body}
    ret;
}}
"""


def kernel(body, declared=""):
    return HEAD + THREAD.format(body=body, declared=declared)


FAULTS = {
    "past the end": "ld.global.u32 %r4, [%rd1+16]; st.global.u32 [%rd2], %r4;",
    "far away": "mov.u64 %rd1, 1073741824; ld.global.u32 %r4, [%rd1]; add.u32 %r4, %r4, 1;",
    "null": "mov.u64 %rd1, 0; ld.global.u32 %r4, [%rd1]; add.u32 %r4, %r4, 1;",
    "misaligned": "ld.global.u32 %r4, [%rd1+2]; add.u32 %r4, %r4, 1; st.global.u32 [%rd2], %r4;",
    "one lane": """setp.eq.u32 %p1, %r0, 77; mov.u64 %rd3, 12; @%p1 st.global.u32 [%rd3], %r0;
        st.global.u32 [%rd2], %r0;""",
    "read-only": """mov.u64 %rd3, fixed; mov.u32 %r4, 1; ld.global.u32 %r5, [%rd3];
        st.global.u32 [%rd3], %r5;""",
    "shared": "mad.lo.u32 %r4, %r3, 8, 64; mov.u32 %r5, 3; st.shared.u32 [%r4+1900], %r5;",
    "shared misaligned": "mov.u32 %r4, room; mov.u32 %r5, 3; st.shared.u32 [%r4+2], %r5;",
    "local": "mov.u32 %r4, mine; mov.u32 %r5, 3; st.local.u32 [%r4+64], %r5; add.u32 %r4, %r4, 1;",
    "negative local": "mov.u64 %rd4, -8; mov.u32 %r5, 3; st.local.u32 [%rd4], %r5; mov.u32 %r6, 1;",
    "matrix rows": """mad.lo.u32 %r4, %r3, 16, 1040;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4]; mov.u32 %r9, 1;""",
    "matrix in global memory": """ldmatrix.sync.aligned.m8n8.x1.b16 {%r5}, [%rd1];
        mov.u32 %r9, 1; mov.u32 %r10, 1;""",
    "copied past the end": """and.b64 %rd3, %rd1, -16; cp.async.ca.shared.global [%r3], [%rd3], 16;
        cp.async.commit_group; mov.u32 %r4, 1;""",
    "copied too much": """mov.u32 %r4, 5; cp.async.ca.shared.global [room], [%rd1], 4, %r4;
        cp.async.commit_group; mov.u32 %r4, 1;""",
    "copied from nowhere": """mov.u64 %rd3, 64; mov.u32 %r4, 5;
        cp.async.cg.shared.global [room], [%rd3], 16, %r4; cp.async.commit_group;""",
    "generic": """cvta.shared.u64 %rd3, 0; add.u64 %rd3, %rd3, 4096; mov.u32 %r4, 1;
        st.u32 [%rd3], %r4;""",
    "the last of several": """st.global.u32 [%rd2], %r0; ld.global.u32 %r4, [%rd1];
        mad.wide.u32 %rd3, %r0, 4, %rd2; st.global.u32 [%rd3], %r4;""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    text = kernel(FAULTS[name]).replace(".visible", ".const .align 4 .b32 fixed[4];\n.visible", 1)
    kind = assert_same(text, 2, 64, [words(128), np.zeros(128, U32)])[1]
    assert isinstance(kind, str), "no fault"


def test_memory_of_all_spaces():
    body = """mov.u32 %r4, room; mad.lo.u32 %r4, %r3, 4, %r4; ld.global.u32 %r5, [%rd1];
    st.shared.u32 [%r4], %r5; cvta.shared.u64 %rd3, room; mad.wide.u32 %rd3, %r3, 4, %rd3;
    ld.u32 %r6, [%rd3]; st.local.u32 [mine+12], %r6; cvta.local.u64 %rd4, mine;
    ld.u32 %r7, [%rd4+12]; xor.b32 %r7, %r7, %r5; setp.lt.u32 %p1, %r3, 20;
    selp.b64 %rd5, %rd3, %rd1, %p1; ld.u32 %r8, [%rd5]; add.u32 %r8, %r8, %r7;
    ld.global.u8 %h1, [%rd1+1]; cvt.u32.u16 %r9, %h1; add.u32 %r8, %r8, %r9;
    ld.global.s16 %r10, [%rd1+2]; add.u32 %r8, %r8, %r10; st.global.u32 [%rd2], %r8;"""
    given = words(3 * 50)
    held, _ = assert_same(kernel(body), 3, 50, [given, np.zeros_like(given)])
    high = (given >> U32(16)).astype(np.uint16).view(np.int16).astype(np.int32).view(U32)
    expected = given + (given >> U32(8) & U32(255)) + high
    assert np.frombuffer(held[1], U32).tolist() == expected.tolist()


def test_lanes_of_a_warp_stay_together():
    """A sum over a warp without a barrier: each statement is executed by all lanes at once."""
    body = (
        """mov.u32 %r4, room; mad.lo.u32 %r4, %r3, 4, %r4; ld.global.u32 %r5, [%rd1];
    st.shared.u32 [%r4], %r5;"""
        + "".join(
            f"ld.shared.u32 %r6, [%r4+{4 * n}]; add.u32 %r5, %r5, %r6; st.shared.u32 [%r4], %r5;"
            for n in (16, 8, 4, 2, 1)
        )
        + "st.global.u32 [%rd2], %r5;"
    )
    given = words(32)
    held, _ = assert_same(kernel(body), 1, 32, [given, np.zeros_like(given)])
    assert np.frombuffer(held[1], U32)[0] == given.sum(dtype=U32)


# --- what lanes do together -----------------------------------------------------------------------

TOGETHER = {
    "shfl": "".join(
        f"""shfl.sync.{mode}.b32 %r{4 + i}|%p{i}, %r20, {step}, {bounds}, -1;
        selp.u32 %r9, 1, 0, %p{i}; xor.b32 %r21, %r21, %r{4 + i}; mad.lo.u32 %r21, %r21, 3, %r9;"""
        for i, (mode, step, bounds) in enumerate(
            [("up", 3, 0), ("down", "%r3", 31), ("bfly", 5, "0x1c1f"), ("idx", "%r20", "%r20")]
        )
    ),
    "vote": """setp.lt.u32 %p1, %r20, 0x80000000; vote.sync.ballot.b32 %r21, %p1, -1;
        vote.sync.all.pred %p2, %p1, -1; vote.sync.any.pred %p3, !%p1, -1;
        vote.sync.uni.pred %p4, %p3, 0xffffffff; selp.u32 %r4, 4, 0, %p2; selp.u32 %r5, 2, 0, %p3;
        selp.u32 %r6, 1, 0, %p4; add.u32 %r21, %r21, %r4; add.u32 %r21, %r21, %r5;
        add.u32 %r21, %r21, %r6; bar.warp.sync -1; elect.sync %r4|%p1, -1;
        @%p1 add.u32 %r21, %r21, 1000;""",
    "redux": """redux.sync.add.s32 %r4, %r20, -1; redux.sync.min.s32 %r5, %r20, -1;
        redux.sync.max.u32 %r6, %r20, -1; redux.sync.xor.b32 %r7, %r20, -1;
        redux.sync.and.b32 %r8, %r20, -1; xor.b32 %r4, %r4, %r5; shf.l.wrap.b32 %r4, %r4, %r6, 7;
        add.u32 %r4, %r4, %r7; add.u32 %r21, %r4, %r8;""",
    "matrices": """mad.lo.u32 %r4, %r3, 16, room+0; st.shared.v4.u32 [%r4], {%r20, %r0, %r1, %r3};
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4];
        ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r9, %r10}, [%r4];
        cvta.shared.u64 %rd3, 0; cvt.u64.u32 %rd4, %r4; add.u64 %rd3, %rd3, %rd4;
        ldmatrix.sync.aligned.m8n8.x1.b16 {%r11}, [%rd3];
        movmatrix.sync.aligned.m8n8.trans.b16 %r12, %r5;
        stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r4], {%r6, %r8};
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r4], {%r9};
        ld.shared.u32 %r13, [%r4]; ld.shared.u32 %r14, [%r4+12]; mov.u32 %r21, 0;"""
    + "".join(f"mad.lo.u32 %r21, %r21, 31, %r{i};" for i in range(5, 15)),
    "copies": """mad.lo.u32 %r4, %r3, 16, room+0; and.b64 %rd3, %rd1, -16; and.b32 %r5, %r0, 3;
        shl.b32 %r6, %r5, 2; setp.eq.u32 %p1, %r5, 1; setp.lt.u32 %p2, %r5, 3;
        cp.async.cg.shared.global [%r4], [%rd3], 16, %r6; cp.async.commit_group;
        @%p2 cp.async.ca.shared.global [%r4], [%rd3+4], 4;
        cp.async.ca.shared.global [%r4+8], [%rd3+8], 8;
        cp.async.wait_group 0; cp.async.wait_all; mov.u32 %r21, 0;
        ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];"""
    + "".join(f"mad.lo.u32 %r21, %r21, 31, %r{i};" for i in range(5, 9)),
}


def check_together(name, block):
    body = f"ld.global.u32 %r20, [%rd1]; mov.u32 %r21, 1; {TOGETHER[name]}"
    text = kernel(f"{body} st.global.u32 [%rd2], %r21;").replace("room[512]", "room[4096]")
    given = words(2 * block)
    return assert_same(text, 2, block, [given, np.zeros_like(given)])


@pytest.mark.parametrize("name", TOGETHER)
def test_lanes_together(name):
    held, _ = check_together(name, 96)
    assert len(set(np.frombuffer(held[1], U32).tolist())) > 2


@pytest.mark.parametrize("name", ["shfl", "matrices"])
def test_lanes_that_are_missing(name):
    check_together(name, 72)


def test_copies_that_are_late():
    text = kernel(f"mov.u32 %r20, 1; {TOGETHER['copies']} st.global.u32 [%rd2], %r21;")
    text = text.replace("room[512]", "room[4096]")
    assert_same(text, 1, 64, [words(64), np.zeros(64, U32)], async_order="late")


# --- products of matrices -------------------------------------------------------------------------

PRODUCTS = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": (4, 4, 2, 4),
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32": (4, 4, 2, 4),
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": (4, 4, 2, 4),
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32": (8, 8, 8, 8),
}


@pytest.mark.parametrize("opcode", PRODUCTS)
def test_products(opcode):
    counts, start, operands, loads = PRODUCTS[opcode], 0, [], ""
    for count in counts:
        operands.append("{" + ", ".join(f"%q{start + i}" for i in range(count)) + "}")
        start += count
    for i in range(counts[0], start):
        loads += f"shf.l.wrap.b32 %r4, %r20, %r20, {i}; xor.b32 %q{i}, %r4, {0x11110000 + 7 * i};"
    stores = "mov.u32 %r21, 0;" + "".join(
        f"mad.lo.u32 %r21, %r21, 31, %q{i};" for i in range(counts[0])
    )
    body = f"ld.global.u32 %r20, [%rd1]; {loads} {opcode} {', '.join(operands)}; {stores}"
    text = kernel(f"{body} st.global.u32 [%rd2], %r21;", ".reg .b32 %q<32>;")
    given = words(128)
    held, _ = assert_same(text, 2, 64, [given, np.zeros_like(given)])
    assert len(set(np.frombuffer(held[1], U32).tolist())) > 50


@pytest.mark.parametrize("rounding", [".rz", ".rm", ".rp"])
def test_products_of_f64_leave_other_roundings_alone(rounding):
    body = f"""mad.wide.u32 %rd3, %r3, 4, %rd1; ld.global.f64 %d1, [%rd3]; mul.rn.f64 %d2, %d1, %d1;
    mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64{rounding} {{%d3, %d4}}, {{%d1}}, {{%d2}},
    {{%d2, %d1}}; div.rn.f64 %d5, %d3, %d4; mad.wide.u32 %rd4, %r3, 4, %rd2;
    st.global.f64 [%rd4], %d5;"""
    text = kernel(body, ".reg .f64 %d<6>;")
    buffers = [np.random.default_rng(3).standard_normal(32), np.zeros(32)]
    found = assert_same(text, 1, 32, buffers)
    assert found != assert_same(text.replace(rounding, ""), 1, 32, buffers)


def test_a_product_of_lanes_that_are_missing():
    text = kernel("mov.u32 %r4, 0; mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d0, %d1}, "
                  "{%d2}, {%d3}, {%d4, %d5}; add.u32 %r4, %r4, 1;", ".reg .f64 %d<6>;")  # fmt: skip
    assert assert_same(text, 1, 40, [words(40), words(40)])[1] == "lanes missing"


def test_several_threads(monkeypatch):
    """Blocks in as many threads as there are processors, here four."""
    monkeypatch.setattr(threads, "processors", lambda: 4)
    monkeypatch.setattr(segment, "WORTH_A_THREAD", 1)
    body = """mov.u32 %r4, room; mad.lo.u32 %r4, %r3, 4, %r4; ld.global.u32 %r5, [%rd1];
    st.shared.u32 [%r4], %r5; ld.shared.u32 %r6, [%r4]; mad.lo.u32 %r6, %r6, 5, %r1; bar.sync 0;
    st.global.u32 [%rd2], %r6; add.u32 %r5, %r5, 1; add.u32 %r5, %r5, 1;"""
    given = words(64 * 30)
    held, _ = assert_same(kernel(body), 30, 64, [given, np.zeros_like(given)])
    assert len(set(np.frombuffer(held[1], U32).tolist())) > 1000
    wrong = body.replace("[%rd1]", "[%rd1+7000]")
    assert assert_same(kernel(wrong), 30, 64, [given, np.zeros_like(given)])[1] == "out of bounds"


def test_stores_that_are_more_than_stores_stay_steps():
    body = """mov.u32 %r4, 0; mov.u32 %r5, 0; add.u32 %r5, %r5, 7;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4], %r5, [%r4];
    st.shared.u32 [%r4], %r5; st.global.u32 [%rd2], %r5;"""
    go = Module(kernel(body))["go"]
    program = go.rewritten[0]
    function = program.functions["go"]
    kept = [
        str(x.instruction)
        for x in program.statements
        if not can_translate(x, function, go.module.target)
    ]
    assert [opcode.split(".")[:2] for opcode in kept] == [["st", "async"], ["ret"]]


# --- which engine ---------------------------------------------------------------------------------

LOOP = """mov.u32 %r4, 0; ld.global.u32 %r5, [%rd1];
AGAIN: mad.lo.u32 %r5, %r5, 1664525, 1013904223; shr.u32 %r6, %r5, 7; xor.b32 %r5, %r5, %r6;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 50; @%p1 bra AGAIN;
    st.global.u32 [%rd2], %r5;"""


def test_auto_compiles_what_runs_long(monkeypatch):
    module, given = Module(kernel(LOOP)), words(64)
    results = []
    for cold in (1e9, 0.0):
        monkeypatch.setattr(engine, "_COLD", cold)
        out = np.zeros_like(given)
        module["go"].launch(1, 64, [given, out])
        results.append(out.tolist())
        blocks = module["go"]._blocks[engine.LazyBlocks, False]
        assert bool(blocks.loops) == (cold == 0.0)
    assert results[0] == results[1]


def test_a_launch_that_was_interrupted_starts_again(monkeypatch):
    """Loops that were not found for an interrupt are found next time."""
    module, given, out = Module(kernel(LOOP)), words(64), np.zeros(64, U32)

    def interrupted(*given, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "loops_by_pc", interrupted)
        module["go"].launch(1, 64, [given, out], engine="compiled")
    module["go"].launch(1, 64, [given, out], engine="compiled")
    assert module["go"]._blocks[engine.Blocks, False].loops


def test_what_pays_is_compiled_once(monkeypatch):
    """A segment, as a barrier with a result keeps it from being a loop, and a whole kernel."""
    monkeypatch.setattr(engine, "_COLD", 0.0)
    # However long a launch takes here, it does not pay for compiling until the test says so.
    monkeypatch.setattr(segment, "_COMPILING", 1e9)
    for text in (LOOP.replace("@%p1 bra", "bar.red.popc.u32 %r7, 0, %p1; @%p1 bra"), LOOP):
        module, given = Module(kernel(text)), words(64)
        module["go"].launch(1, 64, [given, np.zeros_like(given)])
        blocks = module["go"]._blocks[engine.LazyBlocks, False]
        steps = [x for block in blocks.values() for x in block.steps if isinstance(x, Segment)]
        (found,) = {x for x in steps if len(x.statements) == 5} | set(blocks.loops.values())
        assert found._native is None
        parts = getattr(found, "parts", (found,))
        statements = [x for part in parts for x in part.statements]
        assert found._budget.left < segment.seconds_to_compile(
            statements, module.target, len(parts)
        )
        found._budget.left = 0.0
        out = np.zeros_like(given)
        module["go"].launch(1, 64, [given, out])
        assert found._native is not None
        expected = np.zeros_like(given)
        module["go"].launch(1, 64, [given, expected], engine="vector")
        assert out.tolist() == expected.tolist()


def test_where_llvm_fails_steps_go_on(monkeypatch, caplog):
    def fails(*_, **__):
        raise RuntimeError("no code today")

    monkeypatch.setattr(engine, "_COLD", 0.0)
    monkeypatch.setattr(segment, "_COMPILING", -1.0)
    monkeypatch.setattr(arith_engines, "_no_kernels", [])
    monkeypatch.setattr(machine_code, "function", fails)
    module, given, out = Module(kernel(LOOP)), words(64), np.zeros(64, U32)
    module["go"].launch(1, 64, [given, out])
    expected = np.zeros_like(given)
    assert "no code today" in caplog.text
    module["go"].launch(1, 64, [given, expected], engine="vector")
    assert out.tolist() == expected.tolist()
    with pytest.raises(RuntimeError, match="no code today"):
        module["go"].launch(1, 64, [given, out], engine="compiled")


@pytest.mark.parametrize(
    "options",
    [{"check": True}, {"counters": True}, {"stop_at": "nan"}, {"seed": 1}],
    ids=lambda options: next(iter(options)),
)
def test_what_needs_steps_is_refused(options):
    with pytest.raises(UnsupportedError, match="leave engine"):
        Module(kernel(LOOP))["go"].launch(
            1, 32, [words(32), words(32)], engine="compiled", **options
        )
    Module(kernel(LOOP))["go"].launch(1, 32, [words(32), words(32)], **options)


def test_without_llvmlite(monkeypatch):
    monkeypatch.setattr(engines, "_has_llvm", lambda: False)
    with pytest.raises(UnsupportedError, match="extra `fast`"):
        Module(kernel(LOOP))["go"].launch(1, 32, [words(32), words(32)], engine="compiled")
    Module(kernel(LOOP))["go"].launch(1, 32, [words(32), words(32)])


@pytest.fixture
def narrow(monkeypatch, tmp_path):
    """A processor of the first generation of its kind."""
    import llvmlite.binding as llvm

    if not llvm.get_process_triple().startswith("x86_64"):
        pytest.skip("another kind of processor")
    monkeypatch.setattr(machine_code, "_processor", lambda: ("x86-64", ""))
    monkeypatch.setenv("EMULATOR_CACHE_DIR", str(tmp_path))


def test_a_processor_without_wide_vectors(narrow):
    held, _ = assert_same(kernel(LOOP), 1, 64, [words(64), np.zeros(64, U32)])
    assert held[1] != bytes(256)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_more_without_wide_vectors(narrow, seed):
    check_random(seed, 64)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER)
def test_lanes_together_without_wide_vectors(narrow, name):
    check_together(name, 64)
