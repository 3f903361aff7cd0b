"""``python -m emulator descriptor``: decoding, findings, bytes read, the word that a tile needs.

Facts are stated here and in descriptor_words.py; test_descriptor_faults.py has the likely faults.
"""

import itertools
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from commands import answer
from descriptor_words import CODES, address, word

from emulator import Instruction, OperandError, TensorMap, UndefinedError, execute
from emulator.layout.descriptor import Descriptor, TileShape
from emulator.memory.descriptors import load_tile
from emulator.memory.tensor_copy_reference import elements
from emulator.tools.descriptors.command import descriptor_command
from emulator.tools.descriptors.description import describe_descriptor
from emulator.tools.descriptors.difference import diff_descriptors
from emulator.tools.descriptors.tiles import StoredTile, needed_descriptor

pytestmark = pytest.mark.sampled(4)

F16 = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
U8 = "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.u8"
N24 = F16.replace("n64", "n24")
B1 = "wgmma.mma_async.sync.aligned.m64n64k256.s32.b1.b1.and.popc"
TF32 = "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32"
SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16"


@pytest.fixture
def ask(capsys):
    return partial(answer, capsys, "descriptor")


FIELDS = ("start_address", "leading_byte_offset", "stride_byte_offset", "base_offset", "swizzle")


# --- decoding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "values"),
    [
        # start 0x40 * 16, LBO 1 * 16, SBO 0x40 * 16, code 1
        (0x4000004000010040, (0x400, 16, 1024, 0, 128)),
        (0x0000004000080000, (0, 128, 1024, 0, 0)),
        # code 3 is the 32-byte swizzle; 0xe at 51:48 is base offset 7
        (0xC00E0010_0020_0008, (128, 512, 256, 7, 32)),
        (0x80022000_2000_2000, (0x20000, 0x20000, 0x20000, 1, 64)),
        ((1 << 64) - 1, (0x3FFF0, 0x3FFF0, 0x3FFF0, 7, 32)),
    ],
)
def test_fields_of_words_worked_out_by_hand(given, values):
    found = {field.name: field for field in describe_descriptor(given).fields}
    assert tuple(found[name].value for name in FIELDS) == values
    assert [(found[name].high, found[name].low) for name in FIELDS] == [
        (13, 0), (29, 16), (45, 32), (51, 49), (63, 62),
    ]  # fmt: skip


def test_the_raw_values_are_the_whole_word():
    rng = np.random.default_rng(1)
    for given in rng.integers(0, 1 << 63, 50).tolist():
        found = describe_descriptor(given << 1 | 1).fields
        assert [field.low for field in found[1:]] == [field.high + 1 for field in found[:-1]]
        assert sum(field.raw << field.low for field in found) == given << 1 | 1


def test_meanings_follow_the_tile(ask):
    def meanings(*argv):
        return {line.split()[1]: line.split(None, 3)[3] for line in ask(*argv) if ":" in line[:3]}

    none = word(0x400, 1024, 128)
    plain = meanings(none, F16)
    assert plain["start_address"] == "byte 0x400 (1024) of shared memory"
    assert plain["leading_byte_offset"] == "1024 bytes to the next 8 columns"
    assert plain["stride_byte_offset"] == "128 bytes to the next 8 rows"
    # Without a swizzle LBO leads along k in both majors, with one along the rows when MN-major.
    turned = meanings(none, F16, "--major", "mn")
    assert turned["leading_byte_offset"] == "1024 bytes to the next 8 columns"
    wide = meanings(word(0, 4096, 1024, 0, 32), F16, "--major", "mn")
    assert wide["leading_byte_offset"] == "4096 bytes to the next 16 rows"
    assert wide["stride_byte_offset"] == "1024 bytes to the next 8 columns"
    bits = meanings(none, B1)
    assert bits["leading_byte_offset"] == "1024 bytes to the next 128 columns"
    swizzled = meanings("0x4002004000010048", F16)
    assert swizzled["leading_byte_offset"] == "16 bytes, not used: this tile lies within 64 columns"
    assert swizzled["base_offset"].endswith("starts 128 bytes behind a multiple of 1024")


