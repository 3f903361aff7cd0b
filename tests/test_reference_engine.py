"""The reference engine: kernels of every area end with the bytes of the vector engine."""

import random

import ml_dtypes
import numpy as np
import pytest
from one_instruction import OneInstruction

from emulator import KernelError, Module, OperandError, TensorMap, UnsupportedError
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.ordinary.tables import ROWS

HEAD = ".version 9.1\n.target sm_90a\n.address_size 64\n"
U32 = np.uint32


def launch(engine, text, grid, block, buffers, **options):
    """The bytes of the buffers after a launch."""
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in buffers]
    Module(HEAD + text)["go"].launch(grid, block, copies, engine=engine, **options)
    return [x for x in copies if isinstance(x, np.ndarray)]


def differences(text, grid, block, buffers, **options):
    """The buffers in which the two engines differ, and those of the reference engine."""
    vector = launch("vector", text, grid, block, buffers, **options)
    reference = launch("reference", text, grid, block, buffers, **options)
    pairs = enumerate(zip(vector, reference, strict=True))
    return [i for i, (v, r) in pairs if v.tobytes() != r.tobytes()], reference


def both(text, grid, block, buffers, **options):
    """The buffers after a launch, with the same bytes by both engines."""
    found, buffers = differences(text, grid, block, buffers, **options)
    assert found == []
    return buffers


def words(count, seed=0, dtype=U32):
    raw = np.random.default_rng(seed).bytes(count * np.dtype(dtype).itemsize)
    return np.frombuffer(raw, dtype).copy()


#: %r0 is the thread's number in the grid, %rd1 its element of the first parameter, %rd2 of the
#: second, both of 4 bytes
THREAD = """.visible .entry go(.param .u64 a, .param .u64 b)
{{
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<9>;
    {declared}
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r0, %r1, %r2, %r3;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
    mad.wide.u32 %rd1, %r0, 4, %rd1; mad.wide.u32 %rd2, %r0, 4, %rd2;
    {body}
    ret;
}}
"""


def kernel(body, declared="", functions=""):
    return functions + THREAD.format(body=body, declared=declared)


def run(body, declared="", functions="", grid=2, block=64, seed=0, **options):
    """What threads write to b, given random words in a."""
    count = int(np.prod(grid)) * int(np.prod(block))
    given = [words(count, seed), np.zeros(count, U32)]
    return both(kernel(body, declared, functions), grid, block, given, **options)[1]


def test_a_difference_is_noticed(monkeypatch):
    from emulator.arith.scalar import integer

    text = kernel("ld.global.u32 %r4, [%rd1]; add.u32 %r4, %r4, 1; st.global.u32 [%rd2], %r4;")
    buffers = [words(64), np.zeros(64, U32)]
    assert differences(text, 1, 64, buffers)[0] == []
    monkeypatch.setattr(integer.add, "reference", lambda t, a, b: (a ^ 1 << 31) + b & 0xFFFFFFFF)
    assert differences(text, 1, 64, buffers)[0] == [1]


# --- one instruction ------------------------------------------------------------------------------

RULES = [
    row
    for row in ROWS
    if row.rule and not row.form.startswith(("cp.reduce", "red.async", "multimem"))
]


def check_row(row, most):
    forms = list(row.expand())
    for chosen in random.Random(0).sample(forms, min(most, len(forms))):
        ins = OrdinaryInstruction(row, chosen)
        if not ins.targets:
            continue
        one = OneInstruction(ins)
        module, results = Module(one.text), []
        for engine in ("vector", "reference"):
            buffers = one.arguments()
            module["go"].launch(1, one.threads, buffers, engine=engine)
            results.append([x.tobytes() for x in buffers])
        assert results[0] == results[1], str(ins)


@pytest.mark.parametrize("row", RULES[::9], ids=lambda row: row.form)
def test_rules(row):
    check_row(row, 1)


@pytest.mark.slow
@pytest.mark.parametrize("row", RULES, ids=lambda row: row.form)
def test_every_rule(row):
    check_row(row, 5)


# --- threads --------------------------------------------------------------------------------------


