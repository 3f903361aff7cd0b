"""Every sort of tcgen05.mma in a kernel, against ``mma`` on the matrices, in both engines."""

import numpy as np
import pytest
from bits import assert_same_codes
from tensor_problem import Problem

from dtypes import FORMATS, Place
from emulator import Module, mma

#: columns of tensor memory in these kernels: D has 64
AT = {"d": 0, "a": 64, "metadata": 96, "scale_a": 104, "scale_b": 112, "lookup": 126}
COLUMNS, SHARED, B_START = 128, 24576, 16384
#: vectors of 4 words that one thread loads of the image of shared memory
_PARTS = SHARED // (128 * 16)
FOUR = "{%r10, %r11, %r12, %r13}"
WORDS = "{" + ", ".join(f"%w{i}" for i in range(COLUMNS)) + "}"

KERNEL = """.version 9.4
.target {target}
.address_size 64
.visible .entry k(.param .u64 ps, .param .u64 pt, .param .u64 pd) {cluster}
{{
 .reg .pred %p, %q; .reg .b32 %r<40>; .reg .b32 %w<128>; .reg .b64 %rd<20>;
 .shared .align 1024 .b8 sm[{shared}]; .shared .align 8 .b64 bar; .shared .b32 slot;
 ld.param.u64 %rd0, [ps]; ld.param.u64 %rd1, [pt]; ld.param.u64 %rd2, [pd];
 mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 128, %r0;
 shr.u32 %r3, %r0, 5; setp.eq.u32 %p, %r3, 0;
 @%p tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [slot], {columns};
 bar.sync 0;
 ld.shared.b32 %r4, [slot]; shl.b32 %r3, %r3, 21; add.u32 %r5, %r4, %r3;
 mov.u32 %r6, sm; mad.lo.u32 %r7, %r0, {per_thread}, %r6; mad.wide.u32 %rd3, %r2, {per_thread}, %rd0;
{fill}
 mad.wide.u32 %rd4, %r2, {row}, %rd1; mad.wide.u32 %rd5, %r2, {row}, %rd2;
{load}
 tcgen05.st.sync.aligned.32x32b.x{columns}.b32 [%r5], {words};
 tcgen05.wait::st.sync.aligned;
 mov.u32 %r8, bar; setp.eq.u32 %q, %r0, 0; @%q mbarrier.init.shared::cta.b64 [%r8], 1;
 fence.proxy.async; tcgen05.fence::before_thread_sync; bar.sync 0; {meet}
 tcgen05.fence::after_thread_sync;
 shr.u32 %r6, %r6, 4; cvt.u64.u32 %rd6, %r6;
 add.u64 %rd7, %rd6, {a_descriptor}; add.u64 %rd8, %rd6, {b_descriptor};
{addresses}
 {lead}
 setp.ne.b32 %p, {enable}, 0;
 @%q {opcode} {operands};
 setp.eq.u32 %p, %r3, 0;
 @%q tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster{arrive};
WAIT:
 mbarrier.try_wait.parity.shared::cta.b64 %q, [%r8], 0;
 @!%q bra WAIT;
 tcgen05.fence::after_thread_sync;
 tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {words}, [%r5];
 tcgen05.wait::ld.sync.aligned;
{store}
 bar.sync 0; {meet}
 @%p tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r4, {columns};
 ret;
}}
"""  # noqa: E501


def opcode_of(problem):
    """The opcode of a problem."""
    x, mma_ = problem.x, problem.mma
    words = ["tcgen05.mma"]
    words += ["ws"] * mma_.weight_stationary + ["sp"] * x.sparse
    words += [f"cta_group::{problem.group}", f"kind::{x.kind}"]
    if mma_.product.scales:
        words += ["block_scale"] + [mma_.product.vector] * bool(mma_.product.vector)
    words += ["decompress::lut::b"] * mma_.lookup
    return ".".join(words + ["ashift"] * mma_.a_shift)


