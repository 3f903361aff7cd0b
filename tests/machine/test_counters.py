"""Counters: instructions, matrix instructions, banks, sectors, divergence, waits, by hand."""

import json

import numpy as np
import pytest
from paths import CUDA

from emulator import Descriptor, EmulatorError, KernelError, Module
from emulator.layout.tile import TileShape
from emulator.machine.checks.banks import Banks, Rows, rows_of
from emulator.machine.checks.counters import COLUMNS, FIELDS, Numbers
from emulator.machine.checks.counting import passes_of_parts, sectors_of

HEAD = ".version 8.0\n.target {}\n.address_size 64\n"
LANES = np.arange(32)


def launch(body, block=32, args=(), grid=1, target="sm_80", parameters="", functions="", **options):
    text = f"""{HEAD.format(target)}
{functions}
.visible .entry k({parameters})
{{
    .reg .pred %p<4>; .reg .b32 %r<40>; .reg .b64 %rd<8>; .reg .f32 %f<8>; .reg .b16 %h<4>;
    .shared .align 128 .b8 tile[32768];
    mov.u32 %r0, %tid.x; mov.u32 %r1, tile; cvta.shared.u64 %rd0, %rd0;
{body}
    ret;
}}
"""
    return Module(text)["k"].launch(grid, block, args, counters=True, **options)


def of(report, word):
    """The numbers of the only statement whose opcode starts with a word."""
    (found,) = [count.numbers for count in report.counts if count.opcode.startswith(word)]
    return found


def bank_passes(lanes, addresses, size):
    """Passes over shared memory that accesses take, and the least number."""
    _, passes = passes_of_parts(lanes, addresses, size)
    return passes.sum(), len(passes)


# --- banks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stride, size, passes, least",
    [
        (1, 4, 1, 1), (2, 4, 2, 1), (3, 4, 1, 1), (4, 4, 4, 1), (16, 4, 16, 1), (31, 4, 1, 1),
        (32, 4, 32, 1), (33, 4, 1, 1), (0, 4, 1, 1),
        # float2 in halves, float4 in quarters
        (2, 8, 2, 2), (4, 8, 4, 2), (32, 8, 32, 2), (34, 8, 2, 2), (0, 8, 2, 2),
        (4, 16, 4, 4), (8, 16, 8, 4), (32, 16, 32, 4), (36, 16, 4, 4), (0, 16, 4, 4),
    ],
)  # fmt: skip
def test_strides(stride, size, passes, least):
    """Stride in words of 4 bytes between the lanes of one warp."""
    addresses = (LANES * stride * 4).astype("u8")
    assert bank_passes(LANES, addresses, size) == (passes, least)
    if size == 4:
        opcode, registers = "ld.shared.u32", "%r3"
    else:
        opcode, registers = ("ld.shared.v2.u32", "{%r3,%r4}") if size == 8 else (
            "ld.shared.v4.u32", "{%r3,%r4,%r5,%r6}")  # fmt: skip
    body = f"mad.lo.u32 %r2, %r0, {4 * stride}, %r1; {opcode} {registers}, [%r2];"
    numbers = of(launch(body), "ld.shared")
    assert (numbers.passes, numbers.least_passes) == (passes, least)
    assert numbers.conflicts == passes - least
    body = f"mad.lo.u32 %r2, %r0, {4 * stride}, %r1; {opcode.replace('ld', 'st')} [%r2], "
    assert of(launch(body + registers + ";"), "st.shared").passes == passes


