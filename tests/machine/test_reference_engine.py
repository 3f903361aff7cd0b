"""The reference engine: kernels of every area end with the bytes of the vector engine."""

import random
import re

import numpy as np
import pytest
from kernel_recordings import KERNELS, REAL, differing_bytes
from one_instruction import in_kernels, kernel_of, memory_of, parts_of
from random_kernels import RandomKernel

from emulator import KernelError, Module, OperandError, TensorMap, UnsupportedError
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.ordinary.tables import ROWS

pytestmark = pytest.mark.sampled(12)

HEAD = ".version 9.5\n.target sm_90a\n.address_size 64\n"
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


def check_rows(rows, most):
    instructions = (
        OrdinaryInstruction(row, chosen)
        for row in rows
        for forms in [list(row.expand())]
        for chosen in random.Random(0).sample(forms, min(most, len(forms)))
    )
    for ones in in_kernels(ins for ins in instructions if ins.targets):
        module, results = Module(kernel_of(ones)), []
        for engine in ("vector", "reference"):
            held = memory_of(ones)
            module["go"].launch(1, ones[0].threads, [held], engine=engine)
            results.append(parts_of(ones, held))
        pairs = zip(ones, *results, strict=True)
        assert [str(one.ins) for one, v, r in pairs if v != r] == []


@pytest.mark.parametrize("row", RULES[::9], ids=lambda row: row.form)
def test_rules(row):
    check_rows([row], 1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(RULES), 40))
def test_every_rule(first):
    check_rows(RULES[first : first + 40], 5)


# --- threads --------------------------------------------------------------------------------------


def test_special_registers():
    names = "%tid.x %tid.y %tid.z %ctaid.x %ctaid.y %ctaid.z %ntid.y %nctaid.x %laneid %warpid"
    names += " %nwarpid %lanemask_eq %lanemask_lt %lanemask_le %lanemask_gt %lanemask_ge %smid"
    names += " %cluster_ctarank %cluster_nctarank %cluster_ctaid.x %clusterid.y %nclusterid.x"
    names += " %cluster_nctaid.x %is_explicit_cluster %total_smem_size %dynamic_smem_size %nsmid"
    names += " %reserved_smem_offset_end %gridid %envreg1"
    names = names.split()
    into = dict.fromkeys(names, "mov.u32 %r5, {}; ")
    into["%is_explicit_cluster"] = "mov.pred %p1, {}; selp.u32 %r5, 1, 0, %p1; "
    reads = "".join(
        f"{into[name].format(name)}st.global.u32 [%rd3+{4 * i}], %r5;"
        for i, name in enumerate(names)
    )
    body = f"""mov.u32 %r4, %ctaid.y; mov.u32 %r5, %nctaid.x; mad.lo.u32 %r4, %r4, %r5, %r1;
    mov.u32 %r5, %ntid.y; mov.u32 %r6, %tid.y; mov.u32 %r7, %tid.z; mad.lo.u32 %r6, %r7, %r5, %r6;
    mad.lo.u32 %r6, %r6, %r2, %r3; mad.lo.u32 %r4, %r4, 30, %r6;
    ld.param.u64 %rd3, [b]; mad.wide.u32 %rd3, %r4, {4 * len(names)}, %rd3; {reads}"""
    given = [words(8), np.zeros((4 * 2 * 30, len(names)), U32)]
    _, out = both(kernel(body), (4, 2), (5, 3, 2), given, cluster=(2, 1), dynamic_shared=64)
    assert out[30 + 7, :6].tolist() == [2, 1, 0, 1, 0, 0]
    assert len(np.unique(out, axis=0)) == len(out)


