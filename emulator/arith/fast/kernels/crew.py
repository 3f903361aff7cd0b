"""Threads that run machine code without the interpreter between their parts of the work.

They wait in machine code, too: it takes a few microseconds to set all of them to work, where a pool
of the interpreter takes some thirty for each thread.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Callable
from functools import lru_cache
from string import Template
from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith.fast.kernels import machine_code
from emulator.arrays import address_of

#: words of 8 bytes that the threads share: parts that nobody has taken yet, parts that are done (in
#: another line of the cache), how many there are, the function between two cuts, the cuts, what the
#: function is given, room for its results; then what makes threads wait
_WORDS = (
    *("left", *["_"] * 7, "done", *["_"] * 7),
    "parts", "code", "cuts", "given", "results", "looks",
    "mutex", "begun", "over", "lock", "unlock", "wait", "signal", "broadcast", "yield",
)  # fmt: skip
#: times that a thread looks for work before it sleeps, and where more follows soon or it looks for
#: the end of a few last parts: to wake up takes 50 microseconds and more
_LOOKS, _MANY_LOOKS = 200, 3000
#: what leaves the units of a core to its other thread for a moment, by the kind of processor; how
#: often between two looks: the thread that has work to do is a fifth slower without
_PAUSE, _PAUSES = {"x86_64": "void @llvm.x86.sse2.pause()\n"}, 8
#: bytes that are enough for a mutex or a condition of any C library
_ROOM = 256

_TEXT = """
$declared
define internal i64 @word(ptr %state, i64 %number) alwaysinline {
  %at = getelementptr i64, ptr %state, i64 %number
  %word = load i64, ptr %at
  ret i64 %word
}
define internal void @call(ptr %state, i64 %which, i64 %a, i64 %b) {
  %number = call i64 @word(ptr %state, i64 %which)
  %code = inttoptr i64 %number to ptr
  call i32 %code(i64 %a, i64 %b)
  ret void
}
define internal void @work(ptr %state) {
enter:
  %done = getelementptr i64, ptr %state, i64 $done
  %mutex = call i64 @word(ptr %state, i64 $mutex)
  br label %next
next:
  %left = atomicrmw sub ptr %state, i64 1 seq_cst
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %run, label %out
run:
  %parts = call i64 @word(ptr %state, i64 $parts)
  %part = sub i64 %parts, %left
  %cuts = call i64 @word(ptr %state, i64 $cuts)
  %array = inttoptr i64 %cuts to ptr
  %first = call i64 @word(ptr %array, i64 %part)
  %following = add i64 %part, 1
  %end = call i64 @word(ptr %array, i64 %following)
  %number = call i64 @word(ptr %state, i64 $code)
  %code = inttoptr i64 %number to ptr
  %given = call i64 @word(ptr %state, i64 $given)
  %result = call i64 %code(i64 %first, i64 %end, i64 %given)
  %results = call i64 @word(ptr %state, i64 $results)
  %rows = inttoptr i64 %results to ptr
  %row = getelementptr i64, ptr %rows, i64 %part
  store i64 %result, ptr %row
  %before = atomicrmw add ptr %done, i64 1 seq_cst
  %now = add i64 %before, 1
  %last = icmp eq i64 %now, %parts
  br i1 %last, label %tell, label %next
tell:
  %over = call i64 @word(ptr %state, i64 $over)
  call void @call(ptr %state, i64 $lock, i64 %mutex, i64 0)
  call void @call(ptr %state, i64 $signal, i64 %over, i64 0)
  call void @call(ptr %state, i64 $unlock, i64 %mutex, i64 0)
  br label %next
out:
  ret void
}
define internal void @until(ptr %state, ptr %at, i64 %least, i64 %condition, i64 %looks) {
enter:
  %mutex = call i64 @word(ptr %state, i64 $mutex)
  br label %look
look:
  %turn = phi i64 [ 0, %enter ], [ %another, %again ]
  %now = load atomic i64, ptr %at seq_cst, align 8
  %enough = icmp sge i64 %now, %least
  br i1 %enough, label %out, label %again
again:
$pauses  call void @call(ptr %state, i64 $yield, i64 0, i64 0)
  %another = add i64 %turn, 1
  %patient = icmp ult i64 %another, %looks
  br i1 %patient, label %look, label %sleep
sleep:
  %signal = call i64 @word(ptr %state, i64 %condition)
  call void @call(ptr %state, i64 $lock, i64 %mutex, i64 0)
  br label %check
check:
  %then = load atomic i64, ptr %at seq_cst, align 8
  %there = icmp sge i64 %then, %least
  br i1 %there, label %awake, label %wait
wait:
  call void @call(ptr %state, i64 $wait, i64 %signal, i64 %mutex)
  br label %check
awake:
  call void @call(ptr %state, i64 $unlock, i64 %mutex, i64 0)
  br label %out
out:
  ret void
}
define void @serve(ptr %state) {
enter:
  br label %turn
turn:
  %looks = call i64 @word(ptr %state, i64 $looks)
  call void @until(ptr %state, ptr %state, i64 1, i64 $begun, i64 %looks)
  call void @work(ptr %state)
  br label %turn
}
; others: how many are to wake up, 0: all
define void @lead(ptr %state, i64 %others) {
enter:
  %mutex = call i64 @word(ptr %state, i64 $mutex)
  %begun = call i64 @word(ptr %state, i64 $begun)
  %parts = call i64 @word(ptr %state, i64 $parts)
  %done = getelementptr i64, ptr %state, i64 $done
  store atomic i64 0, ptr %done seq_cst, align 8
  call void @call(ptr %state, i64 $lock, i64 %mutex, i64 0)
  store atomic i64 %parts, ptr %state seq_cst, align 8
  call void @call(ptr %state, i64 $unlock, i64 %mutex, i64 0)
  %every = icmp eq i64 %others, 0
  br i1 %every, label %all, label %wake
all:
  call void @call(ptr %state, i64 $broadcast, i64 %begun, i64 0)
  br label %lead
wake:
  %woken = phi i64 [ 0, %enter ], [ %more, %wake ]
  call void @call(ptr %state, i64 $signal, i64 %begun, i64 0)
  %more = add i64 %woken, 1
  %enough = icmp uge i64 %more, %others
  br i1 %enough, label %lead, label %wake
lead:
  call void @work(ptr %state)
  call void @until(ptr %state, ptr %done, i64 %parts, i64 $over, i64 $many)
  ret void
}
"""


class Crew:
    """So many threads that wait for work, beside the one that asks for it."""

    def __init__(self, others: int) -> None:
        libc = ctypes.CDLL(None)  # OSError or TypeError where there is no such library
        names = {
            "lock": "pthread_mutex_lock", "unlock": "pthread_mutex_unlock",
            "wait": "pthread_cond_wait", "signal": "pthread_cond_signal",
            "broadcast": "pthread_cond_broadcast", "yield": "sched_yield",
        }  # fmt: skip
        self._state = np.zeros(len(_WORDS) + 8, np.int64)
        self._state = self._state[-self._state.ctypes.data % 64 // 8 :]
        self._put("looks", _LOOKS)
        self._kept = [np.zeros(_ROOM, np.uint8) for _ in range(3)]
        for name, room in zip(("mutex", "begun", "over"), self._kept, strict=True):
            made = "pthread_mutex_init" if name == "mutex" else "pthread_cond_init"
            getattr(libc, made)(ctypes.c_void_p(room.ctypes.data), None)
            self._put(name, room.ctypes.data)
        for name, symbol in names.items():
            self._put(name, ctypes.cast(getattr(libc, symbol), ctypes.c_void_p).value or 0)
        numbers = {name: number for number, name in enumerate(_WORDS)}
        pause = _PAUSE.get(platform.machine(), "")
        declared, pauses = pause and f"declare {pause}", pause and f"  call {pause}" * _PAUSES
        text = Template(_TEXT).substitute(
            numbers, many=_MANY_LOOKS, declared=declared, pauses=pauses
        )
        of_state = ctypes.c_void_p, ctypes.c_int64
        self._lead = machine_code.function(text, "lead", None, *of_state)
        self._serve = machine_code.function(text, "serve", None, ctypes.c_void_p)
        self._busy = threading.Lock()
        self._others = others
        for number in range(others):
            name = f"emulator {number}"
            threading.Thread(target=self._wait_for_work, name=name, daemon=True).start()

    def _wait_for_work(self) -> None:
        # The thread holds the crew, whose memory it looks at.
        self._serve(address_of(self._state))

    def _put(self, name: str, word: int) -> None:
        self._state[_WORDS.index(name)] = word

    def run(
        self, code: int, cuts: Array, given: int, threads: int, more: bool = False
    ) -> Array | None:
        """The results of ``i64 code(first, end, given)`` between the neighbours of `cuts`, in so
        many threads; None: the crew is at work for another thread. `more`: work for it follows
        soon."""
        if not self._busy.acquire(blocking=False):
            return None
        try:
            results = np.zeros(len(cuts) - 1, np.int64)
            words = {
                "parts": len(results), "code": code, "cuts": address_of(cuts), "given": given,
                "results": address_of(results), "looks": _MANY_LOOKS if more else _LOOKS,
            }  # fmt: skip
            for name, word in words.items():
                self._put(name, word)
            others = min(threads - 1, self._others)
            self._lead(address_of(self._state), others if others < self._others else 0)
            return results
        finally:
            self._busy.release()


def crew_of(others: int) -> Crew | None:
    """So many threads, for good; None where the C library has none that machine code can call."""
    try:
        return Crew(others)
    except (OSError, TypeError, AttributeError):
        return None


@lru_cache(maxsize=16)
def with_arguments(count: int) -> Callable[..., Any]:
    """``f(first, end, given)``, which calls a function with so many more words: `given` is the
    address of an array of the function's own address and of these words."""
    loads = "\n".join(
        f"  %p{i} = getelementptr i64, ptr %given, i64 {i}\n  %w{i} = load i64, ptr %p{i}"
        for i in range(count + 1)
    )
    words = "".join(f", i64 %w{i}" for i in range(1, count + 1))
    text = f"""
define i64 @part(i64 %first, i64 %end, ptr %given) {{
{loads}
  %code = inttoptr i64 %w0 to ptr
  %result = call i64 %code(i64 %first, i64 %end{words})
  ret i64 %result
}}"""
    kinds = ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    return machine_code.function(text, "part", ctypes.c_int64, *kinds)


@lru_cache(maxsize=1)
def of_bytes() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``copy(first, end, to, source)`` between addresses, and ``clear(first, end, to)``."""
    text = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define i64 @copy(i64 %first, i64 %end, ptr %to, ptr %source) {
  %count = sub i64 %end, %first
  %a = getelementptr i8, ptr %to, i64 %first
  %b = getelementptr i8, ptr %source, i64 %first
  call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %b, i64 %count, i1 false)
  ret i64 0
}
define i64 @clear(i64 %first, i64 %end, ptr %to) {
  %count = sub i64 %end, %first
  %a = getelementptr i8, ptr %to, i64 %first
  call void @llvm.memset.p0.i64(ptr %a, i8 0, i64 %count, i1 false)
  ret i64 0
}"""
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    copy = machine_code.function(text, "copy", word, word, word, pointer, pointer)
    return copy, machine_code.function(text, "clear", word, word, word, pointer)
