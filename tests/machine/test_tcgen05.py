"""tcgen05 in kernels: allocation of tensor memory, ld, st, cp, mma and commit, in both engines."""

from importlib.util import find_spec

import numpy as np
import pytest

from emulator import InstructionDescriptor, KernelError, Module

pytestmark = pytest.mark.sampled(3)

COMPILED = pytest.param("compiled", marks=[
    pytest.mark.slow, pytest.mark.skipif(not find_spec("llvmlite"), reason="needs llvmlite"),
])  # fmt: skip
ENGINES = ("vector", "reference")
ALL_ENGINES = (*ENGINES, COMPILED)
HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 px, .param .u64 py, .param .u64 pz) {cluster}
{{
 .reg .pred %p, %q; .reg .b32 %r<300>; .reg .b64 %x, %y, %z, %rd<20>; .reg .b16 %h;
 .shared .align 1024 .b8 sm[16384]; .shared .align 8 .b64 bar; .shared .b32 slot;
 ld.param.u64 %x, [px]; ld.param.u64 %y, [py]; ld.param.u64 %z, [pz];
 mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; shl.b32 %r2, %r1, 21; mov.u32 %r3, %ctaid.x;
 mad.lo.u32 %r4, %r3, 128, %r0;
 setp.eq.u32 %p, %r1, 0;
 @%p tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [slot], {columns};
 bar.sync 0;
 ld.shared.b32 %r5, [slot];
 add.u32 %r6, %r5, %r2;
{body}
 bar.sync 0;
 @%p tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r5, {columns};
 ret;
}}
"""


def run(body, arrays, *, engine="vector", columns=64, group=1, blocks=1, **more):
    """Launches 128 threads a block on arrays x, y, z."""
    cluster = ".explicitcluster .reqnctapercluster 2, 1, 1" if group == 2 else ""
    text = HEAD.format(body=body, columns=columns, group=group, cluster=cluster)
    arrays = [*arrays, *[np.zeros(1, np.uint32)] * (3 - len(arrays))]
    module = Module(text)
    assert module.problems == []
    return module["k"].launch(grid=(blocks,), block=(128,), args=arrays, engine=engine, **more)


def registers(count, first=20):
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


# --- ld and st ------------------------------------------------------------------------------------


def place(shape, lane, q):
    """Lane and column of a register, from the manual's pictures as CuTe has them."""
    g, t = lane >> 2, lane & 3
    return {
        "32x32b": (lane, q),
        "16x64b": (g + 8 * (lane & 1), (lane >> 1 & 1) + 2 * q),
        "16x128b": (g + 8 * (q & 1), t + 4 * (q >> 1)),
        "16x256b": (g + 8 * (q >> 1 & 1), 2 * t + (q & 1) + 8 * (q >> 2)),
        "16x32bx2": (lane & 15, q + 16 * (lane >> 4)),
    }[shape]


SHAPES = [
    ("32x32b", 8, 8), ("16x64b", 4, 4), ("16x128b", 4, 8), ("16x256b", 2, 8), ("16x32bx2", 4, 4),
]  # fmt: skip


def moved(shape, num, count, packed="", split=", 16"):
    """Fills 64 columns with 1000 · lane + column, and loads in a shape; what comes, by thread."""
    fill = "\n".join(f" mad.lo.u32 %r{20 + c}, %r0, 1000, {c};" for c in range(64))
    extra = split if shape == "16x32bx2" else ""
    return f"""{fill}
 tcgen05.st.sync.aligned.32x32b.x64.b32 [%r6], {registers(64)};
 tcgen05.wait::st.sync.aligned;
 tcgen05.ld.sync.aligned.{shape}.x{num}{packed}.b32 {registers(count, 100)}, [%r6]{extra};
 tcgen05.wait::ld.sync.aligned;
 mad.wide.u32 %rd0, %r0, {4 * count}, %x;
""" + "\n".join(f" st.global.b32 [%rd0+{4 * i}], %r{100 + i};" for i in range(count))  # fmt: skip


