"""The page of a launch: what is recorded of it, and what it shows in a browser."""

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from test_browser import needs_browser, run_browser

from emulator import Descriptor, Module, OperandError, TensorMap, trace
from emulator.tools.guide import pages
from emulator.tools.launching import launch_command
from emulator.tools.tracing.recorder import packed

WGMMA = re.search(r'text = """(.*?)"""', pages()["tma"], re.DOTALL)[1]
RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((64, 64)).astype("f2"), RNG.standard_normal((8, 64)).astype("f2")


def traced(text=WGMMA, **options):
    d = np.zeros((64, 8), "f4")
    maps = [TensorMap.tiled(x, box=(64, len(x)), swizzle="128B") for x in (A, B)]
    word = int(Descriptor(0, stride_byte_offset=1024, swizzle_bytes=128).encode())
    found = trace(Module(text)["product"], 1, 128, [*maps, d, word, word], **options)
    return found, d


def test_words_of_lanes_are_packed():
    assert packed([5] * 32, 32) == "5" and packed([0, 4, 8], 32) == "0+4"
    assert packed([3, 2, 1], 32) == "3+ffffffff"
    assert packed([1, 2, 4], 32) == "=AQAAAAIAAAAEAAAA"
    assert packed([7], 64) == "7"


def test_what_is_recorded_of_a_tma_and_wgmma_kernel():
    found, d = traced(check=True)
    assert (d.view("u4") == traced()[1].view("u4")).all() and found.code == 0
    data = found.data
    statements, warps = data["statements"], data["warps"]
    assert [(x["block"], x["number"]) for x in warps] == [("(0, 0, 0)", i) for i in range(4)]
    # The barrier: one arrival; then bytes are expected, come, and phase 0 is over.
    (barrier,) = data["mbarriers"]
    assert barrier["name"] == "full"
    states = [tuple(x[1:]) for x in barrier["changes"]]
    assert states == [(0, 1, 0), (0, 0, 9216), (0, 0, 1024), (1, 1, 0)]
    # Warp 0 expects and copies; the others wait until it comes to bar.sync.
    texts = [[statements[pc]["text"] for pc in warp["pcs"]] for warp in warps]
    sync = texts[1].index("bar.sync 0;")
    assert "waits" in warps[1]["waits"][sync] or "arrive" in warps[1]["waits"][sync]
    behind = warps[0]["times"][texts[0].index("bar.sync 0;")] + 1
    assert warps[1]["times"][sync + 1] == behind
    # All four products are one group, which its wait ends.
    ((family, _, end, count),) = warps[0]["groups"]
    wait = next(i for i, x in enumerate(texts[0]) if x.startswith("wgmma.wait_group"))
    assert (family, end, count) == ("wgmma", warps[0]["times"][wait] + 1, 4)
    # The tiles of the last product, and its result.
    last = max(i for i, x in enumerate(texts[3]) if x.startswith("wgmma.mma_async"))
    tiles = {name: data["tiles"][i] for name, i in warps[3]["tiles"][last].items()}
    assert tiles["a"]["rows"][5][3] == f"{float(A[5, 51]):.4g}"
    assert tiles["b"]["rows"][3][2] == f"{float(B[2, 51]):.4g}"
    assert tiles["d"]["rows"][63][7] == f"{float(d[63, 7]):.4g}"
    # The box of B: row 1 has its units 0 and 1 exchanged by the swizzle of 128 bytes.
    copy = next(i for i, x in enumerate(texts[0]) if "[tile_b]" in x)
    (copied,) = [data["pictures"][i] for _, i in warps[0]["pictures"][copy]]
    assert "swizzle 128B" in copied and "<td class=hit>1:1</td><td class=hit>1:0</td>" in copied
    heat = data["files"]["ptx"]["heat"]
    line = next(y for x in statements if x["text"].startswith("wgmma.f") for _, y in x["lines"])
    assert heat[line] == 4


@pytest.mark.slow
def test_a_deadlock_and_findings_are_on_the_page():
    failed, d = traced(WGMMA.replace("9216", "9217"))
    assert failed.code == 1 and "deadlock" in str(failed) and not d.any()
    checked, _ = traced(WGMMA.replace("wgmma.wait_group.sync.aligned 0;", ""), check=True)
    assert checked.code == 1 and any(x["findings"] for x in checked.data["files"].values())
    short, _ = traced(limit=20)
    assert "the first 20 statements are recorded" in str(short)
    with pytest.raises(OperandError, match="limit="):
        traced(limit=0)


