"""Graphs: built node by node, cloned, and told to programs; `instances` launches them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

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
    text_at,
)
from emulator.adapters.cuda.driver import launches, memory
from emulator.adapters.cuda.driver.graph_memory import Allocate, Free
from emulator.adapters.cuda.driver.modules import Function
from emulator.adapters.cuda.driver.nodes import (
    Child,
    Condition,
    Conditional,
    Graph,
    Kind,
    Node,
    UserObject,
    Work,
)
from emulator.adapters.cuda.driver.streams import Call, Record, Wait
from emulator.adapters.cuda.tables import Implementation

Read = Callable[[int], Work]
_DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32}
#: where the union of a CUgraphNodeParams begins, and in it the structure of a copy
UNION, BEHIND_FLAGS = 16, 16
_ALL_PARAMETERS = 256
#: CUgraphChildGraphNodeOwnership, CU_GRAPH_COND_ASSIGN_DEFAULT, and flag of references that move
_MOVED, _ASSIGN_DEFAULT, _MOVE = 1, 1, 1
#: the functions of nodes whose parameters are a structure: the word in their names
STRUCTURES = {
    Kind.KERNEL: "Kernel", Kind.MEMCPY: "Memcpy", Kind.MEMSET: "Memset", Kind.HOST: "Host",
}  # fmt: skip
_node = partial(handles.find, kind=Node)
_graph = partial(handles.find, kind=Graph)


# --- parameters -----------------------------------------------------------------------------------


def launch_of(found: Function, what: int) -> Work:
    """The launch of a kernel that a CUDA_KERNEL_NODE_PARAMS describes."""
    _, *sizes, shared, pointers, extra = get(what, "Q7I4xQQ")
    raw = launches.arguments(found, pointers, extra)
    return launches.Launch(found, sizes[:3], sizes[3:], shared, raw)


def _launch_at(what: int) -> Work:
    # The second version may name a CUkernel behind all others.
    handle = get(what, "Q")[0] or get(what + 56, "Q")[0]
    return launch_of(handles.find(handle, Function), what)


def _fill_at(what: int) -> Work:
    to, pitch, value, size, width, height = get(what, "QQIIQQ")
    refuse_if(size not in _DTYPES or not width or not height)
    value &= (1 << 8 * size) - 1
    return memory.Fill(to, pitch, value, width, height, _DTYPES[size])


def _child_at(what: int) -> Work:
    graph, ownership = get(what, "QI")
    found = _graph(graph)
    return Child(found if ownership == _MOVED else _copied(found))


def _copied(graph: Graph) -> Graph:
    """A clone for the program; CudaError for a graph of which there can be no second one."""
    refuse_if(graph.conditions or graph.has_memory, Code.NOT_SUPPORTED)
    return graph.clone()


def _conditional_at(what: int) -> Work:
    handle, choice, size = get(what, "QII")
    known = (graph.conditions.get(handle) for graph in handles.of_kind(Graph))
    condition = present(next(filter(None, known), None))
    made = Conditional(condition, choice, [Graph() for _ in range(size)])
    made.write(what)
    return made


#: how the parameters of a node are read: at the union of a CUgraphNodeParams, a copy behind flags
READERS: Mapping[Kind, Read] = {
    Kind.KERNEL: _launch_at, Kind.MEMCPY: memory.box_at, Kind.MEMSET: _fill_at,
    Kind.HOST: lambda what: Call(*get(what, "QQ")), Kind.EMPTY: lambda _: Work(),
    Kind.WAIT_EVENT: lambda what: Wait(*get(what, "Q")),
    Kind.EVENT_RECORD: lambda what: Record(*get(what, "Q")),
    Kind.GRAPH: _child_at, Kind.CONDITIONAL: _conditional_at,
    Kind.MEM_ALLOC: Allocate.read, Kind.MEM_FREE: lambda what: Free(*get(what, "Q")),
}  # fmt: skip


def work_at(what: int, readers: Mapping[Kind, Read] = READERS) -> Work:
    """The work that a CUgraphNodeParams describes."""
    (kind,) = get(what, "I")
    refuse_if(kind not in readers, Code.NOT_SUPPORTED)
    return readers[Kind(kind)](what + UNION + (BEHIND_FLAGS if kind == Kind.MEMCPY else 0))


# --- nodes ----------------------------------------------------------------------------------------


def add(out: int, graph: int, needs: int, count: int, work: Work) -> None:
    """Adds a node that waits for `count` others, whose handles are at `needs`."""
    found = _graph(graph)
    before = found.listed(needs, count)
    refuse_if(len(set(before)) < len(before))
    if isinstance(work, Conditional) and not found.has_condition(work.condition.address):
        raise CudaError(Code.INVALID_VALUE)
    put(out, "Q", found.add(Node(work, before)).handle)


def node_of_kind(handle: int, kind: Kind) -> Node:
    """The node of a handle. Raises CudaError for one of another kind."""
    node = _node(handle)
    refuse_if(node.work.kind != kind)
    return node


def versions_of(kind: Kind, prefix: str) -> tuple[str, ...]:
    """Endings of a function's names: the driver's of kernels have a version that says more."""
    return ("", "_v2") if kind == Kind.KERNEL and prefix == "cu" else ("",)


def structure_functions(
    register: Callable[..., Callable[[Implementation], Implementation]],
    prefix: str,
    readers: Mapping[Kind, Read],
) -> None:
    """Registers the functions that add and change nodes whose parameters are a structure."""
    for kind, word in STRUCTURES.items():
        versions = versions_of(kind, prefix)
        added = [f"{prefix}GraphAdd{word}Node{version}" for version in versions]
        changed = [f"{prefix}Graph{word}NodeSetParams{version}" for version in versions]
        register(*added)(partial(add_made, lambda what, *_, read=readers[kind]: read(what)))
        register(*changed)(partial(_change, kind, readers[kind]))
    register(f"{prefix}GraphNodeSetParams")(partial(_set_any, readers))
    register(f"{prefix}GraphAddNode{'_v2' if prefix == 'cu' else ''}")(partial(_add_any, readers))


def _add_any(
    readers: Mapping[Kind, Read], out: int, graph: int, needs: int, data: int, count: int, what: int
) -> None:
    add(out, graph, needs, count, work_at(what, readers))


def _set_any(readers: Mapping[Kind, Read], node: int, what: int) -> None:
    work = work_at(what, readers)
    node_of_kind(node, work.kind).work = work


def add_made(
    make: Callable[..., Work], out: int, graph: int, needs: int, count: int, *given: int
) -> None:
    """Adds a node with the work that is made of the arguments behind."""
    add(out, graph, needs, count, make(*given))


def _change(kind: Kind, read: Read, node: int, what: int) -> None:
    node_of_kind(node, kind).work = read(what)


structure_functions(driver, "cu", READERS)
_MADE: dict[str, Callable[..., Work]] = {
    "Empty": Work, "ChildGraph": lambda child: Child(_copied(_graph(child))),
    "EventRecord": Record, "EventWait": Wait, "MemAlloc": Allocate.read, "MemFree": Free,
}  # fmt: skip
for _name, _make in _MADE.items():
    driver(f"cuGraphAdd{_name}Node")(partial(add_made, _make))


@driver("cuGraphNodeGetParams")
def parameters(node: int, what: int) -> None:
    work = _node(node).work
    ctypes.memset(what, 0, _ALL_PARAMETERS)
    put(what, "I", work.kind)
    work.write(what + UNION)


def _tell(kind: Kind, size: int, skipped: int, node: int, out: int) -> None:
    """Tells the parameters of a node as the structure of its kind."""
    room = ctypes.create_string_buffer(_ALL_PARAMETERS)
    node_of_kind(node, kind).work.write(ctypes.addressof(room))
    ctypes.memmove(out, room.raw[skipped:], size)


for _name, _kind, _size, _skipped in (
    ("Kernel", Kind.KERNEL, 56, 0), ("Memcpy", Kind.MEMCPY, 200, BEHIND_FLAGS),
    ("Memset", Kind.MEMSET, 40, 0), ("Host", Kind.HOST, 16, 0),
    ("MemAlloc", Kind.MEM_ALLOC, 120, 0), ("MemFree", Kind.MEM_FREE, 8, 0),
):  # fmt: skip
    driver(f"cuGraph{_name}NodeGetParams")(partial(_tell, _kind, _size, _skipped))
driver("cuGraphKernelNodeGetParams_v2")(partial(_tell, Kind.KERNEL, 72, 0))
driver("cuGraphChildGraphNodeGetGraph")(partial(_tell, Kind.GRAPH, 8, 0))
driver("cuGraphEventRecordNodeGetEvent")(partial(_tell, Kind.EVENT_RECORD, 8, 0))
driver("cuGraphEventWaitNodeGetEvent")(partial(_tell, Kind.WAIT_EVENT, 8, 0))


# --- graphs ---------------------------------------------------------------------------------------


@driver("cuGraphNodeFindInClone")
def find_in_clone(out: int, node: int, graph: int) -> None:
    put(out, "Q", present(_graph(graph).twin(_node(node))).handle)


@driver("cuGraphDestroyNode")
def destroy_node(node: int) -> None:
    found = _node(node)
    if found.graph is None or found.graph.has_memory:
        raise CudaError(Code.NOT_SUPPORTED)
    found.graph.remove(found)


@driver("cuGraphConditionalHandleCreate")
def create_condition(out: int, graph: int, context: int, default: int, flags: int) -> None:
    made = Condition(default, bool(flags & _ASSIGN_DEFAULT))
    _graph(graph).conditions[made.address] = made
    put(out, "Q", made.address)


@driver("cuGraphDebugDotPrint")
def print_dot(graph: int, path: int, flags: int) -> None:
    found = _graph(graph)
    rows = [f'  "{x.handle}" [label="{x.work.kind.name}"];' for x in found.nodes]
    rows += [f'  "{x.handle}" -> "{node.handle}";' for node in found.nodes for x in node.needs]
    try:
        Path(text_at(path)).write_text("\n".join(["digraph dot {", *rows, "}", ""]))
    except OSError:
        raise CudaError(Code.INVALID_VALUE) from None


# --- objects of the program's ---------------------------------------------------------------------


@driver("cuUserObjectCreate")
def create_object(out: int, address: int, function: int, count: int, flags: int) -> None:
    refuse_if(not function or not count)
    put(out, "Q", handles.add(UserObject(address, function, count)))


@driver("cuGraphRetainUserObject")
def retain_in_graph(graph: int, held: int, count: int, flags: int) -> None:
    found = handles.find(held, UserObject)
    _graph(graph).objects[found] += count
    if not flags & _MOVE:
        found.change(count)


@driver("cuGraphReleaseUserObject")
def release_in_graph(graph: int, held: int, count: int) -> None:
    found, objects = handles.find(held, UserObject), _graph(graph).objects
    refuse_if(objects[found] < count)
    objects[found] -= count
    if not objects[found]:
        del objects[found]
    found.change(-count)


# --- what a graph consists of ---------------------------------------------------------------------


def _listed(found: Iterable[Node], out: int, count: int) -> None:
    """Tells how many nodes there are, or fills a list of so many handles with them and null."""
    known = [node.handle for node in found]
    if out:
        (room,) = get(count, "Q")
        shown = known[:room]
        put(out, f"{room}Q", *shown, *[0] * (room - len(shown)))
        known = shown
    put(count, "Q", len(known))


@driver("cuGraphGetEdges_v2")
def edges_of(graph: int, first: int, last: int, data: int, count: int) -> None:
    nodes = _graph(graph).nodes
    edges = [(need.handle, node.handle) for node in nodes for need in node.needs]
    if first and last:
        (room,) = get(count, "Q")
        edges = edges[:room]
        put(first, f"{len(edges)}Q", *(one for one, _ in edges))
        put(last, f"{len(edges)}Q", *(other for _, other in edges))
        put(data, f"{8 * len(edges)}x")
    put(count, "Q", len(edges))


@driver("cuGraphNodeGetDependentNodes_v2")
def dependents_of(node: int, out: int, data: int, count: int) -> None:
    found = _node(node)
    nodes = found.graph.nodes if found.graph else []
    _listed([x for x in nodes if found in x.needs], out, count)


def _edges(graph: int, first: int, last: int, count: int) -> list[tuple[Node, Node]]:
    found = _graph(graph)
    return list(zip(found.listed(first, count), found.listed(last, count), strict=True))


@driver("cuGraphAddDependencies_v2")
def add_dependencies(graph: int, first: int, last: int, data: int, count: int) -> None:
    for one, other in _edges(graph, first, last, count):
        refuse_if(one in other.needs or one is other)
        other.needs = [*other.needs, one]


@driver("cuGraphRemoveDependencies_v2")
def remove_dependencies(graph: int, first: int, last: int, data: int, count: int) -> None:
    refuse_if(_graph(graph).has_memory, Code.NOT_SUPPORTED)
    for one, other in _edges(graph, first, last, count):
        refuse_if(one not in other.needs)
        other.needs = [need for need in other.needs if need is not one]


DRIVER |= {
    "cuGraphEventRecordNodeSetEvent": partial(_change, Kind.EVENT_RECORD, Record),
    "cuGraphEventWaitNodeSetEvent": partial(_change, Kind.WAIT_EVENT, Wait),
    "cuGraphCreate": lambda out, flags: put(out, "Q", Graph().known()),
    "cuGraphClone": lambda out, graph: put(out, "Q", _copied(_graph(graph)).known()),
    "cuGraphDestroy": lambda graph: _graph(graph).release(),
    "cuUserObjectRetain": lambda held, count: handles.find(held, UserObject).change(count),
    "cuUserObjectRelease": lambda held, count: handles.find(held, UserObject).change(-count),
    "cuGraphGetNodes": lambda graph, out, count: _listed(_graph(graph).nodes, out, count),
    "cuGraphGetRootNodes": lambda graph, out, count: _listed(
        [x for x in _graph(graph).nodes if not x.needs], out, count
    ),
    "cuGraphNodeGetType": lambda node, out: put(out, "I", _node(node).work.kind),
    "cuGraphNodeGetContainingGraph": lambda node, out: put(
        out, "Q", getattr(_node(node).graph, "handle", 0)
    ),
    "cuGraphNodeGetDependencies_v2": lambda node, out, data, count: _listed(
        _node(node).needs, out, count
    ),
}
