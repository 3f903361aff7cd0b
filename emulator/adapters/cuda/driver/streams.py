"""Streams, events, and what streams do."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field

from emulator.adapters.cuda.calls import (
    DRIVER,
    Code,
    CudaError,
    driver,
    handles,
    present,
    put,
    refuse_if,
)
from emulator.adapters.cuda.driver.devices import check_error, device
from emulator.adapters.cuda.driver.nodes import Graph, Kind, Node, Work

#: handles of the default streams
_DEFAULT = (0, 1, 2)
#: flags of events: without times, and for other processes
WITHOUT_TIMES, INTERPROCESS = 2, 4
#: flag of records and waits that are nodes of a capture
_EXTERNAL = 1


@dataclass(eq=False)
class Capture:
    """What streams are capturing into a graph."""

    graph: Graph
    #: handle of the stream that began it
    origin: int
    streams: list[Stream] = field(default_factory=list)
    #: a call that no capture allows was made meanwhile
    invalid: bool = False

    def join(self, stream: Stream, tails: list[Node]) -> None:
        """Captures from one more stream."""
        stream.capture, stream.tails = self, tails
        self.streams.append(stream)

    def end(self) -> None:
        """Ends it in all streams."""
        for stream in self.streams:
            stream.capture, stream.tails = None, []
        self.streams.clear()


@dataclass(eq=False)
class Stream:
    """A stream, or one that captures into a graph."""

    flags: int = 0
    priority: int = 0
    capture: Capture | None = None
    #: the nodes that the next one of a capture waits for
    tails: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class Event:
    """An event: when it was recorded, and in which capture."""

    flags: int = 0
    at: float | None = None
    capture: Capture | None = None
    tails: list[Node] = field(default_factory=list)


_defaults = {number: Stream() for number in _DEFAULT}


def stream_of(handle: int) -> Stream:
    return _defaults[handle] if handle in _defaults else handles.find(handle, Stream)


def submit(handle: int, work: Work) -> None:
    """Does work in a stream, or captures it as a node."""
    stream = stream_of(handle)
    if stream.capture is None:
        work.run()
    elif stream.capture.invalid:
        raise CudaError(Code.CAPTURE_INVALIDATED)
    else:
        stream.tails = [stream.capture.graph.add(Node(work, stream.tails))]


def refuse_capture(handle: int) -> None:
    """Raises CudaError, and spoils the capture, if a stream captures: a capture cannot wait."""
    capture = stream_of(handle).capture
    if capture is not None:
        capture.invalid = True
        raise CudaError(Code.CAPTURE_UNSUPPORTED)


class Call(Work):
    """The call of a program's function."""

    kind = Kind.HOST

    def __init__(self, function: int, data: int) -> None:
        self._given = function, data
        self._called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)

    def run(self) -> None:
        self._called(self._given[1])

    def write(self, at: int) -> None:
        put(at, "QQ", *self._given)


class CallBack(Work):
    """The call of a program's function that is told the stream and its error."""

    kind = Kind.HOST

    def __init__(self, stream: int, function: int, data: int) -> None:
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
        self._stream, self._called, self._data = stream, signature(function), data

    def run(self) -> None:
        self._called(self._stream, device.failed, self._data)


class _OfEvent(Work):
    """Work with an event."""

    def __init__(self, event: int) -> None:
        self.event, self._found = event, handles.find(event, Event)

    def write(self, at: int) -> None:
        put(at, "Q", self.event)


class Record(_OfEvent):
    kind = Kind.EVENT_RECORD

    def run(self) -> None:
        self._found.at, self._found.capture = time.perf_counter(), None


class Wait(_OfEvent):
    """Waits for an event, which has happened here."""

    kind = Kind.WAIT_EVENT


@driver("cuStreamSynchronize", "cuStreamQuery")
def synchronize(stream: int) -> None:
    refuse_capture(stream)
    check_error()


@driver("cuStreamWaitEvent")
def wait_event(stream: int, event: int, flags: int) -> None:
    recorded, waiting = handles.find(event, Event), stream_of(stream)
    if waiting.capture is not None and flags & _EXTERNAL:
        submit(stream, Wait(event))
        return
    if recorded.capture is None or not recorded.capture.streams:
        return  # not of a capture that goes on
    if waiting.capture is None:
        recorded.capture.join(waiting, [])
    elif waiting.capture is not recorded.capture:
        waiting.capture.invalid = recorded.capture.invalid = True
        raise CudaError(Code.CAPTURE_MERGE)
    waiting.tails = list(dict.fromkeys([*waiting.tails, *recorded.tails]))


@driver("cuStreamGetCtx_v2")
def context(stream: int, out: int, green: int) -> None:
    stream_of(stream)
    put(out, "Q", device.context or device.primary_context())
    put(green, "Q", 0)


# --- events ---------------------------------------------------------------------------------------


@driver("cuEventCreate")
def event_create(out: int, event_flags: int) -> None:
    refuse_if(event_flags & INTERPROCESS and not event_flags & WITHOUT_TIMES)
    put(out, "Q", handles.add(Event(event_flags)))


@driver("cuEventRecord", "cuEventRecordWithFlags")
def event_record(event: int, stream: int, flags: int = 0) -> None:
    recorded, where = handles.find(event, Event), stream_of(stream)
    if where.capture is None or flags & _EXTERNAL:
        submit(stream, Record(event))
    else:  # In a capture it marks a place, and is no node.
        recorded.capture, recorded.tails = where.capture, where.tails


@driver("cuEventSynchronize", "cuEventQuery")
def event_synchronize(event: int) -> None:
    capture = handles.find(event, Event).capture
    if capture is not None and capture.streams:
        capture.invalid = True
        raise CudaError(Code.CAPTURED_EVENT)
    if capture is not None and capture.invalid:
        raise CudaError(Code.INVALID_VALUE)
    check_error()


@driver("cuEventElapsedTime", "cuEventElapsedTime_v2")
def event_elapsed(out: int, first: int, last: int) -> None:
    one, other = handles.find(first, Event), handles.find(last, Event)
    refuse_if(WITHOUT_TIMES & (one.flags | other.flags), Code.INVALID_HANDLE)
    begin, end = (present(x.at, Code.INVALID_HANDLE) for x in (one, other))
    put(out, "f", (end - begin) * 1e3)


DRIVER |= {
    "cuStreamCreateWithPriority": lambda out, flags, priority: put(
        out, "Q", handles.add(Stream(flags, max(-5, min(0, priority))))
    ),
    "cuStreamDestroy_v2": lambda stream: handles.end(stream, Stream),
    "cuStreamGetFlags": lambda stream, out: put(out, "I", stream_of(stream).flags),
    "cuStreamGetPriority": lambda stream, out: put(out, "i", stream_of(stream).priority),
    "cuStreamGetId": lambda stream, out: put(out, "Q", stream_of(stream) and stream),
    "cuStreamGetDevice": lambda stream, out: put(out, "i", 0),
    "cuStreamAddCallback": lambda stream, function, data, flags: submit(
        stream, CallBack(stream, function, data)
    ),
    "cuLaunchHostFunc": lambda stream, function, data: submit(stream, Call(function, data)),
    "cuEventDestroy_v2": lambda event: handles.end(event, Event),
}
