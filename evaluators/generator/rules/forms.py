"""Rules that keep the operators and change how they run: compiled, in place, in blocks of rows, with joined weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from evaluators.generator.elementwise import ELEMENTWISE
from evaluators.generator.graph import Editor, Graph, Node
from evaluators.generator.operators import OPERATORS, is_view, words_of
from evaluators.generator.printing import candidate_program
from evaluators.generator.rules.records import RuleVariant
from evaluators.generator.rules.regions import is_mappable, layout_of
from evaluators.generator.rules.words import Words

BLOCKS = (64, 256)


def compiled(graph: Graph, words: Words) -> RuleVariant:
    """The model under torch.compile."""
    source = candidate_program(graph, decorator="@torch.compile")
    return words.variant("torch_compile", "torch_compile", ("cpu", "cuda"), source, {})


def in_place(graph: Graph) -> tuple[Graph, list[str]]:
    """The graph with element-wise operators in place where nobody else reads their argument, and these operators in
    words. Leaves and views are never written to."""
    users, alive = graph.users(), graph.alive()
    nodes, done = list(graph.nodes), []
    for index in sorted(alive):
        node = nodes[index]
        if node.op not in ELEMENTWISE or not ELEMENTWISE[node.op].in_place:
            continue
        first = node.args[0]
        source = nodes[first]
        fresh = not source.is_leaf and not is_view(source) and source.op != "call" and _own_memory(graph, first)
        same = source.shape == node.shape and source.dtype == node.dtype
        lasts = [user for user in users[first] if user in alive and user != index]
        others = [arg for arg in node.args[1:] if arg == first]
        if fresh and same and not lasts and not others and _keeps_layout(graph, index):
            nodes[index] = replace(node, attrs={**node.attrs, "in_place": True})
            done.append(words_of(node))
    return replace(graph, nodes=tuple(nodes)), done


def _own_memory(graph: Graph, index: int) -> bool:
    """Whether no view of the value, and no value that it is a view of, is read elsewhere."""
    node = graph.nodes[index]
    return not any(is_view(graph.nodes[user]) for user in graph.users()[index]) and node.op not in (
        "contiguous",
        "flatten",
    )


def _keeps_layout(graph: Graph, index: int) -> bool:
    """Whether the result would lie in memory like its first argument anyway."""
    node = graph.nodes[index]
    whole = [arg for arg in node.args if graph.nodes[arg].shape == node.shape]
    return len({layout_of(graph, arg) for arg in whole}) == 1


def blocked(graph: Graph, words: Words) -> Iterator[RuleVariant]:
    """The model on blocks of rows, if no row of the only input depends on another, and nothing is multiplied by a
    matrix of weights, which each block would read again."""
    inputs = [index for index, _ in graph.inputs()]
    if len(inputs) != 1 or len(graph.nodes[inputs[0]].shape) != 2 or graph.nodes[inputs[0]].attrs["layout"]:
        return
    lead = graph.nodes[inputs[0]].shape[0]
    for index in graph.alive():
        if not _is_by_row(graph, graph.nodes[index], lead):
            return
    name = graph.nodes[inputs[0]].name
    for number, block in enumerate(BLOCKS):
        text = candidate_program(in_place(graph)[0]).replace(
            f"    def forward(self, {name}):", f"    def rows(self, {name}):"
        )
        text += f"\n    def forward(self, {name}):\n"
        text += f"        return torch.cat([self.rows(part) for part in {name}.split({block})])\n"
        yield words.variant(f"row_blocks_{block}", "row_blocks", ("cpu",), text, {"block": block}, number)


def _is_by_row(graph: Graph, node: Node, lead: str) -> bool:
    if node.is_leaf:
        return node.op == "input" or lead not in node.shape
    if not node.shape or node.shape[0] != lead:
        return False
    rank = len(node.shape)
    if node.op in ELEMENTWISE:
        return True
    dim = node.attrs.get("dim", -1)
    kind = OPERATORS[node.op].kind if node.op in OPERATORS else ""
    last = isinstance(dim, int) and dim in (-1, len(graph.nodes[node.args[0]].shape) - 1 if node.args else rank - 1)
    return kind in ("reduction", "row", "scan") and last and dim != 0


def channels_last(graph: Graph) -> Graph | None:
    """The graph with its images in channels-last order inside, and its output in plain order. None without a
    two-dimensional convolution on a plain image."""
    alive = graph.alive()
    images = [index for index, node in graph.inputs() if len(node.shape) == 4]
    convolved = any(graph.nodes[index].op == "conv2d" for index in alive)
    shape = graph.nodes[graph.output].shape
    if len(shape) not in (2, 4) or "1" in shape:  # the strides of such an axis tell the order
        return None
    if not convolved or layout_of(graph, graph.output) != "" or any(layout_of(graph, each) != "" for each in images):
        return None
    editor = Editor(graph)
    for index, node in enumerate(graph.nodes):
        place = editor.keep(index)
        if index in images:
            attrs = {"text": "{0}.to(memory_format=torch.channels_last)"}
            editor.put(index, Node("call", (place,), attrs, node.shape, node.dtype, name=node.name))
        elif index == graph.output and len(node.shape) == 4:
            attrs = {"text": "{0}.clone(memory_format=torch.contiguous_format)"}  # contiguous() may keep strides
            editor.put(index, Node("call", (place,), attrs, node.shape, node.dtype))
    return editor.done()


def joined_weights(graph: Graph) -> tuple[Graph, int] | None:
    """The graph with linear layers of one input as one product with their joined weights, and their number. The weights
    are joined in every call, since they may have changed."""
    alive = graph.alive()
    groups: dict[tuple[int, bool], list[int]] = {}
    for index in sorted(alive):
        node = graph.nodes[index]
        if node.op == "linear":
            groups.setdefault((node.args[0], bool(node.attrs["bias"])), []).append(index)
    for (source, bias), layers in groups.items():
        modules = [graph.nodes[index].module for index in layers]
        if len(layers) < 2 or len(set(modules)) < len(modules):
            continue
        return _joined(graph, source, bias, layers), len(layers)
    return None


def _joined(graph: Graph, source: int, bias: bool, layers: list[int]) -> Graph:
    modules = [graph.nodes[index].module for index in layers]
    sizes = [graph.nodes[index].shape[-1] for index in layers]
    total = f"({' + '.join(sizes)})"
    like = graph.nodes[layers[0]]
    editor = Editor(graph)
    product = -1
    for index in range(len(graph.nodes)):
        if index == layers[0]:
            product = _joined_product(editor, editor.place[source], modules, total, bias, like)
        if index not in layers:
            editor.keep(index)
            continue
        before = [f"self.{module}.out_features" for module in modules[: layers.index(index)]]
        node = graph.nodes[index]
        attrs = {"dim": -1, "start": " + ".join(before) or 0, "length": f"self.{node.module}.out_features"}
        editor.put(index, Node("narrow", (product,), attrs, node.shape, node.dtype, node.span, node.name))
    return editor.done()


def _joined_product(editor: Editor, x: int, modules: list[str], total: str, bias: bool, like: Node) -> int:
    def joined(part: str, shape: tuple[str, ...]) -> int:
        parts = ", ".join(f"self.{module}.{part}" for module in modules)
        return editor.add(Node("call", (), {"text": f"torch.cat([{parts}])"}, shape, like.dtype, name=part))

    weight = joined("weight", (total, editor.nodes[x].shape[-1]))
    extra = [joined("bias", (total,))] if bias else []
    op = "linear_call" if bias else "linear_no_bias"
    shape = (*like.shape[:-1], total)
    return editor.add(Node(op, (x, weight, *extra), {}, shape, like.dtype, name="joined"))


def chain_is_long(graph: Graph) -> bool:
    """Whether there is something to fuse: at least two operators that move whole tensors."""
    return sum(is_mappable(graph.nodes[index]) for index in graph.alive()) >= 1 or len(graph.alive()) > 2