def operands_of(problem, mask, zero_mask):
    """The operands of the statement; registers from 20 on hold addresses of tensor memory,
    those from 30 on the lanes that are disabled."""
    given, product = problem.operands, problem.mma.product
    out = ["[%r20]", "[%r21]" if given.a_in_tensor_memory else "%rd7", "%rd8"]
    out += ["[%r22]"] * (given.metadata is not None)
    out += ["[%r25]"] * (given.lookup is not None) + [str(problem.x.encode())]
    if product.scales:
        out += ["[%r23]", "[%r24]"]
    out += ["{" + ", ".join(f"%r{30 + i}" for i in range(len(mask))) + "}"] * bool(mask) + ["%p"]
    out += [str(product.scale_input_d)] * bool(product.scale_input_d)
    out += ["%rd9"] * bool(zero_mask)
    return ", ".join(out)


def kernel(problem, *, enable=True, mask=(), zero_mask=0):
    """PTX that fills shared and tensor memory, multiplies once, and stores tensor memory."""
    group, given = problem.group, problem.operands
    pair = group == 2
    a = given.a if given.a_in_tensor_memory else 0
    held = enumerate((given.d, a, given.metadata, given.scale_a, given.scale_b, given.lookup), 20)
    quads = range(0, COLUMNS, 4)
    four = {i: "{" + ", ".join(f"%w{i + j}" for j in range(4)) + "}" for i in quads}
    return KERNEL.format(
        target=problem.mma.product.target.name, group=group, columns=COLUMNS, shared=SHARED,
        per_thread=SHARED // 128, row=4 * COLUMNS, words=WORDS, enable=int(enable),
        cluster=".explicitcluster .reqnctapercluster 2, 1, 1" if pair else "",
        fill="\n".join(
            f" ld.global.v4.b32 {FOUR}, [%rd3+{16 * i}]; st.shared.v4.b32 [%r7+{16 * i}], {FOUR};"
            for i in range(_PARTS)
        ),
        load="\n".join(f" ld.global.v4.b32 {four[i]}, [%rd4+{4 * i}];" for i in quads),
        store="\n".join(f" st.global.v4.b32 [%rd5+{4 * i}], {four[i]};" for i in quads),
        meet="barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if pair else "",
        a_descriptor=0 if given.a_in_tensor_memory else hex(given.a), b_descriptor=hex(given.b),
        addresses=f" mov.u64 %rd9, {zero_mask:#x};\n"
        + "".join(f" mov.b32 %r{30 + i}, {word:#x};\n" for i, word in enumerate(mask))
        + "\n".join(f" add.u32 %r{r}, %r4, {word or 0};" for r, word in held),
        lead="mov.u32 %r9, %cluster_ctarank; or.b32 %r9, %r9, %r0; setp.eq.u32 %q, %r9, 0;"
        if pair else "setp.eq.u32 %q, %r0, 0;",
        opcode=opcode_of(problem), operands=operands_of(problem, mask, zero_mask),
        arrive=".multicast::cluster.b64 [%r8], 3" if pair else ".b64 [%r8]",
    )  # fmt: skip


def launched(problem, engine, **more):
    """Tensor memory after a launch on a problem, ``(ctas, lanes, columns)``."""
    shared = np.stack([memory[:SHARED] for memory in problem.shared])
    before = np.stack([memory.words[:, :COLUMNS] for memory in problem.memories])
    out = np.zeros_like(before)
    module = Module(kernel(problem, **more))
    assert module.problems == []
    module["k"].launch(
        grid=(problem.group,), block=(128,), args=[shared, before, out], engine=engine
    )
    return before, out


def small(kind, m, group=1, **more):
    return Problem(kind, m, group, **{"at": AT, "b_start": B_START, "columns": COLUMNS} | more)