@pytest.mark.parametrize("engine", ALL_ENGINES)
@pytest.mark.parametrize(("shape", "num", "count"), SHAPES)
def test_ld_reads_where_the_shape_says(shape, num, count, engine):
    out = np.zeros((128, count), np.uint32)
    run(moved(shape, num, count), [out], engine=engine)
    for thread in range(128):
        for q in range(count):
            lane, column = place(shape, thread % 32, q)
            assert out[thread, q] == 1000 * (thread // 32 * 32 + lane) + column


@pytest.mark.parametrize("engine", ALL_ENGINES)
@pytest.mark.parametrize(("shape", "num", "count"), SHAPES)
def test_pack_takes_the_low_halves_of_two_columns(shape, num, count, engine):
    out = np.zeros((128, count), np.uint32)
    run(moved(shape, num, count, ".pack::16b", ", 32"), [out], engine=engine)
    for thread in range(128):
        for q in range(count):
            lane, column = place(shape, thread % 32, q)
            first = 1000 * (thread // 32 * 32 + lane) + 2 * column
            assert out[thread, q] == first & 0xFFFF | (first + 1 & 0xFFFF) << 16


#: 8 columns of every lane
FLOATS = np.array([-7.5, 2.0, 0.25, -0.0, 6.0, -3.0, 7.25, 1.0], np.float32)


def reduction(operation, kind):
    """The largest or smallest of 8 columns, behind the columns themselves."""
    fill = "\n".join(
        f" ld.global.b32 %r{20 + c}, [%rd1+{4 * c}];" for c in range(8)
    )  # fmt: skip
    return f""" mad.wide.u32 %rd1, %r0, 32, %y;
{fill}
 tcgen05.st.sync.aligned.32x32b.x8.b32 [%r6], {registers(8)};
 tcgen05.wait::st.sync.aligned;
 tcgen05.ld.red.sync.aligned.32x32b.x8.{operation}.{kind} {registers(8, 100)}, %r200, [%r6];
 tcgen05.wait::ld.sync.aligned;
 mad.wide.u32 %rd0, %r0, 36, %x; st.global.b32 [%rd0+32], %r200;
""" + "\n".join(f" st.global.b32 [%rd0+{4 * i}], %r{100 + i};" for i in range(8))


@pytest.mark.parametrize("engine", ALL_ENGINES)
@pytest.mark.parametrize(
    ("operation", "kind", "want"),
    [
        ("max", "f32", 7.25), ("min", "f32", -7.5), ("min.abs", "f32", 0.0),
        ("max.abs", "f32", 7.5), ("max.NaN", "f32", 7.25),
        ("max", "u32", 0xC0F00000), ("min", "u32", 0x3E800000),
        ("max", "s32", 0x40E80000), ("min", "s32", 0x80000000),
    ],
)  # fmt: skip
def test_red_finds_the_extreme_of_a_lane(operation, kind, want, engine):
    given = np.tile(FLOATS, (128, 1))
    given[5, 2] = np.nan
    out = np.zeros((128, 9), np.uint32)
    text = HEAD.format(body=reduction(operation, kind), columns=64, group=1, cluster="")
    module = Module(text.replace("sm_100a", "sm_103a"))
    assert module.problems == []
    module["k"].launch(
        grid=(1,), block=(128,), args=[out, given, np.zeros(1, np.uint32)], engine=engine
    )
    assert np.array_equal(out[:, :8], given.view(np.uint32))
    found = np.delete(out[:, 8], 5)
    assert (found == (np.float32(want).view(np.uint32) if kind == "f32" else want)).all()
    if kind == "f32":
        assert np.isnan(out[5, 8:].view(np.float32)[0]) == ("NaN" in operation)


def test_a_warp_reaches_its_own_lanes_alone():
    body = (
        moved("32x32b", 8, 8)
        .replace(".b32 {%r100", ".b32 {%r100")
        .replace("%r106, %r107}, [%r6]", "%r106, %r107}, [%r5]")
    )
    with pytest.raises(KernelError, match="reaches lanes 32-63, and the address names lane 32"):
        run(body, [np.zeros((128, 8), np.uint32)])


# --- mma ------------------------------------------------------------------------------------------

#: K-major without swizzle: 8 rows of 16 bytes follow each other, then the next 8 rows
KINDS = {
    # kind -> (element type, bytes, type of D)
    "f16": (np.float16, 2, np.float32),
    "tf32": (np.float32, 4, np.float32),
    "i8": (np.int8, 1, np.int32),
}


FOUR = "{%r13, %r14, %r15, %r16}"


def product(kind, group, accumulate=0):
    """One mma: 128 rows of A and N rows of B a block, 32 bytes each; D of 64 columns."""
    n = 64 // group
    descriptor = InstructionDescriptor(
        kind=kind, a={"i8": "s8"}.get(kind, kind), b={"i8": "s8"}.get(kind, kind),
        m=128 * group, n=64,
    )  # fmt: skip
    word = descriptor.encode()
    zero = "" if not accumulate else (
        "\n".join(f" mov.b32 %r{20 + c}, {accumulate};" for c in range(64))
        + f"\n tcgen05.st.sync.aligned.32x32b.x64.b32 [%r6], {registers(64)};\n"
        " tcgen05.wait::st.sync.aligned;\n"
    )  # fmt: skip
    issue = "setp.eq.u32 %q, %r0, 0;" if group == 1 else (
        "mov.u32 %r250, %cluster_ctarank; or.b32 %r250, %r250, %r0; setp.eq.u32 %q, %r250, 0;"
    )  # fmt: skip
    arrive = (
        f"tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster"
        + (".multicast::cluster.b64 [%r252], 3;" if group == 2 else ".b64 [%r252];")
    )  # fmt: skip
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if group == 2 else ""
    return (
        f"""{zero}
 mov.u32 %r10, sm; and.b32 %r11, %r0, 7; shr.u32 %r12, %r0, 3; shl.b32 %r11, %r11, 4;
 mad.lo.u32 %r11, %r12, 128, %r11; add.u32 %r11, %r11, %r10;
 mad.wide.u32 %rd0, %r4, 32, %x;
 ld.global.v4.b32 {FOUR}, [%rd0]; st.shared.v4.b32 [%r11], {FOUR};
 ld.global.v4.b32 {FOUR}, [%rd0+16]; st.shared.v4.b32 [%r11+2048], {FOUR};
 setp.ge.u32 %q, %r0, {n}; @%q bra LOADED;
 mad.lo.u32 %r17, %r3, {n}, %r0; mad.wide.u32 %rd0, %r17, 32, %y;
 ld.global.v4.b32 {FOUR}, [%rd0]; st.shared.v4.b32 [%r11+4096], {FOUR};
 ld.global.v4.b32 {FOUR}, [%rd0+16]; st.shared.v4.b32 [%r11+{4096 + 16 * n}], {FOUR};
LOADED:
 mov.u32 %r252, bar; setp.eq.u32 %q, %r0, 0; @%q mbarrier.init.shared::cta.b64 [%r252], 1;
 fence.proxy.async; bar.sync 0; {meet}
 shr.u32 %r18, %r10, 4; add.u32 %r19, %r18, 256;
 mov.b64 %rd1, {{%r18, {hex(1 << 14 | 8)}}}; mov.b64 %rd2, {{%r19, {hex(1 << 14 | 8)}}};
 or.b64 %rd1, %rd1, {hex((2048 >> 4) << 16)}; or.b64 %rd2, %rd2, {hex((16 * n >> 4) << 16)};
 {issue}
 @%q tcgen05.mma.cta_group::{group}.kind::{kind} [%r5], %rd1, %rd2, {word}, {int(accumulate > 0)};
 @%q {arrive}
WAIT:
 mbarrier.try_wait.parity.shared::cta.b64 %q, [%r252], 0;
 @!%q bra WAIT;
 tcgen05.fence::after_thread_sync;
 tcgen05.ld.sync.aligned.32x32b.x64.b32 {registers(64)}, [%r6];
 tcgen05.wait::ld.sync.aligned;
 mad.wide.u32 %rd0, %r4, 256, %z;
"""
        + "\n".join(f" st.global.b32 [%rd0+{4 * i}], %r{20 + i};" for i in range(64))
        + f"\n {meet}"
    )


def multiplied(kind, group, engine, accumulate=0, **more):
    dtype, size, d = KINDS[kind]
    k, rng = 32 // size, np.random.default_rng(5)
    a = rng.integers(-8, 9, (128 * group, k)).astype(dtype)
    b = rng.integers(-8, 9, (64, k)).astype(dtype)
    out = np.zeros((128 * group, 64), d)
    run(
        product(kind, group, accumulate), [a, b, out], engine=engine, group=group, blocks=group,
        **more,
    )  # fmt: skip
    return out, a.astype(int) @ b.T.astype(int)


SLOW_REFERENCE = ["vector", pytest.param("reference", marks=pytest.mark.slow)]


@pytest.mark.parametrize("engine", SLOW_REFERENCE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_product(kind, engine):
    out, want = multiplied(kind, 1, engine)
    assert np.array_equal(out, want)


@pytest.mark.parametrize("engine", SLOW_REFERENCE)
def test_a_product_of_a_pair(engine):
    out, want = multiplied("f16", 2, engine)
    assert np.array_equal(out, want)


def test_the_old_d_is_added():
    out, want = multiplied("i8", 1, "vector", accumulate=1000)
    assert np.array_equal(out, want + 1000)


def test_a_wrong_result_would_show():
    out, want = multiplied("i8", 1, "vector", accumulate=1)
    assert not np.array_equal(out, want)


# --- cp, shift ------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_cp_copies_rows_to_every_quarter(engine):
    body = f"""
 mov.u32 %r10, sm; shl.b32 %r11, %r0, 4; and.b32 %r11, %r11, 511; add.u32 %r11, %r11, %r10;
 mad.wide.u32 %rd0, %r0, 16, %x; setp.ge.u32 %q, %r0, 32; @%q bra LOADED;
 ld.global.v4.b32 {FOUR}, [%rd0]; st.shared.v4.b32 [%r11], {FOUR};
LOADED:
 bar.sync 0; setp.eq.u32 %q, %r0, 0;
 shr.u32 %r18, %r10, 4; mov.b64 %rd1, {{%r18, {hex(1 << 14 | 8)}}};
 @%q tcgen05.cp.cta_group::1.32x128b.warpx4 [%r5], %rd1;
 @%q tcgen05.shift.cta_group::1.down [%r5];
 bar.sync 0;
 tcgen05.ld.sync.aligned.32x32b.x4.b32 {registers(4)}, [%r6];
 tcgen05.wait::ld.sync.aligned;
 mad.wide.u32 %rd0, %r0, 16, %y; st.global.v4.b32 [%rd0], {registers(4)};
"""
    given, out = np.arange(128, dtype=np.uint32).reshape(32, 4), np.zeros((128, 4), np.uint32)
    run(body, [given, out], engine=engine)
    first = np.vstack([given[1:], given[31:]])
    assert np.array_equal(out, np.vstack([first, given, given, given]))


# --- allocation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ALL_ENGINES)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("@%p tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
         "@%p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;",
         "alloc after tcgen05.relinquish_alloc_permit"),
        ("@%p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 128;",
         "sizes of a CTA's allocations must not grow"),
        ("@%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 32;", "dealloc of 32 columns"),
        ("tcgen05.st.sync.aligned.32x32b.x1.b32 [%r6+64], {%r0};", "reaches columns 64"),
    ],
)  # fmt: skip
def test_mistakes_are_told(body, message, engine):
    with pytest.raises(KernelError, match=message):
        run(body, [], engine=engine)


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_an_allocation_waits_for_room(engine):
    """Warp 1 wants all columns, and gets them when warp 0 has given its own back."""
    body = """
 setp.eq.u32 %q, %r1, 1;
 @%q tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
 @%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 512;
 bar.sync 0; ld.shared.b32 %r5, [slot];
"""
    run(body, [], columns=512, engine=engine)


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_an_allocation_that_nobody_makes_room_for(engine):
    body = "@%p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;"
    with pytest.raises(KernelError, match=r"(?s)deadlock.*waits for columns of tensor memory"):
        run(body, [], columns=512, engine=engine)


