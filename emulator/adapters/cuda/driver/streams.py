"""Streams, events, and graphs that are captured from streams."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from emulator.adapters.cuda.calls import (
    INVALID_VALUE,
    CudaError,
    driver,
    handles,
    put,
)
from emulator.adapters.cuda.driver.devices import check_error, device

Operation = Callable[[], None]
#: handles of the default streams
_DEFAULT = (0, 1, 2)
_NOT_CAPTURING, _DISABLED_TIMING = 901, 2


@dataclass(eq=False)
class Graph:
    """Operations that were captured, in order."""

    operations: list[Operation] = field(default_factory=list)
    handle: int = 0


@dataclass(eq=False)
class GraphInstance:
    """A graph that can be launched."""

    operations: list[Operation]


@dataclass(eq=False)
class Stream:
    """A stream, or one that captures into a graph."""

    flags: int = 0
    priority: int = 0
    graph: Graph | None = None


@dataclass(eq=False)
class Event:
    """An event: when it was recorded, and in which capture."""

    flags: int = 0
    at: float | None = None
    graph: Graph | None = None


_defaults = {number: Stream() for number in _DEFAULT}
_capturing: list[Stream] = []


def stream_of(handle: int) -> Stream:
    """A stream by its handle."""
    return _defaults[handle] if handle in _defaults else handles.find(handle, Stream)


def submit(handle: int, operation: Operation) -> None:
    """Runs an operation in a stream, or captures it."""
    graph = stream_of(handle).graph
    if graph is None:
        operation()
    else:
        graph.operations.append(operation)


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
    captured = handles.find(event, Event).graph
    waiting = stream_of(stream)
    if captured is not None and waiting.graph is None and captured.handle == 0:
        waiting.graph = captured
        _capturing.append(waiting)


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
    submit(stream, lambda: called(stream, device.failed, data))


@driver("cuLaunchHostFunc")
def host_function(stream: int, function: int, data: int) -> None:
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
    submit(stream, lambda: called(data))


# --- events ---------------------------------------------------------------------------------------


@driver("cuEventCreate")
def event_create(out: int, event_flags: int) -> None:
    put(out, "Q", handles.add(Event(event_flags)))


@driver("cuEventDestroy_v2")
def event_destroy(event: int) -> None:
    handles.take(event, Event)


@driver("cuEventRecord", "cuEventRecordWithFlags")
def event_record(event: int, stream: int, _: int = 0) -> None:
    recorded = handles.find(event, Event)
    recorded.graph = stream_of(stream).graph

    def record() -> None:
        recorded.at = time.perf_counter()

    submit(stream, record)


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


# --- capture and graphs ---------------------------------------------------------------------------


@driver("cuStreamBeginCapture_v2")
def begin_capture(stream: int, mode: int) -> None:
    started = stream_of(stream)
    if started.graph is not None or stream in (0, 1):
        raise CudaError(INVALID_VALUE if started.graph else 900)
    started.graph = Graph()
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


@driver("cuGraphCreate")
def graph_create(out: int, _: int) -> None:
    graph = Graph()
    graph.handle = handles.add(graph)
    put(out, "Q", graph.handle)


@driver("cuGraphInstantiateWithFlags")
def instantiate(out: int, graph: int, _: int) -> None:
    put(out, "Q", handles.add(GraphInstance(list(handles.find(graph, Graph).operations))))


@driver("cuGraphInstantiateWithParams")
def instantiate_with(out: int, graph: int, _: int) -> None:
    instantiate(out, graph, 0)


@driver("cuGraphLaunch")
def graph_launch(instance: int, stream: int) -> None:
    for operation in handles.find(instance, GraphInstance).operations:
        submit(stream, operation)


@driver("cuGraphUpload")
def graph_upload(instance: int, stream: int) -> None:
    handles.find(instance, GraphInstance)


@driver("cuGraphGetNodes")
def graph_nodes(graph: int, nodes: int, count: int) -> None:
    if nodes:
        raise CudaError(801)
    put(count, "Q", len(handles.find(graph, Graph).operations))


@driver("cuGraphDestroy")
def graph_destroy(graph: int) -> None:
    handles.take(graph, Graph)


@driver("cuGraphExecDestroy")
def instance_destroy(instance: int) -> None:
    handles.take(instance, GraphInstance)
