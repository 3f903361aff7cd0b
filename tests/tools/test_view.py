"""Pictures: every cell and label of an SVG against the fragment, and the `view` command."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from commands import answer, refusal

from emulator import Instruction
from emulator.isa.catalogue import instructions
from emulator.layout.descriptor import Descriptor
from emulator.layout.grids import fragment_svg, tile_grid
from emulator.layout.picture import (
    HUES,
    MEMORY,
    boxes,
    colour,
    document,
    memory_colour,
    side_by_side,
)
from emulator.layout.tile import TileShape
from emulator.tools.pictures.page import Page
from emulator.tools.pictures.panels import SharedMemory
from emulator.tools.pictures.tiled import TiledFragment

pytestmark = pytest.mark.sampled(2)

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
SAMPLE = (
    (F16, "abcd"), ("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32", "ab"),
    ("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", "ab"),
    ("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", "abd"),
    ("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32", "abc"),
    ("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc", "a"),
    ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "e"), (WGMMA, "ad"),
    ("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8", "d"),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "ad"),
)  # fmt: skip
SAMPLE += tuple(
    ("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e2m3.e2m1.f32"
     ".ue8m0", [operand]) for operand in ("b", "scale_a", "scale_b")
)  # fmt: skip
XML = "{http://www.w3.org/2000/svg}"


def numbers(text):
    return [int(x) for x in re.findall(r"\d+", text)]


def drawn_panels(text):
    """Every panel of an SVG: {(row, col): hover text}, and [(row, col, label, is second line)]."""
    root = ET.fromstring(text)
    for panel in root.iter(f"{XML}g"):
        hover = [x for x in panel if x.get("class") == "hover"]
        if not hover:
            continue
        width, height = numbers(hover[0][0].get("d"))[2:4]
        cells = {}
        for cell in hover[0]:
            x, y = numbers(cell.get("d"))[:2]
            assert x % width == y % height == 0 and (y // height, x // width) not in cells
            cells[y // height, x // width] = cell[0].text
        labels = []
        for owner in (x for x in panel if x.get("class") == "owner"):
            for group in owner.iter(f"{XML}g"):
                small = group.get("font-size") is not None
                for label in group.findall(f"{XML}text"):
                    x, y = int(label.get("x")), int(label.get("y")) - 4
                    where = (y // height, x // width)
                    labels.append((*where, label.text, small, owner.get("fill")))
        yield cells, labels


def check_fragment(text, fragment):
    """An SVG shows each element of a fragment where, and labelled as, `coords` and `group` say."""
    per_word = fragment.word_bits // fragment.place.width
    held = {}
    for lane, (places, groups) in enumerate(
        zip(fragment.coords.tolist(), fragment.group.tolist(), strict=True)
    ):
        for element, ((row, col), group) in enumerate(zip(places, groups, strict=True)):
            register, part = divmod(element, per_word)
            low = part * fragment.place.width + fragment.place.shift
            spot = (lane, register, low + fragment.place.code_bits - 1, low)
            held.setdefault((group, row, col), []).append(spot)
    panels = list(drawn_panels(text))
    assert len(panels) == fragment.groups
    assert sum(len(cells) for cells, _ in panels) == len(held)
    for group, (cells, labels) in enumerate(panels):
        for (row, col), title in cells.items():
            lane, _, high, low = held[group, row, col][0]
            words = " and ".join(str(x[1]) for x in held[group, row, col])
            bits = f"{high}:{low}" if high > low else str(low)
            where = f"{fragment.operand}[{row}][{col}]: lane {lane}, register {words}, bits {bits}"
            assert title.endswith(where), (title, where)
        check_labels(group, labels, held)


def check_labels(group, labels, held):
    named = set()
    for row, col, label, second, fill in labels:
        lane, register, high, low = held[group, row, col][0]
        right = {str(lane), f"{lane}:{register}"}
        if second:
            right = {f"{high}:{low}", str(high) if high == low else ""}
        assert label in right, (group, row, col, label)
        assert fill == colour(lane)
        named |= {lane} if not second else set()
    assert not labels or named == {spots[0][0] for at, spots in held.items() if at[0] == group}


@pytest.mark.parametrize(("opcode", "operands"), SAMPLE)
def test_svg_shows_the_fragment(opcode, operands):
    ins = Instruction.parse(opcode)
    for operand in operands:
        fragment = ins.fragment(operand)
        check_fragment(fragment_svg(fragment, opcode), fragment)


@pytest.mark.slow
def test_svg_shows_every_fragment_of_the_tables():
    seen = set()
    for ins in instructions():
        for operand in ins.operands:
            try:
                fragment = ins.fragment(operand)
            except Exception:
                continue
            key = (operand, fragment.place, fragment.lane_map, fragment.word_bits, type(fragment))
            if key not in seen:
                seen.add(key)
                check_fragment(fragment_svg(fragment), fragment)
    assert len(seen) > 150


@pytest.mark.parametrize(
    ("pattern", "count"),
    [(r">(\d+:\d+)<", 512), (r"<title>(.*?)</title>", 257), (r">(\d+:\d+)</text>", 512)],
)
def test_a_swap_of_two_labels_is_noticed(pattern, count):
    fragment = Instruction.parse(F16).fragment("a")
    text = fragment_svg(fragment)
    found = list(re.finditer(pattern, text))
    assert len(found) == count
    first = found[20]
    second = next(x for x in found[21:] if x[1] != first[1])
    swapped = "".join(
        [text[: first.start(1)], second[1], text[first.end(1) : second.start(1)], first[1],
         text[second.end(1) :]]
    )  # fmt: skip
    with pytest.raises(AssertionError):
        check_fragment(swapped, fragment)
    check_fragment(text, fragment)


def test_a_missing_cell_is_noticed():
    fragment = Instruction.parse(F16).fragment("d")
    with pytest.raises(AssertionError):
        check_fragment(without_a_cell(fragment_svg(fragment)), fragment)


def without_a_cell(text):
    """The SVG without its last cell that can be pointed at."""
    start = text.rindex('<path d="M', 0, text.rindex("<title>"))
    return text[:start] + text[text.index("</path>", start) + len("</path>") :]


def test_the_manuals_example_is_labelled():
    # PTX ISA 9.7.14.5.8, A: row = groupID for a0, a1 and groupID + 8 for a2, a3, ...
    ((cells, labels),) = drawn_panels(fragment_svg(Instruction.parse(F16).fragment("a")))
    assert cells[3, 2] == "a[3][2]: lane 13, register 0, bits 15:0"
    assert cells[11, 9] == "a[11][9]: lane 12, register 3, bits 31:16"
    assert {(text, small) for row, col, text, small, _ in labels if (row, col) == (11, 9)} == {
        ("12:3", False), ("31:16", True)
    }  # fmt: skip
    assert len(labels) == 2 * 256


def test_large_pictures_have_fewer_labels():
    ((cells, labels),) = drawn_panels(fragment_svg(Instruction.parse(WGMMA).fragment("d")))
    assert len(cells) == 64 * 64
    assert len(labels) == 64 * 32  # a lane holds two neighbours
    assert (0, 2, "1") in {x[:3] for x in labels} or (0, 3, "1") in {x[:3] for x in labels}


# --- colours --------------------------------------------------------------------------------------

#: Machado, Oliveira, Fernandes (2009), severity 1: protan, deutan, tritan
BLINDNESS = np.array(
    [
        np.eye(3),
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
        [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    ]
)
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(text):
    code = np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)


def distance(one, other):
    """The least CIELAB distance over the kinds of sight."""
    labs = []
    for text in (one, other):
        xyz = np.clip(BLINDNESS @ linear(text), 0, 1) @ XYZ.T / [0.9505, 1, 1.089]
        x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
        labs.append(np.stack([116 * y, 500 * (x - y), 200 * (y - z)], -1))
    return np.linalg.norm(labs[0] - labs[1], axis=-1).min()


def test_colours_are_told_apart_and_text_is_read_on_them():
    for lane in range(32):
        light = linear(colour(lane)) @ XYZ[1]
        assert (light + 0.05) / (linear("#111111") @ XYZ[1] + 0.05) > 6
        assert distance(colour(lane), colour((lane + 4) % 32)) > 4  # the groups next to each other
        if lane % 4 < 3:
            assert distance(colour(lane), colour(lane + 1)) > 5
    assert len({colour(lane) for lane in range(32)}) == 32 == 4 * len(HUES)
    assert colour(37) == colour(5)


def test_colours_of_shared_memory_are_not_those_of_lanes():
    units = [memory_colour(i) for i in range(16)]
    lanes = {colour(lane) for lane in range(32)}
    assert len(set(units)) == 16 == 2 * len(MEMORY) and not lanes & set(units)
    black = linear("#111111") @ XYZ[1]
    for i, own in enumerate(units):
        assert (linear(own) @ XYZ[1] + 0.05) / (black + 0.05) > 6
        if i >= 2:
            assert distance(own, units[i - 2]) > 3  # the unit beside it


def test_a_tile_has_a_legend_of_its_colours():
    grid = tile_grid("b", Descriptor.for_tile(8, 64, "f16").descriptor, TileShape(8, 64, 2), 16)
    words, colours = grid.legend
    assert "128-byte line" in words and [label for _, label in colours][:3] == ["0", "16", "32"]
    text = document(side_by_side([grid]), "")
    for owner, label in colours:
        assert f'fill="{memory_colour(owner)}"/>' in text and f">{label}</text>" in text
    page = Page(WGMMA).html()
    assert page.count('<div class="legend">') == 2 and page.count('class="legend"><') == 0


def test_a_descriptor_and_a_major_for_each_operand(capsys):
    word = int(Descriptor.for_tile(64, 16, "f16", swizzle_bytes=32).descriptor.encode())
    panels = Page(WGMMA, memory=SharedMemory(descriptor_b=word, major_a="mn")).data["panels"]
    (a,) = [x for x in panels if x["name"] == "a" and x["kind"] == "memory"]
    (b,) = [x for x in panels if x["name"] == "b"]
    assert a["places"] == Page(WGMMA, memory=SharedMemory(major="mn")).data["panels"][1]["places"]
    assert b["places"] == Page(WGMMA, memory=SharedMemory(32)).data["panels"][2]["places"]
    text = "\n".join(answer(capsys, "view", WGMMA, "--descriptor-b", hex(word), "--major-a", "mn"))
    assert "32-byte swizzle" in text and "MN-major, 128-byte swizzle" in text
    far = refusal(capsys, "view", WGMMA, "--descriptor-b", "0x7fffffffffffffff")
    assert "can be drawn" in far
    assert "whole number" in refusal(capsys, "view", WGMMA, "--descriptor-a", "x")
    assert "only wgmma" in refusal(capsys, "view", F16, "--descriptor-a", "0")


def test_four_tiles_stand_two_by_two(capsys):
    """As the tiles of an A of 16 rows: the second below the first."""
    x4 = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    text = "\n".join(answer(capsys, "view", x4, "--format", "svg"))
    corners = re.findall(r'<g transform="translate\((\d+),(\d+)\)"><g class="axis"', text)
    places = [tuple(map(int, x)) for x in corners]
    assert len(places) == 8
    first, below, beside, last = (places[i] for i in (0, 2, 4, 6))
    assert first[0] == below[0] < beside[0] == last[0]
    assert first[1] == beside[1] < below[1] == last[1]
    assert '<main class="several tiles">' in Page(x4).html()
    assert distance("#e69f00", "#e69f00") == 0


def test_boxes_cover_every_cell_once():
    keys = np.array([[1, 1, 2], [1, 1, 2], [3, 2, 2]])
    assert list(boxes(keys)) == [(0, 0, 2, 2), (0, 2, 3, 1), (2, 0, 1, 1), (2, 1, 1, 1)]


# --- shared memory --------------------------------------------------------------------------------


def tile_titles(swizzle, *, transposed=False, start=0):
    descriptor = Descriptor.for_tile(
        64, 64, "f16", swizzle_bytes=swizzle, start_address=start
    ).descriptor
    grid = tile_grid("b", descriptor, TileShape.of(64, 64, "f16"), 16, transposed)
    ((cells, labels),) = drawn_panels(document(side_by_side([grid]), "tile"))
    return cells, labels, grid


def test_a_swizzled_tile_names_its_bytes():
    cells, labels, grid = tile_titles(128, start=2048)
    for (row, col), title in cells.items():
        byte = 2048 + row * 128 + (col // 8 ^ row % 8) * 16 + col % 8 * 2
        bank = byte // 4 % 32
        assert title == f"b[{row}][{col}]: bytes {byte}-{byte + 1} ({byte:#x}), bank {bank}"
    assert {(row, col // 8): text for row, col, text, *_ in labels} == {
        (row, unit): str(2048 + row * 128 + (unit ^ row % 8) * 16)
        for row in range(64) for unit in range(8)
    }  # fmt: skip
    assert len(grid.blocks) == 64 and grid.blocks[1] == (0, 8, 8, 8)


def test_a_plain_tile_keeps_core_matrices_together():
    cells, _, _ = tile_titles(0, transposed=True)
    for (k, row), title in cells.items():
        byte = k // 8 * 1024 + row // 8 * 128 + row % 8 * 16 + k % 8 * 2
        assert title.startswith(f"b[{k}][{row}]: bytes {byte}-")


# --- the command ----------------------------------------------------------------------------------


def test_view_takes_widths_and_addresses_as_descriptor_does(capsys):
    plain = answer(capsys, "view", WGMMA, "--swizzle", "64", "--start-address", "1024")
    assert answer(capsys, "view", WGMMA, "--swizzle", "64B", "--start-address", "0x400") == plain
    none = answer(capsys, "view", WGMMA, "--swizzle", "none")
    assert none == answer(capsys, "view", WGMMA, "--swizzle", "0") != plain


def test_view_writes_a_page(capsys, tmp_path):
    file = tmp_path / "page.html"
    (line,) = answer(capsys, "view", F16, "-o", file)
    assert line.startswith(f"wrote {file}: {F16}, ")
    assert file.read_text("utf-8") == Page(F16).html()
    assert answer(capsys, "view", F16) == file.read_text("utf-8").splitlines()


def test_view_draws_by_the_suffix_or_the_format(capsys, tmp_path):
    file = tmp_path / "a.svg"
    data = answer(capsys, "view", F16, "--operand", "a", "-o", file, "--json")
    assert data == {"opcode": F16, "operand": "a", "format": "svg", "output": str(file)}
    check_fragment(file.read_text("utf-8"), Instruction.parse(F16).fragment("a"))
    data = answer(capsys, "view", F16, "--operand", "c", "--format", "svg", "--json")
    ((cells, _),) = drawn_panels(data["document"])
    assert cells[8, 1] == "d[8][1]: lane 0, register 3, bits 31:0"


def test_still_product_has_b_above_d_and_a_left_of_it(capsys):
    text = "\n".join(answer(capsys, "view", F16, "--format", "svg"))
    panels = list(drawn_panels(text))
    assert [cells[0, 0][0] for cells, _ in panels] == ["a", "b", "d"]
    corners = re.findall(r'translate\((\d+,\d+)\)"><g class="axis"', text)
    a, b, d = (numbers(x) for x in corners)
    assert a[1] == d[1] > b[1] and b[0] == d[0] > a[0]


def test_view_of_a_tile(capsys):
    options = ("--swizzle", 32, "--start-address", 256, "--major", "mn", "--operand", "b")
    data = answer(capsys, "view", WGMMA, *options, "--format", "svg", "--json")
    ((cells, _),) = drawn_panels(data["document"])
    assert "MN-major, 32-byte swizzle" in data["document"]
    assert cells[0, 1] == "b[0][1]: bytes 258-259 (0x102), bank 0"


def test_view_of_a_step_along_k(capsys):
    # columns 16 to 31 of a tile of 64 columns: unit 2 + k / 8 of row n is moved by n mod 8
    options = ("--start-address", 1024 + 32, "--operand", "b", "--format", "svg", "--json")
    ((cells, _),) = drawn_panels(answer(capsys, "view", WGMMA, *options)["document"])
    for (k, n), title in cells.items():
        byte = 1024 + n * 128 + (2 + k // 8 ^ n % 8) * 16 + k % 8 * 2
        assert title.startswith(f"b[{k}][{n}]: bytes {byte}-")


def test_view_of_one_target(capsys):
    text = "\n".join(answer(capsys, "view", F16, "--target", "A100"))
    assert "sm_80: modelled" in text and "sm_90: " not in text and "sm_90, " not in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([F16, "--operand", "x"], "an operand to draw is a, b, d, c; got 'x'"),
        ([F16, "--operand", "e"], "got 'e'"),
        ([F16, "--target", "sm_75"], "not available on sm_75"),
        ([F16, "--swizzle", "64"], "--swizzle: only wgmma reads tiles"),
        ([WGMMA, "--swizzle", "48"], "--swizzle is none, 32B, 64B, 128B, in bytes"),
        ([WGMMA, "--start-address", "8"], "multiple of 16"),
        ([WGMMA, "--start-address", "top"], "--start-address is a whole number; got 'top'"),
        (["wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8", "--major", "mn"], "only 16-bit types"),
        ([F16, "-o", "/nowhere/at/all.html"], "cannot write '/nowhere/at/all.html': No such file"),
        ([F16, "-o", "/", "--format", "svg"], "cannot write '/'"),
        ([F16, "-o", "page.png"], "'page.png' is neither .html nor .svg"),
        ([WGMMA, "--start-address", "112"], "start_address 112 is no multiple of 128"),
        (["cvt.rn.f16x2.f32"], "there is nothing to draw"),
        (["mma.sync.m16"], "error: "),
    ],
)  # fmt: skip
def test_view_refuses(capsys, argv, message):
    assert message in refusal(capsys, "view", *argv)


# --- several warps side by side -------------------------------------------------------------------


def test_warps_side_by_side():
    """Lane 5 of warp i + 2 * j holds of D what lane 5 holds, 16 * i rows and 8 * j columns on; of A
    what it holds 16 * i rows on, whatever j; of B what it holds 8 * j columns on."""
    ins = Instruction.parse(F16)
    page = Page(ins, warps=(2, 3))
    panels = {x["name"]: x for x in page.data["panels"]}
    assert {name: (x["rows"], x["cols"]) for name, x in panels.items()} == {
        "a": (32, 16), "b": (16, 24), "d": (32, 24),
    }  # fmt: skip
    assert page.data["lanes"] == 192 and page.title == f"{F16}, 2 x 3 warps"
    for name, (down, across) in {"a": (16, 0), "b": (0, 8), "d": (16, 8)}.items():
        one, tiled = ins.fragment(name), TiledFragment.of(ins.fragment(name), (2, 3))
        for j in range(3):
            for i in range(2):
                warp = i + 2 * j
                part = tiled.coords[32 * warp : 32 * warp + 32]
                assert np.array_equal(part, one.coords + np.array([down * i, across * j]))
    hints = {x.grid.hint(17, 3) for x in page.sections()[0].panels if x.name == "a"}
    assert hints == {"a[17][3]: lanes 37 and 101 and 165, register 0, bits 31:16"}
    (d,) = [x for x in page.sections()[0].panels if x.name == "d"]
    assert set(d.grid.frames) == {(16 * i, 8 * j, 16, 8) for i in range(2) for j in range(3)}


def test_view_draws_warps(capsys):
    text = "\n".join(answer(capsys, "view", F16, "--warps", "2x2", "--format", "svg"))
    assert "2 x 2 warps" in text and ">127:0</text>" in text
    assert "two numbers" in refusal(capsys, "view", F16, "--warps", "2")
    assert "at most 32 warps" in refusal(capsys, "view", F16, "--warps", "8x8")
    assert "dense mma alone" in refusal(capsys, "view", WGMMA, "--warps", "2x1")
    sparse = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    assert "dense mma alone" in refusal(capsys, "view", sparse, "--warps", "2x1")
