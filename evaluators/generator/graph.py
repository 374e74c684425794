"""Typed expression graphs: what a generated task computes, before it is text.

Every node has a shape, a dtype and the range of its values, so that any chain that the builder accepts is valid. A size
is an expression over named constants (`"2 * features"`). Two sizes are equal if their texts are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType
from typing import Any

Size = str
Shape = tuple[Size, ...]

ANY, POSITIVE, BOUNDED = "any", "positive", "bounded"
"""The ranges of values: `positive` values are above zero, `bounded` ones within a few units of zero."""


@dataclass(frozen=True)
class Node:
    """One statement of `forward`, or a leaf (`input`, `parameter`).

    `op` names an operator, `args` are the indices of nodes, `attrs` what its text and rules need beside these.
    `module`: the attribute of `self` that holds its weights, with the `init` text that constructs it.
    """

    op: str
    args: tuple[int, ...]
    attrs: Mapping[str, Any]
    shape: Shape
    dtype: str = "float32"
    span: str = ANY
    name: str = ""
    module: str = ""
    init: str = ""

    @property
    def is_leaf(self) -> bool:
        return self.op in ("input", "parameter")


@dataclass(frozen=True)
class Graph:
    """Nodes in the order of their statements, the output's index, and the names of the sizes in the order of the
    constructor's arguments. `cells`: names of sizes by profile; see `evaluators.generator.sizes`."""

    nodes: tuple[Node, ...]
    output: int
    init_sizes: tuple[str, ...] = ()
    prelude: str = ""
    """Text before the class: kernels and their wrappers."""
    imports: tuple[str, ...] = ()

    def users(self) -> list[list[int]]:
        """For every node, the nodes that read it."""
        users: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for arg in dict.fromkeys(node.args):
                users[arg].append(index)
        return users

    def alive(self) -> set[int]:
        """The nodes on which the output depends."""
        found: set[int] = set()
        queue = [self.output]
        while queue:
            index = queue.pop()
            if index not in found:
                found.add(index)
                queue += self.nodes[index].args
        return found

    def pruned(self) -> Graph:
        """The graph without statements that nothing reads. Leaves stay: the constructor and the inputs are fixed."""
        alive = self.alive()
        kept = [index for index, node in enumerate(self.nodes) if index in alive or node.is_leaf or node.module]
        place = {old: new for new, old in enumerate(kept)}
        nodes = []
        for old in kept:
            node = self.nodes[old]
            if old not in alive and not node.is_leaf:  # a module whose statement is gone: its weights stay
                node = replace(node, op="module", args=())
            nodes.append(replace(node, args=tuple(place[arg] for arg in node.args)))
        return replace(self, nodes=tuple(nodes), output=place[self.output])

    def inputs(self) -> Iterator[tuple[int, Node]]:
        """The nodes of the inputs, in the order of `forward`'s arguments."""
        return ((index, node) for index, node in enumerate(self.nodes) if node.op == "input")


@dataclass
class Editor:
    """Replaces nodes of a graph by new ones, and gives the changed graph. Used by rules."""

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)

    def keep(self, index: int) -> int:
        """Copies a node whose arguments were copied before."""
        node = self.graph.nodes[index]
        return self.put(index, replace(node, args=tuple(self.place[arg] for arg in node.args)))

    def put(self, index: int, node: Node) -> int:
        """Adds a node that stands for an old one. Its arguments are indices of new nodes. Weights of the old one
        stay."""
        old = self.graph.nodes[index]
        if old.module and old.module != node.module:
            self.nodes.append(replace(old, op="module", args=()))
        self.nodes.append(node)
        self.place[index] = len(self.nodes) - 1
        return self.place[index]

    def add(self, node: Node) -> int:
        """Adds a node that stands for none of the old ones."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def done(self, **changes: Any) -> Graph:
        graph = replace(self.graph, nodes=tuple(self.nodes), output=self.place[self.graph.output], **changes)
        return graph.pruned()


@lru_cache(maxsize=65536)
def _compiled(text: str) -> CodeType:
    return compile(text, "<size>", "eval")


def value_of(size: Size, sizes: Mapping[str, Any]) -> int:
    """The number that a size's expression has. Raises NameError for a constant without a value."""
    return int(eval(_compiled(size), {}, dict(sizes)))


def plain(size: Size) -> str:
    """A size's text as an argument: without the parentheses round all of it."""
    if not size.startswith("("):
        return size
    depth = 0
    for place, letter in enumerate(size):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return size[1:-1] if place == len(size) - 1 else size
    return size


def count(shape: Shape, sizes: Mapping[str, Any]) -> int:
    """The number of elements."""
    total = 1
    for size in shape:
        total *= value_of(size, sizes)
    return total


def broadcast(first: Shape, second: Shape) -> Shape:
    """The shape of an element-wise operator of two tensors. Raises ValueError if they do not fit."""
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    padded = ("1",) * (len(longer) - len(shorter)) + shorter
    result = []
    for one, other in zip(longer, padded, strict=True):
        if one != other and "1" not in (one, other):
            raise ValueError(f"sizes {one} and {other} do not broadcast")
        result.append(other if one == "1" else one)
    return tuple(result)