@pytest.mark.parametrize(("dynamic", "size"), [(0, 0), (1, 128), (128, 128), (4096, 4096)])
def test_the_size_of_shared_memory(dynamic, size):
    """In units of 128 bytes, without what the system takes, as an H200 says."""
    body = """mov.u32 %r4, %total_smem_size; mov.u32 %r5, %aggr_smem_size;
    sub.u32 %r5, %r5, %r4; mov.u32 %r6, %nwarpid;
    st.global.u32 [%rd2], %r4; st.global.u32 [%rd2+4], %r5; st.global.u32 [%rd2+8], %r6;"""
    given = [words(8), np.zeros(3, U32)]
    _, out = both(kernel(body), 1, 1, given, dynamic_shared=dynamic)
    assert out.tolist() == [size, 1024, 64]


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
    cvt.rn.f32.u32 %f1, %r0;
    atom.global.add.v4.f32 {%f2, %f3, %f4, %f5}, [%rd5], {%f1, %f1, %f1, %f1};
    red.global.add.noftz.v2.f16x2 [%rd5], {%r0, %r0};
    mov.b32 %r5, %f4; st.global.u32 [%rd2], %r5;"""
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
  ld.param.u16 %h1, [given+2]; st.param.v2.u64 [out], {%rd2, %rd1};
  st.param.b16 [out+6], %h1; ret; }
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
      st.param.v2.u64 [p], {%rd5, %rd6}; call (q), swapped, (p);
      ld.param.v2.u64 {%rd7, %rd8}, [q]; }
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
    assert set(run(body, functions=FUNCTIONS).tolist()) == {677}


@pytest.mark.parametrize("contract", ["ptxas", "none", "O0"])
def test_contracted_statements(contract):
    """Products whose factors change before the addition, differences, scaled products, halves."""
    body = """ld.global.f32 %f1, [%rd1]; mov.b32 %f2, 0x3f9d70a4; mov.f32 %f6, %f1;
    mul.f32 %f3, %f1, %f2; mul.f32 %f4, %f1, %f1; mov.f32 %f1, 0f40000000; add.f32 %f5, %f3, %f4;
    mul.f32 %f3, %f6, %f2; sub.f32 %f3, %f5, %f3; setp.gt.f32 %p1, %f3, 0f00000000;
    mul.f32 %f7, %f3, %f6; @%p1 add.f32 %f5, %f7, %f5; mul.f32 %f8, %f5, 0f3f000000;
    div.full.f32 %f7, %f6, %f2; add.f32 %f7, %f7, %f5; mov.b32 %r4, %f5; mov.b32 %r5, %f8;
    mul.f16x2 %r6, %r4, %r5; add.f16x2 %r6, %r6, %r4; xor.b32 %r4, %r4, %r6; mov.b32 %r5, %f7;
    xor.b32 %r4, %r4, %r5; st.global.u32 [%rd2], %r4;"""
    given = np.random.default_rng(0).normal(size=128).astype(np.float32).view(U32)
    both(kernel(body), 2, 64, [given, np.zeros(128, U32)], contract=contract)


# --- warps ----------------------------------------------------------------------------------------


def test_warps_that_have_parted():
    """Collective statements of half a warp each, and with lanes that have ended."""
    body = """setp.eq.u32 %p1, %r3, 37; @%p1 ret; ld.global.u32 %r4, [%rd1]; and.b32 %r5, %r3, 1;
    setp.eq.u32 %p2, %r5, 1; mov.u32 %r6, 0; @%p2 bra ODD;
    shfl.sync.down.b32 %r6|%p3, %r4, 2, 0x1f, 0x55555555;
    vote.sync.ballot.b32 %r7, %p3, 0x55555555; xor.b32 %r6, %r6, %r7;
    bra MEET;
ODD: activemask.b32 %r8; and.b32 %r9, %r4, 3; match.any.sync.b32 %r7, %r9, %r8;
    redux.sync.add.u32 %r6, %r4, %r8; xor.b32 %r6, %r6, %r7; elect.sync %r7|%p4, %r8;
    @%p4 add.u32 %r6, %r6, 1; bar.warp.sync %r8;
MEET: activemask.b32 %r8; vote.sync.any.pred %p3, %p2, %r8; selp.b32 %r9, 77, 78, %p3;
    shfl.sync.bfly.b32 %r10, %r6, 1, 0x1f, %r8; xor.b32 %r10, %r10, %r9;
    @%p2 bar.warp.sync 0xaaaaaaaa; st.global.u32 [%rd2], %r10;"""
    run(body)


@pytest.mark.parametrize(
    "shuffle",
    ["up.b32 {}, 3, 0", "up.b32 {}, 9, 0x1804", "down.b32 {}, 5, 31", "down.b32 {}, 37, 0x180f",
     "bfly.b32 {}, 16, 31", "bfly.b32 {}, 24, 0xc0b", "idx.b32 {}, 9, 31", "idx.b32 {}, 7, 0x703"],
)  # fmt: skip
@pytest.mark.parametrize("block", [64, 80])
def test_shuffles_by_constants(shuffle, block):
    """Of words that differ and of one word, with all lanes, half a warp and lanes in turns."""
    given = [shuffle.format(f"%r{i}|%p{i % 9}, {word}") for i, word in ((5, "%r4"), (7, 9))]
    one, same = (f"shfl.sync.{x}, " for x in given)
    body = f"""ld.global.u32 %r4, [%rd1]; {one} -1; {same} 0xffffffff;
    selp.b32 %r6, 77, 78, %p5; xor.b32 %r5, %r5, %r6; selp.b32 %r8, 99, 98, %p7;
    mad.lo.u32 %r5, %r7, %r8, %r5; and.b32 %r9, %r3, 1; setp.eq.u32 %p1, %r9, 1; @%p1 bra ODD;
    {one.replace("%r5", "%r6")} 0x55555555; xor.b32 %r5, %r5, %r6;
ODD: st.global.u32 [%rd2], %r5;"""
    run(body, block=block)


def test_lanes_wait_for_lanes_that_come_later():
    body = """mov.u32 %r4, 0; setp.lt.u32 %p1, %r3, 20; @%p1 bra FEW;
LOOP: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r3; @%p2 bra LOOP;
FEW: setp.eq.u32 %p3, %r3, 5; @%p3 bra LATE; bra SYNC;
SYNC: shfl.sync.idx.b32 %r5, %r4, 31, 0x1f, 0xffffffff; st.global.u32 [%rd2], %r5; ret;
LATE: mov.u32 %r4, 1000; bra SYNC;"""
    assert set(run(body, grid=1, block=32).tolist()) == {31}


# --- barriers -------------------------------------------------------------------------------------


def test_barriers():
    """Data go round in shared memory; a barrier of two warps; votes; threads that have ended."""
    body = """mov.u32 %r4, room; mad.lo.u32 %r5, %r3, 4, %r4; ld.global.u32 %r6, [%rd1];
    st.shared.u32 [%r5], %r6; setp.ge.u32 %p1, %r3, 90; @%p1 ret; barrier.sync 3;
    add.u32 %r7, %r3, 33; rem.u32 %r7, %r7, 90; mad.lo.u32 %r7, %r7, 4, %r4;
    ld.shared.u32 %r8, [%r7]; bar.sync 0;
    setp.lt.u32 %p2, %r3, 32; @%p2 bra TELL; setp.lt.u32 %p2, %r3, 64; @%p2 bra HEAR; bra VOTE;