@pytest.mark.parametrize(
    "text",
    [
        "0x4000004000010040", "0X4000_0040_0001_0040", "4611686293305360448",
        "0x4000004000010040ULL", f"0b{0x4000004000010040:b}",
    ],
)  # fmt: skip
def test_words_as_people_write_them(ask, text):
    assert ask(text)[0] == "0x4000004000010040"


def test_hexadecimal_words_without_0x_are_noted(ask):
    first, note, *_ = ask("4000004000010040")
    assert first == "0x000e35fb81854f38"
    assert note == "note: read as decimal; the hexadecimal word is 0x4000004000010040"
    assert ask("4000080040", "--json")["note"].endswith("0x4000080040")
    for text in ("64", "4611686293305360448", "0x4000004000010040", "1048640"):
        assert not [line for line in ask(text) if line.startswith("note")]


def test_negative_words_are_those_of_debuggers(ask):
    assert ask(str(0xC000004000010040 - (1 << 64)))[0] == "0xc000004000010040"


# --- findings -------------------------------------------------------------------------------------

FINDINGS = [
    (word(0x400, 16, 1024, 1), None, {}, "warning", "base_offset", "no effect without a swizzle",
     "base_offset 0, or one of the swizzles 32, 64, 128"),
    (word(0, 1024, 128) | 1 << 46, F16, {}, "warning", "unused", r"48:46 hold 0b1.*tcgen05",
     "0x0000000800400000"),
    (word(0, 1024, 128) | 3 << 30, None, {}, "warning", "unused", r"31:30 hold 0b11",
     "0x0000000800400000"),
    (word(0x480, 16, 1024, 0, 128), F16, {}, "warning", "base_offset",
     r"0x480 .*128 bytes behind a multiple of 1024.*base_offset is 0", "base_offset 1 where"),
    (word(0x400, 16, 512, 3, 64), F16, {}, "warning", "base_offset", "base_offset is 3",
     "base_offset 0 where the pattern of the data starts with the tile$"),
    (word(0x440, 16, 512, 0, 64), F16, {}, "warning", "start_address", "middle of the 128 bytes",
     r"multiple of 128: nearest is 0x400 \(1024\)"),
    (word(0x470, 16, 1024, 0, 128), F16, {}, "error", "start_address",
     "112 bytes into a line of 128, of which the tile reads 32: the last 16", r"0x460 \(1120\)"),
    (word(0, 16, 512, 0, 128), F16, {}, "error", "stride_byte_offset",
     r"core matrices \(0, 0\) and \(1, 0\) both read byte 0x240", "stride_byte_offset 1024"),
    (word(0, 16, 1024), F16, {}, "error", "leading_byte_offset",
     r"core matrices \(0, 0\) and \(0, 1\) both read", "nearest is leading_byte_offset 128"),
    (word(0, 0, 0), F16, {}, "error", "stride_byte_offset", "LBO|leading_byte_offset 0 and",
     "stride_byte_offset 128 with leading_byte_offset 1024"),
    (word(0, 128, 1040), F16, {"swizzle": 32}, "warning", "stride_byte_offset",
     "1040 is no multiple of 256", "nearest is 1024"),
    (word(0, 2048, 1024, 0, 128), F16, {}, "warning", "leading_byte_offset",
     "2048 has no effect: 32 bytes of k are within one 128-byte line", r"16 \(raw 1\)"),
    (word(0, 512, 128), U8, {"major": "mn"}, "error", "major", "MN-major tile of 8-bit elements",
     "K-major"),
    (word(0x1000, 1024, 128), F16, {"shared_size": 0x1400}, "error", "start_address",
     r"ends at byte 0x1800 \(6144\), and shared memory ends at 0x1400 \(5120\)",
     r"at most 0xc00 \(3072\)"),
    (word(0x3FC00, 1024, 128), F16, {}, "error", "start_address",
     "18 bits of shared addresses end at 0x40000", r"0x3f800"),
    (word(0, 1024, 128), F16, {"shared_size": 1000}, "error", "leading_byte_offset",
     r"memory ends at 0x3e8 \(1000\)",
     "at least 2048 bytes of shared memory: the tile fills them without gaps"),
    (word(0, 0x1000, 0x9000), F16, {}, "error", "stride_byte_offset",
     "18 bits of shared addresses end", "smaller strides: with these the tile spans 262272 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "opcode", "more", "level", "field", "message", "legal"), FINDINGS
)
def test_each_finding(given, opcode, more, level, field, message, legal):
    if "swizzle" in more:
        given |= CODES[more["swizzle"]][0] << 62
        more = {}
    found = describe_descriptor(given, opcode, **more)
    (finding,) = [x for x in found.findings if x.field == field and x.level == level]
    assert re.search(message, finding.message), finding
    assert re.search(legal, finding.legal), finding
    assert found.is_legal == all(x.level == "warning" for x in found.findings)


def test_what_is_legal_is_legal():
    """The word with the nearest stride or start has no error left."""
    assert describe_descriptor(word(0, 16, 1024, 0, 128), F16).findings == ()
    assert describe_descriptor(word(0, 128, 1024), F16).findings == ()
    assert describe_descriptor(word(0, 1024, 128), F16).findings == ()
    assert describe_descriptor(word(0xC00, 1024, 128), F16, shared_size=0x1400).findings == ()
    assert describe_descriptor(word(0x460, 16, 1024, 0, 128), F16).findings == ()


def test_every_problem_that_the_layout_package_names_is_found():
    rng = np.random.default_rng(2)
    named = 0
    for _ in range(150):
        numbers = [int(x) * 128 for x in rng.integers(0, 20, 3)]
        swizzle = int(rng.choice([0, 32, 64, 128]))
        descriptor = Descriptor(*numbers, int(rng.integers(0, 2)), swizzle)
        major = str(rng.choice(["k", "mn"]))
        problems = descriptor.validate(TileShape.of(64, 16, "f16", major), 8192)
        found = describe_descriptor(int(descriptor.encode()), F16, major=major, shared_size=8192)
        assert not problems or found.findings
        named += bool(problems)
    assert 50 < named < 150


# --- the bytes of core matrices -------------------------------------------------------------------

#: opcode, operand -> rows, columns and bytes of what it reads; columns of b1 are its bytes
TILES = {
    (F16, "a"): (64, 16, 2), (F16, "b"): (64, 16, 2), (TF32, "b"): (64, 8, 4),
    (U8, "a"): (64, 32, 1), (B1, "b"): (64, 32, 1), (SPARSE, "a"): (64, 16, 2),
    (SPARSE, "b"): (64, 32, 2),
}  # fmt: skip


@pytest.mark.parametrize(("opcode", "operand"), TILES)
def test_core_matrices_are_those_of_the_formula(ask, opcode, operand):
    rows, columns, size = TILES[opcode, operand]
    t, bits = 16 // size, 8 if opcode == B1 else 1
    for swizzle, major in itertools.product(CODES, ("k", "mn") if size == 2 else ("k",)):
        fields = (0x480, 0x4000, 0x400, 1, swizzle)
        data = ask(word(*fields), opcode, "--operand", operand, "--major", major, "--json")
        assert (data["rows"], data["columns"]) == (rows, columns * bits)
        high, wide = (8, t) if major == "k" else (t, 8)
        assert len(data["core_matrices"]) == rows // high * (columns // wide)
        for matrix in data["core_matrices"]:
            r, k = matrix["i"] * high, matrix["j"] * wide
            assert matrix["rows"] == [r, r + high - 1]
            assert matrix["columns"] == [k * bits, (k + wide) * bits - 1]
            for line, (first, last) in enumerate(matrix["lines"]):
                start = (r + line, k) if major == "k" else (r, k + line)
                assert first == address(*fields, major, size, *start)
                assert last == first + 15


def reported(found, size):
    """{(row, column): first byte} of elements of `size` bytes, from the core matrices alone."""
    places = {}
    for matrix in found.core_matrices:
        for at, line in enumerate(matrix.lines):
            for place in range(0, len(line), size):
                along = place // size
                row, k = (at, along) if found.tile.shape.major == "k" else (along, at)
                places[matrix.rows[row], matrix.columns[k]] = line[place]
    return places


@pytest.mark.parametrize("swizzle", CODES)
def test_execute_reads_the_bytes_that_the_report_names(swizzle):
    """A is the unit matrix, so that D is B; what B shows is the address of each byte, in parts."""
    ins = Instruction.parse(U8)
    a = np.eye(32, dtype=np.uint8)[np.arange(64) % 32]
    registers = ins.fragment("a").scatter(a)
    start, lbo, sbo = (0x480, 0x4000, 0x300) if swizzle == 0 else (0x460, 0x20, 0x500)
    given = word(start, lbo, sbo, 1, swizzle)
    where = np.arange(1 << 16)
    read = np.zeros((32, 64), int)
    for part in (0, 8):
        memory = (where >> part).astype(np.uint8)
        d = execute(ins, registers, np.uint64(given), ins.fragment("d").zeros(), shared=memory,
                    scale_d=False, target="sm_90a")  # fmt: skip
        read |= ins.fragment("d").gather(d)[:32].astype(int) << part
    found = reported(describe_descriptor(given, ins), 1)
    assert len(found) == 64 * 32
    assert all(read[k, n] == byte for (n, k), byte in found.items())
    # Another start is noticed.
    moved = reported(describe_descriptor(given + 1, ins), 1)
    assert any(read[k, n] != byte for (n, k), byte in moved.items())


@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("swizzle", CODES)
def test_load_tile_reads_the_bytes_that_the_report_names(swizzle, major):
    given = word(0x480, 0x2000, 0x400, 1, swizzle)
    ins = Instruction.parse(F16)
    # Every 16-bit element holds its own number.
    memory = np.arange(1 << 15, dtype="<u2").view(np.uint8)
    codes = load_tile(memory, np.asarray(given, np.uint64), 64, 16, ins.b_place, major)
    found = reported(describe_descriptor(given, ins, major=major), 2)
    assert {place: 2 * int(code) for place, code in np.ndenumerate(codes)} == found


# --- the descriptor that a tile needs -------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "stored", "want"),
    [
        # K-major: 8 rows of 128 bytes follow 8 rows; LBO does not count
        (F16, StoredTile(128, "k", 0x400, 128, 64), word(0x400, 16, 1024, 0, 128)),
        (F16, StoredTile(128, "k", 0x400, 128, 64, column=48), word(0x460, 16, 1024, 0, 128)),
        (F16, StoredTile(128, "k", 0x480, row=0), word(0x480, 16, 1024, 1, 128)),
        # columns 64-79 are in the second block: behind 16 blocks of 1024 bytes
        (F16, StoredTile(128, "k", 0, 128, 128, column=64), word(16384, 16, 1024, 0, 128)),
        (F16, StoredTile(128, "k", 0, 128, 128, "columns", 64), word(16384, 16, 2048, 0, 128)),
        # without a swizzle: 128-byte core matrices, of which 16 (rows) or 4 (columns) are in a line
        (F16, StoredTile(0, "k", 0, 128, 32), word(0, 2048, 128)),
        (F16, StoredTile(0, "k", 0, 128, 32, "columns"), word(0, 128, 512)),
        (F16, StoredTile(0, "mn", 0, 128, 32), word(0, 2048, 128)),
        (F16, StoredTile(0, "mn", 0, 128, 32, "columns"), word(0, 128, 512)),
        # MN-major: 64 rows of 2 bytes are as wide as the swizzle
        (F16, StoredTile(128, "mn", 0, 128, 32), word(0, 1024, 2048, 0, 128)),
        (F16, StoredTile(128, "mn", 0, 128, 32, "columns"), word(0, 4096, 1024, 0, 128)),
        (F16, StoredTile(64, "mn", 0, 64, 32, column=8), word(1024, 512, 1024, 0, 64)),
        # 64 bytes of k, two blocks of 32
        (SPARSE, StoredTile(32), word(0, 2048, 256, 0, 32)),
        (B1, StoredTile(0, "k", 0, 64, 512, column=256), word(2048, 1024, 128)),
    ],
)
def test_needed_descriptors(opcode, stored, want):
    assert int(needed_descriptor(opcode, "b", stored).descriptor.encode()) == want
    assert diff_descriptors(want, opcode, "b", stored).is_same