@pytest.mark.parametrize(
    "words, passes",
    [
        (LANES // 2, 1),  # bytes and halves of one word go together
        (LANES % 2 * 32, 2),  # two words of one bank, each for half of the lanes
        (np.r_[LANES[:31], 32], 2),  # one lane too many in bank 0
        (np.r_[LANES[:31], 31 * 33], 1),
    ],
)
def test_words_of_banks(words, passes):
    assert bank_passes(LANES, (words * 4).astype("u8"), 4) == (passes, 1)


def test_bytes_and_halves():
    assert bank_passes(LANES, LANES.astype("u8"), 1) == (1, 1)
    assert bank_passes(LANES, (2 * LANES).astype("u8"), 2) == (1, 1)
    assert bank_passes(LANES, (64 * LANES).astype("u8"), 2) == (16, 1)


def test_warps_and_absent_lanes():
    lanes = np.arange(96)
    assert bank_passes(lanes, (lanes * 128).astype("u8"), 4) == (96, 3)
    some = lanes[np.isin(lanes % 32, (0, 1, 17))]
    assert bank_passes(some, (some * 128).astype("u8"), 4) == (9, 3)
    # of 16 bytes: lanes 0 and 1 in one quarter, 17 in another
    assert bank_passes(some, (some * 128).astype("u8"), 16) == (9, 6)
    body = "setp.lt.u32 %p0, %r0, 5; mad.lo.u32 %r2, %r0, 128, %r1; @%p0 st.shared.u32 [%r2], 7;"
    numbers = of(launch(body, block=64), "st.shared")
    assert (numbers.passes, numbers.least_passes) == (5, 1)
    assert (numbers.warps, numbers.lanes, numbers.executed) == (2, 64, 5)


@pytest.mark.parametrize(
    "count, address, passes",
    [
        # rows of 128 bytes: all eight rows of a matrix in the same four banks
        (4, "shl.b32 %r2, %r0, 7;", 32),
        (2, "shl.b32 %r2, %r0, 7;", 16),
        (1, "shl.b32 %r2, %r0, 7;", 8),
        # rows of 128 bytes under the swizzle of 128 bytes
        (4, "and.b32 %r4, %r0, 7; shl.b32 %r4, %r4, 4; shl.b32 %r2, %r0, 7; xor.b32 %r2, %r2, %r4;",
         4),
        # rows of 144 bytes, which 16 bytes of padding make
        (4, "mul.lo.u32 %r2, %r0, 144;", 4),
        (4, "shl.b32 %r2, %r0, 4;", 4),
        # rows of 64 bytes: every other row in the same banks
        (4, "shl.b32 %r2, %r0, 6;", 16),
    ],
)  # fmt: skip
@pytest.mark.parametrize("opcode", ["ldmatrix", "stmatrix"])
def test_rows_of_matrices(opcode, count, address, passes):
    registers = "{" + ", ".join(f"%r{5 + i}" for i in range(count)) + "}"
    operands = [registers, "[%r3]"] if opcode == "ldmatrix" else ["[%r3]", registers]
    body = f"""{address} add.u32 %r3, %r2, %r1;
    {opcode}.sync.aligned.m8n8.x{count}.shared.b16 {", ".join(operands)};"""
    numbers = of(launch(body, target="sm_90"), opcode)
    assert (numbers.passes, numbers.least_passes) == (passes, count)


def test_atomics_and_generic_addresses():
    body = """
    and.b32 %r2, %r0, 1; mad.lo.u32 %r2, %r2, 128, %r1;
    atom.shared.add.u32 %r3, [%r2], 1;
    cvt.u64.u32 %rd1, %r2; cvta.shared.u64 %rd1, %rd1; ld.u32 %r4, [%rd1];"""
    report = launch(body)
    assert of(report, "atom").passes == 2 and of(report, "ld.u32").passes == 2
    assert of(report, "ld.u32").sectors == 0


# --- sectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stride, size, offset, sectors, least",
    [
        (1, 4, 0, 4, 4), (1, 4, 4, 5, 4), (2, 4, 0, 8, 4), (8, 4, 0, 32, 4), (32, 4, 0, 32, 4),
        (33, 4, 0, 32, 4), (0, 4, 0, 1, 1), (4, 16, 0, 16, 16), (8, 16, 0, 32, 16),
        (2, 8, 8, 9, 8),
    ],
)  # fmt: skip
def test_strides_in_global_memory(stride, size, offset, sectors, least):
    addresses = (0x7F0000000000 + offset + LANES * stride * 4).astype("u8")
    assert sectors_of(LANES, addresses, size) == (sectors, least)
    names = {4: ("u32", "%r3"), 8: ("v2.u32", "{%r3,%r4}"), 16: ("v4.u32", "{%r3,%r4,%r5,%r6}")}
    word, registers = names[size]
    body = f"""
    ld.param.u64 %rd1, [a]; mul.wide.u32 %rd2, %r0, {4 * stride}; add.u64 %rd1, %rd1, %rd2;
    ld.global.{word} {registers}, [%rd1 + {offset}]; ld.{word} {registers}, [%rd1 + {offset}];"""
    report = launch(body, args=[np.zeros(4096, "u4")], parameters=".param .u64 a", block=64)
    for opcode in ("ld.global", "ld.v" if word[0] == "v" else "ld.u"):
        # Of two warps, the second of which starts where the first ends.
        numbers = of(report, opcode)
        both = [sectors_of(LANES + 32 * i, addresses + np.uint64(128 * i * stride), size)
                for i in range(2)]  # fmt: skip
        assert (numbers.sectors, numbers.least_sectors) == tuple(np.sum(both, 0)) == (
            2 * sectors, 2 * least)  # fmt: skip
    assert report.counters["sectors"] == 4 * sectors