TELL: st.shared.u32 [room+400], %r8; barrier.arrive 5, 64; bra VOTE;
HEAR: barrier.sync 5, 64; ld.shared.u32 %r9, [room+400]; add.u32 %r8, %r8, %r9;
VOTE: setp.gt.u32 %p3, %r6, 0x40000000; bar.red.popc.u32 %r10, 1, %p3;
    barrier.red.and.pred %p4, 2, !%p3; bar.red.or.pred %p5, 2, %p3;
    @%p4 add.u32 %r10, %r10, 1000; @%p5 add.u32 %r10, %r10, 2000;
    xor.b32 %r8, %r8, %r10; st.global.u32 [%rd2], %r8;"""
    run(body, ".shared .align 4 .b8 room[512];", block=96)


MBARRIER = """mov.u32 %r4, room; setp.ne.u32 %p1, %r3, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [bars], 64; mbarrier.init.shared.b64 [bars+8], 1;
READY: bar.sync 0; mov.u32 %r20, 0; mov.u32 %r21, 0;
"""


def test_mbarriers():
    """Threads take turns by phases; tokens, parities, drops, counts."""
    body = (
        MBARRIER
        + """mad.lo.u32 %r5, %r3, 4, %r4; xor.b32 %r6, %r5, 64;
LOOP: mad.lo.u32 %r7, %r20, 77, %r0; st.shared.u32 [%r5], %r7;
    mbarrier.arrive.shared.b64 %rd3, [bars];
WAIT: mbarrier.try_wait.shared.b64 %p2, [bars], %rd3; @!%p2 bra WAIT;
    mbarrier.test_wait.parity.shared.b64 %p3, [bars], %r20; mbarrier.pending_count.b64 %r8, %rd3;
    cvt.u32.u64 %r10, %rd3; xor.b32 %r21, %r21, %r10;
    ld.shared.u32 %r9, [%r6]; add.u32 %r21, %r21, %r9; mad.lo.u32 %r21, %r21, 5, 1;
    @%p3 add.u32 %r21, %r21, 3; bar.sync 1; add.u32 %r20, %r20, 1;
    setp.lt.u32 %p4, %r20, 4; @%p4 bra LOOP;
    setp.lt.u32 %p5, %r3, 32; @%p5 mbarrier.arrive_drop.shared.b64 %rd3, [bars];
    @!%p5 mbarrier.arrive.shared.b64 _, [bars]; bar.sync 0;
    ld.shared.u64 %rd4, [bars]; cvt.u32.u64 %r10, %rd4; shr.u64 %rd4, %rd4, 32;
    cvt.u32.u64 %r11, %rd4; xor.b32 %r10, %r10, %r11; xor.b32 %r21, %r21, %r10;
    st.global.u32 [%rd2], %r21;"""
    )
    run(body, ".shared .align 128 .b8 room[512]; .shared .b64 bars[2];")


@pytest.mark.parametrize("order", ["early", "late", "random"])
def test_asynchronous_copies(order):
    """cp.async with groups, zeros behind the source, an mbarrier; bulk copies, reductions."""
    body = (
        MBARRIER
        + """mad.lo.u32 %r5, %r3, 16, %r4; ld.param.u64 %rd3, [a];
    and.b32 %r6, %r0, 31; mad.wide.u32 %rd4, %r6, 16, %rd3; and.b32 %r7, %r3, 15;
    cp.async.ca.shared.global [%r5], [%rd4], 16, %r7; cp.async.commit_group;
    cp.async.ca.shared.global [%r5+1024], [%rd4+4], 4; cp.async.commit_group;
    cp.async.wait_group 1; ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r5];
    cp.async.wait_all; ld.shared.u32 %r12, [%r5+1024]; xor.b32 %r8, %r8, %r12;
    cp.async.ca.shared.global [%r5], [%rd4+8], 8; cp.async.mbarrier.arrive.noinc.shared.b64 [bars];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bars], 0; @!%p2 bra WAIT;
    ld.shared.u32 %r12, [%r5]; add.u32 %r8, %r8, %r12; xor.b32 %r8, %r8, %r9;
    xor.b32 %r10, %r10, %r11; add.u32 %r8, %r8, %r10; bar.sync 0;
    @%p1 bra HEAR; mbarrier.arrive.expect_tx.shared.b64 _, [bars+8], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [room], [%rd3], 256, [bars+8];