def test_a_part_of_a_stored_tile_is_read_from_where_the_tile_holds_it():
    checked = 0
    for swizzle, major, order in itertools.product(CODES, ("k", "mn"), ("rows", "columns")):
        rows, k = 128, 128
        if major == "k":
            across = k // (8 * CODES[swizzle][1])
            step = 8 * 16 * CODES[swizzle][1]
            lbo, sbo = (16 * step, step) if order == "rows" else (step, across * step)
        else:
            across = rows // (8 * CODES[swizzle][1])
            step = 8 * 16 * CODES[swizzle][1]
            along_rows, along_k = (step, across * step) if order == "rows" else (16 * step, step)
            lbo, sbo = (along_rows, along_k) if swizzle else (along_k, along_rows)
        for row, column in ((0, 0), (64, 0), (0, 16), (64, 112)):
            stored = StoredTile(swizzle, major, 0x1000, rows, k, order, row, column)
            got = needed_descriptor(F16, "b", stored).descriptor
            for r, c in ((0, 0), (63, 15), (17, 9), (40, 3)):
                whole = address(0x1000, lbo, sbo, 0, swizzle, major, 2, row + r, column + c)
                assert got.address(r, c, TileShape.of(64, 16, "f16", major)).start == whole
                checked += 1
    assert checked == 4 * 2 * 2 * 4 * 4


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (StoredTile(leading_bytes=256), "128 bytes .64 elements. apart.*nearest is 128 bytes"),
        (StoredTile(0, leading_bytes=32), "no swizzle the lines.*nearest is 32 bytes, the 32-byte"),
        (StoredTile(rows=32), "32 rows × 16 columns is smaller than operand b: 64 rows"),
        (StoredTile(k=64, column=56), r"of 64 × 64: it would .* end behind it.*is \(0, 48\)"),
        (StoredTile(k=128, column=56), r"would cut blocks of 8 lines of 128.*is \(0, 48\)"),
        (StoredTile(rows=72, row=4), r"of 72 × 16: it would cut.*nearest is \(0, 0\)"),
        (StoredTile(rows=72, row=12, column=9), r"nearest is \(8, 0\)"),
        (StoredTile(start_address=0x410), "nearest is 0x400, with tile=64x64,column=8 for what"),
        (StoredTile(start_address=0x408), "1032 is no multiple of 128.*nearest is 0x400$"),
        (StoredTile(start_address=0x420), "0x400, with tile=64x64,column=16 for what lies 32 by"),
        (StoredTile(k=64, start_address=0x460), "0x400, with column=48 for what lies 96 bytes on"),
        (StoredTile(start_address=0x420, major="mn"), "nearest is 0x400$"),
        (StoredTile(32, start_address=0x440), "1088 is no multiple of 128.*nearest is 0x400$"),
    ],
)
def test_tiles_that_no_descriptor_describes(stored, words):
    with pytest.raises(OperandError, match=words):
        needed_descriptor(F16, "b", stored)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"order": "k"}, "'rows' or 'columns'; got 'k'"),
        ({"major": "m"}, r"\(imm-trans 0 or 1\) is 'k' or 'mn'; got 'm'"),
        ({"major": None}, "got None"),
        ({"swizzle_bytes": 48}, "swizzle_bytes is one of .*got 48"),
        ({"rows": 0}, "rows is 1 … 262144; got 0"),
        ({"k": 1.5}, r"k is 1 … 262144; got 1\.5"),
        ({"row": None}, "row is 0 … 262144; got None"),
        ({"column": "8"}, "column is 0 … 262144; got '8'"),
        ({"start_address": True}, "start_address is 0 … 262144; got True"),
        ({"leading_bytes": -1}, "leading_bytes is 0 … 262144; got -1"),
    ],
)
def test_no_stored_tile(given, words):
    with pytest.raises(OperandError, match=words):
        StoredTile(**given)


