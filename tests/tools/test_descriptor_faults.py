"""``python -m emulator descriptor --need``: every usual mistake is named; the shell's side of it.

Each mistake is made here by hand in a word that is right; descriptor_words.py has the layout.
"""

from functools import partial

import pytest
from commands import answer, refusal
from descriptor_words import word

from emulator.__main__ import main
from emulator.tools.descriptors.description import describe_descriptor
from emulator.tools.descriptors.difference import diff_descriptors
from emulator.tools.descriptors.tiles import StoredTile

F16 = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
#: 128 rows and 32 columns of f16 as 16 × 4 core matrices, those of the next rows first
PLAIN = StoredTile(0, "k", 0x1400, 128, 32)
PLAIN_WORD = word(0x1400, 2048, 128)
#: 128 rows and 64 columns under each swizzle
WIDE = {width: StoredTile(width, "k", 0x1400, 128, 64) for width in (32, 64, 128)}
WIDE_WORD = {width: word(0x1400, 16, 8 * width, 0, width) for width in WIDE}
#: MN-major, where 64 rows are as wide as the swizzle: LBO leads to the next 64 of 128 rows
ACROSS = StoredTile(128, "mn", 0x1400, 128, 64)
BIG_N = F16.replace("n64", "n128")


@pytest.fixture
def ask(capsys):
    return partial(answer, capsys, "descriptor")


@pytest.fixture
def refused(capsys):
    return partial(refusal, capsys, "descriptor")


def swizzled(width, code, low=62):
    """The right word of a swizzle with another code, which loses what does not fit."""
    return (WIDE_WORD[width] & ~(3 << 62) | code << low) & (1 << 64) - 1


FAULTS = [
    # strides: 2048 is raw 128, 128 is raw 8
    (word(0x1400, 128, 2048), F16, PLAIN, "LBO and SBO are exchanged"),
    (word(0x1400, 1024, 16, 0, 128), F16, WIDE[128], "LBO and SBO are exchanged"),
    (0x140 | 2048 << 16 | 8 << 32, F16, PLAIN, "it is in bytes, not divided by 16"),
    (0x140 | 128 << 16 | 128 << 32, F16, PLAIN, "it is in bytes, not divided by 16"),
    (0x140 | 64 << 16 | 8 << 32, F16, PLAIN, "it was counted in elements, not in bytes"),
    (0x140 | 1024 << 16 | 8 << 32, F16, PLAIN, "in elements, not in bytes, and not divided by 16"),
    (0x140 | 8 << 16 | 8 << 32, F16, PLAIN, "it was divided by 16 twice"),
    (0x140 | 8 << 32, F16, PLAIN, "it was left at 0"),
    (0x140 | 4 << 16 | 128 << 32, F16, PLAIN, "LBO and SBO are exchanged, and LBO: it was counted"),
    (word(0x1400, 1024, 128), F16, PLAIN, "instruction's own size, and the stored one is larger"),
    (word(0x1400, 128, 512), F16, PLAIN, "as for blocks stored columns first"),
    (word(0x1400, 16, 512, 0, 128), F16, WIDE[128], "as for the 64-byte swizzle"),
    (word(0x1400, 16, 128, 0, 128), F16, WIDE[128], "as for a tile without a swizzle"),
    (word(0x1400, 8192, 1024, 0, 128), BIG_N, ACROSS, "as for blocks stored columns first"),
    (word(0x1400, 16, 1024, 0, 128), BIG_N, ACROSS, "as for a K-major tile"),
    # the start
    (0x1400 | 128 << 16 | 8 << 32, F16, PLAIN, "it is in bytes, not divided by 16"),
    (word(0xA00, 2048, 128), F16, PLAIN, "it was counted in elements, not in bytes"),
    (0x14 | 128 << 16 | 8 << 32, F16, PLAIN, "it was divided by 16 twice"),
    (word(0, 2048, 128), F16, PLAIN, "it was left at 0"),
    (word(0x1440, 16, 1024, 0, 128), F16, WIDE[128], "(row 0, column 32) of the stored tile"),
    # base offset: 0x1480 lies one line behind a multiple of 1024
    (word(0x1480, 16, 1024, 0, 128), F16, StoredTile(128, "k", 0x1480), "it is missing"),
    (word(0x1400, 16, 1024, 5, 128), F16, WIDE[128], "it is there although"),
    # codes: tcgen05 has 2, 4, 6 in three bits; CUtensorMapSwizzle 3, 2, 1 for 128, 64, 32
    (swizzled(128, 2), F16, WIDE[128], "it is 2, the code of tcgen05, at bit 62"),
    (swizzled(64, 4), F16, WIDE[64], "it is 4, the code of tcgen05, at bit 62, the top bit"),
    (swizzled(32, 6), F16, WIDE[32], "it is 6, the code of tcgen05, at bit 62, the top bit"),
    (swizzled(128, 3), F16, WIDE[128], "it is 3, the code of CUtensorMapSwizzle"),
    (swizzled(32, 1), F16, WIDE[32], "it is 1, the code of CUtensorMapSwizzle"),
    (swizzled(128, 1, 61), F16, WIDE[128], "its code 1 stands at bit 61, as in tcgen05"),
    (swizzled(64, 2, 61), F16, WIDE[64], "its code 2 stands at bit 61, as in tcgen05"),
    (swizzled(64, 0), F16, WIDE[64], "it was left at 0"),
    # the whole word
    (PLAIN_WORD >> 32 | (PLAIN_WORD << 32 & (1 << 64) - 1), F16, PLAIN,
     "the upper and lower 32 bits are exchanged"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "opcode", "stored", "mistake"), FAULTS)
