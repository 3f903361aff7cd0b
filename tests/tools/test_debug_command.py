"""The command ``debug``: gdb's commands, from options, files, pipes and a terminal."""

import json
import os
import pty
import select
import sys
import time

import numpy as np
import pytest
from debugged import BRANCH
from paths import ROOT

from emulator.__main__ import main

LINE = ["debug", "kernel.ptx", "--block", "64", "--arg", "zeros:u4:64:out.npy", "--arg", "7"]


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """What a session shows for some commands, by command, and its exit code."""
    (tmp_path / "kernel.ptx").write_text(BRANCH)
    monkeypatch.chdir(tmp_path)

    def run(*commands, line=LINE):
        given = [word for command in commands for word in ("-e", command)]
        code = main([*line, *given, "--batch", "--json"])
        out, err = capsys.readouterr()
        assert not err
        return [x["output"] for x in json.loads(out)], code

    return run


def test_a_session(said):
    shown, code = said(
        "b st.global if %r1 == 40 in any lane", "c", "p %r2", "p/x %r2", "rsi", "si",
        "wat a[3]", "rc", "x/4xw a", "cont", "i b", "delete 1", "dis 2", "c",
    )  # fmt: skip
    assert code == 0
    assert shown[0] == ["Breakpoint 1: st.global, 1 statement"]
    assert shown[1][1].startswith("block (0, 0, 0), warp 1, lanes 0-31 at ptx:21: st.global.u32")
    assert shown[2:4] == [["%r2 = 140"], ["%r2 = 0x8c"]]
    assert shown[4][0].endswith("ptx:20: bar.sync 0;")
    assert shown[7][0] == "watchpoint 2, a[3]: 0x00000000 -> 0x00000009"
    assert shown[8][0].endswith("<a+0>:  0x0  0x0  0x0  0x0")
    assert shown[9][1].endswith("ret;")
    assert [x.split()[0] for x in shown[10]] == ["1", "2"]
    assert shown[-1][0].startswith("the launch has ended: go: 1 block, 64 threads")
    assert np.load("out.npy")[:3].tolist() == [0, 3, 6]


def test_watchpoints_of_reads(said):
    shown, _ = said("rwatch %r2", "awatch a[35] 8", "c", "c", "rc")
    assert shown[:2] == [["Read watchpoint 1: %r2"], ["Access watchpoint 2: a[35]"]]
    by = "by st.global.u32 in thread"
    assert shown[2][0] == f"watchpoint 1, %r2: read {by} (0, 0, 0) of block (0, 0, 0), now 0"
    written = f"watchpoint 2, a[35]: written {by} (35, 0, 0) of block (0, 0, 0), now "
    assert shown[3][0] == f"{written}0x0000008800000087"
    assert shown[4][0].startswith(written)