def product(problem, **changed):
    """What ``mma`` makes of the matrices."""
    x, given = problem.x, {}
    opcode = opcode_of(problem).replace(".decompress::lut::b", "")
    if x.sparse:
        given["nibbles"] = problem.nibbles
    if problem.mma.product.scales:
        given |= {"scale_a": problem.scale_a, "scale_b": problem.scale_b.T}
    matrices = {name: getattr(problem, name) for name in "abc"} | changed
    return mma(
        opcode, *matrices.values(), idesc=x, target=problem.mma.product.target.name,
        codes=True, **given,
    )  # fmt: skip


def placed(problem, before, d):
    """Tensor memory with D in its place, and all else as before."""
    for memory, words in zip(problem.memories, before, strict=True):
        memory.words[:, :COLUMNS] = words
    where = Place(32, 0, FORMATS[problem.x.d].bits)
    problem.write("d", problem.layout.d, d, where)
    return np.stack([memory.words[:, :COLUMNS] for memory in problem.memories])


def check(problem, engine, want, **more):
    before, out = launched(problem, engine, **more)
    assert_same_codes(out, placed(problem, before, want))


ENGINES = ["vector", pytest.param("reference", marks=pytest.mark.slow)]
CASES = [
    ("f16", 128, {"sparse": True}),
    ("f16", 64, {"sparse": True, "lane": 16, "a_in": True}),
    ("tf32", 128, {"sparse": True, "selector": 1}),
    ("f8f6f4", 64, {"a": "e5m2", "sparse": True}),
    ("i8", 128, {"a": "s8", "sparse": True}),
    ("f8f6f4", 128, {"a": "e2m1"}),
    ("f8f6f4", 128, {"a": "e3m2", "a_in": True, "d": "f16"}),
    ("f16", 128, {"a_in": True}),
    ("f16", 64, {"a": "f16", "d": "f16"}),
    ("f16", 64, {"ws": True, "a_in": True}),
    ("f16", 32, {"ws": True, "sparse": True}),
    ("i8", 32, {"a": "u8", "ws": True}),
    ("mxf8f6f4", 128, {"n": 32, "a": "e4m3", "scale_a_id": 3, "scale_b_id": 1}),
    ("mxf8f6f4", 128, {"n": 32, "a": "e2m3", "sparse": True}),
    ("mxf4", 128, {"n": 32, "scale_b_id": 2}),
    ("mxf4", 256, {"group": 2, "sparse": True}),
    ("mxf4nvf4", 128, {"n": 32, "a_in": True, "vector": "block16"}),
    ("mxf4nvf4", 256, {"group": 2, "scale": "ue8m0", "vector": "block32"}),
    ("mxf4nvf4", 128, {"n": 32, "k": 96, "vector": "block16", "target": "sm_103a"}),
    ("f16", 256, {"group": 2}),
    ("f16", 128, {"group": 2, "a_in": True}),
    ("f16", 128, {"group": 2, "sparse": True, "lane": 16, "a_in": True}),
    ("i8", 256, {"group": 2, "a": "s8"}),
    ("ti16", 64, {"sparse": True, "a_in": True, "target": "sm_107a"}),
    ("f8f6f4", 256, {"group": 2, "a": "e4m3", "k": 64, "n": 32, "lookup": True, "half": 1,
                     "target": "sm_107a"}),
    ("mxf8f6f4", 128, {"a": "e4m3", "k": 64, "n": 32, "lookup": True, "target": "sm_107a"}),
    ("mxf8f6f4", 128, {"a": "e2m3", "k": 64, "n": 32, "a_in": True, "target": "sm_107a"}),
    ("mxf4", 128, {"n": 32, "sparse": True, "sparsity_version": 1, "scale_a_rows": True,
                   "target": "sm_107a"}),
]  # fmt: skip
#: cases of other code paths, in the fast suite
FAST = (1, 9, 13, 15, 16, 20, 24)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "case",
    [x if i in FAST else pytest.param(x, marks=pytest.mark.slow) for i, x in enumerate(CASES)],
    ids=str,
)
def test_a_kernel_makes_the_product(case, engine):
    kind, m, more = case
    problem = small(kind, m, **more)
    want = product(problem)
    assert (want != problem.c).any()
    check(problem, engine, want)


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASES[i] for i in FAST], ids=str)
def test_a_compiled_kernel_makes_the_product(case):
    pytest.importorskip("llvmlite")
    kind, m, more = case
    problem = small(kind, m, **more)
    check(problem, "compiled", product(problem))


