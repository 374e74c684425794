"""Rules that make fast variants of a drawn task. A variant is only a claim: the evaluator decides."""

from __future__ import annotations

from collections.abc import Iterator

from evaluators.generator.builder import Drawn
from evaluators.generator.graph import Graph
from evaluators.generator.printing import candidate_program
from evaluators.generator.rules import forms
from evaluators.generator.rules.identities import ALGEBRA, FUSED_CALLS
from evaluators.generator.rules.kernels import kernel_variants
from evaluators.generator.rules.patterns import Rewrite, rewrite
from evaluators.generator.rules.records import RuleVariant
from evaluators.generator.rules.words import Words

__all__ = ["RuleVariant", "variants_of"]


def variants_of(drawn: Drawn) -> list[RuleVariant]:
    """The variants that the rules make of a task, in the order of the rules; no text twice."""
    words = Words(drawn)
    found: dict[str, RuleVariant] = {}
    names: set[str] = set()
    reference = candidate_program(drawn.graph)
    for variant in _variants(drawn, words):
        if variant.source != reference and variant.source not in found and variant.name not in names:
            found[variant.source] = variant
            names.add(variant.name)
    return list(found.values())


def _variants(drawn: Drawn, words: Words) -> Iterator[RuleVariant]:
    graph = drawn.graph
    smaller, algebra = rewrite(graph, ALGEBRA)
    fused, calls = rewrite(smaller, FUSED_CALLS)
    if algebra:
        yield _by_rewriting("algebra", smaller, algebra, words)
    if calls:
        yield _by_rewriting("fused_calls", fused, calls + algebra, words)
    changed, operators = forms.in_place(fused)
    if operators and not (algebra or calls):
        yield words.variant(
            "in_place", "in_place", ("cpu", "cuda"), candidate_program(changed), {"operators": operators}
        )
    elif operators:
        yield _by_rewriting(
            "fused_in_place", changed, calls + algebra, words, " Work in place where nobody else reads the argument."
        )
    if joined := forms.joined_weights(fused):
        joined_graph, layers = joined
        reason = f"{layers} linear layers read the same input, each in a product of its own."
        idea = "Join their weights in each call and compute one larger product."
        facts = {"reason": reason, "idea": idea, "layers": layers}
        yield words.variant("joined_weights", "joined_weights", ("cpu", "cuda"), candidate_program(joined_graph), facts)
    if changed_layout := forms.channels_last(fused):
        reason = "The convolutions run on images whose channels lie far apart in memory."
        idea = "Convert the image to channels-last order once, and the result back at the end."
        facts = {"reason": reason, "idea": idea}
        yield words.variant("channels_last", "channels_last", ("cpu", "cuda"), candidate_program(changed_layout), facts)
    yield from forms.blocked(fused, words)
    if forms.chain_is_long(graph):
        yield forms.compiled(graph, words)
        if algebra:
            yield _by_rewriting(
                "algebra_compiled", smaller, algebra, words, " Then let torch.compile fuse the rest.", "@torch.compile"
            )
    yield from kernel_variants(drawn, smaller, words)


def _by_rewriting(
    name: str, graph: Graph, rules: list[Rewrite], words: Words, more: str = "", decorator: str = ""
) -> RuleVariant:
    """A variant by rules of algebra, with the words of the first two of them."""
    reason = " ".join(rule.reason for rule in rules[:2])
    idea = " ".join(rule.idea for rule in rules[:2]) + more
    facts = {"reason": reason, "idea": idea, "rewrites": [rule.name for rule in rules]}
    source = candidate_program(graph, decorator=decorator)
    return words.variant(name, name, ("cpu", "cuda"), source, facts)
