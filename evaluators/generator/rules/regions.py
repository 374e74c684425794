"""Finds the parts of a graph that one kernel can compute: element-wise chains, and row-wise functions.

A region has one output, and every other value of it is read inside alone. A map region works on elements of one shape.
A row region also reduces over the last axis, so that its values are whole rows or one number a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from evaluators.generator.elementwise import ELEMENTWISE
from evaluators.generator.graph import Graph, Node, Shape
from evaluators.generator.operators import OPERATORS

ROW_REDUCTIONS = frozenset(("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "norm", "norm1"))
ROW_OPERATORS = frozenset(
    ("softmax", "log_softmax", "softmin", "normalize", "plain_layer_norm", "layer_norm", "rms_norm_call",
     "plain_rms_norm")
)  # fmt: skip


@dataclass(frozen=True)
class Region:
    """`nodes` in order; `inputs`: the values from outside; `shape`: of a whole value; `is_row`: whether it reduces."""

    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    output: int
    shape: Shape
    is_row: bool


def map_regions(graph: Graph) -> list[Region]:
    """The element-wise chains of at least two operators, each as long as possible."""
    return list(_regions(graph, _grow_map, is_row=False))


def row_regions(graph: Graph) -> list[Region]:
    """The row-wise functions: those with a reduction or a row operator."""
    return list(_regions(graph, _grow_row, is_row=True))


def is_mappable(node: Node) -> bool:
    """Whether a kernel can compute the operator for each element by itself."""
    return node.op in ELEMENTWISE and not any(isinstance(value, str) for value in node.attrs.values())


def _regions(graph: Graph, grow: Callable[[Graph, int, Shape], set[int] | None], is_row: bool) -> Iterator[Region]:
    taken: set[int] = set()
    alive = graph.alive()
    for root in sorted(alive, reverse=True):
        if root in taken or graph.nodes[root].is_leaf:
            continue
        shape = _whole_shape(graph, root) if is_row else graph.nodes[root].shape
        found = grow(graph, root, shape)
        if found is None:
            continue
        taken |= found
        inputs = dict.fromkeys(arg for index in sorted(found) for arg in graph.nodes[index].args if arg not in found)
        yield Region(tuple(sorted(found)), tuple(inputs), root, shape, is_row)


def _grow(graph: Graph, root: int, fits: Callable[[int], bool]) -> set[int]:
    """The largest set of fitting nodes around the root whose values are read inside alone."""
    users, alive = graph.users(), graph.alive()
    found, changed = {root}, True
    while changed:
        changed = False
        for index in sorted({arg for each in found for arg in graph.nodes[each].args} - found, reverse=True):
            readers = [user for user in users[index] if user in alive]
            if all(user in found for user in readers) and index != graph.output and fits(index):
                found.add(index)
                changed = True
    return found


def _grow_map(graph: Graph, root: int, shape: Shape) -> set[int] | None:
    def fits(index: int) -> bool:
        node = graph.nodes[index]
        return is_mappable(node) and node.shape == shape and _reads_blocks(graph, index, shape)

    if not shape or not fits(root):
        return None
    found = _grow(graph, root, fits)
    return found if len(found) >= 2 and _has_one_layout(graph, found) else None


def _grow_row(graph: Graph, root: int, shape: Shape) -> set[int] | None:
    rank = len(shape)

    def fits(index: int) -> bool:
        node = graph.nodes[index]
        if node.op in ROW_REDUCTIONS:
            is_last = node.attrs["dim"] in (-1, rank - 1)
            return is_last and graph.nodes[node.args[0]].shape == shape and (bool(node.attrs["keepdim"]) or ends(index))
        if node.op in ROW_OPERATORS:
            return node.attrs.get("dim", -1) in (-1, rank - 1) and node.shape == shape
        form = form_of(node.shape, shape)
        readable = all(form_of(graph.nodes[arg].shape, shape) for arg in node.args)
        return is_mappable(node) and form in ("full", "row", "short") and readable

    def ends(index: int) -> bool:
        return graph.nodes[root].shape == graph.nodes[index].shape == shape[:-1]

    if rank < 2 or not fits(root):
        return None
    found = _grow(graph, root, fits)
    reduces = any(graph.nodes[index].op in ROW_REDUCTIONS | ROW_OPERATORS for index in found)
    inputs = {arg for index in found for arg in graph.nodes[index].args} - found
    whole = [arg for arg in inputs if graph.nodes[arg].shape == shape]
    return found if reduces and whole and _has_one_layout(graph, found, contiguous=True) else None


def form_of(shape: Shape, whole: Shape) -> str:
    """How a value lies in rows of the whole shape: `full`, `row` (one number a row), `short` (the same without the
    last axis), `vector` (one number a column), or empty if in none of these ways."""
    if shape == whole:
        return "full"
    if shape == (*whole[:-1], "1"):
        return "row"
    if shape == whole[:-1]:
        return "short"
    return "vector" if shape == whole[-1:] else ""


def _whole_shape(graph: Graph, root: int) -> Shape:
    """The shape of the rows that a value was reduced from, or its own."""
    queue, seen = [root], set()
    while queue:
        index = queue.pop()
        node = graph.nodes[index]
        if index in seen:
            continue
        seen.add(index)
        if node.op in ROW_REDUCTIONS and node.attrs["dim"] in (-1, len(graph.nodes[node.args[0]].shape) - 1):
            return graph.nodes[node.args[0]].shape
        if node.op in ELEMENTWISE:
            queue += reversed(node.args)
    return graph.nodes[root].shape


def block_of(shape: Shape, whole: Shape) -> tuple[int, int] | None:
    """The axes [first, last) of the whole shape along which a broadcast value varies; None if they do not lie side by
    side. A value for all elements has them all; a single number has none."""
    padded = ("1",) * (len(whole) - len(shape)) + shape
    varying = [axis for axis, size in enumerate(padded) if size != "1"]
    if any(padded[axis] != whole[axis] for axis in varying):
        return None
    if not varying:
        return (0, 0)
    first, last = varying[0], varying[-1] + 1
    return (first, last) if len(varying) == last - first else None


def _reads_blocks(graph: Graph, index: int, shape: Shape) -> bool:
    return all(block_of(graph.nodes[arg].shape, shape) is not None for arg in graph.nodes[index].args)


def _has_one_layout(graph: Graph, found: set[int], contiguous: bool = False) -> bool:
    """Whether all whole inputs lie in memory in the same known order, so that the output does, too. Broadcast inputs
    need the plain order."""
    shape = max((graph.nodes[index].shape for index in found), key=len)
    inputs = {arg for index in found for arg in graph.nodes[index].args} - found
    layouts = {layout_of(graph, arg) for arg in inputs}
    if layouts == {""}:
        return True
    if contiguous or len(layouts) != 1 or None in layouts:
        return False
    return all(graph.nodes[arg].shape == shape for arg in inputs)


def layout_of(graph: Graph, index: int) -> str | None:
    """The order of a value in memory: empty for the plain one, the layout of an input, or None if it is not known."""
    node = graph.nodes[index]
    if node.op == "input":
        return str(node.attrs["layout"])
    if node.op in ("parameter", "weight_of", "bias_of", "call"):
        return ""
    if node.op in ELEMENTWISE or (node.op in OPERATORS and OPERATORS[node.op].kind in ("row", "scan")):
        layouts = {layout_of(graph, arg) for arg in node.args if len(graph.nodes[arg].shape) == len(node.shape)} or {""}
        return layouts.pop() if len(layouts) == 1 else None
    kind = OPERATORS[node.op].kind
    if kind in ("conv", "pool"):
        return "" if layout_of(graph, node.args[0]) == "" else None
    if node.op in ("flatten", "contiguous"):  # copied if it was not plain
        return ""
    if node.op in ("unsqueeze", "squeeze", "cat", "gather", "index_select", "embedding"):
        return "" if all(layout_of(graph, arg) == "" for arg in node.args) else None
    if node.op in ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "norm", "norm1"):
        return "" if layout_of(graph, node.args[0]) == "" else None
    return "" if kind in ("product", "loss") and node.op != "sdpa" else None