def test_a_pair_needs_two_blocks():
    text = HEAD.format(body="", columns=64, group=1, cluster="").replace(
        "add.u32 %r6", "tcgen05.shift.cta_group::2.down [%r5]; add.u32 %r6"
    )
    with pytest.raises(KernelError, match=r"cta_group::2 needs a pair"):
        Module(text)["k"].launch(grid=(1,), block=(128,), args=[np.zeros(4, np.uint32)] * 3)


# --- findings -------------------------------------------------------------------------------------


def findings(body, arrays):
    return [(x.kind, str(x)) for x in run(body, arrays, check=True).findings]


def products():
    return [np.zeros((128, 16), np.float16), np.zeros((64, 16), np.float16), np.zeros((128, 64))]


def test_a_right_kernel_is_not_blamed():
    assert findings(product("f16", 1), products()) == []


@pytest.mark.parametrize(
    ("old", "new", "kind", "text"),
    [
        ("fence.proxy.async;", "", "missing proxy fence", "tcgen05.mma"),
        ("setp.eq.u32 %q, %r0, 0;\n @%q tcgen05.mma", "setp.lt.u32 %q, %r0, 2;\n @%q tcgen05.mma",
         "issued more than once", "2 threads of a warp issue it"),
        (", 0;\n @%q tcgen05.commit", ", 1;\n @%q tcgen05.commit", "tensor memory",
         "D of tcgen05.mma"),
    ],
)  # fmt: skip
def test_findings(old, new, kind, text):
    body = product("f16", 1)
    assert old in body
    count = 2 if "setp.lt" in new else 1
    body = body.replace(old, new).replace("b64 [%r252], 1", f"b64 [%r252], {count}")
    found = findings(body, products())
    assert {name for name, _ in found} == {kind} and text in found[0][1]


def test_what_nothing_wrote_and_what_is_left_is_found():
    body = f" tcgen05.ld.sync.aligned.32x32b.x1.b32 {registers(1)}, [%r6];\n ret;"
    found = findings(body, [])
    assert [name for name, _ in found] == ["tensor memory"] * 2
    assert "nothing has written" in found[0][1] and "columns 0-63" in found[1][1]
