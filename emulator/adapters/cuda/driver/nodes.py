"""Graphs as data: nodes, what each waits for, and the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from emulator.adapters.cuda.calls import INVALID_VALUE, CudaError, handles

Operation = Callable[[], object]


class Kind(IntEnum):
    """CUgraphNodeType."""

    KERNEL, MEMCPY, MEMSET, HOST, GRAPH, EMPTY, WAIT_EVENT, EVENT_RECORD = range(8)
    MEM_ALLOC, MEM_FREE = 10, 11


@dataclass(eq=False)
class Node:
    """One operation of a graph."""

    kind: Kind
    operation: Operation
    #: the nodes that end before it starts
    needs: list[Node] = field(default_factory=list)
    #: address of the memory that an allocation or a free is about
    address: int = 0
    handle: int = 0

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


@dataclass(eq=False)
class Graph:
    """Nodes in the order in which they were added."""

    nodes: list[Node] = field(default_factory=list)
    handle: int = 0
    #: for each node of the graph that this one was cloned of, the node here
    clones: dict[Node, Node] = field(default_factory=dict)

    def add(self, node: Node) -> Node:
        """Adds a node, which gets a handle."""
        node.handle = handles.add(node)
        self.nodes.append(node)
        return node

    def clone(self) -> Graph:
        """A graph of its own that does the same."""
        made = Graph()
        for node in self.nodes:
            made.clones[node] = made.add(Node(node.kind, node.operation, address=node.address))
        for node, twin in made.clones.items():
            twin.needs = [made.clones[need] for need in node.needs]
        return made

    def release(self) -> None:
        """Ends the handles of the nodes."""
        for node in self.nodes:
            handles.take(node.handle, Node)

    def in_order(self) -> list[Node]:
        """The nodes, each behind those that it waits for.

        Raises CudaError where nodes wait for each other.
        """
        out: list[Node] = []
        left = list(self.nodes)
        while left:
            ready = _without_needs(left, out)
            if not ready:
                raise CudaError(INVALID_VALUE)
            out += ready
            left = [node for node in left if node not in ready]
        return out

    def shape(self) -> list[tuple[Kind, list[int]]]:
        """Kinds of the nodes and positions of those that they wait for."""
        places = {node: i for i, node in enumerate(self.nodes)}
        return [(node.kind, sorted(places[x] for x in node.needs)) for node in self.nodes]


def _without_needs(nodes: Iterable[Node], done: Collection[Node]) -> list[Node]:
    have = set(done)
    return [node for node in nodes if have.issuperset(node.needs)]