def test_a_launch_that_is_left_writes_nothing(said, tmp_path):
    said("c 2", "q")
    assert (tmp_path / "out.npy").exists()
    (tmp_path / "out.npy").unlink()
    said("until st.global", "quit", "c")
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("foo", "error: no command 'foo'"),
        ("re", "it may be reverse-continue"),
        ("break", "Breakpoint 1: ptx:8"),
        ("break 17 warp 1", "Breakpoint 1: ptx:18"),
        ("break st block (0,0,0) thread 40", "Breakpoint 1: st, 1 statement"),
        ("break if %r3 == 7 in all lanes", "Breakpoint 1: anywhere"),
        ("break 17 if", "error: an expression has 1"),
        ("tb bar", "Breakpoint 1: bar, 1 statement"),
        ("condition 3 %r1", "error: no breakpoint 3; there are none"),
        ("ignore 1", "error: ignore takes a breakpoint and a count"),
        ("catch nam", "error: catch takes nan, inf or any"),
        ("step 0", "error: a count is a number from 1 on"),
        ("goto 99999", "the launch has ended"),
        ("goto x", "error: a statement is a number"),
        ("info", "error: info takes args"),
        ("info lanes %r1", "block (0, 0, 0), warp 0"),
        ("info cuda warps", "block and warp"),
        ("info blocks", "(0, 0, 0)"),
        ("info mbarriers", "no mbarrier was initialised"),
        ("info pending", "nothing is under way"),
        ("info args", "uint32 64"),
        ("info printed", "nothing was printed"),
        ("info registers %r1 %p1", "%p1"),
        ("info registers all", "%rd3"),
        ("print %clock", "moves on when it is read"),
        ("lanes '%r1 + 1'", "%r1 + 1"),
        ("lanes 'x", "No closing quotation"),
        ("x/2fb a", "f shows floats of sizes"),
        ("x/99999999999g a", "1 … 65,536"),
        ("tile a 2x4 u32", "a, 2 × 4 u32"),
        ("tile a", "error: tile takes PLACE"),
        ("fragment a", "error: no matrix instruction"),
        ("bt", "#0"),
        ("list", "=> 8"),
        ("list 20", "20\t bar.sync 0;"),
        ("disassemble", "=> 8"),
        ("focus warp 1 lane 3", "block (0, 0, 0), warp 1, lane 3, thread (35, 0, 0)"),
        ("cuda thread (40,0,0)", "warp 1, lane 8"),
        ("thread 40", "warp 1, lane 8"),
        ("warp 1", "block (0, 0, 0), warp 1, lane 0, thread (32, 0, 0)"),
        ("info threads", "block (0, 0, 0), warp 0"),
        ("frame", "#0"),
        ("focus warp 9", "error: a block has 2 warps"),
        ("focus grid 1", "error: focus takes block"),
        ("help", "  tile …                             memory as a matrix: tile shared:0"),
        ("help rc", "goes back to the last breakpoint"),
        ("display %r1", "%r1 = 0"),
        ("barrier", "at a barrier"),
        ("finish", "error: finish leaves a called function"),
        ("9", "error: '9' is no command"),
    ],
)
def test_commands_are_answered(said, command, answer):
    (shown,), code = said(command)
    assert answer in "\n".join(shown) and code == 0


def test_every_command_has_help(said):
    (shown,), _ = said("help")
    assert len(shown) > 35 and all("  " in line.strip() for line in shown)


def test_displays_and_results_are_shown(said):
    shown, _ = said("until ptx:13", "display %r1 * 2", "stepi", "undisplay", "s")
    assert shown[2][:2] == [
        "lane 0 of block (0, 0, 0), warp 0",
        "  register  type   value  word  all lanes",
    ]
    assert "true in 16 of 32" in shown[2][2] and shown[2][-1] == "%r1 * 2 = 0"
    assert shown[4] == ["block (0, 0, 0), warp 0, lanes 16-31 at ptx:15: add.u32 %r2, %r1, 100;"]


def test_a_kernel_that_raises_is_code_1(said, tmp_path):
    (tmp_path / "wild.ptx").write_text(BRANCH.replace("[%rd3]", "[%rd3 + 200]"))
    shown, code = said("c", "p %r2", line=["debug", "wild.ptx", *LINE[2:]])
    assert code == 1 and "out of bounds" in shown[0][0] and shown[1] == ["%r2 = 42"]


def test_commands_come_from_a_file(said, tmp_path, monkeypatch, capsys):
    (tmp_path / "script").write_text("b ret\nc\n")
    assert main([*LINE, "-x", "script", "--batch"]) == 0
    out = capsys.readouterr().out
    assert "(ptx-gdb) b ret\nBreakpoint 1: ret, 1 statement\n" in out


def test_a_terminal_completes_and_answers(tmp_path):
    (tmp_path / "kernel.ptx").write_text(BRANCH)
    pid, master = pty.fork()
    if not pid:
        os.chdir(tmp_path)
        os.environ |= {"PYTHONPATH": str(ROOT), "TERM": "dumb"}
        os.execv(sys.executable, [sys.executable, "-m", "emulator", *LINE])
    seen = b""

    def until(text):
        nonlocal seen
        start = time.monotonic()
        while text not in seen and time.monotonic() < start + 60:
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 4096)
        assert text in seen, seen
        seen = seen.partition(text)[2]

    try:
        until(b"(ptx-gdb) ")
        os.write(master, b"break bar\t\n")
        until(b"Breakpoint 1: bar.sync, 1 statement")
        os.write(master, b"cont\n")
        until(b"bar.sync 0;")
        os.write(master, b"\n")  # an empty line repeats the command
        until(b"warp 1")
        os.write(master, b"quit\n")
    finally:
        assert os.waitpid(pid, 0)[1] == 0
        os.close(master)