def test_each_likely_fault_is_named(given, opcode, stored, mistake):
    found = diff_descriptors(given, opcode, "b", stored)
    assert found.wrong and not found.is_same
    (fault,) = found.faults
    assert any(mistake in text for text in fault.mistakes), found.faults


@pytest.mark.parametrize(
    ("given", "opcode", "stored"),
    [(PLAIN_WORD, F16, PLAIN), *((WIDE_WORD[w], F16, WIDE[w]) for w in WIDE),
     (word(0x1400, 1024, 2048, 0, 128), BIG_N, ACROSS)],
)  # fmt: skip
def test_the_right_word_has_no_fault(given, opcode, stored):
    found = diff_descriptors(given, opcode, "b", stored)
    assert (found.fields, found.faults, found.wrong, found.first) == ({}, (), (), None)


def test_several_mistakes_at_once_are_told_apart():
    found = diff_descriptors(word(0xA00, 128, 2048, 0, 32), F16, "b", PLAIN)
    assert [fault.fields for fault in found.faults] == [
        ("start_address",), ("leading_byte_offset", "stride_byte_offset"), ("swizzle",),
    ]  # fmt: skip
    assert found.fields == {
        "start_address": (0xA00, 0x1400), "leading_byte_offset": (128, 2048),
        "stride_byte_offset": (2048, 128), "swizzle": (32, 0),
    }  # fmt: skip


def test_a_value_that_no_mistake_makes_is_shown_as_such(ask, capsys):
    given = word(0x1400, 2048, 8 * 336)
    found = diff_descriptors(given, F16, "b", PLAIN)
    assert [fault.mistakes for fault in found.faults] == [()]
    argv = ["descriptor", hex(given), F16, "--need", "swizzle=none,start=0x1400,tile=128x32"]
    assert main(argv) == 1
    assert "stride_byte_offset: no usual mistake makes this value" in capsys.readouterr().out


def test_fields_that_do_not_count_are_no_fault(ask):
    # LBO of a K-major tile that is no wider than the swizzle; base offset 8 lines further
    given = word(0x1480, 4096, 512, 5, 64)
    found = diff_descriptors(given, F16, "b", StoredTile(64, "k", 0x1480))
    assert (set(found.fields), found.faults, found.is_same) == (
        {"leading_byte_offset", "base_offset"}, (), True,
    )  # fmt: skip
    lines = ask(hex(given), F16, "--need", "swizzle=64B,start=0x1480")
    assert "the same bytes are read: these fields do not count" in lines


