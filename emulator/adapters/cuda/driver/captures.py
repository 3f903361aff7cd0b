"""Captures of streams into graphs."""

from __future__ import annotations

import ctypes
from typing import Any

from emulator.adapters.cuda.calls import INVALID_VALUE, CudaError, driver, get, handles, put
from emulator.adapters.cuda.driver.nodes import Graph, Node
from emulator.adapters.cuda.driver.streams import INVALIDATED, Capture, Stream, stream_of

#: the legacy default stream, which cannot be captured
_LEGACY = (0, 1)
#: CUDA_ERROR_ILLEGAL_STATE and CUDA_ERROR_STREAM_CAPTURE_*
_ILLEGAL_STATE, _UNSUPPORTED, _UNMATCHED, _UNJOINED = 401, 900, 903, 904
_ADD, _SET = range(2)
#: CUstreamCaptureStatus
_NONE, _ACTIVE, _INVALID = range(3)
#: lists of nodes that programs were told of, by stream
_told: dict[int, Any] = {}


def _begin(handle: int, graph: Graph, tails: list[Node]) -> None:
    stream = stream_of(handle)
    if handle in _LEGACY:
        raise CudaError(_UNSUPPORTED)
    if stream.capture is not None:
        raise CudaError(_ILLEGAL_STATE)
    Capture(graph, handle).join(stream, tails)


def _nodes(graph: Graph, address: int, count: int) -> list[Node]:
    """The nodes of a graph from a list of handles."""
    found = [handles.find(x, Node) for x in (get(address, f"{count}Q") if count else ())]
    if any(node.graph is not graph for node in found):
        raise CudaError(INVALID_VALUE)
    return found


@driver("cuStreamBeginCapture_v2")
def begin(stream: int, mode: int) -> None:
    _begin(stream, Graph(), [])


@driver("cuStreamBeginCaptureToGraph")
def begin_in(stream: int, graph: int, needs: int, data: int, count: int, mode: int) -> None:
    found = handles.find(graph, Graph)
    _begin(stream, found, _nodes(found, needs, count))


@driver("cuStreamEndCapture")
def end(stream: int, out: int) -> None:
    capture = stream_of(stream).capture
    put(out, "Q", 0)
    if capture is None:
        raise CudaError(_ILLEGAL_STATE)
    if stream != capture.origin:
        capture.invalid = True
        raise CudaError(_UNMATCHED)
    is_joined = _is_joined(capture, stream_of(stream))
    capture.end()
    if capture.invalid:
        raise CudaError(INVALIDATED)
    if not is_joined:
        capture.invalid = True
        raise CudaError(_UNJOINED)
    put(out, "Q", capture.graph.handle or capture.graph.known())


def _is_joined(capture: Capture, origin: Stream) -> bool:
    """Whether the origin waits for all that other streams captured."""
    reached = set(origin.tails).union(*(node.ancestors() for node in origin.tails))
    return all(reached.issuperset(stream.tails) for stream in capture.streams)


@driver("cuStreamIsCapturing")
def is_capturing(stream: int, out: int) -> None:
    capture = stream_of(stream).capture
    put(out, "I", _NONE if capture is None else _INVALID if capture.invalid else _ACTIVE)


@driver("cuStreamGetCaptureInfo_v2")
def info(
    stream: int, out: int, identifier: int = 0, graph: int = 0, needs: int = 0, count: int = 0
) -> None:
    is_capturing(stream, out)
    capture = stream_of(stream).capture
    if capture is None:
        return
    put(identifier, "Q", id(capture))
    put(graph, "Q", capture.graph.handle or capture.graph.known())
    tails = [node.handle for node in stream_of(stream).tails]
    # Behind the handles is the data of the edges, which is all zeros.
    _told[stream] = (ctypes.c_uint64 * (2 * max(1, len(tails))))(*tails)
    put(needs, "Q", ctypes.addressof(_told[stream]))
    put(count, "Q", len(tails))


@driver("cuStreamGetCaptureInfo_v3")
def info_with_data(
    stream: int,
    out: int,
    identifier: int = 0,
    graph: int = 0,
    needs: int = 0,
    data: int = 0,
    count: int = 0,
) -> None:
    info(stream, out, identifier, graph, needs, count)
    if stream_of(stream).capture is not None:
        tails = _told[stream]
        put(data, "Q", ctypes.addressof(tails) + 4 * len(tails))


@driver("cuStreamUpdateCaptureDependencies_v2")
def update(stream: int, needs: int, data: int, count: int, flags: int) -> None:
    found = stream_of(stream)
    if found.capture is None or flags not in (_ADD, _SET):
        raise CudaError(INVALID_VALUE)
    given = _nodes(found.capture.graph, needs, count)
    kept = found.tails if flags == _ADD else []
    found.tails = list(dict.fromkeys([*kept, *given]))


@driver("cuStreamUpdateCaptureDependencies")
def update_without_data(stream: int, needs: int, count: int, flags: int) -> None:
    update(stream, needs, 0, count, flags)
