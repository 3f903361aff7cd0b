"""Every answer of the tools is a `Report`: the same as text, as a page and as data."""

import json
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from emulator import Instruction, compare, explain, find_faults
from emulator.__main__ import COMMANDS, tool_of
from emulator.machine import report as machine
from emulator.report import Report
from emulator.testing import find_differences
from emulator.tools.descriptors.description import describe_descriptor
from emulator.tools.descriptors.difference import diff_descriptors
from emulator.tools.info import info_command
from emulator.tools.listing import list_command
from emulator.tools.lookup import element_command, lane_command, table_command
from emulator.tools.pictures.page import Page
from emulator.tools.report import Answer, Document, Section, Table

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
A, B = np.ones((16, 16), "f2"), np.ones((16, 8), "f2")
NOISE = np.random.default_rng(0).standard_normal((16, 8)).astype("f4")
WORD = 0x40000040_00010040

REPORTS = {
    "explain": lambda: explain(F16, A, B, row=1, col=2, target="sm_80"),
    "compare": lambda: compare(F16, A, B, targets=["sm_80", "H100"]),
    "fault": lambda: find_faults(F16, A, B, target="sm_80", d=np.full((16, 8), 16, "f4")),
    "wrong": lambda: find_faults(F16, A, B, target="sm_80", d=NOISE),
    "word": lambda: describe_descriptor(WORD),
    "word of an opcode": lambda: describe_descriptor(1, WGMMA),
    "difference": lambda: diff_descriptors(WORD, WGMMA),
    "view": lambda: Page(F16, "a"),
    "info": lambda: info_command(F16),
    "list": lambda: list_command("sm_70"),
    "lane": lambda: lane_command(F16, "a", 1, 2),
    "element": lambda: element_command(F16, "a", 1, 2),
    "table": lambda: table_command(F16, "b"),
    "difference of arrays": lambda: find_differences(A, np.eye(16, dtype="f2"), name="A <here>"),
    "no format": lambda: find_differences(np.uint32([1, 2]), np.uint32([1, 3])),
    "launch": lambda: machine.Report("scale", [], {"global_loads": 4096}, ["<b>1\n", "2\n"]),
    "an answer": lambda: Answer(["title <b>", "a <b>", ""], {"a": 1}, 1),
}


class Tags(HTMLParser):
    """Elements that are open, and all text."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, _):
        if tag not in ("meta", "input", "br", "rect", "path", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("rect", "path", "line"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def parsed(html):
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    return tags.text


@pytest.mark.parametrize("make", REPORTS.values(), ids=REPORTS)
def test_every_form_of_a_report(make):
    report = make()
    assert isinstance(report, Report)
    lines = list(report.lines())
    assert report.text() == str(report) == "\n".join(lines) and "\n" not in "".join(lines)
    json.dumps(report.data, allow_nan=False)
    page, shown = report.html(), report._repr_html_()
    assert page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>")
    assert report.title in unescape(page) and report.title in parsed(page)
    assert "<!DOCTYPE" not in shown.split("srcdoc=")[0]
    assert repr(report) == f"<{type(report).__name__}: {report.title}>"
    assert report.code in (0, 1)


@pytest.mark.parametrize("make", REPORTS.values(), ids=REPORTS)
def test_a_report_is_made_once(make):
    """Asking twice gives the same, and another one made alike is as it."""
    one, other = make(), make()
    assert one.text() == one.text() == other.text()
    assert one.data == other.data and one.html() == other.html()


def test_plain_lines_are_escaped():
    answer = REPORTS["an answer"]()
    assert "a &lt;b&gt;" in answer.html() and "<title>title &lt;b&gt;</title>" in answer.html()


def test_the_cut_bits_of_a_page_are_struck_out():
    table = Table(["", "bits"], [["<x>", "1.01|1"]])
    page = Document("T", [Section("S", ["words & more", table])], {}).html()
    assert '1.01<span class="cut" title="cut off">1</span>' in page
    assert "<p>words &amp; more</p>" in page and "<td>&lt;x&gt;</td>" in page


def test_what_differs_is_data():
    data = REPORTS["difference of arrays"]().data
    assert (data["name"], data["format"], data["count"]) == ("A <here>", "f16", 240)
    assert data["elements"] == 256 and len(data["first"]) == 8
    assert data["first"][0] == {
        "index": [0, 1], "place": "[0, 1]", "kind": "value", "actual": "0x3c00",
        "expected": "0x0000",
    }  # fmt: skip
    (one,) = REPORTS["no format"]().data["first"]
    assert (one["index"], one["actual"], one["expected"]) == ([1], "0x00000002", "0x00000003")


def test_what_a_launch_did_is_data():
    report = REPORTS["launch"]()
    assert report.text() == "scale: 4,096 global loads\n<b>1\n2"
    assert report.data == {
        "kernel": "scale", "findings": [], "counters": {"global_loads": 4096},
        "printed": ["<b>1\n", "2\n"],
    }  # fmt: skip


def test_what_is_wrong_exits_with_1():
    assert [REPORTS[x]().code for x in ("fault", "wrong", "word", "word of an opcode")] == [
        0, 1, 0, 1,
    ]  # fmt: skip


def test_a_page_speaks_as_info_does():
    """What is drawn cannot be read aloud; its facts can."""
    page = Page(Instruction.parse(F16))
    assert page.text() == Page(F16).text() == info_command(F16).text()
    assert page.html() == Page(F16).html() and page.data == Page(F16).data


def test_every_command_has_a_function_and_help():
    for name, (module, line) in COMMANDS.items():
        tool = tool_of(module)
        assert hasattr(tool, f"{name.upper()}_HELP")
        assert callable(getattr(tool, f"{name}_command"))
        assert line[0].isupper() and line.endswith(".")
