"""Streams, events, and what is captured from streams."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field

from emulator.adapters.cuda.calls import INVALID_VALUE, CudaError, driver, handles, put
from emulator.adapters.cuda.driver.devices import check_error, device
from emulator.adapters.cuda.driver.nodes import Graph, Kind, Node, Operation

#: handles of the default streams
_DEFAULT = (0, 1, 2)
_NOT_CAPTURING, _DISABLED_TIMING = 901, 2


@dataclass(eq=False)
class Stream:
    """A stream, or one that captures into a graph."""

    flags: int = 0
    priority: int = 0
    graph: Graph | None = None
    #: the nodes that the next one of a capture waits for
    tails: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class Event:
    """An event: when it was recorded, and in which capture."""

    flags: int = 0
    at: float | None = None
    graph: Graph | None = None
    tails: list[Node] = field(default_factory=list)


_defaults = {number: Stream() for number in _DEFAULT}
_capturing: list[Stream] = []


def stream_of(handle: int) -> Stream:
    """A stream by its handle."""
    return _defaults[handle] if handle in _defaults else handles.find(handle, Stream)


def submit(handle: int, operation: Operation, kind: Kind, address: int = 0) -> None:
    """Runs an operation in a stream, or captures it as a node."""
    stream = stream_of(handle)
    if stream.graph is None:
        operation()
    else:
        stream.tails = [stream.graph.add(Node(kind, operation, stream.tails, address))]


@driver("cuStreamCreate")
def create(out: int, flags: int) -> None:
    create_with_priority(out, flags, 0)


@driver("cuStreamCreateWithPriority")
def create_with_priority(out: int, flags: int, priority: int) -> None:
    put(out, "Q", handles.add(Stream(flags, max(-5, min(0, priority)))))


@driver("cuStreamDestroy_v2")
def destroy(stream: int) -> None:
    handles.take(stream, Stream)


@driver("cuStreamSynchronize", "cuStreamQuery")
def synchronize(stream: int) -> None:
    if stream_of(stream).graph is not None:
        raise CudaError(900)  # a capture cannot wait
    check_error()


@driver("cuStreamWaitEvent")
def wait_event(stream: int, event: int, flags: int) -> None:
    recorded, waiting = handles.find(event, Event), stream_of(stream)
    if recorded.graph is None or recorded.graph.handle:
        return  # not of a capture that goes on
    if waiting.graph is None:
        waiting.graph, waiting.tails = recorded.graph, []
        _capturing.append(waiting)
    waiting.tails = list(dict.fromkeys([*waiting.tails, *recorded.tails]))


@driver("cuStreamGetCtx", "cuStreamGetCtx_v2")
def context(stream: int, out: int, green: int = 0) -> None:
    stream_of(stream)
    put(out, "Q", device.context or device.primary_context())
    put(green, "Q", 0)


@driver("cuStreamGetFlags")
def flags(stream: int, out: int) -> None:
    put(out, "I", stream_of(stream).flags)


@driver("cuStreamGetPriority")
def priority(stream: int, out: int) -> None:
    put(out, "i", stream_of(stream).priority)


@driver("cuStreamGetId")
def identity(stream: int, out: int) -> None:
    stream_of(stream)
    put(out, "Q", stream)


@driver("cuStreamGetDevice")
def stream_device(stream: int, out: int) -> None:
    put(out, "i", 0)


@driver("cuStreamAddCallback")
def add_callback(stream: int, function: int, data: int, _: int) -> None:
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(function)
    submit(stream, lambda: called(stream, device.failed, data), Kind.HOST)


@driver("cuLaunchHostFunc")
def host_function(stream: int, function: int, data: int) -> None:
    submit(stream, host_call(function, data), Kind.HOST)


def host_call(function: int, data: int) -> Operation:
    """The call of a program's function as an operation."""
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
    return lambda: called(data)


# --- events ---------------------------------------------------------------------------------------


@driver("cuEventCreate")
def event_create(out: int, event_flags: int) -> None:
    put(out, "Q", handles.add(Event(event_flags)))


@driver("cuEventDestroy_v2")
def event_destroy(event: int) -> None:
    handles.take(event, Event)


@driver("cuEventRecord", "cuEventRecordWithFlags")
def event_record(event: int, stream: int, _: int = 0) -> None:
    recorded, where = handles.find(event, Event), stream_of(stream)
    # In a capture it marks a place, and is no node.
    recorded.graph, recorded.tails = where.graph, where.tails
    if where.graph is None:
        recorded.at = time.perf_counter()


@driver("cuEventSynchronize", "cuEventQuery")
def event_synchronize(event: int) -> None:
    handles.find(event, Event)
    check_error()


@driver("cuEventElapsedTime", "cuEventElapsedTime_v2")
def event_elapsed(out: int, first: int, last: int) -> int:
    one, other = handles.find(first, Event), handles.find(last, Event)
    if _DISABLED_TIMING & (one.flags | other.flags):
        raise CudaError(400)
    if one.at is None or other.at is None:
        return 400
    put(out, "f", (other.at - one.at) * 1e3)
    return 0


# --- capture ------------------------------------------------------------------------------------


@driver("cuStreamBeginCapture_v2")
def begin_capture(stream: int, mode: int) -> None:
    started = stream_of(stream)
    if started.graph is not None or stream in (0, 1):
        raise CudaError(INVALID_VALUE if started.graph else 900)
    started.graph, started.tails = Graph(), []
    _capturing.append(started)


@driver("cuStreamEndCapture")
def end_capture(stream: int, out: int) -> None:
    graph = stream_of(stream).graph
    if graph is None:
        raise CudaError(_NOT_CAPTURING)
    for one in [s for s in _capturing if s.graph is graph]:
        one.graph = None
        _capturing.remove(one)
    graph.handle = handles.add(graph)
    put(out, "Q", graph.handle)


@driver("cuStreamIsCapturing", "cuStreamGetCaptureInfo_v2", "cuStreamGetCaptureInfo_v3")
def is_capturing(stream: int, out: int, identifier: int = 0, *_: int) -> None:
    graph = stream_of(stream).graph
    put(out, "I", int(graph is not None))
    put(identifier, "Q", id(graph) if graph else 0)
