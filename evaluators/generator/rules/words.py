"""The sentences that a teacher would write about a variant, from facts about the reference and the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.generator.builder import Drawn
from evaluators.generator.graph import Graph
from evaluators.generator.operators import is_view, words_of
from evaluators.generator.rules.records import RuleVariant
from evaluators.generator.rules.regions import Region

_ANALYSES: Mapping[str, tuple[str, ...]] = {
    "triton_chain": (
        "The reference runs {list} as {count} element-wise operators, and each reads and writes the whole tensor.",
        "{Count} element-wise operators ({list}) move the same tensor through memory again and again.",
        "{Count} kernels do the work of one: {list} are element-wise, so memory traffic bounds their time.",
    ),
    "triton_rows": (
        "The reference makes {count} passes over each row ({list}), and every pass goes through global memory.",
        "{Count} operators work on rows: {list}. A row fits on one multiprocessor, but each of them reloads it.",
        "Row reductions and the chain around them ({list}) are separate kernels, so rows are read {count} times.",
    ),
    "triton_product": (
        "The result of the product makes a round trip through memory for each operator behind it: {list}.",
        "{Count} operators in a row ({list}) each write the whole result, though a tile of it fits in registers.",
    ),
    "cpp_chain": (
        "The reference makes {count} passes over memory for {list}; one core is bound by memory, not by arithmetic.",
    ),
    "cpp_rows": (
        "Each operator of {list} makes its own pass over rows that would stay in the cache.",
        "The reference walks through memory {count} times for {list}, although a row fits in the nearest cache.",
    ),
    "torch_compile": (
        "Eager mode launches {all_count} operators one by one, and each writes its result to memory.",
        "The forward pass is {all_count} separate operators: {list}. Their intermediates all go through memory.",
        "Nothing in {list} needs eager execution; launches and memory traffic between operators take most time.",
    ),
    "in_place": (
        "Each operator of {list} allocates a new tensor, although nobody reads its argument again.",
        "The chain {list} writes to fresh memory at every step, which costs allocations and cache misses.",
    ),
    "row_blocks": (
        "Rows do not depend on each other, but each operator goes over the whole batch, so nothing stays in the cache.",
        "Intermediates of the whole batch exceed the cache, though every row is independent: {list}.",
    ),
}
_DESIGNS: Mapping[str, tuple[str, ...]] = {
    "triton_chain": (
        "One Triton kernel loads each element once and computes the chain in registers, {block} elements a program.",
        "Fuse the chain into a Triton kernel with blocks of {block} and {warps} warps: one read and one write.",
    ),
    "triton_rows": (
        "One Triton program holds {rows} row(s) in registers with {warps} warps: reductions and chain happen on chip.",
        "Load a row once in a Triton kernel ({rows} row(s) a program, {warps} warps), reduce it and store the result.",
    ),
    "triton_product": (
        "A tiled Triton product ({rows} x {columns}, depth {depth}, {precision}) applies the chain to the accumulator.",
    ),
    "cpp_chain": ("One C++ loop, vectorised by the compiler, computes the whole chain for each element.",),
    "cpp_rows": ("One C++ function works row by row: a pass for each reduction, and the chain inside these passes.",),
    "torch_compile": (
        "Let torch.compile fuse the forward pass.",
        "Compile forward with torch.compile, which generates fused kernels for this chain.",
    ),
    "in_place": ("Work in place wherever the argument has no other reader.",),
    "row_blocks": ("Process blocks of {block} rows, so that a block's intermediates stay in the cache.",),
}
_SINGLE = (
    "The reference computes {list} with a general kernel, which is not made for this shape.",
    "There is one operator, {list}; its kernel in eager mode serves every shape and layout.",
)
"""Instead of the sentences that count operators, if there is only one."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Words:
    """Describes one task's reference and the variants of it."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn
        graph = drawn.graph
        alive = graph.alive()
        self._all = [
            words_of(node)
            for index, node in enumerate(graph.nodes)
            if index in alive and not node.is_leaf and not is_view(node) and words_of(node)
        ]
        self._number = sum(ord(letter) for letter in drawn.name) + len(graph.nodes)

    def operators(self, graph: Graph, regions: Sequence[Region]) -> list[str]:
        """The operators of regions, in words."""
        indices = sorted(index for region in regions for index in region.nodes)
        return [word for index in indices if (word := words_of(graph.nodes[index]))]

    def variant(
        self, name: str, rule: str, profiles: tuple[str, ...], source: str, facts: Mapping[str, Any], number: int = 0
    ) -> RuleVariant:
        """A variant with its texts. `number` chooses among phrasings."""
        named = list(facts.get("operators", self._all)) or self._all
        values = {
            "list": _list(named),
            "count": _NUMBERS[len(named)] if len(named) <= 10 else str(len(named)),
            "all_count": _NUMBERS[len(self._all)] if len(self._all) <= 10 else str(len(self._all)),
            **facts,
        }
        values["Count"] = str(values["count"]).capitalize()
        phrases = _SINGLE if len(named) == 1 else _ANALYSES.get(rule, _SINGLE)
        analysis = str(facts.get("reason") or _pick(phrases, self._number).format(**values))
        design = str(facts.get("idea") or _pick(_DESIGNS[rule], self._number + number).format(**values))
        kept = {"reason": analysis, **{key: value for key, value in facts.items() if key not in ("reason", "idea")}}
        return RuleVariant(name, rule, profiles, analysis, design, source, kept)


def _pick(phrases: Sequence[str], number: int) -> str:
    return phrases[number % len(phrases)]


def _list(words: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(word.removeprefix("a ").removeprefix("an ") for word in words))
    if len(distinct) > 5:
        distinct = [*distinct[:4], f"{len(distinct) - 4} more"]
    return ", ".join(distinct[:-1]) + f" and {distinct[-1]}" if len(distinct) > 1 else (distinct or ["the work"])[0]
