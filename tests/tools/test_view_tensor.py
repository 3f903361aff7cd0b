"""``view`` of tcgen05: pictures of tensor memory."""

import re

import pytest
from commands import answer, refusal

from emulator import InstructionDescriptor
from emulator.__main__ import main
from emulator.layout.tensor_grids import matrix_grids, transfer_grid
from emulator.layout.tensor_memory import TensorLayout, transfer_places

pytestmark = pytest.mark.sampled(2)

F16 = "tcgen05.mma.cta_group::1.kind::f16"
LD = "tcgen05.ld.sync.aligned.16x256b.x2.b32"


def test_every_word_of_d_names_its_element():
    layout = TensorLayout(InstructionDescriptor("f16", m=64, n=16))
    (grid,) = matrix_grids(layout, "d", 32)
    assert grid.shape == (128, 16)
    assert grid.hint(33, 5) == "lane 33, column 5: d[17][5] in bits 31:0"
    assert grid.hint(16, 5) == "lane 16, column 5: nothing"
    assert grid.layers[0].text(33, 5) == ("17,5",)
    assert grid.layers[1].text(33, 5) == ("m 17",)
    assert grid.owners[16, 0] != grid.owners[0, 0] != grid.owners[33, 0]


def test_words_with_several_elements():
    layout = TensorLayout(InstructionDescriptor("mxf4", n=64), scales=2)
    (grid,) = matrix_grids(layout, "scale_a", 8)
    assert grid.hint(70, 1) == (
        "lane 70, column 1: scale_a[38][0] in bits 7:0, scale_a[38][1] in bits 15:8"
    )
    assert grid.layers[0].text(70, 1) == ("38,0-1",)
    pair = TensorLayout(InstructionDescriptor("f16", m=256, n=32, sparse=True), 2)
    assert [x.caption[-17:] for x in matrix_grids(pair, "e", 4)] == [
        "CTA 0 of the pair", "CTA 1 of the pair",
    ]  # fmt: skip


def test_every_word_of_a_load_names_its_register():
    grid = transfer_grid(*transfer_places("16x256b", 2), "16x256b.x2")
    assert grid.shape == (16, 16)
    assert grid.hint(9, 11).endswith("register 7 of lane 5")
    packed = transfer_grid(*transfer_places("32x32b", 2, packed=True), "32x32b.x2")
    assert packed.hint(5, 3).endswith("high half of register 1 of lane 5")
    halves = transfer_grid(*transfer_places("16x32bx2", 2, split=4), "16x32bx2.x2")
    assert halves.hint(0, 3).endswith("not moved")


def test_the_command(capsys, tmp_path):
    file = tmp_path / "d.svg"
    assert main(["view", F16, "--idesc", "0x4040490", "-o", str(file)]) == 0
    assert "lane 33, column 5: d[17][5] in bits 31:0" in file.read_text()
    page = tmp_path / "d.html"
    assert main(["view", LD, "-o", str(page)]) == 0
    assert re.match("<!DOCTYPE html>.*</svg>", page.read_text(), re.S)
    capsys.readouterr()
    assert main(["view", F16, "--idesc", "0x4040490", "--operand", "a", "--format", "svg"]) == 0
    assert "a[3][5] in bits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([F16], "needs idesc="),
        ([F16, "--idesc", "0x4040490", "--operand", "e"], "an operand in tensor memory"),
        (["tcgen05.shift.cta_group::1.down"], "of tcgen05 mma (with --idesc), ld and st"),
    ],
)
def test_what_has_no_picture(capsys, given, message):
    assert main(["view", *given]) == 2
    assert message in capsys.readouterr().err


# --- lane, element, info --------------------------------------------------------------------------


def test_lane_of_an_element_in_tensor_memory(capsys):
    line = "d(20, 3): lane 36, column 3, bits 31:0, in the lanes of warp 1 of a warpgroup"
    assert answer(capsys, "lane", F16, "d", 20, 3, "--idesc", "0x4100490") == [line]
    ws = "tcgen05.mma.ws.cta_group::1.kind::f16"
    found = answer(capsys, "lane", ws, "a", 3, 3, "--idesc", "0x4100490", "--json")["places"]
    assert [(x["lane"], x["column"], x["low_bit"], x["warp"]) for x in found] == [
        (3, 1, 16, 0), (67, 1, 16, 2),
    ]  # fmt: skip
    pair = InstructionDescriptor("f16", m=256, n=32)
    lines = answer(
        capsys, "lane", F16.replace("::1", "::2"), "d", 200, 31, "--idesc", hex(pair.encode())
    )
    assert lines[0].startswith("d(200, 31): lane 72, column 31") and "CTA 1 of the pair" in lines[0]
    assert "the row of d is 0 … 63; got 64" in refusal(
        capsys, "lane", F16, "d", 64, 3, "--idesc", "0x4100490"
    )
    assert "needs idesc=" in refusal(capsys, "lane", F16, "d", 0, 3)
    assert "an operand in tensor memory" in refusal(
        capsys, "lane", F16, "b", 0, 3, "--idesc", "0x4100490"
    )


def test_lane_and_element_of_a_load_are_inverse(capsys):
    for opcode in (LD, "tcgen05.st.sync.aligned.16x32bx2.x2.unpack::16b.b32"):
        operand = "d" if opcode == LD else "src"
        for lane, register in ((17, 1), (3, 1), (31, 0)):
            words = answer(capsys, "element", opcode, operand, lane, register, "--json")["words"]
            for half, word in enumerate(words):
                back = answer(
                    capsys, "lane", opcode, operand, word["lane"], word["column"], "--json"
                )
                assert (back["lane"], back["register"]) == (lane, register)
                assert back["half"] == (None if len(words) == 1 else half)
    assert answer(capsys, "element", LD, "d", 17, 2) == ["lane 12, column 2 from the address"]
    assert "it moves lanes 0-15, columns 0-15" in refusal(capsys, "lane", LD, "d", 17, 5)
    assert "register is 0 … 7; got 8" in refusal(capsys, "element", LD, "d", 0, 8)
    assert "mma (with --idesc), ld and st" in refusal(
        capsys, "lane", "tcgen05.cp.cta_group::1.128x256b", "d", 0, 0
    )


def test_info_counts_the_registers_of_a_vector(capsys):
    data = answer(capsys, "info", LD, "--json")
    assert [(x["operand"], x["registers"]) for x in data["operands"]] == [("d", 8), ("taddr", 1)]
    assert data["operands"][1]["note"] == "address in tensor memory"
    assert answer(capsys, "info", F16)[1] == "  tcgen05.mma, every thread by itself"
