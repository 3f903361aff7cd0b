"""``check``, `assert_clean`, the fixture `clean_launches`, and the page of findings."""

import json
from html import escape
from pathlib import Path

import numpy as np
import pytest
from plugin_runs import run_with_plugin

from emulator import EmulatorError, Module
from emulator.__main__ import main
from emulator.machine.checks.finding import Finding, Party
from emulator.machine.module import Kernel
from emulator.machine.report import Report
from emulator.machine.shared.place import Place
from emulator.testing import assert_clean
from emulator.tools.launching import check_command

pytest_plugins = ["pytester"]

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.file 1 "/nowhere/box.cu"
"""
RIGHT = """.visible .entry right(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    .loc 1 2 3
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4;
    .loc 1 3 3
    add.u64 %rd0, %rd0, %rd1; st.global.u32 [%rd0], %r0;
    ret;
}
"""
#: every thread draws a ticket and writes down which
ORDERED = """.visible .entry ordered(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4;
    atom.global.add.u32 %r1, [%rd0], 1; add.u64 %rd0, %rd0, %rd1; st.global.u32 [%rd0+4], %r1;
    ret;
}
"""
#: every thread writes its number to one place
RACY = """.visible .entry racy(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x;
    .loc 1 3 3
    st.global.u32 [%rd0], %r0;
    ret;
}
"""
TRAPS = ".visible .entry traps() {\n    .loc 1 3 1\n    trap;\n    ret;\n}\n"
SOURCE = "// box.cu\nint i = threadIdx.x;\nout[i] = <i>;\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("box.cu").write_text(SOURCE)
    for text in (RIGHT, ORDERED, RACY, TRAPS):
        Path(text.split()[2].partition("(")[0] + ".ptx").write_text(HEAD + text)
    return tmp_path


def finding(line=3, count=64):
    place = Place("right", 11, 31, "st.global.u32 [%rd0], %r0;", (f"box.cu:{line}", "box.cu:1"))
    other = Place("right", 9, 5, "ld.param.u64 %rd0, [out];")
    threads = tuple((i, 0, 0) for i in range(32))
    return Finding(
        "race", "out[5] is written by two threads", Party(place, (1, 0, 0), threads, "writes"),
        Party(other, (0, 0, 0), threads[:1], "reads"), "put a barrier between them", count,
    )  # fmt: skip


@pytest.fixture
def findings(monkeypatch):
    """Lets launches with checks find what the list holds."""
    held, launch = [], Kernel.launch

    def find(kernel, *args, check=False, **options):
        report = launch(kernel, *args, check=check, **options)
        report.findings += held if check else []
        return report

    monkeypatch.setattr(Kernel, "launch", find)
    return held


# --- the command ----------------------------------------------------------------------------------


def test_a_clean_kernel(folder, findings, capsys):
    words = "check right.ptx --block 64 --arg zeros:u4:64:y.npy"
    assert main(words.split()) == 0
    assert capsys.readouterr().out == "right on sm_80: no findings\n"
    assert (np.load("y.npy") == np.arange(64)).all()


def test_findings(folder, findings, capsys):
    findings.append(finding())
    words = "check right.ptx right --block 64 --arg zeros:u4:64"
    assert main(words.split()) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == [
        "right on sm_80: 1 finding", "race: out[5] is written by two threads (64 threads)"
    ]  # fmt: skip
    assert "  earlier:" in out and "  put a barrier between them" in out
    assert main([*words.split(), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["findings"][0]["source"] == ["box.cu:3", "box.cu:1"]
    assert data["findings"][0]["count"] == 64 and data["target"] == "sm_80"
    assert data["arguments"][0]["changed"] == "63 of 64"


def test_a_race_is_found(folder, capsys):
    assert main(["check", "racy.ptx", "--block", "64", "--arg", "zeros:u4:1"]) == 1
    out = capsys.readouterr().out
    assert "racy on sm_80: 1 finding\nrace: " in out and "(box.cu:3)" in out
    assert main(["check", "racy.ptx", "--block", "1", "--arg", "zeros:u4:1"]) == 0


def test_a_kernel_that_cannot_go_on(folder, findings, capsys):
    assert main(["check", "traps.ptx"]) == 1
    out = capsys.readouterr().out
    assert "traps on sm_80: 1 finding\ntrap: trap was executed" in out and "box.cu:3" in out
    assert main(["check", "traps.ptx", "--schedule-seeds", "2", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["kind"] == "trap"


def test_orders(folder, findings, capsys):
    words = "--block 64 --arg zeros:u4:65:y.npy --schedule-seeds 3"
    assert main(f"check ordered.ptx {words}".split()) == 1
    out = capsys.readouterr().out
    assert "ordered on sm_80: no findings\n" in out
    assert "out: 64 of 65 elements depend on the order (seeds 0, 1, 2)" in out
    assert (np.load("y.npy")[1:] == np.arange(64)).all()
    assert main(f"check right.ptx {words} --json".split()) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["orders"]["seeds"] == [0, 1, 2] and data["orders"]["arrays"] == []


def test_stop_at(folder, capsys):
    body = ".reg .f32 %f; mov.f32 %f, 0f00000000; rcp.approx.f32 %f, %f; ret;"
    Path("inverse.ptx").write_text(f"{HEAD}.visible .entry inverse() {{ {body} }}\n")
    assert main(["launch", "inverse.ptx", "--stop-at", "nan"]) == 0
    assert main(["launch", "inverse.ptx", "--stop-at", "inf"]) == 2
    assert "infinity: d is inf, made of a = 0.0" in capsys.readouterr().err
    assert main(["check", "inverse.ptx", "--stop-at", "any"]) == 1
    assert "1 finding\ninfinity: d is inf, made of a = 0.0" in capsys.readouterr().out


def test_the_schedule_seed_of_launch(folder, capsys):
    words = "launch ordered.ptx --block 64 --arg zeros:u4:65:y.npy"
    main(words.split())
    usual = np.load("y.npy")
    main([*words.split(), "--seed", "3"])
    assert (np.load("y.npy") == usual).all()
    main([*words.split(), "--schedule-seed", "3"])
    other = np.load("y.npy")
    assert (other != usual).any() and (np.sort(other) == np.sort(usual)).all()


@pytest.mark.parametrize(
    "words, said",
    [
        ("right.ptx --schedule-seeds -1", "--schedule-seeds is 0 or more; got -1"),
        ("right.ptx", "right takes 1 arguments"),
        ("right.ptx --arg zeros:u4:64 --html no/where.html", "cannot write 'no/where.html'"),
    ],
)
def test_mistakes_are_told(folder, findings, capsys, words, said):
    assert main(["check", *words.split()]) == 2
    assert said in capsys.readouterr().err


# --- the page -------------------------------------------------------------------------------------


def page_of(words, findings):
    check_command(html="page.html", arg=["zeros:u4:64"], block="64", **words)
    return Path("page.html").read_text()


def test_the_page_has_the_source_beside(folder, findings):
    findings.append(finding())
    page = page_of({"file": "right.ptx", "counters": True}, findings)
    # The folder of the PTX has a file with the name that .file gives.
    here = (
        f"<tr class=here><td class=number>3</td><td class=text>{escape('out[i] = <i>;')}</td></tr>"
    )
    assert here in page and "<h3>Counts by source line</h3>" in page
    # What it conflicts with has no source line: the PTX is shown.
    assert "PTX line 9<table>" in page and "put a barrier between them" in page
    assert "http" not in page.replace("http-equiv", "")


def test_two_accesses_in_one_line_show_it_once(folder, findings):
    both = finding()
    both.earlier = both.party
    findings.append(both)
    assert page_of({"file": "right.ptx"}, findings).count("<tr class=here>") == 1


def test_source_files_elsewhere_and_nowhere(folder, findings):
    findings.append(finding())
    Path("sub").mkdir()
    Path("box.cu").rename("sub/box.cu")
    page = page_of({"file": "right.ptx"}, findings)
    assert "out[i] = " not in page and "PTX line 11<table>" in page
    page = page_of({"file": "right.ptx", "source": "sub"}, findings)
    assert "out[i] = " in page


def test_a_line_past_the_end_of_a_file(folder, findings):
    findings.append(finding(line=99))
    assert "race" in page_of({"file": "right.ptx"}, findings)


def test_what_was_left_out_is_told():
    report = Report("k", [finding()], left_out=12)
    assert report.text().endswith("and 12 more, unlike these")
    assert "And 12 more" in report.html() and report.data["left_out"] == 12
    assert report.code == 1 and Report("k").code == 0


# --- tests ----------------------------------------------------------------------------------------


def test_assert_clean(findings):
    kernel, out = Module(HEAD + RIGHT)["right"], np.zeros(64, "u4")
    report = assert_clean(kernel, grid=1, block=64, args={"out": out}, counters=True)
    assert (out == np.arange(64)).all() and report.counters["sectors"] == 8
    findings.append(finding())
    with pytest.raises(AssertionError, match=r"right is not clean:\nrace: out\[5\] is written"):
        assert_clean(kernel, 1, 64, [out])
    findings.clear()
    racy = Module(HEAD + RACY)["racy"]
    assert_clean(racy, 1, 1, [out])
    with pytest.raises(AssertionError, match=r"(?s)racy is not clean:\nrace: .*box.cu:3"):
        assert_clean(racy, 1, 64, [out])
    with pytest.raises(AssertionError, match=r"(?s)trap: trap was executed\n.*at traps, PTX line"):
        assert_clean(Module(HEAD + TRAPS)["traps"], 1, 1)
    for wrong in (None, "right", kernel.module):
        with pytest.raises(EmulatorError, match=r"a kernel is module\['name'\]"):
            assert_clean(wrong, 1, 1)


def test_the_fixture_checks_every_launch(pytester, monkeypatch):
    pytester.makepyfile(f"""
        import numpy as np
        from emulator import Module

        RACY = Module({HEAD + RACY!r})["racy"]

        def test_checked(clean_launches):
            RACY.launch(1, 1, [np.zeros(1, "u4")])
            RACY.launch(1, 64, [np.zeros(1, "u4")])

        def test_off(clean_launches):
            RACY.launch(1, 64, [np.zeros(1, "u4")], check=False)

        def test_without():
            RACY.launch(1, 64, [np.zeros(1, "u4")])
    """)
    result = run_with_plugin(pytester, monkeypatch)
    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(["*AssertionError: racy is not clean:", "*race: *"])