def test_the_command_writes_the_page(tmp_path):
    """B without the swizzle: eight rows of a tile lie in four banks."""
    page = tmp_path / "page.html"
    words = ["random:f2:32x64"] * 2 + ["zeros:f4:32x32", *map(str, (32, 64, 144, 32, 0, 32, 2))]
    cuda = Path(__file__).parents[1] / "cuda"
    launch_command(str(cuda / "gemm_mma.ptx"), block="128", arg=words, trace=str(page))
    text = page.read_text()
    data = json.loads(re.search(r'id="facts">(.*?)</script>', text, re.DOTALL)[1])
    assert "__global__ void product" in "".join(data["files"]["gemm_mma.cu"]["lines"])
    warp = data["warps"][0]
    loads = [i for i in warp["pictures"]
             if "ldmatrix" in data["statements"][warp["pcs"][int(i)]]["text"]]  # fmt: skip
    ((title, number),) = warp["pictures"][loads[0]]
    assert title == "shared memory from 0x0: 16 bytes a lane, lanes over banks"
    assert ">8–15<" in data["pictures"][number] and ">pass 2<" not in data["pictures"][number]
    # Accesses that meet alike share a picture.
    shown = [number for w in data["warps"] for x in w["pictures"].values() for _, number in x]
    assert (len(data["pictures"]), len(shown)) == (12, 48)


ACTIONS = """<script>
const seen = [], faults = [];
addEventListener("error", (event) => faults.push(event.message));
const press = (key) =>
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const look = () => seen.push({ text: $("moment").textContent, hash: location.hash,
  width: document.documentElement.scrollWidth, inner: innerWidth,
  here: (document.querySelector("tr.here") || { textContent: "" }).textContent });
for (const act of [ACTIONS]) { act(); look(); }
const pre = document.createElement("pre");
pre.id = "seen";
pre.textContent = JSON.stringify({ seen, faults });
document.body.append(pre);
</script></body>"""


def acted(tmp_path, page, *actions, fragment="", size=(1280, 900)):
    functions = ",".join(f"() => {{ {action} }}" for action in actions)
    file = tmp_path / "page.html"
    file.write_text(page.html().replace("</body>", ACTIONS.replace("ACTIONS", functions)), "utf-8")
    dom = run_browser(tmp_path, f"--window-size={size[0]},{size[1]}", "--dump-dom",
                      file.as_uri() + fragment)  # fmt: skip
    found = json.loads(unescape(re.search(r'<pre id="seen">(.*?)</pre>', dom)[1]))
    assert found["faults"] == []
    return found["seen"]


@needs_browser
@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [(1280, 900), (500, 900)])
def test_a_statement_is_chosen_by_hash_key_line_and_click(tmp_path, size):
    page, d = traced()
    data = page.data
    last = max(data["warps"][3]["tiles"])
    line = next(n for s in data["statements"] for _, n in s["lines"] if "and.b32 %r1" in s["text"])
    opened, right, up, by_line, clicked = acted(
        tmp_path, page, "", "press('ArrowRight')", "press('ArrowUp')", f"goLine({line})",
        "const box = $('canvas').getBoundingClientRect(); $('scroll').scrollLeft = 0; draw();"
        "$('canvas').dispatchEvent(new PointerEvent('click', { bubbles: true,"
        "clientX: box.left + LABEL + 2.5 * scale, clientY: box.top + TOP + ROW * 1.5 }))",
        fragment=f"#3.{last}", size=size,
    )  # fmt: skip
    assert opened["text"].startswith("block (0, 0, 0), warp 3") and "64 × 8 f32" in opened["text"]
    assert f"{float(d[63, 7]):.4g}" in opened["text"] and "wgmma.mma_async" in opened["here"]
    assert right["hash"] == f"#3.{last + 1}" and up["hash"].startswith("#2.")
    assert "and.b32 %r1, %t, 31;" in by_line["text"]
    lanes = by_line["text"].partition("%r1 .b32")[2]
    assert lanes.startswith("".join(str(i) for i in range(32)))
    assert clicked["hash"] == "#1.2"
    assert all(x["width"] <= x["inner"] for x in (opened, right, up, by_line, clicked))


@needs_browser
def test_bank_conflicts_are_marked(tmp_path):
    cuda, c = Path(__file__).parents[1] / "cuda", np.zeros((32, 32), "f4")
    a = RNG.standard_normal((32, 64)).astype("f2")
    page = trace(Module(cuda / "gemm_mma.ptx")["product"], 1, 128,
                 [a, a, c, 32, 64, 144, 32, 0, 32, 2])  # fmt: skip
    warp = page.data["warps"][0]
    loads = [i for i in warp["pictures"]
             if "ldmatrix" in page.data["statements"][warp["pcs"][i]]["text"]]  # fmt: skip
    of_a, of_b = acted(tmp_path, page, *(f"choose(0, {i})" for i in loads[:2]))
    assert "4 passes, 4 without conflicts" in of_a["text"]
    assert "32 passes, 4 without conflicts" in of_b["text"]