def test_the_wrong_elements_are_counted_and_located():
    # Exchanged strides: core matrix (0, 0) alone is where it was, and the diagonal where i = j.
    found = diff_descriptors(word(0x1400, 128, 2048), F16, "b", PLAIN)
    assert len(found.wrong) == 64 * 16 - 2 * 64
    assert found.wrong[0] == (0, 8) and found.first == (0x1400 + 128, 0x1400 + 2048)


# --- the shell ------------------------------------------------------------------------------------


def test_exit_codes(ask, capsys):
    need = "swizzle=none,start=0x1400,tile=128x32"
    ask(PLAIN_WORD, F16, "--need", need)
    ask(word(0x1480, 16, 1024, 0, 128), F16)  # a warning only
    for argv in (
        [word(0, 16, 1024), F16],
        [word(0x1400, 128, 2048), F16, "--need", need],
        [PLAIN_WORD, word(0, 16, 1024), F16],
        [PLAIN_WORD, F16, "--shared-size", "0x1400"],
    ):
        assert main(["descriptor", *map(str, argv)]) == 1
        assert capsys.readouterr().err == ""


def test_text_shows_the_lines_and_the_blocks(ask):
    lines = ask("0x4000004000010040", F16)
    first = lines.index("where the 16 bytes of each line of core matrices (0,0-1) start:")
    assert [line.split() for line in lines[first + 1 : first + 5]] == [
        ["row", "k", "0-7", "8-15"],
        ["0", "0x400", "0x410"], ["1", "0x490", "0x480"], ["2", "0x520", "0x530"],
    ]  # fmt: skip
    assert [line.split()[:4] for line in lines[-4:]] == [
        ["0", "0-7", "0x400-0x7ff"], ["1", "8-15", "0x800-0xbff"],
        ["…", "each", "0x400", "further"], ["7", "56-63", "0x2000-0x23ff"],
    ]  # fmt: skip
    assert len(lines) < 30
    # A stride that breaks the pattern: the blocks are not alike.
    lines = ask(word(0x400, 16, 1152, 0, 128), F16)
    assert lines[-1] == "* permuted otherwise than the first"
    assert lines[-2].endswith("*")
    # 32 rows of blocks at uneven distances do not fill the screen.
    lines = ask(word(0, 16, 272, 0, 32), F16.replace("n64", "n256"))
    assert "…  16 more, see --json" in lines


def test_several_words_are_answered_one_after_another(ask):
    lines = ask(PLAIN_WORD, WIDE_WORD[64])
    assert lines[0] == "0x0000000800800140" and "" in lines
    assert "0x8000002000010140" in lines
    both = ask(PLAIN_WORD, WIDE_WORD[64], F16, "--json")
    assert [one["word"] for one in both] == ["0x0000000800800140", "0x8000002000010140"]