HEAR: mbarrier.try_wait.parity.shared.b64 %p2, [bars+8], 0; @!%p2 bra HEAR;
    and.b32 %r13, %r3, 63; mad.lo.u32 %r13, %r13, 4, %r4; ld.shared.u32 %r12, [%r13];
    add.u32 %r8, %r8, %r12; bar.sync 0; @%p1 bra DONE;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd3+512], [room], 64;
    cp.async.bulk.global.shared::cta.bulk_group [%rd3+768], [room+16], 64;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE: st.global.u32 [%rd2], %r8;"""
    )
    declared = ".shared .align 128 .b8 room[2560]; .shared .b64 bars[2];"
    # 256 words of a, of which the first half is read and the second written.
    buffers = [words(256), np.zeros(64, U32)]
    # A seed alone picks an order of warps, which the reference engine does not have.
    seed = 3 if order == "random" else None
    out = both(kernel(body, declared), 1, 64, buffers, async_order=order, seed=seed)
    assert (out[0] != buffers[0]).any()


#: what is issued before memory moves, and finished after it
MOVED = {
    "bulk copy": (
        "cp.async.bulk.global.shared::cta.bulk_group [%rd3], [room], 256;",
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
    ),
    "reduction": (
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd3], [room], 256;",
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
    ),
    "bulk load": (
        "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [room], [%rd3], 256, [bar]; fence.proxy.async;",
        "WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;",
    ),
    "cp.async": ("cp.async.ca.shared.global [room], [%rd3], 16;", "cp.async.wait_all;"),
}


@pytest.mark.parametrize("what", MOVED)
def test_memory_grows_before_a_copy_takes_effect(what):
    """A kernel takes memory by malloc while copies are under way, which may move all of it."""
    text = """.extern .func (.param .b64 out) malloc(.param .b64 size);
    .visible .entry go(.param .u64 a, .param .u64 b)
    { .reg .pred %p1; .reg .b32 %r<5>; .reg .b64 %rd<6>; .shared .align 128 .b32 room[64];
      .shared .b64 bar; .param .b64 size; .param .b64 out;
      ld.param.u64 %rd3, [a]; ld.param.u64 %rd4, [b]; mbarrier.init.shared.b64 [bar], 1;
      st.shared.b32 [room], 7; st.shared.b32 [room+252], 9; fence.proxy.async;
      ISSUE
      st.param.b64 [size], 4000000; call (out), malloc, (size); ld.param.b64 %rd5, [out];
      st.global.b32 [%rd3+64], 5;
      WAIT
      ld.shared.v2.b32 {%r1, %r2}, [room]; ld.shared.b32 %r3, [room+252];
      ld.shared.b32 %r4, [room+64];
      st.global.v4.b32 [%rd4], {%r1, %r2, %r3, %r4}; ret; }
    """
    issue, wait = MOVED[what]
    buffers = [words(64), np.zeros(4, U32)]
    text = text.replace("ISSUE", issue).replace("WAIT\n", wait + "\n")
    out = both(text, 1, 1, buffers, async_order="late")
    given = buffers[0]
    if what in ("bulk copy", "reduction"):
        added = given if what == "reduction" else np.zeros(64, U32)
        assert (out[0][[0, 63]] == added[[0, 63]] + U32([7, 9])).all()
    else:
        last, middle = (9, 0) if what == "cp.async" else (given[63], 5)
        assert out[1].tolist() == [given[0], given[1], last, middle]


# --- clusters -------------------------------------------------------------------------------------


def test_shared_memory_of_a_cluster():
    body = """.reg .b32 %q<9>; mov.u32 %r4, room; mad.lo.u32 %r5, %r3, 4, %r4;
    mov.u32 %q1, %cluster_ctarank; setp.ne.u32 %p1, %r3, 0;
    @!%p1 mbarrier.init.shared.b64 [bars], 32; st.shared.u32 [%r5], %r0;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    add.u32 %q2, %q1, 1; and.b32 %q2, %q2, 3; mapa.shared::cluster.u32 %q3, %r5, %q2;
    ld.shared::cluster.u32 %r6, [%q3]; atom.shared::cluster.add.u32 %r7, [%q3], 5;
    mov.u32 %q4, bars; mapa.shared::cluster.u32 %q5, %q4, %q2; add.u32 %q6, %q3, 512;
    setp.eq.u32 %p3, %r3, 1; @%p3 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bars], 64;
    setp.lt.u32 %p2, %r3, 16; @!%p2 bra TELL;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%q6], %r0, [%q5];
