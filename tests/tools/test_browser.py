"""The pages of `view`: what they are made of, and what they do in a real browser.

The browser runs a page once, with a script at its end that acts as a person would, with the same
events, and writes down what it then sees.
"""

import json
import re
import shutil
import struct
import subprocess
import zlib
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from emulator import Instruction
from emulator.isa.catalogue import instructions
from emulator.layout.grids import fragment_svg
from emulator.layout.picture import colour
from emulator.tools.pictures.page import Page
from emulator.tools.pictures.panels import SharedMemory

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"

# --- pages ----------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Counts tags, and fails where one closes that is not open."""

    VOID = ("meta", "input", "path", "rect", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.count, self.attributes = [], {}, []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def page_facts(text):
    return json.loads(re.search(r'id="facts">(.*?)</script>', text)[1])


def check_page(ins):
    text = Page(ins).html()
    assert len(text.encode()) < 1 << 20
    tags = Tags(text)
    assert tags.count["svg"] == len(page_facts(text)["panels"]) == text.count("<figure")
    assert not [(k, v) for k, v in tags.attributes if k in ("src", "href", "xlink:href", "srcset")]
    assert "url(" not in text and "@import" not in text
    assert set(re.findall(r"\w+://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}  # a name
    return page_facts(text)


@pytest.mark.parametrize(
    ("opcode", "panels"),
    [
        (F16, ["a", "b", "d"]),
        ("mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32", ["a", "b", "d"]),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16", ["a", "b", "d", "c"] * 4),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", ["e", "e", "a", "b", "d"]),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16", ["d", "p"] * 2),
        ("movmatrix.sync.aligned.m8n8.trans.b16", ["d", "a"]),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", ["r"]),
        ("wgmma.mma_async.sp.sync.aligned.m64n64k64.s32.s8.s8", ["e", "a", "a", "b", "d"]),
    ],
)
def test_page_shows_every_operand(opcode, panels):
    facts = check_page(Instruction.parse(opcode))
    assert [x["name"] for x in facts["panels"]] == panels


@pytest.mark.slow
def test_every_form_has_a_page():
    checked = set()
    for ins in instructions():
        # Types of one width, and the N of wgmma between its ends, have pages alike.
        form = getattr(ins, "form", None)
        if ins.family == "cvt" or (getattr(form, "n", ()) and ins.n not in (form.n[0], form.n[-1])):
            continue
        key = (form, ins.lanes, getattr(ins, "n", 0), *(ins.operands))
        if key not in checked:
            checked.add(key)
            check_page(ins)
    assert len(checked) > 100


def test_rows_and_columns_of_a_product_are_in_line():
    facts = check_page(Instruction.parse(WGMMA))
    sizes = {(x["name"], x["kind"]): (x["w"], x["h"]) for x in facts["panels"]}
    a, a_memory, b, d = (sizes[x] for x in (("a", "registers"), ("a", "memory"), ("b", "memory"),
                                            ("d", "registers")))  # fmt: skip
    assert b[0] == d[0] and a[1] == a_memory[1] == d[1]


def test_notebooks_show_fragments_and_pages():
    fragment = Instruction.parse(F16).fragment("b")
    assert fragment._repr_svg_() == fragment_svg(fragment)
    assert fragment._repr_html_() == fragment._repr_svg_()
    frame = Page(Instruction.parse(WGMMA), memory=SharedMemory(64))._repr_html_()
    tags = Tags(frame)
    assert tags.count == {"iframe": 1}
    assert "64-byte swizzle" in dict(tags.attributes)["srcdoc"]


# --- in a browser ---------------------------------------------------------------------------------

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
needs_browser = pytest.mark.skipif(
    not BROWSER, reason="no chromium found (Debian: apt-get install chromium); .ci/run installs it"
)

#: what a person does: each function gives back nothing; `look` is called after each of them
ACTIONS = """<script>
const seen = [], faults = [];
addEventListener("error", (event) => faults.push(event.message));
const by = (name) => facts.panels.find((x) => x.name === name && !x.figure.hidden);
const event = (at, kind, more) =>
  at.dispatchEvent(new PointerEvent(kind, { bubbles: true, ...more }));
function over(name, row, col, kind = "pointermove") {
  const panel = by(name), box = panel.svg.getBoundingClientRect();
  const scale = box.width / panel.svg.viewBox.baseVal.width;  // the page is fitted to the window
  event(panel.svg, kind, { clientX: box.left + (facts.left + (col + 0.5) * panel.w) * scale,
                           clientY: box.top + (facts.above + (row + 0.5) * panel.h) * scale });
}
const press = (at, key) => at.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
function type(text) {
  search.value = text;
  document.querySelector("form").requestSubmit();
}
function lit(panel) {
  const path = panel.svg.querySelector(".veil");
  if (!path) return null;
  const boxes = path.getAttribute("d").split("z").slice(1, -1);
  const numbers = boxes.map((x) => x.match(/\\d+/g).map(Number));
  return numbers.map(([x, y, w, h]) => [(y - facts.above) / panel.h, (x - facts.left) / panel.w,
                                      h / panel.h, w / panel.w].join(" "));
}
const look = () => seen.push({
  readout: readout.textContent, hash: decodeURIComponent(location.hash),
  lanes: buttons.flatMap((x, i) => (x.getAttribute("aria-pressed") === "true" ? [i] : [])),
  lit: Object.fromEntries(facts.panels.map((x) => [x.name + (x.several ? x.group : "") +
    (x.kind === "memory" ? " in memory" : ""), lit(x)])),
  shown: facts.panels.filter((x) => !x.figure.hidden).map((x) => x.name + x.group),
});
for (const act of [ACTIONS]) { act(); look(); }
const pre = document.createElement("pre");
pre.id = "seen";
pre.textContent = JSON.stringify({ seen, faults });
document.body.append(pre);
</script></body>"""


def run_browser(tmp_path, *arguments):
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--hide-scrollbars", "--window-size=1000,1050", f"--user-data-dir={tmp_path}/profile",
        *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    return done.stdout.decode()


def act(tmp_path, page, *actions, fragment="", size=(1000, 1050)):
    """What is seen after each action, a piece of JavaScript, on an open page."""
    functions = ",".join(f"() => {{ {action} }}" for action in actions)
    text = page.html().replace("</body>", ACTIONS.replace("ACTIONS", functions))
    file = tmp_path / "page.html"
    file.write_text(text, "utf-8")
    window = f"--window-size={size[0]},{size[1]}"
    dom = run_browser(tmp_path, window, "--dump-dom", file.as_uri() + fragment)
    found = json.loads(unescape(re.search(r'<pre id="seen">(.*?)</pre>', dom)[1]))
    assert found["faults"] == []
    return found["seen"]


LABELS = (
    "const hidden = (p) => p.labels.filter((x) => x.text.style.visibility).length;"
    "const own = (p) => [...p.svg.querySelectorAll('.own')].map((x) => x.textContent).join(' ');"
    "for (const p of facts.panels) p.svg.dataset.check = hidden(p) + ' hidden: ' + own(p);"
    "whole(facts.panels.map((p) => p.svg.dataset.check));"
)


@needs_browser
def test_no_label_is_cut_by_a_selection(tmp_path):
    """Labels of 16 bytes, and of pairs of columns, give way to those of the lit cells."""
    column, row, let_go = act(
        tmp_path,
        Page(WGMMA.replace("n64", "n32"), memory=SharedMemory(64, "mn")),
        f"go('b[3][2]'); {LABELS}", f"go('d[3][2]'); {LABELS}", f"keep(null); {LABELS}",
    )  # fmt: skip
    a, _, b, d = column["readout"].splitlines()
    # b[3][2], MN-major: its own two bytes, 212 and 213, not those of its unit, 208.
    assert b == "1 hidden: 212"
    # Lane 1 holds rows 0 and 8 of the column; its register would not fit in every cell.
    assert a.startswith("64 hidden: 1 1 5 5 9 9") and d.startswith("64 hidden: 1 1 5 5 9 9")
    a, _, b, d = row["readout"].splitlines()
    # Four digits have no room in a cell of b: no label is better than a part of one.
    assert (a, d, b) == ("0 hidden: ", "1 hidden: 13", "16 hidden: ")
    assert all(line == "0 hidden: " for line in let_go["readout"].splitlines())


SIZES = (
    "const pictures = [...document.querySelectorAll('.product svg')];"
    "const ends = pictures.map((x) => x.getBoundingClientRect());"
    "whole([JSON.stringify([innerWidth, innerHeight, Math.max(...ends.map((x) => x.right)),"
    " Math.max(...ends.map((x) => x.bottom)), document.documentElement.scrollWidth])]);"
)


@needs_browser
@pytest.mark.parametrize(("width", "height"), [(1400, 1000), (500, 900)])
def test_the_page_fits_the_window(tmp_path, width, height):
    (seen,) = act(tmp_path, Page(F16), SIZES, size=(width, height))
    inner_width, inner_height, right, bottom, scrolled = json.loads(seen["readout"])
    assert right <= inner_width and scrolled <= inner_width
    if width > 700:  # in a narrow window the operands stand below each other
        assert bottom <= inner_height


@needs_browser
def test_pointing_lights_what_belongs_together(tmp_path):
    opened, pointed, left, clicked, lane, escaped, arrow, in_a = act(
        tmp_path,
        Page(Instruction.parse(F16)),
        "", "over('d', 3, 2)", "event(by('d').svg, 'pointerleave')", "over('d', 9, 0, 'click')",
        "event(buttons[5], 'pointerenter')", "press(document, 'Escape')",
        "over('b', 4, 7, 'click'); press(by('b').svg, 'ArrowDown')", "over('a', 15, 15)",
        fragment="#lane=7",
    )  # fmt: skip
    # B by the manual: row = 2 * threadID + (i & 1) + 8 * (i >= 2), col = groupID
    assert opened["readout"] == (
        "lane 7\na 7:0 = a[1][6-7], a 7:1 = a[9][6-7], a 7:2 = a[1][14-15], a 7:3 = a[9][14-15]\n"
        "b 7:0 = b[6-7][1], b 7:1 = b[14-15][1]\n"
        "d 7:0 = d[1][6], d 7:1 = d[1][7], d 7:2 = d[9][6], d 7:3 = d[9][7]"
    )
    assert opened["lanes"] == [7] and len(opened["lit"]["a"]) == 8
    assert pointed["readout"] == (
        "d[3][2]: lane 13, register 0, bits 31:0\na[3][0-15]: lanes 12-15\nb[0-15][2]: lanes 8-11"
    )
    assert pointed["lit"] == {"a": ["3 0 1 16"], "b": ["0 2 16 1"], "d": ["3 2 1 1"]}
    assert (pointed["lanes"], pointed["hash"]) == ([13], "#lane=7")
    assert left == opened
    assert clicked["hash"] == "#d[9][0]" and clicked["lit"]["a"] == ["9 0 1 16"]
    assert lane["readout"].startswith("lane 5\n") and lane["hash"] == "#d[9][0]"
    assert escaped["hash"] == "" and escaped["lit"] == {"a": None, "b": None, "d": None}
    assert arrow["readout"].startswith("b[5][7]: lane 30, register 0, bits 31:16\na[0-15][5]: ")
    assert in_a["lit"] == {"a": ["15 15 1 1"], "b": ["15 0 1 8"], "d": ["15 0 1 8"]}


@needs_browser
@pytest.mark.slow
def test_searching(tmp_path):
    texts = ("a[3][2]", "lane 5", "5:1", " C 15 7 ", "e 1 3 2", "e[3][2]", "x[1][2]", "lane 32",
             "a[3]", "a[16][0]", "5:9", "byte 3", "")  # fmt: skip
    seen = act(tmp_path, Page(Instruction.parse(SPARSE)), *(f"type({text!r})" for text in texts))
    found = dict(zip(texts, seen, strict=True))
    # stored column 2 is of chunk 1: columns 4-7 of the full A meet rows 4-7 of B
    assert found["a[3][2]"]["readout"] == (
        "a[3][2]: lane 13, register 0, bits 15:0\ne[0][3][1]: lane 12, register 0, bits 7:4\n"
        "b[4-7][0-7]: lanes 2-3, 6-7, 10-11, 14-15, 18-19, 22-23, 26-27, 30-31\n"
        "d[3][0-7]: lanes 12-15"
    )
    assert found["lane 5"]["hash"] == "#lane=5" and len(found["lane 5"]["lit"]["e0"]) == 8
    assert found["5:1"]["readout"].startswith("lane 5, register 1\na 5:1 = a[9][2-3]\nb 5:1 = ")
    assert found[" C 15 7 "]["hash"] == "#d[15][7]"
    assert found["e 1 3 2"]["hash"] == "#e[1][3][2]"
    assert found["e 1 3 2"]["shown"] == ["e1", "a0", "b0", "d0"]
    assert found["e[3][2]"]["hash"] == "#e[1][3][2]"  # of the one that is shown
    for text, message in {
        "x[1][2]": "there is no x: operands are e, a, b, d",
        "lane 32": "there is no lane 32: lanes are 0-31",
        "a[3]": '"a[3]" is neither an element such as a[3][2] nor lane 5, 5:0 (lane:register)',
        "a[16][0]": "a is 16 × 16: rows 0-15, columns 0-15",
        "5:9": "there is no register 9: registers are 0-3",
        "byte 3": "nothing here is in shared memory",
    }.items():
        assert found[text]["readout"] == message
        assert found[text]["hash"] == "" and set(found[text]["lit"].values()) == {None}
    assert "Point at an element" in found[""]["readout"]


@needs_browser
@pytest.mark.slow
def test_shared_memory_and_the_choice_of_a(tmp_path):
    byte, element, other, in_b, fitted = act(
        tmp_path,
        Page(Instruction.parse(WGMMA), memory=SharedMemory(128, "k", 1024)),
        "type('byte 3666')", "over('d', 20, 33)",
        "const x = document.querySelector('select'); x.selectedIndex = 1;"
        "x.dispatchEvent(new Event('change')); over('a', 20, 9)",
        "over('b', 9, 20)", "document.getElementById('fit').click(); type('0x400')",
    )  # fmt: skip
    # row r of the tile starts at 1024 + 128 * r; its unit u of 16 bytes is moved to u ^ r % 8
    assert byte["readout"] == "byte 3666 of shared memory\nbyte 3666 = b[9][20]"
    assert byte["lit"]["b in memory"] == ["9 20 1 1"]
    assert "b[0-15][33]: 16 bytes each at 5248, 5264" in element["readout"]
    assert element["lit"]["a in memory"] == ["20 0 1 16"]
    assert other["readout"].startswith("a[20][9]: bytes 3666-3667 (0xe52), bank 20\n")
    assert "a[20][9]: lane 48, register 2, bits 31:16" in other["readout"]
    assert in_b["readout"].startswith("b[9][20]: bytes 3666-3667 (0xe52), bank 20\na[0-63][9]: ")
    units = ", ".join(str(1024 + 128 * row + (1 ^ row % 8) * 16) for row in range(8))
    assert f"a[0-63][9]: 16 bytes each at {units} and 56 more places\n" in in_b["readout"]
    assert fitted["lit"]["b in memory"] == ["0 0 1 1"]


def pixels(file):
    """An 8-bit RGB or RGBA PNG as ``(height, width, channels)``."""
    data, place, parts = file.read_bytes(), 8, b""
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        body = data[place + 8 : place + 8 + size]
        if kind == b"IHDR":
            width, height, depth, form = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and form in (2, 6)
        parts += body if kind == b"IDAT" else b""
        place += size + 12
    channels = 3 if form == 2 else 4
    rows = np.frombuffer(zlib.decompress(parts), np.uint8).reshape(height, 1 + width * channels)
    out = np.zeros((height + 1, width + 1, channels), np.int64)  # a border of zeros above and left
    for y, (kind, line) in enumerate(zip(rows[:, 0], rows[:, 1:], strict=True), 1):
        given = line.reshape(width, channels)
        if kind in (0, 2):
            out[y, 1:] = given + (out[y - 1, 1:] if kind else 0)
        elif kind == 1:
            out[y, 1:] = np.cumsum(given, 0, dtype=np.int64)
        else:
            for x in range(1, width + 1):
                left, up, corner = out[y, x - 1], out[y - 1, x], out[y - 1, x - 1]
                if kind == 3:
                    guess = (left + up) // 2
                else:
                    far = np.abs([up - corner, left - corner, left + up - 2 * corner])
                    guess = np.choose(far.argmin(0), [left, up, corner])
                out[y, x] = (given[x - 1] + guess) % 256
        out[y] %= 256
    return out[1:, 1:]


@needs_browser
@pytest.mark.slow
def test_a_screenshot_has_the_colours_of_the_lanes(tmp_path):
    page, shot = tmp_path / "page.html", tmp_path / "shot.png"
    page.write_text(Page(F16).html(), "utf-8")
    colours = {}
    for fragment in ("", "#d[3][2]"):
        run_browser(tmp_path, f"--screenshot={shot}", page.as_uri() + fragment)
        image = pixels(shot)[160:, :, :3]  # below the lanes
        codes = image[..., 0] << 16 | image[..., 1] << 8 | image[..., 2]
        colours[fragment] = np.unique(codes, return_counts=True)
    area = {
        at: dict(zip(*(x.tolist() for x in found), strict=True)) for at, found in colours.items()
    }
    for lane in range(32):
        assert area[""].get(int(colour(lane)[1:], 16), 0) > 1000, lane
    lit = {lane for lane in range(32) if area["#d[3][2]"].get(int(colour(lane)[1:], 16), 0) > 300}
    assert lit == {8, 9, 10, 11, 12, 13, 14, 15}
