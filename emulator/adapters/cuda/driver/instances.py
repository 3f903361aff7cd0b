"""Graphs that can be launched: instances, their launches and updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from emulator.adapters.cuda.calls import (
    DRIVER,
    Code,
    CudaError,
    driver,
    get,
    handles,
    present,
    put,
    refuse_if,
)
from emulator.adapters.cuda.driver.devices import check_error
from emulator.adapters.cuda.driver.graph_memory import Allocate, graph_memory
from emulator.adapters.cuda.driver.graphs import READERS, STRUCTURES, Read, versions_of, work_at
from emulator.adapters.cuda.driver.nodes import Child, Conditional, Graph, Kind, Node, Work
from emulator.adapters.cuda.driver.streams import Record, Wait, stream_of, submit
from emulator.adapters.cuda.tables import Implementation

#: flag of instances whose launch frees what the one before has left allocated
_FREE_FIRST = 1
#: CUgraphExecUpdateResult
_OTHER_TOPOLOGY, _OTHER_KIND = 2, 3


class GraphInstance(Work):
    """A clone of a graph, in the order in which its nodes run."""

    kind = Kind.GRAPH

    def __init__(self, source: Graph, flags: int) -> None:
        self.conditions = list(source.all_conditions())
        refuse_if(len({x.address for x in self.conditions} - source.asked_conditions()))
        is_single = bool(self.conditions) or source.has_memory
        if is_single and any(one.source is source for one in handles.of_kind(GraphInstance)):
            raise CudaError(Code.NOT_SUPPORTED)
        self.source: Graph = source
        self.flags = flags
        self.graph = source.clone()
        self.nodes = self.graph.in_order()

    def node(self, handle: int) -> Node:
        """The node here of one of the graph that this is an instance of."""
        return present(self.graph.twin(handles.find(handle, Node)))

    def set(self, handle: int, work: Work) -> None:
        """Changes what a node does from now on."""
        found = self.node(handle)
        refuse_if(found.work.kind != work.kind)
        found.work = work

    def run(self) -> None:
        for condition in self.conditions:
            condition.start()
        for node in self.nodes:
            held = node.work.block if isinstance(node.work, Allocate) else None
            if held and held.stream is not None and self.flags & _FREE_FIRST:
                held.end()
            if node.enabled:
                node.work.run()


_instance = partial(handles.find, kind=GraphInstance)


@driver("cuGraphUpload")
def upload(instance: int, stream: int) -> None:
    _instance(instance)


@driver("cuGraphInstantiateWithParams")
def instantiate_with(out: int, graph: int, what: int) -> None:
    (flags,) = get(what, "Q")
    put(what + 16, "QI", 0, 1)
    put(out, "Q", handles.add(GraphInstance(handles.find(graph, Graph), flags)))
    put(what + 24, "I", 0)


@driver("cuGraphLaunch")
def launch(instance: int, stream: int) -> None:
    check_error()
    if stream_of(stream).capture is None:
        graph_memory.stream = stream
    submit(stream, _instance(instance))


def _difference(one: Graph, other: Graph) -> tuple[int, Node | None]:
    """Why an instance of one graph cannot become one of the other: a CUgraphExecUpdateResult, and
    the node of the other."""
    edges, given_edges = one.edges(), other.edges()
    if len(edges) != len(given_edges):
        return _OTHER_TOPOLOGY, None
    for needs, given_needs, given in zip(edges, given_edges, other.nodes, strict=True):
        if needs != given_needs:
            return _OTHER_TOPOLOGY, given
    for node, given in zip(one.nodes, other.nodes, strict=True):
        if node.work.kind != given.work.kind:
            return _OTHER_KIND, given
        for within, new in zip(node.work.graphs, given.work.graphs, strict=False):
            if (found := _difference(within, new))[0]:
                return found
    return 0, None


@driver("cuGraphExecUpdate_v2")
def update(instance: int, graph: int, result: int) -> int:
    found, given = _instance(instance), handles.find(graph, Graph)
    why, node = _difference(found.graph, given)
    put(result, "I4xQQ", why, node.handle if node else 0, 0)
    if why:
        return Code.GRAPH_UPDATE_FAILED
    _adopt(found.graph, given)
    found.conditions = list(given.all_conditions())
    return 0


def _adopt(graph: Graph, given: Graph) -> None:
    """Gives the nodes of a graph the work of another graph of the same shape."""
    for own, other in zip(graph.nodes, given.nodes, strict=True):
        for within, new in zip(own.work.graphs, other.work.graphs, strict=False):
            _adopt(within, new)
        if isinstance(own.work, Conditional) and isinstance(other.work, Conditional):
            own.work.condition = other.work.condition
        elif not own.work.graphs:
            own.work = other.work
    graph.share_objects(given)


# --- nodes of an instance -------------------------------------------------------------------------


def structure_functions(
    register: Callable[..., Callable[[Implementation], Implementation]],
    prefix: str,
    readers: Mapping[Kind, Read],
) -> None:
    """Registers the functions that change nodes whose parameters are a structure."""
    for kind, word in STRUCTURES.items():
        versions = versions_of(kind, prefix)
        names = [f"{prefix}GraphExec{word}NodeSetParams{version}" for version in versions]
        register(*names)(partial(set_made, lambda what, *_, read=readers[kind]: read(what)))
    register(f"{prefix}GraphExecNodeSetParams")(
        partial(set_made, lambda what, *_: work_at(what, readers))
    )


def set_made(make: Callable[..., Work], instance: int, node: int, *given: int) -> None:
    """Gives a node of an instance the work that is made of the arguments behind."""
    _instance(instance).set(node, make(*given))


structure_functions(driver, "cu", READERS)
driver("cuGraphExecEventRecordNodeSetEvent")(partial(set_made, Record))
driver("cuGraphExecEventWaitNodeSetEvent")(partial(set_made, Wait))


@driver("cuGraphExecChildGraphNodeSetParams")
def set_child(instance: int, node: int, graph: int) -> None:
    found, given = _instance(instance), handles.find(graph, Graph)
    own = found.node(node).work
    if not isinstance(own, Child) or _difference(own.graph, given)[0]:
        raise CudaError(Code.INVALID_VALUE)
    _adopt(own.graph, given)


def _enable(instance: int, node: int, value: int) -> None:
    _instance(instance).node(node).enabled = bool(value)


DRIVER |= {
    "cuGraphInstantiateWithFlags": lambda out, graph, flags: put(
        out, "Q", handles.add(GraphInstance(handles.find(graph, Graph), flags))
    ),
    "cuGraphExecGetFlags": lambda instance, out: put(out, "Q", _instance(instance).flags),
    "cuGraphExecDestroy": lambda instance: handles.take(instance, GraphInstance).graph.release(),
    "cuGraphNodeSetEnabled": _enable,
    "cuGraphNodeGetEnabled": lambda instance, node, out: put(
        out, "I", int(_instance(instance).node(node).enabled)
    ),
}