TELL: setp.lt.u32 %p3, %r3, 32;
    @%p3 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%q5];
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [bars], 0; @!%p4 bra WAIT;
    ld.shared.u32 %r8, [%r5+512]; cvt.u64.u32 %rd3, %q3; cvta.shared.u64 %rd3, %rd3;
    isspacep.shared::cta %p5, %rd3; isspacep.shared::cluster %p6, %rd3;
    getctarank.shared::cluster.u32 %q7, %q3; barrier.cluster.arrive; barrier.cluster.wait;
    ld.u32 %r9, [%rd3]; @%p5 add.u32 %r9, %r9, 100; @%p6 add.u32 %r9, %r9, 200;
    add.u32 %r6, %r6, %r7; mad.lo.u32 %r6, %r6, 3, %r8; mad.lo.u32 %r6, %r6, 3, %r9;
    add.u32 %r6, %r6, %q7; barrier.cluster.arrive; barrier.cluster.wait;
    st.global.u32 [%rd2], %r6;"""
    declared = ".shared .align 128 .b8 room[1024]; .shared .b64 bars[2];"
    run(body, declared, grid=8, block=64, cluster=4)


# --- tensor copies --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["early", "late"])
@pytest.mark.parametrize("swizzle", ["none", "128B"])
def test_tensor_copies(order, swizzle):
    """A box that hangs over two edges is loaded, copied out, and added."""
    text = """.visible .entry go(.param .align 64 .b8 m[128], .param .u64 b)
{ .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<4>;
    .shared .align 1024 .b8 room[2048]; .shared .b64 bar;
    mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; mov.u32 %r2, -4; mov.u32 %r3, 5;
    mov.b64 %rd1, m; cvta.param.u64 %rd1, %rd1;
    @%p1 bra READY; mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [room], [%rd1, {%r2, %r3}], [bar];
READY: bar.sync 0;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra WAIT;
    mad.lo.u32 %r4, %r1, 16, 0; mov.u32 %r5, room; add.u32 %r5, %r5, %r4;
    ld.shared.v4.u32 {%r6, %r7, %r8, %r2}, [%r5]; ld.param.u64 %rd2, [b];
    mad.wide.u32 %rd2, %r1, 16, %rd2; st.global.v4.u32 [%rd2], {%r6, %r7, %r8, %r2};
    @%p1 ret; mov.u32 %r2, 8; mov.u32 %r3, 6;
    cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group
        [%rd1, {%r2, %r3}], [room];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; mov.u32 %r3, 0;
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r2, %r3}], [room];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    ret; }
"""
    results = []
    for engine in ("vector", "reference"):
        held = np.random.default_rng(1).normal(size=(9, 64)).astype(np.float32)
        tensor_map = TensorMap.tiled(
            held, dtype="float32", dims=(40, 9), strides=(256,), box=(32, 8), swizzle=swizzle
        )
        out = np.zeros(1024, np.uint8)
        launch_now = Module(HEAD + text)["go"].launch
        launch_now(1, 64, [tensor_map, out], engine=engine, async_order=order)
        results.append((held.tobytes(), out.tobytes()))
    assert results[0] == results[1]
    assert any(results[1][1])


# --- matrix instructions --------------------------------------------------------------------------


def small(count, dtype, seed=0):
    values = np.random.default_rng(seed).normal(size=count).astype(dtype)
    return values.view(U32)


def test_mma_and_moves_of_matrices():
    body = """mad.lo.u32 %r5, %r3, 16, room+0; ld.param.u64 %rd3, [a];
    mad.wide.u32 %rd3, %r3, 16, %rd3;
    ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd3]; st.shared.v4.u32 [%r5], {%r6, %r7, %r8, %r9};
    bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14, %r15}, [%r5];
    movmatrix.sync.aligned.m8n8.trans.b16 %r16, %r10;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4},
        {%r16, %r11, %r12, %r13}, {%r14, %r15}, {%f5, %f5, %f5, %f5};
    mov.b32 %r17, %f1; mov.b32 %r18, %f2; mov.b32 %r19, %f3; mov.b32 %r20, %f4;
    stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r5], {%r17, %r18}; bar.warp.sync -1;
    ld.shared.u32 %r6, [%r5]; xor.b32 %r6, %r6, %r19; xor.b32 %r6, %r6, %r20;
    st.global.u32 [%rd2], %r6;"""
    given = [small(256, np.float16), np.zeros(32, U32)]
    both(kernel(body, ".shared .align 128 .b8 room[512];"), 1, 32, given)


def test_sparse_mma():
    body = """ld.param.u64 %rd3, [a]; mad.wide.u32 %rd3, %r3, 16, %rd3; mov.b32 %r10, 0x4E4E4E4E;
    ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd3];
    mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4},
        {%r6, %r7}, {%r8, %r9}, {%f5, %f5, %f5, %f5}, %r10, 1;
    mov.b32 %r6, %f1; mov.b32 %r7, %f4; xor.b32 %r6, %r6, %r7; st.global.u32 [%rd2], %r6;"""
    both(kernel(body), 1, 32, [small(256, np.float16), np.zeros(32, U32)])


@pytest.mark.parametrize("space", ["global", "shared"])
def test_wmma(space):
    place = {"global": "%rd3", "shared": "%r5"}[space]
    target = {"global": "%rd4", "shared": "%r5"}[space]
    eight = ", ".join(f"%r{i}" for i in range(10, 18))
    body = f"""ld.param.u64 %rd3, [a]; ld.param.u64 %rd4, [b]; mov.u32 %r5, room; mov.u32 %r6, 0;
    mad.wide.u32 %rd5, %r3, 16, %rd3; mad.lo.u32 %r7, %r3, 16, %r5;
    ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd5];
    st.shared.v4.u32 [%r7], {{%r10, %r11, %r12, %r13}}; bar.warp.sync -1;
    wmma.load.a.sync.aligned.row.m16n16k16.{space}.f16 {{{eight}}}, [{place}], 16;
    wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16 {{%r20, %r21, %r22, %r23}}, {{{eight}}},
        {{{eight}}}, {{%r6, %r6, %r6, %r6}};
    wmma.store.d.sync.aligned.col.m16n16k16.{space}.f16 [{target}], {{%r20, %r21, %r22, %r23}}, 16;
    bar.warp.sync -1; ld.shared.u32 %r6, [%r7]; setp.ne.u32 %p1, {int(space == "shared")}, 0;
    @%p1 st.global.u32 [%rd2], %r6;"""
    given = [small(256, np.float16), np.zeros(128, U32)]
    out = both(kernel(body, ".shared .align 128 .b8 room[512];"), 1, 32, given)
    assert out[1].any()


def test_wgmma():
    """Four warps together, A in shared memory and in registers, accumulators that stay."""
    body = """mad.lo.u32 %r5, %r3, 16, room+0; ld.param.u64 %rd3, [a];
    mad.wide.u32 %rd3, %r3, 16, %rd3;
    ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd3]; st.shared.v4.u32 [%r5], {%r6, %r7, %r8, %r9};
    fence.proxy.async; bar.sync 0; mov.u32 %r10, room; and.b32 %r10, %r10, 0x3ffff;
    shr.u32 %r10, %r10, 4; cvt.u64.u32 %rd4, %r10; or.b64 %rd4, %rd4, 0x0000001000080000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd4, %rd4,
        0, 1, -1, 0, 0;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4},
        {%r6, %r7, %r8, %r9}, %rd4, %p1, 1, 1, 1;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    mov.b32 %r6, %f1; mov.b32 %r7, %f2; mov.b32 %r8, %f3; mov.b32 %r9, %f4;
    ld.param.u64 %rd3, [b]; mad.wide.u32 %rd3, %r3, 16, %rd3;
    st.global.v4.u32 [%rd3], {%r6, %r7, %r8, %r9};"""
    body = "setp.eq.u32 %p1, 0, 0; " + body
    given = [small(1024, np.float16), np.zeros(512, U32)]
    out = both(kernel(body, ".shared .align 1024 .b8 room[4096];"), 1, 128, given)
    assert out[1].any()


def test_bulk_stores_of_some_bytes():
    text = """.version 9.5
