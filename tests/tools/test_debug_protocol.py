"""The Debug Adapter Protocol, through a client that speaks it as editors do."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from debugged import BRANCH, Client

from emulator import OperandError
from emulator.tools.debugging import protocol
from emulator.tools.debugging.protocol import Adapter, read_message, write_message


@pytest.fixture
def client(tmp_path):
    (tmp_path / "kernel.ptx").write_text(BRANCH)
    with Client(tmp_path) as made:
        assert made.ask("initialize", adapterID="ptx")["supportsStepBack"]
        answer = made.ask("launch", program="kernel.ptx", kernel="go", grid=1, block=[64],
                          args=["zeros:u4:64:out.npy", 7], name="run")  # fmt: skip
        assert answer == {}
        made.event("initialized")
        made.folder = tmp_path
        yield made


def lines(client, thread):
    return [x["line"] for x in client.ask("stackTrace", threadId=thread)["stackFrames"]]


def test_a_session(client):
    source = {"path": str(client.folder / "kernel.ptx")}
    held = client.ask("setBreakpoints", source=source,
                      breakpoints=[{"line": 17}, {"line": 21, "condition": "%r1 == 40"},
                                   {"line": 99}])["breakpoints"]  # fmt: skip
    assert [x.get("line") for x in held] == [18, 21, None]
    assert "the last line with statements is 22" in held[2]["message"]
    client.ask("configurationDone")
    stopped = client.event("stopped")
    assert stopped["reason"] == "breakpoint" and stopped["threadId"] == 1
    assert lines(client, 1) == [18]
    frame = client.ask("stackTrace", threadId=1)["stackFrames"][0]
    assert frame["name"] == "go" and frame["source"]["path"] == source["path"]
    names = [x["name"] for x in client.ask("threads")["threads"]]
    assert names == ["block (0, 0, 0) warp 0", "block (0, 0, 0) warp 1"]

    registers = client.ask("variables", variablesReference=1)["variables"]
    (held,) = [x for x in registers if x["name"] == "%r1"]
    lanes = client.ask("variables", variablesReference=held["variablesReference"])["variables"]
    assert [x["value"] for x in lanes] == [str(i) for i in range(32)]
    assert client.ask("evaluate", expression="%r1 + n")["result"] == "7"
    text = client.ask("evaluate", expression="info convergence", context="repl")["result"]
    assert "2 groups of lanes" in text
    assert "ptx:18" in [x["label"] for x in client.ask("completions", text="break ptx:1",
                                                       column=12)["targets"]]  # fmt: skip

    client.ask("next", threadId=1)
    assert client.event("stopped")["reason"] == "step" and lines(client, 1) == [20]
    client.ask("stepBack", threadId=1)
    client.event("stopped")
    assert lines(client, 1) == [18]
    client.ask("continue", threadId=1)
    assert client.event("stopped")["threadId"] == 2 and lines(client, 2) == [21]
    client.ask("continue", threadId=2)
    client.event("terminated")
    assert client.event("exited") == {"exitCode": 0}
    assert np.load(client.folder / "out.npy").tolist() == [*range(0, 48, 3), *range(116, 164)]
    client.ask("disconnect")


def test_data_breakpoints_and_exceptions(client):
    client.ask("setExceptionBreakpoints", filters=["nan"])
    found = client.ask("dataBreakpointInfo", name="a[3]")["dataId"]
    held = client.ask("setDataBreakpoints", breakpoints=[{"dataId": found}, {"dataId": "%zz"}])
    assert [x["verified"] for x in held["breakpoints"]] == [True, False]
    client.ask("setFunctionBreakpoints", breakpoints=[{"name": "st.global"}])
    client.ask("configurationDone")
    assert client.event("stopped")["reason"] == "breakpoint"
    client.ask("continue", threadId=1)
    stopped = client.event("stopped")
    assert stopped["reason"] == "data breakpoint" and "0x00000009" in stopped["text"]
    client.ask("reverseContinue", threadId=1)
    client.event("stopped")
    assert lines(client, 1) == [21]
    wanted = {"dataId": "%r5", "accessType": "read"}
    assert client.ask("setDataBreakpoints", breakpoints=[wanted])["breakpoints"][0]["verified"]
    client.ask("restart")
    client.event("stopped")


def test_mistakes_are_answered(client):
    assert "nearest is 'continue'" in client.ask("contineu")
    assert "its arguments are wrong" in client.ask("stackTrace")
    assert "nearest is 'block'" in client.ask("launch", program="kernel.ptx", blok=3)
    assert "no register" in client.ask("evaluate", expression="%r99")
    assert "a block has 2 warps" in client.ask("stackTrace", threadId=9)


def test_an_error_of_the_kernel_stops(tmp_path):
    (tmp_path / "kernel.ptx").write_text(BRANCH.replace("[%rd3]", "[%rd3 + 200]"))
    with Client(tmp_path) as client:
        client.ask("initialize")
        client.ask("launch", program="kernel.ptx", block=64, args=["zeros:u4:64", 7])
        client.ask("configurationDone")
        stopped = client.event("stopped")
        assert stopped["reason"] == "exception" and "out of bounds" in stopped["text"]
        assert lines(client, 1) == [21]
        client.ask("continue", threadId=1)
        client.event("terminated")


def test_a_loop_without_end_is_paused(tmp_path):
    loop = "LOOP: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 100000000; @%p2 bra LOOP;"
    text = BRANCH.replace("bar.sync 0;", loop)
    (tmp_path / "kernel.ptx").write_text(text)
    with Client(tmp_path) as client:
        client.ask("initialize")
        client.ask("launch", program="kernel.ptx", block=32, args=["zeros:u4:64", 7])
        client.ask("configurationDone")
        client.ask("pause", wait=False)
        assert client.event("stopped")["reason"] == "pause"
        client.ask("continue", wait=False)
        # The editor leaves while the launch runs.


@pytest.mark.parametrize(
    "raw",
    [b"Content-Length: x\r\n\r\n{}", b"\r\n{}", b"Content-Length: 5\r\n\r\n[1,2]",
     b"Content-Length: 3\r\n\r\n{a}", b"Content-Length: 99999999999\r\n\r\n{}"],
)  # fmt: skip
def test_what_is_no_message_is_refused(raw):
    with pytest.raises(OperandError):
        read_message(io.BytesIO(raw))
    sink = io.BytesIO()
    Adapter(io.BytesIO(raw), sink).serve()
    assert b"a message" in sink.getvalue()


def test_the_extension_of_vscode_knows_every_word():
    path = Path(protocol.__file__).parent / "vscode" / "package.json"
    (debugger,) = json.loads(path.read_text())["contributes"]["debuggers"]
    words = debugger["configurationAttributes"]["launch"]["properties"]
    assert set(words) == {*protocol._WORDS, "stopOnEntry"}
    assert set(debugger["initialConfigurations"][0]) <= {*words, *protocol._EDITORS}
    assert debugger["runtimeArgs"] == ["-m", protocol.__name__]


def test_messages_are_read_as_they_are_written():
    stream = io.BytesIO()
    write_message(stream, {"seq": 1, "text": "é"})
    stream.seek(0)
    assert read_message(stream) == {"seq": 1, "text": "é"}
    assert read_message(stream) is None
    assert read_message(io.BytesIO(b"Content-Length: 9\r\n\r\n{}")) is None
