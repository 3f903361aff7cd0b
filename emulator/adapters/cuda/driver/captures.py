"""Captures of streams into graphs."""

from __future__ import annotations

import ctypes
from typing import Any

from emulator.adapters.cuda.calls import DRIVER, Code, CudaError, driver, handles, put, refuse_if
from emulator.adapters.cuda.driver.nodes import Graph, Node
from emulator.adapters.cuda.driver.streams import Capture, Stream, stream_of

#: the legacy default stream, which cannot be captured
_LEGACY = (0, 1)
_ADD, _SET = range(2)
#: CUstreamCaptureStatus
_NONE, _ACTIVE, _INVALID = range(3)
#: lists of nodes that programs were told of, by stream
_told: dict[int, Any] = {}


def _begin(handle: int, graph: Graph, tails: list[Node]) -> None:
    stream = stream_of(handle)
    refuse_if(handle in _LEGACY, Code.CAPTURE_UNSUPPORTED)
    refuse_if(stream.capture is not None, Code.ILLEGAL_STATE)
    Capture(graph, handle).join(stream, tails)


@driver("cuStreamEndCapture")
def end(stream: int, out: int) -> None:
    capture = stream_of(stream).capture
    put(out, "Q", 0)
    if capture is None:
        raise CudaError(Code.ILLEGAL_STATE)
    if stream != capture.origin:
        capture.invalid = True
        raise CudaError(Code.CAPTURE_UNMATCHED)
    is_joined = _is_joined(capture, stream_of(stream))
    capture.end()
    refuse_if(capture.invalid, Code.CAPTURE_INVALIDATED)
    if not is_joined:
        capture.invalid = True
        raise CudaError(Code.CAPTURE_UNJOINED)
    put(out, "Q", capture.graph.handle or capture.graph.known())


def _is_joined(capture: Capture, origin: Stream) -> bool:
    """Whether the origin waits for all that other streams captured."""
    reached = set(origin.tails).union(*(node.ancestors() for node in origin.tails))
    return all(reached.issuperset(stream.tails) for stream in capture.streams)


@driver("cuStreamIsCapturing")
def is_capturing(stream: int, out: int) -> None:
    capture = stream_of(stream).capture
    put(out, "I", _NONE if capture is None else _INVALID if capture.invalid else _ACTIVE)


@driver("cuStreamGetCaptureInfo_v3")
def info(stream: int, out: int, mark: int, graph: int, needs: int, data: int, count: int) -> None:
    is_capturing(stream, out)
    capture = stream_of(stream).capture
    if capture is None:
        return
    put(mark, "Q", id(capture))
    put(graph, "Q", capture.graph.handle or capture.graph.known())
    tails = [node.handle for node in stream_of(stream).tails]
    # Behind the handles is the data of the edges, which is all zeros.
    told = _told[stream] = (ctypes.c_uint64 * (2 * max(1, len(tails))))(*tails)
    put(needs, "Q", ctypes.addressof(told))
    put(data, "Q", ctypes.addressof(told) + 4 * len(told))
    put(count, "Q", len(tails))


@driver("cuStreamUpdateCaptureDependencies_v2")
def update(stream: int, needs: int, data: int, count: int, flags: int) -> None:
    found = stream_of(stream)
    if found.capture is None or flags not in (_ADD, _SET):
        raise CudaError(Code.INVALID_VALUE)
    given = found.capture.graph.listed(needs, count)
    kept = found.tails if flags == _ADD else []
    found.tails = list(dict.fromkeys([*kept, *given]))


def _begin_in(stream: int, graph: int, needs: int, data: int, count: int, mode: int) -> None:
    found = handles.find(graph, Graph)
    _begin(stream, found, found.listed(needs, count))


DRIVER |= {
    "cuStreamBeginCapture_v2": lambda stream, mode: _begin(stream, Graph(), []),
    "cuStreamBeginCaptureToGraph": _begin_in,
}
