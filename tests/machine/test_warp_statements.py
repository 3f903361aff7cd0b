"""Everything that runs in a kernel runs on a Warp and a Warpgroup, too, with the same bits."""

import time

import numpy as np
import pytest
from random_kernels import RandomKernel

from emulator import (
    EmulatorError,
    KernelError,
    Module,
    OperandError,
    UndefinedError,
    UnsupportedError,
    Warp,
    Warpgroup,
)

pytestmark = pytest.mark.sampled(2)

LANES = np.arange(32)


def after(text, *names, kind=Warp, target="sm_90a", **options):
    """The words of registers after a text."""
    machine = kind(target, **options)
    machine.run(text)
    return machine[names[0]].tolist() if len(names) == 1 else [machine[x].tolist() for x in names]


# --- what a kernel has ---


def test_ordinary_instructions():
    text = """
        .reg .u32 %r<4>; .reg .f32 %f<2>; .reg .f64 x; .reg .pred p;
        mov.u32 %r0, %laneid;  mad.lo.u32 %r1, %r0, %r0, 3;  setp.lt.u32 p, %r0, 8;
        selp.u32 %r2, 1, 2, p;  cvt.rn.f32.u32 %f0, %r0;  fma.rn.f32 %f1, %f0, 0f40000000, %f0;
        cvt.f64.f32 x, %f1;  div.rn.f64 x, x, 0d4008000000000000;  popc.b32 %r3, %r0;
    """
    machine = Warp("sm_90a")
    machine.run(text)
    assert machine["%r1"].tolist() == (LANES * LANES + 3).tolist()
    assert machine["%r2"].tolist() == [1] * 8 + [2] * 24
    assert machine.registers["x"].values.tolist() == LANES.tolist()
    assert machine["%r3"].tolist() == [int(i).bit_count() for i in LANES]


def test_names_in_braces_are_their_own():
    text = """
        .reg .u32 x, y;  mov.u32 x, 1;
        { .reg .u32 x, z;  mov.u32 x, 5;  add.u32 z, x, 2;  { .reg .b64 x; mov.b64 x, 9; }
          mov.u32 y, z; }
    """
    machine = Warp("sm_90a")
    program = machine.bind(text)
    for _ in range(2):
        machine.run(program)
        assert (machine["x"] == 1).all() and (machine["y"] == 7).all()
    assert list(machine.registers) == ["x", "y"]
    with pytest.raises(OperandError, match="'z' is not declared"):
        machine.run("mov.u32 x, z;")


def test_what_braces_declare_holds_nothing_at_first():
    machine = Warp("sm_90a")
    text = ".reg .u32 %y; { .reg .u32 x; @%p mov.u32 x, 5; mov.u32 %y, x; }"
    machine.run(".reg .pred %p; mov.pred %p, 1;")
    program = machine.bind(text)
    machine.run(program)
    machine["%p"] = False
    with pytest.raises(UndefinedError, match=r"line 1, .*'x' is read and nothing has written it"):
        machine.run(program)
    assert (machine["%y"] == 5).all()
    machine.undefined = "hardware"
    machine.run(program)
    assert (machine["%y"] == 0).all()