def suggested(message, spec):
    """A spec with what a message calls nearest; None where it says nothing that can be typed."""
    if found := re.search(r"starts; nearest is (\w+)(?:, with (\S+) for)?", message):
        more = (part.split("=") for part in found[2].split(",")) if found[2] else ()
        return spec | {"start": found[1]} | dict(more)
    if found := re.search(r"nearest is \((\d+), (\d+)\)", message):
        return spec | {"row": found[1], "column": found[2]}
    if found := re.search(r"nearest is start=(\w+)|start_address at most (\w+)", message):
        return spec | {"start": found[1] or found[2]}
    return None


def needs(count):
    """Words and needs of tiles, many of them wrong."""
    rng = np.random.default_rng(5)
    choices = {
        "swizzle": ["none", "32B", "64B", "128B"], "row": [4, 8, 32, 64], "order": ["columns"],
        "start": ["0", "0x400", "0x408", "0x410", "0x440", "0x470", "0x480", "0x3f800"],
        "tile": ["64x16", "64x64", "128x64", "256x32", "64x128", "72x24"],
        "column": [4, 8, 16, 24, 48],
    }  # fmt: skip
    for _ in range(count):
        spec = {
            name: str(rng.choice(values)) for name, values in choices.items() if rng.random() < 0.4
        }
        numbers = (rng.choice([0, 0x400, 0x410, 0x470, 0x480, 0x4A0, 0x3F800]),
                   rng.choice([16, 128, 1024]), rng.choice([128, 512, 1024]), rng.choice([0, 1]),
                   rng.choice([0, 32, 64, 128]))  # fmt: skip
        yield word(*map(int, numbers)), (F16, N24, U8, TF32)[int(rng.integers(4))], spec


