"""Prints a graph as a program in KernelBench's format: one statement a node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from evaluators.generator.graph import Graph, Node, plain
from evaluators.generator.operators import text_of, variable_of, words_of

_SPARE = ("y", "z", "u", "v", "w")


def reference_program(graph: Graph, sizes: Mapping[str, Any], title: str) -> str:
    """The task's program: sizes, `Model`, `get_inputs`, `get_init_inputs`."""
    constants = "\n".join(f"{name} = {value!r}" for name, value in sizes.items())
    inputs = ", ".join(input_text(node) for _, node in graph.inputs())
    listed = f"    return [{inputs}]"
    if len(listed) > 110:
        lines = ",\n        ".join(input_text(node) for _, node in graph.inputs())
        listed = f"    return [\n        {lines},\n    ]"
    init = ", ".join(graph.init_sizes)
    body = model_class(graph, "Model", title)
    head = imports_of(graph, body)
    return (
        f"{head}\n\n{constants}\n\n\n{body}\n\n\ndef get_inputs():\n{listed}\n\n\n"
        f"def get_init_inputs():\n    return [{init}]\n"
    )


def candidate_program(graph: Graph, *, decorator: str = "") -> str:
    """A program that defines `ModelNew`, with the kernels that its graph calls."""
    body = model_class(graph, "ModelNew", "", decorator)
    prelude = f"\n\n\n{graph.prelude.strip()}" if graph.prelude else ""
    return f"{imports_of(graph, prelude + body)}{prelude}\n\n\n{body}\n"


def imports_of(graph: Graph, text: str) -> str:
    """The import statements that a program's text needs."""
    lines = ["import torch", "import torch.nn as nn"]
    if re.search(r"\bF\.", text):
        lines.append("import torch.nn.functional as F")
    return "\n".join([*lines, *graph.imports])


def model_class(graph: Graph, name: str, title: str, decorator: str = "") -> str:
    """The class with its constructor and `forward`."""
    lines = [f"class {name}(nn.Module):"]
    if title:
        lines += [f'    """{title}"""', ""]
    body = statements(graph)
    attributes = [size for size in graph.init_sizes if re.search(rf"\bself\.{size}\b", "\n".join(body))]
    lines.append(f"    def __init__({', '.join(['self', *graph.init_sizes])}):")
    lines.append("        super().__init__()")
    lines += [f"        self.{size} = {size}" for size in attributes]
    modules = {node.module: node.init for node in graph.nodes if node.module}  # a layer may be used twice
    lines += [f"        self.{module} = {init}" for module, init in modules.items()]
    lines.append("")
    if decorator:
        lines.append(f"    {decorator}")
    arguments = ", ".join(["self", *(node.name for _, node in graph.inputs())])
    lines.append(f"    def forward({arguments}):")
    lines += [f"        {line}" for line in body]
    return "\n".join(lines)


def statements(graph: Graph) -> list[str]:
    """The lines of `forward`. The last statement is returned directly."""
    texts = _Names(graph)
    lines = []
    alive = graph.alive()
    for index, node in enumerate(graph.nodes):
        if index not in alive or node.is_leaf or _is_inline(node):
            continue
        expression = text_of(node, [texts.text(arg) for arg in node.args])
        if index == graph.output:
            lines.append(f"return {expression}")
            break
        lines.append(f"{texts.assign(index)} = {expression}")
    else:
        lines.append(f"return {texts.text(graph.output)}")
    return lines


def _is_inline(node: Node) -> bool:
    return node.op in ("weight_of", "bias_of")


class _Names:
    """Gives results their names: a value that takes the place of its first argument takes its name, too."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        alive = graph.alive()
        self._last_use = {
            index: max((user for user in users if user in alive), default=-1)
            for index, users in enumerate(graph.users())
        }
        self._names = {index: node.name for index, node in graph.inputs()}
        self._named_inputs = set(self._names.values())

    def text(self, index: int) -> str:
        node = self._graph.nodes[index]
        if node.op == "parameter":
            return f"self.{node.module}"
        if _is_inline(node):
            return text_of(node, [])
        return self._names[index]

    def assign(self, index: int) -> str:
        node = self._graph.nodes[index]
        live = {self._names[other] for other in self._names if self._last_use[other] > index and other != index}
        wanted = node.name or self._inherited(node) or variable_of(node)
        name, number = wanted, 2
        if name in live and not node.name:
            name = next((spare for spare in _SPARE if spare not in live), name)
        while name in live:
            name, number = f"{wanted}{number}", number + 1
        self._names[index] = name
        return name

    def _inherited(self, node: Node) -> str:
        first = node.args[0] if node.args else None
        if first is None or first not in self._names or variable_of(node) != "x":
            return ""
        return self._names[first]


def input_text(node: Node) -> str:
    """How `get_inputs` draws an input."""
    draw, layout = str(node.attrs["draw"]), node.attrs["layout"]
    kind = "" if node.dtype in ("float32", "int64") else f", dtype=torch.{node.dtype}"
    shape = list(node.shape)
    if layout == "transposed":
        shape[-2], shape[-1] = shape[-1], shape[-2]
    sizes = ", ".join(map(plain, shape))
    if draw.startswith("randint:"):
        return f"torch.randint({draw.removeprefix('randint:')}, ({sizes},))"
    text = f"torch.{draw}({sizes}{kind})"
    if layout == "transposed":
        return f"{text}.transpose(-2, -1)"
    if layout == "channels_last":
        return f"{text}.to(memory_format=torch.channels_last)"
    return text


def title_of(graph: Graph) -> str:
    """A sentence that describes the graph, for a docstring."""
    words: list[str] = []
    alive = graph.alive()
    for index, node in enumerate(graph.nodes):
        word = "" if node.is_leaf or index not in alive else words_of(node)
        if word and (not words or words[-1] != word):
            words.append(word)
    if len(words) > 7:
        words = [*words[:6], "and more"]
    elif len(words) > 1:
        words[-1] = f"and {words[-1]}" if len(words) > 2 else words[-1]
    joined = ", ".join(words) if len(words) != 2 else " and ".join(words)
    return f"{joined[:1].upper()}{joined[1:]}." if joined else "A view."
