"""Graphs as data: nodes, the work of each, and the order in which they run."""

from __future__ import annotations

import ctypes
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from graphlib import CycleError, TopologicalSorter
from typing import ClassVar

from emulator.adapters.cuda.calls import Code, CudaError, after_call, get, handles, put, refuse_if
from emulator.adapters.cuda.driver.devices import device, space


class Kind(IntEnum):
    """CUgraphNodeType."""

    KERNEL, MEMCPY, MEMSET, HOST, GRAPH, EMPTY, WAIT_EVENT, EVENT_RECORD = range(8)
    MEM_ALLOC, MEM_FREE, CONDITIONAL = 10, 11, 13


class Work:
    """What a node does."""

    kind: ClassVar[Kind] = Kind.EMPTY
    #: the graphs that the work contains
    graphs: Sequence[Graph] = ()

    def run(self) -> None:
        """Does it."""

    def write(self, at: int) -> None:
        """Writes its parameters, laid out as in the union of CUgraphNodeParams."""

    def clone(self) -> Work:
        """The same work for a clone of the graph."""
        return self


@dataclass(eq=False)
class Node:
    """One operation of a graph."""

    work: Work
    #: the nodes that end before it starts
    needs: list[Node] = field(default_factory=list)
    handle: int = 0
    graph: Graph | None = None
    #: False: the node of an instance is skipped
    enabled: bool = True

    def ancestors(self) -> set[Node]:
        """All nodes that end before this one starts."""
        found: set[Node] = set()
        left = list(self.needs)
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left += node.needs
        return found


class UserObject:
    """An object of the program's, with a function that is called when nobody needs it any more."""

    def __init__(self, address: int, destroy: int, count: int) -> None:
        self.address, self.destroy, self.count = address, destroy, count

    def change(self, count: int) -> None:
        """Adds references, or with a negative count takes them away."""
        refuse_if(not 0 < self.count >= -count)
        self.count += count
        if not self.count:
            after_call.append((self.destroy, self.address))


@dataclass(eq=False)
class Condition:
    """The value that conditional nodes ask for. Its handle is its address on the device, where
    kernels write it."""

    default: int
    #: whether each launch of the graph starts with the default
    assigned: bool
    address: int = 0

    def __post_init__(self) -> None:
        self.address = space().allocate(4, "device")
        put(self.address, "I", self.default)
        # An instance may need it longer than its graph.
        weakref.finalize(self, space().forgotten.append, self.address).atexit = False

    @property
    def value(self) -> int:
        return ctypes.c_uint32.from_address(self.address).value

    def start(self) -> None:
        """Called when a launch starts."""
        if self.assigned:
            put(self.address, "I", self.default)