def test_special_registers():
    names = "%tid.x %tid.y %tid.z %ctaid.x %ctaid.y %ctaid.z %ntid.y %nctaid.x %laneid %warpid"
    names += " %nwarpid %lanemask_eq %lanemask_lt %lanemask_le %lanemask_gt %lanemask_ge %smid"
    names += " %cluster_ctarank %cluster_nctarank %cluster_ctaid.x %clusterid.y %nclusterid.x"
    names += " %cluster_nctaid.x %is_explicit_cluster %total_smem_size %dynamic_smem_size %nsmid"
    names += " %reserved_smem_offset_end %gridid %envreg1"
    names = names.split()
    reads = "".join(
        f"mov.u32 %r5, {name}; st.global.u32 [%rd3+{4 * i}], %r5;" for i, name in enumerate(names)
    )
    body = f"""mov.u32 %r4, %ctaid.y; mov.u32 %r5, %nctaid.x; mad.lo.u32 %r4, %r4, %r5, %r1;
    mov.u32 %r5, %ntid.y; mov.u32 %r6, %tid.y; mov.u32 %r7, %tid.z; mad.lo.u32 %r6, %r7, %r5, %r6;
    mad.lo.u32 %r6, %r6, %r2, %r3; mad.lo.u32 %r4, %r4, 30, %r6;
    ld.param.u64 %rd3, [b]; mad.wide.u32 %rd3, %r4, {4 * len(names)}, %rd3; {reads}"""
    given = [words(8), np.zeros((4 * 2 * 30, len(names)), U32)]
    _, out = both(kernel(body), (4, 2), (5, 3, 2), given, cluster=(2, 1), dynamic_shared=64)
    assert out[30 + 7, :6].tolist() == [2, 1, 0, 1, 0, 0]
    assert len(np.unique(out, axis=0)) == len(out)


def test_clocks_rise():
    body = """mov.u64 %rd3, %clock64; mov.u64 %rd4, %globaltimer; setp.lt.u64 %p1, %rd3, %rd4;
    selp.u32 %r4, 1, 0, %p1; st.global.u32 [%rd2], %r4;"""
    assert run(body).all()


def test_branches_and_loops_that_part():
    """Each thread adds as many squares as its number has, in loops that end at different turns."""
    body = """and.b32 %r4, %r0, 15; mov.u32 %r5, 0; mov.u32 %r6, 0;
LOOP: setp.ge.u32 %p1, %r5, %r4; @%p1 bra DONE;
    mad.lo.u32 %r6, %r5, %r5, %r6; add.u32 %r5, %r5, 1; and.b32 %r7, %r5, 3;
    setp.ne.u32 %p2, %r7, 0; @%p2 bra LOOP; xor.b32 %r6, %r6, %r0; bra LOOP;
DONE: activemask.b32 %r8; @!%p2 add.u32 %r6, %r6, 7; xor.b32 %r6, %r6, %r8;
    st.global.u32 [%rd2], %r6;"""
    run(body)


def test_indexed_branches():
    body = """and.b32 %r4, %r0, 3; mov.u32 %r5, 1;
TABLE: .branchtargets L0, L1, L2, L3;
    brx.idx %r4, TABLE;
L3: add.u32 %r5, %r5, 100;
L1: mul.lo.u32 %r5, %r5, 3;
L0: add.u32 %r5, %r5, %r0;
L2: st.global.u32 [%rd2], %r5;"""
    assert run(body)[:4].tolist() == [1, 4, 1, 306]


def test_a_lock_within_a_warp():
    """Lanes of one warp take turns: who holds the lock must be let go on."""
    body = """mov.u32 %r4, lock;
SPIN: atom.shared.cas.b32 %r5, [%r4], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra SPIN;
    ld.volatile.shared.u32 %r6, [%r4+4]; add.u32 %r6, %r6, 1; st.volatile.shared.u32 [%r4+4], %r6;
    membar.cta; atom.shared.exch.b32 %r5, [%r4], 0; st.global.u32 [%rd2], %r6;"""
    got = launch("reference", kernel(body, ".shared .b32 lock[2];"), 1, 64, [words(64)] * 2)[1]
    assert sorted(got.tolist()) == list(range(1, 65))


def test_blocks_wait_for_later_blocks():
    body = """ld.param.u64 %rd3, [a]; setp.ne.u32 %p1, %r1, 0; @%p1 bra TELL;
WAIT: ld.acquire.gpu.global.u32 %r4, [%rd3]; setp.ne.u32 %p2, %r4, 7; @%p2 bra WAIT; bra DONE;
TELL: setp.ne.u32 %p2, %r1, 2; @%p2 bra DONE; st.release.gpu.global.u32 [%rd3], 7;
DONE: st.global.u32 [%rd2], %r0;"""
    out = launch("reference", kernel(body), 3, 32, [np.zeros(96, U32)] * 2)
    assert out[0][0] == 7 and out[1].tolist() == list(range(96))


# --- memory ---------------------------------------------------------------------------------------