def test_branches_and_loops():
    text = """
        .reg .u32 n, sum;  .reg .pred p;  mov.u32 n, %laneid;  mov.u32 sum, 0;
        LOOP: add.u32 sum, sum, n;  setp.eq.u32 p, n, 0;  @p bra DONE;  sub.u32 n, n, 1;  bra LOOP;
        DONE: add.u32 sum, sum, 100;
    """
    assert after(text, "sum") == [100 + i * (i + 1) // 2 for i in range(32)]


def test_lanes_that_end_keep_their_registers():
    text = """
        .reg .u32 r, s, t;  .reg .pred p, q;  mov.u32 r, %laneid;  mov.u32 t, 1;
        setp.gt.u32 p, r, 20;  setp.gt.u32 q, r, 10;  mov.u32 s, 1;
        @p exit;
        mov.u32 s, 2;  @q ret;  mov.u32 s, 3;  mov.u32 t, 2;
    """
    s, t = after(text, "s", "t")
    assert s == [3] * 11 + [2] * 10 + [1] * 11
    assert t == [2] * 11 + [1] * 21


def test_guards():
    text = """
        .reg .u32 r, s;  .reg .pred p;  mov.u32 r, %laneid;  mov.u32 s, 7;
        setp.lt.u32 p, r, 4;  @p mov.u32 s, 1;  @!p add.u32 s, s, r;
    """
    assert after(text, "s") == [1] * 4 + [7 + i for i in range(4, 32)]


def test_shared_memory_of_ordinary_statements():
    text = """
        .shared .align 8 .b32 tile[64];  .reg .u32 at, lane, r, s;  .reg .u64 g;  .reg .b16 h;
        mov.u32 at, tile;  mov.u32 lane, %laneid;  mad.lo.u32 at, lane, 4, at;  mov.b16 h, 0x1234;
        st.shared.u32 [at], lane;  bar.sync 0;  xor.b32 at, at, 4;  ld.shared.u32 r, [at];
        atom.shared.add.u32 s, [tile+128], 1;  st.shared.v2.u16 [tile+132], {h, h};
        cvta.shared.u64 g, tile;  ld.u32 at, [g+128];  red.shared.max.u32 [tile+128], 77;
    """
    machine = Warp("sm_90a", shared_bytes=256)
    machine.run(text)
    assert machine["r"].tolist() == (LANES ^ 1).tolist()
    assert machine["s"].tolist() == list(range(32)) and (machine["at"] == 32).all()
    words = machine.shared.view("<u4")
    assert words[:32].tolist() == list(range(32)) and words[32:34].tolist() == [77, 0x12341234]


def test_an_offset_is_a_generic_address_where_shared_memory_is_all_there_is():
    machine = Warp("sm_90a", shared_bytes=64)
    machine.shared[:] = np.arange(64)
    machine.run(".reg .u64 p; .reg .u32 r, s; mov.u64 p, 4; ld.u32 r, [p+4]; ld.shared.u32 s, [8];")
    assert (machine["r"] == 0x0B0A0908).all() and (machine["s"] == 0x0B0A0908).all()
    with pytest.raises(UndefinedError, match=r"at 0x40 of shared memory are read, which has 64"):
        machine.run("ld.u32 r, [p+60];")
    with pytest.raises(UndefinedError, match=r"0x100000004 is no|at 0x100000000 of shared memory"):
        machine.run("mov.u64 p, 0x100000000; ld.u32 r, [p];")


def test_lanes_tell_each_other():
    text = """
        .reg .u32 r, s, t, u, v;  .reg .pred p;  mov.u32 r, %laneid;  setp.gt.u32 p, r, 29;
        shfl.sync.bfly.b32 s, r, 1, 31, -1;  vote.sync.ballot.b32 t, p, -1;
        redux.sync.add.u32 u, r, -1;  match.any.sync.b32 v, t, -1;
    """
    s, t, u, v = after(text, "s", "t", "u", "v")
    assert s == (LANES ^ 1).tolist() and set(t) == {0xC0000000} and set(u) == {496}
    assert set(v) == {0xFFFFFFFF}


def test_warps_of_a_group_meet_at_a_barrier():
    text = """
        .shared .b32 tile[128];  .reg .u32 at, r, w;  .reg .pred p;
        mov.u32 r, %tid.x;  mov.u32 w, %warpid;  shl.b32 at, r, 2;  setp.eq.u32 p, w, 2;
        @p bra LATE;
        BACK: st.shared.u32 [at], r;  bar.sync 1;  xor.b32 at, at, 508;  ld.shared.u32 r, [at];
        bra.uni END;
        LATE: add.u32 r, r, 1000;  bra BACK;
        END:
    """
    got = after(text, "r", kind=Warpgroup)
    want = [127 - i + (1000 if (127 - i) // 32 == 2 else 0) for i in range(128)]
    assert got == want


def test_an_mbarrier():
    text = """
        .shared .b64 bar;  .reg .b64 token;  .reg .pred p;  .reg .u32 r;
        mbarrier.init.shared.b64 [bar], 32;  mbarrier.arrive.shared.b64 token, [bar];
        mbarrier.test_wait.shared.b64 p, [bar], token;  selp.u32 r, 1, 0, p;
    """
    assert after(text, "r") == [1] * 32


def test_local_memory_and_variables_of_braces():
    text = """
        .reg .u32 r, s;  mov.u32 r, %laneid;
        { .local .b32 mine[4]; .shared .b32 ours;  st.local.u32 [mine+8], r;
          st.shared.u32 [ours], 5;  ld.local.u32 s, [mine+8];  ld.shared.u32 r, [ours]; }
    """
    machine = Warp("sm_90a")
    machine.run(".shared .b8 first[6];" + text)
    assert machine["s"].tolist() == LANES.tolist() and (machine["r"] == 5).all()
    assert machine.shared[8] == 5 and list(machine.variables) == ["first"]
    machine.run(".shared .b8 later;")
    assert machine.variables["later"].address == 12


def test_vector_registers():
    machine = Warp("sm_90a")
    machine.run(".reg .v2 .f32 %v; .reg .f32 x; mov.f32 %v.x, 1.5; mov.f32 %v.y, 2.0;")
    machine.run("add.f32 x, %v.x, %v.y;")
    assert list(machine.registers) == ["%v.x", "%v.y", "x"]
    assert (machine.registers["x"].values == 3.5).all()
    machine["%v.y"] = 4.0
    machine.run("add.f32 x, %v.x, %v.y;")
    assert (machine.registers["x"].values == 5.5).all()


def test_every_machine_of_a_batch_goes_its_own_way():
    machine = Warp("sm_90a", batch=(2, 3), shared_bytes=64)
    machine.run(".reg .u32 n, r, b; .reg .pred p; .shared .b32 x;")
    machine["n"] = np.arange(6).reshape(2, 3, 1) * np.ones(32, int)
    machine.run("""
        mov.u32 r, 0;  mov.u32 b, %ctaid.x;
        LOOP: setp.eq.u32 p, n, 0;  @p bra DONE;  sub.u32 n, n, 1;  add.u32 r, r, 2;  bra LOOP;
        DONE: st.shared.u32 [x], r;
    """)
    assert machine["r"][..., 0].tolist() == [[0, 2, 4], [6, 8, 10]]
    assert machine["b"][..., 5].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert machine.shared[..., 0].tolist() == [[0, 2, 4], [6, 8, 10]]


def test_matrix_instructions_in_a_loop():
    """A sum over k as a kernel writes it."""
    text = """
        .reg .b32 %a<4>, %b<2>, n; .reg .f32 %d<4>; .reg .pred p;
        mov.b32 %a0, 0x3c003c00; mov.b32 %a1, %a0; mov.b32 %a2, %a0; mov.b32 %a3, %a0;
        mov.b32 %b0, %a0; mov.b32 %b1, %a0; mov.f32 %d0, 0.0; mov.f32 %d1, 0.0;
        mov.f32 %d2, 0.0; mov.f32 %d3, 0.0; mov.b32 n, 0;
        K: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
            {%d0,%d1,%d2,%d3}, {%a0,%a1,%a2,%a3}, {%b0,%b1}, {%d0,%d1,%d2,%d3};
        add.u32 n, n, 1; setp.lt.u32 p, n, 5; @p bra K;
    """
    machine = Warp("sm_80")
    machine.run(text)
    assert machine.registers["%d3"].values.tolist() == [80] * 32


# --- the same as a kernel ---


class _RandomText(RandomKernel):
    """Statements without calls and without global memory."""

    def _call(self, depth):
        self._compute(depth)

    def _memory(self, depth):
        space, base = self._pick([("local", "mine"), ("shared", "%r23")])
        i, guard = 4 * int(self.rng.integers(4)), self._guard()
        verb = self._pick([f"st.{space}.u32 [{base}+{i}], {self._register}",
                           f"ld.{space}.s16 {self._register}, [{base}+{i}]"])  # fmt: skip
        self.lines.append(f"{guard}{verb};")


_DECLARATIONS = """
    .reg .b32 %r<24>; .reg .pred %p<4>; .shared .align 16 .b8 room[4096];
    .local .align 16 .b8 mine[64]; .reg .b32 %i<99>; .reg .b64 %l<6>; .reg .b16 %h<6>;
    mov.u32 %r20, %tid.x; mad.lo.u32 %r23, %r20, 16, room+0;
"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(6))
def test_random_statements_are_those_of_a_kernel(seed):
    made = _RandomText(seed, statements=40)
    words = np.random.default_rng(seed).integers(0, 1 << 32, (3 * 128, 16), np.uint32)
    out = np.zeros_like(words)
    Module(made.text)["go"].launch(3, 128, [words, out], contract="none")
    group = Warpgroup("sm_90a", batch=(3,), undefined="hardware")
    group.declare("b32", *(f"%r{i}" for i in range(24)))
    group.write("%r", words.reshape(3, 128, 16))
    body = "\n".join(made.lines[4:-4])
    group.run(_DECLARATIONS.replace(".reg .b32 %r<24>;", "") + body)
    assert np.array_equal(group.read("%r", 16).reshape(-1, 16), out)


# --- what nothing has written, what a wgmma uses ---

WGMMA = "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {d0,d1,d2,d3}, 0, 0, p;"
GROUP = ".reg .s32 d0, d1, d2, d3; .reg .pred p; mov.pred p, 0;"


def test_a_loop_of_wgmma_keeps_their_order():
    start = f"{GROUP} .reg .u32 n; .reg .pred q; mov.u32 n, 0; K: wgmma.fence.sync.aligned; {WGMMA}"
    finish = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    again = "add.u32 n, n, 1; setp.lt.u32 q, n, 3; @q bra K;"
    group = Warpgroup("sm_90a")
    group.run(f"{start} {finish} {again}")
    assert (group["n"] == 3).all()
    group = Warpgroup("sm_90a")
    with pytest.raises(UndefinedError, match=r"line 2, .*'d0' is read while the wgmma of line 1"):
        group.run(f"{start} wgmma.commit_group.sync.aligned;\n mov.b32 n, d0;")
    assert not group.registers


def test_registers_of_one_name_are_different_ones_in_different_braces():
    text = f"""
        .reg .pred p; mov.pred p, 0;
        {{ .reg .s32 d0, d1, d2, d3;  wgmma.fence.sync.aligned;  {WGMMA}
           wgmma.commit_group.sync.aligned; }}
        {{ .reg .s32 d0;  mov.s32 d0, 1;  add.s32 d0, d0, 1; }}
        wgmma.wait_group.sync.aligned 0;
    """
    Warpgroup("sm_90a").run(text)
    early = text.replace(
        "commit_group.sync.aligned; }", "commit_group.sync.aligned; mov.s32 d0, 1; }"
    )
    with pytest.raises(UndefinedError, match=r"'d0 \(in braces.* is written while the wgmma"):
        Warpgroup("sm_90a").run(early)


@pytest.mark.parametrize(
    "statement",
    ["@u add.u32 r, r, 1;", "@u bra END;", "@!u exit;", "add.u32 r, x, 1;", "st.shared.u32 [x], r;",
     "st.shared.u32 [r], x;", "shfl.sync.idx.b32 r, x, 0, 31, -1;", "@u wgmma.fence.sync.aligned;",
     "selp.u32 r, 1, 2, u;", "atom.shared.add.u32 r, [r], x;"],
)  # fmt: skip
def test_what_nothing_has_written_is_not_read(statement):
    group = Warpgroup("sm_90a")
    group.run(".reg .u32 r, x; .reg .pred u; mov.u32 r, 0;")
    with pytest.raises(UndefinedError, match=r"line 2, .*'[xu]' is read and nothing has written"):
        group.run(f"mov.u32 r, 4;\n{statement} END:")
    assert (group["r"] == 0).all() and not group.shared.any()
    group.undefined = "hardware"
    group.run(f"{statement} END:")


# --- all or nothing ---

STORES = {
    "st": "st.shared.u32 [r], s;",
    "v4": "st.shared.v4.u32 [r], {s, s, s, s};",
    "guarded": "@p st.shared.u8 [r+5], s;",
    "atom": "atom.shared.add.u32 s, [r], 7;",
    "red": "red.shared.add.u32 [4], s;",
    "generic": "{ .reg .u64 g; cvt.u64.u32 g, r; st.u16 [g], s; }",
    "mbarrier": "mbarrier.init.shared.b64 [r], 3;",
    "matrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [r], {s};",
    "wmma": "wmma.store.d.sync.aligned.row.m8n8k128.shared.s32 [0], {s, s};",
}


@pytest.mark.parametrize("bytes_", [1024, 1000, 1023])
@pytest.mark.parametrize("store", STORES)
def test_stores_are_taken_back(store, bytes_):
    """Also where the engine works on a copy, as rows of that length ask for."""
    machine = Warp("sm_90a", shared_bytes=bytes_)
    machine.run(".reg .u32 r, s; .reg .pred p; mov.u32 r, %laneid; shl.b32 r, r, 4;")
    machine["s"], machine["p"] = 9, LANES % 2
    mine = machine.shared
    mine[:] = 255
    before = mine.copy()
    with pytest.raises(EmulatorError):
        machine.run(f"{STORES[store]} {STORES[store]} trap;")
    assert machine.shared is mine and np.array_equal(mine, before)
    machine.run(STORES[store])
    assert machine.shared is mine and not np.array_equal(mine, before)
    mine[:] = 255
    mine.flags.writeable = False
    with pytest.raises(OperandError, match=r"line 1, .*shared memory is read-only"):
        machine.run(STORES[store])


def test_memory_that_is_no_rows():
    """Every other byte of an array, and a length that no access divides."""
    held = np.zeros((2, 202), np.uint8)
    machine = Warp("sm_90a", batch=(2,))
    machine.shared = held[:, ::2]
    text = ".reg .u32 r; mov.u32 r, 0x04030201; st.shared.u32 [96], r; ld.shared.u8 r, [98];"
    machine.run(text)
    assert held[:, 192:200:2].tolist() == [[1, 2, 3, 4]] * 2 and held.sum() == 20
    assert (machine["r"] == 3).all()
    for wrong in ("st.shared.u32 [100], r;", "ld.shared.u16 r, [100];"):
        with pytest.raises(UndefinedError, match="which has 101 bytes"):
            machine.run(wrong)


def test_a_program_follows_its_machines_memory():
    """Its size and its bytes may be others in every run, and so may what alloca takes."""
    machine = Warp("sm_90a", shared_bytes=64)
    machine.run(".reg .u32 r, at; mov.u32 at, 60;")
    program = machine.bind("st.shared.u32 [at], at; mov.u32 r, %total_smem_size;")
    for size in (64, 256, 100, 61):
        memory = np.zeros(size, np.uint8)
        machine.shared = memory
        if size < 64:
            with pytest.raises(UndefinedError, match="which has 61 bytes"):
                machine.run(program)
            continue
        machine.run(program)
        assert memory[60] == 60 and memory.sum() == 60
    stack = machine.bind(
        "{ .reg .u64 a; alloca.u64 a, 16, 8; ld.local.u32 r, [a]; st.local.u32 [a], at; }"
    )
    for _ in range(2):
        machine.run(stack)
        assert (machine["r"] == 0).all()


# --- what never ends, what there is not ---


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("L: bra L;", Warp, "endless loop"),
        ("mov.u32 r, 0; L: add.u32 r, r, 1; bra L;", Warp, "endless loop"),
        ("mov.u32 r, %warpid; setp.eq.u32 p, r, 0; @p bar.sync 1, 128;", Warpgroup, "deadlock"),
        ("mov.u32 r, %laneid; setp.eq.u32 p, r, 0; @p trap;", Warp, "trap"),
    ],
)
def test_what_never_ends(text, kind, words):
    machine = kind("sm_90a")
    machine.run(".reg .u32 r; .reg .pred p; mov.u32 r, 3;")
    start = time.process_time()
    with pytest.raises(KernelError, match=words) as error:
        machine.run(text)
    assert time.process_time() - start < 20
    assert "statements, PTX line 1: " in str(error.value)
    assert (machine["r"] == 3).all()


def test_a_limit_of_statements():
    machine = Warp("sm_90a")
    program = machine.bind(
        ".reg .u32 r; .reg .pred p; mov.u32 r, 0;"
        "L: add.u32 r, r, 1; st.shared.u32 [0], r; setp.lt.u32 p, r, 10000; @p bra L;"
    )
    with pytest.raises(KernelError, match=r"step limit: .*step_limit=5,000"):
        machine.run(program, step_limit=5_000)
    assert not machine.registers["r"].written and not machine.shared.any()
    machine.run(program, step_limit=50_000)
    assert (machine["r"] == 10_000).all()
    for wrong in (-1, 1.5, "5"):
        with pytest.raises(OperandError, match="step_limit"):
            machine.run("ret;", step_limit=wrong)


@pytest.mark.parametrize(
    "text",
    ["ld.global.u32 r, [g];", "st.global.u32 [g], r;", "atom.global.add.u32 r, [g], 1;",
     "ld.const.u32 r, [g];", "cp.async.ca.shared.global [0], [g], 4;"],
)  # fmt: skip
def test_global_memory_is_refused(text):
    machine = Warp("sm_90a")
    machine.run(".reg .u32 r; .reg .u64 g; mov.u64 g, 0; mov.u32 r, 1;")
    with pytest.raises(UnsupportedError, match=r"line 1, .*a warp has shared memory alone"):
        machine.run(text)
    assert (machine["r"] == 1).all()


def test_an_error_shows_the_statement():
    with pytest.raises(OperandError) as error:
        Warp("sm_90a").run(".reg .u32 r;\n  add.u32 r, r, %q1;")
    assert str(error.value).splitlines() == [
        "line 2, column 17: '%q1' is not declared; declared are r",
        "    add.u32 r, r, %q1;",
        "                  ^",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("st.shared.u32 [g, {r}], r;", "the address of st.shared.u32, operand a, takes no coord"),
        (
            "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [g, {r}];",
            "takes 2 coordinates in braces; got [g]",
        ),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [g];", "takes 2 coordinates in braces"),
        (
            "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [g, {r, 1.5}];",
            "is of integers; got 1.5",
        ),
        ("mov.b32 r, tile[1];", "'tile' is not declared"),
    ],
)
def test_operands_that_no_statement_takes(text, words):
    machine = Warp("sm_90a")
    machine.run(".reg .u32 r; .reg .u64 g;")
    with pytest.raises(OperandError) as error:
        machine.run(text)
    assert words in str(error.value)


def test_metadata_in_braces():
    """ptxas takes the first register of them so, and CUTLASS writes it."""
    opcode = (
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%d0,%d1,%d2,%d3}, {one,one},"
        " {one,one}, {0f00000000,0f00000000,0f00000000,0f00000000}, @, 0;"
    )
    machine = Warp("sm_80")
    machine.run(
        ".reg .b32 one, e; .reg .f32 %d<4>; mov.b32 one, 0x3c003c00; mov.b32 e, 0x44444444;"
    )
    for given in ("{e}", "{e, one}"):
        machine.run(f"mov.f32 %d3, 0f00000000; {opcode.replace('@', given)}")
        assert machine.registers["%d3"].values.tolist() == [8] * 32
    for wrong in ("{e, e, e}", "{_}", "{1}"):
        with pytest.raises(OperandError, match=r"operand e of mma\.sp"):
            machine.run(opcode.replace("@", wrong))


def test_a_large_reduction_takes_no_memory():
    machine = Warp("sm_90a")
    machine.run(".reg .u32 r; .reg .u64 g; mov.u32 r, 0xfffffff0; mov.u64 g, 0;")
    with pytest.raises(EmulatorError, match="line 1, column 1"):
        machine.run("cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.u32 [g], [r], r;")


def test_ids_of_scales_are_each_machines_own():
    opcode = (
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
        ".f32.e4m3.e4m3.f32.ue8m0 {%d0,%d1,%d2,%d3}, {a,a,a,a}, {a,a},"
        " {%d0,%d1,%d2,%d3}, s, {h,0}, s, {0,0};"
    )
    machine = Warp("sm_120a", batch=(4,))
    machine.run(".reg .b32 a, s; .reg .f32 %d<4>; .reg .b16 h; mov.b32 a, 0x38383838;")
    machine["s"] = 0x827F817F
    machine["h"] = np.array([[0], [1], [3], [1]]) * np.ones(32, int)
    for i in range(4):
        machine[f"%d{i}"] = 0.0
    machine.run(opcode)
    values = machine.registers["%d0"].values
    assert values[:, 0].tolist() == [32, 128, 256, 128] and (values == values[:, :1]).all()


# --- texts that are run again and again ---


def test_a_text_is_bound_once_while_nothing_is_declared(monkeypatch):
    from emulator.machine import warp as module

    bound, bind = [], module.bind
    monkeypatch.setattr(module, "bind", lambda text, *rest: bound.append(text) or bind(text, *rest))
    machine = Warp("sm_90a")
    machine.run(".reg .u32 %r<3>; mov.u32 %r0, 1;")
    for _ in range(5):
        machine.run("add.u32 %r0, %r0, 2;")
    assert len(bound) == 2
    assert (machine["%r0"] == 11).all()
    # A name that is new, or another size of shared memory, may give the text another meaning.
    machine.declare("u32", "%x")
    machine.run("add.u32 %r0, %r0, 2;")
    machine.shared = np.zeros(64, np.uint8)
    machine.run("add.u32 %r0, %r0, 2;")
    assert len(bound) == 4
    with pytest.raises(OperandError, match="declared already"):
        machine.run(".reg .u32 %r<3>; mov.u32 %r0, 1;")


def test_a_text_that_fails_fails_again_with_its_place():
    machine = Warp("sm_90a")
    machine.declare("u32", "%r0", "%r1")
    for _ in range(2):
        with pytest.raises(UndefinedError, match=r"line 1, column 1.*%r1"):
            machine.run("add.u32 %r0, %r1, 2;")
    machine["%r1"] = 3
    machine.run("add.u32 %r0, %r1, 2;")
    assert (machine["%r0"] == 5).all()


def test_few_texts_are_kept():
    machine = Warp("sm_90a")
    machine.declare("u32", "%r0")
    for i in range(200):
        machine.run(f"mov.u32 %r0, {i};")
    assert len(machine._kept) <= 64
    assert (machine["%r0"] == 199).all()
    large = Warp("sm_90a", batch=(1000,), shared_bytes=0)
    large.declare("u32", "%r0")
    large.run("mov.u32 %r0, 1;")
    assert large._kept == {}


def test_words_of_128_bits_are_pairs():
    warp = Warp("sm_90a")
    warp.run(
        ".reg .b128 %q<3>; .reg .b64 %d<5>; .reg .b32 %r<3>; .shared .align 16 .b8 room[512]; "
        "mov.u32 %r0, %laneid; cvt.u64.u32 %d0, %r0; mov.b64 %d1, 77; mov.b128 %q0, {%d0, %d1}; "
        "mov.u32 %r1, room; mad.lo.u32 %r1, %r0, 16, %r1; st.shared.b128 [%r1], %q0;"
    )
    pairs = np.stack([np.arange(32), np.full(32, 77)], axis=-1).astype(np.uint64)
    assert (warp["%q0"] == pairs).all() and (warp.registers["%q0"].values == pairs).all()
    assert (warp.shared[:512].view(np.uint64).reshape(32, 2) == pairs).all()
    for given in (pairs + np.uint64(5), np.array([3, 4], np.uint64)):
        warp["%q1"] = given
        warp.run("mov.b128 {%d2, %d3}, %q1;")
        both = np.stack([warp["%d2"], warp["%d3"]], axis=-1)
        assert (both == given).all() and (warp["%q1"] == given).all()
    with pytest.raises(OperandError, match=r"uint64 \(…, 2\)"):
        warp["%q2"] = 5