.target sm_100a
.address_size 64
.visible .entry go(.param .u64 a, .param .u64 b)
{ .reg .pred %p1; .reg .b16 %h1; .reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .align 16 .b8 room[64];
    mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r1, 4, room+0;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
    mad.wide.u32 %rd3, %r1, 4, %rd1; ld.global.u32 %r3, [%rd3]; st.shared.u32 [%r2], %r3;
    bar.sync 0; setp.ne.u32 %p1, %r1, 0; @%p1 ret; mov.b16 %h1, 0x8305; mov.u32 %r4, room;
    mov.u64 %rd4, 16; add.u32 %r5, %r4, 32; st.bulk.weak.shared::cta [%r5], %rd4, 0;
    cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd2], [%r4], 64, %h1;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; }
"""
    given, results = words(16).view(np.uint8), []
    for engine in ("vector", "reference"):
        out = np.full(64, 7, np.uint8)
        Module(text)["go"].launch(1, 16, [given, out], engine=engine)
        results.append(out)
    stored = np.concatenate([given[:32], np.zeros(16, np.uint8), given[48:]])
    want = np.where(0x8305 >> np.arange(64) % 16 & 1, stored, 7)
    assert results[0].tolist() == results[1].tolist() == want.tolist()


@pytest.mark.parametrize(
    "body", ["@%p1 ret;", "mov.u32 %r4, 1;", "bar.sync 0;", "L: bar.warp.sync -1;"]
)
def test_threads_end_behind_the_last_statement(body):
    text = ".visible .entry go(.param .u64 b) {{ .reg .pred %p1; .reg .b32 %r<9>; {} }}"
    for engine in ("vector", "reference"):
        launch(engine, text.format(body), 2, 64, [words(1)])
        launch(engine, text.format(""), 2, 64, [words(1)])


# --- clusters that take over others ---------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vector", "reference"])
def test_clusters_that_are_cancelled(engine):
    """Every block is done once, by itself or by one that took it over."""
    text = """.version 9.5
.target sm_100a
.address_size 64
.visible .entry go(.param .u64 b)
{ .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .b128 %q1;
    .shared .align 16 .b8 answer[16]; .shared .b64 bar; ld.param.u64 %rd1, [b];
    mbarrier.init.shared.b64 [bar], 1; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, 0;
LOOP: mad.lo.u32 %r4, %r2, 5, %r1; mad.wide.u32 %rd2, %r4, 4, %rd1;
    ld.global.u32 %r5, [%rd2]; mad.lo.u32 %r5, %r4, 100, %r5; add.u32 %r5, %r5, 1;
    st.global.u32 [%rd2], %r5; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
    clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [answer], [bar];
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], %r3; @!%p1 bra WAIT;
    xor.b32 %r3, %r3, 1; ld.shared.b128 %q1, [answer];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q1; @!%p2 ret;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r2, %r6, %r7}, %q1;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r2, %q1; bra LOOP; }