@dataclass(eq=False)
class Graph:
    """Nodes in the order in which they were added."""

    nodes: list[Node] = field(default_factory=list)
    handle: int = 0
    #: for each node of the graph that this one was cloned of, the node here
    clones: dict[Node, Node] = field(default_factory=dict)
    conditions: dict[int, Condition] = field(default_factory=dict)
    #: the graph that this one is part of
    outer: Graph | None = None
    #: references to objects of the program's
    objects: Counter[UserObject] = field(default_factory=Counter)

    def known(self) -> int:
        """Gives the graph a handle."""
        self.handle = handles.add(self)
        return self.handle

    def has_condition(self, address: int) -> bool:
        """Whether a condition is of this graph, or of one that it is part of."""
        return address in self.conditions or (
            self.outer is not None and self.outer.has_condition(address)
        )

    def all_conditions(self) -> Iterator[Condition]:
        """The conditions of this graph and of those within."""
        yield from self.conditions.values()
        for node in self.nodes:
            for graph in node.work.graphs:
                yield from graph.all_conditions()

    def asked_conditions(self) -> set[int]:
        """The conditions that nodes of this graph and of those within ask for."""
        works = [node.work for node in self.nodes]
        asked = {work.condition.address for work in works if isinstance(work, Conditional)}
        within = (graph.asked_conditions() for work in works for graph in work.graphs)
        return asked.union(*within)

    @property
    def has_memory(self) -> bool:
        """Whether nodes allocate or free memory. Such a graph cannot be cloned, nor be a child, and
        its nodes and edges stay (CUDA programming guide, "Graph memory nodes")."""
        return any(node.work.kind in (Kind.MEM_ALLOC, Kind.MEM_FREE) for node in self.nodes)

    def listed(self, address: int, count: int) -> list[Node]:
        """The nodes of a list of handles; CudaError for one that is not of this graph."""
        found = [handles.find(x, Node) for x in (get(address, f"{count}Q") if count else ())]
        refuse_if(any(node.graph is not self for node in found))
        return found

    def add(self, node: Node) -> Node:
        """Adds a node, which gets a handle."""
        node.handle, node.graph = handles.add(node), self
        for graph in node.work.graphs:
            graph.outer = self
        self.nodes.append(node)
        return node

    def remove(self, node: Node) -> None:
        """Removes a node; no other node waits for it any more."""
        self.nodes.remove(node)
        for other in self.nodes:
            other.needs = [need for need in other.needs if need is not node]
        _end(node)

    def clone(self) -> Graph:
        """A graph of its own that does the same."""
        made = Graph()
        made.share_objects(self)
        for node in self.nodes:
            made.clones[node] = made.add(Node(node.work.clone(), enabled=node.enabled))
        for node, twin in made.clones.items():
            twin.needs = [made.clones[need] for need in node.needs]
        return made

    def share_objects(self, other: Graph) -> None:
        """Takes references to the objects of another graph in place of its own ones."""
        before, self.objects = self.objects, Counter(other.objects)
        for held, count in self.objects.items():
            held.change(count)
        for held, count in before.items():
            held.change(-count)

    def twin(self, node: Node) -> Node | None:
        """The node here, or in a graph within, of a node of the graph that this was cloned of."""
        if node in self.clones:
            return self.clones[node]
        within = (graph.twin(node) for own in self.nodes for graph in own.work.graphs)
        return next(filter(None, within), None)

    def release(self) -> None:
        """Ends the handles of the graph and its nodes, and what it holds."""
        if self.handle:
            handles.take(self.handle, Graph)
        for node in self.nodes:
            _end(node)
        self.share_objects(Graph())

    def in_order(self) -> list[Node]:
        """The nodes, each behind those that it waits for.

        Raises CudaError where nodes wait for each other.
        """
        try:
            return list(TopologicalSorter({x: x.needs for x in self.nodes}).static_order())
        except CycleError:
            raise CudaError(Code.INVALID_VALUE) from None

    def run(self) -> None:
        """Does the work of all nodes."""
        for node in self.in_order():
            if node.enabled:
                node.work.run()

    def edges(self) -> list[list[int]]:
        """For each node the positions of those that it waits for."""
        places = {node: i for i, node in enumerate(self.nodes)}
        return [sorted(places[x] for x in node.needs) for node in self.nodes]


def _end(node: Node) -> None:
    handles.take(node.handle, Node)
    for graph in node.work.graphs:
        graph.release()


class Child(Work):
    """A graph as a node."""

    kind = Kind.GRAPH

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        if not graph.handle:
            graph.known()
        self.graphs = (graph,)

    def run(self) -> None:
        self.graph.run()

    def write(self, at: int) -> None:
        put(at, "Q", self.graph.handle)

    def clone(self) -> Child:
        return Child(self.graph.clone())


class Conditional(Work):
    """Graphs that a value chooses from: if, while or switch (CUgraphConditionalNodeType)."""

    kind = Kind.CONDITIONAL
    IF, WHILE, SWITCH = range(3)

    def __init__(self, condition: Condition, choice: int, graphs: Sequence[Graph]) -> None:
        most = (2, 1, len(graphs))
        refuse_if(choice > self.SWITCH or not 0 < len(graphs) <= most[choice])
        self.condition, self.choice, self.graphs = condition, choice, graphs
        self._handles = (ctypes.c_uint64 * len(graphs))(
            *(graph.handle or graph.known() for graph in graphs)
        )

    def run(self) -> None:
        value, bodies = self.condition.value, self.graphs
        if self.choice == self.WHILE:
            while self.condition.value and not device.failed:
                bodies[0].run()
            return
        number = value if self.choice == self.SWITCH else int(not value)
        if number < len(bodies):
            bodies[number].run()

    def write(self, at: int) -> None:
        address = ctypes.addressof(self._handles)
        put(at, "QIIQ", self.condition.address, self.choice, len(self.graphs), address)

    def clone(self) -> Conditional:
        return Conditional(self.condition, self.choice, [graph.clone() for graph in self.graphs])
