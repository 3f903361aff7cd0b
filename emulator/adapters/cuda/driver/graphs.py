"""Graphs: built node by node, cloned, instantiated, updated and launched."""

from __future__ import annotations

import numpy as np

from emulator.adapters.cuda.calls import INVALID_VALUE, CudaError, driver, get, handles, put
from emulator.adapters.cuda.driver import launches, memory
from emulator.adapters.cuda.driver.devices import check_device, check_error
from emulator.adapters.cuda.driver.modules import Function
from emulator.adapters.cuda.driver.nodes import Graph, Kind, Node, Operation
from emulator.adapters.cuda.driver.streams import (
    event_record,
    host_call,
    stream_of,
    submit,
    wait_event,
)

#: CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, and CUgraphExecUpdateResult where the shapes differ
_UPDATE_FAILED, _OTHER_TOPOLOGY = 910, 2
_DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class GraphInstance:
    """A graph that can be launched: a clone of one, in the order in which its nodes run."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph.clone()
        self.nodes = self.graph.in_order()

    def node(self, handle: int, kind: Kind) -> Node:
        """The node here of one of the graph that this is an instance of."""
        given = handles.find(handle, Node)
        found = self.graph.clones.get(given)
        if found is None or found.kind != kind:
            raise CudaError(INVALID_VALUE)
        return found


# --- nodes ----------------------------------------------------------------------------------------


def add(
    out: int, graph: int, needs: int, count: int, kind: Kind, operation: Operation, address: int = 0
) -> None:
    """Adds a node that waits for `count` others, whose handles are at `needs`."""
    found = handles.find(graph, Graph)
    before = [_node_of(found, handle) for handle in (get(needs, f"{count}Q") if count else ())]
    put(out, "Q", found.add(Node(kind, operation, before, address)).handle)


def _node_of(graph: Graph, handle: int) -> Node:
    node = handles.find(handle, Node)
    if node not in graph.nodes:
        raise CudaError(INVALID_VALUE)
    return node


def kernel_launch(found: Function, what: int) -> Operation:
    """The launch that a CUDA_KERNEL_NODE_PARAMS describes."""
    _, gx, gy, gz, bx, by, bz, shared, pointers, extra = get(what, "Q7I4xQQ")
    raw = launches.arguments(found, pointers, extra)
    return launches.launching(found, (gx, gy, gz), (bx, by, bz), shared, raw)


def _kernel_at(what: int) -> Operation:
    return kernel_launch(handles.find(get(what, "Q")[0], Function), what)


@driver("cuGraphAddKernelNode", "cuGraphAddKernelNode_v2")
def add_kernel(out: int, graph: int, needs: int, count: int, what: int) -> None:
    add(out, graph, needs, count, Kind.KERNEL, _kernel_at(what))


@driver("cuGraphAddMemcpyNode")
def add_copy(out: int, graph: int, needs: int, count: int, what: int, context: int) -> None:
    add(out, graph, needs, count, Kind.MEMCPY, memory.box_at(what).copy)


def fill_at(what: int) -> Operation:
    """The fill that a CUDA_MEMSET_NODE_PARAMS describes."""
    to, pitch, value, size, width, height = get(what, "QQIIQQ")
    if size not in _DTYPES:
        raise CudaError(INVALID_VALUE)
    value &= (1 << 8 * size) - 1
    return memory.filling(to, pitch, value, width, height, _DTYPES[size])


@driver("cuGraphAddMemsetNode")
def add_fill(out: int, graph: int, needs: int, count: int, what: int, context: int = 0) -> None:
    add(out, graph, needs, count, Kind.MEMSET, fill_at(what))


@driver("cuGraphAddHostNode")
def add_host(out: int, graph: int, needs: int, count: int, what: int) -> None:
    add(out, graph, needs, count, Kind.HOST, host_call(*get(what, "QQ")))


@driver("cuGraphAddEmptyNode")
def add_empty(out: int, graph: int, needs: int, count: int) -> None:
    add(out, graph, needs, count, Kind.EMPTY, lambda: None)


@driver("cuGraphAddChildGraphNode")
def add_child(out: int, graph: int, needs: int, count: int, child: int) -> None:
    nodes = handles.find(child, Graph).in_order()
    operations = [node.operation for node in nodes]

    def run() -> None:
        for operation in operations:
            operation()

    add(out, graph, needs, count, Kind.GRAPH, run)


@driver("cuGraphAddEventRecordNode")
def add_event_record(out: int, graph: int, needs: int, count: int, event: int) -> None:
    add(out, graph, needs, count, Kind.EVENT_RECORD, lambda: event_record(event, 0))


@driver("cuGraphAddEventWaitNode")
def add_event_wait(out: int, graph: int, needs: int, count: int, event: int) -> None:
    add(out, graph, needs, count, Kind.WAIT_EVENT, lambda: wait_event(0, event, 0))


@driver("cuGraphAddMemAllocNode")
def add_allocation(out: int, graph: int, needs: int, count: int, what: int) -> None:
    # Behind the properties of the pool and the access: bytes, and where the address goes.
    (size,) = get(what + 104, "Q")
    block = memory.graph_memory.block(size)
    add(out, graph, needs, count, Kind.MEM_ALLOC, block.begin, block.address)
    put(what + 112, "Q", block.address)


@driver("cuGraphAddMemFreeNode")
def add_free(out: int, graph: int, needs: int, count: int, address: int) -> None:
    block = memory.graph_memory.find(address)
    add(out, graph, needs, count, Kind.MEM_FREE, block.end, address)


@driver("cuGraphMemAllocNodeGetParams")
def allocation_parameters(node: int, what: int) -> None:
    found = handles.find(node, Node)
    put(what + 104, "QQ", memory.graph_memory.find(found.address).size, found.address)


@driver("cuGraphMemFreeNodeGetParams")
def free_parameters(node: int, out: int) -> None:
    put(out, "Q", handles.find(node, Node).address)


# --- graphs ---------------------------------------------------------------------------------------


def _known(graph: Graph) -> int:
    graph.handle = handles.add(graph)
    return graph.handle


@driver("cuGraphCreate")
def create(out: int, _: int) -> None:
    put(out, "Q", _known(Graph()))


@driver("cuGraphClone")
def clone(out: int, graph: int) -> None:
    put(out, "Q", _known(handles.find(graph, Graph).clone()))


@driver("cuGraphNodeFindInClone")
def find_in_clone(out: int, node: int, graph: int) -> None:
    found = handles.find(graph, Graph).clones.get(handles.find(node, Node))
    if found is None:
        raise CudaError(INVALID_VALUE)
    put(out, "Q", found.handle)


@driver("cuGraphDestroy")
def destroy(graph: int) -> None:
    handles.take(graph, Graph).release()


@driver("cuGraphDestroyNode")
def destroy_node(node: int) -> None:
    found = handles.take(node, Node)
    for graph in handles.of_kind(Graph):
        if found in graph.nodes:
            graph.nodes.remove(found)
            for other in graph.nodes:
                other.needs = [need for need in other.needs if need is not found]


def _listed(found: list[Node], out: int, count: int) -> None:
    """Tells how many nodes there are, or fills a list of so many handles with them and null."""
    if out:
        (room,) = get(count, "Q")
        shown = [node.handle for node in found[:room]]
        put(out, f"{room}Q", *shown, *[0] * (room - len(shown)))
        put(count, "Q", len(shown))
    else:
        put(count, "Q", len(found))


@driver("cuGraphGetNodes")
def nodes_of(graph: int, out: int, count: int) -> None:
    _listed(handles.find(graph, Graph).nodes, out, count)


@driver("cuGraphGetRootNodes")
def roots_of(graph: int, out: int, count: int) -> None:
    _listed([x for x in handles.find(graph, Graph).nodes if not x.needs], out, count)


@driver("cuGraphGetEdges_v2")
def edges_of(graph: int, first: int, last: int, data: int, count: int) -> None:
    nodes = handles.find(graph, Graph).nodes
    edges = [(need.handle, node.handle) for node in nodes for need in node.needs]
    if first and last:
        (room,) = get(count, "Q")
        edges = edges[:room]
        put(first, f"{len(edges)}Q", *(one for one, _ in edges))
        put(last, f"{len(edges)}Q", *(other for _, other in edges))
        put(data, f"{8 * len(edges)}x")
    put(count, "Q", len(edges))


@driver("cuGraphGetEdges")
def edges_without_data(graph: int, first: int, last: int, count: int) -> None:
    edges_of(graph, first, last, 0, count)


@driver("cuGraphNodeGetType")
def kind_of(node: int, out: int) -> None:
    put(out, "I", handles.find(node, Node).kind)


@driver("cuGraphNodeGetDependencies_v2")
def dependencies_of(node: int, out: int, data: int, count: int) -> None:
    _listed(handles.find(node, Node).needs, out, count)


@driver("cuGraphNodeGetDependentNodes_v2")
def dependents_of(node: int, out: int, data: int, count: int) -> None:
    found = handles.find(node, Node)
    graphs = [graph for graph in handles.of_kind(Graph) if found in graph.nodes]
    _listed([x for graph in graphs for x in graph.nodes if found in x.needs], out, count)


@driver("cuGraphNodeGetDependencies")
def dependencies_without_data(node: int, out: int, count: int) -> None:
    dependencies_of(node, out, 0, count)


@driver("cuGraphNodeGetDependentNodes")
def dependents_without_data(node: int, out: int, count: int) -> None:
    dependents_of(node, out, 0, count)


def _edges(graph: int, first: int, last: int, count: int) -> list[tuple[Node, Node]]:
    found = handles.find(graph, Graph)
    pairs = zip(get(first, f"{count}Q"), get(last, f"{count}Q"), strict=True) if count else ()
    return [(_node_of(found, one), _node_of(found, other)) for one, other in pairs]


@driver("cuGraphAddDependencies_v2")
def add_dependencies(graph: int, first: int, last: int, data: int, count: int) -> None:
    for one, other in _edges(graph, first, last, count):
        if one in other.needs or one is other:
            raise CudaError(INVALID_VALUE)
        other.needs = [*other.needs, one]


@driver("cuGraphRemoveDependencies_v2")
def remove_dependencies(graph: int, first: int, last: int, data: int, count: int) -> None:
    for one, other in _edges(graph, first, last, count):
        if one not in other.needs:
            raise CudaError(INVALID_VALUE)
        other.needs = [need for need in other.needs if need is not one]


@driver("cuGraphAddDependencies")
def add_plain_dependencies(graph: int, first: int, last: int, count: int) -> None:
    add_dependencies(graph, first, last, 0, count)


@driver("cuGraphRemoveDependencies")
def remove_plain_dependencies(graph: int, first: int, last: int, count: int) -> None:
    remove_dependencies(graph, first, last, 0, count)


# --- instances ------------------------------------------------------------------------------------


@driver("cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams")
def instantiate(out: int, graph: int, _: int) -> None:
    put(out, "Q", handles.add(GraphInstance(handles.find(graph, Graph))))


@driver("cuGraphLaunch")
def launch(instance: int, stream: int) -> None:
    check_error()
    found = handles.find(instance, GraphInstance)
    if stream_of(stream).graph is None:
        memory.graph_memory.stream = stream

    def run() -> None:
        for node in found.nodes:
            node.operation()

    submit(stream, run, Kind.GRAPH)


@driver("cuGraphUpload")
def upload(instance: int, stream: int) -> None:
    handles.find(instance, GraphInstance)


@driver("cuGraphExecDestroy")
def instance_destroy(instance: int) -> None:
    handles.take(instance, GraphInstance).graph.release()


@driver("cuGraphExecUpdate_v2")
def update(instance: int, graph: int, result: int) -> int:
    found, given = handles.find(instance, GraphInstance), handles.find(graph, Graph)
    same = found.graph.shape() == given.shape()
    put(result, "I4xQQ", 0 if same else _OTHER_TOPOLOGY, 0, 0)
    if not same:
        return _UPDATE_FAILED
    for node, other in zip(found.graph.nodes, given.nodes, strict=True):
        node.operation, node.address = other.operation, other.address
    return 0


def set_operation(instance: int, node: int, kind: Kind, operation: Operation) -> None:
    """What a node of an instance does from now on."""
    handles.find(instance, GraphInstance).node(node, kind).operation = operation


@driver("cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2")
def set_kernel(instance: int, node: int, what: int) -> None:
    set_operation(instance, node, Kind.KERNEL, _kernel_at(what))


@driver("cuGraphExecMemcpyNodeSetParams")
def set_copy(instance: int, node: int, what: int, context: int) -> None:
    set_operation(instance, node, Kind.MEMCPY, memory.box_at(what).copy)


@driver("cuGraphExecMemsetNodeSetParams")
def set_fill(instance: int, node: int, what: int, context: int = 0) -> None:
    set_operation(instance, node, Kind.MEMSET, fill_at(what))


@driver("cuGraphExecHostNodeSetParams")
def set_host(instance: int, node: int, what: int) -> None:
    set_operation(instance, node, Kind.HOST, host_call(*get(what, "QQ")))


@driver("cuGraphKernelNodeSetParams", "cuGraphKernelNodeSetParams_v2")
def set_kernel_of_graph(node: int, what: int) -> None:
    handles.find(node, Node).operation = _kernel_at(what)


# --- memory of graphs -----------------------------------------------------------------------------


@driver("cuDeviceGetGraphMemAttribute")
def memory_attribute(number: int, which: int, out: int) -> None:
    check_device(number)
    if which > 3:
        raise CudaError(INVALID_VALUE)
    graph_memory = memory.graph_memory
    put(out, "Q", graph_memory.most if which in (1, 3) else graph_memory.held)


@driver("cuDeviceGraphMemTrim")
def memory_trim(number: int) -> None:
    check_device(number)
    memory.graph_memory.trim()