"""
    out, seen = np.zeros(20, U32), []
    launched = Module(text)["go"]
    launched.launch((5, 4), 1, [out], engine=engine, progress=lambda *done: seen.append(done))
    assert out.tolist() == [100 * i + 1 for i in range(20)]
    assert seen[-1] == (20, 20)


# --- what cannot go on ----------------------------------------------------------------------------

FAILURES = {
    "out of bounds": "st.global.u32 [%rd2+256], %r0;",
    "null": "mov.u64 %rd3, 0; ld.global.u32 %r4, [%rd3];",
    "misaligned": "ld.global.u32 %r4, [%rd1+2];",
    "read-only": "mov.b64 %rd4, a; cvta.param.u64 %rd4, %rd4; st.global.u32 [%rd4], %r0;",
    "shared": "st.shared.u32 [room+5000], %r0;",
    "before local": "ld.local.u32 %r5, [mine+-8];",
    "before shared": "st.shared.u32 [room+-4096], %r0;",
    "local": "mov.u32 %r4, 8; ld.local.u32 %r5, [%r4+4096];",
    "trap": "setp.eq.u32 %p1, %r3, 33; @%p1 trap;",
    "membermask": "bar.warp.sync 0x7fffffff;",
    "barrier": "mov.u32 %r4, 16; barrier.sync %r4;",
    "count": "add.u32 %r4, %r3, 7; barrier.sync 1, %r4;",
    "pointer": "mov.u64 %rd3, 77; T: .callprototype _ (); call %rd3, (), T;",
    "target": "T: .branchtargets L; brx.idx 3, T; L: ret;",
    "lanes": "setp.eq.u32 %p1, %r3, 3; @%p1 ret; movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r5;",
    "rows": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];",
    "arrivals": "mbarrier.init.shared.b64 [room], 2; mbarrier.arrive.shared.b64 _, [room], 3;",
    "mbarrier": "mov.u32 %r4, 0; mbarrier.init.shared.b64 [room], %r4;",
    "cluster": "barrier.cluster.arrive; barrier.cluster.arrive;",
    "stack": "setp.gt.u32 %p1, %r3, 1; @%p1 ret; call deep, ();",
}
DEEP = ".func deep() { .local .b8 held[64]; call deep, (); ret; }\n"


@pytest.mark.parametrize("name", FAILURES)
def test_failures(name):
    """Both engines say the same of what happened; neither has written anything."""
    declared = ".shared .align 128 .b8 room[512]; .local .b8 mine[64];"
    text = kernel(FAILURES[name], declared, DEEP)
    found = []
    for engine in ("vector", "reference"):
        buffers = [words(64), words(64, 1)]
        with pytest.raises(KernelError) as caught:
            Module(HEAD + text)["go"].launch(1, 64, buffers, engine=engine)
        assert (buffers[1] == words(64, 1)).all()
        error = caught.value
        # Where arrays lie differs from launch to launch.
        reason = re.sub("0x7f4[0-9a-f]+", "address", error.reason)
        found.append((error.kind, reason, error.line, error.block, error.threads[:1]))
    assert found[0] == found[1]


DEADLOCKS = {
    "barrier": ("setp.lt.u32 %p1, %r3, 32; @%p1 bra L; barrier.sync 2, 64; L: barrier.sync 3, 64;",
                r"warp 1 \(32 threads, 32 to 63\) at line 12: barrier 2: 32 of 64 threads arrived"),
    "mbarrier": ("mbarrier.init.shared.b64 [room+8], 5; bar.sync 0; L: mbarrier.try_wait.parity"
                 ".shared.b64 %p1, [room+8], 0; @!%p1 bra L;",
                 r"mbarrier room\[1\], parity 0: 5 of 5 arrivals and 0 bytes are outstanding"),
    "cluster": ("setp.lt.u32 %p1, %r3, 32; @%p1 bra L; barrier.cluster.arrive; "
                "barrier.cluster.wait; L: barrier.sync 1, 64;",
                r"barrier of the cluster: 32 threads of block \(0, 0, 0\) have not arrived"),
    "lanes": ("setp.lt.u32 %p1, %r3, 2; @%p1 bra L; bar.warp.sync -1; L: barrier.sync 1, 64;",
              "threads elsewhere: 0-1"),
    "memory": ("L: ld.volatile.global.u32 %r5, [%rd2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra L;",
               "looks at memory that no thread changes"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEADLOCKS)
def test_deadlocks_say_who_waits(name):
    body, message = DEADLOCKS[name]
    with pytest.raises(KernelError, match=f"(?s)deadlock: no thread can ever go on.*{message}"):
        launch("reference", kernel(body, ".shared .align 8 .b8 room[16];"), 1, 64,
               [words(64), np.zeros(64, U32)])  # fmt: skip


def test_step_limit():
    body = "LOOP: add.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra LOOP;"
    with pytest.raises(KernelError, match=r"step limit: .*step_limit=10,000"):
        launch("reference", kernel(body), 1, 32, [words(32)] * 2, step_limit=10_000)


def test_engines_that_are_not_there():
    with pytest.raises(
        OperandError,
        match="auto, compiled, vector, reference; got 'refernce'; nearest is 'reference'",
    ):
        launch("refernce", kernel(""), 1, 32, [words(32)] * 2)


PRINT = """
.extern .func (.param .b32 out) vprintf(.param .b64 form, .param .b64 given);
.extern .func (.param .b64 out) malloc(.param .b64 size);
.extern .func free(.param .b64 place);
.global .align 1 .b8 form[20] = {116, 32, 37, 100, 32, 37, 115, 10, 0};
.global .align 1 .b8 word[4] = {97, 98, 99, 0};
"""


def test_functions_of_the_system():
    """vprintf of some threads, malloc and free of all."""
    body = """mov.u64 %rd3, word; st.local.u32 [given], %r0; st.local.u64 [given+8], %rd3;
    { .param .b64 p; .param .b64 q; mov.u64 %rd4, 24; st.param.b64 [p], %rd4;
      call (q), malloc, (p); ld.param.b64 %rd5, [q]; }
    st.u32 [%rd5+4], %r0; mov.u64 %rd6, form; mov.u64 %rd7, given; cvta.local.u64 %rd7, %rd7;
    setp.lt.u32 %p1, %r0, 3; @!%p1 bra REST;
    { .param .b64 p0; .param .b64 p1; .param .b32 q; st.param.b64 [p0], %rd6;
      st.param.b64 [p1], %rd7; call (q), vprintf, (p0, p1); ld.param.b32 %r4, [q]; }