def test_addresses_beyond_all_are_refused_by_the_access():
    for address in ((1 << 64) - 1, 1 << 63, 1 << 50):
        assert sectors_of(LANES, np.full(32, address, "u8"), 4) == (1, 1)
        with pytest.raises(KernelError, match="out of bounds"):
            launch("ld.param.u64 %rd1, [a]; ld.global.u8 %r3, [%rd1];", args=[address],
                   parameters=".param .u64 a", block=32)  # fmt: skip


def test_cp_async_reads_sectors_and_writes_banks():
    body = """
    ld.param.u64 %rd1, [a]; mul.wide.u32 %rd2, %r0, 16; add.u64 %rd1, %rd1, %rd2;
    shl.b32 %r2, %r0, 7; add.u32 %r2, %r2, %r1; setp.lt.u32 %p0, %r0, 8; selp.u32 %r4, 16, 0, %p0;
    cp.async.cg.shared.global [%r2], [%rd1], 16, %r4; cp.async.wait_all;"""
    report = launch(body, args=[np.zeros(128, "u4")], parameters=".param .u64 a")
    numbers = of(report, "cp.async.cg")
    assert (numbers.passes, numbers.least_passes) == (32, 4)
    assert (numbers.sectors, numbers.least_sectors) == (4, 4)


# --- statements, divergence, waits ----------------------------------------------------------------


def test_divergence():
    body = """
    setp.lt.u32 %p0, %r0, 40; and.b32 %r2, %r0, 1; setp.eq.u32 %p1, %r2, 0;
    @%p0 bra FEW;
    add.u32 %r3, %r3, 1;
    bra DONE;
FEW:
    sub.u32 %r3, %r3, 1;
DONE:
    @%p1 mul.lo.u32 %r3, %r3, 5;
    bra.uni NEXT;
NEXT:"""
    report = launch(body, block=96, grid=2)
    (branch,) = [x.numbers for x in report.counts if x.opcode == "bra" and x.numbers.divided]
    # Of warps 0 to 2 the second goes both ways.
    assert (branch.warps, branch.lanes, branch.executed, branch.divided) == (6, 192, 80, 2)
    few, rest = of(report, "sub"), of(report, "add.u32")
    assert (few.warps, few.lanes) == (4, 80) and (rest.warps, rest.lanes) == (4, 112)
    guarded = of(report, "mul.lo")
    assert (guarded.warps, guarded.lanes, guarded.executed) == (6, 192, 96)
    assert report.counters["divided"] == 2
    assert report.counts.by_opcode["bra"].warps == 6 + 4


