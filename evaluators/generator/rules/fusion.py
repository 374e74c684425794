"""Puts kernels in the places of a graph's regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evaluators.generator.graph import Editor, Graph, Node
from evaluators.generator.rules.regions import Region
from evaluators.generator.rules.triton_kernels import TANH, Kernel

MakeKernel = Callable[[Graph, Region, str], Kernel | None]


def with_kernels(
    graph: Graph, regions: Sequence[Region], make: MakeKernel, imports: tuple[str, ...], most: int = 3
) -> Graph | None:
    """The graph with the regions as calls of kernels, at most so many, the longest first. Regions of the same text
    share a kernel. None if no region has a kernel."""
    chosen: dict[int, tuple[Region, Kernel]] = {}
    texts: dict[str, str] = {}  # of kernels, by their text under a common name
    for region in sorted(regions, key=lambda each: -len(each.nodes))[:most]:
        plain = make(graph, region, "fused")
        if plain is None:
            continue
        name = texts.setdefault(plain.text, f"fused{len(texts) + 1}" if texts else "fused")
        kernel = plain if name == "fused" else make(graph, region, name)
        if kernel:
            chosen[region.output] = (region, kernel)
    if not chosen:
        return None
    editor = Editor(graph)
    for index, node in enumerate(graph.nodes):
        if index in chosen:
            region, kernel = chosen[index]
            args = tuple(editor.place[arg] for arg in region.inputs)
            call = Node("call", args, {"text": kernel.call}, node.shape, node.dtype, node.span, node.name)
            editor.put(index, call)
        else:
            editor.keep(index)
    kernels = [kernel for _, kernel in chosen.values()]
    prelude = list(dict.fromkeys(kernel.text for kernel in kernels))
    if any(kernel.needs_tanh for kernel in kernels):
        prelude.insert(0, TANH)
    return editor.done(prelude="\n\n\n".join(prelude), imports=imports)