def test_json_of_a_difference(capsys):
    import json

    argv = ["descriptor", hex(word(0x1400, 128, 2048)), F16, "--json"]
    assert main([*argv, "--need", "swizzle=none,start=0x1400,tile=128x32"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["needed"] == f"{PLAIN_WORD:#018x}" and not data["same_bytes"]
    assert data["faults"] == [{"fields": ["leading_byte_offset", "stride_byte_offset"],
                               "mistakes": ["LBO and SBO are exchanged",
                                            "right if the stored tile were another: "
                                            "tile=128x128,order=columns"]}]  # fmt: skip
    assert data["differences"][0] == {"field": "leading_byte_offset", "word": 128, "needed": 2048}
    assert (data["opcode"], data["operand"], data["major"]) == (F16, "b", "k")
    assert data["findings"] == [] and data["legal"] and data["wrong_elements"] == 896


def test_diff_takes_the_tile_from_the_word(ask):
    # 32 bytes into a line of 128: column 16 of a tile of 64 columns
    data = ask(word(0x1420, 16, 1024, 0, 128), F16, "--diff", "--json")
    assert data["same_bytes"] and data["differences"] == []
    data = ask(PLAIN_WORD, F16, "--need", "tile=128x32", "--json")
    assert data["same_bytes"] and data["needed"] == data["word"]
    # 64 rows of 2 bytes: 8 rows into a line of 128, which 8 rows of an instruction read
    narrow = F16.replace("n64", "n8")
    data = ask(word(0x1410, 1024, 1024, 0, 128), narrow, "--major", "mn", "--diff", "--json")
    assert data["same_bytes"]


def test_build(ask):
    data = ask("--build", "swizzle=128B,start=0x1400,tile=128x64", F16, "--json")
    assert data["word"] == f"{WIDE_WORD[128]:#018x}" and data["legal"]
    assert data["stored_bytes"] == [0x1400, 0x1400 + 128 * 128 - 1]
    assert (data["stored"]["rows"], data["stored"]["k"], data["stored"]["order"]) == (
        128, 64, "rows",
    )  # fmt: skip
    assert [(x["column"], int(x["word"], 16)) for x in data["along_k"]] == [
        (16 * i, WIDE_WORD[128] + 2 * i) for i in range(4)
    ]
    lines = ask("--build", "swizzle=128B,start=0x1400,tile=128x64", F16)
    assert "the stored tile takes bytes 0x1400-0x53ff (16384)" in lines
    assert f"48-63    {WIDE_WORD[128] + 6:#018x}" in lines
    for leading in ("128", "128B", "64e"):
        assert ask("--build", f"swizzle=128B,leading={leading}", F16)
    turned = ask("--build", "swizzle=none,major=mn,tile=128x32,order=columns", F16, "--json")
    assert int(turned["word"], 16) == word(0, 128, 512)
    assert describe_descriptor(int(turned["word"], 16), F16, major="mn").findings == ()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "no descriptor: give its 64-bit word, such as 0x4000004000010040"),
        (("deadbeef",), "'deadbeef' is neither a 64-bit word .* nearest is 0xdeadbeef"),
        (("0xhello",), "'0xhello' is neither"),
        ((1 << 64,), "has 64 bits; '18446744073709551616' does not fit"),
        ((1, F16, F16), "one opcode for all words"),
        ((1, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), "only wgmma reads"),
        ((1, "--diff"), "--diff takes an opcode, too, such as wgmma"),
        ((1, F16, "--operand", "d"), "read through a descriptor is 'a' or 'b'; got 'd'"),
        ((1, F16, "--major", "row"), "imm-trans 0 or 1. is 'k' or 'mn'; got 'row'"),
        ((1, F16, "--need", "swizle=64B"), "got 'swizle=64B'; nearest is 'swizzle=…'"),
        ((1, F16, "--need", "swizzle"), "got 'swizzle'; nearest is 'swizzle="),
        ((1, F16, "--need", "swizzle=3"), "in bytes whatever its code; got '3'; nearest is none"),
        ((1, F16, "--need", "swizzle=100"), "none, 32B, 64B, 128B, .* nearest is 128B"),
        ((1, F16, "--need", "start=0,start=1"), "start is given twice"),
        ((1, F16, "--need", "start=top"), "start is a whole number; got 'top'"),
        ((1, F16, "--need", "tile=64"), "tile, ROWSxCOLUMNS, is two numbers such as 8x8; got '64'"),
        ((1, F16, "--need", "leading=wide"), "leading .128B, or 64e for elements. is a whole"),
        ((1, F16, "--need", "major=mn", "--major", "k"), "--major 'k' contradicts major=mn"),
        ((1, F16, "--need", "order=row"), "'rows' or 'columns'; got 'row'; nearest is 'rows'"),
        ((1, F16, "--need", "", "--diff"), "one of --need, --diff and --build"),
        ((1, F16, "--build", "swizzle=64B"), "--build makes a word, and one is given"),
        ((1, F16, "--need", "tile=99999x99999"), "takes more than the 262144 bytes"),
        ((1, F16, "--need", "tile=0x64"), "rows is 1 … 262144; got 0"),
        ((1, F16, "--shared-size", "0"), "the size of shared memory is 1 or more; got 0"),
        ((1, F16, "--shared-size", "48k"), "--shared-size is a whole number; got '48k'"),
    ],
)  # fmt: skip
def test_mistakes_of_the_command_line(refused, argv, words):
    import re

    assert re.search(words, refused(*argv))
