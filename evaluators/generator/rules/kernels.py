"""The rules whose variants bring kernels of their own: Triton on a GPU, C++ on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from evaluators.generator.builder import Drawn
from evaluators.generator.graph import Graph
from evaluators.generator.operators import words_of
from evaluators.generator.printing import candidate_program
from evaluators.generator.rules.cpp_loops import IMPORTS as CPP_IMPORTS
from evaluators.generator.rules.cpp_loops import cpp_kernel
from evaluators.generator.rules.fusion import with_kernels
from evaluators.generator.rules.records import RuleVariant
from evaluators.generator.rules.regions import Region, map_regions, row_regions
from evaluators.generator.rules.triton_kernels import IMPORTS, Kernel, map_kernel, row_kernel
from evaluators.generator.rules.triton_products import TILINGS, product_with_epilogue
from evaluators.generator.rules.words import Words
from evaluators.records import digest_of

MAP_TILES = ((1024, 4), (2048, 8), (4096, 8))
ROW_TILES = ((1, 4), (1, 8), (4, 4))


def kernel_variants(drawn: Drawn, graph: Graph, words: Words) -> Iterator[RuleVariant]:
    """Variants of a graph, which algebra may have changed before."""
    yield from _triton_rows(drawn, graph, words)
    yield from _triton_maps(drawn, graph, words)
    yield from _triton_products(graph, words)
    yield from _cpp(drawn, graph, words)


def _triton_maps(drawn: Drawn, graph: Graph, words: Words) -> Iterator[RuleVariant]:
    regions = map_regions(graph)
    for number, (block, warps) in enumerate(MAP_TILES):
        changed = with_kernels(graph, regions, partial(map_kernel, block=block, warps=warps), IMPORTS)
        if changed is None:
            return
        facts = {"operators": words.operators(graph, regions), "block": block, "warps": warps}
        yield words.variant(
            f"triton_chain_{block}", "triton_chain", ("cuda",), candidate_program(changed), facts, number
        )


def _triton_rows(drawn: Drawn, graph: Graph, words: Words) -> Iterator[RuleVariant]:
    regions = row_regions(graph)
    if not regions:
        return
    taken = {index for region in regions for index in region.nodes}
    regions += [region for region in map_regions(graph) if taken.isdisjoint(region.nodes)]
    for number, (rows, warps) in enumerate(ROW_TILES):
        make = partial(_any_kernel, rows=rows, warps=warps)
        changed = with_kernels(graph, regions, make, IMPORTS)
        if changed is None:
            return
        facts = {"operators": words.operators(graph, regions), "rows": rows, "warps": warps}
        yield words.variant(
            f"triton_rows_{rows}x{warps}", "triton_rows", ("cuda",), candidate_program(changed), facts, number
        )


def _any_kernel(graph: Graph, region: Region, name: str, rows: int, warps: int) -> Kernel:
    return row_kernel(graph, region, name, rows, warps) if region.is_row else map_kernel(graph, region, name, 1024, 4)


def _triton_products(graph: Graph, words: Words) -> Iterator[RuleVariant]:
    half = any(node.dtype != "float32" for _, node in graph.inputs())
    for number, tiling in enumerate(TILINGS):
        if half and number == len(TILINGS) - 1:
            return
        changed = product_with_epilogue(graph, tiling)
        if changed is None:
            return
        product, nodes = changed
        operators = [word for index in nodes if (word := words_of(graph.nodes[index]))]
        facts: dict[str, object] = {
            "operators": operators,
            "rows": tiling.rows,
            "columns": tiling.columns,
            "depth": tiling.depth,
            "precision": tiling.precision,
        }
        name = f"triton_product_{tiling.rows}x{tiling.columns}_{tiling.precision}"
        yield words.variant(name, "triton_product", ("cuda",), candidate_program(product), facts, number)


def _cpp(drawn: Drawn, graph: Graph, words: Words) -> Iterator[RuleVariant]:
    for rule, regions in (("cpp_rows", row_regions(graph)), ("cpp_chain", map_regions(graph))):
        chosen: list[Region] = sorted(regions, key=lambda region: -len(region.nodes))[:1]
        suffix = digest_of(repr(graph.nodes))[:8]
        changed = with_kernels(graph, chosen, partial(cpp_kernel, suffix=suffix), CPP_IMPORTS, most=1)
        if changed is not None:
            facts = {"operators": words.operators(graph, chosen)}
            yield words.variant(rule, rule, ("cpu",), candidate_program(changed), facts, 0)