def test_matrix_instructions():
    body = """
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3},
        {%r2, %r3, %r4, %r5}, {%r6, %r7}, {%f0, %f1, %f2, %f3};"""
    report = launch(body, block=128, grid=3)
    assert of(report, "mma").matrices == 12
    assert report.counters["matrices"] == 12
    assert report.counters["multiply_adds"] == 12 * 16 * 8 * 16


def test_waits():
    body = """
    setp.lt.u32 %p0, %r0, 32;
    @%p0 bra LAST;
    barrier.sync 1, 128; bra DONE;
LAST:
    add.u32 %r3, %r3, 1; add.u32 %r3, %r3, 1; barrier.arrive 1, 128;
DONE:
    bar.sync 0;"""
    report = launch(body, block=128)
    assert of(report, "barrier.sync").warps == 3 and of(report, "barrier.arrive").warps == 1
    assert of(report, "barrier.arrive").waits == 0
    assert report.counters["waits"] >= 0 and of(report, "bar.sync").warps == 4
    # Lanes 1 to 63 come first; lane 0 lets all go.
    lone = launch("setp.eq.u32 %p0, %r0, 0; @%p0 bra B; A: bar.sync 0; bra C; B: bar.sync 0; C:",
                  block=64)  # fmt: skip
    found = [count.numbers for count in lone.counts if count.opcode == "bar.sync"]
    assert sum(x.warps for x in found) == 3 and sum(x.waits for x in found) == 2


def test_calls_and_shuffles_are_counted_once():
    functions = """
    .func (.reg .b32 %out) twice(.reg .b32 %in) { add.u32 %out, %in, %in; ret; }"""
    body = """
    setp.lt.u32 %p0, %r0, 7;
    @%p0 call (%r3), twice, (%r0);
    @!%p0 bra DONE;
    activemask.b32 %r7; shfl.sync.idx.b32 %r4, %r3, 0, 31, %r7;
DONE:"""
    report = launch(body, block=64, functions=functions)
    called = of(report, "call")
    assert (called.executed, of(report, "add.u32").lanes) == (7, 7)
    assert of(report, "shfl").lanes == 7
    assert report.counters["threads"] == 64


def test_thread_statements_agree():
    """Without waits, lanes of all statements are the thread statements of the launch."""
    body = "setp.lt.u32 %p0, %r0, 7; @%p0 add.u32 %r3, %r3, 1;"
    report = launch(body, block=100, grid=3)
    assert sum(x.numbers.lanes for x in report.counts) == report.counters["thread_statements"]


# --- the report -----------------------------------------------------------------------------------


def test_off_by_default():
    report = Module(HEAD.format("sm_80") + ".entry k() { ret; }")["k"].launch(1, 1)
    assert not report.counts and "sectors" not in report.counters
    assert report.text() == report.title


def test_watched_statements_leave_others_alone():
    kernel = Module(HEAD.format("sm_80") + ".entry k() { ret; }")["k"]
    first = kernel.launch(1, 32, counters=True)
    assert not kernel._blocks
    kernel.launch(1, 32)
    assert kernel.launch(1, 64, counters=True).counts[0].numbers.lanes == 64
    assert first.counts[0].numbers.lanes == 32


@pytest.mark.parametrize("options", [{"engine": "reference"}, {"counters": 1}])
def test_what_cannot_be_counted(options):
    kernel = Module(HEAD.format("sm_80") + ".entry k() { ret; }")["k"]
    with pytest.raises(EmulatorError, match="counters"):
        kernel.launch(1, 1, **{"counters": True} | options)


@pytest.fixture
def report():
    module, x = Module(CUDA / "system.ptx"), np.zeros(4096, "u4")
    name = next(x for x in module if len(module[x].parameters) <= 3)
    kernel = module[name]
    args = [x if p.type == "u64" else 64 for p in kernel.parameters]
    return kernel.launch(1, 64, args, counters=True)


