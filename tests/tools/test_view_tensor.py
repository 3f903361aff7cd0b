"""``view`` of tcgen05: pictures of tensor memory."""

import re

import pytest

from emulator import InstructionDescriptor
from emulator.__main__ import main
from emulator.layout.tensor_grids import matrix_grids, transfer_grid
from emulator.layout.tensor_memory import TensorLayout

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
    grid = transfer_grid("16x256b", 2)
    assert grid.shape == (16, 16)
    assert grid.hint(9, 11).endswith("register 7 of lane 5")
    packed = transfer_grid("32x32b", 2, packed=True)
    assert packed.hint(5, 3).endswith("high half of register 1 of lane 5")
    assert transfer_grid("16x32bx2", 2, split=4).hint(0, 3).endswith("not moved")


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
        (["tcgen05.shift.cta_group::1.down"], "pictures of mma (with --idesc), ld and st"),
    ],
)
def test_what_has_no_picture(capsys, given, message):
    assert main(["view", *given]) == 2
    assert message in capsys.readouterr().err
