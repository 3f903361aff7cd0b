"""A kernel for tests of the debugger, and a client of the Debug Adapter Protocol."""

import json
import queue
import subprocess
import sys
import threading

from paths import ROOT

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
#: lanes 0-15 take the branch; line 20 is behind the barrier
BRANCH = (
    HEAD
    + """.visible .entry go(.param .u64 a, .param .u32 n)
{
 .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .reg .f32 %f<4>;
 .shared .align 16 .b32 tile[64];
 ld.param.u64 %rd1, [a];
 ld.param.u32 %r5, [n];
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd2, %r1, 4;
 add.s64 %rd3, %rd1, %rd2;
 setp.lt.u32 %p1, %r1, 16;
 @%p1 bra LOW;
 add.u32 %r2, %r1, 100;
 bra JOIN;
LOW:
 mul.lo.u32 %r2, %r1, 3;
JOIN:
 bar.sync 0;
 st.global.u32 [%rd3], %r2;
 ret;
}"""
)


class Client:
    """An editor that speaks with the adapter."""

    def __init__(self, folder):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "emulator.tools.debugging.protocol"],
            cwd=folder, env={"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._sent, self._came = 0, queue.Queue()
        self.events = []
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self.code = self._process.wait(30)
        self._process.stdout.close()

    def _read(self):
        stream = self._process.stdout
        while line := stream.readline():
            size = int(line.split(b":")[1])
            stream.readline()
            self._came.put(json.loads(stream.read(size)))

    def send(self, raw):
        self._process.stdin.write(raw)
        self._process.stdin.flush()

    def ask(self, command, wait=True, **arguments):
        """Sends a request; the body of the response, or the message of a failed one."""
        self._sent += 1
        raw = json.dumps({"seq": self._sent, "type": "request", "command": command,
                          "arguments": arguments}).encode()  # fmt: skip
        self.send(b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
        if not wait:
            return None
        while (message := self._came.get(timeout=60))["type"] == "event":
            self.events.append(message)
        assert message["request_seq"] == self._sent
        return message["body"] if message["success"] else message["message"]

    def event(self, name):
        """The body of the next event of a name."""
        while True:
            for message in self.events:
                if message["event"] == name:
                    self.events.remove(message)
                    return message["body"]
            self.events.append(self._came.get(timeout=60))