def test_loads_and_stores_of_all_widths():
    body = """.reg .b8 %c1; ld.param.u64 %rd3, [a]; ld.param.u64 %rd4, [b];
    mad.wide.u32 %rd3, %r0, 32, %rd3; mad.wide.u32 %rd4, %r0, 64, %rd4;
    ld.global.s8 %r4, [%rd3]; st.global.u32 [%rd4], %r4;
    ld.global.s16 %rd5, [%rd3+2]; st.global.u64 [%rd4+8], %rd5;
    ld.global.u8 %h1, [%rd3+1]; st.global.b16 [%rd4+4], %h1;
    ld.v2.u32 {%r5, %r6}, [%rd3+8]; st.global.v2.b32 [%rd4+16], {%r6, %r5};
    ld.global.v4.u16 {%h1, %h2, %h3, %h4}, [%rd3+16];
    st.global.v4.b16 [%rd4+24], {%h4, %h2, %h3, %h1}; st.global.u8 [%rd4+6], %r6;
    ld.global.nc.v2.u64 {%rd6, %rd7}, [%rd3+16]; st.global.v2.u64 [%rd4+32], {%rd7, %rd6};
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3]; st.v4.f32 [%rd4+48], {%f4, %f3, %f2, %f1};"""
    both(kernel(body), 1, 64, [words(64 * 8), words(64 * 16, 1)])


def test_spaces_and_generic_addresses():
    """Local, shared and constant memory, by their own and by generic addresses."""
    body = """mov.u32 %r4, mine; mov.u32 %r5, room; and.b32 %r6, %r3, 31;
    st.local.u32 [%r4+8], %r0; ld.local.u32 %r7, [mine+8]; st.local.v2.u16 [mine], {%h1, %h2};
    cvta.local.u64 %rd3, 0; cvt.u64.u32 %rd4, %r4; cvta.local.u64 %rd4, %rd4;
    ld.u32 %r8, [%rd4+8]; mad.lo.u32 %r5, %r3, 4, %r5; st.shared.u32 [%r5], %r8;
    cvt.u64.u32 %rd5, %r5; cvta.shared.u64 %rd5, %rd5; ld.u32 %r9, [%rd5];
    isspacep.shared %p1, %rd5; isspacep.local %p2, %rd4; isspacep.global %p3, %rd1;
    isspacep.global %p4, %rd5; cvta.to.shared.u64 %rd6, %rd5; cvt.u32.u64 %r10, %rd6;
    @%p1 add.u32 %r9, %r9, 256; @%p2 add.u32 %r9, %r9, 512; @%p3 add.u32 %r9, %r9, 1024;
    @%p4 add.u32 %r9, %r9, 2048; mov.u64 %rd7, known; mad.wide.u32 %rd7, %r6, 4, %rd7;
    ld.const.u32 %r11, [%rd7]; add.u32 %r9, %r9, %r11; add.u32 %r9, %r9, %r10;
    atom.global.add.u32 %r12, [count], 1; ld.param.u32 %r13, [a+4]; add.u32 %r9, %r9, %r13;
    selp.b64 %rd8, %rd5, %rd4, %p5; setp.gt.u32 %p5, %r6, 15; selp.b64 %rd8, %rd5, %rd4, %p5;
    ld.u32 %r14, [%rd8+0]; add.u32 %r9, %r9, %r14; st.global.u32 [%rd2], %r9;"""
    known = ", ".join(map(str, range(5, 37)))
    functions = f".const .align 4 .b32 known[32] = {{{known}}}; .global .b32 count;"
    declared = ".local .align 8 .b8 mine[16]; .shared .align 4 .b8 room[512];"
    run(body, declared, functions)


@pytest.mark.parametrize("space", ["global", "shared", ""])
def test_atomics_of_many_threads_on_few_places(space):
    """Lanes go in ascending order; of several warps each engine has an order of its own."""
    place = "[%rd5]" if space != "shared" else "[%r5]"
    setup = {
        "global": "mad.wide.u32 %rd5, %r4, 4, %rd4;",
        "shared": "mad.lo.u32 %r5, %r4, 4, %r5;",
        "": "mad.lo.u32 %r5, %r4, 4, %r5; cvt.u64.u32 %rd5, %r5; cvta.shared.u64 %rd5, %rd5;",
    }[space]
    kinds = "add.u32 min.s32 max.u32 and.b32 or.b32 xor.b32 exch.b32 inc.u32 dec.u32 add.f32"
    dot = f".{space}" if space else ""
    steps = "".join(
        f"atom{dot}.{kind} %r7, {place}, %r6; xor.b32 %r8, %r8, %r7; mul.lo.u32 %r8, %r8, 5;"
        for kind in kinds.replace("add.f32", "").split()
    )
    body = f"""ld.param.u64 %rd4, [a]; and.b32 %r4, %r0, 3; mov.u32 %r5, room; {setup}
    mul.lo.u32 %r6, %r0, 2654435761; mov.u32 %r8, 1; {steps}
    atom{dot}.cas.b32 %r7, {place}, %r8, %r6; red{dot}.add.u32 {place}, %r7;
    mov.b32 %f1, 0x00000300; atom{dot}.add.f32 %f2, {place}, %f1; mov.b32 %r7, %f2;
    xor.b32 %r8, %r8, %r7; st.global.u32 [%rd2], %r8;"""
    both(kernel(body, ".shared .align 16 .b32 room[8];"), 1, 32, [words(32), words(32)])