@pytest.mark.parametrize("count", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_a_need_suggests_nothing_that_its_own_text_contradicts(count):
    """What is called nearest is taken, and one start is suggested, the one that is needed."""
    answered = refused = 0
    for given, opcode, spec in needs(count):
        major = "mn" if spec.get("row") == "64" and opcode in (F16, N24) else "k"
        more = {"major": major, "shared_size": "0x3f000"}
        for left in (3, 2, 1, 0):  # start, place and end of shared memory, one after another
            need = ",".join(f"{name}={value}" for name, value in spec.items()) or "order=rows"
            try:
                answer_ = descriptor_command([hex(given), opcode], need=need, **more)
            except OperandError as error:
                refused += 1
                if (other := suggested(str(error), spec)) is None:
                    break
                assert left and other != spec, (need, str(error))
                spec = other
                continue
            lines, needed = answer_.shown, int(answer_.data["needed"], 16)
            starts = {int(x, 16) for x in re.findall(r"nearest is (0x\w+)", "\n".join(lines))}
            starts |= {int(x) for x in re.findall(r"legal: start_address (\d+)", "\n".join(lines))}
            assert starts <= {(needed & 0x3FFF) << 4}, (need, lines)
            assert not any("nothing is wrong" in line for line in lines)
            own = describe_descriptor(needed, opcode, major=major, shared_size=0x3F000)
            assert own.findings == (), (need, own)
            answered += 1
            break
    assert answered > 0.4 * count and refused > 0.4 * count


NEAREST = re.compile(r"nearest is (?:(\w+_offset) )?(\w+)(?: with (\w+) (\d+))?|at most (\w+)")


def test_legal_values_of_findings_are_legal():
    """What a finding calls nearest leaves no finding of that field."""
    tried = 0
    for given, opcode, _ in needs(300):
        for finding in describe_descriptor(given, opcode, shared_size=0x3F000).findings:
            near = NEAREST.search(finding.legal)
            if finding.field == "tile" or not near:
                continue
            values = {near[1] or finding.field: int(near[2] or near[5], 0)}
            values |= {near[3]: int(near[4])} if near[3] else {}
            better = replace(Descriptor.decode(given), **values).encode()
            left = describe_descriptor(int(better), opcode, shared_size=0x3F000).findings
            assert finding not in left, (finding, left)
            assert (finding.level, finding.field) not in {(x.level, x.field) for x in left}
            tried += 1
    assert tried > 100


# --- a tile is stored -----------------------------------------------------------------------------


def copied(matrix, swizzle, start):
    """Shared memory after one tensor copy of a whole matrix, element by element."""
    memory = np.zeros(1 << 15, np.uint8)
    size, bytes_ = matrix.dtype.itemsize, np.ascontiguousarray(matrix).reshape(-1).view(np.uint8)
    box = matrix.shape[::-1]
    tensor = TensorMap.tiled(matrix, box=box, swizzle=swizzle).with_address(0)
    for element in elements(tensor, "tile", (0, 0), shared_address=start):
        at, to = element.global_address, element.shared_address
        memory[to : to + size] = bytes_[at : at + size]
    return memory


@pytest.mark.parametrize("dtype", ["f2", "i1", "f4"])
@pytest.mark.parametrize("width", CODES)
@pytest.mark.parametrize("major", ["k", "mn"])
def test_a_stored_tile_is_what_a_tensor_copy_writes(dtype, width, major):
    if major == "mn" and dtype != "f2":
        return
    rng = np.random.default_rng(9)
    lines, unit = 32, (width or 16) // np.dtype(dtype).itemsize
    held = rng.integers(-100, 100, (lines, 2 * unit)).astype(dtype)
    matrix = held if major == "k" else held.T
    # Boxes as wide as the swizzle lie one after another.
    order = "rows" if major == "k" else "columns"
    tile = StoredTile(width, major, 1024, *matrix.shape, order)
    got = tile.store(matrix)
    want = np.zeros(1 << 15, np.uint8)
    for i in range(2):
        part = np.ascontiguousarray(held[:, i * unit : (i + 1) * unit])
        want |= copied(part, f"{width}B" if width else "none", 1024 + i * part.nbytes)
    assert len(got) == 1024 + matrix.nbytes and np.array_equal(got, want[: len(got)])
    memory = np.full(1 << 14, 7, np.uint8)
    assert tile.store(matrix, shared=memory) is memory
    assert np.array_equal(memory[1024 : len(got)], got[1024:]) and (memory[:1024] == 7).all()


def test_an_instruction_reads_a_stored_tile():
    """Also where the pattern starts with the tile, and of elements below a byte."""
    rng = np.random.default_rng(3)
    matrix = rng.standard_normal((64, 64)).astype("f2")
    tile = StoredTile(128, "k", 0x480, 64, 64, column=16)
    needed = needed_descriptor(F16, "b", tile).descriptor
    codes = load_tile(tile.store(matrix), needed, 64, 16, "f16")
    assert np.array_equal(codes.view("f2"), matrix[:, 16:32])
    bits = rng.integers(0, 2, (64, 256), np.uint8)
    held = StoredTile(32).store(bits, "b1")
    assert len(held) == 2048
    needed = needed_descriptor(B1, "b", StoredTile(32)).descriptor
    assert np.array_equal(load_tile(held, needed, 64, 256, "b1"), bits)


@pytest.mark.parametrize(
    ("stored", "given", "words"),
    [
        (StoredTile(rows=64, k=64), np.zeros((64, 32), "f2"), "matrix is .*64 × 64.*got float16"),
        (StoredTile(), np.zeros(64, "f2"), r"matrix is \(rows, k\)"),
        (StoredTile(), np.zeros((64, 64)), "the type of the elements .* got None"),
        (StoredTile(0, "mn"), np.zeros((64, 32), "i1"), "only 16-bit types can be transposed"),
        (StoredTile(start_address=0x410), np.zeros((64, 64), "f2"), "no multiple of 128"),
    ],
)
def test_matrices_that_are_not_stored(stored, given, words):
    with pytest.raises(OperandError, match=words):
        stored.store(given)


def test_a_tile_is_not_stored_behind_the_end():
    with pytest.raises(UndefinedError, match="lies at byte 4096 of shared memory, which has 4096"):
        StoredTile().store(np.zeros((64, 64), "f2"), shared=np.zeros(4096, np.uint8))


@pytest.mark.parametrize("stored", ["swizzle=128B", 128, ()])
def test_a_stored_tile_is_needed(stored):
    with pytest.raises(OperandError, match="a StoredTile is needed; got"):
        needed_descriptor(F16, "b", stored)