REST: ld.u32 %r5, [%rd5+4]; { .param .b64 p; st.param.b64 [p], %rd5; call free, (p); }
    mad.lo.u32 %r5, %r4, 100, %r5; st.global.u32 [%rd2], %r5;"""
    text = kernel(body, ".local .align 8 .b8 given[16];", PRINT)
    found = []
    for engine in ("vector", "reference"):
        out = np.zeros(64, U32)
        report = Module(HEAD + text)["go"].launch(1, 64, [words(64), out], engine=engine)
        found.append((report.printed, out.tolist()))
    assert found[0] == found[1]
    assert found[0][0] == ["t 0 abc\n", "t 1 abc\n", "t 2 abc\n"]
    assert found[0][1][:4] == [200, 201, 202, 3]


def test_the_engines_run_the_same_instructions():
    from emulator.machine.reference import statements as reference
    from emulator.machine.vector import control, statements

    known = {*reference.EACH, *reference.FLOWS, *reference.TOGETHER}
    assert known == {*statements.STEPS, *control.ENDS}


def test_what_no_engine_runs_is_refused():
    with pytest.raises(UnsupportedError, match="not modelled"):
        launch("reference", kernel("mov.u32 %r4, %pm0; st.global.u32 [%rd2], %r4;"), 1, 32,
               [words(32)] * 2)  # fmt: skip


# --- random kernels -------------------------------------------------------------------------------


def check_random(seed):
    rng, text = np.random.default_rng(seed), RandomKernel(seed).text
    given = rng.integers(0, 1 << 32, 64 * 2 * 16, np.uint64).astype(U32)
    given[::7] &= 15
    results = []
    for engine in ("vector", "reference"):
        out = np.zeros_like(given)
        Module(text)["go"].launch(2, 64, [given.copy(), out], engine=engine)
        results.append(out)
    assert np.flatnonzero(results[0] != results[1]).tolist() == []


@pytest.mark.parametrize("seed", range(4))
def test_random_kernels(seed):
    check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 100))
def test_more_random_kernels(seed):
    check_random(seed)


# --- recordings -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("path", [*KERNELS, *REAL], ids=lambda path: path.stem)
def test_recorded_kernels(path, monkeypatch):
    """Every byte is what an H200 wrote; matrix instructions by the vector engine, for its speed."""
    monkeypatch.setattr("emulator.machine.reference.engine.ARITHMETIC", "vector")
    assert not any(differing_bytes(path, engine="reference"))


@pytest.mark.slow
def test_recorded_attention():
    """With matrix instructions by their reference, too."""
    (path,) = [path for path in KERNELS if path.stem == "attention"]
    assert not any(differing_bytes(path, engine="reference"))


@pytest.mark.parametrize("engine", ["reference", "vector", "compiled"])
def test_a_carry_outlives_a_branch_that_some_lanes_leave(engine):
    """Lanes that have ended keep the others from taking up their common registers again."""
    text = (
        HEAD
        + """
    .visible .entry go(.param .u64 out) {
        .reg .b32 %r<9>; .reg .b64 %d<4>; .reg .pred %p<4>;
        ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x;
        mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2;
        and.b32 %r1, %r0, 1; setp.ne.u32 %p1, %r1, 0;
        and.b32 %r2, %r0, 2; setp.ne.u32 %p2, %r2, 0;
        shl.b32 %r3, %r0, 29;
        add.cc.u32 %r4, %r3, 0x80000000;
        @%p1 bra ODD;
        @%p2 bra END;
        add.u32 %r5, %r0, 100;
        bra MEET;
    ODD: add.u32 %r5, %r0, 200;
    MEET: addc.u32 %r6, %r5, 0;
        st.global.u32 [%d3], %r6;
    END: ret; }"""
    )
    out, i = np.zeros(32, "u4"), np.arange(32)
    Module(text)["go"].launch(1, 32, [out], engine=engine)
    want = i + np.where(i & 1, 200, 100) + (i >> 2 & 1)
    assert np.array_equal(out, np.where((i & 3) == 2, 0, want))


def test_a_predicate_leaves_the_source_of_a_copy_out():
    body = """and.b32 %r4, %r0, 1; setp.ne.u32 %p1, %r4, 0; mov.u32 %r5, sh;
    mad.lo.u32 %r5, %r3, 4, %r5;
    cp.async.ca.shared.global.L2::128B [%r5], [%rd1], 4, %p1; cp.async.wait_all;
    ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd2], %r6;"""
    out = run(body, ".shared .b32 sh[64];")
    assert (out == np.where(np.arange(128) % 2, 0, words(128))).all()
    with pytest.raises(UnsupportedError, match="a predicate or a size of the source, not both"):
        run(body.replace("4, %p1;", "4, %p1, %r4;"), ".shared .b32 sh[64];")