def test_a_wrong_bit_of_d_would_show():
    problem = small("f16", 64, n=16)
    want = product(problem)
    check(problem, "vector", want)
    want[63, 15] ^= 1
    with pytest.raises(AssertionError):
        check(problem, "vector", want)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("group", [1, 2])
def test_disabled_lanes_keep_their_d(group, engine):
    problem = small("f16", 128 * group, group, n=32)
    words = [0x80000001, 0x0000FFFF, 0, 0xFFFFFFFF, 0x12345678, 2, 0xF0F0F0F0, 0][: 4 * group]
    off = np.array([words[row // 32] >> row % 32 & 1 for row in range(128 * group)], bool)
    want = np.where(off[:, None], problem.c, product(problem))
    check(problem, engine, want, mask=words)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_old_d_counts_a_power_of_two_less(engine):
    problem = small("f16", 64, n=16, shift=3)
    c = problem.c.view(np.float32)
    assert np.isfinite(c).all() and (abs(c) > 1e-30).all()
    want = product(problem, c=(c / np.float32(8)).view(np.uint32))
    assert (want != product(problem)).any()
    check(problem, engine, want)


@pytest.mark.parametrize("engine", ENGINES)
def test_without_the_old_d(engine):
    problem = small("i8", 128, a="s8", n=16)
    check(problem, engine, product(problem, c=np.zeros_like(problem.c)), enable=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_zero_columns(engine):
    problem = small("f16", 64, ws=True)
    # Columns 0-31: 3 zero, 5 used; the others start within a span of zeros.
    mask = 1 << 39 | 2 << 40 | 4 << 48 | 7 << 8 | 1 << 33
    zero = np.array([(j % 8 >= 5) if j < 32 else ((j - 25) % 8 < 3) for j in range(64)])
    want = product(problem, b=np.where(zero, np.uint16(0), problem.b))
    check(problem, engine, want, zero_mask=mask)


@pytest.mark.parametrize("engine", ENGINES)
def test_shifted_rows_of_a(engine):
    problem = small("f16", 128, n=16, a_in=True, a_shift=True)
    want = product(problem, a=np.concatenate([problem.a[1:], problem.a[-1:]]))
    check(problem, engine, want)


COMMIT = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 po) .explicitcluster .reqnctapercluster 4, 1, 1
{{
 .reg .pred %q; .reg .b32 %r<8>; .reg .b64 %o; .reg .b16 %h; .shared .align 8 .b64 bar;
 ld.param.u64 %o, [po]; mov.u32 %r0, %ctaid.x;
 mov.u32 %r3, %cluster_ctarank; mov.u32 %r1, bar; mbarrier.init.shared::cta.b64 [%r1], 1;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 setp.eq.u32 %q, %r3, 1; mov.b16 %h, {mask};
 @%q tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64
   [%r1], %h;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 mbarrier.test_wait.parity.shared::cta.b64 %q, [%r1], 0; selp.b32 %r2, 1, 0, %q;
 mad.wide.u32 %o, %r0, 4, %o; st.global.b32 [%o], %r2;
 ret;
}}
"""


@pytest.mark.parametrize("engine", ["vector", "reference"])
@pytest.mark.parametrize("mask", [0b0010, 0b1101, 0b1111, 0])
def test_a_commit_arrives_in_the_blocks_of_its_mask(mask, engine):
    out = np.full(8, 9, np.uint32)
    module = Module(COMMIT.format(mask=mask))
    assert module.problems == []
    module["k"].launch(grid=(8,), block=(1,), args=[out], engine=engine)
    assert out.tolist() == [mask >> rank & 1 for rank in range(4)] * 2