def test_text_data_and_page(report):
    lines = report.counts.by_line
    assert all(":" in line for line in lines)
    text = report.text()
    assert all(line in text for line in list(lines)[:5])
    data = json.loads(json.dumps(report.data))
    assert data["lines"].keys() == lines.keys()
    assert sum(x["lanes"] for x in data["statements"]) == sum(x.lanes for x in lines.values())
    source = (CUDA / "system.cu").read_text().splitlines()
    number = int(next(iter(lines)).rpartition(":")[2])
    page = report.html(source=CUDA)
    from html import escape

    assert escape(source[number - 1]) in page


def test_every_number_has_a_column():
    """A table that leaves out a number says nothing of it."""
    empty = [column.show(Numbers()) for column in COLUMNS]
    assert not any(empty)
    for name in FIELDS:
        numbers = Numbers(warps=1, lanes=32, executed=32)
        before = [column.show(numbers) for column in COLUMNS]
        setattr(numbers, name, 7)
        assert (
            [column.show(numbers) for column in COLUMNS] != before
            or name == "least_passes"
            or (name == "least_sectors")
        )


# --- pictures -------------------------------------------------------------------------------------


def test_a_picture_shows_the_worst_access_of_a_statement():
    """Warp 1 reads a column of a tile of 128 bytes a row, warp 0 a row."""
    body = """setp.ge.u32 %p0, %r0, 32; mul.lo.u32 %r2, %r0, 4; and.b32 %r3, %r0, 31;
    @%p0 mul.lo.u32 %r2, %r3, 128; add.u32 %r2, %r2, %r1;
    ld.shared.u32 %r4, [%r2];"""
    picture = of(launch(body, block=64), "ld.shared").picture
    assert picture.passes == [32] and picture.summary == "32 passes, 1 without conflicts"
    assert [x - picture.addresses[0] for x in picture.addresses] == [128 * i for i in range(32)]
    html = picture.html()
    assert html.count("<tr>") == 33 and html.count("class=conflict") == 32


def test_lanes_that_want_one_word_meet_without_a_conflict():
    banks = Banks((0, 1, 2, 3), (0, 4, 4, 132), 4)
    assert banks.parts == {range(32): [{0: [0]}, {1: [1, 2], 33: [3]}, *({} for _ in range(30))]}
    assert (banks.start, banks.conflicts) == (0, 1)
    moved = Banks((0, 1, 2, 3), (640, 644, 644, 772), 4)
    assert moved.from_its_start() == banks and moved.start == 640
    assert banks.passes == [2] and banks.html().count("class=conflict") == 2
    assert Banks((0, 8, 16), (0, 0, 64), 16).passes == [1, 1, 1]


def test_rows_of_128_bytes_under_a_swizzle():
    """Line r of the tile is a row; its unit u of 16 bytes is moved to u ^ r % 8."""
    tile = TileShape(16, 16, 2)
    swizzled = rows_of("B", Descriptor(1024, stride_byte_offset=1024, swizzle_bytes=128), tile)
    for r, units in enumerate(swizzled.addresses):
        assert units == tuple(1024 + 128 * r + 16 * (u ^ r % 8) for u in (0, 1))
    assert swizzled.conflicts == 0 and "0x480" in swizzled.html()
    assert swizzled.summary == "B, 128-byte swizzle: no conflicts"
    plain = Rows("B", tuple((128 * r, 128 * r + 16) for r in range(8)))
    assert plain.conflicts == 7 and plain.summary == "B: 8 of 8 lines in the same banks"
    assert "class=conflict" in plain.html()


def test_the_page_says_what_line_0_is_and_has_the_pictures():
    report = Module(CUDA / "gemm_mma.ptx")["product"].launch(
        1, 128, [np.zeros((32, 64), "f2"), np.zeros((32, 64), "f2"), np.zeros((32, 32), "f4"),
                 32, 64, 144, 32, 0, 32, 2], counters=True,
    )  # fmt: skip
    page = report.html(source=CUDA)
    assert "of no line of the source" in page and "32 passes, 4 without conflicts" in page
    assert "max-width: none" in page and "rgba(224, 110, 30, 0.50)" in page
    assert "picture" not in json.dumps(report.data)