def test_vectors_of_atomics():
    body = """ld.param.u64 %rd4, [a]; and.b32 %r4, %r0, 7; mad.wide.u32 %rd5, %r4, 16, %rd4;
    cvt.rn.f32.u32 %f1, %r0; atom.global.add.v4.f32 {%f2, %f3, %f4, %f5}, [%rd5], {%f1, %f1, %f1, %f1};
    red.global.add.noftz.v2.f16x2 [%rd5], {%r0, %r0}; mov.b32 %r5, %f4; st.global.u32 [%rd2], %r5;"""
    both(kernel(body), 1, 32, [words(32), words(32)])


# --- calls ----------------------------------------------------------------------------------------

FUNCTIONS = """
.func (.param .b32 out) factorial(.param .b32 n)
{ .reg .b32 %r<5>; .reg .pred %p1; .local .b32 kept;
    ld.param.u32 %r1, [n]; st.local.u32 [kept], %r1; mov.u32 %r2, 1;
    setp.lt.u32 %p1, %r1, 2; @%p1 bra DONE; sub.u32 %r3, %r1, 1;
    { .param .b32 p0; .param .b32 q0; st.param.b32 [p0], %r3;
      call (q0), factorial, (p0); ld.param.b32 %r2, [q0]; }
    ld.local.u32 %r1, [kept]; mul.lo.u32 %r2, %r2, %r1;
DONE: st.param.b32 [out], %r2; ret; }
.func (.param .b32 out) twice(.param .b32 n)
{ .reg .b32 %r<3>; ld.param.u32 %r1, [n]; shl.b32 %r2, %r1, 1; st.param.b32 [out], %r2; ret; }
.func (.param .align 8 .b8 out[16]) swapped(.param .align 8 .b8 given[16])
{ .reg .b64 %rd<3>; .reg .b16 %h1; ld.param.v2.u64 {%rd1, %rd2}, [given];
  ld.param.u16 %h1, [given+2]; st.param.v2.u64 [out], {%rd2, %rd1}; st.param.b16 [out+6], %h1; ret; }
.global .u64 table[2] = {factorial, twice};
"""


def test_calls():
    """Recursion, calls through a table of pointers, bytes by value, a stack."""
    body = """and.b32 %r4, %r0, 7; and.b32 %r5, %r0, 1;
    mov.u64 %rd3, table; mad.wide.u32 %rd3, %r5, 8, %rd3; ld.global.u64 %rd4, [%rd3];
    { .param .b32 p; .param .b32 q; st.param.b32 [p], %r4;
PROTOTYPE: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (q), %rd4, (p), PROTOTYPE; ld.param.b32 %r6, [q]; }
    cvt.u64.u32 %rd5, %r0; cvt.u64.u32 %rd6, %r6;
    { .param .align 8 .b8 p[16]; .param .align 8 .b8 q[16];
      st.param.v2.u64 [p], {%rd5, %rd6}; call (q), swapped, (p); ld.param.v2.u64 {%rd7, %rd8}, [q]; }
    stacksave.u64 %rd9; alloca.u64 %rd10, 24; st.local.u32 [%rd10+20], %r6;
    { .param .b32 p; .param .b32 q; st.param.b32 [p], 3;
      call (q), factorial, (p); ld.param.b32 %r7, [q]; }
    ld.local.u32 %r8, [%rd10+20]; stackrestore.u64 %rd9;
    cvt.u32.u64 %r9, %rd7; cvt.u32.u64 %r10, %rd8; shl.b32 %r10, %r10, 16; add.u32 %r9, %r9, %r10;
    mad.lo.u32 %r9, %r7, %r8, %r9; st.global.u32 [%rd2], %r9;"""
    run(body, functions=FUNCTIONS)


def test_the_stack_of_a_callee_lies_behind_alloca():
    body = """alloca.u64 %rd3, 64; st.local.u32 [%rd3], 77;
    { .param .b32 p; .param .b32 q; st.param.b32 [p], 3;
      call (q), factorial, (p); ld.param.b32 %r7, [q]; }
    ld.local.u32 %r8, [%rd3]; mad.lo.u32 %r8, %r7, 100, %r8; st.global.u32 [%rd2], %r8;"""
    got = launch("reference", kernel(body, functions=FUNCTIONS), 1, 32, [words(32)] * 2)[1]
    assert set(got.tolist()) == {677}
