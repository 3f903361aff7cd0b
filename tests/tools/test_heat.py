"""The map of two results: heights of differing bits, every element in its shade, large maps."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from emulator import compare
from emulator.tools.explanations.heat import bit_heights, heat_map

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
XML = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_heights(bits):
    fmt = np.dtype(f"u{bits // 8}")
    q = np.array([[0, 1, 2, 3, 4, 1 << bits - 1, (1 << bits) - 1]], np.uint64).astype(fmt)
    assert bit_heights(q, np.zeros_like(q)).tolist() == [[0, 1, 2, 2, 3, bits, bits]]
    assert bit_heights(q, q).tolist() == [[0] * 7]


def shades(text):
    """(row, column) -> fill of every element that differs."""
    out = {}
    root = ET.fromstring(text)
    for path in root.findall(f"{XML}path"):
        for x, y, size in re.findall(r"M(\d+) (\d+)h(\d+)", path.get("d")):
            out[(int(y) - 32) // int(size), (int(x) - 40) // int(size)] = path.get("fill")
    return out


def test_every_element_that_differs_is_drawn_in_the_shade_of_its_bits():
    heights = np.array([[0, 1, 2], [8, 0, 1]])
    found = shades(heat_map(heights, "t"))
    assert found.keys() == {(0, 1), (0, 2), (1, 0), (1, 2)}
    assert found[0, 1] == found[1, 2] and len(set(found.values())) == 3


def test_maps_without_differences_and_large_ones():
    assert shades(heat_map(np.zeros((4, 4), int), "<t>")) == {}
    heights = np.zeros((2000, 1500), int)
    heights[1999, 3] = 40
    text = heat_map(heights, "t")
    found = shades(text)
    assert list(found) == [(499, 0)] and len(text) < 20_000


def test_a_comparison_has_a_map_of_each_pair():
    a, b, c = np.zeros((16, 16), "f2"), np.zeros((16, 8), "f2"), np.ones((16, 8), "f4")
    a[9, :8], b[:8, 5] = 2.0**-13, 2.0**-12
    made = compare(F16, a, b, c, targets=["A100", "H100", "B200"])
    assert [title for title, _ in made.maps] == ["D of R1 and R2"]
    (heights,) = [x for _, x in made.maps]
    assert np.argwhere(heights).tolist() == [[9, 5]] and heights[9, 5] == 2
    page = made.html()
    (svg,) = re.findall(r'<svg .*?class="heat".*?</svg>', page)
    assert list(shades(svg)) == [(9, 5)]
    assert 'class="heat"' not in compare(F16, a, b, c, targets=["H100", "B200"]).html()
